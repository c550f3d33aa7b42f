//! The content of the table of checkpoints, and the runs that may commit.

use std::thread;

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::arrow_array::RecordBatch;
use rapidbyte_sdk::prelude::{Part, Receipt, Result, Run, Target, WriteMode};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

const STATE: &str = "SELECT string_agg(concat_ws(' ', pipeline, stream, target, run_id, epoch, seq, \
    coalesce(cursor, '-'), complete), '; ' ORDER BY pipeline, stream, target) \
    FROM _rapidbyte.checkpoint";

fn append_target(stream: &str) -> Target {
    target(stream, &batch(&[1]).schema(), WriteMode::Append)
}

fn commit<'a>(
    stream: &'a str,
    parts: Vec<Part>,
    seq: u64,
    cursor: Option<&'a str>,
    complete: bool,
) -> Commit<'a> {
    Commit {
        stream,
        parts,
        seq,
        cursor,
        complete,
    }
}

fn state(client: &mut Client) -> String {
    one(client, STATE)
}

/// Writes one batch and commits it.
fn step(
    load: &mut Loading,
    rows: &RecordBatch,
    seq: u64,
    cursor: &str,
    complete: bool,
) -> Result<Receipt> {
    load.write(rows)?;
    let part = load.flush()?;
    load.commit(commit("t", vec![part], seq, Some(cursor), complete))
}

#[test]
fn a_writer_commits_again_and_again_and_the_cursor_moves_with_the_rows() {
    for method in ["copy", "insert"] {
        let database = database();
        let mut client = database.client();
        let mut to = open_with(
            &database.url(),
            json!({"schema": "raw", "load_method": method}),
        );
        let target = append_target("t");
        assert!(to.progress(&target, "p").unwrap().is_none());
        assert_eq!(
            one(&mut client, "SELECT to_regnamespace('_rapidbyte')"),
            "NULL"
        );
        let mut load = fence(&mut to, &target, run("r1")).unwrap();
        let let_in = load.progress();
        assert_eq!((let_in.epoch, let_in.seq, let_in.complete), (1, 0, false));
        load.open_writer(None).unwrap();
        let first = step(&mut load, &batch(&[1, 2]), 0, "{\"at\":2}", false).unwrap();
        assert_eq!(first.rows, 2);
        assert_eq!(ids(&mut client, "raw.t"), "1,2");
        assert_eq!(state(&mut client), "p t raw.t r1 1 1 {\"at\":2} f");
        // Nothing is held between two commits.
        let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'raw.t'::regclass";
        assert_eq!(one(&mut client, locks), "0");
        let second = step(&mut load, &batch(&[3]), 1, "{\"at\":3}", false).unwrap();
        assert!(second.rows == 1 && second.bytes < first.bytes, "{second:?}");
        assert_eq!(ids(&mut client, "raw.t"), "1,2,3");
        // Rows that are not committed are neither there nor in the cursor.
        load.write(&batch(&[4])).unwrap();
        let part = load.flush().unwrap();
        assert_eq!(state(&mut client), "p t raw.t r1 1 2 {\"at\":3} f");
        load.commit(commit("t", vec![part], 2, Some("4"), false))
            .unwrap();
        // The last part is empty.
        let part = load.flush().unwrap();
        assert_eq!(part.rows, 0);
        load.commit(commit("t", vec![part], 3, Some("5"), true))
            .unwrap();
        assert_eq!(state(&mut client), "p t raw.t r1 1 4 5 t");
        assert_eq!(ids(&mut client, "raw.t"), "1,2,3,4");
        assert!(load.write(&batch(&[6])).is_err(), "the last commit ends it");
        let found = to.progress(&target, "p").unwrap().unwrap();
        assert_eq!((found.seq, found.cursor.as_deref()), (4, Some("5")));
        assert!(to.progress(&target, "other").unwrap().is_none());
    }
}

#[test]
fn a_row_that_cannot_be_written_is_counted_from_the_first_of_the_load() {
    for method in ["copy", "insert"] {
        let database = database();
        let config = json!({"schema": "raw", "load_method": method});
        let mut to = open_with(&database.url(), config);
        let good = texts(&[("c", &[Some("a"), Some("b")])]);
        let target = target("t", &good.schema(), WriteMode::Append);
        let mut load = fence(&mut to, &target, run("r")).unwrap();
        load.open_writer(None).unwrap();
        step(&mut load, &good, 0, "1", false).unwrap();
        let bad = texts(&[("c", &[Some("c"), Some("d\0")])]);
        let error = load.write(&bad).unwrap_err();
        assert_eq!(error.code, "invalid_text");
        assert!(error.message.contains("row 4:"), "{error:?}");
    }
}

