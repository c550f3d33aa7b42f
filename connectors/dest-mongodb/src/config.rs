//! The configuration, and the collection that a stream goes to.

use std::time::Duration;

use rapidbyte_bson::Builder;
use rapidbyte_document_store::{Naming, Pattern};
use rapidbyte_mongo::{EncodeOptions, JsonDocuments, Nulls, SubMillisecond};
use rapidbyte_mongo_client::{
    Client, ReadPreference, Settings as Server, W, WriteConcern, check_database,
};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

/// More documents in a write are refused by some servers that speak the protocol, whatever they say.
const MAX_BULK_ROWS: u32 = 25_000;
/// Measured, see the page of the connector: larger bulks are not faster, and take more memory.
const BULK_ROWS: u32 = 2_000;
const CHECKPOINT_COLLECTION: &str = "_rapidbyte_checkpoint";
/// Starts the names of collections that are filled before they replace a target.
pub(crate) const STAGING: &str = "_rapidbyte_staging";
/// Of a namespace, a database and a collection with a point between (MongoDB manual, "MongoDB Limits and Thresholds").
const MAX_NAMESPACE_BYTES: usize = 255;
/// A server that does not answer a write for so long is lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Where and how to write.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
pub struct Config {
    /// The servers: `mongodb://user:password@host:27017/database?option=…`.
    #[schemars(extend("x-grant" = "url", "x-secret" = true))]
    pub url: String,
    /// The database (default: the database of the URL).
    pub database: Option<String>,
    /// The collection to write to (default `{stream}`, which stands for the stream's name without its schema, such as
    /// `orders` of `public.orders`). `{schema}` stands for that schema. More than one stream needs `{stream}` in it.
    pub collection: Option<String>,
    /// The largest number of documents in one write, 1 to 25,000 (default 2,000).
    pub bulk_rows: Option<u32>,
    /// Write a field for NULL, or omit it (default `write`).
    #[serde(default)]
    pub nulls: NullFields,
    /// Refuse times that are finer than a millisecond, which MongoDB cannot hold, cut them, or write them as text (default
    /// `refuse`).
    #[serde(default)]
    pub sub_millisecond: FineTimes,
    /// Write JSON documents as values, or as text (default `values`).
    #[serde(default)]
    pub json: JsonFields,
    /// The collection that has the cursor of each stream (default `_rapidbyte_checkpoint`).
    pub checkpoint_collection: Option<String>,
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

/// The treatment of times that are finer than a millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FineTimes {
    /// The row is refused.
    #[default]
    Refuse,
    /// The time is cut to the millisecond before it.
    Cut,
    /// All values of a column that is finer than milliseconds are strings.
    Text,
}

/// The treatment of JSON documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JsonFields {
    /// Documents, arrays and other values, by the rules of Extended JSON.
    #[default]
    Values,
    /// The text, as a string.
    Text,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub server: Server,
    pub database: String,
    collection: Pattern,
    pub bulk_rows: usize,
    pub encode: EncodeOptions,
    pub checkpoint_collection: String,
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let server = Server::from_url(&self.url)?;
        // A checkpoint that a secondary has may be an older one.
        if server.read_preference != ReadPreference::Primary {
            let text =
                "readPreference is set, and a destination reads its checkpoints from the primary";
            return Err(Error::config("invalid_setting", text)
                .hint("remove readPreference from the URL of the destination")
                .at("config.url"));
        }
        let database = self.database.or_else(|| server.database.clone());
        let database = database.ok_or_else(|| {
            Error::config("invalid_setting", "the database is missing")
                .hint("write it behind the hosts: mongodb://host:27017/database")
                .at("config.url")
        })?;
        check_database(&database).map_err(|error| error.at("config.database"))?;
        let bulk_rows = self.bulk_rows.unwrap_or(BULK_ROWS);
        if !(1..=MAX_BULK_ROWS).contains(&bulk_rows) {
            let text = format!("{bulk_rows} is not from 1 to {MAX_BULK_ROWS}");
            return Err(Error::config("invalid_setting", text).at("config.bulk_rows"));
        }
        let checkpoint_collection = self
            .checkpoint_collection
            .unwrap_or_else(|| CHECKPOINT_COLLECTION.into());
        check_collection(&database, &checkpoint_collection)
            .map_err(|error| error.at("config.checkpoint_collection"))?;
        let collection = self.collection.as_deref().map(Pattern::parse);
        let collection = collection
            .transpose()
            .map_err(|error| error.at("config.collection"))?;
        let encode = EncodeOptions {
            nulls: match self.nulls {
                NullFields::Write => Nulls::Write,
                NullFields::Omit => Nulls::Omit,
            },
            sub_millisecond: match self.sub_millisecond {
                FineTimes::Refuse => SubMillisecond::Refuse,
                FineTimes::Cut => SubMillisecond::Cut,
                FineTimes::Text => SubMillisecond::Text,
            },
            json: match self.json {
                JsonFields::Values => JsonDocuments::Values,
                JsonFields::Text => JsonDocuments::Text,
            },
        };
        let settings = Settings {
            server,
            database,
            collection: collection.unwrap_or_default(),
            bulk_rows: bulk_rows as usize,
            encode,
            checkpoint_collection,
        };
        settings.check_pattern()?;
        Ok(settings)
    }
}

impl Settings {
    pub(crate) fn connect(&self) -> Result<Client> {
        let mut client = Client::connect(&self.server)?;
        client.set_reply_timeout(self.server.reply_timeout.min(WRITE_TIMEOUT));
        Ok(client)
    }

    /// Adds the write concern of the URL: without one, the majority of the members, with their journals.
    pub(crate) fn add_write_concern(&self, command: &mut Builder) {
        let WriteConcern {
            w,
            journal,
            timeout_ms,
        } = &self.server.write_concern;
        command.open_document("writeConcern");
        match w {
            None => command.string("w", "majority"),
            Some(W::Named(name)) => command.string("w", name),
            Some(W::Members(members)) => command.int32("w", *members),
        };
        command.boolean("j", journal.unwrap_or(true));
        if let Some(ms) = timeout_ms {
            command.int32("wtimeout", *ms);
        }
        command.close();
    }
}

impl Naming for Settings {
    const KIND: &'static str = "collection";

    fn pattern(&self) -> &Pattern {
        &self.collection
    }

    fn check(&self, name: &str) -> Result<()> {
        check_collection(&self.database, name)
    }

    /// A collection for checkpoints, or one that is being filled.
    fn is_own(&self, name: &str) -> bool {
        name == self.checkpoint_collection || name.starts_with(STAGING)
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}.{name}", self.database)
    }
}

/// Errors: `invalid_name`.
fn check_collection(database: &str, collection: &str) -> Result<()> {
    let refused = |what: &str| {
        let text = format!("{collection:?} is not a name of a collection: {what}");
        Err(Error::config("invalid_name", text)
            .hint("use a name without $ and NUL, which does not begin with system. or a point"))
    };
    if collection.is_empty() {
        return refused("it is empty");
    }
    if collection.contains(['$', '\0']) {
        return refused("it contains $ or a NUL byte");
    }
    if collection.starts_with("system.") || collection.starts_with('.') {
        return refused("it begins with system. or a point");
    }
    if database.len() + 1 + collection.len() > MAX_NAMESPACE_BYTES {
        return refused("it is too long");
    }
    Ok(())
}
