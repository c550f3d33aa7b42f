//! What a run has committed: told to the local history and to the source, and counted for the report.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use rapidbyte_runtime::{Level, Progress, Run, fault};
use rapidbyte_state::{Known, State, Watch};

use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::{self, Asked};
use crate::plan::{Held, Plan};

/// The books of one run.
pub(crate) struct Ledger<'a> {
    /// Who is at work.
    pub(crate) run: Run,
    /// The ids of the runs in which streams failed that have not succeeded since, by stream: such a stream
    /// is moved under that id.
    pub(crate) resumed: HashMap<String, String>,
    /// The runs as the destination knows them, by stream, where that is not `run`.
    pub(crate) known_as: HashMap<String, Run>,
    /// What the run that this one resumes has appended, by stream: an id and a target.
    pub(crate) completed: HashMap<String, HashSet<String>>,
    /// The targets of full refreshes, by stream.
    pub(crate) targets: HashMap<String, String>,
    /// What decides these ids.
    pub(crate) asked: Asked,
    /// The id of the run that still had the turn of the pipeline when this one took it.
    pub(crate) replaces: Option<String>,
    /// The turn of the pipeline; none where the folder takes no lock.
    pub(crate) turn: Option<Watch>,
    /// The run resumes one that did not finish.
    pub(crate) goes_on: bool,
    /// None where it cannot be written and nothing depends on it.
    pub(crate) history: Option<&'a State>,
    pub(crate) host: &'a Host,
    pub(crate) tallies: Mutex<HashMap<String, Tally>>,
}

/// What one commit made visible.
pub(crate) struct Committed {
    pub(crate) rows: u64,
    /// Of Arrow data.
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    /// What the destination wrote.
    pub(crate) written_bytes: u64,
    pub(crate) location: String,
}

/// The sum of a stream's commits in this run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) commits: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) written_bytes: u64,
    pub(crate) location: String,
    /// The run had moved it before it was killed.
    pub(crate) skipped: bool,
    /// What the operator has to know about the stream.
    pub(crate) warning: Option<String>,
    /// The destination has let this run in before.
    pub(crate) was_let_in: bool,
    /// The epoch of a newer run that came and went while this one planned.
    pub(crate) overtaken: Option<u64>,
    /// The epoch at which an older run was let in after this one had planned.
    pub(crate) trailed: Option<u64>,
}

