//! A TCP proxy that breaks: between a client and a server on this machine, it resets, stalls or
//! closes connections, loses one direction of them, refuses new ones, or is slow.
//!
//! ```no_run
//! use rapidbyte_testkit::{postgres, proxy};
//!
//! let server = postgres::shared();
//! let proxy = proxy::Proxy::to(server.port()).unwrap();
//! let database = server.database();
//! // The connection that sends a COMMIT is cut before the server hears of it.
//! proxy.arm(proxy::Fault {
//!     when: proxy::When::Before("COMMIT"),
//!     what: proxy::Break::Reset,
//!     is_everywhere: false,
//! });
//! println!("{}", database.url_through(&proxy));
//! // … and afterwards:
//! assert_eq!(proxy.counts().faults, 1);
//! ```
//!
//! It uses only threads of the standard library. Bytes that wait inside are bounded: 16 MiB each way of each
//! connection.

mod link;
mod trigger;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use link::{Event, Link, State};
use rustix::event::{PollFd, PollFlags, poll};
use trigger::Armed;

/// Read at a time.
const CHUNK_BYTES: usize = 32 << 10;
/// Pieces that wait in one direction of a connection, for the delay of a slow line or for a slow
/// reader: 16 MiB, and with the 8 KiB that a server sends at a time what 80 MB/s have on the way in 50 ms.
const MAX_CHUNKS: usize = 512;
/// How often a waiting thread checks whether it should still wait.
const LOOK: Duration = Duration::from_millis(5);
/// The server is on this machine.
const CONNECT: Duration = Duration::from_secs(5);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// When a fault happens; it happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// A connection is made, and nothing has passed.
    Connected,
    /// This many bytes have passed this way on all connections together, since the fault was armed.
    Passed(Way, u64),
    /// A client sends these bytes; the proxy does not pass on the piece in which they end.
    Before(&'static str),
    /// On a connection where a client has sent these bytes, this many more have passed this way.
    /// With 0 bytes to the server: as soon as the piece in which they end has passed.
    After(&'static str, Way, u64),
}

/// The kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Both ends get a reset.
    Reset,
    /// Both ends get an orderly end.
    Close,
    /// Nothing is read and nothing passed on, until [`Proxy::heal`].
    Stall,
    /// Bytes that go this way are lost, and the end of the connection, too.
    Lose(Way),
}

/// A kind of damage, and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The moment.
    pub when: When,
    /// The damage.
    pub what: Break,
    /// All connections break, those that come before [`Proxy::heal`] as well; else only the one
    /// that reached the moment.
    pub is_everywhere: bool,
}

/// The counters of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were passed on to the server.
    pub connections: u64,
    /// Bytes that reached the server.
    pub to_server: u64,
    /// Bytes that reached clients.
    pub to_client: u64,
    /// Armed faults that happened.
    pub faults: u64,
}

/// A proxy in front of one server; dropped, it ends every connection.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    accepting: Option<JoinHandle<()>>,
}

