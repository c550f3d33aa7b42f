//! Compares the keys of the source with a table of a real server. Rows without a key at the source are deleted or
//! marked.

use crate::common::*;
use rapidbyte_sdk::prelude::arrow_array::RecordBatch;
use rapidbyte_sdk::prelude::{Error, Receipt, Result, Run, Target, WriteMode};
use rapidbyte_sdk::{Commit, DeleteAction, Deletes, DroppedColumn, SchemaChanges};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

const ALL: u32 = 1_000_000;
const TABLE: &str = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text); \
    INSERT INTO raw.t SELECT i, 'old' FROM generate_series(1, 10) i";
const MARKS: &str = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text, gone MARK); \
    INSERT INTO raw.t SELECT i, 'old' FROM generate_series(1, 10) i";

fn target_of(batch: &RecordBatch, key: &[&str], action: DeleteAction, max_share: u32) -> Target {
    Target {
        primary_key: key.iter().map(|column| (*column).into()).collect(),
        deletes: Some(Deletes { action, max_share }),
        ..target("t", &batch.schema(), WriteMode::Upsert)
    }
}

fn deleting(max_share: u32) -> Target {
    target_of(&batch(&[]), &["id"], DeleteAction::Delete, max_share)
}

fn marking() -> Target {
    target_of(&batch(&[]), &["id"], DeleteAction::Mark("gone".into()), ALL)
}

/// As the engine does it: plan, fence, rows, keys, one commit.
fn load(
    to: &mut Session,
    target: &Target,
    run: Run,
    rows: &RecordBatch,
    keys: &[RecordBatch],
) -> Result<Receipt> {
    to.plan(target)?;
    to.progress(target, &run.pipeline)?;
    let mut load = fence(to, target, run)?;
    load.open_writer(None)?;
    load.write(rows)?;
    let part = load.flush()?;
    load.open_keys()?;
    for batch in keys {
        load.write_keys(batch)?;
    }
    let keys_part = load.flush_keys()?;
    assert_eq!(
        keys_part.rows,
        keys.iter().map(|keys| keys.num_rows() as u64).sum::<u64>()
    );
    let seq = load.progress().seq;
    load.commit(whole("t", vec![part], seq))
}

/// The keys alone, in the form of [`batch`].
fn keys(ids: &[i64]) -> RecordBatch {
    batch(ids).project(&[0]).unwrap()
}

fn compare(to: &mut Session, target: &Target, rows: &[i64], ids: &[i64]) -> Result<Receipt> {
    load(to, target, run("r"), &batch(rows), &[keys(ids)])
}

fn refused(ended: Result<Receipt>, code: &str) -> Error {
    let error = ended.unwrap_err();
    assert_eq!(error.code, code, "{error:?}");
    error
}

fn marked(client: &mut Client, is: &str) -> String {
    one(
        client,
        &format!(
            "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM raw.t WHERE gone {is}"
        ),
    )
}

#[test]
fn rows_whose_keys_did_not_come_go_in_the_commit_of_the_rows() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    let mut to = open(&database);
    let target = deleting(ALL);
    let receipt = compare(&mut to, &target, &[1, 11], &[1, 2, 3, 4, 4, 5, 11]).unwrap();
    assert_eq!((receipt.rows, receipt.deleted), (2, 5));
    assert_eq!(ids(&mut client, "raw.t"), "1,2,3,4,5,11");
    // Keys after a commit of rows, without a row since.
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    let seq = load.progress().seq;
    load.open_writer(None).unwrap();
    load.write(&batch(&[12])).unwrap();
    let part = load.flush().unwrap();
    let commit = |parts, seq, complete| Commit {
        stream: "t",
        parts,
        seq,
        cursor: Some("1"),
        complete,
    };
    load.commit(commit(vec![part], seq, false)).unwrap();
    let part = load.flush().unwrap();
    load.open_keys().unwrap();
    load.write_keys(&keys(&[1])).unwrap();
    load.write_keys(&keys(&[12])).unwrap();
    load.flush_keys().unwrap();
    let receipt = load.commit(commit(vec![part], seq + 1, true)).unwrap();
    assert_eq!((receipt.rows, receipt.deleted), (0, 5));
    assert_eq!(ids(&mut client, "raw.t"), "1,12");
    let staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rapidbyte%'";
    assert_eq!(one(&mut client, staged), "0");
}

