//! The cost of the program, measured as whole processes of the release binary: without any server here,
//! with PostgreSQL by a program of its own (`crates/bench`).
//!
//! A pipeline of `benches/` is run several times; the table shows median, least and greatest
//! beside the goal, and every value goes to a line of `target/bench/<unix seconds>.jsonl`. A run
//! that fails ends the bench; a goal that is missed does not.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::build;
use crate::step::{Failure, Steps, capture};
use crate::workspace::Workspace;

pub mod compare;
mod figure;
mod flat;
pub mod peers;
pub mod postgres;
pub mod python;

use figure::{Figure, Goal, Unit, quoted, table};
use flat::Flat;

const GENERATE: &str = "benches/generate-null.yaml";
const FILES: &str = "benches/csv-jsonl.yaml";
/// Runs that compile take seconds each and vary little.
const MAX_COMPILING_RUNS: usize = 3;
/// The long run, which shows that memory does not grow with the rows, has this many times more.
const LONG_RUN: u64 = 20;

/// The options of `cargo xtask bench-engine`.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    /// Rows of a run that measures throughput.
    rows: u64,
    /// Runs for each figure.
    iterations: usize,
    /// False to measure what an earlier build left.
    build: bool,
}

/// Builds, measures, prints one table on standard output.
pub fn bench(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let settings = parse(arguments)?;
    if settings.build {
        build::with_testkit(workspace, steps, build::Host::Program)?;
    }
    let bench = Bench::new(workspace, settings)?;
    let mut figures = Vec::new();
    steps.step("bench: starting", || bench.starting(&mut figures))?;
    steps.step("bench: compiling connectors", || {
        bench.compiling(&mut figures)
    })?;
    steps.step("bench: throughput", || bench.throughput(&mut figures))?;
    steps.step("bench: memory of a long run", || bench.long(&mut figures))?;
    let log = bench.log(&figures)?;
    let head = ["", "median (min..max)", "goal", ""].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head)
        .chain(figures.iter().map(Figure::cells))
        .collect();
    println!("{}", table(&rows));
    steps.note(&format!("every value: {}", workspace.shown(&log)));
    Ok(())
}

/// The checked-out commit, marked when files have changed since.
fn commit(workspace: &Workspace) -> String {
    let mut git = workspace.command("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]);
    git.arg("--exclude=*");
    capture(git).unwrap_or_else(|_| "unknown".to_owned())
}

fn parse(arguments: &[String]) -> Result<Settings, Failure> {
    let mut settings = Settings {
        rows: 1_000_000,
        iterations: 7,
        build: true,
    };
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        let mut count = || {
            let value = arguments.next().map(|value| value.replace('_', ""));
            let number = value.and_then(|value| value.parse::<u32>().ok());
            number.filter(|number| *number > 0).ok_or_else(|| {
                Failure::usage(format!("`{flag}` needs a number of 1 to {}", u32::MAX))
            })
        };
        match flag.as_str() {
            "--rows" => settings.rows = count()?.into(),
            "--iters" => settings.iterations = count()? as usize,
            "--no-build" => settings.build = false,
            _ => {
                return Err(Failure::usage(format!(
                    "`bench-engine` knows no option `{flag}`"
                )));
            }
        }
    }
    Ok(settings)
}

struct Bench<'a> {
    workspace: &'a Workspace,
    settings: Settings,
    /// Holds logs, written files and the empty cache.
    folder: PathBuf,
}

/// One run that ended well.
struct Run {
    /// From starting the process to its end.
    wall_secs: f64,
    report: Flat,
}

/// How a pipeline of `benches/` is run.
#[derive(Clone, Copy)]
struct Scenario {
    pipeline: &'static str,
    rows: u64,
    compression: &'static str,
}

impl Scenario {
    fn generate(rows: u64, compression: &'static str) -> Self {
        Self {
            pipeline: GENERATE,
            rows,
            compression,
        }
    }

    fn files() -> Self {
        Self {
            pipeline: FILES,
            ..Self::generate(0, "none")
        }
    }

    fn figure(self, name: &str, unit: Unit, values: Vec<f64>, goal: Goal) -> Figure {
        Figure {
            name: name.to_owned(),
            rows: self.rows,
            compression: self.compression,
            unit,
            values,
            goal,
        }
    }
}

impl<'a> Bench<'a> {
    fn new(workspace: &'a Workspace, settings: Settings) -> Result<Self, Failure> {
        let folder = workspace.bench();
        fs::create_dir_all(&folder).map_err(|error| {
            Failure::new(format!("cannot make {}: {error}", workspace.shown(&folder)))
        })?;
        Ok(Self {
            workspace,
            settings,
            folder,
        })
    }

