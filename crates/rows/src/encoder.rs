//! JSON rows and JSON columns to batches.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_formats::jsonl::ColumnDecoder;
use rapidbyte_formats::{Decoder, Format, FormatError, Limits, Owner};
use rapidbyte_wire::ipc;
use rapidbyte_wire::types::type_name;

use crate::declared::{self, TYPES};

/// The hint for an error that neither a script nor an operator can cause.
pub const REPORT: &str = "report it: Rapidbyte has a bug";
const NOT_UTF8: &str = "decode bytes before they become a value: texts are UTF-8";

/// Makes the batches of one read of a stream.
pub struct Encoder {
    rows: Decoder,
    columns: ColumnDecoder,
    messages: ipc::Encoder,
    /// Rows of all batches so far.
    given: u64,
}

/// A batch as the contract has it: an Arrow IPC `RecordBatch` message and its rows.
#[derive(Debug)]
pub struct Encoded {
    /// The message.
    pub data: Vec<u8>,
    /// At least one.
    pub rows: u64,
}

/// An error of this crate, before it names a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The one who acts.
    pub owner: Owner,
    /// Stable and short.
    pub code: &'static str,
    /// A lower-case fragment.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
    /// The top-level column.
    pub column: Option<String>,
    /// Counted from 1 since the encoder was made.
    pub row: Option<u64>,
}

impl Encoder {
    /// `columns` as [`declared::schema`] reads them; `wanted` names the columns of the batches, in that order.
    ///
    /// Errors: `invalid_schema`, `unknown_type`, `unsupported_type`, `unknown_column`.
    pub fn new(
        columns: &str,
        wanted: Option<&[String]>,
        max_record_bytes: u64,
    ) -> Result<Self, Refusal> {
        let schema = Arc::new(declared::schema(columns)?);
        Self::made(schema, wanted, max_record_bytes)
    }

    /// For all columns of a schema, with values as a script gets them: documents are strings. Records may have any size.
    ///
    /// Errors: `unsupported_type`.
    pub fn of(schema: SchemaRef) -> Result<Self, Refusal> {
        let made = Self::made(schema, None, u64::MAX)?;
        Ok(Self {
            rows: made.rows.of_values(),
            columns: made.columns.of_values(),
            ..made
        })
    }

    fn made(
        schema: SchemaRef,
        wanted: Option<&[String]>,
        max_record_bytes: u64,
    ) -> Result<Self, Refusal> {
        // A call is a batch, however large: the connector made it and has it in memory.
        let limits = Limits {
            batch_bytes: usize::MAX,
            batch_rows: usize::MAX,
            max_record_bytes: usize::try_from(max_record_bytes).unwrap_or(usize::MAX),
        };
        let refused = |error| Refusal::of(error, 0);
        let rows = Format::Jsonl.decoder(Arc::clone(&schema), wanted, limits);
        let rows = rows.map_err(refused)?;
        let columns = ColumnDecoder::new(&schema, wanted, limits).map_err(refused)?;
        let messages = ipc::Encoder::new(rows.schema())
            .map_err(|error| Refusal::schema("unsupported_type", error.to_string()).hint(TYPES))?;
        Ok(Self {
            rows,
            columns,
            messages,
            given: 0,
        })
    }

    /// The `Schema` message of the batches.
    pub fn schema_message(&self) -> &[u8] {
        self.messages.schema_message()
    }

    /// The names of the batches' columns.
    pub fn names(&self) -> Vec<String> {
        let fields = self.rows.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The names of the columns' types.
    pub fn types(&self) -> Vec<String> {
        let fields = self.rows.schema().fields().iter();
        fields.map(|field| type_name(field)).collect()
    }

    /// JSON Lines to a batch; none of no rows.
    ///
    /// Errors: the errors of [`rapidbyte_formats::jsonl`].
    pub fn rows(&mut self, lines: &[u8]) -> Result<Option<Encoded>, Refusal> {
        let rows = &mut self.rows;
        let mut read = || {
            rows.begin_file();
            rows.push(lines)?;
            rows.end_of_file()?;
            rows.take_batch()
        };
        let batch = read().map_err(|error| Refusal::of(error, self.given))?;
        self.encode(batch)
    }

    /// A JSON array of each column to a batch; none of no rows.
    ///
    /// Errors: the same, `columns_uneven` and `jsonl_bad_utf8`.
    pub fn columns(&mut self, columns: &[impl AsRef<[u8]>]) -> Result<Option<Encoded>, Refusal> {
        let texts: Vec<&str> = columns.iter().map(text).collect::<Result<_, _>>()?;
        let decoded = self.columns.decode(&texts);
        let batch = decoded.map_err(|error| Refusal::of(error, self.given))?;
        self.encode(batch)
    }

    fn encode(&mut self, batch: Option<RecordBatch>) -> Result<Option<Encoded>, Refusal> {
        let Some(batch) = batch else {
            return Ok(None);
        };
        let data = self
            .messages
            .encode(&batch)
            .map_err(|error| Refusal::internal("arrow", error.to_string()).hint(REPORT))?;
        let rows = batch.num_rows() as u64;
        self.given += rows;
        Ok(Some(Encoded { data, rows }))
    }
}

/// The hint for an author, where it differs from the hint for the operator of a file.
fn hint_for(code: &str) -> Option<&'static str> {
    Some(match code {
        "jsonl_unknown_field" => "declare the column, or remove the key",
        "jsonl_duplicate_key" | "jsonl_broken_line" | "jsonl_not_an_object" => {
            "write rows as JSON with the library of the language, one object per line"
        }
        "jsonl_bad_utf8" => NOT_UTF8,
        "columns_uneven" => "give a value or null for every row of every column",
        "null_in_required_column" => "declare the column without `not null`",
        "value_does_not_fit" => {
            "declare another type for the column, or convert the value; the type json accepts \
                 every value"
        }
        "json_not_finite" => "make the column a string: JSON has neither NaN nor infinity",
        "unsupported_type" => TYPES,
        "unknown_column" => {
            "select columns that the stream declares: `rapidbyte discover PIPELINE` lists them"
        }
        "decoder_failed" | "schema_mismatch" | "arrow" => REPORT,
        _ => return None,
    })
}

