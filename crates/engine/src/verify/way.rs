//! How the rows of a stream are compared, and the streams that cannot be.

use rapidbyte_runtime::{SyncMode, Target, WriteMode};
use rapidbyte_wire::ipc;

use crate::document::Verify;
use crate::failure::{Class, Failure};
use crate::plan::{Plan, StreamPlan, rejects};

/// How the rows of a stream are compared.
#[derive(Debug)]
pub(super) struct Way {
    /// The forms of digests that both sides have.
    pub(super) forms: Vec<String>,
    /// The source does not digest its rows, or transforms make other rows of them: all rows are read, and staged where
    /// the target is.
    pub(super) is_staged: bool,
}

pub(super) const UNSUPPORTED: &str = "unsupported_verify";

impl Way {
    /// Refuses a stream that cannot be compared.
    pub(super) fn of(plan: &Plan, stream: &StreamPlan) -> Result<Self, Failure> {
        let (source, destination) = (&plan.source, &plan.destination);
        if destination.spec.digest_forms.is_empty() {
            let text = format!(
                "{} does not compute digests of rows",
                destination.connector.name()
            );
            let hint = "compare copies in PostgreSQL";
            return Err(unsupported(stream, &text, hint));
        }
        if let Some(column) = stream.left_out.first() {
            let text = format!(
                "--select or --exclude leaves out the column {column}, and rows would be equal that differ in it"
            );
            return Err(unsupported(stream, &text, "choose whole streams"));
        }
        let forms = source.spec.digest_forms.iter();
        let forms = forms.filter(|form| destination.spec.digest_forms.contains(form));
        let forms: Vec<String> = forms.cloned().collect();
        if !forms.is_empty() && stream.transforms.is_empty() {
            return Ok(Self {
                forms,
                is_staged: false,
            });
        }
        let why = match stream.transforms.is_empty() {
            true => format!(
                "{} does not compute digests of rows",
                source.connector.name()
            ),
            false => "its transforms make other rows of the rows of the source".to_owned(),
        };
        let leave_out = "leave the stream out with --exclude";
        if stream.sync_mode == SyncMode::Incremental {
            let text =
                format!("{why}, and all rows of an incremental stream would have to be read");
            return Err(unsupported(stream, &text, leave_out));
        }
        if stream.target.deleted_field.is_some() {
            let text = format!("{why}, and deleted_field takes some rows out of the target");
            return Err(unsupported(stream, &text, leave_out));
        }
        Ok(Self {
            forms: destination.spec.digest_forms.clone(),
            is_staged: true,
        })
    }
}

const RUN_FIRST: &str = "run the pipeline first: `rapidbyte run PIPELINE`";

pub(super) fn unsupported(stream: &StreamPlan, text: &str, hint: &str) -> Failure {
    let failure = Failure::new(Class::Config, UNSUPPORTED, text).hint(hint);
    failure.in_stream(&stream.name)
}

pub(super) fn without_cursor_columns(stream: &StreamPlan) -> Failure {
    let text = "the target does not have the columns of the cursor, so the rows up to the cursor are not known";
    let hint = "add the columns of the cursor to `columns:` of the stream";
    unsupported(stream, text, hint)
}

/// Refuses a stream without a target.
pub(super) fn is_there(stream: &StreamPlan) -> Result<(), Failure> {
    if !stream.placed.is_new {
        return Ok(());
    }
    let text = format!("{} does not exist", stream.location);
    let failure = Failure::new(Class::Contract, "no_target", text).hint(RUN_FIRST);
    Err(failure.in_stream(&stream.name))
}

/// Refuses a stream that no run has moved.
pub(super) fn refuse_missing(stream: &StreamPlan) -> Result<(), Failure> {
    is_there(stream)?;
    let progress = stream.progress.as_ref();
    let has_cursor = progress.is_some_and(|progress| progress.cursor.is_some());
    if stream.sync_mode == SyncMode::Incremental && !has_cursor {
        let text = "no run has committed a cursor of the stream";
        return Err(unsupported(stream, text, RUN_FIRST));
    }
    Ok(())
}

/// Refuses streams that a run could not compare at its end.
pub(crate) fn refuse_after_run(plan: &Plan) -> Result<(), Failure> {
    if !is_wanted(plan) {
        return Ok(());
    }
    for stream in &plan.streams {
        if Way::of(plan, stream)?.is_staged {
            let text = "the source does not compute digests, or transforms make other rows of its rows, so a run \
                        would read all rows twice";
            let hint = "remove verify: after_run, and compare with `rapidbyte verify PIPELINE`";
            return Err(unsupported(stream, text, hint));
        }
        if rejects(&plan.document).is_some() {
            let text =
                "rejects keeps rows out of the target, which a comparison at the end would miss";
            let hint = "remove rejects, or remove verify: after_run";
            return Err(unsupported(stream, text, hint));
        }
        let is_whole = stream.sync_mode == SyncMode::FullRefresh;
        if stream.target.write_mode == WriteMode::Append && is_whole {
            let text = "write_mode: append keeps the rows of earlier runs";
            let hint = "set write_mode: replace or upsert, or remove verify: after_run";
            return Err(unsupported(stream, text, hint));
        }
        if !has_cursor_columns(stream)? {
            return Err(without_cursor_columns(stream));
        }
    }
    Ok(())
}

/// Whether the target gets the columns that the cursor of the stream is made of.
fn has_cursor_columns(stream: &StreamPlan) -> Result<bool, Failure> {
    let Some(increment) = stream.selection(true).increment else {
        return Ok(true);
    };
    let read = ipc::decode_schema(&stream.read_schema);
    let read = read.map_err(|error| Failure::new(Class::Run, "internal", error))?;
    let mut fields = increment.cursor_fields.iter();
    Ok(fields.all(|name| read.index_of(name).is_ok()))
}

/// A run with `--limit` leaves rows out, and is not compared.
pub(super) fn is_wanted(plan: &Plan) -> bool {
    plan.document.verify == Verify::AfterRun && plan.limit.is_none()
}

/// The request for the staged rows of a target.
pub(crate) fn staged_target(target: &Target) -> Target {
    Target {
        stages: true,
        rejects: None,
        deletes: None,
        ..target.clone()
    }
}
