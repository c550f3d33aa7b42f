//! `connection`: TCP to a granted `host:port`.
//!
//! Sockets are non-blocking and waited for with `poll(2)`, so that a time-out is exact and a
//! shut-down socket, which is how a run is cancelled, wakes the waiting guest at once.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, select};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wasmtime::component::Resource;

use crate::bindings::connection::{Host, HostConnection, Readiness};
use crate::bindings::types::{Error, ErrorKind};
use crate::state::State;
use crate::{Phase, Registration};

/// An open connection of a guest.
pub struct Connection {
    stream: TcpStream,
    peer: String,
    _shut_down_on_cancel: Registration,
}

/// The most that one `read` gives.
const MAX_READ: u32 = 4 << 20;

type Outcome<T> = wasmtime::Result<Result<T, Error>>;

impl Host for State {
    fn connect(
        &mut self,
        host: String,
        port: u16,
        timeout_ms: u32,
    ) -> Outcome<Resource<Connection>> {
        self.check_cancelled()?;
        if !self.sandbox.grants.allows_network(&host, port) {
            return Ok(Err(Error::new(
                ErrorKind::Config,
                "network_not_granted",
                format!("{host}:{port} is not granted to {}", self.connector),
            )
            .hint(
                "a connector reaches only the hosts that its configuration names",
            )));
        }
        if self.connections >= self.sandbox.limits.connections {
            let limit = self.sandbox.limits.connections;
            let text = format!("more than {limit} open connections");
            return Ok(Err(Error::new(
                ErrorKind::Internal,
                "too_many_connections",
                text,
            )));
        }
        let clock = self.sandbox.clock.clone();
        let connected = clock.outside(Phase::Connect, || {
            self.connect_or_cancel(&host, port, timeout_ms)
        })?;
        self.progress();
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let other = stream.try_clone()?;
        let shut_down = self.sandbox.cancel.on_cancel(move || {
            // Fails only when the connection is closed already.
            let _ = other.shutdown(Shutdown::Both);
        });
        self.connections += 1;
        let peer = format!("{host}:{port}");
        let connection = Connection {
            stream,
            peer,
            _shut_down_on_cancel: shut_down,
        };
        Ok(Ok(self.table.push(connection)?))
    }
}

impl State {
    /// Resolving and connecting cannot be interrupted, so they run on a thread of their own,
    /// which ends by itself after the time-out.
    fn connect_or_cancel(&self, host: &str, port: u16, timeout_ms: u32) -> Outcome<TcpStream> {
        let timeout = Duration::from_millis(timeout_ms.max(1).into());
        let deadline = Instant::now() + timeout;
        let (sender, connected) = bounded(1);
        let (cancel, cancelled) = bounded::<()>(1);
        let _registration = self.sandbox.cancel.on_cancel(move || {
            let _ = cancel.try_send(());
        });
        let name = host.to_owned();
        std::thread::Builder::new()
            .name("connect".into())
            .spawn(move || {
                // Nobody listens any more when the run was cancelled.
                let _ = sender.send(connect(&name, port, deadline));
            })?;
        let failed = |what: &dyn std::fmt::Display| {
            Err(Error::new(
                ErrorKind::Connection,
                "connect_failed",
                format!("{host}:{port}: {what}"),
            )
            .hint("check the name, the port, and that the server accepts connections from here"))
        };
        select! {
            recv(connected) -> result => match result? {
                Ok(stream) => Ok(Ok(stream)),
                Err(error) => Ok(failed(&error)),
            },
            recv(cancelled) -> _ => Err(crate::state::Cancelled.into()),
            default(timeout) => Ok(failed(&format!("no answer within {timeout_ms} ms"))),
        }
    }

