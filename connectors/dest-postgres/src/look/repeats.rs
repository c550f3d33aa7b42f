//! What an append of rows that may come again has to know of its table: how the columns that tell rows apart are
//! compared, and the indexes that find rows.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_sdk::prelude::*;

/// One row of JSON, as [`FACTS`] asks for it.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct RepeatFacts {
    /// Of the key and the version, as far as the table has them.
    pub columns: Vec<Compared>,
    /// Columns that the role may not read.
    pub closed_reads: Vec<String>,
    /// Triggers that see each row first and may turn it away.
    pub has_row_triggers: bool,
    /// The columns of each whole index, in its order.
    pub indexes: Vec<Index>,
}

impl RepeatFacts {
    /// The names of columns.
    pub(crate) fn columns_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let compared = self.columns.iter_mut().map(|column| &mut column.name);
        let indexed = self.indexes.iter_mut().flat_map(|index| &mut index.columns);
        compared.chain(indexed)
    }
}

/// A column of the key or the version.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Compared {
    pub name: String,
    /// The type's own equality operator, with its schema; none if the type does not have an order.
    pub equal: Option<String>,
}

/// An index of all rows of the table, on columns alone.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct Index {
    pub is_unique: bool,
    pub columns: Vec<String>,
}

/// The operator belongs to the default operator class for B-trees, which the server finds in the
/// same way (`GetDefaultOpClass`). The class is for the type below all domains, for a type to which
/// it is binary coercible, or for all enums, arrays, ranges and composites.
const FACTS: &str = "\
SELECT pg_catalog.json_build_object(
    'columns', (SELECT COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object(
            'name', a.attname, 'equal', (
        WITH RECURSIVE below AS (
            SELECT y.oid, y.typtype, y.typbasetype, y.typelem, y.typlen FROM pg_catalog.pg_type y
                WHERE y.oid = a.atttypid
            UNION ALL
            SELECT y.oid, y.typtype, y.typbasetype, y.typelem, y.typlen FROM below b
                JOIN pg_catalog.pg_type y ON y.oid = b.typbasetype WHERE b.typtype = 'd')
        SELECT pg_catalog.quote_ident(n.nspname) || '.' || o.oprname
        FROM below b
        JOIN pg_catalog.pg_opclass l ON l.opcdefault AND (l.opcintype = b.oid
            OR l.opcintype = pg_catalog.to_regtype(CASE
                WHEN b.typtype = 'e' THEN 'pg_catalog.anyenum'
                WHEN b.typtype = 'r' THEN 'pg_catalog.anyrange'
                WHEN b.typtype = 'm' THEN 'pg_catalog.anymultirange'
                WHEN b.typtype = 'c' THEN 'pg_catalog.record'
                WHEN b.typelem <> 0 AND b.typlen = -1 THEN 'pg_catalog.anyarray' END)
            OR EXISTS (SELECT FROM pg_catalog.pg_cast k WHERE k.castsource = b.oid
                AND k.casttarget = l.opcintype AND k.castmethod = 'b' AND k.castcontext = 'i'))
        JOIN pg_catalog.pg_am h ON h.oid = l.opcmethod AND h.amname = 'btree'
        JOIN pg_catalog.pg_type i ON i.oid = l.opcintype
        JOIN pg_catalog.pg_amop m ON m.amopfamily = l.opcfamily AND m.amopstrategy = 3
            AND m.amoplefttype = l.opcintype AND m.amoprighttype = l.opcintype
        JOIN pg_catalog.pg_operator o ON o.oid = m.amopopr
        JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
        WHERE b.typtype <> 'd'
        ORDER BY l.opcintype = b.oid DESC, i.typispreferred DESC LIMIT 1))), '[]')
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname::pg_catalog.text IN ($NAMES)),
    'closed_reads', (SELECT COALESCE(pg_catalog.json_agg(a.attname), '[]')
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')),
    'has_row_triggers', c.relkind = 'p' OR EXISTS (SELECT FROM pg_catalog.pg_trigger g
        WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
          AND g.tgtype & 3 = 3),
    'indexes', (SELECT COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object(
            'is_unique', i.indisunique, 'columns', (
                SELECT pg_catalog.json_agg(a.attname ORDER BY p.place)
                FROM unnest(i.indkey) WITH ORDINALITY AS p(attnum, place)
                JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.attnum
                WHERE p.place <= i.indnkeyatts))), '[]')
        FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL
          AND i.indexprs IS NULL))::text
FROM pg_catalog.pg_class c WHERE c.oid = $TABLE";

/// The question for [`RepeatFacts`]. `table` is an expression for its OID.
pub(crate) fn question(table: &str, target: &Target) -> String {
    let names = target.primary_key.iter().chain(&target.dedup_fields);
    let names: Vec<String> = names.map(|name| quote_literal(name)).collect();
    FACTS
        .replace("$TABLE", table)
        .replace("$NAMES", &names.join(", "))
}
