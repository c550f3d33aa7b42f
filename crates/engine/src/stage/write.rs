//! The writing stage.

use std::collections::HashSet;
use std::time::Instant;

use crossbeam_channel::Sender as Tell;
use rapidbyte_runtime::{Batch, Cancel, Clock, Destination, Phase, Progress, WriteMode};

use super::{Begin, Message, Stopped, Work, decompress_failed};
use crate::channel::{Received, Receiver};
use crate::compress::{Decompressor, Frame};
use crate::document::Checkpoint;
use crate::failure::{Class, Failure};
use crate::known_as;
use crate::ledger::Committed;

/// Writes until the source has emitted its end, and commits at the checkpoints that are due and at the end. An abort is
/// never an end.
pub(crate) fn pump_destination(
    work: &Work<'_>,
    receiver: &mut Receiver<Message>,
    tell: &Tell<Begin>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "destination"));
    let stage = &work.plan.destination;
    let name = &work.stream.name;
    let sandbox = work.sandbox(stage, clock, cancel);
    // One whose memory does not fit ends here, and its connection with it.
    let kept = work
        .held
        .take_writer()
        .or_else(|| work.sessions.take_destination());
    let handed_over = kept.and_then(|mut kept| kept.hand_over(sandbox.clone()).then_some(kept));
    let mut destination = match handed_over {
        Some(destination) => destination,
        None => {
            let mut destination = stage.connector.destination(sandbox).map_err(failed)?;
            destination.open(&stage.config).map_err(failed)?;
            destination
        }
    };
    let is_done_before = work.asking().is_done(&mut destination);
    if is_done_before.map_err(Stopped::because)? {
        skip(
            work,
            tell,
            "was committed by the dead run that this run succeeds",
        );
        return Ok(());
    }
    let earlier = Earlier::of(work, &mut destination).map_err(Stopped::because)?;
    let before = work.asking().refuse(&mut destination);
    let before = before.map_err(Stopped::because)?;
    let fenced = destination
        .fence(&work.stream.target, work.ledger.run_of(name))
        .map_err(failed)?;
    work.point("engine.fenced")?;
    work.ledger.heal(name, &fenced);
    work.asking().let_in(before, &fenced);
    if earlier.is_done(work, &fenced) {
        skip(
            work,
            tell,
            "was committed by an earlier attempt of this run",
        );
        return Ok(());
    }
    let cursor = work.goes_on().then(|| fenced.cursor.clone()).flatten();
    destination
        .open_writer(&work.stream.target, fenced.epoch, cursor.as_ref())
        .map_err(failed)?;
    // The source has failed when nobody listens, and says so through the channel.
    let _ = tell.send(Begin::From(cursor.clone()));
    work.host
        .say(name, &format!("writes to {}", work.stream.location));
    Pump {
        work,
        destination,
        clock,
        progress: fenced,
        from: cursor,
        open: Open::default(),
        checkpoint: None,
        since: Instant::now(),
    }
    .run(receiver)
}

/// What earlier attempts of the run have appended of a full refresh. It must not be appended twice when the run that has
/// committed it was killed before it could say so.
#[derive(Default)]
struct Earlier {
    /// The ids under which it was appended to this target.
    ids: HashSet<String>,
    /// Why these rows are not in the target any more.
    lost: Option<String>,
}

impl Earlier {
    /// Asks before the run is let in, because the destination then forgets what was there.
    fn of(work: &Work<'_>, destination: &mut Destination) -> Result<Self, Failure> {
        let (name, ledger) = (&work.stream.name, work.ledger);
        if !ledger.goes_on && !ledger.resumed.contains_key(name) {
            return Ok(Self::default());
        }
        if !known_as::is_added_once(work.stream) {
            if work.stream.target.write_mode == WriteMode::Replace {
                ledger.has_lost(name);
            }
            return Ok(Self::default());
        }
        let mut earlier = Self {
            ids: ledger.appended_as(name),
            lost: None,
        };
        let of_run = |found: &Progress| known_as::base(&found.run_id) == ledger.id_of(name);
        let found = work.asking().found(destination)?.filter(of_run);
        if let Some(found) = found.as_ref().filter(|found| found.complete) {
            earlier.ids.insert(found.run_id.clone());
            ledger.has_appended(name, &found.run_id);
        }
        if !earlier.ids.is_empty() {
            let location = &work.stream.location;
            earlier.lost = match found {
                _ if work.stream.placed.is_new => {
                    Some(format!("{location} does not exist any more"))
                }
                None => Some(format!(
                    "the checkpoint of {location} does not exist any more"
                )),
                Some(found) => found.lost_rows.map(|why| work.plan.document.redact(&why)),
            };
        }
        Ok(earlier)
    }

