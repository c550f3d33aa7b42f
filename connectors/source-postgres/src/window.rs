//! `change_detection: xmin`: windows of transaction ids.
//!
//! Every row version carries the id of the transaction (or savepoint) that wrote it, its `xmin`.
//! S is the lowest id that is still at work when the snapshot is taken. Every lower id has ended, so no more versions
//! below S will ever appear. A read delivers the visible versions in [S of the last read, S). The windows follow each
//! other without a gap, so only one read delivers each version, however late it was committed.
//!
//! A row shows the lower 32 bits of its id. A first read delivers all rows except rows that are not below S yet. Later
//! windows compare 32 bits, which is right as long as no older row has the bits of a newer id. The first read checks
//! that, and no row can get such bits in the next 2^31 ids. PostgreSQL manual: "Routine Vacuuming", "Preventing
//! Transaction ID Wraparound Failures", and "System Columns".

use std::collections::BTreeMap;

use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;

use crate::ask::query;
use crate::config::Settled;
use crate::cursor::{Cursor, Exact, VERSION, changed};
use crate::relation::{self, Relation};

/// Ids are compared within half of their 32 bits.
const HALF: u64 = 1 << 31;
/// Lower ones mark rows that are older than all; no transaction has them.
const FIRST_ID: u32 = 3;
/// The cursor names each of them.
const MAX_TABLES: usize = 10_000;
/// The access method `heap`: others may keep no ids.
const HEAP: u32 = 2;
/// The lower 32 bits of the id that wrote a row, as a number.
const ROW_ID: &str = "xmin::pg_catalog.text::pg_catalog.int8";

/// `$SNAPSHOT` is of the transaction. All ids have 64 bits.
const MOMENT: &str = "\
SELECT pg_catalog.json_build_object('low', pg_catalog.$LOW(s)::text, 'high', pg_catalog.$HIGH(s)::text,
    'system', (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() c),
    'timeline', pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8),
    'database', (SELECT d.oid::int8 FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database()))::text
FROM pg_catalog.$CURRENT() AS s";

/// The relation and all whose rows are read with it. The fingerprint tells columns apart whose
/// change makes the server write all rows anew, and some that do not.
const TABLES: &str = "\
WITH RECURSIVE tree(oid) AS (
    SELECT $RELATION::pg_catalog.oid
    UNION
    SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT pg_catalog.json_build_object('oid', c.oid::int8,
    'name', pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
    'kind', c.relkind, 'method', c.relam::int8,
    'file', pg_catalog.pg_relation_filenode(c.oid)::int8,
    'columns', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
        c.relpersistence::text || COALESCE((
            SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', a.attnum, a.atttypid,
                a.atttypmod, a.attgenerated, CASE WHEN a.attgenerated <> '' THEN
                    pg_catalog.pg_get_expr(d.adbin, d.adrelid) END), ',' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a
            LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), ''),
        'UTF8')), 'hex'), 8))::text
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";

/// The ids of the snapshot, and the server that they belong to.
#[derive(Debug, Deserialize)]
struct Moment {
    /// S: everything below has ended.
    low: String,
    /// Nothing from here on had begun.
    high: String,
    system: String,
    timeline: String,
    database: u32,
}

/// One table that holds rows of the stream.
#[derive(Debug, Deserialize)]
struct Table {
    oid: u32,
    name: String,
    kind: char,
    method: u32,
    file: Option<u32>,
    columns: String,
}

/// The condition for the rows that a read by windows delivers, and the cursor after them.
pub(crate) struct Window {
    pub condition: Option<String>,
    pub cursor: Cursor,
}

