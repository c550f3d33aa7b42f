//! The table of checkpoints: the progress of each stream, and the run that may commit it.
//!
//! The table has one row for each pipeline, stream and target table. A run that fences raises `epoch`. Every commit
//! raises `seq` in the transaction of its rows, and only if both numbers are as the run knows them. So only one of two
//! runs commits, and a cursor is never ahead of its rows.

use rapidbyte_pg::ident::{qualified, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Row, Rows};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;

use crate::config::{CHECKPOINT_TABLE as TABLE, Name, Settings};
use crate::lock;
use crate::target::rows_may_come_again;
use crate::transaction::{self, BEGIN, read_only};

/// The name of the lock under which runs create the tables.
pub(crate) const MAKING: &str = "rapidbyte.checkpoint";

const COLUMNS: &str = "(
    pipeline text COLLATE \"C\" NOT NULL,
    stream text COLLATE \"C\" NOT NULL,
    target text COLLATE \"C\" NOT NULL,
    run_id text NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    cursor text,
    complete boolean NOT NULL,
    backend_pid integer,
    backend_start timestamp with time zone,
    older_pid integer,
    older_start timestamp with time zone,
    updated_at timestamp with time zone NOT NULL,
    target_oid oid,
    origins jsonb,
    PRIMARY KEY (pipeline, stream, target)
)";

/// Columns that can be added to a table of checkpoints that lost them. With these defaults a run resumes from the
/// cursor. If the cursor is lost too, an append is refused.
const ADD_COLUMNS: [&str; 12] = [
    "run_id text NOT NULL DEFAULT ''",
    "epoch bigint NOT NULL DEFAULT 1",
    "seq bigint NOT NULL DEFAULT 1",
    "cursor text",
    "complete boolean NOT NULL DEFAULT false",
    "backend_pid integer",
    "backend_start timestamp with time zone",
    "older_pid integer",
    "older_start timestamp with time zone",
    "updated_at timestamp with time zone NOT NULL DEFAULT now()",
    "target_oid oid",
    "origins jsonb",
];

/// `target_oid` is the OID of the target that has the newest rows. A target that was created again or emptied has lost
/// rows. `origins` holds where the columns of the target came from (`origins.rs`). Tables of earlier versions do not
/// have these columns, and get them if the role owns the table.
const ADD_LATER: &str = "ALTER TABLE $TABLE ADD COLUMN IF NOT EXISTS target_oid oid, \
    ADD COLUMN IF NOT EXISTS origins jsonb; $INDEX";
/// Whether the role sees all rows of a relation `t`. If row-level security hides rows, or the role may not read the
/// table, nobody can call the table empty.
pub(crate) const MAY_LOOK: &str = "t.relkind IN ('r', 'p') AND pg_catalog.has_table_privilege(t.oid, 'SELECT') \
    AND NOT pg_catalog.row_security_active(t.oid)";

/// Which of the schema and the table exist, and what the role may do: one row of texts.
const GROUND: &str = "SELECT current_user, pg_catalog.current_database(), n.oid IS NOT NULL, \
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), \
    COALESCE(pg_catalog.has_schema_privilege(n.oid, 'CREATE') \
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false), \
    c.oid IS NOT NULL, \
    COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
        AND pg_catalog.has_table_privilege(c.oid, 'SELECT') \
        AND pg_catalog.has_table_privilege(c.oid, 'INSERT') \
        AND pg_catalog.has_table_privilege(c.oid, 'UPDATE'), false) \
    FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $SCHEMA \
    LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = $TABLE";

/// The key of a row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// The table of checkpoints with its schema, quoted.
    pub table: String,
    pub pipeline: String,
    pub stream: String,
    /// The table that is written, quoted.
    pub target: String,
    /// A query for the OID of the target. It returns no row if the target does not exist.
    pub oid: String,
}

impl Key {
    pub(crate) fn new(settings: &Settings, pipeline: &str, stream: &str, target: &Name) -> Self {
        Self {
            table: qualified(&settings.checkpoint_schema, TABLE),
            pipeline: pipeline.into(),
            stream: stream.into(),
            target: target.sql(),
            oid: format!(
                "SELECT t.oid FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_namespace AS n \
                 ON n.oid = t.relnamespace WHERE n.nspname = {} AND t.relname = {}",
                quote_literal(&target.schema),
                quote_literal(&target.table)
            ),
        }
    }

