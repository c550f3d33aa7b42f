//! A server of MongoDB that lies: a real one, and between it and the client a program that changes one of its answers.
//!
//! The truth up to a point makes the lie reach every part of a client: the greeting, the catalog, a write, a commit. A
//! server answers the questions of a connection in their order, so a lie is made of a question and its true answer.
//!
//! ```no_run
//! use rapidbyte_testkit::mongodb::{self, liar};
//!
//! let server = mongodb::shared().unwrap();
//! let lie = liar::Lie {
//!     of: "insert",
//!     nth: 1,
//!     is_once: true,
//!     says: |asked| liar::Says::Bytes(asked.answer(|answer| answer.int32("ok", 1).int32("n", 7))),
//! };
//! let liar = liar::Liar::in_front_of(server.port(), lie).unwrap();
//! println!("{}", liar.port());
//! // … and afterwards:
//! assert!(liar.lies_told() > 0);
//! ```
//!
//! One thread of the standard library for each connection. A flood ends with its connection, or after 1 GiB.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rapidbyte_bson::{Builder, Document};

use crate::liar::{Between, Talk, flood};

/// Length, number of the message, number of the question, kind.
const HEADER_BYTES: usize = 16;
/// More than any client or server of MongoDB sends.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Flags, and the kind of the section with the command.
const COMMAND_AT: usize = HEADER_BYTES + 5;
/// The kind of a message with sections.
pub const OP_MSG: i32 = 2013;
/// The kind of a message that is compressed.
pub const OP_COMPRESSED: i32 = 2012;

/// One lie.
#[derive(Debug, Clone, Copy)]
pub struct Lie {
    /// The command whose answer is a lie, such as `find`; empty for every command.
    pub of: &'static str,
    /// The number of the first lie among the answers to this command on all connections, from 1 on.
    pub nth: usize,
    /// Later answers are the truth.
    pub is_once: bool,
    /// Makes the lie.
    pub says: fn(&Asked<'_>) -> Says,
}

/// A question of the client, and the true answer to it: whole messages.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The question.
    pub question: &'a [u8],
    /// The answer of the server.
    pub truth: &'a [u8],
}

impl<'a> Asked<'a> {
    /// The number of the question.
    pub fn number(&self) -> i32 {
        number_at(self.question, 4)
    }