/// Decides what is read, in the transaction that reads. `was_tried`: the same was decided for this
/// snapshot before, and nothing was refused. Errors: `exact_unsupported`,
/// `exact_ambiguous`, `cursor_changed`, `cursor_ahead`, `cursor_too_old`, `table_rewritten`,
/// `table_reattached`, `table_recreated`.
pub(crate) fn plan(
    client: &mut Client,
    settings: &Settled,
    relation: &Relation,
    cursor: Option<&Exact>,
    allow_duplicates: bool,
    was_tried: bool,
) -> Result<Window> {
    let tables = tables(client, relation)?;
    let moment = moment(client, settings)?;
    let low = number(&moment.low)?;
    let high = number(&moment.high)?;
    if let Some(cursor) = cursor {
        check(cursor, &moment, low)?;
    }
    refuse_recreated(relation, cursor, &tables, allow_duplicates)?;
    let mut plan = Split::new(cursor, &tables, allow_duplicates)?;
    // Of so few ids none was used twice; and one look at all rows is enough.
    if !plan.fresh.is_empty() && low >= HALF && !was_tried {
        refuse_ambiguous(client, relation, &plan.fresh, high, low)?;
    }
    if low < high && !was_tried {
        warn_of_holder(client, low)?;
    }
    let is_alone = tables.len() == 1 && tables[0].oid == relation.oid;
    let condition = plan.condition(cursor.map_or(low, |c| c.next), (low, high), is_alone);
    plan.forget_dropped(client)?;
    let next = Exact {
        version: VERSION,
        system: moment.system,
        timeline: moment.timeline,
        database: moment.database,
        first: cursor.map_or(low, |cursor| cursor.first),
        next: low,
        tables: tables
            .into_iter()
            .map(|table| {
                let file = table.file.unwrap_or_default();
                (table.oid.to_string(), (file, table.columns))
            })
            .collect(),
        gone: plan.gone,
    };
    Ok(Window {
        condition,
        cursor: Cursor::Exact(next),
    })
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .map_err(|_| Error::internal(format!("a transaction id {text:?}")))
}

/// The tables that hold the stream's rows. Errors: `exact_unsupported`.
fn tables(client: &mut Client, relation: &Relation) -> Result<Vec<Table>> {
    let unsupported = |text: String| {
        Err(Error::config("exact_unsupported", text)
            .hint("use change_detection: cursor with a cursor_field, or sync_mode: full_refresh"))
    };
    match relation.kind {
        'r' | 'p' => {}
        'v' | 'm' => return unsupported("a view has no transaction ids".into()),
        _ => return unsupported("a foreign table has no transaction ids".into()),
    }
    let recovery = query(client, "SELECT pg_catalog.pg_is_in_recovery()::text")?;
    if recovery.single()? == "true" {
        return Err(Error::config(
            "exact_unsupported",
            "the server is a standby, which does not know the open transactions",
        )
        .hint("read from the primary, or use change_detection: cursor with a cursor_field"));
    }
    let sql = TABLES.replace("$RELATION", &relation.oid.to_string());
    let rows = query(client, &sql)?;
    let mut tables = Vec::new();
    for text in relation::texts(&rows)? {
        let table: Table = serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("a row of the catalog: {error}")))?;
        match (table.kind, table.method) {
            ('p', _) => {}
            ('r', HEAP) => tables.push(table),
            _ => {
                let text = format!("{} has no transaction ids", table.name);
                return unsupported(text);
            }
        }
    }
    if tables.len() > MAX_TABLES {
        let text = format!(
            "{} tables, but at most {MAX_TABLES} are allowed",
            tables.len()
        );
        return unsupported(text);
    }
    Ok(tables)
}

fn moment(client: &mut Client, settings: &Settled) -> Result<Moment> {
    let names = if client.server_version() >= 130_000 {
        [
            "pg_snapshot_xmin",
            "pg_snapshot_xmax",
            "pg_current_snapshot",
        ]
    } else {
        [
            "txid_snapshot_xmin",
            "txid_snapshot_xmax",
            "txid_current_snapshot",
        ]
    };
    let mut sql = MOMENT.to_owned();
    for (place, name) in ["$LOW", "$HIGH", "$CURRENT"].into_iter().zip(names) {
        sql = sql.replace(place, name);
    }
    let rows = query(client, &sql).map_err(|error| {
        if error.code != "pg_42501" {
            return error;
        }
        let role = quote_ident(&settings.connection.user);
        error.hint(format!(
            "change_detection: xmin has to know which server it reads: GRANT EXECUTE ON FUNCTION \
             pg_catalog.pg_control_system(), pg_catalog.pg_current_wal_lsn(), \
             pg_catalog.pg_walfile_name(pg_lsn) TO {role}"
        ))
    })?;
    serde_json::from_str(rows.single()?)
        .map_err(|error| Error::internal(format!("the snapshot's ids: {error}")))
}

/// Says which transaction keeps newer rows from this read, if it is old enough to be a forgotten one.
fn warn_of_holder(client: &mut Client, low: u64) -> Result<()> {
    let sql = HOLDER
        .replace("$LOW", &(low as u32).to_string())
        .replace("$PATIENCE", &PATIENCE_SECS.to_string());
    let rows = query(client, &sql)?;
    for holder in relation::texts(&rows)? {
        log::warn(format_args!(
            "change_detection: xmin: newer rows wait for a transaction that is still open: {holder}"
        ));
    }
    Ok(())
}

