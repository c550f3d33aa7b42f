//! Criterion's figures for the parts of a batch's way, from its folder: a table for people, lines for
//! programs, and the rule that rows together must not cost more than rows alone.

use std::fs;
use std::path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::figures::render;

/// One part and what one thing of it costs, in nanoseconds.
pub struct Figure {
    /// As it was measured under.
    pub name: String,
    /// The counted thing: value, row, batch, call.
    pub per: &'static str,
    /// Of all samples.
    pub median: f64,
    /// The least sample.
    pub least: f64,
    /// The greatest sample.
    pub greatest: f64,
}

/// All that were measured, in order.
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Reads what was written since `begun` into the folder of Criterion; nothing of what was only
    /// listed or tried. Fails where its files are not as they should be.
    pub fn read(
        home: &path::Path,
        measured: &[(String, &'static str)],
        begun: SystemTime,
    ) -> Result<Self, Failure> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(home).into_iter().flatten() {
            let folder = entry?.path().join("new");
            let written = fs::metadata(folder.join("estimates.json")).and_then(|m| m.modified());
            if written.is_ok_and(|written| written >= begun) {
                let name = document(&folder, "benchmark.json")?["full_id"].clone();
                folders.push((name, folder));
            }
        }
        let mut figures = Vec::new();
        for (name, per) in measured {
            let found = folders.iter().find(|(known, _)| *known == **name);
            if let Some((_, folder)) = found {
                figures.push(Figure::read(folder, name, per)?);
            }
        }
        Ok(Self(figures))
    }

    /// The table; empty where nothing was measured.
    pub fn table(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let head = ["", "median", "least", "greatest", "per"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for figure in &self.0 {
            let mut line = vec![figure.name.clone()];
            line.extend([figure.median, figure.least, figure.greatest].map(duration));
            line.push(figure.per.to_owned());
            lines.push(line);
        }
        render(&lines)
    }

    /// A line of JSON for each, beginning with what all of them share.
    pub fn lines(&self, context: &Value) -> String {
        let lines = self.0.iter().map(|figure| figure.json(context));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The cost of a row on each of these paths, alone and in larger batches; without the paths that were
    /// not measured with all of [`COUNTS`].
    pub fn bulk(&self, paths: &[&'static str]) -> Bulk {
        let named = |name: String| self.0.iter().find(|figure| figure.name == name);
        let of = |path: &'static str| {
            let nanos = COUNTS.map(|count| Some(named(bulk_name(path, count))?.least));
            let nanos = nanos.into_iter().collect::<Option<_>>()?;
            Some(Path { name: path, nanos })
        };
        Bulk(paths.iter().filter_map(|path| of(path)).collect())
    }
}

/// One row at a time, and rows together.
pub const COUNTS: [usize; 6] = [1, 10, 50, 100, 500, 1000];

/// The name of a path's figure with `count` rows at a time.
pub fn bulk_name(path: &str, count: usize) -> String {
    format!("{path}, {count} at a time")
}

/// Paths with one row at a time and with many.
pub struct Bulk(Vec<Path>);

/// A path and the nanoseconds of a row, for each of [`COUNTS`]: of the least sample, which other work
/// of the machine disturbs least.
struct Path {
    name: &'static str,
    nanos: Vec<f64>,
}

impl Bulk {
    /// The table; empty where nothing was measured.
    pub fn table(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut head = vec!["ns a row, rows at a time".to_owned()];
        head.extend(COUNTS.map(|count| count.to_string()));
        let mut lines = vec![head];
        for path in &self.0 {
            let mut line = vec![path.name.to_owned()];
            line.extend(path.nanos.iter().map(|nanos| format!("{nanos:.0}")));
            lines.push(line);
        }
        render(&lines)
    }

    /// Fails when rows of a path cost more together than alone.
    pub fn judge(&self) -> Result<(), Failure> {
        let dearer = self.0.iter().filter(|path| path.is_dearer_in_bulk());
        match dearer.map(|path| path.name).collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            names => Err(Failure(format!(
                "a row costs more in bulk than alone: {}",
                names.join(", ")
            ))),
        }
    }
}

impl Path {
    /// Beyond what two measurements of the same differ by.
    fn is_dearer_in_bulk(&self) -> bool {
        const TOLERANCE: f64 = 1.1;
        match self.nanos.split_first() {
            Some((single, bulk)) => bulk.iter().any(|nanos| *nanos > single * TOLERANCE),
            None => false,
        }
    }
}

impl Figure {
    fn read(folder: &path::Path, name: &str, per: &'static str) -> Result<Self, Failure> {
        let estimates = document(folder, "estimates.json")?;
        let sample = document(folder, "sample.json")?;
        let numbers = |key: &str| {
            let values = sample[key].as_array().into_iter().flatten();
            values.filter_map(Value::as_f64)
        };
        let costs: Vec<f64> = numbers("times")
            .zip(numbers("iters"))
            .map(|(nanos, things)| nanos / things)
            .collect();
        let median = estimates["median"]["point_estimate"].as_f64();
        match (median, costs.is_empty()) {
            (Some(median), false) => Ok(Self {
                name: name.to_owned(),
                per,
                median,
                least: costs.iter().copied().fold(f64::INFINITY, f64::min),
                greatest: costs.iter().copied().fold(0.0, f64::max),
            }),
            _ => Err(Failure(format!("{name}: Criterion has left no samples"))),
        }
    }

    fn json(&self, context: &Value) -> Value {
        let mut line = context.clone();
        line["part"] = json!(self.name);
        line["per"] = json!(self.per);
        line["median_nanos"] = json!(self.median);
        line["min_nanos"] = json!(self.least);
        line["max_nanos"] = json!(self.greatest);
        line
    }
}

fn document(folder: &path::Path, name: &str) -> Result<Value, Failure> {
    let bytes = fs::read(folder.join(name)).map_err(|error| Failure(format!("{name}: {error}")))?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// In the unit that people would use.
fn duration(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.1} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Leaves what Criterion would, of a run with two samples.
    fn leave(home: &path::Path, name: &str, least: f64) {
        let folder = home.join(name.replace(':', "_")).join("new");
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, value: Value| {
            fs::write(folder.join(name), value.to_string()).unwrap();
        };
        write("benchmark.json", json!({ "full_id": name }));
        let sample = json!({"iters": [10.0, 20.0], "times": [least * 10.0, least * 40.0]});
        write("sample.json", sample);
        let median = json!({"point_estimate": least * 1.5});
        write("estimates.json", json!({ "median": median }));
    }

    #[test]
    fn figures_are_those_of_this_run_in_its_order() {
        let home = tempfile::tempdir().unwrap();
        let begun = SystemTime::now() - Duration::from_secs(60);
        for name in ["a: first", "b", "of an older run"] {
            leave(home.path(), name, 2.0);
        }
        let measured = ["b", "a: first", "only listed"].map(|name| (name.to_owned(), "row"));
        let figures = Figures::read(home.path(), &measured, begun).expect("it can be read");
        let table = figures.table();
        assert_eq!(table.lines().count(), 3, "{table}");
        let b = table.lines().nth(1).unwrap_or_default();
        let cells: Vec<&str> = b.split("  ").map(str::trim).collect();
        let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["b", "3.0 ns", "2.0 ns", "4.0 ns", "row"]);
        let lines = figures.lines(&json!({"commit": "abc"}));
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["commit"], &first["part"]),
            (&json!("abc"), &json!("b"))
        );
        assert_eq!(first["median_nanos"], 3.0);
        let later = SystemTime::now() + Duration::from_secs(60);
        let none = Figures::read(home.path(), &measured, later).expect("no figures, no failure");
        assert_eq!(
            (none.table(), none.lines(&json!({}))),
            (String::new(), String::new())
        );
    }

    #[test]
    fn a_path_that_is_dearer_in_bulk_is_found() {
        let of = |nanos: [f64; 6]| {
            let figure = |(count, least): (usize, f64)| Figure {
                name: bulk_name("a", count),
                per: "row",
                median: least,
                least,
                greatest: least,
            };
            Figures(COUNTS.into_iter().zip(nanos).map(figure).collect())
        };
        assert!(
            of([100.0, 60.0, 50.0, 50.0, 50.0, 50.0])
                .bulk(&["a"])
                .judge()
                .is_ok()
        );
        assert!(
            of([100.0, 105.0, 50.0, 50.0, 50.0, 50.0])
                .bulk(&["a"])
                .judge()
                .is_ok()
        );
        let dearer = of([100.0, 60.0, 120.0, 50.0, 50.0, 50.0]).bulk(&["a", "b"]);
        assert_eq!(dearer.table().lines().count(), 2);
        let Failure(text) = dearer.judge().expect_err("50 rows are dearer");
        assert!(text.ends_with("alone: a"), "{text}");
        let some = Figures(of([1.0; 6]).0.into_iter().take(5).collect());
        assert_eq!(some.bulk(&["a"]).table(), "");
    }

    #[test]
    fn units_are_those_of_people() {
        assert_eq!(duration(12.34), "12.3 ns");
        assert_eq!(duration(12_340.0), "12.3 µs");
        assert_eq!(duration(12_340_000.0), "12.34 ms");
    }
}
