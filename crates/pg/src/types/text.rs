//! Text. Enums, `varchar`, `char(n)` and other types that send their text are held like `text`; the encoder checks
//! their lengths text by text.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::family::{Family, Spelling, by_value, exactly};
use crate::builtin::{BPCHAR, NAME, TEXT, VARCHAR};
use crate::decode::Bytes;
use crate::encode::{Bytes as Written, Values};
use crate::error::{Failed, Problem};
use crate::model::PgType;
use crate::op::Limit;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [TEXT, VARCHAR] exactly(|_| Some(DataType::Utf8), |_| Bytes::of(None)), None, Spelling::Any;
        // Its padding does not count.
        [BPCHAR] None, by_value(|_, _| Ok(())), Spelling::Any;
    },
    column: |field| match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => Some(TEXT.column("")),
        _ => None,
    },
    into: |_, _, _, _| None,
    encode: |array| match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => Written::of(array, None).map(Written::values),
        _ => None,
    },
};

/// `VARHDRSZ`: the modifier of `varchar(n)` and `char(n)` is `n` and this.
pub(crate) const HEADER: i32 = 4;

/// How many characters a `varchar(n)` or `char(n)` holds.
fn characters(ty: &PgType, typmod: i32) -> Option<u32> {
    let limited = [VARCHAR.oid, BPCHAR.oid].contains(&ty.oid);
    u32::try_from(typmod.checked_sub(HEADER).filter(|_| limited)?).ok()
}

/// The limit to check each text against, because the server would cut blanks at its end. Also where the texts are said to
/// fit: a program may have changed them since, and a file may say anything.
pub(crate) fn limit(from: &PgType, to: &PgType, to_typmod: i32) -> Option<Limit> {
    let chars = characters(to, to_typmod)?;
    let is_padded = |ty: &PgType| ty.oid == BPCHAR.oid;
    Some(Limit {
        chars,
        ignores_blanks: is_padded(from) && is_padded(to),
        refuses_blanks: is_padded(to) && !is_padded(from),
    })
}

pub(crate) fn length_note(
    from: &PgType,
    from_typmod: i32,
    to: &PgType,
    to_typmod: i32,
) -> Option<String> {
    if to.oid == NAME.oid && from.oid != to.oid {
        return Some("the server refuses names of more than 63 bytes".into());
    }
    let most = characters(to, to_typmod)?;
    let pads = to.oid == BPCHAR.oid;
    let given = characters(from, from_typmod);
    let always_fits = given.is_some_and(|given| given <= most);
    let refuses_blanks = pads && from.oid != to.oid;
    if !always_fits || refuses_blanks {
        let pads = if pads {
            "; shorter ones are padded with blanks, and strings that end with a blank are refused"
        } else {
            ""
        };
        return Some(format!(
            "values of more than {most} characters are refused{pads}"
        ));
    }
    (pads && (given != Some(most) || from.oid != to.oid))
        .then(|| format!("padded with blanks to {most} characters"))
}

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
