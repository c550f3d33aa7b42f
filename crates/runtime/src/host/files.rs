//! `files`: the files that the configuration names, and no others.
//!
//! Every path is opened below the folder of its grant, through a handle on that folder, so that
//! neither `..` nor a symbolic link leads out of it.

use std::io::ErrorKind as Io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::fs::Dir;
use wasmtime::component::Resource;

use crate::Phase;
use crate::bindings::files::{Entry, Host};
use crate::bindings::log::Level;
use crate::bindings::types::{Error, ErrorKind};
use crate::ended;
use crate::grants::Granted;
use crate::host::exclusive;
use crate::host::folder::{OutputFolder, begin};
use crate::limits::MOST_BEGUN;
use crate::state::State;
use crate::virtual_folder::VirtualFile;
use find::{Found, find};
use input::{Content, open, refused};
use output::{create, probe};
use root::ForeignLink;

pub use input::Input;
pub use output::Output;
pub(super) use output::create_within;
pub(crate) use root::foreign_link;

mod find;
mod input;
pub(super) mod made;
mod output;
pub(super) mod root;

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
mod tests;
