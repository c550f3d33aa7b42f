//! Which streams and columns move: those that the document names, narrowed by `--select` and
//! `--exclude`.

use std::collections::HashSet;

use arrow_schema::Schema;
use rapidbyte_runtime::{Source, Spec, Stream};
use rapidbyte_wire::ipc;
use serde_json::Value;

use super::modes::{sync_mode, sync_mode_name};
use super::readable::whole;
use super::refused::{Refused, stops};
use super::shown;
use crate::document::Document;
use crate::failure::{Class, Failure};
use crate::meant::{did_you_mean, some_of};
use crate::narrow::{Candidate, Narrowing};

/// The streams and names that the document asks for.
pub(super) struct Selected {
    /// The streams, each with its entry, in the document's order.
    found: Vec<(usize, Stream)>,
    /// Names and patterns that match no stream of the source.
    missing: Vec<Refused>,
}

impl Selected {
    /// The names of the streams that the source has.
    pub(super) fn names(&self) -> HashSet<String> {
        let found = self.found.iter();
        found.map(|(_, stream)| stream.name.clone()).collect()
    }
}

/// The streams that the document asks for. An exact name wins over a wildcard; a stream that several
/// wildcards cover moves once, by the first. `session` is asked about a name that it does not list.
///
/// # Errors
/// A mode or condition that the source does not support.
pub(super) fn select(
    document: &Document,
    source: &Spec,
    found: Vec<Stream>,
    session: &mut Source,
    forms: &[String],
) -> Result<Selected, Failure> {
    let names: Vec<String> = found.iter().map(|stream| stream.name.clone()).collect();
    let (mut described, mut missing) = (Vec::new(), Vec::new());
    for (index, entry) in document.source.streams.iter().enumerate() {
        let key = format!("source.streams[{index}]");
        let mode = sync_mode(entry.sync_mode);
        if !source.sync_modes.contains(&mode) {
            let name = sync_mode_name(mode);
            let text = format!("{} does not support sync_mode {name}", source.name);
            return Err(Failure::at_key(
                document,
                &key,
                "unsupported_sync_mode",
                text,
            ));
        }
        if entry.filter.is_some() && !source.supports_filter {
            let key = format!("{key}.where");
            let text = format!("{} cannot filter rows", source.name);
            return Err(Failure::at_key(document, &key, "unsupported_where", text)
                .hint("remove where:, or filter in the destination"));
        }
        if let Some(query) = &entry.query {
            if !source.supports_queries {
                let key = format!("{key}.query");
                let text = format!("{} cannot read queries", source.name);
                return Err(Failure::at_key(document, &key, "unsupported_query", text)
                    .hint("remove query:, and name a stream of the source"));
            }
            match describe(document, (&entry.name, query), session, forms) {
                Ok(stream) => described.push((index, stream)),
                Err(failure) if !session.is_usable() || stops(&failure) => return Err(failure),
                Err(failure) => missing.push(Refused {
                    stream: entry.name.clone(),
                    failure,
                }),
            }
            continue;
        }
        let is_wanted = |name: &&String| !entry.is_pattern() || !document.source.excludes(name);
        let mut matched = names.iter().filter(|name| entry.matches(name));
        if matched.clone().any(|name| is_wanted(&name)) {
            continue;
        }
        if matched.next().is_some() {
            let text = format!(
                "exclude leaves out all streams that {:?} matches",
                entry.name
            );
            let failure = Failure::at_key(document, &key, "wildcard_matches_nothing", text);
            missing.push(Refused {
                stream: entry.name.clone(),
                failure: failure.hint("remove the entry, or a pattern of source.exclude"),
            });
            continue;
        }
        missing.push(Refused {
            stream: entry.name.clone(),
            failure: why_missing(document, index, &names, session),
        });
    }
    let entry_of = |stream: &Stream| {
        let entry = document.source.entry_for(&stream.name)?;
        // A query takes the place of a stream of the source with the same name.
        let is_query = document.source.streams[entry].query.is_some();
        (!is_query).then_some(entry)
    };
    let mut selected: Vec<(usize, Stream)> = found
        .into_iter()
        .filter_map(|stream| Some((entry_of(&stream)?, stream)))
        .chain(described)
        .collect();
    selected.sort_by_key(|(index, _)| *index);
    Ok(Selected {
        found: selected,
        missing,
    })
}

