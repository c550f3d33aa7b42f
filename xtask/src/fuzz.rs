//! `cargo xtask fuzz`: what hostile bytes meet first, under libFuzzer.
//!
//! cargo-fuzz is installed below `target/`, at one version, and builds the targets of `fuzz/` with the
//! pinned toolchain: coverage needs none of nightly's flags, sanitizers would, and our code has no
//! `unsafe` for them to look at. A C++ compiler builds libFuzzer itself.

use std::fs::{self, File};
use std::path::PathBuf;

use crate::step::{Failure, Steps, is_installed, run};
use crate::workspace::Workspace;

/// Of cargo-fuzz.
const VERSION: &str = "0.13.1";
/// A unit that takes longer is a crash, in seconds.
const TIMEOUT_SECS: u32 = 10;
/// A unit that takes more memory is a crash too, in MiB.
const MEMORY_MB: u32 = 1024;

/// The options of `cargo xtask fuzz`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// For all targets together.
    seconds: u64,
    targets: Vec<String>,
}

/// The result of one target.
struct Outcome {
    target: String,
    runs: String,
    per_second: String,
    corpus: usize,
    /// The input that broke it, if one did.
    crash: Option<PathBuf>,
    is_clean: bool,
}

/// Builds the targets and runs one after the other. Exit code 1 where one crashed.
pub fn fuzz(workspace: &Workspace, steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let known = targets(workspace)?;
    let wanted = parse(arguments, &known)?;
    let tool = install(workspace, steps)?;
    build(workspace, steps, &tool)?;
    let seconds = (wanted.seconds / wanted.targets.len() as u64).max(1);
    let mut outcomes = Vec::new();
    for target in &wanted.targets {
        outcomes.push(steps.step(&format!("fuzz: {target}, {seconds} s"), || {
            run_target(workspace, target, seconds)
        })?);
    }
    show(workspace, &outcomes);
    match outcomes.iter().filter(|outcome| !outcome.is_clean).count() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of the targets crashed"))),
    }
}

/// The names of all targets, in order.
fn targets(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let folder = workspace.path("fuzz/fuzz_targets");
    let unreadable = |error| Failure::new(format!("{}: {error}", workspace.shown(&folder)));
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

fn parse(arguments: &[String], known: &[String]) -> Result<Wanted, Failure> {
    let (seconds, targets) = arguments
        .split_first()
        .ok_or_else(|| Failure::usage("`fuzz` needs a number of seconds after it"))?;
    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0);
    let seconds =
        seconds.ok_or_else(|| Failure::usage("`fuzz` takes a number of seconds first"))?;
    if let Some(unknown) = targets.iter().find(|target| !known.contains(target)) {
        return Err(Failure::usage(format!(
            "no fuzz target `{unknown}`; there are {}",
            known.join(", ")
        )));
    }
    let targets = if targets.is_empty() { known } else { targets };
    Ok(Wanted {
        seconds,
        targets: targets.to_vec(),
    })
}

