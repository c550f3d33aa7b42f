//! The paths of the server.

use std::sync::atomic::Ordering;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::task::spawn_blocking;

use crate::access::{Access, check};
use crate::answer::Refusal;
use crate::ingest::{self, Shared};
use crate::request::{BodyWait, no_query};
use crate::runs;
use crate::{cursors, jobs, metrics, notify, openapi, pages, pipelines, rejects};

/// Bytes of the body of a request that moves a cursor.
const MAX_CURSOR: usize = 1 << 20;

/// The answer about a server whose folder of large bodies cannot be used. Anybody may read it: the log has the place.
const SMALL_ONLY: &str = "ok, but large bodies are refused: the folder spool/ cannot be used\n";

/// All paths. Each request is checked first.
pub fn routes(shared: Shared, access: Access) -> Router {
    let (metrics, runs) = (shared.metrics.clone(), shared.runs.clone());
    let wait = BodyWait(shared.receiver.idle());
    let own = without_parameters()
        .route(metrics::INGEST, post(ingest::ingest))
        .route("/v1/jobs", get(jobs::list))
        .route("/v1/pipelines/{pipeline}/rejects", get(rejects::list))
        .route(
            "/v1/pipelines/{pipeline}/rejects/records",
            get(rejects::records),
        )
        .route("/v1/openapi.json", get(openapi::document))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics::metrics))
        .merge(pages::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(shared);
    let all = match runs {
        Some(runs) => own.merge(runs::routes(runs)),
        None => own,
    };
    all.layer(Extension(wait))
        .layer(from_fn_with_state(access, check))
        .layer(from_fn(pages::show_refusals))
        .layer(from_fn_with_state(metrics, metrics::measure))
}

/// The paths of the API that take no query. A parameter there is a mistake of the client, such as `dry_run`, that must not
/// pass in silence.
fn without_parameters() -> Router<Shared> {
    Router::new()
        .route("/v1/jobs/{id}", get(jobs::get))
        .route("/v1/jobs/{id}/body", get(jobs::body))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/replay", post(jobs::replay))
        .route("/v1/jobs/{id}/discard", post(jobs::discard))
        .route("/v1/pipelines", get(pipelines::list))
        .route("/v1/pipelines/{pipeline}", get(pipelines::get))
        .route(
            "/v1/pipelines/{pipeline}/streams/{stream}/retry",
            post(pipelines::retry),
        )
        .route(
            "/v1/pipelines/{pipeline}/streams/{stream}/rebind",
            post(pipelines::rebind),
        )
        .route("/v1/pipelines/{pipeline}/cursors", get(cursors::list))
        .route(
            "/v1/pipelines/{pipeline}/cursors/rebind",
            post(cursors::rebind).layer(DefaultBodyLimit::max(MAX_CURSOR)),
        )
        .route(
            "/v1/pipelines/{pipeline}/cursors/clear",
            post(cursors::clear).layer(DefaultBodyLimit::max(MAX_CURSOR)),
        )
        .route(
            "/v1/pipelines/{pipeline}/streams/{stream}/cursor",
            get(cursors::get)
                .put(cursors::put)
                .layer(DefaultBodyLimit::max(MAX_CURSOR)),
        )
        .route("/v1/pipelines/{pipeline}/notify/test", post(notify::test))
        .route(
            "/v1/pipelines/{pipeline}/rejects/replay",
            post(rejects::replay).layer(DefaultBodyLimit::disable()),
        )
        .route_layer(from_fn(no_query))
}

async fn ready(State(shared): State<Shared>) -> Response {
    if !shared.is_ready.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server ends\n").into_response();
    }
    let spool = shared.receiver.spool().clone();
    let usable = spawn_blocking(move || spool.ensure_usable()).await;
    // It still takes small bodies, so that a load balancer has to send them.
    match usable {
        Ok(Err(_)) => SMALL_ONLY.into_response(),
        Ok(Ok(())) | Err(_) => "ok\n".into_response(),
    }
}

async fn no_route(uri: Uri) -> Refusal {
    let text = format!("nothing is at {}", uri.path());
    let hint = "POST /v1/ingest/PIPELINE/STREAM takes rows, GET /v1/jobs lists jobs";
    Refusal::new(StatusCode::NOT_FOUND, "unknown_path", text, hint)
}

async fn no_method(uri: Uri) -> Refusal {
    let text = format!("{} does not have this method", uri.path());
    let hint = "POST takes rows, GET shows jobs";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "unknown_method", text, hint)
}
