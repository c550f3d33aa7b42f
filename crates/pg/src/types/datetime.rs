//! Dates, times and intervals between PostgreSQL's epoch (2000-01-01) and Arrow's (1970-01-01).
//!
//! Ranges: "Date/Time Types" in the PostgreSQL manual, `datatype/timestamp.h` for the limits.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::types::*;
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

use super::family::{Family, Modifier, Spelling, by_text, by_value, partly};
use crate::builtin::{Builtin, DATE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, TIMETZ};
use crate::decode::{Decode, numbers};
use crate::encode::{self, Values, aside, put_number, values};
use crate::error::Problem;
use crate::model::Column;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [DATE] partly(|_| Some(DataType::Date32), dates), None, Spelling::Pattern(midnight);
        [TIME] partly(|_| Some(DataType::Time64(TimeUnit::Microsecond)), times), SECONDS, Spelling::Pattern(clock);
        [TIMETZ] None, SECONDS, Spelling::Pattern(|| format!("{}({OFFSET})?", clock()));
        [TIMESTAMP] partly(|_| Some(timestamp(None)), timestamps), SECONDS,
            Spelling::Pattern(|| format!("{DATE_TEXT}([T ]{})?{ERA}|{INFINITE}", clock()));
        [TIMESTAMPTZ] partly(|_| Some(timestamp(Some("UTC".into()))), timestamps), SECONDS,
            Spelling::Pattern(|| format!("{DATE_TEXT}([T ]{}({OFFSET})?)?{ERA}|{INFINITE}", clock()));
        [INTERVAL] partly(|_| Some(DataType::Interval(IntervalUnit::MonthDayNano)), intervals), by_text(interval_fits),
            Spelling::Pattern(span);
    },
    column: |field| {
        let with = |builtin: Builtin, typmod: i32| Column {
            typmod,
            ..builtin.column("")
        };
        Some(match field.data_type() {
            DataType::Date32 | DataType::Date64 => DATE.column(""),
            DataType::Time32(unit) | DataType::Time64(unit) => with(TIME, digits(*unit)),
            DataType::Timestamp(unit, None) => with(TIMESTAMP, digits(*unit)),
            DataType::Timestamp(unit, Some(_)) => with(TIMESTAMPTZ, digits(*unit)),
            DataType::Duration(_) | DataType::Interval(IntervalUnit::MonthDayNano) => {
                INTERVAL.column("")
            }
            _ => return None,
        })
    },
    into: |_, _, _, _| None,
    encode,
};

/// Digits after the point of the seconds.
fn digits(unit: TimeUnit) -> i32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => -1,
    }
}

/// `timestamp_recv` and its like apply the modifier.
const SECONDS: Option<Modifier> = by_value(|from, to| match to < 6 && !(0..=to).contains(&from) {
    true => Err("the server would round the seconds"),
    false => Ok(()),
});

fn interval_fits(from: i32, to: i32) -> Result<(), &'static str> {
    let (from, to) = (Limits::of(from), Limits::of(to));
    let parts = |limits: Option<Limits>| limits.map_or(ALL_PARTS, |limits| limits.parts);
    let digits = |limits: Option<Limits>| limits.and_then(|limits| limits.digits);
    let has_parts = parts(to) == ALL_PARTS || parts(to) == parts(from);
    let has_digits = match (digits(from), digits(to)) {
        (_, None) => true,
        (from, Some(to)) => to >= MAX_DIGITS || from.is_some_and(|from| from <= to),
    };
    match has_parts && has_digits {
        true => Ok(()),
        false => Err("the server would round the seconds or leave out fields"),
    }
}

/// The digits after the point of a second that the server keeps (`MAX_TIMESTAMP_PRECISION`).
pub(crate) const MAX_DIGITS: i32 = 6;

