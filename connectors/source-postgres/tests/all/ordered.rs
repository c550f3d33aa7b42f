//! Incremental reads in the order of columns.

use crate::common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Client, Copied, Options, Server, shared};
use source_postgres::Postgres;

#[test]
fn random_tables_with_ties_and_nulls_resume_at_every_checkpoint() {
    let database = shared().database();
    let mut client = database.client();
    let mut source = open_narrow(&database.url());
    let mut random = Random::seeded();
    let mut seen = 0;
    for round in 0..40 {
        let rows = [0, 1, 3, 80, 200][random.below(5) as usize];
        let (ties, nulls) = (1 + random.below(12), random.below(3) * 20);
        let mut values = Vec::new();
        for id in 0..rows {
            let mut value = |text: String| {
                if random.below(100) < nulls {
                    "NULL".to_owned()
                } else {
                    text
                }
            };
            let (a, b) = (
                value(format!("{}", id % ties)),
                value(format!("'k{}'", (id * 7) % 5)),
            );
            let c = value(format!("'{}'::timestamptz + '{} us'", "2026-11-21", id / 3));
            values.push(format!("({a}, {b}, {c})"));
        }
        let table = format!("t{round}");
        let mut sql = format!(
            "CREATE TABLE {table} (id serial, a int, b text, c timestamptz,
                pad text DEFAULT repeat('x', 500))"
        );
        if !values.is_empty() {
            let values = values.join(", ");
            sql += &format!("; INSERT INTO {table} (a, b, c) VALUES {values}");
        }
        if random.below(2) == 0 {
            sql += &format!("; CREATE INDEX ON {table} (a, b); CREATE INDEX ON {table} (c)");
        }
        client.batch_execute(&sql).unwrap();
        let fields = [
            &["a"][..],
            &["a", "b"],
            &["b", "a", "c"],
            &["c"],
            &["c", "id"],
        ];
        let fields = fields[random.below(5) as usize];
        for allow_duplicates in [false, true] {
            let stream = format!("public.{table}");
            let given =
                resumes_everywhere(&mut source, &stream, &ordered(fields, allow_duplicates));
            assert_eq!(given.ids.len() as u64, rows, "{table}");
            seen += given.checkpoints.len();
        }
    }
    assert!(seen > 100, "{seen} checkpoints");
}

#[test]
fn ties_stream_through_and_are_never_split() {
    let database = shared().database();
    let sql = "CREATE TABLE t (id int, day date NOT NULL, pad text);
        INSERT INTO t SELECT i, '2026-11-20', repeat('x', 400) FROM generate_series(1, 20) i;
        INSERT INTO t SELECT i, '2026-11-21', repeat('x', 400) FROM generate_series(21, 5000) i;
        INSERT INTO t SELECT i, '2026-11-22', repeat('x', 400) FROM generate_series(5001, 5003) i";
    database.client().batch_execute(sql).unwrap();
    let mut source = open_narrow(&database.url());
    let given = resumes_everywhere(&mut source, "public.t", &ordered(&["day"], false));
    assert!(given.batches > 30, "{}", given.batches);
    let places: Vec<usize> = given.checkpoints.iter().map(|(rows, _)| *rows).collect();
    assert_eq!(places, [20, 5000, 5003]);
}

#[test]
fn rows_without_a_value_come_once() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute("CREATE TABLE t (id int, a int, b int); INSERT INTO t VALUES (1, NULL, 1), (2, 1, NULL), (3, NULL, NULL)")
        .unwrap();
    let mut source = open(&database.url());
    let increment = ordered(&["a", "b"], false);
    let first = increase(&mut source, &news("public.t", &increment, None)).unwrap();
    assert_eq!(first.sorted(), [1, 2, 3]);
    assert!(first.cursor().contains("\"values\":null"), "{first:?}");
    client
        .batch_execute("INSERT INTO t VALUES (4, NULL, NULL), (5, 1, 1)")
        .unwrap();
    let second = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(second.ids, [5]);
    client
        .batch_execute("UPDATE t SET a = 2, b = 2 WHERE id = 4; INSERT INTO t VALUES (6, NULL, 9)")
        .unwrap();
    let third = increase(
        &mut source,
        &news("public.t", &increment, Some(second.cursor())),
    )
    .unwrap();
    assert_eq!(third.ids, [4]);
    // Nothing came: the same cursor, letter by letter.
    let last = increase(
        &mut source,
        &news("public.t", &increment, Some(third.cursor())),
    )
    .unwrap();
    assert!(last.ids.is_empty());
    assert_eq!(last.cursor(), third.cursor());
    // Nothing at all leaves a cursor too.
    client
        .batch_execute("CREATE TABLE nothing (id int)")
        .unwrap();
    let given = increase(
        &mut source,
        &news("public.nothing", &ordered(&["id"], true), None),
    )
    .unwrap();
    assert!(given.cursor().contains("null"));
    // No column can be NULL: one part, and an initial value does not leave them out.
    let mut increment = ordered(&["a"], false);
    increment.initial = Some(vec!["2".into()]);
    let given = increase(&mut source, &news("public.t", &increment, None)).unwrap();
    assert_eq!(given.sorted(), [1, 3, 4, 6]);
    assert_eq!(given.ids[3], 4);
}

