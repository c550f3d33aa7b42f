//! Against a real server.

use std::time::{Duration, Instant};

use rapidbyte_pg_client::{
    COPY_HEADER_BYTES, Client, CopyRead, Format, Param, Settings, TransactionStatus,
};
use rapidbyte_sdk::{Error, ErrorKind, Result};
use rapidbyte_testkit::postgres::{Auth, Database, Options, Server, shared};
use rapidbyte_testkit::proxy::{Break, Proxy};

const WAIT: Duration = Duration::from_secs(20);
const INT4: u32 = 23;
const TEXT: u32 = 25;

fn connect(url: &str) -> Result<Client> {
    Client::connect(&Settings::from_url(url)?)
}

fn client(database: &Database<'_>) -> Client {
    connect(&database.url()).unwrap_or_else(|error| panic!("{error:?}"))
}

fn refused(url: &str) -> Error {
    connect(url).expect_err("must be refused")
}

/// The bodies of the CopyData messages that have come whole; gives how many bytes they took.
fn take_bodies(bytes: &[u8], bodies: &mut Vec<Vec<u8>>) -> usize {
    let mut at = 0;
    while let [b'd', a, b, c, d, rest @ ..] = &bytes[at..] {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(body) = rest.get(..length - 4) else {
            break;
        };
        bodies.push(body.to_vec());
        at += 1 + length;
    }
    at
}

/// Everything that a copy gives, message by message.
fn read_all<C: std::borrow::BorrowMut<Client>>(
    copy: &mut rapidbyte_pg_client::CopyOut<C>,
) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    loop {
        let read = copy.feed(WAIT, |bytes| Ok(take_bodies(bytes, &mut all)))?;
        if read == CopyRead::End {
            return Ok(all);
        }
    }
}

#[test]
fn every_method_lets_in_the_right_password_and_says_why_not_the_wrong_one() {
    for auth in [Auth::Trust, Auth::Password, Auth::Md5, Auth::ScramSha256] {
        let server = Server::start(&Options {
            auth,
            password: "pä:ss".into(),
            ..Options::default()
        })
        .unwrap();
        let at = format!("127.0.0.1:{}/postgres", server.port());
        let mut good = connect(&format!("postgres://postgres:p%C3%A4%3Ass@{at}")).unwrap();
        assert!(good.server_version() > 90_000);
        assert_eq!(good.parameter("is_superuser"), Some("on"));
        assert!(!good.is_pgbouncer());
        let condition = format!("SELECT {}", good.is_process());
        let answers = good.simple_query(&condition).unwrap();
        assert_eq!(answers[0].rows[0].text(0).unwrap(), Some("t"));
        good.found_other_process();
        assert!(good.is_pgbouncer());
        good.close();
        if auth == Auth::Trust {
            continue;
        }
        let wrong = refused(&format!("postgres://postgres:sesame@{at}"));
        assert_eq!(wrong.code, "pg_28P01", "{auth:?}");
        assert!(matches!(wrong.kind, ErrorKind::Auth));
        assert!(wrong.hint.as_deref().unwrap().contains("password"));
        assert_eq!(wrong.location.as_deref(), Some("config.url"));
        assert!(!format!("{wrong:?}").contains("sesame"));
        let missing = refused(&format!("postgres://postgres@{at}"));
        assert_eq!(missing.code, "password_missing");
    }
}

#[test]
fn passwords_that_others_prepare_in_another_way_are_accepted() {
    let server = Server::start(&Options {
        auth: Auth::ScramSha256,
        ..Options::default()
    })
    .unwrap();
    let mut client = server.client("postgres");
    // With nothing left; newer than Unicode 3.2; prohibited; of two directions; usual.
    let passwords = [
        "\u{ad}",
        "\u{ad}\u{200c}",
        "\u{2c7c}",
        "\u{1d2c}",
        "\u{1f130}",
        "\u{340}x",
        "\u{341}",
        "\u{627}1",
        "\u{627}\u{628}",
        "\u{1f600}",
        "\u{a0}a",
        "a\u{308}",
        "x\u{1f71}",
        "\u{7}",
        " ",
        "a,b=c%d",
    ];
    for (number, password) in passwords.into_iter().enumerate() {
        client
            .batch_execute(&format!(
                "CREATE ROLE role_{number} LOGIN PASSWORD '{password}'"
            ))
            .unwrap();
        let encoded: String = password
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let port = server.port();
        let at = format!("postgres://role_{number}:{encoded}@127.0.0.1:{port}/postgres");
        match connect(&at) {
            Ok(client) => client.close(),
            Err(error) => panic!("{password:?}: {error:?}"),
        }
    }
}

