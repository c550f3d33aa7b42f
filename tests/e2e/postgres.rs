//! Tables between real PostgreSQL databases, and between PostgreSQL and files.

use std::process::Stdio;

use rapidbyte_testkit::postgres::{Client, Database, Options, PASSWORD, Server, SmallDisk, shared};
use serde_json::Value;

use crate::support::{Ended, Folder};

/// One table with values at their edges, in most types that the server has.
const NASTY: &str = r#"
CREATE SCHEMA app;
CREATE TYPE app.mood AS ENUM ('sad', 'so so', 'Ünïcode', 'quote''d');
CREATE DOMAIN app.positive AS integer CHECK (VALUE > 0);
CREATE TABLE app."Nasty ""T""" (
    id bigint PRIMARY KEY,
    "select" boolean, small smallint, plain integer, r real, d double precision,
    n numeric, n18 numeric(18, 4), t text, v varchar(40), c char(5), b bytea, u uuid,
    j json, jb jsonb, da date, ti time, tz timetz, ts timestamp, tstz timestamptz,
    tsp timestamp(3), iv interval, m app.mood, p app.positive, ia integer[], ta text[],
    ma app.mood[], na numeric(10, 2)[], r4 int4range, mr datemultirange, ip inet, ci cidr,
    mac macaddr, bits bit(5), vb varbit, pt point, cash money, tv tsvector, x xml, l pg_lsn,
    "Ünïcode, ""col""" text NOT NULL DEFAULT ''
);
COMMENT ON TABLE app."Nasty ""T""" IS E'a table\n''of'' \\ things';
COMMENT ON COLUMN app."Nasty ""T""".v IS 'a comment with ''quotes''';
INSERT INTO app."Nasty ""T""" (id) VALUES (0);
INSERT INTO app."Nasty ""T"""
SELECT i, i % 2 = 0, -32768 + i, 2147483647 - i, 'NaN', '-0'::float8,
    CASE i % 4 WHEN 0 THEN 'NaN'::numeric WHEN 1 THEN 'Infinity' WHEN 2 THEN 1e-40 ELSE 1e60 END,
    i * 1.0001, E'a\n"b"\\ \'' || i || repeat('é', (i % 50)::int), 'x' || i, 'ab',
    decode(md5(i::text), 'hex') || '\x00', md5(i::text)::uuid,
    '{"b": 1,   "a": [1.10, null]}', '{"b": 1, "a": [1.10, null]}',
    CASE i % 4 WHEN 0 THEN 'infinity'::date WHEN 1 THEN '-infinity' WHEN 2 THEN '4713-01-01 BC'
        ELSE '5874897-12-31' END,
    '24:00:00', '23:59:59.999999-15:59',
    CASE i % 3 WHEN 0 THEN 'infinity'::timestamp WHEN 1 THEN '294276-12-31 23:59:59.999999'
        ELSE '4713-01-01 00:00:00 BC' END,
    '-infinity', '2024-02-29 12:00:00.123', '-178000000 years 11 mons -3 days 04:05:06.000001',
    'quote''d', i, ARRAY[[1, NULL], [3, 4]], ARRAY['', NULL, '"', ','],
    ARRAY['so so', NULL]::app.mood[], '[3:4]={1.10,NaN}', '[1,5)', '{[2020-01-01,)}',
    '::ffff:1.2.3.4/96', '10.0.0.0/8', '08:00:2b:01:02:03', '10101', '1', '(1e300,-0)',
    '-92233720368547758.08', 'a:1A b:2', '<a>&amp;</a>', '16/B374D848', 'end'
FROM generate_series(1, 5000) i;
"#;

/// Settings that fix how values are written as text.
const TEXT: &str = "SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; \
                    SET extra_float_digits = 1; SET bytea_output = 'hex';";

/// Rows and a hash of the whole table's text, whatever the order of its rows.
pub fn content(client: &mut Client, table: &str) -> (i64, String) {
    client.batch_execute(TEXT).expect("settings");
    let sql = format!(
        "SELECT count(*), coalesce(md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text))), '') \
         FROM {table} t"
    );
    let row = client.query_one(&sql, &[]).expect("a hash");
    (row.get(0), row.get(1))
}

