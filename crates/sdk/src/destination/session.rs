//! What drives a destination: the loads of a session by stream, and the order of their calls.
//!
//! A call in the wrong order is an error of the kind internal, and changes nothing. A commit of other rows than were
//! written gives the load up. Whether a newer run has fenced, and
//! whether a commit without an answer happened, only the destination's system knows: the loads answer that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use arrow_array::RecordBatch;

use super::{Commit, Destination, Load};
use crate::log;
use crate::{
    CheckItem, Error, Part, Plan, Presence, Progress, Receipt, Result, Run, Target, Worker,
};

/// A destination with the streams that it writes, called as the host calls it: by the component's export, and natively
/// by tests.
pub struct Session<D: Destination> {
    destination: D,
    streams: BTreeMap<String, Shared<D::Load>>,
}

/// Writes the rows of one stream.
pub struct Writer<D: Destination>(Shared<D::Load>);

const NO_CHECKPOINTS: &str =
    "the destination does not support checkpoints: a stream has one commit";

/// A writer is an object of its own, and the session commits its rows.
type Shared<L> = Rc<RefCell<Stream<L>>>;

/// A stream from its fence on.
struct Stream<L> {
    target: Target,
    epoch: u64,
    /// Commits so far.
    seq: u64,
    /// Rows that are not in a part yet.
    unflushed: u64,
    /// Rows of the parts since the last commit.
    flushed: u64,
    stage: Stage,
    /// None: it is committed completely, or aborted.
    load: Option<L>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fenced,
    Writing,
    /// A call of the load failed. It may have written half a row, and a commit may have happened.
    Failed,
}

impl<D: Destination> Session<D> {
    pub(super) fn new(destination: D) -> Self {
        Self {
            destination,
            streams: BTreeMap::new(),
        }
    }

    /// As [`Destination::check`].
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        self.destination.check()
    }

    /// As [`Destination::plan`].
    pub fn plan(&mut self, target: &Target) -> Result<Plan> {
        self.destination.plan(target)
    }

    /// As [`Destination::progress`].
    pub fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        self.destination.progress(target, pipeline)
    }

    /// As [`Destination::working`].
    pub fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        self.destination.working(pipeline)
    }

    /// As [`Destination::beat`].
    pub fn beat(&mut self, presence: &Presence) -> Result<bool> {
        self.destination.beat(presence)
    }

    /// Begins the load of a stream. An older load of the stream in this session is aborted.
    pub fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let name = &target.stream;
        self.abort(name)?;
        let begun = self.destination.begin(target, run);
        let (load, progress) = begun.map_err(|error| named(error, name))?;
        let stream = Stream {
            target: target.clone(),
            epoch: progress.epoch,
            seq: progress.seq,
            unflushed: 0,
            flushed: 0,
            stage: Stage::Fenced,
            load: Some(load),
        };
        let stream = Rc::new(RefCell::new(stream));
        self.streams.insert(name.clone(), stream);
        Ok(progress)
    }

    /// Begins to write the stream that was fenced with this target and epoch.
    pub fn open_writer(
        &mut self,
        target: &Target,
        epoch: u64,
        cursor: Option<&str>,
    ) -> Result<Writer<D>> {
        let name = &target.stream;
        let Some(stream) = self.streams.get(name) else {
            return Err(not_fenced(epoch).in_stream(name));
        };
        if cursor.is_some() && !D::SUPPORTS_CHECKPOINTS {
            return Err(Error::internal(NO_CHECKPOINTS).in_stream(name));
        }
        let opened = stream.borrow_mut().open_writer(target, epoch, cursor);
        opened.map_err(|error| named(error, name))?;
        Ok(Writer(Rc::clone(stream)))
    }

    /// Makes the parts of a stream visible and moves its cursor. After a commit that is complete the stream needs
    /// another fence.
    pub fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        let name = commit.stream;
        let Some(stream) = self.streams.get(name) else {
            let text =
                "a commit of a stream that no run fenced, or that is already committed or aborted";
            return Err(Error::internal(text).in_stream(name));
        };
        let committed = stream.borrow_mut().commit(&commit, D::SUPPORTS_CHECKPOINTS);
        let receipt = committed.map_err(|error| named(error, name))?;
        if commit.complete {
            // Its writer may still be there.
            stream.borrow_mut().load = None;
            self.streams.remove(name);
        }
        Ok(receipt)
    }

    /// Gives up everything of the stream that is not committed.
    pub fn abort(&mut self, stream: &str) -> Result<()> {
        let known = self.streams.remove(stream);
        // Its writer may still be there.
        let load = known.and_then(|known| known.borrow_mut().load.take());
        let aborted = load.map_or(Ok(()), Load::abort);
        aborted.map_err(|error| named(error, stream))
    }
}

