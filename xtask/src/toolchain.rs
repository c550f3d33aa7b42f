//! Set-up: the pinned toolchain has the connectors' target.
//!
//! `cargo xtask` itself runs under the toolchain that `rust-toolchain.toml` pins. Where rustup may
//! install on its own, the first cargo command of a fresh clone has already brought it, target and
//! components included. Where it may not (`RUSTUP_AUTO_INSTALL=0`) and the toolchain is missing,
//! no code of ours runs: the user sees rustup's own
//! "error: toolchain '…' is not installed, help: run `rustup toolchain install …`", and
//! `rustup toolchain install` without a version, typed in this folder, installs what the file
//! pins. `.ci/run` does that before it calls us. This module completes a toolchain that was installed
//! by hand without the target or without rustfmt and clippy.

use std::path::PathBuf;
use std::process::Command;

use crate::step::{Failure, Steps, capture, is_installed, run};
use crate::workspace::{TARGET, Workspace};

/// Installs the connectors' target for the pinned toolchain when it is missing.
pub fn setup(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    steps.step("set up: toolchain", || {
        let version = capture(rustc(workspace, "--version"))?;
        eprintln!("    {version}");
        let pinned = pinned_channel(workspace)?;
        if version.split_whitespace().nth(1) != Some(pinned.as_str()) {
            eprintln!("    note: the repository is built and tested with Rust {pinned}");
        }
        let libraries = sysroot(workspace)?.join("lib/rustlib").join(TARGET);
        if libraries.join("lib").is_dir() {
            eprintln!("    target {TARGET}: installed");
            return Ok(());
        }
        eprintln!("    target {TARGET}: missing, installing it with rustup");
        rustup(workspace, &["target", "add", TARGET])
    })
}

/// The target of this machine, as compilers name it.
pub fn machine(workspace: &Workspace) -> Result<String, Failure> {
    let told = capture(rustc(workspace, "-vV"))?;
    let line = told.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned)
        .ok_or_else(|| Failure::new("rustc does not name its host"))
}

/// Installs rustfmt and clippy for the pinned toolchain when they are missing.
pub fn setup_lints(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let programs = sysroot(workspace)?.join("bin");
    let has = |program: &str| {
        programs
            .join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
            .is_file()
    };
    if has("rustfmt") && has("cargo-clippy") {
        return Ok(());
    }
    steps.step("set up: rustfmt and clippy", || {
        rustup(workspace, &["component", "add", "rustfmt", "clippy"])
    })
}

/// Runs rustup for the toolchain we are running under, which it takes from `RUSTUP_TOOLCHAIN`.
fn rustup(workspace: &Workspace, arguments: &[&str]) -> Result<(), Failure> {
    if !is_installed("rustup", &[]) {
        return Err(Failure::new(format!(
            "rustup is not installed, so `rustup {}` cannot be run; \
             install it from https://rustup.rs, or add the same to your toolchain by its own means",
            arguments.join(" ")
        )));
    }
    let mut program = workspace.command("rustup");
    program.args(arguments);
    run(program)
}

fn rustc(workspace: &Workspace, argument: &str) -> Command {
    let mut program = workspace.command("rustc");
    program.arg(argument);
    program
}

fn sysroot(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let mut program = rustc(workspace, "--print");
    program.arg("sysroot");
    capture(program).map(PathBuf::from)
}

/// The version that `rust-toolchain.toml` pins.
fn pinned_channel(workspace: &Workspace) -> Result<String, Failure> {
    let file = "rust-toolchain.toml";
    let text = std::fs::read_to_string(workspace.path(file))
        .map_err(|error| Failure::new(format!("{file} cannot be read: {error}")))?;
    text.lines()
        .find_map(|line| line.strip_prefix("channel"))
        .and_then(|value| value.split('"').nth(1))
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("{file} names no channel")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_pinned_version() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("rust-toolchain.toml");
        std::fs::write(file, "[toolchain]\nchannel = \"1.95.0\"\n").unwrap();
        assert_eq!(
            pinned_channel(&Workspace::at(root.path())).unwrap(),
            "1.95.0"
        );
    }
}
