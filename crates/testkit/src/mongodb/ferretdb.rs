//! FerretDB in front of a PostgreSQL of its own with the extension DocumentDB, which keeps the documents and the users.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::MongoTls;
use crate::postgres::watchdog::Watchdog;
use crate::postgres::{Options, Server};

/// As the manual of FerretDB has it. No job of pg_cron begins: tests wait for none of them.
const CONF: [&str; 3] = [
    "shared_preload_libraries = 'pg_cron, pg_documentdb_core, pg_documentdb'",
    "cron.database_name = 'postgres'",
    "cron.launch_active_jobs = off",
];
/// DocumentDB connects to its own server, without a password.
const HBA: &str = "host all all 127.0.0.1/32 trust";
/// Of the messages before a server that does not start, this many are shown.
const LINES_SHOWN: usize = 20;
/// It says less before it listens, each line shorter than `LINE_BYTES`.
const MAX_LINES: usize = 1000;
const LINE_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Ferret {
    process: Child,
    _watchdog: Watchdog,
    _folder: TempDir,
    // The last field: FerretDB ends before its PostgreSQL.
    _postgres: Server,
}

impl Ferret {
    /// Starts both servers, and returns the port on which FerretDB listens.
    pub(super) fn start(folder: &Path, tls: Option<&MongoTls>) -> (Self, u16) {
        let postgres = Server::start(&Options {
            conf: CONF.map(str::to_owned).to_vec(),
            hba: vec![HBA.to_owned()],
            programs: Some(folder.join("postgresql")),
            ..Options::default()
        });
        let postgres = postgres.unwrap_or_else(|failure| panic!("PostgreSQL: {failure}"));
        let made = postgres
            .client("postgres")
            .batch_execute("CREATE EXTENSION documentdb CASCADE");
        if let Err(error) = made {
            panic!("the extension DocumentDB: {error:?}; {}", postgres.log());
        }
        let state = tempfile::Builder::new()
            .prefix("rapidbyte-ferretdb-")
            .tempdir()
            .unwrap_or_else(|error| panic!("a temporary folder: {error}"));
        let mut command = Command::new(folder.join("ferretdb"));
        command
            // It has the password, which a list of processes must not show.
            .env("FERRETDB_POSTGRESQL_URL", postgres.url("postgres"))
            .arg(format!("--state-dir={}", state.path().display()))
            .args(["--telemetry=disabled", "--debug-addr="]);
        match tls {
            None => command.arg("--listen-addr=127.0.0.1:0"),
            Some(tls) => command
                .args(["--listen-addr=", "--listen-tls=127.0.0.1:0"])
                .arg("--listen-tls-cert-file")
                .arg(&tls.certificate)
                .arg("--listen-tls-key-file")
                .arg(&tls.key),
        };
        if let Some(authority) = tls.and_then(|tls| tls.client_authority.as_ref()) {
            command.arg("--listen-tls-ca-file").arg(authority);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A Ctrl-C in the terminal is for the tests.
            .process_group(0);
        let mut process = command
            .spawn()
            .unwrap_or_else(|error| panic!("FerretDB does not start: {error}"));
        let watchdog = Watchdog::start(process.id(), state.path());
        let watchdog = watchdog.unwrap_or_else(|error| {
            let _ = process.kill();
            panic!("a watchdog: {error}")
        });
        let mut messages = BufReader::new(process.stderr.take().expect("a pipe"));
        let port = port(&mut messages);
        // Nobody reads the rest, and FerretDB must not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
        let ferret = Self {
            process,
            _watchdog: watchdog,
            _folder: state,
            _postgres: postgres,
        };
        match port {
            Ok(port) => (ferret, port),
            Err(messages) => panic!("FerretDB does not say its port: {messages}"),
        }
    }
}

impl Drop for Ferret {
    fn drop(&mut self) {
        // Failing, it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The port of the line that says where it listens, or the last messages.
fn port(messages: &mut impl BufRead) -> Result<u16, String> {
    let mut last = VecDeque::new();
    for _ in 0..MAX_LINES {
        let mut line = Vec::new();
        match messages.take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(port) = listening(&line) {
            return Ok(port);
        }
        if last.len() == LINES_SHOWN {
            last.pop_front();
        }
        last.push_back(line);
    }
    Err(Vec::from(last).concat())
}

/// `… Listening on TCP 127.0.0.1:27017 …`, or `TLS` instead.
fn listening(line: &str) -> Option<u16> {
    let (_, address) = line.split_once("Listening on T")?;
    let address = address.split_whitespace().nth(1)?;
    address.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_in_the_line_that_says_where_it_listens() {
        let mut messages = "2026-01-01\tINFO\tferretdb/main.go:372\tStarting FerretDB v2.7.0\t{}\n\
            2026-01-01\tINFO\tclientconn/listener.go:170\tListening on TLS 127.0.0.1:38649\t{\"name\":\"listener\"}\n"
            .as_bytes();
        assert_eq!(port(&mut messages), Ok(38649));
        let error = port(&mut "a\nb\n".as_bytes()).unwrap_err();
        assert_eq!(error, "a\nb\n");
    }
}
