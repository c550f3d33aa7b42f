//! Pages for people: pipelines, runs, jobs, connectors and settings, as HTML that the server renders.
//!
//! They show what `/v1` tells, under the same scopes, and their forms do what its POST requests do. Each text that is not
//! ours is escaped. A page works without its script, which
//! only keeps it up to date.

mod changes;
mod connectors;
mod job;
mod jobs;
mod list;
mod pipeline;
mod pipelines;
mod rejects;
mod report;
mod run;
mod runs;
mod schedule;
mod settings;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rapidbyte_page::clock::{readable_ms, utc_ms, words};
use rapidbyte_page::escape::html as escape;
use rapidbyte_page::{STYLE, section};
use serde_json::Value;

use crate::answer::Told;
use crate::ingest::Shared;
use crate::store::now_ms;
use table::Table;

const OWN_STYLE: &str = include_str!("pages/pages.css");
const SCRIPT: &str = include_str!("pages/app.js");
/// Bytes of a form.
const MAX_FORM: usize = 8 << 10;
/// Pipelines of a page.
const MAX_PIPELINES: usize = 200;
/// Paths whose errors are JSON, whatever the client accepts.
const FOR_PROGRAMS: [&str; 4] = ["/v1/", "/metrics", "/healthz", "/readyz"];

/// The entries of the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Pipelines,
    Runs,
    Jobs,
    Changes,
    Connectors,
    Settings,
}

impl Entry {
    const ALL: [(Self, &str, &str); 6] = [
        (Self::Pipelines, "/", "Pipelines"),
        (Self::Runs, "/runs", "Runs"),
        (Self::Jobs, "/jobs", "Jobs"),
        (Self::Changes, "/changes", "Changes"),
        (Self::Connectors, "/connectors", "Connectors"),
        (Self::Settings, "/settings", "Settings"),
    ];
}

/// A page. Its title is text, and its body HTML.
struct Page<'p> {
    title: &'p str,
    entry: Option<Entry>,
    live: Live,
    body: String,
}

/// How the content of a page changes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    No,
    /// The script reads it again from time to time.
    Refreshes,
    /// The script follows the events of this run.
    Follows(i64),
}

/// The paths of the pages.
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(pipelines::list))
        .route("/pipelines/{pipeline}", get(pipeline::show))
        .route("/pipelines/{pipeline}/retry", post(pipeline::retry))
        .route("/pipelines/{pipeline}/run", post(pipeline::run))
        .route("/pipelines/{pipeline}/rejects", get(rejects::show))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(run::show))
        .route("/runs/{id}/cancel", post(run::cancel))
        .route("/runs/{id}/again", post(run::again))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(job::show))
        .route("/jobs/{id}/replay", post(job::replay))
        .route("/jobs/{id}/cancel", post(job::cancel))
        .route("/jobs/{id}/discard", post(job::discard))
        .route("/changes", get(changes::list))
        .route("/connectors", get(connectors::list))
        .route("/settings", get(settings::show))
        .route("/app.js", get(script))
        .layer(DefaultBodyLimit::max(MAX_FORM))
}

async fn script() -> Response {
    let kind = HeaderValue::from_static("text/javascript; charset=utf-8");
    ([(CONTENT_TYPE, kind)], SCRIPT).into_response()
}

/// Shows an error as a page to a client that asks for pages.
pub async fn show_refusals(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_for_programs = FOR_PROGRAMS.iter().any(|begin| path.starts_with(begin));
    let accepted = request.headers().get(ACCEPT);
    let accepts_html = accepted
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.contains("text/html"));
    let response = next.run(request).await;
    let told = response.extensions().get::<Told>().cloned();
    let Some(Told(error)) = told.filter(|_| accepts_html && !is_for_programs) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    parts.headers.insert(CONTENT_TYPE, kind);
    let page = of_error(parts.status, &error);
    Response::from_parts(parts, page.into())
}

fn of_error(status: StatusCode, error: &Value) -> String {
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::UNAUTHORIZED => "Token required",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT => "Not now",
        _ => "The request failed",
    };
    let text = |key: &str| escape(error[key].as_str().unwrap_or_default());
    let body = format!(
        "<h1>{title}</h1>\n<section class=\"failure\">\n<h2>{}</h2>\n<p>{}</p>\n<p>{}</p>\n</section>\n",
        text("code"),
        text("message"),
        text("hint"),
    );
    let page = Page {
        title,
        entry: None,
        live: Live::No,
        body,
    };
    page.html()
}

