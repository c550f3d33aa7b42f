//! A plan becomes rows moved.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{Cancel, Clock, Level, MemoryBudget, Run, Sandbox, Source};
use rapidbyte_state::{ActiveRun, Outcome, State, Turn};

use crate::beat::Beat;
use crate::channel::{BATCH_EXCESS, MAX_BATCHES, MAX_MESSAGES, channel};
use crate::document::{OnStreamFailure, Resources};
use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::{self, Asked};
use crate::ledger::{Ledger, point_of_run};
use crate::past;
use crate::plan::{Held, Plan, Prepared, StreamPlan, Taken, planning_sandbox};
use crate::progress::{Progress, StreamProgress, StreamState};
use crate::report::{ConnectorReport, Report, Side, StageReport, StreamReport, Warning, add};
use crate::retry::{Backoff, wait};
use crate::stage::{Sessions, Stopped, Work, pump_destination, pump_source};
use crate::superseded::Asking;

/// How a stream's share of `resources.memory` is used, in bytes.
struct Share {
    /// Linear memory of both instances together.
    instances: usize,
    /// Batches waiting in the channel: up to a sixteenth. As much is kept for the batch in each
    /// stage's hands.
    channel: usize,
}

impl Share {
    fn of(resources: &Resources) -> Self {
        let share = resources.memory as usize / resources.parallelism.max(1) as usize;
        let batches = (resources.batch_bytes as usize + BATCH_EXCESS) * MAX_BATCHES;
        Self {
            instances: share / 8 * 7,
            channel: batches.min(share / 16),
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

/// Moves everything that was planned, `parallelism` streams at a time. With a `history` the run is
/// told to it, and a run that did not finish is gone on with. The `turn` of the pipeline is kept to the end.
///
/// How it ended goes to `tell`, and only then is the run over for the history: a process that dies
/// while it tells is begun again with the same run, which adds no row a second time.
///
/// # Errors
/// The first cause. What was committed before it stays committed, and `history` knows where to go
/// on; of the rest nothing is visible.
pub fn run(
    mut prepared: Prepared,
    host: &Host,
    progress: &Arc<Progress>,
    history: Option<&State>,
    turn: Option<Turn>,
    tell: impl FnOnce(Result<&Report, &Failure>),
) -> Result<(), Failure> {
    // Without a history it is held to the end all the same.
    let mut turn = turn;
    let pipeline = &prepared.plan.document.pipeline;
    let settings = known_as::settings(&prepared.plan);
    let mut active = match history.map(|h| h.begin(pipeline, turn.take(), &settings)) {
        Some(Ok(active)) => Some(active),
        Some(Err(error)) => return Err(Failure::of_state(error)),
        None => None,
    };
    let mut left = match history {
        Some(history) => history
            .unfinished_streams(pipeline)
            .map_err(Failure::of_state)?,
        None => HashMap::new(),
    };
    let planned = prepared
        .plan
        .streams
        .iter()
        .map(|stream| stream.name.clone());
    let refused = prepared
        .plan
        .refused
        .iter()
        .map(|refused| refused.stream.clone());
    let names: Vec<String> = planned.chain(refused).collect();
    let resumed: HashMap<String, String> = names
        .iter()
        .filter_map(|name| Some((name.clone(), left.remove(name)?)))
        .collect();
    if let Some(why) = history.and_then(State::behind) {
        let text = format!(
            "{why}: the run continues, and `rapidbyte runs` records it when the lock is free"
        );
        host.log(None, Level::Warn, &text);
    }
    let run = Run {
        pipeline: prepared.plan.document.pipeline.clone(),
        id: match &active {
            Some(active) => active.id().to_owned(),
            None => format!("{:016x}", RandomState::new().hash_one(std::process::id())),
        },
    };
    let held = active.as_ref().and_then(ActiveRun::turn).or(turn.as_ref());
    let replaces = held.and_then(Turn::taken_from_run).map(str::to_owned);
    let earlier = resumed.values().chain(&replaces).chain([&run.id]);
    let asked = Asked::compared(&prepared.plan, history, earlier.map(String::as_str))?;
    warn_of_other_settings(&asked, &run.id, host);
    let ledger = Ledger {
        known_as: asked.all(&prepared.plan, &run, &resumed),
        asked,
        resumed,
        replaces,
        turn: held.map(Turn::watch),
        run,
        history,
        host,
        tallies: Mutex::default(),
    };
    host.tell(&Event::Started {
        run_id: &ledger.run.id,
        resumes: active.as_ref().is_some_and(ActiveRun::goes_on),
        progress,
    });
    let moved = Beat::begin(&prepared, host, &ledger.run).and_then(|beat| {
        let moved = move_all(&mut prepared, host, progress, &ledger);
        // Before anybody hears of the end: whoever begins the next run then is not refused.
        drop(beat);
        moved
    });
    // By their names, which the failure shows without secrets.
    let mut failed = owned(failed_streams(moved.as_ref().err()));
    let is_finished = moved
        .as_ref()
        .err()
        .is_some_and(|failure| is_finished(failure, &names));
    let moved = moved.map_err(|mut failure| {
        failure.redact(&prepared.plan.document);
        failure
    });
    tell(moved.as_ref());
    point_of_run("engine.told")?;
    if let (Some(history), Some(mut active)) = (history, active.take()) {
        let outcome = match &moved {
            Ok(_) => Outcome::Ok,
            Err(failure) if is_finished => Outcome::Partial(&failure.code),
            Err(failure) => Outcome::Failed(&failure.code),
        };
        if !failed.is_empty() {
            let complete = past::complete_streams(&ledger);
            failed.retain(|stream| !complete.contains(stream.as_str()));
        }
        let of = |stream: &String| (stream.clone(), ledger.id_of(stream).to_owned());
        let done = names.iter().filter(|name| !failed.contains(name.as_str()));
        active.streams_ended(done.cloned().collect(), failed.iter().map(of).collect());
        if let Err(error) = history.finish(active, outcome) {
            let text = format!("the local history is behind: {error}");
            host.log(None, Level::Warn, &text);
        }
    }
    moved.map(drop)
}

/// A run that resumes another one reads streams again that the other one has appended with other settings.
fn warn_of_other_settings(asked: &Asked, run: &str, host: &Host) {
    if asked.is_other(run) {
        let text = format!(
            "the settings of the source have changed since the run {run} was interrupted: what it has appended stays, \
             and every stream is read with the settings of now"
        );
        host.log(None, Level::Warn, &text);
    }
}

fn owned(names: HashSet<&str>) -> HashSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// The streams that failed by themselves.
fn failed_streams(failure: Option<&Failure>) -> HashSet<&str> {
    let Some(failure) = failure else {
        return HashSet::new();
    };
    let all = std::iter::once(failure).chain(&failure.streams.failures);
    all.filter_map(|failure| failure.stream.as_deref())
        .collect()
}

/// True when each stream has either failed or been committed, and at least one was committed. The
/// next run then has an id of its own: under this one, the committed streams would not be read
/// again as long as the others fail.
fn is_finished(failure: &Failure, names: &[String]) -> bool {
    let failed = failed_streams(Some(failure));
    let committed = &failure.streams.committed;
    let has_ended = |name: &String| failed.contains(name.as_str()) || committed.contains(name);
    !committed.is_empty() && names.iter().all(has_ended)
}

fn move_all(
    prepared: &mut Prepared,
    host: &Host,
    progress: &Progress,
    ledger: &Ledger<'_>,
) -> Result<Report, Failure> {
    let gone = past::gone(&prepared.plan, ledger);
    for Warning { stream, message } in &gone {
        host.log(Some(stream), Level::Warn, message);
    }
    let taken = prepared.take_moment(host)?;
    let Prepared { plan, clocks, .. } = &*prepared;
    point_of_run("engine.planned")?;
    let is_refused = !plan.refused.is_empty() || !taken.refused.is_empty();
    let stops = plan.document.on_stream_failure == OnStreamFailure::Stop;
    if is_refused
        && (stops || taken.refused.len() == plan.streams.len())
        && let Some(failure) = plan.refusal(&taken)
    {
        return Err(failure);
    }
    let planned = StageReport::new(&clocks.source, Side::Source);
    let mut timing = planned.parts;
    add(
        &mut timing,
        &StageReport::new(&clocks.destination, Side::Destination).parts,
    );
    let start = Instant::now();
    let begun = start.checked_sub(Duration::from_secs_f64(planned.wall_secs));
    let begun = begun.unwrap_or(start);
    let moved = match move_streams(prepared, host, progress, &taken, begun, ledger) {
        Ok(moved) => moved,
        Err(mut failure) => {
            failure.streams.warnings.extend(gone);
            return Err(failure);
        }
    };
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
        run_id: ledger.run.id.clone(),
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
        warnings: {
            let skipped = skipped(&streams, &ledger.run.id, host);
            let warnings = plan.streams.iter().flat_map(warnings);
            warnings.chain(gone).chain(skipped).collect()
        },
        streams,
    })
}

/// What came to these streams since the interrupted run appended them is not in the target: the run that resumes it
/// says so.
fn skipped(streams: &[StreamReport], run: &str, host: &Host) -> Vec<Warning> {
    let skipped: Vec<Warning> = streams
        .iter()
        .filter(|stream| stream.committed_before)
        .map(|stream| Warning {
            stream: stream.name.clone(),
            message: format!(
                "not read again, because the interrupted run {run} had appended it; the next run reads what the \
                 source has then"
            ),
        })
        .collect();
    if !skipped.is_empty() {
        let text = format!(
            "{} not read again, because the interrupted run {run} had appended {}; run again to append what the source \
             has now",
            match skipped.len() {
                1 => format!("{} was", skipped[0].stream),
                several => format!("{several} streams were"),
            },
            if skipped.len() == 1 { "it" } else { "them" },
        );
        host.log(None, Level::Warn, &text);
    }
    skipped
}

fn warnings(stream: &StreamPlan) -> impl Iterator<Item = Warning> {
    stream.warnings().map(|message| Warning {
        stream: stream.name.clone(),
        message: message.to_owned(),
    })
}

struct Moved {
    report: StreamReport,
    peak: usize,
}

/// What the workers share: the streams to come, what is done, what failed, and what stopped the run.
struct Shared {
    queue: Mutex<VecDeque<usize>>,
    moved: Mutex<Vec<(usize, Moved)>>,
    failed: Mutex<Vec<(usize, Failure)>>,
    cause: Mutex<Option<Failure>>,
    stop: Cancel,
}

impl Shared {
    /// Keeps the failure of one stream; the others go on.
    fn keep(&self, index: usize, failure: Failure) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.push((index, failure));
    }

