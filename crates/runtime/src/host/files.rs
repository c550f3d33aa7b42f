//! `files`: the files that the configuration names, and no others.
//!
//! Every path is opened below the folder of its grant, through a handle on that folder, so that
//! neither `..` nor a symbolic link leads out of it.

use std::io::{ErrorKind as Io, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::UNIX_EPOCH;

use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use rapidbyte_wire::pattern;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::fcntl_dupfd_cloexec;
use wasmtime::component::Resource;

use crate::Phase;
use crate::bindings::files::{Entry, Host, HostInput, HostOutput};
use crate::bindings::log::Level;
use crate::bindings::types::{Error, ErrorKind};
use crate::digested::Digested;
use crate::ended;
use crate::grants::Granted;
use crate::host::apart::Abandoned;
use crate::host::exclusive;
use crate::host::files::made::{Made, TRIES};
use crate::host::files::root::ForeignLink;
pub(crate) use crate::host::files::root::foreign_link;
use crate::host::folder::unsynced::Unsynced;
use crate::host::folder::{OutputFolder, begin};
use crate::limits::MOST_BEGUN;
use crate::regular::{NONBLOCK, OWN};
use crate::state::State;
use crate::virtual_folder::VirtualFile;

pub(super) mod made;
pub(super) mod root;

/// A file that is read.
pub struct Input {
    content: Content,
    shown: String,
}

/// Where its bytes are.
#[derive(Clone)]
enum Content {
    /// With what hashes the bytes, if the program wants to know whether they are the right ones.
    Disk(Arc<std::fs::File>, Option<Arc<Digested>>),
    Memory(Arc<[u8]>),
}

/// The files that match a pattern.
#[derive(Default)]
struct Found {
    /// Paths and sizes.
    files: Vec<(String, u64)>,
    /// Links out of the pattern's directory: nothing grants their targets.
    outward: Vec<String>,
}

/// Something of a guest's that file calls work on, on a thread of their own: a call that was given
/// up may still have it.
pub struct Held<T> {
    held: Arc<Mutex<T>>,
    pub(super) shown: String,
}

impl<T> Held<T> {
    pub(super) fn new(held: T, shown: String) -> Self {
        let held = Arc::new(Mutex::new(held));
        Self { held, shown }
    }

    /// For a call that runs elsewhere, with its name for messages.
    pub(super) fn for_call(&self) -> (Arc<Mutex<T>>, String) {
        (Arc::clone(&self.held), self.shown.clone())
    }
}

/// As a guest has it.
pub type HeldOutput = Held<Output>;

/// Calls come one after another, so that nobody waits here.
pub(super) fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    is_new: bool,
    committed: bool,
    /// Last, so that they go after the file.
    made: Made,
}

/// The most that one `read` gives.
const MAX_READ: u32 = 16 << 20;
/// The least that one `read` may give, however much the host holds.
const MIN_READ: usize = 4 << 10;
/// The host's memory for an open file without its path: handles, names, the entry that waits for a sync.
const HELD_BYTES: usize = 8 << 10;
/// Files that one pattern may find.
pub(super) const MAX_ENTRIES: usize = 100_000;

pub(super) type Outcome<T> = wasmtime::Result<Result<T, Error>>;

