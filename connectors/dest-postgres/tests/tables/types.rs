//! Every type, PostgreSQL's and Arrow's, by COPY and by INSERT.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::{Column, catalog, ident, select_expression};
use rapidbyte_pg_client::{CopyRead, Settings};
use rapidbyte_sdk::prelude::arrow_array::types::{Float16Type, Int32Type};
use rapidbyte_sdk::prelude::arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array,
    Decimal256Array, DurationMicrosecondArray, FixedSizeBinaryArray, Float16Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    LargeStringArray, ListArray, NullArray, RecordBatch, StringArray, Time32MillisecondArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use rapidbyte_sdk::prelude::{DataType, Field, Fit, Schema, WriteMode};
use rapidbyte_testkit::postgres::Database;
use serde_json::json;

const SCHEMA: &str = include_str!("../../../../crates/pg/tests/golden/schema.sql");

/// All rows of `app.wide` with the columns that `keep` lets through, as a source would give them.
fn read(database: &Database<'_>, keep: impl Fn(&Column) -> bool) -> RecordBatch {
    let settings = Settings::from_url(&database.url()).unwrap();
    let mut client = rapidbyte_pg_client::Client::connect(&settings).unwrap();
    client.simple_query(catalog::SESSION_SETTINGS).unwrap();
    let oid: u32 = client
        .simple_query("SELECT 'app.wide'::regclass::oid::int8")
        .unwrap()[0]
        .single()
        .unwrap()
        .parse()
        .unwrap();
    let mut texts = |sql: &str| -> Vec<String> {
        let answers = client.simple_query(sql).unwrap();
        let rows = answers[0].rows.iter();
        rows.map(|row| row.text(0).unwrap().unwrap().to_owned())
            .collect()
    };
    let columns = texts(&catalog::columns_query(&[oid]));
    let described = catalog::Described::parse(columns.iter().map(String::as_str)).unwrap();
    let types = texts(&described.types_query().unwrap());
    let types = catalog::Types::parse(types.iter().map(String::as_str)).unwrap();
    let columns: Vec<Column> = described
        .relations(&types)
        .remove(0)
        .unwrap()
        .columns
        .into_iter()
        .filter(keep)
        .collect();
    let list: Vec<_> = columns.iter().map(|c| select_expression(c, true)).collect();
    let mut decoder = Decoder::new(&columns, true, 1 << 20);
    let sql = format!(
        "COPY (SELECT {} FROM app.wide) TO STDOUT (FORMAT binary)",
        list.join(", ")
    );
    let mut copy = client.copy_out(&sql).unwrap();
    let mut feed = || {
        copy.feed(Duration::from_secs(20), |bytes| {
            Ok(decoder.push_messages(bytes).unwrap())
        })
    };
    while feed().unwrap() != CopyRead::End {}
    decoder.finish().unwrap();
    decoder.take_batch().unwrap()
}

/// The destination does not ask for built-in types: its own descriptions match the server's answers.
#[test]
fn built_in_types_are_as_the_server_describes_them() {
    let database = database();
    let settings = Settings::from_url(&database.url()).unwrap();
    let mut client = rapidbyte_pg_client::Client::connect(&settings).unwrap();
    let builtins = rapidbyte_pg::builtin::ALL.iter();
    let oids: Vec<u32> = builtins.flat_map(|ty| [ty.oid, ty.array]).collect();
    let answer = client.simple_query(&catalog::types_query(&oids)).unwrap();
    let rows = answer[0]
        .rows
        .iter()
        .map(|row| row.text(0).unwrap().unwrap());
    let types = catalog::Types::parse(rows).unwrap();
    for oid in oids {
        let known = rapidbyte_pg::model::type_of(oid);
        assert_eq!(known, Some(types.get(oid).unwrap()), "{oid}");
    }
}

fn config(method: &str) -> serde_json::Value {
    json!({"load_method": method, "insert_rows": 7, "copy_flush_bytes": 4096})
}

/// The columns with their exact types.
fn columns_of(database: &Database<'_>, keep: &str) -> String {
    one(
        &mut database.client(),
        &format!(
            "SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || coalesce(col_description(attrelid, attnum), ''), E'\\n' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'app.wide'::regclass AND attnum > 0 AND attname {keep}"
        ),
    )
}

