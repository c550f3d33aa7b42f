//! Rapidbyte as a library: pipelines are checked, planned and run from a Rust program.
//!
//! An [`Engine`] has the connectors and the cache of their compiled code. A [`Pipeline`] is a pipeline file that was
//! read. Each call takes a [`Control`], which receives its events and can cancel it. This crate does not print, exit
//! the process, handle signals or keep process-wide state.
//!
//! # Run a file
//!
//! ```
//! use rapidbyte::{Control, Engine, Environment, Pipeline, RunOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("in.csv"), "id\n1\n2\n")?;
//! # std::fs::write(folder.path().join("copy.yaml"), rapidbyte::EXAMPLE)?;
//! # let file = folder.path().join("copy.yaml");
//! let engine = Engine::builder().cache(rapidbyte::user_cache().ok()).build()?;
//! let pipeline = Pipeline::from_file(&file, &Environment::process())?;
//! let report = engine.run(&pipeline, &RunOptions::default(), &Control::default())?;
//! assert_eq!(report.rows, 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Run with tables in memory
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{Int64Array, RecordBatch};
//! use rapidbyte::{Control, Engine, Environment, Pipeline, RunOptions, memory::Tables};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ids = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let rows = RecordBatch::try_from_iter([("id", ids as _)])?;
//! let (here, there) = (Tables::new(), Tables::new());
//! here.set("orders", rows.schema(), &["id"], vec![rows]);
//! let engine = Engine::builder()
//!     .connector(here.source("memory-source"))
//!     .connector(there.destination("memory-destination"))
//!     .build()?;
//! let text = "version: 1
//! pipeline: copy
//! source: { use: memory-source, streams: [orders] }
//! destination: { use: memory-destination, write_mode: append }
//! ";
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let pipeline = Pipeline::from_str(text, folder, &Environment::process())?;
//! engine.run(&pipeline, &RunOptions::default(), &Control::default())?;
//! let moved = there.get("orders").expect("the table was made");
//! assert_eq!(moved[0].num_rows(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Watch events
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use rapidbyte::{Control, Engine, Environment, Event, Pipeline, RunOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("in.csv"), "id\n1\n2\n")?;
//! # let (text, folder) = (rapidbyte::EXAMPLE, folder.path());
//! let pipeline = Pipeline::from_str(text, folder, &Environment::process())?;
//! let committed = Arc::new(AtomicU64::new(0));
//! let counter = Arc::clone(&committed);
//! let control = Control::default().on_event(move |event| match event {
//!     Event::Committed { rows, .. } => {
//!         counter.fetch_add(*rows, Ordering::Relaxed);
//!     }
//!     other => {
//!         if let Some(line) = other.line() {
//!             eprintln!("{}: {}", line.from, line.message);
//!         }
//!     }
//! });
//! let engine = Engine::builder().cache(rapidbyte::user_cache().ok()).build()?;
//! engine.run(&pipeline, &RunOptions::default(), &control)?;
//! assert_eq!(committed.load(Ordering::Relaxed), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Cancel from another thread
//!
//! ```
//! use rapidbyte::{Cancel, Class, Control, Engine, Environment, Event, Pipeline, RunOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let endless = rapidbyte::EXAMPLE_OF_MANY_ROWS;
//! let pipeline = Pipeline::from_str(endless, folder.path(), &Environment::process())?;
//! let (cancel, (begun, begins)) = (Cancel::new(), std::sync::mpsc::channel());
//! let control = Control::default().cancel(&cancel).on_event(move |event| {
//!     if let Event::StreamStarted { .. } = event {
//!         begun.send(()).ok();
//!     }
//! });
//! let engine = Engine::builder().cache(rapidbyte::user_cache().ok()).build()?;
//! let ended = std::thread::scope(|scope| {
//!     let (engine, pipeline) = (&engine, &pipeline);
//!     // The run owns its control: if it ends early, nobody waits for its first stream.
//!     let run = scope.spawn(move || engine.run(pipeline, &RunOptions::default(), &control));
//!     begins.recv().ok();
//!     cancel.cancel();
//!     run.join().expect("the run")
//! });
//! assert_eq!(ended.expect_err("it was cancelled").class, Class::Cancelled);
//! # Ok(())
//! # }
//! ```

mod bundled;
mod connector;
mod control;
mod cursors;
mod engine;
mod files;
mod history;
mod memory_limit;
mod pipeline;
mod places;
mod rejects;
mod run;

pub use bundled::{ADAPTERS, CONNECTORS};
pub use connector::{Compiled, Described, LockChange, Locked};
pub use control::{Control, check_faults};
pub use cursors::{
    CURSOR_SOURCE, CheckedCursor, Cursors, Rebound, RefusedNext, ShownCursor, StreamCursor,
};
pub use engine::{Engine, EngineBuilder, VerifyOptions};
pub use files::{create_own_file, foreign_link, open_regular_file};
pub use history::{History, PastRuns, Recorded, Runs};
pub use pipeline::Pipeline;
pub use places::{connector_dirs, user_cache};
pub use rejects::{
    NewestReject, RejectCounts, RejectFilter, RejectGroup, Rejects, ShownReject, ShownRejects,
    Unreplayable,
};
pub use run::{PlannedRun, Preview, Refusals, RunOptions, Unplanned};

pub use rapidbyte_batches as batches;
pub use rapidbyte_engine::document::schema::{
    Bundled as ConnectorSettings, json_schema as pipeline_schema,
};
pub use rapidbyte_engine::document::{
    Catchup, Cron, Notify, NotifySecret, NotifyUrl, Pages, Schedule, Share, Timezone, WhenRunning,
};
pub use rapidbyte_engine::lock::{LOCK_FILE, Pin};
pub use rapidbyte_engine::plan::{
    Checked, Discovered, Looked, PlannedColumn, Refused, SourceColumn, Stage, Step, StreamPlan,
    sync_mode_name, write_mode_name,
};
pub use rapidbyte_engine::report::{
    RejectReport, Side, StageReport, StreamReport, Warning, key as phase_key, rss_bytes,
};
pub use rapidbyte_engine::verify;
pub use rapidbyte_engine::{
    Class, Environment, Event, EventSink, Failure, Line, Narrowing, Plan, Progress, Repaired,
    Replayed, Report, StreamProgress, StreamState, Streams, nearest,
};
pub use rapidbyte_memory as memory;
pub use rapidbyte_runtime::{
    CONTRACT, Cancel, Fit, Increment, KeptReject, Kind, LateRows, Level, NativeConnector, Phase,
    Progress as TargetProgress, Registration, RejectOrigin, Spec, Stream, SyncMode, WriteMode,
    cache::Cache,
};
pub use rapidbyte_state::{AttemptRecord, RunRecord};
pub use rapidbyte_wire::WARNING_NOTE;

/// A pipeline for the examples: `in.csv` of its folder to `out/in.jsonl`.
#[doc(hidden)]
pub const EXAMPLE: &str = "version: 1
pipeline: copy
source:
  use: source-file
  config: { path: in.csv }
  streams: [in]
destination:
  use: dest-file
  config: { path: \"out/{stream}.jsonl\" }
  write_mode: replace
";

/// More rows than an example waits for.
#[doc(hidden)]
pub const EXAMPLE_OF_MANY_ROWS: &str = "version: 1
pipeline: many
source:
  use: source-generate
  config: { preset: narrow, rows: 1000000000000 }
  streams: [\"*\"]
destination:
  use: dest-file
  config: { path: \"out/{stream}.csv\" }
  write_mode: replace
";
