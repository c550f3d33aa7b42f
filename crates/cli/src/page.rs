//! `run --report FILE`: a run as one HTML page that needs nothing else.
//!
//! No scripts, no fonts, nothing from elsewhere: it can be attached to a ticket and opened years
//! later. Everything that is not ours is escaped.

mod chart;
mod paper;

use std::fmt::Write as _;

use rapidbyte_engine::Failure;
use rapidbyte_engine::report::{Report, StageReport};
use serde_json::{Map, Value};

use crate::escape::html as escape;
use crate::output::{bytes, count, rate};
use crate::samples::Sample;
pub use paper::Paper;

/// How a page begins.
const DOCTYPE: &str = "<!doctype html>";
/// Lets a browser apply the page's own style and nothing else, whatever text the page contains.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Tells a page of ours from other files.
const MARK: &str = "<meta name=\"generator\" content=\"rapidbyte\">";
const STYLE: &str = include_str!("page/style.css");

/// Everything that the page tells.
pub struct Page<'a> {
    /// As `rapidbyte plan --output json` prints it; without `streams` where planning failed.
    pub plan: &'a Value,
    /// How it ended.
    pub ended: Result<&'a Report, &'a Failure>,
    /// In the order of time.
    pub samples: &'a [Sample],
}

impl Page<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = String::new();
        body += &self.head();
        match self.ended {
            Ok(report) => {
                body += &warnings(report);
                body += &waterfall(report);
                body += &streams(report);
            }
            Err(failure) => body += &failed(failure),
        }
        if self.plan["streams"].is_array() {
            body += &self.charts();
            body += &types(self.plan);
            body += &grants(self.plan);
        }
        let title = self.title();
        format!(
            "{DOCTYPE}\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n{MARK}\n\
             <title>{title}: a run of Rapidbyte</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )
    }

    /// The pipeline's name.
    fn title(&self) -> String {
        escape(self.plan["pipeline"].as_str().unwrap_or_default())
    }

    fn head(&self) -> String {
        let (word, class) = match self.ended {
            Ok(_) => ("done", "ok"),
            Err(_) => ("failed", "bad"),
        };
        let mut facts: Vec<(&str, String)> = Vec::new();
        if let Ok(report) = self.ended {
            facts.push(("rows", count(report.rows)));
            facts.push(("Arrow data", bytes(report.bytes)));
            facts.push(("time", seconds(report.total_secs)));
            facts.push(("speed", rate(report.rows, report.total_secs)));
            facts.push(("processor time", seconds(report.cpu_secs)));
            if let Some(peak) = report.peak_rss_bytes {
                facts.push(("peak memory", bytes(peak)));
            }
        } else if let Some(last) = self.samples.last() {
            facts.push(("rows taken", count(last.rows)));
            facts.push(("time", seconds(last.secs)));
        }
        let facts: String = facts
            .iter()
            .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"))
            .collect();
        format!(
            "<header>\n<h1>{} <span class=\"badge {class}\">{word}</span></h1>\n\
             <p class=\"quiet\">{} to {}</p>\n<dl class=\"facts\">\n{facts}</dl>\n</header>\n",
            self.title(),
            connector(&self.plan["source"]),
            connector(&self.plan["destination"]),
        )
    }

    fn charts(&self) -> String {
        let speed = chart::rates(self.samples);
        let memory: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter_map(|sample| Some((sample.secs, sample.rss_bytes? as f64)))
            .collect();
        let mut text = String::new();
        let rows = |value: f64| format!("{}/s", count(value as u64));
        text += &chart::line("Rows a second", &speed, rows);
        text += &chart::line("Memory of the process", &memory, |value| {
            bytes(value as u64)
        });
        section(
            "Over time",
            "From the end of planning to the last commit.",
            &format!("<div class=\"charts\">\n{text}</div>\n"),
        )
    }
}

fn connector(stage: &Value) -> String {
    let text = |key: &str| escape(stage[key].as_str().unwrap_or_default());
    format!("{} {}", text("connector"), text("version"))
}

fn section(title: &str, about: &str, content: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n<p class=\"quiet\">{about}</p>\n{content}</section>\n")
}

fn failed(failure: &Failure) -> String {
    let mut rows = String::new();
    let mut row = |name: &str, value: &Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(rows, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
        }
    };
    row("what to do", &failure.hint);
    row("where", &failure.location);
    row("stream", &failure.stream);
    row("column", &failure.column);
    if !failure.committed.is_empty() {
        row("committed before", &Some(failure.committed.join(", ")));
    }
    format!(
        "<section class=\"failure\">\n<h2>{}</h2>\n<p>{}</p>\n<dl>\n{rows}</dl>\n</section>\n",
        escape(&failure.code),
        escape(&failure.message)
    )
}

