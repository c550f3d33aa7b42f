//! Tools from the Python package index, and components written in Python, which prove that the
//! contract is not Rust's alone.
//!
//! A tool comes into a virtual environment of its own below `target/`, with its version pinned
//! where it is used; nothing is installed outside. Each folder of
//! `crates/testkit/components-python` is a guest whose module `app` componentize-py turns into a
//! component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Steps, capture, is_installed, run};
use crate::workspace::{Component, Workspace};

/// The version that projects of `rapidbyte connector new` pin.
const COMPONENTIZE_PY: &str = include_str!("../../templates/python/common/requirements.txt");

/// Builds every guest whose inputs have changed since it was built.
pub fn build(workspace: &Workspace, steps: &mut Steps) -> Result<Vec<Component>, Failure> {
    let guests = workspace.python_guests()?;
    let mut stale = Vec::new();
    for guest in &guests {
        let inputs = inputs(workspace, &guest.name)?;
        let unchanged = fs::read(record(guest)).is_ok_and(|built| built == inputs);
        if !unchanged || !guest.artifact.is_file() {
            stale.push((guest, inputs));
        }
    }
    if stale.is_empty() {
        return Ok(guests);
    }
    let venv = tools(workspace, steps)?;
    for (guest, inputs) in stale {
        steps.step(&format!("build: {}, Python", guest.name), || {
            componentize(workspace, &venv, guest)?;
            write(&record(guest), &inputs)
        })?;
    }
    Ok(guests)
}

/// The virtual environment that makes components of Python, as tests find it by [`TOOLS`].
pub fn tools(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let why = "tests build connectors that are written in Python";
    environment(workspace, steps, &[COMPONENTIZE_PY.trim()], why)
}

/// Where tests find componentize-py.
pub const TOOLS: &str = "RAPIDBYTE_COMPONENTIZE_PY";

/// Where tests find a Python that can check a document against a JSON Schema, and a description of an API.
pub const VARIABLE: &str = "RAPIDBYTE_PYTHON";

/// A Python with validators of JSON Schema and OpenAPI, and a reader of YAML.
pub fn validator(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let packages = [
        "jsonschema==4.26.0",
        "pyyaml==6.0.3",
        "openapi-spec-validator==0.9.0",
    ];
    let why = "tests check the pipelines' schema and the server's API with it";
    let venv = environment(workspace, steps, &packages, why)?;
    Ok(program(&venv, "python3"))
}

/// The virtual environment with these packages, named after the first; made unless it is complete.
/// `why` says for whom Python is missing.
pub fn environment(
    workspace: &Workspace,
    steps: &mut Steps,
    packages: &[&str],
    why: &str,
) -> Result<PathBuf, Failure> {
    let name = packages.first().copied().unwrap_or("empty");
    let venv = workspace.python().join(name.replace("==", "-"));
    let complete = venv.join("complete");
    let wanted = packages.join("\n");
    if fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
        return Ok(venv);
    }
    if !is_installed("python3", &[]) {
        return Err(Failure::new(format!(
            "python3 is not installed: {why}; install Python 3.10 or newer with its venv module"
        )));
    }
    let what = format!("set up: {}", packages.join(", ").replace("==", " "));
    steps.step(&what, || {
        let mut create = workspace.command("python3");
        create.args(["-m", "venv", "--clear"]).arg(&venv);
        run(create)?;
        let mut install = workspace.command(program(&venv, "python3"));
        install
            .args(["-m", "pip", "install", "--quiet"])
            .arg("--disable-pip-version-check")
            .args(packages);
        run(install)?;
        write(&complete, wanted.as_bytes())
    })?;
    Ok(venv)
}

/// The version of an interpreter, by its first two numbers.
pub fn version(interpreter: &Path) -> Result<(u32, u32), Failure> {
    let mut told = Command::new(interpreter);
    told.args(["-c", "import sys; print(*sys.version_info[:2])"]);
    let told = capture(told)?;
    let mut numbers = told.split(' ').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(Failure::new(format!("`{told}` is not a version of Python"))),
    }
}

