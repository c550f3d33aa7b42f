//! `boolean`: a byte, 0 or 1.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::DataType;

use super::family::{Family, Spelling, exactly};
use crate::builtin::BOOL;
use crate::decode::{Cells, Decode, Taken};
use crate::encode::{Appended, Encode, Number, Places, Values, put_number};
use crate::error::{Failed, Problem};

pub(super) static FAMILY: Family = Family {
    types: types! {
        [BOOL] exactly(|_| Some(DataType::Boolean), |_| Box::new(Read(BooleanBufferBuilder::new(0)))), None, Spelling::Any;
    },
    column: |field| match field.data_type() {
        DataType::Boolean => Some(BOOL.column("")),
        _ => None,
    },
    into: |_, _, _, _| None,
    encode: |array| match array.data_type() {
        DataType::Boolean => Some(Values::sized(
            u8::BYTES,
            Written(array.as_boolean().values()),
        )),
        _ => None,
    },
};

/// Values so far.
struct Read(BooleanBufferBuilder);

impl Decode for Read {
    fn bytes(&self) -> usize {
        self.0.len().div_ceil(8)
    }

    fn element_bytes(&self) -> usize {
        2
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        let before = self.0.len();
        self.0.append_n(cells.len(), false);
        for (index, cell) in cells.enumerate() {
            match (cell.length, data.get(cell.at as usize)) {
                (-1, _) | (1, Some(0)) => {}
                (1, Some(1)) => self.0.set_bit(before + index, true),
                _ => return Err((index, Problem::Malformed)),
            }
        }
        Ok(())
    }

    fn take(&mut self, _: &DataType, nulls: Option<NullBuffer>) -> Taken {
        Ok(Arc::new(BooleanArray::new(self.0.finish(), nulls)))
    }
}

/// Values of a batch.
struct Written<'a>(&'a BooleanBuffer);

impl Encode for Written<'_> {
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed> {
        place(rows, self.0)
    }

    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed> {
        to.each(rows, |row, out| {
            put_number(out, u8::from(self.0.value(row)));
            Ok(())
        })
    }
}

/// A function of its own, so that the compiler knows that no byte of `bits` changes meanwhile.
#[inline(never)]
fn place(rows: &mut Places<'_>, bits: &BooleanBuffer) -> Result<(), Failed> {
    let values = rows.first()..bits.len();
    rows.put_numbers(values.map(|row| Ok(u8::from(bits.value(row)))))
}
