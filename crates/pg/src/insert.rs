//! Many rows as one parameter: an array of the target table's row type.
//!
//! `INSERT INTO t (a, b) SELECT u.a, u.b FROM unnest($1::t[]) AS u` takes one binary parameter
//! however many rows and columns there are, and the server needs to parse nothing. The bytes are
//! the same as from `array_send` around `record_send`.

use std::ops::Range;

use arrow_schema::Schema;

use crate::copy::{Encoder, Rows};
use crate::encode::{Layout, NULL};
use crate::ident::{qualified, quote_ident};
use crate::model::{Column, Generated, Kind, PgType};
use crate::{Owner, PgError};

/// Writes rows as the parameter of [`statement`].
pub struct Parameter {
    encoder: Encoder,
    row_oid: u32,
    /// The number of fields, then of each its type and value.
    layout: Layout,
}

impl Parameter {
    /// `targets` are the columns to fill, in the schema's order; `row_type` is the table's
    /// composite type ([`crate::catalog::Relation::row_type`]), which may have more fields: they
    /// are NULL. (A field of a domain that refuses NULL must be filled.)
    ///
    /// Errors as of [`Encoder::new`], and `schema_mismatch` if a target is not a field of the row.
    pub fn new(schema: &Schema, targets: &[Column], row_type: &PgType) -> Result<Self, PgError> {
        let mismatch = |message: String| PgError::new(Owner::Internal, "schema_mismatch", message);
        let Kind::Composite { fields } = &row_type.kind else {
            return Err(mismatch(format!(
                "{} is not a row type",
                row_type.display_name()
            )));
        };
        let unknown = |target: &&Column| !fields.iter().any(|field| field.name == target.name);
        if let Some(target) = targets.iter().find(unknown) {
            return Err(mismatch(format!(
                "{} has no field {:?}",
                row_type.display_name(),
                target.name
            )));
        }
        let place = |name: &str| targets.iter().position(|target| target.name == name);
        let mut layout = Layout::new(true);
        layout.same(&(fields.len() as u32).to_be_bytes());
        for field in fields {
            layout.same(&field.ty.oid.to_be_bytes());
            match place(&field.name) {
                Some(column) => layout.value(column),
                None => layout.same(&NULL),
            }
        }
        Ok(Self {
            encoder: Encoder::new(schema, targets)?,
            row_oid: row_type.oid,
            layout,
        })
    }

    /// As [`Encoder::count_from`].
    pub fn count_from(&mut self, rows: u64) {
        self.encoder.count_from(rows);
    }

    /// Makes a batch ready; see [`Encoder::bind`].
    pub fn bind<'a>(
        &'a mut self,
        batch: &'a arrow_array::RecordBatch,
    ) -> Result<BoundRows<'a>, PgError> {
        Ok(BoundRows {
            row_oid: self.row_oid,
            layout: &self.layout,
            rows: self.encoder.bind(batch)?,
        })
    }
}

/// The rows of one batch, ready to be written as parameters.
pub struct BoundRows<'a> {
    row_oid: u32,
    layout: &'a Layout,
    rows: Rows<'a>,
}

impl BoundRows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the value of the parameter (without its length) for these rows. Fewer are written
    /// once it has `full_bytes` or more, but at least one; gives the next row.
    pub fn encode(
        &self,
        rows: Range<usize>,
        full_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, PgError> {
        let start = out.len();
        // One dimension, no NULL elements, the row type; then its length and lower bound.
        for word in [1, 0, self.row_oid, 0, 1] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let first = rows.start;
        let full_bytes = start.saturating_add(full_bytes);
        let row = self
            .rows
            .write(self.layout, rows, full_bytes, out)
            .inspect_err(|_| out.truncate(start))?;
        if row == first {
            // An array without elements does not have dimensions.
            out.truncate(start);
            for word in [0, 0, self.row_oid] {
                out.extend_from_slice(&word.to_be_bytes());
            }
            return Ok(row);
        }
        let count = (row - first) as i32;
        out[start + 12..start + 16].copy_from_slice(&count.to_be_bytes());
        Ok(row)
    }
}

/// The statement that takes a [`Parameter`] as `$1`.
pub fn statement(schema: &str, table: &str, columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
    let table = qualified(schema, table);
    // Without this the server refuses values for columns GENERATED ALWAYS AS IDENTITY.
    let overriding = columns
        .iter()
        .any(|column| column.generated == Generated::IdentityAlways);
    let overriding = if overriding {
        " OVERRIDING SYSTEM VALUE"
    } else {
        ""
    };
    let given: Vec<_> = names.iter().map(|name| format!("u.{name}")).collect();
    // An empty list of columns is a syntax error; without it the statement means the same for a table without columns.
    let list = match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    format!(
        "INSERT INTO {table}{list}{overriding} SELECT {} FROM unnest($1::{table}[]) AS u",
        given.join(", ")
    )
}
