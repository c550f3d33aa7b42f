//! Which relations there are, what may be done with each, and their columns.
//!
//! A stream's name is `schema.name` as the two are written in the catalog. A part with a dot in it
//! is quoted, so that a name always means one pair: see [`name`].

use std::collections::HashMap;

use rapidbyte_pg::Column;
use rapidbyte_pg::catalog::{self, Described, Types};
use rapidbyte_pg::ident::{qualified, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::name;
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;

use crate::ask::query;
use crate::config::Settled;
use crate::error::convert;

/// One JSON text for each relation. Takes no lock: sizes come from the last vacuum or analyze, summed over partitions
/// and children; a relation without pages may be new or empty.
const RELATIONS: &str = "\
SELECT pg_catalog.json_build_object(
    'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
    'columns', c.relnatts, 'rows', size.rows, 'bytes', size.bytes,
    'partition_of', CASE WHEN c.relispartition THEN (
        SELECT pg_catalog.json_build_array(rn.nspname, root.relname)
        FROM pg_catalog.pg_class root JOIN pg_catalog.pg_namespace rn ON rn.oid = root.relnamespace
        WHERE root.oid = pg_catalog.pg_partition_root(c.oid)) END,
    'is_unlogged', c.relpersistence = 'u', 'is_populated', c.relispopulated,
    'has_children', c.relkind = 'r' AND c.relhassubclass AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
    'has_row_security', c.relrowsecurity AND pg_catalog.row_security_active(c.oid),
    'usage', COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false),
    'select', COALESCE(pg_catalog.has_table_privilege(c.oid, 'SELECT'), false),
    'select_some', COALESCE(pg_catalog.has_any_column_privilege(c.oid, 'SELECT'), false),
    'closed_columns', CASE WHEN pg_catalog.has_table_privilege(c.oid, 'SELECT') THEN '[]'::json ELSE (
        SELECT COALESCE(pg_catalog.json_agg(a.attname ORDER BY a.attnum), '[]')
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND NOT a.attisdropped AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')) END)::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    WITH RECURSIVE parts(oid) AS (
        SELECT c.oid
        UNION
        SELECT i.inhrelid FROM parts JOIN pg_catalog.pg_inherits i ON i.inhparent = parts.oid
    )
    SELECT pg_catalog.sum(p.reltuples::int8) AS rows,
        pg_catalog.sum(p.relpages::int8 * pg_catalog.current_setting('block_size')::int8) AS bytes
    FROM parts JOIN pg_catalog.pg_class p ON p.oid = parts.oid
    WHERE p.relkind IN ('r', 'm') AND p.reltuples >= 0 AND p.relpages > 0
) AS size
WHERE $FILTER AND $WANTED
ORDER BY n.nspname, c.relname";

/// In the order of [`RELATIONS`].
const FIRST: &str = "\
ARRAY(SELECT f.oid FROM (
    SELECT c.oid, pg_catalog.sum(c.relnatts) OVER (
        ORDER BY n.nspname, c.relname ROWS UNBOUNDED PRECEDING) AS columns
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE $FILTER AND $WANTED
    ORDER BY n.nspname, c.relname LIMIT $MAX_RELATIONS
) AS f WHERE f.columns <= $MAX_COLUMNS)";

/// The relations that can be streams.
const FILTER: &str = "c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'";

/// One relation of `pg_class`, with our privileges on it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Relation {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// `r` table, `p` partitioned, `v` view, `m` materialized view, `f` foreign table; `q` a query of the pipeline,
    /// which has no OID.
    pub kind: char,
    /// The text of a query.
    #[serde(skip)]
    query: Option<String>,
    /// With dropped ones.
    pub columns: u32,
    pub rows: Option<u64>,
    pub bytes: Option<u64>,
    /// The partitioned table at the top.
    partition_of: Option<Pair>,
    pub is_unlogged: bool,
    /// False for a materialized view `WITH NO DATA`.
    pub is_populated: bool,
    /// Other tables inherit from it, and their rows are its rows.
    pub has_children: bool,
    /// Policies hide rows from us.
    pub has_row_security: bool,
    usage: bool,
    select: bool,
    select_some: bool,
    /// Columns that may not be read; empty where the table may be read as a whole.
    closed_columns: Vec<String>,
}

