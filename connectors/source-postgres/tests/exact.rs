//! Incremental reads by windows of transaction ids.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "all/common/mod.rs"]
mod common;

use common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Auth, Options, Server, shared};

const NOTHING: [i32; 0] = [];

#[test]
fn late_commits_come_once_and_savepoints_with_them() {
    // Of its own: transactions of other tests would hold rows back.
    let options = Options {
        conf: vec!["max_prepared_transactions = 2".into()],
        ..Options::default()
    };
    let server = Server::start(&options).unwrap();
    let database = server.database();
    let [mut a, mut b, mut c] = [(); 3].map(|()| database.client());
    run(
        &mut a,
        "CREATE TABLE t (id int, v int); INSERT INTO t VALUES (1)",
    );
    let mut source = open(&database.url());
    let mut cursor = None;
    // An id that is low and commits late; a high one that commits early.
    run(&mut a, "BEGIN; INSERT INTO t VALUES (2)");
    run(&mut b, "INSERT INTO t VALUES (3)");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [1]);
    // Held back as long as the older one is at work: not lost, not twice.
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    run(&mut a, "COMMIT");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [2, 3]);
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    // Savepoints have ids of their own, above those that others got meanwhile.
    run(&mut a, "BEGIN; INSERT INTO t VALUES (4); SAVEPOINT s");
    run(&mut b, "BEGIN; INSERT INTO t VALUES (5)");
    run(
        &mut a,
        "INSERT INTO t VALUES (6); SAVEPOINT r; INSERT INTO t VALUES (7); ROLLBACK TO r; INSERT INTO t VALUES (8); RELEASE s; COMMIT",
    );
    assert_eq!(step(&mut source, "public.t", &mut cursor), [4]);
    run(&mut c, "INSERT INTO t VALUES (9)");
    run(&mut b, "COMMIT");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [5, 6, 8, 9]);
    // A version that was updated before it was read is one row; deletes are invisible.
    run(
        &mut a,
        "INSERT INTO t VALUES (10); UPDATE t SET v = 1 WHERE id IN (10, 1); DELETE FROM t WHERE id = 2",
    );
    assert_eq!(step(&mut source, "public.t", &mut cursor), [1, 10]);
    // A long transaction delays what was written beside it.
    run(&mut a, "BEGIN; SELECT txid_current()");
    for id in 11..=13 {
        run(&mut b, &format!("INSERT INTO t VALUES ({id})"));
        assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    }
    run(&mut a, "ROLLBACK");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [11, 12, 13]);
    // A prepared transaction is at work until it is committed, although no session runs it.
    run(
        &mut a,
        "BEGIN; INSERT INTO t VALUES (20); PREPARE TRANSACTION 'p'",
    );
    run(&mut b, "INSERT INTO t VALUES (21)");
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    run(&mut c, "COMMIT PREPARED 'p'");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [20, 21]);
    // VACUUM FREEZE and VACUUM FULL keep ids.
    run(&mut b, "INSERT INTO t VALUES (14)");
    run(&mut b, "VACUUM (FREEZE) t");
    run(&mut b, "VACUUM FULL t");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [14]);
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    // Without its order, and with a filter.
    run(&mut b, "INSERT INTO t VALUES (15), (16)");
    let request = ReadRequest {
        filter: Some("id = 16 -- only".into()),
        ..news("public.t", &exact(true), cursor.as_deref())
    };
    assert_eq!(increase(&mut source, &request).unwrap().sorted(), [16]);
    assert_eq!(step(&mut source, "public.t", &mut cursor), [15, 16]);
}

#[test]
fn a_first_read_leaves_out_what_has_not_settled() {
    let server = Server::start(&Options::default()).unwrap();
    let database = server.database();
    let [mut a, mut b] = [(); 2].map(|()| database.client());
    run(&mut a, "CREATE TABLE t (id int); INSERT INTO t VALUES (1)");
    run(&mut a, "BEGIN; INSERT INTO t VALUES (2)");
    run(&mut b, "INSERT INTO t VALUES (3)");
    let mut source = open(&database.url());
    // One snapshot for the run: what commits after it belongs to the next.
    let selection = Selection {
        increment: Some(exact(false)),
        ..whole("public.t")
    };
    let snapshot = source.snapshot(&[selection]).unwrap();
    run(&mut a, "COMMIT");
    let mut request = news("public.t", &exact(false), None);
    request.snapshot = snapshot;
    let first = increase(&mut source, &request).unwrap();
    assert_eq!(first.ids, [1]);
    let mut cursor = Some(first.cursor().to_owned());
    assert_eq!(step(&mut source, "public.t", &mut cursor), [2, 3]);
}

