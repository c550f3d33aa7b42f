//! The parts of the process that every verb needs: folders, signals, the runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rapidbyte::{Control, Engine, connector_dirs, user_cache};
use rapidbyte_engine::document::Named;
use rapidbyte_engine::plan::StreamPlan;
use rapidbyte_engine::{Class, Document, Environment, Failure, Host, Plan};
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Cancel, WriteMode};
use rapidbyte_state::State;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::args::{Common, History, Pipeline};
use crate::output::{Output, one_line};

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
    let engine = Engine::builder()
        .connector_dirs(connector_dirs())
        .cache(cache)
        .on_compile(tell)
        .build()?;
    let cancel = Cancel::new();
    watch_signals(&cancel)?;
    let events = output.event_sink(document);
    Ok(engine.host(&Control::default().events(events).cancel(&cancel)))
}

/// Reads the pipeline file.
pub fn document(pipeline: &Pipeline, common: &Common) -> Result<Document, Failure> {
    Ok(Document::load(&pipeline.file, &environment(common))?)
}

/// Reads the name of the pipeline alone, which needs no variable of the other keys.
pub fn named(pipeline: &Pipeline, common: &Common) -> Result<Named, Failure> {
    Ok(Named::load(&pipeline.file, &environment(common))?)
}

fn environment(common: &Common) -> Environment<'static> {
    let environment = Environment::process();
    match &common.env_file {
        Some(file) => environment.with_env_file(file),
        None => environment,
    }
}

/// The history of the folder that the pipeline is in, or of the file that was named.
pub fn history(document: &Document, named: &History) -> Result<State, Failure> {
    State::open(&history_path(document, named)).map_err(Failure::of_state)
}

/// The same, to read in it only; none before the first run.
pub fn history_to_look_at(document: &Document, named: &History) -> Result<Option<State>, Failure> {
    look(&history_path(document, named))
}

/// The history at `path`, to read in it only; none before the first run.
pub fn look(path: &Path) -> Result<Option<State>, Failure> {
    State::look(path).map_err(Failure::of_state)
}

/// Where the history of a pipeline is, whether it is there or not.
pub fn history_path(document: &Document, named: &History) -> PathBuf {
    named.state.clone().unwrap_or_else(|| document.history())
}

/// The same for a run. A run without a history is not resumed after a crash, which only matters
/// where rows would be added twice.
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
    match user_cache() {
        Ok(cache) => Some(cache),
        Err(why) => {
            output.warn(&why);
            None
        }
    }
}

/// Refuses faults on purpose that nobody can read.
pub fn check_faults() -> Result<(), Failure> {
    let wrong = |text| {
        Failure::new(Class::Config, "invalid_faults", text)
            .hint("this variable is for tests of Rapidbyte: remove it, or see SECURITY.md")
    };
    rapidbyte_runtime::fault::check().map_err(wrong)
}

/// A file above the limit of the process (`ulimit -f`) is an error of the write, which says so. The
/// signal that comes with it would end the process without a message.
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
