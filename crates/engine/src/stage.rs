//! The two stages of a stream. Each runs on its own thread and makes synchronous calls.

use std::sync::Arc;

use rapidbyte_runtime::{
    Batch, Cancel, Clock, Event, Limits, MemoryBudget, Phase, ReadRequest, Receipt, Sandbox,
};

use rapidbyte_wire::ipc;
use rapidbyte_wire::verify::Layout;

use crate::channel::{Received, Receiver, Sender};
use crate::compress::{Compressor, Decompressor, Frame};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::{Plan, Stage, StreamPlan};
use crate::progress::StreamProgress;

/// What travels from stage to stage.
pub(crate) enum Message {
    /// A batch, compressed or not.
    Batch { frame: Frame, rows: u64 },
    /// Everything before it belongs to this cursor.
    Checkpoint(String),
}

/// Bytes that a message of the channel counts beside its frame.
const MESSAGE_OVERHEAD: usize = 256;
/// How long a reader may look for its next event. It hands over the rows that it has by then, so
/// that what is shown moves where batches fill slowly.
const WAIT_MS: u32 = 250;

/// What both stages of a stream are given.
pub(crate) struct Work<'a> {
    pub plan: &'a Plan,
    pub stream: &'a StreamPlan,
    pub host: &'a Host,
    pub memory: Arc<MemoryBudget>,
    pub snapshot: &'a str,
    pub progress: &'a StreamProgress,
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
                ..Limits::default()
            },
            clock: clock.clone(),
            cancel: cancel.clone(),
            log: Arc::clone(&self.host.log),
            stream: Some(self.stream.name.clone()),
        }
    }

    fn failed(&self, error: rapidbyte_runtime::Error, side: &str) -> Failure {
        let failure = Failure::from_runtime(error, &self.plan.document, side);
        match failure.stream {
            Some(_) => failure,
            None => failure.in_stream(&self.stream.name),
        }
    }
}

/// Why a stage stopped early.
pub(crate) enum Stopped {
    /// This stage found the cause.
    Failed(Box<Failure>),
    /// The other stage did.
    Peer,
}

impl Stopped {
    /// This stage found the cause.
    pub fn because(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

/// Reads until the end and says so; returning early drops the sender, which is an abort.
pub(crate) fn pump_source(
    work: &Work<'_>,
    mut sender: Sender<Message>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "source"));
    let stage = &work.plan.source;
    let mut source = stage
        .connector
        .source(work.sandbox(stage, clock, cancel))
        .map_err(failed)?;
    source.open(&stage.config).map_err(failed)?;
    let resources = &work.plan.document.resources;
    let schema = source
        .read(&ReadRequest {
            stream: work.stream.name.clone(),
            snapshot: work.snapshot.into(),
            cursor: None,
            columns: work.stream.columns.clone(),
            filter: work.stream.filter.clone(),
            forms: work.plan.forms(),
            batch_bytes: u32::try_from(resources.batch_bytes).unwrap_or(u32::MAX),
            max_record_bytes: resources.max_record_bytes,
        })
        .map_err(failed)?;
    if schema != work.stream.read_schema {
        return Err(Stopped::because(schema_changed(work)));
    }
    let compress_failed = |e| Stopped::because(Failure::new(Class::Run, "compress_failed", e));
    let mut compressor = Compressor::new(resources.compression).map_err(compress_failed)?;
    let mut limit = Limit::of(work).map_err(Stopped::because)?;
    loop {
        match source.next(WAIT_MS).map_err(failed)? {
            Event::Batch(mut batch) => {
                let is_last = limit
                    .cut(&mut batch)
                    .map_err(|e| Stopped::because(e.in_stream(&work.stream.name)))?;
                let before = clock.enter(Phase::Compress);
                let frame = compressor.compress(batch.data);
                clock.enter(before);
                let frame = frame.map_err(compress_failed)?;
                let bytes = frame.bytes.len() + MESSAGE_OVERHEAD;
                send(
                    work,
                    &mut sender,
                    Message::Batch {
                        frame,
                        rows: batch.rows,
                    },
                    bytes,
                    clock,
                )?;
                if is_last {
                    return sender.end().map_err(|_| Stopped::Peer);
                }
            }
            Event::Checkpoint(cursor) => {
                let bytes = cursor.len() + MESSAGE_OVERHEAD;
                send(work, &mut sender, Message::Checkpoint(cursor), bytes, clock)?;
            }
            Event::Idle => {}
            Event::End => {
                return sender.end().map_err(|_| Stopped::Peer);
            }
        }
    }
}

/// How many rows a stream may still give, where the operator limits them.
struct Limit(Option<(u64, Layout)>);

