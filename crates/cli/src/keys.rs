//! The keys of a JSON Schema, as `connector inspect` and the reference list them.

use serde_json::Value;

/// Deeper than any pipeline goes.
const MAX_DEPTH: usize = 8;
/// More than anybody reads; the schema of a connector is its own.
const MAX_KEYS: usize = 2000;

/// A key of a configuration.
pub struct Key<'a> {
    /// Such as `a.b`; `a[].b` within a list, and `a.NAME.b` where the operator gives names.
    pub path: String,
    /// The allowed values, in a few words.
    pub value: String,
    /// Whether it must be there.
    pub required: bool,
    /// The grant of the key.
    pub grant: Option<Grant<'a>>,
    /// The description.
    pub about: &'a str,
}

/// The kind of a key's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant<'a> {
    /// A file that the host reads itself, for TLS.
    Tls,
    /// Something that the connector reaches.
    Of(&'a str),
}

impl Key<'_> {
    /// The first paragraph of the description, on one line.
    pub fn first(&self) -> String {
        let lines = self.about.lines().take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }
}

/// All keys; the keys of an object come after the key that holds it.
pub fn of(schema: &Value) -> Vec<Key<'_>> {
    let mut found = Vec::new();
    below(schema, schema, "", (0, false), &mut found);
    found
}

fn below<'a>(
    root: &'a Value,
    schema: &'a Value,
    before: &str,
    (depth, is_form): (usize, bool),
    found: &mut Vec<Key<'a>>,
) {
    let required = schema["required"].as_array();
    let properties = schema["properties"].as_object();
    // The description of one of several forms is about its only key.
    let form = schema["description"].as_str().filter(|_| is_form);
    for (key, property) in properties.into_iter().flatten() {
        if found.len() == MAX_KEYS {
            return;
        }
        let path = match before {
            "" => key.clone(),
            before => format!("{before}.{key}"),
        };
        let grant = property["x-grant"].as_str();
        found.push(Key {
            path: path.clone(),
            value: value(root, property),
            required: !is_form
                && required.is_some_and(|names| names.iter().any(|name| name == key)),
            grant: grant.map(|grant| match grant.strip_prefix("tls-") {
                Some(_) => Grant::Tls,
                None => Grant::Of(grant),
            }),
            about: property["description"]
                .as_str()
                .or(form)
                .unwrap_or_default(),
        });
        if depth < MAX_DEPTH {
            for object in objects(root, property) {
                let path = format!("{path}{}", object.behind);
                below(
                    root,
                    object.schema,
                    &path,
                    (depth + 1, object.is_form),
                    found,
                );
            }
        }
    }
}

/// The target of a reference, or the schema itself.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str();
    let found = target.and_then(|target| root.pointer(target.trim_start_matches('#')));
    found.unwrap_or(schema)
}

fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|word| schema[word].as_array())
        .flatten()
}

/// An object with known keys that a value may be, or be a list or a mapping of.
struct Object<'a> {
    schema: &'a Value,
    /// The end of the path, after the key.
    behind: &'static str,
    /// It has one key, and the value may be another such object instead.
    is_form: bool,
}

fn objects<'a>(root: &'a Value, property: &'a Value) -> Vec<Object<'a>> {
    let schema = resolve(root, property);
    let parts = [("items", "[]"), ("additionalProperties", ".NAME")];
    let inner = parts.into_iter().find(|(word, _)| schema[word].is_object());
    let (schema, behind) = match inner {
        Some((word, behind)) => (resolve(root, &schema[word]), behind),
        None => (schema, ""),
    };
    let found: Vec<&Value> = std::iter::once(schema)
        .chain(choices(schema).map(|choice| resolve(root, choice)))
        .filter(|schema| schema["properties"].is_object())
        .collect();
    let has_one_key = |schema: &&Value| {
        schema["properties"]
            .as_object()
            .is_some_and(|all| all.len() == 1)
    };
    let is_form = found.len() > 1 && found.iter().all(has_one_key);
    let object = |schema| Object {
        schema,
        behind,
        is_form,
    };
    found.into_iter().map(object).collect()
}

/// The most schemas that are visited for one value: a connector's schema may contain itself.
const MAX_PARTS: usize = 100;

/// The allowed values, in a few words.
fn value(root: &Value, property: &Value) -> String {
    words(root, property, &mut 0)
}