#[test]
fn a_share_of_the_rows_may_go_and_no_row_more() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    let mut to = open(&database);
    // A quarter of the 10 rows, rounded up.
    let target = deleting(250_000);
    let error = refused(
        compare(&mut to, &target, &[1], &[1, 2, 3, 4, 5, 6]),
        "mass_delete",
    );
    assert!(error.message.contains("4 of the 10 rows"), "{error:?}");
    assert!(error.message.contains("25 %, which is 3 rows"), "{error:?}");
    assert_eq!(one(&mut client, "SELECT t FROM raw.t WHERE id = 1"), "old");
    let receipt = compare(&mut to, &target, &[1], &[1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(receipt.deleted, 3);
    // No key at all, and one row that might go.
    execute(&mut client, "DELETE FROM raw.t WHERE id > 1");
    let error = refused(
        compare(&mut to, &deleting(ALL - 1), &[], &[]),
        "mass_delete",
    );
    assert!(error.message.contains("no row of the stream"), "{error:?}");
    assert_eq!(
        compare(&mut to, &deleting(0), &[], &[1, 9])
            .unwrap()
            .deleted,
        0
    );
    assert_eq!(
        compare(&mut to, &deleting(ALL), &[], &[]).unwrap().deleted,
        1
    );
    // The table is empty now, and an empty source takes nothing away.
    assert_eq!(compare(&mut to, &deleting(0), &[], &[]).unwrap().deleted, 0);
}

#[test]
fn rows_are_marked_once_and_lose_the_mark_with_their_key() {
    for (mark, is, is_not) in [
        ("timestamptz", "IS NOT NULL", "IS NULL"),
        ("timestamp", "IS NOT NULL", "IS NULL"),
        ("boolean", "IS TRUE", "IS NOT TRUE"),
        ("boolean NOT NULL DEFAULT false", "IS TRUE", "IS NOT TRUE"),
    ] {
        let database = database();
        let mut client = database.client();
        execute(&mut client, &MARKS.replace("MARK", mark));
        let mut to = open(&database);
        let mut target = marking();
        // The run itself fills the column.
        target.schema_changes = SchemaChanges {
            dropped_column: DroppedColumn::Fail,
            ..target.schema_changes
        };
        let receipt = compare(&mut to, &target, &[1, 11], &[1, 2, 11]).unwrap();
        assert_eq!(receipt.deleted, 8, "{mark}");
        assert_eq!(marked(&mut client, is), "3,4,5,6,7,8,9,10", "{mark}");
        // 3 comes back with its row, 4 with its key alone.
        let receipt = compare(&mut to, &target, &[3], &[1, 3, 4, 11]).unwrap();
        assert_eq!(receipt.deleted, 1, "{mark}");
        assert_eq!(marked(&mut client, is), "2,5,6,7,8,9,10", "{mark}");
        assert_eq!(marked(&mut client, is_not), "1,3,4,11", "{mark}");
        // The share is of the rows that are not marked: one of four.
        target.deletes = Some(Deletes {
            action: DeleteAction::Mark("gone".into()),
            max_share: 250_000,
        });
        assert_eq!(
            compare(&mut to, &target, &[], &[1, 3, 4]).unwrap().deleted,
            1
        );
        let error = refused(compare(&mut to, &target, &[], &[4]), "mass_delete");
        assert!(error.message.contains("2 of the 3 rows"), "{error:?}");
    }
    let database = database();
    let mut to = open(&database);
    let plan = to.plan(&marking()).unwrap();
    let add = "ALTER TABLE raw.t ADD COLUMN gone timestamp with time zone";
    assert!(plan.statements.iter().any(|one| one == add), "{plan:?}");
}

#[test]
fn a_column_that_cannot_hold_a_mark_is_refused_by_the_plan() {
    for (column, text, hint) in [
        (
            "other int",
            "no column gone",
            "ADD COLUMN gone timestamp with time zone",
        ),
        (
            "gone text",
            "gone of type text cannot hold a mark",
            "name a column of type",
        ),
        (
            "gone timestamptz NOT NULL DEFAULT now()",
            "gone is NOT NULL",
            "DROP NOT NULL",
        ),
        (
            "gone boolean GENERATED ALWAYS AS (true) STORED",
            "cannot hold a mark",
            "does not compute",
        ),
    ] {
        let database = database();
        let mut client = database.client();
        execute(
            &mut client,
            &format!(
                "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text, {column})"
            ),
        );
        let error = open(&database).plan(&marking()).unwrap_err();
        assert_eq!(error.code, "deletes_not_possible", "{error:?}");
        assert!(error.message.contains(text), "{error:?}");
        assert!(error.hint.clone().unwrap().contains(hint), "{error:?}");
    }
}

#[test]
fn keys_are_compared_as_the_target_compares_them() {
    for (table, stored, there, deleted) in [
        // Texts of the stream that the server reads.
        (
            "a uuid, b numeric",
            "('0000000A-0000-0000-0000-000000000000', 1.0)",
            ("0000000a-0000-0000-0000-000000000000", "1.00"),
            1,
        ),
        (
            "a text COLLATE \"C\", b int",
            "('x', 1), ('X', 1)",
            ("x", "1"),
            2,
        ),
        (
            "a text COLLATE ci, b int",
            "('x', 1), ('y', 1)",
            ("X", "1"),
            2,
        ),
        (
            "a char(5), b date",
            "('x', '2026-01-01')",
            ("x", "2026-01-01"),
            1,
        ),
    ] {
        let database = database();
        let mut client = database.client();
        let first = match table.starts_with("a uuid") {
            true => "'0000000b-0000-0000-0000-000000000000'",
            false => "'z'",
        };
        let last = if table.contains("date") {
            "'2026-01-01'"
        } else {
            "1"
        };
        execute(
            &mut client,
            &format!(
                "CREATE SCHEMA raw; CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
                 CREATE TABLE raw.t ({table}, c text, PRIMARY KEY (b, a)); INSERT INTO raw.t VALUES {stored}, ({first}, {last})"
            ),
        );
        let mut to = open(&database);
        let rows = texts(&[("c", &[]), ("a", &[]), ("b", &[])]);
        let there = texts(&[("a", &[Some(there.0)]), ("b", &[Some(there.1)])]);
        let target = target_of(&rows, &["a", "b"], DeleteAction::Delete, ALL);
        let receipt = load(&mut to, &target, run("r"), &rows, &[there]).unwrap();
        assert_eq!(receipt.deleted, deleted, "{table}");
        assert_eq!(
            one(&mut client, "SELECT count(*) FROM raw.t"),
            "1",
            "{table}"
        );
    }
}

#[test]
fn a_null_in_a_key_keeps_the_row_of_the_table_and_refuses_the_source() {
    let database = database();
    let mut client = database.client();
    execute(
        &mut client,
        "CREATE SCHEMA raw; CREATE TABLE raw.t (a text, b text, UNIQUE (a, b)); \
         INSERT INTO raw.t VALUES ('x', 'y'), ('x', NULL), (NULL, NULL), ('z', 'z')",
    );
    let mut to = open(&database);
    let rows = texts(&[("a", &[]), ("b", &[])]);
    // One of the four rows: those with NULL do not count as gone.
    let target = target_of(&rows, &["a", "b"], DeleteAction::Delete, 250_000);
    let there = texts(&[("a", &[Some("x")]), ("b", &[Some("y")])]);
    let receipt = load(
        &mut to,
        &target,
        run("r"),
        &rows,
        std::slice::from_ref(&there),
    )
    .unwrap();
    assert_eq!(receipt.deleted, 1);
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "3");
    let null = texts(&[("a", &[Some("x")]), ("b", &[None])]);
    let mut loading = begin(&mut to, &target).unwrap();
    loading.flush().unwrap();
    loading.open_keys().unwrap();
    let error = loading.write_keys(&null).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("null_key", Some("b")),
        "{error:?}"
    );
}

