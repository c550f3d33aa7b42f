//! `rapidbyte rejects list|show|replay PIPELINE`

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use rapidbyte::{
    Class, Failure, NewestReject, Pipeline, RejectCounts, RejectFilter, Rejects, Repaired,
    ShownReject, ShownRejects,
};
use rapidbyte_serve::{Client, Replayed};
use serde_json::{Value, json};

use crate::args::{self, Common, OnServer, RejectsVerb as Verb};
use crate::output::{Output, count, one_line, rows as row_count, short, table};
use crate::server;
use crate::setup::{self, Session};

/// Rejects that `show` prints unless the operator asks for more.
const SHOWN: u64 = 20;
/// Bytes of the records in one JSON document. `--jsonl` has no such limit.
const MAX_SHOWN_BYTES: u64 = 16 << 20;
/// Bytes of a file of repaired records.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub fn run(verb: &Verb, common: &Common, output: &Output) -> Result<(), Failure> {
    match verb {
        Verb::List {
            pipeline,
            on,
            stream,
        } => {
            let place = Place::of(pipeline, on, common, output)?;
            list(&place, stream.as_deref(), output)
        }
        Verb::Show {
            pipeline,
            on,
            stream,
            code,
            column,
            limit,
            jsonl,
        } => {
            let place = Place::of(pipeline, on, common, output)?;
            let wanted = RejectFilter {
                stream: stream.as_deref(),
                code: code.as_deref(),
                column: column.as_deref(),
                limit: limit.or((!jsonl).then_some(SHOWN)),
                max_bytes: (!jsonl).then_some(MAX_SHOWN_BYTES),
            };
            show(&place, wanted, *jsonl, output)
        }
        Verb::Replay {
            pipeline,
            on,
            stream,
            from,
        } => {
            let repaired = from.as_deref().map(read_repaired).transpose()?;
            let place = Place::of(pipeline, on, common, output)?;
            replay_all(&place, stream, repaired, output)
        }
    }
}

/// Where the pipeline is.
enum Place {
    /// A file of this machine.
    Here {
        file: String,
        pipeline: Box<Pipeline>,
    },
    /// A server, which knows it by its name.
    Server { name: String, client: Client },
}

impl Place {
    fn of(
        pipeline: &args::Pipeline,
        on: &OnServer,
        common: &Common,
        output: &Output,
    ) -> Result<Self, Failure> {
        if let Some(client) = server::client(on, output)? {
            server::refuse(&[], common)?;
            let name = server::name(pipeline)?.to_owned();
            return Ok(Self::Server { name, client });
        }
        Ok(Self::Here {
            file: pipeline.file.display().to_string(),
            pipeline: Box::new(setup::pipeline(pipeline, common)?),
        })
    }

    /// The pipeline as the next command names it.
    fn named(&self) -> String {
        match self {
            Self::Here { file, .. } => file.clone(),
            Self::Server { name, client } => format!("{name} --server {}", client.url()),
        }
    }
}

/// Opens the destination, which has the rejects.
fn opened(pipeline: &Pipeline, output: &Output) -> Result<Rejects, Failure> {
    let Session { engine, control } = setup::session(output, Some(pipeline))?;
    engine.rejects(pipeline, &control)
}

fn list(place: &Place, stream: Option<&str>, output: &Output) -> Result<(), Failure> {
    let counts = match place {
        Place::Here { pipeline, .. } => {
            let counts = opened(pipeline, output)?.counts(stream, usize::MAX)?;
            rapidbyte_serve::without_replay(pipeline, counts)
        }
        Place::Server { name, client } => client.rejects(name, stream).map_err(server::failure)?,
    };
    output.text(&match (&counts.newest, stream) {
        (None, Some(stream)) => none_of(&counts.to, stream, &counts.other_streams),
        (None, None) => format!("{} has no rejects of {}", counts.to, counts.pipeline),
        (Some(newest), _) => list_text(&counts, newest, &place.named()),
    });
    output.document(&json!({
        "status": "ok",
        "pipeline": counts.pipeline,
        "to": counts.to,
        "rejects": counts.rejects,
        "groups": counts.groups,
    }));
    Ok(())
}

