//! Contenders in turn, several times, and what each of their runs gave.

use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, Missed};
use crate::process::Timed;
use crate::stats::Spread;

/// One run that ended well.
#[derive(Debug)]
pub struct Run {
    /// From starting the process, or both of a pipe, to their end.
    pub wall_secs: f64,
    /// User and system time of the processes.
    pub cpu_secs: Option<f64>,
    /// The program's report; nothing for `psql`.
    pub report: Option<Value>,
    /// The other product changed values; of ours and of `psql` that is a failure.
    pub differs: bool,
}

impl Run {
    /// Of a program that reports nothing.
    pub fn silent(timed: &Timed) -> Self {
        Self {
            wall_secs: timed.wall_secs,
            cpu_secs: timed.cpu_secs,
            report: None,
            differs: false,
        }
    }

    /// Of a program whose standard output is a report as JSON.
    pub fn reporting(timed: &Timed) -> Result<Self, Failure> {
        let report: Value = serde_json::from_slice(&timed.stdout)
            .map_err(|error| Failure(format!("the report is not JSON: {error}")))?;
        // It counts finer than the system's ticks.
        let cpu_secs = report["process_cpu_secs"].as_f64().or(timed.cpu_secs);
        Ok(Self {
            cpu_secs,
            report: Some(report),
            ..Self::silent(timed)
        })
    }
}

/// All runs of one contender.
#[derive(Debug)]
pub struct Series {
    /// The heading of its column.
    pub name: String,
    /// None at all where one took too long: its median would be of the others.
    pub runs: Vec<Run>,
    /// The limit that one took longer than.
    pub timed_out: Option<Duration>,
    /// Loading its connectors with an empty cache, measured apart.
    pub compiled_load_secs: Option<f64>,
}

impl Series {
    /// Without a run so far.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            runs: Vec::new(),
            timed_out: None,
            compiled_load_secs: None,
        }
    }

    /// Of what took too long once, and is not run again.
    pub fn late(name: &str, limit: Duration) -> Self {
        Self {
            timed_out: Some(limit),
            ..Self::new(name)
        }
    }

    /// Of the runs that have the value.
    pub fn values(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(of).collect())
    }

    /// A number of the report, by its JSON pointer.
    pub fn reported(&self, pointer: &str) -> Option<Spread> {
        self.values(|run| run.report.as_ref()?.pointer(pointer)?.as_f64())
    }

    pub fn wall(&self) -> Option<Spread> {
        self.values(|run| Some(run.wall_secs))
    }

    pub fn cpu(&self) -> Option<Spread> {
        self.values(|run| run.cpu_secs)
    }

    pub fn differs(&self) -> bool {
        self.runs.iter().any(|run| run.differs)
    }
}

/// Runs all contenders in turn, so that other work of the machine slows all of them alike. The first
/// round fills the caches of the machine, the server and the connectors, and does not count. A contender
/// that takes too long is not run again. A contender that is left out does not get a series. The others
/// continue.
pub fn measure<C>(
    contenders: &[(String, C)],
    iterations: usize,
    mut run: impl FnMut(&C) -> Result<Run, Missed>,
) -> Result<Vec<Series>, Failure> {
    let mut series: Vec<Series> = contenders
        .iter()
        .map(|(name, _)| Series::new(name))
        .collect();
    let mut left_out = vec![false; contenders.len()];
    for round in 0..=iterations {
        for turn in 0..contenders.len() {
            // Another one begins each time that counts.
            let at = (turn + round.saturating_sub(1)) % contenders.len();
            let (name, contender) = &contenders[at];
            if series[at].timed_out.is_some() || left_out[at] {
                continue;
            }
            match run(contender) {
                Ok(taken) if round > 0 => series[at].runs.push(taken),
                Ok(_) => {}
                Err(Missed::TimedOut(limit)) => series[at] = Series::late(name, limit),
                Err(Missed::LeftOut) => left_out[at] = true,
                Err(Missed::Failed(Failure(text))) => {
                    return Err(Failure(format!("{name}: {text}")));
                }
            }
        }
    }
    let stays = left_out.into_iter().map(|is_out| !is_out);
    let series = series.into_iter().zip(stays);
    Ok(series
        .filter_map(|(series, stays)| stays.then_some(series))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_alternate_and_the_first_round_does_not_count() {
        let contenders = ["a", "b", "c"].map(|name| (name.to_owned(), name));
        let mut order = String::new();
        let series = measure(&contenders, 2, |name| {
            order += name;
            Ok(Run {
                wall_secs: order.len() as f64,
                ..instant()
            })
        })
        .expect("nothing fails");
        assert_eq!(order, "abcabcbca");
        let walls: Vec<Vec<f64>> = series
            .iter()
            .map(|series| series.runs.iter().map(|run| run.wall_secs).collect())
            .collect();
        assert_eq!(walls, [[4.0, 9.0], [5.0, 7.0], [6.0, 8.0]]);
    }

    fn instant() -> Run {
        Run {
            wall_secs: 0.0,
            cpu_secs: None,
            report: None,
            differs: false,
        }
    }

    #[test]
    fn a_contender_that_fails_is_named() {
        let contenders = [("COPY".to_owned(), ())];
        let no = || Missed::Failed(Failure("no".into()));
        let Failure(text) = measure(&contenders, 1, |()| Err(no())).expect_err("it failed");
        assert_eq!(text, "COPY: no");
    }

    #[test]
    fn one_that_is_left_out_is_not_run_again_and_has_no_series() {
        let contenders = ["a", "b"].map(|name| (name.to_owned(), name));
        let mut order = String::new();
        let series = measure(&contenders, 2, |name| {
            order += name;
            match order.as_str() {
                "aba" => Err(Missed::LeftOut),
                _ => Ok(instant()),
            }
        })
        .expect("nothing fails");
        assert_eq!(order, "ababb");
        assert_eq!(series.len(), 1);
        assert_eq!((series[0].name.as_str(), series[0].runs.len()), ("b", 2));
    }

    #[test]
    fn one_that_hangs_is_not_waited_for_again_and_the_others_go_on() {
        const LIMIT: Duration = Duration::from_secs(7);
        let contenders = ["a", "b"].map(|name| (name.to_owned(), name));
        let mut order = String::new();
        let series = measure(&contenders, 3, |name| {
            order += name;
            match order.as_str() {
                "abab" => Err(Missed::TimedOut(LIMIT)),
                _ => Ok(instant()),
            }
        })
        .expect("nothing fails");
        assert_eq!(order, "abab".to_owned() + "aa");
        assert_eq!((series[0].runs.len(), series[0].timed_out), (3, None));
        assert_eq!(
            (series[1].runs.len(), series[1].timed_out),
            (0, Some(LIMIT))
        );
    }
}
