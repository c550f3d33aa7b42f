//! The writing stage.

mod rejects;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender as Tell;
use rapidbyte_runtime::{
    Batch, Cancel, Clock, Destination, Level, LoadRequest, Part, Phase, Position, Progress,
    Receipt, StreamCommit, WriteMode,
};

use super::{Answer, Begin, Member, Message, Stopped, Work, decompress_failed};
use crate::channel::{Received, Receiver};
use crate::compress::{Decompressor, Frame};
use crate::document::Checkpoint;
use crate::failure::{Class, Failure};
use crate::idle;
use crate::known_as;
use crate::ledger::Committed;
use crate::plan::StreamPlan;
use crate::report::Rejected;

/// Writes until the source has emitted its end, and commits at the checkpoints that are due and at the end. An abort is
/// never an end.
pub(crate) fn pump_destination(
    work: &Work<'_>,
    receiver: &mut Receiver<Message>,
    tell: &Tell<Answer>,
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let mut destination = open(work, clock, cancel)?;
    let written = begin(work, &mut destination)?;
    let mut begins = vec![Begin::Nothing; work.members.len()];
    for one in &written {
        begins[one.member] = Begin::From(one.from.clone());
    }
    // The source has failed when nobody listens, and says so through the channel.
    let _ = tell.send(Answer::Begin(begins));
    if written.is_empty() {
        return Ok(());
    }
    for one in &written {
        let StreamPlan { name, location, .. } = one.stream;
        work.host.say(name, &format!("writes to {location}"));
    }
    let pump = Pump {
        work,
        destination,
        clock,
        tell,
        written,
        untold: Vec::new(),
        since: Instant::now(),
    };
    pump.run(receiver)
}

/// The session that writes: one that is open already, or a new one.
fn open(work: &Work<'_>, clock: &Clock, cancel: &Cancel) -> Result<Destination, Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "destination"));
    let stage = &work.plan.destination;
    let sandbox = work.sandbox(stage, clock, cancel);
    // One whose memory does not fit ends here, and its connection with it.
    let kept = work
        .held
        .take_writer()
        .or_else(|| work.sessions.take_destination());
    if let Some(mut destination) = kept
        && destination.hand_over(sandbox.clone())
    {
        return Ok(destination);
    }
    idle::new_session(work.host.reuse.as_ref(), stage, sandbox).map_err(failed)
}

/// Begins the load and opens a writer for each stream that is not done. Returns these streams.
fn begin<'a>(work: &Work<'a>, destination: &mut Destination) -> Result<Vec<Written<'a>>, Stopped> {
    let failed = |e| Stopped::because(work.failed(e, "destination"));
    let (mut asked, mut requests) = (Vec::new(), Vec::new());
    for (member, Member { stream, .. }) in work.members.iter().enumerate() {
        let stream: &StreamPlan = stream;
        let asking = work.asking(stream);
        if asking.is_done(destination).map_err(Stopped::because)? {
            let why = "was committed by the dead run that this run succeeds";
            skip(work, stream, why);
            continue;
        }
        let earlier = Earlier::of(work, stream, destination).map_err(Stopped::because)?;
        let before = asking.refuse(destination).map_err(Stopped::because)?;
        asked.push((member, stream, earlier, before));
        requests.push(LoadRequest {
            target: stream.target.clone(),
            run: work.ledger.run_of(&stream.name).clone(),
        });
    }
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let fenced = destination.begin(&requests).map_err(failed)?;
    work.point("engine.fenced")?;
    let mut written = Vec::new();
    for (number, ((member, stream, earlier, before), progress)) in
        (0..).zip(asked.into_iter().zip(fenced))
    {
        work.ledger.heal(&stream.name, &progress);
        work.asking(stream).let_in(before, &progress);
        let is_newest = work.asking(stream).refuse_older_keys();
        is_newest.map_err(Stopped::because)?;
        if earlier.is_done(work, stream, &progress) {
            skip(
                work,
                stream,
                "was committed by an earlier attempt of this run",
            );
            continue;
        }
        let progress = match stream.backfills && !work.ledger.of(&stream.name).begins_anew {
            true => begin_anew(work, destination, (number, stream), progress)?,
            false => progress,
        };
        let cursor = work.goes_on(stream).then(|| progress.cursor.clone());
        written.push(Written {
            member,
            number,
            stream,
            progress,
            from: cursor.flatten(),
            open: Open::default(),
            keys: None,
            checkpoint: None,
        });
    }
    for one in &written {
        let opened = destination.open_writer(one.number, one.from.as_ref());
        opened.map_err(failed)?;
        let changed = destination.schema_changes(one.number).map_err(failed)?;
        work.ledger.changed(&one.stream.name, changed);
    }
    Ok(written)
}

