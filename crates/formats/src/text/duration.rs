//! Durations and intervals, in the notation of ISO 8601.

use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::TimeUnit;

use super::Reason;
use super::number::write_int;
use super::time::{OUT_OF_RANGE, SECONDS_PER_DAY, Scan, TOO_FINE, per_second, write_fraction};

/// One `number designator` of an ISO 8601 duration.
struct Component {
    negative: bool,
    whole: i128,
    nanos: i64,
    has_fraction: bool,
    designator: u8,
    /// After the `T`.
    in_time: bool,
}

impl Component {
    fn signed(&self, size: i128) -> i128 {
        if self.negative { -size } else { size }
    }

    /// The whole number with its sign; a fraction is refused.
    fn whole(&self) -> Result<i128, Reason> {
        if self.has_fraction {
            return Err("has a fraction of a unit other than hours, minutes and seconds");
        }
        Ok(self.signed(self.whole))
    }

    /// In nanoseconds, if its unit is `seconds` long.
    fn nanos(&self, seconds: i64) -> i128 {
        // A component is below 10^19, so this is below 10^34.
        let size = self.whole * 1_000_000_000 + i128::from(self.nanos);
        self.signed(size * i128::from(seconds))
    }

    /// Hours, minutes or seconds in nanoseconds.
    fn time_nanos(&self) -> Result<i128, Reason> {
        match self.designator {
            b'H' => Ok(self.nanos(3600)),
            b'M' => Ok(self.nanos(60)),
            b'S' => Ok(self.nanos(1)),
            _ => Err(NOT_A_DURATION),
        }
    }
}

const NOT_A_DURATION: Reason = "is not an ISO 8601 duration like P1DT2H30M or -PT1.5S";

/// Walks the components of `P…T…`. A sign before the `P` applies to each of them (ISO 8601-2).
fn for_components(
    text: &[u8],
    mut each: impl FnMut(&Component) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let mut scan = Scan { rest: text };
    let all_negative = scan.sign();
    if !scan.accept(b'P') {
        return Err(NOT_A_DURATION);
    }
    let (mut in_time, mut any) = (false, false);
    while !scan.rest.is_empty() {
        if !in_time && scan.accept(b'T') {
            in_time = true;
            any = false;
            continue;
        }
        let negative = scan.sign() != all_negative;
        let (whole, _) = scan.digits().ok_or(NOT_A_DURATION)?;
        let has_fraction = scan.accept(b'.') || scan.accept(b',');
        let nanos = match has_fraction {
            true => scan.fraction(NOT_A_DURATION)?,
            false => 0,
        };
        let [designator, rest @ ..] = scan.rest else {
            return Err(NOT_A_DURATION);
        };
        scan.rest = rest;
        any = true;
        let component = Component {
            negative,
            whole,
            nanos,
            has_fraction,
            designator: *designator,
            in_time,
        };
        each(&component)?;
    }
    if any { Ok(()) } else { Err(NOT_A_DURATION) }
}

/// Reads `P1DT2H3.5S` as units. A day has 24 hours; months and years are refused, for they have no
/// fixed length.
pub fn parse_duration(text: &[u8], unit: TimeUnit) -> Result<i64, Reason> {
    let mut total = 0_i128;
    for_components(text, |component| {
        let nanos = match (component.in_time, component.designator) {
            (true, _) => component.time_nanos()?,
            (false, b'D') => component.nanos(SECONDS_PER_DAY),
            (false, b'W') => component.nanos(7 * SECONDS_PER_DAY),
            (false, b'Y' | b'M') => {
                return Err(
                    "has years or months, which have no fixed length: use the type \
                     interval",
                );
            }
            (false, _) => return Err(NOT_A_DURATION),
        };
        total = total.checked_add(nanos).ok_or(OUT_OF_RANGE)?;
        Ok(())
    })?;
    let step = i128::from(1_000_000_000 / per_second(unit));
    if total % step != 0 {
        return Err(TOO_FINE);
    }
    i64::try_from(total / step).map_err(|_| OUT_OF_RANGE)
}

/// Writes a duration in seconds: `PT-12.5S`.
pub fn write_duration(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    out.extend_from_slice(b"PT");
    write_seconds(value, unit, out);
}

fn write_seconds(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    let per_second = per_second(unit).unsigned_abs();
    let size = value.unsigned_abs();
    if value < 0 {
        out.push(b'-');
    }
    write_int(size / per_second, out);
    write_fraction((size % per_second) as i64, unit, out);
    out.push(b'S');
}

