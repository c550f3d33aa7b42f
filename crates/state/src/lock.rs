//! A lock that lives as long as the run that holds it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::{Result, StateError};

/// No pipe in the place of a lock is waited for, and no link followed.
pub(crate) const OWN: i32 = OFlags::NONBLOCK
    .union(OFlags::NOFOLLOW)
    .bits()
    .cast_signed();

/// A locked file beside the state. The system unlocks it when the process ends.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// None when a living run holds it.
    pub(crate) fn take(state: &Path, id: &str) -> Result<Option<Self>> {
        let path = path_of(state, id);
        let failed = |error: std::io::Error| StateError::at(&path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.custom_flags(OWN);
        let file = file.open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file, path })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Whether a living run holds it.
    pub(crate) fn is_held(state: &Path, id: &str) -> bool {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OWN);
        let Ok(file) = options.open(path_of(state, id)) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }

    /// Ends it and leaves nothing behind.
    pub(crate) fn release(self) {
        // Left behind it is an empty file that nobody holds.
        let _ = fs::remove_file(&self.path);
        drop(self.file);
    }
}

fn path_of(state: &Path, id: &str) -> PathBuf {
    state.with_file_name(format!("run-{id}.lock"))
}
