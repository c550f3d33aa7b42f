//! The JSON Schema (draft 2020-12) of a pipeline file, for editors and other programs.
//!
//! It stands beside the code that reads the keys, and a test holds the two together. Settings of
//! connectors come from the connectors. Whatever is not text may also be a `${…}`, whose value
//! nobody knows before the run. What depends on several keys, such as `batch_bytes` on `memory`,
//! is left to the reader of the file.

use serde_json::{Map, Value, json};

use super::delivery::{MAX_ATTEMPTS, MAX_BACKOFF, MAX_SECONDS, WHEN_RUNNING};
use super::keys::COMPRESSIONS;
use super::pages::MAX_KEPT;
use super::permissions::MAX_LIMIT;
use super::streams::MAX_TRANSFORMS;
use super::{ChangeDetection, OnStreamFailure, SyncMode, VERSION, WhenRunning, WriteMode};

/// A bundled connector's part.
#[derive(Debug, Clone)]
pub struct Bundled {
    /// What `use:` says.
    pub name: String,
    /// It stands under `source`, else under `destination`.
    pub is_source: bool,
    /// What it is.
    pub description: String,
    /// Of a destination, as in a pipeline file.
    pub write_modes: Vec<String>,
    /// Its config schema, an object.
    pub config: Value,
}

/// Text in which a `${…}` stands.
const VARIABLE: &str = r"\$\{.+\}";
/// As `resources.rs` reads sizes.
const SIZE: &str = r"^[0-9]+ *([kKmMgG][iI]?[bB])?$";

/// The schema of a pipeline file that uses these connectors, or others by their path.
pub fn json_schema(connectors: &[Bundled]) -> Value {
    let definitions: Map<String, Value> = connectors
        .iter()
        .map(|connector| (connector.name.clone(), definition(connector)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rapidbyte pipeline",
        "description": "A pipeline: its source, its destination, and the way between them.",
        "type": "object",
        "additionalProperties": false,
        "required": ["version", "pipeline", "source", "destination"],
        "properties": {
            "version": {
                "description": "The version of this file format.",
                "const": VERSION,
            },
            "pipeline": {
                "description": "The pipeline's name; cursors, history and reports are stored \
                     under it.",
                "type": "string",
                "anyOf": [
                    { "pattern": r"^[A-Za-z0-9_.-]{1,64}$" },
                    { "pattern": VARIABLE },
                ],
            },
            "defaults": {
                "description": "Defaults for streams that do not set these keys.",
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "sync_mode": sync_mode(),
                    "cursor_field": cursor_field(),
                    "change_detection": change_detection(),
                    "lag": lag(),
                },
            },
            "source": source(connectors),
            "destination": destination(connectors),
            "resources": resources(),
            "checkpoint": checkpoint(),
            "retry": retry(),
            "on_stream_failure": on_stream_failure(),
            "report": report(),
            "when_running": when_running(),
        },
        "$defs": definitions,
    })
}

fn source(connectors: &[Bundled]) -> Value {
    let own: Vec<&Bundled> = connectors.iter().filter(|c| c.is_source).collect();
    json!({
        "description": "The source of the rows.",
        "type": "object",
        "additionalProperties": false,
        "required": ["use", "streams"],
        "properties": {
            "use": used(&own),
            "config": config(),
            "permissions": permissions(),
            "streams": {
                "description": "The streams to read, in this order.",
                "type": "array",
                "minItems": 1,
                "items": { "anyOf": [
                    { "type": "string", "minLength": 1, "description": "A stream's name." },
                    stream(),
                ] },
            },
        },
        "allOf": own.iter().map(|c| chosen(c)).collect::<Vec<_>>(),
    })
}

