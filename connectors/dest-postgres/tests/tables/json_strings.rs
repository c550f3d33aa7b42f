//! Strings from JSON in columns of numbers, booleans and dates.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::prelude::arrow_array::RecordBatch;
use rapidbyte_sdk::prelude::{Target, WriteMode};
use rapidbyte_sdk::types;
use serde_json::json;

/// A type, strings that a column of it keeps, and strings that it would write otherwise.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

const CASES: [Case<'_>; 9] = [
    (
        "bigint",
        &["7", "-7", "0"],
        &["007", "+7", " 7", "7 ", "-0"],
    ),
    ("smallint", &["7"], &["007"]),
    (
        "numeric",
        &["7", "7.0", "0.10", "NaN"],
        &["007", "+7", " 7", "1e2", ".5", "5.", "-0.0"],
    ),
    ("numeric(10,2)", &["7", "7.5", "7.50"], &["07.5", "7.501"]),
    (
        "double precision",
        &["7", "0.1"],
        &["007", "7.0", "1e2", " 7"],
    ),
    ("real", &["0.5"], &["0.50"]),
    ("boolean", &["true", "false"], &["t", "1", "TRUE", "yes"]),
    ("date", &["2026-11-21"], &["20261121", "2026/11/21"]),
    // JSON has no instants, and every way to write one is a string.
    ("timestamptz", &["2026-11-21T10:11:12Z"], &[]),
];

fn one_text(text: &str, is_json: bool) -> RecordBatch {
    let batch = texts(&[("v", &[Some(text)])]);
    match is_json {
        false => batch,
        true => {
            let schema = Arc::new(types::mark_json_strings(&batch.schema()));
            RecordBatch::try_new(schema, batch.columns().to_vec()).unwrap()
        }
    }
}

#[test]
fn a_string_from_json_becomes_a_number_only_if_the_number_is_written_so() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, "CREATE SCHEMA raw");
    let config = json!({"schema": "raw"});
    for (ty, kept, refused) in CASES {
        let sql = "DROP TABLE IF EXISTS raw.t, raw.k; CREATE TABLE raw.t (v";
        execute(
            &mut client,
            &format!("{sql} {ty}); CREATE TABLE raw.k (v {ty} PRIMARY KEY)"),
        );
        let mut to = open_with(&database.url(), config.clone());
        for text in kept.iter().chain(refused) {
            let batch = one_text(text, true);
            let keyed = Target {
                primary_key: vec!["v".into()],
                ..target("k", &batch.schema(), WriteMode::Upsert)
            };
            let written = [
                append(&mut to, "t", &batch),
                write_to(&mut to, &keyed, std::slice::from_ref(&batch)),
            ];
            for result in written {
                match result {
                    Ok(_) => assert!(kept.contains(text), "{ty} {text:?} was stored"),
                    Err(error) => {
                        assert!(refused.contains(text), "{ty} {text:?}: {error:?}");
                        assert_eq!(error.code, "value_does_not_fit", "{ty} {text:?}: {error:?}");
                        assert_eq!(error.column.as_deref(), Some("v"));
                        to = open_with(&database.url(), config.clone());
                    }
                }
            }
        }
        let rows = one(&mut client, "SELECT count(*) FROM raw.t");
        assert_eq!(rows, kept.len().to_string(), "{ty}");
    }
}

#[test]
fn a_text_of_csv_becomes_a_number_in_every_spelling() {
    let database = database();
    let mut client = database.client();
    execute(
        &mut client,
        "CREATE SCHEMA raw; CREATE TABLE raw.t (v bigint)",
    );
    let mut to = open_with(&database.url(), json!({"schema": "raw"}));
    append(&mut to, "t", &one_text("007", false)).unwrap();
    assert_eq!(one(&mut client, "SELECT v FROM raw.t"), "7");
}