#[test]
fn a_run_that_begins_again_learns_whether_it_was_complete() {
    let database = database();
    let mut to = open(&database);
    let target = append_target("t");
    append(&mut to, "t", &batch(&[1])).unwrap();
    let mut fenced = |id| {
        let load = fence(&mut to, &target, run(id)).unwrap();
        load.progress().clone()
    };
    let again = fenced("r");
    assert_eq!((again.epoch, again.seq, again.complete), (2, 1, true));
    let other = fenced("r2");
    assert_eq!(
        (other.epoch, other.complete, other.run_id.as_str()),
        (3, false, "r2")
    );
    let late = fenced("r");
    assert!(!late.complete, "a newer run fenced in between");
}

/// The sessions of the destination, without the sessions of the test.
fn sessions(client: &mut Client) -> String {
    one(client, &sessions_that("true"))
}

#[test]
fn a_run_that_is_superseded_before_it_writes_says_so_at_once() {
    let database = database();
    let target = append_target("t");
    for is_there in [false, true] {
        let mut older = open(&database);
        older.plan(&target).unwrap();
        let mut load = fence(&mut older, &target, run("older")).unwrap();
        // Ends the session of the older run.
        write_to(&mut open(&database), &target, &[batch(&[1])]).unwrap();
        let error = load.open_writer(None).unwrap_err();
        assert_eq!(error.code, "run_superseded", "{is_there}: {error:?}");
        assert_eq!(error.stream.as_deref(), Some("t"));
    }
}

#[test]
fn of_two_runs_the_newer_continues_and_the_older_says_why_it_cannot() {
    let database = database();
    let mut client = database.client();
    let target = append_target("t");
    for older_has in ["nothing", "rows", "a part", "a commit"] {
        client
            .batch_execute("DROP SCHEMA IF EXISTS raw, _rapidbyte CASCADE; CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text)")
            .unwrap();
        let mut older = open(&database);
        let mut load = fence(&mut older, &target, run("older")).unwrap();
        load.open_writer(None).unwrap();
        let mut seq = 0;
        if older_has == "a commit" {
            step(&mut load, &batch(&[1]), 0, "1", false).unwrap();
            seq = 1;
        } else if older_has != "nothing" {
            load.write(&batch(&[1])).unwrap();
        }
        let part = (older_has == "a part").then(|| load.flush().unwrap());
        assert_eq!(sessions(&mut client), "1");
        // The newer run does not wait for the locks of the older run: it ends the older session.
        let mut newer = open(&database);
        let replacing = rapidbyte_sdk::Target {
            write_mode: WriteMode::Replace,
            ..target.clone()
        };
        let mut newer_load = fence(&mut newer, &replacing, run("newer")).unwrap();
        assert_eq!(sessions(&mut client), "1", "the older one's is ended");
        newer_load.open_writer(None).unwrap();
        newer_load.write(&batch(&[7])).unwrap();
        let error = match part {
            Some(part) => load
                .commit(commit("t", vec![part], seq, Some("9"), true))
                .map(drop),
            None => load
                .write(&batch(&[9]))
                .and_then(|()| load.flush())
                .map(drop),
        };
        let error = error.unwrap_err();
        assert_eq!(error.code, "run_superseded", "{older_has} {error:?}");
        assert_eq!(kind(&error), "Superseded");
        for told in ["newer run newer", "run older", "(epoch 2 after 1)"] {
            assert!(error.message.contains(told), "{error:?}");
        }
        let part = newer_load.flush().unwrap();
        newer_load
            .commit(commit("t", vec![part], seq, None, true))
            .unwrap();
        assert_eq!(ids(&mut client, "raw.t"), "7", "{older_has}");
        let expected = format!("p t raw.t newer 2 {} - t", seq + 1);
        assert_eq!(state(&mut client), expected);
    }
}

