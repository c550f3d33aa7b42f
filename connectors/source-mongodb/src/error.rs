//! Errors of `rapidbyte-mongo` as the contract's, and which stream an error is about.

use rapidbyte_bson::BsonError;
use rapidbyte_mongo::{MongoError, Owner};
use rapidbyte_sdk::prelude::*;

/// The contract's error for an error of the codec.
pub(crate) fn convert(error: MongoError) -> Error {
    let kind = match error.owner {
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = error.hint.map(str::to_owned);
    converted.column = error.column;
    converted
}

/// A document of the server that is not BSON.
pub(crate) fn malformed(error: BsonError) -> Error {
    Error::data(
        "mongo_invalid_bson",
        format!("the server sent a malformed document: {error}"),
    )
    .hint("check the collection with the command `validate`")
}

/// Names the stream unless the error does.
pub(crate) fn about(mut error: Error, stream: &str) -> Error {
    error.stream.get_or_insert_with(|| stream.to_owned());
    error
}
