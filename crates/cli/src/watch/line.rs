//! One stream's progress as a line of a given width, as a sentence, and as JSON.

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use serde_json::{Value, json};

use crate::output::{bytes, rate, rows};

/// Names longer than this are cut on a narrow terminal.
const NAME_COLUMNS: usize = 16;
const BAR_COLUMNS: usize = 16;
/// Between two parts of a line.
const GAP: &str = "  ";
/// Longer estimates are not shown.
const MAX_LEFT_SECS: f64 = 100.0 * 3600.0;

/// The stage that the other one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Source,
    Destination,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

/// A running stream at one moment.
pub struct Seen {
    pub name: String,
    /// Columns of the longest stream name, so that the lines align.
    pub name_columns: usize,
    pub rows: u64,
    pub bytes: u64,
    /// More than none.
    pub estimated_rows: Option<u64>,
    pub rows_per_sec: f64,
    pub limit: Option<Limit>,
}

impl Seen {
    /// From 0 to 1; nothing without an estimate, or when that was wrong.
    fn share(&self) -> Option<f64> {
        let all = self.estimated_rows.filter(|all| *all >= self.rows)?;
        Some(self.rows as f64 / all as f64)
    }

    /// Seconds until the estimated rows have moved.
    fn left_secs(&self) -> Option<f64> {
        let left = self.estimated_rows?.checked_sub(self.rows)?;
        let secs = left as f64 / self.rows_per_sec;
        (secs.is_finite() && secs < MAX_LEFT_SECS).then_some(secs)
    }

    /// The speed is unknown before the first rows: the source may still list files, or the server
    /// prepare its answer.
    fn has_begun(&self) -> bool {
        self.rows > 0
    }

    fn moved(&self) -> String {
        match self.rows {
            0 => "no rows yet".into(),
            number => rows(number),
        }
    }

    fn speed(&self) -> String {
        rate(self.rows_per_sec.max(0.0) as u64, 1.0)
    }

    /// A line of at most `width` characters. It drops the least important parts first: the bar, the
    /// bytes, the limit, the time that is left.
    pub fn line(&self, width: usize) -> String {
        let percent = self
            .share()
            .map(|share| format!("{:>3.0}%", (share * 100.0).floor()));
        let most = width.min(NAME_COLUMNS.max(width / 3));
        let padded = self.name_columns.min(most);
        let name = cut(&self.name, most);
        let name = pad_str(&name, padded, Alignment::Left, None).into_owned();
        // In order of the line, each with its rank: a lower one stays longer.
        let parts = [
            (0, Some(name)),
            (7, self.share().map(bar)),
            (2, percent),
            (1, Some(self.moved())),
            (6, self.has_begun().then(|| bytes(self.bytes))),
            (3, self.has_begun().then(|| self.speed())),
            (
                4,
                self.left_secs().map(|secs| format!("{} left", clock(secs))),
            ),
            (
                5,
                self.limit.map(|limit| format!("limit: {}", limit.name())),
            ),
        ];
        let mut ranks: Vec<u8> = (0..8).collect();
        loop {
            let kept = parts.iter().filter(|(rank, _)| ranks.contains(rank));
            let kept: Vec<&str> = kept.filter_map(|(_, part)| part.as_deref()).collect();
            let line = kept.join(GAP);
            if measure_text_width(&line) <= width {
                return line;
            }
            if ranks.len() <= 1 {
                return cut(&line, width);
            }
            ranks.pop();
        }
    }

    /// For a log.
    pub fn sentence(&self) -> String {
        let mut text = format!("{}: {}", self.name, self.moved());
        if self.has_begun() {
            text.push_str(&format!(", {}", bytes(self.bytes)));
        }
        if let Some(share) = self.share() {
            text.push_str(&format!(", {:.0}%", (share * 100.0).floor()));
        }
        if self.has_begun() {
            text.push_str(&format!(", {}", self.speed()));
        }
        if let Some(secs) = self.left_secs() {
            text.push_str(&format!(", {} left", clock(secs)));
        }
        if let Some(limit) = self.limit {
            text.push_str(&format!(", limited by the {}", limit.name()));
        }
        text
    }

