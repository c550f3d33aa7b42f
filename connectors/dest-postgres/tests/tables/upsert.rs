//! Upsert on a real server: the last version of each key, in whatever type keys are.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use rapidbyte_sdk::prelude::{DataType, Field, Receipt, Result, Schema, Target, WriteMode};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

type Row<'a> = (Option<i64>, Option<&'a str>, Option<bool>);

/// `id int8, t text, gone bool`.
fn rows(rows: &[Row<'_>]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|row| row.2))),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
        Field::new("gone", DataType::Boolean, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn upsert_target(batch: &RecordBatch, key: &[&str]) -> Target {
    Target {
        primary_key: key.iter().map(|column| (*column).into()).collect(),
        ..target("t", &batch.schema(), WriteMode::Upsert)
    }
}

fn upsert(to: &mut Session, batch: &RecordBatch, key: &[&str]) -> Result<Receipt> {
    write_to(to, &upsert_target(batch, key), std::slice::from_ref(batch))
}

fn content(client: &mut Client) -> String {
    one(
        client,
        "SELECT string_agg(id || '=' || coalesce(t::text, '-'), ',' ORDER BY id) FROM raw.t",
    )
}

#[test]
fn the_last_version_of_each_key_wins_within_and_across_batches_and_commits() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let first = rows(&[
        (Some(1), Some("a"), None),
        (Some(2), Some("b"), None),
        (Some(1), Some("c"), None),
    ]);
    let target = upsert_target(&first, &["id"]);
    let planned = to.plan(&target).unwrap();
    let notes = planned.notes.join("; ");
    assert!(
        notes.contains("primary key is (id);") && notes.contains("ON CONFLICT"),
        "{notes}"
    );
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&first).unwrap();
    let parts = vec![load.flush().unwrap()];
    load.write(&rows(&[(Some(2), Some("d"), None), (Some(3), None, None)]))
        .unwrap();
    let mut parts = parts;
    parts.push(load.flush().unwrap());
    let commit = |parts, seq, complete| Commit {
        stream: "t",
        parts,
        seq,
        cursor: Some("1"),
        complete,
    };
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
    let receipt = load.commit(commit(parts, 0, false)).unwrap();
    assert_eq!(receipt.rows, 5);
    assert_eq!(content(&mut client), "1=c,2=d,3=-");
    assert_eq!(
        one(
            &mut client,
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'raw.t'::regclass AND contype = 'p'"
        ),
        "PRIMARY KEY (id)"
    );
    load.write(&rows(&[
        (Some(3), Some("e"), None),
        (Some(4), Some("f"), None),
    ]))
    .unwrap();
    let part = load.flush().unwrap();
    load.commit(commit(vec![part], 1, false)).unwrap();
    assert_eq!(content(&mut client), "1=c,2=d,3=e,4=f");
    load.write(&rows(&[(Some(1), Some("g"), None)])).unwrap();
    let part = load.flush().unwrap();
    load.commit(commit(vec![part], 2, true)).unwrap();
    // Another run, and one that is given up.
    upsert(
        &mut to,
        &rows(&[(Some(9), None, None), (Some(2), None, None)]),
        &["id"],
    )
    .unwrap();
    let mut load = begin(&mut to, &target).unwrap();
    load.write(&rows(&[(Some(1), Some("lost"), None)])).unwrap();
    load.flush().unwrap();
    load.abort().unwrap();
    assert_eq!(content(&mut client), "1=g,2=-,3=e,4=f,9=-");
    let staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'rapidbyte%'";
    assert_eq!(one(&mut client, staged), "0");
}

#[test]
fn a_key_whose_last_version_is_deleted_goes_and_one_that_comes_back_stays() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text UNIQUE, gone bool); \
             INSERT INTO raw.t VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')",
        )
        .unwrap();
    let mut to = open(&database);
    let batch = rows(&[
        (Some(1), None, Some(true)),
        (Some(2), Some("x"), Some(true)),
        (Some(2), Some("back"), Some(false)),
        (Some(3), Some("y"), None),
        (Some(3), Some("z"), Some(true)),
        // Never there, and deleted.
        (Some(7), Some("u"), Some(true)),
        // Takes the text of a row that goes.
        (Some(8), Some("three"), None),
    ]);
    let mut target = upsert_target(&batch, &["id"]);
    target.deleted_field = Some("gone".into());
    write_to(&mut to, &target, std::slice::from_ref(&batch)).unwrap();
    assert_eq!(content(&mut client), "2=back,4=four,8=three");
    // Not boolean: deleted where it is not NULL.
    client
        .batch_execute("TRUNCATE raw.t; ALTER TABLE raw.t ADD at text; INSERT INTO raw.t VALUES (1, 'a'), (2, 'b')")
        .unwrap();
    let ids = Int64Array::from(vec![1, 2, 3]);
    let at = StringArray::from(vec![Some(""), None, Some("2026")]);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("at", DataType::Utf8, true),
    ]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(at)]).unwrap();
    let mut target = upsert_target(&batch, &["id"]);
    target.deleted_field = Some("at".into());
    write_to(&mut to, &target, std::slice::from_ref(&batch)).unwrap();
    assert_eq!(content(&mut client), "2=b");
    // Text that the server casts to boolean counts as what it becomes.
    client
        .batch_execute(
            "TRUNCATE raw.t; ALTER TABLE raw.t ADD dead boolean; INSERT INTO raw.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        .unwrap();
    let ids = Int64Array::from(vec![1, 2, 3]);
    let dead = StringArray::from(vec![Some("f"), None, Some("t")]);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("dead", DataType::Utf8, true),
    ]);
    let batch =
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(dead)]).unwrap();
    let mut target = upsert_target(&batch, &["id"]);
    target.deleted_field = Some("dead".into());
    write_to(&mut to, &target, std::slice::from_ref(&batch)).unwrap();
    assert_eq!(content(&mut client), "1=a,2=b");
    for (field, column) in [("none", "none"), ("id", "id")] {
        target.deleted_field = Some(field.into());
        let error = to.plan(&target).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.column.as_deref()),
            ("unknown_column", Some(column))
        );
    }
}

