//! The spec of a connector: names, and the schema of its settings with its marks.

use rapidbyte_engine::nearest;
use rapidbyte_runtime::{Kind, Spec};
use serde_json::{Map, Value};

use crate::verdict::{Judged, fail, skip};

/// Schemas nested deeper are not followed, as for grants.
const MAX_DEPTH: usize = 16;
/// The most keys that are checked, references followed, as the engine does.
const MAX_KEYS: usize = 10_000;
/// The names of types in JSON Schema.
const TYPES: &[&str] = &[
    "null", "boolean", "object", "array", "number", "string", "integer",
];
/// Marks of a property, beside the keywords of JSON Schema.
const MARKS: &[&str] = &["x-grant", "x-beside", "x-columns", "x-keys", "x-secret"];
/// The values of `x-grant`.
const GRANTS: &[&str] = &[
    "read",
    "write",
    "folders",
    "host",
    "port",
    "url",
    "tls-mode",
    "tls-root-cert",
    "tls-cert",
    "tls-key",
];

/// Names, version and modes.
pub(crate) fn describe(spec: &Spec, kind: Kind) -> Judged {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !spec.name.starts_with(|c: char| c.is_ascii_lowercase()) || !spec.name.chars().all(is_name) {
        return Err(fail(
            format!("the name {:?}", spec.name),
            "begin with a lower-case letter; go on with such letters, digits and hyphens",
        ));
    }
    if !is_semver(&spec.version) {
        return Err(fail(
            format!("the version {:?}", spec.version),
            "give a semantic version such as 1.2.0",
        ));
    }
    if spec.description.trim().is_empty() {
        return Err(fail("no description", "say in one sentence what it does"));
    }
    let (reads, writes) = (spec.sync_modes.len(), spec.write_modes.len());
    let (own, other, word) = match kind {
        Kind::Source => (reads, writes, "sync_modes"),
        Kind::Destination => (writes, reads, "write_modes"),
        Kind::Transform if reads + writes > 0 => {
            return Err(fail(
                format!("{reads} sync_modes and {writes} write_modes"),
                "leave both lists empty: a transform neither reads nor writes",
            ));
        }
        Kind::Transform => return Ok(format!("{} {}", spec.name, spec.version)),
    };
    if own == 0 || other > 0 {
        return Err(fail(
            format!("{own} {word} and {other} modes of the other side"),
            format!("list what it knows in {word}, and nothing for the other side"),
        ));
    }
    Ok(format!("{} {}", spec.name, spec.version))
}

/// `1.2.3`, with `-…` and `+…` behind it.
fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').unwrap_or((text, "0"));
    let (core, pre) = text.split_once('-').unwrap_or((text, "0"));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.split('.').all(is_word)
        && build.split('.').all(is_word)
}

/// The config schema as JSON, and how many keys it has.
pub(crate) fn config_schema(text: &str) -> Result<(Value, String), crate::verdict::Verdict> {
    const ACTION: &str =
        "give a JSON Schema (draft 2020-12) of an object with additionalProperties: false";
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| fail(format!("the config schema is not JSON: {error}"), ACTION))?;
    if schema["type"] != "object" {
        return Err(fail(format!("its type is {}", schema["type"]), ACTION));
    }
    if schema["additionalProperties"] != Value::Bool(false) {
        return Err(fail("additionalProperties is not false", ACTION));
    }
    if let Some(wrong) = wrong_in(&schema, &schema, "config", 0) {
        return Err(fail(wrong, ACTION));
    }
    let keys = schema["properties"].as_object().map_or(0, Map::len);
    Ok((schema, rapidbyte_wire::counted(keys, "key")))
}

/// The first fault in a schema, with its place.
fn wrong_in(root: &Value, schema: &Value, at: &str, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH || schema.is_boolean() {
        return None;
    }
    let Some(object) = schema.as_object() else {
        return Some(format!("{at} is not a schema: {schema}"));
    };
    if let Some(reference) = object.get("$ref") {
        let target = reference.as_str().and_then(|text| text.strip_prefix('#'));
        if target.and_then(|pointer| root.pointer(pointer)).is_none() {
            return Some(format!("{at}: $ref {reference} leads nowhere"));
        }
    }
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let types = match object.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().all(is_type),
        Some(one) => is_type(one),
    };
    if !types {
        return Some(format!("{at}: type {} is none", object["type"]));
    }
    let none = Map::new();
    let properties = match object.get("properties") {
        None => &none,
        Some(Value::Object(properties)) => properties,
        Some(_) => return Some(format!("{at}: properties is not an object")),
    };
    let required = match object.get("required") {
        None => &[][..],
        Some(Value::Array(required)) => required,
        Some(_) => return Some(format!("{at}: required is not a list")),
    };
    let unknown = required
        .iter()
        .find(|key| !key.as_str().is_some_and(|key| properties.contains_key(key)));
    if let Some(key) = unknown {
        return Some(format!(
            "{at}: required names {key}, which is not a property"
        ));
    }
    let mut below = properties.iter();
    let inner =
        below.find_map(|(key, value)| wrong_in(root, value, &format!("{at}.{key}"), depth + 1));
    inner.or_else(|| {
        let items = object.get("items")?;
        wrong_in(root, items, &format!("{at}[]"), depth + 1)
    })
}

