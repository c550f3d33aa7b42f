//! The columns of a stream: declared, or inferred from its first documents.

use rapidbyte_formats::FormatError;
use rapidbyte_json_columns::{Columns, Known, Pages, Sample};
use rapidbyte_sdk::prelude::*;

use crate::config::{Nested, Settled};
use crate::{pages, read};

/// The pages of a stream while its columns are inferred.
struct Sampled<'a>(&'a mut pages::Pages, &'a Settled);

impl Pages for Sampled<'_> {
    fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
        self.0.next_page()
    }

    fn refuse(&self, error: FormatError) -> Error {
        read::refuse(error, self.0, self.1)
    }

    fn lacks(&mut self, name: &str, is_whole: bool) -> Result<bool> {
        // Nobody can ask for a field of another query.
        Ok(is_whole || (!self.1.has_query && self.0.lacks(name)?))
    }

    fn no_columns(&self) -> Error {
        let text = "no document has a field, so the columns cannot be inferred";
        Error::schema("no_columns", text).hint(format!(
            "declare them under config.streams.{}.schema",
            self.1.name
        ))
    }
}

/// The declared columns; without a declaration the columns that are inferred from at most `documents` documents.
pub(crate) fn know(pages: &mut pages::Pages, stream: &Settled, documents: u32) -> Result<Known> {
    let sample = Sample {
        records: documents.into(),
        pages: u64::MAX,
    };
    columns(stream).know(&mut Sampled(pages, stream), sample)
}

/// The declarations of the operator.
pub(crate) fn columns(stream: &Settled) -> Columns {
    Columns {
        schema: stream.schema.clone(),
        types: stream.types.clone(),
        unknown_keys: stream.unknown_keys,
        nests_as_text: stream.nested == Nested::Json,
        keys: "fields",
    }
}
