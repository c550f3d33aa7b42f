//! Append of rows that a lag reads again, on a real server: each version of a key is there once.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{DataType, Field, Receipt, Result, Run, Schema, Target, WriteMode};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

type Row<'a> = (Option<i64>, Option<i64>, &'a str);

/// `id int8, at int8, t text`.
fn rows(rows: &[Row<'_>]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("at", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn repeats(batch: &RecordBatch, key: &[&str], version: &[&str]) -> Target {
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    Target {
        primary_key: names(key),
        dedup_fields: names(version),
        is_incremental: true,
        ..target("t", &batch.schema(), WriteMode::Append)
    }
}

fn add(to: &mut Session, batch: &RecordBatch) -> Result<Receipt> {
    let target = repeats(batch, &["id"], &["at"]);
    write_to(to, &target, std::slice::from_ref(batch))
}

fn content(client: &mut Client) -> String {
    one(
        client,
        "SELECT string_agg(concat_ws('/', id, coalesce(at::text, '-'), t), ' ' ORDER BY id, at, t) FROM raw.t",
    )
}

#[test]
fn each_version_of_a_key_is_added_once_over_batches_commits_and_runs() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let first = rows(&[
        (Some(1), Some(10), "a"),
        (Some(2), None, "b"),
        // A double on the way: the last one is kept.
        (Some(3), Some(11), "c"),
        (Some(3), Some(11), "d"),
    ]);
    let target = repeats(&first, &["id"], &["at"]);
    let planned = to.plan(&target).unwrap();
    assert!(planned.is_new);
    let made = planned.statements.join("; ");
    assert!(
        made.contains("CREATE INDEX ON raw.t (id)") && !made.contains("PRIMARY KEY (id"),
        "{made}"
    );
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    let commit = |parts, seq, complete| Commit {
        stream: "t",
        parts,
        seq,
        cursor: Some("1"),
        complete,
    };
    load.write(&first).unwrap();
    let part = load.flush().unwrap();
    load.commit(commit(vec![part], 0, false)).unwrap();
    assert_eq!(content(&mut client), "1/10/a 2/-/b 3/11/d");
    // The same again, one that came late, and one that was changed.
    load.write(&rows(&[
        (Some(3), Some(11), "d"),
        (Some(2), None, "b"),
        (Some(4), Some(9), "late"),
        // A version that the one below follows in the same commit.
        (Some(1), Some(11), "before"),
    ]))
    .unwrap();
    let one_part = load.flush().unwrap();
    load.write(&rows(&[
        (Some(1), Some(12), "changed"),
        (Some(4), Some(9), "late"),
    ]))
    .unwrap();
    let parts = vec![one_part, load.flush().unwrap()];
    load.commit(commit(parts, 1, true)).unwrap();
    let all = "1/10/a 1/11/before 1/12/changed 2/-/b 3/11/d 4/9/late";
    assert_eq!(content(&mut client), all);
    // Another run, with what an index and no index find.
    for index in ["", "DROP INDEX raw.t_id_idx"] {
        client.batch_execute(index).unwrap();
        let receipt = add(
            &mut to,
            &rows(&[(Some(1), Some(12), "changed"), (Some(4), Some(9), "late")]),
        )
        .unwrap();
        assert_eq!(receipt.rows, 2);
        assert_eq!(content(&mut client), all);
    }
    // Changed without another version: it is known as the row that is there.
    add(&mut to, &rows(&[(Some(4), Some(9), "unseen")])).unwrap();
    assert_eq!(content(&mut client), all);
    let staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rapidbyte%'";
    assert_eq!(one(&mut client, staged), "0");
}

/// Two pipelines that add the same rows to one table: the second looks for them when the first has
/// committed.
#[test]
fn pipelines_that_add_at_once_wait_for_each_other() {
    let database = database();
    let mut client = database.client();
    let mut holder = database.client();
    // Both start their INSERT and take its snapshot before either continues.
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, at int8, t text); \
             CREATE FUNCTION raw.stop() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_advisory_xact_lock_shared(7, 7); RETURN NEW; END'; \
             CREATE TRIGGER stop BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.stop()",
        )
        .unwrap();
    holder
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7, 7)")
        .unwrap();
    let batch = rows(&[(Some(1), Some(1), "a"), (Some(2), None, "b")]);
    std::thread::scope(|scope| {
        let (batch, database) = (&batch, &database);
        let all = ["one", "other"].map(|pipeline| {
            scope.spawn(move || {
                let mut to = open(database);
                let target = repeats(batch, &["id"], &["at"]);
                let run = Run {
                    pipeline: pipeline.into(),
                    id: pipeline.into(),
                };
                let mut load = fence(&mut to, &target, run).unwrap();
                load.open_writer(None).unwrap();
                load.write(batch).unwrap();
                let parts = vec![load.flush().unwrap()];
                let commit = Commit {
                    stream: "t",
                    parts,
                    seq: 0,
                    cursor: Some("1"),
                    complete: true,
                };
                load.commit(commit).unwrap();
            })
        });
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        while one(&mut client, waiting) != "2" {
            assert!(!all.iter().any(|thread| thread.is_finished()));
            std::thread::yield_now();
        }
        holder.batch_execute("COMMIT").unwrap();
    });
    assert_eq!(content(&mut client), "1/1/a 2/-/b");
}

