//! Which process holds the history's lock.

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock bytes of the `-shm` file that only a writer, a checkpointer or a recovery takes
/// exclusively (<https://www.sqlite.org/walformat.html#locks>).
const OF_LOG: RangeInclusive<u64> = 120..=127;
/// The lock bytes of a database without a write-ahead log
/// (<https://www.sqlite.org/fileformat.html#the_lock_byte_page>).
const OF_FILE: RangeInclusive<u64> = 0x4000_0000..=0x4000_01ff;

/// A process that holds the history's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// It was stopped, as by SIGSTOP, and holds the lock until somebody continues or ends it.
    pub is_stopped: bool,
}

impl Holder {
    /// None where the system does not tell: `/proc/locks` is Linux's. Opening the file to ask for
    /// its locks is no way, because closing it would drop this process's own.
    pub(crate) fn of(history: &Path) -> Option<Self> {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let inode = |path: &Path| fs::metadata(path).ok().map(|file| file.ino());
        let mut log = history.as_os_str().to_owned();
        log.push("-shm");
        let files = [
            (inode(&PathBuf::from(log)), OF_LOG),
            (inode(history), OF_FILE),
        ];
        let pid = locks.lines().find_map(|line| {
            let (pid, found, begin) = exclusive(line)?;
            let is_it = |(inode, bytes): &(Option<u64>, RangeInclusive<u64>)| {
                *inode == Some(found) && bytes.contains(&begin)
            };
            files.iter().any(is_it).then_some(pid)
        })?;
        Some(Self {
            pid,
            is_stopped: is_stopped(pid) == Some(true),
        })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.is_stopped {
            true => ", which is stopped,",
            false => "",
        };
        write!(f, "the process {}{state}", self.pid)
    }
}

/// The process, the inode and the first byte of a line of `/proc/locks`, such as
/// `1: POSIX  ADVISORY  WRITE 731 08:01:526 120 120`. None of a shared lock, of one that is only
/// waited for (`->`), and of another kind.
fn exclusive(line: &str) -> Option<(u32, u64, u64)> {
    let mut words = line.split_whitespace().skip(1);
    if (words.next()?, words.next()?, words.next()?) != ("POSIX", "ADVISORY", "WRITE") {
        return None;
    }
    let pid = words.next()?.parse().ok()?;
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    Some((pid, inode, words.next()?.parse().ok()?))
}

/// Whether a process of this machine is stopped. `None` where the system does not tell.
pub(crate) fn is_stopped(pid: u32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses, and may contain parentheses itself.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exclusive_lock_that_is_held_names_its_process() {
        let held = "7: POSIX  ADVISORY  WRITE 731 08:01:526 120 120";
        assert_eq!(exclusive(held), Some((731, 526, 120)));
        for other in [
            "7: -> POSIX  ADVISORY  WRITE 731 08:01:526 120 120",
            "7: POSIX  ADVISORY  READ 731 08:01:526 128 128",
            "7: FLOCK  ADVISORY  WRITE 731 08:01:526 0 EOF",
            "",
        ] {
            assert_eq!(exclusive(other), None, "{other}");
        }
    }
}