fn warnings(report: &Report) -> String {
    let mut items = String::new();
    for warning in &report.warnings {
        let (stream, message) = (escape(&warning.stream), escape(&warning.message));
        let _ = writeln!(items, "<li>{stream}: {message}</li>");
    }
    match items.is_empty() {
        true => items,
        false => section(
            "Warnings",
            "The run succeeded; look at these all the same.",
            &format!("<ul>\n{items}</ul>\n"),
        ),
    }
}

/// The groups that phases are drawn as: a class of the style sheet, what it says, and the ends of
/// the report's keys.
const GROUPS: [(&str, &str, &[&str]); 8] = [
    ("setup", "load and set up", &["module_load", "vm_setup"]),
    ("connect", "connect and ask", &["connect", "query"]),
    ("outside", "wait for the server or disk", &["fetch"]),
    (
        "work",
        "convert values",
        &["arrow_encode", "arrow_decode", "decode", "encode"],
    ),
    (
        "host",
        "cross the sandbox, compress",
        &["crossing", "decompress", "compress"],
    ),
    ("peer", "wait for the other side", &["channel_wait", "recv"]),
    ("write", "hand over and commit", &["flush", "commit"]),
    ("other", "other", &["other"]),
];

/// The group of a key such as `source_fetch_secs`.
fn group(key: &str) -> usize {
    let name = key.trim_end_matches("_secs");
    let found = GROUPS
        .iter()
        .position(|(_, _, ends)| ends.iter().any(|end| name.ends_with(end)));
    found.unwrap_or(GROUPS.len() - 1)
}

fn waterfall(report: &Report) -> String {
    let total = report.total_secs.max(1e-9);
    let mut lines = lane("planning", "", 0.0, report.plan_secs, total, None);
    for stream in &report.streams {
        for (side, stage) in [("reads", &stream.source), ("writes", &stream.destination)] {
            lines += &lane(
                &stream.name,
                side,
                stream.start_secs,
                stage.wall_secs,
                total,
                Some(stage),
            );
        }
    }
    let legend: String = GROUPS
        .iter()
        .map(|(class, text, _)| format!("<span><i class=\"{class}\"></i>{text}</span>\n"))
        .collect();
    let lanes = format!(
        "<div class=\"lanes\">\n{lines}</div>\n<div class=\"axis\"><span>0</span><span>{}</span></div>\n\
         <div class=\"legend\">\n{legend}</div>\n{}",
        seconds(total),
        breakdown(report)
    );
    section(
        "Where the time went",
        "Each bar lies where its stage ran. Its parts are sums, in the order of a batch's way: the \
         two sides of a stream work at the same time.",
        &lanes,
    )
}

/// One stage's bar; without a stage, a plain one.
fn lane(
    name: &str,
    side: &str,
    start: f64,
    wall: f64,
    total: f64,
    stage: Option<&StageReport>,
) -> String {
    let percent = |secs: f64| (100.0 * secs / total).clamp(0.0, 100.0);
    let parts = match stage {
        None => format!(
            "<i class=\"setup\" style=\"width:100%\" title=\"planning {}\"></i>",
            seconds(wall)
        ),
        Some(stage) => segments(&stage.parts, stage.wall_secs),
    };
    format!(
        "<div class=\"lane\"><span class=\"name\">{} <small>{side}</small></span>\
         <span class=\"track\"><span class=\"bar\" style=\"margin-left:{:.3}%;width:{:.3}%\">{parts}</span></span>\
         <span class=\"secs\">{}</span></div>\n",
        escape(name),
        percent(start),
        percent(wall).min(100.0 - percent(start)),
        seconds(wall)
    )
}

fn segments(parts: &Map<String, Value>, wall: f64) -> String {
    let mut sums = [0.0; GROUPS.len()];
    for (key, value) in parts {
        sums[group(key)] += value.as_f64().unwrap_or(0.0);
    }
    let mut text = String::new();
    for ((class, words, _), secs) in GROUPS.iter().zip(sums) {
        let percent = 100.0 * secs / wall.max(1e-9);
        if percent >= 0.05 {
            let _ = write!(
                text,
                "<i class=\"{class}\" style=\"width:{percent:.3}%\" title=\"{words}: {}, {percent:.1} %\"></i>",
                seconds(secs)
            );
        }
    }
    text
}

/// Every part of every stage, in figures.
fn breakdown(report: &Report) -> String {
    let mut rows = String::new();
    for stream in &report.streams {
        for (side, stage) in [("reads", &stream.source), ("writes", &stream.destination)] {
            for (key, value) in &stage.parts {
                let secs = value.as_f64().unwrap_or(0.0);
                if secs < 1e-6 {
                    continue;
                }
                let _ = writeln!(
                    rows,
                    "<tr><td>{}</td><td>{side}</td><td>{}</td><td class=\"n\">{secs:.6} s</td>\
                     <td class=\"n\">{:.1} %</td></tr>",
                    escape(&stream.name),
                    key.trim_end_matches("_secs").replace('_', " "),
                    100.0 * secs / stage.wall_secs.max(1e-9)
                );
            }
        }
    }
    format!(
        "<details>\n<summary>In figures</summary>\n{}</details>\n",
        table(&["stream", "", "phase", "#time", "#share"], &rows)
    )
}

