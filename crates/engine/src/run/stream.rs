//! A group of streams on its way through a run: its stages, and its retries.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{
    Cancel, Clock, DeleteAction, Level, MemoryBudget, Registration, Sandbox, Source,
};

use crate::channel::{BATCH_EXCESS, MAX_BATCHES, MAX_MESSAGES, Receiver, channel};
use crate::document::{DeletesAction, Resources};
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::ledger::{Ledger, Tally};
use crate::plan::{Held, Plan, Step, StreamPlan, difference, planning_sandbox, replan};
use crate::progress::StreamProgress;
use crate::report::{Deleted, Side, StageReport, StreamReport, TransformReport};
use crate::retry::{Backoff, wait};
use crate::stage::{
    Changed, Member, Message, Sessions, Stopped, Work, pump_destination, pump_source,
    pump_transform,
};
use crate::superseded::Asking;

/// How a stream's share of `resources.memory` is used, in bytes.
struct Share {
    /// Linear memory of all instances together.
    instances: usize,
    /// Batches that wait in one channel: up to a sixteenth in all channels together. As much is kept for the batch in
    /// each stage's hands.
    channel: usize,
}

impl Share {
    fn of(resources: &Resources, stages: usize) -> Self {
        let share = resources.memory as usize / resources.parallelism.max(1) as usize;
        let batches = (resources.batch_bytes as usize + BATCH_EXCESS) * MAX_BATCHES;
        Self {
            instances: share / 8 * 7,
            channel: batches.min(share / 16 / (stages - 1)),
        }
    }
}

/// The report of a stream that was moved.
pub(super) struct Moved {
    pub(super) report: StreamReport,
    /// The most linear memory of its instances together.
    pub(super) peak: usize,
    /// It was read in the snapshot of the run, and not in a later one.
    pub(super) is_of_snapshot: bool,
    /// The plan of the stream, if its columns changed on the way.
    pub(super) replanned: Option<StreamPlan>,
}

/// A group of streams on its way: they are read together and committed together. Mostly it is one stream.
pub(super) struct Moving<'a> {
    pub(super) plan: &'a Plan,
    /// The sessions that planned.
    pub(super) held: &'a Held,
    /// Each with the plan of the run, or with a newer one after a change of its columns.
    pub(super) members: Vec<(Cow<'a, StreamPlan>, &'a StreamProgress)>,
    pub(super) host: &'a Host,
    pub(super) ledger: &'a Ledger<'a>,
    pub(super) stop: &'a Cancel,
    /// The sessions that the worker's last group left open.
    pub(super) sessions: &'a Sessions,
}

/// Why an attempt failed, and on which side.
struct Failed {
    failure: Box<Failure>,
    of_source: bool,
    /// The columns of a stream have changed, and the run follows that. `failure` is then the cause of the change.
    changed: Option<Box<Changed>>,
}

impl Failed {
    fn new(failure: impl Into<Box<Failure>>, of_source: bool) -> Self {
        Self {
            failure: failure.into(),
            of_source,
            changed: None,
        }
    }
}

/// Changes of columns that a run follows while it moves a group. Each one reads from the last commit again.
const MAX_CHANGES: u32 = 50;

/// The snapshot that a group is read in.
struct AsOf {
    /// The source's name of it.
    snapshot: String,
    /// Holds a moment that was fixed for this group alone.
    own: Option<Source>,
    /// The next attempt needs a later one.
    is_over: bool,
}

