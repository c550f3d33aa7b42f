//! JSON documents for a database that keeps one value for each key, and may make a float64 of each number: a document
//! that would come back changed is refused.

use std::collections::HashSet;

use crate::json::{self, Stop};

/// The code of a number that would change.
pub(crate) const CODE: &str = "value_not_exact";
/// Behind the value in a message.
pub(crate) const REASON: &str = "is a number that a float64 does not hold exactly";
/// The same for a zero with a sign, which such a database writes without it.
pub(crate) const SIGN: &str = "is a zero whose sign would be lost";
/// Arrays and objects inside each other: as many as serde_json reads.
const MAX_DEPTH: usize = 120;

type Refusal = (&'static str, String);

/// Appends a document without white space between its parts. `keeps_numbers`: the database keeps the digits of each
/// number. Errors: a code, and the reason behind the value.
pub(crate) fn write_document(
    document: &str,
    keeps_numbers: bool,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let document = json::validate(document.as_bytes())
        .map_err(|_| ("value_does_not_fit", "is not JSON".to_owned()))?;
    if document == "null" {
        let reason = "is a JSON document that cannot be distinguished from NULL";
        return Err(("json_null_value", reason.to_owned()));
    }
    check(document, keeps_numbers, 0)?;
    json::reserve(document.len() + 64, out);
    json::write_compact(document, out);
    Ok(())
}

fn check(value: &str, keeps_numbers: bool, depth: usize) -> Result<(), Refusal> {
    if depth > MAX_DEPTH {
        let reason = format!("has more than {MAX_DEPTH} arrays and objects inside each other");
        return Err(("value_does_not_fit", reason));
    }
    let walked = match value.as_bytes().first() {
        Some(b'{') => {
            let mut seen = HashSet::new();
            json::for_entries(value, |key, value| {
                check(value, keeps_numbers, depth + 1)?;
                match seen.insert(key.clone()) {
                    true => Ok(()),
                    false => Err((
                        "jsonl_duplicate_key",
                        format!("has the key {key:?} twice, and one value would be lost"),
                    )),
                }
            })
        }
        Some(b'[') => json::for_items(value, |value| check(value, keeps_numbers, depth + 1)),
        Some(b'-' | b'0'..=b'9') if !keeps_numbers && !is_exact(value) => {
            return Err((CODE, format!("has {value}, which {}", &REASON[3..])));
        }
        Some(b'"') if json::unescape(value).is_none() => {
            let reason = "has half a surrogate pair, which is not Unicode";
            return Err(("json_lone_surrogate", reason.to_owned()));
        }
        _ => return Ok(()),
    };
    match walked {
        Ok(()) => Ok(()),
        Err(Stop::Callback(refusal)) => Err(refusal),
        Err(Stop::Broken(error)) => Err(("value_does_not_fit", format!("is not JSON: {error}"))),
    }
}

/// Whether the float64 that is nearest to a number of JSON is written with the same digits again.
fn is_exact(number: &str) -> bool {
    let Ok(value) = number.parse::<f64>() else {
        return false;
    };
    // The sign of a zero is lost.
    let is_zero = value == 0.0;
    let is_kept = value.is_finite() && !(is_zero && value.is_sign_negative());
    is_kept && digits(number) == digits(&format!("{value:e}"))
}

/// A number without its sign as its digits without zeros around them, and the power of ten of the first.
fn digits(number: &str) -> (String, i64) {
    let number = number.trim_start_matches('-');
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    // Longer exponents are out of the range of a float64, or their number is zero.
    let exponent: i64 = exponent
        .trim_start_matches('+')
        .parse()
        .unwrap_or(i64::MAX / 2);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0').to_owned();
    match digits.is_empty() {
        true => (digits, 0),
        false => (
            digits,
            exponent.saturating_add(whole.len() as i64 - leading as i64),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_exact_if_its_digits_come_back() {
        for number in [
            "0",
            "0.0",
            "0e999999999999999999999",
            "1",
            "1.0",
            "1.50",
            "0.1",
            "-12.75e3",
            "1e22",
            "1E+2",
            "9007199254740992",
            "0.30000000000000004",
            "1.7976931348623157e308",
            "5e-324",
            "123456789012345680000",
        ] {
            assert!(is_exact(number), "{number}");
        }
        for number in [
            "-0",
            "-0.0e1",
            "9007199254740993",
            "12345678901234567890",
            "0.1000000000000000055511151231257827",
            "1e400",
            "1e-400",
            "1.00000000000000001",
        ] {
            assert!(!is_exact(number), "{number}");
        }
    }

    #[test]
    fn a_document_that_would_change_is_refused() {
        let written = |document: &str| {
            let mut out = Vec::new();
            write_document(document, false, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(
            written("{ \"a\": [1.50, {\"a\": null}],\n\"b\": \"x y\" }").unwrap(),
            r#"{"a":[1.50,{"a":null}],"b":"x y"}"#
        );
        for (document, code) in [
            ("{", "value_does_not_fit"),
            (" null ", "json_null_value"),
            ("[{\"n\": 9007199254740993}]", CODE),
            (r#"{"a":1,"b":{"c":1,"\u0063":2}}"#, "jsonl_duplicate_key"),
            (r#"["\ud800"]"#, "json_lone_surrogate"),
        ] {
            assert_eq!(written(document).unwrap_err().0, code, "{document}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(written(&deep).is_err());
    }
}
