//! mongo-java-server for the tests: from Maven Central, below `target/`, with pinned hashes.
//!
//! Nothing is installed outside. Where Java or Maven is missing, the tests that need the server say that they are
//! skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Steps, capture, is_installed};
use crate::workspace::Workspace;

/// As the test kit reads it.
pub const VARIABLE: &str = "RAPIDBYTE_MONGODB";

/// As in `pom.xml`, which a change of the version changes, too.
const VERSION: &str = "1.47.0";
/// Copies the files of the dependencies into one folder.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// The folder of the server's classes, if it can be had.
pub fn classes(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let home = workspace.mongodb().join(VERSION);
    if !home.join("complete").is_file() {
        let step = steps.step(&format!("set up: mongo-java-server {VERSION}"), || {
            fetch(workspace, &home)
        });
        if let Err(error) = step {
            steps.note(&format!("tests of MongoDB are SKIPPED: {}", error.message));
            return None;
        }
    }
    Some(home)
}

fn fetch(workspace: &Workspace, home: &Path) -> Result<(), Failure> {
    for (program, what) in [
        ("java", "Java 17"),
        ("javac", "its compiler"),
        ("mvn", "Maven"),
    ] {
        if !is_installed(program, &[]) {
            return Err(Failure::new(format!("no {program}: install {what}")));
        }
    }
    let cannot = |error: std::io::Error| {
        let home = workspace.shown(home);
        Failure::new(format!("{home}: {error}"))
    };
    if home.is_dir() {
        fs::remove_dir_all(home).map_err(cannot)?;
    }
    fs::create_dir_all(home).map_err(cannot)?;
    let kit = workspace.path("crates/testkit/mongodb");
    let repository = home.join("repository");
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(kit.join("pom.xml"))
        .arg(format!("-Dmaven.repo.local={}", repository.display()))
        .arg(COPY)
        .arg(format!("-DoutputDirectory={}", home.display()));
    capture(maven)?;
    fs::remove_dir_all(&repository).map_err(cannot)?;
    let pinned = fs::read_to_string(kit.join("SHA256SUMS")).map_err(cannot)?;
    let mut check = Command::new("sha256sum");
    check
        .current_dir(home)
        .args(["--check", "--strict", "--quiet"])
        .arg(kit.join("SHA256SUMS"));
    capture(check)?;
    let jars = fs::read_dir(home).map_err(cannot)?.count();
    if jars != pinned.lines().count() {
        return Err(Failure::new(format!(
            "Maven brought {jars} files, and SHA256SUMS has {}",
            pinned.lines().count()
        )));
    }
    let mut compile = Command::new("javac");
    compile
        .arg("-cp")
        .arg(home.join("*"))
        .arg("-d")
        .arg(home)
        .arg(kit.join("Server.java"));
    capture(compile)?;
    fs::write(home.join("complete"), "").map_err(cannot)
}
