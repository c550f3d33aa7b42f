//! Tokens, and requests that come from web pages.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_serve::{
    Catalogue, Ingest, NewToken, Scope, ServeError, Server, Settings, TokenFile,
};

use crate::support::{Client, request};

/// The pipelines `a` and `b` have the stream `s`.
struct Two;

impl Catalogue for Two {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        (self.has(pipeline) && stream == "s").then(Ingest::default)
    }

    fn has(&self, pipeline: &str) -> bool {
        matches!(pipeline, "a" | "b")
    }
}

fn token(folder: &Path, scopes: &[&str], requests_per_second: Option<u64>) -> String {
    let scope = |text: &&str| Scope::try_from((*text).to_owned()).expect("a scope");
    let new = NewToken {
        name: "test".into(),
        scopes: scopes.iter().map(scope).collect(),
        requests_per_second,
        bytes_per_second: None,
        rows_per_second: None,
        open_jobs: None,
    };
    TokenFile::of(folder).add(new).expect("a token").1
}

fn start(settings: Settings) -> Server {
    Server::start(settings, Arc::new(Two)).expect("a server")
}

const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

#[test]
fn a_token_allows_what_its_scopes_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = token(folder.path(), &["ingest:a"], None);
    let reader = token(folder.path(), &["read"], None);
    let operator = token(folder.path(), &["operate:a"], None);
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let post =
        |path: &str, token: &str| request(path, &format!("{JSON_LINES}{}", bearer(token)), b"{}");
    let (a, b) = ("/v1/ingest/a/s", "/v1/ingest/b/s");
    let (start, last) = writer.split_at(writer.len() - 1);
    let wrong = format!("{start}{}", if last == "0" { "1" } else { "0" });
    let basic = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("me:{reader}"))
    };
    for (what, request, status) in [
        ("no token", request(a, JSON_LINES, b"{}"), 401),
        ("a wrong token", post(a, &wrong), 401),
        ("no token at all", post(a, "x"), 401),
        ("a token of another server", post(a, "rb_00000000_00"), 401),
        ("ingest", post(a, &writer), 202),
        ("another pipeline", post(b, &writer), 403),
        (
            "a pipeline that is not there",
            post("/v1/ingest/c/s", &writer),
            403,
        ),
        ("follow", get("/v1/jobs/1", &bearer(&writer)), 200),
        ("list", get("/v1/jobs?pipeline=a", &bearer(&writer)), 403),
        ("read", get("/v1/jobs", &bearer(&reader)), 200),
        (
            "read as Basic",
            get("/v1/jobs", &format!("Authorization: Basic {basic}\r\n")),
            200,
        ),
        ("ingest by a reader", post(a, &reader), 403),
        (
            "operate by a reader",
            post("/v1/jobs/1/cancel", &reader),
            403,
        ),
        (
            "the body by a reader",
            get("/v1/jobs/1/body", &bearer(&reader)),
            403,
        ),
        ("the body", get("/v1/jobs/1/body", &bearer(&operator)), 200),
        ("all jobs", get("/v1/jobs", &bearer(&operator)), 403),
        (
            "jobs of a pipeline",
            get("/v1/jobs?pipeline=a", &bearer(&operator)),
            200,
        ),
        ("cancel", post("/v1/jobs/1/cancel", &operator), 200),
        ("health", get("/healthz", ""), 200),
        ("readiness", get("/readyz", ""), 200),
    ] {
        let answer = client.send(&request);
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
    }
    server.stop();
}

#[test]
fn a_token_has_its_rate() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = token(folder.path(), &["ingest"], Some(1));
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    let headers = format!("{JSON_LINES}Authorization: Bearer {token}\r\n");
    let answers = (0..20).map(|_| client.post("/v1/ingest/a/s", &headers, b"{}"));
    let refused: Vec<_> = answers.filter(|answer| answer.status == 429).collect();
    assert!(refused.len() >= 10, "{}", refused.len());
    assert_eq!(refused[0].body["error"]["code"], "rate_limited");
    assert!(
        refused[0].head.contains("retry-after: 1\r\n"),
        "{}",
        refused[0].head
    );
    server.stop();
}