#[test]
fn partitions_may_come_and_go() {
    let server = Server::start(&Options::default()).unwrap();
    let database = server.database();
    let mut client = database.client();
    run(
        &mut client,
        "CREATE TABLE p (id int) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE TABLE p2 (id int); INSERT INTO p2 VALUES (11), (12);
         CREATE TABLE q (id int) PARTITION BY RANGE (id);
         INSERT INTO p VALUES (1)",
    );
    let mut source = open(&database.url());
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.p", &mut cursor), [1]);
    // With rows that are older than the cursor.
    run(
        &mut client,
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20); INSERT INTO p VALUES (2)",
    );
    assert_eq!(step(&mut source, "public.p", &mut cursor), [2, 11, 12]);
    assert_eq!(step(&mut source, "public.p", &mut cursor), NOTHING);
    run(
        &mut client,
        "INSERT INTO p VALUES (13), (3); CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30); INSERT INTO p VALUES (21)",
    );
    assert_eq!(step(&mut source, "public.p", &mut cursor), [3, 13, 21]);
    run(
        &mut client,
        "ALTER TABLE p DETACH PARTITION p2; INSERT INTO p2 VALUES (14); DROP TABLE p3",
    );
    assert_eq!(step(&mut source, "public.p", &mut cursor), NOTHING);
    assert!(
        cursor.as_ref().unwrap().contains("\"gone\":["),
        "{cursor:?}"
    );
    run(
        &mut client,
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
    );
    let request = news("public.p", &exact(false), cursor.as_deref());
    let error = refused(&mut source, &request);
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("table_reattached", "Schema")
    );
    let given = increase(
        &mut source,
        &news("public.p", &exact(true), cursor.as_deref()),
    )
    .unwrap();
    assert_eq!(given.sorted(), [11, 12, 13, 14]);
    // Without any partition.
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.q", &mut cursor), NOTHING);
    run(
        &mut client,
        "CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (10); INSERT INTO q VALUES (5)",
    );
    assert_eq!(step(&mut source, "public.q", &mut cursor), [5]);
    // Children of a table that has rows of its own.
    run(
        &mut client,
        "CREATE TABLE parent (id int); INSERT INTO parent VALUES (1);
        CREATE TABLE child () INHERITS (parent); INSERT INTO child VALUES (2)",
    );
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.parent", &mut cursor), [1, 2]);
    run(
        &mut client,
        "INSERT INTO child VALUES (3); INSERT INTO parent VALUES (4)",
    );
    assert_eq!(step(&mut source, "public.parent", &mut cursor), [3, 4]);
}

#[test]
fn a_table_that_is_written_anew_is_not_taken_for_new_rows() {
    let server = Server::start(&Options::default()).unwrap();
    let database = server.database();
    let mut client = database.client();
    run(
        &mut client,
        "CREATE TABLE t (id int, a varchar(5)); INSERT INTO t VALUES (1), (2)",
    );
    let mut source = open(&database.url());
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.t", &mut cursor), [1, 2]);
    // These keep the rows as they are.
    run(
        &mut client,
        "ALTER TABLE t ADD b int DEFAULT 7; ALTER TABLE t ALTER a TYPE varchar(9); ALTER TABLE t DROP b",
    );
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    // This is new rows.
    run(&mut client, "TRUNCATE t; INSERT INTO t VALUES (3)");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [3]);
    for change in [
        "ALTER TABLE t ADD c timestamptz DEFAULT clock_timestamp()",
        "ALTER TABLE t ALTER a TYPE int USING 1",
        "ALTER TABLE t SET UNLOGGED",
    ] {
        run(&mut client, change);
        let error = refused(
            &mut source,
            &news("public.t", &exact(false), cursor.as_deref()),
        );
        assert_eq!(error.code, "table_rewritten", "{change}");
        assert!(error.hint.unwrap().contains("--full-refresh"));
        // An upsert takes them once more.
        let given = increase(
            &mut source,
            &news("public.t", &exact(true), cursor.as_deref()),
        );
        let given = given.unwrap();
        assert_eq!(given.ids, [3], "{change}");
        cursor = Some(given.cursor().to_owned());
    }
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
}

#[test]
fn a_table_that_is_made_anew_is_not_taken_for_new_rows() {
    let server = Server::start(&Options::default()).unwrap();
    let database = server.database();
    let mut client = database.client();
    run(
        &mut client,
        "CREATE TABLE t (id int); INSERT INTO t VALUES (1)",
    );
    let mut source = open(&database.url());
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.t", &mut cursor), [1]);
    run(
        &mut client,
        "DROP TABLE t; CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)",
    );
    let selection = Selection {
        increment: Some(Increment {
            cursor_fields: Vec::new(),
            initial: None,
            late_rows: LateRows::Exact,
            allow_duplicates: false,
        }),
        cursor,
        ..whole("public.t")
    };
    let error = source.snapshot(&[selection]).unwrap_err();
    assert_eq!(error.code, "table_recreated", "{error:?}");
}

