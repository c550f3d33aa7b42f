//! Conversations with a server that says what a test wants, byte by byte.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_sdk::Error;
use sha2::Digest as _;

use super::*;
use crate::compression::Compression;
use crate::message::{HEADER_BYTES, Header, encode};
use crate::settings::{Compressor, Settings};
use crate::wire::MAX_MESSAGE_BYTES;

/// Answers the commands of one connection, until it ends. `None` closes it.
fn serve(
    mut answer: impl FnMut(Document<'_>) -> Option<Builder> + Send + 'static,
    compressor: Option<Compressor>,
) -> (u16, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut compressed = 0;
        while let Some((request, kind, body)) = next(&mut stream) {
            compressed += usize::from(kind == 2012);
            let header = header_of(request, kind, body.len());
            let all = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
            let read = header.document(body, &all, MAX_MESSAGE_BYTES).unwrap();
            let Some(reply) = answer(Document::parse(read.bytes()).unwrap()) else {
                break;
            };
            let compression = compressor
                .filter(|_| kind == 2012)
                .map(|compressor| Compression {
                    compressor,
                    zlib_level: 6,
                });
            let bytes = reply.finish().unwrap();
            let mut message = encode(99, &bytes, None, compression).unwrap();
            message[8..12].copy_from_slice(&request.to_le_bytes());
            stream.write_all(&message).unwrap();
        }
        compressed
    });
    (port, served)
}

fn header_of(request: i32, kind: i32, body: usize) -> Header {
    let len = i32::try_from(HEADER_BYTES + body).unwrap();
    let numbers = [len, request, 0, kind].map(i32::to_le_bytes).concat();
    Header::decode(numbers.try_into().unwrap(), MAX_MESSAGE_BYTES).unwrap()
}

/// The number, the kind and the body of the next message.
fn next(stream: &mut TcpStream) -> Option<(i32, i32, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let (numbers, _) = header.as_chunks::<4>();
    let number = |at: usize| i32::from_le_bytes(numbers[at]);
    let mut body = vec![0; usize::try_from(number(0)).unwrap() - HEADER_BYTES];
    stream.read_exact(&mut body).ok()?;
    Some((number(1), number(3), body))
}

fn ok() -> Builder {
    let mut reply = Builder::new();
    reply.int32("ok", 1);
    reply
}

fn hello(command: Document<'_>, more: impl FnOnce(&mut Builder)) -> Option<Builder> {
    let is_hello = command.get("hello").unwrap().is_some();
    is_hello.then(|| {
        let mut reply = ok();
        reply.int32("maxWireVersion", 21);
        more(&mut reply);
        reply
    })
}

fn writable(reply: &mut Builder) {
    reply.boolean("isWritablePrimary", true);
}

fn connect(port: u16, user: &str, options: &str) -> Result<Client> {
    let url = format!("mongodb://{user}127.0.0.1:{port}/d?connectTimeoutMS=10000{options}");
    Client::connect(&Settings::from_url(&url)?)
}

fn code(connected: Result<Client>) -> String {
    connected
        .map(|_| ())
        .map_err(|error: Error| error.code)
        .unwrap_err()
}

fn ping() -> Builder {
    let mut ping = Builder::new();
    ping.int32("ping", 1);
    ping
}

/// The fewest that a client accepts.
const ITERATIONS: u32 = 4096;

