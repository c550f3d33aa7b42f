use serde_json::json;

use super::super::declare::mappings;
use super::*;

#[test]
fn the_least_document_has_the_defaults() {
    let document = good(LEAST);
    assert_eq!(document.version, 1);
    assert_eq!(document.pipeline, "orders");
    assert_eq!(document.source.connector, "source-file");
    assert_eq!(document.source.config, Map::new());
    assert_eq!(
        document.source.streams,
        [Stream::named("orders".to_owned())]
    );
    assert_eq!(document.destination.write_mode, WriteMode::Append);
    assert_eq!(document.destination.primary_key, [""; 0]);
    assert_eq!(document.resources, Resources::default());
    assert_eq!(document.base_dir, Path::new("."));
    assert_eq!(document.file, "p.yaml");
}

#[test]
fn every_key_is_read() {
    let document = good(
        "version: 1
pipeline: my.orders-2_x
defaults: { sync_mode: incremental, cursor_field: updated_at, lag: 1 hour }
source:
  use: ./mine.wasm
  config: { z: 1, a: [true, null] }
  streams:
    - name: public.orders
      sync_mode: cdc
      columns: [id, total]
      where: total > 0
      rename: { total: amount }
    - public.*
    - name: public.log
      cursor_field: [at, id]
      cursor_initial: [2026-01-01, 7]
      change_detection: cursor
      write_mode: upsert
      primary_key: [id]
      deleted_field: gone
      schema_changes: frozen
      deletes: { mode: compare, action: mark, column: gone_at, max_share: 0.25 }
destination:
  use: dest-postgres
  config: { schema: raw }
  write_mode: merge
  primary_key: [id, line]
  deleted_field: deleted_at
checkpoint: { every_bytes: 8mb, every_rows: 5, every_seconds: 7 }
retry: { max_attempts: 2, backoff_seconds: 3, max_backoff_seconds: 4 }
report: { directory: reports, keep: 5 }
when_running: replace
verify: after_run
schedule: { cron: '*/5 1-3 * * MON', timezone: Europe/Berlin, catchup: all, jitter_seconds: 0, timeout_seconds: 60 }
notify: { success: 'https://hooks.example.com/a', failure: 'http://me:hunter22@127.0.0.1:9/b', secret: 0123456789abcdef-x }
on_stream_failure: stop
schema_changes: { new_column: ignore, dropped_column: drop, type_change: rewrite, backfill: true }
deletes: { mode: compare }
rejects: { max_rows: 5, max_share: 0.5, to: raw.bad }
resources:
  memory: 1gb
  batch_bytes: 64KiB
  max_record_bytes: 1048576
  parallelism: 4
  compression: zstd
",
    );
    let expected = json!({
        "version": 1,
        "pipeline": "my.orders-2_x",
        "source": {
            "use": "./mine.wasm",
            "config": {"z": 1, "a": [true, null]},
            "streams": [
                {
                    "name": "public.orders",
                    "sync_mode": "cdc",
                    "columns": ["id", "total"],
                    "where": "total > 0",
                    "rename": {"total": "amount"},
                },
                {
                    "name": "public.*",
                    "sync_mode": "incremental",
                    "columns": null,
                    "cursor_field": ["updated_at"],
                    "lag": "1 hour",
                },
                {
                    "name": "public.log",
                    "sync_mode": "incremental",
                    "columns": null,
                    "cursor_field": ["at", "id"],
                    "cursor_initial": ["2026-01-01", "7"],
                    "write_mode": "upsert",
                    "primary_key": ["id"],
                    "deleted_field": "gone",
                    "schema_changes": {"new_column": "fail", "dropped_column": "fail", "type_change": "fail", "renamed": "off",
                        "backfill": false},
                    "deletes": {"mode": "compare", "action": "mark", "column": "gone_at", "max_share": 0.25},
                },
            ],
        },
        "destination": {
            "use": "dest-postgres",
            "config": {"schema": "raw"},
            "write_mode": "upsert",
            "primary_key": ["id", "line"],
            "deleted_field": "deleted_at",
        },
        "checkpoint": {"every_bytes": 8 << 20, "every_rows": 5, "every_seconds": 7},
        "retry": {"max_attempts": 2, "backoff_seconds": 3, "max_backoff_seconds": 4},
        "report": {"directory": "reports", "keep": 5},
        "when_running": "replace",
        "verify": "after_run",
        "schedule": {"cron": "*/5 1-3 * * MON", "timezone": "Europe/Berlin", "catchup": "all", "jitter_seconds": 0,
            "timeout_seconds": 60},
        "notify": {"success": "https://hooks.example.com/a", "failure": "http://me:hunter22@127.0.0.1:9/b", "secret": "***"},
        "on_stream_failure": "stop",
        "schema_changes": {"new_column": "ignore", "dropped_column": "drop", "type_change": "rewrite", "backfill": true},
        "deletes": {"mode": "compare", "action": "delete", "max_share": 0.1},
        "rejects": {"max_rows": 5, "max_share": 0.5, "to": "raw.bad"},
        "resources": {
            "memory": 1_u64 << 30,
            "batch_bytes": 65536,
            "max_record_bytes": 1_048_576,
            "parallelism": 4,
            "compression": "zstd",
        },
    });
    let written = serde_json::to_value(&document).unwrap();
    assert_eq!(written, expected);
    let order: Vec<_> = document.source.config.keys().collect();
    assert_eq!(order, ["z", "a"], "the order of the file is kept");
}

