//! The indices of a page into a dictionary of values of one length, checked before they are decoded:
//! the decoder takes them as they are, and an index beyond its dictionary would end the component.
//!
//! See "Run Length Encoding / Bit-Packing Hybrid" and "Data Pages" of the Parquet format.

use parquet::basic::Encoding;
use parquet::column::page::Page;

/// The highest levels of a column: they tell how its pages are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    pub max_definition: i16,
    pub max_repetition: i16,
}

/// Why a page of values cannot be decoded, with a dictionary of `entries` before it, if any.
pub(super) fn refusal(page: &Page, levels: Levels, entries: Option<u32>) -> Option<&'static str> {
    let encoding = page.encoding();
    if !page.is_data_page()
        || !matches!(
            encoding,
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY
        )
    {
        return None;
    }
    let Some(entries) = entries else {
        return Some("indices without a dictionary");
    };
    let Some((indices, values)) = indices(page, levels) else {
        return Some("levels beyond its page");
    };
    let (width, indices) = indices.split_first()?;
    if *width > 32 {
        return Some("indices of more than 32 bits");
    }
    let mut largest = None;
    runs(indices, u32::from(*width), values, &mut |index, _| {
        largest = largest.max(Some(index));
    });
    (largest >= Some(entries)).then_some("an index beyond its dictionary")
}

/// The bytes of the indices, and how many there are at most: those that are not NULL.
fn indices(page: &Page, levels: Levels) -> Option<(&[u8], usize)> {
    match page {
        Page::DataPageV2 {
            buf,
            num_values,
            num_nulls,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let at = def_levels_byte_len.checked_add(*rep_levels_byte_len)?;
            let values = num_values.checked_sub(*num_nulls)?;
            Some((buf.get(at as usize..)?, values as usize))
        }
        Page::DataPage {
            buf,
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let all = *num_values as usize;
            let mut rest = &buf[..];
            if levels.max_repetition > 0 {
                let max = levels.max_repetition;
                rest = split_levels(rest, *rep_level_encoding, max, all)?.1;
            }
            if levels.max_definition == 0 {
                return Some((rest, all));
            }
            let max = levels.max_definition;
            let (definitions, rest) = split_levels(rest, *def_level_encoding, max, all)?;
            if *def_level_encoding != Encoding::RLE {
                return Some((rest, all));
            }
            let mut present = 0;
            runs(definitions, width_of(max), all, &mut |level, count| {
                if i64::from(level) == i64::from(max) {
                    present += count;
                }
            });
            Some((rest, present))
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// The levels at the beginning, without their length, and what follows.
fn split_levels(
    bytes: &[u8],
    encoding: Encoding,
    max: i16,
    values: usize,
) -> Option<(&[u8], &[u8])> {
    if encoding != Encoding::RLE {
        // Bit-packed, as in files before 2013: without a length.
        let len = values.checked_mul(width_of(max) as usize)?.div_ceil(8);
        return bytes.split_at_checked(len);
    }
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

/// Bits of a level from 0 to `max`.
fn width_of(max: i16) -> u32 {
    i16::BITS - max.leading_zeros()
}

/// Calls back with each value and how often it follows itself, for `limit` values at most. Ends
/// where the bytes end: the decoder says then that values are missing.
fn runs(bytes: &[u8], width: u32, limit: usize, each: &mut dyn FnMut(u32, usize)) {
    let mut left = limit;
    let mut rest = bytes;
    while left > 0 {
        let Some(header) = take_varint(&mut rest) else {
            return;
        };
        // More than `limit` is no more.
        let count = usize::try_from(header >> 1).unwrap_or(usize::MAX);
        if header & 1 == 0 {
            let Some((value, after)) = rest.split_at_checked(width.div_ceil(8) as usize) else {
                return;
            };
            rest = after;
            let value = value
                .iter()
                .rev()
                .fold(0, |v, byte| v << 8 | u32::from(*byte));
            let count = count.min(left);
            left -= count;
            if count > 0 {
                each(value, count);
            }
            continue;
        }
        let len = count.saturating_mul(width as usize).min(rest.len());
        let (packed, after) = rest.split_at(len);
        rest = after;
        let there = match width {
            0 => left,
            width => packed.len() * 8 / width as usize,
        };
        let count = count.saturating_mul(8).min(left).min(there);
        for at in 0..count {
            each(unpacked(packed, at * width as usize, width), 1);
        }
        left -= count;
    }
}

/// The value of `width` bits at a bit, both inside the bytes.
fn unpacked(packed: &[u8], bit: usize, width: u32) -> u32 {
    let mut window = [0; 8];
    let from = bit / 8;
    let len = packed.len().saturating_sub(from).min(8);
    window[..len].copy_from_slice(&packed[from..from + len]);
    let shifted = u64::from_le_bytes(window) >> (bit % 8);
    // At most 32 bits.
    (shifted & ((1 << width) - 1)) as u32
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    // Five bytes hold 32 bits.
    for shift in 0..5 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], width: u32, limit: usize) -> Vec<u32> {
        let mut found = Vec::new();
        runs(bytes, width, limit, &mut |value, count| {
            found.extend(std::iter::repeat_n(value, count));
        });
        found
    }

    #[test]
    fn runs_are_those_of_the_format() {
        // The example of the document: 0 to 7 in three bits each.
        let packed = [0x03, 0x88, 0xc6, 0xfa];
        assert_eq!(all(&packed, 3, 99), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(all(&packed, 3, 3), [0, 1, 2]);
        // 100 times 300, then 17 bits.
        let long = [0xc8, 0x01, 0x2c, 0x01];
        assert_eq!(all(&long, 9, 1000), [300; 100]);
        assert_eq!(all(&[0x03, 0xff, 0xff, 0x01], 17, 9), [0x1_ffff]);
        assert_eq!(all(&[0x08], 0, 9), [0; 4]);
        for broken in [&[][..], &[0x80], &[0xff; 6], &[0x04], &[0x00, 0x00]] {
            assert!(all(broken, 8, 9).len() <= 9);
        }
    }
}
