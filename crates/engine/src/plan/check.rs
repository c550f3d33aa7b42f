//! What `check` asks: both sides look at what they need, and then it is planned with the same
//! instances.

use std::sync::Arc;

use rapidbyte_runtime::{CheckItem, Error, Grants};

use super::open::{Opened, open_all};
use super::{Clocks, Prepared, Stage, privileges, shown};
use crate::document::Document;
use crate::failure::Failure;
use crate::host::Host;
use crate::narrow::Narrowing;

/// What both sides found, and whether a run could be planned.
pub struct Checked {
    /// What was looked at, the source first.
    pub looked: Vec<Looked>,
    /// What the source and the destination may reach.
    pub grants: [Arc<Grants>; 2],
    /// How many streams a run would move, or why it cannot; asked only where both sides are well.
    pub planned: Option<Result<usize, Failure>>,
}

/// Something that one side looked at.
pub struct Looked {
    /// `source` or `destination`.
    pub side: &'static str,
    /// What it was.
    pub name: String,
    /// What was found.
    pub detail: String,
    /// None when it is well.
    pub problem: Option<Failure>,
}

/// Opens both sides, lets each look at what it needs, and plans. Nothing is written.
///
/// # Errors
/// A side that cannot be opened, or that cannot look.
pub fn check(document: &Document, host: &Host) -> Result<Checked, Failure> {
    let clocks = Clocks::new();
    let mut opened = open_all(document, host, &clocks, true)?;
    let (reading, writing) = (&mut opened.reading, &mut opened.writing);
    let mut looked = Vec::new();
    for (side, stage, items) in [
        ("source", &reading.stage, &mut reading.checked),
        ("destination", &writing.stage, &mut writing.checked),
    ] {
        let items = std::mem::take(items).into_iter();
        looked.extend(items.map(|item| found(item, side, stage, document)));
    }
    let grants = [&reading.stage, &writing.stage].map(|stage| Arc::clone(&stage.grants));
    // The plan says which privileges are missing for all streams; a side says only what it met first.
    let is_well = looked.iter().all(|looked| {
        let problem = looked.problem.as_ref();
        problem.is_none_or(privileges::is_missing)
    });
    Ok(Checked {
        looked,
        grants,
        planned: is_well.then(|| planned(document, opened, clocks)),
    })
}

fn found(mut item: CheckItem, side: &'static str, stage: &Stage, document: &Document) -> Looked {
    let problem = item.problem.take().map(|error| {
        let error = Error::Failed {
            connector: stage.connector.name().into(),
            export: "session.check",
            phase: None,
            error: Box::new(error),
        };
        Failure::from_runtime(error, document, side)
    });
    let item = shown::item(document, item);
    Looked {
        side,
        name: item.name,
        detail: item.detail,
        problem,
    }
}

/// How many streams would move; what only the source's moment and the columns' types tell counts.
fn planned(document: &Document, opened: Opened, clocks: Clocks) -> Result<usize, Failure> {
    let everything = Narrowing::default();
    let document = document.clone();
    let mut prepared = Prepared::settled(document, opened, clocks, &everything, |_, _| Ok(()))?;
    let taken = prepared.take_moment_once()?;
    match prepared.plan.refusal(&taken) {
        None => Ok(prepared.plan.streams.len()),
        Some(failure) => Err(failure),
    }
}
