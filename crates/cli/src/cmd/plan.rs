//! `rapidbyte plan PIPELINE`

mod overview;
mod saved;

use std::collections::HashSet;

use rapidbyte::{
    Failure, Fit, Increment, Kind, LateRows, Narrowing, Plan, PlannedColumn as Column, Refused,
    Stage, Step, StreamPlan, WARNING_NOTE, sync_mode_name, write_mode_name,
};
use serde_json::{Map, Value, json};

use crate::args::{Common, Pipeline, Plan as Arguments};
use crate::cursor::readable;
use crate::output::{Output, bytes, counted, one_line, table, wrapped};
use crate::setup::{self, Session};
use overview::Line;
pub use saved::Saved;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    if arguments.grants_only {
        return show_grants(&arguments.pipeline, common, output);
    }
    let narrowing = arguments.narrow.narrowing();
    show(&arguments.pipeline, &narrowing, None, common, output)
}

/// Shows what the connectors would be granted, by their descriptions.
fn show_grants(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let stages = engine.grants(&pipeline, &control)?;
    let stages: Vec<&Stage> = stages.iter().collect();
    output.text(&stages_text(&stages));
    let mut shown = stages_document(&stages);
    shown["status"] = json!("ok");
    shown["pipeline"] = json!(pipeline.name());
    output.document(&shown);
    Ok(())
}

/// Shows what a run with this choice would do, and refuses another plan than `saved`.
pub fn show(
    pipeline: &Pipeline,
    narrowing: &Narrowing,
    saved: Option<&Saved>,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    // Before any of them can act: whoever does not like what is granted stops it here.
    let stages = engine.grants(&pipeline, &control)?;
    let stages: Vec<&Stage> = stages.iter().collect();
    output.text(&stages_text(&stages));
    output.known(stages_document(&stages));
    let mut preview = engine.preview(&pipeline, narrowing, &control)?;
    let planned = document(preview.plan());
    output.known(planned.clone());
    let refusals = preview.refusals();
    let plan = preview.plan();
    let refused = match &refusals {
        Ok(refusals) => &refusals.streams,
        Err(_) => &plan.refused,
    };
    output.text(&text_of(plan, refused, output));
    if let Some(failure) = refusals?.failure {
        return Err(failure);
    }
    saved.map_or(Ok(()), |saved| saved.ensure_same(&planned))?;
    output.document(&planned);
    Ok(())
}

const FITS: [Fit; 6] = [
    Fit::Exact,
    Fit::Widened,
    Fit::Checked,
    Fit::Lossy,
    Fit::Ignored,
    Fit::Refused,
];

fn fit_name(fit: Fit) -> &'static str {
    match fit {
        Fit::Exact => "exact",
        Fit::Widened => "widened",
        Fit::Checked => "checked",
        Fit::Lossy => "lossy",
        Fit::Refused => "refused",
        Fit::Ignored => "ignored",
    }
}

/// How many columns of the streams have each fit.
fn fits(streams: &[&StreamPlan]) -> [(Fit, usize); FITS.len()] {
    let columns = || streams.iter().flat_map(|stream| &stream.placed.columns);
    FITS.map(|fit| (fit, columns().filter(|column| column.fit == fit).count()))
}

/// A sum of estimates; nothing if one of them is not known.
fn sum(streams: &[&StreamPlan], of: impl Fn(&StreamPlan) -> Option<u64>) -> Option<u64> {
    streams.iter().map(|stream| of(stream)).sum()
}

/// Rows that will move, as far as anybody knows.
fn estimated_rows(plan: &Plan, stream: &StreamPlan) -> Option<u64> {
    let rows = stream.discovered.estimated_rows?;
    Some(plan.limit.map_or(rows, |limit| rows.min(limit)))
}

fn notes(stream: &StreamPlan) -> impl Iterator<Item = &String> {
    let transforms = stream.transforms.iter().flat_map(|step| &step.notes);
    let notes = stream.discovered.notes.iter().chain(transforms);
    notes.chain(&stream.placed.notes)
}

