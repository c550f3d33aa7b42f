//! `rapidbyte.lock`: which connector files the pipelines of a directory run, and what these ask for.
//!
//! The file is beside the pipelines and belongs into version control. Only `rapidbyte lock` writes it.
//! If it exists, a connector that is a file must be in it with the SHA-256 of its bytes. The engine
//! checks this before it runs a line of the connector's code. The connector may not ask for more than
//! when it was locked. Without the lock file, the engine checks nothing. Connectors inside the program
//! are not in it. A connector with a bundled name in a directory that `RAPIDBYTE_CONNECTORS` names is a
//! file like any other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind as Io, Read, Write};
use std::path::{Component, Path, PathBuf};

use rapidbyte_runtime::{Connector, Origin, Spec, regular};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Class, Failure};

/// Its name, beside the pipeline file.
pub const LOCK_FILE: &str = "rapidbyte.lock";
/// The lock file may have this size. A larger file is not read.
const MAX_LOCK_BYTES: u64 = 1 << 20;
/// The version of its keys.
const LOCK_VERSION: u32 = 1;
/// Config schemas nested deeper are not followed, as for grants.
const MAX_DEPTH: usize = 16;
/// Keys of a config schema, with references followed. Two keys that refer to their own schema would make
/// 131,070 keys. Our schemas have less than a hundred.
const MAX_KEYS: usize = 10_000;
/// The command that makes it right.
const UPDATE: &str = "if you trust the new file, run: rapidbyte lock --update PIPELINE";

/// The file's content: connectors by their path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    /// By the path relative to the directory, without `.` and `..` where that is possible.
    pub connectors: BTreeMap<String, Pin>,
}

/// One connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Of the `.wasm`, in hexadecimal.
    pub sha256: String,
    /// The grants that it asks for, in order: `import connection`, `config.path read` …
    pub asks_for: Vec<String>,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            version: LOCK_VERSION,
            connectors: BTreeMap::new(),
        }
    }
}

/// The path or bundled name under which a connector is locked. `None` for a connector inside the program.
pub fn key(used: &str, origin: &Origin) -> Option<String> {
    if matches!(origin, Origin::Embedded(_) | Origin::Native(_)) {
        return None;
    }
    let parts = Path::new(used)
        .components()
        .filter(|part| *part != Component::CurDir);
    let path: PathBuf = parts.collect();
    Some(path.display().to_string())
}

impl Lock {
    /// The lock of a directory. `None` if the file does not exist.
    ///
    /// # Errors
    /// `lock_unreadable` if the file exists and is not a lock of this version.
    pub fn read(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(LOCK_FILE);
        let wrong = |what: &dyn std::fmt::Display| {
            let text = format!("{}: {what}", path.display());
            Failure::new(Class::Config, "lock_unreadable", text).hint(
                "restore the file, or remove it and write it again with: rapidbyte lock PIPELINE",
            )
        };
        // A pipe in its place would wait for whoever writes into it.
        let file = match regular::open(&path) {
            Err(error) if error.kind() == Io::NotFound => return Ok(None),
            opened => opened.map_err(|error| wrong(&error))?,
        };
        let mut text = String::new();
        let mut limited = file.take(MAX_LOCK_BYTES + 1);
        let read = limited.read_to_string(&mut text);
        if read.map_err(|error| wrong(&error))? as u64 > MAX_LOCK_BYTES {
            return Err(wrong(&"larger than any lock file"));
        }
        let lock: Self = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        match lock.version {
            LOCK_VERSION => Ok(Some(lock)),
            other => Err(wrong(&format_args!("version {other} is unknown"))),
        }
    }

    /// Writes the lock of a directory, in the place of an older one.
    ///
    /// # Errors
    /// `lock_not_written`.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(LOCK_FILE);
        let failed = |error: std::io::Error| {
            let text = format!("{}: {error}", path.display());
            Failure::new(Class::Environment, "lock_not_written", text)
                .hint("make the directory of the pipeline writable")
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        let temporary = folder.join(format!(".{LOCK_FILE}.{}.tmp", std::process::id()));
        let written = File::create_new(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|error| {
                // A file that stays is hidden and does no harm.
                let _ = std::fs::remove_file(&temporary);
                failed(error)
            })
    }

