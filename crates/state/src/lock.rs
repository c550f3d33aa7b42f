//! The lock of a run. It lives as long as the run that holds it.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::{Result, StateError};

/// Opening a lock never waits for a pipe and never follows a link.
pub(crate) const OWN: i32 = OFlags::NONBLOCK
    .union(OFlags::NOFOLLOW)
    .bits()
    .cast_signed();

/// The most bytes of an inode number in a lock.
const MAX_INODE: u64 = 32;

/// A locked file beside the history. The system unlocks the file when the process ends.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// Takes the lock of a run. `None` if a living run holds it.
    pub(crate) fn take(state: &Path, id: &str) -> Result<Option<Self>> {
        let path = path_of(state, id);
        let failed = |error: std::io::Error| StateError::at(&path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.custom_flags(OWN);
        let file = file.open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                sign(&file).map_err(failed)?;
                Ok(Some(Self { file, path }))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Whether a living run holds the lock.
    pub(crate) fn is_held(state: &Path, id: &str) -> bool {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OWN);
        let Ok(file) = options.open(path_of(state, id)) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Whether the run that held the lock has died. False if the lock is missing or is a copy: the run may be alive
    /// beside the original.
    pub(crate) fn is_left_behind(state: &Path, id: &str) -> bool {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OWN);
        let Ok(file) = options.open(path_of(state, id)) else {
            return false;
        };
        is_original(&file) && flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
    }

    /// Releases the lock and removes its file.
    pub(crate) fn release(self) {
        // If the file stays, no process holds it.
        let _ = fs::remove_file(&self.path);
        drop(self.file);
    }
}

/// Writes the inode number of the file into it. A copy of the file has another inode, so its content does not match.
fn sign(file: &File) -> std::io::Result<()> {
    let inode = file.metadata()?.ino().to_string();
    file.write_all_at(inode.as_bytes(), 0)?;
    file.set_len(inode.len() as u64)
}

fn is_original(mut file: &File) -> bool {
    let mut text = String::new();
    let read = file.by_ref().take(MAX_INODE).read_to_string(&mut text);
    let inode = file.metadata().map(|meta| meta.ino());
    matches!((read, inode), (Ok(_), Ok(inode)) if text == inode.to_string())
}

fn path_of(state: &Path, id: &str) -> PathBuf {
    state.with_file_name(format!("run-{id}.lock"))
}
