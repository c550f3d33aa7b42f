//! A server that speaks the protocol of Azure Cosmos DB, for tests: `@vercel/cosmosdb-server`, which keeps documents in
//! memory.
//!
//! It checks no signature, throttles nobody, sends no session tokens, and takes back nothing of a batch that fails. `cargo xtask test
//! --with cosmos` fetches it; elsewhere the tests that need it say that they are skipped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::http::{Reply, Request};

/// Names the folder with its packages; `cargo xtask test --with cosmos` sets it where it could be fetched.
pub const COSMOSDB: &str = "RAPIDBYTE_COSMOSDB";
/// Names the folder of node, unless it is in PATH.
const NODE: &str = "RAPIDBYTE_NODE_BIN";
/// A key, in Base64. The server takes any.
pub const KEY: &str = "YSBrZXkgdGhhdCBvbmx5IHRlc3RzIGtub3c=";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct CosmosServer {
    process: Child,
    /// The server ends when this is closed, also by the end of the test program.
    input: Option<ChildStdin>,
    port: u16,
}

impl CosmosServer {
    /// Starts one on a free port of 127.0.0.1, without TLS; nothing where it is not on this machine.
    ///
    /// # Panics
    /// When it does not start although it is there.
    pub fn start() -> Option<Self> {
        let folder = std::env::var_os(COSMOSDB).filter(|folder| !folder.is_empty())?;
        let node = std::env::var_os(NODE).filter(|folder| !folder.is_empty());
        let node = node.map_or("node".into(), |folder| PathBuf::from(folder).join("node"));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/cosmosdb/server.js");
        let mut command = Command::new(node);
        command
            .arg(script)
            .env(COSMOSDB, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command
            .spawn()
            .unwrap_or_else(|error| panic!("{COSMOSDB} is set, but node does not start: {error}"));
        let input = process.stdin.take();
        let output = process.stdout.take().expect("a pipe");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let port = line.trim().strip_prefix("PORT ").map(str::parse);
        let Some(Ok(port)) = port else {
            let _ = process.kill();
            panic!("cosmosdb-server does not say its port: {read:?} {line:?}");
        };
        Some(Self {
            process,
            input,
            port,
        })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where connectors ask it.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// A database of its own for a test.
    ///
    /// # Panics
    /// If the server does not make it.
    pub fn database(&self) -> CosmosDatabase<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let body = format!("{{\"id\":\"{name}\"}}");
        let (status, said) = ask(self.port, "POST", "/dbs", &[], body.as_bytes());
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&said));
        CosmosDatabase { server: self, name }
    }
}

impl Drop for CosmosServer {
    fn drop(&mut self) {
        drop(self.input.take());
        // It keeps nothing: there is nothing to wait for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A database of a server, which no other test uses.
#[derive(Debug, Clone)]
pub struct CosmosDatabase<'a> {
    server: &'a CosmosServer,
    name: String,
}

impl CosmosDatabase<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where connectors ask the server.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Makes a container with a partition key such as `/id`; of the documents of a partition, each has another value at
    /// the path `unique`.
    ///
    /// # Panics
    /// If the server does not make it.
    pub fn make(&self, container: &str, partition_key: &str, unique: Option<&str>) {
        let unique = unique.map(|path| {
            format!(",\"uniqueKeyPolicy\":{{\"uniqueKeys\":[{{\"paths\":[\"{path}\"]}}]}}")
        });
        let body = format!(
            "{{\"id\":\"{container}\",\"partitionKey\":{{\"paths\":[\"{partition_key}\"],\"kind\":\"Hash\"}}{}}}",
            unique.unwrap_or_default()
        );
        let path = format!("/dbs/{}/colls", self.name);
        let (status, said) = ask(self.server.port, "POST", &path, &[], body.as_bytes());
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&said));
    }

    /// Deletes a document; its partition is a JSON array with the value.
    ///
    /// # Panics
    /// If the server does not have it.
    pub fn delete(&self, container: &str, partition: &str, id: &str) {
        let path = format!("/dbs/{}/colls/{container}/docs/{id}", self.name);
        let partition = (
            "x-ms-documentdb-partitionkey".to_owned(),
            partition.to_owned(),
        );
        let (status, said) = ask(self.server.port, "DELETE", &path, &[partition], b"");
        assert_eq!(status, 204, "{}", String::from_utf8_lossy(&said));
    }

    /// Adds a document.
    ///
    /// # Panics
    /// If the server does not take it.
    pub fn add(&self, container: &str, document: &str) {
        let path = format!("/dbs/{}/colls/{container}/docs", self.name);
        let (status, said) = ask(self.server.port, "POST", &path, &[], document.as_bytes());
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&said));
    }

    /// The answer with all documents of a container, or with the containers of the database.
    ///
    /// # Panics
    /// If the server does not give it.
    pub fn read(&self, container: Option<&str>) -> Vec<u8> {
        let path = match container {
            Some(container) => format!("/dbs/{}/colls/{container}/docs", self.name),
            None => format!("/dbs/{}/colls", self.name),
        };
        let (status, said) = ask(self.server.port, "GET", &path, &[], b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
        said
    }
}

/// One request to a server on 127.0.0.1: the status, and the body of the answer.
///
/// # Panics
/// If the answer is not one of HTTP/1.1 with a length, as this server gives it.
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> (u16, Vec<u8>) {
    let answer = exchange(port, method, path, headers, body);
    (answer.0, answer.2)
}

/// The same with the headers of the answer.
///
/// # Panics
/// As [`ask`].
pub fn exchange(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server");
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not a line of HTTP: {line:?}"));
    let mut found = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                found.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => break,
        }
    }
    let length = found.iter().find(|(name, _)| name == "content-length");
    let length = length
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut said = Vec::new();
    reader.take(length).read_to_end(&mut said).expect("a body");
    (status, found, said)
}

/// Passes a request on to the server, for a test that answers other requests itself.
///
/// # Panics
/// As [`ask`].
pub fn forward(port: u16, request: &Request) -> Reply {
    let passed =
        |name: &str| name.starts_with("x-ms-") || matches!(name, "if-match" | "content-type");
    let headers = request.headers.iter().filter(|(name, _)| passed(name));
    let headers: Vec<(String, String)> = headers.cloned().collect();
    let (status, headers, body) = exchange(
        port,
        &request.method,
        &request.path,
        &headers,
        &request.body,
    );
    let body = String::from_utf8(body).expect("UTF-8");
    let kept = headers
        .into_iter()
        .filter(|(name, _)| name.starts_with("x-ms-") || name == "etag");
    kept.fold(Reply::status(status, body), |reply, (name, value)| {
        reply.header(&name, &value)
    })
}

/// The server that all tests of this process share, started by the first that asks. `None`, and a line that says so,
/// where it is not on this machine.
pub fn shared() -> Option<&'static CosmosServer> {
    static SHARED: OnceLock<Option<CosmosServer>> = OnceLock::new();
    let server = SHARED.get_or_init(CosmosServer::start).as_ref();
    if server.is_none() {
        println!(
            "SKIPPED: {COSMOSDB} names no cosmosdb-server: run cargo xtask test --with cosmos"
        );
    }
    server
}
