//! Files through the sandbox: values, replacing, aborts.

use crate::support::{Folder, copy, testkit};

const HARD: &str = "id,name,amount,day,note\n\
    1,\"Ä, \"\"x\"\"\",1.5,2026-11-21,\"two\nlines\"\n\
    2,\"\",-0.25,2026-01-01,\n\
    9007199254740993,z,3.5,1999-12-31,\"\"\n";

#[test]
fn csv_to_jsonl_and_back_is_the_same_text() {
    let folder = Folder::new();
    folder.write("in.csv", HARD);
    folder.report(&copy("csv", "jsonl"));
    let json = folder.read("out/in.jsonl");
    assert!(
        json.contains("{\"id\":9007199254740993,\"name\":\"z\""),
        "{json}"
    );
    assert!(
        json.contains("\"note\":null") && json.contains("\"note\":\"\""),
        "{json}"
    );
    let schema = "schema: { id: int64, name: string, amount: float64, day: date, note: string }";
    let back = copy("jsonl", "csv").replace(
        "path: in.jsonl\n",
        &format!("path: out/in.jsonl\n    {schema}\n"),
    );
    folder.report(&back);
    assert_eq!(folder.read("out/in.csv"), HARD);
}

#[test]
fn csv_with_inferred_types_comes_back_with_the_same_characters() {
    let folder = Folder::new();
    let file = "id,price,temp,version,code,seen\n\
        1,1.10,39,1.10,007,2026-11-21T10:11:12.120Z\n\
        2,20.00,39.92,1.9.1,+1,2026-11-21T10:11:13Z\n\
        3,,-0.5,2.0,1e5,\n";
    folder.write("in.csv", file);
    folder.report(&copy("csv", "csv"));
    assert_eq!(folder.read("out/in.csv"), file);
    folder.report(&copy("csv", "jsonl"));
    let json = folder.read("out/in.jsonl");
    let first = "{\"id\":1,\"price\":1.10,\"temp\":39.0,\"version\":\"1.10\",\"code\":\"007\",\
        \"seen\":\"2026-11-21T10:11:12.120Z\"}";
    assert_eq!(json.lines().next(), Some(first));
}

#[test]
fn a_file_does_not_replace_what_is_read() {
    let folder = Folder::new();
    folder.write("in.csv", HARD);
    std::os::unix::fs::symlink(".", folder.path().join("link")).expect("a link");
    let to = |path: &str| copy("csv", "csv").replace("out/{stream}.csv", path);
    for path in ["\"{stream}.csv\"", "./in.csv", "link/in.csv"] {
        let parts = ["the run would write ", "in.csv, which the source reads"];
        folder.refuses(&to(path), "target_is_source", 2, &parts);
        assert_eq!(folder.read("in.csv"), HARD, "{path}");
    }
    let pattern = to("b.csv").replace("path: in.csv", "path: \"?*.csv\"\n    stream: in");
    folder.refuses(&pattern, "target_is_source", 2, &["b.csv"]);
    folder.report(&to("b.csv"));
    assert_eq!(folder.read("b.csv"), HARD);
}

#[test]
fn an_empty_file_of_declared_columns_has_no_rows() {
    let folder = Folder::new();
    folder.write("in.csv", "");
    let declared = copy("csv", "csv").replace("in.csv\n", "in.csv\n    schema: { a: int64 }\n");
    assert_eq!(folder.report(&declared)["rows"], 0);
    assert_eq!(folder.read("out/in.csv"), "a\n");
}

#[test]
fn a_run_leaves_exactly_the_file_it_was_asked_for() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n");
    let report = folder.report(&copy("csv", "jsonl"));
    assert_eq!(folder.files("out"), ["in.jsonl"]);
    assert_eq!(report["streams"][0]["rows"], 1);
}

