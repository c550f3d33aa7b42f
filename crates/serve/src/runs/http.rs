//! Runs over HTTP: lists, requests for a run, and the events of a run while it works.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::channel::{Channel, Sender};
use rapidbyte::Pipeline;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::changes;
use super::live::Live;
use super::record::{Options, Run, RunState};
use super::store::{Filter, Submitted};
use super::{Cancelled, Runs, RunsError, Shared};
use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::queue;
use crate::request::{
    Asked, Given, Kind, LIMIT, MAX_NUMBER, PAGE, Parameters, Place, body_of, id_of, no_query,
    whole_number,
};
use crate::tokens::Action;

/// Bytes of the body of a request.
const MAX_BODY: usize = 64 << 10;
/// Frames of events that wait for a client.
const FRAMES: usize = 8;
/// Lines that are taken together for one client.
const LINES: usize = 100;
/// The time between two events of progress.
const TICK: Duration = Duration::from_secs(1);
/// The longest silence of a stream of events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT: &str = "last-event-id";

/// The routes of runs, with their state: `/v1/runs`, `/v1/pipelines/{name}/runs` and `/v1/changes`.
pub fn routes(runs: Arc<Runs>) -> Router {
    Router::new()
        .route("/v1/runs/{id}", get(one))
        .route("/v1/runs/{id}/cancel", post(cancel))
        .route("/v1/runs/{id}/events", get(events))
        .route_layer(from_fn(no_query))
        .route("/v1/runs", get(list))
        .route("/v1/pipelines/{name}/runs", post(begin))
        .route("/v1/changes", get(changes::get))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(runs)
}

/// Which runs a client asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Only runs of this pipeline.
    pipeline: Option<String>,
    /// Only runs in this state.
    state: Option<RunState>,
    /// Only runs that are older than the run with this id: the `next` of the page before.
    before: Option<i64>,
    limit: Option<u32>,
}

impl Parameters for Wanted {
    const ALL: &'static [(&'static str, Kind)] = &[
        ("pipeline", Kind::Text),
        ("state", Kind::OneOf(&RunState::NAMES)),
        ("before", Kind::Number(0, MAX_NUMBER)),
        LIMIT,
    ];
}

/// A page of runs without their reports, the newest first, and where the next page begins.
async fn list(
    State(runs): State<Arc<Runs>>,
    Asked(asked): Asked<Wanted>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    granted.may(Action::Read, asked.pipeline.as_deref())?;
    let limit = asked.limit.unwrap_or(PAGE);
    let is_whole = asked.state.is_none() && asked.before.is_none();
    let name = asked.pipeline.clone().filter(|_| is_whole);
    let filter = Filter {
        pipelines: asked.pipeline.map(|pipeline| vec![pipeline]),
        state: asked.state,
        before: asked.before,
        limit,
    };
    let shared = &runs.shared;
    let found = shared.store.list(filter).await?;
    // A pipeline whose file is gone still has its runs.
    if let Some(name) = name.filter(|_| found.is_empty()) {
        known(shared, &name)?;
    }
    let is_full = found.len() == limit as usize;
    let next = found.last().filter(|_| is_full).map(|run| run.id);
    let found: Vec<Value> = found.iter().map(|run| shown(shared, run)).collect();
    Ok(Json(json!({ "status": "ok", "runs": found, "next": next })))
}

/// One run.
async fn one(
    State(runs): State<Arc<Runs>>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Json<Value>, Refusal> {
    let run = find(&runs, &id, &granted).await?;
    Ok(Json(
        json!({ "status": "ok", "run": shown(&runs.shared, &run) }),
    ))
}

/// Cancels a run. The answer may come before its end.
async fn cancel(
    State(runs): State<Arc<Runs>>,
    Place(id): Place<String>,
    granted: Granted,
) -> Result<Response, Refusal> {
    let run = end_early(&runs, &id, &granted).await?;
    Ok(answer(StatusCode::ACCEPTED, &runs.shared, &run))
}

/// Cancels a run, and returns it as it is then.
pub(crate) async fn end_early(
    runs: &Arc<Runs>,
    id: &str,
    granted: &Granted,
) -> Result<Run, Refusal> {
    let run = find(runs, id, granted).await?;
    granted.may(Action::Operate, Some(&run.pipeline))?;
    let (cancels, id) = (Arc::clone(runs), run.id);
    let cancelled = spawn_blocking(move || cancels.cancel(id)).await;
    let cancelled = cancelled.map_err(|_| RunsError::Closed)??;
    let run = find(runs, &id.to_string(), granted).await?;
    match cancelled {
        Cancelled::Yes => Ok(run),
        Cancelled::NotActive => Err(Refusal::new(
            StatusCode::CONFLICT,
            "run_ended",
            format!("the run {id} is not active: it is {}", run.state.name()),
            "GET /v1/runs?state=running lists the runs at work",
        )),
    }
}

/// The query of a request for a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waits {
    /// Answer when the run has ended.
    #[serde(default)]
    wait: bool,
}

