//! Privileges that a read needs in addition to the privileges on its own tables: on relations and functions that a view
//! uses, and on the names in a `where:`. The server reports one missing privilege at a time; this module looks up all
//! of them in the catalog at once.

use rapidbyte_pg::ident::{quote_ident, quote_literal};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;

use crate::ask::query;
use crate::config::Settled;
use crate::relation::{Missing, Relation};

/// The server's error code for a missing privilege.
pub(crate) const NO_PRIVILEGE: &str = "pg_42501";
/// At most this many names of a condition are looked up; nobody writes a longer condition by hand.
const MAX_NAMES: usize = 200;

/// Something that a role may not do.
#[derive(Debug, Deserialize)]
struct Lacking {
    /// The role, quoted.
    role: String,
    /// `read s.t`.
    what: String,
    /// Without a semicolon.
    grant: String,
}

/// Views reach their tables with the rights of their owner, or, with `security_invoker`, of the one who asks.
/// Functions are always called with the rights of the one who asks. A column that the view uses is in `pg_depend`.
const BELOW: &str = "\
WITH RECURSIVE views(oid, who) AS (
    SELECT c.oid, $WHO FROM pg_catalog.pg_class c WHERE c.oid = $OID AND c.relkind = 'v'
    UNION
    SELECT c.oid, $WHO FROM views v
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = v.oid
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
        AND d.objid = w.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
    JOIN pg_catalog.pg_class c ON c.oid = d.refobjid AND c.relkind = 'v'
), needs AS (
    SELECT DISTINCT v.oid AS view, v.who, d.refclassid, d.refobjid, d.refobjsubid FROM views v
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = v.oid
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
        AND d.objid = w.oid AND d.refobjid <> v.oid
)
SELECT pg_catalog.json_build_object('role', found.role, 'what', found.what, 'grant', found.what_grant)::text FROM (
    SELECT DISTINCT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(d.who)) AS role,
        pg_catalog.format('read %I.%I, which is below the view %s', n.nspname, c.relname, d.view::pg_catalog.regclass)
            AS what,
        pg_catalog.format('GRANT SELECT ON %I.%I TO %I', n.nspname, c.relname, pg_catalog.pg_get_userbyid(d.who))
            AS what_grant
    FROM needs d JOIN pg_catalog.pg_class c ON c.oid = d.refobjid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
        AND NOT pg_catalog.has_table_privilege(d.who, c.oid, 'SELECT')
        AND NOT CASE d.refobjsubid WHEN 0 THEN pg_catalog.has_any_column_privilege(d.who, c.oid, 'SELECT')
            ELSE pg_catalog.has_column_privilege(d.who, c.oid, d.refobjsubid::int2, 'SELECT') END
    UNION
    SELECT pg_catalog.quote_ident(current_user),
        pg_catalog.format('call the function %s, which the view %s uses', $FUNCTION, d.view::pg_catalog.regclass),
        pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %I', $FUNCTION, current_user)
    FROM needs d JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
        AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
) AS found ORDER BY found.what_grant";

const WHO: &str = "CASE WHEN 'security_invoker=true' = ANY (c.reloptions) \
    OR 'security_invoker=on' = ANY (c.reloptions) \
    THEN (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) ELSE c.relowner END";

const FUNCTION: &str = "pg_catalog.format('%I.%I(%s)', n.nspname, p.proname, \
    pg_catalog.pg_get_function_identity_arguments(p.oid))";

/// The schemas, tables and functions that a condition or a query names and on which the role lacks a privilege. A name may also be
/// a column. Then no table or function has the name, or the answer lists one that the condition does not use.
const NAMED: &str = "\
WITH names(space, name, is_call) AS (VALUES $NAMES)
SELECT pg_catalog.json_build_object('role', pg_catalog.quote_ident(current_user), 'what', found.what,
    'grant', found.what_grant)::text FROM (
    SELECT pg_catalog.format('use the schema %I, which $KEY: names', n.nspname) AS what,
        pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) AS what_grant, 0 AS place
    FROM names JOIN pg_catalog.pg_namespace n ON n.nspname = names.space
    WHERE NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND (
        EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = names.name)
        OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid AND p.proname = names.name))
    UNION
    SELECT pg_catalog.format('read %I.%I, which $KEY: names', n.nspname, c.relname),
        pg_catalog.format('GRANT SELECT ON %I.%I TO %I', n.nspname, c.relname, current_user), 1
    FROM names JOIN pg_catalog.pg_namespace n ON n.nspname = names.space
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = names.name
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT names.is_call
        AND NOT pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
    UNION
    SELECT pg_catalog.format('call the function %s, which $KEY: names', $FUNCTION),
        pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %I', $FUNCTION, current_user), 1
    FROM names JOIN pg_catalog.pg_proc p ON p.proname = names.name
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE names.is_call AND CASE WHEN names.space IS NULL THEN pg_catalog.pg_function_is_visible(p.oid)
            ELSE n.nspname = names.space END
        AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
) AS found ORDER BY found.place, found.what_grant";

