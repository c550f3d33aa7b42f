//! A plan becomes rows moved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{Cancel, Clock, MemoryBudget};

use crate::channel::channel;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::{Plan, StreamPlan};
use crate::progress::{Progress, StreamProgress, StreamState};
use crate::report::{ConnectorReport, Report, Side, StageReport, StreamReport, add};
use crate::stage::{Stopped, Work, Written, pump_destination, pump_source};

/// Messages in the channel at most, whatever their size.
const MAX_MESSAGES: usize = 1024;

/// How a stream's share of `resources.memory` is used.
struct Share {
    /// Linear memory of both instances together.
    instances: usize,
    /// Batches waiting in the channel. As much again is kept for the batch in each stage's hands.
    channel: usize,
}

impl Share {
    fn of(memory: u64, parallelism: u32) -> Self {
        let share = memory as usize / parallelism.max(1) as usize;
        Self {
            instances: share / 8 * 7,
            channel: share / 16,
        }
    }
}

/// The progress of a plan that is about to run.
pub fn progress(plan: &Plan) -> Arc<Progress> {
    let streams = plan.streams.iter();
    let new = |s: &StreamPlan| {
        let estimated = s.discovered.estimated_rows;
        let rows = estimated.map(|rows| plan.limit.map_or(rows, |limit| rows.min(limit)));
        StreamProgress::new(&s.name, rows)
    };
    Arc::new(Progress {
        streams: streams.map(new).collect(),
    })
}

/// Moves everything that was planned, `parallelism` streams at a time.
///
/// # Errors
/// The first cause. Streams that were committed before it stay committed; of the others nothing
/// is visible.
pub fn run(mut plan: Plan, host: &Host, progress: &Progress) -> Result<Report, Failure> {
    move_all(&mut plan, host, progress).map_err(|mut failure| {
        failure.redact(&plan.document);
        failure
    })
}

fn move_all(plan: &mut Plan, host: &Host, progress: &Progress) -> Result<Report, Failure> {
    for stream in &plan.streams {
        stream.refuse_unfit()?;
    }
    let snapshot = plan.snapshot()?;
    let planned = StageReport::new(&plan.clocks.source, Side::Source);
    let mut timing = planned.parts;
    add(
        &mut timing,
        &StageReport::new(&plan.clocks.destination, Side::Destination).parts,
    );
    let start = Instant::now();
    let begun = start.checked_sub(Duration::from_secs_f64(planned.wall_secs));
    let moved = move_streams(plan, host, progress, &snapshot, begun.unwrap_or(start))?;
    for stream in &moved {
        if let Some(cursor) = &stream.cursor {
            plan.coordinator()
                .acknowledge(&stream.report.name, cursor)
                .map_err(|e| Failure::from_runtime(e, &plan.document, "source"))?;
        }
    }
    for stream in &moved {
        add(&mut timing, &stream.report.source.parts);
        add(&mut timing, &stream.report.destination.parts);
    }
    let streams: Vec<StreamReport> = moved.iter().map(|stream| stream.report.clone()).collect();
    let connector = |stage: &crate::plan::Stage, role| {
        ConnectorReport::new(stage.connector.name(), role, stage.connector.loaded())
    };
    Ok(Report {
        status: "ok",
        pipeline: plan.document.pipeline.clone(),
        total_secs: planned.wall_secs + start.elapsed().as_secs_f64(),
        plan_secs: planned.wall_secs,
        limit: plan.limit,
        rows: streams.iter().map(|stream| stream.rows).sum(),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        peak_connector_bytes: moved.iter().map(|stream| stream.peak).max().unwrap_or(0) as u64,
        peak_rss_bytes: crate::report::peak_rss_bytes(),
        cpu_secs: crate::report::cpu_secs(),
        connectors: vec![
            connector(&plan.source, "source"),
            connector(&plan.destination, "destination"),
        ],
        timing,
        streams,
    })
}

struct Moved {
    report: StreamReport,
    cursor: Option<String>,
    peak: usize,
}

/// What the workers share: the streams to come, what is done, and the first cause.
struct Shared {
    queue: Mutex<VecDeque<usize>>,
    moved: Mutex<Vec<(usize, Moved)>>,
    cause: Mutex<Option<Failure>>,
    stop: Cancel,
}

impl Shared {
    /// Keeps the first failure and stops everything else.
    fn fail(&self, failure: Failure) {
        let mut cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        cause.get_or_insert(failure);
        drop(cause);
        self.stop.cancel();
    }
}

