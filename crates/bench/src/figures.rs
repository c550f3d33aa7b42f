//! The tables that people read, and the lines that programs read.

use serde_json::{Map, Value, json as value};

use crate::failure::timed_out;
use crate::measure::{Run, Series};
use crate::run::{COPY, INSERT, NATIVE_COPY, NATIVE_INSERT, PSQL};
use crate::stats::Spread;

/// The loading of connectors.
pub const LOAD: &str = "module_load_secs";

/// The phases of a run, in the order of a batch's way: key of the report, and what it is called.
pub const PHASES: &[(&str, &str)] = &[
    (LOAD, "module load"),
    ("vm_setup_secs", "VM setup"),
    ("source_connect_secs", "source connect"),
    ("source_query_secs", "source query"),
    ("source_fetch_secs", "source fetch"),
    ("source_decode_secs", "source decode"),
    ("source_arrow_decode_secs", "source Arrow decode"),
    ("source_arrow_encode_secs", "Arrow encode"),
    ("source_encode_secs", "source encode"),
    ("source_flush_secs", "source flush"),
    ("source_commit_secs", "source commit"),
    ("crossing_secs", "crossing"),
    ("compress_secs", "compress"),
    ("channel_wait_secs", "channel wait"),
    ("decompress_secs", "decompress"),
    ("dest_connect_secs", "dest connect"),
    ("dest_query_secs", "dest query"),
    ("dest_fetch_secs", "dest fetch"),
    ("dest_decode_secs", "dest decode"),
    ("dest_recv_secs", "dest receive"),
    ("dest_arrow_decode_secs", "Arrow decode"),
    ("dest_arrow_encode_secs", "dest Arrow encode"),
    ("dest_encode_secs", "dest encode"),
    ("dest_flush_secs", "dest flush"),
    ("dest_commit_secs", "dest commit"),
    ("other_secs", "other"),
];

/// The size of the table that was copied.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub rows: u64,
    /// In binary COPY, without the header.
    pub bytes: u64,
}

impl Size {
    /// Bytes of a row in binary COPY.
    pub fn row_bytes(self) -> f64 {
        self.bytes as f64 / self.rows.max(1) as f64
    }
}

/// One line of the log: medians, and every run.
pub fn json(series: &Series, context: &Value, size: Size) -> Value {
    let median = |pointer: &str| series.reported(pointer).map(|spread| spread.median);
    let phases: Map<String, Value> = PHASES
        .iter()
        .filter_map(|(key, _)| Some(((*key).to_owned(), value!(median(&timing(key))?))))
        .collect();
    let mut line = context.clone();
    line["way"] = value!(series.name);
    line["rows"] = value!(size.rows);
    line["copy_bytes"] = value!(size.bytes);
    line["median_secs"] = value!(series.wall().map(|spread| spread.median));
    line["cpu_secs"] = value!(series.cpu().map(|spread| spread.median));
    line["peak_rss_bytes"] = value!(median(PEAK));
    line["differs"] = value!(series.differs());
    line["timed_out_secs"] = value!(series.timed_out.map(|limit| limit.as_secs_f64()));
    line["module_load_compiled_secs"] = value!(series.compiled_load_secs);
    line["phases"] = Value::Object(phases);
    line["runs"] = series.runs.iter().map(run_json).collect();
    line
}

fn run_json(run: &Run) -> Value {
    let report = run.report.as_ref();
    value!({
        "wall_secs": run.wall_secs,
        "cpu_secs": run.cpu_secs,
        "plan_secs": report.and_then(|report| report.get("plan_secs")),
        "timing": report.and_then(|report| report.get("timing")),
        "streams": report.and_then(|report| report.get("streams")),
        "peak_rss_bytes": report.and_then(|report| report.get("peak_rss_bytes")),
    })
}

const PEAK: &str = "/peak_rss_bytes";

/// Where the report has a phase of both stages together.
pub fn timing(key: &str) -> String {
    format!("/timing/{key}")
}