/// A query of the pipeline as a stream.
fn describe(
    document: &Document,
    (name, query): (&str, &str),
    session: &mut Source,
    forms: &[String],
) -> Result<Stream, Failure> {
    let stream = session.describe_query(name, query, forms);
    let stream =
        stream.map_err(|error| Failure::from_runtime(error, document, "source").in_stream(name))?;
    let shown = shown::streams(document, vec![stream]).pop();
    shown.ok_or_else(|| Failure::new(Class::Run, "internal", "a query without a stream"))
}

/// The failure of an entry that matches no stream. `names` are the streams of the source.
fn why_missing(
    document: &Document,
    index: usize,
    names: &[String],
    session: &mut Source,
) -> Failure {
    let name = document.source.streams[index].name.as_str();
    let key = format!("source.streams[{index}]");
    let (code, text) = if document.source.streams[index].is_pattern() {
        (
            "wildcard_matches_nothing",
            format!("{name:?} matches no stream"),
        )
    } else {
        if let Some(failure) = why_not(document, &key, name, session) {
            return failure;
        }
        ("unknown_stream", format!("no stream {name:?}"))
    };
    let hint = match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(near) => near,
        None => format!("the source has {}", some_of(names)),
    };
    Failure::at_key(document, &key, code, text).hint(hint)
}

/// Refuses settings of single streams (`x-keys: streams` in a connector's schema) whose stream the pipeline does not
/// move: nothing else would say that they have no effect.
pub(super) fn refuse_unknown_streams(
    document: &Document,
    selected: &Selected,
    schemas: [&Value; 2],
) -> Result<(), Failure> {
    let configs = [&document.source.config, &document.destination.config];
    let names = selected.found.iter().map(|(_, stream)| &stream.name);
    // A stream that the source lacks has its own error.
    let missing = selected.missing.iter().map(|refused| &refused.stream);
    let names: Vec<String> = names.chain(missing).cloned().collect();
    for ((side, config), schema) in ["source", "destination"]
        .into_iter()
        .zip(configs)
        .zip(schemas)
    {
        for (key, value) in config {
            let property = &schema["properties"][key];
            let Some(of_streams) = value.as_object().filter(|_| property[KEYS] == STREAMS) else {
                continue;
            };
            let Some(name) = of_streams.keys().find(|name| !names.contains(name)) else {
                continue;
            };
            let place = format!("{side}.config.{key}[{name:?}]");
            let text =
                format!("{key} names {name:?}, and the pipeline moves no stream of this name");
            let moved = || format!("the pipeline moves {}", some_of(&names));
            let hint = match did_you_mean(name, names.iter().map(String::as_str)) {
                _ if name.contains(['*', '?']) => {
                    format!("{key} takes whole names, without * and ?; {}", moved())
                }
                Some(near) => near,
                None => moved(),
            };
            return Err(Failure::at_key(document, &place, "unknown_stream", text).hint(hint));
        }
    }
    Ok(())
}

/// The mark of a setting whose keys are names, and its value where they are names of streams.
const KEYS: &str = "x-keys";
const STREAMS: &str = "streams";

/// Why a name is not a stream, if the source knows the name: a partition of a table, for example. A snapshot
/// refuses what cannot be read.
fn why_not(document: &Document, key: &str, name: &str, session: &mut Source) -> Option<Failure> {
    let refused = session.snapshot(&[whole(name)]).err()?;
    let mut failure = Failure::from_runtime(refused, document, "source");
    failure.locate(document, key);
    (failure.code == "not_a_stream").then_some(failure)
}