#[test]
fn refusals_name_what_to_check() {
    let server = Server::start(&Options {
        hba: vec!["host all outcast all reject".into()],
        ..Options::default()
    })
    .unwrap();
    let url = server.url("postgres");
    let missing = refused(&server.url("nosuch"));
    assert_eq!(missing.code, "pg_3D000");
    assert!(matches!(missing.kind, ErrorKind::Config));
    assert!(missing.message.contains("nosuch"), "{missing:?}");

    let outcast = refused(&url.replace("//postgres:", "//outcast:"));
    assert_eq!(outcast.code, "pg_28000");
    assert!(outcast.hint.unwrap().contains("pg_hba.conf"));

    let bound = refused(&format!("{url}?channel_binding=require"));
    assert_eq!(bound.code, "channel_binding_missing");
    let tls = refused(&format!("{url}?sslmode=require"));
    assert_eq!(tls.code, "tls_required");

    let bad = refused(&format!("{url}?options=-c%20nosuch%3D1"));
    assert_eq!(bad.code, "pg_42704");
}

#[test]
fn a_server_without_a_free_place_is_transient() {
    let server = Server::start(&Options {
        conf: vec![
            "max_connections = 5".into(),
            "superuser_reserved_connections = 0".into(),
            "max_wal_senders = 0".into(),
        ],
        ..Options::default()
    })
    .unwrap();
    let url = server.url("postgres");
    let mut held = Vec::new();
    let error = loop {
        assert!(held.len() < 10, "the limit was never met");
        match connect(&url) {
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, "pg_53300");
    assert!(matches!(error.kind, ErrorKind::Transient));
}

#[test]
fn a_closed_port_is_reported_and_the_next_host_is_tried() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free.local_addr().unwrap().port();
    drop(free);
    let error = refused(&format!("postgres://u@127.0.0.1:{dead}/d"));
    assert_eq!(error.code, "connect_failed");
    assert!(matches!(error.kind, ErrorKind::Connection));
    assert!(error.hint.unwrap().contains("listen"));
    let both = refused(&format!("postgres://u@127.0.0.1:{dead},localhost:{dead}/d"));
    assert!(both.message.contains("127.0.0.1") && both.message.contains("localhost"));

    let database = shared().database();
    let url = database
        .url()
        .replace("@127.0.0.1", &format!("@127.0.0.1:{dead},127.0.0.1"));
    let mut client = connect(&url).unwrap();
    let answers = client.simple_query("SELECT current_database()").unwrap();
    assert_eq!(answers[0].single().unwrap(), database.name());
}

#[test]
fn the_wanted_kind_of_server_is_chosen() {
    let database = shared().database();
    let with = |attrs| connect(&format!("{}?target_session_attrs={attrs}", database.url()));
    for attrs in ["any", "read-write", "primary", "prefer-standby"] {
        with(attrs).unwrap();
    }
    for attrs in ["standby", "read-only"] {
        let error = with(attrs).unwrap_err();
        assert_eq!(error.code, "no_such_session", "{error:?}");
    }
    let name = database.name();
    database
        .client()
        .batch_execute(&format!(
            "ALTER DATABASE {name} SET default_transaction_read_only = on"
        ))
        .unwrap();
    let read_write = with("read-write").map(drop).map_err(|error| error.code);
    let read_only = with("read-only").map(drop).map_err(|error| error.code);
    assert_eq!(read_write, Err("no_such_session".to_owned()));
    assert_eq!(read_only, Ok(()));
}

