//! A server that lies: a real PostgreSQL server, and between it and the client somebody who changes
//! one of its messages.
//!
//! The truth up to a point makes the lie reach every part of a client: the start, the catalog, a COPY,
//! a commit. From there on it is whatever bytes a test wants, and what follows of the truth is the
//! test's choice, too.
//!
//! ```no_run
//! use rapidbyte_testkit::{liar, postgres};
//!
//! let server = postgres::shared();
//! let lie = liar::Lie {
//!     after: "COMMIT",
//!     at: b'C',
//!     nth: 1,
//!     says: liar::Says::Instead(liar::message(b'C', b"ROLLBACK\0")),
//!     is_once: true,
//! };
//! let liar = liar::Liar::in_front_of(server.port(), lie).unwrap();
//! println!("{}", liar.port());
//! // … and afterwards:
//! assert!(liar.lies_told() > 0);
//! ```
//!
//! Threads of the standard library alone, two for each connection. A flood ends with its connection, or
//! after 1 GiB.

mod between;
mod talk;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use between::{Between, Talk, flood};

/// One lie, told on every connection that comes to it, or on the first one alone.
#[derive(Debug, Clone)]
pub struct Lie {
    /// Text that the client has sent on the connection before; empty for its beginning.
    pub after: &'static str,
    /// The tag of the server's message that triggers the lie; 0 for any.
    pub at: u8,
    /// Its number among the messages that match, from 1 on.
    pub nth: usize,
    /// The bytes that the client gets.
    pub says: Says,
    /// Later connections hear the truth.
    pub is_once: bool,
}

/// The bytes that the client gets at that message.
#[derive(Debug, Clone)]
pub enum Says {
    /// These bytes in its place, and then the truth.
    Instead(Vec<u8>),
    /// These bytes, then it and the rest of the truth.
    Before(Vec<u8>),
    /// It, made into something else, and then the truth.
    Changed(fn(&[u8]) -> Vec<u8>),
    /// These bytes, and then the end of the connection.
    Close(Vec<u8>),
    /// These bytes, and then nothing; the connection stays.
    Silence(Vec<u8>),
    /// These bytes again and again.
    ForEver(Vec<u8>),
    /// The first of these; the next one whenever the client has sent something; then nothing.
    /// `{nonce}` in one of them is the text between the last `r=` that the client sent and a comma.
    Dialogue(Vec<Vec<u8>>),
}

impl Says {
    /// Its beginning, for the message of a test.
    pub fn shown(&self) -> String {
        struct Short(String);
        impl std::fmt::Write for Short {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.push_str(text);
                // Enough was written: the rest may be megabytes.
                (self.0.len() < 100).then_some(()).ok_or(std::fmt::Error)
            }
        }
        let mut short = Short(String::new());
        // It ends with an error where it was cut.
        let _ = std::fmt::Write::write_fmt(&mut short, format_args!("{self:?}"));
        short.0
    }
}

/// A lying server; dropped, it ends every connection.
#[derive(Debug)]
pub struct Liar(Between<Told>);

#[derive(Debug)]
struct Told {
    lie: Lie,
    told: AtomicU64,
}

impl Liar {
    /// Begins to listen; connections are passed on to the server at this port of this machine.
    ///
    /// # Errors
    /// Of the system, when no port is free to listen at.
    pub fn in_front_of(server_port: u16, lie: Lie) -> io::Result<Self> {
        let told = AtomicU64::new(0);
        Between::new(server_port, Told { lie, told }).map(Self)
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// How often it has lied.
    pub fn lies_told(&self) -> u64 {
        self.0.talk().told.load(Ordering::SeqCst)
    }
}

impl Told {
    /// True for the connection that may lie now.
    fn may_lie(&self) -> bool {
        let before = self.told.fetch_add(1, Ordering::SeqCst);
        let may = before == 0 || !self.lie.is_once;
        if !may {
            self.told.fetch_sub(1, Ordering::SeqCst);
        }
        may
    }
}

/// The most memory that this process has held, in bytes; 0 where the system does not say.
pub fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// A whole message of the protocol.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    says_len(tag, len, body)
}

/// A message that says another length than it has.
pub fn says_len(tag: u8, len: u32, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &len.to_be_bytes(), body].concat()
}

#[cfg(test)]
mod tests;
