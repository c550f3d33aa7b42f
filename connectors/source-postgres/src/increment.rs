//! An incremental read: the rows and their order, and the places of checkpoints.
//!
//! An ordered read has up to three parts, one COPY after the other in one snapshot: the rows without values (in the
//! first read only), the rows up to the cursor that are read again, and the new rows in their order. Checkpoints stand
//! in the last part, between two different values. A read by windows has one part with one checkpoint after it, see
//! [`crate::window`].

use std::collections::{BTreeMap, VecDeque};

use rapidbyte_pg::Column;
use rapidbyte_pg::ident::{qualified, quote_literal};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{counted, log};
use serde::Deserialize;

use crate::ask::query;
use crate::config::Settled;
use crate::cursor::{
    Cursor, Exact, Here, Identity, Lsn, Ordered, TableFile, VERSION, Wal, changed, reloaded,
};
use crate::order::{self, Key};
use crate::relation::Relation;
use crate::window;

/// Asks for the server, the place in its log, the database, the relation and the numbers of its columns. The inner
/// query runs only if the role may call the function. Every role may, unless somebody revoked the privilege from
/// PUBLIC.
const IDENTITY: &str = "\
SELECT pg_catalog.json_build_object('system', CASE
    WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
    THEN pg_catalog.substring(pg_catalog.query_to_xml('SELECT c.system_identifier AS id FROM \
pg_catalog.pg_control_system() AS c', false, true, '')::text, '<id>([0-9]+)</id>') END,
    'log', $LOG,
    'database', (SELECT d.oid::int8 FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database()),
    'relation', $RELATION,
    'columns', (SELECT pg_catalog.json_object_agg(a.attname, a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = $RELATION AND a.attnum > 0 AND NOT a.attisdropped),
    'file', (SELECT pg_catalog.json_build_object('number', pg_catalog.pg_relation_filenode(c.oid)::int8,
            'next', (pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) % 4294967296)::text)
        FROM pg_catalog.pg_class c WHERE c.oid = $RELATION AND c.relkind = 'r' AND NOT c.relhassubclass
        AND pg_catalog.has_table_privilege(c.oid, 'SELECT')))::text";

/// Asks for the place in the log after the snapshot was taken, so that everything that the snapshot sees is before the
/// place. Only superusers may read what the log says about timelines. A standby does not know its own timeline, because
/// its control file follows late. A server that followed another server since it started keeps the last places that it
/// received and replayed. A server that recovered from a crash has replayed too, but has not received. PostgreSQL
/// manual: "System Administration Functions".
const LOG: &str = "\
CASE WHEN $MAY THEN pg_catalog.substring(pg_catalog.query_to_xml($QUESTION, false, true, '')::text,
        '<log>(.*)</log>')::json END";

const LOG_QUESTION: &str = "\
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.json_build_object('is_standby', true,
        'timeline', GREATEST(c.timeline_id, r.min_recovery_end_timeline),
        'lsn', pg_catalog.pg_last_wal_replay_lsn()::text)
    ELSE pg_catalog.json_build_object('is_standby', false,
        'timeline', ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))
            ::pg_catalog.bit(32)::pg_catalog.int4,
        'lsn', pg_catalog.pg_current_wal_insert_lsn()::text,
        'took_over_at', CASE WHEN pg_catalog.pg_last_wal_receive_lsn() IS NOT NULL
            THEN pg_catalog.pg_last_wal_replay_lsn()::text END) END AS log
FROM pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r";

const SAVEPOINT: &str = "rapidbyte_identity";

/// Functions of [`LOG_QUESTION`] that somebody may have revoked.
const LOG_FUNCTIONS: [&str; 7] = [
    "pg_control_checkpoint()",
    "pg_control_recovery()",
    "pg_current_wal_lsn()",
    "pg_current_wal_insert_lsn()",
    "pg_walfile_name(pg_lsn)",
    "pg_last_wal_receive_lsn()",
    "pg_last_wal_replay_lsn()",
];

