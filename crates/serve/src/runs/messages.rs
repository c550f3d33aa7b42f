//! The messages of `notify`: which events a pipeline wants to be told, and their bodies.

use rapidbyte::{Notify, NotifyUrl, Pipeline, StreamReport};
use serde_json::{Value, json};

use super::record::{Outcome, Run, RunState};

/// Bytes of an error in a message. A longer one loses its details.
const MAX_ERROR: usize = 16 << 10;
/// Characters of a text of such an error.
const MAX_TEXT: usize = 1000;
/// Statements that changed targets in a message.
const MAX_CHANGES: usize = 100;
/// Bytes of such a statement.
const MAX_STATEMENT: usize = 4 << 10;

/// The reason for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A run succeeded.
    Success,
    /// A run failed, a stream of the queue began to fail, or a job is dead.
    Failure,
    /// A run changed the columns of a target.
    SchemaChange,
}

impl Event {
    pub(super) const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::SchemaChange];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::SchemaChange => "schema_change",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The URL that is told about it.
    pub(super) fn url(self, notify: &Notify) -> Option<&NotifyUrl> {
        match self {
            Self::Success => notify.success.as_ref(),
            Self::Failure => notify.failure.as_ref(),
            Self::SchemaChange => notify.schema_change.as_ref(),
        }
    }
}

/// The events that a pipeline wants to be told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub success: bool,
    pub failure: bool,
    pub schema_change: bool,
}

impl Wanted {
    /// Nothing for a pipeline that does not exist.
    pub(super) fn of(pipeline: Option<&Pipeline>) -> Self {
        let Some(notify) = pipeline.and_then(Pipeline::notify) else {
            return Self::default();
        };
        Self {
            success: notify.success.is_some(),
            failure: notify.failure.is_some(),
            schema_change: notify.schema_change.is_some(),
        }
    }
}

/// A message that is not recorded yet: everything but its id.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub event: Event,
    pub pipeline: String,
    /// The stream whose dead jobs it counts.
    pub stream: Option<String>,
    pub content: Value,
}

/// The messages about a run that has this outcome. Cancelled, skipped and resumed runs are not told.
pub(super) fn of_run(run: &Run, outcome: &Outcome, wanted: Wanted, now_ms: i64) -> Vec<Draft> {
    let event = match outcome.state {
        RunState::Succeeded if wanted.success => Some(Event::Success),
        RunState::Failed | RunState::Interrupted if wanted.failure => Some(Event::Failure),
        _ => None,
    };
    let changes = outcome.changes.as_ref().filter(|_| wanted.schema_change);
    let changed = changes.map(|_| Event::SchemaChange);
    let draft = |event: Event| {
        let mut content = json!({
            "event": event.name(), "pipeline": run.pipeline, "server_time_ms": now_ms,
            "run": shown(run, outcome, now_ms),
        });
        if let (Event::SchemaChange, Some(changes)) = (event, changes) {
            content["schema_changes"] = changes.clone();
        }
        Draft {
            event,
            pipeline: run.pipeline.clone(),
            stream: None,
            content,
        }
    };
    event.into_iter().chain(changed).map(draft).collect()
}

/// A run that has ended, with counts in the place of its report.
fn shown(run: &Run, outcome: &Outcome, now_ms: i64) -> Value {
    let streams = outcome.report.as_ref().map(|report| &report["streams"]);
    let streams = streams.and_then(Value::as_array);
    let sum = |key: &str| {
        let all = streams.into_iter().flatten();
        all.filter_map(|stream| stream[key].as_u64()).sum::<u64>()
    };
    let counts = json!({
        "streams": streams.map_or(0, Vec::len), "rows": outcome.rows.unwrap_or(0),
        "bytes": outcome.report.as_ref().and_then(|report| report["bytes"].as_u64()).unwrap_or(0),
        "rejected": sum("rejected"),
    });
    let ended = Run {
        state: outcome.state,
        ended_ms: Some(now_ms),
        rows: outcome.rows,
        error: outcome.error.as_ref().map(short),
        report: None,
        ..run.clone()
    };
    let mut shown = json!(ended);
    if let Some(shown) = shown.as_object_mut() {
        shown.shift_remove("report");
        shown.insert("counts".into(), counts);
    }
    shown
}

/// A stream of the queue begins to fail.
pub(super) fn of_stream(pipeline: &str, stream: &str, error: &Value, now_ms: i64) -> Draft {
    Draft {
        stream: None,
        ..of_queue(pipeline, stream, json!({ "error": short(error) }), now_ms)
    }
}

/// A job of the queue is dead.
pub(super) fn of_dead(pipeline: &str, stream: &str, job: i64, error: &Value, now_ms: i64) -> Draft {
    let queue = json!({ "dead_jobs": 1, "last_dead_job": job, "error": short(error) });
    of_queue(pipeline, stream, queue, now_ms)
}

