//! `POST /v1/ingest/{pipeline}/{stream}`.

mod headers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::Body;
use axum::body::HttpBody as _;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, LOCATION, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use crossbeam_channel::bounded;
use http_body_util::{BodyDataStream, BodyExt};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::metrics::Metrics;
use crate::multipart;
use crate::receive::{Content, Received, Receiver, Share};
use crate::registry::Pipelines;
use crate::request::{Asked, Kind, Parameters, Place};
use crate::runs::Runs;
use crate::server::Settings;
use crate::spool::SpoolFile;
use crate::store::{
    Admitted, Body as Kept, Job, JobState, NewJob, NextJob, Outcome, Refused, Store, StoreError,
};
use crate::tokens::Action;
use crate::work::Notice;

pub(crate) use headers::{coding, encoding, format, key, media_type, media_type_of};

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
    /// The pipeline declares the columns. Formats that have columns of their own do not take them.
    pub declares_columns: bool,
}

/// Formats whose bodies have their columns with types.
const TYPED: [&str; 2] = ["parquet", "arrow"];

impl Ingest {
    /// Refuses a format that the pipeline could not read.
    pub(crate) fn takes(self, format: &str) -> Result<(), Refusal> {
        if !self.declares_columns || !TYPED.contains(&format) {
            return Ok(());
        }
        let text =
            format!("the pipeline declares its columns, and {format} has columns of its own");
        let hint = "send JSON, JSON Lines or CSV, or remove schema: from the pipeline file";
        Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_format",
            text,
            hint,
        ))
    }
}

/// Changes whenever jobs of a stream have ended.
pub(crate) type Ends = watch::Receiver<()>;

/// The parts that all handlers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub catalogue: Arc<dyn Catalogue>,
    /// The pipelines that run. `None` if nobody runs pipelines.
    pub pipelines: Option<Arc<Pipelines>>,
    /// The runs of pipelines with other sources, and the messages of all. `None` if nobody runs pipelines.
    pub runs: Option<Arc<Runs>>,
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
}

/// The query of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// Answer when the job is done or dead.
    #[serde(default)]
    wait: bool,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[("wait", Kind::Flag)];
}

/// The longest time for which a refused body is still received, and its bytes: a client that writes gets the answer, and
/// not a connection that is reset.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 64 << 20;

/// Takes a body. It is a job when the client gets the answer.
///
/// A body that is `multipart/form-data` has up to 100 files, and each part is a job, in the order of the parts. The
/// answer has `jobs` instead of `job`. All parts are admitted, or none: a part that is refused, and a request that ends
/// too early, leaves no job. With an `Idempotency-Key` each part has the key KEY/NUMBER, counted from 1, so a request
/// that is repeated with the same parts is the same jobs.
///
/// With `?wait=true` the answer comes when all jobs have ended: 200, or 422 if one of them is dead or cancelled.
pub(crate) async fn ingest(
    State(shared): State<Shared>,
    Place((pipeline, stream)): Place<(String, String)>,
    Asked(asked): Asked<Query>,
    granted: Granted,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    if let Err(refusal) = ensure_length(&headers, &body) {
        return refusal.into_response();
    }
    // Before there is a job: no end of it can be missed.
    let ends = shared
        .notice
        .as_ref()
        .filter(|_| asked.wait)
        .map(|notice| notice.ended(&pipeline, &stream));
    let wanted = Wanted {
        pipeline,
        stream,
        granted,
    };
    let taken = match multipart::is_multipart(&headers) {
        false => {
            let taken = take(&shared, &wanted, &headers, &mut body).await;
            taken.map(|admitted| Taken::Body(Box::new(admitted)))
        }
        true => {
            let taken = multipart::take(&shared, &wanted, &headers, &mut body).await;
            taken.map(Taken::Parts)
        }
    };
    match taken {
        Ok(Taken::Body(admitted)) => {
            shared.metrics.admitted(&admitted);
            answer_of(&shared, *admitted, asked.wait, ends).await
        }
        Ok(Taken::Parts(admitted)) => {
            for one in &admitted {
                shared.metrics.admitted(one);
            }
            multipart::answer_of(&shared, admitted, asked.wait, ends).await
        }
        Err(refusal) => {
            tokio::spawn(linger(body));
            refusal.into_response()
        }
    }
}

