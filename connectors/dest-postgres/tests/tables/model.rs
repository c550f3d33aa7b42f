//! Random histories of two runs, compared with a model: who may commit, what is visible, where the
//! cursor is. Answers to commits are lost, with and without the commit.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::{Target, WriteMode};
use rapidbyte_testkit::numbers::Numbers;
use rapidbyte_testkit::postgres::{Client, shared};
use serde_json::json;

/// The next commit passes.
const PASSES: u8 = 0;
/// The commit happens, and its answer is lost.
const ARRIVES: u8 = 1;
/// The commit itself is lost.
const VANISHES: u8 = 2;
/// In the message that moves the checkpoint and commits.
const COMMIT: &[u8] = b"SET seq = c.seq + 1";
const HISTORIES: u64 = 12;
const STEPS: usize = 40;

/// Between a run and the server.
fn between(fate: Arc<AtomicU8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", shared().port())).unwrap();
            let (answers, back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let lost = Arc::new(AtomicU8::new(0));
            let (fate, mutes) = (Arc::clone(&fate), Arc::clone(&lost));
            thread::spawn(move || ask(client, server, &fate, &lost));
            thread::spawn(move || answer(answers, back, &mutes));
        }
    });
    port
}

fn ask(mut from: TcpStream, mut to: TcpStream, fate: &AtomicU8, lost: &AtomicU8) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let bytes = &bytes[..count];
        let mut now = PASSES;
        if bytes.windows(COMMIT.len()).any(|window| window == COMMIT) {
            now = fate.swap(PASSES, Ordering::SeqCst);
            lost.store(now, Ordering::SeqCst);
        }
        if now == VANISHES || to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn answer(mut from: TcpStream, mut to: TcpStream, lost: &AtomicU8) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if lost.load(Ordering::SeqCst) != PASSES || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The expected state.
#[derive(Debug, Default)]
struct Model {
    epoch: u64,
    seq: u64,
    cursor: Option<String>,
    rows: BTreeSet<i64>,
    next: i64,
}

/// A run that has fenced the older runs.
struct Run {
    load: Loading,
    epoch: u64,
    seq: u64,
    /// Written rows that are not committed.
    open: Vec<i64>,
}

struct History {
    numbers: Numbers,
    model: Model,
    target: Target,
    fates: [Arc<AtomicU8>; 2],
    urls: [String; 2],
    runs: [Option<Run>; 2],
}

impl History {
    fn step(&mut self) {
        // Mostly who may commit: else little would be committed.
        let is_newest = |run: &Option<Run>| {
            let epoch = self.model.epoch;
            run.as_ref().is_some_and(|run| run.epoch == epoch)
        };
        let newest = self.runs.iter().position(is_newest);
        let who = match (newest, self.numbers.below(4)) {
            (Some(newest), 1..) => newest,
            _ => self.numbers.below(2),
        };
        match (self.numbers.below(10), self.runs[who].take()) {
            (0..=4, Some(run)) => self.write(who, run),
            (5..=7, Some(run)) => self.commit(who, run),
            // Killed: the run reports nothing.
            (8, Some(_)) => {}
            (_, _) => self.let_in(who),
        }
    }

    fn let_in(&mut self, who: usize) {
        let mut session = open_with(&self.urls[who], json!({"schema": "raw"}));
        let mut load = fence(&mut session, &self.target, run(&format!("r{who}"))).unwrap();
        let progress = load.progress();
        self.model.epoch += 1;
        let Model {
            epoch, seq, cursor, ..
        } = &self.model;
        assert_eq!(
            (progress.epoch, progress.seq, &progress.cursor),
            (*epoch, *seq, cursor)
        );
        load.open_writer(cursor.as_deref()).unwrap();
        self.runs[who] = Some(Run {
            load,
            epoch: *epoch,
            seq: *seq,
            open: Vec::new(),
        });
    }

