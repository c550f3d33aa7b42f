//! Resuming: the history of runs, cursors that commands show and move, retries.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

use crate::postgres::content;
use crate::support::{Ended, Folder};

const SEED: &str = "CREATE TABLE t (id bigint, at timestamptz); \
                    INSERT INTO t SELECT i, timestamptz '2026-01-01' + i * interval '1 second' \
                    FROM generate_series(1, 20000) i";
const MORE: &str = "INSERT INTO t SELECT i, timestamptz '2026-02-01' + i * interval '1 second' \
                    FROM generate_series(30001, 30010) i";
const INCREMENTAL: &str = "[{ name: public.t, sync_mode: incremental, cursor_field: at }]";

/// Two databases and a folder with a pipeline between them.
struct Place {
    from: Client,
    to: Client,
    folder: Folder,
    _databases: [Database<'static>; 2],
}

impl Place {
    fn new(streams: &str, write_mode: &str) -> Self {
        let (source, target) = (shared().database(), shared().database());
        source.client().batch_execute(SEED).expect("a table");
        let folder = Folder::new();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: going-on\n\
                 source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: {streams}\n\
                 destination:\n  use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  \
                 write_mode: {write_mode}\n\
                 checkpoint: {{ every_rows: 100 }}\nresources: {{ batch_bytes: 4kb, memory: 64mb }}\n",
                source.url(),
                target.url()
            ),
        );
        Self {
            from: source.client(),
            to: target.client(),
            folder,
            _databases: [source, target],
        }
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.rapidbyte(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        serde_json::from_str(&ended.stdout).expect("one JSON document")
    }

    fn rapidbyte(&self, arguments: &[&str]) -> Ended {
        self.folder.rapidbyte(arguments)
    }

    /// A run with a fault in it.
    fn breaks(&self, fault: &str) -> Ended {
        let mut command = self.folder.command(&["run", "p.yaml", "--output", "json"]);
        let ended: Ended = command
            .env("RAPIDBYTE_FAULTS", fault)
            .output()
            .expect("the program starts")
            .into();
        assert!(ended.stderr.contains("fault: "), "{}", ended.stderr);
        ended
    }

    #[track_caller]
    fn is_equal(&mut self) {
        let expected = content(&mut self.from, "t");
        assert_eq!(content(&mut self.to, "raw.t"), expected);
    }
}

#[test]
fn only_what_is_new_moves_and_the_cursor_can_be_looked_at_and_moved() {
    let mut place = Place::new(INCREMENTAL, "append");
    let run = &["run", "p.yaml"][..];
    let warns_of_null = |place: &Place| {
        let planned = place.rapidbyte(&["plan", "p.yaml"]);
        assert_eq!(planned.code, Some(0), "{}", planned.stderr);
        (planned.stderr).contains("public.t: cursor_field at may be NULL")
    };
    assert!(warns_of_null(&place));
    let first = place.json(run);
    assert_eq!(first["rows"], 20000);
    // Rows with NULL came with the first read.
    assert!(!warns_of_null(&place));
    assert!(
        first["streams"][0]["commits"].as_u64() > Some(3),
        "{first:#}"
    );
    assert_eq!(place.json(run)["rows"], 0);
    place.from.batch_execute(MORE).expect("more rows");
    assert_eq!(place.json(run)["rows"], 10);
    place.is_equal();

    let of = ["state", "get", "p.yaml", "public.t"];
    let cursor = place.rapidbyte(&of).stdout;
    assert!(cursor.contains("2026-02-01 08:20:10"), "{cursor}");
    let listed = place.rapidbyte(&["state", "list", "p.yaml"]).stdout;
    assert!(listed.starts_with("stream "), "{listed}");
    assert!(listed.contains(" at = 2026-02-01 08:20:10"), "{listed}");
    assert!(!listed.contains('{'), "{listed}");
    // A misspelt name is an error, not a stream without a cursor.
    for verb in ["get", "edit"] {
        let misspelt = place.rapidbyte(&["state", verb, "p.yaml", "public.s"]);
        assert_eq!(misspelt.code, Some(2), "{}", misspelt.stderr);
        let said = &misspelt.stderr;
        assert!(said.contains("error[unknown_stream]"), "{said}");
        assert!(said.contains("did you mean \"public.t\"?"), "{said}");
    }
    let listed = place.json(&["state", "list", "p.yaml"]);
    assert_eq!(listed["streams"][0]["name"], "public.t");
    assert_eq!(listed["streams"][0]["complete"], true);
    let planned = place.rapidbyte(&["plan", "p.yaml"]).stdout;
    let planned = planned.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        planned.contains("resumes from at = 2026-02-01 08:20:10"),
        "{planned}"
    );

    // Ten rows back, and they come again: that is what was asked for.
    let back = cursor.replace("2026-02-01 08:20:10", "2026-01-15 00:00:00");
    place.json(&["state", "set", "p.yaml", "public.t", back.trim()]);
    assert_eq!(place.json(run)["rows"], 10);
    let wrong = place.rapidbyte(&["state", "set", "p.yaml", "public.t", "2026"]);
    assert!(wrong.stderr.contains("invalid_cursor"), "{}", wrong.stderr);
    let mut edit = place
        .folder
        .command(&["state", "edit", "p.yaml", "public.t"]);
    let edited: Ended = edit
        .env("EDITOR", "sed -i s/2026-02-01/2026-01-31/")
        .output()
        .expect("the program starts")
        .into();
    assert_eq!(edited.code, Some(0), "{}", edited.stderr);
    assert!(edited.stdout.contains("2026-01-31"), "{}", edited.stdout);

    // From the beginning, with what was appended replaced in one step.
    let again = place.json(&["run", "p.yaml", "--full-refresh"]);
    assert_eq!(again["rows"], 20010);
    assert_eq!(again["streams"][0]["commits"], 1);
    place.is_equal();
    assert_eq!(place.json(run)["rows"], 0);
    place.json(&["state", "clear", "p.yaml", "--all"]);
    assert_eq!(place.json(run)["rows"], 20010);

    let runs = place.json(&["runs", "p.yaml"]);
    let runs = runs["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 7);
    assert!(runs.iter().all(|run| run["status"] == "ok"), "{runs:#?}");
}

