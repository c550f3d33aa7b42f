//! The host and the connectors in release, ready to run any pipeline from any directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::step::{Aside, Beside, Failure, Steps};
use crate::workspace::{Component, TARGET, Workspace};
use crate::{bundle, c_compiler, python, toolchain};

/// Leaves the program with its connectors beside it, compiled ahead of time.
pub fn build(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let all = complete(workspace)?;
    with_components(workspace, steps, "connectors", &all, Host::Program)?;
    compile(workspace, steps, "bundled connectors", Vec::new())
}

/// Leaves the program and the extension module of the Python package.
pub fn with_module(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let all = complete(workspace)?;
    with_components(workspace, steps, "connectors", &all, Host::Module)
}

/// Leaves the program with the connectors of the quick start, which a run compiles when it uses them. It cannot build
/// connectors in Python and JavaScript.
pub fn program(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let mut connectors = workspace.bundled()?;
    connectors.retain(|connector| QUICK_START.contains(&connector.name.as_str()));
    with_components(workspace, steps, "connectors", &connectors, Host::Program)
}

/// The connectors of the pipelines that the demo runs.
const QUICK_START: [&str; 2] = ["source-file", "dest-file"];

/// The components of every program: the connectors, and the adapters of Python and JavaScript connectors.
fn complete(workspace: &Workspace) -> Result<Vec<Component>, Failure> {
    let mut all = workspace.connectors()?;
    all.extend(workspace.parts().0);
    Ok(all)
}

/// The programs that are built for this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The program.
    Program,
    /// The program and the extension module of the Python package.
    Module,
    /// The program, the extension module and all test programs. In one step they keep both ends of the build busy.
    Tests,
}

impl Host {
    fn shown(self, is_checked: bool) -> &'static str {
        match self {
            Self::Program => "host",
            Self::Module => "host and Python module",
            Self::Tests if is_checked => "host, tests and benchmarks, each checked",
            Self::Tests => "host and tests",
        }
    }
}

/// The cargo that builds it.
///
/// Naming the package instead of the workspace would resolve other features for some dependencies than `cargo test
/// --workspace` does, and the two would compile them twice.
pub fn host(workspace: &Workspace, host: Host) -> Command {
    workspace.cargo_for_host(match host {
        Host::Program => &["build", "--bin", "rapidbyte"],
        Host::Module => &["build", "--bin", "rapidbyte", "--bin", MODULE],
        Host::Tests if workspace.is_checked() => &["test", "--no-run", "--tests", "--bench", "*"],
        Host::Tests => &["test", "--no-run"],
    })
}

/// The program that stands for the extension module.
const MODULE: &str = "rapidbyte-python-module";

/// Builds all components in one step, so that cargo compiles what they share once, and what is asked for of the host.
fn with_components(
    workspace: &Workspace,
    steps: &mut Steps,
    what: &str,
    all: &[Component],
    asked: Host,
) -> Result<(), Failure> {
    toolchain::setup(workspace, steps)?;
    let name = asked.shown(workspace.is_checked());
    let profile = workspace.host_profile();
    let title = format!("build: {name}, profile {profile} (the first time takes minutes)");
    let unfinished = Unfinished::begin(workspace)?;
    let ahead = Aside::start(&host(workspace, asked))?;
    components(workspace, steps, what, all)?;
    let mut bundled = workspace.bundled()?;
    bundled.retain(|connector| all.contains(connector));
    steps.step("bundle: connectors, for the host", || {
        let folder = workspace.bundle();
        let parts = workspace.parts().0;
        match parts.iter().all(|part| all.contains(part)) {
            true => bundle_into(workspace, &bundled, &folder),
            false => bundle::refresh(workspace, &bundled, &folder),
        }
    })?;
    unfinished.end(&workspace.bundle())?;
    steps.step(&title, || ahead.end())?;
    // It may have looked at the connectors before they changed.
    steps.program("build: host, with these connectors", host(workspace, asked))
}

/// The bundled connectors are being built. The build script that puts them into the program waits until this is dropped,
/// so that the rest of the host is compiled meanwhile.
struct Unfinished {
    _lock: File,
    begun: SystemTime,
}

impl Unfinished {
    fn begin(workspace: &Workspace) -> Result<Self, Failure> {
        let path = workspace.bundle().with_extension("lock");
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(&path)));
        std::fs::create_dir_all(workspace.bundle()).map_err(failed)?;
        let lock = File::create(&path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Self {
            _lock: lock,
            begun: SystemTime::now(),
        })
    }

    /// The connectors are in `folder`. They get the time at which their build began: cargo runs the build script again if
    /// they are newer than its start.
    fn end(self, folder: &Path) -> Result<(), Failure> {
        date_back(folder, self.begun)
            .map_err(|error| Failure::new(format!("times of connectors: {error}")))
    }
}

