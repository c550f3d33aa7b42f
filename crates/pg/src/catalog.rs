//! Questions to `pg_catalog`, and the reading of their answers.
//!
//! Works with PostgreSQL 12 to 18. Every query gives one text column of JSON, one object a row;
//! the caller runs it (any protocol, no parameters) and hands the texts to [`Described`], which
//! knows whether a second one, for types that are not built in, is needed: it takes a new session
//! of the server 3 ms to answer, and most tables do without.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;

use crate::form::{Origin, Table};
use crate::model::{
    Check, Column, CompositeField, Generated, Kind, MAX_DEPTH, MAX_PARTS, PgType, Send,
};
use crate::{Owner, PgError, model};

/// Statements for a session whose text output must be exact and the same everywhere: the source
/// selects some columns as text (see [`mod@crate::form`]), and types must be written with their
/// schema. Without JIT: compiling the questions below takes 80 ms, answering them 2.
pub const SESSION_SETTINGS: &str = "\
SET jit = off; \
SET client_encoding = 'UTF8'; \
SET search_path = ''; \
SET DateStyle = 'ISO, YMD'; \
SET IntervalStyle = 'postgres'; \
SET TimeZone = 'UTC'; \
SET extra_float_digits = 1; \
SET bytea_output = 'hex'; \
SET xmloption = 'content'; \
SET quote_all_identifiers = off; \
SET array_nulls = on; \
SET standard_conforming_strings = on";

/// A statement for a transaction that may run for long: the server looks every second whether the client is still there, so
/// the statement of a run that was cancelled ends soon. Only where the server can (PostgreSQL 14 and later, Linux). Its
/// answer has no columns and no row.
pub const ENDS_WITH_CLIENT: &str = "\
SELECT WHERE CASE WHEN pg_catalog.current_setting('client_connection_check_interval', true) IS NOT NULL \
    AND pg_catalog.version() ~ 'linux' \
  THEN pg_catalog.set_config('client_connection_check_interval', '1000', true) IS NULL END";

/// An array of OIDs in SQL.
pub fn oid_array(oids: &[u32]) -> String {
    let oids: Vec<_> = oids.iter().map(u32::to_string).collect();
    format!("'{{{}}}'::pg_catalog.oid[]", oids.join(","))
}

/// The relations of a list of OIDs with their columns and primary keys.
pub fn columns_query(relations: &[u32]) -> String {
    columns_query_of(&oid_array(relations))
}

/// As [`columns_query`], of the relations of an expression that is an array of OIDs.
pub fn columns_query_of(relations: &str) -> String {
    let sql = COLUMNS.replace("$RELATIONS", relations);
    sql.replace("$DEFAULT", DEFAULT)
        .replace("$OLDER", "NULL::text")
        .replace("$SYSTEM", "NULL::text")
        .replace("$XID", "0")
}

/// As [`columns_query`], with the [`Origin`] of the columns and [`Table::older`], but without defaults and generating
/// expressions. The server takes a lock of a table to write those, and waits while somebody changes it; this question
/// waits for nobody.
pub fn shapes_query(relations: &[u32]) -> String {
    shapes_query_of(&oid_array(relations))
}

/// As [`shapes_query`], of the relations of an expression that is an array of OIDs.
pub fn shapes_query_of(relations: &str) -> String {
    let sql = COLUMNS.replace("$RELATIONS", relations);
    sql.replace("$DEFAULT", "NULL::text")
        .replace("$OLDER", OLDER)
        .replace("$SYSTEM", SYSTEM)
        .replace("$XID", XID)
}

/// A column of a query, as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryColumn<'a> {
    /// Its name in the answer.
    pub name: &'a str,
    /// The OID of its type.
    pub type_oid: u32,
    /// The modifier of its type, -1 for none.
    pub typmod: i32,
    /// The OID of the table that it is taken from unchanged, and its number there; 0 and 0 if it is computed.
    pub taken_from: (u32, i16),
}