/// The plan, with `status`.
pub fn document(plan: &Plan) -> Value {
    let all: Vec<&StreamPlan> = plan.streams.iter().collect();
    let fits: Map<String, Value> = fits(&all)
        .into_iter()
        .map(|(fit, count)| (fit_name(fit).to_owned(), json!(count)))
        .collect();
    let streams = plan
        .streams
        .iter()
        .map(|stream| stream_document(plan, stream));
    let mut document = json!({
        "status": "ok",
        "pipeline": plan.document.pipeline,
        "resources": plan.document.resources,
        "limit": plan.limit,
        "full_refresh": plan.full_refresh,
        "estimated_rows": sum(&all, |stream| estimated_rows(plan, stream)),
        "estimated_bytes": sum(&all, |stream| stream.discovered.estimated_bytes),
        "fits": fits,
        "streams": streams.collect::<Vec<_>>(),
    });
    if let (Value::Object(document), Value::Object(stages)) =
        (&mut document, stages_document(&plan.stages()))
    {
        document.extend(stages);
    }
    let [source, destination] = plan.settings();
    document["source"]["settings_hash"] = json!(source);
    document["destination"]["settings_hash"] = json!(destination);
    document
}

/// The source under `source`, the transforms under `transforms` if there are any, and the destination under
/// `destination`.
fn stages_document(stages: &[&Stage]) -> Value {
    let mut document = json!({});
    for stage in stages {
        let shown = stage_document(stage);
        match (stage.connector.kind(), &mut document["transforms"]) {
            (Kind::Transform, Value::Array(transforms)) => transforms.push(shown),
            (Kind::Transform, none) => *none = json!([shown]),
            (kind, _) => document[kind.name()] = shown,
        }
    }
    if document["transforms"].is_null()
        && let Some(document) = document.as_object_mut()
    {
        document.remove("transforms");
    }
    document
}

fn stage_document(stage: &Stage) -> Value {
    json!({
        "connector": stage.connector.name(), "version": stage.spec.version,
        "grants": stage.may,
    })
}

fn stream_document(plan: &Plan, stream: &StreamPlan) -> Value {
    let column = |column: Column<'_>| {
        json!({
            "name": column.name, "source_type": column.source_type, "type": column.arrow_type,
            "target_type": column.target_type, "fit": fit_name(column.fit), "note": column.note,
        })
    };
    json!({
        "name": stream.name,
        "sync_mode": sync_mode_name(stream.sync_mode),
        "write_mode": write_mode_name(stream.target.write_mode),
        "primary_key": stream.target.primary_key,
        "query": stream.query.as_deref().map(|query| plan.document.redact(query)),
        "where": filter(plan, stream),
        "transforms": stream.transforms.iter().map(|step| step.stage.connector.name()).collect::<Vec<_>>(),
        "columns_before_transforms": stream.transforms.iter().map(columns_before).collect::<Vec<_>>(),
        "request_hash": stream.asked(),
        "cursor_field": stream.increment.as_ref().map(|increment| &increment.cursor_fields),
        "change_detection": stream.increment.as_ref().map(change_detection),
        "deleted_field": stream.target.deleted_field,
        "goes_on_from": goes_on_from(plan, stream),
        "location": stream.location,
        "estimated_rows": estimated_rows(plan, stream),
        "estimated_bytes": stream.discovered.estimated_bytes,
        "columns": stream.planned_columns().into_iter().map(column).collect::<Vec<_>>(),
        "statements": stream.placed.statements,
        "new_columns": stream.placed.new_columns,
        "notes": notes(stream).collect::<Vec<_>>(),
    })
}

/// The columns that a transform gets.
fn columns_before(step: &Step) -> Value {
    let columns = step.columns_before().into_iter();
    columns
        .map(|(name, kind)| json!({ "name": name, "type": kind }))
        .collect()
}

/// The connectors with what they may reach.
fn stages_text(stages: &[&Stage]) -> String {
    let mut text = Vec::new();
    for stage in stages {
        let side = stage.connector.kind().name();
        let name = stage.connector.name();
        let version = one_line(&stage.spec.version);
        text.push(format!("{side:<12} {name} {version}"));
        let nothing = ["reach nothing outside".to_owned()];
        let may = match stage.may.as_slice() {
            [] => &nothing,
            grants => grants,
        };
        text.extend(may.iter().map(|grant| format!("{:13}may {grant}", "")));
    }
    text.join("\n")
}

/// More streams are a table; `-v` shows each with its columns.
const MOST_DETAILED: usize = 6;