/// The marks that can grant each import that reaches out.
const GRANTED_BY: &[(&str, &[&str])] = &[
    ("connection", &["host", "url"]),
    ("files", &["read", "write"]),
    ("http", &["host", "url"]),
];
/// The contract's world `imports`. Tools of scripting languages import all of it, used or not.
const WORLD: &[&str] = &["connection", "files", "log", "phase"];

/// Compares what the component imports with what its settings can grant.
pub(crate) fn imports(schema: &Value, imports: &[String], kind: Kind) -> Judged {
    let marks = marks(schema);
    let is_granted = |import: &str| {
        let by = GRANTED_BY.iter().find(|(name, _)| *name == import);
        by.is_none_or(|(_, by)| by.iter().any(|mark| marks.contains(mark)))
    };
    let mut beyond: Vec<&str> = imports.iter().map(String::as_str).collect();
    beyond.retain(|import| !is_granted(import));
    let has_all = WORLD.iter().all(|name| imports.iter().any(|i| i == name));
    if has_all && !beyond.is_empty() && beyond.iter().all(|import| WORLD.contains(import)) {
        return Err(skip(
            "it imports the contract's whole world, as tools of scripting languages do whatever is \
             used: see reach",
        ));
    }
    match (&beyond[..], imports) {
        ([], []) => Ok("nothing of the host".into()),
        ([], _) => Ok(imports.join(", ")),
        (beyond, _) => Err(fail(
            format!(
                "no key of its settings can grant {}, which it imports",
                beyond.join(", ")
            ),
            match kind {
                Kind::Transform => "build it without that import: a transform is granted nothing",
                _ => {
                    "mark the key that names what is reached with x-grant, or build it without that import"
                }
            },
        )),
    }
}

/// Every mark in a schema, wherever it stands.
fn marks(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(object) => {
            let own = object.get("x-grant").and_then(Value::as_str);
            own.into_iter()
                .chain(object.values().flat_map(marks))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(marks).collect(),
        _ => Vec::new(),
    }
}

/// Checks the marks that grant something, and counts them. A transform can be granted nothing.
pub(crate) fn grant_marks(schema: &Value, kind: Kind) -> Judged {
    let (mut marks, mut left) = (0, MAX_KEYS);
    match wrong_mark(schema, schema, "config", 0, (&mut marks, &mut left)) {
        Some((seen, action)) => Err(fail(seen, action)),
        None if marks == 0 => Ok("no key grants anything".into()),
        None if kind == Kind::Transform => Err(fail(
            format!("{marks} of its keys have x-grant"),
            "remove x-grant: a transform is granted nothing",
        )),
        None => Ok(format!("{marks} marks")),
    }
}

