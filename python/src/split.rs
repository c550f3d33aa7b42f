//! JSON text to its records, whatever pieces it comes in: one document, an array of documents, or documents one after the
//! other (NDJSON).

use crate::refusal::{Refusal, Result};

/// A longer record is refused.
const MAX_RECORD_BYTES: usize = 1 << 30;

/// Finds the ends of records. It checks no more of them than that; their reader does.
#[derive(Default)]
pub struct Splitter {
    place: Place,
    is_array: bool,
    /// The beginning of a record, on one line.
    record: Vec<u8>,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Those of earlier texts, too: the number of the next one is its row.
    records: u64,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum Place {
    /// Before the first character.
    #[default]
    Start,
    /// Where a record begins.
    Before,
    /// Where a record must begin: behind a comma.
    Next,
    /// In a record.
    Within,
    /// Behind a record of an array.
    After,
    /// Behind the array.
    End,
}

impl Splitter {
    /// Hands over the records that end in `bytes`.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.place == Place::Within {
                if self.within(*byte) {
                    each(&self.record)?;
                    self.record.clear();
                    self.records += 1;
                }
                continue;
            }
            // The three bytes of a byte order mark may come first.
            let is_mark = self.place == Place::Start
                && matches!((at, byte), (0, 0xef) | (1, 0xbb) | (2, 0xbf));
            if byte.is_ascii_whitespace() || is_mark {
                continue;
            }
            self.place = match (self.place, byte) {
                (Place::Start, b'[') => {
                    self.is_array = true;
                    Place::Before
                }
                (Place::Start | Place::Before | Place::Next, b'{') => {
                    self.record.push(b'{');
                    self.depth = 1;
                    Place::Within
                }
                (Place::Before | Place::After, b']') if self.is_array => Place::End,
                (Place::After, b',') => Place::Next,
                _ => return Err(self.unexpected(bytes, at)),
            };
        }
        Ok(())
    }

    /// Takes a byte of a record. True at its end.
    fn within(&mut self, byte: u8) -> bool {
        // A line break between values is white space; in strings JSON has none.
        let is_break = matches!(byte, b'\n' | b'\r') && !self.in_string;
        self.record.push(if is_break { b' ' } else { byte });
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.depth > 0 {
            return false;
        }
        self.place = match self.is_array {
            true => Place::After,
            false => Place::Before,
        };
        true
    }

    /// The end of a text. Another one may follow.
    pub fn end(&mut self) -> Result<()> {
        let is_complete = match self.place {
            Place::Start | Place::End => true,
            Place::Before => !self.is_array,
            Place::Within | Place::Next | Place::After => false,
        };
        match is_complete {
            true => {
                *self = Self {
                    records: self.records,
                    ..Self::default()
                };
                Ok(())
            }
            false => Err(
                Refusal::data("jsonl_broken_line", "the JSON text ends too early")
                    .at_row(self.records)
                    .hint("send whole documents"),
            ),
        }
    }

    /// The row that begins where the text has got to.
    pub fn row(&self) -> u64 {
        self.records
    }

    /// Whether a record is longer than any may be.
    pub fn ensure_small(&self) -> Result<()> {
        if self.record.len() <= MAX_RECORD_BYTES {
            return Ok(());
        }
        let text = format!("a record of more than {MAX_RECORD_BYTES} bytes");
        Err(Refusal::data("record_too_large", text).at_row(self.records))
    }

    fn unexpected(&self, bytes: &[u8], at: usize) -> Refusal {
        let rest = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 40)]).into_owned();
        let text = format!("{rest:?} stands where a JSON object was expected");
        Refusal::data("jsonl_broken_line", text)
            .at_row(self.records)
            .hint("rows are JSON objects: one, an array of them, or one after the other")
    }
}
