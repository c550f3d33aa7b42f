//! What an upsert has to know of its table: the unique keys, and what keeps rows from being changed.

use rapidbyte_pg::ident::{qualified, quote_ident};

use crate::config::Name;

/// One row of JSON, as [`FACTS`] asks for it.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct UpsertFacts {
    /// Columns that the role may not update, and may not read.
    pub closed_updates: Vec<String>,
    pub closed_reads: Vec<String>,
    /// Rules for INSERT or UPDATE.
    pub write_rules: u32,
    /// Triggers that see each row first and may turn it away.
    pub has_row_triggers: bool,
    /// The unique indexes that ON CONFLICT can name.
    pub unique_keys: Vec<UniqueKey>,
}

impl UpsertFacts {
    /// The names of columns.
    pub(crate) fn columns_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let keys = self.unique_keys.iter_mut().flat_map(|key| &mut key.columns);
        keys.map(|column| &mut column.name)
    }
}

/// A unique index.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct UniqueKey {
    pub index: String,
    /// `primary key` or `unique constraint`, if the index belongs to one.
    pub constraint: Option<String>,
    pub columns: Vec<KeyColumn>,
}

impl UniqueKey {
    /// The statement that removes it from the table.
    pub(crate) fn drop(&self, table: &Name) -> String {
        match self.constraint {
            // A constraint has the name of its index.
            Some(_) => format!(
                "ALTER TABLE {table} DROP CONSTRAINT {}",
                quote_ident(&self.index)
            ),
            None => format!("DROP INDEX {}", qualified(&table.schema, &self.index)),
        }
    }
}

impl std::fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.constraint.as_deref().unwrap_or("unique index");
        let columns: Vec<_> = self.columns.iter().map(|c| quote_ident(&c.name)).collect();
        let index = quote_ident(&self.index);
        write!(f, "the {kind} {index} on ({})", columns.join(", "))
    }
}

/// A column of a unique index.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct KeyColumn {
    pub name: String,
    /// The operator of equality that the index uses, with its schema.
    pub equal: String,
}

const FACTS: &str = "\
SELECT pg_catalog.json_build_object(
    'closed_updates', (SELECT COALESCE(pg_catalog.json_agg(a.attname), '[]')
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'UPDATE')),
    'closed_reads', (SELECT COALESCE(pg_catalog.json_agg(a.attname), '[]')
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')),
    'write_rules', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_rewrite r
        WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3')),
    'has_row_triggers', c.relkind = 'p' OR EXISTS (SELECT FROM pg_catalog.pg_trigger g
        WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
          AND g.tgtype & 3 = 3),
    'unique_keys', (SELECT COALESCE(pg_catalog.json_agg(k), '[]') FROM (
        SELECT x.relname AS index,
            (SELECT CASE s.contype WHEN 'p' THEN 'primary key' ELSE 'unique constraint' END
                FROM pg_catalog.pg_constraint s
                WHERE s.conindid = x.oid AND s.contype IN ('p', 'u')) AS constraint, (
            SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname,
                'equal', pg_catalog.quote_ident(n.nspname) || '.' || o.oprname) ORDER BY p.place)
            FROM unnest(i.indkey, i.indclass, i.indcollation)
                WITH ORDINALITY AS p(attnum, family, sorted_by, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.attnum
                AND (p.sorted_by = 0 OR p.sorted_by = a.attcollation)
            JOIN pg_catalog.pg_opclass l ON l.oid = p.family
            JOIN pg_catalog.pg_amop m ON m.amopfamily = l.opcfamily AND m.amopstrategy = 3
                AND m.amoplefttype = l.opcintype AND m.amoprighttype = l.opcintype
            JOIN pg_catalog.pg_operator o ON o.oid = m.amopopr
            JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
            WHERE p.place <= i.indnkeyatts
            HAVING pg_catalog.count(*) = i.indnkeyatts) AS columns
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
          AND i.indpred IS NULL AND i.indexprs IS NULL) AS k
        WHERE k.columns IS NOT NULL))::text
FROM pg_catalog.pg_class c WHERE c.oid = $TABLE";

/// The question for [`UpsertFacts`]. `table` is an expression for its OID.
pub(crate) fn question(table: &str) -> String {
    FACTS.replace("$TABLE", table)
}
