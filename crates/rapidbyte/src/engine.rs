//! The engine, and what it does with a pipeline.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_engine::document::Share;
use rapidbyte_engine::plan::{self, Checked, Discovered};
use rapidbyte_engine::verify::{self, Repair, Verified};
use rapidbyte_engine::{
    Class, Failure, Host, Narrowing, OnStreamFailure, Plan, Prepared, Report, Usage,
};
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Embedded, NativeConnector, Runtime};
use rapidbyte_state::State;

use crate::bundled::CONNECTORS;
use crate::control::Control;
use crate::memory_limit::MemoryOfRuns;
use crate::pipeline::Pipeline;

/// Loads connectors and runs pipelines; from any number of threads at a time.
#[derive(Clone)]
pub struct Engine {
    runtime: Runtime,
    connector_dirs: Vec<PathBuf>,
    embedded: &'static [Embedded],
    native: Arc<[NativeConnector]>,
    memory: Option<Arc<MemoryOfRuns>>,
}

/// Settings of an [`Engine`] that is not built yet.
pub struct EngineBuilder {
    connector_dirs: Vec<PathBuf>,
    embedded: &'static [Embedded],
    native: Vec<NativeConnector>,
    memory: Option<u64>,
    cache: Option<Cache>,
    compiles: Box<dyn Fn(&str) + Send + Sync>,
}

/// The part of a pipeline that a run moves, and the place where the run is recorded.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Which streams, columns and rows.
    pub narrowing: Narrowing,
    /// The first stream that fails stops the run, whatever the pipeline says.
    pub fail_fast: bool,
    /// Where the run is recorded.
    pub history: History,
}

/// Where runs are recorded. A killed run that appended whole streams can only be resumed with its history.
#[derive(Debug, Clone, Default)]
pub enum History {
    /// In `.rapidbyte/state.db` beside the pipeline.
    #[default]
    Beside,
    /// In this file.
    File(PathBuf),
    /// Nowhere.
    Off,
}

impl EngineBuilder {
    /// Looks for connectors in these folders, before those inside the program.
    #[must_use]
    pub fn connector_dirs(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.connector_dirs.extend(folders);
        self
    }

    /// Adds a connector that is part of the program. Its name wins over all others.
    #[must_use]
    pub fn connector(mut self, connector: NativeConnector) -> Self {
        self.native.push(connector);
        self
    }

    /// Bytes of memory that all runs have together. A run takes its `resources.memory` before it plans: it waits until
    /// the other runs have given back enough, and is refused as `memory_of_engine` if that is more than all of it.
    /// Without a limit every run begins at once.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Leaves out the connectors that are inside the program.
    #[must_use]
    pub fn without_bundled(mut self) -> Self {
        self.embedded = &[];
        self
    }

    /// Keeps compiled connectors. Without a cache each engine compiles a connector before its first use, which takes
    /// seconds.
    #[must_use]
    pub fn cache(mut self, cache: Option<Cache>) -> Self {
        self.cache = cache;
        self
    }

