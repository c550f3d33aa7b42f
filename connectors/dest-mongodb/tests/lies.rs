//! A server that lies while rows are written: every lie ends in an error with a code, and no row counts as
//! written that the server did not acknowledge. The next run, which hears the truth, leaves each row once.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use Says::{Bytes, Close, ForEver, Silence};
use dest_mongodb::MongoDb;
use rapidbyte_mongo_client::bson::{Builder, Value};
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{
    DataType, Error, Field, LoadRequest, Rejects, Result, Run, Schema, SchemaChanges, Target,
    WriteMode,
};
use rapidbyte_sdk::{Commit, destination, ipc};
use rapidbyte_testkit::liar::memory_peak;
use rapidbyte_testkit::mongodb::liar::{Asked, Liar, Lie, OP_COMPRESSED, OP_MSG, Says, message};
use rapidbyte_testkit::mongodb::{MongoDatabase, shared};
use serde_json::json;

/// Milliseconds that the client waits for an answer. Only silence lasts so long, also on a slow machine.
const PATIENCE: u32 = 60_000;
/// Milliseconds to wait for a server that is silent: the next one where a slow machine took longer to answer the rest.
const SILENCE: [u32; 3] = [1_000, 5_000, 25_000];
const MEMORY: u64 = 320 << 20;
const ROWS: i64 = 100;

/// What a run does: whether the collection is there before, and how rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    mode: WriteMode,
    is_new: bool,
    keeps_rejects: bool,
}

const APPEND: Way = Way {
    mode: WriteMode::Append,
    is_new: false,
    keeps_rejects: false,
};
const UPSERT: Way = Way {
    mode: WriteMode::Upsert,
    ..APPEND
};
const REPLACE: Way = Way {
    mode: WriteMode::Replace,
    ..APPEND
};
const NEW: Way = Way {
    is_new: true,
    ..APPEND
};
const KEEPS: Way = Way {
    keeps_rejects: true,
    ..APPEND
};

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let texts = ids.clone().map(|id| format!("t{id}"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids)),
        Arc::new(StringArray::from_iter_values(texts)),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn target(way: Way) -> Target {
    Target {
        stream: "t".into(),
        schema: ipc::encode_schema(&batch(0..0).schema()).unwrap(),
        write_mode: way.mode,
        primary_key: match way.mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: way.keeps_rejects.then(|| Rejects {
            to: "bad".into(),
            max_rows: None,
            replayed: Vec::new(),
        }),
        deletes: None,
        repairs: None,
        stages: false,
    }
}

/// All that a run asks of a destination. Returns the rows that were committed in the end.
fn speak(url: &str, options: &str, patience: u32, way: Way, id: &str) -> Result<()> {
    let limits = format!("connectTimeoutMS={patience}&socketTimeoutMS={patience}");
    let config = json!({
        "url": format!("{url}?{limits}{options}"),
        "bulk_rows": 10,
    });
    let mut to: destination::Session<MongoDb> = destination::open(&config.to_string())?;
    let target = target(way);
    to.plan(&target)?;
    let run = Run {
        pipeline: "p".into(),
        id: id.into(),
    };
    let mut load = to.begin(&[LoadRequest {
        target: target.clone(),
        run,
    }])?;
    let progress = load.progress().clone();
    if progress.cursor.is_some() {
        // The run before has committed everything.
        return Ok(());
    }
    load.open_writer(None)?;
    let mut refused = 0;
    for first in (0..ROWS).step_by(5) {
        load.write(&batch(first..first + 5))?;
        refused += load.refused().rows;
    }
    let part = load.flush()?;
    refused += load.refused().rows;
    assert_eq!(part.rows + refused, ROWS as u64, "rows that nobody counts");
    let commit = Commit {
        seq: progress.seq,
        cursor: Some("done"),
        ..Commit::whole(&target.stream, vec![part])
    };
    let receipt = load.commit(commit)?;
    assert_eq!(receipt.rows + refused, ROWS as u64);
    Ok(())
}