#[test]
fn a_failing_source_leaves_the_old_file() {
    let folder = Folder::new();
    folder.write("out/rows.csv", "old\n");
    for how in ["panic", "error", "garbage", "lie_rows", "trap", "stack"] {
        let pipeline = format!(
            "version: 1\npipeline: t\n\
             source: {{ use: {}, config: {{ how: {how}, at_batch: 3 }}, streams: [rows] }}\n\
             destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n",
            testkit("source-misbehave")
        );
        let (error, code) = folder.error(&pipeline);
        assert_ne!(code, 0, "{error:#}");
        assert_eq!(error["stream"], "rows", "{error:#}");
        assert_eq!(error["connector"], "source-misbehave", "{error:#}");
        assert_eq!(folder.files("out"), ["rows.csv"], "{how}");
        assert_eq!(folder.read("out/rows.csv"), "old\n", "{how}");
    }
}

#[test]
fn a_failing_destination_is_the_cause_that_is_reported() {
    let folder = Folder::new();
    for (how, code) in [
        ("panic, at: write", "panicked"),
        ("error, at: write", "misbehave"),
        ("panic, at: flush", "panicked"),
        ("lie_on_flush", "contract_broken"),
        ("error, at: commit", "misbehave"),
        ("lie_on_commit", "contract_broken"),
    ] {
        let pipeline = format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-generate, config: {{ rows: 100000, preset: narrow }}, streams: [rows] }}\n\
             destination: {{ use: {}, config: {{ how: {how} }}, write_mode: replace }}\n",
            testkit("dest-misbehave")
        );
        let (error, exit) = folder.error(&pipeline);
        assert_eq!(error["code"], code, "{how}: {error:#}");
        assert_ne!(exit, 0);
    }
}

