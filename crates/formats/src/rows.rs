//! Rows under construction: the columns of both decoders; and rows on their way to both encoders.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::name::shown;
use rapidbyte_wire::types::is_stored;

use crate::FormatError;
use crate::cells::Cells;
use crate::column::Column;
use crate::error::{Misfit, Owner};

/// The most that a decoder may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A batch is full once its columns hold this many bytes; the last record may go beyond.
    pub batch_bytes: usize,
    /// A batch is full at this many rows, for tables of few and narrow columns.
    pub batch_rows: usize,
    /// A longer record is refused.
    pub max_record_bytes: usize,
}

impl Default for Limits {
    /// Batches of 1 MiB or 65,536 rows, records up to 64 MiB.
    fn default() -> Self {
        Self {
            batch_bytes: 1 << 20,
            batch_rows: 1 << 16,
            max_record_bytes: 64 << 20,
        }
    }
}

/// Appends rows by `write`, from place `from` on, one at least. Stops once `out` holds `until_bytes`
/// or more, or after the last row. Gives the next place; after the last row this is the number of
/// rows. The batch must be of `schema`.
///
/// Errors: `schema_mismatch`, and the errors of `write`. `out` then ends with half a row.
pub(crate) fn encode(
    schema: &SchemaRef,
    rows: Picked<'_>,
    from: usize,
    out: &mut Vec<u8>,
    until_bytes: usize,
    mut write: impl FnMut(&[Cells], usize, &mut Vec<u8>) -> Result<(), FormatError>,
) -> Result<usize, FormatError> {
    let columns = cells(schema, rows.batch())?;
    let mut at = from;
    while at < rows.len() && (at == from || out.len() < until_bytes) {
        write(&columns, rows.row(at), out)?;
        at += 1;
    }
    Ok(at)
}

/// The columns of a batch.
pub(crate) fn cells(schema: &SchemaRef, batch: &RecordBatch) -> Result<Vec<Cells>, FormatError> {
    let (found, declared) = (batch.num_columns(), schema.fields().len());
    if found != declared {
        let text = format!("a batch of {found} columns, but {declared} were declared");
        return Err(FormatError::new("schema_mismatch", text));
    }
    let columns = schema.fields().iter().zip(batch.columns());
    columns
        .map(|(field, array)| Cells::new(field, array))
        .collect()
}

/// Rows of a batch, in an order.
#[derive(Clone, Copy)]
pub struct Picked<'a> {
    batch: &'a RecordBatch,
    /// All rows if absent.
    rows: Option<&'a [u32]>,
    len: usize,
}

impl<'a> Picked<'a> {
    /// All rows of a batch.
    pub fn all(batch: &'a RecordBatch) -> Self {
        Self {
            batch,
            rows: None,
            len: batch.num_rows(),
        }
    }

    /// The rows of these numbers, each below the batch's number of rows.
    pub fn of(batch: &'a RecordBatch, rows: &'a [u32]) -> Self {
        Self {
            batch,
            rows: Some(rows),
            len: rows.len(),
        }
    }

    /// The first `len` of them.
    #[must_use]
    pub fn first(self, len: usize) -> Self {
        Self {
            len: self.len.min(len),
            ..self
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The batch that they are of.
    pub fn batch(&self) -> &'a RecordBatch {
        self.batch
    }

    /// The batch's row at a place.
    pub fn row(&self, at: usize) -> usize {
        self.rows.map_or(at, |rows| rows[at] as usize)
    }
}

/// Makes room for `more` bytes of a record as a vector does, but never for more than a record may
/// have.
pub(crate) fn reserve_within(record: &mut Vec<u8>, more: usize, max_record_bytes: usize) {
    let needed = record.len() + more;
    if needed <= record.capacity() {
        return;
    }
    let room = needed.max(record.capacity().saturating_mul(2).min(max_record_bytes));
    record.reserve_exact(room - record.len());
}

/// A record that could not be read.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The record as it is in the file, without its line break: its first [`Rejected::MAX_BYTES`].
    pub data: Vec<u8>,
    /// It has more bytes.
    pub is_cut: bool,
    /// The columns of its fields, as a JSON array of their names, if the file says them apart from the record. None for
    /// names of more than [`Rejected::MAX_BYTES`].
    pub read_with: Option<Arc<str>>,
    /// Why it could not be read.
    pub error: FormatError,
}

impl Rejected {
    /// Bytes of a record that are kept.
    pub const MAX_BYTES: usize = 64 << 10;
}

/// The first bytes of a text, at most `most`, and not a part of a character. Of bytes that are not text, the first `most`.
pub(crate) fn first_bytes(data: &[u8], most: usize) -> &[u8] {
    let end = data.len().min(most);
    // A character has four bytes at most.
    let is_within = |at: usize| data.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let begin = (end.saturating_sub(3)..=end).rev();
    let begin = begin.into_iter().find(|at| !is_within(*at));
    &data[..begin.unwrap_or(end)]
}

/// Records that wait to be taken.
#[derive(Default)]
struct Rejects {
    records: Vec<Rejected>,
    bytes: usize,
}

impl Rejects {
    /// Records, and bytes of them, that are kept until they are taken.
    const MAX_RECORDS: usize = 500;
    const MAX_BYTES: usize = 1 << 20;

    fn push(&mut self, data: &[u8], read_with: Option<&Arc<str>>, error: FormatError) {
        let kept = first_bytes(data, Rejected::MAX_BYTES);
        // A taker copies the names for each record.
        self.bytes += kept.len() + read_with.map_or(0, |names| names.len());
        self.records.push(Rejected {
            data: kept.to_vec(),
            is_cut: kept.len() < data.len(),
            read_with: read_with.cloned(),
            error,
        });
    }

