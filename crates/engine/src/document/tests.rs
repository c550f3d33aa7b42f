mod declare;
mod files;
mod interpolation;
mod keys;
mod resources;
mod schema;
mod yaml;

use serde::Serialize;

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

/// The least document with the given lines in place of those of the same first word.
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