    /// Whether this run has moved the stream. Warns of rows that are in the target twice, or not any more.
    fn is_done(&self, work: &Work<'_>, fenced: &Progress) -> bool {
        if !known_as::is_added_once(work.stream) {
            return false;
        }
        let (name, ledger) = (&work.stream.name, work.ledger);
        let (run, id) = (ledger.id_of(name), &ledger.run_of(name).id);
        let is_complete = fenced.complete || self.ids.contains(id);
        let has_others = self.ids.iter().any(|other| other != id);
        let other = "with other settings (of the source, or with other columns, conditions, limits or transforms)";
        if let Some(why) = &self.lost {
            ledger.has_lost(name);
            ledger.warn(
                name,
                format!("{why}, and the interrupted run {run} had appended to it: the stream is read again"),
            );
        } else if has_others && is_complete {
            ledger.warn(
                name,
                format!(
                    "the interrupted run {run} had appended it twice, once {other}: the rows of both are in the target"
                ),
            );
        } else if has_others {
            ledger.warn(
                name,
                format!(
                    "the interrupted run {run} had appended it {other}: those rows stay, and it is appended again with \
                     the settings of now"
                ),
            );
        }
        is_complete && self.lost.is_none()
    }
}

/// Ends the stream without a row: it was committed before.
fn skip(work: &Work<'_>, tell: &Tell<Begin>, why: &str) {
    let name = &work.stream.name;
    work.host.say(name, why);
    work.ledger.skipped(name);
    // The source may have failed meanwhile, and nothing is to be read.
    let _ = tell.send(Begin::Nothing);
}

/// What was written and is not committed.
#[derive(Default, Clone, Copy)]
struct Open {
    rows: u64,
    bytes: u64,
    batches: u64,
}

/// A place to go on from, and what lies before it.
struct Reached {
    cursor: String,
    /// Rows of [`Open`] that lie behind it.
    behind: u64,
}

struct Pump<'a> {
    work: &'a Work<'a>,
    destination: Destination,
    clock: &'a Clock,
    progress: Progress,
    /// Where the source began.
    from: Option<String>,
    open: Open,
    checkpoint: Option<Reached>,
    /// The last commit.
    since: Instant,
}

