//! A real OpenSearch of one node, for tests.
//!
//! It has no users, and does not speak TLS: the plugin for both is not among the packages of Maven Central. `cargo xtask test
//! --with opensearch` fetches it; elsewhere the tests that need it say that they are skipped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::http::{Reply, Request};

/// Names the folder of its classes; `cargo xtask test --with opensearch` sets it where it could be fetched.
pub const OPENSEARCH: &str = "RAPIDBYTE_OPENSEARCH";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct OpenSearchServer {
    process: Child,
    /// The server ends when this is closed, also by the end of the test program.
    input: Option<ChildStdin>,
    port: u16,
    /// Its data.
    _home: tempfile::TempDir,
}

impl OpenSearchServer {
    /// Starts one on a free port of 127.0.0.1; nothing where it is not on this machine.
    ///
    /// # Panics
    /// When it does not start although it is there.
    pub fn start() -> Option<Self> {
        let folder = std::env::var_os(OPENSEARCH).filter(|folder| !folder.is_empty())?;
        let folder = PathBuf::from(folder);
        let home = tempfile::tempdir().expect("a folder");
        let classes = [folder.clone(), folder.join("*")];
        let classes = std::env::join_paths(classes).expect("a folder without a colon");
        let mut command = Command::new("java");
        command
            // It lives for minutes: starting counts more than speed later.
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"])
            .arg("-cp")
            .arg(classes)
            .arg("Server")
            .arg(home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|error| {
            panic!("{OPENSEARCH} is set, but java does not start: {error}")
        });
        let input = process.stdin.take();
        let output = process.stdout.take().expect("a pipe");
        let mut reader = BufReader::new(output);
        let mut line = String::new();
        // Its log comes before.
        let port = loop {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(1..) => {}
                read => {
                    let _ = process.kill();
                    panic!("OpenSearch does not say its port: {read:?}");
                }
            }
            if let Some(Ok(port)) = line.trim().strip_prefix("PORT ").map(str::parse) {
                break port;
            }
        };
        // Nothing reads its log, so the pipe must not fill.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        Some(Self {
            process,
            input,
            port,
            _home: home,
        })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where connectors ask it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Names of indices for a test alone.
    pub fn space(&self) -> OpenSearchSpace<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let prefix = format!("test{}-", NEXT.fetch_add(1, Ordering::Relaxed));
        OpenSearchSpace {
            server: self,
            prefix,
        }
    }
}

impl Drop for OpenSearchServer {
    fn drop(&mut self) {
        drop(self.input.take());
        // Its data is not needed any more: there is nothing to wait for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Indices of a server whose names begin with a prefix that no other test uses.
#[derive(Debug, Clone)]
pub struct OpenSearchSpace<'a> {
    server: &'a OpenSearchServer,
    prefix: String,
}

impl OpenSearchSpace<'_> {
    /// The name of an index of the test.
    pub fn name(&self, index: &str) -> String {
        format!("{}{index}", self.prefix)
    }

    /// Where connectors ask the server.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// One request, with a path behind the prefix: the status, and the body of the answer.
    ///
    /// # Panics
    /// As [`ask`].
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let path = format!("/{}{path}", self.prefix);
        let (status, said) = ask(self.server.port, method, &path, body.as_bytes());
        (status, String::from_utf8(said).expect("UTF-8"))
    }

    /// The same, which must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn done(&self, method: &str, path: &str, body: &str) -> String {
        let (status, said) = self.ask(method, path, body);
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {said}"
        );
        said
    }
}

/// One request to a server on 127.0.0.1: the status, and the body of the answer.
///
/// # Panics
/// If the answer is not one of HTTP/1.1 with a length, as this server gives it.
pub fn ask(port: u16, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let is_bulk = path
        .split('?')
        .next()
        .is_some_and(|path| path.ends_with("/_bulk"));
    let kind = match is_bulk {
        true => "application/x-ndjson",
        false => "application/json",
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not a line of HTTP: {line:?}"));
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().expect("a length");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut said = Vec::new();
    reader.take(length).read_to_end(&mut said).expect("a body");
    (status, said)
}

/// Passes a request on to the server, for a test that answers other requests itself.
///
/// # Panics
/// As [`ask`].
pub fn forward(port: u16, request: &Request) -> Reply {
    let query: Vec<String> = request
        .query
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace('*', "%2A")))
        .collect();
    let path = match query.is_empty() {
        true => request.path.clone(),
        false => format!("{}?{}", request.path, query.join("&")),
    };
    let (status, body) = ask(port, &request.method, &path, &request.body);
    Reply::status(status, String::from_utf8(body).expect("UTF-8"))
}

/// The server that all tests of this process share, started by the first that asks. `None`, and a line that says so,
/// where it is not on this machine.
pub fn shared() -> Option<&'static OpenSearchServer> {
    static SHARED: OnceLock<Option<OpenSearchServer>> = OnceLock::new();
    let server = SHARED.get_or_init(OpenSearchServer::start).as_ref();
    if server.is_none() {
        println!(
            "SKIPPED: {OPENSEARCH} names no OpenSearch: run cargo xtask test --with opensearch"
        );
    }
    server
}