/// The server's side of SCRAM, RFC 5802, with a hash of the password that is `M`.
fn scram<M: Mac + KeyInit>(
    password: &'static str,
    mechanism: &'static str,
    hash: fn(&[u8]) -> Vec<u8>,
    lies: bool,
) -> impl FnMut(Document<'_>) -> Option<Builder> + Send {
    fn keyed<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).unwrap();
        mac.update(text);
        mac.finalize().into_bytes().to_vec()
    }
    let (mut bare, mut first) = (String::new(), String::new());
    move |command| {
        let greeting = hello(command, |reply| {
            writable(reply);
            reply
                .open_array("saslSupportedMechs")
                .string("0", mechanism)
                .close();
        });
        if greeting.is_some() {
            return greeting;
        }
        let Some(Value::Binary { bytes, .. }) = command.get("payload").unwrap() else {
            return Some(ok());
        };
        let payload = std::str::from_utf8(bytes).unwrap();
        let mut reply = ok();
        reply.int32("conversationId", 7);
        if command.get("saslStart").unwrap().is_some() {
            assert_eq!(
                command.get("mechanism").unwrap(),
                Some(Value::String(mechanism))
            );
            assert_eq!(command.get("$db").unwrap(), Some(Value::String("users")));
            bare = payload.strip_prefix("n,,").unwrap().to_owned();
            let nonce = bare.strip_prefix("n=a=3Db,r=").unwrap();
            first = format!("r={nonce}server,s={},i={ITERATIONS}", BASE64.encode("salt"));
            reply
                .boolean("done", false)
                .binary("payload", first.as_bytes());
            return Some(reply);
        }
        assert_eq!(
            command.get("conversationId").unwrap(),
            Some(Value::Int32(7))
        );
        let (without_proof, proof) = payload.rsplit_once(",p=").unwrap();
        let exchange = format!("{bare},{first},{without_proof}");
        let mut last = keyed::<M>(password.as_bytes(), b"salt\0\0\0\x01");
        let mut salted = last.clone();
        for _ in 1..ITERATIONS {
            last = keyed::<M>(password.as_bytes(), &last);
            salted
                .iter_mut()
                .zip(&last)
                .for_each(|(all, last)| *all ^= last);
        }
        let stored = hash(&keyed::<M>(&salted, b"Client Key"));
        let signature = keyed::<M>(&stored, exchange.as_bytes());
        let proof = BASE64.decode(proof).unwrap();
        let key: Vec<u8> = proof.iter().zip(signature).map(|(p, s)| p ^ s).collect();
        if hash(&key) != stored {
            let mut refused = Builder::new();
            refused
                .int32("ok", 0)
                .int32("code", 18)
                .string("errmsg", "Authentication failed.");
            return Some(refused);
        }
        let server = keyed::<M>(&salted, if lies { b"Client Key" } else { b"Server Key" });
        let proof = keyed::<M>(&server, exchange.as_bytes());
        let last = format!("v={}", BASE64.encode(proof));
        reply
            .boolean("done", true)
            .binary("payload", last.as_bytes());
        Some(reply)
    }
}

#[test]
fn both_mechanisms_prove_the_password_and_the_server() {
    let sha_256 = |lies| {
        let hash = |bytes: &[u8]| sha2::Sha256::digest(bytes).to_vec();
        scram::<Hmac<sha2::Sha256>>("pencil", "SCRAM-SHA-256", hash, lies)
    };
    // printf 'a=b:mongo:pencil' | md5sum
    let sha_1 = |lies| {
        let hash = |bytes: &[u8]| sha1::Sha1::digest(bytes).to_vec();
        let password = "4514c56ce463b9fe9e489437dcf2a1f6";
        scram::<Hmac<sha1::Sha1>>(password, "SCRAM-SHA-1", hash, lies)
    };
    let user = |password: &str| format!("a%3Db:{password}@");
    let options = "&authSource=users";
    for (right, wrong, lies) in [
        (
            serve(sha_256(false), None).0,
            serve(sha_256(false), None).0,
            serve(sha_256(true), None).0,
        ),
        (
            serve(sha_1(false), None).0,
            serve(sha_1(false), None).0,
            serve(sha_1(true), None).0,
        ),
    ] {
        let mut client = connect(right, &user("pencil"), options).unwrap();
        client.command("d", ping()).unwrap();
        assert_eq!(code(connect(wrong, &user("pen"), options)), "mongo_18");
        assert_eq!(
            code(connect(lies, &user("pencil"), options)),
            "server_not_proven"
        );
    }
}

#[test]
fn messages_are_compressed_both_ways_as_the_url_prefers() {
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let name = compressor.name();
        let answer = move |command: Document<'_>| {
            let greeting = hello(command, |reply| {
                writable(reply);
                reply.open_array("compression").string("0", name).close();
            });
            greeting.or_else(|| {
                let mut reply = ok();
                reply.string("text", &"x".repeat(100_000));
                Some(reply)
            })
        };
        let (port, served) = serve(answer, Some(compressor));
        let mut client = connect(port, "", "&compressors=zstd,snappy,zlib").unwrap();
        for _ in 0..2 {
            let reply = client.command("d", ping()).unwrap();
            assert!(reply.document().unwrap().as_bytes().len() > 100_000);
        }
        drop(client);
        // Not the greeting.
        assert_eq!(served.join().unwrap(), 2, "{name}");
    }
}

