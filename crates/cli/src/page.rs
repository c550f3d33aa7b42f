//! `run --report FILE`: a run as one HTML page that needs nothing else.
//!
//! No scripts, no fonts, nothing from elsewhere: it can be attached to a ticket and opened years
//! later. Everything that is not ours is escaped.

mod chart;
mod index;
mod paper;
mod shelf;

use std::fmt::Write as _;

use rapidbyte::{
    Failure, Progress, RejectReport, Report, Side, StreamReport, StreamState, Warning,
};
use serde_json::Value;

use crate::samples::Sample;
pub use index::Index;
pub use paper::Paper;
use rapidbyte_page::escape::html as escape;
use rapidbyte_page::figures::{bytes, count, counted, rate, seconds};
use rapidbyte_page::phases::{Lane, legend};
use rapidbyte_page::{STYLE, section};
pub use shelf::Shelf;

/// How a page begins.
const DOCTYPE: &str = "<!doctype html>";
/// Lets a browser apply the page's own style and nothing else, whatever text the page contains.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Tells a page of ours from other files.
const MARK: &str = "<meta name=\"generator\" content=\"rapidbyte\">";

/// Everything that the page tells.
pub struct Page<'a> {
    /// As `rapidbyte plan --output json` prints it; without `streams` where planning failed.
    pub plan: &'a Value,
    /// How it ended.
    pub ended: Result<&'a Report, &'a Failure>,
    /// In the order of time.
    pub samples: &'a [Sample],
    /// The file, the time and the id of the run.
    pub facts: &'a Facts,
    /// How far each stream is. `None` where nothing was planned.
    pub progress: Option<&'a Progress>,
}

/// The facts that identify a run.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The pipeline file, as it was given.
    pub file: String,
    /// When the command began, in UTC.
    pub started: String,
    /// The run's id, and which attempt of it. `None` where no run began.
    pub run: Option<(String, u64)>,
}

/// Lists of more streams are folded: the slowest stay in sight.
const MANY: usize = 12;

