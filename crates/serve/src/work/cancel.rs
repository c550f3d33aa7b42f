//! Cancels a job that a run has had: its rows may be committed, so the destination is asked first. The same before a
//! cursor of the queue moves.
//!
//! No run of the stream begins meanwhile. The destination fences the runs before, so that none of them can still commit,
//! and then its cursor says for good whether it has the rows.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rapidbyte::{Class, Control, Cursors, Failure, Pipeline};

use super::{Notice, Shared};
use crate::agenda::Key;
use crate::queue::Segment;
use crate::store::{Job, StoreError, Touched, Tried};

/// The longest wait for the run that has the stream.
const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps a stream from running.
struct Hold<'a>(&'a Shared, &'a Key);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.agenda().release(self.1);
        self.0.changed.notify_all();
        self.0.freed.notify_all();
    }
}

impl Notice {
    /// Cancels a job that a run has had, unless the destination has its rows: then it is done. Waits until the run has
    /// ended, and for the destination.
    ///
    /// # Errors
    /// `job_running` where a run has the stream for too long, or where the destination does not fence runs; errors of the
    /// destination and of the store.
    pub fn cancel(
        &self,
        pipeline: &Pipeline,
        job: &Job,
        control: &Control,
    ) -> Result<Touched, Failure> {
        let work = &*self.0;
        let key = (job.pipeline.clone(), job.stream.clone());
        let _hold = work.hold(&key)?;
        let tried = work.store.tried(&key.0, &key.1).map_err(of_store)?;
        if let Some(done) = work.fenced(pipeline, &key, &tried, control)? {
            let marked = work.store.done_through(&key.0, &key.1, done);
            marked.map_err(of_store)?;
        }
        let touched = work.store.cancel_fenced(job.id);
        let touched = touched.map_err(of_store)?;
        work.ends.tell(&key);
        Ok(touched)
    }
}

impl Notice {
    /// Changes the cursor of a stream in the destination by `change`. Waits until the run of the stream has ended, and asks
    /// before which jobs the destination has: they are done, whatever becomes of the cursor.
    ///
    /// # Errors
    /// As of [`Notice::cancel`]; those of `change`.
    pub fn move_cursor<T>(
        &self,
        pipeline: &Pipeline,
        key: &Key,
        control: &Control,
        change: impl FnOnce(&mut Cursors) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let work = &*self.0;
        let _hold = work.hold(key)?;
        let tried = work.store.tried(&key.0, &key.1).map_err(of_store)?;
        if let Some(done) = work.fenced(pipeline, key, &tried, control)? {
            let marked = work.store.done_through(&key.0, &key.1, done);
            marked.map_err(of_store)?;
            work.ends.tell(key);
        }
        let mut cursors = work.engine.cursors(pipeline, None, true, control)?;
        change(&mut cursors)
    }
}

fn of_store(error: StoreError) -> Failure {
    let failure = Failure::new(Class::Environment, "store_failed", error);
    failure.hint("send it again")
}

impl Shared {
    /// Keeps a stream from running, as soon as its run has ended.
    fn hold<'a>(&'a self, key: &'a Key) -> Result<Hold<'a>, Failure> {
        let until = Instant::now() + PATIENCE;
        self.agenda().want(key, true);
        // A run that waits for jobs ends now.
        if let Some(live) = self.live().get(key) {
            live.wake();
        }
        let mut agenda = self.agenda();
        let mut is_held = agenda.hold(key);
        while !is_held {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.freed.wait_timeout(agenda, left);
            agenda = waited.unwrap_or_else(PoisonError::into_inner).0;
            is_held = agenda.hold(key);
        }
        agenda.want(key, false);
        match is_held {
            true => Ok(Hold(self, key)),
            false => Err(running("a run has the job")),
        }
    }

    /// Fences all runs of a stream that is held, and returns the last job that the destination has, if its cursor tells.
    fn fenced(
        &self,
        pipeline: &Pipeline,
        (_, stream): &Key,
        tried: &Tried,
        control: &Control,
    ) -> Result<Option<i64>, Failure> {
        let mut cursors = self.engine.cursors(pipeline, None, true, control)?;
        let progress = cursors.fence(stream)?;
        if progress.epoch == 0 {
            return Err(running(
                "the destination does not fence the run that had the job",
            ));
        }
        let cursor = progress.cursor;
        let job = cursor.and_then(|cursor| Segment::job_of(&cursor, &tried.queue));
        // A cursor of another queue, or of jobs that this store does not know: the stream waits for an operator, who
        // cancels the jobs whose rows the destination has.
        Ok(job.filter(|job| *job <= tried.tried))
    }
}

fn running(text: &str) -> Failure {
    Failure::new(Class::Busy, "job_running", text)
        .hint("wait until the job is done or dead, or cancel it later")
}