    fn write(&mut self, who: usize, mut run: Run) {
        let rows = 1 + self.numbers.below(5) as i64;
        let ids: Vec<i64> = (self.model.next..self.model.next + rows).collect();
        self.model.next += rows;
        match run.load.write(&batch(&ids)) {
            Ok(()) => {
                run.open.extend(ids);
                self.runs[who] = Some(run);
            }
            // Its session was ended by the newer run's fence.
            Err(error) => assert_ne!(run.epoch, self.model.epoch, "{error:?}"),
        }
    }

    fn commit(&mut self, who: usize, mut run: Run) {
        let fate = [PASSES, PASSES, ARRIVES, VANISHES][self.numbers.below(4)];
        let is_newest = run.epoch == self.model.epoch;
        let part = match run.load.flush() {
            Ok(part) => part,
            Err(error) => return assert!(!is_newest, "{error:?}"),
        };
        self.fates[who].store(fate, Ordering::SeqCst);
        let cursor = json!({ "at": self.model.next }).to_string();
        let result = run.load.commit(Commit {
            stream: &self.target.stream,
            parts: vec![part],
            seq: run.seq,
            cursor: Some(&cursor),
            complete: false,
        });
        let was_reached = self.fates[who].swap(PASSES, Ordering::SeqCst) == PASSES;
        match result {
            Ok(receipt) => {
                assert!(is_newest, "an older run has committed");
                assert!(fate != VANISHES || !was_reached);
                assert_eq!(receipt.rows, run.open.len() as u64);
                self.model.rows.extend(run.open.drain(..));
                self.model.seq += 1;
                self.model.cursor = Some(cursor);
                run.seq += 1;
                self.runs[who] = Some(run);
            }
            Err(error) if is_newest => {
                assert_eq!(fate, VANISHES, "{error:?}");
                assert_eq!(kind(&error), "Connection", "{error:?}");
                // The lost commit must not happen later, so the lookup raised the epoch.
                self.model.epoch += 1;
            }
            Err(error) => assert_eq!(error.code, "run_superseded", "{error:?}"),
        }
    }

    fn is_right(&self, client: &mut Client) {
        let there = match one(client, "to_regclass('raw.t') IS NOT NULL").as_str() {
            "true" => ids(client, "raw.t"),
            _ => "NULL".into(),
        };
        let rows: Vec<String> = self.model.rows.iter().map(i64::to_string).collect();
        let expected = match rows.is_empty() {
            true => "NULL".into(),
            false => rows.join(","),
        };
        assert_eq!(there, expected);
        if self.model.epoch > 0 {
            let row = "SELECT epoch || ' ' || seq || ' ' || coalesce(cursor, '') \
                       FROM _rapidbyte.checkpoint WHERE stream = 't'";
            let Model {
                epoch, seq, cursor, ..
            } = &self.model;
            let cursor = cursor.as_deref().unwrap_or_default();
            assert_eq!(one(client, row), format!("{epoch} {seq} {cursor}"));
        }
    }
}

#[test]
fn rows_and_cursor_match_the_model_in_every_history() {
    let mut commits = 0;
    for seed in 1..=HISTORIES {
        let database = database();
        let mut client = database.client();
        client.batch_execute("CREATE SCHEMA raw").unwrap();
        let fates = [(); 2].map(|()| Arc::new(AtomicU8::new(PASSES)));
        let port = shared().port().to_string();
        let urls = [0, 1].map(|who: usize| {
            let between = between(Arc::clone(&fates[who])).to_string();
            database.url().replace(&port, &between)
        });
        let mut history = History {
            numbers: Numbers::new(seed),
            model: Model {
                next: 1,
                ..Model::default()
            },
            target: target("t", &batch(&[1]).schema(), WriteMode::Append),
            fates,
            urls,
            runs: [None, None],
        };
        for step in 0..STEPS {
            eprintln!("seed {seed}, step {step}: {:?}", history.model);
            history.step();
            history.is_right(&mut client);
        }
        commits += history.model.seq;
    }
    assert!(commits > HISTORIES * 3, "too little happened: {commits}");
}