#[test]
fn a_commit_whose_epoch_is_older_rolls_its_rows_back_even_if_its_session_lives() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target = append_target("t");
    let mut load = fence(&mut to, &target, run("r1")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(&[1])).unwrap();
    let part = load.flush().unwrap();
    // As behind a pooler, where nobody can be ended.
    client
        .batch_execute("UPDATE _rapidbyte.checkpoint SET epoch = epoch + 1, run_id = 'r2'")
        .unwrap();
    let error = load
        .commit(commit("t", vec![part], 0, Some("1"), false))
        .unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    assert!(error.message.contains("the newer run r2"), "{error:?}");
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
    assert_eq!(state(&mut client), "p t raw.t r2 2 0 - f");
    // A number that is not the stream's is nobody's fault but ours.
    let mut load = fence(&mut to, &target, run("r3")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(&[1])).unwrap();
    let part = load.flush().unwrap();
    let error = load
        .commit(commit("t", vec![part], 5, None, true))
        .unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("internal", "Internal".into())
    );
    // An edited number and a deleted row do not mean a newer run.
    for (sql, how) in [
        (
            "UPDATE _rapidbyte.checkpoint SET seq = 9",
            "set its seq to 9, which was 0",
        ),
        (
            "UPDATE _rapidbyte.checkpoint SET epoch = 1, seq = 0",
            "set its epoch to 1",
        ),
        ("DELETE FROM _rapidbyte.checkpoint", "somebody deleted it"),
    ] {
        client
            .batch_execute("UPDATE _rapidbyte.checkpoint SET seq = 0")
            .unwrap();
        let mut load = fence(&mut to, &target, run("r4")).unwrap();
        load.open_writer(None).unwrap();
        client.batch_execute(sql).unwrap();
        let error = load.commit(commit("t", vec![], 0, None, true)).unwrap_err();
        assert_eq!(error.code, "checkpoint_changed", "{sql}: {error:?}");
        assert!(error.message.contains(how), "{sql}: {error:?}");
        assert!(!error.hint.unwrap().contains("newer"), "{sql}");
    }
}

#[test]
fn a_commit_without_a_writer_moves_the_cursor_alone() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target = append_target("t");
    let mut load = fence(&mut to, &target, run("set")).unwrap();
    let receipt = load
        .commit(commit("t", vec![], 0, Some("'\\ \u{e9}"), true))
        .unwrap();
    assert_eq!((receipt.rows, receipt.location.as_str()), (0, "raw.t"));
    assert_eq!(state(&mut client), "p t raw.t set 1 1 '\\ \u{e9} t");
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
    // No run resumes behind missing rows.
    let mut load = fence(&mut to, &target, run("next")).unwrap();
    let cursor = load.progress().cursor.clone();
    assert_eq!(cursor.as_deref(), Some("'\\ \u{e9}"));
    let error = load.open_writer(cursor.as_deref()).unwrap_err();
    assert_eq!(error.code, "target_missing", "{error:?}");
    assert!(error.hint.unwrap().contains("--full-refresh"));
    let mut load = fence(&mut to, &target, run("clear")).unwrap();
    load.commit(commit("t", vec![], load.progress().seq, None, true))
        .unwrap();
    assert_eq!(state(&mut client), "p t raw.t clear 3 2 - t");
    assert_eq!(
        load.commit(commit("t", vec![], 2, None, true))
            .unwrap_err()
            .code,
        "internal"
    );
    // Twice by one fence.
    let mut load = fence(&mut to, &target, run("twice")).unwrap();
    load.commit(commit("t", vec![], 2, Some("1"), false))
        .unwrap();
    load.commit(commit("t", vec![], 3, Some("2"), true))
        .unwrap();
    assert_eq!(state(&mut client), "p t raw.t twice 4 4 2 t");
}

fn lost(to: &mut Session, target: &Target) -> Option<String> {
    to.progress(target, "p").unwrap().unwrap().lost_rows
}

