//! Replays of rejects: a load that removes the rejects that it replays.
//!
//! One document for each pipeline and container of rejects says which replay may commit. A replay that begins takes it
//! over, and deletes the rows of a replay that died. The commit is one replacement of this document, which names the
//! rejects to remove; removing them afterwards can be repeated by anybody.

use std::collections::BTreeMap;

use rapidbyte_cosmos::{Client, Operation, Outcome};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::ids;
use crate::ledger::{self, id_of, is_unknown, partition_of};
use crate::rejects::{self, Visible, parse_place};
use crate::server::Server;

/// Replays that begin at the same moment: one of them tries again.
const MAX_TRIES: usize = 10;
/// Their ids fit in one document.
const MAX_REJECTS: usize = 40_000;
const REPLAYS: &str = "replays";

/// The error for a reject that is not as it was read.
pub(crate) fn missing(why: &str) -> Error {
    let text =
        format!("{why} replayed, changed or deleted before, and this replay changed nothing");
    Error::data("reject_missing", text).hint(
        "list the rejects again with `rapidbyte rejects show PIPELINE`, and replay those that are still there",
    )
}

/// A reject that is replayed.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The part of its place that a record keeps which fails again.
    pub first: String,
    id: String,
}

/// The right of a load to replay rejects.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    key: Key,
    /// As this replay has left the document.
    held: Held,
    pub tag: String,
    pub places: Vec<Place>,
    /// A commit was sent, and nobody knows whether it happened: then nothing of it may be undone.
    pub is_unsettled: bool,
}

#[derive(Debug, Clone)]
struct Key {
    pipeline: String,
    to: String,
}

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    id: String,
    kind: String,
    pipeline: String,
    to: String,
    holder: Option<String>,
    /// The container that the holder writes to.
    container: Option<String>,
    /// The rejects that a committed replay removes.
    removing: Vec<String>,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

impl Key {
    fn look(&self, client: &mut Client, settings: &Settings) -> Result<Option<Held>> {
        let partition = partition_of(&self.pipeline)?;
        let id = id_of(&[REPLAYS, &self.to]);
        let found = client.find(&settings.checkpoint_container, &partition, &id)?;
        let read = found.map(|found| serde_json::from_str(found.get()));
        read.transpose().map_err(Error::internal)
    }

    /// A document that nobody holds.
    fn empty(&self) -> Held {
        Held {
            id: id_of(&[REPLAYS, &self.to]),
            kind: REPLAYS.to_owned(),
            pipeline: self.pipeline.clone(),
            to: self.to.clone(),
            ..Held::default()
        }
    }
}

impl Held {
    /// Writes the document if it still has the version that was read, or if it is new. False: somebody was faster.
    fn store(&mut self, client: &mut Client, settings: &Settings) -> Result<bool> {
        let container = &settings.checkpoint_container;
        let partition = partition_of(&self.pipeline)?;
        let document = serde_json::to_string(self).map_err(Error::internal)?;
        let call = match self.etag.is_empty() {
            true => client
                .single(container, &partition, &Operation::Create { document })
                .once(),
            false => client.replace(container, &partition, (&self.id, &self.etag), &document),
        };
        let answer = client.ask(call)?;
        match answer.outcome() {
            Outcome::Done => {
                self.etag = answer.etag.unwrap_or_default();
                Ok(true)
            }
            Outcome::Refused {
                status: 404 | 409 | 412,
                ..
            } => Ok(false),
            Outcome::Refused { mut error, .. } => {
                if matches!(error.kind, ErrorKind::Data) {
                    error.kind = ErrorKind::Config;
                }
                Err(error)
            }
        }
    }
}

/// Which rejects of a pipeline in a container are committed.
pub(crate) fn visible(
    server: &mut Server,
    settings: &Settings,
    pipeline: &str,
    to: &str,
) -> Result<Visible> {
    let key = Key {
        pipeline: pipeline.to_owned(),
        to: to.to_owned(),
    };
    if server.container(&settings.checkpoint_container)?.is_none() {
        return Ok(Visible::new(BTreeMap::new(), None, Vec::new()));
    }
    let client = &mut server.client;
    let replay = key.look(client, settings)?.unwrap_or_default();
    let checkpoints: BTreeMap<_, _> = ledger::of_pipeline(client, settings, pipeline)?
        .into_iter()
        .map(|found| (found.tag, found.reject_epochs))
        .collect();
    Ok(Visible::new(checkpoints, replay.holder, replay.removing))
}

