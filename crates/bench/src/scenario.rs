//! What is compared with what: one module for each kind of comparison.

pub mod copy;
pub mod files;
pub mod upsert;

use rapidbyte_testkit::postgres::Database;

use crate::failure::Failure;
use crate::figures::Size;
use crate::run::TABLE;
use crate::workload::Workload;

/// Makes the table of the source and gives its size.
pub fn seed(source: &Database<'_>, workload: Workload, rows: u64) -> Result<Size, Failure> {
    let mut client = source.client();
    client.batch_execute(&workload.create(TABLE))?;
    client.batch_execute(&workload.fill(TABLE, rows))?;
    client.batch_execute(&format!("VACUUM (ANALYZE, FREEZE) {TABLE}"))?;
    sized(source, rows)
}

/// As many bytes as the first rows let expect.
fn sized(source: &Database<'_>, rows: u64) -> Result<Size, Failure> {
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