/// Schema and name.
type Pair = (String, String);

/// A stream that is about to be read, and the columns that it needs; none means all.
pub(crate) struct Wanted {
    pub stream: String,
    /// The text of a stream that is a query.
    pub query: Option<String>,
    pub columns: Option<Vec<String>>,
}

/// A stream as the transaction of a snapshot sees it.
pub(crate) struct Seen {
    pub relation: Relation,
    pub described: catalog::Relation,
}

impl Wanted {
    pub fn of(selection: &Selection) -> Self {
        let columns = selection.columns.clone().map(|mut columns| {
            let increment = selection.increment.iter();
            columns.extend(increment.flat_map(|increment| increment.cursor_fields.clone()));
            columns
        });
        Self {
            stream: selection.stream.clone(),
            query: selection.query.clone(),
            columns,
        }
    }
}

/// The relation that a stream's name means; nothing for a name that is not of two parts.
fn pair(stream: &str) -> Option<Pair> {
    let mut parts = name::parts(stream)?.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(schema), Some(name), None) => Some((schema, name)),
        _ => None,
    }
}

impl Relation {
    /// A query of the pipeline. Whether the role may run it is for the server to say.
    pub fn of_query(stream: &str, text: &str) -> Self {
        Self {
            oid: 0,
            schema: String::new(),
            name: stream.to_owned(),
            kind: 'q',
            query: Some(text.to_owned()),
            columns: 0,
            rows: None,
            bytes: None,
            partition_of: None,
            is_unlogged: false,
            is_populated: true,
            has_children: false,
            has_row_security: false,
            usage: true,
            select: true,
            select_some: true,
            closed_columns: Vec::new(),
        }
    }

    /// The name of the stream.
    pub fn stream(&self) -> String {
        match self.query {
            Some(_) => self.name.clone(),
            None => name::join([self.schema.as_str(), self.name.as_str()]),
        }
    }

    /// The text of a query.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Schema and name, in the letters of the catalog.
    fn pair(&self) -> Pair {
        (self.schema.clone(), self.name.clone())
    }

    /// For people.
    pub fn shown(&self) -> String {
        match self.query {
            Some(_) => "the query".to_owned(),
            None => self.sql(),
        }
    }

    /// Its text after FROM. A query may end in a comment.
    pub fn sql(&self) -> String {
        match &self.query {
            Some(text) => format!("(\n{text}\n) AS query"),
            None => qualified(&self.schema, &self.name),
        }
    }

    /// All columns may be read.
    pub fn is_readable_whole(&self) -> bool {
        self.usage && self.select
    }

    /// At least one column may be read.
    pub fn is_readable(&self) -> bool {
        self.usage && (self.select || self.select_some)
    }

    /// Refuses what would give no rows or, silently, not all of them. Errors: `no_privilege`,
    /// `row_level_security`, `not_populated`.
    pub fn refuse_unreadable(&self, settings: &Settled) -> Result<()> {
        let (sql, role) = (self.sql(), quote_ident(&settings.connection.user));
        let error = if !self.is_readable() {
            return refuse_missing(settings, [(self, None)]);
        } else if self.has_row_security && !settings.takes_visible_rows() {
            let text = format!("row-level security hides rows of {sql} from {role}");
            Error::new(ErrorKind::Auth, "row_level_security", text).hint(
                "read as the table's owner or as a role with BYPASSRLS; or, to read only the rows \
                 that the policies show, set options: \"-c row_security=on\" in the source's config",
            )
        } else if !self.is_populated {
            let text = format!("the materialized view {sql} has no data yet");
            Error::schema("not_populated", text)
                .hint(format!("run: REFRESH MATERIALIZED VIEW {sql}"))
        } else {
            return Ok(());
        };
        Err(error.in_stream(self.stream()))
    }

