//! `POST /v1/ingest/{pipeline}/{stream}`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::access::Granted;
use crate::answer::Refusal;
use crate::metrics::Metrics;
use crate::receive::{Content, Received, Receiver};
use crate::registry::Pipelines;
use crate::request::{Asked, Place};
use crate::runs::Runs;
use crate::server::Settings;
use crate::spool::SpoolFile;
use crate::store::{Admitted, Body as Kept, Job, JobState, NewJob, Store, StoreError};
use crate::tokens::Action;
use crate::work::Notice;

/// The pipelines that take rows.
pub trait Catalogue: Send + Sync {
    /// The rules of a stream. `None` for an unknown pipeline, and for a stream that the pipeline does not have.
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest>;

    /// Whether a pipeline has this name.
    fn has(&self, pipeline: &str) -> bool;
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
    /// The pipelines that run. `None` if nobody runs pipelines.
    pub pipelines: Option<Arc<Pipelines>>,
    pub store: Store,
    pub receiver: Receiver,
    /// The receiver of news about jobs. `None` if nobody runs pipelines.
    pub notice: Option<Notice>,
    /// The longest wait of a request for the end of its job.
    pub wait: Duration,
    /// False: the server is about to end.
    pub is_ready: Arc<AtomicBool>,
    /// True: no run begins any more, so that nobody has to wait for one.
    pub is_finished: watch::Receiver<bool>,
    pub metrics: Metrics,
    pub settings: Arc<Settings>,
    /// The names of all connectors, ordered. Empty if nobody runs pipelines.
    pub connectors: Arc<[String]>,
    /// The runs of other pipelines, and the messages of all. `None` if nobody runs pipelines.
    pub runs: Option<Arc<Runs>>,
}

/// The query of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
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

/// The longest time for which a refused body is still received, and its bytes: a client that writes gets the answer, and
/// not a connection that is reset.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 64 << 20;

/// Takes a body. It is a job when the client gets the answer.
pub(crate) async fn ingest(
    State(shared): State<Shared>,
    Place((pipeline, stream)): Place<(String, String)>,
    Asked(asked): Asked<Query>,
    granted: Granted,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let wanted = Wanted {
        pipeline,
        stream,
        granted,
    };
    match take(&shared, wanted, &headers, &mut body).await {
        Ok(admitted) => {
            shared.metrics.admitted(&admitted);
            answer_of(&shared, admitted, asked.wait).await
        }
        Err(refusal) => {
            tokio::spawn(linger(body));
            refusal.into_response()
        }
    }
}

/// Receives what is left of a body, within limits.
async fn linger(mut body: Body) {
    let _ = timeout(LINGER, async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > LINGER_BYTES {
                return;
            }
        }
    })
    .await;
}

/// What a request is about.
struct Wanted {
    pipeline: String,
    stream: String,
    granted: Granted,
}

async fn take(
    shared: &Shared,
    wanted: Wanted,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Admitted, Refusal> {
    let Wanted {
        pipeline,
        stream,
        granted,
    } = wanted;
    granted.may(Action::Ingest, Some(&pipeline))?;
    let taken = shared.catalogue.ingest(&pipeline, &stream);
    let taken = taken.ok_or_else(|| unknown(&pipeline, &stream))?;
    let format = format(headers)?;
    let encoding = encoding(headers, format)?;
    let key = key(headers)?;
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let Received {
        bytes,
        sha256,
        content,
        share,
    } = shared.receiver.receive(body, announced).await?;
    granted.spend(bytes);
    shared.metrics.received(bytes);
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
    let (store, notice) = (shared.store.clone(), shared.notice.clone());
    let admitted = tokio::spawn(async move {
        // The job may be stored although this task ends before the answer: then its file has to stay.
        let kept = file.map(SpoolFile::keep);
        let admitted = store.admit(job).await;
        drop(share);
        if let (Ok(Admitted::New(job)), Some(notice)) = (&admitted, &notice) {
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
    Ok(admitted.await.map_err(ended)??)
}

async fn answer_of(shared: &Shared, admitted: Admitted, waits: bool) -> Response {
    match admitted {
        Admitted::New(job) | Admitted::Known(job) if waits => shared.end_of(job).await,
        Admitted::New(job) => answer(StatusCode::ACCEPTED, &job),
        Admitted::Known(job) => answer(of_state(job.state), &job),
        Admitted::KeyOfAnother(job) => Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            format!(
                "the job {} has this Idempotency-Key and another body, or another format",
                job.id
            ),
            "give each body a key of its own",
        )
        .into_response(),
        Admitted::Full => Refusal::queue_full().into_response(),
    }
}

/// The status of an answer about a job that is known.
fn of_state(state: JobState) -> StatusCode {
    match state {
        JobState::Dead | JobState::Cancelled => StatusCode::UNPROCESSABLE_ENTITY,
        JobState::Done | JobState::Pending => StatusCode::OK,
    }
}

impl Shared {
    /// Answers when the job is done (200), or dead or cancelled (422), or after a time (202).
    async fn end_of(&self, job: Job) -> Response {
        let id = job.id;
        let Some(mut ended) = self.notice.as_ref().map(Notice::ended) else {
            return answer(StatusCode::ACCEPTED, &job);
        };
        let mut is_finished = self.is_finished.clone();
        let found = timeout(self.wait, async {
            loop {
                // Before the look: a change after it is seen by the next one.
                ended.mark_unchanged();
                let found = self.store.job(id).await?;
                if let Some(job) = found.filter(|job| job.state != JobState::Pending) {
                    return Ok::<_, StoreError>(job);
                }
                tokio::select! {
                    changed = ended.changed() => changed.map_err(|_| StoreError::Closed)?,
                    _ = is_finished.wait_for(|is_finished| *is_finished) => {
                        return Err(StoreError::Closed);
                    }
                }
            }
        });
        // The job is stored: an error here must not make the client send it again.
        match found.await {
            Err(_) | Ok(Err(_)) => answer(StatusCode::ACCEPTED, &job),
            Ok(Ok(job)) => answer(of_state(job.state), &job),
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

/// An answer about a job, with its place.
pub(crate) fn answer(status: StatusCode, job: &Job) -> Response {
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

/// The media type of a format.
pub(crate) fn media_type(format: &str) -> HeaderValue {
    let mut known = FORMATS.iter();
    let name = known.find(|(_, known)| *known == format);
    HeaderValue::from_static(name.map_or("application/octet-stream", |(name, _)| name))
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
