//! Puts the fields of CSV records into columns.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, SchemaRef};

use super::split::{Record, Splitter};
use super::{Dialect, Headers};
use crate::FormatError;
use crate::error::TO_UTF8;
use crate::json;
use crate::json::LARGE_BYTES;
use crate::rows::{Rejected, Rows, Targets};
use rapidbyte_wire::name::shown;

/// Reads one file after the other, piece by piece.
pub(crate) struct Reader {
    splitter: Splitter,
    fields: Fields,
}

/// Where the fields of a record go.
struct Fields {
    dialect: Dialect,
    file_schema: SchemaRef,
    /// By column of the schema.
    targets: Targets,
    /// By field of the current file.
    order: Targets,
    /// Wanted columns that the current file lacks.
    missing: Vec<usize>,
    /// The schema is a guess, not a declaration.
    inferred: bool,
    /// The names of the fields of the current file, as [`Rejected::read_with`].
    names: Option<Arc<str>>,
    header_due: bool,
    /// Records after the header are left alone.
    header_only: bool,
    scratch: Vec<u8>,
}

/// Columns in the hint of a header that does not fit.
const NAMED_COLUMNS: usize = 5;

impl Reader {
    /// Errors: `invalid_dialect`, `no_columns`.
    pub(crate) fn new(
        schema: SchemaRef,
        targets: Targets,
        dialect: Dialect,
        max_record_bytes: usize,
    ) -> Result<Self, FormatError> {
        dialect.validate()?;
        if schema.fields().is_empty() {
            return Err(FormatError::new(
                "no_columns",
                "CSV cannot hold rows without columns",
            ));
        }
        Ok(Self {
            splitter: Splitter::new(&dialect, max_record_bytes),
            fields: Fields {
                order: targets.clone(),
                missing: Vec::new(),
                inferred: false,
                names: None,
                header_due: dialect.header,
                header_only: false,
                dialect,
                file_schema: schema,
                targets,
                scratch: Vec::new(),
            },
        })
    }

    /// The schema is a guess.
    pub(crate) fn inferred(&mut self) {
        self.fields.inferred = true;
    }

    /// Reads the header of each file and nothing behind it, or again the records.
    pub(crate) fn only_header(&mut self, only: bool) {
        self.fields.header_only = only;
    }

    /// True until the header of the file was read.
    pub(crate) fn wants_header(&self) -> bool {
        self.fields.header_due
    }

    pub(crate) fn begin_file(&mut self) {
        self.splitter.begin_file();
        self.fields.missing.clear();
        self.fields.header_due = self.fields.dialect.header;
        self.fields.order.clone_from(&self.fields.targets);
        if !self.fields.header_due {
            let names = self.fields.file_schema.fields().iter();
            let names: Vec<String> = names.map(|field| field.name().clone()).collect();
            self.fields.names = joined(&names);
        }
    }

    /// Begins a file without a header, whose records have these fields.
    pub(crate) fn begin_file_with(&mut self, names: &[String]) -> Result<(), FormatError> {
        self.begin_file();
        self.fields.header_due = false;
        self.fields.order_by(names, 1)
    }

    pub(crate) fn push(&mut self, bytes: &[u8], rows: &mut Rows) -> Result<usize, FormatError> {
        let fields = &mut self.fields;
        self.splitter
            .push(bytes, |record| fields.read(record, rows))
    }

    pub(crate) fn push_record(
        &mut self,
        mut record: &[u8],
        rows: &mut Rows,
    ) -> Result<(), FormatError> {
        self.splitter.begin_file();
        while !record.is_empty() {
            let taken = self.push(record, rows)?;
            record = &record[taken..];
        }
        self.end_of_file(rows)
    }

    pub(crate) fn end_of_file(&mut self, rows: &mut Rows) -> Result<(), FormatError> {
        let fields = &mut self.fields;
        self.splitter
            .end_of_file(|record| fields.read(record, rows))
    }
}

