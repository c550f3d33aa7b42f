//! Columns in PostgreSQL's own form (`arrow.opaque`). They pass through as they are. A step that looks at a value gets it
//! in the portable form, in which the source would have sent it to another destination.

use std::sync::Arc;

use rapidbyte_pg::builtin::{NUMERIC, to_numeric_typmod};
use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::{Column, PgError, column_of, form};
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::*;

use crate::expression::{Misfit, Rows};

/// The head of a binary COPY: its signature, flags, and the length of an extension.
const HEAD: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// More than a batch has.
const MAX_ROW_BYTES: usize = 1 << 30;

/// The field in its portable form; `None` if there is none, or if it is in that form already.
pub fn portable(field: &Field) -> Option<Field> {
    let column = opaque(field)?;
    match form::form(&column, false).needs_text_cast() {
        true => None,
        false => Some(form::field(&column, false)),
    }
}

/// Which texts a column of PostgreSQL holds, whatever domains are around its type. `None`: it is not PostgreSQL's.
pub fn text_of(field: &Field) -> Option<Texts> {
    let column = column_of(field).ok().flatten()?;
    let (base, _) = column.ty.stripped(-1);
    Some(match (base.schema.as_str(), base.name.as_str()) {
        ("pg_catalog", "text" | "varchar" | "name") => Texts::Plain,
        ("pg_catalog", "bpchar") => Texts::Padded,
        _ => Texts::Others,
    })
}

/// Texts by how PostgreSQL compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// As texts.
    Plain,
    /// Without the blanks at their ends: `char(n)`.
    Padded,
    /// By rules of their own, such as enums, citext and what travels as the server's text.
    Others,
}

/// Whether the field is a numeric without digits of its own, in PostgreSQL's form.
pub fn is_numeric(field: &Field) -> bool {
    opaque(field).is_some_and(|column| column.ty.stripped(-1).0.oid == NUMERIC.oid)
}

/// The column of a field whose values are opaque.
fn opaque(field: &Field) -> Option<Column> {
    // Before the column is read from its JSON: this is asked for each batch.
    if rapidbyte_sdk::types::extension_name(field) != Some(form::OPAQUE) {
        return None;
    }
    let column = column_of(field).ok().flatten()?;
    Some(Column {
        name: field.name().clone(),
        not_null: false,
        ..column
    })
}

/// The wanted values of a column in their portable form.
pub fn decode(field: &Field, array: &ArrayRef, rows: Rows<'_>) -> Result<ArrayRef, Misfit> {
    match opaque(field) {
        Some(column) => decode_as(column, field, array, rows),
        None => Ok(Arc::clone(array)),
    }
}

/// The wanted values of a numeric column with these digits, which hold each of them exactly.
pub fn decode_numeric(
    field: &Field,
    (precision, scale): (u8, u8),
    array: &ArrayRef,
    rows: Rows<'_>,
) -> Result<ArrayRef, Misfit> {
    let column = Column {
        typmod: to_numeric_typmod(precision.into(), scale.into()),
        ..NUMERIC.column(field.name())
    };
    decode_as(column, field, array, rows)
}

fn decode_as(
    column: Column,
    field: &Field,
    array: &ArrayRef,
    rows: Rows<'_>,
) -> Result<ArrayRef, Misfit> {
    let all = decoded(&column, array, 0..array.len(), rows);
    all.map_err(|_| {
        // The error knows no row: the first one that fails alone.
        let of = |row: usize| {
            decoded(&column, array, row..row + 1, rows)
                .err()
                .map(|error| (row, error))
        };
        let (row, error) = (0..array.len()).find_map(of).unwrap_or_else(|| {
            let error = "the values cannot be decoded together".to_owned();
            (0, error)
        });
        // Without the column and the row of the decoder, which has this one row.
        let error = error.rsplit(": ").next().unwrap_or(&error);
        let reason = format!("{}: {error}", field.name());
        Misfit { row, reason }
    })
}

fn decoded(
    column: &Column,
    array: &ArrayRef,
    which: std::ops::Range<usize>,
    rows: Rows<'_>,
) -> Result<ArrayRef, String> {
    let mut bytes = HEAD.to_vec();
    for row in which {
        bytes.extend(1_i16.to_be_bytes());
        match value(array, row).filter(|_| rows.is_wanted(row)) {
            Some(value) => {
                let length = i32::try_from(value.len()).map_err(|_| "it is too long")?;
                bytes.extend(length.to_be_bytes());
                bytes.extend(value);
            }
            None => bytes.extend((-1_i32).to_be_bytes()),
        }
    }
    bytes.extend(TRAILER);
    let said = |error: PgError| error.message;
    let mut decoder = Decoder::new(std::slice::from_ref(column), false, MAX_ROW_BYTES);
    decoder.push(&bytes).map_err(said)?;
    decoder.finish().map_err(said)?;
    Ok(Arc::clone(decoder.take_batch().map_err(said)?.column(0)))
}

fn value(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        _ => array.as_binary::<i32>().value(row),
    })
}
