//! Append, replace and abort on a real server.

use crate::common::*;
use rapidbyte_sdk::prelude::{Fit, WriteMode};

#[test]
fn a_new_table_is_made_filled_and_seen_at_the_commit_only() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let rows = batch(&[1, 2, 3]);
    let planned = plan(&mut to, "public.orders", &rows).unwrap();
    assert_eq!(planned.location, "raw.orders");
    for schema in ["_rapidbyte", "raw"] {
        let statement = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        assert!(planned.statements.contains(&statement), "{planned:?}");
    }
    assert!(
        planned
            .columns
            .iter()
            .all(|column| column.fit == Fit::Exact)
    );
    assert_eq!(one(&mut client, "SELECT to_regnamespace('raw')"), "NULL");

    let mut target = target("public.orders", &rows.schema(), WriteMode::Append);
    target.primary_key = vec!["id".into()];
    let mut load = begin(&mut to, &target).unwrap();
    load.write(&rows).unwrap();
    let first = load.flush().unwrap();
    load.write(&batch(&[4])).unwrap();
    let second = load.flush().unwrap();
    assert_eq!((first.rows, second.rows), (3, 1));
    assert!(first.bytes > 40 && second.bytes > 10);
    assert_eq!(one(&mut client, "SELECT to_regclass('raw.orders')"), "NULL");
    let receipt = load
        .commit(whole("public.orders", vec![first, second], 0))
        .unwrap();
    assert_eq!((receipt.rows, receipt.location.as_str()), (4, "raw.orders"));
    assert_eq!(ids(&mut client, "raw.orders"), "1,2,3,4");
    assert_eq!(
        one(
            &mut client,
            "SELECT string_agg(t, ',' ORDER BY id) FROM raw.orders"
        ),
        "t\t2,t\t3,t\t4"
    );
    assert_eq!(
        one(
            &mut client,
            "SELECT string_agg(a.attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull, ',') FROM pg_attribute a WHERE attrelid = 'raw.orders'::regclass AND attnum > 0"
        ),
        "id bigint true,t text false"
    );
    assert_eq!(
        one(
            &mut client,
            "SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND conrelid = 'raw.orders'::regclass"
        ),
        "1"
    );
    // Once more, into what is there now.
    append(&mut to, "public.orders", &batch(&[5])).unwrap();
    assert_eq!(ids(&mut client, "raw.orders"), "1,2,3,4,5");
}

#[test]
fn an_abort_leaves_nothing_and_the_session_stays_usable() {
    let database = database();
    let mut client = database.client();
    for mut to in [open(&database), open_insert(&database)] {
        let rows = batch(&[1, 2, 3]);
        for flushes in [false, true] {
            let target = target("a", &rows.schema(), WriteMode::Append);
            let mut load = begin(&mut to, &target).unwrap();
            load.write(&rows).unwrap();
            if flushes {
                load.flush().unwrap();
            }
            load.abort().unwrap();
            assert_eq!(one(&mut client, "SELECT to_regclass('raw.a')"), "NULL");
            assert!(load.write(&rows).is_err());
        }
        let locks = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE '%transaction%'";
        assert_eq!(one(&mut client, locks), "0");
        append(&mut to, "b", &rows).unwrap();
    }
    assert_eq!(ids(&mut client, "raw.b"), "1,1,2,2,3,3");
}

#[test]
fn replace_shows_the_old_rows_until_the_commit() {
    let database = database();
    let mut client = database.client();
    for mut to in [open(&database), open_insert(&database)] {
        client.batch_execute("DROP SCHEMA IF EXISTS raw, _rapidbyte CASCADE; CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); INSERT INTO raw.t VALUES (7), (8); CREATE VIEW raw.v AS SELECT * FROM raw.t").unwrap();
        let rows = batch(&[1, 2]);
        let target = target("t", &rows.schema(), WriteMode::Replace);
        let planned = to.plan(&target).unwrap();
        assert!(planned.statements.iter().any(|s| s == "DELETE FROM raw.t"));
        let mut load = begin(&mut to, &target).unwrap();
        assert_eq!(ids(&mut client, "raw.t"), "7,8");
        load.write(&rows).unwrap();
        let part = load.flush().unwrap();
        assert_eq!(ids(&mut client, "raw.v"), "7,8");
        // Another writer would add rows that nobody counted.
        client.batch_execute("SET lock_timeout = '50ms'").unwrap();
        let error = client
            .batch_execute("INSERT INTO raw.t VALUES (9)")
            .unwrap_err();
        assert_eq!(error.code().unwrap().code(), "55P03");
        load.commit(whole("t", vec![part], 0)).unwrap();
        assert_eq!(ids(&mut client, "raw.v"), "1,2");
        replace(&mut to, "t", &batch(&[])).unwrap();
        assert_eq!(ids(&mut client, "raw.t"), "NULL");
        replace(&mut to, "fresh", &batch(&[])).unwrap();
        replace(&mut to, "fresh", &rows).unwrap();
        assert_eq!(ids(&mut client, "raw.fresh"), "1,2");
    }
}