/// The table's comment, then `name type not-null comment` of each column.
fn columns(client: &mut Client, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT coalesce(obj_description('{table}'::regclass, 'pg_class'), '') \
         UNION ALL (SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' \
         || coalesce(col_description(attrelid, attnum), '') FROM pg_attribute \
         WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum)"
    );
    let rows = client.query(&sql, &[]).expect("columns");
    rows.iter().map(|row| row.get(0)).collect()
}

pub fn copy(from: &Database<'_>, to: &Database<'_>, streams: &str, more: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
         streams: {streams}\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{}\", {more} }}\n  \
         write_mode: append\n",
        from.url(),
        to.url()
    )
}

#[test]
fn checkpoints_of_a_target_are_not_a_stream_when_it_is_read_in_turn() {
    let (first, second, third) = (
        shared().database(),
        shared().database(),
        shared().database(),
    );
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i;
        CREATE TABLE checkpoint (seq int, cursor text)";
    first.client().batch_execute(table).expect("tables");
    Folder::new().report(&copy(&first, &second, "['*']", "checkpoint_schema: kept"));
    let report = Folder::new().report(&copy(&second, &third, "['*']", ""));
    let streams: Vec<&str> = report["streams"]
        .as_array()
        .expect("streams")
        .iter()
        .map(|stream| stream["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(streams, ["public.checkpoint", "public.t"]);
}

#[test]
fn every_value_arrives_by_copy_and_by_insert_where_oids_differ() {
    let source = shared().database();
    source.client().batch_execute(NASTY).expect("a table");
    let table = "app.\"Nasty \"\"T\"\"\"";
    let expected = content(&mut source.client(), table);
    for method in ["copy", "insert"] {
        let target = shared().database();
        // Other types in between, so that no OID is the same.
        let mut client = target.client();
        client
            .batch_execute("CREATE TYPE shift AS ENUM ('a'); CREATE TABLE other (a int)")
            .expect("types");
        let folder = Folder::new();
        let streams = "[{name: 'app.Nasty \"T\"'}]";
        let pipeline = copy(&source, &target, streams, &format!("load_method: {method}"));
        let report = folder.report(&pipeline);
        assert_eq!(report["rows"], 5001, "{method}");
        assert_eq!(content(&mut client, table), expected, "{method}");
        let there = columns(&mut client, table);
        assert_eq!(there, columns(&mut source.client(), table), "{method}");
        // Appended once more, into a table that is there.
        client
            .batch_execute(&format!("TRUNCATE {table}"))
            .expect("an empty table");
        folder.report(&pipeline);
        assert_eq!(content(&mut client, table), expected, "{method}, again");
    }
}

#[test]
fn columns_where_and_rename_are_obeyed() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute(
            "CREATE TABLE t AS SELECT i, i * 2 AS twice, 'x' AS z, json '1' AS doc FROM generate_series(1, 10) i",
        )
        .expect("a table");
    let streams =
        "[{name: public.t, columns: [twice, i], where: 'i > 7', rename: {twice: double}}]";
    let report = Folder::new().report(&copy(&source, &target, streams, "schema: raw"));
    assert_eq!(report["rows"], 3);
    let row = target
        .client()
        .query_one("SELECT sum(double), sum(i) FROM raw.t", &[]);
    let row = row.expect("sums");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (54, 27));
    let wrong = streams.replace("i > 7", "no_such > 7");
    let pipeline = copy(&source, &target, &wrong, "schema: raw");
    Folder::new().refuses(&pipeline, "invalid_where", 2, &["no_such", "public.t"]);
    // It points at the key in the file, and a parameter is refused by the plan.
    let by = "sync_mode: incremental, cursor_field";
    for (code, key, settings) in [
        ("invalid_where", "where", "where: 'no_such > 7'".to_owned()),
        ("invalid_where", "where", "where: 'i = $$1'".to_owned()),
        ("invalid_lag", "lag", format!("lag: soon, {by}: i")),
        (
            "unusable_cursor_field",
            "cursor_field",
            "cursor_field: doc, sync_mode: incremental".to_owned(),
        ),
        (
            "invalid_cursor_initial",
            "cursor_initial",
            format!("cursor_initial: soon, {by}: i"),
        ),
    ] {
        let folder = Folder::new();
        let text = format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{{ name: public.t,\n    \
             {settings} }}]\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: other }}, write_mode: upsert, primary_key: [i] }}\n",
            source.url(),
            target.url()
        );
        folder.write("p.yaml", &text);
        let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stdout);
        let error: Vec<serde_json::Value> = serde_json::Deserializer::from_str(&ended.stdout)
            .into_iter()
            .map(|document| document.expect("JSON"))
            .collect();
        let error = &error.last().expect("an error")["error"];
        assert_eq!(error["code"], code, "{error:#}");
        assert_eq!(
            error["key"],
            format!("source.streams[0].{key}"),
            "{error:#}"
        );
        let column = "    ".len() + key.len() + ": ".len() + 1;
        assert_eq!(error["location"], format!("p.yaml:7:{column}"), "{error:#}");
    }
}

