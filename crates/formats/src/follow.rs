//! Columns that are inferred again from more records.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use rapidbyte_wire::sampled::unsampled;
use rapidbyte_wire::types::type_name;

use crate::{FormatError, Rejected};

/// The changes of a schema that a reader may make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Follows {
    /// New columns.
    pub columns: bool,
    /// The known columns that may get another type.
    pub types: Vec<String>,
}

impl Follows {
    /// Whether other columns than `known` may hold the record that a decoder has refused.
    pub fn may_cure(&self, error: &FormatError, known: &Schema) -> bool {
        let column = error.column.as_deref();
        let is_new = column.is_some_and(|name| known.fields().find(name).is_none());
        let is_free = || self.types.iter().any(|name| Some(name.as_str()) == column);
        match error.code {
            "csv_unknown_column" => self.columns,
            "jsonl_unknown_field" if is_new => self.columns,
            // The key is in an object of a column.
            "jsonl_unknown_field" | "value_does_not_fit" => is_free(),
            _ => false,
        }
    }

    /// The first record that is kept as a reject, and that other columns than `known` may hold.
    pub fn first_curable<'a>(
        &self,
        rejects: &'a [Rejected],
        known: &Schema,
    ) -> Option<&'a Rejected> {
        let mut rejects = rejects.iter();
        rejects.find(|reject| self.may_cure(&reject.error, known))
    }

    /// The columns of `known`, with the types that `found` has for them and then its new columns, as far as this
    /// follows them. A column does not become JSON: its texts would get quotes. `None` if that changes nothing.
    pub fn merge(&self, known: &Schema, found: &Schema) -> Option<SchemaRef> {
        let kept = known
            .fields()
            .iter()
            .map(|field| match found.fields().find(field.name()) {
                // Another sample alone changes nothing for a reader.
                Some((_, now))
                    if self.types.contains(field.name())
                        && !gets_quotes(field, now)
                        && unsampled(field) != unsampled(now) =>
                {
                    now.clone()
                }
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

/// Whether values that were texts, numbers or lists become documents.
fn gets_quotes(before: &Field, now: &Field) -> bool {
    let has_json = |field: &Field| type_name(field).contains("json");
    has_json(now) && !has_json(before)
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use rapidbyte_wire::types::parse_field;

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
        let both = || vec!["a".to_owned(), "b".to_owned()];
        for (columns, types, expected) in [
            (false, Vec::new(), None),
            (
                true,
                vec!["a".to_owned()],
                Some(schema(&[
                    ("a", int.clone()),
                    ("b", int.clone()),
                    ("c", int.clone()),
                ])),
            ),
            (
                false,
                both(),
                Some(schema(&[("a", int.clone()), ("b", text.clone())])),
            ),
            (
                true,
                both(),
                Some(schema(&[("a", int.clone()), ("b", text), ("c", int)])),
            ),
        ] {
            let follows = Follows { columns, types };
            assert_eq!(follows.merge(&known, &found).as_deref(), expected.as_ref());
        }
        let all = Follows {
            columns: true,
            types: both(),
        };
        assert_eq!(all.merge(&known, &known), None);
        let json = parse_field("b", "json", true).unwrap();
        assert_eq!(all.merge(&known, &Schema::new(vec![json])), None);
        let error = |column: &str| FormatError::new("value_does_not_fit", "").column(column);
        assert!(all.may_cure(&error("b"), &known) && !all.may_cure(&error("c"), &known));
    }
}
