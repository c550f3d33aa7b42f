//! Bodies that were known lately: a client that sends them once more is answered from memory.
//!
//! Only jobs that are done are remembered, because they do not change until they are forgotten. The store has all jobs: what is
//! not remembered is looked up there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;

use super::job::{Job, JobState, NewJob};

/// Jobs that are remembered, of about 400 bytes each.
pub(super) const MAX_JOBS: usize = 16_384;

/// The jobs that are remembered, by the SHA-256 of their bodies. Clones are the same memory.
#[derive(Clone)]
pub struct Known(Arc<Mutex<Inner>>);

struct Inner {
    jobs: LruCache<[u8; 32], Arc<Job>>,
    /// Times that jobs were forgotten.
    forgotten: u64,
}

/// A body that is looked up in the store.
pub struct Asked {
    sha256: [u8; 32],
    forgotten: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            jobs: LruCache::new(MAX_JOBS),
            forgotten: 0,
        })))
    }
}

impl Known {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that has moved these bytes as this format, if it is remembered. A request with a key is known by the key first.
    pub fn get(&self, new: &NewJob) -> Option<Arc<Job>> {
        if new.key.is_some() || !new.is_known_by_content {
            return None;
        }
        let mut inner = self.inner();
        let known = inner.jobs.get(&new.sha256)?;
        let is_same = known.pipeline == new.pipeline
            && known.stream == new.stream
            && known.format == new.format
            && known.encoding.as_deref() == new.encoding;
        is_same.then(|| Arc::clone(known))
    }

    /// To be called before a body is looked up in the store.
    pub fn ask(&self, new: &NewJob) -> Asked {
        Asked {
            sha256: new.sha256,
            forgotten: self.inner().forgotten,
        }
    }

    /// Remembers what the store has said, unless jobs were forgotten meanwhile.
    pub fn remember(&self, asked: &Asked, job: &Arc<Job>) {
        let mut inner = self.inner();
        if job.state == JobState::Done && inner.forgotten == asked.forgotten {
            inner.jobs.insert(asked.sha256, Arc::clone(job));
        }
    }

    /// Jobs are not in the store any more, or their bodies are not.
    pub fn forget(&self) {
        let mut inner = self.inner();
        inner.jobs.clear();
        inner.forgotten += 1;
    }
}
