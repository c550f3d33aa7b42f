//! Runs of one pipeline that overlap: one of them works, and `when_running` says what the others do.
//!
//! A run is alive while it holds its lock beside the history. A run from another directory or
//! machine is alive while the destination says so. The rows are right without both, because the
//! destination fences. This module only decides which run ends.

use std::path::Path;
use std::time::Duration;

use rapidbyte_runtime::{Destination, Level, Worker as Remote};
use rapidbyte_state::{Asked, Outcome, State, Turn, Worker, process};

use crate::document::{Document, WhenRunning};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::base;
use crate::narrow::Narrowing;
use crate::plan::{Prepared, fences_all, fences_runs};
use crate::retry;

/// How often a waiting run checks.
const PAUSE: Duration = Duration::from_secs(1);
pub(crate) const CODE: &str = "already_running";
const HINT: &str = "wait until that run has ended, or set `when_running: wait` in the pipeline file to \
     wait for it";
const HINT_TO_FENCE: &str = "wait until that run has ended; or set `when_running: wait` in the pipeline \
     file to wait for it, or `when_running: replace` to fence it";

/// Plans a run once no other run of the pipeline is active, or as `when_running` says. The caller keeps the
/// turn of the history's directory to the end of the run. None where the directory takes no lock.
///
/// # Errors
/// `already_running`, and errors of planning.
pub fn plan_alone(
    document: Document,
    host: &Host,
    narrowing: &Narrowing,
    history: &Path,
) -> Result<(Prepared, Option<Turn>), Unplanned> {
    let turn = take_turn(&document, history, host)?;
    let pipeline = document.pipeline.clone();
    match plan_in_turn(document, host, narrowing, history, turn.as_ref()) {
        Ok(prepared) => Ok((prepared, turn)),
        Err(failure) => {
            // A mistake in a pipeline file that never ran makes no history.
            let is_recorded =
                failure.code != CODE && (failure.class != Class::Config || history.exists());
            let recorded = turn.filter(|_| is_recorded);
            let recorded = recorded.map(|turn| record(&pipeline, history, turn, &failure));
            let history = recorded.and_then(|recorded| match recorded {
                Ok(history) => Some(history),
                Err(error) => {
                    let text = format!("the history of runs does not record this failure: {error}");
                    host.log(None, Level::Warn, &text);
                    None
                }
            });
            Err(Unplanned {
                failure: Box::new(failure),
                history,
            })
        }
    }
}

/// As [`plan_alone`], for a repair of rows: runs that begin later wait for it or refuse, because a repair must not write
/// rows that it read before a run committed newer ones. It fences no run and leaves no history.
///
/// # Errors
/// `already_running`, and errors of planning.
pub fn plan_repair(
    mut document: Document,
    host: &Host,
    narrowing: &Narrowing,
    history: &Path,
) -> Result<(Prepared, Option<Turn>), Failure> {
    if document.when_running == WhenRunning::Replace {
        document.when_running = WhenRunning::Refuse;
    }
    let turn = take_turn(&document, history, host)?;
    let prepared = plan_in_turn(document, host, narrowing, history, turn.as_ref())?;
    Ok((prepared, turn))
}

/// The turn of a pipeline for a replay into a destination that reaches no server: only this lock tells it of an active
/// run, which the replay would fence. None where the directory takes no lock.
///
/// # Errors
/// `already_running`.
pub(crate) fn turn_of_replay(document: &Document, host: &Host) -> Result<Option<Turn>, Failure> {
    let mut document = document.clone();
    if document.when_running == WhenRunning::Replace {
        document.when_running = WhenRunning::Refuse;
    }
    let turn = take_turn(&document, &document.history(), host);
    // A replay replaces no run.
    turn.map_err(|failure| failure.hint(HINT))
}

/// A run that did not come to its first row.
pub struct Unplanned {
    /// Why.
    pub failure: Box<Failure>,
    /// Where the attempt is recorded. None where another run is active, or where the history cannot be written.
    /// None also for a mistake in the pipeline file before the first history.
    pub history: Option<State>,
}

