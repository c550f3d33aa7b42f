//! A run as the server records it.

use rapidbyte::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Bytes of a report or an error in the store. Larger ones lose their details.
const MAX_DETAILS: usize = 256 << 10;
/// Patterns of a request.
const MAX_PATTERNS: usize = 1000;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 1024;

/// The reason why a run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// The schedule of the pipeline.
    Schedule,
    /// A request.
    Manual,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It waits for a thread, or for another run of its pipeline.
    Queued,
    /// It is at work.
    Running,
    /// All of its rows are committed.
    Succeeded,
    /// The error says why. Streams that committed before stay committed.
    Failed,
    /// A client cancelled it, or a newer run took its place.
    Cancelled,
    /// It did not begin, because another run of the pipeline was active.
    Skipped,
    /// The server ended during the run. Another run resumes it.
    Interrupted,
}

impl Trigger {
    const ALL: [Self; 2] = [Self::Schedule, Self::Manual];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Manual => "manual",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl RunState {
    pub(crate) const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Skipped,
        Self::Interrupted,
    ];

    /// Their names.
    pub(crate) const NAMES: [&'static str; 7] = [
        Self::ALL[0].name(),
        Self::ALL[1].name(),
        Self::ALL[2].name(),
        Self::ALL[3].name(),
        Self::ALL[4].name(),
        Self::ALL[5].name(),
        Self::ALL[6].name(),
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether it stays as it is.
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// The part of a pipeline that a run moves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Patterns of streams and columns, as of `rapidbyte run --select`. Empty: everything.
    pub select: Vec<String>,
    /// Incremental streams begin again with their first row.
    pub full_refresh: bool,
}

impl Options {
    /// Why a request with these options is refused.
    pub(super) fn problem(&self) -> Option<String> {
        if self.select.len() > MAX_PATTERNS {
            return Some(format!("select has more than {MAX_PATTERNS} patterns"));
        }
        let is_wrong = |pattern: &String| pattern.is_empty() || pattern.len() > MAX_PATTERN;
        let wrong = self.select.iter().any(is_wrong);
        wrong.then(|| format!("a pattern of select is empty, or longer than {MAX_PATTERN} bytes"))
    }
}

/// A run. Times are milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Rises with each run; never used again.
    pub id: i64,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The reason why it began.
    pub trigger: Trigger,
    /// The moment that the schedule names.
    pub scheduled_ms: Option<i64>,
    /// Its state.
    pub state: RunState,
    /// The part of the pipeline that it moves.
    pub options: Options,
    /// From 1. The process of the server ended during each attempt before.
    pub attempt: u32,
    /// The run that the server interrupted, and that this one resumes.
    pub resumes: Option<i64>,
    /// When it was recorded.
    pub queued_ms: i64,
    /// When it began.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Rows that it committed.
    pub rows: Option<u64>,
    /// The error of a run that did not succeed, with `code`, `message` and `hint`.
    pub error: Option<Value>,
    /// The report, as `rapidbyte run --output json` prints it; of a failed run the streams that it committed. A report of
    /// more than 256 KiB has counts alone.
    pub report: Option<Value>,
    /// Its last lines, when it has ended: at most 200, each with `from`, `level` and `message`, and its `stream` if it has
    /// one.
    pub log: Option<Value>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub state: RunState,
    pub rows: Option<u64>,
    pub error: Option<Value>,
    pub report: Option<Value>,
    pub log: Option<Value>,
    /// The statements that changed targets, for a message.
    pub changes: Option<Value>,
}

impl Outcome {
    /// `changes` are statements without secrets.
    pub(super) fn of_report(report: &rapidbyte::Report, changes: Option<Value>) -> Self {
        Self {
            state: RunState::Succeeded,
            rows: Some(report.rows),
            error: None,
            report: Some(bounded(json!(report))),
            log: None,
            changes,
        }
    }

    /// `failure` has no secrets any more.
    pub(super) fn of_failure(state: RunState, failure: &Failure) -> Self {
        let streams = &failure.streams;
        let sum =
            |of: fn(&rapidbyte::StreamReport) -> u64| streams.reports.iter().map(of).sum::<u64>();
        let rows = sum(|stream| stream.rows);
        let report = json!({
            "rows": rows, "bytes": sum(|stream| stream.bytes),
            "warnings": streams.warnings, "streams": streams.reports,
        });
        let mut error = json!(failure);
        if error.to_string().len() > MAX_DETAILS {
            error = self::error(&failure.code, &failure.message, failure.hint.as_deref());
        }
        let is_empty = streams.reports.is_empty() && streams.warnings.is_empty();
        Self {
            state,
            rows: Some(rows),
            error: Some(error),
            report: (!is_empty).then(|| bounded(report)),
            log: None,
            changes: None,
        }
    }

    /// A run that did not reach the engine, or that the server ended.
    pub(super) fn of_error(state: RunState, error: Value) -> Self {
        Self {
            state,
            rows: None,
            error: Some(error),
            report: None,
            log: None,
            changes: None,
        }
    }
}

/// An error of the server about a run.
pub(super) fn error(code: &str, message: &str, hint: Option<&str>) -> Value {
    json!({ "code": code, "message": message, "hint": hint })
}

/// The report, or its counts if it is too large.
fn bounded(report: Value) -> Value {
    if report.to_string().len() <= MAX_DETAILS {
        return report;
    }
    let Value::Object(mut report) = report else {
        return Value::Null;
    };
    let counts = |stream: &Value| {
        let keys = ["name", "rows", "bytes", "rejected", "wall_secs"].into_iter();
        let counts = keys.filter_map(|key| Some((key.to_owned(), stream.get(key)?.clone())));
        Value::Object(counts.collect())
    };
    let streams = report.get("streams").and_then(Value::as_array);
    let streams: Option<Vec<Value>> = streams.map(|all| all.iter().map(counts).collect());
    report.insert("streams".into(), json!(streams));
    report.insert("warnings".into(), json!([]));
    report.insert("is_shortened".into(), json!(true));
    let report = Value::Object(report);
    if report.to_string().len() <= MAX_DETAILS {
        return report;
    }
    json!({ "rows": report["rows"], "bytes": report["bytes"], "total_secs": report["total_secs"], "is_shortened": true })
}
