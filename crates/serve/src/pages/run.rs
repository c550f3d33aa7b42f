//! `/runs/{id}`: one run, while it works and when it has ended, and what an operator does with it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use rapidbyte_page::figures::{bytes, count};
use rapidbyte_page::section;
use serde_json::Value;

use super::runs::{of_state, took};
use super::{
    Entry, Live, Page, Table, badge, button, escape, failure, link, link_of_pipeline, properties,
    report, when,
};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::request::Place;
use crate::runs::{self, AtWork, Options, Run, RunState, Runs};
use crate::tokens::Action;

/// Streams whose progress is shown. The script knows the same number.
const MAX_STREAMS: usize = 200;
/// Patterns of the options that are shown.
const MAX_PATTERNS: usize = 50;
/// Failures of single streams that are shown.
const MAX_FAILURES: usize = 100;

/// The page.
pub(super) async fn show(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let runs = runs_of(&shared)?;
    let run = runs::find(runs, &id, &granted).await?;
    let at_work = runs.at_work(run.id);
    let may_operate = granted.allows(Action::Operate, Some(&run.pipeline));
    let page = Page {
        title: &format!("Run {} of {}", run.id, run.pipeline),
        entry: Some(Entry::Runs),
        live: match run.state.is_end() {
            true => Live::No,
            false => Live::Follows(run.id),
        },
        body: content(&run, &at_work, may_operate),
    };
    Ok(page.answer())
}

/// Cancels the run, and shows it.
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let run = runs::end_early(runs_of(&shared)?, &id, &granted).await?;
    Ok(shown(&run))
}

/// Queues a run with the options of this one, and shows it.
pub(super) async fn again(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let runs = runs_of(&shared)?;
    let run = runs::find(runs, &id, &granted).await?;
    let options = || Ok(run.options.clone());
    let (run, _) = runs::queue(runs, &run.pipeline, &granted, options).await?;
    Ok(shown(&run))
}

/// Leads to the page of a run.
pub(super) fn shown(run: &Run) -> Response {
    Redirect::to(&format!("/runs/{}", run.id)).into_response()
}

/// The runs of the server.
///
/// # Errors
/// `unknown_run`: the server runs no pipelines.
pub(super) fn runs_of(shared: &Shared) -> Result<&Arc<Runs>, Refusal> {
    shared.runs.as_ref().ok_or_else(|| {
        let hint = "another program runs the pipelines: look there";
        let text = "the server runs no pipelines";
        Refusal::new(StatusCode::NOT_FOUND, "unknown_run", text, hint)
    })
}

pub(super) fn content(run: &Run, at_work: &AtWork, may_operate: bool) -> String {
    let mut body = format!(
        "<h1>Run {} <span id=\"state\">{}</span></h1>\n{}",
        run.id,
        of_state(run.state),
        facts_of(run)
    );
    if let Some(error) = &run.error {
        let title = match run.state {
            RunState::Cancelled => "Why the run was cancelled",
            RunState::Skipped => "Why the run was skipped",
            RunState::Interrupted => "Why the run was interrupted",
            _ => "Why the run failed",
        };
        body += &failure(title, error);
        body += &of_streams(error);
    }
    if may_operate {
        body += &actions(run);
    }
    let is_active = !run.state.is_end();
    if is_active {
        body += &progress(at_work.progress.as_ref());
    }
    if let Some(report) = &run.report {
        body += &report::content(report);
    }
    body + &log(run.log.as_ref().or(at_work.log.as_ref()), is_active)
}

fn facts_of(run: &Run) -> String {
    let mut values = vec![
        ("pipeline", link_of_pipeline(&run.pipeline)),
        ("trigger", run.trigger.name().to_owned()),
    ];
    if let Some(scheduled) = run.scheduled_ms {
        values.push(("scheduled", when(scheduled)));
    }
    values.push(("queued", when(run.queued_ms)));
    if let Some(started) = run.started_ms {
        values.push(("started", when(started)));
    }
    if let Some(ended) = run.ended_ms {
        let took = took(run).map(|took| format!(", after {took}"));
        let took = took.unwrap_or_default();
        values.push(("ended", format!("{}{took}", when(ended))));
    }
    if let Some(rows) = run.rows {
        values.push(("rows", count(rows)));
    }
    values.push(("options", of_options(&run.options)));
    if run.attempt > 1 {
        values.push(("attempt", run.attempt.to_string()));
    }
    if let Some(of) = run.resumes {
        let of = link(&format!("/runs/{of}"), &format!("run {of}"));
        values.push(("resumes", of));
    }
    properties(&values)
}

