//! `/connectors`: the connectors, and what each stage of the pipelines may reach.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use rapidbyte_page::figures::counted;

use super::pipelines::{Query, everything, next_page, page_of};
use super::{Entry, Live, Page, Table, escape, link_of_pipeline, section};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::registry::{Everything, Known};
use crate::request::Asked;
use crate::tokens::Action;

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let all = everything(&shared);
    let (shown, next) = page_of(&all.known, &granted, &asked.after);
    let mut body = "<h1>Connectors</h1>\n".to_owned();
    if granted.allows(Action::Read, None) && asked.after.is_empty() {
        body += &used(&shared.connectors, &all);
    }
    body += &reach(&shown);
    body += &next_page("/connectors", next);
    let page = Page {
        title: "Connectors",
        entry: Some(Entry::Connectors),
        live: Live::No,
        body,
    };
    Ok(page.answer())
}

/// The connectors that need no path, and those that pipelines name by their path.
fn used(names: &[String], all: &Everything) -> String {
    let stages = || all.known.values().flat_map(|known| known.reach.iter());
    let others = stages().map(|stage| stage.connector.as_str());
    let names: BTreeSet<&str> = names.iter().map(String::as_str).chain(others).collect();
    let rows = names.into_iter().map(|name| {
        let of_name = stages().filter(|stage| stage.connector == name);
        let versions: BTreeSet<&str> = of_name.map(|stage| stage.version.as_str()).collect();
        let versions: Vec<&str> = versions.into_iter().collect();
        let pipelines = all.known.values();
        let uses = |known: &&Known| known.reach.iter().any(|stage| stage.connector == name);
        let uses = match pipelines.filter(uses).count() {
            0 => String::new(),
            some => counted(some as u64, "pipeline"),
        };
        vec![escape(name), escape(&versions.join(", ")), uses]
    });
    let table = Table {
        caption: "The connectors of the server",
        head: &["connector", "version", "used by"],
        rows: rows.collect(),
        none: "The server runs no pipelines.",
    };
    let about = "A connector runs in a sandbox. It reaches nothing but what its stage grants.";
    section("Connectors of the server", about, &table.html())
}

pub(super) fn reach(shown: &[(&str, &Known)]) -> String {
    let rows = shown.iter().flat_map(|(name, known)| {
        known.reach.iter().map(move |stage| {
            let may = stage.may.iter();
            let may: Vec<String> = may
                .map(|line| format!("<code>{}</code>", escape(line)))
                .collect();
            let may = match may.is_empty() {
                true => "nothing".to_owned(),
                false => may.join("<br>"),
            };
            vec![
                link_of_pipeline(name),
                format!("<code>{}</code>", escape(&stage.key)),
                escape(&format!("{} {}", stage.connector, stage.version)),
                may,
            ]
        })
    });
    let table = Table {
        caption: "The grants of each stage",
        head: &["pipeline", "stage", "connector", "may"],
        rows: rows.collect(),
        none: "No pipeline file has stages.",
    };
    let about = "From the pipeline files as the server has read them.";
    section("What pipelines may reach", about, &table.html())
}
