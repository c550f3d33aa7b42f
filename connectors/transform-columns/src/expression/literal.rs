//! Constants.

use rapidbyte_sdk::prelude::arrow_array::types::Decimal128Type;
use rapidbyte_sdk::prelude::*;

use super::cells::{Cells, Values};
use super::kind::{Kind, MAX_DIGITS};
use super::tree::{Node, Typed};

/// A number as SQL writes it, with its sign: an integer of the smallest type that holds it, else a decimal.
pub fn number(text: &str) -> Result<Typed, String> {
    let too_many = || format!("{text} has more than {MAX_DIGITS} digits");
    if let Ok(value) = text.parse::<i64>() {
        let kind = match i32::try_from(value) {
            Ok(_) => Kind::Int4,
            Err(_) => Kind::Int8,
        };
        return Ok(constant(kind, Values::Int(vec![value].into())));
    }
    let (written, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| too_many())?;
    let (sign, positive) = match written.strip_prefix('-') {
        Some(positive) => ("-", positive),
        None => ("", written),
    };
    let (whole, fraction) = positive.split_once('.').unwrap_or((positive, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("{text} is not a number"));
    }
    // The exponent moves the point.
    let scale = fraction.len() as i64 - exponent;
    let zeros = usize::try_from((-scale).max(0)).unwrap_or(usize::MAX);
    if zeros > MAX_DIGITS.into() || scale > MAX_DIGITS.into() {
        return Err(too_many());
    }
    let digits = format!("{}{}", all.trim_start_matches('0'), "0".repeat(zeros));
    // No more than 38.
    let scale = scale.max(0) as u8;
    let precision = u8::try_from(digits.len())
        .ok()
        .map(|digits| digits.max(scale).max(1));
    let precision = precision
        .filter(|precision| *precision <= MAX_DIGITS)
        .ok_or_else(too_many)?;
    let units: i128 = match digits.as_str() {
        "" => 0,
        digits => format!("{sign}{digits}").parse().map_err(|_| too_many())?,
    };
    let kind = Kind::Decimal(precision, scale);
    Ok(constant(
        kind,
        Values::Decimal(PrimitiveArray::<Decimal128Type>::from(vec![units])),
    ))
}

pub fn text(text: &str) -> Typed {
    constant(Kind::Text, Values::Text(vec![text].into()))
}

pub fn bool(value: bool) -> Typed {
    constant(Kind::Bool, Values::Bool(vec![value].into()))
}

fn constant(kind: Kind, values: Values) -> Typed {
    Typed {
        kind,
        is_nullable: false,
        node: Node::Constant(Cells::new(values, true)),
    }
}

/// NULL of a type.
pub fn null(kind: Kind) -> Typed {
    let values = match kind {
        Kind::Bool => Values::Bool(vec![None].into()),
        Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Date | Kind::Timestamp | Kind::Timestamptz => {
            Values::Int(vec![None].into())
        }
        Kind::Float4 | Kind::Float8 => Values::Float(vec![None].into()),
        Kind::Decimal(..) => Values::Decimal(PrimitiveArray::<Decimal128Type>::from(vec![None])),
        Kind::Text => Values::Text(vec![None::<&str>].into()),
    };
    Typed {
        is_nullable: true,
        ..constant(kind, values)
    }
}

/// A number or a boolean of a configuration.
///
/// # Errors
/// Another value; a number that has more digits than the configuration keeps.
pub fn value(value: &serde_json::Value) -> Result<Typed, String> {
    match value {
        serde_json::Value::Bool(value) => Ok(bool(*value)),
        serde_json::Value::Number(_) => number(&exact(value)?),
        _ => Err("write a number, true or false, or an expression".into()),
    }
}

/// The text of a number. A configuration keeps 15 digits of one with a fraction.
pub fn exact(value: &serde_json::Value) -> Result<String, String> {
    const KEPT: usize = 15;
    let written = value.to_string();
    let significant = written.split(['e', 'E']).next().unwrap_or_default();
    let digits = significant.trim_start_matches(['-', '0', '.']);
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    let is_whole = value.is_i64() || value.is_u64();
    match is_whole || digits <= KEPT {
        true => Ok(written),
        false => Err(format!(
            "a number of more than {KEPT} digits loses some of them: write it in quotes"
        )),
    }
}

/// The text of a constant that nothing has given another type yet.
pub fn written(typed: &Typed) -> Option<&str> {
    match &typed.node {
        Node::Constant(Cells {
            values: Values::Text(text),
            ..
        }) if text.is_valid(0) => Some(text.value(0)),
        _ => None,
    }
}

/// NULL that nothing has given a type yet.
pub fn is_null(typed: &Typed) -> bool {
    matches!(&typed.node, Node::Constant(cells) if cells.is_null(0) && typed.kind == Kind::Text)
}

/// A constant that may still be of any type: text as it is written, or NULL.
pub fn is_open(typed: &Typed) -> bool {
    written(typed).is_some() || is_null(typed)
}