/// Whether a read calls a function of the database that may read tables: a view or a policy uses the function, at any
/// depth, or the condition contains its name. Functions in C are taken to read no tables.
const CALLS: &str = "\
WITH RECURSIVE relations(oid) AS (
    $FIRST
    UNION
    SELECT d.refobjid FROM relations v JOIN pg_catalog.pg_class c ON c.oid = v.oid AND c.relkind = 'v'
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = v.oid
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
        AND d.objid = w.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
), rules(classid, oid) AS (
    SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid, w.oid FROM relations v
    JOIN pg_catalog.pg_class c ON c.oid = v.oid AND c.relkind = 'v'
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = v.oid
    UNION ALL
    SELECT 'pg_catalog.pg_policy'::pg_catalog.regclass::pg_catalog.oid, p.oid FROM relations v
    JOIN pg_catalog.pg_policy p ON p.polrelid = v.oid
), functions(oid, name) AS (
    SELECT p.oid, p.proname FROM pg_catalog.pg_proc p
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang
    JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE (l.lanname NOT IN ('internal', 'c') OR p.prokind = 'a')
        AND n.nspname NOT IN ('pg_catalog', 'information_schema')
        AND p.prorettype NOT IN ('pg_catalog.trigger'::pg_catalog.regtype,
            'pg_catalog.event_trigger'::pg_catalog.regtype)
)
SELECT EXISTS (SELECT FROM functions f
        WHERE pg_catalog.strpos(pg_catalog.lower($CONDITION), pg_catalog.lower(f.name)) > 0)
    OR EXISTS (SELECT FROM rules r
        JOIN pg_catalog.pg_depend d ON d.classid = r.classid AND d.objid = r.oid
        LEFT JOIN pg_catalog.pg_operator o ON o.oid = d.refobjid
            AND d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass
        JOIN functions f ON f.oid = o.oprcode OR f.oid = d.refobjid
            AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass)";

/// The relations of a query that the transaction has described: parsing it locks them, and those below its views.
const HELD: &str = "SELECT l.relation FROM pg_catalog.pg_locks l
    WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation'
        AND l.database = (SELECT b.oid FROM pg_catalog.pg_database b
            WHERE b.datname = pg_catalog.current_database())";

/// The functions that a read calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Only functions that read no tables.
    Nothing,
    /// A function that may read tables. Its locks show which tables, after the call.
    MayRead,
}

impl Calls {
    /// Of one selection, in a transaction that works.
    pub fn of(client: &mut Client, selection: &Selection, relation: &Relation) -> Result<Self> {
        let is_called = matches!(relation.kind, 'v' | 'q') || relation.has_row_security;
        let condition = selection.filter.as_deref();
        if !is_called && condition.is_none() {
            return Ok(Self::Nothing);
        }
        let texts = [relation.query(), condition];
        let texts: Vec<&str> = texts.into_iter().flatten().collect();
        let first = match relation.query() {
            Some(_) => HELD.to_owned(),
            None => format!("SELECT {}::pg_catalog.oid", relation.oid),
        };
        let sql = CALLS.replace("$FIRST", &first).replace(
            "$CONDITION",
            &quote_literal(&texts.join("\n").replace('\0', "")),
        );
        Ok(match query(client, &sql)?.single()? {
            "t" => Self::MayRead,
            _ => Self::Nothing,
        })
    }
}

/// Adds what the role, and the owners of views, lack for one selection. In a transaction that works.
pub(crate) fn add_missing(
    client: &mut Client,
    selection: &Selection,
    relation: &Relation,
    missing: &mut Missing,
) -> Result<()> {
    let mut lacking = Vec::new();
    if relation.kind == 'v' {
        let sql = BELOW
            .replace("$WHO", WHO)
            .replace("$FUNCTION", FUNCTION)
            .replace("$OID", &relation.oid.to_string());
        lacking.extend(ask(client, &sql)?);
    }
    for (key, text) in [
        ("query", relation.query()),
        ("where", selection.filter.as_deref()),
    ] {
        let names = text.map(names).unwrap_or_default();
        if names.is_empty() {
            continue;
        }
        let names: Vec<String> = names.iter().map(Name::row).collect();
        let sql = NAMED
            .replace("$KEY", key)
            .replace("$FUNCTION", FUNCTION)
            .replace("$NAMES", &names.join(", "));
        lacking.extend(ask(client, &sql)?);
    }
    for Lacking { role, what, grant } in lacking {
        missing.add(
            &selection.stream,
            format!("{role} may not {what}"),
            [format!("{grant};")],
        );
    }
    Ok(())
}