#[test]
fn a_trigger_that_keeps_rows_is_noticed_and_nothing_is_committed() {
    for (target, table, event) in [
        (deleting(ALL), TABLE.to_owned(), "DELETE"),
        (marking(), MARKS.replace("MARK", "timestamptz"), "UPDATE"),
    ] {
        let database = database();
        let mut client = database.client();
        execute(&mut client, &table);
        execute(
            &mut client,
            &format!(
                "CREATE FUNCTION raw.keep() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN IF OLD.id = 5 AND TG_OP = ''DELETE'' THEN RETURN NULL; END IF; RETURN OLD; END'; \
                 CREATE TRIGGER keep BEFORE {event} ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.keep()"
            ),
        );
        let mut to = open(&database);
        if event == "DELETE" {
            refused(compare(&mut to, &target, &[11], &[1, 11]), "rows_kept");
            assert_eq!(ids(&mut client, "raw.t"), "1,2,3,4,5,6,7,8,9,10");
        } else {
            // The trigger takes each mark away.
            refused(compare(&mut to, &target, &[11], &[1, 11]), "rows_kept");
            assert_eq!(marked(&mut client, "IS NOT NULL"), "");
        }
    }
}

#[test]
fn foreign_keys_refuse_or_cascade_and_the_plan_says_so() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    execute(
        &mut client,
        "CREATE TABLE raw.line (t int8 REFERENCES raw.t); INSERT INTO raw.line VALUES (7)",
    );
    let mut to = open(&database);
    let target = deleting(ALL);
    let error = refused(compare(&mut to, &target, &[], &[1, 2]), "pg_23503");
    assert!(error.hint.unwrap().contains("ON DELETE CASCADE"));
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "10");
    execute(
        &mut client,
        "ALTER TABLE raw.line DROP CONSTRAINT line_t_fkey, \
         ADD CONSTRAINT follows FOREIGN KEY (t) REFERENCES raw.t ON DELETE CASCADE",
    );
    let notes = to.plan(&target).unwrap().notes.join("; ");
    assert!(notes.contains("follows"), "{notes}");
    assert_eq!(compare(&mut to, &target, &[], &[1, 2]).unwrap().deleted, 8);
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.line"), "0");
}

