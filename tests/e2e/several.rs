//! Runs of several streams of which some fail.

use rapidbyte_testkit::postgres::{Client, shared};
use serde_json::{Value, json};

use crate::support::{Folder, copy};

/// Copies `a`, `b`, `c` and `d` from CSV, one after the other.
fn pipeline(more: &str) -> String {
    copy("csv", "csv")
        .replace("in.csv", "\"in-{stream}.csv\"\n    schema: { n: int64 }")
        .replace("[in]", "[a, b, c, d]")
        + more
}

fn folder() -> Folder {
    let folder = Folder::new();
    for (stream, text) in [
        ("a", "n\n1\n"),
        ("b", "n\nx\n"),
        ("c", "n\n3\n"),
        ("d", "n\n4\n"),
    ] {
        folder.write(&format!("in-{stream}.csv"), text);
    }
    folder
}

#[test]
fn every_stream_is_tried_though_one_fails() {
    let folder = folder();
    let (error, exit) = folder.error(&pipeline(""));
    assert_eq!((exit, &error["stream"]), (4, &json!("b")), "{error:#}");
    assert_eq!(error["committed"], json!(["a", "c", "d"]));
    assert_eq!(folder.files("out"), ["a.csv", "c.csv", "d.csv"]);
    // Two that fail in the same way have one code and exit code, and a list.
    folder.write("in-c.csv", "n\ny\n");
    let (error, exit) = folder.error(&pipeline(""));
    assert_eq!(exit, 4, "{error:#}");
    assert_eq!(error["code"], error["failures"][0]["code"]);
    let streams = |error: &Value| {
        let failures = error["failures"].as_array().expect("a list").iter();
        failures
            .map(|f| f["stream"].as_str().expect("a stream").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(streams(&error), ["b", "c"]);
    let text = folder.rapidbyte(&["run", "p.yaml"]).stderr;
    assert!(text.contains("2 of 4 streams failed"), "{text}");
    assert!(
        text.contains("in-b.csv:2") && text.contains("in-c.csv:2"),
        "{text}"
    );
    assert!(text.contains("committed before: a, d"), "{text}");
}

#[test]
fn a_run_stops_at_its_first_failure_where_that_is_asked_for() {
    for (more, flag) in [
        ("on_stream_failure: stop\n", None),
        ("", Some("--fail-fast")),
    ] {
        let folder = folder();
        folder.write("p.yaml", pipeline(more));
        let arguments = ["run", "p.yaml"].into_iter().chain(flag);
        let ended = folder.rapidbyte(&arguments.collect::<Vec<_>>());
        assert_eq!(ended.code, Some(4), "{}", ended.stderr);
        assert_eq!(folder.files("out"), ["a.csv"], "{more}{flag:?}");
    }
}

/// Two tables that are appended whole.
fn tables(url: &str) -> String {
    format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{url}\" }}\n  streams: [public.a, public.b]\ndestination:\n  \
         use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  write_mode: append\n"
    )
}

#[test]
fn a_stream_that_fails_does_not_freeze_the_others_and_is_added_once() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE a (id int); INSERT INTO a VALUES (1); CREATE TABLE b (id int); \
               INSERT INTO b VALUES (1); CREATE SCHEMA raw";
    client.batch_execute(sql).expect("tables");
    let rows = |client: &mut Client, table: &str| {
        let sql = format!("SELECT count(*) FROM raw.{table}");
        client
            .query_one(&sql, &[])
            .expect("a count")
            .get::<_, i64>(0)
    };
    let folder = Folder::new();
    folder.write("p.yaml", tables(&database.url()));
    // Nobody hears of the second commit.
    let mut command = folder.command(&["run", "p.yaml", "--output", "json"]);
    let fault = ("RAPIDBYTE_FAULTS", "engine.committed=error@2");
    let ended = command.env(fault.0, fault.1).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("fault: engine.committed"), "{stderr}");
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert_eq!((rows(&mut client, "a"), rows(&mut client, "b")), (1, 1));
    // The next run has an id of its own and appends the first table again. Of the second one it
    // knows that its commit was made.
    let report = folder.report(&tables(&database.url()));
    assert_eq!((rows(&mut client, "a"), rows(&mut client, "b")), (2, 1));
    assert_eq!(report["streams"][1]["committed_before"], true, "{report:#}");
    folder.report(&tables(&database.url()));
    assert_eq!((rows(&mut client, "a"), rows(&mut client, "b")), (3, 2));
    let listed = folder
        .rapidbyte(&["runs", "p.yaml", "--output", "json"])
        .stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let runs = listed["runs"].as_array().expect("runs").iter();
    let statuses: Vec<_> = runs.map(|run| run["status"].clone()).collect();
    assert_eq!(statuses, ["ok", "ok", "partial"], "{listed:#}");
}

#[test]
fn a_worker_logs_in_once_for_all_of_its_streams() {
    let database = shared().database();
    let mut client = database.client();
    let streams = 12;
    let mut sql = String::from("CREATE SCHEMA raw;");
    for stream in 0..streams {
        sql += &format!(
            "CREATE TABLE t{stream} AS SELECT g AS id, 'x{stream}' AS text FROM generate_series(1, 3) AS g;"
        );
    }
    client.batch_execute(&sql).expect("tables");
    let logins = |client: &mut Client| {
        let sql = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()";
        client
            .query_one(sql, &[])
            .expect("a count")
            .get::<_, i64>(0)
    };
    let before = logins(&mut client);
    let url = database.url();
    let report = Folder::new().report(&format!(
        "version: 1\npipeline: t\nresources: {{ parallelism: 2 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{url}\" }}\n  streams: [public.*]\ndestination:\n  use: dest-postgres\n  \
         config: {{ url: \"{url}\", schema: raw }}\n  write_mode: replace\n"
    ));
    assert_eq!(report["rows"], 3 * streams);
    for stream in 0..streams {
        let sql = format!("SELECT string_agg(id || text, ',' ORDER BY id) FROM raw.t{stream}");
        let rows: String = client.query_one(&sql, &[]).expect("rows").get(0);
        assert_eq!(rows, format!("1x{stream},2x{stream},3x{stream}"));
    }
    // Two workers with two sessions each, and the one that holds the snapshot.
    let took = logins(&mut client) - before;
    assert!(took <= 6, "{took} sessions for {streams} streams");
}