    /// Keeps the first failure and stops everything else.
    fn stop(&self, failure: Failure) {
        let mut cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        cause.get_or_insert(failure);
        drop(cause);
        self.stop.cancel();
    }
}

fn move_streams(
    prepared: &Prepared,
    host: &Host,
    progress: &Progress,
    taken: &Taken,
    begun: Instant,
    ledger: &Ledger<'_>,
) -> Result<Vec<Moved>, Failure> {
    let Prepared { plan, sessions, .. } = prepared;
    let stop = Cancel::new();
    let stop_too = stop.clone();
    let _interrupted = host.cancel.on_cancel(move || stop_too.cancel());
    let is_read = |index: &usize| taken.refused.iter().all(|(other, _)| other != index);
    for (index, _) in &taken.refused {
        progress.streams[*index].set_state(StreamState::Failed);
    }
    let of_plan = plan
        .refused
        .iter()
        .map(|one| (one.stream.as_str(), &one.failure));
    let of_moment = taken.refused.iter();
    let of_moment = of_moment.map(|(index, failure)| (plan.streams[*index].name.as_str(), failure));
    for (stream, failure) in of_plan.chain(of_moment) {
        tell_failed(plan, host, stream, failure);
    }
    let shared = Shared {
        queue: Mutex::new((0..plan.streams.len()).filter(is_read).collect()),
        moved: Mutex::default(),
        failed: Mutex::new(taken.refused.clone()),
        cause: Mutex::default(),
        stop,
    };
    let workers = (plan.document.resources.parallelism as usize).min(plan.streams.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let kept = Sessions::default();
                while let Some(index) = next(&shared) {
                    let state = &progress.streams[index];
                    state.set_state(StreamState::Running);
                    host.tell(&Event::StreamStarted {
                        stream: &plan.streams[index].name,
                    });
                    let at = Instant::now();
                    let stream = &plan.streams[index];
                    let one = Moving {
                        plan,
                        held: sessions,
                        stream,
                        host,
                        progress: state,
                        ledger,
                        stop: &shared.stop,
                        sessions: &kept,
                    };
                    match one.until_done(&taken.snapshot) {
                        Ok(mut moved) => {
                            moved.report.start_secs = (at - begun).as_secs_f64();
                            state.set_state(StreamState::Done);
                            host.tell(&Event::StreamDone {
                                stream: &plan.streams[index].name,
                            });
                            let mut done =
                                shared.moved.lock().unwrap_or_else(PoisonError::into_inner);
                            done.push((index, moved));
                        }
                        Err(failure) => {
                            state.set_state(StreamState::Failed);
                            let goes_on = plan.document.on_stream_failure
                                == OnStreamFailure::Continue
                                && !failure.stops_run;
                            // What fails behind an interruption fails by it.
                            if host.cancel.is_cancelled() {
                                shared.stop(interrupted());
                            } else if goes_on && !shared.stop.is_cancelled() {
                                if plan.streams.len() > 1 {
                                    tell_failed(plan, host, &stream.name, &failure);
                                }
                                shared.keep(index, failure);
                            } else {
                                shared.stop(failure);
                            }
                        }
                    }
                }
                kept.close();
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
    let mut failed = shared
        .failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|(index, _)| *index);
    let is_cut_off = host.cancel.is_cancelled() && moved.len() + failed.len() < plan.streams.len();
    let of_plan = plan.refused.iter();
    let of_plan = of_plan.map(|one| one.failure.clone().in_stream(&one.stream));
    let failed = failed.into_iter().map(|(_, failure)| failure);
    let failed: Vec<Failure> = of_plan.chain(failed).collect();
    let failure = match cause.or_else(|| is_cut_off.then(interrupted)) {
        // What stopped the run decides, and the streams that failed before are listed.
        Some(mut cause) => {
            cause.streams.failures = failed;
            Some(cause)
        }
        None => Failure::of_streams(failed, plan.streams.len() + plan.refused.len()),
    };
    if let Some(mut failure) = failure {
        let done = moved.iter().map(|(_, moved)| moved.report.name.clone());
        failure.streams.committed = done.collect();
        failure.streams.reports = moved.into_iter().map(|(_, moved)| moved.report).collect();
        failure.streams.warnings = plan.streams.iter().flat_map(warnings).collect();
        return Err(failure);
    }
    Ok(moved.into_iter().map(|(_, moved)| moved).collect())
}

