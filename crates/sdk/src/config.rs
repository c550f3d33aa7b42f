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
        let message = text.split(" at line ").next().unwrap_or(&text);
        Error::config("invalid_config", without_rust(message)).at(location)
    })
}

/// The message without names of Rust, which operators do not know.
fn without_rust(message: &str) -> String {
    if message.starts_with("data did not match any variant of untagged enum ") {
        return "the value has none of the forms that this key takes".to_owned();
    }
    // The last one: the value before it may be a text with these words.
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let found = found
        .replace("invalid type: sequence", "invalid type: list")
        .replace("invalid type: map", "invalid type: keys and values")
        .replace("invalid type: unit value", "invalid type: null");
    // A whole number that is too small or too large has the right type.
    let is_range = found.starts_with("invalid value: integer ");
    let expected = match expected {
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "keys and values".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        other if other.starts_with("struct ") => "keys and values".to_owned(),
        other => match range(other) {
            Some((least, most)) if is_range => format!("a whole number from {least} to {most}"),
            Some(_) => "a whole number".to_owned(),
            None => other.to_owned(),
        },
    };
    format!("{found}, expected {expected}")
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
    struct Outer {
        #[allow(dead_code, reason = "only read")]
        inner: Option<Inner>,
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
        for (config, at, message) in [
            (
                r#"{"inner": "text"}"#,
                "config.inner",
                "invalid type: string \"text\", expected keys and values",
            ),
            (
                r#"{"inner": {"rows": "1"}}"#,
                "config.inner.rows",
                "invalid type: string \"1\", expected a whole number",
            ),
            (
                r#"{"inner": {"rows": 1.5}}"#,
                "config.inner.rows",
                "invalid type: floating point `1.5`, expected a whole number",
            ),
            (
                r#"{"inner": {"rows": -1}}"#,
                "config.inner.rows",
                "invalid value: integer `-1`, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                r#"{"inner": {"at": 0}}"#,
                "config.inner.at",
                "invalid value: integer `0`, expected a whole number from 1 to 255",
            ),
            (
                r#"{"inner": {"rate": "x, expected u64"}}"#,
                "config.inner.rate",
                "invalid type: string \"x, expected u64\", expected a number",
            ),
            (
                r#"{"inner": {"on": 1}}"#,
                "config.inner.on",
                "invalid type: integer `1`, expected true or false",
            ),
            (
                r#"{"inner": {"names": {}}}"#,
                "config.inner.names",
                "invalid type: keys and values, expected a list",
            ),
            (
                r#"{"inner": {"names": [[]]}}"#,
                "config.inner.names[0]",
                "invalid type: list, expected a string",
            ),
            (
                r#"{"inner": {"form": "x"}}"#,
                "config.inner.form",
                "the value has none of the forms that this key takes",
            ),
        ] {
            let error = parse::<Outer>(config).unwrap_err();
            let found = (error.location.as_deref(), error.message.as_str());
            assert_eq!(found, (Some(at), message), "{config}");
        }
    }
}
