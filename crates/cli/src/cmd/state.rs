//! `rapidbyte state list|get|set|edit|rebind|clear`

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::Command;

use rapidbyte_engine::{Class, Cursors, Document, Failure, did_you_mean};
use rapidbyte_runtime::Progress;
use rapidbyte_state::State;
use serde_json::{Value, json};

use crate::args::{Common, Consent, History, OneStream, Pipeline, StateVerb as Verb};
use crate::output::{Output, count, short, table};
use crate::setup;

pub fn run(verb: &Verb, common: &Common, output: &Output) -> Result<(), Failure> {
    match verb {
        Verb::List { pipeline, history } => list(pipeline, history, common, output),
        Verb::Get(of) => get(of, common, output),
        Verb::Set {
            of,
            cursor,
            history,
            consent,
        } => set(of, cursor, (history, consent), common, output),
        Verb::Edit {
            of,
            history,
            consent,
        } => edit(of, (history, consent), common, output),
        Verb::Rebind {
            pipeline,
            stream,
            all: _,
            history,
            consent,
        } => rebind(
            pipeline,
            stream.as_deref(),
            (history, consent),
            common,
            output,
        ),
        Verb::Clear {
            pipeline,
            stream,
            all: _,
            history,
            consent,
        } => clear(
            pipeline,
            stream.as_deref(),
            (history, consent),
            common,
            output,
        ),
    }
}

/// The streams that the pipeline names, or that the history knows.
fn names(document: &Document, history: Option<&State>) -> Result<BTreeSet<String>, Failure> {
    let known = match history {
        Some(history) => history.streams(&document.pipeline),
        None => Ok(Vec::new()),
    };
    let known = known.map_err(Failure::of_state)?;
    let named = document.source.streams.iter();
    let named = named.filter(|entry| !entry.is_pattern());
    Ok(known
        .into_iter()
        .map(|record| record.stream)
        .chain(named.map(|entry| entry.name.clone()))
        .collect())
}

/// Reads the pipeline, opens its destination, and works on the cursors there.
fn with_cursors(
    pipeline: &Pipeline,
    common: &Common,
    output: &Output,
    work: impl FnOnce(&Document, &mut Cursors<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let redacted = super::redacted(&document);
    let host = setup::host(output, Some(&document))?;
    let mut cursors = Cursors::open(&document, &host).map_err(&redacted)?;
    work(&document, &mut cursors).map_err(&redacted)
}

fn list(
    pipeline: &Pipeline,
    history: &History,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, common, output, |document, cursors| {
        let history = setup::history_to_look_at(document, history)?;
        let (mut rows, mut streams) = (Vec::new(), Vec::new());
        for name in names(document, history.as_ref())? {
            let progress = cursors.of(&name)?;
            rows.push(row(&name, progress.as_ref()));
            streams.push(stream_document(&name, progress.as_ref()));
        }
        output.text(&match rows.is_empty() {
            true => {
                "no stream is known yet: the pipeline names patterns, and has not run here".into()
            }
            false => table(&rows, ""),
        });
        let pipeline = &document.pipeline;
        output.document(&json!({ "status": "ok", "pipeline": pipeline, "streams": streams }));
        Ok(())
    })
}

fn row(name: &str, progress: Option<&Progress>) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    match progress {
        None => row.push("not moved yet".into()),
        Some(progress) => {
            row.push(format!("{} commits", count(progress.seq)));
            row.push(match progress.complete {
                true => "complete".into(),
                false => "not complete".into(),
            });
            row.push(progress.cursor.as_deref().map_or("-".into(), short));
        }
    }
    row
}

fn stream_document(name: &str, progress: Option<&Progress>) -> Value {
    json!({
        "name": name,
        "known": progress.is_some(),
        "epoch": progress.map(|p| p.epoch),
        "seq": progress.map(|p| p.seq),
        "run_id": progress.map(|p| &p.run_id),
        "complete": progress.map(|p| p.complete),
        "cursor": progress.and_then(|p| p.cursor.as_deref()).map(as_json),
    })
}