/// The same with the error of the server, where the catalog shows no reason.
pub(crate) fn add_refused(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
    refused: &Error,
    missing: &mut Missing,
) -> Result<()> {
    let before = missing.len();
    add_missing(client, selection, relation, missing)?;
    if missing.len() == before {
        let role = quote_ident(&settings.connection.user);
        let text = format!("{role}: {}: {}", relation.stream(), refused.message);
        let statement = match relation.query() {
            Some(_) => format!("-- GRANT SELECT on what the message names TO {role};"),
            None => format!("{};", relation.grants(&role)),
        };
        missing.add(&selection.stream, text, [statement]);
    }
    Ok(())
}

fn ask(client: &mut Client, sql: &str) -> Result<Vec<Lacking>> {
    let rows = query(client, sql)?;
    let parse = |text: &str| {
        serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("a row of the catalog: {error}")))
    };
    crate::relation::texts(&rows)?
        .into_iter()
        .map(parse)
        .collect()
}

/// A name that a condition may mean as a table or a function.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    schema: Option<String>,
    name: String,
    /// A bracket follows.
    is_call: bool,
}

impl Name {
    fn row(&self) -> String {
        let literal = |text: &str| quote_literal(&text.replace('\0', ""));
        let schema = self.schema.as_deref().map_or("NULL::text".into(), literal);
        format!("({schema}, {}, {})", literal(&self.name), self.is_call)
    }
}

/// The names of functions, and those with a schema, in a condition. Texts in single quotes hold none.
fn names(condition: &str) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    let mut rest = condition;
    while let Some(first) = rest.chars().next() {
        if first == '\'' {
            let end = rest[1..].find('\'').map_or(rest.len(), |at| at + 2);
            rest = &rest[end..];
            continue;
        }
        let mut parts = Vec::new();
        while let Some((part, after)) = identifier(rest) {
            parts.push(part);
            rest = after;
            match rest.strip_prefix('.') {
                Some(after) => rest = after,
                None => break,
            }
        }
        let is_call = rest.trim_start().starts_with('(');
        match <[String; 2]>::try_from(parts) {
            Ok([schema, name]) => names.push(Name {
                schema: Some(schema),
                name,
                is_call,
            }),
            Err(parts) if parts.is_empty() => rest = &rest[first.len_utf8()..],
            Err(mut parts) => {
                let name = parts.pop().filter(|_| is_call && parts.is_empty());
                names.extend(name.map(|name| Name {
                    schema: None,
                    name,
                    is_call,
                }));
            }
        }
        if names.len() == MAX_NAMES {
            break;
        }
    }
    names
}

/// An identifier at the beginning of a text, in the letters of the catalog, and what follows.
fn identifier(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut name = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            if c != '"' {
                name.push(c);
            } else if quoted[at + 1..].starts_with('"') {
                name.push('"');
                chars.next();
            } else {
                return Some((name, &quoted[at + 1..]));
            }
        }
        return None;
    }
    let begins = |c: char| c.is_alphabetic() || c == '_';
    if !text.starts_with(begins) {
        return None;
    }
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let end = text.find(|c| !goes_on(c)).unwrap_or(text.len());
    Some((text[..end].to_lowercase(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_functions_and_tables() {
        let text = |name: &Name| {
            let schema = name.schema.as_deref().unwrap_or("-");
            let call = if name.is_call { "()" } else { "" };
            format!("{schema} {}{call}", name.name)
        };
        for (condition, expected) in [
            ("F(x) > 1 AND app.g (y)", "- f(), app g()"),
            ("id IN (SELECT id FROM app.\"T\"\"x\")", "- in(), app T\"x"),
            ("v = 'f(x) app.g(y)' AND a.b.c(1) = 2", ""),
            (
                "\"App\".\"F\"(1) OR 'it''s' = lower(v)",
                "App F(), - lower()",
            ),
            ("'open", ""),
            ("\"open", ""),
            ("é.ü(1) = 1.5e3", "é ü()"),
            ("", ""),
        ] {
            let found: Vec<String> = names(condition).iter().map(text).collect();
            assert_eq!(found.join(", "), expected, "{condition}");
        }
        assert_eq!(names(&"f(".repeat(10_000)).len(), MAX_NAMES);
    }
}
