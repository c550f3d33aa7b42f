//! Bad input: one clear message, the right exit code, and nothing written.

use crate::support::{Folder, copy, generate, testkit};

/// Nothing may be in the output folder, not even a temporary file.
fn refuses(folder: &Folder, pipeline: &str, code: &str, exit: i32, parts: &[&str]) {
    folder.refuses(pipeline, code, exit, parts);
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn a_missing_pipeline_file() {
    let ended = Folder::new().rapidbyte(&["run", "none.yaml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("none.yaml"), "{}", ended.stderr);
}

#[test]
fn yaml_that_is_none() {
    let folder = Folder::new();
    refuses(
        &folder,
        "version: 1\npipeline: [\n",
        "yaml_syntax",
        2,
        &["p.yaml:"],
    );
    refuses(&folder, "", "empty_file", 2, &["p.yaml"]);
    refuses(
        &folder,
        "version: 1\nversion: 1\n",
        "duplicate_key",
        2,
        &["p.yaml:2:1", "version"],
    );
}

#[test]
fn an_unknown_key_and_its_nearest() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n");
    let top = copy("csv", "csv").replace("source:", "sorce:");
    refuses(
        &folder,
        &top,
        "unknown_key",
        2,
        &["p.yaml:3:1", "sorce", "did you mean", "source"],
    );
    let config = copy("csv", "csv").replace("    path: in", "    paht: in");
    refuses(
        &folder,
        &config,
        "unknown_key",
        2,
        &["p.yaml:6:11", "paht", "did you mean", "path"],
    );
}

#[test]
fn a_value_of_the_wrong_type() {
    let folder = Folder::new();
    let top = generate(1, "resources: { parallelism: [1] }");
    refuses(
        &folder,
        &top,
        "invalid_type",
        2,
        &["p.yaml:5", "resources.parallelism"],
    );
    let config = generate(1, "").replace("rows: 1", "rows: many");
    refuses(
        &folder,
        &config,
        "invalid_config",
        2,
        &["p.yaml:3", "source.config.rows"],
    );
    let word = copy("csv", "csv").replace("in.csv\n", "in.csv\n    header: yes\n");
    refuses(
        &folder,
        &word,
        "invalid_type",
        2,
        &["p.yaml:7", "true or false", "\"yes\"", "write header: true"],
    );
    // A variable that is empty: the connector would take its default.
    for value in ["null", "~", "", "${EMPTY_HERE:-}"] {
        let key = format!("in.csv\n    null_text: {value}\n");
        let null = copy("csv", "csv").replace("in.csv\n", &key);
        let parts = ["p.yaml:7", "null_text has no value", "remove the key"];
        refuses(&folder, &null, "invalid_type", 2, &parts);
    }
    // YAML takes it for a number, and nobody shows it.
    for (value, found) in [
        ("48213377", "a number"),
        ("8213.3", "a number"),
        ("true", "true or false"),
    ] {
        let key = format!("config: {{ url: \"postgres://a@127.0.0.1:1/b\", password: {value}");
        let pipeline = format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-generate, config: {{ rows: 1, preset: narrow }}, streams: [rows] }}\n\
             destination: {{ use: dest-postgres, {key} }} }}\n"
        );
        let parts = ["p.yaml", "password must be a string", found, "in quotes"];
        let folder = Folder::new();
        folder.write("p.yaml", &pipeline);
        let ended = folder.rapidbyte(&["plan", "p.yaml"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part}: {ended:?}");
        }
        assert!(
            value == "true" || !ended.stderr.contains(value),
            "{ended:?}"
        );
    }
}

#[test]
fn faults_that_nobody_can_read() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(1, ""));
    for faults in ["x", "engine.read=explode", "engine.read=kill@0"] {
        let mut command = folder.command(&["run", "p.yaml"]);
        let ended = command
            .env("RAPIDBYTE_FAULTS", faults)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            said.contains("invalid_faults") && said.contains(faults),
            "{said}"
        );
    }
}

#[test]
fn urls_and_home_directories_are_not_taken_for_local_paths() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n");
    for (path, instead) in [
        ("s3://bucket/x.csv", "./s3://"),
        ("~/x.csv", "${HOME}/x.csv"),
    ] {
        let from = copy("csv", "csv").replace("path: in.csv", &format!("path: \"{path}\""));
        let to = copy("csv", "csv").replace("path: out/", &format!("path: {path}/"));
        for (pipeline, key) in [
            (from, "source.config.path"),
            (to, "destination.config.path"),
        ] {
            refuses(
                &folder,
                &pipeline,
                "not_a_local_path",
                2,
                &["p.yaml:", key, instead],
            );
        }
    }
    assert_eq!(folder.files(""), ["in.csv", "p.yaml"]);
}

#[test]
fn an_unset_variable() {
    let folder = Folder::new();
    let pipeline = copy("csv", "csv").replace("in.csv", "${NOWHERE_SET}");
    refuses(
        &folder,
        &pipeline,
        "unset_variable",
        2,
        &["p.yaml:6", "NOWHERE_SET", "source.config.path"],
    );
    folder
        .write("in.csv", "a\n1\n")
        .write(".env", "NOWHERE_SET=in.csv\n");
    assert_eq!(folder.report(&pipeline)["rows"], 1);
}

