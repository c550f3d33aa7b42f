//! `POST /v1/ingest/{pipeline}/{stream}`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::answer::Refusal;
use crate::receive::{Content, Received, Receiver};
use crate::spool::SpoolFile;
use crate::store::{Admitted, Body as Kept, Job, JobState, NewJob, Store, StoreError};
use crate::work::Notice;

/// The pipelines that take rows.
pub trait Catalogue: Send + Sync {
    /// The rules of a stream. `None` for an unknown pipeline, and for a stream that the pipeline does not have.
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest>;
}

/// The rules of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ingest {
    /// A body that came before is the same job.
    pub is_known_by_content: bool,
}

/// The parts that all handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub catalogue: Arc<dyn Catalogue>,
    pub store: Store,
    pub receiver: Receiver,
    /// The receiver of news about jobs. `None` if nobody runs pipelines.
    pub notice: Option<Notice>,
    /// The longest wait of a request for the end of its job.
    pub wait: Duration,
}

/// The query of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Answer when the job is done or dead.
    #[serde(default)]
    wait: bool,
}

/// Media types and the formats of their bodies.
const FORMATS: [(&str, &str); 6] = [
    ("application/x-ndjson", "jsonl"),
    ("application/jsonl", "jsonl"),
    ("application/jsonlines", "jsonl"),
    ("text/csv", "csv"),
    ("application/vnd.apache.parquet", "parquet"),
    ("application/vnd.apache.arrow.stream", "arrow"),
];
/// Content codings.
const ENCODINGS: [&str; 2] = ["gzip", "zstd"];
/// Characters of an `Idempotency-Key`.
const MAX_KEY: usize = 255;
const KEY: &str = "idempotency-key";

/// Takes a body. It is a job when the client gets the answer.
pub(crate) async fn ingest(
    State(shared): State<Shared>,
    Path((pipeline, stream)): Path<(String, String)>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let waits = shared.clone();
    let taken = shared.catalogue.ingest(&pipeline, &stream);
    let taken = taken.ok_or_else(|| unknown(&pipeline, &stream))?;
    let format = format(&headers)?;
    let encoding = encoding(&headers, format)?;
    let key = key(&headers)?;
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let Received {
        bytes,
        sha256,
        content,
        memory,
    } = shared.receiver.receive(body, announced).await?;
    let (body, file) = match content {
        Content::Inline(bytes) => (Kept::Inline(bytes), None),
        Content::Spooled(file) => (Kept::Spooled(file.name().to_owned()), Some(file)),
    };
    let job = NewJob {
        pipeline,
        stream,
        format,
        encoding,
        bytes,
        sha256,
        key,
        is_known_by_content: taken.is_known_by_content,
        body,
    };
    let admitted = tokio::spawn(async move {
        // The job may be stored although this task ends before the answer: then its file has to stay.
        let kept = file.map(SpoolFile::keep);
        let admitted = shared.store.admit(job).await;
        drop(memory);
        if let (Ok(Admitted::New(job)), Some(notice)) = (&admitted, &shared.notice) {
            notice.tell(&job.pipeline, &job.stream);
        }
        if let Some(path) = kept
            && !may_be_stored(&admitted)
        {
            // What stays is removed at the next start.
            let _ = spawn_blocking(|| std::fs::remove_file(path)).await;
        }
        admitted
    });
    let ended = |_| Refusal::spool_failed("the store panicked");
    match admitted.await.map_err(ended)?? {
        Admitted::New(job) if asked.wait => Ok(waits.end_of(job).await),
        Admitted::Known(job) if asked.wait => Ok(waits.end_of(job).await),
        Admitted::New(job) => Ok(answer(StatusCode::ACCEPTED, &job)),
        Admitted::Known(job) if job.state == JobState::Dead => {
            Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, &job))
        }
        Admitted::Known(job) => Ok(answer(StatusCode::OK, &job)),
        Admitted::KeyOfAnother(job) => Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            format!(
                "the job {} has this Idempotency-Key and another body",
                job.id
            ),
            "give each body a key of its own",
        )),
        Admitted::Full => Err(Refusal::queue_full()),
    }
}