#[test]
fn a_table_that_was_emptied_or_made_again_has_lost_its_rows() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target = append_target("t");
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    let take_as_it_is = |to: &mut Session, cursor| {
        let mut load = fence(to, &target, run("state")).unwrap();
        let seq = load.progress().seq;
        load.commit(commit("t", vec![], seq, Some(cursor), false))
            .unwrap();
    };
    // A table without rows so far is as it should be.
    load.commit(commit("t", vec![], 0, Some("1"), false))
        .unwrap();
    assert_eq!(lost(&mut to, &target), None);
    step(&mut load, &batch(&[1]), 1, "2", true).unwrap();
    assert_eq!(lost(&mut to, &target), None);
    client.batch_execute("DELETE FROM raw.t").unwrap();
    assert_eq!(lost(&mut to, &target).unwrap(), "raw.t was emptied");
    // All rows of an upsert may have been deleted at the source.
    let mut deletes = target.clone();
    deletes.deleted_field = Some("gone".into());
    assert_eq!(lost(&mut to, &deletes), None);
    // An operator takes it as it is.
    take_as_it_is(&mut to, "2");
    assert_eq!(lost(&mut to, &target), None);
    let mut load = fence(&mut to, &target, run("next")).unwrap();
    load.open_writer(Some("2")).unwrap();
    step(&mut load, &batch(&[3]), 3, "3", true).unwrap();
    let again = "CREATE TABLE other (LIKE raw.t); INSERT INTO other VALUES (1); DROP TABLE raw.t;
        ALTER TABLE other RENAME TO t; ALTER TABLE t SET SCHEMA raw";
    client.batch_execute(again).unwrap();
    assert_eq!(
        lost(&mut to, &target).unwrap(),
        "raw.t was dropped and created again"
    );
    // Nobody else's lock is waited for long, and what cannot be seen is not called lost.
    take_as_it_is(&mut to, "3");
    let mut load = fence(&mut to, &target, run("last")).unwrap();
    load.open_writer(Some("3")).unwrap();
    step(&mut load, &batch(&[4]), 5, "4", true).unwrap();
    let mut holder = client.transaction().unwrap();
    holder.batch_execute("TRUNCATE raw.t").unwrap();
    assert_eq!(lost(&mut to, &target), None);
    holder.commit().unwrap();
    assert_eq!(lost(&mut to, &target).unwrap(), "raw.t was emptied");
}

#[test]
fn after_an_operator_put_a_cursor_its_loss_and_that_of_rows_are_noticed() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let mut target = append_target("t");
    target.is_incremental = true;
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    step(&mut load, &batch(&[1]), 0, "1", true).unwrap();
    let put = |to: &mut Session, cursor| {
        let mut load = fence(to, &target, run("state")).unwrap();
        let seq = load.progress().seq;
        load.commit(commit("t", vec![], seq, cursor, false))
            .unwrap();
    };
    put(&mut to, Some("1"));
    assert_eq!(lost(&mut to, &target), None);
    let edit = "UPDATE _rapidbyte.checkpoint SET cursor = NULL";
    client.batch_execute(edit).unwrap();
    let error = to.progress(&target, "p").unwrap_err();
    assert_eq!(error.code, "cursor_missing", "{error:?}");
    put(&mut to, Some("1"));
    client.batch_execute("TRUNCATE raw.t").unwrap();
    assert_eq!(lost(&mut to, &target).unwrap(), "raw.t was emptied");
    // That is what the operator takes then.
    put(&mut to, Some("1"));
    assert_eq!(lost(&mut to, &target), None);
    // An operator who removes the cursor wants all rows again, after the rows in the table.
    client
        .batch_execute("INSERT INTO raw.t VALUES (1)")
        .unwrap();
    put(&mut to, None);
    let found = to.progress(&target, "p").unwrap().unwrap();
    assert_eq!(found.cursor, None);
}

