//! `rapidbyte connector test`

use rapidbyte::{Class, Failure};
use rapidbyte_conformance::{Asked, Outcome, Report, Trial, Verdict, clauses, test};
use serde_json::json;

use crate::args::{Common, ConnectorTest};
use crate::output::{Output, wrapped};
use crate::setup::{self, Session};

pub fn run(
    asked: &ConnectorTest,
    common: &Common,
    session: &Session,
    output: &Output,
) -> Result<(), Failure> {
    let host = session.engine.host(&session.control);
    let trial = Trial::of(&as_asked(asked), &setup::environment(common), host)?;
    let clauses = clauses(trial.connector.kind());
    let width = clauses.iter().map(|clause| clause.id.len()).max();
    let width = width.unwrap_or(0);
    let report = test(&trial, &mut |outcome| {
        output.text(&trial.redact(&line(outcome, width, output)));
    });
    if trial.host.cancel.is_cancelled() {
        return Err(Failure::cancelled());
    }
    let mut document = json!({ "status": if report.is_well() { "ok" } else { "failed" } });
    let told = serde_json::to_string(&report).map_err(internal)?;
    let told = serde_json::from_str(&trial.redact(&told)).map_err(internal)?;
    if let (Some(document), serde_json::Value::Object(told)) = (document.as_object_mut(), told) {
        document.extend(told);
    }
    output.text(&summary(&report, output));
    if report.is_well() {
        output.document(&document);
        return Ok(());
    }
    output.known(document);
    if let Some(reason) = report.wrong_setup().filter(|_| report.failed == 0) {
        return Err(Failure::new(Class::Config, "invalid_setup", trial.redact(reason)).hint(
            "no clause failed: test again when this is right. If it is right already, the connector refuses good \
             settings or good data",
        ));
    }
    if report.failed == 0 {
        let text = format!(
            "{} of {} clauses were not judged: a server or a peer failed",
            report.outside,
            report.clauses.len()
        );
        return Err(Failure::new(Class::Run, "not_judged", text)
            .hint("each SKIP says why: mend the server or the peer, and run the test again"));
    }
    let text = format!(
        "{} of {} clauses failed",
        report.failed,
        report.clauses.len()
    );
    Err(Failure::new(Class::Run, "not_conforming", text).hint(
        "each FAIL says what the test saw and what to do; `docs/authors/testing.md` explains \
             the clauses",
    ))
}

fn internal(error: serde_json::Error) -> Failure {
    Failure::new(Class::Run, "internal", error)
}

fn as_asked(arguments: &ConnectorTest) -> Asked<'_> {
    let peer = arguments.peer.as_deref();
    Asked {
        connector: &arguments.name,
        config: arguments.config.as_deref(),
        config_file: arguments.config_file.as_deref(),
        streams: &arguments.stream,
        peer: peer.zip(arguments.peer_config.as_deref()),
        peer_stream: arguments.peer_stream.as_deref(),
    }
}

/// A clause on one line; below a failed one what was seen and what to do.
fn line(outcome: &Outcome, width: usize, output: &Output) -> String {
    let clause = outcome.clause;
    let (word, color, said) = match &outcome.verdict {
        Verdict::Pass { detail } => ("PASS", "32", detail.as_str()),
        Verdict::Fail { .. } => ("FAIL", "1;31", ""),
        Verdict::Skip { reason, .. } => ("SKIP", "33", reason.as_str()),
    };
    let mut text = format!(
        "{}  {:width$}  {}",
        output.paint_result(color, word),
        clause.id,
        clause.title
    );
    let below = " ".repeat(6);
    let mut add = |head: &str, said: &str| {
        let head = format!("{below}{head}");
        text.push('\n');
        text.push_str(&wrapped(said, output.width, &head, &" ".repeat(head.len())));
    };
    match &outcome.verdict {
        Verdict::Fail { seen, action } => {
            add("seen:  ", seen);
            add("to do: ", action);
        }
        Verdict::Skip { .. } => add("", said),
        Verdict::Pass { .. } => {}
    }
    text
}

fn summary(report: &Report, output: &Output) -> String {
    let Report {
        connector,
        version,
        passed,
        failed,
        skipped,
        outside,
        left,
        ..
    } = report;
    let outside = match outside {
        0 => String::new(),
        count => format!(" ({count} not judged because of something outside the connector)"),
    };
    let text = format!(
        "{connector} {version}: {passed} passed, {failed} failed, {skipped} skipped{outside}"
    );
    let left = left.as_ref().map_or_else(String::new, |prefix| {
        format!(
            "\nThe test leaves its rows at the destination, in streams named {prefix}…: the contract has no way to \
             remove them. `docs/authors/testing.md` says how."
        )
    });
    let counted = match report.counted_only() {
        0 => String::new(),
        clauses => format!(
            "\n{clauses} of the clauses counted rows and compared no values: a lost, doubled or changed row may pass. Give \
             --peer."
        ),
    };
    format!("\n{}{counted}{left}", output.bold(&text))
}
