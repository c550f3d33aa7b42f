//! The configuration, and the index that a stream goes to.

use std::rc::Rc;

use rapidbyte_document_store::{ID_BYTES, Naming, Pattern};
use rapidbyte_formats::DocumentOptions;
use rapidbyte_sdk::bytes::Size;
use rapidbyte_sdk::http::{Retry, Url};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::client::{Client, Cluster, Login};

const CHECKPOINT_INDEX: &str = "rapidbyte-checkpoint";
/// Rows of a request, unless the operator says otherwise.
const BULK_ROWS: u32 = 5000;
const MAX_BULK_ROWS: u32 = 50_000;
/// Bytes of a request: Elastic and OpenSearch recommend 5 to 15 MB, and a sandbox holds several.
const BULK_BYTES: u64 = 4 << 20;
/// A server takes 100 MiB unless it was configured (`http.max_content_length`).
const MAX_BULK_BYTES: u64 = 64 << 20;
const MIN_BULK_BYTES: u64 = 64 << 10;
/// Requests on their way at the same time, unless the operator says otherwise.
const IN_FLIGHT: u32 = 2;
const MAX_IN_FLIGHT: u32 = 16;
/// Retries of a request or a row that the cluster cannot take now.
const MAX_RETRIES: u32 = 9;
const MOST_RETRIES: u32 = 100;
const MAX_SHARDS: u32 = 1024;
/// Bytes of the name of an index ("Create index": index naming restrictions).
const MAX_NAME_BYTES: usize = 255;

/// Where and how to write.
#[derive(serde::Deserialize, JsonSchema)]
#[schemars(extend("x-plans-again" = true))]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL of the cluster: `https://search.example.com:9200`.
    #[schemars(extend("x-grant" = "url"))]
    pub url: String,
    /// The user, for a login with a password.
    pub username: Option<String>,
    /// The password of the user.
    #[schemars(extend("x-secret" = true))]
    pub password: Option<String>,
    /// An API key of Elasticsearch, encoded, instead of a user and a password.
    #[schemars(extend("x-secret" = true))]
    pub api_key: Option<String>,
    /// A PEM file with the authorities to trust instead of the public ones.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The index to write to (default `{stream}`, which stands for the stream's name without its schema, such as `orders`
    /// of `public.orders`). `{schema}` stands for that schema. More than one stream needs `{stream}` in it.
    pub index: Option<String>,
    /// The primary shards of indices that do not exist yet (default: that of the cluster, 1).
    pub shards: Option<u32>,
    /// The replicas of indices that do not exist yet (default: that of the cluster, 1).
    pub replicas: Option<u32>,
    /// The largest number of rows in a request, 1 to 50,000 (default 5,000).
    pub bulk_rows: Option<u32>,
    /// The largest size of a request with several rows, 64 KiB to 64 MiB (default 4 MiB).
    pub bulk_bytes: Option<Size>,
    /// The largest number of requests at the same time, 1 to 16 (default 2).
    pub requests_in_flight: Option<u32>,
    /// How often to retry a request or a row that the cluster cannot take now, 0 to 100 (default 9).
    pub max_retries: Option<u32>,
    /// The type of the fields that new indices have for strings (default `both`).
    #[serde(default)]
    pub strings: Strings,
    /// Write JSON documents as values that are not indexed, or as text (default `values`).
    #[serde(default)]
    pub json: JsonFields,
    /// Write a field for NULL, or omit it (default `write`).
    #[serde(default)]
    pub nulls: NullFields,
    /// Make rows visible to searches before each commit, or leave it to the index (default `commit`).
    #[serde(default)]
    pub refresh: Refresh,
    /// The index that has the cursor of each stream (default `rapidbyte-checkpoint`).
    pub checkpoint_index: Option<String>,
}

