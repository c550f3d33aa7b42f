//! Every test has times of its own.

use std::collections::BTreeSet;
use std::path::Path;

use chrono::NaiveDate;
use rapidbyte::{Environment, Pipeline};

use super::*;

const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";

fn table(pipeline: &str, schedule: &str) -> Timetable {
    let text = format!(
        "version: 1\npipeline: {pipeline}\nsource: {{ use: a, streams: [s] }}\n\
         destination: {{ use: b }}\nschedule: {{ {schedule} }}\n"
    );
    let environment = Environment::from_fn(|_| None).without_env_file();
    let read = Pipeline::from_str(&text, Path::new("/"), &environment).expect("a pipeline");
    Timetable::new(pipeline, read.schedule().expect("a schedule"))
}

fn cron(cron: &str, zone: &str) -> Timetable {
    table("p", &format!("cron: '{cron}', timezone: {zone}"))
}

/// Milliseconds of a time in UTC, such as `2026-03-29T01:30:00`.
fn utc(text: &str) -> i64 {
    let read = format!("{text}Z").parse::<DateTime<Utc>>();
    read.expect("a time").timestamp_millis()
}

fn shown(ms: i64) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(ms).expect("a time");
    time.format("%FT%T").to_string()
}

/// All fires behind `from` up to `until`.
fn fires(table: &Timetable, from: i64, until: i64) -> Vec<i64> {
    let next = |fire: &i64| table.next(*fire).filter(|next| *next <= until);
    std::iter::successors(next(&from), next).collect()
}

fn shown_fires(table: &Timetable, from: &str, until: &str) -> Vec<String> {
    let all = fires(table, utc(from) - 1, utc(until));
    all.into_iter().map(shown).collect()
}

fn at(due: &Due) -> Vec<i64> {
    due.fires.iter().map(|fire| fire.at_ms).collect()
}

#[test]
fn a_time_that_does_not_exist_fires_once_at_the_end_of_the_gap() {
    // 02:00 to 03:00 does not exist in Berlin on 29 March 2026, nor in New York on 8 March.
    let (from, until) = ("2026-03-28T12:00:00", "2026-03-30T12:00:00");
    assert_eq!(
        shown_fires(&cron("30 2 * * *", BERLIN), from, until),
        ["2026-03-29T01:00:00", "2026-03-30T00:30:00"]
    );
    assert_eq!(
        shown_fires(&cron("0,30 2,3 * * *", BERLIN), from, "2026-03-29T12:00:00"),
        ["2026-03-29T01:00:00", "2026-03-29T01:30:00"]
    );
    let (from, until) = ("2026-03-07T12:00:00", "2026-03-09T12:00:00");
    assert_eq!(
        shown_fires(&cron("30 2 * * *", NEW_YORK), from, until),
        ["2026-03-08T07:00:00", "2026-03-09T06:30:00"]
    );
}

#[test]
fn a_time_that_exists_twice_fires_the_first_time_alone() {
    let (from, until) = ("2026-10-24T12:00:00", "2026-10-26T12:00:00");
    assert_eq!(
        shown_fires(&cron("30 2 * * *", BERLIN), from, until),
        ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]
    );
    assert_eq!(
        shown_fires(&cron("0 2,14 * * *", BERLIN), from, "2026-10-25T20:00:00"),
        [
            "2026-10-24T12:00:00",
            "2026-10-25T00:00:00",
            "2026-10-25T13:00:00"
        ]
    );
    let (from, until) = ("2026-10-31T12:00:00", "2026-11-02T12:00:00");
    assert_eq!(
        shown_fires(&cron("30 1 * * *", NEW_YORK), from, until),
        ["2026-11-01T05:30:00", "2026-11-02T06:30:00"]
    );
}

#[test]
fn every_quarter_of_an_hour_has_no_pause_on_days_that_change_the_clock() {
    for (zone, from) in [
        (BERLIN, "2026-03-28T20:00:00"),
        (BERLIN, "2026-10-24T20:00:00"),
        (NEW_YORK, "2026-03-08T00:00:00"),
        (NEW_YORK, "2026-11-01T00:00:00"),
    ] {
        let from = utc(from);
        let all = fires(&cron("*/15 * * * *", zone), from, from + DAY_MS);
        let expected: Vec<i64> = (1..=96)
            .map(|count| from + count * 15 * MINUTE_MS)
            .collect();
        assert_eq!(all, expected, "{zone} {}", shown(from));
    }
}

