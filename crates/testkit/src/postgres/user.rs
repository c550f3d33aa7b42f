//! The user that runs the server: PostgreSQL refuses root, so root steps down for it.

use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An account that is not root, as `/etc/passwd` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The account to step down to; nothing when we are not root.
    pub fn to_step_down_to() -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let accounts = std::fs::read_to_string("/etc/passwd")?;
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| find(&accounts, name))
            .map(Some)
            .ok_or_else(|| {
                io::Error::other("PostgreSQL refuses root, and there is no user postgres or nobody")
            })
    }

    /// Makes `command` run as this account; the standard library drops root's groups with it.
    pub fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    pub fn own(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }
}

fn find(accounts: &str, name: &str) -> Option<User> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (uid != 0).then_some(User { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_whole_name_and_never_root() {
        let accounts =
            "root:x:0:0::/:/bin/sh\nnobody2:x:7:7::/:/bin/sh\nnobody:x:65534:65533::/:\n";
        let nobody = User {
            uid: 65534,
            gid: 65533,
        };
        assert_eq!(find(accounts, "nobody"), Some(nobody));
        assert_eq!(find(accounts, "root"), None);
    }
}
