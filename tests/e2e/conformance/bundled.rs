//! The bundled connectors, the template and the source in Python keep the contract.

use rapidbyte_testkit::postgres::shared;

use super::*;

/// No clause fails, and these alone are skipped.
#[track_caller]
fn passes(folder: &Folder, name: &str, config: &Value, more: &[&str], skipped: &[&str]) -> Value {
    let (document, code) = test(folder, name, config, more);
    let told = document["clauses"].as_array().expect("clauses").iter();
    let told: Vec<String> = told
        .filter(|clause| clause["verdict"] != "pass")
        .map(Value::to_string)
        .collect();
    assert_eq!(
        (code, with(&document, "skip")),
        (0, skipped.iter().map(|s| (*s).into()).collect()),
        "{told:#?}"
    );
    document
}

/// The detail of a clause that passed: what the test compared.
fn detail(document: &Value, id: &str) -> String {
    let clauses = document["clauses"].as_array().expect("clauses");
    let clause = clauses.iter().find(|clause| clause["id"] == id);
    let detail = clause.and_then(|clause| clause["detail"].as_str());
    detail.expect("a detail").to_owned()
}

const NO_INCREMENT: [&str; 9] = [
    "filter",
    "checkpoints",
    "order",
    "resume",
    "cursor-columns",
    "initial",
    "late-rows",
    "other-cursor",
    "foreign-cursor",
];

#[test]
fn source_generate() {
    let config = json!({
        "rows": 20_000, "seed": 7, "streams": ["a", "b"],
        "columns": {
            "id": { "type": "int64", "sequence": true }, "total": "decimal(18, 4)",
            "note": { "type": "string", "length": [20, 60], "nullable": true },
            "tags": "list<string>", "at": "timestamptz",
        },
    });
    passes(
        &Folder::new(),
        "source-generate",
        &config,
        &[],
        &NO_INCREMENT,
    );
}

#[test]
fn transforms_with_rows_of_every_type() {
    let folder = Folder::new();
    let pass = testkit("transform-pass");
    for config in [
        json!({}),
        json!({ "piece_rows": 3, "times": 2, "drop": "c_json" }),
    ] {
        let document = passes(&folder, &pass, &config, &[], &[]);
        assert_eq!(document["kind"], "transform");
        assert!(detail(&document, "plan").ends_with(" of 38"));
    }
    let steps = json!([
        { "rename": { "c_string": "text" } }, { "filter": "n >= 2" },
        { "set": { "twice": "n * 2" } }, { "upper": ["text"] },
    ]);
    let document = passes(
        &folder,
        "transform-columns",
        &json!({ "steps": steps }),
        &[],
        &[],
    );
    assert_eq!(detail(&document, "batches"), "18 rows of 20");
}

