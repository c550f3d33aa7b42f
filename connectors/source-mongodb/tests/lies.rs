//! A server that lies while documents are read: every lie ends in an error with a code, or the rows are the right
//! ones.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "all/common.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod common;

use Says::{Bytes, Close, ForEver, Silence};
use common::*;
use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_mongo::NATIVE_FORM;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::source;
use rapidbyte_testkit::liar::memory_peak;
use rapidbyte_testkit::mongodb::liar::{Asked, Liar, Lie, OP_COMPRESSED, OP_MSG, Says, message};
use rapidbyte_testkit::mongodb::{MongoDatabase, shared};
use source_mongodb::Mongo;

/// Milliseconds that the client waits for an answer. Only silence lasts so long, also on a slow machine.
const PATIENCE: u32 = 60_000;
/// Milliseconds to wait for a server that is silent: the next one where a slow machine took longer to answer the rest.
const SILENCE: [u32; 3] = [1_000, 5_000, 25_000];
const MEMORY: u64 = 320 << 20;
const ROWS: usize = 1000;
const VIOLATED: &str = "protocol_violation";

/// All that a run asks of a source: the rows of `t`, in columns or as whole documents.
fn speak(database: &MongoDatabase<'_>, port: u16, patience: u32, native: bool) -> Result<usize> {
    let url = database.url_at(port);
    let limits = format!("connectTimeoutMS={patience}&socketTimeoutMS={patience}");
    let options = format!("{limits}&compressors=snappy,zlib,zstd");
    let mut source: Mongo = source::open(&format!(r#"{{"url": "{url}?{options}"}}"#))?;
    let forms = match native {
        true => vec![NATIVE_FORM.to_owned()],
        false => Vec::new(),
    };
    let streams = source.discover(&forms)?;
    let Some(found) = streams.iter().find(|stream| stream.name == "t") else {
        return Err(Error::internal("no stream t"));
    };
    let request = ReadRequest {
        forms,
        batch_bytes: 4096,
        max_record_bytes: 1 << 20,
        ..ReadRequest::of(found)
    };
    Ok(read(&mut source, &request)?.rows())
}

#[derive(Clone, Copy)]
struct Told {
    lie: Lie,
    /// Empty: all rows are there.
    code: &'static str,
}

fn always(of: &'static str, nth: usize, says: fn(&Asked<'_>) -> Says, code: &'static str) -> Told {
    Told {
        lie: Lie {
            of,
            nth,
            is_once: false,
            says,
        },
        code,
    }
}

fn tell(lies: &[Told]) {
    tell_to(lies, &[false, true]);
}

/// Tells each lie to reads in columns, in the native form, or both.
fn tell_to(lies: &[Told], forms: &[bool]) {
    let Some(server) = shared() else {
        return;
    };
    let database = server.database();
    let mut documents = Vec::new();
    for number in 0..ROWS {
        documents.extend(bson(&format!(
            r#"{{"_id": {number}, "text": "text {number}", "of": {{"n": {number}.5}}}}"#
        )));
    }
    insert_bytes(&database, "t", &documents);
    let before = memory_peak();
    let mut wrong = Vec::new();
    for native in forms.iter().copied() {
        let rows = speak(&database, server.port(), PATIENCE, native);
        assert_eq!(rows.unwrap(), ROWS);
        for (number, told) in lies.iter().enumerate() {
            let what = format!(
                "{number}: about {:?} {}, native {native}",
                told.lie.of, told.lie.nth
            );
            let limits: &[u32] = match told.code {
                "timeout" => &SILENCE,
                _ => &[PATIENCE],
            };
            let result = limits
                .iter()
                .find_map(|patience| {
                    let liar = Liar::in_front_of(server.port(), told.lie).unwrap();
                    let result = speak(&database, liar.port(), *patience, native);
                    (liar.lies_told() > 0).then_some(result)
                })
                .unwrap_or_else(|| panic!("{what}: not told"));
            let found = result.as_ref().err().map_or("", |error| &error.code);
            if found != told.code {
                wrong.push(format!("{what}: {result:?}, and not {:?}", told.code));
            }
            if let Ok(rows) = result {
                assert_eq!(rows, ROWS, "{what}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}

/// An answer with a cursor.
fn cursor<'a>(
    answer: &'a mut Builder,
    id: i64,
    name: &str,
    documents: &[&[u8]],
) -> &'a mut Builder {
    answer
        .int32("ok", 1)
        .open_document("cursor")
        .int64("id", id)
        .string("ns", "d.t")
        .open_array(name);
    for (at, document) in documents.iter().enumerate() {
        answer.document(&at.to_string(), Document::parse(document).unwrap());
    }
    answer.close().close()
}

/// The true answer, where the first document of its batch has this instead of its bytes.
fn first_document(asked: &Asked<'_>, change: fn(&mut Vec<u8>)) -> Says {
    let found = asked.true_document().get("cursor").unwrap();
    let Some(Value::Document(found)) = found else {
        panic!("no cursor: {found:?}");
    };
    let batch = ["firstBatch", "nextBatch"].map(|name| found.get(name).unwrap());
    let Some(Value::Array(batch)) = batch.into_iter().flatten().next() else {
        panic!("no batch");
    };
    let (_, first) = batch.elements().next().unwrap().unwrap();
    let Value::Document(first) = first else {
        panic!("{first:?}");
    };
    let mut changed = first.as_bytes().to_vec();
    change(&mut changed);
    Bytes(asked.swapped(first.as_bytes(), &changed))
}

/// Answers to the sample come before those to the read: two finds for the first, one for the second. Whole documents need
/// no sample.
#[test]
fn about_documents() {
    for command in ["find", "getMore"] {
        tell(&[
            always(
                command,
                1,
                |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1))),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1).int32("cursor", 1))),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| {
                    Bytes(
                        asked
                            .answer(|answer| answer.int32("ok", 1).open_document("cursor").close()),
                    )
                },
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.answer(|answer| answer.int32("ok", 0))),
                "mongo_0",
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.answer(|answer| answer.int32("ok", 0).int32("code", 43))),
                "mongo_43",
            ),
            // BSON that is not.
            always(
                command,
                1,
                |asked| first_document(asked, |bytes| bytes[0] += 1),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| first_document(asked, |bytes| bytes[..4].fill(0xff)),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| first_document(asked, |bytes| bytes[..4].fill(0)),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| first_document(asked, |bytes| *bytes.last_mut().unwrap() = 1),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.with_header(0, 17)),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.with_header(0, i32::MAX)),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Bytes(asked.with_header(0, i32::MIN)),
                VIOLATED,
            ),
            always(command, 1, |asked| Bytes(asked.with_header(2, 0)), VIOLATED),
            always(
                command,
                1,
                |asked| Bytes(asked.with_header(3, 2004)),
                VIOLATED,
            ),
            always(
                command,
                1,
                |asked| Close(asked.truth[..asked.truth.len() - 1].to_vec()),
                "connection_lost",
            ),
            always(
                command,
                1,
                |asked| Silence(asked.truth[..asked.truth.len() - 1].to_vec()),
                "timeout",
            ),
            always(command, 1, |_| Silence(Vec::new()), "timeout"),
            always(command, 1, |_| ForEver(vec![7]), VIOLATED),
            // Compressed with a length that is another.
            always(
                command,
                1,
                |asked| {
                    let head = [
                        &OP_MSG.to_le_bytes()[..],
                        &40_000_000_i32.to_le_bytes(),
                        &[0],
                    ]
                    .concat();
                    Bytes(message(
                        asked.number(),
                        OP_COMPRESSED,
                        &[&head, &asked.truth[16..]].concat(),
                    ))
                },
                VIOLATED,
            ),
        ]);
    }
    let empty =
        |asked: &Asked<'_>| Bytes(asked.answer(|answer| cursor(answer, 7, "nextBatch", &[])));
    tell(&[
        // A cursor that the server does not have.
        always("find", 1, empty, "mongo_43"),
        // A cursor that never has a document again.
        always("getMore", 1, empty, VIOLATED),
    ]);
}

