//! Columns that change within a run, behind the records of the sample.

use rapidbyte_testkit::http::{Reply, Server};
use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::support::{Ended, Folder};

/// Reads `in/*.ENDING` into the table `raw.t`. `config` are keys of the source, `top` and `last` lines of the file.
fn into_table(database: &Database<'_>, source: &str, top: &str, mode: &str) -> String {
    format!(
        "version: 1\npipeline: p\n{top}source:\n{source}  streams: [t]\ndestination:\n  use: dest-postgres\n  \
         config: {{ url: \"{}\", schema: raw }}\n  write_mode: {mode}\nretry: {{ max_attempts: 1 }}\n",
        database.url()
    )
}

fn files(path: &str, more: &str) -> String {
    format!(
        "  use: source-file\n  config: {{ path: \"{path}\", stream: t, sample_rows: 2{more} }}\n"
    )
}

fn run(folder: &Folder, pipeline: &str) -> Ended {
    folder.write("p.yaml", pipeline);
    folder.rapidbyte(&["run", "p.yaml", "--output", "json"])
}

#[track_caller]
fn succeeds(folder: &Folder, pipeline: &str) -> Value {
    let ended = run(folder, pipeline);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// The rows of `raw.t` in the order of their first column, each with the types of its columns.
fn rows(database: &Database<'_>) -> Vec<String> {
    let sql = "SELECT x::text FROM raw.t x ORDER BY 1";
    let rows = database.client().query(sql, &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

fn types(database: &Database<'_>) -> String {
    let sql = "SELECT string_agg(attname || ' ' || atttypid::regtype, ', ' ORDER BY attnum) FROM pg_attribute \
               WHERE attrelid = 'raw.t'::regclass AND attnum > 0 AND NOT attisdropped";
    database
        .client()
        .query_one(sql, &[])
        .expect("columns")
        .get(0)
}

/// Whole numbers in the sample, and what else a text may be behind it.
const CSV: &str = "id,v\n1,10\n2,20\n3,\n4,0.5\n5,7\n";

#[test]
fn a_value_behind_the_sample_widens_the_type_of_a_new_table() {
    for (csv, ty, last) in [
        (CSV, "double precision", "(5,7)"),
        ("id,v\n1,10\n2,20\n3,N/A\n4,007\n5,x\n", "text", "(5,x)"),
    ] {
        let database = shared().database();
        let folder = Folder::new();
        folder.write("in/a.csv", csv);
        let text = into_table(&database, &files("in/*.csv", ""), "", "replace");
        let report = succeeds(&folder, &text);
        assert_eq!(types(&database), format!("id bigint, v {ty}"));
        let found = rows(&database);
        assert_eq!((found.len(), found[4].as_str()), (5, last), "{found:?}");
        assert_eq!(report["streams"][0]["rows"], 5, "{report:#}");
        let warnings = report["warnings"].to_string();
        for part in ["a.csv:", "the run reads the stream again with v: "] {
            assert!(warnings.contains(part), "{warnings}");
        }
        // A comparison follows the change, too.
        let verify = |code| {
            let ended = folder.rapidbyte(&["verify", "p.yaml", "--output", "json"]);
            assert_eq!(ended.code, Some(code), "{ended:?}");
        };
        verify(0);
        let other = "UPDATE raw.t SET v = v || '1' WHERE id = 1";
        let other = if ty == "text" {
            other
        } else {
            "UPDATE raw.t SET v = 3 WHERE id = 1"
        };
        database
            .client()
            .batch_execute(other)
            .expect("another value");
        verify(1);
        // The sample has whole numbers again, and the target has none.
        let report = succeeds(&folder, &text);
        assert_eq!(rows(&database), found);
        assert_eq!(report["warnings"], serde_json::json!([]), "{report:#}");
        verify(0);
    }
}

#[test]
fn a_key_behind_the_sample_becomes_a_column_whatever_the_mode() {
    const FIRST: &str = "{\"id\":1,\"a\":1}\n{\"id\":2,\"a\":2}\n";
    const SECOND: &str = "{\"id\":1,\"a\":1}\n{\"id\":2,\"a\":2}\n{\"id\":3,\"b\":\"x\"}\n{\"id\":4,\"c\":true,\"a\":4}\n";
    for (mode, expected) in [
        ("append", "(1,1,,) (1,1,,) (2,2,,) (2,2,,) (3,,,x) (4,4,t,)"),
        ("replace", "(1,1,,) (2,2,,) (3,,,x) (4,4,t,)"),
        ("upsert", "(1,1,,) (2,2,,) (3,,,x) (4,4,t,)"),
    ] {
        let database = shared().database();
        let folder = Folder::new();
        folder.write("in/a.jsonl", FIRST);
        let source = files("in/*.jsonl", "");
        let mut text = into_table(&database, &source, "", mode);
        if mode == "upsert" {
            text = text.replace("[t]", "[{ name: t, primary_key: [id] }]");
        }
        succeeds(&folder, &text);
        folder.write("in/a.jsonl", SECOND);
        let report = succeeds(&folder, &text);
        let sql = "SELECT id::text || ',' || coalesce(a::text, '') || ',' || coalesce(c::text, '') || ',' || \
                   coalesce(b::text, '') FROM raw.t ORDER BY id";
        let found = database.client().query(sql, &[]).expect("rows");
        let found = found
            .iter()
            .map(|row| format!("({})", row.get::<_, String>(0)));
        let found: Vec<String> = found.collect();
        let expected = expected.replace(",t,", ",true,");
        assert_eq!(found.join(" "), expected, "{mode}");
        let changes = report["streams"][0]["schema_changes"].to_string();
        assert!(changes.contains("ADD COLUMN"), "{report:#}");
    }
}

#[test]
fn a_target_that_cannot_follow_leaves_the_error_of_the_record() {
    let database = shared().database();
    let folder = Folder::new();
    folder.write("in/a.jsonl", "{\"id\":1,\"v\":10}\n{\"id\":2,\"v\":20}\n");
    let text = into_table(&database, &files("in/*.jsonl", ""), "", "append");
    succeeds(&folder, &text);
    let before = rows(&database);
    let more = "{\"id\":1,\"v\":10}\n{\"id\":2,\"v\":20}\n{\"id\":3,\"v\":0.5}\n";
    folder.write("in/a.jsonl", more);
    let ended = run(&folder, &text);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for part in ["value_does_not_fit", "a.jsonl:3"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert_eq!(rows(&database), before);
    // PostgreSQL has no type for the new column, which holds objects.
    let more = "{\"id\":1,\"v\":10}\n{\"id\":2,\"v\":20}\n{\"id\":3,\"new\":{\"x\":1}}\n";
    folder.write("in/a.jsonl", more);
    let ended = run(&folder, &text);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for part in [
        "jsonl_unknown_field",
        "a.jsonl:3",
        "the run cannot follow it",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
}

/// Another type would change what the rows before it mean.
#[test]
fn keys_flags_texts_and_columns_behind_transforms_keep_their_types() {
    let texts = "{\"id\":1,\"v\":\"x\"}\n{\"id\":2,\"v\":\"y\"}\n{\"id\":3,\"v\":3}\n";
    let flags = "{\"id\":1,\"d\":false}\n{\"id\":2,\"d\":false}\n{\"id\":3,\"d\":0}\n";
    let keys = "id,v\n1,a\n2,b\nx,c\n";
    for (file, content, stream, mode) in [
        ("a.jsonl", texts, "t", "replace"),
        (
            "a.jsonl",
            flags,
            "{ name: t, primary_key: [id], deleted_field: d }",
            "upsert",
        ),
        ("a.csv", keys, "{ name: t, primary_key: [id] }", "upsert"),
        (
            "a.csv",
            "id,v\n1,1\n2,2\n3,x\n",
            "{ name: t, transforms: [{ filter: id > 0 }] }",
            "replace",
        ),
    ] {
        let database = shared().database();
        let folder = Folder::new();
        folder.write(&format!("in/{file}"), content);
        let source = files(&format!("in/{file}"), "");
        let text = into_table(&database, &source, "", mode).replace("[t]", &format!("[{stream}]"));
        let ended = run(&folder, &text);
        assert_eq!(ended.code, Some(4), "{stream} {ended:?}");
        assert!(ended.stdout.contains("value_does_not_fit"), "{ended:?}");
        assert!(
            !ended.stdout.contains("reads the stream again"),
            "{ended:?}"
        );
    }
    // Numbers into a column of texts that is there already.
    let database = shared().database();
    let made = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int, v text, n numeric)";
    database.client().batch_execute(made).expect("a table");
    let folder = Folder::new();
    let lines = "{\"id\":1,\"v\":1,\"n\":1.5}\n{\"id\":2,\"v\":2,\"n\":2.25}\n{\"id\":3,\"v\":\"x\",\"n\":1.10}\n";
    folder.write("in/a.jsonl", lines);
    let text = into_table(&database, &files("in/*.jsonl", ""), "", "append");
    succeeds(&folder, &text);
    assert_eq!(rows(&database), ["(1,1,1.5)", "(2,2,2.25)", "(3,x,1.10)"]);
}

#[test]
fn policies_and_declared_columns_keep_the_columns_of_the_sample() {
    let csv = "id,v\n1,10\n2,20\n3,x\n";
    let jsonl = "{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"new\":1}\n";
    let fail = "schema_changes: frozen\n";
    let types = "schema_changes: { type_change: fail }\n";
    for (file, content, more, top, code) in [
        ("a.csv", csv, "", fail, "value_does_not_fit"),
        ("a.csv", csv, "", types, "value_does_not_fit"),
        (
            "a.csv",
            csv,
            ", schema: { id: int64, v: int64 }",
            "",
            "value_does_not_fit",
        ),
        ("a.jsonl", jsonl, "", fail, "jsonl_unknown_field"),
        (
            "a.jsonl",
            jsonl,
            ", unknown_keys: refuse",
            "",
            "jsonl_unknown_field",
        ),
        (
            "a.jsonl",
            jsonl,
            ", schema: { id: int64 }",
            "",
            "jsonl_unknown_field",
        ),
    ] {
        let database = shared().database();
        let folder = Folder::new();
        folder.write(&format!("in/{file}"), content);
        let source = files(&format!("in/{file}"), more);
        let ended = run(&folder, &into_table(&database, &source, top, "replace"));
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.stdout.contains(code), "{ended:?}");
        assert!(ended.stdout.contains(&format!("{file}:")), "{ended:?}");
        assert!(
            !ended.stdout.contains("reads the stream again"),
            "{ended:?}"
        );
    }
    // A column that the policy leaves out needs no place in the target.
    let database = shared().database();
    let folder = Folder::new();
    folder.write("in/a.jsonl", "{\"id\":1}\n{\"id\":2}\n");
    let ignore = "schema_changes: { new_column: ignore }\n";
    let text = into_table(&database, &files("in/*.jsonl", ""), ignore, "append");
    succeeds(&folder, &text);
    folder.write("in/a.jsonl", jsonl);
    succeeds(&folder, &text);
    assert_eq!(rows(&database), ["(1)", "(1)", "(2)", "(2)", "(3)"]);
}

#[test]
fn with_rejects_a_new_key_is_a_column_and_a_wrong_value_a_reject() {
    let database = shared().database();
    let folder = Folder::new();
    let text = "{\"id\":1,\"v\":1}\n{\"id\":2,\"v\":2}\n{\"id\":3,\"v\":\"x\"}\n{broken\n{\"id\":5,\"v\":5,\"new\":7}\n";
    folder.write("in/a.jsonl", text);
    let top = "rejects: { max_rows: 5, to: raw.rejects }\n";
    let pipeline = into_table(&database, &files("in/*.jsonl", ""), top, "replace");
    let report = succeeds(&folder, &pipeline);
    assert_eq!(types(&database), "id bigint, v bigint, new bigint");
    assert_eq!(rows(&database), ["(1,1,)", "(2,2,)", "(5,5,7)"]);
    assert_eq!(report["streams"][0]["rejected"], 2, "{report:#}");
    let sql = "SELECT string_agg(code, ' ' ORDER BY id) FROM raw.rejects";
    let codes: String = database
        .client()
        .query_one(sql, &[])
        .expect("rejects")
        .get(0);
    assert_eq!(codes, "value_does_not_fit jsonl_broken_line");
}

#[test]
fn pages_behind_the_sample_change_the_columns_of_an_api() {
    let pages = [
        r#"[{"id": 1, "v": 1}, {"id": 2, "v": 2}]"#,
        r#"[{"id": 3, "v": 0.5}, {"id": 4, "v": 4, "new": "n"}]"#,
        "[]",
    ];
    for (more, expected) in [
        (
            "unknown_keys: add",
            "id bigint, v double precision, new text",
        ),
        ("unknown_keys: ignore", "id bigint, v double precision"),
    ] {
        let server = Server::start(move |request| {
            let page = request
                .param("page")
                .map_or(1, |text| text.parse().expect("a number"));
            Reply::json(pages[usize::min(page, pages.len()) - 1])
        });
        let database = shared().database();
        let folder = Folder::new();
        let source = format!(
            "  use: source-http\n  config:\n    base_url: {}\n    sample_records: 2\n    streams:\n      t:\n        \
             path: items\n        pagination: {{ type: page }}\n        {more}\n",
            server.url("/v1")
        );
        succeeds(&folder, &into_table(&database, &source, "", "replace"));
        assert_eq!(types(&database), expected);
        assert_eq!(rows(&database).len(), 4);
        let sql = "SELECT sum(v) FROM raw.t";
        let sum: f64 = database.client().query_one(sql, &[]).expect("a sum").get(0);
        assert!((sum - 7.5).abs() < 1e-9, "{sum}");
    }
}

#[test]
fn inferred_columns_get_the_types_of_an_existing_table() {
    let database = shared().database();
    let made = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int, n smallint, d timestamp, p numeric(8, 2), t text, f real)";
    database.client().batch_execute(made).expect("a table");
    let folder = Folder::new();
    folder.write(
        "in/a.csv",
        "id,n,d,p,t,f\n1,10,2026-01-01T00:00:00,1,7,0.5\n2,20,2026-01-02T10:00:00,2,8,1.5\n3,30,2026-01-03T00:00:00,0.5,x,2\n",
    );
    let text = into_table(&database, &files("in/*.csv", ""), "", "append");
    let report = succeeds(&folder, &text);
    assert_eq!(report["warnings"], serde_json::json!([]), "{report:#}");
    assert_eq!(
        rows(&database),
        [
            "(1,10,\"2026-01-01 00:00:00\",1.00,7,0.5)",
            "(2,20,\"2026-01-02 10:00:00\",2.00,8,1.5)",
            "(3,30,\"2026-01-03 00:00:00\",0.50,x,2)"
        ]
    );
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    assert!(
        plan.stdout.contains("n: int16 (the type of the target)"),
        "{}",
        plan.stdout
    );
    // A value that the column does not hold is refused at its place, and no type changes.
    folder.write(
        "in/b.csv",
        "id,n,d,p,t,f\n4,40000,2026-01-01T00:00:00,1,7,0.5\n",
    );
    let ended = run(&folder, &text);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for part in ["value_does_not_fit", "in/b.csv:2", "\"column\": \"n\""] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert_eq!(rows(&database).len(), 3);
}

/// A run with the types of the table would fail at a record that the source has already seen.
#[test]
fn a_sample_that_the_table_does_not_hold_is_refused_by_the_plan() {
    let server = Server::start(|_| Reply::json("[{\"id\":1,\"n\":1},{\"id\":2,\"n\":40000}]"));
    let http = format!(
        "  use: source-http\n  config:\n    base_url: {}\n    streams: {{ t: {{ path: items }} }}\n",
        server.url("/v1")
    );
    for (source, column, bad, way) in [
        (
            files("in/*.csv", ""),
            "n smallint",
            "1.5",
            "type_change: rewrite",
        ),
        (files("in/*.csv", ""), "n int", "x", ""),
        (
            files("in/*.jsonl", ""),
            "n int",
            "2.5",
            "type_change: rewrite",
        ),
        (
            files("in/*.jsonl", ""),
            "n numeric(3, 1)",
            "0.25",
            "numeric(3,1)",
        ),
        (
            files("in/*.jsonl", ""),
            "n timestamptz(0)",
            "\"2026-01-01T00:00:00.5Z\"",
            "",
        ),
        (http, "n smallint", "", "type_change"),
    ] {
        let database = shared().database();
        let made = format!("CREATE SCHEMA raw; CREATE TABLE raw.t (id int, {column})");
        database.client().batch_execute(&made).expect("a table");
        let folder = Folder::new();
        folder.write("in/a.csv", format!("id,n\n1,1\n2,{bad}\n"));
        folder.write(
            "in/a.jsonl",
            format!("{{\"id\":1}}\n{{\"id\":2,\"n\":{bad}}}\n"),
        );
        let text = into_table(&database, &source, "", "append");
        folder.write("p.yaml", &text);
        let plan = folder.rapidbyte(&["plan", "p.yaml"]);
        let told = format!("{}{}", plan.stdout, plan.stderr);
        if bad.starts_with('"') {
            // The server casts strings, and the plan says that it does.
            assert!(told.contains("checked"), "{column} {bad}: {told}");
            continue;
        }
        assert_eq!(plan.code, Some(4), "{column} {bad}: {told}");
        for part in ["column_refused", way] {
            assert!(told.contains(part), "{part}: {told}");
        }
        folder.refuses(&text, "column_refused", 4, &["n"]);
        // Where the run keeps records that fail, it has the types of the table.
        let keeps = format!("{text}rejects: {{ max_rows: 5, to: raw.bad }}\n");
        let report = succeeds(&folder, &keeps);
        let stream = &report["streams"][0];
        assert_eq!(stream["rejected"], 1, "{report:#}");
        let plan = folder.rapidbyte(&["plan", "p.yaml"]);
        if bad == "x" {
            // No number: each text is cast, and the one that is none becomes a reject.
            assert!(plan.stdout.contains("checked"), "{}", plan.stdout);
            continue;
        }
        // Lines of the plan end where the terminal does.
        let words: Vec<&str> = plan.stdout.split_whitespace().collect();
        let note = "(the type of the target, which does not hold values of the sample";
        assert!(words.join(" ").contains(note), "{}", plan.stdout);
    }
}

#[test]
fn a_column_that_the_types_of_the_table_do_not_help_is_refused_alone() {
    let database = shared().database();
    let made = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int, n smallint, b interval(0))";
    database.client().batch_execute(made).expect("a table");
    let folder = Folder::new();
    folder.write("in/a.csv", "id,n,b\n1,10,1.5\n");
    let text = into_table(&database, &files("in/*.csv", ""), "", "append");
    let ended = run(&folder, &text);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for part in ["column_refused", "\"column\": \"b\""] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
}

/// Nobody has declared the digits of the file.
#[test]
fn an_inferred_type_changes_no_type_of_the_target_unless_the_pipeline_says_so() {
    for (top, code, ty) in [
        ("", 4, "numeric(6,2)"),
        (
            "schema_changes: { type_change: widen }\n",
            0,
            "numeric(38,2)",
        ),
    ] {
        let database = shared().database();
        let made = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int, v numeric(6, 2))";
        database.client().batch_execute(made).expect("a table");
        let folder = Folder::new();
        folder.write("in/a.csv", "id,v\n1,1.10\n2,2.20\n3,99999999.10\n");
        let ended = run(
            &folder,
            &into_table(&database, &files("in/*.csv", ""), top, "append"),
        );
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let sql = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute \
                   WHERE attrelid = 'raw.t'::regclass AND attname = 'v'";
        let found: String = database
            .client()
            .query_one(sql, &[])
            .expect("a type")
            .get(0);
        assert_eq!(found, ty);
        if code != 0 {
            assert!(ended.stdout.contains("in/a.csv:4"), "{ended:?}");
        }
    }
}

