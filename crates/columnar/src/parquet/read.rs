//! One read of a Parquet file: row groups, steps of rows, batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Fields, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{Encoding, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use super::page::Groups;
use super::schema::FileSchema;
use super::{guarded, malformed};
use crate::pieces::Pieces;
use crate::{ColumnarError, Limits, ReadAt};

/// Rows of one step at most: the table of sizes and the levels of a column stay small.
const MAX_STEP_ROWS: usize = 1 << 16;
/// Rows of a step where values are written as differences to the one before: their length is not
/// known before they are decoded.
const MAX_DELTA_ROWS: usize = 1 << 10;
/// A value of bytes takes 16 bytes while it is decoded, and refers to its page.
const VIEW_BYTES: u64 = 16;
/// Batches that a step may load beyond one page of each column.
const STEP_BATCHES: u64 = 8;
/// Batches in memory at the same time: as it is decoded, as it is given, and as the message of it.
const HELD_BATCHES: u64 = 4;
/// After this many steps with fewer rows, the reader tries larger steps again.
const STEPS_BEFORE_MORE: u32 = 16;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Gives the batches of one file.
pub(crate) struct ParquetReader<R> {
    groups: Groups<R>,
    limits: Limits,
    schema: SchemaRef,
    plan: Plan,
    /// The next row group.
    next_group: usize,
    /// Rows of the row groups before.
    first_row: u64,
    open: Option<Open>,
    pieces: Option<Pieces>,
    /// Rows that make a batch of the open row groups, on average.
    most_step_rows: usize,
}

/// How the wanted columns are decoded.
struct Plan {
    inward: SchemaDescPtr,
    hints: Fields,
    mask: ProjectionMask,
    /// The leaves among them that are INT96, read once more in seconds.
    int96: Vec<usize>,
}

/// Row groups that are being read.
struct Open {
    groups: Range<usize>,
    rows: usize,
    /// Rows that were read.
    done: usize,
    step_rows: usize,
    /// Steps since it was opened.
    steps: u32,
    reader: ParquetRecordBatchReader,
    /// The columns of INT96, in seconds.
    seconds: Option<ParquetRecordBatchReader>,
}