    /// The wait before the first row: the process, and the load of the connectors.
    fn starting(&self, figures: &mut Vec<Figure>) -> Result<(), Failure> {
        let scenario = Scenario::generate(0, "none");
        let version = (0..self.settings.iterations)
            .map(|_| Ok(self.process(&["version"], scenario, false)?.0))
            .collect::<Result<_, Failure>>()?;
        figures.push(scenario.figure(
            "rapidbyte version",
            Unit::Seconds,
            version,
            Goal::AtMost(0.010),
        ));
        let one = Scenario::generate(1, "none");
        let runs = self.warm(one, self.settings.iterations)?;
        figures.push(one.figure(
            "one row, warm",
            Unit::Seconds,
            walls(&runs),
            Goal::AtMost(0.050),
        ));
        loads(one, &runs, "from the cache", Goal::AtMost(0.003), figures)?;
        let mut files = Scenario::files();
        let runs = self.warm(files, self.settings.iterations)?;
        files.rows = runs[0].report.required("rows")? as u64;
        loads(files, &runs, "from the cache", Goal::AtMost(0.003), figures)?;
        let name = format!("quick start, CSV to JSONL, {} rows", files.rows);
        figures.push(files.figure(&name, Unit::Seconds, walls(&runs), Goal::None));
        Ok(())
    }

    /// The same loading where nothing was compiled ahead.
    fn compiling(&self, figures: &mut Vec<Figure>) -> Result<(), Failure> {
        for scenario in [Scenario::generate(1, "none"), Scenario::files()] {
            let runs = (0..self.settings.iterations.min(MAX_COMPILING_RUNS))
                .map(|_| self.run(scenario, true))
                .collect::<Result<Vec<_>, _>>()?;
            loads(scenario, &runs, "compiled", Goal::None, figures)?;
        }
        Ok(())
    }

    /// Rows a second through two components, over the wall time of the whole process.
    fn throughput(&self, figures: &mut Vec<Figure>) -> Result<(), Failure> {
        let mut memory = None;
        for (compression, goal) in [
            ("none", Goal::AtLeast(2e6)),
            ("lz4", Goal::None),
            ("zstd", Goal::None),
        ] {
            let scenario = Scenario::generate(self.settings.rows, compression);
            let runs = self.warm(scenario, self.settings.iterations)?;
            let rates = walls(&runs)
                .iter()
                .map(|secs| scenario.rows as f64 / secs)
                .collect();
            let name = format!("generate to null, {compression}");
            figures.push(scenario.figure(&name, Unit::RowsPerSecond, rates, goal));
            memory.get_or_insert_with(|| peak(scenario, &runs));
        }
        figures.extend(memory);
        Ok(())
    }

    /// One run is enough: a peak is not noisier than its steady state.
    fn long(&self, figures: &mut Vec<Figure>) -> Result<(), Failure> {
        let scenario = Scenario::generate(self.settings.rows * LONG_RUN, "none");
        let runs = [self.run(scenario, false)?];
        figures.push(peak(scenario, &runs));
        Ok(())
    }

