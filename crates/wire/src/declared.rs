//! Columns as a person declares them: `{ id: int64 not null, name: string }`.

use std::collections::HashSet;
use std::fmt;

use arrow_schema::{Field, Schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::WireError;
use crate::types::{check_portable, parse_field, type_name};

/// The most columns that may be declared; more is a mistake.
const MAX_COLUMNS: usize = 10_000;
/// Follows the type of a column without NULL.
const NOT_NULL: &str = "not null";

/// Names and types, in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<(String, String)>);

/// Why columns are not a schema.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredError {
    /// There is none.
    #[error("no column is declared")]
    None,
    /// A name comes again.
    #[error("the column {0:?} comes twice")]
    Twice(String),
    /// The type of a column is none, or may not cross the boundary.
    #[error("{reason}")]
    Type {
        /// The column.
        column: String,
        /// The fault of its type.
        reason: WireError,
    },
}

impl DeclaredError {
    /// The column that is wrong.
    pub fn column(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Twice(column) | Self::Type { column, .. } => Some(column),
        }
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Columns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("columns as name: type")
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
        deserializer.deserialize_map(Entries)
    }
}

impl Columns {
    /// The Arrow schema.
    ///
    /// # Errors
    /// No column, one that comes twice, or a type that does not exist or does not cross the boundary.
    pub fn schema(&self) -> Result<Schema, DeclaredError> {
        let mut names = HashSet::with_capacity(self.0.len());
        let mut fields = Vec::with_capacity(self.0.len());
        for (name, text) in &self.0 {
            if !names.insert(name) {
                return Err(DeclaredError::Twice(name.clone()));
            }
            let field = portable_field(name, text);
            fields.push(field.map_err(|reason| DeclaredError::Type {
                column: name.clone(),
                reason,
            })?);
        }
        match fields.is_empty() {
            true => Err(DeclaredError::None),
            false => Ok(Schema::new(fields)),
        }
    }
}

fn portable_field(name: &str, text: &str) -> Result<Field, WireError> {
    let (type_name, nullable) = match strip_not_null(text) {
        Some(type_name) => (type_name, false),
        None => (text, true),
    };
    let field = parse_field(name, type_name, nullable)?;
    check_portable(&Schema::new(vec![field.clone()]))?;
    Ok(field)
}

/// The type of a field as it is declared, such as `int64 not null`.
pub fn declared_type(field: &Field) -> String {
    let type_name = type_name(field);
    match field.is_nullable() {
        true => type_name,
        false => format!("{type_name} {NOT_NULL}"),
    }
}

/// The type of `type not null`.
fn strip_not_null(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let at = text.len().checked_sub(NOT_NULL.len())?;
    let (type_name, mark) = text.split_at_checked(at)?;
    (mark.eq_ignore_ascii_case(NOT_NULL) && type_name.ends_with(char::is_whitespace))
        .then(|| type_name.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(pairs: &[(&str, &str)]) -> Columns {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Columns(pairs.iter().map(own).collect())
    }

    #[test]
    fn columns_keep_their_order_and_say_whether_they_are_nullable() {
        let declared = [
            ("z", "int64 Not Null "),
            ("a", "decimal(10, 2)"),
            ("not null", "string"),
        ];
        let schema = columns(&declared).schema().unwrap();
        let told: Vec<_> = schema
            .fields()
            .iter()
            .map(|f| (f.name().as_str(), declared_type(f)))
            .collect();
        let expected = [
            ("z", "int64 not null"),
            ("a", "decimal(10, 2)"),
            ("not null", "string"),
        ];
        assert_eq!(told, expected.map(|(name, text)| (name, text.to_owned())));
    }

    #[test]
    fn an_unknown_type_of_a_schema_is_named_with_its_column() {
        for wrong in ["int65", "not null", "int64not null", ""] {
            let error = columns(&[("a", "int64"), ("n", wrong)])
                .schema()
                .unwrap_err();
            assert!(matches!(error, DeclaredError::Type { .. }), "{wrong}");
            assert_eq!(error.column(), Some("n"), "{wrong}");
        }
        let twice = columns(&[("n", "int64"), ("n", "string")]).schema();
        assert!(matches!(twice, Err(DeclaredError::Twice(column)) if column == "n"));
        assert!(matches!(columns(&[]).schema(), Err(DeclaredError::None)));
    }

    #[test]
    fn their_number_is_limited() {
        use serde::de::value::{Error, MapDeserializer};
        let read = |count: usize| {
            let pairs = (0..count).map(|n| (n.to_string(), "int64"));
            Columns::deserialize(MapDeserializer::<_, Error>::new(pairs))
        };
        assert_eq!(read(MAX_COLUMNS).unwrap().0.len(), MAX_COLUMNS);
        assert!(read(MAX_COLUMNS + 1).is_err());
    }
}
