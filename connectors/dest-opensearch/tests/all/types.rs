//! Every type there, and back over HTTP with all its digits; indices that exist already.

use std::sync::Arc;

use rapidbyte_formats::{Decoder, Format, Limits};
use rapidbyte_sdk::prelude::arrow_array::*;
use rapidbyte_sdk::prelude::{Fit, Plan, WriteMode, arrow_schema};
use rapidbyte_sdk::{DroppedColumn, NewColumn, types::parse_field};
use rapidbyte_testkit::opensearch;
use serde_json::{Value, json};

use crate::support::{Stream, batch, documents, indices};

/// A column of two values, by the name of its type.
fn column(name: &str, ty: &str, array: ArrayRef) -> (arrow_schema::FieldRef, ArrayRef) {
    let field = Arc::new(parse_field(name, ty, true).unwrap());
    let array = make_array(
        array
            .to_data()
            .into_builder()
            .data_type(field.data_type().clone())
            .build()
            .unwrap(),
    );
    (field, array)
}

/// Largest and smallest values of every type that is not inside another one.
fn all_types() -> RecordBatch {
    let decimals = Decimal128Array::from(vec![Some(-12_345_678_901_234_567_890_123), None]);
    batch(vec![
        column(
            "bool",
            "bool",
            Arc::new(BooleanArray::from(vec![Some(true), None])),
        ),
        column(
            "i8",
            "int8",
            Arc::new(Int8Array::from(vec![i8::MIN, i8::MAX])),
        ),
        column(
            "i16",
            "int16",
            Arc::new(Int16Array::from(vec![i16::MIN, i16::MAX])),
        ),
        column(
            "i32",
            "int32",
            Arc::new(Int32Array::from(vec![i32::MIN, i32::MAX])),
        ),
        column(
            "i64",
            "int64",
            Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX])),
        ),
        column("u8", "uint8", Arc::new(UInt8Array::from(vec![0, u8::MAX]))),
        column(
            "u16",
            "uint16",
            Arc::new(UInt16Array::from(vec![0, u16::MAX])),
        ),
        column(
            "u32",
            "uint32",
            Arc::new(UInt32Array::from(vec![0, u32::MAX])),
        ),
        column(
            "u64",
            "uint64",
            Arc::new(UInt64Array::from(vec![1 + (1 << 53), u64::MAX])),
        ),
        column(
            "f32",
            "float32",
            Arc::new(Float32Array::from(vec![-0.0, f32::MAX])),
        ),
        column(
            "f64",
            "float64",
            Arc::new(Float64Array::from(vec![5e-324, f64::MAX])),
        ),
        column(
            "dec",
            "decimal(30, 4)",
            Arc::new(decimals.with_precision_and_scale(30, 4).unwrap()),
        ),
        column(
            "date",
            "date",
            Arc::new(Date32Array::from(vec![-719_528, 2_932_896])),
        ),
        column(
            "time",
            "time",
            Arc::new(Time64MicrosecondArray::from(vec![0, 86_399_999_999])),
        ),
        column(
            "at",
            "timestamptz",
            Arc::new(TimestampMicrosecondArray::from(vec![
                -1,
                253_402_300_799_999_999,
            ])),
        ),
        column(
            "local",
            "timestamp(ms)",
            Arc::new(TimestampMillisecondArray::from(vec![-1, 1])),
        ),
        column(
            "nano",
            "timestamp(ns)",
            Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, 123_456_789])),
        ),
        column(
            "text",
            "string",
            Arc::new(StringArray::from(vec!["é\"\\\n\u{0}", ""])),
        ),
        column(
            "bin",
            "binary",
            Arc::new(BinaryArray::from_vec(vec![b"\x00\xff", b""])),
        ),
        column(
            "json",
            "json",
            Arc::new(StringArray::from(vec![
                "[1.10, {\"a.b\": 12345678901234567890123}]",
                "\"x\"",
            ])),
        ),
    ])
}

/// As the server keeps the first row, and the second one.
const FIRST: &str = r#""bool":true,"i8":-128,"i16":-32768,"i32":-2147483648,"i64":-9223372036854775808,"u8":0,"u16":0,"u32":0,"u64":9007199254740993,"f32":-0.0,"f64":5e-324,"dec":"-1234567890123456789.0123","date":"0000-01-01","time":"00:00:00","at":"1969-12-31T23:59:59.999999Z","local":"1969-12-31T23:59:59.999","nano":"1677-09-21T00:12:43.145224192","text":"é\"\\\n\u0000","bin":"AP8=","json":[1.10,{"a.b":12345678901234567890123}]"#;

