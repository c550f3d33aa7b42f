//! The keys of a pipeline file: one function for each mapping.
//!
//! Each walks its entries in the order of the file, so that the first mistake in the file is the
//! one reported; then it looks for what is missing and for what does not go together.

use rapidbyte_runtime::Permissions;

use super::error::{DocumentError, Location, code};
use super::node::{Entry, Node, NodeValue};
use super::path::{self, Path, Step};
use super::read::{Reader, nearest};
use super::streams::{Defaults, Inherits};
use super::{
    Checkpoint, Destination, OnStreamFailure, Resources, Retry, Source, SyncMode, VERSION,
    WhenRunning, WriteMode, delivery, pages, permissions, resources, streams,
};
use crate::compress::Compression;

const ROOT: &[&str] = &[
    "version",
    "pipeline",
    "source",
    "defaults",
    "destination",
    "resources",
    "checkpoint",
    "retry",
    "on_stream_failure",
    "report",
    "when_running",
];
const SOURCE: &[&str] = &["use", "config", "streams", "permissions"];
const DESTINATION: &[&str] = &[
    "use",
    "config",
    "write_mode",
    "primary_key",
    "deleted_field",
    "permissions",
];
pub(super) const RESOURCES: &[&str] = &[
    "memory",
    "batch_bytes",
    "max_record_bytes",
    "parallelism",
    "compression",
];

/// Every mapping with keys of its own, as it is called in a hint.
pub(super) const MAPPINGS: &[(&str, &[&str])] = &[
    ("the top level", ROOT),
    ("source", SOURCE),
    ("source.permissions", permissions::PERMISSIONS),
    ("source.permissions.files", permissions::FILES),
    ("source.permissions.limits", permissions::LIMITS),
    ("an entry of source.streams", streams::STREAM),
    ("an entry of transforms", streams::TRANSFORM),
    ("defaults", streams::DEFAULTS),
    ("destination", DESTINATION),
    ("destination.permissions", permissions::PERMISSIONS),
    ("destination.permissions.files", permissions::FILES),
    ("destination.permissions.limits", permissions::LIMITS),
    ("resources", RESOURCES),
    ("checkpoint", delivery::CHECKPOINT),
    ("retry", delivery::RETRY),
    ("report", pages::REPORT),
];

pub(super) const COMPRESSIONS: [Compression; 3] =
    [Compression::None, Compression::Lz4, Compression::Zstd];

/// Settings of bundled destinations that are often looked for at a stream.
const OF_ALL_STREAMS: &[&str] = &["partition_by", "split"];

const MAX_PIPELINE_NAME_CHARS: usize = 64;

const USE_HINT: &str =
    "name a connector, such as use: source-postgres, or the path of a .wasm file";
const DESTINATION_USE_HINT: &str =
    "name a connector, such as use: dest-postgres, or the path of a .wasm file";
pub(super) const PRIMARY_KEY_EXAMPLE: &str = "primary_key: [id]";

/// What the root mapping holds.
pub(super) struct Root {
    pub(super) pipeline: String,
    pub(super) source: Source,
    pub(super) destination: Destination,
    pub(super) resources: Resources,
    pub(super) checkpoint: Checkpoint,
    pub(super) retry: Retry,
    pub(super) on_stream_failure: OnStreamFailure,
    pub(super) report: Option<pages::Pages>,
    pub(super) when_running: WhenRunning,
}

