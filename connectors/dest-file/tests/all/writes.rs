//! Files in a temporary folder, written through the SDK's native files.

use std::path::Path;
use std::sync::Arc;

use crate::common::{begin, request, target};
use dest_file::Files;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::destination::{self, Session};
use rapidbyte_sdk::prelude::arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray,
};
use rapidbyte_sdk::prelude::{DataType, Error, Field, Fit, Result, Schema, WriteMode};
use rapidbyte_sdk::types;
use serde_json::{Value, json};

fn open(folder: &Path, mut config: Value) -> Result<Session<Files>> {
    let path = folder.join(config["path"].as_str().unwrap());
    config["path"] = json!(path.to_str().unwrap());
    destination::open::<Files>(&config.to_string())
}

fn batch(ids: &[i64]) -> RecordBatch {
    let texts = ids.iter().map(|id| (*id > 1).then(|| format!("t,{id}")));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from_iter(texts)),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// Writes batches to a stream and commits them.
fn write(
    files: &mut Session<Files>,
    stream: &str,
    mode: WriteMode,
    batches: &[RecordBatch],
) -> Result<u64> {
    let mut load = begin(files, &target(stream, &batches[0].schema(), mode))?;
    for batch in batches {
        load.write(batch)?;
    }
    let part = load.flush()?;
    let receipt = load.commit(Commit::whole(stream, vec![part]))?;
    Ok(receipt.rows)
}

/// The error's kind as text: the contract's kinds cannot be compared.
fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).replace("ErrorKind::", "")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn text(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn nothing_is_visible_before_the_commit_and_everything_after_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.csv"), "old").unwrap();
    let mut files = open(folder.path(), json!({"path": "{stream}.csv"})).unwrap();
    let target = target("a", &batch(&[]).schema(), WriteMode::Replace);
    let mut load = begin(&mut files, &target).unwrap();
    load.write(&batch(&[1, 2])).unwrap();
    let first = load.flush().unwrap();
    load.write(&batch(&[3])).unwrap();
    let second = load.flush().unwrap();
    assert_eq!((first.rows, second.rows), (2, 1));
    assert_eq!(text(folder.path(), "a.csv"), "old");
    let receipt = load
        .commit(Commit::whole("a", vec![first, second]))
        .unwrap();
    assert_eq!(
        text(folder.path(), "a.csv"),
        "id,t\n1,\n2,\"t,2\"\n3,\"t,3\"\n"
    );
    assert_eq!((receipt.rows, receipt.bytes), (3, 24));
    assert!(receipt.location.ends_with("/a.csv"));
    assert_eq!(names(folder.path()), ["a.csv"]);
    let error = load.write(&batch(&[4])).unwrap_err();
    assert!(
        error.message.contains("already committed"),
        "{}",
        error.message
    );
    assert_eq!(text(folder.path(), "a.csv").len(), 24);
}

#[test]
fn large_batches_pass_through_a_small_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "a.jsonl"})).unwrap();
    let ids: Vec<i64> = (0..100_000).collect();
    assert_eq!(
        write(
            &mut files,
            "s",
            WriteMode::Replace,
            &[batch(&ids), batch(&[7])]
        )
        .unwrap(),
        100_001
    );
    let text = text(folder.path(), "a.jsonl");
    assert_eq!(text.lines().count(), 100_001);
    assert!(text.len() > 2 << 20);
    assert_eq!(text.lines().last(), Some("{\"id\":7,\"t\":\"t,7\"}"));
}

