//! `rapidbyte run PIPELINE`

use std::sync::Arc;

use rapidbyte_engine::report::{Report, StageReport};
use rapidbyte_engine::{Failure, Host, Narrowing, Plan};
use serde_json::{Map, Value, json};

use crate::args::{Common, Run as Arguments};
use crate::output::{Output, bytes, count, rate, table};
use crate::page::{Page, Paper};
use crate::samples::Sampler;
use crate::setup;
use crate::watch::Watch;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let narrowing = Narrowing {
        full_refresh: arguments.full_refresh,
        ..arguments.narrow.narrowing()
    };
    if arguments.dry_run {
        return super::plan::show(&arguments.pipeline, &narrowing, common, output);
    }
    let paper = arguments.report.as_deref().map(Paper::at).transpose()?;
    let (known, prepared) = prepare(arguments, &narrowing, common, output);
    if let (Err(failure), Some(paper)) = (&prepared, &paper) {
        let page = Page {
            plan: &known,
            ended: Err(failure),
            samples: &[],
        };
        output.known(json!({ "report": told(paper, &page, output) }));
    }
    let (plan, host) = prepared?;
    for stream in &plan.streams {
        for message in stream.warnings() {
            output.warn(&format!("{}: {message}", stream.name));
        }
    }
    if let Some(paper) = &paper {
        paper.refuse_targets(&plan)?;
    }
    let history = setup::history_of_run(&plan, &arguments.history, output)?;
    let progress = rapidbyte_engine::progress(&plan);
    let planned = paper.is_some().then(|| super::plan::document_of(&plan));
    let sampler = planned.map(|plan| (Sampler::start(Arc::clone(&progress)), plan));
    let watch = Watch::start(Arc::clone(&progress), output);
    rapidbyte_engine::run(plan, &host, &progress, history.as_ref(), |ended| {
        drop(watch);
        let mut page_told = None;
        if let (Some(paper), Some((sampler, plan))) = (paper, sampler) {
            let page = Page {
                plan: &plan,
                ended,
                samples: &sampler.stop(),
            };
            page_told = Some(told(&paper, &page, output));
        }
        match ended {
            Ok(report) => {
                output.committed();
                let mut document = json!(report);
                if let (Some(document), Some(told)) = (document.as_object_mut(), page_told) {
                    document.insert("report".into(), told);
                }
                output.document(&document);
                output.text(&summary(report, output));
            }
            // The error itself is told by whoever gets it.
            Err(_) => {
                if let Some(told) = page_told {
                    output.known(json!({ "report": told }));
                }
            }
        }
    })
}

/// Plans; beside it what the page tells of a run that could not be planned.
fn prepare(
    arguments: &Arguments,
    narrowing: &Narrowing,
    common: &Common,
    output: &Output,
) -> (Value, Result<(Plan, Host), Failure>) {
    let file = &arguments.pipeline.file;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut known = json!({ "pipeline": name });
    let prepared = setup::document(&arguments.pipeline, common).and_then(|document| {
        known = json!({
            "pipeline": document.pipeline,
            "source": { "connector": document.source.connector },
            "destination": { "connector": document.destination.connector },
        });
        let redacted = super::redacted(&document);
        let host = setup::host(output, Some(&document))?;
        let plan = Plan::narrowed(document, &host, narrowing).map_err(&redacted)?;
        Ok((plan, host))
    });
    (known, prepared)
}

/// Writes the page, and says for programs whether it is there. What the run came to matters more:
/// a page that is missing is a warning, because who sees an error runs again, and appends rows
/// that are there.
fn told(paper: &Paper, page: &Page<'_>, output: &Output) -> Value {
    let problem = paper.write(page).err();
    if let Some(failure) = &problem {
        output.missed(failure);
    }
    json!({ "file": paper.path().to_string_lossy(), "problem": problem })
}

fn summary(report: &Report, output: &Output) -> String {
    let mut rows = Vec::new();
    for stream in &report.streams {
        let limited = match (stream.limited, stream.committed_before) {
            (true, _) => " (limit)",
            (_, true) => " (this run had committed them before)",
            _ => "",
        };
        rows.push(vec![
            stream.name.clone(),
            format!("{} rows{limited}", count(stream.rows)),
            bytes(stream.bytes),
            format!("{:.3} s", stream.wall_secs),
            rate(stream.rows, stream.wall_secs),
            stream.location.clone(),
        ]);
    }
    let mut text = table(&rows, "");
    if let Some(limit) = report.limit {
        text.push_str(&format!(
            "\nlimited to {} rows of each stream by --limit: the source may have more",
            count(limit)
        ));
    }
    for stage in ["source", "destination"] {
        text.push_str("\n\n");
        text.push_str(&breakdown(report, stage, output));
    }
    let loads = report.connectors.iter().map(|connector| {
        let how = if connector.from_cache {
            "cached"
        } else {
            "compiled now"
        };
        format!(
            "{} {:.1} ms ({how})",
            connector.name,
            connector.load_secs * 1e3
        )
    });
    text.push_str(&format!(
        "\n\nplanned in {:.3} s; connectors loaded: {}\nmemory: {} in connectors{}\n{} {} rows in {:.3} s",
        report.plan_secs,
        loads.collect::<Vec<_>>().join(", "),
        bytes(report.peak_connector_bytes),
        report.peak_rss_bytes.map(|rss| format!(", {} in the whole process", bytes(rss))).unwrap_or_default(),
        output.paint("1;32", "done:"),
        count(report.rows),
        report.total_secs,
    ));
    text
}

/// Where the time of one side went, over all streams; the lines sum to the last one.
fn breakdown(report: &Report, side: &str, output: &Output) -> String {
    let mut wall = 0.0;
    let mut sums: Map<String, Value> = Map::new();
    for stream in &report.streams {
        let stage: &StageReport = if side == "source" {
            &stream.source
        } else {
            &stream.destination
        };
        wall += stage.wall_secs;
        for (key, value) in &stage.parts {
            let before = sums.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            sums.insert(key.clone(), json!(before + value.as_f64().unwrap_or(0.0)));
        }
    }
    let mut rows = Vec::new();
    for (key, value) in &sums {
        let secs = value.as_f64().unwrap_or(0.0);
        if secs > 0.0 {
            rows.push(line(&title(key), secs, wall));
        }
    }
    rows.push(line("wall", wall, wall));
    format!("{}\n{}", output.paint("1", side), table(&rows, "  "))
}

fn line(name: &str, secs: f64, wall: f64) -> Vec<String> {
    let share = 100.0 * secs / wall.max(1e-12);
    vec![
        format!("{name:<16}"),
        format!("{secs:>10.6} s"),
        format!("{share:>5.1}%"),
    ]
}

/// A key of the JSON report in words.
fn title(key: &str) -> String {
    let words = key.trim_end_matches("_secs");
    let words = words
        .strip_prefix("source_")
        .or_else(|| words.strip_prefix("dest_"));
    let words = words.unwrap_or(key.trim_end_matches("_secs"));
    match words {
        "vm_setup" => "instantiate".into(),
        "recv" => "channel wait".into(),
        words => words.replace('_', " "),
    }
}