impl Moving<'_> {
    /// Moves the streams, and retries transient errors from the last commit.
    pub(super) fn until_done(&mut self, snapshot: &str) -> Result<Vec<Moved>, Failure> {
        let mut changes = 0;
        let mut backoff = Backoff::new(self.plan.document.retry);
        let mut moment = AsOf {
            snapshot: snapshot.to_owned(),
            own: None,
            is_over: false,
        };
        loop {
            let before = self.commits();
            let failed = match self.attempt(&mut moment) {
                Ok(mut moved) => {
                    for one in &mut moved {
                        one.report.attempts = backoff.attempts();
                        one.is_of_snapshot = moment.own.is_none();
                    }
                    for ((stream, _), one) in self.members.drain(..).zip(&mut moved) {
                        one.replanned = match stream {
                            Cow::Owned(stream) => Some(stream),
                            Cow::Borrowed(_) => None,
                        };
                    }
                    return Ok(moved);
                }
                Err(failed) => failed,
            };
            if self.commits() > before {
                backoff.begin_anew();
            }
            let failed = match failed.changed {
                Some(changed) => {
                    changes += 1;
                    match self.follow(*changed, changes) {
                        Ok(()) => continue,
                        Err(failure) => Failed::new(failure, false),
                    }
                }
                None => failed,
            };
            self.pause(&mut backoff, &failed, &moment)?;
            moment.is_over |= failed.of_source;
        }
    }

    /// Plans a stream with the columns that it has now. The next attempt reads it from its last commit.
    ///
    /// # Errors
    /// The reason why the source cannot read on, if the stream cannot be planned.
    fn follow(&mut self, changed: Changed, changes: u32) -> Result<(), Failure> {
        let Changed {
            member,
            described,
            cause,
        } = changed;
        if changes > MAX_CHANGES {
            let text = format!("the columns have changed {MAX_CHANGES} times in this run");
            return Err(cause.hint(format!("{text}: declare them")));
        }
        let stream = &self.members[member].0;
        let planned = match replan(self.plan, self.host, stream, described) {
            // The target decides on the columns, whatever the records are.
            Ok(planned) if planned.discovered.schema == stream.discovered.schema => {
                return Err(cause);
            }
            Ok(planned) => planned,
            Err(failure) if failure.passes_after_ms.is_some() => return Err(failure),
            Err(failure) => {
                let advice = cause.hint.clone().unwrap_or_default();
                let text = format!(
                    "the run cannot follow it: {} [{}]",
                    failure.message, failure.code
                );
                let hint = match advice.is_empty() {
                    true => text,
                    false => format!("{advice}; {text}"),
                };
                return Err(cause.hint(hint));
            }
        };
        let text = format!(
            "{}: {}; the run reads the stream again with {}",
            cause.location.as_deref().unwrap_or("the source"),
            cause.message,
            difference(stream, &planned)
        );
        self.ledger
            .warn(&planned.name, self.plan.document.redact(&text));
        let is_new = |warning: &&str| !stream.warnings().any(|told| told == *warning);
        for warning in planned.warnings().filter(is_new) {
            self.ledger.warn(&planned.name, warning.to_owned());
        }
        self.members[member].0 = Cow::Owned(planned);
        self.reset_progress();
        Ok(())
    }

    /// The next attempt begins with the last commit.
    fn reset_progress(&self) {
        for (stream, progress) in &self.members {
            let tally = self.ledger.of(&stream.name);
            progress.reset(tally.rows, tally.bytes);
        }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// The failure if it does not pass or this was the last attempt, and that the run was cancelled.
    fn pause(
        &self,
        backoff: &mut Backoff,
        Failed {
            failure, of_source, ..
        }: &Failed,
        moment: &AsOf,
    ) -> Result<(), Failure> {
        // An older snapshot is gone with the server that knew it, which reads as whatever that
        // server says then.
        let lost = *of_source && backoff.attempts() > 1 && moment.own.is_none();
        let passes = failure.passes_after_ms.or(lost.then_some(0));
        let rows: u64 = self.tallies().map(|tally| tally.rows).sum();
        let kept = match self.commits() {
            0 => "nothing is committed yet".to_owned(),
            _ => format!("rows committed so far: {rows}"),
        };
        let next = backoff.after(failure, passes, &kept, self.stop);
        let Some((pause, text)) = next else {
            let failure = backoff.told(failure.as_ref().clone());
            return Err(self.explained(failure));
        };
        self.host.tell(&Event::Retrying {
            stream: self.only().or(failure.stream.as_deref()),
            failure: &failure.redacted(&self.plan.document),
            attempt: backoff.attempts(),
            pause,
            message: &self.plan.document.redact(&text),
        });
        self.reset_progress();
        match wait(pause, self.stop) {
            true => Ok(()),
            false => Err(Failure::cancelled()),
        }
    }

    /// Moves the streams as of the moment, or as of a later one if that is over.
    fn attempt(&self, moment: &mut AsOf) -> Result<Vec<Moved>, Failed> {
        if moment.is_over {
            *moment = self
                .later_moment()
                .map_err(|failure| Failed::new(failure, true))?;
        }
        let moved = self.once(&moment.snapshot);
        // The session that held the snapshot has read the streams.
        let is_read = moment.own.is_none() && !self.held.has_coordinator();
        // The destination may have let this attempt in, and then a newer run: older rows must not follow the rows of the
        // newer run.
        let is_unsure = moved.is_err() && self.tallies().any(|tally| !tally.was_let_in);
        moment.is_over = is_read || is_unsure;
        moved
    }

    fn tallies(&self) -> impl Iterator<Item = Tally> {
        let members = self.members.iter();
        members.map(|(stream, _)| self.ledger.of(&stream.name))
    }

    /// The commits of all streams so far.
    fn commits(&self) -> u64 {
        self.tallies().map(|tally| tally.commits).sum()
    }

    /// The name of the stream, if it moves alone.
    fn only(&self) -> Option<&str> {
        match self.members.as_slice() {
            [(stream, _)] => Some(&stream.name),
            _ => None,
        }
    }

    /// The failure, or that a newer run has overtaken this one on one of the streams.
    fn explained(&self, failure: Failure) -> Failure {
        self.members.iter().fold(failure, |failure, (stream, _)| {
            let asking = Asking {
                plan: self.plan,
                stream,
                ledger: self.ledger,
            };
            asking.explain(failure, self.host)
        })
    }

    /// A later moment for these streams alone.
    fn later_moment(&self) -> Result<AsOf, Failure> {
        let failed = |e| Failure::from_runtime(e, &self.plan.document, "source");
        let stage = &self.plan.source;
        let clock = Clock::new();
        let sandbox = Sandbox {
            cancel: self.stop.child(),
            stream: self.only().map(str::to_owned),
            ..planning_sandbox(&self.plan.document, self.host, &clock, stage)
        };
        let mut source = stage.connector.source(sandbox).map_err(failed)?;
        source.open(&stage.config).map_err(failed)?;
        let members = self.members.iter();
        let selections = members.map(|(stream, _)| stream.selection(self.plan.full_refresh));
        let selections: Vec<_> = selections.collect();
        let snapshot = source.snapshot(&selections).map_err(failed)?;
        if self.plan.streams.len() > self.members.len() {
            let text = "reads from a later snapshot than the other streams of this run";
            self.host.log(self.only(), Level::Warn, text);
        }
        Ok(AsOf {
            snapshot,
            own: Some(source),
            is_over: false,
        })
    }

    /// The stages of the streams, each on a thread, and a channel between each two.
    fn once(&self, snapshot: &str) -> Result<Vec<Moved>, Failed> {
        let resources = &self.plan.document.resources;
        let steps = self.steps();
        let share = Share::of(resources, steps.len() + 2);
        let memory = MemoryBudget::part_of(
            &self.host.usage.memory,
            resources.memory as usize,
            share.instances,
        );
        let members = self.members.iter();
        let members: Vec<Member<'_>> = members
            .map(|(stream, progress)| Member {
                stream,
                progress,
                is_limited: AtomicBool::new(false),
            })
            .collect();
        let work = Work {
            plan: self.plan,
            held: self.held,
            members: &members,
            host: self.host,
            memory: Arc::clone(&memory),
            snapshot,
            ledger: self.ledger,
            sessions: self.sessions,
        };
        let is_at_hand = work.is_at_hand();
        let (sender, mut receiver) = match is_at_hand {
            // Nobody receives while the source sends. It has one batch, and after a conversion some more.
            true => channel(usize::MAX, MAX_MESSAGES),
            false => channel(share.channel, MAX_MESSAGES),
        };
        let (tell, told) = crossbeam_channel::bounded(2);
        // The stages before the destination are stopped when it fails; a stage learns of a failure of the one before
        // through the channel, so that it can abort in its own way.
        let (stop_others, stop_destination) = (self.stop.child(), self.stop.child());
        let mut woken = vec![self.wake(&receiver)];
        let start = Instant::now();
        let (work, stop_others) = (&work, &stop_others);
        if is_at_hand {
            drop(told);
            // A thread for rows that are in memory takes longer than the rows.
            let read = Ended::of(Side::Source, |clock| {
                pump_source(work, sender, None, clock, stop_others)
            });
            let written = Ended::of(Side::Destination, |clock| {
                pump_destination(work, &mut receiver, &tell, clock, &stop_destination)
            });
            return self.ended(vec![read, written], start.elapsed(), &memory, &members);
        }
        let (others, written) = std::thread::scope(|scope| {
            let usage = &self.host.usage;
            let source = scope.spawn(move || {
                let _counted = usage.of_thread();
                Ended::of(Side::Source, |clock| {
                    pump_source(work, sender, Some(told), clock, stop_others)
                })
            });
            let mut others = vec![(source, Side::Source)];
            for step in &steps {
                let (sender, next) = channel(share.channel, MAX_MESSAGES);
                let from = std::mem::replace(&mut receiver, next);
                woken.push(self.wake(&receiver));
                let transform = scope.spawn(move || {
                    let _counted = usage.of_thread();
                    Ended::of(Side::Transform, |clock| {
                        pump_transform(work, step, (from, sender), clock, stop_others)
                    })
                });
                others.push((transform, Side::Transform));
            }
            let written = Ended::of(Side::Destination, |clock| {
                pump_destination(work, &mut receiver, &tell, clock, &stop_destination)
            });
            if written.result.is_err() {
                stop_others.cancel();
            }
            drop((receiver, tell));
            let others = others.into_iter().map(|(stage, side)| {
                let ended = stage.join();
                ended.unwrap_or_else(|_| Ended::panicked(side, &Clock::new()))
            });
            (others.collect::<Vec<_>>(), written)
        });
        let stages: Vec<Ended> = others.into_iter().chain([written]).collect();
        self.ended(stages, start.elapsed(), &memory, &members)
    }

    /// The reports of an attempt, or why it failed. The destination is the last stage.
    fn ended(
        &self,
        stages: Vec<Ended>,
        wall: Duration,
        memory: &MemoryBudget,
        members: &[Member<'_>],
    ) -> Result<Vec<Moved>, Failed> {
        let is_written = stages.last().is_some_and(|stage| stage.result.is_ok());
        // A destination that needs no rows ends first, and the others with it.
        if is_written && stages.iter().all(|stage| !stage.has_failed()) {
            return Ok(self.moved(wall, stages, memory.peak(), members));
        }
        self.sessions.end();
        Err(first_cause(stages))
    }

    /// Wakes the stages at both ends of a channel when the stream is stopped.
    fn wake(&self, receiver: &Receiver<Message>) -> Registration {
        let wake = receiver.cancel_handle();
        self.stop.on_cancel(move || wake.cancel())
    }

    /// The transforms of each stream at each place behind the source.
    fn steps(&self) -> Vec<Vec<Option<&Step>>> {
        let count = |(stream, _): &(Cow<'_, StreamPlan>, _)| stream.transforms.len();
        let most = self.members.iter().map(count).max().unwrap_or(0);
        let at = |place| {
            let members = self.members.iter();
            members
                .map(|(stream, _)| stream.transforms.get(place))
                .collect()
        };
        (0..most).map(at).collect()
    }

    /// `stages` has the reports of all stages in their order. The first stream has their times.
    fn moved(
        &self,
        wall: Duration,
        stages: Vec<Ended>,
        peak: usize,
        members: &[Member<'_>],
    ) -> Vec<Moved> {
        let mut reports: Vec<_> = members.iter().map(|one| self.report(one, wall)).collect();
        if let Some((first, others)) = reports.split_first_mut() {
            for other in others {
                other.together_with = Some(first.name.clone());
            }
            let mut stages = stages.into_iter().map(|stage| stage.report);
            first.source = stages.next().unwrap_or_default();
            first.destination = stages.next_back().unwrap_or_default();
            let name = |place: usize| {
                let mut streams = self.members.iter();
                let step = streams.find_map(|(stream, _)| stream.transforms.get(place));
                step.map_or("", |step| step.stage.connector.name())
                    .to_owned()
            };
            first.transforms = stages
                .enumerate()
                .map(|(place, stage)| TransformReport {
                    name: name(place),
                    stage,
                })
                .collect();
        }
        let moved = reports.into_iter().map(|report| Moved {
            report,
            peak,
            is_of_snapshot: true,
            replanned: None,
        });
        moved.collect()
    }

    fn report(&self, member: &Member<'_>, wall: Duration) -> StreamReport {
        let stream = member.stream;
        let tally = self.ledger.of(&stream.name);
        StreamReport {
            name: stream.name.clone(),
            location: match tally.location.is_empty() {
                true => stream.location.clone(),
                false => tally.location,
            },
            rows: tally.rows,
            rejected: tally.rejected.rows,
            rejects: tally.rejected.first,
            limited: member.is_limited.load(Ordering::Relaxed),
            bytes: tally.bytes,
            written_bytes: tally.written_bytes,
            deleted: deleted(stream, tally.deleted),
            batches: tally.batches,
            commits: tally.commits,
            attempts: 1,
            committed_before: tally.skipped,
            together_with: None,
            verified: None,
            schema_changes: tally.changes,
            start_secs: 0.0,
            wall_secs: wall.as_secs_f64(),
            source: StageReport::default(),
            transforms: Vec::new(),
            destination: StageReport::default(),
        }
    }
}

/// The rows that the source has deleted, if the run looked for them.
fn deleted(stream: &StreamPlan, rows: u64) -> Option<Deleted> {
    let asked = stream.target.deletes.as_ref()?;
    Some(Deleted {
        rows,
        action: match asked.action {
            DeleteAction::Delete => DeletesAction::Delete,
            DeleteAction::Mark(_) => DeletesAction::Mark,
        },
    })
}

/// How a stage of a stream ended.
struct Ended {
    side: Side,
    result: Result<(), Stopped>,
    report: StageReport,
}

impl Ended {
    /// Runs a stage on this thread with a clock of its own.
    fn of(side: Side, pump: impl FnOnce(&Clock) -> Result<(), Stopped>) -> Self {
        let clock = Clock::new();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pump(&clock)));
        match result {
            Ok(result) => Self {
                side,
                result,
                report: StageReport::new(&clock, side),
            },
            Err(_) => Self::panicked(side, &clock),
        }
    }

    /// Whether this stage found a cause.
    fn has_failed(&self) -> bool {
        matches!(self.result, Err(Stopped::Failed(_) | Stopped::Changed(_)))
    }

    fn panicked(side: Side, clock: &Clock) -> Self {
        Self {
            side,
            result: Err(Stopped::because(Failure::panicked(side.name()))),
            report: StageReport::new(clock, side),
        }
    }
}

/// The failure that was there first: a stage that only followed another one has none.
fn first_cause(stages: Vec<Ended>) -> Failed {
    let failures = stages
        .into_iter()
        .filter_map(|Ended { side, result, .. }| match result {
            Err(Stopped::Failed(failure)) => Some(Failed::new(failure, side == Side::Source)),
            Err(Stopped::Changed(changed)) => Some(Failed {
                failure: Box::new(changed.cause.clone()),
                of_source: true,
                changed: Some(changed),
            }),
            _ => None,
        });
    // A stage that failed, for example because a newer run has fenced this one, comes before a change that only leads to
    // another attempt. A cancelled stage was cancelled because of another one, or by the operator.
    let rank = |failed: &Failed| match failed.failure.class {
        Class::Cancelled => 2,
        _ => u8::from(failed.changed.is_some()),
    };
    let first = failures.min_by_key(rank);
    first.unwrap_or_else(|| Failed::new(Failure::cancelled(), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Compression;

    #[test]
    fn the_channel_has_room_for_four_batches_if_memory_has() {
        let share = |memory, batch_bytes, parallelism| {
            let resources = Resources {
                memory,
                batch_bytes,
                max_record_bytes: 1 << 20,
                parallelism,
                compression: Compression::None,
            };
            Share::of(&resources, 2)
        };
        let piece = 64 << 10;
        for batch_bytes in [4 << 10, 1 << 20, 16 << 20] {
            let Share { channel, .. } = share(16 << 30, batch_bytes, 1);
            let batch = batch_bytes as usize + piece;
            assert!((4 * batch..5 * batch + (1 << 20)).contains(&channel));
        }
        for (memory, parallelism) in [(32 << 20, 1), (256 << 20, 8)] {
            let Share { channel, instances } = share(memory, 1 << 20, parallelism);
            let whole = memory as usize / parallelism as usize;
            assert_eq!((channel, instances), (whole / 16, whole / 8 * 7));
        }
    }
}
