//! Files that are written: under a temporary name, until they are whole.

use std::io::{ErrorKind as Io, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::fcntl_dupfd_cloexec;
use wasmtime::component::Resource;

use super::made::{Made, TRIES};
use super::{Held, Outcome, below, failed, locked, root};
use crate::Phase;
use crate::bindings::files::HostOutput;
use crate::bindings::types::{Error, ErrorKind};
use crate::ended;
use crate::grants::Granted;
use crate::host::apart::Abandoned;
use crate::host::exclusive;
use crate::host::folder::unsynced::Unsynced;
use crate::regular::OWN;
use crate::state::State;

/// A file that is written under a temporary name.
pub struct Output {
    dir: Dir,
    file: File,
    temporary: PathBuf,
    name: PathBuf,
    shown: String,
    /// Of a file of a folder that is not visible yet: the folder syncs its files together, and
    /// none is replaced.
    folder: Option<Arc<Unsynced>>,
    /// It must not take the place of another file.
    pub(super) is_new: bool,
    committed: bool,
    /// Last, so that they go after the file.
    pub(super) made: Made,
}

impl HostOutput for State {
    fn write(&mut self, this: Resource<Held<Output>>, data: Vec<u8>) -> Outcome<()> {
        self.check_cancelled()?;
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Flush, || {
            let (output, shown) = self.table.get(&this)?.for_call();
            let written = self.apart(&shown, move |_| locked(&output).write(&data))?;
            self.progress();
            Ok(written)
        })
    }

    fn sync(&mut self, this: Resource<Held<Output>>) -> Outcome<()> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Flush, || {
            let (output, shown) = self.table.get(&this)?.for_call();
            let synced = self.apart(&shown, move |_| locked(&output).file.sync_all())?;
            self.progress();
            Ok(synced.map_err(|error| failed(&shown, &error)))
        })
    }

    fn commit(&mut self, this: Resource<Held<Output>>) -> Outcome<()> {
        self.check_cancelled()?;
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Commit, || {
            let (output, shown) = self.table.get(&this)?.for_call();
            let committed = self.apart(&shown, move |given_up| locked(&output).commit(given_up))?;
            self.progress();
            Ok(committed)
        })
    }

    fn drop(&mut self, this: Resource<Held<Output>>) -> wasmtime::Result<()> {
        let Held { held, shown } = self.table.delete(this)?;
        // Removes a temporary file.
        self.apart(&shown, move |_| drop(held))?;
        self.one_file_less(&shown);
        Ok(())
    }
}

impl Output {
    /// Once the file has its name, others may read it and link to it.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        self.refuse_committed()?;
        let written = self.file.write_all(data);
        written.map_err(|error| failed(&self.shown, &error))
    }

    fn refuse_committed(&self) -> Result<(), Error> {
        if !self.committed {
            return Ok(());
        }
        let text = format!("{} is committed already", ended::short(&self.shown));
        Err(Error::new(ErrorKind::Internal, "output_committed", text)
            .hint("report it to the connector's author: the connector has a bug"))
    }

    pub(super) fn commit(&mut self, given_up: &Abandoned) -> Result<(), Error> {
        self.refuse_committed()?;
        let done = match self.folder.clone() {
            None if self.is_new => match self.link(given_up) {
                Err(error) if error.kind() == Io::AlreadyExists => {
                    return Err(exclusive::exists(&self.shown));
                }
                linked => linked,
            },
            None => self.replace(given_up),
            Some(unsynced) => match self.complete() {
                Ok(file) => return unsynced.add(file, &self.shown),
                Err(error) => Err(error),
            },
        };
        done.map_err(|error| failed(&self.shown, &error))
    }

    /// The file's bytes, then its name, then the folder's entry: after this a power cut finds
    /// the old file or the new one.
    fn replace(&mut self, given_up: &Abandoned) -> std::io::Result<()> {
        self.file.sync_all()?;
        given_up.check()?;
        self.dir.rename(&self.temporary, &self.dir, &self.name)?;
        self.committed = true;
        self.made.keep();
        exclusive::sync_folder(&self.dir)
    }

    /// The file's bytes, then its name, if no other file has it, then the folder's entry.
    fn link(&mut self, given_up: &Abandoned) -> std::io::Result<()> {
        self.file.sync_all()?;
        given_up.check()?;
        exclusive::link(&self.dir, &self.temporary, &self.name)?;
        self.committed = true;
        self.made.keep();
        exclusive::sync_folder(&self.dir)
    }

    /// The name in a folder that is not visible yet, and a handle for its sync.
    fn complete(&mut self) -> std::io::Result<OwnedFd> {
        if self.dir.try_exists(&self.name)? {
            // Names that differ in case alone are one name on some file systems.
            let text = "two files of one directory have the same name for this file system";
            return Err(std::io::Error::new(Io::InvalidInput, text));
        }
        let file = fcntl_dupfd_cloexec(&self.file, 0)?;
        self.dir.rename(&self.temporary, &self.dir, &self.name)?;
        self.committed = true;
        self.made.keep();
        Ok(file)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.committed {
            // Gone already, or the folder went away: nothing is left either way.
            let _ = self.dir.remove_file(&self.temporary);
        }
    }
}