impl<D: Destination> Writer<D> {
    /// As [`Load::write`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let stream = &mut *self.0.borrow_mut();
        let written = stream.call(|load| load.write(batch));
        written.map_err(|error| named(error, &stream.target.stream))?;
        stream.unflushed += batch.num_rows() as u64;
        Ok(())
    }

    /// As [`Load::flush`].
    pub fn flush(&mut self) -> Result<Part> {
        let stream = &mut *self.0.borrow_mut();
        let flushed = stream.call(Load::flush);
        let part = flushed.map_err(|error| named(error, &stream.target.stream))?;
        stream.unflushed = 0;
        stream.flushed += part.rows;
        Ok(part)
    }
}

impl<L: Load> Stream<L> {
    /// The load, if it can still commit.
    fn ensure_open(&mut self) -> Result<&mut L> {
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

    fn call<T>(&mut self, act: impl FnOnce(&mut L) -> Result<T>) -> Result<T> {
        let done = act(self.ensure_open()?);
        if done.is_err() {
            self.stage = Stage::Failed;
        }
        done
    }

    fn open_writer(&mut self, target: &Target, epoch: u64, cursor: Option<&str>) -> Result<()> {
        if self.epoch != epoch {
            return Err(not_fenced(epoch));
        }
        if !is_same(&self.target, target) {
            let text = "the target of the writer differs from the target that the run fenced";
            return Err(Error::internal(text));
        }
        if self.stage == Stage::Writing {
            return Err(Error::internal("the stream already has a writer"));
        }
        self.call(|load| load.open_writer(cursor))?;
        self.stage = Stage::Writing;
        Ok(())
    }

    fn commit(&mut self, commit: &Commit<'_>, has_checkpoints: bool) -> Result<Receipt> {
        self.ensure_open()?;
        if let Some(why) = self.why_not(commit, has_checkpoints) {
            return Err(Error::internal(why));
        }
        let (rows, flushed, unflushed) = (commit.rows(), self.flushed, self.unflushed);
        if (flushed, unflushed) != (rows, 0) {
            // Rows are lost or doubled: none of them can be committed any more.
            let aborted = self.load.take().map(Load::abort);
            if let Some(Err(error)) = aborted {
                log::debug(format!("the load could not be aborted: {}", error.message));
            }
            return Err(Error::internal(format!(
                "a commit of {rows} rows, but {flushed} were flushed, and {unflushed} more were written"
            )));
        }
        let receipt = self.call(|load| load.commit(commit))?;
        self.seq += 1;
        self.flushed = 0;
        Ok(receipt)
    }

    /// Why the commit is not the next one of the stream.
    fn why_not(&self, commit: &Commit<'_>, has_checkpoints: bool) -> Option<String> {
        let next = self.seq;
        let moves_cursor = commit.cursor.is_some() || !commit.complete;
        let has_writer = self.stage != Stage::Fenced;
        Some(match commit.seq {
            seq if seq < next => format!("the commit {seq} has happened, and {next} is the next"),
            seq if seq > next => format!("a commit with the number {seq}, and {next} is the next"),
            _ if !has_writer && commit.rows() > 0 => "a commit without written rows".into(),
            _ if !has_checkpoints && (moves_cursor || !has_writer) => NO_CHECKPOINTS.into(),
            _ => return None,
        })
    }
}

fn not_fenced(epoch: u64) -> Error {
    Error::internal(format!("no run with epoch {epoch} fenced this stream"))
}

fn named(mut error: Error, stream: &str) -> Error {
    error.stream.get_or_insert_with(|| stream.to_owned());
    error
}

fn is_same(one: &Target, other: &Target) -> bool {
    let Target {
        stream,
        schema,
        write_mode,
        primary_key,
        deleted_field,
        dedup_fields,
        is_incremental,
    } = one;
    (stream, schema, *write_mode) == (&other.stream, &other.schema, other.write_mode)
        && (primary_key, deleted_field) == (&other.primary_key, &other.deleted_field)
        && (dedup_fields, *is_incremental) == (&other.dedup_fields, other.is_incremental)
}
