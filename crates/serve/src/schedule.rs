//! The times at which a pipeline is due. Nothing here reads a clock.
//!
//! A *fire* is a moment that `cron` names, in milliseconds since 1970-01-01 UTC. The fires of an expression that names
//! hours follow the clock on the wall: a time that does not exist on a day (spring) fires at the end of the gap, and a time
//! that exists twice (autumn) fires the first time alone. The fires of an expression with every hour, such as
//! `*/15 * * * *`, follow the time that passes: none of its pauses is longer or shorter on these days.

use std::collections::VecDeque;

use chrono::{DateTime, NaiveDateTime, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use rapidbyte::{Catchup, Schedule};
use ring::digest::{SHA256, digest};

/// Fires that are caught up at most: the newest of them.
pub(crate) const MAX_CAUGHT_UP: usize = 1000;
/// A fire that is later than this was missed: the server ticks at least twice in the time.
pub(crate) const MISSED_AFTER_MS: i64 = 60_000;
/// A position that is further ahead comes from a clock that was wrong for long: it would silence the schedule.
const MAX_AHEAD_MS: i64 = 24 * 3_600_000;
/// The longest gap of a clock on the wall: islands have crossed the date line.
const MAX_GAP_MINUTES: i64 = 25 * 60;
/// Times of the wall in a repeated hour, at one a minute, and some more.
const MAX_REPEATED: usize = 24 * 60;
const MINUTE_MS: i64 = 60_000;

/// The fires of one pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Timetable {
    pipeline: String,
    cron: croner::Cron,
    zone: Tz,
    catchup: Catchup,
    jitter_ms: i64,
    is_every_hour: bool,
}

/// A fire that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fire {
    /// The moment that the expression names.
    pub at_ms: i64,
    /// It is caught up: the server did not see its moment.
    pub was_missed: bool,
}

/// The fires that are due, in their order, and the position behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub fires: Vec<Fire>,
    /// The last fire that is settled: begun, or skipped by `catchup`.
    pub position_ms: i64,
}

impl Timetable {
    pub(crate) fn new(pipeline: &str, schedule: &Schedule) -> Self {
        let cron = schedule.cron.parsed().clone();
        let matches = |hour| cron.pattern.hour_match(hour).unwrap_or(false);
        Self {
            pipeline: pipeline.to_owned(),
            zone: schedule.timezone.rules(),
            catchup: schedule.catchup,
            jitter_ms: i64::try_from(schedule.jitter_seconds.saturating_mul(1000)).unwrap_or(0),
            is_every_hour: (0..24).all(matches),
            cron,
        }
    }

    /// The first fire behind a moment. `None` if there is none for thousands of years.
    pub(crate) fn next(&self, after_ms: i64) -> Option<i64> {
        let after = DateTime::<Utc>::from_timestamp_millis(after_ms)?.with_timezone(&self.zone);
        let fire = match self.is_every_hour {
            true => self.cron.find_next_occurrence(&after, false).ok()?,
            false => self.next_on_the_wall(&after)?,
        };
        Some(fire.timestamp_millis()).filter(|fire| *fire > after_ms)
    }

    /// The moment of a fire with its jitter, before which it does not begin.
    fn begins(&self, fire_ms: i64) -> i64 {
        if self.jitter_ms == 0 {
            return fire_ms;
        }
        let name = format!("{}\0{fire_ms}", self.pipeline);
        let hash = digest(&SHA256, name.as_bytes());
        let number = hash.as_ref().iter().take(8);
        let number = number.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let delay = number % (self.jitter_ms.unsigned_abs() + 1);
        fire_ms.saturating_add(i64::try_from(delay).unwrap_or(0))
    }

    /// The moment at which the first fire behind a position begins.
    pub(crate) fn wakes(&self, position_ms: i64) -> Option<i64> {
        self.next(position_ms).map(|fire| self.begins(fire))
    }

    /// The fires that are due at `now_ms`. `seen_ms` is the moment of the server's tick before; a server that starts has
    /// seen nothing before now.
    pub(crate) fn due(&self, position_ms: i64, seen_ms: i64, now_ms: i64) -> Due {
        if position_ms > now_ms.saturating_add(MAX_AHEAD_MS) {
            return Due {
                fires: Vec::new(),
                position_ms: now_ms,
            };
        }
        let until = self.last_due(position_ms, now_ms);
        let fires = self.newest(position_ms, until, MAX_CAUGHT_UP);
        let position_ms = fires.back().copied().unwrap_or(position_ms);
        let seen_ms = seen_ms.max(now_ms.saturating_sub(MISSED_AFTER_MS));
        // A fire begins behind the fires before it.
        let mut begins = i64::MIN;
        let fires = fires.into_iter().map(|at_ms| {
            begins = begins.max(self.begins(at_ms));
            Fire {
                at_ms,
                was_missed: begins <= seen_ms,
            }
        });
        let mut fires: Vec<Fire> = fires.collect();
        match self.catchup {
            Catchup::None => fires.retain(|fire| !fire.was_missed),
            Catchup::One => {
                let missed = fires.iter().filter(|fire| fire.was_missed).count();
                fires.drain(..missed.saturating_sub(1));
            }
            Catchup::All => {}
        }
        Due { fires, position_ms }
    }

    /// A moment with all due fires before it, and no other. Fires begin in their order, whatever their jitter.
    fn last_due(&self, position_ms: i64, now_ms: i64) -> i64 {
        // At most a fire a minute, for the hour of the longest jitter.
        let mut fire = position_ms.max(now_ms.saturating_sub(self.jitter_ms));
        while let Some(next) = self.next(fire).filter(|next| *next <= now_ms) {
            if self.begins(next) > now_ms {
                return next - 1;
            }
            fire = next;
        }
        now_ms
    }

    /// The last fires behind `after_ms` up to `until_ms`, at most `most`. The work does not grow with the time between.
    fn newest(&self, after_ms: i64, until_ms: i64, most: usize) -> VecDeque<i64> {
        let mut span = i64::try_from(most).unwrap_or(i64::MAX) * MINUTE_MS;
        loop {
            let from = until_ms.saturating_sub(span).max(after_ms);
            let mut fires = VecDeque::new();
            let mut fire = from;
            while let Some(next) = self.next(fire).filter(|next| *next <= until_ms) {
                if fires.len() == most {
                    fires.pop_front();
                }
                fires.push_back(next);
                fire = next;
            }
            if from <= after_ms || fires.len() == most {
                return fires;
            }
            span = span.saturating_mul(2);
        }
    }

    fn next_on_the_wall(&self, after: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        // The calendar of the wall, as if its zone never changed its clocks.
        let mut wall = after.naive_local().and_utc();
        for _ in 0..MAX_REPEATED {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            let moment = self.moment(wall.naive_utc())?;
            if moment > *after {
                return Some(moment);
            }
            // The clock shows this time for the second time.
        }
        None
    }

    /// The first moment at which the clock on the wall shows a time, or the end of the gap that has it.
    fn moment(&self, wall: NaiveDateTime) -> Option<DateTime<Tz>> {
        let shown = |minutes| {
            let wall = wall.checked_add_signed(TimeDelta::minutes(minutes))?;
            self.zone.from_local_datetime(&wall).earliest()
        };
        (0..=MAX_GAP_MINUTES).find_map(shown)
    }
}

#[cfg(test)]
mod tests;
