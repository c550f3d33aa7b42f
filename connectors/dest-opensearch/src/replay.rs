//! Replays of rejects as documents: one for each pipeline and index of rejects. The steps of a replay are in
//! `rapidbyte-document-store`.

use rapidbyte_document_store::{Replay, ReplayChange, ReplayKey, Tag, hex};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger;
use crate::server::Server;

/// The kind of the document.
const REPLAYS: &str = "replays";

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    kind: String,
    pipeline: String,
    to: String,
    holder: Option<Tag>,
    /// The index that the holder writes to.
    index: Option<String>,
    /// The ids of the rejects that a committed replay removes.
    removing: Vec<String>,
    overtaken: Vec<Overtaken>,
}

/// A replay that never commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Overtaken {
    tag: Tag,
    index: String,
}

impl Stored {
    fn new(key: &ReplayKey, replay: &Replay) -> Self {
        let overtaken = replay.overtaken.iter().map(|(tag, index)| Overtaken {
            tag: *tag,
            index: index.clone(),
        });
        Self {
            kind: REPLAYS.to_owned(),
            pipeline: key.pipeline.clone(),
            to: key.to.clone(),
            holder: replay.holder,
            index: replay.collection.clone(),
            removing: replay.removing.iter().map(|id| hex::encode(id)).collect(),
            overtaken: overtaken.collect(),
        }
    }

    fn replay(self, version: String) -> Replay {
        let overtaken = self.overtaken.into_iter();
        Replay {
            holder: self.holder,
            collection: self.index,
            removing: self
                .removing
                .iter()
                .filter_map(|id| hex::decode(id))
                .collect(),
            overtaken: overtaken.map(|one| (one.tag, one.index)).collect(),
            version,
        }
    }
}

fn id_of(key: &ReplayKey) -> String {
    ledger::id_of(&[REPLAYS, &key.pipeline, &key.to])
}

/// The document. `None` if it does not exist.
pub(crate) fn look(server: &Server, key: &ReplayKey) -> Result<Option<Replay>> {
    let Some((text, version)) = ledger::find(&server.client, &server.settings, &id_of(key))? else {
        return Ok(None);
    };
    let stored: Stored = serde_json::from_str(&text).map_err(Error::internal)?;
    Ok(Some(stored.replay(version)))
}

/// Changes the document if it still has the version of `from`, or makes it if that is empty. Returns it. `None`: another
/// replay has changed it.
pub(crate) fn change(
    server: &mut Server,
    key: &ReplayKey,
    from: &Replay,
    change: &ReplayChange<'_>,
) -> Result<Option<Replay>> {
    if from.version.is_empty() {
        ledger::make_index(server)?;
    }
    let next = from.changed(change);
    let document = serde_json::to_string(&Stored::new(key, &next)).map_err(Error::internal)?;
    let version = (id_of(key), from.version.as_str());
    let written = ledger::put(&server.client, &server.settings, version, document)?;
    Ok(written.map(|version| Replay { version, ..next }))
}
