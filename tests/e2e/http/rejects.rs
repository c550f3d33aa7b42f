//! Records of an API that cannot be read become rejects, and are replayed.

use rapidbyte_testkit::http::{Reply, Server};
use rapidbyte_testkit::postgres::shared;
use serde_json::{Value, json};

use crate::support::Folder;

/// Two pages. A value does not fit, a key is unknown, and an item is not an object.
const FIRST: &str =
    r#"[{"id": 1, "n": "a"}, {"id": "x", "n": "b"}, {"id": 3, "n": "c", "more": [1]}]"#;
const SECOND: &str = r#"[7, {"id": 4,
    "n": "d"}, {"id": 5, "n": {"wide": 1.50}}]"#;

#[test]
fn records_that_cannot_be_read_are_kept_and_replayed() {
    let database = shared().database();
    let mut client = database.client();
    let server = Server::start(|request| match request.param("page") {
        Some("1") | None => Reply::json(FIRST),
        Some("2") => Reply::json(SECOND),
        _ => Reply::json("[]"),
    });
    let folder = Folder::new();
    let pipeline = |rejects: &str| {
        format!(
            "version: 1\npipeline: p\n{rejects}source:\n  use: source-http\n  config:\n    base_url: {}\n    streams:\n      \
             items:\n        path: items\n        schema: {{ id: int64, n: string }}\n        \
             pagination: {{ type: page }}\n  streams: [items]\ndestination:\n  use: dest-postgres\n  \
             config: {{ url: \"{}\", schema: raw }}\n  write_mode: append\n",
            server.url("/v1"),
            database.url()
        )
    };
    folder.refuses(
        &pipeline(""),
        "value_does_not_fit",
        4,
        &["page 1, record 2"],
    );
    let report = folder.report(&pipeline("rejects: { max_rows: 4, to: raw.bad }\n"));
    let stream = &report["streams"][0];
    assert_eq!(
        (&stream["rows"], &stream["rejected"]),
        (&json!(2), &json!(4)),
        "{report:#}"
    );
    let mut text = |sql: &str| -> String { client.query_one(sql, &[]).expect(sql).get(0) };
    let kept = "SELECT string_agg(concat_ws('|', substring(location from 'page.*'), column_name, code, record), ' ' \
                ORDER BY id) FROM raw.bad";
    assert_eq!(
        text(kept),
        "page 1, record 2|id|value_does_not_fit|{\"id\": \"x\", \"n\": \"b\"} \
         page 1, record 3|more|jsonl_unknown_field|{\"id\": 3, \"n\": \"c\", \"more\": [1]} \
         page 2, record 1|jsonl_not_an_object|7 \
         page 2, record 3|n|value_does_not_fit|{\"id\": 5, \"n\": {\"wide\": 1.50}}"
    );
    let lines = folder
        .rapidbyte(&["rejects", "show", "p.yaml", "--jsonl"])
        .stdout;
    let repaired = lines.lines().filter_map(|line| {
        let one: Value = serde_json::from_str(line).expect("JSON");
        let record = match one["column"].as_str() {
            Some("id") => "{\"id\": 2,\n \"n\": \"b\"}",
            Some("more") => "{\"id\": 3, \"n\": \"c\"}",
            // It fails again.
            Some("n") => "{\"id\": 5, \"n\": [1.50]}",
            _ => return None,
        };
        Some(json!({"id": one["id"], "record": record}).to_string())
    });
    folder.write("fixed.jsonl", repaired.collect::<Vec<_>>().join("\n"));
    let replay = [
        "rejects",
        "replay",
        "p.yaml",
        "--stream",
        "items",
        "--from",
        "fixed.jsonl",
    ];
    let ended = folder.rapidbyte(&replay);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        text("SELECT string_agg(concat(id, n), ' ' ORDER BY id) FROM raw.items"),
        "1a 2b 3c 4d"
    );
    assert_eq!(
        text(kept),
        "page 2, record 1|jsonl_not_an_object|7 page 2, record 3|n|value_does_not_fit|{\"id\": 5, \"n\": [1.50]}"
    );
}
