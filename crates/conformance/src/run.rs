//! The parts of a test, and their order.

use rapidbyte_runtime::Kind;

use crate::bench::Bench;
use crate::judges::Judges;
use crate::trial::Trial;
use crate::verdict::{Outcome, Report, Verdict};
use crate::{common, destination, source, transform};

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
