//! The engine of this process, and pipelines as callers give them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rapidbyte::{Engine, Environment, Failure, Narrowing, Pipeline, connector_dirs, user_cache};
use serde_json::Value;

use crate::arguments;

/// Names of connectors that wait to be reported.
const TOLD: usize = 100;

/// The engine of the process with this number.
static ENGINE: Mutex<Option<(u32, Engine)>> = Mutex::new(None);
/// Pipelines that calls have made, by [`Given::reuse`], the newest first.
static READ: Mutex<VecDeque<(String, Pipeline)>> = Mutex::new(VecDeque::new());
/// As many as sessions wait.
const MAX_READ: usize = 8;
/// The source of a pipeline that a call has made to write rows.
const OF_WRITE: &str = r#""source": {"use": "python""#;
/// A value of a pipeline that comes from a file.
const FILE: &str = "${file:";
/// Connectors that are compiled, which takes seconds the first time.
static COMPILES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn held<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine of this process. A process that `fork` made has its own, because threads do not come along.
///
/// # Errors
/// `no_runtime`.
pub fn engine() -> Result<Engine, Failure> {
    let process = std::process::id();
    if let Some((owner, engine)) = &*held(&ENGINE)
        && *owner == process
    {
        return Ok(engine.clone());
    }
    let engine = Engine::builder()
        .connector_dirs(connector_dirs())
        .cache(user_cache().ok())
        .on_compile(|name| {
            let mut names = held(&COMPILES);
            if names.len() < TOLD {
                names.push_back(name.to_owned());
            }
        })
        .build()?;
    let before = held(&ENGINE).replace((process, engine.clone()));
    // Its threads belong to the other process, and cannot be joined here.
    std::mem::forget(before);
    Ok(engine)
}

/// Closes the sessions that wait for another call with the same arguments, and returns how many there were. A process that
/// `fork` made has none.
#[pyfunction]
pub fn close_idle(py: Python<'_>) -> usize {
    py.detach(|| {
        let process = std::process::id();
        let engine = match &*held(&ENGINE) {
            Some((owner, engine)) if *owner == process => engine.clone(),
            _ => return 0,
        };
        let count = engine.idle_sessions();
        engine.close_idle();
        count
    })
}

/// The connectors whose compilation has begun since the last call.
pub fn compiles() -> VecDeque<String> {
    std::mem::take(&mut *held(&COMPILES))
}

/// A pipeline as the caller gives it.
#[derive(FromPyObject)]
pub struct Given {
    /// The file, the text of one, a document as JSON, or a document that a call has made of its arguments.
    #[pyo3(item)]
    form: String,
    #[pyo3(item)]
    content: String,
    /// Where relative paths begin.
    #[pyo3(item)]
    folder: PathBuf,
    /// Values of variables. They come before the environment.
    #[pyo3(item)]
    params: HashMap<String, String>,
}

impl Given {
    /// Reads it, and works with it. Failures name arguments if a call has made the pipeline.
    ///
    /// # Errors
    /// The first mistake, and failures of the work.
    pub fn with<T>(
        &self,
        work: impl FnOnce(&Pipeline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let done = self.read().and_then(|pipeline| work(&pipeline));
        match self.form.as_str() {
            "call" => done.map_err(|failure| arguments::named(failure, self.is_write())),
            _ => done,
        }
    }

    /// Whether a call has made it that writes rows of the caller. What calls make is JSON with spaces.
    fn is_write(&self) -> bool {
        self.content.contains(OF_WRITE)
    }

    /// The text by which calls with the same arguments share sessions. `None` for pipelines that the caller wrote.
    pub fn reuse(&self) -> Option<String> {
        let mut params: Vec<_> = self.params.iter().collect();
        params.sort();
        let folder = &self.folder;
        let text = || format!("{} {params:?} {}", folder.display(), self.content);
        (self.form == "call").then(text)
    }

    /// The pipeline. One that a call has made, and that depends on its arguments alone, is read once.
    fn read(&self) -> Result<Pipeline, Failure> {
        let key = self.reuse().filter(|_| !self.content.contains(FILE));
        let Some(key) = key else {
            return self.read_with(|name| std::env::var(name).ok());
        };
        let is_it = |(known, _): &(String, Pipeline)| *known == key;
        if let Some((_, pipeline)) = held(&READ).iter().find(|known| is_it(known)) {
            return Ok(pipeline.clone());
        }
        let has_asked = Cell::new(false);
        let pipeline = self.read_with(|name| {
            has_asked.set(true);
            std::env::var(name).ok()
        })?;
        if !has_asked.get() {
            let mut known = held(&READ);
            known.truncate(MAX_READ - 1);
            known.push_front((key, pipeline.clone()));
        }
        Ok(pipeline)
    }

    /// `outside` gives the values of variables that are no parameters.
    fn read_with(&self, outside: impl Fn(&str) -> Option<String>) -> Result<Pipeline, Failure> {
        let lookup = |name: &str| match self.params.get(name) {
            Some(value) => Some(value.clone()),
            None => outside(name),
        };
        let environment = Environment::from_fn(lookup);
        match self.form.as_str() {
            "file" => Pipeline::from_file(self.content.as_ref(), &environment),
            "text" => Pipeline::from_str(&self.content, &self.folder, &environment),
            _ => {
                let value: Value = serde_json::from_str(&self.content).unwrap_or_default();
                Pipeline::from_value(&value, &self.folder, &environment)
            }
        }
    }
}

/// Which part of a pipeline is moved.
#[derive(FromPyObject)]
pub struct Choice {
    #[pyo3(item)]
    select: Vec<String>,
    #[pyo3(item)]
    exclude: Vec<String>,
    #[pyo3(item)]
    limit: Option<u64>,
    #[pyo3(item)]
    full_refresh: bool,
}

impl Choice {
    /// The same for the engine.
    pub fn narrowing(self) -> Narrowing {
        Narrowing {
            select: self.select,
            exclude: self.exclude,
            limit: self.limit,
            full_refresh: self.full_refresh,
            ..Narrowing::default()
        }
    }
}
