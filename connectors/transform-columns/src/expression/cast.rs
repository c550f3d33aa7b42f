//! Casts from one type to another, as PostgreSQL does them, or refuses.
//!
//! A cast does not exist where PostgreSQL's result depends on a setting of the session (the time zone).

use rapidbyte_formats::text::{decimal, number, time};
use rapidbyte_sdk::prelude::arrow_schema::TimeUnit;
use rapidbyte_sdk::prelude::*;

use super::cells::Cells;
use super::kind::Kind;
use super::rows::{Misfit, Rows};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Casts the values of `cells`, which are of the type `from`.
pub fn apply(cells: &Cells, from: Kind, to: Kind, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let constant = cells.is_constant;
    match (from, to) {
        (Kind::Text, _) => from_text(cells, to, rows),
        (_, Kind::Text) => rows.texts(constant, |row, text| {
            if cells.is_null(row) {
                return Ok(false);
            }
            write(cells, from, row, text);
            Ok(true)
        }),
        (Kind::Bool, _) => {
            let values = cells.bools();
            rows.ints(constant, |row| Ok(values(row).map(i64::from)))
        }
        (Kind::Int4, Kind::Bool) => {
            let values = cells.ints();
            rows.bools(constant, |row| Ok(values(row).map(|value| value != 0)))
        }
        (Kind::Date, Kind::Timestamp) => {
            let values = cells.ints();
            let micros = |days: i64| {
                days.checked_mul(MICROS_PER_DAY)
                    .ok_or_else(|| out_of_range(to))
            };
            rows.ints(constant, |row| values(row).map(micros).transpose())
        }
        (Kind::Timestamp, Kind::Date) => {
            let values = cells.ints();
            rows.ints(constant, |row| {
                Ok(values(row).map(|micros| micros.div_euclid(MICROS_PER_DAY)))
            })
        }
        (from, to) if to.is_integer() => {
            rows.ints(constant, |row| match as_integer(cells, from, row) {
                Some(value) => within(value.ok_or_else(|| out_of_range(to))?, to).map(Some),
                None => Ok(None),
            })
        }
        (from, to) if to.is_float() => {
            rows.floats(constant, |row| match as_float(cells, from, to, row) {
                Some(value) => finite(value, cells, from, row, to).map(Some),
                None => Ok(None),
            })
        }
        (from, Kind::Decimal(precision, scale)) => rows.decimals(constant, |row| {
            let units = match from {
                Kind::Float4 | Kind::Float8 => match cells.floats()(row) {
                    Some(value) => decimal_of_float(value, from, scale),
                    None => return Ok(None),
                },
                Kind::Decimal(_, before) => match cells.decimals()(row) {
                    Some(value) => rescaled(value, before, scale),
                    None => return Ok(None),
                },
                _ => match cells.ints()(row) {
                    Some(value) => rescaled(value.into(), 0, scale),
                    None => return Ok(None),
                },
            };
            fits(units, precision)
                .ok_or_else(|| out_of_range(to))
                .map(Some)
        }),
        // `build::cast` allows only the pairs above.
        _ => Ok(cells.clone()),
    }
}

pub fn out_of_range(kind: Kind) -> String {
    format!("the value is out of the range of {kind}")
}

/// An integer that its type holds.
pub fn within(value: i64, kind: Kind) -> Result<i64, String> {
    let (least, most) = kind.range();
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(out_of_range(kind)),
    }
}

/// The units if `precision` digits hold them.
pub fn fits(units: Option<i128>, precision: u8) -> Option<i128> {
    let most = 10_u128.checked_pow(precision.into())?;
    units.filter(|units| units.unsigned_abs() < most)
}

/// The integer nearest to a number. `Some(None)` if there is none in 64 bits.
fn as_integer(cells: &Cells, from: Kind, row: usize) -> Option<Option<i64>> {
    match from {
        Kind::Float4 | Kind::Float8 => {
            let value = cells.floats()(row)?.round_ties_even();
            // 2^63 is a float; the largest integer is not.
            let limit = 9_223_372_036_854_775_808.0;
            Some((-limit..limit).contains(&value).then_some(value as i64))
        }
        Kind::Decimal(_, scale) => {
            let units = rescaled(cells.decimals()(row)?, scale, 0);
            Some(units.and_then(|units| i64::try_from(units).ok()))
        }
        _ => cells.ints()(row).map(Some),
    }
}

