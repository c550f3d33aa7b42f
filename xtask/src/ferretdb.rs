//! FerretDB for the tests: its program, built by Go, and Debian's PostgreSQL with DocumentDB, unpacked below `target/`.
//!
//! Nothing is installed outside, and no rights are needed. Hashes of the program's source and of the packages are pinned
//! (`crates/testkit/ferretdb`). The packages are those of Debian's testing, which moves: where it no longer has one of
//! them, the tests say that they are skipped, and `crates/testkit/ferretdb/renew` pins the newer ones.

use std::fs;
use std::io::Error;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Steps, capture, is_installed};
use crate::workspace::Workspace;

/// As the test kit reads it: a folder with `ferretdb`, and in `postgresql` the programs of the server.
pub const VARIABLE: &str = "RAPIDBYTE_FERRETDB";

const MODULE: &str = "github.com/FerretDB/FerretDB/v2";
const VERSION: &str = "v2.7.0";
/// As Go's `go.sum` has it: of the module's files, its own list of pinned modules among them.
const SUM: &str = "h1:e68kyioANdGrATjgVINPCJgsSN7H+cOPMDGvJoYxz5E=";

/// One line for each package: the hash and the name of the file, which has the version.
const PACKAGES: &str = include_str!("../../crates/testkit/ferretdb/SHA256SUMS");
/// The system that the packages are for.
const ARCHITECTURE: &str = "amd64";
const SUITE: &str = "forky";
/// What apt checks the suite's lists with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Inside the unpacked packages.
const SERVER: &str = "usr/lib/postgresql/18";
const EXTENSIONS: &str = "usr/share/postgresql/18/extension";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// The folder, if it can be had.
pub fn folder(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let home = workspace.mongodb().join(format!("ferretdb-{VERSION}"));
    if fs::read_to_string(home.join("complete")).is_ok_and(|made_of| made_of == PACKAGES) {
        return Some(home);
    }
    let made = steps.step(&format!("set up: FerretDB {VERSION}"), || {
        obtain(workspace, &home)
    });
    if let Err(error) = made {
        steps.note(&format!("tests of FerretDB are SKIPPED: {}", error.message));
        return None;
    }
    Some(home)
}

fn obtain(workspace: &Workspace, home: &Path) -> Result<(), Failure> {
    let cannot = |error: Error| Failure::new(format!("{}: {error}", workspace.shown(home)));
    let apt = Apt::of_this_system(home)?;
    if home.is_dir() {
        fs::remove_dir_all(home).map_err(cannot)?;
    }
    fs::create_dir_all(home).map_err(cannot)?;
    let root = home.join("root");
    apt.unpack(&root, cannot)?;
    program(home, cannot)?;
    // Debian's package registers the file by `update-alternatives` when it is installed.
    let control = root.join(EXTENSIONS).join("postgis.control");
    symlink("postgis-3.control", control).map_err(cannot)?;
    for program in ["postgres", "initdb"] {
        wrap(&root, program).map_err(cannot)?;
    }
    let programs = home.join("postgresql");
    symlink(Path::new("root").join(SERVER).join("bin"), &programs).map_err(cannot)?;
    for program in [programs.join("postgres"), home.join("ferretdb")] {
        let mut version = Command::new(program);
        version.arg("--version");
        capture(version)?;
    }
    fs::write(home.join("complete"), PACKAGES).map_err(cannot)
}

/// Builds FerretDB's program.
fn program(home: &Path, cannot: impl Fn(Error) -> Failure) -> Result<(), Failure> {
    // Go's caches are large, and of no use afterwards.
    let caches = home.join("go");
    let go = || {
        let mut go = Command::new("go");
        go.current_dir(home)
            .env("GOPATH", &caches)
            .env("GOCACHE", caches.join("build"))
            .env("GOFLAGS", "-modcacherw -buildvcs=false")
            .env("GOBIN", home);
        go
    };
    let mut version = go();
    version.arg("version");
    capture(version).map_err(|_| Failure::new("no go: install Go 1.25 or later"))?;
    let mut download = go();
    download.args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")]);
    if !capture(download)?.contains(&format!("\"Sum\": \"{SUM}\"")) {
        return Err(Failure::new(format!(
            "{MODULE}@{VERSION} is not the pinned one"
        )));
    }
    let mut install = go();
    install.args(["install", &format!("{MODULE}/cmd/ferretdb@{VERSION}")]);
    capture(install)?;
    fs::remove_dir_all(&caches).map_err(cannot)
}

/// Debian's packages, by an apt with lists of its own.
struct Apt {
    folder: PathBuf,
    mirror: String,
}

