//! Measures PostgreSQL to PostgreSQL by INSERT and by COPY beside `psql`, in one run.
//!
//! `cargo xtask bench` builds and starts it. The server is its own, with PostgreSQL's defaults for
//! durability and logged tables; after each run every value is compared by a hash.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_testkit::postgres::{Options, Server, programs_folder};
use serde_json::{Value, json};

use figures::{Series, Size, table};
use run::{Runner, TABLE, TARGET, TARGET_SCHEMA, Way};
use workload::Workload;

mod figures;
mod run;
mod workload;

const USAGE: &str = "usage: rapidbyte-bench [--rows 10000,100000] [--iters 3] \
    [--workload narrow,hard,wide] [--log <folder>]";

/// What ended the bench, for the person who reads it.
#[derive(Debug)]
pub struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        Self(text)
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    rows: Vec<u64>,
    iterations: usize,
    workloads: Vec<Workload>,
    log: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let settings = match parse(&arguments) {
        Ok(settings) => settings,
        Err(Failure(text)) => {
            eprintln!("{text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match bench(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("bench: {text}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Settings, Failure> {
    let mut settings = Settings {
        rows: vec![10_000, 100_000],
        iterations: 3,
        workloads: vec![Workload::Narrow],
        log: None,
    };
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| Failure(format!("{flag} needs a value")))?;
        let number = |text: &str| {
            let number = text.replace('_', "").parse::<u32>().ok();
            number
                .filter(|number| *number > 0)
                .ok_or_else(|| Failure(format!("{flag}: {text:?} is no number of 1 or more")))
        };
        match flag.as_str() {
            "--rows" => {
                let rows: Result<_, _> = value.split(',').map(number).collect();
                settings.rows =
                    rows.map(|rows: Vec<u32>| rows.into_iter().map(u64::from).collect())?;
            }
            "--iters" => settings.iterations = number(value)? as usize,
            "--workload" => {
                let named = |name| {
                    Workload::named(name)
                        .ok_or_else(|| Failure(format!("--workload: there is no {name:?}")))
                };
                settings.workloads = value.split(',').map(named).collect::<Result<_, _>>()?;
            }
            "--log" => settings.log = Some(PathBuf::from(value)),
            _ => return Err(Failure(format!("there is no option {flag}"))),
        }
    }
    Ok(settings)
}

fn bench(settings: &Settings) -> Result<(), Failure> {
    let program = std::env::var_os("RAPIDBYTE_BIN")
        .map(PathBuf::from)
        .ok_or_else(|| Failure("RAPIDBYTE_BIN names no program: run cargo xtask bench".into()))?;
    let psql = psql();
    if psql.is_none() {
        eprintln!("psql is not installed: its column is left out");
    }
    let folder = tempfile::tempdir()?;
    let pipeline = folder.path().join("bench.yaml");
    fs::write(&pipeline, pipeline_text())?;
    let server = Server::start(&Options {
        durable: true,
        ..Options::default()
    })?;
    let context = context(&server);
    let mut log = settings.log.as_deref().map(open_log).transpose()?;
    for workload in &settings.workloads {
        for rows in &settings.rows {
            let (source, target) = (server.database(), server.database());
            let size = seed(&source, *workload, *rows)?;
            let runner = Runner {
                source: &source,
                target: &target,
                program: program.clone(),
                psql: psql.clone(),
                pipeline: pipeline.clone(),
                create: workload.create(TARGET),
            };
            let series = measure(&runner, settings.iterations)?;
            println!(
                "\n{} rows, {} ({:.0} bytes a row in binary COPY), median of {}",
                rows,
                workload.name(),
                size.bytes as f64 / *rows as f64,
                settings.iterations
            );
            println!("{}", table(&series, size));
            let mut context = context.clone();
            context["workload"] = json!(workload.name());
            for each in &series {
                if let Some((file, _)) = &mut log {
                    writeln!(file, "{}", each.json(&context, size))?;
                }
            }
        }
    }
    if let Some((_, path)) = log {
        eprintln!("every value: {}", path.display());
    }
    Ok(())
}

/// The ways in turn, so that what the machine does meanwhile meets them all.
fn measure(runner: &Runner<'_>, iterations: usize) -> Result<Vec<Series>, Failure> {
    let mut ways = vec![Way::Insert, Way::Copy];
    if runner.psql.is_some() {
        ways.insert(0, Way::Psql);
    }
    // Once for the caches: of the machine, the server and the compiled connectors.
    for way in &ways {
        runner.run(*way)?;
    }
    let mut series: Vec<Series> = ways
        .into_iter()
        .map(|way| Series {
            way,
            runs: Vec::new(),
        })
        .collect();
    for iteration in 0..iterations {
        let count = series.len();
        for at in 0..count {
            // Another one begins each time.
            let series = &mut series[(at + iteration) % count];
            series.runs.push(runner.run(series.way)?);
        }
    }
    Ok(series)
}

/// Makes the table and gives its size.
fn seed(
    source: &rapidbyte_testkit::postgres::Database<'_>,
    workload: Workload,
    rows: u64,
) -> Result<Size, Failure> {
    let mut client = source.client();
    client.batch_execute(&workload.create(TABLE))?;
    client.batch_execute(&workload.fill(TABLE, rows))?;
    client.batch_execute(&format!("VACUUM (ANALYZE, FREEZE) {TABLE}"))?;
    // As many bytes as the first rows let expect.
    let mut sampled = 0_u64;
    let sample = format!("COPY (SELECT * FROM {TABLE} LIMIT 10000) TO STDOUT (FORMAT binary)");
    let mut reader = client.copy_out(sample.as_str())?;
    sampled += std::io::copy(&mut reader, &mut std::io::sink())?;
    let bytes = sampled.saturating_sub(21) as f64 / rows.min(10_000) as f64 * rows as f64;
    Ok(Size {
        rows,
        bytes: bytes as u64,
    })
}

fn pipeline_text() -> String {
    format!(
        "version: 1\npipeline: bench\n\
         source:\n  use: source-postgres\n  config: {{url: \"${{BENCH_SOURCE}}\"}}\n  streams: [{TABLE}]\n\
         destination:\n  use: dest-postgres\n  config: {{url: \"${{BENCH_TARGET}}\", schema: {TARGET_SCHEMA}, \
         load_method: \"${{BENCH_METHOD}}\"}}\n  write_mode: append\n"
    )
}

/// Beside the server's programs, or where the shell would find it.
fn psql() -> Option<PathBuf> {
    let beside = programs_folder().ok().map(|folder| folder.join("psql"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path).map(|folder| folder.join("psql")))
        .find(|program| program.is_file())
}

/// What all lines of the log share.
fn context(server: &Server) -> Value {
    let version: String = server
        .client("postgres")
        .query_one("SHOW server_version", &[])
        .map(|row| row.get(0))
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut context: BTreeMap<&str, Value> = BTreeMap::new();
    context.insert("unix_secs", json!(unix_secs()));
    context.insert("commit", json!(std::env::var("BENCH_COMMIT").ok()));
    context.insert("cores", json!(cores));
    context.insert("postgres", json!(version));
    json!(context)
}

fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn open_log(folder: &Path) -> Result<(fs::File, PathBuf), Failure> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("postgres-{}.jsonl", unix_secs()));
    Ok((fs::File::create_new(&path)?, path))
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
        let settings =
            parsed("--rows 1_000,20 --iters 5 --workload hard,wide").expect("it is right");
        assert_eq!(settings.rows, [1000, 20]);
        assert_eq!(settings.iterations, 5);
        assert_eq!(settings.workloads, [Workload::Hard, Workload::Wide]);
    }

    #[test]
    fn what_measures_nothing_is_refused() {
        for line in [
            "--rows",
            "--rows 0",
            "--rows 1,",
            "--iters x",
            "--workload tall",
            "--row 1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
