//! Types of single fields, and streams that cannot be described.

use rapidbyte_sdk::prelude::*;

use crate::common::*;
use crate::database;

const MIXED: [&str; 3] = [
    r#"{"_id": 1, "total": 5, "note": "x", "extra": true}"#,
    r#"{"_id": 2, "total": 1.5, "note": 7}"#,
    r#"{"_id": 3, "total": {"$numberDecimal": "2.50"}, "note": null}"#,
];

fn whole(name: &str) -> Selection {
    Selection {
        stream: name.into(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    }
}

/// The error that a plan shows for a stream which discovery gives without columns.
fn refusal(source: &mut source_mongodb::Mongo, name: &str) -> Error {
    let streams = source.discover(&[]).unwrap();
    let stream = streams.iter().find(|stream| stream.name == name).unwrap();
    let schema = rapidbyte_sdk::ipc::decode_schema(&stream.schema).unwrap();
    assert!(schema.fields().is_empty(), "{schema:?}");
    let error = source.snapshot(&[whole(name)]).unwrap_err();
    assert_eq!(error.stream.as_deref(), Some(name));
    error
}

#[test]
fn single_fields_have_declared_types_and_all_others_are_inferred() {
    let database = database!();
    insert(&database, "c", &MIXED);
    let keys = r#""streams": {"c": {"types": {"total": "json", "_id": "int64"}}}"#;
    let mut source = open(&database, keys);
    // A MongoDB destination gets columns, too.
    for forms in [&[][..], &["mongodb"]] {
        let request = request(&mut source, "c", forms);
        assert_eq!(
            columns(&request),
            [
                "_id int64",
                "total json",
                "note json",
                "extra bool",
                "_rest json"
            ]
        );
    }
    let streams = source.discover(&[]).unwrap();
    assert_eq!(streams[0].inferred, ["note", "extra"]);
    assert_eq!(streams[0].primary_key, ["_id"]);
    let told = streams[0].notes.join("; ");
    assert!(told.contains("total: json (declared)"), "{told}");
    assert!(!told.contains("total: json (the values"), "{told}");
    let request = request(&mut source, "c", &[]);
    let given = read(&mut source, &request).unwrap();
    let schema = given.batches[0].schema();
    assert!(!schema.field(0).is_nullable());
    assert_eq!(
        given.json()[1],
        r#"{"_id":2,"total":1.5,"note":7,"extra":null,"_rest":null}"#
    );
    // A value that the declared type does not hold names its column and the key.
    let mut source = open(
        &database,
        r#""streams": {"c": {"types": {"total": "int64"}}}"#,
    );
    let request = self::request(&mut source, "c", &[]);
    let error = refused(&mut source, &request);
    assert_eq!(error.code, "value_does_not_fit");
    assert_eq!(error.stream.as_deref(), Some("c"));
    assert_eq!(error.column.as_deref(), Some("total"));
    let hint = error.hint.unwrap();
    assert!(hint.contains("config.streams.c.types"), "{hint}");
}

#[test]
fn types_name_fields_that_a_document_has() {
    let database = database!();
    insert(&database, "c", &MIXED);
    let opened = |types: &str, more: &str| {
        let keys =
            format!(r#""sample_documents": 2, "streams": {{"c": {{"types": {types}{more}}}}}"#);
        open(&database, &keys)
    };
    // The sample has the first and the last document, and only the second one has the field.
    insert(&database, "c", &[r#"{"_id": 0, "a": {"b": 1}}"#]);
    let mut source = opened(r#"{"extra": "string"}"#, "");
    let request = request(&mut source, "c", &[]);
    assert!(columns(&request).contains(&"extra string".to_owned()));
    for (types, column, hint) in [
        (r#"{"totl": "int64"}"#, "totl", "total"),
        (r#"{"a.b": "int64"}"#, "a.b", "declare a as json"),
    ] {
        let error = refusal(&mut opened(types, ""), "c");
        assert_eq!(error.code, "unknown_column", "{types}");
        assert_eq!(error.column.as_deref(), Some(column));
        assert!(error.hint.as_ref().unwrap().contains(hint), "{error:?}");
    }
    // No value of BSON is a time of day.
    let error = refusal(&mut opened(r#"{"total": "time"}"#, ""), "c");
    assert_eq!(error.code, "type_refused");
    assert_eq!(error.column.as_deref(), Some("total"));
    // In an empty collection, nobody can know better.
    let mut command = rapidbyte_bson::Builder::new();
    command.string("create", "empty");
    client(&database).command(database.name(), command).unwrap();
    let keys = r#""streams": {"empty": {"types": {"n": "int64"}}}"#;
    let mut source = open(&database, keys);
    let request = self::request(&mut source, "empty", &[]);
    assert_eq!(columns(&request), ["n int64", "_rest json"]);
}

#[test]
fn types_that_have_no_meaning_are_refused_with_their_place() {
    let database = database!();
    for (stream, code, place) in [
        (r#"{"types": {"a": "int65"}}"#, "unknown_type", "types.a"),
        (r#"{"types": {}}"#, "no_columns", "types"),
        (
            r#"{"types": {"a": "int64"}, "schema": {"a": "int64"}}"#,
            "invalid_config",
            "types",
        ),
        (
            r#"{"types": {"a": "int64"}, "documents": "json"}"#,
            "invalid_config",
            "types",
        ),
        (r#"{"types": {"_rest": "json"}}"#, "invalid_config", "types"),
    ] {
        let error = try_open(&database, &format!(r#""streams": {{"c": {stream}}}"#));
        let error = error.err().unwrap();
        assert_eq!(error.code, code, "{stream}");
        let location = error.location.unwrap();
        assert_eq!(location, format!("config.streams.c.{place}"));
        assert_eq!(error.stream.as_deref(), Some("c"));
    }
    let keys = r#""documents": "bson", "streams": {"c": {"types": {"a": "int64"}}}"#;
    assert_eq!(
        try_open(&database, keys).err().unwrap().code,
        "invalid_config"
    );
}

#[test]
fn a_stream_that_cannot_be_described_says_why_before_anything_moves() {
    let database = database!();
    insert(&database, "c", &MIXED);
    for (keys, place) in [
        (r#""documents": "bson""#, "config.documents"),
        (
            r#""streams": {"c": {"documents": "bson"}}"#,
            "config.streams.c.documents",
        ),
    ] {
        let error = refusal(&mut open(&database, keys), "c");
        assert_eq!(error.code, "mongo_not_native");
        assert_eq!(error.location.as_deref(), Some(place));
    }
}

#[test]
fn a_database_without_collections_is_not_taken_for_an_empty_one() {
    let database = database!();
    let mut source = open(&database, "");
    let error = source.discover(&[]).unwrap_err();
    assert_eq!(error.code, "mongo_no_collections");
    assert!(error.message.contains(database.name()), "{error:?}");
    let items = source.check().unwrap();
    let code = items[1].problem.as_ref().map(|error| error.code.as_str());
    assert_eq!(code, Some("mongo_no_collections"));
    insert(&database, "c", &MIXED);
    assert_eq!(source.discover(&[]).unwrap().len(), 1);
    let error = open(&database, r#""collections": ["d*"]"#)
        .discover(&[])
        .unwrap_err();
    assert_eq!(error.code, "mongo_no_collections");
    assert!(error.message.contains("d*"), "{error:?}");
    assert_eq!(error.hint.as_deref(), Some("the database has c"));
    // The names of databases are case-sensitive.
    let wrong = format!(r#""database": "{}""#, database.name().to_uppercase());
    let error = open(&database, &wrong).discover(&[]).unwrap_err();
    let hint = error.hint.unwrap();
    assert!(hint.contains("the server has "), "{hint}");
    // Some servers make a database as soon as somebody asks for its collections.
    let wrong = database.name().to_uppercase();
    assert!(!hint.contains(&wrong), "{hint}");
}
