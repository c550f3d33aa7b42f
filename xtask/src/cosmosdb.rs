//! A server of Azure Cosmos DB's protocol for the tests: from npm, below `target/`, with the hashes of its lock file.
//!
//! Only `cargo xtask test --with cosmos` fetches it. Where node or npm is missing, the tests that need the server say that
//! they are skipped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::javascript;
use crate::step::{Failure, Steps, run};
use crate::workspace::Workspace;

/// As the test kit reads it.
pub const VARIABLE: &str = "RAPIDBYTE_COSMOSDB";

/// The packages, and the hash of each.
const MANIFEST: &str = include_str!("../../crates/testkit/cosmosdb/package.json");
const LOCK: &str = include_str!("../../crates/testkit/cosmosdb/package-lock.json");

/// The folder with the packages, if it can be had.
pub fn packages(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let home = workspace.cosmosdb();
    let complete = home.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == LOCK) {
        return Some(home);
    }
    let step = steps.step("set up: cosmosdb-server", || {
        fetch(workspace, &home)?;
        fs::write(&complete, LOCK)
            .map_err(|error| Failure::new(format!("{}: {error}", workspace.shown(&complete))))
    });
    if let Err(error) = step {
        steps.note(&format!(
            "tests of Azure Cosmos DB are SKIPPED: {}",
            error.message
        ));
        return None;
    }
    Some(home)
}

fn fetch(workspace: &Workspace, home: &Path) -> Result<(), Failure> {
    let node = javascript::system_node(workspace)
        .ok_or_else(|| Failure::new("no node of version 20 with npm in PATH: install it"))?;
    let failed =
        |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(home)));
    fs::create_dir_all(home).map_err(failed)?;
    fs::write(home.join("package.json"), MANIFEST).map_err(failed)?;
    fs::write(home.join("package-lock.json"), LOCK).map_err(failed)?;
    let mut npm = workspace.command(node.join("npm"));
    // `ci` installs exactly the versions of the lock file, and compares each with its hash.
    npm.current_dir(home)
        .env("PATH", javascript::with_folder(&node))
        .args([
            "ci",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]);
    run(npm)
}

#[cfg(test)]
mod tests {
    use super::LOCK;

    #[test]
    fn the_npm_lock_names_no_registry_and_every_hash() {
        assert!(!LOCK.contains("\"resolved\""));
        let versions = LOCK.matches("\"version\": ").count();
        let hashes = LOCK.matches("\"integrity\": \"sha512-").count();
        // The project itself has its version twice, and no hash.
        assert_eq!(hashes + 2, versions);
    }
}
