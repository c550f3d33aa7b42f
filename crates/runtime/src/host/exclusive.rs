//! Names that are given once: a file that must be new, files that are renamed and removed.
//!
//! All below the folder of a grant, as the rest of `files`; links are never followed at the end of
//! a path.

use std::io::ErrorKind as Io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::files::below;
use super::files::made::{Made, TRIES};
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::Granted;

/// The error of a name that another file has.
pub(super) fn exists(shown: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        "file_exists",
        format!("{shown} already exists"),
    )
}

/// Syncs the entries of a folder. The handle only names it: it cannot be synced itself.
pub(super) fn sync_folder(dir: &Dir) -> std::io::Result<()> {
    let folder = rustix::fs::openat(
        dir.as_fd(),
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(rustix::fs::fsync(folder)?)
}

/// Gives the file `from` the name `to` unless there is one: by a hard link, or where the file
/// system has none by a rename that replaces nothing.
pub(super) fn link(dir: &Dir, from: &Path, to: &Path) -> std::io::Result<()> {
    match dir.hard_link(from, dir, to) {
        Ok(()) => {
            // A second name that stays is removed as a stale file by a later run.
            let _ = dir.remove_file(from);
            Ok(())
        }
        Err(error) if error.kind() == Io::AlreadyExists => Err(error),
        Err(_) => move_new(dir, from, dir, to),
    }
}

fn move_new(from_dir: &Dir, from: &Path, to_dir: &Dir, to: &Path) -> std::io::Result<()> {
    let (old, new) = (from_dir.as_fd(), to_dir.as_fd());
    match renameat_with(old, from, new, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // No such flag here: a hard link decides as well.
            from_dir.hard_link(from, to_dir, to)?;
            from_dir.remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// A handle on the folder of a file, which is made where `made` is given, and the file's name.
fn parent(granted: &Granted, made: Option<&mut Made>) -> std::io::Result<(Dir, PathBuf)> {
    let (root, made) = match made {
        None => (below(granted)?.0, None),
        Some(made) => (made.root(&granted.root, granted.trusted)?, Some(made)),
    };
    let inside = granted.inside()?;
    let name = PathBuf::from(inside.file_name().ok_or(Io::InvalidInput)?);
    match inside.parent().filter(|p| !p.as_os_str().is_empty()) {
        None => Ok((root, name)),
        Some(folder) => {
            let folder = match made {
                None => root.open_dir(folder)?,
                Some(made) => made.below(&root, &granted.root, folder)?,
            };
            Ok((folder, name))
        }
    }
}

/// Renames a regular file, and replaces none.
pub(super) fn rename(from: &Granted, to: &Granted) -> std::io::Result<()> {
    let (from_dir, from) = parent(from, None)?;
    if !from_dir.symlink_metadata(&from)?.is_file() {
        return Err(std::io::Error::new(Io::InvalidInput, "not a regular file"));
    }
    let moved = || {
        // The new folders are removed again unless the file is moved.
        let mut made = Made::default();
        let (to_dir, to) = parent(to, Some(&mut made))?;
        move_new(&from_dir, &from, &to_dir, &to)?;
        made.keep();
        sync_folder(&to_dir)
    };
    (1..TRIES).fold(moved(), |result, _| match result {
        // Another output may have taken away the folder that it had made.
        Err(error) if error.kind() == Io::NotFound && from_dir.exists(&from) => moved(),
        result => result,
    })
}

/// Removes a regular file; one that is gone is well.
pub(super) fn remove(granted: &Granted) -> std::io::Result<()> {
    let gone = |error: std::io::Error| match error.kind() {
        Io::NotFound => Ok(()),
        _ => Err(error),
    };
    let (dir, name) = match parent(granted, None) {
        Ok(parent) => parent,
        Err(error) => return gone(error),
    };
    match dir.symlink_metadata(&name) {
        Ok(found) if !found.is_file() => {
            Err(std::io::Error::new(Io::InvalidInput, "not a regular file"))
        }
        Ok(_) => dir.remove_file(&name).or_else(gone),
        Err(error) => gone(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn granted(root: &Path, inside: &str) -> Granted {
        let path = root.join(inside).to_str().expect("UTF-8").to_owned();
        Granted {
            grant: path.clone(),
            path,
            root: root.to_owned(),
            trusted: None,
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority()).expect("dir");
        for name in ["a", "b"] {
            fs::write(folder.path().join(name), name).expect("a file");
        }
        link(&dir, Path::new("a"), Path::new("1.json")).expect("the first");
        let error = link(&dir, Path::new("b"), Path::new("1.json")).expect_err("the second");
        assert_eq!(error.kind(), Io::AlreadyExists);
        assert!(!folder.path().join("a").exists() && folder.path().join("b").exists());
        assert_eq!(
            fs::read(folder.path().join("1.json")).expect("a file"),
            b"a"
        );
        let (b, first) = (
            granted(folder.path(), "b"),
            granted(folder.path(), "1.json"),
        );
        let error = rename(&b, &first).expect_err("not replaced");
        assert_eq!(error.kind(), Io::AlreadyExists);
        rename(&b, &granted(folder.path(), "day=1/c")).expect("renamed");
        assert_eq!(
            fs::read(folder.path().join("day=1/c")).expect("a file"),
            b"b"
        );
        let error = rename(&b, &granted(folder.path(), "d")).expect_err("gone");
        assert_eq!(error.kind(), Io::NotFound);
    }

    #[test]
    fn no_link_leads_out_and_only_files_are_touched() {
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("x"), "x").expect("a file");
        let folder = tempfile::tempdir().expect("a folder");
        symlink(outside.path(), folder.path().join("_manifest")).expect("a link");
        symlink(outside.path().join("x"), folder.path().join("x")).expect("a link");
        fs::write(folder.path().join("a"), "a").expect("a file");
        let inside = granted(folder.path(), "_manifest/x");
        remove(&inside).expect_err("outside");
        rename(&inside, &granted(folder.path(), "b")).expect_err("outside");
        let a = granted(folder.path(), "a");
        rename(&a, &granted(folder.path(), "_manifest/y")).expect_err("outside");
        remove(&granted(folder.path(), "x")).expect_err("a link");
        rename(&granted(folder.path(), "x"), &granted(folder.path(), "b")).expect_err("a link");
        assert!(outside.path().join("x").exists() && !outside.path().join("y").exists());
        remove(&a).expect("removed");
        remove(&a).expect("gone is well");
        remove(&granted(folder.path(), "nowhere/a")).expect("gone is well");
    }
}
