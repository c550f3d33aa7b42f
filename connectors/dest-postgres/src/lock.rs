//! Waits for a lock, and names the sessions that hold it.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;

const SAVEPOINT: &str = "SAVEPOINT rapidbyte_lock";
const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT rapidbyte_lock";
const RELEASE: &str = "RELEASE SAVEPOINT rapidbyte_lock";
/// The server's answer to NOWAIT: `lock_not_available`.
pub(crate) const NOT_AVAILABLE: &str = "pg_55P03";
pub(crate) const NO_PRIVILEGE: &str = "pg_42501";
/// More are not listed: one is enough to know whom to ask.
const MAX_LISTED: usize = 3;

/// How long a statement waits for a lock, in ms, before the run warns.
pub(crate) const PATIENCE_MS: u32 = 1000;
/// While a swap or a change of columns waits for its lock, later readers wait, too. So it waits for this long, in ms,
/// and lets the readers pass before it retries.
pub(crate) const SHORT_MS: u32 = 500;
pub(crate) const PAUSE: &str = "SELECT pg_catalog.pg_sleep(0.5)";
/// In ms; 0 for ever.
const LIMIT: &str = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'";

/// The sessions that `$WHO` are, the oldest transaction first. Queries of others are shown to
/// members of `pg_read_all_stats` only.
const SESSIONS: &str = "SELECT 'session ' || a.pid || ' of ' || coalesce(a.usename, '?') || ', for ' \
    || coalesce(extract(epoch FROM now() - a.xact_start)::int8, 0) || ' s, with: ' \
    || left(regexp_replace(coalesce(a.query, ''), E'\\\\s+', ' ', 'g'), 200) \
    FROM pg_catalog.pg_stat_activity a WHERE a.pid <> pg_catalog.pg_backend_pid() AND a.pid IN ( \
    SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.granted AND l.locktype = 'relation' \
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) \
    AND $WHO) ORDER BY a.xact_start";
/// They hold locks on a table.
const HOLDERS: &str = "l.relation = $TABLE::pg_catalog.regclass";
/// They are making tables that nobody else sees yet. The server does not show which tables.
const MAKERS: &str = "l.mode = 'AccessExclusiveLock' \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = l.relation)";

/// The sessions that wait for the lock of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nobody who reads or writes.
    Add,
    /// Other writers: of two runs at the same time the second waits, and then sees the rows that
    /// the first has committed.
    Replace,
    /// Readers, too, as TRUNCATE does: to take its lock later could end in a deadlock.
    Truncate,
}

/// A lock on a table for the length of a load.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub statement: String,
    /// False for the lock that COPY and INSERT take by themselves.
    is_needed: bool,
}

impl Lock {
    pub(crate) fn of(name: &Name, mode: Mode) -> Self {
        let text = match mode {
            Mode::Add => "ROW EXCLUSIVE",
            Mode::Replace => "SHARE ROW EXCLUSIVE",
            Mode::Truncate => "ACCESS EXCLUSIVE",
        };
        Self {
            statement: format!("LOCK TABLE {name} IN {text} MODE"),
            is_needed: mode != Mode::Add,
        }
    }

    /// The statements that take it where nobody else has one.
    pub(crate) fn attempt(&self) -> String {
        let statement = &self.statement;
        format!("{SAVEPOINT}; {statement} NOWAIT; {RELEASE}")
    }
}

/// Takes the lock in the transaction in which [`Lock::attempt`] has failed, and names the sessions that it
/// waits for. Returns `refused` where waiting does not help.
pub(crate) fn take(client: &mut Client, name: &Name, lock: &Lock, refused: Error) -> Result<()> {
    let statement = &lock.statement;
    let is_held = refused.code == NOT_AVAILABLE;
    // A role that may write only some columns may not lock the table.
    let may_do_without = refused.code == NO_PRIVILEGE && !lock.is_needed;
    if !is_held && !may_do_without {
        return Err(refused);
    }
    match client.simple_query(ROLLBACK) {
        Ok(_) if may_do_without => return Ok(()),
        Ok(_) => {}
        // It was something behind the lock.
        Err(_) if client.is_usable() => return Err(refused),
        Err(error) => return Err(error),
    }
    let holders = holders(client, &name.sql())?;
    log::warn(format!(
        "waits for a lock on {name}, which another session holds: {holders}"
    ));
    match client.simple_query(&format!("{statement}; {RELEASE}")) {
        Ok(_) => Ok(()),
        Err(error) if error.code == NOT_AVAILABLE => {
            Err(too_long(&format!("a lock on {name}"), &holders))
        }
        Err(error) => Err(error),
    }
}

/// The error of a wait for a row or a table that was too long, with the sessions that hold it. Other errors
/// stay as they are. The transaction is rolled back.
pub(crate) fn timed_out(client: &mut Client, error: Error, table: &str) -> Error {
    if error.code != NOT_AVAILABLE {
        return error;
    }
    let holders = holders(client, table).unwrap_or_default();
    too_long(&format!("rows of {table}"), &holders)
}

