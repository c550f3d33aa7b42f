//! The jobs of a run that goes on while its stream has more.
//!
//! To plan a run and to open both sides takes longer than to move a few rows. So a run takes the next jobs of its stream as
//! soon as the last ones are committed, and waits some seconds for new ones.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use rapidbyte::batches::ConnectorError;
use rapidbyte::{Event, Plan, WriteMode};
use rapidbyte_runtime::broken;

use super::bodies::Bodies;
use super::{Problem, Shared};
use crate::agenda::{Key, LastRun};
use crate::metrics::Ended;
use crate::queue::{Feed, Next, Segment};
use crate::registry::Everything;
use crate::store::{Pending, StoreError, Tried, now_ms};

/// A run without jobs ends after this time.
const IDLE: Duration = Duration::from_secs(5);
/// A run with jobs ends after this time, if other streams wait for its thread.
const TURN: Duration = Duration::from_millis(250);

/// The jobs of one run.
pub(super) struct Live {
    work: Arc<Shared>,
    key: Key,
    tried: Tried,
    /// Its pipeline declares the columns of the bodies.
    is_declared: bool,
    /// The pipelines as they were at its begin.
    pipelines: Arc<Everything>,
    begun: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The jobs that the run has, and has not committed.
    current: Option<Taken>,
    /// The segment of these jobs, or the last segment.
    segment: Segment,
    /// It takes more jobs.
    goes_on: bool,
    /// The stream may have more jobs than the store was asked for.
    is_due: bool,
    /// The run has no jobs since then.
    idle_since: Option<Instant>,
    /// The next job of a run without jobs.
    given: Option<Given>,
    /// Has something when the jobs of the current segment are on the disk. `None`: they are.
    on_disk: Option<Receiver<()>>,
    /// Segments that are committed.
    committed: u64,
    /// Why it takes no more jobs.
    problem: Option<Problem>,
    /// The bodies that the run has.
    bodies: Bodies,
}

impl State {
    /// The segment ends with the bodies that the reader sees now.
    fn follow_bodies(&mut self) {
        if let (Some(taken), Some((jobs, last))) = (&mut self.current, self.bodies.reached()) {
            (taken.jobs, taken.last, self.segment.last) = (jobs, last, last);
        }
    }
}

/// A job that a run has before it is on the disk.
struct Given {
    job: Pending,
    on_disk: Receiver<()>,
}

/// Jobs of the current segment.
struct Taken {
    jobs: u64,
    last: i64,
    at: Instant,
}

/// The jobs that a failed run has left.
pub(super) struct Left {
    /// The last of the jobs that it had. `None` if it had none.
    pub last: Option<i64>,
    /// They are the jobs that it began with.
    pub is_first: bool,
    /// When it got them.
    pub at: Instant,
}

impl Left {
    /// A run that did not begin.
    pub(super) fn nothing() -> Self {
        Self {
            last: None,
            is_first: true,
            at: Instant::now(),
        }
    }
}

impl Live {
    /// A run that begins with these jobs, which are not none.
    pub(super) fn new(
        work: &Arc<Shared>,
        key: &Key,
        tried: &Tried,
        is_declared: bool,
        jobs: &[&Pending],
    ) -> Result<Arc<Self>, Problem> {
        let bodies = Bodies::new(&work.folder);
        let segment = Segment {
            stream: key.1.clone(),
            bodies: bodies.folder(),
            format: jobs
                .first()
                .map(|job| job.format.clone())
                .unwrap_or_default(),
            first: jobs.first().map_or(0, |job| job.id),
            last: jobs.last().map_or(0, |job| job.id),
            queue: tried.queue.clone(),
            seen: tried.seen.clone(),
        };
        let live = Self {
            work: Arc::clone(work),
            key: key.clone(),
            tried: tried.clone(),
            is_declared,
            pipelines: work.pipelines.all(),
            begun: Instant::now(),
            state: Mutex::new(State {
                current: None,
                segment,
                goes_on: false,
                is_due: true,
                idle_since: None,
                given: None,
                on_disk: None,
                committed: 0,
                problem: None,
                bodies,
            }),
            changed: Condvar::new(),
        };
        live.state().current = Some(live.taken(jobs)?);
        live.state().follow_bodies();
        Ok(Arc::new(live))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the bodies of these jobs in the place of those before.
    fn taken(&self, jobs: &[&Pending]) -> Result<Taken, Problem> {
        let spool = &self.work.spool;
        self.state().bodies.take(spool, jobs, self.is_declared)?;
        Ok(Taken {
            jobs: jobs.len() as u64,
            last: jobs.last().map_or(0, |job| job.id),
            at: Instant::now(),
        })
    }

    /// The run takes more jobs when these are committed.
    pub(super) fn go_on(&self) {
        self.state().goes_on = true;
    }

    /// Its stream has a new job, or it is to look whether it ends.
    pub(super) fn wake(&self) {
        self.state().is_due = true;
        self.changed.notify_all();
    }

    /// The time since which it has no jobs. `None`: it has some.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.state().idle_since
    }

