//! The ids of kept rejects, and those that a load replays.

use std::collections::VecDeque;
use std::fmt;

use rapidbyte_sdk::prelude::*;

/// The place of a line: the number of a manifest and of the line in its file of rejects, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub number: u64,
    pub line: u64,
}

impl Place {
    /// Of `7.2`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, line) = text.split_once('.')?;
        let (number, line) = (number.parse().ok()?, line.parse().ok()?);
        Some(Self { number, line })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.line)
    }
}

/// The order of the rejects of a directory, and the end of an id: `7.2`, or `7.2:9.1` for a record that failed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    /// The line whose place in the order it has.
    pub first: Place,
    pub again: Option<Place>,
}

impl Id {
    pub(crate) fn line(self) -> Place {
        self.again.unwrap_or(self.first)
    }

    fn parse(text: &str) -> Option<Self> {
        let (first, again) = match text.split_once(':') {
            None => (text, None),
            Some((first, again)) => (first, Some(Place::parse(again)?)),
        };
        let first = Place::parse(first)?;
        Some(Self { first, again })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.again {
            None => self.first.fmt(f),
            Some(again) => write!(f, "{}:{again}", self.first),
        }
    }
}

/// The directory and the end of an id. Errors: `reject_missing`.
pub(crate) fn parted(id: &str) -> Result<(&str, Id)> {
    let parted = id.rsplit_once('#');
    let parted = parted.and_then(|(folder, end)| Some((folder, Id::parse(end)?)));
    parted.ok_or_else(|| missing(&format!("{id:?} is not the id of a reject")))
}

/// The error for rejects that are not there any more.
pub(crate) fn missing(what: &str) -> Error {
    Error::data("reject_missing", format!("{what}; this replay changed nothing")).hint(
        "list the rejects again with `rapidbyte rejects show PIPELINE`, and replay those that are still there",
    )
}

/// The rejects that a load replays, all in its own directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim {
    /// Their lines, for the manifest that removes them.
    pub lines: Vec<String>,
    /// Their places in the order, for records that fail again.
    pub first: VecDeque<Place>,
}
