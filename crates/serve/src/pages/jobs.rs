//! `/jobs`: the jobs of the queue, the newest first.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rapidbyte_page::figures::{bytes, count};
use serde::Deserialize;

use super::pipelines::everything;
use super::{Entry, Page, Table, ago, badge, encoded, escape, link, properties, when};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::request::Asked;
use crate::store::{Job, JobState, Shown};
use crate::tokens::Action;

/// Jobs of a page.
const PAGE: usize = 50;
/// Pipelines of the filter.
const MAX_CHOICES: usize = 1000;
/// Characters of a message in the list.
const MAX_MESSAGE: usize = 160;

/// The query of the page. A form sends an empty field for no choice.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Jobs of this pipeline.
    #[serde(default)]
    pub pipeline: String,
    /// Jobs in this state.
    #[serde(default)]
    pub state: String,
    /// Jobs before this one.
    pub before: Option<i64>,
}

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let state = match asked.state.as_str() {
        "" => None,
        name => Some(JobState::of(name).ok_or_else(|| unknown_state(name))?),
    };
    let all = everything(&shared);
    let may_all = granted.allows(Action::Read, None);
    let names = all.known.keys();
    let names = names.filter(|name| granted.allows(Action::Read, Some(name)));
    let choices: Vec<&str> = names.take(MAX_CHOICES).map(String::as_str).collect();
    let pipelines = match asked.pipeline.as_str() {
        "" if may_all => None,
        "" => {
            if choices.is_empty() {
                granted.may(Action::Read, None)?;
            }
            Some(choices.iter().map(|name| (*name).to_owned()).collect())
        }
        name => {
            granted.may(Action::Read, Some(name))?;
            Some(vec![name.to_owned()])
        }
    };
    let shown = Shown {
        pipelines,
        state,
        before: asked.before,
    };
    let mut jobs = shared.store.newest(shown, PAGE as u32 + 1).await?;
    let has_more = jobs.len() > PAGE;
    jobs.truncate(PAGE);
    let mut body = "<h1>Jobs</h1>\n".to_owned();
    if may_all {
        body += &queue(&shared).await?;
    }
    body += &filters(&asked, &choices);
    body += &table(&jobs);
    let oldest = jobs.last().filter(|_| has_more).map(|job| job.id);
    body += &pages(&asked, oldest);
    let page = Page {
        title: "Jobs",
        entry: Some(Entry::Jobs),
        is_live: true,
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

pub(super) fn filters(asked: &Query, choices: &[&str]) -> String {
    let option = |value: &str, text: &str, chosen: &str| {
        let selected = if value == chosen { " selected" } else { "" };
        let (value, text) = (escape(value), escape(text));
        format!("<option value=\"{value}\"{selected}>{text}</option>")
    };
    let mut pipelines = option("", "all", &asked.pipeline);
    let is_other = !asked.pipeline.is_empty() && !choices.contains(&asked.pipeline.as_str());
    let chosen = is_other.then_some(asked.pipeline.as_str());
    for name in chosen.into_iter().chain(choices.iter().copied()) {
        pipelines += &option(name, name, &asked.pipeline);
    }
    let mut states = option("", "all", &asked.state);
    for state in JobState::ALL {
        states += &option(state.name(), state.name(), &asked.state);
    }
    format!(
        "<form class=\"filters\" action=\"/jobs\">\n\
         <div><label for=\"pipeline\">Pipeline</label><select id=\"pipeline\" name=\"pipeline\">{pipelines}</select></div>\n\
         <div><label for=\"state\">State</label><select id=\"state\" name=\"state\">{states}</select></div>\n\
         <button>Show</button>\n</form>\n"
    )
}

pub(super) fn pages(asked: &Query, older: Option<i64>) -> String {
    let path = format!(
        "/jobs?pipeline={}&amp;state={}",
        encoded(&asked.pipeline),
        encoded(&asked.state)
    );
    let mut links = String::new();
    if asked.before.is_some() {
        links += &format!("<a href=\"{path}\">Newest jobs</a>\n");
    }
    if let Some(older) = older {
        links += &format!("<a href=\"{path}&amp;before={older}\">Older jobs</a>\n");
    }
    match links.is_empty() {
        true => links,
        false => format!("<nav class=\"pages\" aria-label=\"Pages of jobs\">\n{links}</nav>\n"),
    }
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

pub(super) fn table(jobs: &[Job]) -> String {
    let rows = jobs.iter().map(|job| {
        let reason = job.reason.as_ref().map(|reason| {
            let text = |key: &str| reason[key].as_str().unwrap_or_default();
            let message: String = text("message").chars().take(MAX_MESSAGE).collect();
            format!("<code>{}</code> {}", escape(text("code")), escape(&message))
        });
        vec![
            link(&format!("/jobs/{}", job.id), &job.id.to_string()),
            of_state(job.state),
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
        "ask for pending, done, dead or cancelled",
    )
}
