//! How a transaction begins, and what holds in it.

use rapidbyte_pg::catalog::ENDS_WITH_CLIENT;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;

/// Overrides the role's default: after a wait for a lock, the load must see the commits of others.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Limits of a role or database that are meant for people: a load takes as long as it takes, and
/// between two batches waits for the source. The version that brought each.
const TIMEOUTS: [(&str, u32); 3] = [
    ("statement_timeout", 0),
    ("idle_in_transaction_session_timeout", 0),
    ("transaction_timeout", 170_000),
];
/// Of triggers and rules: with thousands of notices for a batch the server would wait until they are read,
/// and we until it reads rows.
const NOTICES: &str = "client_min_messages";
/// Triggers, rules and defaults may count on the user's own path.
pub(crate) const OWN_PATH: &str = "SET LOCAL search_path TO DEFAULT";
/// The catalog then returns names with their schema.
pub(crate) const NO_PATH: &str = "SET LOCAL search_path = ''";

/// Begins a transaction that may wait: with limits as the operator wrote them or none, and given up by the server when we are
/// gone, also while it waits for a lock. So a stopped run blocks nobody, and does nothing when it gets the lock at last. The
/// statements give no rows.
pub(crate) fn begin(client: &Client, settings: &Settings) -> String {
    let (limit, lifted) = (settings.lock_limit(), unhurried(client, settings));
    let quiet = match settings.server.sets(NOTICES) {
        true => String::new(),
        false => format!("SET LOCAL {NOTICES} = error; "),
    };
    format!("{BEGIN}; {limit}{lifted}{quiet}{ENDS_WITH_CLIENT}")
}

/// The statements that lift the limits which the operator did not write, with what separates them
/// from the next.
pub(crate) fn unhurried(client: &Client, settings: &Settings) -> String {
    let lifted = TIMEOUTS.iter().filter(|(timeout, since)| {
        client.server_version() >= *since && !settings.server.sets(timeout)
    });
    lifted
        .map(|(timeout, _)| format!("SET LOCAL {timeout} = 0; "))
        .collect()
}

/// A server that takes no rows.
pub(crate) fn read_only(in_recovery: bool) -> Error {
    if in_recovery {
        Error::config(
            "read_only_server",
            "the server is a standby, which cannot take rows",
        )
        .hint("connect to the primary, or name all servers and set target_session_attrs=primary")
    } else {
        Error::config(
            "read_only_server",
            "transactions are read-only here (default_transaction_read_only = on)",
        )
        .hint(
            "run ALTER ROLE … SET default_transaction_read_only = off, or connect to another \
             server",
        )
    }
}
