//! Whether rows come in the order of a cursor: no row after a checkpoint sorts below a row before it.
//! Between two checkpoints any order is as good.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrowPrimitiveType, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use rapidbyte_wire::types::type_name;

/// The values of one column of a read, so far.
#[derive(Debug, Default)]
pub(crate) struct Order {
    rows: u64,
    /// The greatest value in front of the newest checkpoint.
    acknowledged: Option<i128>,
    greatest: Option<i128>,
    /// The first row that goes back, in words.
    back: Option<String>,
    /// The type of a column whose order the source alone knows, such as a text's.
    unknown: Option<String>,
}

impl Order {
    /// Looks at the rows of a batch.
    pub fn add(&mut self, batch: &RecordBatch, column: &str) {
        let Some((at, field)) = batch.schema_ref().column_with_name(column) else {
            return;
        };
        match numbers(batch.column(at).as_ref()) {
            Some(values) => values.into_iter().for_each(|value| self.row(value, column)),
            None => self.unknown = Some(type_name(field)),
        }
    }

    fn row(&mut self, value: Option<i128>, column: &str) {
        self.rows += 1;
        let Some(value) = value else { return };
        if let Some(before) = self.acknowledged.filter(|before| value < *before)
            && self.back.is_none()
        {
            self.back = Some(format!(
                "row {} has {value} in {column}, and a checkpoint before it stands behind {before}",
                self.rows
            ));
        }
        self.greatest = self.greatest.max(Some(value));
    }

    /// All rows so far are in front of a checkpoint.
    pub fn checkpoint(&mut self) {
        self.acknowledged = self.greatest;
    }

    /// The greatest value so far.
    pub fn greatest(&self) -> Option<i128> {
        self.greatest
    }

    /// The first value that goes back, in words.
    pub fn back(&self) -> Option<&str> {
        self.back.as_deref()
    }

    /// The type that could not be compared.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// The values of a column of whole numbers, as anybody writes them.
pub(crate) fn integers(array: &dyn Array) -> Option<Vec<Option<i128>>> {
    array
        .data_type()
        .is_integer()
        .then(|| numbers(array))
        .flatten()
}

/// Values that have one order everywhere, as whole numbers; none of another type.
fn numbers(array: &dyn Array) -> Option<Vec<Option<i128>>> {
    fn all<T: ArrowPrimitiveType>(array: &dyn Array) -> Vec<Option<i128>>
    where
        T::Native: Into<i128>,
    {
        let values = array.as_primitive::<T>().iter();
        values.map(|value| value.map(Into::into)).collect()
    }
    Some(match array.data_type() {
        DataType::Int8 => all::<Int8Type>(array),
        DataType::Int16 => all::<Int16Type>(array),
        DataType::Int32 => all::<Int32Type>(array),
        DataType::Int64 => all::<Int64Type>(array),
        DataType::UInt8 => all::<UInt8Type>(array),
        DataType::UInt16 => all::<UInt16Type>(array),
        DataType::UInt32 => all::<UInt32Type>(array),
        DataType::UInt64 => all::<UInt64Type>(array),
        DataType::Decimal128(..) => all::<Decimal128Type>(array),
        DataType::Date32 => all::<Date32Type>(array),
        DataType::Timestamp(TimeUnit::Second, _) => all::<TimestampSecondType>(array),
        DataType::Timestamp(TimeUnit::Millisecond, _) => all::<TimestampMillisecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => all::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => all::<TimestampNanosecondType>(array),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(numbers: &[Option<i64>]) -> RecordBatch {
        let n: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("n", n, true)]).unwrap()
    }

    #[test]
    fn a_value_goes_back_only_behind_a_checkpoint() {
        let mut order = Order::default();
        order.add(&batch(&[Some(5), Some(2), None]), "n");
        order.add(&batch(&[Some(1)]), "n");
        order.checkpoint();
        order.add(&batch(&[None, Some(5), Some(7)]), "n");
        assert_eq!(order.back(), None);
        order.checkpoint();
        order.add(&batch(&[Some(6), Some(3)]), "n");
        let back = order.back().expect("it goes back");
        assert!(
            back.starts_with("row 8 has 6 in n") && back.ends_with('7'),
            "{back}"
        );
    }

    #[test]
    fn texts_have_the_order_of_their_source() {
        let mut order = Order::default();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a"]));
        let texts = RecordBatch::try_from_iter([("t", texts)]).unwrap();
        order.add(&texts, "t");
        assert_eq!((order.unknown(), order.back()), (Some("string"), None));
    }
}
