//! `rapidbyte check PIPELINE`

use std::sync::Arc;

use rapidbyte_engine::{Class, Document, Failure, Host, plan};
use rapidbyte_runtime::Grants;
use serde_json::{Value, json};

use crate::args::{Common, Pipeline};
use crate::output::{Output, table};
use crate::setup;

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let host = setup::host(output, Some(&document))?.hurried();
    let items = look(&document, &host)?.items;
    let rows: Vec<Vec<String>> = items.iter().map(|item| item.row(output)).collect();
    output.text(&table(&rows, ""));
    let documents: Vec<Value> = items.iter().map(Item::document).collect();
    // The plan names all privileges that are missing; a side names what it met first.
    let (planned, sides): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| item.side == PLAN_SIDE);
    let mut problems = planned.into_iter().chain(sides);
    match problems.find_map(|item| item.problem) {
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

/// The side of the plan among what was looked at.
const PLAN_SIDE: &str = "both";

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
        let text = text.replace('\n', "; ");
        vec![mark, self.side.into(), self.name.clone(), text]
    }

    fn document(&self) -> Value {
        json!({
            "side": self.side, "name": self.name, "detail": self.detail, "problem": self.problem,
        })
    }
}

/// What both connectors found, and what they may reach.
pub struct Found {
    pub items: Vec<Item>,
    pub grants: [Arc<Grants>; 2],
}

/// Lets both sides look at what they need; where they are well, the last item is the plan.
pub fn look(document: &Document, host: &Host) -> Result<Found, Failure> {
    let redacted = super::redacted(document);
    let checked = plan::check(document, host).map_err(&redacted)?;
    let items = checked.looked.into_iter().map(|looked| Item {
        side: looked.side,
        name: looked.name,
        detail: looked.detail,
        problem: looked.problem.map(&redacted),
    });
    let planned = checked.planned.map(|planned| {
        let planned = planned.map_err(&redacted);
        Item {
            side: PLAN_SIDE,
            name: "plan".into(),
            detail: match &planned {
                Ok(count) => format!("{count} streams"),
                Err(failure) => failure.message.clone(),
            },
            problem: planned.err(),
        }
    });
    Ok(Found {
        items: items.chain(planned).collect(),
        grants: checked.grants,
    })
}
