//! A server that lies while rows are written: every lie ends in an error with a code, in time; or the
//! rows are there, once, because the destination asked again.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::time::{Duration, Instant};

use Says::{Before, Close, ForEver, Instead, Silence};
use common::*;
use rapidbyte_sdk::prelude::{Result, WriteMode};
use rapidbyte_testkit::liar::{Liar, Lie, Says, memory_peak, message, says_len};
use rapidbyte_testkit::postgres::shared;
use serde_json::json;

/// `write_timeout` and `commit_timeout` are one second, and a commit asks again after its own.
const IN_TIME: Duration = Duration::from_secs(30);
const MEMORY: u64 = 320 << 20;

/// All that a run asks of a destination.
fn speak(url: &str, load_method: &str) -> Result<()> {
    let mut to: Session = rapidbyte_sdk::destination::open(
        &json!({
            "url": format!("{url}?connect_timeout=2"),
            "schema": "raw",
            "load_method": load_method,
            "insert_rows": 2,
            "write_timeout": 1,
            "commit_timeout": 1,
        })
        .to_string(),
    )?;
    let target = target("t", &batch(&[1]).schema(), WriteMode::Append);
    to.plan(&target)?;
    let mut load = fence(&mut to, &target, run("r"))?;
    load.open_writer(None)?;
    for first in 0..20 {
        let ids: Vec<i64> = (first * 5..first * 5 + 5).collect();
        load.write(&batch(&ids))?;
    }
    let part = load.flush()?;
    let receipt = load.commit(whole(&target.stream, vec![part], load.progress().seq))?;
    assert_eq!(receipt.rows, 100);
    Ok(())
}

struct Told {
    after: &'static str,
    at: u8,
    says: Says,
    /// Empty: it succeeds.
    code: &'static str,
    is_once: bool,
}

fn always(after: &'static str, at: u8, says: Says, code: &'static str) -> Told {
    Told {
        after,
        at,
        says,
        code,
        is_once: false,
    }
}

fn once(after: &'static str, at: u8, says: Says, code: &'static str) -> Told {
    Told {
        is_once: true,
        ..always(after, at, says, code)
    }
}

/// Tells each lie to a run of its own. Afterwards the table holds all rows or none: all after a success,
/// none after an error, and either after `commit_unknown`.
fn tell(load_method: &str, lies: Vec<Told>) {
    let before = memory_peak();
    let mut wrong = Vec::new();
    let count = lies.len();
    for (number, told) in lies.into_iter().enumerate() {
        let database = database();
        let mut client = database.client();
        client
            .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text)")
            .unwrap();
        let text = told.says.shown();
        let what = format!(
            "{number}: after {:?} at {:?}: {text}",
            told.after,
            char::from(told.at)
        );
        let lie = Lie {
            after: told.after,
            at: told.at,
            // The first one ends the statement in front of the COPY.
            nth: if (told.after, told.at) == (COPY, b'C') {
                2
            } else {
                1
            },
            says: told.says,
            is_once: told.is_once,
        };
        let liar = Liar::in_front_of(shared().port(), lie).unwrap();
        let begun = Instant::now();
        let result = speak(&database.url_at(liar.port()), load_method);
        assert!(
            begun.elapsed() < IN_TIME,
            "{what}: after {:?}",
            begun.elapsed()
        );
        assert!(liar.lies_told() > 0, "{what}: not told, {result:?}");
        let found = result
            .as_ref()
            .map_or_else(|error| error.code.as_str(), |()| "");
        if found != told.code {
            wrong.push(format!("{what}: {result:?}, and not {:?}", told.code));
        }
        let rows = one(&mut client, "SELECT count(*) FROM raw.t");
        let is_right = match found {
            "" => rows == "100",
            // Nobody could say.
            "commit_unknown" => rows == "0" || rows == "100",
            _ => rows == "0",
        };
        assert!(is_right, "{what}: {rows} rows, {result:?}");
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}

const VIOLATED: &str = "protocol_violation";
/// Not to be read, so that the test's own output keeps no flood of it.
const NOTICE: &[u8] = b"M";

/// The words of the statement that begins a COPY.
const COPY: &str = "FROM STDIN";

