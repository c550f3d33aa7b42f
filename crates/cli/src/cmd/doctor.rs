//! `rapidbyte doctor [PIPELINE]`

use std::path::{Path, PathBuf};

use rapidbyte::{CONTRACT, Class, Described, Failure};
use serde_json::{Value, json};

use super::check;
use crate::args::{Common, Doctor, Pipeline};
use crate::output::{Output, bytes, wrapped};
use crate::setup::{self, Session};

/// Less room than this is worth a word: connectors' code and a small load fit.
const LOW_DISK_BYTES: u64 = 1 << 30;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    /// It works, and could be better.
    Warning,
    Failed,
}

/// One check and its result.
struct Finding {
    area: &'static str,
    name: String,
    state: State,
    detail: String,
    /// The next action.
    hint: Option<String>,
    /// Of a failed one.
    class: Class,
    /// Of a connector's file, in hexadecimal.
    hash: Option<String>,
}

impl Finding {
    fn ok(area: &'static str, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            area,
            name: name.into(),
            state: State::Ok,
            detail: detail.into(),
            hint: None,
            class: Class::Run,
            hash: None,
        }
    }

    fn warning(self, hint: &str) -> Self {
        Self {
            state: State::Warning,
            hint: Some(hint.into()),
            ..self
        }
    }

    fn failed(self, class: Class, hint: Option<&str>) -> Self {
        Self {
            state: State::Failed,
            hint: hint.map(str::to_owned),
            class,
            ..self
        }
    }

    fn word(&self) -> &'static str {
        match self.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "failed",
        }
    }

    fn document(&self) -> Value {
        json!({
            "area": self.area, "name": self.name, "state": self.word(), "detail": self.detail,
            "hint": self.hint, HASH: self.hash,
        })
    }
}

/// Looks at everything, prints it, and fails if something is broken: with exit code 3 if something
/// outside cannot be reached or is not allowed, else with 1.
pub fn run(doctor: &Doctor, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = doctor.file.clone().map(|file| Pipeline { file });
    let pipeline = match &pipeline {
        Some(pipeline) => Some(setup::pipeline_with_source(pipeline, common)?),
        None => None,
    };
    let mut findings = vec![program()];
    findings.extend(cache());
    // `cache` has already reported problems of the cache.
    let session = setup::session(&output.silent(), pipeline.as_ref())?;
    findings.extend(connectors(&session)?);
    if let Some(pipeline) = &pipeline {
        findings.extend(pipeline_findings(pipeline, &session)?);
    }
    for finding in &findings {
        output.text(&text_of(finding, output));
    }
    let documents: Vec<Value> = findings.iter().map(Finding::document).collect();
    let failed = || findings.iter().filter(|f| f.state == State::Failed);
    let outside = failed().find(|finding| finding.class == Class::Environment);
    let Some(worst) = outside.or_else(|| failed().next()) else {
        output.document(&json!({ "status": "ok", "findings": documents }));
        return Ok(());
    };
    output.known(json!({ "findings": documents }));
    let text = match failed().count() {
        1 => format!("{}: {}", worst.name, worst.detail),
        count => format!(
            "{count} checks failed, such as {}: {}",
            worst.name, worst.detail
        ),
    };
    let failure = Failure::new(worst.class, "unhealthy", text);
    Err(match &worst.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

fn text_of(finding: &Finding, output: &Output) -> String {
    let color = match finding.state {
        State::Ok => "32",
        State::Warning => "33",
        State::Failed => "31",
    };
    // Padded before it is painted: a terminal does not show the colour's own characters.
    let mark = format!("{:<8}", finding.word());
    let head = format!("{:<11} ", finding.area);
    let text = format!("{}: {}", finding.name, finding.detail);
    let below = " ".repeat(20);
    let text = wrapped(&text, output.width, &format!("{mark}{head}"), &below);
    let mut text = text.replacen(&mark, &output.paint(color, &mark), 1);
    if let Some(hint) = &finding.hint {
        text.push('\n');
        text.push_str(&wrapped(
            hint,
            output.width,
            &format!("{below}hint: "),
            &below,
        ));
    }
    text
}

fn program() -> Finding {
    let place = std::env::current_exe();
    let place = place.map_or_else(|error| error.to_string(), |path| path.display().to_string());
    let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let version = env!("CARGO_PKG_VERSION");
    let detail = format!("{version} for {os} {machine}, contract {CONTRACT}, {place}");
    Finding::ok("program", "rapidbyte", detail)
}

/// The cache of compiled connectors and the room beside it.
fn cache() -> Vec<Finding> {
    let area = "cache";
    let cache = match rapidbyte::user_cache() {
        Ok(cache) => cache,
        Err(why) => {
            let hint = "set HOME, or XDG_CACHE_HOME and XDG_STATE_HOME, to directories that this \
                 user may write to; without a cache each run takes seconds longer";
            return vec![Finding::ok(area, "open", why).warning(hint)];
        }
    };
    let found = match cache.inspect() {
        Ok(found) => found,
        Err(error) => {
            let hint = "make the directory writable for this user";
            return vec![Finding::ok(area, "read", error.to_string()).warning(hint)];
        }
    };
    let place = found.dir.display().to_string();
    let detail = format!("{place}, {} entries, {}", found.entries, bytes(found.bytes));
    let mut findings = vec![Finding::ok(area, "entries", detail)];
    if !found.damaged.is_empty() {
        let names: Vec<String> = found
            .damaged
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        let hint = "remove them; they are harmless: Rapidbyte does not use them and compiles the \
             connectors again";
        findings.push(Finding::ok(area, "damaged", names.join(", ")).warning(hint));
    }
    if let Err(error) = writable(&found.dir) {
        let hint = "make the directory writable for this user, or free space; otherwise every \
             run compiles the connectors again";
        let detail = format!("{place}: {error}");
        findings.push(Finding::ok(area, "write", detail).warning(hint));
    }
    findings.extend(disk(&found.dir));
    findings
}

/// Whether a file can be made in a folder; none is left.
fn writable(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".doctor.{}.tmp", std::process::id()));
    std::fs::File::create_new(&path)?;
    std::fs::remove_file(path)
}

