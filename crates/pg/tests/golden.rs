//! Against bytes that a real server sent (captured by `golden.sh`).

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::IntervalMonthDayNano;
use rapidbyte_pg::catalog::{self, Relation};
use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::{Column, Fit, Form, PgError, column_of, fit, form, ident, insert};

const SOURCE: (&str, &str) = (
    include_str!("golden/source-columns.jsonl"),
    include_str!("golden/source-types.jsonl"),
);
const TARGET: (&str, &str) = (
    include_str!("golden/target-columns.jsonl"),
    include_str!("golden/target-types.jsonl"),
);
const NATIVE: &[u8] = include_bytes!("golden/source-native.copy");
const PORTABLE: &[u8] = include_bytes!("golden/source-portable.copy");
const LIMIT: usize = 1 << 20;

fn relation((columns, types): (&str, &str), name: &str) -> Relation {
    let types = catalog::Types::parse(types.lines()).expect("types");
    let described = catalog::Described::parse(columns.lines()).expect("columns");
    let mut relations = described.relations(&types).into_iter();
    let found = relations.find_map(|relation| relation.ok().filter(|r| r.name == name));
    found.expect("the table")
}

fn wide(server: (&str, &str)) -> Vec<Column> {
    relation(server, "wide").columns
}

fn decode(columns: &[Column], native: bool, bytes: &[u8]) -> Result<RecordBatch, PgError> {
    let mut decoder = Decoder::new(columns, native, LIMIT);
    decoder.push(bytes)?;
    decoder.finish()?;
    decoder.take_batch()
}

/// The columns that bytes can be written to: text columns where a cast would follow, and
/// ordinary ones where the server computes.
fn writable(columns: &[Column], native: bool) -> Vec<Column> {
    let target = |column: &Column| match form(column, native) {
        Form::TextCast => column.as_text(),
        _ => Column {
            generated: Default::default(),
            ..column.clone()
        },
    };
    columns.iter().map(target).collect()
}

fn encode(batch: &RecordBatch, targets: &[Column]) -> Vec<u8> {
    let mut encoder = Encoder::new(batch.schema_ref(), targets).expect("encoder");
    let mut out = Vec::new();
    encoder.header(&mut out);
    encoder.encode(batch, &mut out).expect("encode");
    encoder.trailer(&mut out);
    out
}

#[test]
fn the_catalog_is_read() {
    let table = relation(SOURCE, "wide");
    assert_eq!(table.primary_key, ["id"]);
    let column = |name: &str| {
        let found = table.columns.iter().find(|column| column.name == name);
        found.unwrap_or_else(|| panic!("{name}"))
    };
    assert!(column("id").not_null);
    assert_eq!(column("c_numeric").type_text, "numeric(12,2)");
    assert_eq!(column("c_mood").type_text, "app.mood");
    assert_eq!(column("c_deeps").type_text, "app.deep[]");
    assert_eq!(
        column("c_text").comment.as_deref(),
        Some("it's a \\ comment")
    );
    assert_eq!(column("Order \"x\"").type_text, "text");
    assert!(column("c_sum").is_computed());
    assert_eq!(relation(SOURCE, "view").kind, 'v');
    let rows = relation(SOURCE, "rows");
    assert!(
        rows.columns
            .iter()
            .all(|column| !column.name.contains("pg.dropped"))
    );
    for column in wide(SOURCE) {
        for native in [true, false] {
            let field = rapidbyte_pg::field(&column, native);
            assert_eq!(column_of(&field).expect("metadata").as_ref(), Some(&column));
        }
    }
}

#[test]
fn types_are_found_by_name() {
    let types = include_str!("golden/named-types.jsonl").lines();
    let types = catalog::Types::parse(types).expect("catalog");
    assert_eq!(types.find("no", "type"), Ok(None));
    let deep = types.find("app", "deep").expect("whole").expect("found");
    let columns = wide(SOURCE);
    let column = columns.iter().find(|column| column.name == "c_deep");
    assert_eq!(deep.parts(), column.expect("c_deep").ty.parts());
    let label = types.find("app", "label").expect("whole").expect("found");
    let statements = rapidbyte_pg::ddl::missing_types(&label, |_, name| name == "mood");
    let statements = statements.expect("domains are made automatically");
    assert_eq!(statements, ["CREATE DOMAIN app.label AS app.mood NOT NULL"]);
}

