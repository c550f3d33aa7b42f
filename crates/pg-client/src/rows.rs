//! Answers that are small enough to be held whole.

use std::ops::Range;

use bytes::Bytes;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, RowDescriptionBody};
use rapidbyte_sdk::{Error, Result};

use crate::error;

/// A column of an answer, as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name in the answer.
    pub name: String,
    /// The object id of its type.
    pub type_oid: u32,
    /// The type's modifier, such as the precision of a numeric; -1 for none.
    pub type_modifier: i32,
    /// The table it comes from; 0 for none.
    pub table_oid: u32,
    /// Its number in that table, from 1; 0 for none.
    pub number: i16,
    /// Whether values come in binary.
    pub is_binary: bool,
}

/// The answer to one statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// Empty for a statement that gives no rows.
    pub columns: Vec<Column>,
    /// In the server's order.
    pub rows: Vec<Row>,
    /// Rows that a command touched, or that a query gave.
    pub affected: u64,
}

/// One row of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    body: Bytes,
    values: Vec<Option<Range<usize>>>,
}

impl Rows {
    /// The text of the first column of the first row, for questions with one answer. Errors:
    /// `unexpected_answer` when there is none or it is NULL.
    pub fn single(&self) -> Result<&str> {
        let value = self.rows.first().map(|row| row.text(0)).transpose()?;
        value.flatten().ok_or_else(|| {
            Error::schema(
                "unexpected_answer",
                "the server returned NULL where it always returns a value",
            )
        })
    }
}

impl Row {
    /// Parses the row; `bytes` is what it adds to the size of an answer.
    pub(crate) fn read(body: &DataRowBody) -> Result<(Self, usize)> {
        let values: Vec<_> = body.ranges().collect().map_err(error::protocol)?;
        let size = body.buffer().len() + values.len() * size_of::<Option<Range<usize>>>();
        let body = body.buffer_bytes().clone();
        Ok((Self { body, values }, size))
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True for a row without columns.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The bytes of a value; nothing for NULL, and past the last column.
    pub fn bytes(&self, column: usize) -> Option<&[u8]> {
        let range = self.values.get(column)?.clone()?;
        self.body.get(range)
    }

    /// A value as text; nothing for NULL. Errors: `not_utf8`, which a value in binary may be.
    pub fn text(&self, column: usize) -> Result<Option<&str>> {
        self.bytes(column)
            .map(|bytes| {
                std::str::from_utf8(bytes).map_err(|_| {
                    Error::data(
                        "not_utf8",
                        format!("the value of column {column} is not UTF-8"),
                    )
                })
            })
            .transpose()
    }
}

pub(crate) fn columns(body: &RowDescriptionBody) -> Result<Vec<Column>> {
    body.fields()
        .map(|field| {
            Ok(Column {
                name: field.name().into(),
                type_oid: field.type_oid(),
                type_modifier: field.type_modifier(),
                table_oid: field.table_oid(),
                number: field.column_id(),
                is_binary: field.format() == 1,
            })
        })
        .collect()
        .map_err(error::protocol)
}

/// No server counts so far; two of them can still be added.
const MAX_AFFECTED: u64 = i64::MAX as u64;

/// The rows that a command's tag counts: `INSERT 0 5`, `SELECT 3`, `COPY 7`; 0 for `BEGIN`.
pub(crate) fn affected(tag: &str) -> u64 {
    let count = tag.rsplit(' ').next().and_then(|count| count.parse().ok());
    count.unwrap_or(0).min(MAX_AFFECTED)
}
