//! Steps that hide values: keyed hashes and masks.

use std::sync::Arc;

use arrow_buffer::OffsetBuffer;
use rapidbyte_pg::form::OPAQUE;
use rapidbyte_sdk::digest::{DIGEST_BYTES, HmacSha256};
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::*;

use super::{Columns, Fault, Problem, Run, batch_of, computed_column, positions, problem, quoted};
use crate::config::{Hash, Mask};
use crate::expression::{self, Kind, Typed};

/// A shorter key is guessed.
const MIN_SALT_BYTES: usize = 16;

/// Hashes the bytes of a binary value, or the text of any other value, which is the text that `CAST(… AS text)` gives.
pub(super) fn hash(hash: &Hash, columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let named = positions(columns, &hash.columns, "hash.columns")?;
    if hash.salt.len() < MIN_SALT_BYTES {
        let reason = format!("a salt needs at least {MIN_SALT_BYTES} bytes");
        return Err(problem("hash.salt", reason));
    }
    let texts = texts(columns, &named, "hash.columns")?;
    become_texts(columns, &named);
    let keyed = HmacSha256::new(hash.salt.as_bytes());
    Ok(Box::new(move |batch, schema| {
        let mut all = batch.columns().to_vec();
        for (index, text) in named.iter().zip(&texts) {
            let column = &mut all[*index];
            if let Some(text) = text {
                *column = computed_column(text, batch, schema.field(*index).name())?;
            }
            *column = hashed(column, &keyed)?;
        }
        batch_of(all, schema)
    }))
}

/// The hash of each value as lower-case hexadecimal digits; NULL stays NULL.
fn hashed(column: &ArrayRef, keyed: &HmacSha256) -> Result<ArrayRef, Fault> {
    let values = values(column);
    let digests = keyed.digests(values.iter().copied().flatten());
    let mut texts = vec![0; digests.len() * 2];
    for (digits, byte) in texts.chunks_exact_mut(2).zip(&digests) {
        digits.copy_from_slice(&HEXADECIMAL[usize::from(*byte)]);
    }
    i32::try_from(texts.len()).map_err(Fault::internal)?;
    let lengths = values.iter().map(|value| match value {
        Some(_) => DIGEST_BYTES * 2,
        None => 0,
    });
    let ends = OffsetBuffer::from_lengths(lengths);
    let texts = StringArray::try_new(ends, texts.into(), column.nulls().cloned());
    Ok(Arc::new(texts.map_err(Fault::internal)?))
}

/// The two digits of each byte.
const HEXADECIMAL: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut all = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        all[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    all
};

pub(super) fn mask(mask: &Mask, columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let named = positions(columns, &mask.columns, "mask.columns")?;
    if mask.keep_last.is_some() && mask.keep_domain {
        return Err(problem("mask", "either keep_last or keep_domain"));
    }
    for index in &named {
        let field = columns.schema.field(*index);
        if !matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8) {
            let reason = format!(
                "the column {} is {}, and only text is masked: cast it to text first",
                field.name(),
                rapidbyte_sdk::types::type_name(field)
            );
            return Err(problem("mask.columns", reason));
        }
    }
    let texts = texts(columns, &named, "mask.columns")?;
    become_texts(columns, &named);
    let mask = mask.clone();
    Ok(Box::new(move |batch, schema| {
        let mut all = batch.columns().to_vec();
        for (index, text) in named.iter().zip(&texts) {
            let column = &mut all[*index];
            if let Some(text) = text {
                *column = computed_column(text, batch, schema.field(*index).name())?;
            }
            *column = changed(column, |bytes, out| {
                hide(&String::from_utf8_lossy(bytes), &mask, out);
            })?;
        }
        batch_of(all, schema)
    }))
}

fn hide(text: &str, mask: &Mask, out: &mut Vec<u8>) {
    let characters = text.chars().count();
    let kept = mask.keep_last.unwrap_or(0) as usize;
    let hidden = match text.rfind('@') {
        Some(at) if mask.keep_domain => text[..at].chars().count(),
        // A short text would be shown whole, or nearly.
        _ if kept.saturating_mul(2) >= characters => characters,
        _ => characters - kept,
    };
    out.extend(std::iter::repeat_n(b'*', hidden));
    let shown = text.char_indices().nth(hidden);
    out.extend(shown.map_or("", |(at, _)| &text[at..]).as_bytes());
}

/// How the columns become texts; `None` for one of texts or bytes.
fn texts(columns: &Columns, named: &[usize], key: &str) -> Result<Vec<Option<Typed>>, Problem> {
    let text = |index: &usize| {
        let field = columns.schema.field(*index);
        if is_bytes(field) {
            return Ok(None);
        }
        let cast = format!("CAST({} AS text)", quoted(field.name()));
        let typed = expression::parse(&cast, &columns.schema);
        typed.map(Some).map_err(|reason| problem(key, reason))
    };
    named.iter().map(text).collect()
}

/// Texts that are compared as texts, or bytes that are not another system's form of something else.
fn is_bytes(field: &Field) -> bool {
    let is_opaque = rapidbyte_sdk::types::extension_name(field) == Some(OPAQUE);
    let is_binary = matches!(field.data_type(), DataType::Binary | DataType::LargeBinary);
    is_binary && !is_opaque || Kind::of(field) == Some(Kind::Text)
}

fn become_texts(columns: &mut Columns, named: &[usize]) {
    let mut fields = columns.fields();
    for index in named {
        let field = &fields[*index];
        let name = field.name().clone();
        fields[*index] = Arc::new(Field::new(&name, DataType::Utf8, field.is_nullable()));
        columns.source_types[*index].clear();
        columns.computed(&name);
    }
    columns.set_fields(fields);
}

/// Exchanges the values of a column of texts or bytes; NULL stays NULL. `new` appends UTF-8.
fn changed(column: &ArrayRef, new: impl Fn(&[u8], &mut Vec<u8>)) -> Result<ArrayRef, Fault> {
    let (mut texts, mut ends) = (Vec::new(), vec![0]);
    for value in values(column) {
        if let Some(bytes) = value {
            new(bytes, &mut texts);
        }
        ends.push(i32::try_from(texts.len()).map_err(Fault::internal)?);
    }
    let ends = OffsetBuffer::new(ends.into());
    let texts = StringArray::try_new(ends, texts.into(), column.nulls().cloned());
    Ok(Arc::new(texts.map_err(Fault::internal)?))
}

/// The values of a column of texts or bytes.
fn values(column: &ArrayRef) -> Vec<Option<&[u8]>> {
    fn bytes(text: Option<&str>) -> Option<&[u8]> {
        text.map(str::as_bytes)
    }
    match column.data_type() {
        DataType::LargeUtf8 => column.as_string::<i64>().iter().map(bytes).collect(),
        DataType::Binary => column.as_binary::<i32>().iter().collect(),
        DataType::LargeBinary => column.as_binary::<i64>().iter().collect(),
        _ => column.as_string::<i32>().iter().map(bytes).collect(),
    }
}
