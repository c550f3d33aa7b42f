//! The comparisons: one module for each kind.

pub mod copy;
pub mod files;
pub mod steps;
pub mod upsert;

use crate::bench::Bench;
use crate::failure::Failure;
use crate::workload::Workload;

/// Measures everything that was asked for.
pub fn run(mut bench: Bench) -> Result<(), Failure> {
    for workload in bench.settings.workloads.clone() {
        for rows in workload.sizes(&bench.settings.rows) {
            match workload {
                Workload::Upsert => upsert::run(&mut bench, rows)?,
                Workload::Files => files::run(&mut bench, rows)?,
                Workload::Steps => steps::run(&mut bench, rows)?,
                _ => {
                    for latency in bench.settings.latencies_ms.clone() {
                        copy::run(&mut bench, workload, rows, latency)?;
                    }
                }
            }
        }
    }
    bench.finish()
}
