//! The commits of a run: recorded in the local history, and counted for the report.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use rapidbyte_runtime::{Level, Progress, Run, fault};
use rapidbyte_state::{Known, State, Watch};

use crate::event::Event;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::{self, Asked};
use crate::report::Rejected;

/// The books of one run.
pub(crate) struct Ledger<'a> {
    /// This run.
    pub(crate) run: Run,
    /// The ids of earlier runs, by stream, for streams that failed there and have not succeeded since, or that were
    /// appended there and whose run did not finish. Such a stream moves under that id.
    pub(crate) resumed: HashMap<String, String>,
    /// The runs as the destination knows them, by stream, where that is not `run`.
    pub(crate) known_as: HashMap<String, Run>,
    /// The streams that unfinished runs have appended, each with ids and targets.
    pub(crate) completed: HashMap<String, HashSet<String>>,
    /// The targets of full refreshes, by stream.
    pub(crate) targets: HashMap<String, String>,
    /// Decides these ids.
    pub(crate) asked: Asked,
    /// The id of the run that still had the turn of the pipeline when this one took it.
    pub(crate) replaces: Option<String>,
    /// The turn of the pipeline. `None` where the folder takes no lock.
    pub(crate) turn: Option<Watch>,
    /// The run resumes one that did not finish.
    pub(crate) goes_on: bool,
    /// `None` if it cannot be written and nothing depends on it.
    pub(crate) history: Option<&'a State>,
    pub(crate) host: &'a Host,
    pub(crate) tallies: Mutex<HashMap<String, Tally>>,
}

/// The rows that one commit made visible.
pub(crate) struct Committed {
    pub(crate) rows: u64,
    /// Of Arrow data.
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    /// Bytes that the destination wrote.
    pub(crate) written_bytes: u64,
    /// Rows that it deleted or marked because the source does not have their keys.
    pub(crate) deleted: u64,
    pub(crate) location: String,
    /// Records that were kept as rejects.
    pub(crate) rejected: Rejected,
}

