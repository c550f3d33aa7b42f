//! Replays of rejects as documents: one for each pipeline and collection of rejects. The steps of a replay are in
//! `rapidbyte-document-store`.

use std::collections::BTreeMap;

use rapidbyte_bson::{BsonError, Builder, Document, Value};
use rapidbyte_document_store::{MAX_OVERTAKEN, Place, Replay, ReplayChange, ReplayKey, Tag};
use rapidbyte_mongo_client::{Client, number_of};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint;
use crate::config::Settings;
use crate::kept::Kept;
use crate::ledger::{self, DUPLICATE, modified, refuse_unconcerned};

/// `_id`s in one command.
const MANY: usize = 10_000;

fn add_id(key: &ReplayKey, builder: &mut Builder) {
    builder
        .open_document("_id")
        .string("pipeline", &key.pipeline)
        .string("replays", &key.to)
        .close();
}

/// The document. `None` if it does not exist.
pub(crate) fn look(
    client: &mut Client,
    settings: &Settings,
    key: &ReplayKey,
) -> Result<Option<Replay>> {
    let found = checkpoint::one(client, settings, |filter| add_id(key, filter))?;
    let found = found.as_deref().map(Document::parse).transpose();
    let found = found.map_err(Error::internal)?.map(read).transpose();
    found.map_err(Error::internal)
}