    /// The rows of a partition belong to the stream of its table: a wildcard would read them twice. Errors:
    /// `not_a_stream`.
    pub fn refuse_partition(&self) -> Result<()> {
        let Some((schema, table)) = &self.partition_of else {
            return Ok(());
        };
        let whole = name::join([schema.as_str(), table.as_str()]);
        let text = format!(
            "{} is a partition of {whole}, whose stream includes its rows",
            self.stream()
        );
        Err(Error::schema("not_a_stream", text)
            .hint(format!(
                "write {whole} instead; to read the rows of one partition, add a `where:` to \
                     that stream"
            ))
            .in_stream(self.stream()))
    }

    /// The statements that let a role (quoted) read the whole relation.
    pub fn grants(&self, role: &str) -> String {
        format!(
            "GRANT USAGE ON SCHEMA {} TO {role}; GRANT SELECT ON {} TO {role}",
            quote_ident(&self.schema),
            self.sql()
        )
    }

    /// The privileges that the role lacks to read these columns, and the statements that grant them.
    fn missing(&self, role: &str, columns: Option<&[String]>) -> Option<(String, Vec<String>)> {
        let (schema, sql) = (quote_ident(&self.schema), self.sql());
        let usage = format!("GRANT USAGE ON SCHEMA {schema} TO {role};");
        let select = format!("GRANT SELECT ON {sql} TO {role};");
        let is_wanted = |column: &&String| columns.is_none_or(|wanted| wanted.contains(column));
        let closed = self.closed_columns.iter().filter(is_wanted);
        let closed: Vec<String> = closed.map(|column| quote_ident(column)).collect();
        let closed = closed.join(", ");
        let has_select = self.select || self.select_some && closed.is_empty();
        Some(match (self.usage, has_select) {
            (true, true) => return None,
            (false, true) => (format!("use the schema {schema}"), vec![usage]),
            (false, false) => (
                format!("use the schema {schema}, nor read {sql}"),
                vec![usage, select],
            ),
            (true, false) if self.select_some => (
                format!("read these columns of {sql}: {closed}"),
                vec![format!("GRANT SELECT ({closed}) ON {sql} TO {role};")],
            ),
            (true, false) => (format!("read {sql}"), vec![select]),
        })
    }
}

/// Privileges that roles lack, and the statements that grant them, each once.
#[derive(Default)]
pub(crate) struct Missing {
    streams: Vec<String>,
    texts: Vec<String>,
    script: Vec<String>,
}

impl Missing {
    pub fn add(
        &mut self,
        stream: &str,
        text: String,
        statements: impl IntoIterator<Item = String>,
    ) {
        let mut add = |list: fn(&mut Self) -> &mut Vec<String>, text: String| {
            let list = list(self);
            if !list.contains(&text) {
                list.push(text);
            }
        };
        add(|all| &mut all.streams, stream.to_owned());
        add(|all| &mut all.texts, text);
        for statement in statements {
            add(|all| &mut all.script, statement);
        }
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Adds the privileges that the role lacks on these relations themselves.
    pub fn add_relations<'a>(
        &mut self,
        settings: &Settled,
        wanted: impl IntoIterator<Item = (&'a Relation, Option<&'a [String]>)>,
    ) {
        let role = quote_ident(&settings.connection.user);
        for (relation, columns) in wanted {
            if let Some((text, statements)) = relation.missing(&role, columns) {
                let text = format!("{role} may not {text}");
                self.add(&relation.stream(), text, statements);
            }
        }
    }

    /// All of it as one error with the statements for whoever may grant. Errors: `no_privilege`.
    pub fn refuse(self) -> Result<()> {
        if self.texts.is_empty() {
            return Ok(());
        }
        let hint = format!("{OWNER_RUNS}\n{}", self.script.join("\n"));
        let error = Error::new(ErrorKind::Auth, "no_privilege", self.texts.join("\n")).hint(hint);
        Err(match self.streams.as_slice() {
            [stream] => error.in_stream(stream),
            _ => error,
        })
    }
}

/// Refuses relations that the role may not read. Errors: `no_privilege`.
pub(crate) fn refuse_missing<'a>(
    settings: &Settled,
    wanted: impl IntoIterator<Item = (&'a Relation, Option<&'a [String]>)>,
) -> Result<()> {
    let mut missing = Missing::default();
    missing.add_relations(settings, wanted);
    missing.refuse()
}

