//! The one error of this crate.

use arrow_schema::ArrowError;
use rapidbyte_wire::name::shown;

/// Bytes that cannot be read, or values that cannot be written, exactly.
///
/// | code | when |
/// | --- | --- |
/// | `parquet_malformed`, `arrow_malformed` | bytes that are not what the format says, or say two different things |
/// | `parquet_encrypted` | an encrypted file |
/// | `arrow_feather_v1` | the first version of Feather, which is another format |
/// | `unsupported_type` | the other side cannot hold a column's type exactly |
/// | `no_columns` | Parquet cannot hold rows without columns |
/// | `unknown_column` | a wanted column is not in the file |
/// | `page_too_large`, `batch_too_large` | a piece that must be held whole is above its limit |
/// | `record_too_large` | a record above `max_record_bytes` |
/// | `value_does_not_fit` | a value that its column cannot hold exactly |
/// | `too_many_row_groups` | more row groups than a Parquet file can count |
/// | `file_io` | reading or writing failed |
/// | `schema_mismatch` | a batch that is not of the writer's schema |
/// | `arrow` | Arrow refused an array (a fault of this crate) |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.place_prefix())]
pub struct ColumnarError {
    /// Stable and short: one of the table above.
    pub code: &'static str,
    /// A lower-case fragment: what happened, without the place.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
    /// The top-level column.
    pub column: Option<String>,
    /// The row group of the file (Parquet) or its record batch (Arrow), from 1.
    pub group: Option<u64>,
    /// The row of the file, from 1.
    pub row: Option<u64>,
}

/// The person who acts on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The operator: an option, a column or a type.
    Config,
    /// The owner of the data: bytes or values.
    Data,
    /// The author of this crate or of its caller.
    Internal,
}

impl ColumnarError {
    /// The person who acts on this error.
    pub fn owner(&self) -> Owner {
        match self.code {
            "unsupported_type" | "no_columns" | "unknown_column" | "too_many_row_groups" => {
                Owner::Config
            }
            "schema_mismatch" | "arrow" => Owner::Internal,
            _ => Owner::Data,
        }
    }

    /// The place within the file, such as `row group 3, row 70001`, as far as it is known.
    pub fn place(&self) -> Option<String> {
        match (self.group, self.row) {
            (Some(group), Some(row)) => Some(format!("row group {group}, row {row}")),
            (Some(group), None) => Some(format!("row group {group}")),
            (None, Some(row)) => Some(format!("row {row}")),
            (None, None) => None,
        }
    }

    fn place_prefix(&self) -> String {
        self.place()
            .map_or_else(String::new, |place| format!("{place}: "))
    }

    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            column: None,
            group: None,
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

    /// In a row group or record batch, given from 0.
    pub(crate) fn group(mut self, group: usize) -> Self {
        self.group = Some(group as u64 + 1);
        self
    }

    /// In a row of the file, given from 0.
    pub(crate) fn row(mut self, row: u64) -> Self {
        self.row = Some(row + 1);
        self
    }

    /// A type without an exact form.
    pub(crate) fn unsupported(column: &str, reason: impl Into<String>) -> Self {
        let message = format!("column {}: {}", shown(column), reason.into());
        Self::new("unsupported_type", message).column(column)
    }
}

impl From<ArrowError> for ColumnarError {
    fn from(error: ArrowError) -> Self {
        Self::new("arrow", format!("arrow: {error}"))
    }
}
