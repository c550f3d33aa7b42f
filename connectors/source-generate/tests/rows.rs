//! The generated rows, and the requests that are refused.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use arrow_select::concat::concat_batches;
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::arrow_array::types::{
    Decimal128Type, Decimal256Type, Int8Type, Int64Type,
};
use rapidbyte_sdk::prelude::*;
use source_generate::Generate;

/// One column of every type that can be declared, nested ones among them.
const EVERY_TYPE: &[&str] = &[
    "null",
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
    "decimal(1, 0)",
    "decimal(18, 4)",
    "decimal(38, 10)",
    "decimal(39, 39)",
    "decimal(76, 2)",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "fixed_binary(0)",
    "fixed_binary(3)",
    "date",
    "time(s)",
    "time(ms)",
    "time",
    "time(ns)",
    "timestamp(s)",
    "timestamp(ms)",
    "timestamp",
    "timestamp(ns)",
    "timestamptz",
    "timestamp(ms, Europe/Berlin)",
    "duration(s)",
    "duration(ms)",
    "duration(us)",
    "duration(ns)",
    "interval",
    "uuid",
    "json",
    "list<int32>",
    "large_list<string>",
    "list<list<list<list<list<uuid>>>>>",
    "struct<a: int64, b: list<string>, c: struct<>>",
    "map<string, decimal(5, 2)>",
    "map<bool, list<json>>",
    "list<map<int64, struct<x: binary>>>",
];

fn open(config: &str) -> Generate {
    rapidbyte_sdk::source::open(config).unwrap()
}

fn refused(config: &str) -> Error {
    rapidbyte_sdk::source::open::<Generate>(config)
        .err()
        .expect("a refusal")
}

fn request(batch_bytes: u32) -> ReadRequest {
    ReadRequest {
        batch_bytes,
        ..ReadRequest::of(&Stream::new("rows", &Schema::empty()).unwrap())
    }
}

fn next(reader: &mut impl Reader) -> Result<Option<RecordBatch>> {
    match reader.next(Duration::ZERO)? {
        Event::Batch(batch) => Ok(Some(batch)),
        Event::End => Ok(None),
        other => panic!("{other:?}"),
    }
}

/// The batches of a read, which must end.
fn batches(source: &mut Generate, request: &ReadRequest) -> Vec<RecordBatch> {
    let mut reader = source.read(request).unwrap();
    std::iter::from_fn(|| next(&mut reader).unwrap()).collect()
}

fn rows(source: &mut Generate, request: &ReadRequest) -> RecordBatch {
    let batches = batches(source, request);
    concat_batches(batches[0].schema_ref(), &batches).unwrap()
}

