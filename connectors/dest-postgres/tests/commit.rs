//! A connection that is cut at the commit.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use common::*;
use rapidbyte_sdk::Commit;
use rapidbyte_sdk::prelude::{Destination, WriteMode, Writer};
use rapidbyte_testkit::postgres::shared;
use serde_json::json;

/// The message of the simple protocol.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const QUESTION: &[u8] = b"txid_status";

/// What becomes of the COMMIT whose answer never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The server gets it, and only after it was asked what became of it.
    Arrives,
    /// The server gets the end of the connection instead.
    Vanishes,
    /// So it does, and no other connection is let through.
    Unreachable,
}

/// Forwards until the COMMIT, then cuts the client off.
fn until_commit(mut from: TcpStream, mut to: TcpStream, fate: Fate, asked: &Receiver<()>) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_commit = bytes[..count].ends_with(COMMIT);
        if is_commit {
            from.shutdown(Shutdown::Both).unwrap();
            if fate == Fate::Arrives {
                asked.recv().unwrap();
            }
        }
        let is_sent = !is_commit || fate == Fate::Arrives;
        if is_sent && to.write_all(&bytes[..count]).is_err() {
            break;
        }
        if is_commit {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Forwards all, and says when the first question has gone.
fn until_question(mut from: TcpStream, mut to: TcpStream, asked: &Sender<()>) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        to.write_all(&bytes[..count]).unwrap();
        if bytes[..count]
            .windows(QUESTION.len())
            .any(|w| w == QUESTION)
        {
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
            let (mut back_from, mut back_to) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            match receiver.take() {
                Some(asked) => thread::spawn(move || until_commit(client, server, fate, &asked)),
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
                // The session goes on over the new connection.
                append(&mut to, "more", &batch(&[1])).unwrap();
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
                    ("commit_unknown", "Data".into())
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
        let mut writer = to.open_writer(&target, 0, None).unwrap();
        // The load is idle while this runs.
        one(
            &mut shared().client("postgres"),
            "SELECT count(pg_sleep(0.6))",
        );
        writer.write(&rows).unwrap();
        let part = writer.flush().unwrap();
        one(
            &mut shared().client("postgres"),
            "SELECT count(pg_sleep(0.6))",
        );
        to.commit(Commit::whole(method, vec![part])).unwrap();
        assert_eq!(ids(&mut database.client(), &format!("raw.{method}")), "1,2");
    }
}