/// As [`shapes_query`], of a query with these columns. Every column is nullable, and nothing is known of the origin. A
/// column that is taken from a table has the collation and the declared dimensions of the table's column.
pub fn query_shape(columns: &[QueryColumn<'_>]) -> String {
    let row = |(place, column): (usize, &QueryColumn<'_>)| {
        let name = crate::ident::quote_literal(column.name);
        let (table, number) = column.taken_from;
        let (oid, typmod) = (column.type_oid, column.typmod);
        format!(
            "({place}, {name}, {oid}::pg_catalog.oid, {typmod}, {table}::pg_catalog.oid, {number})"
        )
    };
    let rows: Vec<String> = columns.iter().enumerate().map(row).collect();
    QUERY_COLUMNS.replace("$COLUMNS", &rows.join(", "))
}

/// The types of these OIDs, and all that they are made of.
pub fn types_query(types: &[u32]) -> String {
    let roots = TYPES_BY_OID.replace("$TYPES", &oid_array(types));
    TYPES.replace("$ROOTS", &roots)
}

/// The types of these schemas and names, and all they are made of: what a target has of the
/// types that a field needs.
pub fn types_by_name_query(names: &[(&str, &str)]) -> String {
    let literal = crate::ident::quote_literal;
    let pairs: Vec<_> = names
        .iter()
        .map(|(schema, name)| format!("({}, {})", literal(schema), literal(name)))
        .collect();
    let wanted = if pairs.is_empty() {
        "false".to_owned()
    } else {
        format!("(n.nspname, t.typname) IN ({})", pairs.join(", "))
    };
    TYPES.replace("$ROOTS", &TYPES_BY_NAME.replace("$WANTED", &wanted))
}

/// Comments without `obj_description` and `col_description`: those run a query of their own each time.
const COLUMNS: &str = "\
SELECT pg_catalog.json_build_object(
    'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
    'row_type', c.reltype::int8, 'comment', (
        SELECT m.description FROM pg_catalog.pg_description m WHERE m.objoid = c.oid
          AND m.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND m.objsubid = 0),
    'identity', (EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)
        ::pg_catalog.int8 || '/' || (SELECT d.oid FROM pg_catalog.pg_database d
            WHERE d.datname = pg_catalog.current_database()) || '/' || c.oid,
    'origin', $SYSTEM || '/' || (SELECT d.oid FROM pg_catalog.pg_database d
            WHERE d.datname = pg_catalog.current_database()) || '/' || c.oid,
    'xid', $XID,
    'primary_key', (
        SELECT pg_catalog.json_agg(k.attname ORDER BY o.place)
        FROM pg_catalog.pg_index i
        CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS o(attnum, place)
        JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = o.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary AND o.place <= i.indnkeyatts),
    'columns', (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', a.attname, 'number', a.attnum, 'type', a.atttypid::int8, 'typmod', a.atttypmod,
            'type_text', pg_catalog.format_type(a.atttypid, a.atttypmod), 'dimensions', a.attndims,
            'not_null', a.attnotnull, 'generated', a.attgenerated, 'identity', a.attidentity,
            'default', $DEFAULT, 'older', $OLDER,
            'comment', (
                SELECT m.description FROM pg_catalog.pg_description m
                WHERE m.objoid = a.attrelid AND m.objsubid = a.attnum
                  AND m.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass),
            'collation', CASE WHEN a.attcollation <> t.typcollation THEN (
                SELECT pg_catalog.quote_ident(cn.nspname) || '.' ||
                       pg_catalog.quote_ident(co.collname)
                FROM pg_catalog.pg_collation co
                JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
                WHERE co.oid = a.attcollation) END
            ) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY ($RELATIONS)
ORDER BY n.nspname, c.relname";

/// The collation and the dimensions of a column say nothing about another type, which a cast of the query gives it.
const QUERY_COLUMNS: &str = "\
SELECT pg_catalog.json_build_object(
    'oid', 0, 'schema', '', 'name', '', 'kind', 'q', 'row_type', 0,
    'columns', pg_catalog.json_agg(pg_catalog.json_build_object(
        'name', q.name, 'type', q.type::int8, 'typmod', q.typmod,
        'type_text', pg_catalog.format_type(q.type, q.typmod),
        'dimensions', COALESCE(a.attndims, 0), 'not_null', false, 'generated', '', 'identity', '',
        'collation', CASE WHEN a.attcollation <> t.typcollation THEN (
            SELECT pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(co.collname)
            FROM pg_catalog.pg_collation co JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
            WHERE co.oid = a.attcollation) END
        ) ORDER BY q.place))::text
