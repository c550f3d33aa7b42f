//! The host and the connectors in release, ready to run any pipeline from any directory.

use crate::step::{Failure, Steps};
use crate::workspace::{Component, TARGET, Workspace};
use crate::{bundle, c_compiler, python, toolchain};

/// Leaves `target/release/rapidbyte` with its connectors beside it, compiled ahead of time.
pub fn build(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    toolchain::setup(workspace, steps)?;
    components(workspace, steps, "connectors", &workspace.connectors()?)?;
    let bundled = workspace.bundled()?;
    steps.step("bundle: connectors, for the host", || {
        bundle::refresh(workspace, &bundled, &workspace.bundle())
    })?;
    // Naming the package instead of the workspace would resolve other features for some
    // dependencies than `cargo test --workspace` does, and the two would compile them twice.
    steps.program(
        "build: host, release (the first time takes minutes)",
        workspace.cargo(["build", "--release", "--workspace", "--bin", "rapidbyte"]),
    )?;
    let mut compile = workspace.command(workspace.binary());
    compile
        .args(["connector", "compile"])
        // Standard output belongs to the pipeline that `cargo xtask run` starts next.
        .stdout(std::io::stderr());
    steps.program("compile ahead of time: bundled connectors", compile)
}

/// Leaves the bundled connectors in a folder, for a program that carries them inside.
pub fn components_into(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let [folder] = arguments else {
        return Err(Failure::usage("components takes one folder"));
    };
    toolchain::setup(workspace, steps)?;
    let bundled = workspace.bundled()?;
    components(workspace, steps, "connectors", &bundled)?;
    let folder =
        std::path::absolute(folder).map_err(|error| Failure::new(format!("{folder}: {error}")))?;
    steps.step("bundle: connectors", || {
        bundle::refresh(workspace, &bundled, &folder)
    })
}

/// Leaves the components that only tests use in `target/testkit`.
pub fn testkit(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let mut kit = workspace.testkit_components()?;
    components(workspace, steps, "test kit", &kit)?;
    kit.extend(python::build(workspace, steps)?);
    steps.step("bundle: test kit", || {
        bundle::refresh(workspace, &kit, &workspace.testkit())
    })
}

/// Builds packages for the connectors' target.
fn components(
    workspace: &Workspace,
    steps: &mut Steps,
    what: &str,
    components: &[Component],
) -> Result<(), Failure> {
    if components.is_empty() {
        steps.note(&format!("build: no {what} yet"));
        return Ok(());
    }
    let compiler = c_compiler::setup(workspace, steps)?;
    let mut program = workspace.cargo(["build", "--profile", "connector", "--target", TARGET]);
    compiler.give_to(&mut program);
    for component in components {
        program.args(["-p", &component.name]);
    }
    steps.program(&format!("build: {what}, {TARGET}"), program)
}
