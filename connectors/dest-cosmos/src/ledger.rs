//! Checkpoints: one document for each stream of a pipeline and its target. It has the cursor, and the epoch by which
//! each run fences the runs before it.
//!
//! A change of a document is atomic, and nothing else here is. A run writes its rows first and moves its checkpoint
//! last, in one replacement that holds only for the version (`_etag`) that the run has written before.

use rapidbyte_cosmos::{Client, Operation, Outcome, Param, PartitionKey};
use rapidbyte_sdk::digest::HmacSha256;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Settings;
use crate::ids::{self, Epochs};
use crate::server::Server;

/// Runs that fence at the same moment: one of them tries again.
const MAX_TRIES: usize = 10;
/// What a checkpoint says that it is.
const CHECKPOINT: &str = "checkpoint";
/// The partition key of the containers that Rapidbyte makes for itself.
pub(crate) const PARTITION: &str = "/pipeline";

/// The document of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub pipeline: String,
    pub stream: String,
    /// `database.container`
    pub target: String,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    id: String,
    kind: String,
    pipeline: String,
    stream: String,
    target: String,
    pub tag: String,
    pub epoch: u32,
    pub seq: u64,
    pub cursor: Option<String>,
    pub run_id: String,
    /// The run that has committed everything.
    pub complete_run: Option<String>,
    /// The rows with ids that the connector made.
    pub epochs: Epochs,
    /// The rejects.
    pub reject_epochs: Epochs,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

/// The right of a run to commit a stream, until a newer run fences.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    key: Key,
    /// As this run has left it.
    pub checkpoint: Checkpoint,
    /// Rows with ids that this epoch has committed.
    pub rows: u64,
    /// Rejects that it has committed.
    pub rejects: u64,
    /// A commit was sent, and nobody knows whether it happened: then nothing of it may be undone.
    pub is_unsettled: bool,
}

