//! A pipeline file becomes a [`Document`], with every mistake located.

mod interpolate;
mod read;
mod yaml;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::compress::Compression;
pub use interpolate::Environment;
pub(crate) use interpolate::Interpolate;

/// A pipeline as it was asked for. Every value has been checked by itself; whether the connectors
/// agree is the plan's business.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file's name as it was given, for messages.
    pub file: String,
    /// The file's folder, absolute: relative paths in the document begin here.
    pub base_dir: PathBuf,
    /// `pipeline:`, the name: 1 to 64 of `A-Z a-z 0-9 _ . -`.
    pub pipeline: String,
    /// `source:`
    pub source: SourceDocument,
    /// `destination:`
    pub destination: DestinationDocument,
    /// `resources:`
    pub resources: Resources,
    root: yaml::Node,
    secrets: Vec<String>,
}

/// `source:`
#[derive(Debug, Clone)]
pub struct SourceDocument {
    /// `use:`, a bundled connector's name or a path to a `.wasm`.
    pub use_: String,
    /// `config:`, for the connector alone.
    pub config: Map<String, Json>,
    /// `streams:`, names or mappings; wildcards `*` and `?` allowed.
    pub streams: Vec<StreamDocument>,
}

/// One entry of `streams:`.
#[derive(Debug, Clone)]
pub struct StreamDocument {
    /// `name:`
    pub name: String,
    /// `sync_mode:`, else that of `defaults:`, else `full_refresh`.
    pub sync_mode: SyncMode,
    /// `columns:`, the wanted columns in order; without it all.
    pub columns: Option<Vec<String>>,
}

/// `destination:`
#[derive(Debug, Clone)]
pub struct DestinationDocument {
    /// `use:`
    pub use_: String,
    /// `config:`
    pub config: Map<String, Json>,
    /// `write_mode:`, default `append`.
    pub write_mode: WriteMode,
    /// `primary_key:`, for upsert.
    pub primary_key: Vec<String>,
}

/// `sync_mode:`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Everything, each time.
    FullRefresh,
    /// What is new by a cursor.
    Incremental,
    /// What changed, by the source's log.
    Cdc,
}

/// `write_mode:`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Add to what is there.
    Append,
    /// Put in the place of what is there.
    Replace,
    /// Update by key, else add; `merge` is the same word.
    Upsert,
}

/// `resources:`; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// `memory:`, for connectors and batches of all streams together. Default 256 MiB.
    pub memory: u64,
    /// `batch_bytes:`, the size a batch aims at. Default 1 MiB.
    pub batch_bytes: u64,
    /// `max_record_bytes:`, larger records are refused. Default 64 MiB or what the memory allows.
    pub max_record_bytes: u64,
    /// `parallelism:`, streams at a time. Default 1.
    pub parallelism: u32,
    /// `compression:` of batches between the stages. Default none.
    pub compression: Compression,
}

/// A place in the pipeline file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

/// A mistake in a pipeline file.
#[derive(Debug, Clone)]
pub struct DocumentError {
    /// Stable: `yaml_syntax`, `unknown_key`, `wrong_type`, `missing_key`, `unset_variable`,
    /// `duplicate_key`, `duplicate_stream`, `bad_value`, `file_not_found`.
    pub code: &'static str,
    /// The file.
    pub file: String,
    /// From 1; 0 when it is about the whole file.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// The key, such as `source.streams[0].name`; may be empty.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl DocumentError {
    pub(crate) fn new(file: &str, code: &'static str, message: impl ToString) -> Self {
        let (file, message) = (file.into(), message.to_string());
        Self {
            code,
            file,
            line: 0,
            column: 0,
            path: String::new(),
            message,
            hint: None,
        }
    }

    fn at(mut self, line: usize, column: usize) -> Self {
        (self.line, self.column) = (line, column);
        self
    }

    fn on(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message)?,
        }
        self.hint
            .as_ref()
            .map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for DocumentError {}

/// A pipeline file above this size is a mistake.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

impl Document {
    /// Reads a pipeline file.
    pub fn load(path: &Path, environment: &Environment) -> Result<Self, DocumentError> {
        let file = path.display().to_string();
        let failed = |what: &dyn fmt::Display| {
            DocumentError::new(&file, "file_not_found", what)
                .hint("give the path of a pipeline file")
        };
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if !metadata.is_file() {
            return Err(failed(&"not a file"));
        }
        if metadata.len() > MAX_DOCUMENT_BYTES {
            return Err(failed(&"larger than 4 MiB"));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            DocumentError::new(&file, "yaml_syntax", "not UTF-8").at(line, 1)
        })?;
        let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let base_dir = std::fs::canonicalize(folder.unwrap_or(Path::new(".")))
            .map_err(|error| failed(&error))?;
        Self::parse(&text, &file, &base_dir, environment)
    }

    /// Reads a pipeline's text. `base_dir` must be absolute.
    pub fn parse(
        text: &str,
        file: &str,
        base_dir: &Path,
        environment: &Environment,
    ) -> Result<Self, DocumentError> {
        read::document(text, file, base_dir, environment)
    }

    /// Values that came from the environment or from files: never to be shown.
    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Where a key such as `source.config.path` or `source.streams[1].name` stands, or the nearest
    /// one above it that is there.
    pub fn locate(&self, path: &str) -> Option<Location> {
        let mut node = &self.root;
        let mut place = Location {
            line: node.line,
            column: node.column,
        };
        for part in path.split('.') {
            let (key, indexes) = part.split_once('[').map_or((part, ""), |(k, i)| (k, i));
            let yaml::Value::Mapping(entries) = &node.value else {
                return Some(place);
            };
            let Some(entry) = entries.iter().find(|entry| entry.key == key) else {
                return Some(place);
            };
            node = &entry.node;
            place = Location {
                line: entry.line,
                column: entry.column,
            };
            for index in indexes
                .split(']')
                .map(|i| i.trim_start_matches('['))
                .filter(|i| !i.is_empty())
            {
                let (yaml::Value::Sequence(items), Ok(index)) =
                    (&node.value, index.parse::<usize>())
                else {
                    return Some(place);
                };
                let Some(item) = items.get(index) else {
                    return Some(place);
                };
                node = item;
                place = Location {
                    line: item.line,
                    column: item.column,
                };
            }
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests;
