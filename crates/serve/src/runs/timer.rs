//! The thread that knows when pipelines are due, and when a run has taken too long.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rapidbyte::{Catchup, Pipeline, WhenRunning};
use serde_json::json;

use super::store::NewFire;
use super::{EndedBy, RunState, RunsError, Shared};
use crate::queue;
use crate::schedule::{Fire, Timetable};

/// The longest sleep: a clock that jumps is noticed then.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// The schedule of a pipeline, as the timer knows it.
struct Known {
    /// The expression and its time zone.
    cron: String,
    position_ms: i64,
}

/// The schedules of all pipelines.
struct Schedules {
    /// By the names of pipelines. `None`: it has no schedule, and the store knows none.
    known: HashMap<String, Option<Known>>,
    /// The moment of the last look.
    seen_ms: i64,
}

impl Shared {
    /// Records the runs that are due, until the end.
    pub(super) fn keep_time(&self) {
        let mut schedules = Schedules {
            known: HashMap::new(),
            seen_ms: self.now_ms(),
        };
        loop {
            let (now_ms, began) = (self.now_ms(), Instant::now());
            // The pipelines are not of this module: schedules go on without one that panics.
            let looked = catch_unwind(AssertUnwindSafe(|| schedules.look(self, now_ms)));
            let wakes_ms = looked.unwrap_or_else(|_| {
                let text = "the thread of the schedules panicked: the server has a bug";
                self.warn(text, "internal", json!({}));
                None
            });
            let deadline = self.cancel_late();
            let mut sleep = MAX_SLEEP;
            if let Some(wakes_ms) = wakes_ms {
                let rest = wakes_ms.saturating_sub(now_ms).max(0).unsigned_abs();
                sleep = sleep.min(Duration::from_millis(rest).saturating_sub(began.elapsed()));
            }
            if let Some(deadline) = deadline {
                sleep = sleep.min(deadline.saturating_duration_since(Instant::now()));
            }
            let agenda = self.agenda();
            let is_idle =
                |agenda: &mut super::Agenda| !agenda.ends && !agenda.drains && !agenda.is_changed;
            let waited = self.timer.wait_timeout_while(agenda, sleep, is_idle);
            let (mut agenda, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if agenda.ends {
                return;
            }
            if agenda.drains {
                // The runs at work keep their deadlines.
                let waited = self
                    .timer
                    .wait_timeout_while(agenda, sleep, |agenda| !agenda.ends);
                if waited.unwrap_or_else(PoisonError::into_inner).0.ends {
                    return;
                }
                continue;
            }
            agenda.is_changed = false;
        }
    }

    /// Cancels the runs that have taken too long. Returns the next deadline.
    fn cancel_late(&self) -> Option<Instant> {
        let now = Instant::now();
        let agenda = self.agenda();
        let deadlines = agenda.active.iter();
        let deadlines = deadlines.filter_map(|(id, active)| Some((*id, active.deadline?)));
        let deadlines: Vec<(i64, Instant)> = deadlines.collect();
        drop(agenda);
        for (id, deadline) in &deadlines {
            if *deadline <= now {
                self.cancel_active(*id, EndedBy::Timeout);
            }
        }
        let later = deadlines
            .into_iter()
            .filter(|(_, deadline)| *deadline > now);
        later.map(|(_, deadline)| deadline).min()
    }
}

impl Schedules {
    /// Records what is due. Returns the moment at which the next pipeline is.
    fn look(&mut self, shared: &Shared, now_ms: i64) -> Option<i64> {
        let mut wakes_ms: Option<i64> = None;
        let names: HashSet<String> = shared.pipelines.names().into_iter().collect();
        self.known.retain(|name, _| names.contains(name));
        for name in names {
            // The queue begins its runs itself.
            let pipeline = shared.pipelines.pipeline(&name);
            let Some(pipeline) = pipeline.filter(|one| one.source() != queue::NAME) else {
                continue;
            };
            match self.look_at(shared, &pipeline, now_ms) {
                Ok(next) => wakes_ms = wakes_ms.into_iter().chain(next).min(),
                // Nothing of the look is stored: the next look finds the same.
                Err(error) => shared.tell(&format!("the schedule of {name}"), &error),
            }
        }
        self.seen_ms = now_ms;
        wakes_ms
    }

    fn look_at(
        &mut self,
        shared: &Shared,
        pipeline: &Pipeline,
        now_ms: i64,
    ) -> Result<Option<i64>, RunsError> {
        let name = pipeline.name();
        let Some(schedule) = pipeline.schedule() else {
            if !matches!(self.known.get(name), Some(None)) {
                shared.store.forget_position(name)?;
                self.known.insert(name.to_owned(), None);
            }
            return Ok(None);
        };
        let table = Timetable::new(name, schedule);
        let cron = format!("{} {}", schedule.cron.text(), schedule.timezone.name());
        let known = self.known.get(name).and_then(Option::as_ref);
        let position_ms = match known.filter(|known| known.cron == cron) {
            Some(known) => known.position_ms,
            None => shared.store.position(name, &cron, now_ms)?,
        };
        let due = table.due(position_ms, self.seen_ms, now_ms);
        if due.position_ms != position_ms {
            // What is caught up has its turn, and what is due now behind it.
            let has_missed = due.fires.iter().any(|fire| fire.was_missed);
            let waits = has_missed && schedule.catchup == Catchup::All;
            let fire = |fire: &Fire| NewFire {
                at_ms: fire.at_ms,
                waits,
            };
            let fires = due.fires.iter().map(fire).collect();
            let rule: WhenRunning = pipeline.when_running();
            let place = (&*cron, due.position_ms);
            let recorded = shared.store.record(name, place, fires, rule, now_ms)?;
            let skipped = recorded.skipped as u64;
            shared.ended.count(name, RunState::Skipped, skipped);
            shared.replace(recorded.replaces);
            shared.queued();
        }
        let position_ms = due.position_ms;
        self.known
            .insert(name.to_owned(), Some(Known { cron, position_ms }));
        Ok(table.wakes(position_ms))
    }
}
