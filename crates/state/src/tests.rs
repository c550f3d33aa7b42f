use super::*;

fn open(folder: &tempfile::TempDir) -> State {
    State::open(&folder.path().join(".rapidbyte/state.db")).unwrap()
}

const NOTHING: Known<'_> = Known {
    epoch: 1,
    seq: 0,
    cursor: None,
    complete: false,
};

#[test]
fn an_unfinished_run_is_resumed_and_a_finished_run_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let first = state.begin("orders", None, "").unwrap();
    let id = first.id().to_owned();
    assert!(!first.goes_on());
    // As if the process had been killed.
    drop(first);
    assert_eq!(state.runs(None, 9).unwrap()[0].status, "unfinished");
    assert_ne!(state.begin("other", None, "").unwrap().id(), id);

    let again = open(&folder).begin("orders", None, "").unwrap();
    assert_eq!((again.id(), again.goes_on()), (id.as_str(), true));
    state.finish(again, Outcome::Failed("disk_full")).unwrap();
    let third = state.begin("orders", None, "").unwrap();
    assert_eq!(third.id(), id, "a failed run is not finished");
    state.finish(third, Outcome::Ok).unwrap();
    let record = &state.runs(Some("orders"), 9).unwrap()[0];
    assert_eq!((record.status.as_str(), record.attempts), ("ok", 3));
    assert!(record.ended_at.is_some() && record.error.is_none());
    assert_ne!(state.begin("orders", None, "").unwrap().id(), id);
}

#[test]
fn a_stream_that_failed_in_a_finished_run_keeps_that_runs_id_until_it_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let end = |done: &[&str], failed: &[&str], outcome: Outcome<'_>| {
        let mut run = state.begin("orders", None, "").unwrap();
        let id = run.id().to_owned();
        let ids = state.unfinished_streams("orders").unwrap();
        let of = |stream: &&str| {
            let id = ids.get(*stream).unwrap_or(&id).clone();
            (stream.to_string(), id)
        };
        let done = done
            .iter()
            .map(|stream| (stream.to_string(), String::new()));
        run.streams_ended(done.collect(), failed.iter().map(of).collect());
        state.finish(run, outcome).unwrap();
        id
    };
    let left = || {
        let mut left: Vec<_> = state
            .unfinished_streams("orders")
            .unwrap()
            .into_iter()
            .collect();
        left.sort();
        left
    };
    let pair = |stream: &str, id: &String| (stream.to_owned(), id.clone());
    let first = end(&["a"], &["b"], Outcome::Partial("x"));
    assert_eq!(left(), [pair("b", &first)]);
    assert_eq!(state.runs(None, 9).unwrap()[0].status, "partial");
    let second = end(&["a"], &["b", "c"], Outcome::Partial("x"));
    assert_ne!(
        second, first,
        "a run whose streams were all tried is finished"
    );
    assert_eq!(left(), [pair("b", &first), pair("c", &second)]);
    // A run that is resumed forgets nothing, for its streams have ended under these ids.
    let third = end(&["b"], &["c"], Outcome::Failed("x"));
    assert_eq!(left(), [pair("b", &first), pair("c", &second)]);
    assert_eq!(end(&["a", "b", "c"], &[], Outcome::Ok), third);
    assert_eq!(left(), []);
    end(&[], &["b"], Outcome::Partial("x"));
    state.give_up("orders", "t1").unwrap();
    assert_eq!(left(), []);
}

