//! The files that a pattern finds.

use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use rapidbyte_wire::pattern;

use super::{MAX_ENTRIES, below};
use crate::grants::Granted;

/// The files that match a pattern.
#[derive(Default)]
pub(super) struct Found {
    /// Paths and sizes.
    pub(super) files: Vec<(String, u64)>,
    /// Links out of the pattern's directory: nothing grants their targets.
    pub(super) outward: Vec<String>,
}

/// The regular files that both the asked pattern and the grant cover, with their sizes.
/// Their names take at most `room` bytes.
pub(super) fn find(granted: &Granted, room: usize) -> std::io::Result<Found> {
    let (dir, inside) = match below(granted) {
        Ok(below) => below,
        Err(error) if error.kind() == Io::NotFound => return Ok(Found::default()),
        Err(error) => return Err(error),
    };
    let mut found = vec![PathBuf::new()];
    let mut held = 0usize;
    for part in inside.iter().filter_map(|part| part.to_str()) {
        let mut next = Vec::new();
        for parent in &found {
            if !pattern::is_pattern(part) {
                next.push(parent.join(part));
                continue;
            }
            let here = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            let Ok(entries) = dir.read_dir(here) else {
                continue;
            };
            for entry in entries {
                let name = entry?.file_name();
                // As in a shell: a sign does not stand for the dot of a hidden name, such as that
                // of a file or folder which is still being written.
                let is_meant = |name: &str| {
                    name.starts_with('.') <= part.starts_with('.') && pattern::matches(part, name)
                };
                if name.to_str().is_some_and(is_meant) {
                    let path = parent.join(name);
                    held += path.as_os_str().len();
                    next.push(path);
                }
                if next.len() > MAX_ENTRIES || held > room {
                    let text =
                        format!("more than {MAX_ENTRIES} files or {room} bytes of names match");
                    return Err(std::io::Error::other(text));
                }
            }
        }
        found = next;
    }
    let root = granted
        .root
        .to_str()
        .unwrap_or_default()
        .trim_end_matches('/');
    let mut files = Vec::new();
    let mut outward = Vec::new();
    let is_pattern = pattern::is_pattern(&granted.grant);
    for inside in found {
        let Some(path) = inside.to_str().map(|inside| format!("{root}/{inside}")) else {
            continue;
        };
        match dir.metadata(&inside) {
            Ok(metadata) if metadata.is_file() && pattern::matches_path(&granted.grant, &path) => {
                files.push((path, metadata.len()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == Io::NotFound => {}
            // The refusal of a link comes from the library, not the system, so its error number is absent.
            Err(error)
                if is_pattern
                    && error.kind() == Io::PermissionDenied
                    && error.raw_os_error().is_none() =>
            {
                outward.push(path);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Found { files, outward })
}