#[test]
fn rows_that_the_role_does_not_see_are_not_taken_for_none() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    append(&mut to, "t", &batch(&[1])).unwrap();
    execute(
        &mut client,
        "CREATE ROLE hidden_1 LOGIN PASSWORD 'w'; CREATE TABLE raw.parts (id int8, t text) PARTITION BY RANGE (id);
         CREATE TABLE raw.part PARTITION OF raw.parts DEFAULT; INSERT INTO raw.parts VALUES (1);
         CREATE TABLE raw.fresh (LIKE raw.t); GRANT USAGE ON SCHEMA raw TO hidden_1;
         GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA raw TO hidden_1;
         CREATE TABLE raw.closed (id int8, t text); GRANT INSERT ON raw.closed TO hidden_1; INSERT INTO raw.closed VALUES (1);
         ALTER TABLE raw.t ENABLE ROW LEVEL SECURITY; ALTER TABLE raw.parts ENABLE ROW LEVEL SECURITY;
         ALTER TABLE raw.fresh ENABLE ROW LEVEL SECURITY",
    );
    may_checkpoint(&mut client, "hidden_1");
    execute(&mut client, "DELETE FROM _rapidbyte.checkpoint");
    let url = database.url_of("hidden_1", "w");
    let mut hidden = open_with(&url, json!({"schema": "raw"}));
    let keeping = |stream: &str| Target {
        is_incremental: true,
        ..append_target(stream)
    };
    for (stream, says, helps) in [
        ("t", "row-level security hides", "BYPASSRLS"),
        ("parts", "row-level security hides", "BYPASSRLS"),
        (
            "closed",
            "may not read",
            "GRANT SELECT ON raw.closed TO hidden_1",
        ),
    ] {
        let error = hidden.progress(&keeping(stream), "p").unwrap_err();
        assert_eq!(error.code, "cursor_missing", "{error:?}");
        assert!(error.message.contains(says), "{error:?}");
        let hint = error.hint.unwrap();
        assert!(
            hint.contains(helps) && hint.contains("state clear"),
            "{hint}"
        );
        // That an operator wants all rows again is known.
        let mut load = fence(&mut hidden, &keeping(stream), run("state")).unwrap();
        let seq = load.progress().seq;
        load.commit(commit(stream, vec![], seq, None, false))
            .unwrap();
        assert!(hidden.progress(&keeping(stream), "p").unwrap().is_some());
    }
    // A table without a page is empty.
    let fresh = hidden.progress(&keeping("fresh"), "p").unwrap();
    assert!(fresh.is_none(), "{fresh:?}");
    // A GRANT does not help where a policy refuses the row.
    let error = append(&mut hidden, "t", &batch(&[2])).unwrap_err();
    assert_eq!(error.code, "pg_42501", "{error:?}");
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("CREATE POLICY") && hint.contains("no GRANT"),
        "{hint}"
    );
    drop(hidden);
    execute(&mut client, "DROP OWNED BY hidden_1; DROP ROLE hidden_1");
}

#[test]
fn a_column_that_the_table_of_checkpoints_lost_is_reported_with_the_statement_that_adds_it() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target = Target {
        is_incremental: true,
        ..append_target("t")
    };
    append(&mut to, "t", &batch(&[1])).unwrap();
    let columns = client
        .query(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '_rapidbyte.checkpoint'::regclass AND attnum > 0",
            &[],
        )
        .unwrap();
    let columns: Vec<String> = columns.iter().map(|row| row.get(0)).collect();
    assert!(columns.len() > 10, "{columns:?}");
    execute(
        &mut client,
        "UPDATE _rapidbyte.checkpoint SET cursor = '1'; CREATE TABLE kept AS TABLE _rapidbyte.checkpoint",
    );
    for column in &columns {
        execute(
            &mut client,
            &format!("ALTER TABLE _rapidbyte.checkpoint DROP COLUMN {column}"),
        );
        let is_of_key = ["pipeline", "stream", "target"].contains(&column.as_str());
        let mut to = open(&database);
        let asked = [
            to.working("p").map(drop),
            to.progress(&target, "p").map(drop),
            fence(&mut to, &target, run("r2")).map(drop),
        ];
        let mut statement = None;
        for error in asked.into_iter().filter_map(Result::err) {
            assert_eq!(
                error.code, "checkpoint_table_differs",
                "{column}: {error:?}"
            );
            let hint = error.hint.unwrap();
            let (_, rest) = hint.split_once("ALTER TABLE").unwrap();
            let (sql, _) = rest.split_once(';').unwrap();
            statement = Some(format!("ALTER TABLE{sql}"));
        }
        // A run adds these itself.
        let is_added = ["target_oid", "origins"].contains(&column.as_str());
        assert_eq!(statement.is_none(), is_added, "{column}");
        if !is_of_key && let Some(statement) = statement {
            execute(&mut client, &statement);
            to.working("p").unwrap();
            match to.progress(&target, "p") {
                Err(error) => assert_eq!(
                    (error.code.as_str(), column.as_str()),
                    ("cursor_missing", "cursor")
                ),
                found => assert!(found.unwrap().is_some()),
            }
            fence(&mut to, &target, run("r3")).unwrap();
        }
        execute(
            &mut client,
            "DROP TABLE _rapidbyte.checkpoint; CREATE TABLE _rapidbyte.checkpoint (LIKE kept);
             ALTER TABLE _rapidbyte.checkpoint ADD PRIMARY KEY (pipeline, stream, target);
             INSERT INTO _rapidbyte.checkpoint TABLE kept",
        );
    }
}