/// The sessions that hold locks on a table, for people.
pub(crate) fn holders(client: &mut Client, table: &str) -> Result<String> {
    sessions(client, &HOLDERS.replace("$TABLE", &quote_literal(table)))
}

/// Why a session does not advance.
pub(crate) struct Wait {
    /// For people.
    pub reason: String,
    /// Only a standby is waited for: everything else of the commit is done.
    pub is_for_standby: bool,
}

/// The reason why a session waits, other than its own work. `None` while it works.
pub(crate) fn waits_for(client: &mut Client, pid: i32) -> Result<Option<Wait>> {
    let sql = format!(
        "SELECT a.state, a.wait_event_type, a.wait_event FROM pg_catalog.pg_stat_activity AS a \
         WHERE a.pid = {pid} AND a.usename = current_user"
    );
    let answers = client.simple_query(&sql)?;
    let row = answers.first().and_then(|rows| rows.rows.first());
    let text = |column: usize| row.map_or(Ok(None), |row| row.text(column));
    let event = text(2)?.unwrap_or_default();
    let is_for_standby = event == "SyncRep";
    let reason = match (text(0)?, text(1)?) {
        (None, _) => "its session cannot be seen on the server".into(),
        (Some("active"), Some("Lock")) => {
            let blockers = format!("l.pid = ANY (pg_catalog.pg_blocking_pids({pid}))");
            let blockers = sessions(client, &blockers)?;
            format!("it waits for a lock ({event}), held by: {blockers}")
        }
        (Some("active"), Some(_)) if is_for_standby => "it waits for a synchronous standby".into(),
        (Some("active"), Some(kind @ ("Client" | "BufferPin"))) => {
            format!("it waits for {kind} {event}")
        }
        (Some("active"), _) => return Ok(None),
        (Some(state), _) => format!("its session is {state}, and did not answer"),
    };
    Ok(Some(Wait {
        reason,
        is_for_standby,
    }))
}

/// Names the sessions that the fence waits for.
pub(crate) fn warn_of_fence(client: &mut Client, table: &str) -> Result<()> {
    let holders = holders(client, table)?;
    log::warn(format!(
        "waits for the stream's row in {table}, which another session holds: {holders}"
    ));
    Ok(())
}

/// The error of a wait for a turn to create something that was too long. Other errors stay as they are.
pub(crate) fn no_turn(error: Error, what: &str) -> Error {
    match error.code == NOT_AVAILABLE {
        true => too_long(
            &format!("its turn to make {what}"),
            "another run that makes some",
        ),
        false => error,
    }
}

/// Lets one stream after another make schemas and types, until the end of the transaction.
pub(crate) fn lock_prelude() -> String {
    // One for all: what is locked is short.
    format!(
        "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext({}))",
        quote_literal("rapidbyte.schema")
    )
}

pub(crate) fn too_long(what: &str, holders: &str) -> Error {
    let text = format!("waited for {what} as long as lock_timeout allows; held by: {holders}");
    Error::new(ErrorKind::Transient, "lock_timeout", text)
        .hint("let the other session end (pg_terminate_backend ends it), or raise lock_timeout")
}

/// Runs the statement that creates the table, in the transaction that `begin` begins. Warns if it waits for
/// another session that creates a table of that name, too.
pub(crate) fn make(client: &mut Client, begin: &str, name: &Name, statement: &str) -> Result<()> {
    let answers = client.simple_query(&format!("{begin}; {SAVEPOINT}; {LIMIT}"))?;
    let limit = answers.last().map(Rows::single).transpose()?;
    let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(0);
    if !(1..=PATIENCE_MS).contains(&limit) {
        let tried = client.simple_query(&format!(
            "SET LOCAL lock_timeout = {PATIENCE_MS}; {statement}; SET LOCAL lock_timeout = {limit}; \
             {RELEASE}"
        ));
        match tried {
            Err(error) if error.code == NOT_AVAILABLE => {}
            tried => return tried.map(drop),
        }
        // The limit is as before then.
        client.simple_query(ROLLBACK)?;
        let makers = sessions(client, MAKERS)?;
        log::warn(format!(
            "waits to create {name}: another session may be creating it and has not committed: \
                 {makers}"
        ));
    }
    let makers = || "another session that makes a table of that name".to_owned();
    match client.simple_query(&format!("{statement}; {RELEASE}")) {
        Ok(_) => Ok(()),
        Err(error) if error.code == NOT_AVAILABLE => Err(too_long(&name.to_string(), &makers())),
        Err(error) => Err(error),
    }
}

/// A few sessions, for people.
fn sessions(client: &mut Client, who: &str) -> Result<String> {
    let answers = client.simple_query(&SESSIONS.replace("$WHO", who))?;
    let mut sessions = Vec::new();
    for row in answers.first().into_iter().flat_map(|rows| &rows.rows) {
        sessions.extend(row.text(0)?.map(str::to_owned));
    }
    let others = sessions.len().saturating_sub(MAX_LISTED);
    sessions.truncate(MAX_LISTED);
    if others > 0 {
        sessions.push(format!("and {others} more"));
    }
    if sessions.is_empty() {
        return Ok("it cannot be seen which".into());
    }
    Ok(sessions.join("; "))
}
