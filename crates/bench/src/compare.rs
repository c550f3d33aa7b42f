//! Two builds of the program in turn, in one run: has the newer one become slower?

mod verdict;

use std::path::PathBuf;

use rapidbyte_engine::compress::Compression;
use rapidbyte_testkit::postgres::Server;

use crate::databases::{self, Databases};
use crate::failure::{Failure, timed_out};
use crate::figures::render;
use crate::measure::{Series, measure};
use crate::run::{LIMIT, Method, Programs};
use crate::settings::number;
use crate::workload::Workload;
use verdict::{Judged, Verdict, judge};

pub const USAGE: &str = "\
usage: rapidbyte-bench compare --old <program> --new <program> [--names <old>,<new>]
    [--rows 100000] [--iters 9]";

/// Fewer runs tell no noise.
const MIN_ITERATIONS: usize = 3;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    old: PathBuf,
    new: PathBuf,
    names: [String; 2],
    rows: u64,
    iterations: usize,
}

impl Request {
    /// Reads the arguments behind `compare`.
    pub fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let (mut old, mut new) = (None, None);
        let mut names = ["old", "new"].map(str::to_owned);
        let (mut rows, mut iterations) = (100_000, 9);
        for pair in arguments.chunks(2) {
            let [flag, value] = pair else {
                return Err(Failure(format!("{} needs a value", pair[0])));
            };
            match flag.as_str() {
                "--old" => old = Some(PathBuf::from(value)),
                "--new" => new = Some(PathBuf::from(value)),
                "--names" => {
                    let both = value.split_once(',');
                    let (old, new) =
                        both.ok_or_else(|| Failure("--names needs two names".into()))?;
                    names = [old.to_owned(), new.to_owned()];
                }
                "--rows" => rows = number(flag, value)?.into(),
                "--iters" => iterations = number(flag, value)? as usize,
                _ => return Err(Failure(format!("there is no option {flag}"))),
            }
        }
        if iterations < MIN_ITERATIONS {
            let text = format!("--iters: fewer than {MIN_ITERATIONS} runs tell no noise");
            return Err(Failure(text));
        }
        let program = |program: Option<PathBuf>, flag| {
            program.ok_or_else(|| Failure(format!("{flag} is missing")))
        };
        Ok(Self {
            old: program(old, "--old")?,
            new: program(new, "--new")?,
            names,
            rows,
            iterations,
        })
    }
}

/// Measures, shows, and fails on a regression.
pub fn run(request: &Request) -> Result<(), Failure> {
    let server = databases::server()?;
    let mut samples = measured(request, &server)?;
    let mut judged = all_judged(&samples);
    if judged.iter().any(|(_, judged)| is_regression(judged)) {
        eprintln!("something looks slower: the same number of runs once more");
        for (sum, more) in samples.iter_mut().zip(measured(request, &server)?) {
            sum.runs.extend(more.runs);
        }
        judged = all_judged(&samples);
    }
    println!("{}", shown(request, &judged));
    let slower: Vec<&str> = judged
        .iter()
        .filter(|(_, judged)| is_regression(judged))
        .map(|(name, _)| name.as_str())
        .collect();
    if slower.is_empty() {
        println!("no regression beyond the limits and the noise");
        return Ok(());
    }
    Err(Failure(format!("regression: {}", slower.join(", "))))
}

fn is_regression(judged: &Judged) -> bool {
    judged.verdict == Verdict::Regression
}

/// Old and new by INSERT, then by COPY.
fn measured(request: &Request, server: &Server) -> Result<Vec<Series>, Failure> {
    let programs = Programs::of(request.new.clone(), LIMIT)?;
    let pipeline = programs.append()?;
    let databases = Databases::seeded(server, Workload::Narrow, request.rows)?;
    let pair = databases.pair();
    let mut contenders = Vec::new();
    for method in Method::BOTH {
        for (program, name) in [&request.old, &request.new].into_iter().zip(&request.names) {
            let name = format!("{} of {name}", method.column(Compression::None));
            contenders.push((name, (program, method)));
        }
    }
    let series = measure(&contenders, request.iterations, |(program, method)| {
        pair.begin_anew(None)?;
        let none = Compression::None;
        let mut command = programs.command(program, &pair, &pipeline, *method, none);
        let run = programs.reporting(&mut command)?;
        pair.verify()?;
        Ok(run)
    })?;
    let late = series.iter().find_map(|each| Some((each, each.timed_out?)));
    match late {
        None => Ok(series),
        Some((each, limit)) => Err(Failure(format!("{} {}", each.name, timed_out(limit)))),
    }
}

/// Every total and phase, with its name.
fn all_judged(samples: &[Series]) -> Vec<(String, Judged)> {
    let mut all = Vec::new();
    for (method, pair) in Method::BOTH.into_iter().zip(samples.chunks(2)) {
        if let [old, new] = pair {
            let name = method.column(Compression::None);
            let judged = judge(old, new).into_iter();
            all.extend(judged.map(|(what, judged)| (format!("{name} {what}"), judged)));
        }
    }
    all
}

fn shown(request: &Request, judged: &[(String, Judged)]) -> String {
    let [old, new] = &request.names;
    let head = ["", old, new, "new / old", "noise", "limit", ""];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (name, judged) in judged {
        let Judged {
            old, new, ratio, ..
        } = judged;
        lines.push(vec![
            name.clone(),
            format!("{old:.4} s"),
            format!("{new:.4} s"),
            format!("{:.2}x", ratio.value),
            format!("{:.2}..{:.2}", ratio.low, ratio.high),
            judged
                .limit
                .map_or_else(String::new, |limit| format!("{limit:.2}x")),
            judged.verdict.word().to_owned(),
        ]);
    }
    render(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Request::parse(&arguments)
    }

    #[test]
    fn both_programs_are_needed() {
        let request =
            parsed("--old a --new b --names v1,v2 --rows 1_000 --iters 5").expect("it is right");
        assert_eq!((request.rows, request.iterations), (1000, 5));
        assert_eq!(request.names, ["v1", "v2"]);
        for line in ["", "--old a", "--old a --new", "--old a --new b --iters 2"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
