//! The checkpoint from run to run: what complete runs ask of the account, and a checkpoint that an older version wrote.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use dest_cosmos::Cosmos;
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rapidbyte_sdk::prelude::{
    DataType, Field, LoadRequest, Progress, Run, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{Commit, destination, ipc};
use rapidbyte_testkit::cosmosdb::{self, CosmosDatabase, KEY};
use rapidbyte_testkit::http::Server;
use serde_json::{Value, json};

const CHECKPOINTS: &str = "_rapidbyte_checkpoint";

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
}

fn target() -> Target {
    Target {
        stream: "t".into(),
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

/// A run that appends these rows. It ends after its first commit if it is not `complete`. Returns how far the stream was.
fn run(
    endpoint: &str,
    database: &str,
    rows: std::ops::Range<i64>,
    (id, complete): (&str, bool),
) -> Progress {
    let config = json!({ "endpoint": endpoint, "key": KEY, "database": database });
    let mut to: destination::Session<Cosmos> = destination::open(&config.to_string()).unwrap();
    let target = target();
    let run = Run {
        pipeline: "p".into(),
        id: id.into(),
    };
    let request = LoadRequest {
        target: target.clone(),
        run,
    };
    let mut load = to.begin(&[request]).unwrap();
    let progress = load.progress().clone();
    let cursor = rows.end.to_string();
    load.open_writer(progress.cursor.as_deref()).unwrap();
    load.write(&batch(rows)).unwrap();
    let part = load.flush().unwrap();
    let commit = Commit {
        seq: progress.seq,
        cursor: Some(&cursor),
        complete,
        ..Commit::whole(&target.stream, vec![part])
    };
    load.commit(commit).unwrap();
    progress
}

fn documents(database: &CosmosDatabase<'_>, container: &str) -> Vec<Value> {
    let read: Value = serde_json::from_slice(&database.read(Some(container))).unwrap();
    read["Documents"].as_array().unwrap().clone()
}

/// The field `k` of all rows, in order.
fn rows(database: &CosmosDatabase<'_>) -> Vec<i64> {
    let rows = documents(database, "t").into_iter();
    let mut rows: Vec<i64> = rows.map(|row| row["k"].as_i64().unwrap()).collect();
    rows.sort_unstable();
    rows
}

fn checkpoint(database: &CosmosDatabase<'_>) -> Value {
    documents(database, CHECKPOINTS).remove(0)
}

#[test]
fn complete_runs_are_one_entry_and_look_for_no_rows_to_delete() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let database = server.database();
    let port = server.port();
    let between = Server::start(move |request| cosmosdb::forward(port, request));
    let endpoint = between.url("/");
    for number in 0..40 {
        let id = format!("r{number}");
        run(&endpoint, database.name(), number..number + 1, (&id, true));
    }
    assert_eq!(rows(&database), (0..40).collect::<Vec<_>>());
    let epochs = &checkpoint(&database)["epochs"];
    let expected = json!({
        "known": [{ "epoch": 40, "rows": 1, "complete_from": 1 }], "is_cut": false,
    });
    assert_eq!(*epochs, expected);
    let deletes = |between: &Server| {
        let requests = between.requests();
        let ranges = requests
            .iter()
            .filter(|asked| asked.text().contains("@begin"));
        ranges.count()
    };
    assert_eq!(deletes(&between), 0);
    // After a run that is not complete, the next one looks for its rows: when it begins, and when it ends.
    run(&endpoint, database.name(), 40..41, ("part", false));
    run(&endpoint, database.name(), 41..42, ("next", true));
    assert_eq!(deletes(&between), 2);
}

#[test]
fn a_checkpoint_of_an_older_version_goes_on() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let database = server.database();
    let endpoint = database.endpoint();
    run(&endpoint, database.name(), 0..3, ("old", true));
    // As versions wrote it that did not merge complete runs.
    let new = checkpoint(&database);
    let tag = new["tag"].as_str().unwrap();
    let id = new["id"].as_str().unwrap();
    let old = json!({
        "id": id, "kind": "checkpoint", "pipeline": "p", "stream": "t",
        "target": format!("{}.t", database.name()), "tag": tag, "epoch": 1, "seq": 1, "cursor": "3",
        "run_id": "old", "complete_run": "old",
        "epochs": { "known": [{ "epoch": 1, "rows": 3 }], "is_cut": false },
        "reject_epochs": { "known": [], "is_cut": false },
    });
    database.delete(CHECKPOINTS, "[\"p\"]", id);
    database.add(CHECKPOINTS, &old.to_string());
    // Rows of the run that no commit has.
    for (epoch, number) in [(1, 3), (1, 7)] {
        let id = format!("{tag}{epoch:08x}{number:012x}");
        database.add("t", &json!({ "id": id, "k": 99 }).to_string());
    }
    assert_eq!(rows(&database), [0, 1, 2, 99, 99]);
    let progress = run(&endpoint, database.name(), 3..5, ("new", true));
    assert_eq!((progress.epoch, progress.seq), (2, 1));
    assert_eq!(progress.cursor.as_deref(), Some("3"));
    assert_eq!(rows(&database), [0, 1, 2, 3, 4]);
    let expected = json!({
        "known": [{ "epoch": 1, "rows": 3 }, { "epoch": 2, "rows": 2, "complete_from": 2 }],
        "is_cut": false,
    });
    let new = checkpoint(&database);
    assert_eq!((&new["epochs"], &new["id"]), (&expected, &json!(id)));
}
