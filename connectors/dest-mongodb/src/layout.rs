//! How a row becomes a document: where its `_id` comes from, and the fields behind it.

use std::rc::Rc;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, StringArray};
use rapidbyte_bson::Kind;
use rapidbyte_document_store::{IdOf, ensure_one_text, is_deleted, null_key};
use rapidbyte_formats::{KeyTexts, shortest_number};
use rapidbyte_mongo::form::{self, ID, Native};
use rapidbyte_mongo::{EncodeOptions, Encoder, MongoError, Nulls, Owner, Rows};
use rapidbyte_sdk::prelude::*;

/// The encoders of one stream.
pub(crate) struct Layout {
    pub id_of: IdOf,
    id: Option<Encoder>,
    id_columns: Vec<usize>,
    /// Their names.
    id_names: Vec<String>,
    /// Which of them are numbers as text.
    numeric: Vec<bool>,
    fields: Encoder,
    field_columns: Vec<usize>,
    /// The column has whole documents, and the `_id` is in them.
    is_whole: bool,
    /// The column that says that a row is deleted.
    deleted: Option<usize>,
}

/// The contract's error for an error of the codec.
pub(crate) fn convert(error: MongoError) -> Error {
    let kind = match error.owner {
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = error.hint.map(str::to_owned);
    converted.column = error.column;
    converted
}

/// Where the `_id` of a document comes from. Errors: `key_differs`, `key_refused`, `key_missing`.
pub(crate) fn id_of(target: &Target, schema: &Schema) -> Result<IdOf> {
    IdOf::of(target, schema, ID, refuse)
}

/// Types that MongoDB does not take as an `_id`.
fn refuse(field: &Field) -> Result<()> {
    use DataType::{FixedSizeList, LargeList, List};
    match field.data_type() {
        List(_) | LargeList(_) | FixedSizeList(..) => {
            let text = format!(
                "the column {:?} has lists, which cannot be an _id",
                field.name()
            );
            Err(Error::schema("key_refused", text)
                .hint("choose another key")
                .in_column(field.name()))
        }
        _ => ensure_one_text(field),
    }
}

/// The shortest text of each number.
fn shortest(numbers: &ArrayRef) -> ArrayRef {
    let Some(texts) = numbers.as_any().downcast_ref::<StringArray>() else {
        return numbers.clone();
    };
    let shortest = texts.iter().map(|text| text.map(shortest_number));
    Arc::new(shortest.collect::<StringArray>())
}

impl Layout {
    /// Errors: of [`id_of`]; `type_refused`, `invalid_name`.
    pub fn new(target: &Target, schema: &Schema, options: EncodeOptions) -> Result<Self> {
        let id_of = id_of(target, schema)?;
        let id_columns = id_of.columns().to_vec();
        // A key that is NULL is refused, and never left out.
        let of_id = EncodeOptions {
            nulls: Nulls::Write,
            ..options
        };
        let id = match *id_of.columns() {
            [] => None,
            [column] => {
                let field = schema.field(column).clone().with_name(ID);
                Some(Encoder::new(&Schema::new(vec![field]), of_id).map_err(convert)?)
            }
            ref columns => {
                let fields = schema.project(columns)?;
                Some(Encoder::new(&fields, of_id).map_err(convert)?)
            }
        };
        let is_document = |field: &Field| {
            Native::of(field) == Some(Native::Document) && field.name() == form::DOCUMENT
        };
        let document = schema.fields().iter().position(|field| is_document(field));
        let field_columns: Vec<usize> = match (document, &id_of) {
            (Some(document), IdOf::Column(_)) => vec![document],
            (_, IdOf::Column(column)) => (0..schema.fields().len())
                .filter(|place| place != column)
                .collect(),
            _ => (0..schema.fields().len()).collect(),
        };
        let fields = schema.project(&field_columns)?;
        let deleted = target.deleted_field.as_ref();
        let deleted = deleted.map(|name| schema.index_of(name)).transpose()?;
        Ok(Self {
            is_whole: document.is_some() && matches!(id_of, IdOf::Column(_)),
            id_names: id_columns
                .iter()
                .map(|place| schema.field(*place).name().clone())
                .collect(),
            numeric: id_columns
                .iter()
                .map(|place| KeyTexts::of(schema.field(*place)) == KeyTexts::Numbers)
                .collect(),
            id_of,
            id,
            id_columns,
            fields: Encoder::new(&fields, options).map_err(convert)?,
            field_columns,
            deleted,
        })
    }

    /// The rows of a batch.
    pub fn rows(self: &Rc<Self>, batch: &RecordBatch) -> Result<Documents> {
        let fields = batch.project(&self.field_columns)?;
        let ids = self.ids(batch)?;
        let id = self.id.as_ref();
        let id = id.map(|encoder| encoder.rows(&ids)).transpose();
        Ok(Documents {
            layout: self.clone(),
            id: id.map_err(convert)?,
            ids: ids.columns().to_vec(),
            fields: self.fields.rows(&fields).map_err(convert)?,
            deleted: self.deleted.map(|place| batch.column(place).clone()),
        })
    }
}

impl Layout {
    /// The columns of the `_id`.
    fn ids(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let ids = batch.project(&self.id_columns)?;
        if !self.numeric.contains(&true) {
            return Ok(ids);
        }
        let columns = ids.columns().iter().zip(&self.numeric);
        let columns = columns.map(|(column, is_numeric)| match is_numeric {
            true => shortest(column),
            false => column.clone(),
        });
        Ok(RecordBatch::try_new(ids.schema(), columns.collect())?)
    }
}

/// The write that a row becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Write,
    Delete,
}

