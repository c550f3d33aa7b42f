//! Components of the test kit: the same work on values inside the sandbox, and batches on their way
//! into it.

use std::path::PathBuf;
use std::sync::Arc;

use rapidbyte_bench::failure::Failure;
use rapidbyte_pg::Column;
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{
    Cancel, Clock, Connector, Destination, Grants, Limits, LoadRequest, MemoryBudget, Origin, Run,
    Runtime, Sandbox, SchemaChanges, Source, Target, WriteMode,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The folder of the test kit's components.
const VARIABLE: &str = "RAPIDBYTE_TESTKIT";
const MEMORY_BYTES: usize = 1 << 30;

/// Does on each call what is measured.
pub const CODEC: &str = "source-codec";
/// Takes batches and drops them.
pub const NULL: &str = "dest-null";

/// One of these components.
pub struct Guest {
    connector: Connector,
    folder: TempDir,
    /// Kept for what it compiled.
    _runtime: Runtime,
}

impl Guest {
    /// Prints a note and gives nothing when the environment does not name a test kit.
    pub fn load(name: &str) -> Result<Option<Self>, Failure> {
        let Some(testkit) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("{VARIABLE} names no folder: {name} is left out");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let cache = Cache::open(&folder.path().join("code"), &folder.path().join("key"))?;
        let runtime = Runtime::new(Some(cache), |_| ())?;
        let connector = runtime.load(&Origin::File(testkit.join(format!("{name}.wasm"))))?;
        Ok(Some(Self {
            connector,
            folder,
            _runtime: runtime,
        }))
    }

    /// An instance whose `check` does `work`, `decode` or `encode`, with all rows of a COPY.
    pub fn session(
        &self,
        columns: &[Column],
        native: bool,
        bytes: &[u8],
        work: &str,
    ) -> Result<Source, Failure> {
        let path = self.folder.path().join("rows");
        std::fs::write(&path, bytes)?;
        let columns = serde_json::to_string(columns)?;
        let config = json!({ "path": path, "columns": columns, "native": native, "work": work });
        let schema = json!({ "properties": { "path": { "x-grant": "read" } } });
        let keys = config.as_object().cloned().unwrap_or_default();
        let mut source = self.connector.source(self.sandbox(&schema, &keys))?;
        source.open(&config.to_string())?;
        Ok(source)
    }

    /// An instance that waits for batches of this schema.
    pub fn writer(&self, schema_message: &[u8]) -> Result<Destination, Failure> {
        let sandbox = self.sandbox(&json!({}), &Map::new());
        let mut destination = self.connector.destination(sandbox)?;
        destination.open("{}")?;
        let target = Target {
            stream: "rows".into(),
            schema: schema_message.to_vec(),
            write_mode: WriteMode::Append,
            primary_key: Vec::new(),
            deleted_field: None,
            dedup_fields: Vec::new(),
            name: None,
            namespace: None,
            is_incremental: false,
            schema_changes: SchemaChanges::default(),
            rejects: None,
            deletes: None,
            repairs: None,
            stages: false,
        };
        destination.plan(&target)?;
        let run = Run {
            pipeline: "bench-parts".into(),
            id: "1".into(),
        };
        destination.begin(&[LoadRequest { target, run }])?;
        destination.open_writer(0, None)?;
        Ok(destination)
    }

    fn sandbox(&self, schema: &Value, config: &Map<String, Value>) -> Sandbox {
        Sandbox {
            grants: Arc::new(Grants::from_config(schema, config, self.folder.path())),
            memory: MemoryBudget::new(MEMORY_BYTES),
            limits: Limits::default(),
            clock: Clock::new(),
            cancel: Cancel::new(),
            log: Arc::new(|_, _, _, _| {}),
            redact: rapidbyte_runtime::no_secrets(),
            stream: None,
        }
    }
}