#[test]
fn columns_that_do_not_move_keep_their_values_and_a_key_may_be_of_several_in_any_order() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; \
             CREATE TABLE raw.other (id int8 PRIMARY KEY); INSERT INTO raw.other VALUES (1), (2); \
             CREATE TABLE raw.log (what text); \
             CREATE FUNCTION raw.note() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN INSERT INTO raw.log VALUES (TG_OP || NEW.id); RETURN NEW; END $$; \
             CREATE TABLE raw.t (made text DEFAULT 'now', t text, \"K 2\" text, \
               id int8 REFERENCES raw.other, seen int DEFAULT 7, gone bool, UNIQUE (\"K 2\", id)); \
             CREATE TRIGGER note BEFORE INSERT OR UPDATE ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.note(); \
             INSERT INTO raw.t (made, t, \"K 2\", id, seen) VALUES ('then', 'a', 'k', 1, 3); \
             DELETE FROM raw.log",
        )
        .unwrap();
    let mut to = open(&database);
    let ids = Int64Array::from(vec![1, 2, 2]);
    let keys = StringArray::from(vec!["k", "k", "k"]);
    let values = StringArray::from(vec!["b", "c", "d"]);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("K 2", DataType::Utf8, false),
        Field::new("t", DataType::Utf8, false),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(keys), Arc::new(values)];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    upsert(&mut to, &batch, &["id", "K 2"]).unwrap();
    let all =
        "SELECT string_agg(concat_ws('/', id, \"K 2\", t, made, seen), ' ' ORDER BY id) FROM raw.t";
    assert_eq!(one(&mut client, all), "1/k/b/then/3 2/k/d/now/7");
    let log = "SELECT string_agg(what, ' ' ORDER BY what) FROM raw.log";
    // The trigger sees the last versions: one row comes as INSERT, and then as UPDATE.
    assert_eq!(one(&mut client, log), "INSERT1 INSERT2 UPDATE1");
    // Only key columns move: what is there stays.
    let keys_only = batch.project(&[0, 1]).unwrap();
    upsert(&mut to, &keys_only, &["K 2", "id"]).unwrap();
    assert_eq!(one(&mut client, all), "1/k/b/then/3 2/k/d/now/7");
    // `id` alone does not have a unique index.
    let error = upsert(&mut to, &rows(&[(Some(99), Some("x"), None)]), &["id"]).unwrap_err();
    assert_eq!(error.code, "no_unique_index", "{error:?}");
    // A trigger that discards rows is an error, not a smaller count.
    client
        .batch_execute(
            "CREATE OR REPLACE FUNCTION raw.note() RETURNS trigger LANGUAGE plpgsql AS \
            $$ BEGIN IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW; END $$",
        )
        .unwrap();
    let error = upsert(&mut to, &batch, &["id", "K 2"]).unwrap_err();
    assert_eq!(error.code, "rows_not_kept", "{error:?}");
    assert_eq!(one(&mut client, all), "1/k/b/then/3 2/k/d/now/7");
}

