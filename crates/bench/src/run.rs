//! One copy of the table, by the program or by two `psql` and a pipe, timed as whole processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use rapidbyte_testkit::postgres::Database;
use serde_json::Value;

use crate::Failure;

/// The table in both databases.
pub const TABLE: &str = "public.items";
/// Where the rows go.
pub const TARGET_SCHEMA: &str = "bench";
/// The table there.
pub const TARGET: &str = "bench.items";

/// How rows are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `psql COPY TO | psql COPY FROM`, both in binary.
    Psql,
    /// `load_method: insert`.
    Insert,
    /// `load_method: copy`.
    Copy,
}

impl Way {
    /// As it stands in tables and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Psql => "psql pipe",
            Self::Insert => "INSERT",
            Self::Copy => "COPY",
        }
    }
}

/// One run that ended well and moved every value.
#[derive(Debug)]
pub struct Run {
    /// From starting the process, or both, to their end.
    pub wall_secs: f64,
    /// What the program reported; nothing of `psql`.
    pub report: Option<Value>,
}

/// Runs copies between two databases.
pub struct Runner<'a> {
    pub source: &'a Database<'a>,
    pub target: &'a Database<'a>,
    pub program: PathBuf,
    /// Not there on every machine.
    pub psql: Option<PathBuf>,
    /// Holds the pipeline file.
    pub pipeline: PathBuf,
    /// `CREATE TABLE` for the target, for ways that make none.
    pub create: String,
}

impl Runner<'_> {
    /// Empties the target, copies, and compares every value.
    pub fn run(&self, way: Way) -> Result<Run, Failure> {
        let mut client = self.target.client();
        let mut statements = format!(
            "DROP SCHEMA IF EXISTS {TARGET_SCHEMA} CASCADE; CREATE SCHEMA {TARGET_SCHEMA};"
        );
        if way == Way::Psql {
            statements += &self.create;
        }
        client.batch_execute(&statements)?;
        // What an earlier run left to be written is not this one's.
        client.batch_execute("CHECKPOINT")?;
        let run = match way {
            Way::Psql => self.pipe()?,
            Way::Insert => self.program("insert")?,
            Way::Copy => self.program("copy")?,
        };
        let (moved, there) = (hash(self.source, TABLE)?, hash(self.target, TARGET)?);
        if moved == there {
            return Ok(run);
        }
        Err(Failure(format!(
            "{}: the source holds {moved}, the target {there} (rows and hash)",
            way.name()
        )))
    }

    fn program(&self, method: &str) -> Result<Run, Failure> {
        let mut program = Command::new(&self.program);
        program
            .args(["run", "--quiet", "--output", "json"])
            .arg(&self.pipeline)
            .env("BENCH_SOURCE", self.source.url())
            .env("BENCH_TARGET", self.target.url())
            .env("BENCH_METHOD", method)
            .stdin(Stdio::null());
        let begun = Instant::now();
        let output = program.output()?;
        let wall_secs = begun.elapsed().as_secs_f64();
        if !output.status.success() {
            return Err(Failure(format!(
                "rapidbyte run failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        let report = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure(format!("the report is no JSON: {error}")))?;
        Ok(Run {
            wall_secs,
            report: Some(report),
        })
    }

    fn pipe(&self) -> Result<Run, Failure> {
        let Some(psql) = &self.psql else {
            return Err(Failure("psql is not installed".into()));
        };
        let command = |database: &Database<'_>, statement: String| {
            let mut command = Command::new(psql);
            command
                .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
                .args(["--command", &statement, "--dbname", &database.url()]);
            command
        };
        let begun = Instant::now();
        let mut from = command(
            self.source,
            format!("COPY {TABLE} TO STDOUT (FORMAT binary)"),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
        let rows = from.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let to = command(
            self.target,
            format!("COPY {TARGET} FROM STDIN (FORMAT binary)"),
        )
        .stdin(rows)
        .status()?;
        let from = from.wait()?;
        let wall_secs = begun.elapsed().as_secs_f64();
        if !from.success() || !to.success() {
            return Err(Failure(format!("psql failed: {from}, {to}")));
        }
        Ok(Run {
            wall_secs,
            report: None,
        })
    }
}

/// Number of rows and a hash over the text of each, whatever their order.
pub fn hash(database: &Database<'_>, table: &str) -> Result<String, Failure> {
    let row = database.client().query_one(
        &format!(
            "SELECT count(*)::text || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0)::text \
             FROM {table} AS t"
        ),
        &[],
    )?;
    Ok(row.get(0))
}
