//! The answer to `insert`, `update` and `delete`: what was written, and what failed.

use rapidbyte_bson::{Document, Elements, Value};
use rapidbyte_sdk::{Error, Result};

use crate::error::{malformed, protocol, reported, server_error};

/// More documents than a write has are not refused.
const MAX_ERRORS: usize = 100_000;

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
    /// Errors: `protocol_violation` where the answer does not say what became of the documents.
    pub(crate) fn read(document: Document<'_>) -> Result<Self> {
        let get = |name: &str| document.get(name).map_err(malformed);
        let count = |name: &str| -> Result<Option<u64>> {
            let Some(found) = get(name)? else {
                return Ok(None);
            };
            let number = found.as_whole().and_then(|n| u64::try_from(n).ok());
            let number = number.ok_or_else(|| wrong(name, &found));
            number.map(Some)
        };
        let n = count("n")?;
        let mut errors = Vec::new();
        for element in array(get("writeErrors")?, "writeErrors")? {
            let (_, Value::Document(error)) = element.map_err(malformed)? else {
                return Err(protocol("an error of a write that is not a document"));
            };
            if errors.len() == MAX_ERRORS {
                return Err(protocol("more errors than a write has documents"));
            }
            errors.push(WriteError::read(error)?);
        }
        let mut upserted = 0;
        for element in array(get("upserted")?, "upserted")? {
            element.map_err(malformed)?;
            upserted += 1;
        }
        let concern = match get("writeConcernError")? {
            Some(Value::Document(error)) => Some(reported(error).map_err(malformed)?),
            Some(Value::Null) | None => None,
            Some(other) => return Err(wrong("writeConcernError", &other)),
        };
        Ok(Self {
            count: n.ok_or_else(|| protocol("an answer to a write without n"))?,
            modified: count("nModified")?.unwrap_or(0),
            upserted,
            errors,
            concern,
        })
    }
}

/// The elements of an array that an answer need not have.
fn array<'a>(found: Option<Value<'a>>, name: &str) -> Result<Elements<'a>> {
    match found {
        Some(Value::Array(found)) => Ok(found.elements()),
        Some(Value::Null) | None => Ok(Elements::default()),
        Some(other) => Err(wrong(name, &other)),
    }
}

/// A field of an answer that has another type or number than it can have.
fn wrong(name: &str, found: &Value<'_>) -> Error {
    let kind = found.kind().name();
    match found.as_whole() {
        Some(number) => protocol(format!("{name} of a write is {number}")),
        None => protocol(format!("{name} of a write has the type {kind}")),
    }
}

impl WriteError {
    fn read(document: Document<'_>) -> Result<Self> {
        let get = |name: &str| document.get(name).map_err(malformed);
        let whole = |name: &str| -> Result<Option<i64>> {
            Ok(get(name)?.and_then(|value| value.as_whole()))
        };
        let index = whole("index")?.and_then(|index| usize::try_from(index).ok());
        let number = whole("code")?.and_then(|code| i32::try_from(code).ok());
        let message = match get("errmsg")? {
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