#[test]
fn a_new_table_has_the_sources_key_if_all_of_it_moves() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute(
            "CREATE TABLE t (a int, \"B\" text, c int, PRIMARY KEY (\"B\", a)); INSERT INTO t VALUES (1, 'x', 2);
             CREATE TABLE mother (a int PRIMARY KEY); CREATE TABLE daughter () INHERITS (mother);
             INSERT INTO mother VALUES (1); INSERT INTO daughter VALUES (1)",
        )
        .expect("tables");
    let mut client = target.client();
    let mut key = |streams: &str, schema: &str, table: &str| {
        let pipeline = copy(&source, &target, streams, &format!("schema: {schema}"));
        Folder::new().report(&pipeline);
        let sql = format!(
            "SELECT coalesce(max(pg_get_constraintdef(oid)), 'none') FROM pg_constraint \
             WHERE conrelid = '{schema}.{table}'::regclass AND contype = 'p'"
        );
        client
            .query_one(&sql, &[])
            .expect("a key")
            .get::<_, String>(0)
    };
    let whole = key("[public.t]", "whole", "t");
    assert_eq!(whole, "PRIMARY KEY (\"B\", a)");
    let renamed = "[{name: public.t, columns: [c, a, B], rename: {a: id, c: a}}]";
    assert_eq!(key(renamed, "renamed", "t"), "PRIMARY KEY (\"B\", id)");
    assert_eq!(
        key("[{name: public.t, columns: [B, c]}]", "part", "t"),
        "none"
    );
    // The rows of both, which have the same key.
    assert_eq!(key("[public.mother]", "family", "mother"), "none");
    let again = copy(&source, &target, "[public.t]", "schema: whole");
    let (error, exit) = Folder::new().error(&again);
    assert_eq!(
        (error["code"].as_str(), exit),
        (Some("pg_23505"), 4),
        "{error:#}"
    );
}

#[test]
fn replace_shows_the_old_rows_or_the_new() {
    let (source, target) = (shared().database(), shared().database());
    let seed = "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)";
    source.client().batch_execute(seed).expect("a table");
    let mut client = target.client();
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY, more text DEFAULT 'd'); INSERT INTO t VALUES (-1); CREATE VIEW v AS SELECT a FROM t")
        .expect("a table");
    let pipeline = copy(&source, &target, "[public.t]", "").replace("append", "replace");
    let folder = Folder::new();
    folder.report(&pipeline);
    assert_eq!(content(&mut client, "v").0, 100);
    source
        .client()
        .batch_execute("DELETE FROM t")
        .expect("no rows");
    assert_eq!(folder.report(&pipeline)["rows"], 0);
    assert_eq!(content(&mut client, "t").0, 0);
}

