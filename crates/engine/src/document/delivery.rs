//! `checkpoint` and `retry`: when rows become visible, and what is tried again.

use super::error::DocumentError;
use super::keys;
use super::node::{Entry, Node};
use super::path::{Path, Step};
use super::read::Reader;
use super::resources::size;
use super::{Checkpoint, Retry, WhenRunning};

pub(super) const CHECKPOINT: &[&str] = &["every_bytes", "every_rows", "every_seconds"];
pub(super) const RETRY: &[&str] = &["max_attempts", "backoff_seconds", "max_backoff_seconds"];

pub(super) const WHEN_RUNNING: [WhenRunning; 3] =
    [WhenRunning::Refuse, WhenRunning::Wait, WhenRunning::Replace];

const MIN_BYTES: u64 = 1 << 20;
const MAX_BYTES: u64 = 1 << 40;
pub(super) const MAX_SECONDS: u64 = 86_400;
pub(super) const MAX_BACKOFF: u64 = 3_600;
pub(super) const MAX_ATTEMPTS: u64 = 100;

/// Reads the mapping `checkpoint`.
pub(super) fn checkpoint(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Checkpoint, DocumentError> {
    let mut read = Checkpoint::default();
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let node = &entry.value;
        match entry.key.as_str() {
            "every_bytes" => read.every_bytes = size(reader, node, path, MIN_BYTES, MAX_BYTES)?,
            "every_rows" => read.every_rows = Some(number(reader, node, path, u64::MAX)?),
            "every_seconds" => read.every_seconds = number(reader, node, path, MAX_SECONDS)?,
            _ => return Err(keys::unknown(reader, entry, path, CHECKPOINT)),
        }
    }
    Ok(read)
}

/// Reads the mapping `retry`.
pub(super) fn retry(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Retry, DocumentError> {
    let mut read = Retry::default();
    let mut longest = None;
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let node = &entry.value;
        match entry.key.as_str() {
            // At most 100.
            "max_attempts" => read.max_attempts = number(reader, node, path, MAX_ATTEMPTS)? as u32,
            "backoff_seconds" => read.backoff_seconds = number(reader, node, path, MAX_BACKOFF)?,
            "max_backoff_seconds" => {
                longest = Some(number(reader, node, path, MAX_SECONDS)?);
            }
            _ => return Err(keys::unknown(reader, entry, path, RETRY)),
        }
    }
    read.max_backoff_seconds =
        longest.unwrap_or(read.max_backoff_seconds.max(read.backoff_seconds));
    Ok(read)
}

/// Reads `when_running`.
pub(super) fn when_running(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<WhenRunning, DocumentError> {
    let position = reader.one_of(node, path, &WHEN_RUNNING.map(WhenRunning::name))?;
    Ok(WHEN_RUNNING[position])
}

/// A whole number from 1 to `most`.
pub(super) fn number(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
    most: u64,
) -> Result<u64, DocumentError> {
    let text = reader.text(node, path)?;
    let number = text.text.parse::<u64>().ok();
    if let Some(number) = number.filter(|n| (1..=most).contains(n)) {
        return Ok(number);
    }
    let message = format!("{path} cannot be {}", text.shown(node));
    let hint = match most {
        u64::MAX => "write a whole number, 1 or more".to_owned(),
        most => format!("write a whole number from 1 to {most}"),
    };
    Err(reader.bad_value(node.at, path, message).hint(hint))
}
