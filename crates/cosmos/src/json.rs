//! Values in documents.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Fields that the server sets ("Documents": system-defined properties).
pub const SYSTEM_FIELDS: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of the value at a path of keys, if the document has it.
pub fn find<'a>(document: &'a str, path: &[String]) -> Option<&'a str> {
    let mut found = document;
    for key in path {
        let mut fields: BTreeMap<Key<'_>, &RawValue> = serde_json::from_str(found).ok()?;
        found = fields.remove(&Key(Cow::Borrowed(key)))?.get();
    }
    Some(found)
}

/// Whether two documents have the same fields, except for those that the server sets. A number is the same if its float64
/// is.
pub fn is_same(mine: &str, stored: &str) -> bool {
    let parse = |text| {
        let mut value = serde_json::from_str::<Value>(text).ok()?;
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| !SYSTEM_FIELDS.contains(&name.as_str()));
        }
        Some(value)
    };
    match (parse(mine), parse(stored)) {
        (Some(mine), Some(stored)) => is_equal(&mine, &stored),
        _ => false,
    }
}

fn is_equal(mine: &Value, stored: &Value) -> bool {
    match (mine, stored) {
        (Value::Number(mine), Value::Number(stored)) => mine.as_f64() == stored.as_f64(),
        (Value::Array(mine), Value::Array(stored)) => {
            mine.len() == stored.len()
                && mine
                    .iter()
                    .zip(stored)
                    .all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(mine), Value::Object(stored)) => {
            mine.len() == stored.len()
                && mine.iter().all(|(name, value)| {
                    stored.get(name).is_some_and(|other| is_equal(value, other))
                })
        }
        (mine, stored) => mine == stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_path() {
        let document = r#"{"a": {"b c": [1, 2], "\u00e9": null}, "id": "x"}"#;
        let at = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
            find(document, &path)
        };
        assert_eq!(at(&["a", "b c"]), Some("[1, 2]"));
        assert_eq!(at(&["a", "é"]), Some("null"));
        assert_eq!(at(&["id"]), Some("\"x\""));
        assert_eq!(at(&["id", "x"]), None);
        assert_eq!(at(&["b"]), None);
    }

    #[test]
    fn what_the_server_adds_and_how_it_writes_numbers_make_no_difference() {
        let mine = r#"{"id":"1","f":1.0,"n":[1,2.50],"s":{"_ts":1}}"#;
        let stored = r#"{"f":1,"id":"1","n":[1,2.5],"s":{"_ts":1},"_ts":7,"_etag":"x","_rid":"r","_self":"s"}"#;
        assert!(is_same(mine, stored));
        for other in [
            r#"{"id":"1","f":1.0,"n":[1,2.50],"s":{"_ts":2}}"#,
            r#"{"id":"1","f":1.0,"n":[1,2.50]}"#,
            r#"{"id":"1","f":1.0,"n":[1,2.50],"s":{"_ts":1},"x":null}"#,
            r#"{"id":"1","f":"1","n":[1,2.50],"s":{"_ts":1}}"#,
        ] {
            assert!(!is_same(other, stored), "{other}");
        }
    }
}