FROM (VALUES $COLUMNS) AS q(place, name, type, typmod, of_table, number)
JOIN pg_catalog.pg_type t ON t.oid = q.type
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = q.of_table AND a.attnum = q.number
    AND a.atttypid = q.type AND NOT a.attisdropped";

/// In a query of its own, which runs only where the role may call the function.
const SYSTEM: &str = "(SELECT CASE
    WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
    THEN pg_catalog.substring(pg_catalog.query_to_xml('SELECT s.system_identifier AS id FROM
        pg_catalog.pg_control_system() AS s', false, true, '')::text, '<id>([0-9]+)</id>') END)";

/// The first transaction that the answer does not see.
const XID: &str = "pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())";

const DEFAULT: &str = "(
    SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef d
    WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)";

/// The value that the server reads where a row is older than the column, if it is not long. PostgreSQL keeps it as an
/// array of one element; the text of an array whose type has another delimiter than a comma may have more.
const OLDER: &str = "(
    SELECT CASE WHEN pg_catalog.cardinality(m.v) = 1 AND pg_catalog.octet_length(m.v[1]) <= 1024 THEN m.v[1] END
    FROM (SELECT a.attmissingval::text::text[]) AS m(v) WHERE a.atthasmissing)";

const TYPES_BY_OID: &str = "SELECT pg_catalog.unnest($TYPES)";

const TYPES_BY_NAME: &str = "\
SELECT t.oid FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE $WANTED";

/// `rngmultitypid` is read by way of JSON because PostgreSQL 12 and 13 do not have it.
const TYPES: &str = "\
WITH RECURSIVE needed(oid) AS (
    $ROOTS
    UNION
    SELECT part.oid FROM needed
    JOIN pg_catalog.pg_type t ON t.oid = needed.oid
    CROSS JOIN LATERAL (
        SELECT t.typelem WHERE t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc
        UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
        UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r
            WHERE t.typtype = 'm'
              AND (pg_catalog.to_jsonb(r) ->> 'rngmultitypid')::pg_catalog.oid = t.oid
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
            WHERE t.typtype = 'c' AND a.attrelid = t.typrelid
              AND a.attnum > 0 AND NOT a.attisdropped
    ) AS part(oid)
)
SELECT pg_catalog.json_build_object(
    'oid', t.oid::int8, 'schema', n.nspname, 'name', t.typname, 'typtype', t.typtype,
    'element', CASE WHEN t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc
        THEN t.typelem::int8 END,
    'base', CASE WHEN t.typtype = 'd' THEN t.typbasetype::int8 END,
    'typmod', t.typtypmod,
    'base_text', CASE WHEN t.typtype = 'd'
        THEN pg_catalog.format_type(t.typbasetype, t.typtypmod) END,
    'not_null', t.typnotnull,
    'default', t.typdefault,
    'binary', t.typsend <> 0 AND t.typreceive <> 0,
    'is_key', (t.typsend = 0 OR t.typreceive = 0) AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_opclass o
        WHERE o.opckeytype = t.oid AND o.opcintype <> t.oid),
    'send', (SELECT p.prosrc FROM pg_catalog.pg_proc p WHERE p.oid = t.typsend),
    'checks', CASE WHEN t.typtype = 'd' THEN (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', k.conname,
            'definition', pg_catalog.pg_get_constraintdef(k.oid)) ORDER BY k.conname)
        FROM pg_catalog.pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c') END,
    'labels', CASE WHEN t.typtype = 'e' THEN (
        SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder)
        FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) END,
    'fields', CASE WHEN t.typtype = 'c' THEN (
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
            'type', a.atttypid::int8, 'typmod', a.atttypmod,
            'type_text', pg_catalog.format_type(a.atttypid, a.atttypmod)) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) END,
    'subtype', (SELECT r.rngsubtype::int8 FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid),
    'range', CASE WHEN t.typtype = 'm' THEN (
        SELECT r.rngtypid::int8 FROM pg_catalog.pg_range r
        WHERE (pg_catalog.to_jsonb(r) ->> 'rngmultitypid')::pg_catalog.oid = t.oid) END)::text
