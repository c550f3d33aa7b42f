//! This program as maturin's cargo: the extension module of a wheel comes from the build of the workspace.
//!
//! By itself maturin runs `cargo rustc` for the one package. Cargo resolves other features for some dependencies then,
//! and compiles most of them a second time. Here `rustc` becomes the build that the caller has just done, so cargo only
//! says where the library is. Every other subcommand reaches cargo as it is.

use std::ffi::{OsStr, OsString};
use std::process::{Command, ExitCode};

/// Tells this program that it stands in for cargo: the path of the real cargo, then the arguments of the build.
const BUILD: &str = "RAPIDBYTE_XTASK_AS_CARGO";
/// Between them. Cargo separates the compiler's flags by this character, too.
const SEPARATOR: char = '\u{1f}';

/// Makes `program` find this program as its cargo, with `build` in the place of `cargo rustc`.
pub fn give_to(program: &mut Command, build: &Command) {
    let words = std::iter::once(build.get_program()).chain(build.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    let this = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => program.env(name, value),
            None => program.env_remove(name),
        };
    }
    program
        .env("CARGO", this)
        .env(BUILD, words.join(&SEPARATOR.to_string()));
}

/// Does what cargo would do when maturin started this program.
pub fn if_called_as_one() -> Option<ExitCode> {
    let build = std::env::var(BUILD).ok()?;
    let asked: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut cargo = in_place_of(&asked, &build);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_python(name)) {
        cargo.env_remove(name);
    }
    Some(match cargo.status() {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("{} did not start: {error}", cargo.get_program().display());
            ExitCode::FAILURE
        }
    })
}

/// The cargo that does what was asked for.
fn in_place_of(asked: &[OsString], build: &str) -> Command {
    let mut build = build.split(SEPARATOR);
    let program = build.next().unwrap_or("cargo");
    let mut cargo = Command::new(program);
    match asked.first().is_some_and(|first| first == "rustc") {
        true => {
            cargo.args(build);
            cargo.args(["--message-format", "json-render-diagnostics"]);
        }
        false => {
            cargo.args(asked);
        }
    }
    // Build scripts and compilers below get the real cargo.
    cargo.env("CARGO", program).env_remove(BUILD);
    cargo
}

/// Variables by which maturin names an interpreter: with them, the build scripts of pyo3 would run again.
/// `.cargo/config.toml` has all that the build needs.
fn is_about_python(name: &OsStr) -> bool {
    name == "PYTHON_SYS_EXECUTABLE" || name.to_string_lossy().starts_with("PYO3_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "/bin/cargo\u{1f}build\u{1f}--profile\u{1f}ci\u{1f}--workspace";

    fn asked(line: &str) -> Command {
        let asked: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        in_place_of(&asked, WORKSPACE)
    }

    fn arguments(command: &Command) -> Vec<&OsStr> {
        command.get_args().collect()
    }

    #[test]
    fn a_build_of_one_package_becomes_the_build_of_the_workspace() {
        let cargo = asked("rustc --profile dev --manifest-path python/Cargo.toml --lib");
        assert_eq!(
            arguments(&cargo),
            [
                "build",
                "--profile",
                "ci",
                "--workspace",
                "--message-format",
                "json-render-diagnostics"
            ]
        );
        assert_eq!(cargo.get_program(), "/bin/cargo");
    }

    #[test]
    fn every_other_subcommand_reaches_cargo_as_it_is() {
        let cargo = asked("metadata --format-version 1 rustc");
        assert_eq!(
            arguments(&cargo),
            ["metadata", "--format-version", "1", "rustc"]
        );
        assert_eq!(cargo.get_program(), "/bin/cargo");
    }

    #[test]
    fn cargo_does_not_start_the_stand_in_again() {
        let cargo = asked("rustc");
        let variable = |name: &str| cargo.get_envs().find(|(found, _)| *found == name);
        assert_eq!(variable(BUILD), Some((OsStr::new(BUILD), None)));
        let real = Some(OsStr::new("/bin/cargo"));
        assert_eq!(variable("CARGO"), Some((OsStr::new("CARGO"), real)));
    }

    #[test]
    fn the_stand_in_gets_the_build_with_its_variables() {
        let mut build = Command::new("/bin/cargo");
        build.args(["build", "--profile", "ci", "--workspace"]);
        build.env("RAPIDBYTE_EMBED", "/t/ci/connectors");
        let mut maturin = Command::new("maturin");
        give_to(&mut maturin, &build);
        let variable = |name: &str| maturin.get_envs().find(|(found, _)| *found == name);
        let value = |name: &str| variable(name).and_then(|(_, value)| value);
        assert_eq!(value(BUILD), Some(OsStr::new(WORKSPACE)));
        assert_eq!(
            value("RAPIDBYTE_EMBED"),
            Some(OsStr::new("/t/ci/connectors"))
        );
        assert_eq!(
            value("CARGO"),
            std::env::current_exe()
                .ok()
                .as_deref()
                .map(std::path::Path::as_os_str)
        );
    }

    #[test]
    fn the_interpreter_of_maturin_is_not_for_the_build() {
        for name in ["PYO3_PYTHON", "PYO3_CONFIG_FILE", "PYTHON_SYS_EXECUTABLE"] {
            assert!(is_about_python(OsStr::new(name)), "{name}");
        }
        for name in ["PYTHONPATH", "RAPIDBYTE_PYTHON", "CARGO"] {
            assert!(!is_about_python(OsStr::new(name)), "{name}");
        }
    }
}