/// A cursor is JSON; one that is not is shown as text.
fn as_json(cursor: &str) -> Value {
    serde_json::from_str(cursor).unwrap_or_else(|_| json!(cursor))
}

fn get(of: &OneStream, common: &Common, output: &Output) -> Result<(), Failure> {
    with_cursors(&of.pipeline, common, output, |_, cursors| {
        let progress = cursors.of(&of.stream)?;
        output.text(cursor_of(progress.as_ref(), &of.stream)?);
        output.document(&stream_document(&of.stream, progress.as_ref()));
        Ok(())
    })
}

fn cursor_of<'a>(progress: Option<&'a Progress>, stream: &str) -> Result<&'a str, Failure> {
    let cursor = progress.and_then(|progress| progress.cursor.as_deref());
    cursor.ok_or_else(|| {
        let text = "the stream has no place to go on from";
        Failure::new(Class::Config, "no_cursor", text)
            .in_stream(stream)
            .hint(
                "`rapidbyte state list` shows the streams; the next run begins with the first row",
            )
    })
}

fn set(
    of: &OneStream,
    cursor: &str,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    ensure_json(cursor, &of.stream)?;
    with_cursors(&of.pipeline, common, output, |document, cursors| {
        alone(cursors, document, (history, consent), output)?;
        let history = setup::history(document, history)?;
        ensure_known(document, &history, &of.stream)?;
        put(cursors, &history, &of.stream, (Some(cursor), None), output)
    })
}

/// Refuses while a run of the pipeline is at work, unless the operator wants to fence it.
fn alone(
    cursors: &mut Cursors<'_>,
    document: &Document,
    (history, consent): (&History, &Consent),
    output: &Output,
) -> Result<(), Failure> {
    let history = setup::history_path(document, history);
    if let Some(who) = cursors.refuse_at_work(&history, consent.force)? {
        output.warn(&format!("{who} is at work, and is fenced"));
    }
    Ok(())
}

/// A name that is misspelt would get a cursor that nobody reads.
fn ensure_known(document: &Document, history: &State, stream: &str) -> Result<(), Failure> {
    let known = names(document, Some(history))?;
    if known.contains(stream) || document.source.entry_for(stream).is_some() {
        return Ok(());
    }
    let text = format!("the pipeline has no stream {stream:?}");
    let hint = match did_you_mean(stream, known.iter().map(String::as_str)) {
        Some(near) => near,
        None => "`rapidbyte state list` shows the streams".into(),
    };
    Err(Failure::new(Class::Config, "unknown_stream", text).hint(hint))
}

fn ensure_json(cursor: &str, stream: &str) -> Result<(), Failure> {
    match serde_json::from_str::<Value>(cursor) {
        Ok(Value::Object(_)) => Ok(()),
        other => {
            let why = other.err().map(|error| format!(": {error}"));
            let text = format!("a cursor is a JSON object{}", why.unwrap_or_default());
            Err(Failure::new(Class::Config, "invalid_cursor", text)
                .in_stream(stream)
                .hint("begin with what `rapidbyte state get` prints, and quote it for the shell"))
        }
    }
}

fn put(
    cursors: &mut Cursors<'_>,
    history: &State,
    stream: &str,
    (cursor, shown): (Option<&str>, Option<&Progress>),
    output: &Output,
) -> Result<(), Failure> {
    let progress = cursors.put(history, stream, cursor, shown)?;
    let at = match cursor {
        Some(cursor) => format!("goes on from {cursor}"),
        None => "begins with its first row".into(),
    };
    output.text(&format!("{stream}: the next run {at}"));
    output.document(&stream_document(stream, Some(&progress)));
    Ok(())
}