#[test]
fn a_table_is_not_replaced_by_itself() {
    let database = shared().database();
    let mut client = database.client();
    let table = "CREATE TABLE t AS SELECT i FROM generate_series(1, 10) i";
    client.batch_execute(table).expect("a table");
    let before = content(&mut client, "t");
    let streams = "[{name: public.t, where: 'i > 5'}]";
    for mode in ["replace", "append"] {
        let pipeline = copy(&database, &database, streams, "").replace("append", mode);
        let parts = ["public.t is the table that the stream is read from"];
        Folder::new().refuses(&pipeline, "target_is_source", 2, &parts);
        assert_eq!(content(&mut client, "t"), before, "{mode}");
    }
    let elsewhere = copy(&database, &database, streams, "table: u").replace("append", "replace");
    for _ in 0..2 {
        assert_eq!(Folder::new().report(&elsewhere)["rows"], 5);
    }
}

#[test]
fn a_failed_run_leaves_nothing_in_the_target() {
    let (source, target) = (shared().database(), shared().database());
    let seed = "CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 1000); INSERT INTO t VALUES (1)";
    source.client().batch_execute(seed).expect("a table");
    let mut client = target.client();
    client
        .batch_execute("CREATE TABLE t (a int UNIQUE)")
        .expect("a table");
    let (error, code) = Folder::new().error(&copy(&source, &target, "[public.t]", ""));
    assert_eq!(
        (error["code"].as_str(), code),
        (Some("pg_23505"), 4),
        "{error:#}"
    );
    assert_eq!(content(&mut client, "t").0, 0);
}

/// Starts a run, waits until its rows are being copied, and lets `fault` happen to the server.
fn run_into(server: &mut Server, pipeline: &str, fault: impl FnOnce(&mut Server)) -> Ended {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline);
    let child = folder
        .command(&["run", "p.yaml", "--output", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    wait_for_copy(&mut server.client("postgres"));
    fault(server);
    child.wait_with_output().expect("it ends").into()
}

/// Returns when rows are being copied into a table of the client's database.
fn wait_for_copy(client: &mut Client) {
    let copying = "SELECT count(*) FROM pg_stat_progress_copy WHERE command = 'COPY FROM' \
                   AND tuples_processed > 0 AND datname = current_database()";
    let begin = std::time::Instant::now();
    while client
        .query_one(copying, &[])
        .expect("a count")
        .get::<_, i64>(0)
        == 0
    {
        assert!(begin.elapsed().as_secs() < 60, "no row was copied");
    }
}

#[test]
fn a_target_that_stops_in_the_middle_is_named_and_keeps_its_rows() {
    let mut server = Server::start(&Options::default()).expect("a server");
    // Not endless: what is not stopped may not fill a disk.
    let pipeline = |rows: u32| {
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-generate, config: {{ rows: {rows}, preset: narrow, streams: [t] }}, streams: [t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: replace }}\n",
            server.url("postgres")
        )
    };
    let (few, many) = (pipeline(10), pipeline(2_000_000));
    Folder::new().report(&few);
    let ended = run_into(&mut server, &many, Server::stop);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
    let error = &document["error"];
    assert_eq!(ended.code, Some(3), "{error:#}");
    assert_eq!(error["connector"], "dest-postgres", "{error:#}");
    assert_eq!(error["stream"], "t", "{error:#}");
    server.run_again().expect("the same data");
    assert_eq!(content(&mut server.client("postgres"), "t").0, 10);
    // The next run is good.
    assert_eq!(Folder::new().report(&few)["rows"], 10);
}

