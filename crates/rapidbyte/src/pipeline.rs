//! Pipelines as they are read.

use std::path::Path;

use rapidbyte_engine::document::{
    ChangeDetection, DroppedColumn, Notify, Pages, Schedule, SchemaChanges, SyncMode, WhenRunning,
    WriteMode,
};
use rapidbyte_engine::{Document, Environment, Failure};
use serde_json::{Map, Value};

/// A pipeline that was read: every key is known and every variable has its value.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub(crate) document: Document,
}

impl Pipeline {
    /// Reads a pipeline file of at most 4 MiB, and the `.env` beside it.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_file(file: &Path, environment: &Environment<'_>) -> Result<Self, Failure> {
        let document = Document::load(file, environment)?;
        Ok(Self { document })
    }

    /// Reads the text of a pipeline file. Its paths are relative to `folder`, whose `.env` is read.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_str(
        text: &str,
        folder: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        let document = Document::parse(text, TEXT, folder, environment)?;
        Ok(Self { document })
    }

    /// Reads a pipeline that a program made, with the same keys as in a file. Variables in strings (`${NAME}`) get
    /// their values, as in a file. Its paths are relative to `folder`, whose `.env` is read.
    ///
    /// # Errors
    /// The first mistake, with its key. Its line number counts in the value as indented JSON.
    pub fn from_value(
        value: &Value,
        folder: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        // JSON is YAML, and an escape of JSON is one of YAML.
        Self::from_str(&format!("{value:#}"), folder, environment)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.document.pipeline
    }

    /// The file that it was read from, as it was named.
    pub fn file(&self) -> &str {
        &self.document.file
    }

    /// Its directory, where relative paths start.
    pub fn folder(&self) -> &Path {
        &self.document.base_dir
    }

    /// Its source, as the pipeline names it.
    pub fn source(&self) -> &str {
        &self.document.source.connector
    }

    /// The configuration of its source.
    pub fn source_config(&self) -> &Map<String, Value> {
        &self.document.source.config
    }

    /// The names of the streams that it asks for.
    pub fn streams(&self) -> Vec<&str> {
        let streams = self.document.source.streams.iter();
        streams.map(|stream| stream.name.as_str()).collect()
    }

    /// Whether a run can delete rows that it does not read: with `write_mode: replace`, or `deletes`.
    pub fn deletes_rows(&self) -> bool {
        let mut streams = self.document.source.streams.iter();
        streams.any(|stream| {
            self.document.write_mode_of(stream) == WriteMode::Replace
                || self.document.deletes_of(stream).is_some()
        })
    }

    /// The same for a source that is a queue: the stream, which has to be one of the pipeline's, is read from the cursor in the
    /// destination on. `None` for another stream. Without declared columns, the columns are those that a body happens
    /// to have: one that it lacks is missing in it, and nobody has dropped it, so `dropped_column: fail`
    /// refuses nothing.
    pub fn of_queue(&self, stream: &str, declares_columns: bool) -> Option<Self> {
        let mut document = self.document.clone();
        let entry = document
            .source
            .streams
            .iter()
            .position(|one| one.name == stream)?;
        let mut one = document.source.streams.swap_remove(entry);
        one.sync_mode = SyncMode::Incremental;
        one.change_detection = ChangeDetection::Xmin;
        let changes = one.schema_changes.unwrap_or_default();
        let policy = changes.or(document.schema_changes).dropped_column;
        if !declares_columns && policy == Some(DroppedColumn::Fail) {
            one.schema_changes = Some(SchemaChanges {
                dropped_column: Some(DroppedColumn::Keep),
                ..changes
            });
        }
        // Their targets keep their names.
        document.beside = std::mem::replace(&mut document.source.streams, vec![one]);
        Some(Self { document })
    }

    /// Its destination, as the pipeline names it.
    pub fn destination(&self) -> &str {
        &self.document.destination.connector
    }

    /// Whether the rejects of a stream can be replayed.
    ///
    /// # Errors
    /// `replay_not_possible`, or `unknown_stream` for a stream that the pipeline does not have.
    pub fn ensure_replayable(&self, stream: &str) -> Result<(), Failure> {
        rapidbyte_engine::ensure_replayable(&self.document, stream)
    }

    /// Where its rejects are kept, if it keeps them.
    pub fn rejects_to(&self) -> Option<&str> {
        self.document.rejects.to.as_deref()
    }

    /// Where a command leaves a page for each run, if it does.
    pub fn pages(&self) -> Option<&Pages> {
        self.document.report.as_ref()
    }

    /// When a server runs it, if the file says so.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.document.schedule.as_ref()
    }

    /// Where a server sends messages about its runs, if the file says so.
    pub fn notify(&self) -> Option<&Notify> {
        self.document.notify.as_ref()
    }

    /// What a run does while another run of the pipeline is at work.
    pub fn when_running(&self) -> WhenRunning {
        self.document.when_running
    }

    /// A text without the values of its secrets.
    pub fn redact(&self, text: &str) -> String {
        self.document.redact(text)
    }

    /// A failure without the values of its secrets.
    pub fn redacted(&self, failure: &Failure) -> Failure {
        failure.redacted(&self.document)
    }
}

/// The name of a text in errors.
const TEXT: &str = "pipeline";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_read_like_the_text_of_a_file() {
        let environment = Environment::from_fn(|name| (name == "TABLE").then(|| "a".to_owned()))
            .without_env_file();
        let value = |more: &str| {
            json!({
                "version": 1, "pipeline": "p",
                "source": { "use": "a", "streams": ["${TABLE}\n\u{7f}\"\u{1F600}", more] },
                "destination": { "use": "b", "write_mode": "append" },
            })
        };
        let read = |more| Pipeline::from_value(&value(more), Path::new("."), &environment);
        let document = read("b").expect("a pipeline").document;
        let streams = document.source.streams.iter();
        let names: Vec<&str> = streams.map(|stream| stream.name.as_str()).collect();
        assert_eq!(names, ["a\n\u{7f}\"\u{1F600}", "b"]);
        let refused = read("${NONE}").expect_err("a variable without a value");
        assert_eq!(refused.code, "unset_variable");
        assert_eq!(refused.key.as_deref(), Some("source.streams[1]"));
    }
}