#[test]
fn rows_of_all_partitions_are_compared() {
    let database = database();
    let mut client = database.client();
    execute(
        &mut client,
        "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text) PARTITION BY RANGE (id); \
         CREATE TABLE raw.a PARTITION OF raw.t FOR VALUES FROM (1) TO (6); \
         CREATE TABLE raw.b PARTITION OF raw.t FOR VALUES FROM (6) TO (99); \
         INSERT INTO raw.t SELECT i FROM generate_series(1, 10) i",
    );
    let mut to = open(&database);
    let receipt = compare(&mut to, &deleting(ALL), &[11], &[2, 7, 11]).unwrap();
    assert_eq!(receipt.deleted, 8);
    assert_eq!(ids(&mut client, "raw.t"), "2,7,11");
}

#[test]
fn a_table_with_rules_or_hidden_rows_is_refused() {
    for (change, text) in [
        (
            "CREATE RULE keep AS ON DELETE TO raw.t DO INSTEAD NOTHING",
            "it has rules",
        ),
        (
            "ALTER TABLE raw.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "row-level security",
        ),
    ] {
        let database = database();
        let mut client = database.client();
        execute(&mut client, TABLE);
        execute(&mut client, change);
        execute(
            &mut client,
            "DO 'BEGIN CREATE ROLE sees_less LOGIN PASSWORD ''x''; EXCEPTION WHEN duplicate_object THEN NULL; END'",
        );
        execute(
            &mut client,
            "GRANT ALL ON SCHEMA raw TO sees_less; GRANT ALL ON raw.t TO sees_less",
        );
        let config = json!({"schema": "raw"});
        let mut to = open_with(&database.url_of("sees_less", "x"), config);
        let error = to.plan(&deleting(ALL)).unwrap_err();
        assert_eq!(error.code, "upsert_not_possible", "{error:?}");
        assert!(error.message.contains(text), "{error:?}");
    }
}

