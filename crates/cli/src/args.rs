//! Arguments as they are typed.

use std::ffi::OsString;
use std::num::IntErrorKind;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use rapidbyte::{Class, Failure, Kind, Narrowing, Share};
use rapidbyte_authoring::Language;
use serde_json::json;

use crate::cmd::serve::Serve;

/// Copies and syncs tables between databases, files and HTTP APIs, with exact values, in bounded memory.
#[derive(Debug, Parser)]
#[command(
    name = "rapidbyte",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 success; 1 the run failed; 2 the pipeline file or an argument is wrong; 3 something \
outside is unreachable or denied; 4 the data does not match its schema; 5 another run of the \
pipeline is running; 129, 130 and 143 interrupted."
)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Print results in this format: text, or one JSON document.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Print messages on standard error in this format: text, or one JSON object per line.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
    /// Print errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print details, including the messages of connectors.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print without colours, as with the variable NO_COLOR.
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
  rapidbyte run shop.yaml --dry-run --output json
  rapidbyte run shop --server https://rapidbyte.example.com")]
    Run(Run),
    /// List the runs of a pipeline, one line for each attempt.
    #[command(after_help = "\
Examples:
  rapidbyte runs shop.yaml
  rapidbyte runs shop.yaml --page reports/index.html
  rapidbyte runs shop.yaml --last 100 --output json
  rapidbyte runs shop --server https://rapidbyte.example.com")]
    Runs(Runs),
    /// Show and change the cursors of incremental streams.
    #[command(
        subcommand,
        after_help = "\
Examples:
  rapidbyte state list shop.yaml
  rapidbyte state get shop.yaml public.orders
  rapidbyte state clear shop.yaml public.orders"
    )]
    State(StateVerb),
    /// Show the records that failed, and send them through the pipeline again.
    #[command(
        subcommand,
        after_help = "\
Examples:
  rapidbyte rejects list shop.yaml
  rapidbyte rejects show shop.yaml --stream orders --jsonl > rejects.jsonl
  rapidbyte rejects replay shop.yaml --stream orders --from rejects.jsonl"
    )]
    Rejects(RejectsVerb),
    /// Take rows over HTTP, and run the pipelines of a folder.
    #[command(after_help = "\
Examples:
  rapidbyte serve pipelines
  rapidbyte serve pipelines --listen 127.0.0.1:9000 --data /var/lib/rapidbyte
  rapidbyte serve token add --pipelines pipelines --scope ingest:orders")]
    Serve(Serve),
    /// Check everything that a run needs, and change nothing.
    #[command(after_help = "\
Examples:
  rapidbyte check pipelines/quickstart.yaml
  rapidbyte check shop.yaml --env-file production.env --output json")]
    Check(Pipeline),
    /// List the streams and columns of the pipeline's source.
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
    /// Compare the rows of targets with the rows of their sources; with --repair, move rows that differ again.
    #[command(after_help = "\
The exit code is 0 if all rows are equal, and 1 if rows differ.

Examples:
  rapidbyte verify shop.yaml
  rapidbyte verify shop.yaml --select public.orders
  rapidbyte verify shop.yaml --select public.orders --repair
  rapidbyte verify shop.yaml --receipt receipts/shop.json
  rapidbyte verify shop.yaml --sample 5 --output json")]
    Verify(Verify),
    /// Create a commented pipeline file; ask for each setting without a flag.
    #[command(after_help = "\
Examples:
  rapidbyte init
  rapidbyte init --source postgres --destination postgres --name shop
  rapidbyte init --source file --destination postgres --dir pipelines --force")]
    Init(Init),
    /// Check the installation: cache, connectors, disk, and the needs of a pipeline.
    #[command(after_help = "\
Examples:
  rapidbyte doctor
  rapidbyte doctor shop.yaml --output json")]
    Doctor(Doctor),
    /// Write `rapidbyte.lock`: the connector files of a pipeline, and the grants they ask for.
    #[command(after_help = "\
If `rapidbyte.lock` exists, a run stops when a connector's file changes or asks for further grants.
The lock file does not list the connectors inside the program.

Examples:
  rapidbyte lock shop.yaml
  rapidbyte lock shop.yaml --update")]
    Lock(Lock),
    /// Explain an error code, or list all codes.
    #[command(after_help = "\
Examples:
  rapidbyte explain
  rapidbyte explain unknown_key
  rapidbyte explain pg_28P01 --output json")]
    Explain(Explain),
    /// Print the JSON Schema of a pipeline file, for editors and other programs.
    #[command(after_help = "\
With this first line in a pipeline file, editors complete and check it:
  # yaml-language-server: $schema=pipeline.schema.json