fn client(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

/// The field `id` of all documents, in order.
fn ids(database: &MongoDatabase<'_>, collection: &str) -> Vec<i64> {
    let mut client = client(database);
    let mut command = Builder::new();
    command.string("find", collection);
    let mut cursor = client.find(database.name(), command).unwrap();
    let mut ids = Vec::new();
    while let Some(batch) = cursor.next(&mut client, 0).unwrap() {
        for document in batch.documents().unwrap() {
            let id = document.unwrap().get("id").unwrap();
            ids.extend(id.and_then(|id| id.as_whole()));
        }
    }
    ids.sort_unstable();
    ids
}

struct Told {
    way: Way,
    lie: Lie,
    options: &'static str,
    /// How long the client waits for an answer, in milliseconds. Where a run does not hear the lie or ends in another
    /// way, it is repeated with the next limit.
    limits: &'static [u32],
    /// Empty: the run succeeds.
    code: &'static str,
}

fn always(way: Way, of: &'static str, says: Speech, code: &'static str) -> Told {
    Told {
        way,
        lie: Lie {
            of,
            nth: 1,
            is_once: false,
            says,
        },
        options: "",
        limits: limits(code),
        code,
    }
}

fn once(way: Way, of: &'static str, says: Speech, code: &'static str) -> Told {
    let mut told = always(way, of, says, code);
    told.lie.is_once = true;
    told
}

impl Told {
    fn nth(mut self, nth: usize) -> Self {
        self.lie.nth = nth;
        self
    }

    fn with(self, options: &'static str) -> Self {
        Self { options, ..self }
    }

    /// The server says nothing, whatever the code of the run is in the end.
    fn silent(mut self) -> Self {
        self.limits = &SILENCE;
        self
    }

    fn is_as_expected(&self, result: &Result<()>) -> bool {
        result.as_ref().err().map_or("", |error| &error.code) == self.code
    }
}

/// The limits for a lie that ends in this code.
fn limits(code: &str) -> &'static [u32] {
    match code {
        "timeout" => &SILENCE,
        _ => &[PATIENCE],
    }
}

/// Tells each lie to a run of its own, and lets a run follow that hears the truth.
fn tell(lies: Vec<Told>) {
    let Some(server) = shared() else {
        return;
    };
    let before = memory_peak();
    let mut wrong = Vec::new();
    let count = lies.len();
    for (number, told) in lies.into_iter().enumerate() {
        let what = format!("{number}: {:?} about {:?}", told.way, told.lie.of);
        let mut runs = told.limits.iter().map(|patience| {
            let database = server.database();
            if !told.way.is_new {
                let mut create = Builder::new();
                create.string("create", "t");
                client(&database).command(database.name(), create).unwrap();
            }
            let liar = Liar::in_front_of(server.port(), told.lie).unwrap();
            let url = database.url_at(liar.port());
            let result = speak(&url, told.options, *patience, told.way, "older");
            (database, liar, result)
        });
        let mut run = runs.next().unwrap();
        while run.1.lies_told() == 0 || !told.is_as_expected(&run.2) {
            let Some(next) = runs.next() else { break };
            run = next;
        }
        let (database, liar, result) = run;
        assert!(liar.lies_told() > 0, "{what}: not told, {result:?}");
        if !told.is_as_expected(&result) {
            wrong.push(format!("{what}: {result:?}, and not {:?}", told.code));
        }
        if let Err(error) = &result {
            assert!(!error.message.is_empty(), "{what}: {error:?}");
        }
        let all: Vec<i64> = (0..ROWS).collect();
        if result.is_ok() && !told.way.keeps_rejects {
            assert_eq!(ids(&database, "t"), all, "{what}");
        }
        drop(liar);
        speak(&database.url(), "", PATIENCE, told.way, "newer")
            .unwrap_or_else(|e| panic!("{what}: {e:?}"));
        if !told.way.keeps_rejects {
            assert_eq!(ids(&database, "t"), all, "{what}, after a second run");
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}

const VIOLATED: &str = "protocol_violation";

/// An answer with `ok: 1` and nothing else.
fn bare(asked: &Asked<'_>) -> Says {
    Bytes(asked.answer(|answer| answer.int32("ok", 1)))
}

/// `ok: 1` and a number of documents.
macro_rules! counted {
    ($n:expr) => {
        |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1).int64("n", $n)))
    };
}