fn rows_of(database: &Database<'_>, columns: &str, filter: &str) -> String {
    one(
        &mut database.client(),
        &format!(
            "SELECT string_agg(ROW({columns})::text, E'\\n' ORDER BY id) FROM app.wide WHERE {filter}"
        ),
    )
}

/// The columns that travel as text: names of objects, and xml, whose binary form changes it.
fn is_text(name: &str) -> bool {
    name.starts_with("c_class") || name == "c_xml"
}

#[test]
fn every_type_of_postgresql_arrives_as_it_was_by_every_way() {
    let source = database();
    source.client().batch_execute(SCHEMA).unwrap();
    for (method, with_text) in [("copy", false), ("insert", false), ("copy", true)] {
        let rows = read(&source, |column| with_text || !is_text(&column.name));
        let target = database();
        // Other numbers for the same types.
        target
            .client()
            .batch_execute("CREATE SCHEMA app; CREATE TYPE app.other AS ENUM ('x')")
            .unwrap();
        let mut to = open_with(&target.url(), config(method));
        let error = plan(&mut to, "app.wide", &rows).unwrap_err();
        assert_eq!(error.code, "missing_type", "{error:?}");
        let hint = error.hint.unwrap();
        target
            .client()
            .batch_execute(hint.strip_prefix("run on the target: ").unwrap())
            .unwrap();
        let planned = plan(&mut to, "app.wide", &rows).unwrap();
        assert!(
            planned.columns.iter().all(|c| {
                let expected = if is_text(&c.column) {
                    Fit::Checked
                } else {
                    Fit::Exact
                };
                c.fit == expected
            }),
            "{:?}",
            planned.columns
        );
        append(&mut to, "app.wide", &rows).unwrap();
        let keep = if with_text {
            "IS NOT NULL"
        } else {
            "NOT LIKE ALL ('{c_class%,c_xml}')"
        };
        let (made, original) = (columns_of(&target, keep), columns_of(&source, keep));
        assert_eq!(made, original);
        let names: Vec<_> = rows
            .schema()
            .fields()
            .iter()
            .map(|f| ident::quote_ident(f.name()))
            .collect();
        let names = names.join(", ");
        assert_eq!(
            rows_of(&target, &names, "true"),
            rows_of(&source, &names, "true")
        );
        // Into the table that is there now.
        replace(&mut to, "app.wide", &rows).unwrap();
        assert_eq!(
            rows_of(&target, &names, "true"),
            rows_of(&source, &names, "true")
        );
    }
}

#[test]
fn missing_enums_and_domains_are_made_in_their_schema() {
    let source = database();
    source.client().batch_execute(SCHEMA).unwrap();
    let wanted = ["id", "c_mood", "c_amount", "c_amounts"];
    let rows = read(&source, |column| wanted.contains(&column.name.as_str()));
    let target = database();
    let mut to = open_with(&target.url(), json!({"schema": "raw"}));
    let planned = plan(&mut to, "app.wide", &rows).unwrap();
    assert!(
        planned
            .statements
            .iter()
            .any(|s| s.starts_with("CREATE TYPE app.mood AS ENUM")),
        "{:?}",
        planned.statements
    );
    let mut client = target.client();
    assert_eq!(one(&mut client, "SELECT to_regnamespace('app')"), "NULL");
    append(&mut to, "app.wide", &rows).unwrap();
    let types = "SELECT string_agg(format_type(atttypid, atttypmod), ',') FROM pg_attribute WHERE attrelid = 'raw.wide'::regclass AND attnum > 0";
    assert_eq!(
        one(&mut client, types),
        "bigint,app.mood,app.amount,app.amount[]"
    );
    assert_eq!(
        one(
            &mut client,
            "SELECT ROW(c_mood, c_amount, c_amounts) FROM raw.wide WHERE id = 1"
        ),
        "(glücklich,12.50,\"{1.00,2.50}\")"
    );
}

fn some<A: Array + 'static>(array: A) -> ArrayRef {
    Arc::new(array)
}