/// The settings name columns that the rows of the test lack.
#[test]
fn a_transform_with_the_rows_of_a_peer() {
    let folder = Folder::new();
    folder.write(
        "in/people.csv",
        "id,email\n1,ada@example.com\n2,\n3,grace@example.com\n",
    );
    let peer = [
        "--peer",
        "source-file",
        "--peer-config",
        "{ path: \"in/{stream}.csv\" }",
        "--stream",
        "people",
    ];
    let config = json!({ "steps": [{ "mask": { "columns": ["email"], "keep_domain": true } }] });
    let document = passes(&folder, "transform-columns", &config, &peer, &[]);
    assert_eq!(detail(&document, "plan"), "2 columns of 2");
    assert_eq!(detail(&document, "batches"), "2 rows of 2");
    // Without the peer one message says what to give.
    let (document, code) = test(&folder, "transform-columns", &config, &[]);
    assert_eq!(
        (document["error"]["code"].as_str(), code),
        (Some("invalid_setup"), 2)
    );
    let clauses = document["clauses"].as_array().expect("clauses");
    let plan = clauses.iter().find(|clause| clause["id"] == "plan");
    let reason = plan.and_then(|plan| plan["reason"].as_str()).expect("why");
    for part in ["email", "c_string", "--peer SOURCE", "--stream NAME"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    // A stream that the peer lacks, and one without rows.
    folder.write("in/none.csv", "id,email\n");
    for (stream, part) in [("staff", "it has none, people"), ("none", "has no rows")] {
        let peer = [&peer[..5], &[stream]].concat();
        let (document, code) = test(&folder, "transform-columns", &config, &peer);
        let message = document["error"]["message"].as_str().expect("a message");
        assert!(message.contains(part), "{stream}: {message}");
        assert_eq!(code, 2, "{stream}");
    }
}

/// Without `in_column` the test cannot know which column to leave out.
#[test]
fn a_transform_may_refuse_a_column_by_its_name() {
    let config = json!({ "refuse": "c_interval" });
    let document = passes(
        &Folder::new(),
        &testkit("transform-pass"),
        &config,
        &[],
        &[],
    );
    let expected = "37 columns of 37; refused: c_interval";
    assert_eq!(detail(&document, "plan"), expected);
    // The key stays.
    let config = json!({ "refuse": "n" });
    let (document, code) = test(&Folder::new(), &testkit("transform-pass"), &config, &[]);
    assert_eq!(document["error"]["code"], "invalid_setup");
    assert_eq!(code, 2);
}

/// No row is left, so that nothing can be compared.
#[test]
fn a_transform_that_gives_no_rows_is_not_judged_by_them() {
    let config = json!({ "times": 0 });
    let skipped = ["batches", "same-rows", "session"];
    let pass = testkit("transform-pass");
    passes(&Folder::new(), &pass, &config, &[], &skipped);
}

#[test]
fn source_file_of_text_and_of_columns() {
    let folder = Folder::new();
    let mut csv = "id,name,total\n".to_owned();
    for n in 0..20_000 {
        csv.push_str(&format!(
            "{n},\"name, long enough to be a large record, {n}\",{n}.5\n"
        ));
    }
    folder
        .write("in/a.csv", &csv)
        .write("in/b.csv", "id\n1\n2\n");
    passes(
        &folder,
        "source-file",
        &json!({ "path": "in/{stream}.csv" }),
        &[],
        &NO_INCREMENT,
    );
    for to in ["jsonl.gz", "parquet", "arrow"] {
        let pipeline = format!(
            "version: 1\npipeline: t\nsource: {{ use: source-file, config: {{ path: in/a.csv }}, streams: [a] }}\n\
             destination: {{ use: dest-file, config: {{ path: \"in/{{stream}}.{to}\" }}, write_mode: replace }}\n"
        );
        folder.report(&pipeline);
        passes(
            &folder,
            "source-file",
            &json!({ "path": format!("in/a.{to}") }),
            &[],
            &NO_INCREMENT,
        );
    }
}

#[test]
fn source_http_with_a_stream_that_resumes() {
    let server = Server::start(|request| {
        let since = request.param("since").map_or(Ok(0), str::parse::<u64>);
        let Ok(from) = since else {
            return Reply::status(400, "since is not a number");
        };
        let items: Vec<Value> = (0..500)
            .filter(|n| *n >= from)
            .map(|n| json!({ "id": n, "name": format!("item {n:>40}") }))
            .collect();
        Reply::json(Value::from(items).to_string())
    });
    let incremental = json!({ "cursor_field": "id", "param": "since" });
    let config = json!({
        "base_url": server.url("/v1"), "streams": { "items": { "path": "items", "incremental": incremental } },
    });
    let skipped = ["filter", "other-cursor"];
    passes(&Folder::new(), "source-http", &config, &[], &skipped);
}

#[test]
fn source_postgres_with_ties_and_values_of_many_types() {
    let database = shared().database();
    let tables = "CREATE TABLE orders AS SELECT i AS id, i / 7 AS version, 'name ' || lpad(i::text, 40) AS name, i * 1.01 AS total, \
                  now() AS at, ARRAY[i, NULL] AS list FROM generate_series(1, 5000) i; \
                  ALTER TABLE orders ADD PRIMARY KEY (id); \
                  CREATE TABLE empty (id bigint PRIMARY KEY)";
    database.client().batch_execute(tables).expect("tables");
    let folder = Folder::new();
    let config = json!({ "url": database.url() });
    passes(&folder, "source-postgres", &config, &[], &[]);
    passes(
        &folder,
        "source-postgres",
        &config,
        &["--stream", "public.orders"],
        &["other-cursor"],
    );
}

#[test]
fn dest_file_as_one_file_and_as_a_folder_that_grows() {
    let folder = Folder::new();
    for ending in ["csv", "jsonl", "parquet", "arrow", "csv.zst"] {
        let one = format!("one/{{stream}}.{ending}");
        let look = json!({ "path": one }).to_string();
        let more = ["--peer", "source-file", "--peer-config", &look];
        let no_cursor = [
            "append",
            "upsert",
            "progress",
            "commit-once",
            "fence",
            "pipelines",
            "rejects",
        ];
        passes(
            &folder,
            "dest-file",
            &json!({ "path": one }),
            &more,
            &no_cursor,
        );
        let grows = format!("{ending}/{{stream}}/part-{{part}}.{ending}");
        let look = json!({ "path": format!("{ending}/{{stream}}/*.{ending}") }).to_string();
        let more = ["--peer", "source-file", "--peer-config", &look];
        passes(
            &folder,
            "dest-file",
            &json!({ "path": grows }),
            &more,
            &["upsert"],
        );
    }
}

#[test]
fn dest_postgres_by_copy_and_by_insert() {
    let folder = Folder::new();
    for method in ["copy", "insert"] {
        let database = shared().database();
        let config = json!({ "url": database.url(), "load_method": method });
        let look = json!({ "url": database.url() }).to_string();
        let more = ["--peer", "source-postgres", "--peer-config", &look];
        let document = passes(&folder, "dest-postgres", &config, &more, &[]);
        for clause in ["types", "edge-values"] {
            let detail = detail(&document, clause);
            assert!(!detail.contains("not compared"), "{detail}");
        }
        // A PostgreSQL string cannot hold a NUL, and the refusal names the column.
        let values = detail(&document, "edge-values");
        assert!(values.contains("c_string refuses 1"), "{values}");
    }
}

/// The streams of a peer are keys of its settings: it can only be asked about one that is named there.
#[test]
fn a_peer_of_named_streams_reads_each_stream_by_its_name() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    let server = Server::start(move |request| {
        let name = request.path.trim_start_matches('/');
        match std::fs::read_to_string(out.join(format!("{name}.jsonl"))) {
            Ok(text) => Reply::json(format!("[{}]", text.lines().collect::<Vec<_>>().join(","))),
            Err(_) => Reply::status(404, ""),
        }
    });
    let config = json!({ "path": "out/{stream}.jsonl" });
    let skipped = [
        "append",
        "upsert",
        "progress",
        "commit-once",
        "fence",
        "pipelines",
        "rejects",
    ];
    let peer = ["--peer", "source-http", "--peer-config"];
    let streams = json!({ "{stream}": { "path": "{stream}" } });
    let look = json!({ "base_url": server.url(""), "streams": streams }).to_string();
    let more = [&peer[..], &[&look]].concat();
    let document = passes(&folder, "dest-file", &config, &more, &skipped);
    let streams = detail(&document, "streams");
    assert_eq!(streams, "3 streams; every value as the peer reads it");
    // A peer with a name of its own for it.
    let streams = json!({ "rows": { "path": "{stream}" } });
    let look = json!({ "base_url": server.url(""), "streams": streams }).to_string();
    let named = [&peer[..], &[&look, "--peer-stream", "rows"]].concat();
    passes(&folder, "dest-file", &config, &named, &skipped);
    let without = [&peer[..], &[&look]].concat();
    let (document, _) = test(&folder, "dest-file", &config, &without);
    assert!(
        with(&document, "skip").contains(&"write".into()),
        "{document:#}"
    );
}

#[test]
fn the_template_and_the_source_in_python() {
    let folder = Folder::new();
    let skipped = [
        "max-record",
        "filter",
        "columns",
        "checkpoints",
        "order",
        "resume",
        "cursor-columns",
        "initial",
        "late-rows",
        "other-cursor",
        "foreign-cursor",
    ];
    passes(
        &folder,
        &testkit("template"),
        &json!({ "rows": 20_000 }),
        &[],
        &skipped,
    );
    passes(
        &folder,
        &testkit("source-python"),
        &json!({ "batches": 100 }),
        &[],
        &[&["imports"], &skipped[..]].concat(),
    );
}
