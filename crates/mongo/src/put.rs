//! Parts of a BSON document, written straight into a buffer of many documents.

use rapidbyte_bson::Value;

/// A document above 2 GiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooLong;

/// Begins a document: room for its length. Returns its start.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the document that began at `start`.
pub(crate) fn end(out: &mut Vec<u8>, start: usize) -> Result<(), TooLong> {
    out.push(0);
    let length = i32::try_from(out.len() - start).map_err(|_| TooLong)?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// A name, a pattern or options: the caller knows that it has no zero byte.
pub(crate) fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(0);
}

/// The value of a string, code or symbol. One above 2 GiB makes [`end`] fail.
#[inline]
pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
    length(out, value.len() + 1);
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// The value of bytes. Bytes of the older generic subtype, 2, begin with their length once more.
pub(crate) fn binary(out: &mut Vec<u8>, subtype: u8, bytes: &[u8]) {
    let prefix = if subtype == 2 { 4 } else { 0 };
    length(out, bytes.len() + prefix);
    out.push(subtype);
    if prefix > 0 {
        length(out, bytes.len());
    }
    out.extend_from_slice(bytes);
}

/// The name of an array's element.
pub(crate) fn index(out: &mut Vec<u8>, index: usize) {
    if index < 10 {
        out.extend_from_slice(&[b'0' + index as u8, 0]);
        return;
    }
    rapidbyte_formats::text::number::write_int(index as u64, out);
    out.push(0);
}

/// A length that is too large is not used: the document around it has no length either.
fn length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
}

/// A value alone, as a native column has it: the byte of its type, then its bytes.
pub(crate) fn native(value: &Value<'_>, out: &mut Vec<u8>) {
    out.push(value.kind().byte());
    match *value {
        Value::Double(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::String(text) | Value::JavaScript(text) | Value::Symbol(text) => string(out, text),
        Value::Document(document) | Value::Array(document) => {
            out.extend_from_slice(document.as_bytes());
        }
        Value::Binary { subtype, bytes } => {
            length(out, bytes.len());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(id) => out.extend_from_slice(&id),
        Value::Boolean(value) => out.push(value.into()),
        Value::DateTime(number) | Value::Int64(number) => {
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Regex { pattern, options } => {
            name(out, pattern);
            name(out, options);
        }
        Value::DbPointer { namespace, id } => {
            string(out, namespace);
            out.extend_from_slice(&id);
        }
        Value::JavaScriptWithScope { code, scope } => {
            // Two lengths and the end of the string.
            length(out, code.len() + scope.as_bytes().len() + 9);
            string(out, code);
            out.extend_from_slice(scope.as_bytes());
        }
        Value::Int32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Timestamp(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Decimal128(bytes) => out.extend_from_slice(&bytes),
        Value::Undefined | Value::Null | Value::MaxKey | Value::MinKey => {}
    }
}
