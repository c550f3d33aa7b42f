//! One stream of a run: its stages, and its retries.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rapidbyte_runtime::{Cancel, Clock, Level, MemoryBudget, Registration, Sandbox, Source};

use crate::channel::{BATCH_EXCESS, MAX_BATCHES, MAX_MESSAGES, Receiver, channel};
use crate::document::Resources;
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::ledger::Ledger;
use crate::plan::{Held, Plan, StreamPlan, planning_sandbox};
use crate::progress::StreamProgress;
use crate::report::{Side, StageReport, StreamReport, TransformReport};
use crate::retry::{Backoff, wait};
use crate::stage::{
    Message, Sessions, Stopped, Work, pump_destination, pump_source, pump_transform,
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
}

/// One stream on its way.
pub(super) struct Moving<'a> {
    pub(super) plan: &'a Plan,
    /// The sessions that planned.
    pub(super) held: &'a Held,
    pub(super) stream: &'a StreamPlan,
    pub(super) host: &'a Host,
    pub(super) progress: &'a StreamProgress,
    pub(super) ledger: &'a Ledger<'a>,
    pub(super) stop: &'a Cancel,
    /// The sessions that the worker's last stream left open.
    pub(super) sessions: &'a Sessions,
}

/// Why an attempt failed, and on which side.
struct Failed {
    failure: Box<Failure>,
    of_source: bool,
}

/// The snapshot that a stream is read in.
struct AsOf {
    /// The source's name of it.
    snapshot: String,
    /// Holds a moment that was fixed for this stream alone.
    own: Option<Source>,
    /// The next attempt needs a later one.
    is_over: bool,
}

