//! The cluster as a load uses it: indices, which are remembered, and the protocol of `rapidbyte-document-store`.

use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_document_store::{
    Checkpoint, IdRange, Key, Lease, Opening, Place, Record, Replay, ReplayChange, ReplayKey, Store,
};
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};

use crate::bulk::Limits;
use crate::client::Client;
use crate::config::Settings;
use crate::index::{self, Found};
use crate::writer::IndexWriter;
use crate::{ledger, rejects, replay, search};

/// The cluster, and the indices of Rapidbyte itself that it was asked for.
pub struct Server {
    pub(crate) client: Client,
    pub(crate) settings: Rc<Settings>,
    known: BTreeMap<String, Found>,
}

impl Server {
    pub(crate) fn new(settings: &Rc<Settings>) -> Self {
        Self {
            client: settings.client(),
            settings: settings.clone(),
            known: BTreeMap::new(),
        }
    }

    /// The same, which gives up after seconds if the cluster is busy.
    pub(crate) fn impatient(self) -> Self {
        Self {
            client: self.client.impatient(),
            ..self
        }
    }

    /// An index of Rapidbyte itself, if it exists.
    pub(crate) fn index(&mut self, name: &str) -> Result<Option<Found>> {
        if let Some(known) = self.known.get(name) {
            return Ok(Some(known.clone()));
        }
        let found = index::look(&self.client, name)?;
        if let Some(found) = &found {
            self.known.insert(name.to_owned(), found.clone());
        }
        Ok(found)
    }

    /// Makes an index of Rapidbyte itself.
    pub(crate) fn make(&mut self, index: (&str, Value), is_hidden: bool) -> Result<Found> {
        let name = index.0.to_owned();
        let made = index::create(&self.client, &self.settings, index, is_hidden)?;
        self.known.insert(name, made.clone());
        Ok(made)
    }

    /// Limits of a bulk request.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            rows: self.settings.bulk_rows,
            bytes: self.settings.bulk_bytes,
        }
    }
}

impl Store for Server {
    const NAME: &'static str = "dest-opensearch";
    const REPLACES_COLLECTIONS: bool = true;
    const MAX_REPLAYED: usize = 40_000;
    type Writer = IndexWriter;

    fn was_refused(error: &Error) -> bool {
        !matches!(error.kind, ErrorKind::Connection | ErrorKind::Transient)
    }

    fn fence(&mut self, key: &Key, run: &Run) -> Result<Checkpoint> {
        ledger::fence(self, key, run)
    }

    fn checkpoint(&mut self, key: &Key) -> Result<Option<Checkpoint>> {
        ledger::look(&self.client, &self.settings, key)
    }

    fn checkpoints(&mut self, pipeline: &str) -> Result<Vec<Checkpoint>> {
        ledger::of_pipeline(&self.client, &self.settings, pipeline)
    }

    fn swap(
        &mut self,
        key: &Key,
        from: &Checkpoint,
        to: &Checkpoint,
    ) -> Result<Option<Checkpoint>> {
        // The version says which checkpoint `from` is.
        debug_assert_eq!(from.version, to.version);
        ledger::store(&self.client, &self.settings, key, to)
    }

    fn delete_ranges(&mut self, collection: &str, ranges: &[IdRange]) -> Result<u64> {
        let Some(found) = index::look(&self.client, collection)? else {
            return Ok(0);
        };
        index::refresh(&self.client, &found.name)?;
        let ranges: Vec<Value> = ranges.iter().map(index::range_of).collect();
        let query = json!({ "bool": { "should": ranges, "minimum_should_match": 1 } });
        let deleted = search::delete_where(&self.client, &found.name, &query, self.limits())?;
        if deleted > 0 {
            // No search shall find them.
            index::refresh(&self.client, &found.name)?;
        }
        Ok(deleted)
    }

    fn clean(&mut self, collection: &str, lease: &Lease) -> Result<()> {
        index::delete_filled(&self.client, collection, lease)
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<IndexWriter> {
        IndexWriter::open(self, opening)
    }

    fn encode_reject(record: &Record<'_>) -> Result<Vec<u8>> {
        rejects::encode(record)
    }

    fn add_rejects(&mut self, to: &ReplayKey, documents: Vec<Vec<u8>>) -> Result<()> {
        rejects::add(self, to, documents)
    }

    fn delete_rejects(&mut self, from: &ReplayKey, ids: &[Vec<u8>]) -> Result<()> {
        rejects::remove(self, from, ids)
    }

    fn count_unchanged(
        &mut self,
        of: &ReplayKey,
        stream: &str,
        rejects: &[(&Place, &str)],
    ) -> Result<usize> {
        rejects::count_unchanged(self, of, stream, rejects)
    }

    fn replay(&mut self, key: &ReplayKey) -> Result<Option<Replay>> {
        replay::look(self, key)
    }

    fn change_replay(
        &mut self,
        key: &ReplayKey,
        from: &Replay,
        change: &ReplayChange<'_>,
    ) -> Result<Option<Replay>> {
        replay::change(self, key, from, change)
    }
}