#[test]
fn defaults_hold_wherever_they_stand() {
    let document = good(&with("defaults: {sync_mode: cdc}\n"));
    assert_eq!(document.source.streams[0].sync_mode, SyncMode::Cdc);
}

#[test]
fn an_exact_name_wins_over_wildcards_and_the_first_wildcard_over_the_next() {
    let text = LEAST.replace("[orders]", "['*', 'public.*', 'public.orders', 'x?z']");
    let source = good(&text).source;
    assert_eq!(source.entry_for("public.orders"), Some(2));
    assert_eq!(source.entry_for("public.lines"), Some(0));
    let text = LEAST.replace("[orders]", "['public.*', 'x?z', 'a*b*c']");
    let source = good(&text).source;
    assert_eq!(source.entry_for("other.orders"), None);
    assert_eq!(source.entry_for("xyz"), Some(1));
    assert_eq!(source.entry_for("xéz"), Some(1));
    assert_eq!(source.entry_for("xz"), None);
    assert_eq!(source.entry_for("abc"), Some(2));
    assert_eq!(source.entry_for("a.b.b.cc"), Some(2));
    assert_eq!(source.entry_for("a.b.cd"), None);
    assert!(source.streams[0].is_pattern());
}

/// Each text replaces or follows the least document.
#[test]
fn mistakes_in_keys_and_values_say_what_to_do() {
    let source = |streams: &str| LEAST.replace("  streams: [orders]\n", streams);
    let cases = [
        (
            LEAST.replace("source:", "sorce:"),
            "p.yaml:3:1: unknown key \"sorce\" (did you mean \"source\"?)",
        ),
        (
            LEAST.replace("  use: dest-file", "  sue: dest-file"),
            "p.yaml:7:3: unknown key \"sue\" (did you mean \"use\"?)",
        ),
        (
            with("write_mode: append\n"),
            "p.yaml:8:1: unknown key \"write_mode\" (move it to destination)",
        ),
        (
            with("banana: 1\n"),
            "p.yaml:8:1: unknown key \"banana\" (use one of these keys: version, pipeline, \
             source, defaults, destination, schema_changes, rejects, deletes, resources, checkpoint, retry, \
             on_stream_failure, report, when_running, verify, schedule, notify)",
        ),
        (
            source("  streams:\n    - name: a\n      having: x > 1\n"),
            "p.yaml:7:7: unknown key \"having\" (use one of these keys: name, query, sync_mode, \
             columns, where, rename, cursor_field, cursor_initial, change_detection, lag, target, write_mode, \
             primary_key, deleted_field, schema_changes, deletes, transforms)",
        ),
        (
            LEAST.replace("version: 1\n", ""),
            "p.yaml:1:1: the key version is missing (start the file with version: 1)",
        ),
        (
            LEAST.replace("version: 1", "version: 2"),
            "p.yaml:1:10: version \"2\" is unknown (write version: 1, or use a newer program for \
             a newer file)",
        ),
        (
            LEAST.replace("pipeline: orders\n", ""),
            "p.yaml:1:1: the key pipeline is missing (name the pipeline: pipeline: orders)",
        ),
        (
            LEAST.replace("pipeline: orders", "pipeline: my orders"),
            "p.yaml:2:11: \"my orders\" is not a valid pipeline name (use 1 to 64 letters, \
             digits, \"_\", \"-\" and \".\")",
        ),
        (
            LEAST.replace("pipeline: orders", "pipeline: 2024"),
            "p.yaml:2:11: pipeline must be a string, but is a number (put it in quotes)",
        ),
        (
            LEAST.replace("pipeline: orders", "pipeline:"),
            "p.yaml:2:1: pipeline is empty",
        ),
        (
            LEAST.replace("  use: source-file\n", ""),
            "p.yaml:3:1: the key source.use is missing (name a connector, such as use: \
             source-postgres, or the path of a .wasm file)",
        ),
        (
            source(""),
            "p.yaml:3:1: the key source.streams is missing (name the streams to read, such as \
             streams: [public.orders])",
        ),
        (
            source("  streams: []\n"),
            "p.yaml:5:3: source.streams is an empty list (write streams: [public.orders])",
        ),
        (
            source("  streams: orders\n"),
            "p.yaml:5:12: source.streams must be a list, but is a single value (write streams: [orders])",
        ),
        (
            source("  streams:\n    - orders\n    - sync_mode: cdc\n"),
            "p.yaml:7:7: the key source.streams[1].name is missing (write - name: public.orders)",
        ),
        (
            source("  streams:\n    - orders\n    - name: lines\n    - name: orders\n"),
            "p.yaml:8:13: the stream \"orders\" is already in line 6 (remove one of them)",
        ),
        (
            source("  streams:\n    - name: a\n      sync_mode: full\n"),
            "p.yaml:7:18: source.streams[0].sync_mode cannot be \"full\" (use one of: \
             full_refresh, incremental, cdc)",
        ),
        (
            source("  streams:\n    - name: a\n      columns: []\n"),
            "p.yaml:7:7: source.streams[0].columns is an empty list (write columns: [id, total], \
             or remove the key to take all columns)",
        ),
        (
            source("  streams:\n    - name: a\n      columns: [id, total, id]\n"),
            "p.yaml:7:28: \"id\" is already in line 7 (remove one of them)",
        ),
        (
            source("  streams: [[a]]\n"),
            "p.yaml:5:13: source.streams[0] must be a string, but is a list",
        ),
        (
            source("  streams: [true]\n"),
            "p.yaml:5:13: source.streams[0] must be a string, but is true or false (put it in quotes)",
        ),
        (
            with_config("    - a\n"),
            "p.yaml:8:3: source.config must be a mapping, but is a list (write its keys below it, \
             indented by two spaces)",
        ),
        (
            with_config(""),
            "p.yaml:8:3: source.config must be a mapping, but is empty (write its keys below it, \
             indented by two spaces)",
        ),
        (
            with("  write_mode: apend\n"),
            "p.yaml:8:15: destination.write_mode cannot be \"apend\" (did you mean \"append\"?)",
        ),
        (
            with("  deleted_field: gone\n"),
            "p.yaml:8:3: deleted_field has no effect with write_mode: append (set write_mode: \
             upsert, or remove deleted_field)",
        ),
        (
            with("  primary_key: [id]\n"),
            "p.yaml:8:3: primary_key has no effect with write_mode: append (set write_mode: \
             upsert, give an incremental stream a lag, or remove primary_key)",
        ),
        (
            with("  write_mode: upsert\n  primary_key: id\n"),
            "p.yaml:9:16: destination.primary_key must be a list, but is a single value (write \
             primary_key: [id])",
        ),
        (
            LEAST.replace("  use: dest-file\n", "  config: {}\n"),
            "p.yaml:6:1: the key destination.use is missing (name a connector, such as use: \
             dest-postgres, or the path of a .wasm file)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fails(&text).to_string(), expected, "{text}");
    }
}

#[test]
fn the_codes_tell_the_mistakes_apart() {
    let duplicate = LEAST.replace("[orders]", "[a, a]");
    let cases = [
        (with("banana: 1\n"), code::UNKNOWN_KEY, "banana"),
        (duplicate, code::DUPLICATE_STREAM, "source.streams[1]"),
        (
            LEAST.replace("version: 1", "version: [1]"),
            code::WRONG_TYPE,
            "version",
        ),
        (
            with("  write_mode: x\n"),
            code::BAD_VALUE,
            "destination.write_mode",
        ),
    ];
    for (text, code, path) in cases {
        let error = fails(&text);
        assert_eq!((error.code, error.path.as_str()), (code, path));
    }
}

#[test]
fn the_first_mistake_in_the_file_is_reported() {
    let text = "version: 1\nsource:\n  config: {a: \"${NOT_SET}\"}\n  nonsense: 1\nmore: 2\n";
    assert_eq!(fails(text).code, code::UNSET_VARIABLE);
    let text = "nonsense: 1\nversion: 1\nsource:\n  config: {a: \"${NOT_SET}\"}\n";
    assert_eq!(fails(text).code, code::UNKNOWN_KEY);
    // But a key that is missed above because it stands below, one level too high, comes first.
    let text = "version: 1\nsource:\n  use: source-file\nstreams: [a]\n";
    let error = fails(text);
    assert_eq!(
        (error.code, error.path.as_str()),
        (code::UNKNOWN_KEY, "streams")
    );
    let text = "nonsense: 1\nversion: 9\n";
    assert_eq!(
        fails(text).path,
        "version",
        "but the version comes before all"
    );
}

#[test]
fn names_of_pipelines_are_bounded() {
    let named = |name: &str| LEAST.replace("pipeline: orders", &format!("pipeline: '{name}'"));
    good(&named(&"a".repeat(64)));
    good(&named(".hidden-1_2"));
    for bad in ["", " ", ".", "..", "a/b", "é", &"a".repeat(65)] {
        assert_eq!(fails(&named(bad)).code, code::BAD_VALUE, "{bad:?}");
    }
}

#[test]
fn exclude_takes_streams_out_of_wildcards_alone() {
    let text = |streams: &str, exclude: &str| {
        LEAST.replace("[orders]", &format!("[{streams}]\n  exclude: [{exclude}]"))
    };
    let source = good(&text("\"a.*\", b.x", "\"a.tmp_*\", a.log")).source;
    assert_eq!(source.entry_for("a.orders"), Some(0));
    assert_eq!(source.entry_for("a.tmp_1"), None);
    assert_eq!(source.entry_for("a.log"), None);
    assert_eq!(source.entry_for("b.x"), Some(1));
    // A pattern of `exclude` covers a name of `streams`.
    let error = fails(&text("a.log", "\"a.*\""));
    assert_eq!(
        (error.code, error.path.as_str()),
        (code::BAD_VALUE, "source.streams[0]")
    );
    assert_eq!(
        error.hint.as_deref(),
        Some("remove it, or \"a.*\" from source.exclude")
    );
}

/// A file with this value of one key, and nothing else.
fn with_only(mapping: &str, key: &str, value: &str) -> String {
    match mapping {
        "the top level" => format!("{key}: {value}\n"),
        "an entry of source.streams" => format!("source:\n  streams:\n    - {key}: {value}\n"),
        // An entry without `use` is a step, whose key the built-in transform knows.
        "an entry of transforms" => {
            let more = if key == "use" { "" } else { "use: ./a.wasm, " };
            format!("source:\n  streams: [{{ transforms: [{{ {more}{key}: {value} }}] }}]\n")
        }
        "target" => format!("source:\n  streams: [{{ target: {{ {key}: {value} }} }}]\n"),
        other => {
            let open = other.split('.').map(|key| format!("{{ {key}: "));
            let open: String = open.collect::<String>()[2..].to_owned();
            let close = " }".repeat(other.matches('.').count());
            format!("{open}{{ {key}: {value} }}{close}\n")
        }
    }
}

/// The lists of keys, from which the hints are made, are those that the functions read.
#[test]
fn every_known_key_is_read_and_no_other() {
    for (mapping, keys) in &mappings() {
        for key in keys {
            let error = fails(&with_only(mapping, key, "1"));
            assert_ne!(error.code, code::UNKNOWN_KEY, "{mapping} {key}");
        }
        let error = fails(&with_only(mapping, "zzzzzz", "1"));
        assert_eq!(error.code, code::UNKNOWN_KEY, "{mapping}");
        assert_eq!(
            error.hint.unwrap(),
            format!("use one of these keys: {}", keys.join(", "))
        );
    }
}

#[test]
fn no_error_about_a_key_shows_the_value_of_a_variable() {
    let values = [
        "\"${PASSWORD}\"",
        "[\"${PASSWORD}\", \"${PASSWORD}\"]",
        "[\"s3://${PASSWORD}\"]",
        "[\"~/${PASSWORD}\"]",
        "{ a: \"${PASSWORD}\", b: \"${PASSWORD}\" }",
        "[{ name: \"${PASSWORD}\" }, { name: \"${PASSWORD}\" }]",
    ];
    let mut about_variables = 0;
    for (mapping, keys) in &mappings() {
        for key in keys {
            for value in values {
                let error = fails(&with_only(mapping, key, value));
                let shown = format!("{error:?}");
                assert!(!shown.contains("hunter2"), "{mapping} {key}: {shown}");
                about_variables += usize::from(error.message.contains("${PASSWORD}"));
            }
        }
    }
    assert!(
        about_variables > 50,
        "{about_variables} errors were about a variable"
    );
}

#[test]
fn one_name_where_a_list_is_due_is_shown_as_a_list() {
    for (key, hint) in [
        ("columns: id", "write columns: [id]"),
        (
            "columns: {}",
            "write columns: [id, total], or remove the key to take all columns",
        ),
        (
            "transforms: ./a.wasm",
            "write transforms: [{ use: ./mask.wasm }]",
        ),
        (
            "transforms: [./a.wasm]",
            "write transforms: [{ use: ./mask.wasm }]",
        ),
    ] {
        let error = fails(&with_stream(key));
        assert_eq!(error.code, code::WRONG_TYPE, "{key}");
        assert_eq!(error.hint.as_deref(), Some(hint), "{key}");
    }
    let many = "{ use: a.wasm }, ".repeat(17);
    let error = fails(&with_stream(&format!("transforms: [{many}]")));
    assert_eq!(error.message, "17 transforms, above 16");
}

#[test]
fn permissions_are_read_and_mistakes_are_named() {
    let stage = |lines: &str| {
        format!(
            "version: 1\npipeline: t\ndestination: {{ use: dest-file }}\n\
             source:\n  use: source-file\n  streams: [a]\n  permissions: {lines}\n"
        )
    };
    let permissions = |lines: &str| good(&stage(lines)).source.permissions;
    let empty = permissions("{}");
    assert_eq!(empty, rapidbyte_runtime::Permissions::default());
    let read = permissions(
        "{ network: [\"db:5432\", \"*.a.com:443\", \"10.0.0.0/8:${PORT}\"], \
         files: { read: [a/*.csv], write: [b] }, env: [PASSWORD] }",
    );
    let mut expected = rapidbyte_runtime::Permissions::default();
    for entry in ["db:5432", "*.a.com:443", "10.0.0.0/8:5433"] {
        expected.add_network(entry).unwrap();
    }
    expected.add_read("a/*.csv".into());
    expected.add_write("b".into());
    expected.add_env("PASSWORD".into(), "hunter2!".into());
    assert_eq!(read, expected);
    expected = rapidbyte_runtime::Permissions::default();
    expected.take_network();
    expected.take_files();
    assert_eq!(permissions("{ network: none, files: none }"), expected);
    for (lines, code, part) in [
        ("{ network: [db] }", code::BAD_VALUE, "no port"),
        ("{ network: [\"*:1\"] }", code::BAD_VALUE, "wildcard"),
        ("{ network: [] }", code::BAD_VALUE, "empty list"),
        ("{ network: all }", code::WRONG_TYPE, "a list"),
        ("{ files: [a] }", code::WRONG_TYPE, "a mapping or none"),
        ("{ files: { delete: [a] } }", code::UNKNOWN_KEY, "delete"),
        (
            "{ files: { read: [\"s3://b/x\"] } }",
            code::BAD_VALUE,
            "s3://b/x",
        ),
        (
            "{ files: { write: [\"~/x\"] } }",
            code::BAD_VALUE,
            "only a shell",
        ),
        ("{ env: [\"A=B\"] }", code::BAD_VALUE, "not a variable name"),
        ("{ env: [MISSING] }", code::UNSET_VARIABLE, "MISSING"),
        ("[network]", code::WRONG_TYPE, "a mapping"),
    ] {
        let error = fails(&stage(lines));
        assert_eq!(error.code, code, "{lines}: {error}");
        assert!(error.message.contains(part), "{lines}: {error}");
    }
    let document = good(&stage("{ env: [PASSWORD] }"));
    assert_eq!(document.redact("it is hunter2!"), "it is ***");
}

#[test]
fn debug_output_holds_no_settings() {
    let document = good(&with_config("    password: open-sesame\n"));
    let shown = format!("{document:?} {:?}", document.source);
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(shown.contains("source-file"));
}

#[test]
fn an_error_is_json_too() {
    let error = fails(&with("banana: 1\n"));
    let json = serde_json::to_value(&error).unwrap();
    assert_eq!(json["code"], "unknown_key");
    assert_eq!(json["line"], 8);
    assert_eq!(json["path"], "banana");
}

#[test]
fn a_long_key_or_value_is_cut_in_a_message() {
    let error = fails(&with(&format!("{}: 1\n", "k".repeat(100_000))));
    assert!(error.to_string().len() < 300 && error.path.len() < 100);
    let error = fails(&with(&format!("  write_mode: {}\n", "é".repeat(100_000))));
    assert!(error.to_string().len() < 400, "{error}");
}

/// The least pipeline with these keys in its one stream, in the lines from 5 on.
fn with_stream(keys: &str) -> String {
    let keys = keys.replace('\n', "\n      ");
    LEAST.replace("[orders]", &format!("\n    - name: orders\n      {keys}"))
}

#[test]
fn keys_that_say_how_a_stream_resumes() {
    let text = with_stream(
        "sync_mode: incremental\ncursor_field: [updated_at, id]\ncursor_initial: [2026-01-01, \
         7.50]\nlag: 5 minutes",
    );
    let stream = &good(&text).source.streams[0];
    assert_eq!(stream.cursor_field, ["updated_at", "id"]);
    let initial = stream.cursor_initial.as_ref().unwrap();
    assert_eq!(*initial, ["2026-01-01", "7.50"], "as they are written");
    assert_eq!(stream.lag.as_deref(), Some("5 minutes"));
    let text = with_stream("sync_mode: incremental\nchange_detection: xmin");
    assert_eq!(
        good(&text).source.streams[0].change_detection,
        ChangeDetection::Xmin
    );

    let incremental = "sync_mode: incremental\ncursor_field: id\n";
    let keyed = with_stream(&format!("{incremental}lag: 5\nprimary_key: [id]"));
    assert_eq!(good(&keyed).source.streams[0].primary_key, ["id"]);
    let of_all = with_stream(&format!("{incremental}lag: 5")) + "  primary_key: [id]\n";
    assert_eq!(good(&of_all).destination.primary_key, ["id"]);
    // A stream decides for itself.
    let upserts =
        good(&(with_stream("write_mode: upsert") + "  primary_key: [id]\n  deleted_field: gone\n"));
    assert_eq!(
        upserts.write_mode_of(&upserts.source.streams[0]),
        WriteMode::Upsert
    );
    assert_eq!(upserts.destination.write_mode, WriteMode::Append);
    let replaced = "use: dest-file\n  write_mode: replace";
    let appends = with_stream(&format!(
        "{incremental}lag: 5\nwrite_mode: append\nprimary_key: [id]"
    ))
    .replace("use: dest-file", replaced);
    good(&appends);
    let cases = [
        (
            with_stream("write_mode: replace\nprimary_key: [id]"),
            "p.yaml:8:7: primary_key has no effect with write_mode: replace (set write_mode: \
             upsert, give an incremental stream a lag, or remove primary_key)",
        ),
        (
            with_stream(&format!(
                "{incremental}change_detection: xmin\nprimary_key: [id]"
            )),
            "p.yaml:10:7: primary_key has no effect with write_mode: append (set write_mode: \
             upsert, give an incremental stream a lag, or remove primary_key)",
        ),
        (
            with_stream(&format!("{incremental}lag: 5\ndeleted_field: gone")),
            "p.yaml:10:7: deleted_field has no effect with write_mode: append (set write_mode: \
             upsert, or remove deleted_field)",
        ),
        (
            with_stream(&format!("{incremental}late_rows: exact")),
            "p.yaml:9:7: unknown key \"late_rows\" (late_rows has a new name: write \
             change_detection: cursor for lag, or change_detection: xmin for exact)",
        ),
        (
            with_stream("cursor_field: id"),
            "p.yaml:7:7: cursor_field has no effect with sync_mode: full_refresh (set sync_mode: \
             incremental, or remove the key)",
        ),
        (
            with_stream("sync_mode: incremental"),
            "p.yaml:6:7: the key source.streams[0].cursor_field is missing (name a column whose \
             values grow, such as cursor_field: updated_at)",
        ),
        (
            with_stream(&format!("{incremental}change_detection: xmin\nlag: 5")),
            "p.yaml:10:7: change_detection: xmin misses no row, and has no use for a lag (remove lag, \
             or change_detection)",
        ),
        (
            with_stream(&format!("{incremental}cursor_initial: [1, 2]")),
            "p.yaml:9:7: cursor_initial has 2 values for 1 column of cursor_field (write one \
             value for each column)",
        ),
        (
            with_stream("primary_key: [id]"),
            "p.yaml:7:7: primary_key has no effect with write_mode: append (set write_mode: \
             upsert, give an incremental stream a lag, or remove primary_key)",
        ),
        (
            with_stream(incremental)
                .replace("use: dest-file", "use: dest-file\n  write_mode: replace"),
            "p.yaml:7:7: with write_mode: replace, an incremental read would remove the earlier \
             rows (set write_mode: append or upsert, or sync_mode: full_refresh)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fails(&text).to_string(), expected, "{text}");
    }
}

#[test]
fn checkpoints_and_retries() {
    let document = good(LEAST);
    assert_eq!(document.checkpoint, Checkpoint::default());
    assert_eq!(document.retry, Retry::default());
    let text = with("checkpoint: { every_bytes: 8mb, every_rows: 5, every_seconds: 7 }\n")
        + "retry: { max_attempts: 2, backoff_seconds: 60 }\n";
    let document = good(&text);
    let checkpoint = document.checkpoint;
    assert_eq!(
        (
            checkpoint.every_bytes,
            checkpoint.every_rows,
            checkpoint.every_seconds
        ),
        (8 << 20, Some(5), 7)
    );
    // The longest pause is at least the first pause.
    let retry = document.retry;
    assert_eq!(
        (
            retry.max_attempts,
            retry.backoff_seconds,
            retry.max_backoff_seconds
        ),
        (2, 60, 60)
    );
    assert_eq!(document.when_running, WhenRunning::Refuse);
    assert_eq!(document.verify, Verify::Off);
    assert_eq!(
        fails(&with("when_running: waits\n")).to_string(),
        "p.yaml:8:15: when_running cannot be \"waits\" (did you mean \"wait\"?)"
    );
    assert_eq!(
        fails(&with("retry: { max_attempts: 0 }\n")).to_string(),
        "p.yaml:8:24: retry.max_attempts cannot be \"0\" (write a whole number from 1 to 100)"
    );
}

#[test]
fn a_directory_for_reports_is_named_and_bounded() {
    let report = |text: &str| parse(&with(&format!("report: {text}\n")));
    assert_eq!(good(LEAST).report, None);
    let read = report("{ directory: out/reports }")
        .expect("it is one")
        .report;
    let read = read.expect("it is there");
    assert_eq!(
        (read.directory.to_str(), read.keep),
        (Some("out/reports"), 100)
    );
    for (text, expected) in [
        ("{ keep: 5 }", "the key report.directory is missing"),
        ("{ directory: a, keep: 0 }", "report.keep cannot be \"0\""),
        ("{ dir: a }", "unknown key \"dir\""),
        ("reports", "report must be a mapping"),
    ] {
        let error = report(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_setting_of_the_destination_at_a_stream_says_where_it_belongs() {
    let error = fails(&with_stream("partition_by: [day]"));
    assert_eq!(error.code, code::UNKNOWN_KEY, "{error}");
    let hint = error.hint.unwrap_or_default();
    assert!(hint.contains("under destination.config"), "{hint}");
}

#[test]
fn a_schedule_names_times_that_exist_and_a_time_zone() {
    let schedule = |text: &str| parse(&with(&format!("schedule: {text}\n")));
    assert_eq!(good(LEAST).schedule, None);
    let read = schedule("{ cron: \"30  2 * * 1-5\" }").expect("a schedule");
    let read = read.schedule.expect("it is there");
    assert_eq!(
        (read.cron.text(), read.timezone.name(), read.catchup),
        ("30 2 * * 1-5", "UTC", Catchup::One)
    );
    assert_eq!((read.jitter_seconds, read.timeout_seconds), (0, None));
    for (text, expected) in [
        (
            "{ timezone: UTC }",
            "p.yaml:8:1: the key schedule.cron is missing (write the times of the runs, such as cron: \"30 2 * * *\")",
        ),
        (
            "{ cron: \"0 30 2 * * *\" }",
            "p.yaml:8:19: schedule.cron: \"0 30 2 * * *\" has 6 fields (write five fields: minute, hour, day of the \
             month, month, day of the week, such as cron: \"30 2 * * *\")",
        ),
        (
            "{ cron: \"@daily\" }",
            "p.yaml:8:19: schedule.cron: \"@daily\" has 1 field (write five fields: minute, hour, day of the month, \
             month, day of the week, such as cron: \"30 2 * * *\")",
        ),
        (
            "{ cron: \"60 2 * * *\" }",
            "p.yaml:8:19: schedule.cron cannot be \"60 2 * * *\"",
        ),
        (
            "{ cron: \"0 0 30 2 *\" }",
            "p.yaml:8:19: schedule.cron: \"0 0 30 2 *\" matches no day",
        ),
        (
            "{ cron: \"0 2 * * *\", timezone: Europe/Belin }",
            "p.yaml:8:42: schedule.timezone: \"Europe/Belin\" is not a time zone (did you mean \"Europe/Berlin\"?)",
        ),
        (
            "{ cron: \"0 2 * * *\", timezone: CEST }",
            "p.yaml:8:42: schedule.timezone: \"CEST\" is not a time zone",
        ),
        (
            "{ cron: \"0 2 * * *\", catchup: al }",
            "schedule.catchup cannot be \"al\" (did you mean \"all\"?)",
        ),
        (
            "{ cron: \"0 2 * * *\", jitter_seconds: 3601 }",
            "(write a whole number from 0 to 3600)",
        ),
        (
            "{ cron: \"0 2 * * *\", timeout_seconds: 0 }",
            "(write a whole number from 1 to 604800)",
        ),
    ] {
        let error = schedule(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn notify_has_a_url_and_its_credentials_and_its_secret_are_not_shown() {
    let notify = |text: &str| parse(&with(&format!("notify: {text}\n")));
    assert_eq!(good(LEAST).notify, None);
    let document = notify(
        "{ failure: \"https://to%20ken:hunter22@hooks.example.com/x?y=1\", secret: 0123456789abcdef }",
    );
    let document = document.expect("a pipeline");
    let shown = document.redact("to%20ken, to ken, hunter22, 0123456789abcdef, hooks.example.com");
    assert_eq!(shown, "***, ***, ***, ***, hooks.example.com");
    let read = document.notify.as_ref().expect("it is there");
    let url = read.failure.as_ref().expect("a URL");
    assert!(url.text().ends_with("@hooks.example.com/x?y=1"));
    assert!(!format!("{read:?}").contains("hooks") && !format!("{read:?}").contains("0123"));
    for (text, expected) in [
        (
            "{ secret: 0123456789abcdef }",
            "p.yaml:8:1: notify has no URL (write success, failure or schema_change, such as failure: https://",
        ),
        ("{}", "notify has no URL"),
        (
            "{ failure: \"ftp://a/b\" }",
            "p.yaml:8:20: notify.failure: the URL does not begin with http:// or https://",
        ),
        (
            "{ failure: \"hooks.example.com/x\" }",
            "notify.failure: the URL is not valid",
        ),
        (
            "{ failure: \"https://a/b#c\" }",
            "notify.failure: the URL has a fragment",
        ),
        (
            "{ failure: \"https://me:pw@a:65536/x\" }",
            "notify.failure: the URL has a port that does not exist (1 to 65535)",
        ),
        (
            "{ success: \"http://[::1]:99999\" }",
            "notify.success: the URL has a port that does not exist (1 to 65535)",
        ),
        (
            "{ failure: \"https://a b/\" }",
            "notify.failure: the URL is not valid",
        ),
        (
            "{ failure: \"https:///x\" }",
            "notify.failure: the URL is not valid",
        ),
        (
            "{ failure: \"https://a/b\", secret: 0123456789abcde }",
            "p.yaml:8:43: notify.secret has 15 characters (write a secret of 16 to 1024 characters",
        ),
        ("{ url: \"https://a/b\" }", "unknown key \"url\""),
    ] {
        let error = notify(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
