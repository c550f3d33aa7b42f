//! Transactions that all read one consistent snapshot.
//!
//! The session of a run opens one transaction, locks the tables against changes of their shape,
//! and only then takes and exports its snapshot; each reader imports it. The order matters: a
//! table that `ALTER TABLE` or `TRUNCATE` rewrites between a snapshot and its read looks empty
//! under that snapshot (PostgreSQL manual, "Caveats" of "Concurrency Control"), and nothing would
//! say so. Views, and tables that the role may read only in part, are not locked first. A plan of their query holds
//! them, and then the server is asked whether anything that is held was rewritten since the snapshot ([`REWRITTEN`]). A
//! table that only a function reads is held once the function has read it, so the server is asked again after the last
//! row of a query.
//! Everything is set within the transaction, so that a pooler that gives a server for the length
//! of a transaction will do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rapidbyte_pg::catalog::{self, ENDS_WITH_CLIENT, SESSION_SETTINGS, oid_array};
use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::{Client, Host, Rows};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ask::query;
use crate::below::{NO_PRIVILEGE, add_missing, add_refused};
use crate::config::Settled;
use crate::copies::selected;
use crate::error::about;
use crate::relation::{self, Missing, Relation, Seen, Wanted};
use crate::stall::{Backend, FIRST_ROWS, Of, lock_queued};
use crate::trial::{trial, try_out};

/// The oldest server whose catalog we know.
pub(crate) const OLDEST: u32 = 120_000;
/// Limits that a server may set for short transactions, and the version that has each.
const TIMEOUTS: [(&str, u32); 4] = [
    ("statement_timeout", 0),
    ("lock_timeout", 0),
    ("idle_in_transaction_session_timeout", 0),
    ("transaction_timeout", 170_000),
];
/// Descriptions of tables come whole; a table has 1600 columns at most, and expressions and
/// comments have no limit.
const MAX_CATALOG_BYTES: usize = 64 << 20;
/// The server's answer to NOWAIT when a lock is taken: `lock_not_available`.
const NOT_AVAILABLE: &str = "pg_55P03";
const NOWAIT: &str = " NOWAIT";
/// The sessions that keep readers off tables, the oldest transaction first.
const HOLDERS: &str = "\
SELECT pg_catalog.concat_ws(' ', l.relation::pg_catalog.regclass, 'by process', l.pid, 'of',
    COALESCE(a.usename, a.backend_type), '(' || a.state || '):',
    pg_catalog.left(pg_catalog.regexp_replace(a.query, '\\s+', ' ', 'g'), 200))
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
    AND l.relation = ANY ($RELATIONS)
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database())
ORDER BY a.xact_start LIMIT 3";
/// A relation that this transaction holds and that was rewritten since the snapshot: `pg_class` shows the storage as of
/// the snapshot, `pg_relation_filenode` the storage of now. Relations that are younger than the snapshot count, their
/// indexes do not.
const REWRITTEN: &str = "\
SELECT l.relation::pg_catalog.regclass::text
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database())
    AND CASE WHEN c.oid IS NULL THEN pg_catalog.pg_get_indexdef(l.relation) IS NULL
        ELSE c.relkind IN ('r', 'm') AND c.relfilenode <> 0
            AND c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid) END
ORDER BY 1 LIMIT 1";
/// Snapshots that are taken before a table that is rewritten again and again ends the run.
const MAX_SNAPSHOTS: u32 = 3;
/// How long a reader waits for the locks of its stream before it begins to read. The session of the
/// snapshot holds them, so that only a change that waits for that session can stand before the reader;
/// one with a `lock_timeout` of its own may be gone by then.
const LOCK_PATIENCE: &str = "5s";
/// Undoes the [`NO_WORKERS`] of an earlier stream.
const WORKERS_AS_SET: &str = "SET LOCAL max_parallel_workers_per_gather = DEFAULT";
/// Nobody sees which tables a parallel worker's functions have read: its locks end with it.
pub(crate) const NO_WORKERS: &str = "SET LOCAL max_parallel_workers_per_gather = 0";
/// Tables in one LOCK statement.
const LOCK_TABLES: usize = 500;

/// Gives the snapshot to other sessions.
const EXPORT: &str = "SELECT pg_catalog.pg_export_snapshot()";
/// At most this many streams are checked in one send.
const MAX_AT_ONCE: usize = 200;

/// A snapshot that readers can join.
pub(crate) struct Exported {
    /// A [`Token`] as JSON.
    pub token: String,
    /// The only stream, if the transaction has described it already.
    pub seen: Option<Seen>,
}