/// Refuses a cursor whose ids mean nothing here.
fn check(cursor: &Exact, moment: &Moment, low: u64) -> Result<()> {
    if cursor.system != moment.system || cursor.database != moment.database {
        return Err(changed(
            "the cursor belongs to another server or database, whose transaction ids have \
                 another meaning here",
        ));
    }
    if cursor.timeline != moment.timeline {
        return Err(changed(format!(
            "the server was restored or a standby took over (timeline {} became {}): it may have \
                 used transaction ids again",
            cursor.timeline, moment.timeline
        )));
    }
    if low < cursor.next || cursor.next < cursor.first {
        return Err(Error::config(
            "cursor_ahead",
            format!(
                "the cursor is at transaction {}, but the server only at {low}",
                cursor.next
            ),
        )
        .hint(
            "run with --full-refresh to start over: the server was restored from an older copy",
        ));
    }
    if low - cursor.first >= HALF {
        return Err(Error::config(
            "cursor_too_old",
            format!(
                "{} transaction ids were used since the first read, and only {HALF} of them can \
                     be distinguished",
                low - cursor.first
            ),
        )
        .hint("run with --full-refresh to start over"));
    }
    Ok(())
}

/// Refuses rows that are so old that a later window would take them for new ones.
fn refuse_ambiguous(
    client: &mut Client,
    relation: &Relation,
    tables: &[u32],
    high: u64,
    low: u64,
) -> Result<()> {
    let Some(is_old) = between(high, low + HALF) else {
        return Ok(());
    };
    let sql = format!(
        "SELECT tableoid::pg_catalog.regclass::text FROM {} WHERE {} AND {is_old} LIMIT 1",
        relation.sql(),
        is_of(tables)
    );
    let rows = query(client, &sql)?;
    let Some(row) = rows.rows.first() else {
        return Ok(());
    };
    let table = row.text(0)?.unwrap_or_default();
    Err(Error::config(
        "exact_ambiguous",
        format!(
            "rows of {table} were written more than {HALF} transactions ago, and would look new \
                 to a later read"
        ),
    )
    .hint(
        "rewrite the old rows once (dump and reload the table, or update each row), or use \
         change_detection: cursor with a cursor_field",
    ))
}

/// Tables by what the last read knew of them.
struct Split {
    /// Were read before: a window is delivered.
    known: Vec<u32>,
    /// Were not: all rows are.
    fresh: Vec<u32>,
    gone: Vec<u32>,
}

impl Split {
    fn new(cursor: Option<&Exact>, tables: &[Table], allow_duplicates: bool) -> Result<Self> {
        let empty = BTreeMap::new();
        let before = cursor.map_or(&empty, |cursor| &cursor.tables);
        let mut split = Self {
            known: Vec::new(),
            fresh: Vec::new(),
            gone: cursor.map_or(Vec::new(), |cursor| cursor.gone.clone()),
        };
        for table in tables {
            let is_back = split.gone.contains(&table.oid);
            match before.get(&table.oid.to_string()) {
                Some((file, columns)) => {
                    let is_rewritten = table.file != Some(*file) && table.columns != *columns;
                    if is_rewritten {
                        refuse_unless(allow_duplicates, "table_rewritten", table, REWRITTEN)?;
                    }
                    split.known.push(table.oid);
                }
                None => {
                    if is_back {
                        refuse_unless(allow_duplicates, "table_reattached", table, REATTACHED)?;
                    }
                    split.fresh.push(table.oid);
                }
            }
        }
        let is_here = |oid: &u32| tables.iter().any(|table| table.oid == *oid);
        split
            .gone
            .extend(before.keys().filter_map(|oid| oid.parse::<u32>().ok()));
        split.gone.retain(|oid| !is_here(oid));
        Ok(split)
    }

    /// Nothing: all rows.
    fn condition(&self, begin: u64, (low, high): (u64, u64), is_alone: bool) -> Option<String> {
        let window = between(begin, low).unwrap_or_else(|| "false".into());
        let settled = between(low, high).map(|late| format!("NOT {late}"));
        if is_alone {
            return if self.fresh.is_empty() {
                Some(window)
            } else {
                settled
            };
        }
        let mut conditions = Vec::new();
        if !self.known.is_empty() {
            conditions.push(format!("({} AND {window})", is_of(&self.known)));
        }
        if !self.fresh.is_empty() {
            let settled = settled.map_or(String::new(), |settled| format!(" AND {settled}"));
            conditions.push(format!("({}{settled})", is_of(&self.fresh)));
        }
        // Tables that join while we read come with the next one.
        Some(if conditions.is_empty() {
            "false".into()
        } else {
            conditions.join(" OR ")
        })
    }

