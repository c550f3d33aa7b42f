//! `rapidbyte reference`: docs/reference.md, from what the program itself knows.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};
use rapidbyte_engine::Failure;
use rapidbyte_engine::document::schema::json_schema;
use serde_json::Value;

use crate::args::Arguments;
use crate::output::Output;
use crate::setup;

const HEAD: &str = "\
# Reference

Every verb, flag and key. This page is what `rapidbyte reference` prints; a test holds it to that.
The error codes have a page of their own, [errors.md](errors.md), and `rapidbyte explain CODE`.
";

/// Prints the page.
pub fn run(output: &Output) -> Result<(), Failure> {
    let host = setup::host(output, None)?;
    let connectors = super::schema::bundled(&host)?;
    let mut text = HEAD.to_owned();
    text += "\n## Commands\n";
    let mut command = Arguments::command();
    command.build();
    text += "\nFlags that every verb takes:\n\n";
    let common: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .collect();
    text += &flags(&common);
    for verb in command.get_subcommands() {
        verbs(verb, "rapidbyte", &mut text);
    }
    text += "\n## Keys of a pipeline\n\n| key | value | what it says |\n| --- | --- | --- |\n";
    let schema = json_schema(&connectors);
    keys(&schema, &schema, "", 0, &mut text);
    text += "\n## Settings of the bundled connectors\n";
    for connector in &connectors {
        let side = if connector.is_source {
            "source"
        } else {
            "destination"
        };
        let _ = write!(
            text,
            "\n### `{}`\n\n{}. Stands under `{side}.config`.\n\n| key | value | what it says |\n| --- | --- | --- |\n",
            connector.name, connector.description
        );
        keys(&connector.config, &connector.config, "", 0, &mut text);
    }
    output.document(&serde_json::json!({ "status": "ok", "markdown": text }));
    output.text(text.trim_end());
    Ok(())
}

fn verbs(command: &Command, before: &str, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{before} {}", command.get_name());
    let mut inner = command.get_subcommands().peekable();
    if inner.peek().is_some() {
        inner.for_each(|verb| verbs(verb, &name, text));
        return;
    }
    let about = command.get_about().map(ToString::to_string);
    let _ = write!(text, "\n### `{name}`\n\n{}\n", about.unwrap_or_default());
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set())
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    if !own.is_empty() {
        text.push('\n');
        *text += &flags(&own);
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let lines = examples.lines().filter_map(|line| line.strip_prefix("  "));
        let lines: Vec<String> = lines
            .filter(|line| line.starts_with("rapidbyte"))
            .map(|line| format!("$ {line}\n"))
            .collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n```console\n{}```\n", lines.concat());
        }
    }
}

fn flags(arguments: &[&Arg]) -> String {
    let mut text = "| argument | what it says |\n| --- | --- |\n".to_owned();
    for argument in arguments {
        let mut name = String::new();
        if let Some(short) = argument.get_short() {
            let _ = write!(name, "-{short}, ");
        }
        if let Some(long) = argument.get_long() {
            let _ = write!(name, "--{long}");
        }
        if argument.get_action().takes_values() {
            let values = argument.get_value_names().unwrap_or_default();
            let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
            let space = if name.is_empty() { "" } else { " " };
            let _ = write!(name, "{space}{}", values.join(" "));
        }
        let possible: Vec<String> = argument
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        let mut help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        if argument.get_action().takes_values() && !possible.is_empty() {
            let _ = write!(help, ". One of {}", possible.join(", "));
        }
        let _ = writeln!(text, "| `{name}` | {} |", cell(&help));
    }
    text
}

/// Text of one line of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// Deeper than any pipeline goes.
const MAX_DEPTH: usize = 8;

/// One line for each property, those of objects below it.
fn keys(root: &Value, schema: &Value, before: &str, depth: usize, text: &mut String) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = match before {
            "" => key.clone(),
            before => format!("{before}.{key}"),
        };
        let value = value(root, property);
        let needed = if required.contains(&key.as_str()) {
            "; required"
        } else {
            ""
        };
        let grant = property["x-grant"].as_str().unwrap_or_default();
        let grant = match grant.strip_prefix("tls-") {
            _ if grant.is_empty() => String::new(),
            Some(_) => " Read by the host, for TLS.".to_owned(),
            None => format!(" Grants {grant}."),
        };
        let about = property["description"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{path}` | {value}{needed} | {}{grant} |",
            cell(about)
        );
        if depth < MAX_DEPTH {
            for inner in objects(root, property) {
                let path = match property["items"].is_object() {
                    true => format!("{path}[]"),
                    false => path.clone(),
                };
                keys(root, inner, &path, depth + 1, text);
            }
        }
    }
}

/// What a reference points to, or the schema itself.
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

/// The schemas of objects with known keys that a value may be, or be a list of.
fn objects<'a>(root: &'a Value, property: &'a Value) -> Vec<&'a Value> {
    let schema = resolve(root, property);
    let schema = if schema["items"].is_object() {
        resolve(root, &schema["items"])
    } else {
        schema
    };
    std::iter::once(schema)
        .chain(choices(schema).map(|choice| resolve(root, choice)))
        .filter(|schema| schema["properties"].is_object())
        .collect()
}

/// What may be written, in a few words.
fn value(root: &Value, property: &Value) -> String {
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
    let mut words: Vec<String> = Vec::new();
    match &schema["type"] {
        // A choice says more than the type that all of its parts have.
        Value::String(_) if choices(schema).next().is_some() => {}
        Value::String(name) if name == "array" => {
            let item = value(root, &schema["items"]);
            words.push(format!("list of {item}"));
        }
        Value::String(name) => words.push(named(name).into()),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            words.extend(
                names
                    .filter(|name| *name != "null")
                    .map(|n| named(n).into()),
            );
        }
        _ => {}
    }
    for choice in choices(schema) {
        // Any key may come from a variable: that is said once, in pipeline.md.
        let pattern = resolve(root, choice)["pattern"]
            .as_str()
            .unwrap_or_default();
        let word = value(root, choice);
        if word != "null" && !pattern.starts_with("\\$") && !words.contains(&word) {
            words.push(word);
        }
    }
    match words.is_empty() {
        true => "any".into(),
        false => words.join(" or "),
    }
}

fn named(name: &str) -> &str {
    match name {
        "string" => "text",
        "integer" => "whole number",
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
    fn values_are_told_in_words() {
        let root = json!({"$defs": {"Name": {"oneOf": [{"const": "a"}, {"const": "b"}]}}});
        let cases = [
            (json!({"type": ["string", "null"]}), "text"),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]}),
                "`a` or `b`",
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                "list of whole number",
            ),
            (json!({"enum": ["x", "y"]}), "`x`, `y`"),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "\\$\\{.+\\}"}]}),
                "whole number",
            ),
        ];
        for (schema, words) in cases {
            assert_eq!(value(&root, &schema), words, "{schema}");
        }
        assert_eq!(cell("a\n  | b"), "a \\| b");
    }
}
