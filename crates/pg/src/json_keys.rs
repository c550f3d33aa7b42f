//! Finds documents that jsonb would change in silence: of a key that an object repeats it keeps the last value alone, and
//! of a number -0 it does not keep the sign.
//!
//! Whether the text is JSON at all, the server says. Texts that are not JSON get any answer here.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::Problem;

/// The server's own stack ends earlier (`max_stack_depth`).
const MAX_DEPTH: usize = 1 << 16;

/// Refuses a document in which an object, at any depth, has a key twice, or in which a number is -0.
pub(crate) fn check(text: &[u8]) -> Result<(), Problem> {
    match ascends(text) {
        true => Ok(()),
        false => check_all(text),
    }
}

/// Whether the keys of each object ascend by length, then by bytes, so that none is there twice: jsonb writes them so.
/// False for keys with escapes, and for numbers that begin with -0. Needs no memory for each key.
fn ascends(text: &[u8]) -> bool {
    // For each open container: the last key of an object, nothing for an array.
    let mut open: Vec<Option<&[u8]>> = Vec::new();
    let mut at = 0;
    let mut is_object = false;
    let mut expects_key = false;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return false;
                }
                is_object = text[at] == b'{';
                expects_key = is_object;
                open.push(None);
            }
            b'}' | b']' => {
                open.pop();
                // Whether this one is an object shows in its last key: an array has none.
                is_object = matches!(open.last(), Some(Some(_)));
                expects_key = false;
            }
            b',' => expects_key = is_object,
            b'"' => {
                let begin = at + 1;
                at = end_of_string(text, begin);
                if let (true, Some(last)) = (expects_key, open.last_mut()) {
                    let key = &text[begin..at.min(text.len())];
                    let is_behind = last.is_none_or(|last| (last.len(), last) < (key.len(), key));
                    if !is_behind || memchr::memchr(b'\\', key).is_some() {
                        return false;
                    }
                    *last = Some(key);
                }
                expects_key = false;
            }
            // Perhaps -0.
            b'-' if text.get(at + 1) == Some(&b'0') => return false,
            _ => {}
        }
        at += 1;
    }
    true
}

fn check_all(text: &[u8]) -> Result<(), Problem> {
    // For each open container: the keys of an object, nothing for an array.
    let mut open: Vec<Option<HashSet<Cow<'_, [u8]>>>> = Vec::new();
    let mut at = 0;
    let mut expects_key = false;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return Err(Problem::JsonDepth);
                }
                expects_key = text[at] == b'{';
                open.push(expects_key.then(HashSet::new));
            }
            b'}' | b']' => {
                open.pop();
                expects_key = false;
            }
            b',' => expects_key = matches!(open.last(), Some(Some(_))),
            b'"' => {
                let begin = at + 1;
                at = end_of_string(text, begin);
                if let (true, Some(Some(keys))) = (expects_key, open.last_mut())
                    && !keys.insert(unescaped(&text[begin..at.min(text.len())]))
                {
                    return Err(Problem::RepeatedKey);
                }
                expects_key = false;
            }
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(text, at);
                if is_negative_zero(&text[at..end]) {
                    return Err(Problem::NegativeZero);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The place behind the number whose first character is at `at`.
fn end_of_number(text: &[u8], at: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    at + text[at..].iter().take_while(|byte| is_part(byte)).count()
}

fn is_negative_zero(number: &[u8]) -> bool {
    let mut digits = number
        .iter()
        .take_while(|byte| !matches!(byte, b'e' | b'E'));
    number.first() == Some(&b'-') && !digits.any(|byte| (b'1'..=b'9').contains(byte))
}

/// The place of the quote that ends the string whose first character is at `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at += 2;
    }
    text.len()
}

/// A key with its escapes replaced: `"a"` and `"\u0061"` are one key (RFC 8259, 7).
fn unescaped(key: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', key).is_none() {
        return Cow::Borrowed(key);
    }
    let quoted = [b"\"", key, b"\""].concat();
    match serde_json::from_slice::<String>(&quoted) {
        Ok(text) => Cow::Owned(text.into_bytes()),
        // The server will refuse it.
        Err(_) => Cow::Borrowed(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_found_at_every_depth() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[1,{"b":{"x":[],"y":{},"x":0}}]"#,
            r#"{"a":{"a":1},"b":"}","a":null}"#,
            "{\"é\":1,\"\\u00e9\":1}",
            r#"{"":1 , "":2}"#,
            r#"{"\"":1,"\"":2}"#,
        ] {
            assert_eq!(check(text.as_bytes()), Err(Problem::RepeatedKey), "{text}");
        }
    }

    #[test]
    fn documents_as_jsonb_writes_them_ascend() {
        for text in [
            r#"{"a": 1, "b": {"c": [{"d": 1}, {"d": 2}], "e": 3}, "aa": []}"#,
            r#"[{"a": {}}, [[]], {"": 1, "a": "\"b"}]"#,
            "1",
        ] {
            assert!(ascends(text.as_bytes()), "{text}");
        }
        for text in [
            r#"{"b": 1, "a": 2}"#,
            r#"{"aa": 1, "b": 2}"#,
            r#"{"a": {"b": 1}, "a": 2}"#,
            r#"{"a": [1], "a": 2}"#,
            r#"{"a": [{"x": 1}, 2], "a": 2}"#,
            r#"{"a": {}, "a": 2}"#,
            r#"{"\u0061": 1}"#,
            r#"{"a": -0}"#,
        ] {
            assert!(!ascends(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_number_loses_no_sign() {
        for text in [
            "-0",
            "[1,-0.0]",
            r#"{"a":-0e5}"#,
            "{\"a\":-0.00\n}",
            "[-0E-7 ]",
        ] {
            assert_eq!(check(text.as_bytes()), Err(Problem::NegativeZero), "{text}");
        }
        for text in [
            "0",
            "-0.01",
            "[-10,1e-0]",
            r#"{"-0":"-0.0"}"#,
            "-1e-0",
            "[0,-5]",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn other_documents_are_accepted() {
        for text in [
            "",
            "1",
            r#""a""#,
            r#"["a","a"]"#,
            r#"{"a":"a","b":"a"}"#,
            r#"[{"a":1},{"a":1}]"#,
            r#"{"a":{"a":{"a":1}}}"#,
            r#"{"a":"\",\"a\":","b":1}"#,
            r#"{"a\\":1,"a":2}"#,
            r#"{"a"#,
            "\"\\",
        ] {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
        assert_eq!(check(&vec![b'['; MAX_DEPTH]), Ok(()));
        assert_eq!(check(&vec![b'['; MAX_DEPTH + 1]), Err(Problem::JsonDepth));
    }
}
