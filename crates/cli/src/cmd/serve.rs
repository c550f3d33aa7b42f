//! `rapidbyte serve [FOLDER]`

mod token;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use rapidbyte::{Class, Failure, Level};
use rapidbyte_serve::{Log, Message, Pipelines, ServeError, Server, Settings, TlsFiles};
use serde_json::json;

use crate::args::Common;
use crate::output::Output;
use crate::setup;

pub use token::TokenVerb;

/// `serve`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Serve {
    #[command(subcommand)]
    pub verb: Option<ServeVerb>,
    /// The folder of the pipeline files. The server reads a file again when it changes.
    #[arg(value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    #[command(flatten)]
    pub place: Place,
    /// Listen on this address. On another address than loopback each request needs a token, and the server needs a
    /// certificate or --behind-proxy.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8465")]
    pub listen: SocketAddr,
    /// The certificate (PEM, with those that sign it). The server reads it again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Serve without a certificate on any address: a proxy in front of the server has TLS.
    #[arg(long)]
    pub behind_proxy: bool,
    /// Move the bodies of at most this many streams at a time, and run at most this many pipelines with other sources
    /// (default: 16 and 4).
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Let all runs together have at most this much memory (default: no limit but that of each pipeline).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Take bodies of at most this size.
    #[arg(long, value_name = "SIZE", default_value = "10gb", value_parser = size)]
    pub max_body: u64,
    /// Take no more bodies while this many jobs are pending.
    #[arg(long, value_name = "JOBS", default_value_t = 1_000_000)]
    pub queue_jobs: u64,
    /// Take no more bodies while the bodies of pending and dead jobs have this size.
    #[arg(long, value_name = "SIZE", default_value = "10gb", value_parser = size)]
    pub queue_bytes: u64,
    /// Take no more bodies while the disk has less free space than this.
    #[arg(long, value_name = "SIZE", default_value = "1gb", value_parser = size)]
    pub keep_free: u64,
    /// Keep the body of a job for this many hours after its rows are committed, so that it can be replayed.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub retain_hours: u32,
    /// Keep at most this much of these bodies.
    #[arg(long, value_name = "SIZE", default_value = "1gb", value_parser = size)]
    pub retain_bytes: u64,
    /// Remember a job, with its key and its content, for this many days after its end. A dead job keeps its body as long.
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    pub remember_days: u32,
    /// Trust the receivers of `notify` by the authorities in this file (PEM), in the place of the public ones.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub notify_ca: Option<PathBuf>,
    /// After a signal to end, wait at most this many seconds for open requests and for runs at work.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_seconds: u32,
}

/// Where a server keeps its state.
#[derive(Debug, Args)]
pub struct Place {
    /// Keep jobs, bodies and tokens in this folder (default: `.rapidbyte/serve` in the folder of the pipelines).
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
}

/// `serve token`
#[derive(Debug, Subcommand)]
pub enum ServeVerb {
    /// Make, list and remove tokens. A running server notices within two seconds.
    #[command(
        subcommand,
        after_help = "\
Examples:
  rapidbyte serve token add --name shop --scope ingest:orders
  rapidbyte serve token list
  rapidbyte serve token remove 1a2b3c4d"
    )]
    Token(TokenVerb),
}

impl Place {
    fn of(&self, pipelines: &Path) -> PathBuf {
        let beside = || pipelines.join(".rapidbyte").join("serve");
        self.data.clone().unwrap_or_else(beside)
    }
}

fn size(text: &str) -> Result<u64, String> {
    rapidbyte_wire::size::parse(text)
        .ok_or_else(|| "expected a size, such as 500mb or 10gb".to_owned())
}

pub fn run(arguments: &Serve, common: &Common, output: &Output) -> Result<(), Failure> {
    match &arguments.verb {
        Some(ServeVerb::Token(verb)) => token::run(verb, common, output),
        None => serve(arguments, common, output),
    }
}

