//! One copy of the table in one way, timed as whole processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rapidbyte_engine::compress::Compression;
use rapidbyte_testkit::postgres::{Database, programs_folder};
use rapidbyte_testkit::proxy::Proxy;

use crate::failure::{Failure, Missed};
use crate::measure::Run;
use crate::process::{timed, timed_pipe};

/// The table in the source.
pub const TABLE: &str = "public.items";
/// Where the rows go.
pub const TARGET_SCHEMA: &str = "bench";
/// The table there.
pub const TARGET: &str = "bench.items";

/// The columns of the tables of figures; ratios are taken between them.
pub const PSQL: &str = "psql";
pub const INSERT: &str = "INSERT";
pub const COPY: &str = "COPY";
pub const NATIVE_INSERT: &str = "native INSERT";
pub const NATIVE_COPY: &str = "native COPY";
/// The program's only way to a file.
pub const OURS: &str = "rapidbyte";

/// How the program loads rows into PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Insert,
    Copy,
}

impl Method {
    pub const BOTH: [Self; 2] = [Self::Insert, Self::Copy];

    /// As `load_method` has it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Copy => "copy",
        }
    }

    pub fn named(key: &str) -> Result<Self, Failure> {
        let found = Self::BOTH.into_iter().find(|method| method.key() == key);
        found.ok_or_else(|| Failure(format!("{key:?} is neither insert nor copy")))
    }

    /// Above the column of the connectors as native code.
    pub fn native_column(self) -> &'static str {
        match self {
            Self::Insert => NATIVE_INSERT,
            Self::Copy => NATIVE_COPY,
        }
    }

    /// The heading of its column.
    pub fn column(self, compression: Compression) -> String {
        let name = match self {
            Self::Insert => INSERT,
            Self::Copy => COPY,
        };
        match compression {
            Compression::None => name.to_owned(),
            other => format!("{name} {other}"),
        }
    }
}

/// Programs under test, and a folder of their own for what they leave.
pub struct Programs {
    /// `rapidbyte`.
    pub rapidbyte: PathBuf,
    /// Not there on every machine.
    pub psql: Option<PathBuf>,
    /// Pipelines, the histories of their runs, files that are written and read.
    pub folder: tempfile::TempDir,
    /// How long any run may take before it is ended.
    pub limit: Duration,
}

/// Long for a million rows by the slowest peer.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Of clients that were ended because they took too long: they may hold locks. Waits 10 s for each.
const END_SESSIONS: &str = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
     WHERE datname = current_database() AND backend_type = 'client backend' \
     AND pid <> pg_backend_pid()";

/// The databases of a copy, and the line to them.
pub struct Pair<'a> {
    pub source: &'a Database<'a>,
    pub target: &'a Database<'a>,
    /// Every client goes through it.
    pub proxy: Option<&'a Proxy>,
}

impl Pair<'_> {
    fn url(&self, database: &Database<'_>) -> String {
        match self.proxy {
            Some(proxy) => database.url_through(proxy),
            None => database.url(),
        }
    }

    pub fn source_url(&self) -> String {
        self.url(self.source)
    }

    pub fn target_url(&self) -> String {
        self.url(self.target)
    }

    /// Connections that the proxy has passed on so far; nothing without one.
    pub fn connections(&self) -> Option<u64> {
        Some(self.proxy?.counts().connections)
    }

    /// Empties the target's schema, and makes the table there with a statement.
    pub fn begin_anew(&self, create: Option<&str>) -> Result<(), Failure> {
        for database in [self.source, self.target] {
            database.client().batch_execute(END_SESSIONS)?;
        }
        let mut client = self.target.client();
        client.batch_execute(&format!(
            "DROP SCHEMA IF EXISTS {TARGET_SCHEMA} CASCADE; CREATE SCHEMA {TARGET_SCHEMA}; {}",
            create.unwrap_or_default()
        ))?;
        // Writes out the pages of earlier runs, so that this run does not pay for them.
        client.batch_execute("CHECKPOINT")?;
        Ok(())
    }

    /// Every value of both tables must be the same.
    pub fn verify(&self) -> Result<(), Failure> {
        let (from, to) = (
            Digest::of(self.source, TABLE)?,
            Digest::of(self.target, TARGET)?,
        );
        from.must_be(to)
    }
}

impl Programs {
    /// The programs that the environment names and the machine has.
    pub fn find(limit: Duration) -> Result<Self, Failure> {
        let rapidbyte = std::env::var_os("RAPIDBYTE_BIN").map(PathBuf::from);
        let text = "RAPIDBYTE_BIN names no program: run cargo xtask bench";
        Self::of(rapidbyte.ok_or_else(|| Failure(text.into()))?, limit)
    }

    /// This build of the program.
    pub fn of(rapidbyte: PathBuf, limit: Duration) -> Result<Self, Failure> {
        Ok(Self {
            rapidbyte,
            psql: psql(),
            folder: tempfile::tempdir()?,
            limit,
        })
    }

