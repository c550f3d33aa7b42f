//! The keys under `config:`, and the settings that they make.

use std::collections::BTreeMap;
use std::time::Duration;

use rapidbyte_mongo::extjson::Style;
use rapidbyte_mongo_client::{Settings, check_database};
use rapidbyte_sdk::declared::Columns;
use rapidbyte_sdk::pattern;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::error::about;
use crate::known::REST;

/// Documents of a sample, unless `sample_documents` is set.
const SAMPLE_DOCUMENTS: u32 = 1000;
/// More than this is a read, not a sample.
const MAX_SAMPLE_DOCUMENTS: u32 = 100_000;
/// Bytes of documents to fetch at a time. A server sends at most 16 MiB.
const FETCH_BYTES: u32 = 2 << 20;
const FETCH_RANGE: std::ops::RangeInclusive<u32> = 64 << 10..=16 << 20;
/// A sort without an index takes minutes before its first document comes.
const READ_TIMEOUT_S: u32 = 900;

/// The keys under `config:`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
pub struct Config {
    /// `mongodb://user:password@host:27017,host2:27017/database?option=value`. The options are those of MongoDB's
    /// drivers, such as `replicaSet`, `authSource`, `tls`, `compressors` and `readPreference`.
    #[schemars(extend("x-grant" = "url", "x-secret" = true))]
    pub url: String,
    /// The database (default: the database of the URL).
    pub database: Option<String>,
    /// Names of collections to list, with `*` and `?` (default: all).
    #[serde(default)]
    pub collections: Vec<String>,
    /// The form of documents: see `documents` of a stream.
    pub documents: Option<Documents>,
    /// The style of JSON: `relaxed` (the default) or `canonical`, which names the type of every number.
    #[serde(default)]
    pub json: Style,
    /// The number of documents of each collection from which columns are inferred (default 1000).
    #[schemars(extend("default" = 1000, "minimum" = 1, "maximum" = 100_000))]
    pub sample_documents: Option<u32>,
    /// The number of bytes of documents to fetch in one step, 65536 to 16777216.
    #[schemars(extend("default" = 2_097_152, "minimum" = 65536, "maximum" = 16_777_216))]
    pub fetch_bytes: Option<u32>,
    /// The maximum wait for an answer in seconds (default 900; 0 for no limit). A sort before the first document
    /// counts.
    #[schemars(extend("default" = 900))]
    pub read_timeout: Option<u32>,
    /// Read all streams of a full refresh as of one moment (default false). Needs MongoDB 5.0 or later with a replica
    /// set or mongos. The server keeps that moment for 5 minutes, unless `minSnapshotHistoryWindowInSeconds` is set.
    #[serde(default)]
    pub snapshot: bool,
    /// Settings of single collections, by name.
    #[serde(default)]
    pub streams: BTreeMap<String, StreamConfig>,
}

/// How a collection is read.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// `columns`: a column for each field. `json`: the columns `_id` and `document`, which has the whole document as
    /// JSON. `bson`: the same with the bytes of the document, for a MongoDB destination. Default: `bson` into MongoDB,
    /// unless `schema` or `types` is set, otherwise `columns`.
    pub documents: Option<Documents>,
    /// The columns in order, as `name: type` or `name: type not null` (default: inferred from a sample). With `json` and
    /// `bson`, columns beside the whole document.
    pub schema: Option<Columns>,
    /// With `columns`, the types of single fields, as in `schema`; the others are inferred.
    pub types: Option<Columns>,
    /// With `columns`, fields without a column: `collect` them as JSON in the column `_rest`, `ignore` or `refuse` them
    /// (default `collect`; with `schema`, `refuse`).
    pub unknown_keys: Option<Unknown>,
}

/// The form of documents.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// A column for each field.
    Columns,
    /// The whole document as JSON.
    Json,
    /// The bytes of the whole document.
    Bson,
}

/// Fields without a column.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// The column `_rest` has them.
    Collect,
    /// They are left out.
    Ignore,
    /// The document is refused.
    Refuse,
}

/// A configuration without open questions.
pub(crate) struct Settled {
    pub connection: Settings,
    pub database: String,
    pub collections: Vec<String>,
    pub documents: Option<Documents>,
    pub json: Style,
    pub sample_documents: u32,
    pub fetch_bytes: usize,
    pub snapshot: bool,
    pub streams: BTreeMap<String, SettledStream>,
}

/// The settings of one collection.
#[derive(Clone, Default)]
pub(crate) struct SettledStream {
    pub documents: Option<Documents>,
    pub schema: Option<SchemaRef>,
    pub types: Option<SchemaRef>,
    pub unknown_keys: Option<Unknown>,
}

