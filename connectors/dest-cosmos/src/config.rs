//! The configuration, and the container that a stream goes to.

use std::rc::Rc;

use rapidbyte_cosmos::{Account, Client, MAX_IN_FLIGHT, PartitionKey, check_name};
use rapidbyte_formats::DocumentOptions;
use rapidbyte_sdk::http::Retry;
use rapidbyte_sdk::name;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

const CHECKPOINT_CONTAINER: &str = "_rapidbyte_checkpoint";
const STREAM: &str = "{stream}";
const SCHEMA: &str = "{schema}";
/// Requests on their way at the same time, unless the operator says otherwise.
const IN_FLIGHT: u32 = 8;
/// Retries of a request that is throttled.
const MAX_RETRIES: u32 = 9;
const MOST_RETRIES: u32 = 100;

/// Where and how to write.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL of the account: `https://ACCOUNT.documents.azure.com:443/`.
    #[schemars(extend("x-grant" = "url"))]
    pub endpoint: String,
    /// The primary or secondary key of the account, which may write.
    #[schemars(extend("x-secret" = true))]
    pub key: String,
    /// The database. It must exist.
    pub database: String,
    /// A PEM file with the authorities to trust instead of the public ones.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The container to write to (default `{stream}`, which stands for the stream's name without its schema, such as
    /// `orders` of `public.orders`). `{schema}` stands for that schema. More than one stream needs `{stream}` in it.
    pub container: Option<String>,
    /// The path of the partition key of containers that do not exist yet, such as `/tenant` (default `/id`). Containers
    /// that exist must have the same, if it is set.
    pub partition_key: Option<String>,
    /// The request units per second of containers that do not exist yet (default: those of the database, or the server's
    /// default).
    pub throughput: Option<u32>,
    /// The largest number of requests at the same time, 1 to 32 (default 8).
    pub requests_in_flight: Option<u32>,
    /// How often to retry a request that the server throttles, 0 to 100 (default 9).
    pub max_retries: Option<u32>,
    /// What becomes of 64-bit integers: Cosmos DB makes a float64 of each number (default `refuse`).
    #[serde(default)]
    pub integers: Integers,
    /// What becomes of decimals (default `refuse`).
    #[serde(default)]
    pub decimals: Decimals,
    /// What becomes of NULL (default `write`).
    #[serde(default)]
    pub nulls: NullFields,
    /// What becomes of JSON documents (default `values`).
    #[serde(default)]
    pub json: JsonFields,
    /// The container that has the cursor of each stream (default `_rapidbyte_checkpoint`).
    pub checkpoint_container: Option<String>,
}

/// What becomes of 64-bit integers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Integers {
    /// They are numbers. A row with one beyond ±(2^53 - 1) is refused.
    #[default]
    Refuse,
    /// All of them are strings.
    Text,
}

/// What becomes of decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// A column of decimals is refused.
    #[default]
    Refuse,
    /// They are strings.
    Text,
}

/// What becomes of NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NullFields {
    /// The document has the field, with the value null.
    #[default]
    Write,
    /// The document does not have the field.
    Omit,
}

/// What becomes of JSON documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JsonFields {
    /// Objects, arrays and other values. A number that a float64 does not hold is refused.
    #[default]
    Values,
    /// The text, as a string.
    Text,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub account: Rc<Account>,
    container: String,
    pub partition_key: Option<PartitionKey>,
    pub throughput: Option<u32>,
    pub documents: DocumentOptions,
    pub decimals: Decimals,
    pub checkpoint_container: String,
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let mut account = Account::new(&self.endpoint, &self.key, &self.database)?;
        let in_flight = self.requests_in_flight.unwrap_or(IN_FLIGHT);
        if !(1..=MAX_IN_FLIGHT as u32).contains(&in_flight) {
            let text = format!("{in_flight} is not from 1 to {MAX_IN_FLIGHT}");
            return Err(Error::config("invalid_setting", text).at("config.requests_in_flight"));
        }
        account.in_flight = in_flight as usize;
        let retries = self.max_retries.unwrap_or(MAX_RETRIES);
        if retries > MOST_RETRIES {
            let text = format!("{retries} is not from 0 to {MOST_RETRIES}");
            return Err(Error::config("invalid_setting", text).at("config.max_retries"));
        }
        account.retry = Retry::attempts(retries + 1);
        let partition_key = self.partition_key.as_deref().map(PartitionKey::parse);
        let partition_key = partition_key
            .transpose()
            .map_err(|error| error.at("config.partition_key"))?;
        let checkpoint_container = self
            .checkpoint_container
            .unwrap_or_else(|| CHECKPOINT_CONTAINER.into());
        check_name(&checkpoint_container, "container")
            .map_err(|error| error.at("config.checkpoint_container"))?;
        Ok(Settings {
            account: Rc::new(account),
            container: self.container.unwrap_or_else(|| STREAM.into()),
            partition_key,
            throughput: self.throughput,
            documents: DocumentOptions {
                text_integers: self.integers == Integers::Text,
                text_json: self.json == JsonFields::Text,
                omit_nulls: self.nulls == NullFields::Omit,
            },
            decimals: self.decimals,
            checkpoint_container,
        })
    }
}

impl Settings {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.account)
    }

    /// The container of a stream. The operator's choice for the stream comes first. Errors: `invalid_name`.
    pub(crate) fn container_of(&self, target: &Target) -> Result<String> {
        let (schema, stream) = parts_of(&target.stream);
        let pattern = target.name.as_ref().unwrap_or(&self.container);
        // Each placeholder once, so that a name may contain one.
        let parts = pattern.split(STREAM);
        let parts: Vec<String> = parts.map(|part| part.replace(SCHEMA, &schema)).collect();
        let container = parts.join(&stream);
        let checked = check_name(&container, "container").and_then(|()| {
            match container == self.checkpoint_container {
                false => Ok(()),
                true => Err(Error::config(
                    "invalid_name",
                    format!("{container:?} is a container of Rapidbyte itself"),
                )),
            }
        });
        checked.map_err(|error| {
            error
                .hint("name another with `container:`, or with `target:` of the stream")
                .in_stream(&target.stream)
                .at("config.container")
        })?;
        Ok(container)
    }

    /// `database.container`, for people and for the key of a checkpoint.
    pub(crate) fn namespace(&self, container: &str) -> String {
        self.account.namespace(container)
    }

    /// The partition key of a container that is to be made.
    pub(crate) fn new_partition_key(&self) -> Result<PartitionKey> {
        match &self.partition_key {
            Some(key) => Ok(key.clone()),
            None => PartitionKey::parse("/id"),
        }
    }
}

/// Schema and name of a stream. All behind the first part of a name with more parts than two is the name.
fn parts_of(stream: &str) -> (String, String) {
    if let Some(mut parts) = name::parts(stream)
        && parts.iter().all(|part| !part.is_empty())
    {
        match parts.len() {
            1 => return (String::new(), parts.concat()),
            2 => {
                let name = parts.pop().unwrap_or_default();
                return (parts.concat(), name);
            }
            _ => {}
        }
    }
    match stream.split_once('.') {
        Some((schema, name)) if !schema.is_empty() && !name.is_empty() => {
            (schema.to_owned(), name.to_owned())
        }
        _ => (String::new(), stream.to_owned()),
    }
}