    /// Runs once for the caches, then as often as asked.
    fn warm(&self, scenario: Scenario, iterations: usize) -> Result<Vec<Run>, Failure> {
        self.run(scenario, false)?;
        (0..iterations)
            .map(|_| self.run(scenario, false))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|runs| {
                if runs.iter().all(|run| loaded_as(run, "true")) {
                    return Ok(runs);
                }
                Err(Failure::new(format!(
                    "{}: a connector was compiled again in a warm run; can the cache be written?",
                    scenario.pipeline
                )))
            })
    }

    /// Runs a pipeline and holds it to the rows that it should move.
    fn run(&self, scenario: Scenario, empty_cache: bool) -> Result<Run, Failure> {
        let arguments = ["run", scenario.pipeline, "--quiet", "--output", "json"];
        let (wall_secs, printed) = self.process(&arguments, scenario, empty_cache)?;
        let report = Flat::parse(&printed)?;
        let run = Run { wall_secs, report };
        let rows = run.report.required("rows")?;
        if scenario.pipeline == GENERATE && rows != scenario.rows as f64 {
            return Err(Failure::new(format!(
                "{GENERATE} moved {rows} rows instead of {}",
                scenario.rows
            )));
        }
        if empty_cache && !loaded_as(&run, "false") {
            return Err(Failure::new(
                "a connector came from a cache that should have been empty",
            ));
        }
        Ok(run)
    }

    /// Gives the seconds from start to end, and standard output.
    fn process(
        &self,
        arguments: &[&str],
        scenario: Scenario,
        empty_cache: bool,
    ) -> Result<(f64, String), Failure> {
        let mut program = self.workspace.command(self.workspace.binary());
        program
            .args(arguments)
            .env("RAPIDBYTE_TESTKIT", self.workspace.testkit())
            .env("BENCH_OUT", self.folder.join("out"))
            .env("BENCH_ROWS", scenario.rows.to_string())
            .env("BENCH_COMPRESSION", scenario.compression);
        if empty_cache {
            self.empty_cache(&mut program)?;
        }
        let shown = format!("rapidbyte {}", arguments.join(" "));
        program.stdin(Stdio::null());
        let begun = Instant::now();
        let output = program
            .output()
            .map_err(|error| Failure::new(format!("`{shown}` did not start: {error}")))?;
        let secs = begun.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(Failure::new(format!(
                "`{shown}` failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Ok((secs, String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    fn empty_cache(&self, program: &mut Command) -> Result<(), Failure> {
        let empty = self.folder.join("empty");
        match fs::remove_dir_all(&empty) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::new(format!(
                    "cannot empty {}: {error}",
                    self.workspace.shown(&empty)
                )));
            }
            _ => {}
        }
        program.env("XDG_CACHE_HOME", empty.join("cache"));
        program.env("XDG_STATE_HOME", empty.join("state"));
        Ok(())
    }

    /// Writes one line for each figure and gives the file.
    fn log(&self, figures: &[Figure]) -> Result<PathBuf, Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let stamp = since.map_or(0, |since| since.as_secs());
        let path = self.folder.join(format!("{stamp}.jsonl"));
        let context = self.context(stamp);
        let lines: String = figures
            .iter()
            .map(|figure| format!("{{{context},{}}}\n", figure.json()))
            .collect();
        fs::File::create_new(&path)
            .and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(|error| {
                let shown = self.workspace.shown(&path);
                Failure::new(format!("cannot write {shown}: {error}"))
            })?;
        Ok(path)
    }

    /// The members of a JSON object that all figures of one bench share.
    fn context(&self, stamp: u64) -> String {
        let commit = commit(self.workspace);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        format!(
            r#""unix_secs":{stamp},"commit":{},"built":{},"cores":{cores},"iterations":{}"#,
            quoted(&commit),
            self.settings.build,
            self.settings.iterations
        )
    }
}

fn walls(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.wall_secs).collect()
}

/// The process's peak resident memory; empty when the report has none.
fn peak(scenario: Scenario, runs: &[Run]) -> Figure {
    let values = runs
        .iter()
        .filter_map(|run| run.report.number("peak_rss_bytes"))
        .collect();
    let name = format!("peak memory, {} rows", scenario.rows);
    scenario.figure(&name, Unit::Bytes, values, Goal::AtMost(64e6))
}

/// One figure for each connector of the pipeline.
fn loads(
    scenario: Scenario,
    runs: &[Run],
    how: &str,
    goal: Goal,
    figures: &mut Vec<Figure>,
) -> Result<(), Failure> {
    let mut index = 0;
    while let Some(name) = runs[0].report.text(&format!("connectors.{index}.name")) {
        let values = runs
            .iter()
            .map(|run| {
                run.report
                    .required(&format!("connectors.{index}.load_secs"))
            })
            .collect::<Result<_, _>>()?;
        let name = format!("load {name}, {how}");
        figures.push(scenario.figure(&name, Unit::Seconds, values, goal));
        index += 1;
    }
    Ok(())
}

/// Answers whether both connectors say `from_cache` with this value.
fn loaded_as(run: &Run, from_cache: &str) -> bool {
    (0..2)
        .all(|index| run.report.text(&format!("connectors.{index}.from_cache")) == Some(from_cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Settings, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn settings_are_read() {
        let settings = parsed("--rows 2_000 --no-build --iters 3").unwrap();
        let expected = Settings {
            rows: 2000,
            iterations: 3,
            build: false,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn settings_that_measure_nothing_are_refused() {
        for line in [
            "--rows",
            "--rows 0",
            "--iters x",
            "--iters 0",
            "--row 1",
            "5",
        ] {
            assert_eq!(parsed(line).unwrap_err().code, 2, "{line}");
        }
    }
}
