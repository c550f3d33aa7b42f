//! The keys under `config:`, and the settings that they make.

use std::time::Duration;

use rapidbyte_pg::ident;
use rapidbyte_pg_client::{Client, Fields, Settings as Server};
use rapidbyte_sdk::name;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::convert;

/// Stands for the stream's name, without its schema, in `table`.
const STREAM: &str = "{stream}";
/// Stands for the schema in the stream's name, in `table`.
const SCHEMA: &str = "{schema}";
/// The schema of a stream whose name says none.
const DEFAULT_SCHEMA: &str = "public";
/// Measured: from 1,000 to 5,000 rows a statement nothing changes.
const INSERT_ROWS: u32 = 2_000;
const MAX_INSERT_ROWS: u32 = 100_000;
/// Measured: 64 to 128 KiB are fastest.
const COPY_FLUSH_BYTES: u32 = 128 << 10;
/// The schema of the table of checkpoints.
const CHECKPOINT_SCHEMA: &str = "_rapidbyte";
/// The name of the table of checkpoints.
pub(crate) const CHECKPOINT_TABLE: &str = "checkpoint";
/// The name of the table that lists what runs changed in their targets, in the same schema.
pub(crate) const CHANGE_TABLE: &str = "schema_change";
/// The name of the table in the same schema to which active runs send heartbeats.
pub(crate) const BEAT_TABLE: &str = "checkpoint_beat";
/// Longer than a busy server takes, shorter than a night.
const COMMIT_TIMEOUT_SECS: u32 = 600;
/// A statement before the rows, such as deleting what is replaced, may take long.
const WRITE_TIMEOUT_SECS: u32 = 3600;
/// The server counts milliseconds in 31 bits.
const MAX_LOCK_TIMEOUT_SECS: u32 = 2_000_000;
const COPY_FLUSH_LIMITS: std::ops::RangeInclusive<u32> = (4 << 10)..=(8 << 20);
/// Ends sessions that do nothing outside a transaction, as ours do while the source makes up its
/// mind; the version that brought it.
const IDLE_TIMEOUT: (&str, u32) = ("idle_session_timeout", 140_000);

/// The keys under `config:`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`; or the keys below.
    #[schemars(extend("x-grant" = "url", "x-secret" = true))]
    pub url: Option<String>,
    /// The server's name or address.
    #[schemars(extend("x-grant" = "host"))]
    pub host: Option<String>,
    /// The server's port (default 5432).
    #[serde(default = "default_port")]
    #[schemars(extend("x-grant" = "port"))]
    pub port: Option<u16>,
    /// The role to log in as.
    pub user: Option<String>,
    /// Its password.
    #[schemars(extend("x-secret" = true))]
    pub password: Option<String>,
    /// The database (default: the user's name).
    pub database: Option<String>,
    /// disable, allow, prefer, require, verify-ca or verify-full; see docs/guides/tls.md.
    #[schemars(extend("x-grant" = "tls-mode"))]
    pub sslmode: Option<String>,
    /// A PEM file with the authorities to trust.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// A PEM file with the client's certificate.
    #[schemars(extend("x-grant" = "tls-cert"))]
    pub sslcert: Option<String>,
    /// A PEM file with the key of `sslcert`.
    #[schemars(extend("x-grant" = "tls-key"))]
    pub sslkey: Option<String>,
    /// disable, prefer or require: whether to bind the login to the TLS connection.
    pub channel_binding: Option<String>,
    /// any, read-write, read-only, primary, standby or prefer-standby.
    pub target_session_attrs: Option<String>,
    /// The name in pg_stat_activity (default `rapidbyte`).
    pub application_name: Option<String>,
    /// Command-line options for the server, such as `-c statement_timeout=5min`.
    pub options: Option<String>,
    /// The time limit for connecting, in seconds (default 30).
    pub connect_timeout: Option<u32>,
    /// The schema to write to (default: the stream's schema, such as `public` of `public.orders`,
    /// or `public`). `{schema}` stands for the stream's schema, as in `{schema}_raw`.
    pub schema: Option<String>,
    /// The table to write to (default `{stream}`, which stands for the stream's name without its
    /// schema, such as `orders` of `public.orders`). `{schema}` stands for that schema, as in
    /// `{schema}__{stream}`. More than one stream needs `{stream}` in it.
    pub table: Option<String>,
    /// How to load rows (default `copy`). A table that COPY cannot fill is filled by INSERT in any
    /// case.
    #[serde(default)]
    pub load_method: LoadMethod,
    /// How `write_mode: replace` replaces the rows of an existing table (default `auto`).
    #[serde(default)]
    pub replace_method: ReplaceMethod,
    /// The number of rows for each INSERT, 1 to 100,000 (default 2,000).
    pub insert_rows: Option<u32>,
    /// The number of bytes that COPY sends in one step, 4 KiB to 8 MiB (default 128 KiB).
    pub copy_flush_bytes: Option<u32>,
    /// The schema of the tables `checkpoint`, which has the cursor of each stream, and
    /// `checkpoint_beat`, which lists running runs behind a pooler (default `_rapidbyte`).
    pub checkpoint_schema: Option<String>,
    /// The maximum time in seconds that a commit may wait for something other than its own work
    /// (default 600; 0 for no limit).
    pub commit_timeout: Option<u32>,
    /// The maximum time in seconds without any answer or progress from the server during writing
    /// (default 3600; 0 for no limit). Waiting for a lock counts.
    #[schemars(extend("default" = 3600))]
    pub write_timeout: Option<u32>,
    /// The maximum wait for each lock in seconds (default: no limit, as with 0, unless the role or
    /// `options` sets one).
    pub lock_timeout: Option<u32>,
}

