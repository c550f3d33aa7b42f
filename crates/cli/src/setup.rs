//! What every verb needs from the process: folders, signals, the runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rapidbyte_engine::plan::StreamPlan;
use rapidbyte_engine::{Class, Document, Environment, Failure, Host, Plan};
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Cancel, Embedded, Runtime, WriteMode};
use rapidbyte_state::State;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::args::{Common, History, Pipeline};
use crate::output::{Output, one_line};

// What the build script found: `EMBEDDED` and `PARTS`.
include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The exit code of the signal that came, 0 for none.
static SIGNALLED: AtomicU8 = AtomicU8::new(0);

/// 130, 143 or 129 after a signal.
pub fn signalled() -> Option<u8> {
    Some(SIGNALLED.load(Ordering::SeqCst)).filter(|code| *code != 0)
}

/// The runtime, the connectors' folders and the log.
pub fn host(output: &Output, document: Option<&Document>) -> Result<Host, Failure> {
    let cache = open_cache(output);
    let (told, until) = (output.clone(), cache.as_ref().map_or("", |_| ", once"));
    let tell = move |name: &str| {
        let text = format!("compiling {} for this machine{until}", one_line(name));
        told.info(&text, json!({ "connector": name }));
    };
    let runtime = Runtime::new(cache, tell)
        .map_err(|error| Failure::new(Class::Environment, "no_runtime", error))?;
    let cancel = Cancel::new();
    watch_signals(&cancel)?;
    Ok(Host {
        runtime,
        connector_dirs: connector_dirs(),
        embedded: EMBEDDED,
        log: output.log_sink(document),
        cancel,
        longest_pause: Duration::MAX,
    })
}

/// Reads the pipeline file.
pub fn document(pipeline: &Pipeline, common: &Common) -> Result<Document, Failure> {
    let environment = Environment::process();
    let environment = match &common.env_file {
        Some(file) => environment.with_env_file(file),
        None => environment,
    };
    Ok(Document::load(&pipeline.file, &environment)?)
}

/// The history of the folder that the pipeline is in, or of the file that was named.
pub fn history(document: &Document, named: &History) -> Result<State, Failure> {
    State::open(&history_path(document, named)).map_err(Failure::of_state)
}

/// The same, to read in it only; none before the first run.
pub fn history_to_look_at(document: &Document, named: &History) -> Result<Option<State>, Failure> {
    State::look(&history_path(document, named)).map_err(Failure::of_state)
}

/// Where the history of a pipeline is, whether it is there or not.
pub fn history_path(document: &Document, named: &History) -> PathBuf {
    let beside = || document.base_dir.join(".rapidbyte/state.db");
    named.state.clone().unwrap_or_else(beside)
}

/// The same for a run. Without one a run is not gone on with after a crash, which only matters where
/// rows would be added twice.
pub fn history_of_run(
    plan: &Plan,
    named: &History,
    output: &Output,
) -> Result<Option<State>, Failure> {
    let matters = |stream: &StreamPlan| stream.target.write_mode == WriteMode::Append;
    match history(&plan.document, named) {
        Ok(history) => Ok(Some(history)),
        Err(failure) if named.state.is_some() || plan.streams.iter().any(matters) => Err(failure),
        Err(failure) => {
            output.warn(&format!(
                "cannot open the history of runs: {}",
                failure.message
            ));
            Ok(None)
        }
    }
}

/// A run without a cache works and compiles each time, which is worth a word.
fn open_cache(output: &Output) -> Option<Cache> {
    match cache() {
        Ok(cache) => Some(cache),
        Err(why) => {
            output.warn(&why);
            None
        }
    }
}

/// The cache of compiled connectors, or why there is none.
pub fn cache() -> Result<Cache, String> {
    // A service may run with a HOME that is not there; it is not ours to make.
    let home = variable("HOME").filter(|home| home.is_dir());
    let below_home = |dir: &str| home.as_ref().map(|home| home.join(dir));
    let cache = variable("XDG_CACHE_HOME").or_else(|| below_home(".cache"));
    let state = variable("XDG_STATE_HOME").or_else(|| below_home(".local/state"));
    let (Some(cache), Some(state)) = (cache, state) else {
        let text =
            "neither HOME nor XDG_CACHE_HOME is a directory, so every run compiles the connectors";
        return Err(text.into());
    };
    Cache::open(
        &cache.join("rapidbyte/code"),
        &state.join("rapidbyte/cache.key"),
    )
    .map_err(|error| format!("cannot open the cache of compiled connectors: {error}"))
}

/// `RAPIDBYTE_CONNECTORS`, then `connectors` beside the program.
pub fn connector_dirs() -> Vec<PathBuf> {
    let named = std::env::var_os("RAPIDBYTE_CONNECTORS");
    let mut dirs: Vec<PathBuf> = named
        .iter()
        .flat_map(|dirs| std::env::split_paths(dirs))
        .collect();
    let program = std::env::current_exe().and_then(std::fs::canonicalize);
    if let Some(dir) = program.ok().as_deref().and_then(|program| program.parent()) {
        dirs.push(dir.join("connectors"));
    }
    dirs
}

/// A folder's absolute path; others are ignored, as the XDG base directory specification asks.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// A file above the limit of the process (`ulimit -f`) is an error of the write, which says so. The
/// signal that comes with it would end the process without a word.
pub fn survive_large_files() {
    // Without the handler the process ends as it did before.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// The first signal cancels the run, the second ends the process at once.
fn watch_signals(cancel: &Cancel) -> Result<(), Failure> {
    let failed = |error| Failure::new(Class::Environment, "no_signals", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let cancel = cancel.clone();
    let watch = move || {
        for signal in signals.forever() {
            let code = 128 + signal as u8;
            if signalled().is_some() {
                std::process::exit(code.into());
            }
            SIGNALLED.store(code, Ordering::SeqCst);
            cancel.cancel();
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(watch).map(drop).map_err(failed)
}
