//! The columns of a stream: declared, or inferred from its first pages.

use rapidbyte_formats::FormatError;
use rapidbyte_json_columns::{Columns, Pages};
use rapidbyte_sdk::prelude::*;

use crate::config::Nested;
use crate::settings::Settled;
use crate::walk::Walk;

impl Pages for Walk {
    fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
        Walk::next_page(self)
    }

    fn refuse(&self, error: FormatError) -> Error {
        Walk::refuse(self, error)
    }

    fn no_columns(&self) -> Error {
        let text = "no record has a key, so the columns cannot be inferred";
        Error::schema("no_columns", text)
            .hint("declare the columns under the stream's schema:")
            .in_stream(self.stream())
    }
}

/// The declarations of the operator.
pub(crate) fn columns(stream: &Settled) -> Columns {
    Columns {
        schema: stream.schema.clone(),
        types: stream.types.clone(),
        unknown_keys: stream.unknown_keys,
        nests_as_text: stream.nested == Nested::Json,
        keys: "keys",
    }
}
