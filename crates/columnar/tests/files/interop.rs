//! Files that are written here are read by pyarrow, DuckDB and polars with the same values, and
//! theirs are read here: each reads our file and writes its own, which must hold our values again.
//!
//! `cargo xtask test` says by `RAPIDBYTE_COLUMNAR_PYTHON` where an interpreter has them.

use std::path::Path;
use std::process::Command;

use crate::support::{options, read, schema, write};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_columnar::{Compression, Kind, Limits};
use rapidbyte_formats::{Format, Picked, csv::Dialect};

const ROWS: usize = 2000;

/// Name, type, who holds it (p: pyarrow, d: DuckDB, l: polars), and values: `#` stands for the
/// row's number, alternatives stand between `|`.
const COLUMNS: &[(&str, &str, &str, &str)] = &[
    ("bool", "bool", "pdl", "true|false"),
    ("int8", "int8", "pdl", "-128|127|0"),
    ("int16", "int16", "pdl", "-32768|32767|#"),
    ("int32", "int32", "pdl", "-2147483648|2147483647|#"),
    (
        "int64",
        "int64",
        "pdl",
        "-9223372036854775808|9223372036854775807|#",
    ),
    ("uint8", "uint8", "pdl", "255|0"),
    ("uint16", "uint16", "pdl", "65535|#"),
    ("uint32", "uint32", "pdl", "4294967295|#"),
    ("uint64", "uint64", "pdl", "18446744073709551615|#"),
    ("float32", "float32", "pdl", "0.1|-0.0|3.4028235e38|NaN|#.5"),
    (
        "float64",
        "float64",
        "pdl",
        "0.1|-0.0|5e-324|Infinity|NaN|#.25",
    ),
    ("dec9", "decimal(9, 2)", "pdl", "-9999999.99|0.01|#.10"),
    (
        "dec18",
        "decimal(18, 4)",
        "pdl",
        "99999999999999.9999|-0.0001|#.1000",
    ),
    (
        "dec38",
        "decimal(38, 10)",
        "pdl",
        "-9999999999999999999999999999.9999999999|#.5",
    ),
    (
        "dec76",
        "decimal(76, 5)",
        "p",
        "-99999999999999999999999999999999999999999999999999999.99999|#",
    ),
    ("text", "string", "pdl", "é 😀|a \"quoted\" b|\"\"|row #"),
    ("large", "large_string", "pdl", "x|y #"),
    ("bytes", "binary", "pdl", "\\x00ff|\\x|\\x61"),
    ("fixed", "fixed_binary(3)", "pd", "\\x00ff01|\\x616263"),
    (
        "day",
        "date",
        "pdl",
        "0001-01-01|1969-12-31|9999-12-31|2026-11-21",
    ),
    ("time_ms", "time(ms)", "pdl", "23:59:59.999|00:00:00"),
    ("time_us", "time(us)", "pdl", "23:59:59.999999|00:00:00"),
    ("time_ns", "time(ns)", "pl", "23:59:59.999999999|00:00:00"),
    (
        "at_ms",
        "timestamp(ms)",
        "pdl",
        "1969-12-31T23:59:59.999|2026-11-21T10:11:12",
    ),
    (
        "at_us",
        "timestamp",
        "pdl",
        "0001-01-01T00:00:00.000001|9999-12-31T23:59:59.999999|2026-11-21T10:11:12",
    ),
    (
        "at_ns",
        "timestamp(ns)",
        "pdl",
        "1677-10-01T00:00:00.000000001|2262-01-01T23:59:59.999999999",
    ),
    (
        "utc",
        "timestamptz",
        "pdl",
        "0001-01-01T00:00:00.000001Z|2026-11-21T10:11:12.5Z",
    ),
    (
        "berlin",
        "timestamp(us, Europe/Berlin)",
        "pl",
        "2026-11-21T10:11:12.5Z",
    ),
    (
        "uuid",
        "uuid",
        "pd",
        "00000000-0000-0000-0000-000000000000|550e8400-e29b-41d4-a716-446655440000",
    ),
    ("json", "json", "p", "{\"a\":[1,2.50]}|[]|\"x\""),
    ("duration", "duration(us)", "pl", "PT1.5S|-PT0.000001S"),
    ("list", "list<int64>", "pdl", "[1,null,-3]|[]|[#]"),
    (
        "lists",
        "list<list<string>>",
        "pdl",
        "[[\"a\",null],[]]|[]|[[\"#\"]]",
    ),
    (
        "struct",
        "struct<a: int64, b: string>",
        "pd",
        "{\"a\":1,\"b\":\"x\"}|{\"a\":null,\"b\":\"#\"}",
    ),
    ("map", "map<string, int64>", "pd", "{\"a\":1,\"b\":null}|{}"),
];

fn columns_of(program: char) -> Vec<(&'static str, &'static str, &'static str)> {
    let held = COLUMNS.iter().filter(|(.., who, _)| who.contains(program));
    held.map(|(name, type_name, _, values)| (*name, *type_name, *values))
        .collect()
}

