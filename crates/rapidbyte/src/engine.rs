//! The engine, and what it does with a pipeline.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_engine::document::Share;
use rapidbyte_engine::document::schema::Bundled as ConnectorSettings;
use rapidbyte_engine::lock::{self, LOCK_FILE, Lock, Pin};
use rapidbyte_engine::plan::{self, Checked, Discovered, Stage, write_mode_name};
use rapidbyte_engine::verify::{self, Compared, Repair, Verified};
use rapidbyte_engine::{
    Class, Failure, Host, IdleSessions, Kept, Narrowing, OnStreamFailure, Plan, Prepared, Repaired,
    Replayed, Report, Reuse, Usage,
};
use rapidbyte_runtime::cache::Cache;
use rapidbyte_runtime::{Embedded, NativeConnector, Runtime};

use crate::bundled::CONNECTORS;
use crate::connector::{Compiled, Described, LockChange, Locked};
use crate::control::Control;
use crate::cursors::Cursors;
use crate::memory_limit::MemoryOfRuns;
use crate::pipeline::Pipeline;
use crate::rejects::Rejects;
use crate::run::{PlannedRun, Preview, RunOptions, Unplanned};

/// Loads connectors and runs pipelines; from any number of threads at a time.
#[derive(Clone)]
pub struct Engine {
    runtime: Runtime,
    connector_dirs: Vec<PathBuf>,
    embedded: &'static [Embedded],
    native: Arc<[NativeConnector]>,
    memory: Option<Arc<MemoryOfRuns>>,
    idle: IdleSessions,
}

/// The scope of a comparison, and its treatment of rows that differ.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Which streams. A comparison is of whole streams: columns that are left out are refused.
    pub narrowing: Narrowing,
    /// Which share of the rows, chosen at random.
    pub sample: Share,
    /// Whether rows that differ are moved again.
    pub repair: Repair,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            narrowing: Narrowing::default(),
            sample: Share::WHOLE,
            repair: Repair::Nothing,
        }
    }
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

impl EngineBuilder {
    /// Looks for connectors in these folders, before those inside the program.
    #[must_use]
    pub fn connector_dirs(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.connector_dirs.extend(folders);
        self
    }

    /// Adds a connector that is part of the program. Its name wins over all others. A source and a destination may have
    /// one name.
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
            idle: IdleSessions::default(),
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

    /// The same engine with connectors that are part of the program, before those that it has. It shares the loaded
    /// connectors, the cache and the memory of all runs with this one.
    #[must_use]
    pub fn with_connectors(&self, connectors: impl IntoIterator<Item = NativeConnector>) -> Self {
        let native = connectors.into_iter().chain(self.native.iter().cloned());
        Self {
            native: native.collect(),
            ..self.clone()
        }
    }