#[test]
fn giving_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "{stream}.csv"})).unwrap();
    for how in ["abort", "drop"] {
        let target = target("a", &batch(&[]).schema(), WriteMode::Replace);
        let mut load = begin(&mut files, &target).unwrap();
        load.write(&batch(&[1])).unwrap();
        load.flush().unwrap();
        assert_eq!(names(folder.path()).len(), 1, "a temporary file");
        match how {
            "abort" => load.abort().unwrap(),
            _ => {
                drop(load);
                drop(files);
                files = open(folder.path(), json!({"path": "{stream}.csv"})).unwrap();
            }
        }
        assert_eq!(names(folder.path()), [""; 0], "{how}");
    }
    // A commit without a writer moves a cursor, and a file has none.
    let target = target("a", &batch(&[]).schema(), WriteMode::Replace);
    let mut load = files.begin(&[request(&target)]).unwrap();
    let error = load.commit(Commit::whole("a", vec![])).unwrap_err();
    assert_eq!(error.code, "cursor_needs_folder", "{error:?}");
}

#[test]
fn a_value_that_json_does_not_have_stops_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "a.jsonl"})).unwrap();
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::NAN]));
    let batch = RecordBatch::try_from_iter([("f", floats)]).unwrap();
    let batches = [batch.slice(0, 1), batch];
    let error = write(&mut files, "s", WriteMode::Replace, &batches).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("json_not_finite", "Data".to_owned())
    );
    // The second of the second batch.
    assert!(error.message.starts_with("row 3: column \"f\""), "{error}");
    assert_eq!(
        (error.stream.as_deref(), error.column.as_deref()),
        (Some("s"), Some("f"))
    );
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_commit_of_other_rows_than_were_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "a.csv"})).unwrap();
    for flush in [true, false] {
        let target = target("s", &batch(&[]).schema(), WriteMode::Replace);
        let mut load = begin(&mut files, &target).unwrap();
        load.write(&batch(&[1])).unwrap();
        let mut part = load.flush().unwrap();
        if flush {
            part.rows = 2;
        } else {
            load.write(&batch(&[2])).unwrap();
        }
        assert_eq!(
            kind(&load.commit(Commit::whole("s", vec![part])).unwrap_err()),
            "Internal"
        );
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

#[test]
fn append_makes_a_file_and_never_changes_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(
        folder.path(),
        json!({"path": "{stream}.tsv", "null_text": "\\N"}),
    )
    .unwrap();
    write(&mut files, "a", WriteMode::Append, &[batch(&[1])]).unwrap();
    assert_eq!(text(folder.path(), "a.tsv"), "id\tt\n1\t\\N\n");
    let refused = |result: Result<u64>, code: &str| {
        let error: Error = result.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.hint.as_deref()),
            (code, Some("write_mode: replace"))
        );
    };
    refused(
        write(&mut files, "a", WriteMode::Append, &[batch(&[2])]),
        "file_exists",
    );
    let again = files.plan(&target("a", &batch(&[]).schema(), WriteMode::Append));
    refused(again.map(|_| 0), "file_exists");
    let upsert = files.plan(&target("b", &batch(&[]).schema(), WriteMode::Upsert));
    refused(upsert.map(|_| 0), "write_mode_not_supported");
    assert_eq!(text(folder.path(), "a.tsv"), "id\tt\n1\t\\N\n");
}

#[test]
fn a_stream_without_rows_is_a_file_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(
        folder.path(),
        json!({"path": "{stream}.csv", "delimiter": ";"}),
    )
    .unwrap();
    let target = target("a", &batch(&[]).schema(), WriteMode::Replace);
    let mut load = begin(&mut files, &target).unwrap();
    assert_eq!(load.commit(Commit::whole("a", vec![])).unwrap().rows, 0);
    assert_eq!(text(folder.path(), "a.csv"), "id;t\n");
}

#[test]
fn two_streams_never_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "a.csv"})).unwrap();
    write(&mut files, "x", WriteMode::Replace, &[batch(&[1])]).unwrap();
    let error = write(&mut files, "y", WriteMode::Replace, &[batch(&[2])]).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.location.as_deref()),
        ("shared_target", Some("config.path"))
    );
    let mut files = open(folder.path(), json!({"path": "{stream}.csv"})).unwrap();
    for stream in ["../up", "", "..", "a*", "n.{stream}", "n.{part}"] {
        let error = files
            .plan(&target(stream, &batch(&[]).schema(), WriteMode::Replace))
            .unwrap_err();
        assert_eq!(error.code, "invalid_file_name");
    }
}