/// The fires by looking at each minute.
fn looked(table: &Timetable, from: i64, until: i64) -> Vec<i64> {
    let matches = |wall: NaiveDateTime| {
        table
            .cron
            .is_time_matching(&wall.and_utc())
            .expect("it is known")
    };
    let wall = |ms: i64| {
        let time = DateTime::<Utc>::from_timestamp_millis(ms).expect("a time");
        time.with_timezone(&table.zone).naive_local()
    };
    let (mut all, mut seen) = (BTreeSet::new(), BTreeSet::new());
    // A day before, for times that are repeated.
    let mut last = wall(from - DAY_MS);
    for minute in (from - DAY_MS..=until).step_by(MINUTE_MS as usize) {
        let now = wall(minute);
        if table.is_every_hour {
            if matches(now) {
                all.insert(minute);
            }
            continue;
        }
        // The times that the clock did not show, and the time that it shows.
        let mut shown = last;
        while shown < now {
            shown += TimeDelta::minutes(1);
            if seen.insert(shown) && matches(shown) {
                all.insert(minute);
            }
        }
        last = now;
    }
    all.retain(|fire| *fire > from);
    all.into_iter().collect()
}

#[test]
fn the_fires_are_the_same_from_wherever_the_search_begins() {
    let crons = [
        "30 2 * * *",
        "0,20,40 1-3 * * *",
        "*/7 * * * *",
        "59 * * * *",
        "0 */2 * * *",
        "15 0 * * *",
        "* 2 * * *",
        "0 0 29 3 *",
    ];
    let days = [
        (BERLIN, "2026-03-28T22:00:00"),
        (BERLIN, "2026-10-24T20:00:00"),
        (NEW_YORK, "2026-03-08T02:00:00"),
        (NEW_YORK, "2026-11-01T02:00:00"),
        // Half an hour, and a gap at midnight.
        ("Australia/Lord_Howe", "2026-10-03T12:00:00"),
        ("Australia/Lord_Howe", "2026-04-04T12:00:00"),
        ("Africa/Cairo", "2026-04-23T18:00:00"),
        // A whole day.
        ("Pacific/Apia", "2011-12-30T06:00:00"),
        ("UTC", "2026-03-28T22:00:00"),
    ];
    for (zone, from) in days {
        let (from, until) = (utc(from), utc(from) + 12 * HOUR_MS);
        for text in crons {
            let table = cron(text, zone);
            let expected = looked(&table, from, until);
            assert_eq!(fires(&table, from, until), expected, "{text} {zone}");
            for start in (from..until).step_by(MINUTE_MS as usize) {
                let next = table.next(start).filter(|next| *next <= until);
                let after = expected.iter().copied().find(|fire| *fire > start);
                assert_eq!(next, after, "{text} {zone} after {}", shown(start));
            }
        }
    }
}

#[test]
fn the_days_of_month_and_week_are_either() {
    let day = |text: &str| {
        let date: NaiveDate = text.parse().expect("a day");
        date.and_hms_opt(0, 0, 0)
            .expect("midnight")
            .and_utc()
            .timestamp_millis()
    };
    let table = cron("0 0 13 * FRI", "UTC");
    let all = fires(&table, day("2026-03-01"), day("2026-04-14"));
    let expected = [
        "2026-03-06",
        "2026-03-13",
        "2026-03-20",
        "2026-03-27",
        "2026-04-03",
        "2026-04-10",
        "2026-04-13",
    ];
    assert_eq!(all, expected.map(day));
}

#[test]
fn a_restart_catches_up_as_the_schedule_says() {
    // Down from 10:00:30 to 12:02:10.
    let (position, now) = (utc("2026-05-01T10:00:00"), utc("2026-05-01T12:02:10"));
    let hourly = |catchup: &str| table("p", &format!("cron: '0 * * * *', catchup: {catchup}"));
    let due = |catchup: &str| hourly(catchup).due(position, now, now);
    let (eleven, twelve) = (utc("2026-05-01T11:00:00"), utc("2026-05-01T12:00:00"));
    let missed = |at_ms| Fire {
        at_ms,
        was_missed: true,
    };
    assert_eq!(
        due("none"),
        Due {
            fires: vec![],
            position_ms: twelve
        }
    );
    assert_eq!(
        due("one"),
        Due {
            fires: vec![missed(twelve)],
            position_ms: twelve
        }
    );
    let all = vec![missed(eleven), missed(twelve)];
    assert_eq!(
        due("all"),
        Due {
            fires: all,
            position_ms: twelve
        }
    );
    // Without a fire in between the position stays.
    let none = hourly("all").due(twelve, now, now);
    assert_eq!(
        none,
        Due {
            fires: vec![],
            position_ms: twelve
        }
    );
}

#[test]
fn one_run_for_missed_times_does_not_swallow_the_fire_of_this_moment() {
    let table = table("p", "cron: '* * * * *', catchup: one");
    let noon = utc("2026-05-01T12:00:00");
    // The last tick was 40 seconds ago: the fire of 12:00 is not missed, all before are.
    let due = table.due(noon - HOUR_MS, noon - 39_000, noon + 1_000);
    assert_eq!(
        due.fires,
        [
            Fire {
                at_ms: noon - MINUTE_MS,
                was_missed: true
            },
            Fire {
                at_ms: noon,
                was_missed: false
            },
        ]
    );
}

