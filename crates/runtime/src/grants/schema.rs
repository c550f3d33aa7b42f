//! What a config schema marks, and what the operator wrote there.

use std::collections::HashSet;

use rapidbyte_wire::pattern;
use serde_json::{Map, Value};

use super::files::{absolute, normal};
use super::network::{Server, servers};
use super::tls::Settings;
use super::{Grants, PART, STREAM};

/// `$ref`s and nested objects deeper than this are not followed.
const MAX_DEPTH: usize = 16;

impl Grants {
    /// Adds what `config`, at the key `at`, has where `schema` marks it. `root` is the whole schema.
    pub(super) fn collect(
        &mut self,
        root: &Value,
        schema: &Value,
        config: &Map<String, Value>,
        at: &str,
        depth: usize,
    ) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        if depth > MAX_DEPTH {
            return;
        }
        let mut hosts: Vec<(&str, String)> = Vec::new();
        let mut ports: Vec<(&str, u16)> = Vec::new();
        let mut speaks_tls = false;
        let mut usual_ports: Vec<u16> = Vec::new();
        let mut urls: Vec<Server> = Vec::new();
        let mut tls = Settings::default();
        let mut folders: Vec<String> = Vec::new();
        let mut folders_of: Vec<(&str, String)> = Vec::new();
        let mut written: Vec<&str> = Vec::new();
        let mut beside: Vec<(String, bool)> = Vec::new();
        let written_before = self.write.len();
        for (key, property) in properties {
            let property = resolve(root, property);
            let mark = property.get("x-grant").and_then(Value::as_str);
            speaks_tls |= mark == Some("tls-mode");
            let Some(value) = config.get(key) else {
                if mark == Some("port") {
                    usual_ports.extend(property.get("default").and_then(port));
                }
                continue;
            };
            let at = format!("{at}.{key}");
            let texts: Vec<&str> = match value {
                Value::String(text) => vec![text],
                Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
                _ => vec![],
            };
            let beside_it = property.get("x-beside").and_then(Value::as_str);
            if let Some(name) = beside_it.filter(|name| is_beside_name(name)) {
                let writes = mark == Some("write");
                let found = texts.iter().flat_map(|text| match writes {
                    true if text.contains(PART) => beside_file(text, name).into_iter().take(1),
                    false if pattern::is_pattern(&absolute(&self.base_dir, text)) => {
                        beside_file(text, name).into_iter().take(MAX_DEPTH)
                    }
                    _ => Vec::new().into_iter().take(0),
                });
                beside.extend(found.map(|path| (absolute(&self.base_dir, &path), writes)));
            }
            match mark {
                Some("read") => {
                    let base = &self.base_dir;
                    self.read.extend(texts.iter().map(|t| absolute(base, t)));
                    self.read_by_stream
                        .extend(texts.iter().map(|t| normal(base, t)));
                }
                Some("write") => {
                    written.extend(&texts);
                    self.write
                        .extend(texts.iter().map(|t| absolute(&self.base_dir, t)));
                }
                Some("folders") if value.is_object() => folders_of.extend(by_stream(value)),
                Some("folders") => folders.extend(texts.iter().map(|text| partition(text))),
                Some("host") => {
                    hosts.extend(texts.iter().map(|&text| (key.as_str(), text.to_owned())))
                }
                Some("port") => ports.extend(port(value).map(|port| (key.as_str(), port))),
                Some("url") => urls.extend(texts.iter().flat_map(|t| servers(t, &at))),
                Some(mark) if mark.starts_with("tls-") => {
                    tls.set(tls_setting(mark), value.as_str().unwrap_or_default(), &at);
                }
                _ => {
                    if let Value::Object(inner) = value {
                        self.collect(root, property, inner, &at, depth + 1);
                    }
                }
            }
        }
        // With several default ports, the name of a host alone would grant several servers.
        if let (true, [usual]) = (ports.is_empty(), usual_ports.as_slice()) {
            ports.push(("", *usual));
        }
        for path in &mut self.write[written_before..] {
            let name = path.rfind('/').map_or(0, |at| at + 1);
            path.insert_str(name, &folders.concat());
        }
        for (stream, folders) in folders_of {
            for text in &written {
                let mut path = absolute(&self.base_dir, &text.replace(STREAM, stream));
                let name = path.rfind('/').map_or(0, |at| at + 1);
                path.insert_str(name, &folders);
                self.write.push(path);
            }
        }
        for (path, writes) in beside {
            self.read.push(path.clone());
            if writes {
                self.write.push(path.clone());
            }
            self.beside.push(path);
        }
        for mut server in urls {
            server.tls = server.tls.or(&tls);
            self.network.push(server);
        }
        for (host, port) in pairs(&hosts, &ports) {
            let mut server = Server::named(host, port, tls.clone());
            server.speaks_tls = speaks_tls;
            self.network.push(server);
        }
    }
}

