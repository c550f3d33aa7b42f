//! Cuts what was read at once into batches of about as many bytes as were asked for.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use crate::portable::{convert_rows, reason};
use crate::{ColumnarError, Limits};
use rapidbyte_wire::name::shown;

/// Rows whose sizes are computed together. This keeps the table of sizes small, and also a batch of
/// few and narrow columns.
const WINDOW_ROWS: usize = 1 << 16;

/// Rows that were read and wait to be given out.
pub(crate) struct Pieces {
    /// In the order of the output.
    columns: Vec<ArrayRef>,
    rows: usize,
    /// Rows that were given out.
    taken: usize,
    /// The row of the file that `columns` begins with, from 0.
    first_row: u64,
}

impl Pieces {
    pub(crate) fn new(columns: Vec<ArrayRef>, rows: usize, first_row: u64) -> Self {
        Self {
            columns,
            rows,
            taken: 0,
            first_row,
        }
    }

    /// The next batch of `schema` from what waits, if anything does; what was given out whole is
    /// dropped.
    ///
    /// Errors: `record_too_large`, `value_does_not_fit`.
    pub(crate) fn take(
        waiting: &mut Option<Self>,
        schema: &SchemaRef,
        limits: &Limits,
    ) -> Result<Option<RecordBatch>, ColumnarError> {
        let Some(pieces) = waiting else {
            return Ok(None);
        };
        let batch = pieces.next(schema, limits)?;
        if batch.is_none() {
            *waiting = None;
        }
        Ok(batch)
    }

    /// The next batch; `None` when all rows were given out.
    fn next(
        &mut self,
        schema: &SchemaRef,
        limits: &Limits,
    ) -> Result<Option<RecordBatch>, ColumnarError> {
        let rest = self.rows - self.taken;
        if rest == 0 {
            return Ok(None);
        }
        let window = rest.min(WINDOW_ROWS);
        let slices: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|column| column.slice(self.taken, window))
            .collect();
        let added = added_bytes(&slices, schema);
        let rows = self.fitting(&slices, (window, added), limits)?;
        let first_row = self.first_row + self.taken as u64;
        self.taken += rows;
        let arrays = slices
            .iter()
            .zip(schema.fields())
            .map(|(slice, field)| {
                let part = convert_rows(&slice.slice(0, rows), field.data_type());
                let part = part.and_then(|part| compact(part, limits).map_err(|error| (0, error)));
                part.map_err(|(row, error)| {
                    let text = format!("column {}: {}", shown(field.name()), reason(&error));
                    ColumnarError::new("value_does_not_fit", text)
                        .column(field.name())
                        .row(first_row + row)
                })
            })
            .collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options);
        // A reader leaves one check to this place: NULL in a column that the file declares without NULL.
        batch.map(Some).map_err(|error| {
            ColumnarError::new("value_does_not_fit", error.to_string()).row(first_row)
        })
    }

    /// How many rows of a window make a batch: as many as fit, and one at least. `added` are the bytes that a row gets.
    fn fitting(
        &self,
        slices: &[ArrayRef],
        (window, added): (usize, u64),
        limits: &Limits,
    ) -> Result<usize, ColumnarError> {
        let mut sizes = RowSizes::of(slices, window);
        let (mut rows, mut bytes) = (0, 0_u64);
        for size in sizes.next_rows().map(|size| size + added) {
            if size > limits.max_record_bytes as u64 && rows == 0 {
                let text = format!(
                    "a record of {size} bytes, the limit is {}",
                    limits.max_record_bytes
                );
                return Err(ColumnarError::new("record_too_large", text)
                    .hint("raise resources.max_record_bytes")
                    .row(self.first_row + self.taken as u64));
            }
            bytes += size;
            if bytes > limits.batch_bytes as u64 && rows > 0 {
                break;
            }
            rows += 1;
        }
        Ok(rows)
    }
}

/// The bytes that a row has more in the wider types of `schema`.
fn added_bytes(columns: &[ArrayRef], schema: &Schema) -> u64 {
    let width = |ty: &DataType| ty.primitive_width().unwrap_or_default() as u64;
    let columns = columns.iter().zip(schema.fields());
    let added =
        columns.map(|(from, to)| width(to.data_type()).saturating_sub(width(from.data_type())));
    added.sum()
}

