//! BSON to JSON.

use arrow_schema::TimeUnit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rapidbyte_bson::{Document, MAX_DEPTH, Value};
use rapidbyte_formats::text::{number, time};

use super::{Style, is_wrapper};
use crate::decimal::Decimal;
use crate::error::Problem;

/// The first moment of the year 10000, in milliseconds: RFC 3339 has four digits for a year.
const YEAR_10000_MS: i64 = 253_402_300_800_000;
/// The subtype whose bytes begin with their own length.
const OLD_GENERIC: u8 = 2;

type Written = Result<(), Problem>;

/// Appends a document as one JSON object.
///
/// # Errors
/// A malformed value, a document that begins with a key such as `$oid`, or too many levels.
pub fn write_document(document: Document<'_>, style: Style, out: &mut Vec<u8>) -> Written {
    Json { style, out }.document(document, 0)
}

/// Appends one value.
///
/// # Errors
/// As [`write_document`].
pub fn write_value(value: &Value<'_>, style: Style, out: &mut Vec<u8>) -> Written {
    Json { style, out }.value(value, 0)
}

/// Appends values with their names as one JSON object.
///
/// # Errors
/// As [`write_document`].
pub fn write_elements<'a>(
    elements: impl Iterator<Item = (&'a str, Value<'a>)>,
    style: Style,
    out: &mut Vec<u8>,
) -> Written {
    Json { style, out }.object(elements.map(Ok), 0)
}

struct Json<'o> {
    style: Style,
    out: &'o mut Vec<u8>,
}

impl Json<'_> {
    fn document(&mut self, document: Document<'_>, depth: usize) -> Written {
        self.object(document.elements(), depth)
    }

    fn object<'a>(
        &mut self,
        elements: impl Iterator<Item = Result<(&'a str, Value<'a>), rapidbyte_bson::BsonError>>,
        depth: usize,
    ) -> Written {
        if depth >= MAX_DEPTH {
            return Err(Problem::Depth);
        }
        self.out.push(b'{');
        for (at, element) in elements.enumerate() {
            let (name, value) = element?;
            if at > 0 {
                self.out.push(b',');
            } else if is_wrapper(name) {
                return Err(Problem::Wrapper);
            }
            self.string(name);
            self.out.push(b':');
            self.value(&value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn array(&mut self, array: Document<'_>, depth: usize) -> Written {
        if depth >= MAX_DEPTH {
            return Err(Problem::Depth);
        }
        self.out.push(b'[');
        for (at, element) in array.elements().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.value(&element?.1, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>, depth: usize) -> Written {
        let is_relaxed = self.style == Style::Relaxed;
        match *value {
            Value::Double(value) if value.is_finite() && is_relaxed => {
                number::write_float(value, self.out);
            }
            Value::Double(value) => {
                self.put(r#"{"$numberDouble":""#);
                number::write_float(value, self.out);
                self.put(r#""}"#);
            }
            Value::String(text) => self.string(text),
            Value::Document(document) => self.document(document, depth)?,
            Value::Array(array) => self.array(array, depth)?,
            Value::Binary { subtype, bytes } => {
                // Its bytes repeat their length, which JSON does not.
                let bytes = match bytes.split_first_chunk() {
                    _ if subtype != OLD_GENERIC => bytes,
                    Some((length, rest)) if is_length(*length, rest) => rest,
                    _ => return Err(Problem::OldBinary),
                };
                self.put(r#"{"$binary":{"base64":""#);
                self.put(&BASE64.encode(bytes));
                self.put(&format!(r#"","subType":"{subtype:02x}"}}}}"#));
            }
            Value::Undefined => self.put(r#"{"$undefined":true}"#),
            Value::ObjectId(id) => self.object_id(id),
            Value::Boolean(value) => self.put(if value { "true" } else { "false" }),
            Value::DateTime(ms) if is_relaxed && (0..YEAR_10000_MS).contains(&ms) => {
                self.put(r#"{"$date":""#);
                time::write_timestamp(ms, TimeUnit::Millisecond, true, self.out);
                self.put(r#""}"#);
            }
            Value::DateTime(ms) => {
                self.put(r#"{"$date":{"$numberLong":""#);
                number::write_int(ms, self.out);
                self.put(r#""}}"#);
            }
            Value::Null => self.put("null"),
            Value::Regex { pattern, options } => {
                self.put(r#"{"$regularExpression":{"pattern":"#);
                self.string(pattern);
                self.put(r#","options":"#);
                self.string(options);
                self.put("}}");
            }
            Value::DbPointer { namespace, id } => {
                self.put(r#"{"$dbPointer":{"$ref":"#);
                self.string(namespace);
                self.put(r#","$id":"#);
                self.object_id(id);
                self.put("}}");
            }
            Value::JavaScript(code) => self.wrapped("$code", code),
            Value::Symbol(text) => self.wrapped("$symbol", text),
            Value::JavaScriptWithScope { code, scope } => {
                self.put(r#"{"$code":"#);
                self.string(code);
                self.put(r#","$scope":"#);
                self.document(scope, depth)?;
                self.put("}");
            }
            Value::Int32(value) if is_relaxed => number::write_int(value, self.out),
            Value::Int64(value) if is_relaxed => number::write_int(value, self.out),
            Value::Int32(value) => {
                self.put(r#"{"$numberInt":""#);
                number::write_int(value, self.out);
                self.put(r#""}"#);
            }
            Value::Int64(value) => {
                self.put(r#"{"$numberLong":""#);
                number::write_int(value, self.out);
                self.put(r#""}"#);
            }
            Value::Timestamp(value) => {
                let (seconds, counter) = (value >> 32, value & u64::from(u32::MAX));
                self.put(r#"{"$timestamp":{"t":"#);
                number::write_int(seconds, self.out);
                self.put(r#","i":"#);
                number::write_int(counter, self.out);
                self.put("}}");
            }
            Value::Decimal128(bytes) => {
                let decimal = Decimal::of_bytes(bytes).ok_or(Problem::DecimalSpelling)?;
                self.put(&format!(r#"{{"$numberDecimal":"{decimal}"}}"#));
            }
            Value::MaxKey => self.put(r#"{"$maxKey":1}"#),
            Value::MinKey => self.put(r#"{"$minKey":1}"#),
        }
        Ok(())
    }

    fn object_id(&mut self, id: [u8; 12]) {
        self.put(r#"{"$oid":""#);
        crate::hex(&id, self.out);
        self.put(r#""}"#);
    }

    fn wrapped(&mut self, key: &str, text: &str) {
        self.put(r#"{""#);
        self.put(key);
        self.put(r#"":"#);
        self.string(text);
        self.put("}");
    }

    fn string(&mut self, text: &str) {
        // Most texts need no escape, and serde_json looks at each of their bytes.
        if !text
            .bytes()
            .any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
        {
            self.out.push(b'"');
            self.put(text);
            self.out.push(b'"');
            return;
        }
        serde_json::to_writer(&mut *self.out, text).expect("a vector takes every text");
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

fn is_length(length: [u8; 4], bytes: &[u8]) -> bool {
    usize::try_from(i32::from_le_bytes(length)) == Ok(bytes.len())
}
