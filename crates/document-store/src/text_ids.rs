//! Ids that are texts, for databases whose documents are JSON: the text of a column of the stream, or of its key.

use rapidbyte_formats::{FormatError, KeyTexts, Owner, Texts, shortest_number};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, type_name};

use crate::keys::{IdOf, ensure_one_text, null_key};

/// Between the values of several key columns in an id.
pub const SEPARATOR: char = '|';

/// The contract's error for an error of the formats, in a document.
pub fn of_format(error: FormatError) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = match error.code {
        "json_not_finite" => Some("leave such rows out, or make the column a string".to_owned()),
        _ => error.hint,
    };
    converted.column = error.column;
    converted
}

/// Where the ids of the rows of one stream come from, and their texts.
pub struct TextIds {
    id_of: IdOf,
    schema: SchemaRef,
    /// Columns of numbers as text.
    numbers: Vec<usize>,
}

impl TextIds {
    /// `id`: the name of the id in a document. Errors: `key_differs`, `key_refused`, `key_missing`.
    pub fn new(target: &Target, schema: &SchemaRef, id: &str) -> Result<Self> {
        let is_number = |place: &usize| KeyTexts::of(schema.field(*place)) == KeyTexts::Numbers;
        Ok(Self {
            id_of: IdOf::text(target, schema, id)?,
            schema: schema.clone(),
            numbers: (0..schema.fields().len()).filter(is_number).collect(),
        })
    }

    /// Where they come from.
    pub fn id_of(&self) -> &IdOf {
        &self.id_of
    }

    /// The texts of a batch: one for each column of the id. Errors: of the formats.
    pub fn texts(&self, batch: &RecordBatch) -> Result<Vec<Texts>> {
        let columns = self.id_of.columns().iter();
        let texts = columns.map(|place| {
            Texts::new(&self.schema.fields()[*place], batch.column(*place)).map_err(of_format)
        });
        texts.collect()
    }

    /// The id of a row of these texts. `push` appends the text of one column, so that no two rows have the same id; `check`
    /// refuses an id that the database does not take. Errors: `null_key`; of `check` and of the formats.
    pub fn id(
        &self,
        texts: &[Texts],
        row: usize,
        push: impl Fn(&str, &mut String),
        check: impl Fn(&str) -> Result<()>,
    ) -> Result<String> {
        let columns = self.id_of.columns();
        let mut id = String::new();
        for (place, (texts, column)) in texts.iter().zip(columns).enumerate() {
            if texts.is_null(row) {
                return Err(null_key(self.schema.field(*column).name()));
            }
            let mut text = Vec::new();
            texts.write(row, &mut text).map_err(of_format)?;
            let text = String::from_utf8(text).map_err(Error::internal)?;
            if place > 0 {
                id.push(SEPARATOR);
            }
            match self.numbers.contains(column) {
                true => push(shortest_number(&text), &mut id),
                false => push(&text, &mut id),
            }
        }
        check(&id).map_err(|error| match columns {
            [one] => error.in_column(self.schema.field(*one).name()),
            _ => error,
        })?;
        Ok(id)
    }
}

impl IdOf {
    /// Where an id that is a text comes from. `id`: its name in a document. Errors: `key_differs`, `key_refused`,
    /// `key_missing`.
    pub fn text(target: &Target, schema: &Schema, id: &str) -> Result<Self> {
        let id_of = Self::of(target, schema, id, |field| ensure_text(field, id))?;
        let is_column = matches!(id_of, Self::Column(_));
        // An id that comes twice in one run would silently be one document.
        if is_column && target.write_mode == WriteMode::Replace && target.primary_key.is_empty() {
            let text = format!("replace needs a key that says that each row has another {id}");
            let hint = format!(
                "set primary_key: [{id}] of the stream, or leave the column out with `columns:`"
            );
            return Err(Error::schema("key_missing", text).hint(hint).in_column(id));
        }
        Ok(id_of)
    }
}

/// Refuses types without a text that says which value it is. Errors: `key_refused`.
fn ensure_text(field: &Field, id: &str) -> Result<()> {
    use DataType::*;
    ensure_one_text(field)?;
    let is_key = match field.data_type() {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => true,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => true,
        Date32 | Date64 | Timestamp(..) | Time32(_) | Time64(_) => true,
        Utf8 | LargeUtf8 | Utf8View => !is_json(field),
        FixedSizeBinary(_) | Binary | LargeBinary => true,
        _ => false,
    };
    match is_key {
        true => Ok(()),
        false => {
            let text = format!(
                "the column {:?} is {}, which cannot be an {id}",
                field.name(),
                type_name(field)
            );
            Err(Error::schema("key_refused", text)
                .hint("choose another key")
                .in_column(field.name()))
        }
    }
}