#[test]
fn a_source_that_stops_in_the_middle_is_named_and_nothing_arrives() {
    let mut server = Server::start(&Options::default()).expect("a server");
    server
        .client("postgres")
        .batch_execute(
            "CREATE TABLE t AS SELECT i AS id, repeat('x', 200) AS s FROM generate_series(1, 1000000) i",
        )
        .expect("a table");
    let target = shared().database();
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: append }}\n",
            server.url("postgres"),
            target.url()
        ),
    );
    let child = folder
        .command(&["run", "p.yaml", "--output", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    wait_for_copy(&mut target.client());
    server.stop();
    let ended: Ended = child.wait_with_output().expect("it ends").into();
    let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
    let error = &document["error"];
    assert_eq!(ended.code, Some(3), "{error:#}");
    assert_eq!(error["connector"], "source-postgres", "{error:#}");
    assert_eq!(error["stream"], "public.t", "{error:#}");
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 't'";
    let row = target.client().query_one(tables, &[]).expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[test]
fn a_full_disk_of_the_server_is_reported_and_the_next_run_succeeds() {
    let Some(disk) = SmallDisk::mount(8).unwrap_or_else(|failure| panic!("{failure}")) else {
        eprintln!("SKIPPED: this account may not mount a file system");
        return;
    };
    let server = Server::start(&Options::default()).expect("a server");
    let mut client = server.client("postgres");
    client
        .batch_execute(&format!(
            "CREATE TABLESPACE small LOCATION '{}'",
            disk.path().display()
        ))
        .expect("a tablespace");
    let pipeline = |rows: u32, method: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-generate, config: {{ rows: {rows}, columns: {{ id: int64, note: string }}, streams: [t] }}, streams: [t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", load_method: {method} }}, write_mode: append }}\n",
            server.url("postgres")
        )
    };
    const CREATE: &str = "CREATE TABLE t (id int8, note text) TABLESPACE small";
    for method in ["copy", "insert"] {
        client.batch_execute(CREATE).expect("a table");
        let (error, code) = Folder::new().error(&pipeline(2_000_000, method));
        assert_eq!(error["code"], "pg_53100", "{error:#}");
        assert_eq!(error["connector"], "dest-postgres", "{error:#}");
        assert!(
            error["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("disk"))
        );
        assert_eq!(code, 1, "{error:#}");
        assert_eq!(content(&mut client, "t").0, 0);
        // Dropping the table frees the space of the failed load.
        client.batch_execute("DROP TABLE t").expect("space");
    }
    client.batch_execute(CREATE).expect("a table");
    Folder::new().report(&pipeline(100, "copy"));
    assert_eq!(content(&mut client, "t").0, 100);
}

#[test]
fn wrong_servers_and_credentials_are_told_apart() {
    let database = shared().database();
    database
        .client()
        .batch_execute("CREATE TABLE t (a int)")
        .expect("a table");
    let good = copy(&database, &database, "[public.t]", "schema: raw");
    let good = format!("{good}\nretry: {{ max_attempts: 1 }}\n");
    let url = database.url();
    let port = shared().port().to_string();
    let name = database.name();
    let cases = [
        (
            url.replace(&format!(":{port}/"), ":1/"),
            "connect_failed",
            3,
        ),
        (url.replace(name, "nowhere"), "pg_3D000", 2),
        (database.url_of("postgres", "wrong"), "pg_28P01", 3),
        (database.url_of("nobody", PASSWORD), "pg_28P01", 3),
        (
            url.replace("127.0.0.1", "host.invalid"),
            "connect_failed",
            3,
        ),
        (format!("{url}?sslmode=require"), "tls_required", 2),
        (format!("{url}?sslmoed=require"), "invalid_url", 2),
    ];
    for (wrong, code, exit) in cases {
        let pipeline = good.replacen(&url, &wrong, 1);
        let (error, exited) = Folder::new().error(&pipeline);
        assert_eq!(
            (error["code"].as_str(), exited),
            (Some(code), exit),
            "{error:#}"
        );
        assert!(error["hint"].is_string(), "{error:#}");
    }
    let missing = good.replace("public.t", "public.tt");
    Folder::new().refuses(
        &missing,
        "unknown_stream",
        2,
        &["did you mean \"public.t\""],
    );
}

#[test]
fn tables_go_to_files_and_back() {
    let source = shared().database();
    source
        .client()
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, n numeric(12, 2), s text, u uuid, at timestamptz, d date, b boolean, f float8);
             INSERT INTO t SELECT i, i * 1.01, E'a,\"\n' || i, md5(i::text)::uuid, '2024-01-01 00:00:00.000001Z'::timestamptz + i * '1 min'::interval, '2024-01-01'::date + i, i % 2 = 0, i / 3.0 FROM generate_series(1, 1000) i;
             INSERT INTO t (id) VALUES (0)",
        )
        .expect("a table");
    let expected = content(&mut source.client(), "t");
    for format in ["csv", "jsonl"] {
        let folder = Folder::new();
        folder.report(&format!(
            "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-file, config: {{ path: \"t.{format}\" }}, write_mode: replace }}\n",
            source.url()
        ));
        let target = shared().database();
        let mut client = target.client();
        client
            .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, n numeric(12, 2), s text, u uuid, at timestamptz, d date, b boolean, f float8)")
            .expect("a table");
        folder.report(&format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  config:\n    path: t.{format}\n    \
             schema: {{ id: int64, n: \"decimal(12, 2)\", s: string, u: uuid, at: timestamptz, d: date, b: bool, f: float64 }}\n  \
             streams: [t]\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: public }}, write_mode: append }}\n",
            target.url()
        ));
        assert_eq!(content(&mut client, "t"), expected, "{format}");
    }
}

