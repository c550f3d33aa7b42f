//! One number for a set of rows: equal whatever their order and however they were batched.
//!
//! The hash of a row covers its values in the order of the columns, each with whether it is NULL. The hashes of all
//! rows are added. A lost, doubled or changed row changes the sum; two rows that change places do not. It finds honest
//! mistakes. It does not defend against somebody who looks for two sets with one sum.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;

/// Rows that were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digest {
    pub rows: u64,
    sum: u64,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = rapidbyte_wire::counted(self.rows, "row");
        write!(f, "{rows} (values {:04x})", self.sum & 0xffff)
    }
}

impl Digest {
    /// Adds the rows of a batch.
    ///
    /// # Errors
    /// A type that does not cross the boundary.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        self.add_columns(batch, batch.columns().iter().map(AsRef::as_ref))
    }

    fn add_columns<'a>(
        &mut self,
        batch: &RecordBatch,
        columns: impl Iterator<Item = &'a dyn Array>,
    ) -> Result<(), String> {
        for hash in hashes(batch.num_rows(), columns)? {
            self.add_row(hash);
        }
        Ok(())
    }

    /// Adds one row, by its hash.
    pub fn add_row(&mut self, hash: u64) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash);
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// A hash of each row, over its values in some columns.
///
/// # Errors
/// A type that does not cross the boundary.
pub(crate) fn hashes<'a>(
    rows: usize,
    columns: impl Iterator<Item = &'a dyn Array>,
) -> Result<Vec<u64>, String> {
    let mut rows = vec![DefaultHasher::new(); rows];
    for column in columns {
        fold(column, &mut rows)?;
    }
    Ok(rows.iter().map(Hasher::finish).collect())
}

/// Adds each value of `array` to the hash of its row; the value below a NULL has no effect.
fn fold(array: &dyn Array, rows: &mut [DefaultHasher]) -> Result<(), String> {
    match array.data_type() {
        DataType::Null => each(array, rows, |_, _| {}),
        DataType::Boolean => each(array, rows, |at, row| {
            array.as_boolean().value(at).hash(row);
        }),
        DataType::Utf8 => bytes::<Utf8Type>(array, rows),
        DataType::LargeUtf8 => bytes::<LargeUtf8Type>(array, rows),
        DataType::Binary => bytes::<BinaryType>(array, rows),
        DataType::LargeBinary => bytes::<LargeBinaryType>(array, rows),
        DataType::FixedSizeBinary(_) => each(array, rows, |at, row| {
            array.as_fixed_size_binary().value(at).hash(row);
        }),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            return items(array, list.values(), list.value_offsets(), rows);
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            return items(array, list.values(), list.value_offsets(), rows);
        }
        DataType::Map(..) => {
            let map = array.as_map();
            return items(array, map.entries(), map.value_offsets(), rows);
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let width = list.value_length();
            let ends = i32::try_from(list.len()).map_err(|error| error.to_string())?;
            let offsets: Vec<i32> = (0..=ends).map(|at| at * width).collect();
            return items(array, list.values(), &offsets, rows);
        }
        DataType::Struct(_) => {
            let mut inner = vec![DefaultHasher::new(); array.len()];
            for column in array.as_struct().columns() {
                fold(column.as_ref(), &mut inner)?;
            }
            each(array, rows, |at, row| inner[at].finish().hash(row));
        }
        fixed => {
            let Some(width) = fixed.primitive_width() else {
                return Err(format!("values of type {fixed} cannot be compared"));
            };
            let data = array.to_data();
            let values = data.buffers()[0].as_slice();
            each(array, rows, |at, row| {
                let from = (data.offset() + at) * width;
                values[from..from + width].hash(row);
            });
        }
    }
    Ok(())
}

/// Adds whether a value is there, and the value.
fn each(array: &dyn Array, rows: &mut [DefaultHasher], add: impl Fn(usize, &mut DefaultHasher)) {
    let nulls = array.logical_nulls();
    for (at, row) in rows.iter_mut().enumerate() {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
        is_null.hash(row);
        if !is_null {
            add(at, row);
        }
    }
}

fn bytes<T: ByteArrayType>(array: &dyn Array, rows: &mut [DefaultHasher]) {
    let values = array.as_bytes::<T>();
    each(array, rows, |at, row| {
        let value: &[u8] = values.value(at).as_ref();
        value.hash(row);
    });
}

/// Lists: their length and their items in order.
fn items<O: OffsetSizeTrait>(
    list: &dyn Array,
    items: &dyn Array,
    offsets: &[O],
    rows: &mut [DefaultHasher],
) -> Result<(), String> {
    let mut hashes = vec![DefaultHasher::new(); items.len()];
    fold(items, &mut hashes)?;
    each(list, rows, |at, row| {
        let (from, to) = (offsets[at].as_usize(), offsets[at + 1].as_usize());
        (to - from).hash(row);
        hashes[from..to]
            .iter()
            .for_each(|item| item.finish().hash(row));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use crate::values;

    fn batch(numbers: &[Option<i64>], texts: &[&str]) -> RecordBatch {
        let n: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        let t: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("n", n, true), ("t", t, true)]).unwrap()
    }

    fn of(batches: &[&RecordBatch]) -> Digest {
        let mut digest = Digest::default();
        batches.iter().for_each(|batch| digest.add(batch).unwrap());
        digest
    }

    #[test]
    fn order_and_batches_do_not_count_and_everything_else_does() {
        let whole = batch(&[Some(1), None, Some(3)], &["a", "b", "c"]);
        let turned = batch(&[Some(3), Some(1), None], &["c", "a", "b"]);
        assert_eq!(of(&[&whole]), of(&[&turned]));
        assert_eq!(of(&[&whole]), of(&[&whole.slice(0, 1), &whole.slice(1, 2)]));
        for other in [
            batch(&[Some(1), Some(0), Some(3)], &["a", "b", "c"]),
            batch(&[None, Some(1), Some(3)], &["a", "b", "c"]),
            batch(&[Some(1), None, Some(3)], &["a", "bc", ""]),
        ] {
            assert_ne!(of(&[&whole]), of(&[&other]));
        }
        let doubled = of(&[&whole, &whole.slice(2, 1)]);
        assert_eq!(doubled.rows, 4);
        assert_ne!(doubled, of(&[&whole]));
    }

    #[test]
    fn every_type_of_the_contract_has_a_digest_that_sees_each_row() {
        for name in values::TYPES {
            let field = rapidbyte_wire::types::parse_field("c", name, true).unwrap();
            let array = values::array(&field, 0..6).unwrap();
            let batch = RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap();
            let rows: Vec<Digest> = (0..6).map(|at| of(&[&batch.slice(at, 1)])).collect();
            let sum = rows
                .iter()
                .fold(Digest::default(), |sum, row| sum.plus(*row));
            assert_eq!(of(&[&batch]), sum, "{name}");
            assert_ne!(rows[0], rows[1], "{name}");
        }
    }
}