/// A value, another and NULL of every portable type.
fn portable() -> RecordBatch {
    let half = <Float16Type as rapidbyte_sdk::prelude::arrow_array::types::ArrowPrimitiveType>::Native::from_f32(1.5);
    let wide = |text: &str| text.parse().ok();
    let uuid = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        [Some([7_u8; 16]), Some([0; 16]), None].into_iter(),
        16,
    )
    .unwrap();
    let lists = vec![Some(vec![Some(1), None]), Some(vec![]), None];
    let interval = |m, d, n| {
        Some(rapidbyte_sdk::prelude::arrow_array::types::IntervalMonthDayNano::new(m, d, n))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", some(Int64Array::from(vec![1, 2, 3]))),
        (
            "bool",
            some(BooleanArray::from(vec![Some(true), Some(false), None])),
        ),
        (
            "i8",
            some(Int8Array::from(vec![Some(-128), Some(127), None])),
        ),
        (
            "i16",
            some(Int16Array::from(vec![Some(i16::MIN), Some(1), None])),
        ),
        (
            "i32",
            some(Int32Array::from(vec![Some(i32::MIN), Some(1), None])),
        ),
        ("u8", some(UInt8Array::from(vec![Some(255), Some(1), None]))),
        (
            "u16",
            some(UInt16Array::from(vec![Some(u16::MAX), Some(1), None])),
        ),
        (
            "u32",
            some(UInt32Array::from(vec![Some(u32::MAX), Some(1), None])),
        ),
        (
            "u64",
            some(UInt64Array::from(vec![Some(u64::MAX), Some(0), None])),
        ),
        (
            "f16",
            some(Float16Array::from(vec![Some(half), Some(half), None])),
        ),
        (
            "f32",
            some(Float32Array::from(vec![Some(1.25), Some(f32::NAN), None])),
        ),
        (
            "f64",
            some(Float64Array::from(vec![
                Some(-0.0),
                Some(f64::INFINITY),
                None,
            ])),
        ),
        (
            "d128",
            some(
                Decimal128Array::from(vec![Some(-12345), Some(0), None])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        (
            "d256",
            some(
                Decimal256Array::from(vec![
                    wide("123456789012345678901234567890123456789012"),
                    wide("-1"),
                    None,
                ])
                .with_precision_and_scale(60, 5)
                .unwrap(),
            ),
        ),
        (
            "text",
            some(StringArray::from(vec![Some("ü\t\\N\n\""), Some(""), None])),
        ),
        (
            "large",
            some(LargeStringArray::from(vec![Some("🦀"), Some("\\N"), None])),
        ),
        (
            "bytes",
            some(BinaryArray::from(vec![
                Some(&b"\0\xff"[..]),
                Some(b""),
                None,
            ])),
        ),
        ("uuid", some(uuid)),
        (
            "json",
            some(StringArray::from(vec![
                Some("{\"b\": 1,  \"a\": 2}"),
                Some("null"),
                None,
            ])),
        ),
        (
            "d32",
            some(Date32Array::from(vec![Some(-1), Some(20_000), None])),
        ),
        (
            "d64",
            some(Date64Array::from(vec![Some(-86_400_000), Some(0), None])),
        ),
        (
            "t32",
            some(Time32MillisecondArray::from(vec![
                Some(86_399_999),
                Some(0),
                None,
            ])),
        ),
        (
            "t64",
            some(Time64MicrosecondArray::from(vec![
                Some(86_399_999_999),
                Some(0),
                None,
            ])),
        ),
        (
            "ts",
            some(TimestampSecondArray::from(vec![Some(-1), Some(1), None])),
        ),
        (
            "tms",
            some(TimestampMillisecondArray::from(vec![
                Some(-1),
                Some(1),
                None,
            ])),
        ),
        (
            "tus",
            some(TimestampMicrosecondArray::from(vec![
                Some(-1),
                Some(1),
                None,
            ])),
        ),
        (
            "tns",
            some(TimestampNanosecondArray::from(vec![
                Some(-1000),
                Some(1000),
                None,
            ])),
        ),
        (
            "tz",
            some(
                TimestampMicrosecondArray::from(vec![Some(-1), Some(1), None])
                    .with_timezone("Europe/Berlin"),
            ),
        ),
        (
            "dur",
            some(DurationMicrosecondArray::from(vec![
                Some(-1),
                Some(86_400_000_000),
                None,
            ])),
        ),
        (
            "iv",
            some(IntervalMonthDayNanoArray::from(vec![
                interval(1, -2, 3000),
                interval(0, 0, 0),
                None,
            ])),
        ),
        (
            "list",
            some(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        ),
        ("nothing", some(NullArray::new(3))),
    ];
    let field = |(name, array): &(&str, ArrayRef)| {
        let field = Field::new(*name, array.data_type().clone(), *name != "id");
        let extension = match *name {
            "uuid" => "arrow.uuid",
            "json" => "arrow.json",
            _ => return field,
        };
        field.with_metadata([("ARROW:extension:name".to_owned(), extension.to_owned())])
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(schema), arrays).unwrap()
}

#[test]
fn every_portable_type_is_the_same_by_copy_and_by_insert() {
    let database = database();
    let rows = portable();
    let mut client = database.client();
    let mut texts = Vec::new();
    for method in ["copy", "insert"] {
        let mut to = open_with(&database.url(), config(method));
        append(&mut to, method, &rows).unwrap();
        texts.push(one(
            &mut client,
            &format!("SELECT string_agg(x::text, E'\\n' ORDER BY id) FROM public.{method} x"),
        ));
        // A table that is there.
        let mut to = open_with(
            &database.url(),
            config(if method == "copy" { "insert" } else { "copy" }),
        );
        append(&mut to, method, &rows).unwrap();
        assert_eq!(
            one(
                &mut client,
                &format!(
                    "SELECT count(DISTINCT x::text) || ' ' || count(*) FROM public.{method} x"
                )
            ),
            "3 6"
        );
    }
    assert_eq!(texts[0], texts[1]);
    for value in [
        "-123.45",
        "18446744073709551615",
        "1234567890123456789012345678901234567.89012",
        "1969-12-31 23:59:59.999999",
        "1 mon -2 days +00:00:00.000003",
        "{1,NULL}",
    ] {
        assert!(texts[0].contains(value), "{value}: {}", texts[0]);
    }
    let types = "SELECT string_agg(format_type(atttypid, atttypmod), ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'public.copy'::regclass AND attnum > 0";
    assert_eq!(
        one(&mut client, types),
        "bigint,boolean,smallint,smallint,integer,smallint,integer,bigint,\"numeric(20,0)\",real,real,\
         double precision,\"numeric(10,2)\",\"numeric(60,5)\",text,text,bytea,uuid,json,date,date,\
         time without time zone,time without time zone,timestamp without time zone,\
         timestamp without time zone,timestamp without time zone,timestamp without time zone,\
         timestamp with time zone,interval,interval,integer[],text"
            .replace('"', "")
    );
}

fn one_column(name: &str, method: &str, to: &mut Session) {
    let schema = Schema::new(vec![Field::new(name, DataType::Int64, true)]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let rows = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    // A stream's name is cut at its first dot.
    let mode = if method == "copy" {
        WriteMode::Append
    } else {
        WriteMode::Replace
    };
    write(to, &format!("public.{name}"), mode, &[rows])
        .unwrap_or_else(|e| panic!("{name:?}: {e:?}"));
}

#[test]
fn names_that_quoting_gets_wrong_easily_arrive_whole() {
    let database = database();
    let mut client = database.client();
    let names: Vec<_> = ident::nasty_names(3_000).split_off(2_940);
    for method in ["copy", "insert"] {
        for name in &names {
            if name.starts_with("pg_") {
                continue;
            }
            let mut settings = config(method);
            settings["schema"] = json!(name);
            let mut to = open_with(&database.url(), settings);
            one_column(name, method, &mut to);
        }
    }
    for name in &names {
        let quoted = ident::quote_ident(name);
        let sql = format!("SELECT count({quoted}) || '/' || count(*) FROM {quoted}.{quoted}");
        assert_eq!(one(&mut client, &sql), "1/2", "{name:?}");
    }
}

#[test]
fn as_many_columns_as_a_table_can_have() {
    let database = database();
    for method in ["copy", "insert"] {
        let mut to = open_with(&database.url(), config(method));
        let fields: Vec<_> = (0..1600)
            .map(|i| Field::new(format!("c{i}"), DataType::Boolean, true))
            .collect();
        let array: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![array; 1600]).unwrap();
        append(&mut to, &format!("wide_{method}"), &rows).unwrap();
        let count = format!("SELECT count(*) || '/' || count(c1599) FROM public.wide_{method}");
        assert_eq!(one(&mut database.client(), &count), "2/1");
    }
}

#[test]
fn a_stream_without_columns_keeps_its_number_of_rows() {
    let database = database();
    let options =
        rapidbyte_sdk::prelude::arrow_array::RecordBatchOptions::new().with_row_count(Some(3));
    let rows =
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let mut to = open_with(&database.url(), json!({}));
    append(&mut to, "empty", &rows).unwrap();
    assert_eq!(
        one(&mut database.client(), "SELECT count(*) FROM public.empty"),
        "3"
    );
}
