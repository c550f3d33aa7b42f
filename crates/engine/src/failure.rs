//! The one error of the engine, made for the person who reads it.

use std::fmt;

use rapidbyte_runtime::{ConnectorError, Error, ErrorKind, Phase};
use serde::{Serialize, Serializer};

use crate::document::{Document, DocumentError, Location};
use crate::machine;
use crate::report::{StreamReport, Warning};

/// The side that has to act. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The run was interrupted; nobody is to blame.
    Cancelled,
    /// The operator: the pipeline file or a connector's configuration.
    Config,
    /// The operator: a server, a credential, a permission, a disk.
    Environment,
    /// The owner of the data: the data does not match its declared schema.
    Contract,
    /// Nobody: another run of the pipeline is at work.
    Busy,
    /// A connector or the engine.
    Run,
}

/// Why a plan or a run did not succeed.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The side that has to act.
    pub class: Class,
    /// The kind that a connector gave it. The class follows from it.
    #[serde(skip)]
    pub kind: Option<ErrorKind>,
    /// Stable and short, such as `unknown_key`.
    pub code: String,
    /// The description of the failure.
    pub message: String,
    /// The next action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// `file:line:column` of the pipeline, or a place in the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The key of the pipeline file, such as `source.config.path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The connector that reported it or in which it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
    /// The function of the contract that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<&'static str>,
    /// The phase of that call as the connector reported it, such as `decode`.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "by_name")]
    pub phase: Option<Phase>,
    /// Set for a transient failure: a retry may succeed after this many milliseconds at least.
    #[serde(skip)]
    pub passes_after_ms: Option<u32>,
    /// It stops the run, whatever else there is to move: a server cannot be reached, a connector
    /// does not open, a newer run has taken over, or the run holds up others.
    #[serde(skip)]
    pub stops_run: bool,
    /// The streams of the run.
    #[serde(flatten)]
    pub streams: Box<Streams>,
}

/// The outcome of the streams of a run that failed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Streams {
    /// The streams that were committed before the run stopped: they stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub committed: Vec<String>,
    /// The failures, where several streams failed; empty where one did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// The reports of the committed streams.
    #[serde(skip)]
    pub reports: Vec<StreamReport>,
    /// Warnings for the operator beside the failures.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Other sessions queue for a lock that the snapshot of the run holds: only the end of the run frees the table.
const LOCK_QUEUED: &str = "lock_queued";
/// Rows before the cursor are not in the target any more: the engine says so, and connectors do.
pub(crate) const LOST_ROWS: &str = "target_lost_rows";
/// The hint for it, also where a connector gives no hint.
pub(crate) const LOST_ROWS_HINT: &str = "read this stream from its first row: `rapidbyte run PIPELINE --full-refresh \
     --select STREAM`; where a backup restored the table together with its checkpoint, or the rows are meant to be \
     gone, `rapidbyte state rebind PIPELINE STREAM` (or `--all`) lets it resume";

/// Names and failures that one message shows; `--output json` has all of them.
const SHOWN: usize = 20;

impl Failure {
    /// A failure without a place yet. Where the message tells of a limit of the machine, that is
    /// the code, whoever ran into it.
    pub fn new(class: Class, code: &str, message: impl fmt::Display) -> Self {
        let mut failure = Self {
            class,
            kind: None,
            code: code.into(),
            message: message.to_string(),
            hint: None,
            location: None,
            key: None,
            stream: None,
            column: None,
            connector: None,
            export: None,
            phase: None,
            passes_after_ms: None,
            stops_run: false,
            streams: Box::default(),
        };
        name_limit(&mut failure);
        failure
    }

    /// The failure of a run that tried every stream. None if no stream failed.
    pub(crate) fn of_streams(failures: Vec<Self>, streams: usize) -> Option<Self> {
        let text = format!("{} of {streams} streams failed", failures.len());
        let hint = "follow the hint of each error, then run again: the next run reads every stream, and resumes \
             the failed ones from their last commit";
        Self::of_several(failures, text, hint)
    }