#[test]
fn every_attempt_of_a_run_keeps_its_own_times_rows_and_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let failed = state.begin("orders", None, "").unwrap();
    let id = failed.id().to_owned();
    state
        .committed("orders", "a", (&id, &id), NOTHING, (7, 70))
        .unwrap();
    state.finish(failed, Outcome::Failed("disk_full")).unwrap();
    // As if the process had been killed.
    drop(open(&folder).begin("orders", None, "").unwrap());
    let again = open(&folder);
    let last = again.begin("orders", None, "").unwrap();
    assert_eq!(again.begun().get(), Some(&id));
    let attempt = again.attempt_of(&id).unwrap().unwrap();
    assert_eq!(attempt.attempt, 3);
    again.reported(&attempt, Path::new("/r.html")).unwrap();
    state
        .committed("orders", "a", (&id, &id), NOTHING, (3, 30))
        .unwrap();
    state.finish(last, Outcome::Ok).unwrap();
    state.begin("other", None, "").unwrap();
    let attempts = state.attempts(Some("orders"), 9).unwrap();
    let told: Vec<_> = attempts
        .iter()
        .map(|a| (a.attempt, a.status.as_str(), a.rows, a.error.as_deref()))
        .collect();
    let expected = [
        (3, "ok", 3, None),
        (2, "unfinished", 0, None),
        (1, "failed", 7, Some("disk_full")),
    ];
    assert_eq!(told, expected);
    assert!(attempts.iter().all(|attempt| attempt.run_id == id));
    assert!(attempts[1].ended_at.is_none() && attempts[2].ended_at.is_some());
    assert!(attempts[0].started_at >= attempts[2].ended_at.clone().unwrap());
    assert_eq!(attempts[0].report.as_deref(), Some("/r.html"));
    assert_eq!(state.runs(Some("orders"), 9).unwrap()[0].rows, 10);
    assert_eq!(state.attempts(Some("orders"), 2).unwrap().len(), 2);
}

#[test]
fn attempts_follow_whatever_statement_writes_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let upsert = |status: &str, attempts: u32| {
        let sql = format!(
            "INSERT INTO runs VALUES ('r', 'orders', {NOW}, {NOW}, '{status}', 1, 0, 0, NULL) \
             ON CONFLICT (id) DO UPDATE SET status = '{status}', attempts = attempts + {attempts}, \
             rows = rows + 2, ended_at = {NOW}"
        );
        state.sql(|db| db.execute(&sql, [])).unwrap();
    };
    // A run that is first heard of when it ends, another attempt of it, and the end of that.
    upsert("failed", 0);
    upsert("running", 1);
    upsert("ok", 0);
    let attempts = state.attempts(None, 9).unwrap();
    let told: Vec<_> = attempts
        .iter()
        .map(|a| (a.attempt, a.status.as_str(), a.rows, a.ended_at.is_some()))
        .collect();
    assert_eq!(told, [(2, "ok", 4, true), (1, "failed", 0, true)]);
    state.sql(|db| db.execute("DELETE FROM runs", [])).unwrap();
    assert!(state.attempts(None, 9).unwrap().is_empty());
}

#[test]
fn a_history_of_the_first_version_is_read_and_then_brought_to_the_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(TABLES).unwrap();
    db.execute_batch(
        "INSERT INTO runs VALUES ('r1', 'orders', '2026-01-01T00:00:00.000Z', NULL, 'failed', 3, 5, \
         50, 'disk_full')",
    )
    .unwrap();
    db.pragma_update(None, "user_version", FIRST_VERSION)
        .unwrap();
    drop(db);
    let told = |state: &State| {
        let attempts = state.attempts(None, 9).unwrap();
        let told = attempts.into_iter().map(|a| (a.attempt, a.status, a.rows));
        told.collect::<Vec<_>>()
    };
    let first = (3, "failed".to_owned(), 5);
    let looked = State::look(&path).unwrap().unwrap();
    assert_eq!(told(&looked), std::slice::from_ref(&first));
    drop(looked);
    let state = State::open(&path).unwrap();
    let run = state.begin("orders", None, "").unwrap();
    assert!(run.goes_on());
    assert_eq!(told(&state), [(4, "running".to_owned(), 0), first]);
}

#[test]
fn a_history_of_a_later_version_is_brought_to_the_newest() {
    for older in FIRST_VERSION + 1..VERSION {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(TABLES).unwrap();
        db.execute_batch(attempts::TABLE).unwrap();
        db.pragma_update(None, "user_version", older).unwrap();
        drop(db);
        let state = State::open(&path).unwrap();
        state.completes("orders", "a", "r1").unwrap();
        assert!(state.completed("orders").unwrap()["a"].contains("r1"));
    }
}

