//! Clauses for every connector: what it says of itself, its settings, and what all calls showed.

use std::sync::Arc;

use rapidbyte_runtime::{CheckItem, Clock, ConnectorError, ErrorKind, Grants, Kind, Permissions};
use serde_json::{Map, Value};

use crate::bench::{Bench, MEMORY_BYTES, Reach, Trouble, problems};
use crate::discovery::discovered;
use crate::judges::Judges;
use crate::verdict::*;
use crate::{destination, spec, transform};

/// A key that no connector has.
const UNKNOWN: &str = "conformance_unknown_key";

/// Judges the clauses before anything is read or written.
pub(crate) fn first(bench: &mut Bench<'_>, judges: &mut Judges<'_>) {
    let trial = bench.trial;
    let kind = trial.connector.kind();
    let described =
        trial
            .host
            .describe(&trial.connector, &Permissions::default(), &Clock::default());
    let described = bench.note(described);
    let judged = match &described {
        Ok(found) => spec::describe(found, kind),
        Err(trouble) => Err(trouble.fails("describe answers without settings, files and servers")),
    };
    judges.judge(&DESCRIBE, || judged);
    bench.spec = described.ok();
    let schema = match bench.spec() {
        Ok(found) => spec::config_schema(&found.config_schema),
        Err(verdict) => Err(verdict),
    };
    let (schema, judged) = match schema {
        Ok((schema, detail)) => (schema, Ok(detail)),
        Err(verdict) => (Value::Null, Err(verdict)),
    };
    judges.judge(&CONFIG_SCHEMA, || judged);
    bench.schema = schema;
    if let Some(settings) = &trial.settings {
        settings.keep_secrets(&bench.schema);
        // A transform is granted nothing, whatever its schema marks.
        if kind != Kind::Transform {
            let grants = Grants::from_config(&bench.schema, &settings.config, &trial.base_dir);
            bench.grants = Arc::new(grants);
        }
    }
    let bench = &*bench;
    let marks = schema_of(bench).and_then(|schema| spec::grant_marks(schema, kind));
    let imports = match marks {
        Err(Verdict::Fail { .. }) => Err(skip("not every mark is known: see grant-marks")),
        _ => schema_of(bench)
            .and_then(|schema| spec::imports(schema, bench.trial.connector.imports(), kind)),
    };
    judges.judge(&GRANT_MARKS, || marks);
    judges.judge(&IMPORTS, || imports);
    // Asked first: where the settings are wrong, every other answer to them is.
    let (clause, checked) = match kind {
        Kind::Transform => (&OPEN, transform::open(bench)),
        Kind::Source | Kind::Destination => (&CHECK, check(bench)),
    };
    if let Err(Verdict::Skip { setup: true, .. }) = checked {
        judges.stop(clause);
    }
    judges.judge(&UNKNOWN_KEY, || unknown_key(bench));
    judges.judge(&MISSING_KEY, || missing_key(bench));
    judges.found(clause, checked);
    // No clause grants a transform anything.
    if kind != Kind::Transform {
        judges.judge(&DENIED, || denied(bench));
    }
}

fn schema_of<'a>(bench: &'a Bench<'_>) -> Result<&'a Value, Verdict> {
    match &bench.schema {
        Value::Null => Err(skip("the config schema is not known: see config-schema")),
        schema => Ok(schema),
    }
}

/// Opens a session that reaches nothing, and drops it.
fn open(bench: &Bench<'_>, config: &Map<String, Value>) -> Result<(), Trouble> {
    match bench.trial.connector.kind() {
        Kind::Source => bench.source(config, Reach::Nothing).map(drop),
        Kind::Transform => bench.transform(config).map(drop),
        Kind::Destination => bench.destination(config, Reach::Nothing).map(drop),
    }
}

fn required(bench: &Bench<'_>) -> Vec<String> {
    let keys = bench.schema["required"].as_array().into_iter().flatten();
    keys.filter_map(|key| key.as_str().map(str::to_owned))
        .collect()
}