Examples:
  rapidbyte schema > pipeline.schema.json")]
    Schema,
    /// Print the reference of verbs, flags and keys as Markdown.
    #[command(after_help = "\
Examples:
  rapidbyte reference > docs/reference.md")]
    Reference,
    /// Print a completion script for a shell.
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
    /// List, inspect, test and compile connectors, or create your own.
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

/// The server of a command.
#[derive(Debug, Args)]
pub struct OnServer {
    /// Work on the server with this URL, where PIPELINE is the name of a pipeline (default: the variable
    /// RAPIDBYTE_SERVER). The variable RAPIDBYTE_TOKEN has the token.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub server: Option<String>,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub pipeline: Pipeline,
    #[command(flatten)]
    pub on: OnServer,
    #[command(flatten)]
    pub narrow: Narrow,
    /// Show the plan and stop, as `plan` does.
    #[arg(long)]
    pub dry_run: bool,
    /// Run only if the plan is still the one in this file, which `plan --output json` has printed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,
    /// Start incremental streams over with their first row, and replace the rows in their targets (with upsert: write
    /// every row again, and remove none).
    #[arg(long)]
    pub full_refresh: bool,
    /// Stop the run at the first stream that fails, as `on_stream_failure: stop` does.
    #[arg(long)]
    pub fail_fast: bool,
    #[command(flatten)]
    pub history: History,
    /// Write a report of the run as an HTML page: timing, speed and memory over time, types, grants.
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
    /// Show only the grants of both connectors, without opening either or reaching anything outside.
    #[arg(long, conflicts_with_all = ["select", "exclude", "limit"])]
    pub grants_only: bool,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub pipeline: Pipeline,
    /// Compare only this stream; `*` and `?` match several. May be repeated.
    #[arg(short, long, value_name = "STREAM")]
    pub select: Vec<String>,
    /// Leave out this stream; overrides --select. May be repeated.
    #[arg(long, value_name = "STREAM")]
    pub exclude: Vec<String>,
    /// Compare about this percentage of the rows, chosen at random.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub sample: Option<Share>,
    /// Write the result as JSON to this file: rows and checksums of both sides, cursors, rows that differ.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub receipt: Option<PathBuf>,
    /// Move rows that differ again, by their keys, and delete rows of the target that the source does not have.
    #[arg(long)]
    pub repair: bool,
}

/// A percentage of rows: above 0, at most 100, with at most four digits after the point.
fn percent(text: &str) -> Result<Share, String> {
    Share::of_percent(text).ok_or_else(|| {
        "expected a percentage above 0 and at most 100, such as 5 or 0.5, with at most four digits after the point".into()
    })
}

/// The part of a pipeline that a command covers.
#[derive(Debug, Args)]
pub struct Narrow {
    /// Move only this stream, or this column of it; `*` and `?` match several. May be repeated.
    #[arg(short, long, value_name = "STREAM[.COLUMN]")]
    pub select: Vec<String>,
    /// Leave out this stream, or this column of it; overrides --select. May be repeated.
    #[arg(long, value_name = "STREAM[.COLUMN]")]
    pub exclude: Vec<String>,
    /// Move at most this many rows of each stream.
    #[arg(long, value_name = "ROWS", value_parser = rows, allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// Allow the limited rows to replace all rows of a target (with write_mode: replace).
    #[arg(long, requires = "limit")]
    pub limit_replaces: bool,
}

/// A number of rows. Errors say what is due instead.
fn rows(text: &str) -> Result<u64, String> {
    let due = "expected a whole number of rows, 1 or more, in digits only";
    at_least_one(text, due, "; use --dry-run to move no rows")
}

fn rejects(text: &str) -> Result<u64, String> {
    let due = "expected a whole number of rejects, 1 or more, in digits only";
    at_least_one(text, due, "; `rapidbyte rejects list` counts them")
}

fn at_least_one(text: &str, due: &str, instead: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(0) => Err(format!("{due}{instead}")),
        Ok(number) => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("the number is above {}", u64::MAX))
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
    pub on: OnServer,
    #[command(flatten)]
    pub history: History,
    /// Show at most this many attempts, the newest.
    #[arg(long, value_name = "ATTEMPTS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub last: u32,
    /// Also write the attempts as an HTML page, with links to the pages of `report:`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub page: Option<PathBuf>,
}

