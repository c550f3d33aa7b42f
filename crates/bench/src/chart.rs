//! A picture of all comparisons: one group of bars for each, as SVG.

use crate::measure::Series;
use crate::stats::Spread;

const WIDTH: u32 = 880;
/// Where bars begin, behind their names.
const LEFT: u32 = 130;
/// Of the longest bar of a group; the figure stands behind it.
const LONGEST: u32 = 480;
const LINE: u32 = 22;
const GAP: u32 = 18;

/// The colour of other products.
const PEER: &str = "#bbbbbb";

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

    /// The document: seconds to the right, a thin line from the least to the greatest.
    pub fn svg(&self) -> String {
        let mut y = GAP;
        let mut body = String::new();
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

impl Group {
    /// Seconds of the longest bar. A peer's is cut off where it would leave little of the others.
    fn longest(&self) -> f64 {
        let longest = |is_counted: fn(&str) -> bool| {
            let counted = self.bars.iter().filter(|(name, _)| is_counted(name));
            counted.map(|(_, wall)| wall.max).fold(0.0, f64::max)
        };
        let (all, ours) = (longest(|_| true), longest(|name| colour(name) != PEER));
        match ours > 0.0 {
            true => all.min(ours * 2.0),
            false => all,
        }
    }

    fn draw(&self, body: &mut String, y: &mut u32) {
        let longest = self.longest();
        let scale = |secs: f64| match longest > 0.0 {
            true => (secs / longest).min(1.0) * f64::from(LONGEST),
            false => 0.0,
        };
        *body += &text(8, *y + 13, "start", "bold", &self.title);
        *y += LINE;
        for (name, wall) in &self.bars {
            let (middle, baseline) = (*y + LINE / 2, *y + 15);
            let left = f64::from(LEFT);
            *body += &text(LEFT - 8, baseline, "end", "normal", name);
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
            let mut figure = format!("{:.3} s ({:.3}..{:.3})", wall.median, wall.min, wall.max);
            if wall.median > longest {
                figure += " - cut off";
            }
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

/// Ours stand out.
fn colour(name: &str) -> &'static str {
    use crate::run::{COPY, INSERT, NATIVE_COPY, NATIVE_INSERT, OURS, PSQL};
    match name {
        PSQL => "#7f8c9a",
        NATIVE_INSERT | NATIVE_COPY => "#b9a44c",
        name if name.starts_with(INSERT) => "#8fb8de",
        name if name.starts_with(COPY) || name == OURS => "#2f6fb0",
        _ => PEER,
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
        assert!(svg.contains("40.000 s (40.000..40.000) - cut off"), "{svg}");
        assert!(
            svg.contains("width=\"120.0\"") && svg.contains("width=\"240.0\""),
            "{svg}"
        );
        assert!(svg.contains("1 &lt; 2 &amp; more"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }
}