#[test]
fn the_encoding_and_the_form_of_times_are_fixed() {
    let database = shared().database();
    let name = database.name();
    database
        .client()
        .batch_execute(&format!(
            "ALTER DATABASE {name} SET DateStyle = 'German'; \
             ALTER DATABASE {name} SET TimeZone = 'Asia/Tokyo'; \
             ALTER DATABASE {name} SET client_encoding = 'LATIN1'"
        ))
        .unwrap();
    let answers = client(&database)
        .simple_query("SELECT 'ä', timestamptz '2024-02-03 04:05:06Z'")
        .unwrap();
    let row = &answers[0].rows[0];
    let texts: Vec<_> = (0..row.len())
        .map(|at| row.text(at).unwrap().unwrap())
        .collect();
    assert_eq!(texts, ["ä", "2024-02-03 04:05:06+00"]);
}

#[test]
fn several_statements_give_several_answers_and_an_error_undoes_them() {
    let database = shared().database();
    let mut client = client(&database);
    let answers = client
        .simple_query(
            "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, NULL), (2, ''); TABLE t",
        )
        .unwrap();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[1].affected, 2);
    assert_eq!(answers[2].columns[1].name, "b");
    assert_eq!(answers[2].rows[0].text(1).unwrap(), None);
    assert_eq!(answers[2].rows[1].text(1).unwrap(), Some(""));
    let error = client
        .execute("INSERT INTO t VALUES (3, 'x'); SELECT 1/0; INSERT INTO t VALUES (4, 'y')")
        .unwrap_err();
    assert_eq!(error.code, "pg_22012");
    assert!(matches!(error.kind, ErrorKind::Data));
    assert_eq!(client.execute("DELETE FROM t").unwrap(), 2);
    assert!(client.simple_query("").unwrap().is_empty());

    client.execute("BEGIN").unwrap();
    assert_eq!(client.transaction_status(), TransactionStatus::Open);
    client.execute("nonsense").unwrap_err();
    assert_eq!(client.transaction_status(), TransactionStatus::Failed);
    client.execute("ROLLBACK").unwrap();
    assert_eq!(client.transaction_status(), TransactionStatus::Idle);
}

#[test]
fn errors_name_table_column_and_constraint() {
    let database = shared().database();
    let mut client = client(&database);
    client
        .execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL); INSERT INTO t VALUES (1, 'x'); \
             CREATE ROLE nobody_at_all_client; ALTER TABLE t ADD CONSTRAINT small CHECK (a < 9)",
        )
        .unwrap();
    let missing = client
        .execute("INSERT INTO t VALUES (2, NULL)")
        .unwrap_err();
    assert_eq!(missing.code, "pg_23502");
    assert_eq!(missing.column.as_deref(), Some("b"));
    let double = client.execute("INSERT INTO t VALUES (1, 'y')").unwrap_err();
    assert_eq!(double.code, "pg_23505");
    assert!(
        double.message.contains("Key (a)=(1) already exists"),
        "{double:?}"
    );
    assert!(double.message.contains("t_pkey") && double.message.contains("public.t"));
    let unknown = client.execute("SELECT nosuch FROM t").unwrap_err();
    assert!(matches!(unknown.kind, ErrorKind::Schema));
    let denied = client
        .execute("SET ROLE nobody_at_all_client; SELECT * FROM t")
        .unwrap_err();
    assert!(matches!(denied.kind, ErrorKind::Auth));
    assert_eq!(denied.code, "pg_42501");
    client
        .execute("RESET ROLE; DROP ROLE nobody_at_all_client")
        .unwrap();
}