    /// Checks a loaded connector before any of its code runs.
    ///
    /// # Errors
    /// `connector_not_locked`, `connector_changed`, and the errors of reading the file.
    pub fn check_bytes(
        &self,
        used: &str,
        origin: &Origin,
        connector: &Connector,
    ) -> Result<(), Failure> {
        let Some(key) = key(used, origin) else {
            return Ok(());
        };
        let Some(pin) = self.connectors.get(&key) else {
            let place = match origin {
                Origin::File(file) if !used.contains('/') => {
                    format!(" (the file {})", file.display())
                }
                _ => String::new(),
            };
            let text = format!("{used}{place} is not in {LOCK_FILE}");
            return Err(Failure::new(Class::Config, "connector_not_locked", text)
                .hint("if you trust the file, run: rapidbyte lock PIPELINE"));
        };
        match sha256(origin, connector)? {
            Some(found) if found == pin.sha256 => Ok(()),
            Some(found) => {
                let text = format!(
                    "{used} differs from the file in {LOCK_FILE}: sha256 {}, locked is {}",
                    short(&found),
                    short(&pin.sha256)
                );
                Err(Failure::new(Class::Config, "connector_changed", text).hint(UPDATE))
            }
            None => Err(changing(used)),
        }
    }

    /// Checks the grants that a connector asks for.
    ///
    /// # Errors
    /// `connector_changed` if it asks for more than is locked.
    pub fn check_wishes(
        &self,
        used: &str,
        origin: &Origin,
        connector: &Connector,
        schema: &Value,
    ) -> Result<(), Failure> {
        let Some(pin) = key(used, origin).and_then(|key| self.connectors.get(&key)) else {
            return Ok(());
        };
        let wishes = asks_for(connector, schema)?;
        let more: Vec<&str> = wishes
            .iter()
            .filter(|wish| !pin.asks_for.contains(wish))
            .map(String::as_str)
            .collect();
        if more.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{used} asks for further grants, which {LOCK_FILE} does not have: {}",
            more.join(", ")
        );
        Err(Failure::new(Class::Config, "connector_changed", text).hint(UPDATE))
    }
}

impl Pin {
    /// The pin that a lock of the connector would have now.
    ///
    /// # Errors
    /// The errors of reading the file, and `contract_broken` for a config schema that is not JSON.
    pub fn of(
        used: &str,
        origin: &Origin,
        connector: &Connector,
        spec: &Spec,
    ) -> Result<Self, Failure> {
        let schema: Value = serde_json::from_str(&spec.config_schema).map_err(|error| {
            let text = format!("{used}: the config schema is not JSON: {error}");
            Failure::new(Class::Run, "contract_broken", text)
        })?;
        Ok(Self {
            sha256: sha256(origin, connector)?.ok_or_else(|| changing(used))?,
            asks_for: asks_for(connector, &schema)?,
        })
    }
}

fn changing(used: &str) -> Failure {
    let text = format!("{used} changed while Rapidbyte loaded it");
    Failure::new(Class::Config, "connector_changed", text).hint(
        "wait until its writer has \
         finished, and run again",
    )
}

