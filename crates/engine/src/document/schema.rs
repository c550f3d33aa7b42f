//! The JSON Schema (draft 2020-12) of a pipeline file, for editors and other programs.
//!
//! It follows from the declarations of the keys; settings of connectors come from the connectors.
//! A value that is not a string may also be a `${…}`, and nobody knows its value before the run. The schema does
//! not hold rules across several keys, such as `batch_bytes` and `memory`: the reader of the file checks them.

use rapidbyte_runtime::Kind;
use serde_json::{Map, Value, json};

use super::declare::Keys;
use super::keys::Document;
use super::kinds::{or_variable, variable};
use super::streams::BUILT_IN;

/// The forms of an entry of `transforms`.
const TRANSFORMS: &str =
    "/properties/source/properties/streams/items/anyOf/1/properties/transforms/items/anyOf";
/// The entry that names a connector.
const TRANSFORM: &str =
    "/properties/source/properties/streams/items/anyOf/1/properties/transforms/items/anyOf/0";

/// A bundled connector's part.
#[derive(Debug, Clone)]
pub struct Bundled {
    /// The name after `use:`.
    pub name: String,
    /// Source, destination or transform.
    pub kind: Kind,
    /// The connector's description.
    pub description: String,
    /// Of a destination, as in a pipeline file.
    pub write_modes: Vec<String>,
    /// Its config schema, an object.
    pub config: Value,
}

/// The schema of a pipeline file that uses these connectors, or others by their path.
pub fn json_schema(connectors: &[Bundled]) -> Value {
    let mut schema = Map::new();
    for (key, text) in [
        ("$schema", "https://json-schema.org/draft/2020-12/schema"),
        ("title", "Rapidbyte pipeline"),
        (
            "description",
            "A pipeline: its source, its destination, and the way between them.",
        ),
    ] {
        schema.insert(key.into(), text.into());
    }
    schema.extend(Document::schema().as_object().cloned().unwrap_or_default());
    let mut schema = Value::from(schema);
    for (at, kind) in [
        ("/properties/source", Kind::Source),
        (TRANSFORM, Kind::Transform),
        ("/properties/destination", Kind::Destination),
    ] {
        let own = connectors.iter().filter(|connector| connector.kind == kind);
        let names: Vec<&str> = own
            .clone()
            .map(|connector| connector.name.as_str())
            .collect();
        let Some(stage) = schema.pointer_mut(at).filter(|_| !names.is_empty()) else {
            continue;
        };
        if let Some(choices) = stage["properties"]["use"]["anyOf"].as_array_mut() {
            choices.insert(0, json!({ "enum": names }));
        }
        stage["allOf"] = own.map(chosen).collect();
    }
    let has_steps = connectors
        .iter()
        .any(|connector| connector.name == BUILT_IN);
    if let Some(Value::Array(entries)) = schema.pointer_mut(TRANSFORMS).filter(|_| has_steps) {
        entries.push(json!({ "$ref": format!("#/$defs/{BUILT_IN}/properties/steps/items") }));
    }
    let definitions = connectors.iter();
    let definitions = definitions.map(|connector| (connector.name.clone(), definition(connector)));
    schema["$defs"] = Value::Object(definitions.collect());
    schema
}

/// The rules that hold when a pipeline uses this connector.
fn chosen(connector: &Bundled) -> Value {
    let name = &connector.name;
    let mut properties = Map::new();
    properties.insert(
        "config".into(),
        json!({ "$ref": format!("#/$defs/{name}") }),
    );
    if connector.kind == Kind::Destination {
        let merge = connector.write_modes.iter().any(|mode| mode == "upsert");
        let modes = connector.write_modes.iter().map(String::as_str);
        let modes: Vec<&str> = modes.chain(merge.then_some("merge")).collect();
        let mut mode = or_variable(vec![json!({ "enum": modes })]);
        mode["description"] = "How this connector can treat existing rows.".into();
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

/// A connector's schema as a definition of ours: its references lead to its new place.
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
    // An enum lists its words in a `oneOf`, which takes the variable as one more.
    if let Some(Value::Array(choices)) = members.get_mut("oneOf") {
        choices.push(variable());
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
    members.insert("anyOf".into(), json!([own, variable()]));
}
