//! Loading a connector, making an instance, and one call into it.

use std::path::PathBuf;

use rapidbyte_engine::Host;
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Cancel, Clock, Kind, Origin, Runtime};

use super::Parts;
use crate::failure::Failure;

const CONNECTORS: [&str; 2] = ["source-postgres", "dest-postgres"];
/// The folder of the bundled connectors.
const VARIABLE: &str = "RAPIDBYTE_CONNECTORS";

pub fn run(parts: &mut Parts) -> Result<(), Failure> {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        eprintln!("{VARIABLE} names no folder: the sandbox is left out");
        return Ok(());
    };
    let home = tempfile::tempdir()?;
    let cache = Cache::open(&home.path().join("code"), &home.path().join("key"))?;
    for name in CONNECTORS {
        let origin = Origin::File(folder.join(format!("{name}.wasm")));
        // Compiles it into the cache, which is not measured here: it takes seconds.
        Runtime::new(Some(cache.clone()))?.load(&origin)?;
        parts.measure(
            &format!("load {name} from the cache"),
            "connector",
            1,
            || {
                // A runtime of its own, as one keeps what it has loaded.
                Ok(Runtime::new(Some(cache.clone()))?.load(&origin)?)
            },
        )?;
        let runtime = Runtime::new(Some(cache.clone()))?;
        let connector = runtime.load(&origin)?;
        let host = Host {
            runtime,
            connector_dirs: Vec::new(),
            embedded: &[],
            log: std::sync::Arc::new(|_, _, _, _| {}),
            cancel: Cancel::new(),
        };
        let clock = Clock::new();
        parts.measure(&format!("instance of {name}"), "instance", 1, || {
            let sandbox = host.bare_sandbox(&clock);
            match connector.kind() {
                Kind::Source => drop(connector.source(sandbox)?),
                Kind::Destination => drop(connector.destination(sandbox)?),
            }
            Ok(())
        })?;
        if connector.kind() == Kind::Source {
            let mut source = connector.source(host.bare_sandbox(&clock))?;
            parts.measure(&format!("call of {name}: describe"), "call", 1, || {
                Ok(source.describe()?)
            })?;
        }
    }
    Ok(())
}
