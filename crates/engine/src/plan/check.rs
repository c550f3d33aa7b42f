//! `rapidbyte check`: both sides check what they need, and then the same instances plan a run.

use std::sync::Arc;

use rapidbyte_runtime::{CheckItem, Error, Grants};

use super::open::{Clocks, Opened, Stage, open_all};
use super::prepared::Prepared;
use super::{privileges, shown};
use crate::document::Document;
use crate::failure::Failure;
use crate::host::Host;
use crate::narrow::Narrowing;

/// The findings of both sides, and whether a run could be planned.
pub struct Checked {
    /// The checked items, the source's first.
    pub looked: Vec<Looked>,
    /// The grants of the source and of the destination.
    pub grants: [Arc<Grants>; 2],
    /// How many streams a run would move, or why it cannot. None where a side has a problem other than a missing
    /// privilege.
    pub planned: Option<Result<usize, Failure>>,
}

/// An item that one side checked.
pub struct Looked {
    /// `source` or `destination`.
    pub side: &'static str,
    /// The name of the item.
    pub name: String,
    /// The finding.
    pub detail: String,
    /// None when it is well.
    pub problem: Option<Failure>,
}

/// Opens both sides, lets each check what it needs, and plans. Nothing is written.
///
/// # Errors
/// A side that cannot be opened, or that cannot check.
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

/// How many streams would move. Fails if the source's moment or the types of the columns refuse a stream.
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
