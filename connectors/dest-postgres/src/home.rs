//! The state that the streams of a session share: settings, an idle connection, and the tables of each stream.

use std::cell::Cell;

use rapidbyte_pg_client::Client;
use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::prelude::*;

use crate::config::{Connected, Settings};

/// Older servers lack parts of the catalog that the queries read.
const MIN_VERSION: u32 = 120_000;

pub(crate) struct Home {
    pub settings: Settings,
    /// The first connection. It connects as soon as the destination opens, while the engine still waits
    /// for the source. The first caller gets its error.
    first: Cell<Option<Result<Connected>>>,
    /// Connected and without a transaction.
    idle: Cell<Option<Client>>,
    /// Which stream each table belongs to, in this session.
    pub owners: Owners,
}

impl Home {
    pub(crate) fn open(settings: Settings) -> Self {
        Self {
            first: Cell::new(Some(settings.connect())),
            idle: Cell::new(None),
            owners: Owners::default(),
            settings,
        }
    }

    /// The idle connection, or a new one.
    pub(crate) fn client(&self) -> Result<Client> {
        let client = match self.idle.take() {
            Some(client) if client.is_usable() => client,
            _ => match self.first.take() {
                Some(connected) => connected?.ready()?,
                None => self.settings.connect()?.ready()?,
            },
        };
        if client.server_version() < MIN_VERSION {
            let text = format!("{}; 12 is needed", version_text(&client));
            return Err(Error::config("old_server", text).hint("upgrade the server"));
        }
        Ok(client)
    }

    pub(crate) fn keep(&self, client: Client) {
        if client.is_usable() {
            self.idle.set(Some(client));
        }
    }
}

pub(crate) fn version_text(client: &Client) -> String {
    let version = client.parameter("server_version").unwrap_or("unknown");
    format!("PostgreSQL {version}")
}

/// The error that ends a load. The server keeps nothing of a load that lost its connection, unless
/// the outcome of its commit is unknown.
pub(crate) fn given_up(error: Error) -> Error {
    if !matches!(error.kind, ErrorKind::Connection) || error.code == "commit_unknown" {
        return error;
    }
    let next = error.hint.clone();
    let next = next.unwrap_or_else(|| "run again once the server is back".into());
    error.hint(format!("nothing of this load is visible; {next}"))
}
