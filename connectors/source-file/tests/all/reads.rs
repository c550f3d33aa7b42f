//! Files in a temporary folder, read through the SDK's native files.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rapidbyte_formats::Picked;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{ipc, source, types};
use serde_json::{Value, json};
use source_file::{FileReader, Files};

pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// Opens a source whose path is in a folder.
pub(crate) fn open(folder: &Path, mut config: Value) -> Result<Files> {
    let path = folder.join(config["path"].as_str().unwrap());
    config["path"] = json!(path.to_str().unwrap());
    source::open::<Files>(&config.to_string())
}

/// The error's kind as a string, because the contract's kinds have no equality.
fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).replace("ErrorKind::", "")
}

pub(crate) fn request(source: &mut Files, stream: &str, columns: Option<&[&str]>) -> ReadRequest {
    let mut found = source.discover(&[]).unwrap_or_default().into_iter();
    let described = found.find(|found| found.name == stream);
    let described = described.unwrap_or_else(|| Stream::new(stream, &Schema::empty()).unwrap());
    ReadRequest {
        columns: columns.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
        max_record_bytes: 1 << 20,
        ..ReadRequest::of(&described)
    }
}

fn read_of(source: &mut Files, stream: &str, columns: Option<&[&str]>) -> Result<FileReader> {
    let request = request(source, stream, columns);
    source.read(&request)
}

/// Longer than any read here takes: only full batches come.
pub(crate) const WAIT: Duration = Duration::from_secs(3600);

pub(crate) fn rows(reader: &mut FileReader) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    loop {
        match reader.next(WAIT)? {
            Event::Batch(batch) => batches.push(batch),
            Event::End => return Ok(batches),
            other => panic!("{other:?}"),
        }
    }
}

/// The values of a stream's rows, as text.
pub(crate) fn read(source: &mut Files, stream: &str, columns: Option<&[&str]>) -> Result<String> {
    let mut reader = read_of(source, stream, columns)?;
    let batches = rows(&mut reader)?;
    let mut lines = Vec::new();
    for batch in &batches {
        let encoder = rapidbyte_formats::jsonl::Encoder::new(batch.schema()).unwrap();
        encoder
            .encode(Picked::all(batch), 0, &mut lines, usize::MAX)
            .unwrap();
    }
    Ok(String::from_utf8(lines).unwrap())
}

pub(crate) fn shown(stream: &Stream) -> String {
    let schema = ipc::decode_schema(&stream.schema).unwrap();
    let fields = schema.fields().iter().map(|field| {
        let mark = if field.is_nullable() { "" } else { " not null" };
        format!("{} {}{mark}", field.name(), types::type_name(field))
    });
    format!("{}: {}", stream.name, fields.collect::<Vec<_>>().join(", "))
}

#[test]
fn a_pattern_is_one_stream_of_all_its_files() {
    let folder = folder(&[
        ("orders-1.csv", "id,total\n1,1.5\n2,\n"),
        ("orders-2.csv", "total,id\n2.25,3\n"),
        ("other.csv", "x\n1\n"),
    ]);
    let mut source = open(folder.path(), json!({"path": "orders-*.csv"})).unwrap();
    let streams = source.discover(&[]).unwrap();
    assert_eq!(shown(&streams[0]), "orders: id int64, total float64");
    assert_eq!(streams[0].estimated_bytes, Some(34));
    assert_eq!(streams[0].source_types, ["csv text", "csv text"]);
    assert!(streams[0].notes[1].starts_with("total: float64 (2 of 2 values of 3"));
    assert_eq!(
        read(&mut source, "orders", None).unwrap(),
        "{\"id\":1,\"total\":1.5}\n{\"id\":2,\"total\":null}\n{\"id\":3,\"total\":2.25}\n"
    );
    assert_eq!(
        read(&mut source, "orders", Some(&["total"])).unwrap(),
        "{\"total\":1.5}\n{\"total\":null}\n{\"total\":2.25}\n"
    );
    let items = source.check().unwrap();
    assert_eq!(items[0].detail, "2 columns, 2 files, 34 bytes");
    assert!(items[0].problem.is_none());
}

#[test]
fn strings_from_json_lines_are_marked_as_json_strings() {
    let folder = folder(&[
        ("a.jsonl", "{\"i\":1,\"s\":\"5\",\"l\":[\"5\"]}\n"),
        ("a.csv", "i,s,l\n1,a,b\n"),
    ]);
    let declared = json!({"i": "int64", "s": "string", "l": "json"});
    for (file, schema, expected) in [
        ("a.jsonl", None, &["s", "l"][..]),
        ("a.jsonl", Some(&declared), &["s"]),
        ("a.csv", None, &[]),
        (
            "a.csv",
            Some(&json!({"i": "int64", "s": "string", "l": "string"})),
            &[],
        ),
    ] {
        let mut config = json!({"path": file});
        if let Some(schema) = schema {
            config["schema"] = schema.clone();
        }
        let mut source = open(folder.path(), config).unwrap();
        let planned = ipc::decode_schema(&source.discover(&[]).unwrap()[0].schema).unwrap();
        let mut reader = read_of(&mut source, "a", None).unwrap();
        let batches = rows(&mut reader).unwrap();
        for schema in [&planned, &reader.schema(), batches[0].schema_ref()] {
            let marked = schema
                .fields()
                .iter()
                .filter(|field| types::is_json_strings(field));
            let names: Vec<_> = marked.map(|field| field.name().as_str()).collect();
            assert_eq!(names, expected, "{file}");
        }
    }
}

