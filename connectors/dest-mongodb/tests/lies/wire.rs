//! Lies about the messages themselves: their length, kind, sections and compression, the greeting and the login.

use Says::{Bytes, Close, ForEver, Silence};
use rapidbyte_mongo_client::bson::{Builder, Value};
use rapidbyte_sdk::prelude::Error;
use rapidbyte_testkit::mongodb::liar::{Asked, Liar, Lie, OP_COMPRESSED, OP_MSG, Says, message};
use rapidbyte_testkit::mongodb::shared;

use crate::told::{APPEND, Speech, VIOLATED, always, bare, limits, speak, tell};

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
