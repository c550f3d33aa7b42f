//! A connector's configuration: its JSON Schema out, its values in.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// The JSON Schema (draft 2020-12) of a configuration struct.
pub(crate) fn schema<C: JsonSchema>() -> String {
    schemars::schema_for!(C).to_value().to_string()
}

/// Reads a configuration object. An error names the key as `config.key`.
pub(crate) fn parse<C: DeserializeOwned>(config: &str) -> Result<C> {
    let mut json = serde_json::Deserializer::from_str(config);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let location = if path == "." {
            "config".into()
        } else {
            format!("config.{path}")
        };
        // serde_json adds a position in text that the operator never saw.
        let text = error.inner().to_string();
        let message = text
            .rsplit_once(" at line ")
            .map_or(&*text, |parts| parts.0);
        let (message, hint) = plain(message);
        let error = Error::config("invalid_config", message).at(location);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })
}

/// The message in the words of a pipeline file, without words of Rust, and what to write instead.
fn plain(message: &str) -> (String, Option<String>) {
    if message.starts_with("data did not match any variant of untagged enum ") {
        let text = "the value has none of the forms that this key takes";
        return (text.to_owned(), None);
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return (
            format!("the key {rest} is missing"),
            Some("add it".to_owned()),
        );
    }
    for (start, noun) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        if let Some(rest) = message.strip_prefix(start) {
            return unknown(rest, noun);
        }
    }
    // The last one: the value before it may be a text with these words.
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return (message.to_owned(), None);
    };
    let (is_value, found) = match (
        found.strip_prefix("invalid type: "),
        found.strip_prefix("invalid value: "),
    ) {
        (Some(found), _) => (false, found),
        (_, Some(found)) => (true, found),
        _ => return (message.to_owned(), None),
    };
    let (found, quoted) = found_value(found);
    let (expected, write) = match expected {
        "a boolean" => ("true or false".to_owned(), "true or false"),
        "a sequence" => ("a list".to_owned(), "a list: [a, b]"),
        "a map" => (
            "keys and values".to_owned(),
            "keys and values: { key: value }",
        ),
        "f32" | "f64" => ("a number".to_owned(), "a number without quotes"),
        "a string" => ("a string".to_owned(), "one string"),
        other if other.starts_with("struct ") => (
            "keys and values".to_owned(),
            "keys and values: { key: value }",
        ),
        other => match range(other) {
            // A whole number that is too small or too large has the right type.
            Some((least, most)) if is_value => {
                let range = format!("a whole number from {least} to {most}");
                return (format!("expected {range}, not {found}"), None);
            }
            Some(_) => ("a whole number".to_owned(), "a whole number without quotes"),
            None => return (format!("expected {other}, not {found}"), None),
        },
    };
    let hint = match quoted.filter(|_| expected == "a string") {
        Some(quoted) => format!("put the value in quotes: {quoted}"),
        None => format!("write {write}"),
    };
    (format!("expected {expected}, not {found}"), Some(hint))
}

/// A key or value that does not exist, and what exists: `` `a`, expected one of `b`, `c` ``.
fn unknown(rest: &str, noun: &str) -> (String, Option<String>) {
    let (found, expected) = match rest.rsplit_once(", expected ") {
        Some((found, expected)) => (found, Some(expected)),
        None => (
            rest.rsplit_once(", there are no ")
                .map_or(rest, |parts| parts.0),
            None,
        ),
    };
    let hint = match expected {
        None => format!("remove the {noun}"),
        Some(expected) => {
            let expected = expected.strip_prefix("one of ").unwrap_or(expected);
            format!("write {expected}").replace('`', "")
        }
    };
    (
        format!("the {noun} {found} does not exist here"),
        Some(hint),
    )
}

/// The value that was found, in the words of a pipeline file; of a number or a boolean also its string.
fn found_value(found: &str) -> (String, Option<String>) {
    let named = match found {
        "sequence" => "a list",
        "map" => "keys and values",
        "unit value" | "null" => "null",
        _ => "",
    };
    if !named.is_empty() {
        return (named.to_owned(), None);
    }
    for (kind, name) in [
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
    ] {
        let value = found
            .strip_prefix(kind)
            .map(|value| value.trim_matches('`'));
        if let Some(value) = value {
            return (format!("{name}{value}"), Some(format!("\"{value}\"")));
        }
    }
    match found.strip_prefix("string ") {
        Some(value) => (format!("the string {value}"), None),
        None => (found.to_owned(), None),
    }
}

