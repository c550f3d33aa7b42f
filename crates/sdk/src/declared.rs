//! Columns that an operator declares: `{ id: int64 not null, name: string }`.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use rapidbyte_wire::declared;
use schemars::{JsonSchema, Schema as JsonSchemaValue, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::{Error, Result};

/// Columns in the order in which they were written, as a key of a configuration.
///
/// ```
/// use rapidbyte_sdk::declared::Columns;
///
/// let columns: Columns = serde_json::from_str(r#"{ "id": "int64 not null", "name": "string" }"#)?;
/// let schema = columns.schema("config.schema")?;
/// assert!(!schema.field(0).is_nullable() && schema.field(1).is_nullable());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Columns(declared::Columns);

impl JsonSchema for Columns {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Columns".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> JsonSchemaValue {
        json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

impl Columns {
    /// The Arrow schema; `at` is its place, such as `config.schema`.
    ///
    /// # Errors
    /// `unknown_type` with the column; `no_columns`.
    pub fn schema(&self, at: &str) -> Result<SchemaRef> {
        self.0.schema().map(Arc::new).map_err(|error| {
            let Some(column) = error.column() else {
                return Error::config("no_columns", error).at(at);
            };
            Error::config("unknown_type", &error)
                .in_column(column)
                .at(format!("{at}.{column}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(json: &str) -> Result<SchemaRef> {
        let columns: Columns = serde_json::from_str(json).unwrap();
        columns.schema("config.schema")
    }

    #[test]
    fn an_unknown_type_is_named_with_its_column_and_its_place() {
        let schema_of_two = schema(r#"{"z": "int64 not null", "a": "string"}"#).unwrap();
        assert_eq!(schema_of_two.field(0).name(), "z");
        let error = schema(r#"{"n": "int65"}"#).unwrap_err();
        assert_eq!(error.code, "unknown_type");
        assert_eq!(error.column.as_deref(), Some("n"));
        assert_eq!(error.location.as_deref(), Some("config.schema.n"));
        assert_eq!(schema("{}").unwrap_err().code, "no_columns");
    }
}