impl Shared {
    /// Answers when the job is done (200) or dead (422), or after a time (202).
    async fn end_of(&self, job: Job) -> Response {
        let id = job.id;
        let Some(mut ended) = self.notice.as_ref().map(Notice::ended) else {
            return answer(StatusCode::ACCEPTED, &job);
        };
        let found = timeout(self.wait, async {
            loop {
                // Before the look: a change after it is seen by the next one.
                ended.mark_unchanged();
                let found = self.store.job(id).await?;
                if let Some(job) = found.filter(|job| job.state != JobState::Pending) {
                    return Ok::<_, StoreError>(job);
                }
                if ended.changed().await.is_err() {
                    return Err(StoreError::Closed);
                }
            }
        });
        // The job is stored: an error here must not make the client send it again.
        match found.await {
            Err(_) | Ok(Err(_)) => answer(StatusCode::ACCEPTED, &job),
            Ok(Ok(job)) => match job.state {
                JobState::Dead => answer(StatusCode::UNPROCESSABLE_ENTITY, &job),
                JobState::Done | JobState::Pending => answer(StatusCode::OK, &job),
            },
        }
    }
}

/// A file that no job has after all is removed at the next start.
fn may_be_stored(admitted: &Result<Admitted, StoreError>) -> bool {
    match admitted {
        Ok(Admitted::New(_)) => true,
        Ok(Admitted::Known(_) | Admitted::KeyOfAnother(_) | Admitted::Full) => false,
        Err(StoreError::Busy) => false,
        Err(_) => true,
    }
}

fn answer(status: StatusCode, job: &Job) -> Response {
    let mut response = (status, Json(json!({ "status": "ok", "job": job }))).into_response();
    // Digits are a header value.
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{}", job.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

fn unknown(pipeline: &str, stream: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "unknown_stream",
        format!("no pipeline {pipeline:?} takes rows for a stream {stream:?}"),
        "look at the names in the pipeline files of the server",
    )
}

/// The format of the body, by its media type without parameters.
fn format(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let given = headers.get(CONTENT_TYPE);
    let given = given.and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = given.split(';').next().unwrap_or("").trim();
    let mut known = FORMATS.iter();
    let format = known.find(|(name, _)| media_type.eq_ignore_ascii_case(name));
    format.map(|(_, format)| *format).ok_or_else(|| {
        let text = match given {
            "" => "the request has no Content-Type".to_owned(),
            given => format!("the Content-Type {given:?} is not known"),
        };
        let hint = "send application/x-ndjson, text/csv, application/vnd.apache.parquet or \
                    application/vnd.apache.arrow.stream";
        Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_format",
            text,
            hint,
        )
    })
}

/// The content coding of the body. `None` for a body that is not compressed.
fn encoding(headers: &HeaderMap, format: &str) -> Result<Option<&'static str>, Refusal> {
    let Some(given) = headers.get(CONTENT_ENCODING) else {
        return Ok(None);
    };
    let given = given.to_str().unwrap_or("?").trim();
    if given.eq_ignore_ascii_case("identity") {
        return Ok(None);
    }
    // Parquet and Arrow compress their columns.
    let is_text = matches!(format, "jsonl" | "csv");
    let mut known = ENCODINGS.into_iter();
    let found = known.find(|name| is_text && given.eq_ignore_ascii_case(name));
    found.map(Some).ok_or_else(|| {
        let text = format!("the Content-Encoding {given:?} is not known for {format}");
        let hint = "send CSV and JSON Lines as gzip, zstd or without compression, and other formats without";
        Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_encoding",
            text,
            hint,
        )
    })
}

/// The client's name for this request.
fn key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(given) = headers.get(KEY) else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or("").trim();
    if text.is_empty() || text.len() > MAX_KEY {
        let hint = "send up to 255 visible characters, such as a UUID";
        let text = "the Idempotency-Key is empty, too long, or not ASCII";
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "invalid_idempotency_key",
            text,
            hint,
        ));
    }
    Ok(Some(text.to_owned()))
}
