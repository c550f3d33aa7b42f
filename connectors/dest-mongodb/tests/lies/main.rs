//! A server that lies while rows are written: every lie ends in an error with a code, and no row counts as
//! written that the server did not acknowledge. The next run, which hears the truth, leaves each row once.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod told;
mod wire;

use Says::{Bytes, Close, ForEver, Silence};
use rapidbyte_mongo_client::bson::{Builder, Value};
use rapidbyte_testkit::mongodb::liar::{Asked, Says};

use told::{APPEND, KEEPS, NEW, REPLACE, UPSERT, VIOLATED, Way, always, bare, once, tell};

/// `ok: 1` and a number of documents.
macro_rules! counted {
    ($n:expr) => {
        |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1).int64("n", $n)))
    };
}

/// `ok: 1`, a number of documents, and a number of errors with this index and code.
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
