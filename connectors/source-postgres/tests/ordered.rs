//! Incremental reads in the order of columns.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::collections::BTreeMap;

use common::*;
use rapidbyte_pg::ident::{quote_ident, quote_literal};
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Client, shared};
use source_postgres::Postgres;

/// Few bytes at a time, so that ties reach over batches.
fn open_narrow(url: &str) -> Postgres {
    let config = format!(r#"{{"url": "{url}", "fetch_bytes": 4096}}"#);
    rapidbyte_sdk::source::open(&config).unwrap()
}

/// Values of a type, some of them equal although they are written differently.
const TYPES: &[(&str, &[&str])] = &[
    ("smallint", &["-32768", "-1", "0", "7", "32767"]),
    ("integer", &["-2147483648", "0", "2147483647"]),
    (
        "bigint",
        &["-9223372036854775808", "0", "9223372036854775807"],
    ),
    (
        "numeric",
        &[
            "NaN",
            "1",
            "1.0",
            "1.00",
            "0",
            "0.000",
            "-0.5",
            "-0.50",
            "1e-30",
            "0.1",
            "0.10",
            "123456789012345678901234567890.123",
            "-1e100",
            "100",
            "10",
        ],
    ),
    ("numeric(8,3)", &["1", "1.001", "-1.5", "99999.999"]),
    (
        "real",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "0",
            "0.1",
            "1e-45",
            "16777217",
            "3.4028235e38",
        ],
    ),
    (
        "double precision",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "-0",
            "0",
            "0.1",
            "0.30000000000000004",
            "5e-324",
        ],
    ),
    (
        "text",
        &[
            "",
            " ",
            "a",
            "A",
            "b",
            "ä",
            "a b",
            "ab",
            "é\\",
            "it's",
            "\"",
            "line\nfeed",
            "\u{10ffff}",
        ],
    ),
    ("text COLLATE \"C\"", &["a", "A", "b", "ä", "", "aa"]),
    (
        "text COLLATE \"de-x-icu\"",
        &["a", "A", "b", "ä", "", "aa", "ae", "ß", "ss"],
    ),
    ("varchar(5)", &["a", "a ", "abcde", ""]),
    ("character(5)", &["a", "a  ", "b", "", "abcde"]),
    (
        "uuid",
        &[
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        ],
    ),
    (
        "date",
        &[
            "-infinity",
            "infinity",
            "0044-03-15 BC",
            "2026-11-21",
            "99999-12-31",
            "0001-01-01",
        ],
    ),
    (
        "time",
        &[
            "00:00",
            "24:00",
            "12:00:00.000001",
            "12:00:00.000002",
            "23:59:59.999999",
        ],
    ),
    (
        "timestamp",
        &[
            "-infinity",
            "infinity",
            "0044-03-15 01:02:03.000004 BC",
            "2026-11-21 10:11:12.123456",
            "2026-11-21 10:11:12.123457",
            "294276-12-31 23:59:59.999999",
            "1899-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamptz",
        &[
            "-infinity",
            "infinity",
            "0044-03-15 01:02:03.000004+00 BC",
            "2026-11-21 10:11:12.123456+05:30",
            "2026-11-21 10:11:12.123456+05:45",
            "2026-10-25 00:30:00+00",
            "2026-10-25 01:30:00+00",
            "1880-01-01 00:00:00+00",
        ],
    ),
    (
        "moment",
        &["2026-11-21 10:11:12.1234+00", "2026-11-21 10:11:12.125+00"],
    ),
    ("code", &["a", "a ", "b", ""]),
];

