//! `/v1/jobs`: which jobs there are, and what an operator does with one.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::call::{self, Problem};
use crate::ingest::{Shared, answer, media_type};
use crate::request::{Asked, Kind, LIMIT, MAX_NUMBER, PAGE, Parameters, Place, id_of};
use crate::store::{Body as Kept, Job, JobFilter, JobState, Touched};
use crate::tokens::Action;
use crate::work::broken;

/// The longest time in which a destination says whether it has the rows of a job.
const CANCEL_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a spooled body that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Which jobs a client asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// Only jobs of this pipeline.
    pipeline: Option<String>,
    /// Only jobs of this stream of the pipeline.
    stream: Option<String>,
    /// Only jobs in this state.
    state: Option<JobState>,
    /// Only dead jobs whose body was discarded, or only all others.
    discarded: Option<bool>,
    /// Only jobs behind the one with this id: the `next` of the page before.
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[
        ("pipeline", Kind::Text),
        ("stream", Kind::Text),
        ("state", Kind::OneOf(&JobState::NAMES)),
        ("discarded", Kind::Flag),
        ("after", Kind::Number(0, MAX_NUMBER)),
        LIMIT,
    ];
}

/// A page of jobs, the oldest first, and where the next page begins.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    granted.may(Action::Read, asked.pipeline.as_deref())?;
    match &asked.pipeline {
        Some(name) if !shared.catalogue.has(name) => return Err(unknown_pipeline(name)),
        None if asked.stream.is_some() => {
            let text = "stream without pipeline";
            let hint = "name the pipeline, too: ?pipeline=PIPELINE&stream=STREAM";
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(status, "invalid_query", text, hint));
        }
        _ => {}
    }
    let limit = asked.limit.unwrap_or(PAGE);
    let filter = JobFilter {
        pipeline: asked.pipeline,
        stream: asked.stream,
        state: asked.state,
        discarded: asked.discarded,
        after: asked.after,
    };
    let jobs = shared.store.jobs(filter, limit).await?;
    let is_full = jobs.len() == limit as usize;
    let next = jobs.last().filter(|_| is_full).map(|job| job.id);
    Ok(Json(json!({ "status": "ok", "jobs": jobs, "next": next })))
}

/// One job.
pub(crate) async fn get(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    let job = find(&shared, &id, &granted, Action::Read).await?;
    Ok(Json(json!({ "status": "ok", "job": job })))
}

/// The body of a job, as it was received.
pub(crate) async fn body(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let job = find(&shared, &id, &granted, Action::Operate).await?;
    let found = shared.store.body(job.id).await?;
    let Some((job, Some(body))) = found else {
        return Err(no_body(&job));
    };
    let body = match body {
        Kept::Inline(bytes) => Body::from(Bytes::from_owner(bytes)),
        Kept::Spooled(name) => {
            ensure_there(&shared, &job, &name).await?;
            let path = shared.receiver.spool().path(&name);
            let opened = spawn_blocking(move || std::fs::File::open(path)).await;
            let opened = opened.map_err(|_| Refusal::spool_failed("the reader panicked"))?;
            stream(opened.map_err(|error| Refusal::spool_failed(&error.to_string()))?)
        }
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type(&job.format));
    if let Some(Ok(encoding)) = job.encoding.as_deref().map(HeaderValue::from_str) {
        headers.insert(CONTENT_ENCODING, encoding);
    }
    Ok(response)
}

/// The bytes of a file, of which a piece is in memory.
fn stream(file: std::fs::File) -> Body {
    let pieces = futures_util::stream::try_unfold(file, |mut file| async move {
        let read = spawn_blocking(move || {
            let mut piece = vec![0; READ_BYTES];
            let read = std::io::Read::read(&mut file, &mut piece)?;
            piece.truncate(read);
            Ok::<_, std::io::Error>((piece, file))
        });
        let (piece, file) = read.await.map_err(std::io::Error::other)??;
        Ok::<_, std::io::Error>((!piece.is_empty()).then_some((piece, file)))
    });
    Body::from_stream(pieces)
}

/// Refuses a job whose body the disk has lost.
async fn ensure_there(shared: &Shared, job: &Job, name: &str) -> Result<(), Refusal> {
    let (path, bytes) = (shared.receiver.spool().path(name), job.bytes);
    let looked = {
        let path = path.clone();
        spawn_blocking(move || broken(&path, bytes)).await
    };
    let looked = looked.map_err(|_| Refusal::spool_failed("the look at the disk panicked"))?;
    let Some(why) = looked else {
        return Ok(());
    };
    Err(Refusal::new(
        StatusCode::GONE,
        "body_missing",
        format!("the body of the job {}, {}, {why}", job.id, path.display()),
        "bring the file back, such as from a backup, or send the body again",
    ))
}

