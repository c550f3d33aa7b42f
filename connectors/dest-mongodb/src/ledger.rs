//! Fences and commits. The checkpoint of a stream has its cursor, and the epoch by which each run fences the runs before
//! it.
//!
//! A change of one document is atomic, and nothing else here is. A run writes its rows first and moves its checkpoint
//! last, in one `findAndModify` that finds the document only if no newer run has fenced.

use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_mongo_client::{Client, Reply, Written, number_of, protocol};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{Found, Key, add_epochs, signed};
use crate::config::Settings;
use crate::ids::{self, Epochs, Tag};

/// Two runs that make the document at the same moment: one of them tries again.
const MAX_TRIES: usize = 3;
/// DuplicateKey.
const DUPLICATE: i32 = 11000;

/// The right of a run to commit a stream, until a newer run fences.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub key: Key,
    pub run_id: String,
    pub tag: Tag,
    pub epoch: u32,
    /// The number of commits so far.
    pub seq: u64,
    pub epochs: Epochs,
    pub reject_epochs: Epochs,
    /// Rows with ids that this epoch has committed.
    pub rows: u64,
    /// Rejects that it has committed.
    pub rejects: u64,
    /// A commit was sent, and nobody knows whether it happened: then nothing of it may be undone.
    pub is_unsettled: bool,
}

/// Fences older runs of the stream.
pub(crate) fn fence(
    client: &mut Client,
    settings: &Settings,
    key: Key,
    run: &Run,
) -> Result<(Lease, Progress)> {
    failpoint("dest-mongodb.fencing")?;
    for attempt in 1..=MAX_TRIES {
        let mut command = Builder::new();
        command
            .string("findAndModify", &settings.checkpoint_collection)
            .open_document("query");
        key.add_to(&mut command);
        command
            .close()
            .open_document("update")
            .open_document("$inc")
            .int64("epoch", 1)
            .close()
            .open_document("$set")
            .string("run_id", &run.id)
            .close()
            .open_document("$setOnInsert")
            .binary("tag", &ids::tag()?)
            .int64("seq", 0)
            .close()
            .close()
            .boolean("upsert", true)
            .boolean("new", true);
        settings.add_write_concern(&mut command);
        let _phase = phase::enter(Kind::Query);
        let reply = match client.command(&settings.database, command) {
            Err(error) if number_of(&error) == Some(DUPLICATE) && attempt < MAX_TRIES => continue,
            reply => reply?,
        };
        refuse_unconcerned(&reply)?;
        let Some(found) = modified(&reply)? else {
            return Err(protocol("findAndModify with upsert that found no document"));
        };
        let found = key.read(found, settings)?;
        if found.run_id != run.id {
            return Err(protocol("findAndModify answers with an older document"));
        }
        failpoint("dest-mongodb.fenced")?;
        let progress = found.progress(Some(&run.id));
        let lease = Lease {
            key,
            run_id: run.id.clone(),
            tag: found.tag,
            epoch: found.epoch,
            seq: found.seq,
            epochs: found.epochs,
            reject_epochs: found.reject_epochs,
            rows: 0,
            rejects: 0,
            is_unsettled: false,
        };
        return Ok((lease, progress));
    }
    Err(Error::internal("a fence that ends without an answer"))
}

/// The document that a `findAndModify` answers with. `None`: it found no document. Errors: `protocol_violation` for an
/// answer that says neither.
pub(crate) fn modified(reply: &Reply) -> Result<Option<Document<'_>>> {
    let value = reply.document()?.get("value");
    match value.map_err(protocol)? {
        Some(Value::Document(document)) => Ok(Some(document)),
        Some(Value::Null) => Ok(None),
        _ => Err(protocol("findAndModify without a value")),
    }
}

/// The number of documents that a delete has deleted. Errors: the server did not delete all that it found, or a failing
/// primary could bring some of them back.
pub(crate) fn ensure_deleted(written: Written) -> Result<u64> {
    if let Some(failed) = written.errors.into_iter().next() {
        return Err(failed.error);
    }
    match written.concern {
        Some(concern) => Err(unconcerned(&concern.message)),
        None => Ok(written.count),
    }
}

/// A change that a failing primary could lose is not a commit.
pub(crate) fn refuse_unconcerned(reply: &Reply) -> Result<()> {
    let found = reply.document()?.get("writeConcernError");
    let Some(Value::Document(error)) = found.map_err(Error::internal)? else {
        return Ok(());
    };
    let why = match error.get("errmsg") {
        Ok(Some(Value::String(text))) => text,
        _ => "no reason is given",
    };
    Err(unconcerned(why))
}

/// A write that was not acknowledged as the write concern asks.
pub(crate) fn unconcerned(why: &str) -> Error {
    let text = format!("the write concern is not met: {why}");
    Error::new(ErrorKind::Transient, "write_concern_failed", text)
        .hint("check that enough members of the replica set run, or set w=1 in the URL")
}

