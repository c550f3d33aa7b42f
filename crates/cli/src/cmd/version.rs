//! `rapidbyte version`

use rapidbyte::{CONTRACT, Failure};
use serde_json::json;

use crate::output::Output;

pub fn run(output: &Output) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    output.document(&json!({ "name": "rapidbyte", "version": version, "contract": CONTRACT }));
    output.text(&format!("rapidbyte {version}"));
    Ok(())
}