#[test]
fn a_transaction_that_began_before_a_replace_sees_the_old_rows_after_it() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); INSERT INTO raw.t VALUES (7), (8)")
        .unwrap();
    let mut reader = database.client();
    // Its snapshot is taken; the table is not touched yet, and so not locked.
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .unwrap();
    replace(&mut open(&database), "t", &batch(&[1, 2])).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
    assert_eq!(ids(&mut reader, "raw.t"), "7,8");
}

#[test]
fn a_transaction_that_began_before_a_table_was_made_sees_its_rows() {
    let database = database();
    let mut to = open(&database);
    let rows = batch(&[1, 2]);
    for (stream, mode) in [("a", WriteMode::Append), ("r", WriteMode::Replace)] {
        let mut reader = database.client();
        reader
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            .unwrap();
        let mut load = begin(&mut to, &target(stream, &rows.schema(), mode)).unwrap();
        // Two parts are two COPYs of one transaction.
        load.write(&rows).unwrap();
        let first = load.flush().unwrap();
        load.write(&batch(&[3])).unwrap();
        let second = load.flush().unwrap();
        load.commit(whole(stream, vec![first, second], 0)).unwrap();
        assert_eq!(ids(&mut reader, &format!("raw.{stream}")), "1,2,3");
    }
}

#[test]
fn truncate_makes_readers_wait_and_leaves_no_dead_rows() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); \
             INSERT INTO raw.t SELECT n, 'old' FROM generate_series(1, 1000) n; \
             CREATE TABLE raw.p (id int8, t text) PARTITION BY RANGE (id); \
             CREATE TABLE raw.p1 PARTITION OF raw.p DEFAULT; INSERT INTO raw.p VALUES (7, 'old')",
        )
        .unwrap();
    let config = serde_json::json!({"schema": "raw", "replace_method": "truncate"});
    let mut to = open_with(&database.url(), config);
    let mut earlier = database.client();
    earlier
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .unwrap();
    let rows = batch(&[1, 2]);
    let target = target("t", &rows.schema(), WriteMode::Replace);
    let planned = to.plan(&target).unwrap();
    assert!(planned.statements.iter().any(|s| s == "TRUNCATE raw.t"));
    let notes = planned.notes.join("; ");
    assert!(notes.contains("readers and other writers wait"), "{notes}");
    let mut load = begin(&mut to, &target).unwrap();
    client.batch_execute("SET lock_timeout = '50ms'").unwrap();
    let error = client.batch_execute("SELECT FROM raw.t").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55P03");
    load.write(&rows).unwrap();
    let part = load.flush().unwrap();
    load.commit(whole("t", vec![part], 0)).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
    // The new rows are frozen: without that, this snapshot would see an empty table.
    assert_eq!(ids(&mut earlier, "raw.t"), "1,2");
    let pages = "SELECT pg_relation_size('raw.t') = current_setting('block_size')::int";
    assert_eq!(one(&mut client, pages), "true");
    replace(&mut to, "p", &rows).unwrap();
    assert_eq!(ids(&mut client, "raw.p"), "1,2");
}

#[test]
fn truncate_is_refused_where_a_foreign_key_refers_to_the_table() {
    let database = database();
    database
        .client()
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text); \
             CREATE TABLE raw.other (id int8 CONSTRAINT there REFERENCES raw.t)",
        )
        .unwrap();
    let config = serde_json::json!({"schema": "raw", "replace_method": "truncate"});
    let mut to = open_with(&database.url(), config);
    let target = target("t", &batch(&[]).schema(), WriteMode::Replace);
    let error = to.plan(&target).unwrap_err();
    assert_eq!(error.code, "replace_not_possible");
    assert!(error.message.contains("there of raw.other"), "{error:?}");
}

#[test]
fn a_role_whose_transactions_are_serializable_loads_all_the_same() {
    let database = database();
    let url = format!(
        "{}?options=-c%20default_transaction_isolation%3Dserializable",
        database.url()
    );
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); INSERT INTO raw.t VALUES (7)",
        )
        .unwrap();
    let mut to = open_with(&url, serde_json::json!({"schema": "raw"}));
    let rows = batch(&[1, 2]);
    let mut load = begin(&mut to, &target("t", &rows.schema(), WriteMode::Replace)).unwrap();
    load.write(&rows).unwrap();
    let isolation = "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock'";
    assert_eq!(one(&mut client, isolation), "0");
    let part = load.flush().unwrap();
    load.commit(whole("t", vec![part], 0)).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
}

#[test]
fn a_trigger_that_has_much_to_say_holds_up_nobody() {
    // Far more than sockets hold, there and, if it were said, back.
    const ROWS: usize = 30_000;
    let database = database();
    database
        .client()
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (c text); \
             CREATE FUNCTION raw.tell() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE WARNING ''%'', repeat(''x'', 1000); RETURN NEW; END'; \
             CREATE TRIGGER tell BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.tell()",
        )
        .unwrap();
    let text = "x".repeat(1000);
    let rows = texts(&[("c", &vec![Some(text.as_str()); ROWS])]);
    for method in ["insert", "copy"] {
        let config = serde_json::json!({
            "schema": "raw", "load_method": method, "insert_rows": 1000, "copy_flush_bytes": 8 << 20,
            "write_timeout": 20,
        });
        let mut to = open_with(&database.url(), config);
        assert_eq!(append(&mut to, "t", &rows).unwrap().rows, ROWS as u64);
    }
}
