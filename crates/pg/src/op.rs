//! How the values of a column become bytes, as data.

use crate::error::Problem;
use crate::oids::Rewrite;

/// How the values of one column become bytes. Made by [`mod@crate::fit`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    /// Every value is NULL.
    Null,
    /// As the Arrow type says: booleans, floats, dates, times, decimals, bytes.
    Plain,
    /// Text; `check` if it may hold NUL characters, `limit` if it may be too long.
    Text { check: bool, limit: Option<Limit> },
    /// A version byte, then JSON without repeated keys; `check` as for text.
    Jsonb { check: bool },
    /// Text as a JSON string, behind a version byte for jsonb.
    JsonString { version: bool },
    /// An integer of this many bytes.
    Int(u8),
    /// An integer as `numeric`.
    IntNumeric,
    /// A float as `float8`.
    Float8,
    /// Bytes whose OIDs change.
    Rewrite(Rewrite),
    /// A list as an array; `depth` dimensions of the element type `oid`.
    List {
        oid: u32,
        depth: usize,
        element: Box<Op>,
    },
}

impl Op {
    /// True if texts, or those in lists, are written as JSON strings.
    pub(crate) fn writes_json_strings(&self) -> bool {
        match self {
            Self::JsonString { .. } => true,
            Self::List { element, .. } => element.writes_json_strings(),
            _ => false,
        }
    }
}

/// How long a text may be. The server itself refuses longer ones, but for surplus blanks at the end,
/// which it cuts and says nothing (`varchar_input`, `bpchar_input`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub chars: u32,
    /// Blanks at the end mean nothing at either side.
    pub ignores_blanks: bool,
    /// Blanks at the end mean something at the source alone: the target pads shorter texts.
    pub refuses_blanks: bool,
}

impl Limit {
    pub(crate) fn check(self, text: &[u8]) -> Result<(), Problem> {
        let limit = self.chars as usize;
        let hides = self.refuses_blanks && text.last() == Some(&b' ');
        if text.len() <= limit && !hides {
            return Ok(());
        }
        let mut end = text.len();
        while self.ignores_blanks && end > 0 && text[end - 1] == b' ' {
            end -= 1;
        }
        // All bytes of UTF-8 but those that continue a character.
        let begins = |byte: &&u8| **byte & 0xC0 != 0x80;
        match text[..end].iter().filter(begins).count() {
            chars if chars > limit => Err(Problem::TooLong(self.chars)),
            // As long as the column: nothing is padded.
            chars if hides && chars < limit => Err(Problem::Blanks),
            _ => Ok(()),
        }
    }
}