    /// Refuses a target that another pipeline or stream writes, too: the source of this stream does not have their rows.
    /// Errors: `target_has_other_writer`.
    pub(crate) fn refuse_others(&self, client: &mut Client) -> Result<()> {
        let Self { table, target, .. } = self;
        let sql = format!(
            "SELECT c.pipeline, c.stream FROM {table} AS c WHERE c.target = {} AND NOT ({}) \
             ORDER BY c.updated_at DESC LIMIT 1",
            quote_literal(target),
            self.condition()
        );
        let answers = match client.simple_query(&sql) {
            Err(error) if is_missing(&error) => return Ok(()),
            answers => answers.map_err(|error| differs(table, error))?,
        };
        let Some(row) = found(&answers) else {
            return Ok(());
        };
        let (pipeline, stream) = (row.text(0)?, row.text(1)?);
        let (pipeline, stream) = (pipeline.unwrap_or_default(), stream.unwrap_or_default());
        let text = format!(
            "the stream {stream} of the pipeline {pipeline} writes to {target}, too, and deletes would take its rows for \
             deleted ones: {table} has its checkpoint"
        );
        Err(Error::config("target_has_other_writer", text).hint(format!(
            "write to a table of its own, or remove deletes; if that stream does not write to {target} any more, run on \
             the target: DELETE FROM {table} WHERE pipeline = {} AND stream = {} AND target = {}",
            quote_literal(pipeline),
            quote_literal(stream),
            quote_literal(target)
        )))
    }

    pub(crate) fn condition(&self) -> String {
        format!(
            "c.pipeline = {} AND c.stream = {} AND c.target = {}",
            quote_literal(&self.pipeline),
            quote_literal(&self.stream),
            quote_literal(&self.target)
        )
    }

    /// The row, as messages name it.
    pub(crate) fn row(&self) -> String {
        let Self {
            pipeline,
            stream,
            target,
            ..
        } = self;
        format!("pipeline {pipeline}, stream {stream}, target {target}")
    }

    /// The error for a value that no run writes: somebody edited the row.
    fn invalid(&self, column: &str, value: Option<&str>, wanted: &str) -> Error {
        let value = value.map_or_else(
            || "NULL".to_owned(),
            |value| format!("{:?}", value.chars().take(SHOWN_CHARS).collect::<String>()),
        );
        let text = format!(
            "{}, row of {}: the column {column} is {value}, and must be {wanted}",
            self.table,
            self.row()
        );
        let update = |value: &str| {
            format!(
                "the row was edited, because no run writes such a value; repair it in psql while \
                     no run of the pipeline is at work: UPDATE {} AS c SET {column} = {value} \
                     WHERE {};",
                self.table,
                self.condition()
            )
        };
        let hint = match column {
            "cursor" => {
                "the row was edited; put a cursor in its place with `rapidbyte state set PIPELINE STREAM CURSOR`, or \
                 read the stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM`"
                    .to_owned()
            }
            "complete" => update("false"),
            "run_id" => update("''"),
            _ => update("1"),
        };
        Error::schema(INVALID, text).hint(hint)
    }

    /// The error for a target with rows if the table of checkpoints, or the row in it, is missing.
    fn has_no_row(&self, rows: &TargetRows) -> Error {
        self.cursor_missing(
            rows,
            &format!("{} has no row of {}", self.table, self.row()),
        )
    }

    /// The error for a target with rows if the row does not have a cursor: somebody edited the column, or full
    /// refreshes wrote the rows.
    fn has_no_cursor(&self, rows: &TargetRows) -> Error {
        let why = format!(
            "the column cursor is NULL in {}, row of {}",
            self.table,
            self.row()
        );
        self.cursor_missing(rows, &why)
    }

