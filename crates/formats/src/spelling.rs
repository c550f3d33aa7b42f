//! Which texts are the very ones that their values are written as: `1.5`, but not `1.50`, in a
//! `float64`.
//!
//! Inference chooses a type other than `string` only for such texts, and a decoder of an inferred
//! schema refuses all others, so that CSV comes back from CSV with the same characters. Types that
//! are never inferred have no spelling here.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, TimeUnit};

use crate::text::{decimal, number, time};

/// The metadata of a `float64` column whose whole values are written `39` and not `39.0` in CSV,
/// because the file that they come from has them so.
const FLOAT_TEXT: &str = "rapidbyte.float_text";
const BARE: &str = "bare";
/// Digits of an inferred decimal: the most that fit 16 bytes, for larger values may follow.
const PRECISION: u8 = 38;

/// True for a float column whose whole values have no point.
pub(crate) fn is_bare_float(field: &Field) -> bool {
    field.metadata().get(FLOAT_TEXT).is_some_and(|v| v == BARE)
}

/// The own texts of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    Bool,
    Whole,
    /// With this many digits after the point.
    Decimal(i8),
    Float {
        /// Whole values have no point.
        bare: bool,
    },
    Date,
    Timestamp(TimeUnit, bool),
}

impl Spelling {
    /// The types that a text may be inferred as, the best first.
    pub(crate) fn candidates(text: &[u8]) -> Vec<Self> {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond};
        let fraction = text.iter().rev().position(|b| *b == b'.').unwrap_or(0);
        // More digits than fit are found out below.
        let scale = i8::try_from(fraction).unwrap_or(0);
        let mut all = vec![
            Self::Bool,
            Self::Whole,
            Self::Decimal(scale),
            Self::Float { bare: false },
            Self::Float { bare: true },
            Self::Date,
        ];
        for zoned in [false, true] {
            let units = [Microsecond, Millisecond, Nanosecond];
            all.extend(units.map(|unit| Self::Timestamp(unit, zoned)));
        }
        all.retain(|spelling| spelling.holds(text));
        all
    }

    /// The spelling that values of an inferred column keep.
    pub(crate) fn of(field: &Field) -> Option<Self> {
        Some(match field.data_type() {
            DataType::Boolean => Self::Bool,
            DataType::Int64 => Self::Whole,
            DataType::Decimal128(PRECISION, scale) => Self::Decimal(*scale),
            DataType::Float64 => Self::Float {
                bare: is_bare_float(field),
            },
            DataType::Date32 => Self::Date,
            DataType::Timestamp(unit, zone) => Self::Timestamp(*unit, zone.is_some()),
            _ => return None,
        })
    }

    /// A nullable column of this type.
    pub(crate) fn field(self, name: &str) -> Field {
        let mut metadata = HashMap::new();
        let data_type = match self {
            Self::Bool => DataType::Boolean,
            Self::Whole => DataType::Int64,
            Self::Decimal(scale) => DataType::Decimal128(PRECISION, scale),
            Self::Float { bare } => {
                if bare {
                    metadata.insert(FLOAT_TEXT.into(), BARE.into());
                }
                DataType::Float64
            }
            Self::Date => DataType::Date32,
            Self::Timestamp(unit, zoned) => DataType::Timestamp(unit, zoned.then(|| "UTC".into())),
        };
        Field::new(name, data_type, true).with_metadata(metadata)
    }

    /// True if a text is a value of the type and what the value is written as.
    pub(crate) fn holds(self, text: &[u8]) -> bool {
        let is_value = match self {
            Self::Bool => true,
            Self::Whole => number::parse_i64(text).is_ok(),
            Self::Decimal(scale) => {
                (1..=PRECISION as i8).contains(&scale)
                    && decimal::parse_i128(text, PRECISION, scale).is_ok()
            }
            Self::Float { .. } => number::parse_float::<f64>(text).is_ok(),
            Self::Date => time::parse_date(text).is_ok(),
            Self::Timestamp(unit, zoned) => time::parse_timestamp(text, unit, zoned).is_ok(),
        };
        is_value && self.is_own(text)
    }

    /// True if a value of the type, read from `text`, is written as `text`.
    pub(crate) fn is_own(self, text: &[u8]) -> bool {
        match self {
            Self::Bool => matches!(text, b"true" | b"false"),
            Self::Whole => is_plain_whole(without_minus(text)) && text != b"-0",
            Self::Decimal(scale) => is_own_decimal(text, scale),
            Self::Float { bare } => {
                is_short_float(text, bare)
                    || same(text, |out| {
                        let value = number::parse_float::<f64>(text)?;
                        number::write_float_as(value, bare, out);
                        Ok(())
                    })
            }
            Self::Date => same(text, |out| {
                time::write_date(time::parse_date(text)?, out);
                Ok(())
            }),
            Self::Timestamp(unit, zoned) => {
                is_usual_timestamp(text, unit, zoned)
                    || same(text, |out| {
                        let value = time::parse_timestamp(text, unit, zoned)?;
                        time::write_timestamp(value, unit, zoned, out);
                        Ok(())
                    })
            }
        }
    }
}

