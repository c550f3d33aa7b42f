//! Formatting, clippy, and the licences and sources of what we depend on.

use std::process::Stdio;

use crate::step::{Aside, Failure, Steps, is_installed};
use crate::workspace::{TARGET, Workspace};
use crate::{c_compiler, toolchain};

/// Formats the code.
pub fn fmt(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    toolchain::setup_lints(workspace, steps)?;
    steps.program("format", workspace.cargo(["fmt", "--all"]))
}

/// Every check of the code that does not run it.
pub fn lint(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    toolchain::setup(workspace, steps)?;
    before_building(workspace, steps)?;
    let profile = workspace.host_profile();
    let mut host = workspace.cargo(["clippy", "--profile", profile, "--workspace"]);
    host.args(["--all-targets", "--", "-D", "warnings"]);
    // Neither keeps two cores busy by itself: each waits for single crates.
    let components = components(workspace, steps)?;
    let host = steps.program("lint: clippy, host and native tests", host);
    if let Some(components) = components {
        steps.step(&format!("lint: clippy, connectors for {TARGET}"), || {
            components.end()
        })?;
    }
    host?;
    let mut docs = workspace.cargo(["doc", "--profile", profile, "--workspace", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    steps.program("lint: documentation", docs)?;
    dependencies(workspace, steps)
}

/// The checks that need no build.
pub fn before_building(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    toolchain::setup_lints(workspace, steps)?;
    steps.program(
        "lint: formatting",
        workspace.cargo(["fmt", "--all", "--check"]),
    )
}

/// Starts clippy for the target that connectors are built for: export macros expand only there.
fn components(workspace: &Workspace, steps: &mut Steps) -> Result<Option<Aside>, Failure> {
    let mut all = workspace.connectors()?;
    all.extend(workspace.testkit_components()?);
    all.extend(workspace.parts().0);
    if all.is_empty() {
        steps.note("lint: no connectors yet");
        return Ok(None);
    }
    let compiler = c_compiler::setup(workspace, steps)?;
    let mut clippy = workspace.cargo_for_connectors("clippy");
    compiler.give_to(&mut clippy);
    for component in &all {
        clippy.args(["-p", &component.name]);
    }
    clippy.args(["--", "-D", "warnings"]);
    Aside::start(&clippy).map(Some)
}

/// Licences, banned crates and sources, by `deny.toml`.
pub fn dependencies(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    if !is_installed("cargo", &["deny"]) {
        steps.note("lint: dependencies SKIPPED, cargo-deny is not installed");
        steps.note("      to install it: cargo install cargo-deny --locked");
        return Ok(());
    }
    let mut deny = workspace.cargo(["deny", "check", "--hide-inclusion-graph"]);
    deny.args(["licenses", "bans", "sources"]);
    steps.program("lint: licences, bans and sources of dependencies", deny)?;
    steps.step("lint: security advisories", || advisories(workspace))
}

/// The advisory database comes over the network: without it, there is no verdict.
fn advisories(workspace: &Workspace) -> Result<(), Failure> {
    let output = workspace
        .cargo(["deny", "check", "advisories"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cargo-deny did not start: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprint!("{said}");
        return Ok(());
    }
    if said.contains("failed to fetch advisory database") {
        eprintln!("    SKIPPED: the advisory database cannot be reached");
        return Ok(());
    }
    eprint!("{said}");
    Err(Failure::new(
        "a dependency has an advisory: update it, or accept it in deny.toml with the reason",
    ))
}
