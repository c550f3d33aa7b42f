//! The Python package: the engine, the bundled connectors and the command in one wheel, which maturin packs; and its
//! tests, which are in Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{self, Host};
use crate::step::{Failure, Steps, capture, run};
use crate::workspace::Workspace;
use crate::{integrations, python, stand_in, toolchain};

const MATURIN: &str = "maturin==1.16.0";

/// Where the tests find the command that the wheel installs.
const COMMAND: &str = "RAPIDBYTE_COMMAND";

/// The environment of the release build's wheel.
const RELEASED: &str = "wheel-release";

/// The oldest Python that the package supports, as in `python/pyproject.toml`.
const OLDEST: (u32, u32) = (3, 11);

/// Builds everything in release, and leaves the wheel in `target/wheels`.
pub fn wheel(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let packer = packer(workspace, steps)?;
    let wheel = released(workspace, steps, &packer)?;
    let size = fs::metadata(&wheel).map_or(0, |metadata| metadata.len());
    let mib = size as f64 / f64::from(1 << 20);
    eprintln!("    {}: {mib:.1} MiB", workspace.shown(&wheel));
    Ok(())
}

/// The wheel of a release build.
fn released(workspace: &Workspace, steps: &mut Steps, packer: &Path) -> Result<PathBuf, Failure> {
    build::with_module(workspace, steps)?;
    steps.step("wheel", || {
        let build = build::host(workspace, Host::Module);
        pack(workspace, packer, &build, &workspace.wheels(), &[])
    })
}

/// Builds the wheel in release, and gives the folder of packages that it is installed in.
pub fn released_packages(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let packer = packer(workspace, steps)?;
    let wheel = released(workspace, steps, &packer)?;
    let installed = steps.step("wheel: installed", || {
        Installed::of(workspace, &packer, &wheel, RELEASED)
    })?;
    Ok(installed.packages)
}

/// The same folder, as the last build has left it.
pub fn released_before(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let venv = workspace.python().join(RELEASED);
    match venv.is_dir() {
        true => packages(workspace, &python::program(&venv, "python3")),
        false => Err(Failure::new(
            "no wheel is installed: build without `--no-build`",
        )),
    }
}

/// The folder of an interpreter's packages.
fn packages(workspace: &Workspace, interpreter: &Path) -> Result<PathBuf, Failure> {
    let mut told = workspace.command(interpreter);
    told.args([
        "-c",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
    ]);
    Ok(capture(told)?.into())
}

/// A wheel in a virtual environment where nothing else is.
struct Installed {
    interpreter: PathBuf,
    command: PathBuf,
    /// The folder of packages, for `PYTHONPATH` of another interpreter.
    packages: PathBuf,
}

impl Installed {
    /// Installs the wheel without an index. `name` names the environment.
    fn of(workspace: &Workspace, packer: &Path, wheel: &Path, name: &str) -> Result<Self, Failure> {
        let venv = workspace.python().join(name);
        let interpreter = python::program(&venv, "python3");
        let mut create = workspace.command(python::program(packer, "python3"));
        create.args(["-m", "venv", "--clear"]).arg(&venv);
        run(create)?;
        let mut install = workspace.command(&interpreter);
        install
            .args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "--no-deps", "--no-index"])
            .arg(wheel);
        run(install)?;
        Ok(Self {
            packages: packages(workspace, &interpreter)?,
            command: python::program(&venv, "rapidbyte"),
            interpreter,
        })
    }
}

/// The virtual environment that has maturin.
pub fn packer(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let why = "maturin packs the Python package";
    let venv = python::environment(workspace, steps, &[MATURIN], why)?;
    let (major, minor) = OLDEST;
    match python::version(&python::program(&venv, "python3"))? >= OLDEST {
        true => Ok(venv),
        false => Err(Failure::new(format!(
            "the Python package needs Python {major}.{minor} or newer"
        ))),
    }
}

/// Packs the library that `build` leaves. The folder has this wheel alone afterwards.
fn pack(
    workspace: &Workspace,
    packer: &Path,
    build: &Command,
    folder: &Path,
    options: &[&str],
) -> Result<PathBuf, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(folder)));
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    let mut maturin = workspace.command(python::program(packer, "maturin"));
    maturin
        .args(["build", "--manifest-path", "python/Cargo.toml"])
        .args(["--profile", workspace.host_profile()])
        // Otherwise cargo downloads the crates of every other system, to list them.
        .args(["--target", &toolchain::machine(workspace)?])
        // A repair would change the library that cargo has built.
        .args(["--auditwheel", "check"])
        .args(options)
        .arg("--interpreter")
        .arg(python::program(packer, "python3"))
        .arg("--out")
        .arg(folder);
    stand_in::give_to(&mut maturin, build);
    run(maturin)?;
    let files = fs::read_dir(folder).map_err(failed)?;
    let mut files = files.flatten().map(|file| file.path());
    let wheel = files.find(|file| file.extension().is_some_and(|found| found == "whl"));
    wheel.ok_or_else(|| Failure::new("maturin left no wheel"))
}

/// Installs a wheel of the last build where nothing else is, and runs the tests of `python/tests` with it.
///
/// `interpreter` has the packages that some of the tests read and write with; if it is empty, those tests skip themselves.
/// The integrations have interpreters of their own.
pub fn test(
    workspace: &Workspace,
    steps: &mut Steps,
    packer: &Path,
    interpreter: &Path,
    with_integrations: bool,
    prepare: impl Fn(&mut Command),
) -> Result<(), Failure> {
    let build = build::host(workspace, Host::Tests);
    let folder = workspace.wheels_of_tests();
    // It is read once.
    let options = ["--compression-method", "stored"];
    let installed = steps.step("wheel: packed and installed", || {
        let wheel = pack(workspace, packer, &build, &folder, &options)?;
        Installed::of(workspace, packer, &wheel, "wheel")
    })?;
    let interpreter = match interpreter.as_os_str().is_empty() {
        true => &installed.interpreter,
        false => interpreter,
    };
    // The integrations use what the tests share.
    let paths = std::env::join_paths([installed.packages, workspace.path("python/tests")])
        .map_err(|error| Failure::new(format!("the folder of packages: {error}")))?;
    let unittest = |interpreter: &Path, arguments: &[&str]| {
        let mut tests = workspace.command(interpreter);
        tests
            .args(["-m", "unittest"])
            .args(arguments)
            .arg("-v")
            .env("PYTHONPATH", &paths)
            .env(COMMAND, &installed.command);
        prepare(&mut tests);
        // The wheel has its own.
        tests.env_remove("RAPIDBYTE_CONNECTORS");
        tests
    };
    let all = unittest(interpreter, &["discover", "-s", "python/tests"]);
    let own = steps.program("test: Python package", all);
    match with_integrations {
        true => own.and(integrations::test(workspace, steps, unittest)),
        false => own,
    }
}