/// `ok: 1`, a number of documents, and an error with this index and number so many times.
macro_rules! failed {
    ($n:expr, $times:expr, $index:expr, $code:expr) => {
        |asked| {
            Bytes(asked.answer(|answer| {
                answer
                    .int32("ok", 1)
                    .int32("n", $n)
                    .open_array("writeErrors");
                for at in 0..$times as i64 {
                    let index: i64 = $index(at);
                    answer
                        .open_document(&at.to_string())
                        .int64("index", index)
                        .int32("code", $code)
                        .string("errmsg", "no")
                        .close();
                }
                answer.close()
            }))
        }
    };
}

#[test]
fn about_rows() {
    let lies = |way: Way, of: &'static str| {
        vec![
            // Some of ten documents, none, more.
            always(way, of, bare, VIOLATED),
            always(way, of, counted!(9), "rows_missing"),
            always(way, of, counted!(11), "rows_missing"),
            always(way, of, counted!(-1), VIOLATED),
            always(way, of, counted!(i64::MAX), "rows_missing"),
            always(way, of, counted!(9), "rows_missing").nth(4),
            // Errors of documents that were not sent.
            always(way, of, failed!(9, 1, |_| 10, 11000), VIOLATED),
            always(way, of, failed!(9, 1, |_| -1, 11000), VIOLATED),
            always(way, of, failed!(9, 1, |_| i64::MAX, 121), VIOLATED),
            // More errors than documents, or one twice.
            always(way, of, failed!(0, 11, |at| at, 121), VIOLATED),
            always(way, of, failed!(0, 10, |_| 3, 121), VIOLATED),
            always(
                way,
                of,
                failed!(0, 300_000, |at: i64| at % 10, 121),
                VIOLATED,
            ),
            // One is refused, and only five of the others are there.
            always(way, of, failed!(5, 1, |_| 3, 121), "rows_missing"),
            always(way, of, failed!(11, 1, |_| 3, 121), "rows_missing"),
            always(way, of, failed!(9, 1, |_| 3, 121), "mongo_121"),
            // Things in the place of the errors.
            always(
                way,
                of,
                |asked| {
                    Bytes(asked.answer(|answer| {
                        answer
                            .int32("ok", 1)
                            .int32("n", 10)
                            .string("writeErrors", "many")
                    }))
                },
                VIOLATED,
            ),
            always(
                way,
                of,
                |asked| {
                    Bytes(asked.answer(|answer| {
                        answer
                            .int32("ok", 1)
                            .int32("n", 10)
                            .open_array("writeErrors")
                            .int32("0", 7)
                            .close()
                    }))
                },
                VIOLATED,
            ),
            always(
                way,
                of,
                |asked| {
                    Bytes(asked.answer(|answer| {
                        answer
                            .int32("ok", 1)
                            .int32("n", 10)
                            .open_document("writeConcernError")
                            .int32("code", 64)
                            .close()
                    }))
                },
                "write_concern_failed",
            ),
            always(way, of, |_| Close(Vec::new()), "connection_lost"),
            always(
                way,
                of,
                |asked| Close(asked.truth[..30].to_vec()),
                "connection_lost",
            ),
            always(way, of, |_| Silence(Vec::new()), "timeout"),
            always(
                way,
                of,
                |asked| Silence(asked.truth[..30].to_vec()),
                "timeout",
            ),
        ]
    };
    tell(lies(APPEND, "insert"));
    tell(lies(NEW, "insert"));
    tell(lies(UPSERT, "update"));
}

