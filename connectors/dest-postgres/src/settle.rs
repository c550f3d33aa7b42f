//! A COMMIT whose answer is lost: whether it happened, asked over a new connection.
//!
//! The server remembers what became of a transaction by its number (PostgreSQL manual,
//! "Transaction ID and Snapshot Information Functions"). That holds for the server that gave the
//! number and as long as it runs: another that took its place may have given the number again.

use rapidbyte_pg_client::{Client, Settings as Server};
use rapidbyte_sdk::prelude::*;

/// A server that has not yet seen that the connection is gone, or waits for a replica, calls the
/// transaction in progress: it is asked so often, with this pause, ten seconds in all.
const MAX_QUESTIONS: usize = 100;
const PAUSE: &str = "SELECT pg_catalog.pg_sleep(0.1)";

/// Names the running server: the moment it was started, in µs.
const STARTED: &str =
    "(EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::pg_catalog.int8";

/// A transaction that is about to be committed.
pub(crate) struct Pending {
    transaction: String,
    server_started: String,
}

impl Pending {
    /// Of the open transaction.
    pub(crate) fn of(client: &mut Client) -> Result<Self> {
        let sql = format!("SELECT pg_catalog.txid_current(), {STARTED}");
        let answers = client.simple_query(&sql)?;
        let row = answers.first().and_then(|rows| rows.rows.first());
        let text = |column| row.map_or(Ok(None), |row| row.text(column));
        match (text(0)?, text(1)?) {
            (Some(transaction), Some(started)) => Ok(Self {
                transaction: transaction.into(),
                server_started: started.into(),
            }),
            _ => Err(Error::internal("a transaction without a number")),
        }
    }

    /// Gives a connection if the transaction is committed, and `error` if it is not.
    /// `commit_unknown` where nobody can say.
    pub(crate) fn settle(&self, server: &Server, error: Error) -> Result<Client> {
        match self.ask(server) {
            Ok(Some((client, true))) => Ok(client),
            Ok(Some((_, false))) => Err(error),
            Ok(None) | Err(_) => {
                let text = format!(
                    "no answer came to the commit, which may have happened: {}",
                    error.message
                );
                Err(Error::data("commit_unknown", text)
                    .hint("look whether the rows are there before you run again"))
            }
        }
    }

    /// Whether it is committed; nothing if the server does not know.
    fn ask(&self, server: &Server) -> Result<Option<(Client, bool)>> {
        let mut client = Client::connect(server)?;
        let sql = format!("SELECT {STARTED}");
        let answers = client.simple_query(&sql)?;
        let started = answers.first().map(rapidbyte_pg_client::Rows::single);
        if started.transpose()? != Some(self.server_started.as_str()) {
            return Ok(None);
        }
        let sql = format!("SELECT pg_catalog.txid_status({})", self.transaction);
        for _ in 0..MAX_QUESTIONS {
            let answers = client.simple_query(&sql)?;
            let row = answers.first().and_then(|rows| rows.rows.first());
            match row.map(|row| row.text(0)).transpose()?.flatten() {
                Some("committed") => return Ok(Some((client, true))),
                Some("aborted") => return Ok(Some((client, false))),
                Some("in progress") => client.simple_query(PAUSE)?,
                _ => return Ok(None),
            };
        }
        Ok(None)
    }
}
