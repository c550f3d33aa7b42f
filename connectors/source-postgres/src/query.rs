//! Queries of the pipeline as streams.
//!
//! A query becomes a [`Relation`] of the kind `q`, whose name in SQL is the query in brackets, so it is read as a view
//! is: planned in the transaction of the snapshot, and then held. The server parses the text alone, as one statement of
//! the extended protocol, and then in brackets. A text that closes the bracket itself fails the first time. A second statement
//! does too, and what writes fails the second time. Functions cannot write either: the transaction is READ ONLY.

use rapidbyte_pg::catalog::{QueryColumn, query_shape};
use rapidbyte_pg::{Column, Kind, PgType};
use rapidbyte_pg_client::{Client, Column as Sent};
use rapidbyte_sdk::prelude::*;

use crate::ask::query;
use crate::below::NO_PRIVILEGE;
use crate::relation::{self, Relation, Seen};

/// The name that the server gives a column without a name.
const UNNAMED: &str = "?column?";
/// `read_only_sql_transaction`: a function that writes, or a lock of rows.
pub(crate) const WRITES: &str = "pg_25006";
/// `undefined_table`, `undefined_function`, `undefined_object` (such as a type).
const UNDEFINED: [&str; 3] = ["pg_42P01", "pg_42883", "pg_42704"];
/// The beginnings of codes of errors that the text causes: what the server does not support, what cannot be computed,
/// what does not exist or is written wrongly, and what is too large.
const OF_QUERY: [&str; 7] = ["pg_0A", "pg_21", "pg_22", WRITES, "pg_3F", "pg_42", "pg_54"];
const ONE_QUERY: &str =
    "write one SELECT, VALUES, or WITH … SELECT that only reads, without a semicolon";
const QUALIFY: &str =
    "write each name with its schema, such as public.orders: the search path of a run is empty";

/// The query as a relation, with the columns that the server finds. The transaction must be open. Errors:
/// `invalid_query`, `query_columns`, and errors of the server about privileges or the connection.
pub(crate) fn describe(client: &mut Client, stream: &str, text: &str) -> Result<Seen> {
    let relation = Relation::of_query(stream, text);
    let alone = prepare(client, text, Some(text))?;
    if !alone.params.is_empty() {
        return Err(
            invalid("the query has parameters, which nobody gives a value".into())
                .hint("write the value instead of $1"),
        );
    }
    let columns = prepare(client, &format!("SELECT * FROM {}", relation.sql()), None)?.columns;
    refuse_names(&columns)?;
    let shape = query(
        client,
        &query_shape(&columns.iter().map(column).collect::<Vec<_>>()),
    )?;
    let described = relation::understand(client, &shape)?.pop();
    let described = described.ok_or_else(|| Error::internal("a query without columns"))??;
    described.columns.iter().try_for_each(refuse_type)?;
    Ok(Seen {
        relation,
        described,
    })
}

/// A statement that the server has parsed.
struct Parsed {
    params: Vec<u32>,
    columns: Vec<Sent>,
}

/// Has the server parse a statement. `text` is the query if the statement is the query alone.
fn prepare(client: &mut Client, sql: &str, text: Option<&str>) -> Result<Parsed> {
    match client.prepare(sql, &[]) {
        Ok(statement) => {
            let parsed = Parsed {
                params: statement.param_oids.clone(),
                columns: statement.columns.clone(),
            };
            client.forget(statement)?;
            Ok(parsed)
        }
        Err(error) if is_of_query(&error) => {
            let position = client.error_position().zip(text);
            let place = position.map(|(position, text)| line_and_column(text, position));
            Err(wrong(error, place))
        }
        Err(error) => Err(error),
    }
}

/// True for an error that the text of the query causes.
pub(crate) fn is_of_query(error: &Error) -> bool {
    error.code != NO_PRIVILEGE && OF_QUERY.iter().any(|class| error.code.starts_with(class))
}

/// An error of the server about the query.
pub(crate) fn wrong(error: Error, place: Option<(usize, usize)>) -> Error {
    let place = place.map(|(line, column)| format!("line {line}, column {column} of the query: "));
    let text = format!("{}{}", place.unwrap_or_default(), error.message);
    let hint = match UNDEFINED.contains(&error.code.as_str()) {
        true => match error.hint {
            Some(hint) => format!("{QUALIFY}; {hint}"),
            None => QUALIFY.to_owned(),
        },
        // The server's hint for a write is to connect to the primary.
        false => match error.hint.filter(|_| error.code != WRITES) {
            Some(hint) => hint,
            None => ONE_QUERY.to_owned(),
        },
    };
    invalid(text).hint(hint)
}

fn invalid(text: String) -> Error {
    Error::config("invalid_query", text)
}

/// The line and the column, each from 1, of a character of the text, also from 1.
fn line_and_column(text: &str, position: usize) -> (usize, usize) {
    let before = text.chars().take(position.saturating_sub(1));
    before.fold((1, 1), |(line, column), c| match c {
        '\n' => (line + 1, 1),
        _ => (line, column + 1),
    })
}

fn column(sent: &Sent) -> QueryColumn<'_> {
    QueryColumn {
        name: &sent.name,
        type_oid: sent.type_oid,
        typmod: sent.type_modifier,
        taken_from: (sent.table_oid, sent.number),
    }
}

/// Errors: `query_columns`.
fn refuse_names(columns: &[Sent]) -> Result<()> {
    let refused = |text: String| Error::config("query_columns", text);
    if columns.is_empty() {
        return Err(refused("the query has no columns".into()).hint("select a column"));
    }
    for (at, Sent { name, .. }) in columns.iter().enumerate() {
        let text = if name == UNNAMED {
            format!("column {} of the query has no name", at + 1)
        } else if columns[..at].iter().any(|other| other.name == *name) {
            format!("two columns of the query have the name {name:?}")
        } else {
            continue;
        };
        let hint = "give each column a name of its own: SELECT … AS name";
        return Err(refused(text).hint(hint).in_column(name));
    }
    Ok(())
}

/// Pseudo-types have no values that another system could hold. No column of a table has such a type. Errors:
/// `query_columns`.
fn refuse_type(column: &Column) -> Result<()> {
    if !has_pseudo_type(&column.ty) {
        return Ok(());
    }
    let (name, ty) = (&column.name, &column.type_text);
    let text = format!("the column {name:?} of the query has the pseudo-type {ty}");
    Err(Error::config("query_columns", text)
        .hint("cast it to a type that a table can have, such as text or jsonb")
        .in_column(name))
}

fn has_pseudo_type(ty: &PgType) -> bool {
    matches!(ty.kind, Kind::Other) || ty.parts().into_iter().any(has_pseudo_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_character_counts_lines_and_letters() {
        let text = "SELECT é,\n  b\nFROM t";
        for (position, place) in [
            (1, (1, 1)),
            (8, (1, 8)),
            (13, (2, 3)),
            (15, (3, 1)),
            (0, (1, 1)),
        ] {
            assert_eq!(line_and_column(text, position), place, "{position}");
        }
        assert_eq!(line_and_column(text, 1000), (3, 7));
    }
}
