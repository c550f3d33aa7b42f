//! Arguments as they are typed.

use std::ffi::OsString;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use rapidbyte_engine::{Class, Failure, Narrowing};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Moves tables between databases and files: fast, with every type intact, in bounded memory.
#[derive(Debug, Parser)]
#[command(
    name = "rapidbyte",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done, 1 the run failed, 2 the pipeline file or an argument is wrong, 3 something \
outside cannot be reached or is not allowed, 4 the data does not keep its schema, 5 another run \
of the pipeline is at work, 129, 130 and 143 interrupted."
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
    #[command(after_help = "\
Examples:
  rapidbyte run pipelines/quickstart.yaml
  rapidbyte run shop.yaml --select public.orders --select 'public.customer*.id'
  rapidbyte run shop.yaml --exclude public.customers.email --limit 1000
  rapidbyte run shop.yaml --report report.html
  rapidbyte run shop.yaml --full-refresh --select public.orders
  rapidbyte run shop.yaml --dry-run --output json")]
    Run(Run),
    /// List the runs of a pipeline, one line for each attempt.
    #[command(after_help = "\
Examples:
  rapidbyte runs shop.yaml
  rapidbyte runs shop.yaml --page reports/index.html
  rapidbyte runs shop.yaml --last 100 --output json")]
    Runs(Runs),
    /// Look at the places where incremental streams go on, and change them.
    #[command(
        subcommand,
        after_help = "\
Examples:
  rapidbyte state list shop.yaml
  rapidbyte state get shop.yaml public.orders
  rapidbyte state clear shop.yaml public.orders"
    )]
    State(StateVerb),
    /// Look at everything a run would need, and change nothing.
    #[command(after_help = "\
Examples:
  rapidbyte check pipelines/quickstart.yaml
  rapidbyte check shop.yaml --env-file production.env --output json")]
    Check(Pipeline),
    /// List the streams and columns that the pipeline's source has.
    #[command(after_help = "\
Examples:
  rapidbyte discover pipelines/quickstart.yaml
  rapidbyte discover shop.yaml --output json")]
    Discover(Pipeline),
    /// Show what a run would do: streams, columns, types on both sides, statements, grants.
    #[command(after_help = "\
Examples:
  rapidbyte plan pipelines/quickstart.yaml
  rapidbyte plan shop.yaml --select 'public.*' --exclude '*.email'")]
    Plan(Plan),
    /// Write a commented pipeline to begin with; asks for what the flags do not say.
    #[command(after_help = "\
Examples:
  rapidbyte init
  rapidbyte init --source postgres --destination postgres --name shop
  rapidbyte init --source file --destination postgres --dir pipelines --force")]
    Init(Init),
    /// Look at the installation: cache, connectors, disk, and what a pipeline needs.
    #[command(after_help = "\
Examples:
  rapidbyte doctor
  rapidbyte doctor shop.yaml --output json")]
    Doctor(Doctor),
    /// Write `rapidbyte.lock`: which connector files a pipeline runs, and what they ask for.
    #[command(after_help = "\
Where the file is there, a run stops when a connector's file changes or asks for more. Connectors
inside the program are not in it.

Examples:
  rapidbyte lock shop.yaml
  rapidbyte lock shop.yaml --update")]
    Lock(Lock),
    /// Explain an error code, or list all.
    #[command(after_help = "\
Examples:
  rapidbyte explain
  rapidbyte explain unknown_key
  rapidbyte explain pg_28P01 --output json")]
    Explain(Explain),
    /// Print the JSON Schema of a pipeline file, for editors and other programs.
    #[command(after_help = "\
A first line in a pipeline lets editors complete and check it:
  # yaml-language-server: $schema=pipeline.schema.json

Examples:
  rapidbyte schema > pipeline.schema.json")]
    Schema,
    /// Print the reference of verbs, flags and keys as Markdown.
    #[command(after_help = "\
Examples:
  rapidbyte reference > docs/reference.md")]
    Reference,
    /// Print a script that completes commands in a shell.
    #[command(after_help = "\
