//! A cluster that is busy, and servers that answer wrongly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rapidbyte_sdk::prelude::WriteMode;
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rapidbyte_sdk::prelude::arrow_schema::{DataType, Field};
use rapidbyte_testkit::http::{Reply, Request, Server};
use rapidbyte_testkit::opensearch::{self, OpenSearchSpace};
use serde_json::{Value, json};

use crate::support::{Stream, batch, documents};

fn rows(numbers: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    batch(vec![(
        Arc::new(Field::new("k", DataType::Int64, false)),
        column,
    )])
}

fn numbers(space: &OpenSearchSpace<'_>) -> Vec<i64> {
    let all = documents(space, "t").into_iter();
    let mut all: Vec<i64> = all
        .map(|(_, source)| source["k"].as_i64().unwrap())
        .collect();
    all.sort_unstable();
    all
}

fn is_bulk(request: &Request) -> bool {
    request.path.ends_with("/_bulk")
}

/// A server between that answers a request itself, or passes it on.
fn between(
    port: u16,
    answer: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    Server::start(move |request| match answer(request) {
        Some(reply) => reply,
        None => opensearch::forward(port, request),
    })
}

#[test]
fn rows_that_the_cluster_cannot_take_now_are_sent_again_alone() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let (port, asked) = (server.port(), AtomicU32::new(0));
    let front = between(port, move |request| {
        if !is_bulk(request) {
            return None;
        }
        match asked.fetch_add(1, Ordering::Relaxed) {
            // The whole request, and then every second row of it.
            0 => Some(
                Reply::status(
                    429,
                    r#"{"error":{"type":"es_rejected_execution_exception","reason":"full"}}"#,
                )
                .header("retry-after", "0"),
            ),
            1 => {
                let lines: Vec<&[u8]> = request.body.split(|b| *b == b'\n').collect();
                let taken: Vec<&[u8]> = lines
                    .chunks(4)
                    .flat_map(|four| &four[..four.len().min(2)])
                    .copied()
                    .collect();
                let (status, said) = opensearch::ask(
                    port,
                    "POST",
                    &request.path,
                    &[taken.join(&b'\n'), b"\n".to_vec()].concat(),
                );
                assert_eq!(status, 200);
                let said: Value = serde_json::from_slice(&said).unwrap();
                let mut items = Vec::new();
                for (at, one) in said["items"].as_array().unwrap().iter().enumerate() {
                    items.push(one.clone());
                    let action: Value = serde_json::from_slice(lines[4 * at + 2]).unwrap();
                    items.push(json!({ "index": {
                        "_id": action["index"]["_id"], "status": 429,
                        "error": { "type": "es_rejected_execution_exception", "reason": "rejected execution of primary operation" },
                    } }));
                }
                Some(Reply::json(json!({ "items": items }).to_string()))
            }
            _ => None,
        }
    });
    let mut stream = Stream::new(&space, &rows(0..0).schema(), WriteMode::Append);
    stream.url = front.url("");
    stream.run("r", &[rows(0..20)], None).unwrap();
    assert_eq!(numbers(&space), (0..20).collect::<Vec<_>>());
    let bulks: Vec<usize> = front
        .requests()
        .iter()
        .filter(|request| is_bulk(request))
        .map(|request| request.text().lines().count() / 2)
        .collect();
    assert_eq!(bulks, [20, 20, 10]);
}

#[test]
fn of_two_versions_of_a_row_the_later_one_stays_if_the_earlier_one_is_sent_again() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let (port, asked) = (server.port(), AtomicU32::new(0));
    let front = between(port, move |request| {
        if !is_bulk(request) || asked.fetch_add(1, Ordering::Relaxed) > 0 {
            return None;
        }
        // The first operation is for later, the others are carried out.
        let text = request.text();
        let lines: Vec<&str> = text.lines().collect();
        let first: Value = serde_json::from_str(lines[0]).unwrap();
        let reason = json!({ "type": "es_rejected_execution_exception", "reason": "full" });
        let mut items = vec![
            json!({ "index": { "_id": first["index"]["_id"], "status": 429, "error": reason } }),
        ];
        if lines.len() > 2 {
            let rest = format!("{}\n", lines[2..].join("\n"));
            let (_, said) = opensearch::ask(port, "POST", &request.path, rest.as_bytes());
            let said: Value = serde_json::from_slice(&said).unwrap();
            items.extend(said["items"].as_array().unwrap().iter().cloned());
        }
        Some(Reply::json(json!({ "items": items }).to_string()))
    });
    let versions: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![7, 7]));
    let rows = batch(vec![
        (Arc::new(Field::new("id", DataType::Int64, false)), keys),
        (Arc::new(Field::new("k", DataType::Int64, false)), versions),
    ]);
    let mut stream = Stream::new(&space, &rows.schema(), WriteMode::Upsert).keyed("id");
    stream.url = front.url("");
    stream.run("r", &[rows], None).unwrap();
    assert_eq!(numbers(&space), [2]);
}

