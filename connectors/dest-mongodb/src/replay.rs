//! Replays of rejects: a load that removes the rejects that it replays.
//!
//! One document for each pipeline and collection of rejects says which replay may commit. A replay that begins takes it
//! over, and in the same change writes down the replay that it overtakes. It then deletes the rows of every replay that was
//! overtaken: one that died, and one that still writes. The commit is one change of this document, which names the rejects
//! to remove; any later replay can repeat the removal.

use std::collections::BTreeMap;

use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_mongo_client::{Client, number_of};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;

use crate::checkpoint;
use crate::config::Settings;
use crate::ids::{self, Tag};
use crate::kept::{Kept, Place, Visible};
use crate::ledger::{self, modified, refuse_unconcerned};
use crate::leftovers::delete_ranges;

/// Two replays that take the right at the same moment: one of them tries again.
const MAX_TRIES: usize = 10;
/// Replays whose rows may still be there. A replay that was overtaken so many replays ago does not write any more.
const MAX_OVERTAKEN: i32 = 32;
const DUPLICATE: i32 = 11000;
/// `_id`s in one command.
const MANY: usize = 10_000;

/// The error for a reject that is not as it was read.
pub(crate) fn missing(why: &str) -> Error {
    let text =
        format!("{why} replayed, changed or deleted before, and this replay changed nothing");
    Error::data("reject_missing", text).hint(
        "list the rejects again with `rapidbyte rejects show PIPELINE`, and replay those that are still there",
    )
}

/// The right of a load to replay rejects.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    key: Key,
    /// The collection that the load writes to.
    collection: String,
    pub tag: Tag,
    pub places: Vec<Place>,
    /// A commit was sent, and nobody knows whether it happened: then nothing of it may be undone.
    pub is_unsettled: bool,
}

#[derive(Debug, Clone)]
struct Key {
    pipeline: String,
    to: String,
}

/// The document as it was found.
#[derive(Debug, Default)]
struct Found {
    holder: Option<Tag>,
    /// The collection that the holder writes to.
    collection: Option<String>,
    /// The rejects that a committed replay removes.
    removing: Vec<Vec<u8>>,
    /// Replays that never commit, and the collections that they write to.
    overtaken: Vec<(Tag, String)>,
}

/// The replay that must hold the right for a change.
#[derive(Debug, Clone, Copy)]
enum Holder {
    Nobody,
    Replay(Tag),
}

impl Key {
    fn add_to(&self, builder: &mut Builder) {
        builder
            .open_document("_id")
            .string("pipeline", &self.pipeline)
            .string("replays", &self.to)
            .close();
    }

    fn look(&self, client: &mut Client, settings: &Settings) -> Result<Option<Found>> {
        let found = checkpoint::one(client, settings, |filter| self.add_to(filter))?;
        let found = found.as_deref().map(Document::parse).transpose();
        found.map_err(Error::internal)?.map(read).transpose()
    }

    /// Changes the document if `holder` holds it, and returns it as it was before. `None`: another replay holds it, or the
    /// document did not exist; it does then if nobody should hold it.
    fn change(
        &self,
        client: &mut Client,
        settings: &Settings,
        holder: Holder,
        update: impl Fn(&mut Builder),
    ) -> Result<Option<Found>> {
        let mut command = Builder::new();
        command
            .string("findAndModify", &settings.checkpoint_collection)
            .open_document("query");
        self.add_to(&mut command);
        match holder {
            Holder::Replay(tag) => command.binary("holder", &tag),
            Holder::Nobody => command
                .open_document("holder")
                .boolean("$exists", false)
                .close(),
        };
        command.close().open_document("update");
        update(&mut command);
        command
            .close()
            .boolean("upsert", matches!(holder, Holder::Nobody))
            .boolean("new", false);
        settings.add_write_concern(&mut command);
        let reply = client.command(&settings.database, command)?;
        refuse_unconcerned(&reply)?;
        modified(&reply)?.map(read).transpose()
    }
}

