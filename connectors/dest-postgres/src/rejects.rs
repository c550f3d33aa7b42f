//! Records that do not get into the target, in a table of their own: rows that this destination or the server refuses,
//! and records that the source cannot read. They commit together with the rows around them.

use rapidbyte_formats::object;
use rapidbyte_pg::ident::{self, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Format, Param};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::name;
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, Settings, parts_of};
use crate::convert;
use crate::transaction::BEGIN;

/// The columns of the table. A run that finds a table without one of them refuses it.
const COLUMNS: [(&str, &str); 12] = [
    (
        "rejected_at",
        "timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()",
    ),
    ("pipeline", "text NOT NULL"),
    ("run_id", "text NOT NULL"),
    ("stream", "text NOT NULL"),
    ("target", "text NOT NULL"),
    ("location", "text"),
    ("column_name", "text"),
    ("code", "text NOT NULL"),
    ("message", "text NOT NULL"),
    ("record", "text"),
    // A record that is not text of this server.
    ("record_bytes", "bytea"),
    ("record_is_cut", "boolean NOT NULL"),
];
/// Rejects are sent when they have this many bytes.
const PENDING_BYTES: usize = 1 << 20;
/// Counted for each reject beside its texts.
const REJECT_BYTES: usize = 128;

/// The table for the rejects of a target, which fills the table `filled`. None if it keeps none. Errors: `invalid_name`.
pub(crate) fn table(settings: &Settings, target: &Target, filled: &Name) -> Result<Option<Name>> {
    let Some(rejects) = &target.rejects else {
        return Ok(None);
    };
    let parts = name::parts(&rejects.to).unwrap_or_default();
    if !matches!(parts.len(), 1 | 2) || parts.iter().any(String::is_empty) {
        let text = format!("{:?} is not the name of a table", rejects.to);
        return Err(Error::config("invalid_name", text)
            .hint("write a table, or a schema and a table, such as raw.rejects")
            .at("rejects.to"));
    }
    let (schema, table) = parts_of(&rejects.to);
    let own = Name { schema, table };
    for part in [&own.schema, &own.table] {
        ident::check_name(part).map_err(|error| convert(error).at("rejects.to"))?;
    }
    let is_system = own.schema.starts_with("pg_") || own.schema == "information_schema";
    match own == *filled {
        true => Err(is_target(&own)),
        false if is_system || settings.is_own(&own) => {
            let problem = "it belongs to the server or to Rapidbyte";
            Err(refused(&own, "invalid_name", problem))
        }
        false => Ok(Some(own)),
    }
}

/// The error for a table of rejects that a stream is written to. No stream of the run may move then.
pub(crate) fn is_target(table: &Name) -> Error {
    refused(table, "shared_target", "a stream is written to it")
}

fn refused(table: &Name, code: &str, problem: &str) -> Error {
    let text = format!("{table} cannot keep rejects: {problem}");
    Error::config(code, text)
        .hint("name another table, such as raw.rejects")
        .at("rejects.to")
}

/// The statements that make the table; none if it is there. Errors: `rejects_table_differs`, `no_privilege`.
pub(crate) fn makers(client: &mut Client, table: &Name) -> Result<Vec<String>> {
    let regclass = format!("pg_catalog.to_regclass({})", quote_literal(&table.sql()));
    let names = COLUMNS.map(|(name, _)| format!("({})", quote_literal(name)));
    let [found] = client.query_all(&format!(
        "SELECT {regclass} IS NOT NULL, n.oid IS NOT NULL, \
             (SELECT pg_catalog.string_agg(w.name, ', ') FROM (VALUES {}) AS w (name) WHERE NOT EXISTS ( \
                 SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = {regclass} AND a.attname = w.name)), \
             pg_catalog.has_table_privilege({regclass}, 'INSERT'), \
             pg_catalog.has_schema_privilege(n.oid, 'CREATE'), \
             pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), \
             pg_catalog.quote_ident(current_user) \
         FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = {}",
        names.join(", "),
        quote_literal(&table.schema)
    ))?;
    let row = found.rows.first();
    let text = |column: usize| -> Result<Option<&str>> {
        Ok(row.map(|row| row.text(column)).transpose()?.flatten())
    };
    let is = |column: usize| Ok::<_, Error>(text(column)? == Some("t"));
    let (has_table, has_schema) = (is(0)?, is(1)?);
    let schema = quote_ident(&table.schema);
    let role = text(6)?.unwrap_or_default();
    if has_table {
        if let Some(lacking) = text(2)? {
            let text = format!("{table} is no table of rejects: it has no column {lacking}");
            return Err(Error::schema("rejects_table_differs", text)
                .hint("name a table that does not exist yet, which the run makes")
                .at("rejects.to"));
        }
        return match is(3)? {
            true => Ok(Vec::new()),
            false => Err(denied(
                format!("the role may not insert into {table}"),
                format!("GRANT INSERT ON {table} TO {role}"),
            )),
        };
    }
    let columns = COLUMNS.map(|(name, ty)| format!("{name} {ty}"));
    let create = format!(
        "CREATE TABLE IF NOT EXISTS {table} ({})",
        columns.join(", ")
    );
    match has_schema {
        true if is(4)? => Ok(vec![create]),
        true => Err(denied(
            format!("the role may not make {table}"),
            format!("GRANT CREATE ON SCHEMA {schema} TO {role}"),
        )),
        false if is(5)? => Ok(vec![
            format!("CREATE SCHEMA IF NOT EXISTS {schema}"),
            create,
        ]),
        false => Err(denied(
            format!("the schema of {table} is missing, and the role may not make it"),
            format!("CREATE SCHEMA {schema}; GRANT CREATE, USAGE ON SCHEMA {schema} TO {role}"),
        )),
    }
}