#[test]
fn answers_and_nul_bytes_have_limits() {
    let database = shared().database();
    let mut client = client(&database);
    for error in [
        client.execute("SELECT 'a\0b'").unwrap_err(),
        client.query("SELECT '\0'", &[], Format::Text).unwrap_err(),
        client.prepare("SELECT '\0'", &[]).unwrap_err(),
    ] {
        assert_eq!(error.code, "unsendable");
    }
    assert!(client.is_usable());
    let long = client.simple_query("SELECT repeat('x', 5000000)").unwrap();
    assert_eq!(long[0].single().unwrap().len(), 5_000_000);
    client.set_max_result_bytes(1 << 20);
    let error = client
        .simple_query("SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
        .unwrap_err();
    assert_eq!(error.code, "result_too_large");
    assert_eq!(
        client.execute("SELECT 1").unwrap_err().code,
        "connection_unusable"
    );
}

#[test]
fn parameters_go_as_text_and_in_binary() {
    let database = shared().database();
    let mut client = client(&database);
    let seven = 7_i32.to_be_bytes();
    let params = [
        Param::binary(INT4, Some(&seven)),
        Param::text(Some("it's")),
        Param::binary(TEXT, None),
    ];
    let sql = "SELECT $1 + 1, $2::text, $3, length($2::text) > 3";
    let text = client.query(sql, &params, Format::Text).unwrap();
    assert_eq!(text.rows[0].text(0).unwrap(), Some("8"));
    assert_eq!(text.rows[0].text(1).unwrap(), Some("it's"));
    assert_eq!(text.rows[0].bytes(2), None);
    let binary = client.query(sql, &params, Format::Binary).unwrap();
    assert_eq!(binary.rows[0].bytes(0), Some(&8_i32.to_be_bytes()[..]));
    assert_eq!(binary.rows[0].bytes(3), Some(&[1][..]));
    assert!(binary.columns[0].is_binary);
    assert_eq!(binary.columns[0].type_oid, INT4);
    let error = client.query("SELECT $1::int", &[Param::text(Some("x"))], Format::Text);
    assert_eq!(error.unwrap_err().code, "pg_22P02");
    assert_eq!(client.execute("SELECT 1").unwrap(), 1);
}

#[test]
fn a_prepared_insert_runs_many_times_without_waiting() {
    let database = shared().database();
    let mut client = client(&database);
    client
        .execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        .unwrap();
    let insert = client
        .prepare("INSERT INTO t VALUES ($1, $2)", &[])
        .unwrap();
    assert_eq!(insert.param_oids, [INT4, TEXT]);
    let row = |number: i32| number.to_be_bytes();
    let one = row(0);
    let params = [Param::binary(INT4, Some(&one)), Param::binary(TEXT, None)];
    assert_eq!(client.execute_prepared(&insert, &params).unwrap(), 1);
    assert_eq!(
        client.execute_prepared(&insert, &params).unwrap_err().code,
        "pg_23505"
    );
    assert!(client.execute_prepared(&insert, &params[..1]).is_err());

    let mut pipeline = client.pipeline().unwrap();
    for number in 1..=10_000 {
        let number = row(number);
        let params = [
            Param::binary(INT4, Some(&number)),
            Param::binary(TEXT, Some(b"x")),
        ];
        pipeline.execute(&insert, &params).unwrap();
    }
    assert_eq!(pipeline.finish().unwrap(), 10_000);

    let mut pipeline = client.pipeline().unwrap();
    let mut sent = 0;
    for number in 10_001..=11_000 {
        let number = row(if number == 10_101 { 5 } else { number });
        let params = [
            Param::binary(INT4, Some(&number)),
            Param::binary(TEXT, None),
        ];
        if pipeline.execute(&insert, &params).is_err() {
            break;
        }
        sent += 1;
    }
    assert!((100..300).contains(&sent), "told after {sent}");
    assert_eq!(pipeline.finish().unwrap_err().code, "pg_23505");
    let count = client.simple_query("SELECT count(*) FROM t").unwrap();
    assert_eq!(count[0].single().unwrap(), "10001");
    client.forget(insert).unwrap();
}

#[test]
fn a_session_that_is_ended_among_executions_says_why() {
    let database = shared().database();
    let mut client = client(&database);
    client.execute("CREATE TABLE ended (a int4)").unwrap();
    let insert = "INSERT INTO ended VALUES ($1)";
    let insert = client.prepare(insert, &[]).unwrap();
    let end = format!(
        "SELECT pg_terminate_backend({}, 20000)",
        client.process_id()
    );
    let mut pipeline = client.pipeline().unwrap();
    let ended: bool = database.client().query_one(&end, &[]).unwrap().get(0);
    assert!(ended);
    let number = 1_i32.to_be_bytes();
    let params = [Param::binary(INT4, Some(&number))];
    let executed = (0..1000).try_for_each(|_| pipeline.execute(&insert, &params));
    assert_eq!(executed.unwrap_err().code, "pg_57P01");
    assert_eq!(pipeline.finish().unwrap_err().code, "pg_57P01");
}

#[test]
fn a_copy_that_was_cut_off_is_not_written_on() {
    let database = shared().database();
    let proxy = Proxy::to(shared().port()).unwrap();
    let mut client = connect(&database.url_through(&proxy)).unwrap();
    client.execute("CREATE TABLE cut (t text)").unwrap();
    client.set_reply_timeout(Duration::from_secs(1));
    let mut copy = client.copy_in("COPY cut FROM STDIN").unwrap();
    proxy.break_now(Break::Stall);
    let line = [&[b'x'; 99_999][..], b"\n"].concat();
    let sent = (0..10_000).try_for_each(|_| copy.send(&line));
    assert_eq!(sent.unwrap_err().code, "timeout");
    // From here on the server would take it for the rest of a row.
    proxy.heal().unwrap();
    copy.fail("given up").unwrap();
    drop(copy);
    assert!(!client.is_usable());
}

#[test]
fn a_copy_goes_out_and_in_and_is_the_same() {
    let database = shared().database();
    let mut from = client(&database);
    from.execute(
        "CREATE TABLE a AS SELECT n AS id, md5(n::text) AS t, CASE WHEN n % 7 > 0 THEN n * 1.5 END \
         AS d FROM generate_series(1, 100000) n; CREATE TABLE b (LIKE a)",
    )
    .unwrap();
    let mut into = client(&database)
        .into_copy_in(&[], "COPY b FROM STDIN (FORMAT binary)")
        .unwrap()
        .ready()
        .unwrap();
    assert!(into.is_binary());
    let mut copy = from.copy_out("COPY a TO STDOUT (FORMAT binary)").unwrap();
    assert!(copy.is_binary());
    let bytes = read_all(&mut copy).unwrap().concat();
    assert!(read_all(&mut copy).unwrap().is_empty());
    assert!(bytes.starts_with(b"PGCOPY\n"));
    let (first, second) = bytes.split_at(bytes.len() / 3);
    into.send(first).unwrap();
    for piece in second.chunks(100_000) {
        let mut message = vec![0; COPY_HEADER_BYTES];
        message.extend_from_slice(piece);
        into.send_framed(&mut message).unwrap();
    }
    assert_eq!(into.finish().unwrap(), 100_000);
    let mut into = into.into_client();
    assert!(into.is_usable());
    let same = into
        .simple_query("SELECT count(*) FROM (TABLE a EXCEPT ALL TABLE b) x")
        .unwrap();
    assert_eq!(same[0].single().unwrap(), "0");
    // The rows one by one, and the borrowed client again.
    let mut copy = from
        .copy_out("COPY (SELECT id FROM a ORDER BY id) TO STDOUT")
        .unwrap();
    let rows = read_all(&mut copy).unwrap();
    assert_eq!(rows.len(), 100_000);
    assert_eq!(rows[9], b"10\n");
    assert_eq!(from.execute("SELECT 1").unwrap(), 1);
}

#[test]
fn a_copy_of_few_rows_goes_in_one_send() {
    let database = shared().database();
    let mut client = client(&database);
    client
        .execute("CREATE TABLE few (n int CHECK (n < 9))")
        .unwrap();
    let requests = client.requests();
    let mut copy = client.into_copy_of_few(&["SET lock_timeout = 7"], "COPY few FROM STDIN");
    assert!(!copy.is_binary());
    copy.send(b"1\n2\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 2);
    let mut client = copy.into_client();
    assert_eq!(client.requests(), requests + 1);
    let set = client.simple_query("SHOW lock_timeout").unwrap();
    assert_eq!(set[0].single().unwrap(), "7ms");
    // More than one message: the server is waited for before the second.
    let mut copy = client.into_copy_of_few(&[], "COPY few FROM STDIN");
    (0..300_000).for_each(|_| copy.send(b"3\n").unwrap());
    assert_eq!(copy.finish().unwrap(), 300_000);
    // Rows, statements and copies that the server refuses, and one that is given up before anything is sent.
    let mut client = copy.into_client();
    for (before, sql, rows, code) in [
        (&[][..], "COPY few FROM STDIN", 2, "pg_23514"),
        (&[], "COPY none FROM STDIN", 2, "pg_42P01"),
        (&[], "COPY none FROM STDIN", 300_000, "pg_42P01"),
        (&["SELECT 1 / 0"], "COPY few FROM STDIN", 2, "pg_22012"),
        (&[], "COPY few FROM \0 STDIN", 2, "unsendable"),
        (&[], "COPY few FROM STDIN", 0, "given up"),
    ] {
        let mut copy = client.into_copy_of_few(before, sql);
        let ended = match rows {
            0 => {
                copy.send(b"4\n").unwrap();
                copy.fail("given up").map(|()| "given up".to_owned())
            }
            _ => (0..rows)
                .try_for_each(|_| copy.send(b"9\n"))
                .and_then(|()| copy.finish())
                .map(|rows| rows.to_string()),
        };
        let ended = ended.unwrap_or_else(|error| error.code);
        assert_eq!(ended, code, "{sql}");
        copy.fail("again").unwrap();
        client = copy.into_client();
        assert!(client.is_usable(), "{sql}");
        let left = client
            .simple_query("SELECT count(*) FROM few WHERE n > 3")
            .unwrap();
        assert_eq!(left[0].single().unwrap(), "0", "{sql}");
    }
}

#[test]
fn a_short_wait_leaves_the_copy_as_it_was() {
    let database = shared().database();
    let mut slow = client(&database);
    let mut locker = client(&database);
    locker
        .execute("CREATE TABLE t AS SELECT 'x'::text AS a; SELECT pg_advisory_lock(77)")
        .unwrap();
    // The server sends when it has 8 KiB; after that it waits for the lock.
    let mut copy = slow
        .copy_out(
            "COPY (SELECT repeat('x', 20000) UNION ALL \
             SELECT 'y' FROM (SELECT pg_advisory_lock(77)) l) TO STDOUT",
        )
        .unwrap();
    let mut all = Vec::new();
    let wait = Duration::from_millis(500);
    let mut take = |wait| copy.feed(wait, |bytes| Ok(take_bodies(bytes, &mut all)));
    while take(wait).unwrap() != CopyRead::Idle {}
    assert_eq!(take(Duration::from_millis(20)).unwrap(), CopyRead::Idle);
    locker.execute("SELECT pg_advisory_unlock(77)").unwrap();
    all.extend(read_all(&mut copy).unwrap());
    assert_eq!(all.concat().len(), 20_001 + 2);
    assert_eq!(all[1], b"y\n");
}

#[test]
fn an_error_in_the_middle_of_a_copy_out_is_not_taken_for_its_end() {
    let database = shared().database();
    let mut client = client(&database);
    let mut copy = client
        .copy_out("COPY (SELECT 1000 / (50000 - n) FROM generate_series(1, 100000) n) TO STDOUT")
        .unwrap();
    let error = read_all(&mut copy).unwrap_err();
    assert_eq!(error.code, "pg_22012");
    assert_eq!(client.execute("SELECT 1").unwrap(), 1);
    for sql in ["COPY nosuch TO STDOUT", "COPY nosuch FROM STDIN"] {
        assert_eq!(client.copy_out(sql).unwrap_err().code, "pg_42P01");
        assert_eq!(client.copy_in(sql).unwrap_err().code, "pg_42P01");
    }
    assert!(client.copy_out("SELECT 1").is_err());
    assert!(!client.is_usable());
}

#[test]
fn the_servers_error_in_the_middle_of_a_copy_in_is_reported() {
    let database = shared().database();
    let mut client = client(&database);
    client
        .execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        .unwrap();
    let mut copy = client.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\t1\n2\t2\n1\t3\n").unwrap();
    let lines = b"5\t5\n".repeat(100_000);
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < WAIT, "the error was never noticed");
        if let Err(error) = copy.send(&lines) {
            break error;
        }
    };
    assert_eq!(error.code, "pg_23505");
    assert_eq!(error.location.as_deref(), Some("COPY t, line 3"));
    assert!(copy.send(&lines).is_err());
    copy.fail("given up").unwrap();
    drop(copy);

    let mut copy = client.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\t1\n2\tx\n").unwrap();
    let error = copy.finish().unwrap_err();
    assert_eq!(error.code, "pg_22P02");
    assert_eq!(
        error.location.as_deref(),
        Some("COPY t, line 2, column b: \"x\"")
    );
    assert_eq!(error.column.as_deref(), Some("b"));

    let mut copy = client.copy_in("COPY t FROM STDIN (FORMAT binary)").unwrap();
    copy.send(b"no binary at all").unwrap();
    assert_eq!(copy.finish().unwrap_err().code, "pg_22P04");

    let mut copy = client.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"1\t1\n").unwrap();
    copy.fail("on second thoughts").unwrap();
    drop(copy);
    let count = client.simple_query("SELECT count(*) FROM t").unwrap();
    assert_eq!(count[0].single().unwrap(), "0");
}