/// The state that all threads of a proxy share.
#[derive(Debug)]
struct Shared {
    server_port: u16,
    /// Nothing while new connections are refused. The thread that accepts has it, too, while it waits.
    listener: Mutex<Option<Arc<TcpListener>>>,
    /// A byte here makes that thread look at the state again.
    wake: UnixStream,
    armed: Mutex<Option<Armed>>,
    fired: Condvar,
    /// The damage to every new connection.
    everywhere: Mutex<Option<Break>>,
    links: Mutex<Vec<Weak<Link>>>,
    delay_us: AtomicU64,
    connections: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    faults: AtomicU64,
    has_ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and passes everything on to `server_port` there.
    ///
    /// # Errors
    /// When no port is free.
    pub fn to(server_port: u16) -> io::Result<Self> {
        let listener = listen(0)?;
        let port = listener.local_addr()?.port();
        let (wake, woken) = UnixStream::pair()?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true)?;
        }
        let shared = Arc::new(Shared {
            server_port,
            listener: Mutex::new(Some(Arc::new(listener))),
            wake,
            armed: Mutex::default(),
            fired: Condvar::new(),
            everywhere: Mutex::default(),
            links: Mutex::default(),
            delay_us: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || accepts.accept(&woken));
        Ok(Self {
            shared,
            port,
            accepting: Some(accepting),
        })
    }

    /// Where clients connect to, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the moment of a fault; an older one that did not happen is forgotten.
    pub fn arm(&self, fault: Fault) {
        *lock(&self.shared.armed) = Some(Armed::new(fault));
    }

    /// Breaks all connections of this moment, not the later ones.
    pub fn break_now(&self, what: Break) {
        for link in self.shared.links() {
            link.suffer(what);
        }
    }

    /// Whether the armed fault has happened, or happens within this time.
    pub fn has_fired(&self, within: Duration) -> bool {
        let armed = lock(&self.shared.armed);
        let waited = self
            .shared
            .fired
            .wait_timeout_while(armed, within, |armed| armed.is_some());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// All is well from now on: nothing is armed, new connections are passed on, stalled ones go
    /// on where they stopped, and those that lost something are reset.
    ///
    /// # Errors
    /// When the port was taken by another process while new connections were refused.
    pub fn heal(&self) -> io::Result<()> {
        *lock(&self.shared.armed) = None;
        *lock(&self.shared.everywhere) = None;
        for link in self.shared.links() {
            link.heal();
        }
        let mut listener = lock(&self.shared.listener);
        if listener.is_none() {
            *listener = Some(Arc::new(listen(self.port)?));
            self.shared.wake();
        }
        Ok(())
    }

    /// Refuses new connections, as a machine does where no server runs, until [`Proxy::heal`].
    pub fn refuse(&self) {
        let Some(listener) = lock(&self.shared.listener).take() else {
            return;
        };
        self.shared.wake();
        // The port refuses once the thread that accepts has dropped it, too.
        while Arc::strong_count(&listener) > 1 {
            std::thread::sleep(LOOK);
        }
    }

    /// How long each byte takes each way from now on; the rate stays.
    pub fn set_delay(&self, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay_us.store(us, Ordering::Relaxed);
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            connections: of(&self.shared.connections),
            to_server: of(&self.shared.to_server),
            to_client: of(&self.shared.to_client),
            faults: of(&self.shared.faults),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.wake();
        self.break_now(Break::Reset);
        if let Some(accepting) = self.accepting.take() {
            // It cannot panic.
            let _ = accepting.join();
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let mut links = lock(&self.links);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }

    fn wake(&self) {
        // Failing, the buffer is full, so the thread that accepts wakes up all the same.
        let _ = (&self.wake).write(&[0]);
    }

    /// Waits without looking at the clock: several proxies that each look for clients twice in a millisecond take a
    /// fifth of a processor.
    fn accept(self: Arc<Self>, mut woken: &UnixStream) {
        while !self.has_ended() {
            let listener = lock(&self.listener).clone();
            let mut ends = vec![PollFd::new(woken, PollFlags::IN)];
            if let Some(listener) = &listener {
                ends.push(PollFd::new(listener, PollFlags::IN));
            }
            // Failing, it was interrupted.
            let _ = poll(&mut ends, None);
            let _ = woken.read(&mut [0; 64]);
            let accepted = listener.and_then(|listener| listener.accept().ok());
            if let Some((client, _)) = accepted {
                self.begin(client);
            }
        }
    }

    /// Passes a connection on; a client whose server does not answer is reset.
    fn begin(self: &Arc<Self>, client: TcpStream) {
        let address = (Ipv4Addr::LOCALHOST, self.server_port).into();
        let server = TcpStream::connect_timeout(&address, CONNECT).ok();
        let Ok(link) = Link::new(client, server) else {
            return;
        };
        let link = Arc::new(link);
        lock(&self.links).push(Arc::downgrade(&link));
        if let Some(what) = *lock(&self.everywhere) {
            link.suffer(what);
        }
        if link.state() == State::Reset {
            return;
        }
        self.connections.fetch_add(1, Ordering::SeqCst);
        self.look(&link, Event::Connected);
        link.pass_on(self);
    }

    /// Tells the armed fault what happens on a connection.
    fn look(&self, link: &Link, event: Event<'_>) {
        let mut armed = lock(&self.armed);
        let Some(fault) = armed.as_mut().and_then(|armed| armed.fires(link, event)) else {
            return;
        };
        *armed = None;
        self.faults.fetch_add(1, Ordering::SeqCst);
        if fault.is_everywhere {
            *lock(&self.everywhere) = Some(fault.what);
            for link in self.links() {
                link.suffer(fault.what);
            }
        }
        link.suffer(fault.what);
        self.fired.notify_all();
    }

    /// Waits until a piece that was read then is due.
    fn wait_for(&self, read: Instant) {
        let delay = Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
        std::thread::sleep((read + delay).saturating_duration_since(Instant::now()));
    }

    fn count(&self, way: Way, bytes: usize) {
        let counter = match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        };
        counter.fetch_add(bytes as u64, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
