//! Reads the state of the server from the catalog and changes nothing.

mod repeats;
pub(crate) mod swap;
pub(crate) mod traces;
mod upsert;

use std::collections::BTreeMap;

use rapidbyte_pg::catalog::{self, Described, Relation, Types};
use rapidbyte_pg::form::Origin;
use rapidbyte_pg::ident::{qualified, quote_literal};
use rapidbyte_pg::{Column, Kind, PgType, ddl};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, ReplaceMethod, Settings};
use crate::convert;
use crate::origins::{self, Known};
use crate::target::rows_may_come_again;
pub(crate) use repeats::{Index, RepeatFacts};
use swap::SwapFacts;
pub(crate) use upsert::{KeyColumn, UniqueKey, UpsertFacts};

/// The facts that decide how a stream gets into its table.
pub(crate) struct Found {
    pub facts: Facts,
    /// The table with its columns, if it is there.
    pub relation: Option<Relation>,
    /// User types that the table to create, or a column to add, needs and the server lacks: the statements.
    pub missing_types: Vec<MissingType>,
    /// The existing types that new columns get because of their names: name of the column, and type.
    pub there_types: Vec<(String, PgType)>,
    /// Decides on changes of the table. Empty if its columns match the stream's columns.
    pub differences: Differences,
    /// The columns that the run renames first: old and new names. Everything else here has the new names.
    pub renamed: Vec<(String, String)>,
    /// For upsert, of a table that is there.
    pub upsert: Option<UpsertFacts>,
    /// For an append of rows that may come again, of a table that is there.
    pub repeats: Option<RepeatFacts>,
    /// For replace by a new table, of a table that is there.
    pub swap: Option<SwapFacts>,
    /// The open transaction has made the table.
    pub is_made: bool,
    /// The source has proved the numbers of its columns before, and does not any more.
    pub is_unproved: bool,
    /// The answer to [`crate::origins::question`].
    pub origins: Option<Rows>,
}

impl Found {
    /// Whether a run has recorded the origins of the target's columns.
    pub(crate) fn has_record(&self) -> Result<bool> {
        match (&self.origins, &self.relation) {
            (Some(answer), Some(target)) => origins::has_record(answer, target),
            _ => Ok(false),
        }
    }
}

/// Facts that the run asks for only if columns differ.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Everything that blocks a change.
    pub ties: Vec<Tie>,
    /// The columns of the relation that the stream comes from.
    pub source: Option<Origin>,
    /// [`rapidbyte_pg::form::Table::older`] of the stream.
    pub older: BTreeMap<String, String>,
    pub known: Known,
    /// The columns that the source renamed, if this role may not rename them: old and new names.
    pub denied: Vec<(String, String)>,
    /// The columns that the source renamed, if the table has another column of the new name: old and new names.
    pub blocked: Vec<(String, String)>,
}

/// Something that depends on a column of the table.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Tie {
    pub column: String,
    /// As the server describes it: `view raw.v`.
    pub what: String,
    /// The server refuses to change the type of the column.
    pub holds_type: bool,
    /// The server refuses to rename the column, because the table inherits it.
    pub holds_name: bool,
}

/// The ties of the table with the OID `$OID`. An index on a dropped column alone is not a tie: the server drops it,
/// too. The server adapts indexes, constraints and statistics to a new type.
const TIES: &str = "\
SELECT pg_catalog.json_build_object('column', a.attname, 'what', tie.what, 'holds_type', tie.holds_type,
    'holds_name', tie.holds_name)::text
