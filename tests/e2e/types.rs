//! Every type that the server knows, from table to table, with values at its edges and random
//! ones: exact, or refused by name before the first row.
//!
//! `types/user.sql` makes types of every user-defined kind, `types/values.sql` says which values a
//! base type has, `types/build.sql` lists `pg_type` and makes one table for each type. A type of
//! the server that `values.sql` does not know fails the test.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::Value;

use crate::support::Folder;

/// Types that are in the source alone: enums and domains are made in the target.
const ONLY_SOURCE: &str = r#"
CREATE TYPE app."Made" AS ENUM ('x', 'it''s', 'back\slash');
CREATE DOMAIN app.made AS app."Made"[] DEFAULT '{}' CHECK (cardinality(VALUE) < 100);
CREATE DOMAIN "Näs.ty ""S"""."Made it" AS numeric(30, 5) NOT NULL CHECK (VALUE <> 'NaN');
ALTER DOMAIN "Näs.ty ""S"""."Made it" DROP NOT NULL;
"#;

/// In each database; a server may lack some.
const EXTENSIONS: [&str; 9] = [
    "hstore",
    "citext",
    "ltree",
    "cube",
    "seg",
    "pg_trgm",
    "btree_gist",
    "intarray",
    "isn",
];

/// Settings that fix how values are written as text.
pub(crate) const TEXT: &str = "SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; \
                    SET extra_float_digits = 1; SET bytea_output = 'hex'; SET search_path = '';";

/// Types whose values the server itself cannot read, neither as text nor as bytes, with their arrays. A type
/// of an extension counts only where the server has the extension.
const REFUSED: [&str; 17] = [
    "pg_catalog_gtsvector",
    "pg_catalog_pg_brin_bloom_summary",
    "pg_catalog_pg_brin_minmax_multi_summary",
    "pg_catalog_pg_dependencies",
    "pg_catalog_pg_mcv_list",
    "pg_catalog_pg_ndistinct",
    "pg_catalog_pg_node_tree",
    "public_gbtreekey16",
    "public_gbtreekey2",
    "public_gbtreekey32",
    "public_gbtreekey4",
    "public_gbtreekey8",
    "public_gbtreekey_var",
    "public_ghstore",
    "public_gtrgm",
    "public_intbig_gkey",
    "public_ltree_gist",
];

pub(crate) fn run_sql(client: &mut Client, what: &str, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|error| panic!("{what}: {error:?}"));
}

fn extensions(client: &mut Client) {
    for name in EXTENSIONS {
        let made = client.batch_execute(&format!("CREATE EXTENSION {name} SCHEMA public"));
        if let Err(error) = made {
            println!("SKIPPED: the types of {name}: {error}");
        }
    }
}

/// The tables, one for each type.
fn fill(database: &Database<'_>) -> Vec<String> {
    let mut client = database.client();
    extensions(&mut client);
    run_sql(&mut client, "user.sql", include_str!("types/user.sql"));
    run_sql(&mut client, "types", ONLY_SOURCE);
    run_sql(
        &mut client,
        "schemas",
        "CREATE SCHEMA gen; CREATE SCHEMA types;",
    );
    run_sql(&mut client, "values.sql", include_str!("types/values.sql"));
    run_sql(&mut client, "build.sql", include_str!("types/build.sql"));
    run_sql(&mut client, "build", "SELECT gen.build(10000, 1000, 200)");
    run_sql(&mut client, "modified", "SELECT gen.modified(200)");
    let sql = "SELECT relname::text FROM pg_class WHERE relnamespace = 'types'::regnamespace AND relkind = 'r' ORDER BY 1";
    let rows = client.query(sql, &[]).expect("tables");
    rows.iter().map(|row| row.get(0)).collect()
}

/// An empty database whose types have other OIDs.
fn target(shift: usize) -> Database<'static> {
    let database = shared().database();
    let mut client = database.client();
    for at in 0..shift {
        let sql = format!("CREATE TYPE shift_{at} AS ENUM ('a'); CREATE TABLE other_{at} (a int)");
        run_sql(&mut client, "shift", &sql);
    }
    extensions(&mut client);
    run_sql(&mut client, "user.sql", include_str!("types/user.sql"));
    database
}

