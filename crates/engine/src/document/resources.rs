//! `resources`: sizes, and numbers that fit together.

use super::Resources;
use super::error::{DocumentError, Location};
use super::keys::{self, COMPRESSIONS, RESOURCES};
use super::node::{Entry, Node};
use super::path::{Path, Step};
use super::read::Reader;
use crate::compress::Compression;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

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
/// What the largest record may be when nobody asks: two connectors together hold a record four to
/// six times (measured: CSV to JSONL 4.1, PostgreSQL to PostgreSQL 6.3), and this leaves room for
/// their own memory.
const DEFAULT_RECORD_SHARE: u64 = 8;
/// A batch is smaller: several are in the channel.
const BATCH_SHARE: u64 = 16;
/// Two instances with their code's own data, stacks and buffers.
const MIN_SHARE: u64 = 16 * MIB;

const DEFAULT_MEMORY: u64 = 256 * MIB;
const DEFAULT_BATCH: u64 = MIB;
const DEFAULT_RECORD: u64 = 64 * MIB;

impl Default for Resources {
    fn default() -> Self {
        Self {
            memory: DEFAULT_MEMORY,
            batch_bytes: DEFAULT_BATCH,
            max_record_bytes: DEFAULT_RECORD.min(DEFAULT_MEMORY / DEFAULT_RECORD_SHARE),
            parallelism: 1,
            compression: Compression::None,
        }
    }
}

/// What was written, and where.
type Given = Option<(u64, Location)>;

/// Reads the mapping `resources`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Resources, DocumentError> {
    let (mut batch, mut record): (Given, Given) = (None, None);
    let mut streams_at = None;
    let mut resources = Resources::default();
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let node = &entry.value;
        match entry.key.as_str() {
            "memory" => resources.memory = size(reader, node, path, MIN_MEMORY, MAX_MEMORY)?,
            "batch_bytes" => {
                batch = Some((size(reader, node, path, MIN_BATCH, MAX_BATCH)?, node.at));
            }
            "max_record_bytes" => {
                record = Some((size(reader, node, path, MIN_BATCH, MAX_MEMORY)?, node.at));
            }
            "parallelism" => {
                resources.parallelism = parallelism(reader, node, path)?;
                streams_at = Some(node.at);
            }
            "compression" => {
                let position = reader.one_of(node, path, &COMPRESSIONS.map(Compression::name))?;
                resources.compression = COMPRESSIONS[position];
            }
            _ => return Err(keys::unknown(reader, entry, path, RESOURCES)),
        }
    }
    let share = resources.memory / u64::from(resources.parallelism);
    if let (Some(at), true) = (streams_at, share < MIN_SHARE) {
        return Err(too_many_streams(reader, &resources, at, path));
    }
    resources.batch_bytes = match batch {
        Some((bytes, at)) => {
            let limit = (BATCH_SHARE, bytes, at);
            fit(reader, &resources, "batch_bytes", limit, path)?
        }
        None => DEFAULT_BATCH.min(share / BATCH_SHARE),
    };
    resources.max_record_bytes = match record {
        Some((bytes, at)) => {
            let limit = (RECORD_SHARE, bytes, at);
            fit(reader, &resources, "max_record_bytes", limit, path)?
        }
        None => DEFAULT_RECORD.min(share / DEFAULT_RECORD_SHARE),
    };
    Ok(resources)
}

/// Checks that `bytes` is at most the given share of one stream's memory.
fn fit(
    reader: &Reader<'_>,
    resources: &Resources,
    key: &str,
    (divisor, bytes, at): (u64, u64, Location),
    path: &Path<'_>,
) -> Result<u64, DocumentError> {
    let parallelism = u64::from(resources.parallelism);
    let most = resources.memory / parallelism / divisor;
    if bytes <= most {
        return Ok(bytes);
    }
    let step = Step::Key(key);
    let path = path.then(&step);
    let message = format!(
        "{path} is {}, but memory {} with parallelism {parallelism} leaves at most {} (memory / \
         parallelism / {divisor})",
        show(bytes),
        show(resources.memory),
        show(most)
    );
    let mut hint = format!("set {key} to {} or less", show(most));
    // Cannot overflow: bytes is at most 64 GiB, the factors at most 64 and 8.
    let needed = (bytes * parallelism * divisor).next_multiple_of(MIB);
    if needed <= MAX_MEMORY {
        hint += &format!(", or memory to {} or more", show(needed));
    }
    let fewer = resources.memory / (bytes * divisor);
    if fewer >= 1 {
        hint += &format!(", or parallelism to {fewer} or less");
    }
    Err(reader.bad_value(at, &path, message).hint(hint))
}

fn too_many_streams(
    reader: &Reader<'_>,
    resources: &Resources,
    at: Location,
    path: &Path<'_>,
) -> DocumentError {
    let step = Step::Key("parallelism");
    let path = path.then(&step);
    let Resources {
        memory,
        parallelism,
        ..
    } = *resources;
    let message = format!(
        "{path} is {parallelism}, but memory {} suffices for {} at the same time",
        show(memory),
        rapidbyte_wire::counted(memory / MIN_SHARE, "stream")
    );
    let needed = u64::from(parallelism) * MIN_SHARE;
    let hint = format!(
        "set parallelism to {1} or less, or memory to {2} or more: each stream needs {0}",
        show(MIN_SHARE),
        memory / MIN_SHARE,
        show(needed)
    );
    reader.bad_value(at, &path, message).hint(hint)
}

fn parallelism(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<u32, DocumentError> {
    let text = reader.text(node, path)?;
    let number = text.text.parse::<u32>().ok();
    match number.filter(|n| (1..=MAX_PARALLELISM).contains(&u64::from(*n))) {
        Some(number) => Ok(number),
        None => {
            let message = format!("{path} cannot be {}", text.shown(node));
            Err(reader
                .bad_value(node.at, path, message)
                .hint(format!("write a whole number from 1 to {MAX_PARALLELISM}")))
        }
    }
}

/// A size in bytes between `least` and `most`.
pub(super) fn size(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
    least: u64,
    most: u64,
) -> Result<u64, DocumentError> {
    let text = reader.text(node, path)?;
    let shown = text.shown(node);
    let message = match parse_size(&text.text) {
        Some(bytes) if (least..=most).contains(&bytes) => return Ok(bytes),
        Some(bytes) if bytes < least => format!("{path}: {shown} is too small"),
        Some(_) => format!("{path}: {shown} is too large"),
        None => format!("{path}: {shown} is not a size"),
    };
    let hint = format!(
        "write a whole number of bytes, or of kb, mb or gb, from {} to {}",
        show(least),
        show(most)
    );
    Err(reader.bad_value(node.at, path, message).hint(hint))
}

/// Reads `4096`, `64kb`, `1 MiB`; all units are powers of 1024. A size beyond 64 bits is the
/// largest there is, and so too large for every key.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" | "kib" => KIB,
        "mb" | "mib" => MIB,
        "gb" | "gib" => GIB,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.parse::<u64>().unwrap_or(u64::MAX);
    Some(number.saturating_mul(factor))
}

/// A size as it can be written in the file.
fn show(bytes: u64) -> String {
    let units = [(GIB, "gb"), (MIB, "mb"), (KIB, "kb")];
    match units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) if bytes > 0 => format!("{}{name}", bytes / unit),
        _ => bytes.to_string(),
    }
}
