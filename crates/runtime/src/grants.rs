//! What the operator allowed, read from the configuration by the marks in its schema.
//!
//! A property of the connector's config schema may carry `x-grant`: `read` or `write` for a path
//! or pattern, `host`, `port` or `url` for a server. Exactly the values that the operator wrote
//! there are granted; nothing else is.

use std::path::{Component, Path, PathBuf};

use rapidbyte_wire::pattern;
use serde_json::{Map, Value};

/// What one stage of a pipeline may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    network: Vec<(String, u16)>,
    read: Vec<String>,
    write: Vec<String>,
    /// The folder that relative paths are relative to: the pipeline file's.
    base_dir: PathBuf,
}

/// `$ref`s and nested objects deeper than this are not followed.
const MAX_DEPTH: usize = 16;

impl Grants {
    /// No grant at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// What `config` names, by the marks of its JSON Schema. Paths are relative to `base_dir`,
    /// which must be absolute; `{stream}` in a path stands for any name.
    pub fn from_config(schema: &Value, config: &Map<String, Value>, base_dir: &Path) -> Self {
        let mut grants = Self {
            base_dir: base_dir.to_path_buf(),
            ..Self::default()
        };
        grants.collect(schema, schema, config, 0);
        grants
    }

    fn collect(&mut self, root: &Value, schema: &Value, config: &Map<String, Value>, depth: usize) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        if depth > MAX_DEPTH {
            return;
        }
        let mut hosts: Vec<String> = Vec::new();
        let mut ports: Vec<u16> = Vec::new();
        for (key, property) in properties {
            let property = resolve(root, property);
            let value = config
                .get(key)
                .or_else(|| property.get("default"))
                .unwrap_or(&Value::Null);
            let texts: Vec<&str> = match value {
                Value::String(text) => vec![text],
                Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
                _ => vec![],
            };
            match property.get("x-grant").and_then(Value::as_str) {
                Some("read") => self
                    .read
                    .extend(texts.iter().map(|t| absolute(&self.base_dir, t))),
                Some("write") => self
                    .write
                    .extend(texts.iter().map(|t| absolute(&self.base_dir, t))),
                Some("host") => hosts.extend(texts.iter().map(|t| t.to_ascii_lowercase())),
                Some("port") => ports.extend(value.as_u64().and_then(|p| u16::try_from(p).ok())),
                Some("url") => self
                    .network
                    .extend(texts.iter().filter_map(|t| authority(t))),
                _ => {
                    if let Value::Object(inner) = value {
                        self.collect(root, property, inner, depth + 1);
                    }
                }
            }
        }
        for host in hosts {
            self.network
                .extend(ports.iter().map(|port| (host.clone(), *port)));
        }
    }

    /// True when exactly this host and port were named.
    pub fn allows_network(&self, host: &str, port: u16) -> bool {
        self.network
            .iter()
            .any(|(h, p)| h.eq_ignore_ascii_case(host) && *p == port)
    }

    /// One line for each grant, as `plan` shows them.
    pub fn describe(&self) -> Vec<String> {
        let network = self
            .network
            .iter()
            .map(|(host, port)| format!("connect {host}:{port}"));
        let read = self
            .read
            .iter()
            .map(|path| format!("read {}", self.shown(path)));
        let write = self
            .write
            .iter()
            .map(|path| format!("write {}", self.shown(path)));
        network.chain(read).chain(write).collect()
    }

    /// A path as it was written: relative where it lies in the pipeline's folder.
    pub(crate) fn shown<'a>(&self, path: &'a str) -> &'a str {
        let base = self.base_dir.to_str().unwrap_or_default();
        path.strip_prefix(base)
            .and_then(|p| p.strip_prefix('/'))
            .unwrap_or(path)
    }

    /// The absolute form of a path or pattern that may be read.
    pub(crate) fn readable(&self, path: &str) -> Option<Granted> {
        granted(&self.read, absolute(&self.base_dir, path))
    }

    /// The absolute form of a path that may be written.
    pub(crate) fn writable(&self, path: &str) -> Option<Granted> {
        granted(&self.write, absolute(&self.base_dir, path))
    }
}

/// A path under the grant that allows it.
pub(crate) struct Granted {
    /// The path or pattern, absolute and without `..`.
    pub path: String,
    /// The grant, absolute.
    pub grant: String,
    /// The longest part of the grant that is a folder without a pattern: nothing outside of it
    /// is touched, whatever links lie inside.
    pub root: PathBuf,
}

fn granted(grants: &[String], path: String) -> Option<Granted> {
    let grant = grants
        .iter()
        .find(|grant| pattern::matches(grant, &path))?
        .clone();
    let parts: Vec<&str> = grant.split('/').collect();
    let literal = parts
        .iter()
        .take(parts.len() - 1)
        .take_while(|p| !pattern::is_pattern(p));
    let root = PathBuf::from(
        literal.fold(String::new(), |root, part| match root.as_str() {
            "" => format!("/{part}"),
            "/" => format!("/{part}"),
            _ => format!("{root}/{part}"),
        }),
    );
    Some(Granted { path, grant, root })
}

fn resolve<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    let reference = property.get("$ref").and_then(Value::as_str);
    match reference
        .and_then(|r| r.strip_prefix('#'))
        .and_then(|r| root.pointer(r))
    {
        Some(target) if property.get("x-grant").is_none() => target,
        _ => property,
    }
}

/// Joins and removes `.` and `..` without looking at the disk; `{stream}` becomes `*`.
fn absolute(base_dir: &Path, path: &str) -> String {
    let path = path.replace("{stream}", "*");
    let mut parts: Vec<&str> = Vec::new();
    let joined = base_dir.join(&path);
    for component in joined.components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

/// `scheme://user:password@host:port/…` by its host and port.
fn authority(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let address = authority
        .rsplit_once('@')
        .map_or(authority, |(_, address)| address);
    let default = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        "postgres" | "postgresql" => Some(5432),
        _ => None,
    };
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (address, default),
    };
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn grants(schema: Value, config: Value) -> Grants {
        let config = config.as_object().expect("an object").clone();
        Grants::from_config(&json!({ "properties": schema }), &config, Path::new("/p"))
    }

    #[test]
    fn exactly_what_was_written() {
        let schema = json!({
            "path": {"x-grant": "read"}, "out": {"x-grant": "write"}, "other": {},
            "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
            "url": {"x-grant": "url"},
        });
        let grants = grants(
            schema,
            json!({
                "path": "data/*.csv", "out": "../out/{stream}.csv", "other": "/etc/passwd",
                "host": "DB.internal", "url": "postgres://u:p@x:1@[::1]:6000/db",
            }),
        );
        assert_eq!(
            grants.describe(),
            [
                "connect ::1:6000",
                "connect db.internal:5432",
                "read data/*.csv",
                "write /out/*.csv",
            ]
        );
        assert!(grants.allows_network("db.internal", 5432));
        assert!(!grants.allows_network("db.internal", 5433));
        assert!(!grants.allows_network("db.internal.evil", 5432));
        assert!(grants.readable("data/a.csv").is_some());
        assert!(grants.readable("data/./a.csv").is_some());
        for path in [
            "data/x/a.csv",
            "data/../../etc/passwd",
            "/etc/passwd",
            "data/a.txt",
        ] {
            assert!(grants.readable(path).is_none(), "{path}");
        }
        assert!(grants.writable("data/a.csv").is_none());
        let granted = grants.writable("/out/a.csv").expect("granted");
        assert_eq!(granted.root, Path::new("/out"));
    }
}
