//! The type of a plain scalar: the core schema of YAML 1.2 (section 10.3 of its specification).
//!
//! Three things that the schema allows are refused, since each would change what somebody wrote:
//! an integer with leading zeros (`007`), one beyond 64 bits, and a number without a value in
//! JSON (`.inf`, `.nan`, `1e999`).

use serde_json::{Number, Value};

/// Why a plain scalar is refused, and what to do; neither text holds the scalar itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) message: &'static str,
    pub(super) hint: &'static str,
}

/// The value of a plain scalar.
pub(super) fn value(text: &str) -> Result<Value, Refused> {
    if is_null(text) {
        return Ok(Value::Null);
    }
    match text {
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    if let Some((digits, radix)) = radix_digits(text) {
        return match u64::from_str_radix(digits, radix) {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => Err(BEYOND_64_BITS),
        };
    }
    if is_decimal_integer(text) {
        return integer(text);
    }
    if is_infinity_or_nan(text) {
        return Err(NO_FINITE_NUMBER);
    }
    if is_float(text) {
        let number = text.parse().ok().and_then(Number::from_f64);
        return number.map(Value::Number).ok_or(NO_FINITE_NUMBER);
    }
    Ok(Value::String(text.to_owned()))
}

/// Whether a plain scalar is null: nothing, `~` or a spelling of `null`.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Whether a plain scalar is text.
pub(super) fn is_text(text: &str) -> bool {
    matches!(value(text), Ok(Value::String(_)))
}

const BEYOND_64_BITS: Refused = Refused {
    message: "an integer that does not fit in 64 bits",
    hint: "put it in quotes to pass it as a string",
};

const LEADING_ZEROS: Refused = Refused {
    message: "an integer with leading zeros, which a number would lose",
    hint: "put it in quotes to pass it as a string",
};

const NO_FINITE_NUMBER: Refused = Refused {
    message: "not a finite number",
    hint: "put it in quotes to pass it as a string",
};

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// `0o17` and `0x1F`, which have no sign.
fn radix_digits(text: &str) -> Option<(&str, u32)> {
    let (digits, radix) = match text.get(..2)? {
        "0o" => (&text[2..], 8),
        "0x" => (&text[2..], 16),
        _ => return None,
    };
    let all = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    all.then_some((digits, radix))
}

fn is_decimal_integer(text: &str) -> bool {
    all_digits(unsigned(text))
}

fn integer(text: &str) -> Result<Value, Refused> {
    let digits = unsigned(text);
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(LEADING_ZEROS);
    }
    let signed = text.parse::<i64>().map(Value::from);
    signed
        .or_else(|_| text.parse::<u64>().map(Value::from))
        .map_err(|_| BEYOND_64_BITS)
}

fn is_infinity_or_nan(text: &str) -> bool {
    matches!(unsigned(text), ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn is_float(text: &str) -> bool {
    let text = unsigned(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    if exponent.is_some_and(|exponent| !all_digits(unsigned(exponent))) {
        return false;
    }
    match mantissa.split_once('.') {
        None => all_digits(mantissa),
        Some(("", fraction)) => all_digits(fraction),
        Some((whole, fraction)) => {
            all_digits(whole) && (fraction.is_empty() || all_digits(fraction))
        }
    }
}
