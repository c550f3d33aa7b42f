//! Messages over a connection: whole ones out, whole ones in.

use std::time::{Duration, Instant};

use rapidbyte_sdk::connection::Connection;
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::compression::Compression;
use crate::message::{Answer, HEADER_BYTES, Header, Sequence, encode};
use crate::settings::Compressor;

/// Asked of the connection at a time, at the least.
const READ_BYTES: u32 = 64 << 10;
/// Asked of the connection at a time, at the most: the host holds these bytes, too.
const MAX_READ_BYTES: usize = 1 << 20;
/// Answers are short before the server accepts the login: the longest lists the members of a replica set.
const MAX_GREETING_BYTES: usize = 1 << 20;
/// The most that MongoDB sends: `maxMessageSizeBytes` of every version.
pub(crate) const MAX_MESSAGE_BYTES: usize = 48_000_000;

/// A moment by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub fn after(time: Duration) -> Self {
        // Too far away to be written down is never.
        Self(Instant::now().checked_add(time))
    }

    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }
}

/// A connection with its input that was not yet consumed.
pub(crate) struct Wire {
    pub connection: Connection,
    input: Vec<u8>,
    max_message_bytes: usize,
    /// No answer has come yet.
    is_greeting: bool,
    next_request: i32,
    /// The compressors that the server was told.
    pub offered: Vec<Compressor>,
    /// Of the messages to the server, once it knows one.
    pub compression: Option<Compression>,
}

impl Wire {
    pub fn new(connection: Connection, offered: &[Compressor]) -> Self {
        Self {
            connection,
            input: Vec::new(),
            max_message_bytes: MAX_GREETING_BYTES,
            is_greeting: true,
            next_request: 1,
            offered: offered.to_vec(),
            compression: None,
        }
    }

    /// The server has accepted the login: its messages may be long now.
    pub fn admitted(&mut self) {
        self.max_message_bytes = MAX_MESSAGE_BYTES;
    }

    /// Sends a command and returns the number of the request.
    pub fn send(
        &mut self,
        command: &[u8],
        sequence: Option<Sequence<'_>>,
        is_compressed: bool,
        deadline: Deadline,
    ) -> Result<i32> {
        let (request, message) = self.message(command, sequence, is_compressed)?;
        self.write(&message, deadline)?;
        Ok(request)
    }

    /// Sends two commands in one piece and returns the numbers of the requests.
    pub fn send_both(&mut self, commands: [&[u8]; 2], deadline: Deadline) -> Result<[i32; 2]> {
        let (first, mut bytes) = self.message(commands[0], None, true)?;
        let (second, message) = self.message(commands[1], None, true)?;
        bytes.extend_from_slice(&message);
        self.write(&bytes, deadline)?;
        Ok([first, second])
    }

    /// A message, and the number of its request.
    fn message(
        &mut self,
        command: &[u8],
        sequence: Option<Sequence<'_>>,
        is_compressed: bool,
    ) -> Result<(i32, Vec<u8>)> {
        let request = self.next_request;
        self.next_request = self.next_request.checked_add(1).unwrap_or(1);
        let compression = self.compression.filter(|_| is_compressed);
        Ok((request, encode(request, command, sequence, compression)?))
    }

    fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<()> {
        match self.connection.write(bytes, deadline.left()) {
            Err(error) if is_timeout(&error) => {
                Err(late("the server does not accept more bytes", "writing"))
            }
            written => written,
        }
    }

    /// The answer to this request.
    pub fn receive(&mut self, request: i32, deadline: Deadline) -> Result<Answer> {
        self.fill(HEADER_BYTES, deadline)?;
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.input[..HEADER_BYTES]);
        let header = Header::decode(header, self.max_message_bytes)?;
        if header.answers != request {
            let text = format!("an answer to {}, and {request} was asked", header.answers);
            return Err(crate::error::protocol(text));
        }
        let total = HEADER_BYTES + header.body;
        self.fill(total, deadline)?;
        self.is_greeting = false;
        let rest = self.input.split_off(total);
        let mut body = std::mem::replace(&mut self.input, rest);
        body.drain(..HEADER_BYTES);
        header.document(body, &self.offered, self.max_message_bytes)
    }

    /// Reads until the input has this many bytes. Memory grows only as bytes come.
    fn fill(&mut self, bytes: usize, deadline: Deadline) -> Result<()> {
        while self.input.len() < bytes {
            let missing = (bytes - self.input.len()).min(MAX_READ_BYTES);
            let max = u32::try_from(missing).unwrap_or(READ_BYTES).max(READ_BYTES);
            let read = match self.connection.read(max, deadline.left()) {
                Ok(read) => read,
                Err(error) if is_timeout(&error) => {
                    return Err(late("the server did not respond in time", "waiting"));
                }
                Err(error) => return Err(error),
            };
            if read.is_empty() {
                if is_alert(&self.input) && self.is_greeting {
                    return Err(alerted());
                }
                return Err(Error::new(
                    ErrorKind::Connection,
                    "connection_lost",
                    "the server closed the connection",
                )
                .hint(
                    "read the server's log: it restarted, or it does not know OP_MSG (MongoDB \
                     before 3.6), or it expects TLS",
                ));
            }
            match self.input.is_empty() {
                true => self.input = read,
                false => self.input.extend_from_slice(&read),
            }
        }
        Ok(())
    }
}

/// True for the beginning of an alert of TLS, with which a server refuses a message without TLS (RFC 8446, 5.1 and 6).
fn is_alert(input: &[u8]) -> bool {
    matches!(input, [21, 3, _, 0, 2, ..])
}

fn alerted() -> Error {
    let text = "the server expects TLS, and refused a message without it";
    Error::new(ErrorKind::Auth, "tls_required", text).hint("set tls=true in the URL")
}

pub(crate) fn is_timeout(error: &Error) -> bool {
    error.code == "timeout"
}

fn late(what: &str, doing: &str) -> Error {
    Error::new(ErrorKind::Transient, "timeout", format!("{what}, {doing}"))
        .hint("check that the server is up and reachable; db.currentOp() shows its work")
}