/// The server and a proxy in front of it could each go by another one.
#[test]
fn a_header_with_one_value_is_not_there_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    let once = "X-Other: 1\r\nX-Other: 2\r\n";
    let answer = client.post("/v1/ingest/a/s", &format!("{JSON_LINES}{once}"), b"{}");
    assert_eq!(answer.status, 202, "{}", answer.body);
    for (name, headers) in [
        ("host", format!("{JSON_LINES}Host: localhost\r\n")),
        ("host", format!("{JSON_LINES}Host: evil.example\r\n")),
        (
            "origin",
            format!("{JSON_LINES}Origin: http://localhost\r\nOrigin: http://evil.example\r\n"),
        ),
        (
            "content-type",
            format!("{JSON_LINES}Content-Type: text/csv\r\n"),
        ),
        (
            "authorization",
            format!("{JSON_LINES}Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"),
        ),
        (
            "sec-fetch-site",
            format!("{JSON_LINES}Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n"),
        ),
    ] {
        let answer = client.post("/v1/ingest/a/s", &headers, b"{}");
        assert_eq!(answer.status, 400, "{name}: {}", answer.body);
        assert_eq!(answer.body["error"]["code"], "repeated_header", "{name}");
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(name), "{message}");
    }
    let twice = get("/healthz", "Host: localhost\r\n");
    assert_eq!(client.send(&twice).status, 400);
    server.stop();
}

/// A proxy, a browser and the server must not read different hosts or different ends of a body (RFC 9112).
#[test]
fn a_head_that_can_be_read_in_two_ways_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = token(folder.path(), &["ingest:a"], None);
    let reader = token(folder.path(), &["read"], None);
    let server = start(Settings::new(folder.path()));
    let bearer = format!("Authorization: Bearer {reader}\r\n");
    let line = |line: &str, host: &str| format!("{line}\r\n{host}{bearer}\r\n");
    let of_host = |host: &str| line("GET /v1/jobs HTTP/1.1", &format!("Host: {host}\r\n"));
    let of_target =
        |target: &str| line(&format!("GET {target} HTTP/1.1"), "Host: localhost:80\r\n");
    for host in [
        "localhost",
        "LOCALHOST:",
        "etl_1.example:8465",
        "10.0.0.1:1",
        "[::1]",
        "[::1]:65535",
    ] {
        let answer = Client::new(server.address()).send(of_host(host).as_bytes());
        assert_eq!(answer.status, 200, "{host}: {}", answer.body);
    }
    for request in [
        line("GET /v1/jobs HTTP/1.0", ""),
        line("GET http://etl.example:8465/v1/jobs HTTP/1.0", ""),
        line(
            "GET http://localhost/v1/jobs HTTP/1.0",
            "Host: localhost\r\n",
        ),
        of_target("http://LocalHost:80/v1/jobs"),
    ] {
        let answer = Client::new(server.address()).send(request.as_bytes());
        assert_eq!(answer.status, 200, "{request}");
    }
    let of_body = |headers: &str, body: &str| {
        format!("POST /v1/ingest/a/s HTTP/1.1\r\nHost: a\r\n{JSON_LINES}{headers}\r\n{body}")
    };
    let chunks = "2\r\n{}\r\n0\r\n\r\n";
    for (request, code) in [
        (line("GET /v1/jobs HTTP/1.1", ""), "invalid_host"),
        (line("GET /healthz HTTP/1.1", ""), "invalid_host"),
        (of_host(""), "invalid_host"),
        (of_host("localhost, evil.example"), "invalid_host"),
        (of_host("evil.example, localhost"), "invalid_host"),
        (of_host("localhost evil.example"), "invalid_host"),
        (of_host("localhost:http"), "invalid_host"),
        (of_host("localhost:+80"), "invalid_host"),
        (of_host("localhost:65536"), "invalid_host"),
        (of_host("localhost:80:90"), "invalid_host"),
        (of_host("localhost:80@evil.example"), "invalid_host"),
        (of_host("me@localhost"), "invalid_host"),
        (of_host("localhost/evil"), "invalid_host"),
        (of_host(":80"), "invalid_host"),
        (of_host("[::1"), "invalid_host"),
        (of_host("[::1]evil.example"), "invalid_host"),
        (of_host("[localhost]"), "invalid_host"),
        (of_target("http://evil.example/v1/jobs"), "invalid_host"),
        (of_target("http://localhost/v1/jobs"), "invalid_host"),
        (of_target("http://me@localhost:80/v1/jobs"), "invalid_host"),
        (of_target("evil.example:80"), "invalid_host"),
        (
            line("GET http://localhost/v1/jobs HTTP/1.1", ""),
            "invalid_host",
        ),
        (
            line("GET http://me@localhost/v1/jobs HTTP/1.0", ""),
            "invalid_host",
        ),
        (
            line(
                "GET http://localhost/v1/jobs HTTP/1.0",
                "Host: evil.example\r\n",
            ),
            "invalid_host",
        ),
    ] {
        let answer = Client::new(server.address()).send(request.as_bytes());
        assert_eq!(answer.status, 400, "{request}");
        assert_eq!(answer.body["error"]["code"], code, "{request}");
    }
    // The length does not count, and what follows is no request.
    let both = ["Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n"];
    for headers in [both.concat(), [both[1], both[0]].concat()] {
        let mut client = Client::new(server.address());
        let head = format!("{headers}Authorization: Bearer {writer}\r\n");
        let request = of_body(&head, &format!("{chunks}{}", of_host("localhost")));
        assert_eq!(client.send(request.as_bytes()).status, 202, "{request}");
        assert!(client.answer().is_none(), "{request}");
    }
    // These are no HTTP, and the connection ends.
    let head = "GET /v1/jobs HTTP/1.1\r\n";
    let not_http = [
        format!("{head}Host: localhost\r\n evil.example\r\n{bearer}\r\n"),
        format!("{head}Host: localhost\r\n{bearer}X: a\rb\r\n\r\n"),
        format!("{head}Host: localhost\r\n{bearer}X: a\0b\r\n\r\n"),
        format!("{head}Host : localhost\r\n{bearer}\r\n"),
        of_body("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
        of_body("Content-Length: +2\r\n", "{}"),
        of_body("Content-Length: 2, 2\r\n", "{}"),
        of_body("Transfer-Encoding: chunked, identity\r\n", chunks),
        of_body("Transfer-Encoding: xchunked\r\n", chunks),
        of_body("Transfer-Encoding : chunked\r\n", chunks),
    ];
    for request in not_http {
        let mut client = Client::new(server.address());
        let answer = client.send(request.as_bytes());
        assert_eq!(answer.status, 400, "{request}");
        assert!(client.answer().is_none(), "{request}");
    }
    server.stop();
}