fn default_port() -> Option<u16> {
    Some(5432)
}

/// How rows are loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadMethod {
    /// `COPY … FROM STDIN (FORMAT binary)`.
    #[default]
    Copy,
    /// `INSERT … SELECT … FROM unnest($1)`.
    Insert,
}

/// How the rows of a table that exists are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplaceMethod {
    /// `swap` if the table allows it and is not small, else `delete`.
    #[default]
    Auto,
    /// `DELETE` and load in one transaction. The old rows take up space until vacuum frees it.
    Delete,
    /// `TRUNCATE` and load in one transaction. Readers wait until the commit.
    Truncate,
    /// Load into a new table that replaces the old one at the commit. No old rows remain.
    Swap,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub server: Server,
    schema: Option<String>,
    table: Option<String>,
    pub load_method: LoadMethod,
    pub replace_method: ReplaceMethod,
    pub insert_rows: usize,
    pub copy_flush_bytes: usize,
    /// Of the table of checkpoints.
    pub checkpoint_schema: String,
    /// None for ever.
    pub commit_timeout: Option<Duration>,
    pub lock_timeout_secs: u32,
    /// The longest there is for ever.
    pub write_timeout: Duration,
}

/// A table by its schema and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub schema: String,
    pub table: String,
}

impl Name {
    /// The qualified name as SQL writes it.
    pub fn sql(&self) -> String {
        ident::qualified(&self.schema, &self.table)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sql())
    }
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let insert_rows = self.insert_rows.unwrap_or(INSERT_ROWS);
        if !(1..=MAX_INSERT_ROWS).contains(&insert_rows) {
            let text = format!("{insert_rows} is not from 1 to {MAX_INSERT_ROWS}");
            return Err(Error::config("invalid_setting", text).at("config.insert_rows"));
        }
        let copy_flush_bytes = self.copy_flush_bytes.unwrap_or(COPY_FLUSH_BYTES);
        if !COPY_FLUSH_LIMITS.contains(&copy_flush_bytes) {
            let (least, most) = (COPY_FLUSH_LIMITS.start(), COPY_FLUSH_LIMITS.end());
            let text = format!("{copy_flush_bytes} is not from {least} to {most}");
            return Err(Error::config("invalid_setting", text).at("config.copy_flush_bytes"));
        }
        if let Some(schema) = &self.schema {
            ident::check_name(schema).map_err(|error| convert(error).at("config.schema"))?;
        }
        let checkpoint_schema = self.checkpoint_schema;
        let checkpoint_schema = checkpoint_schema.unwrap_or_else(|| CHECKPOINT_SCHEMA.into());
        check_schema(&checkpoint_schema, "config.checkpoint_schema")?;
        let lock_timeout_secs = self.lock_timeout.unwrap_or(0);
        if lock_timeout_secs > MAX_LOCK_TIMEOUT_SECS {
            let text = format!("{lock_timeout_secs} is not from 0 to {MAX_LOCK_TIMEOUT_SECS}");
            return Err(Error::config("invalid_setting", text).at("config.lock_timeout"));
        }
        let commit_timeout_secs = self.commit_timeout.unwrap_or(COMMIT_TIMEOUT_SECS);
        let write_timeout_secs = self.write_timeout.unwrap_or(WRITE_TIMEOUT_SECS);
        let commit_timeout = Duration::from_secs(commit_timeout_secs.into());
        // The port's default is for the keys; a URL has its own.
        let port = self
            .port
            .filter(|_| self.url.is_none() || self.host.is_some());
        let fields = Fields {
            host: self.host,
            port,
            user: self.user,
            password: self.password,
            database: self.database,
            sslmode: self.sslmode,
            sslrootcert: self.sslrootcert,
            sslcert: self.sslcert,
            sslkey: self.sslkey,
            channel_binding: self.channel_binding,
            target_session_attrs: self.target_session_attrs,
            application_name: self.application_name,
            options: self.options,
            connect_timeout: self.connect_timeout,
        };
        Ok(Settings {
            server: Server::from_config(self.url.as_deref(), fields)?,
            schema: self.schema,
            table: self.table,
            load_method: self.load_method,
            replace_method: self.replace_method,
            insert_rows: insert_rows as usize,
            copy_flush_bytes: copy_flush_bytes as usize,
            checkpoint_schema,
            commit_timeout: Some(commit_timeout).filter(|time| !time.is_zero()),
            lock_timeout_secs,
            write_timeout: match write_timeout_secs {
                0 => Duration::MAX,
                seconds => Duration::from_secs(seconds.into()),
            },
        })
    }
}

