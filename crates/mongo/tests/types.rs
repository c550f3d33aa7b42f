//! Every type of BSON to Arrow and back, beside the `bson` crate, which is another implementation.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, Date32Array, Decimal128Array, Float32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{Field, Schema};
use bson::{Bson, doc};
use rapidbyte_bson::{Document, Kind};
use rapidbyte_mongo::decimal::{Decimal, NotDecimal};
use rapidbyte_mongo::extjson::{self, Style};
use rapidbyte_mongo::{
    DecodeOptions, Decoder, EncodeOptions, Encoder, JsonDocuments, Native, Nulls, Sampler,
    SubMillisecond, UnknownKeys, form,
};
use rapidbyte_wire::sampled::holds_sampled;
use rapidbyte_wire::types::{is_json, is_uuid, mark_stored, parse_field, type_name};

mod values;
use values::{every_value, everything};

fn schema(columns: &[(&str, &str)]) -> Schema {
    let fields = columns
        .iter()
        .map(|(name, ty)| parse_field(name, ty, true).unwrap());
    Schema::new(fields.collect::<Vec<_>>())
}

fn decode(schema: &Schema, options: DecodeOptions, documents: &[Vec<u8>]) -> RecordBatch {
    let mut decoder = Decoder::new(schema, options).unwrap();
    for document in documents {
        decoder.push(Document::parse(document).unwrap()).unwrap();
    }
    let batch = decoder.take_batch().unwrap().unwrap();
    assert!(decoder.take_batch().unwrap().is_none());
    batch
}

fn encode(batch: &RecordBatch, options: EncodeOptions) -> Vec<Vec<u8>> {
    let encoder = Encoder::new(&batch.schema(), options).unwrap();
    let rows = encoder.rows(batch).unwrap();
    let document = |row| {
        let mut out = Vec::new();
        rows.document(row, &mut out).unwrap();
        Document::parse(&out).unwrap().check().unwrap();
        out
    };
    (0..rows.len()).map(document).collect()
}

/// A document with one value, by the `bson` crate.
fn one(value: impl Into<Bson>) -> Vec<u8> {
    doc! {"v": value.into()}.to_vec().unwrap()
}

/// The code of the refusal of a value in a column of this type.
fn refusal(ty: &str, value: impl Into<Bson>) -> String {
    let schema = schema(&[("v", ty)]);
    let mut decoder = Decoder::new(&schema, DecodeOptions::default()).unwrap();
    let document = one(value);
    let error = decoder
        .push(Document::parse(&document).unwrap())
        .unwrap_err();
    assert_eq!(error.column.as_deref(), Some("v"), "{error}");
    assert_eq!(decoder.rows(), 0);
    error.code.to_owned()
}

#[test]
fn a_native_document_keeps_every_type_each_order_and_names_that_come_twice() {
    let document = everything();
    Document::parse(&document).unwrap().check().unwrap();
    let schema = Schema::new(vec![
        Native::Value.field("int", true),
        Native::Document.field("document", false),
    ]);
    let batch = decode(
        &schema,
        DecodeOptions::default(),
        std::slice::from_ref(&document),
    );
    let native: &[u8] = &[&[Kind::Int32.byte()][..], &i32::MIN.to_le_bytes()].concat();
    assert_eq!(batch.column(0).as_binary::<i32>().value(0), native);
    let documents = batch.project(&[1]).unwrap();
    assert_eq!(encode(&documents, EncodeOptions::default()), [document]);
}

#[test]
fn a_native_value_keeps_every_type() {
    let document = everything();
    let elements = Document::parse(&document).unwrap().elements();
    let mut kinds = std::collections::BTreeSet::new();
    for element in elements {
        let (name, value) = element.unwrap();
        kinds.insert(value.kind());
        let mut builder = rapidbyte_bson::Builder::new();
        builder.value("v", &value);
        let one = builder.finish().unwrap();
        let schema = Schema::new(vec![Native::Value.field("v", true)]);
        let batch = decode(
            &schema,
            DecodeOptions::default(),
            std::slice::from_ref(&one),
        );
        assert_eq!(encode(&batch, EncodeOptions::default()), [one], "{name}");
    }
    assert_eq!(kinds.len(), 21, "{kinds:?}");
}

#[test]
fn canonical_json_of_a_whole_document_reads_back_as_the_same_bytes() {
    let document = everything();
    let schema = schema(&[("document", "json")]);
    let options = DecodeOptions {
        json: Style::Canonical,
        whole: Some("document".into()),
        ..DecodeOptions::default()
    };
    let batch = decode(&schema, options, std::slice::from_ref(&document));
    let json = batch.column(0).as_string::<i32>().value(0);
    let mut parsed = Vec::new();
    extjson::parse_document(json, &mut parsed).unwrap();
    assert_eq!(parsed, document, "{json}");
}

