//! Tables that others use at the same time: the sessions that a run waits for, and locks that prevent replacing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rapidbyte_testkit::postgres::{Client, shared};

use crate::postgres::{content, copy};
use crate::support::{Ended, Folder};

#[test]
fn a_wait_for_a_lock_is_reported_and_a_stopped_run_leaves_nobody_waiting() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let mut holder = target.client();
    holder.batch_execute(table).expect("a table");
    holder
        .batch_execute("BEGIN; UPDATE t SET id = id WHERE id = 1")
        .expect("a lock");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        copy(&source, &target, "[public.t]", "schema: public").replace("append", "replace"),
    );
    let start = || {
        let (child, told) = start_and_wait_for(&folder, "waits for a lock on public.t");
        assert!(told.contains("UPDATE t SET id"), "{told}");
        child
    };
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted";
    let count =
        |client: &mut Client| -> i64 { client.query_one(waiting, &[]).expect("a count").get(0) };
    let mut other = target.client();
    let mut child = start();
    until(|| count(&mut other) == 1, "it waits for the lock");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    // The server looks once a second.
    until(
        || count(&mut other) == 0,
        "the stopped run's session has ended",
    );
    let mut child = start();
    holder.batch_execute("COMMIT").expect("the lock is free");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(content(&mut other, "t"), content(&mut source.client(), "t"));
}

#[test]
fn a_locked_source_table_is_reported_with_its_holder() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    let mut holder = source.client();
    holder.batch_execute(table).expect("a table");
    let sql = "BEGIN; LOCK TABLE t; SELECT 1 AS mine";
    holder.batch_execute(sql).expect("a lock");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        copy(&source, &target, "[public.t]", "schema: public"),
    );
    let (mut child, told) = start_and_wait_for(&folder, "waits for a lock on a table");
    assert!(told.contains("t by process"), "{told}");
    assert!(told.contains("SELECT 1 AS mine"), "{told}");
    holder.batch_execute("COMMIT").expect("the lock is free");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(
        content(&mut target.client(), "t"),
        content(&mut holder, "t")
    );
}

#[test]
fn a_run_waits_for_a_table_that_another_session_creates_and_reports_it() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i";
    source.client().batch_execute(table).expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        copy(&source, &target, "[public.t]", "schema: public"),
    );
    // After COMMIT, the retry finds a table without a column that fits.
    for (ending, code) in [("ROLLBACK", 0), ("COMMIT", 4)] {
        let mut maker = target.client();
        for sql in ["DROP TABLE IF EXISTS t", "BEGIN; CREATE TABLE t (id date)"] {
            maker.batch_execute(sql).expect("a table");
        }
        let (child, told) = start_and_wait_for(&folder, "waits to create public.t");
        assert!(told.contains("CREATE TABLE t (id date)"), "{told}");
        maker.batch_execute(ending).expect("the other has ended");
        let ended = Ended::from(child.wait_with_output().expect("it ends"));
        assert_eq!(ended.code, Some(code), "{ending}");
        let rows = maker.query("SELECT FROM t", &[]).expect("a table").len();
        assert_eq!(rows, if code == 0 { 10 } else { 0 }, "{ending}");
    }
}

/// Starts `p.yaml` and waits for a line on standard error, a minute at most.
fn start_and_wait_for(folder: &Folder, part: &'static str) -> (Child, String) {
    let mut child = folder
        .command(&["run", "p.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let (told, heard) = std::sync::mpsc::channel();
    // To the end, because a full pipe stops its writer.
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if line.contains(part) {
                let _ = told.send(line);
            }
        }
    });
    let told = heard.recv_timeout(std::time::Duration::from_secs(60));
    let told = told.unwrap_or_else(|_| {
        let _ = child.kill();
        panic!("it does not say that it waits: {part}");
    });
    (child, told)
}

/// Asks again and again, a minute at most.
fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60, "not in a minute: {what}");
    }
}

#[test]
fn replaced_rows_that_others_refer_to_need_a_deferrable_key() {
    let (source, target) = (shared().database(), shared().database());
    let table = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)";
    source.client().batch_execute(table).expect("a table");
    let mut client = target.client();
    client
        .batch_execute(&format!(
            "{table}; CREATE TABLE child (t_id int CONSTRAINT of_t REFERENCES t); INSERT INTO child VALUES (2)"
        ))
        .expect("tables");
    let pipeline =
        copy(&source, &target, "[public.t]", "schema: public").replace("append", "replace");
    Folder::new().refuses(&pipeline, "pg_23503", 4, &["DEFERRABLE"]);
    assert_eq!(content(&mut client, "t").0, 2);
    client
        .batch_execute("ALTER TABLE child ALTER CONSTRAINT of_t DEFERRABLE")
        .expect("a constraint");
    Folder::new().report(&pipeline);
    client
        .batch_execute("INSERT INTO child VALUES (1)")
        .expect("still a key");
    // The row that is referred to does not come back: nothing is replaced.
    source
        .client()
        .batch_execute("DELETE FROM t WHERE id = 2")
        .expect("a row");
    Folder::new().refuses(&pipeline, "pg_23503", 4, &[]);
    assert_eq!(content(&mut client, "t").0, 2);
}
