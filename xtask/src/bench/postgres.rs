//! What needs a PostgreSQL server is measured by a program of its own, `crates/bench`.

use std::process::Command;

use crate::build;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;

const NO_BUILD: &str = "--no-build";

/// Builds, then has the bench program start a server and measure.
pub fn postgres(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let server = crate::postgres::programs_folder(workspace, steps)?;
    if !arguments.iter().any(|argument| argument == NO_BUILD) {
        build::build(workspace, steps)?;
        build_bench(workspace, steps)?;
    }
    let mut program = bench_program(workspace);
    program
        .arg("--log")
        .arg(workspace.bench())
        .args(arguments.iter().filter(|argument| *argument != NO_BUILD))
        .env("RAPIDBYTE_BIN", workspace.binary())
        .env("BENCH_COMMIT", super::commit(workspace))
        .env(crate::postgres::VARIABLE, server);
    steps.program("bench: PostgreSQL to PostgreSQL", program)
}

/// The bench program and in it the connectors as native code.
pub(super) fn build_bench(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    // With the features that the program was built with, so that nothing is compiled twice.
    let cargo = workspace.cargo([
        "build",
        "--release",
        "--workspace",
        "--bin",
        "rapidbyte-bench",
    ]);
    steps.program("build: bench, release", cargo)
}

pub(super) fn bench_program(workspace: &Workspace) -> Command {
    let name = format!("rapidbyte-bench{}", std::env::consts::EXE_SUFFIX);
    workspace.command(workspace.binary().with_file_name(name))
}
