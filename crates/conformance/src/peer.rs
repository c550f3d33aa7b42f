//! The peer: a source that reads the streams that a destination wrote.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use rapidbyte_runtime::{Error, ErrorKind, Event, Grants, ReadRequest, Selection, Source, Stream};
use rapidbyte_wire::ipc::Decoder;
use serde_json::{Map, Value};

use crate::bench::{Bench, Trouble};
use crate::discovery::ask_columnless;
use crate::trial::Peer;
use crate::verdict::{Verdict, setup};

/// Stands for the stream's name in the peer's settings.
const STREAM: &str = "{stream}";
/// Steps of a read.
const MAX_STEPS: usize = 10_000;
/// Rows of a read: a test writes fewer.
const MAX_ROWS: usize = 200_000;
/// The longest wait for rows, in milliseconds.
const WAIT_MS: u32 = 1000;

/// The rows of a stream. `None` where the peer does not find it.
pub(crate) fn rows(
    bench: &Bench<'_>,
    peer: &Peer,
    stream: &str,
) -> Result<Option<RecordBatch>, Trouble> {
    let given = &peer.settings.config;
    bench.peer_failed(None, false);
    // A name for a peer of one stream is meant for settings that are about one.
    let as_given = match &peer.stream {
        None => find(bench, peer, given, stream, stream),
        Some(_) => Ok(None),
    };
    let found = match as_given {
        Ok(Some(found)) => Some(found),
        first => {
            let named = named(&Value::Object(given.clone()), stream);
            let name = peer
                .stream
                .as_deref()
                .map_or_else(|| stream.to_owned(), |name| name.replace(STREAM, stream));
            let names_it = named.as_object().is_some_and(|config| config != given);
            let second = match named.as_object() {
                Some(config) if names_it || peer.stream.is_some() => {
                    find(bench, peer, config, stream, &name)
                }
                _ => Ok(None),
            };
            match (second, first) {
                (Ok(Some(found)), _) => Some(found),
                (Err(Trouble::Cancelled), _) | (_, Err(Trouble::Cancelled)) => {
                    return Err(Trouble::Cancelled);
                }
                // Settings that one of the two ways takes are right.
                (
                    Err(trouble @ Trouble::PeerSettings(_)),
                    Ok(_) | Err(Trouble::PeerSettings(_)),
                ) if peer.stream.is_some() || names_it => {
                    return Err(trouble);
                }
                (Ok(None), Err(trouble @ Trouble::PeerSettings(_))) => return Err(trouble),
                // A stream that nobody has written is an error to some sources.
                (Err(trouble), _) | (_, Err(trouble)) => {
                    bench.peer_failed(Some(trouble.text()), !names_it);
                    None
                }
                (Ok(None), Ok(_)) => None,
            }
        }
    };
    match found {
        Some((source, stream)) => read(source, &stream, usize::MAX).map(Some),
        None => Ok(None),
    }
}

/// A stream that the peer has, and at least `enough` of its rows, or all. `wanted` names the stream; without it the
/// first one is read.
pub(crate) fn first_rows(
    bench: &Bench<'_>,
    peer: &Peer,
    wanted: Option<&str>,
    enough: usize,
) -> Result<(Stream, RecordBatch), Verdict> {
    // Its rows are not the connector's.
    let fails = |trouble| match trouble {
        Trouble::Broken(text) => Trouble::Peer(text).fails(""),
        trouble => trouble.fails(""),
    };
    let mut source = open(bench, peer, &peer.settings.config).map_err(fails)?;
    let found = source.discover(&[]);
    let found = found.map_err(|error| fails(unasked(error)))?;
    let is_wanted = |stream: &&Stream| wanted.is_none_or(|name| stream.name == name);
    let Some(stream) = found.iter().find(is_wanted).cloned() else {
        let names: Vec<_> = found.iter().map(|stream| stream.name.as_str()).collect();
        let text = match wanted {
            None => "the peer has no stream: correct --peer-config".to_owned(),
            Some(name) => format!(
                "the peer has no stream {name}, it has {}: name one with --stream",
                names.join(", ")
            ),
        };
        return Err(setup(text));
    };
    let asked = ask_columnless(&mut source, &stream);
    asked.map_err(|error| fails(unasked(error)))?;
    let rows = read(source, &stream, enough).map_err(fails)?;
    Ok((stream, rows))
}

/// Whether a peer reads the same for every stream: nothing that it is given holds the stream's name.
pub(crate) fn names_none(peer: &Peer) -> bool {
    let given = Value::Object(peer.settings.config.clone());
    let is_fixed = |name: &String| !name.contains(STREAM);
    peer.stream.as_ref().is_some_and(is_fixed) && named(&given, "") == given
}