#[test]
fn every_type_keeps_every_digit_in_the_source() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let all = all_types();
    let stream = Stream::new(&space, &all.schema(), WriteMode::Append);
    stream.run("r", &[all], None).unwrap();
    let found = space.done("GET", "t/_search?sort=i8", "");
    assert!(found.contains(FIRST), "{found}");
    for part in [
        "\"bool\":null",
        "\"u64\":18446744073709551615",
        "\"f32\":3.4028235e+38",
        "\"f64\":1.7976931348623157e+308",
        "\"dec\":null",
        "\"date\":\"9999-12-31\"",
        "\"time\":\"23:59:59.999999\"",
        "\"at\":\"9999-12-31T23:59:59.999999Z\"",
        "\"nano\":\"1970-01-01T00:00:00.123456789\"",
        "\"json\":\"x\"",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    // The index compares them: the field has the type, and not only `_source`.
    for query in [
        json!({ "term": { "u64": 18_446_744_073_709_551_615_u64 } }),
        json!({ "range": { "i64": { "gt": i64::MAX - 1 } } }),
        json!({ "range": { "at": { "lt": "1970-01-01T00:00:00Z" } } }),
        json!({ "term": { "date": "9999-12-31" } }),
        json!({ "term": { "dec": "-1234567890123456789.0123" } }),
        json!({ "term": { "text.keyword": "é\"\\\n\u{0}" } }),
    ] {
        let counted = space.done("POST", "t/_count", &json!({ "query": query }).to_string());
        let counted: Value = serde_json::from_str(&counted).unwrap();
        assert_eq!(counted["count"], 1, "{query}");
    }
}

#[test]
fn lists_and_objects_become_fields_of_their_own() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let types = [
        ("l", "list<int64>"),
        ("o", "struct<a: string, b: list<struct<n: int32>>>"),
        ("m", "map<string, float64>"),
    ];
    let fields = types.map(|(name, ty)| parse_field(name, ty, true).unwrap());
    let schema = Arc::new(arrow_schema::Schema::new(fields.to_vec()));
    let text =
        r#"{"l":[1,null,9007199254740993],"o":{"a":"x","b":[{"n":1},{"n":null}]},"m":{"a.b":1.5}}"#;
    let mut decoder =
        Decoder::new(&Format::Jsonl, schema.clone(), None, Limits::default()).unwrap();
    decoder.begin_file();
    decoder.push_record(text.as_bytes()).unwrap();
    let rows = decoder.take_batch().unwrap().unwrap();
    let stream = Stream::new(&space, &schema, WriteMode::Append);
    stream.run("r", &[rows], None).unwrap();
    let found = space.done("GET", "t/_search", "");
    assert!(found.contains(&text[1..]), "{found}");
    let mapping: Value = serde_json::from_str(&space.done("GET", "t/_mapping", "")).unwrap();
    let fields = &mapping[space.name("t")]["mappings"];
    assert_eq!(fields["dynamic"], "strict");
    let fields = &fields["properties"];
    assert_eq!(fields["l"]["type"], "long");
    assert_eq!(fields["o"]["properties"]["b"]["type"], "nested");
    assert_eq!(fields["m"], json!({ "type": "object", "enabled": false }));
}

#[test]
fn what_json_does_not_hold_is_refused_by_its_row() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let rows = |value| {
        batch(vec![column(
            "f",
            "float64",
            Arc::new(Float64Array::from(vec![value])),
        )])
    };
    let stream = Stream::new(&space, &rows(0.0).schema(), WriteMode::Append);
    let error = stream.fails(&[rows(f64::NAN)]);
    assert_eq!(
        (error.code.as_str(), error.location.as_deref()),
        ("json_not_finite", Some("row 1"))
    );
    let far = batch(vec![column(
        "f",
        "date",
        Arc::new(Date32Array::from(vec![3_000_000])),
    )]);
    let stream = Stream::new(&space, &far.schema(), WriteMode::Append)
        .set("index", space.name("far").into());
    let error = stream.fails(&[far]);
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("opensearch_refused", Some("f"))
    );
    assert!(error.message.contains("10183-09-21"), "{}", error.message);
}

fn fit<'a>(plan: &'a Plan, column: &str) -> (Fit, &'a str) {
    let found = plan
        .columns
        .iter()
        .find(|one| one.column == column)
        .unwrap();
    (found.fit, found.note.as_deref().unwrap_or_default())
}

