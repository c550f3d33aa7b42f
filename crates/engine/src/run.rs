//! A plan becomes rows moved.

mod stream;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{Cancel, Level, Run, SyncMode};
use rapidbyte_state::{ActiveRun, Outcome, State, Turn};

use crate::beat::Beat;
use crate::document::OnStreamFailure;
use crate::event::Event;
use crate::failure::Failure;
use crate::host::Host;
use crate::known_as::{self, Asked};
use crate::ledger::{Ledger, point_of_run};
use crate::past;
use crate::plan::{Plan, Prepared, Stage, StreamPlan, Taken};
use crate::progress::{Progress, StreamProgress, StreamState};
use crate::report::{ConnectorReport, Report, Side, StageReport, StreamReport, Warning, add};
use crate::stage::Sessions;
use crate::usage::cpu_time;
use crate::verify::after_run;
use rustix::time::ClockId;
use stream::{Moved, Moving};

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

/// Moves all planned streams, `parallelism` groups at a time. Records the run in `history`, and resumes a run that did
/// not finish. Keeps the `turn` of the pipeline to the end.
///
/// Calls `tell` with the result before it records the end of the run. If the process dies in between, the next run
/// resumes this one, and adds no row a second time.
///
/// # Errors
/// The first cause. Rows that were committed before it stay, and `history` knows where to resume. No other row is
/// visible.
pub fn run(
    mut prepared: Prepared,
    host: &Host,
    progress: &Arc<Progress>,
    history: Option<&State>,
    turn: Option<Turn>,
    tell: impl FnOnce(Result<&Report, &Failure>),
) -> Result<(), Failure> {
    run_on(&mut prepared, host, progress, history, turn, tell)
}

