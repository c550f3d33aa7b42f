//! `GET /v1/jobs` and `GET /v1/jobs/{id}`.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Refusal;
use crate::ingest::Shared;

/// Jobs of a page, unless the client asks for fewer.
const PAGE: u32 = 100;
/// Jobs of a page at most.
const MAX_PAGE: u32 = 1000;

/// Which jobs a client asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Only jobs of this pipeline.
    pipeline: Option<String>,
    /// Only jobs behind the one with this id: the `next` of the page before.
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

/// A page of jobs, the oldest first, and where the next page begins.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Refusal> {
    let limit = asked.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let jobs = shared
        .store
        .jobs(asked.pipeline, asked.after, limit)
        .await?;
    let is_full = jobs.len() == limit as usize;
    let next = jobs.last().filter(|_| is_full).map(|job| job.id);
    Ok(Json(json!({ "status": "ok", "jobs": jobs, "next": next })))
}

/// One job.
pub(crate) async fn get(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let job = match id.parse() {
        Ok(id) => shared.store.job(id).await?,
        Err(_) => None,
    };
    match job {
        Some(job) => Ok(Json(json!({ "status": "ok", "job": job }))),
        None => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "unknown_job",
            format!("no job {id:?}"),
            "GET /v1/jobs lists the jobs",
        )),
    }
}
