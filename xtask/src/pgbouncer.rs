//! PgBouncer for the tests: the system's own, or else Debian's package unpacked below `target/`.
//!
//! Nothing is installed outside, and no rights are needed. Where neither works the tests of
//! poolers say that they are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Steps, capture, is_installed};
use crate::workspace::Workspace;

/// As the test kit reads it.
pub const VARIABLE: &str = "RAPIDBYTE_PGBOUNCER";

/// The packages that are unpacked: libraries of others are there on any Debian.
const PACKAGES: [&str; 3] = ["pgbouncer", "libevent-2.1-7", "libc-ares2"];

/// The program, if it can be had.
pub fn program(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.is_file());
    if installed.is_some() {
        return installed;
    }
    let home = workspace.postgres().join("pgbouncer");
    let script = home.join("run");
    if !script.is_file() {
        let step = steps.step("set up: PgBouncer", || unpack(workspace, &home, &script));
        if let Err(error) = step {
            steps.note(&format!("tests of poolers are SKIPPED: {}", error.message));
            return None;
        }
    }
    Some(script)
}

fn unpack(workspace: &Workspace, home: &Path, script: &Path) -> Result<(), Failure> {
    if !is_installed("apt-get", &[]) || !is_installed("dpkg-deb", &[]) {
        return Err(Failure::new(
            "no pgbouncer, and no apt-get that would bring it",
        ));
    }
    let cannot = |error: std::io::Error| {
        let home = workspace.shown(home);
        Failure::new(format!("{home}: {error}"))
    };
    fs::create_dir_all(home).map_err(cannot)?;
    let mut download = Command::new("apt-get");
    download.current_dir(home).arg("download").args(PACKAGES);
    capture(download)?;
    let root = home.join("root");
    for entry in fs::read_dir(home).map_err(cannot)? {
        let package = entry.map_err(cannot)?.path();
        if package.extension().is_some_and(|end| end == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(&package).arg(&root);
            capture(unpack)?;
        }
    }
    let program = root.join("usr/sbin/pgbouncer");
    let libraries = format!("{}-linux-gnu", std::env::consts::ARCH);
    let text = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{}' exec '{}' \"$@\"\n",
        root.join("usr/lib").join(libraries).display(),
        program.display()
    );
    let unfinished = home.join("run.new");
    fs::write(&unfinished, text).map_err(cannot)?;
    let mut executable = Command::new("chmod");
    executable.arg("755").arg(&unfinished);
    capture(executable)?;
    let mut version = Command::new(&unfinished);
    version.arg("--version");
    capture(version)?;
    fs::rename(&unfinished, script).map_err(cannot)
}
