//! The rows of a load on their way into its index: into the target itself, or into an index that becomes the target at the
//! commit.

use std::collections::HashSet;
use std::rc::Rc;

use rapidbyte_document_store::{
    IdOf, Lease, Opening, Put, RefusedRow, Right, RowId, Source, Writer, epoch_prefix,
};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};

use crate::bulk::{self, Item, Op, Outcome};
use crate::config::Refresh;
use crate::index::{self, Found};
use crate::layout::{Layout, MARK, Rows, id_of, mark_of};
use crate::plan::{self, Place};
use crate::rejects;
use crate::search;
use crate::server::Server;

/// Rows that are held before they go out, in requests that go out at the same time.
const MAX_HELD_ROWS: usize = 100_000;

struct Held {
    item: Item,
    source: Source,
}

/// An index that is filled to become the target.
struct Filled {
    /// The index that it replaces and deletes.
    older: Option<String>,
}

/// The writer of a load.
pub struct IndexWriter {
    /// The name that readers use: an index, or an alias of one.
    target: String,
    /// The index that takes the rows.
    index: String,
    uuid: String,
    layout: Rc<Layout>,
    held: Vec<Held>,
    held_bytes: usize,
    /// The ids that are held.
    ids: HashSet<String>,
    refused: Vec<RefusedRow>,
    /// Until the first commit.
    filled: Option<Filled>,
    /// The first commit deletes the documents that were there before.
    purges: bool,
    /// Older rows are gone, or may be, and the commit is not done.
    has_replaced: bool,
}

impl IndexWriter {
    /// Makes the index if it does not exist, and adds its missing fields. Errors: `target_missing`, `column_refused`; of
    /// the plan.
    pub(crate) fn open(server: &mut Server, opening: &Opening<'_>) -> Result<Self> {
        let target = opening.target;
        let settings = server.settings.clone();
        let schema = target.arrow_schema()?;
        let found = index::look(&server.client, opening.collection)?;
        if found.is_none() && opening.cursor.is_some() {
            let text = format!(
                "{} does not exist, and the stream has a cursor",
                opening.collection
            );
            return Err(
                Error::schema("target_missing", text).hint(rapidbyte_document_store::READ_AGAIN)
            );
        }
        let lease = match opening.right {
            Right::Lease(lease) => Some(lease),
            // A replay adds to the rows that are there.
            Right::Replay(_) => None,
        };
        let begins = opening.cursor.is_none() && lease.is_some();
        let place = Place::of(target, opening.collection, found, begins);
        let id_of = id_of(target, &schema)?;
        let decided = plan::decide(target, &schema, &settings, &id_of, &place)?;
        decided.ensure_accepted()?;
        if let Some(to) = opening.rejects {
            rejects::make(server, to)?;
        }
        let made = |server: &Server, name: &str| {
            let mappings = crate::mapping::mappings(&decided.properties);
            index::create(&server.client, &settings, (name, mappings), false)
        };
        let purges =
            target.write_mode == WriteMode::Replace && begins && matches!(place, Place::There(_));
        let (tag, epoch) = opening.right.marks();
        let mark = { purges && id_of != IdOf::Made }.then(|| mark_of(&epoch_prefix(tag, epoch)));
        let (into, filled) = match (place, lease) {
            (Place::Filled(older), Some(lease)) => {
                let name = index::filled_name(opening.collection, lease);
                let older = older.map(|older| older.name);
                (made(server, &name)?, Some(Filled { older }))
            }
            (Place::There(found), _) => {
                let mut properties = decided.properties.clone();
                if id_of == IdOf::Made || mark.is_some() {
                    properties.extend(missing_mark(&found)?);
                }
                index::add_fields(&server.client, &found.name, &properties)?;
                (found, None)
            }
            (Place::New | Place::Filled(_), _) => (made(server, opening.collection)?, None),
        };
        let layout = Layout::new(target, &schema, settings.documents, &decided.ignored, mark)?;
        Ok(Self {
            target: opening.collection.to_owned(),
            index: into.name,
            uuid: into.uuid,
            layout: Rc::new(layout),
            held: Vec::new(),
            held_bytes: 0,
            ids: HashSet::new(),
            refused: Vec::new(),
            filled,
            purges,
            has_replaced: false,
        })
    }

