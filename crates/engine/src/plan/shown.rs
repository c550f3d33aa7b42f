//! Texts of connectors for people to read, without the secrets of the pipeline.
//!
//! The engine redacts each text as soon as it gets the answer, so that no caller can forget to redact it. It does not
//! redact values that it looks up or compares: names of streams and columns, keys, cursors, and the location of a
//! plan. [`StreamPlan::location`](super::StreamPlan::location) is the location to show.

use rapidbyte_runtime::{CheckItem, Plan as Placed, Stream};

use crate::document::Document;

pub(super) fn streams(document: &Document, mut found: Vec<Stream>) -> Vec<Stream> {
    for stream in &mut found {
        texts(document, &mut stream.notes);
        texts(document, &mut stream.source_types);
    }
    found
}

pub(super) fn placed(document: &Document, mut placed: Placed) -> Placed {
    texts(document, &mut placed.statements);
    texts(document, &mut placed.notes);
    for column in &mut placed.columns {
        text(document, &mut column.target_type);
        texts(document, column.note.as_mut_slice());
    }
    placed
}

/// The problem of an item becomes a failure, which is redacted like every other.
pub(super) fn item(document: &Document, mut item: CheckItem) -> CheckItem {
    text(document, &mut item.name);
    text(document, &mut item.detail);
    item
}

pub(super) fn texts(document: &Document, texts: &mut [String]) {
    texts.iter_mut().for_each(|one| text(document, one));
}

fn text(document: &Document, text: &mut String) {
    *text = document.redact(text);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use rapidbyte_runtime::{ColumnPlan, Fit};

    use super::*;
    use crate::document::Environment;

    /// A pipeline whose source has the secret `hunter2!`.
    pub(crate) fn document() -> Document {
        let text = "version: 1\npipeline: t\nsource: { use: a, streams: [\"*\"], config: { a: \"${SECRET}\" } }\n\
                    destination: { use: b }\n";
        let environment =
            Environment::from_fn(|name| (name == "SECRET").then(|| "hunter2!".to_owned()));
        let environment = environment.without_env_file();
        Document::parse(text, "p.yaml", Path::new("."), &environment).expect("a pipeline")
    }

    #[test]
    fn texts_of_connectors_hide_secrets_and_names_stay() {
        let document = document();
        let text = || "a hunter2! b".to_owned();
        let stream = Stream {
            name: text(),
            schema: Vec::new(),
            source_types: vec![text()],
            primary_key: vec![text()],
            cursor_fields: Vec::new(),
            estimated_rows: None,
            estimated_bytes: None,
            inferred: Vec::new(),
            notes: vec![text()],
        };
        let stream = streams(&document, vec![stream]).remove(0);
        assert_eq!([&stream.source_types[0], &stream.notes[0]], ["a *** b"; 2]);
        assert_eq!([&stream.name, &stream.primary_key[0]], [&text(); 2]);
        let plan = Placed {
            location: text(),
            is_new: true,
            new_columns: Vec::new(),
            columns: vec![ColumnPlan {
                column: text(),
                target_type: text(),
                fit: Fit::Exact,
                note: Some(text()),
                stored_type: None,
            }],
            statements: vec![text()],
            notes: vec![format!("warning: {}", text())],
        };
        let plan = placed(&document, plan);
        assert_eq!([&plan.location, &plan.columns[0].column], [&text(); 2]);
        let column = &plan.columns[0];
        assert_eq!(column.note.as_deref(), Some("a *** b"));
        assert_eq!([&column.target_type, &plan.statements[0]], ["a *** b"; 2]);
        assert_eq!(plan.notes, ["warning: a *** b"]);
        let item = item(
            &document,
            CheckItem {
                name: text(),
                detail: text(),
                problem: None,
            },
        );
        assert_eq!([&item.name, &item.detail], ["a *** b"; 2]);
    }
}
