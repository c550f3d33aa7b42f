//! Pages by number, offset, cursor, link and URL; and pages that never end.

use super::*;

const ALL: u64 = 7;

/// The rows of a stream whose pages `answer` gives, which must be 1 to 7, once each.
#[track_caller]
fn reads_all(stream: &[&str], answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
    let server = Server::start(answer);
    let found = rows(&Folder::new(), &pipeline(&server.url(""), &[], stream));
    let found: Vec<u64> = found.iter().filter_map(|row| row["id"].as_u64()).collect();
    assert_eq!(found, (1..=ALL).collect::<Vec<_>>(), "{stream:?}");
}

/// The records behind `before`, at most 3.
fn three(before: u64) -> String {
    ids(before + 1..=ALL.min(before + 3))
}

#[test]
fn pages_by_number_and_by_offset() {
    let by_page = |request: &Request| {
        assert_eq!(number(request, "per_page"), Some(3));
        Reply::json(three(3 * (number(request, "p").expect("a page") - 1)))
    };
    let pagination = "pagination: { type: page, param: p, size_param: per_page, size: 3 }";
    reads_all(&[pagination], by_page);
    // The server gives fewer than were asked for.
    reads_all(
        &["pagination: { type: offset, size_param: limit, size: 100 }"],
        |request| Reply::json(three(number(request, "offset").expect("an offset"))),
    );
    reads_all(
        &[
            "records: data.items",
            "pagination: { type: page, start: 0, more: data.more }",
        ],
        |request| {
            let page = number(request, "page").expect("a page");
            assert!(page < 3, "more than there is");
            let more = page < 2;
            Reply::json(format!(
                "{{\"data\": {{\"items\": {}, \"more\": {more}}}}}",
                three(3 * page)
            ))
        },
    );
}

#[test]
fn pages_that_the_server_names() {
    let next = |before: u64| (before + 3 < ALL).then_some(before + 3);
    let cursor = move |request: &Request| {
        let before = number(request, "after").unwrap_or(0);
        let next = next(before).map_or("null".into(), |n| format!("\"{n}\""));
        Reply::json(format!(
            "{{\"rows\": {}, \"meta\": {{\"next\": {next}}}}}",
            three(before)
        ))
    };
    let stream = [
        "records: rows",
        "pagination: { type: cursor, param: after, next: meta.next }",
    ];
    reads_all(&stream, cursor);
    let link = move |request: &Request| {
        let before = number(request, "o").unwrap_or(0);
        let reply = Reply::json(three(before));
        match next(before) {
            Some(next) => reply.header(
                "Link",
                format!("</first>; rel=\"first\", <?o={next}>; rel=\"next\""),
            ),
            None => reply.header("Link", "</first>; rel=\"first\""),
        }
    };
    reads_all(&["pagination: { type: link_header }"], link);
    let url = move |request: &Request| {
        let before = number(request, "o").unwrap_or(0);
        let host = request.header("host").expect("a host").to_owned();
        let next = next(before).map_or("null".into(), |n| format!("\"http://{host}/items?o={n}\""));
        Reply::json(format!(
            "{{\"results\": {}, \"next\": {next}}}",
            three(before)
        ))
    };
    reads_all(
        &[
            "records: results",
            "pagination: { type: next_url, path: next }",
        ],
        url,
    );
}

#[test]
fn a_search_that_is_posted() {
    let stream = [
        "method: post",
        "body: { query: { active: true } }",
        "records: hits",
        "pagination: { type: offset, size_param: limit, size: 3 }",
    ];
    reads_all(&stream, |request| {
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(request.method, "POST");
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(
            (&body["query"]["active"], &body["limit"]),
            (&true.into(), &3.into())
        );
        Reply::json(format!(
            "{{\"hits\": {}}}",
            three(body["offset"].as_u64().expect("a number"))
        ))
    });
}

#[test]
fn parameters_of_every_request() {
    let server = Server::start(|_| Reply::json(ids([1])));
    let stream = ["query: { status: \"open & new\", n: 5, all: true }"];
    rows(
        &Folder::new(),
        &pipeline(&server.url(""), &["headers: { X-Version: \"3\" }"], &stream),
    );
    let seen = &server.requests()[0];
    let params = ["status", "n", "all"].map(|name| seen.param(name));
    assert_eq!(params, [Some("open & new"), Some("5"), Some("true")]);
    assert_eq!(seen.header("x-version"), Some("3"));
}

#[test]
fn pages_without_an_end_are_refused() {
    let refuses = |stream: &[&str], body: &'static str| {
        let server = Server::start(move |_| Reply::json(body));
        let text = pipeline(&server.url(""), &[], stream);
        Folder::new().refuses(&text, "http_repeated_page", 4, &["items", "pagination"]);
    };
    let page = r#"{"rows": [{"id": 1}], "next": "a"}"#;
    refuses(
        &[
            "records: rows",
            "schema: { id: int64 }",
            "pagination: { type: cursor, next: next }",
        ],
        page,
    );
    refuses(
        &[
            "records: rows",
            "schema: { id: int64 }",
            "pagination: { type: page }",
        ],
        page,
    );
    let url = r#"{"rows": [{"id": 1}], "next": "/items?x=1"}"#;
    refuses(
        &[
            "records: rows",
            "schema: { id: int64 }",
            "pagination: { type: next_url, path: next }",
        ],
        url,
    );
}
