//! Each operator, function and cast gives what PostgreSQL gives for the same text and the same row, or refuses the row.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::sync::Arc;

use common::transform;
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::shared;

/// Rows with edge values: each line is one row, each value the text that PostgreSQL reads.
const NAMES: [(&str, &str); 14] = [
    ("b", "boolean"),
    ("c", "boolean"),
    ("i2", "smallint"),
    ("i4", "integer"),
    ("j4", "integer"),
    ("i8", "bigint"),
    ("f4", "real"),
    ("f8", "double precision"),
    ("g8", "double precision"),
    ("n", "numeric(20, 4)"),
    ("m", "numeric(10, 2)"),
    ("t", "text"),
    ("u", "text"),
    ("d", "date"),
];
const ROWS: [[&str; 14]; 12] = [
    [
        "true",
        "false",
        "1",
        "2",
        "3",
        "4",
        "1.5",
        "2.5",
        "-0.5",
        "1.2345",
        "2.50",
        "Abc",
        "b",
        "2026-11-21",
    ],
    [
        "false",
        "false",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "",
        "",
        "1970-01-01",
    ],
    [
        "true",
        "true",
        "-1",
        "-1",
        "-1",
        "-1",
        "-1",
        "-1",
        "-1",
        "-1",
        "-1",
        " x ",
        " ",
        "0001-01-01",
    ],
    [
        "NULL", "true", "NULL", "NULL", "1", "NULL", "NULL", "NULL", "1", "NULL", "1", "NULL", "a",
        "NULL",
    ],
    [
        "NULL",
        "false",
        "5",
        "5",
        "NULL",
        "5",
        "5",
        "5",
        "NULL",
        "5",
        "NULL",
        "a",
        "NULL",
        "2000-02-29",
    ],
    [
        "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL",
        "NULL", "NULL", "NULL",
    ],
    [
        "true",
        "NULL",
        "32767",
        "2147483647",
        "2147483647",
        "9223372036854775807",
        "3.4028235e38",
        "1.7976931348623157e308",
        "2",
        "9999999999999999.9999",
        "99999999.99",
        "äöüß€😀",
        "ö",
        "9999-12-31",
    ],
    [
        "false",
        "true",
        "-32768",
        "-2147483648",
        "-1",
        "-9223372036854775808",
        "-3.4028235e38",
        "-1.7976931348623157e308",
        "0.1",
        "-9999999999999999.9999",
        "-99999999.99",
        "a%b_c\\d",
        "%",
        "0044-03-15 BC",
    ],
    [
        "true",
        "true",
        "7",
        "10",
        "3",
        "7",
        "NaN",
        "NaN",
        "NaN",
        "7.5555",
        "3.33",
        "2026-11-21",
        "-",
        "1969-12-31",
    ],
    [
        "true",
        "false",
        "2",
        "7",
        "-2",
        "100",
        "Infinity",
        "Infinity",
        "-Infinity",
        "0.5000",
        "0.05",
        "a,b,,c",
        ",",
        "2024-02-29",
    ],
    [
        "false",
        "true",
        "3",
        "3",
        "2",
        "1000000",
        "1e-38",
        "5e-324",
        "1e-10",
        "-0.5000",
        "-0.05",
        "12.5",
        "1",
        "2100-03-01",
    ],
    [
        "true",
        "true",
        "-7",
        "-7",
        "2",
        "-7",
        "0.1",
        "0.30000000000000004",
        "123456789012345680",
        "2.5000",
        "1.00",
        " +42 ",
        "4",
        "1900-01-01",
    ],
];