#[test]
fn an_older_server_knows_hello_by_its_older_name() {
    let answer = |command: Document<'_>| {
        if command.get("isMaster").unwrap().is_some() {
            let mut reply = ok();
            reply.boolean("ismaster", true).int32("maxWireVersion", 6);
            return Some(reply);
        }
        let mut reply = Builder::new();
        reply
            .int32("ok", 0)
            .int32("code", 59)
            .string("errmsg", "no such command");
        Some(reply)
    };
    let (port, _) = serve(answer, None);
    let client = connect(port, "", "").unwrap();
    assert!(client.hello().is_writable);
}

#[test]
fn a_server_that_will_not_do_says_why() {
    let secondary = |reply: &mut Builder| {
        reply
            .boolean("isWritablePrimary", false)
            .boolean("secondary", true)
            .string("setName", "rs")
            .string("primary", "db-1.internal:27017");
    };
    let port = || serve(move |command| hello(command, secondary), None).0;
    let error = connect(port(), "", "").map(|_| ()).unwrap_err();
    assert_eq!(error.code, "no_primary");
    assert!(error.hint.unwrap().contains("db-1.internal:27017"));
    assert_eq!(
        code(connect(port(), "", "&replicaSet=other")),
        "replica_set_differs"
    );
    connect(port(), "", "&replicaSet=rs&readPreference=secondary").unwrap();
    connect(port(), "", "&directConnection=true").unwrap();
    let old = |command: Document<'_>| {
        let greeting = hello(command, writable);
        greeting.map(|_| {
            let mut reply = ok();
            reply
                .int32("maxWireVersion", 5)
                .boolean("isWritablePrimary", true);
            reply
        })
    };
    assert_eq!(code(connect(serve(old, None).0, "", "")), "server_too_old");
}

#[test]
fn the_primary_is_found_among_several_hosts() {
    let is = |is_primary: bool| {
        let answer = move |command: Document<'_>| {
            let greeting = hello(command, |reply| {
                reply
                    .boolean("isWritablePrimary", is_primary)
                    .boolean("secondary", !is_primary)
                    .string("setName", "rs");
            });
            greeting.or_else(|| Some(ok()))
        };
        serve(answer, None).0
    };
    let (first, second) = (is(false), is(true));
    let url = format!("mongodb://127.0.0.1:1,127.0.0.1:{first},127.0.0.1:{second}/d?replicaSet=rs");
    let mut client = Client::connect(&Settings::from_url(&url).unwrap()).unwrap();
    assert_eq!(client.host().port, second);
    client.command("d", ping()).unwrap();
    let url = format!(
        "mongodb://127.0.0.1:{},127.0.0.1:{}/d",
        is(false),
        is(false)
    );
    let error = Client::connect(&Settings::from_url(&url).unwrap());
    assert_eq!(code(error), "no_primary");
}

#[test]
fn a_connection_that_failed_within_an_answer_is_of_no_further_use() {
    let answer = |command: Document<'_>| hello(command, writable);
    let (port, _) = serve(answer, None);
    let mut client = connect(port, "", "").unwrap();
    let error = client.command("d", ping()).map(|_| ()).unwrap_err();
    assert_eq!(error.code, "connection_lost");
    assert!(!client.is_usable());
    let error = client.command("d", ping()).map(|_| ()).unwrap_err();
    assert_eq!(error.code, "connection_unusable");
}

