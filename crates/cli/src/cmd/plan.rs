//! `rapidbyte plan PIPELINE`

use rapidbyte_engine::plan::{StreamPlan, sync_mode_name, write_mode_name};
use rapidbyte_engine::{Failure, Narrowing, Plan};
use rapidbyte_runtime::Fit;
use rapidbyte_wire::types;
use serde_json::{Value, json};

use crate::args::{Common, Pipeline, Plan as Arguments};
use crate::output::{Output, bytes, count, table};
use crate::setup;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let narrowing = arguments.narrow.narrowing();
    show(&arguments.pipeline, &narrowing, common, output)
}

/// Shows what a run with this choice would do.
pub fn show(
    pipeline: &Pipeline,
    narrowing: &Narrowing,
    common: &Common,
    output: &Output,
) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let redacted = super::redacted(&document);
    let host = setup::host(output, Some(&document))?;
    let mut plan = Plan::narrowed(document, &host, narrowing).map_err(&redacted)?;
    output.text(&text_of(&plan, output));
    let planned = document_of(&plan);
    output.known(planned.clone());
    for stream in &plan.streams {
        stream.refuse_unfit().map_err(&redacted)?;
    }
    plan.snapshot().map_err(&redacted)?;
    output.document(&planned);
    Ok(())
}

fn fit_name(fit: Fit) -> &'static str {
    match fit {
        Fit::Exact => "exact",
        Fit::Widened => "widened",
        Fit::Lossy => "lossy",
        Fit::Refused => "refused",
    }
}

fn document_of(plan: &Plan) -> Value {
    let stage = |stage: &rapidbyte_engine::plan::Stage| json!({ "connector": stage.connector.name(), "version": stage.spec.version, "grants": stage.grants.describe() });
    let stream = |stream: &StreamPlan| {
        let columns: Vec<Value> = columns(stream)
            .map(|(name, from, arrow, to, fit, note)| {
                json!({ "name": name, "source_type": from, "type": arrow, "target_type": to, "fit": fit, "note": note })
            })
            .collect();
        json!({
            "name": stream.name,
            "sync_mode": sync_mode_name(stream.sync_mode),
            "write_mode": write_mode_name(stream.target.write_mode),
            "location": stream.placed.location,
            "estimated_rows": stream.discovered.estimated_rows,
            "estimated_bytes": stream.discovered.estimated_bytes,
            "columns": columns,
            "statements": stream.placed.statements,
            "notes": notes(stream),
        })
    };
    json!({
        "status": "ok",
        "pipeline": plan.document.pipeline,
        "source": stage(&plan.source),
        "destination": stage(&plan.destination),
        "streams": plan.streams.iter().map(stream).collect::<Vec<_>>(),
    })
}

type Column = (String, String, String, String, &'static str, Option<String>);

fn columns(stream: &StreamPlan) -> impl Iterator<Item = Column> {
    let fields = stream
        .schema
        .fields()
        .iter()
        .zip(&stream.source_types)
        .zip(&stream.placed.columns);
    fields.map(|((field, from), to)| {
        (
            field.name().clone(),
            from.clone(),
            types::type_name(field),
            to.target_type.clone(),
            fit_name(to.fit),
            to.note.clone(),
        )
    })
}

fn notes(stream: &StreamPlan) -> Vec<&String> {
    stream
        .discovered
        .notes
        .iter()
        .chain(&stream.placed.notes)
        .collect()
}

fn text_of(plan: &Plan, output: &Output) -> String {
    let mut text = Vec::new();
    for (side, stage) in [("source", &plan.source), ("destination", &plan.destination)] {
        let grants = stage.grants.describe();
        let grants = if grants.is_empty() {
            "nothing".into()
        } else {
            grants.join(", ")
        };
        let name = stage.connector.name();
        text.push(format!(
            "{side:<12} {name} {}  may: {grants}",
            stage.spec.version
        ));
    }
    for stream in &plan.streams {
        let estimated = stream
            .discovered
            .estimated_rows
            .map(|rows| format!("  about {} rows", count(rows)));
        let size = stream
            .discovered
            .estimated_bytes
            .map(|size| format!("  {}", bytes(size)));
        text.push(format!(
            "\n{}  {} -> {} {}{}{}",
            output.paint("1", &stream.name),
            sync_mode_name(stream.sync_mode),
            write_mode_name(stream.target.write_mode),
            stream.placed.location,
            estimated.unwrap_or_default(),
            size.unwrap_or_default(),
        ));
        let head = ["column", "source", "arrow", "target", "fit"]
            .map(String::from)
            .to_vec();
        let rows = columns(stream).map(|(name, from, arrow, to, fit, note)| {
            vec![name, from, arrow, to, fit.into(), note.unwrap_or_default()]
        });
        text.push(table(
            &std::iter::once(head).chain(rows).collect::<Vec<_>>(),
            "  ",
        ));
        text.extend(
            stream
                .placed
                .statements
                .iter()
                .map(|s| format!("  will run: {s}")),
        );
        text.extend(notes(stream).iter().map(|note| format!("  note: {note}")));
    }
    text.join("\n")
}
