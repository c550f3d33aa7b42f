//! The parts of the process that every verb needs: folders, signals, the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rapidbyte::{
    Cache, Cancel, Class, Control, Engine, Environment, Failure, History, Pipeline, connector_dirs,
    user_cache,
};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::args::{self, Common};
use crate::output::{Output, one_line};

/// The exit code of the signal that came, 0 for none.
static SIGNALLED: AtomicU8 = AtomicU8::new(0);

/// 130, 143 or 129 after a signal.
pub fn signalled() -> Option<u8> {
    Some(SIGNALLED.load(Ordering::SeqCst)).filter(|code| *code != 0)
}

/// The engine, and the control of this command's calls.
pub struct Session {
    pub engine: Engine,
    pub control: Control,
}

/// The engine with the user's cache. Its calls end with a signal, and show their events without the secrets of the
/// pipeline.
pub fn session(output: &Output, pipeline: Option<&Pipeline>) -> Result<Session, Failure> {
    let engine = engine(output, None)?;
    let cancel = Cancel::new();
    watch_signals(&cancel)?;
    let events = output.event_sink(pipeline);
    let control = Control::default().events(events).cancel(&cancel);
    Ok(Session { engine, control })
}

/// The engine of a server, whose runs have this much memory together, and the end that a signal asks for.
pub fn server(output: &Output, memory: Option<u64>) -> Result<(Engine, Cancel), Failure> {
    let engine = engine(output, memory)?;
    let cancel = Cancel::new();
    watch_signals(&cancel)?;
    Ok((engine, cancel))
}

/// The end that a signal asks for, of a command without an engine.
pub fn cancel() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    watch_signals(&cancel)?;
    Ok(cancel)
}

fn engine(output: &Output, memory: Option<u64>) -> Result<Engine, Failure> {
    let cache = open_cache(output);
    let (told, until) = (output.clone(), cache.as_ref().map_or("", |_| ", once"));
    let tell = move |name: &str| {
        let text = format!("compiling {} for this machine{until}", one_line(name));
        told.info(&text, json!({ "connector": name }));
    };
    let builder = Engine::builder()
        .connector_dirs(connector_dirs())
        .cache(cache)
        .on_compile(tell);
    match memory {
        Some(bytes) => builder.memory(bytes),
        None => builder,
    }
    .build()
}

/// Reads the pipeline file.
pub fn pipeline(pipeline: &args::Pipeline, common: &Common) -> Result<Pipeline, Failure> {
    Pipeline::from_file(&pipeline.file, &environment(common))
}

/// Reads the pipeline file, for a command that needs a source here.
///
/// # Errors
/// `reads_queue` where the source is the queue of a server, and the errors of [`pipeline`].
pub fn pipeline_with_source(named: &args::Pipeline, common: &Common) -> Result<Pipeline, Failure> {
    let pipeline = pipeline(named, common)?;
    ensure_source(&pipeline)?;
    Ok(pipeline)
}

/// Refuses a pipeline whose source is the queue of a server.
pub fn ensure_source(pipeline: &Pipeline) -> Result<(), Failure> {
    if pipeline.source() != rapidbyte_serve::SOURCE {
        return Ok(());
    }
    let name = pipeline.name();
    let text = format!("the pipeline {name} reads the queue of a server");
    let hint = format!(
        "`rapidbyte serve FOLDER` runs the pipelines of a folder; POST /v1/ingest/{name}/STREAM takes rows"
    );
    Err(Failure::new(Class::Config, "reads_queue", text).hint(hint))
}

/// The variables of pipeline files.
pub fn environment(common: &Common) -> Environment<'static> {
    let environment = Environment::process();
    match &common.env_file {
        Some(file) => environment.with_env_file(file),
        None => environment,
    }
}

/// The history beside the pipeline, or in the file that was named.
pub fn history(named: &args::History) -> History {
    match &named.state {
        Some(file) => History::File(file.clone()),
        None => History::Beside,
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