/// Reads the whole document.
pub(super) fn root(reader: &mut Reader<'_>, node: &Node) -> Result<Root, DocumentError> {
    let NodeValue::Mapping(entries) = &node.value else {
        let message = format!("a pipeline file must be a mapping, but is {}", node.kind());
        return Err(reader
            .error(code::WRONG_TYPE, node.at, &Path::ROOT, message)
            .hint("start with version: 1"));
    };
    // Before all else: a later version may have other keys.
    if let Some(entry) = entries.iter().find(|entry| entry.key == "version") {
        version(reader, &entry.value)?;
    }
    // A key that stands one level too high explains why it is missing below: told first.
    let stray = |entry: &&Entry| {
        let key = entry.key.as_str();
        !ROOT.contains(&key) && MAPPINGS.iter().any(|(_, keys)| keys.contains(&key))
    };
    if let Some(entry) = entries.iter().find(stray) {
        let step = Step::Key(&entry.key);
        return Err(unknown(reader, entry, &Path::ROOT.then(&step), ROOT));
    }
    let (mut pipeline, mut source, mut destination) = (None, None, None);
    let mut resources = Resources::default();
    let (mut checkpoint, mut retry) = (Checkpoint::default(), Retry::default());
    let mut on_stream_failure = OnStreamFailure::default();
    let mut report = None;
    let mut when_running = WhenRunning::default();
    let mut defaults = Defaults::default();
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &Path::ROOT.then(&step);
        match entry.key.as_str() {
            "pipeline" => pipeline = Some(pipeline_name(reader, &entry.value, path)?),
            "source" => source = Some(read_source(reader, entry, path)?),
            "defaults" => defaults = streams::defaults(reader, entry, path)?,
            "destination" => destination = Some(read_destination(reader, entry, path)?),
            "resources" => resources = resources::read(reader, entry, path)?,
            "checkpoint" => checkpoint = delivery::checkpoint(reader, entry, path)?,
            "retry" => retry = delivery::retry(reader, entry, path)?,
            "on_stream_failure" => {
                let names = OnStreamFailure::ALL.map(OnStreamFailure::name);
                let position = reader.one_of(&entry.value, path, &names)?;
                on_stream_failure = OnStreamFailure::ALL[position];
            }
            "report" => report = Some(pages::read(reader, entry, path)?),
            "when_running" => when_running = delivery::when_running(reader, &entry.value, path)?,
            "version" => {}
            _ => return Err(unknown(reader, entry, path, ROOT)),
        }
    }
    let missing = |key, hint: &str| missing(reader, node.at, &Path::ROOT, key, hint);
    if !entries.iter().any(|entry| entry.key == "version") {
        return Err(missing("version", ADD_VERSION));
    }
    let pipeline = pipeline.ok_or_else(|| missing("pipeline", ADD_NAME))?;
    let (mut source, inherits) =
        source.ok_or_else(|| missing("source", "add the source of the rows: source:"))?;
    let (destination, key_at) = destination.ok_or_else(|| {
        missing(
            "destination",
            "add the destination of the rows: destination:",
        )
    })?;
    defaults.apply(&mut source.streams, &inherits);
    streams::ensure_fit(reader, &root_streams(entries), &source, &destination)?;
    let has_no_use = destination.write_mode == WriteMode::Append
        && !source.streams.iter().any(super::Stream::is_read_again);
    if let Some(at) = key_at.filter(|_| has_no_use) {
        let steps = [Step::Key("destination"), Step::Key("primary_key")];
        let path = Path::ROOT.then(&steps[0]);
        let (path, mode) = (path.then(&steps[1]), destination.write_mode);
        return Err(only_upsert(reader, at, &path, "primary_key", mode));
    }
    Ok(Root {
        pipeline,
        source,
        destination,
        resources,
        checkpoint,
        retry,
        on_stream_failure,
        report,
        when_running,
    })
}

/// The node of each entry of `source.streams`.
fn root_streams(entries: &[Entry]) -> Vec<&Node> {
    let below = |entries: &[Entry], key: &str| entries.iter().position(|e| e.key == key);
    let Some(source) = below(entries, "source").map(|at| &entries[at].value) else {
        return Vec::new();
    };
    let NodeValue::Mapping(keys) = &source.value else {
        return Vec::new();
    };
    match below(keys, "streams").map(|at| &keys[at].value.value) {
        Some(NodeValue::Sequence(items)) => items.iter().map(|item| &**item).collect(),
        _ => Vec::new(),
    }
}

fn version(reader: &mut Reader<'_>, node: &Node) -> Result<(), DocumentError> {
    let step = Step::Key("version");
    let path = &Path::ROOT.then(&step);
    let text = reader.text(node, path)?;
    if text.text == VERSION.to_string() {
        return Ok(());
    }
    let message = format!("version {} is unknown", text.shown(node));
    Err(reader.bad_value(node.at, path, message).hint(format!(
        "write version: {VERSION}, or use a newer program for a newer file"
    )))
}

