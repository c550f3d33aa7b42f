//! `rapidbyte discover PIPELINE`

use rapidbyte_engine::plan::{self, Discovered};
use rapidbyte_engine::{Class, Failure};
use rapidbyte_runtime::Stream;
use rapidbyte_wire::{ipc, types};
use serde_json::{Value, json};

use crate::args::{Common, Pipeline};
use crate::output::{Output, bytes, one_line, table};
use crate::setup;

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(pipeline, common)?;
    let redacted = super::redacted(&document);
    let host = setup::host(output, Some(&document))?.hurried();
    let Discovered {
        streams,
        unreadable,
    } = plan::discover(&document, &host).map_err(&redacted)?;
    let mut text = Vec::new();
    let mut found = Vec::new();
    for stream in &streams {
        let columns = columns(stream)?;
        let mut head = output.paint("1", &one_line(&stream.name));
        if let Some(rows) = stream.estimated_rows {
            head.push_str(&format!("  about {}", crate::output::rows(rows)));
        }
        if let Some(size) = stream.estimated_bytes {
            head.push_str(&format!("  {}", bytes(size)));
        }
        let rows: Vec<Vec<String>> = columns
            .iter()
            .map(|(name, kind, from, nullable)| {
                vec![
                    name.clone(),
                    kind.clone(),
                    if *nullable {
                        "null".into()
                    } else {
                        "not null".into()
                    },
                    from.clone(),
                ]
            })
            .collect();
        text.push(format!("{head}\n{}", table(&rows, "  ")));
        let columns: Vec<Value> = columns
            .iter()
            .map(|(name, kind, from, nullable)| {
                json!({ "name": name, "type": kind, "source_type": from, "nullable": nullable })
            })
            .collect();
        found.push(json!({
            "name": stream.name, "columns": columns, "primary_key": stream.primary_key,
            "cursor_fields": stream.cursor_fields, "estimated_rows": stream.estimated_rows,
            "estimated_bytes": stream.estimated_bytes, "notes": stream.notes,
        }));
    }
    if !text.is_empty() {
        output.text(&text.join("\n\n"));
    }
    match unreadable {
        None => {
            output.document(&json!({ "status": "ok", "streams": found }));
            Ok(())
        }
        Some(failure) => {
            output.known(json!({ "streams": found }));
            Err(redacted(failure))
        }
    }
}

/// Name, type, the source's own type, and whether it may be null.
fn columns(stream: &Stream) -> Result<Vec<(String, String, String, bool)>, Failure> {
    let schema = ipc::decode_schema(&stream.schema)
        .map_err(|e| Failure::new(Class::Run, "contract_broken", e).in_stream(&stream.name))?;
    let from = |i: usize| stream.source_types.get(i).cloned().unwrap_or_default();
    Ok(schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, f)| {
            (
                f.name().clone(),
                types::type_name(f),
                from(i),
                f.is_nullable(),
            )
        })
        .collect())
}
