//! Reading: elements of a document, one after the other.

use crate::{BsonError, Kind, MAX_DEPTH, MIN_DOCUMENT_BYTES, Value};

/// The bytes of one document, from its length to its end. Only the length and the end are checked; [`Elements`] checks
/// each element when it reads it, and [`Document::check`] all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    /// The bytes of exactly one document.
    ///
    /// # Errors
    /// [`BsonError::Truncated`], [`BsonError::Length`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BsonError> {
        let (document, rest) = Self::split(bytes)?;
        match rest.is_empty() {
            true => Ok(document),
            false => Err(length("the document", document.0.len())),
        }
    }

    /// The document at the begin of the bytes, and the bytes after it.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BsonError> {
        let mut rest = bytes;
        let len = usize::try_from(int32(&mut rest, "the length of a document")?);
        let len = len.ok().filter(|len| *len >= MIN_DOCUMENT_BYTES);
        let split = len.and_then(|len| bytes.split_at_checked(len));
        let Some((document, rest)) = split else {
            let found = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            return Err(BsonError::Length {
                what: "a document",
                length: found.into(),
            });
        };
        match document.last() {
            Some(0) => Ok((Self(document), rest)),
            _ => Err(BsonError::Truncated("a document without its end")),
        }
    }

    /// The bytes of the document.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// True if it has no element.
    pub fn is_empty(&self) -> bool {
        self.0.len() == MIN_DOCUMENT_BYTES
    }

    /// The elements in their order.
    pub fn elements(&self) -> Elements<'a> {
        Elements {
            rest: &self.0[4..self.0.len() - 1],
        }
    }

    /// The value of the first element with this name. `None` if there is none.
    ///
    /// # Errors
    /// An element before it, or itself, is not BSON.
    pub fn get(&self, name: &str) -> Result<Option<Value<'a>>, BsonError> {
        for element in self.elements() {
            let (found, value) = element?;
            if found == name {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Checks every element, within documents and arrays too, at most [`MAX_DEPTH`] deep.
    ///
    /// # Errors
    /// The first thing that is not BSON.
    pub fn check(&self) -> Result<(), BsonError> {
        // The elements that are left of each document that is being read.
        let mut open = vec![self.elements()];
        while let Some(elements) = open.last_mut() {
            match elements.next().transpose()? {
                None => {
                    open.pop();
                }
                Some((
                    _,
                    Value::Document(inner)
                    | Value::Array(inner)
                    | Value::JavaScriptWithScope { scope: inner, .. },
                )) => {
                    if open.len() >= MAX_DEPTH {
                        return Err(BsonError::TooDeep);
                    }
                    open.push(inner.elements());
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The elements of a document: names and values. After an error it ends.
#[derive(Debug, Clone, Default)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The bytes that were not read yet, without the end of the document.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<(&'a str, Value<'a>), BsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (byte, after) = self.rest.split_first()?;
        self.rest = after;
        let read = element(*byte, &mut self.rest);
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

fn element<'a>(byte: u8, rest: &mut &'a [u8]) -> Result<(&'a str, Value<'a>), BsonError> {
    let name = cstring(rest, "the name of an element")?;
    let Some(kind) = Kind::from_byte(byte) else {
        let name = name.to_owned();
        return Err(BsonError::UnknownKind { name, kind: byte });
    };
    let value = value(kind, rest)?;
    Ok((name, value))
}

fn value<'a>(kind: Kind, rest: &mut &'a [u8]) -> Result<Value<'a>, BsonError> {
    Ok(match kind {
        Kind::Double => Value::Double(f64::from_le_bytes(array(rest, "a double")?)),
        Kind::String => Value::String(string(rest)?),
        Kind::Document => Value::Document(document(rest)?),
        Kind::Array => Value::Array(document(rest)?),
        Kind::Binary => {
            let len = int32(rest, "the length of binary data")?;
            let [subtype] = array(rest, "the subtype of binary data")?;
            let bytes = take(rest, len, "binary data")?;
            Value::Binary { subtype, bytes }
        }
        Kind::Undefined => Value::Undefined,
        Kind::ObjectId => Value::ObjectId(array(rest, "an ObjectId")?),
        Kind::Boolean => match array(rest, "a boolean")? {
            [0] => Value::Boolean(false),
            [1] => Value::Boolean(true),
            [other] => return Err(BsonError::Boolean(other)),
        },
        Kind::DateTime => Value::DateTime(i64::from_le_bytes(array(rest, "a date")?)),
        Kind::Null => Value::Null,
        Kind::Regex => Value::Regex {
            pattern: cstring(rest, "a regular expression")?,
            options: cstring(rest, "the options of a regular expression")?,
        },
        Kind::DbPointer => Value::DbPointer {
            namespace: string(rest)?,
            id: array(rest, "an ObjectId")?,
        },
        Kind::JavaScript => Value::JavaScript(string(rest)?),
        Kind::Symbol => Value::Symbol(string(rest)?),
        Kind::JavaScriptWithScope => {
            let before = rest.len();
            let len = int32(rest, "the length of a program")?;
            let code = string(rest)?;
            let scope = document(rest)?;
            if usize::try_from(len) != Ok(before - rest.len()) {
                return Err(BsonError::Length {
                    what: "a program with variables",
                    length: len.into(),
                });
            }
            Value::JavaScriptWithScope { code, scope }
        }
        Kind::Int32 => Value::Int32(int32(rest, "a number")?),
        Kind::Timestamp => Value::Timestamp(u64::from_le_bytes(array(rest, "a timestamp")?)),
        Kind::Int64 => Value::Int64(i64::from_le_bytes(array(rest, "a number")?)),
        Kind::Decimal128 => Value::Decimal128(array(rest, "a decimal number")?),
        Kind::MaxKey => Value::MaxKey,
        Kind::MinKey => Value::MinKey,
    })
}

fn document<'a>(rest: &mut &'a [u8]) -> Result<Document<'a>, BsonError> {
    let (document, after) = Document::split(rest)?;
    *rest = after;
    Ok(document)
}

fn string<'a>(rest: &mut &'a [u8]) -> Result<&'a str, BsonError> {
    let len = int32(rest, "the length of a string")?;
    let bytes = take(rest, len, "a string")?;
    let Some((0, text)) = bytes.split_last() else {
        return Err(BsonError::Length {
            what: "a string",
            length: len.into(),
        });
    };
    std::str::from_utf8(text).map_err(|_| BsonError::NotUtf8("a string"))
}

