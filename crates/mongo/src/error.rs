//! The one error of this crate.

use rapidbyte_bson::{BsonError, Kind, MAX_DEPTH};

use crate::extjson::InvalidJson;

/// The person who acts on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The owner of the data: a column is not as needed.
    Schema,
    /// The owner of the data: a value that cannot be held.
    Data,
    /// The author of this crate or of its caller, or the sender of broken bytes.
    Internal,
}

/// A value, a type or bytes that cannot be carried exactly.
///
/// | code | owner | when |
/// | --- | --- | --- |
/// | `value_does_not_fit` | data | the column cannot hold this value, or BSON cannot |
/// | `null_in_required_column` | data | a document without a value for a column that is `not null` |
/// | `mongo_unknown_field` | data | a field without a column, where such fields are refused |
/// | `mongo_duplicate_field` | data | a field with a column that comes twice |
/// | `mongo_invalid_json` | data | a text of a JSON column that is not JSON |
/// | `mongo_invalid_bson` | data | bytes that are not BSON |
/// | `type_refused` | schema | a column whose type this crate cannot read or write |
/// | `invalid_name` | schema | a name with a zero byte, which BSON cannot hold |
/// | `record_too_large` | data | a document or a batch above a limit |
/// | `malformed_batch` | internal | a batch that is not of the encoder's schema |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MongoError {
    /// The person who acts on this error.
    pub owner: Owner,
    /// Stable and short: one of the table above.
    pub code: &'static str,
    /// A lower-case fragment: what happened.
    pub message: String,
    /// The next action.
    pub hint: Option<&'static str>,
    /// The column.
    pub column: Option<String>,
    /// The row of a batch that was encoded, from 0.
    pub row: Option<usize>,
}

impl MongoError {
    pub(crate) fn new(owner: Owner, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            owner,
            code,
            message: message.into(),
            hint: None,
            column: None,
            row: None,
        }
    }

    pub(crate) fn in_column(mut self, column: &str) -> Self {
        self.column.get_or_insert_with(|| column.to_owned());
        self
    }

    pub(crate) fn in_row(mut self, row: usize) -> Self {
        self.row = Some(row);
        self
    }

    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

/// The fault of one value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes are not BSON.
    #[error("{0}")]
    Malformed(#[from] BsonError),
    /// A text is not JSON.
    #[error("{0}")]
    Json(#[from] InvalidJson),
    /// The column has values of another type.
    #[error("the value has the type {}, which a column of {column} does not hold", found.name())]
    Kind {
        /// The value's type.
        found: Kind,
        /// The type of the column.
        column: String,
    },
    /// The column's type has values of this kind, but not this one.
    #[error("{0}")]
    Value(&'static str),
    /// A time that a UTC datetime does not hold.
    #[error("the time is finer than a millisecond, which BSON cannot hold")]
    Fine,
    /// A document would read as a value of another type.
    #[error(
        "a document begins with a key that Extended JSON has for values of other types, such as $oid"
    )]
    Wrapper,
    /// Documents within documents, too many of them.
    #[error("documents are nested deeper than {MAX_DEPTH} levels")]
    Depth,
    /// The inner length of bytes of subtype 2 does not match.
    #[error("the bytes have the subtype 2 and do not begin with their length")]
    OldBinary,
    /// A Decimal128 that would be written as other bytes.
    #[error("the Decimal128 has a form that its text does not keep")]
    DecimalSpelling,
    /// A field without a column.
    #[error("the key {0:?} is not a column")]
    Unknown(String),
    /// A field that comes twice.
    #[error("the key {0:?} comes twice in a document")]
    Twice(String),
    /// No value in a column that needs one.
    #[error("there is no value, and the column is not null")]
    Null,
    /// A document above 2 GiB, or a batch above the decoder's limit.
    #[error("the document or the batch is too large")]
    TooLarge,
}

impl Problem {
    /// The whole error: where, what, and what to do.
    pub fn at(self, column: &str) -> MongoError {
        let (code, hint) = match &self {
            Self::Malformed(_) => ("mongo_invalid_bson", None),
            Self::Json(_) => (
                "mongo_invalid_json",
                Some("clean the text in the source, or store JSON as text"),
            ),
            Self::Unknown(_) => (
                "mongo_unknown_field",
                Some("declare a column for the key, or set unknown_keys: collect"),
            ),
            Self::Twice(_) => (
                "mongo_duplicate_field",
                Some("read whole documents as JSON (documents: json), or remove one of the fields"),
            ),
            Self::Null => (
                "null_in_required_column",
                Some("drop `not null` of the column, or leave such documents out by `where`"),
            ),
            Self::TooLarge => ("record_too_large", Some("lower resources.batch_bytes")),
            Self::Kind { .. } => (
                "value_does_not_fit",
                Some("declare the column as json, which holds every value"),
            ),
            Self::Fine => (
                "value_does_not_fit",
                Some(
                    "set sub_millisecond: text to write finer times as strings, or sub_millisecond: cut to drop their digits",
                ),
            ),
            Self::Wrapper => (
                "value_does_not_fit",
                Some("copy such documents to MongoDB in their native form, or rename the key"),
            ),
            _ => (
                "value_does_not_fit",
                Some(
                    "declare another type for the column, leave such rows out by `where`, or convert the value in the source",
                ),
            ),
        };
        let message = format!("column {column:?}: {self}");
        let mut error = MongoError::new(Owner::Data, code, message).in_column(column);
        error.hint = hint;
        error
    }
}