fn as_float(cells: &Cells, from: Kind, to: Kind, row: usize) -> Option<f64> {
    let single = to == Kind::Float4;
    match from {
        Kind::Float4 | Kind::Float8 => {
            let value = cells.floats()(row)?;
            Some(if single {
                f64::from(value as f32)
            } else {
                value
            })
        }
        Kind::Decimal(_, scale) => {
            let mut text = Vec::new();
            decimal::write_i128(cells.decimals()(row)?, scale as i8, &mut text);
            let text = std::str::from_utf8(&text).unwrap_or_default();
            // Once rounded, not twice.
            match single {
                true => text.parse::<f32>().ok().map(f64::from),
                false => text.parse().ok(),
            }
        }
        _ => {
            let value = cells.ints()(row)?;
            Some(if single {
                f64::from(value as f32)
            } else {
                value as f64
            })
        }
    }
}

/// PostgreSQL refuses a finite value that becomes infinite, or zero.
fn finite(value: f64, cells: &Cells, from: Kind, row: usize, to: Kind) -> Result<f64, String> {
    let before = match from.is_float() {
        true => cells.floats()(row).unwrap_or_default(),
        false => 1.0,
    };
    let vanished = value == 0.0 && from.is_float() && before != 0.0;
    if vanished || value.is_infinite() && before.is_finite() {
        return Err(out_of_range(to));
    }
    Ok(value)
}

/// Units of another scale. A half is rounded away from zero. `None` if it does not fit.
pub fn rescaled(units: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        return units.checked_mul(10_i128.checked_pow((to - from).into())?);
    }
    let step = 10_i128.checked_pow((from - to).into())?;
    let (quotient, rest) = (units / step, units % step);
    let up = rest.unsigned_abs() >= (step.unsigned_abs() / 2).max(1);
    Some(if up {
        quotient + units.signum()
    } else {
        quotient
    })
}

