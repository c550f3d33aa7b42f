//! The schema as an author declares it.

use std::collections::HashSet;

use arrow_schema::Schema;
use rapidbyte_wire::types::{check_portable, parse_field};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::Refusal;

/// The most columns that a stream may declare; more is a mistake.
const MAX_COLUMNS: usize = 10_000;

/// Names and types in order.
struct Columns(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Columns;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of columns and their types")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    if columns.len() == MAX_COLUMNS {
                        return Err(A::Error::custom(format!("more than {MAX_COLUMNS} columns")));
                    }
                    columns.push(column);
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Reads `{"id": "int64 not null", "name": "string"}`.
///
/// Errors: `invalid_schema` for another text, a column that comes twice, or none at all;
/// `invalid_type` for a type that does not exist.
pub fn schema(text: &str) -> Result<Schema, Refusal> {
    let Columns(columns) = serde_json::from_str(text)
        .map_err(|error| Refusal::schema("invalid_schema", format!("the columns: {error}")))?;
    if columns.is_empty() {
        return Err(Refusal::schema(
            "invalid_schema",
            "a stream without columns",
        ));
    }
    let mut names = HashSet::new();
    let mut fields = Vec::with_capacity(columns.len());
    for (name, text) in &columns {
        let (type_name, nullable) = match strip_not_null(text) {
            Some(type_name) => (type_name, false),
            None => (text.as_str(), true),
        };
        let field = parse_field(name, type_name, nullable);
        let field = field
            .map_err(|error| Refusal::schema("invalid_type", error.to_string()).column(name))?;
        if !names.insert(name) {
            let text = format!("the column {name:?} comes twice");
            return Err(Refusal::schema("invalid_schema", text).column(name));
        }
        fields.push(field);
    }
    let schema = Schema::new(fields);
    check_portable(&schema).map_err(|error| Refusal::schema("invalid_type", error.to_string()))?;
    Ok(schema)
}

/// The type of `type not null`.
fn strip_not_null(text: &str) -> Option<&str> {
    const MARK: &str = "not null";
    let text = text.trim_end();
    let (type_name, mark) = text.split_at_checked(text.len().checked_sub(MARK.len())?)?;
    (mark.eq_ignore_ascii_case(MARK) && type_name.ends_with(char::is_whitespace))
        .then(|| type_name.trim_end())
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn columns_keep_their_order_and_their_types() {
        let schema = schema(r#"{"z": "int64 not null", "a": "list<string>"}"#).unwrap();
        let [z, a] = [schema.field(0), schema.field(1)];
        assert_eq!((z.name().as_str(), z.is_nullable()), ("z", false));
        assert_eq!((z.data_type(), a.is_nullable()), (&DataType::Int64, true));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for (text, code) in [
            ("", "invalid_schema"),
            ("[]", "invalid_schema"),
            ("{}", "invalid_schema"),
            (r#"{"a": 1}"#, "invalid_schema"),
            (r#"{"a": "int64", "a": "string"}"#, "invalid_schema"),
            (r#"{"a": "integr"}"#, "invalid_type"),
        ] {
            assert_eq!(schema(text).unwrap_err().code, code, "{text}");
        }
    }
}
