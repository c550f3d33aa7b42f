//! Decodes the binary COPY format into record batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::{HEADER_BYTES, SIGNATURE};
use crate::builder::ColumnBuilder;
use crate::decode::Cell;
use crate::form::{Table, form, schema};
use crate::model::Column;
use crate::{Owner, PgError};

/// The server itself makes no larger field.
const MAX_RECORD_BYTES: usize = 1 << 30;
/// Cells that are scanned before the columns take their values: more would leave the processor's cache.
const SCAN_CELLS: usize = 8192;
/// Kind byte and length of a backend message.
const MESSAGE_HEAD: usize = 5;
const COPY_DATA: u8 = b'd';

/// Decodes the bytes of `COPY (SELECT …) TO STDOUT (FORMAT binary)`.
///
/// Bytes may arrive in pieces of any length (64 KiB are enough); only an incomplete row is kept.
/// After an error every call gives an error.
pub struct Decoder {
    schema: SchemaRef,
    columns: Vec<ColumnBuilder>,
    max_record_bytes: usize,
    state: State,
    /// An incomplete row (or header) and how far it was read.
    pending: Vec<u8>,
    progress: Progress,
    /// The fields of the rows found so far, row by row, and room for one row more than is scanned.
    cells: Vec<Cell>,
    /// How many of them are found.
    found: usize,
    /// One of them is NULL.
    has_null: bool,
    /// Rows that the columns hold.
    rows: usize,
    /// Rows that were taken, and those before the first.
    taken: u64,
    /// The bytes that are missing of a CopyData message's body.
    message_left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Rows,
    Ended,
    /// An error was given; the columns may differ in length.
    Failed,
}

/// How far an incomplete row was read.
#[derive(Debug, Default)]
struct Progress {
    at: usize,
    cells: Vec<Cell>,
}

enum Step {
    /// At least this many more bytes belong to the row.
    Need(usize),
    Row,
    Trailer,
}

