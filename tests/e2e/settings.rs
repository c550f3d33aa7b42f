//! Every key of a pipeline file changes something.

use rapidbyte_testkit::postgres::shared;

use crate::support::{Folder, copy, generate, testkit};

#[test]
fn version_must_be_one() {
    let pipeline = generate(1, "").replace("version: 1", "version: 2");
    Folder::new().refuses(&pipeline, "invalid_value", 2, &["p.yaml:1"]);
}

#[test]
fn pipeline_names_the_report() {
    let report = Folder::new().report(&generate(1, "").replace("pipeline: t", "pipeline: other"));
    assert_eq!(report["pipeline"], "other");
}

#[test]
fn streams_choose_by_name_and_by_wildcard() {
    let folder = Folder::new();
    for (streams, expected) in [
        ("[a1]", vec!["a1"]),
        ("[\"a*\"]", vec!["a1", "a2"]),
        ("[\"?1\", a2]", vec!["a1", "b1", "a2"]),
        ("[\"*\", b1]", vec!["a1", "a2", "b1"]),
    ] {
        let pipeline = format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-generate, config: {{ rows: 1, preset: narrow, streams: [a1, a2, b1] }}, streams: {streams} }}\n\
             destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n"
        );
        let report = folder.report(&pipeline);
        let names: Vec<_> = report["streams"]
            .as_array()
            .expect("streams")
            .iter()
            .collect();
        let names: Vec<_> = names
            .iter()
            .map(|s| s["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(names, expected, "{streams}");
    }
}

#[test]
fn sync_mode_and_its_default_are_obeyed() {
    let folder = Folder::new();
    let stream = generate(1, "")
        .replace(
            "[rows]",
            "[{name: rows, sync_mode: incremental, cursor_field: id}]",
        )
        .replace("replace", "append");
    folder.refuses(&stream, "unsupported_sync_mode", 2, &["source.streams[0]"]);
    let default = generate(1, "defaults: { sync_mode: cdc }");
    folder.refuses(&default, "unsupported_sync_mode", 2, &["cdc"]);
    let stream = default.replace("[rows]", "[{name: rows, sync_mode: full_refresh}]");
    assert_eq!(folder.report(&stream)["rows"], 1);
}

#[test]
fn columns_choose_and_order() {
    let folder = Folder::new();
    folder.write("in.csv", "a,b,c\n1,x,2\n");
    folder.report(&copy("csv", "csv").replace("[in]", "[{name: in, columns: [c, a]}]"));
    assert_eq!(folder.read("out/in.csv"), "c,a\n2,1\n");
    let wrong = copy("csv", "csv").replace("[in]", "[{name: in, columns: [aa]}]");
    folder.refuses(&wrong, "unknown_column", 2, &["aa"]);
}

#[test]
fn write_mode_decides_what_happens_to_a_file_that_is_there() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a\n1\n")
        .write("out/in.csv", "old\n");
    let (error, code) = folder.error(&copy("csv", "csv").replace("replace", "append"));
    assert_ne!(code, 0, "{error:#}");
    assert_eq!(folder.read("out/in.csv"), "old\n");
    folder.report(&copy("csv", "csv"));
    assert_eq!(folder.read("out/in.csv"), "a\n1\n");
    std::fs::remove_file(folder.path().join("out/in.csv")).expect("it was there");
    folder.report(&copy("csv", "csv").replace("replace", "append"));
    assert_eq!(folder.read("out/in.csv"), "a\n1\n");
}

#[test]
fn primary_key_belongs_to_upsert() {
    let folder = Folder::new();
    let upsert = generate(1, "").replace("write_mode: replace", "write_mode: upsert");
    folder.refuses(&upsert, "unsupported_write_mode", 2, &["upsert"]);
    let keyed = upsert.replace("upsert", "append, primary_key: [id]");
    folder.refuses(&keyed, "invalid_value", 2, &["primary_key has no effect"]);
}

#[test]
fn batch_bytes_set_the_size_of_batches() {
    let folder = Folder::new();
    let batches = |size: &str| {
        let report = folder.report(&generate(
            50_000,
            &format!("resources: {{ batch_bytes: {size} }}"),
        ));
        assert_eq!(report["rows"], 50_000);
        report["streams"][0]["batches"].as_u64().expect("a count")
    };
    assert!(batches("64kb") > 4 * batches("1mb"));
}

#[test]
fn max_record_bytes_refuses_larger_records() {
    let folder = Folder::new();
    folder.write("in.csv", format!("a,b\n1,{}\n", "x".repeat(50_000)));
    let limited = |bytes| {
        format!(
            "{}resources: {{ max_record_bytes: {bytes} }}\n",
            copy("csv", "csv")
        )
    };
    folder.refuses(&limited(8_000), "record_too_large", 4, &["in.csv:2"]);
    assert_eq!(folder.files("out"), [""; 0]);
    assert_eq!(folder.report(&limited(200_000))["rows"], 1);
}