/// The table of one size.
pub fn table(series: &[Series], size: Size) -> String {
    let mut table = Table::begin(series);
    table.row("total", &|series| {
        let wall = series.wall().map(shown);
        wall.or_else(|| Some((0.0, timed_out(series.timed_out?))))
    });
    table.seconds("planning", "/plan_secs");
    for (stage, name) in [("source", "source total"), ("destination", "dest total")] {
        table.seconds(name, &format!("/streams/0/{stage}/wall_secs"));
    }
    for (key, name) in PHASES {
        table.seconds(&format!("  {name}"), &timing(key));
        if *key == LOAD {
            table.note(&format!("  {name}, compiled"), &|series| {
                series.compiled_load_secs.map(secs)
            });
        }
    }
    table.row("client CPU", &|series| series.cpu().map(shown));
    let per_second = |series: &Series, amount: f64| Some(amount / series.wall()?.median);
    table.note("rows/s", &|series| {
        Some(format!("{:.0}", per_second(series, size.rows as f64)?))
    });
    table.note("MB/s", &|series| {
        Some(format!(
            "{:.1}",
            per_second(series, size.bytes as f64 / 1e6)?
        ))
    });
    table.note("bytes per row", &|series| row_bytes(series, size));
    table.note("peak memory", &|series| {
        let peak = series.reported(PEAK)?;
        let [median, min, max] = [peak.median, peak.min, peak.max].map(|bytes| bytes / 1e6);
        Some(format!("{median:.1} MB ({min:.1}..{max:.1})"))
    });
    table.render() + &sandbox(series) + &shares(series) + &speeds(series)
}

/// Of `psql` on the line; of the program in Arrow.
fn row_bytes(series: &Series, size: Size) -> Option<String> {
    let bytes = match series.reported("/streams/0/bytes") {
        Some(arrow) => arrow.median / size.rows.max(1) as f64,
        None if series.name == PSQL && !series.runs.is_empty() => size.row_bytes(),
        None => return None,
    };
    Some(format!("{bytes:.0}"))
}

/// How much more than the same connectors as native code the program needs: of each total and
/// phase the medians' difference. A phase that only one of them has counts as none for the other.
fn sandbox(series: &[Series]) -> String {
    let named = |name: &str| series.iter().find(|series| series.name == name);
    let pairs: Vec<(&Series, &Series)> = [(INSERT, NATIVE_INSERT), (COPY, NATIVE_COPY)]
        .into_iter()
        .filter_map(|(ours, native)| Some((named(ours)?, named(native)?)))
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    let mut head = vec!["sandbox cost".to_owned()];
    head.extend(pairs.iter().map(|(ours, _)| ours.name.clone()));
    let mut lines = vec![head];
    let mut row = |name: &str, of: &dyn Fn(&Series) -> Option<Spread>| {
        let median = |series: &Series| of(series).map(|spread| spread.median);
        let all = pairs.iter().flat_map(|(ours, native)| [ours, native]);
        if !all
            .filter_map(|series| median(series))
            .any(|secs| secs >= SHOWN_SECS)
        {
            return;
        }
        let cells: Vec<String> = pairs
            .iter()
            .map(|(ours, native)| cost(median(ours), median(native)))
            .collect();
        let mut line = vec![name.to_owned()];
        line.extend(cells);
        lines.push(line);
    };
    row("total", &Series::wall);
    row("client CPU", &Series::cpu);
    for (key, name) in PHASES {
        row(&format!("  {name}"), &|series| {
            series.reported(&timing(key))
        });
    }
    match lines.len() {
        1 => String::new(),
        _ => format!("\n{}\n", render(&lines)),
    }
}

/// A phase that takes less everywhere is left out.
const SHOWN_SECS: f64 = 0.0001;
/// Of less, a share says nothing.
const MIN_SHARED_SECS: f64 = 0.001;

/// Seconds more, and which share of native code's that is.
fn cost(ours: Option<f64>, native: Option<f64>) -> String {
    let more = ours.unwrap_or_default() - native.unwrap_or_default();
    match (ours, native) {
        (None, None) => String::new(),
        (_, Some(native)) if native >= MIN_SHARED_SECS => {
            format!("{more:+.4} s ({:+.1} %)", more / native * 100.0)
        }
        _ => format!("{more:+.4} s"),
    }
}

