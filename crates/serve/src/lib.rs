//! The control plane of a server that takes rows over HTTP: bodies become jobs of a durable queue.
//!
//! A client that gets 202 has a job that survives `kill -9` and a loss of power: its body is in SQLite, or in a synced file
//! of the spool, before the answer goes out. A request that is repeated with the same `Idempotency-Key` is the same job.
//!
//! It runs on one thread with a current-thread tokio, beside two threads for SQLite. Memory is bounded: see
//! [`BodyLimits`] and [`Settings::connections`].

mod answer;
mod ingest;
mod jobs;
mod queue;
mod receive;
mod runs;
mod schedule;
mod server;
mod spool;
mod store;
mod work;

pub use ingest::{Catalogue, Ingest};
pub use receive::BodyLimits;
pub use runs::{
    Cancelled, Options, PipelineSource, Run, RunSettings, RunState, Runs, RunsError, Trigger,
    routes,
};
pub use server::{ServeError, Server, Settings};
pub use store::{Job, JobState, QueueLimits};
pub use work::Pipelines;
