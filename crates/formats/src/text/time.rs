//! Dates, times of day and timestamps.
//!
//! Calendar: proleptic Gregorian, astronomical years (0 is 1 BC), days without leap seconds.

use arrow_schema::TimeUnit;

use super::Reason;
use super::number::write_int;

pub(super) const SECONDS_PER_DAY: i64 = 86_400;
pub(super) const OUT_OF_RANGE: Reason = "is out of range";
pub(crate) const TOO_FINE: Reason = "has a finer fraction of a second than the type holds";

/// How many of the unit make a second.
pub(super) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Reads from the left.
pub(super) struct Scan<'a> {
    pub rest: &'a [u8],
}

impl Scan<'_> {
    pub fn accept(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// True for a minus; a plus is skipped.
    pub fn sign(&mut self) -> bool {
        let negative = self.accept(b'-');
        if !negative {
            self.accept(b'+');
        }
        negative
    }

    /// All digits from here on, as a number, and how many; at most 19, as i64 has.
    pub fn digits(&mut self) -> Option<(i128, usize)> {
        let len = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=19).contains(&len) {
            return None;
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let value = digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0'));
        Some((value.into(), len))
    }

    /// Exactly two digits.
    pub fn pair(&mut self) -> Option<i64> {
        match self.rest {
            [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] => {
                self.rest = rest;
                Some(i64::from((a - b'0') * 10 + (b - b'0')))
            }
            _ => None,
        }
    }

    /// Digits after a point as nanoseconds; those after the ninth must be zeros.
    pub fn fraction(&mut self, malformed: Reason) -> Result<i64, Reason> {
        let len = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if len == 0 {
            return Err(malformed);
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        let (kept, dropped) = digits.split_at(len.min(9));
        if dropped.iter().any(|d| *d != b'0') {
            return Err(TOO_FINE);
        }
        let nanos = kept.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
        Ok((kept.len()..9).fold(nanos, |n, _| n * 10))
    }

    fn end(&self, malformed: Reason) -> Result<(), Reason> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(malformed)
        }
    }

    /// `YYYY-MM-DD`, as days since 1970-01-01.
    fn date(&mut self) -> Result<i64, Reason> {
        let negative = self.sign();
        let (year, len) = self.digits().ok_or(NOT_A_DATE)?;
        // i64 seconds reach 12 digits of years.
        if !(4..=12).contains(&len) {
            return Err(NOT_A_DATE);
        }
        let year = i64::try_from(if negative { -year } else { year }).map_err(|_| OUT_OF_RANGE)?;
        let dash = self.accept(b'-');
        let month = self.pair().filter(|_| dash).ok_or(NOT_A_DATE)?;
        let dash = self.accept(b'-');
        let day = self.pair().filter(|_| dash).ok_or(NOT_A_DATE)?;
        if !(1..=12).contains(&month) {
            return Err("has a month that does not exist");
        }
        if !(1..=days_in_month(year, month)).contains(&day) {
            return Err("has a day that its month does not have");
        }
        Ok(days_from_civil(year, month, day))
    }

    /// `HH:MM[:SS[.fraction]]`, as seconds and nanoseconds.
    fn time_of_day(&mut self) -> Result<(i64, i64), Reason> {
        const NOT_A_TIME: Reason = "has no time of day like 10:11:12";
        let hour = self.pair().ok_or(NOT_A_TIME)?;
        let colon = self.accept(b':');
        let minute = self.pair().filter(|_| colon).ok_or(NOT_A_TIME)?;
        let second = match self.accept(b':') {
            true => self.pair().ok_or(NOT_A_TIME)?,
            false => 0,
        };
        let nanos = match self.accept(b'.') {
            true => self.fraction(NOT_A_TIME)?,
            false => 0,
        };
        match (hour, minute, second) {
            (24, 0, 0) => Err("is the end of a day (24:00:00), which the type does not hold"),
            (0..=23, 0..=59, 0..=59) => Ok((hour * 3600 + minute * 60 + second, nanos)),
            (0..=23, 0..=59, 60) => Err("has a leap second, which the type does not hold"),
            _ => Err("has a time of day that does not exist"),
        }
    }

    /// `Z`, `+02`, `+0200` or `+02:00` in seconds. `None` if the text ends here.
    fn offset(&mut self) -> Result<Option<i64>, Reason> {
        const NOT_AN_OFFSET: Reason = "has no offset from UTC like Z or +02:00 at its end";
        let sign = match self.rest {
            [] => return Ok(None),
            [b'Z' | b'z'] => {
                self.rest = &[];
                return Ok(Some(0));
            }
            [b'+', ..] => 1,
            [b'-', ..] => -1,
            _ => return Err(NOT_AN_OFFSET),
        };
        self.rest = &self.rest[1..];
        let hours = self.pair().ok_or(NOT_AN_OFFSET)?;
        let colon = self.accept(b':');
        let minutes = match self.rest {
            [] if !colon => 0,
            _ => self.pair().ok_or(NOT_AN_OFFSET)?,
        };
        self.end(NOT_AN_OFFSET)?;
        // PostgreSQL and RFC 3339 know offsets below 24 hours; real ones end at 14.
        if hours > 23 || minutes > 59 {
            return Err(NOT_AN_OFFSET);
        }
        Ok(Some(sign * (hours * 3600 + minutes * 60)))
    }
}

