//! A TCP connection: through the host inside the sandbox, straight to the system natively.

use std::time::Duration;

use crate::Result;

#[cfg(target_family = "wasm")]
use crate::bindings::connection as system;

#[cfg(not(target_family = "wasm"))]
use native as system;

pub use crate::bindings::connection::{Readiness, TlsInfo};

/// An open connection; dropping it closes it.
pub struct Connection(system::Connection);

impl Connection {
    /// Connects to `host:port`, which the operator must have granted.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self> {
        system::connect(host, port, millis(timeout)).map(Self)
    }

    /// At most `max` bytes, as soon as any are there; empty when the other side closed. Nothing
    /// within `timeout` is an error of kind transient with code `timeout`.
    pub fn read(&self, max: u32, timeout: Duration) -> Result<Vec<u8>> {
        self.0.read(max, millis(timeout))
    }

    /// Writes all bytes.
    pub fn write(&self, data: &[u8], timeout: Duration) -> Result<()> {
        self.0.write(data, millis(timeout))
    }

    /// Waits until one of `interest` is possible; empty when none was within `timeout`.
    pub fn wait(&self, interest: &[Readiness], timeout: Duration) -> Result<Vec<Readiness>> {
        self.0.wait(interest, millis(timeout))
    }

    /// Begins TLS; what follows is read and written through it. `server_name` is the host that
    /// was given to [`Connection::connect`]. The host decides by the operator's `sslmode` whether
    /// TLS is allowed and what is checked. Errors: `tls_disabled`, `tls_wrong_name`,
    /// `tls_expired`, `tls_unknown_ca`, `tls_self_signed`, `tls_no_san`, `tls_bad_file`,
    /// `tls_injected`, `tls_handshake`, `timeout`; natively always `tls_unavailable`.
    pub fn start_tls(&self, server_name: &str, timeout: Duration) -> Result<TlsInfo> {
        self.0.start_tls(server_name, millis(timeout))
    }

    /// Ends both directions.
    pub fn close(&self) {
        self.0.close();
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::io::{ErrorKind as Io, Read, Write};
    use std::net::{Shutdown, TcpStream, ToSocketAddrs};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::{Readiness, TlsInfo};
    use crate::phase::{Outside, outside};
    use crate::{Error, ErrorKind, Result};

    pub struct Connection(TcpStream);

    pub fn connect(host: &str, port: u16, timeout_ms: u32) -> Result<Connection> {
        outside(Outside::Connect, || open(host, port, timeout_ms))
    }

    fn open(host: &str, port: u16, timeout_ms: u32) -> Result<Connection> {
        let failed = |what: std::io::Error| {
            Error::new(
                ErrorKind::Connection,
                "connect_failed",
                format!("{host}:{port}: {what}"),
            )
        };
        let mut last = std::io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, timeout(timeout_ms)) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    return Ok(Connection(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    impl Connection {
        pub fn read(&self, max: u32, timeout_ms: u32) -> Result<Vec<u8>> {
            let read = || {
                self.0.set_read_timeout(Some(timeout(timeout_ms)))?;
                let mut buffer = vec![0; max as usize];
                let read = (&self.0).read(&mut buffer)?;
                buffer.truncate(read);
                Ok(buffer)
            };
            outside(Outside::Read, read).map_err(|e| broken(&e))
        }

        pub fn write(&self, data: &[u8], timeout_ms: u32) -> Result<()> {
            let write = || {
                self.0.set_write_timeout(Some(timeout(timeout_ms)))?;
                (&self.0).write_all(data)
            };
            outside(Outside::Write, write).map_err(|e| broken(&e))
        }

        pub fn wait(&self, interest: &[Readiness], timeout_ms: u32) -> Result<Vec<Readiness>> {
            let mut flags = PollFlags::empty();
            for readiness in interest {
                flags |= match readiness {
                    Readiness::Readable => PollFlags::IN,
                    Readiness::Writable => PollFlags::OUT,
                };
            }
            let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
            let time =
                rustix::event::Timespec::try_from(timeout(timeout_ms)).map_err(Error::internal)?;
            outside(Outside::Read, || poll(&mut fds, Some(&time)))
                .map_err(|e| broken(&e.into()))?;
            let ready = fds[0].revents();
            let ended = PollFlags::HUP | PollFlags::ERR;
            Ok(interest
                .iter()
                .copied()
                .filter(|readiness| match readiness {
                    Readiness::Readable => ready.intersects(PollFlags::IN | ended),
                    Readiness::Writable => ready.intersects(PollFlags::OUT | ended),
                })
                .collect())
        }

        pub fn start_tls(&self, _server_name: &str, _timeout_ms: u32) -> Result<TlsInfo> {
            let text = "a connector that runs natively has no TLS";
            Err(Error::config("tls_unavailable", text).hint(
                "run the connector as a component, or set `sslmode=disable`: the host provides \
                     TLS",
            ))
        }

        pub fn close(&self) {
            // An error here means that the connection is closed already.
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }

    fn timeout(ms: u32) -> Duration {
        Duration::from_millis(u64::from(ms.max(1)))
    }

    fn broken(error: &std::io::Error) -> Error {
        match error.kind() {
            Io::WouldBlock | Io::TimedOut => {
                Error::new(ErrorKind::Transient, "timeout", "no data arrived in time")
            }
            _ => Error::new(ErrorKind::Connection, "connection_lost", error),
        }
    }
}