fn interrupted() -> Failure {
    Failure {
        message: "interrupted: streams that were not committed yet are not visible".into(),
        ..Failure::cancelled()
    }
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

fn tell_failed(plan: &Plan, host: &Host, stream: &str, failure: &Failure) {
    host.tell(&Event::StreamFailed {
        stream,
        failure: &failure.redacted(&plan.document),
    });
}

/// One stream on its way.
struct Moving<'a> {
    plan: &'a Plan,
    /// The sessions that planned.
    held: &'a Held,
    stream: &'a StreamPlan,
    host: &'a Host,
    progress: &'a StreamProgress,
    ledger: &'a Ledger<'a>,
    stop: &'a Cancel,
    sessions: &'a Sessions,
}

/// Why an attempt failed, and on which side.
struct Failed {
    failure: Box<Failure>,
    of_source: bool,
}

/// The moment as of which a stream is read.
struct AsOf {
    /// The source's name of it.
    snapshot: String,
    /// Holds a moment that was fixed for this stream alone.
    own: Option<Source>,
    /// The next attempt needs a later one.
    is_over: bool,
}

impl Moving<'_> {
    /// Begins again, where the destination is then, as long as a failure may pass.
    fn until_done(&self, snapshot: &str) -> Result<Moved, Failure> {
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
        // Who held the snapshot has read the stream itself.
        let is_read = moment.own.is_none() && !self.held.has_coordinator();
        // Nobody knows whether it was let in, nor who else was since: what a newer run has read must not
        // be followed by what is older.
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

    /// Two stages and one channel between them.
    fn once(&self, snapshot: &str) -> Result<Moved, Failed> {
        let resources = &self.plan.document.resources;
        let share = Share::of(resources);
        let memory = MemoryBudget::new(share.instances);
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
        };
        let (sender, mut receiver) = channel(share.channel, MAX_MESSAGES);
        let (tell, told) = crossbeam_channel::bounded(1);
        // The source is stopped when the destination fails; the destination learns of a failed
        // source through the channel, so that it can abort in its own way.
        let (stop_source, stop_destination) = (self.stop.child(), self.stop.child());
        let wake = receiver.cancel_handle();
        let _woken = self.stop.on_cancel(move || wake.cancel());
        let start = Instant::now();
        let (read, written) = std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                let clock = Clock::new();
                let result = pump_source(&work, sender, &told, &clock, &stop_source);
                (result, StageReport::new(&clock, Side::Source))
            });
            let clock = Clock::new();
            let pump = || pump_destination(&work, &mut receiver, &tell, &clock, &stop_destination);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(pump));
            let result =
                result.unwrap_or_else(|_| Err(Stopped::because(Failure::panicked("destination"))));
            let report = StageReport::new(&clock, Side::Destination);
            if result.is_err() {
                stop_source.cancel();
            }
            drop((receiver, tell));
            let joined = source.join().unwrap_or_else(|_| {
                let report = StageReport::new(&Clock::new(), Side::Source);
                (Err(Stopped::because(Failure::panicked("source"))), report)
            });
            (joined, (result, report))
        });
        let wall = start.elapsed();
        match (read, written) {
            ((Ok(()), source), (Ok(()), destination)) => {
                let mut moved = self.moved(wall, source, destination, memory.peak());
                moved.report.limited = self
                    .plan
                    .limit
                    .is_some_and(|limit| moved.report.rows >= limit);
                Ok(moved)
            }
            ((read, _), (written, _)) => {
                self.sessions.end();
                Err(first_cause(read.err(), written.err()))
            }
        }
    }

    fn moved(
        &self,
        wall: Duration,
        source: StageReport,
        destination: StageReport,
        peak: usize,
    ) -> Moved {
        let tally = self.ledger.of(&self.stream.name);
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
            destination,
        };
        Moved { report, peak }
    }
}

/// The failure that was there first: a stage that only followed its peer has none.
fn first_cause(read: Option<Stopped>, written: Option<Stopped>) -> Failed {
    let failures = [(read, true), (written, false)].into_iter().filter_map(
        |(stopped, of_source)| match stopped {
            Some(Stopped::Failed(failure)) => Some(Failed { failure, of_source }),
            _ => None,
        },
    );
    // A cancelled stage was cancelled because of the other one, or by the operator.
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
            Share::of(&Resources {
                memory,
                batch_bytes,
                max_record_bytes: 1 << 20,
                parallelism,
                compression: Compression::None,
            })
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