    fn are_many(&self) -> bool {
        self.records.len() >= Self::MAX_RECORDS || self.bytes >= Self::MAX_BYTES
    }
}

/// The wanted columns and how many rows they hold.
pub(crate) struct Rows {
    pub columns: Vec<Column>,
    schema: SchemaRef,
    rows: usize,
    bytes: usize,
    limits: Limits,
    /// The types are a guess.
    inferred: bool,
    /// Records that did not become rows, if they are kept.
    rejects: Option<Rejects>,
}

/// Where each column of the file goes: to a wanted column, or nowhere.
pub(crate) type Targets = Vec<Option<usize>>;

impl Rows {
    /// The columns of `schema` named in `wanted`, in that order; all of them without.
    pub(crate) fn new(
        schema: &SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<(Self, Targets), FormatError> {
        let mut targets = vec![None; schema.fields().len()];
        let mut fields = Vec::new();
        match wanted {
            None => {
                fields.extend(schema.fields().iter().cloned());
                targets = (0..fields.len()).map(Some).collect();
            }
            Some(names) => {
                for name in names {
                    let Some((at, field)) = schema.fields().find(name) else {
                        return Err(unknown_column(name, schema));
                    };
                    if targets[at].replace(fields.len()).is_some() {
                        return Err(FormatError::new(
                            "unknown_column",
                            format!("column {} is selected twice", shown(name)),
                        )
                        .column(name));
                    }
                    fields.push(field.clone());
                }
            }
        }
        let columns = fields.iter().map(Column::new).collect::<Result<_, _>>()?;
        let metadata = schema.metadata().clone();
        let rows = Self {
            columns,
            schema: Schema::new_with_metadata(fields, metadata).into(),
            rows: 0,
            bytes: 0,
            limits,
            inferred: false,
            rejects: None,
        };
        Ok((rows, targets))
    }

    /// Keeps records that cannot be read from here on, instead of failing.
    pub(crate) fn keep_rejects(&mut self) {
        self.rejects = Some(Rejects::default());
    }

    /// The records that were kept since the last call.
    pub(crate) fn take_rejects(&mut self) -> Vec<Rejected> {
        let rejects = self.rejects.as_mut();
        rejects
            .map(|kept| std::mem::take(kept).records)
            .unwrap_or_default()
    }

    /// Keeps a record that could not be read, if such records are kept. Its values are taken out of the columns. Answers
    /// whether there is room for another record.
    pub(crate) fn reject(
        &mut self,
        data: &[u8],
        read_with: Option<&Arc<str>>,
        error: FormatError,
    ) -> Result<bool, FormatError> {
        let is_of_record = matches!(error.owner(), Owner::Data | Owner::Schema);
        let Some(rejects) = self.rejects.as_mut().filter(|_| is_of_record) else {
            return Err(error);
        };
        rejects.push(data, read_with, error);
        for column in &mut self.columns {
            column.truncate(self.rows);
        }
        Ok(!self.is_full())
    }

    /// The types are a guess, so that no column may change its values.
    pub(crate) fn inferred(&mut self, keep: fn(&mut Column)) {
        self.inferred = true;
        self.columns.iter_mut().for_each(keep);
    }

    /// The error for a value that a column did not take.
    pub(crate) fn refuse(&self, misfit: Misfit, column: usize) -> FormatError {
        let error = misfit.into_error(self.columns[column].field().name());
        if !self.inferred || error.code != "value_does_not_fit" {
            return error;
        }
        if is_stored(self.columns[column].field()) {
            return error.hint(
                "repair the value: the column has the type of the target's column; or give the target's column a type \
                 that holds it, or let rejects keep such records",
            );
        }
        error.hint(
            "declare the column's type under schema:, or raise sample_rows and sample_bytes so \
                 that the sample contains such values: the type was inferred from the first rows",
        )
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        let are_many = self.rejects.as_ref().is_some_and(Rejects::are_many);
        are_many || self.bytes >= self.limits.batch_bytes || self.rows >= self.limits.batch_rows
    }

    /// Counts a row whose values are all there.
    ///
    /// Errors: `record_too_large` for a row that takes more in the columns than a record may have. Its text may be
    /// much shorter: a list of the number 0 has two characters for each eight bytes.
    pub(crate) fn end_row(&mut self) -> Result<(), FormatError> {
        let bytes = self.columns.iter().map(Column::bytes).sum();
        // A batch beside the record: short records have wide values and bitmaps too. Whoever takes the batch has room for
        // both.
        let most = self
            .limits
            .max_record_bytes
            .saturating_add(self.limits.batch_bytes);
        let added = bytes - self.bytes.min(bytes);
        if added > most {
            let limit = self.limits.max_record_bytes;
            let text =
                format!("a record that takes {added} bytes in its columns, the limit is {limit}");
            return Err(FormatError::new("record_too_large", text).hint(format!(
                "raise resources.max_record_bytes to {}mb: a number takes up to eight bytes",
                added.div_ceil(1 << 20)
            )));
        }
        self.rows += 1;
        self.bytes = bytes;
        Ok(())
    }

    /// Says how many values each column has been given.
    pub(crate) fn set_len(&mut self, rows: usize) {
        self.rows = rows;
    }

    /// The rows so far; `None` without any.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let arrays = self
            .columns
            .iter_mut()
            .map(Column::finish)
            .collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        Ok(Some(batch))
    }
}

pub(crate) fn unknown_column(name: &str, schema: &Schema) -> FormatError {
    let known: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    FormatError::new(
        "unknown_column",
        format!("the stream does not have a column {}", shown(name)),
    )
    .hint(format!("use one of {}", known.join(", ")))
    .column(name)
}
