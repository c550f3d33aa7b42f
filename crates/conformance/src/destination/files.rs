//! The files below the places that a destination may write to.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use rapidbyte_runtime::Grants;

/// Folders below a granted one: `{stream}`, columns that split it, and one of the host's own.
const MAX_DEPTH: usize = 8;
/// More files are not looked at.
const MAX_FILES: usize = 20_000;
/// Of a larger file the size and the time count, and not the bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Each file with a number that changes with it.
pub(super) type Listing = BTreeMap<PathBuf, u64>;

/// Lists the files below the granted folders, hidden files and the host's own among them. Files with the name of
/// another test's stream are left out: that test may run at the same time. `ours` begins this test's names.
pub(super) fn list(grants: &Grants, ours: &str) -> Listing {
    let mut found = Listing::new();
    for pattern in grants.written() {
        let plain = pattern.split(['*', '?']).next().unwrap_or_default();
        let end = plain.rfind('/').unwrap_or(0);
        walk(Path::new(&plain[..end]), 0, &mut found);
    }
    found.retain(|path, _| !is_of_another(&path.to_string_lossy(), ours));
    found
}

fn is_of_another(path: &str, ours: &str) -> bool {
    let mut names = path.match_indices(super::STREAMS_BEGIN);
    names.any(|(at, _)| !path[at..].starts_with(ours))
}

fn walk(folder: &Path, depth: usize, found: &mut Listing) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => walk(&path, depth + 1, found),
            Ok(kind) if kind.is_file() && found.len() < MAX_FILES => {
                let state = state(&path);
                found.insert(path, state);
            }
            _ => {}
        }
    }
}

fn state(path: &Path) -> u64 {
    let mut state = DefaultHasher::new();
    if let Ok(about) = std::fs::metadata(path) {
        about.len().hash(&mut state);
        match about.len() > MAX_BYTES {
            true => about.modified().ok().hash(&mut state),
            false => std::fs::read(path).ok().hash(&mut state),
        }
    }
    state.finish()
}

/// Files that are there after it and were not before, by name.
pub(super) fn more(before: &Listing, after: &Listing) -> Option<String> {
    let more = after.keys().find(|path| !before.contains_key(*path));
    more.map(|path| format!("the file {} is there", path.display()))
}

/// The first file that came, went or changed.
pub(super) fn changed(before: &Listing, after: &Listing) -> Option<String> {
    let gone = before.keys().find(|path| !after.contains_key(*path));
    let gone = gone.map(|path| format!("the file {} is gone", path.display()));
    let mut both = before.iter();
    let other = both.find(|(path, state)| after.get(*path).is_some_and(|s| s != *state));
    let other = other.map(|(path, _)| format!("the file {} has changed", path.display()));
    more(before, after).or(gone).or(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_test_are_left_out_and_all_others_count() {
        let of_another = |path| is_of_another(path, "conformance_0a_");
        assert!(of_another("out/conformance_0b_write.csv"));
        assert!(of_another("out/.conformance_0b_write.csv.tmp"));
        for path in [
            "out/conformance_0a_write.csv",
            "out/stray",
            "out/_rapidbyte/7",
        ] {
            assert!(!of_another(path), "{path}");
        }
    }
}