/// The answer to [`IDENTITY`].
#[derive(Debug, Deserialize)]
struct Answer {
    system: Option<String>,
    log: Option<LogAnswer>,
    database: u32,
    relation: u32,
    columns: BTreeMap<String, i16>,
    file: Option<TableFile>,
}

#[derive(Debug, Deserialize)]
struct LogAnswer {
    is_standby: bool,
    timeline: u32,
    /// `None` if a standby has not replayed anything yet.
    lsn: Option<Lsn>,
    #[serde(default)]
    took_over_at: Option<Lsn>,
}

/// One COPY of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub kind: PartKind,
    /// `None` selects all rows.
    pub condition: Option<String>,
    /// The ORDER BY clause. It begins with a blank, and is empty for a part without an order.
    pub order: String,
}

/// The relation of a part to the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// Rows without values.
    Nulls,
    /// Rows that may have been delivered before.
    Again,
    /// Rows in their order. Each row comes with the text of its values.
    Ordered,
    /// Rows of a window of transaction ids.
    Window,
}

/// The parts of a read, and its checkpoints.
#[derive(Debug)]
pub(crate) struct Plan {
    pub parts: VecDeque<Part>,
    pub checkpoints: Checkpoints,
}

/// The progress of a read, from which its checkpoints are made.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Empty for a read by windows.
    keys: Vec<Key>,
    /// The server, database and table of an ordered read.
    source: Option<Identity>,
    /// The values of the last row that was delivered.
    last: Option<Vec<String>>,
    /// The cursor of a read that has not delivered a row of the order yet.
    base: String,
}

/// Decides how a stream is read, in the transaction that reads it. `was_tried`: an earlier call has decided it for the
/// same snapshot. Errors: the errors of [`order::keys`], [`order::check_lag`], [`order::check_initial`],
/// [`order::check_values`] and [`window::plan`]; `lag_needs_upsert`, `cursor_changed`, `cursor_of_another_source`,
/// `cursor_unreadable`.
pub(crate) fn plan(
    client: &mut Client,
    settings: &Settled,
    relation: &Relation,
    columns: &[Column],
    increment: &Increment,
    cursor: Option<&str>,
    was_tried: bool,
) -> Result<Plan> {
    let parsed = cursor.map(Cursor::parse).transpose()?;
    match (&increment.late_rows, &parsed) {
        (LateRows::Lag(_), Some(Cursor::Exact(_))) => Err(changed(
            "the cursor was written with change_detection: xmin, but the stream is read by its \
                 cursor column",
        )),
        (LateRows::Exact, Some(Cursor::Ordered(_))) => Err(changed(
            "the cursor was written with change_detection: cursor, but the stream is read by \
                 transaction ids",
        )),
        (LateRows::Exact, Some(Cursor::Exact(at))) => {
            by_window(client, settings, relation, increment, Some(at), was_tried)
        }
        (LateRows::Exact, None) => {
            by_window(client, settings, relation, increment, None, was_tried)
        }
        (LateRows::Lag(_), at) => {
            let keys = order::keys(client, relation, columns, &increment.cursor_fields)?;
            let at = match (at, cursor) {
                (Some(Cursor::Ordered(at)), Some(json)) => Some((at, json)),
                _ => None,
            };
            let source = here(client, relation, &keys)?;
            if at.is_none() && !was_tried {
                warn_of_nulls(relation, &keys);
            }
            by_order(client, relation, keys, source, increment, at, was_tried)
        }
    }
}

fn by_window(
    client: &mut Client,
    settings: &Settled,
    relation: &Relation,
    increment: &Increment,
    at: Option<&Exact>,
    was_tried: bool,
) -> Result<Plan> {
    if increment.initial.is_some() {
        return Err(Error::config(
            "invalid_cursor_initial",
            "change_detection: xmin has no order, so there is no value to start with",
        )
        .hint("remove cursor_initial; a where condition selects rows"));
    }
    let window = window::plan(
        client,
        settings,
        relation,
        at,
        increment.allow_duplicates,
        was_tried,
    )?;
    let part = Part {
        kind: PartKind::Window,
        condition: window.condition,
        order: String::new(),
    };
    Ok(Plan {
        parts: VecDeque::from([part]),
        checkpoints: Checkpoints {
            keys: Vec::new(),
            source: None,
            last: None,
            base: window.cursor.to_json()?,
        },
    })
}