/// The settings with the stream's name in the place of `{stream}`, in keys and texts.
fn named(value: &Value, stream: &str) -> Value {
    match value {
        Value::String(text) => Value::from(text.replace(STREAM, stream)),
        Value::Array(items) => items.iter().map(|item| named(item, stream)).collect(),
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| (key.replace(STREAM, stream), named(value, stream)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// An open peer and its name of the stream, whatever stands before it.
fn find(
    bench: &Bench<'_>,
    peer: &Peer,
    config: &Map<String, Value>,
    stream: &str,
    name: &str,
) -> Result<Option<(Source, Stream)>, Trouble> {
    let mut source = open(bench, peer, config)?;
    let found = source.discover(&[]).map_err(unasked)?;
    let is_it = |found: &&Stream| {
        let found = &found.name;
        [name, stream]
            .iter()
            .any(|name| found == *name || found.ends_with(&format!(".{name}")))
    };
    match found.iter().find(is_it) {
        Some(stream) => {
            ask_columnless(&mut source, stream).map_err(unasked)?;
            let stream = stream.clone();
            Ok(Some((source, stream)))
        }
        None => {
            let has = match found.first() {
                Some(Stream { name, .. }) => {
                    format!("it has the stream {name}, and --peer-stream can name that one")
                }
                None => "it has no stream".to_owned(),
            };
            bench.peer_failed(Some(has), false);
            Ok(None)
        }
    }
}

/// A peer, opened with `config`.
fn open(bench: &Bench<'_>, peer: &Peer, config: &Map<String, Value>) -> Result<Source, Trouble> {
    let grants = Grants::from_config(&peer.schema, config, &bench.trial.base_dir);
    let opened = bench.peer(&peer.connector, config, &Arc::new(grants));
    opened.map_err(|error| {
        let is_config = matches!(&error, Error::Failed { error, .. } if matches!(error.kind, ErrorKind::Config));
        match unasked(error) {
            Trouble::Peer(text) if is_config => Trouble::PeerSettings(text),
            trouble => trouble,
        }
    })
}

/// Why a peer cannot say what it has.
fn unasked(error: Error) -> Trouble {
    match error {
        Error::Failed { export, error, .. } => {
            Trouble::Peer(format!("its {export}: {} [{}]", error.message, error.code))
        }
        _ => Trouble::Cancelled,
    }
}

/// Reads a stream until there are `enough` rows, or to its end.
fn read(mut source: Source, stream: &Stream, enough: usize) -> Result<RecordBatch, Trouble> {
    let name = &stream.name;
    let selection = Selection {
        stream: name.clone(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    };
    let snapshot = source.snapshot(&[selection]).map_err(trouble)?;
    let request = ReadRequest {
        stream: name.clone(),
        schema: stream.schema.clone(),
        snapshot,
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        query: None,
        forms: Vec::new(),
        batch_bytes: crate::read::BATCH_BYTES,
        max_record_bytes: 16 << 20,
        keeps_rejects: false,
        records: None,
        rows: None,
        follows_columns: false,
        follows_types: Vec::new(),
    };
    let broken = |text: String| Trouble::Broken(format!("the peer reads {name}: {text}"));
    let schemas = source.read(&[request]).map_err(trouble)?;
    let decoder = Decoder::new(&schemas[0]).map_err(|error| broken(error.to_string()))?;
    let all = |batches: &[RecordBatch]| {
        let all = concat_batches(decoder.schema(), batches);
        all.map_err(|error| broken(error.to_string()))
    };
    let (mut batches, mut rows) = (Vec::new(), 0);
    for _ in 0..MAX_STEPS {
        match source.next(WAIT_MS).map_err(trouble)? {
            Event::Batch((_, batch)) => {
                let batch = decoder.decode(batch.data);
                let batch = batch.map_err(|error| broken(error.to_string()))?;
                rows += batch.num_rows();
                batches.push(batch);
            }
            Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) | Event::Idle => {}
            Event::End => return all(&batches),
        }
        if rows >= enough {
            return all(&batches);
        }
        if rows > MAX_ROWS {
            return Err(broken(format!("more than {MAX_ROWS} rows")));
        }
    }
    Err(broken(format!("no end after {MAX_STEPS} steps")))
}

/// Whether what was written cannot be read, or the peer is not well.
fn trouble(error: Error) -> Trouble {
    let Error::Failed { export, error, .. } = error else {
        return Trouble::Cancelled;
    };
    let text = format!(
        "the peer cannot read it: {export}: {} [{}]",
        error.message, error.code
    );
    match error.kind {
        ErrorKind::Data | ErrorKind::Schema => Trouble::Broken(text),
        _ => Trouble::Peer(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_streams_name_stands_in_keys_and_texts() {
        let given = json!({ "streams": { "{stream}": { "path": "/{stream}/rows", "n": 1 } }, "a": ["{stream}"] });
        let wanted = json!({ "streams": { "s": { "path": "/s/rows", "n": 1 } }, "a": ["s"] });
        assert_eq!(named(&given, "s"), wanted);
    }
}
