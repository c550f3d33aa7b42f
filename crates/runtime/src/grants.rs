//! The operator's grants, read from the configuration by the marks in its schema.
//!
//! A property of the connector's config schema may carry `x-grant`: `read` or `write` for a path
//! or pattern, `host`, `port` or `url` for a server. The host grants exactly the values that the operator
//! wrote there. A `default` of the schema comes from the connector and grants nothing, with one exception:
//! the default port of a host that the operator wrote.
//!
//! `folders` grants nothing by itself: each item adds a folder `<item>=*` before the file's name to the
//! `write` paths next to it. `x-beside`, a name with `_` before it, also grants the files of a folder
//! of this name. The folder is in the folder of a `write` path with `{part}` (to read and write) or of a
//! `read` pattern (to read), there also above folders `name=value` at its end.
//!
//! `tls-mode`, `tls-root-cert`, `tls-cert` and `tls-key`, and the parameters `sslmode`, `sslrootcert`,
//! `sslcert` and `sslkey` of a `url`, grant nothing: they say how the host does TLS with the servers of the
//! same object.

pub(crate) mod address;
mod network;
pub(crate) mod permissions;
pub(crate) mod tls;

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rapidbyte_wire::pattern;
use serde_json::{Map, Value};

use address::Class;
use network::{Server, servers};
use tls::Settings;

use crate::virtual_folder::VirtualFolder;

/// The files, servers and variables that one stage of a pipeline may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    network: Vec<Server>,
    read: Vec<String>,
    /// The same with `{stream}` as it was written.
    read_by_stream: Vec<String>,
    write: Vec<String>,
    /// The paths of `read` and `write` that an `x-beside` added: the operator did not write their last
    /// folder.
    beside: Vec<String>,
    /// Variables that the connector sees.
    env: Hidden,
    /// The folder that relative paths are relative to: the pipeline file's.
    base_dir: PathBuf,
    /// The owner of that folder: links of this user on the way to a granted folder are the operator's.
    owner: Option<u32>,
    /// Files of the operator's that nothing grants for writing; of a folder all of it.
    own: Vec<String>,
    /// The same, named as the disk has them, once a connector has asked.
    own_on_disk: OnceLock<Vec<String>>,
    /// The stage is only planned: it may not change the disk yet.
    looks_only: bool,
    /// The connector describes itself: neither time nor chance may change the description.
    describes: bool,
    /// A folder in the place of one of the disk.
    folder: Option<Arc<VirtualFolder>>,
}

