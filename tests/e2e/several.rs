//! Runs of several streams where some streams fail.

use rapidbyte_testkit::postgres::{Client, shared};
use serde_json::{Value, json};

use crate::network::until;
use crate::overlap::{Started, resume};
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
    // The page has each of them, for whoever did not see the terminal.
    folder.rapidbyte(&["run", "p.yaml", "--report", "run.html"]);
    let page = folder.read("run.html");
    assert!(
        page.contains("in-b.csv:2") && page.contains("in-c.csv:2"),
        "{page}"
    );
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
    // Two workers with two sessions each, and the session that holds the snapshot.
    let took = logins(&mut client) - before;
    assert!(took <= 6, "{took} sessions for {streams} streams");
}

/// The names of the streams that failed, in order.
fn failed(error: &Value) -> Vec<&str> {
    let failures = error["failures"].as_array().expect("a list").iter();
    failures
        .map(|failure| failure["stream"].as_str().expect("a stream"))
        .collect()
}

#[test]
fn a_stream_that_cannot_be_planned_does_not_stop_the_others() {
    let database = shared().database();
    let mut client = database.client();
    let tables = [
        "good",
        "condition",
        "unknown",
        "closed",
        "closed_too",
        "last",
    ];
    let mut sql = "CREATE SCHEMA raw; CREATE ROLE p_reader LOGIN PASSWORD 'r';".to_owned();
    for table in tables {
        sql += &format!("CREATE TABLE {table} (id int); INSERT INTO {table} VALUES (1);");
    }
    sql += "GRANT SELECT ON good, condition, unknown, last TO p_reader";
    client.batch_execute(&sql).expect("tables");
    let (url, reader) = (database.url(), database.url_of("p_reader", "r"));
    let pipeline = format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{reader}\" }}\n  streams:\n    - public.good\n    - public.missing\n    \
         - {{ name: public.condition, where: nosuch > 1 }}\n    \
         - {{ name: public.unknown, columns: [id, nosuch] }}\n    \
         - public.closed\n    - public.closed_too\n    - nothing.*\n    - public.last\n\
         destination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  \
         write_mode: append\n"
    );
    let refused = [
        "public.missing",
        "nothing.*",
        "public.unknown",
        "public.condition",
        "public.closed",
        "public.closed_too",
    ];
    let folder = Folder::new();
    // Nothing moves where the first failure is to stop the run, and `plan` names all of them.
    let (error, exit) = folder.error(&format!("{pipeline}on_stream_failure: stop\n"));
    assert_eq!(exit, 1, "{error:#}");
    assert_eq!(
        error["failures"].as_array().map(Vec::len),
        Some(6),
        "{error:#}"
    );
    assert!(error.get("committed").is_none(), "{error:#}");
    folder.write("p.yaml", &pipeline);
    let planned = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(planned.code, Some(1), "{}", planned.stderr);
    assert!(
        planned.stderr.contains("6 of 8 streams cannot be moved"),
        "{}",
        planned.stderr
    );
    assert!(
        planned.stdout.contains("public.last -> raw.last"),
        "{}",
        planned.stdout
    );
    let (error, exit) = folder.error(&pipeline);
    assert_eq!((exit, failed(&error)), (1, refused.to_vec()), "{error:#}");
    assert_eq!(error["committed"], json!(["public.good", "public.last"]));
    // The run is finished: the next one appends the others again, and the failed ones once they are well.
    let sql = "GRANT SELECT ON closed, closed_too TO p_reader; CREATE TABLE missing (id int)";
    client.batch_execute(sql).expect("grants");
    let well = pipeline.replace("where: nosuch > 1", "where: id > 0");
    let well = well
        .replace(", nosuch]", "]")
        .replace("    - nothing.*\n", "");
    client
        .batch_execute("GRANT SELECT ON missing TO p_reader")
        .expect("a grant");
    let report = folder.report(&well);
    assert_eq!(report["rows"], 6, "{report:#}");
    let sql = "SELECT count(*) FROM raw.last";
    let rows: i64 = client.query_one(sql, &[]).expect("a count").get(0);
    assert_eq!(rows, 2);
    // A stream that is left out cannot fail.
    let sql = "DROP TABLE missing";
    client.batch_execute(sql).expect("it is dropped");
    let ended = folder.rapidbyte(&["run", "p.yaml", "--exclude", "public.missing"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "public.missing"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("unknown_stream"), "{}", ended.stderr);
}