impl Host for State {
    fn find(&mut self, asked: String) -> Outcome<Vec<Entry>> {
        // A guest that may write a file may also know that the file exists.
        let grants = &self.sandbox.grants;
        let Some(granted) = grants.readable(&asked).or_else(|| grants.writable(&asked)) else {
            return Ok(Err(self.not_granted("read", &asked)));
        };
        let clock = self.sandbox.clock.clone();
        let room = self.host_room();
        let given = grants
            .virtual_folder()
            .and_then(|folder| folder.find(&granted));
        let found = match given {
            Some(files) => Ok(Found {
                files,
                outward: Vec::new(),
            }),
            None => clock.outside(Phase::Query, || {
                self.apart(&asked, move |_| find(&granted, room))
            })?,
        };
        clock.outside(Phase::Query, || match found {
            Ok(Found {
                files: mut paths,
                outward,
            }) => {
                if let Some(first) = outward.first() {
                    let text = format!(
                        "{} of the files that match {} lead out of its directory through a link \
                             and are skipped, such as {}: name the link's target itself to read it",
                        outward.len(),
                        ended::short(&asked),
                        ended::short(self.sandbox.grants.shown(first))
                    );
                    let stream = self.sandbox.stream.as_deref();
                    (self.sandbox.log)(&self.connector, stream, Level::Warn, &text);
                }
                paths.sort_by(|a, b| a.0.cmp(&b.0));
                let shown = |path: &str| self.sandbox.grants.shown(path).to_owned();
                Ok(Ok(paths
                    .iter()
                    .map(|(p, size)| Entry {
                        path: shown(p),
                        size: *size,
                    })
                    .collect()))
            }
            Err(error) => Ok(Err(failed(&asked, &error))),
        })
    }

    fn open(&mut self, path: String) -> Outcome<Resource<Input>> {
        let Some(granted) = self.sandbox.grants.readable(&path) else {
            return Ok(Err(self.not_granted("read", &path)));
        };
        if let Err(error) = self.one_more_file(&path) {
            return Ok(Err(error));
        }
        match self.open_granted(&path, granted)? {
            Ok(content) => Ok(Ok(self.table.push(Input {
                content,
                shown: path,
            })?)),
            Err(error) => {
                self.one_file_less(&path);
                Ok(Err(refused(&path, &error)))
            }
        }
    }

    fn create(&mut self, path: String) -> Outcome<Resource<Held<Output>>> {
        self.begin_file(path, false)
    }

    fn create_new(&mut self, path: String) -> Outcome<Resource<Held<Output>>> {
        self.begin_file(path, true)
    }

    fn rename(&mut self, from: String, to: String) -> Outcome<()> {
        self.check_cancelled()?;
        if let Err(error) = self.may_write(&from) {
            return Ok(Err(error));
        }
        let grants = &self.sandbox.grants;
        let Some(granted) = grants.writable(&from) else {
            return Ok(Err(self.not_granted("write", &from)));
        };
        let Some(target) = grants.writable(&to) else {
            return Ok(Err(self.not_granted("write", &to)));
        };
        let clock = self.sandbox.clock.clone();
        let renamed = clock.outside(Phase::Commit, || {
            self.apart(&from, move |_| exclusive::rename(&granted, &target))
        })?;
        self.progress();
        Ok(renamed.map_err(|error| match error.kind() {
            Io::AlreadyExists => exclusive::exists(&to),
            _ => failed(&from, &error),
        }))
    }

    fn remove(&mut self, path: String) -> Outcome<()> {
        self.check_cancelled()?;
        if let Err(error) = self.may_write(&path) {
            return Ok(Err(error));
        }
        let Some(granted) = self.sandbox.grants.writable(&path) else {
            return Ok(Err(self.not_granted("write", &path)));
        };
        let clock = self.sandbox.clock.clone();
        let removed = clock.outside(Phase::Commit, || {
            self.apart(&path, move |_| exclusive::remove(&granted))
        })?;
        self.progress();
        Ok(removed.map_err(|error| failed(&path, &error)))
    }

    fn probe(&mut self, path: String) -> Outcome<()> {
        let Some(granted) = self.sandbox.grants.writable(&path) else {
            return Ok(Err(self.not_granted("write", &path)));
        };
        let probed = self.apart(&path, move |_| probe(&granted))?;
        Ok(probed.map_err(|error| failed(&path, &error)))
    }