    /// Sends everything that is held.
    fn send(&mut self, server: &mut Server) -> Result<()> {
        self.ids.clear();
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        failpoint("dest-opensearch.writing")?;
        let (items, sources): (Vec<Item>, Vec<Source>) =
            held.into_iter().map(|one| (one.item, one.source)).unzip();
        let outcomes = bulk::send(&server.client, &self.index, &items, server.limits())?;
        failpoint("dest-opensearch.write_sent")?;
        let mut taken = Vec::new();
        for ((item, source), outcome) in items.iter().zip(sources).zip(outcomes) {
            let Outcome::Refused { status, error } = outcome else {
                continue;
            };
            match (item.op, status) {
                (Op::Delete, 404) => {}
                (Op::Create, 409) => taken.push((item, source, error)),
                _ if matches!(error.kind, ErrorKind::Data) => {
                    self.refused.push(RefusedRow { source, error });
                }
                _ => return Err(error),
            }
        }
        // An earlier attempt of the run wrote those that are the same.
        let ids: Vec<&str> = taken.iter().map(|(item, ..)| item.id.as_str()).collect();
        let stored = match ids.is_empty() {
            true => Vec::new(),
            false => search::by_id(&server.client, &self.index, &ids)?,
        };
        for ((item, source, error), stored) in taken.into_iter().zip(stored) {
            let is_same = match stored {
                Some(stored) => is_same(&item.document, stored.source()?),
                None => false,
            };
            if !is_same {
                self.refused.push(RefusedRow { source, error });
            }
        }
        Ok(())
    }

    /// Deletes the documents that were there before the rows of this run.
    fn purge(&mut self, server: &Server, lease: &Lease) -> Result<()> {
        failpoint("dest-opensearch.purging")?;
        self.has_replaced = true;
        index::refresh(&server.client, &self.index)?;
        let checkpoint = &lease.checkpoint;
        let tag = checkpoint.tag.to_string();
        let own = epoch_prefix(checkpoint.tag, checkpoint.epoch);
        let (from, stream) = match self.makes_ids() {
            true => (own, tag),
            false => (mark_of(&own), mark_of(&tag)),
        };
        // Documents of a newer run of the stream stay, should this run wake up late. `g` is behind every digit.
        let newer = json!({ "range": { MARK: { "gte": from, "lt": format!("{stream}g") } } });
        let query = json!({ "bool": { "must_not": [newer] } });
        let limits = server.limits();
        let deleted = search::delete_where(&server.client, &self.index, &query, limits)?;
        log::debug(format!("{deleted} older documents were deleted"));
        failpoint("dest-opensearch.purged")?;
        self.purges = false;
        Ok(())
    }

    /// Puts the index that was filled into the place of the target.
    fn put_in_place(
        &mut self,
        server: &mut Server,
        lease: &Lease,
        older: Option<&str>,
    ) -> Result<()> {
        index::refresh(&server.client, &self.index)?;
        failpoint("dest-opensearch.publishing")?;
        // From here on the index may be the target, whatever the answer.
        self.has_replaced = true;
        if !index::publish(&server.client, &self.target, &self.index, older)? {
            lease.hold(server)?;
            let text = format!(
                "{} cannot become {}: somebody deleted an index or changed the alias during the run",
                self.index, self.target
            );
            return Err(Error::schema("index_changed", text).hint("run again"));
        }
        failpoint("dest-opensearch.published")?;
        self.filled = None;
        Ok(())
    }
}