impl Moving<'_> {
    /// Moves the stream, and retries transient errors from the last commit.
    pub(super) fn until_done(&self, snapshot: &str) -> Result<Moved, Failure> {
        let mut backoff = Backoff::new(self.plan.document.retry);
        let mut moment = AsOf {
            snapshot: snapshot.to_owned(),
            own: None,
            is_over: false,
        };
        loop {
            let before = self.ledger.of(&self.stream.name).commits;
            let failed = match self.attempt(&mut moment) {
                Ok(mut moved) => {
                    moved.report.attempts = backoff.attempts();
                    return Ok(moved);
                }
                Err(failed) => failed,
            };
            if self.ledger.of(&self.stream.name).commits > before {
                backoff.begin_anew();
            }
            self.pause(&mut backoff, &failed, &moment)?;
            moment.is_over |= failed.of_source;
        }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// The failure if it does not pass or this was the last attempt, and that the run was cancelled.
    fn pause(
        &self,
        backoff: &mut Backoff,
        Failed { failure, of_source }: &Failed,
        moment: &AsOf,
    ) -> Result<(), Failure> {
        let tally = self.ledger.of(&self.stream.name);
        // An older snapshot is gone with the server that knew it, which reads as whatever that
        // server says then.
        let lost = *of_source && backoff.attempts() > 1 && moment.own.is_none();
        let passes = failure.passes_after_ms.or(lost.then_some(0));
        let kept = match tally.commits {
            0 => "nothing is committed yet".to_owned(),
            _ => format!("rows committed so far: {}", tally.rows),
        };
        let next = backoff.after(failure, passes, &kept, self.stop);
        let Some((pause, text)) = next else {
            let failure = backoff.told(failure.as_ref().clone());
            return Err(self.asking().explain(failure, self.host));
        };
        self.host.tell(&Event::Retrying {
            stream: Some(&self.stream.name),
            failure: &failure.redacted(&self.plan.document),
            attempt: backoff.attempts(),
            pause,
            message: &self.plan.document.redact(&text),
        });
        self.progress.reset(tally.rows, tally.bytes);
        match wait(pause, self.stop) {
            true => Ok(()),
            false => Err(Failure::cancelled()),
        }
    }

    /// Moves the stream as of the moment, or as of a later one if that is over.
    fn attempt(&self, moment: &mut AsOf) -> Result<Moved, Failed> {
        if moment.is_over {
            *moment = self.later_moment().map_err(|failure| Failed {
                failure: Box::new(failure),
                of_source: true,
            })?;
        }
        let moved = self.once(&moment.snapshot);
        // The session that held the snapshot has read the stream.
        let is_read = moment.own.is_none() && !self.held.has_coordinator();
        // The destination may have let this attempt in, and then a newer run: older rows must not follow the rows of the
        // newer run.
        let is_unsure = moved.is_err() && !self.ledger.of(&self.stream.name).was_let_in;
        moment.is_over = is_read || is_unsure;
        moved
    }

    fn asking(&self) -> Asking<'_> {
        Asking {
            plan: self.plan,
            stream: self.stream,
            ledger: self.ledger,
        }
    }

    fn say(&self, level: Level, text: &str) {
        self.host.log(Some(&self.stream.name), level, text);
    }

    /// A later moment for this stream alone.
    fn later_moment(&self) -> Result<AsOf, Failure> {
        let failed = |e| Failure::from_runtime(e, &self.plan.document, "source");
        let stage = &self.plan.source;
        let clock = Clock::new();
        let sandbox = Sandbox {
            cancel: self.stop.child(),
            stream: Some(self.stream.name.clone()),
            ..planning_sandbox(&self.plan.document, self.host, &clock, stage)
        };
        let mut source = stage.connector.source(sandbox).map_err(failed)?;
        source.open(&stage.config).map_err(failed)?;
        let selection = self.stream.selection(self.plan.full_refresh);
        let snapshot = source.snapshot(&[selection]).map_err(failed)?;
        if self.plan.streams.len() > 1 {
            self.say(
                Level::Warn,
                "reads from a later snapshot than the other streams of this run",
            );
        }
        Ok(AsOf {
            snapshot,
            own: Some(source),
            is_over: false,
        })
    }

    /// The stages of the stream, each on a thread, and a channel between each two.
    fn once(&self, snapshot: &str) -> Result<Moved, Failed> {
        let resources = &self.plan.document.resources;
        let steps = &self.stream.transforms;
        let share = Share::of(resources, steps.len() + 2);
        let memory = MemoryBudget::new(share.instances);
        let is_limited = AtomicBool::new(false);
        let work = Work {
            plan: self.plan,
            held: self.held,
            stream: self.stream,
            host: self.host,
            memory: Arc::clone(&memory),
            snapshot,
            progress: self.progress,
            ledger: self.ledger,
            sessions: self.sessions,
            is_limited: &is_limited,
        };
        let (sender, mut receiver) = channel(share.channel, MAX_MESSAGES);
        let (tell, told) = crossbeam_channel::bounded(1);
        // The stages before the destination are stopped when it fails; a stage learns of a failure of the one before
        // through the channel, so that it can abort in its own way.
        let (stop_others, stop_destination) = (self.stop.child(), self.stop.child());
        let mut woken = vec![self.wake(&receiver)];
        let start = Instant::now();
        let (others, written) = std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                Ended::of(Side::Source, |clock| {
                    pump_source(&work, sender, &told, clock, &stop_others)
                })
            });
            let mut others = vec![(source, Side::Source)];
            for step in steps {
                let (sender, next) = channel(share.channel, MAX_MESSAGES);
                let from = std::mem::replace(&mut receiver, next);
                woken.push(self.wake(&receiver));
                let (work, stop) = (&work, &stop_others);
                let transform = scope.spawn(move || {
                    Ended::of(Side::Transform, |clock| {
                        pump_transform(work, step, (from, sender), clock, stop)
                    })
                });
                others.push((transform, Side::Transform));
            }
            let written = Ended::of(Side::Destination, |clock| {
                pump_destination(&work, &mut receiver, &tell, clock, &stop_destination)
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
        let wall = start.elapsed();
        let stages: Vec<Ended> = others.into_iter().chain([written]).collect();
        let is_written = stages.last().is_some_and(|stage| stage.result.is_ok());
        // A destination that needs no rows ends first, and the others with it.
        if is_written && stages.iter().all(|stage| !stage.has_failed()) {
            let mut moved = self.moved(wall, stages, memory.peak());
            moved.report.limited = is_limited.into_inner();
            return Ok(moved);
        }
        self.sessions.end();
        Err(first_cause(stages))
    }

    /// Wakes the stages at both ends of a channel when the stream is stopped.
    fn wake(&self, receiver: &Receiver<Message>) -> Registration {
        let wake = receiver.cancel_handle();
        self.stop.on_cancel(move || wake.cancel())
    }

    /// `stages` has the reports of all stages in their order.
    fn moved(&self, wall: Duration, stages: Vec<Ended>, peak: usize) -> Moved {
        let tally = self.ledger.of(&self.stream.name);
        let mut reports = stages.into_iter().map(|stage| stage.report);
        let source = reports.next().unwrap_or_default();
        let steps = self.stream.transforms.iter();
        let transforms = steps
            .zip(&mut reports)
            .map(|(step, stage)| TransformReport {
                name: step.stage.connector.name().to_owned(),
                stage,
            });
        let transforms = transforms.collect();
        let report = StreamReport {
            name: self.stream.name.clone(),
            location: match tally.location.is_empty() {
                true => self.stream.location.clone(),
                false => tally.location,
            },
            rows: tally.rows,
            limited: false,
            bytes: tally.bytes,
            written_bytes: tally.written_bytes,
            batches: tally.batches,
            commits: tally.commits,
            attempts: 1,
            committed_before: tally.skipped,
            start_secs: 0.0,
            wall_secs: wall.as_secs_f64(),
            source,
            transforms,
            destination: reports.next().unwrap_or_default(),
        };
        Moved { report, peak }
    }
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
        matches!(self.result, Err(Stopped::Failed(_)))
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
            Err(Stopped::Failed(failure)) => Some(Failed {
                failure,
                of_source: side == Side::Source,
            }),
            _ => None,
        });
    // A cancelled stage was cancelled because of another one, or by the operator.
    let rank = |failed: &Failed| u8::from(failed.failure.class == Class::Cancelled);
    failures.min_by_key(rank).unwrap_or_else(|| Failed {
        failure: Box::new(Failure::cancelled()),
        of_source: false,
    })
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
