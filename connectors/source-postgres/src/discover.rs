//! Discovery: the relations that a run can read, as streams.

use std::collections::HashMap;

use rapidbyte_pg::catalog;
use rapidbyte_pg::form::{form, schema};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::ask;
use crate::config::{Numeric, Settled};
use crate::error::about;
use crate::order;
use crate::query;
use crate::relation::{self, Relation, Seen};
use crate::session::beginning;

/// Relations that are described at a time.
const CHUNK_RELATIONS: usize = 500;
/// Columns that are described at a time: a few megabytes of JSON.
const CHUNK_COLUMNS: u32 = 5000;

/// All relations that can be streams, and the streams. Warns of a relation that cannot be described. `begin` are the
/// statements of the transaction, which stays open. One send asks for the relations and for the columns of the first
/// ones.
pub(crate) fn streams(
    client: &mut Client,
    settings: &Settled,
    begin: &str,
    native: bool,
) -> Result<(Vec<Relation>, Vec<Stream>)> {
    let all = relation::all();
    let first = catalog::shapes_query_of(&relation::first(CHUNK_RELATIONS, CHUNK_COLUMNS));
    let has_vague = order::HAS_VAGUE;
    let [listed, has_vague, columns] =
        client.query_all(&format!("{begin}; {all}; {has_vague}; {first}"))?;
    let listed = relation::parse(&listed)?;
    let has_vague = has_vague.single()? == "true";
    let mut first = Some(columns);
    let by_oid: HashMap<u32, &Relation> = listed.iter().map(|r| (r.oid, r)).collect();
    let mut streams = Vec::with_capacity(listed.len());
    for chunk in chunks(&listed) {
        let oids: Vec<u32> = chunk.iter().map(|relation| relation.oid).collect();
        let columns = match first.take() {
            Some(columns) => columns,
            None => ask::query(client, &catalog::shapes_query(&oids))?,
        };
        // Asked apart: few databases have such collations, and the question costs as much as the others.
        let vague = if has_vague {
            let vague = order::collations(&catalog::oid_array(&oids), false);
            order::parse_collations(&ask::query(client, &vague)?)?
        } else {
            Vec::new()
        };
        for described in relation::understand(client, &columns)? {
            let stream = described.and_then(|mut described| {
                let Some(relation) = by_oid.get(&described.oid) else {
                    return Ok(None);
                };
                settings.fix_numerics(&mut described.columns, native);
                let columns = order::candidates(relation.oid, &described.columns, &vague);
                let stream = stream(relation, &described, native);
                let stream = stream.map_err(|error| about(error, &relation.stream()))?;
                Ok(Some(Stream {
                    cursor_fields: columns,
                    ..stream
                }))
            });
            match stream {
                Ok(stream) => streams.extend(stream),
                Err(error) => log::warn(format_args!(
                    "a table is not listed: {}{}",
                    error.stream.map_or(String::new(), |name| name + ": "),
                    error.message
                )),
            }
        }
    }
    Ok((listed, streams))
}

/// A query of the pipeline as a stream, with its name and its text. Begins a transaction, which stays open.
pub(crate) fn of_query(
    client: &mut Client,
    settings: &Settled,
    (name, text): (&str, &str),
    native: bool,
) -> Result<Stream> {
    let begin = beginning(client, settings, None);
    client.execute(&begin)?;
    let Seen {
        relation,
        mut described,
    } = query::describe(client, name, text)?;
    settings.fix_numerics(&mut described.columns, native);
    stream(&relation, &described, native)
}

/// Cut so that each answer stays small.
fn chunks(relations: &[Relation]) -> Vec<&[Relation]> {
    let mut chunks = Vec::new();
    let (mut begin, mut columns) = (0, 0);
    for (at, relation) in relations.iter().enumerate() {
        let is_full = at - begin == CHUNK_RELATIONS || columns + relation.columns > CHUNK_COLUMNS;
        if is_full && at > begin {
            chunks.push(&relations[begin..at]);
            (begin, columns) = (at, 0);
        }
        columns += relation.columns;
    }
    if begin < relations.len() {
        chunks.push(&relations[begin..]);
    }
    chunks
}

pub(crate) fn stream(
    relation: &Relation,
    described: &catalog::Relation,
    native: bool,
) -> Result<Stream> {
    let columns = &described.columns;
    let mut table = described.table();
    // Tables that inherit from it may have other values in their older rows.
    if relation.has_children {
        table.older.clear();
    }
    let schema = schema(columns, native, &table);
    let mut stream = Stream::new(relation.stream(), &schema)?;
    stream.source_types = columns.iter().map(|c| c.type_text.clone()).collect();
    // Rows of inheriting tables are read with it, and may have the same key.
    if !relation.has_children {
        stream.primary_key.clone_from(&described.primary_key);
    }
    stream.estimated_rows = relation.rows;
    stream.estimated_bytes = relation.bytes;
    stream.notes = notes(relation, described, native);
    Ok(stream)
}

fn notes(relation: &Relation, described: &catalog::Relation, native: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |is_so: bool, text: &str| {
        if is_so {
            notes.push(text.to_owned());
        }
    };
    let is_part = relation.is_readable() && !relation.is_readable_whole();
    note(!relation.is_readable(), "this role cannot read it");
    note(is_part, "this role can read only some of its columns");
    note(
        relation.has_row_security,
        "row-level security is active for this role: a run refuses the table unless options set \
             row_security=on",
    );
    note(
        relation.has_children,
        "other tables inherit from it: their rows are read with it, as SELECT does",
    );
    note(relation.kind == 'p', "partitioned: read as one stream");
    note(relation.kind == 'v', "a view");
    note(relation.kind == 'q', "a query");
    note(relation.kind == 'm', "a materialized view");
    note(
        relation.kind == 'f',
        "a foreign table: its rows are not in the snapshot of the other tables",
    );
    note(
        relation.is_unlogged,
        "unlogged: empty after a crash of the server, and on a standby",
    );
    note(
        !relation.is_populated,
        "the materialized view has no data yet: REFRESH MATERIALIZED VIEW",
    );
    note(described.columns.is_empty(), "it has no columns");
    for column in &described.columns {
        let is_text = form(column, native).needs_text_cast();
        let is_bare = Numeric::is_missing(column);
        let advice = match (is_bare, column.is_nested()) {
            (true, _) => "; `numeric: { precision, scale }` in source.config makes it a decimal",
            (_, true) => ": it is declared with more than one dimension",
            _ => "",
        };
        note(
            is_text,
            &format!(
                "{} ({}) is read as text{advice}",
                column.name, column.type_text
            ),
        );
    }
    notes
}
