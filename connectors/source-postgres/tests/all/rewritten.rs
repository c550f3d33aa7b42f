//! Tables that are rewritten while a snapshot waits for them: their rows are read or the read is
//! refused, and never is a table with rows taken for an empty one.

use std::sync::mpsc;

use crate::common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Database, shared};
use source_postgres::Postgres;

/// Statements that rewrite `t` and keep its five rows.
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
fn a_read_that_waited_for_a_rewrite_has_its_rows() {
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
fn a_table_with_some_readable_columns_has_its_rows_too() {
    let role = "CREATE ROLE some_columns LOGIN PASSWORD 'secret'";
    // Tests share the server and its roles, so the role may exist already.
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
                // Waits behind the session's lock. The reader waits behind this statement, or is refused because of it.
                let mut writer = database.client();
                tell.send(()).unwrap();
                writer
                    .batch_execute(&format!("BEGIN; {}; COMMIT", REWRITES[1]))
                    .unwrap();
            });
            told.recv().unwrap();
            someone_waits(&database);
            let reading = scope.spawn(|| {
                // It waits until the test has ended the session.
                let config = format!(
                    r#"{{"url": "{}", "options": "-c lock_timeout=10min"}}"#,
                    database.url()
                );
                let mut other = rapidbyte_sdk::source::open::<Postgres>(&config).unwrap();
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

/// `t` is read by functions alone: nothing names it before they are called.
fn hidden() -> Database<'static> {
    let database = database();
    let sql = "CREATE TABLE u AS SELECT g AS id FROM generate_series(1, 5) g;
        CREATE TABLE other (id int);
        CREATE FUNCTION public.f() RETURNS SETOF public.t LANGUAGE plpgsql STABLE AS
            'BEGIN RETURN QUERY SELECT * FROM public.t; END';
        CREATE FUNCTION public.has(int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 100000 AS
            'BEGIN RETURN EXISTS (SELECT FROM public.t WHERE id = $1); END';
        CREATE VIEW fv AS SELECT id FROM f();
        CREATE VIEW fw AS SELECT id FROM u WHERE has(id);
        CREATE VIEW uw AS TABLE fw";
    database.client().batch_execute(sql).unwrap();
    database
}

/// Streams and queries that read `t` of [`hidden`], each with its condition.
const HIDDEN: [(&str, Option<&str>); 6] = [
    ("public.fv", None),
    ("public.fw", None),
    ("public.u", Some("public.has(id)")),
    // The letters of no function are in it.
    ("TABLE public.uw", None),
    ("SELECT u.id FROM public.u JOIN public.fv USING (id)", None),
    ("SELECT id FROM public.u WHERE public.has(id)", None),
];

fn ids(stream: &str, filter: Option<&str>) -> Selection {
    Selection {
        columns: Some(vec!["id".into()]),
        filter: filter.map(Into::into),
        query: stream.contains(' ').then(|| stream.into()),
        ..whole(stream)
    }
}

fn reading(selection: &Selection, snapshot: &str) -> ReadRequest {
    ReadRequest {
        columns: selection.columns.clone(),
        filter: selection.filter.clone(),
        query: selection.query.clone(),
        increment: selection.increment.clone(),
        snapshot: snapshot.into(),
        batch_bytes: 1,
        ..request(&selection.stream)
    }
}

fn assert_outdated(error: &Error, what: &str) {
    assert_eq!(
        (error.code.as_str(), kind(error).as_str()),
        ("snapshot_outdated", "Transient"),
        "{what}: {error:?}"
    );
    assert!(error.message.contains("public.t "), "{what}: {error:?}");
}

#[test]
fn a_table_that_a_function_reads_is_not_taken_for_an_empty_one() {
    for (stream, filter) in HIDDEN {
        for is_shared in [true, false] {
            for rewrite in ["", REWRITES[0], REWRITES[1]] {
                let what = format!("{stream}, shared: {is_shared}: {rewrite}");
                let database = hidden();
                let mut session = open(&database.url());
                let mut selections = vec![ids(stream, filter)];
                if is_shared {
                    selections.push(whole("public.other"));
                }
                let snapshot = session.snapshot(&selections).unwrap();
                let request = reading(&selections[0], &snapshot);
                let sql = format!("BEGIN; {rewrite}; COMMIT");
                database.client().batch_execute(&sql).unwrap();
                let mut joined = open(&database.url());
                let source = if is_shared { &mut joined } else { &mut session };
                match read(source, &request) {
                    Ok(batches) if rewrite.is_empty() => {
                        assert_eq!(ints(&batches, 0), [1, 2, 3, 4, 5], "{what}");
                    }
                    Ok(batches) => panic!("{what}: {} rows", rows(&batches)),
                    Err(error) => assert_outdated(&error, &what),
                }
            }
        }
    }
}

/// A worker's locks end with it, and nobody could see any more what it read.
#[test]
fn nor_is_one_that_a_parallel_worker_reads() {
    let database = hidden();
    let name = database.name();
    let settings = [
        "min_parallel_table_scan_size = 0",
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "parallel_leader_participation = off",
    ];
    for setting in settings {
        let sql = format!("ALTER DATABASE {name} SET {setting}");
        database.client().batch_execute(&sql).unwrap();
    }
    // A new session has the settings.
    let plan = database.client().query("EXPLAIN SELECT * FROM fw", &[]);
    let plan: Vec<String> = plan.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(plan.concat().contains("Gather"), "{plan:?}");
    for (stream, filter) in HIDDEN {
        let mut session = open(&database.url());
        let selection = ids(stream, filter);
        let snapshot = session.snapshot(std::slice::from_ref(&selection)).unwrap();
        database
            .client()
            .batch_execute(&format!("BEGIN; {}; COMMIT", REWRITES[1]))
            .unwrap();
        let error = read(&mut session, &reading(&selection, &snapshot)).unwrap_err();
        assert_outdated(&error, stream);
    }
}

/// No checkpoint commits rows that a function let through before they are known to be right.
#[test]
fn no_checkpoint_follows_rows_that_a_function_chose_from_an_empty_table() {
    let grown = "INSERT INTO t SELECT g, g FROM generate_series(6, 5000) g;
        INSERT INTO u SELECT g FROM generate_series(6, 5000) g;
        CREATE VIEW fz AS SELECT id FROM u WHERE id % 2 = 0 OR has(id)";
    let streams = [
        ("public.fz", None),
        ("public.u", Some("id % 2 = 0 OR PUBLIC.Has(id)")),
    ];
    for (stream, filter) in streams {
        let database = hidden();
        database.client().batch_execute(grown).unwrap();
        let mut source = open_narrow(&database.url());
        let selection = Selection {
            increment: Some(ordered(&["id"], false)),
            ..ids(stream, filter)
        };
        let given = increase(&mut source, &reading(&selection, "")).unwrap();
        assert_eq!((given.ids.len(), given.checkpoints.len()), (5000, 1));
        assert!(given.batches > 1);
        given.cursor();
        let snapshot = source.snapshot(std::slice::from_ref(&selection)).unwrap();
        database.client().batch_execute("TRUNCATE t").unwrap();
        let mut reader = source.read(&reading(&selection, &snapshot)).unwrap();
        let mut given = 0;
        let error = loop {
            match reader.next(WAIT) {
                Ok(Event::Batch(batch)) => given += batch.num_rows(),
                Ok(Event::Idle) => {}
                Ok(event) => panic!("{stream}: {event:?} behind {given} rows"),
                Err(error) => break error,
            }
        };
        assert_outdated(&error, stream);
        assert!(given > 0, "{stream}");
    }
}

/// A change waits for the session of the snapshot and keeps the readers off: the read reports the change and does not
/// wait.
#[test]
fn a_change_that_queues_for_something_below_a_stream_ends_its_read() {
    for (stream, filter, change, name) in [
        ("public.v", None, "TRUNCATE t", "public.t "),
        (
            "public.v",
            None,
            "ALTER VIEW v RENAME COLUMN id TO x",
            "public.v ",
        ),
        ("public.m", None, "REFRESH MATERIALIZED VIEW m", "public.m "),
        (
            "public.u",
            Some("id IN (SELECT id FROM public.t)"),
            "TRUNCATE t",
            "public.t ",
        ),
        ("public.u", None, "REINDEX INDEX ui", "public.ui "),
        ("public.t", None, "TRUNCATE t", "public.t "),
    ] {
        // Each wait takes the connector's seconds where `options` name none.
        let (patience, reused) = match stream {
            "public.v" => ("", &[false, true][..]),
            _ => ("-c lock_timeout=200ms", &[true][..]),
        };
        for &is_reused in reused {
            let database = hidden();
            let sql = "CREATE MATERIALIZED VIEW m AS SELECT id FROM t; CREATE INDEX ui ON u (id)";
            database.client().batch_execute(sql).unwrap();
            let mut session = open(&database.url());
            let selection = ids(stream, filter);
            let both = [selection.clone(), whole("public.other")];
            let snapshot = session.snapshot(&both).unwrap();
            let config = format!(
                r#"{{"url": "{}", "read_timeout": 20, "options": "{patience}"}}"#,
                database.url()
            );
            let mut reader = rapidbyte_sdk::source::open::<Postgres>(&config).unwrap();
            if is_reused {
                read(&mut reader, &reading(&both[1], &snapshot)).unwrap();
            }
            let error = std::thread::scope(|scope| {
                let database = &database;
                scope.spawn(|| database.client().batch_execute(change).unwrap());
                someone_waits(database);
                let outcome = read(&mut reader, &reading(&selection, &snapshot));
                drop((session, reader));
                outcome.unwrap_err()
            });
            assert_eq!(error.code, "lock_queued", "{stream}, {change}: {error:?}");
            for part in [name, "process ", change] {
                assert!(error.message.contains(part), "{part}: {error:?}");
            }
        }
    }
}

/// The reader that called the function first keeps the lock of its table, and begins nothing meanwhile.
#[test]
fn a_change_that_queues_for_a_table_of_a_function_ends_the_read() {
    let database = hidden();
    let mut session = open(&database.url());
    let selection = ids("public.fv", None);
    let both = [selection.clone(), whole("public.other")];
    let snapshot = session.snapshot(&both).unwrap();
    let mut first = open(&database.url());
    read(&mut first, &reading(&selection, &snapshot)).unwrap();
    let config = format!(r#"{{"url": "{}", "read_timeout": 30}}"#, database.url());
    let mut second = rapidbyte_sdk::source::open::<Postgres>(&config).unwrap();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| database.client().batch_execute("TRUNCATE t").unwrap());
        someone_waits(&database);
        let outcome = read(&mut second, &reading(&selection, &snapshot));
        drop((session, first, second));
        outcome.unwrap_err()
    });
    assert_eq!(error.code, "lock_queued", "{error:?}");
    for part in ["public.t ", "process ", "TRUNCATE t"] {
        assert!(error.message.contains(part), "{part}: {error:?}");
    }
}
