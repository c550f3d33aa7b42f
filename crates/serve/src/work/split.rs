//! Jobs whose data stop a run: more runs find the bad ones.

use std::sync::Arc;

use rapidbyte::{Failure, Pipeline};
use serde_json::json;

use super::blame::{blamed, is_empty, is_of_reader, is_of_writer, reason, told};
use super::{Problem, Shared};
use crate::agenda::Key;
use crate::queue::declares_columns;
use crate::store::{Pending, Tried};

/// The outcome of some jobs.
pub(super) enum Moved {
    /// They are done or dead.
    All,
    /// The rest is tried again, for this reason.
    Rest(Problem),
}

impl Shared {
    /// Moves these jobs in one run. If their data stop it, more runs find the jobs that cannot be moved: they are dead.
    /// `failure` is the one of a run that had all of them. `is_patience_over` is as for [`Shared::blames_jobs`].
    pub(super) fn move_jobs(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        key: &Key,
        tried: &Tried,
        jobs: &[Pending],
        mut failure: Option<Box<Failure>>,
        is_patience_over: bool,
    ) -> Result<Moved, Problem> {
        let mut parts: Vec<Vec<&Pending>> = vec![jobs.iter().collect()];
        let is_declared = declares_columns(pipeline);
        // A job whose run has failed alone.
        let mut suspect = None;
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let stopped = match failure.take() {
                Some(failure) => failure,
                None => match self.run(pipeline, key, tried, &part, false) {
                    Ok(last) => {
                        part.retain(|job| job.id > last);
                        parts.push(part);
                        continue;
                    }
                    Err((Problem::Run(failure), left))
                        if self.blames_jobs(&failure, pipeline, key, is_patience_over) =>
                    {
                        // Those behind were not read yet.
                        let is_read = |job: &&Pending| left.last.is_none_or(|last| job.id <= last);
                        parts.push(part.split_off(part.partition_point(is_read)));
                        failure
                    }
                    Err((problem @ Problem::Run(_), _)) => return Ok(Moved::Rest(problem)),
                    Err((other, _)) => return Err(other),
                },
            };
            let bad = blamed(&part, &stopped);
            let alone = (part.len() == 1).then(|| part[0].id);
            match bad {
                // The target may have changed since the run was planned: another one plans anew.
                None if alone.is_some() && suspect != alone && !is_of_reader(&stopped) => {
                    suspect = alone;
                    parts.push(part);
                }
                _ if alone.is_some() => self.bury(pipeline, key, part[0], &stopped)?,
                // Behind other bodies, a body does not get the columns that it needs and they do not have.
                Some(bad) if bad > 0 && !is_declared => {
                    parts.push(part.split_off(bad + 1));
                    parts.push(part.split_off(bad));
                    parts.push(part);
                }
                Some(bad) => {
                    self.bury(pipeline, key, part.remove(bad), &stopped)?;
                    parts.push(part);
                }
                // The order stays: the cursor of a later job says that those before it are done.
                None => {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                }
            }
        }
        Ok(Moved::All)
    }

    /// A job whose data have stopped a run is dead. One without rows is done.
    fn bury(
        &self,
        pipeline: &Pipeline,
        key: &Key,
        job: &Pending,
        failure: &Failure,
    ) -> Result<(), Problem> {
        if is_empty(job, failure) {
            self.store.done_alone(job.id)?;
            self.ends.tell(key);
            return Ok(());
        }
        self.ensure_sent(job)?;
        // A run may fail behind its commit, but not while it reads.
        if !is_of_reader(failure) {
            self.reconcile(pipeline, key)?;
        }
        if is_of_writer(failure) {
            self.agenda().doubt(key);
        }
        let reason = reason(failure, job.id);
        // Before the job is dead: a process that ends in between finds the job, and tells of it once more.
        self.messages.job_died(pipeline, &key.1, job.id, &reason);
        self.store.dead(job.id, &reason)?;
        let text = format!(
            "{}.{}: the job {} is dead: {}",
            key.0,
            key.1,
            job.id,
            told(&reason)
        );
        let facts = json!({ "pipeline": key.0, "stream": key.1, "job": job.id, "error": reason });
        self.log.warn(text, facts);
        self.ends.tell(key);
        Ok(())
    }
}