impl Parameters for Waits {
    const ALL: &'static [(&'static str, Kind)] = &[("wait", Kind::Flag)];
}

/// Queues a run of a pipeline, and waits for its end if the client asks for it.
async fn begin(
    State(runs): State<Arc<Runs>>,
    Place(name): Place<String>,
    granted: Granted,
    Asked(asked): Asked<Waits>,
    Given(body): Given,
) -> Result<Response, Refusal> {
    let (run, told) = queue(&runs, &name, &granted, || options(&body)).await?;
    let shared = &runs.shared;
    if !asked.wait {
        return Ok(answer(StatusCode::ACCEPTED, shared, &run));
    }
    let _ = told.await;
    match timeout(shared.settings.wait, end_of(shared, run.id)).await {
        Ok(Some(run)) => {
            let status = match run.state {
                RunState::Succeeded => StatusCode::OK,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            Ok(answer(status, shared, &run))
        }
        // The run is stored: an error here must not make the client ask again.
        Ok(None) | Err(_) => Ok(answer(StatusCode::ACCEPTED, shared, &run)),
    }
}

/// The pipeline with this name.
fn known(shared: &Shared, name: &str) -> Result<Pipeline, Refusal> {
    shared.pipelines.pipeline(name).ok_or_else(|| {
        let text = format!("the server has no pipeline {name:?}, or cannot read its file");
        let hint = "look at the names in the pipeline files of the server";
        Refusal::new(StatusCode::NOT_FOUND, "unknown_pipeline", text, hint)
    })
}

/// Queues a run of a pipeline. The task tells the threads that it waits; nobody has to wait for the task.
pub(crate) async fn queue(
    runs: &Arc<Runs>,
    name: &str,
    granted: &Granted,
    options: impl FnOnce() -> Result<Options, Refusal>,
) -> Result<(Run, JoinHandle<()>), Refusal> {
    granted.may(Action::Operate, Some(name))?;
    let shared = &runs.shared;
    let pipeline = known(shared, name)?;
    if pipeline.source() == queue::NAME {
        let text =
            format!("the pipeline {name:?} reads the queue of the server, which begins its runs");
        let hint = "send rows to its streams: POST /v1/ingest/PIPELINE/STREAM";
        return Err(Refusal::new(
            StatusCode::CONFLICT,
            "reads_queue",
            text,
            hint,
        ));
    }
    let options = options()?;
    let now_ms = shared.now_ms();
    let submitted = shared
        .store
        .submit(name.to_owned(), options, pipeline.when_running(), now_ms)
        .await?;
    match submitted {
        Submitted::Queued { run, replaces } => {
            // The run is stored: a client that is gone must not leave it unnoticed.
            let notes = Arc::clone(runs);
            let told = spawn_blocking(move || {
                notes.shared.replace(replaces);
                notes.shared.queued();
            });
            Ok((*run, told))
        }
        Submitted::Active(run) => {
            let text = format!("the run {run} of the pipeline {name:?} is active");
            let hint =
                "wait for its end, cancel it, or set when_running: wait in the pipeline file";
            Err(Refusal::new(
                StatusCode::CONFLICT,
                "already_running",
                text,
                hint,
            ))
        }
        Submitted::Full => {
            let text = format!("too many runs of the pipeline {name:?} wait");
            let hint = "ask again after the seconds of Retry-After";
            Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_runs",
                text,
                hint,
            ))
        }
    }
}

fn options(body: &[u8]) -> Result<Options, Refusal> {
    if body.is_empty() {
        return Ok(Options::default());
    }
    checked(body_of(body, HINT)?)
}

/// The options of a request, within their limits.
pub(crate) fn checked(options: Options) -> Result<Options, Refusal> {
    let problem = options.problem();
    problem.map_or(Ok(options), |problem| Err(invalid_options(problem)))
}

const HINT: &str =
    "send nothing, or JSON such as {\"select\": [\"orders\"], \"full_refresh\": false}";

fn invalid_options(text: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_options", text, HINT)
}

/// Waits for the end of a run. `None` if the server ends before.
async fn end_of(shared: &Shared, id: i64) -> Option<Run> {
    let mut changed = shared.changed.subscribe();
    loop {
        // Before the look: a change after it is seen by the next one.
        let ends = *changed.borrow_and_update();
        let run = shared.store.get(id).await.ok()??;
        if run.state.is_end() {
            return Some(run);
        }
        if ends {
            return None;
        }
        changed.changed().await.ok()?;
    }
}

/// A run that the token may see. It does not learn which other runs there are.
pub(crate) async fn find(runs: &Runs, id: &str, granted: &Granted) -> Result<Run, Refusal> {
    let run = match id_of(id) {
        Some(id) => runs.shared.store.get(id).await?,
        None => None,
    };
    let run = run.filter(|run: &Run| granted.allows(Action::Read, Some(&run.pipeline)));
    run.ok_or_else(|| {
        let hint = "GET /v1/runs lists the runs; the server keeps the last 1,000 of each pipeline";
        Refusal::new(
            StatusCode::NOT_FOUND,
            "unknown_run",
            format!("no run {id:?}"),
            hint,
        )
    })
}