/// Where the time of COPY's stages goes: medians of what is a hundredth of a stage or more.
fn shares(series: &[Series]) -> String {
    let Some(copy) = series.iter().find(|series| series.name == COPY) else {
        return String::new();
    };
    let mut text = String::new();
    for (stage, name) in [("source", "source"), ("destination", "dest")] {
        let of = |pointer: &str| {
            let spread = copy.reported(&format!("/streams/0/{stage}/{pointer}"));
            spread.map(|spread| spread.median)
        };
        let Some(wall) = of("wall_secs").filter(|wall| *wall > 0.0) else {
            continue;
        };
        let mut parts: Vec<(f64, &str)> = PHASES
            .iter()
            .filter_map(|(key, name)| Some((of(&format!("parts/{key}"))? / wall * 100.0, *name)))
            .filter(|(share, _)| *share >= 1.0)
            .collect();
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(share, name)| format!("{name} {share:.0} %"))
            .collect();
        text += &format!("{COPY}, {name}: {}\n", parts.join(", "));
    }
    text
}

/// Everything against the first that is there.
fn speeds(series: &[Series]) -> String {
    let Some((first, others)) = series.split_first() else {
        return String::new();
    };
    let mut text = String::new();
    for other in others {
        if let (Some(first_wall), Some(wall)) = (first.wall(), other.wall()) {
            text += &format!(
                "{} runs at {:.2}x the speed of {}\n",
                other.name,
                first_wall.median / wall.median,
                first.name
            );
        }
    }
    for other in series.iter().filter(|series| series.differs()) {
        text += &format!("{} changes values: the tables differ\n", other.name);
    }
    text
}

fn secs(value: f64) -> String {
    format!("{value:.4} s")
}

/// A median with the least and the greatest.
fn shown(spread: Spread) -> (f64, String) {
    let Spread { median, min, max } = spread;
    (median, format!("{median:.4} s ({min:.4}..{max:.4})"))
}

/// A number that can be compared, and how it is shown.
type Cell = Option<(f64, String)>;

/// Lines of a table, one column for each series and one for what COPY gains on INSERT.
struct Table<'a> {
    series: &'a [Series],
    lines: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    fn begin(series: &'a [Series]) -> Self {
        let mut head = vec![String::new()];
        head.extend(series.iter().map(|series| series.name.clone()));
        head.push(gain_name(series));
        Self {
            series,
            lines: vec![head],
        }
    }

    /// Nothing where nobody has a value.
    fn row(&mut self, name: &str, show: &dyn Fn(&Series) -> Cell) {
        let cells: Vec<Cell> = self.series.iter().map(show).collect();
        if cells.iter().all(Option::is_none) {
            return;
        }
        let of = |name| {
            let at = self.series.iter().position(|series| series.name == name)?;
            cells[at].as_ref().map(|(number, _)| *number)
        };
        let gain = match (of(INSERT), of(COPY)) {
            (Some(insert), Some(copy)) if insert > 0.0 && copy > 0.0 => {
                format!("{:.2}x", insert / copy)
            }
            _ => String::new(),
        };
        let mut line = vec![name.to_owned()];
        line.extend(
            cells
                .into_iter()
                .map(|cell| cell.map_or_else(String::new, |(_, shown)| shown)),
        );
        line.push(gain);
        self.lines.push(line);
    }

    /// A line without a gain.
    fn note(&mut self, name: &str, show: &dyn Fn(&Series) -> Option<String>) {
        self.row(name, &|series| Some((0.0, show(series)?)));
    }

    fn seconds(&mut self, name: &str, pointer: &str) {
        self.row(name, &|series| series.reported(pointer).map(shown));
    }

    fn render(&self) -> String {
        render(&self.lines)
    }
}

fn gain_name(series: &[Series]) -> String {
    let has = |name| series.iter().any(|series| series.name == name);
    match has(INSERT) && has(COPY) {
        true => format!("{COPY} / {INSERT}"),
        false => String::new(),
    }
}

