//! Rows of a real server.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::collections::BTreeSet;

use common::*;
use rapidbyte_pg::ident::{nasty_names, qualified, quote_ident};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Options, Server, shared};

const KINDS: &str = "
    CREATE TABLE plain (id int PRIMARY KEY);
    INSERT INTO plain VALUES (1), (2);
    CREATE TABLE parted (id int NOT NULL) PARTITION BY RANGE (id);
    CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10);
    CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (10) TO (20);
    INSERT INTO parted VALUES (3), (13);
    CREATE VIEW a_view AS SELECT id + 100 AS id FROM plain;
    CREATE MATERIALIZED VIEW a_matview AS SELECT id + 200 AS id FROM plain;
    CREATE UNLOGGED TABLE unlogged (id int);
    INSERT INTO unlogged VALUES (7);
    CREATE TABLE parent (id int);
    CREATE TABLE child (extra text) INHERITS (parent);
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 'x');
    CREATE TABLE computed (id int, twice int GENERATED ALWAYS AS (id * 2) STORED);
    INSERT INTO computed VALUES (4);
    CREATE TABLE empty (id int, t text)";

#[test]
fn every_kind_of_relation_gives_its_rows() {
    let database = shared().database();
    database.client().batch_execute(KINDS).unwrap();
    let mut source = open(&database.url());
    for (stream, expected) in [
        ("public.plain", vec![1, 2]),
        ("public.parted", vec![3, 13]),
        ("public.parted_low", vec![3]),
        ("public.a_view", vec![101, 102]),
        ("public.a_matview", vec![201, 202]),
        ("public.unlogged", vec![7]),
        ("public.parent", vec![1, 2]),
        ("public.child", vec![2]),
        ("public.computed", vec![4]),
        ("public.empty", vec![]),
    ] {
        let batches = read(&mut source, &request(stream)).unwrap();
        assert_eq!(ints(&batches, 0), expected, "{stream}");
        let batches = read(&mut source, &native(stream)).unwrap();
        assert_eq!(ints(&batches, 0), expected, "{stream}");
    }
    let batches = read(&mut source, &request("public.computed")).unwrap();
    assert_eq!(ints(&batches, 1), [8]);
}

#[test]
fn columns_come_as_they_are_asked_for() {
    let database = shared().database();
    let sql = "CREATE TABLE t (a int, b text, c int, tree tsvector);
        INSERT INTO t VALUES (1, 'x', 3, 'cat'), (2, NULL, 4, NULL);
        ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN b text DEFAULT 'new'";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let names = |batches: &[RecordBatch]| -> Vec<String> {
        let schema = batches[0].schema();
        schema.fields().iter().map(|f| f.name().clone()).collect()
    };
    let all = read(&mut source, &request("public.t")).unwrap();
    assert_eq!(names(&all), ["a", "c", "tree", "b"]);
    // With a column that is cast, and without.
    for wanted in [&["c", "tree", "a"][..], &["c", "a"], &["b"]] {
        let batches = read(&mut source, &columns("public.t", wanted)).unwrap();
        assert_eq!(names(&batches), wanted);
        assert_eq!(rows(&batches), 2);
    }
    let batches = read(&mut source, &columns("public.t", &["c", "a"])).unwrap();
    assert_eq!(
        (ints(&batches, 0), ints(&batches, 1)),
        (vec![3, 4], vec![1, 2])
    );

    let error = refused(&mut source, &columns("public.t", &["a", "B"]));
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("unknown_column", "Schema")
    );
    assert_eq!(error.column.as_deref(), Some("B"));
    assert_eq!(error.stream.as_deref(), Some("public.t"));
    assert!(error.hint.unwrap().contains("a, c, tree, b"));
    let error = refused(&mut source, &columns("public.t", &["a", "a"]));
    assert_eq!(error.code, "duplicate_column");
    let error = refused(&mut source, &columns("public.t", &[]));
    assert_eq!(error.code, "no_columns");
}