FROM pg_catalog.pg_attribute a CROSS JOIN LATERAL (
    SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS what,
        d.classid NOT IN ('pg_catalog.pg_class'::pg_catalog.regclass,
            'pg_catalog.pg_constraint'::pg_catalog.regclass,
            'pg_catalog.pg_statistic_ext'::pg_catalog.regclass) AS holds_type,
        false AS holds_name
    FROM pg_catalog.pg_depend d
    LEFT JOIN pg_catalog.pg_attrdef f ON f.oid = d.objid
        AND d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass
    LEFT JOIN pg_catalog.pg_constraint k ON k.oid = d.objid
        AND d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass
    LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = d.objid
        AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
    WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = a.attrelid
      AND d.refobjsubid = a.attnum AND (f.adnum = a.attnum AND f.adrelid = a.attrelid) IS NOT TRUE
      AND (k.contype = 'n') IS NOT TRUE
      AND (i.indnatts = 1 AND NOT i.indisunique AND i.indexprs IS NULL AND i.indpred IS NULL) IS NOT TRUE
    UNION ALL
    SELECT 'the partition key', true, false FROM pg_catalog.pg_partitioned_table p
    WHERE p.partrelid = a.attrelid AND a.attnum = ANY (p.partattrs)
    UNION ALL
    SELECT 'the table that it is inherited from', true, true WHERE a.attinhcount > 0) AS tie
WHERE a.attrelid = $OID AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum, tie.what LIMIT 10000";

/// The facts that the caller needs about an existing table.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Its columns, and who may do what.
    Table,
    /// The facts for upsert.
    Upsert,
    /// The facts for replace by a new table.
    Swap(ReplaceMethod),
    /// The facts for an append of rows that may come again.
    Repeats(&'a Target),
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(settings: &Settings, target: &'a Target) -> Self {
        match target.write_mode {
            WriteMode::Upsert => Self::Upsert,
            WriteMode::Replace if settings.may_swap() => Self::Swap(settings.replace_method),
            _ if rows_may_come_again(target) => Self::Repeats(target),
            _ => Self::Table,
        }
    }
}

/// A statement that makes a type, and the schema it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingType {
    pub schema: String,
    pub name: String,
    pub has_schema: bool,
    pub sql: String,
    /// The first column that needs it.
    pub column: String,
}

impl MissingType {
    /// The type as the table that would have its name.
    pub(crate) fn name(&self) -> Name {
        Name {
            schema: self.schema.clone(),
            table: self.name.clone(),
        }
    }
}

/// One row of JSON, as [`FACTS`] asks for it.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Facts {
    pub user: String,
    pub database: String,
    pub in_recovery: bool,
    pub read_only: bool,
    /// CREATE on the database: schemas may be made.
    pub may_create_schema: bool,
    pub may_use_temp: bool,
    pub has_schema: bool,
    pub may_use_schema: bool,
    pub may_create_table: bool,
    /// A type has the name of the table, and is not the row type of one.
    pub has_type: bool,
    pub table: Option<TableFacts>,
}

/// Of a relation that is there.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct TableFacts {
    pub oid: u32,
    pub kind: char,
    /// The number of its columns, including dropped ones.
    pub numbers: usize,
    /// ALTER TABLE: a table of its own that belongs to this role.
    pub may_alter: bool,
    /// INSERT into some columns at least.
    pub may_insert: bool,
    /// Columns that this role may not insert into.
    pub closed_columns: Vec<String>,
    /// False for a view that the server cannot insert into.
    pub is_insertable: bool,
    pub may_delete: bool,
    pub may_truncate: bool,
    pub may_select: bool,
    /// Rules for INSERT, and for DELETE; not those that make a view.
    pub insert_rules: u32,
    pub delete_rules: u32,
    /// Triggers that run once for each INSERT or COPY, also of no rows.
    pub has_statement_triggers: bool,
    /// Row-level security holds for this role.
    pub row_security: bool,
    /// Tables that inherit from it, without partitions.
    pub children: u32,
    /// `None` where nobody asked for them: see [`may_delete_rows`].
    pub foreign_keys: Option<ForeignKeys>,
}

impl TableFacts {
    /// The foreign keys of a table whose rows the load may delete. Errors: `internal` for any other load.
    pub(crate) fn foreign_keys(&self) -> Result<&ForeignKeys> {
        let keys = self.foreign_keys.as_ref();
        keys.ok_or_else(|| Error::internal("foreign keys that nobody asked for"))
    }
}

