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
        Error::config("invalid_config", message).at(location)
    })
}