#[test]
fn keys_that_are_equal_in_the_type_of_the_table_are_one_key() {
    let database = database();
    let mut client = database.client();
    let provider = "CREATE COLLATION raw.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TYPE raw.mood AS ENUM ('sad', 'glad'); CREATE DOMAIN raw.code AS varchar(5); CREATE TYPE raw.pair AS (a int, b numeric)")
        .unwrap();
    let has_icu = client.batch_execute(provider).is_ok();
    let mut to = open(&database);
    for (ty, keys, left) in [
        ("numeric", ["1.0", "1.00", "NaN", "NaN"], 2),
        ("numeric(6,2)", ["1.0", "1.00", "2", "2.0"], 2),
        ("float8", ["NaN", "nan", "0", "-0"], 2),
        (
            "uuid",
            [
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "{a0eebc999c0b4ef8bb6d6bb9bd380a11}",
                "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ],
            2,
        ),
        ("text", ["a", "A", "a ", "a"], 3),
        ("char(3)", ["a", "a  ", "a", "b"], 2),
        ("raw.code", ["a", "b", "b", "c"], 3),
        ("raw.mood", ["sad", "glad", "sad", "glad"], 2),
        (
            "date",
            ["2026-11-21", "20261121", "infinity", "infinity"],
            2,
        ),
        (
            "timestamptz",
            [
                "2026-11-21 00:00Z",
                "2026-11-21 01:00+01",
                "1970-01-01",
                "1970-01-01",
            ],
            2,
        ),
        ("interval", ["1 month", "30 days", "1 day", "24:00"], 2),
        ("int4[]", ["{1,2}", "{1, 2}", "{}", "{3}"], 3),
        ("int4range", ["[1,3)", "[1,2]", "empty", "(1,1)"], 2),
        ("raw.pair", ["(1,1.0)", "(1,1.00)", "(2,)", "(2,)"], 2),
        ("inet", ["10.0.0.1", "10.0.0.1/32", "::1", "10.0.0.2"], 3),
        (
            "jsonb",
            ["1", "1.0", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"],
            2,
        ),
        ("bytea", ["\\x00", "\\000", "a", "\\x61"], 2),
        ("\"char\"", ["a", "a", "b", "c"], 3),
        ("oid", ["1", "01", "2", "3"], 3),
        ("text COLLATE raw.nocase", ["a", "A", "b", "B"], 2),
    ] {
        if ty.contains("COLLATE") && !has_icu {
            continue;
        }
        client
            .batch_execute(&format!(
                "DROP TABLE IF EXISTS raw.t; CREATE TABLE raw.t (k {ty}, v text, UNIQUE (k))"
            ))
            .unwrap();
        let keys = keys.map(Some);
        let batch = texts(&[
            ("k", &keys),
            ("v", &[Some("0"), Some("1"), Some("2"), Some("3")]),
        ]);
        let target = upsert_target(&batch, &["k"]);
        // Twice: into an empty table, and onto what is there.
        for _ in 0..2 {
            write_to(&mut to, &target, std::slice::from_ref(&batch))
                .unwrap_or_else(|e| panic!("{ty}: {e:?}"));
            assert_eq!(
                one(&mut client, "SELECT count(*) FROM raw.t"),
                left.to_string(),
                "{ty}"
            );
        }
        let last = one(&mut client, "SELECT max(v) FROM raw.t");
        assert_eq!(last, "3", "{ty}");
        // All of them go by the same equality.
        let batch = texts(&[
            ("k", &keys),
            ("v", &[Some("x"), Some("x"), Some("x"), Some("x")]),
        ]);
        let target = Target {
            deleted_field: Some("v".into()),
            ..upsert_target(&batch, &["k"])
        };
        write_to(&mut to, &target, std::slice::from_ref(&batch))
            .unwrap_or_else(|e| panic!("{ty}: {e:?}"));
        assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "0", "{ty}");
    }
    // Not by way of text.
    client
        .batch_execute("DROP TABLE raw.t; CREATE TABLE raw.t (k float8 PRIMARY KEY, v int8)")
        .unwrap();
    let keys = Float64Array::from(vec![f64::NAN, -f64::NAN, 0.0, -0.0]);
    let values = Int64Array::from(vec![1, 2, 3, 4]);
    let schema = Schema::new(vec![
        Field::new("k", DataType::Float64, false),
        Field::new("v", DataType::Int64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(values)];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    upsert(&mut to, &batch, &["k"]).unwrap();
    let all = "SELECT string_agg(k || '=' || v, ' ' ORDER BY k) FROM raw.t";
    assert_eq!(one(&mut client, all), "-0=4 NaN=2");
}

#[test]
fn a_null_in_a_key_is_refused_with_its_row_and_column() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let good = rows(&[(Some(1), None, None), (Some(2), None, None)]);
    let target = upsert_target(&good, &["id"]);
    let mut load = begin(&mut to, &target).unwrap();
    load.write(&good).unwrap();
    let error = load
        .write(&rows(&[(Some(3), None, None), (None, Some("x"), None)]))
        .unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("null_key", "Data".into())
    );
    assert!(
        error.message.contains("row 4") && error.column.as_deref() == Some("id"),
        "{error:?}"
    );
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
}

