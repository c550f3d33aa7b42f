//! The runtime's own source of grants, permissions, owners and regular files, and doors to what it keeps to itself.
#![allow(
    dead_code,
    unused_imports,
    reason = "the rest of the runtime uses what is not used here"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[path = "../../../../crates/runtime/src"]
mod runtime {
    pub(crate) mod digested;
    pub(crate) mod grants;
    pub mod owner;
    pub mod regular;
    pub(crate) mod virtual_folder;
}

pub use runtime::grants::Grants;
pub use runtime::grants::permissions::{Limit, Permissions};
pub(crate) use runtime::{digested, grants, virtual_folder};
pub use runtime::{owner, regular};

/// As the runtime has it.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// As the runtime has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Source,
    Transform,
    Destination,
}

mod bindings {
    pub(crate) mod types {
        pub(crate) use rapidbyte_sdk::{Error, ErrorKind};
    }
}

mod host {
    pub(crate) mod files {
        use std::path::Path;

        /// No target opens a file, so no target needs the real search for links.
        pub(crate) fn foreign_link(_: &Path, _: Option<u32>) -> Option<String> {
            None
        }
    }
}

/// As the runtime has them.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub busy: Duration,
    pub stall: Duration,
    pub abort: Duration,
    pub log_lines: u32,
    pub log_bytes: usize,
    pub connections: u32,
    pub files: u32,
    pub handles: usize,
    pub host_bytes: usize,
}

/// Whether a granted host may not be reached at this address.
pub fn is_forbidden(grants: &Grants, host: &str, address: SocketAddr) -> bool {
    grants.forbidden(host, address).is_some()
}

/// The absolute form of a path that may be read, and the folder that nothing leaves.
pub fn readable(grants: &Grants, path: &str) -> Option<(String, String)> {
    let granted = grants.readable(path)?;
    Some((granted.path, granted.root.display().to_string()))
}

/// The same of one that may be written.
pub fn writable(grants: &Grants, path: &str) -> Option<(String, String)> {
    let granted = grants.writable(path)?;
    Some((granted.path, granted.root.display().to_string()))
}

/// Whether the grants have valid TLS settings for a server.
pub fn tls_is_settled(grants: &Grants, host: &str, port: u16) -> bool {
    grants
        .tls(host, port)
        .is_some_and(|settings| settings.policy().is_ok())
}
