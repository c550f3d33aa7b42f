//! Finds JSON objects that repeat a key: jsonb keeps the last of the values and drops the others in silence.
//!
//! Whether the text is JSON at all, the server says. Texts that are not JSON get any answer here.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::Problem;

/// The server's own stack ends earlier (`max_stack_depth`).
const MAX_DEPTH: usize = 1 << 16;

/// Refuses a document in which an object, at any depth, has a key twice.
pub(crate) fn check(text: &[u8]) -> Result<(), Problem> {
    match ascends(text) {
        true => Ok(()),
        false => check_all(text),
    }
}

/// Whether the keys of each object ascend by length, then by bytes, so that none is there twice: jsonb writes them so.
/// False for keys with escapes. Needs no memory for each key.
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
            _ => {}
        }
        at += 1;
    }
    Ok(())
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
        ] {
            assert!(!ascends(text.as_bytes()), "{text}");
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
