//! One copy under a profiler that samples the processor, with the names of host and guest.
//!
//! Compiled connectors are mapped from the cache as ELF files, and name their functions as any
//! library does, where the connectors were built with names (`cargo xtask bench-profile`).

use std::path::{Path, PathBuf};
use std::process::Command;

use rapidbyte_engine::compress::Compression;

use crate::bench::shown;
use crate::databases::{self, Databases};
use crate::failure::Failure;
use crate::process::timed;
use crate::run::{LIMIT, Method, Programs};
use crate::settings::number;
use crate::workload::Workload;

pub const USAGE: &str = "usage: rapidbyte-bench profile <rows> <insert|copy> <workload> <folder>";

/// A prime number a second, so that nothing of the machine runs in step with it.
const SAMPLES_PER_SEC: &str = "1999";
/// Lines of the summary that are shown.
const SHOWN_LINES: usize = 30;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    rows: u64,
    method: Method,
    workload: Workload,
    /// Where the profile goes.
    folder: PathBuf,
}

/// A profiler that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profiler {
    Samply,
    Perf,
}

impl Request {
    /// Reads the arguments behind `profile`.
    pub fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let [rows, method, workload, folder] = arguments else {
            let text = "rows, a method, a workload and a folder are needed";
            return Err(Failure(text.into()));
        };
        let tables = Workload::TABLES.map(Workload::name).join(", ");
        let workload = Workload::TABLES
            .into_iter()
            .find(|each| each.name() == workload)
            .ok_or_else(|| Failure(format!("there is no {workload:?}; known are {tables}")))?;
        Ok(Self {
            rows: number("rows", rows)?.into(),
            method: Method::named(method)?,
            workload,
            folder: PathBuf::from(folder),
        })
    }
}

/// Copies once to warm up and once under the profiler, and says how to open what it left.
pub fn run(request: &Request) -> Result<(), Failure> {
    let profilers = Profiler::find(is_installed)?;
    std::fs::create_dir_all(&request.folder)?;
    let programs = Programs::find(LIMIT)?;
    let pipeline = programs.append()?;
    let server = databases::server()?;
    let databases = Databases::seeded(&server, request.workload, request.rows)?;
    let (pair, method, compression) = (databases.pair(), request.method, Compression::None);
    pair.begin_anew(None)?;
    programs.run(&pair, &pipeline, method, compression)?;
    let copy = programs.command(&programs.rapidbyte, &pair, &pipeline, method, compression);
    let name = format!("profile-{}-{}", method.key(), crate::machine::unix_secs());
    let left = request.folder.join(name);
    first_that_works(&profilers, |profiler| {
        pair.begin_anew(None)?;
        let left = left.with_extension(profiler.extension());
        timed(profiler.name(), &mut profiler.record(&left, &copy), LIMIT)?;
        pair.verify()?;
        profiler.tell(&left)
    })
}

/// A profiler may be installed and not be allowed, or not be able, to sample on this machine.
fn first_that_works(
    profilers: &[Profiler],
    mut record: impl FnMut(Profiler) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reasons = Vec::new();
    for profiler in profilers {
        match record(*profiler) {
            Ok(()) => return Ok(()),
            Err(Failure(text)) => {
                eprintln!("{} did not work: {text}", profiler.name());
                reasons.push(profiler.name());
            }
        }
    }
    Err(Failure(format!(
        "no profile was taken: see above what {} said",
        reasons.join(" and ")
    )))
}

impl Profiler {
    /// In the order in which they are tried.
    fn find(is_installed: impl Fn(&str) -> bool) -> Result<Vec<Self>, Failure> {
        let mut found = vec![Self::Samply, Self::Perf];
        found.retain(|each| is_installed(each.name()));
        if found.is_empty() {
            return Err(Failure(
                "neither samply nor perf is installed: `cargo install samply`, or Debian's \
                 package linux-perf"
                    .into(),
            ));
        }
        Ok(found)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Samply => "samply",
            Self::Perf => "perf",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Samply => "json.gz",
            Self::Perf => "perf.data",
        }
    }

    /// The command with the copy's arguments and variables.
    fn record(self, left: &Path, copy: &Command) -> Command {
        let mut command = Command::new(self.name());
        match self {
            Self::Samply => command
                .args(["record", "--save-only", "--rate", SAMPLES_PER_SEC])
                .args(["--unstable-presymbolicate", "--output"]),
            Self::Perf => command
                .args(["record", "--freq", SAMPLES_PER_SEC, "--call-graph", "fp"])
                .args(["--output"]),
        };
        command.arg(left).arg("--").arg(copy.get_program());
        command.args(copy.get_args());
        for (name, value) in copy.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn tell(self, left: &Path) -> Result<(), Failure> {
        match self {
            Self::Samply => println!(
                "{}: open it with `samply load`, which shows it in a browser",
                shown(left)
            ),
            Self::Perf => {
                let report = readable(&perf_report(left)?);
                let path = left.with_extension("txt");
                std::fs::write(&path, &report)?;
                let lines = report.lines().filter(|line| is_sample(line));
                let lines: Vec<&str> = lines.take(SHOWN_LINES).collect();
                println!("{}", lines.join("\n"));
                println!(
                    "\nall of it: {}\nwith callers: `perf report --input` with {}, as long as the cache \
                     has the compiled connectors",
                    shown(&path),
                    shown(left)
                );
            }
        }
        Ok(())
    }
}

