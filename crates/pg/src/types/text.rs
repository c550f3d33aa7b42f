//! Text. Enums and types of extensions that send their text are held like `text`.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{BPCHAR, TEXT, VARCHAR};
use crate::decode::Bytes;
use crate::encode::{Bytes as Written, Values};
use crate::error::{Failed, Problem};

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[TEXT, VARCHAR, BPCHAR],
        held: Some(Held {
            exact: true,
            data_type: |_| Some(DataType::Utf8),
            extension: None,
            decode: |_| Bytes::of(None),
        }),
    }],
    encode: |array| match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => Written::of(array, None).map(Written::values),
        _ => None,
    },
};

/// As text; `check` if it may hold NUL characters, `limit` if it may be too long.
pub(crate) fn encode_text(
    array: &ArrayRef,
    check: bool,
    limit: Option<Limit>,
    written: Range<usize>,
) -> Result<Option<Values<'_>>, Failed> {
    let limit = limit.map(|limit| move |text: &[u8]| limit.check(text));
    let bytes = checked(array, None, check, limit, written)?;
    Ok(bytes.map(Written::values))
}

/// Texts without a problem; `each` checks one.
pub(super) fn checked(
    array: &ArrayRef,
    version: Option<u8>,
    check: bool,
    each: Option<impl Fn(&[u8]) -> Result<(), Problem>>,
    written: Range<usize>,
) -> Result<Option<Written<'_>>, Failed> {
    let Some(bytes) = Written::of(array, version) else {
        return Ok(None);
    };
    if check && !written.is_empty() {
        let (start, end) = (
            bytes.offsets.range(written.start).start,
            bytes.offsets.range(written.end - 1).end,
        );
        if memchr::memchr(0, &bytes.data[start..end]).is_some() {
            let holds_nul = |row: &usize| {
                !array.is_null(*row) && memchr::memchr(0, bytes.value(*row)).is_some()
            };
            // A NULL's bytes do not count.
            if let Some(row) = written.clone().find(holds_nul) {
                return Err((row, Problem::Nul));
            }
        }
    }
    if let Some(each) = each {
        for row in written.filter(|row| !array.is_null(*row)) {
            each(bytes.value(row)).map_err(|problem| (row, problem))?;
        }
    }
    Ok(Some(bytes))
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
    fn check(self, text: &[u8]) -> Result<(), Problem> {
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