#[test]
fn a_lag_reads_again_and_the_cursor_never_goes_back() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE TABLE t (id int, at timestamptz, n smallint, f real, q numeric, d date);
             INSERT INTO t SELECT i, '2026-11-21 10:00+00'::timestamptz + i * '1 minute'::interval,
                i - 32768, i, i, '2026-11-01'::date + i FROM generate_series(0, 20) i",
        )
        .unwrap();
    let mut source = open(&database.url());
    for (field, lag, expected) in [
        ("at", Some("5 minutes"), 15..=20),
        ("at", Some("300.5 s"), 15..=20),
        ("at", Some("0 s"), 20..=20),
        ("at", None, 20..=20),
        ("at", Some("1 year"), 0..=20),
        ("n", Some("3"), 17..=20),
        ("n", Some("1000"), 0..=20),
        ("f", Some("2.5"), 18..=20),
        ("q", Some("0.5"), 20..=20),
        ("d", Some("25 hours"), 18..=20),
    ] {
        let mut increment = ordered(&[field, "id"], true);
        increment.late_rows = LateRows::Lag(lag.map(Into::into));
        let first = increase(&mut source, &news("public.t", &increment, None)).unwrap();
        assert_eq!(first.ids.len(), 21);
        let again = increase(
            &mut source,
            &news("public.t", &increment, Some(first.cursor())),
        )
        .unwrap();
        assert_eq!(again.ids, expected.collect::<Vec<_>>(), "{field} {lag:?}");
        assert_eq!(
            again.checkpoints,
            [(again.ids.len(), first.cursor().to_owned())]
        );
    }
    // A row that comes late, within the lag, below the cursor; and one beside it.
    let mut increment = ordered(&["at", "id"], true);
    increment.late_rows = LateRows::Lag(Some("5 minutes".into()));
    let first = increase(&mut source, &news("public.t", &increment, None)).unwrap();
    client
        .batch_execute("INSERT INTO t (id, at) VALUES (100, '2026-11-21 10:16+00'), (-1, '2026-11-21 10:20+00'), (99, '2026-11-21 10:21+00')")
        .unwrap();
    let again = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(again.ids, [15, 16, 100, 17, 18, 19, -1, 20, 99]);
    assert_eq!(again.checkpoints.len(), 1);
    assert!(again.cursor().contains("10:21"));
    // The lag does not deliver rows below `initial`.
    increment.initial = Some(vec!["2026-11-21 10:17+00".into(), "0".into()]);
    let bounded = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(bounded.ids, [17, 18, 19, -1, 20, 99]);
    increment.initial = None;
    increment.late_rows = LateRows::Lag(None);
    let again = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(again.ids, [-1, 20, 99]);
    increment.allow_duplicates = false;
    let again = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(again.ids, [99]);
}

#[test]
fn collations_are_known_of_more_tables_than_are_described_at_a_time() {
    let database = shared().database();
    database
        .client()
        .batch_execute(
            "CREATE COLLATION vague (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             DO $$ BEGIN FOR i IN 1..501 LOOP
                EXECUTE format('CREATE TABLE t%s (id int, word text COLLATE vague)', i);
             END LOOP; END $$;
             CREATE TABLE z (id int, word text COLLATE vague, name text)",
        )
        .unwrap();
    let streams = open(&database.url()).discover(&[]).unwrap();
    assert_eq!(streams.len(), 502);
    for stream in &streams {
        let fields: &[&str] = match stream.name.as_str() {
            "public.z" => &["id", "name"],
            _ => &["id"],
        };
        assert_eq!(stream.cursor_fields, fields, "{}", stream.name);
    }
}

