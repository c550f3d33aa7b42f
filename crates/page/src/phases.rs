//! Bars that show when a stage of a run worked, and what its time went into.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::escape::html as escape;
use crate::figures::seconds;

/// The groups that phases are drawn as: a class of the style sheet, what it says, and the ends of
/// the report's keys.
const GROUPS: [(&str, &str, &[&str]); 8] = [
    (
        "setup",
        "load and instantiate",
        &["module_load", "vm_setup"],
    ),
    ("connect", "connect and query", &["connect", "query"]),
    ("outside", "wait for the server or disk", &["fetch"]),
    (
        "work",
        "convert values",
        &[
            "arrow_encode",
            "arrow_decode",
            "decode",
            "transform",
            "encode",
        ],
    ),
    (
        "host",
        "cross the sandbox boundary, compress",
        &["crossing", "decompress", "compress"],
    ),
    ("peer", "wait for another stage", &["channel_wait", "recv"]),
    ("write", "flush and commit", &["flush", "commit"]),
    ("other", "other", &["other"]),
];

/// The class of a key such as `source_fetch_secs`.
pub fn class(key: &str) -> &'static str {
    GROUPS[group(key)].0
}

fn group(key: &str) -> usize {
    let name = key.trim_end_matches("_secs");
    let found = GROUPS
        .iter()
        .position(|(_, _, ends)| ends.iter().any(|end| name.ends_with(end)));
    found.unwrap_or(GROUPS.len() - 1)
}

/// The bar of one stage. Times are in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Lane<'l> {
    /// The stream.
    pub name: &'l str,
    /// The verb of the stage, which is ours.
    pub does: &'l str,
    /// From the begin of the run to its own.
    pub start_secs: f64,
    /// From its begin to its end.
    pub wall_secs: f64,
    /// The time of each phase, by keys such as `source_fetch_secs`. `None`: the bar has one part, planning.
    pub phases: Option<&'l Map<String, Value>>,
}

impl Lane<'_> {
    /// The bar within a run of this time.
    pub fn html(&self, total_secs: f64) -> String {
        let (start, wall) = (self.start_secs, self.wall_secs);
        let percent = |secs: f64| (100.0 * secs / total_secs.max(1e-9)).clamp(0.0, 100.0);
        let parts = match self.phases {
            None => format!(
                "<i class=\"setup\" style=\"width:100%\" title=\"planning {}\"></i>",
                seconds(wall)
            ),
            Some(phases) => segments(phases, wall),
        };
        format!(
            "<div class=\"lane\"><span class=\"name\">{} <small>{}</small></span>\
             <span class=\"track\"><span class=\"bar\" style=\"margin-left:{:.3}%;width:{:.3}%\">{parts}</span></span>\
             <span class=\"secs\">{}</span></div>\n",
            escape(self.name),
            self.does,
            percent(start),
            percent(wall).min(100.0 - percent(start)),
            seconds(wall)
        )
    }
}

/// What the colours of the parts say.
pub fn legend() -> String {
    let colours: String = GROUPS
        .iter()
        .map(|(class, text, _)| format!("<span><i class=\"{class}\"></i>{text}</span>\n"))
        .collect();
    format!("<div class=\"legend\">\n{colours}</div>\n")
}

/// The parts of a bar.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_has_the_class_of_its_phase() {
        assert_eq!(class("dest_arrow_decode_secs"), "work");
        assert_eq!(class("decompress_secs"), "host");
        assert_eq!(class("nothing_secs"), "other");
    }

    #[test]
    fn a_bar_stays_within_the_run_and_its_parts_are_shares() {
        let phases = json!({ "source_fetch_secs": 0.5, "source_decode_secs": 0.5 });
        let lane = Lane {
            name: "a<b",
            does: "reads",
            start_secs: 3.0,
            wall_secs: 2.0,
            phases: phases.as_object(),
        };
        let html = lane.html(4.0);
        for part in [
            "a&lt;b <small>reads</small>",
            "margin-left:75.000%;width:25.000%",
            "<i class=\"outside\" style=\"width:25.000%\"",
            "<i class=\"work\" style=\"width:25.000%\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
