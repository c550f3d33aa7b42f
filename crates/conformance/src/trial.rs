//! The parts of a test, and their order.

use std::path::PathBuf;
use std::time::Instant;

use rapidbyte_engine::{Host, Settings};
use rapidbyte_runtime::{Cancel, Connector, Kind};
use serde_json::Value;

use crate::bench::Bench;
use crate::verdict::{Clause, Judged, Outcome, Report, Verdict, skip};
use crate::{common, destination, source, transform};

/// The inputs of a test.
pub struct Trial {
    /// Loads connectors and stops everything.
    pub host: Host,
    /// The connector under test.
    pub connector: Connector,
    /// Its settings; without them only what needs none is judged.
    pub settings: Option<Settings>,
    /// The folder of relative paths in settings, absolute.
    pub base_dir: PathBuf,
    /// Streams to read; empty: the first few. Of a source, or of the peer of a transform.
    pub streams: Vec<String>,
    /// A source that reads what the destination under test writes, or has rows for the transform under test.
    pub peer: Option<Peer>,
}

/// A source that looks at what a destination did, or gives rows to a transform.
pub struct Peer {
    /// The source.
    pub connector: Connector,
    /// Its settings. Where it does not find a stream by them, `{stream}` in them stands for its name.
    pub settings: Settings,
    /// Its config schema, for what the settings grant.
    pub schema: Value,
    /// Its name of the stream, if that is another one; with `{stream}` for the stream's.
    pub stream: Option<String>,
}

/// Judges every clause for the connector's kind and tells each outcome when it is there.
pub fn test(trial: &Trial, told: &mut dyn FnMut(&Outcome)) -> Report {
    let mut bench = Bench::new(trial);
    let mut judges = Judges {
        told,
        outcomes: Vec::new(),
        cancel: trial.host.cancel.clone(),
        stopped: None,
    };
    let kind = trial.connector.kind();
    common::first(&mut bench, &mut judges);
    match kind {
        Kind::Source => source::judge(&bench, &mut judges),
        Kind::Transform => transform::judge(&bench, &mut judges),
        Kind::Destination => destination::judge(&bench, &mut judges),
    }
    common::last(&bench, &mut judges);
    let clauses = judges.outcomes;
    let count = |is: fn(&Verdict) -> bool| clauses.iter().filter(|o| is(&o.verdict)).count();
    let spec = bench.spec.as_ref();
    Report {
        connector: spec.map_or_else(|| trial.connector.name().to_owned(), |s| s.name.clone()),
        version: spec.map(|spec| spec.version.clone()).unwrap_or_default(),
        kind: kind.name(),
        passed: count(|verdict| matches!(verdict, Verdict::Pass { .. })),
        failed: count(|verdict| matches!(verdict, Verdict::Fail { .. })),
        skipped: count(|verdict| matches!(verdict, Verdict::Skip { .. })),
        outside: count(|verdict| matches!(verdict, Verdict::Skip { outside: true, .. })),
        setup: count(|verdict| matches!(verdict, Verdict::Skip { setup: true, .. })),
        left: bench.left.take(),
        clauses,
    }
}

/// Asks the judges one after the other.
pub(crate) struct Judges<'t> {
    told: &'t mut dyn FnMut(&Outcome),
    outcomes: Vec<Outcome>,
    cancel: Cancel,
    /// The clause that tells why nothing more is judged.
    stopped: Option<&'static Clause>,
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