fn stream() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": {
                "description": "A stream of the source; * and ? match several. An exact name \
                     overrides a wildcard.",
                "type": "string",
                "minLength": 1,
            },
            "sync_mode": sync_mode(),
            "columns": described("The columns to move, in this order (default: all).", names()),
            "where": {
                "description": "Move only rows that match this condition, in the source's own \
                     language (SQL).",
                "type": "string",
                "minLength": 1,
            },
            "rename": {
                "description": "New names of columns in the destination: old name to new name.",
                "type": "object",
                "additionalProperties": { "type": "string", "minLength": 1 },
            },
            "cursor_field": cursor_field(),
            "cursor_initial": {
                "description": "The values at which the first read starts: one for each of \
                     cursor_field.",
                "anyOf": [value(), { "type": "array", "minItems": 1, "items": value() }],
            },
            "change_detection": change_detection(),
            "lag": lag(),
            "primary_key": described("The columns that identify a row; for upsert, or append \
                 with a lag.", names()),
            "deleted_field": {
                "description": "For upsert: the column that marks a row as deleted.",
                "type": "string",
                "minLength": 1,
            },
            "transforms": {
                "description": "The transforms of the rows, in this order, after columns, where and \
                     rename.",
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_TRANSFORMS,
                "items": transform(),
            },
        },
    })
}

fn transform() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["use"],
        "properties": {
            "use": {
                "description": "The path of a .wasm file.",
                "type": "string",
                "minLength": 1,
            },
            "config": {
                "description": "The transform's own configuration.",
                "type": "object",
            },
        },
    })
}

fn cursor_field() -> Value {
    json!({
        "description": "For incremental: the columns that order the rows, the most significant \
             first.",
        "anyOf": [{ "type": "string", "minLength": 1 }, names()],
    })
}

fn change_detection() -> Value {
    one_of(
        "How an incremental read finds new and changed rows. cursor: by the values of cursor_field; \
         rows committed late are found only within lag. xmin: by PostgreSQL's transaction ids; no \
         row is missed, and each run scans the whole table.",
        &[ChangeDetection::Cursor, ChangeDetection::Xmin].map(ChangeDetection::name),
    )
}

fn lag() -> Value {
    described(
        "Read again the rows up to this far below the cursor, such as 5 minutes or 1000.",
        value(),
    )
}

/// A list of names, each once.
fn names() -> Value {
    json!({
        "type": "array",
        "minItems": 1,
        "uniqueItems": true,
        "items": { "type": "string", "minLength": 1 },
    })
}

/// A value as it is written.
fn value() -> Value {
    json!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "number" }] })
}

fn described(description: &str, mut schema: Value) -> Value {
    schema["description"] = json!(description);
    schema
}

fn checkpoint() -> Value {
    json!({
        "description": "When an incremental stream commits: at the first of these limits.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "every_bytes": size("Commit after this many bytes of Arrow data, at least 1mb \
                 (default 1gb)."),
            "every_rows": whole("Commit after this many rows (default: no limit).", None),
            "every_seconds": whole("Commit after this many seconds (default 60).", Some(MAX_SECONDS)),
        },
    })
}

fn report() -> Value {
    json!({
        "description": "Write a report page for each run.",
        "type": "object",
        "additionalProperties": false,
        "required": ["directory"],
        "properties": {
            "directory": {
                "description": "The directory of the pages, relative to the pipeline's \
                     directory; a run creates it.",
                "type": "string",
                "minLength": 1,
            },
            "keep": whole("Keep this many of the pipeline's newest pages (default 100).", Some(MAX_KEPT)),
        },
    })
}

fn retry() -> Value {
    json!({
        "description": "How to retry a run or a stream after a transient error.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "max_attempts": whole("Plan a run, and try a stream, at most this many times \
                 (default 4).", Some(MAX_ATTEMPTS)),
            "backoff_seconds": whole("Wait this many seconds before the second attempt, then \
                 twice as long each time (default 1).", Some(MAX_BACKOFF)),
            "max_backoff_seconds": whole("Wait at most this many seconds (default 30).", Some(MAX_SECONDS)),
        },
    })
}

fn on_stream_failure() -> Value {
    one_of(
        "After a stream fails: run the others, then fail with a list of failures (continue, the \
             default), or stop them (stop).",
        &OnStreamFailure::ALL.map(OnStreamFailure::name),
    )
}

fn when_running() -> Value {
    one_of(
        "While another run of the pipeline is running: fail at once with exit code 5 (refuse, \
             the default), wait until it ends (wait), or fence it (replace).",
        &WHEN_RUNNING.map(WhenRunning::name),
    )
}

