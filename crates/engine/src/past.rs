//! Earlier runs and attempts, as the history knows them.

use std::collections::HashSet;

use rapidbyte_state::StreamRecord;

use crate::document::Stream;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::report::Warning;

/// The streams that this run has committed to the end, perhaps in an earlier attempt, as far as the history knows. For
/// a stream that resumes an earlier run, that run counts.
///
/// A complete stream has nothing left to do under its id, even if it failed in this attempt. Under that id the next
/// run would find it complete and would not move its new rows.
pub(crate) fn complete_streams(ledger: &Ledger<'_>) -> HashSet<String> {
    let known = ledger.history.map(|h| h.streams(&ledger.run.pipeline));
    // A history that cannot be read leaves them to the destination, which knows what it has.
    let known = known.and_then(Result::ok).unwrap_or_default();
    let is_complete =
        |known: &StreamRecord| known.complete && known.run_id == ledger.run_of(&known.stream).id;
    let complete = known.into_iter().filter(is_complete);
    complete.map(|known| known.stream).collect()
}

/// Streams that were moved lately and that the source does not have any more. Only streams that a pattern covers count:
/// one that the pipeline names is an error. Nothing else would say that their targets are not updated.
///
/// Each run repeats the warning, as for a column, because nobody may have read the first warning. The warnings end
/// after [`DAYS_WARNED`], because a table may be gone for good.
pub(crate) fn gone(plan: &Plan, ledger: &Ledger<'_>) -> Vec<Warning> {
    let source = &plan.document.source;
    let Some(history) = ledger.history else {
        return Vec::new();
    };
    if !source.streams.iter().any(Stream::is_pattern) {
        return Vec::new();
    }
    let pipeline = plan.document.pipeline.as_str();
    // If the history cannot be read, only this warning is missing: every row moves.
    let moved = history.streams_since(pipeline, Some(DAYS_WARNED));
    let is_by_pattern = |stream: &str| {
        let entry = source.entry_for(stream);
        entry.is_some_and(|entry| source.streams[entry].is_pattern())
    };
    let gone = moved
        .unwrap_or_default()
        .into_iter()
        .filter(|known| !plan.found.contains(&known.stream) && is_by_pattern(&known.stream));
    let warning = |known: StreamRecord| Warning {
        stream: known.stream,
        message: GONE.into(),
    };
    gone.map(warning).collect()
}

/// Days after the last commit of a stream.
const DAYS_WARNED: u32 = 30;
const GONE: &str = "the source does not have this stream any more: its target keeps the rows of the last run that moved \
     it; runs say so for 30 days after that run";
