//! Shares of rows, as the limits of `rejects` and `deletes`.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::declare::Kind;
use super::kinds::or_variable;

/// Parts of a whole share.
const WHOLE: u32 = 1_000_000;

/// A share of some rows, exact in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// All rows.
    pub const WHOLE: Self = Self(WHOLE);
    /// One of ten.
    pub(super) const TENTH: Self = Self(WHOLE / 10);

    /// Reads a percentage above 0 and at most 100, with at most four digits behind its point.
    pub fn of_percent(text: &str) -> Option<Self> {
        let parts = fixed(text, 4).filter(|parts| *parts > 0 && !text.ends_with('.'));
        parts.map(Self)
    }

    /// The share in millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// Whether `part` of `all` is more than this share.
    pub fn is_exceeded(self, part: u64, all: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) > u128::from(all) * u128::from(self.0)
    }

    fn number(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.number())
    }
}

/// A number from 0 to 1 with at most six digits behind its point.
pub(super) fn share() -> Kind<Share> {
    let schema = || {
        or_variable(vec![
            json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        ])
    };
    Kind::new(schema, |at| {
        let text = at.text()?;
        fixed(&text.text, 6).map(Share).ok_or_else(|| {
            let message = format!("{at} cannot be {}", text.shown());
            at.bad_value(message).hint(
                "write a share from 0 to 1, with at most six digits behind the point, such as 0.1",
            )
        })
    })
}

/// The number in the text times ten to the power of `places`. `None` if it has more digits behind its point, or if the
/// result is above one million.
fn fixed(text: &str, places: usize) -> Option<u32> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let is_number =
        !whole.is_empty() && [whole, digits].concat().bytes().all(|b| b.is_ascii_digit());
    if !is_number || digits.len() > places {
        return None;
    }
    let parts = format!("{whole}{digits:0<places$}").parse::<u32>().ok()?;
    (parts <= WHOLE).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::{Share, fixed};

    #[test]
    fn a_share_is_read_exactly() {
        for (text, parts) in [
            ("0", Some(0)),
            ("0.1", Some(100_000)),
            ("0.000001", Some(1)),
            ("1", Some(1_000_000)),
            ("1.0", Some(1_000_000)),
            ("0.", Some(0)),
            ("1.000001", None),
            ("0.0000001", None),
            ("2", None),
            ("-0.1", None),
            ("1e-1", None),
            (".5", None),
            ("10%", None),
            ("", None),
        ] {
            assert_eq!(fixed(text, 6), parts, "{text:?}");
        }
    }

    #[test]
    fn a_percentage_is_read_exactly() {
        for (text, parts) in [
            ("5", Some(50_000)),
            ("0.5", Some(5_000)),
            ("0.0001", Some(1)),
            ("100", Some(1_000_000)),
            ("0", None),
            ("101", None),
            ("0.00001", None),
            ("5.", None),
            (".5", None),
            ("x", None),
        ] {
            let share = Share::of_percent(text).map(Share::millionths);
            assert_eq!(share, parts, "{text:?}");
        }
    }

    #[test]
    fn a_share_is_exceeded_by_the_first_row_too_many() {
        for (share, part, all, expected) in [
            (0, 0, 0, false),
            (0, 1, 1_000_000, true),
            (100_000, 1, 10, false),
            (100_000, 2, 19, true),
            (1_000_000, u64::MAX, u64::MAX, false),
        ] {
            let exceeded = Share(share).is_exceeded(part, all);
            assert_eq!(exceeded, expected, "{part} of {all}");
        }
        assert_eq!(Share::TENTH.to_string(), "0.1");
    }
}