/// Whether an error names a key, in whatever part of it.
fn names(error: &ConnectorError, key: &str) -> bool {
    let parts = [
        Some(&error.message),
        error.hint.as_ref(),
        error.location.as_ref(),
    ];
    parts.into_iter().flatten().any(|part| part.contains(key))
}

/// Judges how settings were refused because of `key`.
fn refused(
    bench: &Bench<'_>,
    opened: Result<(), Trouble>,
    keys: &[String],
    what: &str,
) -> Result<(), Verdict> {
    let opens = match bench.trial.connector.kind() {
        Kind::Transform => &OPEN,
        Kind::Source | Kind::Destination => &CHECK,
    };
    let key = keys.join(" or ");
    let action = format!("answer open with an error of kind config that names {key}");
    match opened {
        Ok(()) => Err(fail(format!("open took settings {what} {key}"), action)),
        Err(Trouble::Error(_, error)) if !matches!(error.kind, ErrorKind::Config) => {
            let text = format!("{:?}: {} [{}]", error.kind, error.message, error.code);
            Err(fail(text, action))
        }
        Err(Trouble::Error(_, error)) if !keys.iter().any(|key| names(&error, key)) => {
            Err(fail(format!("{} [{}]", error.message, error.code), action))
        }
        Err(Trouble::Error(..)) => Ok(()),
        Err(Trouble::Denied(text)) => Err(fail(
            text,
            "look at all keys before the first file or connection",
        )),
        Err(trouble) => Err(trouble.blocks(opens)),
    }
}

fn unknown_key(bench: &Bench<'_>) -> Judged {
    let mut config = match bench.config() {
        Ok(config) => config.clone(),
        Err(_) if required(bench).is_empty() && bench.spec.is_some() => Map::new(),
        Err(verdict) => return Err(verdict),
    };
    config.insert(UNKNOWN.into(), Value::from(1));
    refused(
        bench,
        open(bench, &config),
        &[UNKNOWN.into()],
        "with the unknown key",
    )?;
    Ok("refused by name".into())
}

fn missing_key(bench: &Bench<'_>) -> Judged {
    let required = required(bench);
    if required.is_empty() {
        return schema_of(bench).map(|_| "no key is required".into());
    }
    let Ok(config) = bench.config() else {
        refused(bench, open(bench, &Map::new()), &required, "without")?;
        return Ok(format!("{} required", required.len()));
    };
    for key in &required {
        let mut config = config.clone();
        config.remove(key);
        refused(
            bench,
            open(bench, &config),
            std::slice::from_ref(key),
            "without",
        )?;
    }
    Ok(required.join(", "))
}

fn check(bench: &Bench<'_>) -> Judged {
    const ACTION: &str = "give settings with which it is well, or mend open and check";
    let config = bench.config()?;
    let once = || match bench.trial.connector.kind() {
        Kind::Source => bench
            .source(config, Reach::Granted)
            .and_then(|mut source| bench.note(source.check())),
        Kind::Transform | Kind::Destination => bench
            .destination(config, Reach::Granted)
            .and_then(|mut destination| bench.note(destination.check())),
    };
    // A check may also report a transient failure as the problem of an item.
    let passing = |item: &CheckItem| {
        let trouble = Trouble::Error("session.check", item.problem.clone()?);
        trouble.passes_after().map(|_| trouble)
    };
    let mut items = Vec::new();
    let checked = bench.patiently(|| {
        items = once()?;
        items.iter().find_map(passing).map_or(Ok(()), Err)
    });
    checked.map_err(|trouble| trouble.fails_first(ACTION))?;
    if items.is_empty() {
        return Err(fail("no item", "say at least one thing that was looked at"));
    }
    if items.iter().any(|item| item.name.trim().is_empty()) {
        return Err(fail(
            "an item without a name",
            "name what was looked at, such as `connect db:5432`",
        ));
    }
    let problem = items
        .iter()
        .find_map(|item| Some((item, item.problem.as_ref()?)));
    if let Some((CheckItem { name, .. }, error)) = problem {
        let trouble = Trouble::Error("session.check", error.clone());
        return Err(match trouble.fails_first(ACTION) {
            Verdict::Fail { action, .. } => fail(
                format!("{name}: {} [{}]", error.message, error.code),
                action,
            ),
            other => other,
        });
    }
    let items: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
    Ok(items.join(", "))
}

