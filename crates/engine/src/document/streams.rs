//! `source.streams`: what is read, and how each stream goes on.

use std::collections::HashMap;

use rapidbyte_wire::{counted, name};

use super::error::{DocumentError, Location, code};
use super::keys::{self, PRIMARY_KEY_EXAMPLE, missing, only_upsert, unknown};
use super::node::{Entry, Node, NodeValue};
use super::path::{Path, Step};
use super::read::Reader;
use super::{ChangeDetection, Destination, Source, Stream, SyncMode, Transform, WriteMode};

pub(super) const DEFAULTS: &[&str] = &["sync_mode", "cursor_field", "change_detection", "lag"];
pub(super) const STREAM: &[&str] = &[
    "name",
    "sync_mode",
    "columns",
    "where",
    "rename",
    "cursor_field",
    "cursor_initial",
    "change_detection",
    "lag",
    "primary_key",
    "deleted_field",
    "transforms",
];
pub(super) const TRANSFORM: &[&str] = &["use", "config"];

/// Transforms of one stream.
pub(super) const MAX_TRANSFORMS: usize = 16;
const TRANSFORMS_EXAMPLE: &str = "transforms: [{ use: ./mask.wasm }]";
const COLUMNS_EXAMPLE: &str = "columns: [id, total], or remove the key to take all columns";

/// The streams, and what each leaves to the defaults.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<(Vec<Stream>, Vec<Inherits>), DocumentError> {
    let (mut streams, mut inherits) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u32> = HashMap::new();
    let example = match &entry.value.value {
        // One name without the brackets.
        NodeValue::Scalar(name) if !name.is_empty() && name.text.len() <= 64 => name.text.as_str(),
        _ => "public.orders",
    };
    let items = reader.list(entry, path, &format!("streams: [{example}]"))?;
    for (index, item) in items.iter().enumerate() {
        let step = Step::Index(index);
        let path = &path.then(&step);
        let read = match &item.value {
            NodeValue::Mapping(entries) => read_stream(reader, entries, item.at, path)?,
            _ => StreamEntry {
                stream: Stream::named(reader.name(item, path)?),
                name_node: item,
                inherits: Inherits {
                    sync_mode: true,
                    change_detection: true,
                },
            },
        };
        let name_node = read.name_node;
        if let Some(line) = lines.insert(name::canonical(&read.stream.name), name_node.at.line) {
            let shown = reader.text(name_node, path)?.shown(name_node);
            let message = format!("the stream {shown} is already in line {line}");
            return Err(reader
                .error(code::DUPLICATE_STREAM, name_node.at, path, message)
                .hint("remove one of them"));
        }
        inherits.push(read.inherits);
        streams.push(read.stream);
    }
    Ok((streams, inherits))
}

/// A stream before the defaults are known.
struct StreamEntry<'n> {
    stream: Stream,
    name_node: &'n Node,
    inherits: Inherits,
}

/// What a stream leaves to `defaults`.
pub(super) struct Inherits {
    sync_mode: bool,
    /// With the lag.
    change_detection: bool,
}

/// `defaults`: what holds for every stream that does not say otherwise.
#[derive(Default)]
pub(super) struct Defaults {
    sync_mode: SyncMode,
    /// For incremental streams, as the following two.
    cursor_field: Vec<String>,
    change_detection: ChangeDetection,
    lag: Option<String>,
}