/// Names and values of variables: the values are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
struct Hidden(Vec<(String, String)>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// `$ref`s and nested objects deeper than this are not followed.
const MAX_DEPTH: usize = 16;
/// A longer path or pattern is none: Linux takes no longer one (`PATH_MAX`), and to compare a pattern
/// takes time for each of its signs.
const MAX_PATH_BYTES: usize = 4096;
/// A longer host is none: RFC 1035, 2.3.4.
const MAX_HOST_BYTES: usize = 255;
/// The files that the program reads next to a pipeline, and the folder of its history.
const OWN_FILES: [&str; 3] = [".env", "rapidbyte.lock", ".rapidbyte"];
/// Stands for a stream's name in a path.
const STREAM: &str = "{stream}";
/// Stands for a file's number in a path.
const PART: &str = "{part}";

impl Grants {
    /// No grant at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// A clock that stands still, and random numbers that are always the same. A connector describes itself
    /// with these grants, so that it gives the same description each time.
    pub fn to_describe() -> Self {
        Self {
            describes: true,
            ..Self::default()
        }
    }

    pub(crate) fn describes(&self) -> bool {
        self.describes
    }

    /// These grants for planning: the stage neither creates, renames nor removes a file.
    #[must_use]
    pub fn to_look(&self) -> Self {
        Self {
            looks_only: true,
            ..self.clone()
        }
    }

    pub(crate) fn looks_only(&self) -> bool {
        self.looks_only
    }

    /// Grants the values in `config` that its JSON Schema marks. Paths are relative to `base_dir`,
    /// which must be absolute; `{stream}` and `{part}` in a path stand for any part of a name.
    pub fn from_config(schema: &Value, config: &Map<String, Value>, base_dir: &Path) -> Self {
        let mut grants = Self {
            base_dir: base_dir.to_path_buf(),
            owner: std::fs::metadata(base_dir).ok().map(|found| found.uid()),
            own: OWN_FILES
                .iter()
                .map(|name| absolute(base_dir, name))
                .collect(),
            ..Self::default()
        };
        grants.collect(schema, schema, config, "config", 0);
        grants
    }

    /// These, with the files of this folder in the place of those that the disk has there.
    #[must_use]
    pub fn with_folder(mut self, folder: Arc<VirtualFolder>) -> Self {
        self.folder = Some(folder);
        self
    }

    pub(crate) fn virtual_folder(&self) -> Option<&VirtualFolder> {
        self.folder.as_deref()
    }

    /// These, without the right to write a file of the operator's, such as the pipeline.
    #[must_use]
    pub fn protecting(mut self, file: &Path) -> Self {
        self.own
            .push(absolute(&self.base_dir, &file.to_string_lossy()));
        self.own_on_disk = OnceLock::new();
        self
    }

    fn collect(
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

    /// True if any server was named.
    pub fn has_network(&self) -> bool {
        !self.network.is_empty()
    }

    /// True when exactly this host and port were named.
    pub fn allows_network(&self, host: &str, port: u16) -> bool {
        self.tls(host, port).is_some()
    }

    /// The TLS settings of a server; none when the server is not granted. If it was named twice, the
    /// stricter settings count.
    pub(crate) fn tls(&self, host: &str, port: u16) -> Option<&Settings> {
        if host.len() > MAX_HOST_BYTES {
            return None;
        }
        self.network
            .iter()
            .filter(|server| server.allows(host, port))
            .map(|server| &server.tls)
            .max_by_key(|tls| tls.policy().map_or(u8::MAX, |policy| policy.mode as u8))
    }

    /// Why a granted host may not be reached at an address that its name stands for. `None` where
    /// it may.
    pub(crate) fn forbidden(&self, host: &str, address: SocketAddr) -> Option<Class> {
        network::forbidden(&self.network, host, address)
    }

    /// The place of a file that the host reads for itself, relative to the pipeline's folder.
    pub(crate) fn beside(&self, path: &str) -> PathBuf {
        self.base_dir.join(path)
    }

    /// A text for each file of TLS that connections need. It changes when the file is written or replaced.
    pub fn tls_stamps(&self) -> Vec<String> {
        let files = self.network.iter().flat_map(|server| server.tls.files());
        let stamp = |file: &str| {
            let path = self.beside(file);
            let found = std::fs::metadata(&path).map(|it| {
                let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
                (it.dev(), it.ino(), it.len(), times)
            });
            format!("{} {:?}", path.display(), found.ok())
        };
        files.map(stamp).collect()
    }

    /// The paths and patterns that may be written, absolute.
    pub fn written(&self) -> &[String] {
        &self.write
    }

    /// One line for each grant, as `plan` shows them.
    pub fn describe(&self) -> Vec<String> {
        let network = self
            .network
            .iter()
            .map(|server| format!("connect {server}{}", server.security()));
        let read = self
            .read
            .iter()
            .map(|path| format!("read {}{}", self.shown(path), self.resolved(path)));
        let write = self
            .write
            .iter()
            .map(|path| format!("write {}{}", self.shown(path), self.resolved(path)));
        let env = self.env.0.iter();
        let env = env.map(|(name, _)| format!("see variable {name}"));
        network.chain(read).chain(write).chain(env).collect()
    }

    /// Where a granted path leads when a link is on its way; nothing where none is.
    fn resolved(&self, path: &str) -> String {
        let there = on_disk(path);
        let base = self.base_dir.to_str().unwrap_or_default();
        // A link above the pipeline leads everything in its directory elsewhere.
        let expected = match path.strip_prefix(base).filter(|rest| rest.starts_with('/')) {
            Some(rest) => {
                let base = on_disk(&format!("{base}/"));
                format!("{}{rest}", base.trim_end_matches('/'))
            }
            None => path.to_owned(),
        };
        match there == expected {
            true => String::new(),
            false => format!(" (a link leads to {there})"),
        }
    }

    /// The variables that the connector sees, with their values.
    pub(crate) fn env(&self) -> &[(String, String)] {
        &self.env.0
    }

    /// A path for people: relative if it is in the pipeline's folder.
    pub(crate) fn shown<'a>(&self, path: &'a str) -> &'a str {
        let base = self.base_dir.to_str().unwrap_or_default();
        path.strip_prefix(base)
            .and_then(|p| p.strip_prefix('/'))
            .unwrap_or(path)
    }

    /// The files that are read for these streams, now or, by a pattern, once they are there.
    pub fn read_for<'a>(&self, streams: impl IntoIterator<Item = &'a str>) -> ReadFiles {
        let streams: Vec<&str> = streams.into_iter().collect();
        let mut files = ReadFiles::default();
        for read in &self.read_by_stream {
            // The disk is asked once for each, however many there are.
            let streams = match read.contains(STREAM) {
                true => streams.as_slice(),
                false => &streams[..streams.len().min(1)],
            };
            for stream in streams {
                files.add(&read.replace(STREAM, stream));
            }
        }
        files
    }

    /// True if `path` may be written here and is one of the files that are read.
    pub fn writes_what_is_read(&self, path: &str, read: &ReadFiles) -> bool {
        let Some(target) = self.writable(path) else {
            return false;
        };
        let target = on_disk(&target.path);
        let is_read = |pattern: &String| pattern::matches(pattern, &target);
        // The target is a pattern too if the destination writes a folder of files.
        let is_pattern = pattern::is_pattern(&target);
        let holds = |file: &String| pattern::matches(&target, file);
        read.exact.contains(&target)
            || read.patterns.iter().any(is_read)
            || (is_pattern && read.exact.iter().chain(&read.patterns).any(holds))
    }

    /// The absolute form of a path or pattern that may be read.
    pub(crate) fn readable(&self, path: &str) -> Option<Granted> {
        self.granted(&self.read, path)
    }

    fn granted(&self, grants: &[String], path: &str) -> Option<Granted> {
        if path.len() > MAX_PATH_BYTES {
            return None;
        }
        let path = absolute(&self.base_dir, path);
        // A folder beside a file is the connector's own, with the hidden names of files that it has begun.
        let hidden = || -> Vec<String> {
            let beside = grants.iter().filter(|grant| self.beside.contains(grant));
            beside
                .filter_map(|grant| Some(format!("{}.*", grant.strip_suffix('*')?)))
                .collect()
        };
        let found = granted(grants, path.clone()).or_else(|| granted(&hidden(), path));
        self.rooted(found?)
    }

    /// The operator did not write the name of an `x-beside` folder: a link in its place may not lead out.
    fn rooted(&self, mut granted: Granted) -> Option<Granted> {
        let is_beside = |grant: &str| self.beside.iter().any(|beside| beside == grant);
        let plain = granted
            .grant
            .strip_suffix(".*")
            .map(|dir| format!("{dir}*"));
        if (is_beside(&granted.grant) || plain.is_some_and(|plain| is_beside(&plain)))
            && granted.root.ends_with(beside_name(&granted))
        {
            granted.root.pop();
        }
        granted.trusted = self.owner;
        Some(granted)
    }

    /// The absolute form of a path that may be written.
    pub(crate) fn writable(&self, path: &str) -> Option<Granted> {
        self.granted(&self.write, path)
            .filter(|granted| !self.is_own(&granted.path))
    }

    /// True for a file that is never granted for writing: the pipeline, its lock, `.env` and the
    /// history, whatever links lead there.
    pub(crate) fn is_own(&self, path: &str) -> bool {
        if path.len() > MAX_PATH_BYTES {
            return false;
        }
        let path = on_disk(&absolute(&self.base_dir, path));
        self.own_on_disk().iter().any(|own| is_within(&path, own))
    }

    /// The files that may not be written, without links. Only a connector that writes files asks, so a short run does not
    /// wait for the disk.
    fn own_on_disk(&self) -> &[String] {
        let own = || self.own.iter().map(|file| on_disk(file)).collect();
        self.own_on_disk.get_or_init(own)
    }

    /// A folder that may be replaced as a whole: the pattern is below it, and all files of the pattern
    /// may be written.
    pub(crate) fn folder(&self, folder: &str, pattern: &str) -> Option<GrantedFolder> {
        if folder.len() > MAX_PATH_BYTES {
            return None;
        }
        let folder = absolute(&self.base_dir, folder);
        let Granted {
            path,
            root,
            trusted,
            ..
        } = self.writable(pattern)?;
        let is_below = path.strip_prefix(&folder)?.starts_with('/');
        let reaches_out = !Path::new(&folder).starts_with(&root);
        // The whole folder is replaced, and what is in it goes.
        let there = on_disk(&format!("{folder}/"));
        let there = there.trim_end_matches('/');
        let reaches_out = reaches_out || self.own_on_disk().iter().any(|own| is_within(own, there));
        (is_below && !reaches_out && !pattern::is_pattern(&folder)).then_some(GrantedFolder {
            folder,
            pattern: path,
            root,
            trusted,
        })
    }
}

