//! Random batches of every type come back as they were, whatever the sizes of batches and groups.

use crate::support::{TYPES, joined, options, random_batch, read, schema, write};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;
use rapidbyte_columnar::{Compression, File, Fit, Kind, Limits, WriteOptions, form};
use rapidbyte_wire::types::{mark_json_strings, parse_field};
use std::sync::Arc;

const CODECS: [Compression; 6] = [
    Compression::None,
    Compression::Snappy,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Lz4,
    Compression::Brotli,
];

fn every_type() -> Vec<(String, &'static str)> {
    let columns = TYPES.iter().enumerate();
    columns
        .map(|(at, name)| (format!("c{at}, \""), *name))
        .collect()
}

fn same(found: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(found.num_rows(), expected.num_rows());
    assert_eq!(found.schema(), expected.schema());
    for (at, field) in expected.schema().fields().iter().enumerate() {
        // Bit for bit: NaN equals NaN, and -0.0 is not 0.0.
        let (found, expected) = (found.column(at), expected.column(at));
        if let (Some(found), Some(expected)) = (
            found.as_primitive_opt::<Float64Type>(),
            expected.as_primitive_opt::<Float64Type>(),
        ) {
            let bits = |value: Option<f64>| value.map(f64::to_bits);
            assert!(
                found.iter().map(bits).eq(expected.iter().map(bits)),
                "{field}"
            );
        } else {
            assert_eq!(found.to_data(), expected.to_data(), "{field}");
        }
    }
}

fn there_and_back(
    kind: Kind,
    types: &[usize],
    rows: &[usize],
    seed: &[u64],
    more: &(WriteOptions, Limits),
) {
    let columns = every_type();
    let columns: Vec<(&str, &str)> = types
        .iter()
        .map(|at| &columns[at % columns.len()])
        .map(|(name, type_name)| (name.as_str(), *type_name))
        .collect();
    let schema = schema(&columns);
    let batches: Vec<RecordBatch> = rows
        .iter()
        .map(|rows| random_batch(&schema, *rows, seed))
        .collect();
    let (options, limits) = more;
    let file = write(kind, &batches, options);
    let opened = File::open(kind, Arc::new(file.clone())).unwrap();
    assert_eq!(opened.rows(), rows.iter().sum::<usize>() as u64);
    let found = read(kind, file, None, *limits).unwrap();
    same(&joined(&schema, &found), &joined(&schema, &batches));
}

#[test]
fn a_file_does_not_say_that_its_strings_were_read_from_json() {
    let columns = [("s", "string"), ("l", "list<string>"), ("j", "json")];
    let schema = schema(&columns);
    let batch = random_batch(&schema, 100, &[3]);
    let marked = Arc::new(mark_json_strings(&schema));
    assert_ne!(marked, schema);
    let marked = RecordBatch::try_new(marked, batch.columns().to_vec()).unwrap();
    for kind in [Kind::Parquet, Kind::Arrow] {
        let options = WriteOptions::default();
        let file = write(kind, std::slice::from_ref(&marked), &options);
        assert_eq!(
            file,
            write(kind, std::slice::from_ref(&batch), &options),
            "{kind:?}"
        );
    }
}

