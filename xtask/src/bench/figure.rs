//! One measurement: its values, its goal, and how both are shown.

use std::fmt::Write;

/// The unit of a figure's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds; shown in milliseconds.
    Seconds,
    /// Rows a second; shown in millions.
    RowsPerSecond,
    /// Bytes; shown in megabytes of 10^6 bytes.
    Bytes,
}

/// The goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// This or less, in the figure's unit.
    AtMost(f64),
    /// This or more, in the figure's unit.
    AtLeast(f64),
    /// Shown for comparison.
    None,
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The name of the measurement.
    pub name: String,
    /// Rows of each run; 0 when the program runs no pipeline.
    pub rows: u64,
    /// `none`, `lz4` or `zstd` between the components.
    pub compression: &'static str,
    /// The unit of the values.
    pub unit: Unit,
    /// One for each run; empty when the program did not report it.
    pub values: Vec<f64>,
    /// The goal for the median.
    pub goal: Goal,
}

impl Figure {
    /// Name, figures, goal, verdict.
    pub fn cells(&self) -> [String; 4] {
        let Some(summary) = summary(&self.values) else {
            return [
                self.name.clone(),
                "not reported".into(),
                self.goal_text(),
                String::new(),
            ];
        };
        let [median, min, max] = summary.map(|value| self.unit.number(value));
        let figures = format!("{median} {} ({min}..{max})", self.unit.name());
        let verdict = match self.goal {
            Goal::AtMost(limit) if summary[0] > limit => "above the goal",
            Goal::AtLeast(limit) if summary[0] < limit => "below the goal",
            Goal::None => "",
            _ => "ok",
        };
        [
            self.name.clone(),
            figures,
            self.goal_text(),
            verdict.to_owned(),
        ]
    }

    fn goal_text(&self) -> String {
        let (sign, limit) = match self.goal {
            Goal::AtMost(limit) => ("<=", limit),
            Goal::AtLeast(limit) => (">=", limit),
            Goal::None => return String::new(),
        };
        format!("{sign} {} {}", self.unit.number(limit), self.unit.name())
    }

    /// One JSON object without its braces: what was measured, in base units.
    pub fn json(&self) -> String {
        let mut text = format!(
            r#""name":{},"rows":{},"compression":"{}","unit":"{}""#,
            quoted(&self.name),
            self.rows,
            self.compression,
            self.unit.base()
        );
        // Writing to a string does not fail.
        if let Some([median, min, max]) = summary(&self.values) {
            let _ = write!(text, r#","median":{median},"min":{min},"max":{max}"#);
        }
        let values: Vec<String> = self.values.iter().map(f64::to_string).collect();
        let _ = write!(text, r#","values":[{}]"#, values.join(","));
        match self.goal {
            Goal::AtMost(limit) => _ = write!(text, r#","goal_at_most":{limit}"#),
            Goal::AtLeast(limit) => _ = write!(text, r#","goal_at_least":{limit}"#),
            Goal::None => {}
        }
        text
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "ms",
            Self::RowsPerSecond => "M rows/s",
            Self::Bytes => "MB",
        }
    }

    fn base(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::RowsPerSecond => "rows/s",
            Self::Bytes => "B",
        }
    }

    fn number(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{:.1}", value * 1e3),
            Self::RowsPerSecond => format!("{:.2}", value / 1e6),
            Self::Bytes => format!("{:.1}", value / 1e6),
        }
    }
}

/// Median, least and greatest; of an even count, the median is the mean of the middle two.
pub fn summary(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some([median, min, max])
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Columns in line, the first row is the head.
pub fn table(rows: &[[String; 4]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        let text = format!(
            "{:<3$}  {:<4$}  {:<5$}  ",
            row[0], row[1], row[2], widths[0], widths[1], widths[2]
        );
        (text + &row[3]).trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::flat::Flat;

    fn figure(unit: Unit, values: &[f64], goal: Goal) -> Figure {
        Figure {
            name: "a \"b\"".into(),
            rows: 7,
            compression: "lz4",
            unit,
            values: values.to_vec(),
            goal,
        }
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[4.0]), Some([4.0, 4.0, 4.0]));
        assert_eq!(summary(&[9.0, 1.0, 2.0]), Some([2.0, 1.0, 9.0]));
        assert_eq!(summary(&[10.0, 1.0, 4.0, 2.0]), Some([3.0, 1.0, 10.0]));
    }

    #[test]
    fn a_missed_goal_is_said_in_its_direction() {
        let slow = figure(Unit::Seconds, &[0.003, 0.0112, 0.2], Goal::AtMost(0.01));
        let expected = [
            "a \"b\"",
            "11.2 ms (3.0..200.0)",
            "<= 10.0 ms",
            "above the goal",
        ];
        assert_eq!(slow.cells(), expected);
        let rate = |value| figure(Unit::RowsPerSecond, &[value], Goal::AtLeast(2e6)).cells();
        assert_eq!(rate(1.9e6)[3], "below the goal");
        assert_eq!(rate(2e6)[3], "ok");
        let unknown = figure(Unit::Bytes, &[], Goal::AtMost(64e6)).cells();
        assert_eq!(unknown[1..], ["not reported", "<= 64.0 MB", ""]);
    }

    #[test]
    fn a_logged_figure_is_json() {
        let logged = figure(Unit::Bytes, &[3.0, 1.5], Goal::AtMost(64e6)).json();
        let flat = Flat::parse(&format!("{{{logged}}}")).unwrap();
        assert_eq!(flat.text("name"), Some("a \\\"b\\\""));
        assert_eq!(flat.number("median"), Some(2.25));
        assert_eq!(flat.number("values.1"), Some(1.5));
        assert_eq!(flat.number("goal_at_most"), Some(64e6));
        assert_eq!(flat.text("unit"), Some("B"));
    }
}