#[test]
fn the_history_may_be_lost_and_the_cursor_is_not() {
    let mut place = Place::new(INCREMENTAL, "append");
    place.json(&["run", "p.yaml"]);
    std::fs::remove_dir_all(place.folder.path().join(".rapidbyte")).expect("it was there");
    place.from.batch_execute(MORE).expect("more rows");
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 10);
    place.is_equal();
    // Elsewhere, if that is wanted.
    let elsewhere = ["run", "p.yaml", "--state", "elsewhere/history.db"];
    assert_eq!(place.json(&elsewhere)["rows"], 0);
    assert!(place.folder.path().join("elsewhere/history.db").is_file());
    place.folder.write("file", "");
    let ended = place.rapidbyte(&["run", "p.yaml", "--state", "file/history.db"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("state_unusable"), "{}", ended.stderr);
}

#[test]
fn a_table_that_is_added_whole_is_added_once_by_a_run_that_was_killed() {
    let mut place = Place::new("[public.t]", "append");
    let killed = place.breaks("engine.recorded=kill");
    assert_eq!(killed.code, None);
    let runs = place.json(&["runs", "p.yaml"]);
    assert_eq!(runs["runs"][0]["status"], "unfinished");
    let id = runs["runs"][0]["id"].clone();
    let report = place.json(&["run", "p.yaml"]);
    assert_eq!(report["run_id"], id);
    assert_eq!(report["rows"], 0);
    assert_eq!(report["streams"][0]["committed_before"], true);
    place.is_equal();
    // Each attempt has its own rows and outcome; the run has their sum.
    let runs = place.json(&["runs", "p.yaml"]);
    let attempts = runs["attempts"].as_array().expect("attempts");
    let told: Vec<_> = attempts
        .iter()
        .map(|a| {
            (
                a["run_id"] == id,
                a["attempt"].as_u64(),
                a["status"].as_str(),
                a["rows"].as_u64(),
            )
        })
        .collect();
    let expected = [
        (true, Some(2), Some("ok"), Some(0)),
        (true, Some(1), Some("unfinished"), Some(20000)),
    ];
    assert_eq!(told, expected, "{runs:#}");
    assert_eq!(
        (
            runs["runs"].as_array().map(Vec::len),
            &runs["runs"][0]["rows"]
        ),
        (Some(1), &20000.into())
    );
    // The next run is another one, and adds the rows as its pipeline says.
    let report = place.json(&["run", "p.yaml"]);
    assert_ne!(report["run_id"], id);
    assert_eq!(report["rows"], 20000);
}

#[test]
fn transient_failures_are_retried_from_the_last_commit() {
    let mut place = Place::new(INCREMENTAL, "append");
    let ended = place.breaks("dest-postgres.committing=error@2");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("retries in"), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    assert_eq!(
        (&report["rows"], &report["streams"][0]["attempts"]),
        (&20000.into(), &2.into())
    );
    place.is_equal();
    // The run does not retry an error that is not transient.
    place
        .from
        .batch_execute("ALTER TABLE t DROP COLUMN at")
        .expect("a change");
    let ended = place.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(!ended.stderr.contains("retries in"), "{}", ended.stderr);
}

#[test]
fn arguments_that_would_lose_rows_of_an_incremental_stream_are_refused() {
    let place = Place::new(INCREMENTAL, "append");
    for (flags, code) in [
        (&["--limit", "5"][..], "limit_incremental"),
        (&["--exclude", "public.t.id"], "columns_incremental"),
    ] {
        let ended = place.rapidbyte(&[&["run", "p.yaml"], flags].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(code), "{}", ended.stderr);
    }
    let files = place.folder.files(".");
    assert_eq!(files, ["p.yaml"], "no run began");
}