FROM needed
JOIN pg_catalog.pg_type t ON t.oid = needed.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
ORDER BY t.oid";

/// A table or view with its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its OID.
    pub oid: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// `pg_class.relkind`: `r` table, `p` partitioned, `v` view, `m` materialized, `f` foreign.
    pub kind: char,
    /// The OID of its row type.
    pub row_oid: u32,
    /// The text of `COMMENT ON TABLE`.
    pub comment: Option<String>,
    /// See [`Table`].
    pub identity: Option<String>,
    /// See [`Table`].
    pub origin: Option<Origin>,
    /// See [`Table::older`]; only of columns whose texts mean the same in every session.
    pub older: BTreeMap<String, String>,
    /// `pg_attribute.attnum` of each column by name.
    pub numbers: BTreeMap<String, i16>,
    /// In their order, without dropped ones.
    pub columns: Vec<Column>,
    /// Names, in the key's order; empty without a key.
    pub primary_key: Vec<String>,
}

impl Relation {
    /// The facts of the relation that travel besides its columns.
    pub fn table(&self) -> Table {
        Table {
            comment: self.comment.clone(),
            identity: self.identity.clone(),
            origin: self.origin.clone(),
            older: self.older.clone(),
        }
    }

    /// The row type, for [`crate::insert`].
    pub fn row_type(&self) -> PgType {
        let field = |column: &Column| CompositeField {
            name: column.name.clone(),
            typmod: column.typmod,
            type_text: column.type_text.clone(),
            ty: column.ty.clone(),
        };
        PgType {
            oid: self.row_oid,
            schema: self.schema.clone(),
            name: self.name.clone(),
            kind: Kind::Composite {
                fields: self.columns.iter().map(field).collect(),
            },
        }
    }
}

#[derive(Deserialize)]
struct RawRelation {
    oid: u32,
    schema: String,
    name: String,
    kind: char,
    row_type: u32,
    comment: Option<String>,
    identity: Option<String>,
    origin: Option<String>,
    #[serde(default)]
    xid: i64,
    primary_key: Option<Vec<String>>,
    columns: Option<Vec<RawColumn>>,
}

#[derive(Deserialize)]
struct RawColumn {
    name: String,
    #[serde(default)]
    number: i16,
    #[serde(rename = "type")]
    ty: u32,
    typmod: i32,
    type_text: String,
    not_null: bool,
    generated: String,
    identity: String,
    default: Option<String>,
    #[serde(default)]
    older: Option<String>,
    comment: Option<String>,
    collation: Option<String>,
    #[serde(default)]
    dimensions: u16,
}

#[derive(Deserialize)]
struct RawType {
    oid: u32,
    schema: String,
    name: String,
    typtype: char,
    element: Option<u32>,
    base: Option<u32>,
    typmod: i32,
    base_text: Option<String>,
    not_null: bool,
    default: Option<String>,
    binary: bool,
    /// Without a binary form, and what an operator class keeps of another type: no such type of the
    /// server or its extensions has an input function that reads anything.
    #[serde(default)]
    is_key: bool,
    send: Option<String>,
    checks: Option<Vec<Check>>,
    labels: Option<Vec<String>>,
    fields: Option<Vec<RawField>>,
    subtype: Option<u32>,
    range: Option<u32>,
}

#[derive(Deserialize)]
struct RawField {
    name: String,
    #[serde(rename = "type")]
    ty: u32,
    typmod: i32,
    type_text: String,
}

