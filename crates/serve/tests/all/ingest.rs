//! Requests over real connections, and a server that is killed.

use std::collections::HashSet;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, RwLock, mpsc};
use std::time::Duration;

use crate::support::{self, Client, request};
use rapidbyte_serve::{Catalogue, Ingest, QueueLimits, ServeError, Server, Settings};

/// The pipeline `p` takes rows for the streams `s`, and for `c` by their content.
struct Orders;

impl Catalogue for Orders {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        let is_known_by_content = stream == "c";
        let is_known = pipeline == "p" && matches!(stream, "s" | "c" | "a b");
        is_known.then_some(Ingest {
            is_known_by_content,
            ..Ingest::default()
        })
    }

    fn has(&self, pipeline: &str) -> bool {
        pipeline == "p"
    }
}

fn start(settings: Settings) -> Server {
    Server::start(settings, Arc::new(Orders)).expect("a server")
}

const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";

#[test]
fn a_body_is_a_job_and_a_repeated_request_is_the_same_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let mut client = Client::new(server.address());
    let first = client.post("/v1/ingest/p/s", JSON_LINES, b"{\"id\":1}\n");
    assert_eq!((first.status, &first.body["job"]["id"]), (202, &1.into()));
    assert!(
        first.head.contains("location: /v1/jobs/1\r\n"),
        "{}",
        first.head
    );
    let sha256 = "51bc513113548e062ada62b03efea153cae2abdf46b051c551c3e62a4dfb88cf";
    assert_eq!(first.body["job"]["sha256"], sha256);
    let second = client.post("/v1/ingest/p/s", JSON_LINES, b"{\"id\":1}\n");
    assert_eq!((second.status, &second.body["job"]["id"]), (202, &2.into()));
    let keyed = format!("{JSON_LINES}Idempotency-Key: k1\r\n");
    let third = client.post("/v1/ingest/p/s", &keyed, b"{}");
    let again = client.post("/v1/ingest/p/s", &keyed, b"{}");
    assert_eq!((third.status, again.status), (202, 200));
    assert_eq!(third.body["job"], again.body["job"]);
    let other = client.post("/v1/ingest/p/s", &keyed, b"[]");
    assert_eq!(
        (other.status, &other.body["error"]["code"]),
        (422, &"idempotency_key_reused".into())
    );
    let content = client.post("/v1/ingest/p/c", JSON_LINES, b"{}");
    let repeated = client.post("/v1/ingest/p/c", JSON_LINES, b"{}");
    assert_eq!((content.status, repeated.status), (202, 200));
    let compressed = format!("{JSON_LINES}Content-Encoding: GZIP\r\n");
    let zipped = client.post("/v1/ingest/p/a%20b", &compressed, b"?");
    assert_eq!(
        (zipped.status, &zipped.body["job"]["encoding"]),
        (202, &"gzip".into())
    );
    let found = client.get("/v1/jobs/5");
    assert_eq!(
        (found.status, &found.body["job"]),
        (200, &zipped.body["job"])
    );
    // An id has one spelling.
    for id in ["05", "+5", "5.0", "%2B5", "-5", "5%20"] {
        for other in [
            client.get(&format!("/v1/jobs/{id}")),
            client.get(&format!("/v1/jobs/{id}/body")),
            client.post(&format!("/v1/jobs/{id}/cancel"), "", b""),
        ] {
            assert_eq!(
                (other.status, &other.body["error"]["code"]),
                (404, &"unknown_job".into()),
                "{id}"
            );
        }
    }
    for query in ["after=01", "after=%2B1", "limit=02"] {
        let other = client.get(&format!("/v1/jobs?{query}"));
        assert_eq!(
            (other.status, &other.body["error"]["code"]),
            (400, &"invalid_query".into()),
            "{query}"
        );
    }
    let page = client.get("/v1/jobs?pipeline=p&after=1&limit=2");
    let ids: Vec<_> = page.body["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .map(|job| &job["id"])
        .collect();
    assert_eq!(
        (ids, &page.body["next"]),
        (vec![&2.into(), &3.into()], &3.into())
    );
    server.stop();
}

