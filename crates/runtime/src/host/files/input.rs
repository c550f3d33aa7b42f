//! Files that are read.

use std::io::ErrorKind as Io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use wasmtime::component::Resource;

use super::{Outcome, below, failed};
use crate::Phase;
use crate::bindings::files::HostInput;
use crate::bindings::types::{Error, ErrorKind};
use crate::digested::Digested;
use crate::grants::Granted;
use crate::regular::NONBLOCK;
use crate::state::State;

/// A file that is read.
pub struct Input {
    pub(super) content: Content,
    pub(super) shown: String,
}

/// Where its bytes are.
#[derive(Clone)]
pub(super) enum Content {
    /// With what hashes the bytes, if the program wants to know whether they are the right ones.
    Disk(Arc<std::fs::File>, Option<Arc<Digested>>),
    Memory(Arc<[u8]>),
}

/// The most that one `read` gives.
const MAX_READ: u32 = 16 << 20;
/// The least that one `read` may give, however much the host holds.
const MIN_READ: usize = 4 << 10;

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

pub(super) fn open(granted: &Granted) -> std::io::Result<std::fs::File> {
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
pub(super) fn refused(path: &str, error: &std::io::Error) -> Error {
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

pub(super) fn open_regular(dir: &Dir, inside: &Path) -> std::io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NONBLOCK);
    let file = dir.open_with(inside, &options)?.into_std();
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(Io::InvalidInput, "not a regular file"));
    }
    Ok(file)
}