#[test]
fn while_rows_are_copied() {
    let copy = COPY;
    let done = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
    tell(
        "copy",
        vec![
            always(copy, b'G', Instead(Vec::new()), "write_stalled"),
            always(copy, b'G', Instead(message(b'G', b"")), VIOLATED),
            always(copy, b'G', Instead(message(b'H', b"\x01\0\0")), "internal"),
            always(copy, b'G', Instead(done("COPY 0")), "internal"),
            always(copy, b'G', Before(message(b'Z', b"T")), "internal"),
            always(copy, b'G', Silence(Vec::new()), "write_stalled"),
            always(copy, b'G', Close(Vec::new()), "connection_lost"),
            always(copy, b'G', ForEver(message(b'N', NOTICE)), "write_stalled"),
            always(
                copy,
                b'G',
                Instead([message(b'G', b"\x01\0\0"), message(b'Z', b"T")].concat()),
                VIOLATED,
            ),
            always(
                copy,
                b'G',
                Instead([message(b'G', b"\x01\0\0"), done("COPY 100")].concat()),
                VIOLATED,
            ),
            always(
                copy,
                b'G',
                Instead([message(b'G', b"\x01\0\0"), message(b'E', b"C\0\0")].concat()),
                "pg_XX000",
            ),
            always(
                copy,
                b'G',
                Instead([message(b'G', b"\x01\0\0"), says_len(b'E', 1 << 30, b"C")].concat()),
                "message_too_large",
            ),
            always(copy, b'C', Instead(done("COPY 1")), "rows_not_kept"),
            always(copy, b'C', Instead(done("COPY 101")), "rows_not_kept"),
            always(
                copy,
                b'C',
                Instead(done("COPY 18446744073709551615")),
                "rows_not_kept",
            ),
            always(copy, b'C', Instead(done("COPY")), "rows_not_kept"),
            always(copy, b'C', Instead(Vec::new()), "rows_not_kept"),
            always(copy, b'C', ForEver(done("COPY 100")), VIOLATED),
            always(copy, b'C', Silence(Vec::new()), "write_stalled"),
            always(
                copy,
                b'C',
                Instead(message(b'E', b"C23505\0Mtwice\0\0")),
                "pg_23505",
            ),
            always(copy, b'Z', Instead(message(b'Z', b"X")), VIOLATED),
            always(copy, b'Z', ForEver(message(b'N', NOTICE)), "write_stalled"),
        ],
    );
}

#[test]
fn while_rows_are_inserted() {
    let insert = "[]) AS u";
    let done = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
    tell(
        "insert",
        vec![
            always(insert, b't', Instead(message(b't', b"\0\0")), "internal"),
            always(insert, b't', Instead(message(b't', b"\x7f\xff")), VIOLATED),
            always(insert, b'2', Instead(message(b'?', b"")), VIOLATED),
            always(
                insert,
                b'2',
                Instead([message(b'2', b""), done("INSERT 0 1")].concat()),
                "rows_not_kept",
            ),
            always(
                insert,
                b'2',
                Instead([message(b'2', b""), done("INSERT 0 18446744073709551615")].concat()),
                "rows_not_kept",
            ),
            always(insert, b'2', ForEver(done("INSERT 0 2")), VIOLATED),
            always(insert, b'C', Silence(Vec::new()), "write_stalled"),
            always(
                insert,
                b'C',
                ForEver(message(b'N', NOTICE)),
                "write_stalled",
            ),
        ],
    );
}

#[test]
fn about_a_commit() {
    let (commit, fence) = ("; COMMIT", "epoch + 1");
    let rolled_back =
        |status: &[u8]| [message(b'C', b"ROLLBACK\0"), message(b'Z', status)].concat();
    tell(
        "copy",
        vec![
            // The truth is asked for by another connection.
            once("seq + 1", b'Z', Instead(Vec::new()), ""),
            once("seq + 1", b'Z', Instead(message(b'Z', b"T")), ""),
            once("seq + 1", b'Z', Instead(message(b'Z', b"E")), ""),
            once("seq + 1", b'Z', Close(Vec::new()), ""),
            once("seq + 1", b'Z', Instead(rolled_back(b"I")), ""),
            once("seq + 1", b'Z', ForEver(message(b'N', NOTICE)), ""),
            once("seq + 1", b'C', Close(Vec::new()), ""),
            once("seq + 1", b'C', Instead(rolled_back(b"I")), ""),
            always(commit, b'Z', Close(Vec::new()), "connection_unusable"),
            always("seq + 1", b'C', ForEver(message(b'C', b"ROLLBACK\0")), ""),
            always(fence, b'D', Instead(message(b'D', b"\0\0")), VIOLATED),
            always(fence, b'D', Instead(Vec::new()), "internal"),
        ],
    );
}