impl From<Failure> for Unplanned {
    fn from(failure: Failure) -> Self {
        Self {
            failure: Box::new(failure),
            history: None,
        }
    }
}

/// Records the attempt, so that the history shows that the pipeline fails.
fn record(
    pipeline: &str,
    history: &Path,
    turn: Turn,
    failure: &Failure,
) -> rapidbyte_state::Result<State> {
    let state = State::open(history)?;
    let active = state.begin(pipeline, Some(turn), "")?;
    state.finish(active, Outcome::Failed(&failure.code))?;
    Ok(state)
}

fn plan_in_turn(
    document: Document,
    host: &Host,
    narrowing: &Narrowing,
    history: &Path,
    turn: Option<&Turn>,
) -> Result<Prepared, Failure> {
    if document.when_running == WhenRunning::Replace {
        return Prepared::narrowed(document, host, narrowing);
    }
    let has_died = |run: &str| has_died(turn, history, run);
    let mut waits = Waits::default();
    loop {
        let planned = Prepared::alone(document.clone(), host, narrowing, &has_died);
        match planned {
            Err(failure) if failure.code == CODE && document.when_running == WhenRunning::Wait => {
                let who = failure.message.strip_suffix(NOT_STARTED);
                waits.on(who.unwrap_or(&failure.message), host)?;
            }
            planned => return planned,
        }
    }
}

impl Prepared {
    /// Plans for a run that has to be alone. Refuses while the destination knows an active run of the pipeline, and
    /// asks before the source takes its snapshot. A run that `has_died` does not count as active.
    pub(crate) fn alone(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
        has_died: &dyn Fn(&str) -> bool,
    ) -> Result<Self, Failure> {
        Self::planned(document, host, narrowing, |document, destination| {
            refuse_remote(document, destination, has_died)
        })
    }
}

/// Refuses to plan while the destination says that a run of the pipeline is active, unless that run
/// `has_died` on this machine.
fn refuse_remote(
    document: &Document,
    destination: &mut Destination,
    has_died: &dyn Fn(&str) -> bool,
) -> Result<(), Failure> {
    match alive(document, destination, has_died)? {
        None => Ok(()),
        Some(worker) => {
            // A run that waits shows no hint.
            let waits = document.when_running == WhenRunning::Wait;
            let fences = !waits && fences_all(document, destination);
            Err(refused(&remote(document, &worker), fences))
        }
    }
}

/// The active run of the pipeline, for people. None if no run is active.
pub(crate) fn at_work(
    document: &Document,
    destination: &mut Destination,
    history: &Path,
) -> Result<Option<String>, Failure> {
    let turn = match Turn::ask(history, &document.pipeline, false) {
        Ok(Asked::Held(worker)) => return Ok(Some(local(document, &worker))),
        Ok(Asked::Taken(turn)) => Some(turn),
        // A run cannot hold a lock in a directory that takes no lock.
        Err(_) => None,
    };
    let has_died = |run: &str| has_died(turn.as_deref(), history, run);
    let worker = alive(document, destination, &has_died)?;
    Ok(worker.map(|worker| remote(document, &worker)))
}

/// A run that is active according to the destination, unless this machine knows that it has ended.
fn alive(
    document: &Document,
    destination: &mut Destination,
    has_died: &dyn Fn(&str) -> bool,
) -> Result<Option<Remote>, Failure> {
    let workers = destination
        .working(&document.pipeline)
        .map_err(|error| Failure::from_runtime(error, document, "destination"))?;
    Ok(workers.into_iter().find(|worker| {
        let process = worker.process.as_deref();
        !has_died(&worker.run_id) && !process.is_some_and(process::has_ended)
    }))
}

/// Whether the run worked in this directory and has died. While a run plans, the destination knows an empty id: then
/// the run has died if this run took its turn.
fn has_died(turn: Option<&Turn>, history: &Path, run: &str) -> bool {
    let run = base(run);
    if run.is_empty() {
        return turn.is_some_and(|turn| turn.taken_from().is_some());
    }
    let is_known = turn.is_some_and(|turn| turn.has_died(run));
    let look = || State::look(history).ok().flatten();
    is_known || look().is_some_and(|history| history.has_died(run))
}