/// The JSON that the session hands to its readers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The result of `pg_export_snapshot`.
    snapshot: String,
    /// The server that knows it.
    host: String,
    port: u16,
    /// How many streams are read under it.
    streams: usize,
}

/// The transaction of a reader that is done, for the next reader under the same snapshot. A run of
/// many small tables logs in once for each worker instead of once for each table.
#[derive(Clone, Default)]
pub(crate) struct Joined(Arc<Mutex<Left>>);

/// The connections that readers have left.
#[derive(Default)]
struct Left {
    /// In a transaction under this token.
    joined: Option<(Client, String)>,
    /// Without a transaction, for the next run of the session.
    free: Option<Client>,
}

impl Joined {
    /// The transaction under `token`, if there is one that still works.
    pub(crate) fn take(&self, token: &str) -> Option<Client> {
        let (client, of) = self.left().joined.take()?;
        (of == token && client.is_usable()).then_some(client)
    }

    /// Keeps a transaction under `token` if other streams are read under it, else ends it.
    pub(crate) fn put(&self, mut client: Client, token: &str) {
        let token_of = serde_json::from_str(token);
        match token_of.is_ok_and(|token: Token| token.streams > 1) {
            true => self.left().joined = Some((client, token.to_owned())),
            false => self.left().free = client.send_rollback().is_ok().then_some(client),
        }
    }

    /// A connection without a transaction, if a reader has left one that still works.
    pub(crate) fn free(&self) -> Option<Client> {
        self.left().free.take().filter(Client::is_usable)
    }

    /// Closes the connections.
    pub(crate) fn close(&self) {
        let Left { joined, free } = std::mem::take(&mut *self.left());
        let joined = joined.map(|(client, _)| client);
        joined.into_iter().chain(free).for_each(Client::close);
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and refuses a server that is too old.
pub(crate) fn connect(settings: &Settled) -> Result<Client> {
    let mut client = Client::connect(&settings.connection)?;
    client.set_read_bytes(settings.fetch_bytes);
    client.set_max_result_bytes(MAX_CATALOG_BYTES);
    client.set_reply_timeout(match settings.read_timeout {
        Duration::ZERO => Duration::MAX,
        limit => limit,
    });
    check_version(&client)?;
    Ok(client)
}

/// Refuses a server that is too old.
pub(crate) fn check_version(client: &Client) -> Result<()> {
    if client.server_version() >= OLDEST {
        return Ok(());
    }
    let version = client.parameter("server_version").unwrap_or("unknown");
    Err(Error::config(
        "server_too_old",
        format!("the server's version is {version}"),
    )
    .hint("upgrade the server to PostgreSQL 12 or newer"))
}

/// Begins a transaction that reads, with the session's settings; runs no query yet.
fn begin(client: &mut Client, settings: &Settled, snapshot: Option<&str>) -> Result<()> {
    client.execute(&beginning(client, settings, snapshot))?;
    Ok(())
}

/// The statements of a transaction that reads: its begin and the session's settings.
pub(crate) fn beginning(client: &Client, settings: &Settled, snapshot: Option<&str>) -> String {
    let mut sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ".to_owned();
    if let Some(id) = snapshot {
        sql += &format!("SET TRANSACTION SNAPSHOT {}; ", quote_literal(id));
    }
    let version = client.server_version();
    for (name, since) in TIMEOUTS {
        // A limit that the operator set stays.
        if version >= since && !settings.connection.sets(name) {
            sql += &format!("SET {name} = 0; ");
        }
    }
    if let Some(limit) = snapshot.and_then(|_| lock_timeout(settings, LOCK_PATIENCE)) {
        sql += &format!("{limit}; ");
    }
    if !settings.takes_visible_rows() {
        // The server then refuses what policies would filter, below a view too.
        sql += "SET row_security = off; ";
    }
    format!("{sql}{SESSION_SETTINGS}; {ENDS_WITH_CLIENT}")
}

/// The statement that limits how long locks are waited for; what the operator wrote stays.
fn lock_timeout(settings: &Settled, limit: &str) -> Option<String> {
    let is_ours = !settings.connection.sets("lock_timeout");
    is_ours.then(|| format!("SET LOCAL lock_timeout = '{limit}'"))
}

/// Makes the transaction of a reader, which has read a stream, as one that has just joined.
pub(crate) fn renew(client: &mut Client, settings: &Settled) -> Result<()> {
    let limit = lock_timeout(settings, LOCK_PATIENCE).into_iter();
    let statements: Vec<String> = limit.chain([WORKERS_AS_SET.to_owned()]).collect();
    client.execute(&statements.join("; "))?;
    Ok(())
}

/// The settings that lead to the server of a snapshot, and that server's name of it.
pub(crate) fn at(settings: &Settled, token: &str) -> Result<(Settled, String)> {
    let token: Token = serde_json::from_str(token)
        .map_err(|error| Error::internal(format!("the snapshot's token: {error}")))?;
    let mut settings = settings.clone();
    // Of several servers only this one knows the snapshot.
    settings
        .connection
        .hosts
        .retain(|host| host.name == token.host && host.port == token.port);
    if settings.connection.hosts.is_empty() {
        let text = format!(
            "the snapshot belongs to {}, which the configuration does not name",
            token.server()
        );
        return Err(Error::internal(text));
    }
    Ok((settings, token.snapshot))
}

/// Connects and begins the transaction of one reader, under the session's snapshot.
pub(crate) fn join(settings: &Settled, token: &str) -> Result<Client> {
    let (settings, snapshot) = at(settings, token)?;
    let mut client = connect(&settings)?;
    begin(&mut client, &settings, Some(&snapshot)).map_err(|error| {
        match error.code.as_str() {
            // Invalid parameter, undefined object: which of them depends on the version.
            "pg_22023" | "pg_42704" => Error::new(
                ErrorKind::Connection,
                "snapshot_gone",
                format!(
                    "the server no longer has the snapshot of this run: {}",
                    error.message
                ),
            )
            .hint(
                "run again, and name one server: the run's first connection was lost, or the \
                     address leads to several servers",
            ),
            _ => error,
        }
    })?;
    Ok(client)
}

/// Locks the streams' tables and takes the snapshot that all readers will see. The client must be
/// kept for as long as they begin. `known` are relations as they were a moment ago.
pub(crate) fn export(
    client: &mut Client,
    settings: &Settled,
    selections: &[Selection],
    known: &[Relation],
) -> Result<Exported> {
    if let Some(known) = plain(selections, known) {
        if let Some(exported) = export_at_once(client, settings, selections, &known)? {
            return Ok(exported);
        }
        client.execute("ROLLBACK")?;
    }
    export_in_steps(client, settings, selections)
}

/// The relations of a few streams, if all are known and are read whole.
fn plain<'a>(selections: &[Selection], known: &'a [Relation]) -> Option<Vec<&'a Relation>> {
    let is_plain = |s: &Selection| {
        s.filter.is_none() && s.increment.is_none() && s.cursor.is_none() && s.query.is_none()
    };
    if !(1..=MAX_AT_ONCE).contains(&selections.len()) || !selections.iter().all(is_plain) {
        return None;
    }
    let known: HashMap<String, &Relation> = known.iter().map(|r| (r.stream(), r)).collect();
    let named = selections.iter().map(|s| known.get(&s.stream).copied());
    named.collect()
}

