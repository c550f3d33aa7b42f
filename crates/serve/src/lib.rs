//! A server that takes rows over HTTP: bodies become jobs of a durable queue, and jobs become runs of pipelines.
//!
//! A client that gets 202 has a job that survives `kill -9` and a loss of power: its body is in SQLite, or in a synced file
//! of the spool, before the answer goes out. A request that is repeated with the same `Idempotency-Key` is the same job.
//!
//! Requests are served by one thread with a current-thread tokio, beside threads for SQLite and for runs. Memory is
//! bounded: see [`BodyLimits`] and [`Settings::connections`].

mod access;
mod agenda;
mod answer;
mod call;
mod client;
mod connections;
mod cursors;
mod head;
mod in_process;
mod ingest;
mod jobs;
mod log;
mod metrics;
mod multipart;
mod notify;
mod openapi;
mod pages;
mod pipelines;
mod private;
mod queue;
mod receive;
mod registry;
mod rejects;
mod request;
mod routes;
mod runs;
mod schedule;
mod server;
mod spool;
mod store;
mod tokens;
mod work;

pub use client::{Client, ClientError, Counts, MovedCursors, Replayed, RunEvent, SetCursor};
pub use connections::TlsFiles;
#[doc(hidden)]
pub use in_process::{InProcess, InProcessAnswer};
pub use ingest::{Catalogue, Ingest};
pub use log::{Log, Message};
pub use queue::NAME as SOURCE;
pub use receive::BodyLimits;
pub use registry::Pipelines;
pub use rejects::without_replay;
pub use runs::{
    Cancelled, Options, PipelineSource, Run, RunSettings, RunState, Runs, RunsError, Trigger,
};
pub use server::{ServeError, Server, Settings};
pub use store::{Job, JobState, QueueLimits, Retention, StoreError};
#[doc(hidden)]
pub use store::{Lookups, lookups};
pub use tokens::{NewToken, Scope, Token, TokenFile};
