//! `resources`: sizes, and numbers that fit together.

use serde::Serialize;

use super::declare::keys;
use super::error::{DocumentError, Result};
use super::kinds::{GIB, KIB, MIB, Words, show_size, size, whole, word};
use super::read::Spot;
use crate::compress::Compression;

/// Below this not even two connectors can be instantiated.
const MIN_MEMORY: u64 = 32 * MIB;
/// More is taken for a slip of the finger.
const MAX_MEMORY: u64 = 64 * GIB;
const MIN_BATCH: u64 = 4 * KIB;
/// Batches of 0.1 to 1 MB are fastest; far larger ones only hold memory.
const MAX_BATCH: u64 = 256 * MIB;
const MAX_PARALLELISM: u64 = 64;
/// A record is held by the source, the channel, the destination and once more while it is
/// copied: each stream may give at most a quarter of its share to one.
const RECORD_SHARE: u64 = 4;
/// The default share of the largest record. Two connectors together hold a record four to six times (measured:
/// CSV to JSONL 4.1, PostgreSQL to PostgreSQL 6.3), and this leaves room for their own memory.
const DEFAULT_RECORD_SHARE: u64 = 8;
/// A batch is smaller: several are in the channel.
const BATCH_SHARE: u64 = 16;
/// Two instances with their code's own data, stacks and buffers.
const MIN_SHARE: u64 = 16 * MIB;

const DEFAULT_MEMORY: u64 = 256 * MIB;
const DEFAULT_BATCH: u64 = MIB;
const DEFAULT_RECORD: u64 = 64 * MIB;

keys! {
    /// `resources`: how much memory may be used, and how.
    ///
    /// A size is a whole number of bytes, or one with `kb`, `mb` or `gb` behind it, in any case.
    /// `kib`, `mib` and `gib` mean the same: all are powers of 1024.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct Resources: Default {
        /// Memory for all streams together, 32mb to 64gb (default 256mb).
        pub memory: u64 = size(MIN_MEMORY, MAX_MEMORY).or(DEFAULT_MEMORY),
        /// The target size of a batch (default 1mb).
        ///
        /// 4kb to 256mb and at most `memory / parallelism / 16`, else 1mb or that if it is less.
        pub batch_bytes: u64 = size(MIN_BATCH, MAX_BATCH).or(DEFAULT_BATCH),
        /// Reject larger records.
        ///
        /// At least 4kb and at most `memory / parallelism / 4`, else 64mb or
        /// `memory / parallelism / 8` if that is less. Two connectors hold a record four to six
        /// times; what does not fit into `memory` ends in the error `memory_limit`.
        pub max_record_bytes: u64 = size(MIN_BATCH, MAX_MEMORY)
            .or(DEFAULT_RECORD.min(DEFAULT_MEMORY / DEFAULT_RECORD_SHARE)),
        /// The number of streams to move at the same time (default 1).
        pub parallelism: u32 = whole(MAX_PARALLELISM).or(1),
        /// Compression of batches between source and destination (default none).
        pub compression: Compression = word().or(Compression::None),
    }
}

impl Words for Compression {
    const WORDS: &'static [(&'static str, Self)] = &[
        (Self::None.name(), Self::None),
        (Self::Lz4.name(), Self::Lz4),
        (Self::Zstd.name(), Self::Zstd),
    ];
}

/// Sizes that are not in the file follow from the memory of a stream; the others must fit into it.
pub(super) fn share(at: &Spot<'_>, mut resources: Resources) -> Result<Resources> {
    let share = resources.memory / u64::from(resources.parallelism);
    if let (Some(at), true) = (at.key("parallelism"), share < MIN_SHARE) {
        return Err(too_many_streams(&at, &resources));
    }
    match at.key("batch_bytes") {
        Some(at) => ensure_fits(
            &at,
            "batch_bytes",
            &resources,
            resources.batch_bytes,
            BATCH_SHARE,
        )?,
        None => resources.batch_bytes = DEFAULT_BATCH.min(share / BATCH_SHARE),
    }
    match at.key("max_record_bytes") {
        Some(at) => {
            let bytes = resources.max_record_bytes;
            ensure_fits(&at, "max_record_bytes", &resources, bytes, RECORD_SHARE)?;
        }
        None => resources.max_record_bytes = DEFAULT_RECORD.min(share / DEFAULT_RECORD_SHARE),
    }
    Ok(resources)
}

/// Checks that `bytes` is at most the given share of one stream's memory.
fn ensure_fits(
    at: &Spot<'_>,
    key: &str,
    resources: &Resources,
    bytes: u64,
    divisor: u64,
) -> Result<()> {
    let parallelism = u64::from(resources.parallelism);
    let most = resources.memory / parallelism / divisor;
    if bytes <= most {
        return Ok(());
    }
    let [shown, memory, shown_most] = [bytes, resources.memory, most].map(show_size);
    let message = format!(
        "{at} is {shown}, but memory {memory} with parallelism {parallelism} leaves at most \
         {shown_most} (memory / parallelism / {divisor})"
    );
    let mut hint = format!("set {key} to {shown_most} or less");
    // Cannot overflow: bytes is at most 64 GiB, the factors at most 64 and 8.
    let needed = (bytes * parallelism * divisor).next_multiple_of(MIB);
    if needed <= MAX_MEMORY {
        hint += &format!(", or memory to {} or more", show_size(needed));
    }
    let fewer = resources.memory / (bytes * divisor);
    if fewer >= 1 {
        hint += &format!(", or parallelism to {fewer} or less");
    }
    Err(at.bad_value(message).hint(hint))
}

fn too_many_streams(at: &Spot<'_>, resources: &Resources) -> DocumentError {
    let (memory, parallelism) = (resources.memory, resources.parallelism);
    let message = format!(
        "{at} is {parallelism}, but memory {} suffices for {} at the same time",
        show_size(memory),
        rapidbyte_wire::counted(memory / MIN_SHARE, "stream")
    );
    let hint = format!(
        "set parallelism to {1} or less, or memory to {2} or more: each stream needs {0}",
        show_size(MIN_SHARE),
        memory / MIN_SHARE,
        show_size(u64::from(parallelism) * MIN_SHARE)
    );
    at.bad_value(message).hint(hint)
}