/// Foreign keys of other tables that name a table.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct ForeignKeys {
    /// They change the rows of the other tables when rows of this table are deleted.
    pub cascading: Vec<String>,
    /// They forbid to delete rows that the other tables name.
    pub incoming: Vec<String>,
}

/// Whether a load may delete rows of its table. Only then do foreign keys of other tables matter.
pub(crate) fn may_delete_rows(target: &Target) -> bool {
    target.write_mode == WriteMode::Replace
        || target.deleted_field.is_some()
        || target.deletes.is_some()
}

const FACTS: &str = "\
SELECT pg_catalog.json_build_object(
    'user', current_user, 'database', pg_catalog.current_database(),
    'in_recovery', pg_catalog.pg_is_in_recovery(),
    'read_only', pg_catalog.current_setting('default_transaction_read_only') = 'on',
    'may_create_schema', pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
    'may_use_temp', pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMP'),
    'has_schema', n.oid IS NOT NULL,
    'may_use_schema', COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false),
    'may_create_table', COALESCE(pg_catalog.has_schema_privilege(n.oid, 'CREATE')
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false),
    'has_type', EXISTS (SELECT FROM pg_catalog.pg_type y
        WHERE y.typnamespace = n.oid AND y.typname = $TABLE AND y.typrelid = 0 AND y.typisdefined
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_type e WHERE e.oid = y.typelem AND e.typarray = y.oid)),
    'table', (SELECT pg_catalog.json_build_object(
        'oid', c.oid::int8, 'kind', c.relkind, 'numbers', c.relnatts,
        'may_alter', c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.reloftype = 0
            AND pg_catalog.pg_has_role(c.relowner, 'USAGE'),
        'may_insert', pg_catalog.has_any_column_privilege(c.oid, 'INSERT'),
        'closed_columns', (SELECT COALESCE(pg_catalog.json_agg(a.attname), '[]')
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'INSERT')),
        'is_insertable', CASE WHEN c.relkind = 'v'
            THEN pg_catalog.pg_relation_is_updatable(c.oid, true) & 8 <> 0 ELSE true END,
        'may_delete', pg_catalog.has_table_privilege(c.oid, 'DELETE'),
        'may_truncate', pg_catalog.has_table_privilege(c.oid, 'TRUNCATE'),
        'may_select', pg_catalog.has_table_privilege(c.oid, 'SELECT'),
        'insert_rules', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_rewrite r
            WHERE r.ev_class = c.oid AND r.ev_type = '3'),
        'delete_rules', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_rewrite r
            WHERE r.ev_class = c.oid AND r.ev_type = '4'),
        'has_statement_triggers', EXISTS (SELECT FROM pg_catalog.pg_trigger g
            WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
              AND g.tgtype & 5 = 4),
        'row_security', pg_catalog.row_security_active(c.oid),
        'children', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_inherits i
            WHERE i.inhparent = c.oid AND c.relkind <> 'p'),
        'foreign_keys', $FOREIGN_KEYS)
        FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = $TABLE))::text
FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $SCHEMA";

/// Without this part the server answers [`FACTS`] in two thirds of the time.
const FOREIGN_KEYS: &str = "pg_catalog.json_build_object(
            'cascading', (SELECT COALESCE(pg_catalog.json_agg(
                    k.conname || ' of ' || k.conrelid::pg_catalog.regclass), '[]')
                FROM $KEYS AND k.confdeltype IN ('c', 'n', 'd')),
            'incoming', (SELECT COALESCE(pg_catalog.json_agg(
                    k.conname || ' of ' || k.conrelid::pg_catalog.regclass), '[]')
                FROM $KEYS AND k.confdeltype NOT IN ('c', 'n', 'd')))";

