//! The turn of a pipeline: the right of one run to work in a directory.
//!
//! A run locks `pipeline-NAME.lock` beside the history before it plans, and keeps the lock to its end. The system
//! unlocks the file when the process dies, however it dies. The file names the run that holds the lock. A thread of the
//! run renews the modification time of the file, so that other runs see when the run was stopped.
//!
//! The file also remembers a run that the history could not record, because another process kept the history busy: the
//! next run resumes that run, or learns that it has ended.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::busy::is_stopped;
use crate::lock::OWN;
use crate::process::host;
use crate::{Result, StateError};

/// The time between two renewals of a lock.
const BEAT: Duration = Duration::from_secs(5);
/// A run that has not renewed its lock for this long counts as dead.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Rarely another run replaces the file between the open and the lock. This bounds the retries.
const MAX_TRIES: usize = 16;
/// The most bytes of a note that are read. A note has a few hundred.
const MAX_NOTE: u64 = 16 << 10;

/// The right to run a pipeline, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    file: File,
    path: PathBuf,
    note: Note,
    /// The run that had the turn before, if it succeeded.
    ended_before: Option<String>,
    /// The run that still held the turn when this run took it.
    taken_from: Option<Worker>,
    /// The directory of the file, if this run created it.
    made: Option<PathBuf>,
    /// Ends the thread that renews the lock when it is dropped.
    _beat: Sender<()>,
}

/// The content of a lock: the run that holds it, or held it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    /// `None` while the run plans.
    pub run: Option<String>,
    pub pid: u32,
    pub host: String,
    /// Seconds since 1970.
    pub began: u64,
    /// Whether the run has committed everything.
    pub has_ended: bool,
    /// An earlier run that succeeded, if the history may not know that.
    pub ended: Option<String>,
    /// An earlier run that did not end, if the history may not know it.
    pub unfinished: Option<String>,
    /// The inode of the file. A copy of the file has another inode.
    pub inode: u64,
    /// Whether this file is a copy. The unfinished run may then be alive beside the original.
    pub is_copied: bool,
}

/// A run that holds the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The id of the run. `None` while it plans.
    pub run: Option<String>,
    /// The process of the run.
    pub pid: u32,
    /// The machine of the process.
    pub host: String,
    /// The time since the run began.
    pub age: Duration,
    /// The time since the run last renewed its lock.
    pub silence: Duration,
    /// Whether the process is running and not stopped. `None` if the system does not tell.
    works: Option<bool>,
}

/// The device and the inode of a file.
type FileId = (u64, u64);

/// Tells whether a run still holds its turn.
#[derive(Debug, Clone)]
pub struct Watch {
    path: PathBuf,
    /// `None` if the system did not tell.
    id: Option<FileId>,
}

