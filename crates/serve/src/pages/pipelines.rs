//! `/`: the pipelines, and what needs attention.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use axum::extract::State;
use axum::response::Response;
use rapidbyte_page::figures::{bytes, count};
use serde::Deserialize;
use serde_json::json;

use super::runs::reason;
use super::{
    Entry, Live, MAX_PIPELINES, Page, Table, ago, badge, coming, encoded, escape, facts,
    link_of_pipeline, problem, schedule, section, when,
};
use crate::access::Granted;
use crate::agenda::{Key, Standing};
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::registry::{Everything, Known};
use crate::request::{Asked, Kind, Parameters};
use crate::store::StreamState;
use crate::tokens::Action;

/// The query of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Pipelines behind this one.
    #[serde(default)]
    pub after: String,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[("after", Kind::Text)];
}

/// The state of everything that a page shows.
#[derive(Default)]
pub(super) struct States {
    pub jobs: HashMap<Key, StreamState>,
    pub standings: HashMap<Key, Standing>,
    /// The pipelines of the page that do not read the queue, by their names.
    pub runs: HashMap<String, schedule::Standing>,
}

/// The state of all streams now, and of these pipelines.
pub(super) async fn states(
    shared: &Shared,
    shown: impl Iterator<Item = &Known>,
) -> Result<States, Refusal> {
    let jobs = shared.store.stream_states().await?.into_iter();
    let standings = shared.notice.as_ref().map(|notice| notice.streams());
    Ok(States {
        jobs: jobs
            .map(|state| ((state.pipeline.clone(), state.stream.clone()), state))
            .collect(),
        standings: standings.unwrap_or_default().into_iter().collect(),
        runs: schedule::standings(shared, shown).await?,
    })
}

/// The pipelines now.
pub(super) fn everything(shared: &Shared) -> std::sync::Arc<Everything> {
    let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
    all.unwrap_or_default()
}

/// The pipelines of a page that the token may read, and where the next page begins.
pub(super) fn page_of<'k>(
    known: &'k BTreeMap<String, Known>,
    granted: &Granted,
    after: &str,
) -> (Vec<(&'k str, &'k Known)>, Option<&'k str>) {
    let behind = known.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
    let mut shown: Vec<(&str, &Known)> = behind
        .filter(|(name, _)| granted.allows(Action::Read, Some(name)))
        .map(|(name, known)| (name.as_str(), known))
        .take(MAX_PIPELINES + 1)
        .collect();
    let has_more = shown.len() > MAX_PIPELINES;
    shown.truncate(MAX_PIPELINES);
    let next = shown.last().filter(|_| has_more).map(|(name, _)| *name);
    (shown, next)
}

/// A link to the next page.
pub(super) fn next_page(path: &str, next: Option<&str>) -> String {
    next.map_or(String::new(), |next| {
        format!(
            "<p class=\"pages\"><a href=\"{path}?after={}\">More pipelines</a></p>\n",
            encoded(next)
        )
    })
}

/// The page.
pub(super) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let all = everything(&shared);
    let (shown, next) = page_of(&all.known, &granted, &asked.after);
    let states = states(&shared, shown.iter().map(|(_, known)| *known)).await?;
    let (held, limits) = (shared.store.held(), shared.store.limits());
    let mut body = "<h1>Pipelines</h1>\n".to_owned();
    if granted.allows(Action::Read, None) {
        let of = |now: String, limit: String| format!("{now} <small>of {limit}</small>");
        let mut figures = vec![
            ("pending jobs", of(count(held.jobs), count(limits.jobs))),
            ("queue", of(bytes(held.bytes), bytes(limits.bytes))),
        ];
        if let Some(runs) = &shared.runs {
            let (queued, running) = runs.active().await?;
            figures.push(("runs at work", count(running)));
            figures.push(("queued runs", count(queued)));
        }
        body += &facts(&figures);
    }
    body += &table(&shown, &states);
    body += &next_page("/", next);
    if granted.allows(Action::Read, None) {
        body += &broken(&all);
        body += &without_pipeline(&all, &states);
    }
    let page = Page {
        title: "Pipelines",
        entry: Some(Entry::Pipelines),
        live: Live::Refreshes,
        body,
    };
    Ok(page.answer())
}

/// Tables of the pipelines that take rows, and of the others.
pub(super) fn table(shown: &[(&str, &Known)], states: &States) -> String {
    let (takers, others): (Vec<_>, Vec<_>) =
        shown.iter().partition(|(_, known)| known.reads_queue());
    let mut tables = String::new();
    if !others.is_empty() {
        let rows = others
            .iter()
            .map(|(name, known)| run_row(name, known, states));
        let table = Table {
            caption: "Pipelines that run by a schedule or on request",
            head: &[
                "pipeline",
                "state",
                "source → destination",
                "schedule and next run",
                "last run",
                "rows of the last runs",
                "lag",
                "problem",
            ],
            rows: rows.collect(),
            none: "",
        };
        tables += &table.html();
    }
    if !takers.is_empty() || others.is_empty() {
        let rows = takers.iter().map(|(name, known)| row(name, known, states));
        let table = Table {
            caption: "Pipelines that take rows over HTTP",
            head: &[
                "pipeline",
                "state",
                "source → destination",
                "last run",
                "oldest pending job",
                "#dead jobs",
                "problem",
            ],
            rows: rows.collect(),
            none: "No pipeline. Put a pipeline file into the folder of the server: it reads new files within two seconds.",
        };
        tables += &table.html();
    }
    tables
}

