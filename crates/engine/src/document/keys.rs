//! The keys of a pipeline file: one function for each mapping.
//!
//! Each walks its entries in the order of the file, so that the first mistake in the file is the
//! one reported; then it looks for what is missing and for what does not go together.

use std::collections::HashMap;

use super::error::{DocumentError, Location, code};
use super::node::{Entry, Node, NodeValue};
use super::path::{self, Path, Step};
use super::read::{Reader, nearest};
use super::{Destination, Resources, Source, Stream, SyncMode, VERSION, WriteMode, resources};
use crate::compress::Compression;

const ROOT: &[&str] = &[
    "version",
    "pipeline",
    "source",
    "defaults",
    "destination",
    "resources",
];
const SOURCE: &[&str] = &["use", "config", "streams"];
const STREAM: &[&str] = &["name", "sync_mode", "columns", "where", "rename"];
const DEFAULTS: &[&str] = &["sync_mode"];
const DESTINATION: &[&str] = &["use", "config", "write_mode", "primary_key"];
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
    ("an entry of source.streams", STREAM),
    ("defaults", DEFAULTS),
    ("destination", DESTINATION),
    ("resources", RESOURCES),
];

pub(super) const COMPRESSIONS: [Compression; 3] =
    [Compression::None, Compression::Lz4, Compression::Zstd];

const MAX_PIPELINE_NAME_CHARS: usize = 64;

const USE_HINT: &str =
    "name a connector, such as use: source-postgres, or the path of a .wasm file";
const DESTINATION_USE_HINT: &str =
    "name a connector, such as use: dest-postgres, or the path of a .wasm file";
const COLUMNS_EXAMPLE: &str = "columns: [id, total], or leave it out to take all";
const PRIMARY_KEY_EXAMPLE: &str = "primary_key: [id]";

/// What the root mapping holds.
pub(super) struct Root {
    pub(super) pipeline: String,
    pub(super) source: Source,
    pub(super) destination: Destination,
    pub(super) resources: Resources,
}

/// Reads the whole document.
pub(super) fn root(reader: &mut Reader<'_>, node: &Node) -> Result<Root, DocumentError> {
    let NodeValue::Mapping(entries) = &node.value else {
        let message = format!("a pipeline file must be a mapping, but is {}", node.kind());
        return Err(reader
            .error(code::WRONG_TYPE, node.at, &Path::ROOT, message)
            .hint("begin with version: 1"));
    };
    // Before all else: a later version may have other keys.
    if let Some(entry) = entries.iter().find(|entry| entry.key == "version") {
        version(reader, &entry.value)?;
    }
    let (mut pipeline, mut source, mut destination) = (None, None, None);
    let mut resources = Resources::default();
    let mut default_sync_mode = SyncMode::default();
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &Path::ROOT.then(&step);
        match entry.key.as_str() {
            "version" => {}
            "pipeline" => pipeline = Some(pipeline_name(reader, &entry.value, path)?),
            "source" => source = Some(read_source(reader, entry, path)?),
            "defaults" => default_sync_mode = defaults(reader, entry, path)?,
            "destination" => destination = Some(read_destination(reader, entry, path)?),
            "resources" => resources = resources::read(reader, entry, path)?,
            _ => return Err(unknown(reader, entry, path, ROOT)),
        }
    }
    let missing = |key, hint: &str| missing(reader, node.at, &Path::ROOT, key, hint);
    if !entries.iter().any(|entry| entry.key == "version") {
        return Err(missing("version", "begin the file with version: 1"));
    }
    let pipeline =
        pipeline.ok_or_else(|| missing("pipeline", "give it a name: pipeline: orders"))?;
    let (mut source, inherits) =
        source.ok_or_else(|| missing("source", "say where the rows come from: source:"))?;
    let destination = destination
        .ok_or_else(|| missing("destination", "say where the rows go to: destination:"))?;
    for index in inherits {
        source.streams[index].sync_mode = default_sync_mode;
    }
    Ok(Root {
        pipeline,
        source,
        destination,
        resources,
    })
}

fn version(reader: &mut Reader<'_>, node: &Node) -> Result<(), DocumentError> {
    let step = Step::Key("version");
    let path = &Path::ROOT.then(&step);
    let text = reader.text(node, path)?;
    if text.text == VERSION.to_string() {
        return Ok(());
    }
    let message = format!("version {} is not known", text.shown(node));
    Err(reader.bad_value(node.at, path, message).hint(format!(
        "this program reads version: {VERSION}; a newer file needs a newer program"
    )))
}

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
    let message = format!("{shown} cannot be the name of a pipeline");
    Err(reader.bad_value(node.at, path, message).hint(format!(
        "use 1 to {MAX_PIPELINE_NAME_CHARS} letters, digits, \"_\", \"-\" and \".\""
    )))
}

fn defaults(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<SyncMode, DocumentError> {
    let mut mode = SyncMode::default();
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "sync_mode" => mode = sync_mode(reader, &entry.value, path)?,
            _ => return Err(unknown(reader, entry, path, DEFAULTS)),
        }
    }
    Ok(mode)
}