#[test]
fn about_rows_that_are_kept_as_rejects() {
    // Two documents, because each batch of five is sent alone.
    tell(vec![
        always(KEEPS, "insert", failed!(0, 1, |_| 3, 121), "rows_missing"),
        always(KEEPS, "insert", failed!(0, 5, |_| 3, 121), VIOLATED),
        always(KEEPS, "insert", failed!(4, 1, |_| 5, 121), VIOLATED),
    ]);
}

#[test]
fn about_the_length_and_the_kind_of_a_message() {
    let insert = "insert";
    tell(vec![
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(0, 0)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(0, 15)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(0, -1)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(0, i32::MAX)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Silence(asked.with_header(0, 48_000_000)),
            "timeout",
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(0, 20)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(2, -1)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(2, asked.number() - 1)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(2, asked.number() + 1)),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(asked.with_header(3, 1)),
            VIOLATED,
        ),
        // Flags that must be known, and another answer that follows.
        always(
            APPEND,
            insert,
            |asked| Bytes(message(asked.number(), OP_MSG, &[0xfc, 0, 0, 0])),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes([&asked.truth[..16], &[2, 0, 0, 0], &asked.truth[20..]].concat()),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(message(asked.number(), OP_MSG, b"")),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(message(asked.number(), OP_MSG, &[0; 4])),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| Bytes(message(asked.number(), OP_MSG, &[1, 0, 0, 0, 0])),
            VIOLATED,
        ),
        always(
            APPEND,
            insert,
            |asked| ForEver(asked.truth.to_vec()),
            VIOLATED,
        ),
        always(APPEND, insert, |_| ForEver(vec![0xff]), VIOLATED),
    ]);
}

/// The true answer with a section of the kind 1 before it, which announces this many bytes.
fn sectioned(asked: &Asked<'_>, announced: i32) -> Vec<u8> {
    let section = [&[1][..], &announced.to_le_bytes(), b"documents\0"].concat();
    let body = [
        &[0; 4][..],
        &section,
        &[0],
        asked.true_document().as_bytes(),
    ]
    .concat();
    message(asked.number(), OP_MSG, &body)
}

/// Bytes that a compressor has made, said to be `len` long.
fn compressed(asked: &Asked<'_>, compressor: u8, len: i32, bytes: &[u8]) -> Vec<u8> {
    let body = [
        &OP_MSG.to_le_bytes()[..],
        &len.to_le_bytes(),
        &[compressor],
        bytes,
    ]
    .concat();
    message(asked.number(), OP_COMPRESSED, &body)
}

#[test]
fn about_sections_documents_and_compression() {
    let all = "&compressors=snappy,zlib,zstd";
    tell(vec![
        // The answer is whole beside a section that nobody needs.
        always(APPEND, "insert", |asked| Bytes(sectioned(asked, 14)), ""),
        always(
            APPEND,
            "insert",
            |asked| Bytes(sectioned(asked, 3)),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(sectioned(asked, -1)),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(sectioned(asked, i32::MAX)),
            VIOLATED,
        ),
        // Two documents.
        always(
            APPEND,
            "insert",
            |asked| {
                let document = asked.true_document().as_bytes();
                let body = [&[0; 5][..], document, &[0], document].concat();
                Bytes(message(asked.number(), OP_MSG, &body))
            },
            VIOLATED,
        ),
        // Documents that are not.
        always(
            APPEND,
            "insert",
            |asked| Bytes(asked.answer_bytes(&[5, 0, 0, 0, 1])),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(asked.answer_bytes(&[0; 5])),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(asked.answer_bytes(&[255; 5])),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(asked.answer_bytes(&[8, 0, 0, 0, 0x66, b'a', 0, 0])),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(asked.answer_bytes(&[12, 0, 0, 0, 2, b'a', 0, 255, 255, 255, 255, 0])),
            VIOLATED,
        ),
        // Compressed, and not as it was said.
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 0, 30, &asked.truth[16..])),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| {
                let len = i32::try_from(asked.truth.len() - 16).unwrap();
                Bytes(compressed(asked, 0, len, &asked.truth[16..]))
            },
            "",
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 1, 30, b"\x1e\0")),
            VIOLATED,
        ),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 1, 30, b"\x1e\0")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 1, 40_000_000, b"\xff\xff\xff\xff\x0f")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 2, 40_000_000, b"\x78\x9c")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 3, 40_000_000, b"\x28\xb5\x2f\xfd")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 2, -1, b"")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 2, i32::MAX, b"")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(compressed(asked, 9, 5, b"12345")),
            VIOLATED,
        )
        .with(all),
        always(
            APPEND,
            "insert",
            |asked| Bytes(message(asked.number(), OP_COMPRESSED, b"1234")),
            VIOLATED,
        )
        .with(all),
    ]);
}

