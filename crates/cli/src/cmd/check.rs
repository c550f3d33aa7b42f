//! `rapidbyte check PIPELINE`

use rapidbyte_engine::plan::Stage;
use rapidbyte_engine::{Class, Document, Failure, Host, Plan, plan};
use rapidbyte_runtime::{CheckItem, Clock, Error};
use serde_json::{Value, json};

use crate::args::{Common, Pipeline};
use crate::output::{Output, table};
use crate::setup;

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let host = setup::host(output, Some(&document))?;
    let mut items = sides(&document, &host)?.items;
    let sick = |items: &[Item]| items.iter().any(|item| item.problem.is_some());
    if !sick(&items) {
        // What a run would do is asked only when both sides are well.
        items.push(planned(&document, &host));
    }
    let rows: Vec<Vec<String>> = items.iter().map(|item| item.row(output)).collect();
    output.text(&table(&rows, ""));
    let documents: Vec<Value> = items.iter().map(Item::document).collect();
    match items.into_iter().find_map(|item| item.problem) {
        None => {
            output.document(&json!({ "status": "ok", "checks": documents }));
            Ok(())
        }
        Some(failure) => {
            let class = if failure.class == Class::Cancelled {
                Class::Run
            } else {
                failure.class
            };
            output.known(json!({ "checks": documents }));
            Err(Failure { class, ..failure })
        }
    }
}

/// Something that was looked at.
pub struct Item {
    /// `source`, `destination` or `both`.
    pub side: &'static str,
    pub name: String,
    /// What was found.
    pub detail: String,
    /// Without secrets; none when it is well.
    pub problem: Option<Failure>,
}

impl Item {
    fn row(&self, output: &Output) -> Vec<String> {
        let (mark, text) = match &self.problem {
            None => (output.paint("32", "ok"), &self.detail),
            Some(failure) => (output.paint("31", "failed"), &failure.message),
        };
        vec![mark, self.side.into(), self.name.clone(), text.clone()]
    }

    fn document(&self) -> Value {
        json!({
            "side": self.side, "name": self.name, "detail": self.detail, "problem": self.problem,
        })
    }
}

/// What both connectors found, and what they may reach.
pub struct Sides {
    pub items: Vec<Item>,
    pub stages: [Stage; 2],
}

/// Opens both sides and lets each look at what it needs.
pub fn sides(document: &Document, host: &Host) -> Result<Sides, Failure> {
    let redacted = super::redacted(document);
    let clock = Clock::new();
    let (source_stage, mut source) =
        plan::open_source(document, host, &clock).map_err(&redacted)?;
    let (destination_stage, mut destination) =
        plan::open_destination(document, host, &clock).map_err(&redacted)?;
    let mut items = Vec::new();
    for (side, stage, checked) in [
        ("source", &source_stage, source.check()),
        ("destination", &destination_stage, destination.check()),
    ] {
        let failed = |error| redacted(Failure::from_runtime(error, document, side));
        for item in checked.map_err(failed)? {
            let CheckItem {
                name,
                problem,
                detail,
            } = item;
            let problem = problem.map(|error| {
                failed(Error::Failed {
                    connector: stage.connector.name().into(),
                    export: "session.check",
                    error: Box::new(error),
                })
            });
            items.push(Item {
                side,
                name,
                detail,
                problem,
            });
        }
    }
    Ok(Sides {
        items,
        stages: [source_stage, destination_stage],
    })
}

/// Whether a run could be planned.
pub fn planned(document: &Document, host: &Host) -> Item {
    let streams = Plan::new(document.clone(), host).and_then(|mut plan| {
        let mut streams = plan.streams.iter();
        streams.try_for_each(|stream| stream.refuse_unfit())?;
        plan.snapshot()?;
        Ok(plan.streams.len())
    });
    let (detail, problem) = match streams {
        Ok(count) => (format!("{count} streams"), None),
        Err(failure) => {
            let failure = super::redacted(document)(failure);
            (failure.message.clone(), Some(failure))
        }
    };
    Item {
        side: "both",
        name: "plan".into(),
        detail,
        problem,
    }
}
