//! `rapidbyte state list|get|set|edit|rebind|clear`

use std::io::{Read, Write};
use std::process::Command;

use rapidbyte::{CheckedCursor, Class, Cursors, Failure, Pipeline, ShownCursor};
use rapidbyte_serve::{Client, MovedCursors, SetCursor};
use serde_json::{Value, json};

use crate::args::{self, Common, History, OnServer, OneStream, StateVerb as Verb};
use crate::cursor::readable_json;
use crate::output::{Output, count, table};
use crate::server;
use crate::setup::{self, Session};

pub fn run(verb: &Verb, common: &Common, output: &Output) -> Result<(), Failure> {
    let place = |pipeline, on, history| Place::of(pipeline, on, history, common, output);
    match verb {
        Verb::List {
            pipeline,
            on,
            history,
        } => list(&place(pipeline, on, history)?, output),
        Verb::Get { of, on, history } => get(&place(&of.pipeline, on, history)?, of, output),
        Verb::Set {
            of,
            on,
            cursor,
            history,
            consent,
        } => {
            ensure_json(cursor, of)?;
            let place = place(&of.pipeline, on, history)?;
            place.ensure_own_cursors()?;
            let set = place.set(&of.stream, (cursor, None), consent.force, output)?;
            told(&set, &of.stream, cursor, output);
            Ok(())
        }
        Verb::Edit {
            of,
            on,
            history,
            consent,
        } => {
            let place = place(&of.pipeline, on, history)?;
            place.ensure_own_cursors()?;
            edit(&place, of, consent.force, output)
        }
        Verb::Rebind {
            pipeline,
            on,
            stream,
            all: _,
            history,
            consent,
        } => {
            let place = place(pipeline, on, history)?;
            rebind(&place, stream.as_deref(), consent.force, output)
        }
        Verb::Clear {
            pipeline,
            on,
            stream,
            all: _,
            history,
            consent,
        } => {
            let place = place(pipeline, on, history)?;
            clear(&place, stream.as_deref(), consent.force, output)
        }
    }
}

/// Where the pipeline is.
enum Place<'a> {
    /// A file of this machine.
    Here {
        pipeline: Box<Pipeline>,
        history: &'a History,
        session: Session,
    },
    /// A server, which knows it by its name.
    Server { name: String, client: Client },
}

impl<'a> Place<'a> {
    fn of(
        pipeline: &args::Pipeline,
        on: &OnServer,
        history: &'a History,
        common: &Common,
        output: &Output,
    ) -> Result<Self, Failure> {
        if let Some(client) = server::client(on, output)? {
            server::refuse(&[("--state", history.state.is_some())], common)?;
            let name = server::name(pipeline)?.to_owned();
            return Ok(Self::Server { name, client });
        }
        let pipeline = Box::new(setup::pipeline(pipeline, common)?);
        Ok(Self::Here {
            session: setup::session(output, Some(&pipeline))?,
            pipeline,
            history,
        })
    }

    /// Refuses a pipeline whose cursors say which jobs of a server are done. A server refuses it itself.
    fn ensure_own_cursors(&self) -> Result<(), Failure> {
        match self {
            Self::Here { pipeline, .. } => setup::ensure_source(pipeline),
            Self::Server { .. } => Ok(()),
        }
    }

    /// Sets the cursor of a stream. `seq` is the number of commits that the operator has seen.
    fn set(
        &self,
        stream: &str,
        (cursor, seq): (&str, Option<u64>),
        force: bool,
        output: &Output,
    ) -> Result<ShownCursor, Failure> {
        match self {
            Self::Here {
                pipeline,
                history,
                session,
            } => {
                let mut cursors = opened(pipeline, history, session, true)?;
                if let Some(who) = cursors.begin_move(force)? {
                    fences(&who, output);
                }
                // A stream whose cursor was seen may have left the pipeline file.
                if seq.is_none() {
                    cursors.ensure_known(stream)?;
                }
                // A cursor that no run takes would end the next one.
                if let Some(why) = cursors.refuse_unreadable(stream, cursor)? {
                    unchecked(stream, (&why.code, &why.message), output);
                }
                let progress = cursors.put(stream, Some(cursor), seq)?;
                Ok(ShownCursor::of(stream, Some(&progress)))
            }
            Self::Server { name, client } => {
                let set = client.set_cursor((name, stream), cursor, seq, force);
                let SetCursor {
                    stream: shown,
                    fences: who,
                    unchecked: why,
                } = set.map_err(server::failure)?;
                if let Some(who) = who {
                    fences(&who, output);
                }
                if let Some(why) = why {
                    unchecked(stream, (&why.code, &why.message), output);
                }
                Ok(shown)
            }
        }
    }
}