#[test]
fn connectors_that_are_none() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a\n1\n")
        .write("text.wasm", "not wasm")
        .write("empty.wasm", "");
    folder
        .write("core.wasm", b"\0asm\x01\0\0\0")
        .write("bare.wasm", b"\0asm\x0d\0\x01\0");
    let whole = std::fs::read(testkit("dest-null")).expect("a component");
    folder.write("half.wasm", &whole[..whole.len() / 2]);
    for (name, code, part) in [
        ("source-fil", "unknown_connector", "source-file"),
        ("./none.wasm", "connector_not_found", "none.wasm"),
        ("./text.wasm", "not_a_component", "text.wasm"),
        ("./empty.wasm", "not_a_component", "empty.wasm"),
        ("./core.wasm", "not_a_component", "wasm32-wasip2"),
        ("./half.wasm", "invalid_component", "half.wasm"),
        ("./bare.wasm", "invalid_world", "bare.wasm"),
        ("dest-file", "invalid_world", "source"),
    ] {
        let pipeline = copy("csv", "csv").replace("use: source-file", &format!("use: {name}"));
        refuses(&folder, &pipeline, code, 2, &[part, "p.yaml:4"]);
    }
}

#[test]
fn streams_that_are_not_there() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n");
    let twice = copy("csv", "csv").replace("[in]", "[in, in]");
    refuses(&folder, &twice, "duplicate_stream", 2, &["p.yaml:7", "in"]);
    let nothing = copy("csv", "csv").replace("[in]", "[\"x*\"]");
    refuses(
        &folder,
        &nothing,
        "wildcard_matches_nothing",
        2,
        &["p.yaml:7", "x*"],
    );
    let unknown = copy("csv", "csv").replace("[in]", "[im]");
    refuses(
        &folder,
        &unknown,
        "unknown_stream",
        2,
        &["p.yaml:7", "the source has in"],
    );
}

#[test]
fn data_that_does_not_keep_its_schema() {
    let folder = Folder::new();
    let typed =
        copy("csv", "csv").replace("in.csv\n", "in.csv\n    schema: { a: int64, b: string }\n");
    folder.write("in.csv", "a,b\n1,x\n2\n");
    refuses(&folder, &typed, "csv_ragged_row", 4, &["in.csv:3"]);
    folder.write("in.csv", b"a,b\n1,x\n2,\xff\n");
    refuses(&folder, &typed, "csv_bad_utf8", 4, &["in.csv:3", "\"b\""]);
    folder.write("in.csv", "a,b\n1,x\n99999999999999999999,y\n");
    refuses(
        &folder,
        &typed,
        "value_does_not_fit",
        4,
        &["in.csv:3", "\"a\"", "int64"],
    );
    let json = copy("jsonl", "csv").replace("in.jsonl\n", "in.jsonl\n    schema: { a: int64 }\n");
    folder.write("in.jsonl", "{\"a\": 1}\n{\"a\": \n");
    refuses(&folder, &json, "jsonl_broken_line", 4, &["in.jsonl:2"]);
}

#[test]
fn data_that_would_be_changed_or_lost() {
    let folder = Folder::new();
    folder.write("in.csv", "a,b\r1,2\r3,4\r");
    refuses(
        &folder,
        &copy("csv", "csv"),
        "csv_bare_cr",
        4,
        &["in.csv:1"],
    );
    let sampled = copy("csv", "csv").replace("in.csv\n", "in.csv\n    sample_rows: 2\n");
    folder.write("in.csv", "a,b\n1,1.5\n2,1.25\n3,1.100\n");
    refuses(
        &folder,
        &(sampled + "schema_changes: { type_change: fail }\n"),
        "value_does_not_fit",
        4,
        &["in.csv:4", "\"b\"", "1.100", "schema:"],
    );
    let number = copy("csv", "csv").replace("in.csv\n", "in.csv\n    null_text: 5\n");
    refuses(
        &folder,
        &number,
        "invalid_config",
        2,
        &["p.yaml:7", "a string (in quotes"],
    );
}

#[test]
fn a_missing_input_and_a_folder_that_cannot_be_written() {
    let folder = Folder::new();
    refuses(
        &folder,
        &copy("csv", "csv"),
        "no_file_matches",
        2,
        &["in.csv"],
    );
    folder
        .write("in.csv", "a\n1\n")
        .write("out", "a file where a folder is needed");
    let (error, code) = folder.error(&copy("csv", "csv"));
    assert_ne!(code, 0, "{error:#}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|m| m.contains("out/in.csv")),
        "{error:#}"
    );
    assert_eq!(folder.read("out"), "a file where a folder is needed");
}

#[test]
fn two_streams_in_one_file() {
    let folder = Folder::new();
    folder.write("d/a.csv", "x\n1\n").write("d/b.csv", "x\n1\n");
    let pipeline = copy("csv", "csv")
        .replace("in.csv", "d/{stream}.csv")
        .replace("[in]", "[\"*\"]");
    assert_eq!(folder.report(&pipeline)["rows"], 2);
    assert_eq!(folder.files("out"), ["a.csv", "b.csv"]);
    let (error, code) = folder.error(&pipeline.replace("out/{stream}.csv", "out/all.csv"));
    assert_eq!(code, 2, "{error:#}");
    assert_eq!(folder.files("out"), ["a.csv", "b.csv"]);
}

#[test]
fn a_directory_and_a_pipe_are_not_files() {
    let folder = Folder::new();
    folder.write("dir.csv/in.csv", "a\n1\n");
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe.csv"))
        .status();
    assert!(made.expect("mkfifo").success());
    for name in ["dir", "pipe"] {
        let pipeline = copy(&format!("{name}.csv"), "csv").replace("in.", "");
        let pipeline = pipeline.replace("streams: [in]", &format!("streams: [{name}]"));
        folder.refuses(
            &pipeline,
            "not_a_file",
            2,
            &[&format!("{name}.csv"), "regular"],
        );
    }
    // Signs do not stand for them.
    let all = copy("csv", "csv").replace("path: in.csv", "path: \"*.csv\"");
    folder.refuses(&all, "no_file_matches", 2, &["*.csv"]);
    assert_eq!(folder.files("out"), [""; 0]);
}