#[test]
fn a_server_that_ticks_begins_each_fire_once_whatever_catchup_says() {
    for catchup in ["none", "one", "all"] {
        let table = table(
            "p",
            &format!("cron: '*/5 * * * *', jitter_seconds: 700, catchup: {catchup}"),
        );
        let begin = utc("2026-05-01T12:00:00");
        let (mut position, mut seen, mut begun) = (begin, begin, Vec::new());
        for now in (begin..begin + 3 * HOUR_MS).step_by(29_000) {
            let due = table.due(position, seen, now);
            assert!(due.fires.iter().all(|fire| !fire.was_missed), "{catchup}");
            // Not before its jitter, and not later than the look after it.
            let mut begins = due.fires.iter().map(|fire| table.begins(fire.at_ms));
            assert!(begins.all(|begins| begins <= now), "{catchup}");
            assert!(
                table
                    .wakes(due.position_ms)
                    .is_some_and(|wakes| wakes > now)
            );
            begun.extend(at(&due));
            // After a restart in the same moment nothing is due again.
            position = due.position_ms;
            assert_eq!(table.due(position, now, now).fires, []);
            seen = now;
        }
        assert_eq!(begun, fires(&table, begin, position), "{catchup}");
        assert!(begun.len() > 30, "{}", begun.len());
    }
}

#[test]
fn all_is_a_thousand_and_work_does_not_grow_with_the_time() {
    let now = utc("2026-05-01T12:00:30");
    let table = table("p", "cron: '* * * * *', catchup: all");
    // Half a century of minutes.
    let due = table.due(0, now, now);
    assert_eq!(due.fires.len(), MAX_CAUGHT_UP);
    assert_eq!(due.position_ms, utc("2026-05-01T12:00:00"));
    assert_eq!(due.fires[0].at_ms, due.position_ms - 999 * MINUTE_MS);
    let rare = cron("0 0 29 2 *", "UTC");
    let due = rare.due(utc("2001-01-01T00:00:00"), now, now);
    assert_eq!(at(&due), [utc("2024-02-29T00:00:00")]);
    let all = rare.newest(utc("2001-01-01T00:00:00"), now, MAX_CAUGHT_UP);
    assert_eq!(all.len(), 6);
}

#[test]
fn a_clock_that_jumps_back_fires_nothing_twice() {
    let table = table("p", "cron: '*/10 * * * *', catchup: all");
    let begin = utc("2026-05-01T12:00:00");
    let due = table.due(begin - 1, begin - 1, begin);
    assert_eq!(at(&due), [begin]);
    // An hour back: silence until the clock is where it was.
    let mut begun = Vec::new();
    let (mut position, mut seen) = (due.position_ms, begin);
    for now in (begin - HOUR_MS..=begin + HOUR_MS).step_by(30_000) {
        let due = table.due(position, seen, now);
        begun.extend(at(&due));
        (position, seen) = (due.position_ms, now);
    }
    assert_eq!(begun, fires(&table, begin, begin + HOUR_MS));
}

#[test]
fn a_clock_that_was_years_ahead_does_not_silence_the_schedule() {
    let table = table("p", "cron: '0 * * * *', catchup: one");
    let now = utc("2026-05-01T12:30:00");
    let wrong = utc("2099-01-01T00:10:00");
    // The jump ahead is one missed time and not 72 years of them.
    let ahead = table.due(now, now, wrong);
    assert_eq!(at(&ahead), [utc("2099-01-01T00:00:00")]);
    let back = table.due(ahead.position_ms, wrong, now);
    assert_eq!(
        back,
        Due {
            fires: vec![],
            position_ms: now
        }
    );
    let next = table.due(back.position_ms, now + 29 * MINUTE_MS, now + 30 * MINUTE_MS);
    assert_eq!(at(&next), [utc("2026-05-01T13:00:00")]);
}

#[test]
fn jitter_is_the_same_after_a_restart_and_differs_between_pipelines() {
    let day = utc("2026-05-01T00:00:00");
    let begins = |pipeline: &str, jitter: u32| {
        let table = table(
            pipeline,
            &format!("cron: '0 * * * *', jitter_seconds: {jitter}"),
        );
        let fires = fires(&table, day, day + DAY_MS);
        let delays = fires.iter().map(|fire| table.begins(*fire) - fire);
        delays.collect::<Vec<i64>>()
    };
    let delays = begins("a", 60);
    assert_eq!(delays, begins("a", 60));
    assert_ne!(delays, begins("b", 60));
    assert!(delays.iter().all(|delay| (0..=60_000).contains(delay)));
    assert!(delays.iter().collect::<BTreeSet<_>>().len() > 20);
    assert_eq!(begins("a", 0), [0; 24]);
    // The first of them: another hash, or another number of bits of it, would move all runs after an update.
    assert_eq!(delays[0], 57_047);
    let table = table("a", "cron: '0 * * * *', jitter_seconds: 60");
    assert_eq!(table.wakes(day), Some(day + HOUR_MS + delays[0]));
}