impl Limit {
    fn of(work: &Work<'_>) -> Result<Self, Failure> {
        let Some(rows) = work.plan.limit else {
            return Ok(Self(None));
        };
        let layout = ipc::decode_schema(&work.stream.read_schema).and_then(|s| Layout::of(&s));
        let layout = layout.map_err(|e| Failure::new(Class::Run, "contract_broken", e))?;
        Ok(Self(Some((rows, layout))))
    }

    /// Takes the rows beyond the limit off a batch; true when there are none to come.
    fn cut(&mut self, batch: &mut Batch) -> Result<bool, Failure> {
        let Some((left, layout)) = &mut self.0 else {
            return Ok(false);
        };
        if batch.rows > *left {
            layout
                .truncate(&mut batch.data, *left)
                .map_err(|e| Failure::new(Class::Run, "contract_broken", e))?;
            batch.rows = *left;
        }
        *left -= batch.rows;
        Ok(*left == 0)
    }
}

fn send(
    work: &Work<'_>,
    sender: &mut Sender<Message>,
    message: Message,
    bytes: usize,
    clock: &Clock,
) -> Result<(), Stopped> {
    let before = clock.enter(Phase::ChannelWait);
    work.progress.set_source_waits(true);
    let sent = sender.send(message, bytes);
    work.progress.set_source_waits(false);
    clock.enter(before);
    sent.map_err(|_| Stopped::Peer)
}

fn schema_changed(work: &Work<'_>) -> Failure {
    Failure::new(
        Class::Contract,
        "schema_changed",
        "the schema is not the one that was planned",
    )
    .in_stream(&work.stream.name)
    .hint("the table or file changed in between; run again")
}

/// What a destination stage did.
pub(crate) struct Written {
    pub rows: u64,
    pub bytes: u64,
    pub batches: u64,
    pub receipt: Receipt,
    /// The last checkpoint before the commit, to be acknowledged.
    pub cursor: Option<String>,
}

/// Writes until the end is said, then commits. An abort is never an end.
pub(crate) fn pump_destination(
    work: &Work<'_>,
    receiver: &mut Receiver<Message>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<Written, Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "destination"));
    let stage = &work.plan.destination;
    let name = &work.stream.name;
    let mut destination = stage
        .connector
        .destination(work.sandbox(stage, clock, cancel))
        .map_err(failed)?;
    destination.open(&stage.config).map_err(failed)?;
    let fence = destination.fence(name).map_err(failed)?;
    destination
        .open_writer(&work.stream.target, fence.epoch)
        .map_err(failed)?;
    work.host
        .say(name, &format!("writes to {}", work.stream.placed.location));
    let mut decompressor = Decompressor::new(work.batch_limit());
    let (mut rows, mut bytes, mut batches) = (0, 0, 0);
    let mut cursor = None;
    loop {
        let before = clock.enter(Phase::ChannelWait);
        work.progress.set_destination_waits(true);
        let received = receiver.recv();
        work.progress.set_destination_waits(false);
        clock.enter(before);
        match received {
            Received::Item(Message::Batch {
                frame,
                rows: batch_rows,
            }) => {
                let before = clock.enter(Phase::Decompress);
                let data = decompressor.decompress(frame);
                clock.enter(before);
                let data = data.map_err(|e| {
                    Stopped::because(Failure::new(Class::Run, "decompress_failed", e))
                })?;
                let batch = Batch {
                    data,
                    rows: batch_rows,
                };
                destination.write(&batch).map_err(failed)?;
                rows += batch.rows;
                bytes += batch.data.len() as u64;
                batches += 1;
                work.progress.add(batch.rows, batch.data.len() as u64);
            }
            Received::Item(Message::Checkpoint(at)) => cursor = Some(at),
            Received::End => break,
            Received::Aborted => {
                // The first cause is the source's; a failing abort leaves what dropping leaves.
                let _ = destination.abort(name);
                return Err(Stopped::Peer);
            }
            Received::Cancelled => return Err(Stopped::because(Failure::cancelled())),
        }
    }
    let part = destination.flush().map_err(failed)?;
    if part.rows != rows {
        let text = format!("took {rows} rows and says it wrote {}", part.rows);
        return Err(Stopped::because(
            Failure::new(Class::Run, "contract_broken", text).in_stream(name),
        ));
    }
    let receipt = destination
        .commit(name, &[part], fence.seq, cursor.as_ref())
        .map_err(failed)?;
    if receipt.rows != rows {
        let text = format!("took {rows} rows and says it committed {}", receipt.rows);
        return Err(Stopped::because(
            Failure::new(Class::Run, "contract_broken", text)
                .in_stream(name)
                .hint("look at the target before you run again: a commit has happened"),
        ));
    }
    Ok(Written {
        rows,
        bytes,
        batches,
        receipt,
        cursor,
    })
}
