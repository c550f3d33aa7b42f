//! JSON text, one level at a time: the values of an array or an object, and the characters of a
//! string. Values stay text (`RawValue`) until their column reads them, so no number passes
//! through a float.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// An object's key, borrowed where it holds no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Keys)
    }
}

/// Why a walk ended early: the text is not JSON, or the callback stopped it.
pub(crate) enum Stop<E> {
    Broken(serde_json::Error),
    Callback(E),
}

struct Walk<F, E> {
    each: F,
    failed: Option<E>,
}

impl<'de, F, E> Visitor<'de> for &mut Walk<F, E>
where
    F: FnMut(Option<Cow<'de, str>>, &'de str) -> Result<(), E>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            (self.each)(Some(key), value.get()).map_err(|error| {
                self.failed = Some(error);
                serde::de::Error::custom("stopped")
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(value) = items.next_element::<&'de RawValue>()? {
            (self.each)(None, value.get()).map_err(|error| {
                self.failed = Some(error);
                serde::de::Error::custom("stopped")
            })?;
        }
        Ok(())
    }
}

fn walk<'a, E, F>(json: &'a str, each: F, object: bool) -> Result<(), Stop<E>>
where
    F: FnMut(Option<Cow<'a, str>>, &'a str) -> Result<(), E>,
{
    let mut walk = Walk { each, failed: None };
    let mut reader = serde_json::Deserializer::from_str(json);
    let walked = if object {
        reader.deserialize_map(&mut walk)
    } else {
        reader.deserialize_seq(&mut walk)
    };
    let done = walked.and_then(|()| reader.end());
    match (walk.failed, done) {
        (Some(error), _) => Err(Stop::Callback(error)),
        (None, Err(error)) => Err(Stop::Broken(error)),
        (None, Ok(())) => Ok(()),
    }
}

/// Calls back with each key and the text of its value, in order; keys may come twice.
pub(crate) fn for_entries<'a, E>(
    json: &'a str,
    mut each: impl FnMut(Cow<'a, str>, &'a str) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    walk(
        json,
        |key, value| each(key.unwrap_or_default(), value),
        true,
    )
}

/// Calls back with the text of each item of an array, in order.
pub(crate) fn for_items<'a, E>(
    json: &'a str,
    mut each: impl FnMut(&'a str) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    walk(json, |_, value| each(value), false)
}

/// Checks that a text is one JSON value and gives it without white space around it.
pub(crate) fn validate(text: &[u8]) -> Result<&str, serde_json::Error> {
    serde_json::from_slice::<&RawValue>(text).map(RawValue::get)
}

/// The characters of a JSON string, given with its quotes; `None` for broken escapes.
pub(crate) fn unescape(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    if inner.len() <= LARGE_BYTES {
        return serde_json::from_str(json).ok().map(Cow::Owned);
    }
    unescape_large(inner).map(Cow::Owned)
}

/// Values above are given exactly the room that they need: a buffer that doubles takes up to four
/// times as much while it moves.
pub(crate) const LARGE_BYTES: usize = 1 << 18;

/// Makes room for a value of `bytes`, and no more for a large one.
pub(crate) fn reserve(bytes: usize, out: &mut Vec<u8>) {
    if bytes > LARGE_BYTES {
        out.reserve_exact(bytes);
    }
}

/// The same for the inside of a large string, piece by piece.
fn unescape_large(inner: &str) -> Option<String> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest.as_bytes().get(1)? {
            b'u' if is_high_surrogate(rest.get(2..6)?) => 12,
            b'u' => 6,
            _ => 2,
        };
        let escape: String = serde_json::from_str(&format!("\"{}\"", rest.get(..len)?)).ok()?;
        out.push_str(&escape);
        rest = &rest[len..];
    }
    out.push_str(rest);
    Some(out)
}

/// Whether four hexadecimal digits are the first half of a surrogate pair.
fn is_high_surrogate(digits: &str) -> bool {
    u16::from_str_radix(digits, 16).is_ok_and(|unit| (0xd800..0xdc00).contains(&unit))
}

/// Appends valid JSON without the white space between its parts.
pub(crate) fn write_compact(json: &str, out: &mut Vec<u8>) {
    let mut rest = json.as_bytes();
    // White space outside strings is dropped; strings are copied whole.
    while let Some(quote) = memchr::memchr(b'"', rest) {
        let (before, string) = rest.split_at(quote);
        out.extend(before.iter().filter(|b| !b.is_ascii_whitespace()));
        let mut end = 1;
        while let Some(at) = memchr::memchr2(b'"', b'\\', &string[end.min(string.len())..]) {
            end += at + 1;
            if string[end - 1] == b'"' {
                break;
            }
            // The escaped character.
            end += 1;
        }
        let (string, after) = string.split_at(end.min(string.len()));
        out.extend_from_slice(string);
        rest = after;
    }
    out.extend(rest.iter().filter(|b| !b.is_ascii_whitespace()));
}

/// Appends a string with quotes and escapes (RFC 8259, section 7).
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    if bytes.len() > LARGE_BYTES {
        let more = bytes.iter().map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
            0..0x20 => 5,
            _ => 0,
        });
        // This leaves room for the bytes after the value in its row too.
        out.reserve_exact(bytes.len() + more.sum::<usize>() + 64);
    }
    out.push(b'"');
    let mut written = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[written..at]);
        written = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + (control >> 4));
                out.push(b"0123456789abcdef"[usize::from(control & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_text_keeps_strings_and_numbers() {
        let mut out = Vec::new();
        write_compact(
            "{ \"a b\\\" c\" :\t[1.50 , \"x\\\\\" ],\n\"d\":null }",
            &mut out,
        );
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, r#"{"a b\" c":[1.50,"x\\"],"d":null}"#);
    }

    #[test]
    fn strings_come_back() {
        let text = "\u{0}\u{1f}\"\\/\n\r\t é 😀\u{7f}";
        let mut out = Vec::new();
        write_string(text, &mut out);
        let json = std::str::from_utf8(&out).unwrap();
        assert_eq!(unescape(json).as_deref(), Some(text));
        assert!(!out.contains(&b'\n'));
        assert_eq!(unescape(r#""\ud800""#), None);
    }

    #[test]
    fn a_large_string_takes_its_own_room_and_comes_back() {
        let text = "\u{0}\"\\\n é 😀 plain".repeat(20_000);
        let mut out = Vec::new();
        write_string(&text, &mut out);
        assert!(out.capacity() <= out.len() + 64);
        let json = std::str::from_utf8(&out).unwrap();
        assert_eq!(unescape(json).as_deref(), Some(&*text));
        let escapes = r"\ud83d\ude00\u00e9\/\b\f\t".repeat(20_000);
        let json = format!("\"{escapes}\"");
        let expected: String = serde_json::from_str(&json).unwrap();
        assert_eq!(unescape(&json).as_deref(), Some(&*expected));
        for half in [r"\ud83d", r"\ude00", r"\ud83d\u0041", r"\ud83dabcdef"] {
            let json = format!("\"{escapes}{half}\"");
            assert_eq!(unescape(&json), None, "{half}");
        }
    }

    #[test]
    fn deep_text_does_not_exhaust_the_stack() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        let mut items = 0;
        let walked = for_items(&deep, |_| {
            items += 1;
            Ok::<_, ()>(())
        });
        assert!(walked.is_ok());
        assert_eq!(items, 1);
    }
}
