//! Append with a lag: rows that are committed late are added once, and rows that are read again are not
//! doubled. A run reports a missing target before it reads anything.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::overlap::Started;
use crate::postgres::content;
use crate::support::Folder;
use crate::wired::end_of;

const SEED: &str = "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, v text); \
                    INSERT INTO t SELECT i, timestamptz '2026-01-01' + i * interval '1 second', 'v' || i \
                    FROM generate_series(1, 2000) i; INSERT INTO t VALUES (0, NULL, 'without')";
const STREAM: &str = "name: public.t, sync_mode: incremental, cursor_field: at, lag: 5 minutes";

struct Place {
    from: Client,
    to: Client,
    folder: Folder,
    pipeline: String,
    _databases: [Database<'static>; 2],
}

impl Place {
    fn new(stream: &str, destination: &str) -> Self {
        let (source, target) = (shared().database(), shared().database());
        source.client().batch_execute(SEED).expect("a table");
        let (from, to) = (source.url(), target.url());
        let pipeline = format!(
            "version: 1\npipeline: again\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{from}\" }}\n  streams:\n  - {{ {stream} }}\n\
             destination:\n  use: dest-postgres\n  config: {{ url: \"{to}\", schema: raw }}\n  {destination}\n\
             checkpoint: {{ every_rows: 100 }}\nresources: {{ batch_bytes: 4kb, memory: 64mb }}\n"
        );
        let folder = Folder::new();
        folder.write("p.yaml", &pipeline);
        Self {
            from: source.client(),
            to: target.client(),
            folder,
            pipeline,
            _databases: [source, target],
        }
    }

    #[track_caller]
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let ended = self
            .folder
            .rapidbyte(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ended.code, Some(code), "{}{}", ended.stderr, ended.stdout);
        serde_json::from_str(&ended.stdout).expect("one JSON document")
    }

    #[track_caller]
    fn runs(&self) -> Value {
        self.json(&["run", "p.yaml"], 0)
    }

    #[track_caller]
    fn is(&mut self, expected: &str) {
        let expected = content(&mut self.from, &format!("({expected})"));
        assert_eq!(content(&mut self.to, "raw.t"), expected);
    }
}

#[test]
fn rows_within_the_lag_are_appended_exactly_once() {
    let mut place = Place::new(STREAM, "write_mode: append\n  primary_key: [id]");
    let plan = place.json(&["plan", "p.yaml"], 0);
    let stream = &plan["streams"][0];
    assert_eq!(stream["primary_key"][0], "id", "{stream:#}");
    let statements = stream["statements"].to_string();
    assert!(
        statements.contains("CREATE INDEX ON raw.t (id)"),
        "{statements}"
    );
    place.runs();
    place.is("SELECT * FROM t");
    // The last row is of 00:33:20. Three rows are late, one of them later than the lag reaches. One row
    // is new, one is changed, and one got a value for its NULL.
    place
        .from
        .batch_execute(
            "CREATE TABLE was AS SELECT * FROM t; \
             INSERT INTO t VALUES (3001, '2026-01-01 00:30:00', 'late'), (3002, '2026-01-01 00:33:20', 'tie'), \
                 (3003, '2026-01-01 00:20:00', 'missed'), (3004, '2026-01-01 00:40:00', 'new'); \
             UPDATE t SET at = '2026-01-01 00:41:00', v = 'changed' WHERE id = 2000; \
             UPDATE t SET at = '2026-01-01 00:42:00' WHERE id = 0",
        )
        .expect("changes");
    let expected = "SELECT * FROM was UNION SELECT * FROM t WHERE id <> 3003";
    let report = place.runs();
    // Five minutes and more of rows were read again.
    assert!(
        report["rows"].as_u64().is_some_and(|rows| rows > 300),
        "{report:#}"
    );
    place.is(expected);
    // A run that is killed between its commits, and the run that resumes it.
    place
        .from
        .batch_execute(
            "INSERT INTO t SELECT i, timestamptz '2026-01-01 00:42:00' + (i - 4003) * interval '1 second', 'more' FROM generate_series(4000, 4999) i",
        )
        .expect("more");
    let killed = place
        .folder
        .command(&["run", "p.yaml", "--quiet"])
        .env("RAPIDBYTE_FAULTS", "dest-postgres.merged=kill@2")
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&killed.stderr);
    assert!(said.contains("fault: dest-postgres.merged kill"), "{said}");
    place.runs();
    place.is(expected);
    place.runs();
    place.is(expected);
}