#[test]
fn all_columns_that_a_destination_refuses_are_named_and_the_other_streams_move() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE a (id int, x money, y money); CREATE TABLE b (id int); \
               INSERT INTO b VALUES (1); CREATE SCHEMA raw; CREATE TABLE raw.a (id int, x int, y bytea)";
    client.batch_execute(sql).expect("tables");
    let (error, exit) = Folder::new().error(&tables(&database.url()));
    assert_eq!(
        (exit, &error["code"]),
        (4, &json!("column_refused")),
        "{error:#}"
    );
    assert_eq!(error["committed"], json!(["public.b"]), "{error:#}");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("\nx: ") && message.contains("\ny: "),
        "{message}"
    );
}

#[test]
fn a_table_that_a_pattern_does_not_find_any_more_is_a_warning() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE SCHEMA raw";
    client.batch_execute(sql).expect("tables");
    let pipeline = tables(&database.url()).replace("[public.a, public.b]", "[\"public.*\"]");
    let folder = Folder::new();
    let warnings = |folder: &Folder| folder.report(&pipeline)["warnings"].clone();
    assert_eq!(warnings(&folder), json!([]));
    client
        .batch_execute("ALTER TABLE b RENAME TO c")
        .expect("a name");
    // Nobody may have read the messages of an earlier run, and a run of some streams alone changes nothing.
    for more in [&[][..], &["--select", "public.a"], &[]] {
        let arguments = [&["run", "p.yaml", "--output", "json"], more].concat();
        let ended = folder.rapidbyte(&arguments);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        let told = &document["warnings"];
        assert_eq!(told.as_array().map(Vec::len), Some(1), "{told:#}");
        assert_eq!(told[0]["stream"], "public.b", "{told:#}");
        let text = told[0]["message"].as_str().expect("a message");
        assert!(
            text.contains("does not have this stream any more"),
            "{text}"
        );
    }
    // A stream that is left out is not gone.
    let ended = folder.rapidbyte(&["run", "p.yaml", "--exclude", "public.a"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("public.a: the source"),
        "{}",
        ended.stderr
    );
    // A table that is gone for good is forgotten at last.
    let history = folder.path().join(".rapidbyte/state.db");
    let history = rusqlite::Connection::open(history).expect("the history");
    let older = "UPDATE streams SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-31 days') \
                 WHERE stream = 'public.b'";
    assert_eq!(history.execute(older, []).expect("an update"), 1);
    drop(history);
    assert_eq!(warnings(&folder), json!([]));
}

#[test]
fn a_stream_that_an_earlier_attempt_completed_is_read_again_by_the_next_run() {
    let database = shared().database();
    let mut client = database.client();
    let sql =
        "CREATE TABLE a AS SELECT 1 AS day; CREATE TABLE b AS SELECT 1 AS day; CREATE SCHEMA raw";
    client.batch_execute(sql).expect("tables");
    let folder = Folder::new();
    let pipeline = tables(&database.url());
    folder.write("p.yaml", &pipeline);
    // The first attempt commits one table and is killed at the other one.
    let mut command = folder.command(&["run", "p.yaml"]);
    let fault = ("RAPIDBYTE_FAULTS", "engine.fenced=kill@2");
    let ended = command.env(fault.0, fault.1).output().expect("it starts");
    assert_eq!(ended.status.code(), None, "{ended:?}");
    // In the second one that table cannot be planned. The run is finished all the same.
    client
        .batch_execute("ALTER TABLE raw.a RENAME day TO other; ALTER TABLE raw.a ADD day date")
        .expect("a name");
    let (error, exit) = folder.error(&pipeline);
    assert_eq!(
        (exit, &error["stream"]),
        (4, &json!("public.a")),
        "{error:#}"
    );
    assert_eq!(error["committed"], json!(["public.b"]));
    let sql = "ALTER TABLE raw.a DROP day; ALTER TABLE raw.a RENAME other TO day; UPDATE a SET day = 2; UPDATE b SET day = 2";
    client.batch_execute(sql).expect("another day");
    folder.report(&pipeline);
    for table in ["a", "b"] {
        let sql = format!("SELECT string_agg(day::text, ',' ORDER BY day) FROM raw.{table}");
        let days: String = client.query_one(&sql, &[]).expect("rows").get(0);
        assert_eq!(days, "1,2", "{table}");
    }
}