fn bad(message: impl Into<String>) -> PgError {
    PgError::new(Owner::Internal, "invalid_catalog", message)
}

fn parse_row<T: serde::de::DeserializeOwned>(row: &str) -> Result<T, PgError> {
    serde_json::from_str(row).map_err(|error| bad(format!("a row of the catalog: {error}")))
}

/// The types of one server, by OID. The types of [`builtin`](crate::builtin) are known without a question.
#[derive(Default)]
pub struct Types {
    raw: HashMap<u32, RawType>,
}

impl Types {
    /// Reads the answer to [`types_query`] or [`types_by_name_query`].
    pub fn parse<'a>(rows: impl IntoIterator<Item = &'a str>) -> Result<Self, PgError> {
        let mut raw = HashMap::new();
        for row in rows {
            let ty: RawType = parse_row(row)?;
            raw.insert(ty.oid, ty);
        }
        Ok(Self { raw })
    }

    /// The type of an OID, down to all it is made of.
    ///
    /// `invalid_catalog` if it (or a part) is missing, is nested deeper than [`MAX_DEPTH`] or has
    /// more than [`MAX_PARTS`] parts.
    pub fn get(&self, oid: u32) -> Result<PgType, PgError> {
        let mut parts = 0;
        self.build(oid, 1, &mut parts)
    }

    /// The type of a schema and name, if it was answered.
    pub fn find(&self, schema: &str, name: &str) -> Result<Option<PgType>, PgError> {
        let found = self
            .raw
            .values()
            .find(|ty| ty.schema == schema && ty.name == name);
        found.map(|ty| self.get(ty.oid)).transpose()
    }

    fn build(&self, oid: u32, depth: usize, parts: &mut usize) -> Result<PgType, PgError> {
        let Some(raw) = self.raw.get(&oid) else {
            *parts += 1;
            return model::type_of(oid).ok_or_else(|| bad(format!("the type {oid} is missing")));
        };
        *parts += 1;
        if depth > MAX_DEPTH || *parts > MAX_PARTS {
            return Err(bad(format!(
                "the type {} is nested deeper than {MAX_DEPTH} or has more than {MAX_PARTS} parts",
                raw.name
            )));
        }
        let mut part = |oid: Option<u32>| -> Result<Box<PgType>, PgError> {
            let oid =
                oid.ok_or_else(|| bad(format!("a part of the type {} is missing", raw.name)))?;
            Ok(Box::new(self.build(oid, depth + 1, parts)?))
        };
        let kind = match raw.typtype {
            _ if raw.element.is_some() => Kind::Array {
                element: part(raw.element)?,
            },
            'b' => Kind::Base { send: raw.send() },
            'd' => Kind::Domain {
                base: part(raw.base)?,
                typmod: raw.typmod,
                base_text: raw.base_text.clone().unwrap_or_default(),
                not_null: raw.not_null,
                checks: raw.checks.clone().unwrap_or_default(),
                default: raw.default.clone(),
            },
            'e' => Kind::Enum {
                labels: raw.labels.clone().unwrap_or_default(),
            },
            'c' => {
                let mut fields = Vec::new();
                for field in raw.fields.iter().flatten() {
                    fields.push(CompositeField {
                        name: field.name.clone(),
                        typmod: field.typmod,
                        type_text: field.type_text.clone(),
                        ty: *part(Some(field.ty))?,
                    });
                }
                Kind::Composite { fields }
            }
            'r' => Kind::Range {
                subtype: part(raw.subtype)?,
            },
            'm' => Kind::Multirange {
                range: part(raw.range)?,
            },
            _ => Kind::Other,
        };
        Ok(PgType {
            oid,
            schema: raw.schema.clone(),
            name: raw.name.clone(),
            kind,
        })
    }
}

impl RawType {
    fn send(&self) -> Send {
        // The C function below the SQL name: an extension's type may borrow the text's.
        const TEXT: [&str; 4] = ["textsend", "varcharsend", "bpcharsend", "namesend"];
        match &self.send {
            _ if self.is_key => Send::Key,
            _ if !self.binary => Send::None,
            Some(send) if TEXT.contains(&send.as_str()) => Send::Text,
            _ => Send::Binary,
        }
    }
}

