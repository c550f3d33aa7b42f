//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// The media type of the format.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, until the process ends.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Values, counted by upper bounds.
    Histogram,
}

/// The families so far.
#[derive(Debug, Default)]
pub struct Text(String);

/// One family, to which samples are added.
pub struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
}

/// Values counted by upper bounds, the last of which is infinite.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Text {
    /// Begins a family. A text has each name once.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // A String takes everything.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family {
            text: &mut self.0,
            name,
        }
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, Kind::Gauge, help).add(&[], value);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, Kind::Counter, help).add(&[], value);
    }

    /// The whole text.
    pub fn end(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Adds a sample. Each call for a family has other labels.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.line("", labels, value);
    }

    /// Adds the samples of a histogram.
    pub fn add_histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let mut sum = 0;
        for (index, count) in histogram.counts.iter().enumerate() {
            sum += count;
            let bound = histogram.bounds.get(index);
            let bound = bound.map_or("+Inf".to_owned(), f64::to_string);
            let of_bucket = [labels, &[("le", bound.as_str())]].concat();
            self.line("_bucket", &of_bucket, sum);
        }
        self.line("_sum", labels, histogram.sum);
        self.line("_count", labels, sum);
    }

    fn line(&mut self, ending: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(ending);
        for (index, (name, value)) in labels.iter().enumerate() {
            let begin = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\");
            let value = value.replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{begin}{name}=\"{value}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

impl Histogram {
    /// Without values. `bounds` rise.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts a value.
    pub fn add(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let mut text = Text::default();
        let mut family = text.family("a_total", Kind::Counter, "one\\two\nthree");
        family.add(&[("p", "a\"b\\c\nd"), ("s", "<é>")], 3);
        assert_eq!(
            text.end(),
            "# HELP a_total one\\\\two\\nthree\n# TYPE a_total counter\n\
             a_total{p=\"a\\\"b\\\\c\\nd\",s=\"<é>\"} 3\n"
        );
    }

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.1, 0.5, 0.7, 9.0] {
            histogram.add(value);
        }
        let mut text = Text::default();
        let mut family = text.family("h", Kind::Histogram, "h");
        family.add_histogram(&[("r", "/")], &histogram);
        let text = text.end();
        for line in [
            "h_bucket{r=\"/\",le=\"0.5\"} 2\n",
            "h_bucket{r=\"/\",le=\"1\"} 3\n",
            "h_bucket{r=\"/\",le=\"+Inf\"} 4\n",
            "h_count{r=\"/\"} 4\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            text.contains("h_sum{r=\"/\"} 10.299999999999999\n")
                || text.contains("h_sum{r=\"/\"} 10.3\n"),
            "{text}"
        );
    }
}