    /// The name of its queue, if it has no jobs and takes the next ones at once.
    pub(super) fn expects(&self) -> Option<String> {
        let state = self.state();
        let is_expecting = state.goes_on && state.idle_since.is_some();
        is_expecting.then(|| self.tried.queue.clone())
    }

    /// Gives it the next job, which the store is about to have, if it still has none and takes it at once. Otherwise it
    /// asks the store later, as for any other job.
    pub(super) fn give(&self, job: Pending, queue: &str, on_disk: Receiver<()>) {
        let mut state = self.state();
        let is_expecting = state.goes_on && state.idle_since.is_some() && !state.is_due;
        if is_expecting && queue == self.tried.queue {
            state.given = Some(Given { job, on_disk });
            self.changed.notify_all();
        }
    }

    /// It takes no more jobs.
    pub(super) fn end(&self) {
        self.state().goes_on = false;
        self.changed.notify_all();
    }

    /// The destination has these rows with this cursor, or has changed the target, or the run is retried.
    pub(super) fn take_event(&self, event: &Event<'_>) {
        let (rows, cursor) = match event {
            Event::Committed { rows, cursor, .. } => (rows, cursor),
            Event::SchemaChanged { statements, .. } => {
                if let Some(pipeline) = self.work.pipelines.get(&self.key.0) {
                    let messages = &self.work.messages;
                    messages.queue_changed(&pipeline, &self.key.1, statements);
                }
                return;
            }
            Event::Retrying { failure, .. } => {
                let problem = Problem::from((*failure).clone());
                self.work.fails(&self.key, &problem, problem.told());
                return;
            }
            _ => return,
        };
        let job = cursor.and_then(|cursor| Segment::job_of(cursor, &self.tried.queue));
        let is_all = |taken: &Taken| job == Some(taken.last);
        if !self.state().current.as_ref().is_some_and(is_all) {
            return;
        }
        if let Err(problem) = self.done(*rows) {
            self.fail(problem);
        }
        self.leave_segment();
    }

    /// The jobs are not in the current segment any more: whoever asks for more gets those behind it.
    fn leave_segment(&self) {
        let mut state = self.state();
        (state.current, state.is_due) = (None, true);
        state.committed += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// The destination has the jobs of the current segment up to the last one, and nobody has heard how many rows.
    fn settle(&self, last: i64) -> Result<(), Problem> {
        let (pipeline, stream) = (self.key.0.as_str(), self.key.1.as_str());
        self.work.store.done_through(pipeline, stream, last)?;
        self.work.agenda().has_moved(&self.key);
        self.work.ends.tell(&self.key);
        self.state().bodies.clear();
        self.leave_segment();
        Ok(())
    }

    /// It takes no more jobs. The problem takes the place of the error that stops the run.
    fn fail(&self, problem: Problem) -> ConnectorError {
        let error = broken(&problem);
        let mut state = self.state();
        (state.problem, state.goes_on) = (Some(problem), false);
        error
    }

    /// The jobs of the current segment are done.
    fn done(&self, rows: u64) -> Result<(), Problem> {
        let state = self.state();
        let Some(taken) = &state.current else {
            return Ok(());
        };
        let (jobs, last, took) = (taken.jobs, taken.last, taken.at.elapsed());
        drop(state);
        let (pipeline, stream) = (self.key.0.as_str(), self.key.1.as_str());
        self.work
            .metrics
            .ran((pipeline, stream), Ended::Committed(rows), took);
        let store = &self.work.store;
        store.done_with_rows(pipeline, stream, last, rows)?;
        let run = LastRun {
            ended_ms: now_ms(),
            seconds: took.as_secs_f64(),
            jobs,
            rows,
        };
        if self.work.agenda().committed(&self.key, run) {
            self.work.works_again(&self.key);
        }
        self.work.ends.tell(&self.key);
        self.state().bodies.clear();
        Ok(())
    }

    /// The run has ended well. Jobs that it committed without an event are done, too.
    pub(super) fn ended(&self, rows: u64) -> Result<(), Problem> {
        let mut state = self.state();
        if let Some(problem) = state.problem.take() {
            return Err(problem);
        }
        let is_left = state.current.is_some();
        drop(state);
        match is_left {
            true => self.done(rows),
            false => Ok(()),
        }
    }

    /// Why it failed, if that is not the failure of the run itself.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.state().problem.take()
    }

    /// The run has failed.
    pub(super) fn left(&self) -> Left {
        let state = self.state();
        Left {
            last: state.current.as_ref().map(|taken| taken.last),
            is_first: state.committed == 0,
            at: state.current.as_ref().map_or(self.begun, |taken| taken.at),
        }
    }

    /// Whether the run ends before it takes more jobs.
    fn ends(&self, state: &State) -> bool {
        let is_idle = state.idle_since.is_some();
        let is_over = state.idle_since.is_some_and(|since| since.elapsed() > IDLE);
        let may_be_taken = is_idle || self.begun.elapsed() > TURN;
        !state.goes_on
            || is_over
            || self.work.has_ended()
            || may_be_taken && self.work.needs_a_thread()
            || is_idle && self.work.engine.is_memory_wanted()
            || is_idle && self.work.agenda().is_wanted(&self.key)
            || !Arc::ptr_eq(&self.pipelines, &self.work.pipelines.all())
    }