/// The name alone; the other keys are not read.
pub(super) fn name(reader: &mut Reader<'_>, node: &Node) -> Result<String, DocumentError> {
    let entries = match &node.value {
        NodeValue::Mapping(entries) => entries.as_slice(),
        _ => &[],
    };
    let of = |key: &str| entries.iter().find(|entry| entry.key == key);
    let missing =
        |reader: &Reader<'_>, key, hint: &str| missing(reader, node.at, &Path::ROOT, key, hint);
    match of("version") {
        Some(entry) => version(reader, &entry.value)?,
        None => return Err(missing(reader, "version", ADD_VERSION)),
    }
    let step = Step::Key("pipeline");
    match of("pipeline") {
        Some(entry) => pipeline_name(reader, &entry.value, &Path::ROOT.then(&step)),
        None => Err(missing(reader, "pipeline", ADD_NAME)),
    }
}

const ADD_VERSION: &str = "start the file with version: 1";
const ADD_NAME: &str = "name the pipeline: pipeline: orders";

fn pipeline_name(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<String, DocumentError> {
    let name = reader.name(node, path)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    // A name of dots alone would be a folder to whoever stores something under it.
    let good = name.len() <= MAX_PIPELINE_NAME_CHARS
        && name.chars().all(allowed)
        && name.chars().any(|c| c != '.');
    if good {
        return Ok(name);
    }
    let shown = reader.text(node, path)?.shown(node);
    let message = format!("{shown} is not a valid pipeline name");
    Err(reader.bad_value(node.at, path, message).hint(format!(
        "use 1 to {MAX_PIPELINE_NAME_CHARS} letters, digits, \"_\", \"-\" and \".\""
    )))
}

/// The source, and what each stream leaves to the defaults.
fn read_source(
    reader: &mut Reader<'_>,
    source: &Entry,
    path: &Path<'_>,
) -> Result<(Source, Vec<Inherits>), DocumentError> {
    let (mut connector, mut streams) = (None, None);
    let mut config = serde_json::Map::new();
    let mut permissions = Permissions::default();
    for entry in reader.mapping(source, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "use" => connector = Some(reader.name(&entry.value, path)?),
            "config" => config = reader.object(entry, path)?,
            "permissions" => permissions = permissions::read(reader, entry, path)?,
            "streams" => streams = Some(streams::read(reader, entry, path)?),
            _ => return Err(unknown(reader, entry, path, SOURCE)),
        }
    }
    let missing = |key, hint| missing(reader, source.at, path, key, hint);
    let connector = connector.ok_or_else(|| missing("use", USE_HINT))?;
    let (streams, inherits) = streams.ok_or_else(|| {
        missing(
            "streams",
            "name the streams to read, such as streams: [public.orders]",
        )
    })?;
    let source = Source {
        connector,
        config,
        permissions,
        streams,
    };
    Ok((source, inherits))
}

