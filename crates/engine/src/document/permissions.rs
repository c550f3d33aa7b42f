//! `permissions`: what a stage may reach beside what its configuration names, or not even that.

use rapidbyte_runtime::{Limit, Permissions};

use super::delivery::number;
use super::environment::is_name;
use super::error::DocumentError;
use super::keys;
use super::local_path::{self, NotLocal};
use super::node::{Entry, Node, NodeValue};
use super::path::{Path, Step};
use super::read::Reader;
use super::resources::size;

pub(super) const PERMISSIONS: &[&str] = &["network", "files", "env", "limits"];
pub(super) const FILES: &[&str] = &["read", "write"];

pub(super) const LIMITS: &[&str] = &[
    "no_progress_seconds",
    "stall_seconds",
    "abort_seconds",
    "log_messages",
    "log_bytes",
    "connections",
    "open_files",
    "handles",
    "host_memory",
];
/// The largest value of a limit: a month in seconds.
pub(super) const MAX_LIMIT: u64 = 2_678_400;
/// The largest size of a limit.
const MAX_SIZE: u64 = 4_000_000_000;

const NETWORK_EXAMPLE: &str = "network: [\"db.internal:5432\"], or network: none";
const FILES_EXAMPLE: &str = "files: { read: [lookup/*.csv] }, or files: none";

/// Reads the mapping `permissions` of a stage.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Permissions, DocumentError> {
    let mut permissions = Permissions::default();
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "network" if is_none(&entry.value) => permissions.take_network(),
            "network" => network(reader, entry, path, &mut permissions)?,
            "files" if is_none(&entry.value) => permissions.take_files(),
            "files" => files(reader, entry, path, &mut permissions)?,
            "env" => env(reader, entry, path, &mut permissions)?,
            "limits" => limits(reader, entry, path, &mut permissions)?,
            _ => return Err(keys::unknown(reader, entry, path, PERMISSIONS)),
        }
    }
    Ok(permissions)
}

fn is_none(node: &Node) -> bool {
    matches!(&node.value, NodeValue::Scalar(scalar) if scalar.text == "none")
}

fn network(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
    permissions: &mut Permissions,
) -> Result<(), DocumentError> {
    let items = reader.list(entry, path, NETWORK_EXAMPLE)?;
    for (index, item) in items.iter().enumerate() {
        let step = Step::Index(index);
        let path = &path.then(&step);
        let text = reader.name(item, path)?;
        permissions.add_network(&text).map_err(|why| {
            let message = format!("{path} is not a server that can be granted: {why}");
            reader.bad_value(item.at, path, message).hint(
                "write host:port, such as \"db.internal:5432\", \"*.example.com:443\" or \
                 \"10.0.0.0/8:5432\"",
            )
        })?;
    }
    Ok(())
}

fn files(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
    permissions: &mut Permissions,
) -> Result<(), DocumentError> {
    let NodeValue::Mapping(entries) = &entry.value.value else {
        let found = entry.value.kind();
        let error = reader.wrong_type(entry.place(), path, "a mapping or none", found);
        return Err(error.hint(format!("write {FILES_EXAMPLE}")));
    };
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let add = match entry.key.as_str() {
            "read" => Permissions::add_read,
            "write" => Permissions::add_write,
            _ => return Err(keys::unknown(reader, entry, path, FILES)),
        };
        for file in reader.names(entry, path, FILES_EXAMPLE)? {
            local_path::check(&file).map_err(|NotLocal { message, hint }| {
                let message = format!("{path}: {message}");
                reader.bad_value(entry.place(), path, message).hint(hint)
            })?;
            add(permissions, file);
        }
    }
    Ok(())
}

/// A value that is granted is a secret, as every value from outside of the file.
fn env(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
    permissions: &mut Permissions,
) -> Result<(), DocumentError> {
    let names = reader.names(entry, path, "env: [API_TOKEN]")?;
    for (index, name) in names.into_iter().enumerate() {
        let step = Step::Index(index);
        let path = &path.then(&step);
        if !is_name(&name) {
            let message = format!("{path} is not a variable name");
            return Err(reader
                .bad_value(entry.place(), path, message)
                .hint("name it without $ and braces: env: [API_TOKEN]"));
        }
        let value = reader.required(&name, entry.place(), path)?;
        permissions.add_env(name, value);
    }
    Ok(())
}

fn limits(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
    permissions: &mut Permissions,
) -> Result<(), DocumentError> {
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let (limit, is_size) = match entry.key.as_str() {
            "no_progress_seconds" => (Limit::NoProgressSeconds, false),
            "stall_seconds" => (Limit::StallSeconds, false),
            "abort_seconds" => (Limit::AbortSeconds, false),
            "log_messages" => (Limit::LogMessages, false),
            "log_bytes" => (Limit::LogBytes, true),
            "connections" => (Limit::Connections, false),
            "open_files" => (Limit::OpenFiles, false),
            "handles" => (Limit::Handles, false),
            "host_memory" => (Limit::HostMemory, true),
            _ => return Err(keys::unknown(reader, entry, path, LIMITS)),
        };
        let value = match is_size {
            true => size(reader, &entry.value, path, 1, MAX_SIZE)?,
            false => number(reader, &entry.value, path, MAX_LIMIT)?,
        };
        permissions.set_limit(limit, u32::try_from(value).unwrap_or(u32::MAX));
    }
    Ok(())
}