/// Foreign keys of other tables that name `c`. `pg_constraint` does not have an index on the table that a key names.
/// Reading all of it for each of thousands of tables takes longer than all other questions. So the keys come from
/// the triggers that check them. A partitioned table has none before PostgreSQL 15.
const KEYS: &str = "\
pg_catalog.pg_constraint k WHERE k.oid = ANY (CASE c.relkind
                WHEN 'p' THEN ARRAY(SELECT p.oid FROM pg_catalog.pg_constraint p
                    WHERE p.confrelid = c.oid)
                ELSE ARRAY(SELECT g.tgconstraint FROM pg_catalog.pg_trigger g
                    WHERE g.tgrelid = c.oid AND g.tgisinternal) END)
              AND k.confrelid = c.oid AND k.conrelid <> c.oid AND k.contype = 'f'";

/// NULL if the table does not exist.
const OID: &str = "(SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n \
    ON n.oid = c.relnamespace WHERE n.nspname = $SCHEMA AND c.relname = $TABLE)";

/// The settings of the session for this transaction alone: behind a pooler the next one may be on
/// another server connection.
pub(crate) fn local_settings() -> String {
    catalog::SESSION_SETTINGS.replace("SET ", "SET LOCAL ")
}

/// The transaction in which the catalog is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Within<'a> {
    /// The open transaction, with [`local_settings`].
    Open,
    /// The transaction that these statements open, in the first send. They give no rows.
    Opening(&'a str),
    /// One transaction for each send, which can change nothing.
    Own,
}

impl Within<'_> {
    fn ask(&mut self, client: &mut Client, questions: &[String]) -> Result<Vec<Rows>> {
        let count = questions.len();
        match *self {
            Self::Open => client.query_again("", questions, count),
            Self::Opening(statements) => {
                *self = Self::Open;
                client.query_again(&format!("{statements}; "), questions, count)
            }
            Self::Own => {
                let settings = local_settings();
                let questions = questions.join("; ");
                let sql = format!("BEGIN READ ONLY; {settings}; {questions}; ROLLBACK");
                let answers = client.query_each(&sql, count);
                if answers.is_err() && client.is_usable() {
                    client.execute("ROLLBACK")?;
                }
                answers
            }
        }
    }
}

/// Questions that go with those about the table.
#[derive(Clone, Default)]
pub(crate) struct Beside {
    /// [`traces::question`]. It is asked first: what changes behind it is seen the next time.
    pub traces: Option<String>,
    /// [`origins::question`].
    pub origins: Option<String>,
    /// A question of the caller.
    pub also: Option<String>,
}

/// Their answers.
pub(crate) struct Answered {
    pub traces: Option<Rows>,
    pub origins: Option<Rows>,
    pub also: Option<Rows>,
}

impl Beside {
    /// The same, and a question of the caller.
    pub(crate) fn with(&self, also: Option<String>) -> Self {
        Self {
            also,
            ..self.clone()
        }
    }

    /// Asks these questions, and `others` in the same send.
    pub(crate) fn ask(
        self,
        client: &mut Client,
        within: &mut Within<'_>,
        others: Vec<String>,
    ) -> Result<(Answered, Vec<Rows>)> {
        let has = [&self.traces, &self.origins, &self.also].map(Option::is_some);
        let questions = self.traces.into_iter().chain(others);
        let questions = questions.chain(self.origins).chain(self.also);
        let questions: Vec<String> = questions.collect();
        let mut answers = within.ask(client, &questions)?;
        let also = answers.pop_if(|_| has[2]);
        let origins = answers.pop_if(|_| has[1]);
        let traces = has[0].then(|| answers.remove(0));
        let answered = Answered {
            traces,
            origins,
            also,
        };
        Ok((answered, answers))
    }
}

/// The answers of the catalog to what a load asks first, in one send.
pub(crate) struct Asked {
    answers: Vec<Rows>,
    pub beside: Answered,
    /// An expression for the OID of the table.
    oid: String,
}

impl Asked {
    /// Whether the catalog has answered as it did then.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.answers == other.answers && self.beside.origins == other.beside.origins
    }
}

