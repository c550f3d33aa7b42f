//! The parts of a batch's way, each alone in this process: what a value, a row, a batch costs.
//!
//! A part is repeated until a sample takes some milliseconds; a figure is the median of its
//! samples. Values come from a real server, so that they are what connectors see.

mod bulk;
mod codec;
mod guest;
mod sandbox;
mod stages;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rapidbyte_testkit::postgres::{Options, Server};
use serde_json::json;

use crate::failure::Failure;
use crate::figures::render;
use crate::machine;
use crate::stats::Spread;

pub const USAGE: &str = "usage: rapidbyte-bench parts [--log <folder>] [part of a name]";

/// Samples of each part.
const SAMPLES: usize = 9;
/// A sample is at least as long: a thousand times what a clock cannot tell.
const SAMPLE: Duration = Duration::from_millis(5);
/// Repetitions of one sample at most, for what takes no time at all.
const MAX_REPEATS: u32 = 1 << 24;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// A folder for every value.
    log: Option<PathBuf>,
    /// Only names that hold this.
    filter: String,
}

/// One part and what it costs.
pub struct Part {
    pub name: String,
    /// What one of the counted things is: value, row, batch, call.
    pub per: &'static str,
    pub nanos: Spread,
}

impl Request {
    /// Reads the arguments behind `parts`.
    pub fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut request = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--log" => {
                    let folder = arguments.next();
                    let folder = folder.ok_or_else(|| Failure("--log needs a folder".into()))?;
                    request.log = Some(PathBuf::from(folder));
                }
                flag if flag.starts_with('-') => {
                    return Err(Failure(format!("there is no option {flag}")));
                }
                filter if request.filter.is_empty() => request.filter = filter.to_owned(),
                _ => return Err(Failure("one part of a name is enough".into())),
            }
        }
        Ok(request)
    }
}

/// Measures all parts and shows them; fails when a bulk path costs more per row than single rows.
pub fn run(request: &Request) -> Result<(), Failure> {
    let server = Server::start(&Options::default())?;
    let mut bench = Parts {
        filter: request.filter.clone(),
        parts: Vec::new(),
    };
    codec::run(&mut bench, &server)?;
    stages::run(&mut bench, &server)?;
    sandbox::run(&mut bench)?;
    if !bench.parts.is_empty() {
        println!("{}", shown(&bench.parts));
    }
    if let Some(folder) = &request.log {
        bench.log(folder, machine::context(&server))?;
    }
    bulk::run(&server, &request.filter)
}

/// What was measured so far.
pub struct Parts {
    filter: String,
    parts: Vec<Part>,
}

impl Parts {
    /// Whether a part was asked for.
    pub fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Measures one part, which does `count` things at a time.
    pub fn measure<T>(
        &mut self,
        name: &str,
        per: &'static str,
        count: usize,
        work: impl FnMut() -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(name) {
            return Ok(());
        }
        let nanos = nanos(work, count)?;
        self.parts.push(Part {
            name: name.to_owned(),
            per,
            nanos,
        });
        Ok(())
    }

    fn log(&self, folder: &std::path::Path, context: serde_json::Value) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("parts-{}.jsonl", machine::unix_secs()));
        let mut text = String::new();
        for Part { name, per, nanos } in &self.parts {
            let mut line = context.clone();
            line["part"] = json!(name);
            line["per"] = json!(per);
            line["median_nanos"] = json!(nanos.median);
            line["min_nanos"] = json!(nanos.min);
            line["max_nanos"] = json!(nanos.max);
            text += &format!("{line}\n");
        }
        std::fs::write(&path, text)?;
        eprintln!("every value: {}", crate::bench::shown(&path));
        Ok(())
    }
}

/// Nanoseconds for each of the `count` things that `work` does at a time.
pub fn nanos<T>(
    mut work: impl FnMut() -> Result<T, Failure>,
    count: usize,
) -> Result<Spread, Failure> {
    let mut repeats = 1;
    let mut sample = |repeats: u32| -> Result<Duration, Failure> {
        let begun = Instant::now();
        for _ in 0..repeats {
            black_box(work()?);
        }
        Ok(begun.elapsed())
    };
    while sample(repeats)? < SAMPLE && repeats < MAX_REPEATS {
        repeats *= 2;
    }
    let things = f64::from(repeats) * count.max(1) as f64;
    let samples = (0..SAMPLES)
        .map(|_| Ok(sample(repeats)?.as_secs_f64() * 1e9 / things))
        .collect::<Result<Vec<f64>, Failure>>()?;
    Spread::of(samples).ok_or_else(|| Failure("no samples".into()))
}

fn shown(parts: &[Part]) -> String {
    let head = ["", "median", "least", "greatest", "per"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for Part { name, per, nanos } in parts {
        let mut line = vec![name.clone()];
        line.extend([nanos.median, nanos.min, nanos.max].map(duration));
        line.push((*per).to_owned());
        lines.push(line);
    }
    render(&lines)
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
    use super::*;

    #[test]
    fn the_cost_of_one_thing_does_not_depend_on_how_many_are_done_at_a_time() {
        let mut calls = 0_u32;
        let work = || {
            calls += 1;
            Ok(())
        };
        let spread = nanos(work, 1000).expect("it does not fail");
        assert!(spread.median < 1.0, "{spread:?}");
        assert!(calls > 1000, "{calls} calls");
    }

    #[test]
    fn units_are_those_of_people() {
        assert_eq!(duration(12.34), "12.3 ns");
        assert_eq!(duration(12_340.0), "12.3 µs");
        assert_eq!(duration(12_340_000.0), "12.34 ms");
    }

    #[test]
    fn a_filter_and_a_folder_are_read() {
        let parsed = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Request::parse(&arguments)
        };
        let request = parsed("decode --log out").expect("it is right");
        assert_eq!(request.filter, "decode");
        assert_eq!(request.log, Some(PathBuf::from("out")));
        for line in ["--log", "--all", "a b"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