    /// A table that was dropped cannot come back.
    fn forget_dropped(&mut self, client: &mut Client) -> Result<()> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT c.oid::text FROM pg_catalog.pg_class c WHERE c.oid = ANY ({}) ORDER BY c.oid \
             LIMIT {MAX_TABLES}",
            oids(&self.gone)
        );
        let rows = query(client, &sql)?;
        self.gone = relation::texts(&rows)?
            .into_iter()
            .filter_map(|oid| oid.parse().ok())
            .collect();
        Ok(())
    }
}

/// Refuses a table that was dropped and created again: its rows may have been delivered before. A partitioned table
/// holds no rows itself, and its partitions come and go.
fn refuse_recreated(
    relation: &Relation,
    cursor: Option<&Exact>,
    tables: &[Table],
    allow_duplicates: bool,
) -> Result<()> {
    let Some(cursor) = cursor else { return Ok(()) };
    let own = tables.iter().find(|table| table.oid == relation.oid);
    match own {
        Some(own) if !cursor.tables.contains_key(&own.oid.to_string()) => {
            refuse_unless(allow_duplicates, "table_recreated", own, RECREATED)
        }
        _ => Ok(()),
    }
}

/// A transaction that is open for so long holds up more than others do.
const PATIENCE_SECS: u32 = 60;
/// The session with the lowest id at work, in any database. The server shows the work of other roles only to members of
/// `pg_read_all_stats`. A prepared transaction does not have a session.
const HOLDER: &str = "\
SELECT pg_catalog.concat('process ', a.pid, ' of ', COALESCE(a.usename::text, '?'), ' in ',
        COALESCE(a.datname::text, '?'), ', for ',
        EXTRACT(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::int8, ' s')
    FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
        AND l.transactionid::text = '$LOW'
        AND a.xact_start < pg_catalog.clock_timestamp() - interval '$PATIENCE s'";

const RECREATED: &str =
    "the table was dropped and created again: its rows may have been delivered before";
const REWRITTEN: &str = "a change of its columns rewrote all rows, so they look new";
const REATTACHED: &str =
    "it left the stream and has returned: its rows may have been delivered before";

fn refuse_unless(allow_duplicates: bool, code: &str, table: &Table, what: &str) -> Result<()> {
    let text = format!("{}: {what}", table.name);
    if allow_duplicates {
        log::info(format_args!("{text}; they are delivered again"));
        return Ok(());
    }
    Err(Error::schema(code, text).hint(
        "run with --full-refresh to start over, or use write_mode: upsert, which accepts \
             the rows again",
    ))
}

/// The rows whose id is in `[begin, end)`, which spans less than 2^32; nothing for an empty range.
fn between(begin: u64, end: u64) -> Option<String> {
    if begin >= end {
        return None;
    }
    // The lower bits are what rows show.
    let (first, last) = ((begin as u32).max(FIRST_ID), end as u32);
    Some(if (begin as u32) < last {
        format!("({ROW_ID} >= {first} AND {ROW_ID} < {last})")
    } else {
        format!("({ROW_ID} >= {first} OR ({ROW_ID} >= {FIRST_ID} AND {ROW_ID} < {last}))")
    })
}

fn oids(tables: &[u32]) -> String {
    let tables: Vec<String> = tables.iter().map(u32::to_string).collect();
    format!("'{{{}}}'::pg_catalog.oid[]", tables.join(","))
}

fn is_of(tables: &[u32]) -> String {
    format!("tableoid = ANY ({})", oids(tables))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn windows_go_over_the_end_of_32_bits() {
        let id = ROW_ID;
        assert_eq!(between(7, 7), None);
        assert_eq!(between(0, 7).unwrap(), format!("({id} >= 3 AND {id} < 7)"));
        let epoch = 1 << 32;
        assert_eq!(
            between(epoch + 700, epoch + 800).unwrap(),
            format!("({id} >= 700 AND {id} < 800)")
        );
        assert_eq!(
            between(epoch - 10, epoch + 20).unwrap(),
            format!("({id} >= 4294967286 OR ({id} >= 3 AND {id} < 20))")
        );
        assert_eq!(
            between(epoch - 10, epoch).unwrap(),
            format!("({id} >= 4294967286 OR ({id} >= 3 AND {id} < 0))")
        );
    }
}
