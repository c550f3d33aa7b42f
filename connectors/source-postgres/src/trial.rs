//! Tries a read before its first row.

use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::below::NO_PRIVILEGE;
use crate::config::Settled;
use crate::copies::{no_increment, queries, selected};
use crate::explain::{explain, is_of_filter, wrong_filter};
use crate::look::describe;
use crate::query;
use crate::relation::Relation;

/// Ends a query that is begun and gives nothing: the server then refuses locks of rows (FOR UPDATE), which it plans in a
/// READ ONLY transaction.
const NO_ROWS: &str = "LIMIT 0";

/// Has the server say what a question comes to, without an answer to it.
pub(crate) fn trial(select: &str) -> String {
    format!("EXPLAIN (COSTS false) {select}")
}

/// Asks the server to plan a read, and reads nothing. A wrong condition, a missing column, a cursor that does not fit
/// or a missing privilege then fails before the first row of any stream. The transaction must be open.
pub(crate) fn try_out(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
) -> Result<()> {
    let mut select = selected(selection, relation);
    if relation.query().is_some() {
        let tried = client.simple_query(&format!("{select} {NO_ROWS}"));
        tried.map_err(|error| match query::is_of_query(&error) {
            true => query::wrong(error, None),
            false => explain(error, relation, settings),
        })?;
    }
    if let Some(filter) = &selection.filter {
        // Alone and between brackets: what closes a bracket itself, or begins another statement,
        // would mean something else in a longer query.
        for condition in [filter.clone(), format!("({filter}\n)")] {
            let parsed = client
                .prepare(&format!("{select} WHERE {condition}"), &[])
                .map_err(|error| match error.code.as_str() {
                    NO_PRIVILEGE => error,
                    _ => wrong_filter(error, filter),
                })?;
            client.forget(parsed)?;
        }
        select += &format!(" WHERE ({filter}\n)");
    }
    let mut selects = vec![select];
    if selection.increment.is_some() {
        let described = describe(client, relation)?;
        // Native or not makes no difference to what can be read.
        let queries = queries(
            client,
            settings,
            selection,
            relation,
            described.columns,
            false,
            false,
        )?;
        selects.extend(queries.queries.into_iter().map(|query| query.from));
    } else if selection.cursor.is_some() {
        return Err(no_increment());
    }
    for select in selects {
        let tried = client.simple_query(&trial(&select));
        tried.map_err(|error| match &selection.filter {
            Some(filter) if is_of_filter(&error) => wrong_filter(error, filter),
            _ => explain(error, relation, settings),
        })?;
    }
    Ok(())
}
