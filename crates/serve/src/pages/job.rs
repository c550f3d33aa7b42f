//! `/jobs/{id}`: one job, and what an operator does with it.

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Redirect, Response};
use rapidbyte_page::figures::{bytes, count};

use super::jobs::of_state;
use super::{Entry, Live, Page, button, escape, failure, link, link_of_pipeline, properties, when};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::call::Problem;
use crate::ingest::Shared;
use crate::jobs::{self, find};
use crate::request::Place;
use crate::store::{Job, JobState};
use crate::tokens::Action;

/// The page.
pub(super) async fn show(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let job = find(&shared, &id, &granted, Action::Read).await?;
    let may_operate = granted.allows(Action::Operate, Some(&job.pipeline));
    let page = Page {
        title: &format!("Job {}", job.id),
        entry: Some(Entry::Jobs),
        live: match job.state {
            JobState::Pending => Live::Refreshes,
            _ => Live::No,
        },
        body: content(&job, may_operate),
    };
    Ok(page.answer())
}

/// Makes a new job with the body of this one, and shows it.
pub(super) async fn replay(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let answer = jobs::replay(State(shared), Place(id), granted).await?;
    Ok(shown(&answer))
}

/// Cancels the job.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Problem> {
    let answer = jobs::cancel(State(shared), Place(id), granted).await?;
    Ok(shown(&answer))
}

/// Forgets the body of the job.
pub(super) async fn discard(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let answer = jobs::discard(State(shared), Place(id), granted).await?;
    Ok(shown(&answer))
}

/// The page of the job that an answer of `/v1` is about.
fn shown(answer: &Response) -> Response {
    let place = answer.headers().get(LOCATION);
    let place = place.and_then(|place| place.to_str().ok()?.strip_prefix("/v1"));
    Redirect::to(place.unwrap_or("/jobs")).into_response()
}

pub(super) fn content(job: &Job, may_operate: bool) -> String {
    let code = |text: &str| format!("<code>{}</code>", escape(text));
    let format = match &job.encoding {
        Some(encoding) => format!("{}, {}", escape(&job.format), escape(encoding)),
        None => escape(&job.format),
    };
    let mut values = vec![
        ("state", of_state(job.state)),
        ("pipeline", link_of_pipeline(&job.pipeline)),
        ("stream", escape(&job.stream)),
        ("received", when(job.received_ms)),
    ];
    if let Some(ended) = job.ended_ms {
        values.push(("ended", when(ended)));
    }
    let kept = if job.has_body {
        ""
    } else {
        ", not kept any more"
    };
    values.extend([
        ("format", format),
        ("size", format!("{}{kept}", bytes(job.bytes))),
        ("SHA-256", code(&job.sha256)),
    ]);
    if let Some(key) = &job.idempotency_key {
        values.push(("Idempotency-Key", code(key)));
    }
    if let Some(of) = job.replay_of {
        values.push(("replay of", link(&format!("/jobs/{of}"), &of.to_string())));
    }
    let mut body = format!("<h1>Job {}</h1>\n{}", job.id, properties(&values));
    if let Some(reason) = &job.reason {
        body += &failure("Why the job is dead", reason);
        let place = ["line", "column"].iter().filter_map(|key| {
            let value = match &reason[*key] {
                serde_json::Value::Number(number) => number.as_u64().map(count)?,
                value => escape(value.as_str()?),
            };
            Some((*key, value))
        });
        let place: Vec<(&str, String)> = place.collect();
        body += &properties(&place);
    }
    if may_operate {
        body += &actions(job);
    }
    body
}

fn actions(job: &Job) -> String {
    let path = |action: &str| format!("/jobs/{}/{action}", job.id);
    let of = format!("the job {}", job.id);
    let mut buttons = Vec::new();
    if job.state == JobState::Pending {
        buttons.push(button(&path("cancel"), "Cancel", &of, None));
    } else if job.has_body {
        buttons.push(button(&path("replay"), "Replay", &of, None));
        let discard = button(&path("discard"), "Discard the body", &of, None);
        let discard = discard.replace("<button>", "<button class=\"danger\">");
        buttons.push(format!(
            "<details><summary>Discard</summary><p>Without its body the job can never be replayed.</p>{discard}</details>"
        ));
    }
    if job.has_body {
        let href = format!("/v1/jobs/{}/body", job.id);
        buttons.push(link(&href, "Body as it was received"));
    }
    match buttons.is_empty() {
        true => String::new(),
        false => format!("<div class=\"actions\">\n{}\n</div>\n", buttons.join("\n")),
    }
}