#[test]
fn an_impossible_ordered_read_is_refused_before_the_first_row() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE COLLATION vague (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             CREATE DOMAIN d AS int; CREATE DOMAIN j AS jsonb;
             CREATE TABLE t (id int, at timestamptz, doc jsonb, word text COLLATE vague, name text,
                key uuid, whole d, arr int[], part j, hour time);
             CREATE VIEW seen AS SELECT * FROM t; INSERT INTO t VALUES (1, now())",
        )
        .unwrap();
    let mut source = open(&database.url());
    let streams = source.discover(&[]).unwrap();
    for stream in ["public.t", "public.seen"] {
        let fields = &find(&streams, stream).cursor_fields;
        assert_eq!(
            *fields,
            ["id", "at", "name", "key", "whole", "hour"],
            "{stream}"
        );
    }
    let lag = |fields: &[&str], lag: &str| {
        let mut increment = ordered(fields, true);
        increment.late_rows = LateRows::Lag(Some(lag.into()));
        increment
    };
    let initial = |fields: &[&str], values: &[&str]| {
        let mut increment = ordered(fields, true);
        increment.initial = Some(values.iter().map(|v| (*v).to_owned()).collect());
        increment
    };
    let append = Increment {
        allow_duplicates: false,
        ..lag(&["at"], "5 minutes")
    };
    let cursor = {
        let first = increase(
            &mut source,
            &news("public.t", &ordered(&["at"], true), None),
        )
        .unwrap();
        first.cursor().to_owned()
    };
    let at = Some(cursor.as_str());
    // Of a person, without the source that it was read from.
    let set = |value: &str| {
        format!(
            r#"{{"mode":"ordered","version":1,"fields":[{{"name":"id","type":"int4"}}],"values":["{value}"]}}"#
        )
    };
    let (soon, large) = (set("soon"), set("99999999999"));
    for (increment, cursor, code, words) in [
        (ordered(&[], true), None, "no_cursor_field", "id, at, name"),
        (
            ordered(&["no"], true),
            None,
            "unknown_cursor_field",
            "id, at, name, key, whole, hour",
        ),
        (
            ordered(&["doc"], true),
            None,
            "unusable_cursor_field",
            "id, at, name",
        ),
        (
            ordered(&["word"], true),
            None,
            "unusable_cursor_field",
            "id, at, name",
        ),
        (
            ordered(&["part"], true),
            None,
            "unusable_cursor_field",
            "id, at, name",
        ),
        (
            ordered(&["arr"], true),
            None,
            "unusable_cursor_field",
            "id, at, name",
        ),
        (
            ordered(&["id", "id"], true),
            None,
            "duplicate_cursor_field",
            "once",
        ),
        (lag(&["name"], "5"), None, "invalid_lag", "remove the lag"),
        (
            lag(&["hour"], "5 minutes"),
            None,
            "invalid_lag",
            "remove the lag",
        ),
        (lag(&["at"], "5"), None, "invalid_lag", "5 minutes"),
        (lag(&["at"], "-5 minutes"), None, "invalid_lag", "5 minutes"),
        (lag(&["at"], "soon"), None, "invalid_lag", "5 minutes"),
        (lag(&["id"], "5 minutes"), None, "invalid_lag", "1000"),
        (lag(&["id"], "1.5"), None, "invalid_lag", "1000"),
        (lag(&["id"], "-1"), None, "invalid_lag", "1000"),
        (append, None, "lag_needs_upsert", "upsert"),
        (
            initial(&["at"], &["yesterday-ish"]),
            None,
            "invalid_cursor_initial",
            "2026-11-21",
        ),
        (
            initial(&["id"], &["99999999999"]),
            None,
            "invalid_cursor_initial",
            "",
        ),
        (
            initial(&["id"], &["1", "2"]),
            None,
            "invalid_cursor_initial",
            "one value for each",
        ),
        (
            ordered(&["id"], true),
            at,
            "cursor_changed",
            "--full-refresh",
        ),
        (
            ordered(&["at", "id"], true),
            at,
            "cursor_changed",
            "--full-refresh",
        ),
        (exact(true), at, "cursor_changed", "--full-refresh"),
        (
            ordered(&["at"], true),
            Some("{}"),
            "cursor_unreadable",
            "--full-refresh",
        ),
        (
            ordered(&["id"], true),
            Some(soon.as_str()),
            "cursor_unreadable",
            "state set PIPELINE STREAM",
        ),
        (
            ordered(&["id"], true),
            Some(large.as_str()),
            "cursor_unreadable",
            "state clear PIPELINE STREAM",
        ),
    ] {
        let selection = Selection {
            increment: Some(increment.clone()),
            cursor: cursor.map(Into::into),
            ..whole("public.t")
        };
        for error in [
            source
                .snapshot(&[whole("public.seen"), selection])
                .unwrap_err(),
            refused(&mut source, &news("public.t", &increment, cursor)),
        ] {
            assert_eq!(error.code, code, "{error:?}");
            assert_eq!(error.stream.as_deref(), Some("public.t"));
            assert!(error.hint.as_ref().unwrap().contains(words), "{error:?}");
        }
    }
    let wrong = news("public.t", &ordered(&["id"], true), Some(&soon));
    let error = refused(&mut source, &wrong);
    assert_eq!(error.column.as_deref(), Some("id"), "{error:?}");
    assert!(
        error.message.contains("\"soon\" is not of type int4"),
        "{error:?}"
    );
    // The condition is not to blame.
    let selection = Selection {
        filter: Some("id > 0".into()),
        increment: Some(ordered(&["id"], true)),
        cursor: Some(large.clone()),
        ..whole("public.t")
    };
    let error = source.snapshot(&[selection]).unwrap_err();
    assert_eq!(error.code, "cursor_unreadable", "{error:?}");
    // A cursor without an incremental read.
    let error = refused(
        &mut source,
        &ReadRequest {
            cursor: Some(cursor.clone()),
            ..request("public.t")
        },
    );
    assert_eq!(error.code, "no_cursor");
    // A column of another type; of a wider one.
    client
        .batch_execute("DROP VIEW seen; ALTER TABLE t ALTER at TYPE timestamp")
        .unwrap();
    let error = refused(&mut source, &news("public.t", &ordered(&["at"], true), at));
    assert_eq!(error.code, "cursor_changed");
    let first = increase(
        &mut source,
        &news("public.t", &ordered(&["id"], false), None),
    )
    .unwrap();
    client
        .batch_execute("ALTER TABLE t ALTER id TYPE bigint")
        .unwrap();
    let request = news("public.t", &ordered(&["id"], false), Some(first.cursor()));
    assert_eq!(rows(&read_all(&mut source, &request)), 0);
}

