//! The one error of this crate.

use arrow_schema::{ArrowError, Field};
use rapidbyte_wire::types::type_name;

/// Bytes that cannot be read, or values that cannot be written, exactly.
///
/// | code | when |
/// | --- | --- |
/// | `invalid_dialect` | delimiter, quote and null text contradict each other |
/// | `unknown_format`, `unused_option`, `compressed_columns` | a [`Choice`](crate::Choice) that cannot be followed |
/// | `unsupported_type` | this crate cannot write a column's type as text |
/// | `unknown_column` | a wanted column is not in the schema |
/// | `no_columns` | CSV cannot hold rows without columns |
/// | `value_does_not_fit` | a value its column cannot hold exactly |
/// | `decimal_comma` | a number with a comma, of decimals or thousands |
/// | `invalid_time_pattern` | a declared form of dates that cannot be followed |
/// | `null_in_required_column` | a NULL where the schema allows none |
/// | `record_too_large` | a record above `max_record_bytes`, or a column of a batch above 2 GiB |
/// | `csv_ragged_row` | more or fewer fields than columns |
/// | `csv_bad_utf8`, `jsonl_bad_utf8` | text that is not UTF-8 |
/// | `csv_bad_quote` | characters after a closing quote |
/// | `csv_unterminated_quote` | the file ends inside quotes |
/// | `csv_bare_cr` | a CR outside quotes that no LF follows |
/// | `csv_missing_header` | nothing from which columns could be inferred: no file has a header line |
/// | `csv_missing_column`, `csv_unknown_column`, `csv_duplicate_column` | a header with other columns than the schema |
/// | `jsonl_broken_line` | a line that is not JSON |
/// | `json_lone_surrogate` | an escape of half a surrogate pair, such as `\ud800` alone |
/// | `jsonl_not_an_object` | a line, or an element of a document, that is JSON, but no object |
/// | `json_broken_document` | a document, or a value in it, that is not JSON |
/// | `json_truncated` | the file ends within its document, or before it |
/// | `json_not_rows` | a document that is a single value |
/// | `json_too_deep` | more than 1024 arrays and objects inside each other |
/// | `jsonl_unknown_field`, `jsonl_duplicate_key` | a key nobody declared, a key that comes twice |
/// | `columns_uneven` | columns of different lengths, or another number of them |
/// | `json_not_finite` | NaN or infinity, which JSON does not have |
/// | `json_null_value` | the JSON document `null`, which would be read back as NULL |
/// | `value_not_exact` | a number that a float64 does not hold, for a database that makes one of it |
/// | `json_not_one_line` | a JSON text with a line break or white space around it, for JSON Lines |
/// | `compressed_truncated` | the file ends within its compressed data |
/// | `compressed_damaged` | compressed data that contradicts itself or its checksum, or is none |
/// | `compressed_trailing_bytes` | other bytes after the compressed data |
/// | `compressed_unsupported` | a dictionary, or the legacy format of LZ4 |
/// | `zstd_window_too_large` | zstd data that needs more memory than there is for it |
/// | `compression_failed` | the library refused to work (a fault of this crate) |
/// | `schema_mismatch` | a batch that is not of the encoder's schema |
/// | `decoder_failed` | a call after an error |
/// | `arrow` | Arrow refused an array (a fault of this crate) |
/// Shown with its place, as far as it is known: `line 7: column "total" (int64): "12x" is not a
/// whole number`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place())]
pub struct FormatError {
    /// Stable and short: one of the table above.
    pub code: &'static str,
    /// A lower-case fragment: what happened, with the column if it is known, without the place.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
    /// The top-level column.
    pub column: Option<String>,
    /// The physical line of the file that was read, from 1; newlines inside quotes count.
    pub line: Option<u64>,
    /// The row of the batch that was written, from 1.
    pub row: Option<u64>,
}

/// The person who acts on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The operator: an option or a type.
    Config,
    /// The owner of the data: its columns are not as declared.
    Schema,
    /// The owner of the data: bytes or values.
    Data,
    /// The author of this crate or of its caller.
    Internal,
}

impl FormatError {
    fn place(&self) -> String {
        match (self.line, self.row) {
            (Some(line), _) => format!("line {line}: "),
            (None, Some(row)) => format!("row {row}: "),
            (None, None) => String::new(),
        }
    }

