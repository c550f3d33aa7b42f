//! Servers for the tests that are Java classes: from Maven Central, below `target/`, with pinned hashes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::step::{Failure, capture, is_installed};
use crate::workspace::Workspace;

/// Copies the files of the dependencies into one folder.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Fetches the dependencies of `pom.xml` in the folder `kit` of the test kit, compares them with its `SHA256SUMS`, and
/// compiles its `Server.java`. All of it is in `home` then, with a file `complete`.
pub fn fetch(workspace: &Workspace, kit: &str, home: &Path) -> Result<(), Failure> {
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
    let kit = workspace.path(kit);
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
