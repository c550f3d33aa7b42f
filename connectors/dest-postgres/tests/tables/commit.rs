//! A connection that is cut at the commit.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::WriteMode;
use rapidbyte_testkit::postgres::shared;
use serde_json::json;

/// In the message that moves the checkpoint and commits.
const COMMIT: &[u8] = b"SET seq = c.seq + 1";
/// Of the connection that settles it.
const QUESTION: &[u8] = b"SET epoch = c.epoch + 1";

/// The fate of the COMMIT whose answer never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The server commits, and its answer is lost.
    Arrives,
    /// The server gets the COMMIT only after the question about its outcome.
    Late,
    /// The server gets the end of the connection instead.
    Vanishes,
    /// The same, and every later connection fails.
    Unreachable,
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Forwards until the COMMIT; then the client is cut off.
fn until_commit(
    mut from: TcpStream,
    mut to: TcpStream,
    fate: Fate,
    asked: &Receiver<()>,
    is_cut: &AtomicBool,
) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_commit = has(&bytes[..count], COMMIT);
        is_cut.fetch_or(is_commit, Ordering::SeqCst);
        if is_commit && fate != Fate::Arrives {
            from.shutdown(Shutdown::Both).unwrap();
        }
        if is_commit && fate == Fate::Late {
            asked.recv().unwrap();
        }
        let is_sent = !is_commit || matches!(fate, Fate::Arrives | Fate::Late);
        if is_sent && to.write_all(&bytes[..count]).is_err() {
            break;
        }
        if is_commit && fate != Fate::Arrives {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Forwards answers until the client is cut off, which the next one shows.
fn until_cut(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_cut.load(Ordering::SeqCst) {
            break;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Forwards all, and says when the first question has gone.
fn until_question(mut from: TcpStream, mut to: TcpStream, asked: &Sender<()>) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        to.write_all(&bytes[..count]).unwrap();
        if has(&bytes[..count], QUESTION) {
            let _ = asked.send(());
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A server in between that cuts the first connection at its COMMIT, and no later one. Says on the
/// receiver how many connections it has had.
fn proxy(server_port: u16, fate: Fate) -> (u16, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (counted, count) = channel();
    thread::spawn(move || {
        let (sender, receiver) = channel();
        let mut receiver = Some(receiver);
        for (number, client) in listener.incoming().enumerate().take(2) {
            let client = client.unwrap();
            counted.send(number + 1).unwrap();
            if number > 0 && fate == Fate::Unreachable {
                return;
            }
            let server = TcpStream::connect(("127.0.0.1", server_port)).unwrap();
            let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let is_cut = Arc::new(AtomicBool::new(false));
            let cut = is_cut.clone();
            thread::spawn(move || until_cut(back_from, back_to, &cut));
            match receiver.take() {
                Some(asked) => {
                    thread::spawn(move || until_commit(client, server, fate, &asked, &is_cut))
                }
                None => {
                    let sender = sender.clone();
                    thread::spawn(move || until_question(client, server, &sender))
                }
            };
        }
    });
    (port, count)
}

#[test]
fn a_commit_whose_answer_is_lost_is_looked_up() {
    let database = database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").unwrap();
    let port = shared().port();
    for (stream, fate) in [
        ("arrives", Fate::Arrives),
        ("late", Fate::Late),
        ("vanishes", Fate::Vanishes),
        ("unreachable", Fate::Unreachable),
    ] {
        let (between, connections) = proxy(port, fate);
        let url = database
            .url()
            .replace(&port.to_string(), &between.to_string());
        let mut to = open_with(&url, json!({"schema": "raw"}));
        let result = append(&mut to, stream, &batch(&[1, 2]));
        match fate {
            Fate::Arrives => {
                assert_eq!(result.unwrap().rows, 2);
                assert_eq!(ids(&mut client, "raw.arrives"), "1,2");
                // The session continues over the new connection.
                append(&mut to, "more", &batch(&[1])).unwrap();
            }
            // The server may see either message first: the result matches the table in both cases.
            Fate::Late => {
                let is_there = one(&mut client, "SELECT to_regclass('raw.late')") != "NULL";
                assert_eq!(result.is_ok(), is_there, "{result:?}");
            }
            Fate::Vanishes => {
                let error = result.unwrap_err();
                assert_eq!(
                    (error.code.as_str(), kind(&error)),
                    ("connection_lost", "Connection".into())
                );
                assert_eq!(
                    one(&mut client, "SELECT to_regclass('raw.vanishes')"),
                    "NULL"
                );
            }
            Fate::Unreachable => {
                let error = result.unwrap_err();
                assert_eq!(
                    (error.code.as_str(), kind(&error)),
                    ("commit_unknown", "Connection".into())
                );
            }
        }
        drop(to);
        // The cut happened: somebody asked again.
        assert_eq!(connections.iter().take(2).count(), 2, "{fate:?}");
    }
}

#[test]
fn a_load_that_waits_long_for_its_source_is_not_given_up() {
    let database = database();
    let (name, url) = (database.name(), database.url());
    database
        .client()
        .batch_execute(&format!(
            "ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '200ms'; \
             ALTER DATABASE {name} SET statement_timeout = '200ms'"
        ))
        .unwrap();
    for method in ["copy", "insert"] {
        let mut to = open_with(&url, json!({"schema": "raw", "load_method": method}));
        let rows = batch(&[1, 2]);
        let target = target(method, &rows.schema(), WriteMode::Append);
        let mut load = begin(&mut to, &target).unwrap();
        let_it_idle(0.6);
        load.write(&rows).unwrap();
        let part = load.flush().unwrap();
        let_it_idle(0.6);
        load.commit(whole(method, vec![part], 0)).unwrap();
        assert_eq!(ids(&mut database.client(), &format!("raw.{method}")), "1,2");
    }
}

#[test]
fn a_limit_that_the_operator_wrote_is_for_the_servers_work_and_not_for_the_sources() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text)")
        .unwrap();
    let config = json!({"schema": "raw", "options": "-c statement_timeout=1s"});
    for mode in [WriteMode::Append, WriteMode::Upsert] {
        let mut to = open_with(&database.url(), config.clone());
        let rows = batch(&[1, 2]);
        let mut target = target("t", &rows.schema(), mode);
        target.primary_key = vec!["id".into()];
        let mut load = fence(&mut to, &target, run("r")).unwrap();
        load.open_writer(None).unwrap();
        let_it_idle(1.5);
        load.write(&rows).unwrap();
        let part = load.flush().unwrap();
        load.commit(whole("t", vec![part], load.progress().seq))
            .unwrap();
        assert_eq!(ids(&mut client, "raw.t"), "1,2");
    }
}

#[test]
fn a_session_that_idles_is_not_ended_unless_the_operator_wrote_it() {
    let database = database();
    let mut client = database.client();
    if one(
        &mut client,
        "SELECT current_setting('idle_session_timeout', true)",
    ) == "NULL"
    {
        // Older than PostgreSQL 14.
        return;
    }
    client
        .batch_execute(&format!(
            "ALTER DATABASE {} SET idle_session_timeout = '500ms'",
            database.name()
        ))
        .unwrap();
    let mut to = open(&database);
    let target = target("t", &batch(&[1]).schema(), WriteMode::Append);
    let_it_idle(0.8);
    to.plan(&target).unwrap();
    let_it_idle(0.8);
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    let first = load.progress().seq;
    for (seq, complete) in [(first, false), (first + 1, true)] {
        load.write(&batch(&[seq as i64])).unwrap();
        let part = load.flush().unwrap();
        let commit = Commit {
            complete,
            ..whole("t", vec![part], seq)
        };
        load.commit(commit).unwrap();
        // Between two commits no transaction is open.
        let_it_idle(0.8);
    }
    assert_eq!(ids(&mut client, "raw.t"), "0,1");
    let config = json!({"schema": "raw", "options": "-c idle_session_timeout=500ms"});
    let mut to = open_with(&database.url(), config);
    let_it_idle(0.8);
    let error = to.plan(&target).unwrap_err();
    assert_eq!(kind(&error), "Connection", "{error:?}");
}
