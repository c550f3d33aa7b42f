//! A table to a file and back: CSV, JSON Lines and Parquet by the program, CSV by `psql \copy` too.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rapidbyte_engine::compress::Compression;

use crate::bench::{Bench, Title};
use crate::databases::Databases;
use crate::failure::{Failure, Missed};
use crate::measure::{Run, measure};
use crate::process::timed;
use crate::run::{Method, OURS, PSQL, Pair, Programs, TABLE, TARGET, TARGET_SCHEMA};
use crate::workload::Workload;

const WORKLOAD: Workload = Workload::Files;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
    Parquet,
}

/// How rows are moved.
enum Way {
    Psql,
    Program(Method),
}

impl Format {
    const ALL: [Self; 3] = [Self::Csv, Self::JsonLines, Self::Parquet];

    fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::JsonLines => "JSON Lines",
            Self::Parquet => "Parquet",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
        }
    }

    /// The options of `COPY` for this format; a line of JSON is a CSV field that is never
    /// quoted.
    fn copy_options(self) -> &'static str {
        match self {
            Self::Csv => "(FORMAT csv, HEADER)",
            _ => r"(FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')",
        }
    }
}

/// Measures all formats, to files and from them.
pub fn run(bench: &mut Bench, rows: u64) -> Result<(), Failure> {
    for format in Format::ALL {
        one(bench, rows, format)?;
    }
    Ok(())
}

fn one(bench: &mut Bench, rows: u64, format: Format) -> Result<(), Failure> {
    let (size, written, read) = {
        let databases = Databases::seeded(&bench.server, WORKLOAD, rows)?;
        let pair = databases.pair();
        let files = Files::new(&bench.programs, &pair, format)?;
        let iterations = bench.settings.iterations;
        let has_psql = format == Format::Csv && bench.programs.psql.is_some();
        let mut contenders = vec![(OURS.to_owned(), Way::Program(Method::Copy))];
        if has_psql {
            contenders.insert(0, (PSQL.to_owned(), Way::Psql));
        }
        let written = measure(&contenders, iterations, |way| files.write(way))?;
        files.prepare_input()?;
        let mut contenders: Vec<(String, Way)> = Method::BOTH
            .map(|method| (method.column(Compression::None), Way::Program(method)))
            .into();
        if has_psql {
            contenders.insert(0, (PSQL.to_owned(), Way::Psql));
        }
        let read = measure(&contenders, iterations, |way| files.read(way))?;
        (databases.size, written, read)
    };
    let title = |what: String| Title {
        workload: WORKLOAD.name(),
        what,
        latency_ms: 0,
    };
    bench.publish(&title(format!("to {}", format.name())), size, written)?;
    bench.publish(&title(format!("from {}", format.name())), size, read)
}

/// The files of one format, and the pipelines to and from them.
struct Files<'a> {
    programs: &'a Programs,
    pair: &'a Pair<'a>,
    format: Format,
    /// Written by the runs.
    output: PathBuf,
    /// Read by the runs.
    input: PathBuf,
    writing: PathBuf,
    reading: PathBuf,
}

impl<'a> Files<'a> {
    fn new(programs: &'a Programs, pair: &'a Pair<'a>, format: Format) -> Result<Self, Failure> {
        let extension = format.extension();
        let file = |name: &str| programs.path(&format!("{name}.{extension}"));
        let (output, input) = (file(TABLE), file("items"));
        let out = programs
            .folder
            .path()
            .join(format!("{{stream}}.{extension}"));
        Ok(Self {
            writing: programs.pipeline("to-file", &to_file(&out))?,
            reading: programs.pipeline("from-file", &from_file(&input, format))?,
            programs,
            pair,
            format,
            output,
            input,
        })
    }

    fn write(&self, way: &Way) -> Result<Run, Missed> {
        // Removes the file of an earlier run, so that this run writes a new one.
        if self.output.exists() {
            std::fs::remove_file(&self.output)?;
        }
        let run = match way {
            Way::Psql => {
                let options = self.format.copy_options();
                let out = format!(r"\copy {TABLE} TO '{}' {options}", self.output.display());
                self.psql(&self.pair.source_url(), &out)?
            }
            Way::Program(method) => {
                self.programs
                    .run(self.pair, &self.writing, *method, Compression::None)?
            }
        };
        self.verify_written()?;
        Ok(run)
    }

