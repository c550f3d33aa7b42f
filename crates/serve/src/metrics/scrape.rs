//! The samples of one request.

use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;

use super::text::{Kind, MEDIA_TYPE, Text};
use super::{Metrics, Ordering, locked};
use crate::access::Granted;
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::store::{StreamState, now_ms};
use crate::tokens::Action;

/// The names of the classes of a status.
const CLASSES: [&str; 6] = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// The names of the results of a run.
const RESULTS: [&str; 3] = ["committed", "failed", "cancelled"];

/// All samples, for a token that may read everything.
pub(crate) async fn metrics(
    State(shared): State<Shared>,
    granted: Granted,
) -> Result<Response, Refusal> {
    granted.may(Action::Read, None)?;
    let spool = shared.receiver.spool().clone();
    let of_system = spawn_blocking(move || (spool.free_bytes().ok(), rapidbyte::rss_bytes()));
    let (free, resident) = of_system.await.unwrap_or_default();
    // Without its store the server still tells everything else.
    let streams = shared.store.stream_states().await;
    let mut text = Text::default();
    of_process(&mut text, &shared.metrics, resident);
    of_requests(&mut text, &shared.metrics, &shared);
    of_bodies(&mut text, &shared.metrics);
    of_queue(&mut text, &shared);
    text.gauge(
        "rapidbyte_store_up",
        "Whether the store of jobs answers (1) or not (0).",
        u8::from(streams.is_ok()),
    );
    of_streams(&mut text, &streams.unwrap_or_default());
    of_runs(&mut text, &shared.metrics);
    of_pipelines(&mut text, &shared);
    super::runs::of_pipelines(&mut text, &shared).await;
    if let Some(free) = free {
        text.gauge(
            "rapidbyte_disk_free_bytes",
            "Free bytes of the disk of the queue.",
            free,
        );
    }
    text.gauge(
        "rapidbyte_disk_keep_free_bytes",
        "Below this many free bytes the server takes no bodies.",
        shared.settings.keep_free,
    );
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], text.end()).into_response())
}

fn of_process(text: &mut Text, metrics: &Metrics, resident: Option<u64>) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    let help = "The version of the program.";
    text.family("rapidbyte_build_info", Kind::Gauge, help)
        .add(&version, 1);
    let started = metrics.0.started.duration_since(UNIX_EPOCH);
    text.gauge(
        "process_start_time_seconds",
        "When the server started, in seconds since 1970-01-01.",
        started.unwrap_or_default().as_secs_f64(),
    );
    if let Some(resident) = resident {
        text.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            resident,
        );
    }
}

fn of_requests(text: &mut Text, metrics: &Metrics, shared: &Shared) {
    text.gauge(
        "rapidbyte_http_connections",
        "Open connections.",
        metrics.0.connections.load(Ordering::Relaxed),
    );
    text.gauge(
        "rapidbyte_http_connections_limit",
        "Connections that may be open.",
        shared.settings.connections,
    );
    let requests = locked(&metrics.0.requests);
    let mut ordered: Vec<_> = requests.iter().collect();
    ordered.sort_by_key(|(route, _)| *route);
    let help =
        "Requests by route and class of the status; aborted: the client left before the answer.";
    let mut family = text.family("rapidbyte_http_requests_total", Kind::Counter, help);
    for (route, of_route) in &ordered {
        let counts = CLASSES.iter().zip(of_route.by_class);
        for (class, count) in counts.filter(|(_, count)| *count > 0) {
            family.add(&[("route", route.as_str()), ("status", class)], count);
        }
    }
    let help = "Time from the head of a request to its answer.";
    let name = "rapidbyte_http_request_duration_seconds";
    let mut family = text.family(name, Kind::Histogram, help);
    for (route, of_route) in &ordered {
        family.add_histogram(&[("route", route.as_str())], &of_route.seconds);
    }
}

fn of_bodies(text: &mut Text, metrics: &Metrics) {
    text.counter(
        "rapidbyte_ingest_received_bytes_total",
        "Bytes of bodies that were received to their end.",
        metrics.0.received_bytes.load(Ordering::Relaxed),
    );
    let help = "Bodies that are jobs: admitted as a new one, or known as one that was there.";
    let mut family = text.family("rapidbyte_ingest_bodies_total", Kind::Counter, help);
    for (outcome, count) in [
        ("admitted", &metrics.0.admitted),
        ("known", &metrics.0.known),
    ] {
        family.add(&[("outcome", outcome)], count.load(Ordering::Relaxed));
    }
    let help = "Bodies that were refused, by the code of the error.";
    let mut family = text.family("rapidbyte_ingest_refused_total", Kind::Counter, help);
    for (code, count) in &*locked(&metrics.0.refused) {
        family.add(&[("code", code)], count);
    }
}