#[test]
fn memory_bounds_a_connector() {
    let folder = Folder::new();
    let bomb = format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, config: {{ how: memory }}, streams: [rows] }}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("source-misbehave"),
        testkit("dest-null")
    );
    for (memory, share) in [("64mb", "56 MiB"), ("128mb", "112 MiB")] {
        let pipeline = format!("{bomb}resources: {{ memory: {memory} }}\n");
        folder.refuses(&pipeline, "memory_limit", 1, &[share, "resources.memory"]);
    }
}

#[test]
fn compression_changes_the_way_and_not_the_rows() {
    let folder = Folder::new();
    let mut hashes = Vec::new();
    for compression in ["none", "lz4", "zstd"] {
        let more = format!("resources: {{ compression: {compression} }}");
        let hashed =
            generate(20_000, &more).replace("write_mode", "config: { hash: true }, write_mode");
        let report = folder.report(&hashed);
        let spent = report["timing"]["decompress_secs"]
            .as_f64()
            .expect("a time");
        assert_eq!(
            spent > 20e-6,
            compression != "none",
            "{compression}: {spent}"
        );
        hashes.push(report["streams"][0]["location"].clone());
    }
    assert!(
        hashes[0]
            .as_str()
            .is_some_and(|hash| hash.len() > "null:".len())
    );
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn rename_gives_columns_their_name_in_the_destination() {
    let folder = Folder::new();
    folder.write("in.csv", "a,b,c\n1,x,2\n");
    let renamed =
        |what: &str| copy("csv", "csv").replace("[in]", &format!("[{{name: in, {what}}}]"));
    folder.report(&renamed("columns: [c, a], rename: {c: total}"));
    assert_eq!(folder.read("out/in.csv"), "total,a\n2,1\n");
    folder.report(&renamed("rename: {a: b, b: a}"));
    assert_eq!(folder.read("out/in.csv"), "b,a,c\n1,x,2\n");
    let at = ["source.streams[0].rename", "p.yaml:"];
    folder.refuses(&renamed("rename: {x: y}"), "unknown_column", 2, &at);
    folder.refuses(&renamed("rename: {a: b}"), "invalid_rename", 2, &at);
    folder.refuses(
        &renamed("rename: {a: z, b: z}"),
        "invalid_value",
        2,
        &["p.yaml:", "renamed"],
    );
}

#[test]
fn where_is_refused_by_a_source_without_conditions() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n");
    let filtered = copy("csv", "csv").replace("[in]", "[{name: in, where: a > 1}]");
    let at = ["source.streams[0].where", "p.yaml:7:31"];
    folder.refuses(&filtered, "unsupported_where", 2, &at);
}

#[test]
fn a_record_as_large_as_the_default_limit_passes() {
    let folder = Folder::new();
    // The default is an eighth of 256 MiB.
    let text = "x".repeat(31 << 20);
    folder.write("in.csv", format!("a,b\n1,{text}\n2,y\n"));
    let declared = "path: in.csv\n    schema: { a: int64, b: string }";
    let report = folder.report(&copy("csv", "jsonl").replace("path: in.csv", declared));
    assert_eq!(report["rows"], 2);
    let written = folder.read("out/in.jsonl");
    assert_eq!(written.lines().count(), 2);
    assert!(written.contains(&text));
    // Above the limit, the error names file and line, with a declared schema and with an inferred one.
    folder.write("in.csv", format!("a,b\n1,{text}{text}{text}\n2,y\n"));
    for pipeline in [
        copy("csv", "jsonl"),
        copy("csv", "jsonl").replace("path: in.csv", declared),
    ] {
        folder.refuses(&pipeline, "record_too_large", 4, &["in.csv:2"]);
    }
}

#[test]
fn a_record_as_large_as_the_default_limit_passes_between_databases() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute("CREATE TABLE t AS SELECT 1 AS id, repeat('x', 31 << 20) AS s")
        .expect("a table");
    for method in ["copy", "insert"] {
        let report = Folder::new().report(&format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", load_method: {method} }}, write_mode: replace }}\n",
            source.url(),
            target.url()
        ));
        assert_eq!(report["rows"], 1);
    }
    source
        .client()
        .batch_execute("INSERT INTO t SELECT 2, repeat('y', 33 << 20)")
        .expect("a row");
    let (error, code) = Folder::new().error(&format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: replace }}\n",
        source.url(),
        target.url()
    ));
    assert_eq!(
        (error["code"].as_str(), code),
        (Some("record_too_large"), 4)
    );
}

#[test]
fn an_unknown_key_that_is_merged_is_reported_at_the_merge_key() {
    let folder = Folder::new();
    folder.write("in.csv", "id\n1\n");
    let pipeline = "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: &c\n    path: in.csv\n    \
                    stream: in\n  streams: [in]\ndestination:\n  use: dest-file\n  config:\n    <<: *c\n    \
                    path: out.csv\n  write_mode: replace\n";
    let told = "unknown key \"stream\", which << takes from line 7";
    folder.refuses(pipeline, "unknown_key", 2, &["p.yaml:12:5", told]);
}
