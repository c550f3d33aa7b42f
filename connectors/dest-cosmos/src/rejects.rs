//! Rejects as documents, in a container of their own. Their id is like the id of a row. `place` has the order: the time at
//! which the record was first kept and the id that it had then, a point, and its id.

use rapidbyte_cosmos::{Container, Operation, Outcome, Param, PartitionKey, find};
use rapidbyte_document_store::{
    Naming as _, Page, Place, Record, RejectDocument, ReplayKey, Visible, hex,
};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::{self, PARTITION, not_of_row};
use crate::server::Server;

/// Documents that the server sends in one answer.
const PAGE_ITEMS: u32 = 200;

/// The container of rejects, made if it does not exist. Errors: `rejects_differ`.
pub(crate) fn make(server: &mut Server, to: &str) -> Result<Container> {
    let container = server.make(to, &PartitionKey::parse(PARTITION)?, None)?;
    ensure_ours(&container)?;
    Ok(container)
}

/// The rejects of a pipeline are one partition, so that their order holds. Errors: `rejects_differ`.
fn ensure_ours(container: &Container) -> Result<()> {
    match container.partition.to_string() == PARTITION {
        true => Ok(()),
        false => {
            let text = format!(
                "the container {} has the partition key {}, and rejects need {PARTITION}",
                container.name, container.partition
            );
            Err(Error::schema("rejects_differ", text)
                .hint("name another container for rejects")
                .at("rejects.to"))
        }
    }
}

/// A reject as its document has it.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    id: String,
    #[serde(flatten)]
    reject: RejectDocument,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

/// The document of a reject.
pub(crate) fn encode(record: &Record<'_>) -> Result<Vec<u8>> {
    let stored = Stored {
        id: record.id.to_string(),
        reject: RejectDocument::new(record),
        etag: String::new(),
    };
    serde_json::to_vec(&stored).map_err(Error::internal)
}

/// Adds documents of rejects. Makes their container if it does not exist.
pub(crate) fn add(server: &mut Server, to: &ReplayKey, documents: Vec<Vec<u8>>) -> Result<()> {
    let container = make(server, &to.to)?;
    let partition = ledger::partition_of(&to.pipeline)?;
    let mut operations = Vec::with_capacity(documents.len());
    for document in documents {
        let document = String::from_utf8(document).map_err(Error::internal)?;
        operations.push((partition.clone(), Operation::Create { document }));
    }
    for outcome in server.write(&container, &operations)? {
        match outcome {
            // 409: the answer to an earlier attempt was lost, and no other document has its id.
            Outcome::Done | Outcome::Refused { status: 409, .. } => {}
            Outcome::Refused { error, .. } => return Err(not_of_row(error).at("rejects.to")),
        }
    }
    Ok(())
}

/// Deletes rejects that a committed replay has replayed.
pub(crate) fn remove(server: &mut Server, from: &ReplayKey, ids: &[Vec<u8>]) -> Result<()> {
    let Some(container) = server.container(&from.to)? else {
        return Ok(());
    };
    let partition = ledger::partition_of(&from.pipeline)?;
    let operations = ids.iter().map(|id| {
        let operation = Operation::Delete {
            id: hex::encode(id),
            if_match: None,
        };
        (partition.clone(), operation)
    });
    for outcome in server.write(&container, &operations.collect::<Vec<_>>())? {
        match outcome {
            Outcome::Done | Outcome::Refused { status: 404, .. } => {}
            Outcome::Refused { error, .. } => return Err(error),
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
    let partition = ledger::partition_of(&of.pipeline)?;
    let mut same = 0;
    for (place, version) in rejects {
        let id = hex::encode(&place.id);
        if let Some(found) = server.client.find(&of.to, &partition, &id)? {
            let kept = read(found.get(), &of.to)?;
            same += usize::from(kept.version == *version && kept.stream == stream);
        }
    }
    Ok(same)
}

/// The reject that is this document, and its version. Errors: `rejects_differ`.
pub(crate) fn read(document: &str, to: &str) -> Result<KeptReject> {
    let stored: Stored = serde_json::from_str(document).map_err(|_| {
        let text = format!("{to} has a document that is not a reject");
        Error::schema("rejects_differ", text)
            .hint("name another container for rejects")
            .at("rejects.to")
    })?;
    Ok(stored.reject.kept(stored.etag))
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
    let after = after.map_or_else(String::new, |place| place.to_string());
    let Some(container) = server.container(to)? else {
        return Ok(Vec::new());
    };
    ensure_ours(&container)?;
    let key = ReplayKey {
        pipeline: pipeline.to_owned(),
        to: to.to_owned(),
    };
    let visible = Visible::of(server, &key)?;
    let query =
        "SELECT * FROM c WHERE c.pipeline = @pipeline AND c.place > @after ORDER BY c.place";
    let params = [
        Param::new("@pipeline", pipeline),
        Param::new("@after", after.as_str()),
    ];
    let partition = ledger::partition_of(pipeline)?;
    let (mut kept, mut continuation) = (Page::default(), None);
    loop {
        let page = server.client.query(
            to,
            (query, &params),
            Some(&partition),
            PAGE_ITEMS,
            continuation.as_deref(),
        )?;
        for document in &page.documents {
            let id = find(document.get(), &["id".to_owned()]).unwrap_or_default();
            let id: String = serde_json::from_str(id).unwrap_or_default();
            // An id of another form belongs to no attempt of a run.
            let is_visible = hex::decode(&id).is_none_or(|id| visible.has(&id));
            if is_visible && kept.push(read(document.get(), to)?, with_data) {
                return Ok(kept.finish());
            }
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(kept.finish());
        }
    }
}