#[test]
fn a_copy_where_none_is_expected_is_an_error_and_no_hang() {
    let database = shared().database();
    let mut client = client(&database);
    client.execute("CREATE TABLE t (a int)").unwrap();
    assert!(client.execute("COPY t FROM STDIN").is_err());
    assert!(client.simple_query("COPY t TO STDOUT").is_err());
    assert_eq!(client.execute("SELECT 1").unwrap(), 1);
}

#[test]
fn a_server_that_stops_in_the_middle_has_an_error_kind_of_its_own() {
    let mut server = Server::start(&Options::default()).unwrap();
    let url = server.url("postgres");
    let mut copying = connect(&url).unwrap();
    copying.execute("CREATE TABLE t (a text)").unwrap();
    let mut writer = connect(&url)
        .unwrap()
        .into_copy_in(&[], "COPY t FROM STDIN")
        .unwrap()
        .ready()
        .unwrap();
    let mut idle = connect(&url).unwrap();
    let mut copy = copying
        .copy_out("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT")
        .unwrap();
    copy.feed(WAIT, |bytes| Ok(take_bodies(bytes, &mut Vec::new())))
        .unwrap();
    server.stop();
    let gone = |error: &Error| matches!(error.kind, ErrorKind::Connection);
    let error = read_all(&mut copy).unwrap_err();
    assert!(gone(&error), "{error:?}");
    let lines = vec![b'x'; 1 << 20];
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < WAIT, "the end was never noticed");
        if let Err(error) = writer.send(&lines) {
            break error;
        }
    };
    assert!(gone(&error), "{error:?}");
    let error = idle.execute("SELECT 1").unwrap_err();
    assert!(gone(&error), "{error:?}");
    assert_eq!(
        idle.execute("SELECT 1").unwrap_err().code,
        "connection_unusable"
    );
    assert!(gone(&refused(&url)));
}