#[test]
fn portable_values_are_what_the_server_holds() {
    let columns = wide(SOURCE);
    let batch = decode(&columns, false, PORTABLE).expect("decode");
    assert_eq!(batch.num_rows(), 40);
    let column = |name: &str| {
        batch
            .column_by_name(name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(
        column("c_int2").as_primitive::<Int16Type>().value(0),
        i16::MIN
    );
    assert_eq!(
        column("c_oid").as_primitive::<UInt32Type>().value(0),
        u32::MAX
    );
    assert!(
        column("c_float8")
            .as_primitive::<Float64Type>()
            .value(0)
            .is_sign_negative()
    );
    assert!(
        column("c_float4")
            .as_primitive::<Float32Type>()
            .value(2)
            .is_nan()
    );
    assert_eq!(column("c_text").as_string::<i32>().value(0), "naïve 🦀");
    assert_eq!(column("c_bpchar").as_string::<i32>().value(0), "ab   ");
    assert_eq!(column("c_mood").as_string::<i32>().value(0), "glücklich");
    assert_eq!(
        column("c_jsonb").as_string::<i32>().value(0),
        r#"{"a": 2, "b": 1}"#
    );
    assert_eq!(
        column("c_json").as_string::<i32>().value(0),
        r#"{"b": 1,  "a": [null]}"#
    );
    assert_eq!(column("c_bytea").as_binary::<i32>().value(0), [0, 255, 16]);
    let decimal = |name: &str, row| column(name).as_primitive::<Decimal128Type>().value(row);
    assert_eq!(decimal("c_amount", 0), 1250);
    assert_eq!(decimal("c_numeric", 0), -123_456_789_005);
    assert_eq!(decimal("c_numeric", 2), 0);
    let numeric60 = column("c_numeric60").as_primitive::<Decimal256Type>();
    assert_eq!(
        numeric60.value(0).to_string(),
        "-123456789012345678901234567890123456789012345678900123456789"
    );
    assert_eq!(numeric60.value(2).to_string(), "1");
    assert_eq!(
        column("c_date").as_primitive::<Date32Type>().value(0),
        19_782
    );
    assert_eq!(
        column("c_time")
            .as_primitive::<Time64MicrosecondType>()
            .value(0),
        86_399_999_999
    );
    let instant = column("c_timestamptz").as_primitive::<TimestampMicrosecondType>();
    assert_eq!(instant.value(0), 1_717_236_000_123_456);
    assert_eq!(instant.value(2), -1);
    assert_eq!(
        column("c_interval")
            .as_primitive::<IntervalMonthDayNanoType>()
            .value(0),
        IntervalMonthDayNano::new(14, -3, 14_706_000_007_000)
    );
    let ints = column("c_ints").as_list::<i32>().value(0);
    let ints: Vec<_> = ints.as_primitive::<Int32Type>().iter().collect();
    assert_eq!(ints, [Some(1), None, Some(3)]);
    assert!(column("c_ints").is_null(1));
    assert_eq!(column("c_ints").as_list::<i32>().value(2).len(), 0);
    let texts = column("c_texts").as_list::<i32>().value(0);
    let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("a b"), None, Some(""), Some("ü")]);
    // A value without a portable form is the server's text.
    let text = |name: &str| column(name).as_string::<i32>().value(0);
    assert_eq!(text("c_free"), "12345678901234567890.000100");
    assert_eq!(text("c_timetz"), "10:00:00+05:30");
    assert_eq!(text("c_inet"), "192.168.0.1/24");
    assert_eq!(text("c_class"), "app.wide");
    assert_eq!(text("c_range"), "[1,10)");
}

#[test]
fn decoding_and_encoding_gives_the_servers_bytes_again() {
    let columns = wide(SOURCE);
    for (native, bytes) in [(true, NATIVE), (false, PORTABLE)] {
        let batch = decode(&columns, native, bytes).expect("decode");
        assert!(
            encode(&batch, &writable(&columns, native)) == bytes,
            "native: {native}"
        );
    }
}

