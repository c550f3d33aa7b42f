//! Lines over time, drawn as SVG.

use std::fmt::Write as _;

use crate::samples::Sample;

/// Points of a speed at most: fewer than samples, so that a line shows more than noise.
const MAX_POINTS: usize = 60;
/// The drawing's own units; the page stretches it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 140.0;

/// Rows a second between samples, at the end of each span.
pub fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let step = samples.len().div_ceil(MAX_POINTS).max(1);
    let mut picked: Vec<&Sample> = samples.iter().step_by(step).collect();
    if let (Some(last), Some(end)) = (picked.last().copied(), samples.last())
        && last != end
    {
        picked.push(end);
    }
    let rate = |pair: &[&Sample]| {
        let secs = pair[1].secs - pair[0].secs;
        let rows = pair[1].rows.saturating_sub(pair[0].rows);
        (secs > 0.0).then(|| (pair[1].secs, rows as f64 / secs))
    };
    picked.windows(2).filter_map(rate).collect()
}

/// A figure with one line from zero to its peak.
pub fn line(title: &str, points: &[(f64, f64)], label: impl Fn(f64) -> String) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return format!(
            "<figure><figcaption>{title}</figcaption><p class=\"quiet\">too short to \
                 measure</p></figure>\n"
        );
    };
    let peak = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let from = if points.len() > 1 { first.0 } else { 0.0 };
    let span = (last.0 - from).max(1e-9);
    let x = |secs: f64| (secs - from) / span * WIDTH;
    let y = |value: f64| HEIGHT - value / peak.max(1e-9) * (HEIGHT - 4.0);
    let mut path = String::new();
    for (index, (secs, value)) in points.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", x(*secs), y(*value));
    }
    format!(
        "<figure><figcaption>{title} <span class=\"quiet\">peak {peak}</span></figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}, peak {peak}\">\
         <path class=\"area\" d=\"{path}L{:.1} {HEIGHT}L{:.1} {HEIGHT}Z\"/><path class=\"line\" d=\"{path}\"/></svg>\n\
         <div class=\"axis\"><span>{from:.2} s</span><span>{:.2} s</span></div></figure>\n",
        x(last.0),
        x(first.0),
        last.0,
        peak = label(peak),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rows_over_the_time_between() {
        let sample = |secs, rows| Sample {
            secs,
            rows,
            bytes: 0,
            rss_bytes: None,
        };
        let samples = [
            sample(0.0, 0),
            sample(0.5, 100),
            sample(0.5, 100),
            sample(2.0, 400),
        ];
        assert_eq!(rates(&samples), [(0.5, 200.0), (2.0, 200.0)]);
        let many: Vec<_> = (0..1000)
            .map(|n| sample(f64::from(n), n as u64 * 7))
            .collect();
        let rates = rates(&many);
        assert!(rates.len() <= MAX_POINTS + 1);
        assert!(rates.iter().all(|(_, rate)| *rate == 7.0));
        assert_eq!(rates.last().map(|(secs, _)| *secs), Some(999.0));
    }

    #[test]
    fn a_line_of_no_points_says_so() {
        assert!(line("Speed", &[], |v| v.to_string()).contains("too short"));
        let one = line("Speed", &[(1.0, 5.0)], |v| v.to_string());
        assert!(one.contains("peak 5") && !one.contains("NaN"), "{one}");
    }
}
