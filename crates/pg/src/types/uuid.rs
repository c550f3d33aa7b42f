//! `uuid`: sixteen bytes.

use arrow_schema::DataType;
use rapidbyte_wire::types;

use super::{Family, Held, Type};
use crate::builtin::UUID;
use crate::cast::Spelling;
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
        modifier: None,
        spelling: Spelling::Any,
    }],
    column: |field| match field.data_type() {
        DataType::FixedSizeBinary(16) if types::is_uuid(field) => Some(UUID.column("")),
        _ => None,
    },
    into: |_, _, _, _| None,
    // Bytes of one length, as others.
    encode: |_| None,
};