#[test]
fn json_is_written_as_the_specification_has_it() {
    let text = |style, value: Bson| {
        let bytes = one(value);
        let value = Document::parse(&bytes).unwrap().get("v").unwrap().unwrap();
        let mut out = Vec::new();
        extjson::write_value(&value, style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    // "Extended JSON" of the MongoDB specifications: relaxed and canonical.
    let cases: &[(Bson, &str, &str)] = &[
        (Bson::Int32(5), "5", r#"{"$numberInt":"5"}"#),
        (Bson::Int64(-5), "-5", r#"{"$numberLong":"-5"}"#),
        (Bson::Double(3.0), "3.0", r#"{"$numberDouble":"3.0"}"#),
        (Bson::Double(-0.0), "-0.0", r#"{"$numberDouble":"-0.0"}"#),
        (
            Bson::Double(f64::NEG_INFINITY),
            r#"{"$numberDouble":"-Infinity"}"#,
            r#"{"$numberDouble":"-Infinity"}"#,
        ),
        (
            Bson::DateTime(bson::DateTime::from_millis(1_356_351_330_501)),
            r#"{"$date":"2012-12-24T12:15:30.501Z"}"#,
            r#"{"$date":{"$numberLong":"1356351330501"}}"#,
        ),
        (
            Bson::DateTime(bson::DateTime::from_millis(-284_643_869_501)),
            r#"{"$date":{"$numberLong":"-284643869501"}}"#,
            r#"{"$date":{"$numberLong":"-284643869501"}}"#,
        ),
        (
            Bson::DateTime(bson::DateTime::from_millis(253_402_300_800_000)),
            r#"{"$date":{"$numberLong":"253402300800000"}}"#,
            r#"{"$date":{"$numberLong":"253402300800000"}}"#,
        ),
        (
            Bson::Decimal128("1.50".parse().unwrap()),
            r#"{"$numberDecimal":"1.50"}"#,
            r#"{"$numberDecimal":"1.50"}"#,
        ),
        (
            Bson::Timestamp(bson::Timestamp {
                time: 123_456_789,
                increment: 42,
            }),
            r#"{"$timestamp":{"t":123456789,"i":42}}"#,
            r#"{"$timestamp":{"t":123456789,"i":42}}"#,
        ),
        (
            Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::BinaryOld,
                bytes: vec![0xff, 0xff],
            }),
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
        ),
    ];
    for (value, relaxed, canonical) in cases {
        assert_eq!(text(Style::Relaxed, value.clone()), *relaxed);
        assert_eq!(text(Style::Canonical, value.clone()), *canonical);
    }
}

#[test]
fn relaxed_json_keeps_every_value_and_all_types_but_int64s_that_are_small() {
    for (name, value) in every_value() {
        let bytes = one(value);
        let value = Document::parse(&bytes).unwrap().get("v").unwrap().unwrap();
        let mut json = Vec::new();
        extjson::write_value(&value, Style::Relaxed, &mut json).unwrap();
        let mut back = vec![0; 4];
        back.extend_from_slice(b"\0v\0");
        let kind = extjson::parse_value(std::str::from_utf8(&json).unwrap(), &mut back).unwrap();
        if name == "long small" {
            assert_eq!(kind, Kind::Int32);
            continue;
        }
        assert_eq!(kind, value.kind(), "{name}");
        assert_eq!(back[7..], bytes[7..bytes.len() - 1], "{name}");
    }
}

#[test]
fn a_document_that_reads_as_another_value_is_refused_as_json() {
    for inner in [
        doc! {"$oid": "x"},
        doc! {"$date": 1, "b": 2},
        doc! {"$numberLong": "5"},
    ] {
        assert_eq!(refusal("json", inner), "value_does_not_fit");
    }
}

#[test]
fn json_that_is_not_extended_json_is_refused_with_its_place() {
    for (json, problem) in [
        (
            r#"{"a": {"$oid": "5"}}"#,
            "$oid is not written as Extended JSON 2 has it at byte 7 of the JSON text",
        ),
        (r#"{"$numberLong": "9223372036854775808"}"#, "$numberLong"),
        (r#"{"$date": "yesterday"}"#, "$date"),
        (r#"{"$timestamp": {"t": -1, "i": 0}}"#, "$timestamp"),
        (
            r#"{"$binary": {"base64": "!", "subType": "00"}}"#,
            "$binary",
        ),
        (r#"{"$oid": "0123456789abcdef01234567", "b": 1}"#, "$oid"),
        (r#"{"a": 01}"#, "a malformed number at byte 7"),
        (r#"{"a": 1e9999}"#, "more digits than a Decimal128 holds"),
        (
            r#"{"a": 1.23456789012345678901234567890123456}"#,
            "more digits",
        ),
        (r#"{"a": 1} x"#, "unexpected text"),
        (r#"{"a" 1}"#, "expected ':'"),
        (r#"{"a": "x"#, "a string without its end"),
        (r#"{"\u0000": 1}"#, "a name contains a NUL character"),
        ("[1]", "expected an object"),
        ("", "expected a value"),
    ] {
        let mut out = vec![7];
        let error = extjson::parse_document(json, &mut out).unwrap_err();
        assert!(error.to_string().contains(problem), "{json}: {error}");
        assert!(out == [7] || json == "[1]", "{json}");
    }
    let deep = "[".repeat(100_000);
    assert!(extjson::parse_value(&deep, &mut Vec::new()).is_err());
}

#[test]
fn a_number_of_json_keeps_all_of_its_digits() {
    for (json, kind) in [
        ("5", Kind::Int32),
        ("2147483648", Kind::Int64),
        ("-9223372036854775808", Kind::Int64),
        ("9223372036854775808", Kind::Decimal128),
        ("9223372036854775809", Kind::Decimal128),
        ("0.1", Kind::Double),
        ("1.0", Kind::Double),
        ("-0", Kind::Double),
        ("1e5", Kind::Double),
        ("0.1234567890123456789", Kind::Decimal128),
        ("1e400", Kind::Decimal128),
    ] {
        let parsed = extjson::parse_value(json, &mut Vec::new()).unwrap();
        assert_eq!(parsed, kind, "{json}");
    }
}

#[test]
fn a_sample_gives_each_type_its_column() {
    let mut sampler = Sampler::new();
    for (name, value) in every_value() {
        let name = name.split(' ').next().unwrap();
        let document = doc! {name: value}.to_vec().unwrap();
        sampler.push(Document::parse(&document).unwrap()).unwrap();
    }
    for document in [
        doc! {"uuid": Bson::Binary(bson::Uuid::from_bytes([1; 16]).into())},
        doc! {"bytes": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![] })},
        doc! {"numbers": 1i32},
        doc! {"numbers": 1.5, "mixed": 1},
        doc! {"numbers": 1i64, "mixed": "x"},
        doc! {"whole": 1i32},
        doc! {"whole": 1i64},
        doc! {"_id": 1},
    ] {
        let document = document.to_vec().unwrap();
        sampler.push(Document::parse(&document).unwrap()).unwrap();
    }
    let sampled = sampler.finish();
    let types: Vec<_> = sampled
        .schema
        .fields()
        .iter()
        .map(|f| (f.name().as_str(), type_name(f)))
        .collect();
    let expected = [
        ("double", "float64"),
        ("string", "string"),
        ("document", "json"),
        ("dbref", "json"),
        ("array", "json"),
        ("binary", "json"),
        ("undefined", "json"),
        ("objectId", "string"),
        ("bool", "bool"),
        ("date", "timestamp(ms, UTC)"),
        ("null", "json"),
        ("regex", "json"),
        ("javascript", "json"),
        ("symbol", "json"),
        ("javascriptWithScope", "json"),
        ("int", "int32"),
        ("timestamp", "json"),
        ("long", "int64"),
        ("decimal", "string"),
        ("maxKey", "json"),
        ("minKey", "json"),
        ("uuid", "uuid"),
        ("bytes", "binary"),
        ("numbers", "float64"),
        ("mixed", "json"),
        ("whole", "int64"),
        ("_id", "int32"),
    ];
    assert_eq!(types, expected.map(|(name, ty)| (name, ty.to_owned())));
    assert!(
        sampled
            .schema
            .fields()
            .iter()
            .all(|f| f.is_nullable() == (f.name() != "_id"))
    );
    assert_eq!(sampled.types[24], "string, int");
    assert!(
        sampled
            .notes
            .contains(&"mixed: json (the values are of string, int)".to_owned())
    );
}

#[test]
fn a_sample_says_which_types_hold_its_values() {
    let datetime = |ms| Bson::DateTime(bson::DateTime::from_millis(ms));
    let holds = |values: &[Bson], ty: &str| {
        let mut sampler = Sampler::new();
        for value in values {
            sampler
                .push(Document::parse(&one(value.clone())).unwrap())
                .unwrap();
        }
        holds_sampled(sampler.finish().schema.field(0), ty)
    };
    for (values, held, refused) in [
        (vec![Bson::Int32(1), Bson::Int32(-128)], "int8", ""),
        (vec![Bson::Int32(128)], "int16", "int8"),
        (vec![Bson::Int64(40_000), Bson::Null], "int32", "int16"),
        (vec![Bson::Int64(i64::MAX)], "int64", "int32"),
        // Programs in JavaScript store whole numbers as doubles.
        (vec![Bson::Double(5.0), Bson::Int32(6)], "int16", ""),
        (vec![Bson::Double(-2_147_483_649.0)], "int64", "int32"),
        (vec![Bson::Int32(1), Bson::Double(1.5)], "float32", "int64"),
        (vec![Bson::Double(1.5)], "json", "decimal(10, 2)"),
        (vec![Bson::Double(f64::NAN)], "float64", "int64"),
        (vec![Bson::Double(-0.0)], "float64", "int64"),
        (vec![Bson::Double(9.3e18)], "float64", "int64"),
        (vec![Bson::Int64(16_777_217)], "float64", "float32"),
        (vec![Bson::Int64(i64::MAX)], "decimal(19, 0)", "float64"),
        (vec![Bson::Int32(120)], "decimal(3, 0)", "decimal(3, 1)"),
        (vec![Bson::Int32(1)], "json", "date"),
        (vec![Bson::String("x".into())], "string", "int8"),
        (vec![Bson::Boolean(true), Bson::Null], "bool", "int8"),
        (vec![datetime(86_400_000)], "date", "int64"),
        (vec![datetime(1_000)], "timestamp(s)", "date"),
        (vec![datetime(1)], "timestamptz", "timestamp(s, UTC)"),
        (vec![Bson::Null], "int8", ""),
    ] {
        assert!(holds(&values, held), "{values:?} {held}");
        assert!(
            refused.is_empty() || !holds(&values, refused),
            "{values:?} {refused}"
        );
    }
}

/// A column of numeric without limits comes as texts, whatever the style of JSON.
#[test]
fn numbers_in_a_column_with_the_texts_of_its_target_have_no_marks_of_their_types() {
    let field = mark_stored(parse_field("v", "string", true).unwrap());
    let options = DecodeOptions {
        json: Style::Canonical,
        ..DecodeOptions::default()
    };
    let values = [Bson::Int32(5), Bson::Int64(-6), Bson::Double(-0.0)];
    let documents = values.map(one);
    let batch = decode(&Schema::new(vec![field]), options, &documents);
    let texts: Vec<_> = batch.column(0).as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("5"), Some("-6"), Some("-0.0")]);
}

/// The target has texts where the sample has other values by now.
#[test]
fn a_column_with_the_texts_of_its_target_takes_every_value() {
    let field = mark_stored(parse_field("v", "string", true).unwrap());
    let schema = Schema::new(vec![field]);
    let values = [
        Bson::String("x".into()),
        Bson::Int32(5),
        Bson::Boolean(true),
        Bson::Document(doc! {"a": 1}),
        Bson::Null,
    ];
    let documents = values.map(one);
    let batch = decode(&schema, DecodeOptions::default(), &documents);
    let texts: Vec<_> = batch.column(0).as_string::<i32>().iter().collect();
    let expected = [Some("x"), Some("5"), Some("true"), Some(r#"{"a":1}"#), None];
    assert_eq!(texts, expected);
}

#[test]
fn values_of_sampled_columns_come_back_as_they_were() {
    // Every type whose portable form is marked or plain, that is, not JSON.
    let first = doc! {
        "_id": bson::oid::ObjectId::from_bytes([5; 12]), "d": f64::NAN, "s": "x", "b": true,
        "t": bson::DateTime::from_millis(i64::MIN), "i": i32::MIN, "l": i64::MAX,
        "m": Bson::Decimal128("-0E+3".parse().unwrap()),
        "u": Bson::Binary(bson::Uuid::from_bytes([1; 16]).into()),
        "y": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0] }),
        "j": {"b": [1, {"c": bson::oid::ObjectId::from_bytes([6; 12])}]},
        "r": Bson::MaxKey,
    };
    let second = doc! {
        "_id": bson::oid::ObjectId::from_bytes([7; 12]), "d": -0.0, "s": "", "b": false,
        "t": bson::DateTime::from_millis(i64::MAX), "i": i32::MAX, "l": i64::MIN,
        "m": Bson::Decimal128("NaN".parse().unwrap()),
        "u": Bson::Null, "y": Bson::Null, "j": Bson::Array(vec![]), "r": Bson::MinKey,
    };
    let documents = [first.to_vec().unwrap(), second.to_vec().unwrap()];
    let mut sampler = Sampler::new();
    for document in &documents {
        sampler.push(Document::parse(document).unwrap()).unwrap();
    }
    let schema = sampler.finish().schema;
    let options = DecodeOptions {
        json: Style::Canonical,
        ..DecodeOptions::default()
    };
    let batch = decode(&schema, options, &documents);
    assert_eq!(encode(&batch, EncodeOptions::default()), documents);
}

#[test]
fn a_value_that_its_column_does_not_hold_is_refused() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let date = |ms| Bson::DateTime(bson::DateTime::from_millis(ms));
    for (ty, value) in [
        ("int32", Bson::Int64(i64::from(i32::MAX) + 1)),
        ("int32", Bson::Double(1.5)),
        ("int64", Bson::Double(-0.0)),
        ("int64", Bson::Double(f64::NAN)),
        ("int64", Bson::Double(9.3e18)),
        ("int64", Bson::String("5".into())),
        ("uint8", Bson::Int32(-1)),
        ("float64", Bson::Int64(i64::MAX)),
        ("float64", decimal("0.1")),
        ("float32", Bson::Double(0.1)),
        ("decimal(4, 2)", decimal("100")),
        ("decimal(4, 2)", decimal("1.001")),
        ("decimal(4, 2)", decimal("NaN")),
        ("decimal(4, 2)", decimal("Infinity")),
        ("decimal(4, 2)", decimal("-0")),
        ("decimal(4, 2)", Bson::Double(1.5)),
        ("bool", Bson::Int32(1)),
        ("string", Bson::Int32(1)),
        (
            "binary",
            Bson::Binary(bson::Uuid::from_bytes([1; 16]).into()),
        ),
        (
            "uuid",
            Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::UuidOld,
                bytes: vec![1; 16],
            }),
        ),
        (
            "fixed_binary(2)",
            Bson::Binary(bson::Binary {
                subtype: bson::spec::BinarySubtype::Generic,
                bytes: vec![1; 3],
            }),
        ),
        ("date", date(1)),
        ("date", date(i64::MAX / 86_400_000 * 86_400_000)),
        ("timestamptz", date(i64::MAX)),
        ("timestamp(ns)", date(i64::MAX)),
        ("timestamp(s)", date(1)),
        ("int64", Bson::Undefined),
        ("string", Bson::MinKey),
        ("list<int64>", Bson::Int32(1)),
        (
            "list<int64>",
            Bson::Array(vec![Bson::Int32(1), Bson::String("x".into())]),
        ),
        ("struct<a: int64>", Bson::Array(vec![])),
        ("map<string, int64>", Bson::Document(doc! {"a": "x"})),
    ] {
        assert_eq!(
            refusal(ty, value.clone()),
            "value_does_not_fit",
            "{ty}: {value}"
        );
    }
    assert_eq!(
        refusal("struct<a: int64>", doc! {"a": 1, "b": 2}),
        "mongo_unknown_field"
    );
}

#[test]
fn declared_columns_take_all_values_that_they_hold() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    for (ty, value, expected) in [
        ("int64", Bson::Double(-3.0), Bson::Int64(-3)),
        ("int64", decimal("1.2E+1"), Bson::Int64(12)),
        ("int8", Bson::Int64(-128), Bson::Int32(-128)),
        (
            "uint64",
            decimal("9223372036854775807"),
            Bson::Int64(i64::MAX),
        ),
        (
            "float64",
            Bson::Int64(1 << 60),
            Bson::Double((1u64 << 60) as f64),
        ),
        ("float32", Bson::Double(0.5), Bson::Double(0.5)),
        ("decimal(4, 2)", decimal("1.5"), decimal("1.50")),
        ("decimal(4, 2)", Bson::Int32(-7), decimal("-7.00")),
        ("decimal(40, 0)", decimal("12E+5"), decimal("1200000")),
        (
            "date",
            Bson::DateTime(bson::DateTime::from_millis(-86_400_000)),
            Bson::DateTime(bson::DateTime::from_millis(-86_400_000)),
        ),
        (
            "timestamptz",
            Bson::DateTime(bson::DateTime::from_millis(-1)),
            Bson::DateTime(bson::DateTime::from_millis(-1)),
        ),
        (
            "list<int64>",
            Bson::Array(vec![Bson::Int32(1), Bson::Null]),
            Bson::Array(vec![Bson::Int64(1), Bson::Null]),
        ),
        (
            "list<list<string>>",
            Bson::Array(vec![Bson::Array(vec!["x".into()])]),
            Bson::Array(vec![Bson::Array(vec!["x".into()])]),
        ),
        (
            "struct<a: int32, b: string>",
            Bson::Document(doc! {"b": "x"}),
            Bson::Document(doc! {"a": Bson::Null, "b": "x"}),
        ),
        (
            "map<string, int32>",
            Bson::Document(doc! {"z": 1, "a": 2}),
            Bson::Document(doc! {"z": 1, "a": 2}),
        ),
    ] {
        let batch = decode(
            &schema(&[("v", ty)]),
            DecodeOptions::default(),
            &[one(value.clone())],
        );
        assert_eq!(
            encode(&batch, EncodeOptions::default()),
            [one(expected)],
            "{ty}: {value}"
        );
    }
}

#[test]
fn a_field_without_a_column_is_collected_ignored_or_refused() {
    let document = doc! {"x": {"y": 1}, "a": 1, "z": Bson::Null}
        .to_vec()
        .unwrap();
    let plain = schema(&[("a", "int64")]);
    let mut decoder = Decoder::new(&plain, DecodeOptions::default()).unwrap();
    let error = decoder
        .push(Document::parse(&document).unwrap())
        .unwrap_err();
    assert_eq!(
        (error.code, error.column.as_deref()),
        ("mongo_unknown_field", Some("x"))
    );

    let ignore = DecodeOptions {
        unknown_keys: UnknownKeys::Ignore,
        ..DecodeOptions::default()
    };
    assert_eq!(
        decode(&plain, ignore, std::slice::from_ref(&document)).num_rows(),
        1
    );

    let with_rest = schema(&[("a", "int64"), ("_rest", "json")]);
    let collect = DecodeOptions {
        rest: Some("_rest".into()),
        ..DecodeOptions::default()
    };
    let empty = doc! {"a": 2}.to_vec().unwrap();
    let named = doc! {"_rest": 1}.to_vec().unwrap();
    let batch = decode(&with_rest, collect, &[document, empty, named]);
    let rest = batch.column(1).as_string::<i32>();
    assert_eq!(rest.value(0), r#"{"x":{"y":1},"z":null}"#);
    assert!(rest.is_null(1));
    assert_eq!(rest.value(2), r#"{"_rest":1}"#);
}

#[test]
fn a_document_that_fails_leaves_no_part_of_a_row() {
    let schema = schema(&[
        ("a", "int64"),
        ("l", "list<struct<b: int64>>"),
        ("s", "string"),
    ]);
    let good = |n: i64| doc! {"a": n, "l": [{"b": n}], "s": "x"}.to_vec().unwrap();
    let bad = [
        doc! {"a": 1, "l": [{"b": 1}, {"b": "x"}], "s": "x"},
        doc! {"a": 1, "l": [{"b": 1}], "s": 1},
        doc! {"s": "x", "a": "y"},
    ];
    let mut decoder = Decoder::new(&schema, DecodeOptions::default()).unwrap();
    let mut n = 0;
    for bad in bad {
        let bad = bad.to_vec().unwrap();
        for _ in 0..2 {
            decoder.push(Document::parse(&good(n)).unwrap()).unwrap();
            n += 1;
        }
        assert!(decoder.push(Document::parse(&bad).unwrap()).is_err());
    }
    assert_eq!(decoder.rows(), 6);
    let mut rows = Vec::new();
    while let Some(batch) = decoder.take_batch().unwrap() {
        rows.extend(encode(&batch, EncodeOptions::default()));
    }
    let expected: Vec<_> = (0..6).map(good).collect();
    assert_eq!(rows, expected);
    assert_eq!((decoder.rows(), decoder.bytes()), (0, 0));
}

#[test]
fn a_key_twice_in_a_document_and_a_missing_value_are_refused() {
    let mut twice = doc! {"a": 1, "b": 2}.to_vec().unwrap();
    let at = twice.iter().position(|byte| *byte == b'b').unwrap();
    twice[at] = b'a';
    let mut decoder = Decoder::new(&schema(&[("a", "int64")]), DecodeOptions::default()).unwrap();
    let error = decoder.push(Document::parse(&twice).unwrap()).unwrap_err();
    assert_eq!(error.code, "mongo_duplicate_field");

    let required = Schema::new(vec![parse_field("a", "int64", false).unwrap()]);
    let mut decoder = Decoder::new(&required, DecodeOptions::default()).unwrap();
    for document in [doc! {}, doc! {"a": Bson::Null}] {
        let document = document.to_vec().unwrap();
        let error = decoder
            .push(Document::parse(&document).unwrap())
            .unwrap_err();
        assert_eq!(
            (error.code, error.column.as_deref()),
            ("null_in_required_column", Some("a"))
        );
    }
}

fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn field(name: &str, ty: &str) -> Field {
    parse_field(name, ty, true).unwrap()
}

/// The code of the refusal of the first row.
fn encode_refusal(batch: &RecordBatch, options: EncodeOptions) -> &'static str {
    let encoder = Encoder::new(&batch.schema(), options).unwrap();
    let mut out = vec![1, 2];
    let error = encoder
        .rows(batch)
        .unwrap()
        .document(0, &mut out)
        .unwrap_err();
    assert_eq!(out, [1, 2]);
    assert_eq!(error.row, Some(0));
    assert!(error.column.is_some());
    error.code
}

#[test]
fn documents_are_those_that_the_bson_crate_reads() {
    let batch = batch(vec![
        (
            field("i", "int64"),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None])),
        ),
        (
            field("f", "float32"),
            Arc::new(Float32Array::from(vec![0.5, f32::INFINITY])),
        ),
        (
            field("d", "decimal(38, 3)"),
            Arc::new(
                Decimal128Array::from(vec![1_500, -7])
                    .with_precision_and_scale(38, 3)
                    .unwrap(),
            ),
        ),
        (
            field("t", "timestamptz"),
            Arc::new(TimestampMicrosecondArray::from(vec![-1_000, 1_000_000]).with_timezone("UTC")),
        ),
        (
            field("day", "date"),
            Arc::new(Date32Array::from(vec![-1, i32::MAX])),
        ),
        (
            field("j", "json"),
            Arc::new(StringArray::from(vec![r#"{"b":1,"a":[2.5]}"#, "5"])),
        ),
        (
            field("s", "string"),
            Arc::new(StringArray::from(vec!["Grüße\0", ""])),
        ),
    ]);
    let documents = encode(
        &batch,
        EncodeOptions {
            nulls: Nulls::Omit,
            ..EncodeOptions::default()
        },
    );
    let read = |at: usize| bson::Document::from_reader(documents[at].as_slice()).unwrap();
    let date = bson::DateTime::from_millis;
    assert_eq!(
        read(0),
        doc! {
            "i": i64::MIN, "f": 0.5, "d": Bson::Decimal128("1.500".parse().unwrap()), "t": date(-1),
            "day": date(-86_400_000), "j": {"b": 1, "a": [2.5]}, "s": "Grüße\0",
        }
    );
    assert_eq!(
        read(1),
        doc! {
            "f": f64::INFINITY, "d": Bson::Decimal128("-0.007".parse().unwrap()), "t": date(1000),
            "day": date(i64::from(i32::MAX) * 86_400_000), "j": 5, "s": "",
        }
    );
}

#[test]
fn a_value_that_bson_does_not_hold_is_refused() {
    let fine = batch(vec![(
        field("t", "timestamp"),
        Arc::new(TimestampMicrosecondArray::from(vec![-1])),
    )]);
    assert_eq!(
        encode_refusal(&fine, EncodeOptions::default()),
        "value_does_not_fit"
    );
    let hint = rapidbyte_mongo::Problem::Fine.at("t").hint.unwrap();
    assert!(hint.contains("sub_millisecond: text"), "{hint}");
    let read = |sub_millisecond| {
        let options = EncodeOptions {
            sub_millisecond,
            ..EncodeOptions::default()
        };
        bson::Document::from_reader(encode(&fine, options)[0].as_slice()).unwrap()
    };
    assert_eq!(
        read(SubMillisecond::Cut),
        doc! {"t": bson::DateTime::from_millis(-1)}
    );
    assert_eq!(
        read(SubMillisecond::Text),
        doc! {"t": "1969-12-31T23:59:59.999999"}
    );

    let large = batch(vec![(
        field("n", "uint64"),
        Arc::new(UInt64Array::from(vec![u64::MAX])),
    )]);
    assert_eq!(
        encode_refusal(&large, EncodeOptions::default()),
        "value_does_not_fit"
    );
    let digits = Decimal128Array::from(vec![10i128.pow(37) + 1])
        .with_precision_and_scale(38, 0)
        .unwrap();
    let digits = batch(vec![(field("n", "decimal(38, 0)"), Arc::new(digits))]);
    assert_eq!(
        encode_refusal(&digits, EncodeOptions::default()),
        "value_does_not_fit"
    );
    let json = batch(vec![(
        field("j", "json"),
        Arc::new(StringArray::from(vec!["{"])),
    )]);
    assert_eq!(
        encode_refusal(&json, EncodeOptions::default()),
        "mongo_invalid_json"
    );
    let text = EncodeOptions {
        json: JsonDocuments::Text,
        ..EncodeOptions::default()
    };
    assert_eq!(encode(&json, text), [doc! {"j": "{"}.to_vec().unwrap()]);
    let id = form::mark(field("i", "string"), Kind::ObjectId);
    let id = batch(vec![(id, Arc::new(StringArray::from(vec!["5"])))]);
    assert_eq!(
        encode_refusal(&id, EncodeOptions::default()),
        "value_does_not_fit"
    );
}

#[test]
fn types_and_names_that_bson_does_not_have_are_refused_before_the_first_row() {
    let refused = |field: Field| {
        let error = Encoder::new(&Schema::new(vec![field]), EncodeOptions::default()).unwrap_err();
        assert!(error.column.is_some());
        error.code
    };
    assert_eq!(refused(field("a\0b", "int64")), "invalid_name");
    assert_eq!(refused(field("m", "map<int64, int64>")), "type_refused");
    let other = field("o", "binary").with_metadata(std::collections::HashMap::from([
        ("ARROW:extension:name".into(), "arrow.opaque".into()),
        (
            "ARROW:extension:metadata".into(),
            r#"{"type_name":"bit","vendor_name":"PostgreSQL"}"#.into(),
        ),
    ]));
    assert_eq!(refused(other.clone()), "type_refused");
    let schema = Schema::new(vec![other]);
    assert!(Decoder::new(&schema, DecodeOptions::default()).is_err());
    for ty in ["time", "interval", "duration(us)"] {
        let error = Decoder::new(&self::schema(&[("v", ty)]), DecodeOptions::default());
        assert_eq!(
            error.err().map(|error| error.code),
            Some("type_refused"),
            "{ty}"
        );
    }
}

#[test]
fn columns_keep_the_bits_of_floats_and_the_ends_of_integers() {
    let nan = f64::from_bits(0xfff8_0000_0000_0001);
    let documents = [
        doc! {"d": nan, "i": i32::MIN, "l": i64::MIN, "t": bson::DateTime::from_millis(i64::MIN)},
        doc! {"d": -0.0, "i": i32::MAX, "l": i64::MAX, "t": bson::DateTime::from_millis(i64::MAX)},
    ];
    let documents = documents.map(|document| document.to_vec().unwrap());
    let schema = schema(&[
        ("d", "float64"),
        ("i", "int32"),
        ("l", "int64"),
        ("t", "timestamp(ms, UTC)"),
    ]);
    let batch = decode(&schema, DecodeOptions::default(), &documents);
    let doubles = batch.column(0).as_primitive::<Float64Type>();
    assert_eq!(doubles.value(0).to_bits(), nan.to_bits());
    assert_eq!(doubles.value(1).to_bits(), (-0.0f64).to_bits());
    assert_eq!(
        batch.column(1).as_primitive::<Int32Type>().values()[..],
        [i32::MIN, i32::MAX]
    );
    assert_eq!(
        batch.column(2).as_primitive::<Int64Type>().values()[..],
        [i64::MIN, i64::MAX]
    );
    let times = batch.column(3).as_primitive::<TimestampMillisecondType>();
    assert_eq!(times.values()[..], [i64::MIN, i64::MAX]);
    assert_eq!(encode(&batch, EncodeOptions::default()), documents);
}

#[test]
fn sliced_batches_are_written_from_their_own_rows() {
    let lists = decode(
        &schema(&[
            ("l", "list<int64>"),
            ("s", "struct<a: string>"),
            ("f", "float64"),
        ]),
        DecodeOptions::default(),
        &[
            doc! {"l": [1, 2], "s": {"a": "x"}, "f": 1.0}
                .to_vec()
                .unwrap(),
            doc! {"l": [3], "s": Bson::Null, "f": Bson::Null}
                .to_vec()
                .unwrap(),
            doc! {"l": [4, 5], "s": {"a": "z"}, "f": 3.0}
                .to_vec()
                .unwrap(),
        ],
    );
    let whole = encode(&lists, EncodeOptions::default());
    for at in 0..3 {
        assert_eq!(
            encode(&lists.slice(at, 1), EncodeOptions::default()),
            whole[at..=at]
        );
    }
}

/// Numbers without a pattern, the same in each run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn decimals_have_the_texts_that_the_bson_crate_has() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut compared = 0;
    for round in 0..100_000_u32 {
        let mut bits = u128::from(random(&mut state)) << 64 | u128::from(random(&mut state));
        // Short coefficients and exponents near zero, too.
        if round % 2 == 0 {
            let exponent = (6176 + u128::from(random(&mut state) % 60) - 30) << 113;
            bits = (bits & 1 << 127) | exponent | (bits & u128::from(u64::MAX)) >> (round % 64);
        }
        let bytes = bits.to_le_bytes();
        let Some(decimal) = Decimal::of_bytes(bytes) else {
            continue;
        };
        let theirs = bson::Decimal128::from_bytes(bytes).to_string();
        assert_eq!(decimal.to_string(), theirs);
        assert_eq!(decimal.to_bytes(), bytes);
        assert_eq!(
            theirs.parse::<Decimal>().unwrap().to_bytes(),
            bytes,
            "{theirs}"
        );
        compared += 1;
    }
    assert!(compared > 50_000, "{compared}");
}

#[test]
fn a_text_is_a_decimal_exactly_or_not_at_all() {
    for (text, written) in [
        ("0", "0"),
        ("-0.00", "-0.00"),
        ("+12", "12"),
        ("1.50", "1.50"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e3", "1E+3"),
        ("0.0000001", "1E-7"),
        ("0.000001", "0.000001"),
        ("inf", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("nan", "NaN"),
        // Zeros that have no room go into the exponent.
        (
            "10000000000000000000000000000000000000",
            "1.000000000000000000000000000000000E+37",
        ),
        ("1e6144", "1.000000000000000000000000000000000E+6144"),
        ("0e99999", "0E+6111"),
    ] {
        assert_eq!(
            text.parse::<Decimal>().unwrap().to_string(),
            written,
            "{text}"
        );
    }
    for text in [
        "", "-", ".", "1e", "1e+", "0x1", "1 ", "1,5", "--1", "1e1e1", "é",
    ] {
        assert_eq!(text.parse::<Decimal>(), Err(NotDecimal::Text), "{text}");
    }
    for text in [
        "12345678901234567890123456789012345",
        "1e6145",
        "1e-6177",
        "1e999999999999999999999",
        "0.1e-6176",
    ] {
        assert_eq!(text.parse::<Decimal>(), Err(NotDecimal::Digits), "{text}");
    }
    // A NaN with a payload and a coefficient with too many digits are other bytes of the same value.
    for bits in [
        0x7c << 120 | 1,
        0xfc << 120,
        6176 << 113 | 10u128.pow(34),
        0x6c << 120,
    ] {
        assert_eq!(Decimal::of_bytes(u128::to_le_bytes(bits)), None, "{bits:x}");
    }
}

#[test]
fn marks_and_extensions_survive() {
    let id = form::mark(field("a", "string"), Kind::ObjectId);
    assert_eq!(form::marked(&id), Some(Kind::ObjectId));
    assert!(is_json(&field("a", "json")) && is_uuid(&field("a", "uuid")));
    assert_eq!(
        Native::of(&Native::Value.field("a", true)),
        Some(Native::Value)
    );
    assert_eq!(Native::of(&field("a", "binary")), None);
}
