//! `/jobs`: the jobs of the queue, the newest first.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rapidbyte_page::figures::{bytes, count};

use super::list::{List, Query, choices, pipelines_of};
use super::pipelines::everything;
use super::{Entry, Live, Page, Table, ago, badge, escape, link, properties, when};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::request::Asked;
use crate::store::{Job, JobState, Shown};
use crate::tokens::Action;

/// Jobs of a page.
const PAGE: usize = 50;
/// Characters of a message in the list.
const MAX_MESSAGE: usize = 160;

/// The choice of dead jobs whose body was discarded.
const DISCARDED: &str = "discarded";

/// What this list is.
pub(super) const LIST: List = List {
    path: "/jobs",
    entries: "jobs",
};

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let (state, discarded) = match asked.state.as_str() {
        "" => (None, None),
        DISCARDED => (Some(JobState::Dead), Some(true)),
        name => (
            Some(JobState::of(name).ok_or_else(|| unknown_state(name))?),
            None,
        ),
    };
    let all = everything(&shared);
    let choices = choices(&all, &granted);
    let pipelines = pipelines_of(&asked, &choices, &granted)?;
    let shown = Shown {
        pipelines,
        state,
        discarded,
        before: asked.before,
    };
    let mut jobs = shared.store.newest(shown, PAGE as u32 + 1).await?;
    let has_more = jobs.len() > PAGE;
    jobs.truncate(PAGE);
    let mut body = "<h1>Jobs</h1>\n".to_owned();
    if granted.allows(Action::Read, None) {
        body += &queue(&shared).await?;
    }
    body += &LIST.filters(
        &asked,
        &choices,
        JobState::NAMES.into_iter().chain([DISCARDED]),
    );
    body += &table(&jobs);
    let oldest = jobs.last().filter(|_| has_more).map(|job| job.id);
    body += &LIST.pages(&asked, oldest);
    let page = Page {
        title: "Jobs",
        entry: Some(Entry::Jobs),
        live: Live::Refreshes,
        body,
    };
    Ok(page.answer())
}

async fn queue(shared: &Shared) -> Result<String, Refusal> {
    let (held, limits) = (shared.store.held(), shared.store.limits());
    let streams = shared.store.stream_states().await?;
    let oldest = streams.iter().filter_map(|state| state.oldest_ms).min();
    let of = |now: String, limit: String| format!("{now} <small>of {limit}</small>");
    Ok(properties(&[
        ("pending jobs", of(count(held.jobs), count(limits.jobs))),
        (
            "bytes of pending and dead jobs",
            of(bytes(held.bytes), bytes(limits.bytes)),
        ),
        (
            "oldest pending job",
            oldest.map_or("none".to_owned(), |ms| format!("received {}", ago(ms))),
        ),
    ]))
}

/// The state of a job.
pub(super) fn of_state(state: JobState) -> String {
    let class = match state {
        JobState::Pending => "waiting",
        JobState::Done => "ok",
        JobState::Dead => "bad",
        JobState::Cancelled => "",
    };
    badge(state.name(), class)
}

/// The state of a job in the list. A dead or cancelled job without its body cannot be replayed any more.
fn of_state_and_body(job: &Job) -> String {
    let state = of_state(job.state);
    match job.state {
        JobState::Dead | JobState::Cancelled if !job.has_body => {
            format!("{state} <small>without its body</small>")
        }
        _ => state,
    }
}

pub(super) fn table(jobs: &[Job]) -> String {
    let rows = jobs.iter().map(|job| {
        let reason = job.reason.as_ref().map(|reason| {
            let text = |key: &str| reason[key].as_str().unwrap_or_default();
            let message: String = text("message").chars().take(MAX_MESSAGE).collect();
            format!("<code>{}</code> {}", escape(text("code")), escape(&message))
        });
        vec![
            link(&format!("/jobs/{}", job.id), &job.id.to_string()),
            of_state_and_body(job),
            format!("{}.<wbr>{}", escape(&job.pipeline), escape(&job.stream)),
            when(job.received_ms),
            bytes(job.bytes),
            reason.unwrap_or_default(),
        ]
    });
    let table = Table {
        caption: "Jobs, the newest first",
        head: &["job", "state", "stream", "received", "#size", "reason"],
        rows: rows.collect(),
        none: "No job is like this.",
    };
    table.html()
}

fn unknown_state(name: &str) -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "invalid_query",
        format!("no job is in the state {name:?}"),
        "ask for pending, done, dead, cancelled or discarded",
    )
}