fn wrong_mark(
    root: &Value,
    schema: &Value,
    at: &str,
    depth: usize,
    (marks, left): (&mut usize, &mut usize),
) -> Option<(String, String)> {
    let properties = schema["properties"]
        .as_object()
        .filter(|_| depth <= MAX_DEPTH)?;
    let granted = |wanted: &[&str]| {
        let mut marks = properties.values().filter_map(|p| p["x-grant"].as_str());
        marks.any(|mark| wanted.contains(&mark))
    };
    for (key, property) in properties {
        let at = format!("{at}.{key}");
        if *left == 0 {
            let text = format!("{at}: more than {MAX_KEYS} keys, references followed");
            return Some((text, "let no key refer to a schema that holds it".into()));
        }
        *left -= 1;
        let wrong = wrong_keys(property, &at).or_else(|| {
            let mark = property.get("x-grant")?;
            *marks += 1;
            let known = mark.as_str().filter(|mark| GRANTS.contains(mark));
            let Some(mark) = known else {
                return Some((
                    format!("{at}: x-grant {mark} is not known"),
                    format!("known are {}", GRANTS.join(", ")),
                ));
            };
            let needs: &[&str] = match mark {
                "folders" => &["write"],
                "host" => &["port"],
                "port" => &["host"],
                _ if mark.starts_with("tls-") => &["host", "url"],
                _ => return None,
            };
            let text = || format!("{at}: x-grant {mark} stands alone");
            let hint = || format!("mark a key beside it with {}", needs.join(" or "));
            (!granted(needs)).then(|| (text(), hint()))
        });
        if wrong.is_some() {
            return wrong;
        }
        let reference = property["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
        let target = reference.and_then(|pointer| root.pointer(pointer));
        let counts = (&mut *marks, &mut *left);
        let inner = wrong_mark(root, target.unwrap_or(property), &at, depth + 1, counts);
        if inner.is_some() {
            return inner;
        }
    }
    None
}

/// Marks of other names or values than the host knows.
fn wrong_keys(property: &Value, at: &str) -> Option<(String, String)> {
    let keys = property.as_object()?;
    let mut ours = keys.keys().filter(|key| key.starts_with("x-"));
    let misspelt = ours.find_map(|key| {
        let near = nearest(key, MARKS.iter().copied())?;
        (near != key).then(|| (format!("{at}: {key}"), format!("write {near}")))
    });
    if misspelt.is_some() {
        return misspelt;
    }
    if keys.get("x-secret").is_some_and(|mark| !mark.is_boolean()) {
        let text = format!("{at}: x-secret is {}", keys["x-secret"]);
        return Some((text, "write true or false, without quotes".into()));
    }
    if let Some(mark) = keys.get("x-keys").filter(|mark| *mark != "streams") {
        let text = format!("{at}: x-keys {mark} is not known");
        return Some((text, "known is streams".into()));
    }
    if let Some(mark) = keys.get("x-columns") {
        let names = mark.as_array().filter(|names| !names.is_empty());
        let is_well = names.is_some_and(|names| names.iter().all(Value::is_string));
        if !is_well || keys.get("type") != Some(&"boolean".into()) {
            let text = format!("{at}: x-columns {mark} are not columns that a boolean adds");
            return Some((
                text,
                "write a list of names, on a key that is true or false".into(),
            ));
        }
    }
    let beside = keys.get("x-beside")?;
    let grants = keys.get("x-grant").and_then(Value::as_str);
    let is_name = beside.as_str().is_some_and(|name| name.starts_with('_'));
    let is_well = is_name && matches!(grants, Some("read" | "write"));
    (!is_well).then(|| {
        (
            format!("{at}: x-beside {beside} is not a folder beside a path"),
            "write a name that begins with _, on a key with x-grant read or write".into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;
    use rapidbyte_runtime::{SyncMode, WriteMode};
    use serde_json::json;

    #[test]
    fn versions() {
        for good in ["0.1.0", "1.2.3-rc.1", "1.2.3+build.5", "10.20.30-a-b.c+d"] {
            assert!(is_semver(good), "{good}");
        }
        for bad in [
            "", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-", "1.2.x", "1.2.3-é",
        ] {
            assert!(!is_semver(bad), "{bad}");
        }
    }

    #[test]
    fn schemas_that_are_none_are_refused_with_their_place() {
        let object = |more: Value| {
            let mut schema = json!({ "type": "object", "additionalProperties": false });
            let members = more.as_object().cloned().unwrap_or_default();
            schema.as_object_mut().unwrap().extend(members);
            config_schema(&schema.to_string())
        };
        assert!(object(json!({})).is_ok());
        let good = json!({
            "properties": {
                "a": { "type": ["string", "null"] }, "b": { "$ref": "#/$defs/b" }, "c": true,
                "d": { "type": "array", "items": { "type": "integer" } },
            },
            "required": ["a"], "$defs": { "b": { "type": "object" } },
        });
        assert_eq!(object(good).unwrap().1, "4 keys");
        for (bad, place) in [
            (
                json!({ "properties": { "a": { "type": "text" } } }),
                "config.a",
            ),
            (json!({ "properties": { "a": 1 } }), "config.a"),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/no" } } }),
                "config.a",
            ),
            (
                json!({ "properties": { "a": { "items": { "type": 3 } } } }),
                "config.a[]",
            ),
            (json!({ "required": ["a"] }), "config: required"),
            (
                json!({ "additionalProperties": true }),
                "additionalProperties",
            ),
            (json!({ "type": "array" }), "its type"),
        ] {
            let verdict = object(bad.clone()).unwrap_err();
            let text = format!("{verdict:?}");
            assert!(text.contains(place), "{bad}: {text}");
        }
        assert!(config_schema("no JSON").is_err());
    }

    #[test]
    fn a_source_has_modes_to_read_and_a_transform_has_none() {
        let spec = |sync_modes: &[SyncMode], write_modes: &[WriteMode]| Spec {
            sync_modes: sync_modes.to_vec(),
            write_modes: write_modes.to_vec(),
            ..Spec::plain("a", "1.0.0", "Does it", "{}")
        };
        let (reads, writes) = (&[SyncMode::FullRefresh], &[WriteMode::Append]);
        for (sync, write, right) in [
            (&reads[..], &[][..], Some(Kind::Source)),
            (&[], &writes[..], Some(Kind::Destination)),
            (&[], &[], Some(Kind::Transform)),
            (&reads[..], &writes[..], None),
        ] {
            for kind in Kind::ALL {
                let judged = describe(&spec(sync, write), kind);
                assert_eq!(judged.is_ok(), right == Some(kind), "{kind:?}: {judged:?}");
            }
        }
    }

    #[test]
    fn imports_are_those_that_settings_can_grant() {
        let schema = json!({
            "properties": { "server": { "$ref": "#/$defs/server" } },
            "$defs": { "server": { "properties": { "base": { "x-grant": "url" } } } },
        });
        let judged = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            imports(&schema, &names, Kind::Source)
        };
        assert_eq!(judged(&[]).unwrap(), "nothing of the host");
        let good = ["connection", "http", "log", "phase"];
        assert_eq!(judged(&good).unwrap(), good.join(", "));
        let text = format!("{:?}", judged(&["files", "http"]).unwrap_err());
        assert!(text.contains("grant files,"), "{text}");
        // The author is not at fault for imports that a tool adds; HTTP is never one of them.
        let all = judged(WORLD).unwrap_err();
        assert!(matches!(all, Verdict::Skip { .. }), "{all:?}");
        let all: Vec<String> = [WORLD, &["http"]]
            .concat()
            .into_iter()
            .map(Into::into)
            .collect();
        let text = format!("{:?}", imports(&json!({}), &all, Kind::Source).unwrap_err());
        assert!(text.starts_with("Fail"), "{text}");
    }

    #[test]
    fn marks_are_known_and_in_company() {
        let of = |kind, properties: &Value| grant_marks(&json!({ "properties": properties }), kind);
        let judged = |properties: Value| of(Kind::Source, &properties);
        for good in [
            json!({}),
            json!({ "path": { "x-grant": "read", "x-beside": "_m" } }),
            json!({ "host": { "x-grant": "host" }, "port": { "x-grant": "port" },
                    "mode": { "x-grant": "tls-mode" }, "password": { "x-secret": true } }),
            json!({ "path": { "x-grant": "write" }, "by": { "x-grant": "folders" } }),
            json!({ "other": { "x-order": 3 } }),
            json!({ "by": { "x-keys": "streams" } }),
            json!({ "all": { "type": "boolean", "x-columns": ["_ts"] } }),
        ] {
            assert!(judged(good.clone()).is_ok(), "{good}");
        }
        for bad in [
            json!({ "path": { "x-grant": "reed" } }),
            json!({ "path": { "x-grants": "read" } }),
            json!({ "path": { "x-grant": 1 } }),
            json!({ "host": { "x-grant": "host" } }),
            json!({ "by": { "x-grant": "folders" } }),
            json!({ "mode": { "x-grant": "tls-mode" } }),
            json!({ "path": { "x-beside": "_m" } }),
            json!({ "by": { "x-keys": "columns" } }),
            json!({ "all": { "type": "string", "x-columns": ["_ts"] } }),
            json!({ "all": { "type": "boolean", "x-columns": "_ts" } }),
            json!({ "path": { "x-grant": "read", "x-beside": ".ssh" } }),
            json!({ "password": { "x-secret": "true" } }),
            json!({ "a": { "$ref": "#" }, "b": { "$ref": "#" } }),
            json!({ "server": { "properties": { "port": { "x-grant": "port" } } } }),
        ] {
            assert!(judged(bad.clone()).is_err(), "{bad}");
        }
        // A transform may hide a value and reach nothing.
        assert!(of(Kind::Transform, &json!({ "salt": { "x-secret": true } })).is_ok());
        assert!(of(Kind::Transform, &json!({ "path": { "x-grant": "read" } })).is_err());
    }
}