/// Files that a source reads, named as the disk has them.
#[derive(Debug, Default)]
pub struct ReadFiles {
    exact: HashSet<String>,
    patterns: Vec<String>,
}

impl ReadFiles {
    fn add(&mut self, read: &str) {
        // A link is read as what it leads to.
        let file = std::fs::canonicalize(read);
        let file = file.ok().and_then(|file| file.to_str().map(str::to_owned));
        let named = on_disk(file.as_deref().unwrap_or(read));
        match pattern::is_pattern(&named) {
            true => self.patterns.push(named),
            false => {
                self.exact.insert(named);
            }
        }
    }
}

/// A folder whose files may all be written.
pub(crate) struct GrantedFolder {
    /// Absolute and without `..`.
    pub folder: String,
    /// The files in it, absolute.
    pub pattern: String,
    /// The longest part of the grant that is a folder without a pattern.
    pub root: PathBuf,
    /// As of [`Granted`].
    pub trusted: Option<u32>,
}

/// A path under the grant that allows it.
pub(crate) struct Granted {
    /// The path or pattern, absolute and without `..`.
    pub path: String,
    /// The grant, absolute.
    pub grant: String,
    /// The longest part of the grant that is a folder without a pattern: nothing outside of it
    /// is touched, whatever links are inside.
    pub root: PathBuf,
    /// The owner of the pipeline's folder, whose links on the way to `root` may be followed.
    pub trusted: Option<u32>,
}

