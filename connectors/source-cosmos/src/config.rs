//! The keys under `config:`, and the streams that they make.

use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_cosmos::{Account, check_name};
use rapidbyte_formats::jsonl::UnknownKeys;
use rapidbyte_sdk::declared::Columns;
use rapidbyte_sdk::http::Retry;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

/// Documents of a page, unless the operator says otherwise. The server ends a page at 4 MB.
const PAGE_ITEMS: u32 = 1000;
const MOST_ITEMS: u32 = 10_000;
/// Documents from which columns are inferred.
const SAMPLE_DOCUMENTS: u32 = 1000;
const MOST_SAMPLE: u32 = 100_000;
/// Retries of a request that is throttled.
const MAX_RETRIES: u32 = 9;
const MOST_RETRIES: u32 = 100;
/// Bytes of a query ("Azure Cosmos DB service quotas").
const MAX_QUERY_BYTES: usize = 512 << 10;

/// An account, and what is read from it.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
pub struct Config {
    /// The URL of the account: `https://ACCOUNT.documents.azure.com:443/`.
    #[schemars(extend("x-grant" = "url"))]
    pub endpoint: String,
    /// A key of the account. One that only reads is enough.
    #[schemars(extend("x-secret" = true))]
    pub key: String,
    /// The database.
    pub database: String,
    /// A PEM file with the authorities to trust instead of the public ones.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The containers that are streams (default: all of the database). With `[]`, only streams below `streams` are.
    pub containers: Option<Vec<String>>,
    /// Settings of streams by name, and streams with a query of their own. Each container is a stream with its name.
    #[serde(default)]
    pub streams: BTreeMap<String, StreamConfig>,
    /// The fields that the server sets (`_rid`, `_self`, `_etag`, `_attachments`, `_ts`, `_lsn`) are columns, too
    /// (default `false`).
    #[serde(default)]
    #[schemars(extend("x-columns" = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"]))]
    pub system_fields: bool,
    /// The largest number of documents in a page, 1 to 10,000 (default 1,000).
    pub page_items: Option<u32>,
    /// The number of documents of each stream from which columns are inferred, 1 to 100,000 (default 1,000).
    pub sample_documents: Option<u32>,
    /// How often to retry a request that the server throttles, 0 to 100 (default 9).
    pub max_retries: Option<u32>,
}

/// One stream.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The container (default: the name of the stream).
    pub container: Option<String>,
    /// The query, in the language of Cosmos DB (default `SELECT * FROM c`). Each row must be an object. The server
    /// answers queries over several partitions only without `ORDER BY`, `DISTINCT`, `GROUP BY`, `TOP`, `OFFSET` and
    /// aggregates.
    pub query: Option<String>,
    /// The columns in order, as `name: type` or `name: type not null` (default: inferred from the first documents).
    pub schema: Option<Columns>,
    /// Types of single columns, as in `schema`; the others are inferred.
    pub types: Option<Columns>,
    /// Fields that are not columns: `collect` them as JSON in the column `_rest`; `ignore` or `refuse` them (default
    /// `collect`; with `schema`, `refuse`).
    pub unknown_keys: Option<UnknownFields>,
    /// With inferred types, store objects and arrays as `json` text (the default) or as `columns` of structs and lists.
    #[serde(default)]
    pub nested: Nested,
}

/// The treatment of fields that are not columns.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// The column `_rest` has them as one JSON object.
    Collect,
    /// They are left out.
    Ignore,
    /// The stream ends with an error.
    Refuse,
}

impl From<UnknownFields> for UnknownKeys {
    fn from(fields: UnknownFields) -> Self {
        match fields {
            UnknownFields::Collect => Self::Collect,
            UnknownFields::Ignore => Self::Ignore,
            UnknownFields::Refuse => Self::Refuse,
        }
    }
}

/// How objects and arrays are stored.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum Nested {
    /// The JSON text.
    #[default]
    Json,
    /// Structs and lists.
    Columns,
}

/// A stream without open questions.
#[derive(Clone)]
pub(crate) struct Settled {
    pub name: String,
    pub container: String,
    pub query: String,
    /// The query is the operator's own, so that nothing can be added to it.
    pub has_query: bool,
    pub schema: Option<SchemaRef>,
    pub types: Option<SchemaRef>,
    pub unknown_keys: UnknownKeys,
    pub nested: Nested,
}

