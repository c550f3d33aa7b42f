//! Other products to be measured beside ours: pinned versions, each in a folder of its own below
//! `target/`. A product that cannot be installed is left out, with a note.

use std::fs;
use std::path::{Path, PathBuf};

use crate::python;
use crate::step::{Failure, Steps, run};
use crate::workspace::Workspace;

/// A product from the Python package index.
struct Package {
    /// As `crates/bench` knows it.
    name: &'static str,
    /// Its packages; the first names the folder.
    packages: &'static [&'static str],
    /// The program to start, from the top of the virtual environment; Python unless it brings its
    /// own.
    program: &'static str,
}

const PYTHON: &str = "bin/python3";
const PACKAGES: [Package; 4] = [
    Package {
        name: "duckdb",
        packages: &["duckdb==1.5.5", "duckdb-extension-postgres-scanner==1.5.5"],
        program: PYTHON,
    },
    Package {
        name: "adbc",
        packages: &[
            "adbc-driver-postgresql==1.13.0",
            "adbc-driver-manager==1.13.0",
            "pyarrow==26.0.1",
        ],
        program: PYTHON,
    },
    Package {
        name: "dlt",
        packages: &[
            "dlt[postgres]==1.31.0",
            "pyarrow==26.0.1",
            "sqlalchemy==2.0.44",
        ],
        program: PYTHON,
    },
    Package {
        name: "sling",
        packages: &["sling-linux-amd64==1.4.11"],
        program: "lib/python3*/site-packages/sling_linux_amd64/bin/sling-linux-amd64",
    },
];
/// Debian's package, of whatever version the system's sources have.
const PGCOPYDB: &str = "pgcopydb";

/// Installs all that can be had; fails when that is nothing.
pub fn setup(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let folder = workspace.bench_peers();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("the peers' folder cannot be made: {error}")))?;
    let mut names = Vec::new();
    for package in &PACKAGES {
        let found = package.install(workspace, steps);
        if note(steps, &folder, package.name, found) {
            names.push(package.name);
        }
    }
    let found = pgcopydb(workspace, steps, &folder);
    if note(steps, &folder, PGCOPYDB, found) {
        names.push(PGCOPYDB);
    }
    if names.is_empty() {
        return Err(Failure::new("no peer could be installed"));
    }
    steps.note(&format!(
        "`cargo xtask bench --peers` measures {}",
        names.join(", ")
    ));
    Ok(())
}

/// Leaves where the program is in a file of the peer's name.
fn note(steps: &Steps, folder: &Path, name: &str, found: Result<PathBuf, Failure>) -> bool {
    let written = found.and_then(|program| {
        let written = fs::write(folder.join(name), program.as_os_str().as_encoded_bytes());
        written.map_err(|error| Failure::new(error.to_string()))
    });
    if let Err(failure) = &written {
        // An older one is not to be taken for this one.
        let _ = fs::remove_file(folder.join(name));
        steps.note(&format!("{name} is left out: {}", failure.message));
    }
    written.is_ok()
}

impl Package {
    fn install(&self, workspace: &Workspace, steps: &mut Steps) -> Result<PathBuf, Failure> {
        let why = "the bench would compare with products that need it";
        let venv = python::environment(workspace, steps, self.packages, why)?;
        find(&venv, self.program)
            .ok_or_else(|| Failure::new(format!("its package has no {}", self.program)))
    }
}

/// The file below a folder; a part that ends in `*` stands for the first that begins so.
fn find(folder: &Path, pattern: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for part in pattern.split('/') {
        match part.strip_suffix('*') {
            None => path.push(part),
            Some(begin) => {
                let mut names: Vec<_> = fs::read_dir(&path)
                    .ok()?
                    .flatten()
                    .map(|entry| entry.file_name())
                    .filter(|name| name.to_string_lossy().starts_with(begin))
                    .collect();
                names.sort();
                path.push(names.first()?);
            }
        }
    }
    path.is_file().then_some(path)
}

/// From a system that has it, else out of Debian's package, which is unpacked and not installed.
fn pgcopydb(workspace: &Workspace, steps: &mut Steps, folder: &Path) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join(PGCOPYDB));
    if let Some(program) = installed.into_iter().find(|program| program.is_file()) {
        return Ok(program);
    }
    let unpacked = folder.join("debian");
    let program = unpacked.join("usr/bin").join(PGCOPYDB);
    if program.is_file() {
        return Ok(program);
    }
    steps.step("set up: pgcopydb, Debian's package", || {
        fs::create_dir_all(&unpacked).map_err(|error| Failure::new(error.to_string()))?;
        let mut download = workspace.command("apt-get");
        download
            .args(["download", "--quiet", PGCOPYDB])
            .current_dir(&unpacked);
        run(download)?;
        for archive in fs::read_dir(&unpacked).into_iter().flatten().flatten() {
            if archive.path().extension().is_some_and(|end| end == "deb") {
                let mut unpack = workspace.command("dpkg-deb");
                unpack.arg("--extract").arg(archive.path()).arg(&unpacked);
                run(unpack)?;
            }
        }
        match program.is_file() {
            true => Ok(program.clone()),
            false => Err(Failure::new("Debian's package has no program of this name")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_whatever_the_version_of_python() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/python3.11/bin");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "").unwrap();
        assert_eq!(
            find(root.path(), "lib/python3*/bin/a"),
            Some(folder.join("a"))
        );
        assert_eq!(find(root.path(), "lib/python3*/bin/b"), None);
        assert_eq!(find(root.path(), "lib/python2*/bin/a"), None);
    }

    #[test]
    fn a_program_that_is_missing_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let steps = Steps::begin("test");
        assert!(note(&steps, root.path(), "a", Ok("/bin/a".into())));
        assert_eq!(fs::read_to_string(root.path().join("a")).unwrap(), "/bin/a");
        assert!(!note(&steps, root.path(), "a", Err(Failure::new("gone"))));
        assert!(!root.path().join("a").exists());
    }
}