fn of_options(options: &Options) -> String {
    let patterns = options.select.iter().take(MAX_PATTERNS);
    let patterns: Vec<String> = patterns
        .map(|pattern| format!("<code>{}</code>", escape(pattern)))
        .collect();
    let more = match options.select.len().saturating_sub(MAX_PATTERNS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let mut shown = match patterns.is_empty() {
        true => "the whole pipeline".to_owned(),
        false => format!("select {}{more}", patterns.join(", ")),
    };
    if options.full_refresh {
        shown += "; full refresh";
    }
    shown
}

/// The failures of single streams, where several failed.
fn of_streams(error: &Value) -> String {
    let failures = error["failures"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = failures.iter().take(MAX_FAILURES);
    let mut shown: String = shown
        .map(|of| {
            let stream = escape(of["stream"].as_str().unwrap_or_default());
            failure(&stream, of)
        })
        .collect();
    if failures.len() > MAX_FAILURES {
        let more = failures.len() - MAX_FAILURES;
        shown += &format!("<p class=\"quiet\">and {more} more</p>\n");
    }
    shown
}

fn actions(run: &Run) -> String {
    let of = format!("the run {}", run.id);
    let button = match run.state.is_end() {
        true => button(
            &format!("/runs/{}/again", run.id),
            "Run again with these options",
            &of,
            None,
        ),
        false => button(&format!("/runs/{}/cancel", run.id), "Cancel", &of, None)
            .replace("<button>", "<button class=\"danger\">"),
    };
    format!("<div class=\"actions\">\n{button}\n</div>\n")
}

/// The streams of a run at work. The script fills copies of the row in the template.
fn progress(progress: Option<&Value>) -> String {
    let streams = progress.and_then(|progress| progress["streams"].as_array());
    let streams = streams.map_or(&[][..], Vec::as_slice);
    let figure = |stream: &Value, key: &str| stream[key].as_u64();
    let row = |stream: &Value| {
        let state = stream["state"].as_str().unwrap_or_default();
        vec![
            escape(stream["name"].as_str().unwrap_or_default()),
            badge(&escape(state), class_of(state)),
            figure(stream, "rows").map(count).unwrap_or_default(),
            figure(stream, "bytes").map(bytes).unwrap_or_default(),
            figure(stream, "estimated_rows")
                .map(count)
                .unwrap_or_default(),
        ]
    };
    let table = |rows| Table {
        caption: "The streams of the run",
        head: &["stream", "state", "#rows", "#Arrow data", "#estimated rows"],
        rows,
        none: "The run is not planned yet.",
    };
    let shown = table(streams.iter().take(MAX_STREAMS).map(row).collect()).html();
    let template = table(vec![row(&Value::Null)]).html();
    let about = "Rows that the run has taken so far. They are visible in the destination when they are committed.";
    let content = format!(
        "<div id=\"progress\">\n{shown}</div>\n<template id=\"progress-table\">\n{template}</template>\n"
    );
    section("Progress", about, &content)
}

/// The class of the state of a stream. The script knows the same ones.
fn class_of(state: &str) -> &'static str {
    match state {
        "running" => "running",
        "done" => "ok",
        "failed" => "bad",
        _ => "",
    }
}

fn log(lines: Option<&Value>, is_active: bool) -> String {
    let lines = lines.and_then(Value::as_array);
    let lines = lines.map_or(&[][..], Vec::as_slice);
    if lines.is_empty() && !is_active {
        return String::new();
    }
    let items = lines.iter().map(|line| {
        let text = |key: &str| escape(line[key].as_str().unwrap_or_default());
        let from = match line["stream"].as_str() {
            Some(stream) => format!("{} {}", text("from"), escape(stream)),
            None => text("from"),
        };
        format!(
            "<li class=\"{}\"><span class=\"quiet\">{from}</span> {}</li>\n",
            text("level"),
            text("message")
        )
    });
    let items: String = items.collect();
    let about = "The last lines of the run, at most 200.";
    section(
        "Log",
        about,
        &format!("<ol id=\"log\" class=\"log\">\n{items}</ol>\n"),
    )
}
