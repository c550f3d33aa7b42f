//! Folders of `files`: written beside their place and put there as a whole.
//!
//! The new folder has a hidden name next to the older folder until its commit, which exchanges the two
//! names in one step of the file system. So a reader finds the older files or the new files, never
//! some of each, and a killed run leaves the older files. A pattern says which files belong into a
//! folder; a folder with any other file is not ours to replace.

use std::io::ErrorKind as Io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cap_std::fs::Dir;
use rapidbyte_wire::pattern;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags, flock, fsync, openat, renameat_with};
use rustix::io::Errno;
use wasmtime::component::Resource;

use super::apart::Abandoned;
use super::files::made::Made;
use super::files::{Held, MAX_ENTRIES, Outcome, Output, create_within, failed, locked};
use crate::Phase;
use crate::bindings::files::HostOutputFolder;
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::GrantedFolder;
use crate::state::State;

pub(super) mod unsynced;

use unsynced::Unsynced;

/// A folder that is written under a temporary name.
pub struct OutputFolder {
    /// The place of the directory.
    parent: Dir,
    name: PathBuf,
    temporary: PathBuf,
    dir: Dir,
    /// Held locked, so that no other run takes the folder for what a killed run left.
    _lock: OwnedFd,
    granted: GrantedFolder,
    shown: String,
    /// Its complete files.
    files: Arc<Unsynced>,
    /// The hidden folder holds what is not ours, and stays.
    leaves: AtomicBool,
    /// Last, so that they go after the folder.
    made: Mutex<Made>,
}

/// As a guest has it.
pub type HeldFolder = Held<OutputFolder>;

/// Begins a folder that the grants allow.
pub(super) fn begin(granted: GrantedFolder, shown: String) -> Result<OutputFolder, Error> {
    let told = |error: std::io::Error| failed(&shown, &error);
    let mut made = Made::default();
    let (parent, name) = open_parent(&granted, &mut made).map_err(told)?;
    refuse_foreign(&parent, &name, &granted, &shown)?;
    remove_stale(&parent, &name, &granted.pattern, &granted.folder);
    let (temporary, dir, lock) = create_temporary(&parent, &name).map_err(told)?;
    Ok(OutputFolder {
        parent,
        name,
        temporary,
        dir,
        _lock: lock,
        granted,
        shown,
        files: Arc::default(),
        leaves: AtomicBool::new(false),
        made: Mutex::new(made),
    })
}

/// A handle on the folder around, and the name in it.
fn open_parent(granted: &GrantedFolder, made: &mut Made) -> std::io::Result<(Dir, PathBuf)> {
    let folder = Path::new(&granted.folder);
    let name = PathBuf::from(folder.file_name().ok_or(Io::InvalidInput)?);
    let around = folder.parent().ok_or(Io::InvalidInput)?;
    // No link inside the grant's root leads out of it; the root itself is the operator's word.
    let Ok(inside) = around.strip_prefix(&granted.root) else {
        return Ok((made.root(around, granted.trusted)?, name));
    };
    let root = made.root(&granted.root, granted.trusted)?;
    if inside.as_os_str().is_empty() {
        return Ok((root, name));
    }
    Ok((made.below(&root, &granted.root, inside)?, name))
}

/// Refuses a place that holds something else than files of the pattern.
fn refuse_foreign(
    parent: &Dir,
    name: &Path,
    granted: &GrantedFolder,
    shown: &str,
) -> Result<(), Error> {
    let refused = |text: String| {
        let hint = "write to a directory that only this stream uses, or move the other files \
                    away: the run replaces the whole directory";
        Err(Error::new(ErrorKind::Config, "foreign_file", text).hint(hint))
    };
    match parent.symlink_metadata(name) {
        Err(error) if error.kind() == Io::NotFound => return Ok(()),
        Err(error) => return Err(failed(shown, &error)),
        Ok(found) if !found.is_dir() => return refused(format!("{shown} is not a directory")),
        Ok(_) => {}
    }
    let mut walk = Walk::new(granted);
    let looked = parent
        .open_dir(name)
        .and_then(|dir| walk.look(&dir, Path::new("")));
    looked.map_err(|error| failed(shown, &error))?;
    match walk.foreign.first() {
        None => Ok(()),
        Some(inside) => refused(format!(
            "{shown} contains {}, which is not a file of this stream",
            inside.display()
        )),
    }
}