    /// A file of this bench.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a pipeline and gives its file.
    pub fn pipeline(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path(&format!("{name}.yaml"));
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// The pipeline that appends the table.
    pub fn append(&self) -> Result<PathBuf, Failure> {
        self.pipeline("append", &table_pipeline("append"))
    }

    /// The command that runs a pipeline between two databases by a build of the program; it sets the
    /// variables of [`table_pipeline`].
    pub fn command(
        &self,
        rapidbyte: &Path,
        pair: &Pair<'_>,
        pipeline: &Path,
        method: Method,
        compression: Compression,
    ) -> Command {
        let mut command = Command::new(rapidbyte);
        command
            .args(["run", "--quiet", "--output", "json"])
            .arg(pipeline)
            .env("BENCH_SOURCE", pair.source_url())
            .env("BENCH_TARGET", pair.target_url())
            .env("BENCH_METHOD", method.key())
            .env("BENCH_COMPRESSION", compression.name());
        command
    }

    /// Runs a pipeline.
    pub fn run(
        &self,
        pair: &Pair<'_>,
        pipeline: &Path,
        method: Method,
        compression: Compression,
    ) -> Result<Run, Missed> {
        let mut command = self.command(&self.rapidbyte, pair, pipeline, method, compression);
        self.reporting(&mut command)
    }

    /// Runs a program whose standard output is a report.
    pub fn reporting(&self, command: &mut Command) -> Result<Run, Missed> {
        Ok(Run::reporting(&timed(
            "rapidbyte run",
            command,
            self.limit,
        )?)?)
    }

    /// The same copy by the connectors as native code.
    pub fn native(&self, pair: &Pair<'_>, method: Method, write_mode: &str) -> Result<Run, Missed> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("native")
            .env("BENCH_SOURCE", pair.source_url())
            .env("BENCH_TARGET", pair.target_url())
            .env("BENCH_METHOD", method.key())
            .env("BENCH_COMPRESSION", Compression::None.name())
            .env("BENCH_WRITE_MODE", write_mode);
        Ok(Run::reporting(&timed(
            "the native build",
            &mut command,
            self.limit,
        )?)?)
    }

    /// `psql` on a database with one statement after another.
    pub fn psql(&self, url: &str, statements: &[&str]) -> Result<Command, Failure> {
        let program = self.psql.as_ref();
        let mut command =
            Command::new(program.ok_or_else(|| Failure("psql is not installed".into()))?);
        command
            .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
            .args(["--dbname", url]);
        for statement in statements {
            command.args(["--command", statement]);
        }
        Ok(command)
    }

    /// `psql COPY TO | psql …` with these statements; one of them reads standard input.
    pub fn pipe(&self, pair: &Pair<'_>, into: &[&str]) -> Result<Run, Missed> {
        let out = format!("COPY {TABLE} TO STDOUT (FORMAT binary)");
        let timed = timed_pipe(
            "psql",
            &mut self.psql(&pair.source_url(), &[&out])?,
            &mut self.psql(&pair.target_url(), into)?,
            self.limit,
        )?;
        Ok(Run::silent(&timed))
    }
}

/// A pipeline from the table into the schema; method and compression come from the environment.
pub fn table_pipeline(write_mode: &str) -> String {
    format!(
        "version: 1\npipeline: bench\n\
         source:\n  use: source-postgres\n  config: {{url: \"${{BENCH_SOURCE}}\"}}\n  streams: [{TABLE}]\n\
         destination:\n  use: dest-postgres\n  config: {{url: \"${{BENCH_TARGET}}\", schema: {TARGET_SCHEMA}, \
         load_method: \"${{BENCH_METHOD}}\"}}\n  write_mode: {write_mode}\n\
         resources: {{compression: \"${{BENCH_COMPRESSION}}\"}}\n"
    )
}

/// A digest of a table: its rows, and the sum of a hash over the text of each, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    rows: i64,
    hash: i128,
}

impl Digest {
    /// Of a table, or of a query in brackets.
    pub fn of(database: &Database<'_>, table: &str) -> Result<Self, Failure> {
        let row = database.client().query_one(
            &format!(
                "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0)::text \
                 FROM {table} AS t"
            ),
            &[],
        )?;
        let hash: &str = row.get(1);
        Ok(Self {
            rows: row.get(0),
            hash: hash.parse()?,
        })
    }

    /// Of the rows of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            hash: self.hash + other.hash,
        }
    }

    pub fn must_be(self, found: Self) -> Result<(), Failure> {
        if self == found {
            return Ok(());
        }
        let Self { rows, hash } = self;
        Err(Failure(format!(
            "the target should hold {rows} rows with the hash {hash} and holds {} with {}",
            found.rows, found.hash
        )))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_add_and_tell_values_apart() {
        let a = Digest { rows: 1, hash: -5 };
        let b = Digest { rows: 2, hash: 7 };
        assert!(a.and(b).must_be(Digest { rows: 3, hash: 2 }).is_ok());
        assert!(a.must_be(Digest { rows: 1, hash: 5 }).is_err());
        assert!(a.must_be(Digest { rows: 2, hash: -5 }).is_err());
    }

    #[test]
    fn a_digest_sees_each_value_and_no_order() {
        let server = rapidbyte_testkit::postgres::shared();
        let database = server.database();
        database
            .client()
            .batch_execute(
                "CREATE TABLE a AS SELECT i, 'v' || i AS t FROM generate_series(1, 100) AS i; \
                 CREATE TABLE same AS SELECT * FROM a ORDER BY i DESC; \
                 CREATE TABLE other AS SELECT i, CASE i WHEN 50 THEN NULL ELSE t END AS t FROM a",
            )
            .expect("three tables");
        let of = |table| Digest::of(&database, table).expect("it is there");
        assert!(of("a").must_be(of("same")).is_ok());
        let Failure(text) = of("a").must_be(of("other")).expect_err("one value differs");
        assert!(text.contains("100 rows"), "{text}");
    }

    #[test]
    fn a_column_names_its_compression_where_there_is_one() {
        assert_eq!(Method::Copy.column(Compression::None), "COPY");
        assert_eq!(Method::Insert.column(Compression::Zstd), "INSERT zstd");
    }
}
