//! TLS as a guest meets it, against rustls's server on a thread.

mod server;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use rcgen::{SigningKey, date_time_ymd};
use ring::digest::{SHA256, digest};
use tempfile::TempDir;

use crate::Phase;
use crate::bindings::connection::{HostConnection, Readiness};
use crate::bindings::types::{Error, ErrorKind};
use crate::host::tls::certificate::Parts;
use crate::state::Cancelled;
use server::{Authority, Guest, LONG, Pair, REQUEST, Served, answer, for_client, listen, serve};

/// A folder of one test with the authority's certificate in `ca.pem`.
fn folder(authority: &Authority) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "ca.pem", &authority.certificate.pem());
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("a file");
}

/// A key file that is its owner's alone.
fn write_key(folder: &Path, name: &str, text: &str) {
    write(folder, name, text);
    let path = folder.join(name);
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a mode");
}

fn pem(certificate: &[u8]) -> String {
    let mut encoded = String::from("-----BEGIN CERTIFICATE-----\n");
    encoded.push_str(&base64(certificate));
    encoded.push_str("\n-----END CERTIFICATE-----\n");
    encoded
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

/// Reads a length, then as many bytes, and sends them back.
fn echo(served: &mut Served) {
    let mut len = [0; 4];
    served.read_exact(&mut len).expect("a length");
    let mut data = vec![0; u32::from_be_bytes(len) as usize];
    served.read_exact(&mut data).expect("the bytes");
    served.write_all(&data).expect("the bytes go back");
    served.conn.send_close_notify();
    served.flush().expect("the end goes out");
}

fn assert_error(error: &Error, code: &str, part: &str) {
    assert_eq!(error.code, code, "{error:?}");
    let text = format!("{} {}", error.message, error.hint.as_deref().unwrap_or("-"));
    assert!(text.contains(part), "{part:?} is not in {text}");
}

/// The outcome of the handshake with this certificate and these parameters.
fn outcome(pair: &Pair, query: &str, folder: &Path) -> Result<(), Error> {
    let mut outcomes = [true, false].map(|tls13| {
        let port = serve(pair.server(tls13, None), echo);
        let mut guest = Guest::new("localhost", port, query, folder);
        let info = guest.secure()?;
        assert_eq!(info.end_point, digest(&SHA256, &pair.certificate).as_ref());
        guest.write(&[0, 0, 0, 2, b'h', b'i'])?;
        assert_eq!(guest.read_exact(2)?, b"hi");
        Ok(())
    });
    let codes = outcomes
        .each_ref()
        .map(|o| o.as_ref().err().map(|e: &Error| &e.code));
    assert_eq!(codes[0], codes[1], "the same in TLS 1.3 and 1.2");
    std::mem::replace(&mut outcomes[0], Ok(()))
}

#[test]
fn bytes_pass_both_ways_and_the_end_is_the_declared_one() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    for tls13 in [true, false] {
        let port = serve(right.server(tls13, None), |served| {
            assert_eq!(served.conn.server_name(), Some("localhost"));
            echo(served);
        });
        let query = "sslmode=verify-full&sslrootcert=ca.pem";
        let mut guest = Guest::new("localhost", port, query, folder.path());
        guest.secure().expect("TLS");
        assert!(guest.state.sandbox.clock.spent(Phase::Connect) > Duration::ZERO);
        let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 / 3) as u8).collect();
        guest
            .write(&(data.len() as u32).to_be_bytes())
            .expect("sent");
        guest.write(&data).expect("sent");
        assert!(guest.read_exact(data.len()).expect("bytes") == data);
        assert_eq!(guest.read(10).expect("the end"), b"");
        assert_eq!(guest.read(10).expect("the end again"), b"");
    }
}