/// A run, with its progress while it works.
fn shown(shared: &Shared, run: &Run) -> Value {
    let mut shown = json!(run);
    let live = match run.state {
        RunState::Running => shared.live(run.id),
        _ => None,
    };
    if let Some(progress) = live.and_then(|live| live.progress()) {
        shown["progress"] = progress;
    }
    shown
}

fn answer(status: StatusCode, shared: &Shared, run: &Run) -> Response {
    let body = Json(json!({ "status": "ok", "run": shown(shared, run) }));
    let mut response = (status, body).into_response();
    // Digits are a header value.
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/runs/{}", run.id)) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// Server-sent events of a run until its end: `log`, `progress`, `lost` with the number of lines that a slow client missed,
/// and `end` with the run. The `id` of a line lets a client that comes back go on behind it.
pub(super) async fn events(
    State(runs): State<Arc<Runs>>,
    Place(id): Place<String>,
    granted: Granted,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let run = find(&runs, &id, &granted).await?;
    let last = headers
        .get(LAST_EVENT)
        .and_then(|last| whole_number(last.to_str().ok()?));
    let (sender, body) = Channel::new(FRAMES);
    let mut client = Client {
        sender,
        sent: Instant::now(),
    };
    let shared = Arc::clone(&runs.shared);
    let next = last.map_or(0, |last| last.saturating_add(1));
    tokio::spawn(async move {
        // A client that is gone needs nothing more.
        let _ = follow(&shared, run.id, next, &mut client).await;
    });
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A client that follows a run.
struct Client {
    sender: Sender<Bytes>,
    sent: Instant,
}

/// The client is gone, or the server ends.
struct Gone;

impl Client {
    async fn send(&mut self, text: String) -> Result<(), Gone> {
        self.sent = Instant::now();
        self.sender
            .send_data(Bytes::from(text))
            .await
            .map_err(|_| Gone)
    }

    /// JSON has no line break outside of its strings, and escapes those inside.
    async fn event(&mut self, name: &str, data: &Value) -> Result<(), Gone> {
        self.send(format!("event: {name}\ndata: {data}\n\n")).await
    }

    async fn keep_alive(&mut self) -> Result<(), Gone> {
        match self.sent.elapsed() < KEEP_ALIVE {
            true => Ok(()),
            false => self.send(": the run goes on\n\n".into()).await,
        }
    }
}

async fn follow(shared: &Shared, id: i64, next: u64, client: &mut Client) -> Result<(), Gone> {
    let mut changed = shared.changed.subscribe();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ends = *changed.borrow_and_update();
        if let Some(live) = shared.live(id) {
            follow_live(shared, (id, &live), next, &mut changed, client).await?;
        }
        let run = shared.store.get(id).await.ok().flatten().ok_or(Gone)?;
        if run.state.is_end() {
            return client.event("end", &json!(run)).await;
        }
        if ends {
            return Err(Gone);
        }
        tokio::select! {
            done = changed.changed() => done.map_err(|_| Gone)?,
            _ = tick.tick() => client.keep_alive().await?,
        }
    }
}

/// Until the run is at work no more.
async fn follow_live(
    shared: &Shared,
    (id, live): (i64, &Live),
    mut next: u64,
    changed: &mut watch::Receiver<bool>,
    client: &mut Client,
) -> Result<(), Gone> {
    let mut told = live.told();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut is_due) = (None, true);
    loop {
        // Before the look: a change after it is seen by the next one.
        told.mark_unchanged();
        changed.mark_unchanged();
        let is_active = shared.live(id).is_some();
        let unseen = live.unseen(next, LINES);
        next = unseen.next;
        if unseen.lost > 0 {
            client
                .event("lost", &json!({ "lines": unseen.lost }))
                .await?;
        }
        let first = next - unseen.lines.len() as u64;
        let lines = unseen.lines.iter().zip(first..);
        let lines =
            lines.map(|(line, id)| format!("event: log\nid: {id}\ndata: {}\n\n", json!(line)));
        let lines: String = lines.collect();
        let has_more = !lines.is_empty();
        if has_more {
            client.send(lines).await?;
        }
        let progress = live.progress();
        if (is_due || !is_active) && progress != sent {
            if let Some(progress) = &progress {
                client.event("progress", progress).await?;
            }
            (sent, is_due) = (progress, false);
        }
        if has_more {
            continue;
        }
        if !is_active {
            return Ok(());
        }
        tokio::select! {
            done = told.changed() => done.map_err(|_| Gone)?,
            done = changed.changed() => done.map_err(|_| Gone)?,
            _ = tick.tick() => {
                is_due = true;
                client.keep_alive().await?;
            }
        }
    }
}