pub(super) fn sync_mode(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<SyncMode, DocumentError> {
    let modes = [SyncMode::FullRefresh, SyncMode::Incremental, SyncMode::Cdc];
    let position = reader.one_of(node, path, &modes.map(SyncMode::name))?;
    Ok(modes[position])
}

fn write_mode(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<WriteMode, DocumentError> {
    let modes = [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    let [append, replace, upsert] = modes.map(WriteMode::name);
    let position = reader.one_of(node, path, &[append, replace, upsert, "merge"])?;
    Ok(modes.get(position).copied().unwrap_or(WriteMode::Upsert))
}

/// The destination, and the place of its key.
fn read_destination(
    reader: &mut Reader<'_>,
    destination: &Entry,
    path: &Path<'_>,
) -> Result<(Destination, Option<Location>), DocumentError> {
    let (mut connector, mut mode) = (None, None);
    let (mut key, mut deleted) = (None, None);
    let mut config = serde_json::Map::new();
    let mut permissions = Permissions::default();
    for entry in reader.mapping(destination, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "use" => connector = Some(reader.name(&entry.value, path)?),
            "config" => config = reader.object(entry, path)?,
            "permissions" => permissions = permissions::read(reader, entry, path)?,
            "write_mode" => mode = Some(write_mode(reader, &entry.value, path)?),
            "primary_key" => {
                let columns = reader.names(entry, path, PRIMARY_KEY_EXAMPLE)?;
                key = Some((columns, entry.at));
            }
            "deleted_field" => deleted = Some((reader.name(&entry.value, path)?, entry.at)),
            _ => return Err(unknown(reader, entry, path, DESTINATION)),
        }
    }
    let connector = connector
        .ok_or_else(|| missing(reader, destination.at, path, "use", DESTINATION_USE_HINT))?;
    let write_mode = mode.unwrap_or_default();
    let given = [
        ("primary_key", key.as_ref().map(|(_, at)| *at)),
        ("deleted_field", deleted.as_ref().map(|(_, at)| *at)),
    ];
    for (name, at) in given {
        // Whether a key has a meaning for rows that are appended, the streams say.
        let may_be = name == "primary_key" && write_mode == WriteMode::Append;
        if let (Some(at), false) = (at, write_mode == WriteMode::Upsert || may_be) {
            let step = Step::Key(name);
            return Err(only_upsert(reader, at, &path.then(&step), name, write_mode));
        }
    }
    let (primary_key, key_at) = key.unzip();
    let destination = Destination {
        connector,
        config,
        permissions,
        write_mode,
        primary_key: primary_key.unwrap_or_default(),
        deleted_field: deleted.map(|(column, _)| column),
    };
    Ok((destination, key_at))
}

/// A key that says how rows are told apart, where they are not.
pub(super) fn only_upsert(
    reader: &Reader<'_>,
    at: Location,
    path: &Path<'_>,
    key: &str,
    mode: WriteMode,
) -> DocumentError {
    let message = format!("{key} has no effect with write_mode: {}", mode.name());
    reader.bad_value(at, path, message).hint(match key {
        "primary_key" => {
            "set write_mode: upsert, give an incremental stream a lag, or remove primary_key".into()
        }
        _ => format!("set write_mode: upsert, or remove {key}"),
    })
}

pub(super) fn missing(
    reader: &Reader<'_>,
    at: Location,
    path: &Path<'_>,
    key: &str,
    hint: &str,
) -> DocumentError {
    let step = Step::Key(key);
    let path = path.then(&step);
    let message = format!("the key {path} is missing");
    reader
        .error(code::MISSING_KEY, at, &path, message)
        .hint(hint)
}

/// The message for an unknown key that a merge key brought from `at`.
pub(super) fn merged_key(key: &str, at: Location) -> String {
    format!("unknown key {key:?}, which << takes from line {}", at.line)
}

/// A key that has no meaning where it stands.
pub(super) fn unknown(
    reader: &Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
    known: &[&str],
) -> DocumentError {
    let key = entry.key.as_str();
    let elsewhere = || {
        let mut mappings = MAPPINGS.iter();
        mappings.find(|(_, keys)| keys.contains(&key))
    };
    let hint = if key == "late_rows" && known.contains(&"change_detection") {
        "late_rows has a new name: write change_detection: cursor for lag, or change_detection: \
         xmin for exact"
            .to_owned()
    } else if let Some(name) = nearest(key, known) {
        format!("did you mean {name:?}?")
    } else if OF_ALL_STREAMS.contains(&key) && known == streams::STREAM {
        format!(
            "{key} is a setting of the destination: write it under destination.config, where it \
                 applies to every stream; use a second pipeline for streams that differ"
        )
    } else if let Some((mapping, _)) = elsewhere() {
        format!("move it to {mapping}")
    } else {
        format!("use one of these keys: {}", known.join(", "))
    };
    let shown = path::shown(key);
    let (at, message) = match entry.merged {
        Some(merge) => (merge, merged_key(&shown, entry.at)),
        None => (entry.at, format!("unknown key {shown:?}")),
    };
    reader
        .error(code::UNKNOWN_KEY, at, path, message)
        .hint(hint)
}
