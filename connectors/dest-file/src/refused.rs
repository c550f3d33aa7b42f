//! Rows that a file does not take.

use rapidbyte_formats::FormatError;
use rapidbyte_sdk::prelude::*;

use crate::convert;

/// Why rows were not written.
pub(crate) enum Refused {
    /// A value; the error's row is counted within the batch.
    Row(FormatError),
    /// A value of a file of columns; the first row of the batch, from 1.
    Columns(Error, u64),
    /// The file.
    File(Error),
}

impl Refused {
    /// The contract's error, with the row of the stream. `before` rows of the stream came before the
    /// batch.
    pub(crate) fn told(self, before: u64) -> Error {
        match self {
            Self::File(error) => error,
            Self::Columns(mut error, row) => {
                error.message = format!("row {} or after: {}", row + before, error.message);
                error
            }
            Self::Row(mut error) => {
                error.row = error.row.map(|row| row + before);
                convert(error)
            }
        }
    }
}
