//! The samples of runs whose pipelines do not read the queue.

use std::collections::BTreeMap;

use rapidbyte::Pipeline;
use tokio::task::spawn_blocking;

use super::MAX_STREAMS;
use super::text::{Kind, Text};
use crate::ingest::Shared;
use crate::runs::Standing;

/// A figure of a pipeline.
type Figure = fn(&Standing) -> Option<f64>;

/// The figures, with their names and what they tell.
const FIGURES: [(&str, &str, Figure); 5] = [
    (
        "rapidbyte_runs_queued",
        "Runs of a pipeline that wait.",
        |standing| Some(standing.queued as f64),
    ),
    (
        "rapidbyte_runs_running",
        "Runs of a pipeline at work.",
        |standing| Some(standing.running as f64),
    ),
    (
        "rapidbyte_runs_last_success_timestamp_seconds",
        "When the last run of the whole pipeline that succeeded ended, in seconds since 1970-01-01. No sample before the first one.",
        |standing| standing.success_ms.map(seconds),
    ),
    (
        "rapidbyte_schedule_next_run_seconds",
        "Seconds until the next moment of the schedule. A pipeline without a schedule has no sample.",
        |standing| {
            Some(seconds(
                standing.next_ms?.saturating_sub(standing.now_ms).max(0),
            ))
        },
    ),
    (
        "rapidbyte_schedule_lag_seconds",
        "Seconds since the first run that was due after the last success began; 0 if none was. A pipeline without a schedule has no sample.",
        |standing| standing.lag_ms.map(seconds),
    ),
];

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1e3
}

/// Adds them. Each pipeline costs a few steps into indexes.
pub(super) async fn of_pipelines(text: &mut Text, shared: &Shared) {
    let Some(runs) = shared.runs.clone() else {
        return;
    };
    let all = shared.pipelines.as_ref().map(|pipelines| pipelines.all());
    let all = all.unwrap_or_default();
    let others = all.known.values().filter(|known| !known.reads_queue());
    let others = others.take(MAX_STREAMS);
    let others: Vec<Pipeline> = others.map(|known| known.pipeline.clone()).collect();
    let ended = runs.ended();
    let standings = spawn_blocking(move || runs.stand(&others, 0).ok()).await;
    let standings = standings.ok().flatten();
    text.gauge(
        "rapidbyte_runs_store_up",
        "Whether the store of runs answers (1) or not (0).",
        u8::from(standings.is_some()),
    );
    let help = "Runs of pipelines with other sources than the queue, by the state in which they ended, since the server started.";
    let mut family = text.family("rapidbyte_runs_ended_total", Kind::Counter, help);
    for ((pipeline, state), count) in &ended {
        family.add(&[("pipeline", pipeline), ("state", state)], count);
    }
    let standings: BTreeMap<String, Standing> = standings.unwrap_or_default().into_iter().collect();
    for (name, help, figure) in FIGURES {
        let mut family = text.family(name, Kind::Gauge, help);
        for (pipeline, standing) in &standings {
            if let Some(value) = figure(standing) {
                family.add(&[("pipeline", pipeline)], value);
            }
        }
    }
}