/// Asks the catalog. `with_keys`: foreign keys of other tables matter.
pub(crate) fn ask(
    client: &mut Client,
    within: &mut Within<'_>,
    name: &Name,
    (wanted, with_keys): (Wanted<'_>, bool),
    beside: Beside,
) -> Result<Asked> {
    // All at once, of a table that may not be there: each question costs the way to the server.
    let (schema, table) = (quote_literal(&name.schema), quote_literal(&name.table));
    let oid = OID.replace("$SCHEMA", &schema).replace("$TABLE", &table);
    let mut questions = vec![
        facts_question(&name.schema, &name.table, with_keys),
        catalog::columns_query_of(&format!("ARRAY[{oid}]")),
    ];
    questions.extend(match wanted {
        Wanted::Table => None,
        Wanted::Upsert => Some(upsert::question(&oid)),
        Wanted::Swap(ReplaceMethod::Auto) => Some(swap::is_large(&oid)),
        Wanted::Swap(_) => Some(swap::question(&oid, name, client.server_version())),
        Wanted::Repeats(target) => Some(repeats::question(&oid, target)),
    });
    let (beside, answers) = beside.ask(client, within, questions)?;
    Ok(Asked {
        answers,
        beside,
        oid,
    })
}

/// Reads the answers, and asks for what they do not say. `columns` are the columns of the table to create if it does not
/// exist. `is_added`: an existing table gets the columns that it lacks.
pub(crate) fn read(
    client: &mut Client,
    within: &mut Within<'_>,
    name: &Name,
    (columns, is_added): (&[Column], bool),
    wanted: Wanted<'_>,
    asked: &Asked,
) -> Result<Found> {
    let Asked {
        answers,
        beside,
        oid,
    } = asked;
    let [about, described, more @ ..] = answers.as_slice() else {
        return Err(Error::internal("questions without answers"));
    };
    let facts: Facts = parsed(about)?;
    let relation = match &facts.table {
        Some(table) => Some(relation(client, within, described, Some(table.oid))?),
        None => None,
    };
    let new: Vec<Column> = match &relation {
        Some(_) if !is_added => Vec::new(),
        Some(relation) => {
            let is_new = |column: &&Column| !relation.columns.iter().any(|c| c.name == column.name);
            columns.iter().filter(is_new).cloned().collect()
        }
        None => columns.to_vec(),
    };
    let needed = needed_types(client, within, &new)?;
    let (mut upsert, mut repeats, mut swap) = (None, None, None);
    if let (Some(_), Some(more)) = (&relation, more.first()) {
        match wanted {
            Wanted::Table => {}
            Wanted::Upsert => upsert = Some(parsed(more)?),
            Wanted::Swap(ReplaceMethod::Auto) if more.rows.is_empty() => {}
            Wanted::Swap(ReplaceMethod::Auto) => {
                let question = swap::question(oid, name, client.server_version());
                let answers = within.ask(client, &[question])?;
                swap = Some(parsed(answers.first().unwrap_or(&Rows::default()))?);
            }
            Wanted::Swap(_) => swap = Some(parsed(more)?),
            Wanted::Repeats(_) => repeats = Some(parsed(more)?),
        }
    }
    Ok(Found {
        facts,
        relation,
        missing_types: needed.missing,
        there_types: needed.there,
        differences: Differences::default(),
        renamed: Vec::new(),
        upsert,
        repeats,
        swap,
        is_made: false,
        is_unproved: false,
        origins: beside.origins.clone(),
    })
}

/// Gives renamed columns their new names in `found`. `renamed` has pairs of the old and the new name.
pub(crate) fn rename(
    client: &mut Client,
    within: &mut Within<'_>,
    target: &Target,
    renamed: Vec<(String, String)>,
    found: &mut Found,
) -> Result<()> {
    let Some(relation) = &mut found.relation else {
        return Ok(());
    };
    let is_key = |(_, new): &(String, String)| {
        target.primary_key.contains(new) || target.dedup_fields.contains(new)
    };
    if found.repeats.is_some() && renamed.iter().any(is_key) {
        // The first question used the new names, which the table does not have yet.
        let mut before = target.clone();
        let names = before.primary_key.iter_mut();
        for name in names.chain(&mut before.dedup_fields) {
            if let Some((old, _)) = renamed.iter().find(|(_, new)| new == name) {
                name.clone_from(old);
            }
        }
        let question = repeats::question(&relation.oid.to_string(), &before);
        let answers = within.ask(client, &[question])?;
        found.repeats = Some(parsed(answers.first().unwrap_or(&Rows::default()))?);
    }
    // All at once: two columns may exchange their names.
    let rename = |name: &mut String| {
        if let Some((_, new)) = renamed.iter().find(|(old, _)| old == name) {
            name.clone_from(new);
        }
    };
    let columns = relation.columns.iter_mut().map(|column| &mut column.name);
    let key = relation.primary_key.iter_mut();
    let ties = found.differences.ties.iter_mut().map(|tie| &mut tie.column);
    columns.chain(key).chain(ties).for_each(rename);
    let known = std::mem::take(&mut found.differences.known.columns);
    let known = known.into_iter().map(|(mut name, number)| {
        rename(&mut name);
        (name, number)
    });
    found.differences.known.columns = known.collect();
    let shared = std::mem::take(&mut found.differences.known.shared);
    let shared = shared.into_iter().map(|mut name| {
        rename(&mut name);
        name
    });
    found.differences.known.shared = shared.collect();
    if let Some(upsert) = &mut found.upsert {
        upsert.columns_mut().for_each(rename);
    }
    if let Some(repeats) = &mut found.repeats {
        repeats.columns_mut().for_each(rename);
    }
    found.renamed = renamed;
    Ok(())
}

/// Asks for everything that blocks a change of a table.
pub(crate) fn ties(
    client: &mut Client,
    within: &mut Within<'_>,
    relation: &Relation,
) -> Result<Vec<Tie>> {
    let questions = [TIES.replace("$OID", &relation.oid.to_string())];
    let answers = within.ask(client, &questions)?;
    let parse = |text| {
        serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("an answer of the catalog: {error}")))
    };
    let ties = answers.first().map(texts).transpose()?.unwrap_or_default();
    ties.into_iter().map(parse).collect()
}

