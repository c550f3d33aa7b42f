//! The located tree becomes a [`Document`]: keys, types and ranges.

use std::collections::HashMap;
use std::path::Path;

use super::interpolate::Variables;
use super::yaml::{self, Entry, Node, Value};
use super::{
    DestinationDocument, Document, DocumentError, Environment, Resources, SourceDocument,
    StreamDocument, SyncMode, WriteMode,
};
use crate::compress::Compression;
use crate::host::nearest;

type Result<T> = std::result::Result<T, DocumentError>;

const MIB: u64 = 1 << 20;
const DEFAULT_MEMORY: u64 = 256 * MIB;
const DEFAULT_BATCH: u64 = MIB;
const DEFAULT_RECORD: u64 = 64 * MIB;

pub(super) fn document(
    text: &str,
    file: &str,
    base_dir: &Path,
    environment: &Environment,
) -> Result<Document> {
    let mut variables = Variables::new(environment, base_dir)?;
    let root = yaml::parse(text, file, &mut variables)?;
    let read = Read { file };
    let keys = [
        "version",
        "pipeline",
        "defaults",
        "source",
        "destination",
        "resources",
    ];
    let top = read.mapping(&root, "", &keys)?;
    match &top.required("version")?.value {
        Value::Number(number) if number.as_u64() == Some(1) => {}
        _ => {
            let node = top.required("version")?;
            return Err(read.error(node, "version", "bad_value", "the version must be 1"));
        }
    }
    let pipeline = read.text(top.required("pipeline")?, "pipeline")?;
    let plain = pipeline
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if !plain || !(1..=64).contains(&pipeline.len()) {
        let text = format!("{pipeline:?} is no pipeline name");
        return Err(read
            .error(top.required("pipeline")?, "pipeline", "bad_value", text)
            .hint("use 1 to 64 letters, digits, _, . or -"));
    }
    let default_mode = match top.get("defaults") {
        Some(node) => read.defaults(node)?,
        None => SyncMode::FullRefresh,
    };
    let source = read.source(top.required("source")?, default_mode)?;
    let destination = read.destination(top.required("destination")?)?;
    let resources = read.resources(top.get("resources"))?;
    let secrets = variables.secrets;
    Ok(Document {
        file: file.into(),
        base_dir: base_dir.into(),
        pipeline,
        source,
        destination,
        resources,
        root,
        secrets,
    })
}

struct Read<'a> {
    file: &'a str,
}

/// A mapping whose keys are all known.
struct Fields<'n> {
    read: &'n Read<'n>,
    node: &'n Node,
    path: &'n str,
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// The value of a key; `null` counts as absent.
    fn get(&self, key: &str) -> Option<&'n Node> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (!matches!(entry.node.value, Value::Null)).then_some(&entry.node)
    }

    fn required(&self, key: &str) -> Result<&'n Node> {
        self.get(key).ok_or_else(|| {
            let place = if self.path.is_empty() {
                "the pipeline".into()
            } else {
                format!("{:?}", self.path)
            };
            let text = format!("{place} needs the key {key:?}");
            self.read
                .error(self.node, &join(self.path, key), "missing_key", text)
        })
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.into()
    } else {
        format!("{path}.{key}")
    }
}