/// A document with a good length and a bad element. Documents in their native form are not decoded: their bytes go to the
/// destination as they came, and its server checks them.
#[test]
fn about_types_and_texts() {
    const INVALID: &str = "mongo_invalid_bson";
    let kind = always(
        "getMore",
        1,
        |asked| first_document(asked, |bytes| bytes[4] = 0x66),
        INVALID,
    );
    let mut text = always(
        "getMore",
        1,
        |asked| {
            first_document(asked, |bytes| {
                let at = bytes.windows(4).position(|part| part == b"text").unwrap();
                bytes[at] = 0xff;
            })
        },
        INVALID,
    );
    tell_to(&[kind, text], &[false]);
    text.code = "";
    tell_to(&[kind, text], &[true]);
}

#[test]
fn about_the_catalog() {
    const LIST: &str = "listCollections";
    tell(&[
        always(
            LIST,
            1,
            |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1))),
            VIOLATED,
        ),
        always(
            LIST,
            1,
            |asked| Bytes(asked.answer(|answer| cursor(answer, 0, "firstBatch", &[]))),
            "mongo_no_collections",
        ),
        always(
            LIST,
            1,
            |asked| {
                Bytes(asked.answer(|answer| {
                    let answer = answer.int32("ok", 1).open_document("cursor").int64("id", 0);
                    answer
                        .string("ns", "nothing")
                        .open_array("firstBatch")
                        .close()
                        .close()
                }))
            },
            VIOLATED,
        ),
        // A list without an end, of collections without a name.
        always(
            "",
            3,
            |asked| {
                let documents = vec![&[5, 0, 0, 0, 0][..]; 1000];
                Bytes(asked.answer(|answer| cursor(answer, 7, "nextBatch", &documents)))
            },
            "mongo_too_many_collections",
        ),
        always(
            "hello",
            1,
            |asked| Bytes(asked.answer(|answer| answer.int32("ok", 1))),
            "server_too_old",
        ),
        always("hello", 1, |_| ForEver(vec![0]), VIOLATED),
        always(
            "hello",
            1,
            |asked| {
                Bytes(asked.answer(|answer| {
                    let answer = answer.int32("ok", 1).boolean("isWritablePrimary", true);
                    answer
                        .int32("maxWireVersion", 21)
                        .int32("maxBsonObjectSize", -1)
                }))
            },
            VIOLATED,
        ),
    ]);
}