    fn cursor_missing(&self, rows: &TargetRows, why: &str) -> Error {
        let target = &self.target;
        let (has, look) = match rows {
            TargetRows::HiddenByPolicies => (
                "may have rows, which row-level security hides from this role",
                "to know whether it has rows, write as the table's owner or as a role with BYPASSRLS; or ".to_owned(),
            ),
            TargetRows::HiddenFrom(role) => (
                "may have rows, which this role may not read",
                format!("to know whether it has rows, run as its owner: GRANT SELECT ON {target} TO {role}; or "),
            ),
            _ => ("has rows", String::new()),
        };
        let text = format!(
            "{target} {has}, and {why}: the stream would start with its first row and append every \
                 row again"
        );
        Error::schema("cursor_missing", text).hint(format!(
            "{look}resume after the rows that the table has: `rapidbyte state set PIPELINE STREAM CURSOR`; or replace \
             them: `rapidbyte run PIPELINE --full-refresh --select STREAM`; or append all rows to them: \
             `rapidbyte state clear PIPELINE STREAM`, then run",
        ))
    }
}

/// Whether a target has rows, as far as this role can know.
#[derive(Debug, PartialEq, Eq)]
enum TargetRows {
    /// The target is empty, is not a table, or cannot be queried now.
    NoneKnown,
    Some,
    /// The target has storage, and policies hide some or all of its rows from this role.
    HiddenByPolicies,
    /// The target has storage, and this role (quoted) may not read it.
    HiddenFrom(String),
}

const INVALID: &str = "checkpoint_invalid";
/// The most characters of a value that a message shows.
const SHOWN_CHARS: usize = 60;

/// The progress of the stream. `None` if the table or the row does not exist. Errors: `checkpoint_invalid`; if rows
/// will follow, also `cursor_missing`.
pub(crate) fn progress(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
    target: &Target,
) -> Result<Option<Progress>> {
    let sql = format!(
        "SELECT c.epoch, c.seq, c.cursor, c.complete, c.run_id, \
             pg_catalog.to_jsonb(c) ->> 'target_oid', t.oid, {MAY_LOOK} \
         FROM {} AS c LEFT JOIN pg_catalog.pg_class AS t ON t.oid = ({}) WHERE {}",
        key.table,
        key.oid,
        key.condition()
    );
    let answers = match client.simple_query(&sql) {
        Err(error) if is_missing(&error) => Vec::new(),
        Err(error) => return Err(explain(client, settings, key, error)),
        Ok(answers) => answers,
    };
    // A call that only reads the cursor appends nothing. An upsert, and an append with a lag, write no row twice.
    let appends = target.is_incremental
        && matches!(target.write_mode, WriteMode::Append)
        && !rows_may_come_again(target);
    let Some(row) = answers.first().and_then(|rows| rows.rows.first()) else {
        if appends {
            match target_rows(client, key)? {
                TargetRows::NoneKnown => {}
                rows => return Err(key.has_no_row(&rows)),
            }
        }
        return Ok(None);
    };
    let mut progress = read_progress(row, key)?;
    let (known, found) = (row.text(5)?, row.text(6)?);
    let may_look = row.text(7)? == Some("t");
    let Some(cursor) = &progress.cursor else {
        // `state clear` leaves neither an OID nor a complete run: the operator wants all rows again.
        let is_of_run = progress.complete || known.is_some() && known == found;
        if appends && is_of_run {
            match target_rows(client, key)? {
                TargetRows::NoneKnown => {}
                rows => return Err(key.has_no_cursor(&rows)),
            }
        }
        // The run that resumes this one would not append it again.
        let is_whole = !target.is_incremental && matches!(target.write_mode, WriteMode::Append);
        if is_whole {
            progress.lost_rows = match (known, found) {
                (Some(_), None) => Some(format!("{} was dropped", key.target)),
                (Some(known), Some(found)) => lost(client, key, known == found, may_look)?,
                (None, _) => None,
            };
        }
        return Ok(Some(progress));
    };
    let resumes = target.is_incremental && !matches!(target.write_mode, WriteMode::Replace);
    if resumes && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(cursor) {
        return Err(key.invalid(
            "cursor",
            Some(cursor),
            &format!("a JSON document ({error})"),
        ));
    }
    if let (Some(known), Some(found)) = (known, found) {
        // With `deleted_field` an upsert may delete all rows.
        let may_look = may_look && target.deleted_field.is_none();
        progress.lost_rows = lost(client, key, known == found, may_look)?;
    }
    Ok(Some(progress))
}