fn cstring<'a>(rest: &mut &'a [u8], what: &'static str) -> Result<&'a str, BsonError> {
    let end = rest.iter().position(|byte| *byte == 0);
    let end = end.ok_or(BsonError::Truncated(what))?;
    let text = &rest[..end];
    *rest = &rest[end + 1..];
    std::str::from_utf8(text).map_err(|_| BsonError::NotUtf8(what))
}

fn int32(rest: &mut &[u8], what: &'static str) -> Result<i32, BsonError> {
    Ok(i32::from_le_bytes(array(rest, what)?))
}

fn array<const N: usize>(rest: &mut &[u8], what: &'static str) -> Result<[u8; N], BsonError> {
    let (bytes, after) = rest
        .split_first_chunk::<N>()
        .ok_or(BsonError::Truncated(what))?;
    *rest = after;
    Ok(*bytes)
}

fn take<'a>(rest: &mut &'a [u8], len: i32, what: &'static str) -> Result<&'a [u8], BsonError> {
    let split = usize::try_from(len).ok();
    let split = split.and_then(|len| rest.split_at_checked(len));
    let Some((bytes, after)) = split else {
        let length = len.into();
        return Err(BsonError::Length { what, length });
    };
    *rest = after;
    Ok(bytes)
}

fn length(what: &'static str, length: usize) -> BsonError {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    BsonError::Length { what, length }
}
