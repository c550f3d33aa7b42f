//! A run that a newer run has overtaken.
//!
//! The first error of an overtaken run looks like something else: a file that the newer run has
//! moved, a cursor beyond its snapshot, a commit that the server refuses. So the engine asks the
//! destination, and the error names the newer run or its epoch.

use rapidbyte_runtime::{Clock, Destination, Progress, Run};

use crate::cursors::STATE;
use crate::document::WhenRunning;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::{self, base};
use crate::ledger::Ledger;
use crate::plan::{Plan, StreamPlan, planning_sandbox};

/// One stream of a run.
pub(crate) struct Asking<'a> {
    pub plan: &'a Plan,
    pub stream: &'a StreamPlan,
    pub ledger: &'a Ledger<'a>,
}

impl Asking<'_> {
    /// Whether a run that counts as dead has committed all of a stream that is added once: this run takes its place. A
    /// run that is alive may still succeed, so a run that replaces it does not take its place.
    pub(crate) fn is_done(&self, destination: &mut Destination) -> Result<bool, Failure> {
        let is_alive = self.plan.document.when_running == WhenRunning::Replace;
        let Some(dead) = self.ledger.replaces.as_deref().filter(|_| !is_alive) else {
            return Ok(false);
        };
        if !known_as::is_added_once(self.stream) {
            return Ok(false);
        }
        let id = self.ledger.asked.id(dead, self.stream);
        let found = self.found(destination)?;
        Ok(found.is_some_and(|found| found.complete && found.run_id == id))
    }

    /// Refuses to fence behind a newer run: this run would fence the newer run and write older rows.
    /// A run that has fenced before, or that planned with the stream's progress, knows which epoch it
    /// expects. Returns the epoch in the destination, where it matters.
    pub(crate) fn refuse(&self, destination: &mut Destination) -> Result<Option<u64>, Failure> {
        if self.fences_nothing() {
            return Ok(None);
        }
        let turn = self.ledger.turn.as_ref();
        if turn.is_some_and(|turn| turn.is_lost()) {
            let run = &self.ledger.run.id;
            let text = format!(
                "a newer run took the lock of the run {run}, which begins no stream any more"
            );
            return Err(self.told(text, NEWER));
        }
        let tally = self.ledger.of(&self.stream.name);
        let was_let_in = tally.was_let_in;
        // Planning keeps the destination's progress of incremental streams, and of streams whose keys are compared.
        if !was_let_in && self.stream.increment.is_none() && self.stream.keys.is_none() {
            return Ok(None);
        }
        let found = self.found(destination)?;
        let planned = self.stream.progress.as_ref();
        let expected = planned.map_or(0, |progress| progress.epoch);
        let expected = tally.trailed.unwrap_or(expected);
        match found {
            Some(older) if !was_let_in && older.epoch > expected && self.is_replaced(&older) => {
                self.ledger.trailed(&self.stream.name, older.epoch);
                Err(self.trails(&older))
            }
            Some(newer)
                if newer.run_id != self.run().id && (was_let_in || newer.epoch > expected) =>
            {
                Err(self.failure(&newer))
            }
            found => Ok(Some(found.map_or(0, |found| found.epoch))),
        }
    }

    /// Whether this run took the turn from `run`, which has fenced the stream since. Commits of `run` may be
    /// newer than the snapshot of this run.
    fn is_replaced(&self, run: &Progress) -> bool {
        let replaced = self.ledger.replaces.as_deref();
        run.run_id != self.run().id && replaced == Some(base(&run.run_id))
    }

    /// A transient failure: a retry takes a later snapshot.
    fn trails(&self, older: &Progress) -> Failure {
        let text = format!(
            "the run {}, which this run replaces, began this stream after this run had planned",
            base(&older.run_id)
        );
        let mut failure = Failure::new(Class::Run, CODE, text).in_stream(&self.stream.name);
        failure.passes_after_ms = Some(0);
        failure.hint(NEWER)
    }

    /// Remembers that a newer run fenced the stream after `before` was read and before this run fenced it. This
    /// run is the newest now and may continue, but it reads older rows.
    pub(crate) fn let_in(&self, before: Option<u64>, fenced: &Progress) {
        if let Some(before) = before
            && fenced.epoch > before + 1
        {
            self.ledger.overtaken(&self.stream.name, fenced.epoch - 1);
        }
    }

    /// Refuses to compare keys behind a newer run that fenced the stream while this run began: the keys of this run are
    /// older than the rows of the newer run, which would be deleted.
    pub(crate) fn refuse_older_keys(&self) -> Result<(), Failure> {
        match self.ledger.of(&self.stream.name).overtaken {
            Some(epoch) if self.stream.keys.is_some() => Err(self.told(
                format!(
                    "a newer run fenced the run {} (epoch {epoch}) after it had planned, and deletes would compare \
                     older keys with the rows of the newer run",
                    base(&self.run().id)
                ),
                "run again: the next run compares the keys of a later snapshot",
            )),
            _ => Ok(()),
        }
    }

    /// `run_superseded` for a failure of a run that has fenced, if a newer run has fenced too.
    /// Otherwise, and if the destination cannot be asked, `failure`.
    pub(crate) fn explain(&self, failure: Failure, host: &Host) -> Failure {
        let is_known = failure.class == Class::Cancelled || failure.code == CODE;
        let supports_checkpoints = self.plan.destination.spec.supports_checkpoints;
        let was_let_in = self.ledger.of(&self.stream.name).was_let_in;
        if is_known
            || self.fences_nothing()
            || !supports_checkpoints
            || !was_let_in
            || host.cancel.is_cancelled()
        {
            return failure;
        }
        match (self.ask(host), self.ledger.of(&self.stream.name).overtaken) {
            (Ok(Some(newer)), _) => self.failure(&newer),
            (Ok(None), Some(epoch)) => self.told(
                format!(
                    "a newer run fenced the run {} (epoch {epoch}) after it had planned, and it cannot resume behind \
                     the newer run ({}: {})",
                    base(&self.run().id), failure.code, failure.message
                ),
                NEWER,
            ),
            _ => failure,
        }
    }

    /// A replay fences nothing: its rejects, or the keys of a repair, protect its rows. Staged rows need no protection.
    /// The epoch in the destination belongs to another run then, also before a retry.
    fn fences_nothing(&self) -> bool {
        self.stream.replay.is_some() || self.stream.target.stages
    }

    /// The run that fenced last, if it is another run. A new session asks, because the failed session may be
    /// unusable.
    fn ask(&self, host: &Host) -> Result<Option<Progress>, Failure> {
        let failed = |e| Failure::from_runtime(e, &self.plan.document, "destination");
        let stage = &self.plan.destination;
        let clock = Clock::new();
        let sandbox = planning_sandbox(&self.plan.document, host, &clock, stage);
        let mut destination = stage.connector.destination(sandbox).map_err(failed)?;
        destination.open(&stage.config).map_err(failed)?;
        let found = self.found(&mut destination)?;
        Ok(found.filter(|found| found.run_id != self.run().id))
    }

    /// How far the stream is.
    pub(crate) fn found(&self, destination: &mut Destination) -> Result<Option<Progress>, Failure> {
        let found = destination.progress(&self.stream.target, &self.run().pipeline);
        found.map_err(|error| {
            let failure = Failure::from_runtime(error, &self.plan.document, "destination");
            failure.in_stream(&self.stream.name)
        })
    }

    /// The run that moves the stream, which may be one that failed before.
    fn run(&self) -> &Run {
        self.ledger.run_of(&self.stream.name)
    }

    fn failure(&self, newer: &Progress) -> Failure {
        let (run, epoch) = (base(&self.run().id), newer.epoch);
        match base(&newer.run_id) {
            STATE => self.told(
                format!(
                    "`rapidbyte state` moved the cursor during the run {run} (epoch {epoch}), which cannot commit any \
                     more"
                ),
                "run again: the next run resumes from the cursor that was set",
            ),
            newer => self.told(
                format!(
                    "the newer run {newer} fenced the run {run} (epoch {epoch}), which cannot commit any more"
                ),
                NEWER,
            ),
        }
    }

    fn told(&self, text: String, hint: &str) -> Failure {
        let failure = Failure::new(Class::Run, CODE, text)
            .in_stream(&self.stream.name)
            .hint(hint);
        Failure {
            stops_run: true,
            ..failure
        }
    }
}

const CODE: &str = "run_superseded";
const NEWER: &str = "let one run of a pipeline end before another begins; the newer one continues";
