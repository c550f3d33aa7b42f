//! The configuration: the one wrong thing that the source does.

use misdeeds::Deed;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The keys under `config:`.
#[derive(Deserialize, JsonSchema, Clone)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The one wrong thing.
    pub how: How,
    /// The call that never returns, dies or gives too much.
    #[serde(default)]
    pub at: Call,
    /// How many good batches come before it.
    #[serde(default)]
    pub at_batch: u64,
    /// Rows in each good batch.
    #[serde(default = "default_rows")]
    pub batch_rows: u32,
    /// For `connect` and `read`.
    #[schemars(extend("x-grant" = "host"))]
    pub host: Option<String>,
    /// For `connect` and `read`.
    #[schemars(extend("x-grant" = "port"))]
    pub port: Option<u16>,
    /// For `file`.
    #[schemars(extend("x-grant" = "read"))]
    pub path: Option<String>,
    /// For `forbidden_connect`: carries no grant.
    pub ungranted_host: Option<String>,
    /// For `forbidden_connect`: carries no grant.
    pub ungranted_port: Option<u16>,
    /// For `forbidden_file`: carries no grant.
    pub ungranted_path: Option<String>,
    /// For `error` and its relatives.
    #[serde(default)]
    pub kind: Kind,
}

fn default_rows() -> u32 {
    1000
}

/// A call of the contract.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Call {
    Open,
    Check,
    Discover,
    Snapshot,
    Read,
    Schemas,
    #[default]
    Next,
    /// Of an incremental read.
    Acknowledge,
    /// The host never does that: it drops the whole instance.
    Drop,
}

/// Each does one wrong thing after `at_batch` good batches, and emits the end if it survives that.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Nothing: emits the end.
    Nothing,

    // Never comes to an end
    /// Returns `idle` for ever, at once.
    Idle,
    /// Gives batches without a row for ever.
    EmptyBatches,
    /// Connects to `host`:`port` with a time-out of a minute, then ends.
    Connect,
    /// Connects to `host`:`port` and reads once with a time-out of a minute. Hands on the host's
    /// answer.
    Read,

    // Lies
    /// A good batch whose number of rows is one too high.
    LieRows,
    /// A batch of bytes that are not an Arrow message.
    Garbage,
    /// A batch whose message is cut off in the middle of its body.
    Truncated,
    /// A batch of one string column whose last offset points far behind its data. The reader's
    /// schema describes the strings from the start.
    BadOffsets,
    /// A batch of two columns where the reader's schema has one.
    OtherSchema,
    /// The reader's schema is not a schema message. (From the start; batches come all the same.)
    GarbageSchema,
    /// A batch whose last value is longer than `max_record_bytes`.
    HugeValue,
    /// A batch of one decimal(5, 2) column whose last value is 17 million. The reader's schema
    /// describes the decimals from the start.
    WideDecimal,
    /// A checkpoint that was given before, two checkpoints ago.
    CursorBackwards,
    /// A checkpoint that is not JSON.
    CursorGarbage,
    /// A checkpoint before the first row, in every sort of read.
    CheckpointFirst,
    /// Ends an incremental read without its last checkpoint.
    CheckpointMissing,
    /// Emits the end. Asked again, it gives one more batch and one more end.
    EndTwice,

    // Says that it failed
    /// `next` gives an error of `kind`.
    Error,
    /// `open` gives an error of `kind`.
    OpenError,
    /// `check` reports a problem of `kind`, `discover` gives it as its error.
    DiscoverError,
    /// `read` gives an error of `kind`.
    ReadError,

    // Gives too much
    /// A million log messages.
    LogFlood,
    /// One log message of 64 MiB.
    LogHuge,
    /// A million lines on standard error.
    StderrFlood,
    /// A correct batch of 300 MB: it needs over 600 MB of memory to make.
    HugeBatch,
    /// A batch of 300 MB of zeros: it needs no more memory than that.
    HugeGarbage,
    /// A log message with control characters.
    LogControl,
    /// Opens `path`, which is granted, a million times and closes nothing.
    Handles,
    /// Connects to `host`:`port` again and again and closes nothing.
    Hoard,
    /// A checkpoint of 100 MB.
    HugeCursor,
    /// A checkpoint of 2 MB.
    LongCursor,
    /// An error with a message of 100 MB.
    HugeError,
    /// An error with a message of 20 MB.
    LongError,
    /// An error with control characters in every text.
    ErrorControl,
    /// Reads `path` behind its end for ever, or `host`:`port`, which has closed, where no path is given.
    ReadNothing,
    /// Asks for ever which files `path` matches.
    FindAgain,
    /// Checkpoints for ever, at once.
    CheckpointFlood,

    // Wants what it was not granted
    /// Opens and reads `path`, which is granted: an error only if the host refuses.
    File,
    /// Opens `ungranted_path` and hands on the host's refusal; code `was_allowed` if there is none.
    ForbiddenFile,
    /// Connects to `ungranted_host`:`ungranted_port` and hands on the host's refusal; code
    /// `was_allowed` if there is none.
    ForbiddenConnect,
    /// Looks for environment variables, arguments, directories and sockets; code `was_allowed`,
    /// naming it, if one is there, the end if none is.
    Env,

    /// The call `at` never returns, or dies.
    #[serde(untagged)]
    Deed(Deed),
}

/// The kinds of the contract, as a configuration writes them.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, Default)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Kind {
    Config,
    Auth,
    Connection,
    Transient,
    /// After 50 milliseconds.
    RateLimited,
    #[default]
    Data,
    Schema,
    Internal,
}

impl Kind {
    /// The error of this kind, with every field filled.
    pub fn error(self) -> Error {
        let kind = match self {
            Self::Config => ErrorKind::Config,
            Self::Auth => ErrorKind::Auth,
            Self::Connection => ErrorKind::Connection,
            Self::Transient => ErrorKind::Transient,
            Self::RateLimited => ErrorKind::RateLimited(Some(50)),
            Self::Data => ErrorKind::Data,
            Self::Schema => ErrorKind::Schema,
            Self::Internal => ErrorKind::Internal,
        };
        Error::new(kind, "misbehave", "an error on purpose")
            .hint("expect it")
            .in_stream("rows")
            .in_column("n")
            .at("here:1")
    }
}
