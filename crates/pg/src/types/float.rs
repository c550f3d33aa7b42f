//! Floating-point numbers, big-endian.

use arrow_array::types::*;
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{FLOAT4, FLOAT8};
use crate::decode::numbers;

pub(super) static FAMILY: Family = Family {
    types: &[
        Type {
            of: &[FLOAT4],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Float32),
                extension: None,
                decode: |_| numbers::<Float32Type, 4>(|b| Ok(f32::from_be_bytes(b))),
            }),
        },
        Type {
            of: &[FLOAT8],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Float64),
                extension: None,
                decode: |_| numbers::<Float64Type, 8>(|b| Ok(f64::from_be_bytes(b))),
            }),
        },
    ],
};