#[test]
fn two_commands_are_sent_before_the_first_answer_and_answered_in_their_order() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let say = |mut stream: &TcpStream, request: i32, reply: Builder| {
            let mut message = encode(99, &reply.finish().unwrap(), None, None).unwrap();
            message[8..12].copy_from_slice(&request.to_le_bytes());
            stream.write_all(&message).unwrap();
        };
        let (greeting, kind, body) = next(&mut stream).unwrap();
        let header = header_of(greeting, kind, body.len());
        let read = header.document(body, &[], MAX_MESSAGE_BYTES).unwrap();
        let reply = hello(Document::parse(read.bytes()).unwrap(), writable).unwrap();
        say(&stream, greeting, reply);
        for round in 0..2 {
            let first = next(&mut stream).unwrap().0;
            // It says nothing before this one has come.
            let second = next(&mut stream).unwrap().0;
            let mut refused = Builder::new();
            refused
                .int32("ok", 0)
                .int32("code", 59)
                .string("errmsg", "no");
            say(&stream, first, if round == 0 { refused } else { ok() });
            let mut reply = ok();
            reply.int32("n", round);
            // The answers of the second round are in another order.
            say(&stream, if round == 0 { second } else { first }, reply);
        }
    });
    let mut client = connect(port, "", "").unwrap();
    let [first, second] = client.command_both("d", [ping(), ping()]).unwrap();
    assert_eq!(crate::error::number_of(&first.unwrap_err()), Some(59));
    let second = second.unwrap();
    let n = second.document().unwrap().get("n").unwrap();
    assert_eq!(n.and_then(|n| n.as_whole()), Some(0));
    assert!(client.is_usable());
    let error = client.command_both("d", [ping(), ping()]).unwrap_err();
    assert_eq!(error.code, "protocol_violation");
    assert!(!client.is_usable());
    served.join().unwrap();
}

/// The greeting without TLS is answered with these bytes, and then with the end.
#[test]
fn a_server_that_expects_tls_is_named_so() {
    for (answer, code) in [
        // An alert of TLS 1.2: unexpected_message.
        (&[21, 3, 3, 0, 2, 2, 10][..], "tls_required"),
        (&[], "connection_lost"),
        (&[21, 3], "connection_lost"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            next(&mut stream).unwrap();
            stream.write_all(answer).unwrap();
        });
        let error = connect(port, "", "").map(|_| ()).unwrap_err();
        assert_eq!(error.code, code, "{answer:?}");
        assert!(error.message.contains(&port.to_string()), "{error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.contains("set tls=true"), "{answer:?}: {hint}");
        served.join().unwrap();
    }
}

#[test]
fn limits_of_a_server_are_cut_or_refused() {
    let greeted = |name: &'static str, number: i64| {
        let answer = move |command: Document<'_>| {
            hello(command, |reply| {
                writable(reply);
                reply.int64(name, number);
            })
        };
        connect(serve(answer, None).0, "", "").map(|client| client.hello().clone())
    };
    let hello = greeted("maxBsonObjectSize", i64::MAX).unwrap();
    assert_eq!(hello.max_bson_bytes, 16 << 20);
    assert_eq!(hello.max_message_bytes, MAX_MESSAGE_BYTES);
    assert_eq!(greeted("maxWriteBatchSize", 1).unwrap().max_writes, 1);
    for (name, number) in [
        ("maxBsonObjectSize", 7),
        ("maxMessageSizeBytes", -5),
        ("maxWriteBatchSize", 0),
    ] {
        let error = greeted(name, number).unwrap_err();
        assert_eq!(error.code, "protocol_violation", "{name}");
        assert!(error.message.contains(name), "{error:?}");
    }
}

#[test]
fn a_cursor_that_does_not_end_is_an_error() {
    let endless = |documents: i32| {
        move |command: Document<'_>| {
            hello(command, writable).or_else(|| {
                let mut reply = ok();
                reply
                    .open_document("cursor")
                    .int64("id", 7)
                    .string("ns", "d.c")
                    .open_array("nextBatch");
                for at in 0..documents {
                    reply.open_document(&at.to_string()).close();
                }
                reply.close().close();
                Some(reply)
            })
        }
    };
    let read = |documents: i32, most: Option<usize>| -> Error {
        let mut client = connect(serve(endless(documents), None).0, "", "").unwrap();
        let mut cursor = client.find("d", ping()).unwrap();
        if let Some(most) = most {
            cursor = cursor.at_most(most);
        }
        loop {
            match cursor.next(&mut client, 0) {
                Ok(batch) => assert!(batch.is_some()),
                Err(error) => return error,
            }
        }
    };
    assert!(read(0, None).message.contains("empty batches"));
    assert!(read(3, Some(10)).message.contains("more documents"));
}
