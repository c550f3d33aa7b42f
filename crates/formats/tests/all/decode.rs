//! The files that the decoders take, and the words with which they refuse others.

use std::sync::Arc;

use crate::support::{Format, schema};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::Schema;
use rapidbyte_formats::{FormatError, Limits, csv::Dialect};
use rapidbyte_wire::types::{mark_stored, parse_field};

fn csv() -> Format {
    Format::csv(Dialect::default())
}

fn fails(format: &Format, columns: &[(&str, &str)], file: &[u8]) -> FormatError {
    match format.decode(&schema(columns), file) {
        Err(error) => error,
        Ok(batches) => panic!(
            "{:?} was read as {batches:?}",
            String::from_utf8_lossy(file)
        ),
    }
}

fn ints(batch: &RecordBatch, column: usize) -> Vec<Option<i64>> {
    batch
        .column(column)
        .as_primitive::<Int64Type>()
        .iter()
        .collect()
}

fn strings(batch: &RecordBatch, column: usize) -> Vec<Option<&str>> {
    batch.column(column).as_string::<i32>().iter().collect()
}

#[test]
fn an_empty_field_is_null_and_a_quoted_one_is_an_empty_string() {
    let batches = csv()
        .decode(
            &schema(&[("s", "string"), ("t", "string")]),
            b"s,t\n,\"\"\n\"\",\n",
        )
        .unwrap();
    assert_eq!(strings(&batches[0], 0), [None, Some("")]);
    assert_eq!(strings(&batches[0], 1), [Some(""), None]);
}

#[test]
fn null_texts_are_null_only_without_quotes() {
    let format = Format::csv(Dialect {
        null_text: vec!["NULL".into(), "\\N".into()],
        delimiter: b';',
        quote: b'\'',
        header: false,
        ..Dialect::default()
    });
    let batches = format
        .decode(
            &schema(&[("s", "string"), ("t", "string")]),
            b"NULL;'NULL'\n\\N;\n",
        )
        .unwrap();
    assert_eq!(strings(&batches[0], 0), [None, None]);
    assert_eq!(strings(&batches[0], 1), [Some("NULL"), Some("")]);
}

#[test]
fn an_empty_line_is_a_row_of_one_column_and_nothing_among_more() {
    let one = csv()
        .decode(&schema(&[("a", "int64")]), b"a\n1\n\n\r\n2")
        .unwrap();
    assert_eq!(ints(&one[0], 0), [Some(1), None, None, Some(2)]);
    let two = csv()
        .decode(
            &schema(&[("a", "int64"), ("b", "int64")]),
            b"\na,b\n\n1,2\n\r\n\n3,\n\n",
        )
        .unwrap();
    assert_eq!(ints(&two[0], 0), [Some(1), Some(3)]);
}

#[test]
fn a_file_without_a_line_has_no_rows() {
    let columns = schema(&[("a", "int64"), ("b", "int64")]);
    for file in [&b""[..], b"\xef\xbb\xbf", b"\n\r\n", b"a,b\n"] {
        assert_eq!(csv().decode(&columns, file).unwrap().len(), 0, "{file:?}");
    }
    assert_eq!(Format::jsonl().decode(&columns, b"").unwrap().len(), 0);
}

#[test]
fn the_header_names_columns_in_any_order_and_files_may_differ() {
    let schema = schema(&[("a", "int64"), ("b", "int64"), ("c", "string")]);
    let wanted = ["c".to_owned(), "a".to_owned()];
    let mut decoder = csv().decoder(&schema, Some(&wanted), Limits::default());
    let first = decoder.file(&[b"a,b,c\n1,x,one\n"]).unwrap();
    let second = decoder.file(&[b"b,c,a\r\nnot read,two,2\r\n"]).unwrap();
    for (batch, text, number) in [(&first[0], "one", 1), (&second[0], "two", 2)] {
        assert_eq!(batch.num_columns(), 2);
        assert_eq!(strings(batch, 0), [Some(text)]);
        assert_eq!(ints(batch, 1), [Some(number)]);
    }
}