impl Config {
    /// Errors: `invalid_url`, `mongo_no_database`, `invalid_config`, `unknown_type`, `no_columns`.
    pub(crate) fn settle(self) -> Result<Settled> {
        let mut connection = Settings::from_url(&self.url)?;
        connection.reply_timeout = match self.read_timeout.unwrap_or(READ_TIMEOUT_S) {
            // For ever, in effect: longer than any run.
            0 => Duration::from_secs(u64::from(u32::MAX / 1000)),
            // The shorter one of this and socketTimeoutMS of the URL.
            seconds => Duration::from_secs(seconds.into()).min(connection.reply_timeout),
        };
        let named = self.database.filter(|name| !name.is_empty());
        let Some(database) = named.or_else(|| connection.database.clone()) else {
            return Err(
                Error::config("mongo_no_database", "the database is not named")
                    .hint("write it behind the hosts of the URL, or set database:")
                    .at("config.database"),
            );
        };
        check_database(&database).map_err(|error| error.at("config.database"))?;
        let invalid = |key: &str, text: String| {
            Error::config("invalid_config", text).at(format!("config.{key}"))
        };
        let fetch_bytes = self.fetch_bytes.unwrap_or(FETCH_BYTES);
        if !FETCH_RANGE.contains(&fetch_bytes) {
            let text = format!("{fetch_bytes} is not from 65536 to 16777216");
            return Err(invalid("fetch_bytes", text).hint("write a number of bytes in that range"));
        }
        let sample_documents = self.sample_documents.unwrap_or(SAMPLE_DOCUMENTS);
        if !(1..=MAX_SAMPLE_DOCUMENTS).contains(&sample_documents) {
            let text = format!("{sample_documents} is not from 1 to {MAX_SAMPLE_DOCUMENTS}");
            let error = invalid("sample_documents", text);
            return Err(error.hint("write a number of documents in that range"));
        }
        let documents = self.documents;
        let streams = self.streams.into_iter().map(|(name, stream)| {
            let settled = settle_stream(&name, stream, documents);
            let settled = settled.map_err(|error| about(error, &name))?;
            Ok((name, settled))
        });
        Ok(Settled {
            connection,
            database,
            collections: self.collections,
            documents: self.documents,
            json: self.json,
            sample_documents,
            fetch_bytes: fetch_bytes as usize,
            snapshot: self.snapshot,
            streams: streams.collect::<Result<_>>()?,
        })
    }
}

/// Errors: `invalid_config`, `unknown_type`, `no_columns`. `documents`: the form for all collections.
fn settle_stream(
    name: &str,
    stream: StreamConfig,
    documents: Option<Documents>,
) -> Result<SettledStream> {
    let at = |key: &str| format!("config.streams.{name}.{key}");
    let columns = |columns: Option<Columns>, key: &str| {
        let columns = columns.map(|columns| columns.schema(&at(key)));
        columns.transpose()
    };
    let schema = columns(stream.schema, "schema")?;
    let types = columns(stream.types, "types")?;
    let collects = matches!(stream.unknown_keys, None | Some(Unknown::Collect));
    let has_rest = |types: &SchemaRef| types.field_with_name(REST).is_ok();
    let conflict = match stream.documents.or(documents) {
        _ if types.is_none() => None,
        _ if collects && types.as_ref().is_some_and(has_rest) => Some((
            "_rest is the column of fields without a column, so types cannot declare it",
            "write unknown_keys: ignore or refuse, or remove _rest from types",
        )),
        _ if schema.is_some() => Some((
            "schema has the types of all columns, so types has no meaning beside it",
            "move the types into schema, or remove schema to infer the other columns",
        )),
        Some(Documents::Json | Documents::Bson) => Some((
            "types is for a column of each field, and documents asks for whole documents",
            "write documents: columns for the stream, or schema for columns beside the document",
        )),
        Some(Documents::Columns) | None => None,
    };
    if let Some((text, hint)) = conflict {
        return Err(Error::config("invalid_config", text)
            .hint(hint)
            .at(at("types")));
    }
    Ok(SettledStream {
        documents: stream.documents,
        schema,
        types,
        unknown_keys: stream.unknown_keys,
    })
}

/// A server lists its own collections beside the user's, and dest-mongodb keeps its cursors beside them.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with("system.") || name.starts_with("_rapidbyte_")
}

impl Settled {
    /// Whether a collection is listed.
    pub fn lists(&self, name: &str) -> bool {
        !is_own(name)
            && (self.collections.is_empty()
                || self.streams.contains_key(name)
                || self
                    .collections
                    .iter()
                    .any(|one| pattern::matches(one, name)))
    }

    /// The settings of a collection.
    pub fn stream(&self, name: &str) -> SettledStream {
        self.streams.get(name).cloned().unwrap_or_default()
    }

    /// The form of a collection's documents. `native`: the destination takes bytes.
    pub fn documents(&self, stream: &SettledStream, native: bool) -> Documents {
        match stream.documents.or(self.documents) {
            Some(documents) => documents,
            None if native && stream.schema.is_none() && stream.types.is_none() => Documents::Bson,
            None => Documents::Columns,
        }
    }
}