fn edit(
    of: &OneStream,
    asked: (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(&of.pipeline, common, output, |document, cursors| {
        let (history, consent) = asked;
        cursors.refuse_at_work(&setup::history_path(document, history), consent.force)?;
        let history = setup::history(document, history)?;
        let progress = cursors.of(&of.stream)?;
        let before = cursor_of(progress.as_ref(), &of.stream)?;
        let after = in_editor(&format!("{:#}\n", as_json(before)))?;
        ensure_json(&after, &of.stream)?;
        if as_json(&after) == as_json(before) {
            output.text(&format!("{}: nothing was changed", of.stream));
            output.document(&stream_document(&of.stream, progress.as_ref()));
            return Ok(());
        }
        let after = as_json(&after).to_string();
        // A run may have begun while a person edited.
        alone(cursors, document, asked, output)?;
        put(
            cursors,
            &history,
            &of.stream,
            (Some(&after), progress.as_ref()),
            output,
        )
    })
}

/// What a person makes of a text.
fn in_editor(text: &str) -> Result<String, Failure> {
    let failed = |what: &dyn std::fmt::Display| {
        Failure::new(Class::Environment, "no_editor", what)
            .hint("set EDITOR to a program that edits the file it is given, or use state set")
    };
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR"));
    let editor = editor.ok_or_else(|| failed(&"neither VISUAL nor EDITOR names an editor"))?;
    let mut file = tempfile::Builder::new()
        .suffix(".json")
        .tempfile()
        .map_err(|error| failed(&error))?;
    file.write_all(text.as_bytes())
        .map_err(|error| failed(&error))?;
    // With its arguments, as other programs take it.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(failed(&format!("{editor}: {status}")));
    }
    let mut edited = String::new();
    std::fs::File::open(file.path())
        .and_then(|mut file| file.read_to_string(&mut edited))
        .map_err(|error| failed(&error))?;
    Ok(edited.trim().to_owned())
}

/// The stream, or all.
fn chosen(
    document: &Document,
    history: &State,
    stream: Option<&str>,
) -> Result<BTreeSet<String>, Failure> {
    match stream {
        Some(stream) => {
            ensure_known(document, history, stream)?;
            Ok(BTreeSet::from([stream.to_owned()]))
        }
        None => names(document, Some(history)),
    }
}

/// The key of a cursor that says what it was read from. Without it a source takes what it finds.
const SOURCE: &str = "source";

fn rebind(
    pipeline: &Pipeline,
    stream: Option<&str>,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, common, output, |document, cursors| {
        alone(cursors, document, (history, consent), output)?;
        let history = setup::history(document, history)?;
        let mut streams = Vec::new();
        for name in chosen(document, &history, stream)? {
            let progress = cursors.of(&name)?;
            let Some(Value::Object(mut cursor)) = progress
                .as_ref()
                .and_then(|progress| progress.cursor.as_deref())
                .map(as_json)
            else {
                continue;
            };
            cursor.remove(SOURCE);
            // The destination forgets which table held the rows, too.
            let is_exact = cursor.contains_key("system");
            let cursor = Value::Object(cursor).to_string();
            let progress = cursors.put(&history, &name, Some(&cursor), None)?;
            output.text(&match is_exact {
                false => format!("{name}: the next run takes the source and the target that it finds"),
                true => format!(
                    "{name}: the next run takes the target that it finds; a cursor of `change_detection: xmin` \
                     holds for its own server only, and another one needs --full-refresh"
                ),
            });
            streams.push(stream_document(&name, Some(&progress)));
        }
        output.document(&json!({ "status": "ok", "streams": streams }));
        Ok(())
    })
}

fn clear(
    pipeline: &Pipeline,
    stream: Option<&str>,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, common, output, |document, cursors| {
        alone(cursors, document, (history, consent), output)?;
        let history = setup::history(document, history)?;
        let names = chosen(document, &history, stream)?;
        let mut cleared = Vec::new();
        for name in names {
            // A stream without a checkpoint begins with its first row as it is. One that is named is written down
            // all the same: that accepts rows which the target has already.
            if stream.is_none() && cursors.of(&name)?.is_none() {
                continue;
            }
            let progress = cursors.put(&history, &name, None, None)?;
            output.text(&format!("{name}: the next run begins with its first row"));
            cleared.push(stream_document(&name, Some(&progress)));
        }
        history
            .give_up(&document.pipeline)
            .map_err(Failure::of_state)?;
        if cleared.is_empty() {
            output.text("nothing was there to clear");
        }
        output.document(&json!({ "status": "ok", "streams": cleared }));
        Ok(())
    })
}
