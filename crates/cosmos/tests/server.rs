//! The client against a server on this machine.

#![allow(clippy::unwrap_used, missing_docs)]

use std::rc::Rc;

use rapidbyte_cosmos::{
    Account, Client, Container, Operation, Outcome, Param, PartitionKey, Write,
};
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

/// The statuses of writes to one partition; 0 is a write that is done.
fn write(client: &mut Client, to: &Container, partition: &str, all: &[Operation]) -> Vec<u16> {
    let writes = all.iter().map(|operation| Write {
        partition,
        operation,
    });
    let outcomes = client.write(to, &writes.collect::<Vec<_>>()).unwrap();
    statuses(&outcomes)
}

fn statuses(outcomes: &[Outcome]) -> Vec<u16> {
    let statuses = outcomes.iter().map(|outcome| match outcome {
        Outcome::Done => 0,
        Outcome::Refused { status, .. } => *status,
    });
    statuses.collect()
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
    let container = client.container("c").unwrap().unwrap();
    assert_eq!(container.partition, key);
    let named = client.containers().unwrap();
    assert_eq!(named, ["c"]);

    let a = r#"["a"]"#;
    let operations: Vec<Operation> = (0..50).map(|id| create(id, "a")).collect();
    assert_eq!(write(&mut client, &container, a, &operations), [0; 50]);
    // A batch that is refused as a whole: each of its documents goes alone.
    let more: Vec<Operation> = (149..180).map(|id| create(id, "a")).collect();
    let more = [&operations[..1], &more].concat();
    let mut expected = [0; 32];
    expected[0] = 409;
    assert_eq!(write(&mut client, &container, a, &more), expected);
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
    let both = [upsert.clone(), delete(Some("other"))];
    assert_eq!(write(&mut client, &container, a, &both), [0, 412]);
    let both = [upsert, delete(None)];
    assert_eq!(write(&mut client, &container, a, &both), [0, 0]);
    let gone = client.ask(client.single("c", a, &delete(None))).unwrap();
    assert!(matches!(
        gone.outcome(),
        Outcome::Refused { status: 404, .. }
    ));
    assert!(client.find("c", a, "8").unwrap().is_none());
}

/// 60 documents, each of a partition of its own.
fn spread() -> Vec<(String, Operation)> {
    let names = ["redmond".to_owned(), "aa".to_owned()].into_iter();
    let names = names.chain((2..60).map(|id| format!("p{id}")));
    let of = |(id, name): (u32, String)| (format!("[\"{name}\"]"), create(id, &name));
    (0..).zip(names).map(of).collect()
}

fn write_spread(client: &mut Client, to: &Container, all: &[(String, Operation)]) -> Vec<u16> {
    let writes = all.iter().map(|(partition, operation)| Write {
        partition,
        operation,
    });
    statuses(&client.write(to, &writes.collect::<Vec<_>>()).unwrap())
}

#[test]
fn documents_of_many_partitions_travel_together_and_are_judged_alone() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let database = server.database();
    let mut client = client(&database.endpoint(), database.name());
    let key = PartitionKey::parse("/p").unwrap();
    client.create_container("c", &key, None).unwrap();
    let container = client.container("c").unwrap().unwrap();
    let mut all = spread();
    assert_eq!(write_spread(&mut client, &container, &all), [0; 60]);
    assert!(client.find("c", "[\"p7\"]", "7").unwrap().is_some());
    for (place, (partition, operation)) in all.iter_mut().enumerate() {
        let name = &partition[2..partition.len() - 2];
        *operation = match place % 3 {
            0 => Operation::Upsert {
                document: format!("{{\"id\":\"{place}\",\"p\":\"{name}\"}}"),
                id: place.to_string(),
            },
            1 => Operation::Delete {
                id: place.to_string(),
                if_match: (place % 2 == 1).then(|| "other".to_owned()),
            },
            // It is there.
            _ => create(u32::try_from(place).unwrap(), name),
        };
    }
    let found = write_spread(&mut client, &container, &all);
    let expected = (0..60).map(|place| match (place % 3, place % 2) {
        (0, _) | (1, 0) => 0,
        (1, _) => 412,
        _ => 409,
    });
    assert_eq!(found, expected.collect::<Vec<u16>>());
}

const TWO_RANGES: &str = r#"{"PartitionKeyRanges":[
    {"id":"8","minInclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","maxExclusive":"FF"},
    {"id":"7","minInclusive":"","maxExclusive":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"}]}"#;
const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/p"],"kind":"Hash","version":2}}"#;
const OLD_CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/p"],"kind":"Hash"}}"#;

/// A server with two ranges. `bulk` answers bulk requests: their number from 0, and how many documents they have.
fn with_ranges(container: &'static str, bulk: fn(usize, usize) -> Reply) -> Server {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    Server::start(move |request| {
        if request.path.ends_with("/pkranges") {
            return Reply::json(TWO_RANGES);
        }
        if request
            .header("x-ms-documentdb-partitionkeyrangeid")
            .is_some()
        {
            let all: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
            let before = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return bulk(before, all.len());
        }
        match request.path.ends_with("/docs") {
            true => Reply::status(201, "{}"),
            false => Reply::json(container),
        }
    })
}

