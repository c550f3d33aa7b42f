//! A cursor for people. Only its source knows what it means.

use rapidbyte::CURSOR_SOURCE;
use serde_json::{Map, Value};

use crate::output::short;

/// A cursor for people: `updated_at = 2026-01-31`. Only its source knows what the keys mean, so that keys of an unknown
/// form are shown as they are; `state get` prints the whole.
pub fn readable(cursor: &str) -> String {
    match serde_json::from_str(cursor) {
        Ok(cursor) => readable_json(&cursor),
        Err(_) => short(cursor),
    }
}

/// The same of a cursor that was read. One that is not JSON is a string.
pub fn readable_json(cursor: &Value) -> String {
    let keys = match cursor {
        Value::Object(keys) => keys,
        Value::String(text) => return short(text),
        other => return short(&other.to_string()),
    };
    let values = by_field(keys);
    let hidden: &[&str] = match &values {
        Some(_) => &["version", CURSOR_SOURCE, "mode", "fields", "values"],
        None => &["version", CURSOR_SOURCE],
    };
    let others = keys
        .iter()
        .filter(|(key, _)| !hidden.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()));
    let pairs = values.into_iter().flatten().chain(others);
    let pairs = pairs.map(|(key, value)| match value {
        Value::String(text) => format!("{key} = {text}"),
        Value::Null => format!("{key} = NULL"),
        other => format!("{key} = {other}"),
    });
    short(&pairs.collect::<Vec<_>>().join(", "))
}

/// The values of the cursor's columns, in the form of sources that read by columns.
fn by_field(keys: &Map<String, Value>) -> Option<Vec<(String, Value)>> {
    let fields = keys.get("fields")?.as_array()?;
    let names = fields
        .iter()
        .map(|field| Some(field.get("name")?.as_str()?.to_owned()));
    let names = names.collect::<Option<Vec<String>>>()?;
    let values = match keys.get("values")? {
        Value::Null => vec![Value::Null; names.len()],
        Value::Array(values) if values.len() == names.len() => values.clone(),
        _ => return None,
    };
    Some(names.into_iter().zip(values).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_shown_as_its_columns_and_values() {
        for (cursor, shown) in [
            (
                r#"{"mode":"ordered","version":1,"fields":[{"name":"at","type":"date"},{"name":"id","type":"int8"}],
                    "values":["2026-01-31","7"],"source":{"database":5,"relation":16390}}"#,
                "at = 2026-01-31, id = 7",
            ),
            (
                r#"{"mode":"ordered","version":1,"fields":[{"name":"at","type":"date"}],"values":null}"#,
                "at = NULL",
            ),
            (
                r#"{"mode":"exact","version":1,"next":"755","tables":{"16390":[1,"0a"]},"gone":[]}"#,
                r#"mode = exact, next = 755, tables = {"16390":[1,"0a"]}, gone = []"#,
            ),
            (r#"{"page":3}"#, "page = 3"),
            ("7", "7"),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(readable(cursor), shown, "{cursor}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(1000));
        assert!(readable(&long).ends_with("x… (1005 bytes)"));
    }
}
