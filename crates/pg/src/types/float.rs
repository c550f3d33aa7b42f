//! Floating-point numbers, big-endian.

use arrow_array::ArrayRef;
use arrow_array::types::*;
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{FLOAT4, FLOAT8};
use crate::decode::numbers;
use crate::encode::{self, Values, values};

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
    encode: |array| {
        Some(match array.data_type() {
            DataType::Float16 => encode::numbers(values::<Float16Type>(array), |v| Ok(v.to_f32())),
            DataType::Float32 => encode::numbers(values::<Float32Type>(array), Ok),
            DataType::Float64 => encode::numbers(values::<Float64Type>(array), Ok),
            _ => return None,
        })
    },
};

/// As `double precision`.
pub(crate) fn encode_double(array: &ArrayRef) -> Option<Values<'_>> {
    match array.data_type() {
        DataType::Float32 => Some(encode::numbers(values::<Float32Type>(array), |value| {
            Ok(f64::from(value))
        })),
        _ => super::encode(array),
    }
}
