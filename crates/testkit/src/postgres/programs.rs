//! Finds the server programs on this machine.
//!
//! The standard library alone: `xtask` compiles this file too, so that both look in the same
//! places.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the folder that holds `initdb` and `postgres`; nothing else is then looked at.
pub const VARIABLE: &str = "RAPIDBYTE_POSTGRES_BIN";

/// Folders with one folder for each version of the server, and the programs below that.
const VERSIONED: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// The folder with the server programs: what the variable names, or else what is installed.
pub fn find() -> Option<PathBuf> {
    match env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => Some(PathBuf::from(folder)).filter(|folder| is_complete(folder)),
        None => installed(),
    }
}

/// The folder with the installed server programs: the one on `PATH`, or else the newest version.
fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    on_path(&path).or_else(|| {
        let mut found = Vec::new();
        for (parent, prefix, below) in VERSIONED {
            found.extend(versions(Path::new(parent), prefix, below));
        }
        newest(found)
    })
}

/// Follows links, because distributions link `pg_ctl` to where its neighbours are.
fn on_path(path: &std::ffi::OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .flat_map(|folder| ["pg_ctl", "postgres"].map(|name| folder.join(name)))
        .filter_map(|program| fs::canonicalize(program).ok())
        .filter_map(|program| program.parent().map(Path::to_owned))
        .find(|folder| is_complete(folder))
}

/// The complete folders below `parent` whose names begin with `prefix`, with their versions.
fn versions(parent: &Path, prefix: &str, below: &str) -> Vec<(Vec<u32>, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.trim_start_matches('@');
            let numbers = version.split('.').map_while(|part| part.parse().ok());
            Some((numbers.collect(), entry.path().join(below)))
        })
        .filter(|(_, folder)| is_complete(folder))
        .collect()
}

fn newest(mut found: Vec<(Vec<u32>, PathBuf)>) -> Option<PathBuf> {
    found.sort();
    found.pop().map(|(_, folder)| folder)
}

fn is_complete(folder: &Path) -> bool {
    ["initdb", "postgres"]
        .iter()
        .all(|program| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_programs(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for program in ["initdb", "postgres", "pg_ctl"] {
            fs::write(folder.join(program), "").unwrap();
        }
    }

    #[test]
    fn the_newest_complete_version_is_taken_by_number() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "16"] {
            with_programs(&root.path().join(version).join("bin"));
        }
        // Only the client's programs.
        fs::create_dir_all(root.path().join("17/bin")).unwrap();
        let found = newest(versions(root.path(), "", "bin")).unwrap();
        assert_eq!(found, root.path().join("16/bin"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_path_leads_to_its_neighbours() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("lib/15/bin");
        let linked = root.path().join("bin");
        with_programs(&real);
        fs::create_dir_all(&linked).unwrap();
        std::os::unix::fs::symlink(real.join("pg_ctl"), linked.join("pg_ctl")).unwrap();
        let found = on_path(linked.as_os_str()).unwrap();
        assert_eq!(found, fs::canonicalize(real).unwrap());
    }
}
