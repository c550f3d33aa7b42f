//! Streams with transforms between the source and the destination.

use rapidbyte_testkit::postgres::shared;
use serde_json::{Value, json};

use crate::support::{Folder, built, copy, testkit};

/// Two rows through these transforms, as JSON Lines.
fn pipeline(transforms: &str) -> String {
    copy("csv", "jsonl")
        .replace("in.csv", "in.csv\n    schema: { id: int64, name: string }")
        .replace(
            "[in]",
            &format!("[{{ name: in, transforms: [{transforms}] }}]"),
        )
}

fn pass(config: &str) -> String {
    format!(
        "{{ use: \"{}\", config: {{ {config} }} }}",
        testkit("transform-pass")
    )
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.csv", "id,name\n1,a\n2,b\n");
    folder
}

#[test]
fn rows_pass_through_the_transforms_in_their_order() {
    let folder = folder();
    for (transforms, expected) in [
        (pass(""), r#"{"id":1,"name":"a"}{"id":2,"name":"b"}"#),
        (pass("drop: name"), r#"{"id":1}{"id":2}"#),
        (
            pass("piece_rows: 1, times: 2"),
            r#"{"id":1,"name":"a"}{"id":2,"name":"b"}{"id":1,"name":"a"}{"id":2,"name":"b"}"#,
        ),
        (pass("times: 0"), ""),
        (
            format!("{}, {}", pass("times: 2"), pass("drop: id")),
            r#"{"name":"a"}{"name":"b"}{"name":"a"}{"name":"b"}"#,
        ),
    ] {
        for compression in ["none", "zstd"] {
            let more = format!("resources: {{ compression: {compression} }}\n");
            let report = folder.report(&(pipeline(&transforms) + &more));
            let rows = folder.read("out/in.jsonl").replace('\n', "");
            assert_eq!(rows, expected, "{transforms}");
            let stream = &report["streams"][0];
            assert_eq!(stream["rows"], expected.matches('{').count());
            let stages = stream["transforms"].as_array().expect("a list");
            assert_eq!(stages.len(), transforms.matches("use:").count());
            for stage in stages {
                assert_eq!(stage["name"], "transform-pass");
                let parts = stage["parts"].as_object().expect("parts").values();
                let sum: f64 = parts.filter_map(Value::as_f64).sum();
                let wall = stage["wall_secs"].as_f64().expect("a time");
                assert!(wall > 0.0 && (sum - wall).abs() < 1e-6, "{stage:#}");
            }
        }
    }
}

#[test]
fn a_plan_and_a_page_show_the_transforms() {
    let folder = folder();
    folder.write(
        "p.yaml",
        pipeline(&pass("drop: name, secret: \"${SECRET}\"")),
    );
    let run = |arguments: &[&str]| {
        let output = folder
            .command(arguments)
            .env("SECRET", "hunter2!")
            .output()
            .expect("it starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        text
    };
    let text = run(&["plan", "p.yaml"]);
    for part in [
        "transform    transform-pass",
        "may reach nothing outside",
        "through transform-pass",
        "before transform-pass: id int64, name string",
        "warning: the secret is ***",
        "1 stream, 1 column",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan: Value =
        serde_json::from_str(&run(&["plan", "p.yaml", "--output", "json"])).expect("JSON");
    assert_eq!(plan["transforms"][0]["connector"], "transform-pass");
    assert_eq!(plan["transforms"][0]["grants"], json!([]));
    assert_eq!(plan["streams"][0]["transforms"], json!(["transform-pass"]));
    assert_eq!(plan["streams"][0]["columns"][0]["name"], "id");
    let before = json!([[{ "name": "id", "type": "int64" }, { "name": "name", "type": "string" }]]);
    assert_eq!(plan["streams"][0]["columns_before_transforms"], before);
    let report = run(&[
        "run", "p.yaml", "--report", "r.html", "--output", "json", "-v",
    ]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(
        report["warnings"][0]["message"], "the secret is ***",
        "{report:#}"
    );
    let roles = report["connectors"].as_array().expect("a list").iter();
    let roles: Vec<&str> = roles.filter_map(|one| one["role"].as_str()).collect();
    assert_eq!(roles, ["source", "transform", "destination"]);
    let page = folder.read("r.html");
    assert!(page.contains("<small>transforms</small>"), "{page}");
    assert!(!page.contains("hunter2"), "{page}");
}

#[test]
fn a_mistake_in_a_transform_has_its_line() {
    let folder = folder();
    let refuses = |transforms: &str, code: &str, parts: &[&str]| {
        folder.refuses(&pipeline(transforms), code, 2, parts);
    };
    let key = "source.streams[0].transforms[0]";
    refuses(
        &pass("nosuch: 1"),
        "unknown_key",
        &["p.yaml:8:", &format!("{key}.config.nosuch")],
    );
    refuses(
        "{ config: {} }",
        "missing_key",
        &[&format!("{key}.use is missing")],
    );
    refuses("a.wasm", "invalid_type", &[key, "transforms: [{ use:"]);
    refuses(
        "{ use: source-file }",
        "invalid_world",
        &["source-file is a source", "name a transform here"],
    );
    refuses(
        "{ use: ./none.wasm }",
        "connector_not_found",
        &[&format!("{key}.use"), "p.yaml:8:"],
    );
    let many = vec![pass(""); 17].join(", ");
    refuses(&many, "invalid_value", &["17 transforms, above 16"]);
    let as_source = copy("csv", "jsonl").replace("source-file", &testkit("transform-pass"));
    folder.refuses(
        &as_source,
        "invalid_world",
        2,
        &["is a transform", "name a source here"],
    );
    // An error that the transform itself finds while it plans.
    let (error, exit) = folder.error(&pipeline(&pass("drop: nosuch")));
    assert_eq!(
        (exit, &error["code"], &error["stream"], &error["connector"]),
        (
            4,
            &json!("unknown_column"),
            &json!("in"),
            &json!("transform-pass")
        ),
        "{error:#}"
    );
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn a_row_that_a_transform_refuses_stops_the_stream_and_nothing_is_visible() {
    let folder = folder();
    let (error, exit) = folder.error(&pipeline(&format!("{}, {}", pass(""), pass("fail_at: 1"))));
    assert_eq!(exit, 4, "{error:#}");
    for (key, expected) in [
        ("code", "misbehave"),
        ("stream", "in"),
        ("column", "id"),
        ("connector", "transform-pass"),
        ("export", "transformer.put"),
    ] {
        assert_eq!(error[key], expected, "{error:#}");
    }
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn a_transform_is_locked_like_every_connector() {
    let folder = folder();
    let transform = std::fs::read(testkit("transform-pass")).expect("the test kit");
    folder.write("pass.wasm", &transform);
    folder.write("p.yaml", pipeline("{ use: ./pass.wasm }"));
    let locked = folder.rapidbyte(&["lock", "p.yaml"]);
    assert_eq!(locked.code, Some(0), "{}", locked.stderr);
    assert!(locked.stdout.contains("pass.wasm"), "{}", locked.stdout);
    folder.report(&pipeline("{ use: ./pass.wasm }"));
    let other = std::fs::read(testkit("dest-null")).expect("the test kit");
    folder.write("pass.wasm", other);
    folder.refuses(
        &pipeline("{ use: ./pass.wasm }"),
        "invalid_world",
        2,
        &["is a destination"],
    );
    std::fs::copy(
        built("RAPIDBYTE_TESTKIT").join("transform-pass.wasm"),
        folder.path().join("other.wasm"),
    )
    .expect("a copy");
    folder.refuses(
        &pipeline("{ use: ./other.wasm }"),
        "connector_not_locked",
        2,
        &["other.wasm is not in rapidbyte.lock"],
    );
}

/// A table that is copied through two transforms, which take the rows in pieces.
fn table(url: &str, mode: &str) -> String {
    let transforms = format!("[{}, {}]", pass("piece_rows: 7"), pass(""));
    format!(
        "version: 1\npipeline: t\nresources: {{ batch_bytes: 4kb }}\nretry: {{ max_attempts: 1 }}\n\
         checkpoint: {{ every_rows: 1000 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{url}\" }}\n  \
         streams: [{{ name: public.t, {mode}, transforms: {transforms} }}]\n\
         destination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  \
         write_mode: append\n"
    )
}

#[test]
fn every_row_arrives_once_whatever_stage_fails() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE t (id int PRIMARY KEY, n numeric); CREATE SCHEMA raw; \
               INSERT INTO t SELECT i, i / 7.0 FROM generate_series(1, 20000) i";
    client.batch_execute(sql).expect("a table");
    for mode in [
        "sync_mode: incremental, cursor_field: id",
        "sync_mode: full_refresh",
    ] {
        let folder = Folder::new();
        folder.write("p.yaml", table(&database.url(), mode));
        for fault in [
            "engine.transform=error@3",
            "engine.transform=kill@25",
            "engine.send=kill@9",
            "engine.write=error@12",
            "engine.commit=kill@1",
            "engine.committed=kill@1",
        ] {
            let mut command = folder.command(&["run", "p.yaml"]);
            let ended = command.env("RAPIDBYTE_FAULTS", fault).output();
            let ended = ended.expect("it starts");
            assert_ne!(ended.status.code(), Some(0), "{mode} {fault}");
        }
        folder.report(&table(&database.url(), mode));
        let same = "SELECT count(*), count(DISTINCT raw), \
                    (SELECT count(*) FROM raw.t r JOIN t USING (id) WHERE r.n::text = t.n::text) FROM raw.t raw";
        let row = client.query_one(same, &[]).expect("counts");
        let counts: [i64; 3] = [0, 1, 2].map(|column| row.get(column));
        assert_eq!(counts, [20000; 3], "{mode}");
        client
            .batch_execute("DROP TABLE raw.t; DROP TABLE IF EXISTS raw._rapidbyte_checkpoints; DROP SCHEMA IF EXISTS _rapidbyte CASCADE")
            .expect("dropped");
    }
}

#[test]
fn a_resumed_run_with_another_transform_reads_all_rows() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE t (id int, n int); INSERT INTO t VALUES (1, 2); CREATE SCHEMA raw";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let mode = "sync_mode: full_refresh";
    folder.write("p.yaml", table(&database.url(), mode));
    let mut command = folder.command(&["run", "p.yaml"]);
    let ended = command.env("RAPIDBYTE_FAULTS", "engine.committed=kill@1");
    ended.output().expect("it starts");
    let mut rows = || -> i64 {
        let sql = "SELECT count(*) FROM raw.t";
        client.query_one(sql, &[]).expect("a count").get(0)
    };
    assert_eq!(rows(), 1);
    let other = table(&database.url(), mode).replace("piece_rows: 7", "times: 2");
    let report = folder.report(&other);
    assert_eq!((rows(), &report["rows"]), (3, &json!(2)), "{report:#}");
}

#[test]
fn the_content_of_a_transform_decides_and_not_its_place() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE t (id int, n int); INSERT INTO t VALUES (1, 2); CREATE SCHEMA raw";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let wasm = std::fs::read(testkit("transform-pass")).expect("a component");
    // A custom section changes nothing.
    let other = [wasm.as_slice(), &[0, 2, 1, b'x']].concat();
    let text = table(&database.url(), "sync_mode: full_refresh");
    let text = text.replace(&testkit("transform-pass"), "./a.wasm");
    for (file, bytes, rows) in [
        ("a.wasm", &wasm, 1),
        ("b.wasm", &wasm, 1),
        ("b.wasm", &other, 2),
    ] {
        std::fs::write(folder.path().join(file), bytes).expect("written");
        folder.write("p.yaml", text.replace("a.wasm", file));
        let mut command = folder.command(&["run", "p.yaml"]);
        let ended = command.env("RAPIDBYTE_FAULTS", "engine.told=kill");
        let ended = ended.output().expect("it starts");
        assert_eq!(ended.status.code(), None);
        let count = client.query_one("SELECT count(*) FROM raw.t", &[]);
        let count: i64 = count.expect("a count").get(0);
        assert_eq!(count, rows, "{file}");
    }
}

#[test]
fn a_limit_counts_the_rows_before_the_transforms() {
    let folder = folder();
    folder.write("p.yaml", pipeline(&pass("times: 0")));
    let ended = folder.rapidbyte(&[
        "run",
        "p.yaml",
        "--limit",
        "1",
        "--limit-replaces",
        "--output",
        "json",
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let stream = &report["streams"][0];
    assert_eq!(
        (&stream["rows"], &stream["limited"]),
        (&json!(0), &json!(true))
    );
}

#[test]
fn many_streams_with_transforms_fit_into_little_memory() {
    let folder = Folder::new();
    let mut streams = Vec::new();
    for stream in 0..60 {
        folder.write(&format!("in-{stream}.csv"), "id,name\n1,a\n");
        let transforms = format!("[{}, {}]", pass("drop: name"), pass("times: 2"));
        streams.push(format!(
            "{{ name: \"{stream}\", transforms: {transforms} }}"
        ));
    }
    let text = copy("csv", "jsonl")
        .replace("in.csv", "\"in-{stream}.csv\"")
        .replace("[in]", &format!("[{}]", streams.join(", ")))
        + "resources: { memory: 32mb }\n";
    let report = folder.report(&text);
    assert_eq!(report["rows"], 120);
    assert_eq!(folder.read("out/59.jsonl"), "{\"id\":1}\n{\"id\":1}\n");
}
