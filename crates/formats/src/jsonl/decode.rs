//! Puts the values of JSON Lines and of JSON documents into columns.

use std::borrow::Cow;
use std::collections::HashMap;

use arrow_schema::SchemaRef;

use super::elements::Elements;
use super::lines::{Found, broken, duplicate};
use super::place::Place;
use super::records::{Layout, Records};
use super::unknown::{Collected, Unknown};
use crate::FormatError;
use crate::json::{self, Stop};
use crate::rows::{Rows, Targets, unknown_column};
use rapidbyte_wire::name::shown;

/// Reads one file after the other, piece by piece.
pub(crate) struct Reader {
    records: Records,
    max_record_bytes: usize,
    keys: Keys,
}

/// Where the values of an object go.
struct Keys {
    layout: Layout,
    file_schema: SchemaRef,
    by_name: HashMap<String, usize>,
    /// By column of the schema.
    targets: Targets,
    /// By column of the schema: the row, counted from 1, in which its key came last.
    seen: Vec<u64>,
    row: u64,
    unknown: Unknown,
    /// A missing key is an error.
    is_whole: bool,
}

impl Reader {
    pub(crate) fn new(
        layout: Layout,
        schema: SchemaRef,
        targets: Targets,
        max_record_bytes: usize,
    ) -> Self {
        let names = schema.fields().iter().enumerate();
        Self {
            records: Records::new(layout, max_record_bytes),
            max_record_bytes,
            keys: Keys {
                layout,
                by_name: names.map(|(at, f)| (f.name().clone(), at)).collect(),
                seen: vec![0; targets.len()],
                row: 0,
                unknown: Unknown::Refuse,
                is_whole: false,
                file_schema: schema,
                targets,
            },
        }
    }

    /// Refuses objects without one of the columns.
    pub(crate) fn whole_rows(&mut self) {
        self.keys.is_whole = true;
    }

    /// Leaves out keys that the schema does not have.
    pub(crate) fn ignore_unknown(&mut self) {
        self.keys.unknown = Unknown::Ignore;
    }

    /// Collects keys that the schema does not have in a column of it.
    pub(crate) fn collect_unknown(&mut self, column: &str) -> Result<(), FormatError> {
        // A key of that name is a key like any other that the schema does not have.
        let Some(at) = self.keys.by_name.remove(column) else {
            return Err(unknown_column(column, &self.keys.file_schema));
        };
        self.keys.unknown = match self.keys.targets[at].take() {
            Some(target) => Unknown::collect(column.to_owned(), target),
            // Nobody wants the column.
            None => Unknown::Ignore,
        };
        Ok(())
    }

    /// The keys that were collected so far.
    pub(crate) fn collected(&self) -> Option<&Collected> {
        self.keys.unknown.collected()
    }

    pub(crate) fn begin_file(&mut self) {
        self.records.begin_file();
    }

    pub(crate) fn push(&mut self, bytes: &[u8], rows: &mut Rows) -> Result<usize, FormatError> {
        let keys = &mut self.keys;
        self.records
            .push(bytes, |found, place| keys.read(found, place, rows))
    }

    pub(crate) fn push_record(
        &mut self,
        mut record: &[u8],
        rows: &mut Rows,
    ) -> Result<(), FormatError> {
        // A record that is broken is one reject, whatever stands before the place.
        if self.records.layout() == Layout::Document
            && let Err(error) = Elements::check(record, self.max_record_bytes)
        {
            return rows.reject(record, None, error).map(|_| ());
        }
        self.records.begin_file();
        while !record.is_empty() {
            let taken = self.push(record, rows)?;
            record = &record[taken..];
        }
        self.end_of_file(rows)
    }

    pub(crate) fn end_of_file(&mut self, rows: &mut Rows) -> Result<(), FormatError> {
        let keys = &mut self.keys;
        self.records
            .end_of_file(|found, place| keys.read(found, place, rows))
    }
}

