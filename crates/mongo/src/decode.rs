//! BSON to Arrow: a row for each document.

mod column;
mod convert;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_bson::{Document, Value};
use rapidbyte_wire::types::is_json;

use crate::error::{MongoError, Owner, Problem};
use crate::extjson::{self, Style};
use crate::form::Native;
use column::Column;

/// Documents of a batch, in bytes. JSON text has at most six times as many, and the texts of a column at most 2 GiB.
const MAX_BATCH_BYTES: usize = 256 << 20;

/// What becomes of a field that is not a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownKeys {
    /// The document is refused.
    #[default]
    Refuse,
    /// The field is ignored.
    Ignore,
}

/// How documents become columns.
#[derive(Debug, Clone, Default)]
pub struct DecodeOptions {
    /// How values are written in JSON columns.
    pub json: Style,
    /// The JSON column for fields without a column of their own: one object of all of them. NULL without such a field.
    pub rest: Option<String>,
    /// The JSON column that has whole documents.
    pub whole: Option<String>,
    /// Fields that have a column which nobody wants: they are ignored, and are not a part of the rest.
    pub unwanted: Vec<String>,
    /// For fields without a column, unless `rest`, `whole` or a native column of documents has them.
    pub unknown_keys: UnknownKeys,
}

/// Makes batches of documents.
///
/// A field of a document goes into the column of its name. A native column of documents ([`Native::Document`]) has the
/// whole document, whatever it is named.
pub struct Decoder {
    schema: SchemaRef,
    columns: Columns,
    /// Set after the first failure: each document is decoded here first, so that one that fails leaves no part of a row.
    trial: Option<Columns>,
    /// The rows before the first failure.
    before: Option<RecordBatch>,
    bytes: usize,
}

