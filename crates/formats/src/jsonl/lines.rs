//! Splits bytes into lines, wherever the pieces of the file end.

use memchr::memchr;

use super::place::Place;
use super::records::Layout;
use crate::FormatError;
use crate::error::TO_UTF8;
use rapidbyte_wire::name::shown;

/// Room that is kept for the beginnings of records: most are far shorter.
pub(super) const KEPT_BYTES: usize = 1 << 16;

/// The text of a record, or its bytes and why they are not text.
pub(crate) type Found<'a> = Result<&'a str, (&'a [u8], FormatError)>;

/// Splits one file after the other.
pub(crate) struct Lines {
    max_record_bytes: usize,
    /// The beginning of a line whose end has not come yet.
    pending: Vec<u8>,
    /// The number of the next line, from 1.
    line: u64,
}

impl Lines {
    pub(crate) fn new(max_record_bytes: usize) -> Self {
        Self {
            max_record_bytes,
            pending: Vec::new(),
            line: 1,
        }
    }

    pub(crate) fn begin_file(&mut self) {
        self.pending.clear();
        self.line = 1;
    }

    /// Hands over the lines that end in `bytes`, with their places, until one answers false;
    /// gives how many bytes were taken.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut on_line: impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<usize, FormatError> {
        let mut at = 0;
        while let Some(end) = memchr(b'\n', &bytes[at..]) {
            let rest = &bytes[at..at + end];
            self.check_size(self.pending.len() + rest.len())?;
            at += end + 1;
            let go_on = if self.pending.is_empty() {
                self.hand_over(rest, &mut on_line)?
            } else {
                let mut pending = std::mem::take(&mut self.pending);
                crate::rows::reserve_within(&mut pending, rest.len(), self.max_record_bytes);
                pending.extend_from_slice(rest);
                let go_on = self.hand_over(&pending, &mut on_line)?;
                pending.clear();
                pending.shrink_to(KEPT_BYTES);
                self.pending = pending;
                go_on
            };
            if !go_on {
                return Ok(at);
            }
        }
        let rest = &bytes[at..];
        self.check_size(self.pending.len() + rest.len())?;
        crate::rows::reserve_within(&mut self.pending, rest.len(), self.max_record_bytes);
        self.pending.extend_from_slice(rest);
        Ok(bytes.len())
    }

    /// Hands over a last line without a line break.
    pub(crate) fn end_of_file(
        &mut self,
        mut on_line: impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<(), FormatError> {
        let pending = std::mem::take(&mut self.pending);
        self.hand_over(&pending, &mut on_line).map(|_| ())
    }

    fn hand_over(
        &mut self,
        line: &[u8],
        on_line: &mut impl FnMut(Found<'_>, Place) -> Result<bool, FormatError>,
    ) -> Result<bool, FormatError> {
        let number = self.line;
        let place = Place {
            line: number,
            before: 0,
        };
        self.line += 1;
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(error) => {
                let at = error.valid_up_to() + 1;
                let error = FormatError::new("jsonl_bad_utf8", format!("not UTF-8 at byte {at}"));
                return on_line(Err((line, error.hint(TO_UTF8).line(number))), place);
            }
        };
        let text = match number {
            1 => text.strip_prefix('\u{feff}').unwrap_or(text),
            _ => text,
        };
        if text.bytes().all(|b| b.is_ascii_whitespace()) {
            return Ok(true);
        }
        on_line(Ok(text), place)
    }

    fn check_size(&self, len: usize) -> Result<(), FormatError> {
        if len <= self.max_record_bytes {
            return Ok(());
        }
        Err(too_large(self.max_record_bytes, self.line))
    }
}

/// The error for a record that begins at `line` and has more bytes than it may have.
pub(super) fn too_large(max_record_bytes: usize, line: u64) -> FormatError {
    let text = format!("a record larger than {max_record_bytes} bytes");
    let error = FormatError::new("record_too_large", text);
    error.hint("raise resources.max_record_bytes").line(line)
}

/// The error for a record that is not one JSON object, with line and character.
pub(crate) fn broken(
    text: &str,
    place: Place,
    layout: Layout,
    error: &serde_json::Error,
) -> FormatError {
    let first = text.trim_start().bytes().next();
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if is_json && first != Some(b'{') {
        let shown = crate::error::shown(text.trim().as_bytes());
        let text = format!("{shown} is not a JSON object");
        let hint = match layout {
            Layout::Lines => {
                "write one object on each line, or read an array of objects as format: json"
            }
            Layout::Document => "make each element of the array an object",
        };
        let error = FormatError::new("jsonl_not_an_object", text);
        return error.hint(hint).line(place.line);
    }
    // The library counts bytes in lines of the record; it ends its message with its own idea of line and column.
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines
        .by_ref()
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let line = lines.next().unwrap_or_default();
    let bytes = before + error.column().saturating_sub(1).min(line.len());
    let place = place.after(&text.as_bytes()[..bytes]);
    let character = place.character();
    if is_json {
        // Only its keys were checked more closely.
        let text = format!("character {character}: a key has half of a surrogate pair");
        return FormatError::new("json_lone_surrogate", text).line(place.line);
    }
    let message = error.to_string();
    let what = message.split(" at line ").next().unwrap_or_default();
    let code = match layout {
        Layout::Lines => "jsonl_broken_line",
        Layout::Document => "json_broken_document",
    };
    FormatError::new(code, format!("character {character}: {what}")).line(place.line)
}

pub(super) fn duplicate(key: &str) -> FormatError {
    FormatError::new(
        "jsonl_duplicate_key",
        format!("the key {} is there twice", shown(key)),
    )
    .column(key)
}
