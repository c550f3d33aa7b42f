//! The result of a run and where its time went, with stable keys.

use std::fmt;
use std::time::Duration;

use rapidbyte_runtime::{Clock, Loaded, Phase, Reject};
use rapidbyte_wire::counted;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::document::DeletesAction;

/// One finished run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `ok`: a failed run gives a failure instead.
    pub status: &'static str,
    /// The pipeline's name.
    pub pipeline: String,
    /// As in the history. A run that resumed after a crash has the id of the first run.
    pub run_id: String,
    /// From the start of planning to the last commit.
    pub total_secs: f64,
    /// Of it, planning: loading, discovering, comparing.
    pub plan_secs: f64,
    /// Rows of each stream at most, where the operator limited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Rows of all streams.
    pub rows: u64,
    /// Bytes of Arrow data of all streams.
    pub bytes: u64,
    /// The most linear memory that the connectors of one stream had together.
    pub peak_connector_bytes: u64,
    /// The most linear memory that all connectors of the run had at one time, planning included.
    pub peak_memory_bytes: u64,
    /// The most memory that the whole process had resident so far, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    /// CPU time of the run's threads that plan, read, transform and write. It does not include compiling a connector.
    pub cpu_secs: f64,
    /// CPU time that the whole process took so far.
    pub process_cpu_secs: f64,
    /// How the connectors were loaded.
    pub connectors: Vec<ConnectorReport>,
    /// Sums over planning and all streams.
    pub timing: Map<String, Value>,
    /// Warnings for the operator, although the run succeeded.
    pub warnings: Vec<Warning>,
    /// In the plan's order.
    pub streams: Vec<StreamReport>,
}

/// Something that is not as the operator may expect, such as a column that the stream lacks.
#[derive(Debug, Clone, Serialize)]
pub struct Warning {
    /// The stream.
    pub stream: String,
    /// One sentence or more.
    pub message: String,
}

/// How one connector was loaded.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectorReport {
    /// Its name.
    pub name: String,
    /// `source`, `transform` or `destination`.
    pub role: &'static str,
    /// False when it was compiled in this run.
    pub from_cache: bool,
    /// Reading, authenticating and loading, or compiling.
    pub load_secs: f64,
}

impl ConnectorReport {
    pub(crate) fn new(name: &str, role: &'static str, loaded: Loaded) -> Self {
        let load_secs = loaded.load.as_secs_f64();
        Self {
            name: name.into(),
            role,
            from_cache: loaded.from_cache,
            load_secs,
        }
    }
}

/// The most memory that this process had resident so far (Linux).
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Memory that this process has resident (Linux).
pub fn rss_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// A size of the proc(5) manual page.
fn status_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The rows of a target that the source has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// The rows, without those that were marked before.
    pub rows: u64,
    /// Whether they were deleted or marked.
    pub action: DeletesAction,
}

impl fmt::Display for Deleted {
    /// Writes `3 rows deleted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = match self.action {
            DeletesAction::Delete => "deleted",
            DeletesAction::Mark => "marked as deleted",
        };
        write!(f, "{} {happened}", counted(self.rows, "row"))
    }
}

/// One stream of a finished run.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// The stream.
    pub name: String,
    /// Where its rows are now.
    pub location: String,
    /// Rows that were committed.
    pub rows: u64,
    /// Records that were kept as rejects instead.
    #[serde(skip_serializing_if = "is_zero")]
    pub rejected: u64,
    /// The first of them, at most ten, without the records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejects: Vec<RejectReport>,
    /// The operator's limit was reached: the source may have more rows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
    /// Bytes of Arrow data.
    pub bytes: u64,
    /// Bytes that the destination wrote.
    pub written_bytes: u64,
    /// With `deletes`: the rows of the target that were deleted or marked, because the source has deleted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Deleted>,
    /// Batches.
    pub batches: u64,
    /// Times that rows became visible.
    pub commits: u64,
    /// How many times the run tried to move it.
    pub attempts: u32,
    /// This run had committed it before it was killed: nothing was moved now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub committed_before: bool,
    /// The stream that it was read and committed together with, which has the times of their stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together_with: Option<String>,
    /// With `verify: after_run`: the comparison with the source at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<VerifiedReport>,
    /// The statements that changed the columns of its target before its rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schema_changes: Vec<String>,
    /// From the start of planning to its own start.
    pub start_secs: f64,
    /// From its start to its commit.
    pub wall_secs: f64,
    /// The reading stage; its phases sum to its wall time.
    pub source: StageReport,
    /// The transforms in their order; the phases of each sum to its wall time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<TransformReport>,
    /// The writing stage; its phases sum to its wall time.
    pub destination: StageReport,
}

