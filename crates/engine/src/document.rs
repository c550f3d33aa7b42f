//! A pipeline file: YAML text to a [`Document`], every mistake with its place.
//!
//! This module owns the keys of a pipeline file, what their values may be, and where the values
//! of `${…}` come from. It refuses whatever it does not know. It does not look into `config`
//! (the connectors do; [`Document::locate`] then says where a mistake stands) and opens no
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

mod core;
mod delivery;
mod environment;
mod error;
mod file;
mod interpolate;
mod keys;
pub(crate) mod local_path;
mod named;
mod node;
mod pages;
mod path;
mod permissions;
mod read;
mod resources;
pub mod schema;
mod secrets;
mod settings;
mod streams;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidbyte_runtime::{Permissions, Redact};
use rapidbyte_wire::name;
use serde::Serialize;
use serde_json::{Map, Value};

pub use environment::Environment;
pub use error::{DocumentError, Location, code};
pub use named::Named;
pub use pages::Pages;
pub use settings::Settings;

use crate::compress::Compression;
use node::Node;
use secrets::Secrets;
pub(crate) use secrets::without_marked;

/// A larger pipeline file is not read.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// The history of runs, below the directory of the pipeline file.
const HISTORY: &str = ".rapidbyte/state.db";

/// The version of the keys below.
pub const VERSION: u32 = 1;

/// A pipeline file whose every key is known and whose values go together.
///
/// Serialised, it has the keys of the file, with the values of `${…}` in it: pass what is shown
/// through [`Document::redact`].
#[derive(Clone, Serialize)]
pub struct Document {
    /// `1`; required. A later version may have other keys.
    pub version: u32,
    /// The name under which state and checkpoints are kept; required. 1 to 64 letters, digits,
    /// `_`, `-` and `.`.
    pub pipeline: String,
    /// Where the rows come from; required.
    pub source: Source,
    /// Where the rows go to; required.
    pub destination: Destination,
    /// How much memory may be used, and how.
    pub resources: Resources,
    /// How often rows become visible while a stream is read incrementally.
    pub checkpoint: Checkpoint,
    /// How often a stream is tried again after a passing failure.
    pub retry: Retry,
    /// What a failed stream means for the other streams; [`OnStreamFailure::Continue`] if absent.
    pub on_stream_failure: OnStreamFailure,
    /// Where every run leaves a page; absent: only where `--report` asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Pages>,
    /// What a run does while another run of the pipeline is at work.
    pub when_running: WhenRunning,
    /// The folder of the file, absolute after [`Document::load`]: relative paths in a pipeline
    /// begin there.
    #[serde(skip)]
    pub base_dir: PathBuf,
    /// The file, as it was given.
    #[serde(skip)]
    pub file: String,
    #[serde(skip)]
    secrets: Secrets,
    #[serde(skip)]
    root: Arc<Node>,
}

/// `source`: where the rows come from.
#[derive(Clone, PartialEq, Serialize)]
pub struct Source {
    /// The name of a bundled connector or the path of a `.wasm` file; required.
    #[serde(rename = "use")]
    pub connector: String,
    /// The connector's own settings.
    pub config: Map<String, Value>,
    /// What it may reach beside what its settings name, or not even that.
    #[serde(skip)]
    pub permissions: Permissions,
    /// What to read, in order; required, not empty, each name once.
    pub streams: Vec<Stream>,
}

/// One entry of `source.streams`: a name alone, or a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// The name of a stream; `*` stands for any characters, `?` for any one. Required.
    pub name: String,
    /// How to read; else that of `defaults`, else `full_refresh`.
    pub sync_mode: SyncMode,
    /// The columns to read, in order; not empty, each once. Absent: all of them.
    pub columns: Option<Vec<String>>,
    /// `where`: only rows that meet this condition, in the source's own language (SQL). A source
    /// without conditions refuses it.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Columns that get another name on their way: the source's name, then the new one.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub rename: Vec<(String, String)>,
    /// With `incremental`: the columns that order the rows, the most significant first, under the
    /// source's names. May be left out with `change_detection: xmin`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cursor_field: Vec<String>,
    /// Where the first read begins: one value for each of `cursor_field`, in the source's own
    /// form. Absent: with the first row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_initial: Option<Vec<String>>,
    /// How new and changed rows are found.
    #[serde(skip_serializing_if = "ChangeDetection::is_default")]
    pub change_detection: ChangeDetection,
    /// With `change_detection: cursor`: how far below the cursor is read again, in the source's own form, such
    /// as `5 minutes` or `1000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// The columns that identify a row, under their new names; else those of `destination`, else,
    /// with `upsert`, the source's own key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub primary_key: Vec<String>,
    /// With `upsert`: rows whose column of this name is true, or not null where it is not boolean,
    /// are deleted in the destination; else that of `destination`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_field: Option<String>,
    /// The transforms of the rows, in order, after `columns`, `where` and `rename`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<Transform>,
}

