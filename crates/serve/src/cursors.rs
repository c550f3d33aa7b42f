//! `/v1/pipelines/{pipeline}/cursors`: the cursors of a pipeline's streams, in its destination.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use rapidbyte::{CheckedCursor, Cursors, Failure, Pipeline, ShownCursor};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::call::{Problem, call, known, known_without_queue};
use crate::ingest::Shared;
use crate::pipelines::unknown_stream;
use crate::queue;
use crate::request::{Given, Place, body_of};
use crate::tokens::Action;
use crate::work::Notice;

/// The longest time for which a destination is asked.
const LIMIT: Duration = Duration::from_secs(60);
const HINT_OF_QUEUE: &str = "the jobs move its cursors; name a stream to rebind or clear it, and \
    POST /v1/pipelines/PIPELINE/streams/STREAM/rebind moves all pending jobs";
const HINT_OF_PUT: &str = "send JSON such as {\"cursor\": \"{\\\"id\\\": 7}\", \"force\": false}";
const HINT_OF_MOVE: &str = "send JSON such as {\"stream\": \"orders\"} or {\"all\": true}";
/// The same for a pipeline of the queue.
const HINT_OF_STREAM: &str = "send JSON such as {\"stream\": \"orders\"}";

/// All streams that the pipeline names, or that have had a run. Cursors have no secrets.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Read, Some(&name))?;
    let (engine, pipeline) = known(&shared, &name)?;
    let streams = call(pipeline, LIMIT, move |pipeline, control| {
        let found = engine.cursors(pipeline, None, false, control)?.list()?;
        let found = found.into_iter().map(|found| found.redacted(pipeline));
        Ok(found
            .map(|found| CheckedCursor::from(&found))
            .collect::<Vec<_>>())
    })
    .await?;
    Ok(Json(
        json!({ "status": "ok", "pipeline": name, "streams": streams }),
    ))
}

/// The cursor of a stream as it is.
pub(crate) async fn get(
    State(shared): State<Shared>,
    Place((name, stream)): Place<(String, String)>,
    granted: Granted,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Operate, Some(&name))?;
    let (engine, pipeline) = known(&shared, &name)?;
    let found = call(pipeline, LIMIT, move |pipeline, control| {
        let mut cursors = engine.cursors(pipeline, None, false, control)?;
        cursors.get(&stream)
    })
    .await?;
    let text = found.cursor();
    Ok(Json(
        json!({ "status": "ok", "stream": CheckedCursor::from(&found), "text": text }),
    ))
}

/// The body of a request that sets a cursor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    /// The cursor as the destination stores it: a JSON object with keys, as text.
    cursor: String,
    /// Fence a run that is at work.
    #[serde(default)]
    force: bool,
    /// The number of commits that the client has seen. Absent: any.
    seq: Option<u64>,
}

/// Sets the cursor of a stream.
pub(crate) async fn put(
    State(shared): State<Shared>,
    Place((name, stream)): Place<(String, String)>,
    granted: Granted,
    Given(body): Given,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Operate, Some(&name))?;
    let (engine, pipeline) = known_without_queue(&shared, &name, HINT_OF_QUEUE)?;
    let Put { cursor, force, seq } = body_of(&body, HINT_OF_PUT)?;
    let keys: Option<Map<String, Value>> = serde_json::from_str(&cursor).ok();
    if keys.is_none_or(|keys| keys.is_empty()) {
        let text = "the cursor is not a JSON object with keys, as text";
        let status = StatusCode::BAD_REQUEST;
        return Err(Refusal::new(status, "invalid_options", text, HINT_OF_PUT).into());
    }
    let moved = call(pipeline, LIMIT, move |pipeline, control| {
        let mut cursors = engine.cursors(pipeline, None, true, control)?;
        let fences = cursors.begin_move(force)?;
        // A stream whose cursor was seen may have left the pipeline file.
        if seq.is_none() {
            cursors.ensure_known(&stream)?;
        }
        let unchecked = cursors.refuse_unreadable(&stream, &cursor)?;
        let progress = cursors.put(&stream, Some(&cursor), seq)?;
        let unchecked = unchecked.map(|why| json!({ "code": why.code, "message": why.message }));
        Ok(json!({
            "status": "ok", "stream": ShownCursor::of(&stream, Some(&progress)),
            "fences": fences, "unchecked": unchecked,
        }))
    })
    .await?;
    Ok(Json(moved))
}

