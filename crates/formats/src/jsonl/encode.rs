//! Batches to JSON Lines bytes.

use arrow_schema::SchemaRef;

use crate::FormatError;
use crate::cells::Form;
use crate::json;
use crate::rows::{self, Picked};

/// Encodes batches of one schema: compact objects with every key, NULL as `null`, LF at the end.
pub struct Encoder {
    schema: SchemaRef,
    /// By column: the text before its value, such as `,"total":`.
    keys: Vec<Vec<u8>>,
}

impl Encoder {
    /// Errors: `unsupported_type`.
    pub fn new(schema: SchemaRef) -> Result<Self, FormatError> {
        let mut keys = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate() {
            // A column's builder exists exactly for the types that can be written.
            crate::column::Column::new(field)?;
            let mut key = if at > 0 { vec![b','] } else { Vec::new() };
            json::write_string(field.name(), &mut key);
            key.push(b':');
            keys.push(key);
        }
        Ok(Self { schema, keys })
    }

    /// Appends rows, from place `from` until `out` holds `until_bytes` or more or they end; gives
    /// the next place, which is their number at their end.
    ///
    /// Errors: `schema_mismatch`, `value_does_not_fit`, `json_not_finite`, `json_null_value`,
    /// `json_not_one_line`, `jsonl_duplicate_key` (in a map). `out` then ends with half a row.
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
                out.push(b'{');
                for (cells, key) in columns.iter().zip(&self.keys) {
                    out.extend_from_slice(key);
                    cells
                        .write_json(row, Form::File, out)
                        .map_err(|misfit| misfit.into_error(cells.field().name()).row(row))?;
                }
                out.extend_from_slice(b"}\n");
                Ok(())
            },
        )
    }
}