/// The decimal of a float's first 15 digits (`real`: 6), as PostgreSQL casts it. `None` for what is not finite.
fn decimal_of_float(value: f64, from: Kind, scale: u8) -> Option<i128> {
    if !value.is_finite() {
        return None;
    }
    let text = match from {
        Kind::Float4 => format!("{value:.5e}"),
        _ => format!("{value:.14e}"),
    };
    let (digits, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let fraction = digits
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let units: i128 = digits.replace('.', "").parse().ok()?;
    // `units` are of the scale `fraction - exponent`.
    let before = i32::try_from(fraction).ok()? - exponent;
    match u8::try_from(before) {
        Ok(before) => match before.saturating_sub(scale) > 38 {
            true => Some(0),
            false => rescaled(units, before, scale),
        },
        Err(_) if before > 0 => Some(0),
        Err(_) => {
            let more = u32::from(scale) + before.unsigned_abs();
            units.checked_mul(10_i128.checked_pow(more)?)
        }
    }
}

fn from_text(cells: &Cells, to: Kind, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let constant = cells.is_constant;
    let texts = cells.texts();
    // PostgreSQL's white space.
    let text =
        |row| texts(row).map(|text| text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']));
    let wrong =
        |text: &str, reason: &str| format!("{} cannot be read as {to}: it {reason}", quoted(text));
    let int = |text: &str| -> Result<i64, String> {
        let value = match to {
            Kind::Date => time::parse_date(text.as_bytes()).map(i64::from),
            Kind::Timestamp | Kind::Timestamptz => {
                let zoned = to == Kind::Timestamptz;
                let parsed = time::parse_timestamp(text.as_bytes(), TimeUnit::Microsecond, zoned);
                // A day alone is its midnight; in which zone, only a session knows.
                let day = || time::parse_date(text.as_bytes()).ok().filter(|_| !zoned);
                match (parsed, day()) {
                    (Err(_), Some(day)) => Ok(i64::from(day) * MICROS_PER_DAY),
                    (parsed, _) => parsed,
                }
            }
            _ => number::parse_i64(text.strip_prefix('+').unwrap_or(text).as_bytes()),
        };
        let value = value.map_err(|reason| wrong(text, reason))?;
        match to.is_integer() {
            true => within(value, to).map_err(|_| wrong(text, "is out of range")),
            false => Ok(value),
        }
    };
    match to {
        Kind::Bool => rows.bools(constant, |row| {
            text(row)
                .map(|text| boolean(text).ok_or_else(|| wrong(text, "is neither true nor false")))
                .transpose()
        }),
        Kind::Float4 => rows.floats(constant, |row| {
            let float = |text: &str| number::parse_float::<f32>(text.as_bytes()).map(f64::from);
            text(row)
                .map(|text| float(text).map_err(|reason| wrong(text, reason)))
                .transpose()
        }),
        Kind::Float8 => rows.floats(constant, |row| {
            let float = |text: &str| number::parse_float::<f64>(text.as_bytes());
            text(row)
                .map(|text| float(text).map_err(|reason| wrong(text, reason)))
                .transpose()
        }),
        Kind::Decimal(precision, scale) => rows.decimals(constant, |row| {
            let units = |text: &str| decimal::parse_i128(text.as_bytes(), precision, scale as i8);
            text(row)
                .map(|text| units(text).map_err(|reason| wrong(text, reason)))
                .transpose()
        }),
        Kind::Text => Ok(cells.clone()),
        _ => rows.ints(constant, |row| text(row).map(int).transpose()),
    }
}

/// A value in a message, cut where it is long.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Each beginning that only one of the words has.
fn boolean(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" {
        return Some(true);
    }
    (begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0").then_some(false)
}

/// Appends the text of a value, which is not NULL, as PostgreSQL writes it in the time zone UTC.
pub fn write(cells: &Cells, kind: Kind, row: usize, text: &mut String) {
    let mut bytes = Vec::new();
    match kind {
        Kind::Bool => {
            let value = cells.bools()(row).unwrap_or_default();
            return text.push_str(if value { "true" } else { "false" });
        }
        Kind::Text => return text.push_str(cells.texts()(row).unwrap_or_default()),
        Kind::Float4 | Kind::Float8 => {
            let value = cells.floats()(row).unwrap_or_default();
            return write_float(value, kind, text);
        }
        Kind::Decimal(_, scale) => {
            let value = cells.decimals()(row).unwrap_or_default();
            decimal::write_i128(value, scale as i8, &mut bytes);
        }
        Kind::Int2 | Kind::Int4 | Kind::Int8 => {
            number::write_int(cells.ints()(row).unwrap_or_default(), &mut bytes);
        }
        Kind::Date | Kind::Timestamp | Kind::Timestamptz => {
            let value = cells.ints()(row).unwrap_or_default();
            return write_time(value, kind, text);
        }
    }
    text.push_str(&String::from_utf8_lossy(&bytes));
}

fn write_time(value: i64, kind: Kind, text: &mut String) {
    let mut bytes = Vec::new();
    match kind {
        // A date of 32 bits.
        Kind::Date => time::write_date(value as i32, &mut bytes),
        _ => time::write_timestamp(value, TimeUnit::Microsecond, false, &mut bytes),
    }
    let written = String::from_utf8_lossy(&bytes).replacen('T', " ", 1);
    let written = match written.contains('.') {
        true => written.trim_end_matches('0'),
        false => &written,
    };
    let (sign, positive) = match written.strip_prefix('-') {
        Some(positive) => (true, positive),
        None => (false, written),
    };
    let (year, rest) = positive.split_once('-').unwrap_or((positive, ""));
    let is_before = sign || year.chars().all(|digit| digit == '0');
    let zone = if kind == Kind::Timestamptz { "+00" } else { "" };
    if !is_before {
        text.push_str(written);
        return text.push_str(zone);
    }
    // The year 0 is the first one before Christ.
    let year: i64 = year.parse().unwrap_or_default();
    text.push_str(&format!("{:04}-{rest}{zone} BC", year + 1));
}

/// The shortest digits that give the value back, with an exponent where the number is far from 1.
fn write_float(value: f64, kind: Kind, text: &mut String) {
    if !value.is_finite() {
        return text.push_str(match value {
            f64::INFINITY => "Infinity",
            f64::NEG_INFINITY => "-Infinity",
            _ => "NaN",
        });
    }
    let (shortest, most) = match kind {
        Kind::Float4 => (format!("{:e}", value as f32), 6),
        _ => (format!("{value:e}"), 15),
    };
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..most).contains(&exponent) {
        return text.push_str(&match kind {
            Kind::Float4 => format!("{}", value as f32),
            _ => format!("{value}"),
        });
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    text.push_str(&format!("{digits}e{sign}{:02}", exponent.unsigned_abs()));
}