/// Says that a stream has no rejects, and names the streams that have some.
fn none_of(to: &str, stream: &str, others: &[String]) -> String {
    let mut text = format!("{to} has no rejects of {}", one_line(stream));
    if !others.is_empty() {
        let others = others.iter();
        let others: Vec<String> = others.map(|other| one_line(other)).collect();
        text += &format!("; it has rejects of {}", others.join(", "));
    }
    text
}

/// Says what is wrong, and what to do.
fn list_text(counts: &RejectCounts, newest: &NewestReject, named: &str) -> String {
    let RejectCounts { pipeline, to, .. } = counts;
    let rejects = match counts.rejects {
        1 => "1 reject".to_owned(),
        rejects => format!("{} rejects", count(rejects)),
    };
    let head = [
        "stream", "column", "code", "rejects", "first", "last", "last run",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for one in &counts.groups {
        lines.push(vec![
            one_line(&one.stream),
            one.column.as_deref().map_or_else(|| "-".into(), one_line),
            one_line(&one.code),
            count(one.rejects),
            one.first.clone(),
            one.last.clone(),
            one.last_run.clone(),
        ]);
    }
    let mut groups = table(&lines, "");
    if counts.unlisted > 0 {
        groups += &format!("\nand {} of further groups", count(counts.unlisted));
    }
    let stream = one_line(&newest.stream);
    let next = match &newest.unreplayable {
        None => format!("After a repair: rapidbyte rejects replay {named} --stream {stream}"),
        Some(why) => format!(
            "They cannot be replayed, because {}: {}",
            why.message,
            why.hint.as_deref().unwrap_or_default()
        ),
    };
    format!(
        "{rejects} of {pipeline} in {to}; the newest: {}\n\n{groups}\n\nSee the records: rapidbyte rejects show {named} \
         --stream {stream}\n{next}",
        short(&one_line(&reason(newest))),
    )
}

/// The place and the reason of a reject in one line.
fn reason(newest: &NewestReject) -> String {
    let place = newest.location.as_deref();
    let place = place.map_or(String::new(), |place| format!("{place}: "));
    // A token that may not see values does not get the message.
    let message = newest
        .message
        .as_deref()
        .map_or_else(String::new, |message| format!("{message} "));
    format!("{place}{message}[{}]", newest.code)
}

fn show(
    place: &Place,
    wanted: RejectFilter<'_>,
    jsonl: bool,
    output: &Output,
) -> Result<(), Failure> {
    let mut documents = Vec::new();
    let print = |one: &ShownReject| match jsonl {
        true => output.line(&json!(one)),
        false => {
            output.text(&text_of(one));
            if output.has_documents() {
                documents.push(json!(one));
            }
        }
    };
    let shown = match place {
        Place::Here { pipeline, .. } => {
            let mut print = print;
            opened(pipeline, output)?.show(wanted, |one| {
                print(&one);
                true
            })?
        }
        Place::Server { name, client } => {
            let mut print = print;
            let read = client.records(name, wanted, |one| print(&one));
            read.map_err(server::failure)?
        }
    };
    if jsonl {
        return Ok(());
    }
    let ShownRejects {
        to, other_streams, ..
    } = &shown;
    if shown.rejects == 0 {
        output.text(&match wanted.stream {
            Some(stream) if !other_streams.iter().any(|other| other == stream) => {
                none_of(to, stream, other_streams)
            }
            _ => format!("{to} has no such rejects of {}", shown.pipeline),
        });
    }
    if !shown.complete {
        output.text("More are kept: show them with --limit ROWS, or all of them with --jsonl.");
    }
    output.document(&json!({
        "status": "ok",
        "pipeline": shown.pipeline,
        "to": to,
        "complete": shown.complete,
        "rejects": documents,
    }));
    Ok(())
}

fn text_of(one: &ShownReject) -> String {
    let place = one.location.as_deref().unwrap_or("place unknown");
    let column = match &one.column {
        Some(column) => format!(", column {}", one_line(column)),
        None => String::new(),
    };
    let cut = if one.is_cut { " (cut)" } else { "" };
    format!(
        "{} {} {}{column} [{}] refused by the {}, {}, run {}\n  {}\n  record{cut}: {}",
        one.id,
        one_line(&one.stream),
        one_line(place),
        one_line(&one.code),
        one.origin,
        one_line(&one.time),
        one_line(&one.run_id),
        one_line(&one.message),
        short(&one_line(&one.record_text())),
    )
}

fn replay_all(
    place: &Place,
    stream: &str,
    repaired: Option<Vec<Repaired>>,
    output: &Output,
) -> Result<(), Failure> {
    let replayed = match place {
        Place::Here { pipeline, .. } => {
            setup::ensure_source(pipeline)?;
            let Session { engine, control } = setup::session(output, Some(pipeline))?;
            let replayed = engine.replay(pipeline, stream, repaired, &control)?;
            Replayed {
                pipeline: pipeline.name().to_owned(),
                to: pipeline.rejects_to().unwrap_or_default().to_owned(),
                replayed: replayed.rejects,
                rows: replayed.rows,
                rejected: replayed.rejected,
                rejects: replayed.first.iter().map(|first| json!(first)).collect(),
                run_ids: replayed.runs,
            }
        }
        Place::Server { name, client } => {
            let replayed = client.replay(name, stream, repaired.as_deref());
            replayed.map_err(server::failure)?
        }
    };
    if replayed.replayed > 0 {
        output.committed();
    }
    output.text(&replayed_text(stream, &replayed));
    output.document(&json!({
        "status": "ok",
        "pipeline": replayed.pipeline,
        "stream": stream,
        "replayed": replayed.replayed,
        "rows": replayed.rows,
        "rejected": replayed.rejected,
        "rejects": replayed.rejects,
        "run_ids": replayed.run_ids,
    }));
    Ok(())
}

fn replayed_text(stream: &str, replayed: &Replayed) -> String {
    let to = &replayed.to;
    if replayed.replayed == 0 {
        return format!("{to} has no rejects of {stream}: nothing was replayed");
    }
    let mut text = format!(
        "{stream}: {} of {to} replayed, {} in the target",
        count(replayed.replayed),
        row_count(replayed.rows),
    );
    if let Some(first) = replayed.rejects.first() {
        let part = |key: &str| first[key].as_str().unwrap_or_default();
        let place = first["location"].as_str();
        let place = place.map_or(String::new(), |place| format!("{place}: "));
        text += &format!(
            "\n{} failed again and stay in {to}; the first: {place}{} ({})",
            count(replayed.rejected),
            part("message"),
            part("code"),
        );
    }
    text
}

/// The repaired records of a file: one JSON object a line, with `id` and `record`.
fn read_repaired(path: &Path) -> Result<Vec<Repaired>, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        let text = format!("{shown}: {error}");
        Failure::new(Class::Config, "replay_file_unreadable", text)
            .hint("name a file with lines of `rapidbyte rejects show PIPELINE --jsonl`")
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let lines = BufReader::new(file.take(MAX_FILE_BYTES + 1)).lines();
    let (mut bytes, mut known, mut repaired) = (0, HashSet::new(), Vec::new());
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(failed)?;
        bytes += line.len() as u64 + 1;
        // An editor may have put a mark in front of the first line.
        let line = line.trim_start_matches('\u{feff}');
        if bytes > MAX_FILE_BYTES {
            let text = format!("{shown} has more than {MAX_FILE_BYTES} bytes");
            return Err(Failure::new(Class::Config, "replay_file_too_large", text)
                .hint("split the file by lines, and replay one part after the other"));
        }
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{shown}:{number}");
        let (id, run_id, record) = repaired_of(line).map_err(|why| invalid(&place, &why))?;
        if !known.insert(id.clone()) {
            let why = format!("the reject {id} is in an earlier line, too");
            return Err(invalid(&place, &why));
        }
        repaired.push(Repaired {
            id,
            record,
            run_id,
            place,
        });
    }
    if repaired.is_empty() {
        let text = format!("{shown} has no records");
        let failure = Failure::new(Class::Config, "replay_file_invalid", text);
        return Err(failure.hint(
            "write repaired lines of `rapidbyte rejects show PIPELINE --jsonl` into the file",
        ));
    }
    Ok(repaired)
}