Examples:
  rapidbyte completions bash > ~/.local/share/bash-completion/completions/rapidbyte
  rapidbyte completions zsh > ~/.zfunc/_rapidbyte
  rapidbyte completions fish > ~/.config/fish/completions/rapidbyte.fish
  rapidbyte completions powershell > rapidbyte.ps1")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// List, inspect, test or compile connectors, or make one of your own.
    #[command(
        subcommand,
        after_help = "\
Examples:
  rapidbyte connector list
  rapidbyte connector inspect source-file
  rapidbyte connector test source-generate --config '{ rows: 1000, preset: narrow }'
  rapidbyte connector compile
  rapidbyte connector new source-shop --kind source --lang rust
  rapidbyte connector build source-shop"
    )]
    Connector(ConnectorVerb),
    /// Print the version.
    #[command(after_help = "\
Examples:
  rapidbyte version --output json")]
    Version,
}

#[derive(Debug, Args)]
pub struct Pipeline {
    /// The pipeline file.
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub pipeline: Pipeline,
    #[command(flatten)]
    pub narrow: Narrow,
    /// Only show what would be done, as `plan` does.
    #[arg(long)]
    pub dry_run: bool,
    /// Begin incremental streams again with their first row; what was appended is replaced.
    #[arg(long)]
    pub full_refresh: bool,
    /// Stop the run at the first stream that fails, as `on_stream_failure: stop` does.
    #[arg(long)]
    pub fail_fast: bool,
    #[command(flatten)]
    pub history: History,
    /// Write the run as one HTML page: timing, speed and memory over time, types, grants.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "dry_run")]
    pub report: Option<PathBuf>,
}

/// `plan`
#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    pub pipeline: Pipeline,
    #[command(flatten)]
    pub narrow: Narrow,
    /// Show only what both connectors would be granted: neither is opened, and nothing is reached.
    #[arg(long, conflicts_with_all = ["select", "exclude", "limit"])]
    pub grants_only: bool,
}

/// What of a pipeline is moved this time.
#[derive(Debug, Args)]
pub struct Narrow {
    /// Move only this stream, or this column of it; `*` and `?` match several. May be repeated.
    #[arg(short, long, value_name = "STREAM[.COLUMN]")]
    pub select: Vec<String>,
    /// Leave this stream, or this column of it, out. Wins over --select. May be repeated.
    #[arg(long, value_name = "STREAM[.COLUMN]")]
    pub exclude: Vec<String>,
    /// Move at most this many rows of each stream.
    #[arg(long, value_name = "ROWS", value_parser = rows, allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// Let the limited rows replace all that a target has (with write_mode: replace).
    #[arg(long, requires = "limit")]
    pub limit_replaces: bool,
}

/// A number of rows. Errors say what is due instead.
fn rows(text: &str) -> Result<u64, String> {
    let due = "a whole number of rows is due, 1 or more, in digits alone";
    match text.parse::<u64>() {
        Ok(0) => Err(format!("{due}; --dry-run moves none")),
        Ok(rows) => Ok(rows),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("that is above {}", u64::MAX))
        }
        Err(_) => Err(due.into()),
    }
}

impl Narrow {
    /// As the engine takes it.
    pub fn narrowing(&self) -> Narrowing {
        Narrowing {
            select: self.select.clone(),
            exclude: self.exclude.clone(),
            limit: self.limit,
            limit_replaces: self.limit_replaces,
            full_refresh: false,
        }
    }
}

/// Where the history of runs is.
#[derive(Debug, Args)]
pub struct History {
    /// Keep the history of runs in this file instead of `.rapidbyte/state.db` beside the pipeline.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
}

/// `runs`
#[derive(Debug, Args)]
pub struct Runs {
    #[command(flatten)]
    pub pipeline: Pipeline,
    #[command(flatten)]
    pub history: History,
    /// Show at most so many attempts, the newest.
    #[arg(long, value_name = "ATTEMPTS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub last: u32,
    /// Write the attempts as one HTML page too, with links to the pages of `report:`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub page: Option<PathBuf>,
}

