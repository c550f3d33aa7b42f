mod declare;
mod files;
mod interpolation;
mod keys;
mod resources;
mod schema;
mod yaml;

use serde::Serialize;
use serde_json::json;

use super::declare::keys;
use super::kinds::{names, whole, word};
use super::*;

/// The least that a pipeline file must hold; seven lines.
const LEAST: &str = "\
version: 1
pipeline: orders
source:
  use: source-file
  streams: [orders]
destination:
  use: dest-file
";

const VARIABLES: [(&str, &str); 6] = [
    ("PORT", "5433"),
    ("PASSWORD", "hunter2!"),
    ("SHORT", "abc"),
    ("EMPTY", ""),
    ("SIZE", "enormous"),
    ("ZEROS", "0042"),
];

fn environment() -> Environment<'static> {
    let lookup = |name: &str| {
        let mut all = VARIABLES.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    Environment::from_fn(lookup).without_env_file()
}

fn parse(text: &str) -> Result<Document, DocumentError> {
    Document::parse(text, "p.yaml", Path::new("."), &environment())
}

fn good(text: &str) -> Document {
    match parse(text) {
        Ok(document) => document,
        Err(error) => panic!("{error}\n{text}"),
    }
}

fn fails(text: &str) -> DocumentError {
    match parse(text) {
        Ok(_) => panic!("this should not be read:\n{text}"),
        Err(error) => error,
    }
}

/// The least document, followed by the given lines.
fn with(lines: &str) -> String {
    format!("{LEAST}{lines}")
}

/// The least document with a `config` of the source, which begins in line 9.
fn with_config(lines: &str) -> String {
    format!(
        "version: 1\npipeline: orders\ndestination:\n  use: dest-file\n\
         source:\n  use: source-file\n  streams: [a]\n  config:\n{lines}"
    )
}

fn config(lines: &str) -> Map<String, Value> {
    good(&with_config(lines)).source.config
}

keys! {
    /// For `tests/declare.rs`; the macro's paths begin here.
    #[derive(Debug, PartialEq, Serialize)]
    struct Sample: Default {
        /// How many `rows`
        /// there are.
        ///
        /// This paragraph is not the description.
        #[serde(skip_serializing_if = "is_two")]
        rows as "row_count": u32 = whole(5).or(2),
        /// A word.
        word: WhenRunning = word().or(WhenRunning::Wait),
        /// Names.
        names: Vec<String> = names("names: [a]").or(vec!["x".into()]),
        ;
        own: u8,
    }
}

fn is_two(rows: &u32) -> bool {
    *rows == 2
}

/// A path below the built-in transform leads to the entry of the step.
#[test]
fn steps_of_the_built_in_transform_are_entries_of_the_list() {
    let text = "version: 1
pipeline: t
source:
  use: s
  streams:
    - name: a
      transforms:
        - drop: [x]
        - filter: y > 0
        - use: ./t.wasm
          config: { steps: [1] }
        - trim: [z]
destination: { use: d }
";
    let document = good(text);
    let transforms = &document.source.streams[0].transforms;
    let names: Vec<_> = transforms
        .iter()
        .map(|one| one.connector.as_str())
        .collect();
    assert_eq!(
        names,
        ["transform-columns", "./t.wasm", "transform-columns"]
    );
    assert_eq!(
        Value::Object(transforms[0].config.clone()),
        json!({ "steps": [{ "drop": ["x"] }, { "filter": "y > 0" }] })
    );
    for (path, line, expected) in [
        (
            "transforms[0].config.steps[1].filter",
            9,
            "transforms[1].filter",
        ),
        ("transforms[0].config", 8, "transforms[0]"),
        (
            "transforms[1].config.steps[0]",
            11,
            "transforms[2].config.steps[0]",
        ),
        (
            "transforms[2].config.steps[0].trim[0]",
            12,
            "transforms[3].trim[0]",
        ),
        ("transforms[9].use", 7, "transforms[9].use"),
    ] {
        let path = format!("source.streams[0].{path}");
        assert_eq!(
            document.in_file(&path),
            format!("source.streams[0].{expected}")
        );
        assert_eq!(
            document.locate(&path).map(|at| at.line),
            Some(line),
            "{path}"
        );
    }
}
