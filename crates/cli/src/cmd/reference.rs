//! `rapidbyte reference`: docs/reference.md, from what the program itself knows.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};
use rapidbyte::{Failure, Kind, pipeline_schema};
use serde_json::Value;

use crate::args::Arguments;
use crate::keys::Grant;
use crate::output::Output;
use crate::setup::{self, Session};

const HEAD: &str = "\
# Reference

All verbs, flags and keys. `rapidbyte reference` prints this page. For error codes see [errors.md](errors.md) or
`rapidbyte explain CODE`.
";

/// Prints the page.
pub fn run(output: &Output) -> Result<(), Failure> {
    let Session { engine, control } = setup::session(output, None)?;
    let connectors = engine.connector_settings(&control)?;
    let mut text = HEAD.to_owned();
    text += "\n## Commands\n";
    let mut command = Arguments::command();
    command.build();
    text += "\nFlags of every verb:\n\n";
    let common: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .collect();
    text += &flags(&common);
    for verb in command.get_subcommands() {
        verbs(verb, "rapidbyte", &mut text);
    }
    text += "\n## Keys of a pipeline\n\n| key | value | meaning |\n| --- | --- | --- |\n";
    let schema = pipeline_schema(&connectors);
    keys(&schema, &mut text);
    text += "\n## Settings of the bundled connectors\n";
    for connector in &connectors {
        let place = match connector.kind {
            Kind::Source => "source.config",
            Kind::Transform => "source.streams[].transforms[].config",
            Kind::Destination => "destination.config",
        };
        let _ = write!(
            text,
            "\n### `{}`\n\n{}. Belongs under `{place}`.\n\n| key | value | meaning |\n| \
                 --- | --- | --- |\n",
            connector.name, connector.description
        );
        keys(&connector.config, &mut text);
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
        let mut goes_on = false;
        let lines: Vec<String> = lines
            .filter_map(|line| {
                let shown = match line.starts_with("rapidbyte") {
                    true => Some(format!("$ {line}\n")),
                    false => goes_on.then(|| format!("{line}\n")),
                };
                goes_on = shown.is_some() && line.ends_with('\\');
                shown
            })
            .collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n```console\n{}```\n", lines.concat());
        }
    }
}

fn flags(arguments: &[&Arg]) -> String {
    let mut text = "| argument | meaning |\n| --- | --- |\n".to_owned();
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

/// One line for each key.
fn keys(schema: &Value, text: &mut String) {
    for key in crate::keys::of(schema) {
        let needed = if key.required { "; required" } else { "" };
        let grant = match key.grant {
            None => String::new(),
            Some(Grant::Tls) => " Read by the host, for TLS.".to_owned(),
            Some(Grant::Of(grant)) => format!(" Grants {grant}."),
        };
        let _ = writeln!(
            text,
            "| `{}` | {}{needed} | {}{grant} |",
            key.path,
            key.value,
            cell(key.about)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_on_its_line() {
        assert_eq!(cell("a\n  | b"), "a \\| b");
    }
}
