//! A server that says nothing.

use std::time::Duration;

use crate::common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::shared;
use source_postgres::Postgres;

fn impatient(url: &str) -> Postgres {
    waits(url, 1)
}

/// Waits this many seconds for an answer.
fn waits(url: &str, seconds: u32) -> Postgres {
    let config = format!(r#"{{"url": "{url}", "read_timeout": {seconds}}}"#);
    rapidbyte_sdk::source::open(&config).unwrap()
}

#[test]
fn a_read_waits_for_a_lock_and_then_reports_its_holder() {
    let database = shared().database();
    let mut client = database.client();
    let sql =
        "CREATE TABLE t (id int); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT id FROM t";
    client.batch_execute(sql).unwrap();
    client
        .batch_execute("BEGIN; LOCK TABLE t /* of mine */")
        .unwrap();
    let pid: i32 = client
        .query_one("SELECT pg_backend_pid()", &[])
        .unwrap()
        .get(0);
    client.batch_execute("SELECT 1 AS mine").unwrap();
    let mut source = impatient(&database.url());
    for error in [
        source.snapshot(&[whole("public.t")]).unwrap_err(),
        refused(&mut source, &request("public.t")),
        // Below a view nothing is locked before it is read.
        refused(&mut source, &request("public.v")),
        refused(
            &mut source,
            &news("public.v", &ordered(&["id"], false), None),
        ),
    ] {
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            ("read_stalled", "Transient")
        );
        for part in [
            &format!("process {pid} of postgres"),
            "SELECT 1 AS mine",
            "for 1 s",
            "Lock",
        ] {
            assert!(error.message.contains(part), "{part}: {error:?}");
        }
        let is_named = error.stream.is_some() || error.message.contains("lock of public.t");
        assert!(is_named, "{error:?}");
    }
    client.batch_execute("COMMIT").unwrap();
    assert_eq!(rows(&read(&mut source, &request("public.v")).unwrap()), 1);
}

#[test]
fn discover_does_not_wait_for_tables_that_somebody_changes() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
        CREATE DOMAIN small AS int DEFAULT 1 CHECK (VALUE < 10);
        CREATE TABLE plain (id int PRIMARY KEY DEFAULT one(), s small, u serial, i int GENERATED ALWAYS AS IDENTITY,
            g int GENERATED ALWAYS AS (id * 2) STORED, w text COLLATE \"C\" DEFAULT 'x', CHECK (id > 0));
        CREATE TABLE child (c int DEFAULT 2) INHERITS (plain);
        CREATE TABLE parts (id int DEFAULT one()) PARTITION BY RANGE (id);
        CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9);
        CREATE TABLE secured (id int DEFAULT 1); ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
        CREATE POLICY p ON secured USING (id = one());
        CREATE VIEW seen AS SELECT id, g FROM plain; ALTER VIEW seen ALTER id SET DEFAULT 3;
        CREATE MATERIALIZED VIEW kept AS SELECT id FROM plain";
    client.batch_execute(sql).unwrap();
    // A machine at work answers late. A lock of this test is held to the end: whoever waits for it fails.
    let free = waits(&database.url(), 60).discover(&[]).unwrap();
    let locked = "BEGIN; LOCK TABLE plain, child, parts, secured, seen IN ACCESS EXCLUSIVE MODE;
        REFRESH MATERIALIZED VIEW kept";
    client.batch_execute(locked).unwrap();
    let mut source = waits(&database.url(), 60);
    let streams = source.discover(&[]).unwrap();
    let names =
        |streams: &[Stream]| -> Vec<String> { streams.iter().map(|s| s.name.clone()).collect() };
    assert_eq!(names(&streams), names(&free));
    for (stream, free) in streams.iter().zip(&free) {
        let [found, expected] = [stream, free].map(|stream| at_any_time(&schema(stream)));
        assert_eq!(found, expected, "{}", stream.name);
        assert_eq!(stream.source_types, free.source_types);
    }
    assert_eq!(streams.len(), 6);
    // A table that nobody changes is read meanwhile.
    let mut other = database.client();
    other
        .batch_execute("CREATE TABLE free (id int DEFAULT 1); INSERT INTO free VALUES (5)")
        .unwrap();
    source.discover(&[]).unwrap();
    source.snapshot(&[whole("public.free")]).unwrap();
    assert_eq!(
        rows(&read(&mut source, &request("public.free")).unwrap()),
        1
    );
}

#[test]
fn rows_that_do_not_come_are_waited_for_no_longer_than_allowed() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE VIEW slow AS SELECT i AS id FROM generate_series(1, 60000) i
             WHERE i < 50000 OR pg_sleep(60) IS NULL",
        )
        .unwrap();
    let mut source = impatient(&database.url());
    let mut reader = source.read(&request("public.slow")).unwrap();
    let mut given = 0;
    let error = loop {
        match reader.next(Duration::from_millis(50)) {
            Ok(Event::Batch(batch)) => given += batch.num_rows(),
            Ok(Event::Idle) => {}
            Ok(event) => panic!("{event:?}"),
            Err(error) => break error,
        }
    };
    assert!(given < 50_000);
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("read_stalled", "Transient")
    );
    assert!(
        error.message.contains("the next rows") && error.message.contains("PgSleep"),
        "{error:?}"
    );
    assert!(error.hint.unwrap().contains("read_timeout"));
    // It stops when nobody waits for it.
    let asleep = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event = 'PgSleep' AND datname = current_database()";
    let begun = std::time::Instant::now();
    while client.query_one(asleep, &[]).unwrap().get::<_, i64>(0) > 0 {
        assert!(begun.elapsed() < WAIT, "the statement goes on");
        std::thread::yield_now();
    }
}