fn serve(arguments: &Serve, common: &Common, output: &Output) -> Result<(), Failure> {
    let folder =
        std::path::absolute(&arguments.folder).unwrap_or_else(|_| arguments.folder.clone());
    if !folder.is_dir() {
        let text = format!("{} is not a folder", folder.display());
        return Err(Failure::new(Class::Config, "invalid_argument", text)
            .hint("name the folder of the pipeline files"));
    }
    let (engine, cancel) = setup::server(output, arguments.memory)?;
    let (common, told) = (common.clone(), output.clone());
    let pipelines = Pipelines::of_folder(&folder, move |path| {
        rapidbyte::Pipeline::from_file(path, &setup::environment(&common))
    });
    let log = Log::new(move |message| tell(&told, message));
    let settings = settings(arguments, &folder);
    let tls = settings.tls.is_some();
    let server = Server::run(settings, engine, pipelines, log).map_err(failure)?;
    let scheme = if tls { "https" } else { "http" };
    let url = format!("{scheme}://{}", server.address());
    output.info(
        &format!("listening on {url}"),
        json!({ "url": url, "address": server.address().to_string() }),
    );
    let (stop, stopped) = mpsc::channel();
    let registered = cancel.on_cancel(move || {
        // Nobody listens once the server ends.
        let _ = stop.send(());
    });
    // The sender lives in the registration: an error is a signal, too.
    let _ = stopped.recv();
    drop(registered);
    output.info(
        "ending: no new connections, and runs at work get their time",
        json!({}),
    );
    server.stop();
    Ok(())
}

fn settings(arguments: &Serve, folder: &Path) -> Settings {
    let defaults = Settings::new(&arguments.place.of(folder));
    let mut settings = Settings {
        listen: arguments.listen,
        keep_free: arguments.keep_free,
        streams: arguments
            .runs
            .map_or(defaults.streams, |runs| runs as usize),
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        drain: Duration::from_secs(arguments.drain_seconds.into()),
        tls: arguments
            .tls_cert
            .clone()
            .zip(arguments.tls_key.clone())
            .map(|(certificate, key)| TlsFiles { certificate, key }),
        is_behind_proxy: arguments.behind_proxy,
        notify_ca: arguments.notify_ca.clone(),
        ..defaults
    };
    settings.bodies.bytes = arguments.max_body;
    settings.queue.jobs = arguments.queue_jobs;
    settings.queue.bytes = arguments.queue_bytes;
    settings.retention.bodies = Duration::from_secs(u64::from(arguments.retain_hours) * 3600);
    settings.retention.bytes = arguments.retain_bytes;
    settings.retention.jobs = Duration::from_secs(u64::from(arguments.remember_days) * 86_400);
    settings
}

fn tell(output: &Output, message: &Message) {
    match message.level {
        Level::Error | Level::Warn => output.warn_of(&message.text, message.facts.clone()),
        Level::Info | Level::Debug => output.info(&message.text, message.facts.clone()),
    }
}

/// What the person who starts the server does next.
fn failure(error: ServeError) -> Failure {
    let text = error.to_string();
    let of = |class, code: &str| Failure::new(class, code, &text);
    match error {
        ServeError::NoToken(_) => of(Class::Config, "token_required")
            .hint(
                "make one, with the same folders: rapidbyte serve token add --pipelines FOLDER --scope ingest; or listen on \
                 127.0.0.1",
            ),
        ServeError::NoTls(_) => of(Class::Config, "certificate_required")
            .hint("set --tls-cert and --tls-key, or --behind-proxy where a proxy has TLS"),
        ServeError::FolderInUse(_) => of(Class::Busy, "server_running")
            .hint("end the other server, or name another folder with --data"),
        ServeError::System(..) => of(Class::Environment, "server_not_started").hint(
            "the message has the reason: choose another address with --listen or another folder with --data, or repair \
             the file",
        ),
        ServeError::Receivers(_) => of(Class::Config, "invalid_argument")
            .hint("name a file with certificates (PEM) by --notify-ca"),
        ServeError::Store(_) | ServeError::File(..) | ServeError::Runs(_) => of(Class::Environment, "store_failed")
            .hint("look at the disk; a store of a newer version needs the newer program"),
        ServeError::DeletesRows(_)
        | ServeError::ScheduleOfQueue(_)
        | ServeError::DuplicatePipeline(_) => of(Class::Config, "invalid_pipeline"),
        ServeError::Reader(failure) => *failure,
    }
}
