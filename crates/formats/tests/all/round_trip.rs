//! Random batches of every type come back, random bytes never panic, and it does not matter where
//! the pieces of a file end.

use crate::support::{Format, schema};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use proptest::prelude::*;
use rapidbyte_formats::{Limits, csv::Dialect};
use rapidbyte_testkit::batches::random;

/// Every type name of the contract.
const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(5, 2)",
    "decimal(38, 0)",
    "decimal(38, 38)",
    "decimal(76, 10)",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "fixed_binary(3)",
    "fixed_binary(0)",
    "date",
    "time(s)",
    "time(ms)",
    "time(us)",
    "time(ns)",
    "timestamp(s)",
    "timestamp(ms)",
    "timestamp",
    "timestamp(ns)",
    "timestamptz",
    "timestamp(s, Europe/Berlin)",
    "timestamp(ns, +02:00)",
    "duration(s)",
    "duration(us)",
    "duration(ns)",
    "interval",
    "uuid",
    "json",
    "null",
    "list<int64>",
    "list<list<string>>",
    "large_list<float64>",
    "struct<a: int64, b c: string>",
    "struct<>",
    "map<string, json>",
    "map<int32, list<uuid>>",
    "map<timestamptz, struct<x: binary, y: decimal(50, 3)>>",
];

fn batch(types: &[usize], rows: usize, seed: Vec<u64>, finite: bool) -> RecordBatch {
    let names: Vec<String> = (0..types.len()).map(|at| format!("c{at}\", x")).collect();
    let columns: Vec<_> = names
        .iter()
        .zip(types)
        .map(|(n, t)| {
            let name = TYPES[t % TYPES.len()];
            (
                n.as_str(),
                if name.contains("b c") {
                    "struct<a: int64, \"b c\": string>"
                } else {
                    name
                },
            )
        })
        .collect();
    let schema = schema(&columns);
    random(&schema, rows, &seed, finite)
}

fn dialects() -> impl Strategy<Value = Dialect> {
    let null_texts = prop::sample::subsequence(vec!["", "NULL", "\\N", "0", "null"], 1..3);
    (
        prop::sample::select(vec![b',', b'\t', b';', b'-', b'a', b'|']),
        any::<bool>(),
        null_texts,
    )
        .prop_map(|(delimiter, header, null_text)| Dialect {
            delimiter,
            quote: if delimiter == b';' { b'\'' } else { b'"' },
            header,
            null_text: null_text
                .into_iter()
                .map(String::from)
                .filter(|t| delimiter != b'a' || !t.contains('a'))
                .collect(),
            ..Dialect::default()
        })
}

/// Where two batches differ, column by column: NaN equals NaN.
fn assert_same(a: &[RecordBatch], b: &RecordBatch) {
    let rows: usize = a.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, b.num_rows());
    let Some(a) = a.first() else { return };
    for (x, y) in a.columns().iter().zip(b.columns()) {
        match x.data_type() {
            DataType::Float32 | DataType::Float64 => {
                assert_eq!(format!("{x:?}"), format!("{y:?}"));
            }
            _ => assert_eq!(x, y),
        }
    }
}

fn check(format: &Format, batch: &RecordBatch, cut: usize) {
    let file = format.encode(batch).unwrap();
    let decoded = format.decode(&batch.schema(), &file).unwrap();
    assert_same(&decoded, batch);
    // Wherever the file is cut, and sliced batches too.
    let mut decoder = format.decoder(&batch.schema(), None, Limits::default());
    let cut = cut % (file.len() + 1);
    assert_same(&decoder.file(&[&file[..cut], &file[cut..]]).unwrap(), batch);
    let pieces: Vec<&[u8]> = file.chunks(1).collect();
    assert_same(&decoder.file(&pieces).unwrap(), batch);
    let half = batch.slice(
        batch.num_rows() / 2,
        batch.num_rows() - batch.num_rows() / 2,
    );
    let file = format.encode(&half).unwrap();
    assert_same(&format.decode(&batch.schema(), &file).unwrap(), &half);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_come_back_from_csv(
        types in prop::collection::vec(any::<usize>(), 1..5),
        rows in 0..12_usize,
        seed in prop::collection::vec(any::<u64>(), 4),
        dialect in dialects(),
        cut in any::<usize>(),
    ) {
        prop_assume!(!dialect.null_text.is_empty());
        check(&Format::csv(dialect), &batch(&types, rows, seed, false), cut);
    }

    #[test]
    fn batches_come_back_from_jsonl(
        types in prop::collection::vec(any::<usize>(), 0..5),
        rows in 0..12_usize,
        seed in prop::collection::vec(any::<u64>(), 4),
        cut in any::<usize>(),
    ) {
        check(&Format::jsonl(), &batch(&types, rows, seed, true), cut);
    }

    #[test]
    fn random_bytes_never_panic_and_cuts_never_matter(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                &b"a"[..], b"b", b",", b"\"", b"\n", b"\r", b"{", b"}", b"[", b"]", b":", b"1",
                b"-", b".", b"e", b"null", b"true", b"\\", b"\\u", b"\xef\xbb\xbf", b"\xef", b"\xff", b" ",
                b"{\"a\":", b"\"b\":\"", b"a,b\n", b"2026-11-21", b"T10:11:12", b"Z", b"P1", b"\\x00",
            ]),
            0..30,
        ),
        kind in 0..TYPES.len(),
        header in any::<bool>(),
        cut in any::<usize>(),
    ) {
        let file = pieces.concat();
        let kind = if TYPES[kind].contains("b c") { "json" } else { TYPES[kind] };
        let schema = schema(&[("a", kind), ("b", "string")]);
        for format in [Format::csv(Dialect { header, ..Dialect::default() }), Format::jsonl()] {
            let whole = format.decode(&schema, &file);
            let cut = cut % (file.len() + 1);
            let limits = Limits { batch_rows: 1, ..Limits::default() };
            let bytes: Vec<&[u8]> = file.chunks(1).collect();
            for pieces in [&[&file[..cut], &file[cut..]][..], &bytes] {
                let again = format.decoder(&schema, None, Limits::default()).file(pieces);
                prop_assert_eq!(format!("{whole:?}"), format!("{again:?}"));
                let rows = format.decoder(&schema, None, limits).file(pieces);
                prop_assert_eq!(whole.is_ok(), rows.is_ok());
            }
        }
    }
}

#[test]
fn every_type_comes_back() {
    for at in 0..TYPES.len() {
        for seed in 0..20 {
            let finite = batch(&[at], 9, vec![seed], true);
            check(&Format::jsonl(), &finite, 7);
            check(
                &Format::csv(Dialect::default()),
                &batch(&[at, at], 9, vec![seed], false),
                11,
            );
            check(
                &Format::csv(Dialect::default()),
                &batch(&[at], 9, vec![seed], false),
                3,
            );
        }
    }
}