#[test]
fn columns_are_known_under_their_new_names_and_a_full_refresh_makes_the_index() {
    let stream = format!("{STREAM}, rename: {{ id: key, at: moment }}, primary_key: [key]");
    let mut place = Place::new(&stream, "write_mode: append");
    for arguments in [
        &["run", "p.yaml"][..],
        &["run", "p.yaml"],
        &["run", "p.yaml", "--full-refresh"],
        &["run", "p.yaml"],
    ] {
        place.json(arguments, 0);
        place.is("SELECT * FROM t");
    }
    let plan = place.json(&["plan", "p.yaml"], 0);
    assert!(
        !plan.to_string().contains("no index starts with the key"),
        "{plan:#}"
    );
    place
        .to
        .batch_execute("DROP INDEX raw.t_key_idx")
        .expect("an index");
    let plan = place.json(&["plan", "p.yaml"], 0);
    assert!(
        plan.to_string()
            .contains("create one: CREATE INDEX ON raw.t (key)"),
        "{plan:#}"
    );
}

#[test]
fn a_lag_that_nothing_tells_apart_is_refused_with_advice() {
    let refuses = |stream: &str, destination: &str, code: &str, parts: &[&str]| {
        let place = Place::new(stream, destination);
        let pipeline = match destination.contains("dest-file") {
            true => place
                .pipeline
                .replace("use: dest-postgres", "use: dest-file"),
            false => place.pipeline.clone(),
        };
        place.folder.refuses(&pipeline, code, 2, parts);
    };
    refuses(
        STREAM,
        "write_mode: append",
        "no_primary_key",
        &[
            "p.yaml:7",
            "source.streams[0].lag",
            "primary_key: [id]",
            "upsert",
            "xmin",
        ],
    );
    refuses(
        &format!("{STREAM}, columns: [id, v]"),
        "write_mode: append\n  primary_key: [id]",
        "unknown_column",
        &[
            "source.streams[0].columns",
            "\"at\"",
            "by its key and its cursor",
        ],
    );
    refuses(
        STREAM,
        "write_mode: append\n  primary_key: [idd]",
        "unknown_column",
        &["destination.primary_key", "did you mean \"id\"?"],
    );
    refuses(
        STREAM.split(", lag").next().expect("a stream"),
        "write_mode: append\n  primary_key: [id]",
        "invalid_value",
        &["primary_key has no effect", "lag"],
    );
}

#[test]
fn files_take_no_rows_again() {
    let place = Place::new(STREAM, "write_mode: append\n  primary_key: [id]");
    let (head, _) = place
        .pipeline
        .split_once("destination:")
        .expect("a destination");
    let pipeline = format!(
        "{head}destination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}/{{part}}.csv\" }}\n  \
         write_mode: append\n  primary_key: [id]\n"
    );
    place.folder.refuses(
        &pipeline,
        "unsupported_lag",
        2,
        &["dest-file", "source.streams[0].lag", "xmin"],
    );
}

