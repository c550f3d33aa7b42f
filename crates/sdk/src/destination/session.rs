//! The driver of a destination: it makes the calls, and checks the order of the calls of a load.
//!
//! A call in the wrong order is an error of the kind internal, and changes nothing. A commit of other rows than were
//! written gives the load up. Only the destination's system knows whether a newer run has fenced, and whether a commit
//! without an answer happened: the loads answer that.

use arrow_array::RecordBatch;
use rapidbyte_wire::one;

use super::{Commit, Destination, Load, TOGETHER};
use crate::log;
use crate::{
    Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error, KeptReject, LoadRequest, Part,
    Plan, Presence, Progress, Receipt, Refused, Reject, RejectOrigin, Result, RowLimit, Target,
    Worker,
};

/// A destination, called as the host calls it: by the component's export, and natively by tests.
pub struct Session<D>(D);

/// The load of one stream, from its fence to the last commit.
pub struct Loading<D: Destination> {
    stream: String,
    progress: Progress,
    /// The number of the next commit.
    seq: u64,
    /// Rows that are not in a part yet.
    unflushed: u64,
    /// Rows of the parts since the last commit.
    flushed: u64,
    stage: Stage,
    keys: Keys,
    /// None: it is committed completely, or aborted.
    load: Option<D::Load>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fenced,
    Writing,
    /// A call of the load failed. It may have written half a row, and a commit may have happened.
    Failed,
}

/// The keys of the source, for a target with `deletes`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// The target does not need them.
    Unwanted,
    /// The last commit needs them.
    Wanted,
    /// They come.
    Open,
    /// All of them have come.
    Ended,
}

const NO_CHECKPOINTS: &str =
    "the destination does not support checkpoints: a stream has one commit";

impl<D: Destination> Session<D> {
    pub(super) fn new(destination: D) -> Self {
        Self(destination)
    }

    /// As [`Destination::check`].
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        self.0.check()
    }

    /// As [`Destination::plan`].
    pub fn plan(&mut self, target: &Target) -> Result<Plan> {
        self.0.plan(target)
    }

    /// As [`Destination::progress`].
    pub fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        self.0.progress(target, pipeline)
    }

    /// As [`Destination::digest_recipe`].
    pub fn digest_recipe(&mut self, target: &Target, forms: &[String]) -> Result<String> {
        let recipe = self.0.digest_recipe(target, forms);
        recipe.map_err(|error| named(error, &target.stream))
    }

    /// As [`Destination::digest`].
    pub fn digest(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let found = self.0.digest(target, recipe, limits, within, bits);
        found.map_err(|error| named(error, &target.stream))
    }

    /// As [`Destination::digest_rows`].
    pub fn digest_rows(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let found = self.0.digest_rows(target, recipe, limits, rows, max);
        found.map_err(|error| named(error, &target.stream))
    }

    /// As [`Destination::working`].
    pub fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        self.0.working(pipeline)
    }

    /// As [`Destination::beat`].
    pub fn beat(&mut self, presence: &Presence) -> Result<bool> {
        self.0.beat(presence)
    }

    /// As [`Destination::rejects`].
    pub fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        self.0.rejects(to, pipeline, after, with_data)
    }

    /// Begins the load of the one stream that is asked for.
    pub fn begin(&mut self, requests: &[LoadRequest]) -> Result<Loading<D>> {
        let LoadRequest { target, run } = one::only(requests, TOGETHER).map_err(Error::internal)?;
        let stream = target.stream.clone();
        let begun = self.0.begin(target, run);
        let (load, progress) = begun.map_err(|error| named(error, &stream))?;
        Ok(Loading {
            stream,
            seq: progress.seq,
            progress,
            unflushed: 0,
            flushed: 0,
            stage: Stage::Fenced,
            keys: match target.deletes {
                Some(_) => Keys::Wanted,
                None => Keys::Unwanted,
            },
            load: Some(load),
        })
    }
}

