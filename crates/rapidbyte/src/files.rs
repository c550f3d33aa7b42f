//! Files that a program keeps beside pipelines, opened as the engine opens its own.

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rapidbyte_runtime::{owner, regular};

/// Opens a regular file to read it. Does not wait for the other end of a pipe.
///
/// # Errors
/// The system's errors, and `InvalidInput` for anything but a regular file.
pub fn open_regular_file(path: &Path) -> Result<File> {
    regular::open(path)
}

/// Creates a file, or empties one that the program made before. Does not follow a link in its place.
///
/// # Errors
/// As of [`open_regular_file`].
pub fn create_own_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    regular::check(options.custom_flags(regular::OWN).open(path)?)
}

/// The link of a user who is not trusted, in words, if one is on the way to a directory. Trusted are root, this user
/// and the owner of `base_dir`, the directory of the pipeline.
pub fn foreign_link(directory: &Path, base_dir: &Path) -> Option<String> {
    owner::foreign_link(directory, base_dir)
}