/// The same settings without their grants.
fn denied(bench: &Bench<'_>) -> Judged {
    let config = bench.config()?;
    let calls = match bench.trial.connector.kind() {
        Kind::Source => denied_source(bench, config),
        Kind::Transform | Kind::Destination => destination::denied(bench, config),
    };
    let mut refusals = 0;
    for result in calls {
        match result {
            Ok(()) => {}
            Err(Trouble::Error(_, error)) if !matches!(error.kind, ErrorKind::Internal) => {
                refusals += 1;
            }
            Err(Trouble::Denied(_)) => refusals += 1,
            Err(Trouble::Cancelled) => return Err(skip("interrupted")),
            Err(trouble) => {
                return Err(fail(
                    trouble.text(),
                    "hand on the error that the host gives where a file or server is not granted",
                ));
            }
        }
    }
    match refusals {
        0 => Ok("it needs none to get ready".into()),
        _ => Ok("refused with errors".into()),
    }
}

fn denied_source(bench: &Bench<'_>, config: &Map<String, Value>) -> Vec<Result<(), Trouble>> {
    let reach = Reach::Denied;
    let look = bench
        .source(config, reach)
        .and_then(|mut source| bench.note_as(reach, source.check()))
        .and_then(problems);
    let find = bench
        .source(config, reach)
        .and_then(|mut source| discovered(bench, reach, &mut source))
        .map(drop);
    vec![look, find]
}

/// Judges the clauses about all calls together.
pub(crate) fn last(bench: &Bench<'_>, judges: &mut Judges<'_>) {
    let heard = bench.heard();
    judges.judge(&REACH, || match heard.denied.first() {
        Some(text) => Err(fail(
            text,
            match bench.trial.connector.kind() {
                Kind::Transform => "do not reach for it: a transform is granted nothing",
                _ => "mark the key that names it with x-grant, or do not reach for it",
            },
        )),
        None => Ok(String::new()),
    });
    judges.judge(&NO_TRAP, || match heard.traps.first() {
        Some(text) => Err(fail(
            text,
            "give an error of kind internal instead of dying",
        )),
        None => Ok(String::new()),
    });
    judges.judge(&LIMITS, || match heard.limits.first() {
        Some(text) => Err(fail(
            text,
            "hold one batch and not a whole stream, and come back from each call",
        )),
        None => Ok(format!(
            "at most {:.1} MiB of {} MiB",
            heard.peak_bytes() as f64 / f64::from(1 << 20),
            MEMORY_BYTES >> 20
        )),
    });
    judges.judge(&ERRORS, || {
        let wrong = heard.errors.iter().find_map(|(call, error)| {
            let what = wrong_error(error)?;
            Some(format!("{call}: {what}"))
        });
        match wrong {
            Some(text) => Err(fail(
                text,
                "give each error a short stable code (letters, digits, _), and a message",
            )),
            None => Ok(format!("{} errors seen", heard.errors.len())),
        }
    });
}

/// The fault of an error, if it has one.
fn wrong_error(error: &ConnectorError) -> Option<String> {
    const MAX_CODE: usize = 64;
    let code = &error.code;
    let is_code = code.starts_with(|c: char| c.is_ascii_lowercase())
        && code.len() <= MAX_CODE
        && code.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_code {
        return Some(format!("the code {code:?} (message: {})", error.message));
    }
    if error.message.trim().is_empty() {
        return Some(format!("{code} has no message"));
    }
    let empty = error
        .hint
        .as_ref()
        .is_some_and(|hint| hint.trim().is_empty());
    empty.then(|| format!("{code} has an empty hint"))
}
