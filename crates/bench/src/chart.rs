//! A picture of all comparisons: one group of bars for each, as SVG.

use crate::measure::Series;
use crate::stats::Spread;

const WIDTH: u32 = 880;
/// Where bars begin, behind their names.
const LEFT: u32 = 170;
/// Of the longest bar of a group; its figure follows it.
const LONGEST: u32 = 500;
const LINE: u32 = 22;
const GAP: u32 = 18;

const TITLE: &str = "Copying one PostgreSQL table into another database: seconds, less is better";
const COPY_COLOUR: &str = "#2f6fb0";
const INSERT_COLOUR: &str = "#8fb8de";
const NATIVE_COLOUR: &str = "#b9a44c";
const PSQL_COLOUR: &str = "#7f8c9a";
const PEER_COLOUR: &str = "#bbbbbb";
/// The meaning of each colour.
const LEGEND: [(&str, &str); 5] = [
    (COPY_COLOUR, "Rapidbyte, COPY"),
    (INSERT_COLOUR, "Rapidbyte, INSERT"),
    (NATIVE_COLOUR, "the same code without WebAssembly"),
    (PSQL_COLOUR, "psql"),
    (PEER_COLOUR, "other tools"),
];
const SPREAD: &str = "Bars: medians. Thin lines: from the fastest run to the slowest.";

/// Groups of bars, in order.
pub struct Chart {
    groups: Vec<Group>,
}

struct Group {
    title: String,
    bars: Vec<(String, Spread)>,
}

impl Chart {
    pub fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// One comparison: whole processes, medians.
    pub fn add(&mut self, title: &str, series: &[Series]) {
        let bars = series
            .iter()
            .filter_map(|series| Some((series.name.clone(), series.wall()?)))
            .collect();
        self.groups.push(Group {
            title: title.to_owned(),
            bars,
        });
    }

    /// The document: a title, a legend, and seconds to the right.
    pub fn svg(&self) -> String {
        let mut body = text(8, GAP + 6, "start", "bold", TITLE);
        let mut y = GAP + LINE;
        legend(&mut body, y);
        y += LINE;
        body += &text(8, y + 13, "start", "normal", SPREAD);
        y += LINE + GAP;
        for group in &self.groups {
            group.draw(&mut body, &mut y);
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
             viewBox=\"0 0 {WIDTH} {y}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{y}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }
}

fn legend(body: &mut String, y: u32) {
    let mut x = 8;
    for (colour, meaning) in LEGEND {
        *body += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n",
            y + 3
        );
        *body += &text(x + 18, y + 13, "start", "normal", meaning);
        let characters = u32::try_from(meaning.len()).unwrap_or(0);
        x += 40 + characters * 7;
    }
}

impl Group {
    fn draw(&self, body: &mut String, y: &mut u32) {
        let longest = self
            .bars
            .iter()
            .map(|(_, wall)| wall.max)
            .fold(0.0, f64::max);
        let scale = |secs: f64| match longest > 0.0 {
            true => secs / longest * f64::from(LONGEST),
            false => 0.0,
        };
        *body += &text(8, *y + 13, "start", "bold", &self.title);
        *y += LINE;
        for (name, wall) in &self.bars {
            let (middle, baseline) = (*y + LINE / 2, *y + 15);
            let left = f64::from(LEFT);
            *body += &text(LEFT - 8, baseline, "end", "normal", &shown(name));
            *body += &format!(
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" fill=\"{}\"/>\n",
                *y + 3,
                scale(wall.median),
                LINE - 6,
                colour(name)
            );
            *body += &format!(
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#222222\"/>\n",
                left + scale(wall.min),
                left + scale(wall.max)
            );
            let end = LEFT + LONGEST + 12;
            let figure = format!("{:.2} s ({:.2} to {:.2})", wall.median, wall.min, wall.max);
            *body += &text(end, baseline, "start", "normal", &figure);
            *y += LINE;
        }
        *y += GAP;
    }
}

fn text(x: u32, y: u32, anchor: &str, weight: &str, text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            other => escaped.push(other),
        }
    }
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-weight=\"{weight}\">{escaped}</text>\n"
    )
}

/// A bar's name for people who do not know the modes of `bench`.
fn shown(name: &str) -> String {
    match colour(name) {
        COPY_COLOUR | INSERT_COLOUR if name != crate::run::OURS => format!("Rapidbyte {name}"),
        _ => name.to_owned(),
    }
}

/// Our bars are highlighted.
fn colour(name: &str) -> &'static str {
    use crate::run::{COPY, INSERT, NATIVE_COPY, NATIVE_INSERT, OURS, PSQL};
    match name {
        PSQL => PSQL_COLOUR,
        NATIVE_INSERT | NATIVE_COPY => NATIVE_COLOUR,
        name if name.starts_with(INSERT) => INSERT_COLOUR,
        name if name.starts_with(COPY) || name == OURS => COPY_COLOUR,
        _ => PEER_COLOUR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Run;

    #[test]
    fn bars_are_as_long_as_their_medians() {
        let series = |name: &str, wall_secs: f64| Series {
            runs: vec![Run {
                wall_secs,
                cpu_secs: None,
                report: None,
                differs: false,
            }],
            ..Series::new(name)
        };
        let mut chart = Chart::new();
        let peer = series("slow", 40.0);
        chart.add(
            "1 < 2 & more",
            &[series("psql", 1.0), series("COPY", 2.0), peer],
        );
        let svg = chart.svg();
        assert!(svg.contains("40.00 s (40.00 to 40.00)"), "{svg}");
        for width in ["12.5", "25.0", "500.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{svg}");
        }
        assert!(svg.contains(">Rapidbyte COPY<"), "{svg}");
        assert!(svg.contains("1 &lt; 2 &amp; more"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }
}