/// Takes the cursor of a stream back before the destination adds columns: if the run is killed after that, the next run
/// still reads the rows that lack their values.
fn begin_anew(
    work: &Work<'_>,
    destination: &mut Destination,
    (number, stream): (u32, &StreamPlan),
    mut progress: Progress,
) -> Result<Progress, Stopped> {
    if progress.cursor.is_some() {
        let commit = StreamCommit {
            stream: number,
            parts: Vec::new(),
            seq: progress.seq,
            cursor: None,
            complete: false,
        };
        let taken = destination.commit(&[commit]);
        taken.map_err(|e| Stopped::because(work.failed(e, "destination")))?;
        work.point("engine.begins_anew")?;
        progress.seq += 1;
        progress.cursor = None;
        work.ledger.heal(&stream.name, &progress);
    }
    work.ledger.begins_anew(&stream.name);
    Ok(progress)
}

/// The rows of a full refresh that earlier attempts of the run have appended. A run that was killed before it could say
/// so must not append them twice.
#[derive(Default)]
struct Earlier {
    /// The ids under which it was appended to this target.
    ids: HashSet<String>,
    /// Why these rows are not in the target any more.
    lost: Option<String>,
    /// The run has replaced all rows of the target.
    is_replaced: bool,
}

impl Earlier {
    /// Asks before the load begins, because the destination then forgets the run before.
    fn of(
        work: &Work<'_>,
        stream: &StreamPlan,
        destination: &mut Destination,
    ) -> Result<Self, Failure> {
        let (name, ledger) = (&stream.name, work.ledger);
        if !ledger.goes_on && !ledger.resumed.contains_key(name) {
            return Ok(Self::default());
        }
        if !known_as::is_added_once(stream) {
            return Ok(Self::default());
        }
        let of_run = |found: &Progress| known_as::base(&found.run_id) == ledger.id_of(name);
        let found = work.asking(stream).found(destination)?.filter(of_run);
        let complete = found.as_ref().filter(|found| found.complete);
        let is_replaced = complete.is_some_and(|found| known_as::has_replaced(&found.run_id));
        if is_replaced {
            ledger.has_lost(name);
        }
        let mut earlier = Self {
            ids: match is_replaced {
                true => HashSet::new(),
                false => ledger.appended_as(name),
            },
            lost: None,
            is_replaced,
        };
        if let Some(found) = complete.filter(|found| known_as::has_appended(&found.run_id)) {
            earlier.ids.insert(found.run_id.clone());
            ledger.has_appended(name, &found.run_id);
        }
        if !earlier.ids.is_empty() {
            let location = &stream.location;
            earlier.lost = match found {
                _ if stream.placed.is_new => Some(format!("{location} does not exist any more")),
                None => Some(format!(
                    "the checkpoint of {location} does not exist any more"
                )),
                Some(found) => found.lost_rows.map(|why| work.plan.document.redact(&why)),
            };
        }
        Ok(earlier)
    }

