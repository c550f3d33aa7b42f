//! `rapidbyte runs PIPELINE`

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rapidbyte::{AttemptRecord, Failure, PastRuns, Runs};
use rapidbyte_page::clock::utc;
use rapidbyte_serve::Client;
use serde_json::{Map, Value, json};

use crate::args::{self, Common};
use crate::output::{Output, bytes, count, one_line, table};
use crate::page::{Index, Paper};
use crate::server;
use crate::setup;

/// Runs of an answer of a server.
const MAX_OF_SERVER: u32 = 1000;

pub fn run(arguments: &args::Runs, common: &Common, output: &Output) -> Result<(), Failure> {
    if let Some(client) = server::client(&arguments.on, output)? {
        return of_server(arguments, common, &client, output);
    }
    let file = &arguments.pipeline.file;
    let history = setup::history(&arguments.history);
    let past = PastRuns::of_file(file, &setup::environment(common), &history)?;
    let paper = arguments.page.as_deref().map(Paper::of_index).transpose()?;
    let Runs { runs, attempts } = past.last(arguments.last)?;
    let mut known = Map::new();
    known.insert("status".into(), json!("ok"));
    known.insert("pipeline".into(), json!(past.pipeline()));
    known.insert("attempts".into(), json!(attempts));
    known.insert("runs".into(), json!(runs));
    if let Some(paper) = &paper {
        let index = Index {
            pipeline: past.pipeline(),
            file: past.file(),
            attempts: &attempts,
        };
        paper.write_index(&index)?;
        known.insert("page".into(), json!(paper.path().to_string_lossy()));
    }
    output.text(&match attempts.is_empty() {
        true => format!(
            "no run of {} is recorded in {}",
            past.pipeline(),
            past.history().unwrap_or(Path::new("")).display()
        ),
        false => text_of(&attempts, output),
    });
    output.document(&Value::Object(known));
    Ok(())
}

/// The runs of a pipeline of a server.
fn of_server(
    arguments: &args::Runs,
    common: &Common,
    client: &Client,
    output: &Output,
) -> Result<(), Failure> {
    let options = [
        ("--state", arguments.history.state.is_some()),
        ("--page", arguments.page.is_some()),
    ];
    server::refuse(&options, common)?;
    let name = server::name(&arguments.pipeline)?;
    // The server keeps no more than this.
    let runs = client.runs(name, arguments.last.min(MAX_OF_SERVER));
    let runs = runs.map_err(server::failure)?;
    output.text(&match runs.is_empty() {
        true => format!("{} has no run of {name}", client.url()),
        false => table_of_server(&runs, output),
    });
    output.document(&json!({ "status": "ok", "pipeline": name, "runs": runs }));
    Ok(())
}

/// A table with a line for each run of a server.
fn table_of_server(runs: &[Value], output: &Output) -> String {
    let head = [
        "run", "attempt", "state", "trigger", "started", "ended", "rows", "code",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for run in runs {
        let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), one_line);
        let number = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), count);
        let time = |value: &Value| value.as_i64().map_or_else(|| "-".to_owned(), utc_of_ms);
        let color = match run["state"].as_str() {
            Some("succeeded") => "32",
            Some("queued" | "running" | "skipped") => "1",
            _ => "31",
        };
        rows.push(vec![
            run["id"].to_string(),
            number(&run["attempt"]),
            output.paint_result(color, &text(&run["state"])),
            text(&run["trigger"]),
            time(&run["started_ms"]),
            time(&run["ended_ms"]),
            number(&run["rows"]),
            text(&run["error"]["code"]),
        ]);
    }
    table(&rows, "")
}

/// Milliseconds since 1970-01-01 UTC as text.
fn utc_of_ms(ms: i64) -> String {
    let since = Duration::from_millis(ms.max(0).unsigned_abs());
    let time = UNIX_EPOCH.checked_add(since);
    time.map_or_else(|| "-".to_owned(), utc)
}

/// A table with a line for each attempt.
fn text_of(attempts: &[AttemptRecord], output: &Output) -> String {
    let head = [
        "run", "attempt", "outcome", "started", "ended", "rows", "bytes", "code",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for attempt in attempts {
        let color = match attempt.status.as_str() {
            "ok" => "32",
            "running" => "1",
            _ => "31",
        };
        rows.push(vec![
            attempt.run_id.clone(),
            attempt.attempt.to_string(),
            output.paint_result(color, &attempt.status),
            attempt.started_at.clone(),
            attempt.ended_at.clone().unwrap_or_else(|| "-".into()),
            count(attempt.rows),
            bytes(attempt.bytes),
            attempt.error.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table(&rows, "")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_retried_run_has_a_line_for_each_attempt() {
        let attempt = |attempt, status: &str, rows, error: Option<&str>| AttemptRecord {
            run_id: "20260131-235959-0a1b2c3d".into(),
            pipeline: "shop".into(),
            attempt,
            started_at: format!("2026-01-31T23:59:5{attempt}.000Z"),
            ended_at: (status != "unfinished").then(|| "2026-02-01T00:00:00.000Z".into()),
            status: status.into(),
            rows,
            bytes: rows * 10,
            error: error.map(str::to_owned),
            report: None,
        };
        let attempts = [
            attempt(3, "ok", 1234, None),
            attempt(2, "unfinished", 0, None),
            attempt(1, "failed", 7, Some("disk_full")),
        ];
        let arguments = crate::args::Arguments::parse_from(["rapidbyte", "version"]);
        let output = Output::new(&arguments.common);
        let text = text_of(&attempts, &output);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|c| !c.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            lines[0],
            [
                "run", "attempt", "outcome", "started", "ended", "rows", "bytes", "code"
            ]
        );
        let run = "20260131-235959-0a1b2c3d";
        let ended = "2026-02-01T00:00:00.000Z";
        assert_eq!(
            lines[1],
            [
                run,
                "3",
                "ok",
                "2026-01-31T23:59:53.000Z",
                ended,
                "1,234",
                "12.1 KiB",
                "-"
            ]
        );
        assert_eq!(
            lines[2],
            [
                run,
                "2",
                "unfinished",
                "2026-01-31T23:59:52.000Z",
                "-",
                "0",
                "0 B",
                "-"
            ]
        );
        assert_eq!(
            lines[3],
            [
                run,
                "1",
                "failed",
                "2026-01-31T23:59:51.000Z",
                ended,
                "7",
                "70 B",
                "disk_full"
            ]
        );
    }
}
