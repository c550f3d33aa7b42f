//! JSON to BSON.
//!
//! A number is an int32 or an int64 where it has neither point nor exponent and fits. Otherwise it is a double where a
//! double has all of its digits, else a Decimal128. A number with more than 34 digits is refused, so nothing is rounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rapidbyte_bson::{Document, Kind, MAX_DEPTH, Value};
use rapidbyte_formats::text::{bytes::parse_uuid, number, time};

use super::is_wrapper;
use crate::decimal::Decimal;
use crate::put;

/// A text that is not Extended JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at} of the JSON text")]
pub struct InvalidJson {
    /// What is wrong: a fragment in lower case.
    pub problem: String,
    /// The place, from 1.
    pub at: usize,
}

/// Levels of the objects that stand for one value, such as `{"$dbPointer": {"$ref": "c", "$id": {"$oid": "…"}}}`.
const WRAPPER_DEPTH: usize = 3;

type Parsed<T> = Result<T, InvalidJson>;

/// Appends the document that the text is.
///
/// # Errors
/// The text is not one JSON object, or an object in it that stands for a value of another type is malformed.
pub fn parse_document(text: &str, out: &mut Vec<u8>) -> Parsed<()> {
    let mut parser = Parser::new(text);
    parser.space();
    match parser.whole(out)? {
        Kind::Document => Ok(()),
        kind => {
            parser.at = 0;
            let found = kind.name();
            Err(parser.error(format!(
                "expected an object, not a value of the type {found}"
            )))
        }
    }
}