#[test]
fn a_run_that_holds_up_a_change_of_a_table_ends_at_once() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int); CREATE SCHEMA raw";
    client.batch_execute(sql).expect("tables");
    let pipeline = tables(&database.url()).replace("public.b]", "public.b, public.c]");
    let folder = Folder::new();
    folder.write("p.yaml", pipeline);
    // The run has its snapshot, and with it a lock on each table.
    let started = Started::stopped_at(&folder, "engine.fenced");
    let mut changes = database.client();
    let change =
        std::thread::spawn(move || changes.batch_execute("ALTER TABLE b ADD COLUMN v int"));
    let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'public.b'::regclass";
    let mut waits = || {
        client
            .query_one(sql, &[])
            .expect("a count")
            .get::<_, i64>(0)
            > 0
    };
    until(&mut waits, "the change waits");
    let (code, document) = resume(started);
    let error = &document["error"];
    assert_eq!(
        (code, &error["code"]),
        (Some(4), &json!("lock_queued")),
        "{document:#}"
    );
    assert_eq!(error["committed"], json!(["public.a"]), "{document:#}");
    change.join().expect("a thread").expect("the change");
}

/// Only the same rows are there already.
#[test]
fn a_run_that_asks_for_other_rows_than_the_interrupted_one_reads_them() {
    for (interrupted, min, flags, rows) in [
        (&["--limit", "1"][..], "0", &[][..], 1 + 3),
        (&["--limit", "1"], "0", &["--limit", "2"], 1 + 2),
        (&["--limit", "1"], "0", &["--limit", "1"], 1),
        (&[], "0", &["--limit", "1"], 3 + 1),
        (&["--select", "public.a.id"], "0", &[], 3 + 3),
        (
            &["--exclude", "public.a.v"],
            "0",
            &["--select", "public.a.id"],
            3,
        ),
        (&[], "0", &["--select", "public.*"], 3),
        (&[], "1", &[], 3 + 2),
        (&[], "0", &[], 3),
    ] {
        let about = format!("{interrupted:?}, then {flags:?} above {min}");
        let database = shared().database();
        let mut client = database.client();
        let sql = "CREATE TABLE a AS SELECT i AS id, 'x' AS v FROM generate_series(1, 3) i; CREATE SCHEMA raw; \
                   CREATE TABLE raw.a (id int, v text)";
        client.batch_execute(sql).expect("tables");
        let folder = Folder::new();
        let url = database.url();
        let pipeline = format!(
            "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: \"{url}\" }}\n  \
             streams: [{{ name: public.a, where: \"id > ${{MIN}}\" }}]\ndestination:\n  use: dest-postgres\n  \
             config: {{ url: \"{url}\", schema: raw }}\n  write_mode: append\n"
        );
        folder.write("p.yaml", pipeline);
        let run = |flags: &[&str], min: &str, faults: &str| {
            let mut command = folder.command(&[&["run", "p.yaml"], flags].concat());
            command.env("MIN", min).env("RAPIDBYTE_FAULTS", faults);
            command.output().expect("it starts").status.code()
        };
        assert_eq!(run(interrupted, "0", "engine.told=kill"), None, "{about}");
        assert_eq!(run(flags, min, ""), Some(0), "{about}");
        let count = client.query_one("SELECT count(*) FROM raw.a", &[]);
        let count: i64 = count.expect("a count").get(0);
        assert_eq!(count, rows, "{about}");
    }
}

