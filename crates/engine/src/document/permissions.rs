//! `permissions`: what a stage may reach beside what its configuration names, or not even that.

use rapidbyte_runtime::{Limit, Permissions};

use super::declare::{Kind, keys};
use super::environment::is_name;
use super::error::Result;
use super::kinds::{list, mapping, name, names, none_or, size, whole};
use super::local_path::{self, NotLocal};
use super::read::Spot;

/// The largest value of a limit: a month in seconds.
const MAX_LIMIT: u64 = 2_678_400;
/// The largest size of a limit.
const MAX_SIZE: u64 = 4_000_000_000;

const NETWORK_EXAMPLE: &str = "network: [\"db.internal:5432\"], or network: none";
const FILES_EXAMPLE: &str = "files: { read: [lookup/*.csv] }, or files: none";

/// The permissions of a stage.
pub(super) fn permissions() -> Kind<Permissions> {
    mapping::<Grants>().then(|_, grants| Ok(grants.into()))
}

keys! {
    struct Grants {
        /// Servers to grant, as host:port; *.example.com:443 and 10.0.0.0/8:5432 match several.
        /// none removes the grants of the config.
        network: Option<Option<Vec<String>>> = none_or(
            list(name().then(server), NETWORK_EXAMPLE, None)
                .expecting("a list or none", NETWORK_EXAMPLE),
        ).optional(),
        /// Paths to grant, relative to the pipeline's directory; * and ? match several. none
        /// removes the grants of the config.
        files: Option<Option<Files>> = none_or(
            mapping::<Files>().expecting("a mapping or none", FILES_EXAMPLE),
        ).optional(),
        /// Limits of each instance of the connector; normal work stays below them.
        limits: Limits = mapping().or(Limits::default()),
        /// Variables of the environment or of .env that the connector may read.
        env: Vec<(String, String)> = names("env: [API_TOKEN]").then(variables).or(Vec::new()),
    }
}

keys! {
    struct Files {
        /// Files that the connector may read.
        read: Vec<String> = names("read: [lookup/*.csv]").then(local).or(Vec::new()),
        /// Files that the connector may write.
        write: Vec<String> = names("write: [out/*.csv]").then(local).or(Vec::new()),
    }
}

impl From<Grants> for Permissions {
    fn from(grants: Grants) -> Self {
        let mut permissions = Self::default();
        match grants.network {
            Some(Some(servers)) => servers.iter().for_each(|server| {
                // `server` has read it.
                let _ = permissions.add_network(server);
            }),
            Some(None) => permissions.take_network(),
            None => {}
        }
        match grants.files {
            Some(Some(Files { read, write })) => {
                read.into_iter().for_each(|path| permissions.add_read(path));
                write
                    .into_iter()
                    .for_each(|path| permissions.add_write(path));
            }
            Some(None) => permissions.take_files(),
            None => {}
        }
        for (name, value) in grants.env {
            permissions.add_env(name, value);
        }
        for (limit, value) in grants.limits.given() {
            permissions.set_limit(limit, value);
        }
        permissions
    }
}

fn server(at: &Spot<'_>, text: String) -> Result<String> {
    let read = Permissions::default().add_network(&text);
    read.map_err(|why| {
        let message = format!("{at} is not a server that can be granted: {why}");
        at.bad_value(message).hint(
            "write host:port, such as \"db.internal:5432\", \"*.example.com:443\" or \
             \"10.0.0.0/8:5432\"",
        )
    })?;
    Ok(text)
}

fn local(at: &Spot<'_>, files: Vec<String>) -> Result<Vec<String>> {
    for (file, item) in files.iter().zip(at.items()) {
        let Err(NotLocal { message, hint }) = local_path::check(file) else {
            continue;
        };
        let text = item.text()?;
        if text.secret {
            let message = format!("{at}: {} is not the path of a local file", text.shown());
            return Err(at.bad_value(message).hint("give a path of this machine"));
        }
        return Err(at.bad_value(format!("{at}: {message}")).hint(hint));
    }
    Ok(files)
}

/// A value that is granted is a secret, as every value from outside of the file.
fn variables(at: &Spot<'_>, names: Vec<String>) -> Result<Vec<(String, String)>> {
    let read = names.into_iter().zip(at.items()).map(|(name, at)| {
        if !is_name(&name) {
            let error = at.bad_value(format!("{at} is not a variable name"));
            return Err(error.hint("name it without $ and braces: env: [API_TOKEN]"));
        }
        let value = at.required(&name)?;
        Ok((name, value))
    });
    read.collect()
}

keys! {
    struct Limits of (Limit, u32) {
        /// Stop an instance that computes for this many seconds without moving a byte (default
        /// 120).
        no_progress_seconds = count(Limit::NoProgressSeconds),
        /// Stop an instance that moves nothing for this many seconds, including waits (default
        /// 7200).
        stall_seconds = count(Limit::StallSeconds),
        /// Stop an instance that needs this many seconds to abort after a run has failed (default
        /// 30).
        abort_seconds = count(Limit::AbortSeconds),
        /// Log messages; further messages are dropped (default 10000).
        log_messages = count(Limit::LogMessages),
        /// Bytes of log messages; further messages are dropped (default 8mb).
        log_bytes = bytes(Limit::LogBytes),
        /// Open connections at the same time (default 64).
        connections = count(Limit::Connections),
        /// Open files at the same time (default 1024).
        open_files = count(Limit::OpenFiles),
        /// Handles at the same time (default 4096).
        handles = count(Limit::Handles),
        /// Memory that the host holds for the instance at the same time (default 64mb).
        host_memory = bytes(Limit::HostMemory),
    }
}

fn count(limit: Limit) -> Kind<(Limit, u32)> {
    whole(MAX_LIMIT).then(move |_, count| Ok((limit, count)))
}

fn bytes(limit: Limit) -> Kind<(Limit, u32)> {
    let size = size(1, MAX_SIZE);
    size.then(move |_, bytes| Ok((limit, u32::try_from(bytes).unwrap_or(u32::MAX))))
}