impl Apt {
    fn of_this_system(home: &Path) -> Result<Self, Failure> {
        if !is_installed("apt-get", &[]) || !is_installed("dpkg-deb", &[]) {
            return Err(Failure::new("no apt-get that would bring PostgreSQL"));
        }
        let mut architecture = Command::new("dpkg");
        architecture.arg("--print-architecture");
        let found = capture(architecture)?;
        if found != ARCHITECTURE {
            return Err(Failure::new(format!(
                "packages are pinned for {ARCHITECTURE}, and this system is {found}"
            )));
        }
        if !Path::new(KEYRING).is_file() {
            return Err(Failure::new("no keys of Debian's archive"));
        }
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        let mirror = mirror_of(&capture(targets)?)
            .ok_or_else(|| Failure::new("no mirror of Debian is among the sources of apt"))?;
        Ok(Self {
            folder: home.join("apt"),
            mirror,
        })
    }

    fn unpack(&self, root: &Path, cannot: impl Fn(Error) -> Failure) -> Result<(), Failure> {
        let folder = &self.folder;
        for name in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(name)).map_err(&cannot)?;
        }
        let sums = folder.join("SHA256SUMS");
        for (name, text) in [
            ("status", ""),
            ("sources.list", &self.sources()),
            ("apt.conf", &self.settings()),
            ("SHA256SUMS", PACKAGES),
        ] {
            fs::write(folder.join(name), text).map_err(&cannot)?;
        }
        let apt = |arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.current_dir(folder)
                .env("APT_CONFIG", folder.join("apt.conf"))
                .arg("-qq")
                .args(arguments);
            apt
        };
        capture(apt(&["update"]))?;
        let mut download = apt(&["download"]);
        download.args(packages());
        // The messages of apt say which one.
        capture(download).map_err(|_| {
            Failure::new(format!(
                "Debian's {SUITE} does not have each pinned package; pin the newer ones: \
                 crates/testkit/ferretdb/renew"
            ))
        })?;
        let mut check = Command::new("sha256sum");
        check
            .current_dir(folder)
            .args(["--check", "--strict", "--quiet"])
            .arg(&sums);
        capture(check).map_err(|_| Failure::new("a package is not the pinned one"))?;
        for file in files() {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(folder.join(file)).arg(root);
            capture(unpack)?;
        }
        fs::remove_dir_all(folder).map_err(cannot)
    }

    fn sources(&self) -> String {
        let mirror = &self.mirror;
        format!("deb [arch={ARCHITECTURE} signed-by={KEYRING}] {mirror} {SUITE} main\n")
    }

    fn settings(&self) -> String {
        let folder = self.folder.display();
        format!(
            "Dir::Etc::SourceList \"{folder}/sources.list\";\nDir::Etc::SourceParts \"/nonexistent\";\n\
             Dir::State::Lists \"{folder}/lists\";\nDir::State::Status \"{folder}/status\";\n\
             Dir::Cache \"{folder}\";\nAcquire::Languages \"none\";\n\
             APT::Sandbox::User \"\";\n"
        )
    }
}

/// The first mirror of Debian, and not of its security updates.
fn mirror_of(sources: &str) -> Option<String> {
    let mut sources = sources.lines().map(str::trim);
    let mirror = sources.find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    mirror.map(str::to_owned)
}

/// The names of the files of packages.
fn files() -> impl Iterator<Item = &'static str> {
    PACKAGES
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
}

/// The same as apt takes them: `name=version`.
fn packages() -> impl Iterator<Item = String> {
    files().filter_map(|file| {
        let mut parts = file.split('_');
        let (name, version) = (parts.next()?, parts.next()?);
        Some(format!("{name}={}", version.replace("%3a", ":")))
    })
}

/// Puts a script in the place of a program, which runs the program with the libraries of its packages: the system's own C
/// library may be older. `postgres` is found beside `initdb` by the script's name.
fn wrap(root: &Path, program: &str) -> Result<(), Error> {
    let server = root.join(SERVER);
    let script = server.join("bin").join(program);
    let real = server.join("real");
    fs::create_dir_all(&real)?;
    let real = real.join(program);
    fs::rename(&script, &real)?;
    let libraries = root.join(LIBRARIES);
    let text = format!(
        "#!/bin/sh\nexec '{}' --library-path '{}:{}' --argv0 '{}' '{}' \"$@\"\n",
        libraries.join(LOADER).display(),
        libraries.display(),
        server.join("lib").display(),
        script.display(),
        real.display(),
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pinned_file_names_a_package_and_its_version() {
        let packages: Vec<String> = packages().collect();
        assert_eq!(packages.len(), PACKAGES.lines().count());
        for package in ["postgresql-18=", "postgresql-18-documentdb=", "libc6="] {
            assert!(packages.iter().any(|one| one.starts_with(package)));
        }
        assert!(packages.iter().any(|one| one.starts_with("zlib1g=1:")));
    }

    #[test]
    fn the_mirror_is_the_one_of_packages_and_not_of_security_updates() {
        let sources = "http://m.example.org/debian-security/\nhttp://m.example.org/debian/\n";
        let found = Some("http://m.example.org/debian/".to_owned());
        assert_eq!(mirror_of(sources), found);
        assert_eq!(mirror_of("http://m.example.org/ubuntu/\n"), None);
    }
}
