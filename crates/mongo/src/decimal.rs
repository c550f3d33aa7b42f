//! Decimal128 of IEEE 754-2008 in its binary form (BID), as BSON holds it.
//!
//! A value is a sign, a coefficient of at most 34 digits and an exponent of ten, so `1.0` and `1.00` are two values.
//! The text is the one of the BSON specification of Decimal128: `1.00`, `1E+3`, `-0`, `NaN`, `Infinity`.

use std::fmt;
use std::str::FromStr;

/// The least number that has too many digits: 10^34.
const COEFFICIENT_END: u128 = 10u128.pow(34);
const BIAS: i32 = 6176;
const MIN_EXPONENT: i32 = -BIAS;
const MAX_EXPONENT: i32 = 6111;
const NAN: u128 = 0x7c << 120;
const INFINITY: u128 = 0x78 << 120;
const SIGN: u128 = 1 << 127;
/// Longer texts are no decimals; zeros alone could be endless.
const MAX_TEXT: usize = 10_000;

/// A decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decimal {
    /// Not a number.
    NaN,
    /// An infinity.
    Infinity {
        /// Below zero.
        is_negative: bool,
    },
    /// `coefficient × 10^exponent`.
    Finite {
        /// Below zero, or `-0`.
        is_negative: bool,
        /// Below 10^34.
        coefficient: u128,
        /// From -6176 to 6111.
        exponent: i32,
    },
}

impl Decimal {
    /// A finite decimal; nothing if its coefficient or its exponent has no room. The exponent is changed where zeros
    /// of the coefficient allow it.
    pub fn finite(is_negative: bool, coefficient: u128, exponent: i64) -> Option<Self> {
        let (mut coefficient, mut exponent) = (coefficient, exponent);
        while coefficient >= COEFFICIENT_END || exponent < MIN_EXPONENT.into() {
            if coefficient == 0 {
                exponent = MIN_EXPONENT.into();
                break;
            }
            if coefficient % 10 != 0 {
                return None;
            }
            coefficient /= 10;
            exponent += 1;
        }
        if coefficient == 0 {
            exponent = exponent.min(MAX_EXPONENT.into());
        }
        while exponent > MAX_EXPONENT.into() {
            coefficient = coefficient.checked_mul(10)?;
            if coefficient >= COEFFICIENT_END {
                return None;
            }
            exponent -= 1;
        }
        let exponent = i32::try_from(exponent).ok()?;
        Some(Self::Finite {
            is_negative,
            coefficient,
            exponent,
        })
    }

    /// The decimal of these bytes; nothing where they are another spelling of it, such as a NaN with a payload or a
    /// coefficient with too many digits: written again, they would be other bytes.
    pub fn of_bytes(bytes: [u8; 16]) -> Option<Self> {
        let bits = u128::from_le_bytes(bytes);
        let is_negative = bits & SIGN != 0;
        let decimal = match bits & !SIGN {
            NAN if !is_negative => Self::NaN,
            INFINITY => Self::Infinity { is_negative },
            // The other spelling of the coefficient has too many digits always.
            rest if rest >> 125 == 0b11 => return None,
            rest => Self::Finite {
                is_negative,
                coefficient: rest & ((1 << 113) - 1),
                exponent: (rest >> 113) as i32 - BIAS,
            },
        };
        match decimal {
            Self::Finite { coefficient, .. } if coefficient >= COEFFICIENT_END => None,
            decimal => Some(decimal),
        }
    }

    /// The bytes of BSON.
    pub fn to_bytes(self) -> [u8; 16] {
        let bits = match self {
            Self::NaN => NAN,
            Self::Infinity { is_negative } => INFINITY | sign(is_negative),
            Self::Finite {
                is_negative,
                coefficient,
                exponent,
            } => sign(is_negative) | (((exponent + BIAS) as u128) << 113) | coefficient,
        };
        bits.to_le_bytes()
    }
}

fn sign(is_negative: bool) -> u128 {
    if is_negative { SIGN } else { 0 }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_negative, coefficient, exponent) = match *self {
            Self::NaN => return f.write_str("NaN"),
            Self::Infinity { is_negative } => {
                return f.write_str(if is_negative { "-Infinity" } else { "Infinity" });
            }
            Self::Finite {
                is_negative,
                coefficient,
                exponent,
            } => (is_negative, coefficient, exponent),
        };
        if is_negative {
            f.write_str("-")?;
        }
        let digits = coefficient.to_string();
        let adjusted = exponent + digits.len() as i32 - 1;
        if exponent > 0 || adjusted < -6 {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            return write!(f, "{first}{point}{rest}E{adjusted:+}");
        }
        let behind = exponent.unsigned_abs() as usize;
        match digits.len().checked_sub(behind) {
            Some(_) if behind == 0 => f.write_str(&digits),
            Some(before) if before > 0 => {
                write!(f, "{}.{}", &digits[..before], &digits[before..])
            }
            _ => write!(f, "0.{digits:0>behind$}"),
        }
    }
}

/// A text that is not a decimal of at most 34 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDecimal {
    /// It is not a number.
    #[error("the text is not a number")]
    Text,
    /// It has too many digits, or an exponent that is too large.
    #[error("the number has more digits than a Decimal128 holds")]
    Digits,
}

impl FromStr for Decimal {
    type Err = NotDecimal;

    /// Reads a number exactly: nothing is rounded.
    fn from_str(text: &str) -> Result<Self, NotDecimal> {
        if text.len() > MAX_TEXT {
            return Err(NotDecimal::Digits);
        }
        let (is_negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest.eq_ignore_ascii_case("nan") {
            return Ok(Self::NaN);
        }
        if rest.eq_ignore_ascii_case("infinity") || rest.eq_ignore_ascii_case("inf") {
            return Ok(Self::Infinity { is_negative });
        }
        let (number, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], exponent(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let (before, behind) = number.split_once('.').unwrap_or((number, ""));
        if before.is_empty() && behind.is_empty() {
            return Err(NotDecimal::Text);
        }
        // Zeros at the end of too many digits go into the exponent.
        let digits = || before.bytes().chain(behind.bytes());
        if !digits().all(|byte| byte.is_ascii_digit()) {
            return Err(NotDecimal::Text);
        }
        let (mut coefficient, mut dropped) = (0u128, 0i64);
        for digit in digits() {
            let digit = u128::from(digit - b'0');
            if dropped == 0 && coefficient < COEFFICIENT_END {
                coefficient = coefficient * 10 + digit;
            } else if digit == 0 {
                dropped += 1;
            } else {
                return Err(NotDecimal::Digits);
            }
        }
        let exponent = exponent - behind.len() as i64 + dropped;
        Self::finite(is_negative, coefficient, exponent).ok_or(NotDecimal::Digits)
    }
}

fn exponent(text: &str) -> Result<i64, NotDecimal> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotDecimal::Text);
    }
    // Beyond this the sum with the digits would overflow, and no value is so large.
    let value: i64 = digits.parse().map_err(|_| NotDecimal::Digits)?;
    match value > 1_000_000 {
        true => Err(NotDecimal::Digits),
        false if text.starts_with('-') => Ok(-value),
        false => Ok(value),
    }
}
