//! `rapidbyte discover PIPELINE`

use rapidbyte::{Discovered, Failure, SourceColumn};
use serde_json::{Value, json};

use crate::args::{Common, Pipeline};
use crate::output::{Output, bytes, one_line, table};
use crate::setup::{self, Session};

pub fn run(pipeline: &Pipeline, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let discovered = engine.discover(&pipeline, &control)?;
    let found = document(&discovered)?;
    if !discovered.streams.is_empty() {
        output.text(&text_of(&discovered, output)?);
    }
    match discovered.unreadable {
        None => {
            output.document(&json!({ "status": "ok", "streams": found }));
            Ok(())
        }
        Some(failure) => {
            output.known(json!({ "streams": found }));
            Err(failure)
        }
    }
}

fn text_of(discovered: &Discovered, output: &Output) -> Result<String, Failure> {
    let mut text = Vec::new();
    for stream in &discovered.streams {
        let columns = Discovered::columns(stream)?;
        let mut head = output.paint("1", &one_line(&stream.name));
        if let Some(rows) = stream.estimated_rows {
            head.push_str(&format!("  about {}", crate::output::rows(rows)));
        }
        if let Some(size) = stream.estimated_bytes {
            head.push_str(&format!("  {}", bytes(size)));
        }
        let row = |column: &SourceColumn| {
            let nullable = if column.is_nullable {
                "null"
            } else {
                "not null"
            };
            vec![
                column.name.clone(),
                column.arrow_type.clone(),
                nullable.into(),
                column.source_type.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = columns.iter().map(row).collect();
        text.push(format!("{head}\n{}", table(&rows, "  ")));
    }
    Ok(text.join("\n\n"))
}

/// The streams that were found, as a list.
pub fn document(discovered: &Discovered) -> Result<Value, Failure> {
    let mut found = Vec::new();
    for stream in &discovered.streams {
        let columns = Discovered::columns(stream)?;
        let columns = columns.iter().map(|column| {
            json!({
                "name": column.name, "type": column.arrow_type,
                "source_type": column.source_type, "nullable": column.is_nullable,
            })
        });
        let columns: Vec<Value> = columns.collect();
        found.push(json!({
            "name": stream.name, "columns": columns, "primary_key": stream.primary_key,
            "cursor_fields": stream.cursor_fields, "estimated_rows": stream.estimated_rows,
            "estimated_bytes": stream.estimated_bytes, "notes": stream.notes,
        }));
    }
    Ok(found.into())
}