fn read(document: Document<'_>) -> Result<Found> {
    let mut found = Found::default();
    if let Some(Value::Binary { bytes, .. }) = document.get("holder").map_err(Error::internal)? {
        found.holder = Tag::try_from(bytes).ok();
    }
    if let Some(Value::String(name)) = document.get("collection").map_err(Error::internal)? {
        found.collection = Some(name.to_owned());
    }
    if let Some(Value::Array(ids)) = document.get("removing").map_err(Error::internal)? {
        for element in ids.elements() {
            if let (_, Value::Binary { bytes, .. }) = element.map_err(Error::internal)? {
                found.removing.push(bytes.to_vec());
            }
        }
    }
    if let Some(Value::Array(replays)) = document.get("overtaken").map_err(Error::internal)? {
        for element in replays.elements() {
            let (_, Value::Document(replay)) = element.map_err(Error::internal)? else {
                continue;
            };
            let (tag, of) = (replay.get("tag"), replay.get("collection"));
            if let (Ok(Some(Value::Binary { bytes, .. })), Ok(Some(Value::String(of)))) = (tag, of)
                && let Ok(tag) = Tag::try_from(bytes)
            {
                found.overtaken.push((tag, of.to_owned()));
            }
        }
    }
    Ok(found)
}

/// Which rejects of a pipeline in a collection are committed.
pub(crate) fn visible(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
    to: &str,
) -> Result<Visible> {
    let key = Key {
        pipeline: pipeline.to_owned(),
        to: to.to_owned(),
    };
    let replay = key.look(client, settings)?.unwrap_or_default();
    let checkpoints: BTreeMap<_, _> = checkpoint::of_pipeline(client, settings, pipeline)?
        .into_iter()
        .map(|found| (found.tag, found.reject_epochs))
        .collect();
    let uncommitted = replay.overtaken.into_iter().map(|(tag, _)| tag);
    let uncommitted = uncommitted.chain(replay.holder).collect();
    Ok(Visible::new(checkpoints, uncommitted, replay.removing))
}

impl Claim {
    /// Takes the right to replay these rejects. `None` for a load that replays nothing. Errors: `reject_missing`.
    pub fn take(
        client: &mut Client,
        settings: &Settings,
        target: &Target,
        pipeline: &str,
        collection: &str,
    ) -> Result<Option<Self>> {
        let Some(rejects) = target
            .rejects
            .as_ref()
            .filter(|one| !one.replayed.is_empty())
        else {
            return Ok(None);
        };
        let places = rejects.replayed.iter().map(|(id, _)| Place::parse(id));
        let claim = Self {
            key: Key {
                pipeline: pipeline.to_owned(),
                to: rejects.to.clone(),
            },
            collection: collection.to_owned(),
            tag: ids::tag()?,
            places: places.collect::<Result<Vec<_>>>()?,
            is_unsettled: false,
        };
        let older = claim.hold(client, settings)?;
        failpoint("dest-mongodb.replay_held")?;
        // A replay that was committed, and died before it had removed its rejects.
        claim.remove(client, settings, &older.removing)?;
        for (tag, of) in older.overtaken {
            let range = [(ids::id(tag, 0, 0)?, ids::id(tag, 1, 0)?)];
            delete_ranges(client, settings, &of, &range)?;
            delete_ranges(client, settings, &rejects.to, &range)?;
        }
        failpoint("dest-mongodb.replay_claimed")?;
        claim.ensure_unchanged(client, settings, target)?;
        Ok(Some(claim))
    }

    /// Takes the right over. The document before, with the replay that was overtaken.
    fn hold(&self, client: &mut Client, settings: &Settings) -> Result<Found> {
        for _ in 0..MAX_TRIES {
            let found = self.key.look(client, settings)?.unwrap_or_default();
            // Another change with this holder is its commit, or that it gives the right up: both end the holding.
            let overtaken = found.holder.zip(found.collection);
            let holder = found.holder.map_or(Holder::Nobody, Holder::Replay);
            let held = self.key.change(client, settings, holder, |update| {
                update
                    .open_document("$set")
                    .binary("holder", &self.tag)
                    .string("collection", &self.collection)
                    .close();
                if let Some((tag, of)) = &overtaken {
                    add_overtaken(update, tag, of);
                }
            });
            match (held, holder) {
                // Another replay has taken it.
                (Ok(None), Holder::Replay(_)) => {}
                (Err(error), _) if number_of(&error) == Some(DUPLICATE) => {}
                (Err(error), _) => return Err(error),
                (Ok(before), _) => {
                    let mut held = before.unwrap_or_default();
                    held.overtaken.extend(overtaken);
                    return Ok(held);
                }
            }
        }
        Err(Error::internal("a claim that ends without an answer"))
    }