#[test]
fn a_cursor_of_another_database_or_table_is_refused_and_one_without_a_source_takes_what_it_finds() {
    let (one, other) = (shared().database(), shared().database());
    let fill = "CREATE TABLE t (id int); INSERT INTO t SELECT generate_series(1, 9)";
    one.client().batch_execute(fill).unwrap();
    other.client().batch_execute(fill).unwrap();
    let by_id = ordered(&["id"], false);
    let mut source = open(&one.url());
    let given = increase(&mut source, &news("public.t", &by_id, None)).unwrap();
    let cursor = given.cursor();
    let again = increase(&mut source, &news("public.t", &by_id, Some(cursor))).unwrap();
    assert_eq!((again.ids.len(), again.cursor()), (0, cursor));
    // The name of the stream is the same.
    let error = refused(
        &mut open(&other.url()),
        &news("public.t", &by_id, Some(cursor)),
    );
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("cursor_of_another_source", "Config")
    );
    assert!(error.message.contains("another database"), "{error:?}");
    assert!(error.hint.unwrap().contains("state rebind"));
    let server = Server::start(&Options::default()).unwrap();
    server.client("postgres").batch_execute(fill).unwrap();
    let error = refused(
        &mut open(&server.url("postgres")),
        &news("public.t", &by_id, Some(cursor)),
    );
    assert!(error.message.contains("another server"), "{error:?}");
    let again = format!("DROP TABLE t; {fill}");
    one.client().batch_execute(&again).unwrap();
    let error = refused(&mut source, &news("public.t", &by_id, Some(cursor)));
    assert!(error.message.contains("another table"), "{error:?}");
    // As an earlier version wrote it, and as `state rebind` leaves it.
    let (bare, _) = cursor.split_once(r#","source""#).unwrap();
    let bare = format!("{bare}}}");
    let adopted = increase(&mut source, &news("public.t", &by_id, Some(&bare))).unwrap();
    assert!(adopted.ids.is_empty());
    let own = increase(&mut source, &news("public.t", &by_id, None)).unwrap();
    assert_eq!(without_log(adopted.cursor()), without_log(own.cursor()));
    // A role that may not ask for the server knows the database and the table.
    let sql = "CREATE ROLE blind LOGIN PASSWORD 'secret'; GRANT SELECT ON t TO blind;
        REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
    server.client("postgres").batch_execute(sql).unwrap();
    let mut blind = open(&as_role(&server.url("postgres"), "blind"));
    let given = increase(&mut blind, &news("public.t", &by_id, None)).unwrap();
    assert!(!given.cursor().contains("system"), "{}", given.cursor());
    let error = refused(&mut source, &news("public.t", &by_id, Some(given.cursor())));
    assert_eq!(error.code, "cursor_of_another_source");
}