/// The rows as CSV, and the batch that they are.
fn rows(program: char) -> (SchemaRef, RecordBatch, String) {
    let columns = columns_of(program);
    let mut file = String::new();
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    file += &names.join(",");
    file.push('\n');
    for row in 0..ROWS {
        let fields = columns.iter().enumerate().map(|(at, (_, _, values))| {
            if (row + at) % 9 == 8 {
                return String::new();
            }
            let values: Vec<&str> = values.split('|').collect();
            let value = values[row % values.len()].replace('#', &row.to_string());
            format!("\"{}\"", value.replace('"', "\"\""))
        });
        file += &fields.collect::<Vec<_>>().join(",");
        file.push('\n');
    }
    let types: Vec<(&str, &str)> = columns.iter().map(|(name, ty, _)| (*name, *ty)).collect();
    let schema = schema(&types);
    let format = Format::Csv(Dialect::default());
    let limits = rapidbyte_formats::Limits {
        batch_bytes: usize::MAX,
        ..rapidbyte_formats::Limits::default()
    };
    let mut decoder = format.decoder(schema.clone(), None, limits).unwrap();
    decoder.begin_file();
    let taken = decoder.push(file.as_bytes()).unwrap();
    assert_eq!(taken, file.len());
    decoder.end_of_file().unwrap();
    let batch = decoder.take_batch().unwrap().unwrap();
    let text = text(std::slice::from_ref(&batch));
    (schema, batch, text)
}

/// The values as CSV: the same for the same values, whatever their types' widths are.
fn text(batches: &[RecordBatch]) -> String {
    let format = Format::Csv(Dialect::default());
    let encoder = format.encoder(batches[0].schema()).unwrap();
    let mut out = Vec::new();
    encoder.write_header(&mut out);
    for batch in batches {
        let mut row = 0;
        while row < batch.num_rows() {
            row = encoder
                .encode(Picked::all(batch), row, &mut out, usize::MAX)
                .unwrap();
        }
    }
    without_zeros(&String::from_utf8(out).unwrap())
}

/// Fractions of seconds without zeros at their end: programs change units.
fn without_zeros(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('.') {
        let (before, after) = rest.split_at(at);
        out += before;
        let digits = after[1..].len()
            - after[1..]
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        let fraction = &after[1..=digits];
        let is_time = before.len() >= 3 && before.as_bytes()[before.len() - 3] == b':';
        let kept = if is_time {
            fraction.trim_end_matches('0')
        } else {
            fraction
        };
        if !is_time || !kept.is_empty() {
            out.push('.');
            out += kept;
        }
        rest = &after[1 + digits..];
    }
    out + rest
}

/// Where the values differ first.
fn same(found: &str, expected: &str, what: &str) {
    for (row, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{what}, row {row}");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{what}");
}

fn python() -> Option<String> {
    let python = std::env::var("RAPIDBYTE_COLUMNAR_PYTHON").unwrap_or_default();
    if python.is_empty() {
        println!("SKIPPED: no Python with pyarrow, DuckDB and polars");
        return None;
    }
    Some(python)
}

fn through(python: &str, program: &str, from: &Path, to: &Path) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/interop.py");
    let output = Command::new(python)
        .args([script, program])
        .args([from, to])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn kind_of(name: &str) -> Kind {
    match name.ends_with(".parquet") {
        true => Kind::Parquet,
        false => Kind::Arrow,
    }
}

/// Ours, read by a program and written again, in these formats.
fn there_and_back(program: &str, letter: char, from: &str, to: &str, seen: &[&str]) {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_, batch, expected) = rows(letter);
    for compression in [
        Compression::Zstd,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Gzip,
        Compression::Brotli,
        Compression::None,
    ] {
        if !compression.fits(kind_of(from)) {
            continue;
        }
        let mut options = options(compression);
        options.row_group_bytes = 40_000;
        let (ours, theirs) = (folder.path().join(from), folder.path().join(to));
        std::fs::write(
            &ours,
            write(kind_of(from), std::slice::from_ref(&batch), &options),
        )
        .unwrap();
        let values = through(&python, program, &ours, &theirs);
        for line in seen {
            let found = values.lines().any(|value| value == *line);
            assert!(
                found,
                "{program} with {compression:?}: {line:?} is not in {values}"
            );
        }
        let file = std::fs::read(&theirs).unwrap();
        let found = read(kind_of(to), file, None, Limits::default()).unwrap();
        same(
            &text(&found),
            &expected,
            &format!("{program} {compression:?} {from} to {to}"),
        );
    }
}

#[test]
fn pyarrow_and_we_read_each_others_files() {
    let seen = [
        "int64=9223372036854775807",
        "uint8=0",
        "dec9=0.01",
        "text=a \"quoted\" b",
        "bytes=b''",
        "day=1969-12-31",
        "at_us=9999-12-31 23:59:59.999999",
        "utc=2026-11-21 10:11:12.500000+00:00",
        "uuid=550e8400-e29b-41d4-a716-446655440000",
        "list=[]",
    ];
    there_and_back("pyarrow", 'p', "ours.parquet", "theirs.parquet", &seen);
    there_and_back("pyarrow", 'p', "ours.arrow", "theirs.arrow", &seen);
    there_and_back("pyarrow", 'p', "ours.parquet", "theirs.stream.arrow", &seen);
}

#[test]
fn duckdb_and_we_read_each_others_files() {
    let seen = [
        "int64=9223372036854775807",
        "uint8=0",
        "dec9=0.01",
        "text=a \"quoted\" b",
        "day=1969-12-31",
        "at_us=9999-12-31 23:59:59.999999",
        "utc=2026-11-21 10:11:12.5+00",
        "list=[]",
    ];
    there_and_back("duckdb", 'd', "ours.parquet", "theirs.parquet", &seen);
}

#[test]
fn polars_and_we_read_each_others_files() {
    let seen = [
        "int64=9223372036854775807",
        "uint8=0",
        "dec9=0.01",
        "text=a \"quoted\" b",
        "day=1969-12-31",
        "at_us=9999-12-31 23:59:59.999999",
        "list=[]",
    ];
    there_and_back("polars", 'l', "ours.parquet", "theirs.parquet", &seen);
    there_and_back("polars", 'l', "ours.arrow", "theirs.arrow", &seen);
}
