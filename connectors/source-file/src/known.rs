//! What is known of the columns of a stream.

use rapidbyte_sdk::prelude::*;

/// A stream's columns and how they became known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub schema: SchemaRef,
    pub notes: Vec<String>,
    /// Nobody declared them.
    pub inferred: bool,
    /// The source's names of the types.
    pub source_types: Vec<String>,
    /// Rows, where the files say it.
    pub rows: Option<u64>,
}

impl Known {
    pub(crate) fn new(schema: SchemaRef, notes: Vec<String>, inferred: bool, text: &str) -> Self {
        Self {
            source_types: vec![text.into(); schema.fields().len()],
            schema,
            notes,
            inferred,
            rows: None,
        }
    }
}