/// The numbers of columns tell them apart: without them, a run would read nothing above the values of another column.
#[test]
fn another_column_with_the_name_of_the_cursors_column_is_refused() {
    let database = shared().database();
    let mut client = database.client();
    let mut source = open(&database.url());
    let fill = "CREATE TABLE t (id int, a int, b int); INSERT INTO t VALUES (1, 70, 1), (2, 80, 2)";
    client.batch_execute(fill).unwrap();
    let by = |name: &'static str| ordered(&[name], false);
    let first = increase(&mut source, &news("public.t", &by("a"), None)).unwrap();
    let cursor = first.cursor();
    let more = "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a;
        INSERT INTO t (id, x, a) VALUES (3, 90, 3)";
    client.batch_execute(more).unwrap();
    let error = refused(&mut source, &news("public.t", &by("a"), Some(cursor)));
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("cursor_changed", Some("a"))
    );
    assert!(error.message.contains("called \"x\" now"), "{error:?}");
    assert!(error.hint.unwrap().contains("cursor_field to \"x\""));
    // The same column under its new name resumes.
    let second = increase(&mut source, &news("public.t", &by("x"), Some(cursor))).unwrap();
    assert_eq!(second.ids, [3]);
    assert!(
        second.cursor().contains(r#""name":"x""#),
        "{}",
        second.cursor()
    );
    let third = increase(
        &mut source,
        &news("public.t", &by("x"), Some(second.cursor())),
    )
    .unwrap();
    assert_eq!((third.ids.len(), third.cursor()), (0, second.cursor()));
    // The name is new even if no row is.
    client.batch_execute("ALTER TABLE t RENAME x TO y").unwrap();
    let fourth = increase(
        &mut source,
        &news("public.t", &by("y"), Some(third.cursor())),
    )
    .unwrap();
    assert!(
        fourth.cursor().contains(r#""name":"y""#),
        "{}",
        fourth.cursor()
    );
    // A column that was dropped and added again.
    let again = "ALTER TABLE t DROP y, ADD y int; UPDATE t SET y = id";
    client.batch_execute(again).unwrap();
    let error = refused(
        &mut source,
        &news("public.t", &by("y"), Some(fourth.cursor())),
    );
    assert_eq!(error.code, "cursor_changed");
    assert!(error.message.contains("which was dropped"), "{error:?}");
    assert!(error.hint.unwrap().contains("state rebind"));
    let (bare, _) = fourth.cursor().split_once(r#","source""#).unwrap();
    let bare = format!("{bare}}}");
    let kept = increase(&mut source, &news("public.t", &by("y"), Some(&bare))).unwrap();
    assert!(
        kept.cursor().contains(r#""columns":[4]"#),
        "{}",
        kept.cursor()
    );
    // Another type under the new name is another change.
    client
        .batch_execute("ALTER TABLE t RENAME y TO z; ALTER TABLE t ALTER z TYPE text")
        .unwrap();
    let error = refused(
        &mut source,
        &news("public.t", &by("z"), Some(kept.cursor())),
    );
    assert!(error.message.contains("y (int4), but"), "{error:?}");
}

/// A cursor without the place in the log, which is another one each time.
fn without_log(cursor: &str) -> serde_json::Value {
    let mut cursor: serde_json::Value = serde_json::from_str(cursor).unwrap();
    let lsn = cursor["source"]["wal"]["lsn"].take();
    assert!(lsn.is_string(), "{cursor:#}");
    let next = cursor["source"]["file"]["next"].take();
    assert!(next.is_string(), "{cursor:#}");
    cursor
}

/// Their new rows have values that were delivered of others before.
#[test]
fn a_table_that_was_emptied_and_filled_again_is_refused_and_one_that_was_rewritten_is_not() {
    let database = shared().database();
    let mut client = database.client();
    let fill = "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, v int);
        INSERT INTO t (v) SELECT generate_series(1, 9)";
    client.batch_execute(fill).unwrap();
    let by_id = ordered(&["id"], false);
    let mut source = open(&database.url());
    let mut read = |cursor: Option<&str>| increase(&mut source, &news("public.t", &by_id, cursor));
    let mut cursor = read(None).unwrap().cursor().to_owned();
    for (change, ids) in [
        ("VACUUM FULL t", &[][..]),
        ("CREATE INDEX by_v ON t (v); CLUSTER t USING by_v", &[]),
        ("UPDATE t SET v = 0; DELETE FROM t WHERE id < 3", &[]),
        // Only a warning: one new transaction wrote all rows and changed the columns.
        ("ALTER TABLE t ALTER v TYPE bigint", &[]),
        ("INSERT INTO t (v) VALUES (1)", &[10]),
        // Nothing is up to the cursor.
        ("TRUNCATE t; INSERT INTO t (v) VALUES (1), (2)", &[11, 12]),
    ] {
        for statement in change.split("; ") {
            client.batch_execute(statement).unwrap();
        }
        let given = read(Some(&cursor)).unwrap();
        assert_eq!(given.ids, ids, "{change}");
        cursor = given.cursor().to_owned();
    }
    client
        .batch_execute(
            "TRUNCATE t RESTART IDENTITY; INSERT INTO t (v) SELECT generate_series(1, 20)",
        )
        .unwrap();
    let error = read(Some(&cursor)).unwrap_err();
    assert_eq!(error.code, "cursor_of_another_source", "{error:?}");
    assert!(
        error.message.contains("emptied and filled again"),
        "{error:?}"
    );
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("--full-refresh") && hint.contains("state rebind"),
        "{hint}"
    );
    // As `state rebind` leaves it.
    let (bare, _) = cursor.split_once(r#","source""#).unwrap();
    let given = read(Some(&format!("{bare}}}"))).unwrap();
    assert_eq!(given.ids, [13, 14, 15, 16, 17, 18, 19, 20]);
    assert!(read(Some(given.cursor())).unwrap().ids.is_empty());
}

/// A run in between must not take the empty table's file for the file of the rows that it read.
#[test]
fn rows_below_the_cursor_are_refused_after_runs_that_saw_the_table_emptied() {
    let refill = "INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) i";
    // With a lag that does not reach the rows, and without one.
    for (lag, emptied) in [
        (false, &["TRUNCATE t"][..]),
        (false, &["DELETE FROM t", "VACUUM FULL t"]),
        (true, &["TRUNCATE t"]),
    ] {
        // Runs after the table was emptied: the rows that are inserted before each of them, all above the cursor.
        for runs in [
            &[""][..],
            &["", ""],
            &["INSERT INTO t VALUES (101, 0)"],
            &["", "INSERT INTO t VALUES (101, 0)", "VACUUM FULL t"],
            &[
                "INSERT INTO t VALUES (101, 0)",
                "TRUNCATE t",
                "INSERT INTO t VALUES (102, 0)",
            ],
        ] {
            let database = shared().database();
            let mut client = database.client();
            client
                .batch_execute("CREATE TABLE t (id int NOT NULL, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i")
                .unwrap();
            let mut by_id = ordered(&["id"], lag);
            if lag {
                by_id.late_rows = LateRows::Lag(Some("5".into()));
            }
            let mut source = open(&database.url());
            let mut read =
                |cursor: Option<&str>| increase(&mut source, &news("public.t", &by_id, cursor));
            let mut cursor = read(None).unwrap().cursor().to_owned();
            for statement in emptied {
                client.batch_execute(statement).unwrap();
            }
            for before in runs {
                client.batch_execute(before).unwrap();
                cursor = read(Some(&cursor)).unwrap().cursor().to_owned();
            }
            let shown = format!("{emptied:?}, {runs:?}, lag: {lag}: {cursor}");
            client.batch_execute(refill).unwrap();
            let error = read(Some(&cursor))
                .map(|given| given.ids)
                .expect_err(&shown);
            assert_eq!(error.code, "cursor_of_another_source", "{shown}: {error:?}");
            // As `state rebind` leaves it.
            let (bare, _) = cursor.split_once(r#","source""#).unwrap();
            let given = read(Some(&format!("{bare}}}"))).unwrap();
            let again = read(Some(given.cursor())).unwrap();
            assert!(again.ids.iter().all(|id| *id > 9), "{shown}");
        }
    }
}

/// A change of a type writes all rows anew, also those that the lag reads again.
#[test]
fn type_changes_cause_no_reload_where_the_lag_reaches_below_all_rows() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE TABLE t (id int NOT NULL, v int); INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)",
        )
        .unwrap();
    let mut by_id = ordered(&["id"], true);
    by_id.late_rows = LateRows::Lag(Some("20".into()));
    let mut source = open(&database.url());
    let mut read = |cursor: Option<&str>| increase(&mut source, &news("public.t", &by_id, cursor));
    let mut cursor = read(None).unwrap().cursor().to_owned();
    for (change, ids) in [
        ("ALTER TABLE t ALTER v TYPE bigint", &[1, 2, 3][..]),
        ("INSERT INTO t VALUES (40, 0)", &[1, 2, 3, 40]),
        // Only a warning.
        ("ALTER TABLE t ALTER v TYPE numeric", &[40]),
        ("TRUNCATE t; INSERT INTO t VALUES (50, 0)", &[50]),
    ] {
        client.batch_execute(change).unwrap();
        let given = read(Some(&cursor)).unwrap();
        assert_eq!(given.ids, ids, "{change}");
        cursor = given.cursor().to_owned();
    }
    client.batch_execute("INSERT INTO t VALUES (1, 0)").unwrap();
    let error = read(Some(&cursor)).unwrap_err();
    assert_eq!(error.code, "cursor_of_another_source", "{error:?}");
}

/// A queue that is emptied after each load, with rows that commit late but within the lag.
#[test]
fn late_rows_within_the_lag_are_read_in_a_table_that_was_emptied() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE TABLE t (id int NOT NULL); INSERT INTO t SELECT generate_series(1, 100)",
        )
        .unwrap();
    let mut by_id = ordered(&["id"], true);
    by_id.late_rows = LateRows::Lag(Some("5".into()));
    let mut source = open(&database.url());
    let mut read = |cursor: Option<&str>| increase(&mut source, &news("public.t", &by_id, cursor));
    let mut cursor = read(None).unwrap().cursor().to_owned();
    for (change, ids) in [
        ("TRUNCATE t; INSERT INTO t VALUES (97)", &[97][..]),
        ("INSERT INTO t VALUES (98), (110)", &[97, 98, 110]),
        // 98 is below the lag now, and was read.
        ("INSERT INTO t VALUES (120)", &[110, 120]),
        ("VACUUM FULL t", &[120]),
    ] {
        for statement in change.split("; ") {
            client.batch_execute(statement).unwrap();
        }
        let given = read(Some(&cursor)).unwrap_or_else(|error| panic!("{change}: {error:?}"));
        assert_eq!(given.ids, ids, "{change}");
        cursor = given.cursor().to_owned();
    }
    client.batch_execute("INSERT INTO t VALUES (9)").unwrap();
    let error = read(Some(&cursor)).unwrap_err();
    assert_eq!(error.code, "cursor_of_another_source", "{error:?}");
}

