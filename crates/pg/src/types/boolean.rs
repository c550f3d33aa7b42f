//! `boolean`: a byte, 0 or 1.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::BOOL;
use crate::decode::{Cells, Decode};
use crate::error::{Failed, Problem};

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[BOOL],
        held: Some(Held {
            exact: true,
            data_type: |_| Some(DataType::Boolean),
            extension: None,
            decode: |_| Box::new(Bits(BooleanBufferBuilder::new(0))),
        }),
    }],
};

/// Values so far.
struct Bits(BooleanBufferBuilder);

impl Decode for Bits {
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

    fn take(&mut self, _: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, Failed> {
        Ok(Arc::new(BooleanArray::new(self.0.finish(), nulls)))
    }
}
