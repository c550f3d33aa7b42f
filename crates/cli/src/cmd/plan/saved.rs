//! A plan that was printed before: `run --plan FILE` runs only what somebody has looked at.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rapidbyte::{Class, Failure};
use serde_json::{Map, Value};

/// A larger file is not read.
const MAX_BYTES: u64 = 256 << 20;
/// Differences that the message shows.
const SHOWN: usize = 8;
/// Characters of a value that the message shows.
const MAX_CHARS: usize = 80;
/// What changes without a change of the plan: tables grow, a run resumes where the last commit was, and notes count the
/// rows of a sample. `fits` counts columns, which are compared themselves.
const MOVING: [&str; 5] = [
    "estimated_rows",
    "estimated_bytes",
    "goes_on_from",
    "notes",
    "fits",
];

/// The output of `plan --output json`.
pub struct Saved {
    file: String,
    plan: Value,
}

impl Saved {
    /// Reads a plan without refused streams.
    ///
    /// # Errors
    /// `plan_unreadable`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let unreadable = |why: String| {
            let text = format!("cannot read the plan {file}: {why}");
            Failure::new(Class::Config, "plan_unreadable", text).hint(
                "save a plan with `rapidbyte plan PIPELINE --output json > FILE`, which ends with exit code 0",
            )
        };
        let mut text = String::new();
        let opened = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text);
        read.map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(unreadable(format!("it is larger than {MAX_BYTES} bytes")));
        }
        let plan: Value = serde_json::from_str(&text)
            .map_err(|error| unreadable(format!("it is not JSON: {error}")))?;
        if !plan["streams"].is_array() || !plan["fits"].is_object() {
            return Err(unreadable("it is JSON of something else".into()));
        }
        if plan["status"] != "ok" {
            return Err(unreadable("a plan that failed cannot be run".into()));
        }
        Ok(Self { file, plan })
    }

    /// Refuses a plan of now that differs, except in [what moves](MOVING).
    ///
    /// # Errors
    /// `plan_changed`, with the differences.
    pub fn ensure_same(&self, now: &Value) -> Result<(), Failure> {
        let mut found = Vec::new();
        compare(&self.plan, now, "", &mut found);
        if found.is_empty() {
            return Ok(());
        }
        let more = match found.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("\nand {more} more"),
        };
        found.truncate(SHOWN);
        let text = format!(
            "the plan differs from {}\n{}{more}",
            self.file,
            found.join("\n")
        );
        Err(Failure::new(Class::Contract, "plan_changed", text)
            .hint("look at the plan of now, and save it: `rapidbyte plan PIPELINE --output json`"))
    }
}

/// Adds a line for each value that differs.
fn compare(saved: &Value, now: &Value, path: &str, found: &mut Vec<String>) {
    match (saved, now) {
        (Value::Object(saved), Value::Object(now)) => compare_members(saved, now, path, found),
        (Value::Array(before), Value::Array(after)) if before != after => {
            let names = |members: &[Value]| -> Vec<Value> {
                members
                    .iter()
                    .map(|member| member["name"].clone())
                    .collect()
            };
            match (named(before), named(after)) {
                (Some(by_name), Some(now_by_name)) => {
                    let known = found.len();
                    compare_members(&by_name, &now_by_name, path, found);
                    if found.len() == known && names(before) != names(after) {
                        found.push(format!("{path}: in another order"));
                    }
                }
                _ => found.push(differs(path, Some(saved), Some(now))),
            }
        }
        _ if saved != now => found.push(differs(path, Some(saved), Some(now))),
        _ => {}
    }
}

fn compare_members(
    saved: &Map<String, Value>,
    now: &Map<String, Value>,
    path: &str,
    found: &mut Vec<String>,
) {
    let added = now.keys().filter(|key| !saved.contains_key(*key));
    for key in saved
        .keys()
        .chain(added)
        .filter(|key| !MOVING.contains(&key.as_str()))
    {
        let below = match path {
            "" => key.clone(),
            path => format!("{path}.{key}"),
        };
        match (saved.get(key), now.get(key)) {
            (Some(saved), Some(now)) => compare(saved, now, &below, found),
            (saved, now) => found.push(differs(&below, saved, now)),
        }
    }
}

/// Streams or columns by their names. `None` if the members have no names.
fn named(members: &[Value]) -> Option<Map<String, Value>> {
    let named = |member: &Value| Some((member["name"].as_str()?.to_owned(), member.clone()));
    members.iter().map(named).collect()
}

fn differs(path: &str, saved: Option<&Value>, now: Option<&Value>) -> String {
    match (saved, now) {
        (None, _) => format!("{path}: new"),
        (_, None) => format!("{path}: gone"),
        (Some(saved), Some(now)) => format!("{path}: {} instead of {}", shown(now), shown(saved)),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