/// Reads `P1Y2M3W4DT5H6M7.8S` as months, days and nanoseconds.
pub fn parse_interval(text: &[u8]) -> Result<IntervalMonthDayNano, Reason> {
    // A component is below 10^19: i128 holds the sums of whole parts of any text in memory.
    let (mut months, mut days, mut nanos) = (0_i128, 0_i128, 0_i128);
    for_components(text, |component| {
        if component.in_time {
            let more = component.time_nanos()?;
            nanos = nanos.checked_add(more).ok_or(OUT_OF_RANGE)?;
            return Ok(());
        }
        let value = component.whole()?;
        match component.designator {
            b'Y' => months += value * 12,
            b'M' => months += value,
            b'W' => days += value * 7,
            b'D' => days += value,
            _ => return Err(NOT_A_DURATION),
        }
        Ok(())
    })?;
    Ok(IntervalMonthDayNano::new(
        i32::try_from(months).map_err(|_| OUT_OF_RANGE)?,
        i32::try_from(days).map_err(|_| OUT_OF_RANGE)?,
        i64::try_from(nanos).map_err(|_| OUT_OF_RANGE)?,
    ))
}

/// Writes an interval as `P1M2DT3.000000004S`; a part that is zero is left out.
pub fn write_interval(value: IntervalMonthDayNano, out: &mut Vec<u8>) {
    out.push(b'P');
    for (part, designator) in [(value.months, b'M'), (value.days, b'D')] {
        if part != 0 {
            write_int(part, out);
            out.push(designator);
        }
    }
    if value.nanoseconds != 0 || (value.months == 0 && value.days == 0) {
        out.push(b'T');
        write_seconds(value.nanoseconds, TimeUnit::Nanosecond, out);
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
    fn durations_and_intervals_come_back() {
        let us = TimeUnit::Microsecond;
        assert_eq!(
            text(|out| write_duration(-12_500_000, us, out)),
            "PT-12.500000S"
        );
        for unit in [TimeUnit::Second, us, TimeUnit::Nanosecond] {
            for value in [i64::MIN, -1, 0, 1, i64::MAX] {
                let written = text(|out| write_duration(value, unit, out));
                assert_eq!(
                    parse_duration(written.as_bytes(), unit),
                    Ok(value),
                    "{written}"
                );
            }
        }
        for (duration, millis) in [
            ("PT1H2M3S", 3_723_000),
            ("-PT1.5S", -1500),
            ("+PT1,5S", 1500),
            ("-PT1M-0.5S", -59_500),
            ("PT0.5H", 1_800_000),
            ("P1D", 86_400_000),
            ("P1W1DT1H", 694_800_000),
            ("-P0.5D", -43_200_000),
            ("P1DT0H0M0S", 86_400_000),
        ] {
            let parsed = parse_duration(duration.as_bytes(), TimeUnit::Millisecond);
            assert_eq!(parsed, Ok(millis), "{duration}");
        }
        for (duration, part) in [
            ("P1M", "type interval"),
            ("P1YT1H", "type interval"),
            ("PT", "not an ISO 8601 duration"),
            ("--PT1S", "not an ISO 8601 duration"),
            ("P1H", "not an ISO 8601 duration"),
            ("PT0.5S", "finer"),
            ("1 day", "not an ISO 8601 duration"),
        ] {
            let reason = parse_duration(duration.as_bytes(), TimeUnit::Second).unwrap_err();
            assert!(reason.contains(part), "{duration}: {reason}");
        }
        let interval = IntervalMonthDayNano::new(1, -2, 3_000_000_004);
        assert_eq!(
            text(|out| write_interval(interval, out)),
            "P1M-2DT3.000000004S"
        );
        for value in [
            interval,
            IntervalMonthDayNano::new(0, 0, 0),
            IntervalMonthDayNano::new(i32::MIN, i32::MAX, i64::MIN),
        ] {
            let written = text(|out| write_interval(value, out));
            assert_eq!(parse_interval(written.as_bytes()), Ok(value), "{written}");
        }
        assert_eq!(
            parse_interval(b"P1Y2M1W1DT1H"),
            Ok(IntervalMonthDayNano::new(14, 8, 3_600_000_000_000))
        );
        assert_eq!(
            parse_interval(b"-P1Y2DT1.5H"),
            Ok(IntervalMonthDayNano::new(-12, -2, -5_400_000_000_000))
        );
        for bad in [
            &b"P"[..],
            b"1M",
            b"P1",
            b"P1.5M",
            b"P99999999999M",
            b"P1X",
            b"PT1D",
        ] {
            assert!(parse_interval(bad).is_err(), "{bad:?}");
        }
    }
}
