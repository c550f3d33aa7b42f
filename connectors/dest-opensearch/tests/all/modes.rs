//! Append, upsert, replace and deletes, from run to run.

use std::sync::Arc;

use rapidbyte_sdk::prelude::WriteMode;
use rapidbyte_sdk::prelude::arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray,
};
use rapidbyte_sdk::prelude::arrow_schema::{DataType, Field};
use rapidbyte_testkit::opensearch;
use serde_json::{Value, json};

use crate::support::{Stream, batch, documents, indices, pairs};

fn rows(rows: &[(i64, &str)]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
    batch(vec![
        (Arc::new(Field::new("k", DataType::Int64, false)), keys),
        (Arc::new(Field::new("v", DataType::Utf8, false)), values),
    ])
}

fn expected(rows: &[(i64, &str)]) -> Vec<(i64, String)> {
    rows.iter().map(|(k, v)| (*k, (*v).to_owned())).collect()
}

#[test]
fn appended_rows_of_a_part_that_was_not_committed_are_deleted() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let stream = Stream::new(&space, &rows(&[]).schema(), WriteMode::Append);
    stream
        .run("one", &[rows(&[(1, "a"), (1, "a")])], Some("1"))
        .unwrap();
    // A run that commits a part, and dies behind more rows.
    stream
        .part("two", &[rows(&[(2, "b")])], Some("2"), false)
        .unwrap();
    let lost = |epoch: u32, number: u64| {
        let checkpoint = documents(&space, "checkpoint").remove(0).1;
        let id = format!(
            "{}{epoch:08x}{number:012x}",
            checkpoint["tag"].as_str().unwrap()
        );
        let row = json!({ "_rapidbyte": id, "k": 99, "v": "lost" });
        space.done(
            "PUT",
            &format!("t/_doc/{id}?refresh=true"),
            &row.to_string(),
        );
    };
    space.done("POST", "checkpoint/_refresh", "");
    lost(2, 1);
    lost(2, 7);
    assert_eq!(pairs(&space, "t").len(), 5);
    let progress = stream
        .run("three", &[rows(&[(3, "c")])], Some("3"))
        .unwrap();
    assert_eq!((progress.epoch, progress.cursor.as_deref()), (3, Some("2")));
    let all = [(1, "a"), (1, "a"), (2, "b"), (3, "c")];
    assert_eq!(pairs(&space, "t"), expected(&all));
    // A committed row of a complete run is never looked for.
    let progress = stream.run("four", &[], Some("3")).unwrap();
    assert_eq!((progress.epoch, progress.seq), (4, 3));
    assert_eq!(pairs(&space, "t"), expected(&all));
}

#[test]
fn a_key_becomes_the_id_and_deleted_rows_are_deleted() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let with = |all: &[(i64, &str, bool)]| {
        let plain: Vec<(i64, &str)> = all.iter().map(|row| (row.0, row.1)).collect();
        let gone: ArrayRef = Arc::new(BooleanArray::from_iter(all.iter().map(|row| Some(row.2))));
        let plain = rows(&plain);
        let mut columns: Vec<_> = plain
            .schema()
            .fields()
            .iter()
            .cloned()
            .zip(plain.columns().to_vec())
            .collect();
        columns.push((Arc::new(Field::new("gone", DataType::Boolean, true)), gone));
        batch(columns)
    };
    let first = with(&[
        (1, "a", false),
        (2, "b", false),
        (1, "c", false),
        (3, "d", true),
    ]);
    let mut stream = Stream::new(&space, &first.schema(), WriteMode::Upsert).keyed("k");
    stream.target.deleted_field = Some("gone".into());
    stream.run("one", &[first], Some("1")).unwrap();
    assert_eq!(pairs(&space, "t"), expected(&[(1, "c"), (2, "b")]));
    let ids: Vec<String> = documents(&space, "t")
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, ["1", "2"]);
    let next = with(&[
        (1, "x", true),
        (2, "y", false),
        (2, "z", false),
        (1, "again", false),
        (1, "w", true),
    ]);
    stream.run("two", &[next], Some("2")).unwrap();
    assert_eq!(pairs(&space, "t"), expected(&[(2, "z")]));
    // Several columns.
    let two = rows(&[(1, "a|b%"), (1, "c")]);
    let mut stream = Stream::new(&space, &two.schema(), WriteMode::Upsert)
        .set("index", space.name("keys").into());
    stream.target.primary_key = vec!["k".into(), "v".into()];
    stream.run("keys", &[two], None).unwrap();
    let ids: Vec<String> = documents(&space, "keys")
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(ids, ["1|a%7Cb%25", "1|c"]);
}

#[test]
fn a_column_of_ids_is_taken_once() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let with = |all: &[(&str, i64)]| {
        let ids: ArrayRef = Arc::new(StringArray::from_iter_values(all.iter().map(|row| row.0)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(all.iter().map(|row| row.1)));
        batch(vec![
            (Arc::new(Field::new("_id", DataType::Utf8, false)), ids),
            (Arc::new(Field::new("k", DataType::Int64, false)), numbers),
        ])
    };
    let stream = Stream::new(&space, &with(&[]).schema(), WriteMode::Append);
    let exact = (1 << 53) + 1;
    stream
        .run("one", &[with(&[("a", 1), ("b", exact)])], None)
        .unwrap();
    // The same document is the row of an earlier attempt.
    stream
        .run("two", &[with(&[("b", exact), ("c", 3), ("c", 3)])], None)
        .unwrap();
    assert_eq!(documents(&space, "t").len(), 3);
    let error = stream.fails(&[with(&[("d", 4), ("b", exact - 1)])]);
    assert_eq!(
        (error.code.as_str(), error.location.as_deref()),
        ("opensearch_conflict", Some("row 2"))
    );
    let error = stream.fails(&[with(&[(&"é".repeat(257), 4)])]);
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("invalid_id", Some("_id"))
    );
}

