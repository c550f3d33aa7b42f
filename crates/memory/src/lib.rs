//! Tables in memory, as a source and as a destination: the reference implementation of native sessions.
//!
//! ```text
//! Tables        named record batches of one schema each, shared by all sessions
//! source        reads tables as they were at the snapshot: all rows, or the rows from a cursor on in their order;
//!               the tables of one read take turns
//! destination   stages batches, and at the commit appends, replaces or upserts them and moves cursor and epoch, of
//!               all streams of the load or of none; keeps rejects and lists them
//! ```
//!
//! The rows take memory of the process, and `resources.memory` does not count them. The program that has the tables has
//! to limit their size.

mod destination;
mod order;
mod rejects;
mod source;
mod upsert;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_runtime::{
    CheckItem, DestinationSession, NO_SETTINGS, Native, NativeConnector, Progress, SourceSession,
    Spec,
};

use destination::Writing;
use rejects::Kept;
use source::Reading;

/// Tables by name. Clones share them.
#[derive(Clone, Default)]
pub struct Tables(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    tables: BTreeMap<String, Table>,
    /// The progress of each stream, by pipeline and stream.
    progress: BTreeMap<(String, String), Progress>,
    rejects: Kept,
    /// The tables of each snapshot, as they were when a session took it.
    snapshots: BTreeMap<u64, BTreeMap<String, Table>>,
    last_snapshot: u64,
}

/// Rows of one schema.
#[derive(Clone)]
struct Table {
    schema: SchemaRef,
    key: Vec<String>,
    batches: Vec<RecordBatch>,
}

impl Tables {
    /// A set without tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the rows of a table. `key` names the columns that identify a row; it is empty if no column does.
    ///
    /// # Panics
    /// Panics if a batch has another schema.
    pub fn set(&self, name: &str, schema: SchemaRef, key: &[&str], batches: Vec<RecordBatch>) {
        let is_same = |batch: &RecordBatch| batch.schema() == schema;
        assert!(batches.iter().all(is_same), "a batch of another schema");
        let key = key.iter().map(|column| (*column).to_owned()).collect();
        let table = Table {
            schema,
            key,
            batches,
        };
        self.lock().tables.insert(name.to_owned(), table);
    }

    /// The rows of a table. `None` if the table does not exist.
    pub fn get(&self, name: &str) -> Option<Vec<RecordBatch>> {
        let tables = self.lock();
        Some(tables.tables.get(name)?.batches.clone())
    }

    /// A source that reads these tables, for `use: NAME`.
    pub fn source(&self, name: &str) -> NativeConnector {
        let (tables, of) = (self.clone(), name.to_owned());
        NativeConnector::source(name, move |native| tables.source_session(&of, native))
    }

    /// One session of [`Tables::source`], for a connector that wraps it.
    pub fn source_session(&self, name: &str, native: Native) -> Box<dyn SourceSession> {
        let spec = spec(name, "Reads tables in memory");
        Box::new(Reading::new(native, self.clone(), spec))
    }

    /// A destination that writes these tables, for `use: NAME`. Each stream becomes the table of the same name.
    pub fn destination(&self, name: &str) -> NativeConnector {
        let (tables, of) = (self.clone(), name.to_owned());
        NativeConnector::destination(name, move |native| tables.destination_session(&of, native))
    }

    /// One session of [`Tables::destination`], for a connector that wraps it.
    pub fn destination_session(&self, name: &str, native: Native) -> Box<dyn DestinationSession> {
        let spec = spec(name, "Writes tables in memory");
        Box::new(Writing::new(native, self.clone(), spec))
    }

    fn looked_at(&self) -> CheckItem {
        let tables = self.lock().tables.len();
        CheckItem {
            name: "tables".into(),
            problem: None,
            detail: rapidbyte_wire::counted(tables as u64, "table"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spec(name: &str, description: &str) -> Spec {
    Spec::plain(name, env!("CARGO_PKG_VERSION"), description, NO_SETTINGS)
}