#[test]
fn an_older_table_of_checkpoints_learns_which_table_took_the_rows() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    append(&mut to, "t", &batch(&[1])).unwrap();
    let old = "ALTER TABLE _rapidbyte.checkpoint DROP COLUMN target_oid, DROP COLUMN origins";
    client.batch_execute(old).unwrap();
    let target = append_target("t");
    let rows = |to: &mut Session, run_id: &str| {
        let mut load = fence(to, &target, run(run_id)).unwrap();
        let let_in = load.progress().clone();
        load.open_writer(let_in.cursor.as_deref()).unwrap();
        step(&mut load, &batch(&[2]), let_in.seq, "2", true).unwrap();
    };
    let known = "SELECT count(target_oid) FROM _rapidbyte.checkpoint";
    rows(&mut to, "r1");
    assert_eq!(one(&mut client, known), "1");
    // A role that may not alter it commits all the same.
    client.batch_execute(old).unwrap();
    let role = "CREATE ROLE guest_of_older_checkpoints LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA raw, _rapidbyte \
        TO guest_of_older_checkpoints; GRANT SELECT, INSERT ON raw.t TO guest_of_older_checkpoints; \
        GRANT SELECT, INSERT, UPDATE ON _rapidbyte.checkpoint TO guest_of_older_checkpoints";
    client.batch_execute(role).unwrap();
    let url = database.url_of("guest_of_older_checkpoints", "w");
    let mut guest = open_with(&url, json!({"schema": "raw"}));
    rows(&mut guest, "r2");
    client.batch_execute("DELETE FROM raw.t").unwrap();
    assert_eq!(lost(&mut guest, &target), None);
}

#[test]
fn a_table_that_vanishes_between_two_commits_is_not_made_again() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target = append_target("t");
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    step(&mut load, &batch(&[1]), 0, "1", false).unwrap();
    client.batch_execute("DROP TABLE raw.t").unwrap();
    let error = load.write(&batch(&[2])).unwrap_err();
    assert_eq!(error.code, "target_missing", "{error:?}");
    assert_eq!(state(&mut client), "p t raw.t r 1 1 1 f");
}

#[test]
fn replace_has_one_commit() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    append(&mut to, "t", &batch(&[1])).unwrap();
    let target = target("t", &batch(&[1]).schema(), WriteMode::Replace);
    let mut load = fence(&mut to, &target, run("r2")).unwrap();
    let seq = load.progress().seq;
    load.open_writer(None).unwrap();
    let error = step(&mut load, &batch(&[2]), seq, "2", false).unwrap_err();
    assert_eq!(error.code, "internal");
    assert_eq!(ids(&mut client, "raw.t"), "1");
}

#[test]
fn names_of_every_kind_are_kept_apart() {
    let database = database();
    let mut client = database.client();
    let schema = "che\"ck's \\ é;";
    let mut to = open_with(&database.url(), json!({"checkpoint_schema": schema}));
    for (pipeline, stream) in [
        ("o'r\\", "s.a\"b'c"),
        ("o'r", "s.a\"b'c"),
        ("o'r\\", "s.A\"b'c"),
    ] {
        let target = append_target(stream);
        let run = Run {
            pipeline: pipeline.into(),
            id: "i\\d'".into(),
        };
        let mut load = fence(&mut to, &target, run).unwrap();
        assert_eq!(load.progress().epoch, 1, "{pipeline} {stream}");
        load.open_writer(None).unwrap();
        load.write(&batch(&[1])).unwrap();
        let part = load.flush().unwrap();
        load.commit(commit(
            stream,
            vec![part],
            0,
            Some("{\"a\":\"\\u0000\"}"),
            true,
        ))
        .unwrap();
        let found = to.progress(&target, pipeline).unwrap().unwrap();
        assert_eq!(found.run_id, "i\\d'");
        assert_eq!(found.cursor.as_deref(), Some("{\"a\":\"\\u0000\"}"));
    }
    let sql = "SELECT count(*) FROM \"che\"\"ck's \\ é;\".checkpoint";
    assert_eq!(one(&mut client, sql), "3");
}