#[test]
fn of_nulls_in_several_columns_of_a_key_the_first_row_is_named() {
    let database = database();
    let mut to = open(&database);
    let x = Some("x");
    let batch = texts(&[("k1", &[x, x, x, None]), ("k2", &[x, x, None, None])]);
    let target = upsert_target(&batch, &["k1", "k2"]);
    let mut load = begin(&mut to, &target).unwrap();
    let error = load.write(&batch).unwrap_err();
    assert!(error.message.contains("row 3, column \"k2\""), "{error:?}");
    assert_eq!(error.column.as_deref(), Some("k2"));
}

#[test]
fn the_statements_for_a_longer_key_make_the_table_take_its_rows() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let twice = rows(&[(Some(1), Some("a"), None), (Some(1), Some("b"), None)]);
    for (made, says, drops) in [
        (
            "CREATE TABLE raw.t (id int8 PRIMARY KEY, t text, gone bool)",
            "the primary key t_pkey on (id),",
            "ALTER TABLE raw.t DROP CONSTRAINT t_pkey; ",
        ),
        (
            "CREATE TABLE raw.t (id int8 CONSTRAINT \"My id\" UNIQUE, t text, gone bool)",
            "the unique constraint \"My id\" on (id),",
            "ALTER TABLE raw.t DROP CONSTRAINT \"My id\"; ",
        ),
        (
            "CREATE TABLE raw.t (id int8, t text, gone bool); CREATE UNIQUE INDEX \"I\" ON raw.t (id); \
             CREATE UNIQUE INDEX other ON raw.t (gone)",
            "the unique index \"I\" on (id),",
            "DROP INDEX raw.\"I\"; ",
        ),
        ("CREATE TABLE raw.t (id int8, t text, gone bool)", "", ""),
    ] {
        let fresh = format!("DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; {made}");
        client.batch_execute(&fresh).unwrap();
        let error = upsert(&mut to, &twice, &["id", "t"]).unwrap_err();
        assert_eq!(error.code, "no_unique_index", "{error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.contains(says), "{hint}");
        let statements = hint.strip_prefix("run on the target: ").unwrap();
        let statements = statements.split(". Rows that").next().unwrap();
        let create = "CREATE UNIQUE INDEX ON raw.t (id, t)";
        assert_eq!(statements, format!("{drops}{create}"));
        client.batch_execute(statements).unwrap();
        upsert(&mut to, &twice, &["id", "t"]).unwrap();
        assert_eq!(one(&mut client, "SELECT count(*)::text FROM raw.t"), "2");
    }
}

