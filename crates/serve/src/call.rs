//! Calls of the engine for which a request waits: each on a thread of its own, few at the same time, and cancelled when
//! nobody waits any more.

use std::path::Path;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rapidbyte::{Cancel, Class, Control, Engine, Failure, Pipeline};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::answer::{Refusal, Told};
use crate::ingest::Shared;
use crate::jobs::unknown_pipeline;
use crate::queue;
use crate::runs::Runs;

/// Calls at the same time. Further requests wait.
static TURNS: Semaphore = Semaphore::const_new(8);

/// Cancels a call when nobody waits for it.
struct Waits(Cancel);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Makes a call about a pipeline, which ends after `limit` at the latest.
///
/// # Errors
/// The error of the call, and `destination_timeout` after the limit.
pub async fn call<T: Send + 'static>(
    pipeline: Pipeline,
    limit: Duration,
    work: impl FnOnce(&Pipeline, &Control) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    // A client knows the pipeline by its name.
    let (file, name) = (pipeline.file().to_owned(), pipeline.name().to_owned());
    let waits = Waits(Cancel::new());
    let control = Control::default().cancel(&waits.0);
    let call = async {
        let turn = TURNS.acquire().await;
        // The thread has the turn until it ends, also if nobody waits for it any more.
        let work = move || {
            let _turn = turn;
            work(&pipeline, &control)
        };
        spawn_blocking(work).await.unwrap_or_else(|_| {
            let text = "the thread of the request panicked: the server has a bug";
            Err(Failure::new(Class::Run, "internal", text))
        })
    };
    let ended = timeout(limit, call).await.unwrap_or_else(|_| {
        let text = format!("the destination took more than {} s", limit.as_secs());
        let failure = Failure::new(Class::Environment, "destination_timeout", text);
        Err(failure.hint("use the command on the machine of the server, which has no such limit"))
    });
    ended.map_err(|mut failure| {
        // A pipeline without a file has a word instead, which hints have for other reasons.
        if Path::new(&file).is_absolute() {
            failure.hint = failure.hint.map(|hint| hint.replace(&file, &name));
        }
        failure
    })
}

/// The engine, and a pipeline of the server.
///
/// # Errors
/// `unknown_pipeline`.
pub fn known(shared: &Shared, name: &str) -> Result<(Engine, Pipeline), Refusal> {
    let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
    let known = all.as_ref().and_then(|all| all.known.get(name));
    let known = known.ok_or_else(|| unknown_pipeline(name))?;
    let engine = shared.runs.as_deref().map(Runs::engine);
    let engine = engine.ok_or_else(|| unknown_pipeline(name))?;
    Ok((engine, known.pipeline.clone()))
}

/// The same, if its source is not the queue of the server, which alone knows what its cursors mean.
///
/// # Errors
/// `unknown_pipeline` and `reads_queue`.
pub fn known_without_queue(
    shared: &Shared,
    name: &str,
    hint: &'static str,
) -> Result<(Engine, Pipeline), Refusal> {
    let (engine, pipeline) = known(shared, name)?;
    if pipeline.source() != queue::NAME {
        return Ok((engine, pipeline));
    }
    let text = format!("the pipeline {name:?} reads the queue of the server");
    let status = StatusCode::CONFLICT;
    Err(Refusal::new(status, "reads_queue", text, hint))
}

/// Why a request about a pipeline did not succeed.
pub enum Problem {
    /// The server refused it.
    Refused(Refusal),
    /// The engine could not do it.
    Failed(Box<Failure>),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refusal) => refusal.into_response(),
            Self::Failed(failure) => Told(json!(failure)).into_response(status_of(&failure)),
        }
    }
}

/// The status of an answer with an error of the engine.
fn status_of(failure: &Failure) -> StatusCode {
    match failure.class {
        Class::Busy => StatusCode::CONFLICT,
        // A run has moved the cursor since the client saw it.
        _ if failure.code == "cursor_moved" => StatusCode::CONFLICT,
        Class::Config | Class::Contract => StatusCode::UNPROCESSABLE_ENTITY,
        _ if failure.code == "destination_timeout" => StatusCode::GATEWAY_TIMEOUT,
        Class::Environment | Class::Run | Class::Cancelled => StatusCode::BAD_GATEWAY,
    }
}