/// Warns before the first read, because only the first read delivers rows without a value.
fn warn_of_nulls(relation: &Relation, keys: &[Key]) {
    let nullable = keys.iter().filter(|key| key.is_nullable);
    let names: Vec<&str> = nullable.map(|key| &*key.field.name).collect();
    if names.is_empty() {
        return;
    }
    log::warn(format_args!(
        "{}.{}: cursor_field {} may be NULL. The first read delivers rows with NULL once; a row that is written with \
         NULL later is delivered only after it gets a value above the cursor",
        relation.schema,
        relation.name,
        names.join(", ")
    ));
}

fn by_order(
    client: &mut Client,
    relation: &Relation,
    keys: Vec<Key>,
    here: Here,
    increment: &Increment,
    at: Option<(&Ordered, &str)>,
    was_tried: bool,
) -> Result<Plan> {
    let lag = match &increment.late_rows {
        LateRows::Lag(lag) => lag.as_deref(),
        LateRows::Exact => None,
    };
    let known = at.and_then(|(cursor, _)| cursor.source.as_ref());
    if let Some(known) = known {
        known.check(&here)?;
        let warning = known.wal.as_ref().and_then(|wal| wal.warning(&here));
        if let Some(warning) = warning.filter(|_| !was_tried) {
            log::warn(warning);
        }
    }
    let mut source = here.identity.clone().merged(known, here.is_standby);
    if let (Some(lag), Some(key)) = (lag, keys.first()) {
        if !increment.allow_duplicates {
            let text = format!("the rows from {lag} below the cursor would be written twice");
            return Err(Error::config("lag_needs_upsert", text).hint(
                "use write_mode: upsert with a primary_key, which keeps one row of each key; or \
                     change_detection: xmin",
            ));
        }
        order::check_lag(client, key, lag)?;
    }
    if let Some(initial) = &increment.initial {
        order::check_initial(client, &keys, initial)?;
    }
    let fields: Vec<_> = keys.iter().map(|key| key.field.clone()).collect();
    if let Some((cursor, _)) = at {
        cursor.check(&fields, &here)?;
        if let Some(values) = cursor.values.as_deref() {
            // An earlier call has checked the cursor for this snapshot.
            if !was_tried {
                order::check_values(client, &keys, values)?;
            }
            let again = increment.allow_duplicates.then(|| {
                let initial = increment.initial.as_deref();
                order::up_to(&keys, values, lag, initial)
            });
            let reload = Reload {
                relation,
                keys: &keys,
                values,
                again: again.flatten(),
            };
            reload.check(client, known, &mut source, was_tried)?;
        }
    }
    let mut parts = VecDeque::new();
    let mut part = |kind, condition| {
        let order = match kind {
            PartKind::Nulls => String::new(),
            _ => order::order_by(&keys),
        };
        parts.push_back(Part {
            kind,
            condition,
            order,
        });
    };
    if at.is_none()
        && let Some(condition) = order::is_null(&keys)
    {
        part(PartKind::Nulls, Some(condition));
    }
    let values = at.and_then(|(cursor, _)| cursor.values.as_deref());
    let bound = match (values, increment.initial.as_deref()) {
        (Some(values), _) => Some((">", values)),
        (None, Some(initial)) => Some((">=", initial)),
        (None, None) => None,
    };
    if let Some(values) = values.filter(|_| increment.allow_duplicates) {
        let initial = increment.initial.as_deref();
        part(PartKind::Again, order::up_to(&keys, values, lag, initial));
    }
    part(PartKind::Ordered, order::from(&keys, bound));
    let base = match at {
        Some((at, json))
            if at.fields == fields
                && at.source.as_ref().is_some_and(|at| source.is_kept_by(at)) =>
        {
            json.to_owned()
        }
        Some((at, _)) => cursor(&keys, at.values.clone(), Some(&source))?,
        None => cursor(&keys, None, Some(&source))?,
    };
    Ok(Plan {
        parts,
        checkpoints: Checkpoints {
            keys,
            source: Some(source),
            last: None,
            base,
        },
    })
}