impl Keys {
    /// Answers whether there is room for another record.
    fn read(
        &mut self,
        found: Found<'_>,
        place: Place,
        rows: &mut Rows,
    ) -> Result<bool, FormatError> {
        let (data, read) = match found {
            Ok(text) => (text.as_bytes(), self.read_row(text, place, rows)),
            Err((data, error)) => (data, Err(error)),
        };
        match read {
            Ok(()) => Ok(!rows.is_full()),
            Err(error) => {
                self.unknown.forget_row();
                rows.reject(data, None, error)
            }
        }
    }

    fn read_row(&mut self, text: &str, place: Place, rows: &mut Rows) -> Result<(), FormatError> {
        self.row += 1;
        // Keys mostly come in order: the next column is checked first.
        let mut next = 0;
        let walked = json::for_entries(text, |key, value| {
            // An error has the line of its value.
            let line = || place.of_part(text, value).line;
            let at = self.column(&key, next);
            match at {
                None => self
                    .unknown
                    .take(&key, &on_one_line(value, self.layout))
                    .map_err(|error| error.line(line())),
                Some(at) => {
                    next = at + 1;
                    let is_twice = std::mem::replace(&mut self.seen[at], self.row) == self.row;
                    match self.targets[at] {
                        _ if is_twice => Err(duplicate(&key).line(line())),
                        None => Ok(()),
                        Some(target) => rows.columns[target]
                            .push_json(&on_one_line(value, self.layout))
                            .map_err(|misfit| rows.refuse(*misfit, target).line(line())),
                    }
                }
            }
        });
        match walked {
            Ok(()) => {}
            Err(Stop::Callback(error)) => return Err(error),
            Err(Stop::Broken(error)) => return Err(broken(text, place, self.layout, &error)),
        }
        let line = place.line;
        if self.is_whole {
            self.refuse_missing(line)?;
        }
        for (at, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            if self.seen[at] != self.row {
                rows.columns[target]
                    .push_null()
                    .map_err(|misfit| rows.refuse(*misfit, target).line(line))?;
            }
        }
        if let Some(target) = self.unknown.target() {
            let pushed = match self.unknown.end_row() {
                Some(object) => rows.columns[target].push_json(&object),
                None => rows.columns[target].push_null(),
            };
            pushed.map_err(|misfit| rows.refuse(*misfit, target).line(line))?;
        }
        rows.end_row().map_err(|error| error.line(line))
    }

    /// Errors: `jsonl_missing_key`.
    fn refuse_missing(&self, line: u64) -> Result<(), FormatError> {
        let fields = self.file_schema.fields().iter().zip(&self.seen);
        let missing = fields.filter(|(_, seen)| **seen != self.row);
        let missing: Vec<&String> = missing.map(|(field, _)| field.name()).collect();
        let Some(first) = missing.first() else {
            return Ok(());
        };
        let named: Vec<String> = missing.iter().take(5).map(|name| shown(name)).collect();
        let more = if missing.len() > named.len() {
            ", …"
        } else {
            ""
        };
        let text = format!(
            "it does not have {}{more}: write null for NULL",
            named.join(", ")
        );
        let error = FormatError::new("jsonl_missing_key", text);
        Err(error.column(first).line(line))
    }

    /// The column of the schema that a key names; `next` is checked first.
    fn column(&self, key: &str, next: usize) -> Option<usize> {
        let fields = self.file_schema.fields();
        let is_next = fields.get(next).is_some_and(|field| field.name() == key);
        if is_next && !self.unknown.is_column(key) {
            return Some(next);
        }
        self.by_name.get(key).copied()
    }
}

/// A value without the white space between its parts if it has several lines. In JSON Lines it has one.
fn on_one_line(value: &str, layout: Layout) -> Cow<'_, str> {
    let has_breaks = || memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some();
    if layout == Layout::Lines || !has_breaks() {
        return Cow::Borrowed(value);
    }
    let mut compact = Vec::new();
    json::write_compact(value, &mut compact);
    // White space is ASCII, so the rest is still text.
    String::from_utf8(compact).map_or(Cow::Borrowed(value), Cow::Owned)
}
