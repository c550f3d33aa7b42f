//! The stages of a stream: the source, its transforms and the destination. Each runs on its own thread and makes synchronous calls.

mod read;
mod sessions;
mod transform;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::Receiver as Told;
use rapidbyte_runtime::{Cancel, Clock, Limits, MemoryBudget, Sandbox, Source};

use rapidbyte_wire::ipc;

use crate::compress::Frame;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::ledger::{self, Ledger};
use crate::plan::{Held, Plan, Stage, StreamPlan};
use crate::progress::StreamProgress;
use crate::superseded::Asking;
pub(crate) use read::pump_source;
pub(crate) use sessions::Sessions;
pub(crate) use transform::pump_transform;
pub(crate) use write::pump_destination;

/// What travels from stage to stage.
pub(crate) enum Message {
    /// A batch, compressed or not.
    Batch { frame: Frame, rows: u64 },
    /// Everything before it belongs to this cursor.
    Checkpoint(String),
}

/// What the destination tells the source before it reads.
pub(crate) enum Begin {
    /// Read on from there, or from the beginning.
    From(Option<String>),
    /// This run has moved the stream already.
    Nothing,
}

/// Bytes that a message of the channel counts beside its frame.
const MESSAGE_OVERHEAD: usize = 256;
/// How long a reader may look for its next event. It hands over the rows that it has by then, so
/// that what is shown moves where batches fill slowly.
const WAIT_MS: u32 = 250;

/// What all stages of a stream are given.
pub(crate) struct Work<'a> {
    pub plan: &'a Plan,
    /// The sessions that planned.
    pub held: &'a Held,
    pub stream: &'a StreamPlan,
    pub host: &'a Host,
    pub memory: Arc<MemoryBudget>,
    pub snapshot: &'a str,
    pub progress: &'a StreamProgress,
    pub ledger: &'a Ledger<'a>,
    /// What the worker's last stream left open.
    pub sessions: &'a Sessions,
    /// Set when the source has given as many rows as the operator allows.
    pub is_limited: &'a AtomicBool,
}

impl Work<'_> {
    /// Bytes of the largest batch message: one record above the target size may still come in
    /// one batch, and padding comes on top.
    fn batch_limit(&self) -> usize {
        let resources = &self.plan.document.resources;
        (4 * resources.batch_bytes + resources.max_record_bytes + (1 << 20)) as usize
    }

    fn sandbox(&self, stage: &Stage, clock: &Clock, cancel: &Cancel) -> Sandbox {
        Sandbox {
            grants: Arc::clone(&stage.grants),
            memory: Arc::clone(&self.memory),
            limits: Limits {
                batch_bytes: self.batch_limit(),
                value_bytes: self.plan.document.resources.max_record_bytes as usize,
                ..stage.limits.clone()
            },
            clock: clock.clone(),
            cancel: cancel.clone(),
            log: self.host.log_sink(),
            redact: self.plan.document.redactor(),
            stream: Some(self.stream.name.clone()),
        }
    }

    /// To be asked whether a newer run has overtaken this one.
    fn asking(&self) -> Asking<'_> {
        Asking {
            plan: self.plan,
            stream: self.stream,
            ledger: self.ledger,
        }
    }

    /// Where the read begins is for the destination to say.
    fn goes_on(&self) -> bool {
        self.stream.increment.is_some() && !self.plan.full_refresh
    }

    /// The session that holds the snapshot, to read the only stream there is. Where the source is told
    /// of commits meanwhile it has a session of its own for that.
    fn take_coordinator(&self) -> Option<Source> {
        let is_alone = self.plan.streams.len() == 1 && self.stream.increment.is_none();
        is_alone.then(|| self.held.take_coordinator()).flatten()
    }

    /// Reaches a named point, where a test may inject a fault.
    fn point(&self, name: &str) -> Result<(), Stopped> {
        ledger::point(name, &self.stream.name).map_err(Stopped::because)
    }

    fn failed(&self, error: rapidbyte_runtime::Error, side: &str) -> Failure {
        let failure = Failure::from_runtime(error, &self.plan.document, side);
        match failure.stream {
            Some(_) => failure,
            None => failure.in_stream(&self.stream.name),
        }
    }
}

/// Bytes that a message takes in a channel.
fn message_bytes(message: &Message) -> usize {
    MESSAGE_OVERHEAD
        + match message {
            Message::Batch { frame, .. } => frame.bytes.len(),
            Message::Checkpoint(cursor) => cursor.len(),
        }
}

/// Whether the columns are those of the plan. What else a schema says of a table, such as its comment or which run of a
/// server it was read from, may change while rows are moved.
fn has_same_columns(found: &[u8], planned: &[u8]) -> bool {
    let fields = |schema| ipc::decode_schema(schema).map(|schema| schema.fields);
    found == planned || matches!((fields(found), fields(planned)), (Ok(a), Ok(b)) if a == b)
}

fn compress_failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::because(Failure::new(Class::Run, "compress_failed", error))
}

fn decompress_failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::because(Failure::new(Class::Run, "decompress_failed", error))
}

/// Why a stage stopped early.
pub(crate) enum Stopped {
    /// This stage found the cause.
    Failed(Box<Failure>),
    /// Another stage did.
    Peer,
}

impl Stopped {
    /// This stage found the cause.
    pub fn because(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}