    /// Whether this run has moved the stream. Warns of rows that are in the target twice, or not any more.
    fn is_done(&self, work: &Work<'_>, stream: &StreamPlan, fenced: &Progress) -> bool {
        if !known_as::is_added_once(stream) {
            return false;
        }
        let (name, ledger) = (&stream.name, work.ledger);
        let (run, id) = (ledger.id_of(name), &ledger.run_of(name).id);
        let is_complete = fenced.complete || self.ids.contains(id);
        let has_others = self.ids.iter().any(|other| other != id);
        let other = "with other settings (of the source, or with other columns, conditions, queries, limits or transforms)";
        if let Some(why) = &self.lost {
            ledger.has_lost(name);
            ledger.warn(
                name,
                format!("{why}, and the interrupted run {run} had appended to it: the stream is read again"),
            );
        } else if self.is_replaced {
            ledger.warn(
                name,
                format!(
                    "the interrupted run {run} had replaced all rows of it: those rows stay, and it is appended to them"
                ),
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
fn skip(work: &Work<'_>, stream: &StreamPlan, why: &str) {
    work.host.say(&stream.name, why);
    work.ledger.skipped(&stream.name);
}

/// Rows that are written and not committed.
#[derive(Default)]
struct Open {
    /// Without those that were rejected.
    rows: u64,
    bytes: u64,
    batches: u64,
    rejected: Rejected,
}

impl Open {
    /// Rows and rejects.
    fn records(&self) -> u64 {
        self.rows + self.rejected.rows
    }
}

/// A checkpoint, and the rows before it.
struct Reached {
    cursor: String,
    /// Rows of [`Open`] behind it.
    behind: u64,
}

/// A stream of the load.
pub(super) struct Written<'a> {
    /// Its position in [`Work::members`].
    member: usize,
    /// Its number in the load.
    pub(super) number: u32,
    pub(super) stream: &'a StreamPlan,
    progress: Progress,
    /// Where the source began.
    from: Option<String>,
    open: Open,
    /// Its keys, once they come: all rows have come by then.
    pub(super) keys: Option<KeysWritten>,
    checkpoint: Option<Reached>,
}

/// The keys of one stream on their way into a load.
pub(super) struct KeysWritten {
    /// The rows since the last commit. They commit with the keys.
    pub(super) part: Part,
    /// Keys so far.
    pub(super) count: u64,
    /// All keys have come. An end without that deletes nothing.
    pub(super) is_complete: bool,
}

impl Written<'_> {
    /// Whether its rows may become visible before its end. Rows that replace others must appear at once.
    fn grows(&self) -> bool {
        let is_replaced = self.stream.target.write_mode == WriteMode::Replace;
        self.stream.increment.is_some() && !is_replaced
    }

    /// Where the next run resumes.
    fn cursor(&self) -> Option<&String> {
        let reached = self.checkpoint.as_ref().map(|reached| &reached.cursor);
        reached.or(self.from.as_ref())
    }

    /// Whether a commit would change anything.
    fn has_news(&self) -> bool {
        let committed = self.progress.cursor.as_deref();
        let is_new = |reached: &Reached| Some(reached.cursor.as_str()) != committed;
        self.open.records() > 0 || self.checkpoint.as_ref().is_some_and(is_new)
    }

    /// Whether all of its rows so far are before a checkpoint.
    fn is_covered(&self) -> bool {
        match &self.checkpoint {
            Some(reached) => reached.behind == 0,
            None => self.open.records() == 0,
        }
    }
}

struct Pump<'a> {
    work: &'a Work<'a>,
    destination: Destination,
    clock: &'a Clock,
    tell: &'a Tell<Answer>,
    written: Vec<Written<'a>>,
    /// Committed positions that the source does not know yet.
    untold: Vec<Position>,
    /// The last commit.
    since: Instant,
}

impl<'a> Pump<'a> {
    fn run(mut self, receiver: &mut Receiver<Message>) -> Result<(), Stopped> {
        let work = self.work;
        let mut decompressor = Decompressor::new(work.batch_limit());
        let waits = |is_waiting| {
            let members = work.members.iter();
            members.for_each(|member| member.progress.set_destination_waits(is_waiting));
        };
        loop {
            let until = self.due_at();
            let before = self.clock.enter(Phase::ChannelWait);
            waits(true);
            let received = receiver.recv_until(until);
            waits(false);
            self.clock.enter(before);
            let Some(received) = received else {
                self.commit(false)?;
                continue;
            };
            match received {
                Received::Item(Message::Batch {
                    member,
                    frame,
                    rows,
                }) => self.write(&mut decompressor, member, frame, rows)?,
                Received::Item(Message::Keys {
                    member,
                    frame,
                    rows,
                }) => {
                    let data = self.decompressed(&mut decompressor, frame)?;
                    let written = self.written.iter_mut().find(|one| one.member == member);
                    let one = written.ok_or_else(not_written)?;
                    one.write_keys(work, &mut self.destination, &Batch { data, rows })?;
                }
                Received::Item(Message::AllKeys { member }) => {
                    let written = self.written.iter_mut().find(|one| one.member == member);
                    let one = written.ok_or_else(not_written)?;
                    one.has_all_keys(work, &mut self.destination)?;
                }
                Received::Item(Message::Checkpoint { member, cursor }) => {
                    self.of(member)?.checkpoint = Some(Reached { cursor, behind: 0 });
                    if self.is_due() {
                        self.commit(false)?;
                    }
                }
                Received::Item(Message::Rejects {
                    member,
                    origin,
                    rejects,
                }) => self.reject(member, origin, &rejects)?,
                Received::End => break,
                Received::Aborted => {
                    // The first cause is the source's; a failing abort leaves what dropping leaves.
                    let _ = self.destination.abort();
                    return Err(Stopped::Peer);
                }
                Received::Cancelled => return Err(Stopped::because(Failure::cancelled())),
            }
        }
        self.commit(true)?;
        if self.written.iter().any(|one| one.stream.target.stages) {
            // The session has the rows.
            let mut destination = self.destination;
            destination.finish();
            work.held.replace_writer(destination);
        } else if work.has_others() {
            work.sessions.keep_destination(self.destination);
        } else if let Some(reuse) = &work.host.reuse {
            reuse.leave(&work.plan.destination, self.destination);
        }
        Ok(())
    }