/// Looks through a folder, as deep as its pattern goes.
struct Walk<'a> {
    folder: &'a str,
    pattern: &'a str,
    depth: usize,
    entries: usize,
    files: Vec<PathBuf>,
    /// Each after the folders in it.
    folders: Vec<PathBuf>,
    /// Entries that the pattern does not cover.
    foreign: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(granted: &'a GrantedFolder) -> Self {
        Self::of(&granted.folder, &granted.pattern)
    }

    fn of(folder: &'a str, pattern: &'a str) -> Self {
        Self {
            depth: pattern.matches('/').count() - folder.matches('/').count(),
            folder,
            pattern,
            entries: 0,
            files: Vec::new(),
            folders: Vec::new(),
            foreign: Vec::new(),
        }
    }

    fn look(&mut self, dir: &Dir, inside: &Path) -> std::io::Result<()> {
        for entry in dir.entries()? {
            let entry = entry?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                let text = format!("holds more than {MAX_ENTRIES} entries");
                return Err(std::io::Error::other(text));
            }
            let path = inside.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && path.iter().count() < self.depth {
                self.look(&entry.open_dir()?, &path)?;
                self.folders.push(path);
            } else if kind.is_file() && self.covers(&path) {
                self.files.push(path);
            } else {
                self.foreign.push(path);
            }
        }
        Ok(())
    }

    fn covers(&self, inside: &Path) -> bool {
        inside.to_str().is_some_and(|inside| {
            pattern::matches_path(self.pattern, &format!("{}/{inside}", self.folder))
        })
    }
}

/// A new folder under a hidden name, locked for as long as this process writes it.
fn create_temporary(parent: &Dir, name: &Path) -> std::io::Result<(PathBuf, Dir, OwnedFd)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Another run may take the folder for a stale one before it is locked; then a new one is made.
    for _ in 0..8 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let temporary = PathBuf::from(format!(".{}.{process}-{number}.tmp", name.display()));
        parent.create_dir(&temporary)?;
        let opened = parent
            .open_dir(&temporary)
            .and_then(|dir| Ok((open_folder(&dir)?, dir)));
        let Ok((lock, dir)) = opened else { continue };
        // A file system without locks works as well: stale folders are then never recognized.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if parent.try_exists(&temporary)? {
            return Ok((temporary, dir, lock));
        }
    }
    Err(std::io::Error::other(
        "another run removes the temporary directory again and again",
    ))
}

/// A handle that can be locked and synced, which cap-std's own cannot.
fn open_folder(dir: &Dir) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(dir.as_fd(), ".", flags, Mode::empty())?)
}

/// Removes what killed runs left for this folder: hidden folders that nobody holds locked.
fn remove_stale(parent: &Dir, name: &Path, pattern: &str, folder: &str) {
    let prefix = format!(".{}.", name.display());
    let Ok(entries) = parent.entries() else {
        return;
    };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let middle = found
            .to_str()
            .and_then(|found| found.strip_prefix(&prefix)?.strip_suffix(".tmp"));
        let is_ours = middle.is_some_and(|m| m.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(lock) = entry.open_dir().and_then(|dir| open_folder(&dir)) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_known(parent, Path::new(&found), pattern, folder);
        }
    }
}

/// Removes the files of the pattern and the folders that are then empty. The next run retries a
/// removal that fails; files that came into the folder from elsewhere stay.
fn remove_known(parent: &Dir, name: &Path, pattern: &str, folder: &str) {
    let Ok(dir) = parent.open_dir(name) else {
        return;
    };
    let mut walk = Walk::of(folder, pattern);
    let _ = walk.look(&dir, Path::new(""));
    // Temporary files of outputs that were never committed.
    let unfinished = walk.foreign.iter().filter(|path| is_temporary(path));
    for file in walk.files.iter().chain(unfinished) {
        let _ = dir.remove_file(file);
    }
    for folder in &walk.folders {
        let _ = dir.remove_dir(folder);
    }
    let _ = parent.remove_dir(name);
}

fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp"))
}

impl OutputFolder {
    fn create(&self, path: &str, shown: &str) -> std::io::Result<Output> {
        let inside = Path::new(path)
            .strip_prefix(&self.granted.folder)
            .map_err(std::io::Error::other)?;
        let files = Some(self.files.clone());
        let at = Path::new(&self.granted.folder).join(&self.temporary);
        create_within((&self.dir, &at), inside, shown, files, Made::default())
    }

    /// The files and their names, then the exchange, then the entry in the folder around: after this a
    /// power cut finds the older folder or the new one.
    fn commit(&self, given_up: &Abandoned) -> Result<(), Error> {
        let told = |error: std::io::Error| failed(&self.shown, &error);
        let mut walk = Walk::new(&self.granted);
        walk.look(&self.dir, Path::new("")).map_err(told)?;
        if let Some(file) = walk.foreign.first() {
            let text = format!("{} was not committed before its directory", file.display());
            return Err(Error::new(ErrorKind::Internal, "file_not_committed", text));
        }
        let folders = walk.folders.iter().map(PathBuf::as_path);
        for inside in folders.chain([Path::new(".")]) {
            let folder = self.dir.open_dir(inside).map_err(told)?;
            let folder = open_folder(&folder).map_err(told)?;
            self.files.add(folder, &self.shown)?;
        }
        self.files.sync()?;
        refuse_foreign(&self.parent, &self.name, &self.granted, &self.shown)?;
        given_up.check().map_err(told)?;
        self.exchange()?;
        self.refuse_displaced()?;
        locked(&self.made).keep();
        let synced = open_folder(&self.parent).and_then(|folder| Ok(fsync(folder)?));
        synced.map_err(told)
    }