fn invalid(place: &str, why: &str) -> Failure {
    let text = format!("this line cannot be replayed: {why}");
    let mut failure = Failure::new(Class::Config, "replay_file_invalid", text);
    failure.location = Some(place.to_owned());
    failure.hint(
        "write lines as `rapidbyte rejects show PIPELINE --jsonl` prints them: an id, and the repaired record as a string \
         or an object",
    )
}

/// The keys of a line that a replay uses. A duplicate key is an error.
#[derive(serde::Deserialize)]
struct Line {
    id: Option<Value>,
    run_id: Option<String>,
    record: Option<Value>,
}

/// The id, the run and the record of a line.
fn repaired_of(line: &str) -> Result<(String, Option<String>, Vec<u8>), String> {
    let read = |error: serde_json::Error| error.to_string();
    let value: Value = serde_json::from_str(line).map_err(read)?;
    let Line { id, run_id, record } = serde_json::from_str(line).map_err(read)?;
    let Some(Value::String(id)) = id else {
        return Err("it has no \"id\" that is a string".into());
    };
    let record = match record {
        Some(Value::String(text)) => text,
        // The numbers of an object must keep their spelling.
        Some(object @ Value::Object(_)) if numbers(line) == numbers(&value.to_string()) => {
            object.to_string()
        }
        Some(Value::Object(_)) => {
            return Err("a number of \"record\" would change, or a key is there twice: write the record as a string".into());
        }
        _ => return Err("it has no \"record\" that is a string or an object".into()),
    };
    match record.trim().is_empty() {
        true => Err("\"record\" is empty: remove the line to keep the reject".into()),
        false => Ok((id, run_id, record.into_bytes())),
    }
}

