//! The text at the end of a run: a few lines, and with `-v` where all of its time went.

use std::time::Duration;

use rapidbyte::{Report, Side, StreamReport};
use serde_json::{Map, Value, json};

use crate::output::{Output, bytes, count, counted, one_line, rate, rows, table};

/// Streams that are listed; of more only the slowest are.
const MOST_STREAMS: usize = 10;

/// The result of a run for people.
pub fn text(report: &Report, output: &Output) -> String {
    let moved = report.streams.iter().map(Moved::of).collect();
    let mut lines = vec![streams(moved)];
    if let Some(limit) = report.limit {
        lines.push(format!(
            "limited to {} of each stream by --limit: the source may have more",
            rows(limit)
        ));
    }
    if output.is_verbose() {
        lines.push(details(report, output));
    }
    if let Some(slowest) = slowest(report) {
        lines.push(slowest);
    }
    lines.push(format!(
        "{} {} in {}, {}",
        output.paint("1;32", "done:"),
        rows(report.rows),
        seconds(report.total_secs),
        rate(report.rows, report.total_secs),
    ));
    lines.join("\n")
}

/// The result of a run of a server, for people: its report as JSON.
pub fn of_json(report: &Value, output: &Output) -> String {
    let number = |key: &str| report[key].as_u64().unwrap_or(0);
    let moved = moved_of_json(report);
    let mut lines = Vec::new();
    if !moved.is_empty() {
        lines.push(streams(moved));
    }
    let secs = report["total_secs"].as_f64().unwrap_or(0.0);
    lines.push(format!(
        "{} {} in {}, {}",
        output.paint("1;32", "done:"),
        rows(number("rows")),
        seconds(secs),
        rate(number("rows"), secs),
    ));
    lines.join("\n")
}

/// The streams that a failed run committed, for people.
pub fn partial(reports: &[StreamReport]) -> String {
    committed(reports.iter().map(Moved::of).collect())
}

/// The same of a run of a server. `None` if it committed no stream.
pub fn partial_of_json(report: &Value) -> Option<String> {
    let moved = moved_of_json(report);
    (!moved.is_empty()).then(|| committed(moved))
}

fn committed(moved: Vec<Moved>) -> String {
    let sum = moved.iter().map(|stream| stream.rows).sum();
    let count = counted(moved.len(), "stream");
    format!("{}\ncommitted: {} of {count}", streams(moved), rows(sum))
}

/// The lines about a stream.
struct Moved {
    name: String,
    rows: u64,
    /// The text behind the rows.
    more: String,
    bytes: u64,
    wall_secs: f64,
    location: String,
    changes: Vec<String>,
}

impl Moved {
    fn of(stream: &StreamReport) -> Self {
        let limited = match (stream.limited, stream.committed_before) {
            (true, _) => " (limit)",
            (_, true) => COMMITTED_BEFORE,
            _ => "",
        };
        let rejected = rejected(stream.rejected);
        let deleted = stream.deleted.filter(|deleted| deleted.rows > 0);
        let deleted = deleted.map(|deleted| format!(", {deleted}"));
        let deleted = deleted.unwrap_or_default();
        let verified = stream.verified.as_ref();
        let verified = verified.map(|verified| format!(", {verified}"));
        let verified = verified.unwrap_or_default();
        Self {
            name: stream.name.clone(),
            rows: stream.rows,
            more: format!("{deleted}{rejected}{verified}{limited}"),
            bytes: stream.bytes,
            wall_secs: stream.wall_secs,
            location: stream.location.clone(),
            changes: stream.schema_changes.clone(),
        }
    }

    /// The same of a report of a server, which may be shortened.
    fn of_json(stream: &Value) -> Self {
        let text = |key: &str| stream[key].as_str().map_or_else(String::new, one_line);
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let deleted = match number(&stream["deleted"]["rows"]) {
            0 => String::new(),
            deleted if stream["deleted"]["action"] == "mark" => {
                format!(", {} marked as deleted", rows(deleted))
            }
            deleted => format!(", {} deleted", rows(deleted)),
        };
        let verified = match stream["verified"]["equal"].as_bool() {
            Some(true) => ", equal to the source",
            Some(false) => ", differs from the source",
            None => "",
        };
        let before = match stream["committed_before"].as_bool() {
            Some(true) => COMMITTED_BEFORE,
            _ => "",
        };
        let rejected = rejected(number(&stream["rejected"]));
        let changes = stream["schema_changes"].as_array().into_iter().flatten();
        let changes = changes.filter_map(|change| change.as_str().map(one_line));
        Self {
            name: text("name"),
            rows: number(&stream["rows"]),
            more: format!("{deleted}{rejected}{verified}{before}"),
            bytes: number(&stream["bytes"]),
            wall_secs: stream["wall_secs"].as_f64().unwrap_or(0.0),
            location: text("location"),
            changes: changes.collect(),
        }
    }
}