    fn create_folder(
        &mut self,
        folder: String,
        pattern: String,
    ) -> Outcome<Resource<Held<OutputFolder>>> {
        let Some(granted) = self.sandbox.grants.folder(&folder, &pattern) else {
            return Ok(Err(self.not_granted("replace", &folder)));
        };
        if let Err(error) = self.may_write(&folder).and_then(|()| self.one_file_begun()) {
            return Ok(Err(error));
        }
        if let Err(error) = self.one_more_file(&folder) {
            return Ok(Err(error));
        }
        let clock = self.sandbox.clock.clone();
        let shown = folder.clone();
        let begun = clock.outside(Phase::Query, || {
            self.apart(&shown, move |_| begin(granted, folder))
        })?;
        match begun {
            Ok(output) => Ok(Ok(self.table.push(Held::new(output, shown))?)),
            Err(error) => {
                self.one_file_less(&shown);
                Ok(Err(error))
            }
        }
    }
}

impl State {
    fn open_granted(
        &mut self,
        path: &str,
        granted: Granted,
    ) -> wasmtime::Result<std::io::Result<Content>> {
        let folder = self.sandbox.grants.virtual_folder();
        let given = folder.and_then(|folder| folder.get(&granted));
        let on_disk = match given {
            Some(Some(VirtualFile::Bytes(bytes))) => return Ok(Ok(Content::Memory(bytes))),
            Some(Some(VirtualFile::OnDisk { path, digested, .. })) => Some((path, digested)),
            Some(None) => return Ok(Err(Io::NotFound.into())),
            None => None,
        };
        let clock = self.sandbox.clock.clone();
        let (on_disk, digested) = on_disk.unzip();
        let opened = clock.outside(Phase::Query, || {
            self.apart(path, move |_| match on_disk {
                Some(path) => std::fs::File::open(path),
                None => open(&granted),
            })
        })?;
        Ok(opened.map(|file| Content::Disk(Arc::new(file), digested)))
    }

    /// Size and times of a file of the disk.
    fn metadata(
        &mut self,
        this: &Resource<Input>,
        file: Arc<std::fs::File>,
    ) -> wasmtime::Result<std::io::Result<std::fs::Metadata>> {
        let shown = self.table.get(this)?.shown.clone();
        self.apart(&shown, move |_| file.metadata())
    }

    /// Refuses a change of the disk while a run is only planned.
    fn may_write(&self, path: &str) -> Result<(), Error> {
        if !self.sandbox.grants.looks_only() {
            return Ok(());
        }
        let text = format!(
            "{} may not write {} before the run has begun",
            self.connector,
            ended::short(path)
        );
        Err(
            Error::new(ErrorKind::Internal, "writes_while_planning", text).hint(
                "report it to the connector's author: plan, check, discover and doctor write \
                     nothing",
            ),
        )
    }

    fn begin_file(&mut self, path: String, is_new: bool) -> Outcome<Resource<Held<Output>>> {
        let Some(granted) = self.sandbox.grants.writable(&path) else {
            return Ok(Err(self.not_granted("write", &path)));
        };
        if let Err(error) = self.may_write(&path).and_then(|()| self.one_file_begun()) {
            return Ok(Err(error));
        }
        if let Err(error) = self.one_more_file(&path) {
            return Ok(Err(error));
        }
        let clock = self.sandbox.clock.clone();
        let shown = path.clone();
        let created = clock.outside(Phase::Flush, || {
            self.apart(&path, move |_| create(&granted, &shown))
        })?;
        match created {
            Ok(mut output) => {
                output.is_new = is_new;
                self.folders_begun(&output);
                Ok(Ok(self.table.push(Held::new(output, path))?))
            }
            Err(error) => {
                self.one_file_less(&path);
                Ok(Err(failed(&path, &error)))
            }
        }
    }

    pub(super) fn not_granted(&self, what: &str, path: &str) -> Error {
        let text = format!("{} may not {what} {}", self.connector, ended::short(path));
        let error = Error::new(ErrorKind::Config, "file_not_granted", text);
        match what != "read" && self.sandbox.grants.is_own(path) {
            true => error.hint(
                "name another file: connectors do not write the pipeline, rapidbyte.lock, .env \
                     or .rapidbyte",
            ),
            false => error.hint(
                "name the path in the configuration; * and ? do not match a dot at the start of \
                     a name",
            ),
        }
    }

