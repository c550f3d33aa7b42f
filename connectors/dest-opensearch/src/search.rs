//! Searches that read every document that matches, documents by their ids, and deletes of documents by a query.

use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::bulk::{self, Item, Limits, Op, Outcome};
use crate::client::{Call, Client, Verb};
use crate::error::{self, Said};
use crate::index::path_of;

/// Documents of a page of those that are deleted.
const PAGE_ITEMS: usize = 5000;
/// How long the server keeps the rest of a search between two pages.
const SCROLL: &str = "5m";
/// A longer id of a search is not a part of a URL: the server forgets the search by itself.
const MAX_SCROLL_ID: usize = 3000;
/// Documents that are read by their ids in one request.
const IDS_ITEMS: usize = 500;

/// A document.
#[derive(Debug, Deserialize)]
pub(crate) struct Hit {
    #[serde(rename = "_id")]
    pub id: String,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
    #[serde(rename = "_source")]
    source: Option<Box<RawValue>>,
    /// Only of a document that was asked for by its id.
    #[serde(default)]
    found: bool,
    #[serde(default)]
    error: Option<Said>,
}

impl Hit {
    /// Another one after each change of the document. Errors: `protocol_violation`.
    pub fn version(&self) -> Result<(u64, u64)> {
        self.seq_no
            .zip(self.primary_term)
            .ok_or_else(|| error::violation("a document without a version"))
    }

    /// Its text. Errors: `protocol_violation`.
    pub fn source(&self) -> Result<&str> {
        let source = self.source.as_ref().map(|source| source.get());
        source.ok_or_else(|| error::violation("a document without its _source"))
    }
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "_scroll_id")]
    scroll_id: Option<String>,
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    hits: Hits,
}

#[derive(Deserialize)]
struct Shards {
    failed: u64,
}

#[derive(Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

impl Found {
    /// Errors: `opensearch_unavailable` if the server has not searched everything.
    fn ensure_whole(self, index: &str) -> Result<Self> {
        if !self.timed_out && self.shards.failed == 0 {
            return Ok(self);
        }
        let text = format!("search {index}: the server did not search every shard");
        Err(
            Error::new(ErrorKind::Transient, "opensearch_unavailable", text)
                .hint("check the health of the cluster, and run again later"),
        )
    }
}

/// One page of a search. `body` has the query. No hits if the index is not there.
pub(crate) fn page(client: &Client, index: &str, body: &Value) -> Result<Vec<Hit>> {
    let _phase = phase::enter(Kind::Query);
    let path = format!("{}/_search", path_of(index));
    let call = Call::new(Verb::Post, path, format!("search {index}"));
    let call = call.with("allow_partial_search_results", false).json(body);
    let answer = client.ask(&call)?;
    if answer.status == 404 {
        return Ok(Vec::new());
    }
    let found: Found = answer.read()?;
    Ok(found.ensure_whole(index)?.hits.hits)
}

/// Gives every document that a query finds to `each`, in pages and as they were when the search began. The index must have
/// been refreshed. Nothing if the index is not there.
pub(crate) fn every(
    client: &Client,
    index: &str,
    (query, with_source): (&Value, bool),
    mut each: impl FnMut(Vec<Hit>) -> Result<()>,
) -> Result<()> {
    let body = json!({
        "query": query, "size": PAGE_ITEMS, "sort": ["_doc"], "_source": with_source,
        "seq_no_primary_term": true,
    });
    let path = format!("{}/_search", path_of(index));
    let call = Call::new(Verb::Post, path, format!("search {index}"));
    let call = call.with("scroll", SCROLL);
    let mut call = call.with("allow_partial_search_results", false).json(&body);
    loop {
        let found: Found = {
            let _phase = phase::enter(Kind::Query);
            let answer = client.ask(&call)?;
            if answer.status == 404 && answer.said().ty == "index_not_found_exception" {
                return Ok(());
            }
            answer.read()?
        };
        let found = found.ensure_whole(index)?;
        let id = found.scroll_id;
        let id = id.ok_or_else(|| error::violation("a page without _scroll_id"))?;
        if found.hits.hits.is_empty() {
            forget(client, &id);
            return Ok(());
        }
        each(found.hits.hits)?;
        let next = json!({ "scroll": SCROLL, "scroll_id": id });
        // A page that was sent comes only once.
        call = Call::new(Verb::Post, "_search/scroll", format!("search {index}"))
            .json(&next)
            .once();
    }
}

/// Frees the rest of a search. It ends by itself otherwise.
fn forget(client: &Client, scroll_id: &str) {
    if scroll_id.len() <= MAX_SCROLL_ID {
        let path = format!("_search/scroll/{}", path_of(scroll_id));
        // Whether it fails does not matter.
        let _ = client.ask(&Call::new(Verb::Delete, path, "end a search").once());
    }
}

/// Deletes the documents that a query finds, unless somebody writes them meanwhile. Their number. The index must have been
/// refreshed.
pub(crate) fn delete_where(
    client: &Client,
    index: &str,
    query: &Value,
    limits: Limits,
) -> Result<u64> {
    let mut deleted = 0;
    every(client, index, (query, false), |hits| {
        let items = hits.into_iter().map(|hit| {
            let version = hit.version()?;
            let mut item = Item::new(Op::Delete, hit.id, Vec::new());
            item.version = Some(version);
            Ok(item)
        });
        let items = items.collect::<Result<Vec<Item>>>()?;
        for outcome in bulk::send(client, index, &items, limits)? {
            match outcome {
                Outcome::Done => deleted += 1,
                // Somebody has deleted or written it meanwhile.
                Outcome::Refused {
                    status: 404 | 409, ..
                } => {}
                Outcome::Refused { error, .. } => return Err(error::not_of_row(error)),
            }
        }
        log::debug(format!("{deleted} documents of {index} are deleted"));
        Ok(())
    })?;
    Ok(deleted)
}

/// The documents with these ids, as they are now, also if no search finds them yet. `None` for one that is not there.
pub(crate) fn by_id(client: &Client, index: &str, ids: &[&str]) -> Result<Vec<Option<Hit>>> {
    #[derive(Deserialize)]
    struct Read {
        docs: Vec<Hit>,
    }
    let _phase = phase::enter(Kind::Query);
    let mut all = Vec::with_capacity(ids.len());
    for ids in ids.chunks(IDS_ITEMS) {
        let path = format!("{}/_mget", path_of(index));
        let call = Call::new(Verb::Post, path, format!("read documents of {index}"));
        let answer = client.ask(&call.json(&json!({ "ids": ids })))?;
        let read: Read = answer.read()?;
        let are_ours = read.docs.len() == ids.len()
            && read.docs.iter().zip(ids).all(|(hit, id)| hit.id == *id);
        if !are_ours {
            return Err(error::violation(
                "other documents than those that were asked for",
            ));
        }
        for hit in read.docs {
            match &hit.error {
                Some(said) if said.ty != "index_not_found_exception" => {
                    return Err(error::of(
                        503,
                        said,
                        None,
                        &format!("read documents of {index}"),
                    ));
                }
                _ => all.push(hit.found.then_some(hit)),
            }
        }
    }
    Ok(all)
}
