//! Full reads: columns, whole documents, conditions, rejects.

use rapidbyte_bson::Builder;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::is_json_strings;

use crate::common::*;
use crate::database;

const PEOPLE: [&str; 3] = [
    r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "name": "Ada", "age": 36, "tags": ["x", 1]}"#,
    r#"{"_id": {"$oid": "0123456789abcdef01234568"}, "name": "Bob", "age": 5000000000, "at": {"$date": "2026-01-01T00:00:00.5Z"}}"#,
    r#"{"_id": {"$oid": "0123456789abcdef01234569"}, "name": null, "score": {"$numberDecimal": "1.50"}, "_rest": 1}"#,
];

#[test]
fn collections_are_streams_with_columns_from_a_sample() {
    let database = database!();
    insert(&database, "people", &PEOPLE);
    insert(&database, "other", &[r#"{"_id": 1}"#]);
    let mut source = open(&database, "");
    let streams = source.discover(&[]).unwrap();
    let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["other", "people"]);
    let people = &streams[1];
    assert_eq!(people.primary_key, ["_id"]);
    assert_eq!(people.cursor_fields, ["_id", "at", "age"]);
    assert_eq!(
        people.source_types[..3],
        ["objectId", "string, null", "int, long"]
    );
    assert!(!people.inferred.contains(&"_rest".to_owned()));
    let request = request(&mut source, "people", &[]);
    let expected = [
        "_id string",
        "name string",
        "age int64",
        "tags json",
        "at timestamp(ms, UTC)",
        "score string",
        "_rest json",
    ];
    assert_eq!(columns(&request), expected);
    // A column of JSON must not take the string "5" for a number; a Decimal128 is one.
    let schema = rapidbyte_sdk::ipc::decode_schema(&request.schema).unwrap();
    let marked = |name: &str| is_json_strings(schema.field_with_name(name).unwrap());
    assert!(marked("_id") && marked("name") && !marked("score"));
    let given = read(&mut source, &request).unwrap();
    // An ObjectId and a Decimal128 are strings that are marked, so they come back as what they were.
    assert_eq!(
        given.json(),
        [
            r#"{"_id":{"$oid":"0123456789abcdef01234567"},"name":"Ada","age":36,"tags":["x",1],"at":null,"score":null,"_rest":null}"#,
            r#"{"_id":{"$oid":"0123456789abcdef01234568"},"name":"Bob","age":5000000000,"tags":null,"at":{"$date":"2026-01-01T00:00:00.500Z"},"score":null,"_rest":null}"#,
            r#"{"_id":{"$oid":"0123456789abcdef01234569"},"name":null,"age":null,"tags":null,"at":null,"score":{"$numberDecimal":"1.50"},"_rest":{"_rest":1}}"#,
        ]
    );
    assert_eq!(given.bytes("_id")[0], b"0123456789abcdef01234567");
}

#[test]
fn an_id_of_several_types_is_json_and_not_a_key() {
    let database = database!();
    insert(&database, "c", &[r#"{"_id": 1}"#, r#"{"_id": {"a": 1}}"#]);
    let mut source = open(&database, "");
    let streams = source.discover(&[]).unwrap();
    assert!(streams[0].primary_key.is_empty());
    assert!(streams[0].notes.contains(&"no key: _id is json".to_owned()));
    // Its bytes are a key.
    let streams = source.discover(&["mongodb".to_owned()]).unwrap();
    assert_eq!(streams[0].primary_key, ["_id"]);
}

#[test]
fn collections_are_listed_by_patterns() {
    let database = database!();
    for name in ["a_1", "a_2", "b"] {
        insert(&database, name, &[r#"{"_id": 1}"#]);
    }
    let mut source = open(&database, r#""collections": ["a_*"]"#);
    let streams = source.discover(&[]).unwrap();
    let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["a_1", "a_2"]);
}

#[test]
fn fields_that_the_sample_lacks_are_kept_in_the_rest() {
    let database = database!();
    insert(
        &database,
        "c",
        &[
            r#"{"_id": 1, "a": 1}"#,
            r#"{"_id": 2, "new": {"x": [1]}, "a": 2}"#,
            r#"{"_id": 3, "a": 3}"#,
        ],
    );
    let mut source = open(&database, r#""sample_documents": 1"#);
    let request = request(&mut source, "c", &[]);
    assert_eq!(columns(&request), ["_id int32", "a int32", "_rest json"]);
    let given = read(&mut source, &request).unwrap();
    assert_eq!(
        given.json()[1],
        r#"{"_id":2,"a":2,"_rest":{"new":{"x":[1]}}}"#
    );
    // A column that nobody wants is not a part of the rest.
    let wanted = ReadRequest {
        columns: Some(vec!["_rest".into(), "_id".into()]),
        ..request
    };
    let given = read(&mut source, &wanted).unwrap();
    assert_eq!(given.json()[1], r#"{"_rest":{"new":{"x":[1]}},"_id":2}"#);
}

#[test]
fn a_native_document_is_what_the_server_stores() {
    let database = database!();
    let document = bson(
        r#"{"_id": {"z": 1, "a": 2}, "z": {"$numberLong": "1"}, "d": {"$numberDecimal": "1.00"}, "a": [1, {"b": {"$binary": {"base64": "AA==", "subType": "00"}}}],
            "t": {"$timestamp": {"t": 5, "i": 6}}, "r": {"$regularExpression": {"pattern": "a", "options": "i"}}, "m": {"$minKey": 1}, "n": -0.0, "s": "é"}"#,
    );
    insert_bytes(&database, "c", &document);
    let mut source = open(&database, "");
    let request = native(&mut source, "c");
    assert_eq!(
        columns(&request),
        [
            "_id binary as arrow.opaque",
            "document binary as arrow.opaque"
        ]
    );
    let given = read(&mut source, &request).unwrap();
    assert_eq!(given.bytes("document"), [document]);
    let id = &given.bytes("_id")[0];
    assert_eq!((id[0], &id[1..]), (3, &bson(r#"{"z": 1, "a": 2}"#)[..]));
}

#[test]
fn whole_documents_are_json_in_either_style() {
    let database = database!();
    insert(
        &database,
        "c",
        &[r#"{"_id": 7, "l": {"$numberLong": "1"}, "document": 1}"#],
    );
    for (keys, json) in [
        (r#""documents": "json""#, r#"{"_id":7,"l":1,"document":1}"#),
        (
            r#""documents": "json", "json": "canonical""#,
            r#"{"_id":{"$numberInt":"7"},"l":{"$numberLong":"1"},"document":{"$numberInt":"1"}}"#,
        ),
    ] {
        let mut source = open(&database, keys);
        // Also into MongoDB, where it is written so.
        let request = native(&mut source, "c");
        assert_eq!(columns(&request), ["_id int32", "document json"]);
        let given = read(&mut source, &request).unwrap();
        assert_eq!(given.bytes("document"), [json.as_bytes()]);
    }
}

#[test]
fn declared_columns_refuse_collect_or_ignore_other_fields() {
    let database = database!();
    insert(
        &database,
        "c",
        &[r#"{"_id": 1, "a": {"b": [1, 2]}, "x": 5}"#],
    );
    let schema = r#""schema": {"a": "struct<b: list<int64>>", "_id": "int16 not null"}"#;
    let mut source = open(&database, &format!(r#""streams": {{"c": {{{schema}}}}}"#));
    // Declared columns are read into MongoDB, too.
    let asked = native(&mut source, "c");
    let error = refused(&mut source, &asked);
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("mongo_unknown_field", Some("x"))
    );
    assert_eq!(
        (error.stream.as_deref(), error.location.as_deref()),
        (Some("c"), Some("_id 1"))
    );
    for (unknown, row) in [
        ("ignore", r#"{"a":{"b":[1,2]},"_id":1}"#),
        ("collect", r#"{"a":{"b":[1,2]},"_id":1,"_rest":{"x":5}}"#),
    ] {
        let keys = format!(r#""streams": {{"c": {{{schema}, "unknown_keys": "{unknown}"}}}}"#);
        let mut source = open(&database, &keys);
        let request = request(&mut source, "c", &[]);
        assert_eq!(read(&mut source, &request).unwrap().json(), [row]);
    }
}

#[test]
fn chosen_columns_and_conditions_are_left_to_the_server() {
    let database = database!();
    insert(
        &database,
        "c",
        &[
            r#"{"_id": 1, "a": 1, "b": "x"}"#,
            r#"{"_id": 2, "a": 2, "b": "y"}"#,
            r#"{"_id": 3, "b": "z"}"#,
        ],
    );
    let mut source = open(&database, "");
    let mut request = request(&mut source, "c", &[]);
    request.columns = Some(vec!["b".into(), "a".into()]);
    request.filter = Some(r#"{"$or": [{"a": {"$gte": 2}}, {"a": null}]}"#.into());
    let given = read(&mut source, &request).unwrap();
    assert_eq!(
        given.json(),
        [r#"{"b":"y","a":2}"#, r#"{"b":"z","a":null}"#]
    );
    request.columns = Some(vec!["nothing".into()]);
    assert_eq!(refused(&mut source, &request).code, "unknown_column");
    request.columns = None;
    request.filter = Some("a = 1".into());
    assert_eq!(refused(&mut source, &request).code, "invalid_where");
    request.filter = Some(r#"{"a": {"$nothing": 1}}"#.into());
    let error = refused(&mut source, &request);
    assert!(error.code.starts_with("mongo_"), "{error:?}");
    assert_eq!(error.stream.as_deref(), Some("c"));
    // The session is as before.
    request.filter = None;
    assert_eq!(read(&mut source, &request).unwrap().rows(), 3);
}

#[test]
fn many_documents_come_in_batches_of_the_asked_size() {
    let database = database!();
    let mut documents = Vec::new();
    for id in 0..5000 {
        let mut document = Builder::onto(std::mem::take(&mut documents));
        document.int32("_id", id).string("text", &"x".repeat(100));
        documents = document.finish().unwrap();
    }
    insert_bytes(&database, "c", &documents);
    let mut source = open(&database, r#""fetch_bytes": 65536"#);
    let mut request = request(&mut source, "c", &[]);
    request.batch_bytes = 20_000;
    let given = read(&mut source, &request).unwrap();
    assert_eq!(given.rows(), 5000);
    let ids = given.batches.iter().flat_map(|batch| {
        let column = batch.column_by_name("_id").unwrap().as_any();
        column
            .downcast_ref::<Int32Array>()
            .unwrap()
            .values()
            .to_vec()
    });
    assert!(ids.eq(0..5000));
    let most = given
        .batches
        .iter()
        .map(RecordBatch::num_rows)
        .max()
        .unwrap();
    assert!((100..400).contains(&most), "{most}");
    // A reader that is dropped frees its cursor, and its connection serves the next one.
    let mut reader = source.read(&request).unwrap();
    assert!(matches!(
        reader.next(std::time::Duration::ZERO).unwrap(),
        Event::Batch(_)
    ));
    drop(reader);
    assert_eq!(read(&mut source, &request).unwrap().rows(), 5000);
}

#[test]
fn documents_that_fail_are_rejects_and_can_be_replayed() {
    let database = database!();
    insert(
        &database,
        "c",
        &[
            r#"{"_id": 1, "n": 1}"#,
            r#"{"_id": 2, "n": "two"}"#,
            r#"{"_id": 3, "n": 3}"#,
            r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "n": {"$numberLong": "4"}}"#,
        ],
    );
    let keys = r#""streams": {"c": {"schema": {"_id": "json", "n": "int32"}}}"#;
    let mut source = open(&database, keys);
    let mut asked = request(&mut source, "c", &[]);
    let error = refused(&mut source, &asked);
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("value_does_not_fit", Some("n"))
    );
    asked.keeps_rejects = true;
    let given = read(&mut source, &asked).unwrap();
    assert_eq!(given.rows(), 3);
    let [reject] = &given.rejects[..] else {
        panic!("{:?}", given.rejects)
    };
    assert_eq!(reject.data, br#"{"_id":{"$numberInt":"2"},"n":"two"}"#);
    assert_eq!(reject.location.as_deref(), Some("_id 2"));
    assert_eq!(
        (reject.code.as_str(), reject.is_cut),
        ("value_does_not_fit", false)
    );
    let repaired = Reject {
        data: br#"{"_id":{"$numberInt":"2"},"n":{"$numberInt":"2"}}"#.to_vec(),
        ..reject.clone()
    };
    asked.records = Some(vec![reject.clone(), repaired]);
    let given = read(&mut source, &asked).unwrap();
    assert_eq!(given.json(), [r#"{"_id":2,"n":2}"#]);
    assert_eq!(given.rejects.len(), 1);
    assert_eq!(given.rejects[0].data, reject.data);
    assert_eq!(given.rejects[0].location, reject.location);
}

#[test]
fn a_large_document_is_refused_with_its_id() {
    let database = database!();
    let text = "x".repeat(10_000);
    insert(
        &database,
        "c",
        &[&format!(r#"{{"_id": 9, "t": "{text}"}}"#)],
    );
    let mut source = open(&database, "");
    let mut request = request(&mut source, "c", &[]);
    request.max_record_bytes = 9_000;
    let error = refused(&mut source, &request);
    assert_eq!(
        (error.code.as_str(), error.location.as_deref()),
        ("record_too_large", Some("_id 9"))
    );
}

#[test]
fn configurations_that_cannot_be_read_are_refused_with_their_place() {
    let database = database!();
    insert(&database, "c", &[r#"{"_id": 1}"#]);
    let refusal = |keys: &str| {
        let error = try_open(&database, keys).err().unwrap();
        format!("{} {}", error.code, error.location.unwrap_or_default())
    };
    assert_eq!(
        refusal(r#""fetch_bytes": 1"#),
        "invalid_config config.fetch_bytes"
    );
    assert_eq!(
        refusal(r#""sample_documents": 0"#),
        "invalid_config config.sample_documents"
    );
    assert_eq!(
        refusal(r#""streams": {"c": {"schema": {"a": "int65"}}}"#),
        "unknown_type config.streams.c.schema.a"
    );
    let mut source = open(&database, r#""documents": "bson""#);
    let streams = source.discover(&[]).unwrap();
    assert!(
        streams[0].notes[0].contains("takes MongoDB's own documents"),
        "{:?}",
        streams[0].notes
    );
    let mut source = open(&database, r#""snapshot": true"#);
    let selection = |name: &str| Selection {
        stream: name.into(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    };
    // mongo-java-server is not a replica set.
    assert_eq!(
        source.snapshot(&[selection("c")]).unwrap_err().code,
        "mongo_no_snapshots"
    );
    let error = source.snapshot(&[selection("d")]).unwrap_err();
    assert_eq!(error.code, "unknown_stream");
    assert_eq!(error.hint.as_deref(), Some("use one of c"));
}

#[test]
fn a_check_says_what_can_be_reached() {
    let database = database!();
    insert(&database, "c", &[r#"{"_id": 1}"#]);
    let items = open(&database, "").check().unwrap();
    assert!(items.iter().all(|item| item.problem.is_none()), "{items:?}");
    assert_eq!(items[1].detail, "1 collection");
    // Nobody listens on the port of a listener that is gone.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = database.url_at(port);
    let mut source: source_mongodb::Mongo =
        rapidbyte_sdk::source::open(&format!(r#"{{"url": "{url}"}}"#)).unwrap();
    let items = source.check().unwrap();
    assert!(items[0].problem.is_some(), "{items:?}");
}

#[test]
fn documents_of_one_shape_and_of_none_are_read() {
    let database = database!();
    let mut command = Builder::new();
    command.string("create", "empty");
    client(&database).command(database.name(), command).unwrap();
    let mut source = open(&database, "");
    let request = request(&mut source, "empty", &[]);
    assert_eq!(columns(&request), ["_rest json"]);
    assert_eq!(read(&mut source, &request).unwrap().rows(), 0);
    // A document that came after the plan is kept as a whole.
    insert(&database, "empty", &[r#"{"_id": 1, "a": "x"}"#]);
    let given = read(&mut source, &request).unwrap();
    assert_eq!(given.json(), [r#"{"_rest":{"_id":1,"a":"x"}}"#]);
}