#[test]
fn each_mode_checks_what_it_should() {
    let (authority, other) = (Authority::new(), Authority::new());
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let elsewhere = authority.issue(&["db.test", "*.db.test"], |_| {});
    let no_san = authority.issue(&[], |_| {});
    let expired = authority.issue(&["localhost"], |p| p.not_after = date_time_ymd(2020, 1, 1));
    let future = authority.issue(&["localhost"], |p| p.not_before = date_time_ymd(2200, 1, 1));
    let foreign = other.issue(&["localhost"], |_| {});
    let alone = server::self_signed(&["localhost"], false);
    let its_own = server::self_signed(&["localhost"], true);
    write(folder.path(), "own.pem", &pem(&its_own.certificate));
    write(folder.path(), "alone.pem", &pem(&alone.certificate));
    let (ca, full) = ("sslmode=verify-ca&sslrootcert=ca.pem", "sslrootcert=ca.pem");
    for (name, pair, query, code) in [
        ("right", &right, full, ""),
        (
            "right, public authorities only",
            &right,
            "sslmode=verify-full",
            "tls_unknown_ca",
        ),
        (
            "right, public authorities only",
            &right,
            "sslrootcert=system",
            "tls_unknown_ca",
        ),
        ("wrong name", &elsewhere, full, "tls_wrong_name"),
        ("wrong name", &elsewhere, ca, ""),
        ("no san", &no_san, full, "tls_no_san"),
        ("no san", &no_san, ca, ""),
        ("expired", &expired, ca, "tls_expired"),
        ("future", &future, ca, "tls_expired"),
        ("foreign", &foreign, ca, "tls_unknown_ca"),
        (
            "foreign",
            &foreign,
            "sslmode=require&sslrootcert=ca.pem",
            "tls_unknown_ca",
        ),
        (
            "foreign",
            &foreign,
            "sslmode=prefer&sslrootcert=ca.pem",
            "tls_unknown_ca",
        ),
        ("foreign", &foreign, "sslmode=require", ""),
        ("alone", &alone, ca, "tls_self_signed"),
        ("its own authority", &its_own, ca, "tls_self_signed"),
        ("alone and named", &alone, "sslrootcert=alone.pem", ""),
        (
            "its own authority and named",
            &its_own,
            "sslrootcert=own.pem",
            "",
        ),
        ("expired, unchecked", &expired, "", ""),
        ("no san, unchecked", &no_san, "sslmode=allow", ""),
    ] {
        let found = outcome(pair, query, folder.path());
        let found = found.as_ref().err();
        assert_eq!(
            found.map_or("", |e| &e.code),
            code,
            "{name} with {query}: {found:?}"
        );
        if let Some(error) = found {
            assert!(
                error.hint.is_some() && error.message.contains("localhost:"),
                "{error:?}"
            );
            assert!(matches!(error.kind, ErrorKind::Auth), "{error:?}");
        }
    }
    let error = outcome(&elsewhere, full, folder.path()).expect_err("a wrong name");
    assert_error(&error, "tls_wrong_name", "for db.test, *.db.test");
}

#[test]
fn an_address_is_checked_and_not_sent_as_a_name() {
    let authority = Authority::new();
    let folder = folder(&authority);
    for (san, code) in [
        ("127.0.0.1", ""),
        ("127.0.0.2", "tls_wrong_name"),
        ("localhost", "tls_wrong_name"),
    ] {
        let pair = authority.issue(&[san], |_| {});
        let port = serve(pair.server(true, None), |served| {
            assert_eq!(served.conn.server_name(), None);
            echo(served);
        });
        let mut guest = Guest::new("127.0.0.1", port, "sslrootcert=ca.pem", folder.path());
        let found = guest.secure().err();
        assert_eq!(
            found.as_ref().map_or("", |e| &e.code),
            code,
            "{san}: {found:?}"
        );
        if found.is_none() {
            guest.write(&[0, 0, 0, 1, 1]).expect("sent");
            assert_eq!(guest.read(10).expect("bytes"), [1]);
        }
    }
}

/// The certificate as X.509 version 1: no version, no extensions, signed again.
fn version_1(pair: Pair) -> Pair {
    let element = |tag: u8, content: &[u8]| {
        let [high, low] = (content.len() as u16).to_be_bytes();
        let len = match (high, low) {
            (0, 0..0x80) => vec![low],
            (0, _) => vec![0x81, low],
            _ => vec![0x82, high, low],
        };
        [&[tag], &len[..], content].concat()
    };
    let parts = Parts::of(&pair.certificate).expect("parts");
    let algorithm = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2][..];
    let validity = b"\x30\x1e\x17\x0d240101000000Z\x17\x0d440101000000Z";
    let signed = [
        &[2, 1, 1],
        algorithm,
        parts.issuer,
        validity,
        parts.subject,
        parts.public_key,
    ];
    let signed = element(0x30, &signed.concat());
    let signature = pair.key.sign(&signed).expect("a signature");
    let signature = element(3, &[&[0], &signature[..]].concat());
    let whole = element(0x30, &[&signed[..], algorithm, &signature].concat());
    Pair {
        certificate: whole.into(),
        key: pair.key,
    }
}