/// The comparison of a stream with its target, at the end of a run.
#[derive(Debug, Clone, Serialize)]
pub struct VerifiedReport {
    /// Whether both sides have the same rows.
    pub equal: bool,
    /// The stream is incremental: rows behind the cursor, and rows without a cursor value, were not compared.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub up_to_cursor: bool,
    /// Rows of the source that were compared: of an incremental stream those up to the cursor.
    pub rows: u64,
    /// The checksum of these rows: 32 hexadecimal digits.
    pub checksum: String,
    /// Rows that differ, as far as they were looked for.
    pub differing: u64,
    /// There are more of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more: bool,
    /// The time that the comparison took.
    pub seconds: f64,
}

impl fmt::Display for VerifiedReport {
    /// Writes `equal to the source`, `3 rows up to the cursor equal to the source` or `3 rows differ from the source`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.equal {
            // Rows without a cursor value are not among them.
            return match (self.up_to_cursor, self.rows) {
                (false, _) => f.write_str("equal to the source"),
                (true, 0) => f.write_str("no rows up to the cursor to compare"),
                (true, rows) => write!(
                    f,
                    "{} up to the cursor equal to the source",
                    counted(rows, "row")
                ),
            };
        }
        let at_least = if self.has_more { "at least " } else { "" };
        let differ = if self.differing == 1 {
            "differs"
        } else {
            "differ"
        };
        let rows = counted(self.differing, "row");
        write!(f, "{at_least}{rows} {differ} from the source")
    }
}

/// A record that was kept as a reject.
#[derive(Debug, Clone, Serialize)]
pub struct RejectReport {
    /// The place in the data, such as `orders.csv:17`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Stable and short, as of an error.
    pub code: String,
    /// The reason.
    pub message: String,
}

impl RejectReport {
    /// The place, the reason and the code in one line.
    pub fn shown(&self) -> String {
        let place = self.location.as_deref();
        let place = place.map_or(String::new(), |place| format!("{place}: "));
        format!("{place}{} ({})", self.message, self.code)
    }
}

/// For serde.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl StreamReport {
    /// The reports of all stages in their order.
    pub fn stages(&self) -> impl Iterator<Item = (Side, &StageReport)> {
        let transforms = self.transforms.iter();
        let transforms = transforms.map(|transform| (Side::Transform, &transform.stage));
        let stages = std::iter::once((Side::Source, &self.source)).chain(transforms);
        stages.chain([(Side::Destination, &self.destination)])
    }
}

/// One transform of a stream.
#[derive(Debug, Clone, Serialize)]
pub struct TransformReport {
    /// The name of the connector.
    pub name: String,
    /// Its time.
    #[serde(flatten)]
    pub stage: StageReport,
}

/// One stage's wall time and its phases, in seconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StageReport {
    /// From the stage's start to its end.
    pub wall_secs: f64,
    /// By phase; the sum is `wall_secs`.
    pub parts: Map<String, Value>,
}

/// The side of a stage, which decides the names of some phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reading.
    Source,
    /// Making new rows.
    Transform,
    /// Writing.
    Destination,
}

impl Side {
    /// All of them, in the order of a batch's way.
    pub const ALL: [Self; 3] = [Self::Source, Self::Transform, Self::Destination];

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Transform => "transform",
            Self::Destination => "destination",
        }
    }
}

impl StageReport {
    /// Reads a clock that is not used any more.
    pub fn new(clock: &Clock, side: Side) -> Self {
        let parts = clock.parts();
        let wall: Duration = parts.iter().map(|(_, spent)| *spent).sum();
        let mut named = Map::new();
        for (phase, spent) in parts {
            let key = key(phase, side);
            let before = named.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            let now = before + spent.as_secs_f64();
            if now > 0.0 || is_of(phase, side) {
                named.insert(key.into(), json!(now));
            }
        }
        Self {
            wall_secs: wall.as_secs_f64(),
            parts: named,
        }
    }
}