#[test]
fn completed_streams_are_known_until_a_run_with_their_target_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let ids = |state: &State| {
        let completed = state.completed("orders").unwrap();
        let mut ids: Vec<String> = completed.into_values().flatten().collect();
        ids.sort();
        ids
    };
    let run = state.begin("orders", None, "").unwrap();
    for (stream, id) in [("a", "x t1"), ("a", "y t1"), ("a", "x t2"), ("b", "z t1")] {
        state.completes("orders", stream, id).unwrap();
    }
    state.forget_completed("orders", "a", "t2").unwrap();
    drop(run);
    let run = state.begin("orders", None, "").unwrap();
    assert!(run.goes_on());
    assert_eq!(ids(&state), ["x t1", "y t1", "z t1"]);
    state.forget_stream("orders", "b", "t1").unwrap();
    assert_eq!(ids(&state), ["x t1", "y t1"]);
    for id in 0..200 {
        state.completes("orders", "a", &format!("{id:03}")).unwrap();
    }
    assert_eq!(ids(&state).len(), 100);
    for (stream, id) in [("b", "z t1"), ("b", "z t2")] {
        state.completes("orders", stream, id).unwrap();
    }
    let mut run = run;
    run.streams_ended(vec![("b".into(), "t1".into())], Vec::new());
    state.finish(run, Outcome::Ok).unwrap();
    drop(state.begin("orders", None, "").unwrap());
    let known = state.completed("orders").unwrap();
    assert_eq!((known["a"].len(), known["b"].len()), (100, 1));
    assert!(known["b"].contains("z t2"));
    state.give_up("orders", "t1").unwrap();
    let known = state.completed("orders").unwrap();
    assert!(known["b"].contains("z t2"), "another target");
    state.give_up("orders", "t2").unwrap();
    assert!(!state.completed("orders").unwrap().contains_key("b"));
}

#[test]
fn a_run_that_lives_keeps_its_id_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let living = state.begin("orders", None, "").unwrap();
    assert_eq!(state.runs(None, 9).unwrap()[0].status, "running");
    let second = open(&folder).begin("orders", None, "").unwrap();
    assert_ne!(second.id(), living.id());
    state.finish(second, Outcome::Ok).unwrap();
    state.finish(living, Outcome::Ok).unwrap();
    let files = std::fs::read_dir(folder.path().join(".rapidbyte")).unwrap();
    let left: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    let locks = left
        .iter()
        .filter(|name| name.to_string_lossy().ends_with(".lock"));
    assert_eq!(locks.count(), 0);
}

#[test]
fn giving_up_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let id = state.begin("orders", None, "").unwrap().id().to_owned();
    state.give_up("orders", "t1").unwrap();
    assert_ne!(state.begin("orders", None, "").unwrap().id(), id);
}

#[test]
fn progress_is_what_was_said_last() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let run = state.begin("orders", None, "").unwrap();
    state.heal("orders", "b", run.id(), NOTHING).unwrap();
    state.heal("orders", "a", run.id(), NOTHING).unwrap();
    let known = Known {
        epoch: 1,
        seq: 1,
        cursor: Some("{\"at\":1}"),
        complete: true,
    };
    state
        .committed("orders", "b", (run.id(), run.id()), known, (7, 70))
        .unwrap();
    state
        .committed("orders", "b", (run.id(), run.id()), known, (3, 30))
        .unwrap();
    let streams = state.streams("orders").unwrap();
    let names: Vec<_> = streams.iter().map(|s| (s.stream.as_str(), s.seq)).collect();
    assert_eq!(names, [("a", 0), ("b", 1)]);
    assert_eq!(streams[1].cursor.as_deref(), known.cursor);
    assert!(streams[1].complete && !streams[0].complete);
    let runs = state.runs(Some("orders"), 9).unwrap();
    assert_eq!((runs[0].rows, runs[0].bytes), (10, 100));
    assert!(state.streams("other").unwrap().is_empty());
}