/// A whole number from 1 on.
fn whole(description: &str, most: Option<u64>) -> Value {
    let mut number = json!({ "type": "integer", "minimum": 1 });
    if let Some(most) = most {
        number["maximum"] = json!(most);
    }
    json!({
        "description": description,
        "anyOf": [number, { "type": "string", "pattern": VARIABLE }],
    })
}

fn destination(connectors: &[Bundled]) -> Value {
    let own: Vec<&Bundled> = connectors.iter().filter(|c| !c.is_source).collect();
    let modes = [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert].map(WriteMode::name);
    let modes: Vec<&str> = modes.into_iter().chain(["merge"]).collect();
    json!({
        "description": "The destination of the rows.",
        "type": "object",
        "additionalProperties": false,
        "required": ["use"],
        "properties": {
            "use": used(&own),
            "config": config(),
            "permissions": permissions(),
            "write_mode": one_of(
                "Keep existing rows (append), replace them at the moment when the new rows \
                     become visible (replace), or update the rows that have the same key (upsert).",
                &modes,
            ),
            "primary_key": described(
                "For upsert: the columns that identify a row (default: the source's key). For \
                     append with a lag: the columns that identify rows that were read before.",
                names(),
            ),
            "deleted_field": {
                "description": "For upsert: the column that marks a row as deleted.",
                "type": "string",
                "minLength": 1,
            },
        },
        "allOf": own.iter().map(|c| chosen(c)).collect::<Vec<_>>(),
    })
}

fn resources() -> Value {
    let compressions = COMPRESSIONS.map(crate::compress::Compression::name);
    json!({
        "description": "Limits and settings of memory. Sizes are bytes, or have a unit: kb, mb, \
             gb.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "memory": size("Memory for all streams together, 32mb to 64gb (default 256mb)."),
            "batch_bytes": size("The target size of a batch (default 1mb)."),
            "max_record_bytes": size("Reject larger records."),
            "parallelism": whole("The number of streams to move at the same time (default 1).", Some(64)),
            "compression": one_of(
                "Compression of batches between source and destination (default none).",
                &compressions,
            ),
        },
    })
}

fn sync_mode() -> Value {
    let modes = [SyncMode::FullRefresh, SyncMode::Incremental, SyncMode::Cdc].map(SyncMode::name);
    one_of("How to read a stream (default full_refresh).", &modes)
}

fn one_of(description: &str, words: &[&str]) -> Value {
    json!({
        "description": description,
        "anyOf": [{ "enum": words }, { "type": "string", "pattern": VARIABLE }],
    })
}

fn size(description: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": SIZE },
            { "type": "string", "pattern": VARIABLE },
        ],
    })
}

fn used(connectors: &[&Bundled]) -> Value {
    let names: Vec<&str> = connectors.iter().map(|c| c.name.as_str()).collect();
    json!({
        "description": "A bundled connector, or the path of a .wasm file.",
        "anyOf": [
            { "enum": names },
            { "type": "string", "pattern": r"/|\.wasm$" },
            { "type": "string", "pattern": VARIABLE },
        ],
    })
}

/// The settings of whatever connector: which ones, [`chosen`] says.
fn config() -> Value {
    json!({ "description": "The connector's own configuration.", "type": "object" })
}

/// What a stage may reach beside what its settings name.
fn permissions() -> Value {
    let texts =
        || json!({ "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } });
    let paths = |what: &str| described(what, names());
    json!({
        "description": "Grants beyond the hosts and paths in the connector's config, or none of \
             them.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "network": {
                "description": "Servers to grant, as host:port; *.example.com:443 and \
                     10.0.0.0/8:5432 match several. none removes the grants of the config.",
                "anyOf": [{ "const": "none" }, texts()],
            },
            "files": {
                "description": "Paths to grant, relative to the pipeline's directory; * and ? \
                     match several. none removes the grants of the config.",
                "anyOf": [{ "const": "none" }, {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "read": paths("Files that the connector may read."),
                        "write": paths("Files that the connector may write."),
                    },
                }],
            },
            "limits": limits(),
            "env": described("Variables of the environment or of .env that the connector may \
                 read.", names()),
        },
    })
}

