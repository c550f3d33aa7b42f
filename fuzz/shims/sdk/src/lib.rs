//! The SDK with a connection that is bytes in memory, and without a log: what a connector's code is
//! compiled against when it is fuzzed.

pub use real::*;

/// A log that drops every line.
pub mod log {
    pub use real::log::{Level, failpoint};

    pub fn warn(_: impl std::fmt::Display) {}
    pub fn info(_: impl std::fmt::Display) {}
    pub fn debug(_: impl std::fmt::Display) {}
}

/// A connection to a server that has sent everything already, and accepts all bytes.
pub mod connection {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::time::Duration;

    pub use real::connection::{Readiness, TlsInfo};
    use real::{Error, Result};

    /// Messages after which a server waits for the client, ReadyForQuery and CopyInResponse: how they
    /// begin, and how long they are.
    const TURNS: [(&[u8], usize); 2] = [(b"Z\0\0\0\x05", 6), (b"G\0\0\0\x0b", 12)];

    /// The bytes that the next connection reads, and how many at a time.
    struct Script {
        bytes: Vec<u8>,
        at: usize,
        piece: usize,
        /// Where it is the client's turn.
        turns: BTreeSet<usize>,
    }

    impl Script {
        /// The bytes up to the client's next turn: an answer that comes with the bytes before the
        /// question is refused, and nothing behind it would be read.
        fn next(&mut self, max: usize) -> Vec<u8> {
            let turn = self.turns.range(self.at + 1..).next();
            let left = turn.unwrap_or(&self.bytes.len()) - self.at;
            let from = self.at;
            self.at += self.piece.min(left).min(max);
            self.bytes[from..self.at].to_vec()
        }

        /// A server whose bytes are not cut does not speak at the client's turn.
        fn is_silent(&self) -> bool {
            self.piece == usize::MAX && self.turns.contains(&self.at)
        }
    }

    fn turns(bytes: &[u8]) -> BTreeSet<usize> {
        let end = |from: usize| {
            let is_here = |begin: &[u8]| bytes[from..].starts_with(begin);
            let (_, len) = TURNS.iter().find(|(begin, _)| is_here(begin))?;
            Some(from + len).filter(|end| *end <= bytes.len())
        };
        (0..bytes.len()).filter_map(end).collect()
    }

    thread_local! {
        static NEXT: RefCell<Option<Script>> = const { RefCell::new(None) };
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
    }

    /// Lays down what the next connection reads, in pieces of `piece` bytes, before its end.
    pub fn answer_with(bytes: Vec<u8>, piece: usize) {
        let piece = piece.max(1);
        NEXT.set(Some(Script {
            turns: turns(&bytes),
            bytes,
            at: 0,
            piece,
        }));
    }

    pub struct Connection(RefCell<Script>);

    impl Connection {
        /// # Errors
        /// When nothing was laid down.
        pub fn connect(_: &str, _: u16, _: Duration) -> Result<Self> {
            let script = NEXT.take().ok_or_else(|| Error::internal("nobody there"))?;
            Ok(Self(RefCell::new(script)))
        }

        /// # Errors
        /// None.
        pub fn read(&self, max: u32, _: Duration) -> Result<Vec<u8>> {
            Ok(self.0.borrow_mut().next(max as usize))
        }

        /// # Errors
        /// None.
        pub fn write(&self, data: &[u8], _: Duration) -> Result<()> {
            WRITTEN.set(WRITTEN.get().wrapping_add(data.len()));
            Ok(())
        }

        /// # Errors
        /// None.
        pub fn wait(&self, interest: &[Readiness], _: Duration) -> Result<Vec<Readiness>> {
            let script = self.0.borrow();
            let is_ready =
                |ready: &&Readiness| **ready != Readiness::Readable || !script.is_silent();
            Ok(interest.iter().filter(is_ready).copied().collect())
        }

        /// # Errors
        /// Always.
        pub fn start_tls(&self, _: &str, _: Duration) -> Result<TlsInfo> {
            Err(Error::config("tls_unavailable", "no TLS in memory"))
        }

        pub fn close(&self) {}
    }
}
