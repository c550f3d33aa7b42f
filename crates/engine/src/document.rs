//! A pipeline file: YAML text to a [`Document`], every mistake with its place.
//!
//! This module owns the keys of a pipeline file, what their values may be, and where the values
//! of `${…}` come from; `declare.rs` says how to add a key. It refuses whatever it does not know. It does not look into `config`
//! (the connectors do; [`Document::locate`] then gives the place of a mistake) and opens no
//! connection. Text comes in from the file system; a `Document` goes out to the plan.
//!
//! In a value, never in a key:
//! - `${NAME}` is a variable; one that is not set is an error.
//! - `${NAME:-default}` is the default if the variable is not set or empty.
//! - `${file:path}` is what the file holds, without its last line break; at most 1 MiB. A
//!   relative path begins at the pipeline's folder.
//! - `$$` is `$`; a `$` before anything else stands for itself.
//!
//! A value without quotes gets its type afterwards (`port: ${PORT}` is a number), by the core
//! schema of YAML 1.2; a value in quotes is text. Variables are looked up in the environment,
//! then in `.env` beside the pipeline file.

mod changes;
mod core;
mod declare;
mod deletes;
mod delivery;
mod environment;
mod error;
mod file;
mod interpolate;
mod keys;
mod kinds;
pub(crate) mod local_path;
mod named;
mod node;
mod notify;
mod pages;
mod path;
mod permissions;
mod read;
mod rejects;
mod resources;
mod schedule;
pub mod schema;
mod secrets;
mod settings;
mod share;
mod streams;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidbyte_runtime::Redact;
use rapidbyte_wire::{name, pattern};
use serde_json::{Map, Value};

pub use changes::{DroppedColumn, NewColumn, Renamed, SchemaChanges, TypeChange};
pub use deletes::{Deletes, DeletesAction, DeletesMode};
pub use delivery::{Checkpoint, OnStreamFailure, Retry, Verify, WhenRunning};
pub use environment::Environment;
pub use error::{DocumentError, Location, code};
pub use keys::{Destination, Document, Source, WriteMode};
pub use named::Named;
pub use notify::{Notify, NotifySecret, NotifyUrl};
pub use pages::Pages;
pub use rejects::Rejects;
pub use resources::Resources;
pub use schedule::{Catchup, Cron, Schedule, Timezone};
pub use settings::Settings;
pub use share::Share;
pub use streams::{ChangeDetection, Stream, StreamTarget, SyncMode, Transform};

use node::Node;
use read::{Reader, Spot};
pub(crate) use secrets::without_marked;

/// A larger pipeline file is not read.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// The history of runs, below the directory of the pipeline file.
const HISTORY: &str = ".rapidbyte/state.db";

/// The version of the keys below.
pub const VERSION: u32 = 1;

impl Document {
    /// Reads a pipeline file of at most 4 MiB, and the `.env` beside it.
    pub fn load(path: &Path, environment: &Environment<'_>) -> Result<Self, DocumentError> {
        let (text, file, base_dir) = read_document(path)?;
        Self::parse(&text, &file, &base_dir, environment)
    }

    /// Where the history of its runs is, unless the operator names another file.
    pub fn history(&self) -> PathBuf {
        self.base_dir.join(HISTORY)
    }

