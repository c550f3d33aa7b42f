//! Documents: `json` keeps the text, `jsonb` has a version byte before it (`jsonb_recv`).

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use rapidbyte_wire::types as wire_types;

use super::family::{Family, Held, Spelling};
use super::text::checked;
use crate::builtin::{JSON, JSONB};
use crate::decode::{Bytes, Decode};
use crate::encode::{Values, aside};
use crate::error::{Failed, Problem};
use crate::json_keys;

/// The only version of jsonb's binary form.
const JSONB_VERSION: u8 = 1;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [JSON] held(|_| Bytes::of(None)), None, Spelling::Any;
        [JSONB] held(|_| Bytes::of(Some(JSONB_VERSION))), None, Spelling::Own;
    },
    column: |field| match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 if wire_types::is_json(field) => Some(JSON.column("")),
        _ => None,
    },
    into: |_, _, _, _| None,
    // Text without a version is written as other text is.
    encode: |_| None,
};

const fn held(decode: fn(&DataType) -> Box<dyn Decode>) -> Option<Held> {
    Some(Held {
        exact: true,
        data_type: |_| Some(DataType::Utf8),
        extension: Some(wire_types::JSON),
        decode,
    })
}

/// As `jsonb`; `check` if a text may hold NUL characters. Objects do not repeat a key, also where the texts are said to
/// come from a jsonb: a program may have changed them since.
pub(crate) fn encode_jsonb(
    array: &ArrayRef,
    check: bool,
    written: Range<usize>,
) -> Result<Option<Values<'_>>, Failed> {
    let bytes = checked(
        array,
        Some(JSONB_VERSION),
        check,
        Some(json_keys::check),
        written,
    )?;
    Ok(bytes.map(|bytes| bytes.values()))
}

/// Texts as JSON strings, behind a version for `jsonb`.
pub(crate) fn encode_strings(
    array: &ArrayRef,
    version: bool,
    written: Range<usize>,
) -> Result<Option<Values<'_>>, Failed> {
    let version = version.then_some(JSONB_VERSION);
    let unchecked = None::<fn(&[u8]) -> Result<(), Problem>>;
    let bytes = checked(array, version, true, unchecked, written)?;
    Ok(bytes.map(|bytes| aside(move |row, out| put_json_string(out, version, bytes.value(row)))))
}

/// Appends a text as a JSON string with its length, behind a byte that says the version.
fn put_json_string(out: &mut Vec<u8>, version: Option<u8>, text: &[u8]) -> Result<(), Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Malformed)?;
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend(version);
    serde_json::to_writer(&mut *out, text).map_err(|_| Problem::Malformed)?;
    let length = i32::try_from(out.len() - at - 4).map_err(|_| Problem::TooLarge)?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