fn limits() -> Value {
    let most = Some(MAX_LIMIT);
    json!({
        "description": "Limits of each instance of the connector; normal work stays below them.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "no_progress_seconds": whole("Stop an instance that computes for this many seconds \
                 without moving a byte (default 120).", most),
            "stall_seconds": whole("Stop an instance that moves nothing for this many seconds, \
                 including waits (default 7200).", most),
            "abort_seconds": whole("Stop an instance that needs this many seconds to abort after \
                 a run has failed (default 30).", most),
            "log_messages": whole("Log messages; further messages are dropped (default 10000).", most),
            "log_bytes": size("Bytes of log messages; further messages are dropped (default 8mb)."),
            "connections": whole("Open connections at the same time (default 64).", most),
            "open_files": whole("Open files at the same time (default 1024).", most),
            "handles": whole("Handles at the same time (default 4096).", most),
            "host_memory": size("Memory that the host holds for the instance at the same time \
                 (default 64mb)."),
        },
    })
}

/// What holds when this connector is used.
fn chosen(connector: &Bundled) -> Value {
    let name = &connector.name;
    let mut properties = Map::new();
    properties.insert(
        "config".into(),
        json!({ "$ref": format!("#/$defs/{name}") }),
    );
    if !connector.is_source {
        let merge = connector.write_modes.iter().any(|mode| mode == "upsert");
        let modes = connector.write_modes.iter().map(String::as_str);
        let modes: Vec<&str> = modes.chain(merge.then_some("merge")).collect();
        let mode = one_of("How this connector can treat existing rows.", &modes);
        properties.insert("write_mode".into(), mode);
    }
    let mut then = json!({ "properties": properties });
    let requires = connector.config.get("required").and_then(Value::as_array);
    if requires.is_some_and(|keys| !keys.is_empty()) {
        then["required"] = json!(["config"]);
    }
    json!({
        "if": { "properties": { "use": { "const": name } }, "required": ["use"] },
        "then": then,
    })
}

/// A connector's schema as a definition of ours: its references lead to where it stands now.
fn definition(connector: &Bundled) -> Value {
    let prefix = format!("#/$defs/{}", connector.name);
    let mut definition = connector.config.clone();
    if let Some(members) = definition.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
        members.insert("description".into(), json!(connector.description));
    }
    adapt(&mut definition, &prefix, MAX_DEPTH);
    definition
}

/// Schemas nested deeper are left as they are.
const MAX_DEPTH: usize = 32;

/// Moves references below `prefix`, and lets a `${…}` stand for whatever is not text.
fn adapt(schema: &mut Value, prefix: &str, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| adapt(item, prefix, depth)),
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match (key.as_str(), &mut *value) {
                    ("$ref", Value::String(target)) => {
                        let below = target.trim_start_matches('#').to_owned();
                        *target = format!("{prefix}{below}");
                    }
                    ("default" | "enum" | "const" | "examples", _) => {}
                    _ => adapt(value, prefix, depth),
                }
            }
            allow_variable(members);
        }
        _ => {}
    }
}

/// `{type: integer, minimum: 0}` becomes a choice between that and a text with a variable.
fn allow_variable(members: &mut Map<String, Value>) {
    let is = |kind: &Value| matches!(kind.as_str(), Some("integer" | "number" | "boolean"));
    let is_scalar = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(is),
        Some(kind) => is(kind),
        None => false,
    };
    let is_word = members.contains_key("const") || members.contains_key("enum");
    // The words of an enum stand in a `oneOf`, which takes the variable as one more.
    if let Some(Value::Array(choices)) = members.get_mut("oneOf") {
        choices.push(json!({ "type": "string", "pattern": VARIABLE }));
        return;
    }
    if !is_scalar || is_word {
        return;
    }
    let about: Vec<&str> = vec!["description", "default", "x-grant", "x-secret", "title"];
    let own: Map<String, Value> = members
        .iter()
        .filter(|(key, _)| !about.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    members.retain(|key, _| about.contains(&key.as_str()));
    let choices = json!([own, { "type": "string", "pattern": VARIABLE }]);
    members.insert("anyOf".into(), choices);
}
