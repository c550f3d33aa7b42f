//! Opens files of the operator's: regular ones, without waiting.
//!
//! A pipe waits for its other end. Another user of the folder can put a pipe in the place of a file
//! between a check and the opening. So the opening itself does not wait, and the check is on the open
//! file.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Flags of an opening that does not wait; they change nothing for a regular file.
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();
/// The same for a file that this program itself made: no link in its place is followed.
pub const OWN: i32 = NONBLOCK | OFlags::NOFOLLOW.bits().cast_signed();

/// Opens a file to read it.
///
/// # Errors
/// The system's errors, and `InvalidInput` for anything but a regular file.
pub fn open(path: &Path) -> Result<File> {
    check(
        OpenOptions::new()
            .read(true)
            .custom_flags(NONBLOCK)
            .open(path)?,
    )
}

/// The same for a file that this program made: a link in its place is refused.
///
/// # Errors
/// As of [`open`].
pub fn open_own(path: &Path) -> Result<File> {
    check(OpenOptions::new().read(true).custom_flags(OWN).open(path)?)
}

/// Gives an open file back if it is a regular one.
///
/// # Errors
/// `InvalidInput` where it is another.
pub fn check(file: File) -> Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn pipes_are_not_waited_for_and_links_in_the_place_of_own_files_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        std::fs::write(at("file"), "x").expect("a file");
        std::os::unix::fs::symlink("file", at("link")).expect("a link");
        for (name, any, own) in [
            ("file", true, true),
            ("link", true, false),
            ("pipe", false, false),
            (".", false, false),
            ("none", false, false),
        ] {
            assert_eq!(open(&at(name)).is_ok(), any, "{name}");
            assert_eq!(open_own(&at(name)).is_ok(), own, "{name}");
        }
    }
}