    /// For a log of JSON lines; `secs` is the time since the run began.
    pub fn document(&self, secs: f64) -> Value {
        json!({
            "stream": self.name, "rows": self.rows, "bytes": self.bytes, "secs": secs,
            "estimated_rows": self.estimated_rows, "rows_per_sec": self.rows_per_sec,
            "left_secs": self.left_secs(), "limit": self.limit.map(Limit::name),
        })
    }
}

/// `text`, or its beginning and `…`.
fn cut(text: &str, columns: usize) -> String {
    let more = if columns == 0 { "" } else { "…" };
    truncate_str(text, columns, more).into_owned()
}

fn bar(share: f64) -> String {
    let full = (share * BAR_COLUMNS as f64) as usize;
    format!(
        "[{}{}]",
        "#".repeat(full),
        "-".repeat(BAR_COLUMNS - full.min(BAR_COLUMNS))
    )
}

/// `75 s` as `1:15`.
fn clock(secs: f64) -> String {
    let secs = secs.ceil() as u64;
    match secs / 3600 {
        0 => format!("{}:{:02}", secs / 60, secs % 60),
        hours => format!("{hours}:{:02}:{:02}", secs / 60 % 60, secs % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            name: "public.orders".into(),
            name_columns: 0,
            rows: 250_000,
            bytes: 25 << 20,
            estimated_rows: Some(1_000_000),
            rows_per_sec: 10_000.0,
            limit: Some(Limit::Source),
        }
    }

    #[test]
    fn a_wide_line_has_everything_and_a_narrow_one_what_matters() {
        for (width, expected) in [
            (
                120,
                "public.orders  [####------------]   25%  250,000 rows  25.0 MiB  10k rows/s  1:15 left  limit: source",
            ),
            (
                79,
                "public.orders   25%  250,000 rows  10k rows/s  1:15 left  limit: source",
            ),
            (
                60,
                "public.orders   25%  250,000 rows  10k rows/s  1:15 left",
            ),
            (39, "public.orders   25%  250,000 rows"),
            (10, "public.or…"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(seen().line(width), expected, "{width}");
        }
        let padded = Seen {
            name_columns: 20,
            ..seen()
        };
        assert_eq!(padded.line(40), "public.orders      25%  250,000 rows");
        for width in 0..140 {
            assert!(seen().line(width).chars().count() <= width, "{width}");
        }
    }

    #[test]
    fn wide_characters_do_not_make_a_line_wrap() {
        let seen = Seen {
            name: "公開.注文と注文の明細".into(),
            ..seen()
        };
        for width in 0..140 {
            assert!(measure_text_width(&seen.line(width)) <= width, "{width}");
        }
        assert_eq!(seen.line(39), "公開.注文と注文…   25%  250,000 rows");
    }

    #[test]
    fn unknown_values_are_not_shown() {
        let mut seen = Seen {
            estimated_rows: None,
            limit: None,
            ..seen()
        };
        assert_eq!(
            seen.line(79),
            "public.orders  250,000 rows  25.0 MiB  10k rows/s"
        );
        // An estimate that was too low.
        seen.estimated_rows = Some(10);
        assert_eq!(
            seen.line(79),
            "public.orders  250,000 rows  25.0 MiB  10k rows/s"
        );
        seen.estimated_rows = Some(1_000_000);
        seen.rows_per_sec = 0.0;
        assert!(!seen.line(120).contains("left") && seen.document(1.0)["left_secs"].is_null());
        assert_eq!(clock(3725.0), "1:02:05");
    }

    #[test]
    fn before_the_first_rows_there_is_no_speed() {
        let seen = Seen {
            rows: 0,
            bytes: 0,
            estimated_rows: None,
            rows_per_sec: 0.0,
            ..seen()
        };
        assert_eq!(seen.line(79), "public.orders  no rows yet  limit: source");
        assert_eq!(
            seen.sentence(),
            "public.orders: no rows yet, limited by the source"
        );
    }

    #[test]
    fn a_log_has_sentences_and_numbers() {
        assert_eq!(
            seen().sentence(),
            "public.orders: 250,000 rows, 25.0 MiB, 25%, 10k rows/s, 1:15 left, limited by the source"
        );
        let document = seen().document(25.0);
        assert_eq!(
            (document["rows"].as_u64(), document["left_secs"].as_f64()),
            (Some(250_000), Some(75.0))
        );
        assert_eq!(document["limit"], "source");
    }
}
