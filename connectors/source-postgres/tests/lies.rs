//! A server that lies about its catalog and in the middle of a COPY: every lie ends in an error with a
//! code, in time; or the rows are the right ones.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "all/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use Says::{Before, Changed, Close, ForEver, Instead, Silence};
use common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::liar::{Liar, Lie, Says, memory_peak, message, says_len};
use rapidbyte_testkit::postgres::shared;
use source_postgres::Postgres;

/// `read_timeout` is one second; two connections may be asked what the server does, each as long.
const IN_TIME: Duration = Duration::from_secs(30);
/// The longest message, a record and a batch; and what a flood leaves in buffers.
const MEMORY: u64 = 320 << 20;
const ROWS: usize = 300;

/// All that a run asks of a source.
fn speak(url: &str) -> Result<usize> {
    let config = format!(r#"{{"url": "{url}?connect_timeout=2", "read_timeout": 1}}"#);
    let mut source: Postgres = rapidbyte_sdk::source::open(&config)?;
    source.discover(&["public.*".into()])?;
    let token = source.snapshot(&[whole("public.t")])?;
    let mut wanted = request("public.t");
    wanted.snapshot = token;
    wanted.max_record_bytes = 1 << 20;
    let mut reader = source.read(&wanted)?;
    let mut rows = 0;
    loop {
        match reader.next(Duration::from_millis(100))? {
            Event::Batch(batch) => {
                // Nobody but the table made them up.
                let ids = batch
                    .column(0)
                    .as_any()
                    .downcast_ref::<Int32Array>()
                    .unwrap();
                assert!(ids.values().iter().all(|id| (1..=ROWS as i32).contains(id)));
                rows += batch.num_rows();
            }
            Event::End => break,
            Event::Idle | Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) => {}
        }
    }
    Ok(rows)
}

