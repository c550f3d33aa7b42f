//! The language's own tool makes the component.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rapidbyte_engine::{Class, Failure};
use rapidbyte_runtime::Kind;
use serde_json::Value;

use crate::compose::{self, Adapters};
use crate::failure::{failed, missing};
use crate::project::{Language, Project};
use crate::said::{self, Said};

/// The target of a component in Rust.
const TARGET: &str = "wasm32-wasip2";

/// A component that was built.
#[derive(Debug)]
pub struct Built {
    /// The project that it was built from.
    pub project: Project,
    /// Its file.
    pub component: PathBuf,
    /// Its size in bytes.
    pub bytes: usize,
}

/// Builds a project and leaves `<name>.wasm` in its folder, without loading it. The output of the language's tool goes
/// to the standard error if `shows_all`, else to a file that is removed after a success.
///
/// # Errors
/// `not_a_connector_project`, `tool_missing`, `build_failed`.
pub fn build(folder: &Path, adapters: &Adapters, shows_all: bool) -> Result<Built, Failure> {
    let project = Project::load(folder)?;
    let around = |tool: &dyn Fn(&Path) -> Result<(), Failure>| around(&project, adapters, tool);
    let built = match project.language {
        Language::Rust => cargo(&project, folder)?,
        Language::Python => around(&|unfinished| python(&project, folder, unfinished, shows_all))?,
        Language::Javascript => {
            around(&|unfinished| javascript(&project, folder, unfinished, shows_all))?
        }
    };
    let component = project.component(folder);
    replace(&built, &component)
        .map_err(|error| failed(format!("{}: {error}", component.display())))?;
    Ok(Built {
        bytes: built.len(),
        component,
        project,
    })
}

/// Compiles with cargo and gives the component that it left.
fn cargo(project: &Project, folder: &Path) -> Result<Vec<u8>, Failure> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--target", TARGET])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(|error| {
        missing("cargo", &error).hint(format!(
            "install Rust from https://rustup.rs, and its target: rustup target add {TARGET}"
        ))
    })?;
    let said = child.stdout.take().map(BufReader::new);
    let mut component = None;
    for line in said.into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(|error| failed(format!("cargo: {error}")))?;
        if let Some(path) = artifact(&line, &project.name) {
            component = Some(path);
        }
    }
    let status = child
        .wait()
        .map_err(|error| failed(format!("cargo: {error}")))?;
    if !status.success() {
        return Err(failed(format!("cargo build: {status}")).hint(format!(
            "what is wrong stands above; where `core` or `std` cannot be found: \
             rustup target add {TARGET}"
        )));
    }
    let Some(component) = component else {
        return Err(failed("cargo left no component".into())
            .hint("Cargo.toml must have crate-type = [\"cdylib\", \"rlib\"] below [lib]"));
    };
    std::fs::read(&component).map_err(|error| failed(format!("what cargo left: {error}")))
}

/// Lets a tool write a component to a file, and composes it with the adapters that make it a connector.
fn around(
    project: &Project,
    adapters: &Adapters,
    tool: &dyn Fn(&Path) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let folder = tempfile::tempdir();
    let folder = folder.map_err(|error| failed(format!("a temporary folder: {error}")))?;
    let unfinished = folder.path().join("connector.wasm");
    tool(&unfinished)?;
    compose::around(&unfinished, project.kind, adapters)
}

/// Runs componentize-py from the project's virtual environment, or else from PATH.
fn python(
    project: &Project,
    folder: &Path,
    unfinished: &Path,
    shows_all: bool,
) -> Result<(), Failure> {
    const TOOL: Tool = Tool {
        name: "componentize-py",
        install: INSTALL_PYTHON,
        said: said::by_python,
    };
    let folder = absolute(folder)?;
    let venv = folder.join(".venv");
    let own = venv.join("bin").join(TOOL.name);
    let mut tool = Command::new(if own.is_file() {
        own.as_path()
    } else {
        Path::new(TOOL.name)
    });
    tool.args(["--wit-path", "rapidbyte/wit", "--world", world(project)])
        .args(INTERFACE_NAMES.map(|name| format!("--import-interface-name={name}")))
        .args(["componentize", "app", "--python-path", "."])
        .args(["--python-path", "rapidbyte/glue", "--output"])
        .arg(unfinished);
    if venv.is_dir() {
        // Its packages become part of the component. The packages of another environment do not.
        tool.env("VIRTUAL_ENV", &venv);
    }
    TOOL.finish(tool, &folder, shows_all)
}

/// The command that installs the tools of a project in Python, for its folder.
pub(crate) const INSTALL_PYTHON: &str =
    "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
/// The same for JavaScript.
pub(crate) const INSTALL_JAVASCRIPT: &str = "npm install";