    /// Takes the job that it was given.
    fn take_given(&self, given: Given) -> Result<(Taken, Segment), Problem> {
        let Given { job, on_disk } = given;
        let taken = self.taken(&[&job])?;
        let mut state = self.state();
        state.on_disk = Some(on_disk);
        let segment = Segment {
            format: job.format,
            first: job.id,
            last: job.id,
            ..state.segment.clone()
        };
        Ok((taken, segment))
    }

    /// The next jobs of the stream. `None` if it has none.
    fn more(&self) -> Result<Option<(Taken, Segment)>, Problem> {
        let (pipeline, stream) = (self.key.0.as_str(), self.key.1.as_str());
        let Some((jobs, queue)) = self.work.take(pipeline, stream, self.is_declared)? else {
            return Ok(None);
        };
        let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else {
            // One was cancelled in between, and the others wait.
            self.state().is_due = true;
            return Ok(None);
        };
        let segment = Segment {
            format: first.format.clone(),
            first: first.id,
            last: last.id,
            ..self.state().segment.clone()
        };
        if queue != segment.queue {
            self.end();
            return Ok(None);
        }
        let jobs: Vec<&Pending> = jobs.iter().collect();
        let taken = self.taken(&jobs)?;
        Ok(Some((taken, segment)))
    }
}

impl Feed for Live {
    fn current(&self) -> Segment {
        self.state().segment.clone()
    }

    fn resume(&self, cursor: Option<&str>) -> Result<bool, ConnectorError> {
        let state = self.state();
        let is_in = state.segment.is_in(cursor)?;
        let (is_left, last) = (state.current.is_some(), state.segment.last);
        drop(state);
        if !is_left || !is_in {
            self.rewind();
            return Ok(is_left);
        }
        match self.settle(last) {
            Ok(()) => Ok(false),
            Err(problem) => Err(self.fail(problem)),
        }
    }

    fn next(&self, wait: Duration) -> Next {
        let until = Instant::now() + wait;
        let mut state = self.state();
        loop {
            if state.current.is_none() || !state.goes_on {
                if self.ends(&state) {
                    return Next::End;
                }
                let given = state.given.take();
                if std::mem::take(&mut state.is_due) || given.is_some() {
                    drop(state);
                    let more = match given {
                        Some(given) => self.take_given(given).map(Some),
                        None => self.more(),
                    };
                    state = self.state();
                    match more {
                        Ok(Some((taken, segment))) => {
                            (state.current, state.segment) = (Some(taken), segment);
                            state.follow_bodies();
                            // It may have come meanwhile, and is one of these.
                            state.given = None;
                            state.idle_since = None;
                            self.work.agenda().rests(&self.key, false);
                            return Next::Segment;
                        }
                        Ok(None) => {}
                        Err(problem) => {
                            state.problem = Some(problem);
                            return Next::End;
                        }
                    }
                    if state.idle_since.is_none() {
                        state.idle_since = Some(Instant::now());
                        self.work.agenda().rests(&self.key, true);
                    }
                    continue;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Nothing;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn turn(&self) -> bool {
        let mut state = self.state();
        let has_turned = state.bodies.turn();
        state.follow_bodies();
        has_turned
    }

    fn turn_back(&self) {
        let mut state = self.state();
        state.bodies.turn_back();
        state.follow_bodies();
    }

    fn rewind(&self) {
        let mut state = self.state();
        state.bodies.rewind();
        state.follow_bodies();
    }

    fn put_back(&self) {
        let mut state = self.state();
        (state.current, state.goes_on) = (None, false);
    }

    fn ensure_stored(&self) -> Result<(), ConnectorError> {
        let Some(on_disk) = self.state().on_disk.take() else {
            return Ok(());
        };
        // The thread of the store drops it after an error.
        if on_disk.recv().is_ok() {
            return Ok(());
        }
        self.state().current = None;
        let text = "the job that the run was given is not stored";
        Err(self.fail(StoreError::Sqlite(text.into()).into()))
    }

    fn ensure_sent(&self) -> Result<(), ConnectorError> {
        // A retry of the run reads them again.
        let spooled = self.state().bodies.on_disk();
        let is_over = || self.work.cancel.is_cancelled();
        let mut sent = spooled.iter().map(|body| body.ensure_sent(is_over));
        let Some(problem) = sent.find_map(Result::err) else {
            return Ok(());
        };
        Err(self.fail(problem))
    }
}

/// Whether rows of a pipeline are committed while the run goes on. Rows that replace all others are committed at its end.
pub(super) fn grows(plan: &Plan) -> bool {
    plan.streams
        .iter()
        .all(|stream| stream.increment.is_some() && stream.target.write_mode != WriteMode::Replace)
}