fn componentize(workspace: &Workspace, venv: &Path, guest: &Component) -> Result<(), Failure> {
    let unfinished = guest.artifact.with_extension("tmp");
    let mut build = workspace.command(program(venv, "componentize-py"));
    build
        .arg("--wit-path")
        .arg(workspace.path("wit"))
        .args(["--world", world(&guest.name)?, "componentize", "app"])
        .arg("--python-path")
        .arg(folder(workspace, &guest.name))
        .arg("--output")
        .arg(&unfinished)
        // A virtual environment that the caller has activated must not leak into the component.
        .env("VIRTUAL_ENV", venv);
    run(build)?;
    fs::rename(&unfinished, &guest.artifact).map_err(|error| {
        let shown = workspace.shown(&guest.artifact);
        Failure::new(format!("{shown} cannot be written: {error}"))
    })
}

/// The world of the contract that a guest implements, by its name.
fn world(name: &str) -> Result<&'static str, Failure> {
    if name.starts_with("source-") {
        Ok("source-connector")
    } else if name.starts_with("dest-") {
        Ok("destination-connector")
    } else {
        Err(Failure::new(format!(
            "the Python guest `{name}` is named neither source-… nor dest-…"
        )))
    }
}

/// Everything a guest is built from, in one piece: names, contents and the tool's version.
fn inputs(workspace: &Workspace, name: &str) -> Result<Vec<u8>, Failure> {
    let mut files = Vec::new();
    for (folder, extension) in [
        (folder(workspace, name), "py"),
        (workspace.path("wit"), "wit"),
    ] {
        let unreadable = |error: std::io::Error| {
            let shown = workspace.shown(&folder);
            Failure::new(format!("{shown} cannot be read: {error}"))
        };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|found| found == extension) {
                let bytes = fs::read(&path).map_err(unreadable)?;
                files.push((workspace.shown(&path), bytes));
            }
        }
    }
    files.sort();
    let mut all = COMPONENTIZE_PY.as_bytes().to_vec();
    for (name, bytes) in files {
        all.extend(format!("{name} {}\n", bytes.len()).bytes());
        all.extend(bytes);
    }
    Ok(all)
}

/// Beside a component: the inputs it was built from.
fn record(guest: &Component) -> PathBuf {
    guest.artifact.with_extension("inputs")
}

fn folder(workspace: &Workspace, name: &str) -> PathBuf {
    workspace
        .path("crates/testkit/components-python")
        .join(name)
}

/// A program of a virtual environment.
pub fn program(venv: &Path, name: &str) -> PathBuf {
    let programs = if cfg!(windows) { "Scripts" } else { "bin" };
    venv.join(programs).join(name)
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(file, bytes).map_err(|error| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        Failure::new(format!("{name} below target/ cannot be written: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_built_again_when_its_code_or_the_contract_changes() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        let guest = folder(&workspace, "source-a");
        fs::create_dir_all(&guest).unwrap();
        fs::create_dir_all(workspace.path("wit")).unwrap();
        let mut seen = Vec::new();
        for (file, text) in [
            (guest.join("app.py"), "1"),
            (guest.join("app.py"), "2"),
            (guest.join("more.py"), "2"),
            (workspace.path("wit").join("a.wit"), "package a:b;"),
        ] {
            fs::write(file, text).unwrap();
            let now = inputs(&workspace, "source-a").unwrap();
            assert!(!seen.contains(&now));
            seen.push(now);
        }
        fs::write(guest.join("cache.pyc"), "other").unwrap();
        assert_eq!(inputs(&workspace, "source-a").unwrap(), seen[3]);
    }

    #[test]
    fn the_name_of_a_guest_gives_its_world() {
        assert_eq!(world("source-python").unwrap(), "source-connector");
        assert_eq!(world("dest-python").unwrap(), "destination-connector");
        assert!(world("python").is_err());
    }
}