#[test]
fn the_type_oids_become_the_targets() {
    let batch = decode(&wide(SOURCE), true, NATIVE).expect("decode");
    let target = wide(TARGET);
    let expected = include_bytes!("golden/target-native.copy");
    assert!(NATIVE != expected, "the two servers have the same OIDs");
    assert!(encode(&batch, &writable(&target, true)) == expected);
}

#[test]
fn every_column_finds_its_like_on_the_target() {
    for native in [true, false] {
        for (source, target) in wide(SOURCE).iter().zip(wide(TARGET)) {
            let found = fit(&rapidbyte_pg::field(source, native), &target).expect("metadata");
            let expected = match form(source, native) {
                _ if source.name == "c_sum" => {
                    assert!(matches!(found, Fit::Refused(_)));
                    continue;
                }
                Form::TextCast => Fit::Cast(target.type_text.clone()),
                _ => Fit::Direct,
            };
            assert_eq!(found, expected, "{} native: {native}", source.name);
        }
    }
}

#[test]
fn values_that_do_not_fit_name_their_column() {
    let edges = relation(SOURCE, "edges").columns;
    let bytes = include_bytes!("golden/edges.copy");
    assert!(decode(&edges, true, bytes).is_ok());
    let expected = [
        ("nan", "NaN"),
        ("minus_infinity", "infinite"),
        ("infinity", "infinite"),
        ("tz_infinity", "infinite"),
        ("end_of_day", "24:00:00"),
        ("long_interval", "out of range"),
        ("two_dimensions", "one dimension"),
        ("lower_bound", "index 1"),
    ];
    for (column, problem) in expected {
        // The same bytes, with only one column in its portable form.
        let columns: Vec<Column> = edges
            .iter()
            .map(|edge| match edge.name == column || edge.name == "id" {
                true => edge.clone(),
                false => rapidbyte_pg::builtin::BYTEA.column(&edge.name),
            })
            .collect();
        let error = decode(&columns, false, bytes).expect_err(column);
        assert_eq!(error.code, "value_does_not_fit");
        assert_eq!(error.column.as_deref(), Some(column));
        assert!(
            error.message.contains(problem) && error.message.contains("row 1"),
            "{error}"
        );
    }
}

#[test]
fn rows_as_one_parameter_are_the_servers_own_array() {
    for (server, bytes) in [
        (SOURCE, &include_bytes!("golden/source-rows.copy")[..]),
        (TARGET, &include_bytes!("golden/target-rows.copy")[..]),
    ] {
        // One row of one field: header, field count, length; the trailer at the end.
        let expected = &bytes[19 + 2 + 4..bytes.len() - 2];
        // The rows, from the array itself: every element is a record with one OID a field.
        let table = relation(server, "rows");
        let rows = records(expected, table.columns.len());
        let source_columns = relation(server, "rows").columns;
        let batch = decode(&source_columns, true, &rows).expect("decode");
        let kept: Vec<usize> = (0..6).filter(|index| *index != 1).collect();
        let batch = batch.project(&kept).expect("project");
        let targets: Vec<_> = kept
            .iter()
            .map(|index| table.columns[*index].clone())
            .collect();
        let mut parameter =
            insert::Parameter::new(batch.schema_ref(), &targets, &table.row_type()).expect("new");
        let bound = parameter.bind(&batch).expect("bind");
        let mut out = Vec::new();
        assert_eq!(bound.encode(0..3, usize::MAX, &mut out), Ok(3));
        assert!(out == expected);
        assert_eq!(bound.encode(1..3, 1, &mut out), Ok(2));
    }
}

/// An array of records as a COPY stream.
fn records(array: &[u8], fields: usize) -> Vec<u8> {
    let word = |at: usize| i32::from_be_bytes(array[at..at + 4].try_into().expect("4 bytes"));
    let mut out = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let mut at = 20;
    while at < array.len() {
        assert_eq!(word(at + 4), fields as i32);
        at += 8;
        out.extend((fields as i16).to_be_bytes());
        for _ in 0..fields {
            let end = at + 8 + word(at + 4).max(0) as usize;
            out.extend(&array[at + 4..end]);
            at = end;
        }
    }
    out.extend([0xff, 0xff]);
    out
}

