//! Puts the components of `crates/part-…` around a connector in a scripting language and into it, so
//! that one component is what the author has and the host loads.

use std::path::{Path, PathBuf};

use rapidbyte_engine::Failure;
use rapidbyte_runtime::Kind;

use crate::failure::failed;

/// The components of `crates/part-…` that a program has.
#[derive(Debug, Clone)]
pub struct Adapters {
    /// Folders of connectors: an adapter is `parts/rapidbyte-part-<name>.wasm` below one of them.
    pub folders: Vec<PathBuf>,
    /// Those that are inside the program, by name; for what no folder has.
    pub carried: &'static [(&'static str, &'static [u8])],
}

/// The connector of the contract that a script's component is the inside of.
pub(crate) fn around(script: &Path, kind: Kind, adapters: &Adapters) -> Result<Vec<u8>, Failure> {
    let script =
        std::fs::read(script).map_err(|error| failed(format!("{}: {error}", script.display())))?;
    let script = match kind {
        Kind::Source | Kind::Transform => script,
        Kind::Destination => {
            // A connector that does not use the sink stays as it is.
            let with_sink = plug(&script, adapters.read("sink")?)?;
            with_sink.unwrap_or(script)
        }
    };
    let name = kind.name();
    plug(&adapters.read(name)?, script)?.ok_or_else(|| {
        failed(format!(
            "the connector does not export this program's version of rapidbyte:script/{name}"
        ))
        .hint(NEW_PROJECT)
    })
}

const NEW_PROJECT: &str =
    "create a project with this program's `rapidbyte connector new`, and move the code there";

impl Adapters {
    fn read(&self, name: &str) -> Result<Vec<u8>, Failure> {
        let file = format!("parts/rapidbyte-part-{name}.wasm");
        for folder in &self.folders {
            match std::fs::read(folder.join(&file)) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(format!("{file}: {error}"))),
            }
        }
        let carried = self.carried.iter().find(|(known, _)| *known == name);
        carried.map(|(_, bytes)| bytes.to_vec()).ok_or_else(|| {
            failed(format!(
                "this program was built without its adapter `{name}`"
            ))
            .hint("build it with `cargo xtask build`, or install a released program")
        })
    }
}

/// Connects the exports of `plug` to the imports of `socket` that have their names. `None` where there
/// are none.
fn plug(socket: &[u8], plug: Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
    connected(socket, plug).map_err(|error| {
        failed(format!(
            "the connector and its adapter do not fit together: {error:#}"
        ))
        .hint(NEW_PROJECT)
    })
}

#[cfg(feature = "compose")]
fn connected(socket: &[u8], plug: Vec<u8>) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error>> {
    use wac_graph::types::Package;
    use wac_graph::{CompositionGraph, EncodeOptions, PlugError};
    let mut graph = CompositionGraph::new();
    let mut package = |name: &str, bytes: Vec<u8>| {
        let package = Package::from_bytes(name, None, bytes, graph.types_mut())?;
        Ok::<_, Box<dyn std::error::Error>>(graph.register_package(package)?)
    };
    let plug = package("plug", plug)?;
    let socket = package("socket", socket.to_vec())?;
    match wac_graph::plug(&mut graph, vec![plug], socket) {
        Ok(()) => Ok(Some(graph.encode(EncodeOptions::default())?)),
        Err(PlugError::NoPlugHappened) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(feature = "compose"))]
fn connected(_: &[u8], _: Vec<u8>) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error>> {
    Err("this program was built without the composer: build it with `cargo xtask build`".into())
}