/// A column's text.
fn text(column: &impl AsRef<[u8]>) -> Result<&str, Refusal> {
    std::str::from_utf8(column.as_ref()).map_err(|error| {
        let text = format!("a column that is not UTF-8: {error}");
        Refusal::owned(Owner::Data, "jsonl_bad_utf8", text).hint(NOT_UTF8)
    })
}

impl Refusal {
    /// The operator asked for something that this connector does not do.
    pub fn config(code: &'static str, message: impl Into<String>) -> Self {
        Self::owned(Owner::Config, code, message)
    }

    /// A stream or its columns are not as declared.
    pub fn schema(code: &'static str, message: impl Into<String>) -> Self {
        Self::owned(Owner::Schema, code, message)
    }

    /// An error that should not happen: a fault of the author, or of the program.
    pub fn internal(code: &'static str, message: impl Into<String>) -> Self {
        Self::owned(Owner::Internal, code, message)
    }

    fn owned(owner: Owner, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            owner,
            code,
            message: message.into(),
            hint: None,
            column: None,
            row: None,
        }
    }

    pub(crate) fn column(mut self, name: &str) -> Self {
        self.column = Some(name.to_owned());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `given` rows came in batches before. Hints that only fit a file are replaced.
    pub(crate) fn of(error: FormatError, given: u64) -> Self {
        let hint = hint_for(error.code).map_or(error.hint.clone(), |hint| Some(hint.into()));
        Self {
            owner: error.owner(),
            code: error.code,
            message: error.message,
            hint,
            column: error.column,
            row: error.line.or(error.row).map(|row| given + row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = r#"{"id": "int64 not null", "total": "decimal(10, 2)", "at": "timestamptz", "raw": "binary", "tags": "list<string>", "any": "json"}"#;
    const LINE: &str = r#"{"id":9007199254740993,"total":"1.50","at":"2026-11-22T10:00:00Z","raw":"\\x00ff","tags":["a",null],"any":{"b":1.0}}"#;

    fn encoder(wanted: Option<&[String]>) -> Encoder {
        Encoder::new(COLUMNS, wanted, 1 << 20).unwrap()
    }

    /// The batch that a message holds.
    fn decoded(encoder: &Encoder, encoded: Encoded) -> RecordBatch {
        let decoder = ipc::Decoder::new(encoder.schema_message()).unwrap();
        let batch = decoder.decode(encoded.data).unwrap();
        assert_eq!(batch.num_rows() as u64, encoded.rows);
        batch
    }

    #[test]
    fn rows_and_columns_make_the_same_batches() {
        let mut encoder = encoder(None);
        let lines = format!("{LINE}\n{{\"id\":2}}");
        let rows = encoder.rows(lines.as_bytes()).unwrap().unwrap();
        let rows = decoded(&encoder, rows);
        let columns = [
            "[9007199254740993, 2]",
            r#"["1.50", null]"#,
            r#"["2026-11-22T10:00:00Z", null]"#,
            r#"["\\x00ff", null]"#,
            r#"[["a",null], null]"#,
            r#"[{"b":1.0}, null]"#,
        ];
        let columns = encoder.columns(&columns).unwrap().unwrap();
        assert_eq!(decoded(&encoder, columns), rows);
        assert_eq!(encoder.types()[0], "int64");
    }

    #[test]
    fn columns_that_are_not_wanted_are_passed_over() {
        let wanted = ["any".to_owned(), "id".to_owned()];
        let mut encoder = encoder(Some(&wanted));
        let encoded = encoder.rows(LINE.as_bytes()).unwrap().unwrap();
        let batch = decoded(&encoder, encoded);
        assert_eq!(batch.schema().field(0).name(), "any");
        assert_eq!(batch.num_columns(), 2);
    }

    #[test]
    fn the_row_of_an_error_is_counted_over_all_batches() {
        for columns in [false, true] {
            let mut encoder = Encoder::new(r#"{"id": "int64 not null"}"#, None, 100).unwrap();
            encoder.rows(b"{\"id\":1}\n{\"id\":2}\n").unwrap();
            let error = match columns {
                true => encoder.columns(&["[3,4.5]"]).unwrap_err(),
                false => encoder.rows(b"{\"id\":3}\n{\"id\":4.5}\n").unwrap_err(),
            };
            assert_eq!((error.code, error.row), ("value_does_not_fit", Some(4)));
            assert_eq!(
                (error.owner, error.column.as_deref()),
                (Owner::Data, Some("id"))
            );
        }
    }

    #[test]
    fn no_rows_make_no_batch() {
        assert!(encoder(None).rows(b"").unwrap().is_none());
        assert!(encoder(None).columns(&["[]"; 6]).unwrap().is_none());
        let error = encoder(None).columns(&[b"[\"\xff\"]"]).unwrap_err();
        assert_eq!(error.code, "jsonl_bad_utf8");
        let unknown = ["x".to_owned()];
        let error = Encoder::new(COLUMNS, Some(&unknown), 1).err().unwrap();
        assert_eq!(error.code, "unknown_column");
    }
}
