//! The output of the program.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::{Ended, Folder, assert_no_secret, copy, generate, testkit};

#[test]
fn the_parts_of_each_stage_sum_to_its_wall_time() {
    let report = Folder::new().report(&generate(300_000, ""));
    let stream = &report["streams"][0];
    for side in ["source", "destination"] {
        let wall = stream[side]["wall_secs"].as_f64().expect("a time");
        let parts = stream[side]["parts"].as_object().expect("parts");
        let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
        assert!((sum - wall).abs() <= 0.02 * wall, "{side}: {sum} of {wall}");
        assert!(wall <= stream["wall_secs"].as_f64().expect("a time") * 1.02);
    }
}

#[test]
fn the_timing_keys_are_stable() {
    let report = Folder::new().report(&generate(1_000, ""));
    for key in [
        "source_connect_secs",
        "source_query_secs",
        "source_fetch_secs",
        "source_decode_secs",
        "source_arrow_encode_secs",
        "dest_connect_secs",
        "dest_recv_secs",
        "dest_arrow_decode_secs",
        "dest_encode_secs",
        "dest_flush_secs",
        "dest_commit_secs",
        "vm_setup_secs",
        "module_load_secs",
        "crossing_secs",
        "compress_secs",
        "decompress_secs",
        "channel_wait_secs",
    ] {
        assert!(report["timing"][key].is_f64(), "{key}");
    }
    assert!(report["total_secs"].is_f64());
}

#[test]
fn quiet_is_quiet_and_verbose_says_more() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let quiet = folder.rapidbyte(&["run", "-q", "p.yaml"]);
    assert_eq!(
        (quiet.stdout.as_str(), quiet.stderr.as_str(), quiet.code),
        ("", "", Some(0))
    );
    let plain = folder.rapidbyte(&["run", "p.yaml"]);
    assert!(
        plain.stdout.contains("10 rows") && plain.stdout.contains("slowest phase"),
        "{}",
        plain.stdout
    );
    assert!(!plain.stdout.contains('\x1b') && !plain.stderr.contains("started"));
    let verbose = folder.rapidbyte(&["run", "-v", "p.yaml"]);
    assert!(verbose.stderr.contains("started"), "{}", verbose.stderr);
    assert!(verbose.stdout.contains("wall") && !plain.stdout.contains("wall"));
    let json = folder.rapidbyte(&["run", "-v", "p.yaml", "--log-format", "json"]);
    for line in json.stderr.lines() {
        let line: Value = serde_json::from_str(line).expect("one object a line");
        assert!(line["level"].is_string() && line["message"].is_string());
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
        assert!(line.get("run_id").is_some() && line.get("stream").is_some());
    }
    assert!(json.stderr.lines().count() >= 2);
}

#[test]
fn plan_shows_types_on_both_sides_and_grants_and_writes_nothing() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a,b\n1,x\n")
        .write("p.yaml", copy("csv", "jsonl"));
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    for part in [
        "read in.csv",
        "write out/*.jsonl",
        "int64",
        "exact",
        "out/in.jsonl",
    ] {
        assert!(
            plan.stdout.contains(part),
            "{part} is not in {}",
            plan.stdout
        );
    }
    assert_eq!(folder.files("."), ["in.csv", "p.yaml"]);
    let plan = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_str(&plan.stdout).expect("one document");
    assert_eq!(plan["streams"][0]["columns"][0]["type"], "int64");
}

#[test]
fn check_and_discover_change_nothing() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a,b\n1,x\n")
        .write("p.yaml", copy("csv", "jsonl"));
    for verb in ["check", "discover"] {
        for format in ["text", "json"] {
            let ended = folder.rapidbyte(&[verb, "p.yaml", "--output", format]);
            assert_eq!(ended.code, Some(0), "{verb}: {}", ended.stderr);
            assert!(!ended.stdout.is_empty());
        }
    }
    assert_eq!(folder.files("."), ["in.csv", "p.yaml"]);
}

