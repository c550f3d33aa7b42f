//! How fast an upsert is beside what `psql` needs for the same; run by hand:
//! `cargo test --release -p dest-postgres --test upsert_speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use rapidbyte_sdk::prelude::arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use rapidbyte_sdk::prelude::{Target, WriteMode};

const ROWS: i64 = 1_000_000;
const CHANGED: i64 = 100_000;
const BATCH_ROWS: i64 = 10_000;
const ROUNDS: usize = 5;

/// Seven mixed columns, every tenth row of the table.
fn changes(first: i64) -> RecordBatch {
    let ids: Vec<i64> = (first..first + BATCH_ROWS).map(|n| n * 10 + 1).collect();
    let texts = ids.iter().map(|id| Some(format!("customer number {id}")));
    let notes = ids.iter().map(|id| Some(format!("changed {}", id % 97)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(ids.clone()))),
        (
            "a",
            Arc::new(Int32Array::from_iter(
                ids.iter().map(|id| Some((id % 1000) as i32)),
            )),
        ),
        (
            "b",
            Arc::new(Float64Array::from_iter(
                ids.iter().map(|id| Some(*id as f64 / 3.0)),
            )),
        ),
        ("c", Arc::new(StringArray::from_iter(texts))),
        ("d", Arc::new(StringArray::from_iter(notes))),
        (
            "e",
            Arc::new(BooleanArray::from_iter(
                ids.iter().map(|id| Some(id % 2 == 0)),
            )),
        ),
        ("f", Arc::new(TimestampMicrosecondArray::from(ids))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

const FRESH: &str = "\
    TRUNCATE raw.t; INSERT INTO raw.t SELECT n, n % 1000, n / 3.0, 'customer number ' || n, \
    'note ' || n % 97, n % 2 = 0, to_timestamp(n) FROM generate_series(1, 1000000) n; \
    VACUUM ANALYZE raw.t; CHECKPOINT";

fn best(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn an_upsert_is_as_fast_as_psql() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, a int4, b float8, c text, \
             d text, e bool, f timestamp)",
        )
        .unwrap();
    let fresh = |client: &mut rapidbyte_testkit::postgres::Client| {
        for statement in FRESH.split("; ") {
            client.batch_execute(statement).unwrap();
        }
    };
    let batches: Vec<RecordBatch> = (0..CHANGED / BATCH_ROWS)
        .map(|n| changes(n * BATCH_ROWS))
        .collect();
    // The same rows as psql's COPY takes them.
    fresh(&mut client);
    write(&mut open(&database), "changed", WriteMode::Append, &batches).unwrap();
    let file = std::env::temp_dir().join(format!("rapidbyte-upsert-{}.bin", std::process::id()));
    let psql = |sql: &[&str]| {
        let mut command = Command::new("psql");
        command.args(["-qX", "-v", "ON_ERROR_STOP=1", &database.url()]);
        for sql in sql {
            command.args(["-c", sql]);
        }
        assert!(command.status().unwrap().success());
    };
    let file_name = file.display();
    psql(&[&format!(
        "\\copy raw.changed TO '{file_name}' (FORMAT binary)"
    )]);
    let target = Target {
        primary_key: vec!["id".into()],
        ..target("t", &batches[0].schema(), WriteMode::Upsert)
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        fresh(&mut client);
        let start = Instant::now();
        psql(&[
            "BEGIN",
            "CREATE TEMP TABLE s (LIKE raw.t) ON COMMIT DROP",
            &format!("\\copy s FROM '{file_name}' (FORMAT binary)"),
            "INSERT INTO raw.t SELECT * FROM s ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a, \
             b = EXCLUDED.b, c = EXCLUDED.c, d = EXCLUDED.d, e = EXCLUDED.e, f = EXCLUDED.f",
            "COMMIT",
        ]);
        theirs.push(start.elapsed());
        fresh(&mut client);
        let start = Instant::now();
        write_to(&mut open(&database), &target, &batches).unwrap();
        ours.push(start.elapsed());
    }
    let _ = std::fs::remove_file(&file);
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM raw.t"),
        ROWS.to_string()
    );
    println!("psql {theirs:?}\nours {ours:?}");
    let (ours, theirs) = (best(ours), best(theirs));
    println!(
        "{CHANGED} of {ROWS} rows: psql {theirs:?}, upsert {ours:?}, {:.2}x",
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
}
