//! `report`: where the pages of runs go.

use std::path::PathBuf;

use serde::Serialize;

use super::delivery::number;
use super::error::DocumentError;
use super::keys;
use super::node::Entry;
use super::path::{Path, Step};
use super::read::Reader;

pub(super) const REPORT: &[&str] = &["directory", "keep"];
pub(super) const MAX_KEPT: u64 = 10_000;
const DEFAULT_KEPT: u64 = 100;

/// `report`: every run leaves a page in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// The directory, relative to the pipeline's; required. A run creates it.
    pub directory: PathBuf,
    /// The newest so many pages of the pipeline stay: 1 to 10000, else 100.
    pub keep: u64,
}

/// Reads the mapping `report`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Pages, DocumentError> {
    let (mut directory, mut keep) = (None, DEFAULT_KEPT);
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "directory" => directory = Some(reader.name(&entry.value, path)?),
            "keep" => keep = number(reader, &entry.value, path, MAX_KEPT)?,
            _ => return Err(keys::unknown(reader, entry, path, REPORT)),
        }
    }
    let missing = || {
        keys::missing(
            reader,
            entry.at,
            path,
            "directory",
            "write directory: reports",
        )
    };
    Ok(Pages {
        directory: directory.ok_or_else(missing)?.into(),
        keep,
    })
}
