//! A server that speaks the protocol of MongoDB, for tests.
//!
//! By default it is mongo-java-server, which keeps documents in memory. It has no users, no journal and no transactions,
//! and it compresses nothing. Where [`FERRETDB`] names a FerretDB, the same tests run against it instead; it has users
//! and a journal.
//!
//! `cargo xtask test` fetches mongo-java-server where Java and Maven are, and `--with ferretdb` fetches FerretDB.
//! Elsewhere the tests that need a server say that they are skipped.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::postgres::PASSWORD;

mod ferretdb;

use ferretdb::Ferret;

/// Names the folder of the classes of mongo-java-server; `cargo xtask test` sets it where it could be fetched.
pub const MONGODB: &str = "RAPIDBYTE_MONGODB";

/// Names a folder with FerretDB's program `ferretdb` and, in `postgresql`, the programs of a PostgreSQL with DocumentDB.
pub const FERRETDB: &str = "RAPIDBYTE_FERRETDB";

/// The administrator of FerretDB, with the password [`PASSWORD`].
pub const USER: &str = "postgres";

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct MongoServer {
    process: Process,
    port: u16,
}

#[derive(Debug)]
#[expect(dead_code, reason = "dropping it stops the server")]
enum Process {
    Java(Java),
    Ferret(Ferret),
}

/// mongo-java-server.
#[derive(Debug)]
struct Java {
    process: Child,
    /// The server ends when this is closed, also by the end of the test program.
    input: Option<ChildStdin>,
}

/// How a server speaks TLS: PEM files, the key as PKCS #8 and for ECDSA.
#[derive(Debug, Clone)]
pub struct MongoTls {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificate of the authority that signs those of clients, which then must show one. FerretDB alone asks.
    pub client_authority: Option<PathBuf>,
}

impl MongoServer {
    /// Starts one on a free port of 127.0.0.1; nothing where none is on this machine.
    ///
    /// # Panics
    /// When it does not start although it is there.
    pub fn start(tls: Option<&MongoTls>) -> Option<Self> {
        if let Some(folder) = folder(FERRETDB) {
            let (ferret, port) = Ferret::start(&folder, tls);
            return Some(Self {
                process: Process::Ferret(ferret),
                port,
            });
        }
        let (java, port) = Java::start(&folder(MONGODB)?, tls);
        Some(Self {
            process: Process::Java(java),
            port,
        })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True for FerretDB.
    pub fn is_ferretdb(&self) -> bool {
        matches!(self.process, Process::Ferret(_))
    }

    /// What a URL has before the host: the user and the password with an `@`, or nothing where the server has no users.
    pub fn login(&self) -> String {
        match &self.process {
            Process::Java(_) => String::new(),
            Process::Ferret(_) => login_of(USER, PASSWORD),
        }
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

/// A user and a password, as a URL has them before the host.
pub fn login_of(user: &str, password: &str) -> String {
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("{}:{}@", encoded(user), encoded(password))
}

fn folder(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty())?;
    Some(folder.into())
}

impl Java {
    fn start(folder: &Path, tls: Option<&MongoTls>) -> (Self, u16) {
        let classes = [folder.to_owned(), folder.join("*")];
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
        (Self { process, input }, port)
    }
}

impl Drop for Java {
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

    /// `mongodb://127.0.0.1:…/…`, with a login where the server has users.
    pub fn url(&self) -> String {
        self.url_at(self.server.port)
    }

    /// The same at the port of a program in front of the server.
    pub fn url_at(&self, port: u16) -> String {
        let login = self.server.login();
        self.url_from(&format!("{login}127.0.0.1:{port}"))
    }

    /// The same for another user.
    pub fn url_of(&self, user: &str, password: &str) -> String {
        let login = login_of(user, password);
        self.url_from(&format!("{login}127.0.0.1:{}", self.server.port))
    }

    fn url_from(&self, host: &str) -> String {
        format!("mongodb://{host}/{}", self.name)
    }
}

/// The server that all tests of this process share, started by the first that asks. `None`, and a line that says so,
/// where none is on this machine.
pub fn shared() -> Option<&'static MongoServer> {
    let server = started();
    if server.is_none() {
        println!("SKIPPED: {MONGODB} names no mongo-java-server");
    }
    server
}

/// The same for tests of what FerretDB alone has: `None`, and a line that says so, where the server is another.
pub fn ferretdb() -> Option<&'static MongoServer> {
    if folder(FERRETDB).is_none() {
        println!("SKIPPED: {FERRETDB} names no FerretDB; run `cargo xtask test --with ferretdb`");
        return None;
    }
    started()
}

fn started() -> Option<&'static MongoServer> {
    static SHARED: OnceLock<Option<MongoServer>> = OnceLock::new();
    SHARED.get_or_init(|| MongoServer::start(None)).as_ref()
}