/// One entry of a stream's `transforms`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Transform {
    /// The name of a connector of the program or the path of a `.wasm` file; required.
    #[serde(rename = "use")]
    pub connector: String,
    /// The transform's own settings.
    pub config: Map<String, Value>,
}

/// `change_detection`: how an incremental read finds the rows that are new or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeDetection {
    /// By the values of `cursor_field`. Rows that are committed late, below the cursor, are found
    /// only where `lag` reads them again.
    #[default]
    Cursor,
    /// By PostgreSQL's transaction ids: no row is missed, however late it is committed. Each read
    /// scans the whole table.
    Xmin,
}

impl ChangeDetection {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The word in a pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cursor => "cursor",
            Self::Xmin => "xmin",
        }
    }
}

/// `checkpoint`: when the rows so far become visible, with the place to go on from, while a stream
/// is read incrementally. Whatever comes first counts, at the next place where the source can go
/// on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// After so many bytes of Arrow data: 1mb to 1024gb, else 1gb.
    pub every_bytes: u64,
    /// After so many rows, at least 1; else they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_rows: Option<u64>,
    /// After so many seconds: 1 to 86400, else 60.
    pub every_seconds: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            every_bytes: 1 << 30,
            every_rows: None,
            every_seconds: 60,
        }
    }
}

/// `retry`: what is done when a stream fails for a reason that may pass, such as a connection that
/// breaks. It begins again where the destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// How often a stream is begun: 1 to 100, else 4. A commit counts anew.
    pub max_attempts: u32,
    /// Seconds before the second attempt; each pause is twice the one before, with a random part:
    /// 1 to 3600, else 1.
    pub backoff_seconds: u64,
    /// The longest pause: 1 to 86400, else 30 or `backoff_seconds` if that is more.
    pub max_backoff_seconds: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            backoff_seconds: 1,
            max_backoff_seconds: 30,
        }
    }
}

/// `on_stream_failure`: what a failed stream means for the other streams of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStreamFailure {
    /// The run tries every other stream, then fails with the list of failures.
    #[default]
    Continue,
    /// The run stops all other streams.
    Stop,
}

impl OnStreamFailure {
    pub(crate) const ALL: [Self; 2] = [Self::Continue, Self::Stop];

    /// As the pipeline file spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Stop => "stop",
        }
    }
}

/// `when_running`: what a run does while another run of the pipeline is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenRunning {
    /// It fails at once with `already_running`.
    #[default]
    Refuse,
    /// It waits until the other run has ended.
    Wait,
    /// It fences the other run, which then fails with `run_superseded`.
    Replace,
}

fn as_map<S: serde::Serializer>(
    pairs: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(from, to)| (from, to)))
}

/// `sync_mode`: how a stream is read. `defaults: { sync_mode }` sets it for every stream that
/// does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// All rows, each time.
    #[default]
    FullRefresh,
    /// The rows that are new since the last run, by a cursor.
    Incremental,
    /// The changes, from the system's own log.
    Cdc,
}

/// `destination`: where the rows go to.
#[derive(Clone, PartialEq, Serialize)]
pub struct Destination {
    /// The name of a bundled connector or the path of a `.wasm` file; required.
    #[serde(rename = "use")]
    pub connector: String,
    /// The connector's own settings.
    pub config: Map<String, Value>,
    /// What it may reach beside what its settings name, or not even that.
    #[serde(skip)]
    pub permissions: Permissions,
    /// What happens to the rows that are already there.
    pub write_mode: WriteMode,
    /// With `upsert`, or `append` with a lag: the columns that identify a row, for streams that name
    /// none; else, with `upsert`, the source's own key.
    pub primary_key: Vec<String>,
    /// With `upsert`: the column that says that a row is deleted, for streams that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_field: Option<String>,
}

/// `destination.write_mode`: what happens to the rows that are already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// They stay; the new ones are added.
    #[default]
    Append,
    /// They go, in the same moment as the new ones appear.
    Replace,
    /// A row with the same primary key takes their place. `merge` is another word for it.
    Upsert,
}

