//! Errors of a read, and what to do about them.

use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::ROW_SECURITY;
use rapidbyte_sdk::prelude::*;

use crate::below::NO_PRIVILEGE;
use crate::config::Settled;
use crate::query;
use crate::relation::Relation;

/// True for an error that only the condition can bring: a parameter such as `$1`, which nobody gives a
/// value, or a constant that cannot be computed.
pub(crate) fn is_of_filter(error: &Error) -> bool {
    error.code == "pg_42P02" || error.code.starts_with("pg_22")
}

pub(crate) fn wrong_filter(error: Error, filter: &str) -> Error {
    let text = format!("where: {filter}: {}", error.message);
    let hint = error.hint.unwrap_or_else(|| {
        "write one condition as after WHERE, with names as in the catalog".into()
    });
    Error::config("invalid_where", text).hint(hint)
}

/// No GRANT lets a role past the policies of a table.
const BELOW_POLICIES: &str = "the policies of that table count for the view's owner, and in a function for the \
     one who calls it: let it be the table's owner or a role with BYPASSRLS; or, to read only the rows that the \
     policies show, set options: \"-c row_security=on\" in the source's config";

/// Says what to do about rows or columns that may not be read.
pub(crate) fn explain(error: Error, relation: &Relation, settings: &Settled) -> Error {
    if error.code == ROW_SECURITY && error.stream.is_none() {
        let text = format!(
            "row-level security hides rows that {} reads: {}",
            relation.shown(),
            error.message
        );
        let server = error.hint.map_or(String::new(), |hint| format!("; {hint}"));
        return Error::new(ErrorKind::Auth, ROW_SECURITY, text)
            .hint(format!("{BELOW_POLICIES}{server}"))
            .in_stream(relation.stream());
    }
    if relation.query().is_some() && error.code == query::WRITES {
        return query::wrong(error, None);
    }
    if error.code != NO_PRIVILEGE {
        return error;
    }
    if relation.query().is_some() {
        let role = quote_ident(&settings.connection.user);
        return error.hint(format!(
            "GRANT SELECT to {role} on each table that the query reads"
        ));
    }
    let grants = relation.grants(&quote_ident(&settings.connection.user));
    let more = match relation.kind {
        'v' => {
            "the owner of a view needs the same privileges for the relations below it, and \
                 BYPASSRLS if row-level security would hide rows"
        }
        _ => "or leave out the columns that the role cannot read",
    };
    error.hint(format!("{grants}; {more}"))
}
