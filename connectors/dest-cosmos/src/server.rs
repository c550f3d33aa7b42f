//! The account as a load uses it: containers, which are remembered, and deletes of documents by a condition.

use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_cosmos::{Client, Container, Operation, Outcome, Param, PartitionKey, Write};
use rapidbyte_document_store::{
    Checkpoint, IdRange, Key, Opening, Place, Record, Replay, ReplayChange, ReplayKey, Store,
};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::Settings;
use crate::container::ContainerWriter;
use crate::{ledger, rejects, replay};

/// Documents of a page of those that are deleted.
const PAGE_ITEMS: u32 = 1000;

/// The account, and the containers that it was asked for.
pub struct Server {
    pub(crate) client: Client,
    pub(crate) settings: Rc<Settings>,
    known: BTreeMap<String, Container>,
}

/// A document that is deleted if it is still the same.
#[derive(Deserialize)]
struct Doomed {
    id: String,
    partition: Option<Box<RawValue>>,
    etag: String,
}

impl Server {
    pub(crate) fn new(settings: &Rc<Settings>) -> Self {
        Self {
            client: settings.client(),
            settings: settings.clone(),
            known: BTreeMap::new(),
        }
    }

    /// The container, if it exists.
    pub(crate) fn container(&mut self, name: &str) -> Result<Option<Container>> {
        if let Some(known) = self.known.get(name) {
            return Ok(Some(known.clone()));
        }
        let _phase = phase::enter(Kind::Query);
        let found = self.client.container(name)?;
        if let Some(found) = &found {
            self.known.insert(name.to_owned(), found.clone());
        }
        Ok(found)
    }

    /// The container, made if it does not exist.
    pub(crate) fn make(
        &mut self,
        name: &str,
        partition: &PartitionKey,
        throughput: Option<u32>,
    ) -> Result<Container> {
        if let Some(found) = self.container(name)? {
            return Ok(found);
        }
        {
            let _phase = phase::enter(Kind::Query);
            self.client.create_container(name, partition, throughput)?;
        }
        self.container(name)?.ok_or_else(|| {
            let text = format!("the container {name} is gone: somebody deleted it");
            Error::new(ErrorKind::Transient, "container_missing", text).hint("run again")
        })
    }

    /// Writes documents: their partitions and what to do.
    pub(crate) fn write(
        &mut self,
        container: &Container,
        operations: &[(String, Operation)],
    ) -> Result<Vec<Outcome>> {
        let writes = operations.iter().map(|(partition, operation)| Write {
            partition,
            operation,
        });
        self.client.write(container, &writes.collect::<Vec<_>>())
    }

    /// Whether a container is empty.
    pub(crate) fn is_empty(&mut self, name: &str) -> Result<bool> {
        let _phase = phase::enter(Kind::Query);
        let mut continuation: Option<String> = None;
        loop {
            let query = ("SELECT c.id FROM c", &[][..]);
            let page = self
                .client
                .query(name, query, None, 1, continuation.as_deref())?;
            if !page.documents.is_empty() {
                return Ok(false);
            }
            // A page may be empty before the last one.
            continuation = page.continuation;
            if continuation.is_none() {
                return Ok(true);
            }
        }
    }

    /// Deletes the documents that a condition finds, unless somebody writes them meanwhile. Their number.
    pub(crate) fn delete_where(
        &mut self,
        name: &str,
        condition: &str,
        params: &[Param],
    ) -> Result<u64> {
        let Some(container) = self.container(name)? else {
            return Ok(0);
        };
        let _phase = phase::enter(Kind::Query);
        let query = format!(
            "SELECT c.id, {} AS partition, c._etag AS etag FROM c WHERE {condition}",
            container.partition.expression()
        );
        let (mut deleted, mut continuation) = (0, None);
        loop {
            let page = self.client.query(
                name,
                (&query, params),
                None,
                PAGE_ITEMS,
                continuation.as_deref(),
            )?;
            let mut deletes: Vec<(String, Operation)> = Vec::new();
            for document in &page.documents {
                let doomed: Doomed =
                    serde_json::from_str(document.get()).map_err(Error::internal)?;
                let value = doomed.partition.as_ref().map(|value| value.get());
                let partition = container.partition.of_value(value)?;
                let operation = Operation::Delete {
                    id: doomed.id,
                    if_match: Some(doomed.etag),
                };
                deletes.push((partition, operation));
            }
            for outcome in self.write(&container, &deletes)? {
                match outcome {
                    Outcome::Done => deleted += 1,
                    // Somebody has deleted or written it meanwhile.
                    Outcome::Refused {
                        status: 404 | 412, ..
                    } => {}
                    Outcome::Refused { error, .. } => return Err(error),
                }
            }
            continuation = page.continuation;
            if continuation.is_none() {
                return Ok(deleted);
            }
        }
    }
}

impl Store for Server {
    const NAME: &'static str = "dest-cosmos";
    const REPLACES_COLLECTIONS: bool = false;
    const MAX_REPLAYED: usize = 40_000;
    type Writer = ContainerWriter;

    fn was_refused(error: &Error) -> bool {
        !matches!(error.kind, ErrorKind::Connection | ErrorKind::Transient)
    }

    fn fence(&mut self, key: &Key, run: &Run) -> Result<Checkpoint> {
        let settings = self.settings.clone();
        ledger::fence(self, &settings, key, run)
    }

    fn checkpoint(&mut self, key: &Key) -> Result<Option<Checkpoint>> {
        ledger::look(&mut self.client, &self.settings, key)
    }

    fn checkpoints(&mut self, pipeline: &str) -> Result<Vec<Checkpoint>> {
        let settings = self.settings.clone();
        match self.container(&settings.checkpoint_container)? {
            Some(_) => ledger::of_pipeline(&mut self.client, &settings, pipeline),
            None => Ok(Vec::new()),
        }
    }

    fn swap(
        &mut self,
        key: &Key,
        from: &Checkpoint,
        to: &Checkpoint,
    ) -> Result<Option<Checkpoint>> {
        // The version says which checkpoint `from` is.
        debug_assert_eq!(from.version, to.version);
        ledger::store(&mut self.client, &self.settings, key, to)
    }

    fn delete_ranges(&mut self, container: &str, ranges: &[IdRange]) -> Result<u64> {
        let mut deleted = 0;
        for (begin, end) in ranges {
            let (begin, end) = (begin.to_string(), end.to_string());
            let condition = "c.id >= @begin AND c.id < @end";
            let params = [
                Param::new("@begin", begin.as_str()),
                Param::new("@end", end.as_str()),
            ];
            deleted += self.delete_where(container, condition, &params)?;
        }
        Ok(deleted)
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<ContainerWriter> {
        ContainerWriter::open(self, opening)
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
        let settings = self.settings.clone();
        replay::look(self, &settings, key)
    }

    fn change_replay(
        &mut self,
        key: &ReplayKey,
        from: &Replay,
        change: &ReplayChange<'_>,
    ) -> Result<Option<Replay>> {
        let settings = self.settings.clone();
        replay::change(self, &settings, key, (from, change))
    }
}