fn same(text: &[u8], write: impl FnOnce(&mut Vec<u8>) -> Result<(), crate::text::Reason>) -> bool {
    let mut written = Vec::with_capacity(32);
    write(&mut written).is_ok() && written == text
}

fn without_minus(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"-").unwrap_or(text)
}

/// True for a decimal number without an exponent, blanks, `+`, leading zeros and the sign of a zero.
pub(crate) fn is_plain_number(text: &[u8]) -> bool {
    let digits = without_minus(text);
    let (whole, fraction) = split_point(digits);
    let has_point = whole.len() < digits.len();
    let is_zero = digits.iter().all(|byte| matches!(byte, b'0' | b'.'));
    is_plain_whole(whole)
        && fraction.iter().all(u8::is_ascii_digit)
        && has_point != fraction.is_empty()
        && !(is_zero && digits.len() < text.len())
}

/// Digits, without a zero in front.
fn is_plain_whole(digits: &[u8]) -> bool {
    match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The parts around the point of a plain number; the second is empty without one.
fn split_point(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

fn is_own_decimal(text: &[u8], scale: i8) -> bool {
    let (whole, fraction) = split_point(without_minus(text));
    let is_zero = |digits: &[u8]| digits.iter().all(|b| *b == b'0');
    is_plain_whole(whole)
        && usize::try_from(scale) == Ok(fraction.len())
        && fraction.iter().all(u8::is_ascii_digit)
        // The sign of a zero would be lost.
        && !(text.starts_with(b"-") && is_zero(whole) && is_zero(fraction))
}

/// Digits that every float64 keeps. Two different numbers of this many digits differ as floats too, so
/// none of them has a shorter text.
const KEPT_DIGITS: usize = 15;

/// True for floats whose own text this is, known without converting it; false for others too.
fn is_short_float(text: &[u8], bare: bool) -> bool {
    let digits = without_minus(text);
    let (whole, fraction) = split_point(digits);
    if digits.len() > KEPT_DIGITS + 1 || !is_plain_whole(whole) {
        return false;
    }
    match fraction {
        [] => bare && whole.len() == digits.len() && whole.len() <= KEPT_DIGITS,
        [b'0'] => !bare,
        // Floats from 0.001 on are written without an exponent.
        [first, ..] => {
            fraction.iter().all(u8::is_ascii_digit)
                && !fraction.ends_with(b"0")
                && (whole != b"0" || *first != b'0')
        }
    }
}

/// True for timestamps of years up to 9999 whose own text this is. The text is a timestamp.
fn is_usual_timestamp(text: &[u8], unit: TimeUnit, zoned: bool) -> bool {
    const SECONDS: usize = "2026-11-21T10:11:12".len();
    let text = match (zoned, text) {
        (true, [text @ .., b'Z']) => text,
        (true, _) => return false,
        (false, text) => text,
    };
    let Some((seconds, fraction)) = text.split_at_checked(SECONDS) else {
        return false;
    };
    let digits = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let whole = fraction.is_empty();
    let written = fraction.len() == digits + 1 && fraction[1..].iter().any(|b| *b != b'0');
    // The places of the signs show that every part has its usual width.
    (whole || (written && fraction[0] == b'.'))
        && seconds[0] != b'+'
        && (seconds[4], seconds[10], seconds[16]) == (b'-', b'T', b':')
}

/// True for a JSON number that loses no digit as a float64.
pub(crate) fn float_keeps(number: &[u8]) -> bool {
    let plain = number.len() <= KEPT_DIGITS && !number.iter().any(|b| matches!(b, b'e' | b'E'));
    plain || number::float_keeps_digits(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(text: &str) -> Option<Spelling> {
        Spelling::candidates(text.as_bytes()).first().copied()
    }

    #[test]
    fn a_text_is_its_own_spelling_or_none() {
        use Spelling::{Bool, Date, Decimal, Float, Timestamp, Whole};
        let (ms, us, ns) = (
            TimeUnit::Millisecond,
            TimeUnit::Microsecond,
            TimeUnit::Nanosecond,
        );
        for (texts, expected) in [
            (&["true", "false"][..], Some(Bool)),
            (&["0", "-1", "9223372036854775807"], Some(Whole)),
            (&["1.10", "0.00", "-0.05", "123.45"], Some(Decimal(2))),
            (
                &["-0.0", "NaN", "-Infinity", "1e+16", "5e-324"],
                Some(Float { bare: false }),
            ),
            (&["-0", "9007199254740992000"], None),
            (&["2026-11-21", "0001-01-01", "12345-06-07"], Some(Date)),
            (
                &["2026-11-21T10:11:12", "2026-11-21T10:11:12.000001"],
                Some(Timestamp(us, false)),
            ),
            (&["2026-11-21T10:11:12.120"], Some(Timestamp(ms, false))),
            (
                &["2026-11-21T10:11:12.000000100Z"],
                Some(Timestamp(ns, true)),
            ),
            (&["2026-11-21T10:11:12Z"], Some(Timestamp(us, true))),
            (
                &[
                    "",
                    " 1",
                    "1 ",
                    "+1",
                    "007",
                    "-01",
                    "1.",
                    ".5",
                    "+1.5",
                    "01.5",
                    "1e5",
                    "1E16",
                    "1e16",
                    "1.50e3",
                    "TRUE",
                    "t",
                    "nan",
                    "inf",
                    "0x1",
                    "1_000",
                    "1,5",
                    "-",
                    "9223372036854775808",
                    "2026-11-21 10:11:12",
                    "2026-11-21T10:11",
                    "+2026-11-21",
                    "2026-11-21T10:11:12.000",
                    "2026-11-21T10:11:12.5",
                    "2026-11-21T10:11:12+00:00",
                    "2026-11-21t10:11:12",
                    "2026-11-21T10:11:12z",
                    "20261121",
                    "2026-1-1",
                ],
                None,
            ),
        ] {
            for text in texts {
                let expected = match (*text, expected) {
                    ("9007199254740992000" | "20261121", _) => Some(Whole),
                    ("-0", _) => Some(Float { bare: true }),
                    (_, expected) => expected,
                };
                assert_eq!(first(text), expected, "{text:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

        /// The short cuts agree with writing the value and looking.
        #[test]
        fn short_cuts_are_right(text in "-?(0|0\\.0{0,4}|[0-9]{1,4}\\.?|[0-9]{1,17}\\.?)([0-9]{0,3}|[0-9]{0,17})0?(e-?[0-9]{1,2})?", bare in any::<bool>()) {
            let text = text.as_bytes();
            if let Ok(value) = number::parse_float::<f64>(text) {
                let mut written = Vec::new();
                number::write_float_as(value, bare, &mut written);
                prop_assert_eq!(Spelling::Float { bare }.is_own(text), written == text);
                prop_assert_eq!(float_keeps(text), number::float_keeps_digits(text));
            }
            for scale in 1..5 {
                if let Ok(value) = decimal::parse_i128(text, 38, scale) {
                    let mut written = Vec::new();
                    decimal::write_i128(value, scale, &mut written);
                    prop_assert_eq!(is_own_decimal(text, scale), written == text);
                }
            }
            if let Ok(value) = number::parse_i64(text) {
                prop_assert_eq!(Spelling::Whole.is_own(text), value.to_string().as_bytes() == text);
            }
        }

        #[test]
        fn short_cuts_of_timestamps_are_right(
            text in "[+-]?[0-9]{4,5}-0[1-9]-[012][0-9][T t][01][0-9]:[0-5][0-9](:[0-5][0-9](\\.(0|[0-9]){1,10})?)?(|Z|z|\\+00)",
        ) {
            let text = text.as_bytes();
            for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
                for zoned in [false, true] {
                    if let Ok(value) = time::parse_timestamp(text, unit, zoned) {
                        let mut written = Vec::new();
                        time::write_timestamp(value, unit, zoned, &mut written);
                        prop_assert_eq!(Spelling::Timestamp(unit, zoned).is_own(text), written == text);
                    }
                }
            }
        }
    }
}
