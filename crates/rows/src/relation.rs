//! The columns before and behind a transform.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::declared::declared_type;

use crate::decoder::{self, Held};
use crate::{Refusal, declared};

/// The columns of a stream.
pub struct Relation(SchemaRef);

impl Relation {
    /// Reads an Arrow IPC `Schema` message.
    ///
    /// Errors: `invalid_schema`.
    pub fn read(schema: &[u8]) -> Result<Self, Refusal> {
        decoder::read(schema).map(|schema| Self(Arc::new(schema)))
    }

    /// The columns as a source declares them, `{"id": "int64 not null", "name": "string"}`.
    ///
    /// Errors: `unsupported_type` for a column whose values a script cannot get.
    pub fn declared(&self) -> Result<String, Refusal> {
        let (held, declared) = decoder::held(&self.0);
        let refused = |column: Held| Some((column.name, column.refused?));
        match held.into_iter().find_map(refused) {
            None => Ok(declared),
            Some((name, why)) => {
                let hint = "leave the column out with `columns:`, or drop it in a step before this transform";
                Err(Refusal::schema("unsupported_type", why)
                    .hint(hint)
                    .column(&name))
            }
        }
    }

    /// These columns, declared by a script. A column with the name and the type of one that was there keeps its field:
    /// its type in the source is among what it holds.
    ///
    /// Errors: as of [`declared::schema`].
    pub fn with(&self, columns: &str) -> Result<Self, Refusal> {
        let schema = declared::schema(columns)?;
        let fields = schema.fields().iter().map(|field| {
            let before = self.0.field_with_name(field.name()).ok();
            match before.filter(|before| declared_type(before) == declared_type(field)) {
                Some(before) => Arc::new(before.clone()),
                None => Arc::clone(field),
            }
        });
        let fields: Vec<_> = fields.collect();
        let metadata = self.0.metadata().clone();
        Ok(Self(Arc::new(Schema::new_with_metadata(fields, metadata))))
    }

    /// The names of the columns in order.
    pub fn names(&self) -> Vec<String> {
        let fields = self.0.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// Whether a column has this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.field_with_name(name).is_ok()
    }

    /// The schema.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_schema::{DataType, Field};
    use rapidbyte_wire::ipc;

    use super::*;

    #[test]
    fn a_column_keeps_its_field_only_with_its_name_and_type() {
        let known = HashMap::from([("known".to_owned(), "varchar(5)".to_owned())]);
        let field = Field::new("name", DataType::Utf8, true).with_metadata(known.clone());
        let before = Schema::new(vec![Field::new("id", DataType::Int64, false), field]);
        let before = Relation::read(&ipc::encode_schema(&before).unwrap()).unwrap();
        let declared = before.declared().unwrap();
        assert_eq!(declared, r#"{"id":"int64 not null","name":"string"}"#);
        assert_eq!(before.with(&declared).unwrap().schema(), before.schema());
        for columns in [
            r#"{"name": "string not null"}"#,
            r#"{"name": "binary"}"#,
            r#"{"other": "string"}"#,
        ] {
            let behind = before.with(columns).unwrap().schema();
            assert!(behind.field(0).metadata().is_empty(), "{columns}");
        }
        let behind = before.with(r#"{"x": "date", "name": "string"}"#).unwrap();
        assert_eq!(*behind.schema().field(1).metadata(), known);
        assert!(behind.has("x") && !behind.has("id"));
        assert_eq!(
            before.with(r#"{"x": "dat"}"#).err().unwrap().code,
            "unknown_type"
        );
    }

    #[test]
    fn a_type_that_a_script_cannot_get_is_refused_by_its_column() {
        let month = DataType::Interval(arrow_schema::IntervalUnit::YearMonth);
        let schema = Schema::new(vec![Field::new("i", month, true)]);
        let relation = Relation(Arc::new(schema));
        let refusal = relation.declared().unwrap_err();
        assert_eq!(refusal.column.as_deref(), Some("i"));
        assert_eq!(refusal.code, "unsupported_type");
    }
}
