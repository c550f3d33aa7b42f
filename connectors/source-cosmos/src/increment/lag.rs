//! `lag`: how far below the cursor a read begins.

use arrow_schema::TimeUnit;
use rapidbyte_formats::text::time;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;

use super::WRITTEN;
use super::mark::{Mark, is_number};

/// How far below the cursor a read begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lag {
    /// For numbers; of `_ts` in seconds.
    Number(f64),
    /// For times, in seconds.
    Seconds(i64),
}

impl Lag {
    /// Errors: `invalid_lag`.
    pub(super) fn parse(text: &str, column: &Field) -> Result<Self> {
        let is_time = matches!(column.data_type(), DataType::Timestamp(_, Some(_)));
        let number = text.trim().parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        #[expect(clippy::cast_precision_loss, reason = "seconds of a lag")]
        let lag = match (duration_s(text), number) {
            (Some(seconds), _) if is_time => Some(Self::Seconds(seconds)),
            (Some(seconds), _) if column.name() == WRITTEN => Some(Self::Number(seconds as f64)),
            (None, Some(number)) if is_number(column) => Some(Self::Number(number)),
            _ => None,
        };
        lag.ok_or_else(|| {
            let (name, ty) = (column.name(), type_name(column));
            invalid_lag(format!(
                "the lag {text:?} does not fit {name}, a column of {ty}"
            ))
        })
    }

    pub(super) fn below(self, mark: &Mark, field: &str) -> Result<Mark> {
        match (self, mark) {
            (Self::Number(lag), Mark::Number(number)) => Ok(Mark::Number(number - lag)),
            (Self::Seconds(lag), Mark::Text(text)) => {
                let bytes = text.as_bytes();
                let parsed = time::parse_timestamp(bytes, TimeUnit::Nanosecond, true);
                let nanos = parsed
                    .map_err(|why| invalid_lag(format!("the cursor {text:?} of {field} {why}")))?;
                let seconds = nanos.div_euclid(1_000_000_000).saturating_sub(lag);
                let mut text = Vec::new();
                // Without a zone it is less than every text of this second, with a fraction and without one.
                time::write_timestamp(seconds, TimeUnit::Second, false, &mut text);
                Ok(Mark::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            _ => Err(invalid_lag(format!(
                "the cursor has a {field} of a type that the lag does not fit"
            ))),
        }
    }
}

fn invalid_lag(text: String) -> Error {
    Error::config("invalid_lag", text).hint(
        "write a duration such as `5 minutes` for _ts and for times in UTC, and a number such as 1000 for numbers; \
         strings have no lag",
    )
}

/// `5 minutes`, `1 hour`, in whole seconds.
fn duration_s(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: i64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "ms" | "millisecond" | "milliseconds" => return Some(number.div_euclid(1000) + 1),
        "s" | "second" | "seconds" => 1,
        "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        _ => return None,
    };
    number.checked_mul(unit)
}