#[test]
fn a_value_behind_the_sample_widens_the_type_of_new_files() {
    for (path, mode) in [
        ("out.jsonl", "replace"),
        ("out/part-{part}.parquet", "append"),
        ("out/part-{part}.arrow", "replace"),
    ] {
        let folder = Folder::new();
        folder.write("in/a.csv", CSV);
        let source = files("in/*.csv", "");
        let pipeline = format!(
            "version: 1\npipeline: p\nsource:\n{source}  streams: [t]\ndestination:\n  use: dest-file\n  \
             config: {{ path: \"{path}\" }}\n  write_mode: {mode}\n"
        );
        let report = succeeds(&folder, &pipeline);
        assert_eq!(report["streams"][0]["rows"], 5, "{path}: {report:#}");
        let read = path.replace("{part}", "*");
        let again = format!(
            "version: 1\npipeline: again\nsource:\n  use: source-file\n  config: {{ path: \"{read}\", stream: t }}\n  \
             streams: [t]\ndestination: {{ use: dest-file, config: {{ path: again.csv }}, write_mode: replace }}\n"
        );
        succeeds(&folder, &again);
        let expected = "id,v\n1,10\n2,20\n3,\n4,0.5\n5,7\n";
        // Parquet keeps the note that whole values had no point.
        let read = || folder.read("again.csv").replace(".0\n", "\n");
        assert_eq!(read(), expected, "{path}");
        if mode == "append" {
            // The files have the type now: whole numbers are read as it.
            folder.write("in/a.csv", "id,v\n6,60\n7,70\n");
            succeeds(&folder, &pipeline);
            succeeds(&folder, &again);
            assert_eq!(read(), format!("{expected}6,60\n7,70\n"));
            // A text goes with no number.
            folder.write("in/a.csv", "id,v\n8,x\n9,y\n");
            let ended = run(&folder, &pipeline);
            assert_eq!(ended.code, Some(4), "{ended:?}");
            for part in ["column_refused", "float64", "string"] {
                assert!(ended.stdout.contains(part), "{ended:?}");
            }
        }
    }
}

