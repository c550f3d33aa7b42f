//! The server in a process of its own, and clients with one connection each.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::failure::Failure;

/// A server at work. It is killed when it is dropped.
pub struct Running {
    child: Child,
    address: String,
    /// Of the pipelines and of the server.
    _folder: TempDir,
}

impl Running {
    /// Starts the program with one pipeline, in a new folder below `folder`.
    pub fn start(folder: &Path, pipeline: &str, arguments: &[&str]) -> Result<Self, Failure> {
        let program = std::env::var_os("RAPIDBYTE_BIN")
            .ok_or_else(|| Failure("RAPIDBYTE_BIN is not set".into()))?;
        let folder = tempfile::tempdir_in(folder)?;
        std::fs::write(folder.path().join("p.yaml"), pipeline)?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg(folder.path())
            .args(["--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()?;
        let messages = child.stderr.take();
        let messages = messages.ok_or_else(|| Failure("the server has no messages".into()))?;
        let mut lines = BufReader::new(messages).lines();
        let address = lines.by_ref().find_map(|line| {
            let line: Value = serde_json::from_str(&line.ok()?).ok()?;
            Some(line["address"].as_str()?.to_owned())
        });
        let address = address.ok_or_else(|| Failure("the server did not start".into()))?;
        // What it says later is read, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            address,
            _folder: folder,
        })
    }

    /// Moves one row, so that connectors are compiled and tables are there.
    pub fn warm(&self, stream: &str) -> Result<(), Failure> {
        let body = format!("{{\"id\":{},\"name\":\"warm\"}}", i64::MAX);
        Client::new(self)?.post(stream, "?wait=true", body.as_bytes(), &[200])
    }

    /// The most memory that the server had resident.
    pub fn peak_bytes(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let kilobytes = kilobytes.ok_or_else(|| Failure("the system has no VmHWM".into()))?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Client {
    /// Connects.
    pub fn new(running: &Running) -> Result<Self, Failure> {
        let stream = TcpStream::connect(&running.address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            address: running.address.clone(),
        })
    }

    /// Posts a body of JSON Lines, and takes one of these answers.
    pub fn post(
        &mut self,
        stream: &str,
        query: &str,
        body: &[u8],
        statuses: &[u16],
    ) -> Result<(), Failure> {
        let head = format!(
            "POST /v1/ingest/p/{stream}{query} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        // One write for a small request, as clients do it.
        let request = match body.len() < 1 << 16 {
            true => [head.as_bytes(), body].concat(),
            false => head.into_bytes(),
        };
        let stream = self.stream.get_mut();
        stream.write_all(&request)?;
        if body.len() >= 1 << 16 {
            stream.write_all(body)?;
        }
        let (status, answer) = self.answer()?;
        match statuses.contains(&status) {
            true => Ok(()),
            false => Err(Failure(format!("the server answered {status}: {answer}"))),
        }
    }

    fn answer(&mut self) -> Result<(u16, String), Failure> {
        let broken = || Failure("the server ended the connection".into());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let before = head.len();
            if self.stream.read_line(&mut head)? == 0 {
                return Err(broken());
            }
            let line = head[before..].trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let status = head.split(' ').nth(1).ok_or_else(broken)?.parse()?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// The seconds of writes of so many bytes, each with an `fsync`.
pub fn fsync_secs(folder: &Path, bytes: usize) -> Result<Vec<f64>, Failure> {
    const WRITES: usize = 500;
    let path = folder.join("fsync");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).open(&path)?;
    let body = vec![b'x'; bytes];
    let mut times = Vec::new();
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&body)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