impl Decoder {
    /// Decodes rows of these columns, which must be selected by
    /// [`select_expression`](crate::form::select_expression) in this order.
    ///
    /// A row of more than `max_record_bytes` (at most 1 GiB) is an error.
    pub fn new(columns: &[Column], native: bool, max_record_bytes: usize) -> Self {
        let schema = schema(columns, native, &Table::default());
        let builders = columns
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| {
                ColumnBuilder::new(field, &form(column, native), max_record_bytes)
            })
            .collect();
        Self {
            schema: Arc::new(schema),
            columns: builders,
            max_record_bytes: max_record_bytes.min(MAX_RECORD_BYTES),
            state: State::Header,
            pending: Vec::new(),
            progress: Progress::default(),
            cells: vec![Cell::default(); SCAN_CELLS + columns.len()],
            found: 0,
            has_null: false,
            rows: 0,
            taken: 0,
            message_left: 0,
        }
    }

    /// Errors name rows as if `rows` rows had come before.
    pub fn counting_from(self, rows: u64) -> Self {
        Self {
            taken: rows,
            ..self
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows that wait for [`take_batch`](Self::take_batch).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of Arrow data that wait for [`take_batch`](Self::take_batch).
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(ColumnBuilder::bytes).sum()
    }

    /// True once the trailer was seen.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Says that the server sent everything: `truncated_copy` if the trailer is missing.
    pub fn finish(&self) -> Result<(), PgError> {
        if self.has_ended() && self.message_left == 0 {
            return Ok(());
        }
        Err(PgError::new(
            Owner::Internal,
            "truncated_copy",
            format!(
                "the server's COPY stream ended after row {} without its trailer",
                self.total_rows()
            ),
        ))
    }

    /// Decodes a piece of the COPY stream (the bodies of CopyData messages, one after another), cut
    /// anywhere. [`push_messages`](Self::push_messages) is faster.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), PgError> {
        self.check_usable()?;
        let fed = self.feed(piece);
        self.fail_on(fed)
    }

    fn fail_on<T>(&mut self, result: Result<T, PgError>) -> Result<T, PgError> {
        if result.is_err() {
            self.state = State::Failed;
        }
        result
    }

    fn check_usable(&self) -> Result<(), PgError> {
        match self.state {
            State::Failed => Err(PgError::malformed("the COPY stream has already failed")),
            _ => Ok(()),
        }
    }

    /// Decodes the CopyData messages at the beginning of `bytes`, which come straight from the
    /// connection, and gives how many bytes were taken.
    ///
    /// The rest is the beginning of a message's head (fewer than 5 bytes) or another message. A
    /// server sends a message per row, and the decoder reads such rows in place. Rows that something in
    /// between has joined or cut are copied one by one, which takes several times as long.
    pub fn push_messages(&mut self, bytes: &[u8]) -> Result<usize, PgError> {
        self.check_usable()?;
        let taken = self.take_messages(&bytes[..bytes.len().min(MAX_RECORD_BYTES)]);
        self.fail_on(taken)
    }

    fn take_messages(&mut self, bytes: &[u8]) -> Result<usize, PgError> {
        let mut at = 0;
        loop {
            let body = &bytes[at..][..self.message_left.min(bytes.len() - at)];
            if !body.is_empty() {
                // The rows that wait come before it.
                self.flush(bytes)?;
                self.feed(body)?;
                self.message_left -= body.len();
                at += body.len();
            }
            if self.message_left == 0 && self.pending.is_empty() && self.state == State::Rows {
                at = self.take_whole_rows(bytes, at)?;
            }
            let Some(head) = bytes[at..].first_chunk::<MESSAGE_HEAD>() else {
                break;
            };
            if head[0] != COPY_DATA {
                break;
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            self.message_left = length
                .checked_sub(4)
                // A message without bytes makes no progress: a server could send them for ever.
                .filter(|body| (1..=MAX_RECORD_BYTES + 4).contains(body))
                .ok_or_else(|| {
                    PgError::malformed(format!("a CopyData message of {length} bytes"))
                })?;
            at += MESSAGE_HEAD;
        }
        self.flush(bytes)?;
        Ok(at)
    }

    /// Takes the messages from `at` on that are a row each; gives where another one begins.
    fn take_whole_rows(&mut self, bytes: &[u8], mut at: usize) -> Result<usize, PgError> {
        loop {
            if self.found >= SCAN_CELLS {
                self.flush(bytes)?;
            }
            let room = &mut self.cells[self.found..];
            let whole = whole_rows(bytes, at, room, self.columns.len(), self.max_record_bytes);
            at = whole.end;
            self.found += whole.cells;
            self.has_null |= whole.has_null;
            if self.found < SCAN_CELLS {
                return Ok(at);
            }
        }
    }

    /// The rows so far as a batch; the decoder then continues with the next batch.
    pub fn take_batch(&mut self) -> Result<RecordBatch, PgError> {
        self.check_usable()?;
        let first_row = self.taken + 1;
        let arrays: Result<Vec<ArrayRef>, _> = self
            .columns
            .iter_mut()
            .map(|column| column.take(first_row))
            .collect();
        let arrays = self.fail_on(arrays)?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.taken += self.rows as u64;
        self.rows = 0;
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        self.fail_on(
            batch.map_err(|error| {
                PgError::new(Owner::Internal, "schema_mismatch", error.to_string())
            }),
        )
    }

    fn total_rows(&self) -> u64 {
        self.taken + self.rows as u64
    }

    /// The row that is read; the columns hold all rows before it.
    fn row_name(&self) -> String {
        format!("row {}", self.total_rows() + 1)
    }

    /// Completes one row after the other in `pending`.
    fn feed(&mut self, mut piece: &[u8]) -> Result<(), PgError> {
        while !piece.is_empty() {
            if self.state == State::Ended {
                return Err(PgError::malformed(format!(
                    "{} bytes follow the trailer of the COPY stream",
                    piece.len()
                )));
            }
            let used = self.complete_pending(piece)?;
            piece = &piece[used..];
        }
        Ok(())
    }

    fn end_of_rows(&mut self, count: i16) -> Result<(), PgError> {
        if count != -1 {
            return Err(PgError::malformed(format!(
                "{}: {count} fields where {} are expected",
                self.row_name(),
                self.columns.len()
            )));
        }
        self.state = State::Ended;
        Ok(())
    }

    fn bad_length(&self, length: i32) -> PgError {
        PgError::malformed(format!("{}: a field of {length} bytes", self.row_name()))
    }

    fn record_too_large(&self, bytes: usize) -> PgError {
        PgError::too_large(format!(
            "{} has at least {bytes} bytes, and max_record_bytes is {}",
            self.row_name(),
            self.max_record_bytes
        ))
        .hint("raise resources.max_record_bytes")
    }

    /// Refuses an incomplete row as soon as a field's length says that it is too large.
    fn check_record(&self, so_far: usize, length: i32) -> Result<(), PgError> {
        let bytes = so_far.saturating_add(length.max(0) as usize);
        if bytes > self.max_record_bytes {
            return Err(self.record_too_large(bytes));
        }
        Ok(())
    }

    /// Hands the values of the cells that were found to the columns. The cells point into `data`.
    fn flush(&mut self, data: &[u8]) -> Result<(), PgError> {
        let found = std::mem::take(&mut self.found);
        let has_null = std::mem::take(&mut self.has_null);
        let cells = std::mem::take(&mut self.cells);
        let taken = self.hand_over(data, &cells[..found], has_null);
        self.cells = cells;
        taken
    }

    fn hand_over(&mut self, data: &[u8], cells: &[Cell], has_null: bool) -> Result<(), PgError> {
        if cells.is_empty() {
            return Ok(());
        }
        let width = self.columns.len();
        let first_row = self.total_rows() + 1;
        for (index, column) in self.columns.iter_mut().enumerate() {
            column.append(data, &cells[index..], width, has_null, first_row)?;
        }
        self.rows += cells.len() / width;
        Ok(())
    }

    /// Adds to the kept bytes what they need; gives how much of `rest` that was.
    fn complete_pending(&mut self, rest: &[u8]) -> Result<usize, PgError> {
        let mut used = 0;
        loop {
            let step = match self.state {
                State::Header => self.step_header()?,
                State::Rows => self.step_row()?,
                State::Ended | State::Failed => return Ok(used),
            };
            match step {
                Step::Need(missing) => {
                    let part = missing.min(rest.len() - used);
                    if part == 0 {
                        return Ok(used);
                    }
                    self.pending.extend_from_slice(&rest[used..used + part]);
                    used += part;
                }
                Step::Row => {
                    let cells = std::mem::take(&mut self.progress.cells);
                    let pending = std::mem::take(&mut self.pending);
                    if self.columns.is_empty() {
                        self.rows += 1;
                    }
                    self.hand_over(&pending, &cells, true)?;
                    self.progress.cells = cells;
                    self.reset_pending(pending);
                    return Ok(used);
                }
                Step::Trailer => {
                    let pending = std::mem::take(&mut self.pending);
                    self.reset_pending(pending);
                    return Ok(used);
                }
            }
        }
    }

    fn reset_pending(&mut self, mut pending: Vec<u8>) {
        pending.clear();
        self.pending = pending;
        self.progress.at = 0;
        self.progress.cells.clear();
    }

    fn step_header(&mut self) -> Result<Step, PgError> {
        let seen = self.pending.len().min(SIGNATURE.len());
        if self.pending[..seen] != SIGNATURE[..seen] {
            return Err(PgError::malformed("not the binary COPY format"));
        }
        if self.pending.len() < HEADER_BYTES {
            return Ok(Step::Need(HEADER_BYTES - self.pending.len()));
        }
        let word = |at: usize| {
            let bytes = self.pending[at..].first_chunk().copied();
            u32::from_be_bytes(bytes.unwrap_or_default())
        };
        let (flags, extension) = (word(11), word(15) as usize);
        if flags >> 16 != 0 {
            return Err(PgError::malformed(format!(
                "the COPY header has the unknown flags {flags:#x}"
            )));
        }
        let end = HEADER_BYTES.saturating_add(extension);
        if end > self.max_record_bytes.max(HEADER_BYTES) {
            return Err(PgError::malformed(format!(
                "the COPY header has an extension of {extension} bytes"
            )));
        }
        if self.pending.len() < end {
            return Ok(Step::Need(end - self.pending.len()));
        }
        self.state = State::Rows;
        Ok(Step::Trailer)
    }

    fn step_row(&mut self) -> Result<Step, PgError> {
        let columns = self.columns.len();
        let have = self.pending.len();
        if self.progress.at == 0 {
            let Some(count) = self.pending.first_chunk() else {
                return Ok(Step::Need(2 - have));
            };
            let count = i16::from_be_bytes(*count);
            if usize::try_from(count) != Ok(columns) {
                self.end_of_rows(count)?;
                return Ok(Step::Trailer);
            }
            self.progress.at = 2;
        }
        while self.progress.cells.len() < columns {
            let at = self.progress.at;
            // Every field that is left takes at least its length.
            let left = (columns - self.progress.cells.len()) * 4;
            let Some(length) = self.pending.get(at..).and_then(<[u8]>::first_chunk) else {
                return Ok(Step::Need(at + left - have));
            };
            let length = i32::from_be_bytes(*length);
            if length < -1 {
                return Err(self.bad_length(length));
            }
            self.check_record(at + left, length)?;
            let end = at + 4 + length.max(0) as usize;
            if have < end {
                return Ok(Step::Need(end + left - 4 - have));
            }
            self.progress.cells.push(Cell {
                at: (at + 4) as u32,
                length,
            });
            self.progress.at = end;
        }
        if have > self.max_record_bytes {
            return Err(self.record_too_large(have));
        }
        Ok(Step::Row)
    }
}

