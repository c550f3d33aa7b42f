//! Files of SQLite that only the user of the server reads: they have the bodies of clients.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const MODE: u32 = 0o600;
/// What SQLite puts behind the name of a database for the files beside it, which get the mode of the database when they are
/// made.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

/// Makes the file of a database if it is missing, and takes the rights of others from the files that are there.
///
/// A file that is there is not opened: closing it would drop the locks that connections of this process have on it. Another
/// program that opens the database would then take itself for its only user, and remove the log that the server writes.
pub(crate) fn make(file: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(file);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for ending in BESIDE {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        match fs::set_permissions(&name, Permissions::from_mode(MODE)) {
            // A file of another user keeps the mode that this user has given it.
            Err(error)
                if ![io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied]
                    .contains(&error.kind()) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn nobody_else_reads_the_files_of_a_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("jobs.db");
        // An earlier version made them for everybody.
        for name in ["jobs.db", "jobs.db-wal"] {
            let file = folder.path().join(name);
            fs::write(&file, "").expect("a file");
            fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
        }
        make(&file).expect("a file");
        let connection = Connection::open(&file).expect("a database");
        let begun = "PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER)";
        connection.execute_batch(begun).expect("a table");
        let found = fs::read_dir(folder.path()).expect("a folder");
        let modes: Vec<_> = found
            .map(|entry| entry.and_then(|entry| entry.metadata()).expect("an entry"))
            .map(|found| found.permissions().mode() & 0o777)
            .collect();
        assert_eq!(modes, [MODE; 3]);
    }
}