#[test]
fn every_type_goes_on_where_it_was() {
    let database = shared().database();
    let mut client = database.client();
    // Whatever the database says, cursors are written in one way.
    let name = quote_ident(database.name());
    client
        .batch_execute(&format!(
            "ALTER DATABASE {name} SET TimeZone = 'Asia/Kolkata';
             ALTER DATABASE {name} SET DateStyle = 'SQL, DMY';
             ALTER DATABASE {name} SET extra_float_digits = 0;
             ALTER DATABASE {name} SET IntervalStyle = 'sql_standard';
             CREATE DOMAIN moment AS timestamptz(3); CREATE DOMAIN code AS char(5)"
        ))
        .unwrap();
    let mut source = open_narrow(&database.url());
    for (at, (ty, values)) in TYPES.iter().enumerate() {
        let table = format!("t{at}");
        let rows: Vec<String> = values
            .iter()
            .map(|v| format!("({})", quote_literal(v)))
            .collect();
        let rows = rows.join(", ");
        // Each value five times, at different places of the table, with NULLs between.
        let sql = format!(
            "CREATE TABLE {table} (id serial, v {ty}, pad text DEFAULT repeat('x', 600));
             INSERT INTO {table} (v) SELECT x::{ty} FROM generate_series(1, 5), (VALUES {rows}) AS r(x);
             INSERT INTO {table} (v) VALUES (NULL), (NULL)",
            ty = ty
        );
        client
            .batch_execute(&sql)
            .unwrap_or_else(|e| panic!("{ty}: {e:?}"));
        let stream = format!("public.{table}");
        for may_repeat in [false, true] {
            let mut increment = ordered(&["v"], may_repeat);
            let given = resumes_everywhere(&mut source, &stream, &increment);
            let count = values.len() * 5 + 2;
            assert_eq!(
                given.sorted(),
                (1..=count as i32).collect::<Vec<_>>(),
                "{ty}"
            );
            // In the server's own order, NULLs before all.
            let ranks = ranks(&mut client, &table, &given.ids);
            assert!(ranks.is_sorted(), "{ty}: {ranks:?}");
            // From each value on, in the server's own writing.
            for value in *values {
                let expected: Vec<i32> = client
                    .query(
                        &format!("SELECT id FROM {table} WHERE v >= $1::text::{} OR v IS NULL ORDER BY id",
                            ty.split(" COLLATE").next().unwrap()),
                        &[value],
                    )
                    .unwrap_or_else(|e| panic!("{ty} {value}: {e:?}"))
                    .iter()
                    .map(|row| row.get(0))
                    .collect();
                let utc = ["timestamp", "timestamptz", "date"].contains(ty);
                if utc {
                    increment.initial = Some(vec![(*value).to_owned()]);
                    let given = increase(&mut source, &news(&stream, &increment, None)).unwrap();
                    assert_eq!(given.sorted(), expected, "{ty} from {value}");
                }
            }
        }
    }
    // As a cursor is written, whatever the database says.
    let sql = "CREATE TABLE written (id int, at timestamptz);
        INSERT INTO written VALUES (1, '2026-11-21 15:41:12.1234565+05:30')";
    client.batch_execute(sql).unwrap();
    let given = increase(
        &mut source,
        &news("public.written", &ordered(&["at", "id"], false), None),
    );
    assert_eq!(
        given.unwrap().cursor(),
        r#"{"mode":"ordered","version":1,"fields":[{"name":"at","type":"timestamptz"},{"name":"id","type":"int4"}],"values":["2026-11-21 10:11:12.123456+00","1"]}"#
    );
}

