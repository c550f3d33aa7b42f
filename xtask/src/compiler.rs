//! This program as cargo's `rustc-workspace-wrapper`: it compiles a crate of the workspace, then runs Clippy and rustdoc
//! on it. So the checks of the code need no second build of the dependencies, which `cargo clippy` and `cargo doc` make.
//!
//! Arguments and messages are those between cargo and rustc; Clippy and rustdoc take the same ones, with less output.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Options with a value, which name what rustc makes, in which form it writes messages about that, and where it goes.
const OF_OUTPUT: [&str; 3] = ["--emit", "--json", "--out-dir"];

/// Compiles and checks when cargo started this program in the place of rustc.
pub fn if_called_as_one() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let rustc = PathBuf::from(arguments.next()?);
    if rustc.file_stem() != Some(OsStr::new("rustc")) {
        return None;
    }
    let arguments: Vec<OsString> = arguments.collect();
    let is_fine = succeeds(Command::new(&rustc).args(&arguments))
        && checks(&rustc, &arguments).iter_mut().all(succeeds);
    Some(match is_fine {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The programs that check a crate which rustc compiles with these arguments. Empty if cargo only asks about the compiler.
fn checks(rustc: &Path, arguments: &[OsString]) -> Vec<Command> {
    let Some(output) = value(arguments, "--out-dir") else {
        return Vec::new();
    };
    let is = |name, expected| value(arguments, name).as_deref() == Some(expected);
    let is_build_script = is("--crate-name", "build_script_build");
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let is_component = value(arguments, "--target").is_some();
    // Nobody needs their output. It goes beside the folder that rustc writes to.
    let scratch = Path::new(&output).with_file_name("checked");
    let mut clippy = Command::new(rustc.with_file_name("clippy-driver"));
    clippy
        .arg(rustc)
        .args(without_output(arguments))
        // "artifacts" would tell cargo that the crate can be used.
        .args(["--json=diagnostic-rendered-ansi", "--emit=metadata"])
        .arg("--out-dir")
        .arg(&scratch)
        .args(["-D", "warnings"]);
    let mut all = vec![clippy];
    // The documentation of components comes from their builds for the host.
    if !(is_build_script || is_test || is_component) {
        let mut rustdoc = Command::new(rustc.with_file_name("rustdoc"));
        rustdoc
            .args(without_output(arguments))
            .args(["--json=diagnostic-rendered-ansi", "-D", "warnings"])
            .arg("--out-dir")
            .arg(scratch.join("doc"));
        if is("--crate-type", "bin") {
            rustdoc.arg("--document-private-items");
        }
        all.push(rustdoc);
    }
    all
}

/// The value of an option, written as `--name value` or `--name=value`.
fn value(arguments: &[OsString], name: &str) -> Option<String> {
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    while let Some(argument) = arguments.next() {
        if argument == name {
            return arguments.next().map(String::from);
        }
        let value = argument.strip_prefix(name);
        if let Some(value) = value.and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.to_owned());
        }
    }
    None
}

fn without_output(arguments: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_ref(), None),
        };
        match (OF_OUTPUT.contains(&name), value) {
            (true, Some(_)) => {}
            (true, None) => drop(arguments.next()),
            (false, _) => kept.push(argument),
        }
    }
    kept
}

fn succeeds(program: &mut Command) -> bool {
    match program.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{} did not start: {error}", program.get_program().display());
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let shown = |command: &Command| {
            let program = Path::new(command.get_program()).file_name().unwrap();
            let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
            format!("{} {}", program.to_string_lossy(), arguments.join(" "))
        };
        let all = checks(Path::new("bin/rustc"), &arguments);
        all.iter().map(shown).collect()
    }

    #[test]
    fn a_library_is_linted_and_documented_elsewhere() {
        let line = "--crate-name a --crate-type lib src/lib.rs --json=artifacts --emit=dep-info,metadata,link \
                    -C opt-level=1 --out-dir /t/ci/deps --extern b=/t/ci/deps/libb.rmeta";
        let kept = "--crate-name a --crate-type lib src/lib.rs -C opt-level=1 --extern b=/t/ci/deps/libb.rmeta \
                    --json=diagnostic-rendered-ansi";
        assert_eq!(
            of(line),
            [
                format!(
                    "clippy-driver bin/rustc {kept} --emit=metadata --out-dir /t/ci/checked -D warnings"
                ),
                format!("rustdoc {kept} -D warnings --out-dir /t/ci/checked/doc"),
            ]
        );
    }

    #[test]
    fn tests_and_components_are_linted_alone_and_questions_are_not() {
        for more in ["--test", "--target wasm32-wasip2"] {
            let all = of(&format!("--crate-name a {more} --out-dir /t/deps"));
            assert_eq!(all.len(), 1, "{all:?}");
        }
        assert!(of("- --crate-name ___ --print=file-names").is_empty());
    }
}