const COMMITTED_BEFORE: &str = " (committed by an earlier attempt of this run)";

fn rejected(records: u64) -> String {
    match records {
        0 => String::new(),
        records => format!(", {} rejected", count(records)),
    }
}

fn moved_of_json(report: &Value) -> Vec<Moved> {
    let streams = report["streams"].as_array().into_iter().flatten();
    streams.map(Moved::of_json).collect()
}

/// A line for each stream; where there are many, for the slowest.
fn streams(moved: Vec<Moved>) -> String {
    let changes = moved.iter().flat_map(|stream| {
        let change = |statement| format!("\n{}: the target was changed: {statement}", stream.name);
        stream.changes.iter().map(change)
    });
    let changes: Vec<String> = changes.collect();
    let mut streams = moved;
    if streams.len() > MOST_STREAMS {
        streams.sort_by(|a, b| b.wall_secs.total_cmp(&a.wall_secs));
    }
    let row = |stream: &Moved| {
        vec![
            stream.name.clone(),
            format!("{}{}", rows(stream.rows), stream.more),
            bytes(stream.bytes),
            seconds(stream.wall_secs),
            stream.location.clone(),
        ]
    };
    let rows: Vec<_> = streams.iter().take(MOST_STREAMS).map(row).collect();
    let mut text = table(&rows, "");
    if let Some(more @ 1..) = streams.len().checked_sub(MOST_STREAMS) {
        text.push_str(&format!(
            "\nand {more} more streams, which were faster: see --output json or --report for all"
        ));
    }
    text.extend(changes.iter().take(MOST_STREAMS).map(String::as_str));
    if let Some(more @ 1..) = changes.len().checked_sub(MOST_STREAMS) {
        text.push_str(&format!(
            "\nand {more} more changes of targets: see --output json"
        ));
    }
    text
}

/// The phase that took the most time, without the waits of one stage for another.
fn slowest(report: &Report) -> Option<String> {
    let mut phases: Vec<(Side, String, f64, f64)> = Vec::new();
    for side in Side::ALL {
        let (wall, sums) = sums(report, side);
        for (key, value) in sums {
            let secs = value.as_f64().unwrap_or(0.0);
            let is_wait = key.ends_with("channel_wait_secs") || key.ends_with("recv_secs");
            if !is_wait && secs > 0.0 {
                phases.push((side, title(&key), secs, wall));
            }
        }
    }
    let most = phases.into_iter().max_by(|a, b| a.2.total_cmp(&b.2));
    most.map(|(side, name, secs, wall)| {
        let share = 100.0 * secs / wall.max(1e-12);
        let secs = seconds(secs);
        let side = side.name();
        format!("slowest phase: {name} in the {side}, {secs} ({share:.0}% of its time)")
    })
}

fn details(report: &Report, output: &Output) -> String {
    let mut text = String::new();
    let has_transforms = report.streams.iter().any(|s| !s.transforms.is_empty());
    let is_shown = |side: &Side| *side != Side::Transform || has_transforms;
    for side in Side::ALL.into_iter().filter(is_shown) {
        text.push_str(&format!("\n{}\n", breakdown(report, side, output)));
    }
    let loads = report.connectors.iter().map(|connector| {
        let how = if connector.from_cache {
            "cached"
        } else {
            "compiled now"
        };
        let name = one_line(&connector.name);
        format!("{name} {:.1} ms ({how})", connector.load_secs * 1e3)
    });
    let rss = report
        .peak_rss_bytes
        .map(|rss| format!(", {} in the whole process", bytes(rss)));
    text.push_str(&format!(
        "\nplanned in {:.3} s; connectors loaded: {}\nmemory: {} in connectors{}",
        report.plan_secs,
        loads.collect::<Vec<_>>().join(", "),
        bytes(report.peak_memory_bytes),
        rss.unwrap_or_default(),
    ));
    text
}