/// `rejects`
#[derive(Debug, Subcommand)]
pub enum RejectsVerb {
    /// Count the kept rejects by stream, column and code.
    #[command(after_help = "Examples:\n  rapidbyte rejects list shop.yaml --output json")]
    List {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
        /// Count only the rejects of this stream.
        #[arg(long, value_name = "STREAM")]
        stream: Option<String>,
    },
    /// Show kept rejects with their places, reasons and records.
    #[command(after_help = "\
Examples:
  rapidbyte rejects show shop.yaml --code value_does_not_fit
  rapidbyte rejects show shop.yaml --stream orders --jsonl > rejects.jsonl")]
    Show {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
        /// Show only the rejects of this stream.
        #[arg(long, value_name = "STREAM")]
        stream: Option<String>,
        /// Show only the rejects with this error code.
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
        /// Show only the rejects of this column.
        #[arg(long, value_name = "COLUMN")]
        column: Option<String>,
        /// Show at most this many rejects, the oldest (default: 20; with --jsonl: all).
        #[arg(long, value_name = "REJECTS", value_parser = rejects, allow_negative_numbers = true)]
        limit: Option<u64>,
        /// Print one JSON object a line, as `rejects replay --from` reads them.
        #[arg(long)]
        jsonl: bool,
    },
    /// Send the rejects of a stream through the pipeline again, each at most once.
    #[command(after_help = "\
Without --from, the stored records are sent as they are: the pipeline, a transform or the target was
repaired. Records that fail again stay as rejects.

Examples:
  rapidbyte rejects replay shop.yaml --stream orders
  rapidbyte rejects replay shop.yaml --stream orders --from repaired.jsonl --output json")]
    Replay {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
        /// The stream.
        #[arg(long, value_name = "STREAM")]
        stream: String,
        /// Send the records of this file instead, and only these: lines of `rejects show --jsonl` with repaired records.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
}

/// `state`
#[derive(Debug, Subcommand)]
pub enum StateVerb {
    /// Show the cursor and state of each stream, as the destination stores them.
    #[command(after_help = "Examples:\n  rapidbyte state list shop.yaml --output json")]
    List {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
        #[command(flatten)]
        history: History,
    },
    /// Print the cursor of a stream as JSON.
    #[command(
        after_help = "Examples:\n  rapidbyte state get shop.yaml public.orders > cursor.json"
    )]
    Get {
        #[command(flatten)]
        of: OneStream,
        #[command(flatten)]
        on: OnServer,
        #[command(flatten)]
        history: History,
    },
    /// Set the cursor of a stream: JSON in the form that `get` prints.
    #[command(after_help = "\
