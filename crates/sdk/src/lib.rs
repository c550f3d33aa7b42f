//! The library for authors of connectors.
//!
//! A source is a type that implements [`Source`]; a destination implements [`Destination`], and a
//! transform [`Transform`]. Each has a configuration struct (`serde` reads it, `schemars` derives
//! its JSON Schema) and one line that exports it: [`export_source!`], [`export_destination!`] or
//! [`export_transform!`]. Built for `wasm32-wasip2` the
//! crate becomes a connector; built natively the same code runs under `cargo test`, with
//! [`connection`] and [`files`] going straight to the operating system.
//!
//! The whole of a source that counts to three:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use rapidbyte_sdk::prelude::*;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Config {}
//!
//! struct Three;
//! struct Rows(bool);
//!
//! impl Source for Three {
//!     type Config = Config;
//!     type Reader = Rows;
//!     const NAME: &str = "source-three";
//!     const VERSION: &str = "0.1.0";
//!     const DESCRIPTION: &str = "Counts to three";
//!
//!     fn open(_: Config) -> Result<Self> {
//!         Ok(Three)
//!     }
//!     fn discover(&mut self, _: &[String]) -> Result<Vec<Stream>> {
//!         Ok(vec![Stream::new("three", &Rows(false).schema())?])
//!     }
//!     fn read(&mut self, _: &ReadRequest) -> Result<Rows> {
//!         Ok(Rows(false))
//!     }
//! }
//!
//! impl Reader for Rows {
//!     fn schema(&self) -> SchemaRef {
//!         Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
//!     }
//!     fn next(&mut self, _: Duration) -> Result<Event> {
//!         if std::mem::replace(&mut self.0, true) {
//!             return Ok(Event::End);
//!         }
//!         let n = Arc::new(Int64Array::from(vec![1, 2, 3]));
//!         Ok(Event::Batch(RecordBatch::try_new(self.schema(), vec![n])?))
//!     }
//! }
//!
//! rapidbyte_sdk::export_source!(Three);
//! # fn main() {}
//! ```

#[doc(hidden)]
pub mod bindings;
pub mod bytes;
mod config;
pub mod connection;
pub mod declared;
pub mod destination;
pub mod digest;
mod error;
pub mod files;
pub mod http;
pub mod last_words;
pub mod log;
mod messages;
pub mod phase;
pub mod pieces;
pub mod saved;
pub mod source;
pub mod transform;

pub use destination::{Commit, Destination, Load};
pub use rapidbyte_wire::{
    WARNING_NOTE, counted, hive, ipc, name, one, pattern, sampled, size, types,
};
pub use source::{Event, Reader, Source};
pub use transform::{Transform, Transformer};

pub use bindings::exports_destination::{
    ColumnPlan, DeleteAction, Deletes, DroppedColumn, Fit, KeptReject, LoadRequest, NewColumn,
    Part, Plan, Presence, Progress, Receipt, Refused, Rejects, RenamedColumn, Repair,
    SchemaChanges, Target, TypeChange, Worker,
};
pub use bindings::exports_source::{Change, Increment, LateRows, ReadRequest, Selection};
pub use bindings::exports_transform::{Plan as TransformPlan, Relation};
pub use bindings::types::{
    Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error, ErrorKind, KeyedRows, Reject,
    RejectOrigin, RowLimit, Run, Spec, Stream, SyncMode, WriteMode,
};

/// The result of every fallible call of a connector.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that most connectors use.
pub mod prelude {
    pub use crate::{
        Bucket, Buckets, Change, CheckItem, ChosenRows, ColumnPlan, Commit, Destination,
        DigestedRow, Error, ErrorKind, Event, Fit, Increment, KeptReject, KeyedRows, LateRows,
        Load, LoadRequest, Part, Plan, Presence, Progress, ReadRequest, Reader, Receipt, Refused,
        Reject, RejectOrigin, Rejects, Relation, Repair, Result, RowLimit, Run, SchemaChanges,
        Selection, Source, Stream, SyncMode, Target, Transform, TransformPlan, Transformer, Worker,
        WriteMode,
    };
    pub use arrow_array::{self, *};
    pub use arrow_schema::{self, DataType, Field, Schema, SchemaRef};
}
