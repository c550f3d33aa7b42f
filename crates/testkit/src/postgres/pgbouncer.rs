//! A PgBouncer in front of a test's server.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::{STARTUP, free_port, tail, url};
use super::user::User;
use super::watchdog::Watchdog;
use super::{Failure, Server, system};

/// Names the program; `cargo xtask test` sets it where there is one.
pub const PGBOUNCER: &str = "RAPIDBYTE_PGBOUNCER";

/// When a pooler gives a server's session to another client (PgBouncer's `pool_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// When the client leaves.
    Session,
    /// At the end of each transaction.
    Transaction,
}

/// A running PgBouncer; dropping it stops it at once and removes everything.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    watchdog: Option<Watchdog>,
    password: String,
    port: u16,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one for every database of `server`; nothing where the program is not on this
    /// machine. It accepts connections on return.
    pub fn start(server: &Server, mode: PoolMode) -> Result<Option<Self>, Failure> {
        let Some(program) = std::env::var_os(PGBOUNCER).filter(|program| !program.is_empty())
        else {
            return Ok(None);
        };
        let folder = tempfile::Builder::new()
            .prefix("rapidbyte-pgbouncer-")
            .tempdir()
            .map_err(system("making a temporary folder"))?;
        let user = User::to_step_down_to().map_err(system("looking for an account"))?;
        let port = free_port().map_err(system("looking for a free port"))?;
        let config = folder.path().join("pgbouncer.ini");
        let users = folder.path().join("users");
        let password = server.password().to_owned();
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\n\
             auth_file = {}\npool_mode = {mode}\n",
            server.port(),
            users.display()
        );
        fs::write(&config, text).map_err(system("writing pgbouncer.ini"))?;
        let quoted = password.replace('"', "\"\"");
        fs::write(&users, format!("\"postgres\" \"{quoted}\"\n"))
            .map_err(system("writing the users"))?;
        let log = File::create(folder.path().join("log")).map_err(system("making a log"))?;
        let mut command = Command::new(program);
        command
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        if let Some(user) = user {
            for path in [folder.path(), &config, &users] {
                user.own(path).map_err(system("giving files away"))?;
            }
            user.run(&mut command);
        }
        let process = command.spawn().map_err(system("starting pgbouncer"))?;
        let watchdog = Watchdog::start(process.id(), folder.path());
        let mut started = Self {
            process,
            watchdog: None,
            password,
            port,
            folder,
        };
        started.watchdog = Some(watchdog.map_err(system("starting a watchdog"))?);
        started.wait_until_it_accepts()?;
        Ok(Some(started))
    }

    fn wait_until_it_accepts(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > STARTUP {
                return Err(Failure::Ended {
                    program: "pgbouncer",
                    status: ended.unwrap_or_default(),
                    log: tail(&self.folder.path().join("log")),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// As [`Server::url`], through the pooler.
    pub fn url(&self, database: &str) -> String {
        url("postgres", &self.password, self.port, database)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        drop(self.watchdog.take());
    }
}