#[test]
fn each_name_in_place_of_the_placeholder_is_a_stream() {
    let folder = folder(&[
        ("in/a/1.jsonl", "{\"x\":1}\n"),
        ("in/b/1.jsonl", "{\"y\":\"2026-11-21\"}"),
        ("in/b/2.jsonl", "{}\n"),
    ]);
    let config = json!({"path": "in/{stream}/*.jsonl", "schemas": {"b": {"y": "date not null"}}});
    let mut source = open(folder.path(), config).unwrap();
    let streams = source.discover(&[]).unwrap();
    let shown: Vec<_> = streams.iter().map(shown).collect();
    assert_eq!(shown, ["a: x int64", "b: y date not null"]);
    assert_eq!(read(&mut source, "a", None).unwrap(), "{\"x\":1}\n");
    let error = read(&mut source, "b", None).unwrap_err();
    assert_eq!(error.code, "null_in_required_column");
    assert_eq!(error.stream.as_deref(), Some("b"));
    assert_eq!(error.column.as_deref(), Some("y"));
    assert!(error.location.unwrap().ends_with("in/b/2.jsonl:1"));
}

#[test]
fn options_of_csv_are_followed() {
    let folder = folder(&[("data.txt", "1;'a;''b'\nNULL;\\N\n")]);
    let config = json!({
        "path": "data.txt", "format": "csv", "delimiter": ";", "quote": "'", "header": false,
        "null_text": ["NULL", "\\N"], "stream": "s",
        "schema": {"n": "int32", "t": "string"},
    });
    let mut source = open(folder.path(), config).unwrap();
    assert_eq!(
        read(&mut source, "s", None).unwrap(),
        "{\"n\":1,\"t\":\"a;'b\"}\n{\"n\":null,\"t\":null}\n"
    );
}

#[test]
fn declared_columns_keep_their_order() {
    let folder = folder(&[("t.tsv", "a\tb\tc\n")]);
    let config =
        json!({"path": "t.tsv", "schema": {"c": "int8", "a": "decimal(9, 2)", "b": "list<json>"}});
    let streams = open(folder.path(), config).unwrap().discover(&[]).unwrap();
    assert_eq!(
        shown(&streams[0]),
        "t: c int8, a decimal(9, 2), b list<json>"
    );
}

#[test]
fn wrong_configurations_name_their_key() {
    let folder = folder(&[("a.csv", "x\n"), ("b.txt", "")]);
    for (config, code, location) in [
        (
            json!({"path": "a.csv", "nope": 1}),
            "invalid_config",
            "config",
        ),
        (json!({"path": "b.txt"}), "unknown_format", "config.format"),
        (
            json!({"path": "b.txt", "format": "xml"}),
            "invalid_config",
            "config.format",
        ),
        (
            json!({"path": "a.csv", "delimiter": "ab"}),
            "invalid_dialect",
            "config.delimiter",
        ),
        (
            json!({"path": "a.jsonl", "header": true}),
            "unused_option",
            "config.header",
        ),
        (
            json!({"path": "{stream}.csv", "stream": "a"}),
            "unused_option",
            "config.stream",
        ),
        (
            json!({"path": "{stream}{stream}.csv"}),
            "invalid_path",
            "config.path",
        ),
        (
            json!({"path": "a.csv", "schema": {"x": "varchar"}}),
            "unknown_type",
            "config.schema.x",
        ),
        (
            json!({"path": "a.csv", "schema": {}}),
            "no_columns",
            "config.schema",
        ),
        (
            json!({"path": "a.csv", "schemas": {"a": {"x": "int65"}}}),
            "unknown_type",
            "config.schemas.a.x",
        ),
        (
            json!({"path": "a.csv", "schema": {"x": "int8 not nul"}}),
            "unknown_type",
            "config.schema.x",
        ),
        (
            json!({"path": "a.csv", "null_text": ["", 5]}),
            "invalid_config",
            "config.null_text",
        ),
        (
            json!({"path": "a.csv", "sample_rows": 0}),
            "invalid_config",
            "config.sample_rows",
        ),
    ] {
        let text = config.to_string();
        let error = open(folder.path(), config).err().expect(&text);
        assert_eq!(error.code, code, "{text}: {error:?}");
        let place = error.location.expect(&text);
        assert!(place.starts_with(location), "{text}: {place}");
    }
    let twice = "{\"path\": \"a.csv\", \"schema\": {\"x\": \"int8\", \"x\": \"int8\"}}";
    assert_eq!(
        source::open::<Files>(twice).err().unwrap().code,
        "unknown_type"
    );
}

