//! A program of its own, `crates/bench`, does the measurements that need a PostgreSQL server.

use std::process::Command;

use crate::build;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;

pub(super) const NO_BUILD: &str = "--no-build";

/// Builds, then has the bench program start a server and measure.
pub fn postgres(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let server = crate::postgres::programs_folder(workspace, steps)?;
    let mut program = bench_program(workspace);
    if !arguments.iter().any(|argument| argument == NO_BUILD) {
        build::build(workspace, steps)?;
        build_bench(workspace, steps)?;
        // Of what was built some time before, nobody knows the commit.
        program.env("BENCH_COMMIT", super::commit(workspace));
    }
    program
        .arg("--log")
        .arg(workspace.bench())
        .args(arguments.iter().filter(|argument| *argument != NO_BUILD))
        .env("RAPIDBYTE_BIN", workspace.binary())
        .env("BENCH_PEERS", workspace.bench_peers())
        .env(crate::postgres::VARIABLE, server);
    steps.program("bench: PostgreSQL to PostgreSQL", program)
}

/// Builds, then has the bench program start servers and measure them.
pub fn serve(
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
        .arg("serve")
        .arg(workspace.bench())
        .args(arguments.iter().filter(|argument| *argument != NO_BUILD))
        .env("RAPIDBYTE_BIN", workspace.binary())
        .env(crate::postgres::VARIABLE, server);
    steps.program("bench: server", program)
}

/// Builds, then has Criterion measure the parts of a batch's way; it takes the arguments.
pub fn parts(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let server = crate::postgres::programs_folder(workspace, steps)?;
    build::with_testkit(workspace, steps, build::Host::Program)?;
    // With the features that the program was built with, so that nothing is compiled twice.
    let mut program = workspace.cargo(["bench", "--workspace", "--bench", "parts", "--"]);
    program
        // Else it says of each part what it is doing, too.
        .arg("--quiet")
        .args(arguments)
        .env("BENCH_LOG", workspace.bench())
        .env("BENCH_COMMIT", super::commit(workspace))
        .env("RAPIDBYTE_CONNECTORS", workspace.bundle())
        .env("RAPIDBYTE_TESTKIT", workspace.testkit())
        .env(crate::postgres::VARIABLE, server);
    steps.program("bench: the parts of a batch's way", program)
}

/// Builds, connectors with the names of their functions too, then profiles one copy.
pub fn profile(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let (rows, method, workload) = match arguments {
        [rows, method] => (rows, method, "narrow"),
        [rows, method, workload] => (rows, method, workload.as_str()),
        _ => {
            return Err(Failure::usage(
                "bench-profile takes rows, a method and a workload: `bench-profile 100000 copy wide`",
            ));
        }
    };
    let server = crate::postgres::programs_folder(workspace, steps)?;
    build::build(workspace, steps)?;
    let connectors = build::with_names(workspace, steps, &["source-postgres", "dest-postgres"])?;
    build_bench(workspace, steps)?;
    let mut program = bench_program(workspace);
    program
        .args(["profile", rows, method, workload])
        .arg(workspace.bench())
        .env("RAPIDBYTE_BIN", workspace.binary())
        .env("RAPIDBYTE_CONNECTORS", connectors)
        .env(crate::postgres::VARIABLE, server);
    steps.program("bench: profile", program)
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