/// Tells each lie at the message of that number; no code is all the rows in spite of it.
fn tell(lies: Vec<(&'static str, u8, usize, Says, &str)>) {
    let database = shared().database();
    database
        .client()
        .batch_execute(&format!(
            "CREATE TABLE t (id int4 NOT NULL, t text);
             INSERT INTO t SELECT i, 'text ' || i FROM generate_series(1, {ROWS}) i"
        ))
        .unwrap();
    assert_eq!(speak(&database.url()).unwrap(), ROWS);
    let before = memory_peak();
    let mut wrong = Vec::new();
    let count = lies.len();
    for (number, (after, at, nth, says, code)) in lies.into_iter().enumerate() {
        let text = says.shown();
        let what = format!(
            "{number}: after {after:?} at {nth} {:?}: {text}",
            char::from(at)
        );
        let lie = Lie {
            after,
            at,
            nth,
            says,
            is_once: false,
        };
        let liar = Liar::in_front_of(shared().port(), lie).unwrap();
        let begun = Instant::now();
        let result = speak(&database.url_at(liar.port()));
        assert!(
            begun.elapsed() < IN_TIME,
            "{what}: after {:?}",
            begun.elapsed()
        );
        assert!(liar.lies_told() > 0, "{what}: not told, {result:?}");
        let found = match &result {
            Ok(rows) => {
                assert_eq!(*rows, ROWS, "{what}");
                ""
            }
            Err(error) => error.code.as_str(),
        };
        if found != code {
            wrong.push(format!("{what}: {result:?}, and not {code:?}"));
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}

const VIOLATED: &str = "protocol_violation";
const MALFORMED: &str = "malformed_copy";

fn data(body: &[u8]) -> Vec<u8> {
    message(b'd', body)
}

/// A row with one text.
fn row(id: i32, text: &[u8]) -> Vec<u8> {
    let len = text.len() as u32;
    data(
        &[
            b"\0\x02\0\0\0\x04",
            &id.to_be_bytes()[..],
            &len.to_be_bytes(),
            text,
        ]
        .concat(),
    )
}

/// The first message has the header, and the first row behind it or not.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

#[test]
fn in_a_copy() {
    let at = "TO STDOUT";
    let header = |flags: u32, extension: u32| {
        let words = [flags.to_be_bytes(), extension.to_be_bytes()].concat();
        data(&[&HEADER[..11], &words].concat())
    };
    let done = || [data(b"\xff\xff"), message(b'c', b"")].concat();
    let ends = |rows: &str| {
        [
            done(),
            message(b'C', format!("COPY {rows}\0").as_bytes()),
            message(b'Z', b"T"),
        ]
        .concat()
    };
    let lies: Vec<(u8, usize, Says, &str)> = vec![
        (b'H', 1, Instead(Vec::new()), "internal"),
        (b'H', 1, Instead(row(1, b"x")), "internal"),
        (b'H', 1, Instead(message(b'H', b"")), VIOLATED),
        (b'H', 1, Instead(message(b'H', b"\x01\x7f\xff\0\0")), ""),
        (b'H', 1, Instead(message(b'G', b"\x01\0\0")), "internal"),
        (b'H', 1, Before(message(b'Z', b"T")), "internal"),
        (b'H', 1, Silence(Vec::new()), "read_stalled"),
        (b'H', 1, ForEver(message(b'N', b"M")), "read_stalled"),
        (b'd', 1, Instead(data(b"PGCOPX\n\xff\r\n\0")), MALFORMED),
        (b'd', 1, Instead(Vec::new()), MALFORMED),
        (b'd', 1, Instead(header(1 << 16, 0)), MALFORMED),
        (b'd', 1, Instead(header(1 << 31, 0)), MALFORMED),
        (b'd', 1, Instead(header(0, u32::MAX)), MALFORMED),
        (b'd', 1, Before(header(0, 0)), MALFORMED),
        (
            b'd',
            2,
            Instead(data(b"\0\x01\0\0\0\x04\0\0\0\x01")),
            MALFORMED,
        ),
        (
            b'd',
            2,
            Instead(data(b"\0\x03\0\0\0\x04\0\0\0\x01")),
            MALFORMED,
        ),
        (b'd', 2, Instead(data(b"\x7f\xff")), MALFORMED),
        (b'd', 2, Instead(data(b"\xff\xfe")), MALFORMED),
        (b'd', 2, Instead(data(b"\xff\xff")), MALFORMED),
        (b'd', 2, Instead(data(b"\0\x02\xff\xff\xff\xfe")), MALFORMED),
        (b'd', 2, Instead(data(b"\0\x02\x80\0\0\0")), MALFORMED),
        (
            b'd',
            2,
            Instead(data(b"\0\x02\x7f\xff\xff\xff")),
            "record_too_large",
        ),
        (
            b'd',
            2,
            Instead(data(b"\0\x02\0\0\0\x03\0\0\x01\0\0\0\x01x")),
            "malformed_value",
        ),
        (
            b'd',
            2,
            Instead(data(b"\0\x02\0\0\0\x05\0\0\0\0\x01\0\0\0\x01x")),
            "malformed_value",
        ),
        (
            b'd',
            2,
            Instead(data(b"\0\x02\xff\xff\xff\xff\0\0\0\x01x")),
            "value_does_not_fit",
        ),
        (b'd', 2, Instead(row(2, b"\xff\xfe")), "invalid_text"),
        (
            b'd',
            2,
            Instead(row(2, &vec![b'x'; 2 << 20])),
            "record_too_large",
        ),
        // Torn and joined it is the same.
        (
            b'd',
            2,
            Changed(|it| {
                it[5..]
                    .chunks(1)
                    .flat_map(|piece| message(b'd', piece))
                    .collect()
            }),
            "",
        ),
        (b'd', 2, Before(message(b'S', b"a\0b\0")), ""),
        (b'd', 2, Before(message(b'N', b"C00000\0Mlook\0\0")), ""),
        (b'd', 2, Before(message(b'A', b"\0\0\0\x01a\0b\0")), ""),
        // A row more or less.
        (b'd', 2, Instead(Vec::new()), "rows_lost"),
        (b'd', 2, Before(row(7, b"made up")), "rows_lost"),
        (
            b'd',
            2,
            Instead(ends("99999999999999999999999")),
            "rows_lost",
        ),
        (
            b'c',
            1,
            Changed(|_| [message(b'c', b""), message(b'C', b"COPY 299\0")].concat()),
            "",
        ),
        (b'C', 1, Instead(message(b'C', b"COPY 301\0")), "rows_lost"),
        (b'C', 1, Instead(message(b'C', b"SELECT\0")), "rows_lost"),
        (
            b'C',
            1,
            Instead(message(b'C', b"COPY 9999999999999999999999\0")),
            "rows_lost",
        ),
        (b'C', 1, Instead(Vec::new()), "rows_lost"),
        // Lengths of messages.
        (b'd', 2, Instead(says_len(b'd', 3, b"")), MALFORMED),
        (b'd', 2, Instead(says_len(b'd', u32::MAX, b"")), MALFORMED),
        (b'd', 2, Instead(says_len(b'd', 4, b"")), MALFORMED),
        (b'd', 2, ForEver(says_len(b'd', 4, b"")), MALFORMED),
        (
            b'd',
            2,
            Silence(says_len(b'd', 1 << 30, b"\0\x02")),
            "read_stalled",
        ),
        (
            b'd',
            2,
            Instead(says_len(b'E', 1 << 30, b"C")),
            "message_too_large",
        ),
        // Their order.
        (b'd', 2, Before(message(b'T', b"\0\0")), VIOLATED),
        (b'd', 2, Before(message(b'Z', b"I")), VIOLATED),
        (b'd', 2, Before(message(b'H', b"\x01\0\0")), VIOLATED),
        (b'd', 2, Before(message(b'?', b"")), VIOLATED),
        (b'd', 2, Instead(message(b'E', b"C\0M\0\0")), "pg_XX000"),
        (
            b'd',
            2,
            Close(message(b'E', b"C57P01\0Mgone\0\0")),
            "pg_57P01",
        ),
        (b'd', 2, Close(Vec::new()), "connection_lost"),
        (b'd', 2, Close(vec![b'd', 0, 0]), "connection_lost"),
        (b'd', 2, Silence(Vec::new()), "read_stalled"),
        (b'd', 2, ForEver(message(b'N', b"M")), "read_stalled"),
        (b'd', 2, ForEver(message(b'S', b"a\0b\0")), "read_stalled"),
        (b'c', 1, Instead(Vec::new()), VIOLATED),
        (b'c', 1, Before(data(b"\xff\xff")), MALFORMED),
        (b'c', 1, Before(row(7, b"late")), MALFORMED),
        (b'c', 1, ForEver(message(b'c', b"")), VIOLATED),
        (b'Z', 1, ForEver(data(b"x")), VIOLATED),
        (b'Z', 1, Silence(Vec::new()), "timeout"),
    ];
    tell(
        lies.into_iter()
            .map(|(tag, nth, says, code)| (at, tag, nth, says, code))
            .collect(),
    );
}

/// The value of the only column of an answer, in another text.
fn value(text: &[u8]) -> Vec<u8> {
    let len = (text.len() as u32).to_be_bytes();
    message(b'D', &[b"\0\x01", &len[..], text].concat())
}

#[test]
fn in_the_catalog() {
    let (described, exported) = ("json_build_object", "pg_export_snapshot");
    // In that send: the relation, its columns, what the read comes to, and the snapshot.
    let last = 4;
    let old = message(b'S', b"server_version\x009.1\0");
    let deep = format!("{{\"columns\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    tell(vec![
        ("", b'K', 1, Before(old), "server_too_old"),
        (described, b'D', 1, Instead(value(b"{")), "internal"),
        (described, b'D', 1, Instead(value(b"null")), "internal"),
        (described, b'D', 1, Instead(value(b"\xff")), "not_utf8"),
        (
            described,
            b'D',
            1,
            Instead(value(deep.as_bytes())),
            "internal",
        ),
        (
            described,
            b'D',
            1,
            Instead(message(b'D', b"\0\x01\xff\xff\xff\xff")),
            "internal",
        ),
        (
            described,
            b'D',
            1,
            Changed(|it| it[..it.len() - 9].to_vec()),
            "message_too_large",
        ),
        (described, b'D', 1, Instead(Vec::new()), ""),
        (
            described,
            b'D',
            1,
            ForEver(value(&[b'x'; 1000])),
            "result_too_large",
        ),
        (
            exported,
            b'D',
            last,
            Instead(value(b"'; DROP TABLE t; --")),
            "",
        ),
        (
            exported,
            b'D',
            last,
            Instead(message(b'D', b"\0\x01\xff\xff\xff\xff")),
            "unexpected_answer",
        ),
        (
            exported,
            b'D',
            last,
            Instead(Vec::new()),
            "unexpected_answer",
        ),
        ("LOCK TABLE", b'C', 1, Silence(Vec::new()), "read_stalled"),
        ("LOCK TABLE", b'C', 1, Close(Vec::new()), "connection_lost"),
    ]);
}