    /// Counts a file or folder that is about to be made, in all of the run.
    pub(super) fn one_file_begun(&self) -> Result<(), Error> {
        if self.sandbox.limits.begun.take() {
            return Ok(());
        }
        let text = format!("more than {MOST_BEGUN} files and directories created in one run");
        Err(Error::new(ErrorKind::Internal, "too_many_files", text)
            .hint("write larger files, or partition by columns with fewer values"))
    }

    /// Counts the directories that an output made: the next output is refused once they are too many.
    pub(super) fn folders_begun(&self, output: &Output) {
        for _ in 0..output.made.new_ones() {
            self.sandbox.limits.begun.take();
        }
    }

    /// Counts a file or folder that is about to be opened under this path.
    pub(super) fn one_more_file(&mut self, path: &str) -> Result<(), Error> {
        let limit = self.sandbox.limits.files;
        if self.files >= limit {
            let text = format!("more than {limit} open files");
            return Err(Error::new(ErrorKind::Internal, "too_many_files", text));
        }
        self.hold(HELD_BYTES + path.len())?;
        self.files += 1;
        Ok(())
    }

    /// The reverse, with the same path.
    pub(super) fn one_file_less(&mut self, path: &str) {
        self.release(HELD_BYTES + path.len());
        self.files -= 1;
    }
}

/// The path below the grant's folder, and a handle on that folder.
pub(super) fn below(granted: &Granted) -> std::io::Result<(Dir, PathBuf)> {
    let dir = root::open(&granted.root, granted.trusted)?;
    Ok((dir, granted.inside()?))
}

fn open(granted: &Granted) -> std::io::Result<std::fs::File> {
    let (dir, inside) = below(granted)?;
    // Looked at first, because opening a device may do something; and opened without waiting,
    // because a pipe that took the file's place since would wait for its other end.
    if !dir.metadata(&inside)?.is_file() {
        return Err(std::io::Error::new(Io::InvalidInput, "not a regular file"));
    }
    let file = open_regular(&dir, &inside)?;
    refuse_planted(&dir, &inside, &file)?;
    Ok(file)
}

/// A hard link is the file that it leads to, and nobody can say where its other names are. The
/// operator's own are well. In a folder that somebody else may write to it can be one that was put
/// there to have a file read that is elsewhere.
fn refuse_planted(dir: &Dir, inside: &Path, file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if file.metadata()?.nlink() < 2 {
        return Ok(());
    }
    let folder = inside.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = dir.open_dir(folder.unwrap_or(Path::new(".")))?;
    let folder = folder.into_std_file().metadata()?;
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&folder.uid());
    if ours && folder.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(std::io::Error::other(Planted))
}

/// A file of several names in a folder of several people.
#[derive(Debug, thiserror::Error)]
#[error("is a hard link in a directory that other users may write to")]
struct Planted;

/// As [`failed`], and says what to do about a hard link.
fn refused(path: &str, error: &std::io::Error) -> Error {
    match error.get_ref().is_some_and(|inner| inner.is::<Planted>()) {
        false => failed(path, error),
        true => Error::new(
            ErrorKind::Auth,
            "hard_link_refused",
            format!("{path}: {error}"),
        )
        .hint("copy the file, or remove the write permission of other users from its directory"),
    }
}

