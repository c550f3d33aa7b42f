//! `/v1/pipelines`: the pipelines of the server, and how their streams are.

use std::collections::HashMap;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::access::Granted;
use crate::agenda::Standing;
use crate::answer::{Json, Refusal};
use crate::ingest::Shared;
use crate::jobs::unknown_pipeline;
use crate::registry::{Broken, Known};
use crate::request::Place;
use crate::store::Backlog;
use crate::tokens::Action;

/// All pipelines that the token may read, and the files that are none.
pub(crate) async fn list(
    State(shared): State<Shared>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    let Some(pipelines) = &shared.pipelines else {
        return Ok(Json(
            json!({ "status": "ok", "pipelines": [], "broken": [] }),
        ));
    };
    let all = pipelines.all();
    let states = states(&shared).await?;
    let shown = all.known.iter();
    let shown = shown.filter(|(name, _)| granted.allows(Action::Read, Some(name)));
    let shown: Vec<Value> = shown
        .map(|(name, known)| document(name, known, &states))
        .collect();
    let broken: Vec<Value> = match granted.allows(Action::Read, None) {
        true => all.broken.iter().map(of_broken).collect(),
        false => Vec::new(),
    };
    Ok(Json(
        json!({ "status": "ok", "pipelines": shown, "broken": broken }),
    ))
}

/// One pipeline.
pub(crate) async fn get(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    granted.may(Action::Read, Some(&name))?;
    let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
    let known = all.as_ref().and_then(|all| all.known.get(&name));
    let known = known.ok_or_else(|| unknown_pipeline(&name))?;
    let states = states(&shared).await?;
    let mut pipeline = document(&name, known, &states);
    if let Some(runs) = &shared.runs {
        pipeline["notify"] = json!(runs.outbox(&known.pipeline).await?);
    }
    Ok(Json(json!({ "status": "ok", "pipeline": pipeline })))
}

/// Streams that wait after a failure are tried now.
pub(crate) async fn retry(
    State(shared): State<Shared>,
    Place((pipeline, stream)): Place<(String, String)>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Operate, Some(&pipeline))?;
    ensure_stream(&shared, &pipeline, &stream)?;
    if let Some(notice) = &shared.notice {
        notice.retry(&pipeline, Some(&stream));
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "status": "ok" }))).into_response())
}

/// All pending jobs of the stream are moved, whatever the destination has.
pub(crate) async fn rebind(
    State(shared): State<Shared>,
    Place((pipeline, stream)): Place<(String, String)>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Operate, Some(&pipeline))?;
    ensure_stream(&shared, &pipeline, &stream)?;
    if let Some(notice) = &shared.notice {
        let is_running = notice
            .streams()
            .iter()
            .any(|(key, standing)| key.0 == pipeline && key.1 == stream && standing.works());
        if is_running {
            let text = format!("a run of {pipeline}.{stream} works");
            let hint = "send it again when the stream waits: GET /v1/pipelines/PIPELINE shows it";
            let status = StatusCode::CONFLICT;
            return Err(Refusal::new(status, "stream_running", text, hint));
        }
    }
    shared.store.rebind(&pipeline, &stream).await?;
    if let Some(notice) = &shared.notice {
        notice.distrust(&pipeline, &stream);
        notice.retry(&pipeline, Some(&stream));
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "status": "ok" }))).into_response())
}

fn ensure_stream(shared: &Shared, pipeline: &str, stream: &str) -> Result<(), Refusal> {
    if !shared.catalogue.has(pipeline) {
        return Err(unknown_pipeline(pipeline));
    }
    match shared.catalogue.ingest(pipeline, stream) {
        Some(_) => Ok(()),
        None => Err(unknown_stream(pipeline, stream)),
    }
}

/// The pipeline takes no rows for this stream.
pub(crate) fn unknown_stream(pipeline: &str, stream: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "unknown_stream",
        format!("no pipeline {pipeline:?} takes rows for a stream {stream:?}"),
        "look at the names in the pipeline files of the server",
    )
}

/// The state of streams by pipeline and stream.
#[derive(Default)]
pub(crate) struct States {
    backlogs: HashMap<(String, String), Backlog>,
    standings: HashMap<(String, String), Standing>,
}

/// The state of all streams.
pub(crate) async fn states(shared: &Shared) -> Result<States, Refusal> {
    let backlogs = shared.store.backlogs().await?.into_iter();
    let by_key = |backlog: Backlog| ((backlog.pipeline.clone(), backlog.stream.clone()), backlog);
    let notice = shared.notice.as_ref();
    let standings = notice.map(|notice| notice.streams()).unwrap_or_default();
    Ok(States {
        backlogs: backlogs.map(by_key).collect(),
        standings: standings.into_iter().collect(),
    })
}

/// A pipeline as JSON.
pub(crate) fn document(name: &str, known: &Known, states: &States) -> Value {
    let pipeline = &known.pipeline;
    let streams = pipeline.streams().into_iter();
    let streams: Vec<Value> = streams
        .map(|stream| match known.reads_queue() {
            true => of_stream(name, stream, states),
            false => json!({ "name": stream }),
        })
        .collect();
    json!({
        "name": name, "file": known.file, "source": pipeline.source(), "destination": pipeline.destination(),
        "takes_rows": known.reads_queue(), "problem": known.problem, "streams": streams,
    })
}

fn of_stream(pipeline: &str, stream: &str, states: &States) -> Value {
    let key = (pipeline.to_owned(), stream.to_owned());
    let backlog = states.backlogs.get(&key);
    let standing = states.standings.get(&key);
    let again = standing.and_then(|standing| standing.again_at);
    let again = again.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64());
    let of = |of: fn(&Standing) -> Value| standing.map_or(Value::Null, of);
    json!({
        "name": stream,
        "pending_jobs": backlog.map_or(0, |backlog| backlog.jobs),
        "pending_bytes": backlog.map_or(0, |backlog| backlog.bytes),
        "oldest_ms": backlog.map(|backlog| backlog.oldest_ms),
        "running": standing.is_some_and(|standing| standing.works()),
        "failures": standing.map_or(0, |standing| standing.failures),
        "problem": of(|standing| json!(standing.problem)),
        "tried_again_in_seconds": again,
        "last_run": of(|standing| json!(standing.last)),
    })
}

fn of_broken(broken: &Broken) -> Value {
    json!({ "file": broken.file, "problem": broken.problem })
}