/// A connection whose first statement may not be answered yet, so that nobody waits for that.
pub(crate) struct Connected {
    client: Client,
    is_asked: bool,
}

impl Connected {
    /// The connection, ready for the next statement.
    pub(crate) fn ready(mut self) -> Result<Client> {
        if self.is_asked {
            let _phase = phase::enter(Kind::Query);
            let answers = self.client.receive_rows()?;
            let row = answers.first().and_then(|answer| answer.rows.first());
            if row.map(|row| row.text(0)).transpose()?.flatten() != Some("t") {
                self.client.found_other_process();
            }
        }
        Ok(self.client)
    }
}

fn check_schema(schema: &str, key: &str) -> Result<()> {
    ident::check_name(schema).map_err(|error| convert(error).at(key))?;
    refuse_system(schema, key)
}

fn refuse_system(schema: &str, key: &str) -> Result<()> {
    if !schema.starts_with("pg_") && schema != "information_schema" {
        return Ok(());
    }
    let name = key.trim_start_matches("config.");
    let text = format!("the schema {schema:?} is the server's own");
    Err(Error::config("invalid_name", text)
        .hint(format!("name another one with `{name}:`"))
        .at(key))
}

/// Schema and table of a stream. A name of more parts than two is not one of PostgreSQL: all behind
/// its first part is the table.
pub(crate) fn parts_of(stream: &str) -> (String, String) {
    if let Some(parts) = name::parts(stream) {
        match <[String; 2]>::try_from(parts) {
            Ok([schema, table]) if !schema.is_empty() && !table.is_empty() => {
                return (schema, table);
            }
            Err(parts) if parts.len() == 1 => return (DEFAULT_SCHEMA.to_owned(), parts.concat()),
            _ => {}
        }
    }
    match stream.split_once('.') {
        Some((schema, table)) if !schema.is_empty() && !table.is_empty() => {
            (schema.to_owned(), table.to_owned())
        }
        _ => (DEFAULT_SCHEMA.to_owned(), stream.to_owned()),
    }
}

