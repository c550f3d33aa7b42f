//! A checkpoint that an older version wrote: the next run reads it, deletes the rows that it does not have, and goes on.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use dest_mongodb::MongoDb;
use rapidbyte_mongo_client::bson::{Builder, Document, Value};
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rapidbyte_sdk::prelude::{
    DataType, Field, LoadRequest, Run, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{Commit, destination, ipc};
use rapidbyte_testkit::mongodb::{MongoDatabase, shared};
use serde_json::json;

const TAG: [u8; 8] = *b"\x01\x02\x03\x04\x05\x06\x07\xff";

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
}

fn target() -> Target {
    Target {
        stream: "public.t".into(),
        schema: ipc::encode_schema(&batch(0..0).schema()).unwrap(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: true,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    }
}

fn client(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

fn insert(database: &MongoDatabase<'_>, collection: &str, documents: Vec<Vec<u8>>) {
    let mut command = Builder::new();
    command.string("insert", collection);
    let count = documents.len() as u64;
    let written = client(database)
        .write(database.name(), command, "documents", &documents.concat())
        .unwrap();
    assert_eq!((written.count, written.errors.len()), (count, 0));
}

fn documents(database: &MongoDatabase<'_>, collection: &str) -> Vec<Vec<u8>> {
    let mut client = client(database);
    let mut command = Builder::new();
    command.string("find", collection);
    let mut cursor = client.find(database.name(), command).unwrap();
    let mut found = Vec::new();
    while let Some(batch) = cursor.next(&mut client, 0).unwrap() {
        let batch = batch.documents().unwrap();
        found.extend(batch.map(|document| document.unwrap().as_bytes().to_vec()));
    }
    found
}

/// The field `id` of all rows, in order.
fn rows(database: &MongoDatabase<'_>) -> Vec<u64> {
    let rows = documents(database, "t").into_iter().map(|row| {
        let id = Document::parse(&row).unwrap().get("id").unwrap();
        u64::try_from(id.and_then(|id| id.as_whole()).unwrap()).unwrap()
    });
    let mut rows: Vec<u64> = rows.collect();
    rows.sort_unstable();
    rows
}

/// A row with the `_id` that the connector makes.
fn row(epoch: u32, number: u64, id: i64) -> Vec<u8> {
    let own = [&TAG[..], &epoch.to_be_bytes(), &number.to_be_bytes()[2..]].concat();
    let mut row = Builder::new();
    row.binary("_id", &own).int64("id", id);
    row.finish().unwrap()
}

/// The checkpoint after the complete runs 1 and 2 and one commit of the run 4, in the form of before.
fn checkpoint(database: &MongoDatabase<'_>) -> Vec<u8> {
    let mut checkpoint = Builder::new();
    checkpoint
        .open_document("_id")
        .string("pipeline", "p")
        .string("stream", "public.t")
        .string("target", &format!("{}.t", database.name()))
        .close()
        .int64("epoch", 4)
        .string("run_id", "old")
        .binary("tag", &TAG)
        .int64("seq", 3)
        .string("cursor", "3")
        .string("complete_run", "older")
        .boolean("epochs_cut", false)
        .open_array("epochs")
        .open_document("0")
        .int64("epoch", 2)
        .int64("rows", 1)
        .int64("complete_from", 1)
        .close()
        .open_document("1")
        .int64("epoch", 4)
        .int64("rows", 1)
        .close()
        .close()
        .boolean("reject_epochs_cut", false)
        .open_array("reject_epochs")
        .close();
    checkpoint.finish().unwrap()
}

#[test]
fn a_checkpoint_of_an_older_version_goes_on() {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    insert(
        &database,
        "_rapidbyte_checkpoint",
        vec![checkpoint(&database)],
    );
    let kept = vec![row(1, 7, 0), row(2, 0, 1), row(4, 0, 2)];
    // Of the run 3, which committed nothing, and behind the commit of the run 4.
    let left = vec![row(3, 0, 99), row(4, 1, 99)];
    insert(&database, "t", [kept, left].concat());
    let config = json!({ "url": database.url() }).to_string();
    let mut to: destination::Session<MongoDb> = destination::open(&config).unwrap();
    let (target, run) = (
        target(),
        Run {
            pipeline: "p".into(),
            id: "new".into(),
        },
    );
    let request = LoadRequest {
        target: target.clone(),
        run,
    };
    let mut load = to.begin(&[request]).unwrap();
    assert_eq!(rows(&database), [0, 1, 2]);
    let progress = load.progress().clone();
    assert_eq!((progress.epoch, progress.seq), (5, 3));
    assert_eq!(progress.cursor.as_deref(), Some("3"));
    load.open_writer(Some("3")).unwrap();
    load.write(&batch(3..5)).unwrap();
    let part = load.flush().unwrap();
    let commit = Commit {
        seq: 3,
        cursor: Some("5"),
        ..Commit::whole(&target.stream, vec![part])
    };
    load.commit(commit).unwrap();
    assert_eq!(rows(&database), [0, 1, 2, 3, 4]);
    let found = documents(&database, "_rapidbyte_checkpoint");
    let found = Document::parse(&found[0]).unwrap();
    let Some(Value::Array(epochs)) = found.get("epochs").unwrap() else {
        panic!("a checkpoint without epochs");
    };
    let entries = epochs.elements().map(|element| {
        let (_, Value::Document(entry)) = element.unwrap() else {
            panic!("an entry that is not a document");
        };
        ["epoch", "rows", "complete_from"]
            .map(|name| entry.get(name).unwrap().and_then(|value| value.as_whole()))
    });
    let expected = [
        [Some(2), Some(1), Some(1)],
        [Some(4), Some(1), None],
        [Some(5), Some(2), Some(5)],
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);
}
