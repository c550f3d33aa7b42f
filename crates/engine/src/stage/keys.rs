//! The keys of a stream behind its rows: the source reads them in the snapshot of the rows, and the destination deletes
//! or marks the rows of its target whose keys did not come.

use rapidbyte_runtime::{Batch, Clock, Destination, Event, Part, Phase, ReadRequest, Source};

use super::write::{KeysWritten, Written};
use super::{
    Message, Stopped, WAIT_MS, Work, compress_failed, has_same_columns, schema_changed, send,
};
use crate::channel::Sender;
use crate::compress::Compressor;
use crate::failure::{Class, Failure};

/// Reads the keys of the stream of a member after its rows, and sends them to the destination. Nothing for a stream
/// whose keys are not compared.
pub(super) fn send_keys(
    work: &Work<'_>,
    source: &mut Source,
    member: usize,
    request: ReadRequest,
    (compressor, sender): (&mut Compressor, &mut Sender<Message>),
    clock: &Clock,
) -> Result<(), Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "source"));
    let stream = work.members[member].stream;
    let Some(keys) = &stream.keys else {
        return Ok(());
    };
    work.host.say(
        &stream.name,
        "reads the keys of all rows, to find deleted rows",
    );
    if !source.finish() {
        // Such as by a destination that has failed: it says why.
        if source.is_cancelled() {
            return Err(Stopped::because(Failure::cancelled()));
        }
        let text = "the source cannot read the keys of the stream after its rows";
        let failure = Failure::new(Class::Run, "contract_broken", text).in_stream(&stream.name);
        return Err(Stopped::because(failure));
    }
    work.point("engine.read_keys")?;
    let schemas = source.read(&[ReadRequest {
        keeps_rejects: false,
        records: None,
        rows: None,
        increment: None,
        cursor: None,
        columns: Some(keys.columns.clone()),
        filter: None,
        follows_columns: false,
        follows_types: Vec::new(),
        ..request
    }]);
    let is_same = |schema: &Vec<u8>| has_same_columns(schema, &keys.schema);
    if !schemas.map_err(failed)?.iter().all(is_same) {
        return Err(Stopped::because(schema_changed(stream)));
    }
    loop {
        match source.next(WAIT_MS).map_err(failed)? {
            Event::Batch((_, Batch { data, rows })) => {
                let before = clock.enter(Phase::Compress);
                let frame = compressor.compress(data);
                clock.enter(before);
                let message = Message::Keys {
                    member,
                    frame: frame.map_err(compress_failed)?,
                    rows,
                };
                send(work, sender, message, clock)?;
            }
            // Without an increment, the host takes no checkpoint.
            // It follows no changes either.
            Event::Idle | Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) => {}
            Event::End => return send(work, sender, Message::AllKeys { member }, clock),
        }
    }
}

impl Written<'_> {
    /// Flushes the rows, and begins to write the keys if that has not happened yet.
    pub(super) fn open_keys(
        &mut self,
        work: &Work<'_>,
        destination: &mut Destination,
    ) -> Result<&mut KeysWritten, Stopped> {
        if self.keys.is_none() {
            let failed = |e| Stopped::because(work.failed(e, "destination"));
            let part = self.flush(work, destination)?;
            work.point("engine.open_keys")?;
            destination.open_keys(self.number).map_err(failed)?;
            self.keys = Some(KeysWritten {
                part,
                count: 0,
                is_complete: false,
            });
        }
        let keys = self.keys.as_mut();
        keys.ok_or_else(|| Stopped::because(Failure::new(Class::Run, "internal", "no keys")))
    }

    pub(super) fn write_keys(
        &mut self,
        work: &Work<'_>,
        destination: &mut Destination,
        batch: &Batch,
    ) -> Result<(), Stopped> {
        let number = self.number;
        self.open_keys(work, destination)?.count += batch.rows;
        let written = destination.write_keys(number, batch);
        written.map_err(|e| Stopped::because(work.failed(e, "destination")))
    }

    /// All keys have come, if any.
    pub(super) fn has_all_keys(
        &mut self,
        work: &Work<'_>,
        destination: &mut Destination,
    ) -> Result<(), Stopped> {
        self.open_keys(work, destination)?.is_complete = true;
        Ok(())
    }

    /// The part of the last commit: ends the keys, if the destination compares them.
    pub(super) fn end_keys(
        &mut self,
        work: &Work<'_>,
        destination: &mut Destination,
    ) -> Result<Part, Stopped> {
        if self.stream.keys.is_none() {
            return self.flush(work, destination);
        }
        let number = self.number;
        let (part, count) = match &self.keys {
            Some(keys) if keys.is_complete => (keys.part.clone(), keys.count),
            _ => {
                let text = "the rows of a stream ended without its keys";
                let failure = Failure::new(Class::Run, "internal", text);
                return Err(Stopped::because(failure.in_stream(&self.stream.name)));
            }
        };
        let ended = destination.flush_keys(number);
        let ended = ended.map_err(|e| Stopped::because(work.failed(e, "destination")))?;
        if ended.rows != count {
            let text = format!("received {count} keys and reports {}", ended.rows);
            let lied = self.lied(work, text, "writer.flush");
            return Err(Stopped::because(lied));
        }
        Ok(part)
    }
}
