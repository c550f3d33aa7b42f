//! `/changes`: the statements that changed the columns of targets, the newest first.

use axum::extract::State;
use axum::response::Response;

use super::list::{List, Query, choices, pipelines_of};
use super::pipelines::everything;
use super::{Entry, Live, Page, Table, escape, link, link_of_pipeline, moment};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::request::Asked;
use crate::runs::{Change, ChangeFilter};

/// Changes of a page.
const PAGE: usize = 50;
/// What this list is.
const LIST: List = List {
    path: "/changes",
    entries: "changes",
};

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let all = everything(&shared);
    let choices: Vec<&str> = choices(&all, &granted);
    let filter = ChangeFilter {
        pipelines: pipelines_of(&asked, &choices, &granted)?,
        before: asked.before,
        limit: PAGE as u32 + 1,
    };
    let mut changes = Vec::new();
    if let Some(runs) = &shared.runs {
        changes = runs.changes(filter).await?;
    }
    let has_more = changes.len() > PAGE;
    changes.truncate(PAGE);
    let oldest = changes.last().filter(|_| has_more).map(|change| change.id);
    let body = format!(
        "<h1>Schema changes</h1>\n{}{}{}",
        LIST.filters(&asked, &choices, None),
        table(&changes),
        LIST.pages(&asked, oldest),
    );
    let page = Page {
        title: "Schema changes",
        entry: Some(Entry::Changes),
        live: Live::Refreshes,
        body,
    };
    Ok(page.answer())
}

/// A table of changes.
pub(super) fn table(changes: &[Change]) -> String {
    let rows = changes.iter().map(|change| {
        let by = match change.run {
            Some(run) => link(&format!("/runs/{run}"), &format!("run {run}")),
            None => "jobs".to_owned(),
        };
        vec![
            moment(change.at_ms),
            link_of_pipeline(&change.pipeline),
            escape(&change.stream),
            by,
            format!("<code>{}</code>", escape(&change.statement)),
        ]
    });
    let table = Table {
        caption: "Statements that changed targets, the newest first",
        head: &["time", "pipeline", "stream", "by", "statement"],
        rows: rows.collect(),
        none: "No run has changed the columns of a target.",
    };
    table.html()
}