impl Claim {
    /// Takes the right to replay these rejects. `None` for a load that replays nothing. Errors: `reject_missing`,
    /// `replay_too_large`.
    pub fn take(
        server: &mut Server,
        settings: &Settings,
        target: &Target,
        pipeline: &str,
        container: &str,
    ) -> Result<Option<Self>> {
        let Some(rejects) = target
            .rejects
            .as_ref()
            .filter(|one| !one.replayed.is_empty())
        else {
            return Ok(None);
        };
        if rejects.replayed.len() > MAX_REJECTS {
            let text = format!(
                "{} rejects, and a replay into Cosmos DB has {MAX_REJECTS} at most",
                rejects.replayed.len()
            );
            return Err(
                Error::config("replay_too_large", text).hint("replay fewer rejects at a time")
            );
        }
        let places = rejects.replayed.iter().map(|(place, _)| {
            let (first, id) = parse_place(place)?;
            Ok(Place {
                first: first.to_owned(),
                id: id.to_owned(),
            })
        });
        let places = places.collect::<Result<Vec<_>>>()?;
        ledger::make_container(server, settings)?;
        let key = Key {
            pipeline: pipeline.to_owned(),
            to: rejects.to.clone(),
        };
        let tag = ids::tag()?;
        let (older, held) = hold(&key, &mut server.client, settings, &tag, container)?;
        let claim = Self {
            key,
            held,
            tag,
            places,
            is_unsettled: false,
        };
        // A replay that was committed, and died before it had removed its rejects.
        claim.remove(server, &older.removing)?;
        if let (Some(tag), Some(of)) = (&older.holder, &older.container) {
            let range = [(ids::id(tag, 0, 0)?, ids::id(tag, 1, 0)?)];
            server.delete_ranges(of, &range)?;
            server.delete_ranges(&rejects.to, &range)?;
        }
        failpoint("dest-cosmos.replay_claimed")?;
        claim.ensure_unchanged(server, target)?;
        Ok(Some(claim))
    }

    /// Errors: `reject_missing`.
    fn ensure_unchanged(&self, server: &mut Server, target: &Target) -> Result<()> {
        let replayed = target.rejects.iter().flat_map(|rejects| &rejects.replayed);
        rejects::make(server, &self.key.to)?;
        let partition = partition_of(&self.key.pipeline)?;
        let mut same = 0;
        for (place, (_, version)) in self.places.iter().zip(replayed) {
            let found = server.client.find(&self.key.to, &partition, &place.id)?;
            if let Some(found) = found {
                let kept = rejects::read(found.get(), &self.key.to)?;
                same += usize::from(kept.version == *version && kept.stream == target.stream);
            }
        }
        match same == self.places.len() {
            true => Ok(()),
            false => Err(self.missing(same)),
        }
    }

    fn missing(&self, held: usize) -> Error {
        let to = &self.key.to;
        missing(&match self.places.len() {
            1 => format!("the reject is not in {to} any more: it was"),
            all => {
                format!("{held} of the {all} rejects to replay are still in {to}: the others were")
            }
        })
    }

    /// Commits the replay, and removes its rejects. Errors: `reject_missing` if another replay took the right.
    pub fn commit(&mut self, server: &mut Server, settings: &Settings) -> Result<()> {
        failpoint("dest-cosmos.replay_committing")?;
        let removing: Vec<String> = self.places.iter().map(|place| place.id.clone()).collect();
        let mut next = Held {
            removing: removing.clone(),
            holder: None,
            container: None,
            ..self.held.clone()
        };
        self.is_unsettled = true;
        match next.store(&mut server.client, settings) {
            Ok(true) => {}
            Ok(false) => {
                self.is_unsettled = false;
                return Err(self.missing(0));
            }
            Err(error) if !is_unknown(&error) => {
                self.is_unsettled = false;
                return Err(error);
            }
            Err(error) => self.settle(&mut server.client, settings, &removing, error)?,
        }
        self.is_unsettled = false;
        failpoint("dest-cosmos.replay_committed")?;
        self.remove(server, &removing)
    }

    /// After a commit without an answer: `Ok` if it happened. If it did not, it never will, because this call gives the
    /// right up.
    fn settle(
        &mut self,
        client: &mut Client,
        settings: &Settings,
        removing: &[String],
        error: Error,
    ) -> Result<()> {
        let mut given_up = Held {
            holder: None,
            container: None,
            ..self.held.clone()
        };
        if given_up.store(client, settings)? {
            self.is_unsettled = false;
            return Err(error);
        }
        let found = self.key.look(client, settings)?;
        match found.is_some_and(|found| found.removing == removing) {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Removes rejects that a committed replay has replayed. The document names them until the next replay commits.
    fn remove(&self, server: &mut Server, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let partition = partition_of(&self.key.pipeline)?;
        let mut calls = Vec::with_capacity(ids.len());
        for id in ids {
            let operation = Operation::Delete {
                id: id.clone(),
                if_match: None,
            };
            calls.push(server.client.single(&self.key.to, &partition, &operation));
        }
        for answer in server.client.ask_all(&calls)? {
            match answer?.outcome() {
                Outcome::Done | Outcome::Refused { status: 404, .. } => {}
                Outcome::Refused { error, .. } => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes the document over: how it was, and how it is.
fn hold(
    key: &Key,
    client: &mut Client,
    settings: &Settings,
    tag: &str,
    container: &str,
) -> Result<(Held, Held)> {
    for _ in 0..MAX_TRIES {
        let older = key.look(client, settings)?;
        let older = older.unwrap_or_else(|| key.empty());
        let mut held = Held {
            holder: Some(tag.to_owned()),
            container: Some(container.to_owned()),
            ..older.clone()
        };
        if held.store(client, settings)? {
            return Ok((older, held));
        }
    }
    let text = format!("{MAX_TRIES} other replays have begun at the same moment");
    Err(Error::new(ErrorKind::Transient, "fence_contended", text)
        .hint("let one replay end before the next begins"))
}