#[test]
fn the_plan_refuses_streams_that_cannot_be_upserted() {
    let database = database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").unwrap();
    let mut to = open(&database);
    let batch = rows(&[(Some(1), Some("a"), None)]);
    let table = "CREATE TABLE raw.t (id int8, t text, gone bool)";
    for (made, code) in [
        (table.into(), "no_unique_index"),
        (format!("{table}; CREATE UNIQUE INDEX ON raw.t (id) WHERE id > 0"), "no_unique_index"),
        (format!("{table}; CREATE UNIQUE INDEX ON raw.t (abs(id))"), "no_unique_index"),
        (format!("{table}; CREATE UNIQUE INDEX ON raw.t (id, t)"), "no_unique_index"),
        (format!("{table}; CREATE INDEX ON raw.t (id)"), "no_unique_index"),
        (format!("{table}; ALTER TABLE raw.t ADD UNIQUE (id) DEFERRABLE"), "no_unique_index"),
        (
            "CREATE TABLE raw.b (id int8 PRIMARY KEY, t text, gone bool); CREATE VIEW raw.t AS SELECT * FROM raw.b".into(),
            "upsert_not_possible",
        ),
        (
            format!("{table}; CREATE UNIQUE INDEX ON raw.t (id); CREATE RULE r AS ON UPDATE TO raw.t DO ALSO SELECT 1"),
            "upsert_not_possible",
        ),
        (
            format!("{table}; CREATE UNIQUE INDEX ON raw.t (id); CREATE TABLE raw.c () INHERITS (raw.t)"),
            "upsert_not_possible",
        ),
        (
            "CREATE TABLE raw.t (id int8 PRIMARY KEY, t text, gone bool, other int GENERATED ALWAYS AS (1) STORED NOT NULL)".into(),
            "",
        ),
        (
            "CREATE TABLE raw.t (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t text, gone bool)".into(),
            "",
        ),
        (
            "CREATE TABLE raw.t (id int8, t text, gone bool, more int, PRIMARY KEY (id) INCLUDE (more)) PARTITION BY RANGE (id)".into(),
            "",
        ),
    ] {
        client
            .batch_execute("DROP VIEW IF EXISTS raw.t")
            .or_else(|_| client.batch_execute("DROP TABLE IF EXISTS raw.t, raw.b CASCADE"))
            .unwrap();
        client.batch_execute("DROP TABLE IF EXISTS raw.b").unwrap();
        client.batch_execute(&made).unwrap_or_else(|e| panic!("{made}: {e}"));
        let planned = to.plan(&upsert_target(&batch, &["id"]));
        match code {
            "" => {
                planned.unwrap();
                if made.contains("PARTITION") {
                    client.batch_execute("CREATE TABLE raw.p PARTITION OF raw.t FOR VALUES FROM (0) TO (10)").unwrap();
                }
                upsert(&mut to, &batch, &["id"]).unwrap();
                upsert(&mut to, &rows(&[(Some(1), Some("b"), None)]), &["id"]).unwrap();
                assert_eq!(content(&mut client), "1=b", "{made}");
            }
            code => {
                let error = planned.unwrap_err();
                assert_eq!((error.code.as_str(), kind(&error)), (code, "Schema".into()), "{made} {error:?}");
                assert!(error.hint.is_some() && error.message.contains("raw.t"), "{error:?}");
            }
        }
    }
    // The statement in the hint works.
    client
        .batch_execute(&format!("DROP TABLE raw.t; {table}"))
        .unwrap();
    let hint = to
        .plan(&upsert_target(&batch, &["id"]))
        .unwrap_err()
        .hint
        .unwrap();
    client
        .batch_execute(hint.split_once("run on the target: ").unwrap().1)
        .unwrap();
    upsert(&mut to, &batch, &["id"]).unwrap();
    let error = to.plan(&upsert_target(&batch, &[])).unwrap_err();
    assert_eq!(error.code, "key_missing");
    client
        .batch_execute("DROP TABLE raw.t; CREATE TABLE raw.t (id int8 PRIMARY KEY, n int8 GENERATED ALWAYS AS IDENTITY)")
        .unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("id", ids.clone()), ("n", ids)]).unwrap();
    let error = to.plan(&upsert_target(&batch, &["id"])).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("upsert_not_possible", Some("n"))
    );
}

