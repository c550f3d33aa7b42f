//! Writers at work while reads repeat: at the end nothing is missing and nothing came twice.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "all/common/mod.rs"]
mod common;

use std::collections::BTreeMap;

use common::*;
use rapidbyte_sdk::prelude::*;
use rapidbyte_testkit::postgres::{Client, Options, Server, shared};
use source_postgres::Postgres;

/// A transaction of the test below, with what it wrote.
struct Transaction {
    client: Client,
    is_open: bool,
    /// Versions of rows: those that are committed and alive, and what the transaction made of them.
    alive: Vec<i32>,
    pending: Vec<i32>,
    written: Vec<i32>,
}

impl Transaction {
    fn version(&mut self, sql: &str) {
        let version: i32 = self.client.query_one(sql, &[]).unwrap().get(0);
        self.pending.push(version);
        self.written.push(version);
    }

    /// One statement at random.
    fn act(&mut self, random: &mut Random, committed: &mut Vec<i32>) {
        match random.below(12) {
            0..=1 if self.is_open => self.end("COMMIT", committed),
            2 if self.is_open => self.end("ROLLBACK", committed),
            0..=2 => {
                self.end("COMMIT", committed);
                self.client.batch_execute("BEGIN").unwrap();
                self.is_open = true;
            }
            3..=4 if self.is_open => {
                // Ids of savepoints; one savepoint is rolled back.
                self.client.batch_execute("SAVEPOINT a").unwrap();
                self.version("INSERT INTO t VALUES (DEFAULT) RETURNING id");
                self.client
                    .batch_execute("SAVEPOINT b; INSERT INTO t VALUES (DEFAULT)")
                    .unwrap();
                self.client
                    .batch_execute("ROLLBACK TO b; RELEASE a")
                    .unwrap();
            }
            5 if !self.pending.is_empty() => {
                let at = random.below(self.pending.len() as u64) as usize;
                let id = self.pending.swap_remove(at);
                run(&mut self.client, &format!("DELETE FROM t WHERE id = {id}"));
            }
            6..=7 if !self.pending.is_empty() => {
                let at = random.below(self.pending.len() as u64) as usize;
                let id = self.pending.swap_remove(at);
                self.version(&format!(
                    "UPDATE t SET id = DEFAULT WHERE id = {id} RETURNING id"
                ));
            }
            _ => self.version("INSERT INTO t VALUES (DEFAULT) RETURNING id"),
        }
        if !self.is_open {
            self.settle(committed);
        }
    }

    fn end(&mut self, sql: &str, committed: &mut Vec<i32>) {
        if !self.is_open {
            return;
        }
        self.client.batch_execute(sql).unwrap();
        self.is_open = false;
        if sql == "ROLLBACK" {
            self.pending.clone_from(&self.alive);
            self.written.clear();
        }
        self.settle(committed);
    }

    fn settle(&mut self, committed: &mut Vec<i32>) {
        self.alive.clone_from(&self.pending);
        committed.append(&mut self.written);
    }
}

#[test]
fn every_version_comes_once_under_fire() {
    let server = Server::start(&Options::default()).unwrap();
    let database = server.database();
    run(&mut database.client(), "CREATE TABLE t (id serial)");
    let mut random = Random::seeded();
    let mut writers: Vec<Transaction> = (0..5)
        .map(|_| Transaction {
            client: database.client(),
            is_open: false,
            alive: Vec::new(),
            pending: Vec::new(),
            written: Vec::new(),
        })
        .collect();
    let mut source = open(&database.url());
    let (mut cursor, mut committed, mut given) = (None, Vec::new(), Vec::new());
    let mut held_back = 0;
    for round in 0..100 {
        for _ in 0..random.below(25) {
            let writer = random.below(5) as usize;
            writers[writer].act(&mut random, &mut committed);
        }
        let now = step(&mut source, "public.t", &mut cursor);
        held_back += usize::from(now.is_empty());
        given.extend(now);
        let mut once = given.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(
            once.len(),
            given.len(),
            "a version came twice in round {round}"
        );
        assert!(
            once.iter().all(|id| committed.contains(id)),
            "round {round}"
        );
    }
    for writer in &mut writers {
        writer.end("COMMIT", &mut committed);
    }
    given.extend(step(&mut source, "public.t", &mut cursor));
    given.sort_unstable();
    let mut alive: Vec<i32> = writers.iter().flat_map(|w| w.alive.clone()).collect();
    alive.sort_unstable();
    let lost: Vec<_> = alive
        .iter()
        .filter(|id| given.binary_search(id).is_err())
        .collect();
    assert!(lost.is_empty(), "never delivered: {lost:?}");
    assert!(given.is_sorted_by(|a, b| a < b), "a version came twice");
    assert!(
        given.len() > 300 && held_back > 3,
        "{} {held_back}",
        given.len()
    );
}