/// Bits of [`Limits::parts`] (`INTERVAL_MASK` in `utils/timestamp.h`).
pub(crate) const YEAR: i32 = 1 << 2;
pub(crate) const MONTH: i32 = 1 << 1;
pub(crate) const DAY: i32 = 1 << 3;
pub(crate) const HOUR: i32 = 1 << 10;
pub(crate) const MINUTE: i32 = 1 << 11;
pub(crate) const SECOND: i32 = 1 << 12;
pub(crate) const ALL_PARTS: i32 = 0x7fff;

/// What a modifier of `interval` says (`INTERVAL_TYPMOD`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The parts that values may have, as bits.
    pub parts: i32,
    /// The digits after the point of a second. `None`: as many as the server keeps.
    pub digits: Option<i32>,
}

impl Limits {
    /// `None` without a modifier.
    pub(crate) fn of(typmod: i32) -> Option<Self> {
        /// `INTERVAL_FULL_PRECISION`.
        const FULL: i32 = 0xffff;
        (typmod >= 0).then(|| Self {
            parts: (typmod >> 16) & ALL_PARTS,
            digits: Some(typmod & FULL).filter(|digits| *digits != FULL),
        })
    }

    /// As the server writes it behind `interval`. `None` if no column has these limits.
    pub(crate) fn text(self) -> Option<String> {
        let parts = match self.parts {
            ALL_PARTS => "",
            YEAR => " year",
            MONTH => " month",
            DAY => " day",
            HOUR => " hour",
            MINUTE => " minute",
            SECOND => " second",
            parts if parts == YEAR | MONTH => " year to month",
            parts if parts == DAY | HOUR => " day to hour",
            parts if parts == DAY | HOUR | MINUTE => " day to minute",
            parts if parts == DAY | HOUR | MINUTE | SECOND => " day to second",
            parts if parts == HOUR | MINUTE => " hour to minute",
            parts if parts == HOUR | MINUTE | SECOND => " hour to second",
            parts if parts == MINUTE | SECOND => " minute to second",
            _ => return None,
        };
        match self.digits {
            None => Some(parts.to_owned()),
            Some(digits) if digits <= MAX_DIGITS => Some(format!("{parts}({digits})")),
            Some(_) => None,
        }
    }
}

/// Digits of a second that the server keeps: later ones are zeros.
const FRACTION: &str = r"(\.\d{1,6}0*)?";
const DATE_TEXT: &str = r"(\d{4,7}[-/]\d{1,2}[-/]\d{1,2}|\d{8})";
const ERA: &str = r"( ?(BC|AD))?";
const OFFSET: &str = r" ?([+-]\d{1,2}(:?\d{2}){0,2}|Z|UTC|GMT)";
const INFINITE: &str = r"[+-]?infinity";

/// A day, which may have midnight behind it.
fn midnight() -> String {
    format!(r"{DATE_TEXT}([T ]00:00(:00(\.0+)?)?)?{ERA}|{INFINITE}")
}

/// A time of day.
fn clock() -> String {
    format!(r"\d{{1,2}}:\d{{2}}(:[0-5]\d{FRACTION})?( ?[AP]M)?")
}

/// Whole numbers with units, a clock, or ISO 8601.
fn span() -> String {
    let whole = r"[+-]?\d+ ?(millennia|millenniums?|centur(y|ies)|decades?|years?|yrs?|y|mons?|months?|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m)";
    let seconds = format!(r"[+-]?\d+{FRACTION} ?(seconds?|secs?|s)");
    let clock = format!(r"[+-]?\d+:\d{{2}}(:\d{{2}}{FRACTION})?");
    let iso = format!(
        r"[+-]?P([+-]?\d+Y)?([+-]?\d+M)?([+-]?\d+W)?([+-]?\d+D)?(T([+-]?\d+H)?([+-]?\d+M)?([+-]?\d+{FRACTION}S)?)?"
    );
    // Behind a clock a blank, so that its seventh digit is not the next number's first.
    format!(r"(@ )?(({whole}|{seconds})\s*|{clock}(\s+|$))+( ?ago)?|{iso}")
}

