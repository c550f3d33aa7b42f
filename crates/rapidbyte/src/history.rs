//! The runs that a pipeline has had on this machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rapidbyte_engine::document::Named;
use rapidbyte_engine::{Environment, Failure};
use rapidbyte_state::{AttemptRecord, RunRecord, State};

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

impl History {
    /// The file of the history; `beside` is the one beside the pipeline.
    pub(crate) fn file(&self, beside: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
        match self {
            Self::Beside => Some(beside()),
            Self::File(file) => Some(file.clone()),
            Self::Off => None,
        }
    }
}

/// The history of one pipeline. It needs no variable of the pipeline file except those in its name.
#[derive(Debug, Clone)]
pub struct PastRuns {
    pipeline: String,
    file: String,
    history: Option<PathBuf>,
}

/// Runs and their attempts, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<RunRecord>,
    /// Their attempts: a run that did not finish is resumed under its id.
    pub attempts: Vec<AttemptRecord>,
}

impl PastRuns {
    /// Reads the name of a pipeline in its file.
    ///
    /// # Errors
    /// A file that cannot be read or is not YAML, and a missing or invalid name.
    pub fn of_file(
        file: &Path,
        environment: &Environment<'_>,
        history: &History,
    ) -> Result<Self, Failure> {
        let named = Named::load(file, environment)?;
        Ok(Self {
            history: history.file(|| named.history()),
            pipeline: named.pipeline,
            file: named.file,
        })
    }

    /// The pipeline's name.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// The pipeline file, as it was named.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The file of the history, whether it exists or not. `None` with [`History::Off`].
    pub fn history(&self) -> Option<&Path> {
        self.history.as_deref()
    }

    /// The last runs and the last attempts: at most `most` of each. Creates and writes nothing. Before the first run
    /// there are none.
    ///
    /// # Errors
    /// `state_unusable` and `state_busy`.
    pub fn last(&self, most: u32) -> Result<Runs, Failure> {
        let Some(history) = self.history.as_deref() else {
            return Ok(Runs::default());
        };
        let Some(history) = State::look(history).map_err(Failure::of_state)? else {
            return Ok(Runs::default());
        };
        let pipeline = Some(self.pipeline.as_str());
        Ok(Runs {
            runs: history.runs(pipeline, most).map_err(Failure::of_state)?,
            attempts: history
                .attempts(pipeline, most)
                .map_err(Failure::of_state)?,
        })
    }
}

/// A run in its history, while it works.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub(crate) state: Arc<State>,
}

impl Recorded {
    pub(crate) fn new(state: State) -> Self {
        Self {
            state: Arc::new(state),
        }
    }

    /// The id of the run, which is set when the run begins.
    pub fn run_id(&self) -> Arc<OnceLock<String>> {
        self.state.begun()
    }

    /// The attempt that this process is. `None` before the run begins, and where the history cannot be read.
    pub fn attempt(&self) -> Option<AttemptRecord> {
        let id = self.state.begun();
        self.state.attempt_of(id.get()?).ok().flatten()
    }

    /// Records the file with the report of an attempt.
    ///
    /// # Errors
    /// `state_unusable` and `state_busy`.
    pub fn set_report(&self, attempt: &AttemptRecord, report: &Path) -> Result<(), Failure> {
        let recorded = self.state.reported(attempt, report);
        recorded.map_err(Failure::of_state)
    }
}
