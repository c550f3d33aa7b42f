//! How long it takes to know a body by its content. For the benchmark.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::params;

use super::admit::by_content;
use super::known::{self, Known};
use super::tables::{connect, prepare};
use super::{Body, Job, NewJob, StoreError};

/// Seconds of one lookup.
#[derive(Debug, Clone, Copy)]
pub struct Lookups {
    /// In a store that was opened anew, in no order.
    pub store: f64,
    /// In memory, of as many jobs as it holds.
    pub memory: f64,
}

/// Makes a store with this many jobs that are done, and looks up each of them by the SHA-256 of its body.
///
/// # Errors
/// `Sqlite`.
pub fn lookups(file: &Path, jobs: u32) -> Result<Lookups, StoreError> {
    let mut connection = connect(file)?;
    prepare(&mut connection)?;
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                INSERT INTO job (pipeline, stream, format, bytes, sha256, state, received, ended, body) \
                SELECT 'p', 's', 'jsonl', 1000, randomblob(32), 'done', i, i, randomblob(1000) FROM n";
    connection.execute(many, params![jobs])?;
    drop(connection);

    let mut connection = connect(file)?;
    let bodies: Vec<NewJob> = {
        // The hashes are random: in the order of the ids they are in no order of the index.
        let mut statement = connection.prepare("SELECT sha256 FROM job ORDER BY id")?;
        let hashes = statement.query_map([], |row| row.get(0))?;
        hashes
            .map(|sha256| Ok(body(sha256?)))
            .collect::<Result<_, StoreError>>()?
    };
    let transaction = connection.transaction()?;
    let mut found: Vec<Arc<Job>> = Vec::with_capacity(known::MAX_JOBS);
    let begun = Instant::now();
    for body in &bodies {
        match by_content(&transaction, body)? {
            Some(job) if found.len() < known::MAX_JOBS => found.push(Arc::new(job)),
            Some(_) => {}
            None => return Err(StoreError::Sqlite("a body is not known".into())),
        }
    }
    let store = begun.elapsed().as_secs_f64() / bodies.len() as f64;

    let known = Known::default();
    for (body, job) in bodies.iter().zip(&found) {
        known.remember(&known.ask(body), job);
    }
    let begun = Instant::now();
    let hits = bodies
        .iter()
        .take(found.len())
        .filter_map(|body| known.get(body));
    let hits = hits.count();
    let memory = begun.elapsed().as_secs_f64() / hits.max(1) as f64;
    match hits == found.len() {
        true => Ok(Lookups { store, memory }),
        false => Err(StoreError::Sqlite("a body is not remembered".into())),
    }
}

fn body(sha256: [u8; 32]) -> NewJob {
    NewJob {
        pipeline: "p".into(),
        stream: "s".into(),
        format: "jsonl",
        encoding: None,
        bytes: 1000,
        sha256,
        key: None,
        is_known_by_content: true,
        expected_by: None,
        token: None,
        body: Body::Inline(Arc::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_body_is_found_in_the_store_and_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = lookups(&folder.path().join("jobs.db"), 100).expect("a store");
        assert!(found.store > 0.0 && found.memory > 0.0, "{found:?}");
    }
}
