//! What a selection comes to: the COPYs that read it.

use std::collections::VecDeque;

use rapidbyte_pg::Column;
use rapidbyte_pg::form::{form, select_expression};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;
use crate::increment::{self, Checkpoints, PartKind};
use crate::relation::{self, Relation};

/// One COPY.
pub(crate) struct Query {
    /// A table with columns, or a query in brackets.
    pub from: String,
    /// The columns of the stream, then the texts of the cursor.
    pub columns: Vec<Column>,
    /// Nothing for a whole stream.
    pub kind: Option<PartKind>,
}

impl Query {
    /// False for a table by its name, which is held and calls no function.
    pub fn is_query(&self) -> bool {
        self.from.starts_with('(')
    }

    /// The read as a query that the server can plan.
    pub fn question(&self, relation: &Relation) -> String {
        match self.is_query() {
            true => self.from.clone(),
            false => format!("SELECT FROM {}", relation.sql()),
        }
    }
}

/// All that a selection comes to.
pub(crate) struct Queries {
    /// Of the stream.
    pub columns: Vec<Column>,
    pub queries: VecDeque<Query>,
    pub checkpoints: Option<Checkpoints>,
}

pub(crate) fn no_increment() -> Error {
    Error::config("no_cursor", "a table that is read whole cannot resume")
        .hint("set sync_mode: incremental")
}

/// The queries that read a selection. Errors: as of [`relation::choose`] and [`increment::plan`]; `no_cursor`.
pub(crate) fn queries(
    client: &mut Client,
    settings: &Settled,
    selection: &Selection,
    relation: &Relation,
    all: Vec<Column>,
    native: bool,
    was_tried: bool,
) -> Result<Queries> {
    let filter = selection.filter.as_deref();
    let wanted = selection.columns.as_deref();
    if relation.query().is_some() && selection.increment.is_some() {
        return Err(Error::internal("an incremental read of a query"));
    }
    let Some(increment) = &selection.increment else {
        if selection.cursor.is_some() {
            return Err(no_increment());
        }
        let columns = relation::choose(all, wanted)?;
        let query = Query {
            from: whole(relation, &columns, native, filter),
            columns: columns.clone(),
            kind: None,
        };
        return Ok(Queries {
            columns,
            queries: VecDeque::from([query]),
            checkpoints: None,
        });
    };
    let cursor = selection.cursor.as_deref();
    let plan = increment::plan(
        client, settings, relation, &all, increment, cursor, was_tried,
    )?;
    let columns = relation::choose(all, wanted)?;
    let query = |part: increment::Part| {
        let mut expressions = expressions(&columns, native);
        let mut columns = columns.clone();
        for (text, column) in plan.checkpoints.extra(part.kind) {
            expressions.push(text);
            columns.push(column);
        }
        let conditions = [filter, part.condition.as_deref()];
        Query {
            from: select(relation, &expressions, &conditions, &part.order),
            columns,
            kind: Some(part.kind),
        }
    };
    let queries = plan.parts.into_iter().map(query).collect();
    Ok(Queries {
        columns,
        queries,
        checkpoints: Some(plan.checkpoints),
    })
}

/// The table or query of a COPY of all rows.
///
/// `COPY table` is faster than a query, but does not fit every case: it leaves out the rows of inheriting tables,
/// refuses views, foreign and partitioned tables and generated columns, and casts nothing.
fn whole(relation: &Relation, columns: &[Column], native: bool, filter: Option<&str>) -> String {
    let needs_query =
        |column: &Column| column.is_computed() || form(column, native).needs_text_cast();
    let is_plain = relation.kind == 'r'
        && !relation.has_children
        && !relation.has_row_security
        && filter.is_none()
        && !columns.is_empty()
        && !columns.iter().any(needs_query);
    if is_plain {
        let names: Vec<String> = columns.iter().map(|c| quote_ident(&c.name)).collect();
        let table = relation.sql();
        return format!("{table} ({})", names.join(", "));
    }
    select(relation, &expressions(columns, native), &[filter], "")
}

fn expressions(columns: &[Column], native: bool) -> Vec<String> {
    columns
        .iter()
        .map(|column| select_expression(column, native))
        .collect()
}

/// A query in brackets. `order` begins with a blank, or is empty.
fn select(
    relation: &Relation,
    expressions: &[String],
    conditions: &[Option<&str>],
    order: &str,
) -> String {
    // A condition may end in a comment.
    let conditions: Vec<String> = conditions
        .iter()
        .flatten()
        .map(|text| format!("({text}\n)"))
        .collect();
    let place = if conditions.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", conditions.join(" AND "))
    };
    let (table, expressions) = (relation.sql(), expressions.join(", "));
    format!("(SELECT {expressions} FROM {table}{place}{order})")
}

/// All rows of a selection, as a question.
pub(crate) fn selected(selection: &Selection, relation: &Relation) -> String {
    let columns = match &selection.columns {
        None => "*".to_owned(),
        Some(names) => {
            let names: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
            names.join(", ")
        }
    };
    format!("SELECT {columns} FROM {}", relation.sql())
}
