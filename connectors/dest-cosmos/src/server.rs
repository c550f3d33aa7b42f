//! What a load asks the account: containers, which are remembered, and documents that are deleted in ranges.

use std::collections::BTreeMap;

use rapidbyte_cosmos::{Call, Client, Container, Operation, Outcome, Param, PartitionKey};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::Settings;

/// Documents of a page of those that are deleted.
const PAGE_ITEMS: u32 = 1000;

/// The account, and the containers that it was asked for.
pub(crate) struct Server {
    pub client: Client,
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
    pub fn new(settings: &Settings) -> Self {
        Self {
            client: settings.client(),
            known: BTreeMap::new(),
        }
    }

    /// The container, if it exists.
    pub fn container(&mut self, name: &str) -> Result<Option<Container>> {
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
    pub fn make(
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

    /// Whether a container has no document.
    pub fn is_empty(&mut self, name: &str) -> Result<bool> {
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

    /// Deletes the documents with an id in one of these ranges, the second end of which is outside.
    pub fn delete_ranges(&mut self, name: &str, ranges: &[(String, String)]) -> Result<()> {
        let mut deleted = 0;
        for (begin, end) in ranges {
            let condition = "c.id >= @begin AND c.id < @end";
            let params = [
                Param::new("@begin", begin.as_str()),
                Param::new("@end", end.as_str()),
            ];
            deleted += self.delete_where(name, condition, &params)?;
        }
        if deleted > 0 {
            log::info(format!(
                "{deleted} documents of an attempt that was not committed were deleted"
            ));
        }
        Ok(())
    }

    /// Deletes the documents that a condition finds, unless somebody writes them meanwhile. Their number.
    pub fn delete_where(&mut self, name: &str, condition: &str, params: &[Param]) -> Result<u64> {
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
            let mut calls: Vec<Call> = Vec::new();
            for document in &page.documents {
                let doomed: Doomed =
                    serde_json::from_str(document.get()).map_err(Error::internal)?;
                let value = doomed.partition.as_ref().map(|value| value.get());
                let partition = container.partition.of_value(value)?;
                let operation = Operation::Delete {
                    id: doomed.id,
                    if_match: Some(doomed.etag),
                };
                calls.push(self.client.single(name, &partition, &operation));
            }
            for answer in self.client.ask_all(&calls)? {
                match answer?.outcome() {
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
