//! Dates and timestamps in a declared form, such as `%d.%m.%Y %H:%M`.
//!
//! The directives have the meaning that C's `strftime` gives them, and a single reading each:
//! nothing is guessed, no century and no order of day and month.
//!
//! | directive | stands for |
//! | --- | --- |
//! | `%Y` | the year, four digits |
//! | `%m`, `%d` | month and day, two digits |
//! | `%b` | the month as `Jan`, `Feb` …, in any case |
//! | `%H`, `%M`, `%S` | hour (00 to 23), minute, second, two digits |
//! | `%I` with `%p` | hour (01 to 12) with `AM` or `PM`, in any case |
//! | `%f` | the fraction of a second, 1 to 9 digits |
//! | `%z` | the offset from UTC: `+0200`, `+02:00` or `Z` |
//! | `%F`, `%T` | `%Y-%m-%d`, `%H:%M:%S` |
//! | `%%` | a percent sign |
//!
//! Every other character stands for itself.

use arrow_schema::TimeUnit;

use super::Reason;
use super::time::{
    OUT_OF_RANGE, SECONDS_PER_DAY, Scan, days_from_civil, days_in_month, in_unit, per_second,
};

/// A declared form of dates or timestamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Literal(u8),
    Year,
    Month,
    MonthName,
    Day,
    Hour,
    HourOfHalf,
    Half,
    Minute,
    Second,
    Fraction,
    Offset,
}

impl Part {
    /// The parts of a directive.
    fn of(directive: u8) -> Option<&'static [Self]> {
        const DASH: Part = Part::Literal(b'-');
        const COLON: Part = Part::Literal(b':');
        Some(match directive {
            b'Y' => &[Self::Year],
            b'm' => &[Self::Month],
            b'b' => &[Self::MonthName],
            b'd' => &[Self::Day],
            b'H' => &[Self::Hour],
            b'I' => &[Self::HourOfHalf],
            b'p' => &[Self::Half],
            b'M' => &[Self::Minute],
            b'S' => &[Self::Second],
            b'f' => &[Self::Fraction],
            b'z' => &[Self::Offset],
            b'F' => &[Self::Year, DASH, Self::Month, DASH, Self::Day],
            b'T' => &[Self::Hour, COLON, Self::Minute, COLON, Self::Second],
            b'%' => &[Self::Literal(b'%')],
            _ => return None,
        })
    }
}

/// The values that a text had.
#[derive(Default)]
struct Found {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i64,
    offset: i64,
    afternoon: bool,
}