fn run_row(name: &str, known: &Known, states: &States) -> Vec<String> {
    let nothing = schedule::Standing::default();
    let standing = states.runs.get(name).unwrap_or(&nothing);
    let state = match known.problem {
        Some(_) => badge("file is wrong", "bad"),
        None => schedule::state(standing),
    };
    let failed = standing.last.iter().find(|run| run.state.is_end());
    let problem = match &known.problem {
        Some(failure) => Some(problem(&json!(failure))),
        None => failed.and_then(reason),
    };
    let cron = known.pipeline.schedule().map(schedule::of_cron);
    let next = standing
        .next_ms
        .map(|next_ms| format!("<br>{}", coming(next_ms)));
    vec![
        link_of_pipeline(name),
        state,
        stages(known),
        cron.unwrap_or_default() + &next.unwrap_or_default(),
        schedule::last_run(standing),
        schedule::spark(&standing.last),
        schedule::lag(standing),
        problem.unwrap_or_default(),
    ]
}

fn stages(known: &Known) -> String {
    format!(
        "{} → {}",
        escape(known.pipeline.source()),
        escape(known.pipeline.destination())
    )
}

fn row(name: &str, known: &Known, states: &States) -> Vec<String> {
    let streams = known.pipeline.streams().into_iter();
    let keys: Vec<Key> = streams
        .map(|stream| (name.to_owned(), stream.to_owned()))
        .collect();
    let standings = keys.iter().filter_map(|key| states.standings.get(key));
    let standings: Vec<&Standing> = standings.collect();
    let jobs = keys.iter().filter_map(|key| states.jobs.get(key));
    let jobs: Vec<&StreamState> = jobs.collect();
    let oldest = jobs.iter().filter_map(|state| state.oldest_ms).min();
    let dead: u64 = jobs.iter().map(|state| state.dead).sum();
    let last = standings
        .iter()
        .filter_map(|standing| standing.last.as_ref());
    let last = last.max_by_key(|last| last.ended_ms);
    let failing = standings
        .iter()
        .find_map(|standing| standing.problem.as_ref());
    let state = match () {
        () if known.problem.is_some() => badge("file is wrong", "bad"),
        () if failing.is_some() => badge("failing", "bad"),
        () if standings.iter().any(|standing| standing.works()) => badge("running", "running"),
        () if oldest.is_some() => badge("waiting", "waiting"),
        () => badge("idle", "ok"),
    };
    let shown = known.problem.as_ref().map(|failure| json!(failure));
    let shown = shown.as_ref().or(failing).map(problem);
    vec![
        link_of_pipeline(name),
        state,
        stages(known),
        last.map_or(String::new(), |last| when(last.ended_ms)),
        oldest.map_or(String::new(), ago),
        match dead {
            0 => String::new(),
            dead => format!(
                "<a href=\"/jobs?pipeline={}&amp;state=dead\">{}</a>",
                encoded(name),
                count(dead)
            ),
        },
        shown.unwrap_or_default(),
    ]
}

pub(super) fn broken(all: &Everything) -> String {
    if all.broken.is_empty() {
        return String::new();
    }
    let rows = all.broken.iter().take(MAX_PIPELINES).map(|broken| {
        let file = format!("<code>{}</code>", escape(&broken.file.to_string_lossy()));
        vec![file, problem(&json!(broken.problem))]
    });
    let table = Table {
        caption: "Files without a pipeline",
        head: &["file", "problem"],
        rows: rows.collect(),
        none: "",
    };
    let about =
        "No pipeline comes from these files. The server reads a file again when it changes.";
    section("Broken files", about, &table.html())
}

/// Jobs that wait for a pipeline file that is not there.
pub(super) fn without_pipeline(all: &Everything, states: &States) -> String {
    let mut lost: Vec<&StreamState> = states
        .jobs
        .values()
        .filter(|state| {
            let known = all.known.get(&state.pipeline);
            !known.is_some_and(|known| known.pipeline.streams().contains(&state.stream.as_str()))
        })
        .collect();
    if lost.is_empty() {
        return String::new();
    }
    lost.sort_by_key(|state| (&state.pipeline, &state.stream));
    let rows = lost.into_iter().take(MAX_PIPELINES).map(|state| {
        vec![
            format!(
                "<a href=\"/jobs?pipeline={}\">{}</a>",
                encoded(&state.pipeline),
                escape(&state.pipeline)
            ),
            escape(&state.stream),
            count(state.pending),
            count(state.dead),
        ]
    });
    let table = Table {
        caption: "Streams that no pipeline file has",
        head: &["pipeline", "stream", "#pending jobs", "#dead jobs"],
        rows: rows.collect(),
        none: "",
    };
    let about = "Put the pipeline file back, or cancel the jobs.";
    section("Jobs without a pipeline", about, &table.html())
}