impl Decoder {
    /// A decoder for documents as rows of this schema.
    ///
    /// # Errors
    /// `type_refused` with the column.
    pub fn new(schema: &Schema, options: DecodeOptions) -> Result<Self, MongoError> {
        let schema = Arc::new(schema.clone());
        Ok(Self {
            columns: Columns::new(&schema, options)?,
            schema,
            trial: None,
            before: None,
            bytes: 0,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows since the last batch.
    pub fn rows(&self) -> usize {
        self.before.as_ref().map_or(0, RecordBatch::num_rows) + self.columns.rows
    }

    /// Bytes of their documents.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a row. A document that fails leaves none; the caller may continue with the next one.
    ///
    /// # Errors
    /// `value_does_not_fit`, `null_in_required_column`, `mongo_unknown_field`, `mongo_duplicate_field`, `mongo_invalid_bson`, `record_too_large`,
    /// each with the column if it is about one.
    pub fn push(&mut self, document: Document<'_>) -> Result<(), MongoError> {
        let bytes = document.as_bytes().len();
        if self.bytes + bytes > MAX_BATCH_BYTES && self.bytes > 0 {
            let text = "the batch is above 256 MiB";
            return Err(MongoError::new(Owner::Data, "record_too_large", text)
                .hint("lower resources.batch_bytes"));
        }
        if let Some(trial) = &mut self.trial {
            let tried = trial.push(document);
            trial.take(&self.schema)?;
            tried?;
        }
        if let Err(error) = self.columns.push(document) {
            // The columns have a part of a row: the rows before it are all that counts.
            let whole = self.columns.take(&self.schema)?;
            self.before = (whole.num_rows() > 0).then_some(whole);
            self.trial = Some(Columns::new(&self.schema, self.columns.options.clone())?);
            return Err(error);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// The rows since the last batch: all of them, or those before the first document that failed and then the others.
    /// Nothing without a row.
    ///
    /// # Errors
    /// `malformed_batch`: Arrow refused the columns.
    pub fn take_batch(&mut self) -> Result<Option<RecordBatch>, MongoError> {
        if let Some(batch) = self.before.take() {
            return Ok(Some(batch));
        }
        self.bytes = 0;
        let batch = self.columns.take(&self.schema)?;
        Ok((batch.num_rows() > 0).then_some(batch))
    }
}

/// The columns of a batch that grows.
struct Columns {
    columns: Vec<Column>,
    /// Where the field of a name goes. `None` for one that nobody wants.
    by_name: HashMap<String, Option<usize>>,
    /// Columns that the field of a name goes into.
    wanted: usize,
    options: DecodeOptions,
    rest: Option<usize>,
    whole: Option<usize>,
    /// The native column of documents.
    native: Option<usize>,
    rows: usize,
    /// Of the rest, for the next document.
    text: Vec<u8>,
}

impl Columns {
    fn new(schema: &SchemaRef, options: DecodeOptions) -> Result<Self, MongoError> {
        let columns = schema.fields().iter();
        let columns: Vec<Column> = columns
            .map(|field| Column::new(field, options.json))
            .collect::<Result<_, _>>()?;
        let place = |name: &Option<String>| {
            let at = schema.index_of(name.as_deref()?).ok()?;
            is_json(schema.field(at)).then_some(at)
        };
        let mut fields = schema.fields().iter();
        let native = fields.position(|field| Native::of(field) == Some(Native::Document));
        let (rest, whole) = (place(&options.rest), place(&options.whole));
        let special = [rest, whole, native];
        let names = schema.fields().iter().enumerate();
        let names = names.filter(|(at, _)| !special.contains(&Some(*at)));
        let names = names.map(|(at, field)| (field.name().clone(), Some(at)));
        let unwanted = options.unwanted.iter().map(|name| (name.clone(), None));
        let by_name: HashMap<_, _> = unwanted.chain(names).collect();
        Ok(Self {
            wanted: by_name.values().flatten().count(),
            columns,
            by_name,
            rest,
            whole,
            native,
            options,
            rows: 0,
            text: Vec::new(),
        })
    }

    fn push(&mut self, document: Document<'_>) -> Result<(), MongoError> {
        // Nothing but names of columns is looked for: a field that nobody wants is not read.
        let keeps_all = self.whole.is_some() || self.native.is_some();
        let mut rest = Vec::new();
        let mut expected = 0;
        let mut elements = document.elements();
        // A native document is read no further than its columns need.
        let mut missing = self.wanted;
        while !(self.native.is_some() && missing == 0) {
            let Some(element) = elements.next() else {
                break;
            };
            let (name, value) = element.map_err(|error| self.malformed(error.into()))?;
            let at = match self.columns.get(expected) {
                Some(column) if column.name() == name && !self.is_special(expected) => {
                    Some(Some(expected))
                }
                _ => self.by_name.get(name).copied(),
            };
            if at == Some(None) {
                continue;
            }
            if let Some(at) = at.flatten() {
                expected = at + 1;
                missing = missing.saturating_sub(1);
                let column = &mut self.columns[at];
                if column.len() > self.rows {
                    return Err(Problem::Twice(name.to_owned()).at(name));
                }
                let pushed = self.columns[at].push(&value);
                pushed.map_err(|problem| problem.at(name))?;
            } else if self.rest.is_some() {
                rest.push((name, value));
            } else if !keeps_all && self.options.unknown_keys == UnknownKeys::Refuse {
                return Err(Problem::Unknown(name.to_owned()).at(name));
            }
        }
        self.push_special(document, &rest)?;
        let rows = self.rows;
        for column in &mut self.columns {
            if column.len() == rows {
                let pushed = column.push(&Value::Null);
                pushed.map_err(|problem| problem.at(column.name()))?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn push_special(
        &mut self,
        document: Document<'_>,
        rest: &[(&str, Value<'_>)],
    ) -> Result<(), MongoError> {
        let style = self.options.json;
        if let Some(at) = self.native {
            self.columns[at].push_bytes(document.as_bytes());
        }
        for (at, is_rest) in [(self.whole, false), (self.rest, true)] {
            let Some(at) = at else { continue };
            if is_rest && rest.is_empty() {
                continue;
            }
            self.text.clear();
            let written = match is_rest {
                true => extjson::write_elements(rest.iter().copied(), style, &mut self.text),
                false => extjson::write_document(document, style, &mut self.text),
            };
            let pushed = written.and_then(|()| self.columns[at].push_text(&self.text));
            pushed.map_err(|problem| problem.at(self.columns[at].name()))?;
        }
        Ok(())
    }

    /// True for a column that no field of its name goes into.
    fn is_special(&self, at: usize) -> bool {
        [self.rest, self.whole, self.native].contains(&Some(at))
    }

    fn malformed(&self, problem: Problem) -> MongoError {
        let mut error = problem.at("");
        error.message = error.message.trim_start_matches("column \"\": ").to_owned();
        error.column = None;
        error
    }

    /// The rows, without the part of a row behind them.
    fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, MongoError> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.columns.iter_mut().map(|column| column.finish(rows));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = arrays
            .collect::<Result<_, _>>()
            .and_then(|arrays| RecordBatch::try_new_with_options(schema.clone(), arrays, &options));
        batch
            .map_err(|error| MongoError::new(Owner::Internal, "malformed_batch", error.to_string()))
    }
}
