//! `/runs`: the runs of pipelines with any source but the queue, the newest first.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rapidbyte_page::clock::words;
use rapidbyte_page::figures::{count, seconds};

use super::list::{List, Query, choices, pipelines_of};
use super::pipelines::everything;
use super::{Entry, Live, Page, Table, badge, escape, facts, link, link_of_pipeline, moment};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::request::Asked;
use crate::runs::{Filter, Run, RunState, Runs};
use crate::tokens::Action;

/// Runs of a page.
const PAGE: usize = 50;
/// Characters of a message in the list.
const MAX_MESSAGE: usize = 160;
/// What this list is.
pub(super) const LIST: List = List {
    path: "/runs",
    entries: "runs",
};

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let state = match asked.state.as_str() {
        "" => None,
        name => Some(RunState::of(name).ok_or_else(|| unknown_state(name))?),
    };
    let all = everything(&shared);
    let reads_queue = |name: &str| all.known.get(name).is_some_and(|known| known.reads_queue());
    let choices: Vec<&str> = choices(&all, &granted);
    let pipelines = pipelines_of(&asked, &choices, &granted)?;
    let filter = Filter {
        pipelines,
        state,
        before: asked.before,
        limit: PAGE as u32 + 1,
    };
    let mut body = "<h1>Runs</h1>\n".to_owned();
    let mut runs = Vec::new();
    if let Some(of_server) = &shared.runs {
        runs = of_server.list(filter).await?;
        if granted.allows(Action::Read, None) {
            body += &active(of_server).await?;
        }
    }
    let has_more = runs.len() > PAGE;
    runs.truncate(PAGE);
    let offered: Vec<&str> = choices
        .into_iter()
        .filter(|name| !reads_queue(name))
        .collect();
    let states = RunState::ALL.iter().map(|state| state.name());
    body += &LIST.filters(&asked, &offered, states);
    body += &table("Runs, the newest first", &runs, true);
    let oldest = runs.last().filter(|_| has_more).map(|run| run.id);
    body += &LIST.pages(&asked, oldest);
    body += "<p class=\"quiet\">Jobs of the queue begin runs of their own: the page of a pipeline shows the last one.</p>\n";
    let page = Page {
        title: "Runs",
        entry: Some(Entry::Runs),
        live: Live::Refreshes,
        body,
    };
    Ok(page.answer())
}

/// The runs at work and those that wait, as figures.
async fn active(runs: &Runs) -> Result<String, Refusal> {
    let (queued, running) = runs.active().await?;
    Ok(facts(&[
        ("runs at work", count(running)),
        ("queued runs", count(queued)),
    ]))
}

/// The state of a run.
pub(super) fn of_state(state: RunState) -> String {
    let class = match state {
        RunState::Queued => "waiting",
        RunState::Running => "running",
        RunState::Succeeded => "ok",
        RunState::Failed | RunState::Interrupted => "bad",
        RunState::Cancelled | RunState::Skipped => "",
    };
    badge(state.name(), class)
}

/// The time that a run took, or has taken until now.
pub(super) fn took(run: &Run) -> Option<String> {
    let ended_ms = run.ended_ms?;
    let ms = u64::try_from(ended_ms.saturating_sub(run.started_ms?)).ok()?;
    Some(match ms {
        ..120_000 => seconds(ms as f64 / 1e3),
        _ => words(Duration::from_millis(ms)),
    })
}

/// The code of the error of a run, and the begin of its message.
pub(super) fn reason(run: &Run) -> Option<String> {
    let error = run.error.as_ref()?;
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    let message: String = text("message").chars().take(MAX_MESSAGE).collect();
    Some(format!(
        "<code>{}</code> {}",
        escape(text("code")),
        escape(&message)
    ))
}

/// A table of runs, with their pipelines or without.
pub(super) fn table(caption: &str, runs: &[Run], has_pipelines: bool) -> String {
    let rows = runs.iter().map(|run| {
        let ended = run.ended_ms.map(|ended_ms| {
            let took = took(run).map(|took| format!(" <span class=\"age\">after {took}</span>"));
            format!("{}{}", moment(ended_ms), took.unwrap_or_default())
        });
        let mut cells = vec![
            link(&format!("/runs/{}", run.id), &run.id.to_string()),
            of_state(run.state),
        ];
        cells.extend(has_pipelines.then(|| link_of_pipeline(&run.pipeline)));
        cells.extend([
            run.trigger.name().to_owned(),
            run.scheduled_ms.map(moment).unwrap_or_default(),
            run.started_ms.map(moment).unwrap_or_default(),
            ended.unwrap_or_default(),
            run.rows.map(count).unwrap_or_default(),
            reason(run).unwrap_or_default(),
        ]);
        cells
    });
    let mut head = vec!["run", "state"];
    head.extend(has_pipelines.then_some("pipeline"));
    head.extend(["trigger", "scheduled", "started", "ended", "#rows", "error"]);
    let table = Table {
        caption,
        head: &head,
        rows: rows.collect(),
        none: "No run is like this.",
    };
    table.html()
}

fn unknown_state(name: &str) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "invalid_query",
        format!("no run is in the state {name:?}"),
        "ask for queued, running, succeeded, failed, cancelled, skipped or interrupted",
    )
}
