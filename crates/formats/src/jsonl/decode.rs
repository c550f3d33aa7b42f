//! Puts the values of JSON Lines into columns.

use std::collections::HashMap;

use arrow_schema::SchemaRef;

use super::lines::{Lines, broken};
use crate::FormatError;
use crate::json::{self, Stop};
use crate::rows::{Rows, Targets};

/// Reads one file after the other, piece by piece.
pub(crate) struct Reader {
    lines: Lines,
    keys: Keys,
}

/// Where the values of an object go.
struct Keys {
    file_schema: SchemaRef,
    by_name: HashMap<String, usize>,
    /// By column of the schema.
    targets: Targets,
    /// By column of the schema: the row, counted from 1, in which its key came last.
    seen: Vec<u64>,
    row: u64,
}

impl Reader {
    pub(crate) fn new(schema: SchemaRef, targets: Targets, max_record_bytes: usize) -> Self {
        let names = schema.fields().iter().enumerate();
        Self {
            lines: Lines::new(max_record_bytes),
            keys: Keys {
                by_name: names.map(|(at, f)| (f.name().clone(), at)).collect(),
                seen: vec![0; targets.len()],
                row: 0,
                file_schema: schema,
                targets,
            },
        }
    }

    pub(crate) fn begin_file(&mut self) {
        self.lines.begin_file();
    }

    pub(crate) fn push(&mut self, bytes: &[u8], rows: &mut Rows) -> Result<usize, FormatError> {
        let keys = &mut self.keys;
        self.lines
            .push(bytes, |text, line| keys.read(text, line, rows))
    }

    pub(crate) fn end_of_file(&mut self, rows: &mut Rows) -> Result<(), FormatError> {
        let keys = &mut self.keys;
        self.lines
            .end_of_file(|text, line| keys.read(text, line, rows))
    }
}

impl Keys {
    /// Answers whether there is room for another line.
    fn read(&mut self, text: &str, line: u64, rows: &mut Rows) -> Result<bool, FormatError> {
        self.row += 1;
        // Keys mostly come in order: the next one is looked at first.
        let mut next = 0;
        let walked = json::for_entries(text, |key, value| {
            let at = self.column(&key, next, line)?;
            next = at + 1;
            if std::mem::replace(&mut self.seen[at], self.row) == self.row {
                return Err(duplicate(&key, line));
            }
            let Some(target) = self.targets[at] else {
                return Ok(());
            };
            rows.columns[target]
                .push_json(value)
                .map_err(|misfit| rows.refuse(*misfit, target).line(line))
        });
        match walked {
            Ok(()) => {}
            Err(Stop::Callback(error)) => return Err(error),
            Err(Stop::Broken(error)) => return Err(broken(text, line, &error)),
        }
        for (at, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            if self.seen[at] != self.row {
                rows.columns[target]
                    .push_null()
                    .map_err(|misfit| rows.refuse(*misfit, target).line(line))?;
            }
        }
        rows.end_row();
        Ok(!rows.is_full())
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
                format!("the key {key:?} is not in the schema"),
            )
            .hint("declare it in the schema, or raise sample_rows so that inference sees it")
            .column(key)
            .line(line)
        })
    }
}

pub(super) fn duplicate(key: &str, line: u64) -> FormatError {
    FormatError::new(
        "jsonl_duplicate_key",
        format!("the key {key:?} comes twice"),
    )
    .column(key)
    .line(line)
}