/// The program cargo-fuzz.
fn install(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let home = workspace.target().join("fuzz-tools");
    let program = home
        .join("bin")
        .join(format!("cargo-fuzz{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    if !["c++", "g++", "clang++"]
        .iter()
        .any(|compiler| is_installed(compiler, &[]))
    {
        return Err(Failure::new(
            "libFuzzer is C++, and there is no compiler for it: install g++ or clang++",
        ));
    }
    let mut install = workspace.cargo(["install", "cargo-fuzz", "--locked", "--version", VERSION]);
    install.arg("--root").arg(&home);
    install.arg("--target-dir").arg(home.join("build"));
    steps.program(&format!("set up: cargo-fuzz {VERSION}"), install)?;
    Ok(program)
}

fn build(workspace: &Workspace, steps: &mut Steps, tool: &PathBuf) -> Result<(), Failure> {
    let mut build = workspace.command(tool);
    build
        .current_dir(workspace.path("fuzz"))
        .args(["fuzz", "build", "--fuzz-dir", ".", "--sanitizer", "none"])
        .args(["--features", "libfuzzer", "--target-dir"])
        .arg(workspace.target().join("fuzz"))
        // The target of the routes has tables in memory, and needs no component: a folder that does not exist has none.
        .env("RAPIDBYTE_EMBED", workspace.target().join("fuzz/none"));
    steps.program("build: fuzz targets", build)
}

/// Where cargo-fuzz leaves the programs: it always names the machine that it builds for.
fn program(workspace: &Workspace, target: &str) -> Result<PathBuf, Failure> {
    let folder = workspace.target().join("fuzz");
    let built = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut programs = built.map(|entry| entry.path().join("release").join(target));
    let found = programs.find(|program| program.is_file());
    found.ok_or_else(|| Failure::new(format!("{target} was not built")))
}

fn run_target(workspace: &Workspace, target: &str, seconds: u64) -> Result<Outcome, Failure> {
    let work = workspace.target().join("fuzz-work");
    let (corpus, crashes) = (
        work.join("corpus").join(target),
        work.join("crashes").join(target),
    );
    let log = work.join(format!("{target}.log"));
    let cannot =
        |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(&work)));
    for folder in [&corpus, &crashes] {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    let before = files(&crashes);
    let program = program(workspace, target)?;
    let mut command = match is_installed("nice", &[]) {
        true => {
            let mut nice = workspace.command("nice");
            nice.args(["-n", "15"]).arg(program);
            nice
        }
        false => workspace.command(program),
    };
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={TIMEOUT_SECS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB}"))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg("-print_final_stats=1")
        .args([&corpus, &workspace.path("fuzz/seeds").join(target)])
        .stdout(File::create(work.join("out")).map_err(cannot)?)
        .stderr(File::create(&log).map_err(cannot)?);
    let has_ended_well = run(command).is_ok();
    let said = String::from_utf8_lossy(&fs::read(&log).map_err(cannot)?).into_owned();
    let number = |name: &str| {
        let value = said.lines().rev().find_map(|line| line.strip_prefix(name));
        value
            .map_or("?", |value| value.trim_start_matches(':').trim())
            .to_owned()
    };
    let found = files(&crashes)
        .into_iter()
        .find(|file| !before.contains(file));
    // Time is the wall's: a machine that stood still looks like an input that never ends.
    let crash = found.filter(|file| !passes(workspace, target, file));
    let is_clean = has_ended_well || (crash.is_none() && said.contains("libFuzzer: timeout"));
    Ok(Outcome {
        target: target.to_owned(),
        runs: number("stat::number_of_executed_units"),
        per_second: number("stat::average_exec_per_sec"),
        corpus: files(&corpus).len(),
        crash,
        is_clean,
    })
}

/// Whether an input alone does no harm.
fn passes(workspace: &Workspace, target: &str, file: &PathBuf) -> bool {
    let Ok(program) = program(workspace, target) else {
        return false;
    };
    let mut alone = workspace.command(program);
    alone
        .arg(format!("-timeout={TIMEOUT_SECS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB}"))
        .arg(file);
    run(alone).is_ok() && fs::remove_file(file).is_ok()
}

fn files(folder: &PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn show(workspace: &Workspace, outcomes: &[Outcome]) {
    println!(
        "{:10} {:>12} {:>8} {:>8}",
        "target", "runs", "exec/s", "corpus"
    );
    for outcome in outcomes {
        let Outcome {
            target,
            runs,
            per_second,
            corpus,
            ..
        } = outcome;
        let end = match (&outcome.crash, outcome.is_clean) {
            (_, true) => "CLEAN".to_owned(),
            (None, false) => format!("FAILED, see {}", shown_log(workspace, target)),
            (Some(file), false) => format!("CRASH {}", workspace.shown(file)),
        };
        println!("{target:10} {runs:>12} {per_second:>8} {corpus:>8} {end}");
        if let (Some(file), Ok(program)) = (&outcome.crash, program(workspace, target)) {
            let (program, file) = (workspace.shown(&program), workspace.shown(file));
            println!("           again: {program} {file}; its seed: fuzz/seeds/{target}/");
        }
    }
}

fn shown_log(workspace: &Workspace, target: &str) -> String {
    let log = workspace
        .target()
        .join("fuzz-work")
        .join(format!("{target}.log"));
    workspace.shown(&log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wanted, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments, &["copy".to_owned(), "ipc".to_owned()])
    }

    #[test]
    fn seconds_come_first_and_targets_are_known() {
        let all = parsed("60").unwrap();
        assert_eq!((all.seconds, all.targets.len()), (60, 2));
        assert_eq!(parsed("60 ipc").unwrap().targets, ["ipc"]);
        for line in ["", "0", "copy", "60 csv", "-1"] {
            assert_eq!(parsed(line).unwrap_err().code, 2, "{line}");
        }
    }
}
