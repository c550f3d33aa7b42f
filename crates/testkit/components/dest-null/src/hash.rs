//! One number for a set of rows: equal whatever their order and however they were batched.
//!
//! A row's hash is made of its values in order of the columns; the hashes of all rows are added.
//! So a lost row and a doubled row change the sum, an exchanged pair of rows does not. Names and
//! types are not part of it. This tells runs apart; it is not a defence against someone who wants
//! two sets of rows to look alike.

use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::arrow_array::types::{
    BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type,
};
use rapidbyte_sdk::prelude::*;

/// The hash of a NULL, and the start of the hash of a row, a list or a string.
const NULL: u64 = 0x6e75_6c6c;
const START: u64 = 0x9e37_79b9_7f4a_7c15;

/// The sum of the hashes of all rows.
pub fn rows(batch: &RecordBatch) -> Result<u64> {
    let mut sums = vec![START; batch.num_rows()];
    for column in batch.columns() {
        fold(column.as_ref(), &mut sums)?;
    }
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}

/// Adds the values of `array` to the hashes of their rows; a NULL's hidden value has no effect.
fn fold(array: &dyn Array, sums: &mut [u64]) -> Result<()> {
    let values = values(array)?;
    for (at, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
        *sum = mix(*sum, if array.is_null(at) { NULL } else { value });
    }
    Ok(())
}

/// A hash of each value; the caller replaces the hash of a NULL.
fn values(array: &dyn Array) -> Result<Vec<u64>> {
    let rows = array.len();
    Ok(match array.data_type() {
        DataType::Null => vec![NULL; rows],
        DataType::Boolean => array.as_boolean().values().iter().map(u64::from).collect(),
        DataType::Utf8 => strings::<Utf8Type>(array),
        DataType::LargeUtf8 => strings::<LargeUtf8Type>(array),
        DataType::Binary => strings::<BinaryType>(array),
        DataType::LargeBinary => strings::<LargeBinaryType>(array),
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            (0..rows).map(|at| bytes(array.value(at))).collect()
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            items(list.values().as_ref(), list.value_offsets())?
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            items(list.values().as_ref(), list.value_offsets())?
        }
        DataType::Map(..) => {
            let map = array.as_map();
            items(map.entries(), map.value_offsets())?
        }
        DataType::Struct(_) => {
            let mut sums = vec![START; rows];
            for column in array.as_struct().columns() {
                fold(column.as_ref(), &mut sums)?;
            }
            sums
        }
        fixed => {
            let Some(width) = fixed.primitive_width() else {
                let message = format!("values of type {fixed} cannot be hashed");
                return Err(Error::schema("type_not_hashed", message));
            };
            let data = array.to_data();
            let from = data.offset() * width;
            let buffer = &data.buffers()[0][from..from + rows * width];
            match width {
                4 => numbers(buffer, |b: [u8; 4]| u32::from_le_bytes(b).into()),
                8 => numbers(buffer, u64::from_le_bytes),
                _ => buffer.chunks_exact(width).map(bytes).collect(),
            }
        }
    })
}

fn numbers<const N: usize>(buffer: &[u8], read: impl Fn([u8; N]) -> u64) -> Vec<u64> {
    buffer.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
}

fn strings<T: ByteArrayType>(array: &dyn Array) -> Vec<u64> {
    let array = array.as_bytes::<T>();
    (0..array.len())
        .map(|at| bytes(array.value(at).as_ref()))
        .collect()
}

/// Lists: their length and their items in order.
fn items<O: OffsetSizeTrait>(items: &dyn Array, offsets: &[O]) -> Result<Vec<u64>> {
    let hashes = values(items)?;
    let hash_of = |pair: &[O]| {
        let (from, to) = (pair[0].as_usize(), pair[1].as_usize());
        (from..to).fold(mix(START, (to - from) as u64), |sum, at| {
            mix(sum, if items.is_null(at) { NULL } else { hashes[at] })
        })
    };
    Ok(offsets.windows(2).map(hash_of).collect())
}

/// A hash of the length and the bytes, eight at a time.
fn bytes(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let start = mix(START, value.len() as u64);
    let sum = words
        .iter()
        .fold(start, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return sum;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(sum, u64::from_le_bytes(last))
}

/// Mixes a value into a sum: the finalizer of SplitMix64, in which each bit reaches every other.
#[inline]
fn mix(sum: u64, value: u64) -> u64 {
    let z = (sum.rotate_left(23) ^ value).wrapping_add(START);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