/// The next night's files are not those that the interrupted run has appended.
#[test]
fn a_run_with_other_settings_than_the_interrupted_one_reads_all_streams() {
    // The values of variables are not shown, and count all the same.
    const FIRST: &str = "2026-01-01";
    const SECOND: &str = "2026-01-02";
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE SCHEMA raw; CREATE TABLE raw.a (n int8); CREATE TABLE raw.b (n int8)";
    client.batch_execute(sql).expect("tables");
    let folder = Folder::new();
    for (night, row) in [(FIRST, "1"), (SECOND, "2")] {
        std::fs::create_dir(folder.path().join(night)).expect("a folder");
        for stream in ["a", "b"] {
            folder.write(&format!("{night}/{stream}.csv"), format!("n\n{row}\n"));
        }
    }
    let url = database.url();
    let pipeline = format!(
        "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: {{ path: \"${{NIGHT}}/{{stream}}.csv\" }}\n  \
         streams: [a, b]\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  \
         write_mode: append\n"
    );
    folder.write("p.yaml", pipeline);
    let run = |night: &str, faults: &str| {
        let mut command = folder.command(&["run", "p.yaml"]);
        command.env("NIGHT", night).env("RAPIDBYTE_FAULTS", faults);
        let ended = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    let mut rows = || {
        let sql = "SELECT string_agg(n::text, ',' ORDER BY n) FROM (TABLE raw.a UNION ALL TABLE raw.b) AS all_rows";
        client
            .query_one(sql, &[])
            .expect("rows")
            .get::<_, String>(0)
    };
    assert_eq!(run(FIRST, "engine.told=kill").0, None);
    assert_eq!(rows(), "1,1");
    // The same again is what the run was about to tell: the operator hears that it was not read.
    let (code, said) = run(FIRST, "engine.told=kill");
    assert_eq!(code, None, "{said}");
    assert_eq!(rows(), "1,1");
    assert!(said.contains("2 streams were not read again"), "{said}");
    let (again, twice) = ("those rows stay", "had appended it twice");
    let same = "2 streams were not read again";
    for (night, warnings) in [
        (SECOND, &[again][..]),
        (FIRST, &[same, twice]),
        (SECOND, &[same, twice]),
    ] {
        let (code, said) = run(night, "engine.told=kill");
        assert_eq!(code, None, "{said}");
        for warning in [again, same, twice] {
            let is_told = said.contains(warning);
            assert_eq!(is_told, warnings.contains(&warning), "{night}: {said}");
        }
        assert_eq!(rows(), "1,1,2,2");
    }
    // The destination knows the second night alone.
    let (code, said) = run(FIRST, "");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(rows(), "1,1,2,2");
    assert_eq!(run(SECOND, "").0, Some(0));
    assert_eq!(rows(), "1,1,2,2,2,2");
}

/// Two files that are appended to two tables by a run that is killed at its end.
fn interrupted(database: &rapidbyte_testkit::postgres::Database) -> Folder {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n").write("b.csv", "n\n2\n");
    let url = database.url();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  \
             config: {{ path: \"{{stream}}.csv\", format: csv }}\n  streams: [a, b]\ndestination:\n  \
             use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  write_mode: append\n"
        ),
    );
    let mut command = folder.command(&["run", "p.yaml"]);
    let ended = command.env("RAPIDBYTE_FAULTS", "engine.told=kill").output();
    assert_eq!(ended.expect("it starts").status.code(), None);
    folder
}

fn rows_of(client: &mut Client) -> [i64; 2] {
    ["a", "b"].map(|table| {
        let sql = format!("SELECT count(*) FROM raw.{table}");
        client.query_one(&sql, &[]).expect("a count").get(0)
    })
}

#[test]
fn appended_rows_of_an_interrupted_run_are_read_again_if_they_are_gone() {
    let truncate = "TRUNCATE raw.a";
    let again = "DROP TABLE raw.a; CREATE TABLE raw.a (n int8)";
    for (gone, why) in [
        ("DROP TABLE raw.a", "does not exist any more"),
        (truncate, "was emptied"),
        (again, "was dropped and created again"),
    ] {
        let database = shared().database();
        let mut client = database.client();
        client.batch_execute("CREATE SCHEMA raw").expect("a schema");
        let folder = interrupted(&database);
        client.batch_execute(gone).expect("gone");
        let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(rows_of(&mut client), [1, 1], "{gone}");
        let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains(why), "{gone}: {warnings}");
        assert!(warnings.contains("not read again"), "{warnings}");
    }
}

