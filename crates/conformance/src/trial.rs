//! The inputs of a test.

use std::path::PathBuf;

use rapidbyte_engine::{Host, Settings};
use rapidbyte_runtime::Connector;
use serde_json::Value;

/// The inputs of a test.
pub struct Trial {
    /// Loads connectors and stops everything.
    pub host: Host,
    /// The connector under test.
    pub connector: Connector,
    /// Its settings; without them only what needs none is judged.
    pub settings: Option<Settings>,
    /// The folder of relative paths in settings, absolute.
    pub base_dir: PathBuf,
    /// Streams to read; empty: the first few. Of a source, or of the peer of a transform.
    pub streams: Vec<String>,
    /// A source that reads what the destination under test writes, or has rows for the transform under test.
    pub peer: Option<Peer>,
}

/// A source that looks at what a destination did, or gives rows to a transform.
pub struct Peer {
    /// The source.
    pub connector: Connector,
    /// Its settings. Where it does not find a stream by them, `{stream}` in them stands for its name.
    pub settings: Settings,
    /// Its config schema, for what the settings grant.
    pub schema: Value,
    /// Its name of the stream, if that is another one; with `{stream}` for the stream's.
    pub stream: Option<String>,
}
