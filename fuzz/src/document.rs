//! The pipeline file.

use std::cell::Cell;
use std::path::Path;

use serde_json::Value;

use crate::engine::document::{Document, DocumentError, Environment};

thread_local! {
    /// Whether the last document took the value of the variable `SECRET`.
    static IS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// A document that is read says the same when its own keys are read again, every error has a code
/// and a sentence, and no secret is left in what is shown.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Files of this machine are not part of the input.
    if text.contains("file:") {
        return;
    }
    let document = match parse(&text) {
        Ok(document) => document,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for path in [
        "source",
        "destination.config",
        "source.streams[0].name",
        "nowhere[7].x",
    ] {
        let _ = document.locate(path);
    }
    assert!(
        !document
            .redact("the secret is hunter2!, is it?")
            .contains("hunter2!")
            || !IS_ASKED.get()
    );
    let json = keys(&document);
    // A `$` that came from `$$` or a variable would be looked up again.
    if json.contains('$') {
        return;
    }
    let again = parse(&json).unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert_eq!(keys(&again), json);
}

/// The document as a file would say it: what is absent is left out.
fn keys(document: &Document) -> String {
    let mut value = serde_json::to_value(document).expect("a document is a value");
    let is_absent = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    for stream in value["source"]["streams"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if let Some(stream) = stream.as_object_mut() {
            stream.retain(|_, value| !is_absent(value));
        }
    }
    if let Some(destination) = value["destination"].as_object_mut() {
        destination.retain(|_, value| !is_absent(value));
    }
    if let Some(top) = value.as_object_mut() {
        // Where nothing says how many are allowed, none are.
        top.retain(|key, value| {
            key != "rejects" || value.as_object().is_none_or(|it| !it.is_empty())
        });
    }
    value.to_string()
}

/// Why a pipeline file is refused.
pub fn refusal(text: &str) -> Option<String> {
    parse(text).err().map(|error| error.to_string())
}

fn parse(text: &str) -> Result<Document, DocumentError> {
    IS_ASKED.set(false);
    let lookup = |name: &str| match name {
        "SECRET" => {
            IS_ASKED.set(true);
            Some("hunter2!".to_owned())
        }
        "PORT" => Some("5432".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    let environment = Environment::from_fn(lookup).without_env_file();
    Document::parse(text, "p.yaml", Path::new("/nowhere"), &environment)
}
