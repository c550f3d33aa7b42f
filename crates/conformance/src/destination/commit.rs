//! Commits that carry a cursor: they move it with the rows, once, and for the newest run alone.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use rapidbyte_runtime::{ErrorKind, Target, WriteMode};

use super::{Load, OTHER_PIPELINE, PIPELINE, Subject, cursor, simple};
use crate::bench::Trouble;
use crate::verdict::*;

/// A stream that keeps its cursor, or why there is none.
fn target(subject: &Subject<'_>, name: &str) -> Result<Target, Verdict> {
    subject.needs_write()?;
    if !subject.bench.spec()?.supports_checkpoints {
        return Err(skip("it does not keep a cursor (supports-checkpoints)"));
    }
    match subject.why_no_cursor() {
        None => Ok(subject.target(name, &simple(), true)),
        Some(Trouble::Error(_, error)) => Err(skip(format!(
            "not with these settings: {}; give others",
            error.message
        ))),
        Some(trouble) => Err(trouble.blocks(&PLAN)),
    }
}

/// Two commits of one run, and the progress that the next run gets.
pub(super) fn progress(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "keep epoch, seq and cursor in the transaction of the rows, and tell them";
    let target = target(subject, "progress")?;
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    if let Some(told) = subject.progress(&target).map_err(fails)? {
        let seen = format!("before its first run the stream has the progress {told:?}");
        return Err(fail(
            seen,
            "let progress change nothing, and say nothing of a stream without a run",
        ));
    }
    if let Some(told) = subject.progress(&target).map_err(fails)? {
        let seen =
            format!("asked again before its first run, the stream has the progress {told:?}");
        return Err(fail(seen, "let progress change nothing"));
    }
    let mut load = Load::begin(subject, &target, simple(), "first").map_err(blocks)?;
    let first = load.fenced.clone();
    if (first.seq, &first.cursor) != (0, &None) {
        let seen = format!(
            "a new stream has {} commits and the cursor {:?}",
            first.seq, first.cursor
        );
        return Err(fail(seen, ACTION));
    }
    for (number, rows, complete) in [(1, 0..3, false), (2, 3..5, true)] {
        load.write(rows).map_err(blocks)?;
        let part = load.flush().map_err(blocks)?;
        load.commit(&[part], cursor(&target, number), complete)
            .map_err(fails)?;
        let seen = subject.look(&target).map_err(fails)?;
        let expected = (u64::from(number), cursor(&target, number), complete);
        if (seen.seq, seen.cursor.clone(), seen.complete) != expected {
            return Err(fail(format!("{seen} after commit {number}"), ACTION));
        }
        // If plan-again has found it already, it is the same fault.
        if seen.is_new && !subject.has_failed(&PLAN_AGAIN) {
            return Err(fail(
                format!("plan says is-new after commit {number}"),
                "let plan look whether the table or file is there: a stream with a cursor is refused where it is new",
            ));
        }
    }
    let written = load.written().map_err(fails)?;
    // Two commits that append: how that goes is for another clause to say.
    let kept = match subject.has_failed(&APPEND) {
        true => String::new(),
        false => subject.kept(&target, &load.plan, &written, ACTION)?,
    };
    drop(load);
    let cancel = subject.bench.trial.host.cancel.child();
    let next = Load::let_in(subject, &target, simple(), "second", cancel);
    let mut next = next.map_err(fails)?;
    let told = &next.fenced;
    if told.epoch <= first.epoch || told.run_id == first.run_id || told.complete {
        let seen = format!(
            "epoch {} behind {}, run {} behind {}, complete: {}",
            told.epoch, first.epoch, told.run_id, first.run_id, told.complete
        );
        return Err(fail(
            seen,
            "let fence raise the epoch, and answer for the run that asks",
        ));
    }
    if (told.seq, &told.cursor) != (2, &cursor(&target, 2)) {
        let seen = format!(
            "the next run is told {} commits, cursor {:?}",
            told.seq, told.cursor
        );
        return Err(fail(seen, ACTION));
    }
    let action = "without parts and without a writer let commit move the cursor alone";
    let moved = next.commit(&[], cursor(&target, 3), true);
    moved.map_err(|trouble| trouble.fails_unless_settings(action))?;
    let seen = subject.look(&target).map_err(fails)?;
    if (seen.seq, &seen.cursor) != (3, &cursor(&target, 3)) {
        return Err(fail(
            format!("{seen} after a commit of the cursor alone"),
            action,
        ));
    }
    drop(next);
    resumed(subject, &target, &written)?;
    Ok(format!("3 commits; {kept}"))
}

/// A run that begins to write behind a cursor: all of its rows arrive.
fn resumed(subject: &Subject<'_>, target: &Target, older: &RecordBatch) -> Result<(), Verdict> {
    const ACTION: &str = "keep every row that is written behind the cursor";
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let mut load = Load::begin(subject, target, simple(), "third").map_err(fails)?;
    load.write(5..8).map_err(fails)?;
    load.write(8..10).map_err(fails)?;
    let part = load.flush().map_err(fails)?;
    load.commit(&[part], cursor(target, 4), true)
        .map_err(fails)?;
    if subject.has_failed(&APPEND) {
        return Ok(());
    }
    let new = load.written().map_err(fails)?;
    let rows = match target.write_mode {
        WriteMode::Append => {
            concat_batches(&simple(), [older, &new]).map_err(|e| skip(e.to_string()))?
        }
        _ => new,
    };
    subject.kept(target, &load.plan, &rows, ACTION).map(drop)
}

