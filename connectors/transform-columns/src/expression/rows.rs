//! The rows of a batch for which an expression is computed.

use arrow_buffer::BooleanBuffer;
use rapidbyte_sdk::prelude::*;

/// A value that cannot be computed.
#[derive(Debug)]
pub struct Misfit {
    /// The row of the batch; 0 for a constant.
    pub row: usize,
    pub reason: String,
}

/// The rows for which an expression is computed. The others are NULL, so that a value that is not asked for can be no
/// error.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub batch: &'a RecordBatch,
    pub wanted: Option<&'a BooleanBuffer>,
}

impl<'a> Rows<'a> {
    /// No more than these rows.
    pub fn only(self, wanted: &'a BooleanBuffer) -> Self {
        Self {
            wanted: Some(wanted),
            ..self
        }
    }

    pub fn is_wanted(&self, row: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted.value(row))
    }
}