fn pipeline(from: &Database<'_>, to: &Database<'_>, tables: &[String], more: &str) -> String {
    let streams: Vec<String> = tables.iter().map(|name| stream_of(name)).collect();
    format!(
        "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: {} }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", {more} }}, write_mode: append }}\n\
         resources: {{ parallelism: 2 }}\n",
        from.url(),
        serde_json::json!(streams),
        to.url()
    )
}

/// The stream of a table: only a name with a dot is quoted.
fn stream_of(table: &str) -> String {
    match table.contains('.') {
        true => quoted(table),
        false => format!("types.{table}"),
    }
}

fn quoted(table: &str) -> String {
    format!("types.\"{}\"", table.replace('"', "\"\""))
}

/// The declared type of `v`, the number of rows and a hash of all of them.
fn content(client: &mut Client, table: &str) -> (String, i64, String) {
    let name = quoted(table);
    let sql = format!(
        "SELECT (SELECT format_type(atttypid, atttypmod) FROM pg_attribute
                 WHERE attrelid = $1::text::regclass AND attname = 'v'),
             count(*), coalesce(md5(string_agg(md5(t::text), ',' ORDER BY id)), '') FROM {name} t"
    );
    let row = client.query_one(&sql, &[&name]);
    let row = row.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    (row.get(0), row.get(1), row.get(2))
}

/// The first value that differs, for the message.
fn difference(source: &mut Client, target: &mut Client, table: &str) -> String {
    let sql = format!("SELECT v::text FROM {} ORDER BY id", quoted(table));
    let read = |client: &mut Client| -> Vec<Option<String>> {
        let rows = client.query(&sql, &[]).expect("values");
        rows.iter().map(|row| row.get(0)).collect()
    };
    let (from, to) = (read(source), read(target));
    let pairs = from.iter().zip(&to).enumerate();
    let first = pairs.filter(|(_, (a, b))| a != b).take(1);
    format!("{first:?}", first = first.collect::<Vec<_>>())
}

/// Compares table by table; gives what differs.
fn compare(source: &Database<'_>, target: &Database<'_>, tables: &[String]) -> Vec<String> {
    let (mut source, mut target) = (source.client(), target.client());
    run_sql(&mut source, "settings", TEXT);
    run_sql(&mut target, "settings", TEXT);
    let mut wrong = Vec::new();
    for table in tables {
        let (from, to) = (content(&mut source, table), content(&mut target, table));
        if from != to {
            let first = difference(&mut source, &mut target, table);
            wrong.push(format!("{table}: {from:?} became {to:?}: {first}"));
        }
    }
    wrong
}

/// The tables that the plan refuses, each with the reason.
fn refused(pipeline: &str, tables: &[String]) -> Vec<(String, String)> {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline);
    let plan = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    // The plan, and after it the error of what is refused.
    let mut documents = serde_json::Deserializer::from_str(&plan.stdout).into_iter();
    let plan: Value = documents.next().expect("a plan").expect("JSON");
    let mut refused = Vec::new();
    for stream in plan["streams"]
        .as_array()
        .unwrap_or_else(|| panic!("{plan:#}"))
    {
        for column in stream["columns"].as_array().expect("columns") {
            if column["fit"] != "exact" && column["fit"] != "checked" {
                let name = stream["name"].as_str().expect("a name");
                let table = tables.iter().find(|table| stream_of(table) == name);
                let table = table.expect("a stream that was asked for");
                refused.push((table.clone(), column["note"].to_string()));
            }
        }
    }
    refused
}

