//! The schema as an author declares it.

use arrow_schema::Schema;
use rapidbyte_wire::declared::{Columns, DeclaredError};

use crate::Refusal;

/// How columns are declared.
const FORM: &str =
    r#"columns are names and types, such as {"id": "int64 not null", "name": "string"}"#;
/// Where the types are listed.
pub const TYPES: &str =
    "docs/connectors/types.md lists the types, such as int64, string not null, decimal(38, 2)";

/// Reads `{"id": "int64 not null", "name": "string"}`.
///
/// Errors: `invalid_schema` for another text, a column that comes twice, or none at all;
/// `unknown_type` for a type that does not exist.
pub fn schema(text: &str) -> Result<Schema, Refusal> {
    let columns: Columns = serde_json::from_str(text).map_err(|error| {
        let text = format!("the columns of the stream: {error}");
        Refusal::schema("invalid_schema", text).hint(FORM)
    })?;
    columns.schema().map_err(|error| {
        let refusal = match &error {
            DeclaredError::None | DeclaredError::Twice(_) => {
                Refusal::schema("invalid_schema", error.to_string()).hint(FORM)
            }
            DeclaredError::Type { .. } => {
                Refusal::schema("unknown_type", error.to_string()).hint(TYPES)
            }
        };
        match error.column() {
            Some(column) => refusal.column(column),
            None => refusal,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_a_schema_is_refused_with_a_hint() {
        for (text, code) in [
            ("", "invalid_schema"),
            ("[]", "invalid_schema"),
            ("{}", "invalid_schema"),
            (r#"{"a": 1}"#, "invalid_schema"),
            (r#"{"a": "int64", "a": "string"}"#, "invalid_schema"),
            (r#"{"a": "integr"}"#, "unknown_type"),
        ] {
            let refusal = schema(text).unwrap_err();
            assert_eq!(refusal.code, code, "{text}");
            assert!(refusal.hint.is_some(), "{text}");
        }
        let schema = schema(r#"{"z": "int64 not null", "a": "list<string>"}"#).unwrap();
        let told: Vec<_> = schema
            .fields()
            .iter()
            .map(|f| (f.name().as_str(), f.is_nullable()))
            .collect();
        assert_eq!(told, [("z", false), ("a", true)]);
    }
}