/// The result of [`whole_rows`].
struct WholeRows {
    /// Where the next message begins.
    end: usize,
    cells: usize,
    has_null: bool,
}

/// Finds the fields of rows, each of them the body of a CopyData message, as servers send them. Ends at
/// any other bytes, which [`Decoder::feed`] takes. A function of its own, which calls none: its loops
/// are where most of the time of scanning goes, and they keep everything in registers.
#[inline(never)]
fn whole_rows(
    data: &[u8],
    start: usize,
    cells: &mut [Cell],
    columns: usize,
    max_record_bytes: usize,
) -> WholeRows {
    let mut found = WholeRows {
        end: start,
        cells: 0,
        has_null: false,
    };
    if columns == 0 {
        return found;
    }
    for row in cells.chunks_exact_mut(columns) {
        let rest = data.get(found.end..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<{ MESSAGE_HEAD + 2 }>() else {
            break;
        };
        let [kind, a, b, c, d, high, low] = *head;
        // Of the length's four bytes and the count's two the fields are what is left.
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let count = u16::from_be_bytes([high, low]) as usize;
        let is_row = kind == COPY_DATA && count == columns && length >= 6;
        if !is_row || length - 6 > rest.len() || length - 4 > max_record_bytes {
            break;
        }
        let mut rest = &rest[..length - 6];
        let end = found.end + 1 + length;
        let mut has_null = false;
        for cell in row {
            let Some((length, behind)) = rest.split_first_chunk() else {
                return found;
            };
            let length = i32::from_be_bytes(*length);
            *cell = Cell {
                at: (end - behind.len()) as u32,
                length,
            };
            rest = match behind.get(length as u32 as usize..) {
                Some(rest) => rest,
                None if length == -1 => {
                    has_null = true;
                    behind
                }
                None => return found,
            };
        }
        if !rest.is_empty() {
            break;
        }
        found.end = end;
        found.cells += columns;
        found.has_null |= has_null;
    }
    found
}