#[test]
fn an_ended_session_gives_the_servers_own_reason() {
    let database = shared().database();
    let mut client = client(&database);
    let end = |pid: i32| {
        let sql = "SELECT pg_terminate_backend($1)";
        database.client().execute(sql, &[&pid]).unwrap();
    };
    end(client.process_id());
    let error = client.execute("SELECT 1").unwrap_err();
    assert_eq!(error.code, "pg_57P01", "{error:?}");
    assert!(matches!(error.kind, ErrorKind::Connection));
}

#[test]
fn silence_is_a_timeout_and_a_cancelled_statement_says_so() {
    let database = shared().database();
    let settings = Settings::from_url(&database.url()).unwrap();
    let mut client = client(&database);
    let token = client.cancel_token();
    let work = std::thread::spawn(move || {
        let error = client.execute("SELECT pg_sleep(60)").unwrap_err();
        (client, error)
    });
    let mut watcher = database.client();
    let begun = Instant::now();
    while watcher
        .query(
            "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'",
            &[],
        )
        .unwrap()
        .is_empty()
    {
        assert!(begun.elapsed() < WAIT);
    }
    token.cancel(&settings, WAIT).unwrap();
    let (mut client, error) = work.join().unwrap();
    assert_eq!(error.code, "pg_57014");
    assert!(client.is_usable());

    client.set_reply_timeout(Duration::from_millis(50));
    let error = client.execute("SELECT pg_sleep(60)").unwrap_err();
    assert_eq!(error.code, "timeout");
    assert!(matches!(error.kind, ErrorKind::Transient));
    assert!(!client.is_usable());
}