#[test]
fn relations_without_transaction_ids_are_refused() {
    let database = shared().database();
    let mut client = database.client();
    run(
        &mut client,
        "CREATE TABLE t (id int); CREATE VIEW v AS SELECT id FROM t;
         CREATE MATERIALIZED VIEW m AS SELECT id FROM t",
    );
    let mut source = open(&database.url());
    for stream in ["public.v", "public.m"] {
        let selection = Selection {
            increment: Some(exact(true)),
            ..whole(stream)
        };
        for error in [
            source.snapshot(&[selection]).unwrap_err(),
            refused(&mut source, &news(stream, &exact(true), None)),
        ] {
            assert_eq!(
                (error.code.as_str(), kind(&error).as_str()),
                ("exact_unsupported", "Config")
            );
        }
    }
    let mut increment = exact(true);
    increment.initial = Some(vec!["1".into()]);
    let error = refused(&mut source, &news("public.t", &increment, None));
    assert_eq!(error.code, "invalid_cursor_initial");
    let first = increase(&mut source, &news("public.t", &exact(true), None)).unwrap();
    let cursor = first.cursor();
    let error = refused(
        &mut source,
        &news("public.t", &ordered(&["id"], true), Some(cursor)),
    );
    assert_eq!(error.code, "cursor_changed");
    // Of another server, another database, another life of the server, and of the future.
    let value = |key: &str| {
        let parsed: serde_json::Value = serde_json::from_str(cursor).unwrap();
        format!("\"{key}\":{}", parsed[key])
    };
    for (key, other, code) in [
        ("system", "\"1\"", "cursor_changed"),
        ("database", "1", "cursor_changed"),
        ("timeline", "\"00000002\"", "cursor_changed"),
        ("next", "\"9000000000\"", "cursor_ahead"),
    ] {
        let changed = cursor.replace(&value(key), &format!("\"{key}\":{other}"));
        assert_ne!(changed, cursor);
        let error = refused(&mut source, &news("public.t", &exact(true), Some(&changed)));
        assert_eq!(error.code, code, "{key}");
    }
}

#[test]
fn a_role_that_may_not_identify_the_server_gets_the_grant() {
    let server = Server::start(&Options {
        auth: Auth::Trust,
        ..Options::default()
    })
    .unwrap();
    let mut client = server.client("postgres");
    run(
        &mut client,
        "CREATE ROLE reader LOGIN; CREATE TABLE t (id int); GRANT SELECT ON t TO reader;
         REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
    );
    let mut source = open(&as_role(&server.url("postgres"), "reader"));
    let error = refused(&mut source, &news("public.t", &exact(false), None));
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("pg_42501", "Auth")
    );
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system()"),
        "{hint}"
    );
    run(
        &mut client,
        "GRANT EXECUTE ON FUNCTION pg_control_system() TO reader",
    );
    increase(&mut source, &news("public.t", &exact(false), None)).unwrap();
}

#[test]
fn windows_continue_when_the_counter_begins_anew() {
    let mut server = Server::start(&Options::default()).unwrap();
    let mut client = server.client("postgres");
    run(
        &mut client,
        "CREATE TABLE old (id int); INSERT INTO old VALUES (1)",
    );
    run(&mut client, "VACUUM (FREEZE)");
    drop(client);
    // The last 32768 of the round.
    if !server.move_transaction_id(0, 0u32.wrapping_sub(32_768)) {
        eprintln!("skipped: there is no pg_resetwal");
        return;
    }
    let mut client = server.client("postgres");
    run(
        &mut client,
        "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)",
    );
    let mut source = open(&server.url("postgres"));
    // Written four thousand million transactions ago, as far as anybody can tell.
    let selection = Selection {
        increment: Some(exact(true)),
        ..whole("public.old")
    };
    for error in [
        source.snapshot(&[selection]).unwrap_err(),
        refused(&mut source, &news("public.old", &exact(true), None)),
    ] {
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            ("exact_ambiguous", "Config")
        );
        assert!(error.message.contains("public.old"), "{error:?}");
    }
    let mut cursor = None;
    assert_eq!(step(&mut source, "public.t", &mut cursor), [1, 2]);
    run(&mut client, "INSERT INTO t VALUES (3)");
    run(
        &mut client,
        "CREATE TABLE burnt (id int); DO $$ BEGIN FOR i IN 1..32800 LOOP
            BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN others THEN NULL; END;
         END LOOP; END $$",
    );
    run(&mut client, "INSERT INTO t VALUES (4)");
    let ids = "SELECT min(xmin::text::int8), max(xmin::text::int8) FROM t";
    let row = client.query_one(ids, &[]).unwrap();
    let (low, high): (i64, i64) = (row.get(0), row.get(1));
    assert!(low < 10_000 && high > 4_294_000_000, "{low} {high}");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [3, 4]);
    run(&mut client, "INSERT INTO t VALUES (5)");
    assert_eq!(step(&mut source, "public.t", &mut cursor), [5]);
    assert_eq!(step(&mut source, "public.t", &mut cursor), NOTHING);
    let next = cursor.unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&next).unwrap();
    assert!(parsed["next"].as_str().unwrap().parse::<u64>().unwrap() > 1 << 32);
    // Too many transactions ago.
    let first = format!("\"first\":{}", parsed["first"]);
    let early = next.replace(&first, "\"first\":\"2147480000\"");
    let error = refused(&mut source, &news("public.t", &exact(true), Some(&early)));
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("cursor_too_old", "Config")
    );
}
