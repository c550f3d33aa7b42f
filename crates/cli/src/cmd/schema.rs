//! `rapidbyte schema`

use rapidbyte_engine::document::schema::{Bundled, json_schema};
use rapidbyte_engine::plan::write_mode_name;
use rapidbyte_engine::{Failure, Host};

use super::connector;
use crate::output::Output;
use crate::setup;

/// Prints the schema with the settings of every bundled connector in it; the same in both formats.
pub fn run(output: &Output) -> Result<(), Failure> {
    let host = setup::host(output, None)?;
    let schema = json_schema(&bundled(&host)?);
    output.document(&schema);
    output.text(&format!("{schema:#}"));
    Ok(())
}

/// The bundled connectors and their settings, by name.
pub(super) fn bundled(host: &Host) -> Result<Vec<Bundled>, Failure> {
    let mut connectors = Vec::new();
    for name in host.bundled() {
        let (connector, spec) = connector::load(&name, host)?;
        let modes = spec.write_modes.iter();
        connectors.push(Bundled {
            name,
            kind: connector.kind(),
            description: spec.description.clone(),
            write_modes: modes
                .map(|mode| write_mode_name(*mode).to_owned())
                .collect(),
            config: connector::config_schema(&spec)?,
        });
    }
    Ok(connectors)
}