/// Runs the pipeline with these changes of its text and kills it at its end, or lets it end.
#[track_caller]
fn go_on(folder: &Folder, changes: &[(&str, &str)], is_killed: bool) -> String {
    let mut text = folder.read("p.yaml");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replace(from, to);
    }
    folder.write("other.yaml", text);
    let mut command = folder.command(&["run", "other.yaml"]);
    if is_killed {
        command.env("RAPIDBYTE_FAULTS", "engine.told=kill");
    }
    let ended = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), (!is_killed).then_some(0), "{said}");
    said
}

/// The files of another day.
const OTHER: (&str, &str) = ("{stream}.csv", "day2/{stream}.csv");

fn with_other_day(folder: &Folder) {
    folder
        .write("day2/a.csv", "n\n11\n12\n")
        .write("day2/b.csv", "n\n21\n22\n");
}

#[test]
fn appended_rows_that_are_gone_do_not_count_as_appended_later() {
    let truncate = "TRUNCATE raw.a";
    for (gone, middle, rows) in [
        // The run with the other settings adds its rows, and then the run with the first settings.
        (truncate, OTHER, [2 + 1, 1 + 2]),
        ("DROP TABLE raw.a", OTHER, [2 + 1, 1 + 2]),
        ("SELECT 1", OTHER, [1 + 2, 1 + 2]),
        // The other settings replace all rows, and then the first settings append.
        ("SELECT 1", ("append", "replace"), [1 + 1, 1 + 1]),
    ] {
        let database = shared().database();
        let mut client = database.client();
        client.batch_execute("CREATE SCHEMA raw").expect("a schema");
        let folder = interrupted(&database);
        with_other_day(&folder);
        client.batch_execute(gone).expect("gone");
        go_on(&folder, &[middle], true);
        let said = go_on(&folder, &[], false);
        assert_eq!(rows_of(&mut client), rows, "{gone} {middle:?}: {said}");
        if gone == "SELECT 1" && middle == OTHER {
            assert!(said.contains("appended it twice"), "{said}");
        }
        if middle.1 == "replace" {
            assert!(said.contains("had replaced all rows of it"), "{said}");
        }
    }
}

/// A replacement that was killed before its commit has replaced nothing.
#[test]
fn a_replacement_without_a_commit_causes_no_second_append() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").expect("a schema");
    let folder = interrupted(&database);
    let replaces = folder.read("p.yaml").replace("append", "replace");
    folder.write("replace.yaml", replaces);
    let mut command = folder.command(&["run", "replace.yaml"]);
    let ended = command.env("RAPIDBYTE_FAULTS", "engine.fenced=kill");
    let ended = ended.output().expect("it starts");
    assert_eq!(ended.status.code(), None);
    let said = go_on(&folder, &[], false);
    assert_eq!(rows_of(&mut client), [1, 1], "{said}");
    assert!(said.contains("2 streams were not read again"), "{said}");
}

/// A run that replaced is not one that appended, also where nobody appended before.
#[test]
fn rows_that_an_interrupted_run_replaced_do_not_count_as_appended() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").expect("a schema");
    let folder = interrupted(&database);
    go_on(&folder, &[], false);
    for settings in [("append", "append"), OTHER] {
        with_other_day(&folder);
        go_on(&folder, &[("append", "replace")], true);
        let before = rows_of(&mut client);
        let said = go_on(&folder, &[settings], false);
        let more = if settings == OTHER { 2 } else { 1 };
        let after = before.map(|rows| rows + more);
        assert_eq!(rows_of(&mut client), after, "{settings:?}: {said}");
        assert!(said.contains("had replaced all rows of it"), "{said}");
    }
}

