//! Constants.

use rapidbyte_formats::text as spelled;
use rapidbyte_sdk::prelude::arrow_array::types::Decimal128Type;
use rapidbyte_sdk::prelude::*;

use super::cells::{Cells, Values};
use super::kind::{Kind, MAX_DIGITS};
use super::{Node, Typed};

/// A number as SQL writes it: an integer of the smallest type that holds it, else a decimal. An exponent makes a float.
pub fn number(text: &str) -> Result<Typed, String> {
    let typed = |kind, values| Ok(constant(kind, values));
    if text.contains(['e', 'E']) {
        let value = spelled::number::parse_float::<f64>(text.as_bytes());
        let value = value.map_err(|reason| format!("{text} {reason}"))?;
        return typed(Kind::Float8, Values::Float(vec![value].into()));
    }
    if let Ok(value) = text.parse::<i64>() {
        let kind = match i32::try_from(value) {
            Ok(_) => Kind::Int4,
            Err(_) => Kind::Int8,
        };
        return typed(kind, Values::Int(vec![value].into()));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    let precision = u8::try_from(digits.max(1))
        .ok()
        .filter(|p| *p <= MAX_DIGITS);
    let (Some(precision), Ok(value)) = (precision, format!("{whole}{fraction}").parse::<i128>())
    else {
        return Err(format!("{text} has more than {MAX_DIGITS} digits"));
    };
    // No more than the precision.
    let kind = Kind::Decimal(precision.max(fraction.len() as u8), fraction.len() as u8);
    typed(
        kind,
        Values::Decimal(PrimitiveArray::<Decimal128Type>::from(vec![value])),
    )
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

/// A value of a configuration: a number, a text, a boolean.
pub fn value(value: &serde_json::Value) -> Result<Typed, String> {
    match value {
        serde_json::Value::Bool(value) => Ok(bool(*value)),
        serde_json::Value::Number(value) => {
            let written = value.to_string();
            match written.strip_prefix('-') {
                Some(positive) => Ok(super::parse::negated(number(positive)?)),
                None => number(&written),
            }
        }
        serde_json::Value::String(value) => Ok(text(value)),
        _ => Err("write a number, a text, or true or false".into()),
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