impl<D: Destination> Loading<D> {
    /// The name of the stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The progress of the stream when the load began.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// As [`Load::open_writer`].
    pub fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        self.run(|it| {
            it.ensure_open()?;
            if cursor.is_some() && !D::SUPPORTS_CHECKPOINTS {
                return Err(Error::internal(NO_CHECKPOINTS));
            }
            if it.stage == Stage::Writing {
                return Err(Error::internal("the stream already has a writer"));
            }
            it.call(|load| load.open_writer(cursor))?;
            it.stage = Stage::Writing;
            Ok(())
        })
    }

    /// As [`Load::schema_changes`]. Empty after the end of the load.
    pub fn schema_changes(&self) -> Vec<String> {
        self.load
            .as_ref()
            .map(Load::schema_changes)
            .unwrap_or_default()
    }

    /// As [`Load::write`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.run(|it| {
            it.ensure_writing()?;
            if matches!(it.keys, Keys::Open | Keys::Ended) {
                return Err(Error::internal("a row after the keys of the stream"));
            }
            it.call(|load| load.write(batch))?;
            it.unflushed += batch.num_rows() as u64;
            Ok(())
        })
    }

    /// As [`Load::reject`].
    pub fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        self.run(|it| {
            it.ensure_writing()?;
            it.call(|load| load.reject(origin, rejects))
        })
    }

    /// As [`Load::refused`]. Empty after the end of the load.
    pub fn refused(&mut self) -> Refused {
        self.load.as_mut().map(Load::refused).unwrap_or_default()
    }

    /// As [`Load::flush`].
    pub fn flush(&mut self) -> Result<Part> {
        self.run(|it| {
            it.ensure_writing()?;
            let part = it.call(Load::flush)?;
            it.unflushed = 0;
            it.flushed += part.rows;
            Ok(part)
        })
    }

    /// As [`Load::open_keys`].
    pub fn open_keys(&mut self) -> Result<()> {
        self.run(|it| {
            it.ensure_writing()?;
            if it.keys != Keys::Wanted {
                return Err(Error::internal("keys that the target does not need"));
            }
            if it.unflushed > 0 {
                return Err(Error::internal("keys before the rows are flushed"));
            }
            it.call(Load::open_keys)?;
            it.keys = Keys::Open;
            Ok(())
        })
    }

    /// As [`Load::write_keys`].
    pub fn write_keys(&mut self, batch: &RecordBatch) -> Result<()> {
        self.run(|it| {
            it.ensure_keys_open()?;
            it.call(|load| load.write_keys(batch))
        })
    }

    /// As [`Load::flush_keys`].
    pub fn flush_keys(&mut self) -> Result<Part> {
        self.run(|it| {
            it.ensure_keys_open()?;
            let part = it.call(Load::flush_keys)?;
            it.keys = Keys::Ended;
            Ok(part)
        })
    }

    /// As [`Load::commit`]. A commit that is complete ends the load.
    pub fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        self.run(|it| {
            it.ensure_open()?;
            if let Some(why) = it.why_not(&commit) {
                return Err(Error::internal(why));
            }
            it.ensure_all_rows(commit.rows())?;
            let receipt = it.call(|load| load.commit(&commit))?;
            it.seq += 1;
            it.flushed = 0;
            if commit.complete {
                it.load = None;
            }
            Ok(receipt)
        })
    }

    /// Gives up everything that is not committed.
    pub fn abort(&mut self) -> Result<()> {
        self.run(|it| it.load.take().map_or(Ok(()), Load::abort))
    }

    /// Names the stream in an error.
    fn run<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        act(self).map_err(|error| named(error, &self.stream))
    }

    /// The load, if it can still commit.
    fn ensure_open(&mut self) -> Result<&mut D::Load> {
        let Some(load) = &mut self.load else {
            let text = "the stream is already committed or aborted";
            return Err(Error::internal(text));
        };
        if self.stage == Stage::Failed {
            let text = "an earlier call of the stream failed, and only an abort is left";
            return Err(Error::internal(text));
        }
        Ok(load)
    }

    fn ensure_writing(&self) -> Result<()> {
        match self.stage {
            Stage::Fenced => Err(Error::internal("the stream does not have a writer")),
            Stage::Writing | Stage::Failed => Ok(()),
        }
    }

    fn ensure_keys_open(&self) -> Result<()> {
        match self.keys {
            Keys::Open => Ok(()),
            _ => Err(Error::internal("open-keys comes first")),
        }
    }

    fn call<T>(&mut self, act: impl FnOnce(&mut D::Load) -> Result<T>) -> Result<T> {
        let done = act(self.ensure_open()?);
        if done.is_err() {
            self.stage = Stage::Failed;
        }
        done
    }

    /// Why the commit is not the next one of the stream.
    fn why_not(&self, commit: &Commit<'_>) -> Option<String> {
        let next = self.seq;
        let moves_cursor = commit.cursor.is_some() || !commit.complete;
        let has_writer = self.stage != Stage::Fenced;
        Some(match commit.seq {
            seq if seq < next => format!("the commit {seq} has happened, and {next} is the next"),
            seq if seq > next => format!("a commit with the number {seq}, and {next} is the next"),
            _ if !has_writer && commit.rows() > 0 => "a commit without written rows".into(),
            _ if !commit.complete && matches!(self.keys, Keys::Open | Keys::Ended) => {
                "a commit between the keys and the last commit".into()
            }
            // Rows would be deleted whose keys are still to come.
            _ if commit.complete
                && has_writer
                && matches!(self.keys, Keys::Wanted | Keys::Open) =>
            {
                "the last commit before all keys have come".into()
            }
            _ if !D::SUPPORTS_CHECKPOINTS && (moves_cursor || !has_writer) => NO_CHECKPOINTS.into(),
            _ => return None,
        })
    }

    /// Aborts the load if a commit has other rows than were written: rows are lost or doubled then, and none of them
    /// can be committed any more.
    fn ensure_all_rows(&mut self, rows: u64) -> Result<()> {
        let (flushed, unflushed) = (self.flushed, self.unflushed);
        if (flushed, unflushed) == (rows, 0) {
            return Ok(());
        }
        if let Err(error) = self.abort() {
            log::debug(format!("the load could not be aborted: {}", error.message));
        }
        Err(Error::internal(format!(
            "a commit of {rows} rows, but {flushed} were flushed, and {unflushed} more were written"
        )))
    }
}

fn named(mut error: Error, stream: &str) -> Error {
    error.stream.get_or_insert_with(|| stream.to_owned());
    error
}