#[test]
fn missing_privileges_are_named_before_a_row_moves() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, &MARKS.replace("MARK", "timestamptz"));
    execute(
        &mut client,
        "DO 'BEGIN CREATE ROLE may_not_delete LOGIN PASSWORD ''x''; EXCEPTION WHEN duplicate_object THEN NULL; END'; \
         GRANT USAGE ON SCHEMA raw TO may_not_delete; GRANT SELECT, INSERT ON raw.t TO may_not_delete; \
         GRANT UPDATE (id, t) ON raw.t TO may_not_delete",
    );
    may_checkpoint(&mut client, "may_not_delete");
    let mut to = open_with(
        &database.url_of("may_not_delete", "x"),
        json!({"schema": "raw"}),
    );
    let plain = Target {
        deletes: None,
        repairs: None,
        stages: false,
        ..deleting(ALL)
    };
    to.plan(&plain).unwrap();
    for target in [deleting(ALL), marking()] {
        let error = to.plan(&target).unwrap_err();
        assert_eq!(error.code, "no_privilege", "{error:?}");
    }
    execute(
        &mut client,
        "GRANT DELETE ON raw.t TO may_not_delete; GRANT UPDATE (gone) ON raw.t TO may_not_delete",
    );
    to.plan(&deleting(ALL)).unwrap();
    to.plan(&marking()).unwrap();
}

#[test]
fn a_pipeline_that_began_to_write_the_table_in_the_meantime_is_noticed_in_the_commit() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    let mut to = open(&database);
    let target = deleting(ALL);
    let mut loading = begin(&mut to, &target).unwrap();
    let part = loading.flush().unwrap();
    loading.open_keys().unwrap();
    loading.write_keys(&keys(&[1])).unwrap();
    loading.flush_keys().unwrap();
    let other = Run {
        pipeline: "other".into(),
        id: "o".into(),
    };
    let plain = Target {
        deletes: None,
        repairs: None,
        stages: false,
        ..target.clone()
    };
    let mut second = open(&database);
    let mut adding = fence(&mut second, &plain, other).unwrap();
    adding.open_writer(None).unwrap();
    adding.write(&batch(&[50])).unwrap();
    let added = adding.flush().unwrap();
    adding.commit(whole("t", vec![added], 0)).unwrap();
    let error = loading.commit(whole("t", vec![part], 0)).unwrap_err();
    assert_eq!(error.code, "target_has_other_writer", "{error:?}");
    assert!(error.message.contains("pipeline other"), "{error:?}");
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "11");
    let error = to.progress(&target, "p").unwrap_err();
    assert_eq!(error.code, "target_has_other_writer", "{error:?}");
}

#[test]
fn calls_in_the_wrong_order_delete_nothing() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    let mut to = open(&database);
    let target = deleting(ALL);
    let internal = |ended: Result<()>, text: &str| {
        let error = ended.unwrap_err();
        assert_eq!(kind(&error), "Internal", "{error:?}");
        assert!(error.message.contains(text), "{error:?}");
    };
    let mut loading = begin(&mut to, &target).unwrap();
    internal(loading.write_keys(&keys(&[1])), "open-keys comes first");
    loading.write(&batch(&[1])).unwrap();
    internal(loading.open_keys(), "before the rows are flushed");
    let part = loading.flush().unwrap();
    let seq = loading.progress().seq;
    internal(
        loading
            .commit(whole("t", vec![part.clone()], seq))
            .map(drop),
        "before all keys",
    );
    loading.open_keys().unwrap();
    internal(loading.open_keys(), "does not need");
    internal(loading.write(&batch(&[2])), "after the keys");
    internal(
        loading
            .commit(whole("t", vec![part.clone()], seq))
            .map(drop),
        "before all keys",
    );
    let between = Commit {
        stream: "t",
        parts: vec![part],
        seq,
        cursor: Some("1"),
        complete: false,
    };
    internal(
        loading.commit(between).map(drop),
        "between the keys and the last commit",
    );
    loading.abort().unwrap();
    let plain = Target {
        deletes: None,
        repairs: None,
        stages: false,
        ..target
    };
    let mut loading = begin(&mut to, &plain).unwrap();
    internal(loading.open_keys(), "does not need");
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "10");
}

#[test]
fn a_deleted_field_and_missing_keys_take_rows_away_in_one_commit() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, TABLE);
    let mut to = open(&database);
    let target = Target {
        deleted_field: Some("t".into()),
        ..deleting(ALL)
    };
    // The text of 1 is NULL, and 2 has one: it is deleted, although the source has its key.
    let receipt = compare(&mut to, &target, &[1, 2], &[1, 2, 3]).unwrap();
    assert_eq!((receipt.rows, receipt.deleted), (2, 7));
    assert_eq!(ids(&mut client, "raw.t"), "1,3");
}