/// Finds out whether a table was emptied and filled again.
struct Reload<'a> {
    relation: &'a Relation,
    keys: &'a [Key],
    /// The values of the cursor.
    values: &'a [String],
    /// The rows up to the cursor that this run reads again.
    again: Option<String>,
}

impl Reload<'_> {
    /// Refuses a table that is in another file than the cursor `known`, has rows up to the cursor that this run does
    /// not read, and no row that is older than the cursor. VACUUM FULL and CLUSTER keep the transaction ids of the
    /// rows. A change of columns may write all rows in its own transaction. Then nobody can tell, and this function
    /// warns.
    ///
    /// A table without rows up to the cursor may be filled later, in the file that this run sees. So the cursor keeps
    /// the values that it has now as `emptied_at`, and each later run looks for rows up to them. Errors:
    /// `cursor_of_another_source`, `cursor_unreadable`.
    fn check(
        &self,
        client: &mut Client,
        known: Option<&Identity>,
        source: &mut Identity,
        was_tried: bool,
    ) -> Result<()> {
        let (Some(known), Some(file)) = (known, source.file.as_mut()) else {
            return Ok(());
        };
        if let (Some(then), Some(emptied_at)) = (&known.file, &file.emptied_at) {
            order::check_values(client, self.keys, emptied_at)?;
            let is_same_file = then.number == file.number;
            if self.has_rows_since(client, emptied_at, &then.next, is_same_file)? {
                return Err(reloaded());
            }
        }
        let Some(then) = known
            .file
            .as_ref()
            .filter(|then| then.number != file.number)
        else {
            return Ok(());
        };
        match self.rewritten(client, &then.next)? {
            Rewritten::Kept => {}
            Rewritten::Emptied => file.emptied_at = Some(self.values.to_vec()),
            Rewritten::Reloaded => return Err(reloaded()),
            Rewritten::Unknown if was_tried => {}
            Rewritten::Unknown => log::warn(format_args!(
                "{}.{}: all rows were written anew and the columns changed since the last run; if the table was also \
                 filled again, rows up to the cursor are not read (`rapidbyte run PIPELINE --full-refresh --select \
                 STREAM` reads them)",
                self.relation.schema, self.relation.name
            )),
        }
        Ok(())
    }

    /// Whether the table has rows again up to values that it had no rows up to. A run that reads rows up to its cursor
    /// again has read the late ones before the transaction `next`. A change of columns may have written those anew in
    /// another file.
    fn has_rows_since(
        &self,
        client: &mut Client,
        emptied_at: &[String],
        next: &str,
        is_same_file: bool,
    ) -> Result<bool> {
        let mut sql = format!("SELECT EXISTS (SELECT {}", self.rows(emptied_at));
        if let Some(again) = &self.again {
            let next = age(next);
            sql += &format!(" AND ({again}) IS NOT TRUE AND pg_catalog.age(xmin) <= {next}");
            if !is_same_file {
                sql += &format!(" AND NOT {}", self.changed_since(&next));
            }
        }
        sql += ")";
        Ok(query(client, &sql)?.single()? == "t")
    }

    /// Finds the state of the rows up to the cursor in the table's new file.
    fn rewritten(&self, client: &mut Client, next: &str) -> Result<Rewritten> {
        let (rows, next) = (self.rows(self.values), age(next));
        let unread = match &self.again {
            Some(again) => format!("{rows} AND ({again}) IS NOT TRUE"),
            None => rows.clone(),
        };
        // A change of columns wrote rows anew, and this run reads all of them again.
        let changed = self.changed_since(&next);
        let sql = format!(
            "SELECT CASE WHEN EXISTS (SELECT {rows} AND pg_catalog.age(xmin) > {next}) THEN 'kept' \
             WHEN NOT EXISTS (SELECT {unread}) THEN \
             CASE WHEN {changed} AND EXISTS (SELECT {rows}) THEN 'kept' ELSE 'emptied' END \
             WHEN {changed} THEN 'unknown' ELSE 'reloaded' END"
        );
        Ok(match query(client, &sql)?.single()? {
            "kept" => Rewritten::Kept,
            "emptied" => Rewritten::Emptied,
            "unknown" => Rewritten::Unknown,
            _ => Rewritten::Reloaded,
        })
    }

    /// The condition that columns changed since a transaction of this age.
    fn changed_since(&self, next: &str) -> String {
        format!(
            "EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = {} AND a.attnum > 0 \
             AND pg_catalog.age(a.xmin) <= {next})",
            self.relation.oid
        )
    }

    /// The rows up to these values.
    fn rows(&self, values: &[String]) -> String {
        format!(
            "FROM {} WHERE {}",
            qualified(&self.relation.schema, &self.relation.name),
            order::not_above(self.keys, values)
        )
    }
}