#[test]
fn strings_in_documents_stay_strings_through_json_lines() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            r#"CREATE TABLE t (id bigint PRIMARY KEY, j jsonb);
               INSERT INTO t VALUES (1, '"5"'), (2, '"null"'), (3, '"{\"a\": 1}"'), (4, '"a\nb"'), (5, NULL);
               CREATE TABLE jsonb_of (id bigint, doc jsonb); CREATE TABLE json_of (id bigint, doc json)"#,
        )
        .expect("tables");
    let folder = Folder::new();
    let url = database.url();
    folder.report(&format!(
        "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{url}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"t.jsonl\" }}, write_mode: replace }}\n"
    ));
    for (schema, table) in [
        ("", "jsonb_of"),
        ("", "json_of"),
        (", schema: { id: int64, j: string }", "jsonb_of"),
    ] {
        let pipeline = format!(
            "version: 1\npipeline: back\nsource:\n  use: source-file\n  config: {{ path: t.jsonl{schema} }}\n  \
             streams: [{{ name: t, columns: [j, id], rename: {{ j: doc }} }}]\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{url}\", schema: public, table: {table} }}, \
             write_mode: replace }}\n"
        );
        folder.report(&pipeline);
        let planned = folder.rapidbyte(&["plan", "p.yaml"]);
        let said = planned.stdout + &planned.stderr;
        assert!(said.contains("texts become JSON strings"), "{said}");
        let differ = format!(
            "SELECT count(*) FROM t FULL JOIN {table} USING (id) WHERE j IS DISTINCT FROM doc::jsonb"
        );
        let count: i64 = client.query_one(&differ, &[]).expect("a count").get(0);
        assert_eq!(count, 0, "{table}{schema}");
    }
}

/// Every output of every test is searched; here are the ways in which a secret comes in.
#[test]
fn a_password_is_in_no_output_and_no_file() {
    let database = shared().database();
    database
        .client()
        .batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        .expect("a table");
    let url = database.url();
    let (port, name) = (shared().port(), database.name());
    let quoted = Value::from(PASSWORD);
    let fields = |password: &str| {
        format!(
            "host: 127.0.0.1, port: {port}, user: postgres, database: {name}, password: {password}"
        )
    };
    let elsewhere = database.url_of("nobody", PASSWORD);
    for (config, is_right) in [
        (format!("url: \"{url}\""), true),
        ("url: \"${SOURCE_URL}\"".to_owned(), true),
        (fields(&quoted.to_string()), true),
        (fields("\"${PASSWORD_OF_THE_ENV_FILE}\""), true),
        (fields("\"${file:password.txt}\""), true),
        (format!("url: \"{url}_nowhere\""), false),
        (format!("url: \"{url}?sslmode=require\""), false),
        (format!("url: \"{url}?nonsense=1\""), false),
        (format!("url: \"{elsewhere}\""), false),
        (fields(&format!("[{quoted}]")), false),
        (
            format!("{}, nonsense: 1", fields(&quoted.to_string())),
            false,
        ),
    ] {
        let folder = Folder::new();
        folder.write("password.txt", format!("{PASSWORD}\n"));
        folder.write(".env", format!("PASSWORD_OF_THE_ENV_FILE={quoted}\n"));
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ {config} }}, streams: [public.t] }}\n\
                 destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n"
            ),
        );
        for verb in ["check", "discover", "plan", "run"] {
            for format in ["text", "json"] {
                let ended: Ended = folder
                    .command(&[
                        verb,
                        "-v",
                        "p.yaml",
                        "--output",
                        format,
                        "--log-format",
                        format,
                    ])
                    .env("SOURCE_URL", &url)
                    .output()
                    .expect("the program starts")
                    .into();
                assert_eq!(ended.code == Some(0), is_right, "{config}: {ended:?}");
            }
        }
    }
}

