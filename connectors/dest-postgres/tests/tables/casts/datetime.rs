//! Dates, times and intervals.

use super::{CLOCK, Case};

pub(super) const CASES: &[Case] = &[
    Case {
        sql: "date",
        accepted: &[
            "2020-01-01",
            "2020/01/02",
            "20200102",
            "2020-01-01 00:00:00",
            "0044-03-15 BC",
            "infinity",
            "2020-1-2",
            "5874897-12-31",
            "2020-02-29",
        ],
        refused: &[
            "now",
            "today",
            "2020-01-01 10:00:00",
            "2021-02-29",
            "epoch",
            "J2451187",
            "1/8/1999",
            "January 8, 1999",
            "99-01-08",
            "2020-01-01 00:00:00+05",
            "2020.123",
            "-infinityx",
            "-4712-01-01",
            "+12345-01-01",
            "0000-01-01",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "time",
        accepted: &[
            "12:00",
            "10:00:00",
            "10:00:00.123456",
            "10:00:00.1234560",
            "04:05 PM",
            "24:00:00",
            "12:00 AM",
        ],
        refused: &[
            "10:00:00+05",
            "10:00:00.1234567",
            "now",
            "2020-01-01 10:00:00",
            "10:00 UTC",
            "23:59:60",
            "allballs",
            "25:00",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "time(1)",
        accepted: &["12:00", "10:00:00.5"],
        refused: &["10:00:00.55"],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timetz",
        accepted: &[
            "12:00+05",
            "10:00:00-03:30",
            "10:00:00.123456Z",
            "10:00:00",
            "04:05 PM +01",
            "10:00:00+05:30:15",
        ],
        refused: &[
            "10:00:00.1234567Z",
            "10:00:00 Europe/Berlin",
            "now",
            "2020-01-01 10:00:00+05",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamp",
        accepted: &[
            "2020-01-01 10:00",
            "2020-01-01",
            "2020-01-01T10:00:00.123456",
            "0044-03-15 10:00:00 BC",
            "-infinity",
            "20200101 10:00:00",
            "2020-01-01 24:00:00",
        ],
        refused: &[
            "2020-01-01 00:00:00+05",
            "2020-01-01T00:00:00Z",
            "2020-01-01 00:00:00.1234567",
            "now",
            "yesterday",
            "2020-01-01 00:00:00 UTC",
            "epoch",
            "2020-01-01 10",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamp(0)",
        accepted: &["2020-01-01 10:00:00.0"],
        refused: &["2020-01-01 10:00:00.5"],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamptz",
        accepted: &[
            "2020-01-01 00:00:00+05",
            "2020-01-01T00:00:00Z",
            "2020-01-01 10:00:00.5-03:30",
            "2020-01-01 10:00:00",
            "2020-01-01",
            "infinity",
            "2020-01-01 10:00:00 UTC",
            "0044-03-15 10:00:00+00 BC",
        ],
        refused: &[
            "2020-01-01 00:00:00.1234567Z",
            "now",
            "tomorrow",
            "2020-01-01 00:00:00 PST",
            "2020-01-01 00:00:00 Europe/Berlin",
            "2020-01-01 00:00:60Z",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "interval",
        accepted: &[
            "1 day",
            "1 mon 2 days 03:04:05.678901",
            "P1Y2M3DT4H5M6.5S",
            "-1 year",
            "2 weeks",
            "1 hour 30 minutes",
            "1 day ago",
            "@ 1 minute",
            "00:00:00",
            "-00:00:01",
            "1.5 seconds",
            "3 decades",
            "PT36H",
        ],
        refused: &[
            "0.0000001 s",
            "1.5 years",
            "00:00:00.1234567",
            "0.00000011 hours",
            "1 day 1 day",
            "P0.5M",
            "x",
            "",
            "1.1 days",
        ],
        pieces: &[
            "1", "0", " ", "day", "s", "years", "mon", "-", "+", ":", ".", "5", "ago", "P", "T",
            "H", "M", "week", "hours", "@", "00", "min",
        ],
        says: interval,
    },
];

/// Days since 2000-01-01 in the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let lengths = [
        31,
        if leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    if !(1..=12).contains(&month) || !(1..=lengths[month as usize - 1]).contains(&day) {
        return None;
    }
    let before = year - 1;
    let in_years =
        before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let in_months: i64 = lengths[..month as usize - 1].iter().sum();
    Some(in_years + in_months + day)
}

/// A day and a time of day as a text says them.
#[derive(Debug, PartialEq)]
struct Moment {
    /// A word that stands for no moment.
    word: Option<String>,
    day: Option<i64>,
    /// Nanoseconds of a day; finer digits must be zeros.
    nanos: Option<i64>,
    /// Seconds east of UTC.
    offset: Option<i64>,
}

fn moment(text: &str) -> Option<Moment> {
    let upper = text.trim().to_ascii_uppercase();
    let mut rest = upper.as_str();
    let unsigned = rest.strip_prefix('+').unwrap_or(rest);
    if matches!(unsigned, "INFINITY" | "-INFINITY") {
        let word = Some(unsigned.to_owned());
        return Some(Moment {
            word,
            day: None,
            nanos: None,
            offset: None,
        });
    }
    let mut is_bc = false;
    for (era, bc) in [("BC", true), ("AD", false)] {
        if let Some(before) = rest.strip_suffix(era) {
            (rest, is_bc) = (before.trim_end(), bc);
            break;
        }
    }
    let mut day = None;
    let date_end = rest.find(['T', ' ']).unwrap_or(rest.len());
    if !rest[..date_end].contains(':') {
        let date = rest[..date_end].replace('/', "-");
        let parts: Vec<String> = match date.split('-').map(str::to_owned).collect::<Vec<_>>() {
            whole
                if whole.len() == 1
                    && date.len() == 8
                    && date.bytes().all(|b| b.is_ascii_digit()) =>
            {
                vec![date[..4].into(), date[4..6].into(), date[6..].into()]
            }
            parts => parts,
        };
        let [year, month, of_month] = parts.try_into().ok()?;
        let year: i64 = year.parse().ok()?;
        let year = if is_bc { 1 - year } else { year };
        day = Some(days(year, month.parse().ok()?, of_month.parse().ok()?)?);
        rest = rest[date_end..].trim_start_matches(['T', ' ']);
    } else if is_bc {
        return None;
    }
    let (mut nanos, mut offset) = (None, None);
    if !rest.is_empty() {
        for zone in ["UTC", "GMT", "Z"] {
            if let Some(before) = rest.strip_suffix(zone) {
                (rest, offset) = (before.trim_end(), Some(0));
                break;
            }
        }
        if let Some(at) = rest.rfind(['+', '-']) {
            if offset.is_some() {
                return None;
            }
            offset = Some(zone_seconds(&rest[at..])?);
            rest = rest[..at].trim_end();
        }
        let mut noon = None;
        for (half, is_afternoon) in [("AM", false), ("PM", true)] {
            if let Some(before) = rest.strip_suffix(half) {
                (rest, noon) = (before.trim_end(), Some(is_afternoon));
                break;
            }
        }
        let mut parts = rest.split(':');
        let mut hour: i64 = parts.next()?.parse().ok()?;
        let minute: i64 = parts.next()?.parse().ok()?;
        let (second, fraction) = parts
            .next()
            .map_or(("0", ""), |s| s.split_once('.').unwrap_or((s, "")));
        if parts.next().is_some() || minute > 59 || fraction.len() > 9 {
            return None;
        }
        let second: i64 = second.parse().ok()?;
        let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
        if let Some(is_afternoon) = noon {
            hour = hour % 12 + if is_afternoon { 12 } else { 0 };
        }
        if second > 59 || hour > 24 {
            return None;
        }
        nanos = Some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction);
    }
    Some(Moment {
        word: None,
        day,
        nanos,
        offset,
    })
}

fn zone_seconds(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text[1..].chars().filter(|&c| c != ':').collect();
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 6 {
        return None;
    }
    let digits = if digits.len() % 2 == 1 {
        format!("0{digits}")
    } else {
        digits
    };
    let part = |n: usize| {
        digits
            .get(n * 2..n * 2 + 2)
            .map_or(Some(0), |s| s.parse::<i64>().ok())
    };
    Some(sign * (part(0)? * 3600 + part(1)? * 60 + part(2)?))
}

/// The same instant, or the same day, or the same time of day and offset. Without an offset a text
/// means UTC, as the session's time zone is.
pub(super) fn moment_equal(text: &str, stored: &str) -> bool {
    let (Some(said), Some(held)) = (moment(text), moment(stored)) else {
        return false;
    };
    if said.word.is_some() || held.word.is_some() {
        return said == held;
    }
    match (said.day, held.day) {
        (Some(day), Some(held_day)) => {
            if held.offset.is_none() && said.offset.is_some() {
                return false;
            }
            let instant = |day: i64, m: &Moment| {
                let nanos = i128::from(m.nanos.unwrap_or(0))
                    - i128::from(m.offset.unwrap_or(0)) * 1_000_000_000;
                i128::from(day) * 86_400_000_000_000 + nanos
            };
            instant(day, &said) == instant(held_day, &held)
        }
        (None, None) => {
            said.nanos.is_some()
                && said.nanos == held.nanos
                && match held.offset {
                    Some(offset) => said.offset.unwrap_or(0) == offset,
                    None => said.offset.is_none(),
                }
        }
        _ => false,
    }
}

/// Months, days and nanoseconds of a span.
fn span(text: &str) -> Option<(i64, i64, i128)> {
    let lower = text.trim().to_ascii_lowercase();
    let (mut months, mut days, mut nanos) = (0_i64, 0_i64, 0_i128);
    let fine = |number: &str, unit: i128| -> Option<i128> {
        let (sign, number) = match number.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if part.len() > 9 || whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let part: i128 = format!("{part:0<9}").parse().ok()?;
        Some(sign * (whole.parse::<i128>().ok()? * unit + part * unit / 1_000_000_000))
    };
    const SECOND: i128 = 1_000_000_000;
    if let Some(rest) = lower.strip_prefix('p').or_else(|| lower.strip_prefix("+p")) {
        let (date, time) = rest.split_once('t').unwrap_or((rest, ""));
        for (part, is_time) in [(date, false), (time, true)] {
            let mut number = String::new();
            for c in part.chars() {
                if c.is_ascii_digit() || "+-.".contains(c) {
                    number.push(c);
                    continue;
                }
                match (c, is_time) {
                    ('y', false) => months += number.parse::<i64>().ok()? * 12,
                    ('m', false) => months += number.parse::<i64>().ok()?,
                    ('w', false) => days += number.parse::<i64>().ok()? * 7,
                    ('d', false) => days += number.parse::<i64>().ok()?,
                    ('h', true) => nanos += fine(&number, 3600 * SECOND)?,
                    ('m', true) => nanos += fine(&number, 60 * SECOND)?,
                    ('s', true) => nanos += fine(&number, SECOND)?,
                    _ => return None,
                }
                number.clear();
            }
            if !number.is_empty() {
                return None;
            }
        }
        return Some((months, days, nanos));
    }
    let mut rest = lower.strip_prefix('@').unwrap_or(&lower).trim();
    let mut sign = 1;
    if let Some(before) = rest.strip_suffix("ago") {
        (rest, sign) = (before.trim_end(), -1);
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || "+-.:".contains(c)))
            .unwrap_or(rest.len());
        let number = &rest[..end];
        rest = rest[end..].trim_start();
        if number.contains(':') {
            let (clock_sign, clock) = match number.strip_prefix('-') {
                Some(clock) => (-1, clock),
                None => (1, number.strip_prefix('+').unwrap_or(number)),
            };
            let mut parts = clock.split(':');
            let hours = fine(parts.next()?, 3600 * SECOND)?;
            let minutes = fine(parts.next()?, 60 * SECOND)?;
            let seconds = parts.next().map_or(Some(0), |s| fine(s, SECOND))?;
            if parts.next().is_some() {
                return None;
            }
            nanos += clock_sign * (hours + minutes + seconds);
            continue;
        }
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = rest[end..].trim_start();
        let whole = || number.parse::<i64>().ok();
        let singular = if unit.len() > 1 {
            unit.strip_suffix('s').unwrap_or(unit)
        } else {
            unit
        };
        match singular {
            "millennium" => months += whole()? * 12_000,
            "millennia" => months += whole()? * 12_000,
            "century" | "centurie" => months += whole()? * 1_200,
            "decade" => months += whole()? * 120,
            "year" | "yr" | "y" => months += whole()? * 12,
            "mon" | "month" => months += whole()?,
            "week" | "w" => days += whole()? * 7,
            "day" | "d" => days += whole()?,
            "hour" | "hr" | "h" => nanos += i128::from(whole()?) * 3600 * SECOND,
            "minute" | "min" | "m" => nanos += i128::from(whole()?) * 60 * SECOND,
            "second" | "sec" | "s" => nanos += fine(number, SECOND)?,
            _ => return None,
        }
    }
    Some((months * sign, days * sign, nanos * i128::from(sign)))
}

fn interval(text: &str, stored: &str) -> bool {
    !text.trim().is_empty() && span(text).is_some() && span(text) == span(stored)
}