    /// The person who acts on this error.
    pub fn owner(&self) -> Owner {
        match self.code {
            "invalid_dialect"
            | "invalid_time_pattern"
            | "compressed_columns"
            | "unknown_format"
            | "unused_option"
            | "unsupported_type"
            | "unknown_column"
            | "no_columns"
            | "zstd_window_too_large" => Owner::Config,
            "csv_missing_header"
            | "csv_missing_column"
            | "csv_unknown_column"
            | "csv_duplicate_column"
            | "jsonl_unknown_field" => Owner::Schema,
            "schema_mismatch" | "columns_uneven" | "decoder_failed" | "arrow"
            | "compression_failed" => Owner::Internal,
            _ => Owner::Data,
        }
    }

    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            column: None,
            line: None,
            row: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn column(mut self, column: &str) -> Self {
        self.column = Some(column.to_owned());
        self
    }

    pub(crate) fn line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    /// In an element of an array, given from 1. A message that says the character of its line has a place already.
    pub(crate) fn element(mut self, number: u64) -> Self {
        if !self.message.starts_with("character ") {
            self.message = format!("element {number}: {}", self.message);
        }
        self
    }

    /// In a row of a batch, given from 0.
    pub(crate) fn row(mut self, row: usize) -> Self {
        self.row = Some(row as u64 + 1);
        self
    }

    /// A column whose type a text file cannot hold.
    pub(crate) fn unsupported(field: &Field) -> Self {
        Self::new(
            "unsupported_type",
            format!(
                "column {:?} has the type {}, which has no text form",
                field.name(),
                type_name(field)
            ),
        )
        .column(field.name())
    }
}

impl From<ArrowError> for FormatError {
    fn from(error: ArrowError) -> Self {
        Self::new("arrow", format!("arrow: {error}"))
    }
}

/// The hint for a file in another encoding.
pub(crate) const TO_UTF8: &str =
    "convert the file to UTF-8, for example with iconv -f latin1 -t utf-8";

/// Why one value does not go into, or come out of, its column. Boxed: it is rare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub code: &'static str,
    /// The reason in the message, such as `"12x" is not a whole number`.
    pub reason: String,
    /// The place below the column, such as `.items[].price`; empty for the column itself.
    pub path: String,
    /// The type at that place.
    pub type_name: String,
}

/// Longer values are cut in messages: 60 characters show what it is and fit on a line.
const SHOWN_CHARS: usize = 60;

/// A value for a message: quoted, cut to 60 characters, bytes outside UTF-8 replaced.
pub(crate) fn shown(value: &[u8]) -> String {
    // 4 bytes hold any character.
    let head = &value[..value.len().min(SHOWN_CHARS * 4 + 4)];
    let text = String::from_utf8_lossy(head);
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    let more = cut.len() < text.len() || head.len() < value.len();
    format!("{cut:?}{}", if more { "…" } else { "" })
}

impl Misfit {
    pub(crate) fn new(code: &'static str, field: &Field, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason: reason.into(),
            path: String::new(),
            type_name: type_name(field),
        })
    }

    /// A value whose text its column does not take.
    pub(crate) fn value(field: &Field, value: &[u8], reason: &str) -> Box<Self> {
        Self::new(
            "value_does_not_fit",
            field,
            format!("{} {reason}", shown(value)),
        )
    }

    pub(crate) fn coded(mut self: Box<Self>, code: &'static str) -> Box<Self> {
        self.code = code;
        self
    }

    pub(crate) fn null(field: &Field) -> Box<Self> {
        Self::new(
            "null_in_required_column",
            field,
            "NULL in a column that does not allow it",
        )
    }

    /// The same, seen from one level further out.
    pub(crate) fn below(mut self: Box<Self>, step: &str) -> Box<Self> {
        self.path.insert_str(0, step);
        self
    }

    /// The error for a person: `column "total" (int64): "12x" is not a whole number`.
    pub(crate) fn into_error(self, column: &str) -> FormatError {
        let message = format!(
            "column {}{} ({}): {}",
            rapidbyte_wire::name::shown(column),
            self.path,
            self.type_name,
            self.reason
        );
        let error = FormatError::new(self.code, message).column(column);
        match self.code {
            "json_not_finite" => error
                .hint("write CSV, or make the column a string: JSON has neither NaN nor infinity"),
            "json_null_value" => error.hint(
                "write CSV, or make the column a string: the value would be read back \
                     as NULL",
            ),
            "json_not_one_line" => error.hint(
                "write CSV, Parquet or Arrow, which keep the document; or have the source give \
                     it on one line, in PostgreSQL by a cast to jsonb",
            ),
            "value_not_exact" => error.hint(
                "write the numbers as strings: the page of the destination names the setting",
            ),
            "decimal_comma" => error.hint(
                "export the file with decimal points and without separators of thousands, or \
                     declare the column as string and convert it later",
            ),
            "json_lone_surrogate" => error.hint(
                "repair the file, or declare the column as json, which keeps the text unchanged",
            ),
            "null_in_required_column" => error.hint("declare the column nullable"),
            "csv_bad_utf8" => error.hint(TO_UTF8),
            _ => error,
        }
    }
}