#[test]
fn a_replace_fills_an_index_and_changes_the_alias() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let stream = Stream::new(&space, &rows(&[]).schema(), WriteMode::Replace);
    stream
        .run("one", &[rows(&[(1, "a"), (2, "b")])], None)
        .unwrap();
    assert_eq!(pairs(&space, "t"), expected(&[(1, "a"), (2, "b")]));
    let first = indices(&space);
    assert_eq!((first.len(), first[0].as_str()), (2, "checkpoint"));
    assert!(first[1].starts_with("t-"), "{first:?}");
    // A run that fails leaves the rows of the older one, and nothing of its own.
    let bad = Stream::new(&space, &rows(&[]).schema(), WriteMode::Replace).keyed("v");
    let error = bad.fails(&[rows(&[(3, "x"), (4, &"v".repeat(600))])]);
    assert_eq!(error.code, "invalid_id");
    assert_eq!(pairs(&space, "t"), expected(&[(1, "a"), (2, "b")]));
    assert_eq!(indices(&space), first);
    // Another schema is no obstacle: the fields are those of the stream.
    let more: ArrayRef = Arc::new(StringArray::from(vec!["text"]));
    let more = batch(vec![(
        Arc::new(Field::new("k", DataType::Utf8, false)),
        more,
    )]);
    let other = Stream::new(&space, &more.schema(), WriteMode::Replace);
    other.run("three", &[more], None).unwrap();
    assert_eq!(documents(&space, "t")[0].1["k"], "text");
    let third = indices(&space);
    assert!(third.len() == 2 && third[1] != first[1], "{third:?}");
    // Rows that are appended go into the index behind the alias.
    let more = rows(&[(1, "a")]);
    let stream = Stream::new(&space, &more.schema(), WriteMode::Append);
    stream.run("four", &[more], None).unwrap();
    assert_eq!(documents(&space, "t").len(), 2);
    assert_eq!(indices(&space), third);
}

#[test]
fn an_index_of_somebody_else_stays_when_its_rows_are_replaced() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    for key in [None, Some("k")] {
        let name = format!("t{}", key.unwrap_or("made"));
        space.done(
            "PUT",
            &name,
            r#"{"mappings":{"properties":{"v":{"type":"keyword"}}}}"#,
        );
        space.done(
            "PUT",
            &format!("{name}/_doc/mine?refresh=true"),
            r#"{"k":0,"v":"mine"}"#,
        );
        let uuid = |name: &str| {
            let found: Value = serde_json::from_str(&space.done("GET", name, "")).unwrap();
            found[space.name(name)]["settings"]["index"]["uuid"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let before = uuid(&name);
        let mut stream = Stream::new(&space, &rows(&[]).schema(), WriteMode::Replace)
            .set("index", space.name(&name).into());
        stream.target.primary_key = key.into_iter().map(str::to_owned).collect();
        stream
            .run("one", &[rows(&[(1, "a"), (2, "b")])], None)
            .unwrap();
        assert_eq!(
            pairs(&space, &name),
            expected(&[(1, "a"), (2, "b")]),
            "{name}"
        );
        stream
            .run("two", &[rows(&[(2, "c"), (3, "d")])], None)
            .unwrap();
        assert_eq!(
            pairs(&space, &name),
            expected(&[(2, "c"), (3, "d")]),
            "{name}"
        );
        assert_eq!(uuid(&name), before);
    }
}

#[test]
fn rows_with_keys_of_a_part_that_replaced_others_stay_when_the_run_dies() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    space.done("PUT", "t", "{}");
    space.done("PUT", "t/_doc/mine?refresh=true", r#"{"k":0,"v":"mine"}"#);
    let stream = Stream::new(&space, &rows(&[]).schema(), WriteMode::Replace).keyed("k");
    stream
        .part("one", &[rows(&[(1, "a"), (2, "b")])], Some("1"), false)
        .unwrap();
    assert_eq!(pairs(&space, "t"), expected(&[(1, "a"), (2, "b")]));
    stream.run("two", &[rows(&[(3, "c")])], Some("2")).unwrap();
    let all = [(1, "a"), (2, "b"), (3, "c")];
    assert_eq!(pairs(&space, "t"), expected(&all));
}

#[test]
fn an_index_that_is_deleted_during_a_run_ends_it() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let stream = Stream::new(&space, &rows(&[]).schema(), WriteMode::Append);
    stream.run("one", &[rows(&[(1, "a")])], Some("1")).unwrap();
    let mut session = stream.open();
    let run = rapidbyte_sdk::prelude::Run {
        pipeline: "p".into(),
        id: "two".into(),
    };
    let request = rapidbyte_sdk::prelude::LoadRequest {
        target: stream.target.clone(),
        run,
    };
    let mut load = session.begin(&[request]).unwrap();
    load.open_writer(Some("1")).unwrap();
    space.done("DELETE", "t", "");
    load.write(&rows(&[(2, "b")])).unwrap();
    let part = load.flush().unwrap();
    let commit = rapidbyte_sdk::Commit {
        seq: 1,
        cursor: Some("2"),
        complete: true,
        ..rapidbyte_sdk::Commit::whole("t", vec![part])
    };
    let error = load.commit(commit).map(drop).unwrap_err();
    assert_eq!(error.code, "index_changed");
    space.done("DELETE", "t", "");
    let error = stream
        .run("three", &[rows(&[(2, "b")])], Some("2"))
        .unwrap_err();
    assert_eq!(error.code, "target_missing");
    let hint = error.hint.unwrap_or_default();
    assert!(hint.contains("run PIPELINE --full-refresh"), "{hint}");
}