/// Reads the mapping `defaults`.
pub(super) fn defaults(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Defaults, DocumentError> {
    let mut read = Defaults::default();
    for entry in reader.mapping(entry, path)? {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let node = &entry.value;
        match entry.key.as_str() {
            "sync_mode" => read.sync_mode = keys::sync_mode(reader, node, path)?,
            "cursor_field" => read.cursor_field = one_or_more(reader, entry, path)?,
            "change_detection" => read.change_detection = change_detection(reader, node, path)?,
            "lag" => read.lag = Some(value(reader, node, path)?),
            _ => return Err(unknown(reader, entry, path, DEFAULTS)),
        }
    }
    Ok(read)
}

impl Defaults {
    /// `inherits` has an item for each of `streams`.
    pub(super) fn apply(&self, streams: &mut [Stream], inherits: &[Inherits]) {
        for (stream, inherits) in streams.iter_mut().zip(inherits) {
            if inherits.sync_mode {
                stream.sync_mode = self.sync_mode;
            }
            if stream.sync_mode != SyncMode::Incremental {
                continue;
            }
            if stream.cursor_field.is_empty() && stream.cursor_initial.is_none() {
                stream.cursor_field.clone_from(&self.cursor_field);
            }
            if inherits.change_detection {
                stream.change_detection = self.change_detection;
                stream.lag.clone_from(&self.lag);
            }
        }
    }
}

fn change_detection(
    reader: &mut Reader<'_>,
    node: &Node,
    path: &Path<'_>,
) -> Result<ChangeDetection, DocumentError> {
    let both = [ChangeDetection::Cursor, ChangeDetection::Xmin];
    let position = reader.one_of(node, path, &both.map(ChangeDetection::name))?;
    Ok(both[position])
}

fn read_stream<'n>(
    reader: &mut Reader<'_>,
    entries: &'n [Entry],
    at: Location,
    path: &Path<'_>,
) -> Result<StreamEntry<'n>, DocumentError> {
    let mut name_node = None;
    let mut inherits = Inherits {
        sync_mode: true,
        change_detection: true,
    };
    let mut stream = Stream::named(String::new());
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        let node = &entry.value;
        match entry.key.as_str() {
            "name" => {
                stream.name = reader.name(node, path)?;
                name_node = Some(&**node);
            }
            "sync_mode" => {
                stream.sync_mode = keys::sync_mode(reader, node, path)?;
                inherits.sync_mode = false;
            }
            "columns" => stream.columns = Some(reader.names(entry, path, COLUMNS_EXAMPLE)?),
            "where" => stream.filter = Some(reader.name(node, path)?),
            "rename" => stream.rename = reader.pairs(entry, path)?,
            "cursor_field" => stream.cursor_field = one_or_more(reader, entry, path)?,
            "cursor_initial" => stream.cursor_initial = Some(values(reader, entry, path)?),
            "change_detection" => {
                stream.change_detection = change_detection(reader, node, path)?;
                inherits.change_detection = false;
            }
            "lag" => {
                stream.lag = Some(value(reader, node, path)?);
                inherits.change_detection = false;
            }
            "primary_key" => {
                stream.primary_key = reader.names(entry, path, PRIMARY_KEY_EXAMPLE)?;
            }
            "deleted_field" => stream.deleted_field = Some(reader.name(node, path)?),
            "transforms" => stream.transforms = transforms(reader, entry, path)?,
            _ => return Err(unknown(reader, entry, path, STREAM)),
        }
    }
    let name_node = name_node
        .ok_or_else(|| missing(reader, at, path, "name", "write - name: public.orders"))?;
    Ok(StreamEntry {
        stream,
        name_node,
        inherits,
    })
}

/// The transforms of a stream. Each has a thread and an instance of its own.
fn transforms(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Vec<Transform>, DocumentError> {
    let items = reader.list(entry, path, TRANSFORMS_EXAMPLE)?;
    if items.len() > MAX_TRANSFORMS {
        let text = format!("{} transforms, above {MAX_TRANSFORMS}", items.len());
        return Err(reader.bad_value(entry.place(), path, text));
    }
    let mut transforms = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let step = Step::Index(index);
        let path = &path.then(&step);
        let NodeValue::Mapping(entries) = &item.value else {
            let error = reader.wrong_type(item.at, path, "a mapping", item.kind());
            return Err(error.hint(format!("write {TRANSFORMS_EXAMPLE}")));
        };
        transforms.push(transform(reader, entries, item.at, path)?);
    }
    Ok(transforms)
}

fn transform(
    reader: &mut Reader<'_>,
    entries: &[Entry],
    at: Location,
    path: &Path<'_>,
) -> Result<Transform, DocumentError> {
    let (mut connector, mut config) = (None, serde_json::Map::new());
    for entry in entries {
        let step = Step::Key(&entry.key);
        let path = &path.then(&step);
        match entry.key.as_str() {
            "use" => connector = Some(reader.name(&entry.value, path)?),
            "config" => config = reader.object(entry, path)?,
            _ => return Err(unknown(reader, entry, path, TRANSFORM)),
        }
    }
    let connector = connector
        .ok_or_else(|| missing(reader, at, path, "use", "name the path of a .wasm file"))?;
    Ok(Transform { connector, config })
}

/// A name, or a list of names.
fn one_or_more(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Vec<String>, DocumentError> {
    match entry.value.value {
        NodeValue::Sequence(_) => reader.names(entry, path, "cursor_field: [updated_at, id]"),
        _ => Ok(vec![reader.name(&entry.value, path)?]),
    }
}

/// A value, or a list of values, each as it is written.
fn values(
    reader: &mut Reader<'_>,
    entry: &Entry,
    path: &Path<'_>,
) -> Result<Vec<String>, DocumentError> {
    if !matches!(entry.value.value, NodeValue::Sequence(_)) {
        return Ok(vec![value(reader, &entry.value, path)?]);
    }
    let items = reader.list(entry, path, "cursor_initial: [2026-01-01, 1000]")?;
    let mut values = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let step = Step::Index(index);
        values.push(value(reader, item, &path.then(&step))?);
    }
    Ok(values)
}

