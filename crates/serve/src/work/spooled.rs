//! Bodies on the disk. A job waits if its body has other bytes than the client sent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidbyte_runtime::Digested;

use super::{Problem, Shared};
use crate::store::{Body, Pending, hexadecimal};

/// The body of a job that a run reads.
#[derive(Clone)]
pub(super) struct Spooled {
    job: i64,
    /// The SHA-256 of the bytes that the client sent, as the answer had it.
    sha256: Vec<u8>,
    pub path: PathBuf,
    /// The digest of the bytes that the run has read so far.
    pub digested: Arc<Digested>,
}

impl Spooled {
    pub(super) fn new(job: &Pending, path: PathBuf) -> Self {
        Self {
            job: job.id,
            sha256: job.sha256.clone(),
            path,
            digested: Arc::default(),
        }
    }

    /// Refuses a body with other bytes than the client sent. Reads the bytes that the run has not read in order.
    pub(super) fn ensure_sent(&self, is_over: impl Fn() -> bool) -> Result<(), Problem> {
        let why = match self.digested.finish(&self.path, is_over) {
            Ok(found) if found.as_slice() == self.sha256 => return Ok(()),
            Ok(found) => format!(
                "has the SHA-256 {}, and the client has sent a body with {}",
                hexadecimal(&found),
                hexadecimal(&self.sha256)
            ),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(Problem::Disk(error));
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        let (job, file) = (self.job, self.path.clone());
        Err(Problem::Body { job, file, why })
    }
}

/// The reason why a file of the spool cannot be a body of this many bytes. Only its size is checked, not its content.
pub fn broken(file: &Path, bytes: u64) -> Option<String> {
    match fs::metadata(file) {
        Ok(found) if found.len() == bytes => None,
        Ok(found) => Some(format!("has {} bytes of {bytes}", found.len())),
        Err(error) => Some(format!("cannot be read: {error}")),
    }
}

/// Refuses a file of the spool that is missing or has another size. That is not the client's fault, so the job waits.
pub(super) fn ensure_whole(job: i64, bytes: u64, file: &Path) -> Result<(), Problem> {
    let file = file.to_owned();
    match broken(&file, bytes) {
        None => Ok(()),
        Some(why) => Err(Problem::Body { job, file, why }),
    }
}

impl Shared {
    /// Refuses to blame a job whose body has other bytes than the client sent.
    pub(super) fn ensure_sent(&self, job: &Pending) -> Result<(), Problem> {
        let Body::Spooled(name) = &job.body else {
            return Ok(());
        };
        let path = self.spool.path(name);
        ensure_whole(job.id, job.bytes, &path)?;
        Spooled::new(job, path).ensure_sent(|| self.cancel.is_cancelled())
    }
}