/// The fields for strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strings {
    /// `text` for full-text searches, with a subfield `keyword` for filters, sorting and aggregations.
    #[default]
    Both,
    /// `keyword`.
    Keyword,
    /// `text`.
    Text,
}

/// The treatment of JSON documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JsonFields {
    /// Objects, arrays and other values. A field that Rapidbyte makes keeps them and does not index them.
    #[default]
    Values,
    /// The text, as a string.
    Text,
}

/// The treatment of NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NullFields {
    /// The document has the field, with the value null.
    #[default]
    Write,
    /// The document does not have the field.
    Omit,
}

/// When searches find new rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Refresh {
    /// The run refreshes the index before each commit.
    #[default]
    Commit,
    /// The index refreshes itself, by its setting `refresh_interval`.
    Interval,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub cluster: Rc<Cluster>,
    index: Pattern,
    pub shards: Option<u32>,
    pub replicas: Option<u32>,
    pub bulk_rows: usize,
    pub bulk_bytes: usize,
    pub strings: Strings,
    pub documents: DocumentOptions,
    pub refresh: Refresh,
    pub checkpoint_index: String,
}

/// A number from `from` to `to`, at `key` of the configuration. Errors: `invalid_setting`.
fn within<T: PartialOrd + std::fmt::Display>(value: T, (from, to): (T, T), key: &str) -> Result<T> {
    match value >= from && value <= to {
        true => Ok(value),
        false => {
            let text = format!("{value} is not from {from} to {to}");
            Err(Error::config("invalid_setting", text).at(format!("config.{key}")))
        }
    }
}

/// Whether a user, and perhaps a password, stands before the host.
fn has_credentials(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains('@'))
}

impl Config {
    fn login(&self) -> Result<Login> {
        let refused = |text: &str, hint: &str, at: &str| {
            Err(Error::config("invalid_setting", text).hint(hint).at(at))
        };
        match (&self.username, &self.password, &self.api_key) {
            (None, None, None) => Ok(Login::None),
            (None, None, Some(key)) => Ok(Login::ApiKey(key.trim().to_owned())),
            (Some(user), Some(password), None) if !user.contains(':') => {
                Ok(Login::Password(user.clone(), password.clone()))
            }
            (Some(_), Some(_), None) => refused(
                "a username with a colon cannot be sent",
                "use another user",
                "config.username",
            ),
            (_, _, Some(_)) => refused(
                "api_key is set beside username or password",
                "set an API key, or a username and a password",
                "config.api_key",
            ),
            (Some(_), None, None) => refused(
                "username is set without a password",
                "set both",
                "config.username",
            ),
            (None, Some(_), None) => refused(
                "password is set without a username",
                "set both",
                "config.password",
            ),
        }
    }

    pub(crate) fn settle(self) -> Result<Settings> {
        let url = Url::parse(&self.url).map_err(|error| {
            let error = match has_credentials(&self.url) {
                true => {
                    error.hint("write them as username and password, or as api_key, beside url")
                }
                false => error,
            };
            error.at("config.url")
        })?;
        let login = self.login()?;
        let in_flight = self.requests_in_flight.unwrap_or(IN_FLIGHT);
        let in_flight = within(in_flight, (1, MAX_IN_FLIGHT), "requests_in_flight")?;
        let retries = self.max_retries.unwrap_or(MAX_RETRIES);
        let retries = within(retries, (0, MOST_RETRIES), "max_retries")?;
        let rows = self.bulk_rows.unwrap_or(BULK_ROWS);
        let rows = within(rows, (1, MAX_BULK_ROWS), "bulk_rows")?;
        let bytes = self.bulk_bytes.map_or(BULK_BYTES, |size| size.0);
        let bytes = within(bytes, (MIN_BULK_BYTES, MAX_BULK_BYTES), "bulk_bytes")?;
        let shards = self.shards.map(|n| within(n, (1, MAX_SHARDS), "shards"));
        let replicas = self
            .replicas
            .map(|n| within(n, (0, MAX_SHARDS), "replicas"));
        let checkpoint_index = self
            .checkpoint_index
            .unwrap_or_else(|| CHECKPOINT_INDEX.into());
        check_name(&checkpoint_index).map_err(|error| error.at("config.checkpoint_index"))?;
        let index = self.index.as_deref().map(Pattern::parse);
        let index = index
            .transpose()
            .map_err(|error| error.at("config.index"))?;
        let settings = Settings {
            cluster: Rc::new(Cluster {
                url,
                login,
                retry: Retry::attempts(retries + 1),
                in_flight: in_flight as usize,
            }),
            index: index.unwrap_or_default(),
            shards: shards.transpose()?,
            replicas: replicas.transpose()?,
            bulk_rows: rows as usize,
            bulk_bytes: bytes as usize,
            strings: self.strings,
            documents: DocumentOptions {
                text_json: self.json == JsonFields::Text,
                omit_nulls: self.nulls == NullFields::Omit,
                exact_numbers: true,
                base64: true,
                ..DocumentOptions::default()
            },
            refresh: self.refresh,
            checkpoint_index,
        };
        settings.check_pattern()?;
        Ok(settings)
    }
}