const NOT_A_DATE: Reason = "is not a date like 2026-11-21";

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of 400 years: the calendar repeats after them.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Days since 1970-01-01. Years are counted from March, so that the leap day is the last one.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// Year, month and day of a day since 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Nanoseconds in the unit, or the reason why they are finer.
pub(super) fn in_unit(nanos: i64, unit: TimeUnit) -> Result<i64, Reason> {
    let step = 1_000_000_000 / per_second(unit);
    if nanos % step == 0 {
        Ok(nanos / step)
    } else {
        Err(TOO_FINE)
    }
}

/// Reads `2026-11-21` as days since 1970-01-01.
pub fn parse_date(text: &[u8]) -> Result<i32, Reason> {
    let mut scan = Scan { rest: text };
    let days = scan.date()?;
    scan.end(NOT_A_DATE)?;
    i32::try_from(days).map_err(|_| OUT_OF_RANGE)
}

/// Reads `10:11:12.123456` as units since midnight.
pub fn parse_time(text: &[u8], unit: TimeUnit) -> Result<i64, Reason> {
    let mut scan = Scan { rest: text };
    let (seconds, nanos) = scan.time_of_day()?;
    scan.end("has characters after the time of day")?;
    Ok(seconds * per_second(unit) + in_unit(nanos, unit)?)
}

/// Reads `2026-11-21T10:11:12.123456` as units since 1970-01-01. With `zoned` the text must end with an
/// offset, otherwise it must not have one.
pub fn parse_timestamp(text: &[u8], unit: TimeUnit, zoned: bool) -> Result<i64, Reason> {
    let mut scan = Scan { rest: text };
    let days = scan.date()?;
    if !(scan.accept(b'T') || scan.accept(b' ') || scan.accept(b't')) {
        return Err("is not a timestamp like 2026-11-21T10:11:12");
    }
    let (seconds, nanos) = scan.time_of_day()?;
    let offset = match (scan.offset()?, zoned) {
        (Some(offset), true) => offset,
        (None, false) => 0,
        (Some(_), false) => return Err("has an offset from UTC, but the type has no zone"),
        (None, true) => return Err("has no offset from UTC, but the type has a zone"),
    };
    let fraction = in_unit(nanos, unit)?;
    let seconds = i128::from(days) * i128::from(SECONDS_PER_DAY) + i128::from(seconds - offset);
    let value = seconds * i128::from(per_second(unit)) + i128::from(fraction);
    i64::try_from(value).map_err(|_| OUT_OF_RANGE)
}

fn write_pair(value: i64, out: &mut Vec<u8>) {
    // 0 to 99.
    out.push(b'0' + (value / 10) as u8);
    out.push(b'0' + (value % 10) as u8);
}

fn write_days(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    if year < 0 {
        out.push(b'-');
    }
    let year = year.unsigned_abs();
    if year < 10_000 {
        write_pair((year / 100) as i64, out);
        write_pair((year % 100) as i64, out);
    } else {
        write_int(year, out);
    }
    out.push(b'-');
    write_pair(month, out);
    out.push(b'-');
    write_pair(day, out);
}

/// Writes seconds of a day and a fraction in units.
fn write_time_of_day(seconds: i64, fraction: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    write_pair(seconds / 3600, out);
    out.push(b':');
    write_pair(seconds / 60 % 60, out);
    out.push(b':');
    write_pair(seconds % 60, out);
    write_fraction(fraction, unit, out);
}

/// Writes a point and all digits of the unit, or nothing for zero.
pub(super) fn write_fraction(fraction: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    if fraction == 0 {
        return;
    }
    out.push(b'.');
    let mut place = per_second(unit) / 10;
    while place > 0 {
        out.push(b'0' + (fraction / place % 10) as u8);
        place /= 10;
    }
}

/// Writes days since 1970-01-01.
pub fn write_date(days: i32, out: &mut Vec<u8>) {
    write_days(days.into(), out);
}

/// Writes units since midnight; less than a day.
pub fn write_time(value: i64, unit: TimeUnit, out: &mut Vec<u8>) -> Result<(), Reason> {
    let per_second = per_second(unit);
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    if !(0..SECONDS_PER_DAY).contains(&seconds) {
        return Err("is not a time of day");
    }
    write_time_of_day(seconds, fraction, unit, out);
    Ok(())
}

