//! The reading stage.

use std::sync::atomic::Ordering;

use rapidbyte_runtime::{Batch, Cancel, Clock, Event, Phase, ReadRequest};
use rapidbyte_wire::ipc;
use rapidbyte_wire::verify::Layout;

use super::{
    Begin, Message, Stopped, Told, WAIT_MS, Work, compress_failed, has_same_columns, message_bytes,
};
use crate::channel::Sender;
use crate::compress::Compressor;
use crate::failure::{Class, Failure};

/// Reads until the end and says so; returning early drops the sender, which is an abort.
pub(crate) fn pump_source(
    work: &Work<'_>,
    mut sender: Sender<Message>,
    told: &Told<Begin>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "source"));
    let stage = &work.plan.source;
    let sandbox = work.sandbox(stage, clock, cancel);
    // The coordinator stays alive until the stream is read, even if it does not read it itself.
    let mut coordinator = work.take_coordinator();
    let handed_over = coordinator
        .take_if(|source| source.hand_over(sandbox.clone()))
        .or_else(|| {
            let mut kept = work.sessions.take_source();
            kept.take_if(|source| source.hand_over(sandbox.clone()))
        });
    let mut source = match handed_over {
        Some(source) => source,
        None => {
            let mut source = stage.connector.source(sandbox).map_err(failed)?;
            source.open(&stage.config).map_err(failed)?;
            source
        }
    };
    let wait = || {
        let before = clock.enter(Phase::ChannelWait);
        let begin = told.recv();
        clock.enter(before);
        begin.map_err(|_| Stopped::Peer)
    };
    // A full refresh begins at the same row whatever the destination says, so the source gets ready at the same time.
    let cursor = match work.goes_on() {
        false => None,
        true => match wait()? {
            Begin::From(cursor) => cursor,
            Begin::Nothing => return Ok(()),
        },
    };
    let resources = &work.plan.document.resources;
    let schema = source
        .read(&ReadRequest {
            stream: work.stream.name.clone(),
            snapshot: work.snapshot.into(),
            increment: work.stream.increment.clone(),
            cursor,
            columns: work.stream.columns.clone(),
            filter: work.stream.filter.clone(),
            forms: work.plan.forms.clone(),
            batch_bytes: u32::try_from(resources.batch_bytes).unwrap_or(u32::MAX),
            max_record_bytes: resources.max_record_bytes,
        })
        .map_err(failed)?;
    if !has_same_columns(&schema, &work.stream.read_schema) {
        return Err(Stopped::because(schema_changed(work)));
    }
    if !work.goes_on() && matches!(wait()?, Begin::Nothing) {
        // The destination has ended already and waits for nothing.
        return Ok(());
    }
    let mut compressor = Compressor::new(resources.compression).map_err(compress_failed)?;
    let mut limit = Limit::of(work).map_err(Stopped::because)?;
    loop {
        work.point("engine.read")?;
        match source.next(WAIT_MS).map_err(failed)? {
            Event::Batch(mut batch) => {
                let is_last = limit
                    .cut(&mut batch)
                    .map_err(|e| Stopped::because(e.in_stream(&work.stream.name)))?;
                let before = clock.enter(Phase::Compress);
                let frame = compressor.compress(batch.data);
                clock.enter(before);
                let frame = frame.map_err(compress_failed)?;
                let rows = batch.rows;
                send(work, &mut sender, Message::Batch { frame, rows }, clock)?;
                if is_last {
                    work.is_limited.store(true, Ordering::Relaxed);
                    return sender.end().map_err(|_| Stopped::Peer);
                }
            }
            Event::Checkpoint(cursor) => {
                send(work, &mut sender, Message::Checkpoint(cursor), clock)?;
            }
            Event::Idle => {}
            Event::End => {
                sender.end().map_err(|_| Stopped::Peer)?;
                if work.plan.streams.len() > 1 {
                    work.sessions.keep_source(source);
                }
                return Ok(());
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
    clock: &Clock,
) -> Result<(), Stopped> {
    work.point("engine.send")?;
    let bytes = message_bytes(&message);
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
        "the schema differs from the plan",
    )
    .in_stream(&work.stream.name)
    .hint("run again: the table or file changed after the plan")
}
