//! A run that a newer one has overtaken.
//!
//! What such a run meets first looks like something else: a file that the newer run has moved, a
//! cursor beyond its snapshot, a commit that the server refuses. So the destination is asked, and
//! the error says which run it was.

use rapidbyte_runtime::{Clock, Destination, Progress};

use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::ledger::Ledger;
use crate::plan::{Plan, StreamPlan, planning_sandbox};

/// One stream of a run.
pub(crate) struct Asking<'a> {
    pub plan: &'a Plan,
    pub stream: &'a StreamPlan,
    pub ledger: &'a Ledger<'a>,
}

impl Asking<'_> {
    /// Refuses to let the run in behind a newer one: it would shut out the newer run and write rows
    /// that are older. A run that was let in before, or that planned with the stream's progress,
    /// knows which epoch it expects.
    pub(crate) fn refuse(&self, destination: &mut Destination) -> Result<(), Failure> {
        let was_let_in = self.ledger.of(&self.stream.name).was_let_in;
        // Of a stream that is read whole nobody asked the destination while planning.
        if !was_let_in && self.stream.increment.is_none() {
            return Ok(());
        }
        let found = self.newest(destination)?;
        let planned = self.stream.progress.as_ref();
        let expected = planned.map_or(0, |progress| progress.epoch);
        match found {
            Some(newer) if was_let_in || newer.epoch > expected => Err(self.failure(&newer)),
            _ => Ok(()),
        }
    }

    /// The same after the run was let in: a newer run may have come and gone since the question.
    pub(crate) fn refuse_overtaken(&self, fenced: &Progress) -> Result<(), Failure> {
        let planned = self.stream.progress.as_ref();
        let expected = planned.map_or(0, |progress| progress.epoch) + 1;
        if self.stream.increment.is_none() || fenced.epoch <= expected {
            return Ok(());
        }
        let text = format!(
            "a newer run was let in with epoch {}, after the run {} had planned, which would go on \
             with rows that are older",
            fenced.epoch - 1,
            self.ledger.run.id
        );
        Err(self.told(text))
    }

    /// `run_superseded` for a failure of a run that was let in, if a newer run was let in since;
    /// `failure` if not, or if the destination cannot be asked.
    pub(crate) fn explain(&self, failure: Failure, host: &Host) -> Failure {
        let is_known = failure.class == Class::Cancelled || failure.code == CODE;
        let keeps_cursor = self.plan.destination.spec.keeps_cursor;
        let was_let_in = self.ledger.of(&self.stream.name).was_let_in;
        if is_known || !keeps_cursor || !was_let_in || host.cancel.is_cancelled() {
            return failure;
        }
        match self.ask(host) {
            Ok(Some(newer)) => self.failure(&newer),
            _ => failure,
        }
    }

    /// The failed session may be of no use: another one asks.
    fn ask(&self, host: &Host) -> Result<Option<Progress>, Failure> {
        let failed = |e| Failure::from_runtime(e, &self.plan.document, "destination");
        let stage = &self.plan.destination;
        let clock = Clock::new();
        let sandbox = planning_sandbox(&self.plan.document, host, &clock, stage);
        let mut destination = stage.connector.destination(sandbox).map_err(failed)?;
        destination.open(&stage.config).map_err(failed)?;
        self.newest(&mut destination)
    }

    /// The newest run that was let in, if it is another one.
    fn newest(&self, destination: &mut Destination) -> Result<Option<Progress>, Failure> {
        let run = self.ledger.run_of(&self.stream.name);
        let found = destination.progress(&self.stream.target, &run.pipeline);
        let found = found.map_err(|error| {
            let failure = Failure::from_runtime(error, &self.plan.document, "destination");
            failure.in_stream(&self.stream.name)
        })?;
        Ok(found.filter(|found| found.run_id != run.id))
    }

    fn failure(&self, newer: &Progress) -> Failure {
        let text = format!(
            "the newer run {} was let in with epoch {}, and the run {} may not commit any more",
            newer.run_id, newer.epoch, self.ledger.run.id
        );
        self.told(text)
    }

    fn told(&self, text: String) -> Failure {
        let failure = Failure::new(Class::Run, CODE, text)
            .in_stream(&self.stream.name)
            .hint("let one run of a pipeline end before another begins; the newer one continues");
        Failure {
            stops_run: true,
            ..failure
        }
    }
}

const CODE: &str = "run_superseded";