/// Why a stream that is discovered without columns cannot be read.
pub(crate) fn unreadable(source: &mut Files, stream: &str) -> Error {
    let found = source.discover(&[]).unwrap();
    let found = found.iter().find(|found| found.name == stream).unwrap();
    assert_eq!(shown(found), format!("{stream}: "));
    let selection = Selection {
        stream: stream.into(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    };
    let error = source.snapshot(&[selection]).unwrap_err();
    assert_eq!(error.stream.as_deref(), Some(stream));
    error
}

#[test]
fn a_stream_without_columns_or_file_does_not_hide_the_others() {
    let folder = folder(&[
        ("a.csv", "x\n1\n"),
        ("empty.csv", ""),
        ("broken.csv", "x,y\n1\n"),
        ("old_2026.csv", "x\n1\n"),
    ]);
    let config = json!({"path": "{stream}.csv", "schemas": {"old_2025": {"x": "int8"}}});
    let mut source = open(folder.path(), config).unwrap();
    for (stream, code, place) in [
        ("empty", "csv_missing_header", "empty.csv"),
        ("broken", "csv_ragged_row", "broken.csv:2"),
        ("old_2025", "unknown_stream", "config.schemas.old_2025"),
    ] {
        let error = unreadable(&mut source, stream);
        assert_eq!(error.code, code);
        let location = error.location.unwrap();
        assert!(location.ends_with(place), "{location}");
    }
    let streams = source.discover(&[]).unwrap();
    let known: Vec<_> = streams.iter().map(shown).collect();
    assert_eq!(
        known,
        [
            "a: x int64",
            "broken: ",
            "empty: ",
            "old_2025: ",
            "old_2026: x int64"
        ]
    );
    assert_eq!(read(&mut source, "a", None).unwrap(), "{\"x\":1}\n");
    let failed = source
        .check()
        .unwrap()
        .into_iter()
        .filter(|item| item.problem.is_some());
    assert_eq!(failed.count(), 3);
}

#[test]
fn an_unreadable_stream_fails_before_the_first_row() {
    let folder = folder(&[("a.csv", "x\n1\n"), ("e.jsonl", "\n")]);
    let mut source = open(folder.path(), json!({"path": "none-*.csv"})).unwrap();
    let error = source.discover(&[]).unwrap_err();
    assert_eq!(error.code, "no_file_matches");
    assert!(error.message.contains("none-*.csv"), "{}", error.message);

    let mut source = open(folder.path(), json!({"path": "e.jsonl"})).unwrap();
    assert_eq!(unreadable(&mut source, "e").code, "no_columns");
    let problem = source.check().unwrap().remove(0).problem.unwrap();
    assert_eq!(problem.code, "no_columns");

    // A mistyped name: the files of the stream would be read with other columns.
    let folder = self::folder(&[("orders.csv", "x\n1\n"), ("a.csv", "x\n1\n")]);
    let config = json!({"path": "{stream}.csv", "schemas": {"ordrs": {"x": "int8"}}});
    let error = open(folder.path(), config)
        .unwrap()
        .discover(&[])
        .unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.location.as_deref()),
        ("unknown_stream", Some("config.schemas.ordrs"))
    );
    assert_eq!(error.hint.as_deref(), Some("use one of a, orders"));

    let mut source = open(folder.path(), json!({"path": "a.csv"})).unwrap();
    assert_eq!(
        read_of(&mut source, "b", None).err().unwrap().code,
        "unknown_stream"
    );
    let error = read_of(&mut source, "a", Some(&["y"])).err().unwrap();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("unknown_column", Some("y"))
    );
    assert_eq!(kind(&error), "Config");
    let mut later = request(&mut source, "a", None);
    later.cursor = Some("{}".into());
    assert_eq!(source.read(&later).err().unwrap().code, "no_cursor");
}

#[test]
fn bad_data_names_file_line_stream_and_column() {
    let folder = folder(&[
        ("d/1.csv", "x,y\n1,2\n"),
        ("d/2.csv", "x,y\n1,2\n3,b\n"),
        ("d/3.csv", "x\n"),
    ]);
    let config = json!({"path": "d/*.csv", "stream": "s", "schema": {"x": "int64", "y": "int64"}});
    let error = read(&mut open(folder.path(), config).unwrap(), "s", None).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("value_does_not_fit", "Data".to_owned())
    );
    assert_eq!(
        (error.stream.as_deref(), error.column.as_deref()),
        (Some("s"), Some("y"))
    );
    assert!(error.location.unwrap().ends_with("d/2.csv:3"));
    // The message does not repeat the place.
    assert_eq!(
        error.message,
        "column \"y\" (int64): \"b\" is not a whole number"
    );
    assert!(error.hint.is_none(), "{:?}", error.hint);
    let config = json!({"path": "d/3.csv", "schema": {"x": "int64", "y": "int64 not null"}});
    let error = read(&mut open(folder.path(), config).unwrap(), "3", None).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("csv_missing_column", "Schema".to_owned())
    );
    let config = json!({"path": "d/*.csv", "headers": "same"});
    let error = unreadable(&mut open(folder.path(), config).unwrap(), "d");
    assert!(error.location.unwrap().ends_with("d/3.csv:1"));
}