/// The array without what it shares with a much larger one: a batch is judged by its buffers.
fn compact(array: ArrayRef, limits: &Limits) -> Result<ArrayRef, ArrowError> {
    let held = array.get_buffer_memory_size();
    if held <= limits.batch_bytes.saturating_mul(2) {
        return Ok(array);
    }
    let data = array.to_data();
    // One huge record is most of what it shares.
    if data.get_slice_memory_size()? >= held / 2 {
        return Ok(array);
    }
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}

/// Bytes of each row as a plain array holds it.
struct RowSizes {
    /// Of every row alike.
    fixed: u64,
    rows: Vec<u64>,
}

impl RowSizes {
    fn of(columns: &[ArrayRef], rows: usize) -> Self {
        let mut sizes = Self {
            fixed: 0,
            rows: vec![0; rows],
        };
        for column in columns {
            sizes.add(column.as_ref());
        }
        sizes
    }

    fn next_rows(&mut self) -> impl Iterator<Item = u64> + '_ {
        let fixed = self.fixed;
        // A row without columns counts as one byte: a batch without columns must end too.
        self.rows.iter().map(move |row| (row + fixed).max(1))
    }

    fn add(&mut self, array: &dyn Array) {
        match array.data_type() {
            DataType::Utf8View => self.add_lengths(array.as_string_view().lengths()),
            DataType::BinaryView => self.add_lengths(array.as_binary_view().lengths()),
            DataType::Utf8 => self.add_offsets(array.as_string::<i32>().value_offsets()),
            DataType::LargeUtf8 => self.add_offsets(array.as_string::<i64>().value_offsets()),
            DataType::Binary => self.add_offsets(array.as_binary::<i32>().value_offsets()),
            DataType::LargeBinary => self.add_offsets(array.as_binary::<i64>().value_offsets()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                self.add_items(list.values(), list.value_offsets());
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                self.add_items(list.values(), list.value_offsets());
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let entries: &dyn Array = map.entries();
                self.add_items(entries, map.value_offsets());
            }
            DataType::FixedSizeList(_, n) => {
                let list = array.as_fixed_size_list();
                let n = usize::try_from(*n).unwrap_or(0);
                let offsets: Vec<i64> = (0..=list.len()).map(|row| (row * n) as i64).collect();
                self.add_items(list.values(), &offsets);
            }
            DataType::Struct(_) => {
                for column in array.as_struct().columns() {
                    self.add(column.as_ref());
                }
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = dictionary.values();
                let mut sizes = RowSizes::of(std::slice::from_ref(values), values.len());
                let sizes: Vec<u64> = sizes.next_rows().collect();
                let keys = dictionary.normalized_keys();
                for (row, key) in self.rows.iter_mut().zip(keys) {
                    *row += sizes.get(key).copied().unwrap_or(0);
                }
            }
            other => self.fixed += width(other),
        }
    }

    /// Values with an offset of four bytes each.
    fn add_lengths(&mut self, lengths: impl Iterator<Item = u32>) {
        self.fixed += 4;
        for (row, length) in self.rows.iter_mut().zip(lengths) {
            *row += u64::from(length);
        }
    }

    fn add_offsets<O: Into<i64> + Copy>(&mut self, offsets: &[O]) {
        self.fixed += size_of::<O>() as u64;
        for (row, pair) in self.rows.iter_mut().zip(offsets.windows(2)) {
            *row += (pair[1].into() - pair[0].into()).unsigned_abs();
        }
    }

    /// Lists of items: row `i` has the items from offset `i` to offset `i + 1`.
    fn add_items<O: Into<i64> + Copy>(&mut self, items: &dyn Array, offsets: &[O]) {
        self.fixed += size_of::<O>() as u64;
        let place = |offset: &O| usize::try_from((*offset).into()).unwrap_or(0);
        let (first, last) = match (offsets.first(), offsets.last()) {
            (Some(first), Some(last)) => (place(first), place(last).min(items.len())),
            _ => return,
        };
        let count = last.saturating_sub(first);
        let mut sizes = RowSizes::of(&[items.slice(first, count)], count);
        let mut left = sizes.next_rows();
        for (row, pair) in self.rows.iter_mut().zip(offsets.windows(2)) {
            let items = place(&pair[1]).saturating_sub(place(&pair[0]));
            *row += left.by_ref().take(items).sum::<u64>();
        }
    }
}

/// Bytes of a value of a type whose values are all of one size; a bit counts as a byte.
pub(crate) fn width(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(n) => u64::try_from(*n).unwrap_or(0),
        DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}
