//! Whole processes, timed from their start to their end.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::Failure;

/// What a process, or a pipe of two, took.
#[derive(Debug)]
pub struct Timed {
    /// From starting the first to the end of the last.
    pub wall_secs: f64,
    /// User and system time of both, in steps of 10 ms; nothing where `/proc` is not there.
    pub cpu_secs: Option<f64>,
    /// Standard output of the last.
    pub stdout: Vec<u8>,
}

/// Runs a program that must end well; `name` is how people call it.
pub fn timed(name: &str, command: &mut Command) -> Result<Timed, Failure> {
    command.stdin(Stdio::null());
    let cpu = children_cpu_secs();
    let begun = Instant::now();
    let output = command
        .output()
        .map_err(|error| Failure(format!("{name} did not start: {error}")))?;
    let wall_secs = begun.elapsed().as_secs_f64();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!(
            "{name} failed ({}): {}",
            output.status,
            said.trim()
        )));
    }
    Ok(Timed {
        wall_secs,
        cpu_secs: spent_since(cpu),
        stdout: output.stdout,
    })
}

/// Runs two programs, the standard output of one being the standard input of the other.
pub fn timed_pipe(name: &str, from: &mut Command, to: &mut Command) -> Result<Timed, Failure> {
    let cpu = children_cpu_secs();
    let begun = Instant::now();
    let mut from = from.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let rows = from.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let to = to.stdin(rows).status()?;
    let from = from.wait()?;
    let wall_secs = begun.elapsed().as_secs_f64();
    if !from.success() || !to.success() {
        return Err(Failure(format!("{name} failed: {from}, {to}")));
    }
    Ok(Timed {
        wall_secs,
        cpu_secs: spent_since(cpu),
        stdout: Vec::new(),
    })
}

fn spent_since(before: Option<f64>) -> Option<f64> {
    Some(children_cpu_secs()? - before?)
}

/// User and system time of all children of this process that have ended.
fn children_cpu_secs() -> Option<f64> {
    cpu_of_children(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// `cutime` and `cstime` of the proc(5) manual page.
fn cpu_of_children(stat: &str) -> Option<f64> {
    // `USER_HZ`, which Linux keeps at 100 for programs whatever the kernel's own clock is.
    const TICKS_PER_SEC: f64 = 100.0;
    // The name of the program stands in brackets and may hold anything; state is what follows.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS_PER_SEC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_s_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 500 600 70 8 20 0 1 0 1 2 3";
        assert_eq!(cpu_of_children(stat), Some(0.78));
        assert_eq!(cpu_of_children("7 (a) S 1 7"), None);
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such table >&2; exit 3"]);
        let Failure(text) = timed("psql", &mut command).expect_err("it failed");
        assert!(
            text.contains("psql failed") && text.contains("no such table"),
            "{text}"
        );
    }

    #[test]
    fn either_end_of_a_pipe_may_fail_it() {
        let ends = [
            ("exit 1", "cat >/dev/null"),
            ("exit 0", "cat >/dev/null; exit 1"),
        ];
        for (from, to) in ends {
            let [mut from, mut to] = [from, to].map(|script| {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                command
            });
            assert!(timed_pipe("a pipe", &mut from, &mut to).is_err());
        }
    }
}