/// A value as it is written, quoted or not.
fn value(reader: &mut Reader<'_>, node: &Node, path: &Path<'_>) -> Result<String, DocumentError> {
    match node.value {
        NodeValue::Scalar { .. } => {}
        _ => return reader.name(node, path),
    }
    let text = reader.text(node, path)?.text;
    if text.is_empty() {
        return reader.name(node, path);
    }
    Ok(text)
}

/// What does not go together, once the defaults and the destination are known. `nodes` are the
/// entries of `source.streams`.
pub(super) fn ensure_fit(
    reader: &Reader<'_>,
    nodes: &[&Node],
    source: &Source,
    destination: &Destination,
) -> Result<(), DocumentError> {
    let (source_step, streams_step) = (Step::Key("source"), Step::Key("streams"));
    let source_path = Path::ROOT.then(&source_step);
    let streams_path = source_path.then(&streams_step);
    for (index, (stream, node)) in source.streams.iter().zip(nodes).enumerate() {
        let step = Step::Index(index);
        let path = &streams_path.then(&step);
        fit(reader, stream, node, path, destination.write_mode)?;
    }
    Ok(())
}

fn fit(
    reader: &Reader<'_>,
    stream: &Stream,
    node: &Node,
    path: &Path<'_>,
    mode: WriteMode,
) -> Result<(), DocumentError> {
    let place = |key: &str| match &node.value {
        NodeValue::Mapping(entries) => {
            let entry = entries.iter().find(|entry| entry.key == key);
            entry.map_or(node.at, |entry| entry.at)
        }
        _ => node.at,
    };
    let wrong = |key: &str, message: String, hint: &str| {
        let step = Step::Key(key);
        let error = reader.bad_value(place(key), &path.then(&step), message);
        Err(error.hint(hint))
    };
    let given = [
        ("primary_key", !stream.primary_key.is_empty()),
        ("deleted_field", stream.deleted_field.is_some()),
    ];
    let repeats = mode == WriteMode::Append && stream.is_read_again();
    for (key, _) in given.iter().filter(|(_, given)| *given) {
        if mode != WriteMode::Upsert && !(repeats && *key == "primary_key") {
            let step = Step::Key(key);
            return Err(only_upsert(
                reader,
                place(key),
                &path.then(&step),
                key,
                mode,
            ));
        }
    }
    let of_cursor = [
        ("cursor_field", !stream.cursor_field.is_empty()),
        ("cursor_initial", stream.cursor_initial.is_some()),
        (
            "change_detection",
            stream.change_detection != ChangeDetection::default(),
        ),
        ("lag", stream.lag.is_some()),
    ];
    if stream.sync_mode != SyncMode::Incremental {
        return match of_cursor.iter().find(|(_, given)| *given) {
            Some((key, _)) => {
                let text = format!(
                    "{key} has no effect with sync_mode: {}",
                    stream.sync_mode.name()
                );
                wrong(key, text, "set sync_mode: incremental, or remove the key")
            }
            None => Ok(()),
        };
    }
    if mode == WriteMode::Replace {
        let text = "with write_mode: replace, an incremental read would remove the earlier rows";
        let hint = "set write_mode: append or upsert, or sync_mode: full_refresh";
        return wrong("sync_mode", text.into(), hint);
    }
    if stream.change_detection == ChangeDetection::Xmin && stream.lag.is_some() {
        let text = "change_detection: xmin misses no row, and has no use for a lag";
        return wrong("lag", text.into(), "remove lag, or change_detection");
    }
    if stream.change_detection == ChangeDetection::Cursor && stream.cursor_field.is_empty() {
        let hint = "name a column whose values grow, such as cursor_field: updated_at";
        return Err(missing(reader, node.at, path, "cursor_field", hint));
    }
    match &stream.cursor_initial {
        Some(initial) if initial.len() != stream.cursor_field.len() => {
            let text = format!(
                "cursor_initial has {} for {} of cursor_field",
                counted(initial.len(), "value"),
                counted(stream.cursor_field.len(), "column")
            );
            wrong("cursor_initial", text, "write one value for each column")
        }
        _ => Ok(()),
    }
}