/// Opens the destination of a pipeline of this machine. One that is only asked may not write files.
fn opened(
    pipeline: &Pipeline,
    history: &History,
    Session { engine, control }: &Session,
    changes: bool,
) -> Result<Cursors, Failure> {
    engine.cursors(pipeline, history.state.as_deref(), changes, control)
}

fn fences(who: &str, output: &Output) {
    output.warn(&format!("{who} is running, and this command fences it"));
}

fn unchecked(stream: &str, (code, message): (&str, &str), output: &Output) {
    output.warn(&format!(
        "{stream}: the source could not check the cursor ({code}: {message}), and the next run may refuse it"
    ));
}

fn list(place: &Place<'_>, output: &Output) -> Result<(), Failure> {
    let (name, streams) = match place {
        Place::Here {
            pipeline,
            history,
            session,
        } => {
            let found = opened(pipeline, history, session, false)?.list()?;
            // The list redacts secrets, because nobody sets a cursor from it; `get` has the cursor as it is.
            let found = found.into_iter().map(|found| found.redacted(pipeline));
            let found: Vec<_> = found.map(|found| CheckedCursor::from(&found)).collect();
            (pipeline.name(), found)
        }
        Place::Server { name, client } => (
            name.as_str(),
            client.cursors(name).map_err(server::failure)?,
        ),
    };
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(streams.iter().map(row));
    output.text(&match streams.is_empty() {
        true => "no stream is known yet: the pipeline names patterns, and has not run here".into(),
        false => table(&rows, ""),
    });
    for refused in streams.iter().filter_map(refusal) {
        output.text(&refused);
    }
    output.document(&json!({ "status": "ok", "pipeline": name, "streams": streams }));
    Ok(())
}

/// Why the next run refuses a stream, for people.
fn refusal(found: &CheckedCursor) -> Option<String> {
    let refused = found.refused.as_ref()?;
    let hint = refused.hint.as_deref();
    let hint = hint.map(|hint| format!("\n  hint: {hint}"));
    Some(format!(
        "{}: the next run is refused with {}: {}{}",
        found.cursor.name,
        refused.code,
        refused.message,
        hint.unwrap_or_default()
    ))
}

/// The columns of `state list`.
const HEAD: [&str; 4] = ["stream", "commits", "last run", "cursor"];

fn row(found: &CheckedCursor) -> Vec<String> {
    let shown = &found.cursor;
    let (commits, last_run, cursor) = match shown.known {
        false if found.refused.is_some() => ("-".into(), "refused", "no cursor".into()),
        false => ("-".into(), "not moved yet", "-".into()),
        true => (
            count(shown.seq.unwrap_or_default()),
            match shown.complete {
                Some(true) => "complete",
                _ => "not complete",
            },
            shown.cursor.as_ref().map_or("-".into(), readable_json),
        ),
    };
    vec![shown.name.clone(), commits, last_run.to_owned(), cursor]
}

/// The cursor of a stream, and its text.
fn found(place: &Place<'_>, stream: &str) -> Result<(CheckedCursor, String), Failure> {
    match place {
        Place::Here {
            pipeline,
            history,
            session,
        } => {
            let found = opened(pipeline, history, session, false)?.get(stream)?;
            let text = found.cursor().unwrap_or_default().to_owned();
            Ok((CheckedCursor::from(&found), text))
        }
        Place::Server { name, client } => client.cursor(name, stream).map_err(server::failure),
    }
}

