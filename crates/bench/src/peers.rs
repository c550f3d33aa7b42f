//! Other products that copy a table from one PostgreSQL database to another.
//!
//! `cargo xtask bench-peers-setup` leaves a file for each in a folder, with the program to start.
//! Each gets the same table, the same line and an empty table to fill, and is held to the same
//! hash; one whose types lose values is measured and marked.

use std::path::PathBuf;
use std::process::Command;

use rapidbyte_testkit::postgres::programs_folder;

use crate::failure::{Failure, Missed};
use crate::process::{Timed, timed};
use crate::run::{Digest, Pair, Programs, TABLE, TARGET};

/// One that is installed.
#[derive(Debug, Clone)]
pub struct Peer {
    product: Product,
    /// Python, or the product itself.
    program: PathBuf,
}

/// One that this bench knows how to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Product {
    Pgcopydb,
    Duckdb,
    Adbc,
    Sling,
    Dlt,
}

const FOLDER: &str = "BENCH_PEERS";

impl Peer {
    /// Those that `cargo xtask bench-peers-setup` left; it fails when there are none.
    pub fn installed() -> Result<Vec<Self>, Failure> {
        let folder = std::env::var_os(FOLDER).map(PathBuf::from);
        let folder = folder.ok_or_else(|| Failure(format!("{FOLDER} names no folder")))?;
        let peers: Vec<Self> = Product::ALL
            .into_iter()
            .filter_map(|product| {
                let program = std::fs::read_to_string(folder.join(product.name())).ok()?;
                let program = PathBuf::from(program);
                program.is_file().then_some(Self { product, program })
            })
            .collect();
        if peers.is_empty() {
            let text = "no peer is installed: run `cargo xtask bench-peers-setup` once";
            return Err(Failure(text.into()));
        }
        Ok(peers)
    }

    pub fn name(&self) -> &'static str {
        self.product.name()
    }

    /// The table that it fills.
    fn target(&self) -> &'static str {
        match self.product {
            // It copies databases, and nothing is renamed on the way.
            Product::Pgcopydb => TABLE,
            _ => TARGET,
        }
    }

    /// Makes room for [`Peer::run`] after the target was created anew.
    pub fn prepare(&self, pair: &Pair<'_>) -> Result<(), Failure> {
        let drop = format!("DROP TABLE IF EXISTS {TABLE}");
        pair.target.client().batch_execute(&drop)?;
        Ok(())
    }

    /// Copies the table into the existing target table.
    pub fn run(&self, programs: &Programs, pair: &Pair<'_>) -> Result<Timed, Missed> {
        let mut command = self.command(programs, pair)?;
        timed(self.name(), &mut command, programs.limit)
    }

    /// True when the values that arrived are not those that were sent.
    pub fn differs(&self, pair: &Pair<'_>) -> Result<bool, Failure> {
        let sent = Digest::of(pair.source, TABLE)?;
        Ok(sent != Digest::of(pair.target, self.target())?)
    }

    fn command(&self, programs: &Programs, pair: &Pair<'_>) -> Result<Command, Failure> {
        let mut command = Command::new(&self.program);
        command
            .env("BENCH_SOURCE", pair.source_url())
            .env("BENCH_TARGET", pair.target_url());
        match self.product {
            Product::Duckdb => {
                command.args(["-c", include_str!("../../../benches/peers/duckdb.py")])
            }
            Product::Adbc => command.args(["-c", include_str!("../../../benches/peers/adbc.py")]),
            Product::Dlt => command
                .args(["-c", include_str!("../../../benches/peers/dlt.py")])
                .env("RUNTIME__DLTHUB_TELEMETRY", "false"),
            Product::Sling => command
                .args([
                    "run",
                    "--src-conn",
                    "BENCH_SOURCE",
                    "--tgt-conn",
                    "BENCH_TARGET",
                ])
                .args(["--src-stream", TABLE, "--tgt-object", TARGET])
                .args(["--mode", "truncate"])
                // It asks for TLS by default.
                .env("BENCH_SOURCE", pair.source_url() + "?sslmode=disable")
                .env("BENCH_TARGET", pair.target_url() + "?sslmode=disable")
                .env("SLING_HOME_DIR", programs.path("sling"))
                .env("SLING_DISABLE_TELEMETRY", "true"),
            Product::Pgcopydb => command
                .args(["clone", "--table-jobs", "1", "--index-jobs", "1"])
                .args([
                    "--skip-large-objects",
                    "--no-owner",
                    "--restart",
                    "--not-consistent",
                ])
                .arg("--dir")
                .arg(programs.path("pgcopydb"))
                .args([
                    "--source",
                    &pair.source_url(),
                    "--target",
                    &pair.target_url(),
                ])
                // It starts pg_dump and pg_restore.
                .env("PATH", path_with_postgres()?),
        };
        Ok(command)
    }
}

impl Product {
    const ALL: [Self; 5] = [
        Self::Pgcopydb,
        Self::Duckdb,
        Self::Adbc,
        Self::Sling,
        Self::Dlt,
    ];

    /// Its file in the folder, and its column.
    fn name(self) -> &'static str {
        match self {
            Self::Pgcopydb => "pgcopydb",
            Self::Duckdb => "duckdb",
            Self::Adbc => "adbc",
            Self::Sling => "sling",
            Self::Dlt => "dlt",
        }
    }
}

fn path_with_postgres() -> Result<std::ffi::OsString, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = programs_folder()
        .into_iter()
        .chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}