#[test]
fn every_type_of_the_server_arrives_or_is_refused_by_name() {
    let source = shared().database();
    let tables = fill(&source);
    assert!(tables.len() > 230, "{} tables", tables.len());
    let (copied, inserted) = (target(3), target(17));
    let refused = refused(
        &pipeline(&source, &copied, &tables, "load_method: copy"),
        &tables,
    );
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    let is_refused = |table: &&String| {
        let name = table.strip_prefix("t_").unwrap_or_default();
        let element = name.replacen("_catalog__", "_catalog_", 1);
        let element = element.replacen("public__", "public_", 1);
        REFUSED.contains(&element.as_str())
    };
    let expected: Vec<&String> = tables.iter().filter(is_refused).collect();
    assert!(expected.len() >= 8, "{expected:?}");
    assert_eq!(names, expected);
    let moving: Vec<String> = tables
        .iter()
        .filter(|name| !names.contains(&name.as_str()))
        .cloned()
        .collect();
    for (to, method) in [(&copied, "copy"), (&inserted, "insert")] {
        let pipeline = pipeline(&source, to, &moving, &format!("load_method: {method}"));
        let folder = Folder::new();
        let report = folder.report(&pipeline);
        assert_eq!(
            report["streams"].as_array().map(Vec::len),
            Some(moving.len())
        );
        let wrong = compare(&source, to, &moving);
        assert!(wrong.is_empty(), "{method}: {wrong:#?}");
        if method == "copy" {
            let verified = folder.rapidbyte(&["verify", "p.yaml"]);
            assert_eq!(
                verified.code,
                Some(0),
                "{}{}",
                verified.stdout,
                verified.stderr
            );
            assert_eq!(verified.stdout.matches(": equal, ").count(), moving.len());
        }
    }
    let empty = target(1);
    for table in names.iter().step_by(4) {
        let all = ["t_pg_catalog_int4".to_owned(), (*table).to_owned()];
        let pipeline = pipeline(&source, &empty, &all, "load_method: copy");
        let pipeline = format!("{}\non_stream_failure: stop\n", pipeline.trim_end());
        let (error, code) = Folder::new().error(&pipeline);
        assert_eq!((error["code"].as_str(), code), (Some("column_refused"), 4));
        assert_eq!(error["stream"], stream_of(table));
        assert_eq!(error["column"], "v");
        let reason = error["message"].as_str().expect("a reason");
        assert!(reason.starts_with("only the server itself"), "{reason}");
        let sql = "SELECT to_regclass('types.t_pg_catalog_int4') IS NULL";
        let nothing = empty.client().query_one(sql, &[]).expect("an answer");
        assert!(nothing.get::<_, bool>(0), "nothing moved before {table}");
    }
}

/// The server describes a domain in a query as the type below it, so the declared types may differ.
#[test]
fn every_type_arrives_by_a_query_with_the_same_values() {
    let source = shared().database();
    let tables = fill(&source);
    let to = target(5);
    let by_name = pipeline(&source, &to, &tables, "load_method: copy");
    let refused: Vec<String> = refused(&by_name, &tables)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let tables: Vec<String> = tables
        .into_iter()
        .filter(|name| !refused.contains(name))
        .collect();
    let streams = tables.iter().map(|table| {
        let query = format!("SELECT * FROM {}", quoted(table));
        serde_json::json!({ "name": stream_of(table), "query": query })
    });
    let streams = Value::Array(streams.collect()).to_string();
    let names = serde_json::json!(
        tables
            .iter()
            .map(|name| stream_of(name))
            .collect::<Vec<_>>()
    );
    let by_query =
        pipeline(&source, &to, &tables, "load_method: copy").replace(&names.to_string(), &streams);
    assert!(by_query.contains("SELECT * FROM"));
    Folder::new().report(&by_query);
    let (mut from, mut into) = (source.client(), to.client());
    run_sql(&mut from, "settings", TEXT);
    run_sql(&mut into, "settings", TEXT);
    let mut others = 0;
    for table in &tables {
        let (before, after) = (content(&mut from, table), content(&mut into, table));
        assert_eq!((before.1, before.2), (after.1, after.2), "{table}");
        let sql = "SELECT EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
                   WHERE a.attrelid = $1::text::regclass AND a.attname = 'v' AND t.typtype = 'd')";
        let is_domain = from.query_one(sql, &[&quoted(table)]).expect("a type");
        others += usize::from(before.0 != after.0);
        assert!(
            before.0 == after.0 || is_domain.get(0),
            "{table}: {} became {}",
            before.0,
            after.0
        );
    }
    assert!(others > 0, "a domain became the type below it");
}

