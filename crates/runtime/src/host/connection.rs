//! `connection`: TCP to a granted `host:port`, and TLS over it.
//!
//! Sockets are non-blocking and waited for with `poll(2)`, so that a timeout is exact. To cancel a run,
//! the host shuts its sockets down, which wakes the waiting guest at once. The host enforces the
//! operator's TLS settings here, whatever the guest does.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, select};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wasmtime::component::Resource;

use crate::bindings::connection::{Host, HostConnection, Readiness, TlsInfo};
use crate::bindings::types::{Error, ErrorKind};
use crate::ended;
use crate::grants::tls::{Mode, Policy};
use crate::host::dial;
use crate::host::tls::opening::{self, Opening};
use crate::host::tls::{Broken, Session, Step, explain};
use crate::state::State;
use crate::{Phase, Registration};

/// An open connection of a guest.
pub struct Connection {
    stream: TcpStream,
    channel: Channel,
    host: String,
    /// `host:port`, for messages.
    peer: String,
    policy: Policy,
    _place: Place,
    _shut_down_on_cancel: Registration,
}

enum Channel {
    Plain(Opening),
    Tls(Box<Session>),
    /// The TLS handshake failed; nothing may follow in plaintext.
    Failed,
}

/// One of the places that [`crate::Limits::connections`] gives, taken from before the name is
/// looked up until the connection is dropped.
pub(super) struct Place(Arc<AtomicU32>);

impl Place {
    pub(super) fn take(taken: &Arc<AtomicU32>, limit: u32) -> Option<Self> {
        taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < limit).then_some(n + 1)
            })
            .ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The most that one `read` gives.
const MAX_READ: u32 = 4 << 20;
/// The host's memory for a connection, at most: the buffers of a TLS session in both directions.
const HELD_BYTES: usize = 192 << 10;
/// The least that one `read` may give, however much the host holds.
const MIN_READ: usize = 4 << 10;

type Outcome<T> = wasmtime::Result<Result<T, Error>>;

impl Host for State {
    fn connect(
        &mut self,
        host: String,
        port: u16,
        timeout_ms: u32,
    ) -> Outcome<Resource<Connection>> {
        self.check_cancelled()?;
        let Some(tls) = self.sandbox.grants.tls(&host, port) else {
            let host = ended::short(&host);
            let text = format!("{host}:{port} is not granted to {}", self.connector);
            return Ok(Err(Error::new(
                ErrorKind::Config,
                "network_not_granted",
                text,
            )
            .hint(
                "name the host in the configuration, or grant it under permissions.network",
            )));
        };
        let policy = match tls.policy() {
            Ok(policy) => policy,
            Err(error) => return Ok(Err(error)),
        };
        let limit = self.sandbox.limits.connections;
        let Some(place) = Place::take(&self.connections, limit) else {
            let text = format!("more than {limit} open or pending connections");
            return Ok(Err(Error::new(
                ErrorKind::Internal,
                "too_many_connections",
                text,
            )));
        };
        if let Err(error) = self.hold(HELD_BYTES) {
            return Ok(Err(error));
        }
        self.waits_for = Some(format!("a connection to {host}:{port}"));
        let clock = self.sandbox.clock.clone();
        let connected = clock.outside(Phase::Connect, || {
            self.connect_or_cancel(&host, port, timeout_ms, place)
        })?;
        self.progress();
        let (stream, place) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                self.release(HELD_BYTES);
                return Ok(Err(error));
            }
        };
        let other = stream.try_clone()?;
        let shut_down = self.sandbox.cancel.on_cancel(move || {
            // Fails only when the connection is closed already.
            let _ = other.shutdown(Shutdown::Both);
        });
        let connection = Connection {
            stream,
            channel: Channel::Plain(Opening::default()),
            peer: format!("{host}:{port}"),
            host,
            policy,
            _place: place,
            _shut_down_on_cancel: shut_down,
        };
        Ok(Ok(self.table.push(connection)?))
    }
}

