//! `/pipelines/{pipeline}`: the streams of a pipeline, its schedule and its last runs.

use std::time::Instant;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use rapidbyte_page::clock::words;
use rapidbyte_page::figures::{bytes, count, counted, rows};
use serde::Deserialize;
use serde_json::json;

use super::pipelines::{States, everything, states};
use super::run::{runs_of, shown};
use super::{
    Entry, Live, Page, Table, ago, badge, button, encoded, escape, failure, link, problem,
    properties, schedule, section, when,
};
use crate::access::Granted;
use crate::agenda::Standing;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::jobs::unknown_pipeline;
use crate::registry::Known;
use crate::request::{Asked, Filled, Kind, Parameters, Place};
use crate::runs::{self, Options};
use crate::store::MAX_COUNTED;
use crate::tokens::Action;

/// Streams of a pipeline that are listed.
const MAX_STREAMS: usize = 1000;

/// The query of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// The action that the page before has done.
    did: Option<Did>,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[("did", Kind::OneOf(&["retry"]))];
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Did {
    Retry,
}

/// The form of the page.
#[derive(Debug, Deserialize)]
pub(super) struct Retry {
    stream: String,
}

/// The page.
pub(super) async fn show(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Read, Some(&name))?;
    let all = everything(&shared);
    let known = all
        .known
        .get(&name)
        .ok_or_else(|| unknown_pipeline(&name))?;
    let states = states(&shared, std::iter::once(known)).await?;
    let may_operate = granted.allows(Action::Operate, Some(&name));
    let notice = match asked.did {
        Some(Did::Retry) => {
            "<p class=\"notice\" role=\"status\">The stream is tried again now.</p>\n"
        }
        None => "",
    };
    let page = Page {
        title: &name,
        entry: Some(Entry::Pipelines),
        live: Live::Refreshes,
        body: format!("{notice}{}", content(&name, known, &states, may_operate)),
    };
    Ok(page.answer())
}

/// Tries a stream again that waits after a failure.
pub(super) async fn retry(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
    Filled(form): Filled<Retry>,
) -> Result<Response, Refusal> {
    let back = format!("/pipelines/{}?did=retry", encoded(&name));
    let place = Place((name, form.stream));
    crate::pipelines::retry(State(shared), place, granted).await?;
    Ok(Redirect::to(&back).into_response())
}

/// The form that begins a run. A browser sends no field for a box that is not checked.
#[derive(Debug, Deserialize)]
pub(super) struct Begin {
    /// Patterns, one on each line.
    #[serde(default)]
    select: String,
    #[serde(default)]
    full_refresh: bool,
}

/// Queues a run, and shows it.
pub(super) async fn run(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
    Filled(form): Filled<Begin>,
) -> Result<Response, Refusal> {
    let patterns = form.select.lines().map(str::trim);
    let patterns = patterns.filter(|pattern| !pattern.is_empty());
    let options = Options {
        select: patterns.map(str::to_owned).collect(),
        full_refresh: form.full_refresh,
    };
    let runs = runs_of(&shared)?;
    let (run, _) = runs::queue(runs, &name, &granted, || runs::checked(options)).await?;
    Ok(shown(&run))
}

pub(super) fn content(name: &str, known: &Known, states: &States, may_operate: bool) -> String {
    let pipeline = &known.pipeline;
    let file = known.file.as_ref().map(|file| file.to_string_lossy());
    let file = file.map_or("given by the program".to_owned(), |file| {
        format!("<code>{}</code>", escape(&file))
    });
    let mut values = vec![("file", file)];
    if known.reads_queue() {
        values.push(("jobs", of_jobs(name)));
    }
    if let Some(to) = pipeline.rejects_to() {
        let href = format!("/pipelines/{}/rejects", encoded(name));
        values.push((
            "rejects",
            format!("{} in {}", link(&href, "kept"), escape(to)),
        ));
    }
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"quiet\">{} → {}</p>\n{}",
        escape(name),
        escape(pipeline.source()),
        escape(pipeline.destination()),
        properties(&values),
    );
    if let Some(wrong) = &known.problem {
        let title = "The file is wrong, and the pipeline runs as it was before";
        body += &failure(title, &json!(wrong));
    }
    if !known.reads_queue() {
        let nothing = schedule::Standing::default();
        let standing = states.runs.get(name).unwrap_or(&nothing);
        return body + &schedule::content(known, standing, may_operate) + &names(known);
    }
    let streams = pipeline.streams().into_iter();
    let lines = streams.map(|stream| row(name, stream, states, may_operate));
    let table = Table {
        caption: "The streams of the pipeline",
        head: &[
            "stream",
            "state",
            "#pending jobs",
            "#pending bytes",
            "oldest pending job",
            "#dead jobs",
            "last run",
            "problem",
        ],
        rows: lines.collect(),
        none: "The pipeline file names no streams: the source decides on them in each run.",
    };
    let about = "Rows come over HTTP. The pending jobs of a stream become one run.";
    body + &section("Streams", about, &table.html())
}