#[test]
fn every_type_comes_back_with_every_codec() {
    let columns: Vec<usize> = (0..TYPES.len()).collect();
    for compression in CODECS {
        for kind in [Kind::Parquet, Kind::Arrow] {
            if !compression.fits(kind) {
                continue;
            }
            let more = (options(compression), Limits::default());
            there_and_back(kind, &columns, &[500, 1, 0, 1500], &[7, 11], &more);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_batches_come_back(
        types in prop::collection::btree_set(0..TYPES.len(), 1..6),
        rows in prop::collection::vec(0_usize..300, 1..5),
        seed in prop::collection::vec(any::<u64>(), 1..4),
        parquet in any::<bool>(),
        batch_bytes in 1_usize..20_000,
        row_group_bytes in 1_usize..100_000,
    ) {
        let kind = if parquet { Kind::Parquet } else { Kind::Arrow };
        let types: Vec<usize> = types.into_iter().collect();
        let options = WriteOptions { row_group_bytes, ..WriteOptions::default() };
        let limits = Limits { batch_bytes, ..Limits::default() };
        there_and_back(kind, &types, &rows, &seed, &(options, limits));
    }
}

#[test]
fn seconds_become_milliseconds_in_parquet_and_stay_in_arrow() {
    let from = schema(&[
        ("t", "timestamp(s)"),
        ("d", "time(s)"),
        ("l", "list<timestamp(s, UTC)>"),
    ]);
    let to = schema(&[
        ("t", "timestamp(ms)"),
        ("d", "time(ms)"),
        ("l", "list<timestamp(ms, UTC)>"),
    ]);
    let batch = RecordBatch::try_new(
        from.clone(),
        vec![
            Arc::new(arrow_array::TimestampSecondArray::from(vec![
                Some(-5),
                None,
            ])),
            Arc::new(arrow_array::Time32SecondArray::from(vec![86_399, 0])),
            arrow_array::new_null_array(from.field(2).data_type(), 2),
        ],
    )
    .unwrap();
    for (kind, expected) in [(Kind::Parquet, &to), (Kind::Arrow, &from)] {
        let file = write(kind, std::slice::from_ref(&batch), &WriteOptions::default());
        let found = read(kind, file, None, Limits::default()).unwrap();
        assert_eq!(&found[0].schema(), expected);
    }
    let file = write(Kind::Parquet, &[batch], &WriteOptions::default());
    let found = read(Kind::Parquet, file, None, Limits::default()).unwrap();
    let column = found[0]
        .column(0)
        .as_primitive::<arrow_array::types::TimestampMillisecondType>();
    assert_eq!((column.value(0), column.is_null(1)), (-5000, true));
    // A value that does not fit is an error at its row.
    let far = RecordBatch::try_new(
        schema(&[("t", "timestamp(s)")]),
        vec![Arc::new(arrow_array::TimestampSecondArray::from(vec![
            i64::MAX,
        ]))],
    )
    .unwrap();
    let mut writer = rapidbyte_columnar::FileWriter::new(
        Kind::Parquet,
        far.schema(),
        &WriteOptions::default(),
        Vec::new(),
    )
    .unwrap();
    assert_eq!(writer.write(&far).unwrap_err().code, "value_does_not_fit");
}

#[test]
fn the_form_of_a_type_is_known_before_the_write() {
    let cases = [
        ("int64", "INT64", Fit::Exact),
        ("uint8", "INT32 INTEGER(8, unsigned)", Fit::Exact),
        ("decimal(9, 2)", "INT32 DECIMAL(9, 2)", Fit::Exact),
        (
            "decimal(76, 2)",
            "FIXED_LEN_BYTE_ARRAY(32) DECIMAL(76, 2)",
            Fit::Exact,
        ),
        ("string", "BYTE_ARRAY STRING", Fit::Exact),
        ("json", "BYTE_ARRAY JSON", Fit::Exact),
        ("uuid", "FIXED_LEN_BYTE_ARRAY(16) UUID", Fit::Exact),
        ("timestamptz", "INT64 TIMESTAMP(MICROS, UTC)", Fit::Exact),
        ("timestamp(s)", "INT64 TIMESTAMP(MILLIS)", Fit::Widened),
        ("duration(us)", "INT64", Fit::Exact),
        ("list<string>", "LIST", Fit::Exact),
        ("struct<a: int64>", "group", Fit::Exact),
        ("map<string, int64>", "MAP", Fit::Exact),
        ("interval", "", Fit::Refused),
        ("list<interval>", "", Fit::Refused),
        ("struct<>", "", Fit::Refused),
        ("fixed_binary(0)", "", Fit::Refused),
    ];
    for (name, type_name, fit) in cases {
        let field = parse_field("c", name, true).unwrap();
        let found = form(Kind::Parquet, &field);
        assert_eq!(
            (found.type_name.as_str(), found.fit),
            (type_name, fit),
            "{name}: {:?}",
            found.note
        );
        assert_eq!(found.fit == Fit::Refused, type_name.is_empty());
        assert_eq!(form(Kind::Arrow, &field).fit, Fit::Exact, "{name}");
    }
    let negative = arrow_schema::Field::new("c", arrow_schema::DataType::Decimal128(3, -2), true);
    assert_eq!(form(Kind::Parquet, &negative).fit, Fit::Refused);
    let field = parse_field("c", "interval", true).unwrap();
    let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
    let refused = rapidbyte_columnar::FileWriter::new(
        Kind::Parquet,
        schema,
        &WriteOptions::default(),
        Vec::new(),
    );
    let error = refused.err().expect("refused before anything is written");
    assert_eq!(
        (error.code, error.column.as_deref()),
        ("unsupported_type", Some("c"))
    );
    let empty = Arc::new(arrow_schema::Schema::empty());
    let refused = rapidbyte_columnar::FileWriter::new(
        Kind::Parquet,
        empty,
        &WriteOptions::default(),
        Vec::new(),
    );
    assert_eq!(refused.err().map(|e| e.code), Some("no_columns"));
}

#[test]
fn rows_without_columns_are_counted_in_arrow() {
    let schema = Arc::new(arrow_schema::Schema::empty());
    let batch = random_batch(&schema, 70_001, &[1]);
    let file = write(Kind::Arrow, &[batch], &WriteOptions::default());
    let found = read(Kind::Arrow, file, None, Limits::default()).unwrap();
    assert_eq!(
        found.iter().map(RecordBatch::num_rows).sum::<usize>(),
        70_001
    );
}