/// The text of a value does not depend on the other values of the sample.
#[test]
fn values_of_json_go_to_a_column_of_texts_as_they_stand() {
    let x = "{\"id\":1,\"v\":\"x\"}\n";
    let (number, object) = ("{\"id\":2,\"v\":5}\n", "{\"id\":3,\"v\":{\"a\": [1]}}\n");
    for (lines, expected) in [
        (format!("{x}{x}{number}"), "(1,x) (2,5)"),
        (format!("{x}{number}"), "(1,x) (2,5)"),
        (format!("{number}{number}{x}"), "(1,x) (2,5)"),
        (
            format!("{object}{x}{number}"),
            "(1,x) (2,5) (3,\"{\"\"a\"\": [1]}\")",
        ),
        (format!("{x}{x}{object}"), "(1,x) (3,\"{\"\"a\"\": [1]}\")"),
    ] {
        let database = shared().database();
        let made = "CREATE SCHEMA raw; CREATE TABLE raw.t (id bigint PRIMARY KEY, v text)";
        database.client().batch_execute(made).expect("a table");
        let folder = Folder::new();
        folder.write("in/a.jsonl", &lines);
        let text = into_table(&database, &files("in/*.jsonl", ""), "", "upsert");
        let text = text.replace("[t]", "[{ name: t, primary_key: [id] }]");
        succeeds(&folder, &text);
        assert_eq!(rows(&database).join(" "), expected, "{lines}");
        let verified = folder.rapidbyte(&["verify", "p.yaml"]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

/// The run adds such a column before the first row.
#[test]
fn a_column_that_the_run_adds_to_a_table_keeps_the_type_of_the_sample() {
    let database = shared().database();
    let folder = Folder::new();
    folder.write("in/a.csv", "id\n1\n2\n");
    let text = into_table(&database, &files("in/*.csv", ""), "", "append");
    succeeds(&folder, &text);
    folder.write("in/a.csv", "id,v\n3,1\n4,2\n5,x\n");
    for _ in 0..2 {
        let ended = run(&folder, &text);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        for part in ["value_does_not_fit", "in/a.csv:4", "\"column\": \"v\""] {
            assert!(ended.stdout.contains(part), "{part}: {ended:?}");
        }
        assert!(
            !ended.stderr.contains("reads the stream again"),
            "{ended:?}"
        );
        assert_eq!(rows(&database), ["(1,)", "(2,)"]);
    }
    let declared = text.replace("sample_rows: 2", "schema: { id: int64, v: string }");
    let ended = run(&folder, &declared);
    assert!(
        ended
            .stdout
            .contains("give the target's column another type"),
        "{ended:?}"
    );
    let change = "ALTER TABLE raw.t ALTER COLUMN v TYPE text";
    database.client().batch_execute(change).expect("a change");
    succeeds(&folder, &declared);
    assert_eq!(rows(&database), ["(1,)", "(2,)", "(3,1)", "(4,2)", "(5,x)"]);
}

/// A run that follows a change stops at each failpoint in turn, and the next run ends with the rows of the files.
#[test]
fn a_run_that_follows_a_change_may_be_killed_anywhere() {
    let database = shared().database();
    let folder = Folder::new();
    folder.write(
        "in/a.jsonl",
        "{\"id\":1,\"a\":1}\n{\"id\":2,\"a\":2}\n{\"id\":3,\"b\":\"x\"}\n{\"id\":4,\"a\":4,\"c\":true}\n",
    );
    folder.write("in/a.csv", CSV);
    let keys = into_table(&database, &files("in/*.jsonl", ""), "", "upsert");
    let keys = keys.replace("[t]", "[{ name: t, primary_key: [id] }]");
    let keys = format!("{keys}resources: {{ batch_bytes: 4kb }}\n");
    let types = into_table(&database, &files("in/*.csv", ""), "", "replace");
    let clear = "DROP SCHEMA IF EXISTS raw CASCADE; DROP SCHEMA IF EXISTS _rapidbyte CASCADE; CREATE SCHEMA raw";
    // The table of keys exists before, the table of types is new.
    let scenarios = [
        (
            &keys,
            "CREATE TABLE raw.t (id bigint PRIMARY KEY, a bigint)",
            "(1,1,,) (2,2,,) (3,,x,) (4,4,,t)",
        ),
        (&types, "", "(1,10) (2,20) (3,) (4,0.5) (5,7)"),
    ];
    let mut fired = 0;
    let points = crate::faults::points();
    let points = points
        .iter()
        .filter(|point| !point.starts_with("dest-file."));
    for (at, point) in points.enumerate() {
        // Each point has one of the actions and one of the scenarios, so that all of them take turns.
        let action = ["kill", "error"][at % 2];
        let (text, made, expected) = scenarios[at / 2 % 2];
        let sql = format!("{clear}; {made}");
        database.client().batch_execute(&sql).expect("a schema");
        folder.write("p.yaml", text);
        let mut command = folder.command(&["run", "p.yaml"]);
        command.env("RAPIDBYTE_FAULTS", format!("{point}={action}"));
        let ended = command.output().expect("the program starts");
        fired += u32::from(!ended.status.success());
        succeeds(&folder, text);
        assert_eq!(rows(&database).join(" "), expected, "{point}={action}");
    }
    assert!(fired >= 10, "{fired} faults");
}
