//! Columns that are inferred again from more records.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use rapidbyte_wire::types::is_stored;

use crate::{FormatError, Rejected};

/// The changes of a schema that a reader may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Follows {
    /// New columns.
    pub columns: bool,
    /// Other types of known columns.
    pub types: bool,
}

impl Follows {
    /// Whether other columns than `known` may hold the record that a decoder has refused.
    pub fn may_cure(self, error: &FormatError, known: &Schema) -> bool {
        let column = error.column.as_deref();
        let found = column.and_then(|name| known.fields().find(name));
        if found.is_some_and(|(_, field)| is_stored(field)) {
            // The target has the type.
            return false;
        }
        let is_new = column.is_some() && found.is_none();
        match error.code {
            "csv_unknown_column" => self.columns,
            "jsonl_unknown_field" if is_new => self.columns,
            // The key is in an object of a column.
            "jsonl_unknown_field" | "value_does_not_fit" => self.types,
            _ => false,
        }
    }

    /// The first record that is kept as a reject, and that other columns than `known` may hold.
    pub fn first_curable<'a>(
        self,
        rejects: &'a [Rejected],
        known: &Schema,
    ) -> Option<&'a Rejected> {
        let mut rejects = rejects.iter();
        rejects.find(|reject| self.may_cure(&reject.error, known))
    }

    /// The columns of `known`, with the types that `found` has for them and then its new columns, as far as this
    /// follows them. `None` if that changes nothing.
    pub fn merge(self, known: &Schema, found: &Schema) -> Option<SchemaRef> {
        let kept = known
            .fields()
            .iter()
            .map(|field| match found.fields().find(field.name()) {
                Some((_, now)) if self.types && !is_stored(field) => now.clone(),
                _ => field.clone(),
            });
        let is_new = |field: &&Arc<Field>| known.fields().find(field.name()).is_none();
        let new = found.fields().iter().filter(is_new).cloned();
        let new = new.filter(|_| self.columns);
        let merged: Vec<Arc<Field>> = kept.chain(new).collect();
        let is_changed = merged.as_slice() != known.fields().as_ref();
        is_changed.then(|| Arc::new(Schema::new_with_metadata(merged, known.metadata().clone())))
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use rapidbyte_wire::types::mark_stored;

    use super::*;

    #[test]
    fn only_the_changes_that_are_followed_are_made() {
        let schema = |fields: &[(&str, DataType)]| {
            let field = |(name, ty): &(&str, DataType)| Field::new(*name, ty.clone(), true);
            Schema::new(fields.iter().map(field).collect::<Vec<_>>())
        };
        let (int, text) = (DataType::Int64, DataType::Utf8);
        let known = schema(&[("a", int.clone()), ("b", int.clone())]);
        let found = schema(&[("c", int.clone()), ("b", text.clone())]);
        for (columns, types, expected) in [
            (false, false, None),
            (
                true,
                false,
                Some(schema(&[
                    ("a", int.clone()),
                    ("b", int.clone()),
                    ("c", int.clone()),
                ])),
            ),
            (
                false,
                true,
                Some(schema(&[("a", int.clone()), ("b", text.clone())])),
            ),
            (
                true,
                true,
                Some(schema(&[("a", int.clone()), ("b", text), ("c", int)])),
            ),
        ] {
            let follows = Follows { columns, types };
            assert_eq!(follows.merge(&known, &found).as_deref(), expected.as_ref());
        }
        let all = Follows {
            columns: true,
            types: true,
        };
        assert_eq!(all.merge(&known, &known), None);
        // The target has the type of the column, whatever the records have.
        let stored = Schema::new(vec![mark_stored(known.field(1).clone())]);
        assert_eq!(all.merge(&stored, &schema(&[("b", DataType::Utf8)])), None);
        let error = FormatError::new("value_does_not_fit", "").column("b");
        assert!(all.may_cure(&error, &known) && !all.may_cure(&error, &stored));
    }
}
