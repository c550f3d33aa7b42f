//! The parts of a batch's way, each alone in this process: what a value, a row, a batch costs.
//!
//! Measured by Criterion, which takes the arguments (`cargo xtask bench-parts`). An iteration is one
//! value, row, batch or call; work is done with many at a time where connectors do so. Values come
//! from a real server, so that they are what connectors see.

mod bulk;
mod codec;
mod guest;
mod rows;
mod sandbox;
mod stages;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use criterion::Criterion;
use rapidbyte_bench::failure::Failure;
use rapidbyte_bench::machine;
use rapidbyte_bench::parts::Figures;
use rapidbyte_testkit::postgres::{Options, Server};

/// The folder for every value, and below it for what Criterion compares the next time with.
const LOG: &str = "BENCH_LOG";
/// For each part; there are two hundred.
const WARM_UP: Duration = Duration::from_millis(50);
const MEASUREMENT: Duration = Duration::from_millis(150);
const SAMPLES: usize = 10;
/// Draws of the bootstrap.
const RESAMPLES: usize = 2000;
/// Two runs of the same differ by as much on a machine that does other things too.
const NOISE: f64 = 0.05;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("bench-parts: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what was asked for; fails when a row costs more among others than alone.
fn run() -> Result<(), Failure> {
    let log = std::env::var_os(LOG).map(PathBuf::from);
    let log = log.unwrap_or_else(|| std::env::temp_dir().join("rapidbyte-bench"));
    let home = log.join("criterion");
    let criterion = Criterion::default()
        .output_directory(&home)
        .without_plots()
        .warm_up_time(WARM_UP)
        .measurement_time(MEASUREMENT)
        .sample_size(SAMPLES)
        .nresamples(RESAMPLES)
        .noise_threshold(NOISE)
        .configure_from_args();
    let mut parts = Parts {
        criterion,
        measured: Vec::new(),
    };
    let begun = SystemTime::now();
    let server = Server::start(&Options::default())?;
    codec::run(&mut parts, &server)?;
    stages::run(&mut parts, &server)?;
    sandbox::run(&mut parts)?;
    bulk::run(&mut parts, &server)?;
    let figures = Figures::read(&home, &parts.measured, begun)?;
    let bulk = figures.bulk(&bulk::paths());
    let lines = figures.lines(&machine::context(&server));
    // Nothing was measured where Criterion only listed or tried the parts.
    if !lines.is_empty() {
        println!("\n{}\n{}", figures.table(), bulk.table());
        let name = format!("parts-{}.jsonl", machine::unix_secs());
        std::fs::create_dir_all(&log)?;
        std::fs::write(log.join(&name), lines)?;
        eprintln!("every value: {name}");
    }
    bulk.judge()
}

/// The measurements, one part after another.
pub struct Parts {
    criterion: Criterion,
    /// Names of what was asked for, and what they count: value, row, batch, call.
    measured: Vec<(String, &'static str)>,
}

impl Parts {
    /// Measures one part, which does `count` things at a time.
    pub fn measure<T>(
        &mut self,
        name: &str,
        per: &'static str,
        count: usize,
        mut work: impl FnMut() -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        self.prepared(name, per, count, || Ok(()), |()| work())
    }

    /// The same with something that is made first, and only if the part was asked for.
    pub fn prepared<P, T>(
        &mut self,
        name: &str,
        per: &'static str,
        count: usize,
        prepare: impl Fn() -> Result<P, Failure>,
        mut work: impl FnMut(&mut P) -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        let mut state: Option<Result<P, Failure>> = None;
        self.criterion.bench_function(name, |bencher| {
            let prepared = state.get_or_insert_with(&prepare);
            let mut failed = None;
            bencher.iter_custom(|things| match prepared {
                Ok(prepared) => spent(things, count, || work(prepared)).unwrap_or_else(|failure| {
                    failed = Some(failure);
                    LITTLE
                }),
                Err(_) => LITTLE,
            });
            if let Some(failure) = failed {
                state = Some(Err(failure));
            }
        });
        match state {
            // Nobody asked for it.
            None => Ok(()),
            Some(Ok(_)) => {
                self.measured.push((name.to_owned(), per));
                Ok(())
            }
            Some(Err(Failure(text))) => Err(Failure(format!("{name}: {text}"))),
        }
    }
}

/// The least time of a sample, and the time of a part that failed.
const LITTLE: Duration = Duration::from_nanos(1);

/// The time of `things` things; `work` does `count` at a time.
fn spent<T>(
    things: u64,
    count: usize,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<Duration, Failure> {
    let count = count.max(1) as u64;
    let times = things.div_ceil(count);
    let begun = Instant::now();
    for _ in 0..times {
        black_box(work()?);
    }
    let share = things as f64 / (times * count) as f64;
    Ok(begun.elapsed().mul_f64(share).max(LITTLE))
}