/// The body of a request that moves cursors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Moves {
    /// This stream.
    stream: Option<String>,
    /// All streams.
    #[serde(default)]
    all: bool,
    /// Fence a run that is at work.
    #[serde(default)]
    force: bool,
}

impl Moves {
    fn of(body: &[u8], hint: &'static str) -> Result<Self, Refusal> {
        let moves: Self = body_of(body, hint)?;
        if moves.all == moves.stream.is_some() {
            let text = "the body names one stream, or all of them";
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(status, "invalid_options", text, hint));
        }
        Ok(moves)
    }
}

/// The streams that a request has moved.
#[derive(Default)]
struct Moved {
    streams: Vec<ShownCursor>,
    /// Streams whose cursors are only valid for their own server.
    of_server: Vec<String>,
}

impl Moved {
    /// The answer. `fences` is the run that was fenced.
    fn answer(self, fences: Option<String>) -> Value {
        json!({ "status": "ok", "streams": self.streams, "of_server": self.of_server, "fences": fences })
    }
}

/// Lets the next run accept another source or target.
pub(crate) async fn rebind(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
    Given(body): Given,
) -> Result<Json<Value>, Problem> {
    moves(&shared, &name, &granted, &body, |cursors, stream, moved| {
        cursors.rebind(stream, |rebound| {
            let name = &rebound.stream;
            let shown = ShownCursor::of(name, Some(&rebound.progress));
            moved.streams.push(shown);
            if rebound.needs_same_server {
                moved.of_server.push(name.clone());
            }
        })
    })
    .await
}

/// Lets the next run begin with the first row.
pub(crate) async fn clear(
    State(shared): State<Shared>,
    Place(name): Place<String>,
    granted: Granted,
    Given(body): Given,
) -> Result<Json<Value>, Problem> {
    moves(&shared, &name, &granted, &body, |cursors, stream, moved| {
        cursors.clear(stream, |name, progress| {
            moved.streams.push(ShownCursor::of(name, Some(progress)));
        })
    })
    .await
}

type Move = fn(&mut Cursors, Option<&str>, &mut Moved) -> Result<(), Failure>;

async fn moves(
    shared: &Shared,
    name: &str,
    granted: &Granted,
    body: &[u8],
    work: Move,
) -> Result<Json<Value>, Problem> {
    granted.may(Action::Operate, Some(name))?;
    let (_, known) = known(shared, name)?;
    let hint = match known.source() {
        queue::NAME => HINT_OF_STREAM,
        _ => HINT_OF_MOVE,
    };
    let Moves { stream, force, .. } = Moves::of(body, hint)?;
    if let (queue::NAME, Some(stream), Some(notice)) =
        (known.source(), &stream, shared.notice.clone())
    {
        return moves_of_queue(&notice, name, &known, stream, work).await;
    }
    let (engine, pipeline) = known_without_queue(shared, name, HINT_OF_QUEUE)?;
    let moved = call(pipeline, LIMIT, move |pipeline, control| {
        let mut cursors = engine.cursors(pipeline, None, true, control)?;
        let fences = cursors.begin_move(force)?;
        let mut moved = Moved::default();
        let done = work(&mut cursors, stream.as_deref(), &mut moved);
        done.map_err(|mut failure| {
            // They stay moved, although the request failed.
            let names = moved.streams.iter().map(|stream| stream.name.clone());
            failure.streams.committed.extend(names);
            failure
        })?;
        Ok(moved.answer(fences))
    })
    .await?;
    Ok(Json(moved))
}

/// The same for a stream of the queue, between two of its runs: other streams of the pipeline may run meanwhile.
async fn moves_of_queue(
    notice: &Notice,
    name: &str,
    known: &Pipeline,
    stream: &str,
    work: Move,
) -> Result<Json<Value>, Problem> {
    // The destination is asked for a cursor alone.
    let of_queue = known.of_queue(stream, true);
    let of_queue = of_queue.ok_or_else(|| unknown_stream(name, stream))?;
    let (key, mover) = ((name.to_owned(), stream.to_owned()), notice.clone());
    let moved = call(of_queue, LIMIT, move |pipeline, control| {
        mover.move_cursor(pipeline, &key, control, |cursors| {
            let mut moved = Moved::default();
            work(cursors, Some(&key.1), &mut moved)?;
            Ok(moved.answer(None))
        })
    })
    .await?;
    notice.distrust(name, stream);
    notice.retry(name, Some(stream));
    Ok(Json(moved))
}