/// Why committed rows are no longer in the target, which exists.
fn lost(client: &mut Client, key: &Key, is_same: bool, may_look: bool) -> Result<Option<String>> {
    Ok(if !is_same {
        Some(format!("{} was dropped and created again", key.target))
    } else if may_look && is_empty(client, &key.target)? == Some(true) {
        Some(format!("{} was emptied", key.target))
    } else {
        None
    })
}

/// Whether the target has rows. For rows that the role does not see, only the storage tells.
fn target_rows(client: &mut Client, key: &Key) -> Result<TargetRows> {
    let sql = format!(
        "SELECT t.relkind IN ('r', 'p'), pg_catalog.has_table_privilege(t.oid, 'SELECT'), \
             pg_catalog.row_security_active(t.oid), pg_catalog.quote_ident(current_user), t.oid \
         FROM pg_catalog.pg_class AS t WHERE t.oid = ({})",
        key.oid
    );
    let answers = client.simple_query(&sql)?;
    let Some(row) = found(&answers) else {
        return Ok(TargetRows::NoneKnown);
    };
    let is = |column| Ok::<_, Error>(row.text(column)? == Some("t"));
    let (is_table, may_read, is_filtered) = (is(0)?, is(1)?, is(2)?);
    if !is_table {
        return Ok(TargetRows::NoneKnown);
    }
    let (rows, is_empty) = if may_read && !is_filtered {
        (TargetRows::Some, is_empty(client, &key.target)?)
    } else {
        let rows = match is_filtered {
            true => TargetRows::HiddenByPolicies,
            false => TargetRows::HiddenFrom(row.text(3)?.unwrap_or_default().to_owned()),
        };
        let oid = row.text(4)?.unwrap_or_default();
        (rows, has_no_storage(client, &key.target, oid)?)
    };
    Ok(match is_empty {
        Some(false) => rows,
        _ => TargetRows::NoneKnown,
    })
}

/// Whether the target is empty. `None` if it is not a table, or if the role does not see all of its rows.
pub(crate) fn is_target_empty(client: &mut Client, key: &Key) -> Result<Option<bool>> {
    let sql = format!(
        "SELECT {MAY_LOOK} FROM pg_catalog.pg_class AS t WHERE t.oid = ({})",
        key.oid
    );
    let answers = client.simple_query(&sql)?;
    let may_look = match found(&answers) {
        Some(row) => row.text(0)? == Some("t"),
        None => false,
    };
    match may_look {
        true => is_empty(client, &key.target),
        false => Ok(None),
    }
}

/// Whether the table is empty. `None` if the table is locked, or if the answer takes longer than the limits of the
/// role.
fn is_empty(client: &mut Client, table: &str) -> Result<Option<bool>> {
    let question = format!("SELECT (NOT EXISTS (SELECT FROM {table}))::text");
    is_so(client, table, &question)
}

/// Whether the table and its partitions have no page. Every role may ask that.
fn has_no_storage(client: &mut Client, table: &str, oid: &str) -> Result<Option<bool>> {
    let question = format!(
        "SELECT (COALESCE(pg_catalog.sum(pg_catalog.pg_relation_size(p.oid)), 0) = 0)::text \
         FROM (SELECT {oid}::pg_catalog.oid UNION \
             SELECT t.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree({oid}) AS t) AS p(oid)"
    );
    is_so(client, table, &question)
}

