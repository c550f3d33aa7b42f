//! A value in place of NULL.

use super::kind::Kind;
use super::literal::{exact, text};
use super::tree::Typed;
use super::{build, call};

/// A column whose NULLs are another value, of the column's type.
pub fn with_default(column: Typed, value: &serde_json::Value) -> Result<Typed, String> {
    let value = of_kind(value, column.kind)?;
    call::coalesce(vec![column, value])
}

/// A value in place of NULL, of the type of a column, which holds it as it is written.
///
/// # Errors
/// The type does not hold it.
fn of_kind(value: &serde_json::Value, kind: Kind) -> Result<Typed, String> {
    let written = match value {
        serde_json::Value::String(text) => text.clone(),
        _ if kind == Kind::Text => {
            return Err("the column is text: write the value in quotes".into());
        }
        serde_json::Value::Bool(value) => value.to_string(),
        serde_json::Value::Number(_) => exact(value)?,
        _ => return Err("write a number, a text, or true or false".into()),
    };
    build::cast(text(&written), kind)
}