/// Expressions; `|` stands for another line.
const EXPRESSIONS: &[&str] = &[
    // Logic of three values.
    "b AND c",
    "b OR c",
    "NOT b",
    "b IS TRUE",
    "b IS NOT TRUE",
    "b IS FALSE",
    "b IS NOT FALSE",
    "b IS NULL",
    "b IS NOT NULL",
    "b IS UNKNOWN",
    "b = c",
    "b <> c",
    "b < c",
    "b IS DISTINCT FROM c",
    "b IS NOT DISTINCT FROM c",
    "b AND NULL",
    "b OR NULL",
    "NULL AND c",
    "NOT (b OR c) AND c IS NULL",
    // Comparisons.
    "i4 = j4",
    "i4 <> j4",
    "i4 < j4",
    "i4 <= j4",
    "i4 > j4",
    "i4 >= j4",
    "i2 = i8",
    "i4 = f8",
    "i8 > n",
    "n = m",
    "n < f8",
    "f4 = f8",
    "f8 = g8",
    "f8 < g8",
    "f8 >= g8",
    "t = u",
    "t <> u",
    "d = '2026-11-21'",
    "d < DATE '2000-01-01'",
    "'2000-02-29' = d",
    "i4 IN (1, 2, 5, NULL)",
    "i4 NOT IN (1, 2, 5)",
    "t IN ('a', '')",
    "i4 BETWEEN 0 AND 7",
    "i4 NOT BETWEEN j4 AND 10",
    "f8 IS DISTINCT FROM g8",
    "t IS NOT DISTINCT FROM u",
    "i4 = '5'",
    "n = 1.2345",
    "n <> 0",
    "f8 = 'NaN'",
    "m = 2.5",
    "i8 = 9223372036854775807",
    "i4 IS NULL",
    "d IS NOT NULL",
    "t < 'b' COLLATE_C",
    "i4 IN (5)",
    "t NOT IN ('a', NULL)",
    "i4 IN (1, i8, j4)",
    // Numbers as they are written.
    "1e3",
    "2.5e0::integer",
    "1e-7",
    "-0e0",
    "1.50 + 0",
    "-2147483648",
    "-9223372036854775808",
    "i8 + -9223372036854775808",
    "i4 + -2147483648",
    "0.000 + 1",
    ".5 + 1.",
    // Arithmetic.
    "i2 + i2",
    "i2 * i2",
    "i4 + j4",
    "i4 - j4",
    "i4 * j4",
    "i4 / j4",
    "i4 % j4",
    "i8 + 1",
    "i8 - 1",
    "i8 * 2",
    "i8 / -1",
    "i8 % -1",
    "-i2",
    "-i4",
    "-i8",
    "-f8",
    "-n",
    "+i4",
    "i2 + i4",
    "i4 + i8",
    "f8 + g8",
    "f8 - g8",
    "f8 * g8",
    "f8 / g8",
    "f4 + f4",
    "f4 * f4",
    "f4 / f4",
    "f4 + f8",
    "f4 + i4",
    "f8 * i4",
    "n + m",
    "n - m",
    "n * m",
    "n % m",
    "n + 1",
    "m * 3",
    "n - 0.0001",
    "2 * (i4 + 1)",
    "i4 + NULL",
    "1.5 + 1",
    "1e3 + i4",
    "d + 1",
    "d - 1",
    "1 + d",
    "d - DATE '2000-01-01'",
    "d + i4",
    "i4 + '1'",
    "i4 / 2",
    "i4 % 2 = 0",
    "-7 / 2",
    "-7 % 2",
    "7 / -2",
    "i4 + 9223372036854775807",
    // Texts.
    "t || u",
    "t || i4",
    "i4 || t",
    "t || '-' || u",
    "t || NULL",
    "length(t)",
    "char_length(t)",
    "upper('aé') || 'x'",
    "lower('ABÉ') || 'x'",
    "trim(t)",
    "btrim(t)",
    "ltrim(t)",
    "rtrim(t)",
    "trim(BOTH 'x ' FROM t)",
    "trim(LEADING FROM t)",
    "trim(TRAILING ' ' FROM t)",
    "btrim(t, 'Ac')",
    "left(t, 2)",
    "left(t, -1)",
    "left(t, 0)",
    "right(t, 2)",
    "right(t, -1)",
    "right(t, -9)",
    "left(t, i4)",
    "right(t, i2)",
    "substr(t, 2)",
    "substr(t, 2, 1)",
    "substring(t FROM 2 FOR 2)",
    "substring(t, 0, 2)",
    "substring(t FROM -1 FOR 3)",
    "substring(t, 2, -1)",
    "substr(t, i4, j4)",
    "replace(t, u, 'Z')",
    "replace(t, 'b', '')",
    "split_part(t, ',', 1)",
    "split_part(t, ',', 2)",
    "split_part(t, ',', -1)",
    "split_part(t, ',', 0)",
    "split_part(t, '', 1)",
    "split_part(t, '', 2)",
    "split_part(t, u, 2)",
    "starts_with(t, u)",
    "starts_with(t, 'a')",
    "concat(t, u)",
    "concat(t, NULL, i4)",
    "concat(b, ':', f8)",
    "concat()||'x'",
    "t LIKE 'a%'",
    "t LIKE '%b%'",
    "t LIKE '_b_'",
    "t LIKE ''",
    "t LIKE '%'",
    "t NOT LIKE 'a%'",
    "t ILIKE 'A%'",
    "t LIKE u",
    "t LIKE 'a\\%%'",
    "t LIKE '%\\\\%'",
    "t LIKE 'a\\'",
    "t LIKE '%_€%'",
    "t LIKE '%c'",
    "t LIKE '%a%b%c%'",
    // Numbers.
    "abs(i4)",
    "abs(i8)",
    "abs(i2)",
    "abs(f8)",
    "abs(n)",
    "round(n)",
    "round(n, 2)",
    "round(n, 0)",
    "round(m, 1)",
    "round(f8)",
    "floor(n)",
    "ceil(n)",
    "ceiling(n)",
    "floor(f8)",
    "ceil(f8)",
    "floor(m)",
    "ceil(m)",
    "round(g8)",
    "greatest(i4, j4)",
    "least(i4, j4)",
    "greatest(i4, j4, 5)",
    "least(n, m)",
    "greatest(f8, g8)",
    "least(f8, g8)",
    "greatest(t, u, NULL)",
    "greatest(d, DATE '2000-01-01')",
    "nullif(i4, 5)",
    "nullif(t, '')",
    "nullif(f8, g8)",
    "coalesce(i4, j4)",
    "coalesce(i4, j4, 0)",
    "coalesce(t, u, 'none')",
    "coalesce(NULL, i4)",
    "coalesce(i4, 1 / i4)",
    "coalesce(f8, i4)",
    // CASE computes only what it chooses.
    "CASE WHEN j4 <> 0 THEN i4 / j4 END",
    "CASE WHEN j4 = 0 THEN NULL ELSE i4 / j4 END",
    "CASE i4 WHEN 1 THEN 'one' WHEN 5 THEN 'five' ELSE t END",
    "CASE WHEN b THEN 1 WHEN c THEN 2 END",
    "CASE WHEN b THEN i4 ELSE n END",
    "CASE WHEN NULL THEN 1 ELSE 2 END",
    "j4 <> 0 AND i4 / j4 > 1",
    "CASE WHEN t = '12.5' THEN CAST(t AS double precision) END",
    // Casts.
    "CAST(i4 AS text)",
    "i8::text",
    "f8::text",
    "f4::text",
    "n::text",
    "m::text",
    "b::text",
    "d::text",
    "CAST(f8 AS integer)",
    "f8::bigint",
    "f4::smallint",
    "n::integer",
    "n::bigint",
    "m::smallint",
    "i8::integer",
    "i4::smallint",
    "i4::boolean",
    "b::integer",
    "i4::double precision",
    "i8::real",
    "i8::double precision",
    "n::double precision",
    "n::real",
    "f8::real",
    "f4::double precision",
    "f8::numeric(20, 4)",
    "f4::numeric(20, 4)",
    "f8::numeric(38, 10)",
    "i4::numeric(10, 2)",
    "n::numeric(10, 2)",
    "n::numeric(20, 0)",
    "m::numeric(20, 4)",
    "i8::numeric(19, 0)",
    "t::integer",
    "t::double precision",
    "t::date",
    "t::boolean",
    "t::numeric(10, 1)",
    "d::timestamp",
    "(d::timestamp)::date",
    "d::timestamp::text",
    "t::real",
    "u::bigint",
    "t::timestamp",
    "'t'::boolean",
    "'YES'::boolean",
    "'of'::boolean",
    "'o'::boolean",
    "' true '::boolean",
    "'1e5'::double precision",
    "TIMESTAMP '2026-11-21 10:11:12.5'",
    "TIMESTAMP '2026-11-21 10:11:12.5'::text",
    "TIMESTAMP '2026-11-21 23:59:59.999999'::date",
    "TIMESTAMPTZ '2026-11-21 10:11:12+02'::text",
    "TIMESTAMP '1969-12-31 23:59:59.5'::date",
];