#[test]
fn a_header_without_the_declared_columns_is_refused_before_the_first_row() {
    let folder = folder(&[
        ("a.csv", "id,name\n1,x\n"),
        ("b.csv", "id,name"),
        ("values.csv", "id,name\nwrong,x\n"),
        ("empty.csv", ""),
    ]);
    let refused = |path: &str, schema: Value| {
        let config = json!({"path": path, "stream": "s", "schema": schema});
        let mut source = open(folder.path(), config).unwrap();
        let selection = Selection {
            stream: "s".into(),
            columns: None,
            filter: None,
            query: None,
            increment: None,
            cursor: None,
        };
        let checked = source.check().unwrap().remove(0).problem;
        let error = source.snapshot(&[selection]).err();
        assert_eq!(
            checked.map(|e| e.message),
            error.as_ref().map(|e| e.message.clone())
        );
        // A stream that is not selected stops nothing.
        source.snapshot(&[]).unwrap();
        error.map(|e| {
            (
                e.code,
                e.column.unwrap(),
                e.hint.unwrap(),
                e.location.unwrap(),
            )
        })
    };
    let misspelt = json!({"id": "int64", "nmae": "string"});
    for path in ["a.csv", "b.csv"] {
        let (code, column, hint, place) = refused(path, misspelt.clone()).unwrap();
        assert_eq!(
            (code.as_str(), column.as_str()),
            ("csv_unknown_column", "name")
        );
        assert!(
            hint.contains("that the schema calls \"nmae\", correct"),
            "{hint}"
        );
        assert!(place.ends_with(&format!("{path}:1")), "{place}");
    }
    let required = json!({"id": "int64", "name": "string", "total": "int64 not null"});
    let (code, column, hint, _) = refused("a.csv", required).unwrap();
    assert_eq!(
        (code.as_str(), column.as_str()),
        ("csv_missing_column", "total")
    );
    assert!(
        hint.contains("the header has \"id\", \"name\": correct"),
        "{hint}"
    );
    // A nullable column may be missing; values and empty files are left to the read.
    let nullable = json!({"name": "string", "total": "int64", "id": "int64 not null"});
    assert_eq!(refused("a.csv", nullable.clone()), None);
    assert_eq!(refused("values.csv", nullable), None);
    assert_eq!(refused("empty.csv", misspelt), None);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    for change in ["cut", "append", "overwrite"] {
        let line = "{\"a\":1234567890123456}\n";
        let folder = folder(&[("a.jsonl", &line.repeat(60_000))]);
        let path = folder.path().join("a.jsonl");
        // Long ago: the system's clock of files has ticks of milliseconds.
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let mut source = open(folder.path(), json!({"path": "a.jsonl"})).unwrap();
        let mut request = request(&mut source, "a", None);
        request.batch_bytes = 1000;
        let mut reader = source.read(&request).unwrap();
        assert!(matches!(reader.next(WAIT), Ok(Event::Batch(_))));
        let mut writer = std::fs::File::options();
        let mut file = writer
            .write(true)
            .append(change == "append")
            .open(&path)
            .unwrap();
        match change {
            "cut" => file.set_len(23 * 30_000).unwrap(),
            _ => file.write_all(line.as_bytes()).unwrap(),
        }
        let error = rows(&mut reader).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.stream.as_deref()),
            ("file_changed", Some("a"))
        );
        let how = match change {
            "overwrite" => "was written to",
            _ => "had 1380000 bytes",
        };
        assert!(error.message.contains(how), "{}", error.message);
    }
}

#[test]
fn a_record_above_its_limit_is_refused() {
    let folder = folder(&[("a.csv", &format!("x\n{}\n", "y".repeat(5000)))]);
    let config = json!({"path": "a.csv", "schema": {"x": "string"}});
    let mut source = open(folder.path(), config).unwrap();
    let mut request = request(&mut source, "a", None);
    request.max_record_bytes = 1000;
    let error = rows(&mut source.read(&request).unwrap()).unwrap_err();
    assert_eq!(error.code, "record_too_large");
}

#[test]
fn a_record_that_the_sample_cuts_is_read_whole() {
    let folder = folder(&[("a.csv", "x,y\n1,2\n7,8\n")]);
    let config = json!({"path": "a.csv", "sample_bytes": 9});
    let mut source = open(folder.path(), config).unwrap();
    let streams = source.discover(&[]).unwrap();
    assert_eq!(shown(&streams[0]), "a: x int64, y int64");
    assert!(
        streams[0].notes[0].contains("1 sampled row"),
        "{:?}",
        streams[0].notes
    );
    assert_eq!(
        read(&mut source, "a", None).unwrap(),
        "{\"x\":1,\"y\":2}\n{\"x\":7,\"y\":8}\n"
    );
}

#[test]
fn a_first_record_larger_than_the_sample_is_sampled_whole() {
    let long = "y".repeat(2_000_000);
    let folder = folder(&[
        (
            "a.jsonl",
            &format!("{{\"x\":\"{long}\",\"n\":1}}\n{{\"z\":1}}\n"),
        ),
        ("a.csv", &format!("x,n\n{long},1\n{long},z\n")),
        ("h.csv", &format!("{long},n\n1,2\n")),
    ]);
    for (path, shown_as) in [
        ("a.jsonl", "a: x string, n int64"),
        ("a.csv", "a: x string, n int64"),
    ] {
        let config = json!({"path": path, "sample_bytes": 10, "sample_rows": 1});
        let streams = open(folder.path(), config).unwrap().discover(&[]).unwrap();
        assert_eq!(shown(&streams[0]), shown_as);
    }
    let config = json!({"path": "h.csv", "sample_bytes": "10 B"});
    let streams = open(folder.path(), config).unwrap().discover(&[]).unwrap();
    assert!(shown(&streams[0]).ends_with("y int64, n int64"));
}