fn every_type(nullable: bool) -> String {
    let columns: Vec<_> = EVERY_TYPE
        .iter()
        .enumerate()
        .map(|(at, name)| format!(r#""c{at}": {{"type": "{name}", "nullable": {nullable}}}"#))
        .collect();
    format!(
        r#"{{"rows": 3000, "seed": 7, "columns": {{{}}}}}"#,
        columns.join(",")
    )
}

#[test]
fn batches_of_any_size_hold_the_same_rows() {
    for nullable in [false, true] {
        let mut source = open(&every_type(nullable));
        let small = batches(&mut source, &request(4 << 10));
        let large = batches(&mut source, &request(1 << 20));
        assert!(
            small.len() > 10 * large.len(),
            "{} {}",
            small.len(),
            large.len()
        );
        let schema = small[0].schema();
        assert_eq!(
            concat_batches(&schema, &small).unwrap(),
            concat_batches(&schema, &large).unwrap()
        );
    }
}

#[test]
fn every_type_survives_the_wire() {
    for nullable in [false, true] {
        let mut source = open(&every_type(nullable));
        for batch in batches(&mut source, &request(100_000)) {
            let mut encoder = ipc::Encoder::new(batch.schema_ref()).unwrap();
            let decoder = ipc::Decoder::new(encoder.schema_message()).unwrap();
            assert_eq!(
                decoder.decode(encoder.encode(&batch).unwrap()).unwrap(),
                batch
            );
        }
    }
}

#[test]
fn values_of_every_type_differ_and_are_null_only_where_allowed() {
    for nullable in [false, true] {
        let all = rows(&mut open(&every_type(nullable)), &request(1 << 20));
        for (name, column) in EVERY_TYPE.iter().zip(all.columns()) {
            let nulls = column.null_count();
            let expected = if nullable && *name != "null" {
                200..400
            } else {
                0..1
            };
            assert!(expected.contains(&nulls), "{name}: {nulls} NULLs");
            let same = column.slice(0, 1500).to_data() == column.slice(1500, 1500).to_data();
            assert_eq!(
                same,
                ["null", "fixed_binary(0)"].contains(name) && !(nullable && nulls > 0)
            );
        }
    }
}

#[test]
fn decimals_have_their_digits_and_no_more() {
    let all = rows(&mut open(&every_type(false)), &request(1 << 20));
    for (name, column) in EVERY_TYPE.iter().zip(all.columns()) {
        let digits = match column.data_type() {
            DataType::Decimal128(precision, _) => {
                let column = column.as_primitive::<Decimal128Type>();
                column.validate_decimal_precision(*precision).unwrap();
                column
                    .values()
                    .iter()
                    .map(|v| v.unsigned_abs().to_string().len())
                    .max()
            }
            DataType::Decimal256(precision, _) => {
                let column = column.as_primitive::<Decimal256Type>();
                column.validate_decimal_precision(*precision).unwrap();
                column
                    .values()
                    .iter()
                    .map(|v| v.wrapping_abs().to_string().len())
                    .max()
            }
            _ => continue,
        };
        assert!(
            name.contains(&format!("({}", digits.unwrap())),
            "{name}: {digits:?}"
        );
    }
}

#[test]
fn seed_and_stream_change_the_values() {
    let config =
        r#"{"rows": 100, "seed": SEED, "columns": {"n": "int64"}, "streams": ["rows", "b"]}"#;
    let mut first = open(&config.replace("SEED", "1"));
    let mut second = open(&config.replace("SEED", "2"));
    let other = ReadRequest {
        stream: "b".into(),
        ..request(1000)
    };
    let from_first = rows(&mut first, &request(1000));
    assert_eq!(from_first, rows(&mut first, &request(2000)));
    assert_ne!(from_first, rows(&mut second, &request(1000)));
    assert_ne!(from_first, rows(&mut first, &other));
}

#[test]
fn narrow_stays_what_it_was() {
    let mut source = open(r#"{"rows": 100000, "preset": "narrow"}"#);
    let all = rows(&mut source, &request(1 << 20));
    let ids = all["id"].as_primitive::<Int64Type>();
    assert_eq!(ids.values().to_vec(), (0..100_000).collect::<Vec<_>>());
    let stream = &source.discover(&[]).unwrap()[0];
    assert_eq!(stream.estimated_rows, Some(100_000));
    assert_eq!(stream.estimated_bytes, Some(9_412_500));
    let bytes = all
        .columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap());
    let per_row = bytes.sum::<usize>() / all.num_rows();
    assert!((93..=95).contains(&per_row), "{per_row} bytes a row");
    // Golden: a change here changes every benchmark and every recorded hash.
    assert_eq!(
        all["customer"].as_primitive::<types::Int32Type>().value(0),
        GOLDEN_CUSTOMER
    );
    assert_eq!(all["note"].as_string::<i32>().value(99_999), GOLDEN_NOTE);
}
const GOLDEN_CUSTOMER: i32 = -421703994;
const GOLDEN_NOTE: &str = "vnzrir2jxxiwg4ssqcr1eca0dnpppgnykbd";

#[test]
fn columns_come_as_asked_with_their_own_values() {
    let mut source = open(r#"{"rows": 10, "columns": {"a": "int8", "b": "string", "c": "int8"}}"#);
    let all = rows(&mut source, &request(1000));
    let asked = |names: &[&str]| ReadRequest {
        columns: Some(names.iter().map(|n| (*n).into()).collect()),
        ..request(1000)
    };
    assert_eq!(
        rows(&mut source, &asked(&["c", "a"])),
        all.project(&[2, 0]).unwrap()
    );
    assert_eq!(rows(&mut source, &asked(&[])).num_rows(), 10);

    let error = source.read(&asked(&["a", "bb"])).err().unwrap();
    assert_eq!(
        (&*error.code, error.column.as_deref()),
        ("unknown_column", Some("bb"))
    );
    assert_eq!(error.hint.as_deref(), Some("did you mean \"b\"?"));
    let error = source.read(&asked(&["a", "a"])).err().unwrap();
    assert_eq!(error.code, "duplicate_column");
}

#[test]
fn a_wrong_stream_or_a_cursor_is_refused() {
    let mut source = open(r#"{"preset": "narrow"}"#);
    let other = ReadRequest {
        stream: "row".into(),
        ..request(1000)
    };
    let error = source.read(&other).err().unwrap();
    assert_eq!(error.code, "unknown_stream");
    assert_eq!(error.hint.as_deref(), Some("did you mean \"rows\"?"));
    let resumed = ReadRequest {
        cursor: Some("1".into()),
        ..request(1000)
    };
    assert_eq!(
        source.read(&resumed).err().unwrap().code,
        "cursor_not_supported"
    );
}

#[test]
fn wrong_configurations_say_where() {
    for (config, code, at) in [
        (r#"{}"#, "no_columns", "config.columns"),
        (
            r#"{"columns": {}, "preset": "narrow"}"#,
            "columns_and_preset",
            "config.preset",
        ),
        (
            r#"{"columns": {"a": "varchar"}}"#,
            "unknown_type",
            "config.columns.a",
        ),
        (
            r#"{"columns": {"a": 3}}"#,
            "invalid_config",
            "config.columns.a",
        ),
        (
            r#"{"columns": {"a": {"typ": "int8"}}}"#,
            "invalid_config",
            "config.columns.a.typ",
        ),
        (
            r#"{"columns": {"a": "int8", "a": "bool"}}"#,
            "duplicate_column",
            "config.columns.a",
        ),
        (
            r#"{"columns": {}, "streams": []}"#,
            "no_streams",
            "config.streams",
        ),
        (
            r#"{"columns": {}, "streams": ["a", "a"]}"#,
            "duplicate_stream",
            "config.streams[1]",
        ),
        (
            r#"{"columns": {}, "streams": [""]}"#,
            "empty_stream_name",
            "config.streams[0]",
        ),
    ] {
        let error = refused(config);
        assert_eq!(
            (&*error.code, error.location.as_deref()),
            (code, Some(at)),
            "{config}"
        );
        assert!(matches!(error.kind, ErrorKind::Config));
    }
    for (detail, code) in [
        (
            r#""type": "int8", "null_share": 0.5"#,
            "null_share_without_nullable",
        ),
        (
            r#""type": "int8", "nullable": true, "null_share": 1.5"#,
            "invalid_null_share",
        ),
        (
            r#""type": "int8", "length": [1, 2]"#,
            "length_not_applicable",
        ),
        (
            r#""type": "json", "length": [1, 2]"#,
            "length_not_applicable",
        ),
        (r#""type": "string", "length": [2, 1]"#, "invalid_length"),
        (
            r#""type": "string", "sequence": true"#,
            "sequence_not_integer",
        ),
        (r#""type": "int32", "sequence": true"#, "sequence_too_long"),
    ] {
        let error = refused(&format!(r#"{{"columns": {{"a": {{{detail}}}}}}}"#));
        assert_eq!(
            (&*error.code, error.location.as_deref()),
            (code, Some("config.columns.a"))
        );
    }
}

#[test]
fn a_sequence_may_fill_its_type_and_no_more() {
    let config = r#"{"rows": ROWS, "columns": {"n": {"type": "int8", "sequence": true}}}"#;
    let all = rows(&mut open(&config.replace("ROWS", "128")), &request(1000));
    assert_eq!(all["n"].as_primitive::<Int8Type>().value(127), 127);
    assert_eq!(
        refused(&config.replace("ROWS", "129")).code,
        "sequence_too_long"
    );
}

#[test]
fn a_record_above_the_limit_is_refused_after_those_before_it() {
    let config = r#"{"rows": 1000, "columns": {"s": {"type": "string", "length": [0, 1000]}}}"#;
    let limited = ReadRequest {
        max_record_bytes: 904,
        ..request(1 << 20)
    };
    let mut source = open(config);
    let all = rows(&mut source, &request(1 << 20));
    let too_large = all["s"]
        .as_string::<i32>()
        .iter()
        .position(|s| s.unwrap().len() > 900);
    let mut reader = source.read(&limited).unwrap();
    let good = next(&mut reader).unwrap().unwrap();
    assert_eq!(Some(good.num_rows()), too_large);
    assert_eq!(good, all.slice(0, good.num_rows()));
    let error = next(&mut reader).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Data));
    assert_eq!(error.code, "record_too_large");
    assert_eq!(error.location, Some(format!("row {}", good.num_rows())));
}

#[test]
fn an_endless_stream_keeps_to_the_batch_size() {
    let mut source = open(r#"{"preset": "narrow"}"#);
    let mut reader = source.read(&request(100_000)).unwrap();
    for _ in 0..10 {
        let rows = next(&mut reader).unwrap().unwrap().num_rows();
        assert_eq!(rows, 100_000 * 8 / 753);
    }
    let mut source =
        open(r#"{"columns": {"n": "null", "s": {"type": "string", "length": [90, 90]}}}"#);
    let first = |request: &ReadRequest, source: &mut Generate| {
        next(&mut source.read(request).unwrap())
            .unwrap()
            .unwrap()
            .num_rows()
    };
    assert_eq!(first(&request(1), &mut source), 1);
    let nothing = ReadRequest {
        columns: Some(vec!["n".into()]),
        ..request(1000)
    };
    assert_eq!(first(&nothing, &mut source), 65_536);
}

/// By hand: `cargo test --release -p source-generate -- --ignored --nocapture rows_per_second`.
#[test]
#[ignore = "a measurement"]
fn rows_per_second() {
    let mut source = open(r#"{"rows": 20000000, "preset": "narrow"}"#);
    for (batch_bytes, encoded) in [(1 << 20, false), (1 << 20, true), (256 << 10, true)] {
        let mut reader = source.read(&request(batch_bytes)).unwrap();
        let mut encoder = ipc::Encoder::new(&reader.schema()).unwrap();
        let (start, mut rows) = (std::time::Instant::now(), 0);
        while let Some(batch) = next(&mut reader).unwrap() {
            rows += batch.num_rows();
            if encoded {
                std::hint::black_box(encoder.encode(&batch).unwrap());
            }
        }
        let per_second = rows as f64 / start.elapsed().as_secs_f64();
        println!(
            "{batch_bytes} bytes, encoded {encoded}: {:.2} M rows/s",
            per_second / 1e6
        );
    }
}
