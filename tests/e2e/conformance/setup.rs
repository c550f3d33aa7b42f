//! Wrong settings, credentials and data of the test are not faults of the connector.

use rapidbyte_testkit::postgres::shared;

use super::*;

/// No clause fails, and the exit code and the one message say what to correct.
#[track_caller]
fn is_wrong(folder: &Folder, name: &str, config: &Value, more: &[&str], named: &str) {
    let (document, code) = test(folder, name, config, more);
    assert_eq!(with(&document, "fail"), [""; 0], "{named}: {document:#}");
    let error = &document["error"];
    assert_eq!(
        (error["code"].as_str(), code),
        (Some("invalid_setup"), 2),
        "{named}: {document:#}"
    );
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(named), "{named}: {message}");
}

#[test]
fn wrong_settings_of_a_test_are_one_message_and_exit_code_2() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id\n1\n");
    let wrong = [
        ("source-file", json!({ "pathh": "in/a.csv" }), "pathh"),
        ("source-file", json!({ "path": "in/none.csv" }), "no file"),
        ("source-generate", json!({ "rows": "many" }), "many"),
        ("dest-file", json!({ "path": "out/{stream}" }), "out/"),
        (
            "dest-file",
            json!({ "path": "out/{stream}/a.csv", "partition_by": ["day"] }),
            "day",
        ),
    ];
    for (name, config, named) in wrong {
        is_wrong(&folder, name, &config, &[], named);
    }
    let good = json!({ "path": "in/a.csv" });
    let more = ["--stream", "orders"];
    is_wrong(&folder, "source-file", &good, &more, "no stream orders");
    let peer = ["--peer", "source-file", "--peer-config", "{ pathh: x }"];
    let good = json!({ "path": "out/{stream}.csv" });
    is_wrong(&folder, "dest-file", &good, &peer, "pathh");
    // People read one line that is not a PASS, and the message.
    let config = "{ path: in/none.csv }";
    let ended = folder.rapidbyte(&["connector", "test", "source-file", "--config", config]);
    let lines = ended.stdout.lines();
    let skipped: Vec<&str> = lines.filter(|line| line.starts_with("SKIP")).collect();
    assert_eq!(skipped.len(), 1, "{}", ended.stdout);
    assert!(!ended.stdout.contains("FAIL"), "{}", ended.stdout);
    assert!(
        ended.stderr.starts_with("error[invalid_setup]: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn data_that_the_operator_has_to_correct_are_not_blamed_on_the_source() {
    let folder = Folder::new();
    folder
        .write("in/empty.csv", "")
        .write("in/broken.jsonl", "{\"a\":1}\nnot JSON\n")
        .write("in/late.jsonl", "{\"a\":1}\n".repeat(2000) + "{\"a\":\n");
    for (path, named) in [
        ("in/empty.csv", "csv_missing_header"),
        ("in/broken.jsonl", "jsonl_broken_line"),
    ] {
        is_wrong(&folder, "source-file", &json!({ "path": path }), &[], named);
    }
    // Behind the rows that types are inferred from.
    let config = json!({ "path": "in/late.jsonl", "sample_rows": 10 });
    is_wrong(&folder, "source-file", &config, &[], "in/late.jsonl:2001");
    let database = shared().database();
    let tables = "CREATE TABLE moments (id int PRIMARY KEY, at timestamptz);
                  INSERT INTO moments VALUES (1, now()), (2, 'infinity')";
    database.client().batch_execute(tables).expect("tables");
    let config = json!({ "url": database.url() });
    is_wrong(&folder, "source-postgres", &config, &[], "\"at\"");
}

#[test]
fn a_server_that_refuses_a_credential_or_a_path_is_not_blamed_on_the_source() {
    for (status, named) in [(401, "401"), (404, "404")] {
        let server = Server::start(move |_| Reply::status(status, "no"));
        let config = json!({
            "base_url": server.url("/v1"), "streams": { "items": { "path": "items" } }, "max_retries": 0,
        });
        is_wrong(&Folder::new(), "source-http", &config, &[], named);
    }
}

/// The server's own reading of `since`: rows after it, and not rows from it on.
#[test]
fn a_server_that_answers_rows_after_the_cursor_is_not_blamed_on_the_source() {
    let server = Server::start(|request| {
        let since = request.param("since").map(str::parse::<u64>);
        let from = match since {
            None => 0,
            Some(Ok(since)) => since + 1,
            Some(Err(_)) => return Reply::status(400, "since is not a number"),
        };
        let items = (from..500).map(|n| json!({ "id": n, "name": format!("item {n:>40}") }));
        Reply::json(Value::from(items.collect::<Vec<_>>()).to_string())
    });
    let incremental = json!({ "cursor_field": "id", "param": "since" });
    let config = json!({
        "base_url": server.url("/v1"), "streams": { "items": { "path": "items", "incremental": incremental } },
    });
    let (document, code) = test(&Folder::new(), "source-http", &config, &[]);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(code, 0, "{document:#}");
    let initial = clause(&document, "initial");
    let reason = initial["reason"].as_str().expect("a SKIP");
    assert!(reason.contains("rows after the value"), "{reason}");
}

#[test]
fn a_table_without_columns_fails_no_clause() {
    let database = shared().database();
    let tables = "CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES;
                  CREATE TABLE rows AS SELECT i AS id, i * 2 AS twice FROM generate_series(1, 100) i";
    database.client().batch_execute(tables).expect("tables");
    let config = json!({ "url": database.url() });
    let (document, code) = test(&Folder::new(), "source-postgres", &config, &[]);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(code, 0, "{document:#}");
    assert!(with(&document, "pass").contains(&"session".into()));
}

#[test]
fn settings_that_keep_a_clause_from_being_judged_skip_it_and_say_why() {
    let folder = Folder::new();
    let skips = |config: Value, more: &[&str], id: &str, said: &str| {
        let (document, _) = test(&folder, "dest-file", &config, more);
        assert_eq!(with(&document, "fail"), [""; 0], "{config}: {document:#}");
        let found = clause(&document, id);
        let reason = found["reason"].as_str();
        let reason = reason.unwrap_or_else(|| panic!("{config}: {found}"));
        assert!(reason.contains(said), "{config}: {reason}");
        document
    };
    // The types are written alone, without the column that becomes folders.
    let by_column = json!({ "path": "a/{stream}/{part}.csv", "partition_by": ["t"] });
    let document = skips(by_column, &[], "types", "does not have a column \"t\"");
    assert!(with(&document, "pass").contains(&"replace".into()));
    // One file or folder for all streams.
    let one = json!({ "path": "b/rows.csv" });
    skips(one, &[], "streams", "put {stream} into the path");
    let grows = json!({ "path": "c/{part}.csv" });
    skips(grows, &[], "streams", "put {stream} into a folder");
    // Files that do not hold the names of their columns.
    let bare = json!({ "path": "d/{stream}.csv", "header": false });
    let look = "{ path: \"d/{stream}.csv\", header: false }";
    let peer = ["--peer", "source-file", "--peer-config", look];
    skips(bare, &peer, "write", "without names of columns");
}

/// A stream without rows is a file without a column.
#[test]
fn a_peer_that_stumbles_over_another_stream_is_not_blamed_on_the_destination() {
    let folder = Folder::new();
    // Nothing tells this peer which stream is meant: it reads all of them as one.
    let config = json!({ "path": "all/{stream}/{part}.jsonl" });
    let peer = ["--peer", "source-file", "--peer-stream", "all"];
    let all = [&peer[..], &["--peer-config", "{ path: \"all/*/*.jsonl\" }"]].concat();
    is_wrong(&folder, "dest-file", &config, &all, "put {stream} there");
    // All streams share one folder: each stream replaces the stream before it.
    let config = json!({ "path": "all2/{part}.jsonl" });
    let peer = ["--peer", "source-file", "--peer-stream", "all2"];
    let all = [&peer[..], &["--peer-config", "{ path: \"all2/*.jsonl\" }"]].concat();
    let (document, code) = test(&folder, "dest-file", &config, &all);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(code, 0, "{document:#}");
    for part in ["{part}", "part-{part}"] {
        let config = json!({ "path": format!("out/{{stream}}/{part}.jsonl") });
        let look = json!({ "path": "out/{stream}/*.jsonl" }).to_string();
        let more = ["--peer", "source-file", "--peer-config", &look];
        let (document, code) = test(&folder, "dest-file", &config, &more);
        assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
        assert_eq!(code, 0, "{document:#}");
    }
}

#[test]
fn two_tests_in_one_folder_do_not_disturb_each_other() {
    let folder = Folder::new();
    let arguments = [
        "connector",
        "test",
        "dest-file",
        "--config",
        "{ path: \"out/{stream}/{part}.csv\" }",
        "--peer",
        "source-file",
        "--peer-config",
        "{ path: \"out/{stream}/*.csv\" }",
    ];
    let at_once: Vec<_> = std::iter::repeat_with(|| {
        let mut command = folder.command(&arguments);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command.spawn().expect("the program starts")
    })
    .take(3)
    .collect();
    for one in at_once {
        let ended: crate::support::Ended = one.wait_with_output().expect("it ends").into();
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(!ended.stdout.contains("FAIL"), "{}", ended.stdout);
        // The last line says what stays.
        let last = ended.stdout.trim_end().lines().last().unwrap_or_default();
        let left = ended.stdout.find("in streams named conformance_");
        assert!(left.is_some(), "{last}");
    }
}

#[test]
fn a_source_whose_cursors_are_places_in_a_log_may_read_exactly_by_them() {
    let config = json!({ "deed": "reads_a_log", "rows": 5000, "state": "state" });
    let (document, code) = test(&Folder::new(), &testkit("source-wrong"), &config, &[]);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(code, 0, "{document:#}");
    let reason = clause(&document, "late-rows")["reason"].clone();
    let reason = reason.as_str().expect("a SKIP");
    assert!(
        reason.contains("a log has one position for both"),
        "{reason}"
    );
}

#[test]
fn values_are_reported_in_the_order_of_the_reads_and_without_words_of_a_library() {
    let seen = |deed: &str, id: &str| {
        let config = json!({ "deed": deed, "rows": 5000, "state": "state" });
        let (document, _) = test(&Folder::new(), &testkit("source-wrong"), &config, &[]);
        let seen = clause(&document, id)["seen"].clone();
        seen.as_str().expect("a FAIL").to_owned()
    };
    let zone = seen("drops_zone_in_increments", "checkpoints");
    assert!(!zone.contains("Unknown") && zone.contains('Z'), "{zone}");
    // The values grow with the time of the read: the earlier read is the expected one.
    let again = seen("makes_up_values", "read-again");
    let (_, values) = again.split_once("expected ").expect(&again);
    let (expected, found) = values.split_once(", found ").expect(&again);
    let number = |text: &str| text.trim_matches('"').parse::<i64>();
    let expected = number(expected).expect("a number");
    assert!(expected < number(found).expect("a number"), "{again}");
}

/// The outcome of a clause.
fn clause(document: &Value, id: &str) -> Value {
    let clauses = document["clauses"].as_array().expect("clauses");
    let found = clauses.iter().find(|clause| clause["id"] == id);
    found.expect("the clause").clone()
}
