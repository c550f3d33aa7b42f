//! `rapidbyte connector test`

use std::path::Path;

use rapidbyte_conformance::{Outcome, Peer, Report, Trial, Verdict, clauses, test};
use rapidbyte_engine::{Class, Environment, Failure, Host, Settings};
use rapidbyte_runtime::Kind;
use serde_json::json;

use super::{config_schema, failed, load_from};
use crate::args::{Common, ConnectorTest};
use crate::output::{Output, wrapped};

pub fn run(
    asked: &ConnectorTest,
    common: &Common,
    host: Host,
    output: &Output,
) -> Result<(), Failure> {
    let trial = trial(asked, common, host)?;
    let clauses = clauses(trial.connector.kind());
    let width = clauses.iter().map(|clause| clause.id.len()).max();
    let width = width.unwrap_or(0);
    let redact = |text: &str| {
        let ours = trial
            .settings
            .as_ref()
            .map(|settings| settings.redact(text));
        let text = ours.unwrap_or_else(|| text.to_owned());
        let peer = trial.peer.as_ref();
        peer.map(|peer| peer.settings.redact(&text)).unwrap_or(text)
    };
    let report = test(&trial, &mut |outcome| {
        output.text(&redact(&line(outcome, width, output)));
    });
    if trial.host.cancel.is_cancelled() {
        return Err(Failure::cancelled());
    }
    let mut document = json!({ "status": if report.is_well() { "ok" } else { "failed" } });
    let told = serde_json::to_string(&report).map_err(internal)?;
    let told = serde_json::from_str(&redact(&told)).map_err(internal)?;
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
        return Err(Failure::new(Class::Config, "invalid_setup", redact(reason)).hint(
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

fn trial(asked: &ConnectorTest, common: &Common, host: Host) -> Result<Trial, Failure> {
    let here = Path::new(".");
    let base_dir = std::path::absolute(here).map_err(|error| {
        let text = format!("cannot find the working directory: {error}");
        Failure::new(Class::Config, "file_unreadable", text)
    })?;
    let origin = host.find(&asked.name, here)?;
    let connector = host.runtime.load(&origin).map_err(failed)?;
    let settings = match (&asked.config, &asked.config_file) {
        (Some(text), _) => Some(settings(text, "--config", &base_dir, common)?),
        (None, Some(file)) => Some(Settings::load(file, &base_dir, &environment(common))?),
        (None, None) => None,
    };
    let misplaced = match connector.kind() {
        Kind::Source if asked.peer.is_some() => Some((
            "--peer is for transforms and destinations",
            "remove the flag",
        )),
        Kind::Destination if !asked.stream.is_empty() => {
            Some(("--stream is for sources and transforms", "remove the flag"))
        }
        Kind::Transform if asked.peer_stream.is_some() => {
            Some(("--peer-stream is for destinations", "write --stream"))
        }
        Kind::Transform if asked.peer.is_none() && !asked.stream.is_empty() => Some((
            "--stream names a stream of the peer of a transform",
            "add --peer and --peer-config, or remove the flag",
        )),
        Kind::Transform if asked.stream.len() > 1 => Some((
            "a transform is tested with one stream",
            "write --stream once",
        )),
        _ => None,
    };
    if let Some((text, hint)) = misplaced {
        let text = format!("{text}; {} is a {}", asked.name, connector.kind().name());
        return Err(Failure::new(Class::Config, "invalid_argument", text).hint(hint));
    }
    let peer = match (&asked.peer, &asked.peer_config) {
        (Some(name), Some(text)) => {
            let mut peer = peer(name, text, &base_dir, common, &host)?;
            peer.stream.clone_from(&asked.peer_stream);
            Some(peer)
        }
        _ => None,
    };
    Ok(Trial {
        host,
        connector,
        settings,
        base_dir,
        streams: asked.stream.clone(),
        peer,
    })
}

fn peer(
    name: &str,
    text: &str,
    base_dir: &Path,
    common: &Common,
    host: &Host,
) -> Result<Peer, Failure> {
    let (_, connector, spec) = load_from(name, base_dir, host)?;
    if connector.kind() != Kind::Source {
        let text = format!("{name} is a {}", connector.kind().name());
        return Err(
            Failure::new(Class::Config, "invalid_world", text).hint("name a source in --peer")
        );
    }
    let settings = settings(text, "--peer-config", base_dir, common)?;
    let schema = config_schema(&spec)?;
    settings.keep_secrets(&schema);
    Ok(Peer {
        connector,
        settings,
        schema,
        stream: None,
    })
}

fn environment(common: &Common) -> Environment<'static> {
    let environment = Environment::process();
    match &common.env_file {
        Some(file) => environment.with_env_file(file),
        None => environment,
    }
}

fn settings(text: &str, name: &str, base_dir: &Path, common: &Common) -> Result<Settings, Failure> {
    Ok(Settings::parse(text, name, base_dir, &environment(common))?)
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
