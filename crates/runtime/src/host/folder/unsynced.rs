//! Files that are complete and not yet on the disk.
//!
//! A file of a folder counts only with the whole folder, so the files are synced together, some at a time
//! from several threads: a file system then writes its journal for many files at once. The handle that
//! wrote a file also syncs it, because only this handle is sure to report a write that failed.

use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fd::OwnedFd;
use rustix::fs::fsync;

use crate::bindings::types::Error;
use crate::host::files::failed;

/// Handles that wait at most: a process may have 1,024 of them in all.
const WAITING_FILES: usize = 64;
/// Threads that sync: they wait for the disk, and need no processor.
const THREADS: usize = 8;

/// The files of one folder that are not synced yet.
#[derive(Default)]
pub(crate) struct Unsynced(Mutex<Vec<(OwnedFd, String)>>);

impl Unsynced {
    /// Takes a file or folder over, with its path for messages; syncs all when they are many.
    pub(crate) fn add(&self, file: OwnedFd, shown: &str) -> Result<(), Error> {
        let full = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((file, shown.to_owned()));
            waiting.len() >= WAITING_FILES
        };
        if full { self.sync() } else { Ok(()) }
    }

    /// Syncs all that wait.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let waiting = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        let each = waiting.len().div_ceil(THREADS).max(1);
        thread::scope(|scope| {
            let mut results = Vec::with_capacity(THREADS);
            let mut threads = Vec::with_capacity(THREADS);
            for part in waiting.chunks(each) {
                match thread::Builder::new().spawn_scoped(scope, || sync_each(part)) {
                    Ok(thread) => threads.push(thread),
                    // No more threads: here, then.
                    Err(_) => results.push(sync_each(part)),
                }
            }
            let joined = threads.into_iter().map(|thread| thread.join());
            // A thread does nothing that panics.
            results.extend(joined.map(|result| result.expect("a sync that ended")));
            results.into_iter().collect()
        })
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

fn sync_each(files: &[(OwnedFd, String)]) -> Result<(), Error> {
    files
        .iter()
        .try_for_each(|(file, shown)| fsync(file).map_err(|error| failed(shown, &error.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_bounded_and_a_failed_sync_names_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let unsynced = Unsynced::default();
        for number in 0..WAITING_FILES * 2 + 3 {
            let path = folder.path().join(number.to_string());
            let file = std::fs::File::create(path).expect("a file");
            unsynced.add(file.into(), "a file").expect("synced");
            assert!(unsynced.waiting() < WAITING_FILES);
        }
        assert_eq!(unsynced.waiting(), 3);
        // A pipe cannot be synced.
        let (pipe, _other) = std::io::pipe().expect("a pipe");
        unsynced.add(pipe.into(), "out/7.csv").expect("waits");
        let error = unsynced.sync().expect_err("no file");
        assert!(
            error.message.starts_with("out/7.csv: "),
            "{}",
            error.message
        );
        assert_eq!(unsynced.waiting(), 0);
    }
}
