//! Looks up a stream as its transaction sees it.

use rapidbyte_pg::catalog;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::query;
use crate::relation::{self, Relation, Seen, Wanted};

/// The relation and its columns as the transaction sees them.
pub(crate) fn look_up(client: &mut Client, selection: &Selection) -> Result<Seen> {
    if let Some(text) = &selection.query {
        return query::describe(client, &selection.stream, text);
    }
    let mut found = relation::find_wanted(client, &[Wanted::of(selection)])?;
    let relation = found
        .pop()
        .ok_or_else(|| Error::internal("a stream without its relation"))?;
    let described = describe(client, &relation)?;
    Ok(Seen {
        relation,
        described,
    })
}

pub(crate) fn describe(client: &mut Client, relation: &Relation) -> Result<catalog::Relation> {
    let described = relation::describe(client, &[relation.oid])?.pop();
    described.ok_or_else(|| {
        let text = "the table was dropped after the start of the run";
        Error::schema("unknown_stream", text)
    })?
}