/// Appends the value that the text is, and returns its type.
///
/// # Errors
/// As [`parse_document`], for any value.
pub fn parse_value(text: &str, out: &mut Vec<u8>) -> Parsed<Kind> {
    Parser::new(text).whole(out)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// A document or an array is deeper than BSON may be.
    is_too_deep: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            is_too_deep: false,
        }
    }

    fn whole(&mut self, out: &mut Vec<u8>) -> Parsed<Kind> {
        let start = out.len();
        let read = self.value(out, 0).and_then(|kind| {
            self.space();
            match self.at == self.text.len() {
                true if self.is_too_deep => Err(self.too_deep()),
                true => Ok(kind),
                false => Err(self.error("unexpected text behind the value")),
            }
        });
        if read.is_err() {
            out.truncate(start);
        }
        read
    }

    fn error(&self, problem: impl Into<String>) -> InvalidJson {
        InvalidJson {
            problem: problem.into(),
            at: self.at + 1,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// True if the next byte was this one.
    fn accept(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        match self.accept(byte) {
            true => Ok(()),
            false => Err(self.error(format!("expected {:?}", char::from(byte)))),
        }
    }

    fn too_deep(&self) -> InvalidJson {
        self.error(format!("more than {MAX_DEPTH} levels"))
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Parsed<Kind> {
        if depth >= MAX_DEPTH + WRAPPER_DEPTH {
            return Err(self.too_deep());
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(out, depth),
            Some(b'[') => self.array(out, depth),
            Some(b'"') => {
                let text = self.string()?;
                put::string(out, &text);
                Ok(Kind::String)
            }
            Some(b't') => self.word("true", Kind::Boolean, out, &[1]),
            Some(b'f') => self.word("false", Kind::Boolean, out, &[0]),
            Some(b'n') => self.word("null", Kind::Null, out, &[]),
            Some(b'-' | b'0'..=b'9') => self.number(out),
            _ => Err(self.error("expected a value")),
        }
    }

    fn word(&mut self, word: &str, kind: Kind, out: &mut Vec<u8>, value: &[u8]) -> Parsed<Kind> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("expected a value"));
        }
        self.at += word.len();
        out.extend_from_slice(value);
        Ok(kind)
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: usize) -> Parsed<Kind> {
        self.is_too_deep |= depth >= MAX_DEPTH;
        self.at += 1;
        let start = put::begin(out);
        for index in 0.. {
            if index == 0 && self.accept(b']') {
                break;
            }
            let tag = out.len();
            out.push(0);
            put::index(out, index);
            out[tag] = self.value(out, depth + 1)?.byte();
            if !self.accept(b',') {
                self.expect(b']')?;
                break;
            }
        }
        self.end(out, start)?;
        Ok(Kind::Array)
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: usize) -> Parsed<Kind> {
        let (begin, was_too_deep) = (self.at, self.is_too_deep);
        self.at += 1;
        let start = put::begin(out);
        let mut wrapper = None;
        for index in 0.. {
            if index == 0 && self.accept(b'}') {
                break;
            }
            self.space();
            let name = self.string()?;
            if name.contains('\0') {
                return Err(self.error("a name contains a NUL character"));
            }
            let tag = out.len();
            out.push(0);
            put::name(out, &name);
            if index == 0 && is_wrapper(&name) {
                wrapper = Some(name);
            }
            self.expect(b':')?;
            out[tag] = self.value(out, depth + 1)?.byte();
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.end(out, start)?;
        let Some(wrapper) = wrapper else {
            self.is_too_deep |= depth >= MAX_DEPTH;
            return Ok(Kind::Document);
        };
        // Its own objects are not documents.
        self.is_too_deep = was_too_deep;
        // The object that was written is the value of another type.
        let object = out.split_off(start);
        match unwrap(&object, out) {
            Some(kind) => Ok(kind),
            None => {
                self.at = begin;
                Err(self.error(format!(
                    "{wrapper} is not written as Extended JSON 2 has it"
                )))
            }
        }
    }

    fn end(&self, out: &mut Vec<u8>, start: usize) -> Parsed<()> {
        put::end(out, start).map_err(|_| self.error("a document above 2 GiB"))
    }

    fn string(&mut self) -> Parsed<std::borrow::Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a string"));
        }
        let rest = &self.text.as_bytes()[self.at..];
        let mut end = 1;
        let mut is_plain = true;
        loop {
            match rest.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    end += 2;
                }
                Some(byte) if *byte < 0x20 => {
                    return Err(self.error("a control character in a string"));
                }
                Some(_) => end += 1,
                None => return Err(self.error("a string without its end")),
            }
        }
        let quoted = &self.text[self.at..=self.at + end];
        let text = match is_plain {
            true => std::borrow::Cow::Borrowed(&quoted[1..end]),
            false => serde_json::from_str::<String>(quoted)
                .map_err(|_| self.error("a string with an invalid escape"))?
                .into(),
        };
        self.at += end + 1;
        Ok(text)
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Parsed<Kind> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
        let text = &rest[..end.unwrap_or(rest.len())];
        if !is_json_number(text) {
            return Err(self.error("a malformed number"));
        }
        let is_whole = !text.contains(['.', 'e', 'E']);
        // -0 is a double: no integer is.
        if is_whole
            && text != "-0"
            && let Ok(value) = text.parse::<i64>()
        {
            self.at += text.len();
            if let Ok(value) = i32::try_from(value) {
                out.extend_from_slice(&value.to_le_bytes());
                return Ok(Kind::Int32);
            }
            out.extend_from_slice(&value.to_le_bytes());
            return Ok(Kind::Int64);
        }
        if number::float_keeps_digits(text.as_bytes())
            && let Some(value) = text.parse::<f64>().ok().filter(|value| value.is_finite())
        {
            self.at += text.len();
            out.extend_from_slice(&value.to_le_bytes());
            return Ok(Kind::Double);
        }
        let decimal: Decimal = text
            .parse()
            .map_err(|reason| self.error(format!("{reason}")))?;
        self.at += text.len();
        out.extend_from_slice(&decimal.to_bytes());
        Ok(Kind::Decimal128)
    }
}

/// The grammar of JSON: no leading zeros, digits around a point.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (number, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let number = number.strip_prefix('-').unwrap_or(number);
    let (before, behind) = match number.split_once('.') {
        Some((before, behind)) => (before, Some(behind)),
        None => (number, None),
    };
    digits(before)
        && (before == "0" || !before.starts_with('0'))
        && behind.is_none_or(digits)
        && exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)))
}

