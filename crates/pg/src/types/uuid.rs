//! `uuid`: sixteen bytes.

use arrow_schema::DataType;
use rapidbyte_wire::types;

use super::{Family, Held, Type};
use crate::builtin::UUID;
use crate::decode::Fixed;

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[UUID],
        held: Some(Held {
            exact: true,
            data_type: |_| Some(DataType::FixedSizeBinary(16)),
            extension: Some(types::UUID),
            decode: |_| Fixed::of(16),
        }),
    }],
    // Bytes of one length, as others.
    encode: |_| None,
};
