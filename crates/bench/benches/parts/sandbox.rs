//! Loading a connector, making an instance, and one call into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidbyte_bench::failure::Failure;
use rapidbyte_engine::{Host, Usage};
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Cancel, Clock, Connector, Kind, Origin, Runtime};

use super::Parts;

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
        one(parts, &cache, &folder, name)?;
    }
    Ok(())
}

/// The first part that was asked for compiles the connector into the cache, which takes seconds and
/// is not measured here.
fn one(parts: &mut Parts, cache: &Cache, folder: &Path, name: &str) -> Result<(), Failure> {
    let origin = Origin::File(folder.join(format!("{name}.wasm")));
    // A runtime of its own each time, as one keeps what it has loaded.
    let load = || -> Result<(Host, Connector), Failure> {
        let runtime = Runtime::new(Some(cache.clone()), |_| ())?;
        let connector = runtime.load(&origin)?;
        let host = Host {
            runtime,
            connector_dirs: Vec::new(),
            embedded: &[],
            native: [].into(),
            longest_pause: std::time::Duration::MAX,
            events: Arc::new(|_| {}),
            cancel: Cancel::new(),
            usage: Usage::default(),
            reuse: None,
        };
        Ok((host, connector))
    };
    let cached = || load().map(drop);
    let title = format!("load {name} from the cache");
    parts.prepared(&title, "connector", 1, cached, |()| load())?;
    let clock = Clock::new();
    let title = format!("instance of {name}");
    parts.prepared(&title, "instance", 1, load, |(host, connector)| {
        let sandbox = host.bare_sandbox(&clock);
        match connector.kind() {
            Kind::Source => drop(connector.source(sandbox)?),
            Kind::Transform => drop(connector.transform(sandbox)?),
            Kind::Destination => drop(connector.destination(sandbox)?),
        }
        Ok(())
    })?;
    if !name.starts_with("source-") {
        return Ok(());
    }
    let source = || {
        let (host, connector) = load()?;
        let source = connector.source(host.bare_sandbox(&clock))?;
        Ok((host, source))
    };
    let title = format!("call of {name}: describe");
    parts.prepared(&title, "call", 1, source, |(_, source)| {
        Ok(source.describe()?)
    })
}