impl Read<'_> {
    fn error(
        &self,
        node: &Node,
        path: &str,
        code: &'static str,
        text: impl ToString,
    ) -> DocumentError {
        DocumentError::new(self.file, code, text)
            .at(node.line, node.column)
            .on(path)
    }

    fn wrong_type(&self, node: &Node, path: &str, wanted: &str) -> DocumentError {
        let text = format!("{path:?} must be {wanted}, not {}", node.kind());
        self.error(node, path, "wrong_type", text)
    }

    fn mapping<'n>(&'n self, node: &'n Node, path: &'n str, keys: &[&str]) -> Result<Fields<'n>> {
        let Value::Mapping(entries) = &node.value else {
            let path = if path.is_empty() {
                "the pipeline"
            } else {
                path
            };
            return Err(self.wrong_type(node, path, "a mapping"));
        };
        for entry in entries {
            if !keys.contains(&entry.key.as_str()) {
                let hint = match nearest(&entry.key, keys.iter().copied()) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("known are {}", keys.join(", ")),
                };
                let text = format!("unknown key {:?}", entry.key);
                return Err(DocumentError::new(self.file, "unknown_key", text)
                    .at(entry.line, entry.column)
                    .on(&join(path, &entry.key))
                    .hint(hint));
            }
        }
        Ok(Fields {
            read: self,
            node,
            path,
            entries,
        })
    }

    fn text(&self, node: &Node, path: &str) -> Result<String> {
        match &node.value {
            Value::String(text) => Ok(text.clone()),
            // A name such as 2024 is meant as it is written.
            Value::Number(number) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
            _ => Err(self.wrong_type(node, path, "a text")),
        }
    }

    fn list<'n>(&self, node: &'n Node, path: &str) -> Result<&'n [Node]> {
        match &node.value {
            Value::Sequence(items) if !items.is_empty() => Ok(items),
            Value::Sequence(_) => Err(self.error(
                node,
                path,
                "bad_value",
                format!("{path:?} must not be empty"),
            )),
            _ => Err(self.wrong_type(node, path, "a list")),
        }
    }

    /// Names without a repetition.
    fn names(&self, node: &Node, path: &str) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for (index, item) in self.list(node, path)?.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let name = self.text(item, &path)?;
            if names.contains(&name) {
                return Err(self.error(
                    item,
                    &path,
                    "bad_value",
                    format!("{name:?} stands here twice"),
                ));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// One of some words.
    fn word<T: Copy>(&self, node: &Node, path: &str, words: &[(&str, T)]) -> Result<T> {
        let text = self.text(node, path)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(&text, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("it can be {}", known.join(", ")),
        };
        let text = format!("{path:?} cannot be {text:?}");
        Err(self.error(node, path, "bad_value", text).hint(hint))
    }

    fn sync_mode(&self, node: &Node, path: &str) -> Result<SyncMode> {
        let words = [
            ("full_refresh", SyncMode::FullRefresh),
            ("incremental", SyncMode::Incremental),
            ("cdc", SyncMode::Cdc),
        ];
        self.word(node, path, &words)
    }

    fn defaults(&self, node: &Node) -> Result<SyncMode> {
        let fields = self.mapping(node, "defaults", &["sync_mode"])?;
        fields
            .get("sync_mode")
            .map_or(Ok(SyncMode::FullRefresh), |node| {
                self.sync_mode(node, "defaults.sync_mode")
            })
    }

    fn config(
        &self,
        node: Option<&Node>,
        path: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>> {
        match node.map(|node| (node, node.to_json())) {
            None => Ok(serde_json::Map::new()),
            Some((_, serde_json::Value::Object(map))) => Ok(map),
            Some((node, _)) => Err(self.wrong_type(node, path, "a mapping")),
        }
    }

    fn source(&self, node: &Node, default_mode: SyncMode) -> Result<SourceDocument> {
        let fields = self.mapping(node, "source", &["use", "config", "streams"])?;
        let use_ = self.text(fields.required("use")?, "source.use")?;
        let config = self.config(fields.get("config"), "source.config")?;
        let mut streams: Vec<StreamDocument> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        for (index, item) in self
            .list(fields.required("streams")?, "source.streams")?
            .iter()
            .enumerate()
        {
            let path = format!("source.streams[{index}]");
            let stream = self.stream(item, &path, default_mode)?;
            if let Some(line) = lines.insert(stream.name.clone(), item.line) {
                let text = format!(
                    "the stream {:?} stands here again, after line {line}",
                    stream.name
                );
                return Err(self
                    .error(item, &path, "duplicate_stream", text)
                    .hint("remove one of the two"));
            }
            streams.push(stream);
        }
        Ok(SourceDocument {
            use_,
            config,
            streams,
        })
    }

    fn stream(&self, node: &Node, path: &str, default_mode: SyncMode) -> Result<StreamDocument> {
        if !matches!(node.value, Value::Mapping(_)) {
            let name = self.text(node, path)?;
            return Ok(StreamDocument {
                name,
                sync_mode: default_mode,
                columns: None,
            });
        }
        let fields = self.mapping(node, path, &["name", "sync_mode", "columns"])?;
        let name = self.text(fields.required("name")?, &join(path, "name"))?;
        let sync_mode = match fields.get("sync_mode") {
            Some(node) => self.sync_mode(node, &join(path, "sync_mode"))?,
            None => default_mode,
        };
        let columns = fields
            .get("columns")
            .map(|n| self.names(n, &join(path, "columns")));
        Ok(StreamDocument {
            name,
            sync_mode,
            columns: columns.transpose()?,
        })
    }

    fn destination(&self, node: &Node) -> Result<DestinationDocument> {
        let keys = ["use", "config", "write_mode", "primary_key"];
        let fields = self.mapping(node, "destination", &keys)?;
        let use_ = self.text(fields.required("use")?, "destination.use")?;
        let config = self.config(fields.get("config"), "destination.config")?;
        let words = [
            ("append", WriteMode::Append),
            ("replace", WriteMode::Replace),
            ("upsert", WriteMode::Upsert),
            ("merge", WriteMode::Upsert),
        ];
        let write_mode = match fields.get("write_mode") {
            Some(node) => self.word(node, "destination.write_mode", &words)?,
            None => WriteMode::Append,
        };
        let path = "destination.primary_key";
        let key = fields.get("primary_key");
        let primary_key = key.map_or(Ok(Vec::new()), |node| self.names(node, path))?;
        match (write_mode, key) {
            (WriteMode::Upsert, None) => {
                let text = "write_mode upsert needs a primary_key";
                Err(self
                    .error(node, path, "missing_key", text)
                    .hint("add primary_key: [id]"))
            }
            (WriteMode::Append | WriteMode::Replace, Some(node)) => {
                let text = "primary_key is used by write_mode upsert only";
                Err(self
                    .error(node, path, "bad_value", text)
                    .hint("remove it, or set write_mode: upsert"))
            }
            _ => Ok(DestinationDocument {
                use_,
                config,
                write_mode,
                primary_key,
            }),
        }
    }

    fn resources(&self, node: Option<&Node>) -> Result<Resources> {
        let mut resources = Resources {
            memory: DEFAULT_MEMORY,
            batch_bytes: DEFAULT_BATCH,
            max_record_bytes: DEFAULT_RECORD,
            parallelism: 1,
            compression: Compression::None,
        };
        let Some(node) = node else {
            return Ok(resources);
        };
        let keys = [
            "memory",
            "batch_bytes",
            "max_record_bytes",
            "parallelism",
            "compression",
        ];
        let fields = self.mapping(node, "resources", &keys)?;
        if let Some(node) = fields.get("memory") {
            resources.memory = self.size(node, "resources.memory", 32 * MIB, 64 << 30)?;
        }
        if let Some(node) = fields.get("parallelism") {
            let path = "resources.parallelism";
            let streams = match &node.value {
                Value::Number(number) => number.as_u64(),
                _ => return Err(self.wrong_type(node, path, "a number")),
            };
            let streams = streams.filter(|n| (1..=64).contains(n)).ok_or_else(|| {
                self.error(
                    node,
                    path,
                    "bad_value",
                    format!("{path:?} must be from 1 to 64"),
                )
            })?;
            resources.parallelism = streams as u32;
        }
        if let Some(node) = fields.get("compression") {
            let words = [
                ("none", Compression::None),
                ("lz4", Compression::Lz4),
                ("zstd", Compression::Zstd),
            ];
            resources.compression = self.word(node, "resources.compression", &words)?;
        }
        let share = resources.memory / u64::from(resources.parallelism);
        let below = |what: &str, limit: u64| {
            format!(
                "{what} may be {} at most, with {} of memory for {} streams at a time",
                shown(limit),
                shown(resources.memory),
                resources.parallelism
            )
        };
        resources.batch_bytes = DEFAULT_BATCH.min(share / 8);
        if let Some(node) = fields.get("batch_bytes") {
            let path = "resources.batch_bytes";
            resources.batch_bytes = self.size(node, path, 4 << 10, 256 * MIB)?;
            if resources.batch_bytes > share / 8 {
                let text = below("batch_bytes", share / 8);
                return Err(self
                    .error(node, path, "bad_value", text)
                    .hint("raise memory"));
            }
        }
        resources.max_record_bytes = DEFAULT_RECORD.min(share / 4);
        if let Some(node) = fields.get("max_record_bytes") {
            let path = "resources.max_record_bytes";
            resources.max_record_bytes = self.size(node, path, 1, 1 << 30)?;
            if resources.max_record_bytes > share / 4 {
                let text = below("max_record_bytes", share / 4);
                return Err(self
                    .error(node, path, "bad_value", text)
                    .hint("raise memory"));
            }
        }
        Ok(resources)
    }

    /// A number of bytes, or one with a unit; all units count in 1024.
    fn size(&self, node: &Node, path: &str, min: u64, max: u64) -> Result<u64> {
        let bytes = match &node.value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => parse_size(text),
            _ => return Err(self.wrong_type(node, path, "a size such as 256mb")),
        };
        bytes
            .filter(|bytes| (min..=max).contains(bytes))
            .ok_or_else(|| {
                let text = format!(
                    "{path:?} must be a size from {} to {}",
                    shown(min),
                    shown(max)
                );
                self.error(node, path, "bad_value", text)
                    .hint("write bytes, or 64kb, 16mb, 2gb")
            })
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn shown(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{}gb", b >> 30),
        b if b >= 1 << 20 => format!("{}mb", b >> 20),
        b if b >= 1 << 10 => format!("{}kb", b >> 10),
        b => format!("{b} bytes"),
    }
}
