//! Against a peer that is not a PostgreSQL server, or a bad server.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use rapidbyte_pg_client::{Client, Settings};
use rapidbyte_sdk::{Error, ErrorKind};

/// The result of a client whose server answers the start-up message with `answer`, and nothing after
/// it.
fn against(answer: &'static [u8]) -> Result<Client, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut greeting = [0; 1024];
        let _ = stream.read(&mut greeting);
        stream.write_all(answer).unwrap();
        // Until the client has gone.
        let _ = stream.read(&mut greeting);
    });
    let url = format!("postgres://u:p@127.0.0.1:{port}/d?connect_timeout=2");
    let result = Client::connect(&Settings::from_url(&url).unwrap());
    let result = result.inspect(|client| assert!(!client.is_usable()));
    server.join().unwrap();
    result
}

#[test]
fn nonsense_is_a_typed_error_and_never_a_panic() {
    for (answer, code) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "message_too_large",
        ),
        (b"R\xff\xff\xff\xff", "protocol_violation"),
        (b"R\x00\x00\x00\x03", "protocol_violation"),
        (b"R\x7f\xff\xff\xff", "message_too_large"),
        (b"R\x00\x00\x00\x04", "protocol_violation"),
        (b"R\x00\x00\x00\x08\x00\x00\x00\x63", "protocol_violation"),
        (b"R\x00\x00\x00\x08\x00\x00\x00\x07", "auth_unsupported"),
        (b"R\x00\x00\x00\x08\x00\x00\x00\x09", "auth_unsupported"),
        // SASL without an end of its list, and with a mechanism of its own.
        (b"R\x00\x00\x00\x0a\x00\x00\x00\x0aXY", "protocol_violation"),
        (
            b"R\x00\x00\x00\x0b\x00\x00\x00\x0aX\0\0",
            "auth_unsupported",
        ),
        // An error without an end, one without fields, one that is not UTF-8.
        (b"E\x00\x00\x00\x06Mx", "protocol_violation"),
        (b"E\x00\x00\x00\x05\0", "pg_XX000"),
        (b"E\x00\x00\x00\x0fC28P01\0M\xff\0\0", "pg_28P01"),
        // A parameter without a value, an unknown tag, rows before anything.
        (b"S\x00\x00\x00\x06a\0", "protocol_violation"),
        (b"\x00\x00\x00\x00\x04", "protocol_violation"),
        (b"D\x00\x00\x00\x06\0\x01", "protocol_violation"),
        // AuthenticationOk, and then a wrong answer.
        (
            b"R\x00\x00\x00\x08\0\0\0\0D\x00\x00\x00\x06\0\0",
            "protocol_violation",
        ),
        (b"", "timeout"),
    ] {
        let error = against(answer).expect_err("nothing of it is a server");
        assert_eq!(error.code, code, "{answer:?}: {error:?}");
        assert!(error.hint.is_some() || code == "pg_XX000", "{error:?}");
    }
}

#[test]
fn a_server_that_starts_up_is_transient() {
    let error = against(b"E\x00\x00\x00\x10C57P03\0Mwait\0\0\0").unwrap_err();
    assert_eq!(error.code, "protocol_violation");
    let error = against(b"E\x00\x00\x00\x12C57P03\0Mwait\0\0").unwrap_err();
    assert_eq!(error.code, "pg_57P03");
    assert!(matches!(error.kind, ErrorKind::Transient));
}
