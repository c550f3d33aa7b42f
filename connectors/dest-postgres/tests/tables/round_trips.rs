//! The statements that a small load sends: each send costs a round trip, and most of the time of a small load.

use crate::common::*;
use rapidbyte_sdk::prelude::{Target, WriteMode};
use rapidbyte_testkit::postgres::{Options, Server};
use serde_json::json;
use std::path::Path;

/// A server that logs each request as one line.
pub fn server() -> Server {
    let conf = ["log_statement = all", "log_line_prefix = '%d '"];
    let options = Options {
        conf: conf.map(str::to_owned).to_vec(),
        ..Options::default()
    };
    Server::start(&options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The whole log.
pub fn log(client: &mut rapidbyte_testkit::postgres::Client) -> String {
    let data = one(client, "current_setting('data_directory')");
    let log = Path::new(&data).with_file_name("log");
    std::fs::read_to_string(log).unwrap()
}

/// The requests of the destination's sessions in the log, each with its first words.
pub fn requests(log: &str, database: &str) -> Vec<String> {
    let prefix = format!("{database} LOG:  ");
    let request = |line: &str| {
        let said = line.strip_prefix(&prefix)?;
        let is_request = said.starts_with("statement: ") || said.starts_with("execute rapidbyte_");
        is_request.then(|| said.chars().take(120).collect())
    };
    log.lines().filter_map(request).collect()
}

/// One load of one row in a session of its own, as the engine makes it.
fn load(url: &str, method: &str, target: &Target) {
    let config = json!({"schema": "raw", "load_method": method});
    let mut to = open_with(url, config);
    to.working("p").unwrap();
    to.plan(target).unwrap();
    to.progress(target, "p").unwrap();
    let mut load = fence(&mut to, target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(&[1])).unwrap();
    let part = load.flush().unwrap();
    let seq = load.progress().seq;
    load.commit(whole(&target.stream, vec![part], seq)).unwrap();
}

#[test]
fn a_small_load_sends_few_requests_and_none_that_fails() {
    let server = server();
    for (method, most) in [("copy", 9), ("insert", 10)] {
        let database = server.database();
        let mut client = database.client();
        let target = target("t", &batch(&[]).schema(), WriteMode::Append);
        // The first load makes the tables.
        load(&database.url(), method, &target);
        let before = log(&mut client).len();
        load(&database.url(), method, &target);
        let second = log(&mut client).split_off(before);
        let mut sent = requests(&second, database.name());
        // The test's own questions.
        sent.retain(|request| !request.contains("data_directory"));
        assert!((6..=most).contains(&sent.len()), "{method}: {sent:#?}");
        assert!(!second.contains("ERROR"), "{second}");
        assert_eq!(ids(&mut client, "raw.t"), "1,1");
    }
}

#[test]
fn a_direct_session_sees_a_run_behind_a_pooler() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    append(&mut to, "t", &batch(&[1])).unwrap();
    assert_eq!(to.working("p").unwrap().len(), 0);
    execute(
        &mut client,
        "CREATE TABLE _rapidbyte.checkpoint_beat (pipeline text, process text, run_id text, place text, \
             began timestamptz, beat timestamptz); \
         INSERT INTO _rapidbyte.checkpoint_beat VALUES ('p', 'x', 'r2', 'here', now(), now()), \
             ('q', 'y', 'r3', 'there', now(), now())",
    );
    let workers = to.working("p").unwrap();
    let found: Vec<_> = workers
        .iter()
        .map(|worker| worker.run_id.as_str())
        .collect();
    assert_eq!(found, ["r2"]);
    // A table of checkpoints that is missing hides no run behind a pooler.
    execute(&mut client, "DROP TABLE _rapidbyte.checkpoint");
    assert_eq!(to.working("p").unwrap().len(), 1);
}

#[test]
fn a_run_is_seen_by_its_session_and_by_the_lock_of_its_pipeline() {
    let database = database();
    let target = target("t", &batch(&[]).schema(), WriteMode::Append);
    let (mut first, mut second) = (open(&database), open(&database));
    let load = fence(&mut first, &target, run("r1")).unwrap();
    let found = second.working("p").unwrap();
    let found: Vec<_> = found.iter().map(|worker| worker.run_id.as_str()).collect();
    assert_eq!(found, ["r1"]);
    assert_eq!(second.working("other").unwrap().len(), 0);
    drop(load);
    // The second session has the lock now, and has fenced nothing.
    let found = open(&database).working("p").unwrap();
    assert!(found.iter().any(|worker| worker.run_id.is_empty()));
}