    /// Waits until `flags` or the end of the connection; false after the time.
    fn wait_for(
        &self,
        connection: &Resource<Connection>,
        flags: PollFlags,
        deadline: Instant,
    ) -> wasmtime::Result<PollFlags> {
        let stream = &self.table.get(connection)?.stream;
        loop {
            let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
            let left = deadline.saturating_duration_since(Instant::now());
            let time = Timespec::try_from(left)?;
            match poll(&mut fds, Some(&time)) {
                Ok(_) => {
                    self.check_cancelled()?;
                    return Ok(fds[0].revents());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn lost(&self, connection: &Resource<Connection>, error: &std::io::Error) -> Outcome<()> {
        self.check_cancelled()?;
        let peer = &self.table.get(connection)?.peer;
        let text = format!("{peer}: {error}");
        Ok(Err(Error::new(
            ErrorKind::Connection,
            "connection_lost",
            text,
        )))
    }

    fn timed_out<T>(&self, connection: &Resource<Connection>, what: &str, ms: u32) -> Outcome<T> {
        let peer = &self.table.get(connection)?.peer;
        let text = format!("{peer}: {what} within {ms} ms");
        Ok(Err(Error::new(ErrorKind::Transient, "timeout", text)))
    }
}

fn connect(host: &str, port: u16, deadline: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::Error::other("no time left to try another address"));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn deadline(timeout_ms: u32) -> Instant {
    Instant::now() + Duration::from_millis(timeout_ms.max(1).into())
}

impl HostConnection for State {
    fn read(&mut self, this: Resource<Connection>, max: u32, timeout_ms: u32) -> Outcome<Vec<u8>> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Fetch, || {
            let deadline = deadline(timeout_ms);
            let mut buffer = vec![0; max.clamp(1, MAX_READ) as usize];
            loop {
                let read = (&self.table.get(&this)?.stream).read(&mut buffer);
                match read {
                    Ok(len) => {
                        self.check_cancelled()?;
                        self.progress();
                        buffer.truncate(len);
                        return Ok(Ok(buffer));
                    }
                    Err(error) if error.kind() == Io::Interrupted => {}
                    Err(error) if error.kind() == Io::WouldBlock => {
                        if self.wait_for(&this, PollFlags::IN, deadline)?.is_empty() {
                            return self.timed_out(&this, "nothing came", timeout_ms);
                        }
                    }
                    Err(error) => return Ok(self.lost(&this, &error)?.map(|()| Vec::new())),
                }
            }
        })
    }

    fn write(&mut self, this: Resource<Connection>, data: Vec<u8>, timeout_ms: u32) -> Outcome<()> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Flush, || {
            let deadline = deadline(timeout_ms);
            let mut rest = data.as_slice();
            while !rest.is_empty() {
                match (&self.table.get(&this)?.stream).write(rest) {
                    Ok(len) => {
                        self.progress();
                        rest = &rest[len..];
                    }
                    Err(error) if error.kind() == Io::Interrupted => {}
                    Err(error) if error.kind() == Io::WouldBlock => {
                        if self.wait_for(&this, PollFlags::OUT, deadline)?.is_empty() {
                            return self.timed_out(&this, "nothing could be sent", timeout_ms);
                        }
                    }
                    Err(error) => return self.lost(&this, &error),
                }
            }
            self.check_cancelled()?;
            Ok(Ok(()))
        })
    }

    fn wait(
        &mut self,
        this: Resource<Connection>,
        interest: Vec<Readiness>,
        timeout_ms: u32,
    ) -> Outcome<Vec<Readiness>> {
        let clock = self.sandbox.clock.clone();
        let flags_of = |readiness: &Readiness| match readiness {
            Readiness::Readable => PollFlags::IN,
            Readiness::Writable => PollFlags::OUT,
        };
        clock.outside(Phase::Fetch, || {
            let flags = interest
                .iter()
                .map(flags_of)
                .fold(PollFlags::empty(), |a, b| a | b);
            let ready = self.wait_for(&this, flags, deadline(timeout_ms))?;
            let ended = ready.intersects(PollFlags::HUP | PollFlags::ERR);
            let is_ready = |readiness: &Readiness| ended || ready.intersects(flags_of(readiness));
            Ok(Ok(interest.iter().copied().filter(is_ready).collect()))
        })
    }

    fn start_tls(
        &mut self,
        _: Resource<Connection>,
        _: String,
        _: u32,
    ) -> Outcome<crate::bindings::connection::TlsInfo> {
        let text = "TLS is not there yet";
        Ok(Err(Error::new(
            ErrorKind::Internal,
            "tls_unavailable",
            text,
        )))
    }

    fn close(&mut self, this: Resource<Connection>) -> wasmtime::Result<()> {
        // An error means that it is closed already.
        let _ = self.table.get(&this)?.stream.shutdown(Shutdown::Both);
        Ok(())
    }

    fn drop(&mut self, this: Resource<Connection>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        self.connections -= 1;
        Ok(())
    }
}