/// Two pipelines that move a stream of one name to one place.
pub(super) fn pipelines(subject: &Subject<'_>) -> Judged {
    const ACTION: &str =
        "keep epoch, seq and cursor for each pipeline and stream, not for the stream alone";
    let target = target(subject, "pipelines")?;
    if subject.has_failed(&PROGRESS) {
        return Err(skip("the cursor of one pipeline is not kept: see progress"));
    }
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let cancel = || subject.bench.trial.host.cancel.child();
    let mut first = Load::begin(subject, &target, simple(), "of-one").map_err(blocks)?;
    first.write(0..3).map_err(blocks)?;
    let part = first.flush().map_err(blocks)?;
    first
        .commit(&[part], cursor(&target, 1), true)
        .map_err(blocks)?;
    let older = first.written().map_err(blocks)?;
    drop(first);
    // It may refuse rows of another pipeline beside those that are there: nothing is lost.
    let refused = |trouble: Trouble| match trouble {
        Trouble::Error(_, error) if matches!(error.kind, ErrorKind::Config | ErrorKind::Schema) => {
            None
        }
        trouble => Some(trouble.fails(ACTION)),
    };
    let pass = || Ok("another pipeline is refused".into());
    let told = match subject.progress_of(&target, OTHER_PIPELINE) {
        Ok(told) => told,
        Err(trouble) => return refused(trouble).map_or_else(pass, Err),
    };
    if let Some(told) = told {
        let seen = format!("before its first run another pipeline has the progress {told:?}");
        return Err(fail(seen, ACTION));
    }
    let second = Load::let_in_of(
        subject,
        OTHER_PIPELINE,
        &target,
        simple(),
        "of-other",
        cancel(),
    )
    .and_then(|second| second.opened());
    let mut second = match second {
        Ok(second) => second,
        Err(trouble) => return refused(trouble).map_or_else(pass, Err),
    };
    if (second.fenced.seq, &second.fenced.cursor) != (0, &None) {
        let seen = format!(
            "the first run of another pipeline is told {} commits and the cursor {:?}",
            second.fenced.seq, second.fenced.cursor
        );
        return Err(fail(seen, ACTION));
    }
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    second.write(10..14).map_err(fails)?;
    let part = second.flush().map_err(fails)?;
    second
        .commit(&[part], cursor(&target, 7), true)
        .map_err(fails)?;
    for (pipeline, number) in [(PIPELINE, 1), (OTHER_PIPELINE, 7)] {
        let told = subject.progress_of(&target, pipeline).map_err(fails)?;
        let found = told.as_ref().map(|told| (told.seq, told.cursor.clone()));
        if found != Some((1, cursor(&target, number))) {
            let seen = format!("after a commit of each, {pipeline} has the progress {told:?}");
            return Err(fail(seen, ACTION));
        }
    }
    let new = second.written().map_err(fails)?;
    let rows = match target.write_mode {
        WriteMode::Append => {
            concat_batches(&simple(), [&older, &new]).map_err(|e| skip(e.to_string()))?
        }
        _ => new,
    };
    let kept = match subject.has_failed(&APPEND) {
        true => String::new(),
        false => subject.kept(&target, &second.plan, &rows, ACTION)?,
    };
    Ok(format!("2 pipelines; {kept}"))
}

/// The same commit twice.
pub(super) fn once(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "refuse a commit whose seq is not the number of commits so far";
    let target = target(subject, "once")?;
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let mut load = Load::begin(subject, &target, simple(), "once").map_err(blocks)?;
    load.write(0..3).map_err(blocks)?;
    let part = load.flush().map_err(blocks)?;
    let parts = [part];
    load.commit(&parts, cursor(&target, 1), false)
        .map_err(blocks)?;
    let before = subject.look(&target).map_err(blocks)?;
    match load.commit_as(0, &parts, cursor(&target, 9), false) {
        Ok(receipt) => {
            let seen = format!("taken again, with a receipt of {} rows", receipt.rows);
            return Err(fail(seen, ACTION));
        }
        Err(Trouble::Error(..) | Trouble::Broken(_)) => {}
        Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
    }
    // Another clause judges whether it works.
    if !subject.has_failed(&ABORT) {
        let _ = load.abort();
    }
    drop(load);
    let after = subject.look(&target).map_err(blocks)?;
    match after == before {
        true => Ok("refused".into()),
        false => Err(fail(format!("{before} before, {after} after it"), ACTION)),
    }
}

/// A run that commits after a newer run has fenced it.
pub(super) fn fence(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "let commit fail with kind superseded when a newer run was let in";
    let target = target(subject, "fence")?;
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let mut older = Load::begin(subject, &target, simple(), "older").map_err(blocks)?;
    older.write(0..3).map_err(blocks)?;
    let part = older.flush().map_err(blocks)?;
    let cancel = subject.bench.trial.host.cancel.child();
    let newer = Load::let_in(subject, &target, simple(), "newer", cancel);
    let newer =
        newer.map_err(|trouble| trouble.fails_unless_settings("let a newer run in at any time"))?;
    if newer.fenced.epoch <= older.fenced.epoch {
        let (older, newer) = (older.fenced.epoch, newer.fenced.epoch);
        return Err(fail(
            format!("epoch {newer} behind {older}"),
            "let fence raise the epoch",
        ));
    }
    let before = subject.look(&target).map_err(blocks)?;
    match older.commit(&[part], cursor(&target, 1), true) {
        Ok(_) => return Err(fail("the older run committed", ACTION)),
        Err(Trouble::Error(_, error)) if !matches!(error.kind, ErrorKind::Superseded) => {
            let seen = format!("{:?}: {} [{}]", error.kind, error.message, error.code);
            return Err(fail(seen, ACTION));
        }
        Err(Trouble::Error(..)) => {}
        Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
    }
    let after = subject.look(&target).map_err(blocks)?;
    match after == before {
        true => Ok("the older run was refused".into()),
        false => Err(fail(format!("{before} before, {after} after it"), ACTION)),
    }
}