#[test]
fn an_old_certificate_does_where_none_is_checked() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let old = version_1(server::self_signed(&[], false));
    write(folder.path(), "old.pem", &pem(&old.certificate));
    outcome(&old, "", folder.path()).expect("unchecked");
    outcome(&old, "sslmode=require", folder.path()).expect("unchecked");
    let error = outcome(&old, "sslmode=verify-ca&sslrootcert=old.pem", folder.path());
    assert_error(&error.expect_err("refused"), "tls_no_san", "version 3");
}

#[test]
fn a_server_without_the_certificates_key_is_refused_in_every_mode() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let thief = Pair {
        certificate: right.certificate,
        key: rcgen::KeyPair::generate().expect("a key"),
    };
    let old = version_1(server::self_signed(&[], false));
    let old_thief = Pair {
        certificate: old.certificate,
        key: rcgen::KeyPair::generate().expect("a key"),
    };
    for pair in [thief, old_thief] {
        for tls13 in [true, false] {
            let port = serve(pair.server(tls13, None), echo);
            let mut guest = Guest::new("localhost", port, "sslmode=prefer", folder.path());
            let error = guest.secure().expect_err("refused");
            assert_error(&error, "tls_handshake", "BadSignature");
        }
    }
}

#[test]
fn a_client_certificate_is_shown_when_asked_for() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let client = authority.issue(&["user"], for_client);
    let foreign = Authority::new().issue(&["user"], for_client);
    for (name, pair) in [("client", &client), ("foreign", &foreign)] {
        write(
            folder.path(),
            &format!("{name}.pem"),
            &pem(&pair.certificate),
        );
        write_key(
            folder.path(),
            &format!("{name}.key"),
            &pair.key.serialize_pem(),
        );
    }
    for tls13 in [true, false] {
        let run = |query: &str| {
            let config = right.server(tls13, Some(&authority));
            let port = serve(config, echo);
            let mut guest = Guest::new("localhost", port, query, folder.path());
            guest.secure()?;
            // In TLS 1.3 the server's word comes after the client's handshake is over.
            let _ = guest.write(&[0, 0, 0, 1, 7]);
            guest.read(10)
        };
        let shown = run("sslmode=require&sslcert=client.pem&sslkey=client.key");
        assert_eq!(shown.expect("accepted"), [7]);
        let error = run("sslmode=require").expect_err("refused");
        assert_error(&error, "tls_handshake", "set sslcert and sslkey");
        let error = run("sslcert=foreign.pem&sslkey=foreign.key").expect_err("refused");
        assert_error(&error, "tls_handshake", "certificate of sslcert");
    }
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let key = right.key.serialize_pem();
    write(folder.path(), "cert.pem", &pem(&right.certificate));
    write(folder.path(), "open.key", &key);
    write_key(folder.path(), "cut.key", &key[..key.len() - 30]);
    write_key(
        folder.path(),
        "other.key",
        &Authority::new().issue(&[], |_| {}).key.serialize_pem(),
    );
    write_key(
        folder.path(),
        "locked.key",
        &key.replace("PRIVATE", "ENCRYPTED PRIVATE"),
    );
    write(
        folder.path(),
        "odd.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    write(folder.path(), "text.pem", "secret content");
    for (query, file, part) in [
        ("sslrootcert=none.pem", "none.pem", "No such file"),
        ("sslrootcert=.", "sslrootcert: .", "not a regular file"),
        ("sslrootcert=text.pem", "text.pem", "no certificate"),
        ("sslrootcert=odd.pem", "odd.pem", "cannot be used"),
        (
            "sslcert=none.pem&sslkey=open.key",
            "none.pem",
            "No such file",
        ),
        ("sslcert=cert.pem&sslkey=open.key", "open.key", "chmod 600"),
        (
            "sslcert=cert.pem&sslkey=cut.key",
            "cut.key",
            "no private key",
        ),
        (
            "sslcert=cert.pem&sslkey=locked.key",
            "locked.key",
            "password",
        ),
        (
            "sslcert=cert.pem&sslkey=other.key",
            "other.key",
            "fit together",
        ),
    ] {
        let error = outcome(&right, query, folder.path()).expect_err(query);
        assert_error(&error, "tls_bad_file", file);
        assert_error(&error, "tls_bad_file", part);
        assert_eq!(error.location.as_deref(), Some("config.url"), "{query}");
        let text = format!("{error:?}");
        let secrets = key.lines().filter(|line| !line.starts_with('-'));
        assert!(
            !secrets
                .chain(["secret content"])
                .any(|line| text.contains(line)),
            "{text}"
        );
    }
}