/// The same, and leaves the sessions that are still open.
pub(crate) fn run_on(
    prepared: &mut Prepared,
    host: &Host,
    progress: &Arc<Progress>,
    history: Option<&State>,
    turn: Option<Turn>,
    tell: impl FnOnce(Result<&Report, &Failure>),
) -> Result<(), Failure> {
    // Without a history it is held to the end all the same.
    let mut turn = turn;
    let pipeline = &prepared.plan.document.pipeline;
    let begin = |history: &State| {
        let settings = known_as::settings(&prepared.plan);
        history.begin(pipeline, turn.take(), &settings)
    };
    let mut active = match history.map(begin) {
        Some(Ok(active)) => Some(active),
        Some(Err(error)) => return Err(Failure::of_state(error)),
        None => None,
    };
    let completed = match history {
        Some(history) => history.completed(pipeline).map_err(Failure::of_state)?,
        None => HashMap::new(),
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
    // Only a history knows what earlier runs have appended to them.
    let targets = match history {
        Some(_) => targets(&prepared.plan),
        None => HashMap::new(),
    };
    let resumed: HashMap<String, String> = names
        .iter()
        .filter_map(|name| {
            let known = completed.get(name).zip(targets.get(name));
            let appended = known.and_then(|(known, target)| last_appended(known, target));
            Some((name.clone(), appended.or_else(|| left.remove(name))?))
        })
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
    let goes_on = active.as_ref().is_some_and(ActiveRun::goes_on);
    let earlier = earlier.map(String::as_str);
    let asked = Asked::compared(&prepared.plan, history, earlier)?;
    let ledger = Ledger {
        known_as: asked.all(&prepared.plan, &run, &resumed),
        asked,
        completed,
        goes_on,
        targets,
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
    let moved = Beat::begin(prepared, host, &ledger.run).and_then(|beat| {
        let moved = move_all(prepared, host, progress, &ledger);
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
        let left: Vec<_> = failed.iter().map(of).collect();
        let target = |stream: &String| ledger.target_of(stream).unwrap_or_default();
        let done = done.map(|stream| (stream.clone(), target(stream)));
        active.streams_ended(done.collect(), left);
        if let Err(error) = history.finish(active, outcome) {
            let text = format!("the local history is behind: {error}");
            host.log(None, Level::Warn, &text);
        }
    }
    moved.map(drop)
}

/// The id of the last unfinished run that has appended a stream to its target.
fn last_appended(known: &HashSet<String>, target: &str) -> Option<String> {
    let ids = known_as::appended_to(known, target).map(known_as::base);
    // Ids begin with the time.
    ids.max().map(str::to_owned)
}

/// The targets of full refreshes, by stream.
fn targets(plan: &Plan) -> HashMap<String, String> {
    let is_whole = |stream: &&StreamPlan| stream.sync_mode == SyncMode::FullRefresh;
    let streams = plan.streams.iter().filter(is_whole);
    let target = known_as::target(&plan.destination, &plan.document);
    let of = |stream: &StreamPlan| {
        let chosen = plan.document.target_of(&stream.name);
        (stream.name.clone(), known_as::target_of(&target, chosen))
    };
    streams.map(of).collect()
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
    let mut moved = move_streams(prepared, host, progress, &taken, begun, ledger);
    let streams = prepared.plan.streams.iter_mut();
    for (stream, moved) in streams.zip(moved.iter_mut().flatten()) {
        if let Some(planned) = moved.replanned.take() {
            *stream = planned;
        }
    }
    let plan = &prepared.plan;
    let total = planned.wall_secs + start.elapsed().as_secs_f64();
    let moved = moved.and_then(|moved| verified(prepared, host, &taken, moved));
    let moved = match moved {
        Ok(moved) => moved,
        Err(mut failure) => {
            let skipped = skipped(&failure.streams.reports, &ledger.run.id, host);
            failure.streams.warnings.extend(gone);
            failure.streams.warnings.extend(skipped);
            failure.streams.warnings.extend(told(plan, ledger));
            let changed = changed(plan, &failure.streams.committed, ledger, host);
            failure.streams.warnings.extend(changed);
            return Err(failure);
        }
    };
    for (_, stage) in moved.iter().flat_map(|stream| stream.report.stages()) {
        add(&mut timing, &stage.parts);
    }
    let streams: Vec<StreamReport> = moved.iter().map(|stream| stream.report.clone()).collect();
    Ok(Report {
        status: "ok",
        pipeline: plan.document.pipeline.clone(),
        run_id: ledger.run.id.clone(),
        total_secs: total,
        plan_secs: planned.wall_secs,
        limit: plan.limit,
        rows: streams.iter().map(|stream| stream.rows).sum(),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        peak_connector_bytes: moved.iter().map(|stream| stream.peak).max().unwrap_or(0) as u64,
        peak_memory_bytes: host.usage.memory.peak() as u64,
        peak_rss_bytes: crate::report::peak_rss_bytes(),
        cpu_secs: host.usage.cpu_secs(),
        process_cpu_secs: cpu_time(ClockId::ProcessCPUTime).as_secs_f64(),
        connectors: plan.stages().into_iter().map(connector).collect(),
        timing,
        warnings: {
            let skipped = skipped(&streams, &ledger.run.id, host);
            let warnings = plan.streams.iter().flat_map(warnings);
            let told = told(plan, ledger);
            warnings.chain(gone).chain(skipped).chain(told).collect()
        },
        streams,
    })
}

/// Compares the targets with the source, if the pipeline wants that.
fn verified(
    prepared: &Prepared,
    host: &Host,
    taken: &Taken,
    mut moved: Vec<Moved>,
) -> Result<Vec<Moved>, Failure> {
    let reports = moved.iter_mut();
    let reports = reports.map(|moved| (&mut moved.report, moved.is_of_snapshot));
    match after_run(prepared, host, &taken.snapshot, reports) {
        Ok(()) => Ok(moved),
        Err(mut failure) => {
            let reports: Vec<StreamReport> = moved.into_iter().map(|moved| moved.report).collect();
            failure.streams.committed = reports.iter().map(|report| report.name.clone()).collect();
            failure.streams.reports = reports;
            failure.streams.warnings = prepared.plan.streams.iter().flat_map(warnings).collect();
            Err(failure)
        }
    }
}

fn connector(stage: &Stage) -> ConnectorReport {
    let connector = &stage.connector;
    ConnectorReport::new(
        connector.name(),
        connector.kind().name(),
        connector.loaded(),
    )
}

/// Rows that came to these streams since the interrupted run appended them are not in the target. The run that resumes
/// it says so.
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
        let (streams, them) = match skipped.as_slice() {
            [one] => (format!("{} was", one.stream), "it"),
            several => (format!("{} streams were", several.len()), "them"),
        };
        let text = format!(
            "{streams} not read again, because the interrupted run {run} had appended {them}; run again to append what \
             the source has now"
        );
        host.log(None, Level::Warn, &text);
    }
    skipped
}

/// The warnings about streams from the time that they moved.
fn told(plan: &Plan, ledger: &Ledger<'_>) -> Vec<Warning> {
    let warnings = |stream: &StreamPlan| {
        let tally = ledger.of(&stream.name);
        let to = stream.target.rejects.as_ref();
        let rejects = to.and_then(|rejects| tally.rejected.warning(&rejects.to));
        let messages = tally.warnings.into_iter().chain(rejects);
        let stream = stream.name.clone();
        messages.map(move |message| Warning {
            stream: stream.clone(),
            message,
        })
    };
    plan.streams.iter().flat_map(warnings).collect()
}

/// The changes of targets that stay although their streams failed.
fn changed(plan: &Plan, committed: &[String], ledger: &Ledger<'_>, host: &Host) -> Vec<Warning> {
    let failed = plan.streams.iter();
    let failed = failed.filter(|stream| !committed.contains(&stream.name));
    let warning = |stream: &StreamPlan| {
        let changes = ledger.of(&stream.name).changes;
        let one = |statement| {
            let message = format!("the target was changed before the stream failed: {statement}");
            host.log(Some(&stream.name), Level::Warn, &message);
            let stream = stream.name.clone();
            Warning { stream, message }
        };
        changes.into_iter().map(one).collect::<Vec<_>>()
    };
    failed.flat_map(warning).collect()
}

fn warnings(stream: &StreamPlan) -> impl Iterator<Item = Warning> {
    stream.warnings().map(|message| Warning {
        stream: stream.name.clone(),
        message: message.to_owned(),
    })
}

/// The state that the workers share: the groups of streams to come, the done and the failed streams, and the cause
/// that stopped the run.
struct Shared {
    queue: Mutex<VecDeque<Vec<usize>>>,
    moved: Mutex<Vec<(usize, Moved)>>,
    failed: Mutex<Vec<(usize, Failure)>>,
    cause: Mutex<Option<Failure>>,
    stop: Cancel,
}

impl Shared {
    /// Keeps the failure of one stream. The other streams continue.
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
    let Prepared {
        plan,
        sessions: held,
        ..
    } = prepared;
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
        queue: Mutex::new(plan.groups((0..plan.streams.len()).filter(is_read))),
        moved: Mutex::default(),
        failed: Mutex::new(taken.refused.clone()),
        cause: Mutex::default(),
        stop,
    };
    let workers = (plan.document.resources.parallelism as usize).min(plan.streams.len());
    let work = || {
        let _counted = host.usage.of_thread();
        let sessions = Sessions::default();
        while let Some(group) = next(&shared) {
            let members: Vec<_> = group
                .iter()
                .map(|index| {
                    (
                        Cow::Borrowed(&plan.streams[*index]),
                        &progress.streams[*index],
                    )
                })
                .collect();
            for (stream, state) in &members {
                state.set_state(StreamState::Running);
                host.tell(&Event::StreamStarted {
                    stream: &stream.name,
                });
            }
            let at = Instant::now();
            let mut moving = Moving {
                plan,
                held,
                members,
                host,
                ledger,
                stop: &shared.stop,
                sessions: &sessions,
            };
            match moving.until_done(&taken.snapshot) {
                Ok(all) => {
                    for (index, mut moved) in group.into_iter().zip(all) {
                        moved.report.start_secs = (at - begun).as_secs_f64();
                        progress.streams[index].set_state(StreamState::Done);
                        host.tell(&Event::StreamDone {
                            stream: &plan.streams[index].name,
                        });
                        let mut done = shared.moved.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((index, moved));
                    }
                }
                Err(failure) => {
                    for (_, state) in &moving.members {
                        state.set_state(StreamState::Failed);
                    }
                    let goes_on = plan.document.on_stream_failure == OnStreamFailure::Continue
                        && !failure.stops_run;
                    // After an interruption, the interruption counts as the cause of a failure.
                    if host.cancel.is_cancelled() {
                        shared.stop(interrupted());
                    } else if goes_on && !shared.stop.is_cancelled() {
                        let first = &plan.streams[group[0]].name;
                        for index in group {
                            let stream = &plan.streams[index].name;
                            let failure = of_stream(&failure, stream, first);
                            if plan.streams.len() > 1 {
                                tell_failed(plan, host, stream, &failure);
                            }
                            shared.keep(index, failure);
                        }
                    } else {
                        shared.stop(failure);
                    }
                }
            }
        }
        sessions.close();
    };
    match workers {
        // The calling thread has nothing else to do.
        1 => work(),
        _ => std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        }),
    }
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
        // The failure that stopped the run decides. It lists the streams that failed before.
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

/// The failure of a stream that fails with its group, whose `first` stream has a failure without a stream.
fn of_stream(failure: &Failure, stream: &str, first: &str) -> Failure {
    match failure.stream.as_deref().unwrap_or(first) {
        other if other != stream => {
            let text = format!(
                "moves together with {other}, which failed: {}",
                failure.message
            );
            let code = &failure.code;
            Failure::new(failure.class, code, text).in_stream(stream)
        }
        _ => failure.clone().in_stream(stream),
    }
}

fn next(shared: &Shared) -> Option<Vec<usize>> {
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