    /// The failure of the only stream that failed, or one failure that lists several. It has the class
    /// and the code of the listed failures where all are equal. None if no stream failed.
    pub(crate) fn of_several(mut failures: Vec<Self>, text: String, hint: &str) -> Option<Self> {
        let first = failures.first()?;
        if failures.len() == 1 {
            return failures.pop();
        }
        let has_one_class = failures.iter().all(|failure| failure.class == first.class);
        let class = match has_one_class {
            true => first.class,
            false => Class::Run,
        };
        let code = match failures.iter().all(|failure| failure.code == first.code) {
            true => first.code.clone(),
            false => "streams_failed".to_owned(),
        };
        let mut failure = Self::new(class, &code, text).hint(hint);
        failure.streams.failures = failures;
        Some(failure)
    }

    /// A thread of ours panicked while it worked for one side.
    pub(crate) fn panicked(side: &str) -> Self {
        let text = format!("the {side}'s thread panicked: the engine has a bug");
        Self::new(Class::Run, "internal", text)
    }

    /// The local history cannot be used.
    pub fn of_state(error: rapidbyte_state::StateError) -> Self {
        if error.is_busy {
            let hint = match error.holder {
                Some(holder) if holder.is_stopped => format!(
                    "continue that process (kill -CONT {pid}) or end it (kill {pid}), then run again",
                    pid = holder.pid
                ),
                Some(_) => "wait until that process has ended, or end it; then run again".into(),
                None => {
                    "find a rapidbyte process that is stopped or hangs; continue it or end it, \
                         then run again"
                        .into()
                }
            };
            return Self::new(Class::Environment, "state_busy", error).hint(hint);
        }
        Self::new(Class::Environment, "state_unusable", error).hint(
            "make the directory of .rapidbyte/state.db beside the pipeline writable, or name \
                 another file for the history of runs with --state",
        )
    }

    /// The command was interrupted.
    pub fn cancelled() -> Self {
        Self::new(Class::Cancelled, "cancelled", "interrupted")
    }

    /// A mistake at a key of the pipeline file.
    pub fn at_key(document: &Document, key: &str, code: &str, message: impl fmt::Display) -> Self {
        let mut failure = Self::new(Class::Config, code, message);
        failure.locate(document, key);
        failure
    }

    pub(crate) fn locate(&mut self, document: &Document, key: &str) {
        self.set_place(document, document.locate(key));
        self.key = Some(document.in_file(key).into_owned());
    }

    pub(crate) fn set_place(&mut self, document: &Document, place: Option<Location>) {
        let shown = |place: Location| format!("{}:{}:{}", document.file, place.line, place.column);
        self.location = place.map(shown);
    }