/// The document of a checkpoint that the client asked to change, with another number of commits.
fn changed(asked: &Asked<'_>, name: &str, to: &Value<'_>) -> Says {
    let found = asked.true_document().get("value").unwrap();
    let Some(Value::Document(found)) = found else {
        panic!("no checkpoint: {found:?}");
    };
    let mut value = Builder::new();
    for element in found.elements() {
        let (field, was) = element.unwrap();
        value.value(field, if field == name { to } else { &was });
    }
    let value = value.finish().unwrap();
    let value = rapidbyte_mongo_client::bson::Document::parse(&value).unwrap();
    Bytes(asked.answer(|answer| answer.int32("ok", 1).document("value", value)))
}

fn null(asked: &Asked<'_>) -> Says {
    Bytes(asked.answer(|answer| answer.int32("ok", 1).value("value", &Value::Null)))
}

#[test]
fn about_a_fence() {
    let fence = "findAndModify";
    tell(vec![
        always(APPEND, fence, bare, VIOLATED),
        always(APPEND, fence, null, VIOLATED),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "tag", &Value::Null),
            "checkpoint_differs",
        ),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "epoch", &Value::Int64(-1)),
            "checkpoint_differs",
        ),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "epoch", &Value::Int64(1 << 40)),
            "checkpoint_differs",
        ),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "run_id", &Value::String("other")),
            VIOLATED,
        ),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "seq", &Value::Int64(i64::MAX)),
            "checkpoint_differs",
        ),
        always(
            APPEND,
            fence,
            |asked| changed(asked, "seq", &Value::Null),
            "checkpoint_differs",
        ),
        once(APPEND, fence, |_| Close(Vec::new()), "connection_lost"),
    ]);
}

#[test]
fn about_a_commit() {
    // The first one is the fence. The truth is asked for by another connection.
    let commit = |way, says, code| once(way, "findAndModify", says, code).nth(2);
    for way in [APPEND, UPSERT] {
        tell(vec![
            commit(way, bare, ""),
            commit(way, null, ""),
            commit(way, |asked| changed(asked, "seq", &Value::Int64(7)), ""),
            commit(way, |asked| changed(asked, "epoch", &Value::Int64(7)), ""),
            commit(
                way,
                |asked| changed(asked, "cursor", &Value::String("other")),
                "",
            ),
            commit(way, |asked| changed(asked, "tag", &Value::Null), ""),
            commit(way, |_| Close(Vec::new()), ""),
            commit(way, |asked| Close(asked.truth[..40].to_vec()), ""),
            commit(way, |_| Silence(Vec::new()), "").silent(),
            commit(way, |asked| ForEver(asked.with_header(2, 1)), ""),
            commit(way, |asked| Bytes(asked.with_header(2, 1)), ""),
            // It never says the truth again.
            always(
                way,
                "findAndModify",
                |_| Close(Vec::new()),
                "commit_unknown",
            )
            .nth(2),
            always(way, "findAndModify", bare, "commit_unknown").nth(2),
            always(
                way,
                "findAndModify",
                |_| Silence(Vec::new()),
                "commit_unknown",
            )
            .nth(2)
            .silent(),
        ]);
    }
}

