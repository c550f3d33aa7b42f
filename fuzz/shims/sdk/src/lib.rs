//! The SDK with a connection that is bytes in memory, and without a log: what a connector's code is
//! compiled against when it is fuzzed.

pub use real::*;

/// Nothing is said.
pub mod log {
    pub use real::log::{Level, failpoint};

    pub fn warn(_: impl std::fmt::Display) {}
    pub fn info(_: impl std::fmt::Display) {}
    pub fn debug(_: impl std::fmt::Display) {}
}

/// The other side has said everything already, and takes whatever it is told.
pub mod connection {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    pub use real::connection::{Readiness, TlsInfo};
    use real::{Error, Result};

    /// What the next connection reads, and how many bytes at a time.
    struct Script {
        bytes: Vec<u8>,
        at: usize,
        piece: usize,
    }

    thread_local! {
        static NEXT: RefCell<Option<Script>> = const { RefCell::new(None) };
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
    }

    /// Lays down what the next connection reads, in pieces of `piece` bytes, before its end.
    pub fn answer_with(bytes: Vec<u8>, piece: usize) {
        let piece = piece.max(1);
        NEXT.set(Some(Script {
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
            let mut script = self.0.borrow_mut();
            let left = script.bytes.len() - script.at;
            let len = script.piece.min(left).min(max as usize);
            let bytes = script.bytes[script.at..script.at + len].to_vec();
            script.at += len;
            Ok(bytes)
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
            Ok(interest.to_vec())
        }

        /// # Errors
        /// Always.
        pub fn start_tls(&self, _: &str, _: Duration) -> Result<TlsInfo> {
            Err(Error::config("tls_unavailable", "no TLS in memory"))
        }

        pub fn close(&self) {}
    }
}
