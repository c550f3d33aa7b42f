//! `rapidbyte version`

use rapidbyte_engine::Failure;
use rapidbyte_runtime::CONTRACT;
use serde_json::json;

use crate::output::Output;

pub fn run(output: &Output) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    output.document(&json!({ "name": "rapidbyte", "version": version, "contract": CONTRACT }));
    output.text(&format!("rapidbyte {version}"));
    Ok(())
}
