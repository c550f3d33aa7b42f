//! Folders that came into being for a file, and go with it unless it stays.

use std::collections::HashMap;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use cap_std::fs::Dir;

use super::root;

/// Attempts at a file whose folder another one takes away: it was empty when that one was dropped.
pub(in crate::host) const TRIES: usize = 8;

/// Folders that nothing has stayed in so far, and how many outputs are at work in them: the last one
/// removes the folder, whichever made it.
static MADE: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);

fn made() -> MutexGuard<'static, HashMap<PathBuf, usize>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Dropped, it removes them again as far as they are empty.
#[derive(Default)]
pub(in crate::host) struct Made(Vec<Folder>);

struct Folder {
    /// Its key among the folders that this process made.
    path: PathBuf,
    /// Below a grant's folder: no link leads out of it.
    below: Option<(Dir, PathBuf)>,
    /// This output made it, and shares it with no earlier one.
    is_new: bool,
}

impl Made {
    /// Makes the folder of a grant, whose path the operator wrote; `trusted` as for [`root::open`].
    pub fn root(&mut self, folder: &Path, trusted: Option<u32>) -> std::io::Result<Dir> {
        let mut folders: Vec<&Path> = folder.ancestors().collect();
        folders.reverse();
        let mut there = Path::new("/");
        for path in folders.into_iter().take_while(|path| path.is_dir()) {
            self.count(Err(Io::AlreadyExists.into()), path.to_owned(), || Ok(None))?;
            there = path;
        }
        let dir = root::open(there, trusted)?;
        match folder.strip_prefix(there) {
            Ok(missing) if !missing.as_os_str().is_empty() => self.below(&dir, there, missing),
            _ => Ok(dir),
        }
    }

    /// Makes directories below the open one at `at`.
    pub fn below(&mut self, root: &Dir, at: &Path, inside: &Path) -> std::io::Result<Dir> {
        let mut path = PathBuf::new();
        for part in inside.components() {
            path.push(part);
            let result = root.create_dir(&path);
            let below = || Ok(Some((root.try_clone()?, path.clone())));
            self.count(result, at.join(&path), below)?;
        }
        root.open_dir(inside)
    }

    fn count(
        &mut self,
        result: std::io::Result<()>,
        path: PathBuf,
        below: impl FnOnce() -> std::io::Result<Option<(Dir, PathBuf)>>,
    ) -> std::io::Result<()> {
        let is_new = match result {
            Ok(()) => true,
            Err(error) if error.kind() == Io::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        let is_ours = {
            let mut made = made();
            if is_new {
                made.entry(path.clone()).or_insert(0);
            }
            let users = made.get_mut(&path);
            users.map(|users| *users += 1).is_some()
        };
        if is_ours {
            let below = below()?;
            self.0.push(Folder {
                path,
                below,
                is_new,
            });
        }
        Ok(())
    }

    /// How many directories came into being for this output.
    pub fn new_ones(&self) -> usize {
        self.0.iter().filter(|folder| folder.is_new).count()
    }

    /// They stay, whatever becomes of other outputs in them.
    pub fn keep(&mut self) {
        let mut made = made();
        for folder in self.0.drain(..) {
            made.remove(&folder.path);
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for Folder { path, below, .. } in self.0.drain(..).rev() {
            let is_last = {
                let mut made = made();
                match made.get_mut(&path) {
                    None => false,
                    Some(users) if *users > 1 => {
                        *users -= 1;
                        false
                    }
                    Some(_) => made.remove(&path).is_some(),
                }
            };
            if is_last {
                // One that holds something by now stays: it is somebody else's.
                let _ = match below {
                    Some((root, inside)) => root.remove_dir(inside),
                    None => std::fs::remove_dir(path),
                };
            }
        }
    }
}
