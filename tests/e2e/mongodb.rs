//! Collections of a MongoDB server into files, into PostgreSQL and into another database.

use rapidbyte_bson::{Builder, Document};
use rapidbyte_mongo::extjson;
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_testkit::mongodb::{self, MongoDatabase};
use rapidbyte_testkit::postgres;

use crate::support::Folder;

/// A value of each type that mongo-java-server stores, with names that come in no order.
pub const EVERYTHING: &str = r#"{"_id": {"z": 1, "a": "x"}, "z": {"$numberLong": "1"}, "n": null, "i": 2147483647,
    "dec": {"$numberDecimal": "1.500"}, "nan": {"$numberDouble": "NaN"}, "zero": -0.0, "far": {"$date": {"$numberLong": "-62135596800001"}},
    "oid": {"$oid": "0123456789abcdef01234567"}, "bin": {"$binary": {"base64": "AAH/", "subType": "00"}},
    "uuid": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}, "re": {"$regularExpression": {"pattern": "^a", "options": "i"}},
    "ts": {"$timestamp": {"t": 5, "i": 6}}, "min": {"$minKey": 1}, "max": {"$maxKey": 1}, "list": [1, {"b": [], "a": {}}, "é"]}"#;

pub(crate) fn client(database: &MongoDatabase<'_>) -> Client {
    let settings = Settings::from_url(&database.url()).expect("a URL");
    Client::connect(&settings).expect("a connection")
}

pub fn insert(database: &MongoDatabase<'_>, collection: &str, documents: &[&str]) {
    let mut bytes = Vec::new();
    for document in documents {
        extjson::parse_document(document, &mut bytes).expect("a document");
    }
    let mut command = Builder::new();
    command.string("insert", collection);
    let written = client(database).write(database.name(), command, "documents", &bytes);
    assert!(written.expect("an answer").errors.is_empty());
}

/// The documents of a collection as the server stores them, in the order of their `_id`.
pub fn stored(database: &MongoDatabase<'_>, collection: &str) -> Vec<Vec<u8>> {
    let mut client = client(database);
    let mut command = Builder::new();
    command.string("find", collection);
    command.open_document("sort").int32("_id", 1).close();
    let mut cursor = client.find(database.name(), command).expect("a cursor");
    let mut found = Vec::new();
    while let Some(batch) = cursor.next(&mut client, 1000).expect("a batch") {
        let documents = batch.documents().expect("documents");
        found.extend(
            documents
                .map(|one: Result<Document<'_>, _>| one.expect("a document").as_bytes().to_vec()),
        );
    }
    found
}

pub(crate) fn pipeline(source: &str, streams: &str, destination: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource:\n  use: source-mongodb\n  config: {{ {source} }}\n  streams: {streams}\n\
         destination:\n  {destination}\n"
    )
}

