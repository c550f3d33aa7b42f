//! The same rows in other pieces: batches of all sizes, several parts, several streams of one session.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use rapidbyte_runtime::Part;
use rapidbyte_wire::counted;

use super::{Load, Subject, cursor, simple};
use crate::bench::Trouble;
use crate::values;
use crate::verdict::*;

/// Rows of one batch that is larger than what a connector may take at a time.
const LARGE: usize = 10_007;
/// The number of small batches, of three rows each.
const SMALL: usize = 100;

/// Many small batches, some without rows in between, and a large one.
pub(super) fn batches(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "keep every row of every batch, however large it is";
    subject.needs_write()?;
    let target = subject.target("batches", &simple(), false);
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let mut load = Load::begin(subject, &target, simple(), "batches").map_err(blocks)?;
    for number in 0..SMALL {
        load.write(3 * number..3 * number + 3).map_err(fails)?;
        if number % 40 == 0 {
            load.write(0..0).map_err(fails)?;
        }
    }
    let from = 3 * SMALL;
    load.write(from..from + LARGE).map_err(fails)?;
    load.write(0..0).map_err(fails)?;
    let part = load.flush().map_err(fails)?;
    let rows = (from + LARGE) as u64;
    counts(rows, &[&part], ACTION)?;
    let receipt = load.commit(&[part], None, true).map_err(fails)?;
    if receipt.rows != rows {
        let seen = format!(
            "{rows} rows in {} batches, the receipt has {}",
            SMALL + 5,
            receipt.rows
        );
        return Err(fail(seen, ACTION));
    }
    let written = load.written().map_err(fails)?;
    let kept = subject.kept(&target, &load.plan, &written, ACTION)?;
    Ok(format!("{}; {kept}", counted(rows, "row")))
}

fn counts(rows: u64, parts: &[&Part], action: &str) -> Result<(), Verdict> {
    let counted: u64 = parts.iter().map(|part| part.rows).sum();
    match counted == rows {
        true => Ok(()),
        false => Err(fail(
            format!("{rows} rows were written, the parts have {counted}"),
            action,
        )),
    }
}

/// Three parts in one commit, and one of them given in again.
pub(super) fn parts(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "commit the rows of every part, once";
    subject.needs_write()?;
    let target = subject.target("parts", &simple(), subject.is_incremental());
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let mut load = Load::begin(subject, &target, simple(), "parts").map_err(blocks)?;
    let mut parts = Vec::new();
    for rows in [0..5, 5..9, 9..12] {
        load.write(rows).map_err(fails)?;
        parts.push(load.flush().map_err(fails)?);
    }
    counts(12, &parts.iter().collect::<Vec<_>>(), ACTION)?;
    let receipt = load.commit(&parts, cursor(&target, 1), !target.is_incremental);
    let receipt = receipt.map_err(fails)?;
    if receipt.rows != 12 {
        let seen = format!("3 parts of 12 rows, the receipt has {}", receipt.rows);
        return Err(fail(seen, ACTION));
    }
    let written = load.written().map_err(fails)?;
    let kept = subject.kept(&target, &load.plan, &written, ACTION)?;
    if !target.is_incremental {
        return Ok(format!("3 parts; {kept}"));
    }
    // A refusal is as good as a commit that adds nothing.
    let again = load.commit(&parts[2..], cursor(&target, 2), true);
    match again {
        Ok(_) | Err(Trouble::Error(..) | Trouble::Broken(_)) => {}
        Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
    }
    let action = "do not commit a part again that was committed";
    let plan = load.plan.clone();
    drop(load);
    subject.kept(&target, &plan, &written, action)?;
    Ok(format!("3 parts, one given in again; {kept}"))
}

/// Three streams one after the other in one session: two with the same columns, one with others.
pub(super) fn streams(subject: &Subject<'_>) -> Judged {
    const ACTION: &str =
        "keep what belongs to a stream by its name: a session writes one stream after the other";
    subject.needs_write()?;
    let other = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("more", DataType::Utf8, true),
        Field::new("a", DataType::Int64, false),
    ]));
    let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
    let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
    let streams = [
        ("first", simple(), 0..6),
        ("second", simple(), 50..58),
        ("third", other, 200..203),
    ];
    let mut done = Vec::new();
    let mut session: Option<Load<'_>> = None;
    for (name, schema, rows) in streams {
        let target = subject.target(name, &schema, false);
        let mut load = match session.take() {
            None => Load::begin(subject, &target, schema.clone(), name).map_err(blocks)?,
            Some(load) => {
                let next = load.next(subject, &target, schema.clone(), name);
                match next.map_err(fails)? {
                    Some(load) => load,
                    None => break,
                }
            }
        };
        let count = rows.len() as u64;
        load.write(rows.clone()).map_err(fails)?;
        let part = load.flush().map_err(fails)?;
        counts(count, &[&part], ACTION)?;
        let receipt = load.commit(&[part], None, true).map_err(fails)?;
        if receipt.rows != count {
            let seen = format!("{name}: {count} rows, the receipt has {}", receipt.rows);
            return Err(fail(seen, ACTION));
        }
        let written = values::batch(&schema, rows).map_err(skip)?;
        done.push((target, load.plan.clone(), written));
        session = Some(load);
    }
    if done.len() < 2 {
        return Err(skip(
            "the session holds too much memory to write another stream",
        ));
    }
    drop(session);
    let mut told = String::new();
    for (target, plan, written) in &done {
        told = subject.kept(target, plan, written, ACTION)?;
    }
    Ok(format!("{}; {told}", counted(done.len(), "stream")))
}
