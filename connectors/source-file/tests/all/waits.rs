//! Rows come within the wait, however slowly a batch fills.

use std::time::Duration;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::source;
use serde_json::json;
use source_file::Files;

const FILES: usize = 50;

/// The rows of each event until the end, none for an idle one.
fn events(wait: Duration) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..FILES {
        std::fs::write(folder.path().join(format!("{n:02}.csv")), "id\n1\n2\n").unwrap();
    }
    let path = folder.path().join("*.csv");
    let mut source: Files = source::open(&json!({ "path": path }).to_string()).unwrap();
    let stream = source.discover(&[]).unwrap().remove(0);
    let mut reader = source.read(&ReadRequest::of(&stream)).unwrap();
    let mut events = Vec::new();
    loop {
        match reader.next(wait).unwrap() {
            Event::Batch(batch) => events.push(batch.num_rows()),
            Event::Idle => events.push(0),
            Event::End => return events,
            Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) => {
                panic!("nobody asked for it")
            }
        }
    }
}

#[test]
fn small_files_are_given_when_the_wait_is_over_and_together_before() {
    assert_eq!(events(Duration::from_secs(3600)), [2 * FILES]);
    let steps = events(Duration::ZERO);
    assert_eq!(steps.iter().sum::<usize>(), 2 * FILES);
    assert_eq!(steps.iter().max(), Some(&2), "{steps:?}");
}