/// Expressions that PostgreSQL computes and this program refuses, with the reason.
const REFUSED_HERE: &[(&str, &str)] = &[
    (
        "t::numeric(10, 1)",
        "a text with more digits is refused and not rounded",
    ),
    ("f8::numeric(20, 4)", "a decimal of Arrow is never NaN"),
    ("f4::numeric(20, 4)", "a decimal of Arrow is never NaN"),
    ("f8::numeric(38, 10)", "a decimal of Arrow is never NaN"),
];

/// A number without the zeros at the end of its fraction.
fn without_zeros(text: String) -> String {
    let digits = text.strip_prefix('=').unwrap_or_default();
    let is_number = digits.contains('.')
        && digits
            .chars()
            .all(|c| c.is_ascii_digit() || "-.".contains(c));
    match is_number {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn input() -> RecordBatch {
    let fields = NAMES
        .iter()
        .map(|(name, _)| Field::new(*name, DataType::Utf8, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = (0..NAMES.len()).map(|column| {
        let texts = ROWS
            .iter()
            .map(|row| Some(row[column]).filter(|text| *text != "NULL"));
        let texts = texts.map(|text| match text {
            // Years before Christ as this project writes them.
            Some("0044-03-15 BC") => Some("-0043-03-15"),
            other => other,
        });
        Arc::new(StringArray::from_iter(texts)) as ArrayRef
    });
    RecordBatch::try_new(schema, columns.collect()).unwrap()
}

/// The rows with their types.
fn typed() -> RecordBatch {
    let types: serde_json::Map<String, serde_json::Value> = NAMES
        .iter()
        .map(|(name, kind)| ((*name).into(), (*kind).into()))
        .collect();
    transform(serde_json::json!([{ "cast": types }]), &input()).unwrap()
}

#[test]
fn every_expression_gives_what_postgresql_gives() {
    let database = shared().database();
    let mut client = database.client();
    let columns = NAMES
        .map(|(name, kind)| format!("{name} {kind}"))
        .join(", ");
    client.batch_execute(&format!(
        "SET TimeZone = 'UTC'; CREATE TABLE rows (id integer, {columns});
         CREATE FUNCTION attempt(expression text, wanted integer) RETURNS text LANGUAGE plpgsql AS $$
         DECLARE result text;
         BEGIN
             EXECUTE 'SELECT (' || expression || ')::text FROM rows WHERE id = ' || wanted INTO result;
             RETURN coalesce('=' || result, 'NULL');
         EXCEPTION WHEN OTHERS THEN RETURN 'ERROR ' || SQLERRM;
         END $$",
    )).unwrap();
    for (id, row) in ROWS.iter().enumerate() {
        let values = row.map(|value| match value {
            "NULL" => "NULL".to_owned(),
            text => format!("'{}'", text.replace('\'', "''")),
        });
        client
            .batch_execute(&format!(
                "INSERT INTO rows VALUES ({id}, {})",
                values.join(", ")
            ))
            .unwrap();
    }
    let batch = typed();
    let (mut wrong, mut compared, mut refused) = (Vec::new(), 0, 0);
    for expression in EXPRESSIONS {
        // The collation of a database decides the order of texts; this program compares their bytes.
        let there = expression.replace("COLLATE_C", "COLLATE \"C\"");
        let here = expression.replace("COLLATE_C", "");
        let rows = client
            .query("SELECT attempt($1, id) FROM rows ORDER BY id", &[&there])
            .unwrap();
        for (id, row) in rows.iter().enumerate() {
            let expected: String = row.get(0);
            let one = batch.slice(id, 1);
            let steps = serde_json::json!([
                { "set": { "result": here } }, { "cast": { "result": "text" } }
            ]);
            let computed = match transform(steps, &one) {
                Ok(moved) => {
                    let result = moved
                        .column_by_name("result")
                        .unwrap()
                        .as_string::<i32>()
                        .clone();
                    match result.is_null(0) {
                        true => "NULL".to_owned(),
                        false => format!("={}", result.value(0)),
                    }
                }
                Err(error) => format!("ERROR {}", error.message),
            };
            compared += 1;
            // PostgreSQL keeps the scale of each numeric value, a column has one.
            let (expected, computed) = (without_zeros(expected), without_zeros(computed));
            let is_refused = |text: &str| text.starts_with("ERROR ");
            if is_refused(&expected) && is_refused(&computed) {
                refused += 1;
            } else if expected != computed {
                let known = REFUSED_HERE.iter().any(|(known, _)| known == expression);
                if !(known && is_refused(&computed)) {
                    wrong.push(format!("row {id}: {expression}: {expected} but {computed}"));
                }
            }
        }
    }
    println!("{compared} values compared, {refused} refused by both");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
