//! Plans one stream again while a run moves it, because the source has found other columns in its data.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use rapidbyte_runtime::{Clock, MemoryBudget, Stream};
use rapidbyte_wire::{ipc, types};

use super::choose::Chosen;
use super::names::refuse_taken;
use super::open::{Transforming, open_session, planning_sandbox};
use super::place::place;
use super::planned::{Plan, StreamPlan};
use super::shown;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::verify;

/// The plan of a stream with the columns that it has now.
///
/// # Errors
/// A transform or the destination refuses it, or cannot be reached.
pub(crate) fn replan(
    plan: &Plan,
    host: &Host,
    stream: &StreamPlan,
    described: Stream,
) -> Result<StreamPlan, Failure> {
    let Plan {
        document,
        destination,
        ..
    } = plan;
    let name = &stream.name;
    let lost = || Failure::new(Class::Run, "internal", "a stream without an entry").in_stream(name);
    let entry = document.source.entry_for(name).ok_or_else(lost)?;
    let discovered = shown::streams(document, vec![described]).pop();
    let chosen = Chosen {
        entry,
        discovered: discovered.ok_or_else(lost)?,
        columns: stream.columns.clone(),
        left_out: stream.left_out.clone(),
    };
    let clock = Clock::new();
    let memory = document.resources.memory as usize;
    let memory = MemoryBudget::part_of(&host.usage.memory, memory, memory / 4);
    let stages = stream.transforms.iter().map(|step| step.stage.clone());
    let mut transforms: Vec<Transforming> = stages
        .map(|stage| Transforming::new(document, host, &clock, stage, Arc::clone(&memory)))
        .collect();
    let sandbox = planning_sandbox(document, host, &clock, destination);
    let mut session = open_session(document, destination, sandbox)?;
    let mut placed = place(
        document,
        &plan.source.spec,
        chosen,
        &mut transforms,
        &mut session,
        plan.full_refresh,
    )?;
    if stream.target.stages {
        placed.target = verify::staged_target(&placed.target);
        placed.keys = None;
    }
    let planned = std::slice::from_ref(&placed);
    refuse_taken(
        document,
        &destination.spec,
        &plan.found,
        planned,
        &mut session,
    )?;
    session.close();
    match placed.unfit() {
        Some(unfit) => Err(unfit),
        None => Ok(placed),
    }
}

/// The columns of a stream that differ after a change, for the operator.
pub(crate) fn difference(before: &StreamPlan, after: &StreamPlan) -> String {
    let fields = |stream: &StreamPlan| {
        let schema = ipc::decode_schema(&stream.discovered.schema);
        schema.unwrap_or_else(|_| Schema::empty())
    };
    let (before, after) = (fields(before), fields(after));
    let known: HashMap<&str, &FieldRef> = before
        .fields()
        .iter()
        .map(|f| (f.name().as_str(), f))
        .collect();
    let told = |field: &FieldRef| {
        let (name, now) = (field.name(), types::type_name(field));
        match known.get(name.as_str()) {
            None => Some(format!("the new column {name}: {now}")),
            Some(was) if *was == field => None,
            Some(was) => Some(format!(
                "{name}: {now} instead of {}",
                types::type_name(was)
            )),
        }
    };
    let all: Vec<String> = after.fields().iter().filter_map(told).collect();
    const SHOWN: usize = 8;
    match all.len().saturating_sub(SHOWN) {
        0 => all.join(", "),
        more => format!("{} and {more} more", all[..SHOWN].join(", ")),
    }
}