    /// The stream of a message.
    fn of(&mut self, member: usize) -> Result<&mut Written<'a>, Stopped> {
        let mut written = self.written.iter_mut();
        let found = written.find(|one| one.member == member);
        found.ok_or_else(not_written)
    }

    fn decompressed(
        &self,
        decompressor: &mut Decompressor,
        frame: Frame,
    ) -> Result<Vec<u8>, Stopped> {
        let before = self.clock.enter(Phase::Decompress);
        let data = decompressor.decompress(frame);
        self.clock.enter(before);
        data.map_err(decompress_failed)
    }

    fn write(
        &mut self,
        decompressor: &mut Decompressor,
        member: usize,
        frame: Frame,
        rows: u64,
    ) -> Result<(), Stopped> {
        let work = self.work;
        let data = self.decompressed(decompressor, frame)?;
        work.point("engine.write")?;
        let batch = Batch { data, rows };
        let number = self.of(member)?.number;
        let written = self.destination.write(number, &batch);
        written.map_err(|e| self.failed(e))?;
        if rows == 0 {
            return Ok(());
        }
        let bytes = batch.data.len() as u64;
        let rows = rows - self.refused(member, rows)?;
        let one = self.of(member)?;
        one.open.rows += rows;
        one.open.bytes += bytes;
        one.open.batches += 1;
        if let Some(checkpoint) = &mut one.checkpoint {
            checkpoint.behind += rows;
        }
        work.members[member].progress.add(rows, bytes);
        Ok(())
    }