    /// The command.
    ///
    /// # Panics
    /// When the client sent something that is not a command.
    pub fn command(&self) -> Document<'a> {
        command_of(self.question).expect("a command")
    }

    /// The document of the true answer.
    ///
    /// # Panics
    /// When the server breaks its protocol.
    pub fn true_document(&self) -> Document<'a> {
        command_of(self.truth).expect("an answer")
    }

    /// An answer with another document.
    ///
    /// # Panics
    /// When the document cannot be written.
    pub fn answer(&self, build: impl FnOnce(&mut Builder) -> &mut Builder) -> Vec<u8> {
        let mut document = Builder::new();
        build(&mut document);
        self.answer_bytes(&document.finish().expect("a document"))
    }

    /// An answer with these bytes in the place of its document.
    pub fn answer_bytes(&self, document: &[u8]) -> Vec<u8> {
        let body = [&[0; 5][..], document].concat();
        message(self.number(), OP_MSG, &body)
    }

    /// The true answer, in which the first `from` is `to`, which has as many bytes.
    ///
    /// # Panics
    /// When the answer does not have it.
    pub fn swapped(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
        assert_eq!(from.len(), to.len(), "bytes of the same number");
        let mut bytes = self.truth.to_vec();
        let at = bytes.windows(from.len()).position(|part| part == from);
        let at = at.expect("the bytes to change");
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    }

    /// The true answer with another number in its header: 0 its length, 1 its own number, 2 the question, 3 its kind.
    pub fn with_header(&self, place: usize, number: i32) -> Vec<u8> {
        let mut bytes = self.truth.to_vec();
        bytes[place * 4..place * 4 + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

/// A whole message that answers the question of this number.
pub fn message(question: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    let len = i32::try_from(HEADER_BYTES + body.len()).unwrap_or(i32::MAX);
    let header = [len, 7, question, kind].map(i32::to_le_bytes).concat();
    [&header, body].concat()
}

/// The bytes that the client gets in the place of the answer.
#[derive(Debug, Clone)]
pub enum Says {
    /// These.
    Bytes(Vec<u8>),
    /// These, and then the end of the connection.
    Close(Vec<u8>),
    /// These, and then nothing; the connection stays.
    Silence(Vec<u8>),
    /// These again and again.
    ForEver(Vec<u8>),
}

/// A lying server; dropped, it ends every connection.
#[derive(Debug)]
pub struct Liar(Between<Told>);

#[derive(Debug)]
struct Told {
    lie: Lie,
    /// Answers to the command of the lie.
    answers: AtomicUsize,
    told: AtomicU64,
}

impl Liar {
    /// Begins to listen; questions are passed on to the server at this port of this machine.
    ///
    /// # Errors
    /// Of the system, when no port is free to listen at.
    pub fn in_front_of(server_port: u16, lie: Lie) -> io::Result<Self> {
        let told = Told {
            lie,
            answers: AtomicUsize::new(0),
            told: AtomicU64::new(0),
        };
        Between::new(server_port, told).map(Self)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// How often it has lied.
    pub fn lies_told(&self) -> u64 {
        self.0.talk().told.load(Ordering::SeqCst)
    }
}

impl Talk for Told {
    fn talk(self: &Arc<Self>, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
        while let Some(question) = next(client)? {
            server.write_all(&question)?;
            let Some(truth) = next(server)? else {
                return Ok(());
            };
            if !self.lies_about(&question) {
                client.write_all(&truth)?;
                continue;
            }
            let asked = Asked {
                question: &question,
                truth: &truth,
            };
            let says = (self.lie.says)(&asked);
            self.told.fetch_add(1, Ordering::SeqCst);
            match says {
                Says::Bytes(bytes) => client.write_all(&bytes)?,
                Says::Close(bytes) => return client.write_all(&bytes),
                Says::Silence(bytes) => {
                    client.write_all(&bytes)?;
                    // Until the client has enough of it.
                    io::copy(&mut client, &mut io::sink())?;
                    return Ok(());
                }
                Says::ForEver(bytes) => return flood(client, &bytes),
            }
        }
        Ok(())
    }
}

impl Told {
    fn lies_about(&self, question: &[u8]) -> bool {
        let first = command_of(question).and_then(|command| command.elements().next()?.ok());
        let Some((name, _)) = first else {
            return false;
        };
        if !self.lie.of.is_empty() && name != self.lie.of {
            return false;
        }
        let nth = self.answers.fetch_add(1, Ordering::SeqCst) + 1;
        match self.lie.is_once {
            true => nth == self.lie.nth,
            false => nth >= self.lie.nth,
        }
    }
}

fn number_at(message: &[u8], at: usize) -> i32 {
    let bytes = message
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_le_bytes)
}

/// The first section of a message, which has the kind 0. `None` for a message that is compressed.
fn command_of(message: &[u8]) -> Option<Document<'_>> {
    let is_plain = number_at(message, 12) == OP_MSG;
    let document = message.get(COMMAND_AT..).filter(|_| is_plain)?;
    Some(Document::split(document).ok()?.0)
}

/// The next whole message. `None`: the connection ended before one.
fn next(mut from: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut message = vec![0; HEADER_BYTES];
    match from.read_exact(&mut message) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = usize::try_from(number_at(&message, 0)).unwrap_or(0);
    if !(HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&len) {
        return Err(io::Error::other(format!("a message of {len} bytes")));
    }
    message.resize(len, 0);
    from.read_exact(&mut message[HEADER_BYTES..])?;
    Ok(Some(message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ask(liar: &Liar, command: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, liar.port())).unwrap();
        let mut document = Builder::new();
        document.int32(command, 1).string("$db", "admin");
        let body = [&[0; 5][..], &document.finish().unwrap()].concat();
        stream.write_all(&message(0, OP_MSG, &body)).unwrap();
        next(&stream).unwrap().unwrap_or_default()
    }

    fn is_good(message: &[u8]) -> bool {
        let document = command_of(message).unwrap();
        document.get("ok").unwrap().is_some_and(|ok| ok.is_true())
    }

    #[test]
    fn an_answer_is_changed_where_it_was_asked_for() {
        let Some(server) = crate::mongodb::shared() else {
            return;
        };
        let lie = Lie {
            of: "ping",
            nth: 2,
            is_once: true,
            says: |asked| Says::Bytes(asked.answer(|answer| answer.int32("ok", 0))),
        };
        let liar = Liar::in_front_of(server.port(), lie).unwrap();
        let good =
            ["ping", "isMaster", "ping", "ping"].map(|command| is_good(&ask(&liar, command)));
        assert_eq!(good, [true, true, false, true]);
        assert_eq!(liar.lies_told(), 1);
    }

    #[test]
    fn an_end_is_for_every_connection() {
        let Some(server) = crate::mongodb::shared() else {
            return;
        };
        let lie = Lie {
            of: "",
            nth: 1,
            is_once: false,
            says: |asked| Says::Close(asked.with_header(0, 9)),
        };
        let liar = Liar::in_front_of(server.port(), lie).unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, liar.port())).unwrap();
            stream
                .write_all(&message(
                    0,
                    OP_MSG,
                    &[0, 0, 0, 0, 0, 12, 0, 0, 0, 16, b'a', 0, 1, 0, 0, 0, 0],
                ))
                .unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).unwrap();
            assert_eq!(number_at(&heard, 0), 9);
        }
        assert_eq!(liar.lies_told(), 2);
    }
}