/// Columns side by side, the first to the left, the others to the right.
pub fn render(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            lines
                .iter()
                .map(|line| line[at].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, wall_secs: f64, report: Option<Value>) -> Series {
        Series {
            runs: vec![Run {
                wall_secs,
                cpu_secs: Some(wall_secs / 2.0),
                report,
                differs: name == "other",
            }],
            ..Series::new(name)
        }
    }

    fn all() -> [Series; 6] {
        let report = |secs: f64| Some(value!({"timing": {"dest_encode_secs": secs}}));
        [
            series(PSQL, 1.0, None),
            series(INSERT, 4.0, report(0.5)),
            series(COPY, 2.0, report(0.25)),
            series(NATIVE_INSERT, 5.0, report(0.5)),
            series(NATIVE_COPY, 1.6, report(0.2)),
            series("other", 8.0, None),
        ]
    }

    const SIZE: Size = Size {
        rows: 100,
        bytes: 1_000_000,
    };

    #[test]
    fn a_table_shows_gains_and_leaves_out_what_nobody_reported() {
        let shown = table(&all(), SIZE);
        let line = |name: &str| {
            let found = shown
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            found.unwrap_or_default().to_owned()
        };
        assert!(line("total").ends_with("2.00x"), "{shown}");
        assert!(line("dest encode").ends_with("2.00x"), "{shown}");
        assert!(!shown.contains("source decode"), "{shown}");
        assert!(line("bytes per row").contains("10000"), "{shown}");
        assert!(line("COPY runs at 0.50x").ends_with(PSQL), "{shown}");
        assert!(line("other changes values").ends_with("differ"), "{shown}");
    }

    #[test]
    fn one_that_hung_says_so_in_its_column() {
        let limit = std::time::Duration::from_secs(30);
        let mut all = all();
        all[1].compiled_load_secs = Some(1.25);
        all[2] = Series::late(COPY, limit);
        let shown = table(&all, SIZE);
        let total = shown.lines().nth(1).unwrap_or_default();
        assert!(total.contains("timed out after 30 s"), "{shown}");
        assert!(!total.ends_with('x'), "{shown}");
        let loads = shown.lines().find(|line| line.contains("load, compiled"));
        assert!(
            loads.is_some_and(|line| line.ends_with("1.2500 s")),
            "{shown}"
        );
        assert_eq!(
            json(&all[1], &value!({}), SIZE)["module_load_compiled_secs"],
            1.25
        );
        let line = json(&all[2], &value!({}), SIZE);
        assert_eq!(line["timed_out_secs"], 30.0);
        assert_eq!(line["median_secs"], Value::Null);
    }

    #[test]
    fn the_sandbox_costs_what_native_code_does_not() {
        let shown = sandbox(&all());
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        let expected = [
            vec![],
            vec!["sandbox cost", INSERT, COPY],
            vec!["total", "-1.0000 s (-20.0 %)", "+0.4000 s (+25.0 %)"],
            vec!["client CPU", "-0.5000 s (-20.0 %)", "+0.2000 s (+25.0 %)"],
            vec!["dest encode", "+0.0000 s (+0.0 %)", "+0.0500 s (+25.0 %)"],
            vec![],
        ];
        assert_eq!(lines, expected, "{shown}");
        assert_eq!(cost(Some(0.25), None), "+0.2500 s");
        assert_eq!(cost(Some(0.25), Some(0.0001)), "+0.2499 s");
        assert_eq!(sandbox(&all()[..3]), "");
        let mut short = all();
        for series in &mut short {
            series.runs[0].report = Some(value!({"timing": {"dest_encode_secs": 0.00009}}));
        }
        assert!(!sandbox(&short).contains("dest encode"));
    }

    #[test]
    fn shares_are_of_a_stage_and_the_largest_comes_first() {
        let stage = value!({"wall_secs": 2.0, "parts": {
            "source_connect_secs": 0.001, "source_decode_secs": 0.5, "source_fetch_secs": 1.5,
        }});
        let report = value!({"streams": [{"source": stage}]});
        let shown = shares(&[series(COPY, 2.0, Some(report))]);
        assert_eq!(
            shown,
            "COPY, source: source fetch 75 %, source decode 25 %\n"
        );
    }

    #[test]
    fn a_line_of_the_log_has_medians_and_every_run() {
        let line = json(&all()[2], &value!({"commit": "abc"}), SIZE);
        assert_eq!(line["commit"], "abc");
        assert_eq!(line["way"], COPY);
        assert_eq!(line["median_secs"], 2.0);
        assert_eq!(line["phases"]["dest_encode_secs"], 0.25);
        assert_eq!(line["runs"][0]["timing"]["dest_encode_secs"], 0.25);
        assert_eq!(line["runs"][0]["cpu_secs"], 1.0);
    }
}
