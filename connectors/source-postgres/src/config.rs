//! What stands under `config:`, and what it comes to.
//!
//! The keys of the connection are libpq's; what they mean is the crate `rapidbyte-pg-client`'s.

use std::ops::RangeInclusive;
use std::time::Duration;

use rapidbyte_pg_client::{Fields, Settings};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

/// Read from the connection at a time, if nothing else is said. Measured with 1M rows of seven
/// columns on one machine: from 16 KiB to 256 KiB it makes no difference.
const FETCH_BYTES: u32 = 64 << 10;
/// Less costs a call for every few rows, more is only held and not read faster.
const FETCH_RANGE: RangeInclusive<u32> = 4 << 10..=16 << 20;

/// A sort of a large table takes minutes before its first row comes.
const READ_TIMEOUT_S: u32 = 900;

/// What stands under `config:`. Either `url`, or `host` and `user` with what else is needed.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`; several servers as
    /// `host1:port,host2:port`. The keys below may stand beside it, but not contradict it.
    #[schemars(extend("x-grant" = "url", "x-secret" = true))]
    pub url: Option<String>,
    /// The server's name or address. Several servers need a `url`.
    #[schemars(extend("x-grant" = "host"))]
    pub host: Option<String>,
    /// The server's port.
    #[schemars(extend("x-grant" = "port", "default" = 5432))]
    pub port: Option<u16>,
    /// The role to log in as.
    pub user: Option<String>,
    /// Its password.
    #[schemars(extend("x-secret" = true))]
    pub password: Option<String>,
    /// The database; the user's name if absent.
    pub database: Option<String>,
    /// `disable`, `allow`, `prefer` (if absent), `require`, `verify-ca` or `verify-full`.
    #[schemars(extend("x-grant" = "tls-mode"))]
    pub sslmode: Option<String>,
    /// A PEM file with certificates of authorities, or `system`.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The client's certificate, a PEM file.
    #[schemars(extend("x-grant" = "tls-cert"))]
    pub sslcert: Option<String>,
    /// The key of `sslcert`, a PEM file.
    #[schemars(extend("x-grant" = "tls-key"))]
    pub sslkey: Option<String>,
    /// Options for the server, such as `-c statement_timeout=5min`.
    pub options: Option<String>,
    /// Shown in `pg_stat_activity`; `rapidbyte` if absent.
    pub application_name: Option<String>,
    /// Seconds for each server; 30 if absent, 0 for ever.
    pub connect_timeout: Option<u32>,
    /// `disable`, `prefer` (if absent) or `require`.
    pub channel_binding: Option<String>,
    /// `any` (if absent), `read-write`, `read-only`, `primary`, `standby` or `prefer-standby`.
    pub target_session_attrs: Option<String>,
    /// How much is read from the connection at a time, in bytes: 4096 to 16777216.
    #[schemars(extend("default" = 65536, "minimum" = 4096, "maximum" = 16777216))]
    pub fetch_bytes: Option<u32>,
    /// Seconds that the server may say nothing while rows or an answer are waited for; 900 if absent,
    /// 0 for ever. A sort before the first row counts.
    #[schemars(extend("default" = 900))]
    pub read_timeout: Option<u32>,
}

/// A configuration without open questions.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub connection: Settings,
    pub fetch_bytes: u32,
    /// Zero: for ever.
    pub read_timeout: Duration,
}

impl Settled {
    /// The operator wants what row-level security shows of a table, whatever that leaves out.
    pub fn takes_visible_rows(&self) -> bool {
        self.connection.sets("row_security")
    }
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settled> {
        let fetch_bytes = self.fetch_bytes.unwrap_or(FETCH_BYTES);
        if !FETCH_RANGE.contains(&fetch_bytes) {
            let (low, high) = (FETCH_RANGE.start(), FETCH_RANGE.end());
            return Err(Error::config(
                "invalid_config",
                format!("{fetch_bytes} is not from {low} to {high}"),
            )
            .hint(format!("leave it out: {FETCH_BYTES} is enough"))
            .at("config.fetch_bytes"));
        }
        let fields = Fields {
            host: self.host,
            port: self.port,
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
        Ok(Settled {
            connection: Settings::from_config(self.url.as_deref(), fields)?,
            fetch_bytes,
            read_timeout: Duration::from_secs(self.read_timeout.unwrap_or(READ_TIMEOUT_S).into()),
        })
    }
}