    fn psql(&self, url: &str, statement: &str) -> Result<Run, Missed> {
        let mut command = self.programs.psql(url, &[statement])?;
        Ok(Run::silent(&timed(
            "psql",
            &mut command,
            self.programs.limit,
        )?))
    }

    /// By PostgreSQL; of Parquet, which it does not read, by the program.
    fn verify_written(&self) -> Result<(), Failure> {
        if self.format == Format::Parquet {
            std::fs::copy(&self.output, &self.input)?;
            self.read(&Way::Program(Method::Copy))?;
            return Ok(());
        }
        self.pair.begin_anew(Some(&WORKLOAD.create(TARGET)))?;
        let options = self.format.copy_options();
        let mut client = self.pair.target.client();
        let into = match self.format {
            Format::Csv => TARGET,
            _ => {
                client.batch_execute("CREATE TEMP TABLE lines (line jsonb)")?;
                "lines"
            }
        };
        let mut writer = client.copy_in(&format!("COPY {into} FROM STDIN {options}"))?;
        writer.write_all(&std::fs::read(&self.output)?)?;
        writer.finish()?;
        if self.format == Format::JsonLines {
            client.batch_execute(&format!(
                "INSERT INTO {TARGET} \
                 SELECT (jsonb_populate_record(NULL::{TARGET}, line)).* FROM lines"
            ))?;
        }
        self.pair.verify()
    }

    /// The file that all read; Parquet was left by the runs that wrote.
    fn prepare_input(&self) -> Result<(), Failure> {
        let rows = match self.format {
            Format::Csv => TABLE.to_owned(),
            Format::JsonLines => format!("(SELECT row_to_json(t) FROM {TABLE} AS t)"),
            Format::Parquet => return Ok(()),
        };
        let mut client = self.pair.source.client();
        let out = format!("COPY {rows} TO STDOUT {}", self.format.copy_options());
        let mut reader = client.copy_out(out.as_str())?;
        let mut file = std::fs::File::create(&self.input)?;
        std::io::copy(&mut reader.by_ref(), &mut file)?;
        Ok(())
    }

    fn read(&self, way: &Way) -> Result<Run, Missed> {
        let create = matches!(way, Way::Psql).then(|| WORKLOAD.create(TARGET));
        self.pair.begin_anew(create.as_deref())?;
        let run = match way {
            Way::Psql => {
                let options = self.format.copy_options();
                let into = format!(r"\copy {TARGET} FROM '{}' {options}", self.input.display());
                self.psql(&self.pair.target_url(), &into)?
            }
            Way::Program(method) => {
                self.programs
                    .run(self.pair, &self.reading, *method, Compression::None)?
            }
        };
        self.pair.verify()?;
        Ok(run)
    }
}

fn to_file(path: &Path) -> String {
    format!(
        "version: 1\npipeline: bench-to-file\n\
         source:\n  use: source-postgres\n  config: {{url: \"${{BENCH_SOURCE}}\"}}\n  streams: [{TABLE}]\n\
         destination:\n  use: dest-file\n  config: {{path: \"{}\"}}\n  write_mode: replace\n",
        path.display()
    )
}

/// The types are declared, since a file does not tell an integer from a bigint.
fn from_file(path: &Path, format: Format) -> String {
    let schema = match format {
        Format::Parquet => "",
        _ => {
            "\n    schema: {id: int64 not null, name: string not null, amount: float64 not null, \
             quantity: int32 not null, active: bool not null, \
             created_at: \"timestamp(us, UTC) not null\", note: string not null}"
        }
    };
    format!(
        "version: 1\npipeline: bench-from-file\n\
         source:\n  use: source-file\n  config:\n    path: \"{}\"\n    stream: items{schema}\n  streams: [items]\n\
         destination:\n  use: dest-postgres\n  config: {{url: \"${{BENCH_TARGET}}\", schema: {TARGET_SCHEMA}, \
         load_method: \"${{BENCH_METHOD}}\"}}\n  write_mode: append\n",
        path.display()
    )
}
