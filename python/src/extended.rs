//! Values of Python as Extended JSON 2.0, from which dest-mongodb makes the BSON of the same type.
//!
//! Source: "MongoDB Extended JSON (v2)" in the MongoDB manual.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pyo3::prelude::*;

use crate::ending::Inside;
use crate::refusal::{Refusal, Result};
use crate::value::{Documents, Found, Known, write_json};

const MICROS_PER_MILLI: i64 = 1_000;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// Writes a value that JSON lacks. False: JSON has it, and nothing was written.
///
/// # Errors
/// `value_does_not_fit` for a time that is finer than a millisecond.
pub fn write(value: &Found<'_, '_>, out: &mut Vec<u8>) -> Result<bool> {
    match value {
        Found::Zoned(micros) | Found::Timestamp(micros) => {
            if micros % MICROS_PER_MILLI != 0 {
                let text = "a time in a nested value is finer than a millisecond, which MongoDB cannot hold";
                return Err(Refusal::data("value_does_not_fit", text)
                    .hint("round it to milliseconds, or send it as a string"));
            }
            date(micros / MICROS_PER_MILLI, out)?;
        }
        Found::Date(days) => date(i64::from(*days) * MILLIS_PER_DAY, out)?,
        Found::Decimal(digits) => wrap("$numberDecimal", digits, out)?,
        Found::Float(number) if number.is_nan() => wrap("$numberDouble", "NaN", out)?,
        Found::Float(number) if number.is_infinite() => {
            let text = if *number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            wrap("$numberDouble", text, out)?;
        }
        Found::Bytes(bytes) => binary(bytes, "00", out)?,
        Found::Uuid(bytes) => binary(bytes, "04", out)?,
        Found::ObjectId(digits) => wrap("$oid", digits, out)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn date(millis: i64, out: &mut Vec<u8>) -> Result<()> {
    Ok(write!(out, r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#).map_err(PyErr::from)?)
}

/// The text needs no escapes.
fn wrap(name: &str, text: &str, out: &mut Vec<u8>) -> Result<()> {
    Ok(write!(out, r#"{{"{name}":"{text}"}}"#).map_err(PyErr::from)?)
}

fn binary(bytes: &[u8], subtype: &str, out: &mut Vec<u8>) -> Result<()> {
    let text = BASE64.encode(bytes);
    let written = write!(
        out,
        r#"{{"$binary":{{"base64":"{text}","subType":"{subtype}"}}}}"#
    );
    Ok(written.map_err(PyErr::from)?)
}

/// The text of a value: a query document for MongoDB.
#[pyfunction]
pub fn extended_json(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let _inside = Inside::of_call(py)?;
    let mut text = Vec::new();
    write_json(value, Known::with(py, Documents::Extended)?, &mut text)?;
    // Only strings that are UTF-8 and the words of JSON were written.
    Ok(String::from_utf8_lossy(&text).into_owned())
}
