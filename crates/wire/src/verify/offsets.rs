//! Where the values of a batch begin and end: the only numbers inside its body that lead somewhere.

use super::{Content, Slot};
use crate::WireError;

/// Checks all offsets of a batch whose buffers fit their schema; gives the length of the longest
/// text or binary in bytes.
pub(super) fn widest(
    slots: &[Slot],
    batch: &arrow_ipc::RecordBatch<'_>,
    body: &[u8],
) -> Result<u64, WireError> {
    let lengths: Vec<u64> = batch
        .nodes()
        .into_iter()
        .flatten()
        .map(|node| node.length().unsigned_abs())
        .collect();
    let places: Vec<(u64, u64)> = batch
        .buffers()
        .into_iter()
        .flatten()
        .map(|buffer| {
            (
                buffer.offset().unsigned_abs(),
                buffer.length().unsigned_abs(),
            )
        })
        .collect();
    let mut widest = 0;
    for (index, (slot, place)) in slots.iter().zip(&places).enumerate() {
        let Content::Offsets(width) = slot.content else {
            continue;
        };
        let values = lengths.get(slot.node).copied().unwrap_or(0);
        if values == 0 {
            continue;
        }
        let data = slots.get(index + 1).zip(places.get(index + 1));
        let bytes = data.filter(|(next, _)| next.content == Content::Bytes);
        // The offsets of a list point to the values of the field below it.
        let end = match bytes {
            Some((_, (_, length))) => *length,
            None => lengths.get(slot.node + 1).copied().unwrap_or(0),
        };
        let numbers = part(body, *place, (values + 1) * width)?;
        let Some(longest) = (match width {
            4 => look::<4>(numbers, end, |b| i32::from_le_bytes(b).into()),
            _ => look::<8>(numbers, end, i64::from_le_bytes),
        }) else {
            return Err(WireError::Batch(format!(
                "offsets that fall, or lead out of {end} bytes or values"
            )));
        };
        if bytes.is_some() {
            widest = widest.max(longest);
        }
    }
    Ok(widest)
}

/// The first `len` bytes of a buffer.
fn part(body: &[u8], place: (u64, u64), len: u64) -> Result<&[u8], WireError> {
    let range = || {
        let begin = usize::try_from(place.0).ok()?;
        let end = begin.checked_add(usize::try_from(len).ok()?)?;
        body.get(begin..end)
    };
    range().ok_or_else(|| WireError::Batch("offsets that are cut off".into()))
}

/// The largest difference of two neighbours. `None` where one is below the one before it, below zero
/// or above `end`.
fn look<const WIDTH: usize>(
    numbers: &[u8],
    end: u64,
    number: impl Fn([u8; WIDTH]) -> i64,
) -> Option<u64> {
    let (numbers, _) = numbers.as_chunks::<WIDTH>();
    let (first, last) = (number(*numbers.first()?), number(*numbers.last()?));
    let mut widest = 0i64;
    let mut falls = first < 0;
    for pair in numbers.windows(2) {
        let (before, next) = (number(pair[0]), number(pair[1]));
        falls |= next < before;
        widest = widest.max(next.wrapping_sub(before));
    }
    // Where none falls and the first is not below zero, the last is the largest.
    let fits = !falls && u64::try_from(last).is_ok_and(|last| last <= end);
    fits.then_some(widest.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::look;

    fn of(numbers: &[i32], end: u64) -> Option<u64> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        look::<4>(&bytes, end, |b| i32::from_le_bytes(b).into())
    }

    #[test]
    fn offsets_rise_and_stay_inside() {
        assert_eq!(of(&[0, 3, 3, 10], 10), Some(7));
        assert_eq!(of(&[2, 3], 10), Some(1));
        assert_eq!(of(&[0, 3, 2, 10], 10), None);
        assert_eq!(of(&[0, 11], 10), None);
        assert_eq!(of(&[-1, 5], 10), None);
        for wide in [
            vec![0, i64::MAX, i64::MIN, 4],
            // All differences are positive, modulo 2^64.
            vec![0, i64::MAX, i64::MIN, -1, 4],
        ] {
            let bytes: Vec<u8> = wide.iter().flat_map(|n| n.to_le_bytes()).collect();
            assert_eq!(look::<8>(&bytes, 10, i64::from_le_bytes), None, "{wide:?}");
        }
    }
}