#[test]
fn a_cluster_that_stays_full_ends_the_run_for_a_retry() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let front = between(server.port(), |request| {
        is_bulk(request).then(|| Reply::status(429, "{}").header("retry-after", "0"))
    });
    let mut stream = Stream::new(&space, &rows(0..0).schema(), WriteMode::Append);
    stream.url = front.url("");
    let error = stream.fails(&[rows(0..3)]);
    assert_eq!(error.code, "opensearch_rate_limited");
    let bulks = front
        .requests()
        .iter()
        .filter(|request| is_bulk(request))
        .count();
    // One attempt and `max_retries`.
    assert_eq!(bulks, 3);
}

#[test]
fn a_row_that_the_cluster_never_takes_ends_the_run_for_a_retry() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let front = between(server.port(), |request| {
        if !is_bulk(request) {
            return None;
        }
        let text = request.text();
        let items: Vec<Value> = text
            .lines()
            .step_by(2)
            .map(|line| {
                let action: Value = serde_json::from_str(line).unwrap();
                let reason = json!({ "type": "unavailable_shards_exception", "reason": "primary shard is not active" });
                json!({ "index": { "_id": action["index"]["_id"], "status": 503, "error": reason } })
            })
            .collect();
        Some(Reply::json(json!({ "items": items }).to_string()))
    });
    let mut stream = Stream::new(&space, &rows(0..0).schema(), WriteMode::Append);
    stream.url = front.url("");
    let error = stream.fails(&[rows(0..3)]);
    assert_eq!(error.code, "opensearch_unavailable");
    assert!(error.message.contains("primary shard"), "{}", error.message);
    let bulks = front
        .requests()
        .iter()
        .filter(|request| is_bulk(request))
        .count();
    assert_eq!(bulks, 3);
}

#[test]
fn a_request_that_is_too_large_is_divided_until_one_row_is_refused() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    let front = between(server.port(), |request| {
        let is_large = request.text().matches("\n{\"_rapid").count() > 2
            || request.text().contains("\"k\":5}");
        (is_bulk(request) && is_large && !request.path.contains("rejects"))
            .then(|| Reply::status(413, "too large"))
    });
    let mut stream =
        Stream::new(&space, &rows(0..0).schema(), WriteMode::Append).keeping(space.name("rejects"));
    stream.url = front.url("");
    stream.run("r", &[rows(0..9)], None).unwrap();
    assert_eq!(numbers(&space), [0, 1, 2, 3, 4, 6, 7, 8]);
    space.done("POST", "rejects/_refresh", "");
    let kept = documents(&space, "rejects");
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0].1["code"], &kept[0].1["record"]),
        (&json!("document_too_large"), &json!(r#"{"k":5}"#))
    );
}