/// Types that CSV and JSON Lines hold: the type in SQL, the type in a declared schema, random values
/// (as in `values.sql`), values at the edges.
pub(crate) const PORTABLE: [(&str, &str, &str, &str); 22] = [
    ("boolean", "bool", "i % 2 = 0", "{t,f}"),
    (
        "smallint",
        "int16",
        "(i * 7919 % 65536 - 32768)",
        "{-32768,32767}",
    ),
    (
        "integer",
        "int32",
        "('x' || left(h, 8))::bit(32)::int4",
        "{-2147483648}",
    ),
    (
        "bigint",
        "int64",
        "('x' || left(h, 16))::bit(64)::int8",
        "{9223372036854775807}",
    ),
    (
        "real",
        "float32",
        "((0.1 + r) || 'e' || i % 70 - 35)::float4",
        "{-0,1e-45,3.4028235e38}",
    ),
    (
        "double precision",
        "float64",
        "((0.1 + r) || 'e' || i % 600 - 300)::float8",
        "{-0,5e-324,0.1}",
    ),
    (
        "numeric(12,2)",
        "\"decimal(12, 2)\"",
        "(r - 0.5) * 1e9",
        "{9999999999.99,-0.01,0}",
    ),
    (
        "numeric(76,30)",
        "\"decimal(76, 30)\"",
        "(r - 0.5)::numeric * 1e40",
        "{-0.000000000000000000000000000001}",
    ),
    (
        "text",
        "string",
        "s || h",
        r#"{"",NULL,"NULL"," ","\\N","a,\"b","\\"}"#,
    ),
    ("varchar(40)", "string", "s || h", r#"{"","  x  "}"#),
    ("bytea", "binary", "decode(h, 'hex')", r#"{"","\\x00"}"#),
    (
        "uuid",
        "uuid",
        "h::uuid",
        "{00000000-0000-0000-0000-000000000000}",
    ),
    (
        "jsonb",
        "json",
        "jsonb_build_object(s, r, 'a', h)",
        r#"{"{}","[1, null, \"é\"]","1e30","\"\""}"#,
    ),
    (
        "date",
        "date",
        "'0001-01-01'::date + (r * 3652058)::int4",
        "{0001-01-01,9999-12-31,1970-01-01}",
    ),
    (
        "time",
        "time",
        "'00:00'::time + r * '24 h'::interval",
        "{00:00:00,23:59:59.999999}",
    ),
    (
        "timestamp",
        "timestamp",
        "'0001-01-01'::timestamp + r * '9998 years'::interval",
        "{1969-12-31 23:59:59.999999}",
    ),
    (
        "timestamptz",
        "timestamptz",
        "'0001-01-02Z'::timestamptz + r * '9997 years'::interval",
        "{9999-12-31 23:59:59.999999Z}",
    ),
    (
        "interval",
        "interval",
        "make_interval(i % 100 - 50, i % 12, 0, i - 500, 0, 0, r * 1e6 - 5e5)",
        "{1 mon -3 days 00:00:00.000001}",
    ),
    (
        "integer[]",
        "list<int32>",
        "ARRAY[i, NULL, -i]",
        r#"{"{}","{NULL}"}"#,
    ),
    (
        "text[]",
        "list<string>",
        "ARRAY[s, NULL, h]",
        r#"{"{}","{\"\",\"a,\\\"b\"}"}"#,
    ),
    (
        "numeric(10,2)[]",
        "\"list<decimal(10, 2)>\"",
        "ARRAY[i, NULL, r * 1e6]",
        r#"{"{-0.01}"}"#,
    ),
    ("uuid[]", "list<uuid>", "ARRAY[h::uuid]", r#"{"{}"}"#),
];

/// A table of one column `v` for each type, with `id`.
pub(crate) fn fill_portable(client: &mut Client, rows: u32) {
    run_sql(client, "seed", "SELECT setseed(0.25)");
    for (at, (sql_type, _, expression, edges)) in PORTABLE.iter().enumerate() {
        let sql = format!(
            r"CREATE TABLE t{at} (id bigint, v {sql_type});
              INSERT INTO t{at} SELECT -n, e::{sql_type} FROM unnest('{edges}'::text[]) WITH ORDINALITY AS u(e, n);
              INSERT INTO t{at} VALUES (0, NULL);
              INSERT INTO t{at} SELECT i, ({expression})::{sql_type} FROM (
                  SELECT i, md5(i::text) AS h, random() AS r, (ARRAY['', ' ', ',', '#', '''', E'\n', E'\r\n',
                      E'\t', '\', 'é', '日本', '🦀', 'null', '{{', ';', chr(34)])[1 + i % 16] AS s
                  FROM generate_series(1, {rows}) AS i) AS x"
        );
        run_sql(client, sql_type, &sql);
    }
}

pub(crate) fn hash(client: &mut Client, table: &str) -> (i64, String) {
    let sql =
        format!("SELECT count(*), md5(string_agg(md5(t::text), ',' ORDER BY id)) FROM {table} t");
    let row = client.query_one(&sql, &[]);
    let row = row.unwrap_or_else(|error| panic!("{table}: {error:?}"));
    (row.get(0), row.get(1))
}

pub(crate) fn to_files(source: &Database<'_>, path: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [\"public.*\"] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"{path}\" }}, write_mode: replace }}\n",
        source.url()
    )
}

#[test]
fn values_that_files_hold_come_back_the_same() {
    let source = shared().database();
    let mut client = source.client();
    fill_portable(&mut client, 5000);
    run_sql(&mut client, "settings", TEXT);
    for format in ["csv", "jsonl"] {
        let folder = Folder::new();
        folder.report(&to_files(&source, &format!("{{stream}}.{format}")));
        let target = shared().database();
        let mut there = target.client();
        let mut schemas = String::new();
        for (at, (sql_type, declared, ..)) in PORTABLE.iter().enumerate() {
            let sql = format!("CREATE TABLE public.t{at} (id bigint, v {sql_type})");
            run_sql(&mut there, sql_type, &sql);
            schemas += &format!("      public.t{at}: {{ id: int64, v: {declared} }}\n");
        }
        run_sql(&mut there, "settings", TEXT);
        folder.report(&format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  config:\n    path: \"{{stream}}.{format}\"\n    schemas:\n{schemas}  \
             streams: [\"public.*\"]\ndestination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
            target.url()
        ));
        for (at, (sql_type, ..)) in PORTABLE.iter().enumerate() {
            let table = format!("public.t{at}");
            let (from, to) = (hash(&mut client, &table), hash(&mut there, &table));
            assert_eq!(from, to, "{format}: {sql_type}");
        }
    }
}

#[test]
fn values_that_files_do_not_hold_are_refused() {
    let source = shared().database();
    for (sql_type, value, formats) in [
        ("numeric(12,2)", "NaN", &["csv", "jsonl"][..]),
        ("date", "infinity", &["csv", "jsonl"]),
        ("timestamp", "-infinity", &["csv", "jsonl"]),
        ("time", "24:00:00", &["csv", "jsonl"]),
        ("integer[]", "{{1},{2}}", &["csv", "jsonl"]),
        ("integer[]", "[3:3]={1}", &["csv", "jsonl"]),
        (
            "interval",
            "178000000 years 2562047788:00:54.775807",
            &["csv", "jsonl"],
        ),
        ("double precision", "NaN", &["jsonl"]),
    ] {
        let sql = format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (v {sql_type}); INSERT INTO t VALUES ('{value}')"
        );
        run_sql(&mut source.client(), sql_type, &sql);
        for format in formats {
            let folder = Folder::new();
            let pipeline = to_files(&source, &format!("out/{{stream}}.{format}"));
            let (error, code) = folder.error(&pipeline);
            let found = (error["column"].as_str(), code);
            assert_eq!(found, (Some("v"), 4), "{value} in {format}: {error:#}");
            assert!(folder.files("out").is_empty(), "{value} in {format}");
        }
    }
}

/// Types that do not go back into a table of the same type without a declared schema: the inferred type
/// holds more, or JSON text replaces an array.
const NOT_INFERRED: [(&str, &str, &str); 4] = [
    ("csv", "integer[]", "pg_22P02"),
    ("csv", "text[]", "pg_22P02"),
    ("csv", "numeric(10,2)[]", "pg_22P02"),
    ("csv", "uuid[]", "pg_22P02"),
];

/// Copies a file of `t{at}` back without a declared schema. Gives nothing if every value is unchanged, or
/// else the error's code. `make` creates the table before the run.
fn inferred(
    client: &mut Client,
    folder: &Folder,
    (at, format, sample_rows): (usize, &str, u32),
    make: bool,
) -> Option<String> {
    let sql_type = PORTABLE[at].0;
    let target = shared().database();
    let mut there = target.client();
    if make {
        let sql = format!("CREATE TABLE public.t{at} (id bigint, v {sql_type})");
        run_sql(&mut there, sql_type, &sql);
    }
    run_sql(&mut there, "settings", TEXT);
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-file, config: {{ path: public.t{at}.{format}, \
             stream: public.t{at}, sample_rows: {sample_rows} }}, streams: [\"*\"] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
            target.url()
        ),
    );
    let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    let report: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    if ended.code != Some(0) {
        let sql = format!("SELECT to_regclass('public.t{at}')::text");
        let left: Option<String> = there.query_one(&sql, &[]).expect("an answer").get(0);
        assert_eq!(left.is_some(), make, "{report:#}");
        if make {
            let rows = there.query(&format!("SELECT FROM public.t{at}"), &[]);
            assert!(rows.expect("rows").is_empty(), "{report:#}");
        }
        assert_eq!(ended.code, Some(4), "{report:#}");
        return report["error"]["code"].as_str().map(str::to_owned);
    }
    // A column of text or JSON is compared as its original type, and an array from CSV as JSON.
    let is_json_list = format == "csv" && sql_type.ends_with("[]");
    let (ours, theirs) = match is_json_list {
        true => ("to_jsonb(v)".to_owned(), "v::text::jsonb".to_owned()),
        false => ("v".to_owned(), format!("v::text::{sql_type}")),
    };
    let hash = |client: &mut Client, expression: &str| -> (i64, String) {
        let sql = format!(
            "SELECT count(*), md5(string_agg(coalesce(md5(({expression})::text), ''), ',' ORDER BY id)) FROM public.t{at}"
        );
        let row = client.query_one(&sql, &[]);
        let row = row.unwrap_or_else(|error| panic!("{format} {sql_type}: {error:?}"));
        (row.get(0), row.get(1))
    };
    let (from, to) = (hash(client, &ours), hash(&mut there, &theirs));
    assert_eq!(
        from, to,
        "{format}: {sql_type}, {sample_rows} sampled, made {make}"
    );
    None
}

/// Two tests, as one takes a minute.
#[test]
fn csv_values_are_read_unchanged_without_a_schema_or_refused() {
    is_read_without_a_schema("csv");
}

#[test]
fn jsonl_values_are_read_unchanged_without_a_schema_or_refused() {
    is_read_without_a_schema("jsonl");
}

#[track_caller]
fn is_read_without_a_schema(format: &str) {
    let source = shared().database();
    let mut client = source.client();
    fill_portable(&mut client, 500);
    run_sql(&mut client, "settings", TEXT);
    let mut refused = Vec::new();
    let folder = Folder::new();
    folder.report(&to_files(&source, &format!("{{stream}}.{format}")));
    for (at, (sql_type, ..)) in PORTABLE.iter().enumerate() {
        for (sample_rows, make) in [(10_000, false), (10_000, true), (5, false), (5, true)] {
            let what = (at, format, sample_rows);
            if let Some(code) = inferred(&mut client, &folder, what, make) {
                refused.push(format!("{format} {sql_type} {sample_rows} {make}: {code}"));
            }
        }
    }
    let mut expected: Vec<String> = Vec::new();
    for (of, sql_type, code) in NOT_INFERRED.iter().filter(|(of, ..)| *of == format) {
        let line = |sample| format!("{of} {sql_type} {sample} true: {code}");
        expected.extend([10_000, 5].map(line));
    }
    expected.sort_unstable();
    refused.sort_unstable();
    assert_eq!(refused, expected);
}

/// PostgreSQL does not offer a type for nested columns that a load could create.
#[test]
fn nested_columns_of_a_file_are_refused_by_name_and_load_as_json_where_the_source_declares_that() {
    let database = shared().database();
    let url = database.url();
    let folder = Folder::new();
    let row = r#"{"id":1,"meta":{"a":{"b":[1,2]}},"tags":["x","y"],"items":[{"n":1},{"n":2}]}"#;
    folder.write("in.jsonl", format!("{row}\n"));
    let pipeline = |schema: &str| {
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-file, config: {{ path: in.jsonl{schema} }}, \
             streams: [in] }}\ndestination: {{ use: dest-postgres, config: {{ url: \"{url}\", schema: public }}, \
             write_mode: append }}\n"
        )
    };
    let (error, code) = folder.error(&pipeline(""));
    assert_eq!((error["code"].as_str(), code), (Some("column_refused"), 4));
    let message = error["message"].as_str().expect("a message");
    for column in ["meta", "items"] {
        let told = format!("{column}: write structs and maps as JSON");
        assert!(message.contains(&told), "{told}: {message}");
    }
    assert!(!message.contains("tags"), "{message}");
    let schema = ", schema: { id: int64, meta: json, tags: list<string>, items: json }";
    folder.report(&pipeline(schema));
    let sql = "SELECT pg_typeof(meta)::text || ' ' || (meta->'a'->'b'->>1) || ' ' || pg_typeof(tags)::text || ' ' \
               || tags[2] || ' ' || (items->1->>'n') FROM \"in\"";
    let row = database.client().query_one(sql, &[]).expect("a row");
    assert_eq!(row.get::<_, &str>(0), "json 2 text[] y 2");
}