/// The sum of a stream's commits in this run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) commits: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) written_bytes: u64,
    pub(crate) deleted: u64,
    pub(crate) location: String,
    /// Records that were kept as rejects.
    pub(crate) rejected: Rejected,
    /// The run had moved it before it was killed.
    pub(crate) skipped: bool,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
    /// This run has fenced the stream.
    pub(crate) was_let_in: bool,
    /// The statements that changed the columns of its target.
    pub(crate) changes: Vec<String>,
    /// The run reads it from its first row, and the destination knows.
    pub(crate) begins_anew: bool,
    /// The epoch of a newer run that came and went while this one planned.
    pub(crate) overtaken: Option<u64>,
    /// The epoch of an older run that fenced the stream after this run had planned.
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

    /// The run has fenced a stream, and the destination has reported its progress.
    pub(crate) fn heal(&self, stream: &str, progress: &Progress) {
        self.tally(stream, |tally| tally.was_let_in = true);
        if let Some(history) = self.history {
            let Run { pipeline, id } = self.run_of(stream);
            self.or_warn(history.heal(pipeline, stream, id, known(progress)));
        }
    }

    /// The ids under which unfinished runs have appended a stream to its target.
    pub(crate) fn appended_as(&self, stream: &str) -> HashSet<String> {
        let (Some(target), Some(known)) = (self.targets.get(stream), self.completed.get(stream))
        else {
            return HashSet::new();
        };
        known_as::appended_to(known, target)
            .map(str::to_owned)
            .collect()
    }

    /// The target of a stream. A stream that could not be planned has the target into which this run has appended it.
    pub(crate) fn target_of(&self, stream: &str) -> Option<String> {
        let known = self.completed.get(stream).into_iter().flatten();
        let of_run = known.filter_map(|known| known.split_once(' '));
        let mut of_run = of_run.filter(|(id, _)| known_as::base(id) == self.id_of(stream));
        let planned = self.targets.get(stream).map(String::as_str);
        let target = planned.or_else(|| of_run.next().map(|(_, target)| target));
        target.map(str::to_owned)
    }

    /// A stream was appended as a whole under this id.
    pub(crate) fn has_appended(&self, stream: &str, id: &str) {
        if let (Some(history), Some(target)) = (self.history, self.targets.get(stream)) {
            let known = format!("{id} {target}");
            self.or_warn(history.completes(&self.run.pipeline, stream, &known));
        }
    }

    /// The rows that were appended to the target of a stream are not there any more.
    pub(crate) fn has_lost(&self, stream: &str) {
        if let (Some(history), Some(target)) = (self.history, self.targets.get(stream)) {
            self.or_warn(history.forget_completed(&self.run.pipeline, stream, target));
        }
    }

    /// Tells the operator something about a stream, now and in the report.
    pub(crate) fn warn(&self, stream: &str, text: String) {
        self.host.log(Some(stream), Level::Warn, &text);
        self.tally(stream, |tally| {
            // Another attempt may say the same again.
            if !tally.warnings.contains(&text) {
                tally.warnings.push(text);
            }
        });
    }

    /// The destination has changed the columns of a stream's target.
    pub(crate) fn changed(&self, stream: &str, statements: Vec<String>) {
        if statements.is_empty() {
            return;
        }
        for statement in &statements {
            let text = format!("the target was changed: {statement}");
            self.host.log(Some(stream), Level::Info, &text);
        }
        self.host.tell(&Event::SchemaChanged {
            stream,
            statements: &statements,
        });
        self.tally(stream, |tally| tally.changes.extend(statements));
    }

    /// The destination has forgotten the cursor of a stream that this run reads from its first row.
    pub(crate) fn begins_anew(&self, stream: &str) {
        self.tally(stream, |tally| tally.begins_anew = true);
    }

    /// A newer run came and went while this one planned.
    pub(crate) fn overtaken(&self, stream: &str, epoch: u64) {
        self.tally(stream, |tally| tally.overtaken = Some(epoch));
    }

    /// An older run, which does not have the turn any more, fenced the stream after this run had planned.
    pub(crate) fn trailed(&self, stream: &str, epoch: u64) {
        self.tally(stream, |tally| tally.trailed = Some(epoch));
    }

    /// The stream was moved by this run before.
    pub(crate) fn skipped(&self, stream: &str) {
        self.tally(stream, |tally| tally.skipped = true);
    }

    /// A commit has happened: first it is counted, then it is recorded in the history.
    pub(crate) fn committed(
        &self,
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
            tally.deleted += committed.deleted;
            tally.location = committed.location;
            tally.rejected.add(committed.rejected);
        });
        self.host.tell(&Event::Committed {
            stream,
            rows,
            bytes,
            cursor: progress.cursor.as_deref(),
        });
        if let Some(history) = self.history {
            let runs = (self.run.id.as_str(), self.run_of(stream).id.as_str());
            let (pipeline, known) = (&self.run.pipeline, known(progress));
            self.or_warn(history.committed(pipeline, stream, runs, known, (rows, bytes)));
        }
        point("engine.recorded", stream)
    }

    /// The commits of a stream so far.
    pub(crate) fn of(&self, stream: &str) -> Tally {
        self.tally(stream, |tally| tally.clone())
    }

    fn tally<T>(&self, stream: &str, change: impl FnOnce(&mut Tally) -> T) -> T {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        change(tallies.entry(stream.to_owned()).or_default())
    }

    /// The destination has the rows and the cursor, so a history that cannot be written is only a warning.
    fn or_warn(&self, told: rapidbyte_state::Result<()>) {
        if let Err(error) = told {
            let text = format!("the local history is behind: {error}");
            self.host.log(None, Level::Warn, &text);
        }
    }
}

/// The form that the local history keeps.
pub(crate) fn known(progress: &Progress) -> Known<'_> {
    Known {
        epoch: progress.epoch,
        seq: progress.seq,
        cursor: progress.cursor.as_deref(),
        complete: progress.complete,
    }
}

/// A failpoint of a run: a test may inject a fault here.
pub(crate) fn point_of_run(name: &str) -> Result<(), Failure> {
    fault::point(name).map_err(|injected| {
        let mut failure = Failure::new(Class::Run, "fault_injected", injected);
        failure.passes_after_ms = Some(0);
        failure
    })
}

/// The same for a stream.
pub(crate) fn point(name: &str, stream: &str) -> Result<(), Failure> {
    point_of_run(name).map_err(|failure| failure.in_stream(stream))
}
