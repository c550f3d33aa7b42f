//! `/pipelines/{pipeline}/rejects`: the records that runs refused, which the destination keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rapidbyte::{Control, Engine, Failure, KeptReject, Pipeline};
use rapidbyte_page::figures::count;
use rapidbyte_page::section;
use serde_json::json;

use super::{Entry, Live, Page, Table, escape, failure, link_of_pipeline};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::call::{call, known};
use crate::ingest::Shared;
use crate::queue;
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
    let (engine, pipeline) = known(&shared, &name)?;
    let next = match pipeline.source() {
        queue::NAME => "send the repaired records as new rows.",
        _ => "replay them: rapidbyte rejects replay PIPELINE.",
    };
    let with_values = granted.allows(Action::Operate, Some(&name));
    let found = read(engine, pipeline, with_values).await;
    let (status, content) = match found {
        Ok(found) => (StatusCode::OK, content(&found, with_values.then_some(next))),
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

async fn read(engine: Engine, pipeline: Pipeline, with_values: bool) -> Result<Found, Failure> {
    call(pipeline, LIMIT, move |pipeline, control| {
        find(&engine, pipeline, control, with_values)
    })
    .await
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

/// `next`: what to do about rejects, for those who see their values.
pub(super) fn content(found: &Found, next: Option<&str>) -> String {
    let with_values = next.is_some();
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
    let about = match next {
        Some(next) => format!("At most 100. Correct the cause, and {next}"),
        None => {
            "At most 100, without their messages and records: these need a token with the scope operate.".to_owned()
        }
    };
    body + &section("Rejects", &about, &table.html())
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