/// The facts about one schema and one name.
pub(crate) fn facts(
    client: &mut Client,
    within: &mut Within<'_>,
    schema: &str,
    table: &str,
) -> Result<Facts> {
    let answers = within.ask(client, &[facts_question(schema, table, false)])?;
    parsed(answers.first().unwrap_or(&Rows::default()))
}

fn facts_question(schema: &str, table: &str, with_keys: bool) -> String {
    let keys = if with_keys { FOREIGN_KEYS } else { "NULL" };
    FACTS
        .replace("$FOREIGN_KEYS", keys)
        .replace("$KEYS", KEYS)
        .replace("$SCHEMA", &quote_literal(schema))
        .replace("$TABLE", &quote_literal(table))
}

/// In the answer to [`FACTS`] if another session has dropped the table since the question began: the server then knows no
/// privileges of it.
const NO_PRIVILEGE: &str = "\"may_select\" : null";

/// One row of JSON.
fn parsed<T: serde::de::DeserializeOwned>(rows: &Rows) -> Result<T> {
    if rows.rows.is_empty() {
        return Err(vanished());
    }
    fact_of(rows.single()?)
}

fn fact_of<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| match text.contains(NO_PRIVILEGE) {
        true => vanished(),
        false => Error::internal(format!("an answer of the catalog: {error}")),
    })
}

/// The columns of a table that is there, in the open transaction.
pub(crate) fn columns_of(client: &mut Client, name: &Name) -> Result<Relation> {
    let mut within = Within::Open;
    let (schema, table) = (quote_literal(&name.schema), quote_literal(&name.table));
    let oid = OID.replace("$SCHEMA", &schema).replace("$TABLE", &table);
    let question = catalog::columns_query_of(&format!("ARRAY[{oid}]"));
    let answers = within.ask(client, &[question])?;
    let described = answers.first().ok_or_else(vanished)?;
    relation(client, &mut within, described, None)
}