/// `state`
#[derive(Debug, Subcommand)]
pub enum StateVerb {
    /// Show how far each stream is, as the destination says.
    #[command(after_help = "Examples:\n  rapidbyte state list shop.yaml --output json")]
    List {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        history: History,
    },
    /// Print the place where a stream goes on, as JSON.
    #[command(
        after_help = "Examples:\n  rapidbyte state get shop.yaml public.orders > cursor.json"
    )]
    Get(OneStream),
    /// Put a stream to another place: JSON as `get` prints it.
    #[command(after_help = "\
Examples:
  rapidbyte state set shop.yaml public.orders '{\"mode\":\"ordered\",\"version\":1,\"fields\":[{\"name\":\"id\",\"type\":\"int8\"}],\"values\":[\"1000\"]}'")]
    Set {
        #[command(flatten)]
        of: OneStream,
        /// The place.
        #[arg(value_name = "CURSOR")]
        cursor: String,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
    /// Change the place where a stream goes on in $VISUAL or $EDITOR.
    #[command(after_help = "Examples:\n  rapidbyte state edit shop.yaml public.orders")]
    Edit {
        #[command(flatten)]
        of: OneStream,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
    /// Let streams go on from another copy of their source: after a restore, an upgrade, or a table that was made
    /// again with the same rows. The next run takes the source and the target that it finds.
    #[command(after_help = "\
Examples:
  rapidbyte state rebind shop.yaml public.orders
  rapidbyte state rebind shop.yaml --all")]
    Rebind {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The stream.
        #[arg(value_name = "STREAM", required_unless_present = "all")]
        stream: Option<String>,
        /// Every stream that the history knows.
        #[arg(long, conflicts_with = "stream")]
        all: bool,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
    /// Put streams to their beginning, and forget a run that did not finish. Rows stay.
    #[command(after_help = "\
Examples:
  rapidbyte state clear shop.yaml public.orders
  rapidbyte state clear shop.yaml --all")]
    Clear {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The stream.
        #[arg(value_name = "STREAM", required_unless_present = "all")]
        stream: Option<String>,
        /// Every stream that the history knows.
        #[arg(long, conflicts_with = "stream")]
        all: bool,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
}

/// For verbs that a run at work does not survive.
#[derive(Debug, Args)]
pub struct Consent {
    /// Do it although a run of the pipeline is at work. That run is fenced.
    #[arg(long)]
    pub force: bool,
}

/// A stream of a pipeline.
#[derive(Debug, Args)]
pub struct OneStream {
    #[command(flatten)]
    pub pipeline: Pipeline,
    /// The stream.
    #[arg(value_name = "STREAM")]
    pub stream: String,
}

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The code, as it stands in `error[…]`. Without it all codes are listed.
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

/// `lock`
#[derive(Debug, Args)]
pub struct Lock {
    #[command(flatten)]
    pub pipeline: Pipeline,
    /// Take what has changed or asks for more.
    #[arg(long)]
    pub update: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// A pipeline file, whose connectors, hosts and files are looked at too.
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

/// `init`
#[derive(Debug, Args)]
pub struct Init {
    /// Where the rows come from.
    #[arg(long, value_enum)]
    pub source: Option<SourceKind>,
    /// Where the rows go to.
    #[arg(long, value_enum)]
    pub destination: Option<DestinationKind>,
    /// The pipeline's name, and the file's without its ending.
    #[arg(long)]
    pub name: Option<String>,
    /// The folder of the files.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Overwrite files that are there.
    #[arg(long)]
    pub force: bool,
}

/// What `init` can begin a pipeline with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    Postgres,
    File,
    Http,
    Generate,
}

/// What `init` can end a pipeline with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DestinationKind {
    Postgres,
    File,
}

/// The shells that `completions` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

#[derive(Debug, Subcommand)]
pub enum ConnectorVerb {
    /// List the bundled connectors.
    #[command(after_help = "Examples:\n  rapidbyte connector list --output json")]
    List,
    /// Show a connector's modes, configuration keys and what it asks for.
    #[command(after_help = "Examples:\n  rapidbyte connector inspect source-file")]
    Inspect {
        /// A bundled name or a path to a .wasm.
        name: String,
    },
    /// Test whether a connector keeps the contract, clause by clause.
    #[command(after_help = "\
A destination is written to: give settings of a place for tests. Its streams are named
conformance_… and stay there. Ends with 1 when a clause fails.

Examples:
  rapidbyte connector test source-generate --config '{ rows: 1000, preset: narrow }'
  rapidbyte connector test my_source.wasm --config-file test.yaml --stream orders
  rapidbyte connector test dest-file --config '{ path: \"out/{stream}.csv\" }' \\
    --peer source-file --peer-config '{ path: \"out/{stream}.csv\" }' --output json")]
    Test(ConnectorTest),
    /// Compile connectors ahead of time into the cache, so that no run has to.
    #[command(after_help = "Examples:\n  rapidbyte connector compile source-file dest-postgres")]
    Compile {
        /// Bundled names or paths; without any, all bundled connectors.
        names: Vec<String>,
    },
    /// Begin a connector of your own: a folder with a project that builds at once.
    #[command(after_help = "\
Examples:
  rapidbyte connector new source-shop --kind source --lang rust
  rapidbyte connector new source-shop --kind source --lang python --http
  rapidbyte connector new dest-shop --kind destination --lang rust --dir connectors")]
    New(NewConnector),
    /// Build such a project into a .wasm in its folder.
    #[command(after_help = "\
Examples:
  rapidbyte connector build
  rapidbyte connector build source-shop --output json")]
    Build {
        /// The folder of the project.
        #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// `connector new`
#[derive(Debug, Args)]
pub struct NewConnector {
    /// The connector's name, and that of its folder: small letters, digits and "-".
    pub name: String,
    /// Whether rows come from it or go to it.
    #[arg(long, value_enum)]
    pub kind: ConnectorKind,
    /// The language to write it in.
    #[arg(long, value_enum)]
    pub lang: Language,
    /// Begin with a source that reads a JSON API; in Python and JavaScript, which else ask for no HTTP.
    #[arg(long)]
    pub http: bool,
    /// Where the folder is made.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// The two ends of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectorKind {
    Source,
    Destination,
}

/// What a connector of one's own can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Rust,
    Python,
    Javascript,
}

/// `connector test`
#[derive(Debug, Args)]
pub struct ConnectorTest {
    /// A bundled name or a path to a .wasm.
    #[arg(value_name = "CONNECTOR", value_hint = ValueHint::FilePath)]
    pub name: String,
    /// Its settings, as they stand under config: (YAML or JSON). Without any, only what needs none
    /// is judged.
    #[arg(long, value_name = "SETTINGS", conflicts_with = "config_file")]
    pub config: Option<String>,
    /// A file with its settings.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config_file: Option<PathBuf>,
    /// Read this stream of a source; without it the first four. May be repeated.
    #[arg(long, value_name = "STREAM")]
    pub stream: Vec<String>,
    /// A source that reads what a destination wrote, so that more can be seen.
    #[arg(long, value_name = "CONNECTOR", requires = "peer_config")]
    pub peer: Option<String>,
    /// The settings of that source. Where it does not find a stream by them, {stream} in them becomes
    /// the stream's name.
    #[arg(long, value_name = "SETTINGS", requires = "peer")]
    pub peer_config: Option<String>,
    /// Its name of the stream, if that is another one than the destination's; with {stream} for that name.
    #[arg(long, value_name = "STREAM", requires = "peer")]
    pub peer_stream: Option<String>,
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
        let failure = Failure::new(Class::Config, "invalid_argument", message).hint(rest.join(" "));
        println!("{:#}", json!({ "status": "error", "error": failure }));
    } else {
        // Nothing can be told where standard error is closed.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
