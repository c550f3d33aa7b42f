//! `rapidbyte rejects list|show|replay PIPELINE`

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use rapidbyte::{Class, Failure, KeptReject, Pipeline, RejectOrigin, Rejects, Repaired, Replayed};
use serde_json::{Map, Value, json};

use crate::args::{self, Common, RejectsVerb as Verb};
use crate::output::{Output, count, one_line, rows as row_count, short, table};
use crate::setup::{self, Session};

/// Rejects that `show` prints unless the operator asks for more.
const SHOWN: u64 = 20;
/// Names of streams that [`none_of`] lists.
const MAX_OTHERS: usize = 10;
/// Bytes of the records in one JSON document. `--jsonl` has no such limit.
const MAX_SHOWN_BYTES: usize = 16 << 20;
/// Bytes of a file of repaired records.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub fn run(verb: &Verb, common: &Common, output: &Output) -> Result<(), Failure> {
    match verb {
        Verb::List { pipeline, stream } => list(pipeline, stream.as_deref(), common, output),
        Verb::Show {
            pipeline,
            stream,
            code,
            column,
            limit,
            jsonl,
        } => {
            let wanted = Wanted {
                stream: stream.as_deref(),
                code: code.as_deref(),
                column: column.as_deref(),
            };
            let limit = match jsonl {
                true => limit.unwrap_or(u64::MAX),
                false => limit.unwrap_or(SHOWN),
            };
            show(pipeline, &wanted, (limit, *jsonl), common, output)
        }
        Verb::Replay {
            pipeline,
            stream,
            from,
        } => replay_all(pipeline, stream, from.as_deref(), common, output),
    }
}

/// The rejects that the operator asks for.
struct Wanted<'a> {
    stream: Option<&'a str>,
    code: Option<&'a str>,
    column: Option<&'a str>,
}

impl Wanted<'_> {
    fn has(&self, kept: &KeptReject) -> bool {
        let is = |wanted: Option<&str>, found| wanted.is_none_or(|wanted| Some(wanted) == found);
        is(self.stream, Some(&kept.stream))
            && is(self.code, Some(&kept.reject.code))
            && is(self.column, kept.reject.column.as_deref())
    }
}

