//! A C compiler for the connectors' target: crates such as zstd-sys compile C into a component.
//!
//! rustup brings a linker and a C library for `wasm32-wasip2`, yet no C compiler, and few systems
//! have one for it. Zig's comes from the Python package index ([`crate::python`]) with its version
//! pinned here. Cargo gets it by the variables that the crate `cc` reads. A compiler that the
//! caller names in `CC_wasm32_wasip2` is used instead, and then nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;

const ZIG: &str = "0.17.1";
const CC: &str = "CC_wasm32_wasip2";
const AR: &str = "AR_wasm32_wasip2";

/// The programs that cargo is given. `None` where the caller has set his own.
#[derive(Debug, PartialEq, Eq)]
pub struct CCompiler {
    /// `cc` and `ar`, absolute.
    programs: Option<(PathBuf, PathBuf)>,
}

impl CCompiler {
    /// Names the programs to a cargo that builds for the connectors' target.
    pub fn give_to(&self, cargo: &mut Command) {
        if let Some((cc, ar)) = &self.programs {
            cargo.env(CC, cc).env(AR, ar);
        }
    }
}

/// Installs the compiler unless it is there.
pub fn setup(workspace: &Workspace, steps: &mut Steps) -> Result<CCompiler, Failure> {
    if std::env::var_os(CC).is_some_and(|compiler| !compiler.is_empty()) {
        return Ok(CCompiler { programs: None });
    }
    let venv = python::environment(
        workspace,
        steps,
        &[&format!("ziglang=={ZIG}")],
        "it brings the C compiler of the connectors (or name your own in CC_wasm32_wasip2)",
    )?;
    let zig = find(&venv)?;
    let folder = workspace.c_compiler();
    fs::create_dir_all(&folder).map_err(|error| unwritable(workspace, &folder, &error))?;
    let write = |name: &str, body: &str| {
        let file = folder.join(name);
        write_script(&file, &script(&zig, &folder, body))
            .map_err(|error| unwritable(workspace, &file, &error))?;
        Ok(file)
    };
    Ok(CCompiler {
        programs: Some((write("cc", COMPILE)?, write("ar", ARCHIVE)?)),
    })
}

/// Zig does not know the name that rustc gives the target, and its own says the same: version 2
/// differs in how a component is linked, which rustc does.
const COMPILE: &str = r#"for argument; do
    shift
    case $argument in --target=*) ;; *) set -- "$@" "$argument" ;; esac
done
exec "$zig" cc -target wasm32-wasi "$@""#;

const ARCHIVE: &str = r#"exec "$zig" ar "$@""#;

/// A program for sh that runs zig with its caches below `target/`.
fn script(zig: &Path, folder: &Path, body: &str) -> String {
    format!(
        "#!/bin/sh\n# Written by `cargo xtask`.\nzig={}\n\
         ZIG_GLOBAL_CACHE_DIR={cache}\nZIG_LOCAL_CACHE_DIR=$ZIG_GLOBAL_CACHE_DIR\n\
         export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR\n{body}\n",
        quoted(zig),
        cache = quoted(&folder.join("cache")),
    )
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// The compiler in a virtual environment.
fn find(venv: &Path) -> Result<PathBuf, Failure> {
    let name = format!("zig{}", std::env::consts::EXE_SUFFIX);
    let below = |packages: PathBuf| packages.join("site-packages/ziglang").join(&name);
    let mut places = vec![below(venv.join("Lib"))];
    if let Ok(versions) = fs::read_dir(venv.join("lib")) {
        places.extend(versions.flatten().map(|python| below(python.path())));
    }
    places
        .into_iter()
        .find(|place| place.is_file())
        .ok_or_else(|| {
            Failure::new(format!(
                "ziglang {ZIG} is installed below target/python, yet {name} is not in it; \
                 remove that folder and build again"
            ))
        })
}

/// Writes a program unless it is there already: a new time stamp would say that it changed.
fn write_script(file: &Path, text: &str) -> std::io::Result<()> {
    if fs::read(file).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    fs::write(file, text)?;
    make_executable(file)
}

#[cfg(unix)]
fn make_executable(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

fn unwritable(workspace: &Workspace, file: &Path, error: &std::io::Error) -> Failure {
    let shown = workspace.shown(file);
    Failure::new(format!("{shown} cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::capture;

    /// The arguments with which a written program calls `zig`.
    ///
    /// Nothing that this process wrote is executed: a test in another thread that starts a
    /// program at that moment would hold it open for writing ("text file busy"). sh reads the
    /// program, and `zig` is sh too, for which `cc` and `ar` are files to read.
    #[cfg(unix)]
    fn called(body: &str, arguments: &[&str]) -> String {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("it's a folder");
        fs::create_dir(&folder).unwrap();
        let zig = folder.join("zig");
        std::os::unix::fs::symlink("/bin/sh", &zig).unwrap();
        for read in ["cc", "ar"] {
            fs::write(folder.join(read), "printf '<%s>' \"$0\" \"$@\"\n").unwrap();
        }
        let file = folder.join("program");
        write_script(&file, &script(&zig, &folder, body)).unwrap();
        let mut program = Command::new("/bin/sh");
        program.arg(file).args(arguments).current_dir(&folder);
        capture(program).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn the_targets_name_is_exchanged_and_other_arguments_stay() {
        let arguments = ["-O3", "--target=wasm32-wasip2", "-c", "a b.c", "-DX=\"y\""];
        assert_eq!(
            called(COMPILE, &arguments),
            "<cc><-target><wasm32-wasi><-O3><-c><a b.c><-DX=\"y\">"
        );
        assert_eq!(called(ARCHIVE, &["cq", "lib.a"]), "<ar><cq><lib.a>");
    }

    #[test]
    fn the_compiler_is_found_whatever_the_version_of_python() {
        let venv = tempfile::tempdir().unwrap();
        assert!(find(venv.path()).is_err());
        let package = venv.path().join("lib/python3.99/site-packages/ziglang");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("zig"), "").unwrap();
        assert_eq!(find(venv.path()).unwrap(), package.join("zig"));
    }
}