fn encode(array: &ArrayRef) -> Option<Values<'_>> {
    use TimeUnit::*;
    Some(match *array.data_type() {
        DataType::Date32 => encode::numbers(values::<Date32Type>(array), encode_date),
        DataType::Date64 => encode::numbers(values::<Date64Type>(array), encode_date_ms),
        DataType::Time32(Second) => encode_times(values::<Time32SecondType>(array), Second),
        DataType::Time32(unit) => encode_times(values::<Time32MillisecondType>(array), unit),
        DataType::Time64(Microsecond) => {
            encode_times(values::<Time64MicrosecondType>(array), Microsecond)
        }
        DataType::Time64(unit) => encode_times(values::<Time64NanosecondType>(array), unit),
        DataType::Timestamp(Microsecond, _) => {
            encode::numbers(values::<TimestampMicrosecondType>(array), encode_timestamp)
        }
        DataType::Timestamp(unit, _) => {
            encode::numbers(timestamp_values(array, unit), move |value| {
                encode_timestamp(to_micros(value, unit)?)
            })
        }
        DataType::Duration(unit) => {
            let values = duration_values(array, unit);
            aside(move |row, out| {
                put_number(out, interval_bytes(to_micros(values[row], unit)?, 0, 0));
                Ok(())
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = values::<IntervalMonthDayNanoType>(array);
            aside(move |row, out| {
                put_number(out, encode_interval(values[row])?);
                Ok(())
            })
        }
        _ => return None,
    })
}

fn encode_times<T: Copy + Into<i64> + Send + Sync>(values: &[T], unit: TimeUnit) -> Values<'_> {
    encode::numbers(values, move |value| {
        encode_time(to_micros(value.into(), unit)?)
    })
}

fn timestamp_values(array: &ArrayRef, unit: TimeUnit) -> &[i64] {
    match unit {
        TimeUnit::Second => values::<TimestampSecondType>(array),
        TimeUnit::Millisecond => values::<TimestampMillisecondType>(array),
        TimeUnit::Microsecond => values::<TimestampMicrosecondType>(array),
        TimeUnit::Nanosecond => values::<TimestampNanosecondType>(array),
    }
}

fn duration_values(array: &ArrayRef, unit: TimeUnit) -> &[i64] {
    match unit {
        TimeUnit::Second => values::<DurationSecondType>(array),
        TimeUnit::Millisecond => values::<DurationMillisecondType>(array),
        TimeUnit::Microsecond => values::<DurationMicrosecondType>(array),
        TimeUnit::Nanosecond => values::<DurationNanosecondType>(array),
    }
}

fn timestamp(zone: Option<Arc<str>>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone)
}

fn dates(_: &DataType) -> Box<dyn Decode> {
    numbers::<Date32Type, 4>(|b| decode_date(i32::from_be_bytes(b)))
}

fn times(_: &DataType) -> Box<dyn Decode> {
    numbers::<Time64MicrosecondType, 8>(|b| decode_time(i64::from_be_bytes(b)))
}

fn intervals(_: &DataType) -> Box<dyn Decode> {
    numbers::<IntervalMonthDayNanoType, 16>(decode_interval)
}

fn timestamps(_: &DataType) -> Box<dyn Decode> {
    numbers::<TimestampMicrosecondType, 8>(|b| decode_timestamp(i64::from_be_bytes(b)))
}

const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const DAY_MICROS: i64 = 86_400_000_000;
/// 4714-11-24 BC, and the day after 5874897-12-31, in days since 2000.
const DATE_RANGE: std::ops::Range<i32> = -2_451_545..2_145_031_949;
/// 4714-11-24 BC, and 294277-01-01, in µs since 2000.
const TIMESTAMP_RANGE: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

