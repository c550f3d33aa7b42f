//! Text. Enums and types of extensions that send their text are held like `text`.

use arrow_schema::DataType;

use super::{Family, Held, Type};
use crate::builtin::{BPCHAR, TEXT, VARCHAR};
use crate::decode::Bytes;

pub(super) static FAMILY: Family = Family {
    types: &[Type {
        of: &[TEXT, VARCHAR, BPCHAR],
        held: Some(Held {
            exact: true,
            data_type: |_| Some(DataType::Utf8),
            extension: None,
            decode: |_| Bytes::of(None),
        }),
    }],
};