#[test]
fn a_file_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    drop(State::open(&path).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    let error = State::open(&path).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
    std::fs::write(
        &path,
        "not a database, and long enough to be looked at closely",
    )
    .unwrap();
    assert!(State::open(&path).is_err());
}

#[test]
fn a_look_at_a_history_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b#?%.db");
    assert!(State::look(&path).unwrap().is_none());
    assert!(!path.exists(), "looking makes nothing");
    std::fs::write(&path, "").unwrap();
    assert!(
        State::look(&path).unwrap().is_none(),
        "killed while it was made"
    );
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "journal_mode", "wal").unwrap();
    drop(db);
    assert!(State::look(&path).unwrap().is_none(), "killed a bit later");
    let state = State::open(&path).unwrap();
    let run = state.begin("orders", None, "").unwrap();
    let looked = State::look(&path).unwrap().unwrap();
    assert_eq!(looked.runs(None, 9).unwrap()[0].status, "running");
    assert!(looked.begin("orders", None, "").is_err());
    state.finish(run, Outcome::Ok).unwrap();
    drop((looked, state));
    let db = Connection::open_with_flags(
        immutable(&path),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    );
    assert_eq!(version(&db.unwrap()).unwrap(), VERSION);
    assert_eq!(
        State::look(&path).unwrap().unwrap().runs(None, 9).unwrap()[0].status,
        "ok"
    );
}

/// The history of a folder in which another process was stopped in the middle of a write.
fn busy(folder: &tempfile::TempDir) -> (State, Connection) {
    let state = open(folder);
    let other = Connection::open(folder.path().join(".rapidbyte/state.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    (state, other)
}

fn turn(folder: &tempfile::TempDir) -> Option<Turn> {
    let history = folder.path().join(".rapidbyte/state.db");
    match Turn::ask(&history, "orders", false).unwrap() {
        Asked::Taken(turn) => Some(*turn),
        Asked::Held(worker) => panic!("{worker:?}"),
    }
}

#[test]
fn a_busy_history_names_the_process_that_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _other) = busy(&folder);
    let error = state.begin("orders", None, "").unwrap_err();
    assert!(error.is_busy, "{error}");
    if cfg!(target_os = "linux") {
        // The other connection is this process's, too.
        let pid = std::process::id();
        assert_eq!(error.holder.map(|holder| holder.pid), Some(pid), "{error}");
        assert!(error.problem.contains(&pid.to_string()), "{error}");
    }
}

#[test]
fn a_run_that_a_busy_history_did_not_take_ends_once_and_is_counted_later() {
    let folder = tempfile::tempdir().unwrap();
    let (state, other) = busy(&folder);
    let first = state.begin("orders", turn(&folder), "").unwrap();
    let id = first.id().to_owned();
    assert!(state.behind().is_some());
    // As if the process had been killed: its id is resumed, though no history knows it.
    drop((first, state));
    let state = open(&folder);
    let again = state.begin("orders", turn(&folder), "").unwrap();
    assert_eq!((again.id(), again.goes_on()), (id.as_str(), true));
    state
        .committed("orders", "a", (&id, &id), NOTHING, (7, 70))
        .unwrap();
    assert!(state.finish(again, Outcome::Ok).unwrap_err().is_busy);
    // The run ended and must not be resumed: its rows would count as rows of the next run.
    let next = open(&folder).begin("orders", turn(&folder), "").unwrap();
    assert_ne!(next.id(), id);
    drop(next);

    other.execute_batch("ROLLBACK").unwrap();
    let state = open(&folder);
    let run = state.begin("orders", turn(&folder), "").unwrap();
    assert!(state.behind().is_none() && run.id() != id);
    state.finish(run, Outcome::Ok).unwrap();
    assert!(turn(&folder).unwrap().unfinished().is_none());
}

#[test]
fn the_next_commit_counts_rows_that_a_busy_history_missed() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(&folder);
    let run = state.begin("orders", turn(&folder), "").unwrap();
    let (_, other) = busy(&folder);
    state
        .committed("orders", "a", (run.id(), run.id()), NOTHING, (7, 70))
        .unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    state
        .committed("orders", "a", (run.id(), run.id()), NOTHING, (3, 30))
        .unwrap();
    let record = &state.runs(None, 9).unwrap()[0];
    assert_eq!((record.rows, record.bytes), (10, 100));
    state.finish(run, Outcome::Ok).unwrap();
    assert_eq!(state.runs(None, 9).unwrap()[0].status, "ok");
}