/// The answer to a question about the rows of a table. `None` if the server does not answer it.
fn is_so(client: &mut Client, table: &str, question: &str) -> Result<Option<bool>> {
    let sql = format!(
        "{BEGIN} READ ONLY; SET LOCAL lock_timeout = {}; {question}; ROLLBACK",
        lock::PATIENCE_MS
    );
    match client.simple_query(&sql) {
        Ok(answers) => {
            let mut rows = answers.iter().filter_map(|rows| rows.rows.first());
            let answer = rows.next().map(|row| row.text(0)).transpose()?.flatten();
            Ok(Some(answer == Some("true")))
        }
        Err(error) if client.is_usable() => {
            client.execute("ROLLBACK")?;
            log::debug(format!(
                "cannot find out whether {table} has rows: {}",
                error.message
            ));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Errors: `checkpoint_invalid`.
pub(crate) fn read_progress(row: &Row, key: &Key) -> Result<Progress> {
    let complete = row.text(3)?;
    let run_id = row.text(4)?;
    Ok(Progress {
        epoch: number(row, 0, key, "epoch")?,
        seq: number(row, 1, key, "seq")?,
        cursor: row.text(2)?.map(str::to_owned),
        complete: match complete {
            Some("t") => true,
            Some("f") => false,
            other => return Err(key.invalid("complete", other, "true or false")),
        },
        run_id: match run_id {
            Some(id) => id.into(),
            None => return Err(key.invalid("run_id", None, "the id of a run")),
        },
        lost_rows: None,
    })
}

/// The largest number that a run can still raise.
const MAX_NUMBER: u64 = i64::MAX as u64 - 1;

fn number(row: &Row, column: usize, key: &Key, name: &str) -> Result<u64> {
    let text = row.text(column)?;
    let number = text.and_then(|text| text.parse().ok());
    number
        .filter(|number| *number <= MAX_NUMBER)
        .ok_or_else(|| key.invalid(name, text, &format!("a number from 0 to {MAX_NUMBER}")))
}

/// The statement for the index that finds the origins of a target's columns.
fn create_index(table: &str) -> String {
    format!("CREATE INDEX IF NOT EXISTS checkpoint_target ON {table} (target)")
}

/// Adds the columns that a table of an earlier version lacks. False if the role may not, or if another
/// session holds the table.
pub(crate) fn add_later(client: &mut Client, table: &str) -> Result<bool> {
    let alter = ADD_LATER.replace("$TABLE", table);
    let alter = alter.replace("$INDEX", &create_index(table));
    let patience = lock::PATIENCE_MS;
    let sql = format!("{BEGIN}; SET LOCAL lock_timeout = {patience}; {alter}; COMMIT");
    match client.simple_query(&sql) {
        Ok(_) => Ok(true),
        Err(error) if client.is_usable() => {
            client.execute("ROLLBACK")?;
            log::debug(format!(
                "an emptied target, or a renamed column, may not be noticed; have the owner run: {alter} ({})",
                error.message
            ));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Creates the table, in one send. Of two runs at the same time, the second finds the table. A run that is stopped in
/// between blocks no other run.
pub(crate) fn make(client: &mut Client, settings: &Settings) -> Result<()> {
    let statements = missing(client, settings)?;
    failpoint("dest-postgres.checkpoint_missing")?;
    if statements.is_empty() {
        return Ok(());
    }
    let lock = format!(
        "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext({}))",
        quote_literal(MAKING)
    );
    let begin = transaction::begin(client, settings);
    let sql = format!("{begin}; {lock}; {}; COMMIT", statements.join("; "));
    if let Err(error) = client.execute(&sql) {
        if client.is_usable() {
            client.execute("ROLLBACK")?;
        }
        return Err(lock::no_turn(error, "the table of checkpoints"));
    }
    failpoint("dest-postgres.checkpoint_made")
}

/// The question whether the table exists.
pub(crate) fn ground(settings: &Settings) -> String {
    GROUND
        .replace("$SCHEMA", &quote_literal(&settings.checkpoint_schema))
        .replace("$TABLE", &quote_literal(TABLE))
}

fn missing(client: &mut Client, settings: &Settings) -> Result<Vec<String>> {
    let [found] = client.query_all(&ground(settings))?;
    makers(settings, &found)
}

/// The statements that create the table; none if it exists. `found` is the answer to [`ground`]. Errors:
/// `checkpoint_not_allowed` with a script for the administrator.
pub(crate) fn makers(settings: &Settings, found: &Rows) -> Result<Vec<String>> {
    let schema = &settings.checkpoint_schema;
    let Some(row) = found.rows.first() else {
        return Err(Error::internal("a question without an answer"));
    };
    let is = |column: usize| Ok::<_, Error>(row.text(column)? == Some("t"));
    let (user, database) = (row.text(0)?.unwrap_or_default(), row.text(1)?);
    let (has_schema, may_create_schema, has_table) = (is(2)?, is(3)?, is(5)?);
    let (quoted_schema, table) = (quote_ident(schema), qualified(schema, TABLE));
    let create_schema = format!("CREATE SCHEMA IF NOT EXISTS {quoted_schema}");
    let create_table = format!("CREATE TABLE IF NOT EXISTS {table} {COLUMNS}");
    let create_index = create_index(&table);
    let may = match (has_schema, has_table) {
        (_, true) => is(6)?,
        (true, false) => is(4)?,
        (false, _) => may_create_schema,
    };
    if !may {
        let what = match (has_schema, has_table) {
            (_, true) => format!("read and write {table}"),
            (true, false) => format!("create tables in the schema {quoted_schema}"),
            (false, _) => {
                let database = quote_ident(database.unwrap_or_default());
                format!("create the schema {quoted_schema} in {database}")
            }
        };
        let text = format!(
            "{user} may not {what}, which holds the cursor of each stream and the run that \
                 writes it"
        );
        let user = quote_ident(user);
        return Err(
            Error::new(ErrorKind::Auth, "checkpoint_not_allowed", text).hint(format!(
                "-- name a schema of your own with `checkpoint_schema:`, or let an administrator run in psql:\n\
                 {create_schema};\n{};\n{create_index};\nGRANT USAGE ON SCHEMA {quoted_schema} TO {user};\n\
                 GRANT SELECT, INSERT, UPDATE ON {table} TO {user};",
                one_line(&create_table)
            )),
        );
    }
    Ok(match (has_schema, has_table) {
        (_, true) => Vec::new(),
        (true, false) => vec![create_table, create_index],
        (false, _) => vec![create_schema, create_table, create_index],
    })
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ")
}

/// Whether the error says that the table or its schema does not exist.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error.code.as_str(), "pg_42P01" | "pg_3F000")
}

/// The meaning of a server's error for the table of checkpoints.
pub(crate) fn explain(client: &mut Client, settings: &Settings, key: &Key, error: Error) -> Error {
    match error.code.as_str() {
        // The statement raises only this number.
        "pg_22003" => {
            let wanted = format!("a number from 0 to {MAX_NUMBER}");
            key.invalid("epoch", Some(&i64::MAX.to_string()), &wanted)
        }
        "pg_42501" => match missing(client, settings) {
            Err(reason) if reason.code == "checkpoint_not_allowed" => reason,
            _ => error,
        },
        "pg_25006" => {
            let answers = client.simple_query("SELECT pg_catalog.pg_is_in_recovery()");
            let answer = answers.ok();
            let answer = answer.as_ref().and_then(|a| a.first()?.single().ok());
            read_only(answer == Some("t"))
        }
        _ => differs(&qualified(&settings.checkpoint_schema, TABLE), error),
    }
}

/// The error of a statement on the table of checkpoints (quoted, with its schema). If a column or the key is missing,
/// or a view has the name of the table, the error says so. Any other error stays as it is.
pub(crate) fn differs(table: &str, error: Error) -> Error {
    if !matches!(error.code.as_str(), "pg_42703" | "pg_42P10" | "pg_42809") {
        return error;
    }
    let text = format!("{table} is not the table of checkpoints: {}", error.message);
    let add = ADD_COLUMNS.map(|column| format!("ADD COLUMN IF NOT EXISTS {column}"));
    Error::config("checkpoint_table_differs", text).hint(format!(
        "if it is another program's table, name another schema with `checkpoint_schema:`; if somebody dropped columns, \
         run in psql while no run of the pipeline is at work: ALTER TABLE {table} {}; without pipeline, stream or target \
         nobody knows what a row belongs to: restore the table from a backup, or drop it, and the next runs of appends \
         say how to resume",
        add.join(", ")
    ))
}

pub(crate) fn found(answers: &[Rows]) -> Option<&Row> {
    answers.first()?.rows.first()
}