/// The field for marks, if the index does not have it. Errors: `type_refused`.
fn missing_mark(found: &Found) -> Result<Option<(String, Value)>> {
    let property = &found.mappings["properties"][MARK];
    match property["type"].as_str() {
        None if property.is_null() => Ok(Some((MARK.to_owned(), crate::mapping::mark()))),
        Some("keyword") => Ok(None),
        _ => {
            let text = format!(
                "the index {} has the field {MARK} as another type than keyword",
                found.name
            );
            Err(Error::schema("type_refused", text).hint(
                "name another index: Rapidbyte keeps in this field which run wrote a document",
            ))
        }
    }
}

/// Whether two documents have the same fields and values.
fn is_same(mine: &[u8], stored: &str) -> bool {
    if mine == stored.as_bytes() {
        return true;
    }
    let parsed = (
        serde_json::from_slice::<Value>(mine),
        serde_json::from_str::<Value>(stored),
    );
    matches!(parsed, (Ok(mine), Ok(stored)) if mine == stored)
}

impl Writer<Server> for IndexWriter {
    type Rows = Rows;

    fn makes_ids(&self) -> bool {
        *self.layout.ids.id_of() == IdOf::Made
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        self.layout.rows(batch)
    }

    fn put(
        &mut self,
        server: &mut Server,
        rows: &Rows,
        source: &Source,
        id: Option<&RowId>,
    ) -> Result<Put> {
        let made = id.map_or_else(String::new, RowId::to_string);
        let item = match rows.row(source.row, &made) {
            Ok(item) => item,
            Err(error) if matches!(error.kind, ErrorKind::Data) => return Ok(Put::Refused(error)),
            Err(error) => return Err(error),
        };
        let bytes = item.bytes();
        let (settings, in_flight) = (&server.settings, server.settings.cluster.in_flight);
        let is_full = self.held.len() >= (settings.bulk_rows * in_flight).min(MAX_HELD_ROWS)
            || (!self.held.is_empty() && self.held_bytes + bytes > settings.bulk_bytes * in_flight)
            // Of two versions of a row, the server has to see the later one later.
            || self.ids.contains(&item.id);
        if is_full {
            self.send(server)?;
        }
        if id.is_none() {
            self.ids.insert(item.id.clone());
        }
        self.held_bytes += bytes;
        let source = source.clone();
        self.held.push(Held { item, source });
        Ok(Put::Taken(bytes as u64))
    }

    fn flush(&mut self, server: &mut Server) -> Result<()> {
        self.send(server)
    }

    fn take_refused(&mut self) -> Vec<RefusedRow> {
        std::mem::take(&mut self.refused)
    }

    fn publish(&mut self, server: &mut Server, lease: &mut Lease) -> Result<bool> {
        if let Err(error) = index::ensure_same(&server.client, &self.index, &self.uuid) {
            // A newer run deletes the indices that older ones fill.
            lease.hold(server)?;
            return Err(error);
        }
        let replaces = self.purges || self.filled.is_some();
        if replaces {
            lease.hold_by_write(server)?;
        }
        match self.filled.as_ref().map(|filled| filled.older.clone()) {
            Some(older) => self.put_in_place(server, lease, older.as_deref())?,
            None => {
                if self.purges {
                    self.purge(server, lease)?;
                }
                if replaces || server.settings.refresh == Refresh::Commit {
                    index::refresh(&server.client, &self.index)?;
                }
            }
        }
        Ok(replaces)
    }

    fn committed(&mut self, _: &Server) {
        self.has_replaced = false;
    }

    fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    fn discard(&mut self, server: &mut Server) -> Result<bool> {
        if self.filled.is_none() {
            return Ok(false);
        }
        index::delete(&server.client, &self.index)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_document_is_the_same_with_every_digit() {
        let mine = br#"{"a":9007199254740993,"b":[1.5,null],"c":{"x":"y"}}"#;
        assert!(is_same(
            mine,
            r#"{"c":{"x":"y"},"b":[1.5,null],"a":9007199254740993}"#
        ));
        for other in [
            r#"{"a":9007199254740992,"b":[1.5,null],"c":{"x":"y"}}"#,
            r#"{"a":9007199254740993,"b":[1.5,null]}"#,
            "{",
        ] {
            assert!(!is_same(mine, other), "{other}");
        }
    }
}
