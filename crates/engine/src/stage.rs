//! The stages of a group of streams: the source, the transforms and the destination. Each runs on its own thread and
//! makes synchronous calls.

mod keys;
mod read;
mod sessions;
mod transform;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::Receiver as Told;
use rapidbyte_runtime::{
    Cancel, Clock, Limits, MemoryBudget, Phase, Position, Reject, RejectOrigin, Sandbox, Source,
    Stream,
};

use rapidbyte_wire::ipc;

use crate::channel::Sender;
use crate::compress::Frame;
use crate::document::Verify;
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

/// A message from stage to stage. `member` is the position of the stream in [`Work::members`].
pub(crate) enum Message {
    /// A batch, compressed or not.
    Batch {
        member: usize,
        frame: Frame,
        rows: u64,
    },
    /// Keys of the rows that the source has, after the last row.
    Keys {
        member: usize,
        frame: Frame,
        rows: u64,
    },
    /// All keys of the stream have come.
    AllKeys { member: usize },
    /// All rows of the stream before it belong to this cursor.
    Checkpoint { member: usize, cursor: String },
    /// Records that the source cannot read, or rows that a transform cannot take.
    Rejects {
        member: usize,
        origin: RejectOrigin,
        rejects: Vec<Reject>,
    },
}

/// A message of the destination to the source.
pub(crate) enum Answer {
    /// Before it reads: where each stream begins.
    Begin(Vec<Begin>),
    /// These cursors are committed. Their numbers are positions in [`Work::members`].
    Committed(Vec<Position>),
}

/// Where a stream begins.
#[derive(Clone)]
pub(crate) enum Begin {
    /// Read on from there, or from the beginning.
    From(Option<String>),
    /// This run has moved the stream already.
    Nothing,
}

/// One stream of a group, whose streams are read together and committed together.
pub(crate) struct Member<'a> {
    pub stream: &'a StreamPlan,
    pub progress: &'a StreamProgress,
    /// Set when the source has given as many rows as the operator allows.
    pub is_limited: AtomicBool,
}

/// Bytes that a message of the channel counts beside its frame.
const MESSAGE_OVERHEAD: usize = 256;
/// How long a reader may look for its next event. It hands over the rows that it has by then, so
/// that what is shown moves where batches fill slowly.
const WAIT_MS: u32 = 250;

/// The group and the run that all of its stages work on.
pub(crate) struct Work<'a> {
    pub plan: &'a Plan,
    /// The sessions that planned.
    pub held: &'a Held,
    /// The streams that move together: mostly one.
    pub members: &'a [Member<'a>],
    pub host: &'a Host,
    pub memory: Arc<MemoryBudget>,
    pub snapshot: &'a str,
    pub ledger: &'a Ledger<'a>,
    /// Sessions that the worker's last group left open.
    pub sessions: &'a Sessions,
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
            stream: self.only().map(str::to_owned),
        }
    }

    /// The name of the stream, if it moves alone.
    fn only(&self) -> Option<&str> {
        match self.members {
            [one] => Some(&one.stream.name),
            _ => None,
        }
    }

    /// To be asked whether a newer run has overtaken this one.
    fn asking<'b>(&'b self, stream: &'b StreamPlan) -> Asking<'b> {
        Asking {
            plan: self.plan,
            stream,
            ledger: self.ledger,
        }
    }

    /// Whether the destination decides where the read of a stream begins.
    fn goes_on(&self, stream: &StreamPlan) -> bool {
        stream.increment.is_some() && !self.plan.full_refresh
    }

    /// Whether another group of the run follows or is at work.
    fn has_others(&self) -> bool {
        self.plan.streams.len() > self.members.len()
    }

    /// Whether the source can end before the destination begins, on the same thread: it has all rows in memory, no more
    /// than fit in a batch, and the destination decides on nothing that it reads.
    pub(crate) fn is_at_hand(&self) -> bool {
        let [Member { stream, .. }] = self.members else {
            return false;
        };
        let is_whole = stream.increment.is_none() && stream.keys.is_none();
        let is_plain = stream.transforms.is_empty() && stream.replay.is_none();
        if !self.host.is_short() || !is_whole || !is_plain {
            return false;
        }
        let at_hand = self.held.with_coordinator(|source| source.bytes_at_hand());
        let most = self.plan.document.resources.batch_bytes;
        at_hand.flatten().is_some_and(|bytes| bytes as u64 <= most)
    }

    /// The session that holds the snapshot, if the group reads all streams of the run. An incremental read has another
    /// session, so that a retry reads in the same snapshot. So has a stream whose keys are read in it after its rows.
    fn take_coordinator(&self) -> Option<Source> {
        let mut members = self.members.iter();
        let is_once = |stream: &StreamPlan| stream.increment.is_none() && stream.keys.is_none();
        let is_whole = members.all(|member| is_once(member.stream));
        // A comparison at the end needs the snapshot.
        let is_kept = self.plan.document.verify == Verify::AfterRun;
        let is_alone = is_whole && !self.has_others() && !is_kept;
        is_alone.then(|| self.held.take_coordinator()).flatten()
    }

    /// Reaches a failpoint, where a test may inject a fault.
    fn point(&self, name: &str) -> Result<(), Stopped> {
        let failed = |failure| Stopped::because(self.named(failure));
        ledger::point_of_run(name).map_err(failed)
    }

    fn failed(&self, error: rapidbyte_runtime::Error, side: &str) -> Failure {
        self.named(Failure::from_runtime(error, &self.plan.document, side))
    }

    /// A failure with the stream, if it moves alone.
    fn named(&self, failure: Failure) -> Failure {
        match (&failure.stream, self.only()) {
            (None, Some(stream)) => failure.in_stream(stream),
            _ => failure,
        }
    }
}