impl Fields {
    /// Answers whether there is room for another record.
    fn read(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<bool, FormatError> {
        if self.order.len() > 1 && record.is_blank() {
            return Ok(true);
        }
        if self.header_due {
            self.read_header(record)?;
            self.header_due = false;
            return Ok(!self.header_only);
        }
        if self.header_only {
            return Ok(false);
        }
        match self.read_row(record, rows) {
            Ok(()) => Ok(!rows.is_full()),
            Err(error) => rows.reject(record.data(), self.names.as_ref(), error),
        }
    }

    fn read_row(&mut self, record: &Record<'_>, rows: &mut Rows) -> Result<(), FormatError> {
        if record.len() != self.order.len() {
            return Err(ragged(record, self.order.len()));
        }
        for (at, target) in self.order.iter().enumerate() {
            let Some(target) = target else { continue };
            let column = &mut rows.columns[*target];
            let (text, quoted) = record.field(at, &mut self.scratch);
            let pushed = if !quoted && self.dialect.is_null(text) {
                column.push_null()
            } else {
                let listed = match column.field().data_type() {
                    DataType::Boolean => self.dialect.listed_bool(text),
                    _ => None,
                };
                column.push_text(match listed {
                    Some(true) => b"true",
                    Some(false) => b"false",
                    None => text,
                })
            };
            if let Err(misfit) = pushed {
                return Err(rows.refuse(*misfit, *target).line(record.line_of(at)));
            }
        }
        for target in &self.missing {
            if let Err(misfit) = rows.columns[*target].push_null() {
                return Err(rows.refuse(*misfit, *target).line(record.line));
            }
        }
        rows.end_row().map_err(|error| error.line(record.line))?;
        // One huge field must not keep its room.
        self.scratch.clear();
        self.scratch.shrink_to(LARGE_BYTES);
        Ok(())
    }

    fn read_header(&mut self, record: &Record<'_>) -> Result<(), FormatError> {
        let names = (0..record.len()).map(|at| header_name(record, at));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        self.order_by(&names, record.line)
    }

    /// The names of the fields of the file, which line `line` has.
    fn order_by(&mut self, names: &[String], line: u64) -> Result<(), FormatError> {
        let fields = self.file_schema.fields();
        let mut found = vec![false; fields.len()];
        self.order.clear();
        for name in names {
            let Some((column, _)) = fields.find(name) else {
                let declare = "declare it in the schema; to skip a column, leave it out of the \
                               stream's columns";
                let hint = match self.lacking(names) {
                    _ if self.inferred && self.dialect.headers == Headers::Same => UNION.to_owned(),
                    _ if self.inferred => {
                        "run again: the columns were inferred before the file had this header"
                            .into()
                    }
                    Some(lacking) => format!(
                        "if this is the column that the schema calls {lacking}, correct the name \
                         in the schema; otherwise {declare}"
                    ),
                    None => declare.to_owned(),
                };
                return Err(FormatError::new(
                    "csv_unknown_column",
                    format!(
                        "the header has the column {}, which the schema does not have",
                        shown(name)
                    ),
                )
                .hint(hint)
                .column(name)
                .line(line));
            };
            if std::mem::replace(&mut found[column], true) {
                return Err(duplicate(name, line));
            }
            self.order.push(self.targets[column]);
        }
        let may_lack = !self.inferred || self.dialect.headers == Headers::Union;
        for (column, field) in fields.iter().enumerate().filter(|(at, _)| !found[*at]) {
            if may_lack && field.is_nullable() {
                self.missing.extend(self.targets[column]);
                continue;
            }
            let hint = match self.inferred {
                true => UNION.to_owned(),
                false => format!(
                    "the header has {}: correct the name in the schema, or declare the column \
                     nullable: then a file may lack it",
                    named(fields.iter().enumerate().filter(|(at, _)| found[*at]))
                ),
            };
            return Err(FormatError::new(
                "csv_missing_column",
                format!(
                    "the header does not have the column {}",
                    shown(field.name())
                ),
            )
            .hint(hint)
            .column(field.name())
            .line(line));
        }
        self.names = joined(names);
        Ok(())
    }

    /// The columns of the schema that a header lacks, for a hint.
    fn lacking(&self, names: &[String]) -> Option<String> {
        let fields = self.file_schema.fields().iter().enumerate();
        let lacking = fields.filter(|(_, field)| !names.contains(field.name()));
        let lacking = named(lacking);
        (!lacking.is_empty()).then_some(lacking)
    }
}

/// Names as a JSON array, unless they are too many.
fn joined(names: &[String]) -> Option<Arc<str>> {
    let mut out = vec![b'['];
    for name in names {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(name, &mut out);
        if out.len() > Rejected::MAX_BYTES {
            return None;
        }
    }
    out.push(b']');
    Some(String::from_utf8_lossy(&out).into())
}

/// `"id", "name", …`: names of columns, a few of them.
fn named<'a>(fields: impl Iterator<Item = (usize, &'a FieldRef)>) -> String {
    let mut names: Vec<String> = fields
        .take(NAMED_COLUMNS + 1)
        .map(|(_, field)| shown(field.name()))
        .collect();
    if names.len() > NAMED_COLUMNS {
        names[NAMED_COLUMNS] = "…".to_owned();
    }
    names.join(", ")
}

/// A record with another number of fields than expected.
pub(super) fn ragged(record: &Record<'_>, expected: usize) -> FormatError {
    let count = |n: usize| format!("{n} field{}", if n == 1 { "" } else { "s" });
    FormatError::new(
        "csv_ragged_row",
        format!("expected {}, got {}", count(expected), count(record.len())),
    )
    .hint("put a field that contains a delimiter or a line break in quotes")
    .line(record.line)
}

pub(super) const UNION: &str =
    "set headers: union to read files with different columns as one stream";

pub(super) fn duplicate(name: &str, line: u64) -> FormatError {
    FormatError::new(
        "csv_duplicate_column",
        format!("the header has the column {} twice", shown(name)),
    )
    .column(name)
    .line(line)
}

pub(super) fn header_name(record: &Record<'_>, at: usize) -> Result<String, FormatError> {
    let mut scratch = Vec::new();
    let (name, _) = record.field(at, &mut scratch);
    String::from_utf8(name.to_vec()).map_err(|_| {
        let line = record.line_of(at);
        FormatError::new(
            "csv_bad_utf8",
            format!("the name of column {} is not UTF-8", at + 1),
        )
        .hint(TO_UTF8)
        .line(line)
    })
}