impl Granted {
    /// The path below the grant's folder.
    pub fn inside(&self) -> std::io::Result<PathBuf> {
        let inside = Path::new(&self.path).strip_prefix(&self.root);
        Ok(inside.map_err(std::io::Error::other)?.to_path_buf())
    }
}

fn granted(grants: &[String], path: String) -> Option<Granted> {
    let grant = grants
        .iter()
        .find(|grant| pattern::matches_path(grant, &path))?
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
    Some(Granted {
        path,
        grant,
        root,
        trusted: None,
    })
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

/// True for the folder itself and for each path below it.
fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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

/// The name of the last folder of a grant.
fn beside_name(granted: &Granted) -> &str {
    granted.grant.rsplit('/').nth(1).unwrap_or_default()
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

/// Joins and removes `.` and `..` without looking at the disk; placeholders become `*`.
fn absolute(base_dir: &Path, path: &str) -> String {
    normal(base_dir, &path.replace(STREAM, "*").replace(PART, "*"))
}

/// The same, with `{stream}` as it is.
fn normal(base_dir: &Path, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let joined = base_dir.join(path);
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

/// A path or pattern whose folder, as far as it is there, is named as the disk has it: without
/// links.
fn on_disk(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let folders = parts.len() - 1;
    let literal = parts[..folders]
        .iter()
        .take_while(|part| !pattern::is_pattern(part));
    for known in (1..=literal.count()).rev() {
        let folder = std::fs::canonicalize(format!("{}/", parts[..known].join("/")));
        let folder = folder.ok().and_then(|f| f.to_str().map(str::to_owned));
        if let Some(folder) = folder {
            let folder = folder.trim_end_matches('/');
            return format!("{folder}/{}", parts[known..].join("/"));
        }
    }
    path.to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tls::Mode;

    fn grants(schema: Value, config: Value) -> Grants {
        let config = config.as_object().expect("an object").clone();
        Grants::from_config(&json!({ "properties": schema }), &config, Path::new("/p"))
    }

    #[test]
    fn stamps_of_tls_files_change_with_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "one").expect("a file");
        let schema = json!({ "url": {"x-grant": "url"} });
        let url = format!("postgres://h/d?sslrootcert={}", file.display());
        let grants = grants(schema, json!({ "url": url }));
        let first = grants.tls_stamps();
        assert_eq!((first.len(), &grants.tls_stamps()), (1, &first));
        std::fs::write(&file, "other").expect("a file");
        let second = grants.tls_stamps();
        assert_ne!(first, second);
        std::fs::remove_file(&file).expect("removed");
        assert_ne!(second, grants.tls_stamps());
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
                "connect ::1:6000, TLS prefer",
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

    #[test]
    fn a_sign_grants_no_dotfile_and_nothing_grants_the_programs_own_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path();
        std::fs::create_dir(base.join("sub")).expect("a folder");
        std::os::unix::fs::symlink(".", base.join("sub/link")).expect("a link");
        std::os::unix::fs::symlink("..", base.join("up")).expect("a link");
        let of = |path: &str, other: &str| {
            let schema = json!({"properties": {
                "in": {"x-grant": "read"}, "out": {"x-grant": "write"},
            }});
            let config = json!({"in": path, "out": [path, other]});
            let config = config.as_object().expect("an object");
            Grants::from_config(&schema, config, base).protecting(Path::new("p.yaml"))
        };
        let all = of("*", "*/*");
        assert!(all.readable("a.csv").is_some() && all.writable("a.csv").is_some());
        assert!(all.readable("p.yaml").is_some(), "it may be read");
        for name in [".env", ".git", ".rapidbyte/state.db", ".ssh/id"] {
            assert!(all.readable(name).is_none(), "{name}");
            assert!(all.writable(name).is_none(), "{name}");
        }
        let base_name = base
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let round = format!("up/{base_name}/*");
        let named = of(".*", &round);
        assert!(
            named.readable(".env").is_some(),
            "the operator wrote the dot"
        );
        for grants in [
            &all,
            &of("p.yaml", ".env"),
            &of("rapidbyte.lock", ".rapidbyte/*"),
            &named,
        ] {
            for name in ["p.yaml", "rapidbyte.lock", ".env", ".rapidbyte/state.db"] {
                assert!(grants.writable(name).is_none(), "{name}");
                let round = format!("up/{base_name}/{name}");
                assert!(grants.writable(&round).is_none(), "{round}");
            }
        }
        // A folder is replaced with all that is in it.
        let parts = of("*.csv", "sub/*.csv");
        assert!(parts.folder(".", "*.csv").is_none());
        assert!(parts.folder("sub", "sub/*.csv").is_some());
    }

    #[test]
    fn hosts_have_the_ports_that_were_written_for_them() {
        let mark = |grant: &str| json!({"x-grant": grant});
        let schema = json!({"properties": {
            "host": mark("host"), "port": mark("port"), "hosts": mark("host"),
            "replica_host": mark("host"), "replica_port": mark("port"), "admin": mark("port"),
            "sslmode": mark("tls-mode"),
        }});
        for (config, expected) in [
            (json!({"host": "a", "port": 1}), vec!["a:1, TLS prefer"]),
            (
                json!({"hosts": ["a", "b"], "port": 1}),
                vec!["a:1, TLS prefer", "b:1, TLS prefer"],
            ),
            (
                json!({"host": "a", "port": 1, "admin": 2, "sslmode": "verify-full"}),
                vec!["a:1, TLS verify-full", "a:2, TLS verify-full"],
            ),
            (
                json!({"host": "a", "port": 1, "replica_host": "b", "replica_port": 2}),
                vec!["a:1, TLS prefer", "b:2, TLS prefer"],
            ),
            (
                json!({"hosts": ["a", "b"], "port": 1, "admin": 2}),
                vec!["a:1, TLS prefer", "b:2, TLS prefer"],
            ),
        ] {
            let config = config.as_object().expect("an object");
            let mut shown = Grants::from_config(&schema, config, Path::new("/p")).describe();
            shown.sort();
            let expected: Vec<_> = expected
                .iter()
                .map(|end| format!("connect {end}"))
                .collect();
            assert_eq!(shown, expected, "{config:?}");
        }
        assert_eq!(unmarked_tls(&schema), None);
        let unmarked =
            json!({"properties": {"tls": {"properties": {"sslmode": {"type": "string"}}}}});
        assert_eq!(unmarked_tls(&unmarked), Some("sslmode"));
        let again = json!({"properties": {"a": {"$ref": "#/$defs/r"}, "b": {"$ref": "#/$defs/r"}}});
        let round = json!({"properties": {"a": {"$ref": "#/$defs/r"}}, "$defs": {"r": again}});
        assert_eq!(unmarked_tls(&round), None, "it comes to an end");
    }

    #[test]
    fn a_granted_link_is_shown_with_its_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("a folder");
        let (base, other) = (real.join("base"), real.join("other"));
        for made in [&base, &other, &base.join("plain")] {
            std::fs::create_dir(made).expect("a folder");
        }
        std::os::unix::fs::symlink(&other, base.join("link")).expect("a link");
        std::os::unix::fs::symlink(&base, real.join("named")).expect("a link");
        let schema = json!({"properties": {"out": {"x-grant": "write"}}});
        for base in [base, real.join("named")] {
            let config = json!({"out": ["link/*.csv", "plain/*.csv"]});
            let config = config.as_object().expect("an object");
            let shown = Grants::from_config(&schema, config, &base).describe();
            let link = format!(
                "write link/*.csv (a link leads to {}/*.csv)",
                other.display()
            );
            assert_eq!(shown, [link, "write plain/*.csv".to_owned()]);
        }
    }

    #[test]
    fn partition_columns_of_single_streams_add_folders_for_these_alone() {
        let schema = json!({
            "path": {"x-grant": "write"}, "by": {"x-grant": "folders"}, "of": {"x-grant": "folders"},
        });
        let config = json!({
            "path": "out/{stream}/a.csv", "by": ["day"],
            "of": {"s": ["hour", "x"], "t": [], "../u": ["day"], "*": ["all"], "v": "day"},
        });
        let grants = grants(schema, config);
        assert_eq!(
            grants.describe(),
            [
                "write out/*/day=*/a.csv",
                "write out/s/hour=*/x=*/a.csv",
                "write out/t/a.csv",
                "write out/v/a.csv"
            ]
        );
        assert!(grants.writable("out/s/hour=1/x=2/a.csv").is_some());
        assert!(grants.writable("out/r/hour=1/x=2/a.csv").is_none());
    }

    #[test]
    fn partition_columns_add_folders_to_what_may_be_written() {
        let schema = json!({
            "path": {"x-grant": "write"}, "in": {"x-grant": "read"}, "by": {"x-grant": "folders"},
        });
        let config = json!({
            "path": "out/{stream}/p-{part}.csv", "in": "a.csv", "by": ["day", "a/../b"],
        });
        let grants = grants(schema, config);
        assert_eq!(
            grants.describe(),
            ["read a.csv", "write out/*/day=*/a%2F..%2Fb=*/p-*.csv"]
        );
        let may = |path: &str| grants.writable(path).is_some();
        assert!(may("out/s/day=1/a%2F..%2Fb=2/p-00000.csv"));
        for path in [
            "out/s/p-00000.csv",
            "out/s/day=1/x=2/p-00000.csv",
            "out/s/day=1/a%2F..%2Fb=../../../p-00000.csv",
            "out/s/day=1/a%2F..%2Fb=2/x.csv",
        ] {
            assert!(!may(path), "{path}");
        }
        let files = "day=*/a%2F..%2Fb=*/p-*.csv";
        let may = |folder: &str, pattern: &str| grants.folder(folder, pattern).is_some();
        assert!(may("out/s", &format!("out/s/{files}")));
        for (folder, pattern) in [
            ("out/s", "out/s/*"),
            ("out/s", &format!("out/t/{files}")),
            ("out", &format!("out/../{files}")),
            (".", &format!("out/s/{files}")),
            ("/", &format!("out/s/{files}")),
            ("out/*", &format!("out/*/{files}")),
        ] {
            assert!(!may(folder, pattern), "{folder} {pattern}");
        }
    }

    #[test]
    fn a_default_of_the_schema_grants_nothing_but_one_port() {
        let schema = json!({
            "in": {"x-grant": "read", "default": "/etc/passwd"},
            "out": {"x-grant": "write", "default": ".profile"},
            "to": {"x-grant": "host", "default": "evil.example"},
            "url": {"x-grant": "url", "default": "https://evil.example"},
            "inner": {"default": {"path": "/etc/shadow"}, "properties": {
                "path": {"x-grant": "read", "default": "/etc/shadow"},
            }},
            "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
        });
        assert_eq!(grants(schema.clone(), json!({})).describe(), [""; 0]);
        let of_host = grants(schema, json!({"host": "db"}));
        assert_eq!(of_host.describe(), ["connect db:5432"]);
        let several = json!({
            "host": {"x-grant": "host"}, "port": {"x-grant": "port", "default": 5432},
            "other": {"x-grant": "port", "default": 22}, "none": {"x-grant": "port", "default": 0},
        });
        assert_eq!(
            grants(several.clone(), json!({"host": "db"})).describe(),
            [""; 0]
        );
        let written = grants(several, json!({"host": "db", "port": 1}));
        assert_eq!(written.describe(), ["connect db:1"]);
    }

    #[test]
    fn objects_that_nobody_wrote_are_not_searched() {
        // Twenty keys that refer to the schema itself would be 20 to the power of the depth.
        let keys = (0..20).map(|n| (format!("k{n}"), json!({"$ref": "#"})));
        let schema = json!({"properties": Value::Object(keys.collect()), "default": {}});
        let config = json!({"k1": {"k2": {}}});
        let config = config.as_object().expect("an object");
        let grants = Grants::from_config(&schema, config, Path::new("/p"));
        assert_eq!(grants.describe(), [""; 0]);
    }

    #[test]
    fn only_a_directory_of_its_own_kind_is_granted_beside() {
        for name in [
            ".ssh",
            "..",
            "../x",
            "_a/../../x",
            "_*",
            "/etc",
            "",
            "src",
            "_é",
        ] {
            let schema = json!({"path": {"x-grant": "write", "x-beside": name}});
            let grants = grants(schema, json!({"path": "out/{part}.csv"}));
            assert_eq!(grants.describe(), ["write out/*.csv"], "{name}");
        }
    }

    #[test]
    fn long_hosts_and_paths_are_not_granted() {
        let schema = json!({"path": {"x-grant": "read"}, "url": {"x-grant": "url"}});
        let host = "a".repeat(MAX_HOST_BYTES + 1);
        let config = json!({"path": "d/*", "url": format!("http://{host}")});
        let grants = grants(schema, config);
        let path = |len: usize| format!("d/{}", "*".repeat(len - 2));
        assert!(grants.readable(&path(MAX_PATH_BYTES)).is_some());
        assert!(grants.readable(&path(MAX_PATH_BYTES + 1)).is_none());
        assert!(!grants.allows_network(&host, 80));
    }

    #[test]
    fn a_folder_beside_is_granted_where_files_are_added_and_read() {
        let schema = |mark: &str| {
            json!({
                "path": {"x-grant": mark, "x-beside": "_manifest"}, "by": {"x-grant": "folders"},
            })
        };
        let writes = |path: &str| grants(schema("write"), json!({"path": path, "by": ["day"]}));
        let out = writes("out/{stream}/p-{part}.csv");
        let described = out.describe();
        assert_eq!(
            described,
            [
                "read out/*/_manifest/*",
                "write out/*/day=*/p-*.csv",
                "write out/*/_manifest/*"
            ]
        );
        for path in [
            "out/s/_manifest/x/y",
            "out/_manifest/x",
            "out/s/_manifest/../x",
        ] {
            assert!(out.writable(path).is_none(), "{path}");
        }
        // Hidden files in this folder are the connector's own, hidden files in other folders are not.
        for path in ["out/s/_manifest/.1.json.2-0.tmp", "out/s/_manifest/.*.tmp"] {
            assert!(out.writable(path).is_some(), "{path}");
            assert!(out.readable(path).is_some(), "{path}");
        }
        for path in [
            "out/.s/_manifest/x",
            "out/s/_manifest/.x/y",
            "out/s/day=1/.p-1.csv",
        ] {
            assert!(out.writable(path).is_none(), "{path}");
        }
        // No link in the place of the folder leads out.
        let fixed = writes("out/p-{part}.csv");
        let granted = fixed.writable("out/_manifest/1").expect("granted");
        assert_eq!(granted.root, Path::new("/p/out"));
        for path in ["out/_manifest/1", "out/_manifest/.1.tmp"] {
            let granted = fixed.readable(path).expect("granted");
            assert_eq!(granted.root, Path::new("/p/out"), "{path}");
        }
        assert_eq!(writes("out/a.csv").describe(), ["write out/day=*/a.csv"]);

        let reads = |path: &str| grants(schema("read"), json!({"path": path})).describe();
        assert_eq!(reads("in/a.csv"), ["read in/a.csv"]);
        assert_eq!(reads("in/*.csv"), ["read in/*.csv", "read in/_manifest/*"]);
        assert_eq!(
            reads("day=*/n=1/*.csv"),
            [
                "read day=*/n=1/*.csv",
                "read day=*/n=1/_manifest/*",
                "read day=*/_manifest/*",
                "read _manifest/*"
            ]
        );
    }

    #[test]
    fn a_file_that_is_read_is_known_when_it_is_to_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("a path");
        std::fs::create_dir(base.join("data")).expect("a folder");
        std::os::unix::fs::symlink("data", base.join("link")).expect("a link");
        std::fs::write(base.join("data/a.csv"), "").expect("a file");
        std::os::unix::fs::symlink("data/a.csv", base.join("file")).expect("a link");
        let of = |mark: &str, path: &str| {
            let schema = json!({"properties": {"path": {"x-grant": mark}}});
            let config = json!({"path": path});
            let config = config.as_object().expect("an object");
            Grants::from_config(&schema, config, &base)
        };
        for (read, write, path, expected) in [
            ("data/a.csv", "data/a.csv", "data/a.csv", true),
            ("data/a.csv", "data/../data/./a.csv", "data/a.csv", true),
            ("link/a.csv", "data/{stream}.csv", "data/a.csv", true),
            ("file", "link/a.csv", "link/a.csv", true),
            ("data/*.csv", "data/new.csv", "data/new.csv", true),
            ("data/{stream}.csv", "data/s.csv", "data/s.csv", true),
            ("data/{stream}.csv", "data/new.csv", "data/new.csv", false),
            ("data/a.csv", "data/b.csv", "data/b.csv", false),
            ("data/a.csv", "data/{part}.csv", "data/*.csv", true),
            ("data/?.csv", "data/{part}.csv", "data/*.csv", true),
            ("data/a.csv", "data/b-{part}.csv", "data/b-*.csv", false),
            ("data/*.csv", "other/a.csv", "other/a.csv", false),
            // Not a file: nothing is granted.
            ("data/*", "data/a.csv", "public.t", false),
        ] {
            let read_files = of("read", read).read_for(["r", "s"]);
            let found = of("write", write).writes_what_is_read(path, &read_files);
            assert_eq!(found, expected, "{read} {write} {path}");
        }
    }

    fn mode(grants: &Grants, host: &str, port: u16) -> Option<Mode> {
        grants.tls(host, port)?.policy().ok().map(|p| p.mode)
    }

    #[test]
    fn tls_goes_with_the_servers_beside_it() {
        let schema = json!({
            "host": {"x-grant": "host"}, "port": {"x-grant": "port"},
            "mode": {"x-grant": "tls-mode", "default": "disable"},
            "ca": {"x-grant": "tls-root-cert", "default": "/etc/passwd"},
            "url": {"x-grant": "url"},
            "inner": {"properties": {
                "h": {"x-grant": "host"}, "p": {"x-grant": "port"}, "m": {"x-grant": "tls-mode"},
            }},
        });
        let config = json!({
            "host": "a", "port": 1, "mode": "verify-ca",
            "url": "postgres://u:p@b,c:2/db?sslmode=verify-full",
            "inner": {"h": "d", "p": 3, "m": "require"},
        });
        let grants = grants(schema.clone(), config);
        assert_eq!(mode(&grants, "A", 1), Some(Mode::VerifyCa));
        assert_eq!(mode(&grants, "b", 5432), Some(Mode::VerifyFull));
        assert_eq!(mode(&grants, "c", 2), Some(Mode::VerifyFull));
        assert_eq!(mode(&grants, "d", 3), Some(Mode::Require));
        assert_eq!(grants.tls("d", 1), None);
        let defaults = super::tests::grants(schema, json!({"host": "a", "port": 1}));
        assert_eq!(defaults.tls("a", 1), Some(&Settings::default()));
    }

    #[test]
    fn the_servers_of_a_mongodb_url_are_granted_with_their_options() {
        let schema = json!({"url": {"x-grant": "url"}});
        let url = "mongodb://u:p%40@a,[::1]:5,c:2/db?replicaSet=r&tls=true";
        let grants = grants(schema, json!({"url": url}));
        for (host, port) in [("a", 27017), ("::1", 5), ("C", 2)] {
            assert_eq!(mode(&grants, host, port), Some(Mode::VerifyFull), "{host}");
        }
        assert!(!grants.allows_network("a", 5432) && !grants.allows_network("u", 27017));
    }

    #[test]
    fn of_two_words_about_one_server_the_stricter_counts() {
        let schema = json!({"one": {"x-grant": "url"}, "two": {"x-grant": "url"}});
        let config = |one: &str, two: &str| json!({"one": format!("postgres://a{one}"), "two": format!("postgres://a{two}")});
        for (one, two) in [("", "?sslmode=require"), ("?sslmode=require", "")] {
            let grants = grants(schema.clone(), config(one, two));
            assert_eq!(mode(&grants, "a", 5432), Some(Mode::Require));
        }
        let grants = grants(schema, config("?sslmode=verify-full", "?sslmode=bad"));
        assert!(
            grants
                .tls("a", 5432)
                .is_some_and(|tls| tls.policy().is_err())
        );
    }

    #[test]
    fn https_promises_a_checked_certificate() {
        let config = json!({"u": ["https://a/x", "http://b", "/var/run", "postgres:///db"]});
        let grants = grants(json!({"u": {"x-grant": "url"}}), config);
        assert_eq!(mode(&grants, "a", 443), Some(Mode::VerifyFull));
        assert_eq!(
            grants.describe(),
            ["connect a:443, TLS verify-full", "connect b:80"]
        );
    }
}