#[test]
fn what_is_not_there_is_named_with_what_is_like_it() {
    let database = shared().database();
    let sql = "CREATE TABLE \"Orders\" (id int)";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    for stream in ["public.orders", "Orders", "shop.Orders"] {
        let error = refused(&mut source, &request(stream));
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            ("unknown_stream", "Schema")
        );
        assert_eq!(error.hint.as_deref(), Some("did you mean public.Orders?"));
    }
    let error = source.snapshot(&["public.no\0such".into()]).unwrap_err();
    assert!(error.hint.unwrap().contains("discover"));
    assert_eq!(error.code, "unknown_stream");
}

#[test]
fn two_relations_of_one_name_are_not_confused() {
    let database = shared().database();
    let sql = "CREATE SCHEMA a; CREATE SCHEMA \"a.b\"; CREATE TABLE a.\"b.c\" (id int);
        CREATE TABLE \"a.b\".c (id int); CREATE TABLE a.alone (id int)";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let streams = source.discover(&[]).unwrap();
    let names: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["a.alone"]);
    let error = refused(&mut source, &request("a.b.c"));
    assert_eq!(error.code, "ambiguous_stream");
    assert!(error.message.contains("\"a.b\".c") && error.message.contains("a.\"b.c\""));
}

#[test]
fn a_table_without_columns_has_rows() {
    let database = shared().database();
    let sql = "CREATE TABLE nothing (); INSERT INTO nothing SELECT FROM generate_series(1, 70000)";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let batches = read(&mut source, &request("public.nothing")).unwrap();
    assert_eq!(rows(&batches), 70_000);
    let mut encoder = ipc::Encoder::new(&batches[0].schema()).unwrap();
    let message = encoder.encode(&batches[0]).unwrap();
    let decoder = ipc::Decoder::new(encoder.schema_message()).unwrap();
    assert_eq!(
        decoder.decode(message).unwrap().num_rows(),
        batches[0].num_rows()
    );
}

#[test]
fn many_rows_come_in_many_batches_and_none_is_lost() {
    let database = shared().database();
    let sql = "CREATE TABLE many AS SELECT i::int AS id, repeat('x', i % 100) AS t
        FROM generate_series(1, 200000) i";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let mut request = request("public.many");
    request.batch_bytes = 256 << 10;
    let batches = read(&mut source, &request).unwrap();
    assert!(ints(&batches, 0).into_iter().eq(1..=200_000));
    assert!(batches.len() > 30, "{}", batches.len());
    let largest = batches.iter().map(RecordBatch::get_array_memory_size).max();
    assert!(largest.unwrap() < 2 * (256 << 10), "{largest:?}");
}

#[test]
fn a_small_fetch_reads_the_same() {
    let database = shared().database();
    let sql = "CREATE TABLE wide AS SELECT i::int AS id, repeat('é', 5000) AS t
        FROM generate_series(1, 300) i";
    database.client().batch_execute(sql).unwrap();
    let config = format!(r#"{{"url": "{}", "fetch_bytes": 4096}}"#, database.url());
    let mut source: source_postgres::Postgres = rapidbyte_sdk::source::open(&config).unwrap();
    let batches = read(&mut source, &request("public.wide")).unwrap();
    assert!(ints(&batches, 0).into_iter().eq(1..=300));
}

#[test]
fn a_record_that_is_too_large_is_refused() {
    let database = shared().database();
    let sql = "CREATE TABLE large AS SELECT i AS id, repeat('x', i) AS t
        FROM (VALUES (10), (5000)) v(i)";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let mut request = request("public.large");
    request.max_record_bytes = 1000;
    let error = read(&mut source, &request).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("record_too_large", "Data")
    );
    assert_eq!(error.stream.as_deref(), Some("public.large"));
    assert!(error.hint.unwrap().contains("max_record_bytes"));
    request.max_record_bytes = 6000;
    assert_eq!(rows(&read(&mut source, &request).unwrap()), 2);
}

#[test]
fn an_error_of_the_server_in_the_middle_keeps_its_words() {
    let database = shared().database();
    let sql = "CREATE VIEW breaks AS SELECT i, 100 / (50000 - i) AS q
        FROM generate_series(1, 100000) i";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let error = read(&mut source, &request("public.breaks")).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("pg_22012", "Data")
    );
    assert!(error.message.contains("division by zero"));
    assert_eq!(error.stream.as_deref(), Some("public.breaks"));
}

