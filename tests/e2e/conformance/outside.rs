//! A server that fails says nothing of the connector that asks it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The server answers one request out of this many with 503.
const EVERY: usize = 9;

fn items(rows: u64) -> Reply {
    let items = (0..rows).map(|n| json!({ "id": n, "name": format!("item {n:>40}") }));
    Reply::json(Value::from(items.collect::<Vec<_>>()).to_string())
}

fn config(server: &Server) -> Value {
    json!({
        "base_url": server.url("/v1"), "max_retries": 0,
        "streams": { "first": { "path": "first" }, "second": { "path": "second" } },
    })
}

#[test]
fn a_server_that_fails_now_and_then_is_asked_again() {
    let (asked, refused) = (
        AtomicUsize::new(0),
        std::sync::Arc::new(AtomicUsize::new(0)),
    );
    let count = std::sync::Arc::clone(&refused);
    let server = Server::start(move |_| {
        if asked.fetch_add(1, Ordering::SeqCst) % EVERY == EVERY - 1 {
            count.fetch_add(1, Ordering::SeqCst);
            return Reply::status(503, "busy");
        }
        items(200)
    });
    let (document, code) = test(&Folder::new(), "source-http", &config(&server), &[]);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(
        (document["outside"].as_u64(), code),
        (Some(0), 0),
        "{document:#}"
    );
    assert!(
        refused.load(Ordering::SeqCst) > 3,
        "the server never failed"
    );
}

#[test]
fn a_server_that_always_fails_for_one_stream_is_reported_and_the_other_stream_is_judged() {
    let server = Server::start(|request| match request.path.as_str() {
        "/v1/second" => Reply::status(503, "busy"),
        _ => items(200),
    });
    let mut config = config(&server);
    let columns = json!({ "id": "int64", "name": "string" });
    config["streams"]["second"]["schema"] = columns;
    let (document, code) = test(&Folder::new(), "source-http", &config, &[]);
    assert_eq!(with(&document, "fail"), [""; 0], "{document:#}");
    assert_eq!(code, 1, "{document:#}");
    assert_eq!(document["error"]["code"], "not_judged", "{document:#}");
    let clauses = document["clauses"].as_array().expect("clauses");
    let read = clauses
        .iter()
        .find(|clause| clause["id"] == "read")
        .expect("it");
    assert_eq!(read["outside"], true, "{read}");
    let reason = read["reason"].as_str().expect("why");
    assert!(
        reason.contains("second") && reason.contains("run the test again"),
        "{reason}"
    );
    let passed = with(&document, "pass");
    assert!(passed.iter().any(|id| id == "columns"), "{passed:?}");
}
