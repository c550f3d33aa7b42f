//! Incremental reads.

use rapidbyte_sdk::prelude::*;

use crate::common::*;
use crate::database;

/// Reads on from a cursor, and moves it.
fn step(
    source: &mut source_mongodb::Mongo,
    asked: &ReadRequest,
    cursor: &mut Option<String>,
) -> Vec<String> {
    let request = ReadRequest {
        cursor: cursor.clone(),
        ..asked.clone()
    };
    let given = read(source, &request).unwrap();
    match given.checkpoints.last() {
        Some((rows, last)) => {
            assert_eq!(*rows, given.rows(), "the last rows have no checkpoint");
            *cursor = Some(last.clone());
        }
        None => assert_eq!(given.rows(), 0),
    }
    given.json()
}

fn asked(source: &mut source_mongodb::Mongo, field: &str) -> ReadRequest {
    let mut asked = request(source, "c", &[]);
    let wanted: Vec<_> = ["_id", "n"].iter().map(|name| (*name).to_owned()).collect();
    asked.columns = Some(wanted);
    asked.increment = Some(increment(field));
    asked
}

const TYPED: &str =
    r#""streams": {"c": {"schema": {"_id": "json", "n": "json"}, "unknown_keys": "ignore"}}"#;

#[test]
fn a_read_by_id_resumes_behind_the_last_document() {
    let database = database!();
    insert(
        &database,
        "c",
        &[r#"{"_id": 2, "n": 1}"#, r#"{"_id": 1, "n": 2}"#],
    );
    let mut source = open(&database, "");
    let asked = asked(&mut source, "_id");
    let mut cursor = None;
    assert_eq!(
        step(&mut source, &asked, &mut cursor),
        [r#"{"_id":1,"n":2}"#, r#"{"_id":2,"n":1}"#]
    );
    let saved = r#"{"version":1,"field":"_id","value":{"$numberInt":"2"},"id":{"$numberInt":"2"}}"#;
    assert_eq!(cursor.as_deref(), Some(saved));
    assert!(step(&mut source, &asked, &mut cursor).is_empty());
    insert(&database, "c", &[r#"{"_id": 3, "n": 0}"#]);
    assert_eq!(
        step(&mut source, &asked, &mut cursor),
        [r#"{"_id":3,"n":0}"#]
    );
}

#[test]
fn documents_with_equal_values_and_values_of_several_types_come_once() {
    let database = database!();
    let first = [
        r#"{"_id": 1}"#,
        r#"{"_id": 2, "n": null}"#,
        r#"{"_id": 3, "n": 5}"#,
        r#"{"_id": "a", "n": 5}"#,
        r#"{"_id": 4, "n": {"$numberDecimal": "5.5"}}"#,
        r#"{"_id": 5, "n": "x"}"#,
        r#"{"_id": 6, "n": {"$date": "2026-01-01T00:00:00Z"}}"#,
    ];
    insert(&database, "c", &first);
    let mut source = open(&database, TYPED);
    let asked = asked(&mut source, "n");
    // Small batches: a checkpoint behind every document that has a value.
    let small = ReadRequest {
        batch_bytes: 1,
        ..asked.clone()
    };
    let all = read(&mut source, &small).unwrap();
    assert_eq!(all.rows(), first.len());
    assert_eq!(all.checkpoints.len(), first.len() - 2);
    for (rows, cursor) in &all.checkpoints {
        let mut cursor = Some(cursor.clone());
        assert_eq!(
            step(&mut source, &asked, &mut cursor),
            all.json()[*rows..],
            "{cursor:?}"
        );
    }
    // The same value, with an _id of a type that sorts behind; a greater type.
    let mut cursor = all
        .checkpoints
        .iter()
        .find(|(rows, _)| *rows == 4)
        .map(|(_, cursor)| cursor.clone());
    insert(
        &database,
        "c",
        &[
            r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "n": 5}"#,
            r#"{"_id": 7, "n": true}"#,
        ],
    );
    let news = step(&mut source, &asked, &mut cursor);
    let ids: Vec<_> = news
        .iter()
        .map(|row| row.split(",\"n\"").next().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            r#"{"_id":{"$oid":"0123456789abcdef01234567"}"#,
            r#"{"_id":4"#,
            r#"{"_id":5"#,
            r#"{"_id":7"#,
            r#"{"_id":6"#,
        ]
    );
}

#[test]
fn documents_without_a_value_are_read_once() {
    let database = database!();
    insert(
        &database,
        "c",
        &[r#"{"_id": 1}"#, r#"{"_id": 2, "n": null}"#],
    );
    let mut source = open(&database, TYPED);
    let asked = asked(&mut source, "n");
    let mut cursor = None;
    assert_eq!(step(&mut source, &asked, &mut cursor).len(), 2);
    insert(&database, "c", &[r#"{"_id": 3, "n": 1}"#, r#"{"_id": 4}"#]);
    assert_eq!(
        step(&mut source, &asked, &mut cursor),
        [r#"{"_id":3,"n":1}"#]
    );
}

#[test]
fn a_condition_holds_in_every_run() {
    let database = database!();
    insert(
        &database,
        "c",
        &[r#"{"_id": 1, "n": 1}"#, r#"{"_id": 2, "n": 2}"#],
    );
    let mut source = open(&database, TYPED);
    let mut asked = asked(&mut source, "_id");
    asked.filter = Some(r#"{"n": {"$mod": [2, 0]}}"#.into());
    let mut cursor = None;
    assert_eq!(
        step(&mut source, &asked, &mut cursor),
        [r#"{"_id":2,"n":2}"#]
    );
    insert(
        &database,
        "c",
        &[r#"{"_id": 3, "n": 3}"#, r#"{"_id": 4, "n": 4}"#],
    );
    assert_eq!(
        step(&mut source, &asked, &mut cursor),
        [r#"{"_id":4,"n":4}"#]
    );
}

#[test]
fn a_first_read_may_start_at_a_value_and_later_ones_below_the_cursor() {
    let database = database!();
    let at = |id: i32, minute: i32| {
        format!(r#"{{"_id": {id}, "n": {{"$date": "2026-01-01T00:{minute:02}:00Z"}}}}"#)
    };
    let documents: Vec<_> = [(1, 0), (2, 10), (3, 20)]
        .map(|(id, minute)| at(id, minute))
        .to_vec();
    insert(
        &database,
        "c",
        &documents.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut source = open(&database, "");
    let mut asked = asked(&mut source, "n");
    let increment = asked.increment.as_mut().unwrap();
    increment.initial = Some(vec!["2026-01-01 00:10:00".into()]);
    increment.late_rows = LateRows::Lag(Some("5 minutes".into()));
    let mut cursor = None;
    assert_eq!(step(&mut source, &asked, &mut cursor).len(), 2);
    // Late, within the lag and without.
    insert(&database, "c", &[&at(4, 16), &at(5, 14)]);
    let rows = step(&mut source, &asked, &mut cursor);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].starts_with(r#"{"_id":4"#) && rows[1].starts_with(r#"{"_id":3"#));
    let error = |change: &dyn Fn(&mut Increment)| {
        let mut asked = asked.clone();
        change(asked.increment.as_mut().unwrap());
        asked
    };
    for (asked, code) in [
        (
            error(&|one| one.initial = Some(vec!["soon".into()])),
            "invalid_cursor_initial",
        ),
        (
            error(&|one| one.late_rows = LateRows::Exact),
            "mongo_no_xmin",
        ),
        (
            error(&|one| one.cursor_fields.push("_id".into())),
            "too_many_cursor_fields",
        ),
    ] {
        assert_eq!(refused(&mut source, &asked).code, code);
    }
    for lag in ["far", "5", ""] {
        let asked = error(&|one| one.late_rows = LateRows::Lag(Some(lag.into())));
        assert_eq!(refused(&mut source, &asked).code, "invalid_lag", "{lag}");
    }
}

#[test]
fn values_that_no_read_resumes_behind_are_refused() {
    let database = database!();
    insert(&database, "c", &[r#"{"_id": 1, "n": [1]}"#]);
    let mut source = open(&database, TYPED);
    let asked = asked(&mut source, "n");
    let error = refused(&mut source, &asked);
    assert_eq!(error.code, "mongo_cursor_value");
    assert_eq!(
        (error.column.as_deref(), error.location.as_deref()),
        (Some("n"), Some("_id {\"$numberInt\":\"1\"}"))
    );
}

#[test]
fn a_cursor_of_another_field_or_version_is_refused() {
    let database = database!();
    insert(&database, "c", &[r#"{"_id": 1, "n": 1}"#]);
    let mut source = open(&database, TYPED);
    let mut asked = asked(&mut source, "n");
    for (cursor, code) in [
        (
            r#"{"version":1,"field":"_id","value":1,"id":1}"#,
            "cursor_changed",
        ),
        (
            r#"{"version":2,"field":"n","value":1,"id":1}"#,
            "cursor_unreadable",
        ),
        (
            r#"{"version":1,"field":"n","value":{"$oid":"x"},"id":1}"#,
            "cursor_unreadable",
        ),
        ("5", "cursor_unreadable"),
    ] {
        asked.cursor = Some(cursor.into());
        assert_eq!(refused(&mut source, &asked).code, code, "{cursor}");
    }
}
