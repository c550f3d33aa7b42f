//! Rows that are there already: replace, append, upsert, and a plan for any of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use rapidbyte_runtime::{ErrorKind, Plan, Target, WriteMode};

use super::{Load, Subject, files, simple};
use crate::bench::Trouble;
use crate::same::KEY;
use crate::values;
use crate::verdict::*;

fn name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Append => "append",
        WriteMode::Replace => "replace",
        WriteMode::Upsert => "upsert",
    }
}

/// A stream that is written in a mode, if the connector has it.
fn target(subject: &Subject<'_>, mode: WriteMode, stream: &str) -> Result<Target, Verdict> {
    subject.needs_write()?;
    if !subject.bench.spec()?.write_modes.contains(&mode) {
        return Err(skip(format!(
            "its write modes do not include {}",
            name(mode)
        )));
    }
    Ok(subject.target_as(stream, &simple(), mode))
}

/// A connector may refuse a mode under some settings: a single file is not appended to.
fn refused(trouble: Trouble, mode: WriteMode) -> Verdict {
    match trouble {
        Trouble::Error(_, error) if matches!(error.kind, ErrorKind::Config | ErrorKind::Schema) => {
            skip(format!(
                "{} not with these settings: {}; give others",
                name(mode),
                error.message
            ))
        }
        trouble => trouble.blocks(&WRITE),
    }
}

pub(super) fn replace(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "with replace let the rows of the commit take the place of all older ones";
    let target = target(subject, WriteMode::Replace, "replaced")?;
    let rows = |rows| values::batch(&simple(), rows).map_err(skip);
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let first = subject.load(&target, "replace-1", &[rows(0..10)?]);
    first.map_err(|trouble| trouble.blocks(&WRITE))?;
    let second = rows(100..104)?;
    let written = subject.load(&target, "replace-2", std::slice::from_ref(&second));
    let plan = written.map_err(fails)?;
    let kept = subject.kept(&target, &plan, &second, ACTION)?;
    // Fewer rows than before, and none at all.
    let none = RecordBatch::new_empty(simple());
    let plan = subject.load(&target, "replace-3", &[]);
    let plan = plan.map_err(|trouble| trouble.blocks(&EMPTY))?;
    subject.kept(&target, &plan, &none, ACTION)?;
    subject.fill(&target);
    Ok(kept)
}

pub(super) fn append(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "with append keep the older rows as they are, and add the new ones";
    let target = target(subject, WriteMode::Append, "appended")?;
    let rows = |rows| values::batch(&simple(), rows).map_err(skip);
    let refused = |trouble| refused(trouble, WriteMode::Append);
    let (first, second) = (rows(0..10)?, rows(20..25)?);
    subject
        .load(&target, "append-1", std::slice::from_ref(&first))
        .map_err(refused)?;
    let plan = subject.load(&target, "append-2", std::slice::from_ref(&second));
    let plan = plan.map_err(refused)?;
    let both = concat_batches(&simple(), [&first, &second]).map_err(|e| skip(e.to_string()))?;
    subject.kept(&target, &plan, &both, ACTION)
}

/// Columns of rows that are written again.
fn versions() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(KEY, DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
        Field::new("m", DataType::Int64, true),
    ]))
}

fn versioned(rows: &[(i64, Option<&str>, Option<i64>)]) -> Result<RecordBatch, Verdict> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(versions(), columns).map_err(|error| skip(error.to_string()))
}

pub(super) fn upsert(subject: &Subject<'_>) -> Judged {
    const ACTION: &str =
        "with upsert keep of each key the last row as a whole, in the order of rows and parts";
    let mut target = target(subject, WriteMode::Upsert, "upserted")?;
    let schema = versions();
    target.schema = rapidbyte_wire::ipc::encode_schema(&schema).unwrap_or_default();
    target.primary_key = vec![KEY.into()];
    let refused = |trouble| refused(trouble, WriteMode::Upsert);
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let first = versioned(&[
        (1, Some("one"), Some(1)),
        (2, Some("two"), Some(2)),
        (3, Some("three"), None),
        (4, None, Some(4)),
    ])?;
    let mut load = Load::begin(subject, &target, schema.clone(), "upsert-1").map_err(refused)?;
    load.write_rows(&first).map_err(refused)?;
    let part = load.flush().map_err(refused)?;
    load.commit(&[part], None, true).map_err(refused)?;
    drop(load);
    let mut load = Load::begin(subject, &target, schema.clone(), "upsert-2").map_err(fails)?;
    let mut parts = Vec::new();
    // Where of several parts not all are committed, another clause says so.
    let in_parts = !subject.has_failed(&PARTS);
    for batches in [
        // A value becomes NULL, a NULL a value, and a key comes twice in a batch and in two of them.
        vec![
            versioned(&[
                (2, None, Some(20)),
                (5, Some("old"), None),
                (5, Some("new"), None),
            ])?,
            versioned(&[(6, Some("old"), Some(6)), (3, Some("drei"), Some(3))])?,
            versioned(&[(6, Some("new"), None)])?,
        ],
        vec![versioned(&[(7, Some("part 1"), None)])?],
        vec![versioned(&[(7, Some("part 2"), Some(7))])?],
    ] {
        for batch in &batches {
            load.write_rows(batch).map_err(fails)?;
        }
        if in_parts {
            parts.push(load.flush().map_err(fails)?);
        }
    }
    if !in_parts {
        parts.push(load.flush().map_err(fails)?);
    }
    load.commit(&parts, None, true).map_err(fails)?;
    let wanted = versioned(&[
        (1, Some("one"), Some(1)),
        (2, None, Some(20)),
        (3, Some("drei"), Some(3)),
        (4, None, Some(4)),
        (5, Some("new"), None),
        (6, Some("new"), None),
        (7, Some("part 2"), Some(7)),
    ])?;
    subject.kept(&target, &load.plan, &wanted, ACTION)
}

