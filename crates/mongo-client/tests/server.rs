//! The client against a server: mongo-java-server, started by the test kit.
#![allow(clippy::unwrap_used)]

use rapidbyte_mongo_client::bson::{Builder, Document, Value};
use rapidbyte_mongo_client::{Client, Settings, number_of};
use rapidbyte_testkit::mongodb::{self, MongoDatabase};

fn connect(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

fn documents(range: std::ops::Range<i32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in range {
        let mut builder = Builder::onto(bytes);
        builder.int32("_id", number).string("text", "x");
        bytes = builder.finish().unwrap();
    }
    bytes
}

fn insert(collection: &str, is_ordered: bool) -> Builder {
    let mut command = Builder::new();
    command
        .string("insert", collection)
        .boolean("ordered", is_ordered);
    command
}

#[test]
fn a_server_says_what_it_is() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let client = connect(&server.database());
    let hello = client.hello();
    assert!(hello.is_writable && !hello.is_mongos && !hello.has_transactions());
    assert_eq!(hello.max_bson_bytes, 16 << 20);
    assert_eq!(hello.max_message_bytes, 48_000_000);
    assert!(hello.max_wire_version >= 6, "{hello:?}");
}

#[test]
fn documents_that_are_written_in_bulk_are_read_in_batches() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = connect(&database);
    let written = client
        .write(
            database.name(),
            insert("c", false),
            "documents",
            &documents(0..1000),
        )
        .unwrap();
    assert_eq!((written.count, written.errors.len()), (1000, 0));
    assert!(written.concern.is_none());
    let mut command = Builder::new();
    command
        .string("find", "c")
        .int32("batchSize", 300)
        .open_document("sort")
        .int32("_id", 1)
        .close();
    let mut cursor = client.find(database.name(), command).unwrap();
    let (mut found, mut batches) = (Vec::new(), 0);
    while let Some(batch) = cursor.next(&mut client, 300).unwrap() {
        batches += 1;
        // The server works on the next one meanwhile.
        cursor.ask(&mut client, 300).unwrap();
        for document in batch.documents().unwrap() {
            let id = document.unwrap().get("_id").unwrap().unwrap();
            found.push(id.as_whole().unwrap());
        }
    }
    assert_eq!(found, (0..1000).collect::<Vec<_>>());
    assert!(batches >= 4, "{batches}");
    assert_eq!(cursor.id(), 0);
    cursor.close(&mut client).unwrap();
}

#[test]
fn a_cursor_that_is_closed_leaves_the_connection_usable() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = connect(&database);
    let (name, bytes) = (database.name(), documents(0..10));
    client
        .write(name, insert("c", false), "documents", &bytes)
        .unwrap();
    for is_asked in [false, true] {
        let mut command = Builder::new();
        command.string("find", "c").int32("batchSize", 2);
        let mut cursor = client.find(name, command).unwrap();
        assert_ne!(cursor.id(), 0);
        if is_asked {
            assert!(cursor.ask(&mut client, 2).unwrap());
        }
        cursor.close(&mut client).unwrap();
        let mut ping = Builder::new();
        ping.int32("ping", 1);
        client.command(name, ping).unwrap();
    }
}

#[test]
fn each_document_that_fails_has_its_place_and_its_number() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = connect(&database);
    let mut write = |is_ordered, range| {
        let command = insert("c", is_ordered);
        client
            .write(database.name(), command, "documents", &documents(range))
            .unwrap()
    };
    assert_eq!(write(false, 3..6).count, 3);
    let written = write(false, 0..10);
    let places: Vec<usize> = written.errors.iter().map(|error| error.index).collect();
    assert_eq!(places, [3, 4, 5]);
    assert!(written.errors.iter().all(|error| error.is_duplicate()));
    // An ordered write ends at the first.
    let written = write(true, 9..20);
    assert_eq!(written.errors.len(), 1);
    let mut find = Builder::new();
    find.string("find", "c");
    let mut cursor = client.find(database.name(), find).unwrap();
    let batch = cursor.next(&mut client, 0).unwrap().unwrap();
    assert_eq!(batch.documents().unwrap().count(), 10);
}

#[test]
fn a_command_that_fails_is_an_error_with_its_number_and_the_connection_stays_usable() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = connect(&database);
    let mut unknown = Builder::new();
    unknown.int32("noSuchCommand", 1);
    let error = client.command(database.name(), unknown).unwrap_err();
    assert_eq!(number_of(&error), Some(59), "{error:?}");
    assert!(client.is_usable());
    let mut find = Builder::new();
    find.string("find", "nothing");
    let mut cursor = client.find(database.name(), find).unwrap();
    let batch = cursor.next(&mut client, 0).unwrap().unwrap();
    assert!(batch.is_empty().unwrap());
    assert!(cursor.next(&mut client, 0).unwrap().is_none());
}

#[test]
fn a_conditional_change_happens_or_does_not() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = connect(&database);
    let bytes = documents(1..2);
    client
        .write(database.name(), insert("c", true), "documents", &bytes)
        .unwrap();
    let mut change = |text: &str| {
        let mut command = Builder::new();
        command
            .string("findAndModify", "c")
            .open_document("query")
            .int32("_id", 1)
            .string("text", text)
            .close()
            .open_document("update")
            .open_document("$set")
            .string("text", "y")
            .close()
            .close()
            .boolean("new", true);
        let reply = client.command(database.name(), command).unwrap();
        let document = reply.document().unwrap();
        let value = document.get("value").unwrap();
        let text = |value: Document<'_>| value.get("text").unwrap() == Some(Value::String("y"));
        match value {
            Some(Value::Document(value)) => Some(text(value)),
            _ => None,
        }
    };
    assert_eq!(change("x"), Some(true));
    assert_eq!(change("x"), None);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let url = "mongodb://127.0.0.1:1,127.0.0.1:2/d?connectTimeoutMS=2000";
    let Err(error) = Client::connect(&Settings::from_url(url).unwrap()) else {
        panic!("a server on port 1");
    };
    assert_eq!(error.code, "connect_failed");
    for host in ["127.0.0.1:1: ", "127.0.0.1:2: "] {
        assert!(error.message.contains(host), "{error:?}");
    }
}
