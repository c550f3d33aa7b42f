//! The same work on values inside the sandbox, where connectors do it.

use std::path::PathBuf;
use std::sync::Arc;

use rapidbyte_bench::failure::Failure;
use rapidbyte_pg::Column;
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{
    Cancel, Clock, Connector, Grants, Limits, MemoryBudget, Origin, Runtime, Sandbox, Source,
};
use serde_json::json;
use tempfile::TempDir;

/// The folder of the test kit's components.
const VARIABLE: &str = "RAPIDBYTE_TESTKIT";
const MEMORY_BYTES: usize = 1 << 30;

/// A component that does on each call what is measured.
pub struct Guest {
    connector: Connector,
    folder: TempDir,
    /// Kept for what it compiled.
    _runtime: Runtime,
}

impl Guest {
    /// Nothing where no test kit is named, which is said.
    pub fn load() -> Result<Option<Self>, Failure> {
        let Some(testkit) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("{VARIABLE} names no folder: values in the sandbox are left out");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let cache = Cache::open(&folder.path().join("code"), &folder.path().join("key"))?;
        let runtime = Runtime::new(Some(cache), |_| ())?;
        let connector = runtime.load(&Origin::File(testkit.join("source-codec.wasm")))?;
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
        let mut source = self.connector.source(Sandbox {
            grants: Arc::new(Grants::from_config(&schema, &keys, self.folder.path())),
            memory: MemoryBudget::new(MEMORY_BYTES),
            limits: Limits::default(),
            clock: Clock::new(),
            cancel: Cancel::new(),
            log: Arc::new(|_, _, _, _| {}),
            stream: None,
        })?;
        source.open(&config.to_string())?;
        Ok(source)
    }
}
