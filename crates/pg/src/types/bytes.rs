//! `bytea`: the bytes.

use arrow_array::cast::AsArray;
use arrow_schema::DataType;

use super::family::{Family, Spelling, exactly};
use crate::builtin::BYTEA;
use crate::decode::Bytes;
use crate::encode::{Bytes as Written, fixed};

pub(super) static FAMILY: Family = Family {
    types: types! {
        [BYTEA] exactly(|_| Some(DataType::Binary), |_| Bytes::of(None)), None, Spelling::Any;
    },
    column: |field| match field.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            Some(BYTEA.column(""))
        }
        _ => None,
    },
    into: |_, _, _, _| None,
    encode: |array| match array.data_type() {
        DataType::Binary | DataType::LargeBinary => Written::of(array, None).map(Written::values),
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).ok()?;
            Some(fixed(width, array.as_fixed_size_binary().value_data()))
        }
        _ => None,
    },
};
