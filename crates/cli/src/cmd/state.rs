//! `rapidbyte state list|get|set|edit|rebind|clear`

use std::io::{Read, Write};
use std::process::Command;

use rapidbyte::{Class, Cursors, Failure, Pipeline, StreamCursor, TargetProgress};
use serde_json::{Value, json};

use crate::args::{self, Common, Consent, History, OneStream, StateVerb as Verb};
use crate::cursor::{as_json, readable};
use crate::output::{Output, count, table};
use crate::setup::{self, Session};

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

/// Reads the pipeline, opens its destination, and works on the cursors there. A destination that is only asked may
/// not write files.
fn with_cursors<T>(
    pipeline: &args::Pipeline,
    history: &History,
    common: &Common,
    output: &Output,
    changes: bool,
    work: impl FnOnce(&Pipeline, &mut Cursors) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let pipeline = setup::pipeline(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let history = history.state.as_deref();
    let mut cursors = engine.cursors(&pipeline, history, changes, &control)?;
    work(&pipeline, &mut cursors)
}

fn list(
    pipeline: &args::Pipeline,
    history: &History,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(
        pipeline,
        history,
        common,
        output,
        false,
        |pipeline, cursors| {
            let (mut rows, mut streams, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
            rows.push(HEAD.map(str::to_owned).to_vec());
            for found in cursors.list()? {
                // The list redacts secrets, because nobody sets a cursor from it; `get` has the cursor as it is.
                let progress = found.progress.map(|progress| TargetProgress {
                    cursor: progress.cursor.map(|cursor| pipeline.redact(&cursor)),
                    ..progress
                });
                let found = StreamCursor { progress, ..found };
                rows.push(row(&found));
                streams.push(looked_document(&found));
                refusals.extend(found.refused);
            }
            output.text(&match streams.is_empty() {
                true => "no stream is known yet: the pipeline names patterns, and has not run here"
                    .into(),
                false => table(&rows, ""),
            });
            for refused in &refusals {
                output.text(&refusal(refused));
            }
            let pipeline = pipeline.name();
            output.document(&json!({ "status": "ok", "pipeline": pipeline, "streams": streams }));
            Ok(())
        },
    )
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

fn row(found: &StreamCursor) -> Vec<String> {
    let (commits, last_run, cursor) = match &found.progress {
        None if found.refused.is_some() => ("-".into(), "refused", "no cursor".into()),
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
    vec![found.stream.clone(), commits, last_run.to_owned(), cursor]
}

fn stream_document(name: &str, progress: Option<&TargetProgress>) -> Value {
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
fn looked_document(found: &StreamCursor) -> Value {
    let mut document = stream_document(&found.stream, found.progress.as_ref());
    let refused = found.refused.as_ref();
    document["refused"] =
        json!(refused.map(|f| json!({ "code": f.code, "message": f.message, "hint": f.hint })));
    document
}

fn get(of: &OneStream, history: &History, common: &Common, output: &Output) -> Result<(), Failure> {
    with_cursors(
        &of.pipeline,
        history,
        common,
        output,
        false,
        |_, cursors| {
            let found = cursors.get(&of.stream)?;
            output.text(found.cursor().unwrap_or_default());
            if let Some(refused) = &found.refused {
                output.warn(&refusal(refused));
            }
            output.document(&looked_document(&found));
            Ok(())
        },
    )
}

fn set(
    of: &OneStream,
    cursor: &str,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    ensure_json(cursor, of)?;
    with_cursors(&of.pipeline, history, common, output, true, |_, cursors| {
        begin_move(cursors, consent, output)?;
        cursors.ensure_known(&of.stream)?;
        ensure_readable(cursors, &of.stream, cursor, output)?;
        put(cursors, &of.stream, (cursor, None), output)
    })
}

/// A cursor that no run takes would end the next one.
fn ensure_readable(
    cursors: &Cursors,
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
fn begin_move(cursors: &mut Cursors, consent: &Consent, output: &Output) -> Result<(), Failure> {
    if let Some(who) = cursors.begin_move(consent.force)? {
        output.warn(&format!("{who} is running, and this command fences it"));
    }
    Ok(())
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
    cursors: &mut Cursors,
    stream: &str,
    (cursor, shown): (&str, Option<&TargetProgress>),
    output: &Output,
) -> Result<(), Failure> {
    let progress = cursors.put(stream, Some(cursor), shown)?;
    output.text(&format!("{stream}: the next run resumes from {cursor}"));
    output.document(&stream_document(stream, Some(&progress)));
    Ok(())
}

fn edit(
    of: &OneStream,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    let found = with_cursors(
        &of.pipeline,
        history,
        common,
        output,
        false,
        |_, cursors| {
            cursors.refuse_active(consent.force)?;
            cursors.get(&of.stream)
        },
    )?;
    let before = as_json(found.cursor().unwrap_or_default());
    // No session stays open while a person edits: a run may begin meanwhile.
    let after = in_editor(&format!("{before:#}\n"))?;
    ensure_json(&after, of)?;
    if as_json(&after) == before {
        output.text(&format!("{}: nothing was changed", of.stream));
        output.document(&stream_document(&of.stream, found.progress.as_ref()));
        return Ok(());
    }
    let after = as_json(&after).to_string();
    with_cursors(&of.pipeline, history, common, output, true, |_, cursors| {
        begin_move(cursors, consent, output)?;
        ensure_readable(cursors, &of.stream, &after, output)?;
        let moved = (after.as_str(), found.progress.as_ref());
        put(cursors, &of.stream, moved, output)
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

fn rebind(
    pipeline: &args::Pipeline,
    stream: Option<&str>,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, history, common, output, true, |_, cursors| {
        begin_move(cursors, consent, output)?;
        let mut streams = Vec::new();
        cursors.rebind(stream, |rebound| {
            let name = &rebound.stream;
            output.text(&match rebound.needs_same_server {
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
            streams.push(stream_document(name, Some(&rebound.progress)));
        })?;
        output.document(&json!({ "status": "ok", "streams": streams }));
        Ok(())
    })
}

fn clear(
    pipeline: &args::Pipeline,
    stream: Option<&str>,
    (history, consent): (&History, &Consent),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_cursors(pipeline, history, common, output, true, |_, cursors| {
        begin_move(cursors, consent, output)?;
        let mut cleared = Vec::new();
        cursors.clear(stream, |name, progress| {
            output.text(&format!("{name}: the next run starts with its first row"));
            cleared.push(stream_document(name, Some(progress)));
        })?;
        if cleared.is_empty() {
            output.text("there was nothing to clear");
        }
        output.document(&json!({ "status": "ok", "streams": cleared }));
        Ok(())
    })
}