pub(super) fn create(granted: &Granted, shown: &str) -> std::io::Result<Output> {
    refuse_special(&granted.path)?;
    let begin = || {
        let mut made = Made::default();
        let root = made.root(&granted.root, granted.trusted)?;
        create_within(
            (&root, &granted.root),
            &granted.inside()?,
            shown,
            None,
            made,
        )
    };
    (1..TRIES).fold(begin(), |result, _| match result {
        // Another output took away the folder that it had made.
        Err(error) if error.kind() == Io::NotFound => begin(),
        result => result,
    })
}

/// Begins a file at `inside` below an open folder and where it lies; it is `folder` if it is not
/// visible yet.
pub(in crate::host) fn create_within(
    (root, at): (&Dir, &Path),
    inside: &Path,
    shown: &str,
    folder: Option<Arc<Unsynced>>,
    mut made: Made,
) -> std::io::Result<Output> {
    let name = PathBuf::from(inside.file_name().ok_or(Io::InvalidInput)?);
    let dir = match inside.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => made.below(root, at, parent)?,
        None => root.try_clone()?,
    };
    if folder.is_none() {
        // In a new folder nothing is stale, and to look each time would take long with many files.
        remove_stale(&dir, &name);
    }
    let (file, temporary) = create_temporary(&dir, &name)?;
    Ok(Output {
        dir,
        file,
        temporary,
        name,
        shown: shown.into(),
        folder,
        is_new: false,
        committed: false,
        made,
    })
}

/// A new file that is locked for as long as this process writes it.
fn create_temporary(dir: &Dir, name: &Path) -> std::io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Another run may take the file for a stale one before it is locked; then a new one is made.
    for _ in 0..8 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let temporary = PathBuf::from(format!(".{}.{process}-{number}.tmp", name.display()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(OWN);
        let file = dir.open_with(&temporary, &options)?;
        // A file system without locks works as well: stale files are then never recognized.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        if dir.try_exists(&temporary)? {
            return Ok((file, temporary));
        }
    }
    Err(std::io::Error::other(
        "another run removes the temporary file again and again",
    ))
}

/// Removes what killed runs left for this target: temporary files that nobody holds locked.
pub(super) fn remove_stale(dir: &Dir, name: &Path) {
    let prefix = format!(".{}.", name.display());
    let Ok(entries) = dir.entries() else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let is_ours = found.to_str().is_some_and(|found| {
            let middle = found
                .strip_prefix(&prefix)
                .and_then(|f| f.strip_suffix(".tmp"));
            middle.is_some_and(|m| m.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
        });
        if !is_ours || !entry.metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let Some(file) = open_stale(dir, Path::new(&found)) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // The next run retries a removal that fails.
            let _ = dir.remove_file(&found);
        }
    }
}

/// Opens a file that may be stale, to lock it. Since the check, a neighbour may have put a pipe or a link
/// in its place.
pub(super) fn open_stale(dir: &Dir, name: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OWN);
    let file = dir.open_with(name, &options).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Only a regular file may be replaced: the rename would destroy a device or a link.
fn refuse_special(path: &str) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            let text = "exists and is not a regular file (but a directory, a link or a device)";
            Err(std::io::Error::new(Io::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

/// Tries to make a file in the nearest folder that exists, and removes it.
pub(super) fn probe(granted: &Granted) -> std::io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    refuse_special(&granted.path)?;
    let dir = nearest_folder(granted)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".rapidbyte-probe.{}-{number}.tmp", std::process::id());
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(OWN);
    dir.open_with(&name, &options)?;
    dir.remove_file(&name)
}

/// The nearest folder around a file that is there. Inside of the grant's folder no link leads out.
fn nearest_folder(granted: &Granted) -> std::io::Result<Dir> {
    let mut root = granted.root.as_path();
    if root.try_exists()? {
        let (dir, inside) = below(granted)?;
        let mut folder = inside.parent();
        while let Some(found) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
            match dir.open_dir(found) {
                Err(error) if error.kind() == Io::NotFound => folder = found.parent(),
                opened => return opened,
            }
        }
        return Ok(dir);
    }
    while !root.try_exists()? {
        root = root.parent().ok_or(Io::InvalidInput)?;
    }
    root::open(root, granted.trusted)
}

#[cfg(test)]
impl Output {
    /// Writes and commits, as a guest does with two calls.
    pub(in crate::host) fn write_and_commit(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).expect("written");
        self.commit(&Abandoned::default()).expect("committed");
    }

    pub(in crate::host) fn commit_for_test(&mut self) -> Result<(), Error> {
        self.commit(&Abandoned::default())
    }
}