#[test]
fn version_and_help_answer() {
    let folder = Folder::new();
    let version = folder.rapidbyte(&["version"]);
    assert_eq!(
        version.stdout.trim(),
        format!("rapidbyte {}", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(folder.rapidbyte(&["--help"]).code, Some(0));
    assert_eq!(folder.rapidbyte(&["rum"]).code, Some(2));
}

#[test]
fn secrets_are_not_shown() {
    let folder = Folder::new();
    folder.write(".env", "HIDDEN=topsecretpath\n");
    let (error, _) = folder.error(&copy("csv", "csv").replace("in.csv", "${HIDDEN}.csv"));
    assert!(!error.to_string().contains("topsecretpath"), "{error:#}");
}

/// A grant, a condition, a place on the disk and the first value of a cursor may come from a variable.
#[test]
fn plan_doctor_and_the_page_of_a_run_show_no_value_of_a_variable() {
    const HIDDEN: &str = "topsecretvalue";
    let database = shared().database();
    let table = "CREATE TABLE t AS SELECT 1 AS id, 'a'::text AS v";
    database.client().batch_execute(table).expect("a table");
    let folder = Folder::new();
    folder
        .write(".env", format!("HIDDEN={HIDDEN}\n"))
        .write(
            "p.yaml",
            format!(
                "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: {:?} }}\n  streams:\n    \
                 - {{ name: public.t, where: \"v <> '${{HIDDEN}}'\" }}\n    \
                 - {{ name: public.u, sync_mode: incremental, cursor_field: v, cursor_initial: [\"${{HIDDEN}}\"] }}\n\
                 destination:\n  use: dest-file\n  config: {{ path: \"out-${{HIDDEN}}/{{stream}}/{{part}}.csv\" }}\n  \
                 write_mode: append\n",
                database.url()
            ),
        );
    let table = "CREATE TABLE u AS SELECT * FROM t";
    database.client().batch_execute(table).expect("a table");
    for arguments in [
        &["plan", "p.yaml"][..],
        &["plan", "p.yaml", "--output", "json"],
        &["plan", "p.yaml", "--grants-only"],
        &["plan", "p.yaml", "--grants-only", "--output", "json"],
        &["check", "p.yaml"],
        &["doctor", "p.yaml"],
        &["doctor", "p.yaml", "--output", "json"],
        &["run", "p.yaml", "--report", "page.html"],
    ] {
        let ended = folder.rapidbyte(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        for (place, text) in [("output", &ended.stdout), ("error", &ended.stderr)] {
            assert_no_secret(&format!("{arguments:?}: {place}"), text.as_bytes(), HIDDEN);
        }
    }
    assert_no_secret("the page", folder.read("page.html").as_bytes(), HIDDEN);
    let plan = folder.rapidbyte(&["plan", "p.yaml"]).stdout;
    for part in ["may write out-***/", "where v <> '***'", "out-***"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
}

#[test]
fn wrong_arguments_are_json_where_json_was_asked_for() {
    let ended = Folder::new().rapidbyte(&["run", "--output", "json", "--wrong"]);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
    assert_eq!(
        (document["error"]["code"].as_str(), ended.code),
        (Some("invalid_argument"), Some(2))
    );
    let text = document["error"].to_string();
    assert!(
        text.contains("--wrong") && text.contains("--help"),
        "{text}"
    );
}

#[test]
fn a_failed_run_names_the_streams_that_it_committed() {
    let folder = Folder::new();
    folder
        .write("in-a.csv", "n\n1\n")
        .write("in-b.csv", "n\n1\nx\n")
        .write("in-c.csv", "n\n1\n");
    let pipeline = copy("csv", "csv")
        .replace("in.csv", "\"in-{stream}.csv\"\n    schema: { n: int64 }")
        .replace("[in]", "[a, c, b]");
    let (error, code) = folder.error(&pipeline);
    assert_eq!(code, 4, "{error:#}");
    assert_eq!(error["stream"], "b");
    assert_eq!(error["committed"], serde_json::json!(["a", "c"]));
    assert_eq!(folder.files("out"), ["a.csv", "c.csv"]);
    let text = folder.rapidbyte(&["run", "p.yaml"]).stderr;
    assert!(text.contains("committed before: a, c"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error_before_the_commit_and_a_warning_after_it() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let into_full = |arguments: &[&str]| -> Ended {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = folder.command(arguments);
        command.stdout(full.expect("a device that is always full"));
        command.output().expect("the program starts").into()
    };
    for arguments in [
        ["run", "p.yaml"].as_slice(),
        &["run", "p.yaml", "--output", "json"],
        &["run", "p.yaml", "--quiet", "--output", "json"],
    ] {
        let ended = into_full(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        let warned = ended.stderr.contains("warning[output_failed]");
        assert!(warned, "{arguments:?}: {}", ended.stderr);
    }
    for arguments in [
        ["plan", "p.yaml"].as_slice(),
        &["run", "p.yaml", "--dry-run"],
    ] {
        let ended = into_full(arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
        let failed = ended.stderr.contains("error[output_failed]");
        assert!(failed, "{arguments:?}: {}", ended.stderr);
    }
    folder.write("in.csv", "n\nx\n").write(
        "q.yaml",
        copy("csv", "csv").replace("in.csv", "in.csv\n    schema: { n: int64 }"),
    );
    let ended = into_full(&["run", "q.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}

#[test]
fn a_reader_that_left_is_not_an_error() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = folder.command(&["run", "p.yaml"]);
    command.stdout(writer);
    let ended: Ended = command.output().expect("the program starts").into();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(1, ""));
    for home in ["nobody", "/nobody/at/home"] {
        let ended: Ended = folder
            .command(&["run", "p.yaml"])
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_STATE_HOME")
            .env("HOME", home)
            .output()
            .expect("the program starts")
            .into();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("every run compiles"),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(folder.files("."), [".rapidbyte", "p.yaml"]);
}

#[test]
fn check_sees_what_only_the_plan_knows() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a\n1\n")
        .write("out/in.csv", "old\n")
        .write("p.yaml", copy("csv", "csv").replace("replace", "append"));
    let ended = folder.rapidbyte(&["check", "p.yaml"]);
    assert_ne!(ended.code, Some(0), "{}", ended.stdout);
    assert!(ended.stdout.contains("plan"), "{}", ended.stdout);
}

#[test]
fn check_opens_each_side_once() {
    let folder = Folder::new();
    let (source, destination) = (testkit("source-misbehave"), testkit("dest-misbehave"));
    for (how, code, checks) in [("nothing", 0, 3), ("discover_error", 4, 2)] {
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: t\n\
                 source: {{ use: {source}, config: {{ how: {how} }}, streams: [rows] }}\n\
                 destination: {{ use: {destination}, config: {{ how: nothing }} }}\n"
            ),
        );
        let ended = folder.rapidbyte(&["check", "p.yaml", "-v", "--output", "json"]);
        assert_eq!(ended.code, Some(code), "{how}: {}", ended.stderr);
        let opened = ended.stderr.matches("opened").count();
        assert_eq!(opened, 2, "{how}: {}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let found = document["checks"].as_array().map(Vec::len);
        assert_eq!(found, Some(checks), "{how}: {document:#}");
    }
}
