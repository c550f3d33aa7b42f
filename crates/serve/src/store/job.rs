//! Jobs as the store knows them.

use std::sync::Arc;

use rusqlite::Row;
use serde::Serialize;
use serde_json::Value;

use super::token::TokenLimits;

/// The place of a job's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// In the store.
    Inline(Arc<[u8]>),
    /// In the file with this name, in the spool.
    Spooled(String),
}

/// A body that was received, and where it goes.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The stream of the pipeline.
    pub stream: String,
    /// The format of the body, such as `jsonl`.
    pub format: &'static str,
    /// The compression of the body: `gzip` or `zstd`.
    pub encoding: Option<&'static str>,
    /// The size of the body as it was received.
    pub bytes: u64,
    /// The SHA-256 of the body as it was received.
    pub sha256: [u8; 32],
    /// The client's name for this request: a request with the same key is the same job.
    pub key: Option<String>,
    /// A body that is known already is the same job.
    pub is_known_by_content: bool,
    /// The name of the queue of a run that waits for this job: it is given to that run as it is stored, so that the run
    /// need not wait for another commit.
    pub expected_by: Option<String>,
    /// The token of the request, if it has limits that the store keeps.
    pub token: Option<TokenLimits>,
    /// The body.
    pub body: Body,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Its rows are not committed in the destination.
    Pending,
    /// Its rows are committed.
    Done,
    /// It cannot be read, or its rows are refused. It has no row in the destination.
    Dead,
    /// An operator cancelled it before its rows were moved.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Done, Self::Dead, Self::Cancelled];

    /// Their names.
    pub const NAMES: [&'static str; 4] = [
        Self::ALL[0].name(),
        Self::ALL[1].name(),
        Self::ALL[2].name(),
        Self::ALL[3].name(),
    ];

    /// Its name in the store and in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A job without its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Rises with each job.
    pub id: i64,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The stream of the pipeline.
    pub stream: String,
    /// The format of the body.
    pub format: String,
    /// The compression of the body.
    pub encoding: Option<String>,
    /// The size of the body as it was received.
    pub bytes: u64,
    /// The SHA-256 of the body as it was received, in hexadecimal.
    pub sha256: String,
    /// The client's name for the request.
    pub idempotency_key: Option<String>,
    /// The job whose body this one has, if it is a replay.
    pub replay_of: Option<i64>,
    /// Its state.
    pub state: JobState,
    /// The reason of a dead job: `code`, `message` and the like.
    pub reason: Option<Value>,
    /// Whether the server still has the body.
    pub has_body: bool,
    /// When it was received, in milliseconds since 1970-01-01.
    pub received_ms: i64,
    /// When it was done, dead or cancelled.
    pub ended_ms: Option<i64>,
}

/// A job whose rows are still to be moved.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its id.
    pub id: i64,
    /// The format of its body.
    pub format: String,
    /// The compression of its body.
    pub encoding: Option<String>,
    /// The size of its body as it was received.
    pub bytes: u64,
    /// The SHA-256 of its body as it was received.
    pub sha256: Vec<u8>,
    /// Its body.
    pub body: Body,
}

/// The columns of [`job_of`].
pub const COLUMNS: &str = "id, pipeline, stream, format, encoding, bytes, sha256, idempotency_key, state, received, \
     reason, ended, replay_of, body IS NOT NULL OR spooled IS NOT NULL";

/// A job of a row with [`COLUMNS`].
pub fn job_of(row: &Row<'_>) -> rusqlite::Result<Job> {
    let sha256: Vec<u8> = row.get(6)?;
    let state: String = row.get(8)?;
    let reason: Option<String> = row.get(10)?;
    let unknown = || rusqlite::Error::InvalidColumnName(format!("a job that is {state:?}"));
    Ok(Job {
        id: row.get(0)?,
        pipeline: row.get(1)?,
        stream: row.get(2)?,
        format: row.get(3)?,
        encoding: row.get(4)?,
        bytes: row.get(5)?,
        sha256: hexadecimal(&sha256),
        idempotency_key: row.get(7)?,
        state: JobState::of(&state).ok_or_else(unknown)?,
        received_ms: row.get(9)?,
        reason: reason.and_then(|reason| serde_json::from_str(&reason).ok()),
        ended_ms: row.get(11)?,
        replay_of: row.get(12)?,
        has_body: row.get(13)?,
    })
}

/// The condition for dead jobs whose body was discarded, or for all others. The server itself forgets the bodies of dead
/// jobs only together with the jobs.
pub const fn and_discarded(discarded: Option<bool>) -> &'static str {
    match discarded {
        None => "",
        Some(true) => " AND state = 'dead' AND body IS NULL AND spooled IS NULL",
        Some(false) => " AND NOT (state = 'dead' AND body IS NULL AND spooled IS NULL)",
    }
}

/// The columns of [`pending_of`].
pub const PENDING_COLUMNS: &str = "id, format, encoding, bytes, body, spooled, sha256";

/// A job of a row with [`PENDING_COLUMNS`].
pub fn pending_of(row: &Row<'_>) -> rusqlite::Result<Pending> {
    let spooled: Option<String> = row.get(5)?;
    Ok(Pending {
        id: row.get(0)?,
        format: row.get(1)?,
        encoding: row.get(2)?,
        bytes: row.get(3)?,
        sha256: row.get(6)?,
        body: match spooled {
            Some(name) => Body::Spooled(name),
            None => Body::Inline(match row.get_ref(4)?.as_blob_or_null()? {
                Some(bytes) => bytes.into(),
                None => Arc::default(),
            }),
        },
    })
}

/// Bytes as pairs of digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
