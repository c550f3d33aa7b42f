//! One connection through a proxy: two threads for each way, one that reads and one that writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Break, CHUNK_BYTES, LOOK, MAX_CHUNKS, Shared, Way, lock};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Passes,
    Stalls,
    Loses(Way),
    /// Both sockets are closed with a reset as soon as their threads have seen this.
    Reset,
    Closed,
}

/// An event of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event<'a> {
    Connected,
    /// A client's piece that is about to be passed on.
    Coming(&'a [u8]),
    /// This many bytes were passed on.
    Passed(Way, usize),
}

#[derive(Debug)]
pub(super) struct Link {
    pub id: u64,
    client: TcpStream,
    server: TcpStream,
    state: Mutex<State>,
}

/// A piece of what was sent, and when it came.
type Piece = (Instant, Vec<u8>);

impl Link {
    /// Without a server the client is reset.
    pub fn new(client: TcpStream, server: Option<TcpStream>) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(server) = server else {
            resets(&client)?;
            return Err(ErrorKind::ConnectionRefused.into());
        };
        for socket in [&client, &server] {
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(LOOK))?;
            socket.set_write_timeout(Some(LOOK))?;
        }
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            client,
            server,
            state: Mutex::new(State::Passes),
        })
    }

    pub fn state(&self) -> State {
        *lock(&self.state)
    }

    pub fn suffer(&self, what: Break) {
        let mut state = lock(&self.state);
        // A connection that has ended stays ended.
        if matches!(*state, State::Reset | State::Closed) {
            return;
        }
        *state = match what {
            Break::Stall => State::Stalls,
            Break::Lose(way) => State::Loses(way),
            Break::Reset => {
                for socket in [&self.client, &self.server] {
                    // Failing, the other end has closed it.
                    let _ = resets(socket);
                }
                State::Reset
            }
            Break::Close => {
                for socket in [&self.client, &self.server] {
                    // Failing, it is closed.
                    let _ = socket.shutdown(Shutdown::Both);
                }
                State::Closed
            }
        };
    }

    pub fn heal(&self) {
        let state = self.state();
        match state {
            State::Stalls => *lock(&self.state) = State::Passes,
            // After missing bytes, the connection cannot continue.
            State::Loses(_) => self.suffer(Break::Reset),
            _ => {}
        }
    }

    /// Starts the threads; the sockets are closed with the last of them.
    pub fn pass_on(self: &Arc<Self>, shared: &Arc<Shared>) {
        for way in [Way::ToServer, Way::ToClient] {
            let (sender, receiver) = sync_channel(MAX_CHUNKS);
            let (link, known) = (Arc::clone(self), Arc::clone(shared));
            std::thread::spawn(move || link.read(way, &sender, &known));
            let (link, known) = (Arc::clone(self), Arc::clone(shared));
            std::thread::spawn(move || link.write(way, &receiver, &known));
        }
    }

    fn ends(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::ToServer => (&self.client, &self.server),
            Way::ToClient => (&self.server, &self.client),
        }
    }

    /// False when there is nothing more to do; waits while the connection stalls.
    fn goes_on(&self, shared: &Shared) -> bool {
        loop {
            match self.state() {
                State::Reset | State::Closed => return false,
                _ if shared.has_ended() => return false,
                State::Stalls => std::thread::sleep(LOOK),
                State::Passes | State::Loses(_) => return true,
            }
        }
    }

    fn read(&self, way: Way, sender: &SyncSender<Piece>, shared: &Shared) {
        let mut socket = self.ends(way).0;
        let mut buffer = vec![0; CHUNK_BYTES];
        while self.goes_on(shared) {
            let mut piece = match socket.read(&mut buffer) {
                Err(error) if is_nothing_yet(&error) => continue,
                Ok(bytes) if bytes > 0 => (Instant::now(), buffer[..bytes].to_vec()),
                // The end, or a reset, which comes out as an end on the other side.
                _ => return,
            };
            while let Err(error) = sender.try_send(piece) {
                let TrySendError::Full(again) = error else {
                    return;
                };
                if !self.goes_on(shared) {
                    return;
                }
                piece = again;
                std::thread::sleep(LOOK);
            }
        }
    }

    fn write(&self, way: Way, receiver: &Receiver<Piece>, shared: &Shared) {
        let target = self.ends(way).1;
        while let Ok((read, piece)) = receiver.recv() {
            shared.wait_for(read);
            if way == Way::ToServer {
                shared.look(self, Event::Coming(&piece));
            }
            if self.write_piece(way, target, &piece, shared).is_err() {
                return;
            }
        }
        if self.goes_on(shared) && self.state() != State::Loses(way) {
            // Failing, the other end has gone, too.
            let _ = target.shutdown(Shutdown::Write);
        }
    }

    fn write_piece(
        &self,
        way: Way,
        mut target: &TcpStream,
        piece: &[u8],
        shared: &Shared,
    ) -> io::Result<()> {
        let mut left = piece;
        while !left.is_empty() {
            if !self.goes_on(shared) {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if self.state() == State::Loses(way) {
                return Ok(());
            }
            match target.write(left) {
                Ok(bytes) => {
                    left = &left[bytes..];
                    shared.count(way, bytes);
                    shared.look(self, Event::Passed(way, bytes));
                }
                Err(error) if is_nothing_yet(&error) => {}
                Err(error) => {
                    // The sender learns that nobody listens.
                    let _ = self.ends(way).0.shutdown(Shutdown::Read);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Closing the socket sends a reset.
fn resets(socket: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(
        socket,
        Some(Duration::ZERO),
    )?)
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
