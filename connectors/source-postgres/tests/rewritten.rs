//! Tables that are rewritten while a snapshot waits for them: their rows are read or the read is
//! refused, and never is a table with rows taken for an empty one.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::sync::mpsc;

use common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Database, shared};
use source_postgres::Postgres;

/// What rewrites `t`, and keeps its five rows.
const REWRITES: [&str; 3] = [
    "ALTER TABLE t ALTER n TYPE bigint",
    "CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM t; TRUNCATE t; INSERT INTO t SELECT * FROM kept",
    "CREATE TABLE new (id int, n int); INSERT INTO new SELECT * FROM t; DROP TABLE t CASCADE; \
     ALTER TABLE new RENAME TO t; CREATE VIEW v AS SELECT id FROM t; GRANT SELECT (id) ON t TO PUBLIC",
];

fn database() -> Database<'static> {
    let database = shared().database();
    let sql = "CREATE TABLE t (id int, n int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g; \
               CREATE VIEW v AS SELECT id FROM t; GRANT SELECT (id) ON t TO PUBLIC";
    database.client().batch_execute(sql).unwrap();
    database
}

/// Returns when a session other than the two of a test waits for a lock.
fn someone_waits(database: &Database<'_>) {
    let mut client = database.client();
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
               AND datname = current_database())";
    while !client.query_one(sql, &[]).unwrap().get::<_, bool>(0) {
        std::thread::yield_now();
    }
}

/// Does something while another session rewrites the table and has not committed yet.
fn beside<T: Send>(database: &Database<'_>, rewrite: &str, act: impl FnOnce() -> T + Send) -> T {
    let mut client = database.client();
    client.batch_execute(&format!("BEGIN; {rewrite}")).unwrap();
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        someone_waits(database);
        client.batch_execute("COMMIT").unwrap();
        acting.join().unwrap()
    })
}

/// The ids of a stream as a run reads it: under the snapshot of a session.
fn run(source: &mut Postgres, stream: &str) -> Vec<i32> {
    let selections = [Selection {
        columns: Some(vec!["id".into()]),
        ..whole(stream)
    }];
    let snapshot = source.snapshot(&selections).unwrap();
    let request = ReadRequest {
        snapshot,
        ..columns(stream, &["id"])
    };
    ints(&read(source, &request).unwrap(), 0)
}

#[test]
fn what_was_waited_for_has_its_rows() {
    for rewrite in REWRITES {
        for stream in ["public.t", "public.v"] {
            for is_known in [false, true] {
                let database = database();
                let mut source = open(&database.url());
                if is_known {
                    source.discover(&[]).unwrap();
                }
                let ids = beside(&database, rewrite, || run(&mut source, stream));
                assert_eq!(
                    ids,
                    [1, 2, 3, 4, 5],
                    "{stream}, known: {is_known}: {rewrite}"
                );
            }
        }
    }
}

#[test]
fn so_has_a_table_of_which_some_columns_may_be_read() {
    let role = "CREATE ROLE some_columns LOGIN PASSWORD 'secret'";
    // The server is shared, and so are its roles.
    let _ = shared().database().client().batch_execute(role);
    for rewrite in REWRITES {
        let database = database();
        let mut source = open(&as_role(&database.url(), "some_columns"));
        source.discover(&[]).unwrap();
        let ids = beside(&database, rewrite, || run(&mut source, "public.t"));
        assert_eq!(ids, [1, 2, 3, 4, 5], "{rewrite}");
    }
}

/// Without a snapshot that others share.
#[test]
fn a_read_alone_takes_no_table_for_an_empty_one() {
    for stream in ["public.t", "public.v"] {
        let database = database();
        let mut source = open(&database.url());
        let request = columns(stream, &["id"]);
        let outcome = beside(&database, REWRITES[1], || read(&mut source, &request));
        match outcome {
            Ok(batches) => assert_eq!(ints(&batches, 0), [1, 2, 3, 4, 5], "{stream}"),
            Err(error) => assert_eq!(
                (error.code.as_str(), kind(&error).as_str()),
                ("snapshot_outdated", "Transient"),
                "{stream}"
            ),
        }
    }
}

/// The session of the snapshot ends, and its locks with it, while a reader has joined.
#[test]
fn a_reader_whose_session_ended_takes_no_table_for_an_empty_one() {
    for stream in ["public.t", "public.v"] {
        let database = database();
        let mut client = database.client();
        let mut session = open(&database.url());
        let both = [whole("public.t"), whole("public.v")];
        let snapshot = session.snapshot(&both).unwrap();
        let pid: i32 = client
            .query_one(
                "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' \
                 AND datname = current_database()",
                &[],
            )
            .unwrap()
            .get(0);
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Behind the session's lock; the reader waits behind this, or is told of it.
                let mut writer = database.client();
                tell.send(()).unwrap();
                writer
                    .batch_execute(&format!("BEGIN; {}; COMMIT", REWRITES[1]))
                    .unwrap();
            });
            told.recv().unwrap();
            someone_waits(&database);
            let reading = scope.spawn(|| {
                let mut other = open(&database.url());
                let request = ReadRequest {
                    snapshot: snapshot.clone(),
                    ..columns(stream, &["id"])
                };
                read(&mut other, &request)
            });
            let is_refused = stream == "public.t";
            let waiting =
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass";
            while !is_refused && client.query_one(waiting, &[]).unwrap().get::<_, i64>(0) < 2 {
                std::thread::yield_now();
            }
            let code = if is_refused {
                // It does not wait behind what waits for the run itself.
                let outcome = reading.join().unwrap();
                client
                    .execute("SELECT pg_terminate_backend($1)", &[&pid])
                    .unwrap();
                outcome.unwrap_err().code
            } else {
                client
                    .execute("SELECT pg_terminate_backend($1)", &[&pid])
                    .unwrap();
                reading.join().unwrap().unwrap_err().code
            };
            let expected = if is_refused {
                "lock_queued"
            } else {
                "snapshot_outdated"
            };
            assert_eq!(code, expected, "{stream}");
        });
    }
}