Examples:
  rapidbyte state set shop.yaml public.orders '{\"mode\":\"ordered\",\"version\":1,\"fields\":[{\"name\":\"id\",\"type\":\"int8\"}],\"values\":[\"1000\"]}'")]
    Set {
        #[command(flatten)]
        of: OneStream,
        #[command(flatten)]
        on: OnServer,
        /// The cursor.
        #[arg(value_name = "CURSOR")]
        cursor: String,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
    /// Edit the cursor of a stream in $VISUAL or $EDITOR.
    #[command(after_help = "Examples:\n  rapidbyte state edit shop.yaml public.orders")]
    Edit {
        #[command(flatten)]
        of: OneStream,
        #[command(flatten)]
        on: OnServer,
        #[command(flatten)]
        history: History,
        #[command(flatten)]
        consent: Consent,
    },
    /// Resume streams from another copy of their source: after a restore, an upgrade, or when a table was created
    /// again with the same rows. The next run accepts the source and the target that it finds.
    #[command(after_help = "\
Examples:
  rapidbyte state rebind shop.yaml public.orders
  rapidbyte state rebind shop.yaml --all")]
    Rebind {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
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
    /// Delete the cursors of streams, and forget an unfinished run. Rows stay.
    #[command(after_help = "\
Examples:
  rapidbyte state clear shop.yaml public.orders
  rapidbyte state clear shop.yaml --all")]
    Clear {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        on: OnServer,
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

/// For verbs that a running run does not survive.
#[derive(Debug, Args)]
pub struct Consent {
    /// Continue although a run of the pipeline is running, and fence that run.
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
    /// The code, as shown in `error[…]` (default: list all codes).
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

/// `lock`
#[derive(Debug, Args)]
pub struct Lock {
    #[command(flatten)]
    pub pipeline: Pipeline,
    /// Accept connector files that changed or ask for further grants.
    #[arg(long)]
    pub update: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// A pipeline file: also check its connectors, hosts and files.
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

/// `init`
#[derive(Debug, Args)]
pub struct Init {
    /// The kind of source.
    #[arg(long, value_enum)]
    pub source: Option<SourceKind>,
    /// The kind of destination.
    #[arg(long, value_enum)]
    pub destination: Option<DestinationKind>,
    /// The pipeline's name, which is also the file's name without its ending.
    #[arg(long)]
    pub name: Option<String>,
    /// The directory of the files.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,
}

/// The sources that `init` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    Postgres,
    File,
    Http,
    Mongodb,
    Ingest,
    Generate,
}

/// The destinations that `init` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DestinationKind {
    Postgres,
    Mongodb,
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
    /// Show a connector's modes, configuration keys and the grants it asks for.
    #[command(after_help = "Examples:\n  rapidbyte connector inspect source-file")]
    Inspect {
        /// A bundled connector's name, or a path to a .wasm.
        name: String,
    },
    /// Test a connector against the contract, clause by clause.
    #[command(after_help = "\
The test writes to a destination: give it a configuration for tests. Its streams are named
conformance_… and stay there. The exit code is 1 if a clause fails.

Examples:
  rapidbyte connector test source-generate --config '{ rows: 1000, preset: narrow }'
  rapidbyte connector test my_source.wasm --config-file test.yaml --stream orders
  rapidbyte connector test transform-mask.wasm --config '{ column: c_string }'
  rapidbyte connector test dest-file --config '{ path: \"out/{stream}.csv\" }' \\
    --peer source-file --peer-config '{ path: \"out/{stream}.csv\" }' --output json")]
    Test(ConnectorTest),
    /// Compile connectors into the cache ahead of time, so that no run has to wait for it.
    #[command(after_help = "Examples:\n  rapidbyte connector compile source-file dest-postgres")]
    Compile {
        /// Bundled names or paths (default: all bundled connectors).
        names: Vec<String>,
    },
    /// Create a connector project that builds immediately.
    #[command(after_help = "\
Examples:
  rapidbyte connector new source-shop --kind source --lang rust
  rapidbyte connector new source-shop --kind source --lang python --http
  rapidbyte connector new dest-shop --kind destination --lang rust --dir connectors
  rapidbyte connector new transform-mask --kind transform --lang rust")]
    New(NewConnector),
    /// Build a connector project into a .wasm in its directory.
    #[command(after_help = "\
Examples:
  rapidbyte connector build
  rapidbyte connector build source-shop --output json")]
    Build {
        /// The directory of the project.
        #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// `connector new`
#[derive(Debug, Args)]
pub struct NewConnector {
    /// The name of the connector and of its directory: lower-case letters, digits and "-".
    pub name: String,
    /// Whether the connector is a source, a transform or a destination.
    #[arg(long, value_parser = kinds())]
    pub kind: Kind,
    /// The language of the connector.
    #[arg(long, value_parser = languages())]
    pub lang: Language,
    /// Start from a source that reads a JSON API. Python and JavaScript projects need this for HTTP.
    #[arg(long)]
    pub http: bool,
    /// The directory in which the project directory is created.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let names = PossibleValuesParser::new(Kind::ALL.map(Kind::name));
    names.try_map(|name| Kind::named(&name).ok_or("not a kind of connector"))
}

fn languages() -> impl TypedValueParser<Value = Language> {
    let names = PossibleValuesParser::new(Language::ALL.map(Language::name));
    names.try_map(|name| Language::named(&name).ok_or("not a language of connectors"))
}

/// `connector test`
#[derive(Debug, Args)]
pub struct ConnectorTest {
    /// A bundled connector's name, or a path to a .wasm.
    #[arg(value_name = "CONNECTOR", value_hint = ValueHint::FilePath)]
    pub name: String,
    /// Its configuration, as under config: in a pipeline (YAML or JSON). Without it, only the clauses that need
    /// no configuration are tested.
    #[arg(long, value_name = "SETTINGS", conflicts_with = "config_file")]
    pub config: Option<String>,
    /// Read its configuration from this file (YAML or JSON).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config_file: Option<PathBuf>,
    /// Read this stream of a source (default: the first four). May be repeated. For a transform: the stream of the
    /// peer (default: its first).
    #[arg(long, value_name = "STREAM")]
    pub stream: Vec<String>,
    /// A source that reads the rows that a destination wrote, so that more clauses can be tested. For a transform: a
    /// source that gives the rows (default: rows of every type).
    #[arg(long, value_name = "CONNECTOR", requires = "peer_config")]
    pub peer: Option<String>,
    /// The configuration of the peer. If the peer does not find a stream, {stream} in the configuration becomes
    /// the stream's name.
    #[arg(long, value_name = "SETTINGS", requires = "peer")]
    pub peer_config: Option<String>,
    /// The peer's name of the stream, if it differs from the destination's; {stream} stands for the destination's name.
    #[arg(long, value_name = "STREAM", requires = "peer")]
    pub peer_stream: Option<String>,
}

/// Prints what is wrong with the arguments, or the help or the version if they ask for it. Gives the exit code.
///
/// A program that asked for JSON gets its error as JSON too.
pub fn refuse(error: &clap::Error, arguments: &[OsString]) -> u8 {
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
        // No message can be printed where standard error is closed.
        let _ = error.print();
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}