    /// Files that came into the older folder between the check and the exchange are not ours: the
    /// exchange is undone, so that they are in their place again.
    fn refuse_displaced(&self) -> Result<(), Error> {
        let displaced = refuse_foreign(&self.parent, &self.temporary, &self.granted, &self.shown);
        let Err(error) = displaced else {
            return Ok(());
        };
        let parent = self.parent.as_fd();
        let (old, new) = (&self.temporary, &self.name);
        match renameat_with(parent, old, parent, new, RenameFlags::EXCHANGE) {
            Ok(()) => Err(error),
            Err(cause) => {
                self.leaves.store(true, Ordering::SeqCst);
                let text = format!(
                    "{}; it is now in {} beside it, because the exchange could not be undone: \
                         {cause}",
                    error.message,
                    self.temporary.display()
                );
                let moved = Error::new(ErrorKind::Config, "foreign_file", text);
                Err(moved.hint("move the file out of that directory, and remove the directory"))
            }
        }
    }

    fn exchange(&self) -> Result<(), Error> {
        let parent = self.parent.as_fd();
        let rename = |flags| renameat_with(parent, &self.temporary, parent, &self.name, flags);
        let is_there = self.parent.symlink_metadata(&self.name).is_ok();
        let renamed = match is_there {
            true => rename(RenameFlags::EXCHANGE),
            false => match rename(RenameFlags::NOREPLACE) {
                // A file system that knows no such flag.
                Err(Errno::INVAL | Errno::NOSYS) => rename(RenameFlags::empty()),
                renamed => renamed,
            },
        };
        renamed.map_err(|error| match error {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                let text = format!(
                    "{}: this file system cannot exchange two directories in one step",
                    self.shown
                );
                Error::new(ErrorKind::Config, "folder_not_replaceable", text).hint(
                    "write to a new directory, or to another file system such as ext4 or \
                         xfs",
                )
            }
            error => failed(&self.shown, &error.into()),
        })
    }
}

impl Drop for OutputFolder {
    /// Removes the folder under the hidden name: the new folder, or after the commit the older folder.
    fn drop(&mut self) {
        if self.leaves.load(Ordering::SeqCst) {
            return;
        }
        let GrantedFolder {
            pattern, folder, ..
        } = &self.granted;
        remove_known(&self.parent, &self.temporary, pattern, folder);
    }
}

impl HostOutputFolder for State {
    fn create(
        &mut self,
        this: Resource<Held<OutputFolder>>,
        path: String,
    ) -> Outcome<Resource<Held<Output>>> {
        let (folder, _) = self.table.get(&this)?.for_call();
        let granted = self.sandbox.grants.writable(&path);
        let is_of_it = |path: &str| pattern::matches_path(&locked(&folder).granted.pattern, path);
        let Some(granted) = granted.filter(|granted| is_of_it(&granted.path)) else {
            return Ok(Err(self.not_granted("write", &path)));
        };
        let counted = self
            .one_file_begun()
            .and_then(|()| self.one_more_file(&path));
        if let Err(error) = counted {
            return Ok(Err(error));
        }
        let clock = self.sandbox.clock.clone();
        let shown = path.clone();
        let created = clock.outside(Phase::Flush, || {
            self.apart(&path, move |_| {
                locked(&folder).create(&granted.path, &shown)
            })
        })?;
        match created {
            Ok(output) => {
                self.folders_begun(&output);
                Ok(Ok(self.table.push(Held::new(output, path))?))
            }
            Err(error) => {
                self.one_file_less(&path);
                Ok(Err(failed(&path, &error)))
            }
        }
    }

    fn commit(&mut self, this: Resource<Held<OutputFolder>>) -> Outcome<()> {
        self.check_cancelled()?;
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Commit, || {
            let (folder, shown) = self.table.get(&this)?.for_call();
            let committed = self.apart(&shown, move |given_up| locked(&folder).commit(given_up))?;
            self.progress();
            Ok(committed)
        })
    }

    fn drop(&mut self, this: Resource<Held<OutputFolder>>) -> wasmtime::Result<()> {
        let folder = self.table.delete(this)?;
        let clock = self.sandbox.clock.clone();
        let shown = folder.shown.clone();
        // Removes a folder, perhaps a large one.
        clock.outside(Phase::Commit, || self.apart(&shown, move |_| drop(folder)))?;
        self.progress();
        self.one_file_less(&shown);
        Ok(())
    }
}

#[cfg(test)]
#[path = "folder/tests.rs"]
mod tests;
