//! Bodies on the disk: a job waits if its body is not the one that the client has sent.

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
    /// As the client was told.
    sha256: Vec<u8>,
    pub path: PathBuf,
    /// What the run has read of it.
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

    /// Refuses a body with other bytes than those that the client has sent. Reads what the run has not read in order.
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

/// Why a file of the spool is not a body with so many bytes, if it is not. Its content is not looked at.
pub fn broken(file: &Path, bytes: u64) -> Option<String> {
    match fs::metadata(file) {
        Ok(found) if found.len() == bytes => None,
        Ok(found) => Some(format!("has {} bytes of {bytes}", found.len())),
        Err(error) => Some(format!("cannot be read: {error}")),
    }
}

/// A file of the spool that is gone or has another size is not the client's fault: the job waits.
pub(super) fn ensure_whole(job: i64, bytes: u64, file: &Path) -> Result<(), Problem> {
    let file = file.to_owned();
    match broken(&file, bytes) {
        None => Ok(()),
        Some(why) => Err(Problem::Body { job, file, why }),
    }
}

impl Shared {
    /// Refuses to blame a job whose body is not the one that the client has sent.
    pub(super) fn ensure_sent(&self, job: &Pending) -> Result<(), Problem> {
        let Body::Spooled(name) = &job.body else {
            return Ok(());
        };
        let path = self.spool.path(name);
        ensure_whole(job.id, job.bytes, &path)?;
        Spooled::new(job, path).ensure_sent(|| self.cancel.is_cancelled())
    }
}
