//! The operator's `permissions`: they add grants to the configuration's, or take some away.

use std::fmt;
use std::time::Duration;

use super::Grants;
use super::files::{absolute, normal};
use super::network::Server;
use crate::Limits;

/// `permissions:` of one stage. Empty, it changes nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    network: Vec<Server>,
    no_network: bool,
    read: Vec<String>,
    write: Vec<String>,
    no_files: bool,
    env: Vec<(String, String)>,
    limits: Vec<(Limit, u32)>,
}

/// A limit that the operator may set, of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Seconds of computing without moving a byte.
    NoProgressSeconds,
    /// Seconds in which nothing moves, waiting included.
    StallSeconds,
    /// Seconds that giving up may take.
    AbortSeconds,
    /// Log messages.
    LogMessages,
    /// Bytes of log messages.
    LogBytes,
    /// Open connections at a time.
    Connections,
    /// Open files at a time.
    OpenFiles,
    /// Handles at a time.
    Handles,
    /// Bytes that the host holds for it at a time.
    HostMemory,
}

impl Permissions {
    /// Adds an entry of `network`: `db.internal:5432`, `10.1.2.3:5432`, `[fd00::1]:5432`,
    /// `*.example.com:443` (names below it, at any depth), or `10.0.0.0/8:5432` (addresses, also
    /// the addresses that granted names may resolve to).
    ///
    /// # Errors
    /// The problem, in words.
    pub fn add_network(&mut self, text: &str) -> Result<(), &'static str> {
        self.network.push(Server::parse(text)?);
        Ok(())
    }

    /// Takes away the servers that the configuration names.
    pub fn take_network(&mut self) {
        self.no_network = true;
    }

    /// Adds a path or pattern to read, relative to the pipeline's folder.
    pub fn add_read(&mut self, path: String) {
        self.read.push(path);
    }

    /// Adds a path or pattern to write, relative to the pipeline's folder.
    pub fn add_write(&mut self, path: String) {
        self.write.push(path);
    }

    /// Takes away the paths that the configuration names.
    pub fn take_files(&mut self) {
        self.no_files = true;
    }

    /// Adds a variable that the connector sees in its environment.
    pub fn add_env(&mut self, name: String, value: String) {
        self.env.push((name, value));
    }

    /// Sets a limit, at least 1.
    pub fn set_limit(&mut self, limit: Limit, value: u32) {
        self.limits.push((limit, value.max(1)));
    }

    /// The limits: the usual ones but for those that were set.
    pub fn limits(&self) -> Limits {
        self.limits_over(Limits::default())
    }

    /// These limits but for those that were set.
    pub fn limits_over(&self, mut limits: Limits) -> Limits {
        for (limit, value) in &self.limits {
            let seconds = Duration::from_secs((*value).into());
            match limit {
                Limit::NoProgressSeconds => limits.busy = seconds,
                Limit::StallSeconds => limits.stall = seconds,
                Limit::AbortSeconds => limits.abort = seconds,
                Limit::LogMessages => limits.log_lines = *value,
                Limit::LogBytes => limits.log_bytes = *value as usize,
                Limit::Connections => limits.connections = *value,
                Limit::OpenFiles => limits.files = *value,
                Limit::Handles => limits.handles = *value as usize,
                Limit::HostMemory => limits.host_bytes = *value as usize,
            }
        }
        limits
    }
}

/// Values of variables are not shown.
impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permissions")
            .field("network", &self.network)
            .field("no_network", &self.no_network)
            .field("read", &self.read)
            .field("write", &self.write)
            .field("no_files", &self.no_files)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Grants {
    /// These, changed as `permissions` says.
    #[must_use]
    pub fn with(mut self, permissions: &Permissions) -> Self {
        if permissions.no_network {
            self.network.clear();
        }
        if permissions.no_files {
            self.read.clear();
            self.read_by_stream.clear();
            self.write.clear();
            self.beside.clear();
        }
        self.network.extend_from_slice(&permissions.network);
        let base = self.base_dir.clone();
        for path in &permissions.read {
            self.read.push(absolute(&base, path));
            self.read_by_stream.push(normal(&base, path));
        }
        let write = permissions.write.iter().map(|path| absolute(&base, path));
        self.write.extend(write);
        self.env.0.extend_from_slice(&permissions.env);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn config() -> Grants {
        let schema = json!({"properties": {
            "url": {"x-grant": "url"}, "in": {"x-grant": "read"}, "out": {"x-grant": "write"},
        }});
        let config = json!({"url": "postgres://db", "in": "a.csv", "out": "b.csv"});
        Grants::from_config(
            &schema,
            config.as_object().expect("an object"),
            Path::new("/p"),
        )
    }

    #[test]
    fn absent_permissions_change_nothing_and_a_list_adds() {
        assert_eq!(config().with(&Permissions::default()), config());
        let mut permissions = Permissions::default();
        permissions.add_network("*.example.com:443").expect("good");
        permissions.add_network("10.0.0.0/8:5432").expect("good");
        permissions.add_read("more/*.csv".into());
        permissions.add_write("../x".into());
        permissions.add_env("TOKEN".into(), "hidden".into());
        let grants = config().with(&permissions);
        assert_eq!(
            grants.describe(),
            [
                "connect db:5432, TLS prefer",
                "connect *.example.com:443",
                "connect 10.0.0.0/8:5432",
                "read a.csv",
                "read more/*.csv",
                "write b.csv",
                "write /x",
                "see variable TOKEN",
            ]
        );
        assert!(grants.allows_network("db", 5432) && grants.allows_network("a.example.com", 443));
        assert!(grants.readable("more/a.csv").is_some() && grants.writable("/x").is_some());
        assert!(grants.writable("more/a.csv").is_none() && grants.readable("/x").is_none());
        let shown = format!("{grants:?} {permissions:?}");
        assert!(!shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn none_takes_away_what_the_configuration_names() {
        let mut permissions = Permissions::default();
        permissions.take_network();
        permissions.take_files();
        assert_eq!(config().with(&permissions).describe(), [""; 0]);
    }
}