#[test]
fn about_a_collection_that_replaces_the_target() {
    let rename = "renameCollection";
    for way in [REPLACE, NEW] {
        tell(vec![
            once(way, rename, |_| Close(Vec::new()), "connection_lost"),
            once(way, rename, |_| Silence(Vec::new()), "timeout"),
            once(
                way,
                rename,
                |asked| Bytes(asked.answer_bytes(&[0; 5])),
                VIOLATED,
            ),
            once(way, "create", |_| Close(Vec::new()), "connection_lost"),
            // The right to commit, by a write.
            once(way, "findAndModify", bare, VIOLATED).nth(2),
        ]);
    }
}

/// The number of the first question behind the greetings: the server knows the older one alone.
const LIST: usize = 3;

#[test]
fn about_cursors_and_the_catalog() {
    let list = "listCollections";
    let empty = |asked: &Asked<'_>| {
        Bytes(asked.answer(|answer| {
            answer
                .int32("ok", 1)
                .open_document("cursor")
                .int64("id", 7)
                .string("ns", "d.c")
                .open_array("nextBatch")
                .close()
                .close()
        }))
    };
    let many = |asked: &Asked<'_>| {
        Bytes(asked.answer(|answer| {
            answer
                .int32("ok", 1)
                .open_document("cursor")
                .int64("id", 7)
                .string("ns", "d.c")
                .open_array("nextBatch");
            for at in 0..1000 {
                answer
                    .open_document(&at.to_string())
                    .string("name", &format!("c{at}"))
                    .close();
            }
            answer.close().close()
        }))
    };
    tell(vec![
        always(APPEND, list, bare, VIOLATED),
        always(
            APPEND,
            list,
            |asked| {
                Bytes(asked.answer(|answer| answer.int32("ok", 1).open_document("cursor").close()))
            },
            VIOLATED,
        ),
        always(
            APPEND,
            list,
            |asked| {
                Bytes(asked.answer(|answer| {
                    let answer = answer.int32("ok", 1).open_document("cursor");
                    let answer = answer
                        .int64("id", 0)
                        .string("ns", "d.c")
                        .open_array("firstBatch");
                    answer.int32("0", 1).close().close()
                }))
            },
            VIOLATED,
        ),
        // Cursors that never end: without documents, and with them.
        always(APPEND, "", empty, VIOLATED).nth(LIST),
        always(APPEND, "", many, "mongo_too_many_collections").nth(LIST),
    ]);
}

/// A greeting with one field more.
fn greeting(asked: &Asked<'_>, build: impl FnOnce(&mut Builder) -> &mut Builder) -> Says {
    Bytes(asked.answer(|answer| {
        let answer = answer
            .int32("ok", 1)
            .boolean("isWritablePrimary", true)
            .int32("maxWireVersion", 21);
        build(answer)
    }))
}

#[test]
fn about_itself() {
    let hello = "hello";
    let refuses = |says, code| always(APPEND, hello, says, code);
    tell(vec![
        refuses(bare, "server_too_old"),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxBsonObjectSize", 0)),
            VIOLATED,
        ),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxBsonObjectSize", 7)),
            VIOLATED,
        ),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxMessageSizeBytes", -5)),
            VIOLATED,
        ),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxMessageSizeBytes", 100)),
            VIOLATED,
        ),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxWriteBatchSize", 0)),
            VIOLATED,
        ),
        refuses(
            |asked| greeting(asked, |it| it.int64("maxWriteBatchSize", i64::MIN)),
            VIOLATED,
        ),
        // More than anybody needs is cut.
        refuses(
            |asked| {
                greeting(asked, |it| {
                    it.int64("maxBsonObjectSize", i64::MAX)
                        .int64("maxMessageSizeBytes", i64::MAX)
                        .int64("maxWriteBatchSize", i64::MAX)
                })
            },
            "",
        ),
        refuses(
            |asked| greeting(asked, |it| it.int32("maxWriteBatchSize", 1)),
            "",
        ),
        refuses(|asked| Bytes(asked.with_header(0, 2 << 20)), VIOLATED),
        refuses(|_| ForEver(vec![0]), VIOLATED),
        refuses(|_| Silence(Vec::new()), "timeout"),
        refuses(|_| Close(Vec::new()), "connection_lost"),
    ]);
}

