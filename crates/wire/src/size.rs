//! Numbers of bytes: what a batch takes by itself, and how a person writes a size.

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// Bytes of the batch's own rows.
///
/// Arrow's `get_array_memory_size` counts whole buffers. The columns of a decoded message share
/// one buffer, and it counts that buffer once for each of them.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns
        .map(|column| data_bytes(&column.to_data()))
        .fold(0, usize::saturating_add)
}

/// Splits a batch into its first rows, which take at most `max_bytes`, and the rest, if there is one. A first row that is
/// larger stands alone.
///
/// # Errors
/// The bytes of a row that stands alone and is larger than `max_row_bytes`.
pub fn front(
    batch: &RecordBatch,
    max_bytes: usize,
    max_row_bytes: u64,
) -> Result<(RecordBatch, Option<RecordBatch>), usize> {
    let all = batch.num_rows();
    // Halves the rows until they fit: they may be of very different sizes.
    let mut rows = all;
    while rows > 1 && batch_bytes(&batch.slice(0, rows)) > max_bytes {
        rows /= 2;
    }
    let front = batch.slice(0, rows);
    if rows == 1 {
        let bytes = batch_bytes(&front);
        if bytes as u64 > max_row_bytes {
            return Err(bytes);
        }
    }
    let rest = (rows < all).then(|| batch.slice(rows, all - rows));
    Ok((front, rest))
}

/// Reads a size: `4096`, `64kb`, `1 MiB`. All units are powers of 1024. A size beyond 64 bits is the largest number.
///
/// ```
/// use rapidbyte_wire::size::parse;
///
/// assert_eq!((parse("64kb"), parse("1 MiB")), (Some(65_536), Some(1 << 20)));
/// assert_eq!((parse("1.5mb"), parse("mb"), parse("1tb")), (None, None, None));
/// ```
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.parse::<u64>().unwrap_or(u64::MAX);
    Some(number.saturating_mul(1 << shift))
}

fn data_bytes(data: &ArrayData) -> usize {
    let items = match data.data_type() {
        DataType::List(_) | DataType::Map(..) => items::<i32>(data),
        DataType::LargeList(_) => items::<i64>(data),
        DataType::FixedSizeList(_, n) => {
            let n = usize::try_from(*n).unwrap_or(0);
            Some((data.offset() * n, data.len() * n))
        }
        DataType::Struct(_) => Some((0, data.len())),
        // Without children its slice is known to Arrow.
        _ => {
            return data
                .get_slice_memory_size()
                .unwrap_or_else(|_| data.get_buffer_memory_size());
        }
    };
    let (from, length) = items.unwrap_or_default();
    let own = match data.data_type() {
        DataType::List(_) | DataType::Map(..) => (data.len() + 1) * size_of::<i32>(),
        DataType::LargeList(_) => (data.len() + 1) * size_of::<i64>(),
        _ => 0,
    };
    let nulls = data.nulls().map_or(0, |_| data.len().div_ceil(8));
    let children = data.child_data().iter().map(|child| {
        let length = length.min(child.len().saturating_sub(from));
        data_bytes(&child.slice(from.min(child.len()), length))
    });
    children.fold(own + nulls, usize::saturating_add)
}

/// Where the items of a list's rows begin, and how many there are.
fn items<O: arrow_buffer::ArrowNativeType>(data: &ArrayData) -> Option<(usize, usize)> {
    let offsets = data.buffers().first()?.typed_data::<O>();
    let first = offsets.get(data.offset())?.as_usize();
    let last = offsets.get(data.offset() + data.len())?.as_usize();
    Some((first, last.saturating_sub(first)))
}
