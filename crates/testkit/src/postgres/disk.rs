//! A disk that fills up soon.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::user::User;
use super::{Failure, system};

/// A file system in memory of a few megabytes, for a tablespace; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one; nothing where this account may not mount.
    pub fn mount(megabytes: u32) -> Result<Option<Self>, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("rapidbyte-disk-")
            .tempdir()
            .map_err(system("making a temporary folder"))?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            return Ok(None);
        }
        let disk = Self(folder);
        if let Some(user) = User::to_step_down_to().map_err(system("looking for an account"))? {
            user.own(disk.path())
                .map_err(system("giving a disk away"))?;
        }
        Ok(Some(disk))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that still runs keeps its files until it ends.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
