//! Checks a history before SQLite opens it, and its tables before they are used: other users may write to the
//! folder.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::{Result, StateError, attempts};

/// The files of a history, by what is behind its name.
const FILES: [&str; 3] = ["", "-journal", "-wal"];

/// Refuses a link in the place of a history or of its folder, unless it belongs to this user, to root or to the owner
/// of the pipeline's folder: another user's would have us write into a file or folder of our own.
pub(crate) fn refuse_links(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let pipelines = folder
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    let pipelines = std::fs::metadata(pipelines.unwrap_or(Path::new(".")));
    let user = rustix::process::geteuid().as_raw();
    let trusted = [0, user, pipelines.map_or(user, |found| found.uid())];
    for name in [folder, path] {
        match std::fs::symlink_metadata(name) {
            Ok(found) if found.is_symlink() && !trusted.contains(&found.uid()) => {
                let problem = format!("is a link of another user (uid {})", found.uid());
                return Err(StateError::at(name, problem));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses anything but a regular file: SQLite would wait for the other end of a pipe.
pub(crate) fn refuse_special(path: &Path) -> Result<()> {
    refuse_links(path)?;
    for end in FILES {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let name = PathBuf::from(name);
        match std::fs::metadata(&name) {
            Ok(found) if !found.is_file() => {
                return Err(StateError::at(&name, "not a regular file"));
            }
            // If `metadata` fails, opening the file fails too, and SQLite says why.
            _ => {}
        }
    }
    Ok(())
}

/// Refuses tables, indexes, triggers and views of somebody else: a trigger, a view or a virtual table runs with our
/// writes and reads, and a file with tables of another program is not a history.
pub(crate) fn refuse_foreign(path: &Path, db: &Connection) -> Result<()> {
    // Names that begin with `sqlite_` are SQLite's own: nobody else can make one.
    let sql =
        "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'";
    let failed = |error: rusqlite::Error| StateError::of_sql(path, &error);
    let mut statement = db.prepare(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |column| row.get::<_, String>(column).map_err(failed);
        let (kind, name, made) = (text(0)?, text(1)?, text(2)?);
        if !is_ours(&kind, &name, &made) {
            let name: String = name.chars().take(200).collect();
            let problem = format!("has a {kind} {name} that this program did not make");
            return Err(StateError::at(path, problem));
        }
    }
    Ok(())
}

const TABLES: [&str; 6] = [
    "runs",
    "streams",
    "attempts",
    "unfinished",
    "settings",
    "completed",
];
const INDEXES: [&str; 2] = ["runs_by_pipeline", "attempts_by_pipeline"];

/// Whether this program made it. `made` is the statement that made it.
fn is_ours(kind: &str, name: &str, made: &str) -> bool {
    match kind {
        // A virtual table has another beginning.
        "table" => TABLES.contains(&name) && made.starts_with("CREATE TABLE "),
        "index" => INDEXES.contains(&name),
        "trigger" => made.starts_with("CREATE TRIGGER ") && attempts::TABLE.contains(made),
        _ => false,
    }
}
