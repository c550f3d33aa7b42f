//! `rapidbyte check PIPELINE`

use rapidbyte_engine::{Class, Failure, Plan, plan};
use rapidbyte_runtime::{CheckItem, Clock, Error};
use serde_json::json;

use crate::args::{Common, Pipeline};
use crate::output::{Output, table};
use crate::setup;

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let redacted = super::redacted(&document);
    let host = setup::host(output, Some(&document))?;
    let clock = Clock::new();
    let (source_stage, mut source) =
        plan::open_source(&document, &host, &clock).map_err(&redacted)?;
    let (destination_stage, mut destination) =
        plan::open_destination(&document, &host, &clock).map_err(&redacted)?;
    let failed = |side| {
        let document = &document;
        let redacted = &redacted;
        move |error| redacted(Failure::from_runtime(error, document, side))
    };
    let sides = [
        (
            "source",
            source_stage.connector.name(),
            source.check().map_err(failed("source"))?,
        ),
        (
            "destination",
            destination_stage.connector.name(),
            destination.check().map_err(failed("destination"))?,
        ),
    ];
    let mut rows = Vec::new();
    let mut first = None;
    let mut items = Vec::new();
    for (side, connector, checked) in sides {
        for CheckItem {
            name,
            problem,
            detail,
        } in checked
        {
            let problem = problem.map(|error| {
                let error = Box::new(error);
                let error = Error::Failed {
                    connector: connector.into(),
                    export: "session.check",
                    error,
                };
                redacted(Failure::from_runtime(error, &document, side))
            });
            let (mark, text) = match &problem {
                None => (output.paint("32", "ok"), detail.clone()),
                Some(failure) => (output.paint("31", "failed"), failure.message.clone()),
            };
            rows.push(vec![mark, side.into(), name.clone(), text]);
            items.push(json!({ "side": side, "name": name, "detail": detail, "problem": problem }));
            first = first.or(problem);
        }
    }
    drop((source, destination));
    if first.is_none() {
        // What a run would do is asked only when both sides are well.
        let planned = Plan::new(document.clone(), &host).and_then(|mut plan| {
            let mut streams = plan.streams.iter();
            streams.try_for_each(|stream| stream.refuse_unfit())?;
            plan.snapshot()?;
            Ok(plan.streams.len())
        });
        let (mark, detail) = match &planned {
            Ok(count) => (output.paint("32", "ok"), format!("{count} streams")),
            Err(failure) => (output.paint("31", "failed"), failure.message.clone()),
        };
        first = planned.err().map(&redacted);
        rows.push(vec![mark, "both".into(), "plan".into(), detail.clone()]);
        items.push(json!({ "side": "both", "name": "plan", "detail": detail, "problem": first }));
    }
    output.text(&table(&rows, ""));
    match first {
        None => {
            output.document(&json!({ "status": "ok", "checks": items }));
            Ok(())
        }
        Some(failure) => {
            let class = if failure.class == Class::Cancelled {
                Class::Run
            } else {
                failure.class
            };
            output.known(json!({ "checks": items }));
            Err(Failure { class, ..failure })
        }
    }
}
