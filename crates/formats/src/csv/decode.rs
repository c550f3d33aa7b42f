//! CSV bytes to batches.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::types::check_portable;

use super::Dialect;
use super::split::{Record, Splitter};
use crate::FormatError;
use crate::rows::{Limits, Rows, Targets};

/// Decodes files of one schema, pushed piece by piece.
///
/// For each file: [`begin_file`](Self::begin_file), [`push`](Self::push) until all bytes are
/// taken, [`end_of_file`](Self::end_of_file). Whenever the batch [is full](Self::is_full),
/// [`take_batch`](Self::take_batch). After an error every call answers `decoder_failed`.
pub struct Decoder {
    splitter: Splitter,
    reader: Reader,
    failed: bool,
}

/// Puts the fields of a record into columns.
struct Reader {
    rows: Rows,
    dialect: Dialect,
    file_schema: SchemaRef,
    /// By column of the schema.
    targets: Targets,
    /// By field of the current file.
    order: Targets,
    header_due: bool,
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder of files with the columns of `schema`, in its order if there is no header.
    /// Batches have the columns named in `wanted`, in that order; all without.
    ///
    /// Errors: `bad_dialect`, `unsupported_type`, `unknown_column`, `no_columns`.
    pub fn new(
        schema: SchemaRef,
        wanted: Option<&[String]>,
        dialect: Dialect,
        limits: Limits,
    ) -> Result<Self, FormatError> {
        dialect.validate()?;
        check_portable(&schema)
            .map_err(|error| FormatError::new("unsupported_type", error.to_string()))?;
        if schema.fields().is_empty() {
            return Err(FormatError::new(
                "no_columns",
                "CSV cannot hold rows without columns",
            ));
        }
        let (rows, targets) = Rows::new(&schema, wanted, limits)?;
        Ok(Self {
            splitter: Splitter::new(&dialect, limits.max_record_bytes),
            reader: Reader {
                order: targets.clone(),
                header_due: dialect.header,
                rows,
                dialect,
                file_schema: schema,
                targets,
                scratch: Vec::new(),
            },
            failed: false,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.reader.rows.schema()
    }

    /// Begins a file: line 1, and its header if the dialect has one.
    pub fn begin_file(&mut self) {
        self.splitter.begin_file();
        self.reader.header_due = self.reader.dialect.header;
        self.reader.order.clone_from(&self.reader.targets);
    }

    /// Takes bytes of the file until the batch is full; gives how many were taken. The rest is to
    /// be pushed again after [`take_batch`](Self::take_batch).
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        if self.failed {
            return Err(failed());
        }
        if self.is_full() {
            return Ok(0);
        }
        let reader = &mut self.reader;
        let pushed = self.splitter.push(bytes, |record| reader.read(record));
        self.failed = pushed.is_err();
        pushed
    }

    /// Ends the file; a last record without a line break is a record.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        if self.failed {
            return Err(failed());
        }
        let reader = &mut self.reader;
        let ended = self.splitter.end_of_file(|record| reader.read(record));
        let ended = ended.and_then(|()| {
            if reader.header_due {
                return Err(FormatError::new(
                    "csv_missing_header",
                    "the file is empty: it has no line with the names of the columns",
                )
                .hint("leave the file out, or set header: false")
                .line(1));
            }
            Ok(())
        });
        self.failed = ended.is_err();
        ended
    }

    /// True once the batch has the bytes or rows of [`Limits`].
    pub fn is_full(&self) -> bool {
        self.reader.rows.is_full()
    }

    /// Rows of the batch so far.
    pub fn rows(&self) -> usize {
        self.reader.rows.len()
    }

    /// Bytes of the batch's columns so far.
    pub fn bytes(&self) -> usize {
        self.reader.rows.bytes()
    }

    /// The rows so far as a batch, `None` if there are none; the next one begins empty.
    pub fn take_batch(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        if self.failed {
            return Err(failed());
        }
        self.reader.rows.take()
    }
}

pub(crate) fn failed() -> FormatError {
    FormatError::new("decoder_failed", "the decoder cannot go on after an error")
}

impl Reader {
    /// Answers whether there is room for another record.
    fn read(&mut self, record: &Record<'_>) -> Result<bool, FormatError> {
        if self.order.len() > 1 && record.is_blank() {
            return Ok(true);
        }
        if self.header_due {
            self.read_header(record)?;
            self.header_due = false;
            return Ok(true);
        }
        if record.len() != self.order.len() {
            return Err(self.ragged(record));
        }
        for (at, target) in self.order.iter().enumerate() {
            let Some(target) = target else { continue };
            let column = &mut self.rows.columns[*target];
            let (text, quoted) = record.field(at, &mut self.scratch);
            let pushed = if !quoted && self.dialect.is_null(text) {
                column.push_null()
            } else {
                column.push_text(text)
            };
            if let Err(misfit) = pushed {
                let line = Some(record.line_of(at));
                return Err(misfit.into_error(column.field().name(), line));
            }
        }
        self.rows.end_row();
        Ok(!self.rows.is_full())
    }

    fn ragged(&self, record: &Record<'_>) -> FormatError {
        let line = record.line;
        let count = |n: usize| format!("{n} field{}", if n == 1 { "" } else { "s" });
        FormatError::new(
            "csv_ragged_row",
            format!(
                "line {line}: expected {}, got {}",
                count(self.order.len()),
                count(record.len())
            ),
        )
        .hint("a field that holds a delimiter or a line break must stand in quotes")
        .line(line)
    }

    fn read_header(&mut self, record: &Record<'_>) -> Result<(), FormatError> {
        let line = record.line;
        let fields = self.file_schema.fields();
        let mut found = vec![false; fields.len()];
        self.order.clear();
        for at in 0..record.len() {
            let name = header_name(record, at)?;
            let Some((column, _)) = fields.find(&name) else {
                return Err(FormatError::new(
                    "csv_unknown_column",
                    format!("line {line}: the header names the column {name:?}, which the schema does not have"),
                )
                .hint("declare it in the schema; columns that are not wanted can be left out of a stream's columns")
                .column(&name)
                .line(line));
            };
            if std::mem::replace(&mut found[column], true) {
                return Err(duplicate(&name, line));
            }
            self.order.push(self.targets[column]);
        }
        match fields.iter().zip(found).find(|(_, found)| !found) {
            None => Ok(()),
            Some((missing, _)) => Err(FormatError::new(
                "csv_missing_column",
                format!(
                    "line {line}: the header does not name the column {:?}",
                    missing.name()
                ),
            )
            .column(missing.name())
            .line(line)),
        }
    }
}

pub(crate) fn duplicate(name: &str, line: u64) -> FormatError {
    FormatError::new(
        "csv_duplicate_column",
        format!("line {line}: the header names the column {name:?} twice"),
    )
    .column(name)
    .line(line)
}

pub(crate) fn header_name(record: &Record<'_>, at: usize) -> Result<String, FormatError> {
    let mut scratch = Vec::new();
    let (name, _) = record.field(at, &mut scratch);
    String::from_utf8(name.to_vec()).map_err(|_| {
        let line = record.line_of(at);
        FormatError::new(
            "csv_bad_utf8",
            format!("line {line}: the name of column {} is not UTF-8", at + 1),
        )
        .line(line)
    })
}