/// The streams that the file names.
fn names(known: &Known) -> String {
    let streams = known.pipeline.streams();
    if streams.is_empty() {
        let about = "The pipeline file names no streams: the source decides on them in each run.";
        return section("Streams", about, "");
    }
    let items = streams.iter().take(MAX_STREAMS);
    let mut items: String = items
        .map(|stream| format!("<li>{}</li>\n", escape(stream)))
        .collect();
    if streams.len() > MAX_STREAMS {
        items += &format!("<li>and {} more</li>\n", streams.len() - MAX_STREAMS);
    }
    section(
        "Streams",
        "The streams that the pipeline file names.",
        &format!("<ul>\n{items}</ul>\n"),
    )
}

fn of_jobs(name: &str) -> String {
    let name = encoded(name);
    format!(
        "<a href=\"/jobs?pipeline={name}\">all</a>, <a href=\"/jobs?pipeline={name}&amp;state=pending\">pending</a>, \
         <a href=\"/jobs?pipeline={name}&amp;state=dead\">dead</a>"
    )
}

fn row(name: &str, stream: &str, states: &States, may_operate: bool) -> Vec<String> {
    let key = (name.to_owned(), stream.to_owned());
    let jobs = states.jobs.get(&key);
    let standing = states.standings.get(&key);
    let is_waiting = jobs.is_some_and(|jobs| jobs.pending > 0);
    let state = match standing {
        Some(standing) if standing.works() => badge("running", "running"),
        Some(standing) if standing.problem.is_some() => badge("failing", "bad"),
        _ if is_waiting => badge("waiting", "waiting"),
        _ => badge("idle", "ok"),
    };
    let pending = jobs.map_or(0, |jobs| jobs.pending);
    let more = if pending >= MAX_COUNTED { "+" } else { "" };
    let figure = |figure: u64, text: String| match figure {
        0 => String::new(),
        _ => text,
    };
    let dead = jobs.map_or(0, |jobs| jobs.dead);
    let last = standing.and_then(|standing| standing.last.as_ref());
    let last = last.map(|last| {
        format!(
            "{}<br>{} of {} in {:.2} s",
            when(last.ended_ms),
            rows(last.rows),
            counted(last.jobs, "job"),
            last.seconds
        )
    });
    let oldest = jobs.and_then(|jobs| jobs.oldest_ms);
    vec![
        escape(stream),
        state,
        figure(pending, format!("{}{more}", count(pending))),
        figure(
            pending,
            jobs.map_or(String::new(), |jobs| {
                format!("{}{more}", bytes(jobs.pending_bytes))
            }),
        ),
        oldest.map_or(String::new(), ago),
        figure(
            dead,
            format!(
                "<a href=\"/jobs?pipeline={}&amp;state=dead\">{}</a>",
                encoded(name),
                count(dead)
            ),
        ),
        last.unwrap_or_default(),
        standing.map_or(String::new(), |standing| {
            of_failures(name, stream, standing, may_operate)
        }),
    ]
}

/// Why a stream waits, and the button that ends the wait.
fn of_failures(name: &str, stream: &str, standing: &Standing, may_operate: bool) -> String {
    let Some(failure) = &standing.problem else {
        return String::new();
    };
    let failed = match standing.failures {
        // The run has not failed yet.
        0 => "is retried from the last commit".to_owned(),
        1 => "failed once".to_owned(),
        times => format!("failed {times} times in a row"),
    };
    let again = standing.again_at.map(|at| {
        let wait = at.saturating_duration_since(Instant::now());
        format!(", is tried again in {}", words(wait))
    });
    let retry = match may_operate {
        true => button(
            &format!("/pipelines/{}/retry", encoded(name)),
            "Retry now",
            &format!("the stream {stream}"),
            Some(("stream", stream)),
        ),
        false => String::new(),
    };
    format!(
        "{}<p class=\"quiet\">{failed}{}</p>{retry}",
        problem(failure),
        again.unwrap_or_default()
    )
}