#[test]
fn another_target_or_source_is_refused_until_the_stream_is_bound_to_it() {
    let mut place = Place::new(STREAM, "write_mode: upsert\n  primary_key: [id]");
    place.runs();
    place.to.batch_execute("TRUNCATE raw.t").expect("a table");
    for command in ["plan", "run"] {
        let said = place.json(&[command, "p.yaml"], 4);
        assert_eq!(said["error"]["code"], "target_lost_rows", "{said:#}");
        let text = said["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("raw.t was emptied"), "{said:#}");
    }
    place.json(&["state", "rebind", "p.yaml", "public.t"], 0);
    place.runs();
    place.json(&["run", "p.yaml", "--full-refresh"], 0);
    place.is("SELECT * FROM t");
    // The same rows in another table of the same name, as after a restore.
    let again = "CREATE TABLE u (LIKE t INCLUDING ALL); INSERT INTO u SELECT * FROM t; \
        DROP TABLE t; ALTER TABLE u RENAME TO t";
    place.from.batch_execute(again).expect("a table");
    let said = place.json(&["run", "p.yaml"], 2);
    assert_eq!(
        said["error"]["code"], "cursor_of_another_source",
        "{said:#}"
    );
    let said = place.json(&["state", "rebind", "p.yaml", "--all"], 0);
    assert_eq!(said["streams"][0]["name"], "public.t", "{said:#}");
    assert!(said["streams"][0]["cursor"]["source"].is_null(), "{said:#}");
    place.runs();
    place.is("SELECT * FROM t");
    let said = place.json(&["state", "get", "p.yaml", "public.t"], 0);
    assert!(said["cursor"]["source"]["relation"].is_u64(), "{said:#}");
}

#[test]
fn plan_and_check_say_that_the_target_vanished() {
    let mut place = Place::new(STREAM, "write_mode: upsert\n  primary_key: [id]");
    place.runs();
    place.json(&["plan", "p.yaml"], 0);
    place.to.batch_execute("DROP TABLE raw.t").expect("a table");
    for command in ["plan", "run"] {
        let said = place.json(&[command, "p.yaml"], 4);
        assert_eq!(said["error"]["code"], "target_missing", "{said:#}");
        assert_eq!(said["error"]["stream"], "public.t", "{said:#}");
    }
    let said = place.json(&["check", "p.yaml"], 4).to_string();
    assert!(
        said.contains("target_missing") && said.contains("--full-refresh"),
        "{said}"
    );
    place.json(&["run", "p.yaml", "--dry-run", "--full-refresh"], 0);
    place.json(&["run", "p.yaml", "--full-refresh"], 0);
    place.is("SELECT * FROM t");
    place.json(&["check", "p.yaml"], 0);
}

const APPENDS: &str = "name: public.t, sync_mode: incremental, cursor_field: id";
const ROW: &str = "row of pipeline again, stream public.t, target raw.t";

#[test]
fn an_edited_checkpoint_is_refused_with_its_row_and_column() {
    let mut place = Place::new(APPENDS, "write_mode: append");
    place.runs();
    let sql = "ALTER TABLE _rapidbyte.checkpoint ALTER epoch DROP NOT NULL, ALTER seq DROP NOT NULL, \
        ALTER complete DROP NOT NULL, ALTER run_id DROP NOT NULL; \
        CREATE TABLE kept AS TABLE _rapidbyte.checkpoint";
    place.to.batch_execute(sql).expect("a table");
    let edits = [
        ("epoch", "-1", "\"-1\""),
        ("epoch", "NULL", "NULL"),
        ("epoch", "9223372036854775807", "\"9223372036854775807\""),
        ("seq", "-7", "\"-7\""),
        ("seq", "NULL", "NULL"),
        ("seq", "9223372036854775807", "\"9223372036854775807\""),
        ("complete", "NULL", "NULL"),
        ("run_id", "NULL", "NULL"),
        ("cursor", "'hello'", "\"hello\""),
        ("cursor", "''", "\"\""),
    ];
    for (column, value, shown) in edits {
        let sql = format!("UPDATE _rapidbyte.checkpoint SET {column} = {value}");
        place.to.batch_execute(&sql).expect("an edited row");
        for command in ["plan", "run"] {
            let error = &place.json(&[command, "p.yaml"], 4)["error"];
            assert_eq!(error["code"], "checkpoint_invalid", "{error:#}");
            let said = error["message"].as_str().unwrap_or_default();
            let named = format!("_rapidbyte.checkpoint, {ROW}: the column {column} is {shown}");
            assert!(said.starts_with(&named), "{said}");
        }
        // The hint's own statement repairs the row.
        let error = place.json(&["run", "p.yaml"], 4);
        let hint = error["error"]["hint"].as_str().unwrap_or_default();
        match hint.split_once("UPDATE ") {
            Some((_, update)) => {
                let sql = format!("UPDATE {update}");
                place.to.batch_execute(&sql).expect("a statement");
            }
            None => {
                assert!(hint.contains("state set") && column == "cursor", "{hint}");
                let seen = place.folder.rapidbyte(&["state", "list", "p.yaml"]);
                assert_eq!(seen.code, Some(0), "{}", seen.stderr);
                let sql = "UPDATE _rapidbyte.checkpoint c SET cursor = k.cursor FROM kept k";
                place.to.batch_execute(sql).expect("a statement");
            }
        }
        let report = place.runs();
        assert_eq!(report["rows"], 0, "{report:#}");
        let sql = "TRUNCATE _rapidbyte.checkpoint; INSERT INTO _rapidbyte.checkpoint TABLE kept";
        place.to.batch_execute(sql).expect("the row as it was");
    }
    place.is("SELECT * FROM t");
    // A cursor that is read as JSON, and not as a cursor, is the source's to refuse.
    let sql = "UPDATE _rapidbyte.checkpoint SET cursor = '{}'";
    place.to.batch_execute(sql).expect("an edited row");
    let error = place.json(&["run", "p.yaml"], 2);
    assert_eq!(error["error"]["code"], "cursor_unreadable", "{error:#}");
    let hint = error["error"]["hint"].to_string();
    assert!(hint.contains("rapidbyte state set"), "{hint}");
    place.json(&["run", "p.yaml", "--full-refresh"], 0);
    place.is("SELECT * FROM t");
}

#[test]
fn a_stream_that_lost_its_checkpoint_does_not_append_all_rows_again() {
    let mut place = Place::new(APPENDS, "write_mode: append");
    place.runs();
    let cursor = place.json(&["state", "get", "p.yaml", "public.t"], 0)["cursor"].to_string();
    let kept = "CREATE TABLE kept AS TABLE _rapidbyte.checkpoint";
    place.to.batch_execute(kept).expect("a table");
    let no_row = format!("_rapidbyte.checkpoint has no {ROW}");
    let no_cursor = format!("the column cursor is NULL in _rapidbyte.checkpoint, {ROW}");
    let losses = [
        ("DROP SCHEMA _rapidbyte CASCADE", &no_row),
        ("DROP TABLE _rapidbyte.checkpoint", &no_row),
        ("DELETE FROM _rapidbyte.checkpoint", &no_row),
        (
            "UPDATE _rapidbyte.checkpoint SET target = 'raw.other'",
            &no_row,
        ),
        ("UPDATE _rapidbyte.checkpoint SET pipeline = 'q'", &no_row),
        ("UPDATE _rapidbyte.checkpoint SET cursor = NULL", &no_cursor),
    ];
    for (sql, why) in losses {
        place.to.batch_execute(sql).expect("a lost row");
        for command in ["plan", "run"] {
            let error = &place.json(&[command, "p.yaml"], 4)["error"];
            assert_eq!(error["code"], "cursor_missing", "{sql}: {error:#}");
            assert_eq!(error["stream"], "public.t", "{sql}: {error:#}");
            let said = error["message"].as_str().unwrap_or_default();
            assert!(
                said.contains("raw.t has rows") && said.contains(why),
                "{said}"
            );
        }
        place.is("SELECT * FROM t");
        let listed = place.json(&["state", "list", "p.yaml"], 0);
        let refused = &listed["streams"][0]["refused"];
        assert_eq!(refused["code"], "cursor_missing", "{sql}: {listed:#}");
        let hint = refused["hint"].as_str().unwrap_or_default();
        let command = "`rapidbyte state set p.yaml public.t CURSOR`";
        assert!(hint.contains(command), "{hint}");
        let told = place.folder.rapidbyte(&["state", "list", "p.yaml"]).stdout;
        let said = "public.t: the next run is refused with cursor_missing";
        assert!(told.contains(said), "{told}");
        let error = &place.json(&["state", "get", "p.yaml", "public.t"], 2)["error"];
        let told = error.to_string();
        for part in [
            "no_cursor",
            "the next run is refused with cursor_missing",
            command,
        ] {
            assert!(told.contains(part), "{sql}: {part}: {told}");
        }
        assert!(!told.contains("begins with the first row"), "{told}");
        // The cursor that an operator sets resumes the stream.
        place.json(&["state", "set", "p.yaml", "public.t", &cursor], 0);
        let report = place.runs();
        assert_eq!(report["rows"], 0, "{sql}: {report:#}");
        place.is("SELECT * FROM t");
    }
    // A full refresh replaces the rows.
    let lose = "DROP TABLE _rapidbyte.checkpoint";
    place.to.batch_execute(lose).expect("a lost row");
    place.json(&["run", "p.yaml", "--full-refresh"], 0);
    place.is("SELECT * FROM t");
    // An operator who clears the stream by name wants every row again.
    place.to.batch_execute(lose).expect("a lost row");
    place.json(&["run", "p.yaml"], 4);
    place.json(&["state", "clear", "p.yaml", "public.t"], 0);
    place.runs();
    place.is("SELECT * FROM t UNION ALL SELECT * FROM t");
    // A table without rows has lost nothing.
    let empty = format!("{lose}; TRUNCATE raw.t");
    place.to.batch_execute(&empty).expect("an empty table");
    place.runs();
    place.is("SELECT * FROM t");
}

/// Stops a run after its first commit while `sql` changes its target, and gives the error of the run.
#[track_caller]
fn changed_during_a_run(place: &mut Place, sql: &str) -> Value {
    let run = Started::stopped_at(&place.folder, "dest-postgres.committed");
    place.to.batch_execute(sql).expect("changed");
    kill_process(Pid::from_child(&run.child), Signal::CONT).expect("it is there");
    let ended = end_of(run.child, "the run");
    assert_eq!(ended.code, Some(4), "{sql}: {ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    document["error"].clone()
}

#[test]
fn a_target_that_is_emptied_during_a_run_ends_the_run_and_the_next_one() {
    for sql in ["TRUNCATE raw.t", "DELETE FROM raw.t"] {
        let mut place = Place::new(APPENDS, "write_mode: append");
        let error = changed_during_a_run(&mut place, sql);
        assert_eq!(error["code"], "target_lost_rows", "{sql}: {error:#}");
        assert_eq!(error["stream"], "public.t", "{sql}: {error:#}");
        let told = error.to_string();
        for part in [
            "raw.t was emptied during the run",
            "--full-refresh --select public.t",
            "state rebind p.yaml public.t",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        // Nothing was added behind the rows that are gone, so that the next run knows of it, too.
        place.is("SELECT * FROM t LIMIT 0");
        let error = &place.json(&["run", "p.yaml"], 4)["error"];
        assert_eq!(error["code"], "target_lost_rows", "{sql}: {error:#}");
        let listed = place.json(&["state", "list", "p.yaml"], 0);
        let refused = &listed["streams"][0]["refused"];
        assert_eq!(refused["code"], "target_lost_rows", "{listed:#}");
        place.json(&["run", "p.yaml", "--full-refresh"], 0);
        place.is("SELECT * FROM t");
    }
}

/// The hint of the error says to do this.
#[test]
fn a_full_refresh_fills_a_target_that_was_emptied() {
    for mode in ["append", "upsert\n  primary_key: [id]"] {
        for sql in ["TRUNCATE raw.t", "DELETE FROM raw.t", "DROP TABLE raw.t"] {
            let mut place = Place::new(APPENDS, &format!("write_mode: {mode}"));
            place.runs();
            place.to.batch_execute(sql).expect("changed");
            place.json(&["run", "p.yaml"], 4);
            place.json(&["run", "p.yaml", "--full-refresh"], 0);
            place.is("SELECT * FROM t");
            place.runs();
            place.is("SELECT * FROM t");
        }
    }
}

#[test]
fn a_checkpoint_that_somebody_changes_during_a_run_is_named() {
    let table = "_rapidbyte.checkpoint";
    for (sql, how) in [
        (
            format!("UPDATE {table} SET seq = 77"),
            "set its seq to 77, which was",
        ),
        (
            format!("UPDATE {table} SET epoch = 0"),
            "set its epoch to 0, which was 1",
        ),
        (format!("DELETE FROM {table}"), "deleted it"),
    ] {
        let mut place = Place::new(APPENDS, "write_mode: append");
        let error = changed_during_a_run(&mut place, &sql);
        assert_eq!(error["code"], "checkpoint_changed", "{sql}: {error:#}");
        let told = error.to_string();
        for part in [table, "stream public.t", how, "state get p.yaml public.t"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("newer"), "{told}");
        let explained = place.folder.rapidbyte(&["explain", "checkpoint_changed"]);
        assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    }
}
