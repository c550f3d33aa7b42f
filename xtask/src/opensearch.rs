//! OpenSearch for the tests: from Maven Central, below `target/`, with pinned hashes.
//!
//! Only `cargo xtask test --with opensearch` fetches it. Where Java or Maven is missing, the tests that need the server say
//! that they are skipped.

use std::path::PathBuf;

use crate::java;
use crate::step::Steps;
use crate::workspace::Workspace;

/// As the test kit reads it.
pub const VARIABLE: &str = "RAPIDBYTE_OPENSEARCH";

/// As in `pom.xml`, which a change of the version changes, too.
const VERSION: &str = "2.19.6";

/// The folder of the server's classes, if it can be had.
pub fn classes(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let home = workspace.opensearch().join(VERSION);
    if !home.join("complete").is_file() {
        let step = steps.step(&format!("set up: OpenSearch {VERSION}"), || {
            java::fetch(workspace, "crates/testkit/opensearch", &home)
        });
        if let Err(error) = step {
            steps.note(&format!(
                "tests of OpenSearch are SKIPPED: {}",
                error.message
            ));
            return None;
        }
    }
    Some(home)
}
