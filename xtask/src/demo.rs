//! Running pipelines with what was just built.

use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::build;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;

const PIPELINE: &str = "pipelines/quickstart.yaml";
const OUTPUT: &str = "pipelines/out/weather.jsonl";
const PARQUET_PIPELINE: &str = "pipelines/quickstart-parquet.yaml";
const REPORT: &str = "pipelines/out/report.html";
const SHOWN_LINES: usize = 3;

/// Builds, writes the quick start's rows as JSON Lines and as Parquet, and shows the first rows.
pub fn demo(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    build::program(workspace, steps)?;
    let run = |pipeline: &str, more: &[&str]| {
        let mut program = workspace.command(workspace.binary());
        program.args(["run", pipeline]).args(more);
        program
    };
    steps.program(&format!("run: {PIPELINE}"), run(PIPELINE, &[]))?;
    steps.step(&format!("the first rows of {OUTPUT}"), || {
        show_first_lines(workspace)
    })?;
    steps.program(
        &format!("run: {PARQUET_PIPELINE}"),
        run(PARQUET_PIPELINE, &["--report", REPORT]),
    )?;
    let binary = workspace.shown(&workspace.binary());
    eprintln!("\nOpen {REPORT} in a browser: where the time of this run went.");
    eprintln!("\nNext:");
    for (command, what) in [
        (
            format!("{binary} plan {PIPELINE}"),
            "show columns, types and grants of a run",
        ),
        (
            format!("{binary} discover {PIPELINE}"),
            "list the source's streams",
        ),
        (
            "cargo xtask build".to_owned(),
            "build with all connectors and full optimisation",
        ),
        ("cargo xtask test".to_owned(), "run every test"),
    ] {
        eprintln!("  {command:<60}  # {what}");
    }
    eprintln!();
    Ok(())
}

/// Builds, then becomes `rapidbyte run` in the caller's own folder: its signals and its exit code
/// are the pipeline's.
pub fn run(workspace: &Workspace, steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    if arguments.is_empty() {
        return Err(Failure::usage(
            "`run` needs a pipeline, such as `cargo xtask run a.yaml`",
        ));
    }
    build::build(workspace, steps)?;
    let mut program = Command::new(workspace.binary());
    program.arg("run").args(arguments);
    replace_ourselves(program)
}

#[cfg(unix)]
fn replace_ourselves(mut program: Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    let error = program.exec();
    Err(Failure::new(format!(
        "`rapidbyte run` did not start: {error}"
    )))
}

#[cfg(not(unix))]
fn replace_ourselves(program: Command) -> Result<(), Failure> {
    crate::step::run(program)
}

fn show_first_lines(workspace: &Workspace) -> Result<(), Failure> {
    let missing = |error: std::io::Error| {
        Failure::new(format!(
            "the run ended well, yet {OUTPUT} cannot be read: {error}"
        ))
    };
    let file = std::fs::File::open(workspace.path(OUTPUT)).map_err(missing)?;
    for line in BufReader::new(file).lines().take(SHOWN_LINES) {
        println!("{}", line.map_err(missing)?);
    }
    Ok(())
}