    /// Calls `tell` with the name of each connector before it is compiled.
    #[must_use]
    pub fn on_compile(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.compiles = Box::new(tell);
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// `no_runtime`: the machine cannot run compiled connectors.
    pub fn build(self) -> Result<Engine, Failure> {
        let runtime = Runtime::new(self.cache, self.compiles)
            .map_err(|error| Failure::new(Class::Environment, "no_runtime", error))?;
        Ok(Engine {
            runtime,
            connector_dirs: self.connector_dirs,
            embedded: self.embedded,
            native: self.native.into(),
            memory: self.memory.map(|bytes| Arc::new(MemoryOfRuns::new(bytes))),
        })
    }
}

impl Engine {
    /// An engine with the bundled connectors, without a cache.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            connector_dirs: Vec::new(),
            embedded: CONNECTORS,
            native: Vec::new(),
            memory: None,
            cache: None,
            compiles: Box::new(|_| ()),
        }
    }

    /// The engine as one call sees it: for verbs that this crate does not have.
    pub fn host(&self, control: &Control) -> Host {
        Host {
            runtime: self.runtime.clone(),
            connector_dirs: self.connector_dirs.clone(),
            embedded: self.embedded,
            native: Arc::clone(&self.native),
            events: Arc::clone(&control.events),
            cancel: control.cancel.clone(),
            longest_pause: Duration::MAX,
            usage: Usage::default(),
        }
    }

    /// Lets both connectors look at what they need, and plans. Nothing is written.
    ///
    /// # Errors
    /// A side that cannot be opened, or that cannot look; what a side finds wrong is part of what is returned.
    pub fn check(&self, pipeline: &Pipeline, control: &Control) -> Result<Checked, Failure> {
        let host = self.host(control).hurried();
        redacted(pipeline, plan::check(&pipeline.document, &host))
    }

    /// The streams that the source has.
    ///
    /// # Errors
    /// A source that cannot be opened or read; streams that alone cannot be read are part of what is returned.
    pub fn discover(&self, pipeline: &Pipeline, control: &Control) -> Result<Discovered, Failure> {
        let host = self.host(control).hurried();
        let mut found = redacted(pipeline, plan::discover(&pipeline.document, &host))?;
        if let Some(failure) = &mut found.unreadable {
            failure.redact(&pipeline.document);
        }
        Ok(found)
    }

    /// Plans a run. Nothing is written.
    ///
    /// # Errors
    /// An error that would stop a run, or all of its streams. A stream that cannot be moved is in [`Plan::refused`].
    pub fn plan(
        &self,
        pipeline: &Pipeline,
        narrowing: &Narrowing,
        control: &Control,
    ) -> Result<Plan, Failure> {
        let host = self.host(control).hurried();
        let prepared = Prepared::narrowed(pipeline.document.clone(), &host, narrowing);
        redacted(pipeline, prepared.map(|prepared| prepared.plan))
    }

    /// Compares the rows of targets with the rows of their sources. Changes nothing, unless it repairs rows that differ.
    /// [`Verified::failure`] says whether rows differ.
    ///
    /// # Errors
    /// An error that stops the whole comparison. A stream that cannot be compared is in [`Verified::failures`].
    pub fn verify(
        &self,
        pipeline: &Pipeline,
        narrowing: &Narrowing,
        sample: Share,
        repair: Repair,
        control: &Control,
    ) -> Result<Verified, Failure> {
        let host = self.host(control);
        let prepared = Prepared::narrowed(pipeline.document.clone(), &host, narrowing);
        let verified = prepared
            .and_then(|mut prepared| verify::verify(&mut prepared, &host, sample, repair, |_| {}));
        let mut verified = redacted(pipeline, verified)?;
        for failure in &mut verified.failures {
            failure.redact(&pipeline.document);
        }
        Ok(verified)
    }

    /// Runs a pipeline to its end, on threads of its own.
    ///
    /// # Errors
    /// The error that stopped the run, or the failures of its streams. Streams that committed before stay committed,
    /// and the failure lists them.
    pub fn run(
        &self,
        pipeline: &Pipeline,
        options: &RunOptions,
        control: &Control,
    ) -> Result<Report, Failure> {
        let ended = self.run_document(pipeline, options, control);
        redacted(pipeline, ended)
    }

    fn run_document(
        &self,
        pipeline: &Pipeline,
        options: &RunOptions,
        control: &Control,
    ) -> Result<Report, Failure> {
        let host = self.host(control);
        let mut document = pipeline.document.clone();
        let bytes = document.resources.memory;
        // Given back when the run has ended.
        let _memory = match &self.memory {
            Some(all) => Some(all.take(bytes, &control.cancel)?),
            None => None,
        };
        if options.fail_fast {
            document.on_stream_failure = OnStreamFailure::Stop;
        }
        let file = match &options.history {
            History::Beside => Some(document.history()),
            History::File(file) => Some(file.clone()),
            History::Off => None,
        };
        let narrowing = &options.narrowing;
        let (prepared, turn, history) = match &file {
            Some(file) => {
                let planned = rapidbyte_engine::plan_alone(document, &host, narrowing, file);
                let (prepared, turn) = planned.map_err(|unplanned| *unplanned.failure)?;
                let history = State::open(file).map_err(Failure::of_state)?;
                (prepared, turn, Some(history))
            }
            None => (Prepared::narrowed(document, &host, narrowing)?, None, None),
        };
        let progress = rapidbyte_engine::progress(&prepared.plan);
        let mut report = None;
        rapidbyte_engine::run(
            prepared,
            &host,
            &progress,
            history.as_ref(),
            turn,
            |ended| {
                report = ended.ok().cloned();
            },
        )?;
        report.ok_or_else(|| Failure::new(Class::Run, "internal", "a run without a report"))
    }
}

/// Takes the values of the pipeline's secrets out of a failure.
fn redacted<T>(pipeline: &Pipeline, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|failure| failure.redacted(&pipeline.document))
}