#[test]
fn no_column_at_all_may_be_wanted() {
    for (format, file) in [
        (csv(), &b"a\n1\n2\n"[..]),
        (Format::jsonl(), b"{\"a\":1}\n{}\n"),
    ] {
        let mut decoder = format.decoder(&schema(&[("a", "int64")]), Some(&[]), Limits::default());
        let batches = decoder.file(&[file]).unwrap();
        assert_eq!((batches[0].num_rows(), batches[0].num_columns()), (2, 0));
    }
}

#[test]
fn csv_errors_say_where_and_what() {
    let two = &[("id", "int64!"), ("price", "decimal(5, 2)")][..];
    for (file, code, column, line, part) in [
        (
            &b"id,price\n1,2\n\n3\n"[..],
            "csv_ragged_row",
            None,
            4,
            "line 4: expected 2 fields, got 1",
        ),
        (b"id,price\n1,2,3\n", "csv_ragged_row", None, 2, "got 3"),
        (
            b"id,price\nx,2\n",
            "value_does_not_fit",
            Some("id"),
            2,
            "line 2: column \"id\" (int64): \"x\" is not a whole number",
        ),
        (
            b"id,price\n1,2.345\n",
            "value_does_not_fit",
            Some("price"),
            2,
            "(decimal(5, 2)): \"2.345\" has more digits after the point",
        ),
        (
            b"id,price\n\n,2\n",
            "null_in_required_column",
            Some("id"),
            3,
            "NULL",
        ),
        (b"price\n", "csv_missing_column", Some("id"), 1, "id"),
        (b"id,price,x\n", "csv_unknown_column", Some("x"), 1, "x"),
        (
            b"id,price,id\n",
            "csv_duplicate_column",
            Some("id"),
            1,
            "twice",
        ),
        (b"id,price\r1,2\r", "csv_bare_cr", None, 1, "CR"),
        (
            b"id,price\n1,\"2",
            "csv_unterminated_quote",
            None,
            2,
            "never closed",
        ),
        (
            b"id,price\n1,\"2\"3\n",
            "csv_bad_quote",
            None,
            2,
            "closing quote",
        ),
        (b"id,\xff\n", "csv_bad_utf8", None, 1, "column 2"),
    ] {
        let error = fails(&csv(), two, file);
        assert_eq!(error.code, code, "{error}");
        assert_eq!(
            (error.column.as_deref(), error.line),
            (column, Some(line)),
            "{error}"
        );
        assert!(error.to_string().contains(part), "{error}");
    }
    let strings = &[("a", "string"), ("b", "string")][..];
    let error = fails(&csv(), strings, b"a,b\n\"1\n2\",\"x\n\xff\"\n");
    assert_eq!((error.code, error.line), ("csv_bad_utf8", Some(3)));
    for error in [error, fails(&csv(), two, b"id,\xff\n")] {
        let hint = error.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("iconv -f latin1 -t utf-8"), "{error:?}");
    }
    let long = format!("id,price\n{},1\n", "9x".repeat(100));
    let error = fails(&csv(), two, long.as_bytes());
    assert!(
        error.message.ends_with("9x\"… is not a whole number"),
        "{error}"
    );
    assert!(error.message.len() < 130, "{error}");
}