/// A configuration without open questions.
pub(crate) struct Settings {
    pub account: Rc<Account>,
    pub streams: BTreeMap<String, Settled>,
    /// `None`: all of the database.
    pub containers: Option<Vec<String>>,
    pub system_fields: bool,
    pub page_items: u32,
    pub sample_documents: u32,
}

impl Config {
    /// Errors: `http_invalid_url`, `invalid_setting`, `invalid_name`, `unknown_type`, `no_columns`.
    pub(crate) fn settle(self) -> Result<Settings> {
        let mut account = Account::new(&self.endpoint, &self.key, &self.database)?;
        let retries = within(
            "max_retries",
            self.max_retries,
            MAX_RETRIES,
            0,
            MOST_RETRIES,
        )?;
        account.retry = Retry::attempts(retries + 1);
        let streams = self.streams.into_iter().map(|(name, stream)| {
            let settled = settle(&name, stream)?;
            Ok((name, settled))
        });
        for (index, name) in self.containers.iter().flatten().enumerate() {
            check_name(name, "container")
                .map_err(|error| error.at(format!("config.containers[{index}]")))?;
        }
        Ok(Settings {
            account: Rc::new(account),
            streams: streams.collect::<Result<_>>()?,
            containers: self.containers,
            system_fields: self.system_fields,
            page_items: within("page_items", self.page_items, PAGE_ITEMS, 1, MOST_ITEMS)?,
            sample_documents: within(
                "sample_documents",
                self.sample_documents,
                SAMPLE_DOCUMENTS,
                1,
                MOST_SAMPLE,
            )?,
        })
    }
}

fn within(key: &str, said: Option<u32>, usual: u32, least: u32, most: u32) -> Result<u32> {
    let number = said.unwrap_or(usual);
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => {
            let text = format!("{number} is not from {least} to {most}");
            Err(Error::config("invalid_setting", text).at(format!("config.{key}")))
        }
    }
}

fn settle(name: &str, stream: StreamConfig) -> Result<Settled> {
    let at = |key: &str| format!("config.streams.{name}.{key}");
    let container = stream.container.unwrap_or_else(|| name.to_owned());
    check_name(&container, "container").map_err(|error| error.at(at("container")))?;
    let query = stream.query.as_deref().map(str::trim);
    if let Some(query) = query
        && (query.is_empty() || query.len() > MAX_QUERY_BYTES)
    {
        let text = format!("the query is empty, or longer than {MAX_QUERY_BYTES} bytes");
        return Err(Error::config("invalid_setting", text).at(at("query")));
    }
    let schema = stream
        .schema
        .map(|columns| columns.schema(&at("schema")))
        .transpose()?;
    let types = stream
        .types
        .map(|columns| columns.schema(&at("types")))
        .transpose()?;
    if schema.is_some() && types.is_some() {
        let text = "schema has the types of all columns, so types has no meaning beside it";
        return Err(Error::config("invalid_setting", text).at(at("types")));
    }
    let unknown_keys = stream.unknown_keys.map(UnknownKeys::from);
    let unknown_keys = unknown_keys.unwrap_or(match schema {
        Some(_) => UnknownKeys::Refuse,
        None => UnknownKeys::Collect,
    });
    Ok(Settled {
        name: name.to_owned(),
        container,
        has_query: query.is_some(),
        query: query.unwrap_or("SELECT * FROM c").to_owned(),
        schema,
        types,
        unknown_keys,
        nested: stream.nested,
    })
}

impl Settings {
    /// The key of the configuration that names the container of a stream, such as `config.containers[0]`. None if the
    /// account has named it.
    pub(crate) fn key_of_container(&self, stream: &Settled) -> Option<String> {
        let name = &stream.name;
        if self.streams.contains_key(name) {
            let key = match stream.container == *name {
                true => "",
                false => ".container",
            };
            return Some(format!("config.streams[{name:?}]{key}"));
        }
        let listed = self.containers.iter().flatten();
        let index = listed.into_iter().position(|listed| listed == name)?;
        Some(format!("config.containers[{index}]"))
    }

    /// The settings of a container's stream without settings of its own.
    pub(crate) fn plain(name: &str) -> Settled {
        Settled {
            name: name.to_owned(),
            container: name.to_owned(),
            query: "SELECT * FROM c".to_owned(),
            has_query: false,
            schema: None,
            types: None,
            unknown_keys: UnknownKeys::Collect,
            nested: Nested::Json,
        }
    }
}
