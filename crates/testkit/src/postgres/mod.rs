//! A PostgreSQL server of its own for each test process, with a fresh database for each test.
//!
//! ```no_run
//! use rapidbyte_testkit::postgres;
//!
//! let database = postgres::shared().database();
//! let mut client = database.client();
//! client.batch_execute("CREATE TABLE t (id int)").unwrap();
//! println!("{}", database.url());
//! ```
//!
//! The server listens on a free port of 127.0.0.1 and, for this crate alone, on a Unix socket in
//! its temporary folder where everybody is trusted. It is stopped at once and its folder removed
//! when the [`Server`] is dropped or the test process ends in whatever way.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

mod disk;
mod options;
mod pgbouncer;
mod programs;
mod server;
mod user;
pub(crate) mod watchdog;

pub use ::postgres::{Client, NoTls, Row, SimpleQueryMessage};
pub use disk::SmallDisk;
pub use options::{Auth, Options, PASSWORD, Tls};
pub use pgbouncer::{PGBOUNCER, PgBouncer, PoolMode};
pub use programs::VARIABLE;
pub use server::{Copied, Server};

/// The reason why the tests do not have a server.
#[derive(Debug, Error)]
pub enum Failure {
    /// The programs are not on this machine.
    #[error(
        "no PostgreSQL server programs: {VARIABLE} names no folder with initdb and postgres, and \
         neither PATH nor the usual folders hold them; run the tests by `cargo xtask test`, which \
         fetches them, or install the server (Debian, Ubuntu: apt-get install postgresql; \
         Fedora: dnf install postgresql-server; macOS: brew install postgresql)"
    )]
    NoPrograms,
    /// A program could not be started, or a file not be written.
    #[error("{doing}: {source}")]
    System {
        /// The attempted action.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program ended although it should not, or ended badly.
    #[error("{program} ended ({status}):\n{log}")]
    Ended {
        /// `initdb`, `postgres` or `pgbouncer`.
        program: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The end of its output.
        log: String,
    },
    /// The server runs and accepts nobody.
    #[error("the server accepts no connection: {source}; it said:\n{log}")]
    Deaf {
        /// The error of the last attempt.
        source: ::postgres::Error,
        /// The end of the server's output.
        log: String,
    },
}

/// The server that all tests of this process share, started by the first that asks.
///
/// # Panics
/// When it cannot be started, with the reason: a test that needs it has failed then.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Result<Server, Failure>> = OnceLock::new();
    match SHARED.get_or_init(|| Server::start(&Options::default())) {
        Ok(server) => server,
        Err(failure) => panic!("{failure}"),
    }
}

/// A database that is there until this is dropped.
#[derive(Debug)]
pub struct Database<'a> {
    server: &'a Server,
    name: String,
}

impl<'a> Database<'a> {
    pub(crate) fn create(server: &'a Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let created = server
            .client("postgres")
            .batch_execute(&format!("CREATE DATABASE {name}"));
        if let Err(error) = created {
            panic!("database {name} cannot be made: {error:?}");
        }
        Self { server, name }
    }

    /// Its name, which needs no quotes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `postgres://postgres:…@127.0.0.1:…/…`, for the program under test.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// The same through a proxy in front of the server.
    pub fn url_through(&self, proxy: &crate::proxy::Proxy) -> String {
        self.server.url_through(proxy, &self.name)
    }

    /// The same at the port of a program in front of the server.
    pub fn url_at(&self, port: u16) -> String {
        self.server.url_at(port, &self.name)
    }

    /// The same as [`Database::url`] for another role.
    pub fn url_of(&self, role: &str, password: &str) -> String {
        self.server.url_of(role, password, &self.name)
    }

    /// A client of the superuser for seeding and asserting, past everything a test set up.
    ///
    /// # Panics
    /// When the server does not let it in.
    pub fn client(&self) -> Client {
        self.server.client(&self.name)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // A test may have stopped the server; its databases go with it then.
        if let Ok(mut client) = self.server.try_client("postgres") {
            let _ = client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Failure {
    let doing = doing.into();
    move |source| Failure::System { doing, source }
}

/// The folder of the server programs that tests of this machine use.
pub fn programs_folder() -> Result<PathBuf, Failure> {
    programs::find().ok_or(Failure::NoPrograms)
}