/// Everything in one send, where it is as it was a moment ago; nothing where something stands
/// against it, for [`export_in_steps`] to say what.
fn export_at_once(
    client: &mut Client,
    settings: &Settled,
    selections: &[Selection],
    known: &[&Relation],
) -> Result<Option<Exported>> {
    let names: Vec<String> = selections.iter().map(|s| s.stream.clone()).collect();
    let oids: Vec<u32> = known.iter().map(|relation| relation.oid).collect();
    let is_alone = oids.len() == 1;
    let mut statements = vec![beginning(client, settings, None)];
    let tables = lockable(known.iter().copied());
    if !tables.is_empty() {
        statements.push(lock_statement(&tables, NOWAIT));
    }
    statements.push(relation::by_name(&names));
    if is_alone {
        statements.push(catalog::shapes_query(&oids));
    }
    let trials = selections.iter().zip(known);
    statements.extend(trials.map(|(s, relation)| trial(&selected(s, relation))));
    statements.extend([REWRITTEN.into(), EXPORT.into()]);
    let questions = 3 + usize::from(is_alone) + selections.len();
    let mut answers = match client.query_each(&statements.join("; "), questions) {
        Ok(answers) => answers,
        Err(_) if client.is_usable() => return Ok(None),
        Err(error) => return Err(error),
    };
    let snapshot = answers.pop().unwrap_or_default();
    let rewritten = answers.pop().unwrap_or_default();
    if !rewritten.rows.is_empty() {
        return Ok(None);
    }
    let found = relation::parse(&answers[0])?;
    let same = |known: &&Relation| {
        let mut named = found.iter().filter(|r| r.stream() == known.stream());
        let relation = named
            .next()
            // One that may be read whole by now is not locked yet.
            .filter(|r| r.is_readable_whole() == known.is_readable_whole())
            .filter(|r| (r.oid, r.kind) == (known.oid, known.kind));
        relation.filter(|r| r.refuse_unreadable(settings).is_ok() && named.next().is_none())
    };
    let Some(relations) = known.iter().map(same).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let seen = match relations.as_slice() {
        [relation] => relation::understand(client, &answers[1])?
            .pop()
            .transpose()
            .map_err(|error| about(error, &relation.stream()))?
            .map(|described| Seen {
                relation: (*relation).clone(),
                described,
            }),
        _ => None,
    };
    let token = Token::new(client, &snapshot, selections.len())?.to_json()?;
    Ok(Some(Exported { token, seen }))
}