/// The hosts of one object with the ports that were written for them. `replica_port` belongs to
/// `replica_host`. One port belongs to every host that has none of its own, and one host has every
/// port. Of several hosts and ports without such names, the first belongs to the first.
fn pairs<'a>(hosts: &'a [(&str, String)], ports: &[(&str, u16)]) -> Vec<(&'a str, u16)> {
    let own = |host: &str| {
        let named = host.replace("host", "port");
        let found = ports
            .iter()
            .find(|(port, _)| *port == named && *port != host);
        found.map(|(_, number)| *number)
    };
    let is_taken = |port: &str| {
        let named = port.replace("port", "host");
        named != port && hosts.iter().any(|(host, _)| *host == named)
    };
    if let [(_, host)] = hosts {
        return ports
            .iter()
            .map(|(_, port)| (host.as_str(), *port))
            .collect();
    }
    let free: Vec<u16> = ports
        .iter()
        .filter(|(key, _)| !is_taken(key))
        .map(|p| p.1)
        .collect();
    let mut found = Vec::new();
    let mut without = Vec::new();
    for (key, host) in hosts {
        match own(key) {
            Some(port) => found.push((host.as_str(), port)),
            None => without.push(host.as_str()),
        }
    }
    match free.as_slice() {
        [port] => found.extend(without.into_iter().map(|host| (host, *port))),
        free => found.extend(without.into_iter().zip(free.iter().copied())),
    }
    found
}

/// A property with the name of a TLS setting that the schema does not mark: the host would not see what
/// the operator wrote there.
pub fn unmarked_tls(schema: &Value) -> Option<&'static str> {
    const NAMES: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];
    // References may go round in circles: each place is visited once.
    let mut seen = HashSet::new();
    let mut left = vec![schema];
    while let Some(place) = left.pop() {
        if !seen.insert(std::ptr::from_ref(place)) {
            continue;
        }
        let properties = place.get("properties").and_then(Value::as_object);
        for (key, property) in properties.into_iter().flatten() {
            let property = resolve(schema, property);
            let mark = property.get("x-grant").and_then(Value::as_str);
            let is_marked = mark.is_some_and(|mark| mark.starts_with("tls-"));
            if let Some(name) = NAMES.into_iter().find(|name| name == key && !is_marked) {
                return Some(name);
            }
            left.push(property);
        }
    }
    None
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

/// The files of a folder `name` in the folder of a path, and in each folder above it that is only
/// left out by folders of partitions.
fn beside_file(path: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folder = path.rsplit_once('/').map(|(folder, _)| folder);
    loop {
        found.push(match folder {
            None => format!("{name}/*"),
            Some(folder) => format!("{folder}/{name}/*"),
        });
        let Some(here) = folder else { break };
        let (above, last) = here
            .rsplit_once('/')
            .map_or((None, here), |(above, last)| (Some(above), last));
        if !last.contains('=') {
            break;
        }
        folder = above;
    }
    found
}

/// A name that no folder of anybody else has: one part of a path that begins with `_`.
fn is_beside_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next() == Some('_') && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A port in a configuration or as a default.
fn port(value: &Value) -> Option<u16> {
    let port = value.as_u64().and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0)
}

/// The pattern of the folders of a partition column.
fn partition(column: &str) -> String {
    format!("{}=*/", rapidbyte_wire::hive::escape(column))
}

/// The folders of single streams: `{ orders: [day] }`. A name that cannot be a part of a file's name has none.
fn by_stream(value: &Value) -> impl Iterator<Item = (&str, String)> {
    let entries = value.as_object().into_iter().flatten();
    let is_name = |stream: &str| {
        !stream.is_empty()
            && !matches!(stream, "." | "..")
            && !stream.contains(['/', '\\', '\0', '*', '?'])
            && !stream.contains(STREAM)
            && !stream.contains(PART)
    };
    entries
        .filter(move |(stream, _)| is_name(stream))
        .map(|(stream, columns)| {
            let columns = columns.as_array().into_iter().flatten();
            let folders = columns.filter_map(Value::as_str).map(partition);
            (stream.as_str(), folders.collect())
        })
}

/// The setting that a mark stands for, by its name in libpq.
fn tls_setting(mark: &str) -> &str {
    match mark {
        "tls-mode" => "sslmode",
        "tls-root-cert" => "sslrootcert",
        "tls-cert" => "sslcert",
        "tls-key" => "sslkey",
        _ => "",
    }
}