#[test]
fn files_without_rows_are_streams_without_rows() {
    let folder = folder(&[
        ("a.csv", ""),
        ("a.jsonl", ""),
        ("b-1.csv", ""),
        ("b-2.csv", "x\n1\n"),
    ]);
    for path in ["a.csv", "a.jsonl"] {
        let config = json!({"path": path, "schema": {"x": "int64"}});
        let mut source = open(folder.path(), config).unwrap();
        assert_eq!(read(&mut source, "a", None).unwrap(), "");
        let error = unreadable(
            &mut open(folder.path(), json!({"path": path})).unwrap(),
            "a",
        );
        assert!(error.hint.unwrap().contains("schema"), "{}", error.code);
    }
    let mut source = open(folder.path(), json!({"path": "b-*.csv"})).unwrap();
    assert_eq!(read(&mut source, "b", None).unwrap(), "{\"x\":1}\n");
}

#[test]
fn a_value_that_an_inferred_type_would_change_names_its_place() {
    let folder = folder(&[("a.csv", "x,y\n1.5,1\n1.25,2\n1.100,3\n")]);
    let config = json!({"path": "a.csv", "sample_rows": 2});
    let mut source = open(folder.path(), config).unwrap();
    let error = read(&mut source, "a", None).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref(), kind(&error)),
        ("value_does_not_fit", Some("x"), "Data".to_owned())
    );
    assert!(error.message.contains("\"1.100\""), "{}", error.message);
    assert!(error.location.unwrap().ends_with("a.csv:4"));
    assert!(error.hint.unwrap().contains("schema:"));
    let config = json!({"path": "a.csv", "schema": {"x": "float64", "y": "int8"}});
    let text = read(&mut open(folder.path(), config).unwrap(), "a", None).unwrap();
    assert!(text.ends_with("{\"x\":1.1,\"y\":3}\n"), "{text}");
}

#[test]
fn errors_about_binary_files_say_what_the_files_look_like() {
    let cases: [(&[u8], &str, &str, &str); 5] = [
        (
            b"\x1f\x8b\x08\0\0",
            "file_compressed",
            "looks like gzip",
            "compression: gzip",
        ),
        (
            b"\x28\xb5\x2f\xfd\0",
            "file_compressed",
            "looks like zstd",
            "compression: zstd",
        ),
        (
            b"PK\x03\x04\0\0",
            "file_compressed",
            "looks like zip",
            "decompress it",
        ),
        (b"\xff\xfea\0,\0", "file_not_utf8", "is UTF-16", "iconv"),
        (b"\xfe\xff\0a\0,", "file_not_utf8", "is UTF-16", "iconv"),
    ];
    for (bytes, code, message, hint) in cases {
        for (name, declared) in [("a.csv", false), ("a.jsonl", false), ("a.csv", true)] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(name), bytes).unwrap();
            let mut config = json!({"path": name});
            if declared {
                config["schema"] = json!({"a": "string"});
            }
            let mut source = open(folder.path(), config).unwrap();
            let error = match declared {
                false => unreadable(&mut source, "a"),
                true => read(&mut source, "a", None).unwrap_err(),
            };
            assert_eq!(error.code, code, "{name}: {}", error.message);
            assert!(error.message.contains(message), "{}", error.message);
            assert!(error.hint.unwrap().contains(hint));
            assert!(error.location.unwrap().ends_with(name));
        }
    }
}

#[test]
fn half_a_character_in_json_is_named() {
    let folder = folder(&[
        ("a.jsonl", "{\"a\":\"x\\ud800y\"}\n"),
        ("k.jsonl", "{\"\\ud800\":1}\n"),
    ]);
    let mut source = open(folder.path(), json!({"path": "a.jsonl"})).unwrap();
    let error = read(&mut source, "a", None).unwrap_err();
    assert_eq!(error.code, "json_lone_surrogate");
    assert!(
        error
            .message
            .ends_with("has half of a surrogate pair, which is not a character")
    );
    assert!(error.hint.unwrap().contains("declare the column as json"));
    let mut source = open(folder.path(), json!({"path": "k.jsonl"})).unwrap();
    let error = unreadable(&mut source, "k");
    assert_eq!(error.code, "json_lone_surrogate", "{}", error.message);
}

#[test]
fn signs_do_not_stand_for_the_dot_of_a_hidden_name() {
    let folder = folder(&[("a.csv", "id\n1\n"), (".b.csv", "id\n2\n")]);
    let config = json!({"path": "*.csv", "stream": "s"});
    let mut source = open(folder.path(), config).unwrap();
    assert_eq!(read(&mut source, "s", None).unwrap(), "{\"id\":1}\n");
    let mut source = open(folder.path(), json!({"path": ".*.csv", "stream": "s"})).unwrap();
    assert_eq!(read(&mut source, "s", None).unwrap(), "{\"id\":2}\n");
}

