//! What `replace` by a new table has to know of the old one: what stands against it, and how the new one is made.

use std::hash::{DefaultHasher, Hash, Hasher};

use rapidbyte_pg::ident::quote_literal;

use crate::config::Name;

/// The query for the reasons against a swap, and for the statements that make a table like the old one.
const GROUND: &str = include_str!("../../sql/ground.sql");
/// The dead rows of a smaller table cost less than the catalog's work for a new one. Where vacuum never
/// comes the table grows until it is swapped.
pub(crate) const LEAST_BYTES: u64 = 1 << 20;
/// Publications of whole schemas; the version that brought them.
const PUBLISHED: (&str, u32) = (
    "OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s \
     WHERE s.pnpubid = b.oid AND s.pnnspid = it.relnamespace)",
    150_000,
);

/// One row of JSON, as [`GROUND`] asks for it.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct SwapFacts {
    /// Why the table cannot be swapped.
    pub reasons: Vec<String>,
    /// The statement that makes the new table.
    pub create: String,
    /// Statements that follow it, before the rows.
    pub shape: Vec<String>,
}

/// Begins the name of each table that takes rows until it gets the name of the old one.
pub(crate) const SWAP_PREFIX: &str = "rapidbyte_swap_";

/// Up to this many rows, DELETE is cheaper than a new table.
pub(crate) const FEW_ROWS: u32 = 1000;

/// Asks whether a table is large enough for `auto`: it has a row if so. `oid` is an expression for the
/// table's OID. The server takes milliseconds to plan [`question`], which no small table needs.
pub(crate) fn is_large(oid: &str) -> String {
    // The statistics first: they tell of most tables that they are small. `pg_locks` lists the locks of every session,
    // so with thousands of tables reading it for each one takes time that grows with the square of their number. It is
    // read because pg_table_size waits for a table that another session has locked.
    format!(
        "SELECT true FROM pg_catalog.pg_class c WHERE c.oid = {oid} \
         AND CASE WHEN c.relkind <> 'r' OR c.relpages >= {LEAST_BYTES} / 8192 THEN true \
         WHEN pg_catalog.pg_stat_get_live_tuples(c.oid) + pg_catalog.pg_stat_get_dead_tuples(c.oid) \
             BETWEEN 1 AND {FEW_ROWS} THEN false \
         WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_locks l \
             WHERE l.relation = c.oid AND l.mode = 'AccessExclusiveLock' \
             AND l.pid <> pg_catalog.pg_backend_pid()) \
         THEN pg_catalog.pg_table_size(c.oid) >= {LEAST_BYTES} ELSE true END"
    )
}

/// The question that [`SwapFacts`] answers. `oid` is an expression for the table's OID.
pub(crate) fn question(oid: &str, name: &Name, version: u32) -> String {
    let (published, since) = PUBLISHED;
    let published = if version >= since { published } else { "" };
    fill(&GROUND.replace("$PUBLISHED", published), oid, name)
}

/// Fills a question with a table and its replacement: `$OID` and `$NEW_OID` are expressions, `$OLD`
/// and `$NEW` are strings that hold the names, quoted for SQL.
pub(crate) fn fill(question: &str, oid: &str, name: &Name) -> String {
    let new = quote_literal(&new_name(name).sql());
    let new_oid = format!("{new}::pg_catalog.regclass");
    let old = quote_literal(&name.sql());
    let values = [
        ("OID", oid),
        ("OLD", &old),
        ("NEW_OID", &new_oid),
        ("NEW", &new),
    ];
    let mut parts = question.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    // A name may hold such a word, so the values are not searched again.
    for part in parts {
        let found = values
            .iter()
            .find_map(|(key, value)| Some((value, part.strip_prefix(key)?)));
        match found {
            Some((value, rest)) => filled.extend([value, rest]),
            None => filled.extend(["$", part]),
        }
    }
    filled
}

/// Short, and another one for each table: indexes, constraints and sequences are named after it.
pub(crate) fn new_name(name: &Name) -> Name {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Name {
        schema: name.schema.clone(),
        table: format!("{SWAP_PREFIX}{:016x}", hasher.finish()),
    }
}
