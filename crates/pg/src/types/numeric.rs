//! `numeric` and decimals.

mod digits;

use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::integer::Ints;
use super::{Family, Held, Type};
use crate::builtin::{NUMERIC, numeric_typmod};
use crate::decode::{Cells, Decode, primitive};
use crate::encode::{Values, aside, values};
use crate::error::Failed;
use digits::Wide;

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[NUMERIC],
        held: Some(Held {
            exact: false,
            data_type: decimal,
            extension: None,
            decode: |data_type| match *data_type {
                DataType::Decimal256(p, s) => Decimals::<Decimal256Type>::of(p, s),
                DataType::Decimal128(p, s) => Decimals::<Decimal128Type>::of(p, s),
                _ => Decimals::<Decimal128Type>::of(0, 0),
            },
        }),
    }],
    encode: |array| match array.data_type() {
        DataType::Decimal128(_, scale) => {
            let (values, scale) = (values::<Decimal128Type>(array), *scale);
            Some(aside(move |row, out| {
                digits::encode_i128(values[row], scale, out);
                Ok(())
            }))
        }
        DataType::Decimal256(_, scale) => {
            let (values, scale) = (values::<Decimal256Type>(array), *scale);
            Some(aside(move |row, out| {
                digits::encode_i256(values[row], scale, out);
                Ok(())
            }))
        }
        _ => None,
    },
};

/// Integers of any width.
pub(crate) fn encode_integers(array: &ArrayRef) -> Option<Values<'_>> {
    let ints = Ints::of(array)?;
    Some(aside(move |row, out| {
        digits::encode_i128(ints.get(row), 0, out);
        Ok(())
    }))
}

fn decimal(typmod: i32) -> Option<DataType> {
    let (precision, scale) = numeric_typmod(typmod)?;
    let digits = u8::try_from(precision)
        .ok()
        .filter(|p| (1..=76).contains(p))?;
    let scale = i8::try_from(scale).ok()?;
    if scale < 0 || i16::from(scale) > i16::from(digits) {
        return None;
    }
    Some(if digits <= 38 {
        DataType::Decimal128(digits, scale)
    } else {
        DataType::Decimal256(digits, scale)
    })
}

struct Decimals<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    scale: i32,
    /// 10^precision.
    limit: T::Native,
}

impl<T: ArrowPrimitiveType> Decimals<T>
where
    T::Native: Wide,
{
    fn of(precision: u8, scale: i8) -> Box<dyn Decode> {
        Box::new(Self {
            values: Vec::new(),
            scale: i32::from(scale),
            limit: Wide::power(u32::from(precision)).expect("a decimal holds all its digits"),
        })
    }
}

impl<T: ArrowPrimitiveType> Decode for Decimals<T>
where
    T::Native: Wide,
{
    fn bytes(&self) -> usize {
        self.values.len() * self.element_bytes()
    }

    fn element_bytes(&self) -> usize {
        size_of::<T::Native>()
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        self.values.reserve(cells.len());
        for (index, cell) in cells.enumerate() {
            self.values.push(if cell.length < 0 {
                Wide::from_small(0)
            } else {
                digits::decode(cell.bytes(data), self.scale, self.limit)
                    .map_err(|problem| (index, problem))?
            });
        }
        Ok(())
    }

    fn take(
        &mut self,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, Failed> {
        Ok(primitive::<T>(&mut self.values, nulls, data_type))
    }

    fn shown(&self, value: &[u8]) -> Option<String> {
        digits::shown(value)
    }
}
