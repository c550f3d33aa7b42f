//! JSON documents: elements are read as lines of JSON Lines are.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use rapidbyte_formats::jsonl::UnknownKeys;
use rapidbyte_formats::{Format as OfCrate, FormatError, Limits};

use crate::support::{Format, schema};

fn json() -> Format {
    Format(OfCrate::Json)
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

#[test]
fn a_document_has_the_rows_of_its_lines() {
    let schema = schema(&[("id", "int64!"), ("d", "decimal(5, 2)"), ("j", "json")]);
    let lines = "{\"id\":1,\"d\":1.50,\"j\":{\"a\":[1,\"x y\"]}}\n{\"id\":2}\n{\"j\":\"\\u00e9\",\"id\":3}\n";
    let pretty = "[\n  {\n    \"id\": 1,\n    \"d\": 1.50,\n    \"j\": {\n      \"a\": [\n        1,\n        \"x y\"\n      ]\n    }\n  },\n  {\"id\": 2},\n  {\"j\": \"\\u00e9\", \"id\": 3}\n]\n";
    let expected = Format::jsonl().decode(&schema, lines.as_bytes()).unwrap();
    assert_eq!(json().decode(&schema, pretty.as_bytes()).unwrap(), expected);
    let one = json().decode(&schema, b"{\"id\":1}").unwrap();
    assert_eq!(rows(&one), 1);
    assert!(json().decode(&schema, b"[]").unwrap().is_empty());
    assert!(json().encode(&expected[0]).is_err());
}

#[test]
fn a_value_that_does_not_fit_has_its_own_line() {
    let schema = schema(&[("id", "int64!"), ("n", "int8")]);
    for (file, code, line) in [
        (
            "[\n{\"id\":1},\n{\n\"id\":2,\n\"n\":300}]",
            "value_does_not_fit",
            5,
        ),
        ("[\n{\"id\":1,\n\"id\":2}]", "jsonl_duplicate_key", 3),
        ("[\n{\"id\":1,\n\n\"x\":2}]", "jsonl_unknown_field", 4),
        ("[\n\n{\n\"n\":2}]", "null_in_required_column", 3),
        ("[\n5]", "jsonl_not_an_object", 2),
        ("[\n[{\"id\":1}]]", "jsonl_not_an_object", 2),
        ("[{\"id\":1,\n  \"n\":NaN}]", "json_broken_document", 2),
        ("[{\"id\":1},\n{\"id\":2},\n]", "json_broken_document", 3),
    ] {
        let error = json().decode(&schema, file.as_bytes()).unwrap_err();
        assert_eq!(
            (error.code, error.line),
            (code, Some(line)),
            "{file}: {error}"
        );
    }
    let error = json().decode(&schema, b"[ {\"id\": 0x1}]").unwrap_err();
    assert!(error.message.starts_with("character 11: "), "{error}");
    let one_line = b"[{\"id\": 1}, {\"id\": 2}, {\"id\": \"x\"}]";
    let error = json().decode(&schema, one_line).unwrap_err();
    assert!(error.message.starts_with("element 3: "), "{error}");
    let error = json().decode(&schema, b"{\"id\": \"x\"}").unwrap_err();
    assert!(error.message.starts_with("column "), "{error}");
    let error = json().decode(&schema, b"[\n \"\xff\"]").unwrap_err();
    assert_eq!((error.code, error.line), ("jsonl_bad_utf8", Some(2)));
}

#[test]
fn rejects_are_elements_and_a_broken_document_still_ends() {
    let schema = schema(&[("id", "int64!")]);
    let decoder = OfCrate::Json
        .decoder(schema, None, Limits::default())
        .unwrap();
    let mut decoder = decoder.keep_rejects();
    let mut push = |file: &[u8]| -> Result<(Vec<String>, usize), FormatError> {
        decoder.begin_file();
        decoder.push(file)?;
        decoder.end_of_file()?;
        let rejects = decoder.take_rejects().into_iter();
        let shown = rejects.map(|one| {
            let data = String::from_utf8_lossy(&one.data).into_owned();
            format!("{} {:?} {data}", one.error.code, one.error.line.unwrap())
        });
        let shown: Vec<String> = shown.collect();
        let batch = decoder.take_batch()?;
        Ok((shown, batch.map_or(0, |batch| batch.num_rows())))
    };
    let (rejects, rows) =
        push(b"[{\"id\":1},\n{\"id\":\n\"x\"}, 7, {\"id\":NaN}, {\"id\":2}]").unwrap();
    assert_eq!(
        rejects,
        [
            "value_does_not_fit 3 {\"id\":\n\"x\"}",
            "jsonl_not_an_object 3 7",
            "json_broken_document 3 {\"id\":NaN}"
        ]
    );
    assert_eq!(rows, 2);
    assert_eq!(
        push(b"[{\"id\":1}, {\"id\" 2}]").unwrap_err().code,
        "json_broken_document"
    );
}

#[test]
fn a_repaired_record_is_a_document_of_its_own() {
    let schema = schema(&[("id", "int64!")]);
    let decoder = OfCrate::Json
        .decoder(schema, None, Limits::default())
        .unwrap();
    let mut decoder = decoder.keep_rejects();
    decoder.begin_file();
    for record in [
        &b"{\"id\":\n1}"[..],
        b"[{\"id\":2},{\"id\":3}]",
        b"[{\"id\":4},{\"id\" 5}]",
        b"7",
        b"{\"id\":6}",
    ] {
        decoder.push_record(record).unwrap();
    }
    let codes: Vec<_> = decoder
        .take_rejects()
        .iter()
        .map(|one| one.error.code)
        .collect();
    assert_eq!(codes, ["json_broken_document", "json_not_rows"]);
    assert_eq!(decoder.take_batch().unwrap().unwrap().num_rows(), 4);
}

#[test]
fn the_sample_of_a_document_gives_the_types_of_its_lines() {
    let lines = "{\"a\":1,\"b\":[1.5]}\n{\"c\":{\"d\":\"x\"}}\n";
    let document = "[{\"a\":1,\n\"b\":[1.5]},\n{\"c\":{\"d\":\"x\"}}]";
    let expected = Format::jsonl().infer(lines.as_bytes(), 10).unwrap();
    let found = json().infer(document.as_bytes(), 10).unwrap();
    assert_eq!(
        (found.schema, found.notes),
        (expected.schema, expected.notes)
    );
    // What follows the sample is not read.
    assert_eq!(json().infer(b"[{\"a\":1},,,", 1).unwrap().rows, 1);
    assert_eq!(
        json().infer(b"[{\"a\":1},,,", 2).unwrap_err().code,
        "json_broken_document"
    );
}

#[test]
fn unknown_keys_of_several_lines_are_collected_on_one() {
    let schema = schema(&[("id", "int64"), ("_rest", "json")]);
    let decoder = OfCrate::Json
        .decoder(schema, None, Limits::default())
        .unwrap();
    let mut decoder = decoder.unknown_keys(UnknownKeys::Collect).unwrap();
    decoder.begin_file();
    decoder
        .push(b"[{\"id\":1,\"x\":{\n  \"y\": \"a  b\"\n}}]")
        .unwrap();
    decoder.end_of_file().unwrap();
    let batch = decoder.take_batch().unwrap().unwrap();
    assert_eq!(
        batch.column(1).as_string::<i32>().value(0),
        "{\"x\":{\"y\":\"a  b\"}}"
    );
}
