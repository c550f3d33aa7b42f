//! `rapidbyte runs PIPELINE`

use rapidbyte_engine::Failure;
use serde_json::json;

use crate::args::{Common, Runs as Arguments};
use crate::output::{Output, bytes, count, table};
use crate::setup;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let document = setup::document(&arguments.pipeline, common)?;
    let history = setup::history_to_look_at(&document, &arguments.history)?;
    let runs = match history {
        Some(history) => history.runs(Some(&document.pipeline), arguments.last),
        None => Ok(Vec::new()),
    };
    let runs = runs.map_err(Failure::of_state)?;
    let rows = runs.iter().map(|run| {
        let color = match run.status.as_str() {
            "ok" => "32",
            "running" => "1",
            _ => "31",
        };
        let attempts = match run.attempts {
            1 => String::new(),
            attempts => format!("begun {attempts} times"),
        };
        vec![
            run.id.clone(),
            output.paint(color, &run.status),
            run.started_at.clone(),
            run.ended_at.clone().unwrap_or_else(|| "-".into()),
            format!("{} rows", count(run.rows)),
            bytes(run.bytes),
            run.error.clone().unwrap_or_default(),
            attempts,
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    output.text(&match rows.is_empty() {
        true => format!(
            "{} did not run yet, as far as {} knows",
            document.pipeline,
            setup::history_path(&document, &arguments.history).display()
        ),
        false => table(&rows, ""),
    });
    output.document(&json!({ "status": "ok", "pipeline": document.pipeline, "runs": runs }));
    Ok(())
}