#[test]
fn runs_that_make_the_table_at_once_all_succeed() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text)")
        .unwrap();
    let mut holder = database.client();
    holder
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(hashtext('rapidbyte.checkpoint'))")
        .unwrap();
    let load = |pipeline: &'static str| {
        let url = database.url();
        thread::spawn(move || {
            let mut to = open_with(&url, json!({"schema": "raw"}));
            let target = append_target("t");
            let run = Run {
                pipeline: pipeline.into(),
                id: "r".into(),
            };
            fence(&mut to, &target, run).map(|load| load.progress().epoch)
        })
    };
    let loads = [load("a"), load("b"), load("c")];
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity USING (pid) WHERE NOT granted AND locktype = 'advisory' AND datname = current_database()";
    while one(&mut client, waiting) != "3" {
        assert!(loads.iter().all(|load| !load.is_finished()), "all wait");
    }
    holder.batch_execute("COMMIT").unwrap();
    for load in loads {
        assert_eq!(load.join().unwrap().unwrap(), 1);
    }
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM _rapidbyte.checkpoint"),
        "3"
    );
}

#[test]
fn a_role_that_may_not_keep_checkpoints_gets_the_statement_before_anything_moves() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); \
             CREATE ROLE \"Check-er\" LOGIN PASSWORD 'w'; GRANT ALL ON SCHEMA raw TO \"Check-er\"; \
             GRANT ALL ON raw.t TO \"Check-er\"",
        )
        .unwrap();
    let url = database.url_of("Check-er", "w");
    let target = append_target("t");
    for there in ["", "CREATE SCHEMA _rapidbyte", "TABLE"] {
        match there {
            "TABLE" => {
                let mut to = open_with(&database.url(), json!({}));
                drop(fence(&mut to, &target, run("r")).unwrap());
            }
            sql => client.batch_execute(sql).unwrap(),
        }
        let mut to = open_with(&url, json!({"schema": "raw"}));
        let errors = [
            to.plan(&target).unwrap_err(),
            fence(&mut to, &target, run("r")).err().unwrap(),
        ];
        for error in errors {
            assert_eq!(error.code, "checkpoint_not_allowed", "{error:?}");
            assert_eq!(
                (kind(&error), error.stream.as_deref()),
                ("Auth".into(), Some("t"))
            );
            let hint = error.hint.unwrap();
            // A script of whole statements, one a line.
            let mut statements = hint.lines().skip(1);
            assert!(statements.all(|line| line.ends_with(';')), "{hint}");
        }
    }
    // The statements of the hint work.
    let mut to = open_with(&url, json!({"schema": "raw"}));
    let hint = to.plan(&target).unwrap_err().hint.unwrap();
    client
        .batch_execute("DROP SCHEMA _rapidbyte CASCADE")
        .unwrap();
    client
        .batch_execute(hint.split_once(":\n").unwrap().1)
        .unwrap();
    append(&mut to, "t", &batch(&[1])).unwrap();
    // Another table of that name is left alone.
    client
        .batch_execute("CREATE SCHEMA mine; CREATE TABLE mine.checkpoint (a int); GRANT ALL ON SCHEMA mine TO PUBLIC; GRANT ALL ON mine.checkpoint TO PUBLIC")
        .unwrap();
    let mut to = open_with(&url, json!({"schema": "raw", "checkpoint_schema": "mine"}));
    let error = fence(&mut to, &target, run("r")).err().unwrap();
    assert_eq!(error.code, "checkpoint_table_differs", "{error:?}");
    drop(to);
    client
        .batch_execute("DROP OWNED BY \"Check-er\"; DROP ROLE \"Check-er\"")
        .unwrap();
}

#[test]
fn every_point_is_reached_somewhere_and_listed() {
    let mut reached = Vec::new();
    let directories = ["/src", "/src/rows"].map(|below| {
        let path = format!("{}{below}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(path).unwrap()
    });
    let files = directories.into_iter().flatten();
    let files = files.map(|file| file.unwrap().path());
    for file in files.filter(|file| file.is_file()) {
        let text = std::fs::read_to_string(file).unwrap();
        let calls = text.split("point(\"").skip(1);
        reached.extend(calls.map(|call| call.split('"').next().unwrap().to_owned()));
    }
    reached.sort();
    reached.dedup();
    let mut listed: Vec<String> = dest_postgres::POINTS.map(str::to_owned).to_vec();
    listed.sort();
    assert_eq!(reached, listed);
}