/// The state of the rows up to the cursor after the table got another file.
enum Rewritten {
    /// Some of them are there.
    Kept,
    /// No row is there, except rows that this run reads again.
    Emptied,
    /// All rows are new, and columns changed too.
    Unknown,
    /// All rows are new.
    Reloaded,
}

/// The age of a transaction id.
fn age(id: &str) -> String {
    format!("pg_catalog.age({}::pg_catalog.xid)", quote_literal(id))
}

fn here(client: &mut Client, relation: &Relation, keys: &[Key]) -> Result<Here> {
    let may = LOG_FUNCTIONS
        .map(|name| format!("pg_catalog.has_function_privilege('pg_catalog.{name}', 'EXECUTE')"));
    let log = LOG
        .replace("$MAY", &may.join(" AND "))
        .replace("$QUESTION", &quote_literal(LOG_QUESTION));
    let sql = IDENTITY.replace("$RELATION", &relation.oid.to_string());
    let with_log = sql.replace("$LOG", &log);
    // Servers that keep their log in another way refuse these questions. The savepoint keeps the transaction usable.
    let [rows] = match client.query_all(&format!(
        "SAVEPOINT {SAVEPOINT}; {with_log}; RELEASE SAVEPOINT {SAVEPOINT}"
    )) {
        Err(error) if client.is_usable() => {
            log::debug(format_args!(
                "the server does not say where its log is: {}",
                error.message
            ));
            let sql = sql.replace("$LOG", "NULL::json");
            client.query_all(&format!(
                "ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}; {sql}"
            ))?
        }
        answer => answer?,
    };
    let answer: Answer = serde_json::from_str(rows.single()?)
        .map_err(|error| Error::internal(format!("the identity of the source: {error}")))?;
    let log = answer.log.as_ref();
    let wal = log.and_then(|log| {
        Some(Wal {
            timeline: log.timeline,
            lsn: log.lsn?,
        })
    });
    let number = |key: &Key| answer.columns.get(&key.field.name).copied();
    let numbers: Option<Vec<i16>> = keys.iter().map(number).collect();
    Ok(Here {
        is_standby: log.is_some_and(|log| log.is_standby),
        took_over_at: log.and_then(|log| log.took_over_at),
        identity: Identity {
            system: answer.system,
            wal,
            database: answer.database,
            relation: answer.relation,
            columns: numbers.unwrap_or_default(),
            file: answer.file,
        },
        numbers: answer.columns,
    })
}

fn cursor(keys: &[Key], values: Option<Vec<String>>, source: Option<&Identity>) -> Result<String> {
    let cursor = Cursor::Ordered(Ordered {
        version: VERSION,
        fields: keys.iter().map(|key| key.field.clone()).collect(),
        values,
        source: source.cloned(),
    });
    cursor.to_json()
}

