//! `cargo xtask faults` kills the program at every failpoint; every row must be there once.

use crate::step::{Failure, Steps};
use crate::test;
use crate::workspace::Workspace;

/// Cases of a sweep, if nobody says how many.
const CASES: &str = "400";

/// The tests to run, and the variables that they read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    variables: Vec<(&'static str, String)>,
    /// The tests to run instead of the failpoints.
    other: Option<&'static str>,
}

impl Wanted {
    /// Runs the tests of this name `number` times, instead of the failpoints.
    fn instead(&mut self, variable: &'static str, number: String, tests: &'static str) {
        self.variables.push((variable, number));
        self.other = Some(tests);
    }
}

/// Builds, and runs the sweep, or the rounds of another kind of fault.
pub fn faults(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let wanted = parse(arguments)?;
    let name = wanted.other.unwrap_or("faults::every_row");
    let arguments = ["--test", "e2e", name, "--", "--nocapture"].map(str::to_owned);
    test::with(workspace, steps, &arguments, &wanted.variables)
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    let mut cases = Some(CASES.to_owned());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().filter(|text| text.parse::<u64>().is_ok());
            text.cloned()
                .ok_or_else(|| Failure::usage(format!("`{argument}` needs a number after it")))
        };
        match argument.as_str() {
            "--seed" => wanted.variables.push(("RAPIDBYTE_FAULTS_SEED", number()?)),
            "--cases" => cases = Some(number()?),
            "--random" => wanted.instead("RAPIDBYTE_FAULTS_ROUNDS", number()?, "faults::random"),
            "--fire" => wanted.instead("RAPIDBYTE_FAULTS_FIRE", number()?, "faults::fire"),
            "--drift" => wanted.instead("RAPIDBYTE_FAULTS_DRIFT", number()?, "faults::drift"),
            "--races" => wanted.instead("RAPIDBYTE_FAULTS_RACES", number()?, "races::"),
            "--network" => wanted.instead("RAPIDBYTE_FAULTS_NETWORK", number()?, "network::"),
            _ => {
                return Err(Failure::usage(format!(
                    "`faults` knows no argument `{argument}`"
                )));
            }
        }
    }
    if let (Some(cases), None) = (cases, wanted.other) {
        wanted.variables.push(("RAPIDBYTE_FAULTS_CASES", cases));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wanted, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn options_become_variables() {
        let all = parsed("").unwrap().variables;
        assert_eq!(all, [("RAPIDBYTE_FAULTS_CASES", CASES.to_owned())]);
        for (option, tests) in [("--races", "races::"), ("--network", "network::")] {
            assert_eq!(parsed(&format!("{option} 50")).unwrap().other, Some(tests));
        }
        let random = parsed("--random 200 --seed 7").unwrap();
        assert_eq!(random.other, Some("faults::random"));
        let names: Vec<&str> = random.variables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["RAPIDBYTE_FAULTS_ROUNDS", "RAPIDBYTE_FAULTS_SEED"]);
        for line in ["--cases", "--cases x", "--kill"] {
            assert_eq!(parsed(line).unwrap_err().code, 2, "{line}");
        }
    }
}