fn words(root: &Value, property: &Value, parts: &mut usize) -> String {
    *parts += 1;
    if *parts > MAX_PARTS {
        return "any".into();
    }
    let schema = resolve(root, property);
    let quoted = |value: &Value| match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    };
    if let Some(constant) = schema.get("const") {
        return quoted(constant);
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(quoted).collect::<Vec<_>>().join(", ");
    }
    let mut told: Vec<String> = Vec::new();
    match &schema["type"] {
        // A choice says more than the type that all of its parts have.
        Value::String(_) if choices(schema).next().is_some() => {}
        Value::String(name) if name == "array" => {
            let item = words(root, &schema["items"], parts);
            told.push(format!("list of {item}"));
        }
        Value::String(name) => told.push(named(name).into()),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            told.extend(
                names
                    .filter(|name| *name != "null")
                    .map(|n| named(n).into()),
            );
        }
        _ => {}
    }
    for choice in choices(schema) {
        // Any key may come from a variable; pipeline.md says it once.
        let pattern = resolve(root, choice)["pattern"]
            .as_str()
            .unwrap_or_default();
        let word = words(root, choice, parts);
        if word != "null" && !pattern.starts_with("\\$") && !told.contains(&word) {
            told.push(word);
        }
    }
    match told.is_empty() {
        true => "any".into(),
        false => listed(&told),
    }
}

/// `a`, `a or b`, `a, b or c`.
fn listed(told: &[String]) -> String {
    match told {
        [first @ .., before, last] => {
            let mut first = first.join(", ");
            if !first.is_empty() {
                first.push_str(", ");
            }
            format!("{first}{before} or {last}")
        }
        told => told.concat(),
    }
}

fn named(name: &str) -> &str {
    match name {
        "boolean" => "true or false",
        "object" => "mapping",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_described_in_words() {
        let root = json!({"$defs": {"Name": {"oneOf": [{"const": "a"}, {"const": "b"}]}}});
        let cases = [
            (json!({"type": ["string", "null"]}), "string"),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]}),
                "`a` or `b`",
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                "list of integer",
            ),
            (json!({"enum": ["x", "y"]}), "`x`, `y`"),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "\\$\\{.+\\}"}]}),
                "integer",
            ),
        ];
        for (schema, words) in cases {
            assert_eq!(value(&root, &schema), words, "{schema}");
        }
    }

    #[test]
    fn a_form_does_without_the_keys_of_the_others() {
        let form = |key: &str, about: &str| {
            json!({
                "description": about, "required": [key], "properties": { key: { "type": "string" } }
            })
        };
        let forms = json!([form("drop", "Out."), form("keep", "In.")]);
        let schema = json!({
            "properties": { "steps": { "type": "array", "items": { "oneOf": forms } } }
        });
        let found = of(&schema);
        let found: Vec<_> = found
            .iter()
            .map(|key| (key.path.as_str(), key.required, key.about))
            .collect();
        let expected = [
            ("steps", false, ""),
            ("steps[].drop", false, "Out."),
            ("steps[].keep", false, "In."),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn keys_of_what_the_operator_names_come_too() {
        let root = json!({
            "$defs": {"Stream": {"required": ["path"], "properties": {
                "path": {"type": "string", "description": "Where.\n\nAt length."},
                "steps": {"type": "array", "items": {"properties": {"at": {"type": "integer"}}}},
            }}},
            "properties": {
                "streams": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Stream"}},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "ca": {"type": "string", "x-grant": "tls-root-cert"},
                "url": {"type": "string", "x-grant": "url"},
            },
        });
        let mut found: Vec<_> = of(&root)
            .into_iter()
            .map(|k| (k.path, k.required, k.grant))
            .collect();
        let expected = [
            ("ca", false, Some(Grant::Tls)),
            ("headers", false, None),
            ("streams", false, None),
            ("streams.NAME.path", true, None),
            ("streams.NAME.steps", false, None),
            ("streams.NAME.steps[].at", false, None),
            ("url", false, Some(Grant::Of("url"))),
        ];
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            found,
            expected.map(|(path, required, grant)| (path.to_owned(), required, grant))
        );
        assert_eq!(
            of(&root).iter().find(|k| k.required).map(Key::first),
            Some("Where.".to_owned())
        );
    }

    #[test]
    fn a_schema_that_holds_itself_ends() {
        let root = json!({
            "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "properties": {"first": {"$ref": "#/$defs/Node"}},
        });
        assert_eq!(of(&root).len(), MAX_DEPTH + 1);
        let list = json!({"$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}});
        assert!(value(&list, &json!({"$ref": "#/$defs/A"})).ends_with("list of any"));
        let wide: serde_json::Map<String, Value> = (0..20)
            .map(|n| (n.to_string(), json!({"$ref": "#"})))
            .collect();
        assert_eq!(of(&json!({ "properties": wide })).len(), MAX_KEYS);
    }
}