fn move_streams(
    plan: &Plan,
    host: &Host,
    progress: &Progress,
    snapshot: &str,
    begun: Instant,
) -> Result<Vec<Moved>, Failure> {
    let stop = Cancel::new();
    let stop_too = stop.clone();
    let _interrupted = host.cancel.on_cancel(move || stop_too.cancel());
    let shared = Shared {
        queue: Mutex::new((0..plan.streams.len()).collect()),
        moved: Mutex::default(),
        cause: Mutex::default(),
        stop,
    };
    let workers = (plan.document.resources.parallelism as usize).min(plan.streams.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(index) = next(&shared) {
                    let state = &progress.streams[index];
                    state.set_state(StreamState::Running);
                    host.say(&plan.streams[index].name, "started");
                    let at = Instant::now();
                    match move_stream(
                        plan,
                        &plan.streams[index],
                        host,
                        state,
                        snapshot,
                        &shared.stop,
                    ) {
                        Ok(mut moved) => {
                            moved.report.start_secs = (at - begun).as_secs_f64();
                            state.set_state(StreamState::Done);
                            host.say(&plan.streams[index].name, "committed");
                            let mut done =
                                shared.moved.lock().unwrap_or_else(PoisonError::into_inner);
                            done.push((index, moved));
                        }
                        Err(failure) => {
                            state.set_state(StreamState::Failed);
                            shared.fail(failure);
                        }
                    }
                }
            });
        }
    });
    let mut moved = shared
        .moved
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    moved.sort_by_key(|(index, _)| *index);
    let cause = shared
        .cause
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let interrupted = host.cancel.is_cancelled().then(Failure::cancelled);
    if let Some(mut cause) = interrupted.or(cause) {
        let done = moved.iter().map(|(_, moved)| moved.report.name.clone());
        cause.committed = done.collect();
        return Err(cause);
    }
    Ok(moved.into_iter().map(|(_, moved)| moved).collect())
}

fn next(shared: &Shared) -> Option<usize> {
    if shared.stop.is_cancelled() {
        return None;
    }
    shared
        .queue
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

/// One stream: two stages, one channel, one commit.
fn move_stream(
    plan: &Plan,
    stream: &StreamPlan,
    host: &Host,
    progress: &StreamProgress,
    snapshot: &str,
    stop: &Cancel,
) -> Result<Moved, Failure> {
    let resources = &plan.document.resources;
    let share = Share::of(resources.memory, resources.parallelism);
    let memory = MemoryBudget::new(share.instances);
    let work = Work {
        plan,
        stream,
        host,
        memory: Arc::clone(&memory),
        snapshot,
        progress,
        run: rapidbyte_runtime::Run {
            pipeline: plan.document.pipeline.clone(),
            id: String::new(),
        },
    };
    let (sender, mut receiver) = channel(share.channel, MAX_MESSAGES);
    // The source is stopped when the destination fails; the destination learns of a failed source
    // through the channel, so that it can abort in its own way.
    let (stop_source, stop_destination) = (stop.child(), stop.child());
    let wake = receiver.cancel_handle();
    let _woken = stop.on_cancel(move || wake.cancel());
    let start = Instant::now();
    let (read, written) = std::thread::scope(|scope| {
        let source = scope.spawn(|| {
            let clock = Clock::new();
            let result = pump_source(&work, sender, &clock, &stop_source);
            (result, StageReport::new(&clock, Side::Source))
        });
        let clock = Clock::new();
        let result = pump_destination(&work, &mut receiver, &clock, &stop_destination);
        let report = StageReport::new(&clock, Side::Destination);
        if result.is_err() {
            stop_source.cancel();
        }
        drop(receiver);
        let joined = source.join().unwrap_or_else(|_| {
            let text = "the source stage panicked: this is a fault of the engine";
            let failure = Failure::new(Class::Run, "internal", text);
            (
                Err(Stopped::because(failure)),
                StageReport::new(&Clock::new(), Side::Source),
            )
        });
        (joined, (result, report))
    });
    let wall = start.elapsed();
    match (read, written) {
        ((Ok(()), source), (Ok(done), destination)) => {
            let peak = memory.peak();
            let mut moved = moved(stream, done, wall, source, destination, peak);
            moved.report.limited = plan.limit.is_some_and(|limit| moved.report.rows >= limit);
            Ok(moved)
        }
        ((read, _), (written, _)) => Err(first_cause(read.err(), written.err())),
    }
}

/// The failure that was there first: a stage that only followed its peer has none.
fn first_cause(read: Option<Stopped>, written: Option<Stopped>) -> Failure {
    let failures = [read, written]
        .into_iter()
        .flatten()
        .filter_map(|stopped| match stopped {
            Stopped::Failed(failure) => Some(*failure),
            Stopped::Peer => None,
        });
    // A cancelled stage was cancelled because of the other one, or by the operator.
    let rank = |failure: &Failure| u8::from(failure.class == Class::Cancelled);
    failures.min_by_key(rank).unwrap_or_else(Failure::cancelled)
}

fn moved(
    stream: &StreamPlan,
    done: Written,
    wall: Duration,
    source: StageReport,
    destination: StageReport,
    peak: usize,
) -> Moved {
    let report = StreamReport {
        name: stream.name.clone(),
        location: done.receipt.location,
        rows: done.rows,
        limited: false,
        bytes: done.bytes,
        written_bytes: done.receipt.bytes,
        batches: done.batches,
        start_secs: 0.0,
        wall_secs: wall.as_secs_f64(),
        source,
        destination,
    };
    Moved {
        report,
        cursor: done.cursor,
        peak,
    }
}