/// Writes units since 1970-01-01, with `Z` at the end if `zoned`.
pub fn write_timestamp(value: i64, unit: TimeUnit, zoned: bool, out: &mut Vec<u8>) {
    let per_second = per_second(unit);
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    write_days(seconds.div_euclid(SECONDS_PER_DAY), out);
    out.push(b'T');
    write_time_of_day(seconds.rem_euclid(SECONDS_PER_DAY), fraction, unit, out);
    if zoned {
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_come_back() {
        for (date, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2026-11-21", 20_778),
            ("0000-03-01", -719_468),
            ("-0001-12-31", -719_529),
            ("12345-06-07", 3_789_548),
        ] {
            assert_eq!(parse_date(date.as_bytes()), Ok(days), "{date}");
            assert_eq!(text(|out| write_date(days, out)), date);
        }
        for days in [i32::MIN, i32::MAX] {
            let written = text(|out| write_date(days, out));
            assert_eq!(parse_date(written.as_bytes()), Ok(days), "{written}");
        }
    }

    #[test]
    fn a_date_that_does_not_exist_is_refused() {
        for (date, part) in [
            ("2026-02-29", "day"),
            ("2026-13-01", "month"),
            ("1900-02-29", "day"),
            ("2026-00-10", "month"),
            ("26-01-01", "not a date"),
            ("2026-1-1", "not a date"),
            ("2026-01-01 ", "not a date"),
            ("2026/01/01", "not a date"),
            ("infinity", "not a date"),
            ("9999999-01-01", "range"),
        ] {
            let reason = parse_date(date.as_bytes()).expect_err(date);
            assert!(reason.contains(part), "{date}: {reason}");
        }
    }

    #[test]
    fn times_come_back_and_the_end_of_a_day_is_refused() {
        let us = TimeUnit::Microsecond;
        let parse = |text: &str, unit| parse_time(text.as_bytes(), unit);
        assert_eq!(parse("10:11:12.000345", us), Ok(36_672_000_345));
        assert_eq!(parse("10:11", TimeUnit::Second), Ok(36_660));
        assert_eq!(
            parse("00:00:00.120000000000", TimeUnit::Millisecond),
            Ok(120)
        );
        for (time, unit, part) in [
            ("24:00:00", us, "24:00:00"),
            ("23:59:60", us, "leap second"),
            ("10:11:12.1", TimeUnit::Second, "finer"),
            ("10:11:12.0000001", us, "finer"),
            ("10:11:12.0000000001", TimeUnit::Nanosecond, "finer"),
            ("10:61:12", us, "does not exist"),
            ("10", us, "like 10:11:12"),
            ("10:11:12Z", us, "after"),
            ("10:11:12.", us, "like 10:11:12"),
        ] {
            let reason = parse(time, unit).expect_err(time);
            assert!(reason.contains(part), "{time}: {reason}");
        }
        let written = text(|out| write_time(86_399_999_999, us, out).unwrap());
        assert_eq!(written, "23:59:59.999999");
        assert!(write_time(86_400_000_000, us, &mut Vec::new()).is_err());
        assert!(write_time(-1, us, &mut Vec::new()).is_err());
    }

    #[test]
    fn timestamps_know_their_zone() {
        let us = TimeUnit::Microsecond;
        let parse = |text: &str, zoned| parse_timestamp(text.as_bytes(), us, zoned);
        let value = 1_795_255_872_123_456;
        assert_eq!(parse("2026-11-21T10:11:12.123456", false), Ok(value));
        assert_eq!(parse("2026-11-21 10:11:12.123456", false), Ok(value));
        for zoned in [
            "10:11:12.123456Z",
            "12:11:12.123456+02",
            "08:41:12.123456-01:30",
        ] {
            assert_eq!(
                parse(&format!("2026-11-21T{zoned}"), true),
                Ok(value),
                "{zoned}"
            );
        }
        assert_eq!(parse("2026-11-21T12:11:12.123456+0200", true), Ok(value));
        for (timestamp, zoned, part) in [
            ("2026-11-21T10:11:12Z", false, "has no zone"),
            ("2026-11-21T10:11:12", true, "no offset"),
            ("2026-11-21", false, "not a timestamp"),
            ("2026-11-21T10:11:12+2", true, "offset"),
            ("2026-11-21T10:11:12+02:", true, "offset"),
            ("2026-11-21T10:11:12 UTC", true, "offset"),
            ("2026-11-21T24:00:00", false, "24:00:00"),
            ("2026-11-21T10:11:12.1234567", false, "finer"),
            ("294277-01-10T04:00:54.775808", false, "range"),
        ] {
            let reason = parse(timestamp, zoned).expect_err(timestamp);
            assert!(reason.contains(part), "{timestamp}: {reason}");
        }
        assert_eq!(
            text(|out| write_timestamp(value, us, true, out)),
            "2026-11-21T10:11:12.123456Z"
        );
    }

    #[test]
    fn the_first_and_last_timestamp_of_every_unit_come_back() {
        for unit in [
            TimeUnit::Second,
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        ] {
            for value in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
                let written = text(|out| write_timestamp(value, unit, true, out));
                assert_eq!(
                    parse_timestamp(written.as_bytes(), unit, true),
                    Ok(value),
                    "{written}"
                );
            }
        }
    }
}
