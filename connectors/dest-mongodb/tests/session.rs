//! Several loads in one session: the second one asks the server less, and sees what others did meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use dest_mongodb::MongoDb;
use rapidbyte_mongo_client::bson::Builder;
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rapidbyte_sdk::prelude::{
    DataType, Field, LoadRequest, Result, Run, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{Commit, destination, ipc};
use rapidbyte_testkit::mongodb::liar::{Asked, Liar, Lie, Says};
use rapidbyte_testkit::mongodb::{MongoDatabase, shared};
use serde_json::json;

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
}

fn target(write_mode: WriteMode) -> Target {
    Target {
        stream: "t".into(),
        schema: ipc::encode_schema(&batch(0..0).schema()).unwrap(),
        write_mode,
        primary_key: match write_mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    }
}

fn open(url: &str) -> destination::Session<MongoDb> {
    destination::open(&json!({ "url": url }).to_string()).unwrap()
}

/// Plans and loads rows as a run does. Returns whether the plan took the target for a new one.
fn write(
    to: &mut destination::Session<MongoDb>,
    target: &Target,
    run: &str,
    rows: &RecordBatch,
) -> Result<bool> {
    let plan = to.plan(target)?;
    let request = LoadRequest {
        target: target.clone(),
        run: Run {
            pipeline: "p".into(),
            id: run.into(),
        },
    };
    let mut load = to.begin(&[request])?;
    let seq = load.progress().seq;
    load.open_writer(None)?;
    load.write(rows)?;
    let part = load.flush()?;
    load.commit(Commit {
        seq,
        ..Commit::whole(&target.stream, vec![part])
    })?;
    Ok(plan.is_new)
}

fn client(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

fn run(database: &MongoDatabase<'_>, build: impl FnOnce(&mut Builder)) {
    let mut command = Builder::new();
    build(&mut command);
    client(database).command(database.name(), command).unwrap();
}

fn count(database: &MongoDatabase<'_>) -> usize {
    let mut client = client(database);
    let mut command = Builder::new();
    command.string("find", "t");
    let mut cursor = client.find(database.name(), command).unwrap();
    let mut count = 0;
    while let Some(batch) = cursor.next(&mut client, 0).unwrap() {
        count += batch.documents().unwrap().count();
    }
    count
}

/// The address of the database through another port.
fn through(database: &MongoDatabase<'_>, server: u16, port: u16) -> String {
    let from = format!(":{server}/");
    database.url().replace(&from, &format!(":{port}/"))
}

/// Counts the answers to a command, which stay true.
fn counting(port: u16, of: &'static str) -> Liar {
    let says = |asked: &Asked<'_>| Says::Bytes(asked.truth.to_vec());
    let (nth, is_once) = (1, false);
    Liar::in_front_of(
        port,
        Lie {
            of,
            nth,
            is_once,
            says,
        },
    )
    .unwrap()
}

#[test]
fn a_later_load_of_a_session_lists_the_collections_once() {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    let lists = counting(server.port(), "listCollections");
    let from = format!(":{}/", server.port());
    let url = database
        .url()
        .replace(&from, &format!(":{}/", lists.port()));
    let mut to = open(&url);
    let target = target(WriteMode::Append);
    assert!(write(&mut to, &target, "1", &batch(0..3)).unwrap());
    // Of the plan, and after the fence.
    let mut told = lists.lies_told();
    assert!(told >= 2);
    for (run, more) in [("2", 2), ("3", 1), ("4", 1)] {
        assert!(!write(&mut to, &target, run, &batch(0..3)).unwrap());
        assert_eq!(lists.lies_told() - told, more, "run {run}");
        told = lists.lies_told();
    }
    assert_eq!(count(&database), 12);
}

#[test]
fn a_later_load_sees_that_its_target_was_dropped() {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    let mut to = open(&database.url());
    for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Replace] {
        let target = target(mode);
        for run in 0..3 {
            write(&mut to, &target, &format!("{mode:?} {run}"), &batch(0..3)).unwrap();
        }
        run(&database, |drop| {
            drop.string("drop", "t");
        });
        write(&mut to, &target, &format!("{mode:?} after"), &batch(0..2)).unwrap();
        assert_eq!(count(&database), 2, "{mode:?}");
    }
}

#[test]
fn a_later_load_opens_a_connection_in_the_place_of_one_that_broke() {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    // The fence of the third load, whose plan asks nothing, and then the fence of a first load.
    let says = |_: &Asked<'_>| Says::Close(Vec::new());
    for (nth, is_lost) in [(6, false), (1, true)] {
        let of = "findAndModify";
        let liar = Liar::in_front_of(
            server.port(),
            Lie {
                of,
                nth,
                is_once: true,
                says,
            },
        )
        .unwrap();
        let mut to = open(&through(&database, server.port(), liar.port()));
        let target = target(WriteMode::Append);
        for run in 0..4 {
            let written = write(&mut to, &target, &format!("{nth} {run}"), &batch(0..1));
            match is_lost && run == 0 {
                // Nothing has waited here.
                true => assert_eq!(written.unwrap_err().code, "connection_lost"),
                false => drop(written.unwrap()),
            }
        }
        assert_eq!(liar.lies_told(), 1);
    }
    assert_eq!(count(&database), 7);
}

#[test]
fn a_later_load_refuses_a_target_of_another_kind() {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    let lie = Lie {
        of: "listCollections",
        // After the fence of the third load, whose plan asks nothing.
        nth: 5,
        is_once: false,
        says: |asked| {
            let (is, other) = (b"collection\0", b"timeseries\0");
            let mut bytes = asked.truth.to_vec();
            for at in 0..bytes.len() - is.len() {
                if bytes[at..].starts_with(is) {
                    bytes[at..at + is.len()].copy_from_slice(other);
                }
            }
            Says::Bytes(bytes)
        },
    };
    let liar = Liar::in_front_of(server.port(), lie).unwrap();
    let mut to = open(&through(&database, server.port(), liar.port()));
    let target = target(WriteMode::Append);
    for run in ["1", "2"] {
        write(&mut to, &target, run, &batch(0..3)).unwrap();
    }
    for run in ["3", "4"] {
        let error = write(&mut to, &target, run, &batch(0..1)).unwrap_err();
        assert_eq!(error.code, "target_refused");
    }
    assert_eq!(count(&database), 6);
}
