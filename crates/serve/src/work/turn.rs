//! The turn of a stream: its next jobs in a run.

use std::sync::Arc;

use rapidbyte::{Class, Control, Failure, History, Pipeline, Report, RunOptions};

use super::blame::{is_of_bodies, is_of_reader, is_of_writer};
use super::live::{self, Left, Live};
use super::split::Moved;
use super::{MAX_BYTES, MAX_INFERRED, MAX_INLINE, MAX_JOBS, Problem, Shared};
use crate::agenda::{Key, Turn};
use crate::metrics::Ended;
use crate::queue::{self, Feed, Segment, declares_columns, mark};
use crate::store::{Pending, StoreError, Tried};

impl Shared {
    /// Moves the next jobs of a stream.
    pub(super) fn turn(self: &Arc<Self>, key: &Key, is_reconciled: bool) -> Result<Turn, Problem> {
        let (pipeline, stream) = key;
        let known = self.pipelines.get(pipeline);
        let of_queue = known.and_then(|known| known.of_queue(stream, declares_columns(&known)));
        let of_queue = of_queue.ok_or(Problem::NoPipeline)?;
        let tried = match is_reconciled {
            true => self.store.tried(pipeline, stream)?,
            false => self.reconcile(&of_queue, key)?,
        };
        let is_declared = declares_columns(&of_queue);
        let Some((jobs, _)) = self.take(pipeline, stream, is_declared)? else {
            return Ok(Turn::Empty);
        };
        let Some(last) = jobs.last() else {
            return Ok(Turn::More);
        };
        let tried = Tried {
            tried: tried.tried.max(last.id),
            ..tried
        };
        let all: Vec<&Pending> = jobs.iter().collect();
        let (problem, left) = match self.run(&of_queue, key, &tried, &all, true) {
            Ok(_) => return Ok(Turn::More),
            Err(stopped) => stopped,
        };
        // Once for the turn: what the other jobs of it commit ends the row of failures.
        let is_patience_over = self.agenda().is_patience_over(key);
        let Left { last, is_first, .. } = left;
        let tried = match is_first {
            true => tried,
            // Other jobs are committed since, by this run or by another queue.
            false => match self.reconcile(&of_queue, key) {
                Ok(tried) => tried,
                Err(shared @ (Problem::Foreign | Problem::Restored { .. })) => return Err(shared),
                Err(_) => return Err(problem),
            },
        };
        let (failure, last) = match (problem, last) {
            (Problem::Run(failure), Some(last))
                if self.blames_jobs(&failure, &of_queue, key, is_patience_over) =>
            {
                (failure, last)
            }
            (problem, _) => return Err(problem),
        };
        let jobs = match is_first {
            true => jobs,
            false => {
                let (pending, _) = self.pending(pipeline, stream, is_declared)?;
                pending
            }
        };
        // Those behind were not read yet.
        let jobs = jobs.into_iter().take_while(|job| job.id <= last);
        let jobs: Vec<Pending> = jobs.collect();
        // The target may have changed since a run that has gone on was planned: another one plans anew.
        let is_known = is_first || is_of_reader(&failure);
        let failure = is_known.then_some(failure);
        match self.move_jobs(&of_queue, key, &tried, &jobs, failure, is_patience_over)? {
            Moved::All => Ok(Turn::More),
            Moved::Rest(problem) => Err(problem),
        }
    }

    /// Whether a failure is about the jobs of the run. With `is_patience_over` it also is where the destination has an
    /// error of its own, which a row may have caused: it has moved others.
    pub(super) fn blames_jobs(
        &self,
        failure: &Failure,
        pipeline: &Pipeline,
        key: &Key,
        is_patience_over: bool,
    ) -> bool {
        is_of_bodies(failure, pipeline)
            || is_patience_over && is_of_writer(failure) && self.agenda().is_proved(key)
    }

    /// The next jobs, and the name of the queue if a run has had all of them.
    fn pending(
        &self,
        pipeline: &str,
        stream: &str,
        is_declared: bool,
    ) -> Result<(Vec<Pending>, Option<String>), StoreError> {
        let key = (pipeline, stream);
        let most = match is_declared {
            true => MAX_JOBS,
            false => MAX_INFERRED,
        };
        self.store.pending(key, most, MAX_BYTES, MAX_INLINE)
    }

    /// The next jobs of a stream, which a run now has, and the name of the queue. `None` if it has no jobs. No jobs if some
    /// were cancelled meanwhile.
    pub(super) fn take(
        &self,
        pipeline: &str,
        stream: &str,
        is_declared: bool,
    ) -> Result<Option<(Vec<Pending>, String)>, StoreError> {
        let (jobs, queue) = self.pending(pipeline, stream, is_declared)?;
        let Some(last) = jobs.last() else {
            return Ok(None);
        };
        if let Some(queue) = queue {
            return Ok(Some((jobs, queue)));
        }
        let (pending, queue) = self.store.try_through(pipeline, stream, last.id)?;
        match pending == jobs.len() as u64 {
            true => Ok(Some((jobs, queue))),
            false => Ok(Some((Vec::new(), queue))),
        }
    }

