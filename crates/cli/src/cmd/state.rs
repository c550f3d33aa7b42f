//! `rapidbyte state list|get|set|edit|rebind|clear`

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::Command;

use rapidbyte_engine::{Class, Cursors, Document, Failure, did_you_mean};
use rapidbyte_runtime::Progress;
use rapidbyte_state::State;
use serde_json::{Value, json};

use crate::args::{Common, Consent, History, OneStream, Pipeline, StateVerb as Verb};
use crate::cursor::{SOURCE, as_json, readable};
use crate::output::{Output, count, table};
use crate::setup;

pub fn run(verb: &Verb, common: &Common, output: &Output) -> Result<(), Failure> {
    match verb {
        Verb::List { pipeline, history } => list(pipeline, history, common, output),
        Verb::Get { of, history } => get(of, history, common, output),
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

/// Reads the pipeline, opens its destination, and works on the cursors there. A destination that is only asked may
/// not write files.
fn with_cursors<T>(
    pipeline: &Pipeline,
    common: &Common,
    output: &Output,
    changes: bool,
    work: impl FnOnce(&Document, &mut Cursors<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let document = setup::document(pipeline, common)?;
    let redacted = super::redacted(&document);
    let host = setup::host(output, Some(&document))?;
    let mut cursors = Cursors::open(&document, &host, changes).map_err(&redacted)?;
    work(&document, &mut cursors).map_err(&redacted)
}

fn list(
    pipeline: &Pipeline,
    history: &History,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, common, output, false, |document, cursors| {
        let history = setup::history_to_look_at(document, history)?;
        let (mut rows, mut streams, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        rows.push(HEAD.map(str::to_owned).to_vec());
        for name in names(document, history.as_ref())? {
            let progress = cursors.of(&name)?;
            let refused = refused_next(document, cursors, &name)?;
            // The list redacts secrets, because nobody sets a cursor from it; `get` has the cursor as it is.
            let progress = progress.map(|progress| Progress {
                cursor: progress.cursor.map(|cursor| document.redact(&cursor)),
                ..progress
            });
            rows.push(row(&name, progress.as_ref(), refused.as_ref()));
            streams.push(looked_document(&name, progress.as_ref(), refused.as_ref()));
            refusals.extend(refused);
        }
        output.text(&match streams.is_empty() {
            true => {
                "no stream is known yet: the pipeline names patterns, and has not run here".into()
            }
            false => table(&rows, ""),
        });
        for refused in &refusals {
            output.text(&refusal(refused));
        }
        let pipeline = &document.pipeline;
        output.document(&json!({ "status": "ok", "pipeline": pipeline, "streams": streams }));
        Ok(())
    })
}

/// Why the next run of the stream is refused, if it is.
fn refused_next(
    document: &Document,
    cursors: &mut Cursors<'_>,
    stream: &str,
) -> Result<Option<Failure>, Failure> {
    match cursors.refuse_next(stream) {
        Ok(()) => Ok(None),
        Err(failure) if failure.class == Class::Contract => {
            Ok(Some(super::redacted(document)(failure)))
        }
        Err(failure) => Err(failure),
    }
}

/// The same for people.
fn refusal(failure: &Failure) -> String {
    let Failure {
        stream,
        code,
        message,
        hint,
        ..
    } = failure;
    let hint = hint.as_deref().map(|hint| format!("\n  hint: {hint}"));
    format!(
        "{}: the next run is refused with {code}: {message}{}",
        stream.as_deref().unwrap_or_default(),
        hint.unwrap_or_default()
    )
}

/// The columns of `state list`.
const HEAD: [&str; 4] = ["stream", "commits", "last run", "cursor"];

fn row(name: &str, progress: Option<&Progress>, refused: Option<&Failure>) -> Vec<String> {
    let (commits, last_run, cursor) = match progress {
        None if refused.is_some() => ("-".into(), "refused", "no cursor".into()),
        None => ("-".into(), "not moved yet", "-".into()),
        Some(progress) => (
            count(progress.seq),
            match progress.complete {
                true => "complete",
                false => "not complete",
            },
            progress.cursor.as_deref().map_or("-".into(), readable),
        ),
    };
    vec![name.to_owned(), commits, last_run.to_owned(), cursor]
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

/// The same with why the next run is refused.
fn looked_document(name: &str, progress: Option<&Progress>, refused: Option<&Failure>) -> Value {
    let mut document = stream_document(name, progress);
    document["refused"] =
        json!(refused.map(|f| json!({ "code": f.code, "message": f.message, "hint": f.hint })));
    document
}

fn get(of: &OneStream, history: &History, common: &Common, output: &Output) -> Result<(), Failure> {
    with_cursors(&of.pipeline, common, output, false, |document, cursors| {
        let found = Found::of(document, cursors, history, &of.stream)?;
        output.text(&found.cursor);
        if let Some(refused) = &found.refused {
            output.warn(&refusal(refused));
        }
        output.document(&looked_document(
            &of.stream,
            Some(&found.progress),
            found.refused.as_ref(),
        ));
        Ok(())
    })
}

/// A stream that has a cursor.
struct Found {
    progress: Progress,
    cursor: String,
    /// Why the next run refuses the stream.
    refused: Option<Failure>,
}

impl Found {
    /// Errors: `unknown_stream`, `no_cursor`.
    fn of(
        document: &Document,
        cursors: &mut Cursors<'_>,
        history: &History,
        stream: &str,
    ) -> Result<Self, Failure> {
        let progress = cursors.of(stream)?;
        let near = match progress {
            Some(_) => None,
            None => {
                let history = setup::history_to_look_at(document, history)?;
                ensure_known(document, history.as_ref(), stream)?
            }
        };
        let refused = refused_next(document, cursors, stream)?;
        if let Some(progress) = progress
            && let Some(cursor) = progress.cursor.clone()
        {
            return Ok(Self {
                progress,
                cursor,
                refused,
            });
        }
        let text = match &refused {
            Some(refused) => format!(
                "the stream has no cursor, and the next run is refused with {}: {}",
                refused.code, refused.message
            ),
            None => "the stream has no cursor: the next run begins with the first row".into(),
        };
        let hint = refused.and_then(|refused| refused.hint).or(near);
        Err(Failure::new(Class::Config, "no_cursor", text)
            .in_stream(stream)
            .hint(hint.unwrap_or_else(|| LIST_HINT.into())))
    }
}

fn set(
    of: &OneStream,
    cursor: &str,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    ensure_json(cursor, of)?;
    with_cursors(&of.pipeline, common, output, true, |document, cursors| {
        alone(cursors, document, (history, consent), output)?;
        let history = setup::history(document, history)?;
        ensure_known(document, Some(&history), &of.stream)?;
        ensure_readable(cursors, &of.stream, cursor, output)?;
        put(cursors, &history, &of.stream, (Some(cursor), None), output)
    })
}

/// A cursor that no run takes would end the next one.
fn ensure_readable(
    cursors: &Cursors<'_>,
    stream: &str,
    cursor: &str,
    output: &Output,
) -> Result<(), Failure> {
    if let Some(why) = cursors.refuse_unreadable(stream, cursor)? {
        output.warn(&format!(
            "{stream}: the source could not check the cursor ({}: {}), and the next run may refuse it",
            why.code, why.message
        ));
    }
    Ok(())
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
        output.warn(&format!("{who} is running, and this command fences it"));
    }
    Ok(())
}

const LIST_HINT: &str = "`rapidbyte state list PIPELINE` shows the streams";

/// Refuses an unknown stream: nobody would read the cursor of a misspelt name. A name that only a pattern of the
/// pipeline covers may be misspelt, too: returns a hint with similar names.
fn ensure_known(
    document: &Document,
    history: Option<&State>,
    stream: &str,
) -> Result<Option<String>, Failure> {
    let known = names(document, history)?;
    if known.contains(stream) {
        return Ok(None);
    }
    let near = did_you_mean(stream, known.iter().map(String::as_str));
    if document.source.entry_for(stream).is_some() {
        return Ok(near);
    }
    let text = format!("the pipeline has no stream {stream:?}");
    let hint = near.unwrap_or_else(|| LIST_HINT.into());
    Err(Failure::new(Class::Config, "unknown_stream", text).hint(hint))
}

fn ensure_json(cursor: &str, of: &OneStream) -> Result<(), Failure> {
    match serde_json::from_str::<Value>(cursor) {
        Ok(Value::Object(keys)) if !keys.is_empty() => Ok(()),
        other => {
            let why = other.err().map(|error| format!(": {error}"));
            let text = format!(
                "a cursor is a JSON object with keys{}",
                why.unwrap_or_default()
            );
            let hint = format!(
                "edit what `rapidbyte state get {} {}` prints, and quote it for the shell",
                of.pipeline.file.display(),
                of.stream
            );
            Err(Failure::new(Class::Config, "invalid_cursor", text)
                .in_stream(&of.stream)
                .hint(hint))
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
        Some(cursor) => format!("resumes from {cursor}"),
        None => "starts with its first row".into(),
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
    let (history, consent) = asked;
    let found = with_cursors(&of.pipeline, common, output, false, |document, cursors| {
        cursors.refuse_at_work(&setup::history_path(document, history), consent.force)?;
        Found::of(document, cursors, history, &of.stream)
    })?;
    // No session stays open while a person edits: a run may begin meanwhile.
    let after = in_editor(&format!("{:#}\n", as_json(&found.cursor)))?;
    ensure_json(&after, of)?;
    if as_json(&after) == as_json(&found.cursor) {
        output.text(&format!("{}: nothing was changed", of.stream));
        output.document(&stream_document(&of.stream, Some(&found.progress)));
        return Ok(());
    }
    let after = as_json(&after).to_string();
    with_cursors(&of.pipeline, common, output, true, |document, cursors| {
        alone(cursors, document, asked, output)?;
        let history = setup::history(document, history)?;
        ensure_readable(cursors, &of.stream, &after, output)?;
        let moved = (Some(after.as_str()), Some(&found.progress));
        put(cursors, &history, &of.stream, moved, output)
    })
}

/// The text as the user edited it.
fn in_editor(text: &str) -> Result<String, Failure> {
    let failed = |what: &dyn std::fmt::Display| {
        Failure::new(Class::Environment, "no_editor", what)
            .hint("set EDITOR to a program that edits the file in its argument, or use state set")
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
            ensure_known(document, Some(history), stream)?;
            Ok(BTreeSet::from([stream.to_owned()]))
        }
        None => names(document, Some(history)),
    }
}

fn rebind(
    pipeline: &Pipeline,
    stream: Option<&str>,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, common, output, true, |document, cursors| {
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
                false => format!(
                    "{name}: the next run accepts the source and the target that it \
                     finds"
                ),
                true => format!(
                    "{name}: the next run accepts the target that it finds; a cursor of \
                         `change_detection: xmin` is valid only for its own server, and another \
                         server needs --full-refresh"
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
    with_cursors(pipeline, common, output, true, |document, cursors| {
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
            history
                .forget_stream(&document.pipeline, &name, &cursors.target_of(&name))
                .map_err(Failure::of_state)?;
            output.text(&format!("{name}: the next run starts with its first row"));
            cleared.push(stream_document(&name, Some(&progress)));
        }
        // If one stream is cleared, an interrupted run stays unfinished: it has appended other streams.
        if stream.is_none() {
            history
                .give_up(&document.pipeline, cursors.target())
                .map_err(Failure::of_state)?;
        }
        if cleared.is_empty() {
            output.text("there was nothing to clear");
        }
        output.document(&json!({ "status": "ok", "streams": cleared }));
        Ok(())
    })
}