fn seconds(secs: f64) -> String {
    match Duration::try_from_secs_f64(secs).unwrap_or_default() {
        time if time.as_secs() < 120 => format!("{secs:.3} s"),
        time => format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// The wall time of the stages of one side and their phases, over all streams.
fn sums(report: &Report, side: Side) -> (f64, Map<String, Value>) {
    let mut wall = 0.0;
    let mut sums: Map<String, Value> = Map::new();
    let stages = report.streams.iter().flat_map(StreamReport::stages);
    for (_, stage) in stages.filter(|(of, _)| *of == side) {
        wall += stage.wall_secs;
        for (key, value) in &stage.parts {
            let before = sums.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            sums.insert(key.clone(), json!(before + value.as_f64().unwrap_or(0.0)));
        }
    }
    (wall, sums)
}

/// Where the time of one side went, over all streams; the lines sum to the last one.
fn breakdown(report: &Report, side: Side, output: &Output) -> String {
    let (wall, sums) = sums(report, side);
    let mut rows = Vec::new();
    for (key, value) in &sums {
        let secs = value.as_f64().unwrap_or(0.0);
        if secs > 0.0 {
            rows.push(line(&title(key), secs, wall));
        }
    }
    rows.push(line("wall", wall, wall));
    format!("{}\n{}", output.paint("1", side.name()), table(&rows, "  "))
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
        .or_else(|| words.strip_prefix("dest_"))
        .or_else(|| words.strip_prefix("transform_"));
    let words = words.unwrap_or(key.trim_end_matches("_secs"));
    match words {
        "vm_setup" => "instantiate".into(),
        "recv" => "channel wait".into(),
        words => words.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::Parser;
    use rapidbyte::StageReport;

    fn report(streams: usize) -> Report {
        let stage = |key: &str, secs: f64, wait: &str| {
            let mut parts = Map::new();
            parts.insert(key.into(), json!(secs));
            parts.insert(wait.into(), json!(10.0 - secs));
            StageReport {
                wall_secs: 10.0,
                parts,
            }
        };
        let stream = |n: usize| StreamReport {
            name: format!("s{n:02}"),
            location: format!("raw.s{n:02}"),
            rows: 1_000,
            limited: false,
            bytes: 8_000,
            written_bytes: 8_000,
            batches: 1,
            commits: 1,
            attempts: 1,
            committed_before: false,
            together_with: None,
            schema_changes: Vec::new(),
            rejected: 0,
            rejects: Vec::new(),
            deleted: None,
            verified: None,
            start_secs: 0.0,
            wall_secs: n as f64,
            source: stage("source_fetch_secs", 2.5, "channel_wait_secs"),
            transforms: Vec::new(),
            destination: stage("dest_encode_secs", 1.0, "dest_recv_secs"),
        };
        Report {
            status: "ok",
            pipeline: "shop".into(),
            run_id: "r1".into(),
            total_secs: 130.0,
            plan_secs: 0.1,
            limit: None,
            rows: 1_000 * streams as u64,
            bytes: 1,
            peak_connector_bytes: 1,
            peak_rss_bytes: None,
            peak_memory_bytes: 1,
            cpu_secs: 1.0,
            process_cpu_secs: 1.0,
            connectors: Vec::new(),
            timing: Map::new(),
            warnings: Vec::new(),
            streams: (0..streams).map(stream).collect(),
        }
    }

    fn said(report: &Report, more: &[&str]) -> String {
        let arguments = [&["rapidbyte", "version", "--no-color"], more].concat();
        let arguments = Arguments::parse_from(arguments);
        text(report, &Output::new(&arguments.common))
    }

    #[test]
    fn a_run_says_its_rows_time_place_and_slowest_phase_on_a_few_lines() {
        assert_eq!(
            said(&report(2), &[]),
            "s00  1,000 rows  7.8 KiB  0.000 s  raw.s00\n\
             s01  1,000 rows  7.8 KiB  1.000 s  raw.s01\n\
             slowest phase: fetch in the source, 5.000 s (25% of its time)\n\
             done: 2,000 rows in 2 min 10 s, 15 rows/s"
        );
        let many = said(&report(60), &[]);
        assert_eq!(many.lines().count(), MOST_STREAMS + 3, "{many}");
        assert!(
            many.starts_with("s59 ") && many.contains("and 50 more streams"),
            "{many}"
        );
    }

    #[test]
    fn the_whole_breakdown_comes_with_verbose() {
        let brief = said(&report(1), &[]);
        let verbose = said(&report(1), &["-v"]);
        for part in ["channel wait", "planned in", "memory:"] {
            assert!(
                verbose.contains(part) && !brief.contains(part),
                "{part}: {verbose}"
            );
        }
    }
}
