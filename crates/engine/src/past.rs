//! What the history knows of earlier runs and attempts.

use std::collections::HashSet;

use rapidbyte_state::{RunRecord, StreamRecord};

use crate::document::Stream;
use crate::known_as::base;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::report::Warning;

/// The streams that this run has committed to the end, perhaps in an earlier attempt, as far as the history knows. For a
/// stream that resumes an earlier run, that run counts.
///
/// Such a stream has nothing left to do under its id, even if it failed in this attempt. Under that id the next run would
/// find it complete and would not move its new rows.
pub(crate) fn complete_streams(ledger: &Ledger<'_>) -> HashSet<String> {
    let known = ledger.history.map(|h| h.streams(&ledger.run.pipeline));
    // A history that cannot be read leaves them to the destination, which knows what it has.
    let known = known.and_then(Result::ok).unwrap_or_default();
    let is_complete =
        |known: &StreamRecord| known.complete && known.run_id == ledger.run_of(&known.stream).id;
    let complete = known.into_iter().filter(is_complete);
    complete.map(|known| known.stream).collect()
}

/// Streams that the last finished run moved and the source does not have any more. Only streams that a pattern covers
/// count: one that the pipeline names is an error. Nothing else would say that their targets are not updated.
pub(crate) fn gone(plan: &Plan, ledger: &Ledger<'_>) -> Vec<Warning> {
    let source = &plan.document.source;
    let Some(history) = ledger.history else {
        return Vec::new();
    };
    if !source.streams.iter().any(Stream::is_pattern) {
        return Vec::new();
    }
    let pipeline = plan.document.pipeline.as_str();
    // If the history cannot be read, this warning is missing, and no row.
    let runs = history
        .runs(Some(pipeline), RUNS_LOOKED_AT)
        .unwrap_or_default();
    let is_finished = |run: &RunRecord| matches!(run.status.as_str(), "ok" | "partial");
    let mut runs = runs.into_iter();
    let Some(last) = runs.find(|run| run.id != ledger.run.id && is_finished(run)) else {
        return Vec::new();
    };
    let streams = history.streams(pipeline).unwrap_or_default();
    let is_by_pattern = |stream: &str| {
        let entry = source.entry_for(stream);
        entry.is_some_and(|entry| source.streams[entry].is_pattern())
    };
    let gone = streams.into_iter().filter(|known| {
        let was_moved = base(&known.run_id) == last.id;
        was_moved && !plan.found.contains(&known.stream) && is_by_pattern(&known.stream)
    });
    let warning = |known: StreamRecord| Warning {
        stream: known.stream,
        message: GONE.into(),
    };
    gone.map(warning).collect()
}

/// Runs among which the last finished one is looked for.
const RUNS_LOOKED_AT: u32 = 100;
const GONE: &str =
    "the source does not have this stream any more: its target keeps the rows of the last run";