impl State {
    /// Resolving and connecting cannot be interrupted, so they run on a thread of their own,
    /// which ends by itself after the time-out and keeps its place until then.
    fn connect_or_cancel(
        &self,
        host: &str,
        port: u16,
        timeout_ms: u32,
        place: Place,
    ) -> Outcome<(TcpStream, Place)> {
        let timeout = Duration::from_millis(timeout_ms.max(1).into());
        let deadline = Instant::now() + timeout;
        let (sender, connected) = bounded(1);
        let (cancel, cancelled) = bounded::<()>(1);
        let _registration = self.sandbox.cancel.on_cancel(move || {
            let _ = cancel.try_send(());
        });
        let name = host.to_owned();
        let grants = Arc::clone(&self.sandbox.grants);
        let Some(lookup) = self.sandbox.limits.lookups.take() else {
            return Ok(Err(dial::Refused::too_many(host, port)));
        };
        std::thread::Builder::new()
            .name("connect".into())
            .spawn(move || {
                let _until_then = lookup;
                // Nobody listens any more when the run was cancelled.
                let connected = dial::connect(&name, port, &grants, dial::resolve, deadline);
                let _ = sender.send(connected.map(|stream| (stream, place)));
            })?;
        select! {
            recv(connected) -> result => match result? {
                Ok(connected) => Ok(Ok(connected)),
                Err(refused) => Ok(Err(refused.explain(host, port))),
            },
            recv(cancelled) -> _ => Err(crate::state::Cancelled.into()),
            default(timeout.min(self.patience())) => match self.check_cancelled() {
                Err(stalled) => Err(stalled),
                Ok(()) => Ok(Err(dial::Refused::late(timeout_ms).explain(host, port))),
            },
        }
    }

    /// Waits until `flags` or the end of the connection; false after the time.
    fn wait_for(
        &mut self,
        connection: &Resource<Connection>,
        flags: PollFlags,
        deadline: Instant,
    ) -> wasmtime::Result<PollFlags> {
        let peer = self.table.get(connection)?.peer.clone();
        self.waits_for = Some(peer);
        let stream = &self.table.get(connection)?.stream;
        loop {
            let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), flags)];
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.min(self.patience());
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

    /// Does `step` again and again, waiting for the socket in between, until it is done or the
    /// time is over. `missing` is what a time-out says.
    fn drive<T>(
        &mut self,
        this: &Resource<Connection>,
        timeout_ms: u32,
        missing: &str,
        mut step: impl FnMut(&mut Connection) -> Result<Step<T>, Broken>,
    ) -> Outcome<T> {
        let deadline = deadline(timeout_ms);
        let mut late = false;
        loop {
            let connection = self.table.get_mut(this)?;
            let flags = match step(connection) {
                Ok(Step::Done(value)) => {
                    self.check_cancelled()?;
                    return Ok(Ok(value));
                }
                Ok(Step::Wait(flags)) => flags,
                Err(broken) => {
                    let error = broken.explain(&connection.peer, &connection.policy);
                    self.check_cancelled()?;
                    return Ok(Err(error));
                }
            };
            // A socket that is always ready, and never gives what is asked for, ends here.
            if late || self.wait_for(this, flags, deadline)?.is_empty() {
                return self.timed_out(this, missing, timeout_ms);
            }
            self.progress();
            late = Instant::now() >= deadline;
        }
    }

    fn timed_out<T>(&self, connection: &Resource<Connection>, what: &str, ms: u32) -> Outcome<T> {
        let peer = &self.table.get(connection)?.peer;
        let text = format!("{peer}: {what} within {ms} ms");
        Ok(Err(Error::new(ErrorKind::Transient, "timeout", text)))
    }
}

fn deadline(timeout_ms: u32) -> Instant {
    Instant::now() + Duration::from_millis(timeout_ms.max(1).into())
}