/// The rows of one batch, ready to be written.
pub struct Documents {
    layout: Rc<Layout>,
    id: Option<Rows>,
    ids: Vec<ArrayRef>,
    fields: Rows,
    deleted: Option<ArrayRef>,
}

impl Documents {
    /// Writes the element `_id` of a row into `id`, if it comes from the row, and its document into `document`, if it is
    /// not deleted. Errors: `null_key`; of the codec.
    pub(crate) fn encode(
        &self,
        row: usize,
        id: &mut Vec<u8>,
        document: &mut Vec<u8>,
    ) -> Result<Action> {
        self.id(row, id)?;
        if is_deleted(self.deleted.as_ref(), row) {
            return Ok(Action::Delete);
        }
        self.document(row, id, document)?;
        Ok(Action::Write)
    }

    fn id(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let Some(id) = &self.id else {
            return Ok(());
        };
        for (place, column) in self.ids.iter().enumerate() {
            if column.is_null(row) {
                return Err(null_key(&self.layout.id_names[place]));
            }
        }
        match self.ids.len() {
            2.. => {
                out.push(Kind::Document.byte());
                out.extend_from_slice(b"_id\0");
                id.document(row, out).map_err(convert)
            }
            _ => id.elements(row, out).map_err(convert),
        }
    }

    fn document(&self, row: usize, id: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let begin = out.len();
        if self.layout.is_whole {
            return self.fields.document(row, out).map_err(convert);
        }
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(id);
        self.fields.elements(row, out).map_err(convert)?;
        out.push(0);
        let len = i32::try_from(out.len() - begin);
        let len = len.map_err(|_| Error::data("document_too_large", "a document above 2 GiB"))?;
        out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }
}

/// The element `_id` with bytes that the connector makes.
pub(crate) fn made(id: &[u8], out: &mut Vec<u8>) {
    out.push(Kind::Binary.byte());
    out.extend_from_slice(b"_id\0");
    let len = u32::try_from(id.len()).unwrap_or_default();
    out.extend_from_slice(&len.to_le_bytes());
    out.push(0);
    out.extend_from_slice(id);
}

/// A document with this element alone.
pub(crate) fn of_element(element: &[u8]) -> Vec<u8> {
    let len = i32::try_from(element.len() + 5).unwrap_or(i32::MAX);
    [&len.to_le_bytes(), element, &[0]].concat()
}
