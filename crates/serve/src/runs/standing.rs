//! How pipelines are: their last runs, their counts, and how far their schedules are behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use rapidbyte::{Engine, Pipeline};
use serde_json::Value;

use super::store::Filter;
use super::{Run, RunState, Runs, RunsError};
use crate::schedule::Timetable;

/// Pipelines whose runs are counted one by one. Runs of further ones are counted together, with an empty name.
const MAX_COUNTED: usize = 10_000;

/// A pipeline at one moment. Times are milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// The moment.
    pub now_ms: i64,
    /// Its last runs without their reports, the newest first.
    pub last: Vec<Run>,
    /// The end of the last run of the whole pipeline that succeeded.
    pub success_ms: Option<i64>,
    /// The next moment that the schedule names. A run begins up to `schedule.jitter_seconds` later.
    pub next_ms: Option<i64>,
    /// The time since the first run that was due after the last success began. 0 if none was; `None` without a schedule.
    pub lag_ms: Option<i64>,
    pub queued: u64,
    pub running: u64,
}

/// The progress and the last lines of a run at work.
#[derive(Debug, Default)]
pub(crate) struct AtWork {
    pub progress: Option<Value>,
    pub log: Option<Value>,
}

/// The runs that have ended since the server started, by pipeline and state.
#[derive(Default)]
pub(super) struct Ended(Mutex<BTreeMap<(String, &'static str), u64>>);

impl Ended {
    pub(super) fn count(&self, pipeline: &str, state: RunState, runs: u64) {
        if runs == 0 {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pipeline.to_owned(), state.name());
        let most = MAX_COUNTED * RunState::ALL.len();
        let key = match counts.len() < most || counts.contains_key(&key) {
            true => key,
            false => (String::new(), state.name()),
        };
        *counts.entry(key).or_default() += runs;
    }
}

impl Runs {
    /// How these pipelines are, by their names, each with at most `last` runs. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn stand(
        &self,
        pipelines: &[Pipeline],
        last: u32,
    ) -> Result<HashMap<String, Standing>, RunsError> {
        let names = pipelines.iter();
        let names: Vec<String> = names.map(|pipeline| pipeline.name().to_owned()).collect();
        let stored = self.shared.store.stand(names, last)?;
        let now_ms = self.shared.now_ms();
        let each = pipelines.iter().zip(stored).map(|(pipeline, stored)| {
            let name = pipeline.name();
            let table = pipeline
                .schedule()
                .map(|schedule| Timetable::new(name, schedule));
            let lag_ms = table.as_ref().map(|table| {
                // A schedule that the timer has not seen yet is not behind.
                let since_ms = stored.since_ms.unwrap_or(now_ms);
                let begun_ms = stored.success.map(|success| success.started_ms);
                let due_ms = table.wakes(begun_ms.map_or(since_ms, |begun| begun.max(since_ms)));
                due_ms.map_or(0, |due_ms| now_ms.saturating_sub(due_ms).max(0))
            });
            let standing = Standing {
                now_ms,
                last: stored.last,
                success_ms: stored.success.map(|success| success.ended_ms),
                next_ms: table.and_then(|table| table.next(now_ms)),
                lag_ms,
                queued: stored.queued,
                running: stored.running,
            };
            (name.to_owned(), standing)
        });
        Ok(each.collect())
    }

    /// The engine of the runs.
    pub(crate) fn engine(&self) -> Engine {
        self.shared.engine.clone()
    }

    /// The runs that are queued, and those at work.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn active(&self) -> Result<(u64, u64), RunsError> {
        self.shared.store.active().await
    }

    /// The runs that have ended since the server started, by pipeline and state.
    pub(crate) fn ended(&self) -> BTreeMap<(String, &'static str), u64> {
        let counts = self.shared.ended.0.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs without their reports, the newest first.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn list(&self, filter: Filter) -> Result<Vec<Run>, RunsError> {
        self.shared.store.list(filter).await
    }

    /// The progress and the last lines of a run, if it is at work.
    pub(crate) fn at_work(&self, id: i64) -> AtWork {
        let live = self.shared.live(id);
        live.map_or_else(AtWork::default, |live| AtWork {
            progress: live.progress(),
            log: live.last(),
        })
    }
}