fn get(place: &Place<'_>, of: &OneStream, output: &Output) -> Result<(), Failure> {
    let (found, text) = found(place, &of.stream)?;
    output.text(&text);
    if let Some(refused) = refusal(&found) {
        output.warn(&refused);
    }
    output.document(&json!(found));
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

fn told(set: &ShownCursor, stream: &str, cursor: &str, output: &Output) {
    output.text(&format!("{stream}: the next run resumes from {cursor}"));
    output.document(&json!(set));
}

fn edit(place: &Place<'_>, of: &OneStream, force: bool, output: &Output) -> Result<(), Failure> {
    // A server refuses an active run only when the cursor moves.
    if let Place::Here {
        pipeline,
        history,
        session,
    } = place
    {
        opened(pipeline, history, session, false)?.refuse_active(force)?;
    }
    let (found, text) = found(place, &of.stream)?;
    let before: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    // No session stays open while a person edits: a run may begin meanwhile.
    let after = in_editor(&format!("{before:#}\n"))?;
    ensure_json(&after, of)?;
    let edited: Value = serde_json::from_str(&after).unwrap_or_default();
    if edited == before {
        output.text(&format!("{}: nothing was changed", of.stream));
        output.document(&json!(found.cursor));
        return Ok(());
    }
    let after = edited.to_string();
    let set = place.set(&of.stream, (&after, found.cursor.seq), force, output)?;
    told(&set, &of.stream, &after, output);
    Ok(())
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
    place: &Place<'_>,
    stream: Option<&str>,
    force: bool,
    output: &Output,
) -> Result<(), Failure> {
    let rebound = |name: &str, is_of_server: bool| {
        output.text(&match is_of_server {
            false => {
                format!("{name}: the next run accepts the source and the target that it finds")
            }
            true => format!(
                "{name}: the next run accepts the target that it finds; a cursor of `change_detection: xmin` is valid \
                 only for its own server, and another server needs --full-refresh"
            ),
        });
    };
    let mut streams = Vec::new();
    match place {
        Place::Here {
            pipeline,
            history,
            session,
        } => {
            let mut cursors = opened(pipeline, history, session, true)?;
            if let Some(who) = cursors.begin_move(force)? {
                fences(&who, output);
            }
            cursors.rebind(stream, |one| {
                rebound(&one.stream, one.needs_same_server);
                streams.push(ShownCursor::of(&one.stream, Some(&one.progress)));
            })?;
        }
        Place::Server { name, client } => {
            let moved = client.rebind_cursors(name, stream, force);
            let moved = moved_there(moved.map_err(server::failure)?, output);
            for one in &moved.streams {
                rebound(&one.name, moved.of_server.contains(&one.name));
            }
            streams = moved.streams;
        }
    }
    output.document(&json!({ "status": "ok", "streams": streams }));
    Ok(())
}

/// The cursors that a server has moved, after the warning about a run that it fenced.
fn moved_there(moved: MovedCursors, output: &Output) -> MovedCursors {
    if let Some(who) = &moved.fences {
        fences(who, output);
    }
    moved
}

fn clear(
    place: &Place<'_>,
    stream: Option<&str>,
    force: bool,
    output: &Output,
) -> Result<(), Failure> {
    let cleared =
        |name: &str| output.text(&format!("{name}: the next run starts with its first row"));
    let mut streams = Vec::new();
    match place {
        Place::Here {
            pipeline,
            history,
            session,
        } => {
            let mut cursors = opened(pipeline, history, session, true)?;
            if let Some(who) = cursors.begin_move(force)? {
                fences(&who, output);
            }
            cursors.clear(stream, |name, progress| {
                cleared(name);
                streams.push(ShownCursor::of(name, Some(progress)));
            })?;
        }
        Place::Server { name, client } => {
            let moved = client.clear_cursors(name, stream, force);
            streams = moved_there(moved.map_err(server::failure)?, output).streams;
            streams.iter().for_each(|one| cleared(&one.name));
        }
    }
    if streams.is_empty() {
        output.text("there was nothing to clear");
    }
    output.document(&json!({ "status": "ok", "streams": streams }));
    Ok(())
}
