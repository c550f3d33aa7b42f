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
mod files;
mod network;
pub(crate) mod permissions;
mod schema;
pub(crate) mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use address::Class;
use files::{absolute, on_disk};
use network::Server;
use tls::Settings;

pub use files::ReadFiles;
pub(crate) use files::{Granted, GrantedFolder};
pub use schema::unmarked_tls;

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
}

#[cfg(test)]
mod tests;
