//! A connection that is cut at the commit.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use common::*;
use rapidbyte_testkit::postgres::shared;
use serde_json::json;

/// The message of the simple protocol.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// Forwards what `from` sends; at a COMMIT both sides are cut, after the server has answered it if
/// it `arrives`.
fn forward(mut from: TcpStream, mut to: TcpStream, arrives: bool) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_commit = bytes[..count].ends_with(COMMIT);
        if is_commit {
            from.shutdown(Shutdown::Both).unwrap();
        }
        if (!is_commit || arrives) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
        if is_commit {
            // What the server says goes nowhere; it ends after that.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A server in between that cuts the first connection at its second COMMIT, and no later one.
fn proxy(server_port: u16, arrives: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate().take(2) {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", server_port)).unwrap();
            let (mut back_from, mut back_to) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            if number == 0 {
                thread::spawn(move || forward(client, server, arrives));
            } else {
                let (mut client, mut server) = (client, server);
                thread::spawn(move || std::io::copy(&mut client, &mut server));
            }
        }
    });
    port
}

#[test]
fn a_commit_whose_answer_is_lost_is_looked_up() {
    let database = database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").unwrap();
    let port = shared().port();
    for (stream, arrives) in [("arrives", true), ("vanishes", false)] {
        let via = database
            .url()
            .replace(&port.to_string(), &proxy(port, arrives).to_string());
        let mut to = open_with(&via, json!({"schema": "raw"}));
        let result = append(&mut to, stream, &batch(&[1, 2]));
        if arrives {
            match result {
                Ok(receipt) => assert_eq!(receipt.rows, 2),
                // Asked before the server had done it.
                Err(error) => assert_eq!(error.code, "commit_unknown", "{error:?}"),
            }
        } else {
            let error = result.unwrap_err();
            assert!(
                ["commit_unknown", "connection_lost"].contains(&error.code.as_str()),
                "{error:?}"
            );
            assert_eq!(
                one(&mut client, "SELECT to_regclass('raw.vanishes')"),
                "NULL"
            );
        }
    }
}
