//! A short question that tells whether a table takes rows as it did.
//!
//! Before each transaction a load asks the catalog for everything that decides how rows go into the table. That takes the
//! server longer than to write a few rows. A change makes new rows of the catalog, which have another `xmin`. So a load
//! that has decided asks for these, and decides again if they have changed.
//!
//! It asks for what the server would not refuse: other columns or types, for which the bytes of a COPY may mean other
//! values, and rules, which COPY passes by. Other changes, as of keys, triggers, defaults and the types that users make,
//! make no difference to an append, or the server says so.

use rapidbyte_pg::ident::quote_literal;

use crate::config::Name;

/// One row of a text. No row if there is no such table.
const TRACES: &str = "\
SELECT pg_catalog.concat_ws(' ', c.oid, c.xmin, current_user, pg_catalog.row_security_active(c.oid),
    (SELECT pg_catalog.string_agg(pg_catalog.concat(a.xmin,
            pg_catalog.has_column_privilege(c.oid, a.attnum, 'INSERT')), ',')
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
    CASE WHEN c.relhasrules THEN (SELECT pg_catalog.string_agg(r.xmin::text, ',')
        FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid) END)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $SCHEMA AND c.relname = $TABLE";

/// The question.
pub(crate) fn question(name: &Name) -> String {
    TRACES
        .replace("$SCHEMA", &quote_literal(&name.schema))
        .replace("$TABLE", &quote_literal(&name.table))
}