impl Page<'_> {
    fn html(&self) -> String {
        let entries: String = Entry::ALL
            .iter()
            .map(|(entry, path, name)| {
                let current = match self.entry == Some(*entry) {
                    true => " aria-current=\"page\"",
                    false => "",
                };
                format!("<a href=\"{path}\"{current}>{name}</a>\n")
            })
            .collect();
        let live = match self.live {
            Live::No => String::new(),
            Live::Refreshes => " data-live".into(),
            Live::Follows(run) => format!(" data-run=\"{run}\""),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{} - Rapidbyte</title>\n<style>\n{STYLE}{OWN_STYLE}</style>\n\
             <script src=\"/app.js\" defer></script>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the content</a>\n\
             <nav aria-label=\"Pages\">\n<strong>Rapidbyte</strong>\n{entries}</nav>\n\
             <main id=\"main\" tabindex=\"-1\"{live}>\n{}</main>\n\
             <footer>Rapidbyte {}. Times are in UTC; this page is of {}.</footer>\n</body>\n</html>\n",
            escape(self.title),
            self.body,
            env!("CARGO_PKG_VERSION"),
            readable_ms(now_ms()),
        )
    }

    fn answer(&self) -> Response {
        Html(self.html()).into_response()
    }
}

/// A part of a path or of a query.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A link with a text that is not HTML.
fn link(href: &str, text: &str) -> String {
    format!("<a href=\"{href}\">{}</a>", escape(text))
}

fn link_of_pipeline(name: &str) -> String {
    link(&format!("/pipelines/{}", encoded(name)), name)
}

fn badge(word: &str, class: &str) -> String {
    format!("<span class=\"badge {class}\">{word}</span>")
}

/// A moment.
fn moment(ms: i64) -> String {
    format!(
        "<time datetime=\"{}\">{}</time>",
        utc_ms(ms),
        readable_ms(ms)
    )
}

/// A moment, and how long ago it was.
fn when(ms: i64) -> String {
    format!("{} <span class=\"age\">{}</span>", moment(ms), ago(ms))
}

/// A moment that comes, and how long it takes until then.
fn coming(ms: i64) -> String {
    let until = u64::try_from(ms.saturating_sub(now_ms())).unwrap_or(0);
    let until = words(Duration::from_millis(until));
    format!("{} <span class=\"age\">in {until}</span>", moment(ms))
}

fn ago(ms: i64) -> String {
    let since = u64::try_from(now_ms().saturating_sub(ms)).unwrap_or(0);
    format!("{} ago", words(Duration::from_millis(since)))
}

/// A failure as JSON: its code, what happened, and what to do next.
fn problem(failure: &Value) -> String {
    let text = |key: &str| failure[key].as_str().unwrap_or_default();
    let part = |before: &str, text: &str, after: &str| match text {
        "" => String::new(),
        text => format!("{before}{}{after}", escape(text)),
    };
    format!(
        "{}{}{}{}",
        part("<code>", text("code"), "</code> "),
        part("", text("message"), ""),
        part(" <span class=\"quiet\">at ", text("location"), "</span>"),
        part("<span class=\"hint\">", text("hint"), "</span>"),
    )
}

/// A block with the same.
fn failure(title: &str, of: &Value) -> String {
    format!(
        "<section class=\"failure\">\n<h2>{title}</h2>\n<p>{}</p>\n</section>\n",
        problem(of)
    )
}

/// Figures with their names, both HTML.
fn facts(values: &[(&str, String)]) -> String {
    let values: String = values
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"))
        .collect();
    format!("<dl class=\"facts\">\n{values}</dl>\n")
}

/// Names and values, both HTML.
fn properties(values: &[(&str, String)]) -> String {
    let values: String = values
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n"))
        .collect();
    format!("<dl class=\"properties\">\n{values}</dl>\n")
}

/// A form that is a button. `value` is a field and its value; `of` tells a screen reader what the button is about.
fn button(action: &str, word: &str, of: &str, value: Option<(&str, &str)>) -> String {
    let value = value.map_or(String::new(), |(name, value)| {
        let value = escape(value);
        format!("<input type=\"hidden\" name=\"{name}\" value=\"{value}\">")
    });
    format!(
        "<form method=\"post\" action=\"{action}\">{value}<button>{word}<span class=\"unseen\"> {}</span></button></form>",
        escape(of)
    )
}
