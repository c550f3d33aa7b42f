//! A database of its own for each test, and batches for it.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dest_postgres::Postgres;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{
    DataType, Error, Field, LoadRequest, Part, Plan, Receipt, Result, Run, Schema, SchemaChanges,
    Target, WriteMode,
};
use rapidbyte_sdk::{destination, ipc};
use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

pub type Session = destination::Session<Postgres>;
pub type Loading = destination::Loading<Postgres>;

pub fn database() -> Database<'static> {
    shared().database()
}

pub fn open_with(url: &str, mut config: Value) -> Session {
    config["url"] = json!(url);
    destination::open::<Postgres>(&config.to_string()).unwrap_or_else(|e| panic!("{e:?}"))
}

pub fn open(database: &Database<'_>) -> Session {
    open_with(&database.url(), json!({"schema": "raw"}))
}

pub fn open_insert(database: &Database<'_>) -> Session {
    let config = json!({"schema": "raw", "load_method": "insert", "insert_rows": 2});
    open_with(&database.url(), config)
}

pub fn target(stream: &str, schema: &Schema, write_mode: WriteMode) -> Target {
    Target {
        stream: stream.into(),
        schema: ipc::encode_schema(schema).unwrap(),
        write_mode,
        primary_key: Vec::new(),
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

/// `id bigint not null, t text`.
pub fn batch(ids: &[i64]) -> RecordBatch {
    let texts = ids.iter().map(|id| (*id > 1).then(|| format!("t\t{id}")));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from_iter(texts)),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// Texts under the names of columns.
pub fn texts(columns: &[(&str, &[Option<&str>])]) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, _)| Field::new(*name, DataType::Utf8, true))
        .collect();
    let arrays = columns
        .iter()
        .map(|(_, values)| Arc::new(StringArray::from(values.to_vec())) as ArrayRef);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect()).unwrap()
}

pub fn run(id: &str) -> Run {
    Run {
        pipeline: "p".into(),
        id: id.into(),
    }
}

/// Lets a run in, and fences older ones.
pub fn fence(to: &mut Session, target: &Target, run: Run) -> Result<Loading> {
    let target = target.clone();
    to.begin(&[LoadRequest { target, run }])
}

/// Lets a run of its own in and begins to write.
pub fn begin(to: &mut Session, target: &Target) -> Result<Loading> {
    let mut load = fence(to, target, run("r"))?;
    let cursor = load.progress().cursor.clone();
    load.open_writer(cursor.as_deref())?;
    Ok(load)
}

/// The only commit of a run, with the `seq` that the server expects now.
pub fn whole(stream: &str, parts: Vec<Part>, seq: u64) -> Commit<'_> {
    Commit {
        seq,
        ..Commit::whole(stream, parts)
    }
}

/// As the engine does it: plan, fence, rows, one commit.
pub fn write_to(to: &mut Session, target: &Target, batches: &[RecordBatch]) -> Result<Receipt> {
    to.plan(target)?;
    let mut load = fence(to, target, run("r"))?;
    load.open_writer(None)?;
    for batch in batches {
        load.write(batch)?;
    }
    let part = load.flush()?;
    load.commit(whole(&target.stream, vec![part], load.progress().seq))
}

pub fn write(
    to: &mut Session,
    stream: &str,
    mode: WriteMode,
    batches: &[RecordBatch],
) -> Result<Receipt> {
    write_to(to, &target(stream, &batches[0].schema(), mode), batches)
}

pub fn append(to: &mut Session, stream: &str, batch: &RecordBatch) -> Result<Receipt> {
    write(to, stream, WriteMode::Append, std::slice::from_ref(batch))
}

pub fn replace(to: &mut Session, stream: &str, batch: &RecordBatch) -> Result<Receipt> {
    write(to, stream, WriteMode::Replace, std::slice::from_ref(batch))
}

pub fn plan(to: &mut Session, stream: &str, batch: &RecordBatch) -> Result<Plan> {
    to.plan(&target(stream, &batch.schema(), WriteMode::Append))
}

/// Grants a role the privileges that checkpoints need, as an administrator does.
pub fn may_checkpoint(client: &mut Client, role: &str) {
    client
        .batch_execute(&format!(
            "CREATE SCHEMA IF NOT EXISTS _rapidbyte; GRANT ALL ON SCHEMA _rapidbyte TO {role}; \
             GRANT ALL ON ALL TABLES IN SCHEMA _rapidbyte TO {role}"
        ))
        .unwrap();
}

/// The one value that a question gives, as text.
pub fn one(client: &mut Client, sql: &str) -> String {
    let row = client.query_one(&format!("SELECT ({sql})::text"), &[]);
    let value: Option<String> = row.unwrap_or_else(|e| panic!("{sql}: {e:?}")).get(0);
    value.unwrap_or_else(|| "NULL".into())
}

/// A wait of this length hangs, and is not merely slow.
pub const HANGS: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is this one.
#[track_caller]
pub fn until(client: &mut Client, sql: &str, answer: &str) {
    let begun = Instant::now();
    while one(client, sql) != answer {
        assert!(begun.elapsed() < HANGS, "it never is {answer}: {sql}");
        std::thread::yield_now();
    }
}

/// How many sessions of the destination are so in the client's database.
pub fn sessions_that(are: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND application_name = 'rapidbyte' AND {are}"
    )
}

/// Waits while the load does nothing.
pub fn let_it_idle(seconds: f64) {
    one(
        &mut shared().client("postgres"),
        &format!("SELECT count(pg_sleep({seconds}))"),
    );
}

pub fn ids(client: &mut Client, table: &str) -> String {
    one(
        client,
        &format!("SELECT string_agg(id::text, ',' ORDER BY id) FROM {table}"),
    )
}

pub fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).replace("ErrorKind::", "")
}

/// Runs statements.
pub fn execute(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}
