//! Medians, the tables that people read, and the lines that programs read.

use serde_json::{Value, json};

use crate::run::{Run, Way};

/// The phases of a run, in the order of a batch's way: key of the report, and what it is called.
const PHASES: &[(&str, &str)] = &[
    ("module_load_secs", "module load"),
    ("vm_setup_secs", "VM setup"),
    ("source_connect_secs", "source connect"),
    ("source_query_secs", "source query"),
    ("source_fetch_secs", "source fetch"),
    ("source_decode_secs", "source decode"),
    ("source_arrow_encode_secs", "Arrow encode"),
    ("crossing_secs", "crossing"),
    ("compress_secs", "compress"),
    ("channel_wait_secs", "channel wait"),
    ("decompress_secs", "decompress"),
    ("dest_connect_secs", "dest connect"),
    ("dest_query_secs", "dest query"),
    ("dest_recv_secs", "dest receive"),
    ("dest_arrow_decode_secs", "Arrow decode"),
    ("dest_encode_secs", "dest encode"),
    ("dest_flush_secs", "dest flush"),
    ("dest_commit_secs", "dest commit"),
    ("other_secs", "other"),
];

/// All runs of one way.
#[derive(Debug)]
pub struct Series {
    pub way: Way,
    pub runs: Vec<Run>,
}

/// The size of the table that was copied.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub rows: u64,
    /// In binary COPY, without the header.
    pub bytes: u64,
}

impl Series {
    fn values(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(of).collect())
    }

    fn reported(&self, pointer: &str) -> Option<Spread> {
        self.values(|run| run.report.as_ref()?.pointer(pointer)?.as_f64())
    }

    fn wall(&self) -> Option<Spread> {
        self.values(|run| Some(run.wall_secs))
    }

    /// One line of the log.
    pub fn json(&self, context: &Value, size: Size) -> Value {
        let mut line = context.clone();
        let phases: serde_json::Map<String, Value> = PHASES
            .iter()
            .filter_map(|(key, _)| {
                let median = self.reported(&format!("/timing/{key}"))?.median;
                Some(((*key).to_owned(), json!(median)))
            })
            .collect();
        let walls: Vec<f64> = self.runs.iter().map(|run| run.wall_secs).collect();
        let median = |pointer| self.reported(pointer).map(|spread| spread.median);
        line["way"] = json!(self.way.name());
        line["rows"] = json!(size.rows);
        line["copy_bytes"] = json!(size.bytes);
        line["wall_secs"] = json!(walls);
        line["median_secs"] = json!(self.wall().map(|spread| spread.median));
        line["cpu_secs"] = json!(median("/cpu_secs"));
        line["peak_rss_bytes"] = json!(median("/peak_rss_bytes"));
        line["phases"] = Value::Object(phases);
        line
    }
}

/// Median, least and greatest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Nothing of nothing.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        };
        Some(Self { median, min, max })
    }
}

/// The table of one size.
pub fn table(series: &[Series], size: Size) -> String {
    let find = |way| series.iter().find(|each| each.way == way);
    let ways = [Way::Psql, Way::Insert, Way::Copy].map(find);
    let mut lines: Vec<Vec<String>> = vec![
        ["", "psql pipe", "INSERT", "COPY", "COPY / INSERT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut row = |name: &str, show: &dyn Fn(&Series) -> Option<(f64, String)>, faster: bool| {
        let cells = ways.map(|series| series.and_then(show));
        if cells.iter().all(Option::is_none) {
            return;
        }
        let gain = match (&cells[1], &cells[2]) {
            (Some((insert, _)), Some((copy, _))) if faster && *copy > 0.0 => {
                format!("{:.2}x", insert / copy)
            }
            _ => String::new(),
        };
        let mut line = vec![name.to_owned()];
        line.extend(cells.map(|cell| cell.map_or_else(String::new, |(_, shown)| shown)));
        line.push(gain);
        lines.push(line);
    };
    row(
        "total",
        &|series| {
            series
                .wall()
                .map(|spread| (spread.median, spread_of(spread)))
        },
        true,
    );
    let seconds = |pointer: String| {
        move |series: &Series| {
            let value = series.reported(&pointer)?.median;
            Some((value, format!("{value:.4} s")))
        }
    };
    row(
        "source total",
        &seconds("/streams/0/source/wall_secs".into()),
        true,
    );
    row(
        "dest total",
        &seconds("/streams/0/destination/wall_secs".into()),
        true,
    );
    for (key, name) in PHASES {
        row(
            &format!("  {name}"),
            &seconds(format!("/timing/{key}")),
            true,
        );
    }
    row("engine CPU", &seconds("/cpu_secs".into()), true);
    row(
        "rows/s",
        &|series| per_second(series, size.rows as f64, 1.0, ""),
        false,
    );
    row(
        "MB/s",
        &|series| per_second(series, size.bytes as f64, 1e6, " MB/s"),
        false,
    );
    row(
        "peak memory",
        &|series| {
            let bytes = series.reported("/peak_rss_bytes")?.median;
            Some((bytes, format!("{:.1} MB", bytes / 1e6)))
        },
        false,
    );
    let speed = |way| Some(find(Way::Psql)?.wall()?.median / find(way)?.wall()?.median);
    let mut text = render(&lines);
    for way in [Way::Copy, Way::Insert] {
        if let Some(ratio) = speed(way) {
            text += &format!(
                "{} runs at {ratio:.2}x the speed of the psql pipe\n",
                way.name()
            );
        }
    }
    text
}

fn per_second(series: &Series, amount: f64, unit: f64, name: &str) -> Option<(f64, String)> {
    let rate = amount / series.wall()?.median / unit;
    Some((rate, format!("{rate:.0}{name}")))
}

fn spread_of(spread: Spread) -> String {
    format!(
        "{:.3} s ({:.3}..{:.3})",
        spread.median, spread.min, spread.max
    )
}

/// Columns side by side, the first to the left, the others to the right.
fn render(lines: &[Vec<String>]) -> String {
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

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).expect("there are values");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_table_shows_gains_and_leaves_out_what_nobody_reported() {
        let run = |wall_secs: f64, report: Option<Value>| Run { wall_secs, report };
        let report = |secs: f64| Some(json!({"timing": {"dest_encode_secs": secs}}));
        let series = [
            Series {
                way: Way::Psql,
                runs: vec![run(1.0, None)],
            },
            Series {
                way: Way::Insert,
                runs: vec![run(4.0, report(0.5))],
            },
            Series {
                way: Way::Copy,
                runs: vec![run(2.0, report(0.25))],
            },
        ];
        let shown = table(
            &series,
            Size {
                rows: 100,
                bytes: 1_000_000,
            },
        );
        let line = |name: &str| {
            let found = shown
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            found.unwrap_or_default().to_owned()
        };
        assert!(line("total").ends_with("2.00x"), "{shown}");
        assert!(line("dest encode").ends_with("2.00x"), "{shown}");
        assert!(!shown.contains("source decode"), "{shown}");
        assert!(shown.contains("COPY runs at 0.50x"), "{shown}");
    }
}