/// A stream that moves, and why.
pub(super) struct Chosen {
    /// Its entry in the pipeline.
    pub(super) entry: usize,
    pub(super) discovered: Stream,
    /// The wanted columns; none means all.
    pub(super) columns: Option<Vec<String>>,
    /// Columns of the pipeline that do not move this time.
    pub(super) left_out: Vec<String>,
}

/// The selected streams and columns that `narrowing` keeps, and the missing streams that it keeps.
pub(super) fn narrow(
    document: &Document,
    selected: Selected,
    narrowing: &Narrowing,
) -> Result<(Vec<Chosen>, Vec<Refused>), Failure> {
    let candidate = |(entry, stream): &(usize, Stream)| {
        let asked = document.source.streams[*entry].columns.clone();
        let columns = match asked {
            Some(columns) => columns,
            None => {
                let schema = ipc::decode_schema(&stream.schema).map_err(|error| {
                    Failure::new(Class::Run, "contract_broken", error).in_stream(&stream.name)
                })?;
                schema.fields().iter().map(|f| f.name().clone()).collect()
            }
        };
        Ok(Candidate {
            name: stream.name.clone(),
            columns,
        })
    };
    let Selected { found, missing } = selected;
    let mut candidates: Vec<Candidate> = found
        .iter()
        .map(candidate)
        .collect::<Result<_, Failure>>()?;
    candidates.extend(missing.iter().map(|refused| Candidate {
        name: refused.stream.clone(),
        columns: Vec::new(),
    }));
    let mut kept = narrowing.kept(&candidates)?;
    let of_missing = kept.split_off(found.len());
    let missing = missing.into_iter().zip(of_missing);
    let missing = missing.filter_map(|(refused, kept)| kept.map(|_| refused));
    let mut chosen = Vec::new();
    for (((entry, discovered), candidate), kept) in found.into_iter().zip(candidates).zip(kept) {
        let Some(kept) = kept else { continue };
        let mut left_out = candidate.columns;
        let stays: HashSet<&str> = kept.iter().map(String::as_str).collect();
        left_out.retain(|column| !stays.contains(column.as_str()));
        let asked = &document.source.streams[entry].columns;
        let columns = match left_out.is_empty() {
            true => asked.clone(),
            false => Some(kept),
        };
        chosen.push(Chosen {
            entry,
            discovered,
            columns,
            left_out,
        });
    }
    Ok((chosen, missing.collect()))
}

/// The mark of a setting of a source that is true or false, and, if it is true, adds the columns in the mark's value.
const COLUMNS: &str = "x-columns";

/// The setting of the source that adds a column of this name.
fn setting_of(spec: &Spec, column: &str) -> Option<String> {
    // `open_stage` has read it before.
    let schema: Value = serde_json::from_str(&spec.config_schema).ok()?;
    let adds = |property: &Value| {
        let columns = property[COLUMNS].as_array();
        columns.is_some_and(|columns| columns.iter().any(|name| name == column))
    };
    let mut properties = schema["properties"].as_object()?.iter();
    let (key, _) = properties.find(|(_, property)| adds(property))?;
    Some(key.clone())
}

/// `schema` has the columns of the stream. `spec` is of its source.
pub(super) fn unknown_column(
    document: &Document,
    spec: &Spec,
    entry: usize,
    (stream, schema): (&Stream, &Schema),
    column: &str,
) -> Failure {
    let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let near = || did_you_mean(column, names.iter().map(String::as_str));
    let is_off = |key: &String| document.source.config.get(key) != Some(&Value::Bool(true));
    let hint = match setting_of(spec, column).filter(is_off) {
        Some(key) => format!("set {key}: true under source.config, which makes {column} a column"),
        None => near().unwrap_or_else(|| format!("it has {}", some_of(&names))),
    };
    let text = format!("the stream does not have a column {column:?}");
    let key = format!("source.streams[{entry}].columns");
    Failure::at_key(document, &key, "unknown_column", text)
        .in_stream(&stream.name)
        .hint(hint)
}
