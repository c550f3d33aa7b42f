//! Integers: big-endian, of two, four and eight bytes; `oid` has no sign.

use arrow_array::ArrayRef;
use arrow_array::types::*;
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{INT2, INT4, INT8, OID};
use crate::decode::numbers;
use crate::encode::{self, Values, aside, put_number, values};
use crate::error::Problem;

pub(super) static FAMILY: Family = Family {
    types: &[
        Type {
            of: &[INT2],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Int16),
                extension: None,
                decode: |_| numbers::<Int16Type, 2>(|b| Ok(i16::from_be_bytes(b))),
            }),
        },
        Type {
            of: &[INT4],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Int32),
                extension: None,
                decode: |_| numbers::<Int32Type, 4>(|b| Ok(i32::from_be_bytes(b))),
            }),
        },
        Type {
            of: &[INT8],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Int64),
                extension: None,
                decode: |_| numbers::<Int64Type, 8>(|b| Ok(i64::from_be_bytes(b))),
            }),
        },
        Type {
            of: &[OID],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::UInt32),
                extension: None,
                decode: |_| numbers::<UInt32Type, 4>(|b| Ok(u32::from_be_bytes(b))),
            }),
        },
    ],
    encode: |array| match array.data_type() {
        DataType::UInt32 => Some(encode::numbers(values::<UInt32Type>(array), Ok)),
        _ => None,
    },
};

/// Integers of any width in one of `width` bytes that is wide enough.
pub(crate) fn encode_as(array: &ArrayRef, width: u8) -> Option<Values<'_>> {
    Some(match (array.data_type(), width) {
        (DataType::Int16, 2) => encode::numbers(values::<Int16Type>(array), Ok),
        (DataType::Int32, 4) => encode::numbers(values::<Int32Type>(array), Ok),
        (DataType::Int64, 8) => encode::numbers(values::<Int64Type>(array), Ok),
        _ => {
            let ints = Ints::of(array)?;
            aside(move |row, out| put_int(ints.get(row), width, out))
        }
    })
}

fn put_int(value: i128, width: u8, out: &mut Vec<u8>) -> Result<(), Problem> {
    let out_of_range = |_| Problem::OutOfRange;
    match width {
        2 => put_number(out, i16::try_from(value).map_err(out_of_range)?),
        4 => put_number(out, i32::try_from(value).map_err(out_of_range)?),
        _ => put_number(out, i64::try_from(value).map_err(out_of_range)?),
    }
    Ok(())
}

/// Values of any width and sign.
pub(crate) enum Ints<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl<'a> Ints<'a> {
    pub(crate) fn of(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Int8 => Self::I8(values::<Int8Type>(array)),
            DataType::Int16 => Self::I16(values::<Int16Type>(array)),
            DataType::Int32 => Self::I32(values::<Int32Type>(array)),
            DataType::Int64 => Self::I64(values::<Int64Type>(array)),
            DataType::UInt8 => Self::U8(values::<UInt8Type>(array)),
            DataType::UInt16 => Self::U16(values::<UInt16Type>(array)),
            DataType::UInt32 => Self::U32(values::<UInt32Type>(array)),
            DataType::UInt64 => Self::U64(values::<UInt64Type>(array)),
            _ => return None,
        })
    }

    pub(crate) fn get(&self, row: usize) -> i128 {
        match self {
            Self::I8(values) => values[row].into(),
            Self::I16(values) => values[row].into(),
            Self::I32(values) => values[row].into(),
            Self::I64(values) => values[row].into(),
            Self::U8(values) => values[row].into(),
            Self::U16(values) => values[row].into(),
            Self::U32(values) => values[row].into(),
            Self::U64(values) => values[row].into(),
        }
    }
}