/// The room that is left where a folder is, or will be.
fn disk(folder: &Path) -> Option<Finding> {
    let there = folder.ancestors().find(|folder| folder.is_dir())?;
    let status = rustix::fs::statvfs(there).ok()?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let place = there.display().to_string();
    let finding = Finding::ok("disk", place, format!("{} free", bytes(free)));
    Some(match free {
        0 => finding.failed(Class::Run, Some("free space there")),
        free if free < LOW_DISK_BYTES => finding.warning("free space there: little is left"),
        _ => finding,
    })
}

/// A finding for each connector, unless the command is interrupted.
fn connectors(session: &Session) -> Result<Vec<Finding>, Failure> {
    let area = "connectors";
    let names = session.engine.connectors();
    if names.is_empty() {
        let dirs = session.engine.connector_dirs().iter();
        let places: Vec<String> = dirs.map(|dir| dir.display().to_string()).collect();
        let hint = "put the connectors into the directory `connectors` beside the program, or \
             set RAPIDBYTE_CONNECTORS";
        let detail = format!("none in {}", places.join(", "));
        let none = Finding::ok(area, "bundled", detail).failed(Class::Run, Some(hint));
        return Ok(vec![none]);
    }
    let names = names.iter();
    names.map(|name| one_connector(name, session)).collect()
}

/// The hash that identifies a connector: of its `.wasm`, wherever the file is.
const HASH: &str = "blake3";

/// Where a connector's code is, and its hash in hexadecimal.
fn identity(connector: &Described) -> (&'static str, String) {
    let place = match connector.is_file() {
        true => "a file",
        false => "inside the program",
    };
    (place, connector.blake3().unwrap_or_else(|error| error))
}

fn one_connector(name: &str, session: &Session) -> Result<Finding, Failure> {
    let area = "connectors";
    let Session { engine, control } = session;
    match engine.connector(name, Path::new("."), control) {
        Ok(connector) => {
            let (place, hash) = identity(&connector);
            let how = match connector.compiled().from_cache {
                true => "compiled before",
                false => "compiled now",
            };
            // Sixteen digits tell connectors apart; JSON has all of them.
            let short = hash.get(..16).unwrap_or(&hash);
            let version = &connector.spec().version;
            let detail = format!("{version}, {how}, {place}, {HASH} {short}");
            Ok(Finding {
                hash: Some(hash),
                ..Finding::ok(area, name, detail)
            })
        }
        Err(failure) if failure.class == Class::Cancelled => Err(failure),
        Err(failure) => {
            let detail = failure.message.clone();
            Ok(Finding::ok(area, name, detail).failed(Class::Run, failure.hint.as_deref()))
        }
    }
}

/// The checks of a pipeline, with its secrets redacted.
fn pipeline_findings(
    pipeline: &rapidbyte::Pipeline,
    session: &Session,
) -> Result<Vec<Finding>, Failure> {
    let mut findings = look_at(pipeline, session)?;
    for finding in &mut findings {
        let texts = [&mut finding.name, &mut finding.detail].into_iter();
        for text in texts.chain(&mut finding.hint) {
            *text = pipeline.redact(text);
        }
    }
    Ok(findings)
}

/// Checks a pipeline: its `.env` is private, both sides are reachable, and the disks that it writes
/// to have room.
fn look_at(pipeline: &rapidbyte::Pipeline, session: &Session) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    findings.extend(private(&pipeline.folder().join(".env")));
    let checked = match session.engine.check(pipeline, &session.control) {
        Ok(checked) => checked,
        Err(failure) if failure.class == Class::Cancelled => return Err(failure),
        Err(failure) => {
            findings.push(from_failure("open", failure));
            return Ok(findings);
        }
    };
    let grants = checked.grants.clone();
    for item in check::items(checked) {
        let name = match item.side {
            "both" => item.name,
            side => format!("{side} {}", item.name),
        };
        findings.push(match item.problem {
            None => Finding::ok("pipeline", name, item.detail),
            Some(failure) if failure.class == Class::Cancelled => return Err(failure),
            Some(failure) => from_failure(&name, failure),
        });
    }
    let mut folders: Vec<PathBuf> = grants
        .iter()
        .flat_map(|grants| grants.written())
        .filter_map(|path| Path::new(path).parent().map(Path::to_path_buf))
        .collect();
    folders.sort();
    folders.dedup();
    findings.extend(folders.iter().filter_map(|folder| disk(folder)));
    Ok(findings)
}

fn from_failure(name: &str, failure: Failure) -> Finding {
    // A server that does not answer is not reachable, whatever a run would make of it.
    let is_outside = failure.class == Class::Environment || failure.code == "timeout";
    let class = if is_outside {
        Class::Environment
    } else {
        Class::Run
    };
    let detail = format!("{} [{}]", failure.message, failure.code);
    Finding::ok("pipeline", name, detail).failed(class, failure.hint.as_deref())
}

/// A file with secrets that other users can read is worth a word.
fn private(file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let finding = Finding::ok(
        "pipeline",
        ".env",
        format!("{} has mode {mode:03o}", file.display()),
    );
    Some(match mode & 0o077 {
        0 => finding,
        _ => finding.warning("run chmod 600 .env: others can read the secrets in it"),
    })
}