impl Page<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let mut body = String::new();
        body += &self.head();
        match self.ended {
            Ok(report) => {
                let about = "The run succeeded, but check these warnings.";
                body += &warnings(&report.warnings, about);
                body += &schema_changes(&report.streams);
                body += &rejects(&report.streams);
                body += &deletes(&report.streams);
                body += &comparisons(&report.streams);
                body += &waterfall(report);
                body += &streams(report);
            }
            Err(failure) => {
                body += &failed(failure);
                let about = "The run failed, and this has happened all the same.";
                body += &warnings(&failure.streams.warnings, about);
                if let Some(progress) = self.progress {
                    body += &reached(progress);
                }
            }
        }
        if self.plan["streams"].is_array() {
            body += &self.charts();
            body += &types(self.plan);
            body += &grants(self.plan);
        }
        document(&format!("{}: a run of Rapidbyte", self.title()), &body)
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
        let mut which = format!("{}, {}", self.facts.started, self.facts.file);
        if let Some((id, attempt)) = &self.facts.run {
            which += &format!(", run {id}, attempt {attempt}");
        }
        format!(
            "<header>\n<h1>{} <span class=\"badge {class}\">{word}</span></h1>\n\
             <p class=\"quiet\">{} to {}</p>\n<p class=\"quiet\">{}</p>\n\
             <dl class=\"facts\">\n{facts}</dl>\n</header>\n",
            self.title(),
            connector(&self.plan["source"]),
            connector(&self.plan["destination"]),
            escape(&which),
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

/// A whole page; the title is escaped.
fn document(title: &str, body: &str) -> String {
    format!(
        "{DOCTYPE}\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{MARK}\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Streams as they are shown: in the plan's order, or where there are many, the slowest first.
fn sorted(report: &Report) -> Vec<&StreamReport> {
    let mut streams: Vec<&StreamReport> = report.streams.iter().collect();
    if streams.len() > MANY {
        streams.sort_by(|a, b| b.wall_secs.total_cmp(&a.wall_secs));
    }
    streams
}

/// The first parts, and the others behind a line that unfolds them. `show` puts parts together.
fn folded(parts: &[String], show: impl Fn(&str) -> String) -> String {
    if parts.len() <= MANY {
        return show(&parts.concat());
    }
    let (first, rest) = parts.split_at(MANY);
    format!(
        "{}<details>\n<summary>{} more streams</summary>\n{}</details>\n",
        show(&first.concat()),
        rest.len(),
        show(&rest.concat())
    )
}

/// How far the streams of a failed run are.
fn reached(progress: &Progress) -> String {
    let mut streams: Vec<_> = progress.streams.iter().collect();
    let rank = |state: StreamState| match state {
        StreamState::Failed => 0,
        StreamState::Running => 1,
        StreamState::Waiting => 2,
        StreamState::Done => 3,
    };
    if streams.len() > MANY {
        streams.sort_by_key(|stream| rank(stream.state()));
    }
    let row = |stream: &&rapidbyte::StreamProgress| {
        let (word, class) = match stream.state() {
            StreamState::Failed => ("did not finish", "bad"),
            StreamState::Running => ("running", "bad"),
            StreamState::Waiting => ("not started", ""),
            StreamState::Done => ("committed", "ok"),
        };
        format!(
            "<tr><td>{}</td><td><span class=\"badge {class}\">{word}</span></td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            escape(&stream.name),
            count(stream.rows()),
            bytes(stream.bytes())
        )
    };
    let rows: Vec<String> = streams.iter().map(row).collect();
    let head = ["stream", "outcome", "#rows taken", "#Arrow data"];
    section(
        "Streams",
        "The progress of each stream when the run ended.",
        &folded(&rows, |rows| table(&head, rows)),
    )
}

fn connector(stage: &Value) -> String {
    let text = |key: &str| escape(stage[key].as_str().unwrap_or_default());
    format!("{} {}", text("connector"), text("version"))
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
    if !failure.streams.committed.is_empty() {
        row(
            "committed before",
            &Some(failure.streams.committed.join(", ")),
        );
    }
    let mut text = format!(
        "<section class=\"failure\">\n<h2>{}</h2>\n<p>{}</p>\n<dl>\n{rows}</dl>\n</section>\n",
        escape(&failure.code),
        escape(&failure.message)
    );
    let of_streams = &failure.streams.failures;
    text.extend(of_streams.iter().take(MOST_FAILURES).map(failed));
    if let Some(more) = of_streams.len().checked_sub(MOST_FAILURES + 1) {
        let more = more + 1;
        let _ = writeln!(
            text,
            "<p class=\"quiet\">and {more} more: --output json lists all of them</p>"
        );
    }
    text
}

/// Failures of single streams that a page shows.
const MOST_FAILURES: usize = 100;

fn warnings(warnings: &[Warning], about: &str) -> String {
    let items = warnings.iter();
    let items = items.map(|warning| (warning.stream.as_str(), warning.message.as_str()));
    bullets("Warnings", about, items)
}

/// The committed schema changes of the run in its targets.
fn schema_changes(streams: &[StreamReport]) -> String {
    let items = streams.iter().flat_map(|stream| {
        let statements = stream.schema_changes.iter();
        statements.map(|statement| (stream.name.as_str(), statement.as_str()))
    });
    bullets(
        "Changes of targets",
        "Before its first row, the run changed the columns of these targets.",
        items,
    )
}

/// The first rejects of each stream.
fn rejects(streams: &[StreamReport]) -> String {
    let items = streams.iter().flat_map(|stream| {
        let shown = stream.rejects.iter().map(RejectReport::shown);
        shown.map(|text| (stream.name.as_str(), text))
    });
    bullets(
        "Rejects",
        "The first records of each stream that are not in its target. All of them are in the place for rejects.",
        items,
    )
}

/// The rows of targets that the source has deleted.
fn deletes(streams: &[StreamReport]) -> String {
    let items = streams
        .iter()
        .filter_map(|stream| Some((stream.name.as_str(), stream.deleted?.to_string())));
    bullets(
        "Deletes",
        "The run compared the keys of these targets with those of the source.",
        items,
    )
}

/// The comparisons at the end of the run.
fn comparisons(streams: &[StreamReport]) -> String {
    let items = streams.iter().filter_map(|stream| {
        let verified = stream.verified.as_ref()?;
        let text = format!(
            "{verified}; {}, checksum {}",
            counted(verified.rows, "row"),
            verified.checksum
        );
        Some((stream.name.as_str(), text))
    });
    bullets(
        "Comparison",
        "At its end the run compared these targets with the source, as of the snapshot that it read.",
        items,
    )
}

/// A section with a line for each stream and text; nothing if there is none.
fn bullets<'a>(
    title: &str,
    about: &str,
    lines: impl Iterator<Item = (&'a str, impl AsRef<str>)>,
) -> String {
    let mut items = String::new();
    for (stream, text) in lines {
        let _ = writeln!(
            items,
            "<li>{}: {}</li>",
            escape(stream),
            escape(text.as_ref())
        );
    }
    match items.is_empty() {
        true => items,
        false => section(title, about, &format!("<ul>\n{items}</ul>\n")),
    }
}

fn waterfall(report: &Report) -> String {
    let total = report.total_secs.max(1e-9);
    let plan = Lane {
        name: "planning",
        does: "",
        start_secs: 0.0,
        wall_secs: report.plan_secs,
        phases: None,
    };
    let planning = plan.html(total);
    let lanes = |stream: &&StreamReport| -> String {
        let lanes = stream.stages().map(|(side, stage)| {
            let lane = Lane {
                name: &stream.name,
                does: does(side),
                start_secs: stream.start_secs,
                wall_secs: stage.wall_secs,
                phases: Some(&stage.parts),
            };
            lane.html(total)
        });
        lanes.collect()
    };
    let lines: Vec<String> = sorted(report).iter().map(lanes).collect();
    let lines = format!(
        "<div class=\"lanes\">\n{planning}</div>\n{}",
        folded(&lines, |lines| format!(
            "<div class=\"lanes\">\n{lines}</div>\n"
        ))
    );
    let lanes = format!(
        "{lines}<div class=\"axis\"><span>0</span><span>{}</span></div>\n\
         {}{}",
        seconds(total),
        legend(),
        breakdown(report)
    );
    section(
        "Where the time went",
        "Each bar shows when its stage ran. Its parts are sums of the time in each phase. The \
             stages of a stream work at the same time.",
        &lanes,
    )
}

/// The verb for a stage.
fn does(side: Side) -> &'static str {
    match side {
        Side::Source => "reads",
        Side::Transform => "transforms",
        Side::Destination => "writes",
    }
}

/// Every part of every stage, in figures.
fn breakdown(report: &Report) -> String {
    let mut rows = String::new();
    for stream in &report.streams {
        for (side, stage) in stream.stages() {
            let side = does(side);
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
    let row = |stream: &&StreamReport| {
        format!(
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            escape(&stream.name),
            escape(&stream.location),
            count(stream.rows),
            bytes(stream.bytes),
            bytes(stream.written_bytes),
            seconds(stream.wall_secs),
            rate(stream.rows, stream.wall_secs)
        )
    };
    let rows: Vec<String> = sorted(report).iter().map(row).collect();
    let head = [
        "stream",
        "now in",
        "#rows",
        "#Arrow data",
        "#written",
        "#time",
        "#speed",
    ];
    let about = match rows.len() > MANY {
        true => "Every stream was committed as a whole. The slowest come first.",
        false => "Every stream was committed as a whole.",
    };
    section("Streams", about, &folded(&rows, |rows| table(&head, rows)))
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
    let (mut text, mut exact) = (String::new(), Vec::new());
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
        let columns = counted(list(&stream["columns"]).len(), "column");
        let said = match unlike {
            0 => format!("{columns}, all exact"),
            some => format!("{columns}, {some} not exact"),
        };
        let head = ["column", "source", "Arrow", "target", "", "note"];
        let part = format!(
            "<details{}>\n<summary>{name} <span class=\"quiet\">{said}</span></summary>\n{}{}</details>\n",
            if unlike > 0 { " open" } else { "" },
            table(&head, &rows),
            notes(stream)
        );
        match unlike {
            0 => exact.push(part),
            _ => text += &part,
        }
    }
    text += &match exact.len() > MANY {
        true => format!(
            "<details>\n<summary>{} more streams, all exact</summary>\n{}</details>\n",
            exact.len(),
            exact.concat()
        ),
        false => exact.concat(),
    };
    section(
        "Types",
        "The type of each column at the source, in the pipeline, and at the target.",
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
    let transforms = list(&plan["transforms"]).iter();
    let transforms = transforms.map(|stage| ("transform", stage));
    let stages = [("source", &plan["source"])].into_iter().chain(transforms);
    for (side, stage) in stages.chain([("destination", &plan["destination"])]) {
        let given = list(&stage["grants"]);
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
            connector(stage)
        );
    }
    section(
        "Grants",
        "Everything that the connectors could reach.",
        &table(&["side", "connector", "may"], &rows),
    )
}

#[cfg(test)]
mod tests {
    use rapidbyte::{Phase, StageReport, phase_key};
    use rapidbyte_page::phases::class;
    use serde_json::Map;

    use super::*;

    #[test]
    fn every_phase_has_a_group_of_its_own_kind() {
        for phase in Phase::ALL {
            for side in Side::ALL {
                let is_other = class(phase_key(phase, side)) == "other";
                assert_eq!(is_other, phase == Phase::Other, "{phase:?}");
            }
        }
    }

    fn report(streams: usize) -> Report {
        let stage = || StageReport {
            wall_secs: 0.5,
            parts: Map::new(),
        };
        let stream = |n: usize| StreamReport {
            name: format!("s{n:02}"),
            location: format!("raw.s{n:02}"),
            rows: 1,
            limited: false,
            bytes: 8,
            written_bytes: 8,
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
            source: stage(),
            transforms: Vec::new(),
            destination: stage(),
        };
        Report {
            status: "ok",
            pipeline: "shop".into(),
            run_id: "r1".into(),
            total_secs: 60.0,
            plan_secs: 0.1,
            limit: None,
            rows: 60,
            bytes: 480,
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

    fn facts() -> Facts {
        Facts {
            file: "jobs/<shop>.yaml".into(),
            started: "2026-01-31T23:59:59.123Z".into(),
            run: Some(("20260131-235959-0a1b2c3d".into(), 2)),
        }
    }

    #[test]
    fn a_page_says_when_and_of_which_file_and_run() {
        let (plan, report, facts) = (serde_json::json!({}), report(3), facts());
        let page = Page {
            plan: &plan,
            ended: Ok(&report),
            samples: &[],
            facts: &facts,
            progress: None,
        };
        let html = page.html();
        let which = "2026-01-31T23:59:59.123Z, jobs/&lt;shop&gt;.yaml, \
                     run 20260131-235959-0a1b2c3d, attempt 2";
        assert!(html.contains(which), "{html}");
        assert!(!html.contains("more streams"), "{html}");
    }

    #[test]
    fn many_streams_are_sorted_by_their_time_and_folded() {
        let html = streams(&report(60));
        let (seen, behind) = html.split_once("<summary>48 more streams").unwrap();
        assert_eq!(seen.matches("<tr><td>").count(), MANY);
        assert!(
            seen.find("s59") < seen.find("s48") && seen.contains("<td>s48"),
            "{seen}"
        );
        assert!(behind.find("s47") < behind.find("s00"), "{behind}");
        let html = waterfall(&report(60));
        assert!(html.contains("<summary>48 more streams"), "{html}");
    }

    #[test]
    fn a_failed_run_shows_how_far_its_streams_were() {
        let progress = Progress {
            streams: vec![rapidbyte::StreamProgress::new("a<b", None)],
        };
        let failure = Failure::new(rapidbyte::Class::Run, "disk_full", "no space");
        let (plan, facts) = (serde_json::json!({}), facts());
        let page = Page {
            plan: &plan,
            ended: Err(&failure),
            samples: &[],
            facts: &facts,
            progress: Some(&progress),
        };
        let html = page.html();
        assert!(
            html.contains("<td>a&lt;b</td>") && html.contains("not started"),
            "{html}"
        );
    }
}