#[test]
fn a_file_with_old_line_ends_is_refused() {
    let folder = folder(&[("a.csv", "x,y\r1,2\r3,4\r")]);
    for config in [
        json!({"path": "a.csv"}),
        json!({"path": "a.csv", "schema": {"x": "int64", "y": "int64"}}),
    ] {
        let error = read(&mut open(folder.path(), config).unwrap(), "a", None).unwrap_err();
        assert_eq!(error.code, "csv_bare_cr");
        assert!(error.location.unwrap().ends_with("a.csv:1"));
        assert!(error.hint.unwrap().contains("line ends"));
    }
}

#[test]
fn two_hundred_megabytes_take_the_memory_of_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let line = "1234567,customer name,12.50,true,2026-11-21T10:11:12.123456Z,some more text here\n";
    let piece = line.repeat((1 << 20) / line.len());
    let mut file = std::fs::File::create(folder.path().join("big.csv")).unwrap();
    file.write_all(b"id,name,total,paid,at,text\n").unwrap();
    let mut expected = 0;
    for _ in 0..200 {
        file.write_all(piece.as_bytes()).unwrap();
        expected += piece.len() / line.len();
    }
    let mut source = open(folder.path(), json!({"path": "big.csv"})).unwrap();
    let mut reader = read_of(&mut source, "big", None).unwrap();
    let start = Instant::now();
    let (mut rows, mut held) = (0, 0);
    while let Event::Batch(batch) = reader.next(WAIT).unwrap() {
        rows += batch.num_rows();
        let batch_bytes: usize = batch
            .columns()
            .iter()
            .map(|c| c.get_buffer_memory_size())
            .sum();
        held = held.max(reader.held_bytes() + batch_bytes);
    }
    assert_eq!(rows, expected);
    // Capacity doubles, so a batch of 1 MiB may hold up to 2, beside half a MiB of the file.
    assert!(held < 4 << 20, "{held} bytes");
    println!(
        "200 MB in {:.2?}, at most {held} bytes held",
        start.elapsed()
    );
}

#[test]
fn values_of_folders_are_columns() {
    let folder = folder(&[
        ("t/day=2026-11-21/who=a%2Fb/1.csv", "id\n1\n2\n"),
        (
            "t/day=2026-11-22/who=__HIVE_DEFAULT_PARTITION__/1.csv",
            "id\n3\n",
        ),
        ("t/day=2026-11-22/who=x/1.csv", "id\n"),
        ("t/day=2026-11-22/who=y/1.csv", "id\n4\n"),
        // No NULL: as pyarrow, DuckDB and polars write and read it.
        ("t/day=2026-11-23/who=/1.csv", "id\n5\n"),
    ]);
    let config =
        |partitions: Value| json!({"path": "{stream}/day=*/who=*/*.csv", "partitions": partitions});
    let both = json!({"day": "date not null", "who": "string"});
    let mut source = open(folder.path(), config(both)).unwrap();
    let streams = source.discover(&[]).unwrap();
    assert_eq!(
        shown(&streams[0]),
        "t: id int64, day date not null, who string"
    );
    assert_eq!(
        streams[0].source_types,
        ["csv text", "folder name", "folder name"]
    );
    assert_eq!(
        read(&mut source, "t", None).unwrap(),
        "{\"id\":1,\"day\":\"2026-11-21\",\"who\":\"a/b\"}\n\
         {\"id\":2,\"day\":\"2026-11-21\",\"who\":\"a/b\"}\n\
         {\"id\":3,\"day\":\"2026-11-22\",\"who\":null}\n\
         {\"id\":4,\"day\":\"2026-11-22\",\"who\":\"y\"}\n\
         {\"id\":5,\"day\":\"2026-11-23\",\"who\":\"\"}\n"
    );
    assert_eq!(
        read(&mut source, "t", Some(&["who"])).unwrap(),
        "{\"who\":\"a/b\"}\n{\"who\":\"a/b\"}\n{\"who\":null}\n{\"who\":\"y\"}\n\
         {\"who\":\"\"}\n"
    );
    for (partitions, code, column) in [
        (json!({"hour": "int64"}), "partition_folder", "hour"),
        (json!({"day": "int64"}), "value_does_not_fit", "day"),
        (
            json!({"who": "string not null"}),
            "null_in_required_column",
            "who",
        ),
        (
            json!({"id": "int64", "day": "date"}),
            "partition_folder",
            "id",
        ),
    ] {
        let mut source = open(folder.path(), config(partitions)).unwrap();
        let error = read(&mut source, "t", None).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.column.as_deref()),
            (code, Some(column))
        );
        assert!(error.location.unwrap().contains("/t/day="));
    }
    std::fs::create_dir_all(folder.path().join("u/id=1")).unwrap();
    std::fs::write(folder.path().join("u/id=1/1.csv"), "id\n1\n").unwrap();
    let config = json!({"path": "{stream}/id=*/*.csv", "partitions": {"id": "int64"}});
    let mut source = open(folder.path(), config).unwrap();
    assert_eq!(unreadable(&mut source, "u").code, "duplicate_column");
}

