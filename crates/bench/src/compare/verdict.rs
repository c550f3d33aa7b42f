//! When a build counts as slower than another: the rules, without a server.

use crate::figures::{LOAD, PHASES, timing};
use crate::measure::Series;
use crate::stats::{Ratio, Spread};

/// A whole process may take this much more.
const TOTAL_LIMIT: f64 = 1.05;
/// A phase may.
const PHASE_LIMIT: f64 = 1.20;
/// The loading of connectors may: it depends on the file system's cache.
const LOAD_LIMIT: f64 = 2.0;
/// A phase that grows by less than this share of the total cannot be told from noise of the machine.
const PHASE_SHARE: f64 = 0.01;
/// The loading of two connectors takes about as long.
const LOAD_SECS: f64 = 0.002;
/// The same wait may be spent in one stage or in the other; the total judges it.
const WAITS: [&str; 4] = [
    "channel_wait_secs",
    "dest_recv_secs",
    "source_fetch_secs",
    "dest_fetch_secs",
];

/// The comparison of one total or phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Medians, in seconds.
    pub old: f64,
    pub new: f64,
    pub ratio: Ratio,
    /// The ratio above which it is a regression; nothing for what is only shown.
    pub limit: Option<f64>,
    pub verdict: Verdict,
}

/// How a ratio is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Slower, beyond the limit and beyond the noise.
    Regression,
    /// Slower, within the limit.
    Slower,
    /// Faster, beyond the noise.
    Faster,
    /// The measurements allow no verdict.
    Noise,
}

/// A ratio that is a regression, and the growth in seconds below which it is none.
#[derive(Debug, Clone, Copy)]
struct Limit {
    ratio: f64,
    min_secs: f64,
}

impl Verdict {
    /// For the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Regression => "REGRESSION",
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Noise => "",
        }
    }
}

/// The total and every phase that both report.
pub fn judge(old: &Series, new: &Series) -> Vec<(&'static str, Judged)> {
    let walls = |series: &Series| series.runs.iter().map(|run| run.wall_secs).collect();
    let (old_walls, new_walls): (Vec<f64>, Vec<f64>) = (walls(old), walls(new));
    let total = old.wall().map_or(0.0, |wall| wall.median);
    let limit = Limit {
        ratio: TOTAL_LIMIT,
        min_secs: 0.0,
    };
    let mut all = Vec::new();
    all.extend(compare(&old_walls, &new_walls, Some(limit)).map(|judged| ("total", judged)));
    for (key, name) in PHASES {
        let samples = |series: &Series| -> Vec<f64> {
            let of =
                |run: &crate::measure::Run| run.report.as_ref()?.pointer(&timing(key))?.as_f64();
            series.runs.iter().filter_map(of).collect()
        };
        let limit = phase_limit(key, total);
        let judged = compare(&samples(old), &samples(new), limit);
        all.extend(judged.map(|judged| (*name, judged)));
    }
    all
}

fn phase_limit(key: &str, total: f64) -> Option<Limit> {
    match key {
        LOAD => Some(Limit {
            ratio: LOAD_LIMIT,
            min_secs: LOAD_SECS,
        }),
        _ if WAITS.contains(&key) => None,
        _ => Some(Limit {
            ratio: PHASE_LIMIT,
            min_secs: total * PHASE_SHARE,
        }),
    }
}

/// Nothing when one of them is empty or takes no time.
fn compare(old: &[f64], new: &[f64], limit: Option<Limit>) -> Option<Judged> {
    let ratio = Ratio::of(old, new)?;
    let median = |values: &[f64]| Some(Spread::of(values.to_vec())?.median);
    let (old, new) = (median(old)?, median(new)?);
    let exceeds = |limit: Limit| ratio.value > limit.ratio && new - old >= limit.min_secs;
    let verdict = if ratio.high < 1.0 {
        Verdict::Faster
    } else if ratio.low <= 1.0 {
        Verdict::Noise
    } else if limit.is_some_and(exceeds) {
        Verdict::Regression
    } else {
        Verdict::Slower
    };
    Some(Judged {
        old,
        new,
        ratio,
        limit: limit.map(|limit| limit.ratio),
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::Run;

    const QUIET: [f64; 7] = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01];

    /// Runs whose total is scattered quietly around `total`; each phase takes its share of it.
    fn series(total: f64, phases: &[(&str, f64)]) -> Series {
        let run = |noise: f64| {
            let timing: serde_json::Map<_, _> = phases
                .iter()
                .map(|(key, secs)| ((*key).to_owned(), json!(secs * noise)))
                .collect();
            Run {
                wall_secs: total * noise,
                cpu_secs: None,
                report: Some(json!({ "timing": timing })),
                differs: false,
            }
        };
        Series {
            runs: QUIET.map(run).into(),
            ..Series::new("COPY")
        }
    }

    fn verdict(old: &Series, new: &Series, name: &str) -> Verdict {
        let judged = judge(old, new);
        let found = judged.iter().find(|(what, _)| *what == name);
        found.expect("it is judged").1.verdict
    }

    #[test]
    fn a_total_may_grow_by_a_twentieth() {
        let old = series(1.0, &[]);
        assert_eq!(
            verdict(&old, &series(1.10, &[]), "total"),
            Verdict::Regression
        );
        assert_eq!(verdict(&old, &series(1.04, &[]), "total"), Verdict::Slower);
        assert_eq!(verdict(&old, &series(1.00, &[]), "total"), Verdict::Noise);
        assert_eq!(verdict(&old, &series(0.80, &[]), "total"), Verdict::Faster);
    }

    #[test]
    fn a_growth_within_the_noise_is_none() {
        let mut old = series(1.0, &[]);
        let mut new = series(1.1, &[]);
        for (at, run) in old.runs.iter_mut().enumerate() {
            run.wall_secs = 0.5 + 0.2 * at as f64;
        }
        for (at, run) in new.runs.iter_mut().enumerate() {
            run.wall_secs = 0.6 + 0.2 * at as f64;
        }
        assert_eq!(verdict(&old, &new, "total"), Verdict::Noise);
    }

    #[test]
    fn a_phase_may_grow_by_a_fifth_if_it_weighs_anything() {
        let phase = |secs| series(1.0, &[("dest_encode_secs", secs)]);
        assert_eq!(
            verdict(&phase(0.1), &phase(0.13), "dest encode"),
            Verdict::Regression
        );
        assert_eq!(
            verdict(&phase(0.1), &phase(0.115), "dest encode"),
            Verdict::Slower
        );
        // Twice as long, and nobody can feel it.
        assert_eq!(
            verdict(&phase(0.002), &phase(0.004), "dest encode"),
            Verdict::Slower
        );
    }

    #[test]
    fn loading_may_double_and_waits_are_only_shown() {
        let load = |secs| series(1.0, &[("module_load_secs", secs)]);
        assert_eq!(
            verdict(&load(0.006), &load(0.011), "module load"),
            Verdict::Slower
        );
        assert_eq!(
            verdict(&load(0.006), &load(0.013), "module load"),
            Verdict::Regression
        );
        let wait = |secs| series(1.0, &[("dest_recv_secs", secs)]);
        assert_eq!(
            verdict(&wait(0.1), &wait(0.9), "dest receive"),
            Verdict::Slower
        );
    }

    #[test]
    fn a_phase_that_one_build_does_not_report_is_left_out() {
        let judged = judge(
            &series(1.0, &[]),
            &series(1.0, &[("dest_encode_secs", 0.1)]),
        );
        assert_eq!(judged.len(), 1);
    }
}