    /// Asks the destination which jobs it has: a run may have committed them without having said so.
    ///
    /// # Errors
    /// `Foreign` and `Restored` where the destination does not tell which of the jobs it has.
    pub(super) fn reconcile(
        &self,
        pipeline: &Pipeline,
        (name, stream): &Key,
    ) -> Result<Tried, Problem> {
        // A run that goes on has had more jobs since it began.
        let tried = self.store.tried(name, stream)?;
        let mut cursors = self
            .engine
            .cursors(pipeline, None, false, &self.control())?;
        let progress = cursors.progress(stream)?;
        let Some(cursor) = progress.and_then(|progress| progress.cursor) else {
            return Ok(tried);
        };
        match Segment::job_of(&cursor, &tried.queue) {
            Some(job) if job > tried.tried => Err(Problem::Restored {
                has: job,
                tried: tried.tried,
            }),
            Some(job) => {
                self.agenda().has_moved(&(name.clone(), stream.clone()));
                self.store.done_through(name, stream, job)?;
                self.ends.tell(&(name.clone(), stream.clone()));
                Ok(tried)
            }
            None => {
                let seen = Some(mark(&cursor));
                if tried.seen == seen {
                    return Ok(tried);
                }
                if tried.tried > 0 {
                    return Err(Problem::Foreign);
                }
                self.store.saw(name, stream, seen.clone())?;
                Ok(Tried { seen, ..tried })
            }
        }
    }

    pub(super) fn control(&self) -> Control {
        Control::default().cancel(&self.cancel)
    }

    /// Moves the first of these jobs in one run, which are all of them where the columns are declared, and gives the id of the
    /// last one that is done. With `goes_on`, the run then takes more jobs of the stream.
    pub(super) fn run(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        key: &Key,
        tried: &Tried,
        jobs: &[&Pending],
        goes_on: bool,
    ) -> Result<i64, (Problem, Left)> {
        let live = Live::new(self, key, tried, declares_columns(pipeline), jobs);
        let live = live.map_err(|problem| (problem, Left::nothing()))?;
        self.live().insert(key.clone(), Arc::clone(&live));
        let ran = {
            let _removed = Unlisted(self, key);
            self.move_rows(pipeline, &live, goes_on)
        };
        let failure = match ran {
            Ok(report) => {
                let ended = live.ended(report.rows);
                let ended = ended.map(|()| live.current().last);
                return ended.map_err(|problem| (problem, live.left()));
            }
            Err(failure) => failure,
        };
        let ended = match failure.class {
            Class::Cancelled => Ended::Cancelled,
            _ => Ended::Failed,
        };
        let left = live.left();
        self.metrics.ran((&key.0, &key.1), ended, left.at.elapsed());
        // A body that is not the one that was sent ends the run, and blames nobody.
        Err((live.problem().unwrap_or_else(|| failure.into()), left))
    }

    fn move_rows(
        &self,
        pipeline: &Pipeline,
        live: &Arc<Live>,
        goes_on: bool,
    ) -> Result<Report, Failure> {
        let source = queue::source(live.clone(), &self.reader);
        let engine = self.engine.with_connectors([source]);
        // The store is the history: streams of one pipeline run at once, and each resumes from its cursor.
        let options = RunOptions {
            history: History::Off,
            commit_at_checkpoints: goes_on,
            // Runs of a pipeline follow one another: for its next stream, or for bodies with other columns.
            reuse: Some(pipeline.name().into()),
            ..RunOptions::default()
        };
        let told = Arc::clone(live);
        let control = self.control().on_event(move |event| told.take_event(event));
        let planned = engine.plan_run(pipeline, &options, &control);
        let planned = planned.map_err(|unplanned| *unplanned.failure)?;
        if goes_on && live::grows(planned.plan()) {
            live.go_on();
        }
        let mut report = None;
        let ended = planned.run(|ended| report = ended.ok().cloned());
        ended.map_err(|failure| pipeline.redacted(&failure))?;
        report.ok_or_else(|| Failure::new(Class::Run, "internal", "a run without a report"))
    }
}

/// A run that is not listed any more when this is dropped, whatever ended it.
struct Unlisted<'a>(&'a Shared, &'a Key);

impl Drop for Unlisted<'_> {
    fn drop(&mut self) {
        self.0.live().remove(self.1);
    }
}