fn of_queue(pipeline: &str, stream: &str, more: Value, now_ms: i64) -> Draft {
    let mut queue = json!({ "stream": stream, "dead_jobs": 0, "last_dead_job": null });
    if let (Value::Object(queue), Value::Object(more)) = (&mut queue, more) {
        queue.extend(more);
    }
    Draft {
        event: Event::Failure,
        pipeline: pipeline.to_owned(),
        stream: Some(stream.to_owned()),
        content: json!({
            "event": Event::Failure.name(), "pipeline": pipeline, "server_time_ms": now_ms, "queue": queue,
        }),
    }
}

/// Adds the dead job of a message to an earlier one that was not sent yet.
pub(super) fn join(earlier: &mut Value, later: &Value) {
    let dead = earlier["queue"]["dead_jobs"].as_u64().unwrap_or(0);
    earlier["server_time_ms"] = later["server_time_ms"].clone();
    earlier["queue"] = later["queue"].clone();
    earlier["queue"]["dead_jobs"] = json!(dead.saturating_add(1));
}

/// Jobs of the queue have changed the target of a stream.
pub(super) fn of_change(pipeline: &str, stream: &str, statements: &Value, now_ms: i64) -> Draft {
    Draft {
        event: Event::SchemaChange,
        pipeline: pipeline.to_owned(),
        stream: None,
        content: json!({
            "event": Event::SchemaChange.name(), "pipeline": pipeline, "server_time_ms": now_ms,
            "queue": { "stream": stream, "dead_jobs": 0, "last_dead_job": null },
            "schema_changes": [{ "stream": stream, "statements": statements }],
        }),
    }
}

/// Statements without the secrets of the pipeline, at most [`MAX_CHANGES`]. Long ones are cut.
pub(super) fn statements_of(statements: &[String], pipeline: &Pipeline) -> Vec<String> {
    let statements = statements.iter().take(MAX_CHANGES);
    let redacted = statements.map(|statement| cut(&pipeline.redact(statement), MAX_STATEMENT));
    redacted.collect()
}

/// The statements that changed targets, without the secrets of the pipeline. `None` if there are none.
pub(super) fn changes_of(reports: &[StreamReport], pipeline: &Pipeline) -> Option<Value> {
    let mut left = MAX_CHANGES;
    let mut changes = Vec::new();
    for stream in reports {
        let mut statements = statements_of(&stream.schema_changes, pipeline);
        statements.truncate(left);
        if statements.is_empty() {
            continue;
        }
        left -= statements.len();
        changes.push(
            json!({ "stream": stream.name, "target": stream.location, "statements": statements }),
        );
    }
    (!changes.is_empty()).then(|| json!(changes))
}

/// An error without the secrets of the pipeline.
pub(super) fn redacted(pipeline: &Pipeline, error: &Value) -> Value {
    match error {
        Value::String(text) => json!(pipeline.redact(text)),
        Value::Array(items) => items.iter().map(|item| redacted(pipeline, item)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| (key.clone(), redacted(pipeline, value)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

/// An error, or its code, message and hint if it is too long.
fn short(error: &Value) -> Value {
    if error.to_string().len() <= MAX_ERROR {
        return error.clone();
    }
    let keys = ["class", "code", "message", "hint", "stream"];
    let members = keys.into_iter().filter_map(|key| {
        let text = error.get(key)?.as_str()?;
        Some((key.to_owned(), json!(cut(text, MAX_TEXT))))
    });
    let mut shown = Value::Object(members.collect());
    shown["is_shortened"] = json!(true);
    shown
}

fn cut(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(most)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_keeps_its_code_and_the_beginning_of_its_message() {
        let short = short(&json!({
            "class": "run", "code": "c", "message": "ä".repeat(2 * MAX_ERROR), "failures": ["x"],
        }));
        assert_eq!(
            (&short["code"], &short["class"]),
            (&json!("c"), &json!("run"))
        );
        assert_eq!(
            (&short["is_shortened"], &short["failures"]),
            (&json!(true), &Value::Null)
        );
        assert!(short.to_string().len() < 2 * MAX_TEXT, "{short}");
    }

    #[test]
    fn a_dead_job_that_joins_a_message_is_counted_and_named() {
        let of = |job| of_dead("p", "s", job, &json!({ "code": "c" }), job).content;
        let mut message = of(7);
        join(&mut message, &of(8));
        join(&mut message, &of(9));
        assert_eq!(
            message,
            json!({
                "event": "failure", "pipeline": "p", "server_time_ms": 9,
                "queue": { "stream": "s", "dead_jobs": 3, "last_dead_job": 9, "error": { "code": "c" } },
            })
        );
    }
}
