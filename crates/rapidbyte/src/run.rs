//! A run in steps: the engine plans it, the program inspects the plan, and then the run moves rows.

use std::path::PathBuf;
use std::sync::Arc;

use rapidbyte_engine::plan::{Refused, StreamPlan};
use rapidbyte_engine::{Failure, Host, Narrowing, Plan, Prepared, Progress, Report};
use rapidbyte_runtime::WriteMode;
use rapidbyte_state::{State, Turn};

use crate::history::{History, Recorded};
use crate::memory_limit::Taken;
use crate::pipeline::Pipeline;

/// The part of a pipeline that a run moves, and the place where the run is recorded.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Which streams, columns and rows.
    pub narrowing: Narrowing,
    /// The first stream that fails stops the run, whatever the pipeline says.
    pub fail_fast: bool,
    /// Incremental streams commit at each checkpoint, whatever the key `checkpoint` of the pipeline says: for a source that
    /// waits for the commit before it goes on. The limits of `rejects` then count since the last commit.
    pub commit_at_checkpoints: bool,
    /// Where the run is recorded.
    pub history: History,
    /// The run uses sessions that earlier runs with the same text have left, and leaves its own: the text stands for the
    /// whole pipeline with the values of its variables. They wait some seconds, or until [`Engine::close_idle`]. Without a
    /// text, and with a history, a run opens its own sessions and closes them.
    ///
    /// [`Engine::close_idle`]: crate::Engine::close_idle
    pub reuse: Option<String>,
}

/// A run that is planned and has the turn of its pipeline. No row has moved. If it is dropped, it gives the turn back.
///
/// ```
/// use rapidbyte::{Control, Engine, Environment, Pipeline, RunOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("in.csv"), "id\n1\n2\n")?;
/// # let (text, folder) = (rapidbyte::EXAMPLE, folder.path());
/// let engine = Engine::builder().cache(rapidbyte::user_cache().ok()).build()?;
/// let pipeline = Pipeline::from_str(text, folder, &Environment::process())?;
/// let planned = engine.plan_run(&pipeline, &RunOptions::default(), &Control::default());
/// let mut planned = planned.map_err(|unplanned| unplanned.failure)?;
/// for stream in &planned.plan().streams {
///     println!("{} -> {}", stream.name, stream.location);
/// }
/// planned.open_history()?;
/// planned.run(|ended| println!("{} rows", ended.map_or(0, |report| report.rows)))?;
/// # Ok(())
/// # }
/// ```
pub struct PlannedRun {
    pub(crate) prepared: Prepared,
    pub(crate) host: Host,
    pub(crate) turn: Option<Turn>,
    pub(crate) history: History,
    /// The file of the history.
    pub(crate) file: Option<PathBuf>,
    pub(crate) recorded: Option<Recorded>,
    pub(crate) progress: Arc<Progress>,
    /// Given back when the run has ended.
    pub(crate) _memory: Option<Taken>,
}

/// A run that did not come to its first row.
pub struct Unplanned {
    /// Why.
    pub failure: Box<Failure>,
    /// Where the attempt is recorded. `None` where another run is active, or where the history cannot be written.
    /// `None` also for a mistake in the pipeline file before the first history.
    pub recorded: Option<Recorded>,
}

impl From<Failure> for Unplanned {
    fn from(failure: Failure) -> Self {
        Self {
            failure: Box::new(failure),
            recorded: None,
        }
    }
}

impl Unplanned {
    pub(crate) fn of(unplanned: rapidbyte_engine::Unplanned, pipeline: &Pipeline) -> Self {
        Self {
            failure: Box::new(unplanned.failure.redacted(&pipeline.document)),
            recorded: unplanned.history.map(Recorded::new),
        }
    }
}

impl PlannedRun {
    /// The plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.prepared.plan
    }

    /// Counts that the run keeps up to date while it works.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The run in its history. `None` before [`PlannedRun::open_history`], and where the run is not recorded.
    pub fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }

    /// Opens the history in which the run is recorded. A run that is not recorded is not resumed after a crash, which
    /// only matters where rows would be appended twice. So if the history beside the pipeline cannot be opened and no
    /// stream is appended, this returns why, and the run can continue without a history.
    ///
    /// # Errors
    /// `state_unusable` and `state_busy`, if the history has a file of its own or a stream is appended.
    pub fn open_history(&mut self) -> Result<Option<Failure>, Failure> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let appends = |stream: &StreamPlan| stream.target.write_mode == WriteMode::Append;
        match State::open(file).map_err(Failure::of_state) {
            Ok(history) => {
                self.recorded = Some(Recorded::new(history));
                Ok(None)
            }
            Err(failure)
                if matches!(self.history, History::File(_))
                    || self.plan().streams.iter().any(appends) =>
            {
                Err(failure)
            }
            Err(failure) => Ok(Some(failure)),
        }
    }

    /// Moves the rows, and records the run if its history is open. Calls `ended` with the result before the end of the
    /// run is recorded: if the process dies in between, the next run resumes this one.
    ///
    /// # Errors
    /// The error that stopped the run, or the failures of its streams. Streams that committed before stay committed,
    /// and the failure lists them.
    pub fn run(self, ended: impl FnOnce(Result<&Report, &Failure>)) -> Result<(), Failure> {
        let history = self.recorded.as_ref().map(|recorded| &*recorded.state);
        rapidbyte_engine::run(
            self.prepared,
            &self.host,
            &self.progress,
            history,
            self.turn,
            ended,
        )
    }
}

/// A plan whose connectors are still open, so that the source can be asked about the moment of a run.
pub struct Preview {
    pub(crate) prepared: Prepared,
    pub(crate) host: Host,
}

/// The streams that a run would not move.
#[derive(Default)]
pub struct Refusals {
    /// Each stream with its failure.
    pub streams: Vec<Refused>,
    /// One failure for all of them. `None` if all streams can be moved.
    pub failure: Option<Failure>,
}

impl Preview {
    /// The plan that a run would follow.
    pub fn plan(&self) -> &Plan {
        &self.prepared.plan
    }

    /// The streams that a run would not move. Lets the source take its snapshot, which shows what it refuses to read.
    /// Nothing is written.
    ///
    /// # Errors
    /// An error that would stop a run.
    pub fn refusals(&mut self) -> Result<Refusals, Failure> {
        let document = self.prepared.plan.document.clone();
        let taken = self.prepared.take_moment(&self.host);
        let taken = taken.map_err(|failure| failure.redacted(&document))?;
        let plan = &self.prepared.plan;
        Ok(Refusals {
            streams: plan.all_refused(&taken),
            failure: plan
                .refusal(&taken)
                .map(|failure| failure.redacted(&document)),
        })
    }
}
