//! A server that lies somewhere between its first word and a commit: every lie ends in an error with a
//! code, in time, and costs no memory.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::{Duration, Instant};

use Says::{Before, Changed, Close, Dialogue, ForEver, Instead, Silence};
use rapidbyte_pg_client::{Client, Format, Param, Settings};
use rapidbyte_sdk::Result;
use rapidbyte_testkit::liar::{Liar, Lie, Says, memory_peak, message, says_len};
use rapidbyte_testkit::postgres::shared;

/// The client's timeout, and the time that a test may take beyond it on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(1);
const IN_TIME: Duration = Duration::from_secs(60);
/// The largest message is 64 MiB; twice that and what a flood leaves in buffers.
const MEMORY: u64 = 256 << 20;

/// The calls that connectors make of a client, in little.
fn speak(url: &str) -> Result<()> {
    let mut client = Client::connect(&Settings::from_url(url)?)?;
    client.set_reply_timeout(PATIENCE);
    client.execute("SET DateStyle = 'ISO'")?;
    let answers = client.simple_query("SELECT 'one' AS one")?;
    let _ = answers
        .first()
        .map(|rows| rows.single().map(str::to_owned))
        .transpose()?;
    let param = Param::text(Some("7"));
    client.query("SELECT $1::int4 AS two", &[param], Format::Binary)?;
    client.execute("BEGIN; CREATE TEMPORARY TABLE three (i int4)")?;
    let statement = client.prepare("INSERT INTO three VALUES ($1)", &[])?;
    client.execute_prepared(&statement, &[param])?;
    let mut pipeline = client.pipeline()?;
    for _ in 0..3 {
        pipeline.execute(&statement, &[param])?;
    }
    pipeline.finish()?;
    client.send("SELECT 4; COMMIT")?;
    client.receive_commit()?;
    client.execute("SELECT 5")?;
    client.close();
    Ok(())
}

/// Tells each lie and compares the error's code; no code is the truth in spite of it.
fn tell(lies: Vec<(&'static str, u8, Says, &str)>) {
    let server = shared();
    let before = memory_peak();
    let mut wrong = Vec::new();
    let count = lies.len();
    for (number, (after, at, says, code)) in lies.into_iter().enumerate() {
        let what = format!(
            "{number}: after {after:?} at {:?}: {}",
            char::from(at),
            says.shown()
        );
        let lie = Lie {
            after,
            at,
            nth: 1,
            says,
            is_once: false,
        };
        let liar = Liar::in_front_of(server.port(), lie).unwrap();
        let url = format!(
            "{}?connect_timeout=2",
            server.url_at(liar.port(), "postgres")
        );
        let begun = Instant::now();
        let result = speak(&url);
        assert!(
            begun.elapsed() < IN_TIME,
            "{what}: after {:?}",
            begun.elapsed()
        );
        assert!(liar.lies_told() > 0, "{what}: not told, {result:?}");
        let found = result
            .as_ref()
            .map_or_else(|error| error.code.as_str(), |()| "");
        if found != code {
            wrong.push(format!("{what}: {result:?}, and not {code:?}"));
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY, "{grown} bytes more");
}

fn auth(code: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], rest].concat())
}

fn sasl() -> Vec<u8> {
    auth(10, b"SCRAM-SHA-256\0\0")
}

fn scram(first: &str) -> Vec<u8> {
    auth(11, first.as_bytes())
}

/// A notice that is not logged: natively a flood of them would be kept by the test's own output.
const UNREADABLE: &[u8] = b"M";
const VIOLATED: &str = "protocol_violation";