    /// Whether the rows so far are to become visible now.
    fn is_due(&self) -> bool {
        if self.work.plan.commits_at_checkpoints {
            // Without a row too: the source waits for the commit.
            let mut grown = self.grown();
            return self.grown().all(Written::is_covered) && grown.any(Written::has_news);
        }
        let Checkpoint {
            every_bytes,
            every_rows,
            ..
        } = self.work.plan.document.checkpoint;
        let open = |count: fn(&Open) -> u64| self.grown().map(|one| count(&one.open)).sum::<u64>();
        let (rows, bytes) = (open(Open::records), open(|open| open.bytes));
        let is_much = bytes >= every_bytes || every_rows.is_some_and(|most| rows >= most);
        let is_late = || self.due_at().is_some_and(|until| Instant::now() >= until);
        self.is_ready() && (is_much || is_late())
    }

    /// When the rows so far are to become visible, whatever comes.
    fn due_at(&self) -> Option<Instant> {
        let after = Duration::from_secs(self.work.plan.document.checkpoint.every_seconds);
        // A time that no clock can show does not come.
        let until = || self.since.checked_add(after);
        self.is_ready().then(until).flatten()
    }

    /// Whether there are rows, and all of them are before checkpoints.
    fn is_ready(&self) -> bool {
        // Rows commit together with the keys that follow them.
        let has_keys = self.written.iter().any(|one| one.keys.is_some());
        !has_keys
            && self.grown().any(|one| one.open.records() > 0)
            && self.grown().all(Written::is_covered)
    }

    fn grown(&self) -> impl Iterator<Item = &Written<'a>> {
        self.written.iter().filter(|one| one.grows())
    }

    /// Commits all streams at their end, or before it those that grow and have news.
    fn commit(&mut self, complete: bool) -> Result<(), Stopped> {
        let work = self.work;
        let is_meant = |one: &Written<'_>| complete || one.grows() && one.has_news();
        let meant = self.written.iter().enumerate();
        let meant: Vec<usize> = meant
            .filter_map(|(index, one)| is_meant(one).then_some(index))
            .collect();
        let mut commits = Vec::new();
        for index in &meant {
            let one = &mut self.written[*index];
            // Committed without their place, these rows would be delivered again.
            if one.stream.increment.is_some() && !one.is_covered() {
                let stream = one.stream;
                return Err(Stopped::because(self.without_checkpoint(stream)));
            }
            rejects::ensure_few(work, one, complete)?;
            let part = match complete {
                true => one.end_keys(work, &mut self.destination)?,
                false => one.flush(work, &mut self.destination)?,
            };
            commits.push(StreamCommit {
                stream: one.number,
                parts: vec![part],
                seq: one.progress.seq,
                cursor: one.cursor().cloned(),
                complete,
            });
        }
        work.point("engine.commit")?;
        let receipts = self.destination.commit(&commits);
        let receipts = receipts.map_err(|e| self.failed(e))?;
        for (index, receipt) in meant.iter().zip(&receipts) {
            let one = &self.written[*index];
            if receipt.rows != one.open.rows {
                let text = format!(
                    "received {} rows and reports {} committed rows",
                    one.open.rows, receipt.rows
                );
                let failure = one.lied(work, text, "load.commit");
                return Err(Stopped::because(failure.hint(
                    "check the target before you run again: a commit has happened",
                )));
            }
            if receipt.deleted > 0 && one.keys.is_none() {
                let text = format!("reports {} deleted rows without keys", receipt.deleted);
                return Err(Stopped::because(one.lied(work, text, "load.commit")));
            }
        }
        work.point("engine.committed")?;
        self.since = Instant::now();
        let mut positions = Vec::new();
        for (index, receipt) in meant.into_iter().zip(receipts) {
            let one = &mut self.written[index];
            one.has_committed(work, receipt, complete)
                .map_err(Stopped::because)?;
            positions.extend(one.progress.cursor.clone().map(|cursor| Position {
                stream: one.member as u32,
                cursor,
            }));
        }
        self.acknowledge(positions, complete);
        Ok(())
    }

    /// Tells the source what is committed. Before the end the source may be busy: it then hears of it after the next
    /// commit.
    fn acknowledge(&mut self, positions: Vec<Position>, complete: bool) {
        let is_newer = |old: &Position| positions.iter().any(|new| new.stream == old.stream);
        self.untold.retain(|old| !is_newer(old));
        self.untold.extend(positions);
        if self.untold.is_empty() {
            return;
        }
        let answer = Answer::Committed(self.untold.clone());
        // If the source has failed, it says so through the channel.
        let is_told = match complete {
            true => self.tell.send(answer).is_ok(),
            false => self.tell.try_send(answer).is_ok(),
        };
        if is_told {
            self.untold.clear();
        }
    }

    fn without_checkpoint(&self, stream: &StreamPlan) -> Failure {
        let text = "the source ended without a last checkpoint";
        let failure = Failure::new(Class::Run, "contract_broken", text);
        let mut failure = failure.in_stream(&stream.name);
        failure.connector = Some(self.work.plan.source.connector.name().into());
        failure.export = Some("reader.next");
        failure
    }

    fn failed(&self, error: rapidbyte_runtime::Error) -> Stopped {
        Stopped::because(self.work.failed(error, "destination"))
    }
}