#[test]
fn a_cursor_survives_a_failover_that_lost_nothing_and_is_refused_after_a_restore() {
    let options = Options {
        conf: vec!["max_wal_senders = 4".into(), "wal_level = replica".into()],
        ..Options::default()
    };
    let server = Server::start(&options).unwrap();
    let mut client = server.client("postgres");
    run(
        &mut client,
        "CREATE TABLE t (id serial, at int); INSERT INTO t (at) SELECT generate_series(1, 9)",
    );
    let (standby, late) = (server.copy(Copied::Standby), server.copy(Copied::Standby));
    let (restored, revived) = (server.copy(Copied::Restored), server.copy(Copied::Revived));
    let mut late_client = late.client("postgres");
    // The rest of what happens never gets to it.
    run(&mut late_client, "ALTER SYSTEM SET primary_conninfo = ''");
    run(&mut late_client, "SELECT pg_reload_conf()");
    wait_until(
        &mut late_client,
        "SELECT count(*) = 0 FROM pg_stat_wal_receiver",
    );
    run(
        &mut client,
        "INSERT INTO t (at) SELECT generate_series(10, 19)",
    );
    let by_id = ordered(&["id"], false);
    let read = |server: &Server, cursor: Option<&str>| {
        increase(
            &mut open(&server.url("postgres")),
            &news("public.t", &by_id, cursor),
        )
    };
    let given = read(&server, None).unwrap();
    let cursor = given.cursor().to_owned();
    let place: serde_json::Value = serde_json::from_str(&cursor).unwrap();
    let place = place["source"]["wal"].clone();
    assert_eq!(place["timeline"], 1, "{cursor}");
    let lsn = place["lsn"].as_str().unwrap();
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{lsn}'");
    let mut standby_client = standby.client("postgres");
    run(&mut client, "CHECKPOINT");
    wait_until(&mut standby_client, &replayed);
    // A standby resumes from the cursor of its primary, and takes over.
    assert!(read(&standby, Some(&cursor)).unwrap().ids.is_empty());
    run(&mut standby_client, "SELECT pg_promote()");
    run(
        &mut standby_client,
        "INSERT INTO t (id, at) VALUES (100, 0)",
    );
    let given = read(&standby, Some(&cursor)).unwrap();
    assert_eq!(given.ids, [100]);
    assert!(
        given.cursor().contains(r#""timeline":2"#),
        "{}",
        given.cursor()
    );
    // Back at a server of the older timeline, whose rows are others by now.
    let refuse = |server: &Server, cursor: &str, words: &str| {
        let error = read(server, Some(cursor)).unwrap_err();
        assert_eq!(error.code, "cursor_of_another_source", "{error:?}");
        assert!(error.message.contains(words), "{words}: {error:?}");
        let hint = error.hint.unwrap();
        assert!(
            hint.contains("state rebind") && hint.contains("--full-refresh"),
            "{hint}"
        );
    };
    refuse(
        &server,
        given.cursor(),
        "timeline 1, and the cursor is of timeline 2",
    );
    // A standby that lacked rows, and copies of an older moment: their next rows have the keys of the lost ones.
    run(&mut late_client, "SELECT pg_promote()");
    for (copy, words) in [
        (&late, "without all that the cursor knows"),
        (&restored, "restored from a backup"),
        (&revived, "restored from an older copy"),
    ] {
        run(
            &mut copy.client("postgres"),
            "INSERT INTO t (at) SELECT generate_series(50, 54)",
        );
        refuse(copy, &cursor, words);
        // As `state rebind` leaves it.
        let mut bare: serde_json::Value = serde_json::from_str(&cursor).unwrap();
        bare.as_object_mut().unwrap().remove("source");
        let bare = read(copy, Some(&bare.to_string())).unwrap();
        assert!(read(copy, Some(bare.cursor())).unwrap().ids.is_empty());
        // As an earlier version wrote it, which knew no timelines.
        let mut old: serde_json::Value = serde_json::from_str(&cursor).unwrap();
        old["source"].as_object_mut().unwrap().remove("wal");
        let adopted = read(copy, Some(&old.to_string())).unwrap();
        assert!(
            adopted.cursor().contains("timeline"),
            "{}",
            adopted.cursor()
        );
    }
    // A role that may not ask knows no timeline.
    let sql = "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC; CREATE ROLE blind LOGIN PASSWORD 'secret';
        GRANT SELECT ON t TO blind";
    run(&mut client, sql);
    let mut blind = open(&as_role(&server.url("postgres"), "blind"));
    let given = increase(&mut blind, &news("public.t", &by_id, None)).unwrap();
    assert!(!given.cursor().contains("timeline"), "{}", given.cursor());
    assert_eq!(
        increase(&mut blind, &news("public.t", &by_id, Some(&cursor)))
            .unwrap()
            .ids,
        [0; 0]
    );
}

/// Asks until the answer is true.
fn wait_until(client: &mut Client, sql: &str) {
    for _ in 0..600 {
        if client.query_one(sql, &[]).unwrap().get(0) {
            return;
        }
        run(client, "SELECT pg_sleep(0.1)");
    }
    panic!("{sql} does not become true");
}

fn read_all(source: &mut Postgres, request: &ReadRequest) -> Vec<RecordBatch> {
    let mut reader = source.read(request).unwrap();
    let mut batches = Vec::new();
    loop {
        match reader.next(WAIT).unwrap() {
            Event::Batch(batch) => batches.push(batch),
            Event::End => return batches,
            Event::Idle | Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) => {}
        }
    }
}