    /// Says what to do next; a limit of the machine has a hint of its own.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        if self.code != machine::CODE {
            self.hint = Some(hint.to_string());
        }
        self
    }

    /// Names the stream.
    #[must_use]
    pub fn in_stream(mut self, stream: &str) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// From a call into a connector. `side` is `source` or `destination`: a location such as
    /// `config.path` then becomes the line of `source.config.path` in the pipeline file.
    pub fn from_runtime(error: Error, document: &Document, side: &str) -> Self {
        let Error::Failed {
            connector,
            export,
            phase,
            error,
        } = error
        else {
            return Self::cancelled();
        };
        let ConnectorError {
            kind,
            code,
            message,
            hint,
            stream,
            column,
            location,
        } = *error;
        let class = match kind {
            ErrorKind::Config => Class::Config,
            ErrorKind::Auth | ErrorKind::Connection => Class::Environment,
            ErrorKind::Data | ErrorKind::Schema => Class::Contract,
            ErrorKind::Transient
            | ErrorKind::RateLimited(_)
            | ErrorKind::Superseded
            | ErrorKind::Internal => Class::Run,
        };
        let mut failure = Self::new(class, &shown_word(document, &code), message);
        failure.passes_after_ms = match kind {
            ErrorKind::Transient | ErrorKind::Connection => Some(0),
            // More than a month is for ever.
            ErrorKind::RateLimited(after) => {
                Some(after.unwrap_or(0).try_into().unwrap_or(u32::MAX))
            }
            _ => None,
        };
        // Servers that do not let us in would be asked once more for each stream.
        failure.stops_run = export == "open"
            || matches!(kind, ErrorKind::Connection | ErrorKind::Superseded)
            || code == LOCK_QUEUED;
        failure.kind = Some(kind);
        failure.hint = hint;
        if failure.code == LOST_ROWS && failure.hint.is_none() {
            failure.hint = Some(LOST_ROWS_HINT.into());
        }
        name_limit(&mut failure);
        let class = failure.class;
        failure.stream = stream;
        failure.column = column;
        failure.connector = Some(connector);
        failure.export = Some(export);
        failure.phase = phase;
        match location {
            Some(place) if place == "config" || place.starts_with("config.") => {
                failure.locate(document, &format!("{side}.{place}"));
            }
            Some(place) => failure.location = Some(place),
            None if stream_key(&code).is_some() => {
                let key = stream_key(&code).unwrap_or_default();
                failure.locate(document, &key_of_stream(document, &failure, key))
            }
            None if class == Class::Config => failure.locate(document, &format!("{side}.config")),
            None => {}
        }
        failure
    }

    /// Takes the values of the document's secrets out of every text, and names the pipeline's file and the stream in
    /// the commands of the hint, which connectors write with PIPELINE and STREAM.
    pub fn redact(&mut self, document: &Document) {
        let commands = self
            .hint
            .as_mut()
            .filter(|hint| hint.contains("rapidbyte "));
        if let Some(hint) = commands {
            let stream = self.stream.as_deref();
            let names = [
                ("PIPELINE", Some(document.file.as_str())),
                ("STREAM", stream),
            ];
            for (word, name) in names {
                if let Some(name) = name {
                    *hint = hint.replace(&format!(" {word}"), &format!(" {}", shell_word(name)));
                }
            }
        }
        let texts = [
            Some(&mut self.message),
            self.hint.as_mut(),
            self.location.as_mut(),
            self.stream.as_mut(),
            self.column.as_mut(),
        ];
        for text in texts.into_iter().flatten() {
            *text = document.redact(text);
        }
        if let Some(connector) = &mut self.connector {
            *connector = shown_word(document, connector);
        }
        for failure in &mut self.streams.failures {
            failure.redact(document);
        }
    }

    /// A copy without the document's secrets, as [`redact`](Self::redact) makes it.
    #[must_use]
    pub fn redacted(&self, document: &Document) -> Self {
        let mut failure = self.clone();
        failure.redact(document);
        failure
    }

    /// 130 interrupted, 2 configuration, 3 environment, 4 data against its schema, 5 another
    /// run is at work, 1 the rest.
    pub fn exit_code(&self) -> u8 {
        match self.class {
            Class::Cancelled => 130,
            Class::Config => 2,
            Class::Environment => 3,
            Class::Contract => 4,
            Class::Busy => 5,
            Class::Run => 1,
        }
    }
}

/// A name as it is written in a shell: in quotes where it needs them.
fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._-/+:@%,=".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

/// A connector's name or code without secrets. A name of plain words stays, because people look it up, and it can
/// contain a short secret by chance.
fn shown_word(document: &Document, name: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-');
    match name.bytes().all(is_word) {
        true => name.to_owned(),
        false => document.redact(name),
    }
}

/// The key of a stream that an error of a source is about.
fn stream_key(code: &str) -> Option<&'static str> {
    Some(match code {
        "invalid_where" => "where",
        "invalid_query" | "query_columns" => "query",
        "invalid_lag" | "lag_needs_upsert" | "http_no_lag" => "lag",
        "no_cursor_field"
        | "unknown_cursor_field"
        | "duplicate_cursor_field"
        | "too_many_cursor_fields"
        | "unusable_cursor_field"
        | "http_cursor_field" => "cursor_field",
        "invalid_cursor_initial" => "cursor_initial",
        _ => return None,
    })
}

/// That key of the failure's stream.
fn key_of_stream(document: &Document, failure: &Failure, key: &str) -> String {
    let stream = failure.stream.as_deref().unwrap_or_default();
    match document.source.entry_for(stream) {
        Some(index) => format!("source.streams[{index}].{key}"),
        None => "source.streams".into(),
    }
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        let mut failure = Self::new(Class::Config, error.code, &error.message);
        failure.hint = error.hint.clone();
        failure.location = Some(match (error.line, error.column) {
            (0, _) => error.file.clone(),
            (line, column) => format!("{}:{line}:{column}", error.file),
        });
        failure.key = Some(error.path.clone()).filter(|path| !path.is_empty());
        failure
    }
}

