//! Checkpoints as documents: one for each stream of a pipeline and its target.

use rapidbyte_bson::{BsonError, Builder, Document, Value};
use rapidbyte_document_store::{Checkpoint, Committed, Epochs, Key, Naming as _, Tag};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;

/// More commits than any stream has.
const MAX_SEQ: u64 = 1 << 62;

/// The `_id` of a checkpoint.
pub(crate) fn add_id(key: &Key, builder: &mut Builder) {
    builder
        .open_document("_id")
        .string("pipeline", &key.pipeline)
        .string("stream", &key.stream)
        .string("target", &key.target)
        .close();
}

/// The checkpoint. `None` if no run has fenced.
pub(crate) fn look(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
) -> Result<Option<Checkpoint>> {
    let found = one(client, settings, |filter| add_id(key, filter))?;
    let found = found.as_deref().map(Document::parse).transpose();
    let found = found.map_err(Error::internal)?;
    found.map(|found| parse(found, settings)).transpose()
}

/// The checkpoint that is this document. Errors: `checkpoint_differs`.
pub(crate) fn parse(document: Document<'_>, settings: &Settings) -> Result<Checkpoint> {
    let found = read(document).map_err(|error| error.to_string());
    let found = found
        .and_then(|found| found.ok_or_else(|| "a field is missing or has another type".to_owned()));
    found.map_err(|what| {
        let collection = settings.namespace(&settings.checkpoint_collection);
        let text = format!("{collection} has a checkpoint that is not Rapidbyte's: {what}");
        Error::schema("checkpoint_differs", text)
            .hint("name another collection with `checkpoint_collection:`")
    })
}

/// The document of the collection of checkpoints with the `_id` that `add_id` writes. `None` if it does not exist.
pub(crate) fn one(
    client: &mut Client,
    settings: &Settings,
    add_id: impl FnOnce(&mut Builder),
) -> Result<Option<Vec<u8>>> {
    let _phase = phase::enter(Kind::Query);
    let mut command = Builder::new();
    command
        .string("find", &settings.checkpoint_collection)
        .open_document("filter");
    add_id(&mut command);
    command
        .close()
        .int32("limit", 1)
        .boolean("singleBatch", true);
    let mut cursor = client.find(&settings.database, command)?.at_most(1);
    let Some(batch) = cursor.next(client, 0)? else {
        return Ok(None);
    };
    let found = batch.documents()?.next().transpose()?;
    Ok(found.map(|found| found.as_bytes().to_vec()))
}

fn read(document: Document<'_>) -> Result<Option<Checkpoint>, BsonError> {
    let text = |name: &str| -> Result<Option<String>, BsonError> {
        Ok(match document.get(name)? {
            Some(Value::String(text)) => Some(text.to_owned()),
            _ => None,
        })
    };
    let tag = match document.get("tag")? {
        Some(Value::Binary { bytes, .. }) => Tag::from_bytes(bytes),
        _ => None,
    };
    let epoch = whole(document, "epoch")?.and_then(|epoch| u32::try_from(epoch).ok());
    let (Some(tag), Some(epoch)) = (tag, epoch) else {
        return Ok(None);
    };
    let epochs = read_epochs(document, "epochs")?;
    let reject_epochs = read_epochs(document, "reject_epochs")?;
    let seq = whole(document, "seq")?.filter(|seq| *seq <= MAX_SEQ);
    let (Some(epochs), Some(reject_epochs), Some(seq)) = (epochs, reject_epochs, seq) else {
        return Ok(None);
    };
    Ok(Some(Checkpoint {
        tag,
        epoch,
        seq,
        cursor: text("cursor")?,
        run_id: text("run_id")?.unwrap_or_default(),
        complete_run: text("complete_run")?,
        epochs,
        reject_epochs,
        version: String::new(),
    }))
}

/// The epochs in an array of a checkpoint.
fn read_epochs(document: Document<'_>, name: &str) -> Result<Option<Epochs>, BsonError> {
    let cut = document.get(&format!("{name}_cut"))?;
    let mut known = Vec::new();
    if let Some(Value::Array(found)) = document.get(name)? {
        for element in found.elements() {
            let (_, Value::Document(element)) = element? else {
                return Ok(None);
            };
            let (epoch, rows) = (whole(element, "epoch")?, whole(element, "rows")?);
            let epoch = epoch.and_then(|epoch| u32::try_from(epoch).ok());
            let (Some(epoch), Some(rows)) = (epoch, rows) else {
                return Ok(None);
            };
            let from = whole(element, "complete_from")?;
            known.push(Committed {
                epoch,
                rows,
                complete_from: from.and_then(|from| u32::try_from(from).ok()),
            });
        }
    }
    Ok(Epochs::new(known, cut.is_some_and(|cut| cut.is_true())))
}

pub(crate) fn add_epochs(builder: &mut Builder, name: &str, epochs: &Epochs) -> Result<()> {
    builder
        .boolean(&format!("{name}_cut"), epochs.is_cut())
        .open_array(name);
    for (at, known) in epochs.known().iter().enumerate() {
        builder
            .open_document(&at.to_string())
            .int64("epoch", known.epoch.into())
            .int64("rows", signed(known.rows)?);
        if let Some(from) = known.complete_from {
            builder.int64("complete_from", from.into());
        }
        builder.close();
    }
    builder.close();
    Ok(())
}

fn whole(document: Document<'_>, name: &str) -> Result<Option<u64>, BsonError> {
    let found = document.get(name)?.and_then(|value| value.as_whole());
    Ok(found.and_then(|number| u64::try_from(number).ok()))
}

/// The checkpoints of all streams of a pipeline. Documents that are not checkpoints are passed over.
pub(crate) fn of_pipeline(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Checkpoint>> {
    let mut command = Builder::new();
    command
        .string("find", &settings.checkpoint_collection)
        .open_document("filter")
        .string("_id.pipeline", pipeline)
        .close();
    let mut cursor = client.find(&settings.database, command)?;
    let mut all = Vec::new();
    while let Some(batch) = cursor.next(client, 0)? {
        for document in batch.documents()? {
            all.extend(read(document?).map_err(Error::internal)?);
        }
    }
    Ok(all)
}

/// A number as BSON has it. Errors: `internal` above 2^63.
pub(crate) fn signed(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::internal("a number above 2^63"))
}