/// `described` is the answer to [`catalog::columns_query_of`]. An earlier answer may name the table's OID.
fn relation(
    client: &mut Client,
    within: &mut Within<'_>,
    described: &Rows,
    oid: Option<u32>,
) -> Result<Relation> {
    let described = Described::parse(texts(described)?).map_err(convert)?;
    let types = match described.types_query() {
        Some(sql) => types(client, within, sql)?,
        None => Types::default(),
    };
    let found = described.relations(&types).pop().ok_or_else(vanished)?;
    let found = found.map_err(convert)?;
    // Another one of this name may have come between the two questions.
    if oid.is_some_and(|oid| oid != found.oid) {
        return Err(vanished());
    }
    Ok(found)
}

fn types(client: &mut Client, within: &mut Within<'_>, question: String) -> Result<Types> {
    let answers = within.ask(client, &[question])?;
    let rows = answers.iter().map(texts).collect::<Result<Vec<_>>>()?;
    Types::parse(rows.concat()).map_err(convert)
}

fn vanished() -> Error {
    let text = "the table was dropped during the run";
    Error::schema("table_missing", text).hint("run again")
}

fn texts(rows: &Rows) -> Result<Vec<&str>> {
    let text = |row| rapidbyte_pg_client::Row::text(row, 0).map(Option::unwrap_or_default);
    rows.rows.iter().map(text).collect()
}

/// The existing type of the same name, if `ty` is a type that users create, or an array of such a type.
fn there_type(ty: &PgType, there: &Types) -> Result<Option<PgType>> {
    if let Kind::Array { element } = &ty.kind {
        let element = there_type(element, there)?.map(Box::new);
        return Ok(element.map(|element| PgType {
            kind: Kind::Array { element },
            ..ty.clone()
        }));
    }
    match ty.is_builtin() {
        true => Ok(None),
        false => there.find(&ty.schema, &ty.name).map_err(convert),
    }
}

/// The user types of columns.
#[derive(Default)]
struct Needed {
    /// The types that the server lacks.
    missing: Vec<MissingType>,
    /// The types that the server has: name of the column, and type.
    there: Vec<(String, PgType)>,
}

/// The user types that the columns need. Errors: `missing_type`, with all the statements to run, if the server lacks
/// one that Rapidbyte does not create.
fn needed_types(
    client: &mut Client,
    within: &mut Within<'_>,
    columns: &[Column],
) -> Result<Needed> {
    let mut needed: Vec<(ddl::TypeStatement, &Column)> = Vec::new();
    for column in columns {
        for ty in ddl::types_of(&column.ty) {
            if !needed.iter().any(|(known, _)| known.sql == ty.sql) {
                needed.push((ty, column));
            }
        }
    }
    if needed.is_empty() {
        return Ok(Needed::default());
    }
    let names: Vec<_> = needed
        .iter()
        .map(|(ty, _)| (ty.schema.as_str(), ty.name.as_str()))
        .collect();
    let there = types(client, within, catalog::types_by_name_query(&names))?;
    let mut there_types = Vec::new();
    for column in columns {
        if let Some(ty) = there_type(&column.ty, &there)? {
            there_types.push((column.name.clone(), ty));
        }
    }
    let mut missing = Vec::new();
    let mut refused = None;
    let mut problem = None;
    for (ty, column) in needed {
        if there.find(&ty.schema, &ty.name).map_err(convert)?.is_some() {
            continue;
        }
        let has_schema = facts(client, within, &ty.schema, "")?.has_schema;
        let name = qualified(&ty.schema, &ty.name);
        let is_same = |other: &MissingType| other.schema == ty.schema && other.name == ty.name;
        if missing.iter().any(is_same) {
            let text = format!("the descriptions of the columns have two types {name}");
            return Err(Error::schema("invalid_metadata", text).in_column(&column.name));
        }
        if let Some(why) = ty.problem {
            problem.get_or_insert((name, column, why));
        } else if !ty.is_automatic {
            refused.get_or_insert((name, column));
        }
        missing.push(MissingType {
            schema: ty.schema,
            name: ty.name,
            has_schema,
            sql: ty.sql,
            column: column.name.clone(),
        });
    }
    let statements = prelude(&missing)?.join("; ");
    if let Some((name, column, why)) = problem {
        let text = format!(
            "the target does not have the type {name}, and Rapidbyte does not create it: {why}"
        );
        let hint = "read these statements, and run them on the target if they are right (functions that they call first), or \
                    create the table with the type below the domain";
        return Err(Error::schema("missing_type", text)
            .hint(format!("{hint}: {statements}"))
            .in_column(&column.name));
    }
    let Some((name, column)) = refused else {
        return Ok(Needed {
            missing,
            there: there_types,
        });
    };
    let text = format!(
        "the target does not have the type {name}, and Rapidbyte creates only enums and domains"
    );
    Err(Error::schema("missing_type", text)
        .hint(format!("run on the target: {statements}"))
        .in_column(&column.name))
}