impl Watch {
    /// Whether another run has taken the turn. That run may have ended since. False if the system does not tell.
    pub fn is_lost(&self) -> bool {
        let Some(id) = self.id else { return false };
        match fs::symlink_metadata(&self.path) {
            Ok(meta) => id_of(meta) != id,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// The answer to a request for the turn.
#[derive(Debug)]
pub enum Asked {
    /// This process holds it now.
    Taken(Box<Turn>),
    /// Another run holds it.
    Held(Worker),
}

impl Worker {
    /// Whether the run counts as dead: it has not renewed its lock for [`SILENCE`], and the system does not say that
    /// its process is running.
    pub fn is_dead(&self) -> bool {
        // After a machine wakes up, the process continues and its run is alive.
        self.silence >= SILENCE && self.works != Some(true)
    }
}

impl Turn {
    /// Asks for the turn. With `replaces` this run takes the turn from the run that holds it; the older run continues
    /// until the destination fences it.
    ///
    /// # Errors
    /// If the file cannot be created or locked.
    pub fn ask(history: &Path, pipeline: &str, replaces: bool) -> Result<Asked> {
        crate::look::refuse_links(history)?;
        let path = path_of(history, pipeline);
        let failed = |error: std::io::Error| StateError::at(&path, error);
        let mut made = None;
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty())
            && !folder.exists()
        {
            fs::create_dir_all(folder).map_err(failed)?;
            made = Some(folder.to_owned());
        }
        let mut taken_from = None;
        for _ in 0..MAX_TRIES {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.custom_flags(OWN).open(&path).map_err(failed)?;
            let is_named = || is_at(&file, &path);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Another run replaced or removed the file between the open and the lock.
                Ok(()) if !is_named() => {}
                Ok(()) => {
                    let mut turn = Self::of(file, path, taken_from)?;
                    turn.made = made;
                    return Ok(Asked::Taken(Box::new(turn)));
                }
                Err(Errno::WOULDBLOCK) => {
                    let worker = worker(&file);
                    if !replaces && !worker.is_dead() {
                        return Ok(Asked::Held(worker));
                    }
                    if is_named() {
                        match fs::remove_file(&path) {
                            Err(error) if error.kind() != ErrorKind::NotFound => {
                                return Err(failed(error));
                            }
                            _ => {}
                        }
                        taken_from = Some(worker);
                    }
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
        let text = "other runs take it again and again";
        Err(StateError::at(&path, text))
    }

    fn of(file: File, path: PathBuf, taken_from: Option<Worker>) -> Result<Self> {
        let before = read(&file);
        let (ended_before, unfinished) = match before.has_ended {
            true => (before.run, None),
            false => (before.ended, before.run.or(before.unfinished)),
        };
        let failed = |error: std::io::Error| StateError::at(&path, error);
        let inode = file.metadata().map_err(failed)?.ino();
        let note = Note {
            run: None,
            pid: std::process::id(),
            host: host(),
            began: now(),
            has_ended: false,
            ended: ended_before.clone(),
            is_copied: unfinished.is_some() && (before.is_copied || before.inode != inode),
            unfinished,
            inode,
        };
        let beat = beat(&file).map_err(failed)?;
        let turn = Self {
            file,
            path,
            note,
            ended_before,
            taken_from,
            made: None,
            _beat: beat,
        };
        turn.write()?;
        Ok(turn)
    }

    /// The run that still held the turn when this run took it: it was dead, or this run replaces it.
    pub fn taken_from(&self) -> Option<&Worker> {
        self.taken_from.as_ref()
    }

    /// The id of the run in [`Turn::taken_from`]. `None` if it was still planning.
    pub fn taken_from_run(&self) -> Option<&str> {
        self.taken_from.as_ref()?.run.as_deref()
    }

    /// A watch that tells later whether another run has taken the turn.
    pub fn watch(&self) -> Watch {
        let meta = self.file.metadata();
        Watch {
            path: self.path.clone(),
            id: meta.ok().map(id_of),
        }
    }

    /// Whether `run` held the turn before this run and has died. False if the directory is a copy: the run may be alive
    /// beside the original.
    pub fn has_died(&self, run: &str) -> bool {
        let is_left = self.unfinished() == Some(run) && !self.note.is_copied;
        is_left || self.taken_from_run() == Some(run)
    }

    /// The run that held the turn before and did not end.
    pub(crate) fn unfinished(&self) -> Option<&str> {
        self.note.unfinished.as_deref()
    }

    /// The run before this one, if it succeeded and the history may not know that.
    pub(crate) fn ended_before(&self) -> Option<&String> {
        self.ended_before.as_ref()
    }

    /// Records which run holds the turn. The record is on the disk when this returns.
    pub(crate) fn begins(&mut self, run: &str) -> Result<()> {
        self.note.run = Some(run.to_owned());
        self.note.unfinished = None;
        self.note.is_copied = false;
        self.write()?;
        self.synced()
    }

    /// Records whether the run succeeded, for a history that could not record it.
    pub(crate) fn ended(&mut self, well: bool) -> Result<()> {
        self.note.has_ended = well;
        self.write()?;
        self.synced()
    }

    /// Removes the lock. The history knows everything, so the file does not have to remember a run.
    pub(crate) fn told(self) {
        if is_at(&self.file, &self.path) {
            // If the file stays, it says the same as the history.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(&self) -> Result<()> {
        let failed = |error: std::io::Error| StateError::at(&self.path, error);
        let text = serde_json::to_vec(&self.note).map_err(|error| failed(error.into()))?;
        self.file.write_all_at(&text, 0).map_err(failed)?;
        self.file.set_len(text.len() as u64).map_err(failed)
    }

    fn synced(&self) -> Result<()> {
        let synced = self.file.sync_all();
        synced.map_err(|error| StateError::at(&self.path, error))
    }

    /// Forgets a run that the history does not know, unless the run is alive.
    pub(crate) fn forget(history: &Path, pipeline: &str) {
        if let Ok(Asked::Taken(turn)) = Self::ask(history, pipeline, false) {
            turn.told();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Note {
            run,
            ended,
            unfinished,
            ..
        } = &self.note;
        // A run that was refused while it planned leaves no file, as if it had not started.
        if (run, ended, unfinished) == (&None, &None, &None) && is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
            if let Some(folder) = &self.made {
                // This fails if the directory has other files, which is right.
                let _ = fs::remove_dir(folder);
            }
        }
        // The thread may keep the file open for a moment longer, so dropping it does not release the lock at once.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether the path still leads to the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let open = file.metadata().map(id_of);
    matches!((open, fs::symlink_metadata(path).map(id_of)), (Ok(a), Ok(b)) if a == b)
}

fn id_of(meta: fs::Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

fn worker(file: &File) -> Worker {
    let note = read(file);
    let modified = file.metadata().and_then(|meta| meta.modified());
    let silence = modified.ok().and_then(|time| time.elapsed().ok());
    let is_here = note.host == host();
    Worker {
        works: is_here
            .then(|| is_stopped(note.pid))
            .flatten()
            .map(|is| !is),
        run: note.run,
        pid: note.pid,
        host: note.host,
        age: Duration::from_secs(now().saturating_sub(note.began)),
        silence: silence.unwrap_or_default(),
    }
}

/// An empty note if the file has none, or if another run is writing it.
fn read(mut file: &File) -> Note {
    let mut text = String::new();
    match file.by_ref().take(MAX_NOTE).read_to_string(&mut text) {
        Ok(_) => serde_json::from_str(&text).unwrap_or_default(),
        Err(_) => Note::default(),
    }
}

/// Renews the modification time of the file until the returned sender is dropped.
fn beat(file: &File) -> std::io::Result<Sender<()>> {
    let (tell, told) = mpsc::channel::<()>();
    let file = file.try_clone()?;
    let beats = move || {
        while told.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            // A single failed renewal does no harm.
            let _ = file.set_modified(SystemTime::now());
        }
    };
    let thread = std::thread::Builder::new().name("turn".into());
    thread.spawn(beats)?;
    Ok(tell)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn path_of(history: &Path, pipeline: &str) -> PathBuf {
    history.with_file_name(format!("pipeline-{pipeline}.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(history: &Path) -> Turn {
        match Turn::ask(history, "orders", false).unwrap() {
            Asked::Taken(turn) => *turn,
            Asked::Held(worker) => panic!("{worker:?}"),
        }
    }

    fn held(history: &Path) -> Worker {
        match Turn::ask(history, "orders", false).unwrap() {
            Asked::Held(worker) => worker,
            Asked::Taken(_) => panic!("nobody had it"),
        }
    }

    #[test]
    fn one_run_has_the_turn_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join(".rapidbyte/state.db");
        drop(taken(&history));
        assert!(
            !folder.path().join(".rapidbyte").exists(),
            "it only planned"
        );
        let mut first = taken(&history);
        assert_eq!(held(&history).run, None);
        first.begins("r1").unwrap();
        let worker = held(&history);
        assert_eq!(worker.run.as_deref(), Some("r1"));
        assert_eq!((worker.pid, worker.host), (std::process::id(), host()));
        drop(first);
        // The run did not end. The next run learns of it, even after another run that only planned.
        assert_eq!(taken(&history).unfinished(), Some("r1"));
        let mut third = taken(&history);
        assert_eq!(third.unfinished(), Some("r1"));
        third.begins("r1").unwrap();
        third.ended(true).unwrap();
        drop(third);
        assert_eq!(taken(&history).unfinished(), None);
    }

    #[test]
    fn a_run_that_replaces_takes_the_turn_and_the_older_one_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("state.db");
        let older = taken(&history);
        let Asked::Taken(mut newer) = Turn::ask(&history, "orders", true).unwrap() else {
            panic!("it takes the turn");
        };
        assert!(newer.taken_from().is_some());
        newer.begins("r2").unwrap();
        older.told();
        assert_eq!(held(&history).run.as_deref(), Some("r2"));
        newer.told();
        assert!(!path_of(&history, "orders").exists());
    }

    #[test]
    fn a_run_is_dead_when_it_is_silent_and_does_not_work() {
        let worker = |silence, works| Worker {
            run: None,
            pid: 1,
            host: String::new(),
            age: SILENCE,
            silence,
            works,
        };
        assert!(worker(SILENCE, Some(false)).is_dead() && worker(SILENCE, None).is_dead());
        // After the machine has slept, the file of a living run is old.
        assert!(!worker(SILENCE, Some(true)).is_dead());
        assert!(!worker(BEAT, Some(false)).is_dead());
    }
}
