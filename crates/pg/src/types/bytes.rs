//! `bytea`: the bytes.

use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::BYTEA;
use crate::decode::Bytes;

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
};