const MONTHS: [&[u8; 3]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

/// The reason for a text that does not follow the pattern; a column adds the pattern.
pub(crate) const NO_MATCH: Reason = "does not have the declared form";

impl TimePattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                parts.push(Part::Literal(byte));
                continue;
            }
            let directive = rest.next().ok_or("it ends with a single %")?;
            let Some(more) = Part::of(directive) else {
                let shown = char::from(directive);
                return Err(format!("%{shown} is not a supported directive"));
            };
            for part in more {
                if !matches!(part, Part::Literal(_)) && parts.contains(part) {
                    return Err("a directive is used twice".into());
                }
                parts.push(*part);
            }
        }
        let pattern = Self {
            text: text.to_owned(),
            parts,
        };
        pattern.check().map(|()| pattern)
    }

    fn check(&self) -> Result<(), String> {
        let has = |part| self.parts.contains(&part);
        let refused = |text: &str| Err(text.to_owned());
        if !has(Part::Year) || !has(Part::Day) || has(Part::Month) == has(Part::MonthName) {
            return refused("it needs %Y, %d and one of %m and %b");
        }
        if has(Part::HourOfHalf) != has(Part::Half) || (has(Part::Hour) && has(Part::Half)) {
            return refused("%I and %p go together, without %H");
        }
        let hour = has(Part::Hour) || has(Part::HourOfHalf);
        let steps = [
            hour,
            has(Part::Minute),
            has(Part::Second),
            has(Part::Fraction),
        ];
        if steps.windows(2).any(|pair| !pair[0] && pair[1]) || (has(Part::Offset) && !hour) {
            return refused("a part of a time needs the larger ones before it: %H, %M, %S, %f");
        }
        Ok(())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if there is a time of day.
    pub fn has_time(&self) -> bool {
        let hour = |part: &Part| matches!(part, Part::Hour | Part::HourOfHalf);
        self.parts.iter().any(hour)
    }

    /// True if there is an offset from UTC.
    pub fn has_offset(&self) -> bool {
        self.parts.contains(&Part::Offset)
    }

    /// Reads a date as days since 1970-01-01.
    pub fn parse_date(&self, text: &[u8]) -> Result<i32, Reason> {
        i32::try_from(self.find(text)?.days()?).map_err(|_| OUT_OF_RANGE)
    }

    /// Reads a timestamp as units since 1970-01-01.
    pub fn parse_timestamp(&self, text: &[u8], unit: TimeUnit) -> Result<i64, Reason> {
        let found = self.find(text)?;
        let seconds = found.days()? * SECONDS_PER_DAY + found.seconds_of_day()? - found.offset;
        let fraction = in_unit(found.nanos, unit)?;
        let value = i128::from(seconds) * i128::from(per_second(unit)) + i128::from(fraction);
        i64::try_from(value).map_err(|_| OUT_OF_RANGE)
    }

    fn find(&self, text: &[u8]) -> Result<Found, Reason> {
        let mut found = Found::default();
        let mut scan = Scan { rest: text };
        for part in &self.parts {
            found.take(*part, &mut scan)?;
        }
        match scan.rest {
            [] => Ok(found),
            _ => Err(NO_MATCH),
        }
    }
}

impl Found {
    fn take(&mut self, part: Part, scan: &mut Scan<'_>) -> Result<(), Reason> {
        match part {
            Part::Literal(byte) => return scan.accept(byte).then_some(()).ok_or(NO_MATCH),
            Part::Year => {
                let century = scan.pair().ok_or(NO_MATCH)?;
                self.year = century * 100 + scan.pair().ok_or(NO_MATCH)?;
            }
            Part::MonthName => {
                let (name, rest) = scan.rest.split_at_checked(3).ok_or(NO_MATCH)?;
                let at = MONTHS
                    .iter()
                    .position(|month| name.eq_ignore_ascii_case(&month[..]));
                // 1 to 12.
                self.month = at.ok_or(NO_MATCH)? as i64 + 1;
                scan.rest = rest;
            }
            Part::Half => {
                let (half, rest) = scan.rest.split_at_checked(2).ok_or(NO_MATCH)?;
                self.afternoon = half.eq_ignore_ascii_case(b"PM");
                if !self.afternoon && !half.eq_ignore_ascii_case(b"AM") {
                    return Err(NO_MATCH);
                }
                scan.rest = rest;
            }
            Part::HourOfHalf => {
                let hour = scan.pair().ok_or(NO_MATCH)?;
                if !(1..=12).contains(&hour) {
                    return Err("has a time of day that does not exist");
                }
                self.hour = hour % 12;
            }
            Part::Fraction => self.nanos = scan.fraction(NO_MATCH)?,
            Part::Offset => self.offset = offset(scan).ok_or(NO_MATCH)?,
            Part::Month => self.month = scan.pair().ok_or(NO_MATCH)?,
            Part::Day => self.day = scan.pair().ok_or(NO_MATCH)?,
            Part::Hour => self.hour = scan.pair().ok_or(NO_MATCH)?,
            Part::Minute => self.minute = scan.pair().ok_or(NO_MATCH)?,
            Part::Second => self.second = scan.pair().ok_or(NO_MATCH)?,
        }
        Ok(())
    }

    fn days(&self) -> Result<i64, Reason> {
        if !(1..=12).contains(&self.month) {
            return Err("has a month that does not exist");
        }
        if !(1..=days_in_month(self.year, self.month)).contains(&self.day) {
            return Err("has a day that its month does not have");
        }
        Ok(days_from_civil(self.year, self.month, self.day))
    }