#[test]
fn another_target_gets_all_rows() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE SCHEMA raw; CREATE SCHEMA other; CREATE TABLE other.a (n int8)";
    client.batch_execute(sql).expect("schemas");
    let folder = interrupted(&database);
    let said = go_on(&folder, &[("schema: raw", "schema: other")], false);
    assert!(!said.contains("warn"), "{said}");
    for table in ["raw.a", "raw.b", "other.a", "other.b"] {
        let count = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]);
        assert_eq!(count.expect("a count").get::<_, i64>(0), 1, "{table}");
    }
    // The finished run had another target: the interrupted one is not over.
    let said = go_on(&folder, &[], false);
    assert_eq!(rows_of(&mut client), [1, 1], "{said}");
    assert!(said.contains("2 streams were not read again"), "{said}");
    for (schema, rows) in [("raw", [2, 2]), ("other", [2, 2])] {
        let said = go_on(
            &folder,
            &[("schema: raw", &format!("schema: {schema}"))],
            false,
        );
        let rows_there: [i64; 2] = ["a", "b"].map(|table| {
            let sql = format!("SELECT count(*) FROM {schema}.{table}");
            client.query_one(&sql, &[]).expect("a count").get(0)
        });
        assert_eq!(rows_there, rows, "{schema}: {said}");
    }
}

#[test]
fn a_run_of_one_stream_does_not_end_the_interrupted_run_of_all() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").expect("a schema");
    let folder = interrupted(&database);
    let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "b"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The stream that was selected is a run of its own.
    assert_eq!(rows_of(&mut client), [1, 2], "{}", ended.stderr);
    assert!(
        ended.stderr.contains("a was not read again"),
        "{}",
        ended.stderr
    );
    folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(rows_of(&mut client), [2, 3]);
}

#[test]
fn a_directory_that_is_gone_is_written_again() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n").write("b.csv", "n\n2\n");
    folder.write(
        "p.yaml",
        "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: { path: \"{stream}.csv\" }\n  \
         streams: [a, b]\ndestination:\n  use: dest-file\n  \
         config: { path: \"out/{stream}/part-{part}.csv\" }\n  write_mode: append\n",
    );
    go_on(&folder, &[], true);
    std::fs::remove_dir_all(folder.path().join("out/a")).expect("gone");
    let said = go_on(&folder, &[], false);
    assert!(said.contains("the stream is read again"), "{said}");
    for stream in ["a", "b"] {
        let files = folder.files(&format!("out/{stream}"));
        let parts = files.iter().filter(|name| name.starts_with("part-"));
        assert_eq!(parts.count(), 1, "{stream}: {files:?} {said}");
    }
}

#[test]
fn a_stream_that_is_cleared_is_read_again_and_the_others_are_not() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").expect("a schema");
    let folder = interrupted(&database);
    let cleared = folder.rapidbyte(&["state", "clear", "p.yaml", "b"]);
    assert_eq!(cleared.code, Some(0), "{}", cleared.stderr);
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(rows_of(&mut client), [1, 2], "{}", ended.stderr);
}

/// Clearing is about the target that the pipeline names.
#[test]
fn clearing_another_target_does_not_append_rows_twice() {
    for what in ["--all", "a"] {
        let database = shared().database();
        let mut client = database.client();
        let sql = "CREATE SCHEMA raw; CREATE SCHEMA other";
        client.batch_execute(sql).expect("schemas");
        let folder = interrupted(&database);
        let pipeline = folder.read("p.yaml");
        let other = pipeline.replace("schema: raw", "schema: other");
        folder.write("other.yaml", other);
        let cleared = folder.rapidbyte(&["state", "clear", "other.yaml", what]);
        assert_eq!(cleared.code, Some(0), "{}", cleared.stderr);
        let said = go_on(&folder, &[], false);
        assert_eq!(rows_of(&mut client), [1, 1], "{what}: {said}");
        assert!(said.contains("not read again"), "{what}: {said}");
    }
}

