//! Checkpoints: one document for each stream of a pipeline and its target. It has the cursor, and the epoch by which
//! each run fences the runs before it.
//!
//! A change of one document is atomic, and nothing else is. A run writes its rows first and moves its checkpoint last, in
//! one change that the server makes only if no newer run has fenced.

use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::epochs::Epochs;
use crate::ids::Tag;
use crate::reach;
use crate::store::Store;

/// The stream whose checkpoint a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The name of the stream.
    pub stream: String,
    /// The database and the collection, with a point between.
    pub target: String,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Starts the ids of the stream's rows.
    pub tag: Tag,
    /// Each run raises it.
    pub epoch: u32,
    /// The number of commits so far.
    pub seq: u64,
    /// Where the stream resumes.
    pub cursor: Option<String>,
    /// The run that has fenced last.
    pub run_id: String,
    /// The run that has committed everything.
    pub complete_run: Option<String>,
    /// The rows with ids that the connector made.
    pub epochs: Epochs,
    /// The rejects.
    pub reject_epochs: Epochs,
    /// Another one after each change, if the server counts versions; otherwise empty.
    #[serde(rename = "_etag", default, skip_serializing)]
    pub version: String,
}

impl Checkpoint {
    /// The checkpoint of the first run of a stream. Errors: of [`Tag::random`].
    pub fn new(run: &Run) -> Result<Self> {
        Ok(Self {
            tag: Tag::random()?,
            epoch: 1,
            seq: 0,
            cursor: None,
            run_id: run.id.clone(),
            complete_run: None,
            epochs: Epochs::default(),
            reject_epochs: Epochs::default(),
            version: String::new(),
        })
    }

    /// The same with the next epoch. Errors: `internal` if there were 2^32 runs.
    pub fn raised(&self) -> Result<Self> {
        let epoch = self.epoch.checked_add(1);
        let epoch = epoch.ok_or_else(|| Error::internal("more runs of a stream than 32 bits"))?;
        Ok(Self {
            epoch,
            ..self.clone()
        })
    }

    /// For the host: `run_id` is the run that asks, or nobody.
    pub fn progress(&self, run_id: Option<&str>) -> Progress {
        let run_id = run_id.unwrap_or(&self.run_id);
        Progress {
            epoch: self.epoch.into(),
            seq: self.seq,
            cursor: self.cursor.clone(),
            run_id: run_id.to_owned(),
            complete: self.complete_run.as_deref() == Some(run_id),
            lost_rows: None,
        }
    }

    /// The same after a commit. `rows` and `rejects` are the numbers that this epoch has committed then.
    fn after(&self, commit: &Commit<'_>, rows: u64, rejects: u64) -> Self {
        let mut next = self.clone();
        next.seq += 1;
        next.cursor = commit.cursor.map(str::to_owned);
        if commit.complete {
            next.complete_run = Some(next.run_id.clone());
        }
        next.epochs = next.epochs.with(next.epoch, rows, commit.complete);
        let rejected = &next.reject_epochs;
        next.reject_epochs = rejected.with(next.epoch, rejects, commit.complete);
        next
    }

    /// Whether the stream is where `other` says. No other run has its epoch.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.tag, self.epoch, self.seq) == (other.tag, other.epoch, other.seq)
    }
}

/// The right of a run to commit a stream, until a newer run fences.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The document.
    key: Key,
    /// As this run has left it.
    pub checkpoint: Checkpoint,
    /// Rows with ids that this epoch has committed.
    pub rows: u64,
    /// Rejects that it has committed.
    pub rejects: u64,
    /// A commit was sent, and its outcome is unknown: then nothing of it may be undone.
    pub is_unsettled: bool,
}

impl Lease {
    /// Fences older runs of the stream. Errors: of [`Store::fence`].
    pub(crate) fn fence<S: Store>(store: &mut S, key: Key, run: &Run) -> Result<Self> {
        reach::<S>("fencing")?;
        let checkpoint = store.fence(&key, run)?;
        reach::<S>("fenced")?;
        Ok(Self {
            key,
            checkpoint,
            rows: 0,
            rejects: 0,
            is_unsettled: false,
        })
    }