#[test]
fn a_value_that_does_not_fit_names_its_column() {
    let database = shared().database();
    let sql = "CREATE TABLE dates (d date); INSERT INTO dates VALUES ('infinity')";
    database.client().batch_execute(sql).unwrap();
    let mut source = open(&database.url());
    let error = read(&mut source, &request("public.dates")).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("value_does_not_fit", "Data")
    );
    assert_eq!(error.column.as_deref(), Some("d"));
    assert_eq!(
        rows(&read(&mut source, &native("public.dates")).unwrap()),
        1
    );
}

#[test]
fn a_server_that_stops_in_the_middle_is_an_error_of_the_connection() {
    let mut server = Server::start(&Options::default()).unwrap();
    let sql = "CREATE TABLE t AS SELECT i, repeat('x', 1000) AS t FROM generate_series(1, 50000) i";
    server.client("postgres").batch_execute(sql).unwrap();
    let mut source = open(&server.url("postgres"));
    let mut reader = source.read(&request("public.t")).unwrap();
    let first = loop {
        match reader.next(WAIT).unwrap() {
            Event::Batch(batch) => break batch.num_rows(),
            Event::Idle => {}
            other => panic!("{other:?}"),
        }
    };
    server.stop();
    let error = drain(&mut reader).unwrap_err();
    assert!(first > 0);
    assert_eq!(kind(&error), "Connection", "{error:?}");
    assert_eq!(error.stream.as_deref(), Some("public.t"));
    let error = refused(&mut source, &request("public.t"));
    assert_eq!(kind(&error), "Connection", "{error:?}");
}

#[test]
fn a_reader_that_waits_for_a_lock_says_that_nothing_came() {
    let database = shared().database();
    let sql = "CREATE VIEW slow AS SELECT pg_catalog.pg_advisory_xact_lock_shared(77)::text AS l, 1 AS id";
    let mut holder = database.client();
    holder.batch_execute(sql).unwrap();
    holder.batch_execute("SELECT pg_advisory_lock(77)").unwrap();
    let mut source = open(&database.url());
    let mut reader = source.read(&request("public.slow")).unwrap();
    let wait = std::time::Duration::from_millis(5);
    assert!(matches!(reader.next(wait).unwrap(), Event::Idle));
    holder
        .batch_execute("SELECT pg_advisory_unlock(77)")
        .unwrap();
    assert_eq!(rows(&drain(&mut reader).unwrap()), 1);
}

#[test]
fn nasty_names_are_only_names() {
    let database = shared().database();
    let mut client = database.client();
    let all = nasty_names(2000);
    // Keywords of both cases, and words of nasty letters.
    let names: BTreeSet<&String> = all.iter().step_by(40).chain(&all[1970..]).collect();
    let mut sql = String::new();
    for name in &names {
        sql += &format!(
            "CREATE SCHEMA {};",
            quote_ident(&format!("s{name}")[..].chars().take(15).collect::<String>())
        );
        let table = qualified(&name_of_schema(name), name);
        let column = quote_ident(name);
        sql += &format!("CREATE TABLE {table} ({column} int, \"{{}}\" tsvector);");
        sql += &format!("INSERT INTO {table} VALUES (5, 'x');");
    }
    client
        .batch_execute(&sql.replace("CREATE SCHEMA", "CREATE SCHEMA IF NOT EXISTS"))
        .unwrap();
    let mut source = open(&database.url());
    let streams = source.discover(&[]).unwrap();
    assert_eq!(streams.len(), names.len());
    let wanted: Vec<String> = streams.iter().map(|s| s.name.clone()).collect();
    let snapshot = source.snapshot(&wanted).unwrap();
    for name in names {
        let stream = format!("{}.{name}", name_of_schema(name));
        assert_eq!(schema(find(&streams, &stream)).field(0).name(), name);
        // As a table, and as a query.
        for wanted in [vec![name.as_str()], vec![name.as_str(), "{}"]] {
            let mut request = columns(&stream, &wanted);
            request.snapshot.clone_from(&snapshot);
            let batches = read(&mut source, &request).unwrap();
            assert_eq!(ints(&batches, 0), [5], "{stream:?}");
        }
    }
}

fn name_of_schema(name: &str) -> String {
    format!("s{name}").chars().take(15).collect()
}