/// The note of a plan.
pub(crate) fn note(table: &Name) -> String {
    format!(
        "each batch is written behind a savepoint, and rows that do not go in are kept in {table}"
    )
}

fn denied(text: String, statement: String) -> Error {
    Error::new(ErrorKind::Auth, "no_privilege", text)
        .hint(format!("have the owner run: {statement}"))
        .at("rejects.to")
}

/// Makes the table in a transaction of its own, one run at a time.
pub(crate) fn make(client: &mut Client, table: &Name) -> Result<()> {
    let statements = makers(client, table)?;
    if statements.is_empty() {
        return Ok(());
    }
    let lock = crate::decide::lock_prelude();
    let done = client.execute(&format!(
        "{BEGIN}; {lock}; {}; COMMIT",
        statements.join("; ")
    ));
    if done.is_err() && client.is_usable() {
        client.execute("ROLLBACK")?;
    }
    done?;
    failpoint("dest-postgres.rejects_made")
}

/// Keeps the rejects of a load.
pub(crate) struct Keeper {
    table: Name,
    run: Run,
    stream: String,
    target: String,
    max_rows: Option<u64>,
    /// Rejects of this load, including rejects of the source.
    rows: u64,
    /// Rows of batches that were refused.
    pub(crate) refused_rows: u64,
    /// The refused rows that the host does not know yet.
    refused: Refused,
    pending: Vec<Reject>,
    pending_bytes: usize,
}

impl Keeper {
    pub(crate) fn new(table: Name, run: &Run, target: &Target, name: &Name) -> Self {
        Self {
            table,
            run: run.clone(),
            stream: target.stream.clone(),
            target: name.sql(),
            max_rows: target.rejects.as_ref().and_then(|rejects| rejects.max_rows),
            rows: 0,
            refused_rows: 0,
            refused: Refused::default(),
            pending: Vec::new(),
            pending_bytes: 0,
        }
    }

    pub(crate) fn table(&self) -> &Name {
        &self.table
    }

    /// The rows that were refused since the last call.
    pub(crate) fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }

    /// Keeps a row of a batch, the row `number` of the stream.
    pub(crate) fn refuse(&mut self, batch: &RecordBatch, row: usize, number: u64, error: &Error) {
        let (data, is_cut) = object(batch, row);
        let reject = Reject {
            data,
            is_cut,
            location: Some(format!("row {number}")),
            column: error.column.clone(),
            code: error.code.clone(),
            message: without_place(&error.message, number).to_owned(),
        };
        self.refused.add(&reject);
        self.refused_rows += 1;
        self.add(reject);
    }

    /// Whether the host fails the stream, because it has too many rejects.
    pub(crate) fn is_above(&self) -> bool {
        self.max_rows.is_some_and(|most| self.rows > most)
    }

    /// Keeps a record, or a row.
    pub(crate) fn add(&mut self, reject: Reject) {
        self.rows += 1;
        self.pending_bytes += reject.data.len() + reject.message.len() + REJECT_BYTES;
        self.pending.push(reject);
    }

    /// Whether no reject waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the rejects have to be sent before more are added.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_bytes >= PENDING_BYTES
    }

    /// Writes the rejects into the table, in the transaction that is open.
    pub(crate) fn send(&mut self, client: &mut Client) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rejects = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let rows: Vec<serde_json::Value> = rejects.iter().map(as_json).collect();
        let rows = serde_json::Value::from(rows).to_string();
        let sql = format!(
            "WITH kept AS (INSERT INTO {} (pipeline, run_id, stream, target, location, column_name, code, message, record, \
                 record_bytes, record_is_cut) \
             SELECT {}, {}, {}, {}, r.l, r.c, r.k, r.m, r.t, pg_catalog.decode(r.b, 'hex'), r.x \
             FROM pg_catalog.json_to_recordset($1) AS r (l text, c text, k text, m text, t text, b text, x boolean) \
             RETURNING 1) SELECT pg_catalog.count(*) FROM kept",
            self.table,
            quote_literal(&self.run.pipeline),
            quote_literal(&self.run.id),
            quote_literal(&self.stream),
            quote_literal(&self.target),
        );
        let param = Param {
            type_oid: 0,
            format: Format::Text,
            value: Some(rows.as_bytes()),
        };
        let sent = client.query(&sql, &[param], Format::Text);
        let kept = sent.map_err(|error| {
            let text = format!("{} does not take rejects: {}", self.table, error.message);
            Error::new(error.kind, &error.code, text)
        })?;
        crate::rows::ensure_all(
            &self.table,
            rejects.len() as u64,
            kept.single()?.parse().unwrap_or(0),
        )
    }
}

/// A message without its place, which has a column of its own in the table.
fn without_place(message: &str, number: u64) -> &str {
    let place = format!("row {number}");
    let rest = message.strip_prefix(&place).unwrap_or(message);
    rest.trim_start_matches([':', ',', ' '])
}

/// A reject as an object of [`Keeper::send`]. A text cannot hold NUL on this server.
fn as_json(reject: &Reject) -> serde_json::Value {
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    let record = std::str::from_utf8(&reject.data).ok();
    let record = record.filter(|record| !record.contains('\0'));
    let hex = || {
        reject
            .data
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    serde_json::json!({
        "l": reject.location.as_deref().map(text),
        "c": reject.column.as_deref().map(text),
        "k": text(&reject.code),
        "m": text(&reject.message),
        "t": record.filter(|record| !record.is_empty()),
        "b": record.is_none().then(hex),
        "x": reject.is_cut,
    })
}
