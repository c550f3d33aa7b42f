//! The keys under `config:`, and the settings that they make.
//!
//! The keys of the connection are libpq's; the crate `rapidbyte-pg-client` gives them their meaning.

use std::ops::RangeInclusive;
use std::time::Duration;

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::{self, numeric_typmod, to_numeric_typmod};
use rapidbyte_pg::model::{Kind, PgType};
use rapidbyte_pg_client::{Fields, Settings};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

/// Bytes to read from the connection at a time, unless `fetch_bytes` is set. Measured with 1M rows of seven
/// columns on one machine: from 16 KiB to 256 KiB it makes no difference.
const FETCH_BYTES: u32 = 64 << 10;
/// Less costs a call for every few rows, more is only held and not read faster.
const FETCH_RANGE: RangeInclusive<u32> = 4 << 10..=16 << 20;

const NUMERIC: u32 = builtin::NUMERIC.oid;

/// A sort of a large table takes minutes before its first row comes.
const READ_TIMEOUT_S: u32 = 900;

/// The keys under `config:`. Either `url`, or `host`, `user` and the other keys of the connection.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-plans-again" = true))]
pub struct Config {
    /// `postgres://user:password@host:port/database?sslmode=…`; for several servers
    /// `host1:port,host2:port`. The keys below may be set as well, but must not contradict the URL.
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
    /// The database (default: the user's name).
    pub database: Option<String>,
    /// `disable`, `allow`, `prefer` (the default), `require`, `verify-ca` or `verify-full`.
    #[schemars(extend("x-grant" = "tls-mode"))]
    pub sslmode: Option<String>,
    /// A PEM file with the certificates of authorities to trust, or `system`.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// A PEM file with the client's certificate.
    #[schemars(extend("x-grant" = "tls-cert"))]
    pub sslcert: Option<String>,
    /// A PEM file with the key of `sslcert`.
    #[schemars(extend("x-grant" = "tls-key"))]
    pub sslkey: Option<String>,
    /// Options for the server, such as `-c statement_timeout=5min`.
    pub options: Option<String>,
    /// The name in `pg_stat_activity` (default `rapidbyte`).
    pub application_name: Option<String>,
    /// The time limit for connecting to each server, in seconds (default 30; 0 for no limit).
    pub connect_timeout: Option<u32>,
    /// `disable`, `prefer` (the default) or `require`.
    pub channel_binding: Option<String>,
    /// `any` (the default), `read-write`, `read-only`, `primary`, `standby` or `prefer-standby`.
    pub target_session_attrs: Option<String>,
    /// The number of bytes to read from the connection in one step, 4096 to 16777216.
    #[schemars(extend("default" = 65536, "minimum" = 4096, "maximum" = 16777216))]
    pub fetch_bytes: Option<u32>,
    /// The maximum wait for rows or an answer in seconds (default 900; 0 for no limit). A sort
    /// before the first row counts.
    #[schemars(extend("default" = 900))]
    pub read_timeout: Option<u32>,
    /// Read columns of type `numeric` without a precision as decimals with this many digits
    /// (default: as text). A value that does not fit is refused, never rounded. A PostgreSQL
    /// destination gets `numeric` unchanged.
    pub numeric: Option<Numeric>,
}

/// The digits of a decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "the digits, such as { precision: 38, scale: 9 } (text if the key is left out)"
)]
pub struct Numeric {
    /// The total number of digits: 1 to 76.
    #[schemars(range(min = 1, max = 76))]
    pub precision: u16,
    /// The number of digits after the point, at most `precision`.
    #[schemars(range(min = 0, max = 76))]
    pub scale: i16,
}

/// The most digits of a decimal in Arrow.
const MAX_PRECISION: u16 = 76;

impl Numeric {
    /// True for a `numeric` without a precision, below a domain or in an array too.
    pub(crate) fn is_missing(column: &Column) -> bool {
        let (base, typmod) = column.stripped();
        let (of, typmod) = match &base.kind {
            Kind::Array { element } => element.stripped(typmod),
            _ => (base, typmod),
        };
        !column.is_nested() && of.oid == NUMERIC && numeric_typmod(typmod).is_none()
    }

    fn settle(self) -> Result<Self> {
        let Self { precision, scale } = self;
        let (key, text) = if !(1..=MAX_PRECISION).contains(&precision) {
            (
                "precision",
                format!("{precision} is not from 1 to {MAX_PRECISION}"),
            )
        } else if !(0..=precision).contains(&u16::try_from(scale).unwrap_or(u16::MAX)) {
            (
                "scale",
                format!("{scale} is not from 0 to the precision {precision}"),
            )
        } else {
            return Ok(self);
        };
        Err(Error::config("invalid_config", text)
            .hint(
                "write, for example, numeric: { precision: 38, scale: 9 }, which has 29 digits \
                 before the point and 9 after it",
            )
            .at(format!("config.numeric.{key}")))
    }
}

/// A configuration without open questions.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub connection: Settings,
    pub fetch_bytes: u32,
    /// Zero: for ever.
    pub read_timeout: Duration,
    /// The type of bare numerics, where the destination does not take PostgreSQL's own values.
    pub numeric: Option<Numeric>,
}

impl Settled {
    /// Gives `numeric` columns without a precision the digits of the configuration.
    pub fn fix_numerics(&self, columns: &mut [Column], native: bool) {
        let Some(Numeric { precision, scale }) = self.numeric.filter(|_| !native) else {
            return;
        };
        for column in columns {
            if Numeric::is_missing(column) {
                column.ty = column.stripped().0.clone();
                column.typmod = to_numeric_typmod(precision, scale);
                if let Kind::Array { element } = &mut column.ty.kind {
                    limit(element, column.typmod);
                }
            }
        }
    }

    /// The operator wants what row-level security shows of a table, whatever that leaves out.
    pub fn takes_visible_rows(&self) -> bool {
        self.connection.sets("row_security")
    }
}

/// Gives the type below domains a modifier: an array does not pass its own on to a domain.
fn limit(ty: &mut PgType, limit: i32) {
    let mut ty = ty;
    while let Kind::Domain { base, typmod, .. } = &mut ty.kind {
        *typmod = limit;
        ty = base;
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
            .hint(format!("remove the key, or set at most {FETCH_BYTES}"))
            .at("config.fetch_bytes"));
        }
        let numeric = self.numeric.map(Numeric::settle).transpose()?;
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
            numeric,
        })
    }
}
