//! The answer to `insert`, `update` and `delete`: what was written, and what failed.

use rapidbyte_bson::{BsonError, Document, Value};
use rapidbyte_sdk::Error;

use crate::error::{reported, server_error};

/// The outcome of a write.
#[derive(Debug, Clone)]
pub struct Written {
    /// Documents that were inserted, matched or upserted, or deleted. MongoDB does not count those that failed, but
    /// other servers do: of an insert, count [`Written::errors`] instead.
    pub count: u64,
    /// Documents that an update changed; those that it inserted are not among them.
    pub modified: u64,
    /// Documents that an update inserted.
    pub upserted: u64,
    /// The documents that failed, in the order in which the server names them. An unordered write goes on after each.
    pub errors: Vec<WriteError>,
    /// The write concern was not met: the documents may be lost if the primary fails.
    pub concern: Option<Error>,
}

/// A document that was not written.
#[derive(Debug, Clone)]
pub struct WriteError {
    /// Its place among the documents of the write, from 0.
    pub index: usize,
    /// The server's number of the error.
    pub number: i32,
    /// The error, for the operator.
    pub error: Error,
}

impl WriteError {
    /// True if the server has a document with this value in a unique index.
    pub fn is_duplicate(&self) -> bool {
        matches!(self.number, 11000 | 11001 | 12582)
    }
}

impl Written {
    pub(crate) fn read(document: Document<'_>) -> Result<Self, BsonError> {
        let count = |name: &str| -> Result<u64, BsonError> {
            let found = document.get(name)?.and_then(|value| value.as_whole());
            Ok(found.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
        };
        let mut errors = Vec::new();
        if let Some(Value::Array(found)) = document.get("writeErrors")? {
            for element in found.elements() {
                if let (_, Value::Document(error)) = element? {
                    errors.push(WriteError::read(error)?);
                }
            }
        }
        let mut upserted = 0;
        if let Some(Value::Array(found)) = document.get("upserted")? {
            for element in found.elements() {
                element?;
                upserted += 1;
            }
        }
        let concern = match document.get("writeConcernError")? {
            Some(Value::Document(error)) => Some(reported(error)?),
            _ => None,
        };
        Ok(Self {
            count: count("n")?,
            modified: count("nModified")?,
            upserted,
            errors,
            concern,
        })
    }
}

impl WriteError {
    fn read(document: Document<'_>) -> Result<Self, BsonError> {
        let whole = |name: &str| -> Result<Option<i64>, BsonError> {
            Ok(document.get(name)?.and_then(|value| value.as_whole()))
        };
        let index = whole("index")?.and_then(|index| usize::try_from(index).ok());
        let number = whole("code")?.and_then(|code| i32::try_from(code).ok());
        let message = match document.get("errmsg")? {
            Some(Value::String(text)) => text,
            _ => "the server names no reason",
        };
        let number = number.unwrap_or(0);
        Ok(Self {
            // Of no document: the caller finds none with this index.
            index: index.unwrap_or(usize::MAX),
            number,
            error: server_error(number, message, false),
        })
    }
}
