//! A document becomes a plan, a plan becomes rows moved.
//!
//! ```text
//! document  a pipeline file, every mistake located
//! plan      connectors loaded, streams found, types compared; nothing is written
//! run       a worker for each of `parallelism` streams
//! stage     one thread reads, one writes, one channel between them; commits at checkpoints
//! report    what moved and where the time went
//! ```
//!
//! The engine names no wasmtime type and no connector, prints nothing and never exits.

mod beat;
pub mod channel;
pub mod compress;
mod cursors;
pub mod document;
mod event;
mod failure;
mod host;
mod idle;
mod known_as;
mod ledger;
pub mod lock;
mod machine;
mod meant;
mod narrow;
mod overlap;
mod past;
pub mod plan;
mod progress;
mod rejects;
pub mod report;
mod retry;
mod run;
mod stage;
mod superseded;
mod usage;
pub mod verify;

pub use cursors::Cursors;
pub use document::{Document, Environment, OnStreamFailure, Settings};
pub use event::{Event, EventSink, Line};
pub use failure::{Class, Failure, Streams};
pub use host::Host;
pub use idle::{IdleSessions, Reuse};
pub use meant::{did_you_mean, nearest};
pub use narrow::Narrowing;
pub use overlap::{Unplanned, plan_alone, plan_repair};
pub use plan::{Plan, Prepared};
pub use progress::{Progress, StreamProgress, StreamState};
pub use rejects::{Kept, Repaired, Replayed, ensure_replayable, replay};
pub use report::Report;
pub use run::{progress, run};
pub use usage::Usage;