/// Opens the destination, which has the rejects.
fn with_rejects<T>(
    pipeline: &args::Pipeline,
    common: &Common,
    output: &Output,
    work: impl FnOnce(&Pipeline, &mut Rejects) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let pipeline = setup::pipeline(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let mut rejects = engine.rejects(&pipeline, &control)?;
    work(&pipeline, &mut rejects)
}

/// Rejects with one stream, column and code.
#[derive(Default)]
struct Counted {
    rejects: u64,
    first: String,
    last: String,
    last_run: String,
}

impl Counted {
    /// Counts one more. They come in any order of their times.
    fn add(&mut self, time: &str, run: &str) {
        if self.rejects == 0 || time < self.first.as_str() {
            self.first = time.to_owned();
        }
        if time >= self.last.as_str() {
            self.last = time.to_owned();
            self.last_run = run.to_owned();
        }
        self.rejects += 1;
    }
}

fn list(
    pipeline: &args::Pipeline,
    stream: Option<&str>,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    let file = pipeline.file.display();
    with_rejects(pipeline, common, output, |pipeline, rejects| {
        let mut counted: BTreeMap<(String, String, String), Counted> = BTreeMap::new();
        let mut newest: Option<KeptReject> = None;
        let mut others = BTreeSet::new();
        rejects.each(false, |kept| {
            if stream.is_some_and(|stream| stream != kept.stream) {
                others.insert(kept.stream);
                return true;
            }
            let column = kept.reject.column.clone().unwrap_or_default();
            let key = (kept.stream.clone(), column, kept.reject.code.clone());
            let one = counted.entry(key).or_default();
            one.add(&kept.time, &kept.run_id);
            if newest.as_ref().is_none_or(|one| kept.time >= one.time) {
                newest = Some(kept);
            }
            true
        })?;
        let to = pipeline.rejects_to().unwrap_or_default();
        output.text(&match (&newest, stream) {
            (None, Some(stream)) => none_of(pipeline, stream, &others),
            _ => list_text(pipeline, &file, &counted, newest.as_ref()),
        });
        let groups = counted.iter().map(|((stream, column, code), one)| {
            json!({
                "stream": stream,
                "column": (!column.is_empty()).then_some(column),
                "code": code,
                "rejects": one.rejects,
                "first": one.first,
                "last": one.last,
                "last_run": one.last_run,
            })
        });
        output.document(&json!({
            "status": "ok",
            "pipeline": pipeline.name(),
            "to": to,
            "rejects": counted.values().map(|one| one.rejects).sum::<u64>(),
            "groups": groups.collect::<Vec<_>>(),
        }));
        Ok(())
    })
}

/// Says that a stream has no rejects, and names the streams that have some.
fn none_of(pipeline: &Pipeline, stream: &str, others: &BTreeSet<String>) -> String {
    let to = pipeline.rejects_to().unwrap_or_default();
    let mut text = format!("{to} has no rejects of {}", one_line(stream));
    if !others.is_empty() {
        let others: Vec<String> = others
            .iter()
            .take(MAX_OTHERS)
            .map(|other| one_line(other))
            .collect();
        text += &format!("; it has rejects of {}", others.join(", "));
    }
    text
}

/// Says what is wrong, and what to do.
fn list_text(
    pipeline: &Pipeline,
    file: &dyn std::fmt::Display,
    counted: &BTreeMap<(String, String, String), Counted>,
    newest: Option<&KeptReject>,
) -> String {
    let to = pipeline.rejects_to().unwrap_or_default();
    let Some(newest) = newest else {
        return format!("{to} has no rejects of {}", pipeline.name());
    };
    let total: u64 = counted.values().map(|one| one.rejects).sum();
    let rejects = match total {
        1 => "1 reject".to_owned(),
        _ => format!("{} rejects", count(total)),
    };
    let head = [
        "stream", "column", "code", "rejects", "first", "last", "last run",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for ((stream, column, code), one) in counted {
        lines.push(vec![
            one_line(stream),
            match column.is_empty() {
                true => "-".into(),
                false => one_line(column),
            },
            one_line(code),
            count(one.rejects),
            one.first.clone(),
            one.last.clone(),
            one.last_run.clone(),
        ]);
    }
    let stream = one_line(&newest.stream);
    let next = match pipeline.ensure_replayable(&newest.stream) {
        Ok(()) => format!("After a repair: rapidbyte rejects replay {file} --stream {stream}"),
        Err(failure) => {
            let hint = failure.hint.unwrap_or_default();
            format!(
                "They cannot be replayed, because {}: {hint}",
                failure.message
            )
        }
    };
    format!(
        "{rejects} of {} in {to}; the newest: {}\n\n{}\n\nSee the records: rapidbyte rejects show {file} --stream \
         {stream}\n{next}",
        pipeline.name(),
        short(&one_line(&pipeline.redact(&reason(newest)))),
        table(&lines, ""),
    )
}

/// The place and the reason of a reject in one line.
fn reason(kept: &KeptReject) -> String {
    let place = kept.reject.location.as_deref();
    let place = place.map_or(String::new(), |place| format!("{place}: "));
    format!("{place}{} [{}]", kept.reject.message, kept.reject.code)
}

fn show(
    pipeline: &args::Pipeline,
    wanted: &Wanted<'_>,
    (limit, jsonl): (u64, bool),
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    with_rejects(pipeline, common, output, |pipeline, rejects| {
        let (mut shown, mut bytes) = (0, 0);
        let mut documents = Vec::new();
        let mut is_all = true;
        let mut others = BTreeSet::new();
        rejects.each(true, |kept| {
            if !wanted.has(&kept) {
                others.insert(kept.stream);
                return true;
            }
            bytes += kept.reject.data.len() + kept.reject.message.len();
            if shown == limit || (!jsonl && bytes > MAX_SHOWN_BYTES) {
                is_all = false;
                return false;
            }
            shown += 1;
            let one = document_of(pipeline, &kept);
            if jsonl {
                output.line(&one);
            } else {
                output.text(&text_of(pipeline, &kept));
                if common.output == crate::args::Format::Json {
                    documents.push(one);
                }
            }
            true
        })?;
        if jsonl {
            return Ok(());
        }
        let to = pipeline.rejects_to().unwrap_or_default();
        if shown == 0 {
            output.text(&match wanted.stream {
                Some(stream) if !others.contains(stream) => none_of(pipeline, stream, &others),
                _ => format!("{to} has no such rejects of {}", pipeline.name()),
            });
        }
        if !is_all {
            output.text("More are kept: show them with --limit ROWS, or all of them with --jsonl.");
        }
        output.document(&json!({
            "status": "ok",
            "pipeline": pipeline.name(),
            "to": to,
            "complete": is_all,
            "rejects": documents,
        }));
        Ok(())
    })
}

fn origin_name(origin: RejectOrigin) -> &'static str {
    match origin {
        RejectOrigin::Source => "source",
        RejectOrigin::Transform => "transform",
        RejectOrigin::Destination => "destination",
    }
}

fn text_of(pipeline: &Pipeline, kept: &KeptReject) -> String {
    let reject = &kept.reject;
    let place = reject.location.as_deref().unwrap_or("place unknown");
    let column = match &reject.column {
        Some(column) => format!(", column {}", one_line(column)),
        None => String::new(),
    };
    let cut = if reject.is_cut { " (cut)" } else { "" };
    let record = short(&one_line(&String::from_utf8_lossy(&reject.data)));
    format!(
        "{} {} {}{column} [{}] refused by the {}, {}, run {}\n  {}\n  record{cut}: {record}",
        kept.id,
        one_line(&kept.stream),
        one_line(&pipeline.redact(place)),
        one_line(&reject.code),
        origin_name(kept.origin),
        one_line(&kept.time),
        one_line(&kept.run_id),
        one_line(&pipeline.redact(&reject.message)),
    )
}

/// A reject for programs. A record that is a JSON object, and that is written back unchanged, is an object here.
fn document_of(pipeline: &Pipeline, kept: &KeptReject) -> Value {
    let reject = &kept.reject;
    let mut known = Map::new();
    known.insert("id".into(), json!(kept.id));
    known.insert("stream".into(), json!(kept.stream));
    match std::str::from_utf8(&reject.data) {
        Ok(text) => known.insert("record".into(), as_value(text)),
        Err(_) => {
            let hex: String = reject
                .data
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            known.insert("record_hex".into(), json!(hex))
        }
    };
    known.insert("is_cut".into(), json!(reject.is_cut));
    known.insert("origin".into(), json!(origin_name(kept.origin)));
    known.insert(
        "location".into(),
        json!(reject.location.as_deref().map(|text| pipeline.redact(text))),
    );
    known.insert("column".into(), json!(reject.column));
    known.insert("code".into(), json!(reject.code));
    known.insert("message".into(), json!(pipeline.redact(&reject.message)));
    known.insert("time".into(), json!(kept.time));
    known.insert("run_id".into(), json!(kept.run_id));
    Value::Object(known)
}

fn as_value(text: &str) -> Value {
    let object = serde_json::from_str(text).ok().filter(Value::is_object);
    let written = object.as_ref().map(Value::to_string);
    match object.filter(|_| written.as_deref() == Some(text)) {
        Some(object) => object,
        None => json!(text),
    }
}

fn replay_all(
    pipeline: &args::Pipeline,
    stream: &str,
    from: Option<&Path>,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    let repaired = from.map(read_repaired).transpose()?;
    let pipeline = setup::pipeline(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let replayed = engine.replay(&pipeline, stream, repaired, &control)?;
    if replayed.rejects > 0 {
        output.committed();
    }
    output.text(&replayed_text(&pipeline, stream, &replayed));
    output.document(&json!({
        "status": "ok",
        "pipeline": pipeline.name(),
        "stream": stream,
        "replayed": replayed.rejects,
        "rows": replayed.rows,
        "rejected": replayed.rejected,
        "rejects": replayed.first,
        "run_ids": replayed.runs,
    }));
    Ok(())
}

fn replayed_text(pipeline: &Pipeline, stream: &str, replayed: &Replayed) -> String {
    let to = pipeline.rejects_to().unwrap_or_default();
    if replayed.rejects == 0 {
        return format!("{to} has no rejects of {stream}: nothing was replayed");
    }
    let mut text = format!(
        "{stream}: {} of {} replayed, {} in the target",
        count(replayed.rejects),
        to,
        row_count(replayed.rows),
    );
    if let Some(first) = replayed.first.first() {
        text += &format!(
            "\n{} failed again and stay in {to}; the first: {}",
            count(replayed.rejected),
            first.shown()
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
    fn the_last_of_a_group_is_the_newest_in_any_order() {
        let mut counted = Counted::default();
        for (time, run) in [("11:02", "b"), ("11:03", "c"), ("11:01", "a")] {
            counted.add(time, run);
        }
        let Counted {
            rejects,
            first,
            last,
            last_run,
        } = counted;
        assert_eq!(
            (rejects, &*first, &*last, &*last_run),
            (3, "11:01", "11:03", "c")
        );
    }

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

    #[test]
    fn a_record_is_shown_as_an_object_only_if_that_changes_nothing() {
        assert!(as_value(r#"{"id":5,"x":"NaN","total":500.0}"#).is_object());
        for text in ["x,b,2", "{broken", r#"{"a": 1}"#, r#"{"a":1.10}"#, "[1]"] {
            assert_eq!(as_value(text), json!(text));
        }
    }
}