#[test]
fn the_order_of_settings_has_no_meaning() {
    let database = shared().database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").expect("a schema");
    let folder = interrupted(&database);
    let pipeline = folder.read("p.yaml");
    let (path, format) = ("path: \"{stream}.csv\"", "format: csv");
    let turned = pipeline.replace(&format!("{path}, {format}"), &format!("{format}, {path}"));
    assert_ne!(turned, pipeline);
    let report = folder.report(&turned);
    assert_eq!(rows_of(&mut client), [1, 1], "{report:#}");
}

/// One file is empty, one is broken and one is missing: the run copies the others.
#[test]
fn a_file_that_cannot_be_sampled_does_not_stop_the_others() {
    let folder = Folder::new();
    folder
        .write("in-a.csv", "n\n1\n2\n")
        .write("in-broken.csv", "n,m\n1\n")
        .write("in-empty.csv", "")
        .write("in-d.csv", "n\n4\n");
    let pipeline = copy("csv", "csv")
        .replace(
            "in.csv",
            "\"in-{stream}.csv\"\n    schemas: { gone: { n: int64 } }",
        )
        .replace("[in]", "[\"*\"]");
    let (error, exit) = folder.error(&pipeline);
    assert_eq!(failed(&error), ["broken", "empty", "gone"], "{error:#}");
    assert_eq!(exit, 1, "{error:#}");
    let codes: Vec<&Value> = error["failures"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|f| &f["code"])
        .collect();
    assert_eq!(
        codes,
        ["csv_ragged_row", "csv_missing_header", "unknown_stream"]
    );
    let key = error["failures"][2]["key"].as_str();
    assert_eq!(key, Some("source.config.schemas.gone"), "{error:#}");
    assert_eq!(error["committed"], json!(["a", "d"]), "{error:#}");
    assert_eq!(folder.files("out"), ["a.csv", "d.csv"]);
    // `discover` shows the others, and ends with the same errors.
    let found = folder.rapidbyte(&["discover", "p.yaml", "--output", "json"]);
    let found: Value = serde_json::from_str(&found.stdout).expect("one JSON document");
    let names = |found: &Value| {
        let streams = found["streams"].as_array().expect("a list").iter();
        streams.map(|s| s["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&found), ["a", "d"], "{found:#}");
    assert_eq!(failed(&found["error"]), ["broken", "empty", "gone"]);
    // A stream that is left out cannot fail.
    let left_out = ["broken", "empty", "gone"]
        .map(|name| ["--exclude", name])
        .concat();
    let arguments = [&["run", "p.yaml"][..], &left_out].concat();
    let ended = folder.rapidbyte(&arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Where nothing can be moved, no target is touched.
    let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "gone"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

/// The plan ends with the streams that do not move, and then the errors.
#[test]
fn a_plan_names_the_streams_that_do_not_move_last() {
    let folder = Folder::new();
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        folder.write(&format!("in-{name}.csv"), "n\n1\n");
    }
    folder.write("in-empty.csv", "");
    let pipeline = copy("csv", "csv").replace("in.csv", "\"in-{stream}.csv\"");
    folder.write("p.yaml", pipeline.replace("[in]", "[\"*\", nosuch]"));
    for verbose in [&[][..], &["-v"]] {
        let ended = folder.rapidbyte(&[&["plan", "p.yaml"][..], verbose].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stdout.contains("7 streams, "), "{}", ended.stdout);
        let last =
            "2 streams cannot be moved:\n  nosuch  unknown_stream\n  empty   csv_missing_header\n";
        assert!(ended.stdout.ends_with(last), "{}", ended.stdout);
    }
}

/// A run that failed in part reports what it committed like one that succeeded.
#[test]
fn a_run_that_fails_in_part_reports_the_streams_that_it_committed() {
    let folder = folder();
    folder.write("p.yaml", pipeline(""));
    let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    assert_eq!(document["status"], "error", "{document:#}");
    assert_eq!(document["rows"], 3, "{document:#}");
    assert_eq!(document["warnings"], json!([]), "{document:#}");
    let streams = document["streams"].as_array().expect("a list").iter();
    let moved: Vec<_> = streams
        .map(|s| (&s["name"], &s["rows"], &s["commits"]))
        .collect();
    let one = json!(1);
    let names = ["a", "c", "d"].map(Value::from);
    assert_eq!(
        moved,
        names
            .iter()
            .map(|name| (name, &one, &one))
            .collect::<Vec<_>>()
    );
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    for part in ["a  1 row ", "out/d.csv", "committed: 3 rows of 3 streams"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(ended.stderr.contains("in-b.csv:2"), "{}", ended.stderr);
    // Without a commit there is nothing to report.
    for name in ["a", "c", "d"] {
        folder.write(&format!("in-{name}.csv"), "n\nx\n");
    }
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(4), ""),
        "{ended:?}"
    );
}

#[test]
fn each_stream_has_its_own_write_mode() {
    let (source, target) = (shared().database(), shared().database());
    let tables = "CREATE TABLE event (id int PRIMARY KEY, v text); CREATE TABLE client (id int PRIMARY KEY, v text); \
        CREATE TABLE rate (id int PRIMARY KEY, v text); \
        INSERT INTO event VALUES (1, 'a'); INSERT INTO client VALUES (1, 'a'), (2, 'b'); INSERT INTO rate VALUES (1, 'a')";
    source.client().batch_execute(tables).expect("tables");
    let pipeline = format!(
        "version: 1\npipeline: p\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams:\n    \
         - {{ name: public.event, sync_mode: incremental, cursor_field: id, write_mode: append }}\n    \
         - {{ name: public.client, write_mode: upsert }}\n    - public.rate\n\
         destination:\n  use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace\n",
        source.url(),
        target.url()
    );
    let folder = Folder::new();
    folder.report(&pipeline);
    let change = "INSERT INTO event VALUES (2, 'b'); UPDATE event SET v = 'old' WHERE id = 1; \
        DELETE FROM client WHERE id = 2; UPDATE client SET v = 'new'; \
        DELETE FROM rate; INSERT INTO rate VALUES (7, 'c')";
    source.client().batch_execute(change).expect("a change");
    folder.report(&pipeline);
    let mut client = target.client();
    let mut rows = |table: &str| -> String {
        let sql = format!("SELECT string_agg(x::text, ' ' ORDER BY id) FROM raw.{table} x");
        client.query_one(&sql, &[]).expect("rows").get(0)
    };
    assert_eq!(rows("event"), "(1,a) (2,b)");
    assert_eq!(rows("client"), "(1,new) (2,b)");
    assert_eq!(rows("rate"), "(7,c)");
    // Started over, the appended stream is replaced.
    let again = folder.rapidbyte(&["run", "p.yaml", "--full-refresh"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(rows("event"), "(1,old) (2,b)");
    assert_eq!(rows("client"), "(1,new) (2,b)");
    let plan = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_str(&plan.stdout).expect("a plan");
    let modes = plan["streams"].as_array().expect("streams").iter();
    let modes: Vec<&Value> = modes.map(|stream| &stream["write_mode"]).collect();
    assert_eq!(modes, ["append", "upsert", "replace"], "{plan:#}");
}

#[test]
fn a_write_mode_that_the_destination_lacks_is_refused_at_its_stream() {
    let folder = folder();
    let text = pipeline("").replace(
        "[a, b, c, d]",
        "[a, { name: b, write_mode: upsert, primary_key: [n] }]",
    );
    let place = ["source.streams[1].write_mode"];
    folder.refuses(&text, "unsupported_write_mode", 2, &place);
    let limited = pipeline("").replace("[a, b, c, d]", "[{ name: a, write_mode: append }, b]");
    folder.write("p.yaml", limited);
    let refused = folder.rapidbyte(&["run", "p.yaml", "--limit", "1"]);
    assert!(refused.stderr.contains("limit_replaces"), "{refused:?}");
    // The stream that would be replaced is not selected.
    for choice in [["--select", "a"], ["--exclude", "b"]] {
        let arguments = [&["plan", "p.yaml", "--limit", "1"], &choice[..]].concat();
        let planned = folder.rapidbyte(&arguments);
        assert!(!planned.stderr.contains("limit_replaces"), "{planned:?}");
    }
}
