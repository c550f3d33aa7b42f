//! The bodies of a run, and which of them its reader sees.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rapidbyte_runtime::{VirtualFile, VirtualFolder};

use super::Problem;
use super::blame::file_name;
use super::spooled::{Spooled, ensure_whole};
use crate::spool::Spool;
use crate::store::{Body, Pending};

/// The bodies that a run has taken. The reader sees all of them, or, where it infers their columns, one after the other:
/// together, each would change the columns of the others.
pub(super) struct Bodies {
    folder: Arc<VirtualFolder>,
    /// Those on the disk that the reader sees.
    on_disk: Vec<Spooled>,
    /// Those that it sees one after the other.
    one_by_one: Vec<Small>,
    /// How many of them the reader has seen before the current one.
    before: usize,
}

/// A body in memory.
struct Small {
    job: i64,
    name: String,
    file: VirtualFile,
}

impl Bodies {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: Arc::new(VirtualFolder::new(folder)),
            on_disk: Vec::new(),
            one_by_one: Vec::new(),
            before: 0,
        }
    }

    /// Where the reader sees them.
    pub(super) fn folder(&self) -> Arc<VirtualFolder> {
        Arc::clone(&self.folder)
    }

    /// Takes the bodies of these jobs in the place of those before. Without `together`, those behind the first body on the
    /// disk are left out, and the reader sees the first one.
    ///
    /// # Errors
    /// A body on the disk is gone, or has another size.
    pub(super) fn take(
        &mut self,
        spool: &Spool,
        jobs: &[&Pending],
        together: bool,
    ) -> Result<(), Problem> {
        self.clear();
        let mut files = BTreeMap::new();
        for job in jobs {
            let file = match &job.body {
                Body::Inline(bytes) => VirtualFile::Bytes(Arc::clone(bytes)),
                Body::Spooled(_) if !together && !self.one_by_one.is_empty() => break,
                Body::Spooled(name) => {
                    let path = spool.path(name);
                    ensure_whole(job.id, job.bytes, &path)?;
                    let body = Spooled::new(job, path);
                    let file = VirtualFile::OnDisk {
                        path: body.path.clone(),
                        bytes: job.bytes,
                        digested: Arc::clone(&body.digested),
                    };
                    self.on_disk.push(body);
                    file
                }
            };
            let name = file_name(job);
            if together {
                files.insert(name, file);
                continue;
            }
            let is_alone = matches!(file, VirtualFile::OnDisk { .. });
            let job = job.id;
            self.one_by_one.push(Small { job, name, file });
            if is_alone {
                break;
            }
        }
        match together {
            true => self.folder.replace(files),
            false => self.show(),
        }
        Ok(())
    }

    /// No bodies.
    pub(super) fn clear(&mut self) {
        (self.on_disk, self.one_by_one, self.before) = (Vec::new(), Vec::new(), 0);
        self.folder.replace(BTreeMap::new());
    }

    /// Those on the disk that the reader sees.
    pub(super) fn on_disk(&self) -> Vec<Spooled> {
        self.on_disk.clone()
    }

    /// The number of jobs up to the body that the reader sees, and the id of the last one. `None` where it sees all of them.
    pub(super) fn reached(&self) -> Option<(u64, i64)> {
        let body = self.one_by_one.get(self.before)?;
        Some((self.before as u64 + 1, body.job))
    }

    /// Shows the next body in the place of the last one. False: there is none.
    pub(super) fn turn(&mut self) -> bool {
        if self.before + 1 >= self.one_by_one.len() {
            return false;
        }
        self.before += 1;
        self.show();
        true
    }

    /// Shows the body before: the last turn does not count.
    pub(super) fn turn_back(&mut self) {
        self.before = self.before.saturating_sub(1);
        self.show();
    }

    /// Shows the first body again.
    pub(super) fn rewind(&mut self) {
        self.before = 0;
        self.show();
    }

    /// The folder has the current body. It stays as it is where the reader sees all bodies.
    fn show(&self) {
        if let Some(body) = self.one_by_one.get(self.before) {
            let shown = (body.name.clone(), body.file.clone());
            self.folder.replace(BTreeMap::from([shown]));
        }
    }
}