#[test]
fn rows_of_a_run_that_was_shut_out_are_added_by_the_newer_one_alone() {
    let database = database();
    let mut client = database.client();
    let (mut older, mut newer) = (open(&database), open(&database));
    let batch = rows(&[(Some(1), Some(1), "a"), (Some(2), Some(2), "b")]);
    add(&mut older, &rows(&[(Some(1), Some(1), "a")])).unwrap();
    let target = repeats(&batch, &["id"], &["at"]);
    let mut load = fence(&mut older, &target, run("older")).unwrap();
    load.open_writer(Some("1")).unwrap();
    load.write(&batch).unwrap();
    let part = load.flush().unwrap();
    let mut newer_load = fence(&mut newer, &target, run("newer")).unwrap();
    let seq = load.progress().seq;
    let error = load.commit(whole("t", vec![part], seq)).unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    newer_load.open_writer(Some("1")).unwrap();
    newer_load.write(&batch).unwrap();
    let part = newer_load.flush().unwrap();
    let seq = newer_load.progress().seq;
    newer_load.commit(whole("t", vec![part], seq)).unwrap();
    assert_eq!(content(&mut client), "1/1/a 2/2/b");
}

#[test]
fn keys_and_versions_are_compared_as_their_types_are() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE SCHEMA elsewhere; CREATE TYPE elsewhere.mood AS ENUM ('x', 'y');
             CREATE DOMAIN elsewhere.short AS varchar(10);
             CREATE COLLATION elsewhere.blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        )
        .unwrap();
    let mut to = open(&database);
    for (ty, first, again, other) in [
        ("numeric", "1.0", "1.00", "1.01"),
        (
            "uuid",
            "00000000-0000-0000-0000-00000000000a",
            "00000000-0000-0000-0000-00000000000A",
            "00000000-0000-0000-0000-00000000000b",
        ),
        (
            "timestamptz",
            "2026-01-01 00:00:00.000001+00",
            "2026-01-01 01:00:00.000001+01",
            "2026-01-01 00:00:00+00",
        ),
        ("double precision", "NaN", "nan", "-0"),
        ("varchar(10)", "a", "a", "a "),
        ("char(5)", "a", "a    ", "b"),
        ("text", "a", "a", "A"),
        ("text COLLATE elsewhere.blind", "a", "A", "b"),
        ("elsewhere.mood", "x", "x", "y"),
        ("elsewhere.short", "x", "x", "y"),
        ("int[]", "{1,NULL}", "{1,NULL}", "{1}"),
        ("int4range", "[1,3)", "[1,2]", "[1,4)"),
        ("\"char\"", "a", "a", "b"),
        ("regclass", "pg_class", "pg_class", "pg_type"),
        ("inet", "10.0.0.1", "10.0.0.1/32", "10.0.0.1/24"),
    ] {
        for columns in ["k", "v"] {
            let (k, v) = if columns == "k" {
                (ty, "text")
            } else {
                ("text", ty)
            };
            client
                .batch_execute(&format!(
                    "DROP TABLE IF EXISTS raw.t; CREATE TABLE raw.t (k {k}, v {v})"
                ))
                .unwrap();
            for (value, count) in [(first, "1"), (again, "1"), (other, "2"), (first, "2")] {
                let batch = match columns {
                    "k" => texts(&[("k", &[Some(value)]), ("v", &[Some("same")])]),
                    _ => texts(&[("k", &[Some("same")]), ("v", &[Some(value)])]),
                };
                let target = repeats(&batch, &["k"], &["v"]);
                write_to(&mut to, &target, &[batch]).unwrap_or_else(|e| panic!("{ty}: {e:?}"));
                let found = one(&mut client, "SELECT count(*) FROM raw.t");
                assert_eq!(found, count, "{columns} {ty} {value}");
            }
        }
    }
}

#[test]
fn null_in_a_key_is_refused() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let error = add(
        &mut to,
        &rows(&[(Some(1), Some(1), "a"), (None, Some(1), "b")]),
    )
    .unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("null_key", Some("id"))
    );
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
}

