//! `source-http` and the HTTP of the host, against a real server on this machine.

use rapidbyte_testkit::http::{Reply, Request, Server};
use serde_json::Value;

use crate::support::Folder;

mod broken;
mod credentials;
mod defaults;
mod increments;
mod pages;
mod reach;
mod rejects;
mod values;

/// A pipeline of one stream `items` into `out/items.jsonl`. `config` and `stream` are lines of
/// YAML below `config:` and below the stream.
fn pipeline(base: &str, config: &[&str], stream: &[&str]) -> String {
    let lines = |lines: &[&str], indent: usize| -> String {
        let indent = " ".repeat(indent);
        lines
            .iter()
            .map(|line| format!("{indent}{line}\n"))
            .collect()
    };
    format!(
        "version: 1\npipeline: t\nsource:\n  use: source-http\n  config:\n    base_url: {base}\n{}    \
         streams:\n      items:\n        path: items\n{}  streams: [items]\n\
         destination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}.jsonl\" }}\n  \
         write_mode: replace\nretry: {{ max_attempts: 1 }}\n",
        lines(config, 4),
        lines(stream, 8)
    )
}

/// The rows that a pipeline writes, without the column of unknown keys where it is NULL.
#[track_caller]
fn rows(folder: &Folder, pipeline: &str) -> Vec<Value> {
    folder.report(pipeline);
    let mut rows = written(folder, "out/items.jsonl");
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        if row.get("_rest").is_some_and(Value::is_null) {
            row.remove("_rest");
        }
    }
    rows
}

fn written(folder: &Folder, file: &str) -> Vec<Value> {
    let text = folder.read(file);
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    rows.collect()
}

/// `{"id": n}` for some numbers.
fn ids(numbers: impl IntoIterator<Item = u64>) -> String {
    let items: Vec<String> = numbers
        .into_iter()
        .map(|n| format!("{{\"id\": {n}}}"))
        .collect();
    format!("[{}]", items.join(", "))
}

fn number(request: &Request, name: &str) -> Option<u64> {
    request
        .param(name)
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn an_array_becomes_rows_of_files_and_check_counts_them() {
    let server = Server::start(|_| Reply::json(ids(1..=3)));
    let folder = Folder::new();
    let text = pipeline(&server.url("/v1"), &[], &[]);
    let found = rows(&folder, &text);
    assert_eq!(
        found,
        serde_json::from_str::<Vec<Value>>(&ids(1..=3)).expect("JSON")
    );
    let seen = server.requests();
    assert!(seen.iter().all(|request| request.path == "/v1/items"));
    assert_eq!(seen[0].header("accept"), Some("application/json"));
    let check = folder.rapidbyte(&["check", "p.yaml"]);
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    assert!(
        check.stdout.contains("3 records on the first page"),
        "{}",
        check.stdout
    );
}

#[test]
fn the_import_is_declared() {
    let asks_for = |name: &str| {
        let folder = Folder::new();
        let inspected = folder.rapidbyte(&["connector", "inspect", name, "--output", "json"]);
        let document: Value = serde_json::from_str(&inspected.stdout).expect("one document");
        let imports = document["asks_for"].clone();
        assert!(imports.is_array(), "{document:#}");
        imports.to_string()
    };
    let wishes = asks_for("source-http");
    for wish in [
        "import http",
        "config.base_url url",
        "config.auth.token_url url",
    ] {
        assert!(wishes.contains(&format!("{wish:?}")), "{wishes}");
    }
    assert!(!asks_for("source-file").contains("http"));
}