#[test]
fn rows_that_the_server_refuses_become_rejects() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let space = server.space();
    space.done(
        "PUT",
        "t",
        r#"{"mappings":{"properties":{"k":{"type":"byte"}}}}"#,
    );
    let mut stream =
        Stream::new(&space, &rows(0..0).schema(), WriteMode::Append).keeping(space.name("rejects"));
    stream.run("r", &[rows(120..130)], Some("1")).unwrap();
    assert_eq!(numbers(&space), (120..128).collect::<Vec<_>>());
    let page = stream
        .open()
        .rejects(&space.name("rejects"), "p", None, true)
        .unwrap();
    let records: Vec<String> = page
        .iter()
        .map(|kept| String::from_utf8(kept.reject.data.clone()).unwrap())
        .collect();
    assert_eq!(records, [r#"{"k":128}"#, r#"{"k":129}"#]);
    assert_eq!(
        (
            page[0].reject.code.as_str(),
            page[0].reject.column.as_deref()
        ),
        ("opensearch_refused", Some("k"))
    );
    let behind = stream
        .open()
        .rejects(&space.name("rejects"), "p", Some(&page[0].id), false)
        .unwrap();
    assert_eq!(
        (
            behind.len(),
            behind[0].id.as_str(),
            behind[0].reject.data.len()
        ),
        (1, page[1].id.as_str(), 0)
    );
    // An index of somebody else is not written to.
    stream.target.rejects.as_mut().unwrap().to = space.name("other");
    space.done("PUT", "other", "{}");
    assert_eq!(stream.fails(&[rows(0..1)]).code, "rejects_differ");
}

#[test]
fn an_answer_that_cannot_be_true_is_refused() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let item = |id: &str| json!({ "index": { "_id": id, "status": 201 } });
    let lies: [(&str, String); 7] = [
        ("no results", "{}".into()),
        (
            "too few results",
            json!({ "items": [item("x")] }).to_string(),
        ),
        (
            "results of others",
            json!({ "items": [item("x"), item("y"), item("z")] }).to_string(),
        ),
        ("not JSON", "<html>".into()),
        ("an error with a good status", String::new()),
        ("another operation", String::new()),
        ("an end in the middle", "{\"items\":[{\"index\":".into()),
    ];
    for (what, lie) in lies {
        let space = server.space();
        let front = between(server.port(), move |request| {
            if !is_bulk(request) {
                return None;
            }
            let text = request.text();
            let ids = text.lines().step_by(2).map(|line| {
                let action: Value = serde_json::from_str(line).unwrap();
                action["index"]["_id"].as_str().unwrap().to_owned()
            });
            let items: Vec<Value> = match what {
                "an error with a good status" => ids
                    .map(|id| json!({ "index": { "_id": id, "status": 200, "error": { "type": "x" } } }))
                    .collect(),
                "another operation" => ids.map(|id| json!({ "create": { "_id": id, "status": 201 } })).collect(),
                _ => return Some(Reply::json(lie.clone())),
            };
            Some(Reply::json(json!({ "items": items }).to_string()))
        });
        let mut stream = Stream::new(&space, &rows(0..0).schema(), WriteMode::Append);
        stream.url = front.url("");
        let error = stream.fails(&[rows(0..3)]);
        assert_eq!(
            error.code, "protocol_violation",
            "{what}: {}",
            error.message
        );
    }
}

#[test]
fn servers_that_are_not_known_are_refused_by_their_version() {
    for (root, code) in [
        (r#"{"version":{"number":"7.9.3"}}"#, "opensearch_version"),
        (
            r#"{"version":{"distribution":"opensearch","number":"1.3.20"}}"#,
            "opensearch_version",
        ),
        (r#"{"name":"something else"}"#, "protocol_violation"),
    ] {
        let front = Server::start(move |_| Reply::json(root));
        let config = json!({ "url": front.url("") }).to_string();
        let mut session: rapidbyte_sdk::destination::Session<dest_opensearch::OpenSearch> =
            rapidbyte_sdk::destination::open(&config).unwrap();
        let items = session.check().unwrap();
        let problem = items[0].problem.as_ref().unwrap();
        assert_eq!(problem.code, code);
    }
    let front = Server::start(|_| {
        Reply::status(
            401,
            r#"{"error":{"type":"security_exception","reason":"missing authentication credentials s3cret"}}"#,
        )
    });
    let config = json!({ "url": front.url(""), "username": "u", "password": "s3cret" }).to_string();
    let mut session: rapidbyte_sdk::destination::Session<dest_opensearch::OpenSearch> =
        rapidbyte_sdk::destination::open(&config).unwrap();
    let items = session.check().unwrap();
    let problem = items[0].problem.as_ref().unwrap();
    assert_eq!(problem.code, "opensearch_unauthorized");
    assert!(
        problem.message.contains("***") && !problem.message.contains("s3cret"),
        "{}",
        problem.message
    );
    let requests = front.requests();
    assert_eq!(
        requests[0].header("authorization"),
        Some("Basic dTpzM2NyZXQ=")
    );
}