    /// Errors: `reject_missing`.
    fn ensure_unchanged(
        &self,
        client: &mut Client,
        settings: &Settings,
        target: &Target,
    ) -> Result<()> {
        let replayed = target.rejects.iter().flat_map(|rejects| &rejects.replayed);
        let versions: BTreeMap<&[u8], &str> = self
            .places
            .iter()
            .zip(replayed)
            .map(|(place, (_, version))| (place.id.as_slice(), version.as_str()))
            .collect();
        let mut same = 0;
        for places in self.places.chunks(MANY) {
            let mut command = Builder::new();
            command.string("find", &self.key.to).open_document("filter");
            add_ids(&mut command, places.iter().map(|place| place.id.as_slice()));
            command.string("stream", &target.stream).close();
            let cursor = client.find(&settings.database, command)?;
            let mut cursor = cursor.at_most(places.len());
            while let Some(batch) = cursor.next(client, 0)? {
                for document in batch.documents()? {
                    let kept = Kept::read(document?, &self.key.to)?;
                    let version = versions.get(kept.place.id.as_slice());
                    same += usize::from(version == Some(&kept.version.as_str()));
                }
            }
        }
        match same == self.places.len() {
            true => Ok(()),
            false => Err(self.missing(same)),
        }
    }

    fn missing(&self, held: usize) -> Error {
        let to = &self.key.to;
        missing(&match self.places.len() {
            1 => format!("the reject is not in {to} any more: it was"),
            all => {
                format!("{held} of the {all} rejects to replay are still in {to}: the others were")
            }
        })
    }

    /// Commits the replay, and removes its rejects. Errors: `reject_missing` if another replay took the right.
    pub fn commit(&mut self, client: &mut Client, settings: &Settings) -> Result<()> {
        failpoint("dest-mongodb.replay_committing")?;
        let removing: Vec<Vec<u8>> = self.places.iter().map(|place| place.id.clone()).collect();
        self.is_unsettled = true;
        let holder = Holder::Replay(self.tag);
        let changed = self.key.change(client, settings, holder, |update| {
            update.open_document("$set").open_array("removing");
            for (at, id) in removing.iter().enumerate() {
                update.binary(&at.to_string(), id);
            }
            update.close().close();
            unset_holder(update);
        });
        match changed {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.is_unsettled = false;
                return Err(self.missing(0));
            }
            Err(error) => *client = self.settle(settings, &removing, error)?,
        }
        self.is_unsettled = false;
        failpoint("dest-mongodb.replay_committed")?;
        self.remove(client, settings, &removing)
    }

    /// After a commit without an answer: a connection if it happened. If it did not, it never will, because this call
    /// gives the right up.
    fn settle(
        &mut self,
        settings: &Settings,
        removing: &[Vec<u8>],
        error: Error,
    ) -> Result<Client> {
        let mut client = settings.connect()?;
        let holder = Holder::Replay(self.tag);
        let given_up = self.key.change(&mut client, settings, holder, |update| {
            unset_holder(update);
            add_overtaken(update, &self.tag, &self.collection);
        })?;
        if given_up.is_some() {
            self.is_unsettled = false;
            return Err(error);
        }
        let found = self.key.look(&mut client, settings)?;
        match found.is_some_and(|found| found.removing == removing) {
            true => Ok(client),
            false => Err(error),
        }
    }

    /// Removes rejects that a committed replay has replayed.
    fn remove(&self, client: &mut Client, settings: &Settings, ids: &[Vec<u8>]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut deletes = Vec::new();
        for ids in ids.chunks(MANY) {
            let mut entry = Builder::onto(deletes);
            entry.open_document("q");
            add_ids(&mut entry, ids.iter().map(Vec::as_slice));
            entry.close().int32("limit", 0);
            deletes = entry.finish().map_err(Error::internal)?;
        }
        let mut command = Builder::new();
        command
            .string("delete", &self.key.to)
            .boolean("ordered", false);
        settings.add_write_concern(&mut command);
        let written = client.write(&settings.database, command, "deletes", &deletes)?;
        ledger::ensure_deleted(written)?;
        let mut unset = Builder::new();
        unset
            .string("update", &settings.checkpoint_collection)
            .open_array("updates")
            .open_document("0")
            .open_document("q");
        self.key.add_to(&mut unset);
        // Not those of a replay that came later.
        unset
            .binary("removing.0", &ids[0])
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
}

/// Writes down a replay that never commits.
fn add_overtaken(update: &mut Builder, tag: &Tag, collection: &str) {
    update
        .open_document("$push")
        .open_document("overtaken")
        .open_array("$each")
        .open_document("0")
        .binary("tag", tag)
        .string("collection", collection)
        .close()
        .close()
        .int32("$slice", -MAX_OVERTAKEN)
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