/// Relations whose columns are known by the numbers of their types.
pub struct Described {
    relations: Vec<RawRelation>,
}

impl Described {
    /// Reads the answer to [`columns_query`] or [`shapes_query`].
    pub fn parse<'a>(rows: impl IntoIterator<Item = &'a str>) -> Result<Self, PgError> {
        let relations = rows.into_iter().map(parse_row).collect::<Result<_, _>>()?;
        Ok(Self { relations })
    }

    /// The question for the types that are not built in; none without such.
    pub fn types_query(&self) -> Option<String> {
        let columns = self
            .relations
            .iter()
            .flat_map(|r| r.columns.iter().flatten());
        let unknown: BTreeSet<u32> = columns
            .map(|column| column.ty)
            .filter(|oid| model::type_of(*oid).is_none())
            .collect();
        let unknown: Vec<u32> = unknown.into_iter().collect();
        (!unknown.is_empty()).then(|| types_query(&unknown))
    }

    /// The relations; one with a type that cannot be understood is an error of its own.
    pub fn relations(self, types: &Types) -> Vec<Result<Relation, PgError>> {
        let relations = self.relations.into_iter();
        relations.map(|raw| raw.with_types(types)).collect()
    }
}

impl RawRelation {
    fn with_types(self, types: &Types) -> Result<Relation, PgError> {
        let columns = self.columns.unwrap_or_default();
        let number = |column: &RawColumn| (column.name.clone(), column.number);
        let numbers: BTreeMap<_, _> = columns.iter().map(number).collect();
        let origin = self.origin.map(|relation| Origin {
            relation,
            xid: self.xid,
            columns: numbers.clone(),
        });
        let older = |column: &RawColumn| Some((column.name.clone(), column.older.clone()?));
        let mut older: BTreeMap<_, _> = columns.iter().filter_map(older).collect();
        let columns = columns.into_iter();
        let columns = columns
            .map(|column| column.with_type(types))
            .collect::<Result<Vec<_>, _>>()?;
        let is_plain = |name: &String| {
            let mut columns = columns.iter();
            columns.any(|column| column.name == *name && has_plain_text(&column.ty))
        };
        older.retain(|name, _| is_plain(name));
        Ok(Relation {
            origin,
            older,
            numbers,
            oid: self.oid,
            schema: self.schema,
            name: self.name,
            kind: self.kind,
            row_oid: self.row_type,
            comment: self.comment,
            identity: self.identity,
            columns,
            primary_key: self.primary_key.unwrap_or_default(),
        })
    }
}

/// Whether the text of a value means the same on another server: `money` depends on the server's locale, and the names
/// of `regclass` and its like on its catalog. The checks of a domain would be made for each row of a target.
fn has_plain_text(ty: &PgType) -> bool {
    match &ty.kind {
        Kind::Array { element } => has_plain_text(element),
        Kind::Enum { .. } => true,
        Kind::Domain { .. } => false,
        _ => ty.is_builtin() && ty.name != "money" && !ty.name.starts_with("reg"),
    }
}

impl RawColumn {
    fn with_type(self, types: &Types) -> Result<Column, PgError> {
        let generated = match (self.generated.as_str(), self.identity.as_str()) {
            ("", "") => Generated::No,
            ("s", _) => Generated::Stored,
            ("v", _) => Generated::Virtual,
            ("", "a") => Generated::IdentityAlways,
            ("", "d") => Generated::IdentityByDefault,
            other => return Err(bad(format!("a column is generated as {other:?}"))),
        };
        Ok(Column {
            ty: types
                .get(self.ty)
                .map_err(|error| error.in_column(&self.name))?,
            name: self.name,
            typmod: self.typmod,
            type_text: self.type_text,
            not_null: self.not_null,
            generated,
            default: self.default,
            comment: self.comment,
            collation: self.collation,
            dimensions: self.dimensions,
        })
    }
}