impl Checkpoints {
    /// The columns that a part selects after the wanted columns: the SQL, and the type that decodes it.
    pub fn extra(&self, kind: PartKind) -> Vec<(String, Column)> {
        let keys = match kind {
            PartKind::Ordered => &self.keys[..],
            _ => &[],
        };
        let one = |key: &Key| {
            let ty = rapidbyte_pg::builtin::TEXT.ty();
            (key.text(), Column::new(&key.field.name, ty, "text"))
        };
        keys.iter().map(one).collect()
    }

    /// The events of a batch of an ordered part: its rows, with a checkpoint after the last row whose next row has
    /// other values. `texts` are the values of the rows. If all rows equal the last delivered row, the batch has no
    /// checkpoint.
    pub fn cut(&mut self, batch: &RecordBatch, texts: &[ArrayRef]) -> Result<Vec<Event>> {
        let rows = batch.num_rows();
        let texts = texts
            .iter()
            .map(|array| array.as_any().downcast_ref::<StringArray>())
            .collect::<Option<Vec<_>>>()
            .filter(|texts| texts.iter().all(|text| text.null_count() == 0))
            .ok_or_else(|| Error::internal("a row without the text of its cursor"))?;
        let Some(end) = rows.checked_sub(1) else {
            return Ok(Vec::new());
        };
        let values = |row: usize| -> Vec<String> {
            texts
                .iter()
                .map(|text| text.value(row).to_owned())
                .collect()
        };
        let is_same = |a: usize, b: usize| {
            let mut both = self.keys.iter().zip(&texts);
            both.all(|(key, text)| key.is_same(text.value(a), text.value(b)))
        };
        // The last row that differs from the one before it.
        let change = (1..rows).rev().find(|row| !is_same(row - 1, *row));
        let events = match (change, &self.last) {
            (Some(row), _) => vec![
                Event::Batch(batch.slice(0, row)),
                Event::Checkpoint(self.cursor(values(row - 1))?),
                Event::Batch(batch.slice(row, rows - row)),
            ],
            (None, Some(last)) => {
                let mut all = self.keys.iter().zip(last).zip(&texts);
                let goes_on = all.all(|((key, last), text)| key.is_same(last, text.value(0)));
                let mut events = Vec::with_capacity(2);
                if !goes_on {
                    events.push(Event::Checkpoint(self.cursor(last.clone())?));
                }
                events.push(Event::Batch(batch.clone()));
                events
            }
            (None, None) => vec![Event::Batch(batch.clone())],
        };
        self.last = Some(values(end));
        Ok(events)
    }

    fn cursor(&self, values: Vec<String>) -> Result<String> {
        cursor(&self.keys, Some(values), self.source.as_ref())
    }

    /// The checkpoint after a part, if the part has one. `is_last`: no part follows.
    pub fn end(&mut self, kind: PartKind, rows: u64, is_last: bool) -> Result<Option<String>> {
        if kind == PartKind::Nulls && rows > 0 {
            let names: Vec<&str> = self.keys.iter().map(|key| &*key.field.name).collect();
            log::info(format_args!(
                "{} without a value of {}: this first read delivers them; later rows \
                     without a value are never delivered",
                counted(rows, "row"),
                names.join(", ")
            ));
            return Ok(Some(self.base.clone()));
        }
        if !is_last {
            return Ok(None);
        }
        let last = self.last.take();
        if let (Some(key), Some(value)) = (self.keys.first(), last.as_ref().and_then(|v| v.first()))
            && key.is_last(value)
        {
            log::warn(format_args!(
                "the last value of {} is {value}: no later row is above it, so none will be \
                     delivered; change that row, or leave it out with a where condition, and \
                     start over with --full-refresh",
                key.field.name
            ));
        }
        last.map_or_else(|| Ok(self.base.clone()), |values| self.cursor(values))
            .map(Some)
    }
}
