//! Compares the decimals and times of a batch with what their types hold.
//!
//! Arrow stores a decimal(5, 2) in 16 bytes, which hold far more digits, and a time of day in a
//! number that need not lie within a day. Formats and databases change such a value in different
//! ways, so the host refuses it before any destination sees it.

use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_buffer::i256;
use arrow_schema::TimeUnit;

use super::{Content, Layout, Unfit};
use crate::WireError;

/// The first decimal with more digits than its column declares, or time outside of a day.
pub(super) fn unfit(
    layout: &Layout,
    batch: &arrow_ipc::RecordBatch<'_>,
    body: &[u8],
) -> Result<Option<Unfit>, WireError> {
    // Most schemas have neither.
    let has_some =
        |slot: &super::Slot| matches!(slot.content, Content::Decimal { .. } | Content::Time { .. });
    if !layout.buffers.iter().any(has_some) {
        return Ok(None);
    }
    let cut = || WireError::Batch("values that are cut off".into());
    let nodes = batch.nodes().ok_or_else(cut)?;
    let buffers = batch.buffers().ok_or_else(cut)?;
    let bytes = |index: usize| {
        let buffer = (index < buffers.len()).then(|| buffers.get(index))?;
        let begin = usize::try_from(buffer.offset()).ok()?;
        let end = begin.checked_add(usize::try_from(buffer.length()).ok()?)?;
        body.get(begin..end)
    };
    for (index, slot) in layout.buffers.iter().enumerate() {
        let is_number = matches!(slot.content, Content::Decimal { .. } | Content::Time { .. });
        if !is_number {
            continue;
        }
        let node = (slot.node < nodes.len()).then(|| nodes.get(slot.node));
        let node = node.ok_or_else(cut)?;
        let count = usize::try_from(node.length()).map_err(|_| cut())?;
        // The buffer before it says which values are null: they may be anything.
        let validity = match node.null_count() {
            0 => None,
            _ => index.checked_sub(1).and_then(bytes),
        };
        let is_valid = |row: usize| {
            let byte = validity.and_then(|bits| bits.get(row / 8));
            byte.is_none_or(|byte| byte >> (row % 8) & 1 == 1)
        };
        let values = bytes(index).ok_or_else(cut)?;
        let unfit = match slot.content {
            Content::Decimal {
                width,
                precision,
                scale,
            } => {
                let value = match width {
                    32 => wide(values, count, precision, is_valid)
                        .map(|value| Decimal256Type::format_decimal(value, precision, scale)),
                    _ => short(values, count, precision, is_valid)
                        .map(|value| Decimal128Type::format_decimal(value, precision, scale)),
                };
                value.map(|value| (value, format!("decimal({precision}, {scale})")))
            }
            Content::Time { width, unit } => time(values, count, width, per_day(unit), is_valid)
                .map(|value| (format!("{value} {}", name(unit)), "time".to_owned())),
            _ => None,
        };
        if let Some((value, data_type)) = unfit {
            return Ok(Some(Unfit::Value {
                column: layout.column_of(slot.node).to_owned(),
                value,
                data_type,
            }));
        }
    }
    Ok(None)
}

fn short(
    bytes: &[u8],
    count: usize,
    precision: u8,
    is_valid: impl Fn(usize) -> bool,
) -> Option<i128> {
    let limit = 10u128.checked_pow(precision.into())?;
    let values = bytes.as_chunks::<16>().0.iter().take(count);
    let values = values.map(|bytes| i128::from_le_bytes(*bytes));
    // Without a branch for each value: all of them fit, as a rule.
    let is_unfit = |value: i128| value.unsigned_abs() >= limit;
    if !values
        .clone()
        .fold(false, |found, value| found | is_unfit(value))
    {
        return None;
    }
    let mut rows = values.enumerate();
    let found = rows.find(|(row, value)| is_unfit(*value) && is_valid(*row));
    found.map(|(_, value)| value)
}

fn wide(
    bytes: &[u8],
    count: usize,
    precision: u8,
    is_valid: impl Fn(usize) -> bool,
) -> Option<i256> {
    let limit = i256::from_i128(10).checked_pow(precision.into())?;
    let negative = limit.wrapping_neg();
    let values = bytes.as_chunks::<32>().0.iter().take(count);
    let mut values = values.map(|bytes| i256::from_le_bytes(*bytes)).enumerate();
    let found =
        values.find(|(row, value)| (*value >= limit || *value <= negative) && is_valid(*row));
    found.map(|(_, value)| value)
}

/// Arrow's Schema.fbs: a time of day is not negative and below a day.
fn time(
    bytes: &[u8],
    count: usize,
    width: u64,
    per_day: i64,
    is_valid: impl Fn(usize) -> bool,
) -> Option<i64> {
    let find = |values: &mut dyn Iterator<Item = i64>| {
        let mut values = values.take(count).enumerate();
        let found = values.find(|(row, value)| !(0..per_day).contains(value) && is_valid(*row));
        found.map(|(_, value)| value)
    };
    match width {
        4 => {
            let values = bytes.as_chunks::<4>().0.iter();
            find(&mut values.map(|bytes| i32::from_le_bytes(*bytes).into()))
        }
        _ => {
            let values = bytes.as_chunks::<8>().0.iter();
            find(&mut values.map(|bytes| i64::from_le_bytes(*bytes)))
        }
    }
}

fn per_day(unit: TimeUnit) -> i64 {
    let seconds = 86_400;
    match unit {
        TimeUnit::Second => seconds,
        TimeUnit::Millisecond => seconds * 1_000,
        TimeUnit::Microsecond => seconds * 1_000_000,
        TimeUnit::Nanosecond => seconds * 1_000_000_000,
    }
}

fn name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    }
}
