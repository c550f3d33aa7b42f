//! Checkpoints as documents, one for each stream of a pipeline and its target. Each change is one replacement that holds
//! only for the version (`_etag`) that the run has written before.

use rapidbyte_cosmos::{Client, Operation, Outcome, Param, PartitionKey};
use rapidbyte_document_store::{Checkpoint, Key, Naming as _};
use rapidbyte_sdk::digest::HmacSha256;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Settings;
use crate::server::Server;

/// Runs that fence at the same moment: all but one of them try again.
const MAX_TRIES: usize = 10;
/// The kind of a document that is a checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// The partition key of the containers that Rapidbyte makes for itself.
pub(crate) const PARTITION: &str = "/pipeline";

/// The document of a stream.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    kind: String,
    pipeline: String,
    stream: String,
    target: String,
    #[serde(flatten)]
    checkpoint: Checkpoint,
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

/// The id of a checkpoint.
fn checkpoint_id(key: &Key) -> String {
    id_of(&[CHECKPOINT, &key.stream, &key.target])
}

/// The checkpoint. `None` if no run has fenced.
pub(crate) fn look(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
) -> Result<Option<Checkpoint>> {
    let _phase = phase::enter(Kind::Query);
    let partition = partition_of(&key.pipeline)?;
    let container = &settings.checkpoint_container;
    let found = client.find(container, &partition, &checkpoint_id(key))?;
    let read = found.map(|found| serde_json::from_str(found.get()));
    read.transpose().map_err(|what| {
        let container = settings.namespace(container);
        let text = format!("{container} has a checkpoint that is not Rapidbyte's: {what}");
        Error::schema("checkpoint_differs", text)
            .hint("name another container with `checkpoint_container:`")
    })
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

/// Raises the epoch for a run, which fences older runs of the stream. Makes the document and its container if they do not
/// exist. Errors: `fence_contended`.
pub(crate) fn fence(
    server: &mut Server,
    settings: &Settings,
    key: &Key,
    run: &Run,
) -> Result<Checkpoint> {
    make_container(server, settings)?;
    let client = &mut server.client;
    for _ in 0..MAX_TRIES {
        let next = match look(client, settings, key)? {
            Some(found) => Checkpoint {
                run_id: run.id.clone(),
                ..found.raised()?
            },
            None => Checkpoint::new(run)?,
        };
        if let Some(fenced) = store(client, settings, key, &next)? {
            return Ok(fenced);
        }
    }
    let text = format!("{MAX_TRIES} other runs have fenced at the same moment");
    Err(Error::new(ErrorKind::Transient, "fence_contended", text)
        .hint("let one run of a pipeline end before the next begins"))
}

/// Writes a checkpoint if the document still has its version, or if it is new. `None`: somebody was faster.
pub(crate) fn store(
    client: &mut Client,
    settings: &Settings,
    key: &Key,
    checkpoint: &Checkpoint,
) -> Result<Option<Checkpoint>> {
    let _phase = phase::enter(Kind::Commit);
    let stored = Stored {
        id: checkpoint_id(key),
        kind: CHECKPOINT.to_owned(),
        pipeline: key.pipeline.clone(),
        stream: key.stream.clone(),
        target: key.target.clone(),
        checkpoint: checkpoint.clone(),
    };
    let document = serde_json::to_string(&stored).map_err(Error::internal)?;
    let version = (stored.id.as_str(), checkpoint.version.as_str());
    let written = put(client, settings, &key.pipeline, version, document)?;
    Ok(written.map(|version| Checkpoint {
        version,
        ..stored.checkpoint
    }))
}

/// Writes a document of the container of checkpoints if it still has the version, or makes it if the version is empty.
/// Returns its new version. `None`: somebody was faster.
pub(crate) fn put(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
    (id, version): (&str, &str),
    document: String,
) -> Result<Option<String>> {
    let container = &settings.checkpoint_container;
    let partition = partition_of(pipeline)?;
    let call = match version.is_empty() {
        true => client
            .single(container, &partition, &Operation::Create { document })
            .once(),
        false => client.replace(container, &partition, (id, version), &document),
    };
    let answer = client.ask(call)?;
    match answer.outcome() {
        Outcome::Done => answer.etag.map(Some).ok_or_else(|| {
            let text = "the server does not say the version of the checkpoint";
            Error::new(ErrorKind::Connection, "protocol_violation", text)
        }),
        Outcome::Refused {
            status: 404 | 409 | 412,
            ..
        } => Ok(None),
        Outcome::Refused { error, .. } => Err(not_of_row(error)),
    }
}

/// The server has refused a document of Rapidbyte itself, and not a row.
pub(crate) fn not_of_row(mut error: Error) -> Error {
    if matches!(error.kind, ErrorKind::Data) {
        error.kind = ErrorKind::Config;
    }
    error
}