/// A writer of its own rows whose transactions stay open for a while.
struct Writer {
    client: Client,
    is_open: bool,
    ids: std::ops::Range<i32>,
}

impl Writer {
    /// One statement at random. `at` is a clock that every statement moves on.
    fn act(&mut self, random: &mut Random, at: i32) {
        let id = self.ids.start + random.below(20) as i32;
        let sql = match random.below(8) {
            0 if self.is_open => "COMMIT".to_owned(),
            1 if self.is_open => "ROLLBACK".to_owned(),
            2 if !self.is_open => "BEGIN".to_owned(),
            // Updates and soft deletes are the same to the source.
            3 if self.is_open => {
                format!("SAVEPOINT s; UPDATE t SET at = {at} WHERE id = {id}; ROLLBACK TO s")
            }
            _ => format!(
                "INSERT INTO t VALUES ({id}, {at}) ON CONFLICT (id) DO UPDATE SET at = {at}"
            ),
        };
        self.client.batch_execute(&sql).unwrap();
        self.is_open = match &*sql {
            "BEGIN" => true,
            "COMMIT" | "ROLLBACK" => false,
            _ => self.is_open,
        };
    }

    fn end(&mut self) {
        self.client.batch_execute("COMMIT").unwrap();
        self.is_open = false;
    }
}

/// Reads `id` and `at` into what an upsert by `id` keeps; gives the last checkpoint.
fn upsert(
    source: &mut Postgres,
    request: &ReadRequest,
    target: &mut BTreeMap<i32, i32>,
) -> Option<String> {
    let mut reader = source.read(request).unwrap();
    let mut cursor = None;
    loop {
        match reader.next(WAIT).unwrap() {
            Event::Batch(batch) => {
                let column = |at: usize| {
                    batch
                        .column(at)
                        .as_any()
                        .downcast_ref::<Int32Array>()
                        .unwrap()
                };
                let (ids, times) = (column(0), column(1));
                target.extend(
                    ids.values()
                        .iter()
                        .copied()
                        .zip(times.values().iter().copied()),
                );
            }
            Event::Checkpoint(json) => cursor = Some(json),
            Event::End => return cursor,
            Event::Idle | Event::Rejects(_) | Event::Changed(_) => {}
        }
    }
}

#[test]
fn an_upsert_with_a_lag_is_equal_to_its_source_after_a_fire() {
    const LAG: i32 = 60;
    let database = shared().database();
    let mut client = database.client();
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, at int); CREATE INDEX ON t (at, id)")
        .unwrap();
    let mut source = open(&database.url());
    let mut random = Random::seeded();
    let mut writers: Vec<Writer> = (0..4)
        .map(|number| Writer {
            client: database.client(),
            is_open: false,
            ids: number * 20..number * 20 + 20,
        })
        .collect();
    let mut increment = ordered(&["at", "id"], true);
    increment.late_rows = LateRows::Lag(Some(LAG.to_string()));
    let (mut at, mut cursor, mut target) = (0, None, BTreeMap::new());
    let mut begun = [0; 4];
    for _ in 0..100 {
        for _ in 0..random.below(20) {
            at += 1;
            let number = random.below(4) as usize;
            writers[number].act(&mut random, at);
            for (writer, begun) in writers.iter_mut().zip(&mut begun) {
                // No transaction is open for longer than the lag reaches.
                if writer.is_open && at - *begun >= LAG {
                    writer.end();
                }
                if !writer.is_open {
                    *begun = at;
                }
            }
        }
        let request = ReadRequest {
            columns: None,
            ..news("public.t", &increment, cursor.as_deref())
        };
        cursor = upsert(&mut source, &request, &mut target);
    }
    for writer in writers.iter_mut().filter(|writer| writer.is_open) {
        writer.end();
    }
    let request = ReadRequest {
        columns: None,
        ..news("public.t", &increment, cursor.as_deref())
    };
    upsert(&mut source, &request, &mut target);
    let rows = client.query("SELECT id, at FROM t", &[]).unwrap();
    let rows: BTreeMap<i32, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(rows.len() > 60);
    assert_eq!(target, rows);
}
