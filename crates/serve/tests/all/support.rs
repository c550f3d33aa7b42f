//! An HTTP client of one connection, and servers in processes of their own.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// One client with one connection.
pub struct Client(pub BufReader<TcpStream>);

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a limit");
        Self(BufReader::new(stream))
    }

    pub fn send(&mut self, request: &[u8]) -> Answer {
        self.0.get_mut().write_all(request).expect("sent");
        self.answer().expect("an answer")
    }

    /// Everything behind the head of the answer, up to the end of the connection.
    pub fn rest(&mut self, request: &[u8]) -> String {
        self.0.get_mut().write_all(request).expect("sent");
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        body.to_owned()
    }

    /// `None` if the server is gone.
    pub fn answer(&mut self) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(Answer {
            status: head[9..12].parse().expect("a status"),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            head,
        })
    }

    pub fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Answer {
        self.send(&request(path, headers, body))
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }
}

pub fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Runs this program with one test, which starts a server and prints its address.
pub fn spawn(test: &str, variables: &[(&str, &OsStr)]) -> (Child, SocketAddr) {
    spawn_behind(&[], test, variables)
}

/// The same, behind a command that runs the program in its place.
pub fn spawn_behind(
    before: &[OsString],
    test: &str,
    variables: &[(&str, &OsStr)],
) -> (Child, SocketAddr) {
    let program = std::env::current_exe().expect("a program");
    let words = [before, &[program.into_os_string()]].concat();
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(["--exact", test, "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    let address = lines.find_map(|line| {
        let (_, address) = line.split_once("listens on ")?;
        address.parse().ok()
    });
    (child, address.expect("an address"))
}

pub const FORM: &str = "Content-Type: multipart/form-data; boundary=\"b o\"\r\n";

/// A body with these parts, each its headers behind `form-data` and its data. With [`FORM`].
pub fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, data) in parts {
        let head = format!("--b o\r\nContent-Disposition: form-data; {headers}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b o--\r\n");
    body
}

/// How often a test kills its server: `RAPIDBYTE_KILLS` for a longer run than in each test.
pub fn kills() -> usize {
    let kills = std::env::var("RAPIDBYTE_KILLS").ok();
    kills.map_or(50, |kills| kills.parse().expect("a number"))
}