fn of_queue(text: &mut Text, shared: &Shared) {
    let (held, limits) = (shared.store.held(), shared.store.limits());
    for (name, help, value) in [
        ("rapidbyte_queue_jobs", "Pending jobs.", held.jobs),
        (
            "rapidbyte_queue_jobs_limit",
            "Pending jobs from which on bodies are refused.",
            limits.jobs,
        ),
        (
            "rapidbyte_queue_bytes",
            "Bytes of the bodies of pending and dead jobs.",
            held.bytes,
        ),
        (
            "rapidbyte_queue_bytes_limit",
            "Bytes of these bodies from which on bodies are refused.",
            limits.bytes,
        ),
        (
            "rapidbyte_queue_kept_bytes",
            "Bytes of the bodies of jobs that are done or cancelled.",
            held.kept_bytes,
        ),
        (
            "rapidbyte_queue_known_jobs",
            "Jobs that the store knows, in any state.",
            held.rows,
        ),
    ] {
        text.gauge(name, help, value);
    }
}

fn of_streams(text: &mut Text, streams: &[StreamState]) {
    let now = now_ms();
    let help =
        "Age of the oldest pending job of a stream. A stream without pending jobs has no sample.";
    let name = "rapidbyte_queue_oldest_job_age_seconds";
    let mut family = text.family(name, Kind::Gauge, help);
    for state in streams {
        if let Some(oldest) = state.oldest_ms {
            let age = now.saturating_sub(oldest).max(0) as f64 / 1e3;
            family.add(&of(&state.pipeline, &state.stream), age);
        }
    }
    let help =
        "Dead jobs of a stream, counted up to 10000. A stream without dead jobs has no sample.";
    let mut family = text.family("rapidbyte_dead_jobs", Kind::Gauge, help);
    for state in streams.iter().filter(|state| state.dead > 0) {
        family.add(&of(&state.pipeline, &state.stream), state.dead);
    }
}

fn of_runs(text: &mut Text, metrics: &Metrics) {
    let runs = locked(&metrics.0.runs);
    let help =
        "Commits of runs, runs that failed and runs that were cancelled, since the server started.";
    let mut family = text.family("rapidbyte_runs_total", Kind::Counter, help);
    for ((pipeline, stream), of_stream) in &runs.by_stream {
        for (result, count) in RESULTS.iter().zip(of_stream.by_result) {
            let [pipeline, stream] = of(pipeline, stream);
            family.add(&[pipeline, stream, ("result", result)], count);
        }
    }
    let help = "Rows that runs committed since the server started.";
    let mut family = text.family("rapidbyte_committed_rows_total", Kind::Counter, help);
    for ((pipeline, stream), of_stream) in &runs.by_stream {
        family.add(&of(pipeline, stream), of_stream.rows);
    }
    let help = "Time from when a run gets jobs to their commit, or to its failure.";
    let name = "rapidbyte_run_duration_seconds";
    text.family(name, Kind::Histogram, help)
        .add_histogram(&[], &runs.seconds);
}

fn of_pipelines(text: &mut Text, shared: &Shared) {
    let streams = shared.notice.as_ref().map(|notice| notice.streams());
    let help = "Failures of a stream one after the other; 0 after a success.";
    let name = "rapidbyte_stream_consecutive_failures";
    let mut family = text.family(name, Kind::Gauge, help);
    let streams = streams.unwrap_or_default();
    for ((pipeline, stream), standing) in streams.iter().take(super::MAX_STREAMS) {
        family.add(&of(pipeline, stream), standing.failures);
    }
    let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
    let all = all.unwrap_or_default();
    let known = all.known.values();
    let with_problem = known.filter(|known| known.problem.is_some()).count();
    for (name, help, value) in [
        (
            "rapidbyte_pipelines",
            "Pipelines of the server.",
            all.known.len(),
        ),
        (
            "rapidbyte_pipelines_with_problem",
            "Pipelines that run as they were, because their file is wrong now.",
            with_problem,
        ),
        (
            "rapidbyte_pipeline_files_broken",
            "Pipeline files that no pipeline comes from.",
            all.broken.len(),
        ),
    ] {
        text.gauge(name, help, value);
    }
}

fn of<'a>(pipeline: &'a str, stream: &'a str) -> [(&'static str, &'a str); 2] {
    [("pipeline", pipeline), ("stream", stream)]
}