#[test]
fn the_plan_says_which_index_is_missing_and_which_stands_in_the_way() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let batch = rows(&[(Some(1), Some(1), "a")]);
    let target = repeats(&batch, &["id", "t"], &["at"]);
    let (slow, only) = ("create one: CREATE INDEX ON", "one row for each key");
    for (ddl, is_slow, is_only) in [
        ("", true, false),
        ("CREATE INDEX i ON raw.t (id)", true, false),
        ("CREATE INDEX i ON raw.t (at, id, t)", true, false),
        ("CREATE INDEX i ON raw.t (t, id) WHERE at > 1", true, false),
        ("CREATE INDEX i ON raw.t (t, id, at)", false, false),
        ("CREATE UNIQUE INDEX i ON raw.t (t, id, at)", false, false),
        ("CREATE UNIQUE INDEX i ON raw.t (t, id)", false, true),
    ] {
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; \
                 CREATE TABLE raw.t (id bigint, at bigint, t text, more int DEFAULT 7, empty int); {ddl}"
            ))
            .unwrap();
        let plan = to.plan(&target).unwrap();
        assert!(!plan.is_new);
        let notes = plan.notes.join("; ");
        assert_eq!(notes.contains(slow), is_slow, "{ddl}: {notes}");
        assert_eq!(notes.contains(only), is_only, "{ddl}: {notes}");
        assert!(
            notes.contains("target's column more: new rows get its default"),
            "{notes}"
        );
        assert!(
            notes.contains("target's column empty: new rows get NULL"),
            "{notes}"
        );
    }
}

#[test]
fn a_target_that_hides_or_changes_rows_is_refused() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE ROLE adder LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA raw TO adder")
        .unwrap();
    may_checkpoint(&mut client, "adder");
    let batch = rows(&[(Some(1), Some(1), "a")]);
    let target = repeats(&batch, &["id"], &["at"]);
    let mut to = open_with(&database.url_of("adder", "w"), json!({"schema": "raw"}));
    for (ddl, code, hint) in [
        (
            "CREATE VIEW raw.t AS SELECT * FROM raw.base",
            "lag_not_possible",
            "table itself",
        ),
        (
            "CREATE TABLE raw.t (LIKE raw.base); ALTER TABLE raw.t ENABLE ROW LEVEL SECURITY",
            "lag_not_possible",
            "BYPASSRLS",
        ),
        (
            "CREATE TABLE raw.t (LIKE raw.base); CREATE RULE r AS ON INSERT TO raw.t DO ALSO NOTHING",
            "lag_not_possible",
            "rules",
        ),
        (
            "CREATE TABLE raw.t (LIKE raw.base); REVOKE SELECT ON raw.t FROM adder; GRANT SELECT (id) ON raw.t TO adder",
            "no_privilege",
            "GRANT SELECT",
        ),
        (
            "CREATE TABLE raw.t (id json, at bigint, t text)",
            "lag_not_possible",
            "another column",
        ),
    ] {
        client
            .batch_execute(&format!(
                "DROP VIEW IF EXISTS raw.v; DROP SCHEMA raw CASCADE; CREATE SCHEMA raw; GRANT USAGE ON SCHEMA raw TO adder; \
                 ALTER DEFAULT PRIVILEGES IN SCHEMA raw GRANT SELECT, INSERT ON TABLES TO adder; \
                 CREATE TABLE raw.base (id bigint, at bigint, t text); {ddl}"
            ))
            .unwrap();
        let of = match ddl.contains("json") {
            true => repeats(
                &texts(&[("id", &[Some("1")]), ("t", &[Some("a")])]),
                &["id"],
                &["t"],
            ),
            false => target.clone(),
        };
        let error = to.plan(&of).unwrap_err();
        assert_eq!(error.code, code, "{ddl}: {error:?}");
        assert!(
            error.hint.as_ref().is_some_and(|h| h.contains(hint)),
            "{ddl}: {error:?}"
        );
    }
}

#[test]
fn a_trigger_that_drops_rows_does_not_make_duplicates() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id bigint, at bigint, t text); \
             INSERT INTO raw.t VALUES (1, 1, 'a'); \
             CREATE FUNCTION raw.keep() RETURNS trigger LANGUAGE plpgsql AS \
                 $$BEGIN IF NEW.t = 'no' THEN RETURN NULL; END IF; RETURN NEW; END$$; \
             CREATE TRIGGER g BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.keep()",
        )
        .unwrap();
    let mut to = open(&database);
    let known = (Some(1), Some(1), "a");
    add(&mut to, &rows(&[known, (Some(2), Some(1), "b")])).unwrap();
    let error = add(
        &mut to,
        &rows(&[known, (Some(3), Some(1), "no"), (Some(4), Some(1), "c")]),
    )
    .unwrap_err();
    assert_eq!(error.code, "rows_not_kept", "{error:?}");
    assert_eq!(content(&mut client), "1/1/a 2/1/b");
}