#[test]
fn missing_privileges_are_reported_with_the_grant_that_helps() {
    let database = database();
    let mut client = database.client();
    let name = database.name();
    client
        .batch_execute(&format!(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text, gone bool); \
             CREATE ROLE upserter LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA raw TO upserter; \
             GRANT INSERT ON raw.t TO upserter; REVOKE TEMP ON DATABASE {name} FROM PUBLIC"
        ))
        .unwrap();
    may_checkpoint(&mut client, "upserter");
    let mut to = open_with(&database.url_of("upserter", "w"), json!({"schema": "raw"}));
    let batch = rows(&[(Some(1), Some("a"), None), (Some(2), Some("b"), Some(true))]);
    let mut target = upsert_target(&batch, &["id"]);
    target.deleted_field = Some("gone".into());
    // All that is missing at once, as a script.
    let error = to.plan(&target).unwrap_err();
    assert_eq!(error.code, "no_privilege", "{error:?}");
    let hint = error.hint.unwrap();
    client
        .batch_execute(hint.split_once(":\n").unwrap().1)
        .unwrap();
    write_to(&mut to, &target, &[batch]).unwrap();
    assert_eq!(content(&mut client), "1=a");
    // Its own rows are all that a policy shows.
    client
        .batch_execute("ALTER TABLE raw.t ENABLE ROW LEVEL SECURITY")
        .unwrap();
    let error = to.plan(&target).unwrap_err();
    assert_eq!(error.code, "upsert_not_possible", "{error:?}");
    drop(to);
    client
        .batch_execute("DROP OWNED BY upserter; DROP ROLE upserter")
        .unwrap();
}

#[test]
fn a_text_that_does_not_fit_is_named_and_nothing_is_changed() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t numeric(4,2)); INSERT INTO raw.t VALUES (1, 1)")
        .unwrap();
    let mut to = open(&database);
    let batch = texts(&[
        ("id", &[Some("1"), Some("2")]),
        ("t", &[Some("2.5"), Some("1.239")]),
    ]);
    let error = upsert(&mut to, &batch, &["id"]).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("value_does_not_fit", Some("t")),
        "{error:?}"
    );
    assert_eq!(content(&mut client), "1=1.00");
    // A version that is not the last one is not looked at by the table.
    let batch = texts(&[
        ("id", &[Some("1"), Some("01")]),
        ("t", &[Some("2.5"), Some("3.5")]),
    ]);
    upsert(&mut to, &batch, &["id"]).unwrap();
    assert_eq!(content(&mut client), "1=3.50");
}
