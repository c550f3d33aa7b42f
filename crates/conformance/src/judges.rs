//! Judges that are asked one after the other.

use std::time::Instant;

use rapidbyte_runtime::Cancel;

use crate::verdict::{Clause, Judged, Outcome, Verdict, skip};

/// Asks the judges one after the other.
pub(crate) struct Judges<'t> {
    pub told: &'t mut dyn FnMut(&Outcome),
    pub outcomes: Vec<Outcome>,
    pub cancel: Cancel,
    /// The clause that tells why nothing more is judged.
    pub stopped: Option<&'static Clause>,
}

impl Judges<'_> {
    /// Judges nothing any more and tells nothing: the settings are wrong, and one line says so.
    pub fn stop(&mut self, clause: &'static Clause) {
        self.stopped = Some(clause);
    }

    /// The same, where the newest clause tells it.
    pub fn stop_at_newest(&mut self) {
        self.stopped = self.outcomes.last().map(|outcome| outcome.clause);
    }

    /// Whether the newest clause was not judged because the settings or the data are wrong.
    pub fn met_wrong_setup(&self) -> bool {
        let newest = self.outcomes.last().map(|outcome| &outcome.verdict);
        matches!(newest, Some(Verdict::Skip { setup: true, .. }))
    }

    /// Keeps a verdict that was found before, and tells it.
    pub fn found(&mut self, clause: &'static Clause, judged: Judged) {
        let stopped = std::mem::take(&mut self.stopped);
        self.judge(clause, || judged);
        self.stopped = stopped;
    }

    pub fn judge(&mut self, clause: &'static Clause, judge: impl FnOnce() -> Judged) {
        let begun = Instant::now();
        let verdict = if self.cancel.is_cancelled() {
            skip("interrupted")
        } else if let Some(clause) = self.stopped {
            skip(format!("not judged: see {}", clause.id))
        } else {
            judge().map_or_else(|verdict| verdict, |detail| Verdict::Pass { detail })
        };
        let outcome = Outcome {
            clause,
            verdict,
            secs: begun.elapsed().as_secs_f64(),
        };
        if self.stopped.is_none() {
            (self.told)(&outcome);
        }
        self.outcomes.push(outcome);
    }
}
