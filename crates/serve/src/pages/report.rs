//! The report of a run, which the store has as JSON: as the report page of the command shows it.

use rapidbyte_page::figures::{bytes, count, rate, seconds};
use rapidbyte_page::phases::{Lane, legend};
use rapidbyte_page::section;
use serde_json::Value;

use super::{Table, escape, facts};

/// Bars of more streams are left out: the slowest stay.
const MAX_LANES: usize = 12;
/// Lines of a list.
const MAX_LINES: usize = 100;

pub(super) fn content(report: &Value) -> String {
    let streams = list(&report["streams"]);
    let mut body = figures(report);
    let warnings = list(&report["warnings"]).iter();
    let warnings = warnings.map(|warning| {
        (
            text(&warning["stream"]),
            text(&warning["message"]).to_owned(),
        )
    });
    body += &bullets("Warnings", "The run has told this.", warnings);
    let changes = of_streams(streams, "schema_changes", |change| text(change).to_owned());
    let about = "Before its first row, the run changed the columns of these targets.";
    body += &bullets("Changes of targets", about, changes);
    let rejects = of_streams(streams, "rejects", |reject| {
        let place = reject["location"].as_str();
        let place = place.map_or(String::new(), |place| format!("{place}: "));
        format!(
            "{place}{} ({})",
            text(&reject["message"]),
            text(&reject["code"])
        )
    });
    let about = "The first records of each stream that are not in its target. All of them are in the place for rejects.";
    body += &bullets("Rejects", about, rejects);
    body += &table(streams);
    body + &times(report, streams)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// The entries of a key of each stream, with the name of the stream.
fn of_streams<'v>(
    streams: &'v [Value],
    key: &'static str,
    shown: impl Fn(&Value) -> String + Copy,
) -> impl Iterator<Item = (&'v str, String)> {
    streams.iter().flat_map(move |stream| {
        let entries = list(&stream[key]).iter();
        entries.map(move |entry| (text(&stream["name"]), shown(entry)))
    })
}

fn figures(report: &Value) -> String {
    let mut values = Vec::new();
    if let Some(bytes_of) = report["bytes"].as_u64() {
        values.push(("Arrow data", bytes(bytes_of)));
    }
    if let (Some(rows), Some(secs)) = (report["rows"].as_u64(), report["total_secs"].as_f64()) {
        values.push(("time", seconds(secs)));
        values.push(("speed", rate(rows, secs)));
    }
    if let Some(peak) = report["peak_rss_bytes"].as_u64() {
        values.push(("peak memory of the server", bytes(peak)));
    }
    facts(&values)
}

/// A section with a line for each stream and text; nothing if there is none.
fn bullets<'v>(
    title: &str,
    about: &str,
    mut lines: impl Iterator<Item = (&'v str, String)>,
) -> String {
    let shown = lines.by_ref().take(MAX_LINES);
    let mut items: String = shown
        .map(|(stream, text)| format!("<li>{}: {}</li>\n", escape(stream), escape(&text)))
        .collect();
    if items.is_empty() {
        return items;
    }
    let more = lines.count();
    if more > 0 {
        items += &format!("<li>and {more} more</li>\n");
    }
    section(title, about, &format!("<ul>\n{items}</ul>\n"))
}

fn table(streams: &[Value]) -> String {
    if streams.is_empty() {
        return String::new();
    }
    let rows = streams.iter().map(|stream| {
        let figure = |key: &str| stream[key].as_u64();
        vec![
            escape(text(&stream["name"])),
            escape(text(&stream["location"])),
            figure("rows").map(count).unwrap_or_default(),
            figure("bytes").map(bytes).unwrap_or_default(),
            figure("written_bytes").map(bytes).unwrap_or_default(),
            figure("rejected").map(count).unwrap_or_default(),
            stream["wall_secs"]
                .as_f64()
                .map(seconds)
                .unwrap_or_default(),
        ]
    });
    let table = Table {
        caption: "The streams that the run committed",
        head: &[
            "stream",
            "now in",
            "#rows",
            "#Arrow data",
            "#written",
            "#rejects",
            "#time",
        ],
        rows: rows.collect(),
        none: "",
    };
    section("Streams", "What the run has moved.", &table.html())
}

/// The bars of the slowest streams. Nothing for a report that has lost its details.
fn times(report: &Value, streams: &[Value]) -> String {
    let mut slowest: Vec<&Value> = streams.iter().collect();
    slowest.sort_by(|a, b| number(&b["wall_secs"]).total_cmp(&number(&a["wall_secs"])));
    slowest.truncate(MAX_LANES);
    // In the order in which the run moved them.
    slowest.sort_by(|a, b| number(&a["start_secs"]).total_cmp(&number(&b["start_secs"])));
    let ends = slowest
        .iter()
        .map(|stream| number(&stream["start_secs"]) + number(&stream["wall_secs"]));
    let total = ends.fold(number(&report["total_secs"]), f64::max);
    let mut lanes = String::new();
    for stream in &slowest {
        for (does, stage) in stages(stream) {
            let lane = Lane {
                name: text(&stream["name"]),
                does,
                start_secs: number(&stream["start_secs"]),
                wall_secs: number(&stage["wall_secs"]),
                phases: stage["parts"].as_object(),
            };
            lanes += &lane.html(total);
        }
    }
    if lanes.is_empty() {
        return lanes;
    }
    if let Some(plan_secs) = report["plan_secs"].as_f64() {
        let plan = Lane {
            name: "planning",
            does: "",
            start_secs: 0.0,
            wall_secs: plan_secs,
            phases: None,
        };
        lanes.insert_str(0, &plan.html(total));
    }
    let about = match streams.len() > MAX_LANES {
        true => {
            "Each bar shows when its stage ran, of the slowest streams. Its parts are sums of the time in each phase."
        }
        false => "Each bar shows when its stage ran. Its parts are sums of the time in each phase.",
    };
    let content = format!(
        "<div class=\"lanes\">\n{lanes}</div>\n<div class=\"axis\"><span>0</span><span>{}</span></div>\n{}",
        seconds(total),
        legend()
    );
    section("Where the time went", about, &content)
}

/// The stages of a stream that have times, in their order.
fn stages(stream: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    let transforms = list(&stream["transforms"]).iter();
    let transforms = transforms.map(|stage| ("transforms", stage));
    let stages = std::iter::once(("reads", &stream["source"])).chain(transforms);
    let stages = stages.chain([("writes", &stream["destination"])]);
    stages.filter(|(_, stage)| stage["parts"].is_object())
}
