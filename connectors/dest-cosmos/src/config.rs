//! The configuration, and the container that a stream goes to.

use std::rc::Rc;

use rapidbyte_cosmos::{Account, Client, MAX_IN_FLIGHT, PartitionKey, check_name};
use rapidbyte_document_store::{Naming, Pattern};
use rapidbyte_formats::DocumentOptions;
use rapidbyte_sdk::http::Retry;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

const CHECKPOINT_CONTAINER: &str = "_rapidbyte_checkpoint";
/// Requests on their way at the same time, unless the operator says otherwise.
const IN_FLIGHT: u32 = 8;
/// Retries of a request that is throttled.
const MAX_RETRIES: u32 = 9;
const MOST_RETRIES: u32 = 100;

/// Where and how to write.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
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
    /// The request units per second of containers that do not exist yet (default: the throughput of the database, or the
    /// server's default).
    pub throughput: Option<u32>,
    /// The largest number of requests at the same time, 1 to 32 (default 8).
    pub requests_in_flight: Option<u32>,
    /// How often to retry a request that the server throttles, 0 to 100 (default 9).
    pub max_retries: Option<u32>,
    /// Refuse rows with 64-bit integers that a float64 does not hold, or write 64-bit integers as text (default `refuse`).
    #[serde(default)]
    pub integers: Integers,
    /// Refuse columns of decimals, or write them as text (default `refuse`).
    #[serde(default)]
    pub decimals: Decimals,
    /// Write a field for NULL, or omit it (default `write`).
    #[serde(default)]
    pub nulls: NullFields,
    /// Write JSON documents as values, or as text (default `values`).
    #[serde(default)]
    pub json: JsonFields,
    /// The container that has the cursor of each stream (default `_rapidbyte_checkpoint`).
    pub checkpoint_container: Option<String>,
}

/// The treatment of 64-bit integers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Integers {
    /// They are numbers, which are float64 in Cosmos DB. A row with a value beyond ±(2^53 - 1) is refused.
    #[default]
    Refuse,
    /// All of them are strings.
    Text,
}

/// The treatment of decimals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decimals {
    /// A column of decimals is refused.
    #[default]
    Refuse,
    /// They are strings.
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

/// The treatment of JSON documents.
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
    container: Pattern,
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
        let container = self.container.as_deref().map(Pattern::parse);
        let container = container
            .transpose()
            .map_err(|error| error.at("config.container"))?;
        let settings = Settings {
            account: Rc::new(account),
            container: container.unwrap_or_default(),
            partition_key,
            throughput: self.throughput,
            documents: DocumentOptions {
                text_integers: self.integers == Integers::Text,
                text_json: self.json == JsonFields::Text,
                omit_nulls: self.nulls == NullFields::Omit,
                ..DocumentOptions::default()
            },
            decimals: self.decimals,
            checkpoint_container,
        };
        settings.check_pattern()?;
        Ok(settings)
    }
}

impl Settings {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.account)
    }

    /// The partition key of a container that is to be made.
    pub(crate) fn new_partition_key(&self) -> Result<PartitionKey> {
        match &self.partition_key {
            Some(key) => Ok(key.clone()),
            None => PartitionKey::parse("/id"),
        }
    }
}

impl Naming for Settings {
    const KIND: &'static str = "container";

    fn pattern(&self) -> &Pattern {
        &self.container
    }

    fn check(&self, name: &str) -> Result<()> {
        check_name(name, "container")
    }

    fn is_own(&self, name: &str) -> bool {
        name == self.checkpoint_container
    }

    fn namespace(&self, name: &str) -> String {
        self.account.namespace(name)
    }
}