fn export_in_steps(
    client: &mut Client,
    settings: &Settled,
    selections: &[Selection],
) -> Result<Exported> {
    let wanted: Vec<Wanted> = selections.iter().map(Wanted::of).collect();
    for attempt in 1.. {
        let relations = match pin(client, settings, &wanted) {
            Err(error) if error.code == "no_privilege" => {
                return Err(all_missing(client, settings, selections, &wanted, error)?);
            }
            relations => relations?,
        };
        for relation in &relations {
            relation.refuse_partition()?;
        }
        let mut missing = Missing::default();
        for (selection, relation) in selections.iter().zip(&relations) {
            match try_out(client, settings, selection, relation) {
                // The other streams are tried too: their privileges go into the same script.
                Err(error) if error.code == NO_PRIVILEGE && client.is_usable() => {
                    client.execute("ROLLBACK")?;
                    begin(client, settings, None)?;
                    add_refused(client, settings, selection, relation, &error, &mut missing)?;
                }
                tried => tried.map_err(|error| about(error, &selection.stream))?,
            }
        }
        missing.refuse()?;
        let rewritten = query(client, REWRITTEN)?;
        if rewritten.rows.is_empty() {
            break;
        }
        if attempt == MAX_SNAPSHOTS {
            refuse_rewritten(&rewritten)?;
        }
        client.execute("ROLLBACK")?;
    }
    let snapshot = query(client, EXPORT)?;
    let token = Token::new(client, &snapshot, selections.len())?.to_json()?;
    Ok(Exported { token, seen: None })
}

/// The error of [`pin`], with the privileges that views and conditions need too.
fn all_missing(
    client: &mut Client,
    settings: &Settled,
    selections: &[Selection],
    wanted: &[Wanted],
    error: Error,
) -> Result<Error> {
    let mut missing = Missing::default();
    for (selection, wanted) in selections.iter().zip(wanted) {
        for relation in &relation::find_wanted(client, std::slice::from_ref(wanted))? {
            missing.add_relations(settings, [(relation, wanted.columns.as_deref())]);
            add_missing(client, selection, relation, &mut missing)?;
        }
    }
    Ok(missing.refuse().err().unwrap_or(error))
}

/// Locks what a read needs, and refuses a snapshot that no longer has the rows: the snapshot may come from another
/// session, which may have ended since. `queries` are the queries of the read; a plan of each holds the relations in
/// it. From then on functions wait for their locks without a limit. Errors: `snapshot_outdated`.
pub(crate) fn hold(
    client: &mut Client,
    settings: &Settled,
    relation: &Relation,
    queries: impl Iterator<Item = String>,
) -> Result<()> {
    let tables = lockable([relation]);
    let mut statements = Vec::new();
    if !tables.is_empty() {
        statements.push(lock_statement(&tables, NOWAIT));
    }
    statements.extend(queries.map(|query| trial(&query)));
    statements.extend(lock_timeout(settings, "0"));
    statements.push(REWRITTEN.into());
    let backend = Backend::of(client, settings);
    let answers = client.simple_query(&statements.join("; "));
    let mut answers = answers.map_err(|error| backend.explain(error, FIRST_ROWS))?;
    refuse_rewritten(&answers.pop().unwrap_or_default())
}

/// Refuses rows that were read under a snapshot which finds a table empty that it took them from: one that
/// only a function names is held since the function read it. Errors: `snapshot_outdated`.
pub(crate) fn refuse_outdated(client: &mut Client) -> Result<()> {
    refuse_rewritten(&query(client, REWRITTEN)?)
}

/// The error of a lock that did not come becomes `lock_queued`; another one stays. `snapshot` is the token
/// that the read has joined.
pub(crate) fn explain_lock(
    error: Error,
    backend: &Backend,
    snapshot: &str,
    relation: &str,
) -> Error {
    if error.code != NOT_AVAILABLE {
        return error;
    }
    let queued = virtual_id(snapshot).and_then(|run| backend.queued(&run, Of::Run));
    queued.unwrap_or_else(|| lock_queued(&format!("{relation}, or something that it reads,"), ""))
}