#[test]
fn requests_that_are_wrong_are_told_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.bodies.bytes = 100;
    settings.queue = QueueLimits {
        jobs: 1,
        bytes: 1000,
    };
    let server = start(settings);
    let send = |request: &[u8]| Client::new(server.address()).send(request);
    let (s, json) = ("/v1/ingest/p/s", JSON_LINES);
    let long_key = format!("{json}Idempotency-Key: {}\r\n", "k".repeat(256));
    let large = vec![b' '; 101];
    for (wrong, status, code) in [
        (request("/v1/ingest/p/t", json, b""), 404, "unknown_stream"),
        (
            request("/v1/ingest/..%2fq/s", json, b""),
            404,
            "unknown_stream",
        ),
        (request("/v1/ingest/p", json, b""), 404, "unknown_path"),
        (request(s, "", b""), 415, "unknown_format"),
        (
            request(s, "Content-Type: text/html\r\n", b""),
            415,
            "unknown_format",
        ),
        (
            request(s, &format!("{json}Content-Encoding: br\r\n"), b""),
            415,
            "unknown_encoding",
        ),
        (
            request(s, &format!("{json}Idempotency-Key: \r\n"), b""),
            400,
            "invalid_idempotency_key",
        ),
        (request(s, &long_key, b""), 400, "invalid_idempotency_key"),
        (
            request(
                s,
                &format!("{json}Idempotency-Key: a\r\nIdempotency-Key: b\r\n"),
                b"",
            ),
            400,
            "invalid_idempotency_key",
        ),
        (
            request(
                s,
                &format!("{json}Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"),
                b"",
            ),
            415,
            "unknown_encoding",
        ),
        (
            format!(
                "POST {s} HTTP/1.1\r\nHost: localhost\r\n{json}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
            )
            .into_bytes(),
            415,
            "unknown_encoding",
        ),
        (request(s, json, &large), 413, "body_too_large"),
        (
            b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            405,
            "unknown_method",
        ),
        (
            b"GET /v1/jobs?pipeline=q HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            404,
            "unknown_pipeline",
        ),
        (
            b"GET /v1/jobs?stat=done HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            400,
            "invalid_query",
        ),
        (
            b"GET /v1/jobs?limit=1001 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            400,
            "invalid_query",
        ),
        (
            request("/v1/ingest/p/s?wait=maybe", json, b""),
            400,
            "invalid_query",
        ),
        (
            request("/v1/jobs/1/discard?dry_run=true", json, b""),
            400,
            "invalid_query",
        ),
        (request("/v1/ingest/p/%ff", json, b""), 400, "invalid_path"),
        (
            b"GET /v1/jobs/x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            404,
            "unknown_job",
        ),
    ] {
        let answer = send(&wrong);
        let error = &answer.body["error"];
        let shown = String::from_utf8_lossy(&wrong).into_owned();
        assert_eq!(
            (answer.status, &error["code"]),
            (status, &code.into()),
            "{shown}"
        );
        assert!(
            error["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
            "{shown}"
        );
    }
    // A client that writes all of its body before it reads gets the answer, too.
    let answer = send(&request(s, json, &vec![b' '; 20_000_000]));
    assert_eq!(answer.status, 413);
    // A body of unknown length is counted as it comes.
    let chunked = format!(
        "POST {s} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{json}\r\n65\r\n"
    );
    let answer = send(&[chunked.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat());
    assert_eq!(answer.status, 413);
    assert_eq!(send(&request(s, json, b"{}")).status, 202);
    let full = send(&request(s, json, b"{}"));
    assert_eq!(
        (full.status, &full.body["error"]["code"]),
        (429, &"queue_full".into())
    );
    assert!(full.head.contains("retry-after: "), "{}", full.head);
    server.stop();
}

#[test]
fn large_bodies_go_to_the_spool_and_leave_nothing_if_they_break_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.keep_free = 0;
    let server = start(settings);
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let mut client = Client::new(server.address());
    let answer = client.post("/v1/ingest/p/s", JSON_LINES, &body);
    assert_eq!(
        (answer.status, &answer.body["job"]["bytes"]),
        (202, &body.len().into())
    );
    let spooled = || -> Vec<_> {
        let entries = std::fs::read_dir(folder.path().join("spool")).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let files = spooled();
    assert_eq!(files.len(), 1);
    assert_eq!(std::fs::read(&files[0]).expect("a file"), body);
    // The client goes away in the middle.
    let mut half = request("/v1/ingest/p/s", JSON_LINES, &body);
    half.truncate(2_000_000);
    let mut broken = Client::new(server.address());
    broken.0.get_mut().write_all(&half).expect("sent");
    broken
        .0
        .get_mut()
        .shutdown(std::net::Shutdown::Write)
        .expect("ended");
    assert!(broken.answer().is_none_or(|answer| answer.status == 400));
    // A repeat needs no second file.
    let keyed = format!("{JSON_LINES}Idempotency-Key: k\r\n");
    assert_eq!(client.post("/v1/ingest/p/s", &keyed, &body).status, 202);
    assert_eq!(client.post("/v1/ingest/p/s", &keyed, &body).status, 200);
    server.stop();
    assert_eq!(spooled().len(), 2);
    // What a crash left is gone after the next start.
    std::fs::write(folder.path().join("spool/left"), b"x").expect("a file");
    start(Settings::new(folder.path())).stop();
    assert_eq!(spooled().len(), 2);
}

#[test]
fn a_full_disk_is_told_before_a_body_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.keep_free = u64::MAX;
    let server = start(settings);
    let mut client = Client::new(server.address());
    let answer = client.post("/v1/ingest/p/s", JSON_LINES, &vec![b' '; 100_000]);
    assert_eq!(
        (answer.status, &answer.body["error"]["code"]),
        (429, &"disk_full".into())
    );
    server.stop();
}