/// Stands before the statements of a script.
const OWNER_RUNS: &str = "-- run in psql, as the owner of the tables:";

/// Names in one question.
const FIND_AT_ONCE: usize = 500;

/// Where a destination keeps how far its streams are, which runs are at work and what they changed; in whatever schema,
/// it is nobody's data.
const NO_CHECKPOINTS: &str = "NOT (c.relname = 'checkpoint' AND c.relkind = 'r' AND 7 = (
    SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
    AND a.attname IN ('pipeline', 'stream', 'run_id', 'epoch', 'seq', 'backend_pid', 'older_pid')))
    AND NOT (c.relname = 'checkpoint_beat' AND c.relkind = 'r' AND 6 = (
    SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
    AND a.attname IN ('pipeline', 'process', 'run_id', 'place', 'began', 'beat')))
    AND NOT (c.relname = 'schema_change' AND c.relkind = 'r' AND 6 = (
    SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
    AND a.attname IN ('changed_at', 'pipeline', 'run_id', 'stream', 'target', 'statement')))";

/// The question for all relations but partitions, whose rows are read with their table, and the
/// checkpoints of destinations.
pub(crate) fn all() -> String {
    filled(RELATIONS, &streams())
}

/// The OIDs of the first relations of [`all`], as an array in SQL: at most `relations` of them, with at most `columns`
/// columns in total.
pub(crate) fn first(relations: usize, columns: u32) -> String {
    filled(FIRST, &streams())
        .replace("$MAX_RELATIONS", &relations.to_string())
        .replace("$MAX_COLUMNS", &columns.to_string())
}

fn streams() -> String {
    format!("NOT c.relispartition AND {NO_CHECKPOINTS}")
}

/// The relations of these streams. Errors: `unknown_stream`.
fn find(client: &mut Client, streams: &[String]) -> Result<Vec<Relation>> {
    if streams.is_empty() {
        return Ok(Vec::new());
    }
    let mut found: HashMap<Pair, Relation> = HashMap::new();
    for relation in parse(&query(client, &by_name(streams))?)? {
        found.insert(relation.pair(), relation);
    }
    let mut relations = Vec::with_capacity(streams.len());
    for stream in streams {
        match pair(stream).and_then(|pair| found.get(&pair)) {
            Some(relation) => relations.push(relation.clone()),
            None => return Err(unknown(client, stream)),
        }
    }
    Ok(relations)
}

/// The relations of wanted streams, in their order: tables and views of the catalog, and queries. Errors:
/// `unknown_stream`.
pub(crate) fn find_wanted(client: &mut Client, wanted: &[Wanted]) -> Result<Vec<Relation>> {
    let tables = wanted.iter().filter(|wanted| wanted.query.is_none());
    let tables: Vec<String> = tables.map(|wanted| wanted.stream.clone()).collect();
    let mut found = Vec::with_capacity(tables.len());
    for names in tables.chunks(FIND_AT_ONCE) {
        found.extend(find(client, names)?);
    }
    let mut found = found.into_iter();
    let relation = |wanted: &Wanted| match &wanted.query {
        Some(text) => Some(Relation::of_query(&wanted.stream, text)),
        None => found.next(),
    };
    Ok(wanted.iter().filter_map(relation).collect())
}

/// The question for the relations of these streams.
pub(crate) fn by_name(streams: &[String]) -> String {
    let pairs = streams.iter().filter_map(|stream| pair(stream));
    let pairs = pairs.map(|(schema, name)| format!("({}, {})", literal(&schema), literal(&name)));
    let pairs: Vec<String> = pairs.collect();
    let wanted = match pairs.is_empty() {
        true => "false".to_owned(),
        false => format!("(n.nspname, c.relname) IN ({})", pairs.join(", ")),
    };
    filled(RELATIONS, &wanted)
}

/// Neither a statement nor a name can contain a NUL.
fn literal(text: &str) -> String {
    quote_literal(&text.replace('\0', ""))
}