#[test]
fn names_are_quoted_like_the_server_does() {
    // The capturing server was older than these words.
    const NEWER: [&str; 13] = [
        "json",
        "json_array",
        "json_arrayagg",
        "json_exists",
        "json_object",
        "json_objectagg",
        "json_query",
        "json_scalar",
        "json_serialize",
        "json_table",
        "json_value",
        "merge_action",
        "system_user",
    ];
    let lines: Vec<_> = include_str!("golden/names.jsonl").lines().collect();
    let names = ident::nasty_names(700);
    assert_eq!(lines.len(), names.len());
    let mut bare = 0;
    for (line, name) in lines.iter().zip(names) {
        let [given, quoted, literal]: [String; 3] = serde_json::from_str(line).expect("JSON");
        assert_eq!(given, name);
        assert_eq!(ident::quote_literal(&name), literal);
        if !NEWER.contains(&name.as_str()) {
            assert_eq!(ident::quote_ident(&name), quoted);
        }
        bare += usize::from(quoted == name);
    }
    assert!((100..400).contains(&bare), "{bare} bare names");
}

#[test]
fn any_chunking_gives_the_same_batch() {
    let columns = wide(SOURCE);
    let whole = decode(&columns, true, NATIVE).expect("decode");
    for size in [1, 2, 3, 7, 64, 1000] {
        let mut decoder = Decoder::new(&columns, true, LIMIT);
        for chunk in NATIVE.chunks(size) {
            decoder.push(chunk).expect("push");
        }
        assert!(decoder.has_ended());
        assert_eq!(decoder.take_batch().expect("batch"), whole);
    }
    // As messages, of lengths that have nothing to do with rows, read in pieces.
    for (body, read) in [(90, 64), (7, 5), (1, 4096), (5000, 8192), (15_012, 100)] {
        let mut stream = Vec::new();
        for part in NATIVE.chunks(body) {
            stream.push(b'd');
            stream.extend((part.len() as u32 + 4).to_be_bytes());
            stream.extend(part);
        }
        stream.extend(b"c\0\0\0\x04");
        let mut decoder = Decoder::new(&columns, true, LIMIT);
        let mut buffer = Vec::new();
        for part in stream.chunks(read) {
            buffer.extend(part);
            let taken = decoder.push_messages(&buffer).expect("messages");
            buffer.drain(..taken);
        }
        assert_eq!(buffer, b"c\0\0\0\x04");
        decoder.finish().expect("the trailer was seen");
        assert_eq!(decoder.take_batch().expect("batch"), whole);
    }
}

#[test]
fn hostile_bytes_give_errors() {
    let columns = wide(SOURCE);
    for (native, bytes) in [(true, NATIVE), (false, PORTABLE)] {
        // A prime number of bytes, so that the ends fall on every byte of the fields of each width.
        for end in (0..bytes.len()).step_by(7) {
            let error = decode(&columns, native, &bytes[..end]).expect_err("truncated");
            assert_eq!(error.code, "truncated_copy");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(
            decode(&columns, native, &longer).map_err(|e| e.code),
            Err("malformed_copy")
        );
        let mut state = 1_u64;
        let mut failures = 0;
        for round in 0..1_000 {
            let mut broken = bytes.to_vec();
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (state >> 33) as usize % (broken.len() - 4);
            match round % 4 {
                0 => broken[at] ^= 1 << (state >> 20 & 7),
                1 => broken[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes()),
                2 => broken[at..at + 4].copy_from_slice(&(-7_i32).to_be_bytes()),
                _ => broken[at..at + 4].copy_from_slice(&0x00ff_ffff_i32.to_be_bytes()),
            }
            match decode(&columns, native, &broken) {
                Err(_) => failures += 1,
                Ok(batch) => {
                    // OIDs inside are checked when they are rewritten.
                    let targets = writable(&wide(TARGET), native);
                    let mut encoder = Encoder::new(batch.schema_ref(), &targets).expect("fits");
                    let mut out = Vec::new();
                    failures += usize::from(encoder.encode(&batch, &mut out).is_err());
                }
            }
        }
        assert!(failures > 250, "{failures}");
    }
}
