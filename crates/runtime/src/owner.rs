//! Whose files and links the host takes for the operator's.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::host::files;

/// Whether this user is root, the user that the program runs as, or the owner of `base_dir`, the pipeline's directory.
pub fn is_trusted(user: u32, base_dir: &Path) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw() || of(base_dir) == Some(user)
}

/// Why a directory is not reached: a link on the way to it belongs to a user who is not trusted. None if there is no
/// such link, as far as the way exists. On systems other than Linux no link is found.
pub fn foreign_link(directory: &Path, base_dir: &Path) -> Option<String> {
    let directory = std::path::absolute(directory);
    let directory: PathBuf = directory.ok()?;
    files::foreign_link(&directory, of(base_dir))
}

fn of(directory: &Path) -> Option<u32> {
    std::fs::metadata(directory).ok().map(|found| found.uid())
}
