//! The folder of a grant, opened without following a link that another user put on its way.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};

/// Links on one way; Linux follows as many.
const MAX_LINKS: usize = 40;
/// A handle that only names a file or folder: it needs no right to read it, and follows no link.
#[cfg(target_os = "linux")]
const NAMES: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A link that somebody made who is neither this user, nor root, nor the owner of the pipeline's
/// folder.
#[derive(Debug, thiserror::Error)]
#[error("the link {link} belongs to another user (uid {owner})")]
pub(in crate::host) struct ForeignLink {
    link: String,
    owner: u32,
}

/// The first link on the way to `folder` that belongs to another user, in words; see [`open`].
pub(crate) fn foreign_link(folder: &Path, trusted: Option<u32>) -> Option<String> {
    let error = open(folder, trusted).err()?;
    let link: &ForeignLink = error.get_ref()?.downcast_ref()?;
    Some(link.to_string())
}

/// Opens `folder`, an absolute path, step by step; on Linux, the one system where a handle can name
/// a link. Each link on the way is read through the same handle whose owner was checked, so that
/// nobody can exchange it in between.
///
/// `trusted` is the owner of the pipeline's folder, whose links are the operator's own.
///
/// Errors: the system's errors; [`ForeignLink`] within an error of kind `Other`.
#[cfg(target_os = "linux")]
pub(in crate::host) fn open(folder: &Path, trusted: Option<u32>) -> io::Result<Dir> {
    let top = || openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut here = top()?;
    let mut place = PathBuf::from("/");
    let mut links = 0;
    let mut ahead = parts(folder);
    while let Some(name) = ahead.pop() {
        let next = openat(&here, &name, NAMES, Mode::empty())?;
        let found = fstat(&next)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                here = next;
                place.push(&name);
            }
            FileType::Symlink => {
                let user = rustix::process::geteuid().as_raw();
                if ![0, user].contains(&found.st_uid) && trusted != Some(found.st_uid) {
                    return Err(io::Error::other(ForeignLink {
                        link: place.join(&name).display().to_string(),
                        owner: found.st_uid,
                    }));
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(rustix::io::Errno::LOOP.into());
                }
                let target = readlinkat(&next, "", Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    here = top()?;
                    place = PathBuf::from("/");
                }
                ahead.extend(parts(&target));
            }
            _ => return Err(rustix::io::Errno::NOTDIR.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(&here, ".", flags, Mode::empty())?;
    Ok(Dir::from_std_file(folder.into()))
}

#[cfg(not(target_os = "linux"))]
pub(in crate::host) fn open(folder: &Path, _trusted: Option<u32>) -> io::Result<Dir> {
    Dir::open_ambient_dir(folder, cap_std::ambient_authority())
}

/// The names on a way, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn links_of_the_operator_are_followed_and_those_of_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().canonicalize().expect("a path");
        std::fs::create_dir_all(at.join("a/b")).expect("folders");
        std::fs::write(at.join("a/b/f"), "x").expect("a file");
        symlink("a/../a", at.join("relative")).expect("a link");
        symlink(at.join("relative/b"), at.join("absolute")).expect("a link");
        symlink("loop", at.join("loop")).expect("a link");
        for way in ["a/b", "relative/b", "absolute"] {
            let dir = open(&at.join(way), None).expect("a folder");
            assert_eq!(dir.read_to_string("f").expect("a file"), "x", "{way}");
        }
        let refused = |way: &str| open(&at.join(way), None).expect_err("no folder");
        assert_eq!(refused("none").kind(), io::ErrorKind::NotFound);
        assert_eq!(refused("a/b/f").kind(), io::ErrorKind::NotADirectory);
        assert_eq!(
            refused("loop").raw_os_error(),
            Some(rustix::io::Errno::LOOP.raw_os_error())
        );
        // Only root can make a link of another user.
        if lchown(at.join("relative"), Some(65534), None).is_err() {
            return;
        }
        for way in ["relative/b", "absolute"] {
            let error = refused(way).to_string();
            assert!(
                error.contains("relative belongs to another user (uid 65534)"),
                "{error}"
            );
        }
        open(&at.join("absolute"), Some(65534)).expect("the pipeline's owner made the link");
    }
}