/// Share, program or guest, and function: the flat profile.
fn perf_report(left: &Path) -> Result<String, Failure> {
    let mut command = Command::new("perf");
    command
        .args(["report", "--stdio", "--no-children", "--call-graph", "none"])
        .args(["--sort", "dso,symbol", "--percent-limit", "0.1", "--input"])
        .arg(left);
    let report = timed("perf report", &mut command, LIMIT)?;
    Ok(String::from_utf8_lossy(&report.stdout).into_owned())
}

/// With Rust's names as they were written, and a few letters of each compiled connector's.
fn readable(report: &str) -> String {
    const NAME_HEX: usize = 64;
    const SHOWN_HEX: usize = 8;
    let mut text = String::with_capacity(report.len());
    for line in report.lines() {
        let short = line.split_once(".cwasm").and_then(|(before, after)| {
            let begin = before.len().checked_sub(NAME_HEX)? + SHOWN_HEX;
            let hidden = NAME_HEX - SHOWN_HEX;
            Some(format!(
                "{}.cwasm{:hidden$}{after}",
                before.get(..begin)?,
                ""
            ))
        });
        let mut line = short.unwrap_or_else(|| line.to_owned());
        let mangled = ["_ZN", "_R"]
            .into_iter()
            .filter_map(|begin| line.find(begin));
        if let Some(at) = mangled.min()
            && let Ok(name) = rustc_demangle::try_demangle(line[at..].trim_end())
        {
            // Without its hash.
            let name = format!("{name:#}");
            line.truncate(at);
            line += &name;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Of the report, without its comments and empty lines.
fn is_sample(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samply_goes_before_perf_and_nothing_is_said_clearly() {
        let both = Profiler::find(|_| true).expect("two");
        assert_eq!(both, [Profiler::Samply, Profiler::Perf]);
        let perf = Profiler::find(|name| name == "perf").expect("one");
        assert_eq!(perf, [Profiler::Perf]);
        let Failure(text) = Profiler::find(|_| false).expect_err("none");
        assert!(
            text.contains("samply") && text.contains("linux-perf"),
            "{text}"
        );
    }

    #[test]
    fn perf_is_taken_where_samply_may_not_sample() {
        let both = [Profiler::Samply, Profiler::Perf];
        let mut tried = Vec::new();
        let mut record = |works: Profiler| {
            tried.clear();
            first_that_works(&both, |profiler| {
                tried.push(profiler);
                match profiler == works {
                    true => Ok(()),
                    false => Err(Failure("no".into())),
                }
            })
            .expect("one works");
            tried.len()
        };
        assert_eq!((record(Profiler::Samply), record(Profiler::Perf)), (1, 2));
        let Failure(text) =
            first_that_works(&both, |_| Err(Failure("no".into()))).expect_err("none");
        assert!(text.ends_with("samply and perf said"), "{text}");
    }

    #[test]
    fn the_copy_keeps_its_arguments_and_variables_under_the_profiler() {
        let mut copy = Command::new("rapidbyte");
        copy.args(["run", "a.yaml"]).env("BENCH_SOURCE", "x");
        let record = Profiler::Perf.record(Path::new("out"), &copy);
        let arguments: Vec<_> = record
            .get_args()
            .map(|text| text.to_string_lossy())
            .collect();
        assert_eq!(
            arguments[arguments.len() - 5..],
            ["out", "--", "rapidbyte", "run", "a.yaml"]
        );
        assert_eq!(record.get_envs().count(), 1);
    }

    #[test]
    fn names_are_shown_as_they_were_written() {
        let hex = "0123456789abcdef".repeat(4);
        let line = format!(
            "5.2%  {hex}.cwasm  [.] wasm[0]::function[8]::_ZN4sha26sha25617h0123456789abcdefE  "
        );
        let shown = readable(&line);
        assert!(shown.starts_with("5.2%  01234567.cwasm "), "{shown}");
        assert!(shown.ends_with("function[8]::sha2::sha256\n"), "{shown}");
        assert_eq!(
            readable("1 %  libc.so.6  [.] malloc"),
            "1 %  libc.so.6  [.] malloc\n"
        );
        let line = "1 %  a.so  [.] _RNvNtNtCs9pv848UzQwQ_4core3str8converts9from_utf8";
        assert!(readable(line).ends_with("core::str::converts::from_utf8\n"));
        for broken in ["_ZN", "_ZN99aE", "_ZN1é1", "_ZN3abc", "_R"] {
            assert_eq!(readable(broken), format!("{broken}\n"));
        }
    }

    #[test]
    fn rows_method_and_a_table_are_needed() {
        let parsed = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Request::parse(&arguments)
        };
        let request = parsed("1_000 insert wide out").expect("it is right");
        assert_eq!((request.rows, request.method), (1000, Method::Insert));
        assert_eq!(request.workload, Workload::Wide);
        for line in [
            "",
            "1000 copy wide",
            "0 copy wide out",
            "10 merge wide out",
            "10 copy upsert out",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
