//! `rapidbyte schema`

use rapidbyte::{Failure, pipeline_schema};

use crate::output::Output;
use crate::setup::{self, Session};

/// Prints the schema with the settings of every bundled connector in it; the same in both formats.
pub fn run(output: &Output) -> Result<(), Failure> {
    let Session { engine, control } = setup::session(output, None)?;
    let schema = pipeline_schema(&engine.connector_settings(&control)?);
    output.document(&schema);
    output.text(&format!("{schema:#}"));
    Ok(())
}