impl Connection {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Step<usize>, Broken> {
        let mut stream = &self.stream;
        match &mut self.channel {
            Channel::Tls(session) => session.read(stream, buffer),
            Channel::Failed => Err(Broken::Io(Io::NotConnected.into())),
            Channel::Plain(opening) => match stream.read(buffer) {
                Ok(len) => {
                    opening.read(&buffer[..len]);
                    Ok(Step::Done(len))
                }
                Err(error) => again(error, PollFlags::IN),
            },
        }
    }

    /// `rest` becomes what is left.
    fn write(&mut self, rest: &mut &[u8]) -> Result<Step<()>, Broken> {
        let mut stream = &self.stream;
        let opening = match &mut self.channel {
            Channel::Tls(session) => return session.write(stream, rest),
            Channel::Failed => return Err(Broken::Io(Io::NotConnected.into())),
            Channel::Plain(opening) => opening,
        };
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(len) => {
                    opening.wrote(&rest[..len]);
                    *rest = &rest[len..];
                }
                Err(error) => return again(error, PollFlags::OUT),
            }
        }
        Ok(Step::Done(()))
    }

    /// A session that can begin now.
    fn secure(&self, server_name: &str, grants: &crate::Grants) -> Result<Session, Error> {
        if !matches!(self.channel, Channel::Plain(_)) {
            let text = format!("{}: TLS was begun already", self.peer);
            return Err(Error::new(ErrorKind::Internal, "tls_handshake", text));
        }
        if self.policy.mode == Mode::Disable {
            return Err(explain::disabled(&self.peer));
        }
        if !server_name.eq_ignore_ascii_case(&self.host) {
            let other = ended::short(server_name);
            let text = format!("{}: TLS for another name, {other}", self.peer);
            return Err(
                Error::new(ErrorKind::Internal, "tls_wrong_name", text).hint(
                    "report it to the \
                     connector's author",
                ),
            );
        }
        match opening::is_followed(&self.stream) {
            Ok(false) => Session::new(&self.host, &self.policy, grants),
            Ok(true) => Err(explain::injected(&self.peer)),
            Err(error) => Err(Broken::Io(error).explain(&self.peer, &self.policy)),
        }
    }

    /// Ends both directions.
    fn end(&mut self) {
        if let Channel::Tls(session) = &mut self.channel {
            session.end(&self.stream);
        }
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Waits where the socket would have blocked.
fn again<T>(error: std::io::Error, flags: PollFlags) -> Result<Step<T>, Broken> {
    match error.kind() {
        Io::WouldBlock | Io::Interrupted => Ok(Step::Wait(flags)),
        _ => Err(Broken::Io(error)),
    }
}

fn flag_of(readiness: &Readiness) -> PollFlags {
    match readiness {
        Readiness::Readable => PollFlags::IN,
        Readiness::Writable => PollFlags::OUT,
    }
}

impl HostConnection for State {
    fn read(&mut self, this: Resource<Connection>, max: u32, timeout_ms: u32) -> Outcome<Vec<u8>> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Fetch, || {
            let connection = self.table.get(&this)?;
            let mut len = max.clamp(1, MAX_READ) as usize;
            len = len.min(self.host_room().max(MIN_READ));
            if let Channel::Plain(opening) = &connection.channel {
                let policy = &connection.policy;
                match opening.may_read(len, policy.requires_tls()) {
                    Ok(allowed) => len = allowed,
                    Err(blocked) => return Ok(Err(blocked.explain(&connection.peer, policy))),
                }
            }
            let mut buffer = vec![0; len];
            let read = self.drive(&this, timeout_ms, "nothing came", |c| c.read(&mut buffer))?;
            // Reading past the end is not progress.
            if read.as_ref().is_ok_and(|len| *len > 0) {
                self.progress();
            }
            Ok(read.map(|len| {
                buffer.truncate(len);
                buffer
            }))
        })
    }

    fn write(&mut self, this: Resource<Connection>, data: Vec<u8>, timeout_ms: u32) -> Outcome<()> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Flush, || {
            let connection = self.table.get(&this)?;
            if let Channel::Plain(opening) = &connection.channel {
                let policy = &connection.policy;
                if let Err(blocked) = opening.may_write(&data, policy.requires_tls()) {
                    return Ok(Err(blocked.explain(&connection.peer, policy)));
                }
            }
            let mut rest = data.as_slice();
            let written = self.drive(&this, timeout_ms, "nothing could be sent", |c| {
                c.write(&mut rest)
            });
            if !data.is_empty() {
                self.progress();
            }
            written
        })
    }

    fn wait(
        &mut self,
        this: Resource<Connection>,
        interest: Vec<Readiness>,
        timeout_ms: u32,
    ) -> Outcome<Vec<Readiness>> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Fetch, || {
            let deadline = deadline(timeout_ms);
            let flags = interest.iter().map(flag_of);
            let flags = flags.fold(PollFlags::empty(), |a, b| a | b);
            loop {
                // Bytes that TLS has already decrypted are no longer in the socket, and not all bytes
                // in the socket become plaintext.
                let Connection {
                    stream, channel, ..
                } = self.table.get_mut(&this)?;
                let decrypted = match channel {
                    Channel::Tls(session) if flags.contains(PollFlags::IN) => {
                        Some(session.is_readable(stream))
                    }
                    _ => None,
                };
                let until = match decrypted {
                    Some(true) => Instant::now(),
                    _ => deadline,
                };
                let ready = self.wait_for(&this, flags, until)?;
                let ended = ready.intersects(PollFlags::HUP | PollFlags::ERR);
                let is_ready = |readiness: &Readiness| match (readiness, decrypted) {
                    (Readiness::Readable, Some(decrypted)) => decrypted,
                    _ => ended || ready.intersects(flag_of(readiness)),
                };
                let list: Vec<Readiness> = interest.iter().copied().filter(is_ready).collect();
                let over = ready.is_empty() || decrypted.is_none() || Instant::now() >= deadline;
                if over || !list.is_empty() {
                    return Ok(Ok(list));
                }
            }
        })
    }

    fn start_tls(
        &mut self,
        this: Resource<Connection>,
        server_name: String,
        timeout_ms: u32,
    ) -> Outcome<TlsInfo> {
        let clock = self.sandbox.clock.clone();
        clock.outside(Phase::Connect, || {
            let grants = Arc::clone(&self.sandbox.grants);
            let connection = self.table.get_mut(&this)?;
            let agreed = match connection.secure(&server_name, &grants) {
                Err(error) => Err(error),
                Ok(session) => {
                    connection.channel = Channel::Tls(Box::new(session));
                    self.drive(
                        &this,
                        timeout_ms,
                        "the TLS handshake failed",
                        |c| match &mut c.channel {
                            Channel::Tls(session) => Ok(match session.handshake(&c.stream)? {
                                Step::Done(()) => Step::Done(session.end_point()),
                                Step::Wait(flags) => Step::Wait(flags),
                            }),
                            _ => Err(Broken::Io(Io::NotConnected.into())),
                        },
                    )?
                }
            };
            self.progress();
            if agreed.is_err() {
                let connection = self.table.get_mut(&this)?;
                connection.end();
                connection.channel = Channel::Failed;
            }
            Ok(agreed.map(|end_point| TlsInfo { end_point }))
        })
    }

    fn close(&mut self, this: Resource<Connection>) -> wasmtime::Result<()> {
        self.table.get_mut(&this)?.end();
        Ok(())
    }

    fn drop(&mut self, this: Resource<Connection>) -> wasmtime::Result<()> {
        self.table.delete(this)?.end();
        self.release(HELD_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_by_the_last_who_holds_it() {
        let taken = Arc::default();
        let one = Place::take(&taken, 2).expect("a place");
        // As for a connection that is still being opened after its guest gave up.
        let (sender, receiver) = bounded(1);
        let two = Place::take(&taken, 2).expect("a place");
        assert!(Place::take(&taken, 2).is_none());
        drop(receiver);
        assert!(sender.send(two).is_err());
        let _two = Place::take(&taken, 2).expect("the place that came back");
        drop(one);
        assert!(Place::take(&taken, 2).is_some());
    }
}
