//! Columns that an operator declares: `{ id: int64 not null, name: string }`.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::types::{check_portable, parse_field};
use schemars::{JsonSchema, Schema as JsonSchemaValue, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Columns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("columns as name: type")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns: Vec<(String, String)> = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for Columns {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Columns".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> JsonSchemaValue {
        json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

impl Columns {
    /// The Arrow schema; `at` is where it stands, such as `config.schema`.
    ///
    /// # Errors
    /// `invalid_type` with the column; `no_columns`.
    pub fn schema(&self, at: &str) -> Result<SchemaRef> {
        let mut fields = Vec::with_capacity(self.0.len());
        for (name, text) in &self.0 {
            let (type_name, nullable) = match strip_not_null(text) {
                Some(type_name) => (type_name, false),
                None => (text.as_str(), true),
            };
            let field = parse_field(name, type_name, nullable).map_err(|error| {
                Error::config("invalid_type", error)
                    .in_column(name)
                    .at(format!("{at}.{name}"))
            })?;
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(Error::config("no_columns", "no column is declared").at(at));
        }
        let schema = Schema::new(fields);
        check_portable(&schema).map_err(|error| Error::config("invalid_type", error).at(at))?;
        Ok(Arc::new(schema))
    }
}

/// The type of `type not null`.
fn strip_not_null(text: &str) -> Option<&str> {
    const MARK: &str = "not null";
    let text = text.trim_end();
    let at = text.len().checked_sub(MARK.len())?;
    let (type_name, mark) = text.split_at_checked(at)?;
    (mark.eq_ignore_ascii_case(MARK) && type_name.ends_with(char::is_whitespace))
        .then(|| type_name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(json: &str) -> Result<SchemaRef> {
        let columns: Columns = serde_json::from_str(json).unwrap();
        columns.schema("config.schema")
    }

    #[test]
    fn columns_keep_their_order_and_say_whether_they_are_nullable() {
        let json = r#"{"z": "int64 Not Null ", "a": "decimal(10, 2)", "not null": "string"}"#;
        let schema = schema(json).unwrap();
        let told: Vec<_> = schema.fields().iter().collect();
        assert_eq!(told.len(), 3);
        assert_eq!(
            (told[0].name().as_str(), told[0].is_nullable()),
            ("z", false)
        );
        assert_eq!(
            (told[1].name().as_str(), told[1].is_nullable()),
            ("a", true)
        );
        assert!(told[2].is_nullable());
    }

    #[test]
    fn what_is_no_type_is_told_with_its_column() {
        for wrong in ["int65", "not null", "int64not null", ""] {
            let error = schema(&format!(r#"{{"n": "{wrong}"}}"#)).unwrap_err();
            assert_eq!(error.code, "invalid_type", "{wrong}");
            assert_eq!(error.column.as_deref(), Some("n"), "{wrong}");
            assert_eq!(error.location.as_deref(), Some("config.schema.n"));
        }
        assert_eq!(schema("{}").unwrap_err().code, "no_columns");
    }
}
