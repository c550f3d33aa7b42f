//! How a row becomes a line of a bulk request: where its `_id` comes from, and the fields of its document.

use std::rc::Rc;
use std::sync::Arc;

use arrow_array::ArrayRef;
use rapidbyte_document_store::{IdOf, SEPARATOR, TextIds, is_deleted, of_format};
use rapidbyte_formats::{DocumentOptions, Documents, Texts};
use rapidbyte_sdk::prelude::*;

use crate::bulk::{Item, Op};

/// The column with the `_id`.
pub(crate) const ID: &str = "_id";
/// The field that says which run wrote a document: the made `_id` of a row, or a mark of [`mark_of`]. A search cannot
/// compare values of `_id` itself.
pub(crate) const MARK: &str = "_rapidbyte";
/// Bytes of an `_id`.
const MAX_ID_BYTES: usize = 512;

/// How the rows of one stream become documents.
pub(crate) struct Layout {
    pub ids: TextIds,
    mode: WriteMode,
    options: DocumentOptions,
    /// The columns that become fields.
    fields: SchemaRef,
    field_columns: Vec<usize>,
    /// The column that says that a row is deleted.
    deleted: Option<usize>,
    /// The value of the field [`MARK`], of rows that bring their `_id`.
    mark: Option<String>,
}

/// The mark of rows that bring their `_id` and replace those of older runs, from the digits of the tag, or of the tag and
/// the epoch. No range of made ids has it.
pub(crate) fn mark_of(digits: &str) -> String {
    format!("r{digits}")
}

/// Where the `_id` of a document comes from. Errors: `key_differs`, `key_refused`, `key_missing`.
pub(crate) fn id_of(target: &Target, schema: &Schema) -> Result<IdOf> {
    IdOf::text(target, schema, ID)
}

impl Layout {
    /// `ignored`: places of columns that the documents do not get. `mark` is written into each document that brings its
    /// `_id`. Errors: of [`id_of`].
    pub fn new(
        target: &Target,
        schema: &SchemaRef,
        options: DocumentOptions,
        ignored: &[usize],
        mark: Option<String>,
    ) -> Result<Self> {
        let ids = TextIds::new(target, schema, ID)?;
        let is_field =
            |place: &usize| *ids.id_of() != IdOf::Column(*place) && !ignored.contains(place);
        let field_columns: Vec<usize> = (0..schema.fields().len()).filter(is_field).collect();
        let fields = Arc::new(schema.project(&field_columns)?);
        let deleted = target.deleted_field.as_ref();
        let deleted = deleted.map(|name| schema.index_of(name)).transpose()?;
        Ok(Self {
            ids,
            mode: target.write_mode,
            options,
            fields,
            field_columns,
            deleted,
            mark,
        })
    }

    /// The rows of a batch.
    pub fn rows(self: &Rc<Self>, batch: &RecordBatch) -> Result<Rows> {
        let fields = batch.project(&self.field_columns)?;
        Ok(Rows {
            layout: self.clone(),
            ids: self.ids.texts(batch)?,
            fields: Documents::new(&self.fields, &fields, self.options).map_err(of_format)?,
            deleted: self.deleted.map(|place| batch.column(place).clone()),
        })
    }

    /// The operation for a row that is not deleted.
    fn op(&self) -> Op {
        match self.ids.id_of() {
            // Nobody else has the id: a second attempt writes the same document.
            IdOf::Made => Op::Index,
            _ if self.mode == WriteMode::Append => Op::Create,
            _ => Op::Index,
        }
    }
}

/// The rows of one batch, ready to be written.
pub struct Rows {
    layout: Rc<Layout>,
    ids: Vec<Texts>,
    fields: Documents,
    deleted: Option<ArrayRef>,
}

impl Rows {
    /// The row as it is written. `made` is its `_id` if it brings none. Errors: `null_key`, `invalid_id`; of the formats.
    pub(crate) fn row(&self, row: usize, made: &str) -> Result<Item> {
        let layout = &self.layout;
        let (id, mark) = match layout.ids.id_of() {
            IdOf::Made => (made.to_owned(), Some(made)),
            _ => (self.id(row)?, layout.mark.as_deref()),
        };
        if is_deleted(self.deleted.as_ref(), row) {
            return Ok(Item::new(Op::Delete, id, Vec::new()));
        }
        let mut document = Vec::new();
        match mark {
            Some(mark) => {
                document.extend_from_slice(format!("{{\"{MARK}\":\"{mark}\"").as_bytes());
                self.fields.write(row, &mut document).map_err(of_format)?;
            }
            None => {
                self.fields.write(row, &mut document).map_err(of_format)?;
                // In place of the first comma.
                match document.first_mut() {
                    Some(first) => *first = b'{',
                    None => document.push(b'{'),
                }
            }
        }
        document.push(b'}');
        Ok(Item::new(layout.op(), id, document))
    }

    fn id(&self, row: usize) -> Result<String> {
        let ids = &self.layout.ids;
        let push = |text: &str, id: &mut String| match ids.id_of().columns() {
            [_] => id.push_str(text),
            _ => push_part(text, id),
        };
        ids.id(&self.ids, row, push, check_id)
    }
}

/// Errors: `invalid_id`.
fn check_id(id: &str) -> Result<()> {
    let why = match id.len() {
        0 => "it is empty".to_owned(),
        1..=MAX_ID_BYTES => return Ok(()),
        bytes => format!("it has {bytes} bytes"),
    };
    let shown: String = id.chars().take(60).collect();
    let text = format!("{shown:?} is not an _id of a document: {why}");
    Err(Error::data("invalid_id", text).hint("use a key whose text has 1 to 512 bytes"))
}

/// Appends the text of one of several key columns. The character that separates them becomes the percent sign and two
/// hexadecimal digits, as the percent sign does, so that no two keys have the same `_id`.
fn push_part(text: &str, id: &mut String) {
    for character in text.chars() {
        match character {
            '%' => id.push_str("%25"),
            SEPARATOR => id.push_str("%7C"),
            other => id.push(other),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_have_one_id() {
        let part = |text: &str| {
            let mut id = String::new();
            push_part(text, &mut id);
            id
        };
        assert_eq!(part("a/b é"), "a/b é");
        assert_eq!(part("a|b%7C"), "a%7Cb%257C");
    }

    #[test]
    fn an_id_keeps_to_the_limit_of_the_server() {
        check_id("a").unwrap();
        check_id(&"é".repeat(256)).unwrap();
        for id in ["", &"x".repeat(513), &"é".repeat(257)] {
            assert_eq!(check_id(id).unwrap_err().code, "invalid_id");
        }
    }
}
