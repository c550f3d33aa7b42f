//! Connectors by themselves, outside a pipeline.

use std::time::Duration;

use rapidbyte_engine::lock::{Pin, asks_for};
use rapidbyte_engine::{Class, Failure};
use rapidbyte_runtime::{Connector, Kind, Origin, Sandbox, SourceSession, Spec};
use serde_json::Value;

/// A connector that has described itself.
pub struct Described {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) connector: Connector,
    pub(crate) spec: Spec,
}

/// The way in which a connector came to be native code.
#[derive(Debug, Clone, Copy)]
pub struct Compiled {
    /// The code came from the cache. False: it was compiled now.
    pub from_cache: bool,
    /// The time to read, authenticate, and load or compile.
    pub load: Duration,
}

/// A connector that the lock file of a pipeline has now.
#[derive(Debug, Clone)]
pub struct Locked {
    /// Its key in the lock file.
    pub connector: String,
    /// The change of its entry.
    pub change: LockChange,
    /// Its entry.
    pub pin: Pin,
}

/// The change of an entry in a lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockChange {
    /// It is new.
    Locked,
    /// It was the same before.
    Unchanged,
    /// It replaces another one.
    Updated,
}

impl LockChange {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Unchanged => "unchanged",
            Self::Updated => "updated",
        }
    }
}

impl Described {
    /// The name or path by which it was found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Source, transform or destination.
    pub fn kind(&self) -> Kind {
        self.connector.kind()
    }

    /// Its description of itself.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The JSON Schema of its configuration.
    ///
    /// # Errors
    /// `contract_broken`: the schema is not JSON.
    pub fn config_schema(&self) -> Result<Value, Failure> {
        serde_json::from_str(&self.spec.config_schema)
            .map_err(|error| Failure::new(Class::Run, "contract_broken", error))
    }

    /// The interfaces that it imports, and the keys of its configuration that grant something, in order.
    ///
    /// # Errors
    /// `contract_broken`: the config schema is not JSON, or its references make more keys than anybody writes.
    pub fn asks_for(&self) -> Result<Vec<String>, Failure> {
        asks_for(&self.connector, &self.config_schema()?)
    }

    /// True if its code is a file, false if it is inside the program.
    pub fn is_file(&self) -> bool {
        matches!(self.origin, Origin::File(_))
    }

    /// The BLAKE3 of its code in hexadecimal.
    ///
    /// # Errors
    /// In words: the file cannot be read.
    pub fn blake3(&self) -> Result<String, String> {
        self.origin.hash_text().map_err(|error| error.to_string())
    }

    /// Instantiates a source, for a native source that hands its calls on to it.
    ///
    /// # Errors
    /// `invalid_world` for another connector, and the errors of instantiating.
    pub fn source_session(
        &self,
        sandbox: Sandbox,
    ) -> rapidbyte_runtime::Result<Box<dyn SourceSession>> {
        self.connector.source_session(sandbox)
    }

    /// The way in which it came to be native code.
    pub fn compiled(&self) -> Compiled {
        Compiled::of(&self.connector)
    }
}

impl Compiled {
    pub(crate) fn of(connector: &Connector) -> Self {
        let loaded = connector.loaded();
        Self {
            from_cache: loaded.from_cache,
            load: loaded.load,
        }
    }
}