fn streams(report: &Report) -> String {
    let mut rows = String::new();
    for stream in &report.streams {
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&stream.name),
            escape(&stream.location),
            count(stream.rows),
            bytes(stream.bytes),
            bytes(stream.written_bytes),
            seconds(stream.wall_secs),
            rate(stream.rows, stream.wall_secs)
        );
    }
    let head = [
        "stream",
        "now in",
        "#rows",
        "#Arrow data",
        "#written",
        "#time",
        "#speed",
    ];
    section("Streams", "Each was committed whole.", &table(&head, &rows))
}

/// A table that scrolls by itself where it is too wide. A `#` before a name: a column of figures.
fn table(head: &[&str], rows: &str) -> String {
    let cell = |name: &&str| match name.strip_prefix('#') {
        Some(name) => format!("<th class=\"n\">{name}</th>"),
        None => format!("<th>{name}</th>"),
    };
    let head: String = head.iter().map(cell).collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn types(plan: &Value) -> String {
    let mut text = String::new();
    for stream in list(&plan["streams"]) {
        let name = escape(stream["name"].as_str().unwrap_or_default());
        let mut rows = String::new();
        let mut unlike = 0;
        for column in list(&stream["columns"]) {
            let cell = |key: &str| escape(column[key].as_str().unwrap_or_default());
            let fit = cell("fit");
            unlike += u32::from(fit != "exact");
            let _ = writeln!(
                rows,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><span class=\"badge {fit}\">{fit}</span></td><td>{}</td></tr>",
                cell("name"),
                cell("source_type"),
                cell("type"),
                cell("target_type"),
                cell("note")
            );
        }
        let columns = list(&stream["columns"]).len();
        let said = match unlike {
            0 => format!("{columns} columns, all exact"),
            some => format!("{columns} columns, {some} not exact"),
        };
        let head = ["column", "source", "Arrow", "target", "", "note"];
        let _ = write!(
            text,
            "<details{}>\n<summary>{name} <span class=\"quiet\">{said}</span></summary>\n{}{}</details>\n",
            if unlike > 0 { " open" } else { "" },
            table(&head, &rows),
            notes(stream)
        );
    }
    section(
        "Types",
        "What each column was at the source, on its way, and at the target.",
        &text,
    )
}

fn notes(stream: &Value) -> String {
    let mut items = String::new();
    for note in list(&stream["notes"]) {
        let _ = writeln!(
            items,
            "<li>{}</li>",
            escape(note.as_str().unwrap_or_default())
        );
    }
    for statement in list(&stream["statements"]) {
        let text = escape(statement.as_str().unwrap_or_default());
        let _ = writeln!(items, "<li><code>{text}</code></li>");
    }
    match items.is_empty() {
        true => String::new(),
        false => format!("<ul>\n{items}</ul>\n"),
    }
}

fn grants(plan: &Value) -> String {
    let mut rows = String::new();
    for side in ["source", "destination"] {
        let given = list(&plan[side]["grants"]);
        let given: Vec<String> = given
            .iter()
            .map(|grant| {
                format!(
                    "<code>{}</code>",
                    escape(grant.as_str().unwrap_or_default())
                )
            })
            .collect();
        let given = match given.is_empty() {
            true => "nothing".to_owned(),
            false => given.join("<br>"),
        };
        let _ = writeln!(
            rows,
            "<tr><td>{side}</td><td>{}</td><td>{given}</td></tr>",
            connector(&plan[side])
        );
    }
    section(
        "Grants",
        "All that the connectors could reach.",
        &table(&["side", "connector", "may"], &rows),
    )
}

/// As a person reads it.
fn seconds(secs: f64) -> String {
    match secs {
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{} min {:02.0} s", (s / 60.0) as u64, s % 60.0),
    }
}

#[cfg(test)]
mod tests {
    use rapidbyte_engine::report::{Side, key};
    use rapidbyte_runtime::Phase;

    use super::*;

    #[test]
    fn every_phase_has_a_group_of_its_own_kind() {
        for phase in Phase::ALL {
            for side in [Side::Source, Side::Destination] {
                let is_other = GROUPS[group(key(phase, side))].0 == "other";
                assert_eq!(is_other, phase == Phase::Other, "{phase:?}");
            }
        }
        assert_eq!(GROUPS[group("dest_arrow_decode_secs")].0, "work");
        assert_eq!(GROUPS[group("decompress_secs")].0, "host");
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(12.345), "12.35 s");
        assert_eq!(seconds(187.0), "3 min 07 s");
    }
}
