//! The reading stage.

use std::sync::atomic::Ordering;

use rapidbyte_runtime::{
    Batch, Cancel, Change, Clock, Error, Event, NewColumn, Phase, Position, ReadRequest,
    RejectOrigin, Source,
};
use rapidbyte_wire::ipc;
use rapidbyte_wire::verify::Layout;

use super::keys::send_keys;
use super::{
    Answer, Begin, Changed, Message, Stopped, Told, WAIT_MS, Work, compress_failed,
    has_same_columns, schema_changed, send,
};
use crate::channel::Sender;
use crate::compress::Compressor;
use crate::failure::{Class, Failure};
use crate::idle;
use crate::plan::{Replay, StreamPlan};

/// Reads until the end and says so. Returning early drops the sender, which is an abort. Without `told`, the destination
/// begins when this has ended: only where it tells the source nothing that matters ([`Work::is_at_hand`]).
pub(crate) fn pump_source(
    work: &Work<'_>,
    mut sender: Sender<Message>,
    told: Option<Told<Answer>>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    if let [one] = work.members
        && let Some(Replay::Rows(batches)) = &one.stream.replay
    {
        return send_rows(work, sender, batches, clock);
    }
    let failed = |e| Stopped::because(work.failed(e, "source"));
    let mut source = open(work, clock, cancel)?;
    let wait = || {
        let Some(told) = &told else {
            return Err(Stopped::Peer);
        };
        let before = clock.enter(Phase::ChannelWait);
        let begin = told.recv();
        clock.enter(before);
        match begin {
            Ok(Answer::Begin(begin)) => Ok(begin),
            _ => Err(Stopped::Peer),
        }
    };
    // A full refresh begins at the same row whatever the destination says, so the source gets ready at the same time.
    let is_sure = match work.members {
        [one] => !work.goes_on(one.stream),
        _ => false,
    };
    let begin = match is_sure {
        true => vec![Begin::From(None)],
        false => wait()?,
    };
    let Some(mut reading) = Reading::begin(work, &mut source, begin)? else {
        return Ok(());
    };
    if is_sure && told.is_some() && matches!(wait()?.as_slice(), [Begin::Nothing]) {
        // The destination has ended already and waits for nothing.
        return Ok(());
    }
    let compression = work.plan.document.resources.compression;
    let mut compressor = Compressor::new(compression).map_err(compress_failed)?;
    loop {
        work.point("engine.read")?;
        match source.next(WAIT_MS).map_err(failed)? {
            Event::Batch((number, mut batch)) => {
                let stream = &mut reading.streams[number as usize];
                if stream.is_complete {
                    continue;
                }
                let member = stream.member;
                let about = &work.members[member];
                let is_last = stream.limit.cut(&mut batch);
                let is_last =
                    is_last.map_err(|e| Stopped::because(e.in_stream(&about.stream.name)))?;
                let before = clock.enter(Phase::Compress);
                let frame = compressor.compress(batch.data);
                clock.enter(before);
                let frame = frame.map_err(compress_failed)?;
                let rows = batch.rows;
                let message = Message::Batch {
                    member,
                    frame,
                    rows,
                };
                send(work, &mut sender, message, clock)?;
                if is_last {
                    about.is_limited.store(true, Ordering::Relaxed);
                    stream.is_complete = true;
                    if reading.streams.iter().all(|stream| stream.is_complete) {
                        return sender.end().map_err(|_| Stopped::Peer);
                    }
                }
            }
            Event::Checkpoint(Position { stream, cursor }) => {
                let member = reading.streams[stream as usize].member;
                send(
                    work,
                    &mut sender,
                    Message::Checkpoint { member, cursor },
                    clock,
                )?;
            }
            Event::Rejects((stream, rejects)) => {
                let StreamRead {
                    member,
                    is_complete,
                    ..
                } = reading.streams[stream as usize];
                if !is_complete {
                    send(
                        work,
                        &mut sender,
                        Message::Rejects {
                            member,
                            origin: RejectOrigin::Source,
                            rejects,
                        },
                        clock,
                    )?;
                }
            }
            Event::Changed((stream, change)) => {
                return Err(changed(
                    work,
                    reading.streams[stream as usize].member,
                    change,
                ));
            }
            Event::Idle => {}
            Event::End => break,
        }
        while let Some(Ok(answer)) = told.as_ref().map(Told::try_recv) {
            reading.acknowledge(work, &mut source, answer)?;
        }
    }
    for read in &reading.streams {
        let request = request(work, work.members[read.member].stream, None);
        let way = (&mut compressor, &mut sender);
        send_keys(work, &mut source, read.member, request, way, clock)?;
    }
    sender.end().map_err(|_| Stopped::Peer)?;
    let mut streams = work.members.iter().map(|member| member.stream);
    // A reader of keys acknowledges nothing. The cursor of the next run says what is committed.
    let has_read_keys = streams.clone().any(|stream| stream.keys.is_some());
    if streams.any(|stream| stream.increment.is_some()) {
        let before = clock.enter(Phase::ChannelWait);
        // Until the destination has ended.
        while let Some(Ok(answer)) = told.as_ref().map(Told::recv) {
            clock.enter(before);
            if !has_read_keys {
                reading.acknowledge(work, &mut source, answer)?;
            }
            clock.enter(Phase::ChannelWait);
        }
        clock.enter(before);
    }
    if work.has_others() {
        work.sessions.keep_source(source);
    } else if let Some(reuse) = &work.host.reuse {
        reuse.leave(&work.plan.source, source);
    }
    Ok(())
}

