//! `/pipelines/{pipeline}/rejects`: the records that runs refused, which the destination keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rapidbyte::{Cancel, Class, Control, Engine, Failure, KeptReject, Pipeline};
use rapidbyte_page::figures::count;
use rapidbyte_page::section;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::pipelines::everything;
use super::run::runs_of;
use super::{Entry, Live, Page, Table, escape, failure, link_of_pipeline};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::jobs::unknown_pipeline;
use crate::request::Place;
use crate::tokens::Action;

/// Rejects that are shown one by one.
const SHOWN: usize = 100;
/// Rejects that are counted: a destination with more of them would be read for minutes.
const MAX_COUNTED: u64 = 1_000_000;
/// Streams, columns and codes that are counted one by one.
const MAX_GROUPS: usize = 1000;
/// Characters of a record or a message.
const MAX_CHARS: usize = 1000;
/// The longest time for which a destination is read.
const LIMIT: Duration = Duration::from_secs(30);
/// Destinations that are read at the same time. Further requests wait.
static READS: Semaphore = Semaphore::const_new(2);

/// The rejects of a pipeline, as far as they are read.
#[derive(Default)]
pub(super) struct Found {
    /// By stream, column and code.
    groups: BTreeMap<(String, String, String), u64>,
    /// Rejects of further groups.
    others: u64,
    rejects: u64,
    has_more: bool,
    /// The first of them.
    first: Vec<KeptReject>,
}

/// The page. A token without `operate` sees no values of records.
pub(super) async fn show(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Read, Some(&name))?;
    let all = everything(&shared);
    let known = all.known.get(&name);
    let known = known.ok_or_else(|| unknown_pipeline(&name))?;
    let with_values = granted.allows(Action::Operate, Some(&name));
    let engine = runs_of(&shared)?.engine();
    let found = read(engine, known.pipeline.clone(), with_values).await;
    let (status, content) = match found {
        Ok(found) => (StatusCode::OK, content(&found, with_values)),
        Err(unread) => {
            let status = match unread.code.as_str() {
                "no_rejects" => StatusCode::NOT_FOUND,
                _ => StatusCode::BAD_GATEWAY,
            };
            let title = "The rejects cannot be read";
            (status, failure(title, &json!(unread)))
        }
    };
    let page = Page {
        title: &format!("Rejects of {name}"),
        entry: Some(Entry::Pipelines),
        live: Live::No,
        body: format!(
            "<h1>Rejects</h1>\n<p class=\"quiet\">Records that runs of {} refused, as the destination keeps them.</p>\n{content}",
            link_of_pipeline(&name)
        ),
    };
    Ok((status, page.answer()).into_response())
}

/// Cancels a read whose client is gone.
struct Reading(Cancel);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn read(engine: Engine, pipeline: Pipeline, with_values: bool) -> Result<Found, Failure> {
    let reading = Reading(Cancel::new());
    let control = Control::default().cancel(&reading.0);
    let work = async {
        let turn = READS.acquire().await;
        // The thread has the turn until it ends, also if nobody waits for it any more.
        let work = move || {
            let _turn = turn;
            find(&engine, &pipeline, &control, with_values)
        };
        let ended = spawn_blocking(work).await;
        ended.unwrap_or_else(|_| {
            let text = "the thread that reads the rejects panicked: the server has a bug";
            Err(Failure::new(Class::Run, "internal", text))
        })
    };
    timeout(LIMIT, work).await.unwrap_or_else(|_| {
        let text = format!("the rejects were not read within {} s", LIMIT.as_secs());
        let failure = Failure::new(Class::Run, "rejects_timeout", text);
        Err(failure.hint("list them with the command: rapidbyte rejects list PIPELINE"))
    })
}

fn find(
    engine: &Engine,
    pipeline: &Pipeline,
    control: &Control,
    with_values: bool,
) -> Result<Found, Failure> {
    let mut rejects = engine.rejects(pipeline, control)?;
    let mut found = Found::default();
    rejects.each(false, |kept| {
        found.has_more = found.rejects == MAX_COUNTED;
        if found.has_more {
            return false;
        }
        found.rejects += 1;
        let column = kept.reject.column.clone().unwrap_or_default();
        let key = (kept.stream.clone(), column, kept.reject.code.clone());
        match found.groups.len() < MAX_GROUPS || found.groups.contains_key(&key) {
            true => *found.groups.entry(key).or_default() += 1,
            false => found.others += 1,
        }
        if !with_values && found.first.len() < SHOWN {
            found.first.push(kept);
        }
        true
    })?;
    if with_values {
        rejects.each(true, |kept| {
            found.first.push(kept);
            found.first.len() < SHOWN
        })?;
    }
    Ok(found)
}

pub(super) fn content(found: &Found, with_values: bool) -> String {
    let counts = found.groups.iter();
    let mut counts: Vec<Vec<String>> = counts
        .map(|((stream, column, code), rejects)| {
            vec![
                escape(stream),
                escape(column),
                format!("<code>{}</code>", escape(code)),
                count(*rejects),
            ]
        })
        .collect();
    if found.others > 0 {
        let others = count(found.others);
        counts.push(vec!["others".into(), String::new(), String::new(), others]);
    }
    let counts = Table {
        caption: "The rejects by stream, column and code",
        head: &["stream", "column", "code", "#rejects"],
        rows: counts,
        none: "The destination keeps no rejects of this pipeline.",
    };
    let about = match found.has_more {
        true => format!("The first {} rejects.", count(found.rejects)),
        false => format!("{} in all.", count(found.rejects)),
    };
    let body = section("By reason", &about, &counts.html());
    if found.first.is_empty() {
        return body;
    }
    let mut head = vec!["stream", "column", "code", "place", "kept", "run"];
    if with_values {
        head.extend(["message", "record"]);
    }
    let rows = found.first.iter().map(|kept| row(kept, with_values));
    let table = Table {
        caption: "The first rejects, in the order in which they were kept",
        head: &head,
        rows: rows.collect(),
        none: "",
    };
    let about = match with_values {
        true => {
            "At most 100. Correct the cause, and replay them: rapidbyte rejects replay PIPELINE."
        }
        false => {
            "At most 100, without their messages and records: these need a token with the scope operate."
        }
    };
    body + &section("Rejects", about, &table.html())
}

/// A message can quote the record.
fn row(kept: &KeptReject, with_values: bool) -> Vec<String> {
    let reject = &kept.reject;
    let short = |text: &str| {
        let mut shown: String = text.chars().take(MAX_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        escape(&shown)
    };
    let mut cells = vec![
        escape(&kept.stream),
        escape(reject.column.as_deref().unwrap_or_default()),
        format!("<code>{}</code>", escape(&reject.code)),
        short(reject.location.as_deref().unwrap_or_default()),
        escape(&kept.time),
        escape(&kept.run_id),
    ];
    if with_values {
        let record = String::from_utf8_lossy(&reject.data);
        let cut = if reject.is_cut { "…" } else { "" };
        cells.push(short(&reject.message));
        cells.push(format!("<code>{}{cut}</code>", short(&record)));
    }
    cells
}