    /// Reads the text of a pipeline file; `file` is its name in errors, `base_dir` its folder.
    ///
    /// Files that the text names with `${file:…}` are read, and the `.env` file.
    pub fn parse(
        text: &str,
        file: &str,
        base_dir: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, DocumentError> {
        let root = root_of(text, file)?;
        let variables = environment.open(base_dir)?;
        let reader = Reader::new(file, base_dir, &variables);
        let read = keys::root(&Spot::root(&reader, &root))?;
        Ok(Self {
            base_dir: base_dir.to_owned(),
            file: file.to_owned(),
            secrets: reader.secrets,
            root,
            ..read
        })
    }

    /// The connectors of all stages, as the file names them, each once.
    pub fn connectors(&self) -> Vec<&str> {
        let streams = self.source.streams.iter();
        let transforms = streams.flat_map(|stream| &stream.transforms);
        let transforms = transforms.map(|transform| transform.connector.as_str());
        let mut names = vec![self.source.connector.as_str()];
        for name in transforms.chain([self.destination.connector.as_str()]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The place of a key, such as `source.config.schema.id` or `source.streams[1].columns[0]`.
    ///
    /// A key with other characters than letters, digits, `_` and `-` is written `["a.b"]`. If
    /// the path leads nowhere, this is the place of the last step that is there; so it is only
    /// `None` for a path whose first step is not in the file.
    pub fn locate(&self, path: &str) -> Option<Location> {
        self.root.locate(&self.in_file(path))
    }

    /// A path whose transforms are counted as [`Stream::transforms`] counts them, as a path in the file.
    pub(crate) fn in_file<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let found = || {
            let (stream, rest) = path
                .strip_prefix("source.streams[")?
                .split_once("].transforms[")?;
            let (transform, below) = rest.split_once(']')?;
            let streams = self.source.streams.get(stream.parse::<usize>().ok()?)?;
            let transform = streams.transforms.get(transform.parse::<usize>().ok()?)?;
            let place = transform.path_in_file(below);
            Some(format!("source.streams[{stream}].transforms{place}"))
        };
        found().map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// The place of an unknown key, and the message about it: the merge key that brought it, if one did.
    pub(crate) fn unknown_key(&self, path: &str, key: &str) -> (Option<Location>, String) {
        match self.root.merged(&self.in_file(path)) {
            Some((merge, at)) => (Some(merge), declare::merged_key(key, at)),
            None => (self.locate(path), format!("unknown key {key:?}")),
        }
    }

    /// Remembers, for this document and its clones, what a connector's config schema marks as
    /// secret (`x-secret`).
    pub(crate) fn keep_secrets(&self, schema: &Value, config: &Map<String, Value>) {
        self.secrets.add_marked(schema, config);
    }

    /// `text` with every secret in it replaced by `***`: values that came from variables and
    /// files, and those that a connector marks; none from a default, none of less than four bytes.
    pub fn redact(&self, text: &str) -> String {
        self.secrets.redact(text)
    }

    /// The same for a sandbox, with the secrets that are known when it is asked.
    pub(crate) fn redactor(&self) -> Redact {
        let secrets = self.secrets.clone();
        Arc::new(move |text| secrets.redact(text))
    }
}

/// Reads a pipeline file: its text, its name in errors and its directory.
fn read_document(path: &Path) -> Result<(String, String, PathBuf), DocumentError> {
    let file = path.display().to_string();
    let text = file::read_text(path, MAX_DOCUMENT_BYTES).map_err(|problem| {
        let folder = problem.code == code::NOT_A_FILE;
        let absent = problem.code == code::FILE_NOT_FOUND;
        let error = problem.into_error(&file, "the pipeline file");
        if folder || absent {
            return error.hint("give the path of a pipeline's YAML file");
        }
        error
    })?;
    let base_dir = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let base_dir = base_dir.canonicalize().map_err(|error| {
        let text = format!("cannot find the directory of the pipeline file: {error}");
        DocumentError::whole(code::FILE_UNREADABLE, &file, text)
    })?;
    Ok((text, file, base_dir))
}

/// The tree of a pipeline file that is not empty.
fn root_of(text: &str, file: &str) -> Result<Arc<Node>, DocumentError> {
    let empty = || {
        DocumentError::whole(code::EMPTY_FILE, file, "the pipeline file is empty")
            .hint("start with version: 1 and pipeline: <name>")
    };
    let root = node::parse(text, file)?.ok_or_else(empty)?;
    if root.is_empty() {
        return Err(empty());
    }
    Ok(root)
}

impl Source {
    /// The position of the entry that a discovered stream falls under: the one with exactly its
    /// name, else the first whose wildcards match. `None` for a stream that `exclude` leaves out.
    pub fn entry_for(&self, stream: &str) -> Option<usize> {
        let position = |matches: &dyn Fn(&Stream) -> bool| self.streams.iter().position(matches);
        let stream_name = name::canonical(stream);
        position(&|entry| name::canonical(&entry.name) == stream_name)
            .or_else(|| position(&|entry| entry.matches(stream) && !self.excludes(stream)))
    }

    /// Whether `exclude` covers the name of a stream.
    pub fn excludes(&self, stream: &str) -> bool {
        let mut patterns = self.exclude.iter();
        patterns.any(|pattern| covers_stream(pattern, stream))
    }
}

/// Whether a pattern covers the name of a stream: part by part, where a part is quoted.
pub(crate) fn covers_stream(wanted: &str, stream: &str) -> bool {
    name::covered(wanted, stream, pattern::covers)
}

// Settings may hold passwords: they are not in what `{:?}` shows.

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("file", &self.file)
            .field("pipeline", &self.pipeline)
            .field("source", &self.source)
            .field("destination", &self.destination)
            .field("resources", &self.resources)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("use", &self.connector)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform")
            .field("use", &self.connector)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("use", &self.connector)
            .field("write_mode", &self.write_mode)
            .field("primary_key", &self.primary_key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
