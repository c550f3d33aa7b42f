//! How a row becomes a document: where its id comes from, and the fields behind it.

use std::rc::Rc;
use std::sync::Arc;

use arrow_array::ArrayRef;
use rapidbyte_cosmos::{Container, MAX_DOCUMENT_BYTES, Operation, SYSTEM_FIELDS, check_id};
use rapidbyte_document_store::{IdOf, SEPARATOR, TextIds, is_deleted, of_format};
use rapidbyte_formats::{DocumentOptions, Documents, FormatError, Texts, write_string};
use rapidbyte_sdk::prelude::*;

/// The field with the id.
pub(crate) const ID: &str = "id";
/// The field that says which run of a `replace` wrote a document whose id does not say it.
pub(crate) const MARK: &str = "_rapidbyte";

/// How the rows of one stream become documents.
pub(crate) struct Layout {
    pub ids: TextIds,
    options: DocumentOptions,
    /// The columns that become fields.
    fields: SchemaRef,
    field_columns: Vec<usize>,
    /// The column that says that a row is deleted.
    deleted: Option<usize>,
    pub container: Container,
    /// The value of the field [`MARK`].
    mark: Option<String>,
}

/// The contract's error for an error of the formats.
pub(crate) fn convert(error: FormatError) -> Error {
    let is_inexact = error.code == "value_not_exact";
    let converted = of_format(error);
    match is_inexact {
        true => {
            converted.hint("set integers: text, or json: text, to write such values as strings")
        }
        false => converted,
    }
}

/// Where the id of a document comes from. Errors: `key_differs`, `key_refused`, `key_missing`.
pub(crate) fn id_of(target: &Target, schema: &Schema) -> Result<IdOf> {
    IdOf::text(target, schema, ID)
}

/// Why a column cannot be a field, if it cannot.
pub(crate) fn refusal(field: &Arc<Field>, allows_decimals: bool) -> Option<Error> {
    let name = field.name();
    if SYSTEM_FIELDS.contains(&name.as_str()) || name == MARK {
        let text = format!("the column {name:?} has the name of a field that is not yours to set");
        return Some(
            Error::schema("invalid_name", text)
                .hint("leave it out with `columns:`, or rename it")
                .in_column(name),
        );
    }
    if !allows_decimals && has_decimals(field.data_type()) {
        let text = format!("the column {name:?} has decimals, which JSON numbers do not hold");
        return Some(
            Error::schema("type_refused", text)
                .hint("set decimals: text to write them as strings")
                .in_column(name),
        );
    }
    Documents::holds(field).err().map(convert)
}

fn has_decimals(ty: &DataType) -> bool {
    use DataType::*;
    match ty {
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => true,
        List(item) | LargeList(item) | FixedSizeList(item, _) | Map(item, _) => {
            has_decimals(item.data_type())
        }
        Struct(fields) => fields.iter().any(|field| has_decimals(field.data_type())),
        _ => false,
    }
}

impl Layout {
    /// `mark` is written into each document. Errors: of [`id_of`] and [`refusal`].
    pub fn new(
        target: &Target,
        schema: &SchemaRef,
        options: DocumentOptions,
        allows_decimals: bool,
        container: Container,
        mark: Option<String>,
    ) -> Result<Self> {
        let ids = TextIds::new(target, schema, ID)?;
        let field_columns: Vec<usize> = (0..schema.fields().len())
            .filter(|place| *ids.id_of() != IdOf::Column(*place))
            .collect();
        let fields = Arc::new(schema.project(&field_columns)?);
        for field in fields.fields() {
            if let Some(error) = refusal(field, allows_decimals) {
                return Err(error);
            }
        }
        let deleted = target.deleted_field.as_ref();
        let deleted = deleted.map(|name| schema.index_of(name)).transpose()?;
        Ok(Self {
            ids,
            options,
            fields,
            field_columns,
            deleted,
            container,
            mark,
        })
    }

