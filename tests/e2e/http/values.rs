//! JSON becomes columns without losing a digit.

use super::*;

#[test]
fn numbers_keep_their_digits_and_nested_values_their_shape() {
    let body = r#"[{"id": 1, "big": 12345678901234567890, "price": 0.1, "at": "2026-11-21T10:00:00Z",
        "tags": ["a"], "who": {"name": "x", "age": 3}},
      {"id": 2, "big": 1.00000000000000000001, "price": null, "at": null, "tags": [], "who": null}]"#;
    let server = Server::start(move |_| Reply::json(body));
    let url = server.url("");
    let folder = Folder::new();
    let found = rows(&folder, &pipeline(&url, &[], &[]));
    assert_eq!(found[0]["who"]["age"], 3);
    assert_eq!(found[0]["at"], "2026-11-21T10:00:00Z");
    let text = folder.read("out/items.jsonl");
    assert!(
        text.contains("12345678901234567890") && text.contains("1.00000000000000000001"),
        "{text}"
    );
    let folder = Folder::new();
    rows(&folder, &pipeline(&url, &[], &["nested: columns"]));
    assert!(folder.read("out/items.jsonl").contains("age"));
    let schema = "schema: { id: int64 not null, big: \"decimal(40, 20)\", at: timestamptz }";
    let declared = [schema, "unknown_keys: ignore"];
    let folder = Folder::new();
    rows(&folder, &pipeline(&url, &[], &declared));
    let text = folder.read("out/items.jsonl");
    assert!(
        text.contains("12345678901234567890.00000000000000000000")
            || text.contains("12345678901234567890"),
        "{text}"
    );
    assert!(
        text.contains("1.00000000000000000001") && !text.contains("price"),
        "{text}"
    );
}

#[test]
fn a_later_value_that_does_not_fit_is_named() {
    let answer = |second: &'static str| {
        Server::start(move |request: &Request| match number(request, "page") {
            Some(1) => Reply::json(ids(1..=2)),
            Some(2) => Reply::json(second),
            _ => Reply::json("[]"),
        })
    };
    let stream = ["pagination: { type: page }"];
    for (second, code, column, config) in [
        (
            r#"[{"id": 3}, {"id": "x"}]"#,
            "value_does_not_fit",
            "id",
            "sample_records: 2",
        ),
        (
            r#"[{"id": 3}, {"id": 4.5}]"#,
            "value_does_not_fit",
            "id",
            "sample_records: 2",
        ),
        (
            r#"[{"id": 3}, [4]]"#,
            "jsonl_not_an_object",
            "items",
            "sample_records: 2",
        ),
    ] {
        let server = answer(second);
        let folder = Folder::new();
        let text = pipeline(&server.url(""), &[config], &stream)
            + "schema_changes: { type_change: fail }\n";
        folder.refuses(&text, code, 4, &[column, "page 2, record 2", "items"]);
        assert!(folder.files("out").is_empty(), "{second}");
    }
    // With enough of a sample they have a common type.
    let server = answer(r#"[{"id": 3}, {"id": "x"}]"#);
    let found = rows(&Folder::new(), &pipeline(&server.url(""), &[], &stream));
    assert_eq!(found.len(), 4);
    let server = answer(r#"[{"id": 3}, {"id": 4, "new": 1}]"#);
    let declared = [
        "pagination: { type: page }",
        "schema: { id: int32 not null }",
    ];
    let text = pipeline(&server.url(""), &[], &declared);
    Folder::new().refuses(
        &text,
        "jsonl_unknown_field",
        4,
        &["new", "unknown_keys: collect"],
    );
}

#[test]
fn an_object_around_the_records_is_not_a_record() {
    let items = r#"{"data": {"total": 2, "items": [{"id": 1}, {"id": 2}], "tags": ["a"]}}"#;
    let none = r#"{"data": {"total": 0, "items": []}}"#;
    let hint = "write records: data.items;";
    let paged = "pagination: { type: page }";
    for (body, stream) in [
        (items, vec!["records: data"]),
        (
            items,
            vec![
                "records: data",
                "schema: { id: int64 }",
                "unknown_keys: ignore",
            ],
        ),
        (none, vec!["records: data", paged]),
    ] {
        let server = Server::start(move |_| Reply::json(body));
        let text = pipeline(&server.url(""), &[], &stream);
        let folder = Folder::new();
        folder.refuses(
            &text,
            "http_no_records",
            4,
            &["records: data is one object", hint],
        );
        assert!(folder.files("out").is_empty());
    }
    // An object is a record if the stream names one of its columns, or if it holds no objects.
    let one = r#"{"me": {"id": 7, "plans": [{"name": "a"}], "tags": ["x"]}}"#;
    let no_objects = r#"{"me": {"id": 7, "plans": [], "tags": ["x"]}}"#;
    let bare = r#"{"id": 7, "tags": ["x"]}"#;
    for (body, stream) in [
        (one, vec!["records: me", "primary_key: [id]"]),
        (
            one,
            vec![
                "records: me",
                "schema: { id: int64, plans: json, tags: json }",
            ],
        ),
        (no_objects, vec!["records: me"]),
        (bare, vec!["records: ''"]),
    ] {
        let server = Server::start(move |_| Reply::json(body));
        let found = rows(&Folder::new(), &pipeline(&server.url(""), &[], &stream));
        assert_eq!(
            (found.len(), &found[0]["id"]),
            (1, &Value::from(7)),
            "{stream:?}"
        );
    }
}

#[test]
fn without_records_the_whole_response_is_an_array() {
    for body in [r#"{"id": 7}"#, "null", "7"] {
        let server = Server::start(move |_| Reply::json(body));
        let text = pipeline(&server.url(""), &[], &["primary_key: [id]"]);
        Folder::new().refuses(&text, "http_no_records", 4, &["not an array of records"]);
    }
}

#[test]
fn the_error_for_a_parameter_that_is_not_a_scalar_says_what_is_allowed() {
    for (value, what) in [
        ("[1]", "list"),
        ("{ a: 1 }", "keys and values"),
        ("null", "null"),
    ] {
        let query = format!("query: {{ since: {value} }}");
        let text = pipeline("http://127.0.0.1:1", &[], &[&query]);
        let parts = [
            "expected a string, a number or a boolean",
            what,
            "streams.items.query.since",
        ];
        Folder::new().refuses(&text, "invalid_config", 2, &parts);
    }
    let server = Server::start(|_| Reply::json(ids([1])));
    let query = "query: { text: a b, number: 1.5, yes: true }";
    rows(&Folder::new(), &pipeline(&server.url(""), &[], &[query]));
    let asked = server.requests();
    let of = |name: &str| asked[0].param(name).map(str::to_owned);
    assert_eq!(of("number").as_deref(), Some("1.5"));
    assert_eq!(of("yes").as_deref(), Some("true"));
}
