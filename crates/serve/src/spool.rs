//! The folder of bodies that are too large for the store of jobs.
//!
//! A file is written under a name that belongs to no job, and synced before its job is stored. What no job knows was
//! left by a process that ended in between, and is removed at the next start.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time for which an answer about the disk holds for small bodies.
const ROOM_FOR: Duration = Duration::from_millis(250);

/// The folder. Clones are the same folder.
#[derive(Clone)]
pub struct Spool(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// The folder that has this one. Small bodies are in the store, which is there, too: they need no spool.
    parent: PathBuf,
    /// Bytes of the disk that stay free.
    keep_free: u64,
    /// When the disk was last asked for small bodies, in milliseconds since `begun`, and its answer in the lowest bit.
    asked: AtomicU64,
    begun: Instant,
    /// The names of this process begin with the time of its start.
    started: u128,
    next: AtomicU64,
}

impl Spool {
    /// Makes the folder if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(folder: &Path, keep_free: u64) -> io::Result<Self> {
        make_private(folder)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self(Arc::new(Inner {
            folder: folder.to_owned(),
            parent: folder.parent().unwrap_or(folder).to_owned(),
            keep_free,
            asked: AtomicU64::new(0),
            begun: Instant::now(),
            started: since.unwrap_or_default().as_nanos(),
            next: AtomicU64::new(0),
        })))
    }

    /// Removes all files that belong to no job. Only at a start: a file that is being written belongs to none yet.
    ///
    /// # Errors
    /// The folder cannot be read. A file that cannot be removed stays.
    pub fn clean(&self, known: &HashSet<String>) -> io::Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.0.folder)? {
            let entry = entry?;
            let is_known = entry
                .file_name()
                .to_str()
                .is_some_and(|name| known.contains(name));
            if !is_known && fs::remove_file(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Whether the disk has room for `more` bytes beside those that stay free.
    ///
    /// # Errors
    /// The system does not say.
    pub fn has_room(&self, more: u64) -> io::Result<bool> {
        Ok(self.free_bytes()? >= self.0.keep_free.saturating_add(more))
    }

    /// Free bytes of the disk.
    ///
    /// # Errors
    /// The system does not say.
    pub fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.0.folder)
    }

    /// Refuses a folder that takes no files: it is missing, or cannot be written.
    ///
    /// # Errors
    /// The reason.
    pub fn ensure_usable(&self) -> io::Result<()> {
        let folder = &self.0.folder;
        if !fs::metadata(folder)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(rustix::fs::access(
            folder,
            rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
        )?)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Whether the disk of the store has room at all, for small bodies. The answer may be a quarter of a second old.
    ///
    /// # Errors
    /// The system does not say.
    pub fn has_room_now(&self) -> io::Result<bool> {
        let Inner { asked, begun, .. } = &*self.0;
        // At least 1: 0 is an answer that nobody asked for.
        let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX >> 1) + 1;
        let last = asked.load(Ordering::Relaxed);
        if last != 0 && u128::from(now - (last >> 1).min(now)) < ROOM_FOR.as_millis() {
            return Ok(last & 1 == 1);
        }
        let has_room = free_bytes(&self.0.parent)? >= self.0.keep_free;
        asked.store(now << 1 | u64::from(has_room), Ordering::Relaxed);
        Ok(has_room)
    }

    /// Removes files that no job has any more. One that is not there is removed.
    ///
    /// # Errors
    /// The first file that cannot be removed. It is removed at the next start.
    pub fn remove(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    /// Begins a file. It is removed when it is dropped, unless [`SpoolFile::keep`] was called.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn begin(&self) -> io::Result<SpoolFile> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:x}-{number:x}", self.0.started);
        let path = self.0.folder.join(&name);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .open(&path)?;
        Ok(SpoolFile {
            file: Some(file),
            name,
            path: Some(path),
        })
    }
}

/// The free bytes of the disk of a folder.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The mode of files with bodies or tokens: only the user of the server reads them.
pub const PRIVATE_FILE: u32 = 0o600;
/// The mode of their folders.
const PRIVATE_FOLDER: u32 = 0o700;

/// Makes a folder that only the server reads, and its parents, and syncs what is new.
///
/// # Errors
/// The folder cannot be made.
pub fn make_private(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        make_private(parent)?;
    }
    let mut maker = fs::DirBuilder::new();
    match maker.mode(PRIVATE_FOLDER).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

/// A file that is being written.
pub struct SpoolFile {
    /// `None` once it is synced: a request of many files has none of them open.
    file: Option<File>,
    name: String,
    /// `None` once it is kept, or removed.
    path: Option<PathBuf>,
}

impl SpoolFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// The disk does not take the bytes, or the file is synced.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_mut();
        file.ok_or_else(|| io::Error::other("the file is closed"))?
            .write_all(bytes)
    }

    /// Syncs the file and its name, and closes it.
    ///
    /// # Errors
    /// The disk does not take the bytes: nobody may rely on the file then.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            file.sync_all()?;
        }
        match self.path.as_deref().and_then(Path::parent) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Its name in the folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Leaves the file where it is, because a job may have it. Returns its path.
    pub fn keep(mut self) -> PathBuf {
        self.path.take().unwrap_or_default()
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else {
            return;
        };
        // What stays is removed at the next start.
        let remove = move || drop(fs::remove_file(path));
        // A large file takes a while, for which no other request waits.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_only_if_a_job_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path(), 0).expect("a spool");
        let mut kept = spool.begin().expect("a file");
        kept.write(b"a").expect("written");
        kept.sync().expect("synced");
        let name = kept.name().to_owned();
        kept.keep();
        drop(spool.begin().expect("a file"));
        let names = || -> Vec<String> {
            let entries = fs::read_dir(folder.path()).expect("a folder");
            let name = |entry: io::Result<fs::DirEntry>| {
                let name = entry.expect("an entry").file_name();
                name.into_string().expect("a name")
            };
            entries.map(name).collect()
        };
        assert_eq!(names(), std::slice::from_ref(&name));
        let known = HashSet::from([name.clone()]);
        assert_eq!(spool.clean(&known).expect("a look"), 0);
        assert_eq!(names(), [name]);
        assert_eq!(spool.clean(&HashSet::new()).expect("a look"), 1);
        assert!(names().is_empty());
    }

    #[test]
    fn a_folder_that_is_away_has_room_for_small_bodies_and_takes_no_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, away) = (folder.path().join("spool"), folder.path().join("away"));
        let spool = Spool::open(&own, 0).expect("a spool");
        spool.ensure_usable().expect("a folder");
        fs::rename(&own, &away).expect("renamed");
        assert!(spool.has_room_now().expect("an answer"));
        assert!(spool.ensure_usable().is_err() && spool.begin().is_err());
        fs::write(&own, "").expect("a file in its place");
        assert!(spool.ensure_usable().is_err());
        fs::remove_file(&own).expect("removed");
        fs::rename(&away, &own).expect("renamed back");
        spool.ensure_usable().expect("a folder");
    }

    #[test]
    fn the_room_of_the_disk_is_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::open(folder.path(), 0).expect("a spool");
        assert!(spool.has_room(1).expect("an answer"));
        assert!(!spool.has_room(u64::MAX).expect("an answer"));
        let careful = Spool::open(folder.path(), u64::MAX).expect("a spool");
        assert!(!careful.has_room(0).expect("an answer"));
    }
}