/// Whatever a token allows, its client does not hold a connection with half of a body.
#[test]
fn half_of_a_small_body_is_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = token(folder.path(), &["ingest:a"], None);
    let mut settings = Settings::new(folder.path());
    settings.bodies.idle = Duration::from_millis(1);
    let server = start(settings);
    for (line, kind) in [
        ("PUT /v1/pipelines/a/streams/s/cursor", "application/json"),
        ("POST /v1/pipelines/a/cursors/rebind", "application/json"),
        ("POST /v1/pipelines/a/cursors/clear", "application/json"),
        ("POST /pipelines/a/run", "application/x-www-form-urlencoded"),
    ] {
        let mut client = Client::new(server.address());
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\n\
             Content-Length: 10\r\n\r\n{{"
        );
        let answer = client.send(request.as_bytes());
        assert_eq!(answer.status, 408, "{line}: {}", answer.body);
        assert!(client.answer().is_none(), "{line}");
    }
    server.stop();
}

#[test]
fn web_pages_of_other_sites_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    let post = |headers: &str| request("/v1/ingest/a/s", &format!("{JSON_LINES}{headers}"), b"{}");
    let of_host = |host: &str| {
        let text = String::from_utf8(post("")).expect("text");
        text.replace("Host: localhost", &format!("Host: {host}"))
            .into_bytes()
    };
    // HTTP/1.0 with the host in its request line.
    let old = |origin: &str| {
        let text = String::from_utf8(post("Connection: keep-alive\r\n")).expect("text");
        text.replace("Host: localhost\r\n", "")
            .replace("POST ", &format!("POST {origin}"))
            .replace("HTTP/1.1", "HTTP/1.0")
            .into_bytes()
    };
    for (request, status, code) in [
        (post("Origin: http://localhost\r\n"), 202, ""),
        (post("Sec-Fetch-Site: same-origin\r\n"), 202, ""),
        (post("Origin: http://evil.example\r\n"), 403, "cross_site"),
        (post("Origin: null\r\n"), 403, "cross_site"),
        (post("Sec-Fetch-Site: cross-site\r\n"), 403, "cross_site"),
        (of_host("127.0.0.1:80"), 202, ""),
        (of_host("[::1]:80"), 202, ""),
        (old("http://localhost:80"), 202, ""),
        (old("http://evil.example"), 403, "foreign_host"),
        // A name that a page's server points to this machine.
        (of_host("evil.example"), 403, "foreign_host"),
        (of_host("localhost.evil.example"), 403, "foreign_host"),
    ] {
        let answer = client.send(&request);
        let shown = String::from_utf8_lossy(&request).into_owned();
        assert_eq!(answer.status, status, "{shown}");
        if status == 403 {
            assert_eq!(answer.body["error"]["code"], code, "{shown}");
        }
        assert!(
            answer.head.contains("x-frame-options: DENY"),
            "{}",
            answer.head
        );
    }
    server.stop();
}

#[test]
fn another_address_than_loopback_needs_a_token_and_a_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = |settings: &Settings| Server::start(settings.clone(), Arc::new(Two)).err();
    assert!(matches!(refused(&settings), Some(ServeError::NoToken(_))));
    let token = token(folder.path(), &["read"], None);
    assert!(matches!(refused(&settings), Some(ServeError::NoTls(_))));
    settings.is_behind_proxy = true;
    let server = start(settings);
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let mut client = Client::new(address);
    assert_eq!(client.get("/v1/jobs").status, 401);
    let headers = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(client.send(&get("/v1/jobs", &headers)).status, 200);
    server.stop();
}
