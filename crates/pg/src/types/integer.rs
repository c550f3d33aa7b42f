//! Integers: big-endian, of two, four and eight bytes; `oid` has no sign.

use arrow_array::types::*;
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{INT2, INT4, INT8, OID};
use crate::decode::numbers;

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
};
