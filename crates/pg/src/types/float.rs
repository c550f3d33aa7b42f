//! Floating-point numbers, big-endian.

use arrow_array::types::*;
use arrow_schema::DataType;

use super::family::{Family, Spelling, exactly};
use crate::builtin::{FLOAT4, FLOAT8};
use crate::decision::refused;
use crate::decode::numbers;
use crate::encode::{self, values};
use crate::op::Op;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [FLOAT4] exactly(|_| Some(DataType::Float32), |_| numbers::<Float32Type, 4>(|b| Ok(f32::from_be_bytes(b)))), None, DECIMAL;
        [FLOAT8] exactly(|_| Some(DataType::Float64), |_| numbers::<Float64Type, 8>(|b| Ok(f64::from_be_bytes(b)))), None, DECIMAL;
    },
    column: |field| match field.data_type() {
        DataType::Float16 | DataType::Float32 => Some(FLOAT4.column("")),
        DataType::Float64 => Some(FLOAT8.column("")),
        _ => None,
    },
    into: |field, _, to, _| {
        Some(match (field.data_type(), to) {
            (DataType::Float16 | DataType::Float32, FLOAT4) => Ok((Op::Plain, None)),
            (DataType::Float32, FLOAT8) => {
                Ok((Op::Float8, Some(format!("{} holds more", to.name))))
            }
            (DataType::Float64, FLOAT8) => Ok((Op::Float8, None)),
            (DataType::Float64, FLOAT4) => refused("real holds fewer digits"),
            _ => return None,
        })
    },
    encode: |array| {
        Some(match array.data_type() {
            DataType::Float16 => encode::numbers(values::<Float16Type>(array), |v| Ok(v.to_f32())),
            DataType::Float32 => encode::numbers(values::<Float32Type>(array), Ok),
            DataType::Float64 => encode::numbers(values::<Float64Type>(array), Ok),
            _ => return None,
        })
    },
};

/// Any decimal number equal to the value's shortest form.
const DECIMAL: Spelling = Spelling::Also(|text, value| {
    format!(
        r"CASE WHEN {text} ~* '^\s*[+-]?(nan|inf|infinity)\s*$' THEN true ELSE {value}::pg_catalog.text::pg_catalog.numeric = {text}::pg_catalog.numeric END"
    )
});
