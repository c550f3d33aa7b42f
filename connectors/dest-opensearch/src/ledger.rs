//! Checkpoints as documents, one for each stream of a pipeline and its target. Each change is one request that holds only
//! for the version of the document (`_seq_no` and `_primary_term`) that the run has written before.

use rapidbyte_document_store::{Checkpoint, Key};
use rapidbyte_sdk::digest::HmacSha256;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::{Call, Client, Verb};
use crate::config::Settings;
use crate::error;
use crate::index::{self, path_of};
use crate::search::{self, Hit};
use crate::server::Server;

/// Runs that fence at the same moment: all but one of them try again.
const MAX_TRIES: usize = 10;
/// The kind of a document that is a checkpoint, and the purpose of their index.
const CHECKPOINT: &str = "checkpoint";

/// The document of a stream.
#[derive(Serialize, Deserialize)]
struct Stored {
    kind: String,
    pipeline: String,
    stream: String,
    target: String,
    #[serde(flatten)]
    checkpoint: Checkpoint,
}

/// The id of a document of Rapidbyte itself: names may be longer than ids.
pub(crate) fn id_of(parts: &[&str]) -> String {
    let text = serde_json::to_string(parts).unwrap_or_default();
    let digest = HmacSha256::new(b"rapidbyte").digests([text.as_bytes()].into_iter());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checkpoint_id(key: &Key) -> String {
    id_of(&[CHECKPOINT, &key.pipeline, &key.stream, &key.target])
}

/// A version as a checkpoint keeps it.
pub(crate) fn version_text((seq_no, term): (u64, u64)) -> String {
    format!("{seq_no}:{term}")
}

fn version_of(text: &str) -> Option<(u64, u64)> {
    let (seq_no, term) = text.split_once(':')?;
    Some((seq_no.parse().ok()?, term.parse().ok()?))
}

/// The text of a document, and its version. `None` if it is not there.
pub(crate) fn find(
    client: &Client,
    settings: &Settings,
    id: &str,
) -> Result<Option<(String, String)>> {
    let index = &settings.checkpoint_index;
    let found = search::by_id(client, index, &[id])?.into_iter().next();
    let read = |hit: Hit| Ok((hit.source()?.to_owned(), version_text(hit.version()?)));
    found.flatten().map(read).transpose()
}

/// The checkpoint. `None` if no run has fenced.
pub(crate) fn look(client: &Client, settings: &Settings, key: &Key) -> Result<Option<Checkpoint>> {
    let Some((text, version)) = find(client, settings, &checkpoint_id(key))? else {
        return Ok(None);
    };
    let read: Checkpoint = serde_json::from_str(&text).map_err(|what| {
        let index = &settings.checkpoint_index;
        differs(&format!(
            "{index} has a checkpoint that is not Rapidbyte's: {what}"
        ))
    })?;
    Ok(Some(Checkpoint { version, ..read }))
}

fn differs(text: &str) -> Error {
    Error::schema("checkpoint_differs", text)
        .hint("name another index with `checkpoint_index:`")
        .at("config.checkpoint_index")
}

/// The index of checkpoints. Errors: `checkpoint_differs` if somebody else has made it.
pub(crate) fn make_index(server: &mut Server) -> Result<()> {
    let name = server.settings.checkpoint_index.clone();
    let found = match server.index(&name)? {
        Some(found) => found,
        None => {
            let keyword = json!({ "type": "keyword" });
            let mappings = json!({
                "_meta": { "rapidbyte": CHECKPOINT }, "dynamic": false,
                "properties": { "kind": keyword, "pipeline": keyword, "stream": keyword, "target": keyword },
            });
            server.make((&name, mappings), true)?
        }
    };
    match found.is_for(CHECKPOINT) {
        true => Ok(()),
        false => Err(differs(&format!(
            "Rapidbyte did not make the index {name} for checkpoints"
        ))),
    }
}

/// The checkpoints of all streams of a pipeline. Documents that are not checkpoints are passed over.
pub(crate) fn of_pipeline(
    client: &Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Checkpoint>> {
    let index = &settings.checkpoint_index;
    index::refresh(client, index)?;
    let query = json!({ "bool": { "filter": [
        { "term": { "pipeline": pipeline } }, { "term": { "kind": CHECKPOINT } },
    ] } });
    let mut all = Vec::new();
    search::every(client, index, (&query, true), |hits| {
        for hit in hits {
            all.extend(serde_json::from_str::<Checkpoint>(hit.source()?).ok());
        }
        Ok(())
    })?;
    Ok(all)
}

/// Raises the epoch for a run, which fences older runs of the stream. Makes the document and its index if they do not
/// exist. Errors: `fence_contended`.
pub(crate) fn fence(server: &mut Server, key: &Key, run: &Run) -> Result<Checkpoint> {
    make_index(server)?;
    let settings = server.settings.clone();
    for _ in 0..MAX_TRIES {
        let next = match look(&server.client, &settings, key)? {
            Some(found) => Checkpoint {
                run_id: run.id.clone(),
                ..found.raised()?
            },
            None => Checkpoint::new(run)?,
        };
        if let Some(fenced) = store(&server.client, &settings, key, &next)? {
            return Ok(fenced);
        }
    }
    let text = format!("{MAX_TRIES} other runs have fenced at the same moment");
    Err(Error::new(ErrorKind::Transient, "fence_contended", text)
        .hint("let one run of a pipeline end before the next begins"))
}

/// Writes a checkpoint if the document still has its version, or if it is new. `None`: somebody was faster.
pub(crate) fn store(
    client: &Client,
    settings: &Settings,
    key: &Key,
    checkpoint: &Checkpoint,
) -> Result<Option<Checkpoint>> {
    let stored = Stored {
        kind: CHECKPOINT.to_owned(),
        pipeline: key.pipeline.clone(),
        stream: key.stream.clone(),
        target: key.target.clone(),
        checkpoint: checkpoint.clone(),
    };
    let document = serde_json::to_string(&stored).map_err(Error::internal)?;
    let version = (checkpoint_id(key), checkpoint.version.as_str());
    let written = put(client, settings, version, document)?;
    Ok(written.map(|version| Checkpoint {
        version,
        ..stored.checkpoint
    }))
}

/// Writes a document of the index of checkpoints if it still has the version, or makes it if the version is empty. Returns
/// its new version. `None`: somebody was faster.
pub(crate) fn put(
    client: &Client,
    settings: &Settings,
    (id, version): (String, &str),
    document: String,
) -> Result<Option<String>> {
    #[derive(Deserialize)]
    struct Written {
        #[serde(rename = "_id")]
        id: String,
        #[serde(rename = "_seq_no")]
        seq_no: u64,
        #[serde(rename = "_primary_term")]
        term: u64,
    }
    let _phase = phase::enter(Kind::Commit);
    let index = path_of(&settings.checkpoint_index);
    let what = "write a checkpoint";
    let call = match version_of(version) {
        Some((seq_no, term)) => Call::new(Verb::Put, format!("{index}/_doc/{id}"), what)
            .with("if_seq_no", seq_no)
            .with("if_primary_term", term),
        None if version.is_empty() => Call::new(Verb::Put, format!("{index}/_create/{id}"), what),
        None => return Err(Error::internal("a version of another form")),
    };
    let answer = client.ask(&call.text(document).once())?;
    match answer.status {
        409 => Ok(None),
        // Somebody has deleted the index of checkpoints.
        404 => Ok(None),
        _ => {
            let written: Written = answer.read()?;
            match written.id == id {
                true => Ok(Some(version_text((written.seq_no, written.term)))),
                false => Err(error::violation("a result of another document")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        assert_eq!(version_of(&version_text((7, 2))), Some((7, 2)));
        for text in ["", "7", "7:", ":2", "a:b", "-1:2"] {
            assert_eq!(version_of(text), None, "{text}");
        }
    }
}