/// The source, and the positions of the streams that take the default sync mode.
fn read_source(
    reader: &mut Reader<'_>,
    source: &Entry,
    path: &Path<'_>,
) -> Result<(Source, Vec<usize>), DocumentError> {
    let (mut connector, mut streams) = (None, None);
    let mut config = serde_json::Map::new();
    for entry in reader.mapping(source, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "use" => connector = Some(reader.name(&entry.value, path)?),
            "config" => config = reader.object(entry, path)?,
            "streams" => streams = Some(read_streams(reader, entry, path)?),
            _ => return Err(unknown(reader, entry, path, SOURCE)),
        }
    }
    let missing = |key, hint| missing(reader, source.at, path, key, hint);
    let connector = connector.ok_or_else(|| missing("use", USE_HINT))?;
    let (streams, inherits) = streams.ok_or_else(|| {
        missing(
            "streams",
            "name what to read, such as streams: [public.orders]",
        )
    })?;
    let source = Source {
        connector,
        config,
        streams,
    };
    Ok((source, inherits))
}

fn read_streams(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<(Vec<Stream>, Vec<usize>), DocumentError> {
    let (mut streams, mut inherits) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u32> = HashMap::new();
    let items = reader.list(entry, path, "streams: [public.orders]")?;
    for (index, item) in items.iter().enumerate() {
        let step = Step::Index(index);
        let path = &path.then(&step);
        let read = match &item.value {
            NodeValue::Mapping(entries) => read_stream(reader, entries, item.at, path)?,
            _ => StreamEntry {
                name: reader.name(item, path)?,
                name_node: item,
                sync_mode: None,
                columns: None,
                filter: None,
                rename: Vec::new(),
            },
        };
        let name_node = read.name_node;
        if let Some(line) = lines.insert(read.name.clone(), name_node.at.line) {
            let shown = reader.text(name_node, path)?.shown(name_node);
            let message = format!("the stream {shown} is here twice; it is already in line {line}");
            return Err(reader
                .error(code::DUPLICATE_STREAM, name_node.at, path, message)
                .hint("remove one of the two"));
        }
        if read.sync_mode.is_none() {
            inherits.push(index);
        }
        streams.push(Stream {
            name: read.name,
            sync_mode: read.sync_mode.unwrap_or_default(),
            columns: read.columns,
            filter: read.filter,
            rename: read.rename,
        });
    }
    Ok((streams, inherits))
}

/// A stream before the defaults are known.
struct StreamEntry<'n> {
    name: String,
    name_node: &'n Node,
    sync_mode: Option<SyncMode>,
    columns: Option<Vec<String>>,
    filter: Option<String>,
    rename: Vec<(String, String)>,
}

fn read_stream<'n>(
    reader: &mut Reader<'_>,
    entries: &'n [Entry],
    at: Location,
    path: &Path<'_>,
) -> Result<StreamEntry<'n>, DocumentError> {
    let (mut name, mut mode, mut columns, mut filter) = (None, None, None, None);
    let mut rename = Vec::new();
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "name" => name = Some((reader.name(&entry.value, path)?, &*entry.value)),
            "sync_mode" => mode = Some(sync_mode(reader, &entry.value, path)?),
            "columns" => columns = Some(reader.names(entry, path, COLUMNS_EXAMPLE)?),
            "where" => filter = Some(reader.name(&entry.value, path)?),
            "rename" => rename = reader.pairs(entry, path)?,
            _ => return Err(unknown(reader, entry, path, STREAM)),
        }
    }
    let (name, name_node) =
        name.ok_or_else(|| missing(reader, at, path, "name", "write - name: public.orders"))?;
    Ok(StreamEntry {
        name,
        name_node,
        sync_mode: mode,
        columns,
        filter,
        rename,
    })
}

fn sync_mode(
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

fn read_destination(
    reader: &mut Reader<'_>,
    destination: &Entry,
    path: &Path<'_>,
) -> Result<Destination, DocumentError> {
    let (mut connector, mut mode, mut key) = (None, None, None);
    let mut config = serde_json::Map::new();
    for entry in reader.mapping(destination, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "use" => connector = Some(reader.name(&entry.value, path)?),
            "config" => config = reader.object(entry, path)?,
            "write_mode" => mode = Some((write_mode(reader, &entry.value, path)?, entry.value.at)),
            "primary_key" => {
                let columns = reader.names(entry, path, PRIMARY_KEY_EXAMPLE)?;
                key = Some((columns, entry.at));
            }
            _ => return Err(unknown(reader, entry, path, DESTINATION)),
        }
    }
    let connector = connector
        .ok_or_else(|| missing(reader, destination.at, path, "use", DESTINATION_USE_HINT))?;
    let step = Step::Key("primary_key");
    let key_path = &path.then(&step);
    let (write_mode, mode_at) = mode.unwrap_or((WriteMode::default(), destination.at));
    let primary_key = match (write_mode, key) {
        (WriteMode::Upsert, Some((columns, _))) => columns,
        (WriteMode::Upsert, None) => {
            let message = "write_mode: upsert needs a primary_key";
            return Err(reader
                .error(code::MISSING_KEY, mode_at, key_path, message)
                .hint("name the columns that identify a row: primary_key: [id]"));
        }
        (_, None) => Vec::new(),
        (other, Some((_, at))) => {
            let message = format!(
                "primary_key has no meaning with write_mode: {}",
                other.name()
            );
            return Err(reader
                .bad_value(at, key_path, message)
                .hint("set write_mode: upsert, or remove primary_key"));
        }
    };
    Ok(Destination {
        connector,
        config,
        write_mode,
        primary_key,
    })
}

fn missing(
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
    let hint = if let Some(name) = nearest(key, known) {
        format!("did you mean {name:?}?")
    } else if let Some((mapping, _)) = elsewhere() {
        format!("it belongs in {mapping}")
    } else {
        format!("the keys here are: {}", known.join(", "))
    };
    let message = format!("unknown key {:?}", path::shown(key));
    reader
        .error(code::UNKNOWN_KEY, entry.at, path, message)
        .hint(hint)
}