/// Ends the stage because of a change that the run follows.
fn changed(work: &Work<'_>, member: usize, change: Change) -> Stopped {
    let Change { described, cause } = change;
    let cause = Error::Failed {
        connector: work.plan.source.connector.name().to_owned(),
        export: "reader.next",
        phase: None,
        error: Box::new(cause),
    };
    Stopped::Changed(Box::new(Changed {
        member,
        described,
        cause: work.failed(cause, "source"),
    }))
}

/// Sends rows that are replayed, without the source.
fn send_rows(
    work: &Work<'_>,
    mut sender: Sender<Message>,
    batches: &[Batch],
    clock: &Clock,
) -> Result<(), Stopped> {
    let compression = work.plan.document.resources.compression;
    let mut compressor = Compressor::new(compression).map_err(compress_failed)?;
    for batch in batches {
        work.point("engine.read")?;
        let frame = compressor.compress(batch.data.clone());
        let frame = frame.map_err(compress_failed)?;
        let message = Message::Batch {
            member: 0,
            frame,
            rows: batch.rows,
        };
        send(work, &mut sender, message, clock)?;
    }
    sender.end().map_err(|_| Stopped::Peer)
}

/// The session that reads: one that is open already, or a new one.
fn open(work: &Work<'_>, clock: &Clock, cancel: &Cancel) -> Result<Source, Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "source"));
    let stage = &work.plan.source;
    let sandbox = work.sandbox(stage, clock, cancel);
    let kept = work
        .take_coordinator()
        .or_else(|| work.sessions.take_source());
    if let Some(mut source) = kept
        && source.hand_over(sandbox.clone())
    {
        return Ok(source);
    }
    idle::new_session(work.host.reuse.as_ref(), stage, sandbox).map_err(failed)
}

/// A read of the streams of a group that are not done yet.
struct Reading {
    /// In order of the requests.
    streams: Vec<StreamRead>,
}

struct StreamRead {
    /// Its position in [`Work::members`].
    member: usize,
    limit: Limit,
    /// It has given as many rows as the operator allows.
    is_complete: bool,
}

impl Reading {
    /// Begins the read. `None` if nothing is to be read.
    fn begin(
        work: &Work<'_>,
        source: &mut Source,
        begin: Vec<Begin>,
    ) -> Result<Option<Self>, Stopped> {
        let (mut streams, mut requests) = (Vec::new(), Vec::new());
        for (member, begin) in begin.into_iter().enumerate() {
            let Begin::From(cursor) = begin else {
                continue;
            };
            let stream = work.members[member].stream;
            let limit = Limit::of(work, stream).map_err(Stopped::because)?;
            streams.push(StreamRead {
                member,
                limit,
                is_complete: false,
            });
            requests.push(request(work, stream, cursor));
        }
        if streams.is_empty() {
            return Ok(None);
        }
        let schemas = source.read(&requests);
        let schemas = schemas.map_err(|e| Stopped::because(work.failed(e, "source")))?;
        for (schema, StreamRead { member, .. }) in schemas.iter().zip(&streams) {
            let stream = work.members[*member].stream;
            if !has_same_columns(schema, &stream.read_schema) {
                return Err(Stopped::because(schema_changed(stream)));
            }
        }
        Ok(Some(Self { streams }))
    }

    /// Tells the source what is committed.
    fn acknowledge(
        &self,
        work: &Work<'_>,
        source: &mut Source,
        answer: Answer,
    ) -> Result<(), Stopped> {
        let Answer::Committed(positions) = answer else {
            return Ok(());
        };
        let numbered = |Position { stream, cursor }| {
            let is_it = |read: &StreamRead| read.member == stream as usize;
            let stream = self.streams.iter().position(is_it)? as u32;
            Some(Position { stream, cursor })
        };
        let positions: Vec<Position> = positions.into_iter().filter_map(numbered).collect();
        let acknowledged = source.acknowledge(&positions);
        acknowledged.map_err(|e| Stopped::because(work.failed(e, "source")))?;
        work.point("engine.acknowledged")
    }
}

fn request(work: &Work<'_>, stream: &StreamPlan, cursor: Option<String>) -> ReadRequest {
    let resources = &work.plan.document.resources;
    let keeps_rejects = stream.target.rejects.is_some() && work.plan.source.spec.supports_rejects;
    let changes = &stream.target.schema_changes;
    // A replay and a repair change no target.
    let follows = stream.replay.is_none() && stream.target.repairs.is_none();
    ReadRequest {
        stream: stream.name.clone(),
        schema: stream.discovered.schema.clone(),
        snapshot: work.snapshot.into(),
        increment: stream.increment.clone(),
        cursor,
        columns: stream.columns.clone(),
        filter: stream.filter.clone(),
        query: stream.query.clone(),
        forms: work.plan.forms.clone(),
        batch_bytes: u32::try_from(resources.batch_bytes).unwrap_or(u32::MAX),
        max_record_bytes: resources.max_record_bytes,
        keeps_rejects,
        records: match &stream.replay {
            Some(Replay::Records(records)) => Some(records.clone()),
            _ => None,
        },
        rows: match &stream.replay {
            Some(Replay::Keys(rows)) => Some(rows.clone()),
            _ => None,
        },
        follows_columns: follows && changes.new_column != NewColumn::Fail,
        // A record that does not fit is a reject, and does not change the type for all others.
        follows_types: match follows && !keeps_rejects {
            true => stream.free_types(),
            false => Vec::new(),
        },
    }
}

/// How many rows a stream may still give, where the operator limits them.
struct Limit(Option<(u64, Layout)>);

impl Limit {
    fn of(work: &Work<'_>, stream: &StreamPlan) -> Result<Self, Failure> {
        let Some(rows) = work.plan.limit else {
            return Ok(Self(None));
        };
        let layout = ipc::decode_schema(&stream.read_schema).and_then(|s| Layout::of(&s));
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