/// Changes the document if it has the holder of `from`, and returns it. `None`: another replay has changed it. Only a
/// commit and a replay that gives up end a holding, so the holder says which version of the document it is.
pub(crate) fn change(
    client: &mut Client,
    settings: &Settings,
    key: &ReplayKey,
    (from, change): (&Replay, &ReplayChange<'_>),
) -> Result<Option<Replay>> {
    let mut command = Builder::new();
    command
        .string("findAndModify", &settings.checkpoint_collection)
        .open_document("query");
    add_id(key, &mut command);
    match &from.holder {
        Some(tag) => command.binary("holder", tag.bytes()),
        None => command
            .open_document("holder")
            .boolean("$exists", false)
            .close(),
    };
    command.close().open_document("update");
    let held = from.holder.zip(from.collection.as_deref());
    match change {
        ReplayChange::Take(tag, collection) => {
            command
                .open_document("$set")
                .binary("holder", tag.bytes())
                .string("collection", collection)
                .close();
            add_overtaken(&mut command, held);
        }
        ReplayChange::Commit(removing) => {
            command.open_document("$set").open_array("removing");
            for (at, id) in removing.iter().enumerate() {
                command.binary(&at.to_string(), id);
            }
            command.close().close();
            unset_holder(&mut command);
        }
        ReplayChange::GiveUp => {
            unset_holder(&mut command);
            add_overtaken(&mut command, held);
        }
    }
    command
        .close()
        .boolean("upsert", from.holder.is_none())
        .boolean("new", true);
    settings.add_write_concern(&mut command);
    let reply = match client.command(&settings.database, command) {
        // The document exists, and has a holder.
        Err(error) if number_of(&error) == Some(DUPLICATE) => return Ok(None),
        reply => reply?,
    };
    refuse_unconcerned(&reply)?;
    let found = modified(&reply)?.map(read).transpose();
    found.map_err(Error::internal)
}

fn read(document: Document<'_>) -> Result<Replay, BsonError> {
    let mut found = Replay::default();
    if let Some(Value::Binary { bytes, .. }) = document.get("holder")? {
        found.holder = Tag::from_bytes(bytes);
    }
    if let Some(Value::String(name)) = document.get("collection")? {
        found.collection = Some(name.to_owned());
    }
    if let Some(Value::Array(ids)) = document.get("removing")? {
        for element in ids.elements() {
            if let (_, Value::Binary { bytes, .. }) = element? {
                found.removing.push(bytes.to_vec());
            }
        }
    }
    if let Some(Value::Array(replays)) = document.get("overtaken")? {
        for element in replays.elements() {
            let (_, Value::Document(replay)) = element? else {
                continue;
            };
            if let (Some(Value::Binary { bytes, .. }), Some(Value::String(of))) =
                (replay.get("tag")?, replay.get("collection")?)
                && let Some(tag) = Tag::from_bytes(bytes)
            {
                found.overtaken.push((tag, of.to_owned()));
            }
        }
    }
    Ok(found)
}

/// How many of these rejects of a stream still have the version that belongs to them.
pub(crate) fn count_unchanged(
    client: &mut Client,
    settings: &Settings,
    (to, stream): (&str, &str),
    rejects: &[(&Place, &str)],
) -> Result<usize> {
    let ids = rejects
        .iter()
        .map(|(place, version)| (place.id.as_slice(), *version));
    let versions: BTreeMap<&[u8], &str> = ids.collect();
    let mut same = 0;
    for rejects in rejects.chunks(MANY) {
        let mut command = Builder::new();
        command.string("find", to).open_document("filter");
        add_ids(
            &mut command,
            rejects.iter().map(|(place, _)| place.id.as_slice()),
        );
        command.string("stream", stream).close();
        let cursor = client.find(&settings.database, command)?;
        let mut cursor = cursor.at_most(rejects.len());
        while let Some(batch) = cursor.next(client, 0)? {
            for document in batch.documents()? {
                let kept = Kept::read(document?, to)?;
                let version = versions.get(kept.place.id.as_slice());
                same += usize::from(version == Some(&kept.version.as_str()));
            }
        }
    }
    Ok(same)
}

/// Removes rejects that a committed replay has replayed.
pub(crate) fn remove(
    client: &mut Client,
    settings: &Settings,
    key: &ReplayKey,
    ids: &[Vec<u8>],
) -> Result<()> {
    let Some(first) = ids.first() else {
        return Ok(());
    };
    let mut deletes = Vec::new();
    for ids in ids.chunks(MANY) {
        let mut entry = Builder::onto(deletes);
        entry.open_document("q");
        add_ids(&mut entry, ids.iter().map(Vec::as_slice));
        entry.close().int32("limit", 0);
        deletes = entry.finish().map_err(Error::internal)?;
    }
    let mut command = Builder::new();
    command.string("delete", &key.to).boolean("ordered", false);
    settings.add_write_concern(&mut command);
    let written = client.write(&settings.database, command, "deletes", &deletes)?;
    ledger::ensure_deleted(written)?;
    let mut unset = Builder::new();
    unset
        .string("update", &settings.checkpoint_collection)
        .open_array("updates")
        .open_document("0")
        .open_document("q");
    add_id(key, &mut unset);
    // The rejects of a replay that came later stay.
    unset
        .binary("removing.0", first)
        .close()
        .open_document("u")
        .open_document("$unset")
        .string("removing", "")
        .close()
        .close()
        .close()
        .close();
    settings.add_write_concern(&mut unset);
    client.command(&settings.database, unset).map(|_| ())
}

/// Writes down a replay that never commits.
fn add_overtaken(update: &mut Builder, replay: Option<(Tag, &str)>) {
    let Some((tag, collection)) = replay else {
        return;
    };
    update
        .open_document("$push")
        .open_document("overtaken")
        .open_array("$each")
        .open_document("0")
        .binary("tag", tag.bytes())
        .string("collection", collection)
        .close()
        .close()
        .int32("$slice", -(MAX_OVERTAKEN as i32))
        .close()
        .close();
}

fn unset_holder(update: &mut Builder) {
    update
        .open_document("$unset")
        .string("holder", "")
        .string("collection", "")
        .close();
}

/// The condition for documents with one of these `_id`s.
fn add_ids<'a>(builder: &mut Builder, ids: impl Iterator<Item = &'a [u8]>) {
    builder.open_document("_id").open_array("$in");
    for (at, id) in ids.enumerate() {
        builder.binary(&at.to_string(), id);
    }
    builder.close().close();
}
