//! Streams that cannot be described.

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
