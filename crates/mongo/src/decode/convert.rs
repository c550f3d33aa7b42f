//! What a value of BSON is in the type of a column: exactly, or not at all.

use std::borrow::Cow;

use arrow_buffer::i256;
use rapidbyte_bson::Value;

use crate::decimal::Decimal;
use crate::error::Problem;

const RANGE: Problem = Problem::Value("the number is out of the range of the column's type");
const FRACTION: Problem = Problem::Value("the number has a fraction");
pub(super) const PRECISION: Problem =
    Problem::Value("the number has more digits than the column's decimal");

pub(super) fn utf8(text: &[u8]) -> Result<&str, Problem> {
    // Names and strings were UTF-8, and everything else is ASCII.
    std::str::from_utf8(text).map_err(|_| Problem::Value("the text is not UTF-8"))
}

fn wrong(value: Value<'_>, column: &str) -> Problem {
    Problem::Kind {
        found: value.kind(),
        column: column.to_owned(),
    }
}

/// A whole number of any of the four types of numbers.
fn whole(value: Value<'_>) -> Result<i128, Problem> {
    let (is_negative, coefficient, exponent) = parts(value)?;
    let mut number = i128::try_from(coefficient).map_err(|_| RANGE)?;
    for _ in 0..exponent.unsigned_abs().min(40) {
        match exponent < 0 {
            true if number % 10 != 0 => return Err(FRACTION),
            true => number /= 10,
            false => number = number.checked_mul(10).ok_or(RANGE)?,
        }
    }
    Ok(if is_negative { -number } else { number })
}

/// Sign, coefficient and exponent of a number, exactly. A double must be whole.
fn parts(value: Value<'_>) -> Result<(bool, u128, i32), Problem> {
    const ZERO: Problem = Problem::Value("the number is -0, which the column's type does not have");
    const FINITE: Problem = Problem::Value("the number is not finite");
    let (is_negative, coefficient, exponent) = match value {
        Value::Int32(number) => (number < 0, number.unsigned_abs().into(), 0),
        Value::Int64(number) => (number < 0, number.unsigned_abs().into(), 0),
        Value::Double(number) => {
            if !number.is_finite() {
                return Err(FINITE);
            }
            if number.fract() != 0.0 {
                return Err(FRACTION);
            }
            if number.abs() >= 1e38 {
                return Err(RANGE);
            }
            // Whole and small enough: exact.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked"
            )]
            let coefficient = number.abs() as u128;
            (number.is_sign_negative(), coefficient, 0)
        }
        Value::Decimal128(bytes) => match Decimal::of_bytes(bytes) {
            Some(Decimal::Finite {
                is_negative,
                coefficient,
                exponent,
            }) => (is_negative, coefficient, exponent),
            Some(_) => return Err(FINITE),
            None => return Err(Problem::DecimalSpelling),
        },
        value => return Err(wrong(value, "numbers")),
    };
    match coefficient {
        0 if is_negative => Err(ZERO),
        0 => Ok((false, 0, 0)),
        _ => Ok((is_negative, coefficient, exponent)),
    }
}

pub(super) fn narrow<T: TryFrom<i128>>(value: Value<'_>) -> Result<T, Problem> {
    T::try_from(whole(value)?).map_err(|_| RANGE)
}

/// A number that a double holds exactly.
pub(super) fn float(value: Value<'_>) -> Result<f64, Problem> {
    match value {
        Value::Double(number) => Ok(number),
        Value::Int32(number) => Ok(number.into()),
        Value::Int64(number) => {
            #[expect(clippy::cast_precision_loss, reason = "checked behind it")]
            let float = number as f64;
            match float as i128 == i128::from(number) {
                true => Ok(float),
                false => Err(Problem::Value("the number has more digits than a float64")),
            }
        }
        value => Err(wrong(value, "floats")),
    }
}

/// A number times `10^scale`: its sign and its amount.
pub(super) fn scaled(value: Value<'_>, precision: u8, scale: i8) -> Result<(bool, i256), Problem> {
    let (is_negative, coefficient, exponent) = parts(value)?;
    // Below 10^38.
    let amount = i128::try_from(coefficient).map_err(|_| PRECISION)?;
    let mut amount = i256::from_i128(amount);
    let shift = exponent + i32::from(scale);
    let ten = i256::from_i128(10);
    if amount != i256::ZERO {
        for _ in 0..shift.unsigned_abs().min(80) {
            let moved = match shift < 0 {
                true if amount.wrapping_rem(ten) != i256::ZERO => return Err(PRECISION),
                true => amount.checked_div(ten),
                false => amount.checked_mul(ten),
            };
            amount = moved.ok_or(PRECISION)?;
        }
    }
    match ten.checked_pow(precision.into()) {
        Some(end) if amount >= end => Err(PRECISION),
        _ => Ok((is_negative, amount)),
    }
}

/// Strings, and values that have one text.
pub(super) fn text(value: Value<'_>) -> Result<Cow<'_, str>, Problem> {
    Ok(match value {
        Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => text.into(),
        Value::ObjectId(id) => {
            let mut hex = Vec::with_capacity(24);
            crate::hex(&id, &mut hex);
            utf8(&hex)?.to_owned().into()
        }
        Value::Decimal128(bytes) => {
            let decimal = Decimal::of_bytes(bytes).ok_or(Problem::DecimalSpelling)?;
            decimal.to_string().into()
        }
        value => return Err(wrong(value, "strings")),
    })
}

/// Bytes without a special meaning.
pub(super) fn generic(value: Value<'_>) -> Result<&[u8], Problem> {
    match value {
        Value::Binary { subtype: 0, bytes } => Ok(bytes),
        // The bytes of this older subtype begin with their length.
        Value::Binary { subtype: 2, bytes } => match bytes.split_first_chunk() {
            Some((length, rest)) if i32::from_le_bytes(*length) as usize == rest.len() => Ok(rest),
            _ => Err(Problem::OldBinary),
        },
        Value::Binary { .. } => Err(Problem::Value(
            "the bytes have a subtype, which a column of bytes does not keep",
        )),
        value => Err(wrong(value, "bytes")),
    }
}