fn unknown(client: &mut Client, stream: &str) -> Error {
    let parts = name::parts(stream).unwrap_or_default();
    let name = parts.last().map_or(stream, String::as_str);
    // Without quotes, so that a dotted name that lacks them is found too.
    let similar = format!(
        "(pg_catalog.lower(n.nspname || '.' || c.relname) = pg_catalog.lower({}) \
          OR pg_catalog.lower(c.relname) = pg_catalog.lower({}))",
        literal(&parts.join(".")),
        literal(name)
    );
    // An error here would hide the error that matters.
    let similar = query(client, &filled(RELATIONS, &similar)).and_then(|rows| parse(&rows));
    let similar = similar.unwrap_or_default();
    let names: Vec<String> = similar.iter().take(5).map(Relation::stream).collect();
    let hint = if names.is_empty() {
        "streams are named schema.table, in the letters of the catalog, with a part that holds a \
         dot in double quotes; `rapidbyte discover PIPELINE` lists them"
            .to_owned()
    } else {
        format!("did you mean {}?", names.join(" or "))
    };
    let text = "this database does not have such a table or view";
    Error::schema("unknown_stream", text)
        .hint(hint)
        .in_stream(stream)
}

/// The query `question` for the relations that match the expression `wanted`.
fn filled(question: &str, wanted: &str) -> String {
    question
        .replace("$FILTER", FILTER)
        .replace("$WANTED", wanted)
}

/// The answer to [`by_name`].
pub(crate) fn parse(rows: &Rows) -> Result<Vec<Relation>> {
    let parse = |text: &str| {
        serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("a row of the catalog: {error}")))
    };
    texts(rows)?.into_iter().map(parse).collect()
}

/// The first value of each row.
pub(crate) fn texts(rows: &Rows) -> Result<Vec<&str>> {
    rows.rows
        .iter()
        .map(|row| Ok(row.text(0)?.unwrap_or_default()))
        .collect()
}

/// The columns and keys of relations; those that are gone are left out. A relation that cannot be
/// understood (a type nested too deep) is an error of its own.
pub(crate) fn describe(
    client: &mut Client,
    oids: &[u32],
) -> Result<Vec<Result<catalog::Relation>>> {
    let columns = query(client, &catalog::shapes_query(oids))?;
    understand(client, &columns)
}

/// As [`describe`], of the answer to [`catalog::shapes_query`]; asks for types that are not built in.
pub(crate) fn understand(
    client: &mut Client,
    columns: &Rows,
) -> Result<Vec<Result<catalog::Relation>>> {
    let described = Described::parse(texts(columns)?).map_err(convert)?;
    let types = match described.types_query() {
        Some(sql) => Types::parse(texts(&query(client, &sql)?)?).map_err(convert)?,
        None => Types::default(),
    };
    let relations = described.relations(&types).into_iter();
    Ok(relations
        .map(|relation| relation.map_err(convert))
        .collect())
}

/// The wanted columns in their order; all columns without `wanted`. Errors: `unknown_column`, `duplicate_column`,
/// `no_columns`.
pub(crate) fn choose(all: Vec<Column>, wanted: Option<&[String]>) -> Result<Vec<Column>> {
    let Some(wanted) = wanted else {
        return Ok(all);
    };
    if wanted.is_empty() {
        return Err(Error::config("no_columns", "the list of columns is empty")
            .hint("name a column, or remove the list to read all columns"));
    }
    let mut chosen: Vec<Column> = Vec::with_capacity(wanted.len());
    for name in wanted {
        if chosen.iter().any(|column| column.name == *name) {
            let text = format!("the column {name:?} is named twice");
            return Err(Error::config("duplicate_column", text).in_column(name));
        }
        let Some(column) = all.iter().find(|column| column.name == *name) else {
            let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).take(50).collect();
            return Err(Error::schema(
                "unknown_column",
                format!("the column {name:?} does not exist"),
            )
            .hint(format!("use one of {}", names.join(", ")))
            .in_column(name));
        };
        chosen.push(column.clone());
    }
    Ok(chosen)
}