fn done(documents: usize, first: u16) -> Reply {
    let mut all = vec![serde_json::json!({ "statusCode": 201 }); documents];
    all[0] = serde_json::json!({ "statusCode": first });
    Reply::json(serde_json::Value::from(all).to_string())
}

/// The requests of a write: of ranges, of bulk requests by their range, and of single documents.
fn requests(server: &Server) -> (usize, Vec<String>, usize) {
    let all = server.requests();
    let of_ranges = all.iter().filter(|one| one.path.ends_with("/pkranges"));
    let bulk = all
        .iter()
        .filter_map(|one| one.header("x-ms-documentdb-partitionkeyrangeid"));
    let mut bulk: Vec<String> = bulk.map(str::to_owned).collect();
    bulk.sort();
    let alone = all
        .iter()
        .filter(|one| one.header("x-ms-documentdb-partitionkey").is_some());
    (of_ranges.count(), bulk, alone.count())
}

#[test]
fn a_bulk_request_has_one_range_and_what_it_does_not_do_goes_alone() {
    // The first document of each is throttled.
    let server = with_ranges(CONTAINER, |_, documents| done(documents, 429));
    let mut client = client(&server.url("/"), "d");
    let container = client.container("c").unwrap().unwrap();
    assert_eq!(write_spread(&mut client, &container, &spread()), [0; 60]);
    assert_eq!(requests(&server), (1, vec!["7".into(), "8".into()], 2));
    for request in server.requests() {
        let range = request.header("x-ms-documentdb-partitionkeyrangeid");
        if let Some(range) = range {
            let all: Vec<serde_json::Value> = serde_json::from_slice(&request.body).unwrap();
            let has = |partition: &str| all.iter().any(|one| one["partitionKey"] == partition);
            // Microsoft's clients give them the hashes 22E3… and 0503….
            assert_eq!(has("[\"redmond\"]"), range == "8");
            assert_eq!(has("[\"aa\"]"), range == "7");
        }
    }
    // The ranges are known now.
    write_spread(&mut client, &container, &spread());
    assert_eq!(requests(&server).0, 1);
}

#[test]
fn an_account_that_refuses_bulk_requests_gets_each_document_alone() {
    let server = with_ranges(CONTAINER, |_, _| Reply::status(400, "{}"));
    let mut client = client(&server.url("/"), "d");
    let container = client.container("c").unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(write_spread(&mut client, &container, &spread()), [0; 60]);
    }
    // It is not asked for bulk requests a second time.
    let (of_ranges, bulk, alone) = requests(&server);
    assert_eq!((of_ranges, bulk.len(), alone), (1, 2, 120));
}

#[test]
fn ranges_that_were_split_are_read_again() {
    let server = with_ranges(CONTAINER, |before, documents| match before {
        0 | 1 => Reply::status(410, "{}"),
        _ => done(documents, 201),
    });
    let mut client = client(&server.url("/"), "d");
    let container = client.container("c").unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(write_spread(&mut client, &container, &spread()), [0; 60]);
    }
    let (of_ranges, bulk, alone) = requests(&server);
    assert_eq!((of_ranges, bulk.len(), alone), (2, 4, 60));
}

#[test]
fn documents_of_a_container_with_older_hashes_go_alone() {
    let server = with_ranges(OLD_CONTAINER, |_, documents| done(documents, 201));
    let mut client = client(&server.url("/"), "d");
    let container = client.container("c").unwrap().unwrap();
    assert_eq!(write_spread(&mut client, &container, &spread()), [0; 60]);
    assert_eq!(requests(&server), (1, Vec::new(), 60));
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
    for _ in 0..2 {
        client
            .ask(client.single("c", "[1]", &create(1, "a")))
            .unwrap();
    }
    let last = server.requests().pop().unwrap();
    assert_eq!(last.header("x-ms-session-token"), Some("0:-1#7"));
}

#[test]
fn a_page_that_was_asked_for_ahead_is_asked_for_again_if_the_server_is_busy() {
    let answered = std::sync::atomic::AtomicU32::new(0);
    let server =
        Server::start(
            move |_| match answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Reply::status(429, "{}").header("x-ms-retry-after-ms", "1"),
                1 => Reply::status(503, "{}"),
                _ => {
                    Reply::json("{\"Documents\":[{\"id\":\"1\"}]}").header("x-ms-continuation", "t")
                }
            },
        );
    let mut client = client(&server.url("/"), "d");
    let query = ("SELECT * FROM c", &[][..]);
    let asked = client.ask_page("c", query, None, 5, Some("s")).unwrap();
    let page = client.page(asked).unwrap();
    assert_eq!(
        (page.documents.len(), page.continuation.as_deref()),
        (1, Some("t"))
    );
    assert_eq!(server.requests().len(), 3);
    for request in server.requests() {
        assert_eq!(request.header("x-ms-continuation"), Some("s"));
    }
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
