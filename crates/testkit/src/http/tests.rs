//! The server against a plain client.

use super::*;

fn ask(server: &Server, request: &str) -> String {
    let mut client = TcpStream::connect(server.address).expect("a connection");
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn requests_are_read_and_answered() {
    let server = Server::start(|request| match request.path.as_str() {
        "/json" => Reply::json("[1]").header("x", "y"),
        "/chunked" => Reply::chunked(["ab", "c"]),
        _ => Reply::status(404, "no"),
    });
    let json = ask(&server, "GET /json?a=b%20c&d HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        json.starts_with("HTTP/1.1 200 ") && json.ends_with("x: y\r\n\r\n[1]"),
        "{json}"
    );
    let chunked = ask(
        &server,
        "POST /chunked HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz",
    );
    assert!(
        chunked.ends_with("\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        "{chunked}"
    );
    assert!(ask(&server, "GET / HTTP/1.1\r\n\r\n").contains(" 404 "));
    let seen = server.requests();
    assert_eq!(seen[0].query, pairs("a=b+c&d="));
    assert_eq!(
        (seen[0].header("host"), seen[1].text().as_str()),
        (Some("x"), "xyz")
    );
    assert_eq!((seen.len(), seen[1].method.as_str()), (3, "POST"));
}

#[test]
fn a_stalled_answer_ends_when_the_client_leaves() {
    let server = Server::start(|_| Reply::stalled("a"));
    let mut client = TcpStream::connect(server.address).expect("a connection");
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("said");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(
        answer.contains("content-length: 2") && answer.ends_with("\r\n\r\na"),
        "{answer}"
    );
}
