//! Values of the cursor field, and the order of the database among them.

use std::cmp::Ordering;

use arrow_schema::TimeUnit;
use rapidbyte_formats::text::time;
use rapidbyte_sdk::prelude::*;

use super::WRITTEN;

/// The largest number up to which a float64 holds every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value that can be put in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mark {
    Number(f64),
    Text(String),
}

impl Mark {
    pub(super) fn of_json(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::Number(number) => number.as_f64().map(Self::Number),
            serde_json::Value::String(text) => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "checked")]
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
                (*number as i64).into()
            }
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^53")]
    pub(super) fn seconds(seconds: u64) -> Self {
        Self::Number(seconds as f64)
    }

    /// `None` for values of two types.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.partial_cmp(other),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }
}

pub(super) fn is_number(column: &Field) -> bool {
    column.data_type().is_numeric()
}

/// `cursor_initial`: a number for columns of numbers, and the text for all others.
pub(super) fn initial_value(text: &str, column: &Field) -> Result<Mark> {
    if !is_number(column) {
        return Ok(Mark::Text(text.to_owned()));
    }
    let seconds = |text: &str| {
        // The seconds of `_ts` may be written as a time.
        let parsed = time::parse_timestamp(text.as_bytes(), TimeUnit::Second, true).ok()?;
        u64::try_from(parsed).ok().map(Mark::seconds)
    };
    let number = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    let found = match column.name() == WRITTEN {
        true => number.map(Mark::Number).or_else(|| seconds(text)),
        false => number.map(Mark::Number),
    };
    found.ok_or_else(|| {
        let field = column.name();
        let text = format!("cursor_initial {text:?} is not a number, as {field} is");
        Error::config("invalid_cursor_initial", text)
            .hint("write a number, or for _ts a time such as 2026-01-01T00:00:00Z")
    })
}