#[test]
fn dates_and_timestamps_of_a_declared_form_are_read_strictly() {
    let folder = folder(&[
        (
            "a.csv",
            "id;day;seen;sent\n1;21.11.2026;21.11.2026 10:11;2026-11-21 10:11:12+0200\n;;;\n",
        ),
        ("b.csv", "id;day;seen;sent\n1;2026-11-21;;\n"),
        ("a.jsonl", "{\"day\":\"21.11.2026\"}\n"),
    ]);
    let config = |path: &str| {
        json!({
            "path": path, "delimiter": ";",
            "schema": {"id": "int64", "day": "date", "seen": "timestamp", "sent": "timestamptz"},
            "date_format": "%d.%m.%Y", "timestamp_format": "%d.%m.%Y %H:%M",
            "column_formats": {"sent": "%F %T%z"},
        })
    };
    let mut source = open(folder.path(), config("a.csv")).unwrap();
    let notes = source.discover(&[]).unwrap().swap_remove(0).notes;
    assert_eq!(notes[2], "sent: read as %F %T%z");
    assert_eq!(
        read(&mut source, "a", None).unwrap(),
        "{\"id\":1,\"day\":\"2026-11-21\",\"seen\":\"2026-11-21T10:11:00\",\
         \"sent\":\"2026-11-21T08:11:12Z\"}\n\
         {\"id\":null,\"day\":null,\"seen\":null,\"sent\":null}\n"
    );
    assert_eq!(
        read(&mut source, "a", Some(&["id"])).unwrap(),
        "{\"id\":1}\n{\"id\":null}\n"
    );
    let mut source = open(folder.path(), config("b.csv")).unwrap();
    let error = read(&mut source, "b", None).unwrap_err();
    let text = "column \"day\" (date): \"2026-11-21\" does not have the form \"%d.%m.%Y\"";
    assert_eq!(error.message, text);
    assert!(error.location.unwrap().ends_with("b.csv:2"));
    let jsonl = json!({"path": "a.jsonl", "schema": {"day": "date"}, "date_format": "%d.%m.%Y"});
    let mut source = open(folder.path(), jsonl).unwrap();
    assert_eq!(
        read(&mut source, "a", None).unwrap(),
        "{\"day\":\"2026-11-21\"}\n"
    );

    let schema = json!({"day": "date", "seen": "timestamp"});
    for (key, value, code) in [
        ("date_format", json!("%d.%m.%y"), "invalid_time_pattern"),
        (
            "column_formats",
            json!({"day": "%d"}),
            "invalid_time_pattern",
        ),
        ("column_formats", json!({"nope": "%F"}), "unused_option"),
    ] {
        let config = json!({"path": "a.csv", "schema": schema, key: value});
        let error = open(folder.path(), config).err().unwrap();
        assert_eq!(error.code, code, "{key}");
        assert!(
            error
                .location
                .unwrap()
                .starts_with(&format!("config.{key}"))
        );
    }
    let config = json!({
        "path": "day=*/a.csv", "schema": {"id": "int64"}, "partitions": {"day": "date"},
        "date_format": "%d.%m.%Y",
    });
    let error = open(folder.path(), config).err().unwrap();
    assert_eq!(error.code, "unused_option");
    let text = "column \"day\" comes from the names of directories";
    assert!(error.message.starts_with(text), "{}", error.message);
    let config = json!({"path": "a.csv", "timestamp_format": "%F %T"});
    assert_eq!(
        open(folder.path(), config).err().unwrap().code,
        "unused_option"
    );
    let config = json!({"path": "a.csv", "schema": schema, "timestamp_format": "%F"});
    let mut source = open(folder.path(), config).unwrap();
    let error = read(&mut source, "a", None).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error).as_str()),
        ("invalid_time_pattern", "Config")
    );
}

#[test]
fn decimal_commas_are_refused_with_what_to_do() {
    let folder = folder(&[("a.csv", "id;price\n1;1.5\n2;1.234,50\n")]);
    for type_name in ["float64", "decimal(10, 2)", "int64"] {
        let config = json!({
            "path": "a.csv", "delimiter": ";", "schema": {"id": "int64", "price": type_name},
        });
        let mut source = open(folder.path(), config).unwrap();
        let error = read(&mut source, "a", None).unwrap_err();
        if type_name == "int64" {
            assert_eq!(error.code, "value_does_not_fit");
            continue;
        }
        assert_eq!(error.code, "decimal_comma");
        assert!(
            error.message.ends_with("\"1.234,50\" has a comma"),
            "{}",
            error.message
        );
        assert!(error.hint.unwrap().contains("declare the column as string"));
        assert!(error.location.unwrap().ends_with("a.csv:3"));
    }
}

/// The rows of the one stream.
fn text(folder: &Path, config: Value) -> Result<String> {
    read(&mut open(folder, config)?, "s", None)
}

#[test]
fn files_with_other_headers_are_one_stream_unless_they_must_be_the_same() {
    let files = folder(&[
        ("1.csv", "id,name\n1,a\n2,b\n"),
        ("2.csv", "price,id\n1.50,3\n"),
        ("3.csv", "id\n4\n"),
    ]);
    let mut config = json!({"path": "*.csv", "stream": "s"});
    let united = text(files.path(), config.clone()).unwrap();
    // The later files are beyond the sample.
    for sample_rows in [1, 100] {
        config["sample_rows"] = json!(sample_rows);
        config["headers"] = json!("union");
        let rows = text(files.path(), config.clone()).unwrap();
        assert_eq!(
            rows,
            "{\"id\":1,\"name\":\"a\",\"price\":null}\n{\"id\":2,\"name\":\"b\",\"price\":null}\n\
             {\"id\":3,\"name\":null,\"price\":1.50}\n{\"id\":4,\"name\":null,\"price\":null}\n"
        );
        assert_eq!(rows, united);
        config["headers"] = json!("same");
        let error = text(files.path(), config.clone()).unwrap_err();
        assert_eq!(error.code, "csv_unknown_column");
        assert!(error.hint.unwrap().contains("headers: union"));
    }
    let config = json!({"path": "*.csv", "stream": "s", "header": false, "headers": "union"});
    let error = text(files.path(), config).unwrap_err();
    assert_eq!(error.code, "unused_option");
}