impl Settings {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.cluster)
    }
}

/// Errors: `invalid_name`, by the rules of "Create index".
pub(crate) fn check_name(name: &str) -> Result<()> {
    let refused = |why: &str| {
        let text = format!("{name:?} is not a name of an index: {why}");
        Err(Error::config("invalid_name", text).hint(
            "use 1 to 255 bytes in lower case, without \\ / * ? \" < > | , # : and spaces, and not -, _, + or . as the first character",
        ))
    };
    if name.is_empty() {
        return refused("it is empty");
    }
    if name.len() > MAX_NAME_BYTES {
        return refused("it is longer than 255 bytes");
    }
    // A point hides an index, and later versions keep these names for themselves.
    if name.starts_with(['-', '_', '+', '.']) {
        return refused("it begins with a character that is not allowed");
    }
    if name.to_lowercase() != name {
        return refused("it has a letter in upper case");
    }
    let is_allowed =
        |c: char| !(c.is_control() || c.is_whitespace() || "\\/*?\"<>|,#:".contains(c));
    match name.chars().all(is_allowed) {
        true => Ok(()),
        false => refused("it has a character that is not allowed"),
    }
}

/// Bytes that the name of an index which is filled for `replace` has more than its alias.
const FILLED_BYTES: usize = 1 + 2 * (ID_BYTES - 6);

impl Naming for Settings {
    const KIND: &'static str = "index";

    fn pattern(&self) -> &Pattern {
        &self.index
    }

    fn check(&self, name: &str) -> Result<()> {
        check_name(name)?;
        match name.len() + FILLED_BYTES > MAX_NAME_BYTES {
            true => {
                let text = format!(
                    "the name {name:?} is longer than {} bytes",
                    MAX_NAME_BYTES - FILLED_BYTES
                );
                Err(Error::config("invalid_name", text).hint(
                    "use a shorter name: indices that replace others have the name with 25 more characters",
                ))
            }
            false => Ok(()),
        }
    }

    fn is_own(&self, name: &str) -> bool {
        name == self.checkpoint_index
    }

    fn namespace(&self, name: &str) -> String {
        name.to_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_server_does_not_take_is_refused() {
        for name in [
            "",
            "Orders",
            "_a",
            "-a",
            "+a",
            ".a",
            "a b",
            "a/b",
            "a*",
            "a,b",
            "a#",
            "a:b",
            "a\n",
            "É",
            &"x".repeat(256),
        ] {
            assert_eq!(check_name(name).unwrap_err().code, "invalid_name", "{name}");
        }
        for name in ["a", "a.b", "a-b_c+1", "é", &"x".repeat(255)] {
            check_name(name).unwrap();
        }
    }
}
