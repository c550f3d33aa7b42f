//! Encodes record batches into the binary COPY format.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};

use super::precision::{self, Precision};
use super::{SIGNATURE, TRAILER};
use crate::encode::{Bound, Layout};
use crate::error::Problem;
use crate::fit::decide;
use crate::model::Column;
use crate::op::Op;
use crate::{Fit, Owner, PgError};

/// `MaxHeapAttributeNumber`.
const MAX_COLUMNS: usize = 1600;

/// Encodes batches of one schema for `COPY table (columns) FROM STDIN (FORMAT binary)`.
pub struct Encoder {
    columns: Vec<EncodedColumn>,
    layout: Layout,
    rows: u64,
}

#[derive(Debug)]
struct EncodedColumn {
    name: String,
    data_type: DataType,
    op: Op,
    /// Finer values are refused: the server would round them.
    precision: Option<Precision>,
}

/// The rows of one batch, ready to be written.
pub struct Rows<'a> {
    columns: Vec<Bound<'a>>,
    names: &'a [EncodedColumn],
    layout: &'a Layout,
    rows: usize,
    first_row: u64,
}

impl Encoder {
    /// Encodes batches of `schema` for these columns of the target table, in the same order.
    ///
    /// Errors: `type_refused` or `needs_cast` (then give the target as
    /// [`as_text`](Column::as_text), the column of a staging table) where [`fit`](crate::fit()) says
    /// so, `invalid_metadata`, `schema_mismatch`.
    pub fn new(schema: &Schema, targets: &[Column]) -> Result<Self, PgError> {
        let fields = schema.fields().len();
        if fields != targets.len() || fields > MAX_COLUMNS {
            return Err(PgError::new(
                Owner::Internal,
                "schema_mismatch",
                format!(
                    "{fields} fields for {} columns, of which a table has at most {MAX_COLUMNS}",
                    targets.len()
                ),
            ));
        }
        let columns = schema
            .fields()
            .iter()
            .zip(targets)
            .map(|(field, target)| {
                let (fit, op) = decide(field, target)?;
                let refuse = |code, reason: String| {
                    PgError::new(
                        Owner::Schema,
                        code,
                        format!(
                            "field {:?} for column {:?} of type {}: {reason}",
                            field.name(),
                            target.name,
                            target.type_text
                        ),
                    )
                    .in_column(&target.name)
                };
                match (fit, op) {
                    (
                        Fit::Direct | Fit::Converted(_) | Fit::Widened(_) | Fit::Checked(_),
                        Some(op),
                    ) => Ok(EncodedColumn {
                        name: target.name.clone(),
                        data_type: field.data_type().clone(),
                        op,
                        precision: precision::of(target),
                    }),
                    (Fit::Refused(reason), _) => Err(refuse("type_refused", reason)),
                    _ => Err(refuse(
                        "needs_cast",
                        "must be loaded as text and cast".into(),
                    )),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut layout = Layout::new(false);
        layout.same(&(fields as i16).to_be_bytes());
        (0..fields).for_each(|column| layout.value(column));
        Ok(Self {
            columns,
            layout,
            rows: 0,
        })
    }

    /// From now on errors name rows as if `rows` rows had come before.
    pub fn count_from(&mut self, rows: u64) {
        self.rows = rows;
    }

    /// Writes the header of the stream.
    pub fn header(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(SIGNATURE);
        // No flags, no extension.
        out.extend_from_slice(&[0; 8]);
    }

    /// Writes the trailer of the stream.
    pub fn trailer(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&TRAILER);
    }

    /// Rows of the batches so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes a batch ready to be written, some rows at a time.
    ///
    /// `schema_mismatch` if it is not of the encoder's schema; `invalid_text` if its text holds NUL.
    pub fn bind<'a>(&'a mut self, batch: &'a RecordBatch) -> Result<Rows<'a>, PgError> {
        let first_row = self.rows + 1;
        self.rows += batch.num_rows() as u64;
        let mismatch = |name: &str| {
            PgError::new(
                Owner::Internal,
                "schema_mismatch",
                format!("the stream's schema does not have the batch's column {name:?}"),
            )
            .in_column(name)
        };
        if batch.num_columns() != self.columns.len() {
            return Err(mismatch("*"));
        }
        let bind = |(column, array): (&'a EncodedColumn, &'a arrow_array::ArrayRef)| {
            if column.data_type != *array.data_type() {
                return Err(mismatch(&column.name));
            }
            let finer = column.precision.and_then(|most| most.finer(array));
            if let Some(row) = finer {
                return Err(Problem::Finer.at(&column.name, first_row + row as u64));
            }
            match Bound::new(&column.op, array) {
                Ok(Some(bound)) => Ok(bound),
                Ok(None) => Err(mismatch(&column.name)),
                Err((row, problem)) => Err(problem.at(&column.name, first_row + row as u64)),
            }
        };
        let columns = self.columns.iter().zip(batch.columns());
        Ok(Rows {
            columns: columns.map(bind).collect::<Result<_, _>>()?,
            names: &self.columns,
            layout: &self.layout,
            rows: batch.num_rows(),
            first_row,
        })
    }

    /// Writes a whole batch.
    pub fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), PgError> {
        self.bind(batch)?.encode(0, usize::MAX, out).map(|_| ())
    }
}

impl Rows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Writes rows from `row` on until `out` holds `full_bytes` or more, at least one; gives the
    /// next row. After an error nothing was added.
    pub fn encode(
        &self,
        row: usize,
        full_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, PgError> {
        self.write(self.layout, row..self.rows, full_bytes, out)
    }

    /// Writes rows in a layout of these columns.
    pub(crate) fn write(
        &self,
        layout: &Layout,
        rows: Range<usize>,
        full_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, PgError> {
        let end = rows.end.min(self.rows);
        let written = layout.write(&self.columns, rows.start, end, full_bytes, out);
        written.map_err(|refused| {
            let row = self.first_row + refused.row as u64;
            match refused.column {
                Some(column) => refused.problem.at(&self.names[column].name, row),
                None => PgError {
                    row: Some(row),
                    ..PgError::too_large(format!("row {row} exceeds 2 GiB"))
                },
            }
        })
    }
}