/// The name of a table or schema from its pattern: each placeholder once, so that a name may contain one.
fn filled(pattern: &str, schema: &str, table: &str) -> String {
    let parts = pattern.split(STREAM);
    let parts: Vec<String> = parts.map(|part| part.replace(SCHEMA, schema)).collect();
    parts.join(table)
}

impl Settings {
    /// A connection on which `write_timeout` holds, and which may idle.
    pub(crate) fn connect(&self) -> Result<Connected> {
        let mut client = Client::connect(&self.server)?;
        client.set_reply_timeout(self.write_timeout);
        let is_asked = !client.is_pgbouncer();
        if is_asked {
            let is_process = client.is_process();
            let (timeout, since) = IDLE_TIMEOUT;
            let is_lifted = client.server_version() >= since && !self.server.sets(timeout);
            // Behind a pooler it would hold for whoever comes next, and the pooler's own limits count.
            let lift = match is_lifted {
                true => format!(
                    ", CASE WHEN {is_process} THEN pg_catalog.set_config('{timeout}', '0', false) END"
                ),
                false => String::new(),
            };
            client.send(&format!("SELECT {is_process}{lift}"))?;
        }
        Ok(Connected { client, is_asked })
    }

    /// The table of a stream. The name of the stream is `schema.table`, quoted where a part holds a dot, or a name
    /// without a schema. The operator's choice for the stream comes first. Errors: `invalid_name`.
    pub(crate) fn name_of(&self, target: &Target) -> Result<Name> {
        let stream = &target.stream;
        let (schema, table) = parts_of(stream);
        let chosen = |of_stream: &Option<String>, of_all: &Option<String>, own: &str| {
            let pattern = of_stream.as_ref().or(of_all.as_ref());
            pattern.map_or(own.to_owned(), |pattern| filled(pattern, &schema, &table))
        };
        let name = Name {
            schema: chosen(&target.namespace, &self.schema, &schema),
            table: chosen(&target.name, &self.table, &table),
        };
        for (text, key) in [(&name.schema, "schema"), (&name.table, "table")] {
            ident::check_name(text).map_err(|error| {
                let location = format!("config.{key}");
                convert(error)
                    .hint(format!(
                        "name another with `{key}:`, or with `target:` of the stream"
                    ))
                    .in_stream(stream)
                    .at(location)
            })?;
        }
        refuse_system(&name.schema, "config.schema").map_err(|error| error.in_stream(stream))?;
        if self.is_own(&name) {
            let text = format!(
                "{name} is a table of Rapidbyte itself, for checkpoints or runs \
                 at work"
            );
            return Err(Error::config("invalid_name", text)
                .hint("write to another table, or set another `checkpoint_schema:`")
                .in_stream(stream)
                .at("config.table"));
        }
        Ok(name)
    }

    /// Whether it is a table for checkpoints, runs at work or changes.
    pub(crate) fn is_own(&self, name: &Name) -> bool {
        let own = [CHECKPOINT_TABLE, BEAT_TABLE, CHANGE_TABLE];
        name.schema == self.checkpoint_schema && own.contains(&name.table.as_str())
    }

    /// The statement that sets the end of waiting for locks, with what separates it from the next;
    /// empty where none is configured.
    pub(crate) fn lock_limit(&self) -> String {
        match self.lock_timeout_secs {
            0 => String::new(),
            secs => format!("SET LOCAL lock_timeout = '{secs}s'; "),
        }
    }

    /// Whether a table may be replaced by a new one.
    pub(crate) fn may_swap(&self) -> bool {
        match self.replace_method {
            ReplaceMethod::Swap => true,
            ReplaceMethod::Auto => self.load_method == LoadMethod::Copy,
            ReplaceMethod::Delete | ReplaceMethod::Truncate => false,
        }
    }

    /// The schema that every stream goes to, if the configuration names one.
    pub(crate) fn fixed_schema(&self) -> Option<&str> {
        let is_fixed = |schema: &&str| !schema.contains(STREAM) && !schema.contains(SCHEMA);
        self.schema.as_deref().filter(is_fixed)
    }
}