#[test]
fn without_tls_nothing_passes_where_it_is_required() {
    let folder = tempfile::tempdir().expect("a folder");
    for query in [
        "sslmode=require",
        "sslmode=verify-ca",
        "sslmode=verify-full",
        "sslrootcert=a",
    ] {
        let port = listen(|stream| answer(&stream, b"N"));
        let mut guest = Guest::new("localhost", port, query, folder.path());
        let error = guest.write(b"password").expect_err("no plaintext");
        assert_error(&error, "tls_required", "sslmode=");
        guest.write(&REQUEST).expect("the request");
        assert_eq!(guest.read(4096).expect("an answer"), b"N");
        let error = guest.read(1).expect_err("no second byte");
        assert_error(&error, "tls_required", "does not offer TLS");
        let error = guest.write(b"password").expect_err("no plaintext");
        assert_error(&error, "tls_required", "ssl = on");
    }
    let port = listen(|mut stream| {
        answer(&stream, b"N");
        stream.write_all(b"plain").expect("bytes");
    });
    let mut guest = Guest::new("localhost", port, "sslmode=prefer", folder.path());
    guest.write(&REQUEST).expect("the request");
    assert_eq!(guest.read(4096).expect("an answer"), b"N");
    assert_eq!(guest.read_exact(5).expect("bytes"), b"plain");
}

#[test]
fn bytes_put_in_before_tls_are_fatal() {
    let authority = Authority::new();
    let folder = folder(&authority);
    for query in [
        "sslmode=allow",
        "sslmode=prefer",
        "sslmode=require",
        "sslrootcert=ca.pem",
    ] {
        let (go, gone) = bounded::<()>(0);
        let port = listen(move |stream| {
            answer(&stream, b"Sinjected");
            let _ = gone.recv();
        });
        let mut guest = Guest::new("localhost", port, query, folder.path());
        let error = guest.secure().expect_err("refused");
        assert_error(&error, "tls_injected", "plaintext");
        assert_eq!(
            guest.read(10).expect_err("nothing follows").code,
            "connection_lost"
        );
        assert_eq!(
            guest.write(b"x").expect_err("nothing follows").code,
            "connection_lost"
        );
        drop(go);
    }
}

#[test]
fn start_tls_is_refused_where_it_makes_no_sense() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let error = outcome(&right, "sslmode=disable", folder.path()).expect_err("disabled");
    assert_error(&error, "tls_disabled", "sslmode=prefer");
    let port = serve(right.server(true, None), echo);
    let mut guest = Guest::new("localhost", port, "", folder.path());
    guest.secure().expect("TLS");
    assert_error(
        &guest.start_tls().expect_err("twice"),
        "tls_handshake",
        "already",
    );
    let port = serve(right.server(true, None), echo);
    let mut guest = Guest::new("localhost", port, "", folder.path());
    let other = guest.state.start_tls(guest.this(), "db.test".into(), LONG);
    assert_error(
        &other.expect("not cancelled").expect_err("other"),
        "tls_wrong_name",
        "db.test",
    );
}