/// Runs componentize-js by node.
fn javascript(
    project: &Project,
    folder: &Path,
    unfinished: &Path,
    shows_all: bool,
) -> Result<(), Failure> {
    const PACKAGE: &str = "componentize-js";
    const TOOL: Tool = Tool {
        name: "node",
        install: "install Node 20 or newer, then npm install",
        said: said::by_javascript,
    };
    let folder = absolute(folder)?;
    if !folder
        .join("node_modules/@bytecodealliance")
        .join(PACKAGE)
        .is_dir()
    {
        let text = format!("{PACKAGE} is not in the project's node_modules");
        let failure = Failure::new(Class::Environment, "tool_missing", text);
        return Err(failure.hint(format!("in the project's folder: {INSTALL_JAVASCRIPT}")));
    }
    let mut tool = Command::new(TOOL.name);
    tool.arg("rapidbyte/build.mjs")
        .arg(unfinished)
        .arg(world(project));
    TOOL.finish(tool, &folder, shows_all)
}

/// The Python names of the two interfaces that are called `types`.
const INTERFACE_NAMES: [&str; 2] = [
    "rapidbyte:connector/types@0.2.0=types",
    "wasi:http/types@0.2.4=http_types",
];

/// The WIT world of a connector, in `rapidbyte/wit/world.wit` of its project.
fn world(project: &Project) -> &'static str {
    match (project.kind, project.http) {
        (Kind::Source, false) => "source",
        (Kind::Source, true) => "source-http",
        (Kind::Transform, _) => "transform",
        (Kind::Destination, _) => "destination",
    }
}

/// The output of a tool, unless it is shown; removed after a success. The file is in our own folder of the project,
/// because a `build.log` beside the script may be the author's.
const LOG: &str = "rapidbyte/build.log";
/// How much of it is searched for the error.
const LOG_BYTES: u64 = 256 << 10;

/// A tool of another language.
struct Tool {
    name: &'static str,
    /// The command that installs it in a project.
    install: &'static str,
    /// Finds the error of the script in the tool's output.
    said: fn(&str) -> Option<Said>,
}

impl Tool {
    /// Runs it in a folder to its end. Its output never goes to our standard output.
    fn finish(&self, mut tool: Command, folder: &Path, shows_all: bool) -> Result<(), Failure> {
        let log = folder.join(LOG);
        tool.current_dir(folder).stdin(Stdio::null());
        if shows_all {
            tool.stdout(std::io::stderr());
        } else {
            let files = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
            let (out, err) =
                files.map_err(|error| failed(format!("{}: {error}", log.display())))?;
            tool.stdout(out).stderr(err);
        }
        let status = tool.status().map_err(|error| {
            missing(self.name, &error).hint(format!("in the project's folder: {}", self.install))
        });
        if shows_all {
            return match status? {
                status if status.success() => Ok(()),
                status => {
                    let failure = failed(format!("{}: {status}", self.name));
                    Err(failure.hint("what is wrong stands above"))
                }
            };
        }
        match status {
            Ok(status) if !status.success() => Err(self.told(&log, &status.to_string())),
            ended => {
                // It says nothing that anybody needs; if it stays, it does no harm.
                let _ = std::fs::remove_file(&log);
                ended.map(drop)
            }
        }
    }

    /// The error of the script, as far as the tool reports it.
    fn told(&self, log: &Path, status: &str) -> Failure {
        let mut bytes = Vec::new();
        let read = File::open(log).and_then(|file| file.take(LOG_BYTES).read_to_end(&mut bytes));
        let said = read
            .ok()
            .and_then(|_| (self.said)(&String::from_utf8_lossy(&bytes)));
        let mut failure = match said {
            Some(Said { message, place }) => {
                let mut failure = failed(message);
                failure.location = place;
                failure
            }
            None => failed(format!("{}: {status}", self.name)),
        };
        failure.hint = Some(format!(
            "all that {} said is in {}; -v shows it",
            self.name,
            log.display()
        ));
        failure
    }
}

fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(folder).map_err(|error| failed(format!("{}: {error}", folder.display())))
}

/// The component that a line of cargo's messages tells of.
fn artifact(line: &str, package: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let files = message["filenames"].as_array()?;
    let name = message["target"]["name"].as_str()?;
    let component = files
        .iter()
        .filter_map(Value::as_str)
        .find(|file| file.ends_with(".wasm"))?;
    (name == package.replace('-', "_")).then(|| component.into())
}

/// Puts a component in the place of an older one, in one step.
fn replace(bytes: &[u8], to: &Path) -> std::io::Result<()> {
    let unfinished = to.with_extension("wasm.tmp");
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(&unfinished, to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_component_is_the_packages_own() {
        let line = |name: &str, file: &str| {
            json!({ "reason": "compiler-artifact", "target": { "name": name }, "filenames": [file] })
                .to_string()
        };
        let own = line("source_shop", "/t/source_shop.wasm");
        assert_eq!(
            artifact(&own, "source-shop"),
            Some("/t/source_shop.wasm".into())
        );
        assert_eq!(
            artifact(&line("serde", "/t/serde.wasm"), "source-shop"),
            None
        );
        assert_eq!(
            artifact(&line("source_shop", "/t/source_shop.rlib"), "source-shop"),
            None
        );
        assert_eq!(artifact("no message", "source-shop"), None);
    }
}
