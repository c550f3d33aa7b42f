//! Records that do not get into the target, in a table of their own: rows that this destination or the server refuses,
//! and records that the source cannot read. They commit together with the rows around them.

use std::collections::VecDeque;

use rapidbyte_formats::object;
use rapidbyte_pg::behind::Columns;
use rapidbyte_pg::ident::{self, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Format, Param, Row};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::name;
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::is_missing;
use crate::config::{Name, Settings, parts_of};
use crate::convert;
use crate::kept::ensure_all;
use crate::lock::{NO_PRIVILEGE, lock_prelude};
use crate::transaction::BEGIN;

/// The columns of the table. A run that finds a table without one of them refuses it, but adds the [`ADDED`] columns.
const COLUMNS: [(&str, &str); 16] = [
    ("id", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (
        "rejected_at",
        "timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()",
    ),
    ("pipeline", "text NOT NULL"),
    ("run_id", "text NOT NULL"),
    ("stream", "text NOT NULL"),
    ("target", "text NOT NULL"),
    ("origin", "text NOT NULL"),
    ("location", "text"),
    ("column_name", "text"),
    ("code", "text NOT NULL"),
    ("message", "text NOT NULL"),
    ("record", "text"),
    // A record that is not text of this server.
    ("record_bytes", "bytea"),
    ("record_is_cut", "boolean NOT NULL"),
    // A record of the source: what the source read it with. A row: the columns at the source behind its names.
    ("read_with", "text"),
    // The id of the reject that was first kept of a record that failed again.
    ("first_id", "bigint"),
];
/// Columns that tables of earlier versions do not have.
const ADDED: [&str; 2] = ["read_with", "first_id"];
/// Rejects are sent when they have this many bytes.
const PENDING_BYTES: usize = 1 << 20;
/// Counted for each reject beside its texts.
const REJECT_BYTES: usize = 128;

/// The table for the rejects of a target, which fills the table `filled`. None if it keeps none. Errors: `invalid_name`.
pub(crate) fn table(settings: &Settings, target: &Target, filled: &Name) -> Result<Option<Name>> {
    let Some(rejects) = &target.rejects else {
        return Ok(None);
    };
    let own = named(&rejects.to)?;
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

/// The table that `rejects.to` names. Errors: `invalid_name`.
fn named(to: &str) -> Result<Name> {
    let parts = name::parts(to).unwrap_or_default();
    if !matches!(parts.len(), 1 | 2) || parts.iter().any(String::is_empty) {
        let text = format!("{to:?} is not the name of a table");
        return Err(Error::config("invalid_name", text)
            .hint("write a table, or a schema and a table, such as raw.rejects")
            .at("rejects.to"));
    }
    let (schema, table) = parts_of(to);
    let own = Name { schema, table };
    for part in [&own.schema, &own.table] {
        ident::check_name(part).map_err(|error| convert(error).at("rejects.to"))?;
    }
    Ok(own)
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
    let names = names.join(", ");
    let [found] = client.query_all(&format!(
        "SELECT {regclass} IS NOT NULL, n.oid IS NOT NULL, \
             (SELECT pg_catalog.string_agg(w.name, ', ') FROM (VALUES {names}) AS w (name) WHERE NOT EXISTS ( \
                 SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = {regclass} AND a.attname = w.name)), \
             (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ') FROM pg_catalog.pg_attribute a \
                 WHERE a.attrelid = {regclass} AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull \
                 AND NOT a.atthasdef AND a.attidentity = '' \
                 AND NOT EXISTS (SELECT FROM (VALUES {names}) AS w (name) WHERE w.name = a.attname)), \
             pg_catalog.pg_has_role((SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = {regclass}), 'USAGE'), \
             pg_catalog.has_table_privilege({regclass}, 'INSERT'), \
             pg_catalog.has_schema_privilege(n.oid, 'CREATE'), \
             pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), \
             pg_catalog.quote_ident(current_user) \
         FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = {}",
        quote_literal(&table.schema)
    ))?;
    let row = found.rows.first();
    let text = |column: usize| -> Result<Option<&str>> {
        Ok(row.map(|row| row.text(column)).transpose()?.flatten())
    };
    let is = |column: usize| Ok::<_, Error>(text(column)? == Some("t"));
    let (has_table, has_schema) = (is(0)?, is(1)?);
    let schema = quote_ident(&table.schema);
    let role = text(8)?.unwrap_or_default();
    if has_table {
        let lacking: Vec<&str> = text(2)?.map_or(Vec::new(), |names| names.split(", ").collect());
        let differs = |text: String| {
            Error::schema("rejects_table_differs", text)
                .hint("name a table that does not exist yet, which the run makes")
                .at("rejects.to")
        };
        if lacking.iter().any(|name| !ADDED.contains(name)) {
            let lacking = lacking.join(", ");
            let text = format!("{table} is not a table of rejects: it has no column {lacking}");
            return Err(differs(text));
        }
        if let Some(more) = text(3)? {
            let text = format!(
                "{table} is not a table of rejects: its column {more} takes no NULL and has no default"
            );
            return Err(differs(text));
        }
        let missing = COLUMNS.iter().filter(|(name, _)| lacking.contains(name));
        let add: Vec<String> = missing
            .map(|(name, ty)| format!("ADD COLUMN IF NOT EXISTS {name} {ty}"))
            .collect();
        let add = match add.is_empty() {
            true => Vec::new(),
            false => vec![format!("ALTER TABLE {table} {}", add.join(", "))],
        };
        if let (Some(alter), false) = (add.first(), is(4)?) {
            let text =
                format!("the role may not add columns to {table}, which an earlier version made");
            return Err(denied(text, alter.clone()));
        }
        return match is(5)? {
            true => Ok(add),
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
    let index = format!(
        "CREATE INDEX IF NOT EXISTS {} ON {table} (pipeline, (COALESCE(first_id, id)), id)",
        quote_ident(&index_of(&table.table))
    );
    match has_schema {
        true if is(6)? => Ok(vec![create, index]),
        true => Err(denied(
            format!("the role may not make {table}"),
            format!("GRANT CREATE ON SCHEMA {schema} TO {role}"),
        )),
        false if is(7)? => Ok(vec![
            format!("CREATE SCHEMA IF NOT EXISTS {schema}"),
            create,
            index,
        ]),
        false => Err(denied(
            format!("the schema of {table} is missing, and the role may not make it"),
            format!("CREATE SCHEMA {schema}; GRANT CREATE, USAGE ON SCHEMA {schema} TO {role}"),
        )),
    }
}

/// The name of the index by which rejects are read in their order.
fn index_of(table: &str) -> String {
    const SUFFIX: &str = "_order";
    let mut name = table.to_owned();
    while name.len() + SUFFIX.len() > ident::MAX_NAME_BYTES {
        name.pop();
    }
    name + SUFFIX
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
    let lock = lock_prelude();
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

/// Rejects of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of the records and messages of a page: the last reject of the page may go beyond them.
const PAGE_BYTES: usize = 1 << 20;

/// A page of the rejects of a pipeline behind the reject `after`, without records unless `with_data`. Empty if the table
/// does not exist. Errors: `rejects_table_differs`, `no_privilege`.
pub(crate) fn page(
    client: &mut Client,
    to: &str,
    pipeline: &str,
    after: Option<&str>,
    with_data: bool,
) -> Result<Vec<KeptReject>> {
    let table = named(to)?;
    let (first, id) = after.map_or(Ok((0, 0)), |after| place_of(after, &table))?;
    let lacking = lacking(client, &table)?;
    let has = |name: &str| !lacking.iter().any(|lacking| lacking == name);
    let read_with = match has("read_with") {
        true => "t.read_with",
        false => "NULL::text",
    };
    let whole = format!("{}::text", whole("t"));
    let [record, bytes, read_with, whole] = match with_data {
        true => [
            "t.record",
            "pg_catalog.encode(t.record_bytes, 'hex')",
            read_with,
            &whole,
        ],
        false => ["NULL::text"; 4],
    };
    // As the index has it.
    let first_id = match has("first_id") {
        true => FIRST_ID,
        false => "t.id",
    };
    let sql = format!(
        "SELECT p.* FROM (SELECT q.*, pg_catalog.sum(COALESCE(pg_catalog.octet_length(q.record), 0) \
                 + COALESCE(pg_catalog.octet_length(q.hex), 0) + pg_catalog.octet_length(q.message) \
                 + COALESCE(pg_catalog.octet_length(q.read_with), 0)) \
                 OVER (ORDER BY q.first_id, q.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
             FROM (SELECT t.id, t.stream, t.run_id, \
                 pg_catalog.to_char(t.rejected_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"') AS kept_at, \
                 t.origin, t.location, t.column_name, t.code, t.message, t.record_is_cut, {record} AS record, \
                 {bytes} AS hex, {first_id} AS first_id, {read_with} AS read_with, \
                 pg_catalog.hashtextextended({whole}, 0)::text AS version \
             FROM {table} AS t WHERE t.pipeline = {} AND ({first_id}, t.id) > ({first}, {id}) \
             ORDER BY {first_id}, t.id LIMIT {PAGE_ROWS}) AS q) AS p \
         WHERE COALESCE(p.before, 0) < {PAGE_BYTES} ORDER BY p.first_id, p.id",
        quote_literal(pipeline),
    );
    let answers = match client.simple_query(&sql) {
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&table, error)),
        Ok(answers) => answers,
    };
    let rows = answers.first().map_or(&[][..], |rows| &rows.rows);
    rows.iter().map(kept).collect()
}

/// The place of a reject of the table `t` in the order of all rejects, as the index has it.
const FIRST_ID: &str = "COALESCE(t.first_id, t.id)";

/// The [`ADDED`] columns that the table does not have. All of them if the table does not exist.
fn lacking(client: &mut Client, table: &Name) -> Result<Vec<String>> {
    let names = ADDED.map(|name| format!("({})", quote_literal(name)));
    let [found] = client.query_all(&format!(
        "SELECT w.name FROM (VALUES {}) AS w (name) WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a \
             WHERE a.attrelid = pg_catalog.to_regclass({}) AND a.attname = w.name)",
        names.join(", "),
        quote_literal(&table.sql())
    ))?;
    let mut lacking = Vec::new();
    for row in &found.rows {
        lacking.extend(row.text(0)?.map(str::to_owned));
    }
    Ok(lacking)
}

/// A row of the table as JSON. A table of an earlier version lacks columns, which count as NULL.
fn whole(table: &str) -> String {
    format!(
        "(pg_catalog.jsonb_build_object('read_with', NULL, 'first_id', NULL) || pg_catalog.to_jsonb({table}))"
    )
}

/// A row of [`page`].
fn kept(row: &Row) -> Result<KeptReject> {
    let text = |column: usize| row.text(column).map(|text| text.map(str::to_owned));
    let needed = |column: usize| text(column).map(Option::unwrap_or_default);
    let data = match (text(10)?, text(11)?) {
        (Some(record), _) => record.into_bytes(),
        (None, Some(hex)) => from_hex(&hex),
        (None, None) => Vec::new(),
    };
    let (id, first_id) = (needed(0)?, needed(12)?);
    Ok(KeptReject {
        id: match id == first_id {
            true => id,
            false => format!("{first_id}.{id}"),
        },
        version: needed(14)?,
        stream: needed(1)?,
        run_id: needed(2)?,
        time: needed(3)?,
        origin: match needed(4)?.as_str() {
            "source" => RejectOrigin::Source,
            "transform" => RejectOrigin::Transform,
            _ => RejectOrigin::Destination,
        },
        reject: Reject {
            data,
            is_cut: needed(9)? == "t",
            location: text(5)?,
            column: text(6)?,
            code: needed(7)?,
            message: needed(8)?,
            read_with: text(13)?,
        },
    })
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0) as u8;
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| digit(&pair[0]) << 4 | digit(&pair[1]))
        .collect()
}

/// The id of the reject that was first kept of a record, and the id of the reject: `7.12`, or `12` for both. Errors:
/// `reject_missing`.
fn place_of(id: &str, table: &Name) -> Result<(i64, i64)> {
    let (first, own) = id.split_once('.').unwrap_or((id, id));
    match (first.parse(), own.parse()) {
        (Ok(first), Ok(own)) => Ok((first, own)),
        _ => Err(missing(&format!("{table} has no reject {id:?}: it was"))),
    }
}

/// The meaning of a server's error for the table of rejects.
fn unreadable(table: &Name, error: Error) -> Error {
    match error.code.as_str() {
        "pg_42703" => {
            let text = format!("{table} is not a table of rejects: {}", error.message);
            Error::schema("rejects_table_differs", text)
                .hint("name a table that does not exist yet, which the run makes")
                .at("rejects.to")
        }
        NO_PRIVILEGE => denied(
            format!("the role may not read and replay rejects of {table}"),
            format!("GRANT SELECT, UPDATE, DELETE ON {table} TO the role of the pipeline"),
        ),
        _ => error,
    }
}

fn missing(why: &str) -> Error {
    let text =
        format!("{why} replayed, changed or deleted before, and this replay changed nothing");
    Error::data("reject_missing", text).hint(
        "list the rejects again with `rapidbyte rejects show PIPELINE`, and replay those that are still there",
    )
}

/// The rejects that a load replays. Its commit removes them: only one of two replays can.
#[derive(Debug)]
pub(crate) struct Claim {
    table: Name,
    ids: Vec<i64>,
    /// The id of the reject that was first kept of each record.
    first_ids: Vec<i64>,
    versions: Vec<String>,
    /// The condition for them, on the table `r`.
    condition: String,
    columns: Columns,
}

impl Claim {
    /// `None` for a load that replays nothing. Errors: `reject_missing`.
    pub(crate) fn of(
        target: &Target,
        pipeline: &str,
        table: Option<&Name>,
    ) -> Result<Option<Self>> {
        let replayed = target.rejects.as_ref().map(|rejects| &rejects.replayed);
        let (Some(replayed), Some(table)) = (replayed, table) else {
            return Ok(None);
        };
        if replayed.is_empty() {
            return Ok(None);
        }
        let places = replayed.iter().map(|(id, _)| place_of(id, table));
        let places = places.collect::<Result<Vec<_>>>()?;
        let (first_ids, ids): (Vec<i64>, Vec<i64>) = places.into_iter().unzip();
        let list: Vec<String> = ids.iter().map(i64::to_string).collect();
        let condition = format!(
            "r.pipeline = {} AND r.stream = {} AND r.id = ANY ('{{{}}}'::bigint[])",
            quote_literal(pipeline),
            quote_literal(&target.stream),
            list.join(",")
        );
        Ok(Some(Self {
            table: table.clone(),
            ids,
            first_ids,
            versions: replayed
                .iter()
                .map(|(_, version)| version.clone())
                .collect(),
            condition,
            columns: Columns::of(target.arrow_schema()?.as_ref()).map_err(convert)?,
        }))
    }

    /// The places of the rejects in the order of all rejects.
    pub(crate) fn first_ids(&self) -> Vec<i64> {
        self.first_ids.clone()
    }

    /// Keeps other replays of these rejects waiting until the end of the open transaction. Errors: `reject_missing`.
    pub(crate) fn hold(&self, client: &mut Client) -> Result<()> {
        let all = self.ids.len();
        let mut held = self.locked(client, "FOR UPDATE SKIP LOCKED")?;
        if held < all {
            if self.locked(client, "")? == all {
                log::warn(format!(
                    "the replay waits: another session has rejects in {} locked, and pg_locks names it",
                    self.table
                ));
            }
            held = self.count(client)?;
        }
        if held == all {
            held = self.unchanged(client)?;
        }
        match held == all {
            true => self.refuse_other_columns(client),
            false => Err(self.missing(held)),
        }
    }

    /// How many of the rejects, which are locked, are as they were read.
    fn unchanged(&self, client: &mut Client) -> Result<usize> {
        let read = self.ids.iter().zip(&self.versions);
        let read: Vec<String> = read
            .map(|(id, version)| format!("({id}, {})", quote_literal(version)))
            .collect();
        let sql = format!(
            "SELECT pg_catalog.count(*) FROM {} AS t JOIN (VALUES {}) AS v (id, version) \
             ON v.id = t.id AND v.version = pg_catalog.hashtextextended({}::text, 0)::text",
            self.table,
            read.join(", "),
            whole("t")
        );
        let [same] = client.query_all(&sql)?;
        Ok(same.single()?.parse().unwrap_or(0))
    }

    /// Errors: `reject_columns_changed`.
    fn refuse_other_columns(&self, client: &mut Client) -> Result<()> {
        let sql = format!(
            "SELECT pg_catalog.min(r.id)::text, r.origin, r.read_with FROM {} AS r WHERE {} AND r.origin <> 'source' \
             AND r.read_with IS NOT NULL GROUP BY r.origin, r.read_with ORDER BY 1",
            self.table, self.condition
        );
        let [kept] = client.query_all(&sql)?;
        for row in &kept.rows {
            let text = |column: usize| row.text(column).map(Option::unwrap_or_default);
            if let Some(column) = self.columns.changed(text(1)?, text(2)?) {
                let text = format!(
                    "the reject {} cannot be replayed: {column:?} is another column at the source than when the row \
                     was rejected, or has another type",
                    text(0)?
                );
                return Err(Error::data("reject_columns_changed", text).in_column(&column).hint(
                    "write the values under the names of now into a file for --from, and set read_with of the reject \
                     to NULL; or run the pipeline again and delete the reject",
                ));
            }
        }
        Ok(())
    }

    /// How many of the rejects are there. Locks them.
    fn count(&self, client: &mut Client) -> Result<usize> {
        self.locked(client, "FOR UPDATE")
    }

    /// How many of the rejects a lock finds.
    fn locked(&self, client: &mut Client, lock: &str) -> Result<usize> {
        let sql = format!(
            "SELECT pg_catalog.count(*) FROM (SELECT FROM {} AS r WHERE {} ORDER BY r.id {lock}) AS held",
            self.table, self.condition
        );
        let counted = client.query_all(&sql);
        let [held] = match counted {
            Err(error) if is_missing(&error) => return Ok(0),
            counted => counted.map_err(|error| unreadable(&self.table, error))?,
        };
        Ok(held.single()?.parse().unwrap_or(0))
    }

    /// The statement that removes the rejects. It fails if one of them is not there any more.
    pub(crate) fn removal(&self) -> String {
        format!(
            "WITH gone AS (DELETE FROM {} AS r WHERE {} RETURNING 1) \
             SELECT 1 / (pg_catalog.count(*) = {})::int FROM gone",
            self.table,
            self.condition,
            self.ids.len()
        )
    }

    /// Why the server refused the removal: `reject_missing`, or `error` if all rejects are there.
    pub(crate) fn refused(&self, client: &mut Client, error: Error) -> Error {
        match self.count(client) {
            Ok(held) if held < self.ids.len() => self.missing(held),
            _ => error,
        }
    }

    /// Whether a commit without an answer happened. Waits until the server has decided, because the transaction of the
    /// commit holds the rejects. Errors: `reject_missing` if only some of them are there.
    pub(crate) fn has_happened(&self, client: &mut Client) -> Result<bool> {
        match self.count(client)? {
            0 => Ok(true),
            held if held == self.ids.len() => Ok(false),
            held => Err(self.missing(held)),
        }
    }

    fn missing(&self, held: usize) -> Error {
        let table = &self.table;
        missing(&match self.ids.as_slice() {
            [id] => format!("the reject {id} is not in {table} any more: it was"),
            ids => format!(
                "{held} of the {} rejects to replay are still in {table}: the others were",
                ids.len()
            ),
        })
    }
}

/// Keeps the rejects of a load.
pub(crate) struct Keeper {
    table: Name,
    run: Run,
    stream: String,
    target: String,
    max_rows: Option<u64>,
    columns: Columns,
    /// The places of the rejects that are replayed, for records that fail again.
    first_ids: VecDeque<i64>,
    /// Rejects of this load, including rejects of the source.
    rows: u64,
    /// Rows of batches that were refused.
    pub(crate) refused_rows: u64,
    /// The refused rows that the host does not know yet.
    refused: Refused,
    pending: Vec<(RejectOrigin, Reject, Option<i64>)>,
    pending_bytes: usize,
}

impl Keeper {
    pub(crate) fn new(
        table: Name,
        run: &Run,
        target: &Target,
        name: &Name,
        replayed: Vec<i64>,
    ) -> Result<Self> {
        Ok(Self {
            table,
            run: run.clone(),
            stream: target.stream.clone(),
            target: name.sql(),
            max_rows: target.rejects.as_ref().and_then(|rejects| rejects.max_rows),
            columns: Columns::of(target.arrow_schema()?.as_ref()).map_err(convert)?,
            first_ids: replayed.into(),
            rows: 0,
            refused_rows: 0,
            refused: Refused::default(),
            pending: Vec::new(),
            pending_bytes: 0,
        })
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
            read_with: None,
        };
        self.refused.add(&reject);
        self.refused_rows += 1;
        self.add(RejectOrigin::Destination, reject);
    }

    /// Whether the host fails the stream, because it has too many rejects.
    pub(crate) fn is_above(&self) -> bool {
        self.max_rows.is_some_and(|most| self.rows > most)
    }

    /// Keeps a record, or a row.
    pub(crate) fn add(&mut self, origin: RejectOrigin, reject: Reject) {
        self.rows += 1;
        let mut reject = reject;
        if origin != RejectOrigin::Source {
            reject.read_with = self.columns.of_origin(origin.name()).map(str::to_owned);
        }
        let read_with = reject.read_with.as_ref().map_or(0, String::len);
        self.pending_bytes += reject.data.len() + reject.message.len() + read_with + REJECT_BYTES;
        // A record that was divided into several may fail more than once.
        let first_id = match self.first_ids.len() {
            0 | 1 => self.first_ids.front().copied(),
            _ => self.first_ids.pop_front(),
        };
        self.pending.push((origin, reject, first_id));
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
            "WITH kept AS (INSERT INTO {} (pipeline, run_id, stream, target, origin, location, column_name, code, message, \
                 record, record_bytes, record_is_cut, read_with, first_id) \
             SELECT {}, {}, {}, {}, r.o, r.l, r.c, r.k, r.m, r.t, pg_catalog.decode(r.b, 'hex'), r.x, r.w, r.f \
             FROM pg_catalog.json_to_recordset($1) AS r (o text, l text, c text, k text, m text, t text, b text, x boolean, w text, f bigint) \
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
        ensure_all(
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
fn as_json((origin, reject, first_id): &(RejectOrigin, Reject, Option<i64>)) -> serde_json::Value {
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
        "o": origin.name(),
        "l": reject.location.as_deref().map(text),
        "c": reject.column.as_deref().map(text),
        "k": text(&reject.code),
        "m": text(&reject.message),
        "t": record.filter(|record| !record.is_empty()),
        "b": record.is_none().then(hex),
        "x": reject.is_cut,
        "w": reject.read_with.as_deref().filter(|read_with| !read_with.contains('\0')),
        "f": first_id,
    })
}
