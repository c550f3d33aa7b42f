//! `verify: after_run`: a run compares what it wrote with the snapshot that it read.

use std::borrow::Cow;

use rapidbyte_runtime::{LateRows, Level, Selection, SyncMode};

use super::compared::{Compared, rows_differ};
use super::sides::{Sides, reopen};
use super::way::{Way, is_wanted};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::plan::{Plan, Prepared, StreamPlan, open_destination};
use crate::report::{StreamReport, VerifiedReport};
use crate::retry::retried;

/// Compares the targets of a run that has moved all its streams, if the pipeline wants that. `moved` has a report for
/// each stream of the plan, and whether the stream was read as of `snapshot`: otherwise it is compared with the rows
/// that the source has now.
///
/// # Errors
/// `rows_differ`, and the errors of a comparison. The rows that the run committed stay.
pub(crate) fn after_run<'a>(
    prepared: &Prepared,
    host: &Host,
    snapshot: &str,
    moved: impl Iterator<Item = (&'a mut StreamReport, bool)>,
) -> Result<(), Failure> {
    let plan = &prepared.plan;
    if !is_wanted(plan) {
        return Ok(());
    }
    let (_, session) = open_destination(&plan.document, host, &prepared.clocks.destination, false)?;
    prepared.sessions.replace_writer(session);
    let mut all = Vec::new();
    let mut held = Some(snapshot);
    for (stream, (report, is_of_snapshot)) in plan.streams.iter().zip(moved) {
        if report.committed_before {
            let text = "not compared: the interrupted run had appended it";
            host.log(Some(&stream.name), Level::Warn, text);
            continue;
        }
        let kept = "the rows are committed";
        let compared = retried(&plan.document, host, kept, |attempt| {
            if attempt > 1 {
                reopen(prepared, host, held.is_none())?;
            }
            let snapshot = held.filter(|_| is_of_snapshot);
            match compare(prepared, stream, host, snapshot) {
                Err(failure) if snapshot.is_some() && is_of_source(plan, &failure) => {
                    let text = format!(
                        "compared with the rows that the source has now, because the session that held the snapshot of \
                         the run failed: {}: {}",
                        failure.code, failure.message
                    );
                    host.log(Some(&stream.name), Level::Warn, &text);
                    held = None;
                    reopen(prepared, host, true)?;
                    compare(prepared, stream, host, None)
                }
                other => other,
            }
        })
        .map_err(|mut failure| {
            let text = "the rows are committed, but could not be compared";
            failure.message = format!("{text}: {}", failure.message);
            failure
        })?;
        let verified = VerifiedReport::of(&compared);
        let text = format!("compared with {}: {verified}", compared.location);
        host.log(Some(&stream.name), Level::Info, &text);
        report.verified = Some(verified);
        all.push(compared);
    }
    let Some(failure) = rows_differ(&all) else {
        return Ok(());
    };
    let first = all.iter().find(|one| !one.is_equal());
    let first = first.map_or("", |one| one.stream.as_str());
    Err(failure.in_stream(first).hint(
        "the rows are committed, and `rapidbyte verify PIPELINE` names those that differ: the source deleted them, \
         which only deletes: finds for upsert, or a trigger or another program changed the target; `rapidbyte explain \
         rows_differ` lists more reasons",
    ))
}

fn is_of_source(plan: &Plan, failure: &Failure) -> bool {
    let source = plan.source.connector.name();
    failure.class != Class::Cancelled && failure.connector.as_deref() == Some(source)
}

fn compare(
    prepared: &Prepared,
    stream: &StreamPlan,
    host: &Host,
    snapshot: Option<&str>,
) -> Result<Compared, Failure> {
    let plan = &prepared.plan;
    let way = Way::of(plan, stream)?;
    let mut selection = Selection {
        cursor: None,
        ..stream.selection(true)
    };
    // As of the snapshot of the run no row up to the cursor is missing.
    if let (Some(_), Some(increment)) = (snapshot, &mut selection.increment)
        && let LateRows::Lag(lag) = &mut increment.late_rows
    {
        *lag = None;
    }
    if stream.sync_mode == SyncMode::Incremental {
        let progress = prepared
            .sessions
            .with_writer(|writer| writer.progress(&stream.target, &plan.document.pipeline));
        let progress = progress.transpose().map_err(|error| {
            let failure = Failure::from_runtime(error, &plan.document, "destination");
            failure.in_stream(&stream.name)
        })?;
        selection.cursor = progress.flatten().and_then(|progress| progress.cursor);
        if selection.cursor.is_none() {
            let text = "the destination has no cursor of the stream after the run";
            return Err(Failure::new(Class::Run, "internal", text).in_stream(&stream.name));
        }
    }
    Sides::of(
        prepared,
        Cow::Borrowed(stream),
        host,
        (selection, snapshot),
        &way,
    )?
    .compare(None)
}

impl VerifiedReport {
    pub(crate) fn of(compared: &Compared) -> Self {
        Self {
            equal: compared.is_equal(),
            up_to_cursor: !compared.limits.is_empty(),
            rows: compared.source.rows,
            checksum: compared.source.checksum(),
            differing: compared.rows.len() as u64,
            has_more: compared.has_more,
            seconds: compared.seconds,
        }
    }
}