#[test]
fn before_it_has_let_us_in() {
    let notice = message(b'N', UNREADABLE);
    let good = "r={nonce}x,s=QSXCR+Q6sek8bf92,i=4096";
    let mut lies: Vec<(Says, &str)> = vec![
        (Instead(says_len(b'R', u32::MAX, &[0; 4])), VIOLATED),
        (Instead(says_len(b'R', 3, &[])), VIOLATED),
        (Instead(says_len(b'R', 0, &[])), VIOLATED),
        (
            Instead(says_len(b'R', 0x7fff_ffff, &[0; 4])),
            "message_too_large",
        ),
        (
            Instead(says_len(b'E', 1 << 30, b"SFATAL\0")),
            "message_too_large",
        ),
        (Instead(message(b'?', b"")), VIOLATED),
        (Instead(message(0, b"")), VIOLATED),
        (Instead(message(b'R', b"")), VIOLATED),
        (
            Instead(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            "message_too_large",
        ),
        (Instead(auth(99, b"")), VIOLATED),
        (Instead(auth(7, b"")), "auth_unsupported"),
        (Instead(auth(9, b"")), "auth_unsupported"),
        (Silence(auth(5, b"ab")), VIOLATED),
        (Instead(message(b'Z', b"I")), VIOLATED),
        (Instead(message(b'D', b"\0\0")), VIOLATED),
        (Instead(message(b'C', b"COMMIT\0")), VIOLATED),
        (Silence(Vec::new()), "timeout"),
        (Silence(vec![b'R', 0, 0]), "timeout"),
        (Close(Vec::new()), "connection_lost"),
        (Close(vec![b'R', 0, 0]), "connection_lost"),
        (ForEver(notice), "timeout"),
        (ForEver(auth(3, b"")), VIOLATED),
        (Silence(auth(10, b"SCRAM-SHA-256")), VIOLATED),
        (Silence(auth(10, b"\0")), "auth_unsupported"),
        (Silence(auth(10, b"PLAIN\0\0")), "auth_unsupported"),
        (Silence(auth(10, b"\xff\0\0")), VIOLATED),
        (Silence(scram(good)), VIOLATED),
        (Silence(auth(12, b"v=AAAA")), VIOLATED),
    ];
    for (answers, code) in [
        (vec![scram("r={nonce}x,s=!!!!,i=4096")], "server_not_proven"),
        (
            vec![scram("r=mine,s=QSXCR+Q6sek8bf92,i=4096")],
            "server_not_proven",
        ),
        (
            vec![scram("r={nonce}x,s=QSXCR+Q6sek8bf92,i=4294967295")],
            "scram_iterations",
        ),
        (
            vec![scram("r={nonce}x,s=QSXCR+Q6sek8bf92,i=99999999999")],
            "scram_iterations",
        ),
        (
            vec![scram("r={nonce}x,s=QSXCR+Q6sek8bf92,i=-1")],
            "server_not_proven",
        ),
        (vec![scram("r={nonce}x")], "server_not_proven"),
        (vec![auth(11, b"\xff\xff")], "server_not_proven"),
        (vec![scram(good), auth(12, b"v=AAAA")], "server_not_proven"),
        (vec![scram(good), auth(12, b"e=other-error")], "pg_28P01"),
        (vec![scram(good), scram(good)], VIOLATED),
        // It lets us in without having proven that it knows the password.
        (vec![auth(0, b"")], VIOLATED),
        (vec![scram(good), auth(0, b"")], VIOLATED),
        (vec![sasl(), sasl()], VIOLATED),
    ] {
        let lines = [vec![sasl()], answers].concat();
        lies.push((Dialogue(lines), code));
    }
    tell(
        lies.into_iter()
            .map(|(says, code)| ("", b'R', says, code))
            .collect(),
    );
}

#[test]
fn when_it_introduces_itself() {
    let parameter =
        |name: &str, value: &[u8]| message(b'S', &[name.as_bytes(), b"\0", value, b"\0"].concat());
    let many: Vec<u8> = (0..20_000)
        .flat_map(|number| parameter(&format!("parameter_{number}"), &[b'x'; 2000]))
        .collect();
    tell(vec![
        ("", b'S', Before(many), ""),
        ("", b'S', ForEver(parameter("a", b"b")), "timeout"),
        ("", b'S', Instead(message(b'S', b"a\0")), VIOLATED),
        ("", b'S', Instead(message(b'S', b"a")), VIOLATED),
        ("", b'S', Instead(parameter("a", b"\xff")), VIOLATED),
        (
            "",
            b'S',
            Instead(says_len(b'S', 60 << 20, b"a\0")),
            "timeout",
        ),
        (
            "",
            b'S',
            Instead(says_len(b'S', 65 << 20, b"a\0")),
            "message_too_large",
        ),
        (
            "",
            b'S',
            Before(parameter("server_version", b"99999999999999999999.-1")),
            "",
        ),
        ("", b'K', Instead(message(b'K', b"\0\0")), VIOLATED),
        ("", b'K', Instead(message(b'T', b"\0\0")), VIOLATED),
        ("", b'Z', Instead(message(b'Z', b"X")), VIOLATED),
        ("", b'Z', Instead(message(b'Z', b"")), VIOLATED),
        ("", b'Z', Close(message(b'E', b"\0")), "pg_XX000"),
        ("", b'Z', Silence(Vec::new()), "timeout"),
        // More than once: what follows would be taken for the answer to the next question.
        ("", b'Z', Before(message(b'Z', b"I")), VIOLATED),
        ("", b'Z', ForEver(message(b'Z', b"I")), VIOLATED),
    ]);
}

#[test]
fn in_an_answer() {
    let one = "SELECT 'one' AS one";
    let described = message(
        b'T',
        b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
    );
    let done = message(b'C', b"SELECT 1\0");
    let value = message(b'D', b"\0\x01\0\0\0\x01x");
    let long = [&b"C23505\0M"[..], &[b'x'; 60_000], b"\0\0"].concat();
    let pairs = [described.clone(), done.clone()].concat();
    let copied = [message(b'H', b"\0\0\0"), message(b'd', b"x").repeat(100)].concat();
    let lies: Vec<(u8, Says, &str)> = vec![
        (b'T', Instead(message(b'T', b"\x7f\xffa\0")), VIOLATED),
        (b'T', Instead(message(b'T', b"\xff\xff")), VIOLATED),
        (b'T', Instead(message(b'T', b"")), VIOLATED),
        (
            b'T',
            Changed(|it| {
                it.iter()
                    .map(|b| if *b == b'o' { 0xff } else { *b })
                    .collect()
            }),
            VIOLATED,
        ),
        (b'T', Instead(Vec::new()), VIOLATED),
        (b'T', Before(message(b'Z', b"I")), VIOLATED),
        (b'T', Instead(message(b'G', b"\0\0\0")), "internal"),
        (b'T', Instead(message(b'W', b"\0\0\0")), VIOLATED),
        (b'T', ForEver(copied), "internal"),
        (b'T', ForEver(pairs), "result_too_large"),
        (b'T', ForEver(described), "result_too_large"),
        (
            b'D',
            Instead(message(b'D', b"\0\x02\0\0\0\x01x\0\0\0\x01y")),
            VIOLATED,
        ),
        (b'D', Instead(message(b'D', b"\0\0")), VIOLATED),
        (b'D', Instead(message(b'D', b"\xff\xff")), VIOLATED),
        (
            b'D',
            Instead(message(b'D', b"\0\x01\x7f\xff\xff\xffx")),
            VIOLATED,
        ),
        (
            b'D',
            Instead(message(b'D', b"\0\x01\xff\xff\xff\xfex")),
            VIOLATED,
        ),
        (
            b'D',
            Instead(message(b'D', b"\0\x01\0\0\0\x01\xff")),
            "not_utf8",
        ),
        (
            b'D',
            Instead(message(b'D', b"\0\x01\xff\xff\xff\xff")),
            "unexpected_answer",
        ),
        (
            b'D',
            Instead(says_len(b'D', 1 << 30, b"\0\x01")),
            "message_too_large",
        ),
        (
            b'D',
            Silence(says_len(b'D', 60 << 20, b"\0\x01")),
            "timeout",
        ),
        (b'D', ForEver(value), "result_too_large"),
        (b'D', Instead(Vec::new()), "unexpected_answer"),
        (b'C', Instead(message(b'C', b"SELECT 1")), VIOLATED),
        (b'C', Instead(message(b'C', b"\xff\0")), VIOLATED),
        (
            b'C',
            Instead(message(b'C', b"SELECT 99999999999999999999999\0")),
            "",
        ),
        (b'C', ForEver(done), "result_too_large"),
        (b'C', Close(Vec::new()), "connection_lost"),
        (b'C', Instead(message(b'E', b"\0")), "pg_XX000"),
        (
            b'C',
            Instead(message(b'E', b"C\x0b\x1b[2J\0M\x1b[2J\0\0")),
            "pg_XX000",
        ),
        (
            b'C',
            Instead(message(b'E', b"C23505\0M\xff\0\0")),
            "pg_23505",
        ),
        (b'C', Instead(message(b'E', &long)), "pg_23505"),
        (b'C', Instead(message(b'E', b"C23505")), VIOLATED),
        (b'C', ForEver(message(b'E', b"C23505\0Mno\0\0")), "pg_23505"),
        (b'C', ForEver(message(b'N', UNREADABLE)), "timeout"),
        (b'C', ForEver(message(b'A', b"\0\0\0\x01a\0b\0")), "timeout"),
        (b'Z', Silence(Vec::new()), "timeout"),
        (b'Z', Before(message(b'Z', b"I")), VIOLATED),
        (b'Z', Instead(message(b'Z', b"X")), VIOLATED),
    ];
    tell(
        lies.into_iter()
            .map(|(at, says, code)| (one, at, says, code))
            .collect(),
    );
}

#[test]
fn about_statements_and_commits() {
    let (two, three, commit) = ("AS two", "INSERT INTO three", "SELECT 4; COMMIT");
    let inserted = message(b'C', b"INSERT 0 9223372036854775807\0");
    tell(vec![
        (two, b'1', Instead(Vec::new()), ""),
        (two, b'T', ForEver(message(b'n', b"")), VIOLATED),
        (
            three,
            b't',
            Instead(message(b't', b"\x7f\xff\0\0")),
            VIOLATED,
        ),
        (three, b't', Instead(message(b't', b"\0\0")), "internal"),
        (three, b't', Instead(message(b't', b"")), VIOLATED),
        (three, b'C', Before(inserted.repeat(3)), ""),
        (three, b'C', ForEver(inserted), VIOLATED),
        (three, b'Z', Before(message(b'Z', b"T")), VIOLATED),
        (commit, b'Z', Instead(message(b'Z', b"T")), "not_committed"),
        (commit, b'Z', Instead(message(b'Z', b"E")), "not_committed"),
        (commit, b'Z', Silence(Vec::new()), "timeout"),
        (commit, b'Z', Close(Vec::new()), "connection_lost"),
        (
            commit,
            b'T',
            ForEver(message(b'C', b"ROLLBACK\0")),
            VIOLATED,
        ),
        (
            commit,
            b'T',
            Instead([message(b'C', b"ROLLBACK\0"), message(b'Z', b"I")].concat()),
            "not_committed",
        ),
        (
            commit,
            b'T',
            Instead([message(b'I', b""), message(b'Z', b"I")].concat()),
            "not_committed",
        ),
    ]);
}