/// Days since 2000 to days since 1970.
fn decode_date(days: i32) -> Result<i32, Problem> {
    if days == i32::MIN || days == i32::MAX {
        return Err(Problem::Infinite);
    }
    days.checked_add(EPOCH_DAYS).ok_or(Problem::OutOfRange)
}

/// Days since 1970 to days since 2000.
fn encode_date(days: i32) -> Result<i32, Problem> {
    days.checked_sub(EPOCH_DAYS)
        .filter(|days| DATE_RANGE.contains(days))
        .ok_or(Problem::OutOfRange)
}

/// Milliseconds since 1970 (Date64), whole days, to days since 2000.
fn encode_date_ms(ms: i64) -> Result<i32, Problem> {
    if ms % 86_400_000 != 0 {
        return Err(Problem::OutOfRange);
    }
    let days = i32::try_from(ms / 86_400_000).map_err(|_| Problem::OutOfRange)?;
    encode_date(days)
}

/// µs since 2000 to µs since 1970.
#[inline]
fn decode_timestamp(micros: i64) -> Result<i64, Problem> {
    if micros == i64::MIN || micros == i64::MAX {
        return Err(Problem::Infinite);
    }
    micros.checked_add(EPOCH_MICROS).ok_or(Problem::OutOfRange)
}

/// µs since 1970 to µs since 2000.
#[inline]
fn encode_timestamp(micros: i64) -> Result<i64, Problem> {
    micros
        .checked_sub(EPOCH_MICROS)
        .filter(|micros| TIMESTAMP_RANGE.contains(micros))
        .ok_or(Problem::OutOfRange)
}

/// µs since midnight, as they are.
fn decode_time(micros: i64) -> Result<i64, Problem> {
    match micros {
        0..DAY_MICROS => Ok(micros),
        DAY_MICROS => Err(Problem::EndOfDay),
        _ => Err(Problem::Malformed),
    }
}

/// µs since midnight, as they are.
fn encode_time(micros: i64) -> Result<i64, Problem> {
    match micros {
        0..DAY_MICROS => Ok(micros),
        _ => Err(Problem::OutOfRange),
    }
}

/// A count of any unit to µs.
fn to_micros(value: i64, unit: TimeUnit) -> Result<i64, Problem> {
    match unit {
        TimeUnit::Second => value.checked_mul(1_000_000).ok_or(Problem::OutOfRange),
        TimeUnit::Millisecond => value.checked_mul(1000).ok_or(Problem::OutOfRange),
        TimeUnit::Microsecond => Ok(value),
        TimeUnit::Nanosecond if value % 1000 == 0 => Ok(value / 1000),
        TimeUnit::Nanosecond => Err(Problem::SubMicrosecond),
    }
}

/// µs, days, months to months, days, ns.
fn decode_interval(bytes: [u8; 16]) -> Result<IntervalMonthDayNano, Problem> {
    let value = i128::from_be_bytes(bytes);
    let (micros, days, months) = ((value >> 64) as i64, (value >> 32) as i32, value as i32);
    if (micros, days, months) == (i64::MAX, i32::MAX, i32::MAX)
        || (micros, days, months) == (i64::MIN, i32::MIN, i32::MIN)
    {
        return Err(Problem::Infinite);
    }
    let nanoseconds = micros.checked_mul(1000).ok_or(Problem::OutOfRange)?;
    Ok(IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    })
}

/// Months, days, ns to µs, days, months.
fn encode_interval(value: IntervalMonthDayNano) -> Result<[u8; 16], Problem> {
    let micros = to_micros(value.nanoseconds, TimeUnit::Nanosecond)?;
    Ok(interval_bytes(micros, value.days, value.months))
}

fn interval_bytes(micros: i64, days: i32, months: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&micros.to_be_bytes());
    bytes[8..12].copy_from_slice(&days.to_be_bytes());
    bytes[12..].copy_from_slice(&months.to_be_bytes());
    bytes
}