/// As a run that was stopped in the middle of a write does.
#[test]
fn a_run_moves_its_rows_while_another_process_holds_the_history() {
    let place = Place::new("[public.t]", "append");
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 20_000);
    let history = place.folder.path().join(".rapidbyte/state.db");
    let other = rusqlite::Connection::open(history).expect("a history");
    other.execute_batch("BEGIN IMMEDIATE").expect("its lock");
    let ended = place.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("writable"), "{}", ended.stderr);
    if cfg!(target_os = "linux") {
        let holder = format!("the process {}", std::process::id());
        assert!(ended.stderr.contains(&holder), "{}", ended.stderr);
    }
    other.execute_batch("ROLLBACK").expect("free");
    // It ended: the next run is another one, and adds the rows again.
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 20_000);
}

#[test]
fn a_cursor_that_a_run_moved_during_an_edit_is_not_overwritten() {
    let mut place = Place::new(INCREMENTAL, "append");
    place.json(&["run", "p.yaml"]);
    place.from.batch_execute(MORE).expect("more rows");
    let mut edit = place
        .folder
        .command(&["state", "edit", "p.yaml", "public.t"]);
    let program = edit.get_program().to_owned();
    // The editor ends after a whole run of the pipeline.
    let edited: Ended = edit
        .env("PROGRAM", program)
        .env(
            "EDITOR",
            "\"$PROGRAM\" run -q p.yaml && sed -i s/2026-01/2025-12/",
        )
        .output()
        .expect("the program starts")
        .into();
    assert_eq!(edited.code, Some(1), "{}", edited.stderr);
    assert!(edited.stderr.contains("cursor_moved"), "{}", edited.stderr);
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 0);
    place.is_equal();
}

#[test]
fn a_cursor_that_no_run_takes_is_refused_when_it_is_set() {
    let mut place = Place::new(INCREMENTAL, "append");
    place.json(&["run", "p.yaml"]);
    let cursor = place
        .rapidbyte(&["state", "get", "p.yaml", "public.t"])
        .stdout;
    let cursor: Value = serde_json::from_str(&cursor).expect("a cursor");
    let with = |key: &str, value: Value| {
        let mut cursor = cursor.clone();
        cursor[key] = value;
        cursor.to_string()
    };
    let value = |value: &str| with("values", json!([value]));
    let set = |place: &Place, cursor: &str| {
        let verb = ["state", "set", "p.yaml", "public.t", cursor];
        place.rapidbyte(&[&verb[..], &["--output", "json"]].concat())
    };
    for (cursor, code, parts) in [
        (
            "{}".to_owned(),
            "invalid_cursor",
            &["state get p.yaml public.t"][..],
        ),
        ("[1]".to_owned(), "invalid_cursor", &["a JSON object"]),
        (
            "{\"id\": 3}".to_owned(),
            "cursor_unreadable",
            &["id", "no \\\"version\\\""],
        ),
        (
            with("version", json!("1")),
            "cursor_unreadable",
            &["state set p.yaml public.t CURSOR"],
        ),
        (with("fields", json!([])), "cursor_changed", &[]),
        (
            value("soon"),
            "cursor_unreadable",
            &[
                "soon",
                "timestamptz",
                "state set p.yaml public.t",
                "state clear p.yaml public.t",
            ],
        ),
        (
            value("2026-13-41"),
            "cursor_unreadable",
            &["2026-13-41", "\"column\":\"at\""],
        ),
    ] {
        let ended = set(&place, &cursor);
        assert_eq!(ended.code, Some(2), "{cursor}: {ended:?}");
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        let error = &document["error"];
        assert_eq!(error["code"], code, "{cursor}: {error:#}");
        assert_eq!(error["stream"], "public.t", "{cursor}: {error:#}");
        for part in parts {
            assert!(error.to_string().contains(part), "{part}: {error:#}");
        }
    }
    // Nothing was set, and a good cursor is.
    place.from.batch_execute(MORE).expect("more rows");
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 10);
    let verb = ["state", "set", "p.yaml", "public.t"];
    let back = value("2026-02-01 00:00:00+00");
    place.json(&[&verb[..], &[back.as_str()]].concat());
    assert_eq!(place.json(&["run", "p.yaml"])["rows"], 10);
    // In an editor, too.
    let mut edit = place
        .folder
        .command(&["state", "edit", "p.yaml", "public.t"]);
    let edited: Ended = edit
        .env("EDITOR", "sed -i s/2026-02-01/2026-13-41/")
        .output()
        .expect("the program starts")
        .into();
    assert_eq!(edited.code, Some(2), "{}", edited.stderr);
    assert!(
        edited.stderr.contains("cursor_unreadable"),
        "{}",
        edited.stderr
    );
    // A run that finds such a cursor says the same.
    let sql =
        "UPDATE _rapidbyte.checkpoint SET cursor = replace(cursor, '2026-02-01', '2026-13-41')";
    place.to.batch_execute(sql).expect("edited");
    let ended = place.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for part in [
        "cursor_unreadable",
        "public.t.at",
        "2026-13-41",
        "state set p.yaml public.t",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    // A source that cannot be asked does not forbid it.
    place.from.batch_execute("DROP TABLE t").expect("dropped");
    let ended = set(&place, &back);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("could not check the cursor"),
        "{ended:?}"
    );
}