#[test]
fn nothing_is_taken_from_the_environment_that_the_pipeline_does_not_name() {
    let database = shared().database();
    database
        .client()
        .batch_execute("CREATE TABLE t (a int)")
        .expect("a table");
    let url = database.url();
    let (_, server) = url.rsplit_once('@').expect("a host");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"postgres://postgres@{server}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-file, config: {{ path: t.csv }}, write_mode: replace }}\n"
        ),
    );
    let ended: Ended = folder
        .command(&["run", "p.yaml"])
        .env("PGPASSWORD", PASSWORD)
        .env("PGSSLMODE", "verify-full")
        .env("PGOPTIONS", "-c nonsense=1")
        .output()
        .expect("the program starts")
        .into();
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("password_missing"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_plan_shows_types_and_statements_and_changes_nothing() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute("CREATE TABLE t (a numeric(10, 2) NOT NULL, b varchar(7), PRIMARY KEY (a)); COMMENT ON TABLE t IS 'of things'")
        .expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        copy(&source, &target, "[public.t]", "schema: raw"),
    );
    let plan = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_str(&plan.stdout).expect("one document");
    let stream = &plan["streams"][0];
    assert_eq!(stream["columns"][0]["source_type"], "numeric(10,2)");
    assert_eq!(stream["columns"][0]["target_type"], "numeric(10,2)");
    assert_eq!(stream["columns"][0]["fit"], "exact");
    let statements = stream["statements"].to_string();
    for part in ["CREATE TABLE", "COMMENT ON TABLE raw.t IS 'of things'"] {
        assert!(statements.contains(part), "{statements}");
    }
    let there = target
        .client()
        .query_one("SELECT to_regclass('raw.t') IS NULL", &[]);
    assert!(
        there.expect("an answer").get::<_, bool>(0),
        "plan changes nothing"
    );
}

#[test]
fn the_example_pipeline_runs() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT a + 1 AS b FROM t")
        .expect("a table");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pipelines/postgres.yaml");
    for _ in 0..2 {
        let ended: Ended = Folder::new()
            .command(&["run", example])
            .env("SOURCE_URL", source.url())
            .env("TARGET_URL", target.url())
            .output()
            .expect("the program starts")
            .into();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let row = target
        .client()
        .query_one("SELECT a, b FROM raw.t, raw.v", &[]);
    let row = row.expect("one row in each");
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (1, 2));
}

#[test]
fn a_partition_as_a_stream_names_the_table_that_it_belongs_to() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE events (id bigint, at date) PARTITION BY RANGE (at); \
        CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') \
            PARTITION BY RANGE (at); \
        CREATE TABLE \"may.2026\" PARTITION OF events_2026 FOR VALUES FROM ('2026-05-01') TO ('2026-06-01'); \
        INSERT INTO events VALUES (1, '2026-05-01'); CREATE TABLE plain (id bigint)";
    client.batch_execute(sql).expect("tables");
    let folder = Folder::new();
    let pipeline = |stream: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [public.plain, '{stream}']\n\
             destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n",
            database.url()
        )
    };
    for stream in ["public.events_2026", "public.\"may.2026\""] {
        folder.refuses(
            &pipeline(stream),
            "not_a_stream",
            4,
            &[
                "p.yaml:6",
                "source.streams[1]",
                &format!("{stream} is a partition of public.events"),
                "write public.events instead",
                "where:",
            ],
        );
    }
    folder.refuses(
        &pipeline("public.event"),
        "unknown_stream",
        2,
        &["did you mean \"public.events\"?"],
    );
    // A wildcard reads the rows once.
    let report = folder.report(&pipeline("public.e*"));
    assert_eq!(report["rows"], 1, "{report:#}");
}