impl<R: ReadAt> ParquetReader<R> {
    pub(crate) fn new(
        source: Arc<R>,
        metadata: Arc<ParquetMetaData>,
        file: &FileSchema,
        wanted: &[usize],
        schema: SchemaRef,
        limits: Limits,
    ) -> Result<Self, ColumnarError> {
        let int96 = file.int96.iter().copied().filter(|at| wanted.contains(at));
        Ok(Self {
            plan: Plan {
                inward: file.inward.clone(),
                hints: file.hints.clone(),
                mask: ProjectionMask::roots(&file.inward, wanted.iter().copied()),
                int96: int96.collect(),
            },
            groups: Groups {
                source,
                metadata,
                range: 0..0,
                budget: Arc::default(),
                max_page_bytes: limits.max_piece_bytes(),
            },
            limits,
            schema,
            next_group: 0,
            first_row: 0,
            open: None,
            pieces: None,
            most_step_rows: 0,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The memory that the largest row group takes at least while it is read.
    pub(crate) fn needed_bytes(&self) -> Result<u64, ColumnarError> {
        let is_wanted = |leaf: &usize| self.plan.mask.leaf_included(*leaf);
        let groups = self.groups.metadata.row_groups().iter().enumerate();
        let plain = |(_, group): &(usize, &RowGroupMetaData)| {
            let chunks = group.columns().iter().enumerate();
            let wanted = chunks.filter(|(leaf, _)| is_wanted(leaf));
            wanted.map(|(_, chunk)| decoded_bytes(chunk)).sum::<u64>()
        };
        let Some((largest, group)) = groups.max_by_key(plain) else {
            return Ok(0);
        };
        let leaves: Vec<usize> = (0..group.num_columns()).filter(is_wanted).collect();
        let held = self.groups.held_bytes(largest, &leaves);
        let held = held.map_err(|error| malformed(&error))?;
        Ok(match held {
            0 => 0,
            held => held + HELD_BATCHES * self.limits.batch_bytes as u64,
        })
    }

    /// The next batch; `None` at the end of the file.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        loop {
            if let Some(batch) = Pieces::take(&mut self.pieces, &self.schema, &self.limits)? {
                return Ok(Some(batch));
            }
            let Some(open) = &mut self.open else {
                if !self.open_groups()? {
                    return Ok(None);
                }
                continue;
            };
            if open.done == open.rows {
                self.first_row += open.rows as u64;
                self.open = None;
                continue;
            }
            let (step_rows, most) = (open.step_rows, self.most_step_rows);
            if open.steps >= STEPS_BEFORE_MORE && step_rows < most {
                let (groups, rows, done) = (open.groups.clone(), open.rows, open.done);
                let more = step_rows.saturating_mul(4).min(most);
                self.open = Some(self.open_at(groups, rows, done, more)?);
            }
            self.pieces = self.step()?;
        }
    }

    /// Opens the next row groups: one, or as many small ones as make a batch. False at the end.
    fn open_groups(&mut self) -> Result<bool, ColumnarError> {
        let all = self.groups.metadata.row_groups();
        let first = self.next_group;
        let (mut last, mut rows, mut bytes) = (first, 0_usize, 0_u64);
        while last < all.len() && bytes < self.limits.batch_bytes as u64 && rows < MAX_STEP_ROWS {
            // Checked to fit with the footer.
            let more = usize::try_from(all[last].num_rows()).unwrap_or(usize::MAX);
            if last > first && more > MAX_STEP_ROWS {
                break;
            }
            rows = rows.saturating_add(more);
            let chunks = all[last].columns().iter().enumerate();
            let wanted = chunks.filter(|(leaf, _)| self.plan.mask.leaf_included(*leaf));
            bytes += wanted.map(|(_, chunk)| decoded_bytes(chunk)).sum::<u64>();
            last += 1;
        }
        if first == last {
            return Ok(false);
        }
        self.next_group = last;
        self.groups.range = first..last;
        let step_rows = self.step_rows(first..last, rows);
        self.most_step_rows = step_rows;
        self.open = Some(self.open_at(first..last, rows, 0, step_rows)?);
        Ok(true)
    }

    /// How many rows make a batch, by what the metadata says.
    fn step_rows(&self, groups: Range<usize>, rows: usize) -> usize {
        let mut bytes = 0;
        let mut most = MAX_STEP_ROWS;
        for group in &self.groups.metadata.row_groups()[groups] {
            for (leaf, chunk) in group.columns().iter().enumerate() {
                if !self.plan.mask.leaf_included(leaf) {
                    continue;
                }
                bytes += decoded_bytes(chunk);
                if chunk.encodings().any(|e| e == Encoding::DELTA_BYTE_ARRAY) {
                    most = MAX_DELTA_ROWS;
                }
            }
        }
        let per_row = bytes.div_ceil(rows.max(1) as u64).max(1);
        let fitting = (self.limits.batch_bytes as u64 / per_row).max(1);
        usize::try_from(fitting).unwrap_or(most).min(most)
    }

    /// Readers of row groups from row `done` on.
    fn open_at(
        &self,
        groups: Range<usize>,
        rows: usize,
        done: usize,
        step_rows: usize,
    ) -> Result<Open, ColumnarError> {
        let plan = &self.plan;
        let levels = |mask: &ProjectionMask, hints: &Fields| {
            parquet_to_arrow_field_levels(&plan.inward, mask.clone(), Some(hints))
        };
        let selection = || {
            let rest = rows - done;
            let parts = vec![RowSelector::skip(done), RowSelector::select(rest)];
            (done > 0).then(|| RowSelection::from(parts))
        };
        let open = |levels: &FieldLevels| {
            ParquetRecordBatchReader::try_new_with_row_groups(
                levels,
                &self.groups,
                step_rows,
                selection(),
            )
        };
        let build = || -> Result<_, ParquetError> {
            let reader = open(&levels(&plan.mask, &plan.hints)?)?;
            if plan.int96.is_empty() {
                return Ok((reader, None));
            }
            let mask = ProjectionMask::roots(&plan.inward, plan.int96.iter().copied());
            let mut hints: Vec<_> = plan.hints.to_vec();
            for at in &plan.int96 {
                let seconds = DataType::Timestamp(TimeUnit::Second, None);
                hints[*at] = Arc::new(hints[*at].as_ref().clone().with_data_type(seconds));
            }
            Ok((reader, Some(open(&levels(&mask, &hints.into())?)?)))
        };
        let (reader, seconds) = build().map_err(|error| malformed(&error))?;
        Ok(Open {
            groups,
            rows,
            done,
            step_rows,
            steps: 0,
            reader,
            seconds,
        })
    }

    /// Reads the next rows; `None` if they were too many at once and there is another try.
    fn step(&mut self) -> Result<Option<Pieces>, ColumnarError> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let budget = self.groups.budget.clone();
        let allowed = match open.step_rows {
            // One row cannot be halved.
            1 => self.limits.max_piece_bytes(),
            _ => (self.limits.batch_bytes as u64).saturating_mul(STEP_BATCHES),
        };
        budget.begin(allowed);
        let reader = &mut open.reader;
        let read = match guarded(|| reader.next().transpose()) {
            Ok(read) => read,
            Err(error) => return Err(self.located(error)),
        };
        let batch = match read {
            Ok(batch) => batch,
            Err(_) if budget.is_exceeded() && open.step_rows > 1 => {
                let (groups, step_rows) = (open.groups.clone(), open.step_rows / 4);
                let (rows, done) = (open.rows, open.done);
                self.open = Some(self.open_at(groups, rows, done, step_rows.max(1))?);
                return Ok(None);
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let expected = (open.rows - open.done).min(open.step_rows);
        let batch = batch.filter(|batch| batch.num_rows() == expected);
        let Some(batch) = batch else {
            let text = "the file has fewer rows than its metadata declares";
            return Err(self.located(ColumnarError::new("parquet_malformed", text)));
        };
        if let Some(seconds) = &mut open.seconds {
            budget.begin(u64::MAX);
            let seconds = seconds.next().transpose();
            match seconds {
                Ok(Some(seconds)) => self.check_int96(&batch, &seconds)?,
                Ok(None) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let first_row = self.first_row + open.done as u64;
        open.done += batch.num_rows();
        open.steps += 1;
        let columns = self.schema.fields().iter().map(|field| {
            let column = batch.column_by_name(field.name()).cloned();
            column.ok_or_else(|| {
                ColumnarError::new("arrow", format!("column {:?} was not read", field.name()))
            })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Some(Pieces::new(columns, batch.num_rows(), first_row)))
    }

    /// Nanoseconds that do not fit 64 bits wrap; seconds always fit.
    fn check_int96(&self, batch: &RecordBatch, seconds: &RecordBatch) -> Result<(), ColumnarError> {
        for (column, field) in seconds.columns().iter().zip(seconds.schema_ref().fields()) {
            let Some(nanos) = batch.column_by_name(field.name()) else {
                continue;
            };
            let nanos = nanos.as_primitive::<TimestampNanosecondType>();
            let seconds = column.as_primitive::<TimestampSecondType>();
            let wrapped = (0..nanos.len().min(seconds.len())).find(|row| {
                !nanos.is_null(*row)
                    && nanos.value(*row).div_euclid(NANOS_PER_SECOND) != seconds.value(*row)
            });
            if let (Some(row), Some(open)) = (wrapped, &self.open) {
                let text = format!(
                    "column {:?}: a timestamp of type INT96 outside the years 1677 to 2262",
                    field.name()
                );
                return Err(ColumnarError::new("value_does_not_fit", text)
                    .column(field.name())
                    .row(self.first_row + (open.done + row) as u64));
            }
        }
        Ok(())
    }

    fn failed(&self, error: &ArrowError) -> ColumnarError {
        if self.groups.budget.is_exceeded() {
            let text = format!("a record exceeds {} bytes", self.limits.max_piece_bytes());
            return self.located(
                ColumnarError::new("record_too_large", text)
                    .hint("raise resources.max_record_bytes"),
            );
        }
        let error = match error {
            ArrowError::ExternalError(error) => ParquetError::General(error.to_string()),
            ArrowError::ParquetError(text) => {
                let text = text.strip_prefix("Parquet error: ").unwrap_or(text);
                ParquetError::General(text.to_owned())
            }
            other => ParquetError::General(other.to_string()),
        };
        self.located(malformed(&error))
    }

    /// The error with the row group that was being read, and the first row of the step.
    fn located(&self, error: ColumnarError) -> ColumnarError {
        let Some(open) = &self.open else {
            return error;
        };
        let mut group = open.groups.start;
        let mut done = open.done as u64;
        for at in open.groups.clone() {
            let rows = self.groups.metadata.row_group(at).num_rows().unsigned_abs();
            group = at;
            if done < rows {
                break;
            }
            done -= rows;
        }
        error.group(group).row(self.first_row + open.done as u64)
    }
}

/// Bytes of a chunk's values while they are decoded, or of the chunk without compression if that
/// is more.
fn decoded_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    let width = match chunk.column_type() {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT => 4,
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::BYTE_ARRAY => VIEW_BYTES,
        Physical::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(chunk.column_descr().type_length()).unwrap_or(1)
        }
    };
    let decoded = chunk.num_values().unsigned_abs().saturating_mul(width);
    decoded.max(chunk.uncompressed_size().unsigned_abs())
}
