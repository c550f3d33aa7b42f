//! `/v1/pipelines/{pipeline}/rejects`: the records that runs refused, which the destination keeps.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::TryFutureExt;
use http_body_util::LengthLimitError;
use rapidbyte::{
    Engine, Failure, Pipeline, RejectCounts, RejectFilter, Repaired, ShownReject, Unreplayable,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::call::{Problem, call, known, known_without_queue};
use crate::ingest::Shared;
use crate::queue;
use crate::request::{Asked, Kind, MAX_NUMBER, Parameters, Place, body_of};
use crate::tokens::Action;

/// The longest time for which rejects are counted.
const COUNT_LIMIT: Duration = Duration::from_secs(60);
/// The longest time for a replay, and for records that are shown: a destination may keep many.
const LIMIT: Duration = Duration::from_secs(3600);
/// Streams, columns and codes that are counted one by one.
const MAX_GROUPS: usize = 10_000;
/// Bytes of lines that are sent together.
const FRAME_BYTES: usize = 64 << 10;
/// Frames that wait for a client.
const FRAMES: usize = 4;
/// Bytes of the body of a replay: the records of 16 MiB, as strings.
const MAX_REPAIRED: usize = 32 << 20;
/// The longest time for the body of a replay.
const BODY_LIMIT: Duration = Duration::from_secs(60);
/// The longest place of a repaired record.
const MAX_PLACE: usize = 4096;
/// Answers with records at the same time. Further requests wait, and leave other calls their turns.
static SHOWS: Semaphore = Semaphore::const_new(2);
/// The same for replays, each with a body in memory.
static REPLAYS: Semaphore = Semaphore::const_new(2);

const HINT_OF_QUEUE: &str =
    "send the repaired records as a new body: POST /v1/ingest/PIPELINE/STREAM";
const HINT_OF_REPLAY: &str = "send JSON such as {\"stream\": \"orders\"}, with repaired records as {\"id\": \"1\", \
    \"record\": \"…\"} in \"repaired\"";

/// Which rejects are counted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfStream {
    /// Only those of this stream.
    stream: Option<String>,
}

impl Parameters for OfStream {
    const ALL: &'static [(&'static str, Kind)] = &[("stream", Kind::Text)];
}

/// Says that records of the queue are sent again, and not replayed.
pub fn without_replay(pipeline: &Pipeline, mut counts: RejectCounts) -> RejectCounts {
    if let Some(newest) = counts
        .newest
        .as_mut()
        .filter(|_| pipeline.source() == queue::NAME)
    {
        newest.unreplayable = Some(Unreplayable {
            message: "the pipeline reads the queue of a server".to_owned(),
            hint: Some("send the repaired records as a new body".to_owned()),
        });
    }
    counts
}

/// The number of rejects by stream, column and code. The reason of the newest may quote a record: it needs `operate`.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    Asked(OfStream { stream }): Asked<OfStream>,
    granted: Granted,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Read, Some(&name))?;
    let (engine, pipeline) = known(&shared, &name)?;
    let mut counts = call(pipeline, COUNT_LIMIT, move |pipeline, control| {
        let mut rejects = engine.rejects(pipeline, control)?;
        let counts = rejects.counts(stream.as_deref(), MAX_GROUPS)?;
        Ok(without_replay(pipeline, counts))
    })
    .await?;
    if !granted.allows(Action::Operate, Some(&name))
        && let Some(newest) = &mut counts.newest
    {
        newest.message = None;
    }
    let mut answer = json!(counts);
    answer["status"] = "ok".into();
    Ok(Json(answer))
}

/// Which rejects are shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Only those of this stream.
    stream: Option<String>,
    /// Only those with this error code.
    code: Option<String>,
    /// Only those of this column.
    column: Option<String>,
    /// At most this many, the oldest.
    limit: Option<u64>,
    /// At most this many bytes of records and messages.
    max_bytes: Option<u64>,
}

impl Parameters for Wanted {
    const ALL: &'static [(&'static str, Kind)] = &[
        ("stream", Kind::Text),
        ("code", Kind::Text),
        ("column", Kind::Text),
        ("limit", Kind::Number(1, MAX_NUMBER)),
        ("max_bytes", Kind::Number(0, MAX_NUMBER)),
    ];
}

impl Wanted {
    fn filter(&self) -> RejectFilter<'_> {
        RejectFilter {
            stream: self.stream.as_deref(),
            code: self.code.as_deref(),
            column: self.column.as_deref(),
            limit: self.limit,
            max_bytes: self.max_bytes,
        }
    }
}

/// The rejects with their records: a line of JSON for each, and then a line with the outcome.
pub(crate) async fn records(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    Asked(wanted): Asked<Wanted>,
    granted: Granted,
) -> Result<Response, Problem> {
    granted.may(Action::Operate, Some(&name))?;
    let (engine, pipeline) = known(&shared, &name)?;
    let turn = SHOWS.acquire().await;
    let (sender, lines) = mpsc::channel(FRAMES);
    let work = call(pipeline, LIMIT, move |pipeline, control| {
        let _turn = turn;
        let mut frames = Frames {
            sender,
            lines: String::new(),
        };
        let mut rejects = engine.rejects(pipeline, control)?;
        let shown = rejects.show(wanted.filter(), |one| frames.take(&one))?;
        frames.send();
        let mut end = json!(shown);
        end["status"] = "ok".into();
        Ok(end)
    });
    let work = work.map_err(Box::new);
    let mut reading = Reading {
        lines,
        work: Some(Box::pin(work)),
        end: None,
    };
    // An error before the first line is an answer of its own.
    let first = match reading.next().await {
        Some(Piece::End(Ok(end))) => Bytes::from(line_of(&end)),
        Some(Piece::End(Err(failure))) => return Err(Problem::Failed(failure)),
        Some(Piece::Lines(lines)) => lines,
        None => Bytes::new(),
    };
    let rest = futures_util::stream::unfold(reading, |mut reading| async move {
        let piece = match reading.next().await? {
            Piece::Lines(lines) => lines,
            Piece::End(Ok(end)) => Bytes::from(line_of(&end)),
            Piece::End(Err(failure)) => {
                let end = json!({ "status": "error", "error": failure });
                Bytes::from(line_of(&end))
            }
        };
        Some((Ok::<_, Infallible>(piece), reading))
    });
    let first = futures_util::stream::once(async move { Ok::<_, Infallible>(first) });
    let all = futures_util::StreamExt::chain(first, rest);
    let mut response = Body::from_stream(all).into_response();
    let lines = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, lines);
    Ok(response)
}

