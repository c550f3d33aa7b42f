//! Every type that can order a read, with the values that break readers.

use crate::common::*;
use rapidbyte_pg::ident::{quote_ident, quote_literal};
use rapidbyte_testkit::postgres::{Client, shared};

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
fn a_cursor_of_every_type_resumes_at_its_value() {
    let database = shared().database();
    let mut client = database.client();
    // Settings of the database do not change how cursors are written.
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
        for allow_duplicates in [false, true] {
            let mut increment = ordered(&["v"], allow_duplicates);
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
    let given = given.unwrap();
    let (cursor, source) = given
        .cursor()
        .split_once(r#","source":{"system":""#)
        .unwrap();
    assert_eq!(
        cursor,
        r#"{"mode":"ordered","version":1,"fields":[{"name":"at","type":"timestamptz"},{"name":"id","type":"int4"}],"values":["2026-11-21 10:11:12.123456+00","1"]"#
    );
    assert!(
        source.contains(r#""database":"#) && source.contains(r#""relation":"#),
        "{source}"
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