/// Bytes that a message takes in a channel.
fn message_bytes(message: &Message) -> usize {
    MESSAGE_OVERHEAD
        + match message {
            Message::Batch { frame, .. } | Message::Keys { frame, .. } => frame.bytes.len(),
            Message::AllKeys { .. } => 0,
            Message::Checkpoint { cursor, .. } => cursor.len(),
            Message::Rejects { rejects, .. } => {
                let bytes = |reject: &Reject| reject.data.len() + reject.message.len() + 256;
                rejects.iter().map(bytes).sum()
            }
        }
}

/// Whether the columns match the plan. The rest of a schema may change while rows move, for example the comment of a
/// table, or which run of a server it was read from.
fn has_same_columns(found: &[u8], planned: &[u8]) -> bool {
    let fields = |schema| ipc::decode_schema(schema).map(|schema| schema.fields);
    found == planned || matches!((fields(found), fields(planned)), (Ok(a), Ok(b)) if a == b)
}

fn schema_changed(stream: &StreamPlan) -> Failure {
    Failure::new(
        Class::Contract,
        "schema_changed",
        "the schema differs from the plan",
    )
    .in_stream(&stream.name)
    .hint("run again: the table or file changed after the plan")
}

fn compress_failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::because(Failure::new(Class::Run, "compress_failed", error))
}

fn decompress_failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::because(Failure::new(Class::Run, "decompress_failed", error))
}

/// The source has found other columns in the data of a stream.
pub(crate) struct Changed {
    /// The position of the stream in [`Work::members`].
    pub member: usize,
    /// The stream with all columns that it has now.
    pub described: Stream,
    /// The failure of a run that does not follow the change.
    pub cause: Failure,
}

/// Why a stage stopped early.
pub(crate) enum Stopped {
    /// This stage found the cause.
    Failed(Box<Failure>),
    /// The stream has to be planned again.
    Changed(Box<Changed>),
    /// Another stage did.
    Peer,
}

impl Stopped {
    /// This stage found the cause.
    pub fn because(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

/// Sends a message on, and counts the time that it waits.
fn send(
    work: &Work<'_>,
    sender: &mut Sender<Message>,
    message: Message,
    clock: &Clock,
) -> Result<(), Stopped> {
    work.point("engine.send")?;
    let bytes = message_bytes(&message);
    let before = clock.enter(Phase::ChannelWait);
    let waits = |is_waiting| {
        let members = work.members.iter();
        members.for_each(|member| member.progress.set_source_waits(is_waiting));
    };
    waits(true);
    let sent = sender.send(message, bytes);
    waits(false);
    clock.enter(before);
    sent.map_err(|_| Stopped::Peer)
}