#[test]
fn giving_up_forgets_a_run_that_no_history_knows() {
    let folder = tempfile::tempdir().unwrap();
    let (state, other) = busy(&folder);
    let id = state
        .begin("orders", turn(&folder), "")
        .unwrap()
        .id()
        .to_owned();
    other.execute_batch("ROLLBACK").unwrap();
    state.give_up("orders", "t1").unwrap();
    assert_ne!(state.begin("orders", turn(&folder), "").unwrap().id(), id);
}

#[test]
fn a_pipe_in_the_place_of_the_history_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for name in ["state.db", "state.db-journal", "state.db-wal"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        drop(State::open(&path).unwrap());
        let pipe = folder.path().join(name);
        let _ = std::fs::remove_file(&pipe);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for error in [
            State::open(&path).unwrap_err(),
            State::look(&path).unwrap_err(),
        ] {
            assert_eq!(error.problem, "not a regular file", "{name}");
            assert!(error.path.ends_with(name), "{error}");
        }
    }
}

#[test]
fn a_table_index_trigger_or_view_of_somebody_else_is_refused() {
    for made in [
        "CREATE TABLE mine (a)",
        "DROP TABLE unfinished; CREATE VIRTUAL TABLE unfinished USING fts5(pipeline)",
        "CREATE INDEX mine ON runs (error)",
        "CREATE TRIGGER mine AFTER INSERT ON runs BEGIN INSERT INTO runs SELECT * FROM runs; END",
        "DROP TABLE streams; CREATE VIEW streams AS SELECT 1",
        "DROP TRIGGER no_attempts; CREATE TRIGGER no_attempts AFTER DELETE ON runs BEGIN SELECT 1; END",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        drop(State::open(&path).unwrap());
        State::look(&path).unwrap().unwrap();
        Connection::open(&path)
            .unwrap()
            .execute_batch(made)
            .unwrap();
        for error in [
            State::open(&path).unwrap_err(),
            State::look(&path).unwrap_err(),
        ] {
            assert!(error.problem.contains("did not make"), "{made}: {error}");
        }
    }
}

#[test]
fn the_database_of_another_program_is_refused_by_the_name_of_its_table_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE customers (a)").unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let error = State::open(&path).unwrap_err();
    let told = "has a table customers that this program did not make";
    assert!(error.problem.contains(told), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// The statistics that ANALYZE keeps are SQLite's own.
#[test]
fn a_history_that_was_analyzed_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    drop(State::open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    db.execute_batch("ANALYZE; VACUUM").unwrap();
    drop(db);
    drop(State::open(&path).unwrap());
    State::look(&path).unwrap().unwrap();
}

#[test]
fn a_link_of_another_user_in_the_place_of_the_history_is_refused() {
    use std::os::unix::fs::{lchown, symlink};
    for link in [".rapidbyte", ".rapidbyte/state.db"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".rapidbyte/state.db");
        drop(State::open(&folder.path().join("other/state.db")).unwrap());
        if link != ".rapidbyte" {
            std::fs::create_dir(folder.path().join(".rapidbyte")).unwrap();
        }
        let (link, to) = (
            folder.path().join(link),
            match link {
                ".rapidbyte" => "other",
                _ => "../other/state.db",
            },
        );
        symlink(to, &link).unwrap();
        drop(State::open(&path).unwrap());
        // Only root can make a link of another user.
        if lchown(&link, Some(65534), None).is_err() {
            return;
        }
        for error in [
            State::open(&path).unwrap_err(),
            State::look(&path).unwrap_err(),
            Turn::ask(&path, "orders", true).unwrap_err(),
        ] {
            assert!(
                error.problem.contains("another user (uid 65534)"),
                "{error}"
            );
        }
    }
}