/// The id of a document of Rapidbyte itself: names may be longer than ids, and have other characters.
pub(crate) fn id_of(parts: &[&str]) -> String {
    let text = serde_json::to_string(parts).unwrap_or_default();
    let digest = HmacSha256::new(b"rapidbyte").digests([text.as_bytes()].into_iter());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The header with the partition of a pipeline.
pub(crate) fn partition_of(pipeline: &str) -> Result<String> {
    let key = PartitionKey::parse(PARTITION)?;
    key.of_value(Some(&Value::from(pipeline).to_string()))
}

impl Key {
    fn id(&self) -> String {
        id_of(&[CHECKPOINT, &self.stream, &self.target])
    }

    /// The checkpoint. `None` if no run has fenced.
    pub fn look(&self, client: &mut Client, settings: &Settings) -> Result<Option<Checkpoint>> {
        let _phase = phase::enter(Kind::Query);
        let partition = partition_of(&self.pipeline)?;
        let container = &settings.checkpoint_container;
        let found = client.find(container, &partition, &self.id())?;
        let read = found.map(|found| serde_json::from_str(found.get()));
        read.transpose().map_err(|what| {
            let container = settings.namespace(container);
            let text = format!("{container} has a checkpoint that is not Rapidbyte's: {what}");
            Error::schema("checkpoint_differs", text)
                .hint("name another container with `checkpoint_container:`")
        })
    }
}

/// The container of checkpoints. Errors: `checkpoint_differs` if its partition key is another one.
pub(crate) fn make_container(server: &mut Server, settings: &Settings) -> Result<()> {
    let key = PartitionKey::parse(PARTITION)?;
    let name = &settings.checkpoint_container;
    let found = server.make(name, &key, None)?;
    match found.partition == key {
        true => Ok(()),
        false => {
            let text = format!(
                "the container {name} has the partition key {}, and checkpoints need {PARTITION}",
                found.partition
            );
            Err(Error::schema("checkpoint_differs", text)
                .hint("name another container with `checkpoint_container:`")
                .at("config.checkpoint_container"))
        }
    }
}

/// The checkpoints of all streams of a pipeline. Documents that are not checkpoints are passed over.
pub(crate) fn of_pipeline(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Checkpoint>> {
    let partition = partition_of(pipeline)?;
    let query = "SELECT * FROM c WHERE c.pipeline = @pipeline AND c.kind = @kind";
    let params = [
        Param::new("@pipeline", pipeline),
        Param::new("@kind", CHECKPOINT),
    ];
    let (mut all, mut continuation) = (Vec::new(), None);
    loop {
        let page = client.query(
            &settings.checkpoint_container,
            (query, &params),
            Some(&partition),
            100,
            continuation.as_deref(),
        )?;
        for document in page.documents {
            all.extend(serde_json::from_str::<Checkpoint>(document.get()).ok());
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(all);
        }
    }
}

impl Checkpoint {
    /// For the host: `run_id` is the run that asks, or nobody.
    pub fn progress(&self, run_id: Option<&str>) -> Progress {
        let run_id = run_id.unwrap_or(&self.run_id);
        Progress {
            epoch: self.epoch.into(),
            seq: self.seq,
            cursor: self.cursor.clone(),
            run_id: run_id.to_owned(),
            complete: self.complete_run.as_deref() == Some(run_id),
            lost_rows: None,
        }
    }
}

/// Fences older runs of the stream.
pub(crate) fn fence(
    server: &mut Server,
    settings: &Settings,
    key: Key,
    run: &Run,
) -> Result<(Lease, Progress)> {
    failpoint("dest-cosmos.fencing")?;
    make_container(server, settings)?;
    let client = &mut server.client;
    for _ in 0..MAX_TRIES {
        let mut checkpoint = match key.look(client, settings)? {
            Some(mut found) => {
                found.epoch += 1;
                found.run_id.clone_from(&run.id);
                found
            }
            None => Checkpoint {
                id: key.id(),
                kind: CHECKPOINT.to_owned(),
                pipeline: key.pipeline.clone(),
                stream: key.stream.clone(),
                target: key.target.clone(),
                tag: ids::tag()?,
                epoch: 1,
                seq: 0,
                cursor: None,
                run_id: run.id.clone(),
                complete_run: None,
                epochs: Epochs::default(),
                reject_epochs: Epochs::default(),
                etag: String::new(),
            },
        };
        if !store(client, settings, &mut checkpoint)? {
            continue;
        }
        failpoint("dest-cosmos.fenced")?;
        let progress = checkpoint.progress(Some(&run.id));
        let lease = Lease {
            key,
            checkpoint,
            rows: 0,
            rejects: 0,
            is_unsettled: false,
        };
        return Ok((lease, progress));
    }
    let text = format!("{MAX_TRIES} other runs have fenced at the same moment");
    Err(Error::new(ErrorKind::Transient, "fence_contended", text)
        .hint("let one run of a pipeline end before the next begins"))
}

/// Writes a checkpoint if it still has the version that was read, or if it is new. False: somebody was faster.
fn store(client: &mut Client, settings: &Settings, checkpoint: &mut Checkpoint) -> Result<bool> {
    let _phase = phase::enter(Kind::Commit);
    let container = &settings.checkpoint_container;
    let partition = partition_of(&checkpoint.pipeline)?;
    let document = serde_json::to_string(checkpoint).map_err(Error::internal)?;
    let call = match checkpoint.etag.is_empty() {
        true => client
            .single(container, &partition, &Operation::Create { document })
            .once(),
        false => {
            let version = (checkpoint.id.as_str(), checkpoint.etag.as_str());
            client.replace(container, &partition, version, &document)
        }
    };
    let answer = client.ask(call)?;
    match answer.outcome() {
        Outcome::Done => {}
        Outcome::Refused {
            status: 404 | 409 | 412,
            ..
        } => return Ok(false),
        Outcome::Refused { mut error, .. } => {
            // It is no row that was refused.
            if matches!(error.kind, ErrorKind::Data) {
                error.kind = ErrorKind::Config;
            }
            return Err(error);
        }
    }
    checkpoint.etag = answer.etag.ok_or_else(|| {
        let text = "the server does not say the version of the checkpoint";
        Error::new(ErrorKind::Connection, "protocol_violation", text)
    })?;
    Ok(true)
}

impl Lease {
    /// Moves the checkpoint. `rows` and `rejects` are the numbers that this epoch has committed then. Errors: `run_superseded`, `checkpoint_changed`, `commit_unknown`.
    pub fn advance(
        &mut self,
        client: &mut Client,
        settings: &Settings,
        commit: &Commit<'_>,
        (rows, rejects): (u64, u64),
    ) -> Result<()> {
        let mut next = self.checkpoint.clone();
        next.seq += 1;
        next.cursor = commit.cursor.map(str::to_owned);
        if commit.complete {
            next.complete_run = Some(next.run_id.clone());
        }
        next.epochs = next.epochs.with(next.epoch, rows);
        next.reject_epochs = next.reject_epochs.with(next.epoch, rejects);
        failpoint("dest-cosmos.checkpointing")?;
        self.is_unsettled = true;
        let stored = store(client, settings, &mut next);
        failpoint("dest-cosmos.checkpoint_sent")?;
        match stored {
            Ok(true) => {}
            Ok(false) => {
                self.is_unsettled = false;
                return Err(self.overtaken(client, settings));
            }
            // The server has not carried it out.
            Err(error) if !is_unknown(&error) => {
                self.is_unsettled = false;
                return Err(error);
            }
            Err(error) => next = self.settle(client, settings, next, error)?,
        }
        self.is_unsettled = false;
        self.checkpoint = next;
        (self.rows, self.rejects) = (rows, rejects);
        failpoint("dest-cosmos.committed")
    }

    /// Fails if a newer run has fenced. Errors: `run_superseded`, `checkpoint_changed`.
    pub fn hold(&self, client: &mut Client, settings: &Settings) -> Result<()> {
        match self.key.look(client, settings)? {
            Some(found) if found.etag == self.checkpoint.etag => Ok(()),
            found => Err(self.differs(found.as_ref())),
        }
    }

    /// The same by a write, so that no older version is read.
    pub fn hold_by_write(&mut self, client: &mut Client, settings: &Settings) -> Result<()> {
        match store(client, settings, &mut self.checkpoint)? {
            true => Ok(()),
            false => Err(self.overtaken(client, settings)),
        }
    }

    /// After a commit without an answer: the checkpoint if it happened. If it did not, it never will, because this call
    /// gives the checkpoint another version. Errors: `error`, `run_superseded`, `commit_unknown`.
    fn settle(
        &mut self,
        client: &mut Client,
        settings: &Settings,
        next: Checkpoint,
        error: Error,
    ) -> Result<Checkpoint> {
        failpoint("dest-cosmos.settling")?;
        let mut raised = self.checkpoint.clone();
        raised.epoch += 1;
        let asked = store(client, settings, &mut raised).and_then(|stored| match stored {
            true => Ok(None),
            false => self.key.look(client, settings).map(Some),
        });
        failpoint("dest-cosmos.settled")?;
        match asked {
            Ok(None) => {
                self.is_unsettled = false;
                Err(error)
            }
            Ok(Some(Some(found))) if (found.epoch, found.seq) == (next.epoch, next.seq) => {
                Ok(found)
            }
            Ok(Some(found)) => Err(self.differs(found.as_ref())),
            Err(reason) => {
                let text = format!(
                    "the server did not answer the commit, so its outcome is unknown: {}; {}",
                    error.message, reason.message
                );
                Err(Error::new(ErrorKind::Connection, "commit_unknown", text)
                    .hint("run again: the run asks the server first whether the commit happened"))
            }
        }
    }

    fn overtaken(&self, client: &mut Client, settings: &Settings) -> Error {
        match self.key.look(client, settings) {
            Ok(found) => self.differs(found.as_ref()),
            Err(error) => error,
        }
    }

    /// Why this run may no longer commit.
    fn differs(&self, found: Option<&Checkpoint>) -> Error {
        let own = &self.checkpoint;
        match found {
            Some(found) if found.epoch != own.epoch => {
                let text = format!(
                    "the run {} has fenced this run, {}: it began later",
                    found.run_id, own.run_id
                );
                Error::new(ErrorKind::Superseded, "run_superseded", text)
                    .hint("let one run of a pipeline end before the next begins")
            }
            _ => {
                let text = format!(
                    "somebody changed or deleted the checkpoint of {} during the run",
                    self.key.target
                );
                Error::schema("checkpoint_changed", text)
                    .hint("run again: the run continues from the checkpoint as it is now")
            }
        }
    }
}

/// Whether nobody knows if the server has carried a request out.
pub(crate) fn is_unknown(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Connection | ErrorKind::Transient)
}
