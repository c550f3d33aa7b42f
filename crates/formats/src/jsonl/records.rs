//! Splits files into records, of either layout.

use super::elements::Elements;
use super::lines::{Found, Lines};
use super::place::Place;
use crate::FormatError;

/// How a file holds its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One object on each line.
    Lines,
    /// One document: an array of objects, or one object.
    Document,
}

/// Splits one file after the other.
pub(crate) enum Records {
    Lines(Lines),
    Elements(Elements),
}

impl Records {
    pub(crate) fn new(layout: Layout, max_record_bytes: usize) -> Self {
        match layout {
            Layout::Lines => Self::Lines(Lines::new(max_record_bytes)),
            Layout::Document => Self::Elements(Elements::new(max_record_bytes)),
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        match self {
            Self::Lines(_) => Layout::Lines,
            Self::Elements(_) => Layout::Document,
        }
    }

    pub(crate) fn begin_file(&mut self) {
        match self {
            Self::Lines(lines) => lines.begin_file(),
            Self::Elements(elements) => elements.begin_file(),
        }
    }

    /// Hands over the records that end in `bytes`, with their places, until one answers false; gives how many bytes
    /// were taken.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        on_record: impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<usize, FormatError> {
        match self {
            Self::Lines(lines) => lines.push(bytes, on_record),
            Self::Elements(elements) => elements.push(bytes, on_record),
        }
    }

    /// Hands over a last record that nothing ends. A document must be complete.
    pub(crate) fn end_of_file(
        &mut self,
        on_record: impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<(), FormatError> {
        match self {
            Self::Lines(lines) => lines.end_of_file(on_record),
            Self::Elements(elements) => elements.end_of_file(),
        }
    }
}
