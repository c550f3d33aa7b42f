//! Waiting for a lock, and saying for whom.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;

const SAVEPOINT: &str = "SAVEPOINT rapidbyte_lock";
const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT rapidbyte_lock";
const RELEASE: &str = "RELEASE SAVEPOINT rapidbyte_lock";
/// What the server says to NOWAIT: `lock_not_available`.
const NOT_AVAILABLE: &str = "pg_55P03";
const NO_PRIVILEGE: &str = "pg_42501";
/// More are not listed: one is enough to know whom to ask.
const MAX_LISTED: usize = 3;

/// Who holds locks on a table, the oldest transaction first. Queries of others are shown to members
/// of `pg_read_all_stats` only.
const HOLDERS: &str = "SELECT 'session ' || a.pid || ' of ' || coalesce(a.usename, '?') || ', for ' \
    || coalesce(extract(epoch FROM now() - a.xact_start)::int8, 0) || ' s, with: ' \
    || left(regexp_replace(coalesce(a.query, ''), E'\\\\s+', ' ', 'g'), 200) \
    FROM pg_catalog.pg_stat_activity a WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.pid IN ( \
    SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.granted AND l.locktype = 'relation' \
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) \
    AND l.relation = $TABLE::pg_catalog.regclass) ORDER BY a.xact_start";

/// A lock on a table for the length of a load.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub statement: String,
    /// False for the lock that COPY and INSERT take by themselves.
    is_needed: bool,
}

impl Lock {
    /// For replace one that others who write wait for: of two runs at a time the second waits, and
    /// then sees what the first has committed.
    pub(crate) fn of(name: &Name, replaces: bool) -> Self {
        let mode = match replaces {
            true => "SHARE ROW EXCLUSIVE",
            false => "ROW EXCLUSIVE",
        };
        Self {
            statement: format!("LOCK TABLE {name} IN {mode} MODE"),
            is_needed: replaces,
        }
    }
}

/// Takes the lock, and says whom it waits for when that takes longer. The transaction must be
/// open.
pub(crate) fn take(client: &mut Client, name: &Name, lock: &Lock) -> Result<()> {
    let statement = &lock.statement;
    client.simple_query(SAVEPOINT)?;
    match client.simple_query(&format!("{statement} NOWAIT")) {
        Ok(_) => return client.simple_query(RELEASE).map(drop),
        // Who may write to some columns alone may not lock.
        Err(error) if error.code == NO_PRIVILEGE && !lock.is_needed => {
            return client.simple_query(ROLLBACK).map(drop);
        }
        Err(error) if error.code == NOT_AVAILABLE => {}
        Err(error) => return Err(error),
    }
    client.simple_query(ROLLBACK)?;
    let question = HOLDERS.replace("$TABLE", &quote_literal(&name.to_string()));
    let answers = client.simple_query(&question)?;
    let mut holders = Vec::new();
    for row in answers.first().into_iter().flat_map(|rows| &rows.rows) {
        holders.extend(row.text(0)?.map(str::to_owned));
    }
    let others = holders.len().saturating_sub(MAX_LISTED);
    holders.truncate(MAX_LISTED);
    if others > 0 {
        holders.push(format!("and {others} more"));
    }
    log::warn(format!(
        "waits for a lock on {name}, which another session holds: {}",
        holders.join("; ")
    ));
    client.simple_query(statement)?;
    client.simple_query(RELEASE).map(drop)
}