/// Makes a lie.
type Speech = fn(&Asked<'_>) -> Says;

/// A step of a login with this text.
fn step(asked: &Asked<'_>, text: &str) -> Says {
    Bytes(asked.answer(|answer| {
        answer
            .int32("ok", 1)
            .int32("conversationId", 1)
            .boolean("done", false)
            .binary("payload", text.as_bytes())
    }))
}

/// The nonce of the client.
fn nonce(asked: &Asked<'_>) -> String {
    let payload = asked.command().get("payload").unwrap();
    let Some(Value::Binary { bytes, .. }) = payload else {
        panic!("{payload:?}");
    };
    let text = std::str::from_utf8(bytes).unwrap();
    text.rsplit_once(",r=").unwrap().1.to_owned()
}

#[test]
fn about_a_login() {
    let Some(server) = shared() else {
        return;
    };
    let start = "saslStart";
    let lies: Vec<(Speech, &str)> = vec![
        (bare, VIOLATED),
        (|asked| step(asked, ""), "server_not_proven"),
        (
            |asked| step(asked, "r=another,s=c2FsdA==,i=4096"),
            "server_not_proven",
        ),
        // The nonce of the client alone, cut, and after another text.
        (
            |asked| step(asked, &format!("r={},s=c2FsdA==,i=4096", nonce(asked))),
            "server_not_proven",
        ),
        (
            |asked| {
                step(
                    asked,
                    &format!("r={}x,s=c2FsdA==,i=4096", &nonce(asked)[1..]),
                )
            },
            "server_not_proven",
        ),
        (
            |asked| step(asked, &format!("r=x{},s=c2FsdA==,i=4096", nonce(asked))),
            "server_not_proven",
        ),
        (
            |asked| step(asked, &format!("r={}x,s=?,i=4096", nonce(asked))),
            "server_not_proven",
        ),
        (
            |asked| step(asked, &format!("r={}x,s=c2FsdA==,i=0", nonce(asked))),
            "server_not_proven",
        ),
        (
            |asked| step(asked, &format!("r={}x,s=c2FsdA==,i=-1", nonce(asked))),
            "server_not_proven",
        ),
        (
            |asked| {
                step(
                    asked,
                    &format!("r={}x,s=c2FsdA==,i=4294967295", nonce(asked)),
                )
            },
            "scram_iterations",
        ),
        (
            |asked| {
                step(
                    asked,
                    &format!("r={}x,s=c2FsdA==,i=99999999999999999999", nonce(asked)),
                )
            },
            "scram_iterations",
        ),
        // So few that the password could be guessed from the proof.
        (
            |asked| step(asked, &format!("r={}x,s=c2FsdA==,i=4095", nonce(asked))),
            "scram_iterations",
        ),
        (
            |asked| step(asked, &format!("r={}x,s=c2FsdA==,i=1", nonce(asked))),
            "scram_iterations",
        ),
        // It does not know the password, and says that the login is done.
        (
            |asked| step(asked, &format!("r={}x,s=c2FsdA==,i=4096", nonce(asked))),
            "mongo_59",
        ),
        (|_| ForEver(vec![0xff]), VIOLATED),
        (|_| Silence(Vec::new()), "timeout"),
    ];
    for (number, (says, code)) in lies.into_iter().enumerate() {
        let lie = Lie {
            of: start,
            nth: 1,
            is_once: false,
            says,
        };
        let database = server.database();
        let error: Error = limits(code)
            .iter()
            .find_map(|patience| {
                let liar = Liar::in_front_of(server.port(), lie).unwrap();
                let url = database.url_at(liar.port());
                let url = url.replace("mongodb://", "mongodb://user:pencil@");
                let error = speak(&url, "", *patience, APPEND, "r").unwrap_err();
                (liar.lies_told() > 0).then_some(error)
            })
            .unwrap_or_else(|| panic!("{number}: not told"));
        assert_eq!(error.code, code, "{number}: {error:?}");
        assert!(!format!("{error:?}").contains("pencil"), "{error:?}");
    }
}