/// `resources`: how much memory may be used, and how.
///
/// A size is a whole number of bytes, or one with `kb`, `mb` or `gb` behind it, in any case.
/// `kib`, `mib` and `gib` mean the same: all are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Bytes for all streams together: 32mb to 64gb, else 256mb.
    pub memory: u64,
    /// About how many bytes of Arrow data are in one batch: 4kb to 256mb and at most
    /// `memory / parallelism / 16`, else 1mb or that if it is less.
    pub batch_bytes: u64,
    /// A larger record is refused: at least 4kb and at most `memory / parallelism / 4`, else
    /// 64mb or `memory / parallelism / 8` if that is less. Two connectors hold a record four to
    /// six times; what does not fit into `memory` ends in the error `memory_limit`.
    pub max_record_bytes: u64,
    /// How many streams are moved at a time: 1 to 64, else 1.
    pub parallelism: u32,
    /// How batches are compressed between the stages: `none`, `lz4` or `zstd`.
    pub compression: Compression,
}

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
        let mut reader = reader_of(file, base_dir, &variables);
        let read = keys::root(&mut reader, &root)?;
        let secrets = reader.secrets;
        Ok(Self {
            version: VERSION,
            pipeline: read.pipeline,
            source: read.source,
            destination: read.destination,
            resources: read.resources,
            checkpoint: read.checkpoint,
            retry: read.retry,
            on_stream_failure: read.on_stream_failure,
            report: read.report,
            when_running: read.when_running,
            base_dir: base_dir.to_owned(),
            file: file.to_owned(),
            secrets,
            root,
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

    /// Where a key stands, such as `source.config.schema.id` or `source.streams[1].columns[0]`.
    ///
    /// A key with other characters than letters, digits, `_` and `-` is written `["a.b"]`. If
    /// the path leads nowhere, this is the place of the last step that is there; so it is only
    /// `None` for a path whose first step is not in the file.
    pub fn locate(&self, path: &str) -> Option<Location> {
        self.root.locate(path)
    }

    /// Where an unknown key stands, and the message about it: the merge key that brought it, if one did.
    pub(crate) fn unknown_key(&self, path: &str, key: &str) -> (Option<Location>, String) {
        match self.root.merged(path) {
            Some((merge, at)) => (Some(merge), keys::merged_key(key, at)),
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

fn reader_of<'a>(
    file: &'a str,
    base_dir: &'a Path,
    variables: &'a environment::Variables<'a>,
) -> read::Reader<'a> {
    read::Reader {
        file,
        base_dir,
        variables,
        secrets: Secrets::default(),
        interpolated: 0,
    }
}

impl Source {
    /// The position of the entry that a discovered stream falls under: the one with exactly its
    /// name, else the first whose wildcards match.
    pub fn entry_for(&self, stream: &str) -> Option<usize> {
        let position = |matches: &dyn Fn(&Stream) -> bool| self.streams.iter().position(matches);
        let stream_name = name::canonical(stream);
        position(&|entry| name::canonical(&entry.name) == stream_name)
            .or_else(|| position(&|entry| entry.matches(stream)))
    }
}

impl Stream {
    /// A stream that is read whole, with all its columns.
    fn named(name: String) -> Self {
        Self {
            name,
            sync_mode: SyncMode::default(),
            columns: None,
            filter: None,
            rename: Vec::new(),
            cursor_field: Vec::new(),
            cursor_initial: None,
            change_detection: ChangeDetection::default(),
            lag: None,
            primary_key: Vec::new(),
            deleted_field: None,
            transforms: Vec::new(),
        }
    }

    /// Whether rows below the cursor are read again, by a lag.
    pub fn is_read_again(&self) -> bool {
        let by_lag = self.change_detection == ChangeDetection::Cursor && self.lag.is_some();
        by_lag && self.sync_mode == SyncMode::Incremental
    }

    /// Whether the name holds a wildcard.
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }

    /// Whether the name, with its wildcards, is that of a discovered stream.
    pub fn matches(&self, stream: &str) -> bool {
        covers_stream(&self.name, stream)
    }
}

/// Whether a pattern covers the name of a stream: part by part, where a part is quoted.
pub(crate) fn covers_stream(pattern: &str, stream: &str) -> bool {
    name::covered(pattern, stream, covers)
}

/// Whether a pattern, in which `*` stands for any characters and `?` for any one, covers a name.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The last `*`, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

impl SyncMode {
    /// The word in a pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::FullRefresh => "full_refresh",
            Self::Incremental => "incremental",
            Self::Cdc => "cdc",
        }
    }
}

impl WhenRunning {
    /// The word in a pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Wait => "wait",
            Self::Replace => "replace",
        }
    }
}

impl WriteMode {
    /// The word in a pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Replace => "replace",
            Self::Upsert => "upsert",
        }
    }
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
