//! Connections of clients to a real server, with a program between.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The server is on this machine.
const CONNECT: Duration = Duration::from_secs(5);
/// The most bytes of a flood, if nobody ends it.
const MAX_FLOOD_BYTES: usize = 1 << 30;
/// Bytes of one write of a flood.
const FLOOD_BYTES: usize = 32 << 10;

/// A program on a connection between a client and the server.
pub(crate) trait Talk: Send + Sync + 'static {
    /// Passes the connection on until one end closes it. Both ends are closed afterwards, however it ends.
    fn talk(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) -> io::Result<()>;
}

/// A listener, and the connections that came to it; dropped, it ends all of them.
#[derive(Debug)]
pub(crate) struct Between<T: Talk> {
    port: u16,
    shared: Arc<Shared<T>>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<T> {
    talk: Arc<T>,
    server_port: u16,
    has_ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl<T: Talk> Between<T> {
    /// Begins to listen; connections are passed on to the server at this port of this machine. Errors: of the system, when
    /// no port is free to listen at.
    pub fn new(server_port: u16, talk: T) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            talk: Arc::new(talk),
            server_port,
            has_ended: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let known = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || known.accept(&listener));
        Ok(Self {
            port,
            shared,
            accepting: Some(accepting),
        })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The program between.
    pub fn talk(&self) -> &T {
        &self.shared.talk
    }
}

impl<T: Talk> Drop for Between<T> {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // Wakes the listener; failing, it has ended.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let _ = TcpStream::connect_timeout(&address, CONNECT);
        if let Some(accepting) = self.accepting.take() {
            // It cannot panic.
            let _ = accepting.join();
        }
    }
}

impl<T: Talk> Shared<T> {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.has_ended.load(Ordering::SeqCst) {
                self.close_all();
                return;
            }
            if let Ok((client, _)) = accepted {
                let shared = Arc::clone(&self);
                std::thread::spawn(move || {
                    // However it ends, the client hears of it.
                    let _ = shared.pass_on(&client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        }
    }

    fn pass_on(&self, client: &TcpStream) -> io::Result<()> {
        let address = (Ipv4Addr::LOCALHOST, self.server_port).into();
        let server = TcpStream::connect_timeout(&address, CONNECT)?;
        for socket in [client, &server] {
            socket.set_nodelay(true)?;
            let socket = socket.try_clone()?;
            let open = self.open.lock();
            open.unwrap_or_else(PoisonError::into_inner).push(socket);
        }
        // `Drop` may have closed all others before these were added.
        if self.has_ended.load(Ordering::SeqCst) {
            self.close_all();
        }
        let passed = self.talk.talk(client, &server);
        let _ = server.shutdown(Shutdown::Both);
        passed
    }

    fn close_all(&self) {
        let open = self.open.lock();
        for socket in open.unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Failing, it is closed.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Writes these bytes again and again, until the client closes the connection.
pub(crate) fn flood(mut client: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let many = bytes.repeat((FLOOD_BYTES / bytes.len().max(1)).max(1));
    for _ in 0..MAX_FLOOD_BYTES / many.len().max(1) {
        client.write_all(&many)?;
    }
    Ok(())
}
