//! Replays of rejects as documents: one for each pipeline and container of rejects. The steps of a replay are in
//! `rapidbyte-document-store`.

use rapidbyte_document_store::{Replay, ReplayChange, ReplayKey, Tag, hex};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::ledger::{self, id_of, partition_of};
use crate::server::Server;

/// The kind of the document.
const REPLAYS: &str = "replays";

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    id: String,
    kind: String,
    pipeline: String,
    to: String,
    holder: Option<Tag>,
    /// The container that the holder writes to.
    container: Option<String>,
    /// The ids of the rejects that a committed replay removes.
    removing: Vec<String>,
    /// Older documents do not have it.
    #[serde(default)]
    overtaken: Vec<Overtaken>,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

/// A replay that never commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Overtaken {
    tag: Tag,
    container: String,
}

impl Stored {
    fn new(key: &ReplayKey, replay: &Replay) -> Self {
        let overtaken = replay.overtaken.iter().map(|(tag, container)| Overtaken {
            tag: *tag,
            container: container.clone(),
        });
        Self {
            id: id_of(&[REPLAYS, &key.to]),
            kind: REPLAYS.to_owned(),
            pipeline: key.pipeline.clone(),
            to: key.to.clone(),
            holder: replay.holder,
            container: replay.collection.clone(),
            removing: replay.removing.iter().map(|id| hex::encode(id)).collect(),
            overtaken: overtaken.collect(),
            etag: String::new(),
        }
    }

    fn replay(self) -> Replay {
        let overtaken = self.overtaken.into_iter();
        Replay {
            holder: self.holder,
            collection: self.container,
            removing: self
                .removing
                .iter()
                .filter_map(|id| hex::decode(id))
                .collect(),
            overtaken: overtaken.map(|one| (one.tag, one.container)).collect(),
            version: self.etag,
        }
    }
}

/// The document. `None` if it does not exist.
pub(crate) fn look(
    server: &mut Server,
    settings: &Settings,
    key: &ReplayKey,
) -> Result<Option<Replay>> {
    let container = &settings.checkpoint_container;
    if server.container(container)?.is_none() {
        return Ok(None);
    }
    let partition = partition_of(&key.pipeline)?;
    let id = id_of(&[REPLAYS, &key.to]);
    let found = server.client.find(container, &partition, &id)?;
    let read = found.map(|found| serde_json::from_str::<Stored>(found.get()));
    let read = read.transpose().map_err(Error::internal)?;
    Ok(read.map(Stored::replay))
}

/// Changes the document if it still has the version of `from`, or makes it if that is empty. Returns it. `None`: another
/// replay has changed it.
pub(crate) fn change(
    server: &mut Server,
    settings: &Settings,
    key: &ReplayKey,
    (from, change): (&Replay, &ReplayChange<'_>),
) -> Result<Option<Replay>> {
    if from.version.is_empty() {
        ledger::make_container(server, settings)?;
    }
    let next = from.changed(change);
    let stored = Stored::new(key, &next);
    let document = serde_json::to_string(&stored).map_err(Error::internal)?;
    let version = (stored.id.as_str(), from.version.as_str());
    let client = &mut server.client;
    let written = ledger::put(client, settings, &key.pipeline, version, document)?;
    Ok(written.map(|version| Replay { version, ..next }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_overtaken_replays_is_read_and_goes_on() {
        // As dest-cosmos wrote it before it wrote overtaken replays down.
        let old = r#"{"id":"i","kind":"replays","pipeline":"p","to":"bad","holder":"0102030405060708",
            "container":"t","removing":["0102030405060708000000010000000000ff"],"_etag":"\"7\""}"#;
        let replay = serde_json::from_str::<Stored>(old).unwrap().replay();
        let holder = Tag::from_hex("0102030405060708").unwrap();
        assert_eq!(replay.holder, Some(holder));
        assert_eq!(replay.collection.as_deref(), Some("t"));
        assert_eq!(replay.removing.concat()[16..], [0, 255]);
        assert_eq!(replay.version, "\"7\"");
        let tag = Tag::from_hex("1102030405060708").unwrap();
        let next = replay.changed(&ReplayChange::Take(tag, "u"));
        let key = ReplayKey {
            pipeline: "p".into(),
            to: "bad".into(),
        };
        let stored = Stored::new(&key, &next);
        let read: Stored = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
        assert_eq!(read, stored);
        assert_eq!(read.replay().overtaken, [(holder, "t".to_owned())]);
    }
}