/// Cancels a job. If a run has had it, the destination is asked whether it has the rows.
pub(crate) async fn cancel(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Problem> {
    let job = find(&shared, &id, &granted, Action::Operate).await?;
    let mut touched = shared.store.cancel(job.id).await.map_err(Refusal::from)?;
    if let (Touched::Running(job), Some(notice)) = (&touched, &shared.notice) {
        let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
        let known = all.as_ref().and_then(|all| all.known.get(&job.pipeline));
        // The destination is asked for a cursor alone.
        if let Some(of_queue) = known.and_then(|known| known.pipeline.of_queue(&job.stream, true)) {
            let (notice, job) = (notice.clone(), job.clone());
            touched = call::call(of_queue, CANCEL_LIMIT, move |pipeline, control| {
                notice.cancel(pipeline, &job, control)
            })
            .await?;
        }
    }
    Ok(outcome(touched, &id, StatusCode::OK)?)
}

/// Makes a new job with the body of one that has ended.
pub(crate) async fn replay(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let job = find(&shared, &id, &granted, Action::Operate).await?;
    if job.state != JobState::Pending
        && let Some((job, Some(Kept::Spooled(name)))) = shared.store.body(job.id).await?
    {
        ensure_there(&shared, &job, &name).await?;
    }
    let touched = shared.store.replay(job.id).await?;
    if let (Touched::Done(job), Some(notice)) = (&touched, &shared.notice) {
        notice.tell(&job.pipeline, &job.stream);
    }
    outcome(touched, &id, StatusCode::ACCEPTED)
}

/// Forgets the body of a job that has ended.
pub(crate) async fn discard(
    State(shared): State<Shared>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let job = find(&shared, &id, &granted, Action::Operate).await?;
    let (touched, file) = shared.store.discard(job.id).await?;
    if let Some(file) = file {
        let spool = shared.receiver.spool().clone();
        let removed = spawn_blocking(move || spool.remove(&[file])).await;
        let removed = removed.map_err(|_| Refusal::spool_failed("the remover panicked"))?;
        removed.map_err(|error| Refusal::spool_failed(&error.to_string()))?;
    }
    outcome(touched, &id, StatusCode::OK)
}

/// The job with this id, if the token may see it. Who may send a job may follow it.
pub(crate) async fn find(
    shared: &Shared,
    id: &str,
    granted: &Granted,
    action: Action,
) -> Result<Job, Refusal> {
    let job = match id_of(id) {
        Some(id) => shared.store.job(id).await?,
        None => None,
    };
    // A token for one pipeline does not learn which jobs others have.
    let may = |job: &Job| {
        let pipeline = Some(job.pipeline.as_str());
        granted.allows(action, pipeline)
            || action == Action::Read && granted.allows(Action::Ingest, pipeline)
    };
    match job {
        Some(job) if may(&job) => Ok(job),
        Some(job) if granted.allows(Action::Read, Some(&job.pipeline)) => {
            granted.may(action, Some(&job.pipeline))?;
            Ok(job)
        }
        _ => Err(unknown(id)),
    }
}

fn outcome(touched: Touched, id: &str, done: StatusCode) -> Result<Response, Refusal> {
    let conflict =
        |code, text: String, hint| Err(Refusal::new(StatusCode::CONFLICT, code, text, hint));
    match touched {
        Touched::Done(job) => Ok(answer(done, &job)),
        Touched::Unknown => Err(unknown(id)),
        Touched::Full => Err(Refusal::queue_full()),
        Touched::NoBody(job) => Err(no_body(&job)),
        Touched::NotNow(job) => conflict(
            "job_state",
            format!("the job {} is {}", job.id, job.state.name()),
            "cancel takes pending jobs; replay and discard take jobs that have ended",
        ),
        Touched::Running(job) => conflict(
            "job_running",
            format!(
                "a run has had the job {}: its rows may be committed",
                job.id
            ),
            "wait until the job is done or dead",
        ),
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "unknown_job",
        format!("no job {id:?}"),
        "GET /v1/jobs lists the jobs",
    )
}

/// No pipeline has this name.
pub(crate) fn unknown_pipeline(name: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "unknown_pipeline",
        format!("no pipeline {name:?}"),
        "GET /v1/pipelines lists the pipelines",
    )
}

fn no_body(job: &Job) -> Refusal {
    Refusal::new(
        StatusCode::GONE,
        "body_forgotten",
        format!(
            "the server does not have the body of the job {} any more",
            job.id
        ),
        "send the body again",
    )
}
