//! Fences and commits: changes of the document of a checkpoint, each in one `findAndModify`.

use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_document_store::{Checkpoint, Key, Tag};
use rapidbyte_mongo_client::{Client, Reply, Written, number_of, protocol};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::catalog;
use crate::checkpoint::{add_epochs, add_id, parse, signed};
use crate::config::Settings;

/// Two runs that make the document at the same moment: one of them tries again.
const MAX_TRIES: usize = 3;
/// DuplicateKey.
pub(crate) const DUPLICATE: i32 = 11000;

/// Raises the epoch for a run, which fences older runs of the stream. Makes the document if it does not exist. The answer to
/// `listCollections` comes along, in the same round trip: the server lists the collections after the fence.
pub(crate) fn fence(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
    run: &Run,
) -> Result<(Checkpoint, Result<Reply>)> {
    for attempt in 1..=MAX_TRIES {
        let mut command = find_and_modify(settings, key);
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
            .binary("tag", Tag::random()?.bytes())
            .int64("seq", 0)
            .close()
            .close()
            .boolean("upsert", true)
            .boolean("new", true);
        settings.add_write_concern(&mut command);
        let _phase = phase::enter(Kind::Query);
        let [reply, listed] =
            client.command_both(&settings.database, [command, catalog::list()])?;
        let reply = match reply {
            Err(error) if number_of(&error) == Some(DUPLICATE) && attempt < MAX_TRIES => continue,
            reply => reply?,
        };
        refuse_unconcerned(&reply)?;
        let Some(found) = modified(&reply)? else {
            return Err(protocol("findAndModify with upsert that found no document"));
        };
        let found = parse(found, settings)?;
        if found.run_id != run.id {
            return Err(protocol("findAndModify answers with an older document"));
        }
        return Ok((found, listed));
    }
    Err(Error::internal("a fence that ends without an answer"))
}

/// A command that is open in its query, which has the `_id`.
fn find_and_modify(settings: &Settings, key: &Key) -> Builder {
    let mut command = Builder::new();
    command
        .string("findAndModify", &settings.checkpoint_collection)
        .open_document("query");
    add_id(key, &mut command);
    command
}

/// Changes the checkpoint if it still has the epoch and the number of commits of `from`, and returns it. `None`: a newer
/// run has fenced, or the checkpoint is not as this run left it. Errors: `protocol_violation` if the server answers
/// with another document than `to`.
pub(crate) fn swap(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
    (from, to): (&Checkpoint, &Checkpoint),
) -> Result<Option<Checkpoint>> {
    let mut command = find_and_modify(settings, key);
    command
        .int64("epoch", from.epoch.into())
        .int64("seq", signed(from.seq)?)
        .close()
        .open_document("update")
        .open_document("$set")
        .int64("epoch", to.epoch.into())
        .string("run_id", &to.run_id);
    if to.seq != from.seq {
        command.int64("seq", signed(to.seq)?);
        match &to.cursor {
            Some(cursor) => command.string("cursor", cursor),
            None => command.value("cursor", &Value::Null),
        };
        if let Some(run) = &to.complete_run {
            command.string("complete_run", run);
        }
        add_epochs(&mut command, "epochs", &to.epochs)?;
        add_epochs(&mut command, "reject_epochs", &to.reject_epochs)?;
    }
    command.close().close().boolean("new", true);
    settings.add_write_concern(&mut command);
    let _phase = phase::enter(Kind::Commit);
    let reply = client.command(&settings.database, command)?;
    refuse_unconcerned(&reply)?;
    let Some(found) = modified(&reply)? else {
        return Ok(None);
    };
    let found = parse(found, settings)?;
    let has_cursor = to.seq == from.seq || found.cursor == to.cursor;
    match found.is_at(to) && has_cursor {
        true => Ok(Some(found)),
        false => Err(protocol(
            "findAndModify answers with another document than it has written",
        )),
    }
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