impl Pump<'_> {
    fn run(mut self, receiver: &mut Receiver<Message>) -> Result<(), Stopped> {
        let work = self.work;
        let mut decompressor = Decompressor::new(work.batch_limit());
        loop {
            let before = self.clock.enter(Phase::ChannelWait);
            work.progress.set_destination_waits(true);
            let received = receiver.recv();
            work.progress.set_destination_waits(false);
            self.clock.enter(before);
            match received {
                Received::Item(Message::Batch { frame, rows }) => {
                    self.write(&mut decompressor, frame, rows)?;
                }
                Received::Item(Message::Checkpoint(cursor)) => {
                    self.checkpoint = Some(Reached { cursor, behind: 0 });
                    if self.is_due() {
                        self.commit(false)?;
                    }
                }
                Received::End => break,
                Received::Aborted => {
                    // The first cause is the source's; a failing abort leaves what dropping leaves.
                    let _ = self.destination.abort(&work.stream.name);
                    return Err(Stopped::Peer);
                }
                Received::Cancelled => return Err(Stopped::because(Failure::cancelled())),
            }
        }
        self.commit(true)?;
        if work.plan.streams.len() > 1 {
            work.sessions.keep_destination(self.destination);
        }
        Ok(())
    }

    fn write(
        &mut self,
        decompressor: &mut Decompressor,
        frame: Frame,
        rows: u64,
    ) -> Result<(), Stopped> {
        let work = self.work;
        let before = self.clock.enter(Phase::Decompress);
        let data = decompressor.decompress(frame);
        self.clock.enter(before);
        let data = data.map_err(decompress_failed)?;
        work.point("engine.write")?;
        let batch = Batch { data, rows };
        self.destination.write(&batch).map_err(|e| self.failed(e))?;
        let bytes = batch.data.len() as u64;
        self.open.rows += rows;
        self.open.bytes += bytes;
        self.open.batches += 1;
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.behind += rows;
        }
        work.progress.add(rows, bytes);
        Ok(())
    }

    /// Whether the rows so far are to become visible now.
    fn is_due(&self) -> bool {
        let stream = self.work.stream;
        // What replaces must appear in one moment.
        if stream.increment.is_none() || stream.target.write_mode == WriteMode::Replace {
            return false;
        }
        let Checkpoint {
            every_bytes,
            every_rows,
            every_seconds,
        } = self.work.plan.document.checkpoint;
        self.open.rows > 0
            && (self.open.bytes >= every_bytes
                || every_rows.is_some_and(|rows| self.open.rows >= rows)
                || self.since.elapsed().as_secs() >= every_seconds)
    }

    /// The destination counts rows that it was not given.
    fn lied(&self, text: String, export: &'static str) -> Failure {
        let failure = Failure::new(Class::Run, "contract_broken", text);
        let mut failure = failure.in_stream(&self.work.stream.name);
        failure.connector = Some(self.work.plan.destination.connector.name().into());
        failure.export = Some(export);
        failure
    }

    fn commit(&mut self, complete: bool) -> Result<(), Stopped> {
        let work = self.work;
        let name = &work.stream.name;
        if work.stream.increment.is_some() {
            // Committed without their place, these rows would be delivered again.
            match &self.checkpoint {
                Some(checkpoint) if checkpoint.behind == 0 => {}
                // Nothing is new: the stream stays where it is.
                None if self.open.rows == 0 => {}
                _ => {
                    let text = "the source ended without a last checkpoint";
                    let failure = Failure::new(Class::Run, "contract_broken", text);
                    let mut failure = failure.in_stream(name);
                    failure.connector = Some(work.plan.source.connector.name().into());
                    failure.export = Some("reader.next");
                    return Err(Stopped::because(failure));
                }
            }
        }
        let open = self.open;
        work.point("engine.flush")?;
        let part = self.destination.flush().map_err(|e| self.failed(e))?;
        if part.rows != open.rows {
            let text = format!(
                "received {} rows and reports {} written rows",
                open.rows, part.rows
            );
            return Err(Stopped::because(self.lied(text, "writer.flush")));
        }
        let cursor = match &self.checkpoint {
            Some(reached) => Some(reached.cursor.clone()),
            None => self.from.clone(),
        };
        work.point("engine.commit")?;
        let receipt = self
            .destination
            .commit(name, &[part], self.progress.seq, cursor.as_ref(), complete)
            .map_err(|e| self.failed(e))?;
        if receipt.rows != open.rows {
            let text = format!(
                "received {} rows and reports {} committed rows",
                open.rows, receipt.rows
            );
            let failure = self.lied(text, "session.commit");
            return Err(Stopped::because(failure.hint(
                "check the target before you run again: a commit has happened",
            )));
        }
        work.point("engine.committed")?;
        self.progress.seq += 1;
        self.progress.complete = complete;
        self.progress.cursor = cursor;
        self.open = Open::default();
        self.since = Instant::now();
        if complete && known_as::is_added_once(work.stream) {
            work.ledger.has_appended(name, &work.ledger.run_of(name).id);
        }
        let committed = Committed {
            rows: open.rows,
            bytes: open.bytes,
            batches: open.batches,
            written_bytes: receipt.bytes,
            location: work.plan.document.redact(&receipt.location),
        };
        work.ledger
            .committed((work.plan, work.held), name, &self.progress, committed)
            .map_err(Stopped::because)
    }

    fn failed(&self, error: rapidbyte_runtime::Error) -> Stopped {
        Stopped::because(self.work.failed(error, "destination"))
    }
}
