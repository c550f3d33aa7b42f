//! Writing: elements of a document, one after the other.

use crate::{BsonError, Document, Kind, Value};

/// A document that is being written. Documents and arrays within it are opened and closed.
///
/// The first thing that cannot be written is remembered, and [`Builder::finish`] returns it.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    bytes: Vec<u8>,
    /// Where the documents begin that are not closed.
    open: Vec<usize>,
    failed: Option<BsonError>,
}

impl Builder {
    /// An empty document.
    pub fn new() -> Self {
        Self::onto(Vec::new())
    }

    /// A document behind the bytes that are there, such as the documents before it in a message.
    pub fn onto(bytes: Vec<u8>) -> Self {
        let mut builder = Self {
            bytes,
            open: Vec::new(),
            failed: None,
        };
        builder.begin();
        builder
    }

    /// The document, behind the bytes that [`Builder::onto`] was given.
    ///
    /// # Errors
    /// [`BsonError::NulByte`], [`BsonError::TooLong`], [`BsonError::Unclosed`].
    pub fn finish(mut self) -> Result<Vec<u8>, BsonError> {
        if self.open.len() != 1 {
            return Err(self.failed.unwrap_or(BsonError::Unclosed));
        }
        self.end();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.bytes),
        }
    }

    /// The bytes so far, with those that were there before.
    pub fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Opens a document within the document.
    pub fn open_document(&mut self, name: &str) -> &mut Self {
        self.name(Kind::Document, name);
        self.begin();
        self
    }

    /// Opens an array within the document. Its elements are named `0`, `1` and so on.
    pub fn open_array(&mut self, name: &str) -> &mut Self {
        self.name(Kind::Array, name);
        self.begin();
        self
    }

    /// Closes the document or array that was opened last.
    pub fn close(&mut self) -> &mut Self {
        match self.open.len() {
            0 | 1 => self.fail(BsonError::Unclosed),
            _ => self.end(),
        }
        self
    }

    /// A value as it was read.
    pub fn value(&mut self, name: &str, value: &Value<'_>) -> &mut Self {
        self.name(value.kind(), name);
        match *value {
            Value::Double(number) => self.put(&number.to_le_bytes()),
            Value::String(text) | Value::JavaScript(text) | Value::Symbol(text) => self.text(text),
            Value::Document(document) | Value::Array(document) => self.put(document.as_bytes()),
            Value::Binary { subtype, bytes } => {
                self.length(bytes.len());
                self.put(&[subtype]);
                self.put(bytes);
            }
            Value::ObjectId(id) => self.put(&id),
            Value::Boolean(value) => self.put(&[value.into()]),
            Value::DateTime(number) | Value::Int64(number) => self.put(&number.to_le_bytes()),
            Value::Regex { pattern, options } => {
                self.cstring(pattern);
                self.cstring(options);
            }
            Value::DbPointer { namespace, id } => {
                self.text(namespace);
                self.put(&id);
            }
            Value::JavaScriptWithScope { code, scope } => {
                // Two lengths and the end of the string.
                self.length(code.len() + scope.as_bytes().len() + 9);
                self.text(code);
                self.put(scope.as_bytes());
            }
            Value::Int32(number) => self.put(&number.to_le_bytes()),
            Value::Timestamp(number) => self.put(&number.to_le_bytes()),
            Value::Decimal128(bytes) => self.put(&bytes),
            Value::Undefined | Value::Null | Value::MaxKey | Value::MinKey => {}
        }
        self
    }

    /// A string.
    pub fn string(&mut self, name: &str, text: &str) -> &mut Self {
        self.value(name, &Value::String(text))
    }

    /// A number of 32 bits.
    pub fn int32(&mut self, name: &str, number: i32) -> &mut Self {
        self.value(name, &Value::Int32(number))
    }

    /// A number of 64 bits.
    pub fn int64(&mut self, name: &str, number: i64) -> &mut Self {
        self.value(name, &Value::Int64(number))
    }

    /// True or false.
    pub fn boolean(&mut self, name: &str, value: bool) -> &mut Self {
        self.value(name, &Value::Boolean(value))
    }

    /// Bytes without a special meaning: subtype 0.
    pub fn binary(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.value(name, &Value::Binary { subtype: 0, bytes })
    }

    /// A document that is complete.
    pub fn document(&mut self, name: &str, document: Document<'_>) -> &mut Self {
        self.value(name, &Value::Document(document))
    }

    /// All elements of a document.
    pub fn elements_of(&mut self, document: Document<'_>) -> &mut Self {
        self.put(document.elements().rest());
        self
    }

    fn begin(&mut self) {
        self.open.push(self.bytes.len());
        self.put(&[0; 4]);
    }

    fn end(&mut self) {
        self.put(&[0]);
        let begin = self.open.pop().unwrap_or_default();
        match i32::try_from(self.bytes.len() - begin) {
            Ok(len) => self.bytes[begin..begin + 4].copy_from_slice(&len.to_le_bytes()),
            Err(_) => self.fail(BsonError::TooLong),
        }
    }

    fn name(&mut self, kind: Kind, name: &str) {
        self.put(&[kind.byte()]);
        self.cstring(name);
    }

    fn cstring(&mut self, text: &str) {
        if text.as_bytes().contains(&0) {
            self.fail(BsonError::NulByte(text.to_owned()));
        }
        self.put(text.as_bytes());
        self.put(&[0]);
    }

    fn text(&mut self, text: &str) {
        self.length(text.len() + 1);
        self.put(text.as_bytes());
        self.put(&[0]);
    }

    fn length(&mut self, length: usize) {
        match i32::try_from(length) {
            Ok(length) => self.put(&length.to_le_bytes()),
            Err(_) => self.fail(BsonError::TooLong),
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn fail(&mut self, error: BsonError) {
        self.failed.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests;