/// The numbers of a JSON text, as they are written.
fn numbers(text: &str) -> Vec<&str> {
    let (mut found, mut begun) = (Vec::new(), None);
    let (mut is_string, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if is_string {
            (is_string, is_escaped) = (is_escaped || c != '"', !is_escaped && c == '\\');
            continue;
        }
        is_string = c == '"';
        let is_part = c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        match begun {
            None if c.is_ascii_digit() || c == '-' => begun = Some(at),
            Some(start) if !is_part => {
                found.push(&text[start..at]);
                begun = None;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repaired_record_keeps_its_text_or_is_refused() {
        let record = |line: &str| repaired_of(line).map(|(_, _, r)| String::from_utf8(r).unwrap());
        for (line, expected) in [
            (r#"{"id":"1","record":"x,\"1\""}"#, "x,\"1\""),
            (r#"{"id": "1", "record": {"a": 1.50e, "b": 2}}"#, ""),
            (
                r#"{"id": "1", "record": {"a": 1.5, "b": "1e2 \"3\""}}"#,
                r#"{"a":1.5,"b":"1e2 \"3\""}"#,
            ),
            (
                r#"{"id": "1", "record": {"a": 123456789012345678901234}}"#,
                "",
            ),
            (r#"{"id": "1", "record": {"a": 1.10}}"#, ""),
            (r#"{"id": "1", "record": {"a": 1, "a": 2}}"#, ""),
            (r#"{"id": "1", "record": " "}"#, ""),
            (r#"{"id": "1", "record": "a", "record": "b"}"#, ""),
            (r#"{"id": 1, "record": "a"}"#, ""),
            (r#"{"id": "1"}"#, ""),
        ] {
            assert_eq!(record(line).unwrap_or_default(), expected, "{line}");
        }
    }
}
