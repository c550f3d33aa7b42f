//! JSON Lines bytes to batches.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::types::check_portable;

use super::lines::{Lines, broken};
use crate::FormatError;
use crate::csv::failed;
use crate::json::{self, Stop};
use crate::rows::{Limits, Rows, Targets};

/// Decodes files of one schema, pushed piece by piece; used as [`crate::csv::Decoder`] is.
pub struct Decoder {
    lines: Lines,
    reader: Reader,
    failed: bool,
}

/// Puts the values of an object into columns.
struct Reader {
    rows: Rows,
    file_schema: SchemaRef,
    by_name: HashMap<String, usize>,
    /// By column of the schema.
    targets: Targets,
    /// By column of the schema: the row, counted from 1, in which its key came last.
    seen: Vec<u64>,
    row: u64,
}

impl Decoder {
    /// A decoder of files with the columns of `schema`. Batches have the columns named in
    /// `wanted`, in that order; all without.
    ///
    /// Errors: `unsupported_type`, `unknown_column`.
    pub fn new(
        schema: SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Self, FormatError> {
        check_portable(&schema)
            .map_err(|error| FormatError::new("unsupported_type", error.to_string()))?;
        let (rows, targets) = Rows::new(&schema, wanted, limits)?;
        let names = schema.fields().iter().enumerate();
        Ok(Self {
            lines: Lines::new(limits.max_record_bytes),
            reader: Reader {
                by_name: names.map(|(at, f)| (f.name().clone(), at)).collect(),
                seen: vec![0; targets.len()],
                row: 0,
                rows,
                file_schema: schema,
                targets,
            },
            failed: false,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.reader.rows.schema()
    }

    /// Begins a file: line 1.
    pub fn begin_file(&mut self) {
        self.lines.begin_file();
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
        let pushed = self.lines.push(bytes, |text, line| reader.read(text, line));
        self.failed = pushed.is_err();
        pushed
    }

    /// Ends the file; a last line without a line break is a line.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        if self.failed {
            return Err(failed());
        }
        let reader = &mut self.reader;
        let ended = self.lines.end_of_file(|text, line| reader.read(text, line));
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

impl Reader {
    /// Answers whether there is room for another line.
    fn read(&mut self, text: &str, line: u64) -> Result<bool, FormatError> {
        self.row += 1;
        // Keys mostly come in order: the next one is looked at first.
        let mut next = 0;
        let walked = json::for_entries(text, |key, value| {
            let at = self.column(&key, next, line)?;
            next = at + 1;
            if std::mem::replace(&mut self.seen[at], self.row) == self.row {
                return Err(FormatError::new(
                    "jsonl_duplicate_key",
                    format!("line {line}: the key {key:?} comes twice"),
                )
                .column(&key)
                .line(line));
            }
            let Some(target) = self.targets[at] else {
                return Ok(());
            };
            self.rows.columns[target]
                .push_json(value)
                .map_err(|misfit| misfit.into_error(&key, Some(line)))
        });
        match walked {
            Ok(()) => {}
            Err(Stop::Callback(error)) => return Err(error),
            Err(Stop::Broken(error)) => return Err(broken(text, line, &error)),
        }
        for (at, target) in self.targets.iter().enumerate() {
            let Some(target) = target else { continue };
            if self.seen[at] != self.row {
                let column = &mut self.rows.columns[*target];
                column
                    .push_null()
                    .map_err(|misfit| misfit.into_error(column.field().name(), Some(line)))?;
            }
        }
        self.rows.end_row();
        Ok(!self.rows.is_full())
    }

    /// Which column of the schema a key names; `next` is looked at first.
    fn column(&self, key: &str, next: usize, line: u64) -> Result<usize, FormatError> {
        let fields = self.file_schema.fields();
        if fields.get(next).is_some_and(|field| field.name() == key) {
            return Ok(next);
        }
        self.by_name.get(key).copied().ok_or_else(|| {
            FormatError::new(
                "jsonl_unknown_field",
                format!("line {line}: the key {key:?} is not in the schema"),
            )
            .hint("declare it in the schema, or raise sample_rows so that inference sees it")
            .column(key)
            .line(line)
        })
    }
}
