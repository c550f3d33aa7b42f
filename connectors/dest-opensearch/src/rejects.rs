//! Rejects as documents, in an index of their own. Their `_id` is like the `_id` of a row. `place` has the order: the time
//! at which the record was first kept and the id that it had then, a point, and its id.

use rapidbyte_document_store::{
    Naming as _, Page, Place, Record, RejectDocument, ReplayKey, Visible, hex,
};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bulk::{self, Item, Op, Outcome};
use crate::error::not_of_row;
use crate::index::{self, Found};
use crate::layout::MARK;
use crate::ledger::version_text;
use crate::mapping;
use crate::search::{self, Hit};
use crate::server::Server;

/// Documents that the server sends in one answer.
const PAGE_ITEMS: usize = 200;
/// The purpose of the index.
const REJECTS: &str = "rejects";

/// The index of rejects, made if it does not exist. Errors: `rejects_differ`.
pub(crate) fn make(server: &mut Server, to: &str) -> Result<()> {
    let found = match server.index(to)? {
        Some(found) => found,
        None => {
            let keyword = json!({ "type": "keyword" });
            let mappings = json!({
                "_meta": { "rapidbyte": REJECTS }, "dynamic": false,
                "properties": {
                    MARK: mapping::mark(), "place": keyword, "rejected_at": keyword, "pipeline": keyword,
                    "run_id": keyword, "stream": keyword, "target": keyword, "origin": keyword, "code": keyword,
                    "column": keyword, "message": { "type": "text" },
                },
            });
            server.make((to, mappings), false)?
        }
    };
    ensure_ours(&found)
}

/// Errors: `rejects_differ`.
fn ensure_ours(found: &Found) -> Result<()> {
    match found.is_for(REJECTS) {
        true => Ok(()),
        false => Err(differs(&format!(
            "Rapidbyte did not make the index {} for rejects",
            found.name
        ))),
    }
}

fn differs(text: &str) -> Error {
    Error::schema("rejects_differ", text)
        .hint("name another index for rejects")
        .at("rejects.to")
}

/// A reject as its document has it.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Its id, for searches.
    #[serde(rename = "_rapidbyte")]
    mark: String,
    #[serde(flatten)]
    reject: RejectDocument,
}

/// The document of a reject.
pub(crate) fn encode(record: &Record<'_>) -> Result<Vec<u8>> {
    let stored = Stored {
        mark: record.id.to_string(),
        reject: RejectDocument::new(record),
    };
    serde_json::to_vec(&stored).map_err(Error::internal)
}

/// Adds documents of rejects. Makes their index if it does not exist.
pub(crate) fn add(server: &mut Server, to: &ReplayKey, documents: Vec<Vec<u8>>) -> Result<()> {
    #[derive(Deserialize)]
    struct Marked {
        #[serde(rename = "_rapidbyte")]
        mark: String,
    }
    make(server, &to.to)?;
    let mut items = Vec::with_capacity(documents.len());
    for document in documents {
        let marked: Marked = serde_json::from_slice(&document).map_err(Error::internal)?;
        // Nobody else has the id: a second attempt writes the same document.
        items.push(Item::new(Op::Index, marked.mark, document));
    }
    for outcome in bulk::send(&server.client, &to.to, &items, server.limits())? {
        if let Outcome::Refused { error, .. } = outcome {
            return Err(not_of_row(error).at("rejects.to"));
        }
    }
    Ok(())
}

/// Deletes rejects that a committed replay has replayed.
pub(crate) fn remove(server: &Server, from: &ReplayKey, ids: &[Vec<u8>]) -> Result<()> {
    let items: Vec<Item> = ids
        .iter()
        .map(|id| Item::new(Op::Delete, hex::encode(id), Vec::new()))
        .collect();
    for outcome in bulk::send(&server.client, &from.to, &items, server.limits())? {
        match outcome {
            Outcome::Done | Outcome::Refused { status: 404, .. } => {}
            Outcome::Refused { error, .. } => return Err(not_of_row(error)),
        }
    }
    Ok(())
}

/// How many of these rejects of a stream still have the version that belongs to them.
pub(crate) fn count_unchanged(
    server: &mut Server,
    of: &ReplayKey,
    stream: &str,
    rejects: &[(&Place, &str)],
) -> Result<usize> {
    make(server, &of.to)?;
    let ids: Vec<String> = rejects
        .iter()
        .map(|(place, _)| hex::encode(&place.id))
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let found = search::by_id(&server.client, &of.to, &ids)?;
    let mut same = 0;
    for (hit, (_, version)) in found.into_iter().zip(rejects) {
        if let Some(hit) = hit {
            let kept = read(&hit, &of.to)?;
            same += usize::from(kept.version == *version && kept.stream == stream);
        }
    }
    Ok(same)
}

/// The reject that is this document, and its version. Errors: `rejects_differ`.
fn read(hit: &Hit, to: &str) -> Result<KeptReject> {
    let stored: Stored = serde_json::from_str(hit.source()?)
        .map_err(|_| differs(&format!("{to} has a document that is not a reject")))?;
    Ok(stored.reject.kept(version_text(hit.version()?)))
}

/// A page of the rejects of a pipeline behind the reject `after`, without records unless `with_data`.
pub(crate) fn page(
    server: &mut Server,
    (to, pipeline): (&str, &str),
    after: Option<&str>,
    with_data: bool,
) -> Result<Vec<KeptReject>> {
    server.settings.check_rejects(to)?;
    let after = after.map(Place::parse).transpose()?;
    let mut after = after.map_or_else(String::new, |place| place.to_string());
    let Some(found) = server.index(to)? else {
        return Ok(Vec::new());
    };
    ensure_ours(&found)?;
    let key = ReplayKey {
        pipeline: pipeline.to_owned(),
        to: to.to_owned(),
    };
    let visible = Visible::of(server, &key)?;
    index::refresh(&server.client, to)?;
    let mut kept = Page::default();
    loop {
        let query = json!({ "bool": { "filter": [
            { "term": { "pipeline": pipeline } }, { "range": { "place": { "gt": after } } },
        ] } });
        let body = json!({
            "query": query, "sort": ["place"], "size": PAGE_ITEMS, "seq_no_primary_term": true,
            "track_total_hits": false,
        });
        let hits = search::page(&server.client, to, &body)?;
        let is_last = hits.len() < PAGE_ITEMS;
        for hit in &hits {
            let reject = read(hit, to)?;
            after.clone_from(&reject.id);
            // An id of another form belongs to no attempt of a run.
            let is_visible = hex::decode(&hit.id).is_none_or(|id| visible.has(&id));
            if is_visible && kept.push(reject, with_data) {
                return Ok(kept.finish());
            }
        }
        if is_last {
            return Ok(kept.finish());
        }
    }
}