/// The first names, and how many more there are.
fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn by_name<S: Serializer>(phase: &Option<Phase>, serializer: S) -> Result<S::Ok, S::Error> {
    phase.map(Phase::name).serialize(serializer)
}

/// Where, what and what to do, on one to three lines.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text of a connector may have line breaks: its lines must not look like lines of the engine.
        let flat = |text: &str| text.replace('\n', " ");
        write!(f, "error[{}]", flat(&self.code))?;
        if let Some(location) = &self.location {
            write!(f, " {}", flat(location))?;
        }
        match (
            self.stream.as_deref().map(flat),
            self.column.as_deref().map(flat),
        ) {
            (Some(stream), Some(column)) => write!(f, " {stream}.{column}")?,
            (Some(stream), None) => write!(f, " stream {stream}")?,
            (None, Some(column)) => write!(f, " column {column}")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.message.replace('\n', "\n  "))?;
        if let (Some(connector), Some(export)) = (&self.connector, &self.export) {
            match self.phase {
                None | Some(Phase::Other) => write!(f, " [{connector}, {export}]")?,
                Some(phase) => write!(f, " [{connector}, {export}, {}]", phase.name())?,
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", hint.replace('\n', "\n  "))?;
        }
        let Streams {
            committed,
            failures,
            ..
        } = self.streams.as_ref();
        if !committed.is_empty() {
            write!(f, "\n  committed before: {}", listed(committed))?;
        }
        for failure in failures.iter().take(SHOWN) {
            write!(f, "\n{failure}")?;
        }
        match failures.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more: --output json lists all of them"),
        }
    }
}

impl std::error::Error for Failure {}

/// Gives a failure the code `machine_limit` if a limit of the machine caused it.
fn name_limit(failure: &mut Failure) {
    let found = machine::LIMITS
        .iter()
        .find(|(said, _)| failure.message.contains(said));
    let Some((said, hint)) = found else { return };
    failure.class = Class::Environment;
    failure.code = machine::CODE.into();
    failure.hint = Some((*hint).into());
    if let Some(rest) = failure.message.strip_prefix("stopped: ") {
        failure.message = rest.into();
    }
    // A retry does not help: the file stays too large, and the limit of addresses stays.
    if matches!(*said, "(os error 12)" | "(os error 27)") {
        failure.passes_after_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_a_connectors_error_is_without_secrets() {
        let document = crate::plan::shown::tests::document();
        let text = || "x-hunter2!-y".to_owned();
        let error = |code: String| {
            let mut error = ConnectorError::new(ErrorKind::Data, &code, text()).hint(text());
            error.stream = Some(text());
            error.column = Some(text());
            error.location = Some(text());
            Error::Failed {
                connector: "c".into(),
                export: "open",
                phase: None,
                error: Box::new(error),
            }
        };
        let mut failure = Failure::from_runtime(error(text()), &document, "source");
        // The engine looks the stream up.
        assert_eq!(failure.stream, Some(text()));
        failure.redact(&document);
        let shown = serde_json::to_string(&failure).expect("JSON") + &failure.to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(shown.matches("x-***-y").count(), 12, "{shown}");
        let failure = Failure::from_runtime(error("file_io".into()), &document, "source");
        assert_eq!(failure.code, "file_io");
    }

    #[test]
    fn a_limit_of_the_machine_is_no_fault_of_a_connector() {
        for (message, word) in [
            ("stopped: Cannot allocate memory (os error 12)", "ulimit -v"),
            ("out/a.csv: Too many open files (os error 24)", "ulimit -n"),
            ("out/a.csv: File too large (os error 27)", "ulimit -f"),
        ] {
            let mut failure = Failure::new(Class::Run, "trapped", message)
                .hint("report it to the connector's author: the connector has a bug");
            failure.passes_after_ms = Some(0);
            name_limit(&mut failure);
            assert_eq!(failure.code, "machine_limit", "{message}");
            assert_eq!(failure.exit_code(), 3, "{message}");
            let hint = failure.hint.unwrap_or_default();
            assert!(hint.contains(word) && !hint.contains("author"), "{hint}");
            assert!(
                !failure.message.starts_with("stopped"),
                "{}",
                failure.message
            );
        }
        let mut failure = Failure::new(Class::Run, "trapped", "stopped: unreachable");
        name_limit(&mut failure);
        assert_eq!(failure.code, "trapped");
    }
}
