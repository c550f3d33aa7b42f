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

/// The message without the name of a struct, which operators do not know.
fn without_rust(message: &str) -> String {
    let Some((before, name)) = message.split_once("expected struct ") else {
        return message.to_owned();
    };
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    let rest = end.map_or("", |end| &name[end..]);
    format!("{before}expected keys and values{rest}")
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
    }

    #[test]
    fn an_error_names_the_key_and_no_struct() {
        for (config, at, message) in [
            (
                r#"{"inner": "text"}"#,
                "config.inner",
                "invalid type: string \"text\", expected keys and values",
            ),
            (
                r#"{"inner": {"rows": "1"}}"#,
                "config.inner.rows",
                "invalid type: string \"1\", expected u64",
            ),
        ] {
            let error = parse::<Outer>(config).unwrap_err();
            let found = (error.location.as_deref(), error.message.as_str());
            assert_eq!(found, (Some(at), message), "{config}");
        }
    }
}