#[test]
fn a_declared_column_that_a_file_lacks_is_null_there_if_it_may() {
    let files = folder(&[("1.csv", "id,name\n1,a\n"), ("2.csv", "id\n2\n")]);
    let config = |name: &str| {
        let schema = json!({"id": "int64 not null", "name": name});
        json!({"path": "*.csv", "stream": "s", "schema": schema})
    };
    let rows = text(files.path(), config("string")).unwrap();
    assert_eq!(
        rows,
        "{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":null}\n"
    );
    let error = text(files.path(), config("string not null")).unwrap_err();
    assert_eq!(error.code, "csv_missing_column");
    assert!(error.location.unwrap().ends_with("2.csv:1"));
    // Nobody declared that a column may be missing.
    let config = json!({"path": "*.csv", "stream": "s", "sample_rows": 1, "headers": "same"});
    let error = text(files.path(), config).unwrap_err();
    assert_eq!(error.code, "csv_missing_column");
}

#[test]
fn texts_for_true_and_false_can_be_said() {
    let files = folder(&[("1.csv", "a,b,n,t\nY,ja,1,Y\nN,nein,2,x\n,true,3,\n")]);
    let mut config = json!({
        "path": "1.csv", "stream": "s",
        "true_values": ["Y", "ja"], "false_values": ["N", "nein"],
    });
    let expected = "{\"a\":true,\"b\":true,\"n\":1,\"t\":\"Y\"}\n\
                    {\"a\":false,\"b\":false,\"n\":2,\"t\":\"x\"}\n\
                    {\"a\":null,\"b\":true,\"n\":3,\"t\":null}\n";
    assert_eq!(text(files.path(), config.clone()).unwrap(), expected);
    config["schema"] = json!({"a": "bool", "b": "bool", "n": "int64", "t": "string"});
    assert_eq!(text(files.path(), config.clone()).unwrap(), expected);
    config["false_values"] = json!(["Y"]);
    let error = text(files.path(), config).unwrap_err();
    assert_eq!(error.code, "invalid_dialect");
}

#[test]
fn keys_after_the_sample_are_collected_left_out_or_refused() {
    let folder = folder(&[(
        "a.jsonl",
        "{\"i\":1}\n{\"i\":2,\"new\":{\"a\": 1.50},\"x\":null}\n{\"_rest\":7,\"i\":3}\n{\"i\":4}\n",
    )]);
    let with = |key: Option<&str>| {
        let mut config = json!({"path": "a.jsonl", "sample_rows": 1});
        if let Some(key) = key {
            config["unknown_keys"] = json!(key);
        }
        config
    };
    let mut source = open(folder.path(), with(Some("collect"))).unwrap();
    let streams = source.discover(&[]).unwrap();
    assert_eq!(shown(&streams[0]), "a: i int64, _rest json");
    assert_eq!(
        read(&mut source, "a", None).unwrap(),
        "{\"i\":1,\"_rest\":null}\n{\"i\":2,\"_rest\":{\"new\":{\"a\": 1.50},\"x\":null}}\n\
         {\"i\":3,\"_rest\":{\"_rest\":7}}\n{\"i\":4,\"_rest\":null}\n"
    );
    assert_eq!(
        read(&mut source, "a", Some(&["i"])).unwrap(),
        "{\"i\":1}\n{\"i\":2}\n{\"i\":3}\n{\"i\":4}\n"
    );
    let mut source = open(folder.path(), with(Some("ignore"))).unwrap();
    assert_eq!(
        read(&mut source, "a", None).unwrap(),
        "{\"i\":1}\n{\"i\":2}\n{\"i\":3}\n{\"i\":4}\n"
    );
    for key in [None, Some("refuse")] {
        let mut source = open(folder.path(), with(key)).unwrap();
        let error = read(&mut source, "a", None).unwrap_err();
        assert_eq!(error.code, "jsonl_unknown_field");
        assert!(error.hint.unwrap().contains("unknown_keys: collect"));
    }
    for (config, code, at) in [
        (
            json!({"path": "a.csv", "unknown_keys": "collect"}),
            "unused_option",
            "config.unknown_keys",
        ),
        (
            json!({"path": "a.parquet", "unknown_keys": "refuse"}),
            "unused_option",
            "config.unknown_keys",
        ),
        (
            json!({"path": "a.jsonl", "unknown_keys": "collect", "schema": {"_rest": "json"}}),
            "invalid_config",
            "config.schema",
        ),
    ] {
        let error = open(folder.path(), config).map(drop).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.location.as_deref()),
            (code, Some(at))
        );
    }
}