    /// The engine as one call sees it, for `connector test`.
    #[doc(hidden)]
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
            reuse: None,
        }
    }

    /// Lets both connectors look at what they need, and plans. Nothing is written.
    ///
    /// # Errors
    /// A side that cannot be opened, or that cannot look; what a side finds wrong is part of what is returned.
    pub fn check(&self, pipeline: &Pipeline, control: &Control) -> Result<Checked, Failure> {
        let host = self.host(control).hurried();
        let mut checked = redacted(pipeline, plan::check(&pipeline.document, &host))?;
        let problems = checked.looked.iter_mut();
        let problems = problems.filter_map(|looked| looked.problem.as_mut());
        let unplanned = checked.planned.iter_mut();
        let unplanned = unplanned.filter_map(|planned| planned.as_mut().err());
        for failure in problems.chain(unplanned) {
            failure.redact(&pipeline.document);
        }
        Ok(checked)
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

    /// The stages of a pipeline with the grants that each would get. They describe themselves, and do nothing else.
    ///
    /// # Errors
    /// A connector that cannot be loaded, and a configuration that it does not take.
    pub fn grants(&self, pipeline: &Pipeline, control: &Control) -> Result<Vec<Stage>, Failure> {
        let host = self.host(control).hurried();
        redacted(pipeline, plan::granted(&pipeline.document, &host))
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
        let preview = self.preview(pipeline, narrowing, control)?;
        Ok(preview.prepared.plan)
    }

    /// Plans a run, and leaves the connectors open for [`Preview::refusals`].
    ///
    /// # Errors
    /// As of [`Engine::plan`].
    pub fn preview(
        &self,
        pipeline: &Pipeline,
        narrowing: &Narrowing,
        control: &Control,
    ) -> Result<Preview, Failure> {
        let host = self.host(control).hurried();
        let prepared = Prepared::narrowed(pipeline.document.clone(), &host, narrowing);
        let prepared = redacted(pipeline, prepared)?;
        Ok(Preview { prepared, host })
    }

    /// Compares the rows of targets with the rows of their sources. Changes nothing, unless it repairs rows that differ.
    /// [`Verified::failure`] says whether rows differ. `compared` gets the result of each stream as it is known.
    ///
    /// A repair has the turn of the pipeline, as a run does.
    ///
    /// # Errors
    /// An error that stops the whole comparison; `already_running` for a repair. A stream that cannot be compared is in
    /// [`Verified::failures`].
    pub fn verify(
        &self,
        pipeline: &Pipeline,
        options: &VerifyOptions,
        control: &Control,
        compared: impl FnMut(&Compared),
    ) -> Result<Verified, Failure> {
        let host = self.host(control);
        let VerifyOptions {
            narrowing,
            sample,
            repair,
        } = options;
        let document = pipeline.document.clone();
        let planned = match repair {
            Repair::Nothing => {
                Prepared::narrowed(document, &host, narrowing).map(|prepared| (prepared, None))
            }
            Repair::Rows => {
                let history = document.history();
                rapidbyte_engine::plan_repair(document, &host, narrowing, &history)
            }
        };
        let verified = planned.and_then(|(mut prepared, _turn)| {
            verify::verify(&mut prepared, &host, *sample, *repair, compared)
        });
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
        let planned = self.plan_run(pipeline, options, control);
        let mut planned = planned.map_err(|unplanned| *unplanned.failure)?;
        // Only a program that calls `plan_run` itself can continue without a history.
        let missing = redacted(pipeline, planned.open_history())?;
        redacted(pipeline, missing.map_or(Ok(()), Err))?;
        let mut report = None;
        let ended = planned.run(|ended| {
            report = ended.ok().cloned();
        });
        redacted(pipeline, ended)?;
        report.ok_or_else(|| Failure::new(Class::Run, "internal", "a run without a report"))
    }

    /// Closes the sessions that wait for another run: see [`RunOptions::reuse`].
    pub fn close_idle(&self) {
        self.idle.close();
    }

    /// How many sessions wait for another run.
    pub fn idle_sessions(&self) -> usize {
        self.idle.len()
    }

    /// Whether a run waits for memory that others have. Always false without a limit of memory for all runs.
    pub fn is_memory_wanted(&self) -> bool {
        self.memory
            .as_ref()
            .is_some_and(|memory| memory.is_wanted())
    }

    /// Takes the turn of a pipeline and plans its run, which [`PlannedRun::run`] then begins: for a caller that looks
    /// at the plan in between.
    ///
    /// # Errors
    /// `already_running`, `memory_of_engine`, and errors of planning. The history records a run that cannot be planned.
    pub fn plan_run(
        &self,
        pipeline: &Pipeline,
        options: &RunOptions,
        control: &Control,
    ) -> Result<PlannedRun, Unplanned> {
        let mut host = self.host(control);
        let mut document = pipeline.document.clone();
        let bytes = document.resources.memory;
        let memory = match &self.memory {
            Some(all) => Some(redacted(pipeline, all.take(bytes, &control.cancel))?),
            None => None,
        };
        if options.fail_fast {
            document.on_stream_failure = OnStreamFailure::Stop;
        }
        let file = options.history.file(|| document.history());
        // With a history, a session of PostgreSQL says to other runs that the pipeline is at work.
        let reuse = options.reuse.as_deref().filter(|_| file.is_none());
        host.reuse = reuse.map(|name| Reuse::new(&self.idle, name));
        let narrowing = &options.narrowing;
        let (mut prepared, turn) = match &file {
            Some(file) => rapidbyte_engine::plan_alone(document, &host, narrowing, file)
                .map_err(|unplanned| Unplanned::of(unplanned, pipeline))?,
            None => {
                let prepared = Prepared::narrowed(document, &host, narrowing);
                (redacted(pipeline, prepared)?, None)
            }
        };
        prepared.plan.commits_at_checkpoints = options.commit_at_checkpoints;
        Ok(PlannedRun {
            progress: rapidbyte_engine::progress(&prepared.plan),
            prepared,
            host,
            turn,
            history: options.history.clone(),
            file,
            recorded: None,
            _memory: memory,
        })
    }

    /// Opens the destination to show the cursors of a pipeline, or to move them if `changes` is true: without it the
    /// destination may write no files. `history` is the file of the history if it is not beside the pipeline.
    ///
    /// # Errors
    /// The errors of opening the destination, and `keeps_no_cursor`.
    pub fn cursors(
        &self,
        pipeline: &Pipeline,
        history: Option<&Path>,
        changes: bool,
        control: &Control,
    ) -> Result<Cursors, Failure> {
        let host = self.host(control);
        let document = &pipeline.document;
        let cursors = rapidbyte_engine::Cursors::open(document, &host, changes);
        Ok(Cursors {
            cursors: redacted(pipeline, cursors)?,
            file: history.map_or_else(|| document.history(), Path::to_path_buf),
            pipeline: pipeline.clone(),
            history: None,
        })
    }

    /// Opens the destination, which keeps the rejects of a pipeline.
    ///
    /// # Errors
    /// `no_rejects` and `unsupported_rejects`, and the errors of opening the destination.
    pub fn rejects(&self, pipeline: &Pipeline, control: &Control) -> Result<Rejects, Failure> {
        let kept = Kept::open(&pipeline.document, &self.host(control));
        Ok(Rejects {
            kept: redacted(pipeline, kept)?,
            pipeline: pipeline.clone(),
        })
    }

    /// Replays the rejects of a stream: the `repaired` ones, or all of them as they are.
    ///
    /// # Errors
    /// `replay_not_possible`, `already_running`, `reject_missing`, `record_incomplete`, `record_does_not_fit`, and errors of planning and
    /// running. Nothing of the commit that failed has changed.
    pub fn replay(
        &self,
        pipeline: &Pipeline,
        stream: &str,
        repaired: Option<Vec<Repaired>>,
        control: &Control,
    ) -> Result<Replayed, Failure> {
        let host = self.host(control);
        let replayed = rapidbyte_engine::replay(&pipeline.document, &host, stream, repaired);
        redacted(pipeline, replayed)
    }

    /// Writes the connectors of a pipeline that are files into the lock file beside the pipeline. It then runs no other
    /// files. With `update` it replaces entries that differ.
    ///
    /// # Errors
    /// `connector_changed` without `update`, `lock_unreadable`, `lock_not_written`, and errors of loading.
    pub fn lock(
        &self,
        pipeline: &Pipeline,
        update: bool,
        control: &Control,
    ) -> Result<Vec<Locked>, Failure> {
        let host = self.host(control);
        let document = &pipeline.document;
        let before = Lock::read(&document.base_dir)?;
        let mut lock = before.clone().unwrap_or_default();
        let mut locked = Vec::new();
        for used in document.connectors() {
            let origin = host.find(used, &document.base_dir)?;
            let Some(key) = lock::key(used, &origin) else {
                continue;
            };
            let (origin, connector) = host.load(used, &document.base_dir)?;
            let spec = host.describe_alone(&connector)?;
            let pin = Pin::of(used, &origin, &connector, &spec)?;
            let change = match lock.connectors.get(&key) {
                None => LockChange::Locked,
                Some(known) if *known == pin => LockChange::Unchanged,
                Some(known) if !update => return Err(changed(used, known, &pin)),
                Some(_) => LockChange::Updated,
            };
            lock.connectors.insert(key.clone(), pin.clone());
            locked.push(Locked {
                connector: key,
                change,
                pin,
            });
        }
        if !locked.is_empty() && before.as_ref() != Some(&lock) {
            lock.write(&document.base_dir)?;
        }
        Ok(locked)
    }

    /// The directories with connectors, in the order in which they are searched.
    pub fn connector_dirs(&self) -> &[PathBuf] {
        &self.connector_dirs
    }

    /// The names of all connectors that need no path, ordered.
    pub fn connectors(&self) -> Vec<String> {
        self.host(&Control::default()).bundled()
    }

    /// Loads a connector, by its name or by the path of its `.wasm` relative to `folder`, and lets it describe itself.
    ///
    /// # Errors
    /// `unknown_connector`, and the errors of loading.
    pub fn connector(
        &self,
        name: &str,
        folder: &Path,
        control: &Control,
    ) -> Result<Described, Failure> {
        let host = self.host(control);
        let (origin, connector) = host.load(name, folder)?;
        Ok(Described {
            name: name.to_owned(),
            spec: host.describe_alone(&connector)?,
            origin,
            connector,
        })
    }

    /// Compiles a connector, by its name or by the path of its `.wasm` relative to `folder`. None of its code runs.
    ///
    /// # Errors
    /// `unknown_connector`, and the errors of loading.
    pub fn compile(
        &self,
        name: &str,
        folder: &Path,
        control: &Control,
    ) -> Result<Compiled, Failure> {
        let (_, connector) = self.host(control).load(name, folder)?;
        Ok(Compiled::of(&connector))
    }

    /// The settings of all connectors that need no path, for [`pipeline_schema`](crate::pipeline_schema).
    ///
    /// # Errors
    /// The errors of loading, and `contract_broken` for a config schema that is not JSON.
    pub fn connector_settings(&self, control: &Control) -> Result<Vec<ConnectorSettings>, Failure> {
        let names = self.connectors().into_iter();
        let settings = names.map(|name| {
            let connector = self.connector(&name, Path::new("."), control)?;
            let modes = connector.spec.write_modes.iter();
            Ok(ConnectorSettings {
                kind: connector.kind(),
                description: connector.spec.description.clone(),
                write_modes: modes
                    .map(|mode| write_mode_name(*mode).to_owned())
                    .collect(),
                config: connector.config_schema()?,
                name,
            })
        });
        settings.collect()
    }
}

fn changed(used: &str, known: &Pin, found: &Pin) -> Failure {
    let more = found
        .asks_for
        .iter()
        .filter(|wish| !known.asks_for.contains(wish));
    let more: Vec<&str> = more.map(String::as_str).collect();
    let wishes = match more.as_slice() {
        [] => "and asks for no further grants".to_owned(),
        more => format!("and asks for further grants: {}", more.join(", ")),
    };
    let text = format!("{used} differs from the file in {LOCK_FILE}, {wishes}");
    Failure::new(Class::Config, "connector_changed", text)
        .hint("if you trust the new file, run the same command with --update")
}

/// Takes the values of the pipeline's secrets out of a failure.
fn redacted<T>(pipeline: &Pipeline, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|failure| failure.redacted(&pipeline.document))
}
