//! Batches to CSV bytes.

use arrow_schema::{DataType, SchemaRef};

use super::Dialect;
use crate::FormatError;
use crate::rows::{self, Picked};

/// Encodes batches of one schema, with LF at the end of each line.
pub struct Encoder {
    schema: SchemaRef,
    dialect: Dialect,
    /// Bytes that a field may only hold in quotes.
    special: [bool; 256],
    /// By column: its texts may need quotes.
    doubtful: Vec<bool>,
    null_text: Vec<u8>,
}

impl Encoder {
    /// Errors: `invalid_dialect`, `no_columns`, `unsupported_type`.
    pub fn new(schema: SchemaRef, dialect: Dialect) -> Result<Self, FormatError> {
        dialect.validate()?;
        let Some(null_text) = dialect.null_text.first() else {
            return Err(FormatError::new(
                "invalid_dialect",
                "there is no text for NULL",
            ));
        };
        if schema.fields().is_empty() {
            return Err(
                FormatError::new("no_columns", "CSV cannot hold rows without columns")
                    .hint("write JSON Lines"),
            );
        }
        // A column's builder exists exactly for the types that can be written.
        for field in schema.fields() {
            crate::column::Column::new(field)?;
        }
        let mut special = [false; 256];
        for byte in [dialect.delimiter, dialect.quote, b'\n', b'\r'] {
            special[usize::from(byte)] = true;
        }
        // The texts of numbers and times hold nothing but these.
        let harmless = |byte: u8| !byte.is_ascii_alphanumeric() && !b"+-.:\\ ".contains(&byte);
        let plain = harmless(dialect.delimiter)
            && harmless(dialect.quote)
            && dialect.null_text.iter().all(String::is_empty);
        let doubtful = schema
            .fields()
            .iter()
            .map(|field| !plain || holds_any_text(field.data_type()))
            .collect();
        Ok(Self {
            null_text: null_text.clone().into_bytes(),
            schema,
            dialect,
            special,
            doubtful,
        })
    }

    /// Appends the line with the names of the columns, if the dialect has one.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        if !self.dialect.header {
            return;
        }
        for (at, field) in self.schema.fields().iter().enumerate() {
            if at > 0 {
                out.push(self.dialect.delimiter);
            }
            let start = out.len();
            out.extend_from_slice(field.name().as_bytes());
            self.quote_if_needed(start, out);
        }
        out.push(b'\n');
    }

    /// Appends rows, from place `from` until `out` holds `until_bytes` or more or they end; gives
    /// the next place, which is their number at their end.
    ///
    /// Errors: `schema_mismatch`, `value_does_not_fit`, and inside lists, structs and maps
    /// `json_not_finite`, `json_null_value`, `jsonl_duplicate_key`. `out` then ends with half a
    /// row.
    pub fn encode(
        &self,
        rows: Picked<'_>,
        from: usize,
        out: &mut Vec<u8>,
        until_bytes: usize,
    ) -> Result<usize, FormatError> {
        rows::encode(
            &self.schema,
            rows,
            from,
            out,
            until_bytes,
            |columns, row, out| {
                for (column, cells) in columns.iter().enumerate() {
                    if column > 0 {
                        out.push(self.dialect.delimiter);
                    }
                    if cells.is_null(row) {
                        out.extend_from_slice(&self.null_text);
                        continue;
                    }
                    let start = out.len();
                    if let Some(text) = cells.large_text(row) {
                        let quote = self.dialect.quote;
                        let doubled = text.iter().filter(|byte| **byte == quote).count();
                        // Quotes and what follows in the row fit too.
                        out.reserve_exact(text.len() + doubled + 64);
                    }
                    cells
                        .write_text(row, out)
                        .map_err(|misfit| misfit.into_error(cells.field().name()).row(row))?;
                    if self.doubtful[column] {
                        self.quote_if_needed(start, out);
                    }
                }
                out.push(b'\n');
                Ok(())
            },
        )
    }

    /// Puts the text from `start` to the end in quotes if it would be read as something else, here
    /// or by readers that trim white space.
    fn quote_if_needed(&self, start: usize, out: &mut Vec<u8>) {
        let text = &out[start..];
        let needed = text.is_empty()
            || text.iter().any(|byte| self.special[usize::from(*byte)])
            || text.first() == Some(&b' ')
            || text.last() == Some(&b' ')
            || text.starts_with("\u{feff}".as_bytes())
            || self.dialect.is_null(text);
        if !needed {
            return;
        }
        let quote = self.dialect.quote;
        let end = out.len();
        let doubled = text.iter().filter(|byte| **byte == quote).count();
        out.resize(end + doubled + 2, quote);
        if doubled == 0 {
            out.copy_within(start..end, start + 1);
        } else {
            // From behind, so that no copy is needed beside it.
            let mut to = out.len() - 1;
            for from in (start..end).rev() {
                to -= 1;
                out[to] = out[from];
                if out[from] == quote {
                    to -= 1;
                    out[to] = quote;
                }
            }
        }
        out[start] = quote;
    }
}

/// True for types whose text may hold any character.
fn holds_any_text(data_type: &DataType) -> bool {
    data_type.is_nested() || matches!(data_type, DataType::Utf8 | DataType::LargeUtf8)
}
