//! `bytea`: the bytes.

use arrow_array::cast::AsArray;
use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::BYTEA;
use crate::decode::Bytes;
use crate::encode::{Bytes as Written, fixed};

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[BYTEA],
        held: Some(Held {
            exact: true,
            data_type: |_| Some(DataType::Binary),
            extension: None,
            decode: |_| Bytes::of(None),
        }),
    }],
    encode: |array| match array.data_type() {
        DataType::Binary | DataType::LargeBinary => Written::of(array, None).map(Written::values),
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).ok()?;
            Some(fixed(width, array.as_fixed_size_binary().value_data()))
        }
        _ => None,
    },
};
