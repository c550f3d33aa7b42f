//! Documents: `json` keeps the text, `jsonb` has a version byte before it (`jsonb_recv`).

use arrow_schema::DataType;
use rapidbyte_wire::types;

use super::{Family, Held, Type};
use crate::builtin::{JSON, JSONB};
use crate::decode::Bytes;

/// The only version of jsonb's binary form.
pub(crate) const JSONB_VERSION: u8 = 1;

pub(super) static FAMILY: Family = Family {
    types: &[
        Type {
            of: &[JSON],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Utf8),
                extension: Some(types::JSON),
                decode: |_| Bytes::of(None),
            }),
        },
        Type {
            of: &[JSONB],
            held: Some(Held {
                exact: true,
                data_type: |_| Some(DataType::Utf8),
                extension: Some(types::JSON),
                decode: |_| Bytes::of(Some(JSONB_VERSION)),
            }),
        },
    ],
};
