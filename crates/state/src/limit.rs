//! Finds the limit of the process that caused an SQLite error: SQLite does not pass on the system's
//! error.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Files that SQLite holds open for one history: the database, its log and the log's index.
const FILES: [&str; 3] = ["", "-wal", "-shm"];
/// By how much SQLite makes one of them larger at once: the log's index by 32 KiB, the log by the
/// pages of a transaction.
const STEP: u64 = 64 << 10;

/// The system's error, where a limit of files or of their size explains what SQLite failed at.
pub(crate) fn behind(history: &Path, error: &rusqlite::Error) -> Option<io::Error> {
    let errno = match error.sqlite_error_code()? {
        ErrorCode::SystemIoFailure if is_too_large(history) => Errno::FBIG,
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => no_more_files()?,
        _ => return None,
    };
    Some(errno.into())
}

/// One of the files would become larger than the process may write.
fn is_too_large(history: &Path) -> bool {
    let Some(limit) = getrlimit(Resource::Fsize).current else {
        return false;
    };
    let sizes = FILES.iter().map(|ending| {
        let mut path = history.as_os_str().to_owned();
        path.push(ending);
        fs::metadata(path).map_or(0, |file| file.len())
    });
    sizes.max().unwrap_or(0) + STEP > limit
}

/// The error if the process cannot open as many files as a history needs. It does not open the history
/// itself: closing it would drop the locks that this process has on it.
fn no_more_files() -> Option<Errno> {
    let opened: io::Result<Vec<File>> = FILES.iter().map(|_| File::open("/")).collect();
    let errno = Errno::from_io_error(&opened.err()?)?;
    matches!(errno, Errno::MFILE | Errno::NFILE).then_some(errno)
}