    /// Moves the checkpoint. `rows` and `rejects` are the numbers that this epoch has committed then. Errors:
    /// `run_superseded`, `checkpoint_changed`, `commit_unknown`; of the server.
    pub(crate) fn advance<S: Store>(
        &mut self,
        store: &mut S,
        commit: &Commit<'_>,
        (rows, rejects): (u64, u64),
    ) -> Result<()> {
        let next = self.checkpoint.after(commit, rows, rejects);
        reach::<S>("checkpointing")?;
        self.is_unsettled = true;
        let swapped = store.swap(&self.key, &self.checkpoint, &next);
        reach::<S>("checkpoint_sent")?;
        let moved = match swapped {
            Ok(Some(moved)) => moved,
            Ok(None) => match store.checkpoint(&self.key)? {
                // A router may send a command twice: the first one has moved it.
                Some(found) if found.is_at(&next) => found,
                found => {
                    self.is_unsettled = false;
                    return Err(self.differs(found.as_ref()));
                }
            },
            Err(error) if S::was_refused(&error) => {
                self.is_unsettled = false;
                return Err(error);
            }
            Err(error) => self.settle(store, &next, error)?,
        };
        self.is_unsettled = false;
        self.checkpoint = Checkpoint {
            version: moved.version,
            ..next
        };
        (self.rows, self.rejects) = (rows, rejects);
        reach::<S>("committed")
    }

    /// Fails if a newer run has fenced. Errors: `run_superseded`, `checkpoint_changed`.
    pub fn hold<S: Store>(&self, store: &mut S) -> Result<()> {
        let own = &self.checkpoint;
        match store.checkpoint(&self.key)? {
            Some(found)
                if (found.epoch, found.seq, &found.version)
                    == (own.epoch, own.seq, &own.version) =>
            {
                Ok(())
            }
            found => Err(self.differs(found.as_ref())),
        }
    }

    /// The same by a write, which no server that was replaced meanwhile can acknowledge.
    pub fn hold_by_write<S: Store>(&mut self, store: &mut S) -> Result<()> {
        match store.swap(&self.key, &self.checkpoint, &self.checkpoint)? {
            Some(found) => {
                self.checkpoint.version = found.version;
                Ok(())
            }
            None => {
                let found = store.checkpoint(&self.key)?;
                Err(self.differs(found.as_ref()))
            }
        }
    }

    /// After a commit without an answer: the checkpoint if it happened. If it did not, it never will, because this call
    /// raises the epoch. Errors: `error`, `run_superseded`, `commit_unknown`.
    fn settle<S: Store>(
        &mut self,
        store: &mut S,
        next: &Checkpoint,
        error: Error,
    ) -> Result<Checkpoint> {
        reach::<S>("settling")?;
        let asked = self.raise(store);
        reach::<S>("settled")?;
        match asked {
            Ok(None) => {
                self.is_unsettled = false;
                Err(error)
            }
            Ok(Some(Some(found))) if found.is_at(next) => Ok(found),
            Ok(Some(found)) => Err(self.differs(found.as_ref())),
            Err(reason) => {
                let text = format!(
                    "the server did not answer the commit, so its outcome is unknown: {}; {}",
                    error.message, reason.message
                );
                Err(Error::new(ErrorKind::Connection, "commit_unknown", text)
                    .hint("run again: the run asks the server first whether the commit happened"))
            }
        }
    }

    /// Raises the epoch. `Some`: the checkpoint as it is instead.
    fn raise<S: Store>(&self, store: &mut S) -> Result<Option<Option<Checkpoint>>> {
        store.reconnect()?;
        let raised = self.checkpoint.raised()?;
        match store.swap(&self.key, &self.checkpoint, &raised)? {
            Some(_) => Ok(None),
            None => store.checkpoint(&self.key).map(Some),
        }
    }

    /// Why this run may no longer commit.
    fn differs(&self, found: Option<&Checkpoint>) -> Error {
        let own = &self.checkpoint;
        match found {
            Some(found) if found.epoch != own.epoch => {
                let text = format!(
                    "the run {} has fenced this run, {}: it began later",
                    found.run_id, own.run_id
                );
                Error::new(ErrorKind::Superseded, "run_superseded", text)
                    .hint("let one run of a pipeline end before the next begins")
            }
            _ => {
                let text = format!(
                    "somebody changed or deleted the checkpoint of {} during the run",
                    self.key.target
                );
                Error::schema("checkpoint_changed", text)
                    .hint("run again: the run continues from the checkpoint as it is now")
            }
        }
    }
}