fn take_turn(document: &Document, history: &Path, host: &Host) -> Result<Option<Turn>, Failure> {
    let replaces = document.when_running == WhenRunning::Replace;
    let mut waits = Waits::default();
    loop {
        match Turn::ask(history, &document.pipeline, replaces) {
            Ok(Asked::Taken(turn)) => {
                if let Some(dead) = turn.taken_from().filter(|_| !replaces) {
                    let text = format!(
                        "{} has not answered for {} s, so this run fences it",
                        local(document, dead),
                        dead.silence.as_secs()
                    );
                    host.log(None, Level::Warn, &text);
                }
                return Ok(Some(*turn));
            }
            Ok(Asked::Held(worker)) if document.when_running == WhenRunning::Wait => {
                waits.on(&local(document, &worker), host)?;
            }
            Ok(Asked::Held(worker)) => {
                let fences = fences_runs(document, host);
                return Err(refused(&local(document, &worker), fences));
            }
            // The directory is not writable. A later step checks whether the run needs its history.
            Err(error) => {
                let text = format!("this run cannot detect an overlapping run: {error}");
                host.log(None, Level::Debug, &text);
                return Ok(None);
            }
        }
    }
}

/// Follows the run at work in the message of a refusal.
const NOT_STARTED: &str = " is running, and this run did not start";

fn refused(who: &str, fences: bool) -> Failure {
    let text = format!("{who}{NOT_STARTED}");
    let hint = if fences { HINT_TO_FENCE } else { HINT };
    Failure::new(Class::Busy, CODE, text).hint(hint)
}

/// A run at work, for people: the subject of a sentence. A run without an id is still being planned.
fn named(id: Option<&str>, pipeline: &str, facts: &str) -> String {
    match id {
        Some(id) if !id.is_empty() => {
            format!("the run {} of the pipeline {pipeline} ({facts})", base(id))
        }
        _ => format!("another run of the pipeline {pipeline} (still planning; {facts})"),
    }
}

fn local(document: &Document, worker: &Worker) -> String {
    let facts = match worker.host.is_empty() {
        // It holds the lock, and has not written its record yet.
        true => "it has just started".to_owned(),
        false => format!(
            "process {} on {}, started {} s ago",
            worker.pid,
            worker.host,
            worker.age.as_secs()
        ),
    };
    named(worker.run.as_deref(), &document.pipeline, &facts)
}

fn remote(document: &Document, worker: &Remote) -> String {
    let facts = format!("{}, running for {} s", worker.place, worker.seconds);
    named(Some(&worker.run_id), &document.pipeline, &facts)
}

/// Says once which run it waits for.
#[derive(Default)]
struct Waits {
    is_told: bool,
}

impl Waits {
    /// Waits a moment.
    fn on(&mut self, who: &str, host: &Host) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.is_told, true) {
            let text = format!("waits for {who} to end");
            host.log(None, Level::Warn, &text);
        }
        match retry::wait(PAUSE, &host.cancel) {
            true => Ok(()),
            false => Err(Failure::cancelled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_at_work_is_the_subject_of_each_sentence() {
        let facts = "from 127.0.0.1, server process 7, running for 3 s";
        let known = named(Some("01"), "p", facts);
        let planning = named(Some(""), "p", facts);
        assert_eq!(
            refused(&known, false).message,
            "the run 01 of the pipeline p (from 127.0.0.1, server process 7, running for 3 s) is running, and this run \
             did not start"
        );
        for who in [&known, &planning] {
            // A run that waits names the run alone.
            let message = refused(who, true).message;
            assert_eq!(message.strip_suffix(NOT_STARTED), Some(who.as_str()));
        }
        assert_eq!(
            planning,
            "another run of the pipeline p (still planning; from 127.0.0.1, server process 7, running for 3 s)"
        );
        assert_eq!(named(None, "p", facts), planning);
    }
}