#[test]
fn the_plan_tells_the_form_of_each_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut fields: Vec<Field> = [
        ("n", "decimal(9, 2)"),
        ("f", "float64"),
        ("b", "binary"),
        ("j", "json"),
        ("l", "list<date>"),
        ("q", "timestamptz"),
    ]
    .iter()
    .map(|(name, text)| types::parse_field(name, text, true).unwrap())
    .collect();
    fields.push(Field::new("h", DataType::Float16, true));
    let opaque = [("ARROW:extension:name".to_owned(), "arrow.opaque".to_owned())];
    fields.push(Field::new("o", DataType::Binary, true).with_metadata(opaque));
    let target = target("s", &Schema::new(fields), WriteMode::Replace);
    let plan_of = |path: &str| {
        open(folder.path(), json!({"path": path}))
            .unwrap()
            .plan(&target)
            .unwrap()
    };
    let shown = |path: &str| {
        let columns = plan_of(path).columns;
        let columns = columns.iter().map(|c| {
            format!(
                "{} {}{}",
                c.column,
                c.target_type,
                match c.fit {
                    Fit::Exact => "",
                    Fit::Checked => " checked",
                    _ => " refused",
                }
            )
        });
        columns.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        shown("a.jsonl"),
        "n number, f number checked, b string, j any value checked, l array, q string, h number refused, o string refused"
    );
    assert_eq!(
        shown("a.csv"),
        "n text, f text, b text, j json text, l json text, q text, h text refused, o text refused"
    );
    let plan = plan_of("a.csv");
    assert!(plan.location.ends_with("/a.csv"));
    assert_eq!(plan.notes.len(), 3);
    assert_eq!(
        plan.columns[7].note.as_deref(),
        Some("values of the extension type arrow.opaque have no text form")
    );
    assert_eq!(names(folder.path()), [""; 0], "a plan changes nothing");
}

#[test]
fn wrong_configurations_name_their_key() {
    let folder = tempfile::tempdir().unwrap();
    for (config, code, location) in [
        (
            json!({"path": "a.csv", "nope": 1}),
            "invalid_config",
            "config",
        ),
        (json!({"path": "a.txt"}), "unknown_format", "config.format"),
        (json!({"path": "a.json"}), "unknown_format", "config.format"),
        (
            json!({"path": "a.csv", "quote": ","}),
            "invalid_dialect",
            "config.format",
        ),
        (
            json!({"path": "a.jsonl", "null_text": "x"}),
            "unused_option",
            "config.null_text",
        ),
        (
            json!({"path": "a.csv", "null_text": 5}),
            "invalid_config",
            "config.null_text",
        ),
        (json!({"path": "a*.csv"}), "invalid_path", "config.path"),
        (json!({"path": "out/"}), "invalid_path", "config.path"),
        (
            json!({"path": "{stream}/{strm}.csv"}),
            "unknown_placeholder",
            "config.path",
        ),
    ] {
        let shown = config.to_string();
        let error = open(folder.path(), config).err().expect(&shown);
        assert_eq!(error.code, code, "{shown}");
        assert!(
            error
                .location
                .is_some_and(|place| place.starts_with(location)),
            "{shown}"
        );
    }
    let empty = Schema::empty();
    let mut files = open(folder.path(), json!({"path": "a.csv"})).unwrap();
    let error = files
        .plan(&target("s", &empty, WriteMode::Replace))
        .unwrap_err();
    assert_eq!(error.code, "no_columns");
}

#[test]
fn check_says_whether_the_folder_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), json!({"path": "{stream}.csv"})).unwrap();
    assert!(files.check().unwrap()[0].problem.is_none());
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut files = open(folder.path(), json!({"path": "file/{stream}.csv"})).unwrap();
    assert!(files.check().unwrap()[0].problem.is_some());
    assert_eq!(names(folder.path()), ["file"]);
}
