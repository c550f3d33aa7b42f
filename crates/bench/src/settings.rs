//! The command line of a bench.

use std::path::PathBuf;
use std::time::Duration;

use rapidbyte_engine::compress::Compression;

use crate::failure::Failure;
use crate::run::LIMIT;
use crate::workload::Workload;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    /// Sizes of the tables, one after another.
    pub rows: Vec<u64>,
    /// Runs of each contender that count.
    pub iterations: usize,
    pub workloads: Vec<Workload>,
    /// Between the stages; each makes contenders of its own.
    pub compressions: Vec<Compression>,
    /// Milliseconds that every byte takes each way between clients and server; 0 for no proxy.
    pub latencies_ms: Vec<u32>,
    /// How long any run may take before it is ended.
    pub limit: Duration,
    /// Also what `cargo xtask bench-peers-setup` has installed.
    pub peers: bool,
    /// A folder for every value and for the chart.
    pub log: Option<PathBuf>,
}

pub const USAGE: &str = "\
usage: rapidbyte-bench [--rows 10000,100000] [--iters 3]
    [--workload narrow,hard,wide,fat,tiny,upsert,files,steps] [--compression none,lz4,zstd]
    [--latency 0,1,5,50] [--timeout 300] [--peers] [--log <folder>]
  --rows         sizes of the tables, one after another
  --iters        runs of each way that count
  --workload     what the tables hold; narrow when not given
  --compression  between the stages; none when not given, and of upsert, files and steps
  --latency      milliseconds that each byte takes each way; 0 when not given, and of upsert, files and steps
  --timeout      seconds that any run may take before it is ended
  --peers        also what `cargo xtask bench-peers-setup` has installed
  --log          a folder for every value and for the chart";

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
/// A line that is slower measures patience.
const MAX_LATENCY_MS: u32 = 1000;

impl Settings {
    /// Reads the arguments behind the program's name.
    pub fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut settings = Self {
            rows: vec![10_000, 100_000],
            iterations: 3,
            workloads: vec![Workload::Narrow],
            compressions: vec![Compression::None],
            latencies_ms: vec![0],
            limit: LIMIT,
            peers: false,
            log: None,
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            if flag == "--peers" {
                settings.peers = true;
                continue;
            }
            let value = arguments
                .next()
                .ok_or_else(|| Failure(format!("{flag} needs a value")))?;
            settings.set(flag, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), Failure> {
        match flag {
            "--rows" => self.rows = list(value, |text| number(flag, text).map(u64::from))?,
            "--iters" => self.iterations = number(flag, value)? as usize,
            "--workload" => {
                self.workloads = list(value, |name| {
                    let known = Workload::ALL.map(Workload::name).join(", ");
                    Workload::named(name).ok_or_else(|| {
                        Failure(format!("{flag}: there is no {name:?}; known are {known}"))
                    })
                })?;
            }
            "--compression" => {
                self.compressions = list(value, |name| {
                    let known = |each: &Compression| each.name() == name;
                    COMPRESSIONS.into_iter().find(known).ok_or_else(|| {
                        Failure(format!("{flag}: {name:?} is not one of none, lz4, zstd"))
                    })
                })?;
            }
            "--latency" => {
                self.latencies_ms = list(value, |text| {
                    let ms = text.parse().ok().filter(|ms| *ms <= MAX_LATENCY_MS);
                    ms.ok_or_else(|| {
                        Failure(format!(
                            "{flag}: {text:?} is not a number of milliseconds up to {MAX_LATENCY_MS}"
                        ))
                    })
                })?;
            }
            "--timeout" => self.limit = Duration::from_secs(number(flag, value)?.into()),
            "--log" => self.log = Some(PathBuf::from(value)),
            _ => return Err(Failure(format!("there is no option {flag}"))),
        }
        Ok(())
    }
}

/// Values with commas between them; one that comes twice is taken once.
fn list<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut values = Vec::new();
    for item in text.split(',') {
        let value = parse(item)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(values)
}

/// A number of 1 or more; `_` may divide its digits.
pub fn number(flag: &str, text: &str) -> Result<u32, Failure> {
    let number = text.replace('_', "").parse::<u32>().ok();
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| Failure(format!("{flag}: {text:?} is not a number of 1 or more")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Settings, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Settings::parse(&arguments)
    }

    #[test]
    fn settings_are_read() {
        let settings = parsed(
            "--rows 1_000,20,20 --iters 5 --workload hard,fat --compression lz4,none \
             --latency 0,50 --timeout 20 --peers",
        )
        .expect("it is right");
        assert_eq!(settings.rows, [1000, 20]);
        assert_eq!(settings.iterations, 5);
        assert_eq!(settings.workloads, [Workload::Hard, Workload::Fat]);
        assert_eq!(settings.compressions, [Compression::Lz4, Compression::None]);
        assert_eq!(settings.latencies_ms, [0, 50]);
        assert_eq!(settings.limit, Duration::from_secs(20));
        assert!(settings.peers);
    }

    #[test]
    fn settings_that_measure_nothing_are_refused() {
        for line in [
            "--rows",
            "--rows 0",
            "--rows 1,",
            "--iters x",
            "--workload tall",
            "--compression gzip",
            "--latency -1",
            "--latency 5000",
            "--timeout 0",
            "--row 1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
