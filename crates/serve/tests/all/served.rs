//! Servers in the process of a test, and what they log.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rapidbyte::{Engine, Environment, Pipeline};
use rapidbyte_serve::{Log, Pipelines, Server, Settings};

/// A test that waits longer fails.
const LIMIT: Duration = Duration::from_secs(60);

pub fn engine() -> Engine {
    let cache = rapidbyte::user_cache().ok();
    Engine::builder().cache(cache).build().expect("an engine")
}

/// A server with one pipeline.
pub fn serve(folder: &Path, text: &str, settings: Settings, log: Log) -> Server {
    let environment = Environment::from_fn(|_| None).without_env_file();
    let pipeline = Pipeline::from_str(text, folder, &environment).expect("a pipeline");
    let pipelines = Pipelines::new([pipeline]).expect("a pipeline of the server");
    Server::run(settings, engine(), pipelines, log).expect("a server")
}

/// The settings of a server that keeps its files in this folder.
pub fn settings(folder: &Path) -> Settings {
    Settings::new(&folder.join("server"))
}

/// A log in a file, for a server in another process.
pub fn log_to(path: &Path) -> Log {
    let path = path.to_owned();
    Log::new(move |message| {
        let file = File::options().create(true).append(true).open(&path);
        let mut file = file.expect("a log");
        writeln!(file, "{} {}", message.text, message.facts).expect("written");
    })
}

/// What a log has of a stream: the code of each error, and each other message.
pub fn told_of(log: &str, stream: &str) -> Vec<String> {
    let prefix = format!("{stream}: ");
    let messages = log.lines().filter_map(|line| line.strip_prefix(&prefix));
    let short = messages.map(|message| match message.strip_prefix("error[") {
        Some(error) => error.split(']').next().unwrap_or_default(),
        None => message.split(" {").next().unwrap_or_default(),
    });
    short.map(str::to_owned).collect()
}

/// Everything that a server logs.
#[derive(Clone, Default)]
pub struct Told(Arc<Lines>);

#[derive(Default)]
struct Lines {
    lines: Mutex<Vec<String>>,
    came: Condvar,
}

impl Told {
    /// Each message is a line with its facts.
    pub fn log(&self) -> Log {
        let Self(told) = self.clone();
        Log::new(move |message| {
            let line = format!("{} {}", message.text, message.facts);
            told.lines.lock().expect("a log").push(line);
            told.came.notify_all();
        })
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lines.lock().expect("a log").clone()
    }

    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Waits for a line with this part.
    pub fn wait(&self, part: &str) -> String {
        let lines = self.0.lines.lock().expect("a log");
        let lacks = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(part));
        let waited = self.0.came.wait_timeout_while(lines, LIMIT, lacks);
        let (lines, _) = waited.expect("a log");
        let found = lines.iter().find(|line| line.contains(part));
        found
            .unwrap_or_else(|| panic!("no {part:?} in {lines:#?}"))
            .clone()
    }
}