/// The range of one of Rust's integers.
fn range(name: &str) -> Option<(i128, i128)> {
    let (name, is_nonzero) = match name.strip_prefix("a nonzero ") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (least, most) = match name {
        "u8" => (0, u8::MAX.into()),
        "u16" => (0, u16::MAX.into()),
        "u32" => (0, u32::MAX.into()),
        "u64" | "usize" => (0, u64::MAX.into()),
        "i8" => (i8::MIN.into(), i8::MAX.into()),
        "i16" => (i16::MIN.into(), i16::MAX.into()),
        "i32" => (i32::MIN.into(), i32::MAX.into()),
        "i64" | "isize" => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    };
    Some((if is_nonzero && least == 0 { 1 } else { least }, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code, reason = "only read")]
        inner: Option<Inner>,
        #[allow(dead_code, reason = "only read")]
        mode: Option<Mode>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        A,
        B,
        D,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[allow(dead_code, reason = "only read")]
        rows: u64,
        #[allow(dead_code, reason = "only read")]
        at: Option<std::num::NonZeroU8>,
        #[allow(dead_code, reason = "only read")]
        rate: Option<f64>,
        #[allow(dead_code, reason = "only read")]
        on: Option<bool>,
        #[allow(dead_code, reason = "only read")]
        names: Option<Vec<String>>,
        #[allow(dead_code, reason = "only read")]
        form: Option<Form>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(untagged)]
    enum Form {
        #[allow(dead_code, reason = "only read")]
        One(u64),
    }

    #[test]
    fn an_error_names_the_key_and_no_word_of_rust() {
        for (config, at, message, hint) in [
            (
                r#"{"inner": "text"}"#,
                "config.inner",
                "expected keys and values, not the string \"text\"",
                "write keys and values: { key: value }",
            ),
            (
                r#"{"inner": {"rows": "1"}}"#,
                "config.inner.rows",
                "expected a whole number, not the string \"1\"",
                "write a whole number without quotes",
            ),
            (
                r#"{"inner": {"rows": 1.5}}"#,
                "config.inner.rows",
                "expected a whole number, not the number 1.5",
                "write a whole number without quotes",
            ),
            (
                r#"{"inner": {"rows": -1}}"#,
                "config.inner.rows",
                "expected a whole number from 0 to 18446744073709551615, not the number -1",
                "",
            ),
            (
                r#"{"inner": {"at": 0}}"#,
                "config.inner.at",
                "expected a whole number from 1 to 255, not the number 0",
                "",
            ),
            (
                r#"{"inner": {"rate": "x at line 1, expected u64"}}"#,
                "config.inner.rate",
                "expected a number, not the string \"x at line 1, expected u64\"",
                "write a number without quotes",
            ),
            (
                r#"{"inner": {"on": 1}}"#,
                "config.inner.on",
                "expected true or false, not the number 1",
                "write true or false",
            ),
            (
                r#"{"inner": {"names": {}}}"#,
                "config.inner.names",
                "expected a list, not keys and values",
                "write a list: [a, b]",
            ),
            (
                r#"{"inner": {"names": [[]]}}"#,
                "config.inner.names[0]",
                "expected a string, not a list",
                "write one string",
            ),
            (
                r#"{"inner": {"names": [64]}}"#,
                "config.inner.names[0]",
                "expected a string, not the number 64",
                "put the value in quotes: \"64\"",
            ),
            (
                r#"{"inner": {"names": [true]}}"#,
                "config.inner.names[0]",
                "expected a string, not true",
                "put the value in quotes: \"true\"",
            ),
            (
                r#"{"inner": {"form": "x"}}"#,
                "config.inner.form",
                "the value has none of the forms that this key takes",
                "",
            ),
            (
                r#"{"inner": {}}"#,
                "config.inner",
                "the key `rows` is missing",
                "add it",
            ),
            (
                r#"{"params": {}}"#,
                "config.params",
                "the key `params` does not exist here",
                "write inner or mode",
            ),
            (
                r#"{"mode": "c"}"#,
                "config.mode",
                "the value `c` does not exist here",
                "write a, b, d",
            ),
        ] {
            let error = parse::<Outer>(config).unwrap_err();
            let found = (error.location.as_deref(), error.message.as_str());
            assert_eq!(found, (Some(at), message), "{config}");
            assert_eq!(error.hint.as_deref().unwrap_or_default(), hint, "{config}");
        }
    }
}
