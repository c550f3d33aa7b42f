//! `uuid`: sixteen bytes.

use arrow_schema::DataType;
use rapidbyte_wire::types as wire_types;

use super::family::{Family, Held, Spelling};
use crate::builtin::UUID;
use crate::decode::Fixed;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [UUID] UUIDS, None, Spelling::Any;
    },
    column: |field| match field.data_type() {
        DataType::FixedSizeBinary(16) if wire_types::is_uuid(field) => Some(UUID.column("")),
        _ => None,
    },
    into: |_, _, _, _| None,
    // Bytes of one length, as others.
    encode: |_| None,
};

const UUIDS: Option<Held> = Some(Held {
    exact: true,
    data_type: |_| Some(DataType::FixedSizeBinary(16)),
    extension: Some(wire_types::UUID),
    decode: |_| Fixed::of(16),
});