fn not_written() -> Stopped {
    let text = "rows of a stream that is not written";
    Stopped::because(Failure::new(Class::Run, "internal", text))
}

impl Written<'_> {
    /// Ends a part of the rows since the last commit.
    pub(super) fn flush(
        &self,
        work: &Work<'_>,
        destination: &mut Destination,
    ) -> Result<Part, Stopped> {
        work.point("engine.flush")?;
        let part = destination.flush(self.number);
        let part = part.map_err(|e| Stopped::because(work.failed(e, "destination")))?;
        if part.rows == self.open.rows {
            return Ok(part);
        }
        let text = format!(
            "received {} rows and reports {} written rows",
            self.open.rows, part.rows
        );
        Err(Stopped::because(self.lied(work, text, "writer.flush")))
    }

    /// The destination counts rows or keys that it was not given.
    pub(super) fn lied(&self, work: &Work<'_>, text: String, export: &'static str) -> Failure {
        let failure = Failure::new(Class::Run, "contract_broken", text);
        let mut failure = failure.in_stream(&self.stream.name);
        failure.connector = Some(work.plan.destination.connector.name().into());
        failure.export = Some(export);
        failure
    }

    /// Everything that was written is committed: this is counted and recorded.
    fn has_committed(
        &mut self,
        work: &Work<'_>,
        receipt: Receipt,
        complete: bool,
    ) -> Result<(), Failure> {
        let name = &self.stream.name;
        self.progress.cursor = self.cursor().cloned();
        self.progress.seq += 1;
        self.progress.complete = complete;
        let ledger = work.ledger;
        if complete && known_as::is_added_once(self.stream) {
            ledger.has_appended(name, &ledger.run_of(name).id);
        } else if complete && self.stream.target.write_mode == WriteMode::Replace {
            ledger.has_lost(name);
        }
        let Open {
            rows,
            bytes,
            batches,
            rejected,
        } = std::mem::take(&mut self.open);
        if complete && let Some(rejects) = &self.stream.target.rejects {
            let mut total = work.ledger.of(name).rejected;
            total.add(rejected.clone());
            if let Some(text) = total.warning(&rejects.to) {
                work.host.log(Some(name), Level::Warn, &text);
            }
        }
        let committed = Committed {
            rows,
            bytes,
            batches,
            rejected,
            written_bytes: receipt.bytes,
            deleted: receipt.deleted,
            location: work.plan.document.redact(&receipt.location),
        };
        ledger.committed(name, &self.progress, committed)
    }
}