impl Ledger<'_> {
    /// The run under whose id the destination moves a stream.
    pub(crate) fn run_of(&self, stream: &str) -> &Run {
        self.known_as.get(stream).unwrap_or(&self.run)
    }

    /// The id in the history of the run that a stream belongs to.
    pub(crate) fn id_of(&self, stream: &str) -> &str {
        self.resumed.get(stream).unwrap_or(&self.run.id)
    }

    /// The destination has let the run in, and said how far a stream is.
    pub(crate) fn heal(&self, stream: &str, progress: &Progress) {
        self.tally(stream, |tally| tally.was_let_in = true);
        if let Some(history) = self.history {
            let Run { pipeline, id } = self.run_of(stream);
            self.or_warn(history.heal(pipeline, stream, id, known(progress)));
        }
    }

    /// The ids under which the run that this one resumes has appended a stream to its target.
    pub(crate) fn appended_as(&self, stream: &str) -> HashSet<String> {
        let (Some(target), Some(known)) = (self.targets.get(stream), self.completed.get(stream))
        else {
            return HashSet::new();
        };
        let of_target = |known: &String| {
            let (id, of) = known.split_once(' ')?;
            (of == target).then(|| id.to_owned())
        };
        known.iter().filter_map(of_target).collect()
    }

    /// A stream was appended as a whole under this id.
    pub(crate) fn has_appended(&self, stream: &str, id: &str) {
        if let (Some(history), Some(target)) = (self.history, self.targets.get(stream)) {
            let known = format!("{id} {target}");
            self.or_warn(history.completes(&self.run.pipeline, stream, &known));
        }
    }

    /// What was appended to the target of a stream is not there any more.
    pub(crate) fn has_lost(&self, stream: &str) {
        if let (Some(history), Some(target)) = (self.history, self.targets.get(stream)) {
            self.or_warn(history.forget_completed(&self.run.pipeline, stream, target));
        }
    }

    /// The streams that the run which this one resumes has appended, and that are not among `names`.
    pub(crate) fn appended_beside(&self, names: &[String]) -> Vec<String> {
        let is_of_run = |known: &String| {
            let id = known.split(' ').next().unwrap_or_default();
            known_as::base(id) == self.run.id
        };
        let mut left: Vec<String> = self
            .completed
            .iter()
            .filter(|(stream, known)| !names.contains(stream) && known.iter().any(is_of_run))
            .map(|(stream, _)| stream.clone())
            .collect();
        left.sort();
        left
    }

    /// Tells the operator something about a stream, now and in the report.
    pub(crate) fn warn(&self, stream: &str, text: String) {
        self.host.log(Some(stream), Level::Warn, &text);
        self.tally(stream, |tally| tally.warning = Some(text));
    }

    /// A newer run came and went while this one planned.
    pub(crate) fn overtaken(&self, stream: &str, epoch: u64) {
        self.tally(stream, |tally| tally.overtaken = Some(epoch));
    }

    /// An older run, which does not have the turn any more, was let in while this one planned.
    pub(crate) fn trailed(&self, stream: &str, epoch: u64) {
        self.tally(stream, |tally| tally.trailed = Some(epoch));
    }

    /// The stream was moved by this run before.
    pub(crate) fn skipped(&self, stream: &str) {
        self.tally(stream, |tally| tally.skipped = true);
    }

    /// A commit has happened: first it is counted, then told to the history, then to the source.
    pub(crate) fn committed(
        &self,
        (plan, held): (&Plan, &Held),
        stream: &str,
        progress: &Progress,
        committed: Committed,
    ) -> Result<(), Failure> {
        let (rows, bytes) = (committed.rows, committed.bytes);
        self.tally(stream, |tally| {
            tally.commits += 1;
            tally.rows += rows;
            tally.bytes += bytes;
            tally.batches += committed.batches;
            tally.written_bytes += committed.written_bytes;
            tally.location = committed.location;
        });
        self.host.tell(&Event::Committed {
            stream,
            rows,
            bytes,
        });
        if let Some(history) = self.history {
            let runs = (self.run.id.as_str(), self.run_of(stream).id.as_str());
            let (pipeline, known) = (&self.run.pipeline, known(progress));
            self.or_warn(history.committed(pipeline, stream, runs, known, (rows, bytes)));
        }
        point("engine.recorded", stream)?;
        if let Some(cursor) = &progress.cursor {
            held.with_coordinator(|source| source.acknowledge(stream, cursor))
                .transpose()
                .map_err(|e| Failure::from_runtime(e, &plan.document, "source"))?;
        }
        point("engine.acknowledged", stream)
    }

    /// What was committed of a stream so far.
    pub(crate) fn of(&self, stream: &str) -> Tally {
        self.tally(stream, |tally| tally.clone())
    }

    fn tally<T>(&self, stream: &str, change: impl FnOnce(&mut Tally) -> T) -> T {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        change(tallies.entry(stream.to_owned()).or_default())
    }

    /// The destination has what counts: a history that cannot be written is worth a word.
    fn or_warn(&self, told: rapidbyte_state::Result<()>) {
        if let Err(error) = told {
            let text = format!("the local history is behind: {error}");
            self.host.log(None, Level::Warn, &text);
        }
    }
}

/// As the local history keeps it.
pub(crate) fn known(progress: &Progress) -> Known<'_> {
    Known {
        epoch: progress.epoch,
        seq: progress.seq,
        cursor: progress.cursor.as_deref(),
        complete: progress.complete,
    }
}

/// Reaches a named point of a run, where a test may inject a fault.
pub(crate) fn point_of_run(name: &str) -> Result<(), Failure> {
    fault::point(name).map_err(|injected| {
        let mut failure = Failure::new(Class::Run, "fault_injected", injected);
        failure.passes_after_ms = Some(0);
        failure
    })
}

/// The same of a stream.
pub(crate) fn point(name: &str, stream: &str) -> Result<(), Failure> {
    point_of_run(name).map_err(|failure| failure.in_stream(stream))
}