/// The stable key of a phase.
pub fn key(phase: Phase, side: Side) -> &'static str {
    use Side::{Destination, Source, Transform};
    match (phase, side) {
        (Phase::Load, _) => "module_load_secs",
        (Phase::Instantiate, _) => "vm_setup_secs",
        (Phase::Connect, Source) => "source_connect_secs",
        (Phase::Connect, Destination) => "dest_connect_secs",
        (Phase::Query, Source) => "source_query_secs",
        (Phase::Query, Destination) => "dest_query_secs",
        (Phase::Fetch, Source) => "source_fetch_secs",
        (Phase::Fetch, Destination) => "dest_fetch_secs",
        (Phase::Decode, Source) => "source_decode_secs",
        (Phase::Decode, Destination) => "dest_decode_secs",
        (Phase::ArrowEncode, Source) => "source_arrow_encode_secs",
        (Phase::ArrowEncode, Destination) => "dest_arrow_encode_secs",
        (Phase::ArrowDecode, Source) => "source_arrow_decode_secs",
        (Phase::ArrowDecode, Destination) => "dest_arrow_decode_secs",
        (Phase::Encode, Source) => "source_encode_secs",
        (Phase::Encode, Destination) => "dest_encode_secs",
        (Phase::Flush, Source) => "source_flush_secs",
        (Phase::Flush, Destination) => "dest_flush_secs",
        (Phase::Commit, Source) => "source_commit_secs",
        (Phase::Commit, Destination) => "dest_commit_secs",
        (Phase::ArrowDecode, Transform) => "transform_arrow_decode_secs",
        (Phase::ArrowEncode, Transform) => "transform_arrow_encode_secs",
        (Phase::ChannelWait, Transform) => "transform_channel_wait_secs",
        // A transform does nothing else, whatever it calls it.
        (
            Phase::Connect
            | Phase::Query
            | Phase::Fetch
            | Phase::Decode
            | Phase::Transform
            | Phase::Encode
            | Phase::Flush
            | Phase::Commit,
            Transform,
        ) => "transform_secs",
        (Phase::Transform, Source) => "source_decode_secs",
        (Phase::Transform, Destination) => "dest_encode_secs",
        (Phase::Crossing, _) => "crossing_secs",
        (Phase::Compress, _) => "compress_secs",
        (Phase::Decompress, _) => "decompress_secs",
        (Phase::ChannelWait, Source) => "channel_wait_secs",
        (Phase::ChannelWait, Destination) => "dest_recv_secs",
        (Phase::Other, _) => "other_secs",
    }
}

/// Phases that a side always shows, even at zero, so that the keys are stable.
fn is_of(phase: Phase, side: Side) -> bool {
    match phase {
        Phase::Crossing | Phase::ChannelWait | Phase::Other => true,
        Phase::Load | Phase::Instantiate => true,
        Phase::Connect | Phase::Query => side != Side::Transform,
        Phase::Fetch | Phase::Decode => side == Side::Source,
        Phase::ArrowEncode | Phase::Compress => side != Side::Destination,
        Phase::Transform => side == Side::Transform,
        Phase::ArrowDecode | Phase::Decompress => side != Side::Source,
        Phase::Encode | Phase::Flush | Phase::Commit => side == Side::Destination,
    }
}

/// Adds the parts of a stage to sums of the same keys.
pub(crate) fn add(sums: &mut Map<String, Value>, parts: &Map<String, Value>) {
    for (key, value) in parts {
        let before = sums.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        sums.insert(key.clone(), json!(before + value.as_f64().unwrap_or(0.0)));
    }
}

/// Rejects that a report shows.
const MAX_FIRST: usize = 10;

/// Records that were rejected, and the first of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rejected {
    pub(crate) rows: u64,
    /// At most ten.
    pub(crate) first: Vec<RejectReport>,
}

impl Rejected {
    pub(crate) fn add(&mut self, more: Self) {
        self.rows += more.rows;
        let room = MAX_FIRST.saturating_sub(self.first.len());
        self.first.extend(more.first.into_iter().take(room));
    }

    /// A sentence about committed rejects; none if there are none.
    pub(crate) fn warning(&self, to: &str) -> Option<String> {
        let first = self.first.first()?;
        let rejects = counted(self.rows, "reject");
        Some(format!("{rejects} in {to}; the first: {}", first.shown()))
    }

    pub(crate) fn of(rows: u64, first: &[Reject], redact: impl Fn(&str) -> String) -> Self {
        let shown = |reject: &Reject| RejectReport {
            location: reject.location.as_deref().map(&redact),
            column: reject.column.clone(),
            code: reject.code.clone(),
            message: redact(&reject.message),
        };
        Self {
            rows,
            first: first.iter().take(MAX_FIRST).map(shown).collect(),
        }
    }
}