fn open_regular(dir: &Dir, inside: &Path) -> std::io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NONBLOCK);
    let file = dir.open_with(inside, &options)?.into_std();
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(Io::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// The regular files that both the asked pattern and the grant cover, with their sizes.
/// Their names take at most `room` bytes.
fn find(granted: &Granted, room: usize) -> std::io::Result<Found> {
    let (dir, inside) = match below(granted) {
        Ok(below) => below,
        Err(error) if error.kind() == Io::NotFound => return Ok(Found::default()),
        Err(error) => return Err(error),
    };
    let mut found = vec![PathBuf::new()];
    let mut held = 0usize;
    for part in inside.iter().filter_map(|part| part.to_str()) {
        let mut next = Vec::new();
        for parent in &found {
            if !pattern::is_pattern(part) {
                next.push(parent.join(part));
                continue;
            }
            let here = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            let Ok(entries) = dir.read_dir(here) else {
                continue;
            };
            for entry in entries {
                let name = entry?.file_name();
                // As in a shell: a sign does not stand for the dot of a hidden name, such as that
                // of a file or folder which is still being written.
                let is_meant = |name: &str| {
                    name.starts_with('.') <= part.starts_with('.') && pattern::matches(part, name)
                };
                if name.to_str().is_some_and(is_meant) {
                    let path = parent.join(name);
                    held += path.as_os_str().len();
                    next.push(path);
                }
                if next.len() > MAX_ENTRIES || held > room {
                    let text =
                        format!("more than {MAX_ENTRIES} files or {room} bytes of names match");
                    return Err(std::io::Error::other(text));
                }
            }
        }
        found = next;
    }
    let root = granted
        .root
        .to_str()
        .unwrap_or_default()
        .trim_end_matches('/');
    let mut files = Vec::new();
    let mut outward = Vec::new();
    let is_pattern = pattern::is_pattern(&granted.grant);
    for inside in found {
        let Some(path) = inside.to_str().map(|inside| format!("{root}/{inside}")) else {
            continue;
        };
        match dir.metadata(&inside) {
            Ok(metadata) if metadata.is_file() && pattern::matches_path(&granted.grant, &path) => {
                files.push((path, metadata.len()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == Io::NotFound => {}
            // The refusal of a link comes from the library, not the system, so its error number is absent.
            Err(error)
                if is_pattern
                    && error.kind() == Io::PermissionDenied
                    && error.raw_os_error().is_none() =>
            {
                outward.push(path);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Found { files, outward })
}

fn create(granted: &Granted, shown: &str) -> std::io::Result<Output> {
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
pub(super) fn create_within(
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
fn remove_stale(dir: &Dir, name: &Path) {
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
fn open_stale(dir: &Dir, name: &Path) -> Option<File> {
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
fn probe(granted: &Granted) -> std::io::Result<()> {
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

impl HostInput for State {
    fn size(&mut self, this: Resource<Input>) -> wasmtime::Result<u64> {
        match self.table.get(&this)?.content {
            Content::Memory(ref bytes) => Ok(bytes.len() as u64),
            Content::Disk(ref file, _) => Ok(self.metadata(&this, Arc::clone(file))??.len()),
        }
    }

    fn modified(&mut self, this: Resource<Input>) -> wasmtime::Result<u64> {
        let modified = match self.table.get(&this)?.content {
            Content::Memory(_) => return Ok(0),
            Content::Disk(ref file, _) => self.metadata(&this, Arc::clone(file))?,
        };
        let since = modified
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        }))
    }

    fn read(&mut self, this: Resource<Input>, offset: u64, len: u32) -> Outcome<Vec<u8>> {
        self.check_cancelled()?;
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Fetch, || {
            let room = self.host_room().max(MIN_READ);
            let most = (len.min(MAX_READ) as usize).min(room);
            let Input { content, shown } = self.table.get(&this)?;
            let (content, shown) = (content.clone(), shown.clone());
            let read = match content {
                Content::Memory(bytes) => Ok(part_of(&bytes, offset, most).to_vec()),
                Content::Disk(file, digested) => self.apart(&shown, move |_| {
                    let read = read_at(&file, offset, most)?;
                    if let Some(digested) = digested {
                        digested.has_read(offset, &read);
                    }
                    Ok(read)
                })?,
            };
            let result = read.map_err(|error| failed(&shown, &error));
            // Reading past the end is not progress.
            if result.as_ref().is_ok_and(|read| !read.is_empty()) {
                self.progress();
            }
            Ok(result)
        })
    }

    fn drop(&mut self, this: Resource<Input>) -> wasmtime::Result<()> {
        let file = self.table.delete(this)?;
        self.one_file_less(&file.shown);
        Ok(())
    }
}

/// At most `most` bytes from `offset` on.
fn part_of(bytes: &[u8], offset: u64, most: usize) -> &[u8] {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let end = start.saturating_add(most).min(bytes.len());
    &bytes[start..end]
}

/// The same of a file.
fn read_at(file: &std::fs::File, offset: u64, most: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; most];
    loop {
        match file.read_at(&mut buffer, offset) {
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(error),
            Ok(read) => {
                buffer.truncate(read);
                return Ok(buffer);
            }
        }
    }
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
    fn write(&mut self, data: &[u8]) -> Result<(), Error> {
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

    fn commit(&mut self, given_up: &Abandoned) -> Result<(), Error> {
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

pub(super) fn failed(path: &str, error: &std::io::Error) -> Error {
    if error
        .get_ref()
        .is_some_and(|inner| inner.is::<ForeignLink>())
    {
        return Error::new(ErrorKind::Auth, "link_refused", format!("{path}: {error}"))
            .hint("write the path that the link leads to, or make the link anew as your own user");
    }
    let (kind, code, hint) = match error.kind() {
        Io::NotFound => (
            ErrorKind::Config,
            "file_not_found",
            "check the path; it is relative to the pipeline file",
        ),
        Io::PermissionDenied => (
            ErrorKind::Auth,
            "permission_denied",
            "check the owner and mode of the file and its directories, and that no link leads out",
        ),
        Io::StorageFull | Io::QuotaExceeded => (
            ErrorKind::Transient,
            "disk_full",
            "free space and run again",
        ),
        Io::IsADirectory | Io::NotADirectory | Io::InvalidInput => (
            ErrorKind::Config,
            "not_a_file",
            "give the path of a regular file",
        ),
        _ => (
            ErrorKind::Connection,
            "file_io",
            "check the path and its disk",
        ),
    };
    Error::new(kind, code, format!("{path}: {error}")).hint(hint)
}

#[cfg(test)]
impl Output {
    /// Writes and commits, as a guest does with two calls.
    pub(super) fn write_and_commit(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).expect("written");
        self.commit(&Abandoned::default()).expect("committed");
    }

    pub(super) fn commit_for_test(&mut self) -> Result<(), Error> {
        self.commit(&Abandoned::default())
    }
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_probe_stays_in_the_granted_folder_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, outside) = (folder.path().join("out"), folder.path().join("outside"));
        std::fs::create_dir_all(root.join("here")).expect("folders");
        std::fs::create_dir(&outside).expect("a folder");
        std::os::unix::fs::symlink(&outside, root.join("link")).expect("a link");
        let granted = |root: &Path, inside: &str| Granted {
            path: root.join(inside).to_str().expect("UTF-8").to_owned(),
            grant: String::new(),
            root: root.to_path_buf(),
            trusted: None,
        };
        for inside in ["a.csv", "here/a.csv", "new/deep/a.csv"] {
            probe(&granted(&root, inside)).expect("it may be made");
        }
        probe(&granted(&folder.path().join("new/out"), "a.csv")).expect("it may be made");
        probe(&granted(&root, "link/a.csv")).expect_err("it leads out");
        probe(&granted(&root, "link/new/a.csv")).expect_err("it leads out");
        let left = |folder: &Path| std::fs::read_dir(folder).expect("a folder").count();
        assert_eq!(
            (left(&root), left(&outside), left(folder.path())),
            (2, 0, 2)
        );
    }

    #[test]
    fn folders_go_with_the_file_that_they_were_made_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let granted = |inside: &str| Granted {
            path: folder
                .path()
                .join(inside)
                .to_str()
                .expect("UTF-8")
                .to_owned(),
            grant: String::new(),
            root: folder.path().join("o"),
            trusted: None,
        };
        let names = || std::fs::read_dir(folder.path()).expect("a folder").count();
        for number in 0..20 {
            drop(create(&granted(&format!("o/d{number}/e/x")), "x").expect("a file"));
        }
        assert_eq!(names(), 0, "nothing is left, not even the grant's folder");
        // Each directory counts once, for the output that made it.
        let first = create(&granted("o/d/e/x"), "x").expect("a file");
        let second = create(&granted("o/d/f/x"), "x").expect("a file");
        assert_eq!((first.made.new_ones(), second.made.new_ones()), (3, 1));
        drop((first, second));
        assert_eq!(names(), 0);
        // Nor by several that share one, in whatever order they go.
        let shared = || ["o/s/x", "o/s/y", "o/s/t/z"].map(|p| create(&granted(p), p).expect("it"));
        drop(shared());
        assert_eq!(names(), 0);
        for output in shared().into_iter().rev() {
            drop(output);
        }
        assert_eq!(names(), 0);
        // A file that somebody else has put there in the meantime stays.
        let output = create(&granted("o/d/x"), "x").expect("a file");
        std::fs::write(folder.path().join("o/d/other"), "x").expect("a file");
        drop(output);
        assert!(folder.path().join("o/d/other").exists());
        assert_eq!(
            std::fs::read_dir(folder.path().join("o/d"))
                .expect("it")
                .count(),
            1
        );
        let mut kept = create(&granted("o/kept/x"), "x").expect("a file");
        kept.write_and_commit(b"x");
        drop(kept);
        assert!(folder.path().join("o/kept/x").exists());
    }

    #[test]
    fn outputs_that_share_a_new_folder_do_not_take_it_from_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let root = folder.path().to_owned();
                scope.spawn(move || {
                    for number in 0..300 {
                        let path = root.join(format!("d/{thread}-{number}"));
                        let granted = Granted {
                            path: path.to_str().expect("UTF-8").to_owned(),
                            grant: String::new(),
                            root: root.clone(),
                            trusted: None,
                        };
                        drop(create(&granted, "x").expect("a file"));
                    }
                });
            }
        });
    }

    #[test]
    fn a_link_that_leads_out_leaves_the_other_files_of_a_pattern() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("in");
        std::fs::create_dir(&root).expect("a folder");
        std::fs::write(folder.path().join("other.csv"), "x").expect("a file");
        std::fs::write(root.join("a.csv"), "a").expect("a file");
        std::os::unix::fs::symlink("../other.csv", root.join("b.csv")).expect("a link");
        std::os::unix::fs::symlink("a.csv", root.join("c.csv")).expect("a link");
        let of = |name: &str| {
            let path = root.join(name).to_str().expect("UTF-8").to_owned();
            let (grant, root) = (path.clone(), root.clone());
            let trusted = None;
            find(
                &Granted {
                    path,
                    grant,
                    root,
                    trusted,
                },
                1 << 20,
            )
        };
        let found = of("*.csv").expect("the others");
        let ends = |path: &String| path.rsplit('/').next().map(str::to_owned);
        let names: Vec<_> = found
            .files
            .iter()
            .filter_map(|(path, _)| ends(path))
            .collect();
        assert!(names.contains(&"a.csv".into()) && names.contains(&"c.csv".into()));
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(
            found
                .outward
                .iter()
                .filter_map(ends)
                .eq(["b.csv".to_owned()])
        );
        assert!(
            of("b.csv").is_err(),
            "a link that the operator named is refused"
        );
    }

    #[test]
    fn a_committed_file_cannot_be_written_any_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder
            .path()
            .join("a.csv")
            .to_str()
            .expect("UTF-8")
            .to_owned();
        let granted = Granted {
            grant: path.clone(),
            path: path.clone(),
            root: folder.path().to_owned(),
            trusted: None,
        };
        let mut output = create(&granted, "a.csv").expect("a file");
        output.write_and_commit(b"kept");
        let again = [output.write(b"more"), output.commit(&Abandoned::default())];
        for result in again {
            assert_eq!(result.expect_err("refused").code, "output_committed");
        }
        drop(output);
        assert_eq!(std::fs::read(&path).expect("the file"), b"kept");
    }

    #[test]
    fn planning_changes_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let schema = serde_json::json!({"properties": {"out": {"x-grant": "write"}}});
        let config = serde_json::json!({"out": "out/*.csv"});
        let config = config.as_object().expect("an object");
        let grants = crate::Grants::from_config(&schema, config, folder.path());
        std::fs::create_dir(folder.path().join("out")).expect("a folder");
        std::fs::write(folder.path().join("out/a.csv"), "a").expect("a file");
        let mut state = State::new(
            "test".into(),
            crate::Sandbox {
                grants: Arc::new(grants.to_look()),
                memory: crate::MemoryBudget::new(1 << 20),
                limits: crate::Limits::default(),
                clock: crate::Clock::new(),
                cancel: crate::Cancel::new(),
                log: Arc::new(|_, _, _, _| {}),
                redact: crate::no_secrets(),
                stream: None,
            },
        );
        let (a, b) = ("out/a.csv".to_owned(), "out/b.csv".to_owned());
        let refused = [
            Host::create(&mut state, a.clone())
                .expect("no trap")
                .map(drop),
            Host::create_new(&mut state, b.clone())
                .expect("no trap")
                .map(drop),
            Host::rename(&mut state, a.clone(), b.clone()).expect("no trap"),
            Host::remove(&mut state, a.clone()).expect("no trap"),
            Host::create_folder(&mut state, "out".into(), "out/*.csv".into())
                .expect("no trap")
                .map(drop),
        ];
        for result in refused {
            assert_eq!(result.expect_err("refused").code, "writes_while_planning");
        }
        Host::probe(&mut state, b.clone())
            .expect("no trap")
            .expect("it could be made");
        let names = std::fs::read_dir(folder.path().join("out")).expect("a folder");
        assert_eq!(names.count(), 1);
        // The run itself may.
        let work = crate::Sandbox {
            grants: Arc::new(grants),
            ..state.sandbox.clone()
        };
        assert!(state.hand_over(work));
        Host::create(&mut state, b)
            .expect("no trap")
            .expect("a file");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("a.csv");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("a folder");
        let error = open_regular(&dir, Path::new("a.csv")).expect_err("no file");
        assert_eq!(error.kind(), Io::InvalidInput);
        std::fs::write(folder.path().join("b.csv"), "a\n").expect("a file");
        open_regular(&dir, Path::new("b.csv")).expect("a file");
    }

    #[test]
    fn a_pipe_or_link_in_place_of_a_stale_file_is_neither_awaited_nor_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("other"), "x").expect("a file");
        // As a neighbour who wins the race leaves them between the look and the opening.
        mknodat(
            CWD,
            at(".a.1-0.tmp"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("pipe");
        std::os::unix::fs::symlink("other", at(".a.1-1.tmp")).expect("a link");
        for name in [".a.1-0.tmp", ".a.1-1.tmp"] {
            assert!(open_stale(&dir, Path::new(name)).is_none(), "{name}");
        }
        std::fs::write(at(".a.1-2.tmp"), "x").expect("a file");
        assert!(open_stale(&dir, Path::new(".a.1-2.tmp")).is_some());
        remove_stale(&dir, Path::new("a"));
        assert!(at(".a.1-0.tmp").exists() && at(".a.1-1.tmp").exists() && at("other").exists());
        assert!(!at(".a.1-2.tmp").exists());
    }
}
