//! A folder with a pipeline in it, and the program run on it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memchr::memmem;
use rapidbyte_testkit::postgres::PASSWORD;
use serde_json::Value;
use tempfile::TempDir;

/// The path in a variable that `cargo xtask test` sets.
pub fn built(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`"))
        .into()
}

/// The file of a component of the test kit.
pub fn testkit(name: &str) -> String {
    let path = built("RAPIDBYTE_TESTKIT").join(format!("{name}.wasm"));
    path.to_str().expect("UTF-8").to_owned()
}

/// A folder of one test, removed at its end. Before that, it searches the files that the program left for
/// the password of the servers.
pub struct Folder {
    folder: TempDir,
    /// The files that the test itself wrote.
    written: RefCell<HashSet<PathBuf>>,
}

/// How the program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    /// Checks every output for the password before a test sees it.
    #[track_caller]
    fn from(output: Output) -> Self {
        let ended = Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        };
        assert_no_secret("standard output", ended.stdout.as_bytes(), PASSWORD);
        assert_no_secret("standard error", ended.stderr.as_bytes(), PASSWORD);
        ended
    }
}

/// Looks for `secret` in all its usual spellings.
#[track_caller]
pub fn assert_no_secret(place: &str, bytes: &[u8], secret: &str) {
    for spelling in spellings(secret) {
        // `windows` of the standard library takes a hundred times as long in an unoptimised test.
        assert!(
            memmem::find(bytes, spelling.as_bytes()).is_none(),
            "{spelling:?} is in {place}: {}",
            String::from_utf8_lossy(bytes)
        );
    }
}

/// Plain, hexadecimal, as in URLs, in base64 at each place within its groups, as in JSON.
fn spellings(secret: &str) -> Vec<String> {
    let lower: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let all: String = secret.bytes().map(|b| format!("%{b:02X}")).collect();
    let needed: String = secret
        .bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect();
    let json = Value::from(secret).to_string();
    let ascii: String = secret
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_ascii() => c.to_string(),
            c => format!("\\u{:04x}", u32::from(c)),
        })
        .collect();
    let mut spellings = vec![
        secret.to_owned(),
        lower.to_uppercase(),
        lower,
        all,
        needed,
        json[1..json.len() - 1].to_owned(),
        ascii,
    ];
    spellings.extend((0..3).map(|skipped| base64(&secret.as_bytes()[skipped..])));
    spellings
}

/// Only whole groups: what follows the secret does not change them.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.as_chunks::<3>().0 {
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for shift in [18, 12, 6, 0] {
            text.push(LETTERS[(bits >> shift) as usize & 63] as char);
        }
    }
    text
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let kind = entry.file_type().expect("a kind");
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() && !self.written.borrow().contains(&path) {
                    // The test itself made a file that this account may not read.
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    assert_no_secret(&path.display().to_string(), &bytes, PASSWORD);
                }
            }
        }
    }
}

impl Folder {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            written: RefCell::default(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        self.written.borrow_mut().insert(path);
        self
    }

    pub fn set_mode(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path().join(name), mode).expect("a mode");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The names of the files in a folder; nothing when it is missing.
    pub fn files(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join(folder));
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .map(|entry| entry.file_name().to_str().expect("UTF-8").to_owned())
            .collect();
        names.sort();
        names
    }

    /// The program, to be run in this folder without the variables of whoever runs the tests.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(built("RAPIDBYTE_BIN"));
        command.args(arguments).current_dir(self.path()).env_clear();
        command.env("RAPIDBYTE_CONNECTORS", built("RAPIDBYTE_CONNECTORS"));
        for variable in ["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "PATH"] {
            if let Some(value) = std::env::var_os(variable) {
                command.env(variable, value);
            }
        }
        command
    }

    #[track_caller]
    pub fn rapidbyte(&self, arguments: &[&str]) -> Ended {
        self.command(arguments)
            .output()
            .expect("the program starts")
            .into()
    }

    /// Runs a pipeline of this text and expects its report.
    #[track_caller]
    pub fn report(&self, pipeline: &str) -> Value {
        self.write("p.yaml", pipeline);
        let ended = self.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        serde_json::from_str(&ended.stdout).expect("one JSON document")
    }

    /// Runs a pipeline of this text and expects an error, as the JSON document says it, with the
    /// exit code.
    #[track_caller]
    pub fn error(&self, pipeline: &str) -> (Value, i32) {
        self.write("p.yaml", pipeline);
        let ended = self.rapidbyte(&["run", "p.yaml", "--output", "json"]);
        let document: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr));
        assert_eq!(document["status"], "error", "{document:#}");
        assert!(!ended.stderr.contains("panicked at"), "{}", ended.stderr);
        let exit = ended.code.expect("an exit code");
        self.is_explained(&document["error"]["code"], exit);
        (document["error"].clone(), exit)
    }

    /// Every code that a test meets is one that `explain` knows, with this exit code.
    #[track_caller]
    fn is_explained(&self, code: &Value, exit: i32) {
        let code = code.as_str().expect("a code");
        // The codes of the test kit's connectors, which no person ever meets.
        if ["misbehave", "was_allowed"].contains(&code) {
            return;
        }
        let ended = self.rapidbyte(&["explain", code, "--output", "json"]);
        let entry: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        let exits = entry["error"]["exit_codes"].as_array();
        assert!(
            exits.is_some_and(|exits| exits.contains(&exit.into())),
            "docs/errors.md does not say that {code} ends with {exit}: {entry:#}"
        );
    }

    /// The same, and compares code, exit code and parts of message and location.
    #[track_caller]
    pub fn refuses(&self, pipeline: &str, code: &str, exit: i32, parts: &[&str]) {
        let (error, exited) = self.error(pipeline);
        assert_eq!(
            (error["code"].as_str(), exited),
            (Some(code), exit),
            "{error:#}"
        );
        let text = error.to_string();
        for part in parts {
            assert!(
                text.contains(&part.replace('"', "\\\"")),
                "{part:?} is not in {error:#}"
            );
        }
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()));
    }
}

/// A pipeline from the generator to nowhere.
pub fn generate(rows: u64, more: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-generate, config: {{ rows: {rows}, preset: narrow }}, streams: [rows] }}\n\
         destination: {{ use: {}, write_mode: replace }}\n{more}\n",
        testkit("dest-null")
    )
}

/// A pipeline from `in.<from>` to `out/<stream>.<to>`.
pub fn copy(from: &str, to: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source:\n  use: source-file\n  config:\n    path: in.{from}\n  streams: [in]\n\
         destination:\n  use: dest-file\n  config:\n    path: out/{{stream}}.{to}\n  write_mode: replace\n"
    )
}