#[test]
fn jsonl_errors_say_where_and_what() {
    let columns = &[
        ("id", "int64!"),
        ("s", "struct<a: int64, b: list<string>>"),
        ("m", "map<string, date>"),
        ("t", "string"),
        ("f", "float64"),
    ][..];
    for (file, code, column, line, part) in [
        (
            &b"{\"id\":1}\n{\"id\":"[..],
            "jsonl_broken_line",
            None,
            2,
            "line 2: character",
        ),
        (
            "{\"t\":\"é\",x}".as_bytes(),
            "jsonl_broken_line",
            None,
            1,
            "character 10:",
        ),
        (b"\n[1]\n", "jsonl_not_an_object", None, 2, "[1]"),
        (
            b"{\"id\":1} {}",
            "jsonl_broken_line",
            None,
            1,
            "character 10: trailing characters",
        ),
        (
            b"{\"id\":1,\"x\":2}",
            "jsonl_unknown_field",
            Some("x"),
            1,
            "\"x\" is not in the schema",
        ),
        (
            b"{\"id\":1,\"id\":2}",
            "jsonl_duplicate_key",
            Some("id"),
            1,
            "twice",
        ),
        (
            b"{\"id\":null}",
            "null_in_required_column",
            Some("id"),
            1,
            "NULL",
        ),
        (b"{}", "null_in_required_column", Some("id"), 1, "NULL"),
        (
            b"{\"id\":1.0}",
            "value_does_not_fit",
            Some("id"),
            1,
            "not a whole number",
        ),
        (
            b"{\"id\":\"1\"}",
            "value_does_not_fit",
            Some("id"),
            1,
            "(int64): \"\\\"1\\\"\" is not a JSON number",
        ),
        (
            b"{\"id\":1,\"t\":5}",
            "value_does_not_fit",
            Some("t"),
            1,
            "(string): \"5\" is not a JSON string",
        ),
        (
            b"{\"id\":1,\"f\":\"NaN\"}",
            "value_does_not_fit",
            Some("f"),
            1,
            "not a JSON number",
        ),
        (
            b"{\"id\":1,\"t\":\"\\ud800\"}",
            "json_lone_surrogate",
            Some("t"),
            1,
            "half of a surrogate pair",
        ),
        (
            b"{\"id\":1,\"s\":{\"c\":1}}",
            "jsonl_unknown_field",
            Some("s"),
            1,
            "\"c\"",
        ),
        (
            b"{\"id\":1,\"s\":{\"a\":1,\"a\":1}}",
            "jsonl_duplicate_key",
            Some("s"),
            1,
            "\"a\" twice",
        ),
        (
            b"{\"id\":1,\"s\":{\"b\":[\"x\",1]}}",
            "value_does_not_fit",
            Some("s"),
            1,
            "column \"s\".b[] (string): \"1\" is not a JSON string",
        ),
        (
            b"{\"id\":1,\"m\":{\"k\":\"2026-02-30\"}}",
            "value_does_not_fit",
            Some("m"),
            1,
            "column \"m\"{\"k\"} (date)",
        ),
        (
            b"{\"id\":1,\"m\":{\"k\":null,\"k\":null}}",
            "jsonl_duplicate_key",
            Some("m"),
            1,
            "\"k\" twice",
        ),
        (b"{\"id\":1}\n\xff", "jsonl_bad_utf8", None, 2, "byte 1"),
    ] {
        let error = fails(&Format::jsonl(), columns, file);
        assert_eq!(error.code, code, "{error}");
        assert_eq!(
            (error.column.as_deref(), error.line),
            (column, Some(line)),
            "{error}"
        );
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_record_larger_than_its_limit_is_refused_and_nothing_follows() {
    let limits = Limits {
        max_record_bytes: 20,
        ..Limits::default()
    };
    for (format, file) in [
        (csv(), &b"a\n1\n\"2222222222222222222222222\"\n"[..]),
        (
            Format::jsonl(),
            b"\n{\"a\":1}\n{\"a\":11111111111111111111111111111}\n",
        ),
    ] {
        let pieces: Vec<&[u8]> = file.chunks(1).collect();
        for pieces in [&[file][..], &pieces] {
            let mut decoder = format.decoder(&schema(&[("a", "string")]), None, limits);
            let error = decoder.file(pieces).unwrap_err();
            if let rapidbyte_formats::Format::Csv(_) = format.0 {
                assert_eq!((error.code, error.line), ("record_too_large", Some(3)));
            }
            assert_eq!(decoder.push(b"x").unwrap_err().code, "decoder_failed");
            assert_eq!(decoder.end_of_file().unwrap_err().code, "decoder_failed");
            assert_eq!(decoder.take().unwrap_err().code, "decoder_failed");
        }
    }
    let mut decoder = Format::jsonl().decoder(&schema(&[("a", "int64")]), None, limits);
    let error = decoder
        .file(&[b"{\"a\":1}\n{\"a\":    1            }"])
        .unwrap_err();
    assert_eq!((error.code, error.line), ("record_too_large", Some(2)));
}

#[test]
fn a_record_that_is_short_as_text_and_large_in_its_columns_is_refused() {
    let limits = Limits {
        batch_bytes: 4096,
        max_record_bytes: 20_000,
        ..Limits::default()
    };
    let list = |items: usize| format!("{{\"l\":[{}]}}\n", vec!["0"; items].join(","));
    let columns = schema(&[("l", "list<int64>")]);
    let format = Format::jsonl();
    let decode = |items: usize| {
        let mut decoder = format.decoder(&columns, None, limits);
        let file = list(3) + &list(items) + &list(3);
        decoder.file(&[file.as_bytes()])
    };
    let rows = decode(2900).unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let error = decode(3100).unwrap_err();
    assert_eq!((error.code, error.line), ("record_too_large", Some(2)));
    assert!(error.message.contains("bytes in its columns"), "{error}");
    let hint = error.hint.unwrap_or_default();
    assert!(hint.contains("resources.max_record_bytes"), "{hint}");
}

/// A column with the type of the target, because the inferred type did not fit.
#[test]
fn a_string_in_a_stored_column_of_decimals_is_written_as_a_number() {
    let stored = mark_stored(parse_field("x", "decimal(10, 2)", true).unwrap());
    let columns = Arc::new(Schema::new(vec![stored]));
    let format = Format::jsonl();
    let read = |value: &str| {
        let file = format!("{{\"x\":{value}}}\n");
        format.decode_as_inferred(&columns, file.as_bytes())
    };
    for value in ["\"7\"", "\"-7.5\"", "\"0.00\"", "7.5", "1e2", "null"] {
        assert!(read(value).is_ok(), "{value}");
    }
    for value in [
        "\"007\"", "\"+7\"", "\" 7\"", "\"1e2\"", "\"7.\"", "\".5\"", "\"-0\"", "\"\"",
    ] {
        let error = read(value).expect_err(value);
        assert_eq!(
            (error.code, error.line),
            ("value_does_not_fit", Some(1)),
            "{error}"
        );
    }
}

#[test]
fn a_zero_with_a_sign_is_refused_where_a_stored_column_has_no_such_value() {
    for (ty, is_kept) in [
        ("int32", false),
        ("uint8", false),
        ("decimal(10, 2)", false),
        ("decimal(60, 2)", false),
        ("float32", true),
        ("float64", true),
        ("string", true),
    ] {
        let stored = mark_stored(parse_field("x", ty, true).unwrap());
        let columns = Arc::new(Schema::new(vec![stored]));
        for (format, file, zero) in [
            (Format::jsonl(), "{\"x\":-0}\n", "{\"x\":0}\n"),
            (csv(), "x\n-0\n", "x\n0\n"),
        ] {
            let read = format.decode_as_inferred(&columns, file.as_bytes());
            assert_eq!(read.is_ok(), is_kept, "{ty} {file}");
            let error = read.err();
            let code = error.map_or("value_does_not_fit", |error| error.code);
            assert_eq!(code, "value_does_not_fit");
            assert!(format.decode_as_inferred(&columns, zero.as_bytes()).is_ok());
        }
    }
}

#[test]
fn a_long_name_from_the_data_is_cut_in_its_error() {
    let long = "n".repeat(5000);
    let columns = [("a", "struct<b: int64>")];
    for (format, file) in [
        (csv(), format!("a,{long}\n")),
        (csv(), format!("{long},{long}\n")),
        (Format::jsonl(), format!("{{\"{long}\":1}}\n")),
        (Format::jsonl(), format!("{{\"a\":{{\"{long}\":1}}}}\n")),
    ] {
        let error = fails(&format, &columns, file.as_bytes());
        let has = |chars: usize| error.message.contains(&"n".repeat(chars));
        assert!(has(60) && !has(101), "{}", error.message);
    }
}

#[test]
fn batches_end_at_their_bytes_and_at_their_rows() {
    let schema = schema(&[("a", "int64"), ("s", "string")]);
    let csv_file = "1,abcdefgh\n".repeat(1000);
    let jsonl_file = "{\"a\":1,\"s\":\"abcdefgh\"}\n".repeat(1000);
    let plain = Dialect {
        header: false,
        ..Dialect::default()
    };
    for (format, file) in [
        (Format::csv(plain), csv_file),
        (Format::jsonl(), jsonl_file),
    ] {
        let limits = Limits {
            batch_bytes: 2000,
            ..Limits::default()
        };
        let batches = format
            .decoder(&schema, None, limits)
            .file(&[file.as_bytes()])
            .unwrap();
        assert_eq!(
            batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            1000
        );
        // 8 bytes, 8 bytes and 4 of an offset.
        assert!(
            batches[0].num_rows().abs_diff(100) < 5,
            "{}",
            batches[0].num_rows()
        );
        let limits = Limits {
            batch_rows: 7,
            ..Limits::default()
        };
        let batches = format
            .decoder(&schema, None, limits)
            .file(&[file.as_bytes()])
            .unwrap();
        assert_eq!((batches.len(), batches[0].num_rows()), (143, 7));
    }
}

#[test]
fn rows_that_take_no_bytes_still_end_a_batch() {
    let schema = schema(&[("a", "null")]);
    let mut decoder = Format::jsonl().decoder(
        &schema,
        None,
        Limits {
            batch_rows: 10,
            ..Limits::default()
        },
    );
    let batches = decoder.file(&["{}\n".repeat(25).as_bytes()]).unwrap();
    assert_eq!(batches.len(), 3);
}

#[test]
fn json_columns_keep_the_text_of_numbers() {
    let schema = schema(&[("j", "json"), ("l", "list<json>")]);
    let file = b"{\"j\": {\"b\" : 1.50, \"a\":[12345678901234567890123] }, \"l\":[1e5, \"x y\"]}\n{\"j\":null}";
    let batches = Format::jsonl().decode(&schema, file).unwrap();
    assert_eq!(
        strings(&batches[0], 0),
        [
            Some("{\"b\" : 1.50, \"a\":[12345678901234567890123] }"),
            None
        ]
    );
    let list = batches[0].column(1).as_list::<i32>().value(0);
    assert_eq!(list.as_string::<i32>().value(1), "\"x y\"");
}

#[test]
fn decimals_and_floats_of_json_are_read_from_their_digits() {
    let schema = schema(&[
        ("d", "decimal(40, 2)"),
        ("e", "decimal(10, 3)"),
        ("f", "float64"),
    ]);
    let file = b"{\"d\":12345678901234567890123456789012345678.25,\"e\":\"-1.5\",\"f\":1}\n{\"e\":15e-1,\"f\":-0.0}";
    let batches = Format::jsonl().decode(&schema, file).unwrap();
    let back = Format::jsonl().encode(&batches[0]).unwrap();
    assert_eq!(
        String::from_utf8(back).unwrap(),
        "{\"d\":12345678901234567890123456789012345678.25,\"e\":-1.500,\"f\":1.0}\n\
         {\"d\":null,\"e\":1.500,\"f\":-0.0}\n"
    );
}

#[test]
fn wrong_set_ups_are_refused_before_the_first_byte() {
    let code = |format: &Format, columns: &[(&str, &str)], wanted: Option<&[String]>| {
        let decoder = format.try_decoder(&schema(columns), wanted, Limits::default());
        decoder.err().map(|error| error.code)
    };
    let bad = Format::csv(Dialect {
        delimiter: b'"',
        ..Dialect::default()
    });
    assert_eq!(code(&bad, &[("a", "int64")], None), Some("invalid_dialect"));
    assert_eq!(code(&csv(), &[], None), Some("no_columns"));
    assert_eq!(code(&Format::jsonl(), &[], None), None);
    let wanted = ["b".to_owned()];
    assert_eq!(
        code(&csv(), &[("a", "int64")], Some(&wanted)),
        Some("unknown_column")
    );
    let twice = ["a".to_owned(), "a".to_owned()];
    assert_eq!(
        code(&csv(), &[("a", "int64")], Some(&twice)),
        Some("unknown_column")
    );
    let field = arrow_schema::Field::new("a", arrow_schema::DataType::Float16, true);
    let schema = std::sync::Arc::new(arrow_schema::Schema::new(vec![field]));
    let refused = csv()
        .try_decoder(&schema, None, Limits::default())
        .err()
        .unwrap();
    assert_eq!(refused.code, "unsupported_type");
}
