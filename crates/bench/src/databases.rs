//! The server of a bench, and the databases of a comparison.

use rapidbyte_testkit::postgres::{Database, Options, Server};

use crate::failure::Failure;
use crate::figures::Size;
use crate::run::{Pair, TABLE};
use crate::workload::Workload;

/// A server with PostgreSQL's own settings for durability.
pub fn server() -> Result<Server, Failure> {
    Ok(Server::start(&Options {
        durable: true,
        // Not every peer takes what a URL may hold.
        password: "bench".into(),
        ..Options::default()
    })?)
}

/// A database with the table, and one that is empty.
pub struct Databases<'a> {
    pub source: Database<'a>,
    pub target: Database<'a>,
    pub size: Size,
}

impl<'a> Databases<'a> {
    pub fn seeded(server: &'a Server, workload: Workload, rows: u64) -> Result<Self, Failure> {
        let (source, target) = (server.database(), server.database());
        let size = seed(&source, workload, rows)?;
        Ok(Self {
            source,
            target,
            size,
        })
    }

    /// Both, without a proxy.
    pub fn pair(&self) -> Pair<'_> {
        Pair {
            source: &self.source,
            target: &self.target,
            proxy: None,
        }
    }
}

/// Makes the table of the source and gives its size.
fn seed(source: &Database<'_>, workload: Workload, rows: u64) -> Result<Size, Failure> {
    let mut client = source.client();
    client.batch_execute(&workload.create(TABLE))?;
    client.batch_execute(&workload.fill(TABLE, rows))?;
    client.batch_execute(&format!("VACUUM (ANALYZE, FREEZE) {TABLE}"))?;
    sized(source, rows)
}

/// As many bytes as the first rows let expect.
pub fn sized(source: &Database<'_>, rows: u64) -> Result<Size, Failure> {
    const SAMPLE: u64 = 10_000;
    /// Header and trailer of a binary COPY.
    const FRAME_BYTES: u64 = 21;
    let sample = format!("COPY (SELECT * FROM {TABLE} LIMIT {SAMPLE}) TO STDOUT (FORMAT binary)");
    let mut client = source.client();
    let mut reader = client.copy_out(sample.as_str())?;
    let sampled = std::io::copy(&mut reader, &mut std::io::sink())?;
    let row_bytes = sampled.saturating_sub(FRAME_BYTES) as f64 / rows.min(SAMPLE) as f64;
    Ok(Size {
        rows,
        bytes: (row_bytes * rows as f64) as u64,
    })
}