fn sha256(origin: &Origin, connector: &Connector) -> Result<Option<String>, Failure> {
    origin.sha256_of(connector).map_err(|error| {
        let text = error.to_string();
        match error.failure() {
            Some(inner) => Failure::new(Class::Config, &inner.code, &inner.message),
            None => Failure::new(Class::Config, "connector_not_found", text),
        }
    })
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// The interfaces that a connector imports, and the keys of its configuration that grant
/// something, in order.
///
/// # Errors
/// `contract_broken` for a schema whose references make more than 10,000 keys.
pub fn asks_for(connector: &Connector, schema: &Value) -> Result<Vec<String>, Failure> {
    let imports = connector.imports().iter();
    let mut wishes: Vec<String> = imports.map(|name| format!("import {name}")).collect();
    let mut left = MAX_KEYS;
    let found = marked(schema, schema, "config", 0, &mut left, &mut wishes);
    found.ok_or_else(|| {
        let text = format!(
            "the config schema of {} has more than {MAX_KEYS} keys, counting references",
            connector.name()
        );
        Failure::new(Class::Run, "contract_broken", text)
            .hint("report it to the connector's author: the connector has a bug")
    })?;
    wishes.sort();
    wishes.dedup();
    Ok(wishes)
}

/// None where there are more than `left` keys.
fn marked(
    root: &Value,
    schema: &Value,
    at: &str,
    depth: usize,
    left: &mut usize,
    wishes: &mut Vec<String>,
) -> Option<()> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|_| depth <= MAX_DEPTH) else {
        return Some(());
    };
    for (key, property) in properties {
        *left = left.checked_sub(1)?;
        let at = format!("{at}.{key}");
        let reference = property.get("$ref").and_then(Value::as_str);
        let property = match reference.and_then(|r| root.pointer(r.trim_start_matches('#'))) {
            Some(target) if property.get("x-grant").is_none() => target,
            _ => property,
        };
        for mark in ["x-grant", "x-beside"] {
            let Some(word) = property.get(mark).and_then(Value::as_str) else {
                continue;
            };
            wishes.push(match mark {
                "x-beside" => format!("{at} beside {word}"),
                _ => format!("{at} {word}"),
            });
        }
        marked(root, property, &at, depth + 1, left, wishes)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lock_is_written_and_read_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Lock::read(folder.path()).unwrap(), None);
        let mut lock = Lock::default();
        let pin = Pin {
            sha256: "00".into(),
            asks_for: vec!["import files".into()],
        };
        lock.connectors.insert("a.wasm".into(), pin);
        lock.write(folder.path()).unwrap();
        lock.write(folder.path()).unwrap();
        assert_eq!(Lock::read(folder.path()).unwrap(), Some(lock));
        for text in [
            "",
            "{}",
            "null",
            r#"{"version": 2, "connectors": {}}"#,
            r#"{"version": 1, "connectors": {"a": {"sha256": 1, "asks_for": []}}}"#,
            r#"{"version": 1, "connectors": {}, "more": 1}"#,
        ] {
            std::fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            let code = Lock::read(folder.path()).unwrap_err().code;
            assert_eq!(code, "lock_unreadable", "{text}");
        }
    }

    #[test]
    fn only_files_are_locked_under_one_spelling_of_their_path() {
        let file = Origin::File("/anywhere/a.wasm".into());
        for (used, expected) in [
            // From a folder that `RAPIDBYTE_CONNECTORS` names.
            ("source-file", "source-file"),
            ("a.wasm", "a.wasm"),
            ("./a.wasm", "a.wasm"),
            ("x/./y//a.wasm", "x/y/a.wasm"),
            ("../a.wasm", "../a.wasm"),
            ("/x/a.wasm", "/x/a.wasm"),
        ] {
            assert_eq!(key(used, &file).as_deref(), Some(expected), "{used}");
        }
        static INSIDE: rapidbyte_runtime::Embedded = rapidbyte_runtime::Embedded {
            name: "source-file",
            hash: [0; 32],
            size: 0,
            zstd: &[],
        };
        assert_eq!(key("source-file", &Origin::Embedded(&INSIDE)), None);
    }

    #[test]
    fn every_mark_is_a_wish_however_deep() {
        let schema = json!({
            "properties": {
                "path": { "x-grant": "read", "x-beside": "_manifest" }, "plain": {},
                "inner": { "$ref": "#/$defs/server" },
            },
            "$defs": { "server": { "properties": { "host": { "x-grant": "host" } } } },
        });
        let marks = |schema: &Value| {
            let (mut left, mut wishes) = (MAX_KEYS, Vec::new());
            marked(schema, schema, "config", 0, &mut left, &mut wishes)?;
            wishes.sort();
            Some(wishes)
        };
        assert_eq!(
            marks(&schema).expect("few keys"),
            [
                "config.inner.host host",
                "config.path beside _manifest",
                "config.path read"
            ]
        );
        // One that refers to itself ends.
        let endless = json!({ "properties": { "a": { "$ref": "#" }, "h": { "x-grant": "host" } } });
        assert_eq!(marks(&endless).expect("few keys").len(), MAX_DEPTH + 1);
        // One that does so twice would be twice as many at each depth.
        let wide = json!({ "properties": { "a": { "$ref": "#" }, "b": { "$ref": "#" } } });
        assert_eq!(marks(&wide), None);
    }
}