    fn seconds_of_day(&self) -> Result<i64, Reason> {
        if self.hour > 23 || self.minute > 59 || self.second > 59 {
            return Err("has a time of day that does not exist");
        }
        let hour = self.hour + if self.afternoon { 12 } else { 0 };
        Ok(hour * 3600 + self.minute * 60 + self.second)
    }
}

/// `Z`, `+0200` or `+02:00` in seconds.
fn offset(scan: &mut Scan<'_>) -> Option<i64> {
    if scan.accept(b'Z') {
        return Some(0);
    }
    let sign = match (scan.accept(b'+'), scan.accept(b'-')) {
        (true, false) => 1,
        (false, true) => -1,
        _ => return None,
    };
    let hours = scan.pair()?;
    scan.accept(b':');
    let minutes = scan.pair()?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(pattern: &str, text: &str) -> Result<String, Reason> {
        let pattern = TimePattern::parse(pattern).unwrap();
        let unit = TimeUnit::Microsecond;
        let value = pattern.parse_timestamp(text.as_bytes(), unit)?;
        let mut out = Vec::new();
        super::super::time::write_timestamp(value, unit, false, &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn texts_of_the_declared_form_are_read() {
        for (pattern, text, expected) in [
            ("%d.%m.%Y %H:%M", "21.11.2026 10:11", "2026-11-21T10:11:00"),
            (
                "%m/%d/%Y %I:%M:%S %p",
                "11/21/2026 12:00:01 am",
                "2026-11-21T00:00:01",
            ),
            (
                "%m/%d/%Y %I:%M %p",
                "11/21/2026 12:30 PM",
                "2026-11-21T12:30:00",
            ),
            ("%Y%m%d%H%M%S", "20261121101112", "2026-11-21T10:11:12"),
            (
                "%d-%b-%Y %T.%f",
                "21-NOV-2026 10:11:12.5",
                "2026-11-21T10:11:12.500000",
            ),
            ("%F %T%z", "2026-11-21 10:11:12+0230", "2026-11-21T07:41:12"),
            ("%F %T %z", "2026-11-21 10:11:12 Z", "2026-11-21T10:11:12"),
            (
                "%F %Hh, 100%%",
                "2026-11-21 10h, 100%",
                "2026-11-21T10:00:00",
            ),
        ] {
            assert_eq!(iso(pattern, text).as_deref(), Ok(expected), "{pattern}");
        }
        let date = TimePattern::parse("%d/%m/%Y").unwrap();
        assert_eq!(date.parse_date(b"21/11/2026"), Ok(20_778));
    }

    #[test]
    fn every_other_text_is_refused() {
        for (text, part) in [
            ("21.11.2026 10:11 ", "form"),
            ("1.11.2026 10:11", "form"),
            ("21.11.26 10:11", "form"),
            ("21/11/2026 10:11", "form"),
            ("2026-11-21T10:11", "form"),
            ("", "form"),
            ("31.11.2026 10:11", "day"),
            ("29.02.2026 10:11", "day"),
            ("11.21.2026 10:11", "month"),
            ("21.11.2026 24:00", "time of day"),
            ("21.11.2026 10:60", "time of day"),
        ] {
            let reason = iso("%d.%m.%Y %H:%M", text).expect_err(text);
            assert!(reason.contains(part), "{text}: {reason}");
        }
        assert!(iso("%F %I %p", "2026-11-21 13 PM").is_err());
        assert!(
            iso("%F %T.%f", "2026-11-21 10:11:12.1234567").is_err(),
            "finer than µs"
        );
        assert!(iso("%F %T%z", "2026-11-21 10:11:12+99:00").is_err());
    }

    #[test]
    fn a_pattern_of_two_readings_is_refused() {
        for pattern in [
            "%d.%m.%y",
            "%d.%m",
            "%Y-%m-%d %M",
            "%F %I:%M",
            "%F %H %p",
            "%F %F",
            "%F%z",
            "%",
            "%F %Z",
            "%F %b",
            "%F %H:%M.%f",
            "",
        ] {
            assert!(TimePattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
