//! A server that speaks the protocol of MongoDB, for tests: mongo-java-server, which keeps documents in memory.
//!
//! It has no users, no journal and no transactions, and it compresses nothing. `cargo xtask test` fetches it where Java
//! and Maven are; elsewhere the tests that need it say that they are skipped.

pub mod liar;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the folder of its classes; `cargo xtask test` sets it where it could be fetched.
pub const MONGODB: &str = "RAPIDBYTE_MONGODB";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct MongoServer {
    process: Child,
    /// The server ends when this is closed, also by the end of the test program.
    input: Option<ChildStdin>,
    port: u16,
}

/// A PEM file with the server's certificate, and one with its key (PKCS #8, ECDSA).
#[derive(Debug, Clone)]
pub struct MongoTls {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl MongoServer {
    /// Starts one on a free port of 127.0.0.1; nothing where it is not on this machine.
    ///
    /// # Panics
    /// When it does not start although it is there.
    pub fn start(tls: Option<&MongoTls>) -> Option<Self> {
        let folder = std::env::var_os(MONGODB).filter(|folder| !folder.is_empty())?;
        let folder = PathBuf::from(folder);
        let classes = [folder.clone(), folder.join("*")];
        let classes = std::env::join_paths(classes).expect("a folder without a colon");
        let mut command = Command::new("java");
        command
            // It lives for seconds: starting counts more than speed later.
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"])
            .arg("-cp")
            .arg(classes)
            .arg("Server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(tls) = tls {
            command.args([&tls.certificate, &tls.key]);
        }
        let mut process = command
            .spawn()
            .unwrap_or_else(|error| panic!("{MONGODB} is set, but java does not start: {error}"));
        let input = process.stdin.take();
        let output = process.stdout.take().expect("a pipe");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let port = line.trim().strip_prefix("PORT ").map(str::parse);
        let Some(Ok(port)) = port else {
            let _ = process.kill();
            panic!("mongo-java-server does not say its port: {read:?} {line:?}");
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

    /// A database of its own for a test.
    pub fn database(&self) -> MongoDatabase<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        MongoDatabase {
            server: self,
            name: format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl Drop for MongoServer {
    fn drop(&mut self) {
        drop(self.input.take());
        // It keeps nothing: there is nothing to wait for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A database of a server, which no other test uses.
#[derive(Debug, Clone)]
pub struct MongoDatabase<'a> {
    server: &'a MongoServer,
    name: String,
}

impl MongoDatabase<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `mongodb://127.0.0.1:…/…`.
    pub fn url(&self) -> String {
        self.url_at(self.server.port)
    }

    /// The same at the port of a program in front of the server.
    pub fn url_at(&self, port: u16) -> String {
        format!("mongodb://127.0.0.1:{port}/{}", self.name)
    }
}

/// The server that all tests of this process share, started by the first that asks. `None`, and a line that says so,
/// where it is not on this machine.
pub fn shared() -> Option<&'static MongoServer> {
    static SHARED: OnceLock<Option<MongoServer>> = OnceLock::new();
    let server = SHARED.get_or_init(|| MongoServer::start(None)).as_ref();
    if server.is_none() {
        println!("SKIPPED: {MONGODB} names no mongo-java-server");
    }
    server
}