/// Refuses a request that does not say how long its body is: in HTTP/1 it has none then, whatever bytes follow.
fn ensure_length(headers: &HeaderMap, body: &Body) -> Result<(), Refusal> {
    let says = [CONTENT_LENGTH, TRANSFER_ENCODING];
    if says.iter().any(|header| headers.contains_key(header)) || !body.is_end_stream() {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::LENGTH_REQUIRED,
        "length_required",
        "the request does not say how long its body is, so it has none",
        "send Content-Length, or Transfer-Encoding: chunked",
    ))
}

/// The jobs of a request.
enum Taken {
    /// Of its body.
    Body(Box<Admitted>),
    /// Of the parts of its body.
    Parts(Vec<Admitted>),
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
pub(crate) struct Wanted {
    pipeline: String,
    stream: String,
    pub granted: Granted,
}

impl Wanted {
    /// The rules of the stream, if the token may send rows to it.
    pub(crate) fn rules(&self, shared: &Shared) -> Result<Ingest, Refusal> {
        let Self {
            pipeline, stream, ..
        } = self;
        self.granted.may(Action::Ingest, Some(pipeline))?;
        let taken = shared.catalogue.ingest(pipeline, stream);
        taken.ok_or_else(|| unknown(pipeline, stream))
    }

    /// Refuses the body of a token that has used up a limit, before it is received.
    pub(crate) async fn ensure_unspent(&self, shared: &Shared) -> Result<(), Refusal> {
        let Some(limits) = self.granted.limits() else {
            return Ok(());
        };
        let spent = shared.store.spent(limits).await?;
        spent.map_or(Ok(()), |spent| Err(Refusal::spent(spent)))
    }
}

async fn take(
    shared: &Shared,
    wanted: &Wanted,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Admitted, Refusal> {
    let rules = wanted.rules(shared)?;
    let format = format(headers)?;
    rules.takes(format)?;
    let encoding = encoding(headers, format)?;
    let form = Form { format, encoding };
    let key = key(headers)?;
    wanted.ensure_unspent(shared).await?;
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let pieces = BodyDataStream::new(body);
    let received = shared.receiver.receive(pieces, announced).await?;
    let arrived = Arrived::new(wanted, rules, form, key, received);
    match admit(shared, vec![arrived]).await? {
        Ok(mut admitted) => admitted
            .pop()
            .ok_or_else(|| Refusal::spool_failed("the store gave no job")),
        Err((_, refused)) => Err(refusal_of(refused)),
    }
}

/// The format of a body, and its compression.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub format: &'static str,
    pub encoding: Option<&'static str>,
}

/// A body that was received and is not a job yet.
pub(crate) struct Arrived {
    job: NewJob,
    file: Option<SpoolFile>,
    share: Share,
}

impl Arrived {
    pub(crate) fn new(
        wanted: &Wanted,
        rules: Ingest,
        form: Form,
        key: Option<String>,
        received: Received,
    ) -> Self {
        let Received {
            bytes,
            sha256,
            content,
            share,
        } = received;
        wanted.granted.spend(bytes);
        let (body, file) = match content {
            Content::Inline(bytes) => (Kept::Inline(bytes.into()), None),
            Content::Spooled(file) => (Kept::Spooled(file.name().to_owned()), Some(file)),
        };
        let job = NewJob {
            pipeline: wanted.pipeline.clone(),
            stream: wanted.stream.clone(),
            format: form.format,
            encoding: form.encoding,
            bytes,
            sha256,
            key,
            is_known_by_content: rules.is_known_by_content,
            expected_by: None,
            token: wanted.granted.limits(),
            body,
        };
        Self { job, file, share }
    }
}

/// Makes bodies jobs: all of them, or none.
pub(crate) async fn admit(shared: &Shared, arrived: Vec<Arrived>) -> Result<Outcome, Refusal> {
    for body in &arrived {
        shared.metrics.received(body.job.bytes);
    }
    let (store, notice) = (shared.store.clone(), shared.notice.clone());
    let admitted = tokio::spawn(async move {
        let (mut jobs, mut kept, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        // The jobs of a request are of one stream.
        let expects = |job: &NewJob| notice.as_ref()?.expects(&job.pipeline, &job.stream);
        let expected_by = arrived.first().and_then(|first| expects(&first.job));
        for Arrived { job, file, share } in arrived {
            let expected_by = expected_by.clone();
            jobs.push(NewJob { expected_by, ..job });
            // The jobs may be stored although this task ends before the answer: then their files have to stay.
            kept.push(file.map(SpoolFile::keep));
            shares.push(share);
        }
        // A run that waits for the job begins with it while it goes to the disk.
        let (is_stored, on_disk) = bounded(1);
        let waiting = notice.clone();
        let next = move |next: NextJob| {
            if let Some(notice) = waiting {
                notice.give(next, on_disk);
            }
        };
        // A run takes the jobs while the answer is on its way.
        let tell = move |outcome: &Outcome| {
            // Nobody listens if no run has the job.
            let _ = is_stored.send(());
            if let (Ok(all), Some(notice)) = (outcome, &notice) {
                let mut new = all.iter().filter(|one| matches!(one, Admitted::New(_)));
                if let Some(first) = new.next() {
                    notice.tell(&first.job().pipeline, &first.job().stream);
                }
            }
        };
        let outcome = store.admit(jobs, next, tell).await;
        drop(shares);
        for (at, path) in kept.into_iter().enumerate() {
            if let Some(path) = path
                && !may_be_stored(&outcome, at)
            {
                // What stays is removed at the next start.
                let _ = spawn_blocking(|| std::fs::remove_file(path)).await;
            }
        }
        outcome
    });
    let ended = |_| Refusal::spool_failed("the store panicked");
    Ok(admitted.await.map_err(ended)??)
}

/// The answer about a body that is not a job.
pub(crate) fn refusal_of(refused: Refused) -> Refusal {
    match refused {
        Refused::KeyOfAnother(job) => Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            format!(
                "the job {} has this Idempotency-Key and another body, or another format",
                job.id
            ),
            "give each body a key of its own",
        ),
        Refused::Full => Refusal::queue_full(),
        Refused::Spent(spent) => Refusal::spent(spent),
    }
}

async fn answer_of(
    shared: &Shared,
    admitted: Admitted,
    waits: bool,
    ends: Option<Ends>,
) -> Response {
    match admitted {
        admitted if waits => {
            let job = admitted.into_job();
            let mut jobs = shared.ends_of(vec![job.clone()], ends).await;
            let job = jobs.pop().unwrap_or(job);
            answer(of_ended(job.state), &job)
        }
        Admitted::New(job) => answer(StatusCode::ACCEPTED, &job),
        Admitted::Known(job) => answer(of_state(job.state), &job),
    }
}

/// The status of an answer about a job that is known.
pub(crate) fn of_state(state: JobState) -> StatusCode {
    match state {
        JobState::Dead | JobState::Cancelled => StatusCode::UNPROCESSABLE_ENTITY,
        JobState::Done | JobState::Pending => StatusCode::OK,
    }
}

/// The status of an answer about a job for whose end the request has waited.
pub(crate) fn of_ended(state: JobState) -> StatusCode {
    match state {
        JobState::Pending => StatusCode::ACCEPTED,
        ended => of_state(ended),
    }
}

impl Shared {
    /// Waits until all jobs, of one stream, are done, dead or cancelled, or for a time. Returns them as they are then, in
    /// their order. `ends` has changed if jobs of the stream have ended since these were admitted. `None` if nobody runs
    /// pipelines.
    pub(crate) async fn ends_of(&self, jobs: Vec<Job>, ends: Option<Ends>) -> Vec<Job> {
        let mut jobs = jobs;
        let Some(mut ends) = ends else {
            return jobs;
        };
        let mut is_finished = self.is_finished.clone();
        let all = timeout(self.wait, async {
            // Until then they are as they were admitted.
            let mut has_changed = false;
            for job in &mut jobs {
                loop {
                    if has_changed && let Some(found) = self.store.job(job.id).await? {
                        *job = found;
                    }
                    if job.state != JobState::Pending {
                        break;
                    }
                    has_changed = tokio::select! {
                        changed = ends.changed() => changed.is_ok(),
                        // No run begins any more.
                        _ = is_finished.wait_for(|is_finished| *is_finished) => false,
                    };
                    if !has_changed {
                        return Err(StoreError::Closed);
                    }
                }
            }
            Ok(())
        });
        // The jobs are stored: an error here must not make the client send them again.
        let _ = all.await;
        jobs
    }
}

/// A file that no job has after all is removed at the next start.
fn may_be_stored(outcome: &Result<Outcome, StoreError>, at: usize) -> bool {
    match outcome {
        Ok(Ok(admitted)) => matches!(admitted.get(at), Some(Admitted::New(_))),
        Ok(Err(_)) => false,
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