fn line_of(value: &Value) -> String {
    format!("{value}\n")
}

/// The lines of an answer while its records are read.
struct Reading {
    lines: mpsc::Receiver<Bytes>,
    /// The call. `None` after its end.
    work: Option<Pin<Box<dyn Future<Output = Outcome> + Send>>>,
    /// Its outcome, which comes behind the lines.
    end: Option<Outcome>,
}

/// The last line, or why there is none.
type Outcome = Result<Value, Box<Failure>>;

enum Piece {
    Lines(Bytes),
    End(Outcome),
}

impl Reading {
    async fn next(&mut self) -> Option<Piece> {
        while let Some(work) = &mut self.work {
            tokio::select! {
                biased;
                Some(lines) = self.lines.recv() => return Some(Piece::Lines(lines)),
                ended = work => {
                    self.end = Some(ended);
                    self.work = None;
                }
            }
        }
        match self.lines.recv().await {
            Some(lines) => Some(Piece::Lines(lines)),
            None => self.end.take().map(Piece::End),
        }
    }
}

/// Lines on their way to a client.
struct Frames {
    sender: mpsc::Sender<Bytes>,
    lines: String,
}

impl Frames {
    /// Returns whether the client is there.
    fn take(&mut self, one: &ShownReject) -> bool {
        self.lines += &line_of(&json!(one));
        self.lines.len() < FRAME_BYTES || self.send()
    }

    /// Returns whether the client is there.
    fn send(&mut self) -> bool {
        let lines = Bytes::from(std::mem::take(&mut self.lines));
        lines.is_empty() || self.sender.blocking_send(lines).is_ok()
    }
}

/// The body of a replay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    stream: String,
    /// These records instead, and only these. Absent: all rejects of the stream as they are.
    repaired: Option<Vec<RepairedRecord>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepairedRecord {
    id: String,
    record: String,
    run_id: Option<String>,
    /// Where the client has it, for errors.
    #[serde(default)]
    place: String,
}

/// Sends the rejects of a stream through the pipeline again. The answer comes at the end; a client that goes away
/// cancels the replay, whose commits stay.
pub(crate) async fn replay(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
    body: Body,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Operate, Some(&name))?;
    let (engine, pipeline) = known_without_queue(&shared, &name, HINT_OF_QUEUE)?;
    // Before the body is in memory.
    let turn = REPLAYS.acquire().await;
    let body = received(body).await?;
    let Replay { stream, repaired } = body_of(&body, HINT_OF_REPLAY)?;
    drop(body);
    let repaired = repaired.map(|all| all.into_iter().map(RepairedRecord::checked).collect());
    let repaired: Option<Vec<Repaired>> = repaired.transpose()?;
    let answer = call(pipeline, LIMIT, move |pipeline, control| {
        let _turn = turn;
        replayed(&engine, pipeline, &stream, repaired, control)
    })
    .await?;
    Ok(Json(answer))
}

/// The body of a replay. A slow client does not keep the turn of others.
async fn received(body: Body) -> Result<Bytes, Refusal> {
    let body = timeout(BODY_LIMIT, to_bytes(body, MAX_REPAIRED)).await;
    let late = |_| Refusal::body_late(BODY_LIMIT, "send fewer repaired records in one request");
    let body = body.map_err(late)?;
    body.map_err(|error| {
        let cause = error.source().map(ToString::to_string);
        match error
            .source()
            .is_some_and(<dyn Error>::is::<LengthLimitError>)
        {
            true => Refusal::body_too_large(MAX_REPAIRED as u64),
            false => Refusal::body_broken(&cause.unwrap_or_default()),
        }
    })
}

impl RepairedRecord {
    fn checked(self) -> Result<Repaired, Refusal> {
        let Self {
            id,
            record,
            run_id,
            place,
        } = self;
        if record.trim().is_empty() || place.len() > MAX_PLACE {
            let text = format!("the repaired record {id:?} is empty, or its place is too long");
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(
                status,
                "invalid_options",
                text,
                HINT_OF_REPLAY,
            ));
        }
        Ok(Repaired {
            id,
            record: record.into_bytes(),
            run_id,
            place,
        })
    }
}

fn replayed(
    engine: &Engine,
    pipeline: &Pipeline,
    stream: &str,
    repaired: Option<Vec<Repaired>>,
    control: &rapidbyte::Control,
) -> Result<Value, Failure> {
    let replayed = engine.replay(pipeline, stream, repaired, control)?;
    Ok(json!({
        "status": "ok", "pipeline": pipeline.name(), "to": pipeline.rejects_to(), "stream": stream,
        "replayed": replayed.rejects, "rows": replayed.rows, "rejected": replayed.rejected,
        "rejects": replayed.first, "run_ids": replayed.runs,
    }))
}
