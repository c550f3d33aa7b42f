//! Tables between real PostgreSQL databases, and between PostgreSQL and files.

use rapidbyte_testkit::postgres::{Client, Database, shared};
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
fn content(client: &mut Client, table: &str) -> (i64, String) {
    client.batch_execute(TEXT).expect("settings");
    let sql = format!(
        "SELECT count(*), coalesce(md5(string_agg(md5(t::text), ',' ORDER BY md5(t::text))), '') \
         FROM {table} t"
    );
    let row = client.query_one(&sql, &[]).expect("a hash");
    (row.get(0), row.get(1))
}

/// `name type not-null comment` of each column.
fn columns(client: &mut Client, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' \
         || coalesce(col_description(attrelid, attnum), '') FROM pg_attribute \
         WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    );
    let rows = client.query(&sql, &[]).expect("columns");
    rows.iter().map(|row| row.get(0)).collect()
}

fn copy(from: &Database<'_>, to: &Database<'_>, streams: &str, more: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
         streams: {streams}\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{}\", {more} }}\n  \
         write_mode: append\n",
        from.url(),
        to.url()
    )
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
            "CREATE TABLE t AS SELECT i, i * 2 AS twice, 'x' AS z FROM generate_series(1, 10) i",
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
    Folder::new().refuses(&pipeline, "pg_42703", 4, &["no_such", "public.t"]);
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

#[test]
fn wrong_servers_and_credentials_are_told_apart() {
    let database = shared().database();
    database
        .client()
        .batch_execute("CREATE TABLE t (a int)")
        .expect("a table");
    let good = copy(&database, &database, "[public.t]", "schema: raw");
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
        (
            url.replace("127.0.0.1", "host.invalid"),
            "connect_failed",
            3,
        ),
        (format!("{url}?sslmode=require"), "tls_required", 2),
        (format!("{url}?sslmoed=require"), "bad_url", 2),
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

/// Every form in which a secret could slip out.
fn spellings(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let url: String = secret.bytes().map(|b| format!("%{b:02X}")).collect();
    vec![secret.into(), hex, url, base64(secret.as_bytes())]
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    // Only whole groups: enough of it to be found.
    for group in bytes.as_chunks::<3>().0 {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for shift in [18, 12, 6, 0] {
            text.push(LETTERS[(bits >> shift) as usize & 63] as char);
        }
    }
    text
}

#[test]
fn a_password_is_in_no_output_and_no_file() {
    const CANARY: &str = "cAnArY-4711-passw0rd";
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(&format!(
            "CREATE TABLE t (a int); INSERT INTO t VALUES (1); \
             CREATE ROLE canary LOGIN PASSWORD '{CANARY}'; GRANT SELECT ON t TO canary"
        ))
        .expect("a role");
    let url = database.url();
    let (_, rest) = url.rsplit_once('@').expect("a host");
    let literal = format!("postgres://canary:{CANARY}@{rest}");
    for url in [literal.as_str(), "${SOURCE_URL}", "literal and wrong"] {
        let url = if url == "literal and wrong" {
            format!("{literal}_nowhere")
        } else {
            url.to_owned()
        };
        let folder = Folder::new();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{url}\" }}, streams: [public.t] }}\n\
                 destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n"
            ),
        );
        for verb in ["check", "discover", "plan", "run"] {
            for format in ["text", "json"] {
                let ended: Ended = folder
                    .command(&[verb, "-v", "p.yaml", "--output", format])
                    .env("SOURCE_URL", &literal)
                    .output()
                    .expect("the program starts")
                    .into();
                for secret in spellings(CANARY) {
                    let text = format!("{}{}", ended.stdout, ended.stderr);
                    assert!(!text.contains(&secret), "{verb}: {text}");
                }
            }
        }
        for name in folder.files("out") {
            assert!(!folder.read(&format!("out/{name}")).contains(CANARY));
        }
    }
    client
        .batch_execute("DROP OWNED BY canary; DROP ROLE canary")
        .expect("no role");
}

#[test]
fn what_moved_is_planned_before() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute("CREATE TABLE t (a numeric(10, 2) NOT NULL, b varchar(7), PRIMARY KEY (a))")
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
    assert!(statements.contains("CREATE TABLE"), "{statements}");
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