/// Appends the value that an object such as `{"$oid": "…"}` stands for. Nothing if it is malformed.
fn unwrap(object: &[u8], out: &mut Vec<u8>) -> Option<Kind> {
    let mut elements = Document::parse(object).ok()?.elements();
    let (name, value) = elements.next()?.ok()?;
    let second = elements.next().transpose().ok()?;
    let text = match value {
        Value::String(text) => Some(text),
        _ => None,
    };
    if let (Some(code), Some(("$scope", Value::Document(scope)))) = (text, second)
        && name == "$code"
        && elements.next().is_none()
    {
        let length = i32::try_from(code.len() + scope.as_bytes().len() + 9).ok()?;
        out.extend_from_slice(&length.to_le_bytes());
        put::string(out, code);
        out.extend_from_slice(scope.as_bytes());
        return Some(Kind::JavaScriptWithScope);
    }
    if second.is_some() {
        return None;
    }
    match name {
        "$oid" => {
            out.extend_from_slice(&object_id(text?)?);
            Some(Kind::ObjectId)
        }
        "$symbol" => {
            put::string(out, text?);
            Some(Kind::Symbol)
        }
        "$code" => {
            put::string(out, text?);
            Some(Kind::JavaScript)
        }
        "$numberInt" => {
            out.extend_from_slice(&text?.parse::<i32>().ok()?.to_le_bytes());
            Some(Kind::Int32)
        }
        "$numberLong" => {
            out.extend_from_slice(&text?.parse::<i64>().ok()?.to_le_bytes());
            Some(Kind::Int64)
        }
        "$numberDouble" => {
            let value: f64 = number::parse_float(text?.as_bytes()).ok()?;
            out.extend_from_slice(&value.to_le_bytes());
            Some(Kind::Double)
        }
        "$numberDecimal" => {
            out.extend_from_slice(&text?.parse::<Decimal>().ok()?.to_bytes());
            Some(Kind::Decimal128)
        }
        "$uuid" => {
            put::binary(out, 4, &parse_uuid(text?.as_bytes()).ok()?);
            Some(Kind::Binary)
        }
        "$binary" => binary(value, out),
        "$date" => date(value, out),
        "$timestamp" => {
            let [seconds, counter] = fields(value, ["t", "i"])?;
            let half = |value: Value<'_>| u32::try_from(value.as_whole()?).ok();
            let value = u64::from(half(seconds)?) << 32 | u64::from(half(counter)?);
            out.extend_from_slice(&value.to_le_bytes());
            Some(Kind::Timestamp)
        }
        "$regularExpression" => {
            let [Value::String(pattern), Value::String(options)] =
                fields(value, ["pattern", "options"])?
            else {
                return None;
            };
            if pattern.contains('\0') || options.contains('\0') {
                return None;
            }
            put::name(out, pattern);
            put::name(out, options);
            Some(Kind::Regex)
        }
        "$dbPointer" => {
            let [Value::String(namespace), Value::ObjectId(id)] = fields(value, ["$ref", "$id"])?
            else {
                return None;
            };
            put::string(out, namespace);
            out.extend_from_slice(&id);
            Some(Kind::DbPointer)
        }
        "$minKey" => (value.as_whole() == Some(1)).then_some(Kind::MinKey),
        "$maxKey" => (value.as_whole() == Some(1)).then_some(Kind::MaxKey),
        "$undefined" => (value == Value::Boolean(true)).then_some(Kind::Undefined),
        _ => None,
    }
}

/// The values of an object with exactly these two keys, in any order.
fn fields<'a>(value: Value<'a>, names: [&str; 2]) -> Option<[Value<'a>; 2]> {
    let Value::Document(object) = value else {
        return None;
    };
    let first = object.get(names[0]).ok()??;
    let second = object.get(names[1]).ok()??;
    (object.elements().count() == 2).then_some([first, second])
}

fn binary(value: Value<'_>, out: &mut Vec<u8>) -> Option<Kind> {
    let [Value::String(base64), Value::String(subtype)] = fields(value, ["base64", "subType"])?
    else {
        return None;
    };
    if !(1..=2).contains(&subtype.len()) || subtype.starts_with('+') {
        return None;
    }
    let subtype = u8::from_str_radix(subtype, 16).ok()?;
    let bytes = BASE64.decode(base64).ok()?;
    put::binary(out, subtype, &bytes);
    Some(Kind::Binary)
}

fn date(value: Value<'_>, out: &mut Vec<u8>) -> Option<Kind> {
    let ms = match value {
        Value::Int64(ms) => ms,
        Value::Int32(ms) => ms.into(),
        Value::String(text) => {
            time::parse_timestamp(text.as_bytes(), arrow_schema::TimeUnit::Millisecond, true)
                .ok()?
        }
        _ => return None,
    };
    out.extend_from_slice(&ms.to_le_bytes());
    Some(Kind::DateTime)
}

/// The bytes of 24 hexadecimal digits.
pub(crate) fn object_id(text: &str) -> Option<[u8; 12]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let digits: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let mut id = [0; 12];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(id)
}