#[test]
fn paths_are_relative_to_the_pipeline_file() {
    let folder = Folder::new();
    folder
        .write("deep/in.csv", "a\n1\n")
        .write("deep/p.yaml", copy("csv", "csv"));
    let ended = folder.rapidbyte(&["run", "deep/p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.read("deep/out/in.csv"), "a\n1\n");
}

#[test]
fn a_link_or_a_folder_in_the_place_of_the_target_is_left_alone() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n1\n").write("out/real", "old\n");
    std::os::unix::fs::symlink("real", folder.path().join("out/in.csv")).expect("a link");
    for verb in ["run", "check"] {
        folder.write("p.yaml", copy("csv", "csv").replace("{stream}", "in"));
        assert_eq!(folder.rapidbyte(&[verb, "p.yaml"]).code, Some(2), "{verb}");
    }
    assert!(folder.path().join("out/in.csv").is_symlink());
    assert_eq!(folder.read("out/real"), "old\n");
}

/// A byte order mark, another delimiter, line breaks in quotes, declared texts for NULL, and dates as
/// people write them, under a declared schema.
#[test]
fn a_dialect_is_read_as_it_is_declared() {
    let folder = Folder::new();
    folder.write(
        "in.csv",
        "\u{feff}id;day;seen;note\r\n7;21.11.2026;11/21/2026 01:05 PM;\"two\r\nlines\"\r\n\
         8;n/a;n/a;-\r\n",
    );
    let dialect = "in.csv\n    delimiter: \";\"\n    null_text: [\"n/a\", \"-\"]\n    \
        schema: { id: string, day: date, seen: timestamp, note: string }\n    \
        date_format: \"%d.%m.%Y\"\n    column_formats: { seen: \"%m/%d/%Y %I:%M %p\" }\n";
    let pipeline = copy("csv", "jsonl").replace("in.csv\n", dialect);
    folder.report(&pipeline);
    assert_eq!(
        folder.read("out/in.jsonl"),
        "{\"id\":\"7\",\"day\":\"2026-11-21\",\"seen\":\"2026-11-21T13:05:00\",\"note\":\"two\\r\\nlines\"}\n\
         {\"id\":\"8\",\"day\":null,\"seen\":null,\"note\":null}\n"
    );
    folder.write("in.csv", "id;day;seen;note\n7;2026-11-21;;\n");
    folder.refuses(
        &pipeline,
        "value_does_not_fit",
        4,
        &["in.csv:2", "the form"],
    );
    let wrong = pipeline.replace("%d.%m.%Y", "%d.%m.%y");
    folder.refuses(
        &wrong,
        "invalid_time_pattern",
        2,
        &["config.date_format", "%y"],
    );
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn decimal_commas_are_refused_and_the_plan_says_what_was_inferred() {
    let folder = Folder::new();
    folder.write("in.csv", "id;price;rate\n1;1,5;0.5\n2;2,25;3\n");
    let pipeline = copy("csv", "jsonl").replace("in.csv\n", "in.csv\n    delimiter: \";\"\n");
    folder.write("p.yaml", &pipeline);
    let text = folder.rapidbyte(&["plan", "p.yaml"]).stdout;
    let json = folder
        .rapidbyte(&["plan", "p.yaml", "--output", "json"])
        .stdout;
    for why in [
        "id: int64 (all 2 values of 2 sampled rows are whole numbers)",
        "price: string (all 2 values of 2 sampled rows have a comma, which is not read as a number)",
        "rate: float64 (1 of 2 values of 2 sampled rows has a fraction)",
    ] {
        // Lines of the text are broken.
        assert!(words(&text).contains(why), "{text}");
        assert!(json.contains(why), "{json}");
    }
    let declared = pipeline.replace(
        "  streams:",
        "    schema: { id: int64, price: \"decimal(10, 2)\", rate: float64 }\n  streams:",
    );
    folder.refuses(
        &declared,
        "decimal_comma",
        4,
        &[
            "in.csv:2",
            "\"1,5\" has a comma",
            "decimal points",
            "\"price\"",
        ],
    );
}

#[test]
fn a_sign_does_not_stand_for_the_dot_of_a_hidden_name() {
    let folder = Folder::new();
    folder
        .write("in/a.csv", "id\n1\n")
        .write("in/.b.csv", "id\n2\n")
        .write("in/.set.1-0.tmp/a.csv", "id\n3\n")
        .write("in/set/a.csv", "id\n4\n");
    for (path, rows) in [
        ("in/*.csv", 1),
        ("in/*/*.csv", 1),
        ("in/.b*", 1),
        ("in/?*", 1),
    ] {
        let pipeline = copy("csv", "jsonl").replace(
            "path: in.csv",
            &format!("path: '{path}'\n    stream: in\n    format: csv"),
        );
        let report = folder.report(&pipeline);
        assert_eq!(report["rows"], rows, "{path}");
    }
}

#[test]
fn each_stream_has_its_own_partitions() {
    let folder = Folder::new();
    folder.write(
        "in/sales.csv",
        "day,hour,n\n2026-01-01,7,1\n2026-01-02,8,2\n",
    );
    folder.write("in/staff.csv", "day,name\n2026-01-01,a\n");
    folder.write("in/shops.csv", "day,city\n2026-01-01,b\n");
    let pipeline = |by: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-file\n  config: {{ path: \"in/{{stream}}.csv\" }}\n  streams: [\"*\"]\n\
             destination:\n  use: dest-file\n  config:\n    path: \"out/{{stream}}/rows.csv\"\n{by}  write_mode: replace\n"
        )
    };
    let by =
        "    partition_by: [day]\n    partition_by_stream: { sales: [day, hour], shops: [] }\n";
    folder.write("p.yaml", pipeline(by));
    let planned = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(planned.code, Some(0), "{}", planned.stderr);
    for told in [
        "write out/*/day=*/rows.csv",
        "write out/sales/day=*/hour=*/rows.csv",
        "write out/shops/rows.csv",
        "staff -> out/staff/day=*/rows.csv",
    ] {
        assert!(planned.stdout.contains(told), "{told}: {}", planned.stdout);
    }
    folder.report(&pipeline(by));
    let read = |path: &str| folder.read(&format!("out/{path}/rows.csv"));
    assert_eq!(read("sales/day=2026-01-01/hour=7"), "n\n1\n");
    assert_eq!(read("sales/day=2026-01-02/hour=8"), "n\n2\n");
    assert_eq!(read("staff/day=2026-01-01"), "name\na\n");
    assert_eq!(read("shops"), "day,city\n2026-01-01,b\n");
    // Streams that the setting does not name have no partitions, unless partition_by says so.
    std::fs::remove_dir_all(folder.path().join("out")).expect("a folder");
    folder.report(&pipeline("    partition_by_stream: { sales: [hour] }\n"));
    assert_eq!(read("sales/hour=8"), "day,n\n2026-01-02,2\n");
    assert_eq!(read("staff"), "day,name\n2026-01-01,a\n");
    folder.refuses(
        &pipeline("    partition_by_stream: { sales: [our] }\n"),
        "unknown_column",
        2,
        &["sales", "config.partition_by_stream.sales", "\"our\""],
    );
    folder.refuses(
        &pipeline("    partition_by_stream: { sales: [day, day] }\n"),
        "invalid_config",
        2,
        &["config.partition_by_stream.sales", "twice"],
    );
}

#[test]
fn streams_that_share_a_folder_are_refused_before_any_row() {
    let folder = Folder::new();
    folder.write("in/a.csv", "day,hour,n\n2026-01-01,7,1\n");
    folder.write("in/b.csv", "day,n\n2026-01-01,2\n");
    let pipeline = |settings: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-file\n  config: {{ path: \"in/{{stream}}.csv\" }}\n  streams: [\"*\"]\n\
             destination:\n  use: dest-file\n  config: {{ {settings} }}\n  write_mode: replace\n"
        )
    };
    // The files of the two streams differ, and their folder does not.
    for settings in [
        "path: out/rows.csv, partition_by: [day], partition_by_stream: { a: [day, hour] }",
        "path: out/rows.csv, partition_by_stream: { a: [hour], b: [] }",
        "path: \"out/{stream}-{part}.csv\"",
        "path: \"out/{stream}-{part}.csv\", split: { rows: 1 }",
        "path: \"out/{stream}.csv\", partition_by: [day]",
    ] {
        folder.write("p.yaml", pipeline(settings));
        for verb in ["plan", "check", "run"] {
            let ended = folder.rapidbyte(&[verb, "p.yaml"]);
            let told = format!("{settings}: {verb}: {}{}", ended.stderr, ended.stdout);
            assert_eq!(ended.code, Some(2), "{told}");
            for part in ["shared_target", "a and b would both be written", "{stream}"] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        assert!(!folder.path().join("out").exists(), "{settings}");
        assert!(!folder.path().join(".rapidbyte").exists(), "{settings}");
    }
    // One of them alone has the folder for itself.
    let alone = folder.rapidbyte(&["run", "p.yaml", "--select", "a"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
}

#[test]
fn settings_of_a_stream_that_does_not_move_are_refused_with_the_nearest_name() {
    let folder = Folder::new();
    folder.write("in/sales.csv", "day,n\n2026-01-01,1\n");
    folder.write("in/shops.csv", "day,n\n2026-01-01,1\n");
    let pipeline = |by: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source:\n  use: source-file\n  config: {{ path: \"in/{{stream}}.csv\" }}\n  streams: [\"*\"]\n\
             destination:\n  use: dest-file\n  config:\n    path: \"out/{{stream}}/rows.csv\"\n    \
             partition_by_stream:\n      {by}\n  write_mode: replace\n"
        )
    };
    for (by, told) in [
        ("sale: [day]", "did you mean \"sales\"?"),
        (
            "\"s*\": [day]",
            "takes whole names, without * and ?; the pipeline moves sales, shops",
        ),
        ("\"public.sales\": [day]", "the pipeline moves sales, shops"),
    ] {
        let parts = ["p.yaml:12:7", "partition_by_stream names", told];
        folder.refuses(&pipeline(by), "unknown_stream", 2, &parts);
        for verb in ["plan", "check"] {
            let ended = folder.rapidbyte(&[verb, "p.yaml"]);
            assert_eq!(
                ended.code,
                Some(2),
                "{verb}: {}{}",
                ended.stderr,
                ended.stdout
            );
        }
        assert!(!folder.path().join("out").exists());
    }
    // A stream of the pipeline that does not move this time keeps its setting.
    folder.write("p.yaml", pipeline("sales: [day]"));
    let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "shops"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
