//! Arguments as they are typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rapidbyte_engine::{Class, Failure};
use serde_json::json;

/// Moves tables between databases and files: fast, with every type intact, in bounded memory.
#[derive(Debug, Parser)]
#[command(
    name = "rapidbyte",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done, 1 the run failed, 2 the pipeline file or an argument is wrong, 3 something \
outside cannot be reached or is not allowed, 4 the data does not keep its schema, 129, 130 and \
143 interrupted."
)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Args)]
pub struct Common {
    /// How results are printed: text for people, or one JSON document.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// How messages on standard error are printed: text, or one JSON object a line.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
    /// Print errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print what connectors say in detail.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print without colours; the variable NO_COLOR does the same.
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Read variables from this file instead of `.env` beside the pipeline.
    #[arg(long, global = true, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a pipeline.
    #[command(after_help = "Example: rapidbyte run pipelines/quickstart.yaml")]
    Run(Pipeline),
    /// Look at everything a run would need, and change nothing.
    #[command(after_help = "Example: rapidbyte check pipelines/quickstart.yaml")]
    Check(Pipeline),
    /// List the streams and columns that the pipeline's source has.
    #[command(after_help = "Example: rapidbyte discover pipelines/quickstart.yaml --output json")]
    Discover(Pipeline),
    /// Show what a run would do: streams, columns, types on both sides, grants.
    #[command(after_help = "Example: rapidbyte plan pipelines/quickstart.yaml")]
    Plan(Pipeline),
    /// List, inspect or compile connectors.
    #[command(subcommand)]
    Connector(ConnectorVerb),
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
pub struct Pipeline {
    /// The pipeline file.
    #[arg(value_name = "PIPELINE")]
    pub file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum ConnectorVerb {
    /// List the bundled connectors.
    List,
    /// Show a connector's modes, configuration keys and what it asks for.
    #[command(after_help = "Example: rapidbyte connector inspect source-file")]
    Inspect {
        /// A bundled name or a path to a .wasm.
        name: String,
    },
    /// Compile connectors ahead of time into the cache, so that no run has to.
    Compile {
        /// Bundled names or paths; without any, all bundled connectors.
        names: Vec<String>,
    },
}

/// Ends the program when its arguments are wrong, or when they ask for help or the version.
///
/// A program that asked for JSON gets its error as JSON too.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let wants_json = arguments.iter().any(|argument| argument == "--output=json")
        || arguments
            .windows(2)
            .any(|pair| pair[0] == "--output" && pair[1] == "json");
    if error.use_stderr() && wants_json {
        let text = error.to_string();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let rest: Vec<&str> = lines
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        let failure = Failure::new(Class::Config, "bad_argument", message).hint(rest.join(" "));
        println!("{:#}", json!({ "status": "error", "error": failure }));
    } else {
        // Nothing can be told where standard error is closed.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