#[test]
fn a_server_that_closes_or_talks_nonsense_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |serve: fn(std::net::TcpStream)| {
        let mut guest = Guest::new("localhost", listen(serve), "", folder.path());
        guest.secure().expect_err("no TLS")
    };
    let error = run(|mut stream| {
        answer(&stream, b"S");
        stream
            .read_exact(&mut [0; 100])
            .expect("a part of the hello");
        stream.set_nonblocking(true).expect("a mode");
        let _ = stream.read(&mut [0; 4096]);
    });
    assert_error(&error, "tls_handshake", "closed the connection");
    let error = run(|mut stream| {
        answer(&stream, b"S");
        stream.read_exact(&mut [0; 5]).expect("a part of the hello");
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .expect("nonsense");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_error(&error, "tls_handshake", "answers without TLS");
}

/// A server that says yes, takes the beginning of the hello, tells so and falls silent.
fn silent() -> (u16, crossbeam_channel::Receiver<()>) {
    let (hello, came) = bounded(1);
    let port = listen(move |mut stream| {
        answer(&stream, b"S");
        stream.read_exact(&mut [0; 5]).expect("a hello");
        hello.send(()).expect("a test");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (port, came)
}

#[test]
fn a_silent_handshake_ends_at_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, _came) = silent();
    let mut guest = Guest::new("localhost", port, "", folder.path());
    guest.write(&REQUEST).expect("the request");
    guest.read(1).expect("the answer");
    let start = Instant::now();
    let agreed = guest.state.start_tls(guest.this(), "localhost".into(), 50);
    let took = start.elapsed();
    assert_error(
        &agreed.expect("not cancelled").expect_err("late"),
        "timeout",
        "50 ms",
    );
    assert!(
        took >= Duration::from_millis(50) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn a_cancelled_run_leaves_the_handshake() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, came) = silent();
    let mut guest = Guest::new("localhost", port, "", folder.path());
    guest.write(&REQUEST).expect("the request");
    guest.read(1).expect("the answer");
    let cancel = guest.cancel.clone();
    let canceller = std::thread::spawn(move || {
        came.recv().expect("the handshake began");
        cancel.cancel();
    });
    let agreed = guest
        .state
        .start_tls(guest.this(), "localhost".into(), 600_000);
    let error = agreed.expect_err("cancelled");
    assert!(error.is::<Cancelled>(), "{error:?}");
    canceller.join().expect("cancels");
}

#[test]
fn a_cut_connection_is_not_taken_for_the_end() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let port = serve(right.server(true, None), |served| {
        served.write_all(b"half").expect("bytes");
    });
    let mut guest = Guest::new("localhost", port, "sslrootcert=ca.pem", folder.path());
    guest.secure().expect("TLS");
    assert_eq!(guest.read_exact(4).expect("bytes"), b"half");
    for _ in 0..2 {
        let error = guest.read(10).expect_err("no end");
        assert_error(&error, "connection_lost", "without the end");
    }
}

#[test]
fn waiting_sees_what_is_decrypted_already_and_nothing_less() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let right = authority.issue(&["localhost"], |_| {});
    let (step, steps) = bounded::<()>(0);
    let port = serve(right.server(true, None), move |served| {
        steps.recv().expect("a step");
        served.write_all(&[1; 100]).expect("a record");
        steps.recv().expect("a step");
        // A record in two pieces.
        let mut record = Vec::new();
        served.conn.writer().write_all(&[2; 50]).expect("bytes");
        served.conn.write_tls(&mut record).expect("a record");
        let (first, second) = record.split_at(30);
        served.sock.write_all(first).expect("a half");
        steps.recv().expect("a step");
        served.sock.write_all(second).expect("the other half");
        let _ = served.read(&mut [0]);
    });
    let mut guest = Guest::new("localhost", port, "sslrootcert=ca.pem", folder.path());
    guest.secure().expect("TLS");
    use Readiness::{Readable, Writable};
    let wait = |guest: &mut Guest, interest: &[Readiness], ms| {
        let ready = guest.state.wait(guest.this(), interest.to_vec(), ms);
        ready.expect("not cancelled").expect("ready or not")
    };
    // Session tickets are in the socket, and are nothing to read.
    assert!(wait(&mut guest, &[Readable], 30).is_empty());
    assert!(matches!(
        wait(&mut guest, &[Readable, Writable], LONG)[..],
        [Writable]
    ));
    step.send(()).expect("a server");
    assert!(matches!(
        wait(&mut guest, &[Readable], LONG)[..],
        [Readable]
    ));
    assert_eq!(guest.read(10).expect("bytes"), [1; 10]);
    assert!(matches!(
        wait(&mut guest, &[Readable, Writable], LONG)[..],
        [Readable, Writable]
    ));
    assert!(matches!(
        wait(&mut guest, &[Readable], LONG)[..],
        [Readable]
    ));
    assert_eq!(guest.read(1000).expect("bytes"), [1; 90]);
    step.send(()).expect("a server");
    assert!(wait(&mut guest, &[Readable], 30).is_empty());
    step.send(()).expect("a server");
    assert!(matches!(
        wait(&mut guest, &[Readable], LONG)[..],
        [Readable]
    ));
    assert_eq!(guest.read(1000).expect("bytes"), [2; 50]);
    let this = wasmtime::component::Resource::new_own(guest.this().rep());
    crate::bindings::connection::HostConnection::drop(&mut guest.state, this).expect("dropped");
}