fn text_of(plan: &Plan, refused: &[Refused], output: &Output) -> String {
    let mut text = Vec::new();
    let streams: Vec<&StreamPlan> = plan.streams.iter().collect();
    if streams.len() > MOST_DETAILED && !output.is_verbose() {
        let lines: Vec<_> = streams.iter().map(|s| Line::of(plan, s)).collect();
        text.push(overview::text(&lines, output.width));
    } else {
        let mut told = HashSet::new();
        for stream in &streams {
            text.push(stream_text(plan, stream, &mut told, output));
        }
    }
    let total = total(plan, &streams);
    text.push(format!("\n{}", wrapped(&total, output.width, "", "")));
    if !refused.is_empty() {
        text.push(refused_text(refused));
    }
    text.join("\n")
}

/// The streams that do not move, each with its error code: the errors themselves follow. They come last, where nobody
/// misses them below a long plan.
fn refused_text(refused: &[Refused]) -> String {
    let row = |one: &Refused| vec![one_line(&one.stream), one.failure.code.clone()];
    let rows: Vec<Vec<String>> = refused.iter().map(row).collect();
    let count = counted(refused.len(), "stream");
    format!("\n{count} cannot be moved:\n{}", table(&rows, "  "))
}

/// `told` holds the statements of the streams before: each is shown once.
fn stream_text<'a>(
    plan: &Plan,
    stream: &'a StreamPlan,
    told: &mut HashSet<&'a str>,
    output: &Output,
) -> String {
    let width = output.width;
    let mut lines = vec![
        format!(
            "\n{} -> {}",
            output.bold(&one_line(&stream.name)),
            one_line(&stream.location)
        ),
        wrapped(&modes(plan, stream), width, "  ", "  "),
    ];
    for step in &stream.transforms {
        let columns = step.columns_before().into_iter();
        let columns = columns.map(|(name, kind)| format!("{} {kind}", one_line(&name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let text = format!("before {}: {columns}", step.stage.connector.name());
        lines.push(wrapped(&text, width, "  ", "    "));
    }
    let columns = stream.planned_columns();
    lines.push(type_report(&columns, width));
    for (note, names) in grouped(&columns) {
        let names = names.join(", ");
        lines.push(wrapped(&format!("{names}: {note}"), width, "  - ", "    "));
    }
    for note in notes(stream) {
        let head = match note.starts_with(WARNING_NOTE) {
            true => "  ",
            false => "  note: ",
        };
        lines.push(wrapped(note, width, head, "        "));
    }
    let statements = stream.placed.statements.iter();
    let statements: Vec<&str> = statements
        .map(String::as_str)
        .filter(|statement| told.insert(statement))
        .collect();
    if !statements.is_empty() {
        lines.push("  will run:".into());
    }
    for statement in statements {
        lines.push(wrapped(&format!("{statement};"), width, "    ", "      "));
    }
    lines.join("\n")
}

impl<'a> Line<'a> {
    fn of(plan: &Plan, stream: &'a StreamPlan) -> Self {
        let columns = stream.planned_columns();
        let told = columns.iter().filter_map(|column| {
            let note = match (column.note, column.fit) {
                (Some(note), _) => note,
                (None, Fit::Refused) => "is refused",
                (None, _) => return None,
            };
            Some((column.name, note))
        });
        let told = told.collect();
        let unlike = columns.iter().filter(|column| column.fit != Fit::Exact);
        Self {
            name: &stream.name,
            location: &stream.location,
            read: sync_mode_name(stream.sync_mode),
            write: write_mode_name(stream.target.write_mode),
            rows: estimated_rows(plan, stream),
            columns: columns.len(),
            unlike: unlike.count(),
            told,
            notes: notes(stream).map(String::as_str).collect(),
            statements: stream
                .placed
                .statements
                .iter()
                .map(String::as_str)
                .collect(),
        }
    }
}

fn change_detection(increment: &Increment) -> &'static str {
    match &increment.late_rows {
        LateRows::Exact => "xmin",
        LateRows::Lag(_) => "cursor",
    }
}

/// The promise about rows that are committed late.
fn promise(increment: &Increment) -> String {
    match &increment.late_rows {
        LateRows::Exact => "no row is missed, however late it is committed".into(),
        LateRows::Lag(None) => "rows that are committed late are missed".into(),
        LateRows::Lag(Some(lag)) => format!("rows that are committed later than {lag} are missed"),
    }
}

/// The destination's cursor without secrets, unless the stream begins anew.
fn goes_on_from(plan: &Plan, stream: &StreamPlan) -> Option<String> {
    let progress = stream.progress.as_ref().filter(|_| !plan.full_refresh);
    let cursor = progress.and_then(|progress| progress.cursor.as_deref());
    cursor.map(|cursor| plan.document.redact(cursor))
}

/// The condition of the stream without secrets.
fn filter(plan: &Plan, stream: &StreamPlan) -> Option<String> {
    let filter = stream.filter.as_deref();
    filter.map(|filter| plan.document.redact(filter))
}

/// How a stream is read and written, and how much there is of it.
fn modes(plan: &Plan, stream: &StreamPlan) -> String {
    let mut parts = vec![
        sync_mode_name(stream.sync_mode).to_owned(),
        write_mode_name(stream.target.write_mode).to_owned(),
    ];
    if !stream.target.primary_key.is_empty() {
        parts.push(format!("key {}", stream.target.primary_key.join(", ")));
    }
    if let Some(field) = &stream.target.deleted_field {
        parts.push(format!("deleted rows are marked in {field}"));
    }
    if let Some(increment) = &stream.increment {
        if !increment.cursor_fields.is_empty() {
            parts.push(format!("by {}", increment.cursor_fields.join(", ")));
        }
        parts.push(promise(increment));
        parts.push(match goes_on_from(plan, stream) {
            Some(cursor) => format!("resumes from {}", readable(&cursor)),
            None => match &increment.initial {
                Some(values) => {
                    let values = plan.document.redact(&values.join(", "));
                    format!("starts at {values}")
                }
                None => "starts with the first row".into(),
            },
        });
    }
    if let Some(rows) = estimated_rows(plan, stream) {
        parts.push(format!("about {}", crate::output::rows(rows)));
    }
    if let Some(size) = stream.discovered.estimated_bytes {
        parts.push(bytes(size));
    }
    if let Some(limit) = plan.limit {
        parts.push(format!("at most {}", crate::output::rows(limit)));
    }
    if let Some(filter) = filter(plan, stream) {
        parts.push(format!("where {filter}"));
    }
    for step in &stream.transforms {
        parts.push(format!("through {}", step.stage.connector.name()));
    }
    parts.join(", ")
}

/// The types on both sides and how they fit: with Arrow's in between if there is room, and on two
/// lines for each column if there is none.
fn type_report(columns: &[Column<'_>], width: usize) -> String {
    let row = |with_arrow: bool, c: &Column<'_>| {
        let mut cells = vec![c.name.to_owned(), c.source_type.to_owned()];
        if with_arrow {
            cells.push(c.arrow_type.clone());
        }
        cells.extend([c.target_type.to_owned(), fit_name(c.fit).to_owned()]);
        cells
    };
    let heads = [
        (true, vec!["column", "source", "arrow", "target", "fit"]),
        (false, vec!["column", "source", "target", "fit"]),
    ];
    for (with_arrow, head) in heads {
        let head = head.into_iter().map(str::to_owned).collect();
        let rows = columns.iter().map(|column| row(with_arrow, column));
        let text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), "  ");
        if text.lines().all(|line| line.chars().count() <= width) {
            return text;
        }
    }
    let column = |c: &Column<'_>| {
        let fit = fit_name(c.fit);
        let way = wrapped(
            &format!("{} -> {}", c.source_type, c.target_type),
            width,
            "    ",
            "      ",
        );
        format!("  {}  {fit}\n{way}", one_line(c.name))
    };
    columns.iter().map(column).collect::<Vec<_>>().join("\n")
}

/// Each note with the columns that have it, in order.
fn grouped<'a>(columns: &[Column<'a>]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for column in columns {
        let Some(note) = column.note else { continue };
        match groups.iter_mut().find(|(known, _)| *known == note) {
            Some((_, names)) => names.push(column.name),
            None => groups.push((note, vec![column.name])),
        }
    }
    groups
}

/// The last line: everything together.
fn total(plan: &Plan, streams: &[&StreamPlan]) -> String {
    let fits = fits(streams);
    let columns: usize = fits.iter().map(|(_, count)| count).sum();
    let shown = fits.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<String> = shown
        .map(|(fit, count)| format!("{count} {}", fit_name(*fit)))
        .collect();
    let mut text = format!(
        "{}, {}",
        counted(streams.len(), "stream"),
        counted(columns, "column")
    );
    if !shown.is_empty() {
        text.push_str(&format!(": {}", shown.join(", ")));
    }
    if let Some(rows) = sum(streams, |stream| estimated_rows(plan, stream)) {
        text.push_str(&format!("; about {}", crate::output::rows(rows)));
    }
    if let Some(size) = sum(streams, |stream| stream.discovered.estimated_bytes) {
        text.push_str(&format!("; {} to read", bytes(size)));
    }
    text
}
