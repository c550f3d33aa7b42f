//! `schedule`: when a server runs a pipeline.

use std::str::FromStr;

use chrono::DateTime;
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::parser::{CronParser, Seconds, Year};
use rapidbyte_wire::counted;
use serde::{Serialize, Serializer};

use super::declare::{Kind, keys, words};
use super::error::Result;
use super::kinds::{name, whole, whole_from, word};
use super::read::{Spot, nearest};

const FIELDS: usize = 5;
const MAX_JITTER: u64 = 3_600;
const MAX_TIMEOUT: u64 = 7 * 86_400;
const EXAMPLE: &str = "cron: \"30 2 * * *\"";
/// Longer expressions are a mistake.
const MAX_CHARS: usize = 256;

keys! {
    /// `schedule`: when `rapidbyte serve` runs the pipeline. No other command uses it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Schedule {
        /// The times of the runs: minute, hour, day of the month, month and day of the week, as in cron.
        ///
        /// If both days are given, one of them has to match.
        pub cron: Cron = cron().required("write the times of the runs, such as cron: \"30 2 * * *\""),
        /// The time zone of these times, such as Europe/Berlin (default UTC).
        pub timezone: Timezone = timezone().or(Timezone(Tz::UTC)),
        /// The runs that a server begins for times that passed while it was down: none, one for all of them
        /// (the default), or all.
        pub catchup: Catchup = word().or(Catchup::One),
        /// Begin each run up to this many seconds later, so that many pipelines do not begin at the same moment
        /// (default 0).
        ///
        /// The delay differs from run to run and follows from the name of the pipeline and the time.
        pub jitter_seconds: u64 = whole_from(0, MAX_JITTER).or(0),
        /// Cancel a run of the schedule after this many seconds (default: no limit).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_seconds: Option<u64> = whole(MAX_TIMEOUT).optional(),
    }
}

words! {
    /// `schedule.catchup`: the runs for times that passed while no server was there to run them.
    pub enum Catchup {
        /// These times are skipped.
        None = "none",
        /// One run.
        #[default]
        One = "one",
        /// One run for each time.
        All = "all",
    }
}

/// Times of the day and days, as cron writes them. At least one day matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    parsed: croner::Cron,
}

impl Cron {
    /// Its five fields, with one space between them.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parsed expression. Its times are times of the clock on the wall, in any time zone.
    pub fn parsed(&self) -> &croner::Cron {
        &self.parsed
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A time zone of the IANA database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timezone(Tz);

impl Timezone {
    /// Its name, such as `Europe/Berlin`.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Its rules.
    pub fn rules(self) -> Tz {
        self.0
    }
}

impl Serialize for Timezone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

fn cron() -> Kind<Cron> {
    name().then(|at, text| {
        let shown = at.text()?.shown();
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != FIELDS || text.len() > MAX_CHARS {
            let fields = counted(fields.len() as u64, "field");
            let error = at.bad_value(format!("{at}: {shown} has {fields}"));
            return Err(error.hint(format!(
                "write five fields: minute, hour, day of the month, month, day of the week, such as {EXAMPLE}"
            )));
        }
        let text = fields.join(" ");
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let Ok(parsed) = parser.parse(&text) else {
            let error = at.bad_value(format!("{at} cannot be {shown}"));
            return Err(error.hint(format!(
                "write numbers, *, ranges such as 1-5, steps such as */15 and lists such as 1,15: {EXAMPLE}"
            )));
        };
        // The search ends after a few thousand years: a date that never comes, such as the 30th of February.
        let matches = parsed.find_next_occurrence(&DateTime::UNIX_EPOCH, true);
        if matches.is_err() {
            let error = at.bad_value(format!("{at}: {shown} matches no day"));
            return Err(error.hint(format!("write a day that exists, such as {EXAMPLE}")));
        }
        Ok(Cron { text, parsed })
    })
}

fn timezone() -> Kind<Timezone> {
    name().then(|at: &Spot<'_>, name: String| {
        if let Ok(zone) = Tz::from_str(&name) {
            return Ok(Timezone(zone));
        }
        let text = at.text()?;
        let error = at.bad_value(format!("{at}: {} is not a time zone", text.shown()));
        let names: Vec<&str> = TZ_VARIANTS.iter().map(|zone| zone.name()).collect();
        Err(match nearest(&name, &names) {
            Some(zone) if !text.secret => error.hint(format!("did you mean {zone:?}?")),
            _ => error.hint("write a name of the IANA database, such as Europe/Berlin or UTC"),
        })
    })
}
