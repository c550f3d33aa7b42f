//! Puts the component of `crates/rows` into a connector that imports it, so that one component is
//! what the author has and the host loads.

use std::path::Path;

use rapidbyte_engine::{Class, Failure};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, PlugError};

use crate::setup;

/// Below a folder of connectors.
const FILE: &str = "parts/rapidbyte-rows.wasm";

/// The connector with the component inside.
pub fn with_rows(connector: &Path) -> Result<Vec<u8>, Failure> {
    let connector = std::fs::read(connector)
        .map_err(|error| failed(format!("{}: {error}", connector.display())))?;
    let composed = plug(connector, rows()?);
    composed.map_err(|error| failed(format!("the component for rows does not fit: {error:#}")))
}

/// The component for rows: of the folders of connectors, or the program's own.
fn rows() -> Result<Vec<u8>, Failure> {
    for folder in setup::connector_dirs() {
        match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(format!("{FILE}: {error}"))),
        }
    }
    let carried = setup::ROWS.map(<[u8]>::to_vec);
    carried.ok_or_else(|| {
        failed("this program was built without its component for rows".into())
            .hint("build it with `cargo xtask build`, or install a released program")
    })
}

/// Connects the exports of `plug` to the imports of `socket` that have their names.
fn plug(socket: Vec<u8>, plug: Vec<u8>) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut graph = CompositionGraph::new();
    let mut package = |name: &str, bytes: Vec<u8>| {
        let package = Package::from_bytes(name, None, bytes, graph.types_mut())?;
        Ok::<_, Box<dyn std::error::Error>>(graph.register_package(package)?)
    };
    let socket = package("connector", socket)?;
    let plug = package("rows", plug)?;
    match wac_graph::plug(&mut graph, vec![plug], socket) {
        Ok(()) => {}
        Err(PlugError::NoPlugHappened) => {
            return Err(
                "the connector does not import rapidbyte:rows/encode as this program has it".into(),
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(graph.encode(EncodeOptions::default())?)
}

fn failed(text: String) -> Failure {
    Failure::new(Class::Run, "build_failed", text)
}