/// Gives everything in a folder this time, unless it is older.
fn date_back(path: &Path, time: SystemTime) -> std::io::Result<()> {
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        for entry in std::fs::read_dir(path)? {
            date_back(&entry?.path(), time)?;
        }
    }
    if about.modified()? > time {
        File::open(path)?.set_modified(time)?;
    }
    Ok(())
}

/// Puts the compiled code of connectors into the cache: of all bundled ones when none is named.
fn compile(
    workspace: &Workspace,
    steps: &mut Steps,
    what: &str,
    names: Vec<PathBuf>,
) -> Result<(), Failure> {
    let mut compile = workspace.command(workspace.binary());
    compile
        .args(["connector", "compile"])
        .args(names)
        // Standard output belongs to the pipeline that `cargo xtask run` starts next.
        .stdout(std::io::stderr());
    steps.program(&format!("compile ahead of time: {what}"), compile)
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
    let mut all = bundled.clone();
    all.extend(workspace.parts().0);
    components(workspace, steps, "connectors", &all)?;
    let folder =
        std::path::absolute(folder).map_err(|error| Failure::new(format!("{folder}: {error}")))?;
    steps.step("bundle: connectors", || {
        bundle_into(workspace, &bundled, &folder)
    })
}

/// The connectors in a folder, and below it what is put around connectors of scripting languages.
fn bundle_into(workspace: &Workspace, bundled: &[Component], folder: &Path) -> Result<(), Failure> {
    let (parts, name) = workspace.parts();
    bundle::refresh(workspace, &parts, &folder.join(name))?;
    bundle::refresh(workspace, bundled, folder)
}

/// Connectors as they are built for users, but with the names of their functions, for profilers;
/// gives their folder.
pub fn with_names(
    workspace: &Workspace,
    steps: &mut Steps,
    names: &[&str],
) -> Result<PathBuf, Failure> {
    // A target folder of its own, as nothing of the other one fits.
    let target = workspace.bench().join("with-names");
    let compiler = c_compiler::setup(workspace, steps)?;
    let mut program = workspace.cargo_for_connectors("build");
    compiler.give_to(&mut program);
    program
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_PROFILE_CONNECTOR_STRIP", "none");
    for name in names {
        program.args(["-p", name]);
    }
    steps.program("build: connectors with names", program)?;
    let component = |name: &&str| Component {
        name: (*name).to_owned(),
        artifact: target
            .join(TARGET)
            .join("connector")
            .join(format!("{}.wasm", name.replace('-', "_"))),
    };
    let components: Vec<Component> = names.iter().map(component).collect();
    let folder = target.join("connectors");
    steps.step("bundle: connectors with names", || {
        bundle::refresh(workspace, &components, &folder)
    })?;
    Ok(folder)
}

/// [`build`], and the components that only tests use in `target/testkit`, compiled ahead of time.
pub fn with_testkit(workspace: &Workspace, steps: &mut Steps, host: Host) -> Result<(), Failure> {
    before_testkit(workspace, steps, host)?;
    testkit(workspace, steps)
}

/// The first part of [`with_testkit`]: all that cargo builds. It needs no tool that tests need.
pub fn before_testkit(workspace: &Workspace, steps: &mut Steps, host: Host) -> Result<(), Failure> {
    let mut all = complete(workspace)?;
    all.extend(workspace.testkit_components()?);
    with_components(workspace, steps, "connectors and test kit", &all, host)?;
    compile(workspace, steps, "bundled connectors", Vec::new())
}

/// The second part of [`with_testkit`].
pub fn testkit(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let mut kit = workspace.testkit_components()?;
    // Authors begin with the template, so the tests treat it as an author's connector.
    let template = workspace.connectors()?.into_iter();
    kit.extend(template.filter(|connector| connector.name == "template"));
    kit.extend(python::build(workspace, steps)?);
    let folder = workspace.testkit();
    steps.step("bundle: test kit", || {
        bundle::refresh(workspace, &kit, &folder)
    })?;
    // Compiles ahead: otherwise the first test would get the message that it has to wait.
    let files = kit.iter().map(|component| folder.join(component.file()));
    compile(workspace, steps, "test kit", files.collect())
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
    // The crates arrive while the C compiler does.
    let crates = Beside::start(workspace.fetch());
    let compiler = c_compiler::setup(workspace, steps)?;
    drop(crates);
    let mut program = workspace.cargo_for_connectors("build");
    compiler.give_to(&mut program);
    for component in components {
        program.args(["-p", &component.name]);
    }
    steps.program(&format!("build: {what}, {TARGET}"), program)
}