/// The transaction that exported a token's snapshot, as `pg_locks` writes it. The server makes the name
/// of a snapshot from it: `00000003-0000001B-1` is of `3/27`.
pub(crate) fn virtual_id(token: &str) -> Option<String> {
    let token: Token = serde_json::from_str(token).ok()?;
    let mut parts = token.snapshot.split('-');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    Some(format!("{}/{}", number()?, number()?))
}

/// Refuses a table that was rewritten since the snapshot. `rewritten` is the answer to [`REWRITTEN`].
fn refuse_rewritten(rewritten: &Rows) -> Result<()> {
    let Some(table) = relation::texts(rewritten)?.into_iter().next() else {
        return Ok(());
    };
    let text = format!(
        "{table} was truncated, rewritten or exchanged since the snapshot, which finds it empty"
    );
    Err(Error::new(ErrorKind::Transient, "snapshot_outdated", text)
        .hint("run again when no ALTER TABLE, TRUNCATE, CLUSTER or VACUUM FULL is running on it"))
}

/// Begins a transaction and locks tables in it before its first query. Refuses relations that cannot be read, before
/// the first row of any stream.
pub(crate) fn pin(
    client: &mut Client,
    settings: &Settled,
    wanted: &[Wanted],
) -> Result<Vec<Relation>> {
    let relations = relation::find_wanted(client, wanted)?;
    let columns = wanted.iter().map(|wanted| wanted.columns.as_deref());
    relation::refuse_missing(settings, relations.iter().zip(columns))?;
    for relation in &relations {
        relation.refuse_unreadable(settings)?;
    }
    begin(client, settings, None)?;
    let tables = lockable(&relations);
    match lock(client, settings, &tables, NOWAIT) {
        Err(error) if error.code == NOT_AVAILABLE => {
            client.execute("ROLLBACK")?;
            // In a transaction of its own: the question takes a snapshot, and the lock must come first.
            begin(client, settings, None)?;
            say_who_holds(client, &relations)?;
            client.execute("ROLLBACK")?;
            begin(client, settings, None)?;
            lock(client, settings, &tables, "")?;
        }
        other => other?,
    }
    Ok(relations)
}

/// The tables to lock: plain and partitioned tables that the role may read whole.
fn lockable<'a>(relations: impl IntoIterator<Item = &'a Relation>) -> Vec<String> {
    relations
        .into_iter()
        .filter(|relation| matches!(relation.kind, 'r' | 'p') && relation.is_readable_whole())
        .map(Relation::sql)
        .collect()
}

fn lock_statement(tables: &[String], how: &str) -> String {
    let names = tables.join(", ");
    format!("LOCK TABLE {names} IN ACCESS SHARE MODE{how}")
}

/// Locks tables against changes of their shape. If a lock fails, the transaction has failed.
fn lock(client: &mut Client, settings: &Settled, tables: &[String], how: &str) -> Result<()> {
    for tables in tables.chunks(LOCK_TABLES) {
        let backend = Backend::of(client, settings);
        client
            .execute(&lock_statement(tables, how))
            .map_err(|error| backend.explain(error, &format!("a lock of {}", tables.join(", "))))?;
    }
    Ok(())
}

/// Warns of the sessions that hold the tables. Errors: from the connection.
fn say_who_holds(client: &mut Client, relations: &[Relation]) -> Result<()> {
    let oids: Vec<u32> = relations.iter().map(|relation| relation.oid).collect();
    let rows = query(client, &HOLDERS.replace("$RELATIONS", &oid_array(&oids)))?;
    for holder in relation::texts(&rows)? {
        log::warn(format_args!(
            "waits for a lock on a table that another session holds: {holder}"
        ));
    }
    Ok(())
}

impl Token {
    /// `snapshot` is the server's answer to [`EXPORT`].
    fn new(client: &Client, snapshot: &Rows, streams: usize) -> Result<Self> {
        let Host { name, port } = client.host().clone();
        Ok(Self {
            snapshot: snapshot.single()?.to_owned(),
            host: name,
            port,
            streams,
        })
    }

    fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(Error::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_snapshot_tells_its_transaction() {
        let of = |snapshot: &str| {
            let token = Token {
                snapshot: snapshot.into(),
                host: "h".into(),
                port: 1,
                streams: 2,
            };
            virtual_id(&token.to_json().unwrap_or_default())
        };
        assert_eq!(of("00000003-0000001B-1").as_deref(), Some("3/27"));
        for wrong in ["", "00000003", "x-1", "'-1"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(virtual_id(""), None);
    }
}