/// The place of each row in the order of `v`.
fn ranks(client: &mut Client, table: &str, ids: &[i32]) -> Vec<i64> {
    let sql = format!(
        "SELECT r FROM (SELECT id, dense_rank() OVER (ORDER BY v NULLS FIRST) r FROM {table}) q
         JOIN unnest($1::int[]) WITH ORDINALITY AS u(id, at) USING (id) ORDER BY at"
    );
    let rows = client.query(&sql, &[&ids]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn random_tables_with_ties_and_nulls_go_on_at_every_checkpoint() {
    let database = shared().database();
    let mut client = database.client();
    let mut source = open_narrow(&database.url());
    let seed = std::env::var("RAPIDBYTE_SEED").map_or(20_261_121, |seed| seed.parse().unwrap());
    eprintln!("RAPIDBYTE_SEED={seed}");
    let mut random = Random(seed);
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
        for may_repeat in [false, true] {
            let stream = format!("public.{table}");
            let given = resumes_everywhere(&mut source, &stream, &ordered(fields, may_repeat));
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
fn equal_values_are_ties_however_they_are_written() {
    let database = shared().database();
    let mut client = database.client();
    let mut source = open_narrow(&database.url());
    for (at, (ty, one, other, above)) in [
        ("numeric", "1.0", "1.000", "2"),
        ("numeric", "100", "100.0", "101"),
        ("real", "-0", "0", "1"),
        ("double precision", "0", "-0", "1"),
        ("character(5)", "a", "a  ", "b"),
        ("bpchar", "a", "a  ", "b"),
    ]
    .into_iter()
    .enumerate()
    {
        let sql = format!(
            "CREATE TABLE t{at} (id int, v {ty}, pad text DEFAULT repeat('x', 500));
             INSERT INTO t{at} SELECT i, CASE i % 2 WHEN 0 THEN '{one}'::{ty} ELSE '{other}' END
                FROM generate_series(1, 3000) i;
             INSERT INTO t{at} VALUES (3001, '{above}')"
        );
        client.batch_execute(&sql).unwrap();
        let stream = format!("public.t{at}");
        let given = resumes_everywhere(&mut source, &stream, &ordered(&["v"], false));
        let places: Vec<usize> = given.checkpoints.iter().map(|(rows, _)| *rows).collect();
        assert_eq!(places, [3000, 3001], "{ty}");
        assert!(given.batches > 10, "{}", given.batches);
    }
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
    increment.late_rows = LateRows::Lag(None);
    let again = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(again.ids, [-1, 20, 99]);
    increment.may_repeat = false;
    let again = increase(
        &mut source,
        &news("public.t", &increment, Some(first.cursor())),
    )
    .unwrap();
    assert_eq!(again.ids, [99]);
}

#[test]
fn what_cannot_be_read_so_is_refused_before_the_first_row() {
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
        may_repeat: false,
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
        (
            lag(&["name"], "5"),
            None,
            "invalid_lag",
            "leave the lag out",
        ),
        (
            lag(&["hour"], "5 minutes"),
            None,
            "invalid_lag",
            "leave the lag out",
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

fn read_all(source: &mut Postgres, request: &ReadRequest) -> Vec<RecordBatch> {
    let mut reader = source.read(request).unwrap();
    let mut batches = Vec::new();
    loop {
        match reader.next(WAIT).unwrap() {
            Event::Batch(batch) => batches.push(batch),
            Event::End => return batches,
            Event::Idle | Event::Checkpoint(_) => {}
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

/// A writer of its own rows whose transactions stay open for a while.
struct Writer {
    client: Client,
    is_open: bool,
    ids: std::ops::Range<i32>,
}

impl Writer {
    /// One statement at random. `at` is a clock that every statement moves on.
    fn act(&mut self, random: &mut Random, at: i32) {
        let id = self.ids.start + random.below(20) as i32;
        let sql = match random.below(8) {
            0 if self.is_open => "COMMIT".to_owned(),
            1 if self.is_open => "ROLLBACK".to_owned(),
            2 if !self.is_open => "BEGIN".to_owned(),
            // Updates and soft deletes are the same to the source.
            3 if self.is_open => {
                format!("SAVEPOINT s; UPDATE t SET at = {at} WHERE id = {id}; ROLLBACK TO s")
            }
            _ => format!(
                "INSERT INTO t VALUES ({id}, {at}) ON CONFLICT (id) DO UPDATE SET at = {at}"
            ),
        };
        self.client.batch_execute(&sql).unwrap();
        self.is_open = match &*sql {
            "BEGIN" => true,
            "COMMIT" | "ROLLBACK" => false,
            _ => self.is_open,
        };
    }

    fn end(&mut self) {
        self.client.batch_execute("COMMIT").unwrap();
        self.is_open = false;
    }
}

/// Reads `id` and `at` into what an upsert by `id` keeps; gives the last checkpoint.
fn upsert(
    source: &mut Postgres,
    request: &ReadRequest,
    target: &mut BTreeMap<i32, i32>,
) -> Option<String> {
    let mut reader = source.read(request).unwrap();
    let mut cursor = None;
    loop {
        match reader.next(WAIT).unwrap() {
            Event::Batch(batch) => {
                let column = |at: usize| {
                    batch
                        .column(at)
                        .as_any()
                        .downcast_ref::<Int32Array>()
                        .unwrap()
                };
                let (ids, times) = (column(0), column(1));
                target.extend(
                    ids.values()
                        .iter()
                        .copied()
                        .zip(times.values().iter().copied()),
                );
            }
            Event::Checkpoint(json) => cursor = Some(json),
            Event::End => return cursor,
            Event::Idle => {}
        }
    }
}

#[test]
fn an_upsert_with_a_lag_is_equal_to_its_source_after_a_fire() {
    const LAG: i32 = 60;
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, at int); CREATE INDEX ON t (at, id)")
        .unwrap();
    let mut source = open(&database.url());
    let seed = std::env::var("RAPIDBYTE_SEED").map_or(20_261_121, |seed| seed.parse().unwrap());
    eprintln!("RAPIDBYTE_SEED={seed}");
    let mut random = Random(seed);
    let mut writers: Vec<Writer> = (0..4)
        .map(|number| Writer {
            client: database.client(),
            is_open: false,
            ids: number * 20..number * 20 + 20,
        })
        .collect();
    let mut increment = ordered(&["at", "id"], true);
    increment.late_rows = LateRows::Lag(Some(LAG.to_string()));
    let (mut at, mut cursor, mut target) = (0, None, BTreeMap::new());
    let mut begun = [0; 4];
    for _ in 0..100 {
        for _ in 0..random.below(20) {
            at += 1;
            let number = random.below(4) as usize;
            writers[number].act(&mut random, at);
            for (writer, begun) in writers.iter_mut().zip(&mut begun) {
                // No transaction is open for longer than the lag reaches.
                if writer.is_open && at - *begun >= LAG {
                    writer.end();
                }
                if !writer.is_open {
                    *begun = at;
                }
            }
        }
        let request = ReadRequest {
            columns: None,
            ..news("public.t", &increment, cursor.as_deref())
        };
        cursor = upsert(&mut source, &request, &mut target);
    }
    for writer in writers.iter_mut().filter(|writer| writer.is_open) {
        writer.end();
    }
    let request = ReadRequest {
        columns: None,
        ..news("public.t", &increment, cursor.as_deref())
    };
    upsert(&mut source, &request, &mut target);
    let rows = client.query("SELECT id, at FROM t", &[]).unwrap();
    let rows: BTreeMap<i32, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(rows.len() > 60);
    assert_eq!(target, rows);
}