#[test]
fn an_index_that_exists_keeps_its_fields_and_gets_new_ones() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let fields = json!({ "mappings": { "properties": {
        "n": { "type": "integer" }, "s": { "type": "ip" }, "d": { "type": "long" }, "old": { "type": "keyword" },
    } } });
    space.done("PUT", "t", &fields.to_string());
    let rows = |n: i64, s: &str| {
        batch(vec![
            column("n", "int64", Arc::new(Int64Array::from(vec![n]))),
            column("s", "string", Arc::new(StringArray::from(vec![s]))),
            column("new", "bool", Arc::new(BooleanArray::from(vec![true]))),
        ])
    };
    let mut stream = Stream::new(&space, &rows(1, "").schema(), WriteMode::Append);
    let plan = stream.plan().unwrap();
    assert_eq!(plan.new_columns, ["new"]);
    assert_eq!(
        plan.statements[0],
        format!("add fields to {}: new", space.name("t"))
    );
    assert_eq!(fit(&plan, "n").0, Fit::Checked);
    assert!(fit(&plan, "s").1.contains("ip"), "{:?}", fit(&plan, "s"));
    assert!(
        plan.notes.iter().any(|note| note.ends_with(": d, old")),
        "{:?}",
        plan.notes
    );
    // A policy that refuses changes nothing.
    stream.target.schema_changes.new_column = NewColumn::Fail;
    assert!(
        fit(&stream.plan().unwrap(), "new")
            .1
            .contains("new_column is fail")
    );
    assert_eq!(stream.fails(&[rows(1, "::1")]).code, "column_refused");
    stream.target.schema_changes.new_column = NewColumn::Ignore;
    assert_eq!(fit(&stream.plan().unwrap(), "new").0, Fit::Ignored);
    stream.run("ignore", &[rows(1, "::1")], Some("1")).unwrap();
    assert!(documents(&space, "t")[0].1.get("new").is_none());
    stream.target.schema_changes.dropped_column = DroppedColumn::Fail;
    assert_eq!(stream.plan().unwrap_err().code, "column_dropped");
    stream.target.schema_changes = Default::default();
    stream
        .run("add", &[rows(2, "10.0.0.1")], Some("2"))
        .unwrap();
    assert!(
        documents(&space, "t")
            .iter()
            .any(|(_, source)| source["new"] == true)
    );
    // The server refuses what its fields do not take.
    let error = stream.fails(&[rows(1 << 40, "::1")]);
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("opensearch_refused", Some("n"))
    );
    // A float would lose its fraction in the index.
    let float = batch(vec![column(
        "d",
        "float64",
        Arc::new(Float64Array::from(vec![1.5])),
    )]);
    let stream = Stream::new(&space, &float.schema(), WriteMode::Append);
    let plan = stream.plan().unwrap();
    assert!(fit(&plan, "d").1.contains("double"), "{:?}", plan.columns);
    assert_eq!(stream.fails(&[float]).code, "column_refused");
}

#[test]
fn names_and_limits_are_refused_before_the_first_row() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let one = |name: &str| {
        let row = batch(vec![column(
            name,
            "bool",
            Arc::new(BooleanArray::from(vec![true])),
        )]);
        Stream::new(&space, &row.schema(), WriteMode::Append)
    };
    for name in ["a.b", "_source", "_rapidbyte", " "] {
        let plan = one(name).plan().unwrap();
        assert_eq!(fit(&plan, name).0, Fit::Refused, "{name}");
    }
    let upper = one("a").set("index", "Orders".into());
    assert_eq!(upper.plan().unwrap_err().code, "invalid_name");
    let own = one("a").set("index", space.name("checkpoint").into());
    assert_eq!(own.plan().unwrap_err().code, "invalid_name");
    let many = (0..1000).map(|n| {
        column(
            &format!("c{n}"),
            "bool",
            Arc::new(BooleanArray::from(vec![true])),
        )
    });
    let many = Stream::new(&space, &batch(many.collect()).schema(), WriteMode::Append);
    let error = many.plan().unwrap_err();
    assert_eq!(error.code, "too_many_fields");
    assert!(error.message.contains("1001 fields"), "{}", error.message);
    assert_eq!(indices(&space), [""; 0]);
    for index in ["one", "two"] {
        space.done("PUT", index, "{}");
        space.done("PUT", &format!("{index}/_alias/{}", space.name("t")), "");
    }
    assert_eq!(one("a").plan().unwrap_err().code, "alias_refused");
}

#[test]
fn the_settings_decide_on_fields_and_values() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let rows = batch(vec![
        column(
            "s",
            "string",
            Arc::new(StringArray::from(vec![Some("a"), None])),
        ),
        column(
            "j",
            "json",
            Arc::new(StringArray::from(vec![Some("{\"x\": 1}"), None])),
        ),
    ]);
    let stream = Stream::new(&space, &rows.schema(), WriteMode::Append)
        .set("strings", "keyword".into())
        .set("json", "text".into())
        .set("nulls", "omit".into())
        .set("shards", 2.into())
        .set("replicas", 0.into())
        .set("refresh", "interval".into())
        .set("bulk_rows", 1.into());
    stream.run("r", &[rows], None).unwrap();
    let index: Value = serde_json::from_str(&space.done("GET", "t", "")).unwrap();
    let index = &index[space.name("t")];
    let fields = &index["mappings"]["properties"];
    let keyword = json!({ "type": "keyword", "ignore_above": 8191 });
    assert_eq!((&fields["s"], &fields["j"]), (&keyword, &keyword));
    let settings = &index["settings"]["index"];
    assert_eq!(settings["number_of_shards"], "2");
    assert_eq!(settings["number_of_replicas"], "0");
    space.done("POST", "t/_refresh", "");
    let mut found = documents(&space, "t");
    found.sort_by_key(|(_, source)| source.as_object().unwrap().len());
    assert_eq!(found[0].1.as_object().unwrap().len(), 1);
    assert_eq!(found[1].1["j"], "{\"x\": 1}");
}
