//! The bytes that the encoders write, and what they refuse.

use std::sync::Arc;
use std::time::Instant;

use crate::support::{Format, schema};
use arrow_array::builder::{Int64Builder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, MapArray, RecordBatch, StringArray, Time64MicrosecondArray,
};
use rapidbyte_formats::{Limits, Picked, csv::Dialect};

/// One row with a value of each type, as JSON Lines and as CSV.
const COLUMNS: &[(&str, &str, &str, &str)] = &[
    ("b", "bool", "true", "true"),
    ("i", "int64", "-9223372036854775808", "-9223372036854775808"),
    (
        "u",
        "uint64",
        "18446744073709551615",
        "18446744073709551615",
    ),
    ("f", "float32", "0.1", "0.1"),
    ("d", "float64", "1e-7", "1e-7"),
    (
        "n",
        "decimal(38, 3)",
        "-12345678901234567890123456789.050",
        "-12345678901234567890123456789.050",
    ),
    ("w", "decimal(76, 1)", "0.5", "0.5"),
    (
        "s",
        "string",
        r#""a \"b\"\\\n,\u0001é""#,
        "\"a \"\"b\"\"\\\n,\u{1}é\"",
    ),
    ("e", "string", r#""""#, r#""""#),
    ("z", "string", "null", ""),
    ("x", "binary", r#""\\x00ff""#, "\\x00ff"),
    ("t", "date", r#""2026-11-21""#, "2026-11-21"),
    ("c", "time", r#""10:11:12.000300""#, "10:11:12.000300"),
    (
        "p",
        "timestamp",
        r#""2026-11-21T10:11:12.123456""#,
        "2026-11-21T10:11:12.123456",
    ),
    (
        "q",
        "timestamptz",
        r#""2026-11-21T10:11:12Z""#,
        "2026-11-21T10:11:12Z",
    ),
    ("o", "duration(ms)", r#""PT-1.500S""#, "PT-1.500S"),
    ("v", "interval", r#""P1M2DT3S""#, "P1M2DT3S"),
    (
        "g",
        "uuid",
        r#""00112233-4455-6677-8899-aabbccddeeff""#,
        "00112233-4455-6677-8899-aabbccddeeff",
    ),
    ("j", "json", r#"{"k":[1.50]}"#, r#""{""k"":[1.50]}""#),
    ("l", "list<int64>", "[1,null]", "\"[1,null]\""),
    (
        "r",
        "struct<a: int64, b: date>",
        r#"{"a":null,"b":"2026-11-21"}"#,
        r#""{""a"":null,""b"":""2026-11-21""}""#,
    ),
    (
        "m",
        "map<int64, string>",
        r#"{"7":"x"}"#,
        r#""{""7"":""x""}""#,
    ),
];

#[test]
fn every_type_has_its_text() {
    let types: Vec<_> = COLUMNS.iter().map(|c| (c.0, c.1)).collect();
    let pairs: Vec<_> = COLUMNS
        .iter()
        .map(|c| format!("\"{}\":{}", c.0, c.2))
        .collect();
    let jsonl = format!("{{{}}}\n", pairs.join(","));
    let names: Vec<_> = COLUMNS.iter().map(|c| c.0).collect();
    let fields: Vec<_> = COLUMNS.iter().map(|c| c.3).collect();
    let csv = format!("{}\n{}\n", names.join(","), fields.join(","));

    let batches = Format::jsonl()
        .decode(&schema(&types), jsonl.as_bytes())
        .unwrap();
    let written = |format: &Format, batch: &RecordBatch| {
        String::from_utf8(format.encode(batch).unwrap()).unwrap()
    };
    assert_eq!(written(&Format::jsonl(), &batches[0]), jsonl);
    let format = Format::csv(Dialect::default());
    assert_eq!(written(&format, &batches[0]), csv);
    let batches = format.decode(&schema(&types), csv.as_bytes()).unwrap();
    assert_eq!(written(&Format::jsonl(), &batches[0]), jsonl);
}

fn batch(type_name: &str, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_new(schema(&[("c", type_name)]), vec![array]).unwrap()
}

#[test]
fn texts_that_would_be_read_as_something_else_are_quoted() {
    let texts = [
        "",
        " a",
        "a ",
        "NULL",
        "\u{feff}x",
        "a;b",
        "a,b",
        "it's",
        "x\ry",
        "plain",
    ];
    let batch = batch("string", Arc::new(StringArray::from_iter_values(texts)));
    let dialect = Dialect {
        delimiter: b';',
        quote: b'\'',
        header: true,
        null_text: vec!["NULL".into()],
        ..Dialect::default()
    };
    let out = Format::csv(dialect).encode(&batch).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "c\n''\n' a'\n'a '\n'NULL'\n'\u{feff}x'\n'a;b'\na,b\n'it''s'\n'x\ry'\nplain\n"
    );
}

#[test]
fn json_keeps_its_white_space_in_json_lines() {
    let texts = [r#"{ "b" : [1.50 ,2],	"a":" x" }"#, "[ ]", r#""\u0041""#];
    let array: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let columns = batch("json", array);
    let file = Format::jsonl().encode(&columns).unwrap();
    let again = Format::jsonl().decode(&columns.schema(), &file);
    assert_eq!(again.unwrap(), [columns]);
}

#[test]
fn values_that_a_format_cannot_hold_are_refused_by_name() {
    let csv = Format::csv(Dialect::default());
    let floats = || -> ArrayRef { Arc::new(Float64Array::from(vec![1.0, f64::NEG_INFINITY])) };
    let nulls = || -> ArrayRef { Arc::new(StringArray::from(vec!["[null]", " null "])) };
    let lines = || -> ArrayRef { Arc::new(StringArray::from(vec!["{}", "{\n}"])) };
    let around = || -> ArrayRef { Arc::new(StringArray::from(vec!["{} "])) };
    let broken = || -> ArrayRef { Arc::new(StringArray::from(vec!["{"])) };
    let late = || -> ArrayRef { Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000])) };
    for (format, batch, code, part) in [
        (
            &Format::jsonl(),
            batch("float64", floats()),
            "json_not_finite",
            "column \"c\" (float64): \"-Infinity\"",
        ),
        (
            &Format::jsonl(),
            batch("json", nulls()),
            "json_null_value",
            "column \"c\" (json)",
        ),
        (
            &Format::jsonl(),
            batch("json", lines()),
            "json_not_one_line",
            "line break",
        ),
        (
            &Format::jsonl(),
            batch("json", around()),
            "json_not_one_line",
            "white space around",
        ),
        (
            &Format::jsonl(),
            batch("json", broken()),
            "value_does_not_fit",
            "not JSON",
        ),
        (
            &Format::jsonl(),
            batch("time", late()),
            "value_does_not_fit",
            "not a time of day",
        ),
        (
            &csv,
            batch("time", late()),
            "value_does_not_fit",
            "not a time of day",
        ),
        (
            &csv,
            batch("map<string, int64>", Arc::new(twice())),
            "jsonl_duplicate_key",
            "\"k\" twice",
        ),
    ] {
        let error = format.encode(&batch).unwrap_err();
        assert_eq!(
            (error.code, error.column.as_deref()),
            (code, Some("c")),
            "{error}"
        );
        assert!(error.message.contains(part), "{error}");
    }
    assert!(csv.encode(&batch("float64", floats())).is_ok());
    assert!(csv.encode(&batch("json", nulls())).is_ok());
    let none = RecordBatch::new_empty(schema(&[]));
    assert_eq!(csv.encode(&none).unwrap_err().code, "no_columns");
    let dialect = Dialect {
        null_text: vec![],
        ..Dialect::default()
    };
    let error = Format::csv(dialect)
        .encode(&batch("float64", floats()))
        .unwrap_err();
    assert_eq!(error.code, "invalid_dialect");
}

/// A map of one key twice.
fn twice() -> MapArray {
    let names = MapFieldNames {
        entry: "entries".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), Int64Builder::new());
    for _ in 0..2 {
        map.keys().append_value("k");
        map.values().append_value(1);
    }
    map.append(true).unwrap();
    map.finish()
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let other = batch("int64", ints);
    let encoder = rapidbyte_formats::jsonl::Encoder::new(schema(&[("c", "string")])).unwrap();
    let error = encoder
        .encode(Picked::all(&other), 0, &mut Vec::new(), 1)
        .unwrap_err();
    assert_eq!(error.code, "schema_mismatch");
    let encoder = rapidbyte_formats::jsonl::Encoder::new(schema(&[])).unwrap();
    let error = encoder
        .encode(Picked::all(&other), 0, &mut Vec::new(), 1)
        .unwrap_err();
    assert_eq!(error.code, "schema_mismatch");
}

/// By hand: `cargo test -p rapidbyte-formats --release --test encode -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn throughput_of_seven_columns() {
    let schema = schema(&[
        ("id", "int64!"),
        ("customer", "int32"),
        ("name", "string"),
        ("total", "float64"),
        ("price", "decimal(18, 4)"),
        ("paid", "bool"),
        ("at", "timestamptz"),
    ]);
    let mut csv = String::from("id,customer,name,total,price,paid,at\n");
    for id in 0..500_000_u64 {
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        csv += &format!(
            "{id},{},customer name {},{}.{:03},{}.{:04},{},2026-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z\n",
            mixed % 100_000,
            mixed % 1000,
            mixed % 5000,
            mixed % 1000,
            mixed % 9000,
            mixed % 10_000,
            mixed % 2 == 0,
            mixed % 12 + 1,
            mixed % 28 + 1,
            mixed % 24,
            mixed % 60,
            mixed % 59,
            mixed % 1_000_000,
        );
    }
    let measure = |what: &str, file: &[u8], format: &Format| {
        let mut rates = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.clear();
            let mut decoder = format.decoder(&schema, None, Limits::default());
            let pieces: Vec<&[u8]> = file.chunks(1 << 18).collect();
            let start = Instant::now();
            kept = decoder.file(&pieces).unwrap();
            rates.push(file.len() as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
        println!(
            "{what} decode {:.0} MB, MB/s: {rates:.0?}",
            file.len() as f64 / 1e6
        );
        kept
    };
    let format = Format::csv(Dialect::default());
    let batches = measure("csv", csv.as_bytes(), &format);
    let mut jsonl = Vec::new();
    for (what, format) in [("csv", format), ("jsonl", Format::jsonl())] {
        let start = Instant::now();
        let out: Vec<Vec<u8>> = batches
            .iter()
            .map(|b| format.encode_in_steps(b, 1 << 18).unwrap())
            .collect();
        let bytes: usize = out.iter().map(Vec::len).sum();
        println!(
            "{what} encode MB/s: {:.0}",
            bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
        );
        jsonl = out.concat();
    }
    measure("jsonl", &jsonl, &Format::jsonl());
}
