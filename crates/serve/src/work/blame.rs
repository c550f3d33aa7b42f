//! Which job a failed run blames, and why a job is dead.

use rapidbyte::batches::ErrorKind;
use rapidbyte::{Class, Failure, Pipeline};
use serde_json::{Value, json};

use crate::queue::{READER, declares_columns};
use crate::store::{Body, Pending};

/// The code of a run with more rejects than the pipeline allows.
const TOO_MANY_REJECTS: &str = "too_many_rejects";

/// The digits of a job's id in the name of its file: names are in the order of the ids.
const ID_DIGITS: usize = 20;

pub(super) fn file_name(job: &Pending) -> String {
    let ending = match job.encoding.as_deref() {
        Some("gzip") => ".gz",
        Some("zstd") => ".zst",
        _ => "",
    };
    format!("{:0ID_DIGITS$}.{}{ending}", job.id, job.format)
}

/// Codes that blame the target, or the place where the rejects are kept, whatever the bodies have.
const OF_TARGET: [&str; 6] = [
    "target_missing",
    "target_lost_rows",
    "checkpoint_invalid",
    "cursor_missing",
    "no_unique_index",
    "upsert_not_possible",
];

/// The code of a body that somebody wrote to, or only touched, while it was read. The next run compares its bytes.
const CHANGED: &str = "file_changed";

/// The code of a body whose format does not have a setting of the pipeline.
const UNUSED_OPTION: &str = "unused_option";

/// The code of bodies without columns.
const NO_COLUMNS: &str = "no_columns";

/// Whether a body that stopped a run has nothing to move: no row, and no name of a column.
pub(super) fn is_empty(job: &Pending, failure: &Failure) -> bool {
    let Body::Inline(bytes) = &job.body else {
        return false;
    };
    let mut bytes = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    let left: Vec<&u8> = bytes.by_ref().take(3).collect();
    let has_no_rows = match job.format.as_str() {
        "json" => left == [&b'[', &b']'],
        _ => left.is_empty(),
    };
    has_no_rows && job.encoding.is_none() && failure.code == NO_COLUMNS
}

/// Codes that blame inferred columns: a name that the destination cannot give to a column of a new table, and a key, or
/// another column of the pipeline file, that the bodies lack.
const OF_INFERRED: [&str; 2] = ["invalid_name", "unknown_column"];

/// Whether the bodies are to blame, and not the pipeline file, the destination or the way to it: the reader cannot read
/// them, they have too many rejects, the destination refuses their rows while it writes or commits them, or it refuses the
/// columns that were inferred from them. Columns that the pipeline file declares are the same for all bodies.
pub(super) fn is_of_bodies(failure: &Failure, pipeline: &Pipeline) -> bool {
    let passes = matches!(
        failure.class,
        Class::Cancelled | Class::Busy | Class::Environment
    );
    if passes || failure.passes_after_ms.is_some() || OF_TARGET.contains(&failure.code.as_str()) {
        return false;
    }
    let export = failure.export.unwrap_or_default();
    if is_of_reader(failure) {
        // It opens with the settings of the pipeline file, and then looks at the bodies. A setting that is for another
        // format blames the format of the body.
        let is_of_settings = failure.class == Class::Config
            && export.ends_with("open")
            && failure.code != UNUSED_OPTION;
        return !is_of_settings && failure.code != CHANGED;
    }
    let is_inferred = !declares_columns(pipeline);
    let of_rows = matches!(failure.kind, Some(ErrorKind::Data))
        || export.starts_with("writer.")
        || failure.code == TOO_MANY_REJECTS;
    match failure.class {
        Class::Contract => is_inferred || of_rows,
        _ => is_inferred && OF_INFERRED.contains(&failure.code.as_str()),
    }
}

/// Whether the destination has an error while it writes or commits rows that nobody else is known to be to blame for: it
/// panicked, or its server has an error that says nothing of the data. A row may be why.
pub(super) fn is_of_writer(failure: &Failure) -> bool {
    let export = failure.export.unwrap_or_default();
    matches!(failure.kind, Some(ErrorKind::Internal)) && export.starts_with("writer.")
}

/// Whether the reader stopped the run: another run finds the same in the same body.
pub(super) fn is_of_reader(failure: &Failure) -> bool {
    failure.connector.as_deref() == Some(READER)
}

/// The place of the job whose file the reader blames.
pub(super) fn blamed(jobs: &[&Pending], failure: &Failure) -> Option<usize> {
    let location = failure.location.as_deref()?;
    let place = jobs
        .iter()
        .position(|job| in_file(location, job.id).is_some());
    place.filter(|_| is_of_reader(failure))
}

/// The part of a location behind the beginning of the name of a job's file.
fn in_file(location: &str, job: i64) -> Option<&str> {
    let (_, rest) = location.split_once(&format!("{job:0ID_DIGITS$}."))?;
    Some(rest)
}

/// The reason of a dead job. Its place is a line of the body, and not a file.
pub(super) fn reason(failure: &Failure, job: i64) -> Value {
    let line = failure.location.as_deref().and_then(|location| {
        let (_, line) = in_file(location, job)?.split_once(':')?;
        line.parse::<u64>().ok()
    });
    json!({
        "code": failure.code, "message": failure.message, "hint": hint(failure),
        "column": failure.column, "line": line,
    })
}

/// The next action of a client. The reader's hints are about files.
fn hint(failure: &Failure) -> Option<&str> {
    match failure.code.as_str() {
        "compressed_damaged" | "compressed_unknown" => {
            Some("send the Content-Encoding that the body has, or none")
        }
        "column_refused" => Some(
            "send values that a column of the table can have; or make or change the column, such as to jsonb, and replay the job",
        ),
        UNUSED_OPTION => Some(
            "send the body in the format that the pipeline file has settings for, or remove the setting and replay the job",
        ),
        "compressed_truncated" | "file_not_utf8" => Some("send the body again, as UTF-8"),
        _ => failure.hint.as_deref(),
    }
}

/// A dead job in one line.
pub(super) fn told(reason: &Value) -> String {
    let text = |key: &str| reason[key].as_str().unwrap_or_default().to_owned();
    let line = reason["line"].as_u64();
    let line = line.map_or(String::new(), |line| format!(" line {line}:"));
    format!("error[{}]{line} {}", text("code"), text("message"))
}