    /// The rows of a batch.
    pub fn rows(self: &Rc<Self>, batch: &RecordBatch) -> Result<Rows> {
        let fields = batch.project(&self.field_columns)?;
        Ok(Rows {
            layout: self.clone(),
            ids: self.ids.texts(batch)?,
            fields: Documents::new(&self.fields, &fields, self.options).map_err(convert)?,
            deleted: self.deleted.map(|place| batch.column(place).clone()),
        })
    }
}

/// A row as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub id: String,
    /// The header with its partition.
    pub partition: String,
    pub operation: Operation,
}

/// The rows of one batch, ready to be written.
pub struct Rows {
    layout: Rc<Layout>,
    ids: Vec<Texts>,
    fields: Documents,
    deleted: Option<ArrayRef>,
}

impl Rows {
    /// The row as it is written. `made` is its id if it brings none. Errors: `null_key`, `invalid_id`,
    /// `document_too_large`, `partition_key_refused`; of the formats.
    pub(crate) fn row(&self, row: usize, made: &str, is_upsert: bool) -> Result<Written> {
        let layout = &self.layout;
        let id = match layout.ids.id_of() {
            IdOf::Made => made.to_owned(),
            _ => self.id(row)?,
        };
        let mut out = Vec::from(b"{\"id\":");
        write_string(&id, &mut out);
        if let Some(mark) = &layout.mark {
            out.extend_from_slice(format!(",\"{MARK}\":\"{mark}\"").as_bytes());
        }
        self.fields.write(row, &mut out).map_err(convert)?;
        out.push(b'}');
        let document = String::from_utf8(out).map_err(Error::internal)?;
        let partition = match layout.container.partition.is_id() {
            true => layout
                .container
                .partition
                .of_value(Some(&serde_json::Value::from(id.as_str()).to_string()))?,
            false => layout.container.partition.of_document(&document)?,
        };
        if is_deleted(self.deleted.as_ref(), row) {
            return Ok(Written {
                operation: Operation::Delete {
                    id: id.clone(),
                    if_match: None,
                },
                id,
                partition,
            });
        }
        if document.len() > MAX_DOCUMENT_BYTES {
            let text = format!(
                "the document has {} bytes, and the server takes {MAX_DOCUMENT_BYTES} at most",
                document.len()
            );
            return Err(Error::data("document_too_large", text)
                .hint("leave the row out, or store large values elsewhere"));
        }
        let operation = match is_upsert {
            true => Operation::Upsert {
                document,
                id: id.clone(),
            },
            false => Operation::Create { document },
        };
        Ok(Written {
            id,
            partition,
            operation,
        })
    }

    fn id(&self, row: usize) -> Result<String> {
        let ids = &self.layout.ids;
        let push = |text: &str, id: &mut String| match ids.id_of() {
            IdOf::Column(_) => id.push_str(text),
            _ => push_part(text, id),
        };
        ids.id(&self.ids, row, push, check_id)
    }
}

/// Appends the text of a key column. Characters that an id cannot have, those that separate, and a space at the end
/// become the percent sign and two hexadecimal digits for each byte, so that no two keys have the same id.
fn push_part(text: &str, id: &mut String) {
    let end = text.trim_end_matches(' ').len();
    for (at, character) in text.char_indices() {
        let is_written = match character {
            '/' | '\\' | '?' | '#' | '%' | SEPARATOR => false,
            ' ' => at < end,
            other => !other.is_control(),
        };
        match is_written {
            true => id.push(character),
            false => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    id.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::push_part;

    #[test]
    fn no_two_keys_have_one_id() {
        let part = |text: &str| {
            let mut id = String::new();
            push_part(text, &mut id);
            id
        };
        assert_eq!(part("a b é"), "a b é");
        assert_eq!(part("a/b|c%2F\n "), "a%2Fb%7Cc%252F%0A%20");
        assert_ne!(part("a/b"), part("a%2Fb"));
    }
}
