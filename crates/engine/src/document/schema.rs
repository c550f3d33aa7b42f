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
        "description": "Where rows come from, where they go to, and how.",
        "type": "object",
        "additionalProperties": false,
        "required": ["version", "pipeline", "source", "destination"],
        "properties": {
            "version": {
                "description": "The version of this format.",
                "const": VERSION,
            },
            "pipeline": {
                "description": "The pipeline's name, under which state and reports are kept.",
                "type": "string",
                "anyOf": [
                    { "pattern": r"^[A-Za-z0-9_.-]{1,64}$" },
                    { "pattern": VARIABLE },
                ],
            },
            "defaults": {
                "description": "What holds for every stream that does not say otherwise.",
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
        "description": "Where the rows come from.",
        "type": "object",
        "additionalProperties": false,
        "required": ["use", "streams"],
        "properties": {
            "use": used(&own),
            "config": config(),
            "permissions": permissions(),
            "streams": {
                "description": "What is read, in this order.",
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
                "description": "A stream of the source; * and ? match several. An exact name wins over a wildcard.",
                "type": "string",
                "minLength": 1,
            },
            "sync_mode": sync_mode(),
            "columns": described("The wanted columns, in this order; without it all.", names()),
            "where": {
                "description": "Only rows that meet this condition, in the source's own language (SQL).",
                "type": "string",
                "minLength": 1,
            },
            "rename": {
                "description": "A column's name to its name in the destination.",
                "type": "object",
                "additionalProperties": { "type": "string", "minLength": 1 },
            },
            "cursor_field": cursor_field(),
            "cursor_initial": {
                "description": "Where the first read begins: one value for each of cursor_field.",
                "anyOf": [value(), { "type": "array", "minItems": 1, "items": value() }],
            },
            "change_detection": change_detection(),
            "lag": lag(),
            "primary_key": described("The columns that identify a row; with upsert, or append with a lag.", names()),
            "deleted_field": {
                "description": "With upsert: the column that says that a row is deleted.",
                "type": "string",
                "minLength": 1,
            },
        },
    })
}

fn cursor_field() -> Value {
    json!({
        "description": "With incremental: the columns that order the rows, the most significant first.",
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
        "How far below the cursor is read again, such as 5 minutes or 1000.",
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
        "description": "When rows become visible while a stream is read incrementally: whatever comes first.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "every_bytes": size("After so many bytes of Arrow data, from 1mb; 1gb if absent."),
            "every_rows": whole("After so many rows; not counted if absent.", None),
            "every_seconds": whole("After so many seconds; 60 if absent.", Some(MAX_SECONDS)),
        },
    })
}

fn report() -> Value {
    json!({
        "description": "A page for each run.",
        "type": "object",
        "additionalProperties": false,
        "required": ["directory"],
        "properties": {
            "directory": {
                "description": "Where the pages go, relative to the pipeline's folder; a run creates it.",
                "type": "string",
                "minLength": 1,
            },
            "keep": whole("The newest so many pages of the pipeline stay; 100 if absent.", Some(MAX_KEPT)),
        },
    })
}

fn retry() -> Value {
    json!({
        "description": "What is done when a stream fails for a reason that may pass.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "max_attempts": whole("How often a stream is begun, and a run planned; 4 if absent.", Some(MAX_ATTEMPTS)),
            "backoff_seconds": whole("Before the second attempt, then twice as long each time; 1 if absent.", Some(MAX_BACKOFF)),
            "max_backoff_seconds": whole("The longest pause; 30 if absent.", Some(MAX_SECONDS)),
        },
    })
}

fn on_stream_failure() -> Value {
    one_of(
        "What a failed stream means for the others: the run tries all of them, then fails with the \
         list (continue), or it stops them (stop); continue if absent.",
        &OnStreamFailure::ALL.map(OnStreamFailure::name),
    )
}

fn when_running() -> Value {
    one_of(
        "What a run does while another run of the pipeline is at work: fail at once with exit code 5 \
         (refuse, if absent), wait until it ends, or fence it (replace).",
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
        "description": "Where the rows go to.",
        "type": "object",
        "additionalProperties": false,
        "required": ["use"],
        "properties": {
            "use": used(&own),
            "config": config(),
            "permissions": permissions(),
            "write_mode": one_of(
                "What happens to the rows that are there: they stay (append), they go in the same \
                 moment as the new ones appear (replace), or rows of the same key change (upsert).",
                &modes,
            ),
            "primary_key": described(
                "With upsert: the columns that identify a row, else the source's own key. With \
                 append and a lag: the columns by which rows that are read again are left out.",
                names(),
            ),
            "deleted_field": {
                "description": "With upsert: the column that says that a row is deleted.",
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
        "description": "How much memory may be used, and how. Sizes are bytes or have a unit: kb, mb, gb.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "memory": size("For all streams at a time together, 32mb to 64gb; 256mb if absent."),
            "batch_bytes": size("What a batch aims at; 1mb if absent."),
            "max_record_bytes": size("Larger records are refused."),
            "parallelism": whole("Streams at a time; 1 if absent.", Some(64)),
            "compression": one_of(
                "Of batches between the two stages; none if absent.",
                &compressions,
            ),
        },
    })
}

fn sync_mode() -> Value {
    let modes = [SyncMode::FullRefresh, SyncMode::Incremental, SyncMode::Cdc].map(SyncMode::name);
    one_of("How a stream is read; full_refresh if absent.", &modes)
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
    json!({ "description": "The connector's own settings.", "type": "object" })
}

/// What a stage may reach beside what its settings name.
fn permissions() -> Value {
    let texts =
        || json!({ "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } });
    let paths = |what: &str| described(what, names());
    json!({
        "description": "What the connector may reach beside what its settings name, or not even that.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "network": {
                "description": "Servers as host:port; *.example.com:443 and 10.0.0.0/8:5432 are several. \
                                none takes away those that the settings name.",
                "anyOf": [{ "const": "none" }, texts()],
            },
            "files": {
                "description": "Paths, relative to the pipeline's folder; * and ? match several. none \
                                takes away those that the settings name.",
                "anyOf": [{ "const": "none" }, {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "read": paths("Files that may be read."),
                        "write": paths("Files that may be written."),
                    },
                }],
            },
            "limits": limits(),
            "env": described("Variables of the environment or of .env that the connector sees.", names()),
        },
    })
}

fn limits() -> Value {
    let most = Some(MAX_LIMIT);
    json!({
        "description": "Limits of each of the connector's instances that normal work never meets.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "no_progress_seconds": whole("Computing without moving a byte; 120 if absent.", most),
            "stall_seconds": whole("Nothing moves, waiting included; 7200 if absent.", most),
            "abort_seconds": whole("Giving up after a run has failed; 30 if absent.", most),
            "log_messages": whole("Messages; further ones are dropped. 10000 if absent.", most),
            "log_bytes": size("Bytes of messages; further ones are dropped. 8mb if absent."),
            "connections": whole("Connections open at a time; 64 if absent.", most),
            "open_files": whole("Files open at a time; 1024 if absent.", most),
            "handles": whole("Handles at a time; 4096 if absent.", most),
            "host_memory": size("What the host holds for it at a time; 64mb if absent."),
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
        let mode = one_of(
            "What this connector can do with rows that are there.",
            &modes,
        );
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