#[test]
fn a_client_that_sends_nothing_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.bodies.idle = Duration::from_millis(1);
    let server = start(settings);
    let mut client = Client::new(server.address());
    let head = format!(
        "POST /v1/ingest/p/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n{JSON_LINES}\r\n"
    );
    let answer = client.send(head.as_bytes());
    assert_eq!(
        (answer.status, &answer.body["error"]["code"]),
        (408, &"body_timeout".into())
    );
    server.stop();
}

#[test]
fn equal_bodies_at_once_are_one_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let address = server.address();
    let ids: HashSet<u64> = std::thread::scope(|scope| {
        let send = || {
            let answer = Client::new(address).post("/v1/ingest/p/c", JSON_LINES, b"{\"id\":7}");
            assert!(matches!(answer.status, 200 | 202), "{}", answer.status);
            answer.body["job"]["id"].as_u64().expect("an id")
        };
        let clients: Vec<_> = (0..64).map(|_| scope.spawn(send)).collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect()
    });
    assert_eq!(ids.len(), 1);
    server.stop();
}

#[test]
fn a_folder_belongs_to_one_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(Settings::new(folder.path()));
    let second = Server::start(Settings::new(folder.path()), Arc::new(Orders));
    assert!(matches!(second.err(), Some(ServeError::FolderInUse(_))));
    server.stop();
}

const FOLDER: &str = "RAPIDBYTE_SERVE_TEST";

/// Not a test of its own: the server that the next test kills.
#[test]
fn server_of_a_folder() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let server = start(Settings::new(Path::new(&folder)));
    println!("listens on {}", server.address());
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

fn spawn(folder: &Path) -> (Child, SocketAddr) {
    support::spawn(
        "ingest::server_of_a_folder",
        &[(FOLDER, folder.as_os_str())],
    )
}

/// Each job that a client was told of is there, once, whenever the server is killed; and a client that was told nothing
/// sends its request again.
#[test]
fn kills_lose_no_job_and_double_none() {
    const CLIENTS: usize = 8;
    const JOBS_OF_KILL: usize = 96;
    let kills = support::kills();
    let jobs = (kills + 1) * JOBS_OF_KILL / CLIENTS;
    let folder = tempfile::tempdir().expect("a folder");
    let (child, address) = spawn(folder.path());
    let running = RwLock::new((child, address));
    let (tell, told) = mpsc::channel();
    let ids: Vec<(String, u64)> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (running, tell) = (&running, tell.clone());
            scope.spawn(move || {
                let mut ids = Vec::new();
                for job in 0..jobs {
                    let key = format!("{number}-{job}");
                    let headers = format!("{JSON_LINES}Idempotency-Key: {key}\r\n");
                    let body = vec![b'1'; if job % 10 == 0 { 100_000 } else { 100 }];
                    let request = request("/v1/ingest/p/s", &headers, &body);
                    let id = loop {
                        let address = running.read().expect("a server").1;
                        // After a kill the next read of the address waits for the next server.
                        let Ok(stream) = TcpStream::connect(address) else {
                            continue;
                        };
                        let mut client = Client(BufReader::new(stream));
                        if client.0.get_mut().write_all(&request).is_ok()
                            && let Some(answer) = client.answer()
                        {
                            assert!(matches!(answer.status, 200 | 202), "{}", answer.body);
                            break answer.body["job"]["id"].as_u64().expect("an id");
                        }
                    };
                    ids.push((key, id));
                    tell.send(()).expect("the test");
                }
                ids
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for _ in 0..kills {
            let answers = told.iter().take(JOBS_OF_KILL);
            answers.for_each(drop);
            let mut running = running.write().expect("a server");
            running.0.kill().expect("killed");
            running.0.wait().expect("ended");
            *running = spawn(folder.path());
        }
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect()
    });
    let mut client = Client::new(running.read().expect("a server").1);
    let (mut stored, mut after) = (Vec::new(), 0);
    loop {
        let page = client.get(&format!("/v1/jobs?after={after}&limit=1000"));
        for job in page.body["jobs"].as_array().expect("jobs") {
            let key = job["idempotency_key"].as_str().expect("a key");
            stored.push((key.to_owned(), job["id"].as_u64().expect("an id")));
        }
        match page.body["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    let mut running = running.into_inner().expect("a server");
    running.0.kill().expect("killed");
    running.0.wait().expect("ended");
    let sorted = |mut ids: Vec<(String, u64)>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(stored), sorted(ids));
}
