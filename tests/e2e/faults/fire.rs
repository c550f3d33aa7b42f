//! Incremental runs while others write to the source: rows that are committed late, updates,
//! soft deletes, savepoints and rollbacks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rapidbyte_testkit::numbers::Numbers;
use rapidbyte_testkit::postgres::{Client, Database, shared};

use super::number;
use crate::postgres::content;
use crate::support::Folder;
use crate::wired::wait_for_older;

/// Runs of a test of all tests; `cargo xtask faults --fire N` sets another number.
const ROUNDS: u64 = 8;
const WRITERS: u64 = 3;
/// Transactions that the writers make while the pipeline runs, however fast that is.
const TRANSACTIONS: u64 = 150;
/// Against a test without an end.
const MAX_ROUNDS: u64 = 200;
/// The longest that a transaction stays open.
const OPEN_MS: usize = 120;
/// One that was open for longer could not be found within the lag of 5 seconds: it is rolled back.
const TOO_LONG: Duration = Duration::from_secs(2);

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, version int NOT NULL, at timestamptz NOT NULL, \
                     gone boolean NOT NULL, v text); CREATE INDEX ON t (at)";

/// One transaction of a writer: some rows of its own change, and stay unseen for a while.
fn write(
    client: &mut Client,
    writer: u64,
    numbers: &mut Numbers,
) -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let mut transaction = client.transaction()?;
    for _ in 0..=numbers.below(4) {
        let id = (writer * 1_000_000) as i64 + numbers.below(400) as i64;
        let mut step = transaction.savepoint("step")?;
        let gone = numbers.below(5) == 0;
        step.execute(
            "INSERT INTO t VALUES ($1, 1, clock_timestamp(), $2, 'first') ON CONFLICT (id) DO UPDATE \
             SET version = t.version + 1, at = clock_timestamp(), gone = $2, v = 'v' || t.version",
            &[&id, &gone],
        )?;
        match numbers.below(4) {
            0 => step.rollback()?,
            _ => step.commit()?,
        }
    }
    // Committed late: the fire that the reads must stand.
    std::thread::sleep(Duration::from_millis(numbers.below(OPEN_MS) as u64));
    match numbers.below(6) {
        0 => transaction.rollback()?,
        _ if begun.elapsed() > TOO_LONG => transaction.rollback()?,
        _ => transaction.commit()?,
    }
    Ok(())
}

/// Runs the pipeline again and again while others write, then once more, and gives the databases.
fn burn(stream: &str, write_mode: &str) -> (Database<'static>, Database<'static>) {
    let rounds = number("RAPIDBYTE_FAULTS_FIRE").unwrap_or(ROUNDS);
    let seed = number("RAPIDBYTE_FAULTS_SEED").unwrap_or(1);
    let (source, target) = (shared().database(), shared().database());
    source.client().batch_execute(TABLE).expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: fire\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{stream}]\n\
             destination:\n  use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  {write_mode}\n\
             checkpoint: {{ every_rows: 50 }}\nresources: {{ batch_bytes: 4kb, memory: 64mb }}\n",
            source.url(),
            target.url()
        ),
    );
    let run = || {
        let ended = folder.rapidbyte(&["run", "p.yaml", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    };
    let done = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let mut round = 0;
    std::thread::scope(|scope| {
        // The writers end with the runs, also after a panic.
        let _ends = Ends(&done);
        for writer in 0..WRITERS {
            let mut client = source.client();
            let (done, written) = (&done, &written);
            scope.spawn(move || {
                let mut numbers = Numbers::new(seed * 1000 + writer);
                while !done.load(Ordering::Relaxed) {
                    write(&mut client, writer, &mut numbers).expect("a transaction");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let is_enough = || written.load(Ordering::Relaxed) >= TRANSACTIONS;
        while round < rounds || (!is_enough() && round < MAX_ROUNDS) {
            run();
            round += 1;
        }
    });
    wait_for_older(&mut source.client());
    run();
    println!("fire: {round} rounds, seed {seed}");
    (source, target)
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_upsert_with_a_lag_equals_its_source() {
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 5 seconds }";
    let (source, target) = burn(stream, "write_mode: upsert\n  deleted_field: gone");
    let expected = content(&mut source.client(), "(SELECT * FROM t WHERE NOT gone)");
    assert!(expected.0 > 50, "{expected:?}");
    assert_eq!(content(&mut target.client(), "raw.t"), expected);
}

#[test]
fn exact_appends_have_each_version_once() {
    let stream = "{ name: public.t, sync_mode: incremental, change_detection: xmin }";
    let (source, target) = burn(stream, "write_mode: append");
    is_each_version_once(&source, &target);
}

#[test]
fn appends_with_a_lag_have_each_version_once() {
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 5 seconds }";
    let (source, target) = burn(stream, "write_mode: append\n  primary_key: [id]");
    is_each_version_once(&source, &target);
}

/// No version is there twice, and the newest version of each row equals the source's row.
fn is_each_version_once(source: &Database<'_>, target: &Database<'_>) {
    let mut client = target.client();
    let doubled = "SELECT id, version FROM raw.t GROUP BY id, version HAVING count(*) > 1";
    assert!(client.query(doubled, &[]).expect("rows").is_empty());
    let newest = "(SELECT DISTINCT ON (id) * FROM raw.t ORDER BY id, version DESC)";
    let expected = content(&mut source.client(), "t");
    assert!(expected.0 > 50, "{expected:?}");
    assert_eq!(content(&mut client, newest), expected);
}