impl Lease {
    /// Moves the checkpoint. `rows` and `rejects` are the numbers that this epoch has committed then. Errors: `run_superseded`, `checkpoint_changed`, `commit_unknown`.
    pub fn advance(
        &mut self,
        client: &mut Client,
        settings: &Settings,
        commit: &Commit<'_>,
        (rows, rejects): (u64, u64),
    ) -> Result<()> {
        let epochs = self.epochs.with(self.epoch, rows, commit.complete);
        let rejected = &self.reject_epochs;
        let reject_epochs = rejected.with(self.epoch, rejects, commit.complete);
        let mut set = Builder::new();
        set.int64("seq", signed(self.seq + 1)?);
        match commit.cursor {
            Some(cursor) => set.string("cursor", cursor),
            None => set.value("cursor", &Value::Null),
        };
        if commit.complete {
            set.string("complete_run", &self.run_id);
        }
        add_epochs(&mut set, "epochs", &epochs)?;
        add_epochs(&mut set, "reject_epochs", &reject_epochs)?;
        let set = set.finish().map_err(Error::internal)?;
        let set = Document::parse(&set).map_err(Error::internal)?;
        failpoint("dest-mongodb.checkpointing")?;
        self.is_unsettled = true;
        let cursor = commit.cursor.map(str::to_owned);
        let changed = self.update(client, settings, |update| {
            update.document("$set", set);
        });
        let changed = changed.and_then(|found| match found {
            Some(found) if !(self.is_next(&found) && found.cursor == cursor) => Err(protocol(
                "findAndModify answers with another document than it has written",
            )),
            found => Ok(found.is_some()),
        });
        failpoint("dest-mongodb.checkpoint_sent")?;
        match changed {
            Ok(true) => {}
            Ok(false) => match self.key.look(client, settings)? {
                // A router may send a command twice: the first one has moved it.
                Some(found) if self.is_next(&found) => {}
                found => {
                    self.is_unsettled = false;
                    return Err(self.differs(found.as_ref()));
                }
            },
            Err(error) => self.settle(settings, error)?,
        }
        self.is_unsettled = false;
        self.seq += 1;
        (self.epochs, self.reject_epochs) = (epochs, reject_epochs);
        (self.rows, self.rejects) = (rows, rejects);
        failpoint("dest-mongodb.committed")
    }

    /// Fails if a newer run has fenced. Errors: `run_superseded`, `checkpoint_changed`.
    pub fn hold(&self, client: &mut Client, settings: &Settings) -> Result<()> {
        match self.key.look(client, settings)? {
            Some(found) if (found.epoch, found.seq) == (self.epoch, self.seq) => Ok(()),
            found => Err(self.differs(found.as_ref())),
        }
    }

    /// The same by a write, which a primary that was replaced meanwhile cannot acknowledge.
    pub fn hold_by_write(&self, client: &mut Client, settings: &Settings) -> Result<()> {
        let held = self.update(client, settings, |update| {
            update
                .open_document("$set")
                .string("run_id", &self.run_id)
                .close();
        });
        match held? {
            Some(found) if (found.epoch, found.seq) == (self.epoch, self.seq) => Ok(()),
            Some(_) => Err(protocol(
                "findAndModify answers with another document than it found",
            )),
            None => Err(self.overtaken(client, settings)),
        }
    }

    /// Whether the checkpoint is as the next commit of this run leaves it. No other run has the epoch.
    fn is_next(&self, found: &Found) -> bool {
        (found.tag, found.epoch, found.seq) == (self.tag, self.epoch, self.seq + 1)
    }

    /// Changes the checkpoint, and returns it. `None`: a newer run has fenced, or the checkpoint is not as this run left
    /// it.
    fn update(
        &self,
        client: &mut Client,
        settings: &Settings,
        update: impl FnOnce(&mut Builder),
    ) -> Result<Option<Found>> {
        let mut command = Builder::new();
        command
            .string("findAndModify", &settings.checkpoint_collection)
            .open_document("query");
        self.key.add_to(&mut command);
        command
            .int64("epoch", self.epoch.into())
            .int64("seq", signed(self.seq)?)
            .close()
            .open_document("update");
        update(&mut command);
        command.close().boolean("new", true);
        settings.add_write_concern(&mut command);
        let _phase = phase::enter(Kind::Commit);
        let reply = client.command(&settings.database, command)?;
        refuse_unconcerned(&reply)?;
        let found = modified(&reply)?;
        found
            .map(|found| self.key.read(found, settings))
            .transpose()
    }

    /// After a commit without an answer: `Ok` if it happened. If it did not, it never will, because this call raises the
    /// epoch. Errors: `error`, `run_superseded`, `commit_unknown`.
    fn settle(&mut self, settings: &Settings, error: Error) -> Result<()> {
        failpoint("dest-mongodb.settling")?;
        let asked = settings.connect().and_then(|mut client| {
            let raised = self.update(&mut client, settings, |update| {
                update.open_document("$inc").int64("epoch", 1).close();
            })?;
            match raised {
                Some(found) if found.seq == self.seq && found.epoch > self.epoch => Ok(None),
                Some(_) => Err(protocol(
                    "findAndModify answers with another document than it has written",
                )),
                None => self.key.look(&mut client, settings).map(Some),
            }
        });
        failpoint("dest-mongodb.settled")?;
        match asked {
            Ok(None) => {
                self.is_unsettled = false;
                Err(error)
            }
            Ok(Some(Some(found))) if self.is_next(&found) => Ok(()),
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

    fn overtaken(&self, client: &mut Client, settings: &Settings) -> Error {
        match self.key.look(client, settings) {
            Ok(found) => self.differs(found.as_ref()),
            Err(error) => error,
        }
    }

    /// Why this run may no longer commit.
    fn differs(&self, found: Option<&Found>) -> Error {
        match found {
            Some(found) if found.epoch != self.epoch => {
                let text = format!(
                    "the run {} has fenced this run, {}: it began later",
                    found.run_id, self.run_id
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