#[test]
fn conditions_forms_and_kinds_of_relations_go_together_with_an_increment() {
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE TABLE p (id int NOT NULL, doc tsvector, g int GENERATED ALWAYS AS (id * 2) STORED)
                PARTITION BY RANGE (id);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
             CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30);
             INSERT INTO p SELECT i, 'x' FROM generate_series(1, 20) i;
             CREATE VIEW v AS SELECT id, doc, g FROM p WHERE id % 2 = 0;
             CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent);
             INSERT INTO parent VALUES (1), (3); INSERT INTO child VALUES (2), (4)",
        )
        .unwrap();
    let mut source = open(&database.url());
    for (stream, filter, expected) in [
        ("public.p", None, (1..=20).collect::<Vec<i32>>()),
        ("public.p", Some("id > 18 OR g = 2 -- all"), vec![1, 19, 20]),
        ("public.v", Some("true"), (1..=10).map(|i| i * 2).collect()),
        ("public.parent", None, vec![1, 2, 3, 4]),
    ] {
        let mut increment = ordered(&["id"], false);
        increment.initial = Some(vec!["0".into()]);
        for forms in [vec![], vec!["postgresql".to_owned()]] {
            let request = ReadRequest {
                columns: None,
                filter: filter.map(Into::into),
                forms,
                ..news(stream, &increment, None)
            };
            let given = increase(&mut source, &request).unwrap();
            assert_eq!(given.ids, expected, "{stream}");
            let request = ReadRequest {
                cursor: Some(given.cursor().into()),
                ..request
            };
            assert!(increase(&mut source, &request).unwrap().ids.is_empty());
        }
    }
    // Of one moment, like all reads of a run.
    let increment = ordered(&["id"], false);
    let selection = Selection {
        increment: Some(increment.clone()),
        ..whole("public.p")
    };
    let snapshot = source.snapshot(&[selection]).unwrap();
    client
        .batch_execute("INSERT INTO p VALUES (25, 'late')")
        .unwrap();
    let mut request = news("public.p", &increment, None);
    request.snapshot = snapshot;
    let first = increase(&mut source, &request).unwrap();
    assert_eq!(first.ids.len(), 20);
    let given = increase(
        &mut source,
        &news("public.p", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(given.ids, [25]);
}
