//! The client against a server on this machine.

#![allow(clippy::unwrap_used, missing_docs)]

use std::rc::Rc;

use rapidbyte_cosmos::{Account, Client, Operation, Outcome, Param, PartitionKey};
use rapidbyte_sdk::ErrorKind;
use rapidbyte_testkit::cosmosdb::{self, KEY};
use rapidbyte_testkit::http::{Reply, Server};

fn client(endpoint: &str, database: &str) -> Client {
    Client::new(&Rc::new(Account::new(endpoint, KEY, database).unwrap()))
}

fn create(id: u32, partition: &str) -> Operation {
    Operation::Create {
        document: format!("{{\"id\":\"{id}\",\"p\":\"{partition}\",\"n\":{id}}}"),
    }
}

#[test]
fn containers_documents_batches_and_pages() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = client(&database.endpoint(), database.name());
    client.find_database().unwrap();
    assert!(!client.writes_anywhere().unwrap());
    assert_eq!(client.container("c").unwrap(), None);
    let key = PartitionKey::parse("/p").unwrap();
    client.create_container("c", &key, None).unwrap();
    // Somebody else was faster.
    client.create_container("c", &key, Some(400)).unwrap();
    assert_eq!(client.container("c").unwrap().unwrap().partition, key);
    let named = client.containers().unwrap();
    assert_eq!(named, ["c"]);

    let a = r#"["a"]"#;
    let operations: Vec<Operation> = (0..50).map(|id| create(id, "a")).collect();
    let answer = client.ask(client.batch("c", a, &operations)).unwrap();
    assert!(answer.is_batch_done(50).unwrap());
    assert!(answer.is_batch_done(49).is_err());
    let again = client.ask(client.batch("c", a, &operations[..1])).unwrap();
    assert!(!again.is_batch_done(1).unwrap());
    let escaped: Vec<_> = (50..80)
        .map(|id| client.single("c", r#"["\u00e9"]"#, &create(id, "é")))
        .collect();
    for answer in client.ask_all(&escaped).unwrap() {
        assert!(matches!(answer.unwrap().outcome(), Outcome::Done));
    }
    let refused = client.ask(client.single("c", a, &create(1, "a"))).unwrap();
    let Outcome::Refused { status: 409, error } = refused.outcome() else {
        panic!("{refused:?}");
    };
    assert_eq!(error.code, "cosmos_conflict");

    let params = [Param::new("@from", 40), Param::new("@to", 60)];
    let query = "SELECT c.id, c.p FROM c WHERE c.n >= @from AND c.n < @to";
    let (mut found, mut pages, mut continuation) = (0, 0, None);
    loop {
        let page = client
            .query("c", (query, &params), None, 7, continuation.as_deref())
            .unwrap();
        found += page.documents.len();
        pages += 1;
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (20, 3));

    let stored = client.find("c", a, "7").unwrap().unwrap();
    let etag = rapidbyte_cosmos::find(stored.get(), &["_etag".to_owned()]).unwrap();
    let etag: String = serde_json::from_str(etag).unwrap();
    let replaced = r#"{"id":"7","p":"a","n":70}"#;
    let call = client.replace("c", a, ("7", &etag), replaced);
    let answer = client.ask(call.clone()).unwrap();
    assert_eq!(answer.status, 200);
    assert_ne!(answer.etag.unwrap(), etag);
    assert_eq!(client.ask(call).unwrap().status, 412);
    let stored = client.find("c", a, "7").unwrap().unwrap();
    assert!(rapidbyte_cosmos::is_same(replaced, stored.get()));

    let upsert = Operation::Upsert {
        document: r#"{"id":"7","p":"a"}"#.into(),
        id: "7".into(),
    };
    let delete = |etag: Option<&str>| Operation::Delete {
        id: "8".into(),
        if_match: etag.map(str::to_owned),
    };
    let answer = client
        .ask(client.batch("c", a, &[upsert.clone(), delete(Some("other"))]))
        .unwrap();
    assert!(!answer.is_batch_done(2).unwrap());
    let answer = client
        .ask(client.batch("c", a, &[upsert, delete(None)]))
        .unwrap();
    assert!(answer.is_batch_done(2).unwrap());
    let gone = client.ask(client.single("c", a, &delete(None))).unwrap();
    assert!(matches!(
        gone.outcome(),
        Outcome::Refused { status: 404, .. }
    ));
    assert!(client.find("c", a, "8").unwrap().is_none());
}

#[test]
fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    let answered = std::sync::atomic::AtomicU32::new(0);
    let server =
        Server::start(
            move |_| match answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Reply::status(429, "{}").header("x-ms-retry-after-ms", "3"),
                1 => Reply::status(449, "{}"),
                _ => Reply::json("{\"enableMultipleWriteLocations\":true}")
                    .header("x-ms-session-token", "0:-1#7"),
            },
        );
    let mut client = client(&server.url("/"), "d");
    assert!(client.writes_anywhere().unwrap());
    assert_eq!(server.requests().len(), 3);
    for request in server.requests() {
        assert_eq!(request.path, "/");
        assert!(
            request
                .header("authorization")
                .unwrap()
                .starts_with("type%3Dmaster%26ver%3D1.0%26sig%3D")
        );
    }
    // The tokens of a container come back.
    client.ask(client.batch("c", "[1]", &[])).unwrap();
    client.ask(client.batch("c", "[1]", &[])).unwrap();
    let last = server.requests().pop().unwrap();
    assert_eq!(last.header("x-ms-session-token"), Some("0:-1#7"));
}

#[test]
fn a_write_that_must_not_be_repeated_is_repeated_only_if_it_was_refused() {
    for (status, asked) in [(429, 10), (503, 1), (408, 1)] {
        let server = Server::start(move |_| {
            Reply::status(status, "{\"message\":\"busy\"}").header("x-ms-retry-after-ms", "0")
        });
        let mut client = client(&server.url("/"), "d");
        let error = client
            .ask(client.replace("c", "[1]", ("x", "e"), "{}"))
            .unwrap_err();
        assert_eq!(server.requests().len(), asked, "{status}: {error:?}");
        let is_limited = matches!(error.kind, ErrorKind::RateLimited(Some(0)));
        assert_eq!(is_limited, status == 429);
        assert!(error.message.contains("busy"), "{}", error.message);
    }
}

#[test]
fn a_server_that_repeats_the_key_does_not_get_it_into_a_message() {
    let server = Server::start(|_| Reply::status(503, format!("{{\"message\":\"{KEY}\"}}")));
    let mut account = Account::new(&server.url("/"), KEY, "d").unwrap();
    account.retry = rapidbyte_sdk::http::Retry::NEVER;
    let error = Client::new(&Rc::new(account)).find_database().unwrap_err();
    assert!(
        error.message.contains("***") && !error.message.contains(KEY),
        "{}",
        error.message
    );
}