/// The parts of a plan that stay the same; other parts may be worded in another way.
fn said(plan: &Plan) -> impl PartialEq {
    let columns = plan.columns.iter();
    let columns = columns.map(|c| (c.column.clone(), c.target_type.clone(), c.fit));
    (
        plan.location.clone(),
        columns.collect::<Vec<_>>(),
        plan.statements.clone(),
        plan.is_new,
    )
}

/// Plans for a target that has rows, in each mode and with one column more.
pub(super) fn plan_again(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "only look in plan: what it says is done at open-writer and commit";
    subject.needs_write()?;
    let rows = values::batch(&simple(), 0..10).map_err(skip)?;
    let mut looked = BTreeMap::new();
    for mode in [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert] {
        let stream = format!("planned_{}", name(mode));
        let Ok(planned) = target(subject, mode, &stream) else {
            continue;
        };
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
        // Written as all others are: how a mode writes is for other clauses to say.
        let first = subject.target(&stream, &simple(), false);
        let plan = subject.load(&first, &stream, std::slice::from_ref(&rows));
        let plan = plan.map_err(blocks)?;
        let mut planned = planned;
        if mode == WriteMode::Upsert {
            planned.primary_key = vec![KEY.into()];
        }
        let wider = wider(&planned);
        let progress = subject.progress(&planned).map_err(fails)?;
        let files = subject.files();
        let mut plans = Vec::new();
        for target in [&planned, &wider, &planned] {
            match subject.planned(target) {
                Ok(plan) => plans.push(plan),
                // Not with this mode or column; what it says of that is its own.
                Err(Trouble::Error(..)) => {}
                Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
            }
        }
        let label = name(mode);
        // A mode may add at a place of its own, such as the next file; there may be nothing yet.
        if let Some(again) = plans.first()
            && again.is_new
            && (again.location == plan.location || planned.is_incremental)
        {
            let seen = format!(
                "{label}: is-new for {}, where 10 rows are committed",
                again.location
            );
            return Err(fail(
                seen,
                "let plan look whether the table or file is there: a stream with a cursor is refused where it is new",
            ));
        }
        if let (Some(first), Some(last), 3) = (plans.first(), plans.last(), plans.len())
            && said(first) != said(last)
        {
            let seen = format!("{label}: planned twice, {first:?} and then {last:?}");
            return Err(fail(
                seen,
                "let plan say the same as long as nothing is written",
            ));
        }
        if let Some(seen) = files::changed(&files, &subject.files()) {
            return Err(fail(format!("{label}: after plan {seen}"), ACTION));
        }
        let after = subject.progress(&planned).map_err(fails)?;
        if format!("{progress:?}") != format!("{after:?}") {
            let seen = format!("{label}: {progress:?} before plan, {after:?} after it");
            return Err(fail(seen, ACTION));
        }
        let kept = subject.kept(&first, &plan, &rows, ACTION)?;
        looked.insert(label, kept);
    }
    let modes: Vec<&str> = looked.keys().copied().collect();
    let kept = looked.into_values().next().unwrap_or_default();
    Ok(format!("{}: {kept}", modes.join(", ")))
}

/// The same target with a column that it does not have yet.
fn wider(target: &Target) -> Target {
    let mut fields: Vec<_> = simple().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("more", DataType::Int64, true)));
    Target {
        schema: rapidbyte_wire::ipc::encode_schema(&Schema::new(fields)).unwrap_or_default(),
        ..target.clone()
    }
}
