//! Errors of `rapidbyte-pg` as the contract's, and which stream an error is about.

use rapidbyte_pg::{Owner, PgError};
use rapidbyte_sdk::prelude::*;

/// The contract's error for an error of the codec or the catalog.
pub(crate) fn convert(error: PgError) -> Error {
    let kind = match error.owner {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = error.hint;
    converted.column = error.column;
    converted
}

/// Names the stream unless the error does.
pub(crate) fn about(mut error: Error, stream: &str) -> Error {
    error.stream.get_or_insert_with(|| stream.to_owned());
    error
}