/// The statements that make the types, and the schemas they go to.
pub(crate) fn prelude(missing: &[MissingType]) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    for ty in missing {
        let schema = ddl::create_schema(&ty.schema).map_err(convert)?;
        if !ty.has_schema && !statements.contains(&schema) {
            statements.push(schema);
        }
        statements.push(ty.sql.clone());
    }
    Ok(statements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rapidbyte_testkit::postgres::shared;

    #[test]
    fn a_question_about_one_table_reads_no_catalog_whole() {
        let database = shared().database();
        let mut client = database.client();
        client
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE b (t int CONSTRAINT b_t REFERENCES t); \
                 CREATE TABLE d (t int CONSTRAINT d_t REFERENCES t ON DELETE CASCADE); \
                 ALTER TABLE t ADD COLUMN up int CONSTRAINT t_up REFERENCES t; \
                 CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); \
                 CREATE TABLE e (p int CONSTRAINT e_p REFERENCES p)",
            )
            .unwrap();
        for (table, incoming, cascading) in [("t", "b_t of b", "d_t of d"), ("p", "e_p of e", "")] {
            let row = client.query_one(&facts_question("public", table, true), &[]);
            let text: String = row.unwrap().get(0);
            let facts: Facts = serde_json::from_str(&text).unwrap();
            let found = facts.table.unwrap().foreign_keys.unwrap();
            assert_eq!(found.incoming.join(","), incoming, "{table}");
            assert_eq!(found.cascading.join(","), cascading, "{table}");
        }
        // Only a load that may delete rows pays for them.
        let row = client.query_one(&facts_question("public", "t", false), &[]);
        let text: String = row.unwrap().get(0);
        let facts: Facts = serde_json::from_str(&text).unwrap();
        assert!(facts.table.unwrap().foreign_keys().is_err());
        // Without an index it is read whole whatever that costs.
        let explain = format!(
            "SET enable_seqscan = off; EXPLAIN (ANALYZE, TIMING off) {}",
            facts_question("public", "t", true)
        );
        let answers = client.simple_query(&explain).unwrap();
        let lines = answers.iter().filter_map(|message| match message {
            rapidbyte_testkit::postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let lines: Vec<&str> = lines.collect();
        let is_read = |line: &&&str| line.contains("Seq Scan on pg_") && !line.contains("never");
        let whole: Vec<_> = lines.iter().filter(is_read).collect();
        assert!(lines.len() > 10 && whole.is_empty(), "{lines:#?}");
    }

    #[test]
    fn a_table_that_is_dropped_while_the_server_answers_is_missing() {
        let database = shared().database();
        let mut client = database.client();
        client.batch_execute("CREATE TABLE t (id int8)").unwrap();
        let question = facts_question("public", "t", false);
        // The server finds no table with this OID, as after a drop.
        let dropped = question.replace("privilege(c.oid,", "privilege(4000000000,");
        for (question, code) in [(question, None), (dropped, Some("table_missing"))] {
            let text: String = client.query_one(&question, &[]).unwrap().get(0);
            let code_of_error = fact_of::<Facts>(&text).err().map(|error| error.code);
            assert_eq!(code_of_error.as_deref(), code, "{text}");
        }
    }
}