#[test]
fn a_collection_becomes_a_file() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let documents = [
        r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "name": "Ada", "age": 36, "tags": ["a", 1]}"#,
        r#"{"_id": {"$oid": "0123456789abcdef01234568"}, "name": "Bob", "age": 17}"#,
        r#"{"_id": {"$oid": "0123456789abcdef01234569"}, "name": "Eve", "age": 5000000000, "at": {"$date": "2026-01-01T00:00:00Z"}}"#,
    ];
    insert(&database, "people", &documents);
    let source = format!("url: \"{}\"", database.url());
    let streams = r#"[{ name: people, where: '{"age": {"$gte": 18}}' }]"#;
    let file = "use: dest-file\n  config: { path: \"out/{stream}.jsonl\" }\n  write_mode: replace";
    folder.report(&pipeline(&source, streams, file));
    assert_eq!(
        folder.read("out/people.jsonl"),
        concat!(
            r#"{"_id":"0123456789abcdef01234567","name":"Ada","age":36,"tags":["a",1],"at":null,"_rest":null}"#,
            "\n",
            r#"{"_id":"0123456789abcdef01234569","name":"Eve","age":5000000000,"tags":null,"at":"2026-01-01T00:00:00Z","_rest":null}"#,
            "\n"
        )
    );
    // A value that its column does not hold stops the run, with its document.
    insert(&database, "people", &[r#"{"_id": 7, "age": "old"}"#]);
    let declared = format!(
        "{source}, streams: {{ people: {{ schema: {{ _id: json, age: int64 }}, unknown_keys: ignore }} }}"
    );
    let text = pipeline(&declared, "[people]", file);
    folder.refuses(&text, "value_does_not_fit", 4, &["age", "string", "_id 7"]);
    let text = pipeline(&source, r#"[{ name: people, where: "age > 5" }]"#, file);
    folder.refuses(&text, "invalid_where", 2, &["query document"]);
}

#[test]
fn a_collection_becomes_a_table_and_new_documents_follow() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let target = postgres::shared().database();
    insert(
        &database,
        "c",
        &[EVERYTHING, r#"{"_id": {"z": 2}, "i": 1}"#],
    );
    insert(
        &database,
        "d",
        &[
            r#"{"_id": 1, "a": {"b": 1.5}, "at": {"$date": "2026-01-01T00:00:00.5Z"}}"#,
            r#"{"_id": 2}"#,
        ],
    );
    let source = format!(
        "url: \"{}\", streams: {{ c: {{ documents: json }} }}, json: canonical",
        database.url()
    );
    let table = format!(
        "use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: append",
        target.url()
    );
    let streams = "[c, { name: d, sync_mode: incremental, cursor_field: _id }]";
    let text = pipeline(&source, streams, &table);
    folder.report(&text);
    let mut client = target.client();
    let rows = client.query(
        "SELECT _id, a->'b'->>'$numberDouble', at::text FROM d ORDER BY _id",
        &[],
    );
    let rows = rows.expect("rows");
    let first: (i32, Option<String>, Option<String>) =
        (rows[0].get(0), rows[0].get(1), rows[0].get(2));
    assert_eq!((first.0, first.1.as_deref()), (1, Some("1.5")));
    assert!(first.2.is_some_and(|at| at.starts_with("20")));
    let json = client.query_one(
        "SELECT document::text FROM c ORDER BY document->>'n' NULLS FIRST, document->>'z' LIMIT 1",
        &[],
    );
    let json: String = json.expect("a row").get(0);
    let mut document = Vec::new();
    extjson::parse_document(&json, &mut document).expect("canonical JSON");
    assert!(Document::parse(&document).is_ok());
    // Only the new document is read.
    insert(&database, "d", &[r#"{"_id": 3, "new": true}"#]);
    let only = pipeline(
        &source,
        "[{ name: d, sync_mode: incremental, cursor_field: _id }]",
        &table,
    );
    let report = folder.report(&only);
    assert_eq!(report["streams"][0]["rows"], 1, "{report:#}");
    let row = client.query_one("SELECT count(*), max(_id), sum(_id) FROM d", &[]);
    let row = row.expect("a row");
    let found: (i64, i32, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(found, (3, 3, 6));
}

#[test]
fn documents_are_copied_exactly_into_another_database() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let target = server.database();
    insert(
        &database,
        "c",
        &[
            EVERYTHING,
            r#"{"_id": 1, "b": 1, "a": 2}"#,
            r#"{"_id": "x"}"#,
        ],
    );
    let source = format!("url: \"{}\"", database.url());
    let copy = format!(
        "use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: replace",
        target.url()
    );
    folder.report(&pipeline(&source, "[c]", &copy));
    let found = stored(&target, "c");
    assert_eq!(found, stored(&database, "c"));
    assert_eq!(found.len(), 3);
}

/// Documents with equal values in their cursor field, one batch of the source for a few of them.
#[test]
fn a_run_that_is_killed_in_the_source_is_made_good_by_the_next() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    for (point, hit) in [
        ("source-mongodb.read", 1),
        ("source-mongodb.checkpoint", 1),
        ("source-mongodb.checkpoint", 3),
    ] {
        let (database, folder) = (server.database(), Folder::new());
        let target = postgres::shared().database();
        let documents: Vec<String> = (0..500)
            .map(|id| {
                format!(
                    r#"{{"_id": {id}, "n": {}, "t": "{}"}}"#,
                    id / 7,
                    "x".repeat(100)
                )
            })
            .collect();
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        insert(&database, "c", &documents);
        let source = format!("url: \"{}\"", database.url());
        let table = format!(
            "use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: append\n\
             resources: {{ batch_bytes: 4kb }}",
            target.url()
        );
        let streams = "[{ name: c, sync_mode: incremental, cursor_field: n }]";
        folder.write("p.yaml", pipeline(&source, streams, &table));
        let mut command = folder.command(&["run", "p.yaml", "--quiet"]);
        let fault = format!("{point}=kill@{hit}");
        let killed = command.env("RAPIDBYTE_FAULTS", &fault).output();
        let killed = killed.expect("the program starts");
        assert_eq!(killed.status.code(), None, "{fault}: it was not killed");
        let ended = folder.rapidbyte(&["run", "p.yaml", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{fault}: {}", ended.stderr);
        let sql = "SELECT count(*), count(DISTINCT _id), max(_id) FROM c";
        let row = target.client().query_one(sql, &[]).expect("a row");
        let found: (i64, i64, i32) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(found, (500, 500, 499), "{fault}");
    }
}

#[test]
fn the_source_keeps_the_contract() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    insert(&database, "one", &[EVERYTHING, r#"{"_id": "b", "i": 1}"#]);
    let numbers: Vec<String> = (0..500)
        .map(|id| format!(r#"{{"_id": {id}, "n": {}, "t": "text {id}"}}"#, id / 7))
        .collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    insert(&database, "many", &numbers);
    // Conditions are documents, and not of the form that the clause asks for; a cursor fits several streams.
    for (documents, counts) in [
        ("columns", "36 passed, 0 failed, 2 skipped"),
        ("json", "36 passed, 0 failed, 2 skipped"),
    ] {
        let config = serde_json::json!({ "url": database.url(), "documents": documents });
        let config = config.to_string();
        let arguments = ["connector", "test", "source-mongodb", "--config", &config];
        let ended = folder.rapidbyte(&arguments);
        let told = &ended.stdout;
        assert_eq!(ended.code, Some(0), "{documents}: {told}{}", ended.stderr);
        assert!(told.contains(counts), "{documents}: {told}");
    }
}

#[test]
fn collections_of_the_server_and_of_cursors_are_not_listed() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    for name in ["a", "_rapidbyte_checkpoint"] {
        insert(&database, name, &[r#"{"_id": 1}"#]);
    }
    let target = "use: dest-file\n  config: { path: out, format: jsonl }\n  write_mode: replace";
    let source = format!("url: \"{}\"", database.url());
    let report = folder.report(&pipeline(&source, "['*']", target));
    let streams = report["streams"].as_array().expect("streams");
    let names: Vec<&serde_json::Value> = streams.iter().map(|stream| &stream["name"]).collect();
    assert_eq!(names, ["a"], "{report:#}");
}

/// Whole numbers became columns of integers; then a document with a fraction comes, and a number where there were texts.
#[test]
fn a_field_with_wider_values_than_its_table_is_refused_by_the_plan_with_a_way_out() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let target = postgres::shared().database();
    let first = r#"{"_id": 1, "n": 1, "m": {"$numberLong": "5000000000"}, "t": "x", "z": null}"#;
    insert(&database, "c", &[first]);
    let source = format!("url: \"{}\"", database.url());
    let table = format!(
        "use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: upsert",
        target.url()
    );
    let text = pipeline(&source, "[c]", &table);
    folder.report(&text);
    // A double that is whole fits, and a column of nothing but null was JSON, which holds every value.
    let second = r#"{"_id": 2, "n": 2.0, "t": 7, "z": "5"}"#;
    insert(&database, "c", &[second]);
    folder.report(&text);
    insert(&database, "c", &[r#"{"_id": 3, "n": 1.5}"#]);
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(plan.code, Some(4), "{plan:?}");
    let way = ["does not become int4", "type_change: rewrite"];
    folder.refuses(&text, "column_refused", 4, &way);
    let follows = format!("{text}schema_changes: {{ type_change: rewrite }}\n");
    folder.report(&follows);
    let sql = "SELECT string_agg(concat_ws(' ', _id, n, m, t), ', ' ORDER BY _id) FROM c";
    let rows = |sql: &str| -> String {
        let row = target.client().query_one(sql, &[]);
        row.expect("a row").get(0)
    };
    assert_eq!(rows(sql), "1 1 5000000000 x, 2 2 7, 3 1.5");
    assert_eq!(rows("SELECT string_agg(z::text, ' ') FROM c"), r#""5""#);
    // The server does not make a bigint a double without a check of its values: the plan has a statement.
    insert(&database, "c", &[r#"{"_id": 4, "m": 0.5}"#]);
    folder.write("p.yaml", &follows);
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(plan.code, Some(4), "{plan:?}");
    let (error, _) = folder.error(&follows);
    let message = error["message"].as_str().expect("a message");
    let statement = message.find("ALTER TABLE").map(|at| &message[at..]);
    let statement = statement.unwrap_or_else(|| panic!("no statement in {message}"));
    let changed = target.client().batch_execute(statement);
    changed.unwrap_or_else(|error| panic!("{statement}: {error}"));
    folder.report(&follows);
    assert_eq!(rows("SELECT m::text FROM c WHERE _id = 4"), "0.5");
}

/// Neither numeric nor jsonb has a zero with a sign; double precision and text have one.
#[test]
fn a_zero_with_a_sign_is_refused_where_the_target_would_lose_the_sign() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    for (ty, found) in [
        ("numeric", None),
        ("numeric(10, 2)", None),
        ("int", None),
        ("jsonb", None),
        ("double precision", Some("-0")),
        ("json", Some("-0.0")),
        ("text", Some("-0.0")),
    ] {
        let (database, folder) = (server.database(), Folder::new());
        let target = postgres::shared().database();
        let made = format!("CREATE TABLE c (_id int PRIMARY KEY, n {ty})");
        target.client().batch_execute(&made).expect("a table");
        // The sample has the first and the last of three documents.
        insert(
            &database,
            "c",
            &[
                r#"{"_id": 1, "n": 1.0}"#,
                r#"{"_id": 2, "n": {"$numberDouble": "-0.0"}}"#,
                r#"{"_id": 3, "n": 2.0}"#,
            ],
        );
        let source = format!("url: \"{}\", sample_documents: 2", database.url());
        let table = format!(
            "use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: upsert",
            target.url()
        );
        let text = pipeline(&source, "[c]", &table);
        let Some(found) = found else {
            folder.refuses(&text, "value_does_not_fit", 4, &["-0"]);
            continue;
        };
        folder.report(&text);
        let sql = "SELECT n::text FROM c WHERE _id = 2";
        let row = target.client().query_one(sql, &[]).expect("a row");
        assert_eq!(row.get::<_, &str>(0), found, "{ty}");
    }
}

/// A server without TLS takes the handshake for the beginning of a message, and waits for its end.
#[test]
fn a_server_without_tls_is_named_after_one_attempt() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let folder = Folder::new();
    let file = "use: dest-file\n  config: { path: \"out/{stream}.jsonl\" }\n  write_mode: replace";
    let url = format!("url: \"mongodb://127.0.0.1:{port}/d?tls=true&connectTimeoutMS=500\"");
    let text = pipeline(&url, "[c]", file);
    let parts = ["TLS handshake", "connectTimeoutMS", "remove tls=true"];
    folder.refuses(&text, "tls_handshake", 3, &parts);
    silent.set_nonblocking(true).expect("a listener");
    let connections = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(connections, 1);
    let Some(server) = mongodb::shared() else {
        return;
    };
    let url = server.database().url();
    let source = format!("url: \"{url}?tls=true&connectTimeoutMS=3000\"");
    let text = pipeline(&source, "[c]", file);
    folder.refuses(&text, "tls_handshake", 3, &["remove tls=true"]);
}

#[test]
fn a_stream_that_cannot_be_read_says_why_before_anything_moves() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let file = "use: dest-file\n  config: { path: \"out/{stream}.jsonl\" }\n  write_mode: replace";
    let source = format!("url: \"{}\"", database.url());
    // A database begins with its first collection.
    let text = pipeline(&source, "['*']", file);
    folder.refuses(&text, "mongo_no_collections", 2, &[database.name()]);
    insert(&database, "c", &[r#"{"_id": 1, "n": 1}"#]);
    for (more, code, parts) in [
        (
            "documents: bson",
            "mongo_not_native",
            &["config.documents", "documents: json"][..],
        ),
        (
            "streams: { c: { documents: bson } }",
            "mongo_not_native",
            &["documents: json"],
        ),
        (
            "streams: { c: { types: { m: int64 } } }",
            "unknown_column",
            &["types names the field m", "n"],
        ),
        (
            "streams: { c: { types: { n: time } } }",
            "type_refused",
            &["n", "time"],
        ),
    ] {
        let text = pipeline(&format!("{source}, {more}"), "['*']", file);
        let exit = if code == "type_refused" { 4 } else { 2 };
        folder.refuses(&text, code, exit, parts);
        for verb in ["check", "plan"] {
            let ended = folder.rapidbyte(&[verb, "p.yaml"]);
            assert_eq!(ended.code, Some(exit), "{verb} {more}: {ended:?}");
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(told.contains(code), "{verb} {more}: {told}");
        }
    }
    assert!(folder.files("out").is_empty());
}

/// The names of collections may have dots; a table of one schema does not have the first part.
#[test]
fn two_collections_are_not_written_into_one_table() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (database, folder) = (server.database(), Folder::new());
    let (target, copy) = (postgres::shared().database(), server.database());
    for name in ["x.c", "y.c"] {
        insert(&database, name, &[r#"{"_id": 1}"#]);
    }
    let source = format!("url: \"{}\"", database.url());
    for destination in [
        format!(
            "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace",
            target.url()
        ),
        format!(
            "use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: replace",
            copy.url()
        ),
    ] {
        let text = pipeline(&source, "['*']", &destination);
        folder.refuses(&text, "shared_target", 2, &["x.c", "y.c"]);
        let checked = folder.rapidbyte(&["check", "p.yaml"]);
        assert_eq!(checked.code, Some(2), "{checked:?}");
    }
}
